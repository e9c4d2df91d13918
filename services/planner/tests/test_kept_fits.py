"""What is kept of a cluster's fits is what feasibility says of its nodes, whatever happened to them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.core.feasibility import kept_shapes
from planner.core.feasibility.kept_fits import KeptFits
from planner.core.feasibility.kept_shapes import KeptShapes
from spillway.columns import columns_of
from spillway.feasibility.fit import fit
from spillway.feasibility.nodes import ClusterNodes
from spillway.model import (
    NODE_LENT,
    NODE_OWNED,
    HostPort,
    NodeRow,
    NodeTerm,
    PodSelector,
    PodTerm,
    Requirement,
    Shape,
    Spread,
    Taint,
    Toleration,
)

from .builders import node, shape

TAINT = Taint("gpu", "only", "NoSchedule")
SHAPES = st.builds(
    lambda cpu, more, selector, terms, tolerations: shape(
        cpu, requests=more, node_selector=selector, node_terms=terms, tolerations=tolerations
    ),
    st.sampled_from([0, 300, 1000, 1500]),
    st.sampled_from([{}, {"memory": 2**30}, {"gpu": 1}, {"memory": 3 * 2**30, "gpu": 2}, {"memory": 2**30 + 7}]),
    st.sampled_from([(), (("pool", "a"),)]),
    st.sampled_from([(), (NodeTerm((Requirement("zone", "In", ("x", "y")),), ()),)]),
    st.sampled_from([(), (Toleration("", "Exists", "", ""),), (Toleration("gpu", "Exists", "", ""),)]),
)


@st.composite
def rows(draw: st.DrawFn) -> NodeRow:
    gpu = draw(st.sampled_from([{}, {"gpu": 4}]))
    labels = {"pool": draw(st.sampled_from("ab")), "zone": draw(st.sampled_from("xyz"))}
    more: dict[str, Any] = {"allocatable": gpu, "labels": labels}
    return node(
        f"n{draw(st.integers(0, 20))}",
        cpu=draw(st.sampled_from([2000, 4000])),
        used=draw(st.integers(0, 45)) * 100,
        pods=draw(st.sampled_from([0, 3, 110])),
        requested={"memory": draw(st.integers(0, 70)) * 2**30 + draw(st.sampled_from([0, 0, 1, 2**20 - 1]))},
        taints=draw(st.sampled_from([(), (TAINT,)])),
        state=draw(st.sampled_from([NODE_OWNED, NODE_OWNED, NODE_LENT])),
        unschedulable=draw(st.booleans()),
        **more,
    )


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), st.lists(rows(), min_size=1, max_size=6, unique_by=lambda row: row.name)),
        st.tuples(st.just("block"), st.lists(rows(), max_size=20, unique_by=lambda row: row.name)),
        st.tuples(st.just("remove"), st.lists(st.integers(0, 20), max_size=3, unique=True)),
        st.tuples(st.just("ask"), st.lists(SHAPES, max_size=3)),
    ),
    max_size=12,
)


@given(steps=STEPS, shapes=st.lists(SHAPES, min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_what_is_kept_is_what_feasibility_says_after_any_changes(steps: Any, shapes: list[Shape]) -> None:
    """Also of shapes that were counted in full long before, and of those that come later."""
    table, nodes = KeptShapes(), ClusterNodes()
    kept, asked = KeptFits(table), list(shapes)
    for verb, what in steps:
        match verb:
            case "upsert":
                nodes.upsert(columns_of(what), 0)
            case "block":
                nodes.replace_block(columns_of(what), 0)
            case "remove":
                nodes.remove([f"n{number}" for number in what])
            case "ask":
                asked.extend(what)
        for one in asked:
            assert_same(one, table, kept, nodes)


def assert_same(one: Shape, table: KeptShapes, kept: KeptFits, nodes: ClusterNodes) -> None:
    expected, number = fit(one, nodes), table.number(one)
    assert number is not None
    kept.keep(number, nodes)
    assert (kept.total[number], kept.largest[number]) == (expected.total, expected.largest)
    assert kept.when_empty(number) == expected.when_empty
    assert kept.reasons(number) == expected.reasons
    assert kept.limited_by(number) == expected.limited_by()
    takes = np.unpackbits(kept.bits[number], count=len(nodes.block)).astype(bool)
    assert (takes == (expected.per_node > 0)).all()


def test_what_a_full_table_forgets_is_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers are given anew; what was kept under the earlier ones is not taken for theirs."""
    monkeypatch.setattr(kept_shapes, "SHAPES_MAX", 2)
    table, nodes = KeptShapes(), ClusterNodes()
    kept = KeptFits(table)
    nodes.upsert(columns_of([node("n0", cpu=4000, used=500), node("n1", cpu=2000)]), 0)
    for cpu in (300, 1000, 1500, 700, 300):
        assert_same(shape(cpu), table, kept, nodes)


def shape_beyond(**more: Any) -> Shape:
    return shape(1000, **more)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(shape_beyond(host_ports=(HostPort("0.0.0.0", "TCP", 80),)), id="host port"),
        pytest.param(shape_beyond(node_name="n0"), id="node name"),
        pytest.param(shape_beyond(apart=(PodTerm(PodSelector(()), own=True),)), id="anti-affinity"),
        pytest.param(shape_beyond(near=(PodTerm(PodSelector(()), own=True),)), id="affinity"),
        pytest.param(shape_beyond(spread=(Spread(PodSelector(()), 1),)), id="spread"),
        pytest.param(shape_beyond(node_selector=(("kubernetes.io/hostname", "n0"),)), id="hostname"),
    ],
)
def test_what_depends_on_more_than_a_node_is_not_kept(other: Shape) -> None:
    """Such shapes are worked out by feasibility each time."""
    assert KeptShapes().number(other) is None
