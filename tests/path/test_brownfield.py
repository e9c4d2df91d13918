"""What ran before us, in one process and virtual time: taken over, scaled, given back, left alone, found again."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from propagator.settings import PropagatorSettings
from sim.manifests import job, statefulset
from spillway.addresses import PLACEMENTS, WORKLOADS, Tombstone, workload_address
from spillway.api import (
    AdoptRequest,
    ApplyRequest,
    DeleteRequest,
    DisownRequest,
    FreezeRequest,
    GetRequest,
    LeaveClusterRequest,
    ListOrphansRequest,
    PlacementReply,
    RecoverFleetRequest,
    RequestError,
    ScaleRequest,
)
from spillway.clusters.api import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    NAMESPACES,
    PODS,
    REPLICASETS,
    SERVICES,
    Conflict,
)
from spillway.kubernetes.objects import JOBS, STATEFULSETS
from spillway_local import member_nodes
from spillway_local.fleet_plan import GIB, MemberPlan, deployment
from spillway_local.in_process import FLEET_ID, InProcess, in_process_platform

from .platform_steps import NAMESPACE, join_members, wait_until

pytestmark = pytest.mark.looptime

FLEET = (
    MemberPlan("own-1", "own", (member_nodes.MemberNodes(4, "n", 4_000, 16 * GIB),), room=32),
    MemberPlan("own-2", "own", (member_nodes.MemberNodes(4, "n", 4_000, 16 * GIB),), room=32),
)
MARK = "spillway.io/"
ONLY_OWN_1 = json.dumps(
    {
        "apiVersion": "spillway.io/v1",
        "kind": "PlacementPolicy",
        "spec": {"tiers": [{"name": "one", "clusters": {"names": ["own-1"]}}]},
    }
)

SPREAD = json.dumps(
    {
        "apiVersion": "spillway.io/v1",
        "kind": "PlacementPolicy",
        "spec": {"tiers": [{"name": "both", "clusters": {"names": ["own-1", "own-2"]}}]},
    }
)


def deployment_manifest(name: str = "web", replicas: int = 3, **metadata: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "500m", "memory": "64Mi"}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE} | metadata,
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


async def run_without_spillway(platform: InProcess, cluster: str, *manifests: dict[str, Any]) -> None:
    """As somebody's kubectl; returns when all pods run."""
    api = platform.member_api(cluster)
    if await api.get(NAMESPACES, "", NAMESPACE) is None:
        await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for one in manifests:
        await api.create(DEPLOYMENTS, one)
    for one in manifests:
        name, replicas = one["metadata"]["name"], one["spec"]["replicas"]
        await wait_until(
            lambda name=name, replicas=replicas: _are_available(platform, cluster, name, replicas), "it runs"
        )  # type: ignore[misc]


async def _are_available(platform: InProcess, cluster: str, name: str, replicas: int) -> bool:
    found = await live_deployment(platform, cluster, name)
    return bool((found.get("status") or {}).get("availableReplicas", 0) == replicas)


async def live_deployment(platform: InProcess, cluster: str, name: str = "web") -> dict[str, Any]:
    found = await platform.member_api(cluster).get(DEPLOYMENTS, NAMESPACE, name)
    assert found is not None
    return found


async def uids_by_kind(platform: InProcess, cluster: str) -> dict[str, set[str]]:
    """Returns the uids of all objects that a restart would replace, by kind."""
    kinds = {"deployments": DEPLOYMENTS, "replicasets": REPLICASETS, "pods": PODS}
    return {
        name: {one["metadata"]["uid"] for one in await platform.member_api(cluster).list(kind, NAMESPACE)}
        for name, kind in kinds.items()
    }


def our_marks_of(found: dict[str, Any]) -> set[str]:
    metadata = found["metadata"]
    said = (metadata.get("labels") or {}) | (metadata.get("annotations") or {})
    return {key for key in said if key.startswith(MARK)}


