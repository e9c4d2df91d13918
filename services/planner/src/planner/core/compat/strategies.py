"""Divides a workload by a strategy for its whole policy: Karmada's, KubeAdmiral's, or all replicas in every cluster.

The strategy says how many replicas each cluster should have. This module turns that into a safe step: nothing is placed
beyond certain room, and running replicas leave only for replacements. Replicas without room are unplaced.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from planner.core.compat import karmada, kubeadmiral
from planner.core.compat import karmada_selection as selection
from planner.core.division.situation import Division, HeldReplicas, Situation
from planner.core.division.tier_division import (
    DivisionEntries,
    amounts_up_to_total,
    can_fit_somewhere,
    clusters_by_tier,
    maximum_in_cluster,
)
from planner.core.division.votes import apportion_seats
from planner.core.knowledge.allowance import CAUSE_FAILOVER
from planner.core.manifests.policy import TierClusters, fleet_clusters, weights_by_cluster
from spillway.events import ClusterJoined
from spillway.model import (
    STRATEGY_DUPLICATED,
    STRATEGY_KARMADA_AGGREGATED,
    STRATEGY_KARMADA_DYNAMIC,
    STRATEGY_KARMADA_STATIC,
    ClusterLimit,
    Strategy,
)

KARMADA = {
    STRATEGY_KARMADA_STATIC: karmada.STATIC_WEIGHT,
    STRATEGY_KARMADA_DYNAMIC: karmada.DYNAMIC_WEIGHT,
    STRATEGY_KARMADA_AGGREGATED: karmada.AGGREGATED,
    STRATEGY_DUPLICATED: karmada.DUPLICATED,
}
IN_USE = 100
"""The score of a cluster that already has some replicas of the workload."""

NOTHING = HeldReplicas(0, 0, 0)


@dataclass(frozen=True, slots=True)
class EligibleCluster:
    """A cluster that may take replicas: how many it has, how many more it certainly takes, and its tier."""

    joined: ClusterJoined
    held: int
    room: int
    tier: int

    @property
    def name(self) -> str:
        return self.joined.cluster


@dataclass(frozen=True, slots=True)
class _Target:
    """The replicas that each eligible cluster should have. why: a text for users if the strategy has no answer."""

    replicas: Mapping[str, int]
    why: str = ""


def divide_by_strategy(situation: Situation) -> Division:
    """Divides a workload. If the strategy has no answer, replicas stay where they are, or shrink in proportion."""
    strategy = situation.policy.strategy
    assert strategy is not None, "the policy has no strategy"
    tiers = clusters_by_tier(situation)
    eligible = _eligible_clusters(situation, tiers)
    outside = {name: held.replicas for name, held in situation.held.items() if name not in eligible and held.replicas}
    if strategy.name == STRATEGY_DUPLICATED:
        target = _duplicated_target(situation, strategy, eligible)
        leaving = {name: count for name, count in outside.items() if situation.reasons.get(name) != CAUSE_FAILOVER}
        to_go = _replicas_to_leave(situation, leaving)
        return _build_division(
            situation, tiers, _change_of_copies(situation, eligible, to_go, target), to_go, target.why
        )
    surplus = sum(held.replicas for held in situation.held.values()) - situation.replicas
    at_once = amounts_up_to_total(outside, max(0, surplus))
    outside = {name: count - at_once.get(name, 0) for name, count in outside.items()}
    to_go = wanted_out = _replicas_to_leave(situation, outside)
    stays = sum(outside.values())
    target = _target_of_strategy(situation, strategy, eligible, situation.replicas - stays + sum(to_go.values()))
    if target.why and to_go:
        to_go, target = _largest_possible_move(situation, strategy, eligible, stays, to_go)
    return _build_division(
        situation, tiers, _change_of_shares(situation, eligible, at_once, to_go, target), wanted_out, target.why
    )


def _eligible_clusters(situation: Situation, tiers: TierClusters) -> dict[str, EligibleCluster]:
    joined = {cluster.cluster: cluster for cluster in situation.clusters}
    limits = {limit.cluster: limit for limit in situation.policy.limits}
    eligible = {}
    for index, (_, names) in enumerate(tiers):
        for name in names:
            if name not in situation.reasons:
                held = situation.held.get(name, NOTHING)
                room = _certain_room(situation, name, held, limits)
                eligible[name] = EligibleCluster(joined[name], held.replicas, room, index)
    return dict(sorted(eligible.items()))


def _certain_room(situation: Situation, cluster: str, held: HeldReplicas, limits: Mapping[str, ClusterLimit]) -> int:
    lacks = situation.await_missing and cluster in situation.missing
    room = (0 if lacks else situation.room(cluster, False).certain) + held.may_keep
    return max(0, min(room, maximum_in_cluster(limits, cluster) - held.replicas))


def _replicas_to_leave(situation: Situation, outside: Mapping[str, int]) -> dict[str, int]:
    """Returns, by cluster that may have no replicas, how many replicas may leave it now.

    If a person asked now, all may leave where no cause of Situation.reasons limits them.
    """
    may = {name: min(count, situation.moving.get(name, 0)) for name, count in outside.items()}
    return {
        name: count if situation.by_name and name not in situation.reasons else may[name]
        for name, count in outside.items()
        if name not in situation.fixed
    }


def _largest_possible_move(
    situation: Situation,
    strategy: Strategy,
    eligible: Mapping[str, EligibleCluster],
    stays: int,
    to_go: Mapping[str, int],
) -> tuple[dict[str, int], _Target]:
    """Returns how many replicas leave each cluster, and the target for that.

    Karmada's rule "all or nothing" applies to the replicas that were asked for. It does not apply to replicas that
    must leave: as many of these leave as have a place elsewhere, even if new replicas have none.
    """
    there = stays + sum(cluster.held for cluster in eligible.values())
    best: tuple[dict[str, int], _Target] | None = None
    for replicas in (situation.replicas, min(there, situation.replicas)):
        low, high = 0, sum(to_go.values())
        while low < high:
            middle = (low + high + 1) // 2
            target = _target_of_strategy(situation, strategy, eligible, replicas - stays + middle)
            if target.why:
                high = middle - 1
            else:
                low, best = middle, (amounts_up_to_total(to_go, middle), target)
        if best is not None:
            return best
    return {}, _target_of_strategy(situation, strategy, eligible, situation.replicas - stays)


# ── What the strategies answer ──────────────────────────────────────────────────────────────────────────────────


def _target_of_strategy(
    situation: Situation, strategy: Strategy, eligible: Mapping[str, EligibleCluster], wanted: int
) -> _Target:
    held = {name: cluster.held for name, cluster in eligible.items()}
    try:
        if strategy.name in KARMADA:
            found = _divide_by_karmada(situation, strategy, eligible, wanted)
        else:
            found = _divide_by_kubeadmiral(situation, strategy, eligible, wanted)
        return _Target({name: found.get(name, 0) for name in eligible})
    except (karmada.Unschedulable, selection.NotSelectable, ValueError) as error:
        fewer = apportion_seats(wanted, held) if sum(held.values()) > wanted else held
        return _Target({name: fewer.get(name, 0) for name in eligible}, f"{strategy.name}: {error}")


def _divide_by_karmada(
    situation: Situation, strategy: Strategy, eligible: Mapping[str, EligibleCluster], wanted: int
) -> Mapping[str, int]:
    if not strategy.alternatives:
        return _assign_to_clusters(situation, strategy, list(eligible.values()), wanted)
    used = [cluster.tier for cluster in eligible.values() if cluster.held]
    tiers = sorted({cluster.tier for cluster in eligible.values()})
    problem: Exception = ValueError("no clusters to assign replicas to")
    for tier in tiers[tiers.index(min(used)) if used else 0 :]:
        try:
            those = [cluster for cluster in eligible.values() if cluster.tier == tier]
            return _assign_to_clusters(situation, strategy, those, wanted)
        except (karmada.Unschedulable, selection.NotSelectable) as error:
            problem = error
    raise problem


def _assign_to_clusters(
    situation: Situation, strategy: Strategy, eligible: Sequence[EligibleCluster], wanted: int
) -> dict[str, int]:
    """Assigns replicas by Karmada's rules.

    Karmada keeps the existing replicas in the order of its last answer. That order is not known here, so they are
    sorted by name.
    """
    task = karmada.AssignmentTask(KARMADA[strategy.name], wanted, situation.identity)
    if strategy.weights:
        weights = weights_by_cluster(strategy, fleet_clusters(situation.clusters))
        rules = tuple(karmada.WeightRule((cluster.name,), weights[cluster.name]) for cluster in eligible)
        task = replace(task, rules=rules)
    by_name = {cluster.name: cluster for cluster in eligible}
    chosen = [by_name[name] for name in _select_clusters(strategy, task.strategy, eligible, wanted)]
    candidates = [
        karmada.CandidateCluster(cluster.name, cluster.room, cluster.room + cluster.held, cluster.tier)
        for cluster in chosen
    ]
    existing = sorted((cluster.name, cluster.held) for cluster in chosen)
    return karmada.assign_replicas(task, candidates, existing, overflow=len({cluster.tier for cluster in eligible}) > 1)


def _select_clusters(strategy: Strategy, kind: str, eligible: Sequence[EligibleCluster], wanted: int) -> list[str]:
    spreads = tuple(
        selection.SelectionSpread(entry.by, entry.groups_min, entry.groups_max or len(eligible))
        for entry in strategy.spread
    )
    places = [
        selection.FeasibleCluster(
            cluster.name,
            cluster.room + cluster.held,
            IN_USE if cluster.held else 0,
            cluster.tier,
            cluster.joined.region,
            (cluster.joined.zone,),
        )
        for cluster in eligible
    ]
    return [
        place.cluster for place in selection.select_clusters(selection.SelectionRequest(kind, wanted, spreads), places)
    ]


def _divide_by_kubeadmiral(
    situation: Situation, strategy: Strategy, eligible: Mapping[str, EligibleCluster], wanted: int
) -> Mapping[str, int]:
    """Plans by KubeAdmiral's rules.

    Certain room is a hard bound, so no cluster has overflow. Replicas without room stay unplaced.
    """
    limits = {limit.cluster: limit for limit in situation.policy.limits}
    weights = weights_by_cluster(strategy, fleet_clusters(situation.clusters)) if strategy.weights else {}
    preferences = {}
    for name in eligible:
        limit = limits.get(name, ClusterLimit(name, 0, -1))
        weight = weights.get(name, 1)
        most = kubeadmiral.UNBOUNDED if limit.replicas_max < 0 else limit.replicas_max
        if weight or limit.replicas_min:
            preferences[name] = kubeadmiral.ClusterPreference(weight, limit.replicas_min, most)
    wish = kubeadmiral.PlanInput(
        replicas=wanted,
        clusters=list(eligible),
        preferences=preferences,
        key=situation.identity,
        existing={name: cluster.held for name, cluster in eligible.items()},
        limited={name: cluster.held + cluster.room for name, cluster in eligible.items()},
        avoid_disruption=strategy.avoid_disruption,
    )
    return kubeadmiral.plan_replicas(wish).plan


def _duplicated_target(situation: Situation, strategy: Strategy, eligible: Mapping[str, EligibleCluster]) -> _Target:
    """Sets all replicas for every selected cluster. Within a tier, clusters with replicas are selected first."""
    try:
        chosen = _select_clusters(strategy, karmada.DUPLICATED, list(eligible.values()), situation.replicas)
        if not chosen:
            return _Target({}, "no cluster may have any")
        return _Target(dict.fromkeys(chosen, situation.replicas))
    except selection.NotSelectable as error:
        held = (name for name, cluster in eligible.items() if cluster.held)
        return _Target(dict.fromkeys(held, situation.replicas), f"{strategy.name}: {error}")


# ── From there to a step ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of replicas, by cluster.

    more: replicas to add. taken: replicas to remove at once. moved: replicas that leave once others are available.
    unplaced: the number of replicas without room.
    """

    more: Mapping[str, int]
    taken: Mapping[str, int]
    moved: Mapping[str, int]
    unplaced: int


