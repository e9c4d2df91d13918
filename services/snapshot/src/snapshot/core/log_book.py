"""What the log has last under each key of ours, and which of it somebody else wrote behind our back (P1)."""

from collections.abc import Mapping
from typing import NamedTuple

from spillway.addresses import CAPACITY, PENDING, PODS, Address, capacity_address, pending_address, pods_address
from spillway.events import CapacityReported, PodsScheduled, PodsUnschedulable
from spillway.events_scaling import PodsObserved

Key = tuple[str, str]
"""Topic and key."""


class Seen(NamedTuple):
    """The last record of a key. epoch −1 is a tombstone, which says nothing of its writer."""

    offset: int
    epoch: int


TOMBSTONE = -1

Kept = CapacityReported | PodsUnschedulable | PodsScheduled | PodsObserved
"""What this service keeps in compacted topics."""


class LogBook:
    """The compacted topics that this service writes, for all clusters, since any of them may become ours."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[Key, Seen]] = {}

    def note(self, topic: str, key: str, offset: int, event: Kept | None) -> str:
        """One record of capacity, pending or pods, in the order of its partition. Returns the cluster's name."""
        cluster = event.cluster if event is not None else _cluster_of(topic, key)
        epoch = event.epoch if event is not None else TOMBSTONE
        seen = self._seen.setdefault(cluster, {})
        if (topic, key) not in seen or seen[topic, key].offset < offset:
            seen[topic, key] = Seen(offset, epoch)
        return cluster

    def foreign(self, cluster: str, epoch: int, own: Mapping[Key, int]) -> list[Key]:
        """Keys whose last record is of a lower epoch, or a tombstone, and stands behind our own.

        own: where our last record of a key stands. To be asked while no write of ours is under way.
        """
        return [
            key
            for key, seen in self._seen.get(cluster, {}).items()
            if seen.epoch < epoch and seen.offset > own.get(key, -1)
        ]

    def is_tombstone(self, cluster: str, key: Key) -> bool:
        return self._seen[cluster][key].epoch == TOMBSTONE

    def settle(self, cluster: str, key: Key) -> None:
        """A tombstone where nothing is known: as it should be, and not worth remembering."""
        seen = self._seen.get(cluster, {})
        if key in seen and seen[key].epoch == TOMBSTONE:
            del seen[key]

    def left_over(self, cluster: str) -> list[Key]:
        """Keys that still say something of this cluster."""
        return [key for key, seen in self._seen.get(cluster, {}).items() if seen.epoch != TOMBSTONE]

    def forget(self, cluster: str) -> None:
        """A cluster that is gone and of which nothing is left over."""
        if not self.left_over(cluster):
            self._seen.pop(cluster, None)


def block_index(key: Key) -> int | None:
    """The block that a key stands for, if it does for one."""
    topic, name = key
    return int(name.rpartition("/")[2]) if topic == CAPACITY.name else None


def group_name(key: Key) -> str | None:
    """The group of waiting pods that a key stands for, if it does for one."""
    topic, name = key
    return name.partition("/")[2] if topic == PENDING.name else None


def workload_of(key: Key) -> tuple[str, str]:
    """Namespace and name of the workload that a key of pods stands for."""
    namespace, name, _ = key[1].split("/")
    return namespace, name


def address_of_key(cluster: str, key: Key) -> Address:
    index, group = block_index(key), group_name(key)
    if index is not None:
        return capacity_address(cluster, index)
    return pods_address(*workload_of(key), cluster) if group is None else pending_address(cluster, group)


def _cluster_of(topic: str, key: str) -> str:
    return key.rpartition("/")[2] if topic == PODS.name else key.partition("/")[0]
