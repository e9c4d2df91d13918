"""What is promised always binds, whatever node the member's scheduler chooses (P5)."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.core.division.words import limit_text
from planner.core.feasibility.label_effects import ByLabel, effects_between_shapes, effects_with_shape
from planner.core.feasibility.limits import Limit, LimitCode
from planner.core.feasibility.room import (
    Room,
    fit_with_node_groups,
    replicas_lost_to_pod,
    room_in_groups,
    room_on_nodes,
    room_within,
)
from spillway.feasibility.fit import compute_fit
from spillway.model import HostPort, NodeRow, PodSelector, PodTable, PodTerm, PodTraits, Requirement, Shape, Spread

from .builders import cluster_nodes_of, make_shape, node_group, node_row
from .plain_scheduler import bind_replica, open_node_indices

RESOURCES = ("cpu", "memory", "gpu")
DB = PodSelector((Requirement("app", "In", ("db",)),))
WEB = PodSelector((Requirement("app", "In", ("web",)),))

LOSSES = {
    "equal": ({"cpu": 2}, {"cpu": 2}, 9, 1),
    "larger": ({"cpu": 5}, {"cpu": 2}, 9, 3),
    "smaller still costs one": ({"cpu": 1}, {"cpu": 2}, 9, 1),
    "the resource that costs most": ({"cpu": 1, "memory": 8}, {"cpu": 1, "memory": 2}, 9, 4),
    "never more than a node has": ({"cpu": 50}, {"cpu": 1}, 9, 9),
    "resources that are not asked for cost nothing": ({"gpu": 3}, {"cpu": 1}, 9, 0),
}


@pytest.mark.parametrize(("taken", "wanted", "largest", "expected"), LOSSES.values(), ids=LOSSES)
def test_the_most_that_one_pod_costs(
    taken: dict[str, int], wanted: dict[str, int], largest: int, expected: int
) -> None:
    assert replicas_lost_to_pod(taken, wanted, largest) == expected


def room_beside_reserved(rows: list[NodeRow], wanted: Shape, *reserved: tuple[Shape, int]) -> Room:
    nodes = cluster_nodes_of(*rows)
    return room_on_nodes(
        wanted, compute_fit(wanted, nodes), [(other, count, compute_fit(other, nodes)) for other, count in reserved]
    )


AS_WEB = PodTraits((("app", "web"),))
CLOSED_BY_ONE = {
    "it stays away from it": (
        make_shape(1000, apart=(PodTerm(DB, False, "zone"),), traits=AS_WEB),
        make_shape(100, traits=PodTraits((("app", "db"),))),
    ),
    "it goes where such a pod is, and none is bound": (
        make_shape(1000, near=(PodTerm(WEB, True, "zone"),), traits=AS_WEB),
        make_shape(100, traits=AS_WEB),
    ),
}


@pytest.mark.parametrize(("wanted", "reserved"), CLOSED_BY_ONE.values(), ids=CLOSED_BY_ONE)
def test_one_reserved_pod_that_takes_little_may_close_all_nodes_to_a_shape_that_looks_at_it(
    wanted: Shape, reserved: Shape
) -> None:
    """Its zone may be the one that has all the room, or none."""
    rows = [node_row(name, 4000, labels={"zone": "a"}) for name in "abcd"]
    assert room_beside_reserved(rows, wanted).certain == 16
    assert room_beside_reserved(rows, wanted, (reserved, 1)).certain == 0


def test_what_is_reserved_of_the_same_shape_is_simply_not_there() -> None:
    room = room_beside_reserved([node_row("a", 4000), node_row("b", 4000)], make_shape(1000), (make_shape(1000), 3))
    assert (room.certain, room.possible) == (5, 5)


def test_a_larger_reserved_shape_costs_what_it_can_at_the_most() -> None:
    # Two of 3 cores on two nodes of 4: each may cost three of 1 core. On one node each, 1 + 1 are left for sure.
    room = room_beside_reserved([node_row("a", 4000), node_row("b", 4000)], make_shape(1000), (make_shape(3000), 2))
    assert (room.certain, room.possible) == (0, 8)  # One replica could take the room that the second of 3 cores needs.


def test_a_reserved_shape_that_is_half_as_large_again_costs_two() -> None:
    # By their own promise six of 3 cores on four nodes of 6 leave room for two of 2; by what they cost, for none.
    room = room_beside_reserved([node_row(name, 6000) for name in "abcd"], make_shape(2000), (make_shape(3000), 6))
    assert (room.certain, room.possible) == (0, 12)


def test_a_reserved_pod_costs_no_more_than_what_one_node_takes() -> None:
    """However large: it is on one node, which for its port takes one of the shape."""
    web = make_shape(1000, host_ports=(HostPort("0.0.0.0", "TCP", 80),))
    room = room_beside_reserved([node_row(name, 8000) for name in "abcd"], web, (make_shape(8000), 1))
    assert (room.certain, room.possible) == (3, 4)


def test_a_replica_that_could_break_a_promise_is_only_possible() -> None:
    room = room_beside_reserved([node_row("a", 4000), node_row("b", 4000)], make_shape(1000), (make_shape(4000), 1))
    assert (room.certain, room.possible) == (1, 8)
    assert limit_text(room.limited_by) == "1 promised replica of another workload not bound yet"


def test_a_promise_that_cannot_be_kept_any_more_binds_nobody() -> None:
    room = room_beside_reserved([node_row("a", 4000)], make_shape(1000), (make_shape(3000), 2))
    assert (room.certain, room.possible) == (0, 4)
    assert room_beside_reserved([node_row("a", 4000)], make_shape(1000), (make_shape(5000), 2)).certain == 4


def test_shapes_that_meet_on_no_node_cost_each_other_nothing() -> None:
    rows = [node_row("a", labels={"pool": "x"}), node_row("b", labels={"pool": "y"})]
    room = room_beside_reserved(
        rows, make_shape(1000, node_selector=(("pool", "x"),)), (make_shape(1000, node_selector=(("pool", "y"),)), 4)
    )
    assert (room.certain, room.possible) == (4, 4)


def test_a_reserved_replica_that_this_shape_keeps_away_from_costs_a_whole_node() -> None:
    """Where a shape's anti-affinity may mean others, each bars a node to the other: two might leave the other none."""
    apart = make_shape(1000, apart=(PodTerm(WEB),))
    room = room_beside_reserved([node_row("a", 4000), node_row("b", 4000)], apart, (make_shape(500), 1))
    assert (room.certain, room.possible) == (1, 8)


