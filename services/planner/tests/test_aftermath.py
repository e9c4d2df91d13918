"""After the placement: taking back, holding, trying again, settling, forgetting (P6, P7)."""

from dataclasses import replace
from typing import Any

import pytest

from planner.core.background import aftermath, moves
from planner.core.division.words import limit_text
from planner.core.knowledge.allowance import UnlimitedAllowance
from planner.core.placement import placing
from planner.core.placement.misplaced import may_use_cluster
from planner.core.requests import decisions
from spillway.addresses import Tombstone
from spillway.api import ApplyRequest, DeleteRequest, RequestError, ScaleRequest
from spillway.events import (
    STATE_ABSENT,
    STATE_NOT_OWNED,
    STATE_ORPHANED,
    STATE_PRESENT,
    PodsUnschedulable,
    WorkloadObserved,
)
from spillway.feasibility.fit import compute_fit
from spillway.model import Generation

from .builders import (
    Fleet,
    apply_to_fleet,
    container_spec,
    deployment,
    joined_cluster,
    manifest_texts,
    node_group,
    node_row,
    placement_policy,
    pod_template,
    workload_facts,
)
from .member import workload_observed

WEB = ("default", "web")


def apply_workload(fleet: Fleet, replicas: int, name: str = "web", **spec: Any) -> None:
    request = ApplyRequest(manifest_texts(deployment(replicas, name, **spec)))
    apply_to_fleet(fleet, decisions.decide_apply(fleet.state, request, fleet.next_moment()).events)


def scale_workload(fleet: Fleet, replicas: int, name: str = "web") -> None:
    apply_to_fleet(
        fleet, decisions.decide_scale(fleet.state, ScaleRequest("", name, replicas), fleet.next_moment()).events
    )


def kept_by_cluster(fleet: Fleet, name: str = "web") -> dict[str, int]:
    """Kept, by cluster."""
    return {cluster: part.replicas_kept for cluster, part in fleet.state.workloads["default", name].parts.items()}


def version_of_part(fleet: Fleet, name: str = "own-1") -> Generation:
    return fleet.state.workloads[WEB].parts[name].version


def report_bound_pods(fleet: Fleet, *counted: int, cluster: str = "own-1", **more: Any) -> None:
    fleet.report_change(cluster, shown=(workload_facts(version_of_part(fleet, cluster), *counted, **more),))


def status_with_available(cluster: str, version: Generation, replicas: int, available: int) -> WorkloadObserved:
    figures = (replicas, replicas, replicas, available, available)
    return WorkloadObserved(*WEB, cluster, 3, 2, version, STATE_PRESENT, "", *figures)


def take_back_due(fleet: Fleet, seconds: float = 0.0, beat: bool = True) -> dict[str, int]:
    """Time passes, clusters are heard, and what is due is taken back. Returns how many, by cluster."""
    fleet.now += seconds
    if beat:
        fleet.send_heartbeats()
    aftermath.update_progress_timers(fleet.state, fleet.now)
    taken: dict[str, int] = {}
    for workload, by_cluster in list(aftermath.workloads_to_take_back(fleet.state, fleet.next_moment())):
        aftermath.hold_clusters(fleet.state, workload, by_cluster, fleet.now)
        apply_to_fleet(fleet, placing.take_back_replicas(fleet.state, workload, by_cluster, fleet.next_moment()).events)
        taken |= by_cluster
    return taken


def retry_waiting_workloads(fleet: Fleet) -> list[str]:
    """The workloads that were tried again."""
    tried = []
    for workload in aftermath.next_waiting_workloads(fleet.state, fleet.now):
        apply_to_fleet(fleet, aftermath.retry_waiting_workload(fleet.state, workload, fleet.next_moment()).events)
        tried.append(workload.workload_key[1])
    return tried


@pytest.fixture
def fleet() -> Fleet:
    """Eight cores of one's own, 8 in the cloud; web has 6 at home, of which 4 are bound."""
    fleet = Fleet(own_1=[node_row("a"), node_row("b")], cloud_1=[node_row("c", 8000)])
    apply_workload(fleet, 6)
    fleet.report_change(
        "own-1",
        [node_row("a", used=4000)],
        shown=(workload_facts(version_of_part(fleet), 4, spec=6, status=6, updated=6),),
    )
    take_back_due(fleet)
    return fleet


# ── Taking back ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_does_not_bind_is_taken_back_after_15_seconds_and_not_before(fleet: Fleet) -> None:
    assert take_back_due(fleet, 14.9) == {}
    assert take_back_due(fleet, 0.1) == {"own-1": 2}
    assert kept_by_cluster(fleet) == {"own-1": 4, "cloud-1": 2}


