"""Strategies for a whole policy: what they ask for becomes steps that nothing running pays for."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.core.background import aftermath
from planner.core.division.situation import Division, HeldReplicas, Situation
from planner.core.feasibility.room import Room
from planner.core.knowledge.allowance import CAUSE_DRAIN, CAUSE_FAILOVER
from planner.core.manifests.policy import ALL_CLUSTERS
from planner.core.placement.choice import division_function
from spillway.events import ClusterJoined
from spillway.model import (
    STRATEGIES,
    STRATEGY_DUPLICATED,
    STRATEGY_KARMADA_AGGREGATED,
    STRATEGY_KARMADA_DYNAMIC,
    STRATEGY_KARMADA_STATIC,
    STRATEGY_KUBEADMIRAL,
    ClusterLimit,
    ClusterSelector,
    ClusterWeight,
    GroupSpread,
    Policy,
    Strategy,
    Tier,
)

from .builders import Fleet, deployment, joined_cluster, make_room, node_row, placement_policy
from .test_decisions import apply_manifests, assert_refused, parts_by_cluster, placed_by_cluster, scale_workload

FLEET = (joined_cluster("a", region="north"), joined_cluster("b", region="north"), joined_cluster("c", region="south"))
NOTHING = HeldReplicas(0, 0, 0)


def weight_of_cluster(name: str, amount: int) -> ClusterWeight:
    return ClusterWeight(ClusterSelector(names=(name,)), amount)


def tier_of_clusters(name: str, *clusters: str) -> Tier:
    return Tier(name, ClusterSelector(names=clusters), "Spread", False)


HOME, ABROAD = tier_of_clusters("home", "a"), tier_of_clusters("abroad", "b", "c")


def divide_by_strategy(
    strategy: Strategy,
    replicas: int,
    rooms: dict[str, int],
    held: dict[str, int] | None = None,
    tiers: tuple[Tier, ...] = ALL_CLUSTERS,
    limits: tuple[ClusterLimit, ...] = (),
    **more: object,
) -> Division:
    """By name, and settled, unless more says otherwise."""
    have = {name: HeldReplicas(count, 0, 0) for name, count in (held or {}).items()}
    chosen = Policy(tiers, limits, "Wait", strategy=strategy)
    situation = Situation(
        replicas, chosen, FLEET, have, lambda name, groups: make_room(rooms.get(name, 0)), True, {}, by_name=True
    )
    situation = replace(situation, **more)  # type: ignore[arg-type]
    return division_function(situation)(situation)


STATIC = Strategy(STRATEGY_KARMADA_STATIC, (weight_of_cluster("a", 3), weight_of_cluster("b", 1)))
DYNAMIC, AGGREGATED = Strategy(STRATEGY_KARMADA_DYNAMIC), Strategy(STRATEGY_KARMADA_AGGREGATED)
DUPLICATED = Strategy(STRATEGY_DUPLICATED)
KUBEADMIRAL = Strategy(STRATEGY_KUBEADMIRAL, (weight_of_cluster("a", 1), weight_of_cluster("b", 1)))
TWO_CLUSTERS = (GroupSpread("cluster", 2, 2),)
TWO_REGIONS = (GroupSpread("region", 2, 0), GroupSpread("cluster", 2, 2))

NEW = {
    "static weight: by weight": (STATIC, 8, {"a": 9, "b": 9, "c": 9}, {"a": 6, "b": 2}, 0),
    "static weight: what has no room waits": (STATIC, 8, {"a": 4, "b": 9, "c": 9}, {"a": 4, "b": 2}, 2),
    "static weight: without weights all alike": (
        Strategy(STRATEGY_KARMADA_STATIC), 6, {"a": 9, "b": 9, "c": 9}, {"a": 2, "b": 2, "c": 2}, 0
    ),
    "dynamic weight: by room": (DYNAMIC, 6, {"a": 6, "b": 4, "c": 2}, {"a": 3, "b": 2, "c": 1}, 0),
    "dynamic weight: all or none": (DYNAMIC, 13, {"a": 6, "b": 4, "c": 2}, {}, 13),
    "aggregated: the fewest clusters": (AGGREGATED, 6, {"a": 6, "b": 4, "c": 2}, {"a": 6}, 0),
    "spread by cluster": (
        Strategy(STRATEGY_KARMADA_DYNAMIC, spread=TWO_CLUSTERS), 5, {"a": 6, "b": 4, "c": 2}, {"a": 3, "b": 2}, 0
    ),
    "spread by region": (
        Strategy(STRATEGY_KARMADA_DYNAMIC, spread=TWO_REGIONS), 4, {"a": 6, "b": 4, "c": 2}, {"a": 3, "c": 1}, 0
    ),
    "kubeadmiral: by weight, as far as there is room": (KUBEADMIRAL, 8, {"a": 2, "b": 9, "c": 9}, {"a": 2, "b": 6}, 0),
    "kubeadmiral: what has no room waits": (KUBEADMIRAL, 8, {"a": 2, "b": 3, "c": 9}, {"a": 2, "b": 3}, 3),
    "duplicated: all everywhere": (DUPLICATED, 3, {"a": 9, "b": 3, "c": 1}, {"a": 3, "b": 3, "c": 1}, 2),
    "duplicated: in as many clusters": (
        Strategy(STRATEGY_DUPLICATED, spread=TWO_CLUSTERS), 3, {"a": 9, "b": 3, "c": 4}, {"a": 3, "c": 3}, 0
    ),
}  # fmt: skip


@pytest.mark.parametrize(("strategy", "replicas", "rooms", "expected", "unplaced"), NEW.values(), ids=NEW)
def test_a_new_workload(
    strategy: Strategy, replicas: int, rooms: dict[str, int], expected: dict[str, int], unplaced: int
) -> None:
    division = divide_by_strategy(strategy, replicas, rooms)
    assert {name: count for name, count in division.replicas.items() if count} == expected
    assert division.unplaced == unplaced


CHANGED = {
    "dynamic weight: more, by room": (DYNAMIC, 9, {"a": 2, "b": 1}, {"a": 3, "b": 3}, {"a": 5, "b": 4}),
    "dynamic weight: fewer, by what is there": (DYNAMIC, 4, {"c": 9}, {"a": 6, "b": 2}, {"a": 3, "b": 1}),
    "dynamic weight: as many stay where they are": (DYNAMIC, 8, {"c": 9}, {"a": 6, "b": 2}, {"a": 6, "b": 2}),
    "aggregated: fewer, in the largest": (AGGREGATED, 5, {"c": 9}, {"a": 6, "b": 2}, {"a": 5, "b": 0}),
    "static weight: fewer": (STATIC, 4, {}, {"a": 6, "b": 2}, {"a": 3, "b": 1}),
    "static weight: moved to the weights": (STATIC, 8, {"a": 9}, {"a": 2, "b": 6}, {"a": 6, "b": 2}),
    "static weight: moved as far as there is room": (STATIC, 8, {"a": 1}, {"a": 2, "b": 6}, {"a": 3, "b": 5}),
    "kubeadmiral: disturbs as few as it can": (KUBEADMIRAL, 9, {"a": 9, "b": 9}, {"a": 6, "b": 2}, {"a": 6, "b": 3}),
    "duplicated: more in each": (DUPLICATED, 5, {"a": 9, "b": 1}, {"a": 3, "b": 3}, {"a": 5, "b": 4}),
    "duplicated: fewer in each": (DUPLICATED, 1, {}, {"a": 3, "b": 2, "c": 1}, {"a": 1, "b": 1, "c": 1}),
    "to nothing": (STATIC, 0, {}, {"a": 3, "b": 1}, {"a": 0, "b": 0}),
}


@pytest.mark.parametrize(("strategy", "replicas", "rooms", "held", "expected"), CHANGED.values(), ids=CHANGED)
def test_a_workload_that_is_there(
    strategy: Strategy, replicas: int, rooms: dict[str, int], held: dict[str, int], expected: dict[str, int]
) -> None:
    found = divide_by_strategy(strategy, replicas, rooms, held).replicas
    assert {name: count for name, count in found.items() if count or name in held} == expected


def test_what_a_strategy_moves_leaves_only_once_others_run() -> None:
    assert divide_by_strategy(STATIC, 8, {"a": 9}, {"a": 2, "b": 6}).moved == {"b": 4}
    assert divide_by_strategy(STATIC, 4, {"a": 9}, {"a": 1, "b": 7}).moved == {"b": 2}


def test_nothing_moves_between_clusters_that_nobody_asked_for_by_name() -> None:
    assert divide_by_strategy(STATIC, 8, {"a": 9}, {"a": 2, "b": 6}, by_name=False).replicas == {"a": 2, "b": 6}
    assert divide_by_strategy(STATIC, 9, {"a": 9}, {"a": 2, "b": 6}, by_name=False).replicas == {"a": 3, "b": 6}


def test_nothing_moves_under_a_brake() -> None:
    assert divide_by_strategy(STATIC, 8, {"a": 9}, {"a": 2, "b": 6}, fixed=frozenset("a")).replicas == {"a": 2, "b": 6}


OVERFLOW = (HOME, ABROAD)


def test_tiers_overflow_one_after_the_other_and_back() -> None:
    assert divide_by_strategy(DYNAMIC, 6, {"a": 4, "b": 4, "c": 4}, tiers=OVERFLOW).replicas == {"a": 4, "b": 1, "c": 1}
    assert divide_by_strategy(DYNAMIC, 4, {}, {"a": 4, "b": 1, "c": 1}, tiers=OVERFLOW).replicas == {
        "a": 4,
        "b": 0,
        "c": 0,
    }


def test_of_alternatives_the_first_that_takes_all_is_used_and_kept() -> None:
    strategy = replace(DYNAMIC, alternatives=True)
    assert divide_by_strategy(strategy, 6, {"a": 4, "b": 4, "c": 4}, tiers=OVERFLOW).replicas == {"b": 3, "c": 3}
    assert divide_by_strategy(strategy, 6, {"a": 9}, {"b": 3, "c": 3}, tiers=OVERFLOW).replicas == {"b": 3, "c": 3}
    assert divide_by_strategy(strategy, 9, {"a": 4, "b": 4}, tiers=OVERFLOW).unplaced == 9


def test_what_a_policy_rules_out_leaves_as_far_as_others_take_it() -> None:
    division = divide_by_strategy(DYNAMIC, 6, {"a": 6, "b": 4}, {"c": 6}, tiers=(tier_of_clusters("t", "a", "b"),))
    assert (division.replicas, division.moved) == ({"c": 0, "a": 4, "b": 2}, {"c": 6})
    division = divide_by_strategy(DYNAMIC, 6, {"a": 2}, {"c": 6}, tiers=(tier_of_clusters("t", "a", "b"),))
    assert (division.replicas, division.to_leave) == ({"c": 4, "a": 2}, 4)


def test_a_lost_cluster_is_replaced_as_far_as_may_move() -> None:
    lost = {"reasons": {"c": CAUSE_FAILOVER}, "moving": {"c": 4}}
    division = divide_by_strategy(DYNAMIC, 6, {"a": 6, "b": 2}, {"c": 6}, **lost)
    assert (division.replicas, division.moved) == ({"c": 2, "a": 3, "b": 1}, {"c": 4})


def test_copies_are_not_replaced_elsewhere_when_their_cluster_is_lost_and_go_when_it_drains() -> None:
    lost = {"reasons": {"c": CAUSE_FAILOVER}, "moving": {"c": 3}}
    assert divide_by_strategy(DUPLICATED, 3, {"a": 9, "b": 9}, {"a": 3, "b": 3, "c": 3}, **lost).moved == {}
    drained = {"reasons": {"c": CAUSE_DRAIN}, "moving": {"c": 3}}
    division = divide_by_strategy(DUPLICATED, 3, {"a": 9, "b": 9}, {"a": 3, "b": 3, "c": 3}, **drained)
    assert (division.replicas, division.moved, division.unplaced) == ({"a": 3, "b": 3, "c": 0}, {"c": 3}, 0)


def test_minima_and_maxima_of_kubeadmiral() -> None:
    limits = (ClusterLimit("a", 5, -1), ClusterLimit("b", 0, 2))
    division = divide_by_strategy(KUBEADMIRAL, 8, {"a": 9, "b": 9}, limits=limits)
    assert division.replicas == {"a": 6, "b": 2}


def test_who_waits_is_told_why() -> None:
    text = divide_by_strategy(DYNAMIC, 13, {"a": 6}).waiting_text()
    assert text.startswith("KarmadaDynamicWeight: room for 6 of 13 replicas (a: cpu")


# ── Properties ──────────────────────────────────────────────────────────────────────────────────────────────────

COUNTS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 20), max_size=4)


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    """Any strategy; d is a cluster of no tier."""
    name = draw(st.sampled_from(STRATEGIES))
    weights = tuple(weight_of_cluster(each, draw(st.integers(1, 5))) for each in draw(st.sets(st.sampled_from("abc"))))
    spread = draw(st.sampled_from(((), (GroupSpread("cluster", 1, 2),), TWO_REGIONS)))
    strategy = Strategy(
        name,
        weights if name in (STRATEGY_KARMADA_STATIC, STRATEGY_KUBEADMIRAL) else (),
        spread if name not in (STRATEGY_KARMADA_STATIC, STRATEGY_KUBEADMIRAL) else (),
        draw(st.booleans()),
        draw(st.booleans()),
    )
    tiers = (tier_of_clusters("all", "a", "b", "c"),)
    if name in (STRATEGY_KARMADA_DYNAMIC, STRATEGY_KARMADA_AGGREGATED) and draw(st.booleans()):
        tiers = OVERFLOW
    held = {each: HeldReplicas(count, 0, 0) for each, count in draw(COUNTS).items()}
    rooms = draw(COUNTS)
    reasons = dict.fromkeys(draw(st.sets(st.sampled_from("bc"), max_size=1)), CAUSE_DRAIN)
    return Situation(
        replicas=draw(st.integers(0, 60)),
        policy=Policy(tiers, (), "Wait", strategy=strategy),
        clusters=(*FLEET, joined_cluster("d")),
        held=held,
        room=lambda each, groups: make_room(rooms.get(each, 0), rooms.get(each, 0) + 2),
        settled=draw(st.booleans()),
        age_ms={},
        reasons=reasons,
        moving={each: held[each].replicas for each in reasons if each in held},
        fixed=frozenset(draw(st.sets(st.sampled_from("ab"), max_size=1))),
        identity=draw(st.sampled_from(("", "shop/web", "shop/db"))),
        by_name=draw(st.booleans()),
    )


def division_of(situation: Situation) -> Division:
    return division_function(situation)(situation)


@given(situations())
def test_sums_and_bounds(situation: Situation) -> None:
    division = division_of(situation)
    assert 0 <= division.uncertain <= division.unplaced
    assert division.to_leave >= 0
    assert all(count >= 0 for count in (*division.replicas.values(), *division.moved.values()))
    for name, count in division.replicas.items():
        more = count - situation.held.get(name, NOTHING).replicas
        assert more <= 0 or (more <= situation.room(name, False).certain and name not in situation.reasons)
    assert situation.policy.strategy is not None
    if situation.policy.strategy.name == STRATEGY_DUPLICATED:
        members = [name for name in division.replicas if name in "abc" and name not in situation.reasons]
        assert all(division.replicas[name] <= situation.replicas for name in members)
    else:
        assert sum(division.replicas.values()) + division.unplaced == situation.replicas


@given(situations())
def test_nothing_running_goes_that_nothing_replaces(situation: Situation) -> None:
    """Beyond what a scale-in takes, only as many leave as are placed elsewhere."""
    assert situation.policy.strategy is not None
    assume(situation.policy.strategy.name != STRATEGY_DUPLICATED)
    division = division_of(situation)
    before = sum(held.replicas for held in situation.held.values())
    assert sum(division.replicas.values()) >= min(before, situation.replicas)


@given(situations(), st.permutations((0, 1, 2, 3)))
def test_the_order_of_the_clusters_does_not_matter(situation: Situation, order: list[int]) -> None:
    clusters: tuple[ClusterJoined, ...] = tuple(situation.clusters[index] for index in order)
    held = {name: situation.held[name] for name in sorted(situation.held, reverse=True)}
    other = replace(situation, clusters=clusters, held=held)
    assert division_of(other).replicas == division_of(situation).replicas


@given(situations())
def test_deciding_again_on_the_result_changes_nothing(situation: Situation) -> None:
    """Where none is left to be placed or to leave: under a brake that may take another look. What left made room."""
    first = division_of(situation)

    def room_left(name: str, groups: bool) -> Room:
        gained = first.replicas.get(name, 0) - situation.held.get(name, NOTHING).replicas
        return make_room(max(0, situation.room(name, groups).certain - gained))

    held = {name: HeldReplicas(count, 0, 0) for name, count in first.replicas.items() if count}
    assume(not first.unplaced and not first.to_leave and not any(first.stays.values()))
    again = division_of(replace(situation, held=held, room=room_left, settled=True, by_name=False, moving={}))
    assert {name: count for name, count in again.replicas.items() if count} == {
        name: count for name, count in first.replicas.items() if count
    }


# ── Through Apply ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def fleet() -> Fleet:
    """Own clusters of 8 and 4 cores, one in the cloud of 12."""
    return Fleet(
        own_1=[node_row("a1"), node_row("a2")],
        own_2=[node_row("b1")],
        cloud_1=[node_row("c1"), node_row("c2"), node_row("c3")],
    )


def policy_with_strategy(name: str, **more: object) -> dict[str, object]:
    return placement_policy(strategy={"name": name} | more)


def test_by_available_replicas_out_and_in(fleet: Fleet) -> None:
    assert placed_by_cluster(apply_manifests(fleet, deployment(12), policy_with_strategy("KarmadaDynamicWeight"))) == {
        "own-1": 4, "own-2": 2, "cloud-1": 6,
    }  # fmt: skip
    assert placed_by_cluster(scale_workload(fleet, 6)) == {"own-1": 2, "own-2": 1, "cloud-1": 3}
    reply = scale_workload(fleet, 30)
    assert (placed_by_cluster(reply), reply.unplaced) == ({"own-1": 2, "own-2": 1, "cloud-1": 3}, 24)


def test_static_weights_by_selectors(fleet: Fleet) -> None:
    weights = [{"clusters": {"tiers": ["own"]}, "weight": 1}, {"clusters": {"names": ["cloud-1"]}, "weight": 2}]
    reply = apply_manifests(fleet, deployment(8), policy_with_strategy("KarmadaStaticWeight", weights=weights))
    assert placed_by_cluster(reply) == {"own-1": 2, "own-2": 2, "cloud-1": 4}


def test_copies_in_every_cluster_are_counted_for_each(fleet: Fleet) -> None:
    reply = apply_manifests(fleet, deployment(3), policy_with_strategy("Duplicated"))
    assert placed_by_cluster(reply) == {"own-1": 3, "own-2": 3, "cloud-1": 3}
    assert (reply.replicas, reply.placed, reply.unplaced) == (3, 9, 0)
    reply = scale_workload(fleet, 5)
    assert (placed_by_cluster(reply), reply.unplaced) == ({"own-1": 5, "own-2": 4, "cloud-1": 5}, 1)
    assert placed_by_cluster(scale_workload(fleet, 1)) == {"own-1": 1, "own-2": 1, "cloud-1": 1}


def test_with_refuse_copies_are_placed_everywhere_or_nowhere(fleet: Fleet) -> None:
    wanted = placement_policy(strategy={"name": "Duplicated"}, unplaceable="Refuse")
    assert_refused(
        lambda: apply_manifests(fleet, deployment(5), wanted), "FAILED_PRECONDITION", "1 of 15 replicas have no place"
    )


def test_a_strategy_of_its_own_tells_replicas_from_copies(fleet: Fleet) -> None:
    apply_manifests(fleet, deployment(6), policy_with_strategy("KarmadaAggregated"))
    assert {name: part.replicas for name, part in parts_by_cluster(fleet).items()} == {"cloud-1": 6}
    reply = apply_manifests(fleet, deployment(6), placement_policy())
    assert placed_by_cluster(reply) == {"cloud-1": 6}


def test_of_two_that_wait_the_one_of_higher_priority_gets_the_room_that_comes() -> None:
    fleet = Fleet(own_1=[node_row("a1", 1000, used=1000)])
    apply_manifests(fleet, deployment(1, "low"), placement_policy())
    apply_manifests(fleet, deployment(1, "high"), placement_policy(priority=7))
    fleet.report_full_block("own-1", [node_row("a1", 1000)])
    assert [workload.workload_key[1] for workload in aftermath.next_waiting_workloads(fleet.state, fleet.now)] == [
        "high",
        "low",
    ]
