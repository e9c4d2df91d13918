"""Manifests as people have them: what they become, and what is said of a wrong one."""

from typing import Any

import pytest
import yaml

from hpa.core.keda.cron_trigger import CronTrigger
from hpa.core.keda.executor import Activation
from hpa.core.keda.fallback import Fallback
from hpa.core.keda.kafka import KafkaTrigger, PartitionOffsets, lag_of_partitions
from hpa.core.kubernetes.pods import PodsSeen
from hpa.core.kubernetes.policy import (
    AVERAGE_VALUE,
    BY_PERCENT,
    BY_PODS,
    CONTAINER_RESOURCE,
    EXTERNAL,
    OBJECT,
    PODS,
    RESOURCE,
    SELECT_MIN,
    UTILIZATION,
    VALUE,
    Autoscaler,
    Behavior,
    Metric,
    ScalingPolicy,
    ScalingRules,
    TargetValue,
)
from hpa.core.kubernetes.proposals import SeriesReading, propose_replicas
from hpa.core.kubernetes.replicas import ReplicaContext
from hpa.core.manifests.attached import read_attached
from hpa.core.manifests.manifests import ScaleTarget, read_autoscaler
from hpa.core.manifests.scaled_object import PrometheusTrigger, read_scaled_object
from spillway.api import RequestError

ALL_SOURCES = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop, uid: 0b1c, creationTimestamp: "2026-11-21T18:00:00Z"}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 0
  maxReplicas: 30
  metrics:
    - type: Resource
      resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}
    - type: ContainerResource
      containerResource: {name: memory, container: app, target: {type: AverageValue, averageValue: 500Mi}}
    - type: Pods
      pods: {metric: {name: requests}, target: {type: AverageValue, averageValue: 1500m}}
    - type: Object
      object:
        describedObject: {apiVersion: networking.k8s.io/v1, kind: Ingress, name: main}
        metric: {name: requests}
        target: {type: Value, value: 2k}
    - type: External
      external:
        metric: {name: lag, selector: {matchLabels: {topic: orders}}}
        target: {type: AverageValue, averageValue: "30"}
  behavior:
    scaleUp: {stabilizationWindowSeconds: 10, policies: [{type: Pods, value: 3, periodSeconds: 60}], tolerance: "0.05"}
    scaleDown: {selectPolicy: Min}