def test_what_is_taken_back_leaves_when_what_replaces_it_is_available(fleet: Fleet) -> None:
    """Seed 729: it may have bound by the time that its cluster hears of it."""
    began = version_of_part(fleet)
    take_back_due(fleet, 15)
    leaving = fleet.state.workloads[WEB].parts["own-1"]
    assert (leaving.version, leaving.replicas, leaving.replicas_leaving) == (began, 6, 2)
    assert take_back_due(fleet, 60) == {}
    fleet.state.apply_event(status_with_available("own-1", began, 6, 4), fleet.now)
    assert moves.workloads_due_to_move(fleet.state, fleet.now, UnlimitedAllowance()) == []
    fleet.state.apply_event(status_with_available("cloud-1", version_of_part(fleet, "cloud-1"), 2, 2), fleet.now)
    for workload in moves.workloads_due_to_move(fleet.state, fleet.now, UnlimitedAllowance()):
        apply_to_fleet(
            fleet, moves.next_move_step(fleet.state, workload, fleet.next_moment(), UnlimitedAllowance()).events
        )
    settled = fleet.state.workloads[WEB].parts["own-1"]
    assert (settled.replicas, settled.replicas_leaving) == (4, 0)


def test_what_was_taken_back_is_kept_again_where_it_bound_after_all() -> None:
    fleet = Fleet(own_1=[node_row("a"), node_row("b")])
    apply_workload(fleet, 6)
    report_bound_pods(fleet, 4, spec=6, status=6, updated=6)
    take_back_due(fleet)
    assert take_back_due(fleet, 15) == {"own-1": 2}
    assert fleet.state.workloads[WEB].unplaced == 2
    retry_waiting_workloads(fleet)
    assert fleet.state.workloads[WEB].unplaced == 2  # It does not run there: that is no place for it.
    report_bound_pods(fleet, 6, spec=6, status=6, updated=6)
    take_back_due(fleet, 60)
    retry_waiting_workloads(fleet)
    part = fleet.state.workloads[WEB].parts["own-1"]
    assert (part.replicas_kept, part.replicas_leaving, fleet.state.workloads[WEB].unplaced) == (6, 0, 0)


def test_it_is_not_taken_back_where_the_cluster_is_not_fresh(fleet: Fleet) -> None:
    assert take_back_due(fleet, 40, beat=False) == {}
    assert take_back_due(fleet) == {"own-1": 2}


def test_it_is_not_taken_back_where_our_own_part_was_not_carried_out(fleet: Fleet) -> None:
    scale_workload(fleet, 7)
    assert take_back_due(fleet) == {}
    assert take_back_due(fleet, 60) == {}


def test_the_take_back_time_begins_when_our_part_was_carried_out(fleet: Fleet) -> None:
    scale_workload(fleet, 7)
    take_back_due(fleet, 60)
    report_bound_pods(fleet, 4, spec=7, status=7, updated=7)
    assert take_back_due(fleet) == {}
    assert take_back_due(fleet, 14.9) == {}
    assert take_back_due(fleet, 0.1) == {"own-1": 3}


def test_a_bind_starts_the_time_again(fleet: Fleet) -> None:
    take_back_due(fleet, 10)
    report_bound_pods(fleet, 5, spec=6, status=6, updated=6)
    assert take_back_due(fleet, 10) == {}
    assert take_back_due(fleet, 15) == {"own-1": 1}


def test_what_the_cluster_refuses_is_taken_back() -> None:
    fleet = Fleet(own_1=[node_row("a")], cloud_1=[node_row("c")])
    apply_workload(fleet, 3)
    fleet.state.apply_event(workload_observed("own-1", WEB, version_of_part(fleet), STATE_NOT_OWNED), fleet.now)
    take_back_due(fleet)
    assert take_back_due(fleet, 15) == {"own-1": 3}
    assert kept_by_cluster(fleet) == {"own-1": 0, "cloud-1": 3}


def test_an_object_that_is_only_reported_as_there_does_not_yet_block() -> None:
    fleet = Fleet(own_1=[node_row("a")], cloud_1=[node_row("c")])
    apply_workload(fleet, 3)
    fleet.state.apply_event(workload_observed("own-1", WEB, version_of_part(fleet), STATE_PRESENT), fleet.now)
    take_back_due(fleet)
    assert take_back_due(fleet, 60) == {}


