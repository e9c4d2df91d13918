"""The controllers at work in virtual time."""

import asyncio
from typing import Any

import pytest

from sim.cluster import SimCluster
from sim.core.pods import is_active, is_ready
from sim.manifests import deployment, pod
from sim.settings import LoadSpec, NodeGroupSpec, NodeSpec, Settings, Taint

pytestmark = pytest.mark.looptime
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def active_pods_of(cluster: SimCluster) -> list[dict[str, Any]]:
    return [one for one in cluster.objects("pods") if is_active(one)]


def get_deployment(cluster: SimCluster, name: str = "web") -> dict[str, Any]:
    found = cluster.get_object("deployments", name, "default")
    assert found
    return found


async def test_a_deployment_becomes_ready_pods(client_of: Any) -> None:
    async with SimCluster("a", Settings(start_delay_seconds=5)) as cluster:
        cluster.add_nodes([NodeSpec("n", 2)])
        await client_of(cluster).create_deployment(deployment("web", 3))
        await asyncio.sleep(1)
        assert get_deployment(cluster)["status"]["unavailableReplicas"] == 3
        await asyncio.sleep(5)
        status = get_deployment(cluster)["status"]
        counts = {key: status[key] for key in ("replicas", "readyReplicas", "updatedReplicas", "availableReplicas")}
        assert set(counts.values()) == {3}
        assert status["observedGeneration"] == 1
        assert {one["type"]: one["status"] for one in status["conditions"]} == {
            "Available": "True",
            "Progressing": "True",
        }
        one = active_pods_of(cluster)[0]
        owner = one["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["controller"]) == ("ReplicaSet", True)
        assert owner["name"] == f"web-{one['metadata']['labels']['pod-template-hash']}"


async def test_a_rolling_update_keeps_to_its_limits(client_of: Any) -> None:
    async with SimCluster("a", Settings(start_delay_seconds=3)) as cluster:
        cluster.add_nodes([NodeSpec("n", 4)])
        client = client_of(cluster)
        await client.create_deployment(deployment("web", 8))
        await asyncio.sleep(10)
        changed = deployment("web", 8, image="app:2")["spec"]["template"]
        await client.merge_patch(f"{DEPLOYMENTS}/web", {"spec": {"template": changed}})
        for _ in range(300):
            await asyncio.sleep(0.1)
            assert len(active_pods_of(cluster)) <= 10
            assert sum(1 for one in active_pods_of(cluster) if is_ready(one)) >= 6
        assert {one["spec"]["containers"][0]["image"] for one in cluster.objects("pods")} == {"app:2"}
        status = get_deployment(cluster)["status"]
        assert (status["replicas"], status["updatedReplicas"], status["observedGeneration"]) == (8, 8, 2)


async def test_recreate_stops_the_old_first(client_of: Any) -> None:
    async with SimCluster("a", Settings(delete_delay_seconds=5)) as cluster:
        cluster.add_nodes([NodeSpec("n", 4)])
        client = client_of(cluster)
        await client.create_deployment(deployment("web", 2, strategy={"type": "Recreate"}))
        await asyncio.sleep(5)
        changed = deployment("web", 2, image="app:2")["spec"]["template"]
        await client.merge_patch(f"{DEPLOYMENTS}/web", {"spec": {"template": changed}})
        await asyncio.sleep(4)
        assert len(cluster.objects("pods")) == 2
        assert not active_pods_of(cluster)
        await asyncio.sleep(4)
        assert [one["spec"]["containers"][0]["image"] for one in active_pods_of(cluster)] == ["app:2"] * 2


async def test_scale_in_takes_pending_pods_first(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        cluster.add_nodes([NodeSpec("n", 1, cpu_millis=1000)])
        client = client_of(cluster)
        await client.create_deployment(deployment("web", 5, cpu="500m"))
        await asyncio.sleep(2)
        status, scale = await client.merge_patch(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 2}})
        assert (status, scale["spec"]["replicas"]) == (200, 2)
        await asyncio.sleep(2)
        assert [bool(one["spec"].get("nodeName")) for one in active_pods_of(cluster)] == [True, True]


