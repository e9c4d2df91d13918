"""Which window against scaling in and which tolerance are in force, from the manifest and from the settings."""

from typing import Any

import pytest

from hpa.core.kubernetes.policy import Settings
from hpa.core.rules import Rules

from .world import KAFKA, at, backlog, begun, external, hpa, load, own, scaled_object, sizes


@pytest.mark.parametrize(
    "behavior", [None, {"scaleUp": {"stabilizationWindowSeconds": 0}}, {"scaleDown": {"selectPolicy": "Max"}}]
)
def test_the_window_of_the_setting_holds_wherever_a_policy_gives_none(behavior: Any) -> None:
    rules = Rules(settings=Settings(downscale_stabilization_ms=60_000))
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