def test_what_waits_for_new_nodes_has_their_lead_time_too() -> None:
    fleet = Fleet()
    fleet.join_cluster(joined_cluster("c", "cloud", (node_group(lead=120),)), [])
    fleet.join_cluster(joined_cluster("d", "cloud"), [])
    apply_workload(fleet, 3)
    fleet.report_change("c", shown=(workload_facts(version_of_part(fleet, "c"), spec=3, status=3, updated=3),))
    take_back_due(fleet)
    assert take_back_due(fleet, 134) == {}
    assert take_back_due(fleet, 1) == {"c": 3}


def test_a_surge_that_does_not_come_takes_no_running_replica_back(fleet: Fleet) -> None:
    """While templates roll, or a rollout is paused, only the surge is missing: all replicas are bound."""
    report_bound_pods(fleet, 6)
    apply_workload(fleet, 6, pod=pod_template(container_spec(cpu="500m")), paused=True)
    report_bound_pods(fleet, 6, updated=0)
    assert fleet.state.reservation_of(WEB, "own-1").free == 2
    take_back_due(fleet)
    assert take_back_due(fleet, 60) == {}


def test_what_was_taken_back_does_not_come_back_while_the_cluster_is_held(fleet: Fleet) -> None:
    take_back_due(fleet, 15)
    scale_workload(fleet, 8)
    assert kept_by_cluster(fleet) == {"own-1": 4, "cloud-1": 4}


def test_a_hold_ends(fleet: Fleet) -> None:
    take_back_due(fleet, 15)
    report_bound_pods(fleet, 4, spec=4)
    take_back_due(fleet, 15)
    scale_workload(fleet, 7)
    assert kept_by_cluster(fleet) == {"own-1": 5, "cloud-1": 2}


def test_each_hold_is_twice_as_long_up_to_a_most(fleet: Fleet) -> None:
    workload = fleet.state.workloads[WEB]
    seconds = []
    for _ in range(7):
        aftermath.hold_clusters(fleet.state, workload, ["own-1"], fleet.now)
        seconds.append(fleet.state.holds["own-1", workload.workload_key].seconds)
    assert seconds == [15, 30, 60, 120, 240, 300, 300]


def test_a_planner_that_takes_the_turn_knows_of_no_hold_and_tries_there_once(fleet: Fleet) -> None:
    """A hold is in no record. What binds elsewhere stays there."""
    take_back_due(fleet, 15)
    report_bound_pods(fleet, 4, spec=4)
    fleet.state.holds.clear()
    scale_workload(fleet, 7)
    assert kept_by_cluster(fleet) == {"own-1": 5, "cloud-1": 2}
    report_bound_pods(fleet, 4, spec=5, status=5, updated=5)
    take_back_due(fleet)
    assert take_back_due(fleet, 15) == {"own-1": 1}
    assert kept_by_cluster(fleet) == {"own-1": 4, "cloud-1": 3}
    assert [hold.seconds for hold in fleet.state.holds.values()] == [15]


def test_where_somebody_else_has_the_name_a_hold_is_long_and_names_it(fleet: Fleet) -> None:
    workload = fleet.state.workloads[WEB]
    said = replace(
        workload_observed("own-1", WEB, version_of_part(fleet), STATE_NOT_OWNED), message="Deployment web is theirs"
    )
    fleet.state.apply_event(said, fleet.now)
    seconds = []
    for _ in range(6):
        aftermath.hold_clusters(fleet.state, workload, ["own-1"], fleet.now)
        seconds.append(fleet.state.holds["own-1", workload.workload_key].seconds)
    assert seconds == [300, 600, 1200, 2400, 3600, 3600]
    closed = fleet.state.room_in_cluster(
        "own-1", workload.replica_shape, False, fleet.now, workload.workload_key
    ).limited_by
    assert (
        limit_text(closed)
        == "held for 3600 s more: replicas of this workload were taken back: Deployment web is theirs"
    )


def test_once_all_are_bound_the_next_hold_is_short_again(fleet: Fleet) -> None:
    workload = fleet.state.workloads[WEB]
    for _ in range(3):
        aftermath.hold_clusters(fleet.state, workload, ["own-1"], fleet.now)
    take_back_due(fleet)
    report_bound_pods(fleet, 6)
    take_back_due(fleet)
    assert not fleet.state.holds


def report_unschedulable_pods(fleet: Fleet, name: str = "own-1") -> None:
    fleet.state.apply_event(PodsUnschedulable(name, "default/web", 7, 1, "default/web", 6, "0/2 nodes"), fleet.now)


