"""Finds the values and backlogs that a policy names. Only these are kept, because nobody uses others. Pure.

A trigger's name comes from its place in the list, so the same name may mean another query after a change. So when a
policy is declared again, not only the names are compared, but also the query behind each name.
"""

from collections.abc import Iterator
from typing import TypeVar

from msgspec.structs import replace

from hpa.core.heard.inputs import BacklogKey, LoadName, WorkloadInputs, load_name_of
from hpa.core.keda.kafka import KafkaTrigger
from hpa.core.kubernetes.policy import EXTERNAL, OBJECT, PODS
from hpa.core.manifests.attached import AttachedPolicy
from hpa.core.manifests.scale_policy import ScalePolicy
from hpa.core.manifests.scaled_object import PrometheusTrigger, ScaledObject
from hpa.core.own.queue_state import NOTHING_SEEN
from hpa.core.sizing.composing import SizingState
from hpa.core.sizing.composing_own import HEADROOM
from spillway.events import Event
from spillway.events_scaling import BacklogObserved, LoadObserved

Name = TypeVar("Name", LoadName, BacklogKey)
Question = tuple[object, ...]
"""The query behind a name, for example group and topic. Equal queries have the same answer."""


def is_input_named(policy: AttachedPolicy, event: Event | None) -> bool:
    """Returns whether a policy uses an input record. Records other than values and backlogs are always used."""
    if isinstance(event, LoadObserved):
        wanted = (event.metric, event.object, bool(event.pod))
        return any(name == wanted for name, _ in _load_questions_of(policy))
    if isinstance(event, BacklogObserved):
        return any(key == (event.group, event.topic) for key, _ in _queue_questions_of(policy))
    return True


def input_names_of(policy: AttachedPolicy, event: LoadObserved | BacklogObserved) -> list[str]:
    """Returns the names of the metrics or queues that a policy uses, for error texts. event: selects one of the two."""
    if isinstance(event, BacklogObserved):
        return [f"group {group}, topic {topic or 'any'}" for (group, topic), _ in _queue_questions_of(policy)]
    return [
        f"{metric} of pods" if of_pods else f"{metric} of {described}" if described else metric
        for (metric, described, of_pods), _ in _load_questions_of(policy)
    ]


def forget_unnamed_inputs(policy: AttachedPolicy, inputs: WorkloadInputs) -> None:
    """Removes values and backlogs that the policy does not use, for example of an earlier policy."""
    loads, queues = {name for name, _ in _load_questions_of(policy)}, {key for key, _ in _queue_questions_of(policy)}
    inputs.loads = {key: load for key, load in inputs.loads.items() if load_name_of(key) in loads}
    inputs.backlogs = {key: backlog for key, backlog in inputs.backlogs.items() if key in queues}
    inputs.loads_from_ms = {name: at_ms for name, at_ms in inputs.loads_from_ms.items() if name in loads}
    inputs.backlogs_from_ms = {key: at_ms for key, at_ms in inputs.backlogs_from_ms.items() if key in queues}


def forget_inputs_of_changed_queries(
    before: AttachedPolicy, after: AttachedPolicy, inputs: WorkloadInputs, at_ms: int
) -> None:
    """Removes the values of each name that means another query in `after` than in `before`, from at_ms on."""
    for name in _names_with_changed_query(_load_questions_of(before), _load_questions_of(after)):
        inputs.loads = {key: load for key, load in inputs.loads.items() if load_name_of(key) != name}
        inputs.loads_from_ms[name] = at_ms
    for key in _names_with_changed_query(_queue_questions_of(before), _queue_questions_of(after)):
        inputs.backlogs.pop(key, None)
        inputs.backlogs_from_ms[key] = at_ms


def sizing_state_after_change(before: AttachedPolicy, after: AttachedPolicy, remembered: SizingState) -> SizingState:
    """Returns the sizing state after a policy was declared again.

    If the policy drains another queue now, what was learned about the earlier queue is dropped.
    A policy of another kind or name counts as newly created.
    """
    if (before.kind, before.name) != (after.kind, after.name):
        remembered = replace(remembered, created_ms=0)
    same = _drained_queue(before) == _drained_queue(after)
    return remembered if same else replace(remembered, queue=NOTHING_SEEN)


def _names_with_changed_query(
    before: Iterator[tuple[Name, Question]], after: Iterator[tuple[Name, Question]]
) -> list[Name]:
    known, wanted = _questions_by_name(before), _questions_by_name(after)
    return [name for name in wanted if name in known and known[name] != wanted[name]]


def _questions_by_name(named: Iterator[tuple[Name, Question]]) -> dict[Name, set[Question]]:
    found: dict[Name, set[Question]] = {}
    for name, question in named:
        found.setdefault(name, set()).add(question)
    return found


def _drained_queue(policy: AttachedPolicy) -> KafkaTrigger | None:
    wanted = policy.wanted
    return wanted.drain.queue if isinstance(wanted, ScalePolicy) and wanted.drain is not None else None


def _load_questions_of(policy: AttachedPolicy) -> Iterator[tuple[LoadName, Question]]:
    wanted = policy.wanted
    for metric in policy.autoscaler.metrics if policy.autoscaler is not None else ():
        question = (metric.source, metric.selector)
        if metric.source == PODS:
            yield (metric.name, "", True), question
        elif metric.source == OBJECT:
            yield (metric.name, f"{metric.object_kind}/{metric.object_name}", False), question
        elif metric.source == EXTERNAL and not isinstance(wanted, ScaledObject):
            yield (metric.name, "", False), question
    if isinstance(wanted, ScaledObject):
        for trigger in wanted.triggers:
            source = trigger.source
            if isinstance(source, PrometheusTrigger):
                yield (trigger.metric, "", False), (source.address, source.query, source.empty_is_zero)
    elif isinstance(wanted, ScalePolicy) and wanted.headroom:
        yield (HEADROOM, "", False), ()


def _queue_questions_of(policy: AttachedPolicy) -> Iterator[tuple[BacklogKey, Question]]:
    wanted = policy.wanted
    if isinstance(wanted, ScaledObject):
        for trigger in wanted.triggers:
            if isinstance(trigger.source, KafkaTrigger):
                yield _queue_question(trigger.source)
    elif isinstance(wanted, ScalePolicy) and wanted.drain is not None:
        yield _queue_question(wanted.drain.queue)


def _queue_question(trigger: KafkaTrigger) -> tuple[BacklogKey, Question]:
    return (trigger.group, trigger.topic), tuple(sorted(trigger.brokers))
