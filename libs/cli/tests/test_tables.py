"""Rows and lines that people see, of values that no fake planner gives."""

from dataclasses import replace

import pytest

from spillway.api import PlacedPart, PlacementReply, WorkloadReply
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
        pytest.param(replace(PLACED, releasing=True, waiting_for="a drain"), "releasing; a drain", id="released"),
        pytest.param(
            replace(PLACED, parts=(TAKEN_OVER,), scaled_by="HorizontalPodAutoscaler/web", waiting_for=DRAINED),
            f"being taken over; scaled by HorizontalPodAutoscaler/web; {DRAINED}",
            id="adopted",
        ),
    ],
)
def test_a_listed_workload_tells_what_becomes_of_it_and_for_what_it_waits(reply: PlacementReply, note: str) -> None:
    assert tables.workload_row(WorkloadReply(reply, "Deployment", (), ()))[-1] == note


def test_a_release_says_in_its_line_what_stays_where() -> None:
    reply = replace(PLACED, releasing=True, waiting_for="what is released stays")
    assert tables.summary(reply).plain == "shop/web  is being released: 1 cluster to go; what is released stays"
