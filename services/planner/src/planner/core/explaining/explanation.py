"""Explains a placement: how many replicas each cluster takes and got, what limits it, and why it got no more.

Long work is split into steps, so that other requests are served between them. Each step is a `yield` of a generator.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from planner.core.division.situation import Division, HeldReplicas, Situation
from planner.core.division.tier_division import clusters_by_tier, maximum_in_cluster
from planner.core.division.words import limit_text
from planner.core.explaining.changing import ChangeSearch
from planner.core.explaining.supposing import IndistinguishablePods
from planner.core.explaining.witness import explain_node, node_reasons
from planner.core.feasibility.admitted import admission_difference_texts, unmodelled_and_notes, unmodelled_with_overhead
from planner.core.feasibility.limits import NO_LIMIT, LimitCode
from planner.core.feasibility.room import Room
from planner.core.knowledge.closing import orphan_command_texts
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment, PlacementSubject, subject_of_workload
from planner.core.knowledge.workload import is_workload_gone
from planner.core.manifests.request import check_replicas, read_manifests
from planner.core.manifests.templates import read_template
from planner.core.placement import placing
from planner.core.placement.replaying import replay_division
from planner.core.requests import declaring
from planner.core.requests.answers import placement_and_rollout_waits, reserved_by_workload, uncomputed_volume_claims
from spillway.api import ExplainedCluster, ExplainedNode, ExplainReply, ExplainRequest, NodeReason, RequestError
from spillway.events import DecisionRecorded, WorkloadDeclared
from spillway.feasibility.cluster_view import ClusterView, WorkloadKey
from spillway.feasibility.fit import compute_fit
from spillway.model import Shape, Tier
from spillway.texts import counted_noun

Steps = Generator[None, None, ExplainReply]

ENOUGH, MAXIMUM, ROOM, BINDS, HELD, REFUSES = "Enough", "Maximum", "Room", "Binds", "Held", "Refused"
PHASE, AGE, LEAVING, FROZEN, POLICY, ORPHAN = "Phase", "Age", "Leaving", "Frozen", "Policy", "Orphan"
MISSING = "DependencyMissing"
BOUND_BY_LIMIT = {
    LimitCode.HELD: HELD,
    LimitCode.PHASE: PHASE,
    LimitCode.TWIN: PHASE,
    LimitCode.REFUSED: REFUSES,
    LimitCode.ORPHAN: ORPHAN,
    LimitCode.AGE: AGE,
}
"""The codes of an explanation for limits by which a cluster takes no replica at all now."""
RESERVERS_SHOWN = 3
CLUSTERS_IN_VERDICT = 4
NO_HELD = HeldReplicas(0, 0, 0)
NO_ROOM = Room(0, 0, NO_LIMIT, when_empty=False)


@dataclass(frozen=True, slots=True)
class ExplainedCase:
    """The case to explain: the division of a subject, with its situation.

    subject: None for a past decision on a workload that is no longer declared.
    record: the record of a past decision; None for a division made now.
    """

    subject: PlacementSubject | None
    situation: Situation
    division: Division
    record: DecisionRecorded | None = None

    @property
    def workload_key(self) -> WorkloadKey:
        of = self.record or self._present_declaration
        return of.namespace, of.name

    @property
    def wanted_replicas(self) -> int:
        return (self.record or self._present_declaration).replicas

    @property
    def replica_shape(self) -> Shape:
        assert self.subject is not None, "of what was deleted no node is looked at"
        return self.subject.replica_shape

    @property
    def _present_declaration(self) -> WorkloadDeclared:
        assert self.subject is not None, "without a record it is as of now"
        return self.subject.declared

    @property
    def placed_replicas(self) -> int:
        return sum(self.division.replicas.values())


class _Explained(NamedTuple):
    """One explained cluster. together: a text for users with the limit of all its nodes together; empty without one."""

    entry: ExplainedCluster
    together: str


def explain_placement(
    state: PlannerState, request: ExplainRequest, moment: Moment, record: DecisionRecorded | None
) -> Steps:
    """Explains a placement as it would be decided now, or as a past decision's record shows it.

    record: the record of the past decision that the request names; None: explain as of now. Raises RequestError for a
    wrong request.
    """
    case = _present_case(state, request, moment) if record is None else _past_case(state, record)
    notes = _scale_notes(state, case)
    notes.extend(_rollout_notes(state, request, case))
    if record is not None:
        notes.append("rooms are those of the decision; nodes are not kept, so their reasons are not shown")
    found = []
    for one in _explained_clusters(state, case):
        found.append(one)
        yield
    clusters = [one.entry for one in found]
    node = _explained_node(state, case, request) if request.node else None
    subject, changes = case.subject, []
    unmodelled = (
        unmodelled_with_overhead(subject.template.unmodelled, subject.replica_shape) if subject is not None else ()
    )
    if record is None:
        assert subject is not None, "what is explained as of now is declared, or supposed to be"
        tried = ChangeSearch(state, subject, moment, () if request.node else clusters)
        try:
            yield from tried.search_changes()
        except IndistinguishablePods as why:
            notes.append(f"no change was tried: {why}")
        notes.extend(tried.notes)
        changes = tried.found
        shape, names = subject.replica_shape, [joined.cluster for joined in state.joined_clusters()]
        notes.extend(admission_difference_texts(state.admitted, shape, names))
        used = [name for name, count in case.division.replicas.items() if count]
        unmodelled, unknown = unmodelled_and_notes(
            state.admitted, replace(shape, unmodelled=subject.template.unmodelled), used
        )
        notes.extend(unknown)
        listed = subject.known.parts if subject.known is not None else ()
        notes.extend(orphan_command_texts(state, subject.workload_key, subject.declared.kind, listed))
        unmodelled = (*unmodelled, *uncomputed_volume_claims(state, shape, used))
    return ExplainReply(
        namespace=case.workload_key[0],
        name=case.workload_key[1],
        decision=str(record.generation) if record is not None else "",
        at_ms=record.at_ms if record is not None else 0,
        cause=record.cause if record is not None else "",
        replicas=case.wanted_replicas,
        placed=case.placed_replicas,
        unplaced=case.division.unplaced,
        verdict=_verdict_sentence(case, found),
        clusters=tuple(clusters),
        changes=tuple(changes),
        node=node,
        unmodelled=unmodelled,
        notes=tuple(notes),
        stale=False,
    )


def _scale_notes(state: PlannerState, case: ExplainedCase) -> list[str]:
    """Returns notes about the scale policy that set the number of replicas, if one did."""
    record = case.record
    if record is not None or case.subject is None:
        by = record.scaled_by if record is not None else ""
        return [f"replicas: {case.wanted_replicas}: decided by {by}"] if by else []
    declared = case.subject.declared
    scaled_by = state.scalings.scaled_by(declared)
    decided = state.scalings.decided.get(case.subject.workload_key)
    if not scaled_by:
        return []
    if decided is None or decided.generation != declared.scale_generation:
        return [f"scaled by {scaled_by}, which has decided nothing that is declared yet"]
    if decided.replicas != declared.replicas:  # The decision is older than the adoption, or the number is supposed.
        return [f"scaled by {scaled_by}, which has not decided on {declared.replicas}"]
    return [f"scaled by {scaled_by}: {decided.replicas}: {decided.reason}"]


def _rollout_notes(state: PlannerState, request: ExplainRequest, case: ExplainedCase) -> list[str]:
    """Returns a note with the progress and the waits of the workload's rollout, if its rollout is not done."""
    known = case.subject.known if case.subject is not None else None
    if known is None or case.record is not None or request.manifests or request.replicas >= 0:
        return []
    _, rollout = placement_and_rollout_waits(state, known.declared, known.placement)
    return [rollout] if rollout else []


