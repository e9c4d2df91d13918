"""Serves Explain. It explains in steps, so that other requests need not wait for it, and finds past decisions."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from planner.api.confined import explanation_seen_by
from planner.core.explaining import explanation
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.placement.replaying import NotReplayable
from spillway.api import ExplainReply, ExplainRequest, RequestError, invalid_argument_error
from spillway.events import DecisionRecorded
from spillway.rpc.security import CALLER

History = Callable[[str, str, int], Awaitable[Sequence[DecisionRecorded]]]


class Explanations:
    """Explains placements. history: returns the last decisions on a workload, newest first."""

    def __init__(self, history: History, history_max: int) -> None:
        self._history = history
        self._history_max = history_max

    async def find_decision(self, request: ExplainRequest) -> DecisionRecorded:
        """Returns the decision that a request names. Raises RequestError when it is no longer kept."""
        if request.manifests or request.node or request.replicas >= 0:
            raise invalid_argument_error(
                "decision", request.decision, "a past decision without manifests, replicas or node"
            )
        namespace = request.namespace or "default"
        records = await self._history(namespace, request.name, self._history_max)
        for record in records:
            if str(record.generation) == request.decision:
                return record
        known = ", ".join(str(record.generation) for record in records[:5]) or "none"
        raise RequestError(
            "NOT_FOUND", f"decision {request.decision!r} of {namespace}/{request.name}: the last decisions are {known}"
        )

    async def explain_placement(
        self, state: PlannerState, request: ExplainRequest, moment: Moment, record: DecisionRecorded | None
    ) -> ExplainReply:
        steps = explanation.explain_placement(state, request, moment, record)
        try:
            while True:
                next(steps)
                await asyncio.sleep(0)
        except StopIteration as done:
            return explanation_seen_by(CALLER.get(), done.value)
        except NotReplayable as why:
            raise RequestError("FAILED_PRECONDITION", f"decision {request.decision}: {why}") from None
