"""Asks all the time, as a careful client does: one idempotency key a request, tried until there is an answer."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any

from spillway.api import ApplyRequest, DeleteRequest, PlacementReply, RequestError, ScaleRequest
from spillway.rpc import PlannerClient
from spillway_local.fleet_plan import deployment

from .audit import NAMESPACE
from .ledger import Ledger

LANES = 6
REPLICAS_MAX = 10
CPU, MEMORY = "1500m", "512Mi"
ANSWER_SECONDS = 30.0
_AGAIN = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "CANCELLED"})
_AGAIN_SECONDS = 0.5


@dataclass(slots=True)
class Load:
    """Lanes of one workload at a time each. story: begins every name. asks: whether lanes begin anything new."""

    client: PlannerClient
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
                tasks.create_task(self._lane(number, Random(f"{self.seed}/{self.story}/{number}")))

    async def idle(self, seconds: float) -> bool:
        """Whether every request has its answer within so many seconds; nothing new is begun."""
        self.asks.clear()
        deadline = asyncio.get_running_loop().time() + seconds
        while self.busy and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.02)
        return not self.busy

    async def _lane(self, number: int, random: Random) -> None:
        life = 0
        while True:
            life += 1
            name = f"{self.story}-{number}-{life}"
            await self._turn(number, random, partial(self._apply, name, random))
            for _ in range(random.randint(1, 6)):
                await self._turn(number, random, partial(self._scale, name, random))
            await self._turn(number, random, partial(self._delete, name, random))

    async def _turn(self, number: int, random: Random, ask: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(random.uniform(*self.think_seconds))
        await self.asks.wait()
        self.busy.add(number)
        await ask()
        self.busy.discard(number)

    async def _apply(self, name: str, random: Random) -> None:
        replicas = random.randint(1, REPLICAS_MAX)
        request = ApplyRequest((deployment(name, NAMESPACE, replicas, CPU, MEMORY),), _key(random))
        self.ledger.asking(name, replicas)
        if await self._answer(self.client.apply, request, name, "apply", random):
            self.ledger.acknowledged(name, replicas)

    async def _scale(self, name: str, random: Random) -> None:
        replicas = random.randint(1, REPLICAS_MAX)
        request = ScaleRequest(NAMESPACE, name, replicas, _key(random))
        self.ledger.asking(name, replicas)
        if await self._answer(self.client.scale, request, name, "scale", random):
            self.ledger.acknowledged(name, replicas)

    async def _delete(self, name: str, random: Random) -> None:
        request = DeleteRequest(NAMESPACE, name, _key(random))
        self.ledger.asking_delete(name)
        if await self._answer(self.client.delete, request, name, "delete", random):
            self.ledger.acknowledged_delete(name)

    async def _answer(
        self, call: Callable[[Any], Awaitable[PlacementReply]], request: Any, name: str, verb: str, random: Random
    ) -> bool:
        """Whether it was acknowledged. Sometimes it is said once more, as when an answer was lost on its way."""
        reply = await self._until_answered(call, request, name, verb)
        if reply is not None and random.random() < 0.1:
            again = await self._until_answered(call, request, name, verb)
            if again is not None and (again.generation, again.replicas) != (reply.generation, reply.replicas):
                self.ledger.contradicted(name, f"{verb} with one key was answered {reply} and {again}")
        return reply is not None

    async def _until_answered(
        self, call: Callable[[Any], Awaitable[PlacementReply]], request: Any, name: str, verb: str
    ) -> PlacementReply | None:
        while True:
            try:
                reply = await call(request)
            except RequestError as error:
                if error.code not in _AGAIN:
                    self.ledger.refused(name, verb, f"{error.code}: {error.text}")
                    return None
                self.tried_again += 1
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                self.answered += 1
                return reply


def _key(random: Random) -> str:
    return f"{random.getrandbits(96):024x}"


@dataclass(slots=True)
class Pulse:
    """A client that asks five times a second for the same again, and notes when it was answered."""

    client: PlannerClient
    name: str
    every_seconds: float = 0.2
    answers: list[float] = field(default_factory=list)

    async def run(self) -> None:
        """Each call is a task of its own, so that a silent planner holds up no other call."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                tasks.create_task(self._ask())
                await asyncio.sleep(self.every_seconds)

    async def _ask(self) -> None:
        try:
            await self.client.scale(ScaleRequest(NAMESPACE, self.name, 1))
        except RequestError:
            return
        self.answers.append(asyncio.get_running_loop().time())

    def longest_gap(self, since: float, until: float) -> float:
        """Seconds between two answers, less those between two calls."""
        marks = [since, *sorted(mark for mark in self.answers if since <= mark <= until), until]
        gap = max(later - earlier for earlier, later in pairwise(marks))
        self.answers = [mark for mark in self.answers if mark > until]
        return max(0.0, gap - self.every_seconds)
