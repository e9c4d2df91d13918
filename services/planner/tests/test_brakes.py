"""Brakes (P8): who holds what back, the budget's bound, confirmations that are asked once and forgotten in time."""

from collections import Counter
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.core.knowledge.allowance import (
    CAUSE_DRAIN,
    CAUSE_FAILOVER,
    CAUSE_LOST,
    CAUSE_MIGRATE,
    CAUSE_POLICY,
    CAUSE_RETURN,
    CAUSE_TAKE_BACK,
    Allowance,
)
from planner.core.knowledge.brakes import CAUSES_CONFIRMED, BrakeEvent, Brakes, Cause
from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.state import PlannerState
from spillway.addresses import BRAKES, Tombstone, brake_address
from spillway.events import BrakeReleased, BrakeSet, ConfirmationAsked, ConfirmationGiven

WEB = ("shop", "web")
ALL_CAUSES = (CAUSE_LOST, CAUSE_FAILOVER, CAUSE_RETURN, CAUSE_DRAIN, CAUSE_POLICY, CAUSE_MIGRATE, CAUSE_TAKE_BACK)
FAILOVER = (CAUSE_FAILOVER, "own-1")
MINUTE = 60.0


def brake_on_scope(scope: str, reason: str = "a change") -> BrakeSet:
    return BrakeSet(scope, reason, "ann", 1)


def brakes_after_events(*events: BrakeEvent, wanted: Mapping[Cause, int] | None = None, fleet: int = 1000) -> Brakes:
    """Brakes after these events and a minute of steps: the bucket is full."""
    made = Brakes(PlannerRules())
    for event in events:
        made.apply_event(event)
    for now in (0.0, MINUTE):
        update_and_apply_confirmations(made, wanted or {}, now, fleet)
    return made


def update_and_apply_confirmations(
    on: Brakes, wanted: Mapping[Cause, int], now: float = MINUTE, fleet: int = 1000
) -> list[object]:
    """One step, its events applied."""
    events = on.update_confirmations(wanted, fleet, now, int(now * 1000))
    for event in events:
        if isinstance(event, Tombstone):
            on.forget_scope(event.address.key)
        else:
            on.apply_event(event)
    return list(events)


# ── Freezing ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("scope", "cluster", "key", "holds"),
    [
        pytest.param("fleet", "own-1", WEB, True, id="the fleet holds everything"),
        pytest.param("cluster/own-1", "own-1", WEB, True, id="a cluster holds its own"),
        pytest.param("cluster/own-1", "own-2", WEB, False, id="a cluster does not hold another"),
        pytest.param("cluster/own-1", "own-10", WEB, False, id="a cluster does not hold one that begins like it"),
        pytest.param("workload/shop/web", "own-1", WEB, True, id="a workload is held in every cluster"),
        pytest.param("workload/shop/web", "own-1", ("shop", "api"), False, id="a workload does not hold another"),
        pytest.param("workload/shop/web", "own-1", ("test", "web"), False, id="nor its namesake"),
    ],
)
def test_what_a_brake_holds(scope: str, cluster: str, key: tuple[str, str], holds: bool) -> None:
    on = brakes_after_events(brake_on_scope(scope))
    assert on.is_frozen(cluster, key) is holds
    assert on.allow_replicas(CAUSE_MIGRATE, cluster, key, 7) == (0 if holds else 7)


@pytest.mark.parametrize("cause", ALL_CAUSES)
def test_a_frozen_fleet_moves_nothing_for_any_cause(cause: str) -> None:
    on = brakes_after_events(
        brake_on_scope("fleet"), ConfirmationGiven("Failover/own-1", "ann", 1), wanted={(cause, "own-1"): 3}
    )
    assert on.allow_replicas(cause, "own-1", WEB, 3) == 0


def test_they_are_what_moves_ask() -> None:
    asked: Allowance = brakes_after_events(brake_on_scope("fleet"))
    assert asked.is_frozen("own-1", WEB)


def test_a_cluster_said_to_be_lost_is_given_up_within_the_budget_unconfirmed() -> None:
    on = brakes_after_events(wanted={(CAUSE_LOST, "own-1"): 900})
    update_and_apply_confirmations(on, {(CAUSE_LOST, "own-1"): 900})
    assert on.allow_replicas(CAUSE_LOST, "own-1", WEB, 900) == 600


def test_the_text_names_scope_person_and_reason() -> None:
    assert (
        brakes_after_events(brake_on_scope("fleet", "audit")).why_frozen("own-1", WEB)
        == "fleet is frozen by ann: audit"
    )


