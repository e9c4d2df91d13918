"""Adopts objects that already run in clusters: the replicas that run become the placement.

Nothing is divided or scaled until somebody asks for it.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.core.division.situation import Division
from planner.core.division.tier_division import cluster_inputs_of
from planner.core.division.words import DivisionEntry
from planner.core.feasibility.admitted import unmodelled_with_overhead
from planner.core.feasibility.limits import Limit, LimitCode
from planner.core.knowledge.ages import age_ms
from planner.core.knowledge.closing import DEPLOYMENT, text_of_commands_to_keep
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.knowledge.transfer import refuse_in_transfer
from planner.core.knowledge.workload import Workload, is_workload_gone
from planner.core.manifests.policy import clusters_of_tiers
from planner.core.manifests.request import POLICY_KINDS, read_manifests
from planner.core.placement.placing import PlacementResult, needed_events
from planner.core.placement.recording import CODE_VERSION
from planner.core.requests import declaring
from planner.core.requests.cluster_names import unknown_cluster_error
from planner.core.requests.decisions import DecidedRequest, UnansweredDecision, answer_decision
from planner.core.requests.remembering import remembered_answer, request_digest, without_old_answers
from spillway.api import AdoptRequest, PlacementReply, RequestError, invalid_argument_error
from spillway.events import (
    FOUND,
    FOUND_NOTHING,
    STATE_ABSENT,
    STATE_NOT_OWNED,
    STATE_PRESENT,
    AdoptionAsked,
    DecisionRecorded,
    Event,
    PlacementDecided,
    WorkloadDeclared,
    WorkloadFound,
)
from spillway.feasibility.cluster_view import NEVER, WorkloadKey
from spillway.kubernetes.live_objects import first_difference
from spillway.kubernetes.manifest_text import LABEL_NAME, check_name, read_object
from spillway.model import STRATEGY_DUPLICATED, Part, Policy
from spillway.texts import counted_noun

KINDS = ("deployment", "deployments", "deploy", "Deployment")
NOT_SPLIT = ("statefulset", "job", "daemonset", "cronjob", "pod", "replicaset")
CLUSTERS_MAX = 1000


@dataclass(frozen=True, slots=True)
class RunningReplicas:
    """The replicas and the UID of the object, by cluster.

    fleet: the id of the former fleet, when a fleet is recovered; else empty.
    """

    replicas: Mapping[str, int]
    uids: Mapping[str, str]
    fleet: str


def adoption_question(state: PlannerState, request: AdoptRequest, moment: Moment) -> AdoptionAsked | PlacementReply:
    """Returns the question to the clusters, or the remembered answer of this request.

    Raises RequestError if the request is wrong.
    """
    key = _checked_key(request)
    known = state.workloads.get(key)
    remembered = remembered_answer(state.rules, known, request.idempotency_key, _adopt_request_digest(request), moment)
    if remembered is not None:  # The request was carried out before, whatever has become of its clusters since.
        return remembered
    clusters = _checked_clusters(state, request.clusters, moment)
    _refuse_known_workload(known, clusters)
    return AdoptionAsked(moment.generation, *key, clusters, "")


def decide_adoption(
    state: PlannerState, request: AdoptRequest, found: Mapping[str, WorkloadFound], moment: Moment
) -> DecidedRequest:
    """Decides an Adopt request: declares the found object, with the replicas that run now as its placement.

    Raises RequestError when the object cannot be adopted.
    """
    key = _checked_key(request)
    known = state.workloads.get(key)
    remembered = remembered_answer(state.rules, known, request.idempotency_key, _adopt_request_digest(request), moment)
    if remembered is not None:
        return DecidedRequest((), remembered)
    _refuse_known_workload(known, tuple(found))
    for cluster in sorted(found):
        _refuse_unadoptable(key, found[cluster])
    refuse_different_manifests(key, found)
    running = RunningReplicas(
        {cluster: entry.replicas for cluster, entry in found.items()},
        {cluster: entry.uid for cluster, entry in found.items()},
        "",
    )
    first = found[min(found)]
    _refuse_other_kinds(request.policy)
    texts = (*manifest_texts(first), *((request.policy,) if request.policy else ()))
    waits = None if known is None or is_workload_gone(known) else known
    kept = waits.declared.policy if waits is not None and not request.policy else None
    decided = declared_as_found(state, key, texts, running, moment, "Adopt", kept)
    declaring.check_namespace_limits(state, decided.declared, (entry.manifest for entry in decided.dependencies))
    if waits is not None:
        decided = replace(decided, warnings=(*decided.warnings, _replaced_declaration_warning(waits)))
    return answer_decision(state, decided, request.idempotency_key, _adopt_request_digest(request), moment)


def declared_as_found(
    state: PlannerState,
    key: WorkloadKey,
    texts: Sequence[str],
    running: RunningReplicas,
    moment: Moment,
    cause: str,
    kept: Policy | None = None,
) -> UnansweredDecision:
    """Returns the declaration of a running object, and its placement with the replicas that run.

    Raises RequestError when the object cannot be declared.
    texts: the manifests. kept: a policy that the workload has already and keeps, in place of the one in the texts.
    """
    declaration = read_manifests(texts)
    if kept is not None:
        declaration = replace(declaration, policy=kept)
    assert (declaration.namespace, declaration.name) == key, f"{key}: the manifest found is of another object"
    declaring.check_policy(state, declaration)
    _refuse_copies(declaration.policy)
    declaring.check_dependencies(state, declaration)
    known = state.workloads.get(key)
    declaring.check_kind(known, declaration)
    declared = declaring.next_declaration(state, declaration, known)
    total = sum(running.replicas.values())
    generation = declared.generation + (known is not None and declared.generation <= known.declared.generation)
    counts_from = state.scalings.newest_generation(key, known.declared.scale_generation if known is not None else None)
    declared = replace(declared, replicas=total, generation=generation, scale_generation=counts_from)
    declared = without_old_answers(state.rules, declared, moment)
    parts = _adopted_parts(declared, running, moment)
    placement = PlacementDecided(*key, moment.generation, declared.generation, parts, 0, "")
    record = _adoption_record(state, declared, parts, moment, cause)
    dependencies = declaring.dependency_records(state, declaration, declared)
    needed = needed_events(state, key, placement, moment, {})  # An earlier wait for nodes is over.
    placed = PlacementResult(
        placement, Division({}, {}, 0, inputs=_division_entries(state, parts, moment.now)), (placement, *needed, record)
    )
    warnings = (
        *declaration.warnings,
        *_ruled_out_warnings(state, declared.policy, running),
        *_scale_policy_warnings(state, declared),
    )
    return UnansweredDecision(
        declared,
        dependencies,
        placed,
        unmodelled_with_overhead(declaration.shape.unmodelled, declaration.shape),
        warnings,
    )


def _adopted_parts(declared: WorkloadDeclared, running: RunningReplicas, moment: Moment) -> tuple[Part, ...]:
    """Returns the part of each cluster, with the replicas that were found there."""
    return tuple(
        Part(
            cluster,
            moment.generation,
            count,
            0,
            # Nothing is reserved: the pods count as any other pods until the object bears Spillway's marks.
            ceiling=0,
            removing=False,
            template_generation=declared.template_generation,
            adopting=True,
            found_uid=running.uids[cluster],
            found_fleet=running.fleet,
            replicas_by_name=count,
        )
        for cluster, count in sorted(running.replicas.items())
    )


def _replaced_declaration_warning(waits: Workload) -> str:
    wanted = counted_noun(waits.declared.replicas)
    return f"declared before, {wanted} and none placed: what runs is declared in its stead; apply it again to have that"


def _ruled_out_warnings(state: PlannerState, policy: Policy, running: RunningReplicas) -> Iterator[str]:
    """Yields warnings about replicas that run where the policy does not allow them: adopting moves nothing."""
    allowed = {name for _, names in clusters_of_tiers(policy.tiers, state.joined_clusters()) for name in names}
    most = {limit.cluster: limit.replicas_max for limit in policy.limits if limit.replicas_max >= 0}
    for name, count in sorted(running.replicas.items()):
        bound = most.get(name, count) if name in allowed else 0
        if count > bound:
            why = f"the policy says at most {bound}" if name in allowed else "the policy rules this cluster out"
            yield f"{name}: {why}: {counted_noun(count - bound)} will leave once a person scales or applies it"


def _scale_policy_warnings(state: PlannerState, declared: WorkloadDeclared) -> Iterator[str]:
    """Yields a warning if a scale policy is attached to the workload. It can remain from before a disowning.

    Only its new decisions will count.
    """
    scaled_by = state.scalings.scaled_by(declared)
    if scaled_by:
        yield f"scaled by {scaled_by}: what it decides from now on counts, nothing that it decided before"


def _refuse_other_kinds(policy: str) -> None:
    """Raises RequestError if the manifest is not a policy.

    The user gives no ConfigMaps and Services: the clusters report those that the workload uses.
    """
    kind = read_object(policy, "policy")["kind"] if policy else POLICY_KINDS[0]
    if kind not in POLICY_KINDS:
        raise invalid_argument_error("policy.kind", kind, " or ".join(POLICY_KINDS))


def _refuse_copies(policy: Policy) -> None:
    """Raises RequestError for the strategy Duplicated: there each cluster has all replicas, and an adoption adds up the
    replicas of all clusters."""
    if policy.strategy is not None and policy.strategy.name == STRATEGY_DUPLICATED:
        raise invalid_argument_error(
            "PlacementPolicy.spec.strategy.name",
            STRATEGY_DUPLICATED,
            "another strategy: apply this one after the workload is adopted",
        )


def follow_adoption(state: PlannerState, workload: Workload, moment: Moment) -> tuple[Event, ...]:
    """Returns the events that follow from new statuses of adopting parts; none when no part changed.

    A part may have been taken over as found or with another number of replicas, or could not be taken over. Adopting
    scales nothing: the placement gets the replicas that run.
    """
    placement = workload.placement
    if placement is None:
        return ()
    parts = (_followed_part(state, workload, part, moment) for part in placement.parts)
    followed = tuple(part for part in parts if part is not None)
    if followed == placement.parts:
        return ()
    declared, events = workload.declared, list[Event]()
    lost = sum(part.replicas for part in placement.parts) - sum(part.replicas for part in followed)
    if lost or not followed:
        declared = replace(
            declared,
            replicas=max(0, declared.replicas - lost),
            generation=declared.generation + 1,
            disowning=not followed,
        )
        events.append(without_old_answers(state.rules, declared, moment))
    events.append(
        replace(placement, parts=followed, generation=moment.generation, workload_generation=declared.generation)
    )
    return tuple(events)


def refuse_different_manifests(key: WorkloadKey, found: Mapping[str, WorkloadFound]) -> None:
    """Raises RequestError when two clusters have different manifests or dependencies under this name."""
    one, *others = sorted(found)
    for other in others:
        where = first_difference(_parsed_objects(found[one]), _parsed_objects(found[other]))
        if where:
            raise RequestError(
                "FAILED_PRECONDITION",
                f"workload {'/'.join(key)}: it differs between clusters {one} and {other}, first in {where}: make "
                "the two alike, "
                "or adopt it in one of them",
            )


def manifest_texts(found: WorkloadFound) -> tuple[str, ...]:
    return (found.manifest.decode(), *(one.decode() for one in found.dependencies))


def _followed_part(state: PlannerState, workload: Workload, part: Part, moment: Moment) -> Part | None:
    observed = workload.statuses.get(part.cluster)
    if part.adopting and state.is_lost_for_good(part.cluster, moment.now):
        return None
    if not part.adopting or observed is None or observed.version != part.version:
        return part
    if observed.state not in (STATE_NOT_OWNED, STATE_ABSENT, STATE_PRESENT) or not state.owners.may_decide_finally(
        observed
    ):
        return part
    if observed.state != STATE_PRESENT:
        return None
    if observed.spec_replicas == part.replicas:
        return replace(part, ceiling=part.replicas, adopting=False, found_uid="", found_fleet="")
    return replace(
        part,
        version=moment.generation,
        replicas=observed.spec_replicas,
        replicas_by_name=observed.spec_replicas,
    )


def _checked_key(request: AdoptRequest) -> WorkloadKey:
    if request.kind.lower() in NOT_SPLIT:
        text = f"kind: {request.kind!r}: expected deployment: a {request.kind} cannot be adopted yet"
        raise RequestError("INVALID_ARGUMENT", text)
    if request.kind not in KINDS:
        raise invalid_argument_error("kind", request.kind, "deployment")
    return (
        check_name(request.namespace or "default", "namespace", LABEL_NAME, 63),
        check_name(request.name, "name"),
    )


def _checked_clusters(state: PlannerState, names: Sequence[str], moment: Moment) -> tuple[str, ...]:
    joined = {cluster.cluster for cluster in state.joined_clusters()}
    if not names or len(names) > CLUSTERS_MAX or len(set(names)) != len(names):
        raise invalid_argument_error("clusters", list(names), f"1 to {CLUSTERS_MAX} clusters, each once")
    for name in names:
        if name not in joined:
            raise unknown_cluster_error(state, "clusters", name)
        stale = state.clusters[name].staleness_reason(moment.now, state.rules.capacity_age_max)
        if stale:
            raise RequestError(
                "FAILED_PRECONDITION", f"cluster {name}: {stale}: Spillway does not know what runs there"
            )
        if state.clusters[name].twin_reason:
            raise RequestError(
                "FAILED_PRECONDITION", f"cluster {name}: {state.clusters[name].twin_reason}: adopt it there"
            )
    return tuple(sorted(names))


def _refuse_known_workload(known: Workload | None, clusters: Collection[str]) -> None:
    """Raises RequestError if the workload is declared and has a part.

    A declared workload without a part may be adopted: the running object then replaces its declaration.
    """
    if known is None or is_workload_gone(known):
        return
    name = "/".join(known.workload_key)
    if known.declared.disowning:
        refuse_in_transfer(known)
    if known.declared.deleting:
        text = f"workload {name}: Deleting: still in {', '.join(sorted(known.parts))}: try again"
        raise RequestError("FAILED_PRECONDITION", text)
    if not known.parts:
        return
    if known.declared.kind == DEPLOYMENT:
        text = f"{text_of_commands_to_keep(known.workload_key, clusters, known.parts)} the replicas in all clusters"
    else:
        text = f"it is a {known.declared.kind}: choose another name"
    raise RequestError("ALREADY_EXISTS", f"workload {name}: it is declared already, and placed: {text}")


def _refuse_unadoptable(key: WorkloadKey, found: WorkloadFound) -> None:
    if found.state != FOUND:
        code = "NOT_FOUND" if found.state == FOUND_NOTHING else "FAILED_PRECONDITION"
        text = f"deployment {'/'.join(key)} in cluster {found.cluster}: {found.message}"
        raise RequestError(code, text)


def _parsed_objects(found: WorkloadFound) -> dict[str, object]:
    along = [json.loads(one) for one in found.dependencies]
    named = {f"{one['kind']} {one['metadata']['name']}": one for one in along}
    loaded: dict[str, object] = json.loads(found.manifest)
    return loaded | named


def _adopt_request_digest(request: AdoptRequest) -> str:
    return request_digest("adopt", *sorted(request.clusters), request.policy)


def _adoption_record(
    state: PlannerState, declared: WorkloadDeclared, parts: Sequence[Part], moment: Moment, cause: str
) -> DecisionRecorded:
    views = {part.cluster: state.clusters[part.cluster] for part in parts}
    return DecisionRecorded(
        namespace=declared.namespace,
        name=declared.name,
        generation=moment.generation,
        at_ms=moment.wall_ms,
        cause=cause,
        replicas=declared.replicas,
        unplaced=0,
        inputs=cluster_inputs_of(_division_entries(state, parts, moment.now)),
        positions=tuple(
            (f"capacity-changes/{name}", view.offset) for name, view in views.items() if view.offset != NEVER
        ),
        settings=state.rules.to_text(),
        code_version=CODE_VERSION,
    )


def _division_entries(state: PlannerState, parts: Sequence[Part], now: float) -> tuple[DivisionEntry, ...]:
    return tuple(
        DivisionEntry(
            cluster=part.cluster,
            tier=view.joined.tier if (view := state.clusters[part.cluster]).joined else "",
            certain=0,
            possible=0,
            reserved=0,
            before=part.replicas,
            after=part.replicas,
            limited_by=Limit(LimitCode.FOUND),
            age_ms=age_ms(view, now),
        )
        for part in parts
    )
