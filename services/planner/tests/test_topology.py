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

from .builders import node, nodes_of, shape
from .plain_scheduler import outcomes

WEB, DB = (PodSelector((Requirement("app", "In", (app,)),)) for app in ("web", "db"))
TRAITS = PodTraits((("app", "web"),))
HASH = PodSelector((Requirement("app", "In", ("web",)), Requirement("pod-template-hash", "In", ("",))))


def pods(app: str, count: int = 1, *apart: PodTerm, **more: str) -> tuple[tuple[PodTable, int], ...]:
    namespace = more.pop("namespace", "default")
    labels = {"app": app} | {key.replace("_", "-"): value for key, value in more.items()}
    return ((PodTable(namespace, tuple(sorted(labels.items())), apart), count),)


def at(name: str, takes: int, zone: str, rest: tuple[tuple[PodTable, int], ...] = (), **labels: str) -> NodeRow:
    return node(name, takes * 1000, labels={"zone": zone, **labels} if zone else labels, rest={"pods": rest})


def web(**more: Any) -> Shape:
    return shape(1000, traits=TRAITS, **more)


def of(wanted: Shape, *rows: NodeRow) -> Fit:
    return compute_fit(wanted, nodes_of(*rows))


ZONES = [at("a1", 3, "a"), at("a2", 2, "a"), at("b1", 1, "b")]
OVER_ZONES = Spread(WEB, 1, topology_key="zone")
OVER_HOSTS = Spread(WEB, 1)
TABLE: dict[str, tuple[Shape, list[NodeRow], tuple[int, int], str]] = {
    "zones rise together": (web(spread=(OVER_ZONES,)), ZONES, (3, 3), "spread over zone; cpu (3 nodes)"),
    "a zone that has some already": (
        web(spread=(OVER_ZONES,)),
        [at("a1", 3, "a", pods("web", 2)), at("b1", 3, "b")],
        (5, 5),
        "spread over zone; cpu (2 nodes)",
    ),
    "pods that end do not count": (
        web(spread=(OVER_ZONES,)),
        [at("a1", 3, "a", ((PodTable("default", (("app", "web"),), (), True), 2),)), at("b1", 0, "b")],
        (1, 1),
        "spread over zone; cpu (2 nodes)",
    ),
    "a node without the label takes none": (
        web(spread=(OVER_ZONES,)),
        [at("a1", 3, "a"), at("x", 3, "")],
        (3, 3),
        "cpu (1 node), no label zone, over which it spreads (1 node)",
    ),
    "too few domains": (
        web(spread=(Spread(WEB, 2, topology_key="zone", min_domains=3),)),
        ZONES,
        (3, 3),
        "spread over zone; cpu (3 nodes)",
    ),
    "a spread of others bars a node, whatever the replicas do": (
        web(spread=(Spread(DB, 1, topology_key="zone", others_only=True),)),
        [at("a1", 3, "a", pods("db", 2)), at("b1", 2, "b")],
        (2, 2),
        "cpu (1 node), spread over zone (1 node)",
    ),
    "a spread of all pods counts none": (web(spread=(Spread(PodSelector(()), 1),)), ZONES, (6, 6), "cpu (3 nodes)"),
    "zones and hosts": (
        web(spread=(OVER_ZONES, OVER_HOSTS)),
        [at("a1", 3, "a"), at("a2", 3, "a"), at("b1", 3, "b"), at("b2", 3, "b")],
        (12, 12),
        "cpu (4 nodes)",
    ),
    "zones that differ in hosts": (
        web(spread=(OVER_ZONES, OVER_HOSTS)),
        [at("a1", 2, "a"), at("b1", 2, "b"), at("b2", 2, "b"), at("b3", 2, "b")],
        (3, 5),
        "spread over zone, spread over kubernetes.io/hostname, 3 to 5 by what the scheduler picks; cpu (4 nodes)",
    ),
    "one a zone": (
        web(apart=(PodTerm(WEB, True, "zone"),)),
        [*ZONES, at("x", 2, "")],
        (4, 4),
        "anti-affinity over zone; cpu (4 nodes)",
    ),
    "one a zone and one a rack, which cross": (
        web(apart=(PodTerm(WEB, True, "zone"), PodTerm(WEB, True, "rack"))),
        [at("a1", 1, "a", rack="1"), at("a2", 1, "a", rack="2"), at("b1", 1, "b", rack="1")],
        (1, 2),
        "anti-affinity over zone, anti-affinity over rack, 1 to 2 by what the scheduler picks; cpu (3 nodes)",
    ),
    "where others are": (
        web(near=(PodTerm(DB, False, "zone"),)),
        [at("a1", 3, "a"), at("a2", 2, "a", pods("db")), at("b1", 4, "b"), at("x", 1, "")],
        (5, 5),
        "cpu (2 nodes), affinity over zone (1 node), affinity: no such label (1 node)",
    ),
    "where nobody is": (
        web(near=(PodTerm(DB, False, "zone"),)),
        ZONES,
        (0, 0),
        "affinity: no such pod runs (3 nodes)",
    ),
    "the first of its kind goes anywhere": (
        web(near=(PodTerm(WEB, True, "zone"),)),
        ZONES,
        (1, 5),
        "affinity to its own first replica, 1 to 5 by what the scheduler picks; cpu (3 nodes)",
    ),
    "pods that run keep away": (
        web(),
        [at("a1", 3, "a"), at("a2", 2, "a", pods("db", 1, PodTerm(WEB, False, "zone"))), at("b1", 4, "b")],
        (4, 4),
        "anti-affinity of pods that run over zone (2 nodes), cpu (1 node)",
    ),
    "pods that keep others away": (
        web(),
        [at("a1", 3, "a", pods("db", 1, PodTerm(DB), namespace="x"))],
        (3, 3),
        "cpu (1 node)",
    ),
    "its own template alone, when no hash is known": (
        web(spread=(Spread(HASH, 1),)),
        [at("a1", 4, "a", pods("web", 2, pod_template_hash="old")), at("b1", 4, "b")],
        (7, 8),
        "spread over kubernetes.io/hostname, 7 to 8 by what the scheduler picks; cpu (2 nodes)",
    ),
    "its own template alone, which may run in another namespace too": (
        web(apart=(PodTerm(HASH, True, "zone", namespace_selector=PodSelector(())),)),
        [at("a1", 4, "a", pods("web", 1, namespace="x", pod_template_hash="same")), at("b1", 4, "b")],
        (1, 2),
        "anti-affinity over zone, 1 to 2 by what the scheduler picks; anti-affinity over zone (1 node), cpu (1 node)",
    ),
    "its own template alone, and other namespaces are not meant": (
        web(apart=(PodTerm(HASH, True, "zone"),)),
        [at("a1", 4, "a", pods("web", 1, namespace="x", pod_template_hash="same")), at("b1", 4, "b")],
        (2, 2),
        "anti-affinity over zone; cpu (2 nodes)",
    ),
}