def _present_case(state: PlannerState, request: ExplainRequest, moment: Moment) -> ExplainedCase:
    """Returns the case of a division made now. It is not refused when there is no room, as that is to be explained."""
    subject = _subject_of_manifests(state, request) if request.manifests else _declared_subject(state, request)
    if request.replicas >= 0:
        replicas = check_replicas(request.replicas, "replicas")
        subject = replace(subject, declared=replace(subject.declared, replicas=replicas))
    settled = subject.known is not None and subject.known.settled
    cause = "Apply" if request.manifests or request.replicas >= 0 else "Explain"  # A supposed request is by name.
    division = placing.place_workload(state, subject, moment, cause, settled=settled).division
    assert division.basis is not None, "a placed workload has a division"
    return ExplainedCase(subject, division.basis.situation, division)


def _subject_of_manifests(state: PlannerState, request: ExplainRequest) -> PlacementSubject:
    """Returns the subject of the request's manifests.

    If the request names a workload, its manifests are a policy, which is combined with that workload's own manifest.
    """
    own = _declared_subject(state, request).declared.manifest.decode() if request.name else ""
    declaration = read_manifests((own, *request.manifests) if own else request.manifests)
    known = state.workloads.get((declaration.namespace, declaration.name))
    known = None if known is None or is_workload_gone(known) or known.declared.deleting else known
    declaring.check_kind(known, declaration)
    declaring.check_unchangeable(known, declaration)
    declaring.check_policy(state, declaration)
    declared = declaring.next_declaration(state, declaration, known)
    return PlacementSubject(declared, read_template(declared.manifest, declared.namespace), known)


