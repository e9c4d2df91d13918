"""StatefulSets and Jobs at work in virtual time."""

import asyncio
from typing import Any

import pytest

from sim.cluster import SimCluster
from sim.core.pods import is_active
from sim.manifests import job, statefulset
from sim.settings import NodeSpec, Settings

pytestmark = pytest.mark.looptime
STATEFULSETS = "/apis/apps/v1/namespaces/default/statefulsets"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


def active_pod_names(cluster: SimCluster) -> list[str]:
    return sorted(one["metadata"]["name"] for one in cluster.objects("pods") if is_active(one))


def status_of_object(cluster: SimCluster, plural: str, name: str) -> dict[str, Any]:
    found = cluster.get_object(plural, name, "default")
    assert found
    return dict(found["status"])


@pytest.mark.parametrize(("policy", "after_start"), [("OrderedReady", 1), ("Parallel", 3)])
async def test_a_statefulset_makes_its_pods_in_order_or_at_once(client_of: Any, policy: str, after_start: int) -> None:
    async with SimCluster("a", Settings(start_delay_seconds=5)) as cluster:
        cluster.add_nodes([NodeSpec("n", 2)])
        await client_of(cluster).send_request("POST", STATEFULSETS, statefulset("db", 3, podManagementPolicy=policy))
        await asyncio.sleep(1)
        assert active_pod_names(cluster) == ["db-0", "db-1", "db-2"][:after_start]
        await asyncio.sleep(20)
        assert active_pod_names(cluster) == ["db-0", "db-1", "db-2"]
        found = status_of_object(cluster, "statefulsets", "db")
        fields = ("replicas", "readyReplicas", "updatedReplicas", "availableReplicas", "currentReplicas")
        assert {found[field] for field in fields} == {3}
        assert found["observedGeneration"] == 1


