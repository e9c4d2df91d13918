"""The scalers of a simulated queue: ours by time to drain, or KEDA with Kubernetes' controller by lag.

Both see only offsets, as their collectors do. KEDA has its default behavior: the autoscaler reads the lag at each sync,
and polls only decide between zero and more replicas.
"""

from dataclasses import dataclass
from typing import Protocol

from hpa.core.keda.executor import Activation, PolledTriggers, decide_poll_outcome
from hpa.core.keda.kafka import KafkaTrigger, PartitionOffsets, lag_of_partitions
from hpa.core.kubernetes.deciding import ScaleTargetSize
from hpa.core.kubernetes.evaluating import (
    CONTROLLER,
    NOTHING_DECIDED,
    SYNC_PERIOD_MS,
    ObservedMetrics,
    ScalingState,
    evaluate_autoscaler,
)
from hpa.core.kubernetes.pods import PodsSeen
from hpa.core.kubernetes.policy import (
    AVERAGE_VALUE,
    BY_PERCENT,
    BY_PODS,
    EXTERNAL,
    Autoscaler,
    Behavior,
    ControllerSettings,
    Metric,
    ScalingPolicy,
    ScalingRules,
    TargetValue,
)
from hpa.core.kubernetes.proposals import SeriesReading
from hpa.core.own.draining import DrainTarget, ServiceRate
from hpa.core.own.queue_state import (
    NOTHING_SEEN,
    QueueObservation,
    QueueState,
    decide_drain_size,
    state_with_observation,
)

from .queue import Queue

TOPIC = "work"
NO_PODS = PodsSeen({})
CONTROLLER_SETTINGS = ControllerSettings(scale_to_zero=False)


class Scaler(Protocol):
    def scale_queue(self, queue: Queue) -> None:
        """Scales the queue if this is due. The trial calls it at every whole second."""


@dataclass(slots=True)
class ByDrainTime:
    """Scales by time to drain. service: a guess, whose rate is then learned. every_s: seconds between reads."""

    service: ServiceRate
    target: DrainTarget
    every_s: int = 5
    phase_s: int = 0
    state: QueueState = NOTHING_SEEN

    def scale_queue(self, queue: Queue) -> None:
        if (queue.now_s + self.phase_s) % self.every_s:
            return
        seen = QueueObservation(queue.now_s * 1000, queue.offsets(), queue.replicas, queue.reading_replicas)
        self.state = state_with_observation(self.state, seen)
        wish, self.state = decide_drain_size(self.state, self.service, self.target, (0, queue.truth.partitions))
        queue.scale_group(wish.replicas)


@dataclass(frozen=True, slots=True)
class KedaWay:
    """The settings of a ScaledObject. polling_s, cooldown_s: its fields. behavior: None for Kubernetes' default."""

    name: str
    polling_s: int = 30
    cooldown_s: int = 300
    behavior: Behavior | None = None


DEFAULT = KedaWay("default")
TUNED = KedaWay(
    "tuned",
    polling_s=5,
    cooldown_s=60,
    behavior=Behavior(
        up=ScalingRules((ScalingPolicy(BY_PODS, 100, 15_000), ScalingPolicy(BY_PERCENT, 900, 15_000))),
        down=ScalingRules((ScalingPolicy(BY_PERCENT, 100, 15_000),), stabilization_ms=60_000),
    ),
)
"""Settings as advised for bursts: no bound on scaling out, and one minute instead of five before scaling in."""


class ByLag:
    """Scales by lag. threshold: the records of lag for each replica."""

    def __init__(self, way: KedaWay, threshold: int, partitions: int, phase_s: int = 0) -> None:
        self.way = way
        self.phase_s = phase_s
        self.trigger = KafkaTrigger("group", topic=TOPIC, lag_threshold=threshold)
        metric = Metric(EXTERNAL, "lag", TargetValue(AVERAGE_VALUE, threshold * 1000))
        self.policy = Autoscaler(partitions, (metric,), 1, way.behavior)
        self.activation = Activation(cooldown_ms=way.cooldown_s * 1000)
        self.state: ScalingState = NOTHING_DECIDED
        self.last_active_ms: int | None = None

    def scale_queue(self, queue: Queue) -> None:
        at_s = queue.now_s + self.phase_s
        if at_s % self.way.polling_s == 0:
            self._poll_trigger(queue)
        if at_s * 1000 % SYNC_PERIOD_MS == 0:
            self._sync_autoscaler(queue)

    def _poll_trigger(self, queue: Queue) -> None:
        lag = lag_of_partitions(_partition_offsets(queue), self.trigger, {})
        now_ms = queue.now_s * 1000
        polled = PolledTriggers(lag.active, False, queue.replicas, 0, self.last_active_ms)
        outcome = decide_poll_outcome(self.activation, polled, now_ms)
        if outcome.renewed:
            self.last_active_ms = now_ms
        if outcome.replicas is not None:
            queue.scale_group(outcome.replicas)

    def _sync_autoscaler(self, queue: Queue) -> None:
        lag = lag_of_partitions(_partition_offsets(queue), self.trigger, {})
        scale = ScaleTargetSize(queue.replicas, queue.replicas)
        observed = ObservedMetrics(scale, NO_PODS, (SeriesReading((lag.metric_milli,)),))
        now_ms = queue.now_s * 1000
        found = evaluate_autoscaler(self.policy, observed, self.state, CONTROLLER_SETTINGS, now_ms, CONTROLLER)
        self.state = found.state
        if found.decision.replicas is not None:
            queue.scale_group(found.decision.replicas)


def _partition_offsets(queue: Queue) -> list[PartitionOffsets]:
    return [
        PartitionOffsets(TOPIC, partition, one.latest, one.committed) for partition, one in enumerate(queue.offsets())
    ]