def _past_case(state: PlannerState, record: DecisionRecorded) -> ExplainedCase:
    """Returns the case of a past decision from its record, also for a workload deleted since."""
    found = replay_division(record)
    known = state.workloads.get((record.namespace, record.name))
    subject = subject_of_workload(known) if known is not None else None
    return ExplainedCase(subject, found.situation, replace(found.division, unplaced=record.unplaced), record)


def _declared_subject(state: PlannerState, request: ExplainRequest) -> PlacementSubject:
    key = (request.namespace or "default", request.name)
    known = state.workloads.get(key)
    if known is None or is_workload_gone(known) or known.declared.deleting:
        raise RequestError("NOT_FOUND", f"workload {key[0]}/{key[1]}: not declared")
    return subject_of_workload(known)


# ── Clusters ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _explained_clusters(state: PlannerState, case: ExplainedCase) -> Iterator[_Explained]:
    """Yields each cluster of each tier in the order of use, then the clusters that no tier selects."""
    tiers = clusters_by_tier(case.situation)
    for tier, names in tiers:
        for name in names:
            yield _explained_cluster(state, case, name, tier)
    selected = {name for _, names in tiers for name in names}
    for cluster in case.situation.clusters:
        if cluster.cluster not in selected:
            yield _explained_cluster(state, case, cluster.cluster, None)


def _explained_cluster(state: PlannerState, case: ExplainedCase, name: str, tier: Tier | None) -> _Explained:
    """Returns the explained cluster. Reasons by node and reservations are only known for a decision made now.

    tier: the tier that selects the cluster; None if no tier does. For a tier of node groups, only replicas on new nodes
    are counted.
    """
    situation, division = case.situation, case.division
    node_groups = tier is not None and tier.node_groups
    held = situation.held.get(name, NO_HELD)
    new = division.new.get(name, 0)
    before = held.new if node_groups else held.replicas - held.new
    after = new if node_groups else division.replicas.get(name, held.replicas) - new
    room = NO_ROOM if tier is None else situation.room(name, tier.node_groups)
    bound, why = _binding_limit(case, name, tier, room, after - before)
    view = state.clusters.get(name)
    of_nodes = case.record is None and tier is not None and not node_groups and view is not None
    reserved = reserved_by_workload(state, name, node_groups) if case.record is None else {}
    of_all = sum(reserved.values())
    most = sorted((("/".join(key), count) for key, count in reserved.items()), key=lambda item: (-item[1], item[0]))
    reasons, together = (
        _reasons_of_nodes(state, case, view, room, of_all) if of_nodes and view is not None else ((), "")
    )
    entry = ExplainedCluster(
        cluster=name,
        tier=tier.name if tier is not None else "",
        node_groups=node_groups,
        certain=room.certain,
        possible=room.possible,
        before=before,
        after=after,
        bound=bound,
        why=why,
        nodes=int(view.nodes.live_mask.sum()) if of_nodes and view is not None else 0,
        reasons=reasons,
        reserved_replicas=of_all,
        reserved=tuple(most[:RESERVERS_SHOWN]),
        age_ms=situation.age_ms.get(name, -1),
    )
    return _Explained(entry, together)


def _reasons_of_nodes(
    state: PlannerState, case: ExplainedCase, view: ClusterView, room: Room, reserved: int
) -> tuple[tuple[NodeReason, ...], str]:
    """Returns the reasons by node, and a text with the limit of all nodes together: quotas, promises, cluster state."""
    shape, together = state.shape_in(view.name, case.replica_shape), ""
    found = compute_fit(shape, view.nodes)
    if room.certain < found.total:
        not_bound = _not_bound_text(reserved) if reserved else ""
        together = not_bound if room.limited_by.nodes == found.node_limit() else limit_text(room.limited_by)
    return node_reasons(shape, view.nodes, together), together


def _not_bound_text(reserved: int) -> str:
    return f"{counted_noun(reserved, 'replica')} reserved, not bound yet"