def test_labels_say_whom_anti_affinity_means() -> None:
    apart = make_shape(1000, apart=(PodTerm(WEB),))
    rows = [node_row("a", 4000), node_row("b", 4000)]
    web, db = (make_shape(500, traits=PodTraits((("app", app),))) for app in ("web", "db"))
    assert (
        room_beside_reserved(rows, apart, (web, 1)).certain,
        room_beside_reserved(rows, apart, (db, 1)).certain,
    ) == (1, 7)


def test_a_label_without_a_value_means_those_that_bear_it() -> None:
    """It is no word for the hash that only a template's own pods will bear."""
    apart = make_shape(1000, apart=(PodTerm(PodSelector((Requirement("leader", "In", ("",)),))),))
    leader = make_shape(500, traits=PodTraits((("leader", ""),)))
    assert room_beside_reserved([node_row("a", 4000), node_row("b", 4000)], apart, (leader, 1)).certain == 1


def test_a_shape_that_others_keep_away_from_may_cost_them_a_whole_node() -> None:
    apart = make_shape(1000, apart=(PodTerm(WEB),))
    room = room_beside_reserved([node_row("a", 4000), node_row("b", 4000)], make_shape(500), (apart, 1))
    assert room.certain == 1


def test_equal_shapes_are_not_the_same_where_a_pod_keeps_one_of_them_away() -> None:
    """The one that has only node a may lose it to the other one."""
    web, db = (make_shape(1000, traits=PodTraits((("app", app),))) for app in ("web", "db"))
    keeps_db_away = ((PodTable("default", (("app", "x"),), (PodTerm(DB),)), 1),)
    rows = [node_row("a", 1000), node_row("b", 1000, rest={"pods": keeps_db_away})]
    assert (room_beside_reserved(rows, web, (db, 1)).certain, room_beside_reserved(rows, web, (db, 1)).possible) == (
        0,
        2,
    )
    assert (room_beside_reserved(rows, db, (web, 1)).certain, room_beside_reserved(rows, db, (web, 1)).possible) == (
        0,
        1,
    )
    assert (
        room_beside_reserved(rows[:1], web, (db, 1)).certain,
        room_beside_reserved(rows, web, (web, 1)).certain,
    ) == (0, 1)


