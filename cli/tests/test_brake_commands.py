"""Brakes, clusters' phases and migrations against a planner on loopback: what is asked, printed, and waited for."""

import json
from dataclasses import replace
from typing import Any

import pytest

from spillway import api
from spillway_cli import waiting

from .fake_lending import NODE

Spillway = Any


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.01)


# ── Brakes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "scope"),
    [
        pytest.param((), "fleet", id="nothing is the fleet"),
        pytest.param(("fleet",), "fleet", id="the fleet"),
        pytest.param(("cluster", "own-1"), "cluster/own-1", id="a cluster"),
        pytest.param(("workload", "shop/web"), "workload/shop/web", id="a workload"),
        pytest.param(("workload", "web"), "workload/default/web", id="of the configured namespace"),
        pytest.param(("workload", "web", "-n", "shop"), "workload/shop/web", id="of a namespace"),
        pytest.param(("cluster/own-1",), "cluster/own-1", id="a scope as it is shown"),
    ],
)
def test_freeze_and_unfreeze_name_a_scope(spillway: Spillway, arguments: tuple[str, ...], scope: str) -> None:
    frozen = spillway("freeze", *arguments, "--reason", "audit")
    assert frozen.exit_code == 0
    assert spillway.planner.asked == [api.FreezeRequest(scope, "audit")]
    assert frozen.stdout.startswith(f"{scope} is frozen by ann on 2023-11-1")
    assert frozen.stdout.endswith(": audit; 7 replicas would move\n")
    assert spillway("unfreeze", *arguments).stdout == f"{scope} is not frozen any more; it was: audit\n"
    assert spillway.planner.asked[1:] == [api.UnfreezeRequest(scope)]
    assert spillway("unfreeze", *arguments).stdout == f"{scope} is not frozen, and was not\n"


@pytest.mark.parametrize(
    "arguments", [("cluster",), ("workload",), ("fleet", "own-1"), ("node", "n"), ("clusters",)], ids=" ".join
)
def test_what_is_no_scope_is_2_and_never_asked(spillway: Spillway, arguments: tuple[str, ...]) -> None:
    result = spillway("freeze", *arguments)
    assert (result.exit_code, result.stdout, spillway.planner.asked) == (2, "", [])
    assert "expected one of fleet, cluster, workload" in result.stderr


def test_brakes_shows_what_is_on_and_what_waits(spillway: Spillway) -> None:
    nothing = "nothing is frozen\n0 replicas moved in the last minute, of 600 that the budget allows\n"
    assert spillway("brakes").stdout == nothing
    spillway.planner.moved_last_minute = 24
    assert spillway("brakes").stdout.endswith("\n24 replicas moved in the last minute, of 600 that the budget allows\n")
    spillway.planner.moved_last_minute = 0
    spillway("freeze", "cluster", "own-1")
    spillway.planner.over_budget = 30
    waits = api.Confirmation("Drain/own-2", "Drain", "own-2", 60, 100, False, "", 0)
    spillway.planner.confirmations = {waits.scope: waits}
    shown = spillway("brakes").stdout.splitlines()
    assert shown[0].startswith("cluster/own-1 is frozen by ann")
    assert shown[0].endswith(": no reason given; 7 replicas would move")
    assert shown[1:] == [
        "Drain/own-2 waits for `spillway confirm Drain/own-2`: 60 of 100 replicas would move",
        "30 replicas wait for the budget of 600 moves a minute",
    ]
    document = json.loads(spillway("brakes", "-o", "json").stdout)
    assert [brake["scope"] for brake in document["brakes"]] == ["cluster/own-1"]
    assert document["confirmations"][0]["given"] is False
    status = spillway("status").stdout
    assert "cluster/own-1 is frozen" in status
    assert "Drain/own-2 waits" in status
    assert json.loads(spillway("status", "-o", "json").stdout)["brakes"][0]["scope"] == "cluster/own-1"


def test_confirm_says_who_and_how_much_and_refuses_what_was_not_asked(spillway: Spillway) -> None:
    unknown = spillway("confirm", "Drain/own-2")
    assert (unknown.exit_code, unknown.stdout) == (2, "")
    assert "no move of this scope waits for a confirmation" in unknown.stderr
    waits = api.Confirmation("Drain/own-2", "Drain", "own-2", 60, 100, False, "", 0)
    spillway.planner.confirmations = {waits.scope: waits}
    given = spillway("confirm", "Drain/own-2")
    assert given.exit_code == 0
    assert given.stdout.startswith("Drain/own-2 is confirmed by ann")
    assert "60 of 100 replicas to move" in given.stdout


# ── Phases ──────────────────────────────────────────────────────────────────────────────────────────────────────────


NOT_HEARD_OF = "no report of it comes, but it may still run: make sure that it is off"


@pytest.fixture
def joined(spillway: Spillway) -> Spillway:
    """own-1 with 30 replicas."""
    spillway("cluster", "join", "own-1", "--credential", "c")
    spillway.planner.asked.clear()
    spillway.planner.handing_over = 30
    return spillway