async def adopt_workload(
    platform: InProcess, *clusters: str, name: str = "web", policy: str = "", key: str = ""
) -> PlacementReply:
    request = AdoptRequest(NAMESPACE, name, "deployment", clusters, policy, key)
    reply = await platform.planner().adopt(request)
    await wait_until(lambda: _is_settled(platform, name), "it is taken over")
    return reply


async def _is_settled(platform: InProcess, name: str) -> bool:
    reply = await platform.planner().get(GetRequest(NAMESPACE, name))
    return not any(part.adopting for part in reply.placement.parts) and all(
        status.state == "Present" and status.current for status in reply.statuses
    )


async def test_adopt_scale_disown_leaves_the_pods_as_they_are() -> None:
    async with in_process_platform(FLEET) as platform:
        await join_members(platform)
        await run_without_spillway(platform, "own-1", deployment_manifest())
        before, spec = await uids_by_kind(platform, "own-1"), (await live_deployment(platform, "own-1"))["spec"]

        reply = await adopt_workload(platform, "own-1", policy=ONLY_OWN_1, key="k1")
        assert [(part.cluster, part.replicas, part.adopting) for part in reply.parts] == [("own-1", 3, True)]
        assert (reply.replicas, reply.unplaced) == (3, 0)
        found = await live_deployment(platform, "own-1")
        assert found["metadata"]["labels"] == {"spillway.io/fleet": FLEET_ID, "spillway.io/workload": "web"}
        assert found["spec"] == spec
        assert await uids_by_kind(platform, "own-1") == before
        again = await platform.planner().adopt(
            AdoptRequest(NAMESPACE, "web", "deployment", ("own-1",), ONLY_OWN_1, "k1")
        )
        assert again == replace(reply, inputs=())

        await platform.planner().scale(ScaleRequest(NAMESPACE, "web", 5))
        await wait_until(lambda: _are_ready(platform, 5), "five run")
        scaled = await uids_by_kind(platform, "own-1")
        assert scaled["pods"] > before["pods"]
        assert len(scaled["pods"]) == 5
        assert (scaled["deployments"], scaled["replicasets"]) == (before["deployments"], before["replicasets"])
        assert (await live_deployment(platform, "own-1"))["spec"] == spec | {"replicas": 5}

        await platform.planner().disown(DisownRequest(NAMESPACE, "web"))
        await wait_until(lambda: _is_workload_gone(platform), "it is disowned")
        assert our_marks_of(await live_deployment(platform, "own-1")) == set()
        assert (await live_deployment(platform, "own-1"))["spec"] == spec | {"replicas": 5}
        assert await uids_by_kind(platform, "own-1") == scaled
        assert (await platform.planner().list_orphans(ListOrphansRequest())).orphans == ()

        await adopt_workload(platform, "own-1")
        assert await uids_by_kind(platform, "own-1") == scaled


async def _are_ready(platform: InProcess, replicas: int, name: str = "web") -> bool:
    reply = await platform.planner().get(GetRequest(NAMESPACE, name))
    return sum(status.ready for status in reply.statuses if status.current) == replicas


async def _is_workload_gone(platform: InProcess, name: str = "web") -> bool:
    try:
        await platform.planner().get(GetRequest(NAMESPACE, name))
    except RequestError as error:
        return error.code == "NOT_FOUND"
    return False


async def test_what_a_later_apply_leaves_out_goes_from_an_adopted_object_too() -> None:
    """Though it was somebody else's update that had set it."""
    async with in_process_platform(FLEET) as platform:
        await join_members(platform)
        before = deployment_manifest()
        container = before["spec"]["template"]["spec"]["containers"][0]
        container["env"] = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
        await run_without_spillway(platform, "own-1", before)
        await adopt_workload(platform, "own-1", policy=ONLY_OWN_1)
        container["env"].pop()
        await platform.planner().apply(ApplyRequest((json.dumps(before), ONLY_OWN_1)))
        await wait_until(lambda: _is_settled(platform, "web"), "it is applied")
        found = await live_deployment(platform, "own-1")
        assert found["spec"]["template"]["spec"]["containers"][0]["env"] == [{"name": "A", "value": "1"}]