def test_what_the_scheduler_cannot_place_is_held_for_every_workload_of_the_shape(fleet: Fleet) -> None:
    report_unschedulable_pods(fleet)
    take_back_due(fleet, 15)
    apply_workload(fleet, 2, "api")
    assert kept_by_cluster(fleet, "api") == {"cloud-1": 2}


def test_what_something_else_keeps_out_is_held_for_that_workload_alone(fleet: Fleet) -> None:
    """A quota, a foreign object, a missing Secret say nothing about others of the same shape."""
    take_back_due(fleet, 15)
    apply_workload(fleet, 2, "api")
    assert kept_by_cluster(fleet, "api") == {"own-1": 2}


def test_a_hold_is_about_one_shape(fleet: Fleet) -> None:
    report_unschedulable_pods(fleet)
    take_back_due(fleet, 15)
    apply_workload(fleet, 2, "api", pod=pod_template(container_spec(cpu="500m")))
    assert kept_by_cluster(fleet, "api") == {"own-1": 2}


def test_what_is_being_removed_is_not_taken_back(fleet: Fleet) -> None:
    apply_to_fleet(fleet, decisions.decide_delete(fleet.state, DeleteRequest("", "web"), fleet.next_moment()).events)
    report_bound_pods(fleet, 4)
    assert take_back_due(fleet, 60) == {}


# ── Waiting ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def full() -> Fleet:
    """Web wants 6 and has 4."""
    fleet = Fleet(own_1=[node_row("a")])
    apply_workload(fleet, 6)
    report_bound_pods(fleet, 4, spec=4)
    fleet.report_change("own-1", [node_row("a", used=4000)])
    take_back_due(fleet)
    retry_waiting_workloads(fleet)
    fleet.now += 60
    fleet.send_heartbeats()
    retry_waiting_workloads(fleet)
    return fleet


def test_what_waits_is_placed_when_room_comes_up(full: Fleet) -> None:
    full.report_change("own-1", [node_row("b")])
    assert retry_waiting_workloads(full) == ["web"]
    assert kept_by_cluster(full) == {"own-1": 6}
    assert retry_waiting_workloads(full) == []


def test_what_waits_is_not_tried_again_while_nothing_changes(full: Fleet) -> None:
    full.now += 5
    full.send_heartbeats()
    assert retry_waiting_workloads(full) == []


def test_what_waits_is_placed_when_a_cluster_is_fresh_again() -> None:
    fleet = Fleet(own_1=[node_row("a")])
    take_back_due(fleet, 40, beat=False)
    apply_workload(fleet, 2)
    assert retry_waiting_workloads(fleet) == ["web"]
    assert kept_by_cluster(fleet) == {}
    take_back_due(fleet)
    assert retry_waiting_workloads(fleet) == ["web"]
    assert kept_by_cluster(fleet) == {"own-1": 2}


@pytest.mark.parametrize("pending", [True, False])
def test_what_waits_is_placed_when_a_hold_is_over(pending: bool) -> None:
    """Of the shape when the scheduler found no node, else of the workload."""
    fleet = Fleet(own_1=[node_row("a")])
    apply_workload(fleet, 1)
    if pending:
        fleet.state.apply_event(PodsUnschedulable("own-1", "default/web", 7, 1, "default/web", 1, "cpu"), fleet.now)
    aftermath.hold_clusters(fleet.state, fleet.state.workloads[WEB], ["own-1"], fleet.now)
    scale_workload(fleet, 2)
    assert retry_waiting_workloads(fleet) == ["web"]
    assert kept_by_cluster(fleet) == {"own-1": 1}
    take_back_due(fleet, 5)
    assert retry_waiting_workloads(fleet) == ["web"]  # Its wait for binds is over.
    take_back_due(fleet, 9)
    assert retry_waiting_workloads(fleet) == []
    take_back_due(fleet, 1)
    assert retry_waiting_workloads(fleet) == ["web"]
    assert kept_by_cluster(fleet) == {"own-1": 2}


def test_all_that_wait_are_tried_though_only_some_in_one_step() -> None:
    fleet = Fleet(own_1=[node_row("a", pods=1)])
    for index in range(120):
        apply_workload(fleet, 2, f"w{index:03}")
    assert [len(retry_waiting_workloads(fleet)) for _ in range(4)] == [50, 50, 20, 0]


