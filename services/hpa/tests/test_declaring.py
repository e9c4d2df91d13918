"""What people declare as policies: names and numbers that no object has are refused, an edited policy stays one."""

import json
from typing import Any

import pytest
import yaml

from hpa.core.manifests.attached import read_attached
from hpa.core.requests import declaring
from spillway.addresses import Tombstone
from spillway.api import RequestError
from spillway.api_scaling import DeclarePolicyRequest
from spillway.events_scaling import ScalePolicyDeclared
from spillway.model import Generation

from .world import (
    KAFKA,
    KEY,
    START_MS,
    World,
    apply_decision,
    cpu_utilization_metric,
    decided_sizes,
    external_metric,
    hpa_manifest,
    pods_observed,
    scale_policy_manifest,
    scaled_object_manifest,
    workload_declared,
)

LONG = "9" * 5000


def hpa_with_metadata(**metadata: str) -> dict[str, Any]:
    manifest = hpa_manifest([cpu_utilization_metric(50)])
    return manifest | {"metadata": manifest["metadata"] | metadata}


def hpa_with_target(name: str) -> dict[str, Any]:
    manifest = hpa_manifest([cpu_utilization_metric(50)])
    manifest["spec"]["scaleTargetRef"]["name"] = name
    return manifest


def scaled_object_with_cpu_trigger(value: str) -> dict[str, Any]:
    return scaled_object_manifest([{"type": "cpu", "metricType": "Utilization", "metadata": {"value": value}}])


def scaled_object_with_cron_trigger(**metadata: str) -> dict[str, Any]:
    lines = {"timezone": "UTC", "start": "0 8 * * *", "end": "0 9 * * *", "desiredReplicas": "3"}
    return scaled_object_manifest([{"type": "cron", "metadata": lines | metadata}])


def scaled_object_paused_at(replicas: str) -> dict[str, Any]:
    return scaled_object_manifest([KAFKA], {"autoscaling.keda.sh/paused-replicas": replicas})


def scale_policy_with_window(start: str) -> dict[str, Any]:
    return scale_policy_manifest(
        calendar=[{"name": "once", "from": start, "until": "2026-11-27", "timeZone": "UTC", "floor": 2}]
    )


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        pytest.param(hpa_with_metadata(name=""), "metadata.name", id="no name"),
        pytest.param(hpa_with_metadata(name="W eb"), "metadata.name", id="a name with a blank"),
        pytest.param(hpa_with_metadata(namespace="shop/a"), "metadata.namespace", id="a namespace with a slash"),
        pytest.param(hpa_with_target(""), "scaleTargetRef.name", id="no workload"),
        pytest.param(hpa_with_target("web/x"), "scaleTargetRef.name", id="a workload with a slash"),
        pytest.param(scaled_object_paused_at("200000"), "paused-replicas", id="more replicas than there may be"),
        pytest.param(
            scaled_object_paused_at("-1"),
            "paused-replicas.: '-1': expected a number from 0 to",
            id="paused at less than none",
        ),
        pytest.param(
            scaled_object_paused_at("few"), "paused-replicas.: 'few': expected a number", id="paused at no number"
        ),
        pytest.param(scaled_object_paused_at(LONG), "a number from 0 to 100000", id="paused at thousands of digits"),
        pytest.param(
            scaled_object_with_cpu_trigger(LONG),
            "metadata.value.*a percentage",
            id="a percentage of thousands of digits",
        ),
        pytest.param(
            scaled_object_with_cron_trigger(desiredReplicas=LONG),
            "expected a number from 1 to 2147483647",
            id="replicas of thousands of digits",
        ),
        pytest.param(
            scaled_object_with_cron_trigger(start=f"{LONG} 8 * * *"),
            "expected at most 200",
            id="a minute of thousands of digits",
        ),
        pytest.param(
            scale_policy_with_window("0001-01-01T00:00+14:00"), "expected dates, as", id="a date before all dates"
        ),
    ],
)
def test_what_no_object_can_be_is_refused(manifest: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words) as refused:
        read_attached(manifest)
    assert refused.value.code == "INVALID_ARGUMENT"


def annotated_hpa_text(text: str, **target: Any) -> str:
    manifest = hpa_manifest([cpu_utilization_metric(50)])
    manifest["metadata"]["annotations"] = {"note": text}
    manifest["spec"]["scaleTargetRef"].update(target)
    return json.dumps(manifest, ensure_ascii=False)


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        pytest.param("{", "manifest: neither JSON nor YAML", id="no object"),
        pytest.param(json.dumps(hpa_with_metadata(name="")), "metadata.name", id="no policy"),
        pytest.param(
            json.dumps(hpa_manifest([external_metric("\ud800", "3")])),
            "half of a surrogate pair",
            id="half of a surrogate pair",
        ),
        pytest.param(
            json.dumps({**hpa_manifest([cpu_utilization_metric(50)]), "\udfff": 1}),
            "half of a surrogate pair",
            id="half of one as a name",
        ),
        pytest.param(
            json.dumps(hpa_manifest([cpu_utilization_metric(2**31)])),
            "averageUtilization.*at most 2147483647",
            id="too large a share",
        ),
        pytest.param(
            json.dumps(scaled_object_with_cpu_trigger(str(2**31))),
            "metadata.value.*at most",
            id="too large a share of KEDA's",
        ),
        pytest.param(
            annotated_hpa_text("é" * 400_000, name="web2"), "expected at most", id="too long as it is written"
        ),
        pytest.param("metadata: {x: .nan}\nkind: x", "cannot be written as JSON", id="not a number"),
    ],
)
def test_a_bad_policy_is_refused_and_changes_nothing(manifest: str, words: str) -> None:
    """Anything but a RequestError would stop the process, and whoever asks again the next one."""
    world = World()
    world.publish_input(workload_declared(3))
    declare_manifest(world, hpa_with_target("web"), 1)
    known = dict(world.state.scaled)
    with pytest.raises(RequestError, match=words) as refused:
        declaring.declare_policy(
            world.state, DeclarePolicyRequest(manifest), Generation(9, 2), START_MS, no_unasked_metrics
        )
    assert refused.value.code == "INVALID_ARGUMENT"
    assert world.state.scaled == known


