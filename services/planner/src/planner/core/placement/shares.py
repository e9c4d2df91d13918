"""Computes a workload's replicas in each cluster before and after a division, and the parts of its placement."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from planner.core.division.situation import LOST, Division, HeldReplicas
from planner.core.feasibility.reservation import is_object_settled, is_rolling, next_ceiling
from planner.core.knowledge.reserving import part_after_refusal
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.workload import Workload, refusal_status
from spillway.feasibility.cluster_view import WorkloadKey
from spillway.model import Generation, ObjectReference, Part, WorkloadFacts


@dataclass(frozen=True, slots=True)
class PartShare:
    """The replicas that a part will list. new: how many of the kept replicas need new nodes."""

    kept: int
    new: int
    lost: int
    leaving: int

    @property
    def replicas(self) -> int:
        return self.kept + self.lost + self.leaving


def held_by_cluster(state: PlannerState, workload: Workload, now: float) -> dict[str, HeldReplicas]:
    """Returns, for a division, the replicas that the workload has in each cluster.

    Clusters whose part is being removed are left out.
    """
    held = {}
    for part in workload.parts.values():
        if part.removing:
            continue
        kept = part.replicas_kept
        reservation = state.reservation_of(workload.workload_key, part.cluster)
        unbound = min(unbound_kept(state, workload, part), kept)
        idle = min(state.unbound_replicas(workload, part), part.replicas_leaving)
        view = state.clusters.get(part.cluster)
        may_keep = view is not None and not view.must_hand_over and state.is_fresh(part.cluster, now)
        # During a rollout, replicas may leave because the new template has no room for them.
        facts = facts_in_cluster(state, workload.workload_key, part.cluster)
        rolls = is_rolling(part, facts, workload.declared.rolling_from)
        may_keep = may_keep and not rolls
        held[part.cluster] = HeldReplicas(
            replicas=kept,
            new=min(reservation.new, unbound),
            unbound=unbound,
            lost=part.replicas_lost,
            leaving=part.replicas_leaving,
            may_keep=part.replicas_leaving - idle if may_keep else 0,
            idle=idle,
            unready=0 if rolls else min(_unready_replicas(part, facts), kept - unbound),
            by_name=min(part.replicas_by_name, kept),
        )
    return held


def unbound_kept(state: PlannerState, workload: Workload, part: Part) -> int:
    """Returns how many kept replicas of a part are not bound: its unbound replicas minus its leaving ones.

    A ReplicaSet that is scaled in deletes the pods first that are not running. So unbound replicas leave first.
    """
    return max(0, state.unbound_replicas(workload, part) - part.replicas_leaving)


def _unready_replicas(part: Part, facts: WorkloadFacts | None) -> int:
    """Returns how many bound replicas the record shows as not ready; 0 unless it shows the part's version."""
    if facts is None or facts.version != part.version:
        return 0
    return max(0, sum(count for _, count in facts.counted) - facts.ready_replicas)


def share_of_cluster(held: HeldReplicas | None, division: Division, cluster: str) -> PartShare:
    """Returns the share of one cluster after a division. held: its replicas before; None if it had none."""
    kept, new = division.replicas.get(cluster, 0), division.new.get(cluster, 0)
    if held is None:
        return PartShare(kept, new, 0, 0)
    moved, leaving = division.moved.get(cluster, 0), held.leaving - division.kept_again.get(cluster, 0)
    if division.reasons.get(cluster) in LOST:
        return PartShare(kept, new, held.lost + moved, leaving)
    return PartShare(kept, new, held.lost, leaving + moved)


def part_with_new_version(
    state: PlannerState,
    key: WorkloadKey,
    cluster: str,
    before: Part | None,
    share: PartShare,
    version: Generation,
    template: int,
) -> Part:
    """Returns a part with a new version. template: the template generation that the part has."""
    stays_empty = before is not None and not before.replicas and not before.removing
    return Part(
        cluster=cluster,
        version=version,
        replicas=share.replicas,
        replicas_new=share.new,
        ceiling=max(share.replicas, ceiling_before_change(state, key, before, cluster)),
        removing=share.replicas == 0 and not stays_empty,
        template_generation=template,
        replicas_lost=share.lost,
        replicas_leaving=share.leaving,
    )


def part_with_missing_objects(
    state: PlannerState,
    key: WorkloadKey,
    part: Part,
    before: Part | None,
    waits_for: Mapping[str, tuple[ObjectReference, ...]],
    version: Generation,
) -> Part:
    """Returns the part with the objects that its cluster lacks and that replicas wait for. waits_for: by cluster.

    A part without replicas stays listed while replicas wait there, as its cluster must report when the object is there.
    The part gets a new version when it is first listed for that, and when it is removed.
    """
    missing = waits_for.get(part.cluster, ())
    if part.missing == missing and (part.replicas or not (missing and part.removing)):
        return part
    part = replace(part, missing=missing)
    waited = before is not None and before.missing
    if part.replicas or not (missing or waited):
        return part
    ceiling = ceiling_before_change(state, key, before, part.cluster)
    return replace(part, version=version, removing=not missing, ceiling=ceiling)


