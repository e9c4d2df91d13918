"""Works on one cluster while this instance has its turn there.

Follows the cluster's objects, carries out placements and reports statuses.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from propagator.cluster.adoption_finder import Finder
from propagator.cluster.attempt_memory import AttemptMemories, AttemptMemory
from propagator.cluster.attempts import Attempts
from propagator.cluster.cluster_objects import ClusterObjects
from propagator.cluster.mirror import DependencyOwner, ObjectMirror
from propagator.cluster.namespaces import ClusterNamespaces
from propagator.cluster.shape_asker import ShapeAsker
from propagator.core.actions import (
    Hold,
    Nothing,
    PropagationRules,
    Question,
    Report,
    Write,
    hold_after_error,
    is_owned_by_target,
    needs_read_object,
    refused_action_report,
)
from propagator.core.desired import DesiredState, PartTarget, WantedState
from propagator.core.kinds import KINDS, kind_of_object
from propagator.core.live import LABEL_FLEET, DependencyReference, LiveState
from propagator.core.manifests import NamedTemplate
from propagator.core.reconcile import history_after_action, is_attempt_needed, next_action
from propagator.core.status import (
    AttemptOutcome,
    has_vanished,
    observed_status,
    status_on_hold,
    status_with_changed_field,
    status_with_other_objects,
)
from propagator.log.log_proof import LogProof
from propagator.log.orphans import Orphans
from propagator.log.reporter import Reporter
from propagator.settings import PropagatorSettings
from spillway import metrics, tracing
from spillway.addresses import PLACEMENTS
from spillway.bus import Bus, Headers
from spillway.clusters.api import (
    CONFIG_MAPS,
    SERVICES,
    Change,
    ClusterApi,
    ClusterUnreachable,
    Conflict,
    FollowingFailed,
    ListedObjects,
    ObjectRemoved,
    ObjectUpserted,
    Refused,
)
from spillway.events import STATE_ORPHANED, AdoptionAsked, WorkloadObserved
from spillway.kubernetes.objects import Kind
from spillway.model import NO_GENERATION
from spillway.running.isolation import ends_the_process, note_failed_work
from spillway.running.work_queue import WorkQueue

FOLLOWED = {
    **{name: kind.served for name, kind in KINDS.items()},
    "ConfigMap": CONFIG_MAPS,
    "Service": SERVICES,
}

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class SharedResources:
    """The objects that all cluster workers of one instance share.

    placed_by: the traces of placements that are not carried out yet, by target.
    slots: the places for attempts at all clusters together.
    """

    bus: Bus
    desired: DesiredState
    rules: PropagationRules
    settings: PropagatorSettings
    clock: Callable[[], float]
    slots: asyncio.Semaphore
    placed_by: tracing.Origins[PartTarget]
    proof: LogProof


class ClusterWorker:
    """Works on one cluster until run() is cancelled. Other methods pass on records of the log to it."""

    def __init__(self, cluster: str, epoch: int, api: ClusterApi, shared: SharedResources) -> None:
        self.cluster = cluster
        self.epoch = epoch
        self._api = api
        self._settings = shared.settings
        self._rules = shared.rules
        self._desired = shared.desired
        self._clock = shared.clock
        self._placed_by = shared.placed_by
        self._proof = shared.proof
        self._attempts = Attempts(shared.settings, shared.slots)
        self._namespaces = ClusterNamespaces(shared.clock, shared.settings.namespace_missing_seconds)
        self._cluster_objects = ClusterObjects(
            api,
            shared.rules.fleet,
            shared.clock,
            self._attempts.note_cluster_answer,
            self._namespaces,
            shared.settings,
        )
        self._mirror = ObjectMirror(cluster)
        self._queue = WorkQueue[PartTarget]()
        self._memories = AttemptMemories(shared.desired.logged_status, shared.rules, shared.clock)
        self._reporter = Reporter(
            shared.bus,
            epoch,
            shared.settings,
            self._status_despite_errors,
            shared.desired.logged_status,
            self._has_vanished,
        )
        self._orphans = Orphans(cluster, self._mirror, shared.desired, shared.proof, self._reporter.queue_status)
        self._finder = Finder(cluster, shared.rules.fleet, api, shared.bus, shared.desired, shared.settings)
        self._asker = ShapeAsker(
            epoch, api, shared.bus, shared.desired, self._attempts, self._cluster_objects, shared.settings
        )
        self._listed: set[str] = set()
        self._failing: set[str] = set()
        self._all_listed = asyncio.Event()
        self._waiting = metrics.OBJECTS_WAITING.labels(cluster)

    async def run(self) -> None:
        log.info("cluster taken", cluster=self.cluster, epoch=self.epoch)
        try:
            for target in self._desired.targets_in_cluster(self.cluster):
                self.refresh_target(target)
            async with asyncio.TaskGroup() as group:
                for name, kind in FOLLOWED.items():
                    group.create_task(self._follow_kind(name, kind))
                group.create_task(self._reporter.run())
                group.create_task(self._finder.run())
                group.create_task(self._asker.run())
                for _ in range(self._settings.objects_at_once):
                    group.create_task(self._work_off_queue())
        finally:
            self._queue.close()
            self._waiting.set(0)
            self._orphans.close()
            for target in self._memories:
                self._memories.forget_memory(target)
            log.info("the turn of a cluster is given back", cluster=self.cluster, epoch=self.epoch)
            await self._api.close()

    async def finish(self) -> None:
        """Publishes the statuses that are not published yet.

        Unfinished work may stay unfinished: the next owner of the turn reads the cluster again.
        """
        await self._reporter.flush()

    def refresh_target(self, target: PartTarget) -> None:
        """Considers the target again, because the log may want something else of it.

        An unexpected error is limited to this target.
        """
        try:
            self._refresh_target(target)
        except Exception as error:
            self._isolate_error(target, error)

    def _refresh_target(self, target: PartTarget) -> None:
        if self._desired.is_target_listed(target):
            self._memories.ensure_memory(target)
            self._queue_target_if_needed(target, asked=True)
        else:
            self._memories.forget_memory(target)
            self._reporter.forget_target(target)
        self._orphans.check_target(target)
        self._asker.update_target_template(target)

    def queue_adoption_question(self, asked: AdoptionAsked, trace: Headers) -> None:
        """Queues a question of the planner about the objects that are in the cluster before an adoption."""
        self._finder.queue_question(asked, trace)

    def has_admitted_shape(self, digest: str) -> bool:
        """Returns whether the log already has an answer of this cluster that admits pods of this template."""
        return self._asker.has_admitted_shape(digest)

    def queue_shape_question(self, template: NamedTemplate, trace: Headers) -> None:
        """Queues a planner's question about the shape that the cluster admits for a pod of this template."""
        self._asker.queue_question(template, trace)

    def republish_shape(self, digest: str) -> None:
        """Publishes the shape again, because an instance whose turn is over has published one for this template."""
        self._asker.republish_answer(digest)

    def ask_shape_again(self, digest: str) -> None:
        """Asks the cluster about the template again, because its shape was deleted in the log."""
        self._asker.ask_template_again(digest)

    def note_log_read(self, renewed: bool) -> None:
        """Reports orphans that have become certain by a new proof that the whole log was read.

        renewed: whether the previous proof had expired.
        """
        self._orphans.report_certain_orphans()
        if renewed and self._all_listed.is_set():
            self._orphans.republish_statuses()

    def republish_status(self, target: PartTarget, offset: int) -> None:
        """Publishes a status again if a writer without the turn has replaced it, or if it was deleted in the log."""
        self._reporter.republish_status(target, offset)

    # ── What the cluster tells ──────────────────────────────────────────────────────────────────────────────────────

    async def _follow_kind(self, name: str, kind: Kind) -> None:
        async for batch in self._api.follow_objects(kind, label_selector=f"{LABEL_FLEET}={self._rules.fleet}"):
            for change in batch:
                targets = (
                    self._apply_workload_change(name, change)
                    if name in KINDS
                    else self._apply_dependency_change(name, change)
                )
                self._note_stream_state(name, change)
                for target in targets:
                    self._orphans.check_target(target)
                    self._queue_target_if_needed(target, asked=False)
            if name in KINDS:
                self._orphans.warn_of_empty_log()

    def _apply_workload_change(self, kind: str, change: Change) -> frozenset[PartTarget]:
        match change:
            case ListedObjects(objects):
                return self._mirror.replace_workloads(kind, objects)
            case ObjectUpserted(found):
                changed = self._mirror.upsert_workload(found)
                return frozenset() if changed is None else frozenset({changed})
            case ObjectRemoved(found):
                return frozenset({self._mirror.remove_workload(found)})
            case _:
                return frozenset()

    def _apply_dependency_change(self, kind: str, change: Change) -> frozenset[PartTarget]:
        match change:
            case ListedObjects(objects):
                return self._targets_of_owners(self._mirror.replace_dependencies(kind, objects))
            case ObjectUpserted(found):
                return self._targets_of_owners(self._mirror.upsert_dependency(kind, found))
            case ObjectRemoved(found):
                return self._targets_of_owners(self._mirror.remove_dependency(kind, found))
            case _:
                return frozenset()

    def _targets_of_owners(self, owners: frozenset[DependencyOwner]) -> frozenset[PartTarget]:
        others = (owner for owner in owners if not self._memories.has_target_of_owner(owner))
        return self._memories.targets_of_owners(owners) | self._mirror.unlisted_targets(others)

    def _note_stream_state(self, name: str, change: Change) -> None:
        if isinstance(change, FollowingFailed):
            self._failing.add(name)
            metrics.CLUSTER_UNREACHABLE.labels(change.error.reason).inc()
            log.warning("a cluster cannot be followed", cluster=self.cluster, kind=name, error=str(change.error))
            return
        if name in self._failing:
            self._failing.discard(name)
            self._attempts.note_cluster_answer()
            log.info("a cluster is followed again", cluster=self.cluster, kind=name)
        if isinstance(change, ListedObjects) and name not in self._listed:
            self._listed.add(name)
            if self._listed == FOLLOWED.keys():
                self._all_listed.set()
                for target in self._memories:
                    self._queue_target_if_needed(target, asked=True)
                self._orphans.republish_statuses()

    def _queue_target_if_needed(self, target: PartTarget, *, asked: bool) -> None:
        """Puts the target in the queue unless the mirror shows already that nothing has to be done.

        asked: True if the log may want something else now. Then work that failed is tried again at once, and not at
            its next try.
        """
        try:
            self._queue_target_unguarded(target, asked=asked)
        except Exception as error:
            self._isolate_error(target, error)

    def _queue_target_unguarded(self, target: PartTarget, *, asked: bool) -> None:
        memory, wanted = self._memories.memory_of_target(target), self._desired.wanted_state(target)
        if memory is None or wanted is None or not self._all_listed.is_set():
            return
        self._choose_kind(memory, wanted)
        live = self._mirror.live_state_of(target, memory.kind)
        action = next_action(wanted, live, memory.history, self._clock(), self._rules)
        if isinstance(action, Nothing | Hold):
            self._end_attempt(memory, wanted, live, action)
        elif is_attempt_needed(memory.outcome, wanted.part.version, memory.failed, asked=asked):
            memory.note_work_due(self._clock())
            self._queue.add_target(target)
        self._reporter.queue_status(target)

    # ── What is done about it ───────────────────────────────────────────────────────────────────────────────────────

    async def _work_off_queue(self) -> None:
        await self._all_listed.wait()
        while True:
            target = await self._queue.take_target()
            try:
                about = {"k8s.cluster.name": self.cluster, "spillway.workload": _namespaced_name(target)}
                async with self._attempts.paced_attempt():
                    with tracing.processing_span(
                        PLACEMENTS.name, "propagator", about, self._placed_by.find_origin(target)
                    ):
                        await self._act_on_target(target)
            except ClusterUnreachable as error:
                metrics.CLUSTER_UNREACHABLE.labels(error.reason).inc()
                log.warning(
                    "cluster unreachable", cluster=self.cluster, workload=_namespaced_name(target), error=str(error)
                )
                self._queue.add_target(target, self._settings.unreachable_first_seconds)
            except Exception as error:
                self._isolate_error(target, error)
            finally:
                self._queue.finish_target(target)
                self._waiting.set(len(self._queue))

    def _isolate_error(self, target: PartTarget, error: Exception) -> None:
        """Limits an unexpected error to this object.

        The object stays as it is, its status says so, and it is tried again after a pause. Raises an error that ends
        the process.
        """
        if ends_the_process(error):
            raise error
        memory, text = self._memories.memory_of_target(target), f"{type(error).__name__}: {error}"
        about = {"cluster": self.cluster, "workload": _namespaced_name(target), "epoch": self.epoch}
        note_failed_work("propagator", "workload", error, traced=memory is None or memory.failed == 0, **about)
        if memory is not None and self._all_listed.is_set():
            self._queue.add_target(
                target, memory.note_unexpected_error(hold_after_error(text), self._clock(), self._settings)
            )
            self._reporter.queue_status(target)

    async def _act_on_target(self, target: PartTarget) -> None:
        """Acts on the target until nothing is left to do, a rule forbids to go on, or steps_max steps are used up."""
        live = self._live_state_if_empty(target)
        for _ in range(self._settings.steps_max):
            wanted, memory = self._desired.wanted_state(target), self._memories.memory_of_target(target)
            if wanted is None or memory is None:
                return
            self._choose_kind(memory, wanted)
            if live is None:
                live = await self._read_live_state(wanted, memory.kind)
                continue  # The log may have changed what is wanted during the read.
            action = next_action(wanted, live, memory.history, self._clock(), self._rules)
            if not live.read and needs_read_object(action):
                live = None
                continue
            if isinstance(action, Report | Hold | Nothing):
                self._end_attempt(memory, wanted, live, action)
                return
            if not isinstance(action, Question) and not self._proof.is_valid():
                log.warning(
                    "nothing is written to a cluster: the log does not answer",
                    cluster=self.cluster,
                    workload=_namespaced_name(target),
                )
                break
            try:
                live = await self._carry_out_action(action, wanted, live, memory)
            except Conflict as error:
                log.info(
                    "a write met a conflict: the object is read again",
                    cluster=self.cluster,
                    workload=_namespaced_name(target),
                    error=str(error),
                )
                live = None
            except Refused as error:
                if not live.read:  # A refusal is reported only with an object that was read.
                    live = None
                    continue
                self._end_attempt(memory, wanted, live, refused_action_report(action, memory.kind, str(error)))
                return
        self._queue.add_target(target, self._settings.retry_first_seconds)

    def _live_state_if_empty(self, target: PartTarget) -> LiveState | None:
        """Returns an empty LiveState if the mirror has nothing of the target and no attempt has failed; else None.

        The cluster need not be read then: creating an object that exists after all is a conflict, and a read follows
        it.
        """
        memory = self._memories.memory_of_target(target)
        if memory is None or memory.outcome is not None or self._mirror.has_objects_of_target(target):
            return None
        has_namespace = self._namespaces.has_namespace(target.namespace)
        return LiveState(looked={DependencyReference("Namespace", target.namespace): True} if has_namespace else {})

    async def _read_live_state(self, wanted: WantedState, kind: str) -> LiveState:
        target = wanted.target
        listed = {DependencyReference(dependency.kind, dependency.name) for dependency in wanted.dependencies}
        known = self._mirror.dependency_references_of(target)
        live = await self._cluster_objects.read_live_state(
            target, {one for one in listed | known if one.kind in FOLLOWED}, kind
        )
        self._store_in_mirror(target, live, kind)
        return live

    def _choose_kind(self, memory: AttemptMemory, wanted: WantedState) -> None:
        newest = self._mirror.newest_workload(wanted.target)
        declared = wanted.declaration.kind if wanted.declaration is not None else ""
        memory.kind = kind_of_object(declared, memory.kind, newest.kind if newest is not None else "")

    async def _carry_out_action(
        self, action: Write | Question, wanted: WantedState, live: LiveState, memory: AttemptMemory
    ) -> LiveState:
        live = await self._cluster_objects.carry_out_action(action, wanted.target, live)
        memory.history = history_after_action(memory.history, wanted, live, action, self._clock(), self._rules)
        if not isinstance(action, Question):
            memory.end_hold()
            self._store_in_mirror(wanted.target, live, memory.kind)
            log.info(
                "carried out",
                action=type(action).__name__,
                cluster=self.cluster,
                workload=_namespaced_name(wanted.target),
                version=str(wanted.part.version),
                replicas=wanted.part.replicas,
                epoch=self.epoch,
            )
        return live

    def _store_in_mirror(self, target: PartTarget, live: LiveState, kind: str) -> None:
        """Puts the answers to our own requests into the mirror, so that they need not wait for the watch."""
        found = live.workload
        self._mirror.put_workload(target, kind, found if found and found.marks.fleet == self._rules.fleet else None)
        for reference in self._mirror.dependency_references_of(target) | live.dependencies.keys():
            dependency = live.dependencies.get(reference)
            ours = dependency is not None and dependency.marks.fleet == self._rules.fleet
            self._mirror.put_dependency(target.namespace, reference, dependency if ours else None)

    def _end_attempt(
        self, memory: AttemptMemory, wanted: WantedState, live: LiveState, action: Report | Hold | Nothing
    ) -> None:
        """Ends one attempt at the target: stores its outcome, queues the next try, and queues the status."""
        target = wanted.target
        if self._memories.memory_of_target(target) is not memory:
            return  # The target was forgotten meanwhile.
        memory.looked_at = True
        memory.history = history_after_action(memory.history, wanted, live, action, self._clock(), self._rules)
        again: float | None = None
        lacked = memory.missing_objects
        match action:
            case Report(state, message, seconds, missing, job):
                outcome = AttemptOutcome(wanted.part.version, state, message, missing, job)
                again = memory.note_outcome(outcome, self._settings) or seconds or None
            case Hold():
                log.debug("held", cluster=self.cluster, workload=_namespaced_name(target), reason=action.reason)
                again = memory.note_hold(action, self._clock(), self._settings)
            case Nothing():
                memory.note_success(self._clock())
                self._placed_by.take_origin(target)
        if memory.missing_objects != lacked:
            self._asker.ask_target_template_again(target)
        if again is not None:
            self._queue.add_target(target, again)
        self._reporter.queue_status(target)

    def _status_despite_errors(self, target: PartTarget) -> WorkloadObserved | None:
        """Returns the status as `_status_in_cluster` does, and None for this object alone after an unexpected error."""
        try:
            return self._status_in_cluster(target)
        except Exception as error:
            if ends_the_process(error):
                raise
            note_failed_work("propagator", "workload", error, cluster=self.cluster, workload=_namespaced_name(target))
            return None

    def _status_in_cluster(self, target: PartTarget) -> WorkloadObserved | None:
        """Returns the status that the cluster shows for the target now; None before the first attempt of this turn."""
        memory = self._memories.memory_of_target(target)
        if memory is None:
            return (
                self._orphan_status(target) if self._orphans.is_orphan(target) and self._all_listed.is_set() else None
            )
        if not memory.looked_at:
            return None
        found = self._mirror.workload_of_kind(target, memory.kind)
        ours = found is not None and is_owned_by_target(found.marks, target, self._rules.fleet)
        shown = observed_status(target, found if ours else None, memory.outcome, memory.kind)
        shown = status_with_changed_field(shown, memory.history.changed)
        hold = memory.hold_reason_to_publish(self._clock(), self._settings)
        if hold:
            shown = status_on_hold(shown, self._desired.logged_status(target), target, hold)
        others = self._mirror.workloads.get(target, {}).keys() - {memory.kind}
        return status_with_other_objects(shown, (DependencyReference(kind, target.name) for kind in others))

    def _orphan_status(self, target: PartTarget) -> WorkloadObserved | None:
        found = self._mirror.newest_workload(target)
        version, kind = (found.version, found.kind) if found is not None else (NO_GENERATION, "")
        others = self._mirror.workloads.get(target, {}).keys() - {kind}
        beside = {DependencyReference(other, target.name) for other in others} | self._mirror.dependency_references_of(
            target
        )
        return status_with_other_objects(
            observed_status(target, found, AttemptOutcome(version, STATE_ORPHANED, ""), kind), beside
        )

    def _has_vanished(self, target: PartTarget) -> bool:
        return has_vanished(
            all_listed=self._all_listed.is_set(),
            log_read=self._proof.is_valid(),
            has_objects=self._mirror.has_objects_of_target(target),
            is_placed=self._desired.is_target_listed(target),
        )


def _namespaced_name(target: PartTarget) -> str:
    return f"{target.namespace}/{target.name}"
