"""Builds the situation, the input of a division, from a workload and the fleet. Then divides the replicas."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from planner.core.division.situation import Division, DivisionBasis, HeldReplicas, Situation
from planner.core.division.tier_division import clusters_by_tier
from planner.core.feasibility.fleet_rooms import FleetRooms
from planner.core.feasibility.room import Room
from planner.core.knowledge.allowance import CAUSE_POLICY, Allowance
from planner.core.knowledge.closing import why_closed
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment, PlacementSubject
from planner.core.manifests.policy import TIERS_BY_WORK
from planner.core.placement.choice import division_function
from planner.core.placement.growth import growth_room
from planner.core.placement.missing import has_waited_for_missing, missing_by_cluster, missing_texts_by_cluster
from planner.core.placement.reasons import counts_to_move, move_causes_by_cluster
from planner.core.placement.whole import is_whole
from spillway.feasibility.cluster_view import WorkloadKey
from spillway.model import UNPLACEABLE_REFUSE


@dataclass(frozen=True, slots=True)
class DivisionOptions:
    """Options of a division, in addition to the fleet.

    settled, gently, by_name: as in Situation.
    most: by cluster, the most replicas that it may have in total, those it has included.
    brakes: limits the replicas that move; None: no replica moves.
    for_lent: replicas without a free node wait for lent nodes before they go to a later tier.
    await_missing: as in Situation. Replicas also wait once that was decided for a part, and while replicas must move.
    """

    settled: bool = False
    gently: bool = False
    most: Mapping[str, int] = field(default_factory=dict)
    brakes: Allowance | None = None
    by_name: bool = False
    for_lent: bool = False
    await_missing: bool = False


def divide_over_fleet(
    state: PlannerState,
    subject: PlacementSubject,
    held: Mapping[str, HeldReplicas],
    moment: Moment,
    how: DivisionOptions,
) -> Division:
    """Divides a workload over the fleet as it is now.

    Replicas must leave lost and draining clusters, and clusters that the policy rules out. The first division shows how
    many of them have a place elsewhere. If the brakes let fewer move, it divides again with that number. If a person
    asks now, replicas that the policy rules out move as far as other clusters take them.
    """
    why = move_causes_by_cluster(state, subject.known, moment.now) if subject.known is not None else {}
    if how.by_name:
        why = {cluster: cause for cluster, cause in why.items() if cause != CAUSE_POLICY}
    counts = counts_to_move(state, subject.known, why) if subject.known is not None else {}
    to_go = {cluster: min(counts[cluster], held[cluster].replicas) for cluster in why if held[cluster].replicas}
    parts = subject.known.parts if subject.known is not None else {}
    missing = missing_texts_by_cluster(missing_by_cluster(state, subject))
    awaits = bool(missing) and (how.await_missing or _is_awaiting_objects(subject) or any(to_go.values()))
    situation = Situation(
        replicas=subject.declared.replicas,
        policy=subject.declared.policy,
        clusters=state.joined_clusters(),
        held=dict(held),
        room=_rooms_of_division(state, subject, held, moment, how, missing if awaits else ()),
        settled=how.settled,
        age_ms=state.ages_ms(moment.now),
        reasons=why,
        moving=dict.fromkeys(held, 0) if how.gently else to_go,
        fixed=(how.brakes or state.brakes).frozen_clusters_among(state.clusters, subject.workload_key),
        gently=how.gently,
        whole=subject.declared.kind if is_whole(subject.declared.kind) else "",
        listed=frozenset(parts),
        identity="/".join(subject.workload_key),
        by_name=how.by_name,
        missing=missing,
        await_missing=awaits,
    )
    way = division_function(situation)
    division = way(situation)
    # If nodes that a cluster has lent could help, divide once more: replicas then wait for them before later tiers.
    lent = _lent_room_by_cluster(state, subject, moment.now, situation, division) if how.for_lent else {}
    if lent:
        since = subject.known.lent_since if subject.known is not None else None
        waited = since is not None and moment.now - since >= state.rules.lent_wait
        answers = {
            name: room
            for name, room in lent.items()
            if state.waiting.may_wait_for_lent_nodes(name, state.clusters[name].nodes.loan_states, moment.now)
        }
        if waited or not answers:
            situation = replace(situation, lent=lent, lent_waited=True)
        else:
            situation = replace(situation, lent=answers)
        division = way(situation)
    if situation.whole or how.gently:
        return replace(division, basis=DivisionBasis(situation, division))
    return _division_within_brakes(situation, division, subject.workload_key, how)


def _is_awaiting_objects(subject: PlacementSubject) -> bool:
    """Returns whether replicas of this template already wait for objects that clusters lack."""
    known = subject.known
    return (
        known is not None
        and known.replica_shape.template == subject.replica_shape.template
        and has_waited_for_missing(known)
    )


def _room_awaiting_object(
    state: PlannerState, subject: PlacementSubject, cluster: str, held: HeldReplicas | None, now: float
) -> Room:
    """Returns the room that replicas waiting for a missing object in this cluster will have once the object is there.

    Replicas of earlier decisions stay reserved there until the cluster knows the new decision. Their room counts as
    room for the waiting replicas.
    """
    closed = why_closed(
        state, state.clusters[cluster], state.shape_in(cluster, subject.replica_shape), now, subject.workload_key
    )
    if closed is not None:
        return Room(0, 0, closed, when_empty=True)
    room = state.room_without_workload(cluster, subject.replica_shape, now, subject.workload_key)
    return room._replace(certain=max(0, room.certain - (held.unbound if held is not None else 0)))


def _division_within_brakes(
    situation: Situation, division: Division, key: WorkloadKey, how: DivisionOptions
) -> Division:
    """Returns the division if the brakes let all of it move. Else divides again with fewer moves."""
    to_go, why = situation.moving, situation.reasons
    for_minima = {} if how.by_name else _moved_for_minima(division, to_go)
    wanted = {cluster: division.moved.get(cluster, 0) for cluster in to_go} | for_minima
    allowed = {
        cluster: min(count, how.brakes.allow_replicas(why.get(cluster, CAUSE_POLICY), cluster, key, count))
        if how.brakes is not None
        else 0
        for cluster, count in wanted.items()
    }
    if allowed == wanted:
        return replace(division, basis=DivisionBasis(situation, division, for_minima))
    situation = replace(situation, moving=dict.fromkeys(situation.held, 0) | allowed)
    fewer = division_function(situation)(situation)
    return replace(
        fewer,
        stays=division.stays,
        lacking=fewer.lacking if how.brakes is None else division.lacking,
        held_back=sum(wanted.values()) - sum(allowed.values()),
        basis=DivisionBasis(situation, fewer, for_minima),
    )


def _lent_room_by_cluster(
    state: PlannerState, subject: PlacementSubject, now: float, situation: Situation, division: Division
) -> dict[str, int]:
    """Returns, by cluster, the room on the nodes that it has lent, for tiers whose free nodes are not enough.

    Near-line and offline work gets no such room, as it runs on lent nodes itself. Workloads that are refused without
    room do not wait for lent nodes either.
    """
    policy, lent = situation.policy, dict[str, int]()

    def may_use_lent_nodes(cluster: str) -> bool:
        return state.clusters[cluster].nodes.has_lent_nodes and cluster not in situation.fixed

    if policy.work in TIERS_BY_WORK or policy.unplaceable == UNPLACEABLE_REFUSE:
        return lent
    if policy.strategy is not None or situation.whole:
        return lent
    before = {name: held.replicas for name, held in situation.held.items()}
    elsewhere = {name for name, count in division.replicas.items() if count > before.get(name, 0)}
    waits = division.uncertain + sum(division.missing.values())
    short = division.unplaced > waits or any(division.new.values())
    for tier, names in clusters_by_tier(situation):
        if tier.node_groups:
            continue
        elsewhere.difference_update(names)
        if not short and not elsewhere:
            break
        rooms = (
            (name, state.room_on_lent_nodes(name, subject.replica_shape, now, subject.workload_key))
            for name in names
            if may_use_lent_nodes(name)
        )
        lent |= {name: room for name, room in rooms if room}
    return lent


def _moved_for_minima(division: Division, to_go: Mapping[str, int]) -> dict[str, int]:
    """Returns the replicas by cluster that moved to fill another cluster's minimum."""
    return {cluster: count for cluster, count in division.moved.items() if count and cluster not in to_go}


