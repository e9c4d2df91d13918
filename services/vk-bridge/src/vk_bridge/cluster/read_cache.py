"""What of each node was read last, so that word of what was read already begins no further reading."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spillway.clusters.api import Change, Removed, Upserted
from vk_bridge.cluster.listing import Part
from vk_bridge.cluster.node_reader import Found, Reading
from vk_bridge.cluster.pools import BoundPod, Pool
from vk_bridge.core.node.loan import Manifest
from vk_bridge.core.selection.owner_cache import WatchedPod


@dataclass(frozen=True, slots=True)
class Known:
    """A node at rest: the node and its virtual node as they were read last.

    pool: from which the virtual node was read; None: the pool was not in the fleet. uids: of all that was there then,
    parts: of each part of it.
    seen: (uid, version) of all that was read, or answered to what was written, until it came to rest.
    """

    pool: Pool | None
    node: Manifest | None
    virtual: Manifest | None
    uids: frozenset[str]
    parts: Mapping[Part, frozenset[str]]
    seen: set[tuple[str, str]]


class ReadCache:
    """Of one cluster's lent nodes: each is begun, noted, and has come to rest; what is told meanwhile is judged then.

    Versions are only ever compared for being the same: then there is nothing new. What is gone, and was not there at
    the last reading, was gone by then, or its coming is told of first.
    """

    def __init__(self) -> None:
        self._seen: dict[str, set[tuple[str, str]]] = {}
        self._told: dict[str, list[Change]] = {}
        self._rested: dict[str, Known] = {}

    def begin(self, node: str) -> Known | None:
        """What was known of it until now."""
        self._seen[node], self._told[node] = set(), []
        return self._rested.pop(node, None)

    def note(self, reading: Reading) -> None:
        self.note_versions(reading.name, reading.found.versions().items())

    def note_versions(self, node: str, versions: Iterable[tuple[str, str]]) -> None:
        """versions: (uid, version) of what this bridge itself has just written."""
        self._seen[node].update(versions)

    def end(self, node: str, rested: Reading | None) -> list[Change]:
        """What was told meanwhile and is news. rested: after which nothing is left to be done."""
        seen, told = self._seen.pop(node), self._told.pop(node)
        if rested is not None and rested.both_read:
            found = rested.found
            uids = frozenset(found.versions())
            self._rested[node] = Known(rested.pool, found.node, found.virtual, uids, _parts(found), seen)
        return [change for change in told if self.is_news(node, change)]

    def forget(self, node: str) -> None:
        """Its loan is over: nothing is asked of it until it is begun again."""
        self._rested.pop(node, None)

    def is_news_in(self, node: str, part: Part, listed: Mapping[str, str], change: Change) -> bool:
        """Whether a list that a watch began anew with has anything there that was not read. listed: versions by uid.

        Of a node under way nobody knows yet.
        """
        known = self._rested.get(node)
        if known is None:
            return self.is_news(node, change)
        return known.parts[part] != listed.keys() or not known.seen.issuperset(listed.items())

    def is_news(self, node: str, change: Change) -> bool:
        """Whether the node is to be read for what is told of something on it; False, too, while it is under way."""
        if node in self._told:
            self._told[node].append(change)
            return False
        known = self._rested.get(node)
        if known is None:
            return True
        match change:
            case Upserted(found):
                return (found.metadata.uid, found.metadata.resource_version) not in known.seen
            case Removed(found):
                return found.metadata.uid in known.uids
        return True


def _parts(found: Found) -> dict[Part, frozenset[str]]:
    nodes = {"node": found.node, "virtual": found.virtual}
    alone = {part: frozenset({one["metadata"]["uid"]} if one is not None else ()) for part, one in nodes.items()}
    return {"own_pods": frozenset(found.own_pods), "pool_pods": frozenset(found.pool_pods), **alone}  # type: ignore[dict-item]


def is_of_pod(change: Change) -> bool:
    """Whether it is about one pod, and says nothing of nodes."""
    return isinstance(change, Upserted | Removed) and isinstance(change.object, WatchedPod | BoundPod)
