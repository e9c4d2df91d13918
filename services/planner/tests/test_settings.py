"""Settings of the planner that no brake or bound can be are refused at the start, by name, value and expectation."""

import pytest

from planner.settings import PlannerSettings
from spillway.settings import SettingsError, settings_from_environment

REFUSED = [
    ("MOVES_PER_MINUTE", "-5", "at least 0"),
    ("MOVES_PER_MINUTE", "nan", "finite"),
    ("MOVES_PER_MINUTE", "inf", "finite"),
    ("HOME_MOVES_PER_MINUTE", "nan", "finite"),
    ("CONFIRM_OVER_FRACTION", "nan", "finite"),
    ("CONFIRM_OVER_FRACTION", "-1", "at least 0"),
    ("CONFIRM_OVER_FRACTION", "10", "at most 1"),
    ("NAMESPACE_WORKLOADS_MAX", "0", "at least 1"),
]


@pytest.mark.parametrize(("name", "value", "expected"), REFUSED)
def test_what_no_brake_or_bound_can_be_is_refused(name: str, value: str, expected: str) -> None:
    variable = "SPILLWAY_PLANNER_" + name
    with pytest.raises(SettingsError) as caught:
        settings_from_environment(PlannerSettings, {variable: value}, "SPILLWAY_PLANNER_")
    text = str(caught.value)
    assert text.startswith(f"{variable}: {value!r}: expected ")
    assert text.endswith(expected)


@pytest.mark.parametrize(("name", "value"), [("MOVES_PER_MINUTE", "0"), ("CONFIRM_OVER_FRACTION", "1")])
def test_the_bounds_themselves_are_taken(name: str, value: str) -> None:
    taken = settings_from_environment(PlannerSettings, {"SPILLWAY_PLANNER_" + name: value}, "SPILLWAY_PLANNER_")
    assert getattr(taken, name.lower()) == float(value)
