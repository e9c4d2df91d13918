"""Defines the times and limits on which a cluster's records depend."""

from dataclasses import dataclass
from typing import Final

IGNORED_POD_LABELS: Final = (
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
    "batch.kubernetes.io/controller-uid",
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/job-name",
)
"""The labels of pods of StatefulSets and Jobs whose values differ for each pod or each Job."""


@dataclass(frozen=True, slots=True)
class SnapshotRules:
    """The times and limits of one cluster's records.

    heartbeat_seconds: the longest time between two records of block 0.
    stream_silence_seconds: a watch without an event or a bookmark for longer is doubted.
    count_differs_seconds: objects are listed again once a probe's count has differed from ours for so long.
    shrink_confirm_seconds, shrink_confirm_probes: a list from which most nodes are missing is doubted until so many
        probes in a row, over so much time, confirm it.
    block_nodes_max, block_bytes_max: the largest block: the number of nodes, and the bytes of its columns.
    full_seconds: the longest time between two full records of a block.
    full_bytes_min: with fewer bytes of changes, a block is not written in full because of their size.
    unwritable_retry_seconds: the time until capacity that was too large for a record is tried again.
    volume_claims_max: the most volume claims of one cluster that are published.
    facts_per_record_max: the most workloads or namespaces in one change record.
    pending_reason_seconds: the least time between two records of a pending group of which only the reason changed.
    pending_forget_seconds: the time until the key of a group without pending pods is removed from the log.
    reason_characters_max: the most characters of a scheduler's message that are published.
    pods_bytes_max: the most bytes, roughly, of a record of a scaled workload's pods.
    ignored_pod_labels: the keys that are left out of pods' label sets, because their values differ for each pod.
    """

    heartbeat_seconds: float = 2.0
    stream_silence_seconds: float = 90.0
    count_differs_seconds: float = 10.0
    shrink_confirm_seconds: float = 60.0
    shrink_confirm_probes: int = 5
    block_nodes_max: int = 5_000
    block_bytes_max: int = 1_000_000
    full_seconds: float = 3_600.0
    full_bytes_min: int = 16_384
    unwritable_retry_seconds: float = 60.0
    volume_claims_max: int = 5_000
    facts_per_record_max: int = 1_000
    pending_reason_seconds: float = 10.0
    pending_forget_seconds: float = 3_600.0
    reason_characters_max: int = 1_000
    pods_bytes_max: int = 1_500_000
    ignored_pod_labels: tuple[str, ...] = IGNORED_POD_LABELS
