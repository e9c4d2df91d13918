"""Our own division moves as few replicas as any that achieves as much: compared with every division there is.

Achieved, in this order: replicas placed, replicas out of clusters that the policy rules out or above a maximum, minima
met. A move is a replica that a cluster has fewer: Σ max(0, before − after).
"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.core.division.situation import Division, HeldReplicas, Situation
from planner.core.division.tier_division import divide_workload
from spillway.model import SPLIT_WEIGHTED, SPLITS, ClusterLimit, ClusterSelector, ClusterWeight, Policy, Tier

from .builders import joined_cluster, make_room

NAMES = "abcdef"
SELECTED = "abcd"
FLEET = tuple(joined_cluster(name) for name in NAMES)
NOTHING = HeldReplicas(0, 0, 0)


def tier_of_clusters(name: str, clusters: str, split: str) -> Tier:
    selector = ClusterSelector(names=tuple(clusters))
    return Tier(name, selector, split, False, (ClusterWeight(ClusterSelector(), 1),) if split == SPLIT_WEIGHTED else ())


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    """Six clusters, of which the policy rules two out; some have bounds."""
    small = st.integers(0, 3)
    held = {name: HeldReplicas(count, 0, draw(st.integers(0, count))) for name in NAMES if (count := draw(small))}
    free = {name: draw(st.integers(0, 2)) for name in NAMES}
    limits = []
    for name in sorted(draw(st.sets(st.sampled_from(SELECTED), max_size=2))):
        least = draw(st.integers(0, 3))
        limits.append(ClusterLimit(name, least, draw(st.sampled_from((-1, least, least + 1)))))
    split = draw(st.sampled_from(SPLITS))
    tiers = draw(
        st.sampled_from(
            (
                (tier_of_clusters("all", SELECTED, split),),
                (tier_of_clusters("near", "ab", split), tier_of_clusters("far", "cd", split)),
            )
        )
    )
    wanted = draw(st.one_of(st.integers(0, 14), st.just(sum(entry.replicas for entry in held.values()))))
    policy = Policy(tiers, tuple(limits), "Wait")
    return Situation(wanted, policy, FLEET, held, lambda name, groups: make_room(free[name]), True, {})


def bounds_by_cluster(situation: Situation) -> tuple[list[int], list[int], list[int], list[int]]:
    """By cluster: before, the most after, the most that may stay, the least."""
    limits = {limit.cluster: limit for limit in situation.policy.limits}
    before = [situation.held.get(name, NOTHING).replicas for name in NAMES]
    stays = [0 if name not in SELECTED else 99 for name in NAMES]
    least = [0] * len(NAMES)
    for index, name in enumerate(NAMES):
        if name in limits:
            stays[index] = limits[name].replicas_max if limits[name].replicas_max >= 0 else 99
            least[index] = limits[name].replicas_min
    grown = [count + situation.room(name, False).certain for name, count in zip(NAMES, before, strict=True)]
    most = [max(count, min(up, stay)) for count, up, stay in zip(before, grown, stays, strict=True)]
    return before, most, stays, least


def division_costs(situation: Situation, division: Division) -> tuple[int, int, int, int]:
    """Not placed, not out, lacking of minima, moved."""
    before, _, stays, least = (np.array(values) for values in bounds_by_cluster(situation))
    after = np.array([division.replicas.get(name, 0) for name in NAMES])
    return (
        situation.replicas - int(after.sum()),
        int(np.maximum(0, after - stays).sum()),
        int(np.maximum(0, least - after).sum()),
        int(np.maximum(0, before - after).sum()),
    )


@given(situations())
def test_no_division_achieves_as_much_with_fewer_moves(situation: Situation) -> None:
    unplaced, out, lacking, moved = division_costs(situation, divide_workload(situation))
    before, most, stays, least = (np.array(values) for values in bounds_by_cluster(situation))
    every = np.stack(np.meshgrid(*(np.arange(count + 1) for count in most), indexing="ij"), -1).reshape(-1, len(NAMES))
    every = every[every.sum(axis=1) <= situation.replicas]
    missing = situation.replicas - every.sum(axis=1)
    assert unplaced == missing.min()
    as_much = (
        (missing <= unplaced)
        & (np.maximum(0, every - stays).sum(axis=1) <= out)
        & (np.maximum(0, least - every).sum(axis=1) <= lacking)
    )
    moves = np.maximum(0, before - every).sum(axis=1)
    assert moved == moves[as_much].min()
