"""Lists workloads whose newest template has not reached every cluster, and which of them need a look."""

from collections.abc import Iterator
from typing import NamedTuple

from spillway.model import Generation

WorkloadKey = tuple[str, str]


class RolloutProgress(NamedTuple):
    """The progress of an earlier change in a cluster: a roll, or a scale-in.

    counted: bound pods by template hash.
    pods, updated: from the object's status.
    terminating: the number of terminating pods.

    Ready pods do not count as progress: a pod that crashes again and again is ready from time to time.
    """

    cluster: str
    version: Generation
    counted: tuple[tuple[str, int], ...]
    pods: int
    updated: int
    terminating: int


class RolloutList:
    """The workloads that roll out, and which of them are due to be looked at.

    A workload is due after a new status, or when the cluster that is next or that it waits for has changed.
    """

    def __init__(self) -> None:
        self._waits_on: dict[WorkloadKey, tuple[str, ...]] = {}
        self._keys_by_cluster: dict[str, dict[WorkloadKey, None]] = {}
        self._due: dict[WorkloadKey, None] = {}
        self._under_way: dict[WorkloadKey, tuple[RolloutProgress, float, bool]] = {}
        """For each workload that waits for an earlier change: the change's progress, the time of the last progress,
        and whether retry_standing_still() has made the workload due since."""

    def __iter__(self) -> Iterator[WorkloadKey]:
        return iter(self._waits_on)

    def __contains__(self, key: WorkloadKey) -> bool:
        return key in self._waits_on

    def __len__(self) -> int:
        return len(self._waits_on)

    def put_workload(self, key: WorkloadKey) -> None:
        """Adds a workload that rolls, and makes it due. Call it when the workload was declared or placed."""
        self._waits_on.setdefault(key, ())
        self.retry_workload(key)

    def drop_workload(self, key: WorkloadKey) -> None:
        """Removes a workload that no longer rolls."""
        self.set_awaited_clusters(key, ())
        self._waits_on.pop(key, None)
        self._due.pop(key, None)
        self._under_way.pop(key, None)

    def retry_workload(self, key: WorkloadKey) -> None:
        if key in self._waits_on:
            self._due[key] = None

    def retry_all(self) -> None:
        """Makes all workloads due after a change that may affect all: a brake, a join, a leave or a lost cluster."""
        self._due.update(dict.fromkeys(self._waits_on))

    def retry_waiting_on(self, *clusters: str) -> None:
        """Makes the workloads due that wait for these clusters: the clusters may have room now, or be lost."""
        for cluster in clusters if self._keys_by_cluster else ():
            self._due.update(self._keys_by_cluster.get(cluster, ()))

    def note_progress(self, key: WorkloadKey, figures: RolloutProgress | None, now: float) -> None:
        """Stores the progress of the earlier change that a workload waits for, so that is_standing_still() can time it.

        figures: None if there is no such change. A change that stood still is still noted here, although the workload
        no longer waits for it.
        """
        known = self._under_way.get(key)
        if figures is None or key not in self._waits_on:
            self._under_way.pop(key, None)
        elif known is None or known[0] != figures:
            self._under_way[key] = figures, now, False

    def is_standing_still(self, key: WorkloadKey, figures: RolloutProgress, now: float, seconds: float) -> bool:
        """Returns whether the change has made no progress beyond these figures for that many seconds."""
        known = self._under_way.get(key)
        return known is not None and known[0] == figures and now - known[1] >= seconds

    def retry_standing_still(self, now: float, seconds: float) -> None:
        """Makes a workload due, once, when the change that it waits for has stood still for so many seconds."""
        for key, (figures, since, seen) in self._under_way.items():
            if not seen and now - since >= seconds:
                self._under_way[key] = figures, since, True
                self.retry_workload(key)

    def set_awaited_clusters(self, key: WorkloadKey, clusters: tuple[str, ...]) -> None:
        """Sets the clusters that a workload waits for (room or availability). Empty: it waits for something else."""
        if key not in self._waits_on:
            return
        for before in self._waits_on[key]:
            self._keys_by_cluster[before].pop(key, None)
            if not self._keys_by_cluster[before]:
                del self._keys_by_cluster[before]
        for cluster in clusters:
            self._keys_by_cluster.setdefault(cluster, {})[key] = None
        self._waits_on[key] = clusters

    def take_due_workloads(self, most: int) -> Iterator[WorkloadKey]:
        """Yields at most `most` workloads, the longest due first. Each is due again only for a new reason.

        A workload stays due, in its place, until it is yielded.
        """
        for key in list(self._due)[:most]:
            if key in self._due:
                del self._due[key]
                yield key
