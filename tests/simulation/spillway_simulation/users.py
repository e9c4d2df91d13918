"""The users of one seed: each asks for one workload, one request after the other, and tries again with its key."""

import asyncio
import json
from random import Random
from typing import Any

from spillway.api import ApplyRequest, DeleteRequest, JoinClusterRequest, MigrateRequest, RequestError, ScaleRequest
from spillway_local.fleet_plan import deployment
from spillway_simulation.script import Ask
from spillway_simulation.world import Process, World

NAMESPACE = "shop"
POLICIES: dict[str, dict[str, Any]] = {
    "spread": {"ownFirst": False},
    "refuse": {"unplaceable": "Refuse"},
    "losing": {"onClusterLoss": {"after": "10s"}},
    "limited": {"limits": [{"cluster": "own-1", "min": 1, "max": 5}]},
}
PASSING = frozenset({"UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED"})


class Expected:
    """What the answers so far say that the user has: None before the first Apply and after a Delete."""

    def __init__(self) -> None:
        self.replicas = 0
        self.cpu = 0
        self.exists = False
        self.configured = ""


class User:
    """Owner of one workload. done: all requests were answered."""

    def __init__(self, world: World, name: str, asks: tuple[Ask, ...]) -> None:
        self._world = world
        self._asks = asks
        self._random = Random(f"{world.script.seed}/user/{name}")
        self.name = name
        self.expected = Expected()
        self.done = False
        self.waits_for = ""
        self.may_be_scaled = any(one.workload == name for one in world.script.scaled)
        """Whether a policy may say how many replicas it has; what holds then is in scaling_oracle.py."""

    async def run(self) -> None:
        for number, ask in enumerate(self._asks):
            await asyncio.sleep(ask.wait)
            key = f"{self.name}-{number}"
            self.waits_for = f"{ask.verb} {key}"
            await self._ask(ask, key)
            self.waits_for = ""
        self.done = True

    async def _ask(self, ask: Ask, key: str) -> None:
        verb, request = self._request(ask, key)
        try:
            reply = await answered(self._world, self._random, verb, request)
        except RequestError as error:
            self._world.oracle.note(f"answer {key} {ask.verb} {error.code}")
            return
        self._world.oracle.note(f"answer {key} {ask.verb} {reply.placed}+{reply.unplaced}")
        expected = self.expected
        if ask.verb == "migrate":
            return
        if ask.verb == "delete":
            expected.exists, expected.replicas = False, 0
            return
        if reply.placed + reply.unplaced != ask.replicas and not self.may_be_scaled:
            self._world.oracle.violated(f"{key}: {ask.replicas} asked, answered {reply.placed} and {reply.unplaced}")
        expected.replicas = ask.replicas
        if ask.verb == "apply":
            expected.exists, expected.cpu = True, ask.cpu
            expected.configured = key if ask.configured else ""

    def _request(self, ask: Ask, key: str) -> tuple[str, Any]:
        if ask.verb == "scale":
            return "scale", ScaleRequest(NAMESPACE, self.name, ask.replicas, key)
        if ask.verb == "migrate":
            to = self._random.choice(self._world.script.members).name
            return "migrate", MigrateRequest(NAMESPACE, self.name, to, idempotency_key=key)
        if ask.verb == "delete":
            return "delete", DeleteRequest(NAMESPACE, self.name, key)
        manifests = [deployment(self.name, NAMESPACE, ask.replicas, cpu=f"{ask.cpu}m", memory="64Mi")]
        if ask.policy:
            manifests.append(json.dumps(_policy(POLICIES[ask.policy])))
        if ask.configured:
            manifests.append(json.dumps(_config_map(self.name, key)))
        return "apply", ApplyRequest(tuple(manifests), key)


async def answered(world: World, random: Random, verb: str, request: Any, of_hpa: bool = False) -> Any:
    """Asks one planner (or hpa) after the other, with the same key, until one says yes or no. Raises RequestError."""
    while True:
        servers: list[tuple[Process, Any]] = [*(world.hpas() if of_hpa else world.planners())]
        random.shuffle(servers)
        for process, service in servers:
            task = world.call(process, getattr(service, verb)(request))
            await asyncio.wait({task}, timeout=random.uniform(2, 6))
            if not task.done():
                if random.random() < 0.5:
                    task.cancel()  # The server hears that its caller went away; else it does not.
                continue
            try:
                return task.result()
            except asyncio.CancelledError:
                continue
            except RequestError as error:
                if error.code not in PASSING and "Deleting" not in error.text:
                    raise
        await asyncio.sleep(random.uniform(0.1, 0.5))


async def join_all(world: World) -> None:
    random = Random(f"{world.script.seed}/join")
    for member in world.script.members:
        await answered(world, random, "join_cluster", JoinClusterRequest(member.name, member.name, tier=member.tier))


def _policy(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "spillway.io/v1", "kind": "PlacementPolicy", "spec": spec}


def _config_map(name: str, said: str) -> dict[str, Any]:
    metadata = {"name": f"{name}-config", "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"said": said}}
