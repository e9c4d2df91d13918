"""What can be chosen about a snapshot service; each field is the variable SPILLWAY_SNAPSHOT_<NAME>."""

from dataclasses import dataclass

from spillway.running.cluster_turns import ClusterTurnSettings
from spillway.settings import setting

IGNORED_POD_LABELS = (
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
    "batch.kubernetes.io/controller-uid",
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/job-name",
)


@dataclass(frozen=True, slots=True)
class SnapshotSettings(ClusterTurnSettings):
    gather_seconds: float = setting(0.1, "seconds that changes are gathered before they are said")
    heartbeat_seconds: float = setting(2.0, "seconds between records of block 0, so that readers know the age")
    late_seconds: float = setting(
        1.0, "records that took longer than this to be written are followed at once by a heartbeat, seconds"
    )
    probe_seconds: float = setting(2.0, "seconds between starts of probes")
    probe_longest_seconds: float = setting(10.0, "longest pause, in seconds, between probes that fail")
    stream_silence_seconds: float = setting(90.0, "seconds without event or bookmark that make a stream doubtful")
    count_differs_seconds: float = setting(10.0, "seconds that a probe's count may differ from ours before a new list")
    shrink_confirm_seconds: float = setting(
        60.0, "seconds that a list without most nodes is doubted while probes agree"
    )
    shrink_confirm_probes: int = setting(5, "probes in a row that must agree with such a list")

    block_nodes_max: int = setting(5_000, "most nodes of one block")
    block_bytes_max: int = setting(1_000_000, "most bytes of a block's columns; above it, nodes go into more blocks")
    full_seconds: float = setting(3_600.0, "longest time, in seconds, between two full records of a block")
    full_bytes_min: int = setting(16_384, "bytes of changes below which a block is not written again for their weight")
    unwritable_retry_seconds: float = setting(
        60.0, "seconds until the capacity of a cluster is tried again that was more than a record holds"
    )
    volume_claims_max: int = setting(5_000, "most volume claims of a cluster that are told of")
    facts_per_record_max: int = setting(1_000, "most workloads in one change record")

    pending_reason_seconds: float = setting(10.0, "seconds between two records of a group whose reason alone changes")
    pending_forget_seconds: float = setting(3_600.0, "seconds until the key of a group with no such pods is removed")
    reason_characters_max: int = setting(1_000, "most characters of a scheduler's message that are passed on")

    metrics_seconds: float = setting(15.0, "seconds between questions for the use of scaled workloads' pods")
    metrics_answer_seconds: float = setting(5.0, "seconds that one such question may take")
    metrics_at_once: int = setting(4, "namespaces of one cluster that are asked for at one time")
    pods_bytes_max: int = setting(1_500_000, "most bytes, roughly, of a record of a scaled workload's pods")

    lists_at_once: int = setting(4, "clusters whose first lists are read at one time")
    list_slot_seconds: float = setting(10.0, "seconds after which a slow first list no longer holds others up")
    list_step_objects: int = setting(
        500, "objects of a list, or changes, that are applied before others have their turn"
    )
    connect_first_seconds: float = setting(0.5, "first pause, in seconds, after a failed connect; doubles each time")
    connect_longest_seconds: float = setting(30.0, "longest of these pauses, in seconds")
    ignored_pod_labels: tuple[str, ...] = setting(
        IGNORED_POD_LABELS, "label keys that are left out of the pods' label sets, since each pod has its own value"
    )
