"""Defines the settings of snapshot, from SPILLWAY_SNAPSHOT_* in the environment, and its constants."""

from dataclasses import dataclass

from snapshot.core.rules import IGNORED_POD_LABELS, SnapshotRules
from spillway.running.cluster_turns import ClusterTurnSettings
from spillway.settings import constant, setting


@dataclass(frozen=True, slots=True)
class SnapshotSettings(ClusterTurnSettings):
    gather_seconds: float = constant(
        0.1,
        "seconds that changes are collected before they are published as one record",
        "the delay is small beside a scheduler's own time, and a burst of changes becomes few records",
    )
    heartbeat_seconds: float = setting(
        2.0, "seconds between two records of block 0, which tell readers how old the snapshot is"
    )
    late_seconds: float = constant(
        1.0,
        "seconds that a write may take; a heartbeat follows a slower write at once",
        "it is half of the default heartbeat: after a slower write readers know a wrong age",
    )
    probe_seconds: float = constant(
        2.0,
        "seconds between the starts of two probes of a cluster",
        "it is the default of heartbeat_seconds, because each probe renews the age that a heartbeat tells",
    )
    probe_longest_seconds: float = constant(
        10.0,
        "longest pause in seconds between two probes of a cluster whose probes fail",
        "the return of a cluster is noticed within this time, and a probe costs one request",
    )
    stream_silence_seconds: float = constant(
        90.0,
        "seconds without an event or a bookmark after which a watch is doubted",
        "API servers send a bookmark about every 60 s",
    )
    count_differs_seconds: float = constant(
        10.0,
        "seconds that the count of a probe may differ from our count before the objects are listed again",
        "a watch lags behind for less than this time; only a wrong list differs for longer",
    )
    shrink_confirm_seconds: float = constant(
        60.0,
        "seconds that a list is doubted from which most nodes are missing, while probes confirm it",
        "the time is long enough that a faulty server is not believed, and short beside the real loss of the nodes",
    )
    shrink_confirm_probes: int = constant(
        5,
        "number of probes in a row that must confirm a list from which most nodes are missing",
        "one short fault cannot explain so many answers within shrink_confirm_seconds",
    )

    block_nodes_max: int = constant(
        5_000,
        "largest number of nodes in one block",
        "this bounds the size of a record; a cluster with more nodes has more blocks",
    )
    block_bytes_max: int = constant(
        1_000_000,
        "largest size in bytes of a block's columns; a larger block is divided",
        "it is half of the largest record; a cluster with more data has more blocks",
    )
    full_seconds: float = constant(
        3_600.0,
        "longest time in seconds between two full records of a block",
        "this bounds the changes that a reader has to apply, and one full record an hour costs little",
    )
    full_bytes_min: int = constant(
        16_384,
        "bytes of changes below which a block is not written in full because of their size",
        "readers read so few changes more cheaply than snapshot writes a full record",
    )
    unwritable_retry_seconds: float = constant(
        60.0,
        "seconds until snapshot tries again to write a cluster's capacity that was too large for a record",
        "only a change in the cluster makes the capacity smaller, and a try costs as much as a record",
    )
    volume_claims_max: int = constant(
        5_000,
        "largest number of volume claims of one cluster that are published",
        "this bounds the size of a record; the record names the namespaces whose claims are left out",
    )
    facts_per_record_max: int = constant(
        1_000,
        "largest number of workloads in one change record",
        "this bounds the size of a record; further workloads are in the next record",
    )

    pending_reason_seconds: float = constant(
        10.0,
        "seconds between two records of a group of pending pods of which only the reason changed",
        "the reason is a text for people, and schedulers change it all the time",
    )
    pending_forget_seconds: float = constant(
        3_600.0,
        "seconds until the key of a group without pending pods is removed from the log",
        "no reader needs the removal sooner; an hour keeps the keys of groups that come and go",
    )
    reason_characters_max: int = constant(
        1_000,
        "largest number of characters of a scheduler's message that are published",
        "a scheduler's message about a thousand groups of nodes is shorter, and the text is for people",
    )

    metrics_seconds: float = setting(
        15.0, "seconds between two requests for the resource use of scaled workloads' pods"
    )
    metrics_answer_seconds: float = constant(
        5.0,
        "seconds that one request for pods' resource use may take",
        "a healthy server answers in less time, and requests must not pile up",
    )
    metrics_at_once: int = constant(
        4,
        "number of namespaces of one cluster whose pods' use is requested at the same time",
        "this bounds the load on metrics-server; the other namespaces follow within the same interval",
    )
    pods_bytes_max: int = constant(
        1_500_000,
        "largest size in bytes, roughly, of a record of a scaled workload's pods",
        "it is three quarters of the largest record; the record tells how many pods are left out",
    )

    lists_at_once: int = setting(4, "number of clusters whose first lists are read at the same time")
    list_slot_seconds: float = constant(
        10.0,
        "seconds after which a slow first list lets the next cluster start its own",
        "this bounds how long one slow cluster delays the others; its own list continues",
    )
    list_step_objects: int = constant(
        500,
        "number of listed or changed objects that are applied before other tasks of the process run",
        "this bounds how long other tasks wait; it is one page of a list",
    )
    connect_first_seconds: float = constant(
        0.5,
        "first pause in seconds after a failed connection to a cluster; each further pause doubles",
        "the pauses double, so that only the first pause is short",
    )
    connect_longest_seconds: float = constant(
        30.0,
        "longest pause in seconds after a failed connection to a cluster",
        "the return of a cluster is noticed within this time, and a try costs one request",
    )
    ignored_pod_labels: tuple[str, ...] = setting(
        IGNORED_POD_LABELS, "label keys that are left out of pods' label sets, because their values differ for each pod"
    )

    def rules(self) -> SnapshotRules:
        """Returns the settings on which a cluster's records depend."""
        return SnapshotRules(
            heartbeat_seconds=self.heartbeat_seconds,
            stream_silence_seconds=self.stream_silence_seconds,
            count_differs_seconds=self.count_differs_seconds,
            shrink_confirm_seconds=self.shrink_confirm_seconds,
            shrink_confirm_probes=self.shrink_confirm_probes,
            block_nodes_max=self.block_nodes_max,
            block_bytes_max=self.block_bytes_max,
            full_seconds=self.full_seconds,
            full_bytes_min=self.full_bytes_min,
            unwritable_retry_seconds=self.unwritable_retry_seconds,
            volume_claims_max=self.volume_claims_max,
            facts_per_record_max=self.facts_per_record_max,
            pending_reason_seconds=self.pending_reason_seconds,
            pending_forget_seconds=self.pending_forget_seconds,
            reason_characters_max=self.reason_characters_max,
            pods_bytes_max=self.pods_bytes_max,
            ignored_pod_labels=self.ignored_pod_labels,
        )
