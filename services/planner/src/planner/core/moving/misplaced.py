"""What runs where its policy would not have it: because of a join or a label, or because it was adopted there."""

from functools import lru_cache

from planner.core.division.placement import most_of
from planner.core.manifests.policy import Clusters, clusters_of_tiers
from planner.core.state import PlannerState
from planner.core.workload import Workload
from spillway.model import Policy, Tier

SELECTIONS_KEPT_MAX = 4096


def most_in(policy: Policy, cluster: str, clusters: Clusters) -> int:
    """The most replicas that a policy has in a cluster; a strategy bounds those of its tiers by itself."""
    if cluster not in _selected(policy.tiers, clusters):
        return 0
    return most_of({limit.cluster: limit for limit in policy.limits}, cluster)


def ruled_out(state: PlannerState, workload: Workload) -> dict[str, int]:
    """By cluster, kept replicas that the policy would have elsewhere. Not those that a person sent there by name.

    Computed anew only where the placement, the policy or the clusters of the fleet are others. Not to be changed.
    """
    as_of = workload.placement, workload.declared.policy, state.joined()
    known, found = workload.ruled_out
    if len(known) != len(as_of) or any(one is not other for one, other in zip(known, as_of, strict=True)):
        found = _ruled_out(workload, as_of[2])
        workload.ruled_out = as_of, found
    return found


def find_all(state: PlannerState) -> None:
    """Once a turn: who is misplaced though nothing said so, as a join was the last that the turn before wrote."""
    if not state.all_looked_through:
        state.all_looked_through = True
        for key, workload in state.workloads.items():
            if ruled_out(state, workload):
                state.misplaced[key] = None


def _ruled_out(workload: Workload, clusters: Clusters) -> dict[str, int]:
    policy, found = workload.declared.policy, {}
    for name, part in workload.parts.items():
        kept = part.replicas_kept
        most = most_in(policy, name, clusters) if kept else 0
        if policy.strategy is not None and most:
            continue
        over = min(kept - most, kept - min(part.replicas_by_name, kept))
        if over > 0:
            found[name] = over
    return found


@lru_cache(maxsize=SELECTIONS_KEPT_MAX)
def _selected(tiers: tuple[Tier, ...], clusters: Clusters) -> frozenset[str]:
    return frozenset(name for _, names in clusters_of_tiers(tiers, clusters) for name in names)