def test_the_widest_brake_is_named_and_each_is_released_by_itself() -> None:
    on = brakes_after_events(brake_on_scope("fleet"), brake_on_scope("cluster/own-1"), BrakeReleased("fleet", "ann", 2))
    assert on.why_frozen("own-1", WEB).startswith("cluster/own-1")
    on.apply_event(BrakeReleased("cluster/own-1", "ann", 3))
    assert on.why_frozen("own-1", WEB) == ""


def test_brakes_and_tombstones_of_the_log_reach_the_state() -> None:
    state = PlannerState(PlannerRules())
    state.apply_event(brake_on_scope("fleet"), 0.0, 4)
    assert state.brakes.is_frozen("own-1", WEB)
    state.apply_tombstone(BRAKES.name, "fleet", 5)
    assert not state.brakes.is_frozen("own-1", WEB)


# ── The budget ──────────────────────────────────────────────────────────────────────────────────────────────────


def allowed_replicas_at(on: Brakes, cause: Cause, replicas: int, now: float) -> int:
    update_and_apply_confirmations(on, {cause: replicas}, now)
    return on.allow_replicas(*cause, WEB, replicas)


def test_the_bucket_is_empty_at_first_fills_evenly_and_holds_a_minute() -> None:
    on = Brakes(PlannerRules())
    assert [allowed_replicas_at(on, FAILOVER, 90, now) for now in (0.0, 0.05, 0.1, 1.0, 3.0)] == [0, 0, 1, 10, 30]
    update_and_apply_confirmations(on, {FAILOVER: 10_000}, 3600.0, fleet=1_000_000)
    assert on.allow_replicas(*FAILOVER, WEB, 10_000) == 600
    assert on.allow_replicas(*FAILOVER, WEB, 10_000) == 600, "asking takes nothing"
    assert on.replicas_over_budget == 9_400


def test_all_limited_causes_draw_from_one_bucket_and_those_asked_by_name_from_none() -> None:
    wanted = {FAILOVER: 80, (CAUSE_DRAIN, "own-2"): 80, (CAUSE_LOST, "own-3"): 80}
    on, moved = Brakes(PlannerRules()), []
    update_and_apply_confirmations(on, {}, 0.0)
    update_and_apply_confirmations(on, wanted, 10.0)
    for cause, cluster in wanted:
        moved.append(on.allow_replicas(cause, cluster, WEB, 80))
        on.spend_budget(cause, cluster, WEB, moved[-1])
    assert moved == [80, 20, 0]
    assert on.allow_replicas(CAUSE_MIGRATE, "own-1", WEB, 5_000) == 5_000
    on.spend_budget(CAUSE_MIGRATE, "own-1", WEB, 5_000)
    assert allowed_replicas_at(on, (CAUSE_DRAIN, "own-2"), 60, 11.0) == 10
    assert on.moved == Counter({CAUSE_FAILOVER: 80, CAUSE_DRAIN: 20, CAUSE_LOST: 0, CAUSE_MIGRATE: 5_000})


def test_what_is_small_in_each_cluster_is_confirmed_when_it_is_large_in_all() -> None:
    """Seven clusters of fourteen behind one broken network: half of the fleet, 7 % in each."""
    lost = {(CAUSE_FAILOVER, f"own-{index}"): 70 for index in range(7)}
    on = Brakes(PlannerRules())
    update_and_apply_confirmations(on, {(CAUSE_FAILOVER, "own-0"): 70}, 0.0)
    update_and_apply_confirmations(on, {(CAUSE_FAILOVER, "own-0"): 70}, 30.0)
    assert on.allow_replicas(CAUSE_FAILOVER, "own-0", WEB, 70) == 70
    asked = update_and_apply_confirmations(on, lost, 40.0)
    assert {event.scope for event in asked if isinstance(event, ConfirmationAsked)} == {
        f"Failover/{cluster}" for _, cluster in lost
    }
    assert [on.allow_replicas(CAUSE_FAILOVER, cluster, WEB, 70) for _, cluster in lost] == [0] * 7
    on.apply_event(ConfirmationGiven("Failover/own-3", "ann", 1))
    update_and_apply_confirmations(on, lost, 41.0)
    assert on.allow_replicas(CAUSE_FAILOVER, "own-3", WEB, 70) == 70
    assert on.allow_replicas(CAUSE_FAILOVER, "own-4", WEB, 70) == 0


