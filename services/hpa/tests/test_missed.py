"""While nobody decides instants pass: what is as old as that is not done late, what is not is done in order."""

from typing import Any

import pytest

from hpa.core.rules import HpaRules
from hpa.core.scaled import ScaledWorkload
from hpa.core.state import HpaState
from spillway.events import Event
from spillway.events_scaling import ScaleDecided
from spillway.model import Generation

from .world import KAFKA, KEY, World, at, backlog, begun, declared, external, hpa, load, own, scaled_object

HOUR = 3600
OPENS, CLOSES = "0 14 * * *", "0 16 * * *"
"""800 s after the world begins, and two hours later."""
EVERY_2, A_MINUTE_LATER = "*/2 * * * *", "1-59/2 * * * *"


def window(start: str, end: str, floor: int, **spec: Any) -> dict[str, Any]:
    calendar = [{"name": "day", "timeZone": "UTC", "start": start, "end": end, "floor": floor}]
    return own(minReplicas=2, calendar=calendar, **spec)


def schedule(start: str, end: str, replicas: int) -> dict[str, Any]:
    metadata = {"timezone": "UTC", "start": start, "end": end, "desiredReplicas": str(replicas)}
    return scaled_object([{"type": "cron", "metadata": metadata}], minReplicaCount=2, cooldownPeriod=60)


def back(made: World, seconds: float, *late: Event, heard: tuple[Event, ...] = ()) -> list[tuple[int, int]]:
    """Another process takes the turn so late: what a step of the service decides, (before, after).

    late: what nobody read meanwhile. heard: what comes with the turn, and is looked at before the clock is.
    """
    before = len(made.decided)
    for event in late:
        made._append(event)
    made.now_ms = at(seconds)
    made.restart()
    events = [one for event in heard for one in made.state.decide_on_record(made._append(event), made.now_ms)]
    made._written([*events, *made.state.make_due_decisions(made.now_ms)])
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
        pytest.param(window(OPENS, CLOSES, 30), id="a window"),
        pytest.param(schedule(OPENS, CLOSES, 30), id="a cron trigger"),
    ],
)
def test_what_opened_and_closed_while_nobody_decided_scales_nothing(manifest: dict[str, Any]) -> None:
    made = begun(manifest, replicas=2)
    made.until(at(600))
    assert made.replicas == 2
    assert back(made, 6 * HOUR) == []


def test_who_was_away_finds_what_is_open_now() -> None:
    assert back(begun(window(OPENS, CLOSES, 30), replicas=2), HOUR) == [(2, 30)]


@pytest.mark.parametrize(
    ("mode", "manifest"),
    [
        pytest.param("event", window(EVERY_2, A_MINUTE_LATER, 6), id="a window of a minute, every two"),
        pytest.param("event", schedule(EVERY_2, A_MINUTE_LATER, 6), id="a schedule likewise"),
        pytest.param("controller", hpa([external("queue", "10")]), id="the controller's instants"),
    ],
)
def test_a_night_is_not_decided_on_instant_by_instant(mode: str, manifest: dict[str, Any]) -> None:
    made = begun(manifest, replicas=2, rules=HpaRules(mode=mode), made_of=Noting)
    made.now_ms = at(12 * HOUR)
    made.restart()
    decided = [one for one in made.state.make_due_decisions(made.now_ms) if isinstance(one, ScaleDecided)]
    assert isinstance(made.state, Noting)
    assert made.state.instants == (made.now_ms,)
    assert len(decided) <= 1
    due_ms = made.state.next_due_ms()
    assert due_ms is not None
    assert due_ms > made.now_ms


def test_a_record_that_comes_with_the_turn_brings_nothing_back_either() -> None:
    manifest = window(OPENS, CLOSES, 30, metrics=[external("queue", "10")])
    told = load("queue", 20, at(6 * HOUR - 1))
    assert back(begun(manifest, replicas=2), 6 * HOUR, heard=(told,)) == []


def test_values_of_hours_ago_are_taken_in_and_scale_nothing() -> None:
    """A queue that grew, and was drained by others: only how it is now counts."""
    made = begun(scaled_object([KAFKA], minReplicaCount=1), replicas=1)
    made.say(backlog([0] * 8, at(5)))
    told = [backlog([90] * 8, at(HOUR)), backlog([0] * 8, at(2 * HOUR))]
    assert back(made, 6 * HOUR, *told) == []


@pytest.mark.parametrize("killed", [False, True])
def test_a_workload_that_comes_later_than_its_policy_is_sized_as_of_then(killed: bool) -> None:
    """Its record has no time, and at the policy's a window was open that is over."""
    night = {"name": "night", "timeZone": "UTC", "from": "1970-01-12", "until": "1970-01-12T14:00", "exact": 9}
    made = World()
    made.policy(own(calendar=[night], minReplicas=2))
    made.until(at(HOUR))
    made.say(declared(5), heard=not killed)
    if killed:
        made.restart()
    made.until(at(HOUR + 1))
    assert [(one.replicas, one.at_ms) for one in made.decided] == [(2, at(HOUR))]


def test_what_is_not_missed_yet_is_done_in_order() -> None:
    made = begun(window(EVERY_2, A_MINUTE_LATER, 6), replicas=6, rules=HpaRules(missed_ms=600_000))
    decided = back(made, 500)
    assert len(decided) > 3
    assert set(decided) == {(2, 6), (6, 2)}


def test_what_was_due_before_a_record_is_decided_on_at_its_own_instant_though_the_record_is_read_first() -> None:
    """Records and clock come on two ways: which of them is served first changes no decision, and no instant of one."""
    made = begun(window(OPENS, CLOSES, 30, metrics=[external("queue", "10")]), replicas=2)
    made.until(at(600))
    made.now_ms = at(805)
    events = made.state.decide_on_record(made._append(load("queue", 20, at(804))), made.now_ms)
    assert [(one.replicas, one.at_ms) for one in events if isinstance(one, ScaleDecided)] == [(30, at(800))]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_standby_decides_on_what_it_read_before_a_policy_that_its_declarer_had_not_read(is_known: bool) -> None:
    """The instance that declared the policy lags in reading workloads, and loses its turn before it reads this one."""
    behind = World()
    standby = HpaState(behind.rules, lambda _: 0)
    standby.apply_early_records()
    workload = behind._append(declared(23))
    standby.follow_record(workload)
    if is_known:
        behind.state.decide_on_record(workload, behind.now_ms)
    window = {"name": "day", "timeZone": "UTC", "start": "0 8 * * *", "end": "0 9 * * *", "floor": 2}
    behind.policy(own(minReplicas=2, maxReplicas=10, calendar=[window]))
    for heard in behind.log[1:]:
        standby.follow_record(heard)
    at_turn = standby.take_turn(lambda: Generation(9, 1), at(5))
    events = [*at_turn, *standby.make_due_decisions(at(5))]
    assert standby.current_replicas(KEY) == 2
    assert len([one for one in events if isinstance(one, ScaleDecided)]) == (not is_known)
    assert len(standby.take_unwritten_states()) == (not is_known)
