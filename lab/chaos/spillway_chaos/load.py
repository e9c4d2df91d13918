"""Sends requests all the time, as a careful client: each has an idempotency key and is repeated until an answer."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any

from spillway.api import ApplyRequest, DeleteRequest, PlacementReply, RequestError, ScaleRequest
from spillway.api_scaling import DeclarePolicyRequest, DeletePolicyRequest, ReportReply, ReportRequest
from spillway.events_scaling import LoadObserved
from spillway.rpc.client import PlannerClient, ScalingClient
from spillway_local.fleet_plan import deployment

from .audit import NAMESPACE
from .ledger import Ledger

LANES = 6
SCALED_LANES = 2
REPLICAS_MAX = 10
CPU, MEMORY = "1500m", "512Mi"
METRIC, LOAD_OF_A_REPLICA = "load", 10
ANSWER_SECONDS = 30.0
_AGAIN = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "CANCELLED"})
_AGAIN_SECONDS = 0.5


@dataclass(slots=True)
class Load:
    """Runs lanes with one workload at a time each. In some lanes a scale policy sets the size from a reported load.

    story: the prefix of every name. asks: set while lanes may begin new requests. busy: lanes without an answer yet.
    """

    client: PlannerClient
    scaling: ScalingClient
    ledger: Ledger
    seed: str
    story: str
    think_seconds: tuple[float, float] = (0.05, 0.5)
    asks: asyncio.Event = field(default_factory=asyncio.Event)
    busy: set[int] = field(default_factory=set)
    answered: int = 0
    tried_again: int = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(LANES):
                tasks.create_task(self._run_lane(number, Random(f"{self.seed}/{self.story}/{number}")))
            for number in range(LANES, LANES + SCALED_LANES):
                tasks.create_task(self._run_scaled_lane(number, Random(f"{self.seed}/{self.story}/{number}")))

    async def wait_until_idle(self, seconds: float) -> bool:
        """Begins no new requests. Returns whether every request is answered within `seconds`."""
        self.asks.clear()
        deadline = asyncio.get_running_loop().time() + seconds
        while self.busy and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.02)
        return not self.busy

    async def _run_lane(self, number: int, random: Random) -> None:
        life = 0
        while True:
            life += 1
            name = f"{self.story}-{number}-{life}"
            await self._ask_after_pause(number, random, partial(self._apply_workload, name, random))
            for _ in range(random.randint(1, 6)):
                await self._ask_after_pause(number, random, partial(self._scale_workload, name, random))
            await self._ask_after_pause(number, random, partial(self._delete_workload, name, random))

    async def _run_scaled_lane(self, number: int, random: Random) -> None:
        """Runs a lane with a scale policy. Deletes the policy last, so that hpa decides on the last report before."""
        life = 0
        while True:
            life += 1
            name = f"{self.story}-{number}-{life}"
            declare, delete = DeclarePolicyRequest(_policy_manifest(name)), DeletePolicyRequest(NAMESPACE, name)
            await self._ask_after_pause(number, random, partial(self._apply_workload, name, random))
            await self._ask_after_pause(
                number, random, partial(self._send_policy_request, self.scaling.declare_policy, declare, name)
            )
            for _ in range(random.randint(2, 8)):
                await self._ask_after_pause(number, random, partial(self._report_load, name, random))
            await self._ask_after_pause(number, random, partial(self._delete_workload, name, random))
            await self._ask_after_pause(
                number, random, partial(self._send_policy_request, self.scaling.delete_policy, delete, name)
            )

    async def _ask_after_pause(self, number: int, random: Random, ask: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(random.uniform(*self.think_seconds))
        await self.asks.wait()
        self.busy.add(number)
        await ask()
        self.busy.discard(number)

    async def _apply_workload(self, name: str, random: Random) -> None:
        replicas = random.randint(1, REPLICAS_MAX)
        request = ApplyRequest((deployment(name, NAMESPACE, replicas, CPU, MEMORY),), _random_idempotency_key(random))
        self.ledger.note_request(name, replicas)
        if await self._ask_with_repeats(self.client.apply, request, name, "apply", random):
            self.ledger.note_acknowledged(name, replicas)

    async def _scale_workload(self, name: str, random: Random) -> None:
        replicas = random.randint(1, REPLICAS_MAX)
        request = ScaleRequest(NAMESPACE, name, replicas, _random_idempotency_key(random))
        self.ledger.note_request(name, replicas)
        if await self._ask_with_repeats(self.client.scale, request, name, "scale", random):
            self.ledger.note_acknowledged(name, replicas)

    async def _send_policy_request(self, call: Callable[[Any], Awaitable[Any]], request: Any, name: str) -> None:
        """Sends a request about a policy. A repeated delete may find no policy, and that is fine."""
        while True:
            try:
                await call(request)
            except RequestError as error:
                if error.code not in _AGAIN:
                    if error.code != "NOT_FOUND":
                        self.ledger.note_refusal(name, "policy of", f"{error.code}: {error.text}")
                    return
                self.tried_again += 1
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                self.answered += 1
                return

    async def _report_load(self, name: str, random: Random) -> None:
        """Reports a load for a number of replicas. Once acknowledged it is in the log, and must become the size.

        Each attempt has its own time, as with a new measurement: a report from before a long outage is refused.
        """
        replicas = random.randint(1, REPLICAS_MAX)
        self.ledger.note_request(name, replicas)
        deadline = asyncio.get_running_loop().time() + ANSWER_SECONDS
        while True:
            try:
                reply: ReportReply = await self.scaling.report(ReportRequest((_observed_load(name, replicas),)))
                code, text = reply.loads[0].code, reply.loads[0].text
            except RequestError as error:
                code, text = error.code, error.text
            if code == "OK":
                self.answered += 1
                self.ledger.note_acknowledged(name, replicas)
                return
            late = asyncio.get_running_loop().time() > deadline
            if code not in _AGAIN and (code != "NOT_FOUND" or late):  # A standby may read the policy later.
                self.ledger.note_refusal(name, "report of", f"{code}: {text}")
                return
            self.tried_again += 1
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _delete_workload(self, name: str, random: Random) -> None:
        request = DeleteRequest(NAMESPACE, name, _random_idempotency_key(random))
        self.ledger.note_delete_request(name)
        if await self._ask_with_repeats(self.client.delete, request, name, "delete", random):
            self.ledger.note_delete_acknowledged(name)

    async def _ask_with_repeats(
        self, call: Callable[[Any], Awaitable[PlacementReply]], request: Any, name: str, verb: str, random: Random
    ) -> bool:
        """Returns whether the request was acknowledged. Sometimes sends it again, as after a lost answer."""
        reply = await self._ask_until_answered(call, request, name, verb)
        if reply is not None and random.random() < 0.1:
            again = await self._ask_until_answered(call, request, name, verb)
            if again is not None and (again.generation, again.replicas) != (reply.generation, reply.replicas):
                self.ledger.note_contradiction(name, f"{verb} with one key was answered {reply} and {again}")
        return reply is not None

    async def _ask_until_answered(
        self, call: Callable[[Any], Awaitable[PlacementReply]], request: Any, name: str, verb: str
    ) -> PlacementReply | None:
        while True:
            try:
                reply = await call(request)
            except RequestError as error:
                if error.code not in _AGAIN:
                    self.ledger.note_refusal(name, verb, f"{error.code}: {error.text}")
                    return None
                self.tried_again += 1
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                self.answered += 1
                return reply


def _policy_manifest(name: str) -> str:
    """Returns a policy that sets as many replicas as the load at once: no window, no tolerance, no rate."""
    wanted = {"type": "AverageValue", "averageValue": str(LOAD_OF_A_REPLICA)}
    at_once = {
        "stabilizationWindowSeconds": 0,
        "tolerance": "0",
        "policies": [{"type": "Pods", "value": REPLICAS_MAX, "periodSeconds": 1}],
    }
    return json.dumps(
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "minReplicas": 1,
                "maxReplicas": REPLICAS_MAX,
                "metrics": [{"type": "External", "external": {"metric": {"name": METRIC}, "target": wanted}}],
                "behavior": {"scaleUp": at_once, "scaleDown": at_once},
            },
        }
    )


def _observed_load(name: str, replicas: int) -> LoadObserved:
    at_ms, value_milli = time.time_ns() // 1_000_000, replicas * LOAD_OF_A_REPLICA * 1000
    return LoadObserved(NAMESPACE, name, METRIC, "", "", "", "", value_milli, at_ms, 0, "chaos", "")


def _random_idempotency_key(random: Random) -> str:
    return f"{random.getrandbits(96):024x}"


@dataclass(slots=True)
class Pulse:
    """A client that sends the same request five times a second and notes the times of the answers."""

    client: PlannerClient
    name: str
    every_seconds: float = 0.2
    answers: list[float] = field(default_factory=list)

    async def run(self) -> None:
        """Sends calls until cancelled. Each call is a task of its own, so that a silent planner delays no other
        call."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                tasks.create_task(self._send_call())
                await asyncio.sleep(self.every_seconds)

    async def _send_call(self) -> None:
        try:
            await self.client.scale(ScaleRequest(NAMESPACE, self.name, 1))
        except RequestError:
            return
        self.answers.append(asyncio.get_running_loop().time())

    def longest_gap_seconds(self, since: float, until: float) -> float:
        """Returns the longest time between two answers, less the time between two calls, in seconds."""
        marks = [since, *sorted(mark for mark in self.answers if since <= mark <= until), until]
        gap = max(later - earlier for earlier, later in pairwise(marks))
        self.answers = [mark for mark in self.answers if mark > until]
        return max(0.0, gap - self.every_seconds)