def _change_of_shares(
    situation: Situation,
    eligible: Mapping[str, EligibleCluster],
    at_once: Mapping[str, int],
    to_go: Mapping[str, int],
    target: _Target,
) -> _Change:
    """Returns the change for a strategy that divides: the replicas of all clusters add up to the workload's number.

    Replicas leave a cluster as far as others take them. Between clusters that may both have replicas, running replicas
    move only when a person asked and no brake holds any of them.
    """
    held = sum(entry.replicas for entry in situation.held.values()) - sum(at_once.values())
    missing = situation.replicas - held
    more = {name: min(count - eligible[name].held, eligible[name].room) for name, count in target.replicas.items()}
    more = {name: count for name, count in more.items() if count > 0}
    less = {name: eligible[name].held - count for name, count in target.replicas.items()}
    less = {name: count for name, count in less.items() if count > 0}
    if situation.fixed or not situation.by_name:
        in_others = {name: count for name, count in more.items() if name not in situation.fixed}
        in_others = amounts_up_to_total(in_others, max(0, missing) + sum(to_go.values()))
        in_fixed = {name: count for name, count in more.items() if name in situation.fixed}
        more = in_others | amounts_up_to_total(in_fixed, max(0, missing - sum(in_others.values())))
        less = amounts_up_to_total(less, max(0, -missing))
    taken = amounts_up_to_total(less, max(0, -missing))
    rest = {name: count - taken.get(name, 0) for name, count in less.items()}
    leaving = max(0, sum(more.values()) - max(0, missing))
    moved = amounts_up_to_total(to_go, leaving)
    for name, count in amounts_up_to_total(rest, leaving - sum(moved.values())).items():
        moved[name] = moved.get(name, 0) + count
    for name, count in at_once.items():
        taken[name] = taken.get(name, 0) + count
    unplaced = max(0, missing - sum(more.values()))
    if situation.gently:
        moved = {name: moved.get(name, 0) + taken.get(name, 0) for name in moved.keys() | taken.keys()}
        taken = {}
    return _Change(more, taken, moved, unplaced)


