"""gRPC between ScalingClient and RpcServer: every call arrives and is answered, and namespaces hold."""

import json
from dataclasses import replace
from typing import Any

import pytest

from spillway import api_scaling as scaling
from spillway.api import RequestError
from spillway.events_scaling import BacklogObserved, LoadObserved, PartitionBacklog
from spillway.model import Generation
from spillway.rpc.callers import Caller
from spillway.rpc.calls import SCALING
from spillway.rpc.client import ScalingClient
from spillway.rpc.namespaces import check_namespaces
from spillway.rpc.security import RpcSettings
from spillway.rpc.server import RpcServer

LOAD = LoadObserved("shop", "web", "rps", "", "", "own-1", "web-1", 1500, 9, 30, "me", "")
BACKLOG = BacklogObserved("shop", "web", "", "g", "t", (PartitionBacklog("t", 0, 9, 4, 1),), 9, "me", "")
POLICY = scaling.PolicyReply(
    namespace="shop",
    name="web",
    kind="HorizontalPodAutoscaler",
    policy="web-hpa",
    generation=Generation(7, 8),
    manifest="{}",
    declared_ms=5,
    changed=True,
    warnings=("one",),
    replicas_min=0,
    replicas_max=9,
    replicas=-1,
    replicas_desired=3,
    targets="cpu: 50%/80%",
    stale=True,
)
EXPLAINED = scaling.ExplainPolicyReply(
    policy=POLICY,
    decided_ms=5,
    asked=4,
    asked_by="cpu",
    metrics=(scaling.ExplainedMetric("cpu", "resource", "80%", "50%", 50_000, 80_000, 15, 4, True, "", "all"),),
    rules=(scaling.ExplainedRule("window", 4, 3, "the window"),),
    conditions=(scaling.ScaleCondition("ScalingActive", "True", "ValidMetricFound", "found"),),
    pods=(scaling.PodsInCluster("own-1", 3, 2, 1, True, 20, "silent"),),
    due_ms=6,
    due_why="a window ends",
    changed_ms=4,
    reason="so",
)
ROUND_TRIPS: dict[str, tuple[Any, Any]] = {
    "declare_policy": (scaling.DeclarePolicyRequest("{}", plan_only=True), POLICY),
    "delete_policy": (scaling.DeletePolicyRequest("shop", "web", "web-hpa", "HorizontalPodAutoscaler"), POLICY),
    "get_policy": (scaling.GetPolicyRequest("shop", policy="web-hpa"), POLICY),
    "list_policies": (scaling.ListPoliciesRequest("shop", 2, "t"), scaling.ListPoliciesReply((POLICY,), "u", True)),
    "explain_policy": (scaling.ExplainPolicyRequest("shop", "web"), EXPLAINED),
    "report": (
        scaling.ReportRequest((LOAD,), (BACKLOG,)),
        scaling.ReportReply((scaling.ReportAnswer("OK"),), (scaling.ReportAnswer("NOT_FOUND", "shop/web"),)),
    ),
}


class Answering:
    """A ScalingApi that answers from memory; replies: others than those of the round trips, by verb."""

    def __init__(self, **replies: Any) -> None:
        self.asked: list[Any] = []
        self.leader_address = ""
        self._replies = replies

    def __getattr__(self, verb: str) -> Any:
        async def answer(request: Any) -> Any:
            self.asked.append(request)
            return self._replies.get(verb, ROUND_TRIPS[verb][1])

        return answer

    def active_instance_address(self) -> str:
        return self.leader_address


@pytest.mark.parametrize("verb", SCALING.calls)
async def test_every_call_round_trips(verb: str) -> None:
    request, reply = ROUND_TRIPS[verb]
    answering = Answering()
    async with (
        RpcServer(answering, RpcSettings(port=0, stop_seconds=1.0), SCALING) as server,
        ScalingClient([server.address], timeout_seconds=5, retry_seconds=1) as client,
    ):
        assert await getattr(client, verb)(request) == reply
    assert answering.asked == [request]


async def test_what_a_standby_explains_is_asked_of_the_leader_that_it_names() -> None:
    """It says in the policy that it may be old, not beside it."""
    fresh = replace(EXPLAINED, policy=replace(POLICY, stale=False))
    standby, leader = Answering(), Answering(explain_policy=fresh)
    settings = RpcSettings(port=0, stop_seconds=1.0)
    async with RpcServer(standby, settings, SCALING) as first, RpcServer(leader, settings, SCALING) as second:
        standby.leader_address = leader.leader_address = second.address
        async with ScalingClient([first.address], timeout_seconds=5) as client:
            assert await client.explain_policy(scaling.ExplainPolicyRequest("shop", "web")) == fresh


MANIFEST = json.dumps({"kind": "ScaledObject", "metadata": {"name": "x", "namespace": "shop"}})


@pytest.mark.parametrize(
    ("verb", "request_made"),
    [
        pytest.param("declare_policy", scaling.DeclarePolicyRequest(MANIFEST), id="the manifest's"),
        pytest.param("delete_policy", scaling.DeletePolicyRequest("shop", "web"), id="the request's"),
        pytest.param("report", scaling.ReportRequest((LOAD,)), id="a load's"),
        pytest.param("report", scaling.ReportRequest((), (BACKLOG,)), id="a backlog's"),
        pytest.param("list_policies", scaling.ListPoliciesRequest(), id="all"),
    ],
)
def test_a_caller_keeps_to_its_namespaces(verb: str, request_made: object) -> None:
    with pytest.raises(RequestError) as caught:
        check_namespaces(Caller("team", namespaces=frozenset({"other"})), verb, request_made)
    assert caught.value.code == "PERMISSION_DENIED"
    if verb != "list_policies":
        check_namespaces(Caller("team", namespaces=frozenset({"shop"})), verb, request_made)
