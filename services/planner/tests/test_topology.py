"""Replicas that bar nodes for each other: what is certain and possible, against every order of a scheduler."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.feasibility.fit import Fit, compute_fit
from spillway.feasibility.topology import Ceiling, SpreadBound
from spillway.model import (
    HOSTNAME_LABEL,
    NodeRow,
    PodSelector,
    PodTable,
    PodTerm,
    PodTraits,
    Requirement,
    Shape,
    Spread,
)

from .builders import cluster_nodes_of, make_shape, node_row
from .plain_scheduler import possible_placed_counts

WEB, DB = (PodSelector((Requirement("app", "In", (app,)),)) for app in ("web", "db"))
TRAITS = PodTraits((("app", "web"),))
HASH = PodSelector((Requirement("app", "In", ("web",)), Requirement("pod-template-hash", "In", ("",))))


def pods_of_app(app: str, count: int = 1, *apart: PodTerm, **more: str) -> tuple[tuple[PodTable, int], ...]:
    namespace = more.pop("namespace", "default")
    labels = {"app": app} | {key.replace("_", "-"): value for key, value in more.items()}
    return ((PodTable(namespace, tuple(sorted(labels.items())), apart), count),)


def node_in_zone(
    name: str, takes: int, zone: str, rest: tuple[tuple[PodTable, int], ...] = (), **labels: str
) -> NodeRow:
    return node_row(name, takes * 1000, labels={"zone": zone, **labels} if zone else labels, rest={"pods": rest})


def web_shape(**more: Any) -> Shape:
    return make_shape(1000, traits=TRAITS, **more)


def fit_of_shape(wanted: Shape, *rows: NodeRow) -> Fit:
    return compute_fit(wanted, cluster_nodes_of(*rows))


ZONES = [node_in_zone("a1", 3, "a"), node_in_zone("a2", 2, "a"), node_in_zone("b1", 1, "b")]
OVER_ZONES = Spread(WEB, 1, topology_key="zone")
OVER_HOSTS = Spread(WEB, 1)
TABLE: dict[str, tuple[Shape, list[NodeRow], tuple[int, int], str]] = {
    "zones rise together": (web_shape(spread=(OVER_ZONES,)), ZONES, (3, 3), "spread over zone; cpu (3 nodes)"),
    "a zone that has some already": (
        web_shape(spread=(OVER_ZONES,)),
        [node_in_zone("a1", 3, "a", pods_of_app("web", 2)), node_in_zone("b1", 3, "b")],
        (5, 5),
        "spread over zone; cpu (2 nodes)",
    ),
    "pods that end do not count": (
        web_shape(spread=(OVER_ZONES,)),
        [
            node_in_zone("a1", 3, "a", ((PodTable("default", (("app", "web"),), (), True), 2),)),
            node_in_zone("b1", 0, "b"),
        ],
        (1, 1),
        "spread over zone; cpu (2 nodes)",
    ),
    "a node without the label takes none": (
        web_shape(spread=(OVER_ZONES,)),
        [node_in_zone("a1", 3, "a"), node_in_zone("x", 3, "")],
        (3, 3),
        "cpu (1 node), no label zone, over which it spreads (1 node)",
    ),
    "too few domains": (
        web_shape(spread=(Spread(WEB, 2, topology_key="zone", min_domains=3),)),
        ZONES,
        (3, 3),
        "spread over zone; cpu (3 nodes)",
    ),
    "a spread of others bars a node, whatever the replicas do": (
        web_shape(spread=(Spread(DB, 1, topology_key="zone", others_only=True),)),
        [node_in_zone("a1", 3, "a", pods_of_app("db", 2)), node_in_zone("b1", 2, "b")],
        (2, 2),
        "cpu (1 node), spread over zone (1 node)",
    ),
    "a spread of all pods counts none": (
        web_shape(spread=(Spread(PodSelector(()), 1),)),
        ZONES,
        (6, 6),
        "cpu (3 nodes)",
    ),
    "zones and hosts": (
        web_shape(spread=(OVER_ZONES, OVER_HOSTS)),
        [
            node_in_zone("a1", 3, "a"),
            node_in_zone("a2", 3, "a"),
            node_in_zone("b1", 3, "b"),
            node_in_zone("b2", 3, "b"),
        ],
        (12, 12),
        "cpu (4 nodes)",
    ),
    "zones that differ in hosts": (
        web_shape(spread=(OVER_ZONES, OVER_HOSTS)),
        [
            node_in_zone("a1", 2, "a"),
            node_in_zone("b1", 2, "b"),
            node_in_zone("b2", 2, "b"),
            node_in_zone("b3", 2, "b"),
        ],
        (3, 5),
        "spread over zone, spread over kubernetes.io/hostname, 3 to 5 by what the scheduler picks; cpu (4 nodes)",
    ),
    "one a zone": (
        web_shape(apart=(PodTerm(WEB, True, "zone"),)),
        [*ZONES, node_in_zone("x", 2, "")],
        (4, 4),
        "anti-affinity over zone; cpu (4 nodes)",
    ),
    "one a zone and one a rack, which cross": (
        web_shape(apart=(PodTerm(WEB, True, "zone"), PodTerm(WEB, True, "rack"))),
        [
            node_in_zone("a1", 1, "a", rack="1"),
            node_in_zone("a2", 1, "a", rack="2"),
            node_in_zone("b1", 1, "b", rack="1"),
        ],
        (1, 2),
        "anti-affinity over zone, anti-affinity over rack, 1 to 2 by what the scheduler picks; cpu (3 nodes)",
    ),
    "where others are": (
        web_shape(near=(PodTerm(DB, False, "zone"),)),
        [
            node_in_zone("a1", 3, "a"),
            node_in_zone("a2", 2, "a", pods_of_app("db")),
            node_in_zone("b1", 4, "b"),
            node_in_zone("x", 1, ""),
        ],
        (5, 5),
        "cpu (2 nodes), affinity over zone (1 node), affinity: no such label (1 node)",
    ),
    "where nobody is": (
        web_shape(near=(PodTerm(DB, False, "zone"),)),
        ZONES,
        (0, 0),
        "affinity: no such pod runs (3 nodes)",
    ),
    "the first of its kind goes anywhere": (
        web_shape(near=(PodTerm(WEB, True, "zone"),)),
        ZONES,
        (1, 5),
        "affinity to its own first replica, 1 to 5 by what the scheduler picks; cpu (3 nodes)",
    ),
    "pods that run keep away": (
        web_shape(),
        [
            node_in_zone("a1", 3, "a"),
            node_in_zone("a2", 2, "a", pods_of_app("db", 1, PodTerm(WEB, False, "zone"))),
            node_in_zone("b1", 4, "b"),
        ],
        (4, 4),
        "anti-affinity of pods that run over zone (2 nodes), cpu (1 node)",
    ),
    "pods that keep others away": (
        web_shape(),
        [node_in_zone("a1", 3, "a", pods_of_app("db", 1, PodTerm(DB), namespace="x"))],
        (3, 3),
        "cpu (1 node)",
    ),
    "its own template alone, when no hash is known": (
        web_shape(spread=(Spread(HASH, 1),)),
        [node_in_zone("a1", 4, "a", pods_of_app("web", 2, pod_template_hash="old")), node_in_zone("b1", 4, "b")],
        (7, 8),
        "spread over kubernetes.io/hostname, 7 to 8 by what the scheduler picks; cpu (2 nodes)",
    ),
    "its own template alone, which may run in another namespace too": (
        web_shape(apart=(PodTerm(HASH, True, "zone", namespace_selector=PodSelector(())),)),
        [
            node_in_zone("a1", 4, "a", pods_of_app("web", 1, namespace="x", pod_template_hash="same")),
            node_in_zone("b1", 4, "b"),
        ],
        (1, 2),
        "anti-affinity over zone, 1 to 2 by what the scheduler picks; anti-affinity over zone (1 node), cpu (1 node)",
    ),
    "its own template alone, and other namespaces are not meant": (
        web_shape(apart=(PodTerm(HASH, True, "zone"),)),
        [
            node_in_zone("a1", 4, "a", pods_of_app("web", 1, namespace="x", pod_template_hash="same")),
            node_in_zone("b1", 4, "b"),
        ],
        (2, 2),
        "anti-affinity over zone; cpu (2 nodes)",
    ),
}


@pytest.mark.parametrize(("wanted", "rows", "expected", "limit"), TABLE.values(), ids=TABLE)
def test_certain_possible_and_what_binds(
    wanted: Shape, rows: list[NodeRow], expected: tuple[int, int], limit: str
) -> None:
    found = fit_of_shape(wanted, *rows)
    assert (found.total, found.possible) == expected
    assert found.node_limit().as_text == limit


# ── Against every order ─────────────────────────────────────────────────────────────────────────────────────────

KEYS = st.sampled_from(("zone", "rack", HOSTNAME_LABEL))
SELECTORS = st.sampled_from((WEB, WEB, DB))


@st.composite
def drawn_zoned_nodes(draw: st.DrawFn) -> list[NodeRow]:
    zones = st.sampled_from(("a", "b", "c", ""))
    repelling = st.sampled_from(((), (), (PodTerm(WEB, False, "zone"),), (PodTerm(WEB),)))
    return [
        node_in_zone(
            f"n{index}",
            draw(st.integers(0, 2)),
            draw(zones),
            pods_of_app(draw(st.sampled_from(("web", "db"))), draw(st.integers(1, 2)), *draw(repelling))
            if draw(st.integers(0, 3)) == 0
            else (),
            **({"rack": rack} if (rack := draw(st.sampled_from(("1", "2", "")))) else {}),
        )
        for index in range(draw(st.integers(1, 5)))
    ]


def term_of_selector(selector: PodSelector, key: str) -> PodTerm:
    return PodTerm(selector, selector == WEB, key)


@st.composite
def shapes_with_pod_terms(draw: st.DrawFn) -> Shape:
    spread = [
        Spread(selector, draw(st.integers(1, 2)), False, False, draw(KEYS), draw(st.integers(0, 3)), selector != WEB)
        for selector in draw(st.lists(SELECTORS, max_size=2))
    ]
    apart = draw(st.lists(st.builds(term_of_selector, SELECTORS, KEYS), max_size=2))
    near = draw(st.one_of(st.just([]), st.lists(st.builds(term_of_selector, SELECTORS, KEYS), max_size=2)))
    return web_shape(spread=tuple(spread), apart=tuple(apart), near=tuple(near))


@given(shapes_with_pod_terms(), drawn_zoned_nodes())
def test_every_order_ends_between_certain_and_possible(wanted: Shape, rows: list[NodeRow]) -> None:
    found, reached = compute_fit(wanted, cluster_nodes_of(*rows)), possible_placed_counts(wanted, rows)
    assert found.total <= min(reached)
    assert max(reached) <= found.possible


@given(drawn_zoned_nodes(), KEYS, st.integers(1, 3), st.integers(0, 3))
def test_one_spread_is_exact(rows: list[NodeRow], key: str, skew: int, min_domains: int) -> None:
    wanted = web_shape(spread=(Spread(WEB, skew, False, False, key, min_domains),))
    found = compute_fit(wanted, cluster_nodes_of(*rows))
    assert {found.total, found.possible} == possible_placed_counts(wanted, rows)


@given(shapes_with_pod_terms(), drawn_zoned_nodes(), st.data())
def test_certain_stays_when_room_is_lost(wanted: Shape, rows: list[NodeRow], data: st.DataObject) -> None:
    """certain_replicas_after_loss(n) holds wherever room for n replicas goes, and spare is the most that may go."""
    found = compute_fit(wanted, cluster_nodes_of(*rows))
    if not found.total:
        return
    lost = data.draw(st.integers(0, found.total))
    left = list(rows)
    for _ in range(lost):
        index = data.draw(st.integers(0, len(rows) - 1))
        row = left[index]
        if row.allocatable["cpu"] >= 1000:
            smaller = {**row.allocatable, "cpu": row.allocatable["cpu"] - 1000}
            left[index] = NodeRow(row.name, smaller, row.requested, row.labels, pods=row.pods)
    certain = found.certain_replicas_after_loss(lost)
    assert min(possible_placed_counts(wanted, left)) >= certain
    assert found.spare_replicas(certain) >= lost


def test_wide_domains_within_wide_domains_are_counted_to_the_end() -> None:
    """Two regions of two zones each with room for 1,000: far more levels than are looked at one by one."""
    places = [{"zone": f"z{number % 4}", "region": f"r{number % 2}"} for number in range(8)]
    rows = [node_row(f"n{number}", 500_000, pods=1000, labels=labels) for number, labels in enumerate(places)]
    wanted = web_shape(spread=(Spread(WEB, 1, topology_key="region"), OVER_ZONES))
    assert [fit_of_shape(wanted, *rows).certain_replicas_after_loss(lost) for lost in (0, 1)] == [4000, 3999]


@st.composite
def wide_spread_bounds(draw: st.DrawFn) -> SpreadBound:
    """Zones in regions, with pods that are there and nodes that take many, few or none."""
    zones, most = draw(st.integers(1, 5)), draw(st.sampled_from((3, 40, 900)))
    region_of = np.array([draw(st.integers(0, 2)) for _ in range(zones)])
    zone_of = np.array(draw(st.lists(st.integers(0, zones - 1), min_size=1, max_size=8)))
    takes = np.array([draw(st.integers(0, most)) for _ in zone_of])
    in_zone = np.array([draw(st.integers(0, most)) * draw(st.booleans()) for _ in range(zones)])
    in_region = np.bincount(region_of, in_zone, minlength=3).astype(np.int64)
    counted = [np.array([draw(st.integers(0, 5)) > 0 for _ in range(size)]) for size in (zones, 3)]
    skews = [draw(st.sampled_from((1, 2, 30))) for _ in range(2)]
    return SpreadBound(
        takes,
        [
            Ceiling(zone_of, in_zone, skews[0], counted[0]),
            Ceiling(region_of[zone_of], in_region, skews[1], counted[1]),
        ],
    )


@given(wide_spread_bounds(), st.integers(0, 900))
def test_levels_that_are_passed_over_are_ruled_out(bound: SpreadBound, lost: int) -> None:
    """As if each had been looked at."""
    nested = bound._nested
    if nested is None or nested.ceilings[0].counted is None or not nested.ceilings[0].counted.any():
        return
    ceiling = nested.ceilings[0]
    emptiest = int(ceiling.present[ceiling.counted].min())
    while not nested._may_stand_at_level(0, emptiest, lost):
        emptiest += 1
    assert nested.least_replicas(lost) == int(nested._heights_at_standstill(0, emptiest, lost)[1][-1].sum())
