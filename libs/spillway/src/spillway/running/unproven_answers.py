"""Answers of steps that write nothing. They go out once the log has shown that the turn still held at the decision."""

import asyncio

from spillway.running.request_queue import Decisions


class UnprovenAnswers:
    """The answers of steps without events, also refusals, until the turn is proven.

    An instance that is cut off from the log learns of no later turn, and its state may be long out of date.
    waiting_max: the most answers that wait. retry: a text for callers without an answer, about what they may do.
    wanted: set while there is an answer for which no proof has been asked for yet.
    """

    def __init__(self, waiting_max: int, retry: str) -> None:
        self.wanted = asyncio.Event()
        self._waiting_max = waiting_max
        self._retry = retry
        self._kept = Decisions()
        self._asked_for = Decisions()
        """Answers that were kept before the current proof was asked for."""

    def keep_answers(self, decided: Decisions) -> None:
        """Keeps answers until a later check proves the turn. If too many wait already, these get UNAVAILABLE."""
        if not decided.answer_count:
            return
        if self._answer_count + decided.answer_count > self._waiting_max:
            self._drop_gone_callers()
        if self._answer_count + decided.answer_count > self._waiting_max:
            decided.fail_requests(
                f"{self._answer_count} answers already wait for the log to confirm this turn; {self._retry}"
            )
            return
        self._kept.merge_answers(decided)
        self.wanted.set()

    def note_proof_asked(self) -> None:
        """Notes that a check of the turn begins now. If it proves the turn, that holds for all answers kept so far."""
        self.wanted.clear()
        self._asked_for.merge_answers(self._kept)
        self._kept = Decisions()

    def send_proven_answers(self) -> None:
        """Sends the answers that were kept before the last `note_proof_asked`, because the turn still held at that
        time."""
        asked_for, self._asked_for = self._asked_for, Decisions()
        asked_for.send_answers()

    def refuse_all(self, why: str) -> None:
        """Answers all waiting requests with UNAVAILABLE."""
        self.wanted.clear()
        refused = (self._asked_for, self._kept)
        self._asked_for, self._kept = Decisions(), Decisions()
        for one in refused:
            one.fail_requests(why)

    @property
    def _answer_count(self) -> int:
        return self._asked_for.answer_count + self._kept.answer_count

    def _drop_gone_callers(self) -> None:
        for one in (self._asked_for, self._kept):
            one.answers = [entry for entry in one.answers if not entry[0].answer.done()]
            one.refusals = [entry for entry in one.refusals if not entry[0].answer.done()]
