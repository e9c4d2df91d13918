"""Scales between zero and one, and from idle, as KEDA does in addition to its autoscaler. Pure.

Source: pkg/scaling/executor/scale_scaledobjects.go (RequestScale). Above the minimum, only the autoscaler decides.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from hpa.core.keda.kafka_metadata import BOOLEANS

PAUSED: Final = "autoscaling.keda.sh/paused"
PAUSED_REPLICAS: Final = "autoscaling.keda.sh/paused-replicas"
PAUSED_SCALE_IN: Final = "autoscaling.keda.sh/paused-scale-in"
PAUSED_SCALE_OUT: Final = "autoscaling.keda.sh/paused-scale-out"
FORCE_ACTIVATION: Final = "autoscaling.keda.sh/force-activation"

TRUE: Final = "true"
FALSE: Final = "false"
UNKNOWN: Final = "unknown"

COOLDOWN_MS: Final = 300_000


class Activation(Struct, frozen=True):
    """The settings of a ScaledObject for scaling to and from zero or idle replicas.

    idle_replicas: the size while no trigger is active; None: not set.
    cooldown_ms: how long no trigger is active before the workload scales in; None: KEDA's default of 300 s.
    initial_cooldown_ms: the same for an object that was never active, counted from its creation.
    fallback_replicas: the replicas while triggers fail; None: there is no fallback.
    """

    min_replicas: int = 0
    idle_replicas: int | None = None
    cooldown_ms: int | None = None
    initial_cooldown_ms: int = 0
    fallback_replicas: int | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)

    def has_true_annotation(self, annotation: str) -> bool:
        """Returns whether the annotation exists and is not false. A text that is not a boolean counts as true."""
        written = self.annotations.get(annotation)
        return written is not None and BOOLEANS.get(written, True)


class PolledTriggers(Struct, frozen=True):
    """The result of polling the triggers.

    active, failed: True if at least one trigger is active, or failed.
    replicas: the present size of the workload.
    created_ms: the creation time of the ScaledObject.
    last_active_ms: the last time at which a trigger was active; None: never.
    autoscaler: (status, reason) of the condition scaling_active of the workload's autoscaler; None: not known.
    """

    active: bool
    failed: bool
    replicas: int
    created_ms: int
    last_active_ms: int | None
    autoscaler: tuple[bool, str] | None = None


class PollOutcome(Struct, frozen=True):
    """The result of one poll.

    replicas: the size to scale to; None: no change.
    renewed: True if the cooldown starts anew, because the workload is active.
    conditions: (status, reason) by type.
    due_ms: the end of a cooldown that prevents scaling in, in Unix milliseconds; None: there is none.
    """

    replicas: int | None
    renewed: bool
    conditions: Mapping[str, tuple[str, str]]
    due_ms: int | None = None


READY: Final = (TRUE, "ScaledObjectReady")
AUTOSCALER_ACTIVE: Final = "autoscaler_active"


def decide_poll_outcome(wanted: Activation, polled: PolledTriggers, now_ms: int) -> PollOutcome:
    """Decides the size and the conditions of a ScaledObject after one poll of its triggers, as KEDA does."""
    if PAUSED_REPLICAS in wanted.annotations or wanted.has_true_annotation(PAUSED):
        return PollOutcome(None, False, {"paused": (TRUE, "ScaledObjectPaused"), "ready": READY})
    if polled.active or wanted.has_true_annotation(FORCE_ACTIVATION):
        outcome = _outcome_when_active(wanted, polled)
    else:
        outcome = _outcome_when_inactive(wanted, polled, now_ms)
    if polled.autoscaler is None:
        return outcome
    conditions = {**outcome.conditions, AUTOSCALER_ACTIVE: autoscaler_active_condition(*polled.autoscaler)}
    return PollOutcome(outcome.replicas, outcome.renewed, conditions, outcome.due_ms)


def _outcome_when_active(wanted: Activation, polled: PolledTriggers) -> PollOutcome:
    conditions = {"ready": READY, "active": (TRUE, "ScalerActive")}
    from_idle = wanted.idle_replicas is not None and polled.replicas < wanted.min_replicas
    if from_idle or polled.replicas == 0:
        if wanted.has_true_annotation(PAUSED_SCALE_OUT):
            return PollOutcome(None, False, conditions)
        return PollOutcome(max(wanted.min_replicas, 1), True, conditions)
    if polled.failed:
        return PollOutcome(None, False, conditions | {"ready": (UNKNOWN, "PartialTriggerError")})
    return PollOutcome(None, True, conditions)


def _outcome_when_inactive(wanted: Activation, polled: PolledTriggers, now_ms: int) -> PollOutcome:
    conditions = {"ready": READY, "active": (FALSE, "ScalerNotActive")}
    if polled.failed and wanted.fallback_replicas is None:
        return PollOutcome(None, False, conditions | {"ready": (FALSE, "TriggerError")})
    # A fallback of 0 replicas does not return here: the workload may then scale to zero.
    if polled.failed and wanted.fallback_replicas:
        return PollOutcome(None, False, conditions)
    above_idle = wanted.idle_replicas is not None and polled.replicas > wanted.idle_replicas
    if above_idle or (polled.replicas > 0 and wanted.min_replicas == 0):
        return _outcome_of_scale_to_idle(wanted, polled, now_ms, conditions)
    if polled.replicas < wanted.min_replicas and wanted.idle_replicas is None:
        return PollOutcome(wanted.min_replicas, False, conditions)
    return PollOutcome(None, False, conditions)


def _outcome_of_scale_to_idle(
    wanted: Activation, polled: PolledTriggers, now_ms: int, conditions: dict[str, tuple[str, str]]
) -> PollOutcome:
    if wanted.has_true_annotation(PAUSED_SCALE_IN):
        return PollOutcome(None, False, conditions)
    if polled.last_active_ms is None:
        over_ms = polled.created_ms + wanted.initial_cooldown_ms
    else:
        over_ms = polled.last_active_ms + (COOLDOWN_MS if wanted.cooldown_ms is None else wanted.cooldown_ms)
    if now_ms <= over_ms:
        return PollOutcome(None, False, conditions | {"active": (FALSE, "ScalerCooldown")}, over_ms + 1)
    return PollOutcome(wanted.idle_replicas or 0, False, conditions)


def autoscaler_active_condition(active: bool, reason: str) -> tuple[str, str]:
    """Returns (status, reason) of the condition that KEDA shows for the autoscaler's condition scaling_active."""
    if active:
        return TRUE, "HPAActive"
    if reason == "ScalingDisabled":
        return TRUE, reason
    return FALSE, reason or "HPAMetricsUnavailable"
