"""What claims and volumes become on the log: limits by labels of nodes, whichever of both is seen first."""

from typing import Any

import msgspec
import pytest

from snapshot.core.cluster_state import ClusterState
from snapshot.core.rules import SnapshotRules
from snapshot.core.volumes import BIND_COMPLETED, NOWHERE_LABELLED, REGION, ZONE
from spillway.kubernetes.objects import VOLUME_CLAIMS, VOLUMES, Kind, object_decoder
from spillway.model import NamespaceFacts, NodeTerm, Requirement, VolumeClaim, VolumeLimit

OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
OF_DATA = "volume of claim data"


def volume_claim(
    name: str = "data", volume: str = "pv", modes: tuple[str, ...] = ("ReadWriteMany",), **more: Any
) -> Any:
    """Bound, unless bound=False."""
    annotations = {BIND_COMPLETED: "yes"} if more.pop("bound", True) else {}
    metadata = {"name": name, "namespace": "shop", "uid": f"claim-{name}", "annotations": annotations}
    status = {"phase": more.pop("phase", "Bound")}
    return decode_object(
        VOLUME_CLAIMS,
        {"metadata": metadata | more, "spec": {"volumeName": volume, "accessModes": modes}, "status": status},
    )


def persistent_volume(
    *terms: dict[str, Any], labels: dict[str, str] | None = None, name: str = "pv", **source: Any
) -> Any:
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if terms else {}
    metadata = {"name": name, "uid": f"uid-{name}", "labels": labels or {}}
    return decode_object(VOLUMES, {"metadata": metadata, "spec": affinity | source})


def decode_object(kind: Kind, item: dict[str, Any]) -> Any:
    return object_decoder(kind).decode(msgspec.json.encode(item))


def match_expressions(*found: tuple[str, str, list[str]]) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": how, "values": values} for key, how, values in found]}


def node_term(*requirements: tuple[str, str, tuple[str, ...]]) -> NodeTerm:
    return NodeTerm(tuple(Requirement(*one) for one in requirements), ())


def state_with_objects(*items: Any, claims_max: int = 5_000) -> ClusterState:
    state = ClusterState("f1", SnapshotRules(volume_claims_max=claims_max))
    for item in items:
        state.upsert_object(VOLUMES if item.metadata.namespace == "" else VOLUME_CLAIMS, item)
    return state


def volume_claims_by_name(state: ClusterState) -> dict[str, VolumeClaim]:
    spaces = {space.name: space for space in state.whole_state().namespaces}
    return {entry.name: entry for entry in spaces.get("shop", NamespaceFacts("shop", (), ())).volume_claims}


IN_Z1 = node_term((ZONE, "In", ("z1",)))
LIMITS: dict[str, tuple[Any, tuple[tuple[NodeTerm, ...], ...]]] = {
    "none": (persistent_volume(), ()),
    "node affinity": (persistent_volume(match_expressions((ZONE, "In", ["z1"]))), ((IN_Z1,),)),
    "any of its terms": (
        persistent_volume(
            match_expressions((ZONE, "In", ["z1"])), match_expressions(("disk", "Exists", []), ("gen", "Gt", ["5"]))
        ),
        ((IN_Z1, node_term(("disk", "Exists", ()), ("gen", "Gt", ("5",)))),),
    ),
    "a term of nothing is met by no node": (
        persistent_volume({}, match_expressions((ZONE, "In", ["z1"]))),
        ((IN_Z1,),),
    ),
    "fields say nothing": (
        persistent_volume({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}),
        ((NodeTerm((), ()),),),
    ),
    "what the scheduler cannot read is met by none": (
        persistent_volume(
            match_expressions(("gen", "Gt", ["many"])),
            match_expressions((ZONE, "Near", ["z1"])),
            match_expressions((ZONE, "In", [])),
        ),
        ((),),
    ),
    "a zone, or no zones at all": (persistent_volume(labels={ZONE: "z1"}), ((NOWHERE_LABELLED, IN_Z1),)),
    "two zones": (
        persistent_volume(labels={ZONE: "z1__z2"}),
        ((NOWHERE_LABELLED, node_term((ZONE, "In", ("z1", "z2")))),),
    ),
    "a zone that is none": (persistent_volume(labels={ZONE: "z1__"}), ()),
    "zone and region": (
        persistent_volume(labels={ZONE: "z1", REGION: "r1"}),
        ((NOWHERE_LABELLED, IN_Z1), (NOWHERE_LABELLED, node_term((REGION, "In", ("r1",))))),
    ),
    "a label of old": (
        persistent_volume(labels={OLD_ZONE: "z1"}),
        (
            (
                NOWHERE_LABELLED,
                node_term((OLD_ZONE, "In", ("z1",))),
                node_term((OLD_ZONE, "DoesNotExist", ()), (ZONE, "In", ("z1",))),
            ),
        ),
    ),
    "both": (
        persistent_volume(match_expressions((ZONE, "In", ["z1"])), labels={ZONE: "z1"}),
        ((IN_Z1,), (NOWHERE_LABELLED, IN_Z1)),
    ),
}


