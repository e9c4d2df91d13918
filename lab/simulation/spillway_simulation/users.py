"""The users of one seed: each asks for one workload, one request after the other, and tries again with its key."""

import asyncio
import json
from dataclasses import dataclass
from random import Random
from typing import Any

from spillway.api import (
    AdoptRequest,
    ApplyRequest,
    DeleteRequest,
    DisownRequest,
    JoinClusterRequest,
    MigrateRequest,
    RecoverFleetRequest,
    RequestError,
    ScaleRequest,
)
from spillway_local.fleet_plan import deployment
from spillway_simulation import members
from spillway_simulation.brownfield import NAMESPACE, scale_by_hand
from spillway_simulation.brownfield_script import FORMER_FLEET
from spillway_simulation.dependencies import manifest_naming_objects
from spillway_simulation.script import FLEET_MEMBERS, Ask
from spillway_simulation.world import Process, World

POLICIES: dict[str, dict[str, Any]] = {
    "spread": {"ownFirst": False},
    "refuse": {"unplaceable": "Refuse"},
    "losing": {"onClusterLoss": {"after": "10s"}},
    "limited": {"limits": [{"cluster": "own-1", "min": 1, "max": 5}]},
    "elsewhere": {"tiers": [{"name": "one", "clusters": {"names": ["own-1"]}}]},
}
PASSING = frozenset({"UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED"})
OVER_SOON = ("Deleting", "Adopting:", "Disowning:")
REPEATED = ("apply", "scale", "migrate", "delete")
"""Verbs whose answer is kept with the declaration."""
SETS_REPLICAS = ("apply", "scale")
OTHER_REPLICAS = 77
"""Nobody asks for so many."""
RECOVERS_WITHIN_SECONDS = 200.0
ADOPTS_TRIED = 8
JOINED_WITHIN_SECONDS = 300.0
"""All members, at the start, when nothing goes wrong yet."""
AS_DECLARED = -1
"""Replicas that no answer says: what runs says them while it is taken over."""


