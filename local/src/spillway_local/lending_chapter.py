"""Runs the demo's chapter on lending: idle nodes become virtual nodes of a pool, run its work, and return."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from spillway.api_lending import DeclareLendingRequest, ListLendingRequest, WithdrawLendingRequest
from spillway.clusters.api import ClusterApi
from spillway.clusters.errors import AlreadyExists
from spillway.events_lending import LendingRule
from spillway.kubernetes.objects import DEPLOYMENTS, NAMESPACES, NODES, PODS
from spillway.lending_marks import LENDING, LENT_CLUSTER, POOL_TAINT, SUPPLY_CLASS
from spillway.rpc.verbs import LendingApi
from spillway_local.fleet_plan import deployment

OWNER, POOL = "own-1", "own-2"
NODES_OF_OWNER, NODES_LENT, SHARE_PERCENT = 12, 3, 25
CPU = "3"
"""The CPU of each pod. One pod fits on each of the owner's nodes, which have 4 cores."""
GRACE_SECONDS, COOLDOWN_SECONDS = 5, 60
"""The grace period and the cooldown of the lending. The cooldown outlasts the chapter, so that no node is lent twice.

A later story may lend the nodes again.
"""
Until = Callable[[str, Callable[[], Awaitable[bool]]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class LendingChapter:
    """One run of the chapter.

    api: returns the API of a member.
    until: waits for a condition, with a deadline.
    prefix: the beginning of the workloads' names.
    """

    lending: LendingApi
    api: Callable[[str], ClusterApi]
    until: Until
    say: Callable[[str], None]
    prefix: str
    namespace: str

    async def run_chapter(self) -> list[str]:
        """Runs the chapter and returns what was verified.

        Afterwards every node is back and nothing of the chapter is left.
        """
        offline, owners = f"{self.prefix}-transcode", f"{self.prefix}-owners"
        self.say(f"{OWNER} lends a quarter of its nodes to {POOL}: they idle.")
        async with self._lending_declared():
            await self.until("they are virtual nodes there", self._has_all_virtual_nodes)
            self.say(f"{offline} of {POOL} tolerates them: its own scheduler binds the pods, which run in {OWNER}.")
            on_virtual = {
                "tolerations": [{"key": POOL_TAINT, "operator": "Exists"}],
                "nodeSelector": {SUPPLY_CLASS: "dedicated"},
            }
            async with self._created_deployment(POOL, offline, NODES_LENT, **on_virtual):
                await self.until("offline pods run on them", lambda: self._is_running_on_lent_nodes(offline))
                self.say(f"{OWNER}'s own people need all of its {NODES_OF_OWNER} nodes, for {owners}.")
                began = asyncio.get_running_loop().time()
                async with self._created_deployment(OWNER, owners, NODES_OF_OWNER):
                    await self.until(
                        "each of their pods runs on a node of its own", lambda: self._has_pods_on_all_nodes(owners)
                    )
                    took = asyncio.get_running_loop().time() - began
                    self.say(f"  {NODES_LENT} nodes were back {took:.1f} s after they were asked for")
                    await self.until("no offline pod is left there", lambda: self._is_every_node_back(offline))
            await self.until("nothing of it runs any more", lambda: self._has_no_running_pods(offline, owners))
        return [f"{NODES_LENT} lent nodes ran offline work and were back for their owner"]

    @asynccontextmanager
    async def _lending_declared(self) -> AsyncIterator[None]:
        rule = LendingRule("quarter", (), "dedicated", SHARE_PERCENT, 0, 1, 0.0)
        await self.lending.declare_lending(
            DeclareLendingRequest(OWNER, POOL, (rule,), grace_seconds=GRACE_SECONDS, cooldown_seconds=COOLDOWN_SECONDS)
        )
        try:
            yield
        finally:
            await self.lending.withdraw_lending(WithdrawLendingRequest(OWNER, "the chapter is over"))
            await self.until("nothing is lent, and no virtual node is left", self._is_lending_over)

    async def _is_lending_over(self) -> bool:
        declared = (await self.lending.list_lending(ListLendingRequest())).clusters
        return not declared and not await self._lent_node_names() and not await self._virtual_nodes()

    @asynccontextmanager
    async def _created_deployment(self, cluster: str, name: str, replicas: int, **pod: Any) -> AsyncIterator[None]:
        """Creates a Deployment in the cluster itself, as its own users do: Spillway does not place it."""
        api = self.api(cluster)
        with suppress(AlreadyExists):
            await api.create(
                NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
            )
        manifest = json.loads(deployment(name, self.namespace, replicas, cpu=CPU))
        manifest["spec"]["template"]["spec"] |= {"terminationGracePeriodSeconds": 2} | pod
        made = await api.create(DEPLOYMENTS, manifest)
        try:
            yield
        finally:
            await api.delete(DEPLOYMENTS, self.namespace, name, uid=made["metadata"]["uid"])

    async def _has_all_virtual_nodes(self) -> bool:
        virtual = await self._virtual_nodes()
        return len(virtual) == NODES_LENT and not any(one["spec"].get("unschedulable") for one in virtual)

    async def _virtual_nodes(self) -> list[Mapping[str, Any]]:
        return list(await self.api(POOL).list(NODES, label_selector=LENT_CLUSTER))

    async def _lent_node_names(self) -> set[str]:
        return {
            node["metadata"]["name"]
            for node in await self.api(OWNER).list(NODES)
            if any(taint["key"] == LENDING for taint in node["spec"].get("taints") or ())
        }

    async def _is_running_on_lent_nodes(self, name: str) -> bool:
        nodes = await self._nodes_with_running_pods(OWNER, name)
        return len(nodes) == NODES_LENT and set(nodes) == await self._lent_node_names()

    async def _has_pods_on_all_nodes(self, name: str) -> bool:
        return len(set(await self._nodes_with_running_pods(OWNER, name))) == NODES_OF_OWNER

    async def _is_every_node_back(self, name: str) -> bool:
        return not await self._lent_node_names() and not await self._nodes_with_running_pods(OWNER, name)

    async def _has_no_running_pods(self, *names: str) -> bool:
        return not any(
            [await self._nodes_with_running_pods(cluster, name) for cluster in (OWNER, POOL) for name in names]
        )

    async def _nodes_with_running_pods(self, cluster: str, name: str) -> list[str]:
        """Returns the node of each running pod of the app `name` in a cluster, in any namespace."""
        return [
            pod["spec"]["nodeName"]
            for pod in await self.api(cluster).list(PODS, label_selector=f"app={name}")
            if pod.get("status", {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
        ]
