"""Decides requests that change the fleet's clusters: JoinCluster, SetClusterPhase and LeaveCluster."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from math import inf

from planner.core.knowledge.allowance import CAUSE_DRAIN
from planner.core.knowledge.brakes import confirmation_scope
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.knowledge.workload import is_workload_gone
from planner.core.manifests.policy import DEFAULT_POLICY, is_in_tier
from planner.core.placement.reasons import may_move_by_itself
from planner.core.requests import answers
from planner.core.requests.checking import check_labels, check_text, check_url
from spillway.addresses import Tombstone, brake_address
from spillway.api import (
    ClusterMovesReply,
    JoinClusterRequest,
    LeaveClusterRequest,
    RequestError,
    SetClusterPhaseRequest,
    invalid_argument_error,
)
from spillway.events import PHASE_ACTIVE, PHASE_CORDONED, PHASE_DRAINING, PHASE_LEAVING, PHASE_LOST, ClusterJoined
from spillway.feasibility.cluster_view import ClusterView
from spillway.kubernetes.manifest_text import LABEL_NAME, check_name
from spillway.model import TIER_CLOUD, TIER_OWN, Generation, NodeGroup, Policy

PHASES_TO_SET = (PHASE_ACTIVE, PHASE_CORDONED, PHASE_DRAINING, PHASE_LEAVING)
PHASES_HANDING_OVER = (PHASE_DRAINING, PHASE_LEAVING)
PLACE_LENGTH_MAX = 100
"""The most characters in the name of a region or zone."""


@dataclass(frozen=True, slots=True)
class PhaseSet:
    """The result of a change of phase. events: empty when the cluster is in this phase already."""

    events: tuple[ClusterJoined | Tombstone, ...]
    reply: ClusterMovesReply


def join_cluster(
    state: PlannerState, request: JoinClusterRequest, generation: Generation | None = None
) -> tuple[ClusterJoined, bool]:
    """Returns the record of a cluster that joins, and whether it changes anything.

    Joining again changes only the cluster's description: it keeps its phase. Raises RequestError (ALREADY_EXISTS) if
    the name has joined with another credential and reported, or another cluster uses this credential.
    """
    name = check_name(request.name, "name", LABEL_NAME, 63)
    credential = check_name(request.credential, "credential", LABEL_NAME, 63)
    tier = check_name(request.tier or "own", "tier", LABEL_NAME, 63)
    if request.known_tier:
        _check_tier(state, tier)
    groups = [group.name for group in request.node_groups]
    if len(set(groups)) != len(groups):
        raise invalid_argument_error("node_groups", groups, "different names")
    for group in request.node_groups:
        _check_group(group)
    joined = ClusterJoined(
        cluster=name,
        credential=credential,
        endpoint=check_url(request.endpoint, "endpoint"),
        tier=tier,
        region=check_text(request.region, "region", PLACE_LENGTH_MAX),
        zone=check_text(request.zone, "zone", PLACE_LENGTH_MAX),
        labels=check_labels(request.labels, "labels"),
        node_groups=request.node_groups,
    )
    view = state.clusters.get(name)
    known = view.joined if view is not None else None
    # Before the cluster's first report, a wrong credential may still be corrected.
    if view is not None and known is not None and known.credential != credential and view.epoch >= 0:
        raise RequestError(
            "ALREADY_EXISTS",
            f"name: {name!r}: a cluster of this name has joined with credential {known.credential!r} already",
        )
    for other in state.joined_clusters():
        if other.cluster != name and other.credential == credential:
            raise RequestError(
                "ALREADY_EXISTS", f"credential: {credential!r}: cluster {other.cluster!r} uses it already"
            )
    if known is not None:
        joined = replace(joined, phase=known.phase, ordinal=known.ordinal, joined_at=known.joined_at)
        if (known.endpoint, known.credential) == (joined.endpoint, joined.credential):
            joined = replace(joined, api_server=known.api_server)
    else:
        last = max((other.ordinal for other in state.joined_clusters()), default=0)
        joined = replace(joined, ordinal=1 + last, joined_at=generation)
    return joined, joined != known


def tier_warnings(state: PlannerState, joined: ClusterJoined) -> tuple[str, ...]:
    """Returns warnings about a cluster that joins: its tier has changed, or no policy selects it."""
    warnings, view = list[str](), state.clusters.get(joined.cluster)
    if view is not None and view.joined is not None and view.joined.tier != joined.tier:
        moves = "what policies do not let be there any more moves elsewhere"
        warnings.append(f"tier: {joined.tier!r}: it was {view.joined.tier!r}: {moves}")
    policies = _policies_in_use(state)
    tiers = (tier for policy in policies for tier in policy.tiers if joined.node_groups or not tier.node_groups)
    if not any(is_in_tier(tier, joined) for tier in tiers):
        known = {tier for policy in policies for entry in policy.tiers for tier in entry.clusters.tiers}
        selects = "neither the default policy nor that of any workload selects it"
        would = (
            f"they know {', '.join(sorted(known))}; a PlacementPolicy with clusters: {{tiers: [{joined.tier}]}} would"
        )
        warnings.append(f"tier: {joined.tier!r}: nothing is placed there: {selects}; {would}")
    return tuple(warnings)


def policy_tier_warnings(state: PlannerState, policy: Policy) -> tuple[str, ...]:
    """Returns warnings about tiers that a declared policy names and no cluster has.

    The tiers `own` and `cloud` are left out: a policy may name them in every fleet.
    """
    had = {TIER_OWN, TIER_CLOUD, *(joined.tier for joined in state.joined_clusters())}
    named = dict.fromkeys(name for tier in policy.tiers for name in tier.clusters.tiers)
    return tuple(
        f"PlacementPolicy.spec.tiers: {name!r}: no cluster has this tier; "
        f"they have {_tiers_text(had)}{_suggestion_text(name, had)}"
        for name in named
        if name not in had
    )


def _check_tier(state: PlannerState, tier: str) -> None:
    known = {joined.tier for joined in state.joined_clusters()}
    known |= {name for policy in _policies_in_use(state) for entry in policy.tiers for name in entry.clusters.tiers}
    if tier not in known:
        new = f"; --new-tier allows a new tier{_suggestion_text(tier, known)}"
        raise invalid_argument_error(
            "tier", tier, f"a tier that a cluster has or a policy names: {_tiers_text(known)}{new}"
        )


def _tiers_text(tiers: Iterable[str]) -> str:
    return ", ".join(sorted(tiers))


def _suggestion_text(tier: str, known: Iterable[str]) -> str:
    close = get_close_matches(tier, sorted(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _policies_in_use(state: PlannerState) -> set[Policy]:
    kept = (workload.declared for workload in state.workloads.values() if not is_workload_gone(workload))
    return {DEFAULT_POLICY, *(declared.policy for declared in kept)}


def _check_group(group: NodeGroup) -> None:
    check_name(group.name, "node_groups.name", LABEL_NAME, 63)
    if group.nodes_max < 0 or group.lead_time_seconds < 0:
        raise invalid_argument_error(
            f"node_groups.{group.name}", (group.nodes_max, group.lead_time_seconds), "0 or more"
        )
    if not 0 <= group.cost_per_hour < inf:
        raise invalid_argument_error(f"node_groups.{group.name}.cost_per_hour", group.cost_per_hour, "0 or more")
    if any(amount < 0 for _, amount in group.allocatable):
        raise invalid_argument_error(f"node_groups.{group.name}.allocatable", group.allocatable, "0 or more")
    if not group.selector:
        raise invalid_argument_error(
            f"node_groups.{group.name}.selector", (), "labels that select the nodes of the group"
        )
    check_labels(group.selector, f"node_groups.{group.name}.selector")
    check_labels(group.labels, f"node_groups.{group.name}.labels")


def set_phase(state: PlannerState, request: SetClusterPhaseRequest, moment: Moment) -> PhaseSet:
    """Sets the phase of a cluster of the fleet, from any other phase. Only leave_cluster() sets Lost."""
    if request.phase not in PHASES_TO_SET:
        raise invalid_argument_error("phase", request.phase, ", ".join(PHASES_TO_SET))
    return _change_phase(state, answers.find_cluster_view(state, request.name, "name"), request.phase, moment)


def leave_cluster(state: PlannerState, request: LeaveClusterRequest, moment: Moment) -> PhaseSet:
    """Sets the phase Leaving, or Lost if the request declares the cluster lost.

    Raises RequestError (FAILED_PRECONDITION) when a fresh cluster is declared lost, because its replicas would run
    twice. A cluster that is not fresh may be declared lost, although its replicas may still run: perhaps only its
    collector is silent.
    """
    view = answers.find_cluster_view(state, request.name, "name")
    age_max = state.rules.capacity_age_max
    if request.lost and not view.staleness_reason(moment.now, age_max):
        raise RequestError(
            "FAILED_PRECONDITION",
            f"lost: cluster {request.name!r} answered {view.age_seconds(moment.now):.0f} s ago: expected no answer for "
            f"over {age_max:g} s; its replicas would run on beside those that replace them; leave without lost hands "
            "them over",
        )
    return _change_phase(state, view, PHASE_LOST if request.lost else PHASE_LEAVING, moment)


def _change_phase(state: PlannerState, view: ClusterView, phase: str, moment: Moment) -> PhaseSet:
    assert view.joined is not None
    joined = replace(view.joined, phase=phase)
    changed = joined != view.joined
    events: tuple[ClusterJoined | Tombstone, ...] = (joined,) if changed else ()
    scope = confirmation_scope(CAUSE_DRAIN, view.name)
    if phase not in PHASES_HANDING_OVER and state.brakes.is_known_confirmation(
        scope
    ):  # The next drain needs its own confirmation.
        events += (Tombstone(brake_address(scope)),)
    to_go = phase not in (PHASE_ACTIVE, PHASE_CORDONED)
    replicas = _replicas_to_leave(state, view.name, phase) if to_go and not view.twin_of else 0
    fleet_replicas = state.fleet_replicas()
    waits = phase in PHASES_HANDING_OVER and state.brakes.needs_confirmation(
        CAUSE_DRAIN, view.name, replicas, fleet_replicas
    )
    reply = ClusterMovesReply(
        cluster=answers.cluster_reply(state, view, moment.now, phase=phase),
        replicas=replicas,
        confirm=scope if waits else "",
        frozen=state.brakes.why_frozen(view.name) if to_go else "",
        changed=changed,
    )
    return PhaseSet(events, reply)


def _replicas_to_leave(state: PlannerState, cluster: str, phase: str) -> int:
    """Returns how many kept replicas must leave the cluster. If it is not lost, only workloads count that Spillway may
    move without a person."""
    workloads = (state.workloads[key] for key in state.workload_keys_in(cluster))
    return sum(
        workload.parts[cluster].replicas_kept
        for workload in workloads
        if phase == PHASE_LOST or may_move_by_itself(workload)
    )