def test_shapes_that_look_at_pods_are_not_fitted_again_where_no_node_takes_any(calls_of: Any) -> None:
    """Forty wait in two full clusters, whose nodes change: it is worked out only where a node has room."""
    fleet = Fleet(own_1=[node_row("a", used=4000)], own_2=[node_row("b", used=4000)])
    for index in range(40):
        labels = {"app": f"w{index}"}
        constraint = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
        spread = [constraint | {"labelSelector": {"matchLabels": labels}}]
        pod = pod_template(container_spec(), labels=labels, topologySpreadConstraints=spread)
        apply_workload(fleet, 1, f"w{index}", pod=pod, selector={"matchLabels": labels})
    while retry_waiting_workloads(fleet):
        pass
    with calls_of(compute_fit) as fits:
        for used in (3900, 3600, 3300):
            fleet.report_change("own-1", [node_row("a", used=used)])
            fleet.report_change("own-2", [node_row("b", used=used)])
            assert retry_waiting_workloads(fleet) == []
        assert len(fits) == 0
        fleet.report_change("own-2", [node_row("b", used=1000)])
        assert len(retry_waiting_workloads(fleet)) == 40
    assert len(fits) > 0
    assert any(kept_by_cluster(fleet, f"w{index}") for index in range(40))


def test_only_those_whose_shape_gained_room_are_tried_again() -> None:
    """119 want 4 cores; one wants a GPU, which 1 core more does not give, and one a core, which it does."""
    gpu = {"example.com/gpu": 1}
    fleet = Fleet(own_1=[node_row("a", 8000, used=8000, allocatable=gpu, requested=gpu)])
    for index in range(119):
        apply_workload(fleet, 1, f"big{index:03}", pod=pod_template(container_spec(cpu="4")))
    apply_workload(
        fleet, 1, "gpu", pod=pod_template(container_spec(resources={"requests": {"cpu": "1", "example.com/gpu": "1"}}))
    )
    apply_workload(fleet, 1, "small")
    while retry_waiting_workloads(fleet):
        pass
    fleet.report_change("own-1", [node_row("b", 1000)])
    assert retry_waiting_workloads(fleet) == ["small"]
    assert kept_by_cluster(fleet, "small") == {"own-1": 1}
    assert retry_waiting_workloads(fleet) == []


def test_who_waits_longest_gets_the_room_that_comes_up() -> None:
    fleet = Fleet(own_1=[node_row("a", used=4000)])
    for name in ("first", "second", "third"):
        apply_workload(fleet, 1, name)
    retry_waiting_workloads(fleet)
    fleet.report_change("own-1", [node_row("b", 2000)])
    retry_waiting_workloads(fleet)
    assert [kept_by_cluster(fleet, name) for name in ("first", "second", "third")] == [{"own-1": 1}, {"own-1": 1}, {}]


@pytest.fixture
def uncertain() -> Fleet:
    """An unbound replica of 3 cores fits either of two nodes: one of 1 core leaves it room for sure, two may not."""
    fleet = Fleet(own_1=[node_row("a"), node_row("b")], cloud_1=[node_row("c", 8000)])
    apply_workload(fleet, 1, "big", pod=pod_template(container_spec(cpu="3")))
    apply_workload(fleet, 5)
    return fleet


def test_what_may_fit_waits_for_binds_before_the_next_tier(uncertain: Fleet) -> None:
    waiting = uncertain.state.workloads[WEB]
    assert (kept_by_cluster(uncertain)["own-1"], waiting.unplaced) == (1, 4)
    retry_waiting_workloads(uncertain)
    uncertain.now += 1.9
    retry_waiting_workloads(uncertain)
    assert set(kept_by_cluster(uncertain)) == {"own-1"}
    uncertain.now += 0.1
    retry_waiting_workloads(uncertain)
    assert kept_by_cluster(uncertain) == {"own-1": 1, "cloud-1": 4}


def test_while_any_cluster_binds_who_waits_for_binds_waits_for_15_seconds_at_the_most(uncertain: Fleet) -> None:
    """In a burst a cluster's first bind may come later than 2 s after its promises."""
    retry_waiting_workloads(uncertain)
    began, elsewhere = uncertain.now, uncertain.state.cluster_view("cloud-1")
    for _ in range(9):
        uncertain.now += 1.5
        elsewhere.bound_at = uncertain.now
        retry_waiting_workloads(uncertain)
        assert set(kept_by_cluster(uncertain)) == {"own-1"}
    uncertain.now = began + uncertain.state.rules.bind_wait_max
    elsewhere.bound_at = uncertain.now
    retry_waiting_workloads(uncertain)
    assert kept_by_cluster(uncertain) == {"own-1": 1, "cloud-1": 4}


