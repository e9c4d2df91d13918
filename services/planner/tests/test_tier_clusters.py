"""Which clusters the tiers of a policy select, and with which weights: what is kept is what the plain rules say."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.core.background.overflow import first_tier_by_cluster
from planner.core.manifests.cluster_index import ClusterIndex
from planner.core.manifests.policy import (
    DEFAULT_POLICY,
    FleetClusters,
    bits_of_tiers,
    clusters_of_tiers,
    is_cluster_selected,
    is_in_tier,
    weights_by_cluster,
)
from planner.core.placement.misplaced import allowed_maximum, may_use_cluster
from planner.core.requests import decisions
from spillway.api import ApplyRequest
from spillway.events import PHASE_CORDONED, ClusterJoined
from spillway.kubernetes.pod_shape import matches_labels
from spillway.lending_marks import SUPPLY_CLASS
from spillway.model import (
    SPLIT_SPREAD,
    SPLIT_WEIGHTED,
    SUPPLY_CLOUD,
    SUPPLY_DEDICATED,
    SUPPLY_IDLE,
    ClusterSelector,
    ClusterWeight,
    Policy,
    Requirement,
    Strategy,
    Tier,
)

from .builders import (
    Fleet,
    apply_to_fleet,
    deployment,
    joined_cluster,
    manifest_texts,
    node_group,
    node_row,
    placement_policy,
)

NAMES = ("a", "b", "c", "d")
FLEET = FleetClusters(
    (
        joined_cluster("a", "own", region="north", rack="1", gpu="yes"),
        joined_cluster("b", "own", [node_group()], region="south", rack="2"),
        replace(joined_cluster("c", "cloud", [node_group()], region="north", rack="2"), zone="z1"),
        replace(joined_cluster("d", "cloud", region="south", rack="x", **{SUPPLY_CLASS: SUPPLY_IDLE}), zone="z2"),
    )
)
KEYS, VALUES = st.sampled_from(("rack", "gpu", "none")), st.sampled_from(("1", "2", "x", "yes"))
REQUIREMENTS = st.one_of(
    st.builds(Requirement, KEYS, st.sampled_from(("In", "NotIn")), st.lists(VALUES, min_size=1, max_size=3).map(tuple)),
    st.builds(Requirement, KEYS, st.sampled_from(("Exists", "DoesNotExist")), st.just(())),
    st.builds(Requirement, KEYS, st.sampled_from(("Gt", "Lt")), st.sampled_from((("1",), ("2",)))),
)
ASKED = {
    "names": st.sampled_from((*NAMES, "elsewhere")),
    "tiers": st.sampled_from(("own", "cloud")),
    "regions": st.sampled_from(("north", "south")),
    "zones": st.sampled_from(("z1", "z2")),
    "labels": REQUIREMENTS,
    "excluded": st.sampled_from(NAMES),
    "supply_classes": st.sampled_from((SUPPLY_CLOUD, SUPPLY_DEDICATED, SUPPLY_IDLE)),
}
FIELDS = {field: st.lists(entries, min_size=1, max_size=2).map(tuple) for field, entries in ASKED.items()}
SELECTORS = st.one_of(
    st.just(ClusterSelector()),
    *(st.builds(ClusterSelector, **{field: entries}) for field, entries in FIELDS.items()),
    st.builds(ClusterSelector, **FIELDS),
)
"""Few clusters are selected by all lists at once, so most selectors have one."""
WEIGHTS = st.lists(st.builds(ClusterWeight, SELECTORS, st.integers(1, 5)), max_size=5).map(tuple)
TIERS = st.builds(Tier, st.sampled_from("xyz"), SELECTORS, st.just(SPLIT_WEIGHTED), st.booleans(), WEIGHTS)


def plain_weight(weights: Iterable[ClusterWeight], cluster: ClusterJoined) -> int:
    """The largest weight of those that select the cluster, one after the other."""
    return max((one.weight for one in weights if is_cluster_selected(one.clusters, cluster)), default=0)


def tier_clusters(tier: Tier) -> set[str]:
    """What the index finds for a tier."""
    (bits,) = bits_of_tiers((tier,), FLEET.cluster_index)
    return set(FLEET.cluster_index.names_in(bits))


def plain_clusters_of_tiers(tiers: tuple[Tier, ...]) -> list[tuple[Tier, tuple[str, ...]]]:
    """Each cluster in the first tier of its kind that has it, one after the other."""
    placed, found = set[tuple[str, bool]](), []
    for tier in tiers:
        new = [
            one.cluster
            for one in FLEET
            if is_plainly_in(tier, one)
            and (one.cluster, tier.node_groups) not in placed
            and (one.node_groups or not tier.node_groups)
        ]
        placed.update((name, tier.node_groups) for name in new)
        found.append((tier, tuple(sorted(new))))
    return found


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
    assert tier_clusters(tier) == wanted == {one.cluster for one in FLEET if is_in_tier(tier, one)}


@given(SELECTORS)
def test_the_index_selects_what_the_comparison_with_each_cluster_selects(selector: ClusterSelector) -> None:
    found = FLEET.cluster_index.names_in(FLEET.cluster_index.select_clusters(selector))
    assert list(found) == [one.cluster for one in FLEET if is_cluster_selected(selector, one)]


@given(st.lists(TIERS, max_size=4).map(tuple))
def test_a_cluster_is_in_the_first_tier_of_its_kind_and_all_tiers_are_what_a_policy_allows(
    tiers: tuple[Tier, ...],
) -> None:
    plain = plain_clusters_of_tiers(tiers)
    assert list(clusters_of_tiers(tiers, FLEET)) == plain
    allowed = {name for _, names in plain for name in names}
    policy = Policy(tiers, (), DEFAULT_POLICY.unplaceable)
    for cluster in FLEET:
        assert allowed_maximum(policy, cluster.cluster, FLEET) == (2**31 if cluster.cluster in allowed else 0)


FLEET_CHANGES = [
    pytest.param({"phase": PHASE_CORDONED}, True, id="its-phase"),
    pytest.param({"api_server": "uid"}, True, id="its-API-server"),
    pytest.param({"cluster": "another"}, False, id="its-name"),
    pytest.param({"tier": "edge"}, False, id="its-tier"),
    pytest.param({"region": "west"}, False, id="its-region"),
    pytest.param({"zone": "z9"}, False, id="its-zone"),
    pytest.param({"labels": (("rack", "9"),)}, False, id="its-labels"),
    pytest.param({"node_groups": (node_group(),)}, False, id="that-it-has-node-groups"),
]


@pytest.mark.parametrize(("change", "stays"), FLEET_CHANGES)
def test_the_index_is_made_again_when_what_a_selector_can_ask_for_changes(
    change: dict[str, object], stays: bool
) -> None:
    before = FleetClusters(FLEET)
    index = before.cluster_index
    after = FleetClusters((replace(FLEET[0], **change), *FLEET[1:]))
    after.take_index_of(before)
    assert (after.cluster_index is index) == stays
    one_more = FleetClusters((*FLEET, joined_cluster("e", "own")))
    one_more.take_index_of(before)
    assert one_more.cluster_index is not index


def test_a_policy_of_2000_selectors_costs_one_look_up_each_however_many_clusters_there_are(calls_of: Any) -> None:
    """Compared with each cluster, they took 120 ms at 100 clusters, in each Plan."""
    clusters = FleetClusters(joined_cluster(f"c-{number}", "own", rack=str(number)) for number in range(1000))
    weights = tuple(
        ClusterWeight(ClusterSelector(labels=(Requirement("rack", "In", (str(number),)),)), 1) for number in range(998)
    )
    tiers = tuple(
        Tier(name, ClusterSelector(), SPLIT_WEIGHTED, False, (*weights, ClusterWeight(ClusterSelector(), 1)))
        for name in ("x", "y")
    )
    counted = (ClusterIndex.select_clusters, is_cluster_selected, matches_labels, ClusterIndex.__init__)
    with calls_of(*counted) as calls:
        found = clusters_of_tiers(tiers, clusters)
        assert weights_by_cluster(tiers[0], clusters)["c-7"] == 1
    assert [len(names) for _, names in found] == [1000, 0]
    names = Counter(call.of for call in calls)
    assert names == {"__init__": 1, "select_clusters": 2 + 3 * 999}


@given(st.lists(TIERS, max_size=4).map(tuple))
def test_the_first_tier_of_a_cluster_is_that_of_its_existing_nodes(tiers: tuple[Tier, ...]) -> None:
    policy = Policy(tiers, (), DEFAULT_POLICY.unplaceable)
    for cluster in FLEET:
        places = [(tier.node_groups, index) for index, tier in enumerate(tiers) if is_plainly_in(tier, cluster)]
        wanted = min(places, default=(False, len(tiers)))[1]
        assert first_tier_by_cluster(policy, FLEET)[cluster.cluster] == wanted


def test_what_a_policy_selects_stays_with_its_workload_however_many_other_policies_come(calls_of: Any) -> None:
    fleet = Fleet(own_1=[node_row("n")])
    request = ApplyRequest(manifest_texts(deployment(1), placement_policy(tiers=[{"name": "all"}])))
    apply_to_fleet(fleet, decisions.decide_apply(fleet.state, request, fleet.next_moment()).events)
    (workload,) = fleet.state.workloads.values()
    assert may_use_cluster(fleet.state, workload, "own-1")
    bits_of_tiers.cache_clear()
    with calls_of(ClusterIndex.select_clusters) as calls:
        assert may_use_cluster(fleet.state, workload, "own-1")
        assert not may_use_cluster(fleet.state, workload, "own-2")
    assert calls == []


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
