"""What the bridges know of the log, and what they do not take: words of turns that are over."""

from dataclasses import replace

import pytest

from spillway.addresses import LENDING, LENDING_RULES
from spillway.events import PHASE_ACTIVE, PHASE_LEAVING, ClusterJoined, ClusterLeft, Event
from spillway.events_lending import LendingDeclared, LendingRule, NodeLent, NodeReturned
from spillway.model import Generation
from vk_bridge.core.log_state import LendingLogState

LOAN = Generation(7, 1)
LENT = NodeLent("own-1", "n1", 7, 1, LOAN, "pool", "own-1.n1", "all", "idle", "Lent", "", (), (), 1, 0, "")


def test_of_a_loan_the_later_word_counts_and_none_of_a_lower_epoch() -> None:
    state = LendingLogState()
    state.apply_event(LENT)
    state.apply_event(replace(LENT, epoch=6, sequence=9, loan=Generation(6, 1)))
    assert state.loan_generation("own-1", "n1") == LOAN
    state.apply_event(replace(LENT, sequence=2, loan=Generation(7, 2)))
    state.apply_event(replace(LENT, sequence=1))
    assert state.loan_generation("own-1", "n1") == Generation(7, 2)


def test_a_loan_record_is_to_be_written_again_behind_one_of_an_older_epoch() -> None:
    """Else compaction removes it, and a bridge that starts then takes a node that was returned for lent."""
    late = replace(LENT, epoch=6, sequence=9)
    state = state_after_events(RETURNED)
    assert not state.nodes_with_stale_record("own-1")
    state.apply_event(late)
    assert state.nodes_with_stale_record("own-1") == {"n1"}
    state.apply_event(replace(RETURNED, epoch=8, sequence=1))
    assert not state.nodes_with_stale_record("own-1")
    state.apply_event(late)
    state.apply_tombstone(LENDING.name, "own-1/n1")
    assert not state.nodes_with_stale_record("own-1")


# ── Until when a cluster is worked on ───────────────────────────────────────────────────────────────────────────────

JOINED = ClusterJoined("own-1", "id", "https://own-1", "own", "", "", (), ())
RULE = LendingRule("all", (), "idle", 100, 0, 30, 0.0)
DECLARED = LendingDeclared("own-1", Generation(3, 1), "pool", (RULE,), 10, 600, 0, False, False, "", "", 0)
WITHDRAWING = replace(DECLARED, generation=Generation(3, 2), withdrawing=True)
RETURNED = NodeReturned(
    "own-1", "n1", 7, 2, LOAN, "pool", "all", "idle", "Asked", 1, 2, 3, 4, 5, 6, evicted=0, forced=0,
    lost_core_seconds=0,
)  # fmt: skip


def state_after_events(*events: Event) -> LendingLogState:
    state = LendingLogState()
    for event in events:
        state.apply_event(event)
    return state


def state_after_sweep(state: LendingLogState) -> LendingLogState:
    """As a bridge does that finds nothing there."""
    state.note_swept("own-1", state.lending_change_count("own-1"))
    return state


def state_after_withdrawal(state: LendingLogState) -> LendingLogState:
    """As the descheduler says it once no node bears our mark."""
    state.apply_tombstone(LENDING_RULES.name, "own-1")
    return state


def test_a_cluster_that_has_lent_is_worked_on_until_it_was_seen_to_hold_nothing_more() -> None:
    state = state_after_withdrawal(state_after_events(JOINED, DECLARED, LENT, WITHDRAWING, RETURNED))
    assert (state.needs_sweep("own-1"), state.has_work_in_cluster("own-1")) == (True, True)
    assert not state_after_sweep(state).has_work_in_cluster("own-1")


def test_a_cluster_that_never_lent_is_not_looked_at() -> None:
    assert not state_after_withdrawal(state_after_events(JOINED, DECLARED, WITHDRAWING)).has_work_in_cluster("own-1")


def test_nothing_is_swept_that_is_lent_or_may_be() -> None:
    assert not state_after_events(JOINED, DECLARED, LENT).lends_nothing("own-1")
    assert not state_after_events(JOINED, DECLARED, LENT, RETURNED).lends_nothing("own-1"), (
        "it may lend again at any time"
    )
    assert not state_after_events(JOINED, DECLARED, LENT, WITHDRAWING).lends_nothing("own-1"), "its pods still run"
    assert not state_after_withdrawal(state_after_events(JOINED, LENT)).needs_sweep("own-1"), "a loan stands"


@pytest.mark.parametrize(
    "events",
    [
        (JOINED, DECLARED, LENT, WITHDRAWING, RETURNED),
        (replace(JOINED, phase=PHASE_LEAVING), DECLARED, LENT, RETURNED),
        (JOINED, replace(JOINED, cluster="pool", phase=PHASE_LEAVING), DECLARED, LENT, RETURNED),
    ],
    ids=["being_withdrawn", "the_owner_leaves", "the_pool_leaves"],
)
def test_what_is_to_lend_no_more_is_swept_before_its_declaration_is_gone(events: tuple[Event, ...]) -> None:
    state = state_after_events(*events)
    assert state.needs_sweep("own-1")
    assert not state_after_sweep(state).needs_sweep("own-1")
    assert state.has_work_in_cluster("own-1"), "it is declared"


@pytest.mark.parametrize(
    "events",
    [
        (replace(DECLARED, generation=Generation(3, 3)), replace(WITHDRAWING, generation=Generation(3, 4))),
        (replace(LENT, sequence=3, loan=Generation(7, 3)), replace(RETURNED, sequence=4, loan=Generation(7, 3))),
        (ClusterLeft("own-1"), JOINED),
    ],
    ids=["declared_again", "lent_again", "joined_again"],
)
def test_it_is_looked_at_anew_after_anything_that_may_have_left_something(events: tuple[Event, ...]) -> None:
    state = state_after_sweep(state_after_withdrawal(state_after_events(JOINED, DECLARED, LENT, WITHDRAWING, RETURNED)))
    for event in events:
        state.apply_event(event)
    assert state_after_withdrawal(state).needs_sweep("own-1")


def test_what_was_lent_while_it_was_looked_at_counts_as_not_seen() -> None:
    state = state_after_withdrawal(state_after_events(JOINED, DECLARED, LENT, WITHDRAWING, RETURNED))
    before = state.lending_change_count("own-1")
    state.apply_event(replace(LENT, sequence=3, loan=Generation(7, 3)))
    state.apply_event(replace(RETURNED, sequence=4, loan=Generation(7, 3)))
    state.note_swept("own-1", before)
    assert state.needs_sweep("own-1")


def test_words_that_come_again_are_no_change() -> None:
    """A bridge takes its own record as it is acknowledged, and reads it; the log tells of a cluster again and again."""
    state = state_after_sweep(state_after_withdrawal(state_after_events(JOINED, DECLARED, LENT, WITHDRAWING, RETURNED)))
    state.apply_event(RETURNED)
    state.apply_event(replace(JOINED, phase=PHASE_ACTIVE))
    state.apply_event(LENT)
    assert not state.has_work_in_cluster("own-1")
