"""Lists the queues and Prometheus queries that hpa must read for a policy, each with its interval. Pure.

Also lists the metrics that hpa cannot read itself, because a manifest has their name and no source.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Struct

from hpa.core.keda.kafka import KafkaTrigger
from hpa.core.kubernetes.policy import EXTERNAL, OBJECT, PODS
from hpa.core.manifests.attached import AttachedPolicy, read_attached
from hpa.core.manifests.scale_policy import ScalePolicy
from hpa.core.manifests.scaled_object import PrometheusTrigger, ScaledObject
from spillway.api import RequestError
from spillway.events_scaling import ScalePolicyDeclared

LEAST_MS: Final = 1_000
"""The shortest interval of a question."""
MOST_MS: Final = 60_000
"""The longest interval of a question. With a longer one, a value would become too old before the next one comes
(HpaRules.load_age_max_ms)."""

NOBODY_ASKS: Final = "nothing of ours asks for it: it is unknown until somebody reports it (Report, or topic load)"


class LagQuestion(Struct, frozen=True):
    """The backlog of a consumer group. topic: "" for all topics in which the group has offsets."""

    namespace: str
    name: str
    servers: tuple[str, ...]
    group: str
    topic: str
    every_ms: int


class ValueQuestion(Struct, frozen=True):
    """The value of a Prometheus query. metric: its name in the policy."""

    namespace: str
    name: str
    address: str
    query: str
    metric: str
    empty_is_zero: bool
    every_ms: int


Question = LagQuestion | ValueQuestion


def questions_of(policy: ScalePolicyDeclared, drain_ms: int) -> tuple[Question, ...]:
    """Returns the questions of a policy, without duplicates. An unreadable policy has no questions.

    drain_ms: the interval for the queue of a ScalePolicy, in milliseconds.
    """
    attached = _read_policy(policy)
    wanted = attached.wanted if attached is not None else None
    if isinstance(wanted, ScaledObject):
        return tuple(dict.fromkeys(_trigger_questions(policy, wanted)))
    if isinstance(wanted, ScalePolicy) and wanted.drain is not None:
        return (_lag_question(policy, wanted.drain.queue, drain_ms),)
    return ()


def metrics_reported_by_others(policy: ScalePolicyDeclared) -> tuple[str, ...]:
    """Returns the metrics that other programs must report to hpa, for a warning: of pods, of objects, and external."""
    attached = _read_policy(policy)
    if attached is None or attached.autoscaler is None or isinstance(attached.wanted, ScaledObject):
        return ()
    by_others = [metric for metric in attached.autoscaler.metrics if metric.source in (PODS, OBJECT, EXTERNAL)]
    return tuple(f"metrics: {one.source} metric {one.name}: {NOBODY_ASKS}" for one in by_others)


def _read_policy(policy: ScalePolicyDeclared) -> AttachedPolicy | None:
    try:
        return read_attached(msgspec.json.decode(policy.manifest))
    except (RequestError, msgspec.DecodeError):
        return None


def _trigger_questions(policy: ScalePolicyDeclared, wanted: ScaledObject) -> Iterator[Question]:
    for trigger in wanted.triggers:
        source = trigger.source
        if isinstance(source, KafkaTrigger):
            yield _lag_question(policy, source, wanted.polling_ms)
        elif isinstance(source, PrometheusTrigger):
            place = policy.namespace, policy.name, source.address
            every_ms = _bounded_interval_ms(wanted.polling_ms)
            yield ValueQuestion(*place, source.query, trigger.metric, source.empty_is_zero, every_ms)


def _lag_question(policy: ScalePolicyDeclared, trigger: KafkaTrigger, every_ms: int) -> LagQuestion:
    place = policy.namespace, policy.name
    return LagQuestion(*place, trigger.brokers, trigger.group, trigger.topic, _bounded_interval_ms(every_ms))


def _bounded_interval_ms(every_ms: int) -> int:
    return max(LEAST_MS, min(every_ms, MOST_MS))
