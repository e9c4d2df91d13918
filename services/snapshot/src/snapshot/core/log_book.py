"""Keeps the last record that the log has for each of our keys, and finds records that others wrote after ours."""

from collections.abc import Mapping
from typing import NamedTuple

from spillway.addresses import CAPACITY, PENDING, PODS, RecordAddress, capacity_address, pending_address, pods_address
from spillway.events import CapacityReported, PodsScheduled, PodsUnschedulable
from spillway.events_scaling import PodsObserved

Key = tuple[str, str]
"""(topic, key) of a record in the log."""


class LastRecord(NamedTuple):
    """The last record of a key. The epoch −1 means a tombstone, which does not tell its writer."""

    offset: int
    epoch: int


TOMBSTONE = -1

Kept = CapacityReported | PodsUnschedulable | PodsScheduled | PodsObserved
"""The records that this service keeps in compacted topics."""


class LogBook:
    """The last record of each key in the compacted topics that this service writes.

    It covers all clusters, because this instance may take the turn at any of them.
    """

    def __init__(self) -> None:
        self._seen: dict[str, dict[Key, LastRecord]] = {}

    def note_record(self, topic: str, key: str, offset: int, event: Kept | None) -> str:
        """Stores a record of capacity, pending or pods as its key's last one. Returns the cluster's name.

        Call it in the order of each partition. event: None for a tombstone.
        """
        cluster = event.cluster if event is not None else _cluster_of_key(topic, key)
        epoch = event.epoch if event is not None else TOMBSTONE
        seen = self._seen.setdefault(cluster, {})
        if (topic, key) not in seen or seen[topic, key].offset < offset:
            seen[topic, key] = LastRecord(offset, epoch)
        return cluster

    def foreign_keys(self, cluster: str, epoch: int, own: Mapping[Key, int]) -> list[Key]:
        """Returns the keys whose last record comes after our own and has a lower epoch or is a tombstone.

        own: the offsets of our last records by key. Call it while no write of ours is under way.
        """
        return [
            key
            for key, seen in self._seen.get(cluster, {}).items()
            if seen.epoch < epoch and seen.offset > own.get(key, -1)
        ]

    def is_tombstone(self, cluster: str, key: Key) -> bool:
        return self._seen[cluster][key].epoch == TOMBSTONE

    def forget_tombstone(self, cluster: str, key: Key) -> None:
        """Forgets a tombstone. Call it for a key for which we have no record, so that the tombstone is right."""
        seen = self._seen.get(cluster, {})
        if key in seen and seen[key].epoch == TOMBSTONE:
            del seen[key]

    def keys_left_over(self, cluster: str) -> list[Key]:
        """Returns the keys for which the log still has a record of this cluster."""
        return [key for key, seen in self._seen.get(cluster, {}).items() if seen.epoch != TOMBSTONE]

    def forget_cluster(self, cluster: str) -> None:
        """Forgets a cluster that left and has no records in the log."""
        if not self.keys_left_over(cluster):
            self._seen.pop(cluster, None)


def block_index(key: Key) -> int | None:
    """Returns the index of the block that a key of the topic capacity is about; None for a key of another topic."""
    topic, name = key
    return int(name.rpartition("/")[2]) if topic == CAPACITY.name else None


def group_name(key: Key) -> str | None:
    """Returns the group of waiting pods that a key of the topic pending is about; None for a key of another topic."""
    topic, name = key
    return name.partition("/")[2] if topic == PENDING.name else None


def workload_of_key(key: Key) -> tuple[str, str]:
    """Returns (namespace, name) of the workload that a key of the topic pods is about."""
    namespace, name, _ = key[1].split("/")
    return namespace, name


def address_of_key(cluster: str, key: Key) -> RecordAddress:
    index, group = block_index(key), group_name(key)
    if index is not None:
        return capacity_address(cluster, index)
    return pods_address(*workload_of_key(key), cluster) if group is None else pending_address(cluster, group)


def _cluster_of_key(topic: str, key: str) -> str:
    return key.rpartition("/")[2] if topic == PODS.name else key.partition("/")[0]
