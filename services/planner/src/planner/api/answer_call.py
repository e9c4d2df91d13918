"""Defines how parts of the planner get something decided and written in its turn."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.requests.queueing import ANY, QueuePlace
from spillway.running.request_queue import Written

T = TypeVar("T")
Decide = Callable[[PlannerState, Moment], tuple[Sequence[Written], T]]
"""The decision on a request. It returns events and the answer, or raises RequestError, which is then the answer."""


class AnswerCall(Protocol):
    """Returns the answer once the decision is in the log.

    Raises RequestError; UNAVAILABLE if this planner is a standby.
    """

    async def __call__(self, verb: str, decide: Decide[T], place: QueuePlace = ANY) -> T: ...