def test_groups_take_what_their_missing_nodes_will_have() -> None:
    room = room_in_groups(make_shape(1000), [(node_group(cpu=4000, nodes_max=5), 2)], [])
    assert (room.certain, room.possible) == (12, 12)


def test_groups_take_less_what_waits_for_them() -> None:
    room = room_in_groups(make_shape(1000), [(node_group(cpu=4000, nodes_max=5), 2)], [(make_shape(2000), 3)])
    assert room.certain == 6


def test_a_group_at_its_most_takes_nothing_but_would_when_empty() -> None:
    room = room_in_groups(make_shape(1000), [(node_group(nodes_max=2), 3)], [])
    assert (room.certain, room.when_empty) == (0, True)
    assert limit_text(room.limited_by) == "node groups burst at their most"


def test_a_cluster_without_groups_has_no_room_in_them() -> None:
    assert room_in_groups(make_shape(), [], []) == Room(0, 0, Limit(LimitCode.NO_NODE_GROUPS), False)


# ── The safety property ─────────────────────────────────────────────────────────────────────────────────────────

AMOUNT = st.integers(0, 4)


@st.composite
def drawn_shapes(draw: st.DrawFn) -> Shape:
    return make_shape(
        draw(st.integers(0, 5)),
        requests={"memory": draw(AMOUNT), "gpu": draw(st.sampled_from((0, 0, 0, 1, 2)))},
        node_selector=draw(st.sampled_from(((), (), (("pool", "x"),), (("pool", "y"),)))),
        host_ports=draw(st.sampled_from(((), (), (), (HostPort("0.0.0.0", "TCP", 80),)))),
    )


@st.composite
def nodes_with_reservations(draw: st.DrawFn) -> tuple[list[NodeRow], list[tuple[Shape, int]], Shape]:
    rows = [
        NodeRow(
            f"n{index}",
            {
                "cpu": draw(st.integers(0, 16)),
                "memory": draw(st.integers(0, 16)),
                "gpu": draw(st.integers(0, 3)),
                "pods": draw(st.integers(1, 8)),
            },
            {"cpu": draw(st.integers(0, 4)), "pods": draw(st.integers(0, 1))},
            labels=(("kubernetes.io/hostname", f"n{index}"), ("pool", draw(st.sampled_from("xy")))),
        )
        for index in range(draw(st.integers(1, 6)))
    ]
    wanted = draw(drawn_shapes())
    others = draw(st.lists(st.one_of(drawn_shapes(), st.just(wanted)), max_size=4, unique=True))
    # Earlier promises were made one after another, so most of them are certain themselves.
    reserved: list[tuple[Shape, int]] = []
    for other in others:
        most = room_beside_reserved(rows, other, *reserved).certain
        count = draw(st.integers(0, most)) if most else 0
        if count:
            reserved.append((other, count))
    return rows, reserved, wanted