async def test_fewer_replicas_take_the_highest_ordinals(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        cluster.add_nodes([NodeSpec("n", 1, cpu_millis=1000)])
        client = client_of(cluster)
        await client.send_request(
            "POST", STATEFULSETS, statefulset("db", 4, cpu="300m", podManagementPolicy="Parallel")
        )
        await asyncio.sleep(5)
        assert sum(1 for one in cluster.objects("pods") if one["spec"].get("nodeName")) == 3
        code, _ = await client.merge_patch(f"{STATEFULSETS}/db", {"spec": {"replicas": 2}})
        assert code == 200
        await asyncio.sleep(5)
        assert active_pod_names(cluster) == ["db-0", "db-1"]


async def test_an_update_goes_from_the_highest_ordinal_down_one_by_one(client_of: Any) -> None:
    async with SimCluster("a", Settings(start_delay_seconds=2)) as cluster:
        cluster.add_nodes([NodeSpec("n", 2)])
        client = client_of(cluster)
        await client.send_request("POST", STATEFULSETS, statefulset("db", 3, podManagementPolicy="Parallel"))
        await asyncio.sleep(5)
        changed = statefulset("db", 3, image="app:2")["spec"]["template"]
        await client.merge_patch(f"{STATEFULSETS}/db", {"spec": {"template": changed}})
        seen: list[str] = []
        for _ in range(200):
            await asyncio.sleep(0.1)
            pods = [one for one in cluster.objects("pods") if is_active(one)]
            assert len(pods) >= 2
            for one in pods:
                image, name = one["spec"]["containers"][0]["image"], one["metadata"]["name"]
                if image == "app:2" and name not in seen:
                    seen.append(name)
        assert seen == ["db-2", "db-1", "db-0"]
        found = status_of_object(cluster, "statefulsets", "db")
        assert (found["updatedReplicas"], found["currentRevision"]) == (3, found["updateRevision"])


async def test_what_is_fixed_in_a_statefulset_is_refused(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        await client.send_request("POST", STATEFULSETS, statefulset("db", 1))
        code, said = await client.merge_patch(f"{STATEFULSETS}/db", {"spec": {"serviceName": "other"}})
        assert (code, "are forbidden" in said["message"]) == (422, True)


async def test_deleting_the_owner_deletes_its_pods(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        cluster.add_nodes([NodeSpec("n", 1)])
        client = client_of(cluster)
        await client.send_request("POST", STATEFULSETS, statefulset("db", 2))
        await client.send_request("POST", JOBS, job("sum", 2))
        await asyncio.sleep(5)
        assert len(active_pod_names(cluster)) == 4
        await client.send_request("DELETE", f"{STATEFULSETS}/db")
        await client.send_request("DELETE", f"{JOBS}/sum")
        await asyncio.sleep(5)
        assert active_pod_names(cluster) == []


async def test_a_job_runs_so_many_at_a_time_until_enough_succeeded(client_of: Any) -> None:
    async with SimCluster("a", Settings(start_delay_seconds=1)) as cluster:
        cluster.add_nodes([NodeSpec("n", 1)])
        await client_of(cluster).send_request("POST", JOBS, job("sum", 2, 5, run_seconds=10))
        actives = set()
        for _ in range(300):
            await asyncio.sleep(0.2)
            actives.add(len(active_pod_names(cluster)))
        assert max(actives) == 2
        found = status_of_object(cluster, "jobs", "sum")
        assert (found["succeeded"], found["ready"], "active" in found) == (5, 0, False)
        assert [(one["type"], one["status"]) for one in found["conditions"]] == [("Complete", "True")]
        assert len(cluster.objects("pods")) == 5


async def test_a_job_that_fails_too_often_ends(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        cluster.add_nodes([NodeSpec("n", 1)])
        manifest = job("sum", 1, 1, run_seconds=1, backoffLimit=2)
        manifest["spec"]["template"]["metadata"]["annotations"]["sim/ends-as"] = "Failed"
        await client_of(cluster).send_request("POST", JOBS, manifest)
        await asyncio.sleep(30)
        found = status_of_object(cluster, "jobs", "sum")
        assert (found["failed"], [one["type"] for one in found["conditions"]]) == (3, ["Failed"])
        assert active_pod_names(cluster) == []


async def test_a_suspended_job_has_no_pods_until_it_is_resumed(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        cluster.add_nodes([NodeSpec("n", 1)])
        client = client_of(cluster)
        await client.send_request("POST", JOBS, job("sum", 2, suspend=True))
        await asyncio.sleep(2)
        assert (active_pod_names(cluster), status_of_object(cluster, "jobs", "sum")["conditions"][0]["type"]) == (
            [],
            "Suspended",
        )
        await client.merge_patch(f"{JOBS}/sum", {"spec": {"suspend": False}})
        await asyncio.sleep(2)
        assert len(active_pod_names(cluster)) == 2
        assert "conditions" not in status_of_object(cluster, "jobs", "sum")


async def test_a_jobs_template_is_fixed_and_an_apply_of_the_same_changes_nothing(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        code, made = await client.apply_manifest(f"{JOBS}/sum", job("sum", 2, 4))
        assert code == 201
        code, again = await client.apply_manifest(f"{JOBS}/sum", job("sum", 3, 4))
        assert (code, again["spec"]["parallelism"]) == (200, 3)
        assert again["spec"]["template"] == made["spec"]["template"]
        code, said = await client.apply_manifest(f"{JOBS}/sum", job("sum", 3, 4, image="app:2"))
        assert (code, said["details"]["causes"][0]["field"]) == (422, "spec.template")


async def test_a_quota_holds_pods_back_and_lets_them_in_when_it_has_room(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        cluster.add_nodes([NodeSpec("n", 1)])
        client = client_of(cluster)
        quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}}
        await client.send_request("POST", "/api/v1/namespaces/default/resourcequotas", quota)
        await client.send_request("POST", JOBS, job("sum", 2, 2, run_seconds=10))
        await asyncio.sleep(1)
        await client.send_request("POST", STATEFULSETS, statefulset("db", 2, podManagementPolicy="Parallel"))
        await asyncio.sleep(5)
        assert status_of_object(cluster, "statefulsets", "db")["replicas"] == 0
        await asyncio.sleep(15)
        assert active_pod_names(cluster) == ["db-0", "db-1"]
