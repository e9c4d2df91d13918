"""Defines the call by which the verbs have a request decided, and the decision written, in the planner's turn."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.requests.queueing import ANY, QueuePlace
from spillway.running.request_queue import Written

T = TypeVar("T")
Decide = Callable[[PlannerState, Moment], tuple[Sequence[Written], T]]
"""A function that decides a request. It returns the events to write and the answer, or raises RequestError."""


class AnswerCall(Protocol):
    """A function that has a request decided, and returns the answer once the decision is in the log.

    It raises RequestError; UNAVAILABLE if this planner is a standby.
    """

    async def __call__(self, verb: str, decide: Decide[T], place: QueuePlace = ANY) -> T: ...