def test_who_refuses_uses_the_next_tier_too_once_it_has_waited_for_binds(uncertain: Fleet) -> None:
    """An apply and a scale alike: four of five may fit here, the cloud has room for eight for sure."""
    manifests = manifest_texts(deployment(5, "other"), placement_policy(unplaceable="Refuse"))
    patient = replace(uncertain.next_moment(), patient=True)
    with pytest.raises(decisions.UndecidedRequest):
        decisions.decide_apply(uncertain.state, ApplyRequest(manifests), patient)
    reply = decisions.decide_apply(uncertain.state, ApplyRequest(manifests), uncertain.next_moment()).reply
    assert {part.cluster: part.replicas for part in reply.parts} == {"cloud-1": 5}
    one = manifest_texts(deployment(0, "other"), placement_policy(unplaceable="Refuse"))
    for event in decisions.decide_apply(uncertain.state, ApplyRequest(one), uncertain.next_moment()).events:
        uncertain.state.apply_event(event, uncertain.now)
    five = ScaleRequest("", "other", 5)
    with pytest.raises(decisions.UndecidedRequest):
        decisions.decide_scale(uncertain.state, five, patient)
    reply = decisions.decide_scale(uncertain.state, five, uncertain.next_moment()).reply
    assert {part.cluster: part.replicas for part in reply.parts} == {"cloud-1": 5}
    with pytest.raises(RequestError, match="1 of 9 replicas have no place, and the policy says Refuse"):
        decisions.decide_scale(uncertain.state, replace(five, replicas=9), uncertain.next_moment())


def test_who_refuses_takes_certain_room_in_later_tiers_while_it_waits_on(uncertain: Fleet) -> None:
    """Nine: four of them may fit here, eight do in the cloud. What cannot be, whatever binds, is refused at once."""
    nine, five, many = (
        ApplyRequest(manifest_texts(deployment(replicas, "other"), placement_policy(unplaceable="Refuse")))
        for replicas in (9, 5, 20)
    )
    onward = replace(uncertain.next_moment(), patient=True, onward=True)
    with pytest.raises(decisions.UndecidedRequest):
        decisions.decide_apply(uncertain.state, nine, onward)
    with pytest.raises(RequestError, match="of 20 replicas have no place, and the policy says Refuse"):
        decisions.decide_apply(uncertain.state, many, onward)
    reply = decisions.decide_apply(uncertain.state, five, onward).reply
    assert {part.cluster: part.replicas for part in reply.parts} == {"cloud-1": 5}


AWAITED_ROOM = [
    pytest.param("own-1", {}, 0, False, id="no-request-waits"),
    pytest.param("own-1", {"own-1": 0}, 0, True, id="a-request-of-the-same-priority-waits-there"),
    pytest.param("own-1", {"own-1": 5}, 0, True, id="a-request-of-a-higher-priority-waits-there"),
    pytest.param("own-1", {"own-1": 5}, 6, False, id="its-priority-is-higher"),
    pytest.param("own-2", {"own-1": 5}, 0, False, id="its-policy-excludes-the-cluster"),
    pytest.param("own-1", {"own-2": 5, "own-3": 9}, 0, False, id="requests-wait-elsewhere"),
    pytest.param("own-1", {"full": 5}, 0, False, id="its-shape-fits-nowhere-there"),
    pytest.param("own-2", {"own-1": 5, "own-2": 0}, 3, False, id="of-several-clusters-its-own-counts"),
]


@pytest.mark.parametrize(("cluster", "awaited", "priority", "waits"), AWAITED_ROOM)
def test_it_leaves_room_to_requests_that_wait_for_binds_in_its_clusters_alone(
    cluster: str, awaited: dict[str, int], priority: int, waits: bool
) -> None:
    """Three tenants share a fleet: a request of one that is undecided in one cluster concerns nobody elsewhere."""
    fleet = Fleet(
        own_1=[node_row("a", used=4000)],
        own_2=[node_row("b", used=4000)],
        own_3=[node_row("c", used=4000)],
        full=[node_row("d", used=4000)],
    )
    tiers = [{"name": "all", "clusters": {"names": [cluster, "full"]}}]
    request = ApplyRequest(manifest_texts(deployment(1), placement_policy(tiers=tiers, priority=priority)))
    apply_to_fleet(fleet, decisions.decide_apply(fleet.state, request, fleet.next_moment()).events)
    retry_waiting_workloads(fleet)
    fleet.report_change(cluster, [node_row("new", 1500)])
    found = list(aftermath.next_waiting_workloads(fleet.state, fleet.now, awaited))
    assert [workload.workload_key for workload in found] == ([] if waits else [WEB])
    fleet.now += fleet.state.rules.bind_wait_max
    found = list(aftermath.next_waiting_workloads(fleet.state, fleet.now, awaited))
    assert [workload.workload_key for workload in found] == [WEB]


