"""Capacity answers for all clusters at once what the room of each of them is, asked one by one."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from planner.core.division.words import limit_text
from planner.core.knowledge.ages import age_ms
from planner.core.knowledge.timers import PlacementHold
from planner.core.requests import answers, decisions
from spillway.api import ApplyRequest, CapacityRequest
from spillway.events import PHASE_CORDONED, SHAPE_ADMITTED, SHAPE_REFUSED, ShapeAdmitted
from spillway.kubernetes.pod_shape import shape_of, shape_without_notes, template_digest
from spillway.model import NamespaceFacts, PodSelector, PodTable, PodTerm, Quota

from .builders import (
    Fleet,
    container_spec,
    deployment,
    joined_cluster,
    manifest_texts,
    node_group,
    node_row,
    pod_template,
)

POD = pod_template(container_spec(cpu="1500m"))
SHAPE = shape_without_notes(shape_of(POD, "default", "t"))
HOSTNAME = "kubernetes.io/hostname"
SPREAD = {
    "maxSkew": 1,
    "topologyKey": HOSTNAME,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}
PODS: dict[str, dict[str, Any]] = {
    "plain": POD,
    "selecting": pod_template(container_spec(cpu="700m"), nodeSelector={"zone": "a"}),
    "too large": pod_template(container_spec(cpu="900")),
    "spread": pod_template(container_spec(cpu="700m"), labels={"app": "web"}, topologySpreadConstraints=[SPREAD]),
    "with a claim": pod_template(
        container_spec(cpu="700m"), volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    ),
}


def cordon_own_1(fleet: Fleet) -> None:
    fleet.state.apply_event(replace(joined_cluster("own-1"), phase=PHASE_CORDONED), fleet.now)


def make_own_1_stale(fleet: Fleet) -> None:
    fleet.now += 100.0
    fleet.send_heartbeats("own-2", "cloud-1")


def lose_change_of_own_1(fleet: Fleet) -> None:
    fleet.sequences["own-1"] += 1
    fleet.report_change("own-1", [node_row("n0", cpu=64_000)])


def hold_own_clusters(fleet: Fleet) -> None:
    fleet.state.holds["own-1", SHAPE] = PlacementHold(fleet.now + 12, 15)
    fleet.state.holds["own-2", ("default", "web")] = PlacementHold(fleet.now + 12, 15)


def give_two_clusters_one_api_server(fleet: Fleet) -> None:
    for name in ("own-1", "cloud-1"):
        fleet.report_full_block(name, [node_row(f"{name}-n")], api_server="same")


def limit_own_1_by_quota(fleet: Fleet) -> None:
    quota = Quota("q", (("pods", 5),), ())
    fleet.report_change("own-1", namespaces=[NamespaceFacts("default", (), (quota,))])


def repel_pods_in_own_1(fleet: Fleet) -> None:
    term = PodTerm(PodSelector(()), namespaces=("default",), topology_key=HOSTNAME)
    table = PodTable("default", (("app", "lonely"),), (term,))
    fleet.report_change("own-1", [node_row("n0", rest={"pods": ((table, 1),)})])


def change_admitted_shapes(fleet: Fleet) -> None:
    larger = replace(SHAPE, requests=tuple(sorted((dict(SHAPE.requests) | {"cpu": 2500}).items())))
    for name, state, shape in (("own-1", SHAPE_ADMITTED, larger), ("own-2", SHAPE_REFUSED, None)):
        said = ShapeAdmitted(template_digest(POD, "default"), name, 1, 1, "default", state, "denied", shape)
        fleet.state.apply_event(said, fleet.now)


def reserve_more_than_fits(fleet: Fleet) -> None:
    """More than the nodes take: some replicas wait for new nodes."""
    request = ApplyRequest(manifest_texts(deployment(40, "web", POD)))
    for event in decisions.decide_apply(fleet.state, request, fleet.next_moment()).events:
        fleet.state.apply_event(event, fleet.now)
    assert fleet.state.workloads["default", "web"].parts["cloud-1"].replicas_new


WHAT = [
    cordon_own_1,
    make_own_1_stale,
    lose_change_of_own_1,
    hold_own_clusters,
    give_two_clusters_one_api_server,
    limit_own_1_by_quota,
    repel_pods_in_own_1,
    change_admitted_shapes,
    reserve_more_than_fits,
]


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
@pytest.mark.parametrize("what", WHAT, ids=lambda what: what.__name__)
def test_of_all_clusters_it_is_what_each_has_room_for(what: Callable[[Fleet], None], pod: dict[str, Any]) -> None:
    rows = [node_row(f"n{index}", cpu=4000 + 500 * index, labels={"zone": "ab"[index % 2]}) for index in range(4)]
    fleet = Fleet(own_1=rows, own_2=rows)
    fleet.join_cluster(
        joined_cluster("cloud-1", "cloud", [node_group("burst", cpu=6000), node_group("late", cpu=2000)]), rows
    )
    what(fleet)
    state, shape = fleet.state, shape_without_notes(shape_of(pod, "default", "t"))
    for _ in range(2):  # Asked again, what was kept of the first time is answered.
        found = answers.capacity_reply(state, CapacityRequest(manifest_texts(deployment(1, "probe", pod))), fleet.now)
        expected = [
            (joined.cluster, node_groups, state.room_in_cluster(joined.cluster, shape, node_groups, fleet.now))
            for joined in state.joined_clusters()
            for node_groups in ((False, True) if joined.node_groups else (False,))
        ]
        assert [
            (entry.cluster, entry.tier == "node-groups", entry.certain, entry.possible, entry.limited_by, entry.age_ms)
            for entry in found.clusters
        ] == [
            (
                name,
                groups,
                room.certain,
                room.possible,
                limit_text(room.limited_by),
                age_ms(state.clusters[name], fleet.now),
            )
            for name, groups, room in expected
        ]
        fleet.now += 0.25