def ceiling_before_change(state: PlannerState, key: WorkloadKey, before: Part | None, cluster: str) -> int:
    """Returns the most replicas decided since the version last seen on the object, before a change of the part.

    A version counts as seen once the object's controller has followed it. Until then pods of an earlier, larger number
    may still bind.
    """
    if before is None:
        return 0
    known, facts = state.workloads.get(key), facts_in_cluster(state, key, cluster)
    if known is not None:
        before = part_after_refusal(state, known, before)
        if facts is not None and not is_object_settled(facts, known.template_of(before).surge_of(facts.spec_replicas)):
            facts = None
    return next_ceiling(before, facts, 0)


def first_part(cluster: str, version: Generation, division: Division, template: int, sent: Mapping[str, int]) -> Part:
    """Returns a part for a cluster where the workload has no part yet.

    sent: by cluster, replicas that a person sent there by name.
    """
    kept, new = division.replicas.get(cluster, 0), division.new.get(cluster, 0)
    by_name = min(sent.get(cluster, 0), kept)
    return Part(cluster, version, kept, new, kept, False, template, replicas_by_name=by_name)


def parts_without_shared(state: PlannerState, parts: Sequence[Part], version: Generation) -> list[Part]:
    """Returns the parts without those to be removed whose API server has another name with a part that stays.

    Both parts have the same object, and its removal would end the pods of the part that stays. The part that stays gets
    `version`, so that its version is above the object's, whichever part wrote the object last.
    """
    servers = {part.cluster: _first_name_of_server(state, part.cluster) for part in parts}
    stay = {servers[part.cluster] for part in parts if not part.removing}
    shared = {servers[part.cluster] for part in parts if part.removing} & stay
    return [
        replace(part, version=version) if servers[part.cluster] in shared else part
        for part in parts
        if not (part.removing and servers[part.cluster] in shared)
    ]


def _first_name_of_server(state: PlannerState, cluster: str) -> str:
    """Returns the name under which the cluster's API server joined first."""
    view = state.clusters.get(cluster)
    return view.twin_of or cluster if view is not None else cluster


def held_after_leaving(held: HeldReplicas, count: int) -> HeldReplicas:
    """Returns the cluster's replicas with `count` of the kept replicas leaving, unbound replicas first.

    From then on, no leaving replica of the cluster may be kept again.
    """
    if count <= 0:
        return held
    kept = held.replicas - count
    unbound = min(max(0, held.unbound - count), kept)
    return replace(
        held,
        replicas=kept,
        new=min(held.new, unbound),
        unbound=unbound,
        leaving=held.leaving + count,
        may_keep=0,
        idle=held.idle + min(count, held.unbound),
    )


def held_after_removal(held: HeldReplicas, count: int) -> HeldReplicas:
    """Returns the cluster's replicas with `count` gone at once: leaving ones first, then lost ones, then kept ones."""
    leaving = min(held.leaving, count)
    lost = min(held.lost, count - leaving)
    kept = count - leaving - lost
    return HeldReplicas(
        replicas=held.replicas - kept,
        new=max(0, held.new - kept),
        unbound=max(0, held.unbound - kept),
        lost=held.lost - lost,
        leaving=held.leaving - leaving,
        may_keep=min(held.may_keep, held.leaving - leaving),
    )


def unchanged_part(before: Part | None, share: PartShare, template: int) -> Part | None:
    """Returns the part at its present version if nothing changes for the cluster's object.

    Returns None when the part needs a new version. An object that was adopted with 0 replicas stays: nobody asked to
    remove it.
    """
    if before is None:
        return None
    if not before.replicas and not share.replicas:
        return before if before.removing else replace(before, template_generation=template)
    if (before.replicas, before.removing) != (share.replicas, share.replicas == 0):
        return None
    return replace(
        before,
        replicas_new=share.new,
        template_generation=template,
        replicas_lost=share.lost,
        replicas_leaving=share.leaving,
    )


def is_done_in_cluster(state: PlannerState, workload: Workload, part: Part) -> bool:
    """Returns whether a part was carried out as far as its cluster allows. The planner cannot speed up the rest.

    That is so when the record shows the object as decided, or when the cluster's API refused the object.
    """
    if part.adopting or part.disowning:
        return False
    facts = facts_in_cluster(state, workload.workload_key, part.cluster)
    if facts is not None and facts.version == part.version:
        return True
    return refusal_status(workload, part) is not None


def facts_in_cluster(state: PlannerState, key: WorkloadKey, cluster: str) -> WorkloadFacts | None:
    """Returns a cluster's record of a workload's object; None when it has none."""
    view = state.clusters.get(cluster)
    return view.facts.get(key) if view is not None else None
