"""Whose word of a cluster settles something: the state table of docs/turns.md, whatever is read first."""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.core.background import aftermath, moves
from planner.core.knowledge.allowance import UnlimitedAllowance
from planner.core.knowledge.owners import PropagatorEpochs
from spillway.events import (
    STATE_ABSENT,
    STATE_DISOWNED,
    STATE_ENDED,
    STATE_NOT_OWNED,
    STATE_ORPHANED,
    STATE_PRESENT,
    STATE_REFUSED,
    PlacementDecided,
    TurnTaken,
    WorkloadObserved,
)
from spillway.model import Generation, Part

from .builders import Fleet, node_row
from .test_aftermath import WEB, apply_to_fleet, apply_workload

OLD, NEW = 2, 40
"""The epochs of two claims: the offsets at which they stand."""
LIVE, REMOVING, DISOWNING, ADOPTING = "live", "removing", "disowning", "adopting"
KINDS = {
    LIVE: {},
    REMOVING: {"replicas": 0, "ceiling": 0, "removing": True},
    DISOWNING: {"disowning": True},
    ADOPTING: {"adopting": True, "found_uid": "u1"},
}
GIVES_UP = {
    (LIVE, STATE_ORPHANED),
    (REMOVING, STATE_ORPHANED),
    (DISOWNING, STATE_ORPHANED),
    (REMOVING, STATE_ABSENT),
    (DISOWNING, STATE_DISOWNED),
    (ADOPTING, STATE_ABSENT),
    (ADOPTING, STATE_NOT_OWNED),
}
"""On which word of the present owner a part is listed no more."""
STATES = (
    STATE_PRESENT,
    STATE_ABSENT,
    STATE_ORPHANED,
    STATE_DISOWNED,
    STATE_NOT_OWNED,
    STATE_ENDED,
    STATE_REFUSED,
)
CLAIM = TurnTaken("propagator", "own-1", "propagator-1")


def fleet_with_part(kind: str) -> tuple[Fleet, Part]:
    """web with two replicas in own-1, its part as it is in that state of its life."""
    fleet = Fleet(own_1=[node_row("n1", cpu=64000)])
    apply_workload(fleet, 2)
    known = fleet.state.workloads[WEB].placement
    assert known is not None
    part = replace(known.parts[0], **KINDS[kind])
    apply_to_fleet(fleet, [replace(known, generation=Generation(9, 100), parts=(part,))])
    return fleet, part


def status_of_part(state: str, part: Part, epoch: int, sequence: int = 7) -> WorkloadObserved:
    return WorkloadObserved(*WEB, "own-1", epoch, sequence, part.version, state, "", 2, 2, 2, 2, 2)


def take_propagator_turn(fleet: Fleet, epoch: int) -> None:
    fleet.state.apply_event(CLAIM, fleet.now, offset=epoch)


def settle_outcome(fleet: Fleet, part: Part) -> str:
    """What becomes of the part, when all that was asked for has been read."""
    for _ in range(2):  # The first look asks for what is to be proven.
        events = aftermath.settle_workload(fleet.state, WEB, fleet.next_moment()).events
        for event in events:
            if isinstance(event, PlacementDecided):
                (found,) = event.parts or (None,)
                return "given up" if found is None else "adopted" if found != part else "as it was"
    return "as it was"


def expected_outcome(kind: str, state: str) -> str:
    if (kind, state) == (ADOPTING, STATE_PRESENT):
        return "adopted"
    return "given up" if (kind, state) in GIVES_UP else "as it was"


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_word_of_the_present_owner_counts(kind: str, state: str) -> None:
    fleet, part = fleet_with_part(kind)
    take_propagator_turn(fleet, OLD)
    apply_to_fleet(fleet, [status_of_part(state, part, OLD)])
    assert settle_outcome(fleet, part) == expected_outcome(kind, state)


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_word_of_a_turn_that_is_over_settles_nothing_whatever_is_read_first(
    kind: str, state: str, order: tuple[int, ...]
) -> None:
    """The claims and the word lie in three places of the log that no order binds."""
    fleet, part = fleet_with_part(kind)
    for index in order:
        if index < 2:
            take_propagator_turn(fleet, (OLD, NEW)[index])
        else:
            apply_to_fleet(fleet, [status_of_part(state, part, OLD)])
    assert settle_outcome(fleet, part) == "as it was"
    apply_to_fleet(fleet, [status_of_part(state, part, NEW, 1)])
    assert settle_outcome(fleet, part) == expected_outcome(kind, state), "its successor says the same, and that counts"


@pytest.mark.parametrize(("kind", "state"), sorted(GIVES_UP | {(ADOPTING, STATE_PRESENT)}))
def test_until_the_log_behind_a_word_has_been_read_it_settles_nothing(kind: str, state: str) -> None:
    """A claim that was written before it may be read after it."""
    fleet, part = fleet_with_part(kind)
    take_propagator_turn(fleet, OLD)
    moment = fleet.next_moment()
    word = status_of_part(state, part, OLD)
    apply_to_fleet(fleet, [word])
    assert aftermath.settle_workload(fleet.state, WEB, moment).events == ()
    asked = fleet.state.owners.take_statuses_to_prove()
    assert list(asked.values()) == [word]
    take_propagator_turn(fleet, NEW)  # It was in the log already, and is read by the time that the proof is there.
    fleet.state.owners.mark_proven(asked)
    assert aftermath.settle_workload(fleet.state, WEB, moment).events == ()
    assert fleet.state.owners.take_statuses_to_prove() == {}, "what is over need not be proven"


def test_what_replaces_a_proven_word_is_to_be_proven_itself() -> None:
    fleet, part = fleet_with_part(REMOVING)
    first = status_of_part(STATE_ABSENT, part, OLD)
    apply_to_fleet(fleet, [first])
    moment = fleet.next_moment()
    apply_to_fleet(fleet, [status_of_part(STATE_ABSENT, part, OLD, 8)])
    assert aftermath.settle_workload(fleet.state, WEB, moment).events == ()
    fleet.mark_log_read()
    assert aftermath.settle_workload(fleet.state, WEB, moment).events


@pytest.mark.parametrize(("claimed", "goes"), [(OLD, {"own-1": 1}), (NEW, {})])
def test_what_leaves_stays_until_the_present_owner_says_that_the_others_are_available(
    claimed: int, goes: dict[str, int]
) -> None:
    fleet, part = fleet_with_part(LIVE)
    known = fleet.state.workloads[WEB].placement
    assert known is not None
    leaving = replace(part, replicas_leaving=1)
    apply_to_fleet(fleet, [replace(known, generation=Generation(9, 200), parts=(leaving,))])
    apply_to_fleet(fleet, [status_of_part(STATE_PRESENT, part, OLD)])
    take_propagator_turn(fleet, claimed)
    fleet.send_heartbeats()
    assert (
        moves._removable_leaving_replicas(fleet.state, fleet.state.workloads[WEB], fleet.now, UnlimitedAllowance())
        == goes
    )


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=12), st.integers(0, 9))
def test_the_present_epoch_is_the_highest_that_was_read_in_whatever_order(
    read: list[tuple[bool, int]], epoch: int
) -> None:
    owners, (_, part) = PropagatorEpochs(), fleet_with_part(LIVE)
    word = status_of_part(STATE_ORPHANED, part, epoch)
    for of_another, heard in read:
        owners.note_epoch("own-2" if of_another else "own-1", heard)
    assert owners.is_of_newest_turn(word) == all(epoch >= heard for of_another, heard in read if not of_another)
