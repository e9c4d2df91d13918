"""StatefulSets and Jobs: what is refused of them, where they go, and that they are never in two clusters."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.core.background import aftermath, moves
from planner.core.background.round import RoundMemory, steps_of_round
from planner.core.division.situation import Division, HeldReplicas, Situation
from planner.core.feasibility.reservation import compute_reservation
from planner.core.feasibility.room import Room
from planner.core.knowledge.allowance import UnlimitedAllowance
from planner.core.manifests.policy import read_policy
from planner.core.manifests.request import read_manifests
from planner.core.placement import placing
from planner.core.placement.whole import divide_whole
from planner.core.requests import decisions, membership
from planner.settings import PlannerSettings
from spillway.addresses import Tombstone
from spillway.api import (
    ApplyRequest,
    ClusterMovesReply,
    DeleteRequest,
    PlacementReply,
    RequestError,
    ScaleRequest,
    SetClusterPhaseRequest,
)
from spillway.events import PHASE_ACTIVE, PHASE_DRAINING, PHASE_LEAVING, STATE_ENDED, STATE_PRESENT, Event
from spillway.model import NO_GENERATION, Generation, Part, WorkloadFacts

from .builders import (
    Fleet,
    deployment,
    job,
    joined_cluster,
    make_room,
    make_shape,
    manifest_texts,
    node_row,
    placement_policy,
    pod_template,
    statefulset,
    workload_facts,
)
from .member import workload_observed

DB = ("default", "db")
NAMES = ("own-1", "own-2", "cloud-1")
V = Generation(9, 1)
ONE_POD = make_shape()


# ── What is read ────────────────────────────────────────────────────────────────────────────────────────────────


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "apiVersion": (statefulset() | {"apiVersion": "v1"}, "StatefulSet.apiVersion: 'v1': expected apps/v1"),
    "Job apiVersion": (job() | {"apiVersion": "apps/v1"}, "Job.apiVersion: 'apps/v1': expected batch/v1"),
    "unknown field": (statefulset(serviceNam="x"), "StatefulSet.spec.serviceNam: unknown field; did you mean service"),
    "a Deployment's field": (statefulset(strategy={}), "StatefulSet.spec.strategy: unknown field"),
    "unknown Job field": (job(replicas=3), "Job.spec.replicas: unknown field"),
    "replicas": (statefulset(-1), "StatefulSet.spec.replicas: -1: expected an integer"),
    "parallelism": (job("4"), "Job.spec.parallelism: '4': expected an integer"),
    "completions": (job(1, completions=-2), "Job.spec.completions: -2: expected an integer"),
    "pod management": (statefulset(podManagementPolicy="Fast"), "podManagementPolicy: 'Fast': expected OrderedReady"),
    "update": (statefulset(updateStrategy={"type": "Recreate"}), "updateStrategy.type: 'Recreate': expected Rolling"),
    "update field": (
        statefulset(updateStrategy={"rollingUpdate": {"maxSurge": 1}}),
        "StatefulSet.spec.updateStrategy.rollingUpdate.maxSurge: unknown field",
    ),
    "selector": (statefulset(selector={"matchLabels": {"app": "x"}}), "StatefulSet.spec.selector: {'matchLabels'"),
    "restartPolicy": (job(pod=pod_template()), "Job.spec.template.spec.restartPolicy: 'Always': expected Never or OnF"),
    "Job selector": (job(selector={"matchLabels": {"a": "b"}}), "Job.spec.selector: {'matchLabels': {'a': 'b'}}: exp"),
    "ttl": (job(ttlSecondsAfterFinished=0), "Job.spec.ttlSecondsAfterFinished: 0: expected nothing: the cluster wo"),
    "no containers' image": (
        job(pod={"spec": {"containers": [{"name": "a"}]}}),
        "Job.spec.template.spec.restartPolicy: 'Always'",
    ),
}


@pytest.mark.parametrize(("manifest", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_refused(manifest: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_manifests(manifest_texts(manifest))
    assert caught.value.code == "INVALID_ARGUMENT"
    assert message in caught.value.text


@pytest.mark.parametrize(
    ("manifest", "replicas"),
    [
        (statefulset(3), 3),
        (job(3), 3),
        (job(3, completions=10), 3),
        (job(10, completions=3), 3),
        ({**job(), "spec": {"template": pod_template(restartPolicy="OnFailure")}}, 1),
        ({**job(), "spec": {"completions": 5, "template": pod_template(restartPolicy="Never")}}, 1),
    ],
)
def test_replicas_are_the_pods_that_run_at_a_time(manifest: dict[str, Any], replicas: int) -> None:
    declaration = read_manifests(manifest_texts(manifest))
    assert (declaration.kind, declaration.replicas, declaration.surge) == (manifest["kind"], replicas, 0)


def test_what_is_not_computed_is_said() -> None:
    volumes = read_manifests(manifest_texts(statefulset(volumeClaimTemplates=[{"metadata": {"name": "data"}}])))
    assert "volumeClaimTemplates" in volumes.shape.unmodelled[0]
    assert "suspend" in read_manifests(manifest_texts(job(suspend=True))).shape.unmodelled[0]


# ── The division ────────────────────────────────────────────────────────────────────────────────────────────────


OWN_FIRST = [{"name": "own", "clusters": {"tiers": ["own"]}}, {"name": "cloud", "clusters": {"tiers": ["cloud"]}}]
"""own-1 and own-2, then cloud-1."""


def divide_whole_workload(
    replicas: int, rooms: dict[str, Room], held: dict[str, int] | None = None, limits: Any = (), **more: Any
) -> Division:
    kept = {name: HeldReplicas(count, 0, 0) for name, count in (held or {}).items()}
    return divide_whole(
        Situation(
            replicas=replicas,
            policy=read_policy(placement_policy(tiers=OWN_FIRST, limits=list(limits))),
            clusters=[joined_cluster(name, name.partition("-")[0]) for name in NAMES],
            held=kept,
            room=lambda name, node_groups: rooms.get(name, make_room(0)) if not node_groups else make_room(0),
            settled=more.pop("settled", True),
            age_ms={},
            whole="StatefulSet",
            listed=frozenset(more.pop("listed", kept)),
            **more,
        )
    )


DIVISIONS: dict[str, tuple[Division, dict[str, int], int]] = {
    "the most room": (divide_whole_workload(3, {"own-1": make_room(4), "own-2": make_room(5)}), {"own-2": 3}, 0),
    "a tie goes by name": (divide_whole_workload(3, {"own-1": make_room(5), "own-2": make_room(5)}), {"own-1": 3}, 0),
    "the first tier that takes all": (
        divide_whole_workload(5, {"own-1": make_room(4), "cloud-1": make_room(9)}),
        {"cloud-1": 5},
        0,
    ),
    "nowhere whole": (divide_whole_workload(5, {name: make_room(4) for name in NAMES}), {}, 5),
    "a maximum": (
        divide_whole_workload(
            3, {"own-1": make_room(9), "own-2": make_room(4)}, limits=[{"cluster": "own-1", "max": 2}]
        ),
        {"own-2": 3},
        0,
    ),
    "the cluster of the minimum, or none": (
        divide_whole_workload(
            3, {"own-1": make_room(9), "own-2": make_room(2)}, limits=[{"cluster": "own-2", "min": 1}]
        ),
        {},
        3,
    ),
    "growing where it is": (
        divide_whole_workload(5, {"own-1": make_room(2), "own-2": make_room(9)}, {"own-1": 3}),
        {"own-1": 5},
        0,
    ),
    "what does not fit there waits": (
        divide_whole_workload(7, {"own-1": make_room(2), "own-2": make_room(9)}, {"own-1": 3}),
        {"own-1": 5},
        2,
    ),
    "fewer": (divide_whole_workload(2, {}, {"own-1": 3}), {"own-1": 2}, 0),
    "a cluster that may still have it": (divide_whole_workload(3, {"own-2": make_room(9)}, listed=["own-1"]), {}, 3),
    "and takes it again": (divide_whole_workload(3, {"own-1": make_room(3)}, listed=["own-1"]), {"own-1": 3}, 0),
    "not in part": (divide_whole_workload(3, {"own-1": make_room(2)}, listed=["own-1"]), {}, 3),
    "what is to go elsewhere does not grow": (
        divide_whole_workload(
            4, {"own-1": make_room(9), "own-2": make_room(9)}, {"own-1": 3}, reasons={"own-1": "Lost"}
        ),
        {"own-1": 3},
        1,
    ),
}


@pytest.mark.parametrize(("division", "replicas", "unplaced"), DIVISIONS.values(), ids=DIVISIONS)
def test_all_or_none(division: Division, replicas: dict[str, int], unplaced: int) -> None:
    assert ({name: count for name, count in division.replicas.items() if count}, division.unplaced) == (
        replicas,
        unplaced,
    )


def test_what_is_only_possible_waits_for_binds_and_then_is_not_there() -> None:
    rooms = {"own-1": make_room(2, 6), "cloud-1": make_room(9)}
    waits = divide_whole_workload(5, rooms, settled=False)
    assert (waits.unplaced, waits.uncertain) == (5, 5)
    assert divide_whole_workload(5, rooms).replicas == {"cloud-1": 5}


def test_what_it_waits_for_is_said() -> None:
    nowhere = divide_whole_workload(5, {"own-1": make_room(4)})
    assert nowhere.waiting_text().startswith(
        "a StatefulSet goes whole to one cluster (own-1: cpu (1 node); own-2: cpu (1 node)"
    )
    at_home = divide_whole_workload(5, {"own-2": make_room(9)}, {"own-1": 3})
    assert at_home.waiting_text().startswith("a StatefulSet goes whole to one cluster and is in own-1 (")


# ── Requests ────────────────────────────────────────────────────────────────────────────────────────────────────


def fleet_of_three() -> Fleet:
    """own-1 takes 4, own-2 takes 3, cloud-1 takes 8."""
    return Fleet(own_1=[node_row("a")], own_2=[node_row("b", 3000)], cloud_1=[node_row("c", 8000)])


def apply_events(fleet: Fleet, events: tuple[Event | Tombstone, ...]) -> None:
    for event in events:
        assert not isinstance(event, Tombstone)
        fleet.state.apply_event(event, fleet.now)


def apply_manifests(fleet: Fleet, *manifests: dict[str, Any]) -> PlacementReply:
    decided = decisions.decide_apply(fleet.state, ApplyRequest(manifest_texts(*manifests), ""), fleet.next_moment())
    apply_events(fleet, decided.events)
    return decided.reply


def scale_workload(fleet: Fleet, replicas: int, name: str = "db") -> PlacementReply:
    decided = decisions.decide_scale(fleet.state, ScaleRequest("", name, replicas, ""), fleet.next_moment())
    apply_events(fleet, decided.events)
    return decided.reply


def parts_by_cluster(fleet: Fleet, name: str = "db") -> dict[str, Part]:
    return fleet.state.workloads["default", name].parts


def placed_by_cluster(reply: PlacementReply) -> dict[str, int]:
    return {part.cluster: part.replicas for part in reply.parts}


def policy_with_limits(**bounds: dict[str, int]) -> dict[str, Any]:
    return placement_policy(
        tiers=OWN_FIRST, limits=[{"cluster": name.replace("_", "-")} | of for name, of in bounds.items()]
    )


CONTRADICTIONS = {
    "two minima": (policy_with_limits(own_1={"min": 1}, own_2={"min": 1}), "minima in own-1 and own-2"),
    "a maximum everywhere": (
        policy_with_limits(own_1={"max": 2}, own_2={"max": 2}, cloud_1={"max": 1}),
        "may have all 3",
    ),
    "a minimum where the maximum is too low": (policy_with_limits(own_1={"min": 1, "max": 2}), "may have all 3"),
}


@pytest.mark.parametrize(("rules", "message"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
@pytest.mark.parametrize("manifest", [statefulset(3), job(3)], ids=["StatefulSet", "Job"])
def test_a_policy_that_would_split_it_is_refused(manifest: dict[str, Any], rules: Any, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        apply_manifests(fleet_of_three(), manifest, rules)
    assert caught.value.code == "INVALID_ARGUMENT"
    assert message in caught.value.text
    assert f"a {manifest['kind']} goes whole to one cluster" in caught.value.text


def test_placed_whole_and_refused_when_the_policy_says_so() -> None:
    assert placed_by_cluster(apply_manifests(fleet_of_three(), statefulset(4), placement_policy(tiers=OWN_FIRST))) == {
        "own-1": 4
    }
    assert placed_by_cluster(apply_manifests(fleet_of_three(), statefulset(6), placement_policy(tiers=OWN_FIRST))) == {
        "cloud-1": 6
    }
    fleet = fleet_of_three()
    waits = apply_manifests(fleet, statefulset(9), placement_policy(tiers=OWN_FIRST))
    assert (placed_by_cluster(waits), waits.unplaced) == ({}, 9)
    with pytest.raises(RequestError) as caught:
        apply_manifests(fleet_of_three(), statefulset(9), placement_policy(tiers=OWN_FIRST, unplaceable="Refuse"))
    assert caught.value.code == "FAILED_PRECONDITION"


LABELS = {"app": "web", "tier": "x"}
TWO_LABELS, OF_BOTH = pod_template(labels=LABELS), {"matchLabels": LABELS}
REFUSED: dict[str, tuple[dict[str, Any], tuple[dict[str, Any], ...], str]] = {
    "another kind": (deployment(2, "db"), (statefulset(2),), "it is a Deployment: expected the same kind"),
    "a fixed field": (statefulset(2), (statefulset(2) | {"spec": statefulset(2)["spec"] | {"serviceName": "x"}},),
                      "StatefulSet.spec.serviceName cannot be changed"),
    "a Deployment's selector": (deployment(2, "db"), (deployment(2, "db", TWO_LABELS, selector=OF_BOTH),),
                                "workload default/db: Deployment.spec.selector cannot be changed in a cluster"),
    "a Job's template": (job(2, "db"), (job(2, "db", pod_template(restartPolicy="OnFailure")),),
                         "Job.spec.template cannot be changed"),
    "a policy without its cluster": (statefulset(2), (statefulset(2), placement_policy(tiers=OWN_FIRST[1:])),
                                     "rules out cluster own-1, where the StatefulSet runs"),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_change_must_be_deleted_first(before: Any, after: Any, message: str) -> None:
    fleet = Fleet(own_1=[node_row("a")], cloud_1=[node_row("c")])
    apply_manifests(fleet, before)
    with pytest.raises(RequestError) as caught:
        apply_manifests(fleet, *after)
    assert caught.value.code == "FAILED_PRECONDITION"
    assert message in caught.value.text


def test_a_selector_that_a_cluster_would_take_is_taken() -> None:
    """An empty part of it is none; and where no cluster has the object it may be another one."""
    fleet = Fleet(own_1=[node_row("a")])
    labels = {"matchLabels": {"app": "web"}}
    apply_manifests(fleet, deployment(2, selector=labels))
    assert placed_by_cluster(apply_manifests(fleet, deployment(3, selector=labels | {"matchExpressions": []}))) == {
        "own-1": 3
    }
    assert apply_manifests(fleet, deployment(99, selector=labels)).unplaced
    waits = apply_manifests(fleet, deployment(2, "late", selector=labels))
    assert (placed_by_cluster(waits), waits.unplaced) == ({}, 2)
    other = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}
    assert apply_manifests(fleet, deployment(2, "late", selector=other)).unplaced == 2


def test_a_job_is_not_scaled_but_applied() -> None:
    fleet = fleet_of_three()
    apply_manifests(fleet, job(2))
    with pytest.raises(RequestError) as caught:
        scale_workload(fleet, 3, "sum")
    assert (caught.value.code, "a Job cannot be scaled" in caught.value.text) == ("FAILED_PRECONDITION", True)
    assert placed_by_cluster(apply_manifests(fleet, job(3))) == {"own-1": 3}


def test_scale_out_stays_and_waits() -> None:
    fleet = fleet_of_three()
    apply_manifests(fleet, statefulset(2), placement_policy(tiers=OWN_FIRST))
    reply = scale_workload(fleet, 7)
    assert (placed_by_cluster(reply), reply.unplaced) == ({"own-1": 4}, 3)
    assert "is in own-1" in reply.waiting_for


def test_a_statefulset_of_none_stays_where_it_was() -> None:
    """Its object is not deleted, and asked for again it is there again, though another cluster has more room."""
    fleet = fleet_of_three()
    apply_manifests(fleet, statefulset(2), placement_policy(tiers=OWN_FIRST))
    assert placed_by_cluster(scale_workload(fleet, 0)) == {"own-1": 0}
    part = parts_by_cluster(fleet)["own-1"]
    assert (part.replicas, part.removing) == (0, False)
    apply_manifests(fleet, statefulset(0), placement_policy(tiers=OWN_FIRST))
    assert not parts_by_cluster(fleet)["own-1"].removing
    assert placed_by_cluster(scale_workload(fleet, 2)) == {"own-1": 2}
    apply_events(fleet, decisions.decide_delete(fleet.state, DeleteRequest("", "db"), fleet.next_moment()).events)
    assert parts_by_cluster(fleet)["own-1"].removing


# ── After the placement ─────────────────────────────────────────────────────────────────────────────────────────


def drain_and_move(fleet: Fleet, cluster: str, phase: str = PHASE_DRAINING) -> ClusterMovesReply:
    set_to = membership.set_phase(fleet.state, SetClusterPhaseRequest(cluster, phase), fleet.next_moment())
    apply_events(fleet, set_to.events)
    for workload in moves.workloads_due_to_move(fleet.state, fleet.now, UnlimitedAllowance()):
        apply_events(
            fleet, moves.next_move_step(fleet.state, workload, fleet.next_moment(), UnlimitedAllowance()).events
        )
    return set_to.reply


def test_a_drained_cluster_keeps_it_and_says_for_whom_it_waits() -> None:
    fleet = fleet_of_three()
    apply_manifests(fleet, statefulset(2))
    where = next(iter(parts_by_cluster(fleet)))
    reply = drain_and_move(fleet, where)
    assert (reply.replicas, reply.confirm) == (0, "")
    placement = fleet.state.workloads[DB].placement
    assert placement is not None
    assert placement.waiting_for == (
        f"held: 2 replicas kept in {where} wait for a person: a StatefulSet does not move by itself"
    )
    assert parts_by_cluster(fleet)[where].replicas == 2
    drain_and_move(fleet, where, PHASE_ACTIVE)
    placement = fleet.state.workloads[DB].placement
    assert placement is not None
    assert placement.waiting_for == ""


def test_a_cluster_that_is_to_leave_says_that_an_empty_statefulset_keeps_it() -> None:
    """Its volumes might go with its object: a person deletes it."""
    fleet = fleet_of_three()
    apply_manifests(fleet, statefulset(2), placement_policy(tiers=OWN_FIRST))
    scale_workload(fleet, 0)
    drain_and_move(fleet, "own-1")
    assert waiting_reason(fleet) == "", "a drain moves what runs"
    drain_and_move(fleet, "own-1", PHASE_LEAVING)
    waits = "held: the object in own-1, of no replicas, waits for a person: a StatefulSet does not move by itself"
    assert waiting_reason(fleet) == waits
    assert not parts_by_cluster(fleet)["own-1"].removing
    drain_and_move(fleet, "own-1", PHASE_ACTIVE)
    assert waiting_reason(fleet) == ""
    drain_and_move(fleet, "own-1", PHASE_LEAVING)
    apply_events(fleet, decisions.decide_delete(fleet.state, DeleteRequest("", "db"), fleet.next_moment()).events)
    assert parts_by_cluster(fleet)["own-1"].removing


def waiting_reason(fleet: Fleet) -> str:
    placement = fleet.state.workloads[DB].placement
    assert placement is not None
    return placement.waiting_for


def pass_time(fleet: Fleet, seconds: float) -> None:
    fleet.now += seconds
    fleet.send_heartbeats()
    aftermath.update_progress_timers(fleet.state, fleet.now)


def take_back_due(fleet: Fleet) -> bool:
    """Whether anything was due."""
    due = list(aftermath.workloads_to_take_back(fleet.state, fleet.next_moment()))
    for workload, counts in due:
        aftermath.hold_clusters(fleet.state, workload, counts, fleet.now)
        apply_events(fleet, placing.take_back_replicas(fleet.state, workload, counts, fleet.next_moment()).events)
    return bool(due)


def retry_waiting_workloads(fleet: Fleet) -> None:
    for workload in aftermath.next_waiting_workloads(fleet.state, fleet.now):
        apply_events(fleet, aftermath.retry_waiting_workload(fleet.state, workload, fleet.next_moment()).events)


def test_with_pods_bound_nothing_is_taken_back() -> None:
    fleet = fleet_of_three()
    apply_manifests(fleet, statefulset(3), placement_policy(tiers=OWN_FIRST))
    shown = workload_facts(parts_by_cluster(fleet)["own-1"].version, 1, name="db", status=3, spec=3)
    fleet.report_change("own-1", shown=[shown])
    pass_time(fleet, 0)
    pass_time(fleet, 60)
    assert not take_back_due(fleet)
    assert {name: part.replicas for name, part in parts_by_cluster(fleet).items()} == {"own-1": 3}


def test_with_none_bound_it_goes_elsewhere_once_its_cluster_says_absent() -> None:
    fleet = fleet_of_three()
    apply_manifests(fleet, statefulset(3), placement_policy(tiers=OWN_FIRST))
    shown = workload_facts(parts_by_cluster(fleet)["own-1"].version, name="db", status=3, spec=3)
    fleet.report_change("own-1", shown=[shown])
    pass_time(fleet, 0)
    pass_time(fleet, 60)
    assert take_back_due(fleet)
    retry_waiting_workloads(fleet)
    assert {name: (part.replicas, part.removing) for name, part in parts_by_cluster(fleet).items()} == {
        "own-1": (0, True)
    }
    assert "own-1 may still hold it" in fleet.state.workloads[DB].placement.waiting_for  # type: ignore[union-attr]
    fleet.report_change("own-1", facts_removed=[DB])
    fleet.state.apply_event(
        workload_observed("own-1", DB, parts_by_cluster(fleet)["own-1"].version, "Absent"), fleet.now
    )
    apply_events(fleet, aftermath.settle_workload(fleet.state, DB, fleet.next_moment()).events)
    retry_waiting_workloads(fleet)
    assert {name: part.replicas for name, part in parts_by_cluster(fleet).items()} == {"own-2": 3}


@pytest.mark.parametrize(
    ("shown", "completions", "free"),
    [
        (None, 9, 4),
        (workload_facts(NO_GENERATION, 1, spec=4), 9, 3),
        (workload_facts(V, 2), 9, 2),
        (workload_facts(V, 2, succeeded=6), 9, 1),
        (workload_facts(V, 2, succeeded=8), 9, 0),
        (workload_facts(V, 2, succeeded=8), None, 2),
        (workload_facts(V, 1, succeeded=3, ended="Failed"), 9, 0),
        (workload_facts(V, ended="Suspended"), 9, 0),
        (workload_facts(V, succeeded=9, ended="Complete"), 9, 0),
        (workload_facts(Generation(9, 0), succeeded=9, ended="Complete"), 9, 4),
    ],
)
def test_what_is_reserved_for_a_job(shown: WorkloadFacts | None, completions: int | None, free: int) -> None:
    part = Part("own-1", V, 4, 0, 4, False)
    assert compute_reservation(part, shown, ONE_POD, (), 0, completions).free == free


def test_nothing_is_held_for_a_job_that_ended_and_is_gone() -> None:
    fleet = fleet_of_three()
    apply_manifests(fleet, job(3))
    key, version = ("default", "sum"), parts_by_cluster(fleet, "sum")["own-1"].version
    assert fleet.state.reservation_of(key, "own-1").free == 3
    fleet.state.apply_event(workload_observed("own-1", key, version, STATE_ENDED), fleet.now)
    assert fleet.state.reservation_of(key, "own-1").free == 0
    fleet.state.apply_event(workload_observed("own-1", key, version, STATE_PRESENT, 2), fleet.now)
    assert fleet.state.reservation_of(key, "own-1").free == 3


def test_a_job_that_began_is_not_taken_back() -> None:
    fleet = fleet_of_three()
    apply_manifests(fleet, job(3, completions=9), placement_policy(tiers=OWN_FIRST))
    version = parts_by_cluster(fleet, "sum")["own-1"].version
    fleet.report_change("own-1", shown=[workload_facts(version, name="sum", status=3, spec=3, succeeded=1)])
    pass_time(fleet, 0)
    pass_time(fleet, 60)
    assert not take_back_due(fleet)


# ── Always ──────────────────────────────────────────────────────────────────────────────────────────────────────


STEPS = st.one_of(
    st.tuples(st.just("scale"), st.integers(0, 9)),
    st.tuples(st.just("apply"), st.integers(0, 9)),
    st.tuples(st.just("lost"), st.sampled_from(NAMES)),
    st.tuples(st.just("back"), st.sampled_from(NAMES)),
    st.tuples(st.just("bound"), st.integers(0, 9)),
    st.tuples(st.just("absent"), st.sampled_from(NAMES)),
    st.tuples(st.just("wait"), st.integers(1, 400)),
    st.tuples(st.just("delete"), st.just(0)),
)


class Played:
    """A StatefulSet in a fleet, and what each member may have of it: what it was told last, until it says absent."""

    def __init__(self) -> None:
        self.fleet = fleet_of_three()
        self.silent: set[str] = set()
        self.may_have: dict[str, int] = {}
        self.said = 0
        self.memory = RoundMemory(PlannerSettings().headroom_pace())

    def take_story_step(self, what: str, value: Any) -> None:
        fleet = self.fleet
        try:
            match what:
                case "scale":
                    scale_workload(fleet, value)
                case "apply":
                    apply_manifests(
                        fleet, statefulset(value), placement_policy(tiers=OWN_FIRST, onClusterLoss={"after": "30s"})
                    )
                case "delete":
                    apply_events(
                        fleet,
                        decisions.decide_delete(fleet.state, DeleteRequest("", "db", ""), fleet.next_moment()).events,
                    )
        except RequestError:
            return
        if what == "lost":
            self.silent.add(value)
        elif what == "back":
            self.silent.discard(value)
        elif what in ("bound", "absent"):
            self.report_member(what, value)
        elif what == "wait":
            fleet.now += value
        self.run_planner_round()

    def report_member(self, what: str, value: Any) -> None:
        fleet = self.fleet
        for name, part in self.parts_by_cluster().items():
            if name in self.silent:
                continue
            if what == "bound" and not part.removing:
                count = min(value, part.replicas)
                shown = workload_facts(part.version, *([count] if count else ()), name="db", status=part.replicas)
                fleet.report_change(name, shown=[shown])
            elif what == "absent" and part.removing and name == value:
                fleet.report_change(name, facts_removed=[DB])
                self.said += 1
                fleet.state.apply_event(workload_observed(name, DB, part.version, "Absent"), fleet.now)
                self.may_have.pop(name, None)

    def run_planner_round(self) -> None:
        fleet, state = self.fleet, self.fleet.state
        for name in NAMES:
            fleet.report_change(name, age_ms=0, trouble="timeout: no answer" if name in self.silent else "")
        for step in steps_of_round(state, self.memory, fleet.decision_clock()):
            if not any(isinstance(event, Tombstone) for event in step.events):
                apply_events(fleet, tuple(step.events))
        for name, part in self.parts_by_cluster().items():
            if part.replicas:
                self.may_have[name] = part.replicas

    def parts_by_cluster(self) -> dict[str, Part]:
        known = self.fleet.state.workloads.get(DB)
        return known.parts if known is not None else {}


@given(st.lists(STEPS, max_size=40))
def test_never_are_two_clusters_told_to_hold_one_statefulset(steps: list[tuple[str, Any]]) -> None:
    """Whatever is lost, returns, does not bind or is deleted: who was told stays the only one until it says absent."""
    played = Played()
    played.take_story_step("apply", 3)
    for what, value in steps:
        played.take_story_step(what, value)
        assert len(played.may_have) <= 1, played.parts_by_cluster()
        known = played.fleet.state.workloads[DB]
        kept = sum(part.replicas_kept for part in known.parts.values())
        assert kept <= known.declared.replicas
        assert kept + known.unplaced == known.declared.replicas or known.declared.deleting