status: {currentReplicas: 3, desiredReplicas: 3}
"""


def manifest_with_change(text: str, path: str, value: object) -> dict[str, Any]:
    """The manifest with one field set, or left out (None). path: names and numbers, with dots between."""
    manifest: dict[str, Any] = yaml.safe_load(text)
    at: Any = manifest
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in way:
        at = at[part]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return manifest


def test_all_five_sources_and_behaviour_are_read() -> None:
    found = read_autoscaler(yaml.safe_load(ALL_SOURCES))
    assert (found.name, found.target) == ("web", ScaleTarget("Deployment", "shop", "web"))
    assert found.autoscaler == Autoscaler(
        max_replicas=30,
        min_replicas=0,
        metrics=(
            Metric(RESOURCE, "cpu", TargetValue(UTILIZATION, 60)),
            Metric(CONTAINER_RESOURCE, "memory", TargetValue(AVERAGE_VALUE, 500 * 2**20 * 1000), container="app"),
            Metric(PODS, "requests", TargetValue(AVERAGE_VALUE, 1500)),
            Metric(OBJECT, "requests", TargetValue(VALUE, 2_000_000), object_kind="Ingress", object_name="main"),
            Metric(
                EXTERNAL,
                "lag",
                TargetValue(AVERAGE_VALUE, 30_000),
                selector='{"matchExpressions": [], "matchLabels": {"topic": "orders"}}',
            ),
        ),
        behavior=Behavior(
            ScalingRules((ScalingPolicy(BY_PODS, 3, 60_000),), stabilization_ms=10_000, tolerance=0.05),
            ScalingRules((ScalingPolicy(BY_PERCENT, 100, 15_000),), SELECT_MIN, 300_000),
        ),
    )


def test_what_is_left_out_is_as_in_kubernetes() -> None:
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 5}
    manifest = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "w"}}
    found = read_autoscaler(manifest | {"spec": spec})
    assert found.autoscaler == Autoscaler(5, (Metric(RESOURCE, "cpu", TargetValue(UTILIZATION, 80)),))


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("apiVersion", "autoscaling/v1", "expected autoscaling/v2 and HorizontalPodAutoscaler"),
        ("spec.maxReplicas", 0, "spec.maxReplicas: 0: expected 1 to 100000"),
        ("spec.minReplicas", 31, "spec.minReplicas: 31: expected 0 to 30"),
        ("spec.maxReplicas", None, "missing required field `maxReplicas`"),
        ("spec.metric", [], "unknown field `metric`"),
        ("spec.metrics.0.type", "Cheddar", "metrics[0].type: 'Cheddar': expected Resource or"),
        ("spec.metrics.0.pods", {"metric": {"name": "x"}, "target": {"type": "Value"}}, "and no other source"),
        ("spec.metrics.0.resource.target.type", "Value", "target.type: 'Value': expected Utilization or AverageValue"),
        ("spec.metrics.0.resource.target.averageUtilization", 0, "averageUtilization: 0: expected more than 0"),
        ("spec.metrics.0.resource.target.value", 3, "expected averageUtilization, and no other amount"),
        ("spec.metrics.1.containerResource.container", "", "container: '': expected a container's name"),
        ("spec.metrics.2.pods.target.averageValue", "3x", "averageValue: quantity '3x': expected a number"),
        ("spec.metrics.3.object.describedObject", None, "describedObject: None: expected a described object"),
        ("spec.behavior.scaleUp.stabilizationWindowSeconds", 3601, "3601: expected 0 to 3600"),
        ("spec.behavior.scaleUp.policies.0.periodSeconds", 0, "periodSeconds: 0: expected 1 to 1800"),
        ("spec.behavior.scaleUp.policies.0.type", "Nodes", "type: 'Nodes': expected Pods or Percent"),
        ("spec.behavior.scaleUp.policies", [], "behavior.scaleUp.policies: []: expected at least one policy"),
        ("spec.behavior.scaleUp.tolerance", "-1", "tolerance: '-1': expected at least 0"),
        ("spec.behavior.scaleDown.selectPolicy", "Least", "selectPolicy: 'Least': expected Max or Min or Disabled"),
        ("spec.metrics", [], "expected 1 or more, or a metric of type Object or External"),
        ("spec.metrics.0.resource.name", "", "resource.name: '': expected a name"),
        ("spec.metrics.2.pods.metric.name", "", "pods.metric.name: '': expected a name"),
        ("spec.metrics.4.external.metric.name", "a/b", "metric.name: 'a/b': expected a name without / and %"),
        ("spec.metrics.3.object.describedObject.name", "", "describedObject.name: '': expected a name"),
    ],
)
def test_a_wrong_autoscaler_is_refused_with_field_value_and_what_was_expected(
    path: str, value: object, said: str
) -> None:
    with pytest.raises(RequestError) as refused:
        read_autoscaler(manifest_with_change(ALL_SOURCES, path, value))
    assert said in refused.value.text


def test_a_queue_has_a_few_triggers_and_no_more() -> None:
    """Each of them looks at all partitions that are reported."""
    manifest = yaml.safe_load(SCALED)
    kafka = manifest["spec"]["triggers"][0]
    manifest["spec"]["triggers"] = [{**kafka, "name": f"lag-{number}"} for number in range(8)]
    assert len(read_scaled_object(manifest).triggers) == 8
    manifest["spec"]["triggers"].append({**kafka, "name": "lag-8"})
    with pytest.raises(RequestError, match="at most 8 triggers of one group and topic") as refused:
        read_scaled_object(manifest)
    assert "spec.triggers[8].metadata" in refused.value.text


SCALED = """
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: orders
  namespace: shop
  annotations: {autoscaling.keda.sh/paused-scale-in: "true"}
spec:
  scaleTargetRef: {name: worker}
  minReplicaCount: 2
  maxReplicaCount: 40
  idleReplicaCount: 0
  cooldownPeriod: 60
  fallback: {failureThreshold: 3, replicas: 6, behavior: currentReplicasIfHigher}
  triggers:
    - type: kafka
      name: lag
      metadata: {bootstrapServers: "kafka.shop:9092", consumerGroup: g, topic: orders.new, lagThreshold: "50"}
      authenticationRef: {name: kafka-login}
    - type: cron
      name: day
      metadata: {timezone: Europe/Berlin, start: 0 8 * * 1-5, end: 0 18 * * 1-5, desiredReplicas: "10"}
    - type: prometheus
      name: rate
      metadata: {serverAddress: "http://prometheus:9090", query: "sum(rate(x[1m]))", threshold: "2.5"}
    - type: cpu
      metricType: Utilization
      metadata: {value: "70"}
