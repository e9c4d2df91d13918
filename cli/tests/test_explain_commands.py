"""explain: what is asked of the planner, and how the answer reads."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from spillway import api

from .test_commands import DEPLOYMENT, POLICY

SHORT_OF_CPU = api.NodeReason(12, "NodeResourcesFit", "cpu short by 500m", "cpu", 500, 500, "n7")
Write = Callable[[str, str], str]


def test_an_explanation_reads_from_the_verdict_to_what_would_change_it(spillway: Any) -> None:
    result = spillway("explain", "shop/web")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "shop/web",
        "20 of 40 replicas have no place",
        "",
        "own-1  tier own  holds 0 → 20 replicas, room for 0 to 2 more then  heard 1.2s ago",
        "  why not more: cpu",
        "    612 nodes: cpu short by 300m (e.g. n7) [NodeResourcesFit]",
        "    40 nodes: taint gpu=only:NoSchedule (e.g. g1) [TaintToleration]",
        "    9 replicas reserved, not bound yet: shop/api 6 and others",
        "",
        "Changes that would help, each one planned:",
        "  a request of 700m cpu would place all",
        "",
        "not computed: hostPID",
    ]


def test_what_binds_only_after_more_is_told_apart_from_a_shortage_now(spillway: Any) -> None:
    why = "all have a place; room for 94 more, after that the limit is cpu (12 nodes)"
    spillway.planner.explained = api.ExplainedCluster(
        "own-1", "own", False, 94, 94, 2, 2, "Enough", why, 12, (SHORT_OF_CPU,), 0, (), 1200
    )
    assert spillway("explain", "shop/web").stdout.splitlines()[3:7] == [
        "own-1  tier own  holds 2 replicas, room for 94 more  heard 1.2s ago",
        f"  why not more: {why}",
        "  what limits it after 94 more:",
        "    12 nodes: cpu short by 500m (e.g. n7) [NodeResourcesFit]",
    ]


def test_a_cluster_that_was_never_heard_of_is_said_to_be_one(spillway: Any) -> None:
    why = "no capacity heard yet"
    spillway.planner.explained = api.ExplainedCluster(
        "own-1", "own", False, 0, 0, 0, 0, "Age", why, 0, (), 0, (), -1
    )  # fmt: skip
    assert "own-1  tier own  holds 0 replicas, room for 0 more  never heard" in spillway("explain", "web").stdout


def test_a_manifest_is_sent_with_its_policy_and_replicas(spillway: Any, write: Write) -> None:
    files = write("web.yaml", DEPLOYMENT), write("policy.yaml", POLICY)
    assert spillway("explain", "-f", files[0], "--policy", files[1], "--replicas", "7", "-o", "json").exit_code == 0
    (request,) = spillway.planner.asked
    assert [json.loads(text)["kind"] for text in request.manifests] == ["Deployment", "PlacementPolicy"]
    assert (request.name, request.namespace, request.replicas) == ("", "", 7)


def test_a_node_is_shown_filter_by_filter(spillway: Any) -> None:
    result = spillway("explain", "web", "--cluster", "own-1", "--node", "n7")
    assert "own-1 n7: takes none" in result.stdout
    assert "NodeName" in result.stdout
    request = spillway.planner.asked[0]
    assert (request.namespace, request.name, request.replicas) == ("default", "web", -1)


@pytest.mark.parametrize(
    "arguments",
    [(), ("web", "--node", "n"), ("web", "--cluster", "c"), ("a/b/c",), ("/b",), ("web", "-f", "x.yaml")],
)
def test_what_is_not_clear_is_not_asked(spillway: Any, arguments: tuple[str, ...]) -> None:
    assert spillway("explain", *arguments).exit_code == 2
    assert spillway.planner.asked == []
