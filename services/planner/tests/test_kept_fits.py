"""What is kept of a cluster's fits is what feasibility says of its nodes, whatever happened to them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.core.feasibility import kept_shapes
from planner.core.feasibility.kept_fits import KeptFits
from planner.core.feasibility.kept_shapes import KeptShapes
from spillway.columns import columns_of
from spillway.feasibility.fit import compute_fit
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

from .builders import make_shape, node_row

TAINT = Taint("gpu", "only", "NoSchedule")
SHAPES = st.builds(
    lambda cpu, more, selector, terms, tolerations: make_shape(
        cpu, requests=more, node_selector=selector, node_terms=terms, tolerations=tolerations
    ),
    st.sampled_from([0, 300, 1000, 1500]),
    st.sampled_from([{}, {"memory": 2**30}, {"gpu": 1}, {"memory": 3 * 2**30, "gpu": 2}, {"memory": 2**30 + 7}]),
    st.sampled_from([(), (("pool", "a"),)]),
    st.sampled_from([(), (NodeTerm((Requirement("zone", "In", ("x", "y")),), ()),)]),
    st.sampled_from([(), (Toleration("", "Exists", "", ""),), (Toleration("gpu", "Exists", "", ""),)]),
)


@st.composite
def drawn_node_rows(draw: st.DrawFn) -> NodeRow:
    gpu = draw(st.sampled_from([{}, {"gpu": 4}]))
    labels = {"pool": draw(st.sampled_from("ab")), "zone": draw(st.sampled_from("xyz"))}
    more: dict[str, Any] = {"allocatable": gpu, "labels": labels}
    return node_row(
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
        st.tuples(
            st.just("upsert"), st.lists(drawn_node_rows(), min_size=1, max_size=6, unique_by=lambda row: row.name)
        ),
        st.tuples(st.just("block"), st.lists(drawn_node_rows(), max_size=20, unique_by=lambda row: row.name)),
        st.tuples(st.just("remove"), st.lists(st.integers(0, 20), max_size=3, unique=True)),
        st.tuples(st.just("ask"), st.lists(SHAPES, max_size=3)),
    ),
    max_size=12,
)


@given(steps=STEPS, shapes=st.lists(SHAPES, min_size=1, max_size=4))
def test_what_is_kept_is_what_feasibility_says_after_any_changes(steps: Any, shapes: list[Shape]) -> None:
    """Also of shapes that were counted in full long before, and of those that come later."""
    table, nodes = KeptShapes(), ClusterNodes()
    kept, asked = KeptFits(table), list(shapes)
    for verb, what in steps:
        match verb:
            case "upsert":
                nodes.upsert_nodes(columns_of(what), 0)
            case "block":
                nodes.replace_block(columns_of(what), 0)
            case "remove":
                nodes.remove_nodes([f"n{number}" for number in what])
            case "ask":
                asked.extend(what)
        for one in asked:
            assert_kept_fit_is_computed_fit(one, table, kept, nodes)


def assert_kept_fit_is_computed_fit(one: Shape, table: KeptShapes, kept: KeptFits, nodes: ClusterNodes) -> None:
    expected, number = compute_fit(one, nodes), table.number_of_shape(one)
    assert number is not None
    kept.keep_shape(number, nodes)
    assert (kept.total_by_shape[number], kept.largest_by_shape[number]) == (expected.total, expected.largest)
    assert kept.can_fit_when_empty(number) == expected.when_empty
    assert kept.reasons_of_shape(number) == expected.reasons
    assert kept.limit_of_shape(number) == expected.node_limit()
    takes = np.unpackbits(kept.bits[number], count=len(nodes.block)).astype(bool)
    assert (takes == (expected.per_node > 0)).all()


def test_what_a_full_table_forgets_is_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers are given anew; what was kept under the earlier ones is not taken for theirs."""
    monkeypatch.setattr(kept_shapes, "SHAPES_MAX", 2)
    table, nodes = KeptShapes(), ClusterNodes()
    kept = KeptFits(table)
    nodes.upsert_nodes(columns_of([node_row("n0", cpu=4000, used=500), node_row("n1", cpu=2000)]), 0)
    for cpu in (300, 1000, 1500, 700, 300):
        assert_kept_fit_is_computed_fit(make_shape(cpu), table, kept, nodes)