@pytest.mark.parametrize(("item", "terms"), LIMITS.values(), ids=LIMITS)
def test_a_bound_claim_is_said_with_what_limits_its_volume(item: Any, terms: tuple[tuple[NodeTerm, ...], ...]) -> None:
    expected = VolumeClaim("data", True, tuple(VolumeLimit(OF_DATA, one) for one in terms))
    assert (
        volume_claims_by_name(state_with_objects(item, volume_claim()))
        == volume_claims_by_name(state_with_objects(volume_claim(), item))
        == {"data": expected}
    )


STATES: dict[str, tuple[Any, VolumeClaim]] = {
    "not bound": (volume_claim(volume="", bound=False), VolumeClaim("data", False)),
    "named beforehand": (volume_claim(bound=False), VolumeClaim("data", False)),
    "bound to what is not known yet": (volume_claim(volume="another"), VolumeClaim("data", False)),
    "going": (
        volume_claim(deletion_timestamp="", deletionTimestamp="2026-01-01T00:00:00Z"),
        VolumeClaim("data", True, (VolumeLimit("volume claim data is being deleted"),)),
    ),
    "lost": (
        volume_claim(phase="Lost"),
        VolumeClaim("data", True, (VolumeLimit("volume claim data has lost its volume"),)),
    ),
    "for one node": (
        volume_claim(modes=("ReadWriteOnce",)),
        VolumeClaim("data", True, once="ReadWriteOnce"),
    ),
    "for one pod": (volume_claim(modes=("ReadWriteOncePod",)), VolumeClaim("data", True, once="ReadWriteOncePod")),
    "for one node or for many": (volume_claim(modes=("ReadWriteOnce", "ReadWriteMany")), VolumeClaim("data", True)),
}


@pytest.mark.parametrize(("item", "expected"), STATES.values(), ids=STATES)
def test_a_claim_is_said_as_it_is(item: Any, expected: VolumeClaim) -> None:
    assert volume_claims_by_name(state_with_objects(persistent_volume(), item)) == {"data": expected}


def test_what_is_attached_to_nodes_is_said() -> None:
    assert (
        volume_claims_by_name(state_with_objects(persistent_volume(csi={"driver": "d"}), volume_claim()))[
            "data"
        ].attached
        == "csi"
    )


def test_only_what_changed_is_said_again() -> None:
    state = state_with_objects(persistent_volume(), volume_claim())
    state.take_changes()
    state.upsert_object(VOLUMES, persistent_volume())
    state.upsert_object(VOLUME_CLAIMS, volume_claim())
    assert not state.has_changes
    state.upsert_object(VOLUMES, persistent_volume(labels={ZONE: "z1"}))
    (space,) = state.take_changes().namespaces
    assert space.volume_claims == (VolumeClaim("data", True, (VolumeLimit(OF_DATA, (NOWHERE_LABELLED, IN_Z1)),)),)
    state.remove_object(VOLUMES, persistent_volume())
    assert volume_claims_by_name(state) == {"data": VolumeClaim("data", False)}
    state.replace_objects(VOLUME_CLAIMS, (), 0.0)
    assert state.take_changes().namespaces_removed == ("shop",)
    state.replace_objects(VOLUMES, (), 0.0)
    assert not state.has_changes


def test_of_too_many_claims_is_said_that_there_are_more() -> None:
    first, second = volume_claim("a"), volume_claim("b")
    state = state_with_objects(first, second, claims_max=1)
    (space,) = state.take_changes().namespaces
    assert ([entry.name for entry in space.volume_claims], space.volume_claims_left_out) == (["a"], True)
    state.remove_object(VOLUME_CLAIMS, first)
    state.upsert_object(VOLUME_CLAIMS, second)
    (space,) = state.take_changes().namespaces
    assert ([entry.name for entry in space.volume_claims], space.volume_claims_left_out) == (["b"], False)
    state.remove_object(VOLUME_CLAIMS, second)
    assert state.take_changes().namespaces_removed == ("shop",)
