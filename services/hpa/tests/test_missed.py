"""While nobody decides instants pass: what is as old as that is not done late, what is not is done in order."""

from typing import Any

import pytest

from hpa.core.rules import HpaRules
from hpa.core.scaled import ScaledWorkload
from hpa.core.state import HpaState
from spillway.events import Event
from spillway.events_scaling import ScaleDecided
from spillway.model import Generation

from .world import (
    KAFKA,
    KEY,
    World,
    backlog_observed,
    external_metric,
    hpa_manifest,
    load_observed,
    ms_after_start,
    scale_policy_manifest,
    scaled_object_manifest,
    workload_declared,
    world_under_policy,
)

HOUR = 3600
OPENS, CLOSES = "0 14 * * *", "0 16 * * *"
"""800 s after the world begins, and two hours later."""
EVERY_2, A_MINUTE_LATER = "*/2 * * * *", "1-59/2 * * * *"


def scale_policy_with_window(start: str, end: str, floor: int, **spec: Any) -> dict[str, Any]:
    calendar = [{"name": "day", "timeZone": "UTC", "start": start, "end": end, "floor": floor}]
    return scale_policy_manifest(minReplicas=2, calendar=calendar, **spec)


def scaled_object_with_cron_trigger(start: str, end: str, replicas: int) -> dict[str, Any]:
    metadata = {"timezone": "UTC", "start": start, "end": end, "desiredReplicas": str(replicas)}
    return scaled_object_manifest([{"type": "cron", "metadata": metadata}], minReplicaCount=2, cooldownPeriod=60)


def decide_after_absence(
    made: World, seconds: float, *late: Event, heard: tuple[Event, ...] = ()
) -> list[tuple[int, int]]:
    """Another process takes the turn so late: what a step of the service decides, (before, after).

    late: what nobody read meanwhile. heard: what comes with the turn, and is looked at before the clock is.
    """
    before = len(made.decided)
    for event in late:
        made._append_record(event)
    made.now_ms = ms_after_start(seconds)
    made.restart()
    events = [one for event in heard for one in made.state.decide_on_record(made._append_record(event), made.now_ms)]
    made._write_events([*events, *made.state.make_due_decisions(made.now_ms)])
    return [(one.replicas_before, one.replicas) for one in made.decided[before:]]


class Noting(HpaState):
    """instants: at which a decision was made."""

    instants: tuple[int, ...] = ()

    def _evaluate_workload(self, scaled: ScaledWorkload, at_ms: int) -> list[Event]:
        self.instants += (at_ms,)
        return super()._evaluate_workload(scaled, at_ms)


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param(scale_policy_with_window(OPENS, CLOSES, 30), id="a window"),
        pytest.param(scaled_object_with_cron_trigger(OPENS, CLOSES, 30), id="a cron trigger"),
    ],
)
def test_what_opened_and_closed_while_nobody_decided_scales_nothing(manifest: dict[str, Any]) -> None:
    made = world_under_policy(manifest, replicas=2)
    made.advance_to(ms_after_start(600))
    assert made.current_replicas == 2
    assert decide_after_absence(made, 6 * HOUR) == []


def test_who_was_away_finds_what_is_open_now() -> None:
    assert decide_after_absence(world_under_policy(scale_policy_with_window(OPENS, CLOSES, 30), replicas=2), HOUR) == [
        (2, 30)
    ]


@pytest.mark.parametrize(
    ("mode", "manifest"),
    [
        pytest.param(
            "event", scale_policy_with_window(EVERY_2, A_MINUTE_LATER, 6), id="a window of a minute, every two"
        ),
        pytest.param("event", scaled_object_with_cron_trigger(EVERY_2, A_MINUTE_LATER, 6), id="a schedule likewise"),
        pytest.param("controller", hpa_manifest([external_metric("queue", "10")]), id="the controller's instants"),
    ],
)
def test_a_night_is_not_decided_on_instant_by_instant(mode: str, manifest: dict[str, Any]) -> None:
    made = world_under_policy(manifest, replicas=2, rules=HpaRules(mode=mode), made_of=Noting)
    made.now_ms = ms_after_start(12 * HOUR)
    made.restart()
    decided = [one for one in made.state.make_due_decisions(made.now_ms) if isinstance(one, ScaleDecided)]
    assert isinstance(made.state, Noting)
    assert made.state.instants == (made.now_ms,)
    assert len(decided) <= 1
    due_ms = made.state.next_due_ms()
    assert due_ms is not None
    assert due_ms > made.now_ms