@pytest.mark.parametrize(
    ("awaited", "asked"),
    [
        pytest.param({"own-1": 4}, 0, id="its-priority-is-higher"),
        pytest.param({"own-2": 5}, 0, id="its-shape-has-no-room-there"),
        pytest.param({"own-1": 5}, 1, id="only-its-policy-can-tell"),
    ],
)
def test_what_its_policy_selects_is_looked_at_last(awaited: dict[str, int], asked: int, calls_of: Any) -> None:
    """It takes longest, and it was asked for each workload first."""
    fleet = Fleet(own_1=[node_row("a", used=4000)], own_2=[node_row("b", used=4000)])
    request = ApplyRequest(manifest_texts(deployment(1), placement_policy(priority=5)))
    apply_to_fleet(fleet, decisions.decide_apply(fleet.state, request, fleet.next_moment()).events)
    retry_waiting_workloads(fleet)
    fleet.report_change("own-1", [node_row("new", 1500)])
    fleet.state.waiting.served_at = fleet.now
    with calls_of(may_use_cluster) as calls:
        found = list(aftermath.next_waiting_workloads(fleet.state, fleet.now, awaited))
    assert (len(calls), len(found)) == (asked, 1 - asked)


def test_an_undecided_request_says_where_it_may_fit(uncertain: Fleet) -> None:
    patient = replace(uncertain.next_moment(), patient=True)
    request = ApplyRequest(manifest_texts(deployment(5, "other"), placement_policy(unplaceable="Refuse")))
    with pytest.raises(decisions.UndecidedRequest) as refused:
        decisions.decide_apply(uncertain.state, request, patient)
    assert refused.value.clusters == {"own-1"}


def test_each_bind_makes_it_wait_again_up_to_15_seconds(uncertain: Fleet) -> None:
    retry_waiting_workloads(uncertain)
    for bound in range(1, 10):
        uncertain.now += 1.6
        uncertain.report_change("cloud-1", shown=(workload_facts(Generation(1, 1), bound, name="other"),))
        retry_waiting_workloads(uncertain)
        assert set(kept_by_cluster(uncertain)) == {"own-1"}
    uncertain.now += 0.7
    retry_waiting_workloads(uncertain)
    assert kept_by_cluster(uncertain) == {"own-1": 1, "cloud-1": 4}


def test_another_number_of_replicas_waits_anew(uncertain: Fleet) -> None:
    retry_waiting_workloads(uncertain)
    scale_workload(uncertain, 4)
    uncertain.now += 20
    uncertain.send_heartbeats()
    scale_workload(uncertain, 5)
    retry_waiting_workloads(uncertain)
    assert set(kept_by_cluster(uncertain)) == {"own-1"}


# ── Settling ────────────────────────────────────────────────────────────────────────────────────────────────────


def settle_leaving_workloads(fleet: Fleet) -> list[Any]:
    events: list[Any] = []
    for key in list(fleet.state.leaving):
        events += aftermath.settle_workload(fleet.state, key, fleet.next_moment()).events
    apply_to_fleet(fleet, [event for event in events if not isinstance(event, Tombstone)])
    return events


def report_absent(fleet: Fleet, name: str) -> None:
    fleet.state.apply_event(workload_observed(name, WEB, version_of_part(fleet, name), STATE_ABSENT), fleet.now)


def test_an_emptied_cluster_is_dropped_once_it_is_absent(fleet: Fleet) -> None:
    scale_workload(fleet, 9)
    scale_workload(fleet, 6)
    assert kept_by_cluster(fleet) == {"own-1": 6, "cloud-1": 0}
    assert settle_leaving_workloads(fleet) == []
    report_absent(fleet, "cloud-1")
    settle_leaving_workloads(fleet)
    assert kept_by_cluster(fleet) == {"own-1": 6}
    assert fleet.state.reservation_of(WEB, "cloud-1").free == 0


