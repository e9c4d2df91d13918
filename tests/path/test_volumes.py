"""Claims that are bound in one zone of a member, from its API to the placement: in one process and virtual time."""

import json
from typing import Any

import pytest

from sim.settings import Faults
from spillway.api import ApplyRequest, GetRequest, ListClustersRequest
from spillway.clusters.api import NAMESPACES
from spillway.kubernetes.objects import VOLUME_CLAIMS, VOLUMES
from spillway_local import member_nodes
from spillway_local.fleet_plan import GIB, MemberPlan, deployment
from spillway_local.in_process import SERVICES, InProcess, in_process_platform

from .platform_steps import NAMESPACE, are_all_ready, bound_pods_by_cluster, join_members, unbound_pod_count, wait_until

pytestmark = pytest.mark.looptime

ZONE = "topology.kubernetes.io/zone"
IN_TWO_ZONES = (
    MemberPlan(
        "own-1",
        "own",
        tuple(member_nodes.MemberNodes(2, zone, 4_000, 16 * GIB, labels={ZONE: zone}) for zone in ("z1", "z2")),
        room=32,
    ),
    MemberPlan("cloud-1", "cloud", (member_nodes.MemberNodes(4, "n", 8_000, 32 * GIB),), room=64),
)
NAMED = "volume claim data in {}: it is not there yet: on which nodes its volume will be"


def apply_request(replicas: int) -> ApplyRequest:
    manifest = json.loads(deployment("web", NAMESPACE, replicas, cpu="500m"))
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    manifest["spec"]["template"]["spec"]["volumes"] = volumes
    return ApplyRequest((json.dumps(manifest),))


def volume_in_zone(zone: str) -> dict[str, Any]:
    expressions = [{"key": ZONE, "operator": "In", "values": [zone]}] if zone else [{"key": ZONE, "operator": "Exists"}]
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "nodeAffinity": affinity}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": spec}


async def create_bound_claim(platform: InProcess, cluster: str, zone: str) -> None:
    """A claim there, bound to a volume in that zone; without one, a volume that is anywhere."""
    api = platform.member_api(cluster)
    made = volume_in_zone(zone)
    if not zone:
        del made["spec"]["nodeAffinity"]
    await api.create(VOLUMES, made)
    marks = {"pv.kubernetes.io/bind-completed": "yes"}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": NAMESPACE, "annotations": marks},
        "spec": {"accessModes": ["ReadWriteMany"], "volumeName": "pv"},
    }
    await api.create(VOLUME_CLAIMS, claim)


async def join_with_namespace(platform: InProcess) -> None:
    await join_members(platform)
    for name in platform.members:
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        await platform.member_api(name).create(NAMESPACES, manifest)


async def test_replicas_are_placed_where_the_bound_volume_is() -> None:
    """Half of the own nodes are in its zone: the rest goes to the cloud at once, and every replica binds."""
    async with in_process_platform(IN_TWO_ZONES) as platform:
        await join_with_namespace(platform)
        await create_bound_claim(platform, "own-1", "z1")
        await create_bound_claim(platform, "cloud-1", "")
        known = platform.planner().state.volume_claims_in
        await wait_until(
            lambda: all(known(name, NAMESPACE).claims for name in platform.members), "the claims are heard of"
        )
        reply = await platform.planner().apply(apply_request(24))
        assert {part.cluster: part.replicas for part in reply.parts} == {"own-1": 16, "cloud-1": 8}
        assert reply.unmodelled == ()
        await wait_until(lambda: _are_all_bound(platform, 24), "all of them run where they were placed")
        assert await bound_pods_by_cluster(platform) == {"own-1": 16, "cloud-1": 8}


async def test_a_claim_that_comes_later_is_named_until_then_and_corrected_after() -> None:
    """Placed as declared and named; once the claims are there, what does not bind in the zone goes to the cloud."""
    async with in_process_platform(IN_TWO_ZONES) as platform:
        await join_with_namespace(platform)
        reply = await platform.planner().apply(apply_request(24))
        assert {part.cluster: part.replicas for part in reply.parts} == {"own-1": 24}
        assert reply.unmodelled == (NAMED.format("own-1"),)
        await create_bound_claim(platform, "own-1", "z1")
        await create_bound_claim(platform, "cloud-1", "")
        await wait_until(lambda: _are_all_bound(platform, 24), "all of them run", 120)
        assert await bound_pods_by_cluster(platform) == {"own-1": 16, "cloud-1": 8}
        found = await platform.planner().get(GetRequest(NAMESPACE, "web"))
        assert found.placement.unmodelled == ()


async def test_without_rights_to_volumes_replicas_are_placed_as_if_they_were_everywhere_and_it_is_named() -> None:
    """The cluster is followed all the same; once the rights are given, what does not bind in the zone moves."""
    async with in_process_platform(IN_TWO_ZONES, ()) as platform:
        account = platform.account("snapshot", "own-1")
        all_rights = account.may
        account.may = frozenset(one for one in all_rights or () if not one.resource.startswith("persistentvolume"))
        for name in SERVICES:
            platform.start_instance(name)
        await join_with_namespace(platform)
        await create_bound_claim(platform, "own-1", "z1")
        await create_bound_claim(platform, "cloud-1", "")
        clusters = (await platform.planner().list_clusters(ListClustersRequest())).clusters
        (told,) = [one.trouble for one in clusters if one.cluster == "own-1"]
        for resource in ("persistentvolumes", "persistentvolumeclaims"):
            assert f'spillway-snapshot" cannot list resource "{resource}" in API group ""' in told
        reply = await platform.planner().apply(apply_request(24))
        assert {part.cluster: part.replicas for part in reply.parts} == {"own-1": 24}
        named = "volume claim data in own-1: our account may not read on which nodes its volume is: "
        assert reply.unmodelled == (named + told,)
        account.may = all_rights
        await wait_until(lambda: _are_all_bound(platform, 24), "all of them run", 120)
        assert await bound_pods_by_cluster(platform) == {"own-1": 16, "cloud-1": 8}
        found = await platform.planner().get(GetRequest(NAMESPACE, "web"))
        assert found.placement.unmodelled == ()


async def test_rights_to_volumes_that_are_taken_away_leave_nothing_known_of_them() -> None:
    """What was known would be said for ever otherwise."""
    async with in_process_platform(IN_TWO_ZONES) as platform:
        await join_with_namespace(platform)
        await create_bound_claim(platform, "own-1", "z1")
        known = platform.planner().state.volume_claims_in
        await wait_until(lambda: known("own-1", NAMESPACE).claims, "the claim is heard of")
        account = platform.account("snapshot", "own-1")
        account.may = frozenset(one for one in account.may or () if one.resource != "persistentvolumeclaims")
        platform.members["own-1"].set_faults(Faults(drop_watches=True))
        await wait_until(lambda: known("own-1", NAMESPACE).unread, "it is told that claims cannot be read")
        platform.members["own-1"].set_faults(Faults())
        await wait_until(lambda: not known("own-1", NAMESPACE).claims, "nothing is known of the claim any more")
        await wait_until(lambda: are_all_ready(platform), "the cluster is followed")


async def _are_all_bound(platform: InProcess, count: int) -> bool:
    return sum((await bound_pods_by_cluster(platform)).values()) == count and not await unbound_pod_count(platform)
