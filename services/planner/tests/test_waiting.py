"""The list of who waits: nobody is left out of a gain, whatever was tried in between."""

from itertools import islice, pairwise

from hypothesis import given
from hypothesis import strategies as st

from planner.core.feasibility.limits import NO_LIMIT
from planner.core.feasibility.room import Room
from planner.core.knowledge.round_time import TimeShare
from planner.core.knowledge.waiting import Rooms, WaitingList
from spillway.model import Shape

SHAPE = Shape("shop", (("cpu", 1000), ("pods", 1)))
FIRST, SECOND = ("shop", "first"), ("shop", "second")


def rooms_of_size(certain: int) -> Rooms:
    return (Room(certain, certain, NO_LIMIT, when_empty=True),)


def waiting_list_of(*keys: tuple[str, str]) -> WaitingList:
    waiting = WaitingList()
    for key in keys:
        waiting.put_workload(key, SHAPE)
    waiting.mark_changed_clusters("own-1")
    return waiting


def test_room_that_another_takes_and_gives_back_between_two_looks_is_a_gain() -> None:
    """Seed 197: the first takes all, the second finds none; when it is back at the next look, the second is due."""
    waiting = waiting_list_of(FIRST, SECOND)
    waiting.look_at_changed_clusters(lambda _cluster, _shape: rooms_of_size(4), 99)
    assert list(waiting.due_workloads(9)) == [FIRST, SECOND]
    waiting.note_tried(FIRST, lambda _cluster, _shape: rooms_of_size(4))
    waiting.mark_changed_clusters("own-1")
    waiting.note_tried(SECOND, lambda _cluster, _shape: rooms_of_size(0))
    assert list(waiting.due_workloads(9)) == []
    waiting.mark_changed_clusters("own-1")
    waiting.look_at_changed_clusters(lambda _cluster, _shape: rooms_of_size(4), 99)
    assert SECOND in list(waiting.due_workloads(9))


def test_a_gain_that_one_try_sees_first_is_not_hidden_from_the_others() -> None:
    waiting = waiting_list_of(FIRST, SECOND)
    waiting.look_at_changed_clusters(lambda _cluster, _shape: rooms_of_size(0), 99)
    for key in (FIRST, SECOND):
        waiting.remove_from_due(key)
    waiting.mark_changed_clusters("own-1")
    waiting.note_tried(FIRST, lambda _cluster, _shape: rooms_of_size(2))
    waiting.look_at_changed_clusters(lambda _cluster, _shape: rooms_of_size(2), 99)
    assert list(waiting.due_workloads(9)) == [SECOND]


def test_a_higher_priority_is_due_first_then_who_has_waited_longest() -> None:
    waiting = waiting_list_of(FIRST, SECOND)
    third = ("shop", "third")
    waiting.put_workload(third, SHAPE, priority=5)
    waiting.look_at_changed_clusters(lambda _cluster, _shape: rooms_of_size(4), 99)
    assert list(waiting.due_workloads(9)) == [third, FIRST, SECOND]
    waiting.put_workload(SECOND, SHAPE, priority=9)
    assert list(waiting.due_workloads(2)) == [SECOND, third]


def test_a_namespace_that_no_room_helps_delays_another_by_one_turn() -> None:
    """Workloads that wait for their own policy's limits are due at each gain, thousands of them, longest due first."""
    waiting = waiting_list_of(*(("greedy", str(number)) for number in range(200)), FIRST, SECOND, ("office", "first"))
    waiting.look_at_changed_clusters(lambda _cluster, _shape: rooms_of_size(4), 999)
    assert list(waiting.due_workloads(5)) == [("greedy", "0"), FIRST, ("office", "first"), ("greedy", "1"), SECOND]
    for key in (FIRST, SECOND):
        waiting.remove_from_due(key)
    assert list(waiting.due_workloads(3)) == [("office", "first"), ("greedy", "0"), ("greedy", "1")], (
        "its turn was the longest ago"
    )
    for key in [key for key in waiting if key[0] == "greedy"]:
        waiting.drop_workload(key)
    assert list(waiting.due_workloads(9)) == [("office", "first")]


due_keys = st.tuples(st.sampled_from(("shop", "office", "bank", "mill")), st.integers(0, 30).map(str))


