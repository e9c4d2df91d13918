"""Replicas go where the volumes that their claims are bound to let them, cluster by cluster."""

from typing import Any

import pytest

from planner.core.explaining import explanation, exporting
from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.state import PlannerState
from planner.core.requests import decisions
from planner.core.requests.answers import capacity_reply
from spillway.api import ApplyRequest, CapacityRequest, ExplainReply, ExplainRequest, ScaleRequest
from spillway.columns import NO_NODES
from spillway.events import CapacityChanged
from spillway.feasibility.fit import compute_fit, replicas_on_group_node
from spillway.feasibility.volumes import NO_CLAIMS
from spillway.model import (
    NamespaceFacts,
    NodeTerm,
    PodSelector,
    Requirement,
    Shape,
    Spread,
    VolumeClaim,
    VolumeLimit,
)

from .builders import (
    EPOCH,
    Fleet,
    cluster_nodes_of,
    deployment,
    make_shape,
    manifest_texts,
    node_group,
    node_row,
    placement_policy,
    pod_template,
)

ZONE = "topology.kubernetes.io/zone"
CLAIMED = pod_template(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])


def volume_limit_in_zone(*zones: str) -> VolumeLimit:
    return VolumeLimit("volume of claim data", (NodeTerm((Requirement(ZONE, "In", zones),), ()),))


def node_in_zone(name: str, zone: str, cpu: int = 4000) -> Any:
    return node_row(name, cpu, labels={ZONE: zone})


def report_volume_claims(
    fleet: Fleet, cluster: str, *claims: VolumeClaim, left_out: bool = False, gone: bool = False
) -> None:
    """As the next change of the cluster's block 0."""
    view = fleet.state.clusters[cluster]
    spaces = () if gone else (NamespaceFacts("default", (), (), claims, left_out),)
    sequence = view._blocks[0].sequence + 1
    removed = ("default",) if gone else ()
    event = CapacityChanged(cluster, EPOCH, 0, sequence, 0, b"", (), (), (), "", spaces, removed)
    fleet.state.apply_event(event, fleet.now, columns=NO_NODES)


def apply_workload(fleet: Fleet, replicas: int, name: str = "web", pod: Any = CLAIMED, **spec: Any) -> Any:
    manifests = (deployment(replicas, name, pod), *((placement_policy(**spec),) if spec else ()))
    decided = decisions.decide_apply(fleet.state, ApplyRequest(manifest_texts(*manifests)), fleet.next_moment())
    for event in decided.events:
        fleet.state.apply_event(event, fleet.now)
    return decided.reply


def placed_by_cluster(reply: Any) -> dict[str, int]:
    return {part.cluster: part.replicas for part in reply.parts if part.replicas}


def fleet_of_two_clusters() -> Fleet:
    """In each a node of four cores in each of two zones; a's volume is in z1, b's is anywhere."""
    fleet = Fleet(
        a=[node_in_zone("a1", "z1"), node_in_zone("a2", "z2")], b=[node_in_zone("b1", "z1"), node_in_zone("b2", "z2")]
    )
    report_volume_claims(fleet, "a", VolumeClaim("data", True, (volume_limit_in_zone("z1"),)))
    report_volume_claims(fleet, "b", VolumeClaim("data", True))
    return fleet


ROOMS: dict[str, tuple[tuple[VolumeLimit, ...], list[int]]] = {
    "no limits": ((), [4, 4, 4]),
    "one zone": ((volume_limit_in_zone("z1"),), [4, 0, 0]),
    "one of two": ((volume_limit_in_zone("z1", "z2"),), [4, 4, 0]),
    "two volumes apart": ((volume_limit_in_zone("z1"), volume_limit_in_zone("z2")), [0, 0, 0]),
    "nowhere": ((VolumeLimit("volume claim data is being deleted"),), [0, 0, 0]),
    "on one node": (
        (VolumeLimit("", (NodeTerm((Requirement("kubernetes.io/hostname", "In", ("n2",)),), ()),)),),
        [0, 4, 0],
    ),
}


@pytest.mark.parametrize(("limits", "expected"), ROOMS.values(), ids=ROOMS)
def test_nodes_take_what_every_volume_lets_run_there(limits: tuple[VolumeLimit, ...], expected: list[int]) -> None:
    nodes = cluster_nodes_of(node_in_zone("n1", "z1"), node_in_zone("n2", "z2"), node_row("n3"))
    assert compute_fit(make_shape(volume_limits=limits), nodes).per_node[:3].tolist() == expected