def test_what_was_confirmed_makes_nothing_else_large() -> None:
    on, wanted = Brakes(PlannerRules()), {(CAUSE_DRAIN, "own-1"): 500}
    update_and_apply_confirmations(on, wanted, 0.0)
    on.apply_event(ConfirmationGiven("Drain/own-1", "ann", 1))
    assert update_and_apply_confirmations(on, {**wanted, (CAUSE_DRAIN, "own-2"): 20}) == []
    assert on.allow_replicas(CAUSE_DRAIN, "own-2", WEB, 20) == 20
    assert not on.needs_confirmation(CAUSE_DRAIN, "own-3", 70, 1000)
    assert on.needs_confirmation(CAUSE_DRAIN, "own-3", 90, 1000), "own-2 and own-3 are over 10 % together"


def test_one_workload_in_several_clusters_keeps_to_the_budget_in_all() -> None:
    wanted = {(CAUSE_DRAIN, "own-1"): 80, (CAUSE_DRAIN, "own-2"): 80}
    on = Brakes(PlannerRules())
    for now in (0.0, 10.0):
        update_and_apply_confirmations(on, wanted, now, fleet=2000)
    for _ in range(2):
        allowed = [on.allow_replicas(CAUSE_DRAIN, cluster, WEB, 80) for cluster in ("own-1", "own-2")]
    assert allowed == [80, 20]
    assert on.allow_replicas(CAUSE_DRAIN, "own-1", ("shop", "api"), 80) == 80, "nobody spent anything"
    for cluster, count in zip(("own-1", "own-2"), allowed, strict=True):
        on.spend_budget(CAUSE_DRAIN, cluster, WEB, count)
    assert on.allow_replicas(CAUSE_DRAIN, "own-1", ("shop", "api"), 80) == 0


def test_a_budget_of_nothing_moves_nothing() -> None:
    on = Brakes(PlannerRules(moves_per_minute=0))
    assert [allowed_replicas_at(on, FAILOVER, 5, now) for now in (0.0, 3600.0)] == [0, 0]


@pytest.mark.parametrize(
    ("per_minute", "cause", "text"),
    [
        (0, CAUSE_DRAIN, "the budget: moves_per_minute is 0"),
        (0.5, CAUSE_LOST, "the budget: moves_per_minute is 0.5"),
        (0, CAUSE_POLICY, "the budget: moves_per_minute is 0"),
        (0, CAUSE_MIGRATE, ""),
        (1, CAUSE_DRAIN, ""),
    ],
)
def test_a_budget_that_never_holds_a_replica_is_named(per_minute: float, cause: str, text: str) -> None:
    """One that fills is not: it is waited for by the second."""
    assert Brakes(PlannerRules(moves_per_minute=per_minute)).why_held(cause, "own-1", WEB) == text


@given(
    st.floats(0, 5000),
    st.lists(st.tuples(st.floats(0, 90), st.sampled_from(sorted(CAUSES_CONFIRMED)), st.integers(0, 3000)), max_size=40),
)
def test_no_window_moves_more_than_a_minutes_amount_and_what_filled_within_it(
    per_minute: float, asked: list[tuple[float, str, int]]
) -> None:
    on = Brakes(PlannerRules(moves_per_minute=per_minute, confirm_over_fraction=1.0))
    now, moved = 0.0, [(0.0, 0)]
    for seconds, cause, replicas in asked:
        now += seconds
        update_and_apply_confirmations(on, {(each, "own-1"): replicas for each in CAUSES_CONFIRMED}, now, 10**9)
        count = on.allow_replicas(cause, "own-1", WEB, replicas)
        assert 0 <= count <= replicas
        on.spend_budget(cause, "own-1", WEB, count)
        moved.append((now, count))
    for begin, (since, _) in enumerate(moved):
        total = 0
        for until, count in moved[begin:]:
            total += count
            in_bucket = 0.0 if begin == 0 else per_minute  # A turn begins with an empty one.
            assert total <= in_bucket + (until - since) * per_minute / 60 + 1e-6


