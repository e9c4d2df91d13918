"""Which clusters the tiers of a policy select, and with which weights: what is kept is what the plain rules say."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from planner.core.background.overflow import first_tier_by_cluster
from planner.core.manifests.policy import (
    DEFAULT_POLICY,
    FleetClusters,
    clusters_of_tier,
    clusters_of_tiers,
    is_cluster_selected,
    is_in_tier,
    weights_by_cluster,
)
from spillway.events import ClusterJoined
from spillway.model import SPLIT_SPREAD, SPLIT_WEIGHTED, ClusterSelector, ClusterWeight, Policy, Strategy, Tier

from .builders import joined_cluster

NAMES = ("a", "b", "c", "d")
FLEET = FleetClusters(
    (
        joined_cluster("a", "own", region="north"),
        joined_cluster("b", "own", region="south"),
        joined_cluster("c", "cloud", region="north"),
        joined_cluster("d", "cloud", region="south"),
    )
)
SELECTORS = st.builds(
    ClusterSelector,
    names=st.lists(st.sampled_from((*NAMES, "elsewhere")), max_size=2).map(tuple),
    tiers=st.lists(st.sampled_from(("own", "cloud")), max_size=1).map(tuple),
    regions=st.lists(st.sampled_from(("north", "south")), max_size=1).map(tuple),
    excluded=st.lists(st.sampled_from(NAMES), max_size=1).map(tuple),
)
WEIGHTS = st.lists(st.builds(ClusterWeight, SELECTORS, st.integers(1, 5)), max_size=5).map(tuple)
TIERS = st.builds(Tier, st.sampled_from("xyz"), SELECTORS, st.just(SPLIT_WEIGHTED), st.booleans(), WEIGHTS)


def plain_weight(weights: Iterable[ClusterWeight], cluster: ClusterJoined) -> int:
    """The largest weight of those that select the cluster, one after the other."""
    return max((one.weight for one in weights if is_cluster_selected(one.clusters, cluster)), default=0)


def is_plainly_in(tier: Tier, cluster: ClusterJoined) -> bool:
    weighed = not tier.weights or plain_weight(tier.weights, cluster) > 0
    return is_cluster_selected(tier.clusters, cluster) and weighed


@given(WEIGHTS)
def test_of_several_weights_the_largest_counts_by_name_and_by_any_selector(weights: tuple[ClusterWeight, ...]) -> None:
    found = weights_by_cluster(Strategy("KarmadaStaticWeight", weights), FLEET)
    assert found == {cluster.cluster: plain_weight(weights, cluster) for cluster in FLEET}


@given(TIERS)
def test_the_clusters_of_a_tier_are_those_that_it_and_one_of_its_weights_select(tier: Tier) -> None:
    wanted = {cluster.cluster for cluster in FLEET if is_plainly_in(tier, cluster)}
    assert clusters_of_tier(tier, FLEET) == wanted == {one.cluster for one in FLEET if is_in_tier(tier, one)}


@given(st.lists(TIERS, max_size=4).map(tuple))
def test_the_first_tier_of_a_cluster_is_that_of_its_existing_nodes(tiers: tuple[Tier, ...]) -> None:
    policy = Policy(tiers, (), DEFAULT_POLICY.unplaceable)
    for cluster in FLEET:
        places = [(tier.node_groups, index) for index, tier in enumerate(tiers) if is_plainly_in(tier, cluster)]
        wanted = min(places, default=(False, len(tiers)))[1]
        assert first_tier_by_cluster(policy, FLEET)[cluster.cluster] == wanted


class CountedText(str):
    """A text that counts how often its hash is asked for."""

    __slots__ = ("asked",)

    def __hash__(self) -> int:
        self.asked = getattr(self, "asked", 0) + 1
        return super().__hash__()


def test_a_tier_of_many_weights_is_hashed_once_however_often_it_is_looked_up() -> None:
    """Each decision looks its tiers up a dozen times: 16,000 weights made each Scale cost 0.2 s."""
    name = CountedText("a")
    weights = (ClusterWeight(ClusterSelector((name,)), 1),)
    tiers = (
        Tier("x", ClusterSelector(), SPLIT_WEIGHTED, False, weights),
        Tier("y", ClusterSelector(), SPLIT_SPREAD, False),
    )
    strategy = Strategy("KarmadaStaticWeight", weights)
    clusters_of_tiers(tiers, FLEET)
    weights_by_cluster(strategy, FLEET)
    before = name.asked
    for _ in range(10):
        clusters_of_tiers(tiers, FLEET)
        weights_by_cluster(strategy, FLEET)
    assert name.asked == before