def test_zones_where_the_volume_is_not_count_for_a_spread() -> None:
    """Node affinity decides which domains there are; a volume does not: the other zone stays at none."""
    spread = (Spread(PodSelector(()), 1, topology_key=ZONE, others_only=False),)
    web = (Spread(PodSelector((Requirement("app", "In", ("web",)),)), 1, topology_key=ZONE),)
    nodes = cluster_nodes_of(node_in_zone("n1", "z1"), node_in_zone("n2", "z2"))
    by_volume = compute_fit(make_shape(volume_limits=(volume_limit_in_zone("z1"),), spread=web), nodes)
    by_affinity = compute_fit(make_shape(node_terms=volume_limit_in_zone("z1").terms, spread=web), nodes)
    assert (by_volume.total, by_affinity.total) == (1, 4)
    assert compute_fit(make_shape(volume_limits=(volume_limit_in_zone("z1"),), spread=spread), nodes).total == 4


GROUPS: dict[str, tuple[VolumeLimit, int]] = {
    "in its zone": (volume_limit_in_zone("z1"), 4),
    "in another": (volume_limit_in_zone("z2"), 0),
    "only where there are no zones, which nobody knows of a node to come": (
        VolumeLimit("", (NodeTerm((Requirement("rack", "DoesNotExist", ()),), ()),)),
        0,
    ),
}


@pytest.mark.parametrize(("limit", "expected"), GROUPS.values(), ids=GROUPS)
def test_nodes_to_come_are_promised_by_labels_that_they_will_have(limit: VolumeLimit, expected: int) -> None:
    assert replicas_on_group_node(make_shape(volume_limits=(limit,)), node_group(labels=((ZONE, "z1"),))) == expected


def test_each_cluster_is_used_where_its_own_volume_is() -> None:
    fleet = fleet_of_two_clusters()
    assert placed_by_cluster(apply_workload(fleet, 12)) == {"a": 4, "b": 8}
    reply = apply_workload(fleet, 14)
    assert (placed_by_cluster(reply), reply.unplaced) == ({"a": 4, "b": 8}, 2)


def test_one_door() -> None:
    """A shape is a cluster's own there alone; asked with what it gave for another one, it gives the same."""
    fleet = fleet_of_two_clusters()
    declared = make_shape(volume_claims=("data",))
    in_a, in_b = fleet.state.shape_in("a", declared), fleet.state.shape_in("b", declared)
    assert (in_a.volume_limits, in_b) == ((volume_limit_in_zone("z1"),), declared)
    assert fleet.state.shape_in("a", in_a) == in_a
    assert fleet.state.shape_in("b", in_a) == in_b
    assert fleet.state.shape_in("nowhere", in_a) == declared
    plain = make_shape()
    assert fleet.state.shape_in("a", plain) is plain


def test_what_is_promised_follows_the_volume() -> None:
    """Eight replicas are reserved anywhere; once the claim is bound in z1 they hold room there, and none elsewhere."""
    fleet = Fleet(a=[node_in_zone("a1", "z1"), node_in_zone("a2", "z2")])
    report_volume_claims(fleet, "a", VolumeClaim("data", False))
    assert placed_by_cluster(apply_workload(fleet, 2)) == {"a": 2}
    report_volume_claims(fleet, "a", VolumeClaim("data", True, (volume_limit_in_zone("z1"),)))
    in_z2 = pod_template(nodeSelector={ZONE: "z2"})
    assert placed_by_cluster(apply_workload(fleet, 4, "other", in_z2)) == {"a": 4}
    assert placed_by_cluster(apply_workload(fleet, 3, "third", pod_template(nodeSelector={ZONE: "z1"}))) == {"a": 2}
    report_volume_claims(fleet, "a", gone=True)
    assert fleet.state.volume_claims_in("a", "default") == NO_CLAIMS
    assert fleet.state.shape_in("a", fleet.state.workloads["default", "web"].replica_shape).volume_limits == ()