"""


def test_a_scaled_object_is_read_with_all_its_triggers() -> None:
    found = read_scaled_object(yaml.safe_load(SCALED))
    names = ["s0-kafka-orders-new", "s1-cron-Europe-Berlin-08xx1-5-018xx1-5", "s2-prometheus"]
    assert found.target == ScaleTarget("Deployment", "shop", "worker")
    assert [trigger.metric for trigger in found.triggers] == names
    assert [trigger.source for trigger in found.triggers] == [
        KafkaTrigger("g", ("kafka.shop:9092",), "orders.new", 50),
        CronTrigger("0 8 * * 1-5", "0 18 * * 1-5", "Europe/Berlin", 10),
        PrometheusTrigger("http://prometheus:9090", "sum(rate(x[1m]))", 2500),
    ]
    targets = dict(zip(names, (50_000, 1000, 2500), strict=True))
    external = [Metric(EXTERNAL, name, TargetValue(AVERAGE_VALUE, milli)) for name, milli in targets.items()]
    assert found.autoscaler == Autoscaler(40, (*external, Metric(RESOURCE, "cpu", TargetValue(UTILIZATION, 70))), 2)
    annotations = {"autoscaling.keda.sh/paused-scale-in": "true"}
    assert found.activation == Activation(2, 0, 60_000, 0, 6, annotations)
    assert found.fallback == Fallback(6, 3, "currentReplicasIfHigher")
    assert found.warnings == ("triggers.authenticationRef: connections are those that the operator named",)
    assert not found.is_always_active


def test_what_keda_passes_over_or_the_operator_decides_is_a_warning_and_the_rest_works() -> None:
    """People's objects still bear metricName, which KEDA has not looked at for years, and say how to log in."""
    manifest = manifest_with_change(SCALED, "spec.triggers.2.metadata.metricName", "rate")
    manifest["spec"]["triggers"][2]["metadata"] |= {"authModes": "bearer", "threshold": "25e-1"}
    found = read_scaled_object(manifest)
    assert found.triggers[2].source == PrometheusTrigger("http://prometheus:9090", "sum(rate(x[1m]))", 2500)
    assert [text.partition(":")[0] for text in found.warnings[:2]] == [
        "triggers[2].metadata.authModes",
        "triggers[2].metadata.metricName",
    ]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (text, path)
        for text, paths in (
            (
                ALL_SOURCES,
                ("metadata.annotations", "metadata.namespace", "spec.metrics.0.resource.container", "status"),
            ),
            (SCALED, ("metadata.annotations", "spec.advanced", "spec.pollingInterval", "spec.triggers.0.metricType")),
        )
        for path in paths
    ],
)
def test_a_field_that_is_null_is_left_out(text: str, path: str) -> None:
    manifest, _, field = manifest_with_change(text, path, ""), *path.rpartition(".")[1:]
    at: Any = manifest
    for part in path.split(".")[:-1]:
        at = at[int(part) if part.isdigit() else part]
    at[field] = None
    nulls = read_attached(manifest)
    del at[field]
    assert nulls == read_attached(manifest)