async def test_adopt_from_two_clusters_and_delete() -> None:
    async with in_process_platform(FLEET) as platform:
        await join_members(platform)
        await run_without_spillway(platform, "own-1", deployment_manifest(replicas=3))
        await run_without_spillway(platform, "own-2", deployment_manifest(replicas=2))
        reply = await adopt_workload(platform, "own-1", "own-2")
        assert {part.cluster: part.replicas for part in reply.parts} == {"own-1": 3, "own-2": 2}
        await platform.planner().delete(DeleteRequest(NAMESPACE, "web"))
        await wait_until(lambda: _is_workload_gone(platform), "it is deleted")
        assert await platform.member_api("own-1").get(DEPLOYMENTS, NAMESPACE, "web") is None


async def test_what_was_adopted_with_no_replicas_gets_a_new_template_too() -> None:
    """Its part said no number of a template, so it was taken for one that has the newest, whatever its object was."""
    async with in_process_platform(FLEET) as platform:
        await join_members(platform)
        await run_without_spillway(platform, "own-1", deployment_manifest(replicas=3))
        await run_without_spillway(platform, "own-2", deployment_manifest(replicas=0))
        await adopt_workload(platform, "own-1", "own-2")
        newer = deployment_manifest(replicas=3)
        newer["spec"]["template"]["spec"]["containers"][0]["image"] = "app:2"
        await platform.planner().apply(ApplyRequest((json.dumps(newer),)))
        for cluster in ("own-1", "own-2"):
            await wait_until(
                lambda cluster=cluster: _is_image_placed(platform, cluster, "app:2"), "the new template is there"
            )  # type: ignore[misc]
        await wait_until(lambda: _are_ready(platform, 3), "all three run")


async def _is_image_placed(platform: InProcess, cluster: str, image: str) -> bool:
    found = await live_deployment(platform, cluster)
    return bool(found["spec"]["template"]["spec"]["containers"][0]["image"] == image)


async def refusal_of_adoption(
    platform: InProcess, *clusters: str, kind: str = "deployment", name: str = "web"
) -> tuple[str, str]:
    with pytest.raises(RequestError) as raised:
        await platform.planner().adopt(AdoptRequest(NAMESPACE, name, kind, clusters))
    return raised.value.code, raised.value.text


async def test_what_cannot_be_adopted_is_refused_with_the_reason() -> None:
    async with in_process_platform(FLEET) as platform:
        await join_members(platform)
        other = deployment_manifest(replicas=2)
        other["spec"]["template"]["spec"]["containers"][0]["image"] = "app:2"
        await run_without_spillway(platform, "own-1", deployment_manifest())
        await run_without_spillway(platform, "own-2", other)
        code, text = await refusal_of_adoption(platform, "own-1", "own-2")
        assert code == "FAILED_PRECONDITION"
        assert "between clusters own-1 and own-2, first in spec.template.spec.containers[0].image" in text

        code, text = await refusal_of_adoption(platform, "own-1", kind="statefulset")
        assert (code, "cannot be adopted" in text) == ("INVALID_ARGUMENT", True)
        code, text = await refusal_of_adoption(platform, "own-1", name="nothing")
        assert (code, text) == ("NOT_FOUND", "deployment shop/nothing in cluster own-1: no Deployment of this name")
        code, text = await refusal_of_adoption(platform, "mars")
        assert (code, "a cluster of the fleet: own-1, own-2" in text) == ("INVALID_ARGUMENT", True)

        reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        scaler = {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "web-hpa", "namespace": NAMESPACE},
            "spec": {"scaleTargetRef": reference, "minReplicas": 1, "maxReplicas": 9},
        }
        await platform.member_api("own-1").create(HORIZONTAL_POD_AUTOSCALERS, scaler)
        code, text = await refusal_of_adoption(platform, "own-1")
        assert code == "FAILED_PRECONDITION"
        assert "HorizontalPodAutoscaler web-hpa scales it" in text

        foreign = deployment_manifest("theirs", labels={"spillway.io/fleet": "f9", "spillway.io/workload": "theirs"})
        await run_without_spillway(platform, "own-2", foreign)
        code, text = await refusal_of_adoption(platform, "own-2", name="theirs")
        assert (code, "it belongs to fleet f9" in text) == ("FAILED_PRECONDITION", True)

        await adopt_workload(platform, "own-2")
        code, text = await refusal_of_adoption(platform, "own-2")
        assert (code, "declared already" in text) == ("ALREADY_EXISTS", True)

        await platform.silence_member("own-1")
        await wait_until(lambda: _is_cluster_stale(platform, "own-1"), "own-1 is stale", 120)
        code, text = await refusal_of_adoption(platform, "own-1", name="api")
        assert (code, "cluster own-1: capacity is" in text) == ("FAILED_PRECONDITION", True)