@pytest.mark.parametrize(("wanted", "rows", "expected", "limit"), TABLE.values(), ids=TABLE)
def test_certain_possible_and_what_binds(
    wanted: Shape, rows: list[NodeRow], expected: tuple[int, int], limit: str
) -> None:
    found = of(wanted, *rows)
    assert (found.total, found.possible) == expected
    assert found.limit().text == limit


# ── Against every order ─────────────────────────────────────────────────────────────────────────────────────────

KEYS = st.sampled_from(("zone", "rack", HOSTNAME_LABEL))
SELECTORS = st.sampled_from((WEB, WEB, DB))


@st.composite
def worlds(draw: st.DrawFn) -> list[NodeRow]:
    zones = st.sampled_from(("a", "b", "c", ""))
    repelling = st.sampled_from(((), (), (PodTerm(WEB, False, "zone"),), (PodTerm(WEB),)))
    return [
        at(
            f"n{index}",
            draw(st.integers(0, 2)),
            draw(zones),
            pods(draw(st.sampled_from(("web", "db"))), draw(st.integers(1, 2)), *draw(repelling))
            if draw(st.integers(0, 3)) == 0
            else (),
            **({"rack": rack} if (rack := draw(st.sampled_from(("1", "2", "")))) else {}),
        )
        for index in range(draw(st.integers(1, 5)))
    ]


def terms(selector: PodSelector, key: str) -> PodTerm:
    return PodTerm(selector, selector == WEB, key)


@st.composite
def lookers(draw: st.DrawFn) -> Shape:
    spread = [
        Spread(selector, draw(st.integers(1, 2)), False, False, draw(KEYS), draw(st.integers(0, 3)), selector != WEB)
        for selector in draw(st.lists(SELECTORS, max_size=2))
    ]
    apart = draw(st.lists(st.builds(terms, SELECTORS, KEYS), max_size=2))
    near = draw(st.one_of(st.just([]), st.lists(st.builds(terms, SELECTORS, KEYS), max_size=2)))
    return web(spread=tuple(spread), apart=tuple(apart), near=tuple(near))


@given(lookers(), worlds())
def test_every_order_ends_between_certain_and_possible(wanted: Shape, rows: list[NodeRow]) -> None:
    found, reached = compute_fit(wanted, nodes_of(*rows)), outcomes(wanted, rows)
    assert found.total <= min(reached)
    assert max(reached) <= found.possible


@given(worlds(), KEYS, st.integers(1, 3), st.integers(0, 3))
def test_one_spread_is_exact(rows: list[NodeRow], key: str, skew: int, min_domains: int) -> None:
    wanted = web(spread=(Spread(WEB, skew, False, False, key, min_domains),))
    found = compute_fit(wanted, nodes_of(*rows))
    assert {found.total, found.possible} == outcomes(wanted, rows)


@given(lookers(), worlds(), st.data())
def test_certain_stays_when_room_is_lost(wanted: Shape, rows: list[NodeRow], data: st.DataObject) -> None:
    """certain_without(n) holds wherever room for n replicas goes, and spare is the most that may go."""
    found = compute_fit(wanted, nodes_of(*rows))
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
    assert min(outcomes(wanted, left)) >= certain
    assert found.spare_replicas(certain) >= lost


def test_wide_domains_within_wide_domains_are_counted_to_the_end() -> None:
    """Two regions of two zones each with room for 1,000: far more levels than are looked at one by one."""
    places = [{"zone": f"z{number % 4}", "region": f"r{number % 2}"} for number in range(8)]
    rows = [node(f"n{number}", 500_000, pods=1000, labels=labels) for number, labels in enumerate(places)]
    wanted = web(spread=(Spread(WEB, 1, topology_key="region"), OVER_ZONES))
    assert [of(wanted, *rows).certain_replicas_after_loss(lost) for lost in (0, 1)] == [4000, 3999]


@st.composite
def wide(draw: st.DrawFn) -> SpreadBound:
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


@given(wide(), st.integers(0, 900))
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
