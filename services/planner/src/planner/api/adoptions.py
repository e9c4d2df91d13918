"""Serves Adopt and RecoverFleet. Both first ask clusters which objects run there, and decide on the answers."""

import asyncio
from collections.abc import Callable

from planner.api.adoption_inquiries import AdoptionInquiry, AdoptionQuestions
from planner.api.answer_call import AnswerCall
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.requests import adopting, recovering
from spillway import api
from spillway.api import RequestError
from spillway.events import AdoptionAsked, Event
from spillway.texts import first_names_text


class Adoptions:
    """Serves Adopt and RecoverFleet.

    fleet: returns this fleet's id. find_seconds: the time in which clusters must answer.
    events_max: the most events of a recovery in one transaction.
    """

    def __init__(
        self,
        questions: AdoptionQuestions,
        ask: AnswerCall,
        fleet: Callable[[], str],
        find_seconds: float,
        events_max: int,
    ) -> None:
        self._questions = questions
        self._ask = ask
        self._fleet = fleet
        self._find_seconds = find_seconds
        self._events_max = events_max

    async def adopt(self, request: api.AdoptRequest) -> api.PlacementReply:
        await self._await_answer_feed()
        with self._questions.open_call_inquiries() as asking:

            def ask_adoption_question(
                state: PlannerState, moment: Moment
            ) -> tuple[tuple[Event, ...], AdoptionInquiry | api.PlacementReply]:
                asked = adopting.adoption_question(state, request, moment)
                return ((asked,), asking.open_inquiry(asked)) if isinstance(asked, AdoptionAsked) else ((), asked)

            inquiry = await self._ask("adopt", ask_adoption_question)
            if isinstance(inquiry, api.PlacementReply):
                return inquiry
            await self._await_answers(inquiry)
            found = inquiry.answers_by_cluster()

        def decide_adopt(state: PlannerState, moment: Moment) -> tuple[tuple[Event, ...], api.PlacementReply]:
            decided = adopting.decide_adoption(state, request, found, moment)
            return decided.events, decided.reply

        return await self._ask("adopt", decide_adopt)

    async def recover_fleet(self, request: api.RecoverFleetRequest) -> api.RecoverFleetReply:
        await self._await_answer_feed()
        with self._questions.open_call_inquiries() as asking:

            def ask_recovery_question(state: PlannerState, moment: Moment) -> tuple[tuple[Event, ...], AdoptionInquiry]:
                asked = recovering.recovery_question(state, request, self._fleet(), moment)
                return (asked,), asking.open_inquiry(asked)

            inquiry = await self._ask("recover_fleet", ask_recovery_question)
            await self._await_answers(inquiry)

        def decide_recover(state: PlannerState, moment: Moment) -> tuple[tuple[Event, ...], api.RecoverFleetReply]:
            found = recovering.decide_recovery(
                state, request, inquiry.found.values(), inquiry.ends, moment, self._events_max
            )
            return found.events, found.reply

        return await self._ask("recover_fleet", decide_recover)

    async def _await_answer_feed(self) -> None:
        """Waits until this planner follows the topic of the answers, so that it misses none.

        Raises RequestError (UNAVAILABLE) after find_seconds.
        """
        try:
            async with asyncio.timeout(self._find_seconds):
                await self._questions.following.wait()
        except TimeoutError:
            text = "the log's answers cannot be read yet: retry with the same idempotency key"
            raise RequestError("UNAVAILABLE", text) from None

    async def _await_answers(self, inquiry: AdoptionInquiry) -> None:
        try:
            async with asyncio.timeout(self._find_seconds):
                await inquiry.complete.wait()
        except TimeoutError:
            silent = first_names_text(inquiry.unanswered_clusters())
            text = f"no answer from {silent} within {self._find_seconds:g} s: retry with the same idempotency key"
            raise RequestError("UNAVAILABLE", text) from None
