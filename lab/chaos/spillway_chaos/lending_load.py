"""Runs a load of lending: two owners lend nodes to a pool and need them back, again and again."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from sim.manifests import deployment
from spillway.api import RequestError
from spillway.api_lending import DeclareLendingRequest, RecallRequest
from spillway.clusters.api import DEPLOYMENTS, NAMESPACES, ClusterApi
from spillway.events_lending import LendingRule
from spillway.lending_marks import SUPPLY_CLASS
from spillway.model import Requirement
from spillway.rpc.client import LendingClient
from spillway_local.fleet_plan import GIB, MemberPlan
from spillway_local.member_nodes import MemberNodes, NodeTaint

from .ledger import Finding
from .lending_audit import LENDABLE, OFFLINE_NAMESPACE, OWN_NAMESPACE, LendingAudit
from .lending_ledger import LendingSeen, find_errors_at_home, find_errors_while_lent

OWNERS, POOL = ("own-1", "own-2"), "cloud-1"
NODES_LENT = 3
"""The number of lent nodes of each owner. One pod fits on each node."""
CPU = "3"
GRACE_SECONDS, COOLDOWN_SECONDS = 2, 1
ENVIRONMENT = (("SPILLWAY_DESCHEDULER_AGAIN_SECONDS", "1"),)
"""With this setting a returned node can be recalled for a need again at once; the default is ten minutes later."""
_LOOK_SECONDS = 0.1


def _owner_plan(name: str) -> MemberPlan:
    """Returns a member with nodes for the lanes of the load, and tainted nodes for lending."""
    taints = (NodeTaint(LENDABLE, "only"),)
    lent = MemberNodes(NODES_LENT, f"{name}-batch", 4_000, 16 * GIB, labels={LENDABLE: "yes"}, taints=taints)
    return MemberPlan(name, "own", (MemberNodes(8, f"{name}-node", 16_000, 64 * GIB), lent), room=0)


FLEET = (
    *(_owner_plan(name) for name in OWNERS),
    MemberPlan(POOL, "cloud", (MemberNodes(4, f"{POOL}-node", 16_000, 64 * GIB),), room=0),
)


@dataclass(slots=True)
class LendingLoad:
    """The load of lending. asks: set while new cycles may begin. cycles: the number of needs and recalls so far."""

    client: LendingClient
    api: Callable[[str], ClusterApi]
    audit: LendingAudit
    seed: str
    asks: asyncio.Event = field(default_factory=asyncio.Event)
    cycles: int = 0
    _resting: asyncio.Event = field(default_factory=asyncio.Event)

    async def declare_and_deploy(self) -> None:
        """Declares lending, and creates the offline Deployment in the pool and empty Deployments in the owners."""
        every = [{"operator": "Exists"}]
        offline = {"tolerations": every, "nodeSelector": {SUPPLY_CLASS: "dedicated"}}
        await self._create_deployment(POOL, OFFLINE_NAMESPACE, len(OWNERS) * NODES_LENT, offline)
        rule = LendingRule("batch", (Requirement(LENDABLE, "Exists", ()),), "dedicated", 100, 0, 0, 0.0)
        for owner in OWNERS:
            await self._create_deployment(
                owner, OWN_NAMESPACE, 0, {"tolerations": every, "nodeSelector": {LENDABLE: "yes"}}
            )
            request = DeclareLendingRequest(
                owner, POOL, (rule,), grace_seconds=GRACE_SECONDS, cooldown_seconds=COOLDOWN_SECONDS
            )
            await self.client.declare_lending(request)

    async def run(self) -> None:
        random = Random(f"{self.seed}/lending")
        while True:
            self._resting.set()
            await self.asks.wait()
            self._resting.clear()
            await (self._need_nodes if random.random() < 0.7 else self._recall_owner_nodes)(random)
            self.cycles += 1

    async def find_errors_after_settling(self, seconds: float) -> list[Finding]:
        """Begins no new cycle, lets owners need all their nodes and then none, and returns the errors of each state.

        seconds: the longest wait for each state to be without errors.
        """
        self.asks.clear()
        async with asyncio.timeout(seconds):
            await self._resting.wait()
        await self._scale_own_pods(dict.fromkeys(OWNERS, NODES_LENT))
        found = await self._wait_until_no_errors(seconds, find_errors_at_home)
        await self._scale_own_pods(dict.fromkeys(OWNERS, 0))
        return found + await self._wait_until_no_errors(
            seconds, lambda seen: find_errors_while_lent(seen, len(OWNERS) * NODES_LENT)
        )

    async def _need_nodes(self, random: Random) -> None:
        """Scales the owners' own pods to random numbers, waits until they run, and scales them to 0 again."""
        wanted = {owner: random.randint(0, NODES_LENT) for owner in OWNERS}
        await self._scale_own_pods(wanted)
        await self._wait_until(
            lambda seen: all(_running_own_pods(seen, owner) == count for owner, count in wanted.items())
        )
        await self._scale_own_pods(dict.fromkeys(OWNERS, 0))
        await self._wait_until(_is_all_lent)

    async def _recall_owner_nodes(self, random: Random) -> None:
        """Recalls all nodes of one owner, as an operator does, and waits until they are lent again by new loans."""
        owner = random.choice(OWNERS)
        before = self.audit.loan_by_node()
        with suppress(RequestError):  # No descheduler answers; the next cycle may do something else.
            await self.client.recall(RecallRequest(owner, reason="chaos"))
            of_owner = {node: loan for node, loan in before.items() if node[0] == owner}
            await self._wait_until(
                lambda _: all(self.audit.loan_by_node().get(node) != loan for node, loan in of_owner.items())
            )
        await self._wait_until(_is_all_lent)

    async def _wait_until(self, holds: Callable[[LendingSeen], bool]) -> None:
        """Waits until the condition holds, or until no new cycle may begin."""
        while self.asks.is_set() and not holds(self.audit.lending_seen()):
            await asyncio.sleep(_LOOK_SECONDS)

    async def _wait_until_no_errors(self, seconds: float, wrong: Callable[[LendingSeen], Any]) -> list[Finding]:
        """Waits until there is no error twice in a row. Returns the errors that remain after `seconds`."""
        loop = asyncio.get_running_loop()
        deadline, good = loop.time() + seconds, 0
        while True:
            stale = () if self.audit.is_fresh() else (Finding("lost", "a member cannot be read"),)
            found: list[Finding] = [*stale, *wrong(self.audit.lending_seen())]
            good = 0 if found else good + 1
            if good > 1 or loop.time() > deadline:
                return found
            await asyncio.sleep(_LOOK_SECONDS)

    async def _scale_own_pods(self, replicas: Mapping[str, int]) -> None:
        for owner, count in replicas.items():
            change = {"spec": {"replicas": count}}
            await self.api(owner).patch(DEPLOYMENTS, OWN_NAMESPACE, OWN_NAMESPACE, change, resource_version="")

    async def _create_deployment(self, member: str, namespace: str, replicas: int, spec: Mapping[str, Any]) -> None:
        api = self.api(member)
        await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        made = deployment(namespace, replicas, cpu=CPU, terminationGracePeriodSeconds=GRACE_SECONDS, **spec)
        made["metadata"]["namespace"] = namespace
        await api.create(DEPLOYMENTS, made)


@asynccontextmanager
async def run_lending_load(
    client: LendingClient, connect: Callable[[str], ClusterApi], audit: LendingAudit, seed: str
) -> AsyncIterator[LendingLoad]:
    """Runs the load and its audit until the block ends."""
    apis = {name: connect(name) for name in (*OWNERS, POOL)}
    load = LendingLoad(client, apis.__getitem__, audit, seed)
    tasks = [asyncio.create_task(audit.run())]
    try:
        await load.declare_and_deploy()
        tasks.append(asyncio.create_task(load.run()))
        yield load
    finally:
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
        for api in apis.values():
            await api.close()


def _running_own_pods(seen: LendingSeen, owner: str) -> int:
    return sum(pod.runs for pod in seen.own.get(owner, ()))


def _is_all_lent(seen: LendingSeen) -> bool:
    return not list(find_errors_while_lent(seen, len(OWNERS) * NODES_LENT))
