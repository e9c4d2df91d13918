"""Rows and lines that people see, of values that no fake planner gives."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console, RenderableType

from spillway.api import BatchAnswer, CapacityReply, ClusterStatus, PlacedPart, PlacementReply, WorkloadReply
from spillway.events import DecisionRecorded
from spillway.model import ClusterInput, Generation
from spillway_cli import tables
from spillway_cli.output import SafeConsole, make_table

PLACED = PlacementReply(
    "shop", "web", 1, 3, 3, 0, "", (PlacedPart("own-1", "own", 3, 0, False),), (), (), deleting=False, stale=False
)
TAKEN_OVER = replace(PLACED.parts[0], adopting=True)
DRAINED = "3 replicas of draining cluster own-1 wait until all are taken over"


@pytest.mark.parametrize(
    ("reply", "note"),
    [
        pytest.param(PLACED, "", id="nothing"),
        pytest.param(replace(PLACED, deleting=True, waiting_for="cpu"), "deleting", id="deleted"),
        pytest.param(replace(PLACED, disowning=True, waiting_for="a drain"), "disowning; a drain", id="disowned"),
        pytest.param(
            replace(PLACED, parts=(TAKEN_OVER,), scaled_by="HorizontalPodAutoscaler/web", waiting_for=DRAINED),
            f"being taken over; scaled by HorizontalPodAutoscaler/web; {DRAINED}",
            id="adopted",
        ),
    ],
)
def test_a_listed_workload_tells_what_becomes_of_it_and_for_what_it_waits(reply: PlacementReply, note: str) -> None:
    assert tables.workload_row(WorkloadReply(reply, "Deployment", (), ()))[-1] == note


def test_of_what_is_gone_its_decisions_are_shown_and_which_was_the_last() -> None:
    record = DecisionRecorded("shop", "web", Generation(7, 2), 1_795_280_869_000, "Delete", 0, 0, (), (), "", "")
    console = Console(file=StringIO(), width=100)
    console.print(tables.render_workload(WorkloadReply(PLACED, "", (), (record,), gone=True)))
    assert isinstance(console.file, StringIO)
    shown = console.file.getvalue()
    assert "shop/web  is not declared any more: Delete on 2026-11-2" in shown
    assert "7.2" in shown
    assert "READY" not in shown


def test_disowning_says_in_its_line_what_stays_where() -> None:
    reply = replace(PLACED, disowning=True, waiting_for="what is disowned stays")
    assert (
        tables.placement_summary_line(reply).plain
        == "shop/web  is being disowned: 1 cluster to go; what is disowned stays"
    )


NAMES = ("cloud-1", "own-1", "own-2")
OUT_OF_ORDER = tuple(PlacedPart(name, "own", 3, 0, False) for name in ("own-2", "cloud-1", "own-1"))
INPUTS = tuple(ClusterInput(name, "own", 5, 5, 0, 0, 3, "cpu", 1) for name in ("own-1", "cloud-1", "own-2"))
SPREAD = replace(PLACED, parts=OUT_OF_ORDER, inputs=INPUTS)
DECIDED = DecisionRecorded("shop", "web", Generation(7, 2), 1, "Apply", 9, 0, INPUTS, (), "", "")


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(tables.render_placement(SPREAD), id="placement"),
        pytest.param(
            tables.render_placement(replace(SPREAD, parts=OUT_OF_ORDER[:1])), id="placement with clusters left out"
        ),
        pytest.param(tables.render_workload(WorkloadReply(SPREAD, "Deployment", (), ())), id="workload"),
        pytest.param(tables.workloads_table([WorkloadReply(SPREAD, "Deployment", (), ())]), id="list"),
        pytest.param(tables.decision_history_table([DECIDED]), id="history"),
        pytest.param(tables.render_batch_answers(["web"], [BatchAnswer("OK", "", SPREAD)]), id="batch"),
        pytest.param(tables.render_capacity(CapacityReply(INPUTS, (), False)), id="capacity"),
    ],
)
def test_clusters_stand_in_the_order_of_their_names_wherever_they_are_shown(shown: RenderableType) -> None:
    text = printed_text(shown, 200)
    assert sorted(NAMES, key=text.index) == list(NAMES)


LONG = "k8s-prod-westeurope-1"
STATUS = ClusterStatus(
    LONG, "DependencyMissing", f"{LONG}: waits for a Secret that is nowhere", 3, 3, 3, 0, 0, 3, "0/612 nodes are free"
)


def test_a_table_fits_80_columns_and_what_has_no_room_beside_the_rest_stands_below_it() -> None:
    reply = replace(PLACED, name="checkout-backend", parts=(PlacedPart(LONG, "own", 3, 0, False),))
    workload = WorkloadReply(reply, "Deployment", (STATUS,), ())
    for shown in (tables.render_workload(workload), tables.workloads_table([workload]), tables.render_placement(reply)):
        lines = printed_text(shown, 80).splitlines()
        assert max(map(len, lines)) <= 80, lines
        assert any(LONG in line for line in lines), lines


def test_a_name_is_whole_even_where_it_alone_is_wider_than_the_table_may_be() -> None:
    name = "n" * 90
    lines = printed_text(make_table(("NODE", "PODS", ""), [(name, 3, "two words")], right=("PODS",)), 80).splitlines()
    assert lines[1].startswith(name)


def test_a_table_with_room_has_a_line_for_each_row_and_numbers_to_the_right() -> None:
    shown = printed_text(
        make_table(("NAME", "REPLICAS", ""), [("web", 3, "all is well"), ("x", 1200, "")], ("REPLICAS",)), 80
    )
    assert shown.splitlines() == ["NAME  REPLICAS", "web          3  all is well", "x         1200"]


def test_only_where_a_table_is_too_wide_lines_break_at_words_and_empty_columns_go() -> None:
    shown = printed_text(make_table(("NAME", "FREE", "WHY"), [("web", "", "all of it is well")]), 14)
    assert shown.splitlines() == ["NAME  WHY", "web   all of", "      it is", "      well"]


def printed_text(shown: RenderableType, width: int) -> str:
    console = SafeConsole(file=StringIO(), width=width, highlight=False, markup=False)
    console.print(shown)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()
