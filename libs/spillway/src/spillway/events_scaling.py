"""Events of scaling: observations of pods, metrics and queues, declared scale policies, and decided sizes.

Amounts are milli-units (kubernetes/quantities.py). Times are whole milliseconds of Unix time, 0 where an object has no
such time.
"""

from dataclasses import dataclass

from spillway.model import Generation


@dataclass(frozen=True, slots=True)
class ContainerRequests:
    """The requests of one container, by resource. init: an init container. restartable: of these, a sidecar."""

    name: str
    requests: tuple[tuple[str, int], ...]
    init: bool = False
    restartable: bool = False


@dataclass(frozen=True, slots=True)
class PodRequests:
    """The requests of pods of one kind.

    pod: requests for the pod as a whole, which replace the sum over its containers.
    """

    containers: tuple[ContainerRequests, ...]
    pod: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """The usage of one container, by resource."""

    name: str
    usage: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """The facts about a pod that decide whether and how it counts.

    ready: true, false, unknown, or empty without a Ready condition. requests: an index into PodsObserved.requests.
    sampled_ms: the end of its newest sample. window_ms: the length of time that the sample covers.
    usage: by container; empty without a sample.
    """

    name: str
    phase: str
    deleting: bool
    started_ms: int
    ready: str
    ready_changed_ms: int
    requests: int
    sampled_ms: int
    window_ms: int
    usage: tuple[ContainerUsage, ...]


@dataclass(frozen=True, slots=True)
class PodsObserved:
    """All pods of a workload in one cluster. It is emitted only for workloads that have a scale policy.

    observed_ms: the time at which these pods were observed.
    trouble: why there are no samples (no metrics API, forbidden, no answer); empty: there are samples.
    left_out: the number of pods that did not fit into the record, without ended ones and ones being deleted. If a
    cluster becomes silent, its last pods stay, and their samples become too old.
    """

    namespace: str
    name: str
    cluster: str
    epoch: int
    sequence: int
    observed_ms: int
    trouble: str
    requests: tuple[PodRequests, ...]
    pods: tuple[ObservedPod, ...]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class LoadObserved:
    """A metric's value at an instant. Anyone may publish it.

    A value that was applied already, or is older than the known one, is dropped.
    metric: its name in the policy; for a trigger of a ScaledObject, the trigger's metric name.
    object: <kind>/<name> of an object's metric. series: identifies one of several series of an external metric.
    cluster, pod: set for a metric of pods. source: a text for people, who measured it.
    trouble: why there is no value; then value_milli has no meaning.
    """

    namespace: str
    name: str
    metric: str
    object: str
    series: str
    cluster: str
    pod: str
    value_milli: int
    at_ms: int
    window_ms: int
    source: str
    trouble: str


@dataclass(frozen=True, slots=True)
class PartitionBacklog:
    """The backlog of a consumer group in one partition.

    latest: the offset after the last record, −1 when unknown. committed: the group's offset, −1 when it has none.
    oldest_ms: the write time of the oldest record that the group has not read; 0 when unknown or when there is none.
    """

    topic: str
    partition: int
    latest: int
    committed: int
    oldest_ms: int


@dataclass(frozen=True, slots=True)
class BacklogObserved:
    """The records that wait for a consumer group at one instant, with every partition. Anyone may publish it.

    connection: the operator's name for the Kafka. trouble: why the backlog is unknown. It is not taken as empty then.
    """

    namespace: str
    name: str
    connection: str
    group: str
    topic: str
    partitions: tuple[PartitionBacklog, ...]
    at_ms: int
    source: str
    trouble: str


@dataclass(frozen=True, slots=True)
class ScalePolicyDeclared:
    """A scale policy was declared for a workload. A workload has one, under its own key. A tombstone ends it.

    kind: HorizontalPodAutoscaler, ScaledObject or ScalePolicy. policy: the policy's own name.
    manifest: as the user gave it, as JSON. generation: its sequence rises with every change of the manifest.
    """

    namespace: str
    name: str
    generation: Generation
    kind: str
    policy: str
    manifest: bytes
    declared_ms: int


@dataclass(frozen=True, slots=True)
class ScaleStateChanged:
    """The state on which a workload's later decisions depend, in addition to new input records.

    positions: (topic/partition, offset) of the first record of each input topic that is not part of this state. In
    topics with retention it is the first one that no state of the partition includes, and topic/partition/own is the
    first one of this namespace, if that is later.
    state: JSON, compressed (compressed_text.py). It is written in one transaction with the ScaleDecided that belongs to
    it.
    """

    namespace: str
    name: str
    generation: Generation
    policy_generation: Generation
    at_ms: int
    positions: tuple[tuple[str, int], ...]
    state: bytes


@dataclass(frozen=True, slots=True)
class ScaleDecided:
    """The number of replicas that a workload's scale policy gives it. The planner declares it once for each generation.

    at_ms: the instant of the decision; it may be before the record's own time.
    replicas_before: the declared replicas at that time. reason: a text for people, with the metric and rule behind it.
    """

    namespace: str
    name: str
    generation: Generation
    policy: str
    policy_kind: str
    replicas: int
    replicas_before: int
    at_ms: int
    reason: str


ScalingEvent = PodsObserved | LoadObserved | BacklogObserved | ScalePolicyDeclared | ScaleStateChanged | ScaleDecided
