"""Workloads whose newest template has not reached every cluster, and which of them have a reason to be looked at."""

from collections.abc import Iterator
from typing import NamedTuple

from spillway.model import Generation

WorkloadKey = tuple[str, str]


class Figures(NamedTuple):
    """How far an earlier change in a cluster is: a roll, or a scale-in.

    counted: bound pods by template hash. pods, updated: of the object's status. terminating: pods. Ready pods are no
    progress: a pod that crashes again and again is ready from time to time.
    """

    cluster: str
    version: Generation
    counted: tuple[tuple[str, int], ...]
    pods: int
    updated: int
    terminating: int


class RolloutList:
    """Due are those of which a status came, or of which a next or the blocking cluster changed; the rest only wait."""

    def __init__(self) -> None:
        self._waits_on: dict[WorkloadKey, tuple[str, ...]] = {}
        self._keys_by_cluster: dict[str, dict[WorkloadKey, None]] = {}
        self._due: dict[WorkloadKey, None] = {}
        self._under_way: dict[WorkloadKey, tuple[Figures, float, bool]] = {}
        """Of those that wait for the end of an earlier change: how far it is, since when, and whether it was seen to
        stand."""

    def __iter__(self) -> Iterator[WorkloadKey]:
        return iter(self._waits_on)

    def __contains__(self, key: WorkloadKey) -> bool:
        return key in self._waits_on

    def __len__(self) -> int:
        return len(self._waits_on)

    def put(self, key: WorkloadKey) -> None:
        """Something was declared or placed of it, and it rolls."""
        self._waits_on.setdefault(key, ())
        self.retry(key)

    def drop(self, key: WorkloadKey) -> None:
        """It does not roll any more."""
        self.wait_for(key, ())
        self._waits_on.pop(key, None)
        self._due.pop(key, None)
        self._under_way.pop(key, None)

    def retry(self, key: WorkloadKey) -> None:
        if key in self._waits_on:
            self._due[key] = None

    def retry_all(self) -> None:
        """Something changed that may concern all of them: a brake, or which clusters there are, or are lost."""
        self._due.update(dict.fromkeys(self._waits_on))

    def touch(self, *clusters: str) -> None:
        """Room may have come up in them, or they may be lost."""
        for cluster in clusters if self._keys_by_cluster else ():
            self._due.update(self._keys_by_cluster.get(cluster, ()))

    def note_under_way(self, key: WorkloadKey, figures: Figures | None, now: float) -> None:
        """It was looked at. figures: of the change that it waits for, or waited for until that stood; None: of none."""
        known = self._under_way.get(key)
        if figures is None or key not in self._waits_on:
            self._under_way.pop(key, None)
        elif known is None or known[0] != figures:
            self._under_way[key] = figures, now, False

    def stands(self, key: WorkloadKey, figures: Figures, now: float, seconds: float) -> bool:
        """Whether the change has been no further than that for so long."""
        known = self._under_way.get(key)
        return known is not None and known[0] == figures and now - known[1] >= seconds

    def retry_standing(self, now: float, seconds: float) -> None:
        """A workload whose earlier change stands is due, once."""
        for key, (figures, since, seen) in self._under_way.items():
            if not seen and now - since >= seconds:
                self._under_way[key] = figures, since, True
                self.retry(key)

    def wait_for(self, key: WorkloadKey, clusters: tuple[str, ...]) -> None:
        """It was looked at. clusters: that it waits for, for room or to be available; none when for something else."""
        if key not in self._waits_on:
            return
        for before in self._waits_on[key]:
            self._keys_by_cluster[before].pop(key, None)
            if not self._keys_by_cluster[before]:
                del self._keys_by_cluster[before]
        for cluster in clusters:
            self._keys_by_cluster.setdefault(cluster, {})[key] = None
        self._waits_on[key] = clusters

    def due(self, most: int) -> list[WorkloadKey]:
        """At most so many, longest due first; each is due again only for a new reason."""
        found = list(self._due)[:most]
        for key in found:
            del self._due[key]
        return found