async def test_unschedulable_pods_say_why_and_are_tried_again(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        cluster.add_nodes([NodeSpec("n", 2, cpu_millis=400), NodeSpec("g", 1, taints=(Taint("gpu", "only"),))])
        await client_of(cluster).create_deployment(deployment("web", 2, cpu="500m"))
        await asyncio.sleep(1)
        refusal = active_pods_of(cluster)[0]["status"]["conditions"][0]
        assert (refusal["type"], refusal["status"], refusal["reason"]) == ("PodScheduled", "False", "Unschedulable")
        expected = "0/3 nodes are available: 1 node(s) had untolerated taint {gpu: only}, 2 Insufficient cpu."
        assert refusal["message"] == expected
        cluster.untaint("g0", "gpu")
        await asyncio.sleep(2)
        assert {one["spec"].get("nodeName") for one in active_pods_of(cluster)} == {"g0"}


async def test_the_bind_rate_and_delay_are_kept(client_of: Any) -> None:
    settings = Settings(binds_per_second=10, bind_delay_seconds=1, start_delay_seconds=0)
    async with SimCluster("a", settings) as cluster:
        cluster.add_nodes([NodeSpec("n", 2)])
        await client_of(cluster).create_deployment(deployment("web", 50))
        await asyncio.sleep(3.05)
        bound = sum(1 for one in active_pods_of(cluster) if one["spec"].get("nodeName"))
        assert 19 <= bound <= 22
        await asyncio.sleep(4)
        assert all(is_ready(one) for one in active_pods_of(cluster))


async def test_a_node_group_grows_after_its_lead_time_and_not_beyond_its_maximum(client_of: Any) -> None:
    group = NodeGroupSpec(NodeSpec("late-", cpu_millis=1000, zones=("x", "y")), max=3, lead_time_seconds=60)
    async with SimCluster("a", Settings(node_groups=(group,))) as cluster:
        await client_of(cluster).create_deployment(deployment("web", 10, cpu="500m"))
        await asyncio.sleep(59)
        assert not cluster.objects("nodes")
        await asyncio.sleep(300)
        zones = [one["metadata"]["labels"]["topology.kubernetes.io/zone"] for one in cluster.objects("nodes")]
        assert zones == ["x", "y", "x"]
        assert sum(1 for one in active_pods_of(cluster) if is_ready(one)) == 6


async def test_a_quota_stops_pods_and_the_deployment_says_so(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        cluster.add_nodes([NodeSpec("n", 1)])
        client = client_of(cluster)
        quota = {"metadata": {"name": "team"}, "spec": {"hard": {"pods": "2", "requests.cpu": "1"}}}
        await client.send_request("POST", "/api/v1/namespaces/default/resourcequotas", quota)
        await client.create_deployment(deployment("web", 3))
        await asyncio.sleep(2)
        assert len(active_pods_of(cluster)) == 2
        failure = next(
            one for one in get_deployment(cluster)["status"]["conditions"] if one["type"] == "ReplicaFailure"
        )
        assert failure["message"].endswith("exceeded quota: team, requested: pods=1, used: pods=2, limited: pods=2")
        found = cluster.get_object("resourcequotas", "team", "default")
        assert found
        assert found["status"]["used"] == {"pods": "2", "requests.cpu": "200m"}
        assert (await client.create_pod(pod("extra")))[0] == 403
        await client.merge_patch("/api/v1/namespaces/default/resourcequotas/team", {"spec": {"hard": {"pods": "5"}}})
        await asyncio.sleep(2)
        assert len(active_pods_of(cluster)) == 3
        assert all(one["type"] != "ReplicaFailure" for one in get_deployment(cluster)["status"]["conditions"])


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
async def test_deleting_a_deployment_deletes_all_it_owns(client_of: Any, policy: str) -> None:
    async with SimCluster("a", Settings(delete_delay_seconds=1)) as cluster:
        cluster.add_nodes([NodeSpec("n", 1)])
        client = client_of(cluster)
        await client.create_deployment(deployment("web", 3))
        await asyncio.sleep(2)
        await client.send_request("DELETE", f"{DEPLOYMENTS}/web", {"propagationPolicy": policy})
        await asyncio.sleep(0.5)
        assert bool(cluster.objects("deployments")) is (policy == "Foreground")
        assert len(cluster.objects("pods")) == 3
        await asyncio.sleep(2)
        assert not cluster.objects("deployments") + cluster.objects("replicasets") + cluster.objects("pods")


async def test_orphans_stay(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        await client.create_deployment(deployment("web", 2))
        await asyncio.sleep(1)
        await client.send_request("DELETE", f"{DEPLOYMENTS}/web", {"propagationPolicy": "Orphan"})
        await asyncio.sleep(5)
        assert (len(cluster.objects("replicasets")), len(cluster.objects("pods"))) == (1, 2)


async def test_a_namespace_takes_everything_with_it(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        cluster.add_nodes([NodeSpec("n", 1)])
        client = client_of(cluster)
        await client.send_request("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
        await client.create_deployment(deployment("web", 2), "team")
        await asyncio.sleep(2)
        await client.send_request("DELETE", "/api/v1/namespaces/team")
        assert (await client.create_pod(pod("late"), "team"))[0] == 403
        await asyncio.sleep(2)
        assert (await client.create_pod(pod("late"), "team"))[0] == 404
        assert not cluster.objects("pods")


async def test_pods_leave_lost_and_no_execute_nodes(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        cluster.add_nodes([NodeSpec("n", 3)])
        await client_of(cluster).create_deployment(deployment("web", 6))
        await asyncio.sleep(2)
        cluster.remove_node("n0")
        cluster.taint("n1", Taint("broken", "", "NoExecute"))
        await asyncio.sleep(2)
        assert [one["spec"]["nodeName"] for one in active_pods_of(cluster)] == ["n2"] * 6


async def test_a_bound_pod_without_room_is_refused_by_the_kubelet(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        cluster.add_nodes([NodeSpec("n", 1, cpu_millis=100)])
        client = client_of(cluster)
        await client.create_pod(pod("fits", cpu="100m", nodeName="n0"))
        await client.create_pod(pod("refused", cpu="100m", nodeName="n0"))
        await asyncio.sleep(2)
        refused = cluster.get_object("pods", "refused", "default")
        assert refused
        assert (refused["status"]["phase"], refused["status"]["reason"]) == ("Failed", "OutOfcpu")


async def test_a_bound_pod_that_selects_other_nodes_is_refused_by_the_kubelet(client_of: Any) -> None:
    """Though nobody asked the scheduler; and after the resources, which kubelets look at first."""
    async with SimCluster("a") as cluster:
        cluster.add_nodes([NodeSpec("n", 1, cpu_millis=200, labels={"lent": "yes"})])
        client = client_of(cluster)
        await client.create_pod(pod("runs", cpu="100m", nodeName="n0", nodeSelector={"lent": "yes"}))
        await client.create_pod(pod("elsewhere", cpu="100m", nodeName="n0", nodeSelector={"lent": "no"}))
        await client.create_pod(pod("too-large", cpu="300m", nodeName="n0", nodeSelector={"lent": "no"}))
        await asyncio.sleep(2)
        found = {one["metadata"]["name"]: one["status"] for one in cluster.objects("pods")}
        assert found["runs"]["phase"] == "Running"
        assert (found["elsewhere"]["phase"], found["elsewhere"]["reason"]) == ("Failed", "NodeAffinity")
        assert "Predicate NodeAffinity failed" in found["elsewhere"]["message"]
        assert found["too-large"]["reason"] == "OutOfcpu"


AMOUNTS = {"cpu": "1", "memory": "1Gi", "pods": "10"}
READY = {"type": "Ready", "status": "True"}


async def test_nodes_of_others_are_left_to_them(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        virtual = {"metadata": {"name": "v"}, "status": {"allocatable": AMOUNTS, "conditions": [READY]}}
        await client.send_request("POST", "/api/v1/nodes", virtual)
        await client.create_pod(pod("p"))
        await asyncio.sleep(5)
        found = cluster.get_object("pods", "p", "default")
        assert found
        assert (found["spec"]["nodeName"], found["status"]["phase"]) == ("v", "Pending")


async def test_a_virtual_node_has_no_kubelet_whatever_its_annotations_say(client_of: Any) -> None:
    """Its annotations may be its real node's."""
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        marks = {"labels": {"type": "virtual-kubelet"}, "annotations": {"kwok.x-k8s.io/node": "fake"}}
        virtual = {"metadata": {"name": "v", **marks}, "status": {"allocatable": AMOUNTS, "conditions": [READY]}}
        await client.send_request("POST", "/api/v1/nodes", virtual)
        await client.create_pod(pod("p"))
        await asyncio.sleep(5)
        await client.send_request("DELETE", "/api/v1/namespaces/default/pods/p")
        await asyncio.sleep(60)
        found = cluster.get_object("pods", "p", "default")
        assert found
        assert (found["spec"]["nodeName"], found["status"]["phase"]) == ("v", "Pending")


async def test_a_node_whose_lease_ends_takes_no_pod_until_somebody_says_that_it_is_ready(client_of: Any) -> None:
    """Whatever time stands in the Lease: a renewal counts from when it is seen. What runs there is left alone."""
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        ready = {"status": {"allocatable": AMOUNTS, "conditions": [READY]}}
        await client.send_request("POST", "/api/v1/nodes", {"metadata": {"name": "v"}, **ready})
        await client.create_pod(pod("before"))
        await asyncio.sleep(1000)
        await client.send_request(
            "POST", leases, {"metadata": {"name": "v"}, "spec": {"renewTime": "2020-01-01T00:00:00Z"}}
        )
        await asyncio.sleep(30)
        await client.merge_patch(f"{leases}/v", {"spec": {"renewTime": "2020-01-01T00:00:30Z"}})
        await asyncio.sleep(39)
        assert readiness_and_taints(cluster) == ("True", [])
        await asyncio.sleep(2)
        assert readiness_and_taints(cluster) == ("Unknown", ["node.kubernetes.io/unreachable"])
        await client.create_pod(pod("while"))
        await asyncio.sleep(5)
        assert [one["spec"].get("nodeName", "") for one in active_pods_of(cluster)] == ["v", ""]
        await client.merge_patch(f"{leases}/v", {"spec": {"renewTime": "2020-01-01T00:01:30Z"}})
        await client.merge_patch("/api/v1/nodes/v/status", ready)
        await asyncio.sleep(5)
        assert readiness_and_taints(cluster) == ("True", [])
        assert [one["spec"].get("nodeName", "") for one in active_pods_of(cluster)] == ["v", "v"]
        await client.send_request("DELETE", f"{leases}/v")
        await asyncio.sleep(1000)
        assert readiness_and_taints(cluster) == ("True", []), "a node without a Lease is believed"


def readiness_and_taints(cluster: SimCluster) -> tuple[str, list[str]]:
    node = cluster.get_object("nodes", "v")
    assert node
    (ready,) = node["status"]["conditions"]
    return ready["status"], [one["key"] for one in node["spec"]["taints"]]


async def test_a_pod_takes_its_own_time_to_end_and_its_grace_at_most(client_of: Any) -> None:
    """A second deletion with less grace ends it sooner, one with more does not save it."""
    async with SimCluster("a") as cluster:
        cluster.add_nodes([NodeSpec("n", 1)])
        client = client_of(cluster)
        ends = {"quick": (2, 30, None), "stubborn": (900, 30, None), "hurried": (900, 30, 5), "late": (900, 20, 40)}
        for name, (seconds, _, _) in ends.items():
            manifest = pod(name)
            manifest["metadata"]["annotations"] = {"sim/stop-seconds": str(seconds)}
            await client.create_pod(manifest)
        await asyncio.sleep(2)
        for name, (_, first, second) in ends.items():
            for grace in (first, second):
                if grace is not None:
                    path = f"/api/v1/namespaces/default/pods/{name}"
                    await client.send_request("DELETE", path, {"gracePeriodSeconds": grace})
        for seconds, left in ((1, 4), (2, 3), (3, 2), (15, 1), (10, 0)):
            await asyncio.sleep(seconds)
            assert len(cluster.objects("pods")) == left


async def test_a_loaded_cluster_is_at_rest_and_consistent() -> None:
    async with SimCluster("a") as cluster:
        cluster.load_objects([NodeSpec("n", 10)], LoadSpec(pods=200, deployments=3))
        version = cluster.control_plane.world.store.version
        await asyncio.sleep(60)
        assert cluster.control_plane.world.store.version == version
        free = sum(one.free["cpu"] for one in cluster.control_plane.table.record_by_name.values())
        assert free == 10 * 32_000 - 200 * 500
        cluster.remove_node("n0")
        await asyncio.sleep(5)
        assert sum(1 for one in active_pods_of(cluster) if is_ready(one)) == 200


async def test_the_same_seed_gives_the_same_cluster(client_of: Any) -> None:
    found = []
    for _ in range(2):
        async with SimCluster("a", Settings(seed=7, score="random")) as cluster:
            cluster.add_nodes([NodeSpec("n", 5)])
            await client_of(cluster).create_deployment(deployment("web", 20))
            await asyncio.sleep(5)
            found.append([(one["metadata"]["name"], one["spec"]["nodeName"]) for one in active_pods_of(cluster)])
    assert found[0] == found[1]
