"""Tiers in order up, in reverse down, moving as few replicas as it can."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.core.division.situation import Division, HeldReplicas, Situation
from planner.core.division.tier_division import divide_workload
from planner.core.division.words import DivisionEntry, limit_text
from planner.core.feasibility.limits import Limit, LimitCode
from planner.core.feasibility.room import Room
from planner.core.knowledge.allowance import CAUSE_DRAIN
from planner.core.manifests.policy import OWN_FIRST
from spillway.events import ClusterJoined
from spillway.model import (
    SPLIT_PACK,
    SPLIT_SPREAD,
    ClusterLimit,
    ClusterSelector,
    Policy,
    Requirement,
    Tier,
)

from .builders import joined_cluster, make_room, node_group

FLEET = (
    joined_cluster("a"),
    joined_cluster("b"),
    joined_cluster("c", "cloud"),
    joined_cluster("d", "cloud", (node_group(),)),
)
NO_ROOM = make_room(0)


def room_function(
    by_cluster: dict[str, int | tuple[int, int]], groups: dict[str, int] | None = None
) -> Callable[[str, bool], Room]:
    """Room by cluster: certain, or (certain, possible); and on node groups."""

    def room_of_cluster(name: str, node_groups: bool) -> Room:
        if node_groups:
            return make_room((groups or {}).get(name, 0))
        amount = by_cluster.get(name, 0)
        return make_room(*amount) if isinstance(amount, tuple) else make_room(amount)

    return room_of_cluster


def divide_replicas(
    replicas: int,
    room_of: Callable[[str, bool], Room],
    held: dict[str, int | HeldReplicas] | None = None,
    limits: tuple[ClusterLimit, ...] = (),
    tiers: tuple[Tier, ...] = OWN_FIRST,
    settled: bool = False,
    clusters: tuple[ClusterJoined, ...] = FLEET,
    **more: Any,
) -> Division:
    have = {
        name: entry if isinstance(entry, HeldReplicas) else HeldReplicas(entry, 0, 0)
        for name, entry in (held or {}).items()
    }
    return divide_workload(
        Situation(
            replicas,
            Policy(tiers, limits, "Wait"),
            clusters,
            have,
            room_of,
            settled,
            dict.fromkeys("abcd", 5),
            by_name=True,
            **more,
        )
    )


GROWTH = {
    "own clusters first, by their room": (60, {"a": 80, "b": 40, "c": 99}, None, {"a": 40, "b": 20}, 0),
    "what own cannot take goes to the cloud": (60, {"a": 20, "b": 10, "c": 99}, None, {"a": 20, "b": 10, "c": 30}, 0),
    "then to nodes that do not exist yet": (30, {"a": 10, "c": 5}, {"d": 9}, {"a": 10, "c": 5, "d": 9}, 6),
    "nothing fits": (3, {}, None, {}, 3),
    "none wanted": (0, {"a": 9}, None, {}, 0),
}


@pytest.mark.parametrize(("replicas", "free", "groups", "expected", "unplaced"), GROWTH.values(), ids=GROWTH)
def test_tiers_are_used_in_order(
    replicas: int,
    free: dict[str, int | tuple[int, int]],
    groups: dict[str, int] | None,
    expected: dict[str, int],
    unplaced: int,
) -> None:
    division = divide_replicas(replicas, room_function(free, groups))
    assert {name: count for name, count in division.replicas.items() if count} == expected
    assert division.unplaced == unplaced


def test_replicas_for_node_groups_are_told_apart() -> None:
    division = divide_replicas(12, room_function({"d": 4}, {"d": 8}))
    assert (division.replicas, division.new) == ({"d": 12}, {"d": 8})


def test_the_last_tier_is_emptied_first() -> None:
    division = divide_replicas(80, room_function({}), {"a": 60, "b": 40, "c": 100})
    assert division.replicas == {"a": 48, "b": 32, "c": 0}


def test_what_waits_for_new_nodes_goes_before_what_runs_in_the_cloud() -> None:
    division = divide_replicas(14, room_function({}), {"c": 10, "d": HeldReplicas(10, 6, 6)})
    assert (division.replicas, division.new) == ({"c": 10, "d": 4}, {"c": 0, "d": 0})


def test_what_is_not_bound_goes_before_what_runs_in_the_same_tier() -> None:
    division = divide_replicas(15, room_function({}), {"a": HeldReplicas(10, 0, 0), "b": HeldReplicas(10, 0, 5)})
    assert division.replicas == {"a": 10, "b": 5}


def test_then_what_is_not_ready_then_the_rest() -> None:
    held: dict[str, int | HeldReplicas] = {"a": HeldReplicas(10, 0, 1), "b": HeldReplicas(10, 0, 0, unready=4)}
    assert divide_replicas(18, room_function({}), held).replicas == {"a": 9, "b": 9}
    assert divide_replicas(15, room_function({}), held).replicas == {"a": 9, "b": 6}
    assert divide_replicas(9, room_function({}), held).replicas == {"a": 5, "b": 4}


def test_to_nothing_is_nothing_everywhere() -> None:
    assert divide_replicas(0, room_function({"a": 9}), {"a": 5, "c": 5}).replicas == {"a": 0, "c": 0}


LIMITS = {
    "a maximum sends the rest on": (20, {"a": 50, "c": 50}, {}, (ClusterLimit("a", 0, 5),), {"a": 5, "c": 15}),
    "a minimum comes before the tiers": (20, {"a": 50, "c": 50}, {}, (ClusterLimit("c", 8, -1),), {"a": 12, "c": 8}),
    "a minimum that does not fit": (20, {"a": 50, "c": 3}, {}, (ClusterLimit("c", 8, -1),), {"a": 17, "c": 3}),
    "a minimum above what is wanted": (4, {"a": 50, "c": 50}, {}, (ClusterLimit("c", 8, -1),), {"c": 4}),
    "a minimum is kept on the way down": (10, {}, {"a": 15, "c": 5}, (ClusterLimit("c", 4, -1),), {"a": 6, "c": 4}),
    "a minimum gives way to the number": (2, {}, {"a": 5, "c": 5}, (ClusterLimit("c", 4, -1),), {"a": 0, "c": 2}),
    "above a maximum leaves first": (10, {}, {"a": 8, "c": 5}, (ClusterLimit("a", 0, 4),), {"a": 5, "c": 5}),
    "above a maximum moves": (13, {"c": 9}, {"a": 8, "c": 5}, (ClusterLimit("a", 0, 4),), {"a": 4, "c": 9}),
    "a maximum of none": (5, {"a": 9, "c": 9}, {}, (ClusterLimit("a", 0, 0),), {"c": 5}),
}


@pytest.mark.parametrize(("replicas", "free", "held", "limits", "expected"), LIMITS.values(), ids=LIMITS)
def test_limits(
    replicas: int,
    free: dict[str, int | tuple[int, int]],
    held: dict[str, int | HeldReplicas],
    limits: tuple[ClusterLimit, ...],
    expected: dict[str, int],
) -> None:
    assert divide_replicas(replicas, room_function(free), held, limits).replicas == expected


ONLY_OWN = (Tier("own", ClusterSelector(tiers=("own",)), SPLIT_SPREAD, False),)


def test_a_ruled_out_cluster_is_left_as_far_as_others_take_its_replicas() -> None:
    division = divide_replicas(10, room_function({"a": 3}), {"c": 10}, tiers=ONLY_OWN)
    assert division.replicas == {"a": 3, "c": 7}
    assert (division.unplaced, division.to_leave) == (0, 7)
    assert "room elsewhere for 7 replicas" in division.waiting_text()


def test_of_very_many_clusters_some_are_named_and_the_others_counted() -> None:
    """What waits is part of every placement and decision: its words do not grow with the fleet."""
    names = [f"prod-eu-central-1-cluster-{index:04d}" for index in range(1000)]
    inputs = tuple(
        DivisionEntry(name, "own", 0, 0, 0, 2, 2, Limit(LimitCode.RECORDED, said="x" * 300), 0) for name in names
    )
    counts, why = dict.fromkeys(names, 2), dict.fromkeys(names, CAUSE_DRAIN)
    division = Division({}, {}, 3000, inputs=inputs, stays=counts, reasons=why, lacking=counts, lent=counts)
    text = division.waiting_text()
    assert "2 replicas of draining cluster prod-eu-central-1-cluster-0007 wait" in text
    assert "1984 replicas of 992 clusters more wait for room elsewhere" in text
    assert "room for 1984 replicas that the minima of 992 clusters more lack" in text
    assert "1984 for nodes that 992 clusters more have lent" in text
    assert len(text) < 30_000


WAITS = {"missing": {"a": "Secret shop/key"}, "await_missing": True}
MINIMA_THAT_WAIT: dict[str, tuple[int, dict[str, Any], dict[str, int]]] = {
    "it lacks nothing but what is missing": (9, WAITS, {"a": 2}),
    "it has room for one": (1, WAITS, {"a": 1}),
    "it has no room either": (0, WAITS, {}),
    "what is kept there goes elsewhere": (9, WAITS | {"reasons": {"a": CAUSE_DRAIN}}, {}),
    "nobody waits for it yet": (1, WAITS | {"await_missing": False}, {}),
    "it is missing elsewhere": (1, WAITS | {"missing": {"c": "Secret shop/key"}}, {}),
}


@pytest.mark.parametrize(("there", "more", "waits"), MINIMA_THAT_WAIT.values(), ids=MINIMA_THAT_WAIT)
def test_of_a_minimum_only_what_lacks_nothing_else_waits_for_what_is_missing(
    there: int, more: dict[str, Any], waits: dict[str, int]
) -> None:
    found = divide_replicas(6, room_function({"a": there, "b": 20}), limits=(ClusterLimit("a", 2, -1),), **more)
    assert (found.unplaced, set(found.lacking)) == (0, {"a"})
    assert found.waits_in == waits


def test_missing_replicas_come_before_those_that_should_leave() -> None:
    division = divide_replicas(12, room_function({"a": 3}), {"c": 10}, tiers=ONLY_OWN)
    assert division.replicas == {"a": 3, "c": 9}
    assert (division.unplaced, division.to_leave) == (0, 9)


def test_a_ruled_out_cluster_is_emptied_first_on_the_way_down() -> None:
    assert divide_replicas(6, room_function({}), {"a": 5, "c": 5}, tiers=ONLY_OWN).replicas == {"a": 5, "c": 1}


def test_replicas_of_a_cluster_that_left_the_fleet_move() -> None:
    division = divide_replicas(6, room_function({"a": 9}), {"gone": 6})
    assert division.replicas == {"a": 6, "gone": 0}


def test_what_possibly_fits_waits_for_binds() -> None:
    division = divide_replicas(10, room_function({"a": (4, 9), "c": 50}))
    assert (division.replicas, division.unplaced, division.uncertain) == ({"a": 4, "c": 1}, 5, 5)
    assert division.waiting_text() == "binding of replicas that were promised before"


def test_once_settled_the_next_tier_takes_it() -> None:
    division = divide_replicas(10, room_function({"a": (4, 9), "c": 50}), settled=True)
    assert (division.replicas, division.unplaced, division.uncertain) == ({"a": 4, "c": 6}, 0, 0)


def test_within_a_tier_another_cluster_s_certain_room_does_not_wait() -> None:
    division = divide_replicas(10, room_function({"a": (4, 9), "b": 6}))
    assert (division.replicas, division.unplaced) == ({"a": 4, "b": 6}, 0)


def test_a_cluster_belongs_to_the_first_tier_that_selects_it() -> None:
    tiers = (
        Tier("eu", ClusterSelector(regions=("eu",)), SPLIT_PACK, False),
        Tier("rest", ClusterSelector(), SPLIT_PACK, False),
    )
    clusters = (joined_cluster("a"), joined_cluster("b", region="eu"))
    division = divide_replicas(5, room_function({"a": 9, "b": 3}), tiers=tiers, clusters=clusters)
    assert division.replicas == {"b": 3, "a": 2}
    assert [(entry.cluster, entry.tier) for entry in division.inputs] == [("b", "eu"), ("a", "rest")]


SELECTORS = {
    "name": (ClusterSelector(names=("a",)), "a"),
    "tier": (ClusterSelector(tiers=("cloud",)), "b"),
    "region": (ClusterSelector(regions=("us",)), "b"),
    "label": (ClusterSelector(labels=(Requirement("arch", "In", ("arm64",)),)), "a"),
    "every list must hold": (ClusterSelector(names=("a", "b"), tiers=("cloud",)), "b"),
}


@pytest.mark.parametrize(("selector", "expected"), SELECTORS.values(), ids=SELECTORS)
def test_a_selector_means_the_clusters_that_meet_all_its_lists(selector: ClusterSelector, expected: str) -> None:
    clusters = (joined_cluster("a", arch="arm64"), joined_cluster("b", "cloud", region="us", arch="amd64"))
    tiers = (Tier("t", selector, SPLIT_SPREAD, False),)
    assert divide_replicas(1, room_function({"a": 9, "b": 9}), tiers=tiers, clusters=clusters).replicas == {expected: 1}


def test_the_inputs_say_what_each_cluster_had_gets_and_was_bound_by() -> None:
    division = divide_replicas(12, room_function({"a": 9, "c": 9}), {"a": 2}, (ClusterLimit("a", 0, 5),))
    first = division.inputs[0]
    assert (first.cluster, first.before, first.after, first.certain, first.age_ms) == ("a", 2, 5, 9, 5)
    assert limit_text(first.limited_by) == "policy max 5"
    assert limit_text(division.inputs[2].limited_by) == "cpu (1 node)"


def test_fits_nowhere_is_when_no_cluster_would_take_it_even_empty() -> None:
    assert divide_replicas(1, lambda name, groups: make_room(0, when_empty=False)).fits_nowhere
    assert not divide_replicas(1, lambda name, groups: make_room(0, when_empty=name == "c")).fits_nowhere


# ── Properties ──────────────────────────────────────────────────────────────────────────────────────────────────


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    free = {
        (name, groups): make_room(certain, certain + draw(st.integers(0, 5)))
        for name in "abcd"
        for groups in (False, True)
        for certain in (draw(st.integers(0, 30)),)
    }
    held = {}
    for name in draw(st.sets(st.sampled_from("abcde"))):
        replicas = draw(st.integers(1, 30))
        unbound = draw(st.integers(0, replicas))
        held[name] = HeldReplicas(replicas, draw(st.integers(0, unbound)), unbound)
    limits = tuple(
        ClusterLimit(name, least, draw(st.sampled_from((-1, least, least + 10))))
        for name in sorted(draw(st.sets(st.sampled_from("abcd"), max_size=2)))
        for least in (draw(st.integers(0, 10)),)
    )
    split = draw(st.sampled_from((SPLIT_PACK, SPLIT_SPREAD)))
    tiers = draw(
        st.sampled_from((OWN_FIRST, ONLY_OWN, tuple(Tier(t.name, t.clusters, split, t.node_groups) for t in OWN_FIRST)))
    )
    policy = Policy(tiers, limits, "Wait")
    wanted = draw(st.one_of(st.integers(0, 150), st.just(sum(entry.replicas for entry in held.values()))))
    return Situation(
        wanted, policy, FLEET, held, lambda name, g: free[name, g], draw(st.booleans()), {}, by_name=draw(st.booleans())
    )


@given(situations())
def test_what_is_placed_and_what_is_not_is_what_was_wanted(situation: Situation) -> None:
    division = divide_workload(situation)
    assert sum(division.replicas.values()) + division.unplaced == situation.replicas
    assert all(0 <= division.new.get(name, 0) <= count for name, count in division.replicas.items())
    assert 0 <= division.uncertain <= division.unplaced
    assert division.to_leave >= 0


@given(situations())
def test_no_cluster_is_given_more_than_is_certain_or_than_its_maximum(situation: Situation) -> None:
    division = divide_workload(situation)
    most = {limit.cluster: limit.replicas_max for limit in situation.policy.limits if limit.replicas_max >= 0}
    for name, count in division.replicas.items():
        held = situation.held.get(name, HeldReplicas(0, 0, 0))
        more = count - held.replicas
        if more <= 0:
            continue
        new = division.new[name] - held.new
        assert new <= situation.room(name, True).certain
        assert more - new <= situation.room(name, False).certain
        assert count <= most.get(name, count)


@given(situations())
def test_only_replicas_that_the_policy_rules_out_or_a_minimum_lacks_move(situation: Situation) -> None:
    division = divide_workload(situation)
    allowed = {entry.cluster for entry in division.inputs}
    most = {limit.cluster: limit.replicas_max for limit in situation.policy.limits if limit.replicas_max >= 0}
    missing = situation.replicas - sum(entry.replicas for entry in situation.held.values())
    least = {limit.cluster: limit.replicas_min for limit in situation.policy.limits}
    lacked = any(count > situation.held.get(name, HeldReplicas(0, 0, 0)).replicas for name, count in least.items())
    for name, held in situation.held.items():
        keeps = min(held.replicas, most.get(name, held.replicas)) if name in allowed else 0
        if lacked:
            keeps = min(keeps, least.get(name, 0))
        if missing >= 0:
            assert division.replicas[name] >= keeps
        else:
            assert division.replicas[name] <= held.replicas
    if missing <= 0:
        assert division.unplaced == 0


@given(situations())
def test_deciding_again_on_the_result_changes_nothing(situation: Situation) -> None:
    """Less room by what was placed, and all of it bound: the second division is the first."""
    first = divide_workload(situation)
    if first.unplaced or first.to_leave:
        return
    held = {name: HeldReplicas(count, 0, 0) for name, count in first.replicas.items()}
    again = Situation(situation.replicas, situation.policy, FLEET, held, lambda name, g: NO_ROOM, True, {})
    second = divide_workload(again)
    assert second.replicas == first.replicas
