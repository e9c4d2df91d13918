"""The verbs that ask clusters first: adopt, and recover of a fleet. Ask, wait for the answers, decide."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from planner.core import adopting
from planner.core.placing import Moment
from planner.core.state import PlannerState
from planner.questions import Inquiry, Questions
from spillway import api
from spillway.api import RequestError
from spillway.events import AdoptionAsked, Event, Tombstone

Decide = Callable[[PlannerState, Moment], tuple[tuple[Event | Tombstone, ...], Any]]


class Ask(Protocol):
    """Has something decided and written by the active planner. RequestError UNAVAILABLE when this is none."""

    async def __call__(self, verb: str, decide: Decide) -> Any: ...


class Adoptions:
    def __init__(self, questions: Questions, ask: Ask, find_seconds: float) -> None:
        self._questions = questions
        self._ask = ask
        self._find_seconds = find_seconds

    async def adopt(self, request: api.AdoptRequest) -> api.PlacementReply:
        await self._following()
        with self._questions.asking() as asking:

            def ask(state: PlannerState, moment: Moment) -> tuple[tuple[Event, ...], Inquiry | api.PlacementReply]:
                asked = adopting.ask(state, request, moment)
                return ((asked,), asking.open(asked)) if isinstance(asked, AdoptionAsked) else ((), asked)

            inquiry = await self._ask("adopt", ask)
            if isinstance(inquiry, api.PlacementReply):
                return inquiry
            await self._answered(inquiry)
            found = inquiry.by_cluster()

        def decide(state: PlannerState, moment: Moment) -> tuple[tuple[Event, ...], api.PlacementReply]:
            decided = adopting.decide(state, request, found, moment)
            return decided.events, decided.reply

        reply: api.PlacementReply = await self._ask("adopt", decide)
        return reply

    async def _following(self) -> None:
        """A planner that has just begun to live opens its feed first: an answer before that would be missed."""
        try:
            async with asyncio.timeout(self._find_seconds):
                await self._questions.following.wait()
        except TimeoutError:
            text = "the log's answers cannot be read yet: retry with the same idempotency key"
            raise RequestError("UNAVAILABLE", text) from None

    async def _answered(self, inquiry: Inquiry) -> None:
        try:
            async with asyncio.timeout(self._find_seconds):
                await inquiry.complete.wait()
        except TimeoutError:
            silent = ", ".join(inquiry.missing())
            text = f"no answer from {silent} within {self._find_seconds:g} s: retry with the same idempotency key"
            raise RequestError("UNAVAILABLE", text) from None
