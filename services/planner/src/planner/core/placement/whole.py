"""Places StatefulSets and Jobs, which go whole to one cluster, and checks which policies they may have.

Two clusters never hold such a workload at the same time. A placement lists every cluster that may still hold its
object. So while any part is listed, even one that is being removed, nothing is placed in another cluster.
"""

from collections.abc import Iterator, Mapping

from planner.core.division.situation import Division, Situation
from planner.core.division.tier_division import (
    DivisionEntries,
    can_fit_somewhere,
    clusters_by_tier,
    maximum_in_cluster,
    tiers_with_lacking_last,
)
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.workload import Workload
from planner.core.manifests.kinds import WHOLE
from planner.core.manifests.policy import TierClusters
from spillway.api import RequestError, invalid_argument_error
from spillway.model import ClusterLimit, Policy, WorkloadFacts
from spillway.texts import first_names_text

Limits = Mapping[str, ClusterLimit]


def is_whole(kind: str) -> bool:
    """Returns whether workloads of this kind go whole to one cluster."""
    return kind in WHOLE


def may_be_taken_back(kind: str, facts: WorkloadFacts | None) -> bool:
    """Returns whether unbound replicas may be taken back.

    Replicas of a StatefulSet or Job may be taken back only while no pod is bound and no work is done. Scaling in a
    StatefulSet removes the highest ordinals, bound or not. A Job that began would begin again.
    """
    if not is_whole(kind) or facts is None:
        return True
    return not (facts.succeeded or facts.ended or any(count for _, count in facts.counted))


# ── The division ────────────────────────────────────────────────────────────────────────────────────────────────


def divide_whole(situation: Situation) -> Division:
    """Divides a StatefulSet or Job: all replicas go to one cluster, or none is placed.

    Replicas never move. If they do not fit in their cluster, they are unplaced.
    """
    tiers, limits = clusters_by_tier(situation), {limit.cluster: limit for limit in situation.policy.limits}
    kept = {name: held.replicas for name, held in situation.held.items()}
    new = {name: held.new for name, held in situation.held.items()}
    missing = situation.replicas - sum(kept.values())
    uncertain = 0
    for name in sorted(kept, reverse=True):
        taken = min(kept[name], max(0, -missing))
        kept[name], missing = kept[name] - taken, missing + taken
        new[name] = min(max(0, new[name] - taken), kept[name])
    if missing > 0 and situation.listed:
        grown = _growth_in_home(situation, tiers, limits, missing)
    elif missing > 0:
        grown, uncertain = _growth_anywhere(situation, tiers, limits, missing)
    else:
        grown = []
    for name, node_groups, count in grown:
        kept[name] = kept.get(name, 0) + count
        new[name] = new.get(name, 0) + (count if node_groups else 0)
    unplaced = max(0, missing - sum(count for _, _, count in grown))
    return Division(
        replicas=kept,
        new=new,
        unplaced=unplaced,
        uncertain=min(uncertain, unplaced),
        inputs=DivisionEntries(situation, tiers, kept),
        fits_nowhere=not can_fit_somewhere(situation, tiers),
        whole=_rule_text(situation),
        waits_in=_waiting_in_home(situation, unplaced),
    )


def _waiting_in_home(situation: Situation, unplaced: int) -> dict[str, int]:
    """Returns the workload's only cluster with the unplaced replicas, if they wait for an object missing there."""
    homes = situation.listed if unplaced and situation.await_missing and len(situation.listed) == 1 else ()
    return {home: unplaced for home in homes if home in situation.missing and home not in situation.reasons}


Grown = list[tuple[str, bool, int]]
"""(cluster, on new nodes, replicas)."""


def _growth_in_home(situation: Situation, tiers: TierClusters, limits: Limits, missing: int) -> Grown:
    """Returns how many more replicas go to the cluster that has the workload: as many as fit.

    If it has no replica any more, none is placed unless all fit.
    """
    if len(situation.listed) > 1:
        return []
    (home,) = situation.listed
    grown: Grown = []
    given = 0
    for node_groups, name in _tier_places(tiers):
        if name == home:
            room, _ = _certain_and_possible_room(situation, limits, home, node_groups)
            count = min(missing, room, _room_in_limits(situation, limits, home) - given)
            if count > 0:
                grown.append((home, node_groups, count))
                given, missing = given + count, missing - count
    alone = situation.held.get(home) is None or not situation.held[home].replicas
    return [] if alone and missing else grown


