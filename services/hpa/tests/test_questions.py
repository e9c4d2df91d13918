"""What has to be asked outside for a policy, and how often."""

import json
from typing import Any

import pytest

from hpa.core.questions import LagQuestion, ValueQuestion, questions_of
from spillway.events_scaling import ScalePolicyDeclared
from spillway.model import Generation

KAFKA = {
    "type": "kafka",
    "metadata": {"bootstrapServers": "a:1, b:2", "consumerGroup": "g", "topic": "t", "lagThreshold": "5"},
}
QUERY = {"serverAddress": "http://p:9090", "query": "up", "threshold": "2"}
CRON = {
    "type": "cron",
    "metadata": {"timezone": "UTC", "start": "0 6 * * *", "end": "0 20 * * *", "desiredReplicas": "3"},
}
LAG = LagQuestion("default", "web", ("a:1", "b:2"), "g", "t", 30_000)


def policy_declared(kind: str, manifest: Any) -> ScalePolicyDeclared:
    text = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    return ScalePolicyDeclared("default", "web", Generation(1, 1), kind, "p", text, 0)


def scaled_object_declared(*triggers: Any, **spec: Any) -> ScalePolicyDeclared:
    target = {"scaleTargetRef": {"name": "web"}, "triggers": list(triggers)}
    manifest = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "p"}}
    return policy_declared("ScaledObject", {**manifest, "spec": {**target, **spec}})


def test_a_kafka_trigger_asks_for_its_group_at_the_polling_interval() -> None:
    assert questions_of(scaled_object_declared(KAFKA), 2_000) == (LAG,)


@pytest.mark.parametrize(("seconds", "every_ms"), [(1, 1_000), (45, 45_000), (3_600, 60_000)])
def test_an_interval_is_between_a_second_and_a_minute(seconds: int, every_ms: int) -> None:
    (asked,) = questions_of(scaled_object_declared(KAFKA, pollingInterval=seconds), 2_000)
    assert asked.every_ms == every_ms


def test_a_prometheus_trigger_asks_its_query_under_its_metrics_name() -> None:
    strict = {"type": "prometheus", "metadata": {**QUERY, "ignoreNullValues": "false"}}
    found = questions_of(scaled_object_declared(CRON, {"type": "prometheus", "metadata": QUERY}, strict), 2_000)
    place = ("default", "web", "http://p:9090", "up")
    assert found == (
        ValueQuestion(*place, "s1-prometheus", True, 30_000),
        ValueQuestion(*place, "s2-prometheus", False, 30_000),
    )


def test_two_triggers_on_one_queue_ask_once() -> None:
    other = {**KAFKA, "metadata": {**KAFKA["metadata"], "lagThreshold": "50"}}  # type: ignore[dict-item]
    assert questions_of(scaled_object_declared(KAFKA, other), 2_000) == (LAG,)


def test_a_scale_policy_asks_for_its_queue() -> None:
    drain = {"within": "60s", "kafka": KAFKA["metadata"], "recordsPerSecond": 10}
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    manifest = {
        "apiVersion": "spillway.io/v1",
        "kind": "ScalePolicy",
        "metadata": {"name": "p"},
        "spec": {"scaleTargetRef": reference, "maxReplicas": 5, "drain": drain},
    }
    (asked,) = questions_of(policy_declared("ScalePolicy", manifest), 2_000)
    assert asked == LagQuestion("default", "web", ("a:1", "b:2"), "g", "t", 2_000)
    (asked,) = questions_of(policy_declared("ScalePolicy", manifest), 100)
    assert asked.every_ms == 1_000


@pytest.mark.parametrize(
    "asks_nothing",
    [
        pytest.param(policy_declared("HorizontalPodAutoscaler", {}), id="whose metrics others report"),
        pytest.param(policy_declared("ScaledObject", {}), id="a manifest that cannot be read"),
        pytest.param(policy_declared("ScaledObject", b"{"), id="garbage"),
        pytest.param(scaled_object_declared(CRON), id="only a calendar"),
    ],
)
def test_others_ask_nothing(asks_nothing: ScalePolicyDeclared) -> None:
    assert questions_of(asks_nothing, 2_000) == ()
