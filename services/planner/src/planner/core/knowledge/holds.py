"""Keeps the holds. A hold keeps a cluster from getting more replicas of a shape or workload for some time."""

from collections.abc import Callable, ItemsView, Iterator, KeysView, MutableMapping, Set
from heapq import heappop, heappush
from typing import Final

from planner.core.knowledge.timers import HoldKey, PlacementHold
from spillway.feasibility.cluster_view import WorkloadKey
from spillway.model import Shape

GONE: Final = "gone"
DECLARED: Final = "declared"
TRIED: Final = "tried"
"""The states of the workload that a hold is about. GONE: the workload is no longer declared. DECLARED: it is declared.
TRIED: it is declared, and its replicas wait for nodes in the cluster of the hold."""
Needs = Callable[[str, PlacementHold], str]
"""A function that returns one of these states for a cluster and a hold there."""
NOWHERE: Set[str] = frozenset()


class Holds(MutableMapping[HoldKey, PlacementHold]):
    """The holds, by cluster and by the shape or workload that is held.

    A hold runs until its pause is over. After that it has no effect, but it is remembered for a while, so that the next
    pause is longer. It is forgotten after some time, after a bind, or when its cluster leaves the fleet.
    """

    def __init__(self) -> None:
        self._holds: dict[HoldKey, PlacementHold] = {}
        self._running: dict[HoldKey, PlacementHold] = {}
        self._clusters_of: dict[Shape | WorkloadKey, dict[str, None]] = {}
        self._due: list[tuple[float, int, HoldKey, PlacementHold]] = []
        self._count = 0

    def running_holds(self) -> ItemsView[HoldKey, PlacementHold]:
        """Returns the holds whose pause was not over at the last end_due_holds()."""
        return self._running.items()

    def clusters_of(self, whom: Shape | WorkloadKey) -> KeysView[str] | Set[str]:
        """Returns the clusters in which a hold against this shape or workload runs."""
        found = self._clusters_of.get(whom)
        return found.keys() if found is not None else NOWHERE

    def end_due_holds(self, now: float, memory_seconds: float, needs: Needs) -> Iterator[HoldKey]:
        """Yields the holds whose pause has ended since the last call, and forgets holds that are not needed any more.

        memory_seconds: how long a hold is remembered after its pause, or as long as the pause was if that is longer.
        """
        while self._due and self._due[0][0] <= now:
            _, _, key, hold = heappop(self._due)
            if self._holds.get(key) is not hold:
                continue
            is_first = not hold.over
            if is_first:
                hold.over = True
                self._remove_running(key)
                yield key
            need = needs(key[0], hold)
            if need == TRIED or (need == DECLARED and is_first):
                self._schedule_look(now + max(memory_seconds, hold.seconds), key, hold)
            else:
                del self._holds[key]

    def drop_cluster(self, cluster: str) -> None:
        """Drops the holds in a cluster that has left the fleet."""
        for key in [key for key in self._holds if key[0] == cluster]:
            del self[key]

    def __getitem__(self, key: HoldKey) -> PlacementHold:
        return self._holds[key]

    def __setitem__(self, key: HoldKey, hold: PlacementHold) -> None:
        self._holds[key] = self._running[key] = hold
        cluster, whom = key
        self._clusters_of.setdefault(whom, {})[cluster] = None
        self._schedule_look(hold.until, key, hold)

    def __delitem__(self, key: HoldKey) -> None:
        del self._holds[key]
        self._remove_running(key)

    def __iter__(self) -> Iterator[HoldKey]:
        return iter(self._holds)

    def __len__(self) -> int:
        return len(self._holds)

    def _schedule_look(self, at: float, key: HoldKey, hold: PlacementHold) -> None:
        self._count += 1  # The count keeps heapq from comparing the holds of two entries with the same time.
        heappush(self._due, (at, self._count, key, hold))

    def _remove_running(self, key: HoldKey) -> None:
        if self._running.pop(key, None) is None:
            return
        cluster, whom = key
        clusters = self._clusters_of[whom]
        del clusters[cluster]
        if not clusters:
            del self._clusters_of[whom]
