"""Events of scaling: what is known of pods, metrics and queues, what people ask for, and what was decided.

Amounts are milli-units (kubernetes/quantities.py), times whole milliseconds of Unix time;
0 where an object has no such time.
"""

from dataclasses import dataclass
from typing import Final

from spillway.model import Generation


@dataclass(frozen=True, slots=True)
class ContainerRequests:
    """What one container asks for, by resource. init: of the init containers; restartable: of those, a sidecar."""

    name: str
    requests: tuple[tuple[str, int], ...]
    init: bool = False
    restartable: bool = False


@dataclass(frozen=True, slots=True)
class PodRequests:
    """What pods of one kind ask for. pod: for the pod as a whole, which then takes the place of the containers' sum."""

    containers: tuple[ContainerRequests, ...]
    pod: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """What one container used, by resource."""

    name: str
    usage: tuple[tuple[str, int], ...]


READY_TRUE: Final = "true"
READY_FALSE: Final = "false"
READY_UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """What of a pod decides whether and how it counts.

    ready: true, false, unknown, or empty without such a condition. requests: index into PodsObserved.requests.
    sampled_ms: the end of its newest sample, window_ms: over how long that was taken; usage is empty without a sample.
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
    """All pods of a workload in a cluster, only of workloads that have a scaling policy.

    observed_ms: when the pods were as told. trouble: why there are no samples (no metrics API, forbidden, not
    answering), empty when there are. left_out: pods more than a record takes, that neither ended nor are being deleted.
    A cluster that falls silent keeps its pods, and they come to have no samples.
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
    """A metric's value at an instant. Anyone may publish it; what is older than is known, or known, is dropped.

    metric: its name in the policy; of a ScaledObject's trigger, the trigger's metric name. object: <kind>/<name> of an
    object's metric. series: which of several series of an external metric. cluster, pod: of a metric of pods. source:
    who measured, for people. trouble: why there is no value; value_milli then says nothing.
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
    """latest: the offset after the last record, −1 when unknown. committed: of the group, −1 when it has none.

    oldest_ms: when the oldest record that the group has not read was written, 0 when not known or there is none.
    """

    topic: str
    partition: int
    latest: int
    committed: int
    oldest_ms: int


@dataclass(frozen=True, slots=True)
class BacklogObserved:
    """What waits for a consumer group at an instant, in every partition at once. Anyone may publish it.

    connection: the operator's name for the broker. trouble: why it is not known; unknown is never empty.
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
    """How a workload is to be scaled: one policy a workload, under the workload's own key. A tombstone ends it.

    kind: HorizontalPodAutoscaler, ScaledObject or ScalePolicy. policy: the policy's own name. manifest: as it was
    given, JSON. sequence of the generation rises with every change of it.
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
    """All that later decisions on a workload depend on besides their inputs, as of the inputs that were read.

    positions: (topic/partition, offset), the first record of each input that this state has not seen. state: JSON,
    compressed (packed.py). written with the ScaleDecided that goes with it, in one transaction.
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
    """How many replicas a workload gets, by its policy. The planner declares it once for each generation.

    at_ms: the instant that was decided for, which may lie before the record's own. replicas_before: what was declared
    when it was decided. reason: for people, which metric asked and which rule bound it.
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
