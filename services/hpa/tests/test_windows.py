"""Which window against scaling in and which tolerance are in force, from the manifest and from the settings."""

from typing import Any

import pytest

from hpa.core.kubernetes.policy import ControllerSettings
from hpa.core.rules import HpaRules

from .world import KAFKA, KEY, at, backlog, begun, external, hpa, load, own, scaled_object, sizes


@pytest.mark.parametrize(
    "behavior", [None, {"scaleUp": {"stabilizationWindowSeconds": 0}}, {"scaleDown": {"selectPolicy": "Max"}}]
)
def test_the_window_of_the_setting_holds_wherever_a_policy_gives_none(behavior: Any) -> None:
    rules = HpaRules(settings=ControllerSettings(downscale_stabilization_ms=60_000))
    given = {} if behavior is None else {"behavior": behavior}
    queue = [external("queue", "10")]
    advanced = {"horizontalPodAutoscalerConfig": given}
    for manifest in (hpa(queue, **given), own(metrics=queue, **given), scaled_object([KAFKA], advanced=advanced)):
        made = begun(manifest, replicas=1, rules=rules)
        for second, waiting in ((10, 4), *((second, 1) for second in range(20, 120, 10))):
            made.say(load("queue", 10 * waiting, at(second)))
            made.say(backlog([10] * waiting + [0] * (4 - waiting), at(second)))
        assert [(when // 1000, replicas) for when, replicas in sizes(made)] in ([(10, 4), (79, 1)], [(10, 4), (80, 1)])


def test_where_scaling_out_is_paused_the_window_against_scaling_in_stays() -> None:
    made = begun(scaled_object([KAFKA], {"autoscaling.keda.sh/paused-scale-out": "true"}), replicas=8)
    for second in (10, 40):
        made.say(backlog([10] * 8, at(second)))
    for second in range(60, 400, 30):
        made.say(backlog([10] + [0] * 7, at(second)))
    assert sizes(made) == [(359_999, 1)]


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
    made = begun(hpa([external("queue", "10")], most=1000, behavior=behavior), replicas=100)
    made.say(load("queue", value, at(5)))
    assert made.replicas == expected


@pytest.mark.parametrize("killed", [False, True])
def test_an_initial_cooldown_counts_from_the_first_declaration(killed: bool) -> None:
    """KEDA: from the ScaledObject's creation, which another apply does not change."""
    manifest = scaled_object([KAFKA], initialCooldownPeriod=100)
    made = begun(manifest, replicas=3)
    for second in (5, 60):
        made.say(backlog([0] * 4, at(second)))
    manifest["metadata"]["annotations"] = {"team": "x"}
    made.policy(manifest)
    if killed:
        made.restart()
    made.policy(manifest | {"spec": manifest["spec"] | {"pollingInterval": 20}})
    for second in (80, 99):
        made.say(backlog([0] * 4, at(second)))
    assert made.replicas == 3
    made.until(at(101))
    assert sizes(made) == [(100_001, 0)]


def test_an_initial_cooldown_counts_anew_of_a_policy_that_was_deleted() -> None:
    manifest = scaled_object([KAFKA], initialCooldownPeriod=100)
    made = begun(manifest, replicas=3)
    made.until(at(60))
    made.state.forget_policy(KEY)
    made.policy(manifest)
    made.say(backlog([0] * 4, at(110)))
    made.until(at(120))
    assert made.replicas == 3