@pytest.mark.parametrize(
    ("arguments", "request_", "said"),
    [
        (("cordon", "own-1"), api.SetClusterPhaseRequest("own-1", "Cordoned"), "own-1 is Cordoned"),
        (("uncordon", "own-1"), api.SetClusterPhaseRequest("own-1", "Active"), "own-1 is Active"),
        (
            ("drain", "own-1"),
            api.SetClusterPhaseRequest("own-1", "Draining"),
            "own-1 is Draining: 30 replicas go elsewhere",
        ),
        (("leave", "own-1"), api.LeaveClusterRequest("own-1", False), "own-1 is Leaving: 30 replicas go elsewhere"),
        (
            ("leave", "own-1", "--lost"),
            api.LeaveClusterRequest("own-1", True),
            f"own-1 is Lost: 30 replicas are given up; {NOT_HEARD_OF}",
        ),
    ],
    ids=["cordon", "uncordon", "drain", "leave", "lost"],
)
def test_what_a_phase_moves_is_printed(joined: Spillway, arguments: tuple[str, ...], request_: Any, said: str) -> None:
    result = joined("cluster", *arguments)
    assert (result.exit_code, result.stdout) == (0, f"{said}\n")
    assert joined.planner.asked == [request_]
    assert json.loads(joined("cluster", *arguments, "-o", "json").stdout)["changed"] is False


def test_a_phase_is_shown_where_clusters_are(joined: Spillway) -> None:
    joined("cluster", "cordon", "own-1")
    assert "Ready, Cordoned" in joined("cluster", "list").stdout
    assert "Ready, Cordoned" in joined("status").stdout


def test_nodes_are_listed_with_their_names_and_loans(joined: Spillway) -> None:
    amounts = (("cpu", 4000),), (("cpu", 1000),)
    joined.planner.nodes = (
        api.ListedNode("n1", True, False, "lent", "", *amounts, ()),
        api.ListedNode("own-2-n7", False, True, "", "own-2/n7", *amounts, ("gpu:NoSchedule",)),
    )
    result = joined("cluster", "nodes", "own-1")
    rows = [line.split() for line in result.stdout.splitlines()[1:]]
    assert rows == [
        ["n1", "Ready,", "lent", "1", "of", "4", "(25", "%)"],
        ["own-2-n7", "NotReady,", "Cordoned", "1", "of", "4", "(25", "%)", "own-2/n7", "gpu:NoSchedule"],
    ]
    assert (result.exit_code, result.stderr) == (0, "2 nodes of own-1, as heard 1.5s ago\n")
    assert [node["name"] for node in json.loads(joined("cluster", "nodes", "own-1", "-o", "json").stdout)] == [
        "n1",
        "own-2-n7",
    ]


def test_drain_waits_with_progress_until_nothing_is_there(joined: Spillway) -> None:
    result = joined("cluster", "drain", "own-1", "--wait")
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        "waiting: own-1: 20 replicas of 1 workload still there",
        "waiting: own-1: 10 replicas of 1 workload still there",
        "own-1: no replica of the fleet's workloads is left there",
    ]


def test_drain_names_the_lent_nodes_where_pods_of_others_run_on(joined: Spillway) -> None:
    joined.planner.loans = (1, 0)
    joined.lending.nodes = (NODE,)
    result = joined("cluster", "drain", "own-1", "--wait")
    assert result.exit_code == 0
    assert result.stderr.splitlines()[-1] == (
        "own-1: no replica of the fleet's workloads is left there, but 6 pods of others on 2 lent nodes: n1 (3 pods of "
        "pool), n1 (3 pods of pool); `spillway lending pause own-1` and `spillway recall own-1` bring the nodes back"
    )


def test_drain_says_that_nothing_runs_on_lent_nodes(joined: Spillway) -> None:
    joined.planner.loans = (2, 0)
    joined.lending.nodes = (replace(NODE, pods=0),)
    result = joined("cluster", "drain", "own-1", "--wait")
    nothing = "own-1: no replica of the fleet's workloads is left there"
    assert result.stderr.splitlines()[-1] == f"{nothing}; no pod runs on its 2 lent nodes"


