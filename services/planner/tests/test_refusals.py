"""Refusals of a planner with very many clusters: what they name, and that they stay small."""

from collections.abc import Callable

import pytest

from planner.api.batches import batch_reply
from planner.core.requests import adopting, answers, braking, decisions
from spillway.api import AdoptRequest, ApplyRequest, FreezeRequest, RequestError, ScaleRequest
from spillway.reasons import FITS_NO_NODE, NO_ROOM
from spillway.rpc.callers import Caller
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
from .test_propagation import divided_scheduling, propagation_policy

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


def decide_apply(fleet: Fleet, *manifests: dict[str, object]) -> None:
    request = ApplyRequest(manifest_texts(deployment(1), *manifests))
    decisions.decide_apply(fleet.state, request, fleet.next_moment())


def refuse_policy(fleet: Fleet, **spec: object) -> None:
    decide_apply(fleet, placement_policy(**spec))


def weighted(name: str) -> dict[str, object]:
    return {"split": "Weighted", "weights": [{"clusters": {"names": [name]}, "weight": 1}]}


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


OF_NOBODY = {"targetCluster": {"clusterNames": ["nobody"]}, "weight": 1}
NOWHERE = {"name": "t", "clusters": {"regions": ["mars"]}}
ELSEWHERE: dict[str, Callable[[Fleet], object]] = {
    "a limit": lambda fleet: refuse_policy(fleet, limits=[{"cluster": "nobody", "max": 1}]),
    "a tier": lambda fleet: refuse_policy(fleet, tiers=[{"name": "t", "clusters": {"names": ["nobody"]}}]),
    "a weight": lambda fleet: refuse_policy(fleet, tiers=[{"name": "t"} | weighted("nobody")]),
    "a weight of Karmada's": lambda fleet: decide_apply(
        fleet, propagation_policy(divided_scheduling("Weighted", staticWeightList=[OF_NOBODY]))
    ),
    "no cluster of a tier": lambda fleet: refuse_policy(fleet, tiers=[NOWHERE]),
    "an affinity": lambda fleet: decide_apply(fleet, propagation_policy({"clusterAffinity": {"clusterNames": ["x"]}})),
    "a cluster": lambda fleet: answers.find_cluster_view(fleet.state, "nobody", "cluster"),
    "an adoption": lambda fleet: adopting.adoption_question(
        fleet.state, AdoptRequest("", "web", "deployment", ("nobody",)), fleet.next_moment()
    ),
    "a brake": lambda fleet: braking.decide_freeze(
        fleet.state, FreezeRequest("cluster/nobody", "why"), "ann", fleet.next_moment()
    ),
}


@pytest.mark.parametrize("asked", ELSEWHERE.values(), ids=ELSEWHERE)
def test_clusters_of_the_fleet_are_named_to_callers_that_may_list_them(
    fleet: Fleet, asked: Callable[[Fleet], object]
) -> None:
    with pytest.raises(RequestError) as refused:
        asked(fleet)
    sees, sees_not = (Caller("ann", frozenset({verb})).text_of_refusal(refused.value) for verb in ("read", "apply"))
    assert (NAMES[0] in sees, "and 980 more" in sees) == (True, True)
    assert [name for name in NAMES if name in sees_not] == []
    instead = "1000 clusters, which list_clusters shows to callers that have this verb"
    assert sees_not == sees.split(NAMES[0])[0] + instead
    (item,) = batch_reply([refused.value], Caller("ann", frozenset({"apply", "plan_batch"}))).answers
    assert (item.code, item.error) == (refused.value.code, sees_not)


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