class Expected:
    """What the answers so far say that the user has: None before the first Apply and after a Delete."""

    def __init__(self) -> None:
        self.replicas = 0
        self.cpu = 0
        self.exists = False
        self.configured = ""
        self.needs: tuple[tuple[str, str], ...] = ()
        self.taken_over = False
        """By the last answer that it was: what was not yet may have been given up since."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """A request that was answered, and what the answer said."""

    key: str
    verb: str
    request: Any
    told: tuple[int, ...]


class User:
    """Owner of one workload. done: all requests were answered."""

    def __init__(self, world: World, name: str, asks: tuple[Ask, ...]) -> None:
        self._world = world
        self._asks = asks
        self._random = Random(f"{world.script.seed}/user/{name}")
        self.name = name
        self._found = tuple(
            member for found in world.script.found if found.name == name for member, _ in found.replicas
        )
        self.expected = Expected()
        self._before: Earlier | None = None
        self.done = False
        self.waits_for = ""
        self.may_be_scaled = any(one.workload == name for one in world.script.scaled)
        """Whether a policy may say how many replicas it has; what holds then is in scaling_oracle.py."""

    async def run(self) -> None:
        for number, ask in enumerate(self._asks):
            await asyncio.sleep(ask.wait)
            key = f"{self.name}-{number}"
            self.waits_for = f"{ask.verb} {key}"
            await self._carry_out_ask(ask, key)
            self.waits_for = ""
        self.done = True

    async def _carry_out_ask(self, ask: Ask, key: str) -> None:
        if ask.verb == "by-hand":
            self._scale_by_hand(ask)
            return
        if ask.verb == "recover":
            await self._recover_fleet(key)
            return
        verb, request = self._request_of_ask(ask, key)
        reply = await self._answer_or_none(verb, request, key)
        if reply is None:
            return
        self._world.oracle.note_in_trace(f"answer {key} {ask.verb} {reply.placed}+{reply.unplaced}")
        if ask.verb not in REPEATED:
            self._before = None
        elif self._world.script.repeats:
            await self._repeat_requests(Earlier(key, verb, request, _numbers_in_reply(reply)))
        expected = self.expected
        expected.taken_over = ask.verb == "adopt"
        if ask.verb == "migrate":
            return
        if ask.verb in ("delete", "disown"):
            expected.exists, expected.replicas = False, 0
            return
        if ask.verb == "adopt":
            self._note_taken_over()
            return
        if reply.placed + reply.unplaced != ask.replicas and not self.may_be_scaled:
            self._world.oracle.note_violation(
                f"{key}: {ask.replicas} asked, answered {reply.placed} and {reply.unplaced}"
            )
        expected.replicas = ask.replicas
        if ask.verb == "apply":
            expected.exists, expected.cpu, expected.needs = True, ask.cpu, ask.needs
            expected.configured = key if ask.configured else ""

    async def _repeat_requests(self, last: Earlier) -> None:
        """Of a request the same key has the same answer, also after another one; of another request it has none."""
        before, self._before = self._before, last if last.verb in SETS_REPLICAS else None
        await self._repeat_request(last)
        if len(self._world.script.members) >= FLEET_MEMBERS:
            return
        if before is not None and last.verb in SETS_REPLICAS:
            await self._repeat_request(before)
        if self._random.random() < 0.3:
            await self._use_key_for_another_request(last)

    async def _repeat_request(self, earlier: Earlier) -> None:
        """Sends a request again with its key: the answer is the same, and nothing is done a second time."""
        again = await self._answer_or_none(earlier.verb, earlier.request, earlier.key)
        self._world.oracle.seen["asked again"] += 1
        if again is None or _numbers_in_reply(again) != earlier.told:
            self._world.oracle.note_violation(f"{earlier.key}: asked again, answered {again} after {earlier.told}")

    async def _use_key_for_another_request(self, earlier: Earlier) -> None:
        request = ScaleRequest(NAMESPACE, self.name, OTHER_REPLICAS, earlier.key)
        try:
            reply = await ask_until_answered(self._world, self._random, "scale", request)
        except RequestError as error:
            if error.code != "INVALID_ARGUMENT":
                self._world.oracle.note_violation(
                    f"{earlier.key}: used for another request, and refused as {error.code}"
                )
            return
        self._world.oracle.note_violation(
            f"{earlier.key}: used for another request, and answered {_numbers_in_reply(reply)}"
        )

    async def _answer_or_none(self, verb: str, request: Any, key: str) -> Any:
        """None when it is refused; a cluster that is not heard, or differs as it rolls, may be another one soon."""
        for again in reversed(range(ADOPTS_TRIED if verb == "adopt" else 1)):
            try:
                return await ask_until_answered(self._world, self._random, verb, request)
            except RequestError as error:
                self._world.oracle.note_in_trace(f"answer {key} {verb} {error.code}")
                if not again or error.code != "FAILED_PRECONDITION":
                    return None
            await asyncio.sleep(5)
        return None

    def _note_taken_over(self) -> None:
        """Expects the workload as it was found in the clusters: only whoever adopts changes more than its replicas."""
        expected = self.expected
        expected.exists, expected.replicas, expected.configured = True, AS_DECLARED, ""
        expected.taken_over = True
        for member in self._found:
            found = self._world.clusters[member].get_object("deployments", self.name, NAMESPACE)
            expected.cpu = members.replica_cpu_millis(found) if found is not None else expected.cpu

    def _scale_by_hand(self, ask: Ask) -> None:
        member = self._random.choice(self._found)
        self._world.oracle.note_in_trace(f"by hand {self.name} in {member}: {ask.replicas}")
        self._world.oracle.hands.add((member, self.name))
        self._world.oracle.note_disturbance(member)
        scale_by_hand(self._world.clusters[member], self.name, ask.replicas)

    async def _recover_fleet(self, key: str) -> None:
        """Again and again until nothing is left to do, or its time is over: every cluster must be heard."""
        request, until = RecoverFleetRequest(FORMER_FLEET, True), self._world.loop.time() + RECOVERS_WITHIN_SECONDS
        while self._world.loop.time() < until:
            try:
                reply = await ask_until_answered(self._world, self._random, "recover_fleet", request)
            except RequestError as error:
                self._world.oracle.note_in_trace(f"answer {key} recover {error.code}")
                await asyncio.sleep(5)
                continue
            states = {one.name: one.state for one in reply.workloads}
            self._world.oracle.note_in_trace(f"answer {key} recover {states}")
            if states.get(self.name) == "Recovering":
                self._note_taken_over()
                return
            if not states:  # Taken over already, by an answer that was lost; or it is of no fleet.
                known = self._world.oracle.workloads.get((NAMESPACE, self.name))
                if known is not None:
                    self._note_taken_over()
                return
            await asyncio.sleep(5)

    def _request_of_ask(self, ask: Ask, key: str) -> tuple[str, Any]:
        if ask.verb == "scale":
            return "scale", ScaleRequest(NAMESPACE, self.name, ask.replicas, key)
        if ask.verb == "migrate":
            to = self._random.choice(self._world.script.members).name
            return "migrate", MigrateRequest(NAMESPACE, self.name, to, idempotency_key=key)
        if ask.verb == "delete":
            return "delete", DeleteRequest(NAMESPACE, self.name, key)
        if ask.verb == "adopt":
            policy = json.dumps(_policy_manifest(POLICIES[ask.policy])) if ask.policy else ""
            return "adopt", AdoptRequest(NAMESPACE, self.name, "deployment", self._found, policy, key)
        if ask.verb == "disown":
            return "disown", DisownRequest(NAMESPACE, self.name, key)
        template = deployment(self.name, NAMESPACE, ask.replicas, cpu=f"{ask.cpu}m", memory="64Mi")
        manifests = [manifest_naming_objects(template, ask.needs)]
        if ask.policy:
            manifests.append(json.dumps(_policy_manifest(POLICIES[ask.policy])))
        if ask.configured:
            manifests.append(json.dumps(_config_map_manifest(self.name, key)))
        return "apply", ApplyRequest(tuple(manifests), key)


def _numbers_in_reply(reply: Any) -> tuple[int, ...]:
    return reply.generation, reply.replicas, reply.placed, reply.unplaced


async def ask_until_answered(world: World, random: Random, verb: str, request: Any, of: str = "planner") -> Any:
    """Asks one instance after the other, with the same key, until one says yes or no. Raises RequestError."""
    while True:
        servers: list[tuple[Process, Any]] = world.living_instances_of(of)
        random.shuffle(servers)
        for process, service in servers:
            task = world.call_in_process(process, getattr(service, verb)(request))
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
                if error.code not in PASSING and not any(word in error.text for word in OVER_SOON):
                    raise
        await asyncio.sleep(random.uniform(0.1, 0.5))


async def join_all_members(world: World) -> None:
    random = Random(f"{world.script.seed}/join")
    async with asyncio.timeout(JOINED_WITHIN_SECONDS):
        for member in world.script.members:
            request = JoinClusterRequest(member.name, member.name, tier=member.tier)
            await ask_until_answered(world, random, "join_cluster", request)


def _policy_manifest(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "spillway.io/v1", "kind": "PlacementPolicy", "spec": spec}


def _config_map_manifest(name: str, said: str) -> dict[str, Any]:
    metadata = {"name": f"{name}-config", "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"said": said}}
