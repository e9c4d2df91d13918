"""Asks clusters which shape they give to a new template's pods. A request waits a short time for the answers."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from planner.api.answer_call import AnswerCall, Decide
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.requests import shape_questions
from planner.core.requests.queueing import queue_place_of
from spillway import metrics
from spillway.api import ApplyRequest
from spillway.bus import Record
from spillway.events import Event, ShapeAdmitted

log = structlog.get_logger()


@dataclass(slots=True)
class AdmissionInquiry:
    """The question about one template.

    answers_before: the number of answers to any question that had come before it was asked.
    missing: clusters whose answers are still awaited.
    heard: an event that is set while no answer is missing.
    settled: an event that is set once the inquiry is over.
    """

    answers_before: int
    missing: set[str] = field(default_factory=set)
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    settled: asyncio.Event = field(default_factory=asyncio.Event)

    def expect_answers(self, clusters: frozenset[str]) -> None:
        self.missing = set(clusters)
        if clusters:
            self.heard.clear()
        else:
            self.heard.set()

    def note_answer(self, cluster: str) -> None:
        self.missing.discard(cluster)
        if not self.missing:
            self.heard.set()


class Admissions:
    """Asks clusters about new templates.

    state: returns the newest state.
    wait_seconds: the longest time that a request waits for the answers. Then it is planned without them.
    """

    def __init__(self, state: Callable[[], PlannerState], ask: AnswerCall, wait_seconds: float) -> None:
        self._state = state
        self._ask = ask
        self._wait_seconds = wait_seconds
        self._open: dict[str, AdmissionInquiry] = {}
        self._answers = 0
        self._last_answers: dict[str, int] = {}
        """By cluster, the number of its last answer. Answers of all clusters are numbered in one row."""
        self._asking: set[asyncio.Task[None]] = set()
        """The running inquiries. Each continues when its caller goes away: others may wait for the same answers."""

    def note_admission_answers(self, records: Iterable[Record]) -> None:
        """Passes the clusters' answers among these records to the open inquiries. The state has applied the records."""
        for record in records:
            event = record.event
            if isinstance(event, ShapeAdmitted):
                self._answers += 1
                self._last_answers[event.cluster] = self._answers
                if event.template in self._open:
                    self._open[event.template].note_answer(event.cluster)

    async def await_admitted_shapes(self, requests: Sequence[ApplyRequest]) -> None:
        """Waits until the clusters that these requests would use have answered about new templates, or time is over.

        These include clusters that the requests would use only because of other clusters' answers. No request waits
        for a template that is already known. Raises RequestError (UNAVAILABLE, RESOURCE_EXHAUSTED) when the question
        cannot be written.
        """
        if not self._state().admitted.held:
            return
        digests = {shape_questions.template_digest(request): request for request in requests}
        new = {digest: request for digest, request in digests.items() if digest and not self._is_template_known(digest)}
        if not new:
            return
        inquiring = asyncio.create_task(self._await_new_templates(new))
        self._asking.add(inquiring)
        inquiring.add_done_callback(self._asking.discard)
        await asyncio.shield(inquiring)

    async def _await_new_templates(self, new: Mapping[str, ApplyRequest]) -> None:
        """Waits until all these templates are answered, or the time is over. Other calls may have asked about some."""
        mine: dict[str, AdmissionInquiry] = {}
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._ask_and_await_clusters(
                    {digest: new[digest] for digest in new.keys() - self._open.keys()}, mine
                )
                for digest in new:
                    if digest in self._open:
                        await self._open[digest].settled.wait()
        except TimeoutError:
            self._note_unanswered(mine.values())
        unanswered = sum(bool(inquiry.missing) for inquiry in mine.values())
        metrics.SHAPES_AWAITED.labels("answered").inc(len(mine) - unanswered)
        metrics.SHAPES_AWAITED.labels("unanswered").inc(unanswered)

    def _is_template_known(self, digest: str) -> bool:
        return digest not in self._open and self._state().admitted.is_known(digest)

    async def _ask_and_await_clusters(
        self, requests: Mapping[str, ApplyRequest], mine: dict[str, AdmissionInquiry]
    ) -> None:
        """Asks the clusters, and waits for the clusters that the replicas would go to. Each answer may change these.

        mine: receives the inquiries that this call opened. Other calls may wait for them, so all are closed at the end.
        """
        if not requests:
            return
        place = max((queue_place_of(self._state(), one) for one in requests.values()), key=lambda place: place.priority)
        try:
            await self._ask("shapes", self._asking_decision(requests, mine), place)
            waiting = [digest for digest, inquiry in mine.items() if inquiry.missing]
            while waiting:
                for digest in waiting:
                    await mine[digest].heard.wait()
                waiting = [digest for digest in waiting if self._state().admitted.altered_shapes(digest)]
                if waiting:
                    await self._ask("shapes", self._replanning_decision(requests, waiting), place)
                waiting = [digest for digest in waiting if mine[digest].missing]
        finally:
            for digest, inquiry in mine.items():
                del self._open[digest]
                inquiry.settled.set()

    def _asking_decision(self, requests: Mapping[str, ApplyRequest], mine: dict[str, AdmissionInquiry]) -> Decide[None]:
        def decide_questions(state: PlannerState, moment: Moment) -> tuple[tuple[Event, ...], None]:
            found = tuple(shape_questions.shape_questions(state, requests.values(), moment))
            for digest in requests:
                state.admitted.note_declared(digest)
            for asked in found:
                digest = asked.event.template
                mine[digest] = self._open[digest] = AdmissionInquiry(self._answers)
                mine[digest].expect_answers(asked.awaited)
            return tuple(asked.event for asked in found), None

        return decide_questions

    def _replanning_decision(self, requests: Mapping[str, ApplyRequest], digests: Iterable[str]) -> Decide[None]:
        """Returns a decision that plans these templates again. It awaits the clusters that replicas would go to now."""

        def decide_replanning(state: PlannerState, moment: Moment) -> tuple[tuple[Event, ...], None]:
            for digest, clusters in shape_questions.unheard_clusters_by_template(
                state, [requests[digest] for digest in digests], moment
            ):
                self._open[digest].expect_answers(clusters)
            return (), None

        return decide_replanning

    def _note_unanswered(self, inquiries: Iterable[AdmissionInquiry]) -> None:
        """Notes which clusters are silent. One that answered other questions meanwhile is not silent but busy, perhaps
        with many questions of one namespace: others' requests wait for it."""
        asked = [(cluster, inquiry) for inquiry in inquiries for cluster in inquiry.missing]
        missing = {cluster for cluster, _ in asked}
        self._state().admitted.note_unanswered(
            {cluster for cluster, inquiry in asked if self._last_answers.get(cluster, 0) <= inquiry.answers_before}
        )
        log.warning(
            "a template is planned as declared: a cluster did not answer its dry run in time", clusters=sorted(missing)
        )
