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

from .builders import Fleet, cluster, container, deployment, group, node, template, texts

POD = template(container(cpu="1500m"))
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
    "selecting": template(container(cpu="700m"), nodeSelector={"zone": "a"}),
    "too large": template(container(cpu="900")),
    "spread": template(container(cpu="700m"), labels={"app": "web"}, topologySpreadConstraints=[SPREAD]),
    "with a claim": template(
        container(cpu="700m"), volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    ),
}


def cordoned(fleet: Fleet) -> None:
    fleet.state.apply_event(replace(cluster("own-1"), phase=PHASE_CORDONED), fleet.now)


def stale(fleet: Fleet) -> None:
    fleet.now += 100.0
    fleet.beat("own-2", "cloud-1")


def incomplete(fleet: Fleet) -> None:
    fleet.sequences["own-1"] += 1
    fleet.change("own-1", [node("n0", cpu=64_000)])


def held(fleet: Fleet) -> None:
    fleet.state.holds["own-1", SHAPE] = PlacementHold(fleet.now + 12, 15)
    fleet.state.holds["own-2", ("default", "web")] = PlacementHold(fleet.now + 12, 15)


def twins(fleet: Fleet) -> None:
    for name in ("own-1", "cloud-1"):
        fleet.report(name, [node(f"{name}-n")], api_server="same")


def limited(fleet: Fleet) -> None:
    quota = Quota("q", (("pods", 5),), ())
    fleet.change("own-1", namespaces=[NamespaceFacts("default", (), (quota,))])


def repelled(fleet: Fleet) -> None:
    term = PodTerm(PodSelector(()), namespaces=("default",), topology_key=HOSTNAME)
    table = PodTable("default", (("app", "lonely"),), (term,))
    fleet.change("own-1", [node("n0", rest={"pods": ((table, 1),)})])


def admitted_otherwise(fleet: Fleet) -> None:
    larger = replace(SHAPE, requests=tuple(sorted((dict(SHAPE.requests) | {"cpu": 2500}).items())))
    for name, state, shape in (("own-1", SHAPE_ADMITTED, larger), ("own-2", SHAPE_REFUSED, None)):
        said = ShapeAdmitted(template_digest(POD, "default"), name, 1, 1, "default", state, "denied", shape)
        fleet.state.apply_event(said, fleet.now)


def promised(fleet: Fleet) -> None:
    """More than the nodes take: some replicas wait for new nodes."""
    request = ApplyRequest(texts(deployment(40, "web", POD)))
    for event in decisions.decide_apply(fleet.state, request, fleet.moment()).events:
        fleet.state.apply_event(event, fleet.now)
    assert fleet.state.workloads["default", "web"].parts["cloud-1"].replicas_new


WHAT = [cordoned, stale, incomplete, held, twins, limited, repelled, admitted_otherwise, promised]


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
@pytest.mark.parametrize("what", WHAT, ids=lambda what: what.__name__)
def test_of_all_clusters_it_is_what_each_has_room_for(what: Callable[[Fleet], None], pod: dict[str, Any]) -> None:
    rows = [node(f"n{index}", cpu=4000 + 500 * index, labels={"zone": "ab"[index % 2]}) for index in range(4)]
    fleet = Fleet(own_1=rows, own_2=rows)
    fleet.join(cluster("cloud-1", "cloud", [group("burst", cpu=6000), group("late", cpu=2000)]), rows)
    what(fleet)
    state, shape = fleet.state, shape_without_notes(shape_of(pod, "default", "t"))
    for _ in range(2):  # Asked again, what was kept of the first time is answered.
        found = answers.capacity_reply(state, CapacityRequest(texts(deployment(1, "probe", pod))), fleet.now)
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