NOTES: dict[str, tuple[tuple[VolumeClaim, ...], bool, tuple[str, ...]]] = {
    "bound": ((VolumeClaim("data", True),), False, ()),
    "none": ((), False, ("volume claim data in a: it is not there yet: on which nodes its volume will be",)),
    "none of so many": ((), True, ("volume claim data in a: not known of so many there",)),
    "not bound": (
        (VolumeClaim("data", False),),
        False,
        ("volume claim data in a: it is not bound yet: on which nodes its volume will be",),
    ),
    "attached": (
        (VolumeClaim("data", True, attached="csi"),),
        False,
        ("volume claim data in a: to how many volumes a node can be attached by csi",),
    ),
    "for one node": (
        (VolumeClaim("data", True, once="ReadWriteOnce"),),
        False,
        ("volume claim data in a: ReadWriteOnce: that its pods must share a node",),
    ),
    "for one pod": (
        (VolumeClaim("data", True, once="ReadWriteOncePod"),),
        False,
        ("volume claim data in a: ReadWriteOncePod: that one pod at a time may use it",),
    ),
}


@pytest.mark.parametrize(("claims", "left_out", "expected"), NOTES.values(), ids=NOTES)
def test_what_is_not_computed_is_named_in_every_answer(
    claims: tuple[VolumeClaim, ...], left_out: bool, expected: tuple[str, ...]
) -> None:
    fleet = Fleet(a=[node_row("n1")])
    report_volume_claims(fleet, "a", *claims, left_out=left_out)
    asked = manifest_texts(deployment(1, pod=CLAIMED))
    assert capacity_reply(fleet.state, CapacityRequest(asked), fleet.now).unmodelled == expected
    assert apply_workload(fleet, 1).unmodelled == expected
    scaled = decisions.decide_scale(fleet.state, ScaleRequest("default", "web", 2), fleet.next_moment())
    assert scaled.reply.unmodelled == expected
    assert explain_reply(fleet).unmodelled == expected


def explain_reply(fleet: Fleet, **asked: Any) -> ExplainReply:
    steps = explanation.explain_placement(
        fleet.state, ExplainRequest("default", "web", **asked), fleet.next_moment(), None
    )
    while True:
        try:
            next(steps)
        except StopIteration as end:
            reply: ExplainReply = end.value
            return reply


def test_explain_says_that_it_is_the_volume() -> None:
    fleet = fleet_of_two_clusters()
    apply_workload(fleet, 14)
    (there,) = [entry for entry in explain_reply(fleet).clusters if entry.cluster == "a"]
    reasons = {(reason.filter, reason.reason, reason.nodes) for reason in there.reasons}
    assert ("VolumeBinding, VolumeZone", "volume of claim data", 1) in reasons
    found = explain_reply(fleet, cluster="a", node="a2").node
    assert found is not None
    assert {one.filter: one.reason for one in found.filters if not one.passes} == {
        "VolumeBinding, VolumeZone": "volume of claim data"
    }


def test_a_claim_that_goes_ends_the_room_and_names_itself() -> None:
    fleet = fleet_of_two_clusters()
    report_volume_claims(fleet, "a", VolumeClaim("data", True, (VolumeLimit("volume claim data is being deleted"),)))
    reply = apply_workload(fleet, 12)
    assert placed_by_cluster(reply) == {"b": 8}
    limits = {entry.cluster: entry.limited_by for entry in reply.inputs}
    assert limits["a"] == "volume claim data is being deleted (2 nodes)"


def test_an_exported_state_knows_the_claims() -> None:
    fleet = fleet_of_two_clusters()
    report_volume_claims(fleet, "b", left_out=True)
    copy = PlannerState(PlannerRules())
    for event, columns in exporting.exported_events(fleet.state, fleet.now):
        copy.apply_event(event, fleet.now, columns=columns)
    for name in ("a", "b"):
        assert copy.volume_claims_in(name, "default") == fleet.state.volume_claims_in(name, "default") != NO_CLAIMS


def test_shapes_that_name_other_claims_are_others() -> None:
    """Equal but for what they name: one may be bound where the other is not."""
    one, other = make_shape(volume_claims=("data",)), make_shape(volume_claims=("logs",))
    assert len({one, other, make_shape(), make_shape(volume_limits=(volume_limit_in_zone("z1"),))}) == 4
    assert isinstance(hash(Shape("default", (("pods", 1),))), int)
