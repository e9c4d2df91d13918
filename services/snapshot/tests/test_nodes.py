"""Nodes, and the doubt about a list that lost most of them."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot.core.nodes import CHARACTERS_MAX, NodeFacts, NodeTable, read_node
from spillway.amounts import AMOUNT_MAX, PODS_MAX
from spillway.kubernetes.objects import Node
from spillway.lending_marks import LENDING, POOL_CLUSTER, loan_state_from_taints
from spillway.model import NODE_LENT, NODE_OWNED, NODE_RECALLED


@pytest.fixture
def table(objects: Any) -> NodeTable:
    table = NodeTable(confirm_seconds=60.0, confirm_probes=5)
    table.replace_nodes([objects.node(f"n{index}") for index in range(10)], 0.0)
    table.dirty.clear()
    return table


def test_the_first_list_is_believed(objects: Any) -> None:
    table = NodeTable(60.0, 5)
    table.replace_nodes([], 0.0)
    assert (table.doubt, table.node_count) == (None, 0)


@pytest.mark.parametrize(("left", "doubted"), [(10, False), (5, False), (4, True), (0, True)])
def test_a_list_that_loses_more_than_half_is_doubted(table: NodeTable, objects: Any, left: int, doubted: bool) -> None:
    table.replace_nodes([objects.node(f"n{index}") for index in range(left)], 1.0)
    assert (table.doubt is not None) == doubted
    assert len(table.nodes) == (10 if doubted else left)
    assert table.node_count == left
    assert bool(table.node_list_trouble.text) == doubted
    assert len(table.dirty) == (0 if doubted else 10 - left)


def test_as_many_other_nodes_are_doubted_too(table: NodeTable, objects: Any) -> None:
    table.replace_nodes([objects.node(f"other-{index}") for index in range(10)], 1.0)
    assert table.doubt is not None


def test_events_remove_nodes_without_doubt(table: NodeTable) -> None:
    for index in range(9):
        table.remove_node(f"n{index}")
    assert (len(table.nodes), table.doubt) == (1, None)


def test_nodes_that_come_back_end_the_doubt(table: NodeTable, objects: Any) -> None:
    table.replace_nodes([], 1.0)
    for index in range(5):
        assert table.doubt is not None
        table.upsert_node(objects.node(f"n{index}"))
    assert table.doubt is None
    assert table.dirty == {f"n{index}" for index in range(5, 10)}


def test_probes_that_agree_for_long_enough_confirm_it(table: NodeTable, objects: Any) -> None:
    table.replace_nodes([objects.node("n0")], 1.0)
    for second in range(3, 61, 2):
        table.check_doubted_list(1, float(second))
        assert table.doubt is not None
    table.check_doubted_list(1, 61.0)
    assert (table.doubt, list(table.nodes)) == (None, ["n0"])


def test_a_probe_that_disagrees_begins_the_wait_anew(table: NodeTable) -> None:
    table.replace_nodes([], 1.0)
    for second in range(3, 59, 2):
        table.check_doubted_list(0, float(second))
    table.check_doubted_list(10, 60.0)
    table.check_doubted_list(0, 62.0)
    assert table.doubt is not None
    for second in range(64, 121, 2):
        table.check_doubted_list(0, float(second))
    assert table.doubt is None


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=30))
def test_a_doubt_knows_how_many_nodes_are_lost(objects: Any, steps: list[tuple[bool, int]]) -> None:
    """It is counted along: a comparison of all names for each event took 5 ms of 50,000 nodes."""
    table = NodeTable(60.0, 5)
    table.replace_nodes([objects.node(f"n{index}") for index in range(10)], 0.0)
    table.replace_nodes([], 1.0)
    for is_there, index in steps:
        (table.upsert_node(objects.node(f"n{index}")) if is_there else table.remove_node(f"n{index}"))
        if table.doubt is None:
            return
        lost = len(table.nodes.keys() - table.doubt.nodes.keys())
        assert table.node_list_trouble.text == f"the list of nodes lost {lost} of 10; not believed yet"
        assert 2 * lost > 10


class Uncompared(dict[str, NodeFacts]):
    def keys(self) -> Any:
        raise AssertionError("all names are compared")


def test_an_event_in_doubt_compares_no_names_of_others(table: NodeTable, objects: Any) -> None:
    table.replace_nodes([], 1.0)
    table.nodes = Uncompared(table.nodes)
    table.upsert_node(objects.node("n1"))
    table.remove_node("n1")
    assert table.node_list_trouble.text == "the list of nodes lost 10 of 10; not believed yet"


@pytest.mark.parametrize(
    "said",
    [
        {"labels": {"k": "v" * CHARACTERS_MAX}},
        {"taints": [{"key": f"k{number}", "value": "v" * 60, "effect": "NoSchedule"} for number in range(2_000)]},
        {"allocatable": {f"example.com/{number}{'x' * 60}": "1" for number in range(2_000)}},
    ],
)
def test_a_node_that_says_more_than_its_bound_is_closed(objects: Any, said: dict[str, Any]) -> None:
    """Two such nodes were more than a record takes, and doubled the number of blocks without end."""
    assert read_node(objects.node("n1", **said)) == NodeFacts((), (), (), unschedulable=True)


@pytest.mark.parametrize(("value", "state"), [("lent", NODE_LENT), ("recalled", NODE_RECALLED), ("?", NODE_RECALLED)])
def test_whose_a_closed_node_is_stays_known(objects: Any, value: str, state: int) -> None:
    taint = {"key": "spillway.io/lending", "value": value, "effect": "NoSchedule"}
    labels = {"k": "v" * CHARACTERS_MAX}
    assert loan_state_from_taints(read_node(objects.node("n1", labels=labels, taints=[taint])).taints) == state
    assert loan_state_from_taints(read_node(objects.node("n1", labels=labels)).taints) == NODE_OWNED


def test_what_no_node_has_is_clamped(objects: Any) -> None:
    found = read_node(objects.node("n1", allocatable={"cpu": "9P", "memory": "8Ei", "pods": "9E", "x": "12"}))
    assert dict(found.allocatable) == {"cpu": AMOUNT_MAX, "memory": AMOUNT_MAX, "pods": PODS_MAX, "x": 12}


@pytest.mark.parametrize(
    ("value", "annotations", "labels"),
    [
        pytest.param("lent", {POOL_CLUSTER: "pool"}, {"a": "b", POOL_CLUSTER: "pool"}, id="lent"),
        pytest.param("recalled", {POOL_CLUSTER: "pool"}, {"a": "b", POOL_CLUSTER: "pool"}, id="recalled"),
        pytest.param("lent", {}, {"a": "b"}, id="lent, and no annotation"),
        pytest.param(None, {POOL_CLUSTER: "pool"}, {"a": "b"}, id="owned"),
    ],
)
def test_a_lent_nodes_row_names_its_pool_by_the_annotation_alone(
    objects: Any, value: str | None, annotations: dict[str, str], labels: dict[str, str]
) -> None:
    taints = [{"key": LENDING, "value": value, "effect": "NoSchedule"}] if value else []
    found = {
        "metadata": {
            "name": "n",
            "labels": {"a": "b", POOL_CLUSTER: "label"},
            "annotations": {**annotations, "x": "y"},
        },
        "spec": {"taints": taints},
    }
    facts = read_node(msgspec.convert(found, Node))
    assert facts.labels == tuple(sorted(labels.items()))