# ── Confirmations ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("replicas", "fleet", "asked"),
    [
        pytest.param(100, 1000, False, id="a tenth moves"),
        pytest.param(101, 1000, True, id="more than a tenth is asked"),
        pytest.param(10, 12, False, id="ten move, however small the fleet"),
        pytest.param(11, 12, True, id="eleven of twelve are asked"),
    ],
)
def test_more_than_a_tenth_and_more_than_ten_waits(replicas: int, fleet: int, asked: bool) -> None:
    on = brakes_after_events(fleet=fleet)
    events = update_and_apply_confirmations(on, {FAILOVER: replicas}, fleet=fleet)
    expected = [ConfirmationAsked("Failover/own-1", *FAILOVER, replicas, fleet, 60_000)] if asked else []
    assert events == expected
    assert on.needs_confirmation(*FAILOVER, replicas, fleet) is asked
    assert on.allow_replicas(*FAILOVER, WEB, replicas) == (0 if asked else replicas)
    assert on.held_replicas_by_kind()["confirmation"] == (replicas if asked else 0)


def test_causes_asked_by_name_are_never_asked_again() -> None:
    assert (
        update_and_apply_confirmations(
            brakes_after_events(), {(CAUSE_TAKE_BACK, "own-1"): 900, (CAUSE_MIGRATE, "own-1"): 900}
        )
        == []
    )


def test_what_was_confirmed_moves_and_only_that() -> None:
    wanted = {FAILOVER: 300, (CAUSE_FAILOVER, "own-2"): 300}
    on = brakes_after_events(wanted=wanted)
    on.apply_event(ConfirmationGiven("Failover/own-1", "ann", 1))
    assert update_and_apply_confirmations(on, wanted) == []
    assert on.allow_replicas(*FAILOVER, WEB, 300) == 300
    assert on.allow_replicas(CAUSE_FAILOVER, "own-2", WEB, 300) == 0


def test_a_cause_that_no_step_was_told_of_moves_nothing() -> None:
    assert brakes_after_events().allow_replicas(*FAILOVER, WEB, 1) == 0


def test_a_cause_that_comes_in_small_pieces_is_confirmed_like_one_that_comes_at_once() -> None:
    on, moved = brakes_after_events(), 0
    for second in range(60, 80):
        update_and_apply_confirmations(on, {FAILOVER: 20}, float(second))
        count = on.allow_replicas(*FAILOVER, WEB, 20)
        on.spend_budget(*FAILOVER, WEB, count)
        moved += count
    assert moved == 100
    assert on.asked["Failover/own-1"].replicas == 120


def test_moving_within_a_step_does_not_count_twice() -> None:
    on = brakes_after_events(wanted={FAILOVER: 90})
    update_and_apply_confirmations(on, {FAILOVER: 90})
    on.spend_budget(*FAILOVER, WEB, 45)
    assert on.allow_replicas(*FAILOVER, WEB, 45) == 45
    assert update_and_apply_confirmations(on, {FAILOVER: 45}) == []


def test_it_is_asked_again_only_when_the_number_has_grown_much() -> None:
    on = brakes_after_events(wanted={FAILOVER: 200})
    assert [len(update_and_apply_confirmations(on, {FAILOVER: count})) for count in (200, 299, 300, 301, 449, 450)] == [
        0,
        0,
        1,
        0,
        0,
        1,
    ]


def test_it_is_forgotten_once_its_cause_is_over_and_stays_over() -> None:
    on = brakes_after_events(wanted={FAILOVER: 200})
    on.apply_event(ConfirmationGiven("Failover/own-1", "ann", 1))
    assert update_and_apply_confirmations(on, {}, 100.0) == []
    assert update_and_apply_confirmations(on, {FAILOVER: 0}, 131.0) == [], (
        "it came back for a moment: the time begins anew"
    )
    assert update_and_apply_confirmations(on, {}, 132.0) == []
    assert update_and_apply_confirmations(on, {}, 161.9) == []
    assert update_and_apply_confirmations(on, {}, 162.0) == [Tombstone(brake_address("Failover/own-1"))]
    assert update_and_apply_confirmations(on, {FAILOVER: 200}, 163.0) != [], "the next time it is asked anew"


def test_a_cause_that_moved_little_and_is_over_begins_at_nothing_the_next_time() -> None:
    on = brakes_after_events(wanted={FAILOVER: 90})
    on.spend_budget(*FAILOVER, WEB, 90)
    for now in (60.0, 90.0):
        assert update_and_apply_confirmations(on, {}, now) == []
    assert update_and_apply_confirmations(on, {FAILOVER: 90}, 91.0) == []


def test_what_was_said_on_a_confirmation_survives_a_restart() -> None:
    given_before = brakes_after_events(ConfirmationGiven("Failover/own-1", "ann", 1), wanted={FAILOVER: 500})
    assert given_before.allow_replicas(*FAILOVER, WEB, 500) == 500
    asked_before = brakes_after_events(
        ConfirmationAsked("Failover/own-1", *FAILOVER, 500, 1000, 1), wanted={FAILOVER: 500}
    )
    assert asked_before.allow_replicas(*FAILOVER, WEB, 500) == 0