def test_drain_says_that_nobody_knows_what_runs_on_lent_nodes(
    joined: Spillway, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined.planner.loans = (2, 0)
    monkeypatch.setattr(joined, "lending_address", "127.0.0.1:9")
    result = joined("cluster", "drain", "own-1", "--wait")
    assert result.exit_code == 0
    assert "is left there, but 2 lent nodes, and what runs on them is not known: descheduler not" in result.stderr


def test_leave_waits_until_the_cluster_is_gone(joined: Spillway) -> None:
    result = joined("cluster", "leave", "own-1", "--wait")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (0, "own-1: it has left the fleet")
    assert joined("cluster", "leave", "own-1").exit_code == 2


def test_waiting_says_what_holds_it_and_ends_with_5(joined: Spillway) -> None:
    joined.planner.handing_over = 60
    joined("freeze", "--reason", "audit")
    result = joined("cluster", "drain", "own-1", "--wait", "--timeout", "0.2")
    assert result.exit_code == 5
    first = result.stdout.strip()
    assert first.startswith("own-1 is Draining: 60 replicas go elsewhere; they wait for `spillway confirm Drain/own-1`")
    assert first.endswith("; nothing moves: fleet is frozen by ann: audit")
    held = "fleet is frozen: audit; waits for `spillway confirm Drain/own-1`"
    assert f"not done after 0.2 s: 60 replicas of 1 workload still there; {held}" in result.stderr


LEFT = (
    api.WorkloadLeft("bank", "db", 2, "Held", "a person: a StatefulSet does not move by itself"),
    api.WorkloadLeft("shop", "old", 0, "Removing", "on hold: kept by its finalizers: evil/\x1bforever"),
    api.WorkloadLeft("shop", "web", 58, "Waiting", ""),
    api.WorkloadLeft("shop", "worker", 3, "Leaving", "as many must be available elsewhere first"),
)
HELD_LINES = [
    "  bank/db, 2 replicas: Held: a person: a StatefulSet does not move by itself",
    "  shop/old, 0 replicas: Removing: on hold: kept by its finalizers: evil/\\x1bforever",
]


def test_leave_names_what_holds_the_cluster_and_again_all_that_is_left(joined: Spillway) -> None:
    joined.planner.left = LEFT
    first = joined("cluster", "leave", "own-1").stdout.splitlines()
    assert first[0].startswith("own-1 is Leaving: 30 replicas go elsewhere")
    assert first[1:] == HELD_LINES
    again = joined("cluster", "leave", "own-1").stdout.splitlines()
    assert again[0].startswith("own-1 is Leaving already")
    assert again[1:] == [
        *HELD_LINES,
        "  shop/web, 58 replicas: Waiting",
        "  shop/worker, 3 replicas: Leaving: as many must be available elsewhere first",
    ]


def test_waiting_names_the_first_workloads_that_are_left(joined: Spillway) -> None:
    joined.planner.handing_over, joined.planner.left = 60, LEFT
    result = joined("cluster", "drain", "own-1", "--wait", "--timeout", "0.2")
    assert result.exit_code == 5
    named = "still there: bank/db (Held: a person: a StatefulSet does not move by itself), shop/old (Removing: "
    assert named in result.stderr
    assert ", shop/web (Waiting) and 1 more" in result.stderr


def test_waiting_ends_with_1_when_somebody_calls_it_off(joined: Spillway) -> None:
    joined.planner.is_called_off = True
    result = joined("cluster", "drain", "own-1", "--wait")
    assert result.exit_code == 1
    assert "own-1: it is Active now, because somebody changed its phase" in result.stderr


def test_an_unknown_cluster_is_2(spillway: Spillway) -> None:
    for command in ("cordon", "uncordon", "drain", "leave"):
        result = spillway("cluster", command, "own-9")
        assert (result.exit_code, result.stdout) == (2, "")
        assert "no cluster of the fleet" in result.stderr


# ── Migrations ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_migrate_names_clusters_and_how_many(spillway: Spillway) -> None:
    spillway("apply", "web", "--image", "i", "--replicas", "20", "-n", "shop")
    arguments = ("workload", "web", "-n", "shop", "--to", "own-2")
    result = spillway("migrate", *arguments, "--from", "own-1", "--replicas", "5")
    assert result.exit_code == 0
    assert "shop/web  20 replicas: 20 placed" in result.stdout
    assert "5 leaving" in result.stdout
    assert spillway("migrate", *arguments).exit_code == 0
    first, second = spillway.planner.asked[1:]
    assert replace(first, idempotency_key="") == api.MigrateRequest("shop", "web", "own-2", "own-1", 5)
    assert replace(second, idempotency_key="") == api.MigrateRequest("shop", "web", "own-2")
    assert first.idempotency_key != second.idempotency_key


def test_migrate_waits_until_none_is_leaving(spillway: Spillway) -> None:
    spillway("apply", "web", "--image", "i", "--replicas", "20")
    result = spillway("migrate", "workload", "web", "--to", "own-2", "--replicas", "5", "--wait", "-o", "json")
    assert result.exit_code == 0
    assert result.stderr.splitlines() == ["waiting: 3 replicas to leave own-1", "waiting: 1 replica to leave own-1"]
    assert json.loads(result.stdout)["placement"]["placed"] == 20


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param(("web",), 2, id="no target"),
        pytest.param(("web", "--to", "own-2", "--replicas", "-1"), 2, id="fewer than none"),
        pytest.param(("api", "--to", "own-2"), 2, id="unknown workload"),
    ],
)
def test_a_wrong_migration_has_its_code(spillway: Spillway, arguments: tuple[str, ...], code: int) -> None:
    result = spillway("migrate", "workload", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