def _is_cluster_stale(platform: InProcess, cluster: str) -> bool:
    planner = platform.planner()
    return bool(planner.state.clusters[cluster].staleness_reason(planner._clocks.steady(), 30.0))


async def test_no_owner_answers_in_time_and_the_same_key_tries_again() -> None:
    async with in_process_platform(FLEET) as platform:
        await join_members(platform)
        await run_without_spillway(platform, "own-1", deployment_manifest())
        await platform.stop_instance("propagator-1")
        with pytest.raises(RequestError) as raised:
            await platform.planner().adopt(
                AdoptRequest(NAMESPACE, "web", "deployment", ("own-1",), idempotency_key="k")
            )
        assert raised.value.code == "UNAVAILABLE"
        assert "no answer from own-1" in raised.value.text
        platform.start_instance("propagator-2")
        await wait_until(
            lambda: bool(platform.running["propagator-2"].service.clusters_worked_on), "it holds its clusters"
        )
        await adopt_workload(platform, "own-1", key="k")


async def _scale_by_hand(platform: InProcess, cluster: str, replicas: int) -> None:
    while True:
        found = await live_deployment(platform, cluster)
        version = found["metadata"]["resourceVersion"]
        try:
            await platform.member_api(cluster).patch(
                DEPLOYMENTS, NAMESPACE, "web", {"spec": {"replicas": replicas}}, resource_version=version
            )
        except Conflict:
            continue
        return


async def test_an_orphan_is_listed_and_can_be_adopted() -> None:
    """Its placement is gone from the log: it is left, said, listed, and taken over again with what goes along."""
    async with in_process_platform(FLEET) as platform:
        await join_members(platform)
        planner = platform.planner()
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf", "namespace": NAMESPACE}}
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web", "namespace": NAMESPACE},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
        }
        texts = (deployment("web", NAMESPACE, 6), json.dumps(config | {"data": {"a": "1"}}), json.dumps(service))
        await planner.apply(ApplyRequest(texts))
        await wait_until(lambda: _are_ready(platform, 6), "it runs")
        before = {name: await uids_by_kind(platform, name) for name in platform.members}
        bus = platform.running["planner-1"].bus
        for topic in (PLACEMENTS, WORKLOADS):
            await bus.publish(Tombstone(workload_address(topic, NAMESPACE, "web")))
        await platform.stop_instance("planner-1")
        platform.start_instance("planner-1")
        await wait_until(lambda: platform.planner().is_active, "a planner is active")
        planner = platform.planner()
        await wait_until(lambda: _has_orphans(platform, 6), "both are orphans, with what went along", 120)
        orphans = (await planner.list_orphans(ListOrphansRequest())).orphans
        assert [(one.cluster, one.kind, one.name, one.replicas, one.ready) for one in orphans] == [
            (cluster, *one)
            for cluster in ("own-1", "own-2")
            for one in (("ConfigMap", "conf", 0, 0), ("Deployment", "web", 3, 3), ("Service", "web", 0, 0))
        ]
        assert {name: await uids_by_kind(platform, name) for name in platform.members} == before

        await adopt_workload(platform, "own-1", "own-2")
        assert (await planner.list_orphans(ListOrphansRequest())).orphans == ()
        assert {name: await uids_by_kind(platform, name) for name in platform.members} == before
        reply = await planner.get(GetRequest(NAMESPACE, "web"))
        assert reply.placement.replicas == 6
        dependencies = planner.state.workloads[NAMESPACE, "web"].declared.dependencies
        assert {(one.kind, one.name) for one in dependencies} == {("ConfigMap", "conf"), ("Service", "web")}

        await planner.disown(DisownRequest(NAMESPACE, "web"))
        await wait_until(lambda: _is_workload_gone(platform), "it is disowned")
        for kind, name in ((CONFIG_MAPS, "conf"), (SERVICES, "web")):
            found = await platform.member_api("own-1").get(kind, NAMESPACE, name)
            assert found is not None
            assert our_marks_of(found) == set()