class Member:
    """Nodes that pods are bound to, one by one, wherever they fit."""

    def __init__(self, rows: list[NodeRow]) -> None:
        self.rows = list(rows)

    def bind_replica(self, wanted: Shape, random: Random) -> bool:
        fits = compute_fit(wanted, cluster_nodes_of(*self.rows)).per_node.tolist()
        open_rows = [index for index in range(len(self.rows)) if fits[index]]
        if not open_rows:
            return False
        # Half of the time where it hurts the others most: on the node with the most room left.
        index = random.choice(open_rows) if random.random() < 0.5 else max(open_rows, key=lambda row: fits[row])
        row = self.rows[index]
        requested = dict(row.requested)
        for name, amount in wanted.requests:
            requested[name] = requested.get(name, 0) + amount
        self.rows[index] = NodeRow(
            row.name, row.allocatable, requested, row.labels, ports=(*row.ports, *wanted.host_ports)
        )
        return True


@given(nodes_with_reservations(), st.randoms(use_true_random=False))
def test_all_that_is_certain_binds_whatever_the_scheduler_chooses(
    world: tuple[list[NodeRow], list[tuple[Shape, int]], Shape], random: Random
) -> None:
    rows, reserved, wanted = world
    certain = room_beside_reserved(rows, wanted, *reserved).certain
    waiting = [other for other, count in reserved for _ in range(count)] + [wanted] * certain
    random.shuffle(waiting)
    member = Member(rows)
    assert all(member.bind_replica(other, random) for other in waiting)


KEYS = st.sampled_from(("pool", "kubernetes.io/hostname"))


@st.composite
def shapes_with_pod_terms(draw: st.DrawFn) -> Shape:
    """Shapes whose replicas look at each other: by a selector that may mean the others, or only themselves."""
    app = draw(st.sampled_from(("web", "db")))
    meant = draw(st.sampled_from(("web", "db")))
    selector, own = PodSelector((Requirement("app", "In", (meant,)),)), meant == app
    kind = draw(st.sampled_from(("apart", "spread", "near", "plain")))
    return make_shape(
        draw(st.integers(1, 4)),
        traits=PodTraits((("app", app),)),
        apart=(PodTerm(selector, own, draw(KEYS)),) if kind == "apart" else (),
        near=(PodTerm(selector, own, draw(KEYS)),) if kind == "near" else (),
        spread=(Spread(selector, draw(st.integers(1, 2)), False, False, draw(KEYS), 0, not own),)
        if kind == "spread"
        else (),
    )


@given(
    nodes_with_reservations(),
    shapes_with_pod_terms(),
    st.lists(shapes_with_pod_terms(), max_size=3, unique=True),
    st.data(),
)
def test_all_that_is_certain_binds_beside_pods_that_look_at_each_other(
    world: tuple[list[NodeRow], list[tuple[Shape, int]], Shape],
    wanted: Shape,
    others: list[Shape],
    data: st.DataObject,
) -> None:
    rows, reserved = world[0], list[tuple[Shape, int]]()
    for other in others:
        count = data.draw(st.integers(0, min(3, room_beside_reserved(rows, other, *reserved).certain)))
        if count:
            reserved.append((other, count))
    certain = min(6, room_beside_reserved(rows, wanted, *reserved).certain)
    waiting = data.draw(st.permutations([one for one, count in (*reserved, (wanted, certain)) for _ in range(count)]))
    while waiting:
        choices = [(at, nodes) for at, one in enumerate(waiting) if (nodes := open_node_indices(one, rows))]
        assert choices, [dict(one.requests) for one in waiting]
        at, nodes = data.draw(st.sampled_from(choices))
        rows = bind_replica(waiting.pop(at), rows, data.draw(st.sampled_from(nodes)))


@given(nodes_with_reservations())
def test_certain_is_at_most_possible_and_possible_at_most_what_fits(
    world: tuple[list[NodeRow], list[tuple[Shape, int]], Shape],
) -> None:
    rows, reserved, wanted = world
    room = room_beside_reserved(rows, wanted, *reserved)
    assert 0 <= room.certain <= room.possible <= compute_fit(wanted, cluster_nodes_of(*rows)).total


