"""gRPC between LendingClient and RpcServer: every call arrives and is answered, and only who may do all may lend."""

from typing import Any

import pytest

from spillway import api_lending as lending
from spillway.api import RequestError
from spillway.events_lending import LendingRule
from spillway.model import Generation, Requirement
from spillway.rpc.callers import Caller
from spillway.rpc.calls import LENDING
from spillway.rpc.client import LendingClient
from spillway.rpc.namespaces import check_namespaces
from spillway.rpc.security import RpcSettings
from spillway.rpc.server import RpcServer

RULE = LendingRule("big", (Requirement("size", "In", ("big",)),), "idle", 50, 2, 600, 0.25)
CLUSTER = lending.ClusterLending(
    cluster="own-1",
    pool="pool",
    generation=Generation(7, 8),
    rules=(RULE,),
    grace_seconds=30,
    cooldown_seconds=1800,
    recalls_per_minute=0,
    paused=True,
    withdrawing=False,
    by="me",
    reason="so",
    declared_ms=5,
    nodes=-1,
    nodes_lent=2,
    nodes_recalled=1,
    cores_lent_milli=7500,
    changed=True,
    warnings=("one",),
    nodes_checking=3,
)
NODE = lending.LentNode(
    "own-1", "n1", "pool", "own-1.n1", Generation(7, 9), "big", "idle", "Recalled", "Need", (("cpu", 4000),), 3, 1, 2,
    ("own-1/shop/web",), "2 pods leave",
)  # fmt: skip
REPLY = lending.LendingReply((CLUSTER,), stale=True)
ROUND_TRIPS: dict[str, tuple[Any, Any]] = {
    "declare_lending": (lending.DeclareLendingRequest("own-1", "pool", (RULE,), 30, 60, 5, plan_only=True), REPLY),
    "withdraw_lending": (lending.WithdrawLendingRequest("own-1", "why"), REPLY),
    "list_lending": (lending.ListLendingRequest("own-1"), REPLY),
    "pause_lending": (lending.PauseLendingRequest("own-1", "why"), REPLY),
    "resume_lending": (lending.ResumeLendingRequest("own-1"), REPLY),
    "list_lent": (lending.ListLentRequest("own-1", "pool", 2, "t"), lending.ListLentReply((NODE,), "u", True)),
    "recall": (lending.RecallRequest("own-1", ("n1", "n2"), 10, "why", True), lending.RecallReply((NODE,), 1)),
    "idle_report": (
        lending.IdleReportRequest("own-1", 72, 2, "t"),
        lending.IdleReportReply(
            nodes=(
                lending.IdleNode("own-1", "n1", "big", "Forgotten", 4000, 9, 8, 7, 0, 0, -1, 3, "give it to the pool"),
            ),
            nodes_observed=9,
            requests_only=1,
            cores_milli=36000,
            cores_idle_milli=4000,
            cores_lent_milli=2000,
            from_ms=1,
            until_ms=2,
            next_page_token="u",
            stale=True,
        ),
    ),
}


class Answering:
    """A LendingApi that answers from memory."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def __getattr__(self, verb: str) -> Any:
        async def answer(request: Any) -> Any:
            self.asked.append(request)
            return ROUND_TRIPS[verb][1]

        return answer

    def active_instance_address(self) -> str:
        return ""


@pytest.mark.parametrize("verb", LENDING.calls)
async def test_every_call_round_trips(verb: str) -> None:
    request, reply = ROUND_TRIPS[verb]
    answering = Answering()
    async with (
        RpcServer(answering, RpcSettings(port=0, stop_seconds=1.0), LENDING) as server,
        LendingClient([server.address], timeout_seconds=5, retry_seconds=1) as client,
    ):
        assert await getattr(client, verb)(request) == reply
    assert answering.asked == [request]


@pytest.mark.parametrize("verb", LENDING.calls)
def test_a_caller_of_some_namespaces_may_lend_nothing(verb: str) -> None:
    """Nodes belong to no namespace."""
    with pytest.raises(RequestError, match="all namespaces"):
        check_namespaces(Caller("team", namespaces=frozenset({"shop"})), verb, ROUND_TRIPS[verb][0])
    check_namespaces(Caller("operator"), verb, ROUND_TRIPS[verb][0])