async def test_a_workload_that_is_declared_again_adopts_its_own_orphans_and_no_pod_restarts() -> None:
    """Its record was lost, and it was applied again before anybody looked: all of it waits for its own objects."""
    async with in_process_platform(FLEET) as platform:
        await join_members(platform)
        texts = (json.dumps(deployment_manifest(replicas=6)), SPREAD)
        await platform.planner().apply(ApplyRequest(texts))
        await wait_until(lambda: _are_ready(platform, 6), "it runs")
        before = {name: await uids_by_kind(platform, name) for name in platform.members}
        bus = platform.running["planner-1"].bus
        for topic in (PLACEMENTS, WORKLOADS):
            await bus.publish(Tombstone(workload_address(topic, NAMESPACE, "web")))
        await platform.stop_instance("planner-1")
        platform.start_instance("planner-1")
        await wait_until(lambda: platform.planner().is_active, "a planner is active")
        await wait_until(lambda: _has_orphans(platform, 2), "both are orphans", 120)
        planner = platform.planner()

        again = await planner.apply(ApplyRequest((json.dumps(deployment_manifest(replicas=9)), SPREAD)))
        assert (again.parts, again.unplaced) == ((), 9)
        assert again.warnings[-1].endswith(
            "; `spillway adopt deployment/web -n shop --cluster own-1 --cluster own-2` keeps it as it runs"
        )
        await asyncio.sleep(60)
        assert {name: await uids_by_kind(platform, name) for name in platform.members} == before

        reply = await adopt_workload(platform, "own-1", "own-2")
        assert {part.cluster: part.replicas for part in reply.parts} == {"own-1": 3, "own-2": 3}
        assert {name: await uids_by_kind(platform, name) for name in platform.members} == before
        assert (await planner.list_orphans(ListOrphansRequest())).orphans == ()

        await planner.apply(ApplyRequest((json.dumps(deployment_manifest(replicas=9)), SPREAD)))
        await wait_until(lambda: _are_ready(platform, 9), "nine run")
        for name in platform.members:
            now = await uids_by_kind(platform, name)
            assert now["pods"] >= before[name]["pods"]
            assert now["replicasets"] == before[name]["replicasets"]


async def test_one_that_was_disowned_and_applied_again_adopts_what_it_left() -> None:
    """Its objects are nobody's by then, so none of it can be placed where they are."""
    async with in_process_platform(FLEET) as platform:
        await join_members(platform)
        planner = platform.planner()
        await planner.apply(ApplyRequest((json.dumps(deployment_manifest(replicas=6)),)))
        await wait_until(lambda: _are_ready(platform, 6), "it runs")
        before = {name: await uids_by_kind(platform, name) for name in platform.members}
        await planner.disown(DisownRequest(NAMESPACE, "web"))
        await wait_until(lambda: _is_workload_gone(platform), "it is disowned")
        await planner.apply(ApplyRequest((json.dumps(deployment_manifest(replicas=6)),)))
        await wait_until(lambda: _is_nothing_placed(platform), "it is placed nowhere")
        await adopt_workload(platform, "own-1", "own-2")
        assert {name: await uids_by_kind(platform, name) for name in platform.members} == before


async def _is_nothing_placed(platform: InProcess) -> bool:
    return not (await platform.planner().get(GetRequest(NAMESPACE, "web"))).placement.parts


async def _has_orphans(platform: InProcess, count: int) -> bool:
    return len((await platform.planner().list_orphans(ListOrphansRequest())).orphans) == count


