"""Settings of snapshot, from SPILLWAY_SNAPSHOT_* in the environment, and its constants."""

from dataclasses import dataclass

from spillway.running.cluster_turns import ClusterTurnSettings
from spillway.settings import constant, setting

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
    gather_seconds: float = constant(
        0.1,
        "seconds that changes are gathered before they are said",
        "not noticed beside a scheduler's own time, and a burst becomes few records",
    )
    heartbeat_seconds: float = setting(2.0, "seconds between records of block 0, so that readers know the age")
    late_seconds: float = constant(
        1.0,
        "records that took longer than this to be written are followed at once by a heartbeat, seconds",
        "half of a heartbeat by default: after a longer write the age that readers know is wrong",
    )
    probe_seconds: float = constant(
        2.0,
        "seconds between starts of probes",
        "as heartbeat_seconds by default: a probe is what makes the age young",
    )
    probe_longest_seconds: float = constant(
        10.0,
        "longest pause, in seconds, between probes that fail",
        "a cluster that comes back is noticed within it, and a try costs one request",
    )
    stream_silence_seconds: float = constant(
        90.0,
        "seconds without event or bookmark that make a stream doubtful",
        "API servers send a bookmark about every 60 s",
    )
    count_differs_seconds: float = constant(
        10.0,
        "seconds that a probe's count may differ from ours before a new list",
        "longer than a stream lags behind; only a list that is wrong differs for longer",
    )
    shrink_confirm_seconds: float = constant(
        60.0,
        "seconds that a list without most nodes is doubted while probes agree",
        "long enough that a server which forgot its nodes is not believed, short beside their loss",
    )
    shrink_confirm_probes: int = constant(
        5,
        "probes in a row that must agree with such a list",
        "so many answers in shrink_confirm_seconds cannot all be of one short fault",
    )

    block_nodes_max: int = constant(
        5_000,
        "most nodes of one block",
        "bounds a record; a cluster with more nodes has more blocks",
    )
    block_bytes_max: int = constant(
        1_000_000,
        "most bytes of a block's columns; above it, nodes go into more blocks",
        "half of the largest record; a cluster with more has more blocks",
    )
    full_seconds: float = constant(
        3_600.0,
        "longest time, in seconds, between two full records of a block",
        "bounds how many changes a reader has to go through; each hour one full record of a block is little",
    )
    full_bytes_min: int = constant(
        16_384,
        "bytes of changes below which a block is not written again for their weight",
        "so little costs less to read than a full record costs to write",
    )
    unwritable_retry_seconds: float = constant(
        60.0,
        "seconds until the capacity of a cluster is tried again that was more than a record holds",
        "only a change in the cluster makes it smaller, and a try costs as much as a record",
    )
    volume_claims_max: int = constant(
        5_000,
        "most volume claims of a cluster that are told of",
        "bounds a record, which also names the namespaces that have more",
    )
    facts_per_record_max: int = constant(
        1_000,
        "most workloads in one change record",
        "bounds a record; what is beyond is in the next one",
    )

    pending_reason_seconds: float = constant(
        10.0,
        "seconds between two records of a group whose reason alone changes",
        "words alone are for people, and schedulers change them all the time",
    )
    pending_forget_seconds: float = constant(
        3_600.0,
        "seconds until the key of a group with no such pods is removed",
        "a tombstone any time later is the same; an hour keeps groups that come and go",
    )
    reason_characters_max: int = constant(
        1_000,
        "most characters of a scheduler's message that are passed on",
        "longer than what a scheduler says of a thousand nodes' groups; it is for people",
    )

    metrics_seconds: float = setting(15.0, "seconds between questions for the use of scaled workloads' pods")
    metrics_answer_seconds: float = constant(
        5.0,
        "seconds that one such question may take",
        "a server that is well answers in less, and questions must not pile up",
    )
    metrics_at_once: int = constant(
        4,
        "namespaces of one cluster that are asked for at one time",
        "bounds the load on metrics-server; what is beyond is asked next, within one interval",
    )
    pods_bytes_max: int = constant(
        1_500_000,
        "most bytes, roughly, of a record of a scaled workload's pods",
        "three quarters of the largest record; how many pods are left out is said",
    )

    lists_at_once: int = setting(4, "clusters whose first lists are read at one time")
    list_slot_seconds: float = constant(
        10.0,
        "seconds after which a slow first list no longer holds others up",
        "bounds how long one slow cluster holds others up; its list goes on meanwhile",
    )
    list_step_objects: int = constant(
        500,
        "objects of a list, or changes, that are applied before others have their turn",
        "bounds how long the others of this process wait; a page of a list",
    )
    connect_first_seconds: float = constant(
        0.5,
        "first pause, in seconds, after a failed connect; doubles each time",
        "the pauses double, so that only the first one is short",
    )
    connect_longest_seconds: float = constant(
        30.0,
        "longest of these pauses, in seconds",
        "a cluster that comes back is noticed within it, and a try costs one request",
    )
    ignored_pod_labels: tuple[str, ...] = setting(
        IGNORED_POD_LABELS, "label keys that are left out of the pods' label sets, since each pod has its own value"
    )