@given(st.dictionaries(due_keys, st.integers(0, 1), max_size=40), st.integers(1, 6), st.integers(1, 6))
def test_each_namespace_of_the_highest_priority_has_its_turn(
    priorities: dict[tuple[str, str], int], most: int, tried_each_time: int
) -> None:
    """With n namespaces, each workload that is the longest due of its own is tried within n tries: also when the time
    of a round is over before all that may be tried were."""
    waiting = WaitingList()
    for key, priority in priorities.items():
        waiting.put_workload(key, SHAPE, priority)
    waiting.mark_changed_clusters("own-1")
    waiting.look_at_changed_clusters(lambda _cluster, _shape: rooms_of_size(4), 99)
    tried = list[tuple[str, str]]()
    while due := list(islice(waiting.due_workloads(most), tried_each_time)):
        for key in due:
            tried.append(key)
            waiting.remove_from_due(key)
    assert sorted(tried) == sorted(priorities)
    assert [priorities[key] for key in tried] == sorted(priorities.values(), reverse=True)
    for priority in (0, 1):
        of_it = [key for key in tried if priorities[key] == priority]
        for namespace in {key[0] for key in of_it}:
            own = [number for number, key in enumerate(of_it) if key[0] == namespace]
            most_between = len({key[0] for key in of_it})
            assert own[0] < most_between
            assert all(later - earlier <= most_between for earlier, later in pairwise(own))
            assert [of_it[number] for number in own] == [
                key for key in priorities if key[0] == namespace and priorities[key] == priority
            ]


def test_who_is_held_back_is_asked_about_only_until_enough_are_found() -> None:
    """It was asked about all that were due, and each answer took 12 ms."""
    waiting = waiting_list_of(*(("shop", str(number)) for number in range(100)))
    waiting.look_at_changed_clusters(lambda _cluster, _shape: rooms_of_size(4), 99)
    asked = list[tuple[str, str]]()

    def is_held_back(key: tuple[str, str]) -> bool:
        asked.append(key)
        return int(key[1]) % 2 == 0

    assert list(waiting.due_workloads(2, None, is_held_back)) == [("shop", "1"), ("shop", "3")]
    assert len(asked) == 4
    assert len(list(waiting.due_workloads(99, None, is_held_back))) == 50, "all of them stay due"


def test_when_the_time_is_over_nobody_else_is_asked_about() -> None:
    waiting = waiting_list_of(("bank", "web"), ("bank", "api"), ("mill", "web"), ("shop", "web"))
    waiting.look_at_changed_clusters(lambda _cluster, _shape: rooms_of_size(4), 99)
    asked = list[tuple[str, str]]()

    def is_held_back(key: tuple[str, str]) -> bool:
        asked.append(key)
        return True

    assert list(waiting.due_workloads(9, None, is_held_back, TimeShare(lambda: 1.0, 1.0))) == []
    assert asked == [("bank", "web")]


def test_when_a_brake_goes_all_are_due_for_whom_there_is_room() -> None:
    """Seed 850930: a frozen cluster took none, and its room did not grow when it was released."""
    waiting = waiting_list_of(FIRST)
    waiting.put_workload(SECOND, Shape("shop", (("cpu", 9000), ("pods", 1))))
    waiting.look_at_changed_clusters(lambda _cluster, shape: rooms_of_size(4 if shape == SHAPE else 0), 99)
    for key in (FIRST, SECOND):
        waiting.remove_from_due(key)
    waiting.retry_hopeful()
    assert list(waiting.due_workloads(9)) == [FIRST]


def test_a_look_is_bounded_and_the_next_one_begins_where_it_ended() -> None:
    """It ends with a whole cluster; one that was touched again meanwhile comes after those that wait for their look."""
    waiting, looked_at = WaitingList(), list[str]()
    waiting.put_workload(FIRST, SHAPE)
    waiting.put_workload(SECOND, Shape("shop", (("cpu", 500), ("pods", 1))))
    for cluster in ("own-1", "own-2", "own-3"):
        waiting.mark_changed_clusters(cluster)

    def look_at_changed() -> list[str]:
        looked_at.clear()
        waiting.look_at_changed_clusters(lambda cluster, _shape: looked_at.append(cluster) or rooms_of_size(1), 3)
        return looked_at

    assert look_at_changed() == ["own-1", "own-1", "own-2", "own-2"]
    waiting.mark_changed_clusters("own-1")
    assert look_at_changed() == ["own-3", "own-3", "own-1", "own-1"]
    assert look_at_changed() == []


@given(st.lists(st.tuples(st.sampled_from(("look", "first", "second")), st.integers(0, 3)), max_size=12))
def test_who_was_tried_on_less_than_there_is_becomes_due(steps: list[tuple[str, int]]) -> None:
    """Whatever happens in whatever order: after a look, each one was tried on at least this room, or is due."""
    waiting = waiting_list_of(FIRST, SECOND)
    tried_on = {FIRST: 0, SECOND: 0}
    for what, certain in steps:
        waiting.mark_changed_clusters("own-1")
        if what == "look":
            waiting.look_at_changed_clusters(lambda _cluster, _shape, certain=certain: rooms_of_size(certain), 99)
        else:
            key = FIRST if what == "first" else SECOND
            waiting.note_tried(key, lambda _cluster, _shape, certain=certain: rooms_of_size(certain))
            tried_on[key] = certain
    waiting.mark_changed_clusters("own-1")
    waiting.look_at_changed_clusters(lambda _cluster, _shape: rooms_of_size(2), 99)
    due = list(waiting.due_workloads(9))
    assert [key for key, certain in tried_on.items() if certain < 2 and key not in due] == []
