"""Queues the questions to one connection until they get a slot. core/slots.py chooses the next one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hpa.core.slots import SlotQuestion, Slots


class SlotQueue:
    """The queue of one connection.

    most: how many questions may run at the same time.
    slow_part: the share of them that may be slow; at least one may.
    """

    def __init__(self, most: int, slow_part: float) -> None:
        self._slots = Slots(most, max(1, int(most * slow_part)))
        self._waiting: dict[SlotQuestion, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def hold_slot(self, one: SlotQuestion) -> AsyncIterator[None]:
        """Waits for a slot and holds it inside the block."""
        turn = self._waiting[one] = asyncio.get_running_loop().create_future()
        self._slots.enqueue_question(one)
        self._start_next_questions()
        try:
            await turn
            yield
        finally:
            self._waiting.pop(one, None)
            self._slots.release_question(one)
            self._start_next_questions()

    def _start_next_questions(self) -> None:
        while (one := self._slots.start_next_question()) is not None:
            turn = self._waiting.pop(one)
            if not turn.done():  # A cancelled task is about to leave.
                turn.set_result(None)
