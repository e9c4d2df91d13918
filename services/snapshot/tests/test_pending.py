"""Groups of pods that cannot be scheduled: said when they change."""

from typing import Any

import pytest

from snapshot.core import pending as pendings
from snapshot.core.pending import Pending
from snapshot.core.rules import SnapshotRules
from snapshot.core.waiting_groups import WaitingGroup
from spillway.addresses import Tombstone, pending_address
from spillway.events import PodsScheduled, PodsUnschedulable
from spillway.model import Shape

WAITING = {"a/b": WaitingGroup("a/b", 2, "no room")}


@pytest.fixture
def pending() -> Pending:
    return Pending("own-1", SnapshotRules())


def take_records(
    pending: Pending, now: float, groups: dict[str, WaitingGroup] | None = None, epoch: int = 7
) -> list[Any]:
    if groups is not None:
        pending.replace_groups(groups)
    return list(pending.take_due_records(epoch, now))


def test_a_group_is_said_once(pending: Pending) -> None:
    assert take_records(pending, 0.0, WAITING) == [PodsUnschedulable("own-1", "a/b", 7, 1, "a/b", 2, "no room")]
    assert take_records(pending, 1.0, WAITING) == []
    assert pending.pod_count == 2


def test_another_number_is_said_at_once_another_reason_later(pending: Pending) -> None:
    take_records(pending, 0.0, WAITING)
    assert take_records(pending, 1.0, {"a/b": WaitingGroup("a/b", 2, "other")}) == []
    assert pending.next_due_at() == 10.0
    assert [event.reason for event in take_records(pending, 10.0)] == ["other"]
    assert [event.pods for event in take_records(pending, 11.0, {"a/b": WaitingGroup("a/b", 3, "more")})] == [3]


def test_a_group_that_no_longer_waits_is_said_and_later_forgotten(pending: Pending) -> None:
    take_records(pending, 0.0, WAITING)
    assert take_records(pending, 1.0, {}) == [PodsScheduled("own-1", "a/b", 7, 2)]
    assert take_records(pending, 2.0, {}) == []
    assert take_records(pending, 3601.0) == [Tombstone(pending_address("own-1", "a/b"))]
    assert take_records(pending, 9999.0, {}) == []
    assert pending.next_due_at() == float("inf")


def test_a_group_whose_shape_no_record_holds_is_said_without_until_none_waits(pending: Pending) -> None:
    shape = Shape("a", (("pods", 1),))
    shaped = {"a/b": WaitingGroup("a/b", 2, "no room", shape)}
    assert [event.shape for event in take_records(pending, 0.0, shaped)] == [shape]
    pending.make_record_due("a/b")
    pending.shorten_record("a/b")
    assert [(event.pods, event.shape) for event in take_records(pending, 1.0)] == [(2, None)]
    take_records(pending, 2.0, {})
    assert [event.shape for event in take_records(pending, 3.0, shaped)] == [shape]


def test_a_group_that_waits_again_is_not_forgotten(pending: Pending) -> None:
    take_records(pending, 0.0, WAITING)
    take_records(pending, 1.0, {})
    assert len(take_records(pending, 2.0, WAITING)) == 1
    assert take_records(pending, 4000.0) == []


def test_a_new_epoch_says_what_waits_again(pending: Pending) -> None:
    take_records(pending, 0.0, WAITING)
    pending.begin_epoch()
    assert take_records(pending, 1.0, epoch=9) == [PodsUnschedulable("own-1", "a/b", 9, 1, "a/b", 2, "no room")]


def test_what_nobody_knows_to_be_in_the_log_is_said_again(pending: Pending) -> None:
    take_records(pending, 0.0, WAITING)
    pending.make_record_due("a/b")
    pending.make_record_due("of/another/owner")
    assert [type(event) for event in take_records(pending, 1.0)] == [PodsUnschedulable, PodsScheduled]
    assert take_records(pending, 2.0) == []


def test_groups_that_come_and_go_leave_a_bounded_number_of_keys(
    pending: Pending, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each bare pod is a group, whose key stayed for an hour and was looked at in each turn of the loop."""
    monkeypatch.setattr(pendings, "SCHEDULED_KEPT_MAX", 2)
    take_records(pending, 0.0, {f"a/{number}": WaitingGroup("", 1, "no room") for number in range(5)})
    events = take_records(pending, 1.0, {})
    assert [event.group for event in events if isinstance(event, PodsScheduled)] == [f"a/{n}" for n in range(5)]
    assert events[5:] == [Tombstone(pending_address("own-1", f"a/{number}")) for number in range(3)]
    assert [type(event) for event in take_records(pending, 3601.0)] == [Tombstone, Tombstone]
    assert pending.next_due_at() == float("inf")
