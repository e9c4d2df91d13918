"""Which values and backlogs a policy names: only those are kept, for nobody looks at others. Pure."""

from collections.abc import Iterator

from hpa.core.attached import Attached
from hpa.core.composing_own import HEADROOM_FREE, HEADROOM_HELD
from hpa.core.inputs import BacklogKey, Inputs, LoadKey
from hpa.core.keda.kafka import KafkaTrigger
from hpa.core.policy import EXTERNAL, OBJECT, PODS
from hpa.core.scale_policy import ScalePolicy
from hpa.core.scaled_object import PrometheusTrigger, ScaledObject
from spillway.events import Event
from spillway.events_scaling import BacklogObserved, LoadObserved

LoadName = tuple[str, str, bool]
"""Metric, object, whether it is of pods."""


def is_named(policy: Attached, event: Event | None) -> bool:
    """Whether a policy looks at what an input record says; at records other than values and backlogs it always does."""
    if isinstance(event, LoadObserved):
        return (event.metric, event.object, bool(event.pod)) in _loads_of(policy)
    if isinstance(event, BacklogObserved):
        return (event.group, event.topic) in _queues_of(policy)
    return True


def forget_unnamed(policy: Attached, inputs: Inputs) -> None:
    """What an earlier policy looked at."""
    loads, queues = set(_loads_of(policy)), set(_queues_of(policy))
    inputs.loads = {key: load for key, load in inputs.loads.items() if _name_of(key) in loads}
    inputs.backlogs = {key: backlog for key, backlog in inputs.backlogs.items() if key in queues}


def _name_of(key: LoadKey) -> LoadName:
    metric, described, _, _, pod = key
    return metric, described, bool(pod)


def _loads_of(policy: Attached) -> Iterator[LoadName]:
    wanted = policy.wanted
    for metric in policy.autoscaler.metrics if policy.autoscaler is not None else ():
        if metric.source == PODS:
            yield metric.name, "", True
        elif metric.source == OBJECT:
            yield metric.name, f"{metric.object_kind}/{metric.object_name}", False
        elif metric.source == EXTERNAL and not isinstance(wanted, ScaledObject):
            yield metric.name, "", False
    if isinstance(wanted, ScaledObject):
        for trigger in wanted.triggers:
            if isinstance(trigger.source, PrometheusTrigger):
                yield trigger.metric, "", False
    elif isinstance(wanted, ScalePolicy) and wanted.headroom:
        yield HEADROOM_FREE, "", False
        yield HEADROOM_HELD, "", False


def _queues_of(policy: Attached) -> Iterator[BacklogKey]:
    wanted = policy.wanted
    if isinstance(wanted, ScaledObject):
        for trigger in wanted.triggers:
            if isinstance(trigger.source, KafkaTrigger):
                yield trigger.source.group, trigger.source.topic
    elif isinstance(wanted, ScalePolicy) and wanted.drain is not None:
        yield wanted.drain.queue.group, wanted.drain.queue.topic
