"""Migrate: replicas move to a named cluster, all or nothing, and go only once the others are available."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.core.requests import decisions
from spillway.api import DeleteRequest, MigrateRequest, PlacementReply, RequestError
from spillway.events import PHASE_ACTIVE, PHASE_CORDONED, PHASE_DRAINING, BrakeSet

from .test_moves import WEB, Members


@pytest.fixture
def members() -> Members:
    """Six replicas run in own-1, four in cloud-1; own-2 has room for five, and nothing."""
    members = Members(own_1=6, cloud_1=6, own_2=5)
    members.set_phase("own-2", PHASE_CORDONED)
    members.apply_workload(10)
    members.run_until_settled()
    members.set_phase("own-2", PHASE_ACTIVE)
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (6, 0, 0), "cloud-1": (4, 0, 0)}
    members.decided.clear()
    return members


def migrate_replicas(
    members: Members, to: str = "own-2", from_: str = "", replicas: int = 0, key: str = ""
) -> PlacementReply:
    request = MigrateRequest("default", "web", to, from_, replicas, key)
    decided = decisions.decide_migrate(members.planner_state, request, members.fleet.next_moment())
    members.apply_events(decided.events)
    return decided.reply


def assert_migration_refused(members: Members, code: str, text: str, **request: Any) -> None:
    before = members.counts_by_cluster()
    with pytest.raises(RequestError) as caught:
        migrate_replicas(members, **request)
    assert caught.value.code == code
    assert text in caught.value.text
    assert members.counts_by_cluster() == before


def test_what_runs_leaves_only_once_those_that_replace_it_are_available(members: Members) -> None:
    migrate_replicas(members, from_="cloud-1")
    assert members.counts_by_cluster() == {"own-1": (6, 0, 0), "cloud-1": (0, 0, 4), "own-2": (4, 0, 0)}
    members.ready["own-2"] = 3
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (6, 0, 0), "cloud-1": (0, 0, 1), "own-2": (4, 0, 0)}
    del members.ready["own-2"]
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (6, 0, 0), "own-2": (4, 0, 0)}
    assert members.bound["cloud-1"] == 0


def test_the_decision_says_what_was_where_and_why(members: Members) -> None:
    migrate_replicas(members, from_="own-1", replicas=2)
    (record,) = members.decided
    assert record.cause == "Migrate"
    assert {entry.cluster: (entry.before, entry.after) for entry in record.inputs if entry.tier != "node-groups"} == {
        "own-1": (6, 4),
        "own-2": (0, 2),
        "cloud-1": (4, 4),
    }


@pytest.mark.parametrize(
    ("from_", "replicas", "left"),
    [
        pytest.param("own-1", 2, {"own-1": 4, "cloud-1": 4, "own-2": 2}, id="so many of one cluster"),
        pytest.param("cloud-1", 0, {"own-1": 6, "own-2": 4}, id="all of one cluster"),
        pytest.param("", 5, {"own-1": 5, "own-2": 5}, id="of any, the last tier first"),
        pytest.param("", 3, {"own-1": 6, "cloud-1": 1, "own-2": 3}, id="of the last tier alone"),
    ],
)
def test_which_replicas_move(members: Members, from_: str, replicas: int, left: dict[str, int]) -> None:
    migrate_replicas(members, from_=from_, replicas=replicas)
    members.run_until_settled()
    assert {cluster: kept for cluster, (kept, _, _) in members.counts_by_cluster().items()} == left


def test_nothing_that_follows_takes_them_back(members: Members) -> None:
    migrate_replicas(members, from_="own-1", replicas=3)
    members.run_until_settled()
    after = members.counts_by_cluster()
    members.apply_workload(10)
    members.pass_time(600)
    members.run_until_settled()
    assert members.counts_by_cluster() == after


def test_those_that_still_leave_are_kept_without_room_for_more(members: Members) -> None:
    migrate_replicas(members, from_="own-1", replicas=5)
    members.ready["own-2"] = 0
    members.run_until_settled()
    assert members.counts_by_cluster()["own-1"] == (1, 0, 5)
    migrate_replicas(members, to="own-1", from_="own-2")
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (6, 0, 0), "cloud-1": (4, 0, 0)}


def test_replicas_that_wait_do_not_get_the_room_that_migrates() -> None:
    members = Members(own_1=6, own_2=5)
    members.set_phase("own-2", PHASE_CORDONED)
    members.apply_workload(9)
    members.run_until_settled()
    members.set_phase("own-2", PHASE_ACTIVE)
    migrate_replicas(members, replicas=4)
    assert members.counts_by_cluster() == {"own-1": (2, 0, 4), "own-2": (5, 0, 0)}
    assert members.planner_state.workloads[WEB].unplaced == 2
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (4, 0, 0), "own-2": (5, 0, 0)}


def test_asking_again_for_all_changes_nothing_once_they_are_there(members: Members) -> None:
    migrate_replicas(members, from_="cloud-1")
    members.run_until_settled()
    members.decided.clear()
    reply = migrate_replicas(members, from_="cloud-1")
    assert {part.cluster: part.replicas for part in reply.parts} == {"own-1": 6, "own-2": 4}
    assert members.decided == []


def test_the_same_key_moves_once(members: Members) -> None:
    first = migrate_replicas(members, from_="own-1", replicas=2, key="k")
    assert migrate_replicas(members, from_="own-1", replicas=2, key="k") == replace(first, inputs=())
    assert members.counts_by_cluster()["own-2"] == (2, 0, 0)
    assert_migration_refused(members, "INVALID_ARGUMENT", "a new key", from_="own-1", replicas=3, key="k")


# ── Refused ─────────────────────────────────────────────────────────────────────────────────────────────────────


def freezing_of_scope(scope: str) -> Callable[[Members], None]:
    return lambda members: members.planner_state.apply_event(BrakeSet(scope, "audit", "ann", 1), 0.0)


def cordon_own_2(members: Members) -> None:
    members.set_phase("own-2", PHASE_CORDONED)


def drain_own_2(members: Members) -> None:
    members.set_phase("own-2", PHASE_DRAINING)


def aging_of_cluster(cluster: str) -> Callable[[Members], None]:
    def let_report_grow_old(members: Members) -> None:
        members.fleet.now += 40
        members.fleet.send_heartbeats(*(name for name in members.cores if name != cluster))

    return let_report_grow_old


def delete_web(members: Members) -> None:
    request = DeleteRequest("default", "web")
    members.apply_events(decisions.decide_delete(members.planner_state, request, members.fleet.next_moment()).events)


def limiting_of_cluster(**bounds: Any) -> Callable[[Members], None]:
    return lambda members: members.apply_workload(10, limits=[{"cluster": bounds.pop("cluster"), **bounds}])


def change_nothing(_: Members) -> None:
    pass


REFUSED: dict[str, tuple[Callable[[Members], None], dict[str, Any], str, str]] = {
    "frozen fleet": (freezing_of_scope("fleet"), {}, "FAILED_PRECONDITION", "fleet is frozen by ann: audit"),
    "frozen workload": (
        freezing_of_scope("workload/default/web"),
        {},
        "FAILED_PRECONDITION",
        "workload/default/web is frozen",
    ),
    "frozen where it goes": (freezing_of_scope("cluster/own-2"), {}, "FAILED_PRECONDITION", "cluster/own-2 is frozen"),
    "frozen where it is": (
        freezing_of_scope("cluster/own-1"),
        {"from_": "own-1", "replicas": 1},
        "FAILED_PRECONDITION",
        "cluster/own-1 is frozen",
    ),
    "cordoned": (
        cordon_own_2,
        {"replicas": 1},
        "FAILED_PRECONDITION",
        "'own-2' is Cordoned: expected an active cluster",
    ),
    "draining": (drain_own_2, {"replicas": 1}, "FAILED_PRECONDITION", "'own-2' is Draining"),
    "not fresh": (
        aging_of_cluster("own-2"),
        {"replicas": 1},
        "FAILED_PRECONDITION",
        "cluster 'own-2': capacity is 40 s old",
    ),
    "source not fresh": (
        aging_of_cluster("own-1"),
        {"from_": "own-1"},
        "FAILED_PRECONDITION",
        "cluster 'own-1': capacity is",
    ),
    "no room": (
        change_nothing,
        {"from_": "own-1"},
        "FAILED_PRECONDITION",
        "workload default/web: only 5 of 6 replicas certainly fit in 'own-2' (",
    ),
    "no tier": (
        lambda members: members.apply_workload(10, tiers=[{"name": "t", "clusters": {"names": ["own-1", "cloud-1"]}}]),
        {"replicas": 1},
        "FAILED_PRECONDITION",
        "'own-2': no tier of its policy has this cluster",
    ),
    "too many there": (
        limiting_of_cluster(cluster="own-2", max=2),
        {"replicas": 3},
        "FAILED_PRECONDITION",
        "own-2 would have 3 replicas: its policy says at most 2",
    ),
    "too few here": (
        limiting_of_cluster(cluster="own-1", min=5),
        {"from_": "own-1", "replicas": 2},
        "FAILED_PRECONDITION",
        "own-1 would have 4 replicas: its policy says at least 5",
    ),
    "unknown target": (
        change_nothing,
        {"to": "own-9"},
        "NOT_FOUND",
        "to_cluster: 'own-9': no cluster has this name; the fleet has cloud-1",
    ),
    "unknown source": (
        change_nothing,
        {"from_": "own-9"},
        "NOT_FOUND",
        "from_cluster: 'own-9': no cluster has this name",
    ),
    "to itself": (
        change_nothing,
        {"from_": "own-2"},
        "INVALID_ARGUMENT",
        "from_cluster: 'own-2': expected a cluster other than to_cluster",
    ),
    "more than there are": (
        change_nothing,
        {"from_": "cloud-1", "replicas": 5},
        "INVALID_ARGUMENT",
        "replicas: 5: expected at most 4 (cloud-1 4)",
    ),
    "fewer than none": (change_nothing, {"replicas": -1}, "INVALID_ARGUMENT", "replicas: -1"),
    "being deleted": (delete_web, {}, "FAILED_PRECONDITION", "Deleting"),
}


@pytest.mark.parametrize(("make", "request_", "code", "text"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_and_moves_nothing(
    members: Members, make: Callable[[Members], None], request_: dict[str, Any], code: str, text: str
) -> None:
    make(members)
    assert_migration_refused(members, code, text, **request_)


def test_an_unknown_workload_is_not_found(members: Members) -> None:
    with pytest.raises(RequestError, match="workload default/api: not declared"):
        decisions.decide_migrate(members.planner_state, MigrateRequest("", "api", "own-2"), members.fleet.next_moment())


# ── Any migrations ──────────────────────────────────────────────────────────────────────────────────────────────

CLUSTERS = ("own-1", "cloud-1", "own-2")
MOVES = st.tuples(st.sampled_from(CLUSTERS), st.sampled_from(("", *CLUSTERS)), st.integers(0, 8), st.integers(0, 6))


@given(st.lists(MOVES, max_size=8))
def test_no_migration_loses_doubles_or_overfills(moves: list[tuple[str, str, int, int]]) -> None:
    members = Members(own_1=6, cloud_1=6, own_2=5)
    members.apply_workload(10)
    members.run_until_settled()
    for to, from_, replicas, ready in moves:
        members.ready = {"own-2": ready}
        before = members.counts_by_cluster()
        try:
            migrate_replicas(members, to, from_, replicas)
        except RequestError:
            assert members.counts_by_cluster() == before
        members.carry_out_parts()
        members.look_once()
        assert sum(kept for kept, _, _ in members.counts_by_cluster().values()) == 10
        for cluster, cores in members.cores.items():
            assert sum(members.counts_by_cluster().get(cluster, (0, 0, 0))) <= cores
    members.ready = {}
    members.run_until_settled()
    assert sum(kept for kept, _, _ in members.counts_by_cluster().values()) == 10
    assert members.planner_state.workloads[WEB].unplaced == 0
    assert all(leaving == 0 for _, _, leaving in members.counts_by_cluster().values())