def test_a_record_that_comes_with_the_turn_brings_nothing_back_either() -> None:
    manifest = scale_policy_with_window(OPENS, CLOSES, 30, metrics=[external_metric("queue", "10")])
    told = load_observed("queue", 20, ms_after_start(6 * HOUR - 1))
    assert decide_after_absence(world_under_policy(manifest, replicas=2), 6 * HOUR, heard=(told,)) == []


def test_values_of_hours_ago_are_taken_in_and_scale_nothing() -> None:
    """A queue that grew, and was drained by others: only how it is now counts."""
    made = world_under_policy(scaled_object_manifest([KAFKA], minReplicaCount=1), replicas=1)
    made.publish_input(backlog_observed([0] * 8, ms_after_start(5)))
    told = [backlog_observed([90] * 8, ms_after_start(HOUR)), backlog_observed([0] * 8, ms_after_start(2 * HOUR))]
    assert decide_after_absence(made, 6 * HOUR, *told) == []


@pytest.mark.parametrize("killed", [False, True])
def test_a_workload_that_comes_later_than_its_policy_is_sized_as_of_then(killed: bool) -> None:
    """Its record has no time, and at the policy's a window was open that is over."""
    night = {"name": "night", "timeZone": "UTC", "from": "1970-01-12", "until": "1970-01-12T14:00", "exact": 9}
    made = World()
    made.declare_policy(scale_policy_manifest(calendar=[night], minReplicas=2))
    made.advance_to(ms_after_start(HOUR))
    made.publish_input(workload_declared(5), heard=not killed)
    if killed:
        made.restart()
    made.advance_to(ms_after_start(HOUR + 1))
    assert [(one.replicas, one.at_ms) for one in made.decided] == [(2, ms_after_start(HOUR))]


def test_what_is_not_missed_yet_is_done_in_order() -> None:
    made = world_under_policy(
        scale_policy_with_window(EVERY_2, A_MINUTE_LATER, 6), replicas=6, rules=HpaRules(missed_ms=600_000)
    )
    decided = decide_after_absence(made, 500)
    assert len(decided) > 3
    assert set(decided) == {(2, 6), (6, 2)}


def test_what_was_due_before_a_record_is_decided_on_at_its_own_instant_though_the_record_is_read_first() -> None:
    """Records and clock come on two ways: which of them is served first changes no decision, and no instant of one."""
    made = world_under_policy(
        scale_policy_with_window(OPENS, CLOSES, 30, metrics=[external_metric("queue", "10")]), replicas=2
    )
    made.advance_to(ms_after_start(600))
    made.now_ms = ms_after_start(805)
    events = made.state.decide_on_record(
        made._append_record(load_observed("queue", 20, ms_after_start(804))), made.now_ms
    )
    assert [(one.replicas, one.at_ms) for one in events if isinstance(one, ScaleDecided)] == [(30, ms_after_start(800))]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_standby_decides_on_what_it_read_before_a_policy_that_its_declarer_had_not_read(is_known: bool) -> None:
    """The instance that declared the policy lags in reading workloads, and loses its turn before it reads this one."""
    behind = World()
    standby = HpaState(behind.rules, lambda _: 0)
    standby.apply_early_records()
    workload = behind._append_record(workload_declared(23))
    standby.follow_record(workload)
    if is_known:
        behind.state.decide_on_record(workload, behind.now_ms)
    window = {"name": "day", "timeZone": "UTC", "start": "0 8 * * *", "end": "0 9 * * *", "floor": 2}
    behind.declare_policy(scale_policy_manifest(minReplicas=2, maxReplicas=10, calendar=[window]))
    for heard in behind.log[1:]:
        standby.follow_record(heard)
    at_turn = standby.take_turn(lambda: Generation(9, 1), ms_after_start(5))
    events = [*at_turn, *standby.make_due_decisions(ms_after_start(5))]
    assert standby.current_replicas(KEY) == 2
    assert len([one for one in events if isinstance(one, ScaleDecided)]) == (not is_known)
    assert len(standby.take_unwritten_states()) == (not is_known)
