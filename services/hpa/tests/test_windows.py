"""Which window against scaling in and which tolerance are in force, from the manifest and from the settings."""

from typing import Any

import pytest

from hpa.core.kubernetes.policy import ControllerSettings
from hpa.core.rules import HpaRules

from .world import (
    KAFKA,
    KEY,
    backlog_observed,
    decided_sizes,
    external_metric,
    hpa_manifest,
    load_observed,
    ms_after_start,
    scale_policy_manifest,
    scaled_object_manifest,
    world_under_policy,
)


@pytest.mark.parametrize(
    "behavior", [None, {"scaleUp": {"stabilizationWindowSeconds": 0}}, {"scaleDown": {"selectPolicy": "Max"}}]
)
def test_the_window_of_the_setting_holds_wherever_a_policy_gives_none(behavior: Any) -> None:
    rules = HpaRules(settings=ControllerSettings(downscale_stabilization_ms=60_000))
    given = {} if behavior is None else {"behavior": behavior}
    queue = [external_metric("queue", "10")]
    advanced = {"horizontalPodAutoscalerConfig": given}
    for manifest in (
        hpa_manifest(queue, **given),
        scale_policy_manifest(metrics=queue, **given),
        scaled_object_manifest([KAFKA], advanced=advanced),
    ):
        made = world_under_policy(manifest, replicas=1, rules=rules)
        for second, waiting in ((10, 4), *((second, 1) for second in range(20, 120, 10))):
            made.publish_input(load_observed("queue", 10 * waiting, ms_after_start(second)))
            made.publish_input(backlog_observed([10] * waiting + [0] * (4 - waiting), ms_after_start(second)))
        assert [(when // 1000, replicas) for when, replicas in decided_sizes(made)] in (
            [(10, 4), (79, 1)],
            [(10, 4), (80, 1)],
        )


def test_where_scaling_out_is_paused_the_window_against_scaling_in_stays() -> None:
    made = world_under_policy(
        scaled_object_manifest([KAFKA], {"autoscaling.keda.sh/paused-scale-out": "true"}), replicas=8
    )
    for second in (10, 40):
        made.publish_input(backlog_observed([10] * 8, ms_after_start(second)))
    for second in range(60, 400, 30):
        made.publish_input(backlog_observed([10] + [0] * 7, ms_after_start(second)))
    assert decided_sizes(made) == [(359_999, 1)]


@pytest.mark.parametrize(
    ("tolerance", "value", "expected"),
    [
        ("0.0125", 1012.8, 102),
        ("0.0125", 1012.4, 100),
        ("0.0004", 1000.5, 101),
        ("100u", 1000.5, 101),
        ("0.05", 1051, 106),
    ],
)
def test_a_tolerance_is_what_is_written(tolerance: str, value: float, expected: int) -> None:
    behavior = {"scaleUp": {"tolerance": tolerance}}
    made = world_under_policy(
        hpa_manifest([external_metric("queue", "10")], most=1000, behavior=behavior), replicas=100
    )
    made.publish_input(load_observed("queue", value, ms_after_start(5)))
    assert made.current_replicas == expected


@pytest.mark.parametrize("killed", [False, True])
def test_an_initial_cooldown_counts_from_the_first_declaration(killed: bool) -> None:
    """KEDA: from the ScaledObject's creation, which another apply does not change."""
    manifest = scaled_object_manifest([KAFKA], initialCooldownPeriod=100)
    made = world_under_policy(manifest, replicas=3)
    for second in (5, 60):
        made.publish_input(backlog_observed([0] * 4, ms_after_start(second)))
    manifest["metadata"]["annotations"] = {"team": "x"}
    made.declare_policy(manifest)
    if killed:
        made.restart()
    made.declare_policy(manifest | {"spec": manifest["spec"] | {"pollingInterval": 20}})
    for second in (80, 99):
        made.publish_input(backlog_observed([0] * 4, ms_after_start(second)))
    assert made.current_replicas == 3
    made.advance_to(ms_after_start(101))
    assert decided_sizes(made) == [(100_001, 0)]


def test_an_initial_cooldown_counts_anew_of_a_policy_that_was_deleted() -> None:
    manifest = scaled_object_manifest([KAFKA], initialCooldownPeriod=100)
    made = world_under_policy(manifest, replicas=3)
    made.advance_to(ms_after_start(60))
    made.state.forget_policy(KEY)
    made.declare_policy(manifest)
    made.publish_input(backlog_observed([0] * 4, ms_after_start(110)))
    made.advance_to(ms_after_start(120))
    assert made.current_replicas == 3
