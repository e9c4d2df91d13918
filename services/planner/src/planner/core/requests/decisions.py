"""Turns a request into events: the declaration, the placement, and the record of the decision.

It does not apply the events to the state; its caller does.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from planner.core.division.situation import Division
from planner.core.division.words import refusal_limits_text
from planner.core.feasibility.admitted import unmodelled_and_notes
from planner.core.knowledge import transfer
from planner.core.knowledge.allowance import CAUSE_MIGRATE
from planner.core.knowledge.closing import orphan_command_texts
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment, PlacementSubject
from planner.core.knowledge.workload import Workload, is_workload_gone
from planner.core.manifests.kinds import JOB
from planner.core.manifests.policy import TIERS_BY_WORK
from planner.core.manifests.request import Declaration, check_replicas, read_manifests
from planner.core.manifests.templates import read_template
from planner.core.placement import placing
from planner.core.placement.missing import Missing, missing_by_cluster, missing_warnings
from planner.core.placement.placing import PlacementResult
from planner.core.placement.whole import check_whole
from planner.core.requests import declaring, membership, migrating
from planner.core.requests.answers import placement_reply, uncomputed_volume_claims, unmodelled_in_workload
from planner.core.requests.remembering import remembered_answer, request_digest, with_answer_added
from spillway.api import (
    ApplyRequest,
    DeleteRequest,
    MigrateRequest,
    PlacementReply,
    RequestError,
    ScaleRequest,
)
from spillway.events import DependencyDeclared, Event, WorkloadDeclared
from spillway.model import UNPLACEABLE_REFUSE
from spillway.reasons import DEPENDENCY_MISSING, FITS_NO_NODE, NO_ROOM, details_of_clusters
from spillway.texts import first_names_text


class UndecidedRequest(Exception):
    """The request must wait for binds: its policy says Refuse, and its replicas only possibly fit now.

    clusters: the clusters where they possibly fit.
    """

    def __init__(self, text: str, clusters: Iterable[str] = ()) -> None:
        super().__init__(text)
        self.clusters = frozenset(clusters)


class UnheardRequest(UndecidedRequest):
    """The request must wait for newer messages of clusters: its policy says Refuse, and no room is known now."""


@dataclass(frozen=True, slots=True)
class DecidedRequest:
    """The events of a request, to be written in one transaction, and the reply to send once they are in the log."""

    events: tuple[Event, ...]
    reply: PlacementReply

    @property
    def events_and_reply(self) -> tuple[tuple[Event, ...], PlacementReply]:
        return self.events, self.reply


@dataclass(frozen=True, slots=True)
class UnansweredDecision:
    """The decision on a request, before its answer is part of the declaration.

    lacking: by cluster, the objects that the newest template names and the cluster reported missing.
    """

    declared: WorkloadDeclared
    dependencies: tuple[DependencyDeclared, ...]
    placed: PlacementResult
    unmodelled: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    lacking: Mapping[str, Missing] = field(default_factory=dict)


def decide_apply(state: PlannerState, request: ApplyRequest, moment: Moment) -> DecidedRequest:
    """Decides an Apply request: declares a workload and places it.

    Raises RequestError when the request is wrong, or the workload fits nowhere or is being deleted. Raises
    UndecidedRequest when the request must wait.
    """
    declaration = read_manifests(request.manifests)
    key = (declaration.namespace, declaration.name)
    digest = request_digest("apply", *request.manifests)
    answer = remembered_answer(state.rules, state.workloads.get(key), request.idempotency_key, digest, moment)
    if answer is not None:
        return DecidedRequest((), answer)
    declared, placed, subject = _place_declaration(state, declaration, moment)
    dependencies = declaring.dependency_records(state, declaration, declared)
    used = [part.cluster for part in placed.placement.parts if part.replicas]
    unmodelled, unknown = unmodelled_and_notes(state.admitted, declaration.shape, used)
    unmodelled = (*unmodelled, *uncomputed_volume_claims(state, declaration.shape, used))
    listed = [part.cluster for part in placed.placement.parts]
    warnings = (
        *declaration.warnings,
        *membership.policy_tier_warnings(state, declared.policy),
        *_ignored_replicas_warnings(state, declaration, declared),
        *unknown,
        *orphan_command_texts(state, key, declaration.kind, listed),
    )
    decided = UnansweredDecision(
        declared, dependencies, placed, unmodelled, warnings, missing_by_cluster(state, subject)
    )
    return answer_decision(state, decided, request.idempotency_key, digest, moment)


def find_used_clusters(state: PlannerState, declaration: Declaration, moment: Moment) -> frozenset[str]:
    """Returns the clusters that the replicas would go to now.

    Raises the errors of decide_apply() if the request would be refused or cannot be decided yet.
    """
    _, placed, _ = _place_declaration(state, declaration, moment)
    return frozenset(part.cluster for part in placed.placement.parts if part.replicas and not part.removing)


def _place_declaration(
    state: PlannerState, declaration: Declaration, moment: Moment
) -> tuple[WorkloadDeclared, PlacementResult, PlacementSubject]:
    """Checks and places a declaration. Returns the record to write (without its answer), the placement, the subject."""
    known = state.workloads.get((declaration.namespace, declaration.name))
    if known is not None and known.declared.deleting and known.parts:
        raise RequestError(
            "FAILED_PRECONDITION", f"workload {'/'.join(known.workload_key)}: Deleting: {_still_there_text(known)}"
        )
    transfer.refuse_in_transfer(known)
    declaring.check_kind(known, declaration)
    declaring.check_unchangeable(known, declaration)
    declaring.check_policy(state, declaration)
    declaring.check_dependencies(state, declaration)
    declared = declaring.next_declaration(state, declaration, known)
    along = [entry.manifest for entry in declaration.dependencies]
    declaring.check_namespace_limits(state, declared, along)
    check_whole(state, declared.kind, declared.replicas, declared.policy, known)
    subject = PlacementSubject(declared, read_template(declared.manifest, declared.namespace), known)
    placed = _place_after_waiting(
        declared, moment, lambda settled: placing.place_and_roll(state, subject, moment, "Apply", settled=settled)
    )
    _refuse_impossible(declared, placed.division, moment)
    declared = declaring.with_earlier_templates(declared, known, placed.placement.parts)
    declaring.check_namespace_limits(
        state, declared, along
    )  # Again: only now it is known which earlier templates it keeps.
    return declared, placed, subject


def decide_scale(state: PlannerState, request: ScaleRequest, moment: Moment) -> DecidedRequest:
    """Decides a Scale request: changes a workload's number of replicas.

    Raises RequestError when the workload is unknown, a Job, or being deleted, adopted or disowned. Also raises it when
    a scale policy sets its replicas, unless the workload has 0 replicas: it may be started again.
    """
    replicas = check_replicas(request.replicas, "replicas")
    known = find_workload(state, request.namespace, request.name)
    digest = request_digest("scale", str(request.replicas))
    answer = remembered_answer(state.rules, known, request.idempotency_key, digest, moment)
    if answer is not None:
        return DecidedRequest((), answer)
    refuse_gone(known)
    if known.declared.deleting:
        raise RequestError(
            "FAILED_PRECONDITION", f"workload {'/'.join(known.workload_key)}: Deleting: {_still_there_text(known)}"
        )
    transfer.refuse_in_transfer(known)
    if known.declared.kind == JOB:
        text = "a Job cannot be scaled: apply it with another parallelism"
        raise RequestError("FAILED_PRECONDITION", f"workload {'/'.join(known.workload_key)}: {text}")
    scaled_by = state.scalings.scaled_by(known.declared)
    resumes = known.declared.replicas == 0 and replicas > 0  # A scale policy may rest at 0 replicas.
    if scaled_by and not resumes:
        text = f"{scaled_by} scales it: change the bounds of that scale policy, or delete it first"
        raise RequestError("FAILED_PRECONDITION", f"workload {'/'.join(known.workload_key)}: {text}")
    changed = replicas != known.declared.replicas
    generation = known.declared.generation + 1 if changed else known.declared.generation
    declared = replace(known.declared, replicas=replicas, generation=generation)
    subject = PlacementSubject(declared, known.template, known)
    placed = _place_after_waiting(
        declared, moment, lambda settled: placing.place_workload(state, subject, moment, "Scale", settled=settled)
    )
    _refuse_unplaced(declared, placed.division, moment)
    declared = declaring.with_earlier_templates(declared, known, placed.placement.parts)
    unmodelled = unmodelled_in_workload(state, known, placed.placement.parts)
    decided = UnansweredDecision(declared, (), placed, unmodelled, lacking=missing_by_cluster(state, subject))
    return answer_decision(state, decided, request.idempotency_key, digest, moment)


def decide_migrate(state: PlannerState, request: MigrateRequest, moment: Moment) -> DecidedRequest:
    """Decides a Migrate request: moves all requested replicas to a cluster, or none.

    A person asked for these moves by name, so neither the budget nor a confirmation limits them.
    """
    check_replicas(request.replicas, "replicas")
    known = find_workload(state, request.namespace, request.name)
    digest = request_digest("migrate", request.to_cluster, request.from_cluster, str(request.replicas))
    answer = remembered_answer(state.rules, known, request.idempotency_key, digest, moment)
    if answer is not None:
        return DecidedRequest((), answer)
    refuse_gone(known)
    if known.declared.deleting:
        raise RequestError(
            "FAILED_PRECONDITION", f"workload {'/'.join(known.workload_key)}: Deleting: {_still_there_text(known)}"
        )
    transfer.refuse_in_transfer(known)
    counts = migrating.replicas_by_source(state, known, request, moment.now)
    placed = placing.migrate_replicas(state, known, counts, request.to_cluster, moment)
    for cluster, count in counts.items():
        state.brakes.spend_budget(CAUSE_MIGRATE, cluster, known.workload_key, count)
    decided = UnansweredDecision(
        known.declared, (), placed, unmodelled_in_workload(state, known, placed.placement.parts)
    )
    return answer_decision(state, decided, request.idempotency_key, digest, moment)


def decide_delete(state: PlannerState, request: DeleteRequest, moment: Moment) -> DecidedRequest:
    """Decides a Delete request. The placement keeps each part, to be removed, until its cluster reports it absent."""
    known = find_workload(state, request.namespace, request.name)
    digest = request_digest("delete")
    answer = remembered_answer(state.rules, known, request.idempotency_key, digest, moment)
    if answer is not None:
        return DecidedRequest((), answer)
    refuse_gone(known)
    transfer.refuse_in_transfer(known)
    declared = known.declared
    if not declared.deleting:
        declared = replace(declared, deleting=True, replicas=0, generation=declared.generation + 1)
    placed = placing.remove_workload(state, PlacementSubject(declared, known.template, known), moment)
    decided = UnansweredDecision(declared, (), placed, known.unmodelled_names)
    return answer_decision(state, decided, request.idempotency_key, digest, moment)


def _ignored_replicas_warnings(
    state: PlannerState, declaration: Declaration, declared: WorkloadDeclared
) -> tuple[str, ...]:
    if declaration.replicas in (None, declared.replicas):
        return ()
    scaled_by = state.scalings.scaled_by(declared)
    return (f"{declared.kind}.spec.replicas: {declaration.replicas} is ignored: {scaled_by} set {declared.replicas}",)


def _refuse_impossible(declared: WorkloadDeclared, division: Division, moment: Moment) -> None:
    of_what_is_idle = declared.policy.work in TIERS_BY_WORK  # Lent nodes come and go, so one may fit later.
    if declared.replicas and division.fits_nowhere and not of_what_is_idle:
        clusters = [entry for entry in division.inputs if entry.cluster]
        text = f"a replica fits no node, not even an empty one: {refusal_limits_text(clusters)}"
        raise RequestError(
            "FAILED_PRECONDITION",
            f"workload {declared.namespace}/{declared.name}: {text}",
            FITS_NO_NODE,
            details_of_clusters({entry.cluster for entry in clusters}),
        )
    _refuse_unplaced(declared, division, moment)


def _place_after_waiting(
    declared: WorkloadDeclared, moment: Moment, place: Callable[[bool], PlacementResult]
) -> PlacementResult:
    """Returns the placement of a request, with or without a wait for binds.

    place: makes the placement. Its argument says whether the wait for binds is over, so that replicas use later tiers.
    With the policy Refuse, a request that has waited for long or may not wait is placed so. If replicas still have no
    place then and the request may wait, the placement with a wait is used.
    """
    if declared.policy.unplaceable != UNPLACEABLE_REFUSE or (moment.patient and not moment.onward):
        return place(False)
    placed = place(True)
    return place(False) if moment.patient and placed.division.unplaced else placed


def _refuse_unplaced(declared: WorkloadDeclared, division: Division, moment: Moment) -> None:
    if not division.unplaced or declared.policy.unplaceable != UNPLACEABLE_REFUSE:
        return
    if moment.patient and division.uncertain == division.unplaced:
        uncertain = (entry.cluster for entry in division.inputs if entry.possible > entry.certain)
        raise UndecidedRequest(_no_room_text(declared, division), uncertain)
    if moment.listening:
        raise UnheardRequest(_no_room_text(declared, division))
    clusters = {entry.cluster for entry in division.inputs if entry.cluster}
    details = {"unplaced": str(division.unplaced), **details_of_clusters(clusters)}
    reason = NO_ROOM if division.unplaced > sum(division.missing.values()) else DEPENDENCY_MISSING
    raise RequestError("FAILED_PRECONDITION", _no_room_text(declared, division), reason, details)


def _no_room_text(declared: WorkloadDeclared, division: Division) -> str:
    wanted = sum(division.replicas.values()) + division.unplaced
    return (
        f"workload {declared.namespace}/{declared.name}: {division.unplaced} of {wanted} replicas have no "
        f"place, and the policy says Refuse: {division.waiting_text()}"
    )


def find_workload(state: PlannerState, namespace: str, name: str) -> Workload:
    key = (namespace or "default", name)
    known = state.workloads.get(key)
    if known is None:
        raise RequestError("NOT_FOUND", f"workload {key[0]}/{key[1]}: not declared")
    return known


def refuse_gone(workload: Workload) -> None:
    """Raises RequestError (NOT_FOUND) for a workload that was deleted or disowned and has left every cluster."""
    if is_workload_gone(workload):
        raise RequestError("NOT_FOUND", f"workload {'/'.join(workload.workload_key)}: not declared")


def _still_there_text(workload: Workload) -> str:
    return f"still in {first_names_text(workload.parts)}"


def answer_decision(
    state: PlannerState, decided: UnansweredDecision, key: str, digest: str, moment: Moment
) -> DecidedRequest:
    """Returns the events and the reply of a decision. The answer is added to the declaration, so that both are written
    to the log together. There are no events when nothing changes."""
    declared, placed = decided.declared, decided.placed
    reply = placement_reply(state, declared, placed.placement, placed.division, decided.unmodelled)
    missing = missing_warnings(decided.lacking, placed.placement.parts)
    parts = tuple(replace(part, missing=decided.lacking.get(part.cluster, part.missing)) for part in reply.parts)
    reply = replace(reply, parts=parts, warnings=(*missing, *decided.warnings))
    declared = with_answer_added(state.rules, declared, key, digest, reply, moment)
    known = state.workloads.get((declared.namespace, declared.name))
    if known is not None and known.declared == declared and not placed.events:
        return DecidedRequest((), reply)
    return DecidedRequest((declared, *decided.dependencies, *placed.events), reply)