def test_an_emptied_cluster_stays_listed_while_its_object_is_there(fleet: Fleet) -> None:
    """Its propagator deletes by what is listed: whoever starts now would leave the object, and its pods run."""
    scale_workload(fleet, 9)
    scale_workload(fleet, 6)
    fleet.state.apply_event(
        workload_observed("cloud-1", WEB, version_of_part(fleet, "cloud-1"), STATE_PRESENT), fleet.now
    )
    assert settle_leaving_workloads(fleet) == []
    assert kept_by_cluster(fleet) == {"own-1": 6, "cloud-1": 0}


def test_an_hour_after_the_last_is_absent_come_the_tombstones(fleet: Fleet) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    request = ApplyRequest(manifest_texts(deployment(6), config))
    apply_to_fleet(fleet, decisions.decide_apply(fleet.state, request, fleet.next_moment()).events)
    apply_to_fleet(fleet, decisions.decide_delete(fleet.state, DeleteRequest("", "web"), fleet.next_moment()).events)
    report_absent(fleet, "own-1")
    settle_leaving_workloads(fleet)
    assert settle_leaving_workloads(fleet) == []
    fleet.now += 3599
    assert settle_leaving_workloads(fleet) == []
    fleet.now += 1
    keys = {(event.address.topic.name, event.address.key) for event in settle_leaving_workloads(fleet)}
    assert keys == {
        ("spillway.placements.v1", "default/web"),
        ("spillway.workloads.v1", "default/web"),
        ("spillway.dependencies.v1", "ConfigMap/default/c"),
        ("spillway.workload-status.v1", "default/web/own-1"),
    }


def test_the_tombstones_of_a_workload_leave_what_is_said_of_an_orphan_of_its_name(fleet: Fleet) -> None:
    """Its object is still there: who lists orphans is to find it, and nothing is to be placed over it."""
    apply_to_fleet(fleet, decisions.decide_delete(fleet.state, DeleteRequest("", "web"), fleet.next_moment()).events)
    report_absent(fleet, "own-1")
    fleet.state.apply_event(workload_observed("cloud-1", WEB, Generation(4, 1), STATE_ORPHANED), fleet.now)
    settle_leaving_workloads(fleet)
    settle_leaving_workloads(fleet)
    fleet.now += 3600
    keys = {event.address.key for event in settle_leaving_workloads(fleet) if isinstance(event, Tombstone)}
    assert "default/web/own-1" in keys
    assert "default/web/cloud-1" not in keys


def test_what_was_applied_again_gets_no_tombstones(fleet: Fleet) -> None:
    apply_to_fleet(fleet, decisions.decide_delete(fleet.state, DeleteRequest("", "web"), fleet.next_moment()).events)
    report_absent(fleet, "own-1")
    settle_leaving_workloads(fleet)
    settle_leaving_workloads(fleet)
    apply_workload(fleet, 2)
    fleet.now += 4000
    assert settle_leaving_workloads(fleet) == []


def test_what_has_bound_is_needed_no_more() -> None:
    """CapacityNeeded follows the binds down to 0, with no decision between."""
    fleet = Fleet()
    fleet.join_cluster(joined_cluster("c", "cloud", (node_group(lead=120),)), [])
    apply_workload(fleet, 3)

    def lower_and_read_need() -> int:
        apply_to_fleet(fleet, aftermath.lowered_capacity_needs(fleet.state, fleet.next_moment()))
        return fleet.state.needed[WEB]["c"].replicas_new

    assert lower_and_read_need() == 3
    report_bound_pods(fleet, 2, cluster="c", spec=3, status=3)
    assert lower_and_read_need() == 1
    report_bound_pods(fleet, 3, cluster="c")
    assert lower_and_read_need() == 0
    assert aftermath.lowered_capacity_needs(fleet.state, fleet.next_moment()) == ()


def test_who_took_part_of_the_room_looks_once_more() -> None:
    """Seed 2034: what it took itself was back by the next look, which then showed no gain, and it waited for ever."""
    fleet = Fleet(own_1=[node_row("a")])
    apply_workload(fleet, 14)
    take_back_due(fleet)
    assert retry_waiting_workloads(fleet) == ["web"]
    assert retry_waiting_workloads(fleet) == []
    fleet.report_change(
        "own-1",
        [node_row("a", used=4000), node_row("b")],
        shown=(workload_facts(version_of_part(fleet), 4, spec=4, status=4, updated=4),),
    )
    assert retry_waiting_workloads(fleet) == ["web"]
    placed = kept_by_cluster(fleet)["own-1"]
    assert placed > 4
    assert retry_waiting_workloads(fleet) == ["web"]
    assert retry_waiting_workloads(fleet) == []
    assert kept_by_cluster(fleet)["own-1"] == placed