async def test_who_contests_is_named() -> None:
    async with in_process_platform(FLEET, propagator_settings=PropagatorSettings(corrections_max=1)) as platform:
        await join_members(platform)
        await run_without_spillway(platform, "own-1", deployment_manifest())
        await adopt_workload(platform, "own-1")
        reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        spec = {"scaleTargetRef": reference, "minReplicas": 1, "maxReplicas": 9}
        kind = "HorizontalPodAutoscaler"
        metadata = {"name": "web-hpa", "namespace": NAMESPACE}
        scaler = {"apiVersion": "autoscaling/v2", "kind": kind, "metadata": metadata, "spec": spec}
        await platform.member_api("own-1").create(HORIZONTAL_POD_AUTOSCALERS, scaler)
        for replicas in (7, 8):
            await _scale_by_hand(platform, "own-1", replicas)
            await wait_until(lambda: _is_right_or_contested(platform), "it is put right, or left")
        reply = await platform.planner().get(GetRequest(NAMESPACE, "web"))
        assert reply.statuses[0].state == "ReplicasContested"
        assert "HorizontalPodAutoscaler web-hpa" in reply.statuses[0].message


async def _is_right_or_contested(platform: InProcess) -> bool:
    reply = await platform.planner().get(GetRequest(NAMESPACE, "web"))
    found = await live_deployment(platform, "own-1")
    return found["spec"]["replicas"] == 3 or reply.statuses[0].state == "ReplicasContested"


async def test_what_is_whole_is_recovered_as_it_runs() -> None:
    """A StatefulSet in one cluster and a Job in another; a StatefulSet in two is left, with the reason."""
    async with in_process_platform(FLEET) as platform:
        await join_members(platform)

        def with_marks_of_former_fleet(made: dict[str, Any], name: str) -> dict[str, Any]:
            labels = {"spillway.io/fleet": "former-1", "spillway.io/workload": name}
            marks = {"labels": labels, "annotations": {"spillway.io/placement": "900.7"}}
            return made | {"metadata": {"name": name, "namespace": NAMESPACE, **marks}}

        doors = {name: platform.member_api(name) for name in ("own-1", "own-2")}
        await run_without_spillway(platform, "own-1", deployment_manifest("there"))
        await run_without_spillway(platform, "own-2", deployment_manifest("there"))
        await doors["own-1"].create(STATEFULSETS, with_marks_of_former_fleet(statefulset("db", 2), "db"))
        await doors["own-2"].create(JOBS, with_marks_of_former_fleet(job("sum", 2, 4, run_seconds=3600), "sum"))
        for door in doors.values():
            await door.create(STATEFULSETS, with_marks_of_former_fleet(statefulset("both", 1), "both"))
        await asyncio.sleep(5)

        async def get_both_objects() -> list[dict[str, Any] | None]:
            db, summed = (STATEFULSETS, NAMESPACE, "db"), (JOBS, NAMESPACE, "sum")
            return [await doors["own-1"].get(*db), await doors["own-2"].get(*summed)]

        before = await get_both_objects()
        shown = await platform.planner().recover_fleet(RecoverFleetRequest("former-1", confirmed=True))
        assert {one.name: (one.state, one.message) for one in shown.workloads} == {
            "both": ("Refused", "a StatefulSet goes whole to one cluster, and is in own-1 and own-2"),
            "db": ("Recovering", ""),
            "sum": ("Recovering", ""),
        }
        await wait_until(lambda: _is_settled(platform, "db"), "the StatefulSet is taken over")
        await wait_until(lambda: _is_settled(platform, "sum"), "the Job is taken over")
        after = await get_both_objects()
        for was, now in zip(before, after, strict=True):
            assert was is not None
            assert now is not None
            assert now["metadata"]["labels"]["spillway.io/fleet"] == FLEET_ID
            assert (now["metadata"]["uid"], now["spec"]) == (was["metadata"]["uid"], was["spec"])
        await platform.planner().scale(ScaleRequest(NAMESPACE, "db", 3))