def _binding_limit(case: ExplainedCase, name: str, tier: Tier | None, room: Room, more: int) -> tuple[str, str]:
    """Returns the limit of a cluster, as code and text. more: how many more replicas it got than it had.

    If several limits apply, the first one in the order of the checks below counts.
    """
    situation, division = case.situation, case.division
    if tier is None:
        return POLICY, "no tier of the policy selects it"
    if name in situation.reasons:
        return LEAVING, f"the replicas in this cluster are to move: {situation.reasons[name]}"
    if name in situation.fixed and any(situation.moving.values()):
        return FROZEN, "a brake is on: nothing moves there that nobody asked for by name"
    if name in situation.missing:
        return MISSING, f"{situation.missing[name]} is missing there"
    if division.unplaced <= division.uncertain and not division.unplaced:
        left = max(0, room.certain - max(0, more))
        fit = f"room for {left} more, after that the limit is" if left else "no more fit:"
        text = limit_text(room.limited_by)
        return ENOUGH, f"all have a place; {fit} {text}" if text else "all have a place"
    most = maximum_in_cluster({limit.cluster: limit for limit in situation.policy.limits}, name)
    if division.replicas.get(name, 0) >= most:
        return MAXIMUM, f"the policy's maximum there is {most}"
    bound = BOUND_BY_LIMIT.get(room.limited_by.code)
    if bound is not None:
        return bound, limit_text(room.limited_by)
    if room.possible > room.certain and division.uncertain:
        more_possible = room.possible - room.certain
        return BINDS, f"{more_possible} more possibly fit: that is known once what was promised before has bound"
    text = limit_text(room.limited_by)
    return ROOM, text if room.certain <= max(0, more) else division.whole or text


# ── In words ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _verdict_sentence(case: ExplainedCase, found: Sequence[_Explained]) -> str:
    """Returns the explanation's first sentence: where the replicas are, or how many have no place, and the limits.

    Of several reasons to wait it names only one, in this order: fits no node, binds, missing objects, lent nodes.
    """
    division, clusters = case.division, [one.entry for one in found]
    # A policy that duplicates a workload places its replicas in every cluster, so this may be more than were asked for.
    replicas = case.placed_replicas + division.unplaced
    where = ", ".join(
        f"{entry.cluster}{' on new nodes' if entry.node_groups else ''} {entry.after}"
        for entry in clusters
        if entry.after
    )
    if not division.unplaced:
        return f"all {replicas} replicas have a place: {where}" if replicas else "no replica is asked for"
    waits = f"{division.unplaced} of {replicas} replicas have no place"
    if division.fits_nowhere:
        waits = f"a replica fits no node, not even an empty one: {waits}"
    elif division.uncertain:
        waits += f", {division.uncertain} of them until what was promised before has bound"
    elif division.missing:
        waits += f", {sum(division.missing.values())} of them until {'; '.join(sorted(division.missing))}, is there"
    elif division.lent:
        owners = ", ".join(sorted(division.lent))
        waits += f", {sum(division.lent.values())} of them until {owners} has lent nodes back"
    limits = [f"{one.entry.cluster}: {_short_reason(*one)}" for one in found if one.entry.bound not in (ENOUGH, POLICY)]
    more = f"; and {len(limits) - CLUSTERS_IN_VERDICT} clusters more" if len(limits) > CLUSTERS_IN_VERDICT else ""
    placed = f"; placed: {where}" if where else ""
    return f"{waits} ({'; '.join(limits[:CLUSTERS_IN_VERDICT])}{more}){placed}"


def _short_reason(entry: ExplainedCluster, together: str) -> str:
    """Returns a short text with the reason of most nodes, or with the cluster's own limit if it limits all nodes."""
    if entry.bound != ROOM or not entry.reasons or entry.node_groups:
        return entry.why
    first = entry.reasons[0]
    if first.filter:
        return f"{first.reason} on {first.nodes} of {entry.nodes} nodes"
    return entry.why if together in entry.why else f"{entry.why}; {together}"


def _explained_node(state: PlannerState, case: ExplainedCase, request: ExplainRequest) -> ExplainedNode:
    view = state.clusters.get(request.cluster)
    if view is None or view.joined is None:
        raise RequestError("NOT_FOUND", f"cluster {request.cluster!r}: no cluster of the fleet has this name")
    return explain_node(state.shape_in(view.name, case.replica_shape), view.nodes, request.cluster, request.node)
