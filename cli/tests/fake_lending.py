"""A descheduler that answers from memory, and what it says."""

from dataclasses import replace
from typing import Any

from spillway import api_lending as lending
from spillway.api import RequestError
from spillway.events_lending import LendingRule
from spillway.model import Generation, Requirement

NODE = lending.LentNode(
    "own-1", "n1", "pool", "own-1.n1", Generation(7, 9), "big", "idle", "Recalled", "Need", (("cpu", 4000),), 3, 1, 2,
    ("own-1/shop/web",), "2 pods leave",
)  # fmt: skip
NODES = (Requirement("disk", "In", ("nvme",)), Requirement("gpu", "DoesNotExist", ()))
DECLARED = lending.ClusterLending(
    "own-1", "pool", Generation(7, 1),
    (LendingRule("big", NODES, "idle", 50, 2, 60, 1.5),),
    30, 1800, 6, True, False, "ann", "sale", 1, 8, 3, 1, 12_000, False, ("frozen: nothing new is lent",), 2,
)  # fmt: skip
IDLE = lending.IdleNode("own-1", "n2", "big", "Forgotten", 8000, 9, 8, 0, 0, 0, -1, 0, "give it back")


class FakeLending:
    """Answers with one node a page; notes what was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.is_active = True
        self.nodes: tuple[lending.LentNode, ...] = (NODE,)
        self.lent_in_turn: list[int] | None = None
        """What it says of a cluster that withdraws, one answer after the other; then the cluster lends no more."""

    def active_instance_address(self) -> str:
        return "me"

    async def list_lent(self, request: lending.ListLentRequest) -> lending.ListLentReply:
        self.asked.append(request)
        return lending.ListLentReply(self.nodes, "" if request.page_token else "more", stale=True)

    async def recall(self, request: lending.RecallRequest) -> lending.RecallReply:
        self.asked.append(request)
        if "n9" in request.nodes:
            raise RequestError("NOT_FOUND", "nodes: not lent by own-1: n9")
        return lending.RecallReply((NODE,), 1)

    async def declare_lending(self, request: lending.DeclareLendingRequest) -> lending.LendingReply:
        self.asked.append(request)
        if request.cluster == "own-9":
            raise RequestError("NOT_FOUND", "cluster own-9: no cluster of this name has joined")
        return self._lending_reply(
            cluster=request.cluster, pool=request.pool, rules=request.rules, changed=True, warnings=()
        )

    async def list_lending(self, request: lending.ListLendingRequest) -> lending.LendingReply:
        if self.lent_in_turn is None:
            return self._lending_reply()
        if not self.lent_in_turn:
            raise RequestError("NOT_FOUND", f"cluster {request.cluster}: no lending is declared for this cluster")
        lent = self.lent_in_turn.pop(0)
        return self._lending_reply(withdrawing=True, nodes_lent=lent, nodes_recalled=0, nodes_checking=0)

    async def pause_lending(self, request: lending.PauseLendingRequest) -> lending.LendingReply:
        self.asked.append(request)
        return self._lending_reply()

    async def resume_lending(self, request: lending.ResumeLendingRequest) -> lending.LendingReply:
        self.asked.append(request)
        return self._lending_reply(changed=True, paused=False)

    async def withdraw_lending(self, request: lending.WithdrawLendingRequest) -> lending.LendingReply:
        self.asked.append(request)
        return self._lending_reply(changed=True, withdrawing=True)

    def _lending_reply(self, **fields: Any) -> lending.LendingReply:
        return lending.LendingReply((replace(DECLARED, **fields),))

    async def idle_report(self, request: lending.IdleReportRequest) -> lending.IdleReportReply:
        self.asked.append(request)
        return lending.IdleReportReply(
            (IDLE,), 2, 1, 12_000, 7_000, 500, 1, 1 + 72 * 3_600_000, "", core_seconds_lent=129_600
        )
