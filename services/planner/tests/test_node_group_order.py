"""Cheapest and soonest first, inside a tier of node groups."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.core.division.situation import Division, HeldReplicas, Situation
from planner.core.division.tier_division import divide_workload
from planner.core.feasibility.room import Room
from planner.core.manifests.node_group_order import places_by_cluster
from planner.core.manifests.policy import OWN_FIRST, read_policy
from spillway.api import RequestError
from spillway.events import ClusterJoined
from spillway.model import SPLIT_CHEAPEST, SPLIT_SOONEST, SPLITS_OF_NODE_GROUPS, NodeGroup, Policy

from .builders import joined_cluster, make_room, node_group

SMALL_DEAR = node_group("small-dear", cpu=4_000, cost=0.4, lead=30)
LARGE_CHEAP = node_group("large-cheap", cpu=64_000, cost=3.2, lead=300)
SPOT = node_group("spot", cpu=4_000, cost=0.1, lead=120)
UNPRICED = node_group("unpriced", cost=0.0, lead=60)
UNTIMED = node_group("untimed", cost=0.4, lead=0)

ORDERS = {
    "by the price of a core, not of a node": (SPLIT_CHEAPEST, {"a": [SMALL_DEAR], "b": [LARGE_CHEAP]}, "ba"),
    "by the lead time": (SPLIT_SOONEST, {"a": [LARGE_CHEAP], "b": [SMALL_DEAR]}, "ba"),
    "a cluster stands where its best group does": (SPLIT_CHEAPEST, {"a": [LARGE_CHEAP], "b": [SMALL_DEAR, SPOT]}, "ba"),
    "a price that is not known comes last": (SPLIT_CHEAPEST, {"a": [UNPRICED], "b": [SMALL_DEAR]}, "ba"),
    "a lead time that is not known comes last": (SPLIT_SOONEST, {"a": [UNTIMED], "b": [LARGE_CHEAP]}, "ba"),
    "of equally cheap ones the sooner": (
        SPLIT_CHEAPEST,
        {"a": [replace(SPOT, lead_time_seconds=121)], "b": [SPOT]},
        "ba",
    ),
    "of equally soon ones the cheaper": (SPLIT_SOONEST, {"a": [replace(SPOT, cost_per_hour=0.2)], "b": [SPOT]}, "ba"),
    "equals by name": (SPLIT_CHEAPEST, {"b": [SPOT], "a": [SPOT]}, "ab"),
}


@pytest.mark.parametrize(("split", "groups", "order"), ORDERS.values(), ids=ORDERS)
def test_who_is_asked_first(split: str, groups: dict[str, list[NodeGroup]], order: str) -> None:
    """Of nine replicas the first takes the six that it has room for; with three fewer the other one is empty."""
    fleet = tuple(joined_cluster(name, "cloud", entries) for name, entries in groups.items())
    first, second = order
    assert divide_on_node_groups(split, 9, fleet).new == {first: 6, second: 3}
    held = {first: HeldReplicas(6, 6, 6), second: HeldReplicas(3, 3, 3)}
    assert divide_on_node_groups(split, 6, fleet, held).replicas == {first: 6, second: 0}


def divide_on_node_groups(
    split: str,
    replicas: int,
    fleet: tuple[ClusterJoined, ...],
    held: dict[str, HeldReplicas] | None = None,
    most: int = 6,
) -> Division:
    """By the default policy with another split of node groups; nothing fits on nodes that exist."""
    have = held or {}

    def room_on_node_groups(name: str, node_groups: bool) -> Room:
        return make_room(most - (have[name].new if name in have else 0) if node_groups else 0)

    tiers = (*OWN_FIRST[:-1], replace(OWN_FIRST[-1], split=split))
    ages = {entry.cluster: 5 for entry in fleet}
    return divide_workload(
        Situation(replicas, Policy(tiers, (), "Wait"), fleet, have, room_on_node_groups, False, ages)
    )


GROUPS = st.builds(
    lambda cost, lead, cpu: node_group(cost=cost, lead=lead, cpu=cpu),
    st.sampled_from((0.0, 0.1, 0.2, 3.2)),
    st.sampled_from((0, 30, 120)),
    st.sampled_from((0, 4_000, 64_000)),
)
FLEETS = st.dictionaries(st.sampled_from("abcdef"), st.lists(GROUPS, min_size=1, max_size=2), min_size=1)


@given(st.sampled_from(SPLITS_OF_NODE_GROUPS), FLEETS, st.integers(0, 40), st.integers(0, 9), st.integers(0, 99))
def test_sums_bounds_order_and_again(
    split: str, groups: dict[str, list[NodeGroup]], replicas: int, most: int, seed: int
) -> None:
    """All that fits is placed, nowhere above its room; who comes later in the order gets none while an earlier one has
    room; the order in which clusters are listed means nothing; deciding again changes nothing."""
    fleet = [joined_cluster(name, "cloud", entries) for name, entries in groups.items()]
    found = divide_on_node_groups(split, replicas, tuple(fleet), most=most)
    assert sum(found.new.values()) == min(replicas, most * len(fleet)) == replicas - found.unplaced
    assert all(count <= most for count in found.new.values())
    order = places_by_cluster(split, fleet)
    open_ = [order[name] for name in order if found.new.get(name, 0) < most]
    assert all(order[name] <= min(open_, default=0) for name, count in found.new.items() if count and open_)
    Random(seed).shuffle(fleet)
    assert divide_on_node_groups(split, replicas, tuple(fleet), most=most).new == found.new
    held = {name: HeldReplicas(count, count, count) for name, count in found.new.items()}
    assert divide_on_node_groups(split, replicas, tuple(fleet), held, most).new == found.new


@pytest.mark.parametrize("split", SPLITS_OF_NODE_GROUPS)
def test_only_a_tier_of_node_groups_goes_by_them(split: str) -> None:
    def policy_with_tier(node_groups: bool) -> dict[str, object]:
        tier = {"name": "t", "split": split, "nodeGroups": node_groups}
        return {"apiVersion": "spillway.io/v1", "kind": "PlacementPolicy", "spec": {"tiers": [tier]}}

    assert read_policy(policy_with_tier(node_groups=True)).tiers[0].split == split
    with pytest.raises(RequestError, match=r"tiers\[0\].split: '.*': expected nodeGroups: true"):
        read_policy(policy_with_tier(node_groups=False))