def test_names_of_resources_are_forgotten_with_the_shapes_that_asked_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a column of all shapes, and a reason: whoever asked for 5,000 left 160 MiB for good."""
    monkeypatch.setattr(kept_shapes, "SHAPES_MAX", 4)
    table, nodes = KeptShapes(), ClusterNodes()
    kept = KeptFits(table)
    nodes.upsert_nodes(columns_of([node_row("n0", allocatable={"r1": 4, "r9": 4})]), 0)
    for number in range(12):
        assert_kept_fit_is_computed_fit(
            make_shape(0, requests={f"r{number}": 3, f"s{number % 2}": 1}), table, kept, nodes
        )
        assert_kept_fit_is_computed_fit(make_shape(0, requests={f"r{number}": 3}), table, kept, nodes)
        assert len(table.resources) <= 2 * 4 + 1
        assert len(table.resource_reason) == len(table.resources)
        assert len(table.reasons) <= len(table.resources) + 1
    assert "r0" not in table.reasons
    assert "r9" not in table.resources
    assert "r11" in table.resources


def test_shapes_that_ask_for_more_resources_than_there_are_columns_are_not_kept() -> None:
    """Others go on as they were, and what is left unkept is let in again once all is forgotten."""
    table, most = KeptShapes(), kept_shapes.RESOURCES_MAX
    many = [
        make_shape(0, requests={f"r{number}-{index}": 1 for index in range(60)}) for number in range(most // 60 + 1)
    ]
    numbers = [table.number_of_shape(one) for one in many]
    assert numbers == [*range(len(many) - 1), None]
    assert table.number_of_shape(make_shape(1000)) == len(many) - 1
    assert len(table.resources) <= most
    assert table.requests.shape[1] <= 2 * most
    assert table.forgotten == 0
    assert [table.number_of_shape(one) for one in many] == numbers


def test_node_selectors_beyond_what_reasons_have_room_for_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a text with a count beside all shapes: 4,000 of them took 330 MiB for each cluster."""
    monkeypatch.setattr(kept_shapes, "REASONS_MAX", 8)
    table, nodes = KeptShapes(), ClusterNodes()
    kept = KeptFits(table)
    nodes.upsert_nodes(columns_of([node_row("n0")]), 0)
    for number in range(6):
        assert_kept_fit_is_computed_fit(make_shape(node_selector=(("pool", f"p{number}"),)), table, kept, nodes)
    others = [make_shape(node_selector=(("pool", f"q{number}"),)) for number in range(9)]
    assert [table.number_of_shape(one) for one in others] == [None] * 9
    assert_kept_fit_is_computed_fit(make_shape(700, node_selector=(("pool", "p1"),)), table, kept, nodes)
    assert len(table.reasons) == 8


def test_a_shape_that_says_much_is_not_kept() -> None:
    """Shapes are kept by number: 4,096 of a megabyte each would take all memory."""
    names = tuple(f"{number:060}" for number in range(1000))
    table = KeptShapes()
    assert table.number_of_shape(make_shape(node_terms=(NodeTerm((Requirement("zone", "In", names[:250]),), ()),))) == 0
    assert table.number_of_shape(make_shape(node_terms=(NodeTerm((Requirement("zone", "In", names),), ()),))) is None
    assert table.can_keep_shape(make_shape())
    assert len(table._ids) == 1


def thousand_milli_shape(**more: Any) -> Shape:
    return make_shape(1000, **more)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(thousand_milli_shape(host_ports=(HostPort("0.0.0.0", "TCP", 80),)), id="host port"),
        pytest.param(thousand_milli_shape(node_name="n0"), id="node name"),
        pytest.param(thousand_milli_shape(apart=(PodTerm(PodSelector(()), own=True),)), id="anti-affinity"),
        pytest.param(thousand_milli_shape(near=(PodTerm(PodSelector(()), own=True),)), id="affinity"),
        pytest.param(thousand_milli_shape(spread=(Spread(PodSelector(()), 1),)), id="spread"),
        pytest.param(thousand_milli_shape(node_selector=(("kubernetes.io/hostname", "n0"),)), id="hostname"),
    ],
)
def test_what_depends_on_more_than_a_node_is_not_kept(other: Shape) -> None:
    """Such shapes are worked out by feasibility each time."""
    assert KeptShapes().number_of_shape(other) is None
