"""How long requests with Refuse wait for binds, over all their calls (8 s until later tiers, 9.5 a call, 15 in all)."""

from dataclasses import replace

import pytest

from planner.core.knowledge.rules import PlannerRules
from planner.core.requests.patience import BindWait, UndecidedRequests, highest_priority_by_cluster
from planner.core.requests.queueing import QueuePlace

from .builders import Fleet, node_row

WEB = QueuePlace(0, ("default", "web"), "once")
REFUSE_AFTER = 3.0


def fleet_of_one() -> Fleet:
    return Fleet(own_1=[node_row("a")])


def test_a_call_goes_on_to_later_tiers_and_is_answered_before_its_time_is_over() -> None:
    patience = UndecidedRequests(PlannerRules(), 10.0, 3.0, 5, REFUSE_AFTER)
    asked = patience.begin_request(WEB, 100.0)
    assert [patience.may_use_later_tiers(asked, now) for now in (107.9, 108.0)] == [False, True]
    assert [patience.is_over(asked, now) for now in (109.4, 109.5)] == [False, True]


def test_it_waits_while_binds_come_for_15_seconds_in_all() -> None:
    patience, fleet = UndecidedRequests(PlannerRules(), 10.0, 3.0, 5, REFUSE_AFTER), fleet_of_one()
    view = fleet.state.clusters["own-1"]
    first = patience.begin_request(WEB, 100.0)
    assert [patience.put_off_request(first, now) for now in (109.4, 109.5)] == [True, False]
    again = patience.begin_request(WEB, 110.0)
    for asked in (first, again):
        view.bound_at = 99.0
        assert [patience.may_wait_for_binds(asked, fleet.state.clusters, now) for now in (101.9, 102.0)] == [
            True,
            False,
        ]
        view.bound_at = 113.5
        assert [patience.may_wait_for_binds(asked, fleet.state.clusters, now) for now in (114.9, 115.0)] == [
            True,
            False,
        ]
    assert patience.may_use_later_tiers(again, 110.0)
    assert [patience.is_over(again, now) for now in (119.4, 119.5)] == [False, True]


def test_of_requests_that_wait_for_binds_in_a_cluster_the_highest_priority_counts() -> None:
    waits = [
        BindWait(frozenset({"own-1", "own-2"}), -3),
        BindWait(frozenset({"own-1"}), 7),
        BindWait(frozenset(), 9),
        BindWait(frozenset({"own-1"}), 2),
    ]
    assert highest_priority_by_cluster(waits) == {"own-1": 7, "own-2": -3}


def test_binds_of_any_cluster_are_waited_for() -> None:
    patience, fleet = (
        UndecidedRequests(PlannerRules(), 10.0, 3.0, 5, REFUSE_AFTER),
        Fleet(own_1=[node_row("a")], own_2=[node_row("b")]),
    )
    asked = patience.begin_request(WEB, 100.0)
    fleet.state.clusters["own-2"].bound_at = 104.0
    assert [patience.may_wait_for_binds(asked, fleet.state.clusters, now) for now in (105.9, 106.0)] == [True, False]


def test_what_is_decided_or_asked_under_another_key_or_long_after_waits_anew() -> None:
    patience = UndecidedRequests(PlannerRules(), 10.0, 3.0, 5, REFUSE_AFTER)
    patience.put_off_request(patience.begin_request(WEB, 100.0), 100.0)
    assert patience.begin_request(replace(WEB, key="twice"), 101.0).first == 101.0
    assert [patience.begin_request(WEB, now).first for now in (125.0, 125.1)] == [100.0, 125.1]
    patience.note_decided(patience.begin_request(WEB, 110.0))
    assert patience.begin_request(WEB, 110.0).first == 110.0


def test_no_more_than_so_many_are_known_and_those_who_wait_longest_without_a_word_are_forgotten() -> None:
    patience = UndecidedRequests(PlannerRules(), 10.0, 3.0, 2, REFUSE_AFTER)
    places = [replace(WEB, key=str(number)) for number in range(3)]
    for place in (*places[:2], places[0], places[2]):
        patience.put_off_request(patience.begin_request(place, 100.0), 100.0)
    assert [patience.begin_request(place, 101.0).first for place in places] == [100.0, 101.0, 100.0]


def test_what_came_after_one_that_was_sent_back_is_behind_it_until_that_is_taken_up_again() -> None:
    patience = UndecidedRequests(PlannerRules(), 10.0, 3.0, 5, REFUSE_AFTER)
    first, later = patience.begin_request(WEB, 100.0), patience.begin_request(replace(WEB, key="later"), 100.0)
    patience.note_sent_back(first, 109.0)
    elsewhere = patience.begin_request(replace(WEB, about=("default", "api")), 109.0)
    assert [patience.is_behind(one, 109.0) for one in (first, later, elsewhere)] == [False, True, False]
    patience.note_sent_back(later, 109.0)
    again = patience.begin_request(later.place, 110.0)
    assert patience.is_behind(again, 110.0)
    first = patience.begin_request(first.place, 110.0)
    assert not patience.try_take_up(again, 112.9)
    assert patience.try_take_up(first, 112.9)
    assert patience.try_take_up(again, 112.9)


def test_who_does_not_come_again_is_awaited_for_three_seconds() -> None:
    patience = UndecidedRequests(PlannerRules(), 10.0, 3.0, 5, REFUSE_AFTER)
    patience.note_sent_back(patience.begin_request(WEB, 100.0), 109.0)
    later = patience.begin_request(replace(WEB, key="later"), 109.0)
    assert [patience.is_behind(later, now) for now in (111.9, 112.0)] == [True, False]


def test_of_no_more_workloads_is_known_who_was_sent_back() -> None:
    patience = UndecidedRequests(PlannerRules(), 10.0, 3.0, 2, REFUSE_AFTER)
    places = [replace(WEB, about=("default", str(number))) for number in range(3)]
    for place in places:
        patience.note_sent_back(patience.begin_request(place, 100.0), 100.0)
    later = [patience.begin_request(replace(place, key="later"), 100.0) for place in places]
    assert [patience.is_behind(one, 100.0) for one in later] == [False, True, True]


def test_a_call_that_ran_out_before_it_was_decided_keeps_its_wait_and_its_turn() -> None:
    patience = UndecidedRequests(PlannerRules(), 10.0, 3.0, 5, REFUSE_AFTER)
    first, later = patience.begin_request(WEB, 100.0), patience.begin_request(replace(WEB, key="later"), 105.0)
    patience.note_ran_out(first, 110.0)
    assert patience.is_behind(later, 111.0)
    again = patience.begin_request(WEB, 112.0)
    assert (again.first, again.turn) == (first.first, first.turn)


@pytest.mark.parametrize(
    ("seconds", "heard", "may_wait"),
    [
        pytest.param(1.0, False, True, id="a cluster has said nothing since the request came"),
        pytest.param(1.0, True, False, id="all have said something"),
        pytest.param(REFUSE_AFTER, False, False, id="its time to wait is over"),
    ],
)
def test_a_request_without_room_waits_for_clusters_for_some_time(seconds: float, heard: bool, may_wait: bool) -> None:
    patience, fleet = UndecidedRequests(PlannerRules(), 10.0, 3.0, 5, REFUSE_AFTER), fleet_of_one()
    fleet.now += 1.0
    request = patience.begin_request(WEB, fleet.now)
    fleet.now += seconds
    if heard:
        fleet.send_heartbeats()
    assert patience.may_await_clusters(request, fleet.state.clusters, fleet.now) is may_wait