def test_what_is_declared_is_what_its_record_says() -> None:
    """YAML has names that are no text; JSON has not, and who follows reads JSON."""
    world = World()
    world.publish_input(workload_declared(3))
    metric = external_metric("queue", "10")
    metric["external"]["metric"]["selector"] = {"matchLabels": {1: "x"}}
    text = yaml.safe_dump(hpa_manifest([metric]))
    assert "1: x" in text
    request = DeclarePolicyRequest(text)
    decision = declaring.declare_policy(world.state, request, Generation(9, 1), START_MS, no_unasked_metrics)
    events, _ = apply_decision(world.state, decision)
    (event,) = [one for one in events if isinstance(one, ScalePolicyDeclared)]
    assert world.state.scaled[KEY].policy == read_attached(json.loads(event.manifest))


def test_an_empty_namespace_is_the_default_one() -> None:
    assert read_attached(hpa_with_metadata(namespace="")).target.namespace == "default"


def no_unasked_metrics(policy: ScalePolicyDeclared) -> tuple[str, ...]:
    return ()


def declare_manifest(world: World, manifest: dict[str, Any], sequence: int) -> tuple[list[Any], tuple[str, ...]]:
    request = DeclarePolicyRequest(json.dumps(manifest))
    generation = Generation(9, sequence)
    decision = declaring.declare_policy(world.state, request, generation, START_MS, no_unasked_metrics)
    events, reply = apply_decision(world.state, decision)
    return events, reply.warnings


def test_a_second_policy_for_a_workload_is_refused_with_the_name_of_the_first() -> None:
    world = World()
    world.publish_input(workload_declared(3))
    declare_manifest(world, hpa_with_target("web"), 1)
    for manifest in (
        hpa_with_metadata(name="other"),
        scale_policy_manifest(minReplicas=1, metrics=[cpu_utilization_metric(50)]),
    ):
        with pytest.raises(
            RequestError, match="shop/web: HorizontalPodAutoscaler web-hpa scales it already"
        ) as refused:
            declare_manifest(world, manifest, 2)
        assert refused.value.code == "FAILED_PRECONDITION"
    assert world.state.scaled[KEY].declared.policy == "web-hpa"


def test_a_policy_that_names_another_workload_leaves_the_one_before() -> None:
    world = World()
    world.publish_input(workload_declared(3))
    declare_manifest(world, hpa_with_target("web"), 1)
    events, warnings = declare_manifest(world, hpa_with_target("web2"), 2)
    assert list(world.state.scaled) == [(KEY[0], "web2")]
    assert [event for event in events if isinstance(event, Tombstone)]
    assert any("shop/web: not scaled by it any more" in text for text in warnings)


def test_a_scale_policy_of_cpu_alone_stays_above_none_and_comes_back_from_a_window_of_none() -> None:
    """Without pods there is no cpu to be read: nothing would ever ask for one again."""
    night = {"name": "night", "timeZone": "UTC", "from": "1970-01-12T13:50", "until": "1970-01-12T14:00", "exact": 0}
    world = World()
    world.publish_input(workload_declared(3))
    world.declare_policy(scale_policy_manifest(metrics=[cpu_utilization_metric(50)], calendar=[night]))
    for second in range(0, 1_800, 15):
        at_ms = START_MS + second * 1000
        world.advance_to(at_ms)
        world.publish_input(
            pods_observed(
                "c", [0] * (decided_sizes(world)[-1][1] if decided_sizes(world) else 3), at_ms + 1, second + 1
            )
        )
    assert 0 in [replicas for _, replicas in decided_sizes(world)]
    assert decided_sizes(world)[-1][1] == 1


@pytest.mark.parametrize(
    ("replicas", "words"),
    [
        pytest.param(120, ["shop/web: 120 replicas now, above the maximum of 20: they are cut to 20"], id="more"),
        pytest.param(20, [], id="as many as it allows"),
    ],
)
def test_what_a_policy_cuts_at_once_is_said_before_and_when_it_is_declared(replicas: int, words: list[str]) -> None:
    """Kubernetes cuts them as well, and asks nobody; whoever declares is told."""
    world = World()
    world.publish_input(workload_declared(replicas))
    manifest = json.dumps(hpa_with_target("web"))
    for plan_only in (True, False):
        request = DeclarePolicyRequest(manifest, plan_only)
        decision = declaring.declare_policy(world.state, request, Generation(9, 1), START_MS, no_unasked_metrics)
        assert list(decision.reply.warnings) == words


@pytest.mark.parametrize("over", [True, False])
def test_a_dated_window_that_is_over_is_warned_of(over: bool) -> None:
    world = World()
    world.publish_input(workload_declared(3))
    year = "1969" if over else "2069"
    window = {"name": "sale", "timeZone": "UTC", "from": f"{year}-11-27", "until": f"{year}-11-28", "floor": 2}
    _, warnings = declare_manifest(
        world, scale_policy_manifest(metrics=[cpu_utilization_metric(50)], calendar=[window]), 1
    )
    words = "ScalePolicy.spec.calendar[0].until: window sale is over: it has no effect"
    assert list(warnings) == ([words] if over else [])
