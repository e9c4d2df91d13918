"""What is missing until a workload is as it was asked for."""

from dataclasses import replace

import pytest

from spillway.api import ClusterStatus, ListBrakesReply, PlacedPart, PlacementReply, WorkloadReply
from spillway.events import STATE_PRESENT, JobEnd, StatusDetails
from spillway_cli.waiting import handover_obstacles_text, missing_for_ready_text


def reply_waiting_for(waiting_for: str) -> WorkloadReply:
    """One cluster in which all is well."""
    part = PlacedPart("own-1", "own", 3, 0, removing=False)
    placement = PlacementReply("shop", "web", 4, 3, 3, 0, waiting_for, (part,), (), (), deleting=False, stale=False)
    status = ClusterStatus("own-1", STATE_PRESENT, "", 3, 3, 3, 3, 3, 0, "")
    return WorkloadReply(placement, "Deployment", (status,), ())


def test_a_rollout_is_waited_for_though_every_cluster_shows_what_it_is_to_show() -> None:
    text = "rollout 1 of 3 clusters: waits for own-1: 1 of 3 updated, 3 available"
    assert missing_for_ready_text(reply_waiting_for(text), 4) == text


def test_what_holds_a_rollout_is_said_beside_what_is_not_ready_yet() -> None:
    text = "rollout 1 of 3 clusters: waits for own-1; own-2 is held: fleet is frozen by ann: a feast"
    found = reply_waiting_for(text)
    rolling = replace(found, statuses=(replace(found.statuses[0], ready=1),))
    assert missing_for_ready_text(rolling, 4) == f"own-1: 1 of 3 ready; {text}"


def test_misplaced_replicas_run_all_the_same() -> None:
    assert (
        missing_for_ready_text(
            reply_waiting_for("room elsewhere for 2 replicas in clusters that the policy rules out"), 4
        )
        == ""
    )


@pytest.mark.parametrize(
    ("kind", "there", "lack"),
    [
        ("Deployment", 5, "own-1: 2 replicas more than asked for still there"),
        ("StatefulSet", 4, "own-1: 1 replica more than asked for still there"),
        ("Deployment", 3, ""),
        ("Job", 4, ""),
    ],
)
def test_a_scale_in_is_over_once_the_surplus_is_gone(kind: str, there: int, lack: str) -> None:
    found = reply_waiting_for("")
    status = replace(found.statuses[0], replicas=there)
    assert missing_for_ready_text(replace(found, kind=kind, statuses=(status,)), 4) == lack


@pytest.mark.parametrize(("per_minute", "text"), [(0.0, "the budget is 0 moves a minute"), (600.0, "")])
def test_who_waits_for_a_drain_hears_of_a_budget_of_nothing(per_minute: float, text: str) -> None:
    assert handover_obstacles_text(ListBrakesReply((), (), per_minute, 0, stale=False), "own-1") == text


def test_what_is_on_hold_says_for_what() -> None:
    found = reply_waiting_for("")
    reason = "the object is at 99.1, above 3.1"
    held = replace(found.statuses[0], message="a text", details=StatusDetails(hold=reason), current=False)
    of_an_older_planner = replace(held, message=f"on hold: {reason}", details=None)
    for status in (held, of_an_older_planner):
        assert (
            missing_for_ready_text(replace(found, statuses=(status,)), 4)
            == f"own-1: not carried out yet, on hold: {reason}"
        )


@pytest.mark.parametrize(
    ("told", "lack"),
    [
        (StatusDetails(job=JobEnd("Complete", 3)), ""),
        (StatusDetails(job=JobEnd("Failed", 1)), "own-1: 0 of 3 ready"),
        (StatusDetails(), "own-1: 0 of 3 ready"),
        (None, "own-1: 0 of 3 ready"),
    ],
)
def test_a_job_is_there_once_it_is_complete(told: StatusDetails | None, lack: str) -> None:
    found = reply_waiting_for("")
    status = replace(found.statuses[0], message="a text", details=told, ready=0)
    assert missing_for_ready_text(replace(found, kind="Job", statuses=(status,)), 4) == lack
