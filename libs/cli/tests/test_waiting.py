"""What is missing until a workload is as it was asked for."""

from dataclasses import replace

from spillway.api import ClusterStatus, PlacedPart, PlacementReply, WorkloadReply
from spillway.events import STATE_PRESENT
from spillway_cli.waiting import lacking


def reply(waiting_for: str) -> WorkloadReply:
    """One cluster in which all is well."""
    part = PlacedPart("own-1", "own", 3, 0, removing=False)
    placement = PlacementReply("shop", "web", 4, 3, 3, 0, waiting_for, (part,), (), (), deleting=False, stale=False)
    status = ClusterStatus("own-1", STATE_PRESENT, "", 3, 3, 3, 3, 3, 0, "")
    return WorkloadReply(placement, "Deployment", (status,), ())


def test_a_rollout_is_waited_for_though_every_cluster_shows_what_it_is_to_show() -> None:
    text = "rollout 1 of 3 clusters: waits for own-1: 1 of 3 updated, 3 available"
    assert lacking(reply(text), 4) == text


def test_misplaced_replicas_run_all_the_same() -> None:
    assert lacking(reply("room elsewhere for 2 replicas in clusters that the policy rules out"), 4) == ""


def test_what_is_on_hold_says_for_what() -> None:
    found = reply("")
    held = replace(found.statuses[0], message="on hold: the object is at 99.1, above 3.1", current=False)
    assert lacking(replace(found, statuses=(held,)), 4) == (
        "own-1: not carried out yet, on hold: the object is at 99.1, above 3.1"
    )
