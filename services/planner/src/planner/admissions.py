"""Before a template is placed that was never seen: clusters are asked what they make of its pods, for a moment."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import structlog

from planner.asked import Ask, Decide
from planner.core.requests import asking
from planner.core.state import PlannerState
from planner.core.subject import Moment
from spillway import metrics
from spillway.api import ApplyRequest
from spillway.bus import Record
from spillway.events import Event, ShapeAdmitted

log = structlog.get_logger()


@dataclass(slots=True)
class Inquiry:
    """About one template. missing: clusters that are waited for."""

    missing: set[str]
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, cluster: str) -> None:
        self.missing.discard(cluster)
        if not self.missing:
            self.answered.set()


class Admissions:
    """state: the newest one. wait_seconds: from a request's arrival to its being planned all the same."""

    def __init__(self, state: Callable[[], PlannerState], ask: Ask, wait_seconds: float) -> None:
        self._state = state
        self._ask = ask
        self._wait_seconds = wait_seconds
        self._open: dict[str, Inquiry] = {}

    def hear(self, records: Iterable[Record]) -> None:
        """What was applied to the state."""
        for record in records:
            event = record.event
            if isinstance(event, ShapeAdmitted) and event.template in self._open:
                self._open[event.template].take(event.cluster)

    async def learn(self, requests: Sequence[ApplyRequest]) -> None:
        """Returns once the clusters that these would use have said what they make of templates never seen before.

        Or when the moment is over: nobody waits longer, and nobody who was answered about a template waits again.
        Raises RequestError UNAVAILABLE or RESOURCE_EXHAUSTED when the question cannot be written.
        """
        if not self._state().admitted.held:
            return
        digests = {asking.digest_of(request): request for request in requests}
        new = {digest: request for digest, request in digests.items() if digest and not self._is_known(digest)}
        mine = list(new.keys() - self._open.keys())
        if not new:
            return
        try:
            async with asyncio.timeout(self._wait_seconds):
                if mine:
                    await self._ask("shapes", self._asked({digest: new[digest] for digest in mine}))
                for digest in new:
                    if digest in self._open:
                        await self._open[digest].answered.wait()
            metrics.SHAPES_AWAITED.labels("answered").inc(len(mine))
        except TimeoutError:
            metrics.SHAPES_AWAITED.labels("unanswered").inc(len(mine))
            self._give_up(mine)
        finally:
            for digest in mine:
                self._open.pop(digest, None)

    def _is_known(self, digest: str) -> bool:
        return digest not in self._open and self._state().admitted.is_known(digest)

    def _asked(self, requests: dict[str, ApplyRequest]) -> Decide[None]:
        def decide(state: PlannerState, moment: Moment) -> tuple[tuple[Event, ...], None]:
            found = tuple(asking.questions(state, requests.values(), moment))
            for digest in requests:
                state.admitted.saw(digest)
            for asked in found:
                inquiry = self._open[asked.event.template] = Inquiry(set(asked.awaited))
                inquiry.take("")
            return tuple(asked.event for asked in found), None

        return decide

    def _give_up(self, digests: Iterable[str]) -> None:
        missing = {cluster for digest in digests if digest in self._open for cluster in self._open[digest].missing}
        self._state().admitted.went_unanswered(missing)
        log.warning("planned as declared: no answer in time", clusters=sorted(missing))