def _rooms_of_division(
    state: PlannerState,
    subject: PlacementSubject,
    held: Mapping[str, HeldReplicas],
    moment: Moment,
    how: DivisionOptions,
    awaited: Iterable[str],
) -> FleetRooms:
    """Returns the rooms for one division. Later readers see the same values, even if the state has changed.

    awaited: clusters that lack an object that replicas wait for.
    """
    parts = subject.known.parts if subject.known is not None else {}
    rooms = state.rooms_of_fleet(subject.replica_shape, moment.now, subject.workload_key)

    def room_at_place(cluster: str, node_groups: bool) -> Room:
        part = parts.get(cluster)
        borne = subject.replica_shape if part is None or part.removing else subject.template_of(part).shape
        found = growth_room(
            state, cluster, (subject.replica_shape, borne), node_groups, moment.now, subject.workload_key
        )
        if node_groups or cluster not in how.most:
            return found
        left = max(0, how.most[cluster] - (held[cluster].replicas if cluster in held else 0))
        return found._replace(certain=min(found.certain, left), possible=min(found.possible, left))

    for place in [place for place in rooms if place[0] in parts or place[0] in how.most] if parts or how.most else ():
        rooms.replace_room(place, room_at_place(*place))
    for cluster in awaited:
        rooms.replace_room(
            (cluster, False), _room_awaiting_object(state, subject, cluster, held.get(cluster), moment.now)
        )
    return rooms