@pytest.mark.parametrize(
    ("exact", "lag", "partitions", "current", "expected"),
    [
        pytest.param("false", 640, 64, 59, 59, id="KEDA: 64 partitions keep their 59 consumers, within the tolerance"),
        pytest.param("true", 640, 64, 59, 64, id="exact: one for each of the 64"),
        pytest.param("false", 29, 2, 1, 3, id="KEDA: a third consumer for two partitions"),
        pytest.param("true", 29, 2, 1, 2, id="exact: two for two"),
        pytest.param("true", 25, 4, 4, 3, id="exact: no more than the lag asks for"),
    ],
)
def test_exact_lag_has_neither_a_dead_zone_nor_one_consumer_too_many(
    exact: str, lag: int, partitions: int, current: int, expected: int
) -> None:
    manifest = manifest_with_change(SCALED, "metadata.annotations", {"spillway.io/exact-lag": exact})
    manifest["spec"]["triggers"][0]["metadata"]["lagThreshold"] = "10"
    found = read_scaled_object(manifest)
    trigger = found.triggers[0].source
    assert isinstance(trigger, KafkaTrigger)
    share = [lag // partitions + (number < lag % partitions) for number in range(partitions)]
    rows = [PartitionOffsets("orders.new", number, one, 0) for number, one in enumerate(share)]
    reading = SeriesReading((lag_of_partitions(rows, trigger, {}).metric_milli,))
    assert (
        propose_replicas(found.autoscaler.metrics[0], reading, ReplicaContext(current, current, PodsSeen({}))).replicas
        == expected
    )


def test_a_formula_takes_the_place_of_its_triggers_metrics() -> None:
    modifiers = {"formula": "max(lag, rate) + day", "target": "2", "metricType": "Value"}
    found = read_scaled_object(manifest_with_change(SCALED, "spec.advanced", {"scalingModifiers": modifiers}))
    assert [metric.name for metric in found.autoscaler.metrics] == ["composite-metric", "cpu"]
    assert found.autoscaler.metrics[0].target == TargetValue(VALUE, 2000)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("spec.triggers.0.type", "rabbitmq", "type: 'rabbitmq': expected a supported trigger: kafka, cron"),
        ("spec.triggers", [], "triggers: []: expected at least one trigger"),
        ("spec.triggers.0.metadata.lagThreshold", "0", "metadata.lagThreshold '0': expected a number of at least 1"),
        (
            "spec.triggers.1.metadata.timezone",
            "Nowhere/Bad",
            "metadata.timezone: time zone 'Nowhere/Bad': expected a name",
        ),
        ("spec.triggers.1.metadata.start", "0 0 31 2 *", "metadata.start: cron '0 0 31 2 *': expected a time that"),
        ("spec.triggers.1.metadata.end", "0 8 * * 7", "metadata.end: cron '0 8 * * 7': day of week '7': expected 0"),
        ("spec.triggers.1.metadata.end", "0 8 * * 1-5", "expected a cron line other than start"),
        ("spec.triggers.2.metadata.threshold", "many", "threshold 'many': expected a number"),
        ("spec.triggers.2.metadata.namespace", "x", "metadata.namespace 'x': not supported; expected"),
        ("spec.triggers.2.name", "LAG", "a name that no other trigger has"),
        ("spec.triggers.3.metadata.value", "70%", "value: '70%': expected a percentage"),
        ("spec.triggers.3.metricType", "Value", "metricType: 'Value': expected Utilization or AverageValue"),
        ("spec.maxReplicaCount", 1, "maxReplicaCount: 1: expected 2 to"),
        ("spec.idleReplicaCount", 2, "idleReplicaCount: 2: expected 0 up to minReplicaCount, 2"),
        ("spec.fallback.behavior", "guess", "behavior: 'guess': expected"),
        ("spec.triggers.0.metadata.lagThreshold", 50, "triggers[0].metadata.lagThreshold: Expected `str`, got `int`"),
        ("metadata.annotations", {"a": "b", "x/paused": True}, "annotations[x/paused]: Expected `str`, got `bool`"),
        (
            "spec.advanced",
            {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 9999}}}},
            "advanced.horizontalPodAutoscalerConfig.behavior.scaleDown.stabilizationWindowSeconds: 9999: expected 0",
        ),
        ("spec.pollingIntervall", 5, "unknown field `pollingIntervall`"),
        ("spec.advanced", {"scalingModifiers": {"formula": "lag + nothing", "target": "1"}}, "unknown name 'nothing'"),
        ("spec.advanced", {"scalingModifiers": {"formula": "lag > 1", "target": "1"}}, "expected a number as its"),
        ("spec.advanced", {"scalingModifiers": {"formula": "lag"}}, "target '': expected a number"),
    ],
)
def test_a_wrong_scaled_object_is_refused_with_field_value_and_what_was_expected(
    path: str, value: object, said: str
) -> None:
    with pytest.raises(RequestError) as refused:
        read_scaled_object(manifest_with_change(SCALED, path, value))
    assert said in refused.value.text
