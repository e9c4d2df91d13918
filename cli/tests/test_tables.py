"""Rows and lines that people see, of values that no fake planner gives."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from spillway.api import PlacedPart, PlacementReply, WorkloadReply
from spillway.events import DecisionRecorded
from spillway.model import Generation
from spillway_cli import tables

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
    console.print(tables.workload(WorkloadReply(PLACED, "", (), (record,), gone=True)))
    assert isinstance(console.file, StringIO)
    shown = console.file.getvalue()
    assert "shop/web  is not declared any more: Delete on 2026-11-2" in shown
    assert "7.2" in shown
    assert "READY" not in shown


def test_disowning_says_in_its_line_what_stays_where() -> None:
    reply = replace(PLACED, disowning=True, waiting_for="what is disowned stays")
    assert tables.summary(reply).plain == "shop/web  is being disowned: 1 cluster to go; what is disowned stays"
