"""Asks a cluster by dry runs which shape it gives the pods of a template. Publishes the answer; creates no object."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import structlog

from propagator.cluster.attempts import Attempts
from propagator.cluster.cluster_objects import ClusterObjects
from propagator.core.admission import (
    missing_namespace_text,
    outcome_of_refusal,
    pod_for_dry_run,
    read_dry_run_answer,
    refusal_without_pod_name,
    shape_state_with_missing,
)
from propagator.core.desired import DesiredState, PartTarget
from propagator.core.live import IN_NO_NAMESPACE
from propagator.core.manifests import NamedTemplate, pod_references
from propagator.core.shape_questions import ASKED, AskRules, ShapeQuestions
from propagator.settings import PropagatorSettings
from spillway import metrics, tracing
from spillway.addresses import SHAPES_ASKED, Tombstone, shape_address
from spillway.bus import Bus, BusUnavailable, Headers
from spillway.clusters.api import PODS, ClusterApi, ClusterUnreachable, Conflict, Refused
from spillway.events import SHAPE_ADMITTED, SHAPE_FORBIDDEN, SHAPE_REFUSED, SHAPE_UNASKED, ShapeAdmitted
from spillway.fitting import FittingWriter
from spillway.model import ObjectReference, Shape
from spillway.running.isolation import ends_the_process, note_failed_work
from spillway.waiting import is_set_within

SWEEP_SECONDS = 60.0
"""The pause between two searches for templates that nobody declares any more."""
SHORTEST_SECONDS = 0.001
Found = tuple[str, str, Shape | None]
"""State, message, shape, as in ShapeAdmitted."""
Missing = tuple[ObjectReference, ...]
Said = tuple[ShapeAdmitted | Tombstone, Headers]
"""A record, and the headers of the trace that it joins."""

log = structlog.get_logger()


class ShapeAsker:
    """Asks one cluster about the shapes of templates, during one turn. epoch: the epoch of that turn."""

    def __init__(
        self,
        epoch: int,
        api: ClusterApi,
        bus: Bus,
        desired: DesiredState,
        attempts: Attempts,
        cluster_objects: ClusterObjects,
        settings: PropagatorSettings,
    ) -> None:
        self._cluster = api.name
        self._epoch = epoch
        self._api = api
        self._cluster_objects = cluster_objects
        self._writer = FittingWriter[ShapeAdmitted | Tombstone](bus, answer_without_shape)
        self._desired = desired
        self._attempts = attempts
        self._namespaces = cluster_objects.namespaces
        self._settings = settings
        self._sequence = 0
        self._overruled: dict[str, None] = {}
        self._unused: dict[str, float] = {}
        self._questions = ShapeQuestions(_ask_rules_from_settings(settings))
        self._to_say: asyncio.Queue[Said] = asyncio.Queue(settings.status_batch)
        self._asked_by = tracing.Origins[str]()
        self._woken = asyncio.Event()
        self._clock: Callable[[], float] = asyncio.get_running_loop().time

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self._settings.shapes_at_once):
                group.create_task(self._answer_questions())
            group.create_task(self._sweep_templates())
            group.create_task(self._publish_answers())

    def update_target_template(self, target: PartTarget) -> None:
        """Updates the question about the target: its placement may have another template now."""
        self._questions.set_target_template(target, self._desired.wanted_template(target), self._clock())
        self._woken.set()

    def has_admitted_shape(self, digest: str) -> bool:
        """Returns whether the log has an answer that admits pods of this template."""
        known = self._desired.shapes.get(self._cluster, {}).get(digest)
        return known is not None and known.state == SHAPE_ADMITTED

    def queue_question(self, template: NamedTemplate, trace: Headers) -> None:
        """Queues a question for a planner that waits for the answer."""
        if not self._questions.add_planner_question(template, self._clock()):
            log.warning(
                "a dry run is not made: too many questions of the namespace wait",
                cluster=self._cluster,
                namespace=template.namespace,
                template=template.digest,
            )
            return
        self._asked_by.note_origin(template.digest, trace)
        self._woken.set()

    def republish_answer(self, digest: str) -> None:
        """Publishes our answer again, because an instance whose turn is over has published one after ours."""
        self._overruled[digest] = None
        self._woken.set()

    def ask_template_again(self, digest: str) -> None:
        """Asks again, because the log's answer is gone or outdated.

        Nothing happens when no placement has this template here.
        """
        self._questions.note_answer_lost(digest, self._clock())
        self._woken.set()

    def ask_target_template_again(self, target: PartTarget) -> None:
        """Asks again about the target's template, because an object that it names went missing or appeared."""
        template = self._desired.wanted_template(target)
        if template is not None:
            self.ask_template_again(template.digest)

    async def _answer_questions(self) -> None:
        while True:
            self._woken.clear()
            await self._queue_overruled_answers()
            template = self._questions.take_due_template(self._clock())
            if template is None:
                due = self._questions.next_due_at() - self._clock()
                await is_set_within(self._woken, SWEEP_SECONDS if due == ASKED else max(SHORTEST_SECONDS, due))
                continue
            self._woken.set()  # Another question may be due; this wakes the next worker.
            about, trace = {"k8s.cluster.name": self._cluster}, self._asked_by.take_origin(template.digest)
            with tracing.processing_span(SHAPES_ASKED.name, "propagator", about, trace):
                found, missing = await self._ask_shape_and_missing(template)
                found = (shape_state_with_missing(found[0], missing), *found[1:])
                self._questions.note_answer(template.digest, found[0], self._clock())
                await self._queue_answer_if_new(template, found, missing)

    async def _ask_shape_and_missing(self, template: NamedTemplate) -> tuple[Found, Missing | None]:
        """Returns the answer of the cluster and the missing objects.

        An unexpected error is limited to this template: its shape counts as unknown, and it is asked about again.
        """
        try:
            async with asyncio.TaskGroup() as group:
                asked = group.create_task(self._dry_run_pod(template))
                missing = group.create_task(self._find_missing_objects(template))
            return asked.result(), missing.result()
        except Exception as error:
            if ends_the_process(error):
                raise
            note_failed_work("propagator", "template", error, cluster=self._cluster, template=template.digest)
            return (SHAPE_UNASKED, f"an error of our own: {type(error).__name__}", None), None

    async def _dry_run_pod(self, template: NamedTemplate) -> Found:
        if self._attempts.is_failing:
            return SHAPE_UNASKED, "the cluster is not reached", None
        if self._namespaces.lacks_namespace(template.namespace):
            return SHAPE_UNASKED, missing_namespace_text(template.namespace), None
        pod = pod_for_dry_run(template.pod, template.namespace, template.name, template.digest)
        try:
            async with asyncio.timeout(self._settings.shape_timeout_seconds):
                made = await self._api.dry_run_create(PODS, template.namespace, pod)
        except Refused as refused:
            metrics.OPERATIONS.labels("dry-run", "refused").inc()
            if refused.message == missing_namespace_text(template.namespace):
                self._namespaces.note_namespace_missing(template.namespace)
            state = outcome_of_refusal(refused.status, refused.message)
            return state, refusal_without_pod_name(refused.message, template.name), None
        except ClusterUnreachable as error:
            metrics.OPERATIONS.labels("dry-run", "unreachable").inc()
            log.info("a dry run was not answered", cluster=self._cluster, template=template.digest, error=str(error))
            return SHAPE_UNASKED, error.text_for_callers, None
        except (Conflict, TimeoutError) as error:
            metrics.OPERATIONS.labels("dry-run", "unreachable").inc()
            return SHAPE_UNASKED, str(error) or f"no answer within {self._settings.shape_timeout_seconds} s", None
        metrics.OPERATIONS.labels("dry-run", "done").inc()
        return read_dry_run_answer(made, template.pod, template.namespace)

    async def _find_missing_objects(self, template: NamedTemplate) -> Missing | None:
        """Returns the objects that the template names and the cluster lacks; None while that is not known."""
        references = pod_references(template.pod)
        if not references:
            return ()
        if self._attempts.is_failing:
            return None
        if self._namespaces.lacks_namespace(template.namespace):
            named = sorted(references)[: self._settings.references_max]
            looked = {one: one.kind in IN_NO_NAMESPACE for one in named}
        else:
            try:
                async with asyncio.timeout(self._settings.shape_timeout_seconds):
                    target = PartTarget(self._cluster, template.namespace, template.name)
                    looked = await self._cluster_objects.existence_by_reference(target, references)
            except (ClusterUnreachable, Refused, TimeoutError):
                return None
        return tuple(one.to_object_reference(template.namespace) for one in sorted(looked) if not looked[one])

    async def _queue_answer_if_new(self, template: NamedTemplate, found: Found, missing: Missing | None) -> None:
        """Queues the answer for publishing when it is news.

        A template that was admitted once stays admitted while the cluster cannot be asked.
        """
        before = self._desired.shapes.get(self._cluster, {}).get(template.digest)
        if before is not None:
            missing = before.missing if missing is None else missing
            if before.state == SHAPE_ADMITTED and found[0] in (SHAPE_FORBIDDEN, SHAPE_UNASKED):
                found = before.state, before.message, before.shape
            same = (before.state, before.message, before.shape, before.missing) == (*found, missing)
            traits = before.shape is None or found[2] is None or before.shape.traits == found[2].traits
            if same and traits:
                return
        state, message, shape = found
        self._sequence += 1
        names = template.digest, self._cluster, self._epoch, self._sequence, template.namespace
        event = ShapeAdmitted(*names, state, message, shape, missing or ())
        usual = state == SHAPE_ADMITTED or message == missing_namespace_text(template.namespace)
        tell = log.debug if usual else log.warning
        tell("shape said", cluster=self._cluster, template=template.digest, state=state, message=message)
        await self._to_say.put((event, tracing.current_trace_headers()))

    async def _queue_overruled_answers(self) -> None:
        while self._overruled:
            digest = next(iter(self._overruled))
            del self._overruled[digest]
            said = self._desired.shapes.get(self._cluster, {}).get(digest)
            if said is not None and said.epoch == self._epoch:
                await self._to_say.put((said, ()))

    async def _publish_answers(self) -> None:
        """Publishes the answers in order, in batches.

        Answers that come while a batch is written go into the next one. While more questions are due, a batch is held
        back for a moment to gather answers. So a planner with many questions waits until the last of them is answered.
        """
        while True:
            group = [await self._to_say.get()]
            if self._questions.next_due_at() <= self._clock():
                await asyncio.sleep(self._settings.shape_gather_seconds)
            while len(group) < self._settings.status_batch and not self._to_say.empty():
                group.append(self._to_say.get_nowait())
            traces = {index: trace for index, (_, trace) in enumerate(group)}
            while True:
                try:
                    await self._writer.publish([event for event, _ in group], traces)
                    break
                except BusUnavailable as error:
                    about = {"cluster": self._cluster, "count": len(group)}
                    log.warning("the admitted shapes cannot be published yet", **about, error=str(error))
                    await asyncio.sleep(self._settings.bus_retry_seconds)

    async def _sweep_templates(self) -> None:
        """Forgets the answers about templates that have not been declared for long, and asks again about hindered ones.

        Hindered templates were refused, or named a missing object. The planner places none of them here, so only a new
        question shows when the cluster admits them.
        """
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now, borne = self._clock(), self._desired.declared_template_digests()
            said = self._desired.shapes.get(self._cluster, {})
            self._unused = {digest: self._unused.get(digest, now) for digest in said if digest not in borne}
            for digest, since in list(self._unused.items()):
                if now - since >= self._seconds_until_forgotten(said[digest]):
                    await self._to_say.put((Tombstone(shape_address(digest, self._cluster)), ()))
                    del self._unused[digest]
            if self._questions.add_hindered_questions(self._desired.hindered_templates(self._cluster), self._clock()):
                self._woken.set()

    def _seconds_until_forgotten(self, said: ShapeAdmitted) -> float:
        soon = said.state == SHAPE_REFUSED or said.missing
        return self._settings.shape_refused_unused_seconds if soon else self._settings.shape_unused_seconds


def answer_without_shape(event: ShapeAdmitted | Tombstone, why: str) -> ShapeAdmitted | Tombstone | None:
    """Returns the answer as unknown, when a record cannot hold the shape. An admitted answer without a shape would be
    wrong: it says that the cluster admits the pod as written."""
    if isinstance(event, Tombstone):
        return None
    return replace(event, state=SHAPE_UNASKED, message=f"too long to be said: {why}", shape=None, missing=())


def _ask_rules_from_settings(settings: PropagatorSettings) -> AskRules:
    return AskRules(
        age_max=settings.shape_age_max_seconds,
        retry_first=settings.shape_retry_first_seconds,
        retry_longest=settings.shape_retry_longest_seconds,
        waiting_max=settings.shapes_waiting_max,
        hindered_max=settings.shapes_hindered_max,
        for_each_free=settings.shapes_for_each_free,
    )
