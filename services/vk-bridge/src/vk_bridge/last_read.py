"""What of each node was read last, so that word of what was read already begins no further reading."""

from spillway.cluster_api import Change, Removed, Upserted
from vk_bridge.node_reader import Reading


class LastRead:
    """Of one cluster's lent nodes: each is begun, noted, and has come to rest; what is told meanwhile is judged then.

    Versions are only ever compared for being the same: then there is nothing new. What is gone, and was not there at
    the last reading, was gone by then, or its coming is told of first.
    """

    def __init__(self) -> None:
        self._under_way: dict[str, set[tuple[str, str]]] = {}
        self._told: dict[str, list[Change]] = {}
        self._rested: dict[str, tuple[set[tuple[str, str]], frozenset[str]]] = {}
        """(uid, version) of all that was read, or answered to what was written, and the uids of the last reading."""

    def begin(self, node: str) -> None:
        self._rested.pop(node, None)
        self._under_way[node] = set()
        self._told[node] = []

    def note(self, reading: Reading) -> None:
        self._under_way[reading.name].update(reading.found.versions().items())

    def end(self, node: str, rested: Reading | None) -> bool:
        """Whether something was told meanwhile that is news. rested: after which nothing is left to be done."""
        seen, told = self._under_way.pop(node), self._told.pop(node)
        if rested is not None and rested.both_read and rested.virtual is not None:
            self._rested[node] = seen, frozenset(rested.found.versions())
        return any(self.is_news(node, change) for change in told)

    def is_news(self, node: str, change: Change) -> bool:
        """Whether the node is to be read for what is told of something on it; False, too, while it is under way."""
        if node in self._told:
            self._told[node].append(change)
            return False
        if node not in self._rested:
            return True
        seen, uids = self._rested[node]
        match change:
            case Upserted(found):
                return (found.metadata.uid, found.metadata.resource_version) not in seen
            case Removed(found):
                return found.metadata.uid in uids
        return True