async def test_a_fleet_whose_log_was_lost_is_recovered_as_it_runs() -> None:
    """Kafka was wiped: another fleet id, clusters joined again. What is left is taken over."""
    async with in_process_platform(FLEET) as platform:
        await join_members(platform)
        former = {"spillway.io/fleet": "former-1", "spillway.io/workload": "web"}
        old = deployment_manifest(labels=former, annotations={"spillway.io/placement": "900.7"})
        config = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "conf",
                "namespace": NAMESPACE,
                "labels": former,
                "annotations": {"spillway.io/declaration": "12.abc"},
            },
            "data": {"a": "1"},
        }
        foreign = deployment_manifest("theirs", labels={"spillway.io/fleet": "f9", "spillway.io/workload": "theirs"})
        for cluster, replicas in (("own-1", 3), ("own-2", 2)):
            one = json.loads(json.dumps(old))
            one["spec"]["replicas"] = replicas
            await run_without_spillway(platform, cluster, one)
            await platform.member_api(cluster).create(CONFIG_MAPS, config)
        await run_without_spillway(platform, "own-1", foreign)
        before = {name: await uids_by_kind(platform, name) for name in platform.members}
        specs = {name: (await live_deployment(platform, name))["spec"] for name in platform.members}

        shown = await platform.planner().recover_fleet(RecoverFleetRequest("former-1"))
        assert [(one.name, one.state, one.replicas) for one in shown.workloads] == [
            ("web", "Found", (("own-1", 3), ("own-2", 2)))
        ]
        assert (await live_deployment(platform, "own-1"))["metadata"]["labels"] == former

        await platform.planner().recover_fleet(RecoverFleetRequest("former-1", confirmed=True))
        await wait_until(lambda: _is_settled(platform, "web"), "it is taken over")
        again = await platform.planner().recover_fleet(RecoverFleetRequest("former-1", confirmed=True))
        assert (again.workloads, again.remaining) == ((), 0)
        for name in platform.members:
            found = await live_deployment(platform, name)
            assert found["metadata"]["labels"] == {"spillway.io/fleet": FLEET_ID, "spillway.io/workload": "web"}
            assert found["spec"] == specs[name]
            along = await platform.member_api(name).get(CONFIG_MAPS, NAMESPACE, "conf")
            assert along is not None
            assert along["metadata"]["labels"]["spillway.io/fleet"] == FLEET_ID
            assert along["data"] == {"a": "1"}
        assert {name: await uids_by_kind(platform, name) for name in platform.members} == before
        assert (await live_deployment(platform, "own-1", "theirs"))["metadata"]["labels"]["spillway.io/fleet"] == "f9"

        await platform.planner().scale(ScaleRequest(NAMESPACE, "web", 7))
        await wait_until(lambda: _are_ready(platform, 7), "seven run")
        for name in platform.members:
            assert (await uids_by_kind(platform, name))["replicasets"] == before[name]["replicasets"]


async def test_an_image_that_somebody_set_in_a_member_outlives_scaling_under_a_freeze() -> None:
    """What is frozen does not roll, whatever changes the replicas; the status says which field is not as declared."""
    async with in_process_platform(FLEET) as platform:
        await join_members(platform)
        planner, api = platform.planner(), platform.member_api("own-2")
        await planner.apply(ApplyRequest((json.dumps(deployment_manifest(replicas=12)),)))
        await wait_until(lambda: _are_ready(platform, 12), "all run")
        template = (await live_deployment(platform, "own-2"))["spec"]["template"]
        template["spec"]["containers"][0]["image"] = "hotfix:1"
        await api.patch(DEPLOYMENTS, NAMESPACE, "web", {"spec": {"template": template}}, resource_version="")
        await asyncio.sleep(60)
        before = {pod["metadata"]["uid"] for pod in await api.list(PODS)}
        await planner.freeze(FreezeRequest("fleet", "incident"))
        await planner.scale(ScaleRequest(NAMESPACE, "web", 14))
        await wait_until(lambda: _are_available(platform, "own-2", "web", 7), "seven run in own-2")
        await asyncio.sleep(60)
        assert before < {pod["metadata"]["uid"] for pod in await api.list(PODS)}
        said = {status.cluster: status.message for status in (await planner.get(GetRequest(NAMESPACE, "web"))).statuses}
        assert said["own-1"] == ""
        assert "changed in the cluster: spec.template.spec.containers[0].image" in said["own-2"]


