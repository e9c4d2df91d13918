"""Answers the planner's questions before an adoption: what runs in a cluster under a name, or of a former fleet."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import structlog

from propagator.core.adoption_answers import adoption_answer, adoption_answer_for_object
from propagator.core.desired import DesiredState, PartTarget
from propagator.core.kinds import DEPLOYMENT, KINDS
from propagator.core.live import LABEL_FLEET, ownership_labels_of
from propagator.settings import PropagatorSettings
from spillway import tracing
from spillway.addresses import ADOPTIONS
from spillway.bus import Bus, BusUnavailable, Headers
from spillway.clusters.api import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    SERVICES,
    ClusterApi,
    ClusterUnreachable,
)
from spillway.events import FOUND, FOUND_REFUSED, AdoptionAsked, WorkloadFound
from spillway.fitting import FittingWriter
from spillway.running.isolation import ends_the_process, note_failed_work

Manifest = dict[str, Any]
TEXT_CHARACTERS_MAX = 500
"""The most characters of an error in an answer."""
DEPENDENCIES = {"ConfigMap": CONFIG_MAPS, "Service": SERVICES}

log = structlog.get_logger()


class Finder:
    """Answers the planner's questions about one cluster.

    Questions wait in a queue. If the queue is full, a new question is dropped, and the planner asks again.
    """

    def __init__(
        self, cluster: str, fleet: str, api: ClusterApi, bus: Bus, desired: DesiredState, settings: PropagatorSettings
    ) -> None:
        self._cluster = cluster
        self._fleet = fleet
        self._api = api
        self._writer = FittingWriter(bus, answer_without_object)
        self._desired = desired
        self._settings = settings
        self._questions: asyncio.Queue[tuple[AdoptionAsked, Headers]] = asyncio.Queue(settings.questions_waiting_max)

    def queue_question(self, asked: AdoptionAsked, trace: Headers) -> None:
        try:
            self._questions.put_nowait((asked, trace))
        except asyncio.QueueFull:
            log.warning(
                "a planner's question is not answered: too many questions wait",
                cluster=self._cluster,
                asked=str(asked.generation),
            )

    async def run(self) -> None:
        while True:
            asked, trace = await self._questions.get()
            with tracing.processing_span(ADOPTIONS.name, "propagator", {"k8s.cluster.name": self._cluster}, trace):
                await self._publish_answers(await self._answers_despite_errors(asked))

    async def _answers_despite_errors(self, asked: AdoptionAsked) -> list[WorkloadFound]:
        """Answers as `_answers_to_question` does.

        An unexpected error becomes the answer to this question and stops nothing else.
        """
        try:
            return await self._answers_to_question(asked)
        except Exception as error:
            if ends_the_process(error):
                raise
            note_failed_work("propagator", "workload", error, cluster=self._cluster, asked=str(asked.generation))
            target = PartTarget(self._cluster, asked.namespace, asked.name)
            text = f"propagator met an error of its own: {type(error).__name__}: {error}"
            return [adoption_answer(asked, target, FOUND_REFUSED, text[:TEXT_CHARACTERS_MAX])]

    async def _answers_to_question(self, asked: AdoptionAsked) -> list[WorkloadFound]:
        target = PartTarget(self._cluster, asked.namespace, asked.name)
        try:
            if asked.fleet_before:
                return await self._find_workloads_of_former_fleet(asked)
            return [await self._find_named_workload(asked, target)]
        except ClusterUnreachable as error:
            log.warning(
                "a question before an adoption is not answered",
                cluster=self._cluster,
                asked=asked.name,
                error=str(error),
            )
            return [adoption_answer(asked, target, FOUND_REFUSED, error.text_for_callers)]

    async def _find_named_workload(self, asked: AdoptionAsked, target: PartTarget) -> WorkloadFound:
        found = await self._api.get(DEPLOYMENTS, target.namespace, target.name)
        found = {**found, "kind": DEPLOYMENT} if found else None  # The answer may name another kind.
        fleet = ownership_labels_of(found)[LABEL_FLEET] if found else ""
        dependencies: list[tuple[str, Manifest]] = []
        if fleet:
            dependencies = await self._list_labelled_dependencies(fleet, target.namespace)
        scalers = await self._api.list(HORIZONTAL_POD_AUTOSCALERS, target.namespace) if found else []
        placed = self._desired.is_target_listed(target)
        return adoption_answer_for_object(asked, target, self._fleet, found, dependencies, scalers, placed)

    async def _find_workloads_of_former_fleet(self, asked: AdoptionAsked) -> list[WorkloadFound]:
        selector = f"{LABEL_FLEET}={asked.fleet_before}"
        by_name: dict[tuple[str, str], list[Manifest]] = {}
        for name, of in KINDS.items():
            for one in await self._api.list(of.served, label_selector=selector):
                place = (one["metadata"]["namespace"], one["metadata"]["name"])
                by_name.setdefault(place, []).append({**one, "kind": name, "apiVersion": of.api_version})
        by_namespace: dict[str, list[tuple[str, Manifest]]] = {}
        for kind, one in await self._list_labelled_dependencies(asked.fleet_before):
            by_namespace.setdefault(one["metadata"]["namespace"], []).append((kind, one))
        scalers_by_namespace: dict[str, list[Manifest]] = {}
        for one in await self._api.list(HORIZONTAL_POD_AUTOSCALERS) if by_name else ():
            scalers_by_namespace.setdefault(one["metadata"]["namespace"], []).append(one)
        found = []
        for place, (one, *others) in by_name.items():
            target = PartTarget(self._cluster, *place)
            if others:
                text = f"a {one['kind']} and a {others[0]['kind']} have this name: a name is one workload of one kind"
                found.append(adoption_answer(asked, target, FOUND_REFUSED, text, found=one))
                continue
            along = by_namespace.get(target.namespace, ())
            scalers = scalers_by_namespace.get(target.namespace, ())
            found.append(
                adoption_answer_for_object(
                    asked, target, self._fleet, one, along, scalers, self._desired.is_target_listed(target)
                )
            )
        alone = sum(map(len, by_namespace.values())) - sum(len(one.dependencies) for one in found)
        note = f"{alone} ConfigMaps or Services with the label go with no workload that was found" if alone else ""
        return [*found, adoption_answer(asked, PartTarget(self._cluster, "", ""), FOUND, note, objects=len(found))]

    async def _list_labelled_dependencies(self, fleet: str, namespace: str = "") -> list[tuple[str, Manifest]]:
        selector = f"{LABEL_FLEET}={fleet}"
        lists = [(kind, await self._api.list(of, namespace, selector)) for kind, of in DEPENDENCIES.items()]
        return [(kind, one) for kind, found in lists for one in found]

    async def _publish_answers(self, found: Iterable[WorkloadFound]) -> None:
        """Publishes the answers in batches and in order.

        For a former fleet, the last answer has no name but the total number of objects.
        """
        waiting = list(found)
        attempts = 0
        while waiting and attempts < self._settings.answer_attempts_max:
            batch = waiting[: self._settings.answers_batch]
            try:
                await self._writer.publish(batch)
            except BusUnavailable as error:
                attempts += 1
                log.warning("answers on found objects cannot be published yet", cluster=self._cluster, error=str(error))
                await asyncio.sleep(self._settings.bus_retry_seconds)
                continue
            del waiting[: len(batch)]
            log.info(
                "planners' questions are answered", cluster=self._cluster, objects=len(batch), state=batch[-1].state
            )


def answer_without_object(found: WorkloadFound, why: str) -> WorkloadFound:
    return replace(found, state=FOUND_REFUSED, message=f"too long to be said: {why}", manifest=b"", dependencies=())