@given(nodes_with_reservations())
def test_with_nothing_reserved_everything_that_fits_is_certain(
    world: tuple[list[NodeRow], list[tuple[Shape, int]], Shape],
) -> None:
    rows, _, wanted = world
    room, total = room_beside_reserved(rows, wanted), compute_fit(wanted, cluster_nodes_of(*rows)).total
    assert (room.certain, room.possible) == (total, total)


@given(nodes_with_reservations(), st.integers(1, 3))
def test_more_reserved_never_makes_more_room(
    world: tuple[list[NodeRow], list[tuple[Shape, int]], Shape], more: int
) -> None:
    """As long as the promises can be kept: one that cannot binds nobody, by the rule."""
    rows, reserved, wanted = world
    if not reserved or reserved[0][0] == wanted:
        return
    first, count = reserved[0]
    left = room_beside_reserved(rows, first, *reserved).certain
    before = room_beside_reserved(rows, wanted, *reserved).certain
    after = room_beside_reserved(rows, wanted, (first, count + min(more, left)), *reserved[1:]).certain
    assert after <= before


def test_promises_on_new_nodes_hold_when_those_nodes_appear() -> None:
    """One node and one that may come; 4 replicas wait for it. Once it is there, its room is still theirs."""
    rows, wanted = [node_row("a", cpu=4000), node_row("b", cpu=4000)], make_shape(1000)
    fits = compute_fit(wanted, cluster_nodes_of(*rows))
    groups = [(node_group(cpu=4000, nodes_max=1), 1)]
    on_nodes = room_on_nodes(wanted, compute_fit(wanted, cluster_nodes_of(rows[0])), [])
    assert on_nodes.certain == 4
    everywhere = room_on_nodes(
        wanted, fit_with_node_groups(fits, wanted, groups), [(wanted, 8, fit_with_node_groups(fits, wanted, groups))]
    )
    assert room_within(room_on_nodes(wanted, fits, [(wanted, 4, fits)]), everywhere).certain == 0


def test_the_groups_nodes_count_until_they_exist() -> None:
    """4 on the node that is there, 4 on each of the two that may still come."""
    wanted = make_shape(1000)
    fits = fit_with_node_groups(
        compute_fit(wanted, cluster_nodes_of(node_row("a", cpu=4000))), wanted, [(node_group(cpu=4000, nodes_max=3), 1)]
    )
    assert (fits.total, fits.largest, fits.per_node[-1]) == (12, 4, 4)


LABELS = ((), *((("app", app),) for app in ("db", "web")))
SELECTORS = st.sampled_from([DB, WEB, PodSelector(())])
KEYS = st.sampled_from(["kubernetes.io/hostname", "zone"])
TERMS = st.builds(lambda selector, key: (PodTerm(selector, topology_key=key),), SELECTORS, KEYS)
LOOKERS = st.builds(
    lambda cpu, labels, looks: make_shape(cpu, traits=PodTraits(labels=labels), **looks),
    st.sampled_from([300, 1000]),
    st.sampled_from(LABELS),
    st.one_of(
        st.just({}),
        TERMS.map(lambda terms: {"apart": terms}),
        TERMS.map(lambda terms: {"near": terms}),
        st.builds(lambda selector, key: {"spread": (Spread(selector, 1, topology_key=key),)}, SELECTORS, KEYS),
    ),
)


@given(others=st.lists(LOOKERS, max_size=5), one=LOOKERS)
def test_what_one_more_does_to_others_is_what_all_of_them_do_to_each_other_as_far_as_it_is_in_it(
    others: list[Shape], one: Shape
) -> None:
    """What is kept of those that are reserved knows nothing of who asks."""
    of_all = effects_between_shapes((*others, one))
    assert effects_with_shape(one, ByLabel(others)) == {
        pair: effect for pair, effect in of_all.items() if len(others) in pair
    }
    assert effects_between_shapes(others) == {
        pair: effect for pair, effect in of_all.items() if len(others) not in pair
    }
