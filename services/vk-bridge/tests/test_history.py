"""Each step of a loan is told with the time at which it was first seen, and the work that was lost once."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.amounts import INT64_MAX, INT64_MIN
from spillway.dead_letters import outgoing_record
from spillway.events_lending import CAUSE_NEED, CAUSE_NODE_GONE, CAUSE_TAINT_REMOVED, LentPod, NodeLent
from spillway.lending_marks import CHECKING, LENT, RECALLED
from spillway.model import Generation
from vk_bridge.core.node.history import LoanHistory, LoanTerms, is_worth_publishing
from vk_bridge.core.node.loan import OWNED, Observation, OwnerNode, PoolPod, RealPod, VirtualNode

LOAN = Generation(7, 1)
TERMS = LoanTerms("own-1", "n1", "pool", "own-1.n1", "idle", "idle")
NODE = OwnerNode("n", "1", LENT, LOAN, marked=True)
GONE_HOME = replace(NODE, state=OWNED, loan=None, marked=False)
RECALLED_NODE = replace(NODE, state=RECALLED, cause=CAUSE_NEED)
OPEN = VirtualNode("v", "1", LOAN, open=True)
CLOSED = replace(OPEN, open=False)
PODS = {"pool_pods": (PoolPod("p"),), "real_pods": (RealPod("r", "p"),)}
POD = LentPod("shop", "p", "p", "ReplicaSet/shop/x", (("cpu", 1500),), 0, 0, started_ms=10_000)

WAY = [
    (100, Observation(0, replace(NODE, state=CHECKING), CLOSED)),
    (200, Observation(0, NODE, CLOSED)),
    (210, Observation(0, NODE, OPEN, **PODS)),
    (300, Observation(0, RECALLED_NODE, OPEN, **PODS)),
    (310, Observation(0, RECALLED_NODE, CLOSED, **PODS)),
    (320, Observation(0, RECALLED_NODE, None, pool_read=False)),
    (400, Observation(0, RECALLED_NODE, CLOSED)),
    (410, Observation(0, RECALLED_NODE, None)),
    (500, Observation(0, GONE_HOME, None)),
]


def lent_record(history: LoanHistory, sequence: int = 1) -> NodeLent:
    found = history.lent_record_to_publish(TERMS, Generation(7, sequence), (("cpu", 3000),), (POD,), "")
    assert found is not None
    return found


def test_each_step_has_the_time_at_which_it_was_first_seen() -> None:
    history = LoanHistory()
    for at_ms, observation in WAY:
        for again in (at_ms, at_ms + 5):
            history.note_observation("n1", observation, again)
    found = history.returned_record_to_publish(TERMS, Generation(7, 9), LOAN, 500)
    assert found.cause == CAUSE_NEED
    times = found.lent_ms, found.recalled_ms, found.closed_ms, found.emptied_ms, found.deleted_ms, found.returned_ms
    assert times == (200, 300, 310, 400, 410, 500)


def test_lost_work_is_cores_times_run_time_and_counts_once() -> None:
    history = LoanHistory()
    history.note_observation("n1", WAY[1][1], 200)
    for at_ms in (70_000, 90_000):
        history.note_eviction("n1", POD, at_ms)
    history.note_eviction("n1", replace(POD, uid="q", started_ms=0), 70_000)
    history.note_forced_deletion("n1", "r")
    history.note_forced_deletion("n1", "r")
    found = history.returned_record_to_publish(TERMS, Generation(7, 9), LOAN, 80_000)
    assert (found.evicted, found.forced, found.lost_core_seconds) == (2, 1, 90)


def test_another_instance_goes_on_with_what_the_log_says() -> None:
    first = LoanHistory()
    for at_ms, observation in WAY[:4]:
        first.note_observation("n1", observation, at_ms)
    second = LoanHistory()
    second.recover_loan(lent_record(first))
    for at_ms, observation in WAY[4:]:
        second.note_observation("n1", observation, at_ms + 1)
    found = second.returned_record_to_publish(TERMS, Generation(8, 1), LOAN, 501)
    assert (found.lent_ms, found.recalled_ms, found.closed_ms, found.cause) == (200, 300, 311, CAUSE_NEED)


@pytest.mark.parametrize(
    ("observation", "cause"),
    [(Observation(0, None, OPEN), CAUSE_NODE_GONE), (Observation(0, GONE_HOME, OPEN), CAUSE_TAINT_REMOVED)],
    ids=["node gone", "taint removed"],
)
def test_an_end_that_nobody_marked_has_its_cause(observation: Observation, cause: str) -> None:
    history = LoanHistory()
    history.note_observation("n1", WAY[2][1], 200)
    history.note_observation("n1", observation, 300)
    assert history.returned_record_to_publish(TERMS, Generation(7, 9), LOAN, 400).cause == cause


def test_what_cannot_be_read_ends_nothing() -> None:
    history = LoanHistory()
    history.note_observation("n1", WAY[2][1], 200)
    history.note_observation("n1", Observation(0, None, None, owner_read=False, pool_read=False), 300)
    assert lent_record(history).recalled_ms == 0


def test_a_loan_that_was_never_seen_is_told_with_its_end_alone() -> None:
    found = LoanHistory().returned_record_to_publish(TERMS, Generation(7, 9), LOAN, 400)
    assert (found.loan, found.lent_ms, found.returned_ms) == (LOAN, 0, 400)
    assert LoanHistory().lent_record_to_publish(TERMS, Generation(7, 9), (), (), "") is None


def test_a_new_loan_knows_nothing_of_the_last_one() -> None:
    history = LoanHistory()
    for at_ms, observation in WAY:
        history.note_observation("n1", observation, at_ms)
    history.note_observation("n1", Observation(0, replace(NODE, loan=Generation(7, 2)), OPEN), 900)
    assert (lent_record(history).loan, lent_record(history).lent_ms, lent_record(history).recalled_ms) == (
        Generation(7, 2),
        900,
        0,
    )
    history.forget_loan("n1")
    assert history.lent_record_to_publish(TERMS, Generation(7, 9), (), (), "") is None


def test_what_the_log_says_already_is_not_said_again() -> None:
    history = LoanHistory()
    history.note_observation("n1", WAY[2][1], 200)
    assert is_worth_publishing(None, lent_record(history))
    assert not is_worth_publishing(lent_record(history, 1), lent_record(history, 2))
    history.note_observation("n1", WAY[3][1], 300)
    before = lent_record(history)
    assert not is_worth_publishing(before, lent_record(history, 3))
    assert is_worth_publishing(replace(before, pods=()), lent_record(history, 3))


ANY = st.integers(INT64_MIN, INT64_MAX)


@given(st.lists(st.tuples(ANY, ANY), max_size=4))
def test_every_return_can_be_written_whatever_amounts_and_times_its_pods_told(pods: list[tuple[int, int]]) -> None:
    history = LoanHistory()
    history.note_observation("n1", WAY[1][1], 200)
    for number, (cpu, began) in enumerate(pods):
        told = replace(POD, uid=str(number), requests=(("cpu", cpu),), started_ms=began)
        history.note_eviction("n1", told, 1_700_000_000_000)
    found = history.returned_record_to_publish(TERMS, Generation(7, 9), LOAN, 500)
    assert found.lost_core_seconds >= 0, "it is counted, and a counter never falls"
    outgoing_record(found)


def test_lost_work_beyond_64_bits_is_told_as_the_most_that_they_hold() -> None:
    history = LoanHistory()
    history.note_observation("n1", WAY[1][1], 200)
    history.note_eviction("n1", replace(POD, requests=(("cpu", INT64_MAX),), started_ms=1), 1_700_000_000_000)
    assert history.returned_record_to_publish(TERMS, Generation(7, 9), LOAN, 500).lost_core_seconds == INT64_MAX
