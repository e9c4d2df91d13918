"""Refusals of a planner with very many clusters: what they name, and that they stay small."""

import pytest

from planner.core.requests import answers, decisions
from spillway.api import ApplyRequest, RequestError, ScaleRequest
from spillway.reasons import FITS_NO_NODE, NO_ROOM
from spillway.rpc.refusals import TEXT_BYTES_MAX, trailer_sized_text

from .builders import (
    Fleet,
    container_spec,
    deployment,
    joined_cluster,
    manifest_texts,
    node_row,
    placement_policy,
    pod_template,
)

COUNT = 1000
NAMES = [f"prod-eu-central-1-cluster-{index:04d}" for index in range(COUNT)]


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    made = Fleet()
    for name in NAMES:
        made.join_cluster(joined_cluster(name, "own"), [node_row("n1", cpu=1000)])
    return made


def refusal_of(fleet: Fleet, *manifests: dict[str, object]) -> RequestError:
    with pytest.raises(RequestError) as caught:
        decisions.decide_apply(fleet.state, ApplyRequest(manifest_texts(*manifests)), fleet.next_moment())
    return caught.value


def test_what_fits_no_node_names_some_clusters_and_says_how_many_there_are(fleet: Fleet) -> None:
    error = refusal_of(fleet, deployment(1, pod=pod_template(container_spec(cpu="64"))))
    assert (error.code, error.reason, error.details["clusters"]) == ("FAILED_PRECONDITION", FITS_NO_NODE, "1000")
    assert error.details["first_clusters"].startswith(f"{NAMES[0]},{NAMES[1]},")
    assert (f"{NAMES[0]}: cpu" in error.text, "and 992 clusters more" in error.text) == (True, True)
    assert trailer_sized_text(error.text) == error.text


def test_that_there_is_no_room_is_told_from_that_too_many_wait(fleet: Fleet) -> None:
    """By code and reason, not by words: the one is so until something changes, the other for a moment."""
    error = refusal_of(fleet, deployment(COUNT * 2), placement_policy(unplaceable="Refuse"))
    assert (error.code, error.reason) == ("FAILED_PRECONDITION", NO_ROOM)
    assert (error.details["unplaced"], error.details["clusters"]) == (str(COUNT * 2 - COUNT), "1000")
    assert len(error.text) < TEXT_BYTES_MAX


@pytest.mark.parametrize("manifest", [{"limits": [{"cluster": "nobody", "max": 1}]}], ids=["a limit"])
def test_a_cluster_that_is_not_there_is_said_beside_some_that_are(fleet: Fleet, manifest: dict[str, object]) -> None:
    error = refusal_of(fleet, deployment(1), placement_policy(**manifest))
    assert ("and 980 more" in error.text, len(error.text) < TEXT_BYTES_MAX) == (True, True)
    with pytest.raises(RequestError, match="and 980 more"):
        answers.find_cluster_view(fleet.state, "nobody", "cluster")


def test_what_is_deleted_and_still_there_names_some_of_its_clusters() -> None:
    made = Fleet()
    for name in NAMES[:30]:
        made.join_cluster(joined_cluster(name, "own"), [node_row("n1", cpu=1000)])
    events = decisions.decide_apply(made.state, ApplyRequest(manifest_texts(deployment(30))), made.next_moment()).events
    for event in events:
        made.state.apply_event(event, made.now)
    workload = made.state.workloads["default", "web"]
    for event in decisions.decide_delete(made.state, decisions.DeleteRequest("", "web"), made.next_moment()).events:
        made.state.apply_event(event, made.now)
    with pytest.raises(RequestError, match=r"Deleting: still in .* and 10 more") as caught:
        decisions.decide_scale(made.state, ScaleRequest("", "web", 3), made.next_moment())
    assert (caught.value.code, len(workload.parts)) == ("FAILED_PRECONDITION", 30)