async def test_an_orphan_that_nobody_has_said_yet_is_left_and_its_replicas_go_elsewhere() -> None:
    """A cluster that was lost joins again and is given replicas while no propagator is there to say what it has."""
    async with in_process_platform(FLEET) as platform:
        await join_members(platform)
        planner, api = platform.planner(), platform.member_api("own-2")
        await planner.apply(ApplyRequest((json.dumps(deployment_manifest(replicas=12)),)))
        await wait_until(lambda: _are_ready(platform, 12), "all run")
        before = {pod["metadata"]["uid"] for pod in await api.list(PODS)}
        await platform.silence_member("own-2")
        await asyncio.sleep(60)
        await planner.leave_cluster(LeaveClusterRequest("own-2", lost=True))
        await wait_until(lambda: "own-2" not in planner.state.clusters, "it left")
        await asyncio.sleep(30)
        await platform.kill_instance("propagator-1")
        await platform.wake_member("own-2")
        await join_members(platform)
        reply = await planner.scale(ScaleRequest(NAMESPACE, "web", 14))
        assert "own-2" in {part.cluster for part in reply.parts}
        platform.start_instance("propagator-2")
        await wait_until(lambda: _are_ready(platform, 14), "all run in own-1")
        await wait_until(lambda: _has_orphans(platform, 1), "the orphan is said")
        assert {pod["metadata"]["uid"] for pod in await api.list(PODS)} == before
        reply = (await planner.get(GetRequest(NAMESPACE, "web"))).placement
        assert [(part.cluster, part.replicas) for part in reply.parts] == [("own-1", 14)]

        code, text = await refusal_of_adoption(platform, "own-2")
        commands = (
            "`spillway disown deployment/web -n shop --wait`, "
            "then `spillway adopt deployment/web -n shop --cluster own-1 --cluster own-2`"
        )
        assert (code, commands in text) == ("ALREADY_EXISTS", True)
        everywhere = {name: await uids_by_kind(platform, name) for name in platform.members}
        await planner.disown(DisownRequest(NAMESPACE, "web"))
        await wait_until(lambda: _is_workload_gone(platform), "it is disowned")
        reply = await adopt_workload(platform, "own-1", "own-2")
        assert {part.cluster: part.replicas for part in reply.parts} == {"own-1": 14, "own-2": 6}
        assert {name: await uids_by_kind(platform, name) for name in platform.members} == everywhere


async def test_what_was_disowned_and_adopted_again_takes_the_same_manifests_again() -> None:
    """Its ConfigMap bears no mark any more; it is as declared, so it is used and left."""
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"color": "blue"}}
    settings["metadata"] = {"name": "settings", "namespace": NAMESPACE}
    declared = ApplyRequest((json.dumps(deployment_manifest(replicas=6)), json.dumps(settings), ONLY_OWN_1))
    async with in_process_platform(FLEET) as platform:
        await join_members(platform)
        planner = platform.planner()

        async def are_running(replicas: int) -> bool:
            there = await platform.member_api("own-1").get(DEPLOYMENTS, NAMESPACE, "web")
            return there is not None and await _are_available(platform, "own-1", "web", replicas)

        await planner.apply(declared)
        await wait_until(lambda: are_running(6), "it runs")
        await planner.disown(DisownRequest(NAMESPACE, "web"))
        await wait_until(lambda: _is_workload_gone(platform), "it is disowned")
        await adopt_workload(platform, "own-1")
        await planner.apply(declared)
        await planner.scale(ScaleRequest(NAMESPACE, "web", 9))
        await wait_until(lambda: are_running(9), "nine run")
        kept = await platform.member_api("own-1").get(CONFIG_MAPS, NAMESPACE, "settings")
        assert kept is not None
        assert not our_marks_of(kept)