def _change_of_copies(
    situation: Situation, eligible: Mapping[str, EligibleCluster], to_go: Mapping[str, int], target: _Target
) -> _Change:
    """Returns the change for copies, where every selected cluster has all replicas.

    The replicas of one cluster do not replace those of another one. So a lost cluster keeps its replicas.
    """
    more, taken = dict[str, int](), dict[str, int]()
    unplaced = 0 if target.replicas else situation.replicas
    for name, count in target.replicas.items():
        lacks = count - eligible[name].held
        more[name] = min(max(0, lacks), eligible[name].room)
        taken[name] = max(0, -lacks)
        unplaced += max(0, lacks) - more[name]
    moved = dict(to_go)
    for name, cluster in eligible.items():
        if name not in target.replicas and cluster.held and situation.by_name and name not in situation.fixed:
            moved[name] = cluster.held
        elif name not in target.replicas:
            taken[name] = max(0, cluster.held - situation.replicas)
    for name, held in situation.held.items():
        if name not in eligible and name not in moved:
            taken[name] = max(0, held.replicas - situation.replicas)
    return _Change(more, taken, moved, unplaced)


def _build_division(
    situation: Situation, tiers: TierClusters, change: _Change, to_go: Mapping[str, int], why: str
) -> Division:
    replicas, new = dict[str, int](), dict[str, int]()
    for name in dict.fromkeys((*situation.held, *change.more)):
        held = situation.held.get(name, NOTHING)
        gone = change.taken.get(name, 0) + change.moved.get(name, 0)
        replicas[name] = held.replicas + change.more.get(name, 0) - gone
        new[name] = max(0, held.new - gone)
    stays = {name: count - change.moved.get(name, 0) for name, count in to_go.items() if name in situation.reasons}
    over = sum(count for name, count in to_go.items() if name not in situation.reasons)
    return Division(
        replicas=replicas,
        new=new,
        unplaced=change.unplaced,
        uncertain=_replicas_awaiting_binds(situation, tiers, change.unplaced),
        to_leave=over - sum(change.moved.get(name, 0) for name in to_go if name not in situation.reasons),
        inputs=DivisionEntries(situation, tiers, replicas),
        fits_nowhere=not can_fit_somewhere(situation, tiers),
        moved=change.moved,
        kept_again={
            name: min(count, situation.held[name].may_keep)
            for name, count in change.more.items()
            if name in situation.held and situation.held[name].may_keep
        },
        reasons=situation.reasons,
        stays=stays,
        whole=why,
    )


def _replicas_awaiting_binds(situation: Situation, tiers: TierClusters, unplaced: int) -> int:
    """Returns how many unplaced replicas wait for binds, which may turn possible room into certain room."""
    if situation.settled or not unplaced:
        return 0
    names = {name for _, those in tiers for name in those if name not in situation.reasons}
    rooms = [situation.room(name, False) for name in names]
    return min(unplaced, sum(room.possible - room.certain for room in rooms))
