"""Nodes, and the doubt about a list that lost most of them."""

from typing import Any

import pytest

from snapshot.core.nodes import NodeTable


@pytest.fixture
def table(objects: Any) -> NodeTable:
    table = NodeTable(confirm_seconds=60.0, confirm_probes=5)
    table.listed([objects.node(f"n{index}") for index in range(10)], 0.0)
    table.dirty.clear()
    return table


def test_the_first_list_is_believed(objects: Any) -> None:
    table = NodeTable(60.0, 5)
    table.listed([], 0.0)
    assert (table.doubt, table.count) == (None, 0)


@pytest.mark.parametrize(("left", "doubted"), [(10, False), (5, False), (4, True), (0, True)])
def test_a_list_that_loses_more_than_half_is_doubted(table: NodeTable, objects: Any, left: int, doubted: bool) -> None:
    table.listed([objects.node(f"n{index}") for index in range(left)], 1.0)
    assert (table.doubt is not None) == doubted
    assert len(table.nodes) == (10 if doubted else left)
    assert table.count == left
    assert bool(table.trouble.text) == doubted
    assert len(table.dirty) == (0 if doubted else 10 - left)


def test_as_many_other_nodes_are_doubted_too(table: NodeTable, objects: Any) -> None:
    table.listed([objects.node(f"other-{index}") for index in range(10)], 1.0)
    assert table.doubt is not None


def test_events_remove_nodes_without_doubt(table: NodeTable) -> None:
    for index in range(9):
        table.remove(f"n{index}")
    assert (len(table.nodes), table.doubt) == (1, None)


def test_nodes_that_come_back_end_the_doubt(table: NodeTable, objects: Any) -> None:
    table.listed([], 1.0)
    for index in range(5):
        assert table.doubt is not None
        table.upsert(objects.node(f"n{index}"))
    assert table.doubt is None
    assert table.dirty == {f"n{index}" for index in range(5, 10)}


def test_probes_that_agree_for_long_enough_confirm_it(table: NodeTable, objects: Any) -> None:
    table.listed([objects.node("n0")], 1.0)
    for second in range(3, 61, 2):
        table.probed(1, float(second))
        assert table.doubt is not None
    table.probed(1, 61.0)
    assert (table.doubt, list(table.nodes)) == (None, ["n0"])


def test_a_probe_that_disagrees_begins_the_wait_anew(table: NodeTable) -> None:
    table.listed([], 1.0)
    for second in range(3, 59, 2):
        table.probed(0, float(second))
    table.probed(10, 60.0)
    table.probed(0, 62.0)
    assert table.doubt is not None
    for second in range(64, 121, 2):
        table.probed(0, float(second))
    assert table.doubt is None