def test_what_is_held_back_is_told_by_what_holds_it() -> None:
    on = brakes_after_events(brake_on_scope("cluster/own-3"))
    update_and_apply_confirmations(
        on, {FAILOVER: 300, (CAUSE_LOST, "own-2"): 700, (CAUSE_DRAIN, "own-3"): 5, (CAUSE_LOST, "own-3"): 2}
    )
    on.allow_replicas(*FAILOVER, WEB, 300)
    on.allow_replicas(CAUSE_LOST, "own-2", WEB, 700)
    assert on.held_replicas_by_kind() == {"brake": 7, "confirmation": 300, "budget": 100}
    assert (on.replicas_to_move_from("own-3"), on.replicas_to_move_from()) == (7, 1007)
    update_and_apply_confirmations(on, {})
    assert on.held_replicas_by_kind() == {"brake": 0, "confirmation": 0, "budget": 0}


# ── Any log ─────────────────────────────────────────────────────────────────────────────────────────────────────

SCOPES = ("fleet", "cluster/own-1", "workload/shop/web", "Failover/own-1")
Record = BrakeEvent | Tombstone


def records_of_scope(scope: str) -> st.SearchStrategy[Record]:
    if scope == "Failover/own-1":
        asked = ConfirmationAsked(scope, *FAILOVER, 500, 1000, 1)
        return st.sampled_from((asked, ConfirmationGiven(scope, "ann", 1), Tombstone(brake_address(scope))))
    return st.sampled_from((brake_on_scope(scope), BrakeReleased(scope, "ann", 1), Tombstone(brake_address(scope))))


LOGS = st.lists(st.sampled_from(SCOPES).flatmap(records_of_scope), max_size=12)


def apply_log(on: Brakes, log: Iterable[tuple[int, Record]]) -> None:
    for offset, record in log:
        if isinstance(record, Tombstone):
            on.forget_scope(record.address.key, offset)
        else:
            on.apply_event(record, offset)


def brakes_and_confirmations(on: Brakes) -> tuple[dict[str, BrakeSet], set[str], set[str]]:
    return on.brakes, set(on.asked), set(on.given)


@given(LOGS, st.data())
def test_records_that_come_twice_or_late_change_nothing(log: list[Record], data: st.DataObject) -> None:
    once, again = Brakes(PlannerRules()), Brakes(PlannerRules())
    apply_log(once, enumerate(log))
    for offset, record in enumerate(log):
        apply_log(again, [(offset, record)])
        back = data.draw(st.integers(0, offset))
        apply_log(again, list(enumerate(log))[back : offset + 1])
    assert brakes_and_confirmations(once) == brakes_and_confirmations(again)


@given(LOGS)
def test_a_compacted_log_says_the_same(log: list[Record]) -> None:
    def scope_of_record(record: Record) -> str:
        return record.address.key if isinstance(record, Tombstone) else record.scope

    last = {scope_of_record(record): offset for offset, record in enumerate(log)}
    whole, compacted = Brakes(PlannerRules()), Brakes(PlannerRules())
    apply_log(whole, enumerate(log))
    apply_log(compacted, ((offset, log[offset]) for offset in sorted(last.values())))
    assert brakes_and_confirmations(whole) == brakes_and_confirmations(compacted)


@given(
    LOGS,
    st.sampled_from(ALL_CAUSES),
    st.sampled_from(("own-1", "own-2")),
    st.sampled_from((WEB, ("shop", "api"))),
    st.integers(1, 10**6),
)
def test_what_is_frozen_never_moves(
    log: list[Record], cause: str, cluster: str, key: tuple[str, str], replicas: int
) -> None:
    on = Brakes(PlannerRules())
    apply_log(on, enumerate(log))
    for now in (0.0, MINUTE):
        update_and_apply_confirmations(on, {(cause, cluster): replicas}, now, 10**9)
    scopes = {"fleet", f"cluster/{cluster}", f"workload/{key[0]}/{key[1]}"}
    holds = bool(scopes & set(on.brakes))
    assert on.is_frozen(cluster, key) is holds
    unconfirmed = f"{cause}/{cluster}" in on.asked
    assert (on.allow_replicas(cause, cluster, key, replicas) == 0) is (holds or unconfirmed)
