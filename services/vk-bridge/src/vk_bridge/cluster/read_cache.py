"""Remembers the last reading of each node, so that events about known versions cause no further reading."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spillway.clusters.api import Change, ObjectRemoved, ObjectUpserted
from vk_bridge.cluster.answers import NodeAnswers
from vk_bridge.cluster.listing import Part
from vk_bridge.cluster.node_reader import NodeReading
from vk_bridge.cluster.pools import BoundPod, Pool
from vk_bridge.core.node.loan import Manifest
from vk_bridge.core.selection.owner_cache import WatchedPod


@dataclass(frozen=True, slots=True)
class RestingNode:
    """A node at rest: the node and its virtual node as they were last read.

    pool: the pool from which the virtual node was read; None: it was not in the fleet.
    uids: the uids of all objects that were there.
    parts: the uids of each part.
    seen: (uid, version) of everything that was read or answered until the node came to rest.
    """

    pool: Pool | None
    node: Manifest | None
    virtual: Manifest | None
    uids: frozenset[str]
    parts: Mapping[Part, frozenset[str]]
    seen: set[tuple[str, str]]


class ReadCache:
    """The readings of one cluster's lent nodes. Work on a node goes from `begin_work` through `note_reading` to
    `end_work`.

    Changes that come in between are judged at the end. Versions are only compared for equality: an equal version is not
    news. A deleted object that was not in the last reading was gone by then, or the watch delivers its creation first.
    """

    def __init__(self) -> None:
        self._seen: dict[str, set[tuple[str, str]]] = {}
        self._told: dict[str, list[Change]] = {}
        self._rested: dict[str, RestingNode] = {}

    def begin_work(self, node: str) -> RestingNode | None:
        """Begins work on a node. Returns the last reading, if the node was at rest; None if it must be read."""
        self._seen[node], self._told[node] = set(), []
        return self._rested.pop(node, None)

    def note_reading(self, reading: NodeReading) -> None:
        self.note_versions(reading.name, reading.found.version_by_uid().items())

    def note_versions(self, node: str, versions: Iterable[tuple[str, str]]) -> None:
        """Stores versions as seen, so that their events cause no reading.

        versions: (uid, version) of objects that this bridge itself has just written.
        """
        self._seen[node].update(versions)

    def end_work(self, node: str, rested: NodeReading | None) -> list[Change]:
        """Ends work on a node. Returns the changes since `begin_work` that are news.

        rested: the reading, if nothing is left to do.
        """
        seen, told = self._seen.pop(node), self._told.pop(node)
        if rested is not None and rested.is_read_on_both_sides:
            found = rested.found
            uids = frozenset(found.version_by_uid())
            self._rested[node] = RestingNode(rested.pool, found.node, found.virtual, uids, _uids_by_part(found), seen)
        return [change for change in told if self.is_news(node, change)]

    def forget_node(self, node: str) -> None:
        """Forgets a node whose loan is over, until work on it begins again."""
        self._rested.pop(node, None)

    def is_news_in_list(self, node: str, part: Part, listed: Mapping[str, str], change: Change) -> bool:
        """Returns whether the list of a restarted watch differs from the last reading of the node.

        listed: versions by uid. While work on the node is under way, the change is kept for `end_work`.
        """
        known = self._rested.get(node)
        if known is None:
            return self.is_news(node, change)
        return known.parts[part] != listed.keys() or not known.seen.issuperset(listed.items())

    def is_news(self, node: str, change: Change) -> bool:
        """Returns whether a change requires a new reading of the node.

        While work on the node is under way, it returns False and keeps the change for `end_work`.
        """
        if node in self._told:
            self._told[node].append(change)
            return False
        known = self._rested.get(node)
        if known is None:
            return True
        match change:
            case ObjectUpserted(found):
                return (found.metadata.uid, found.metadata.resource_version) not in known.seen
            case ObjectRemoved(found):
                return found.metadata.uid in known.uids
        return True


def _uids_by_part(found: NodeAnswers) -> dict[Part, frozenset[str]]:
    nodes = {"node": found.node, "virtual": found.virtual}
    alone = {part: frozenset({one["metadata"]["uid"]} if one is not None else ()) for part, one in nodes.items()}
    return {"own_pods": frozenset(found.own_pods), "pool_pods": frozenset(found.pool_pods), **alone}  # type: ignore[dict-item]


def is_of_pod(change: Change) -> bool:
    """Returns whether the change is about one pod only."""
    return isinstance(change, ObjectUpserted | ObjectRemoved) and isinstance(change.object, WatchedPod | BoundPod)