def _growth_anywhere(situation: Situation, tiers: TierClusters, limits: Limits, missing: int) -> tuple[Grown, int]:
    """Returns the cluster that gets all replicas: the one with most room in the first tier where all certainly fit.

    If all only possibly fit in a tier, returns no cluster, and the number of replicas, which then wait for binds.
    """
    bound_to = [name for name, limit in limits.items() if limit.replicas_min > 0]
    for tier, names in tiers_with_lacking_last(situation, tiers):
        candidates = [name for name in names if not bound_to or name in bound_to]
        rooms = {name: _certain_and_possible_room(situation, limits, name, tier.node_groups) for name in candidates}
        fitting = [name for name, (certain, _) in rooms.items() if certain >= missing]
        if fitting:
            best = min(fitting, key=lambda name: (-rooms[name][0], name))
            return [(best, tier.node_groups, missing)], 0
        if not situation.settled and any(possible >= missing for _, possible in rooms.values()):
            return [], missing
    return [], 0


def _tier_places(tiers: TierClusters) -> Iterator[tuple[bool, str]]:
    return ((tier.node_groups, name) for tier, names in tiers for name in names)


def _certain_and_possible_room(
    situation: Situation, limits: Limits, cluster: str, node_groups: bool
) -> tuple[int, int]:
    """Returns how many more replicas the cluster certainly and possibly takes."""
    if cluster in situation.reasons or (situation.await_missing and cluster in situation.missing):
        return 0, 0
    room, most = situation.room(cluster, node_groups), _room_in_limits(situation, limits, cluster)
    return max(0, min(room.certain, most)), max(0, min(room.possible, most))


def _room_in_limits(situation: Situation, limits: Limits, cluster: str) -> int:
    """Returns how many more replicas the policy's limits allow in the cluster."""
    held = situation.held.get(cluster)
    return maximum_in_cluster(limits, cluster) - (held.replicas if held is not None else 0)


def _rule_text(situation: Situation) -> str:
    """Returns a text for users with the rule that keeps the replicas in one cluster, and with that cluster."""
    text = f"a {situation.whole} goes whole to one cluster"
    if not situation.listed:
        return text
    home = first_names_text(situation.listed)
    stays = any(held.replicas for held in situation.held.values())
    return f"{text} and is in {home}" if stays else f"{text} and {home} may still hold it"


# ── What can be asked for ───────────────────────────────────────────────────────────────────────────────────────


def check_whole(state: PlannerState, kind: str, replicas: int, policy: Policy, known: Workload | None) -> None:
    """Raises RequestError for a policy that would split a whole workload or that rules out the cluster where it is."""
    if not is_whole(kind):
        return
    if policy.strategy is not None:
        raise invalid_argument_error(
            "PlacementPolicy.spec.strategy", policy.strategy.name, f"none: {_one_cluster_text(kind)}"
        )
    minima = [limit.cluster for limit in policy.limits if limit.replicas_min > 0]
    if len(minima) > 1:
        text = f"minima in {' and '.join(sorted(minima))}"
        raise invalid_argument_error(
            "PlacementPolicy.spec.limits", text, f"a minimum in one cluster: {_one_cluster_text(kind)}"
        )
    allowed = _selected_clusters(state, policy)
    most = {limit.cluster: limit.replicas_max for limit in policy.limits if limit.replicas_max >= 0}
    least = {limit.cluster: limit.replicas_min for limit in policy.limits}
    usable = [name for name in allowed if most.get(name, replicas) >= replicas and (not minima or name in minima)]
    if replicas and not usable:
        text = ", ".join(f"{name}: min {least.get(name, 0)}, max {most.get(name, 'none')}" for name in sorted(allowed))
        raise invalid_argument_error(
            "PlacementPolicy.spec.limits", text, f"a cluster that may have all {replicas}: {_one_cluster_text(kind)}"
        )
    homes = [part.cluster for part in known.parts.values() if part.replicas_kept] if known is not None else []
    for home in homes:
        if replicas and home not in usable:
            raise RequestError(
                "FAILED_PRECONDITION",
                f"PlacementPolicy: rules out cluster {home}, where the {kind} runs: a {kind} does not move between "
                "clusters; delete it first",
            )


def _one_cluster_text(kind: str) -> str:
    return f"a {kind} goes whole to one cluster"


def _selected_clusters(state: PlannerState, policy: Policy) -> list[str]:
    index, found = state.joined_clusters().cluster_index, 0
    for tier in policy.tiers:
        found |= index.select_clusters(tier.clusters)
    return list(index.names_in(found))
