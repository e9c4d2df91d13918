"""The core's decisions carried out on two simulated clusters, call by call: what it writes is what API servers take.

No service: one loan after the other, no watch, no turn. Asserted is what the two APIs show.
"""

import json
from collections.abc import Callable
from typing import Any

from sim.cluster import SimCluster
from sim.manifests import deployment, pod
from sim.rest import SimTransport
from sim.settings import NodeSpec, Settings
from spillway.events_lending import CAUSE_ASKED, NodeLent, NodeReturned
from spillway.kubernetes import objects
from spillway.lending_marks import LENDING, POOL_TAINT, virtual_node_name
from spillway.model import Generation
from vk_bridge.core.node.history import LoanHistory, LoanTerms
from vk_bridge.core.node.loan import Manifest, Observation
from vk_bridge.core.node.marks import mark_patch, read_owner_node
from vk_bridge.core.node.steps import (
    CloseVirtual,
    CreateVirtual,
    DeleteVirtual,
    DesiredLoan,
    FirstObservations,
    Mark,
    SayLent,
    SayReturned,
    ShowVirtual,
    Step,
    next_step,
    node_context,
)
from vk_bridge.core.node.virtual_node import (
    VirtualNodeSpec,
    amounts_taken_by_others,
    is_current,
    make_virtual_node,
    offered_amounts,
    read_virtual_node,
)
from vk_bridge.core.pod.conversion import ConvertedPod, PoolSide, convert_pod
from vk_bridge.core.pod.parsing import is_occupying_node, pool_of_real_pod, read_pool_pod, read_real_pod
from vk_bridge.core.pod.status import failed_status, mirrored_status
from vk_bridge.core.pod.steps import (
    CreateReal,
    DeletePool,
    DeleteReal,
    FailPool,
    LetGo,
    Mirror,
    PodStep,
    pod_pairs,
    pod_step,
    writes_of_step,
)

FLEET, NODE = "fleet-1", "n0"
NAME = virtual_node_name("own-1", NODE)
SIDE = PoolSide("pool-id", NAME, "10.0.0.9")
MERGE = "application/merge-patch+json"
NODES, PODS = "/api/v1/nodes", "/api/v1/pods"


def path_of_pod(found: Manifest) -> str:
    return f"/api/v1/namespaces/{found['metadata']['namespace']}/pods/{found['metadata']['name']}"


class Member:
    """A simulated cluster in a time of the test's own."""

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.cluster = SimCluster(name, Settings(start_delay_seconds=0.5), clock=clock)
        self.transport = SimTransport(self.cluster)

    async def send_request(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> Any:
        data = None if body is None else json.dumps(body).encode()
        answer = await self.transport.request(method, path, {}, data, content_type)
        assert answer.status < 300 or answer.status in (404, 409), answer.body
        return json.loads(answer.body) if answer.status < 300 else None

    async def list_objects(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.send_request("GET", path))["items"]
        return found

    async def merge_patch(self, path: str, body: Any) -> Any:
        return await self.send_request("PATCH", path, body, MERGE)

    async def delete_object(self, path: str, uid: str, version: str = "", grace_seconds: int | None = None) -> None:
        preconditions = {"uid": uid, **({"resourceVersion": version} if version else {})}
        grace = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        await self.send_request("DELETE", path, {"preconditions": preconditions, **grace})

    def run_due_steps(self) -> None:
        while True:
            due = self.cluster.control_plane.run_step(self.clock())
            if due is None or due > self.clock():
                return


class Driver:
    """Carries out what the core says, for one node."""

    def __init__(self) -> None:
        self.now = 0.0
        self.owner = Member("own-1", lambda: self.now)
        self.pool = Member("pool", lambda: self.now)
        self.sights, self.history = FirstObservations(), LoanHistory()
        self.deleting: dict[str, float] = {}
        self.sequence = 0
        self.lend, self.recall = True, ""
        self.log: list[NodeLent | NodeReturned] = []
        self.terms = LoanTerms("own-1", NODE, "pool", NAME, "idle", "idle")

    async def run_turns(self, turns: int) -> None:
        for _ in range(turns):
            await self.run_turn()
            self.now += 1.0
            for member in (self.owner, self.pool):
                member.run_due_steps()

    async def run_turn(self) -> None:
        self.sequence += 1
        generation = Generation(7, self.sequence)
        shown = await self.pool.send_request("GET", f"{NODES}/{NAME}")
        node = await self.owner.send_request("GET", f"{NODES}/{NODE}")
        pool_pods = [one for one in await self.pool.list_objects(PODS) if one["spec"].get("nodeName") == NAME]
        all_pods = [one for one in await self.owner.list_objects(PODS) if one["spec"].get("nodeName") == NODE]
        real_pods = [one for one in all_pods if pool_of_real_pod(one) == SIDE.pool_id]
        wanted = self._wanted_virtual_node(node, all_pods)
        real_by_uid = {one["metadata"]["labels"]["spillway.io/pool-uid"]: one for one in real_pods}
        observation = Observation(
            self.now,
            read_owner_node(node, FLEET),
            read_virtual_node(shown, "own-1", NODE, current=is_current(shown, wanted(True), 240)) if shown else None,
            tuple(map(read_pool_pod, pool_pods)),
            tuple(self._observed_real_pod(one, pool_pods) for one in real_pods),
            occupied=any(map(is_occupying_node, all_pods)),
            pool="pool",
        )
        last = self.log[-1] if self.log else None
        logged = last.loan if isinstance(last, NodeLent) else None
        desired = DesiredLoan(self.lend, generation, self.recall if logged else "", logged=logged, pool="pool")
        self.history.note_observation(NODE, observation, int(self.now * 1000))
        since = self.sights.first_read_at(NODE, observation.node, self.now)
        step = next_step(observation, desired, since, in_flight_seconds=5.0)
        if step is not None:
            await self._carry_out_step(step, node, shown, wanted, generation)
        pool_by_uid = {one["metadata"]["uid"]: one for one in pool_pods}
        context = node_context(observation, desired, grace_seconds=30)
        for pair in pod_pairs(observation.pool_pods, observation.real_pods):
            pod_action = pod_step(*pair, context)
            for write in writes_of_step(pod_action) if pod_action is not None else ():
                await self._carry_out_pod_step(write, pool_by_uid, real_by_uid)

    def _wanted_virtual_node(self, node: Manifest, all_pods: list[dict[str, Any]]) -> Callable[[bool], dict[str, Any]]:
        decoder = objects.object_decoder(objects.PODS)
        taken = amounts_taken_by_others([decoder.decode(json.dumps(one)) for one in all_pods], SIDE.pool_id)
        loan = read_owner_node(node, FLEET).loan or Generation(0, 0)
        virtual_spec = VirtualNodeSpec("own-1", loan, "idle", 0.0, SIDE.address, 10250)
        return lambda is_open: make_virtual_node(node, offered_amounts(node, taken), virtual_spec, is_open=is_open)

    def _observed_real_pod(self, found: Manifest, pool_pods: list[dict[str, Any]]) -> Any:
        uid, pool_uid = found["metadata"]["uid"], found["metadata"]["labels"]["spillway.io/pool-uid"]
        if found["metadata"].get("deletionTimestamp"):
            self.deleting.setdefault(uid, self.now)
        overdue = self.now >= self.deleting.get(uid, self.now) + 30
        shown = next((one for one in pool_pods if one["metadata"]["uid"] == pool_uid), None)
        news = shown is not None and mirrored_status(shown, found, SIDE.address) is not None
        return read_real_pod(found, overdue=overdue, news=news)

    async def _carry_out_step(
        self,
        step: Step,
        node: Manifest,
        shown: Manifest,
        wanted: Callable[[bool], dict[str, Any]],
        generation: Generation,
    ) -> None:
        match step:
            case Mark():
                await self.owner.merge_patch(f"{NODES}/{NODE}", mark_patch(node, step, FLEET))
            case CreateVirtual():
                await self.pool.send_request("POST", NODES, wanted(False))
            case ShowVirtual() | CloseVirtual():
                made = wanted(isinstance(step, ShowVirtual))
                version = {"resourceVersion": shown["metadata"]["resourceVersion"]}
                status = await self.pool.merge_patch(
                    f"{NODES}/{NAME}/status", {"metadata": version, "status": made["status"]}
                )
                version = {"resourceVersion": status["metadata"]["resourceVersion"]}
                rest = {"metadata": {**made["metadata"], **version}, "spec": made["spec"]}
                await self.pool.merge_patch(f"{NODES}/{NAME}", rest)
            case DeleteVirtual(virtual):
                await self.pool.delete_object(f"{NODES}/{NAME}", virtual.uid, virtual.resource_version)
            case SayLent():
                said = self.history.lent_record_to_publish(self.terms, generation, (), (), "")
                assert said is not None
                self.log.append(said)
            case SayReturned(loan):
                self.log.append(
                    self.history.returned_record_to_publish(self.terms, generation, loan, int(self.now * 1000))
                )

    async def _carry_out_pod_step(
        self, step: PodStep, pool_by_uid: dict[str, dict[str, Any]], real_by_uid: dict[str, dict[str, Any]]
    ) -> None:
        match step:
            case CreateReal(uid):
                found = convert_pod(pool_by_uid[uid], NODE, SIDE)
                if isinstance(found, ConvertedPod):
                    namespace = found.pod["metadata"]["namespace"]
                    await self.owner.send_request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
                    await self.owner.send_request("POST", f"/api/v1/namespaces/{namespace}/pods", found.pod)
                else:
                    status = failed_status(pool_by_uid[uid], "NotLendable", "; ".join(found.reasons))
                    await self.pool.merge_patch(f"{path_of_pod(pool_by_uid[uid])}/status", {"status": status})
            case Mirror(uid):
                status = mirrored_status(pool_by_uid[uid], real_by_uid[uid], SIDE.address)
                await self.pool.merge_patch(f"{path_of_pod(pool_by_uid[uid])}/status", {"status": status})
            case FailPool(uid, reason):
                status = failed_status(pool_by_uid[uid], reason, "")
                await self.pool.merge_patch(f"{path_of_pod(pool_by_uid[uid])}/status", {"status": status})
            case DeletePool(uid, grace_seconds, _):
                await self.pool.delete_object(path_of_pod(pool_by_uid[uid]), uid, grace_seconds=grace_seconds)
            case LetGo(uid):
                await self.pool.delete_object(path_of_pod(pool_by_uid[uid]), uid, grace_seconds=0)
            case DeleteReal(uid, grace_seconds):
                (found,) = (one for one in real_by_uid.values() if one["metadata"]["uid"] == uid)
                await self.owner.delete_object(path_of_pod(found), uid, grace_seconds=grace_seconds)

    # ── What the APIs show ──────────────────────────────────────────────────────────────────────────────────────

    async def owner_node_taints(self) -> list[str]:
        node = await self.owner.send_request("GET", f"{NODES}/{NODE}")
        return [f"{one['key']}={one['value']}" for one in node["spec"].get("taints") or ()]

    async def real_pod_phases(self) -> list[tuple[str, str]]:
        """Namespace and phase of the pods on the node, but for the daemon."""
        return sorted(
            (one["metadata"]["namespace"], one["status"]["phase"])
            for one in await self.owner.list_objects(PODS)
            if one["metadata"]["name"] != "daemon"
        )

    async def pool_pod_phases(self) -> list[tuple[str, str]]:
        """Node and phase of the pool's pods."""
        return sorted(
            (one["spec"].get("nodeName", ""), one["status"]["phase"]) for one in await self.pool.list_objects(PODS)
        )


async def driver_with_lent_node() -> Driver:
    driver = Driver()
    driver.owner.cluster.add_nodes([NodeSpec("n", 1, cpu_millis=8000)])
    daemon = pod("daemon", cpu="1", nodeName=NODE)
    daemon["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}
    ]
    await driver.owner.send_request("POST", "/api/v1/namespaces/kube-system/pods", daemon)
    driver.owner.run_due_steps()
    await driver.run_turns(14)
    return driver


async def test_an_idle_node_is_lent_runs_a_pools_pods_and_comes_back() -> None:
    driver = await driver_with_lent_node()
    assert await driver.owner_node_taints() == [f"{LENDING}=lent"]
    shown = await driver.pool.send_request("GET", f"{NODES}/{NAME}")
    assert (shown["status"]["allocatable"]["cpu"], shown["spec"]["unschedulable"]) == ("7000m", False)
    tolerations = [{"key": POOL_TAINT, "operator": "Exists"}]
    offline = deployment("encode", 3, cpu="3", tolerations=tolerations)
    await driver.pool.send_request("POST", "/apis/apps/v1/namespaces/default/deployments", offline)
    driver.pool.run_due_steps()
    await driver.run_turns(6)
    assert await driver.pool_pod_phases() == [("", "Pending"), (NAME, "Running"), (NAME, "Running")]
    assert await driver.real_pod_phases() == [("spillway-lent-default", "Running")] * 2
    driver.recall, driver.lend = CAUSE_ASKED, False
    await driver.run_turns(20)
    assert await driver.owner_node_taints() == []
    assert await driver.pool.send_request("GET", f"{NODES}/{NAME}") is None
    assert await driver.real_pod_phases() == []
    assert await driver.pool_pod_phases() == [("", "Pending")] * 3
    kinds = [(type(one).__name__, one.cause) for one in driver.log]
    assert kinds == [("NodeLent", ""), ("NodeReturned", CAUSE_ASKED)]
    node = await driver.owner.send_request("GET", f"{NODES}/{NODE}")
    assert not [key for part in ("labels", "annotations") for key in node["metadata"][part] if "spillway" in key]


async def test_a_pod_that_cannot_run_there_is_refused_with_the_reason() -> None:
    driver = await driver_with_lent_node()
    manifest = pod("greedy", tolerations=[{"operator": "Exists"}], hostPID=True)
    await driver.pool.send_request("POST", "/api/v1/namespaces/default/pods", manifest)
    driver.pool.run_due_steps()
    await driver.run_turns(3)
    greedy = await driver.pool.send_request("GET", "/api/v1/namespaces/default/pods/greedy")
    assert (greedy["status"]["phase"], greedy["status"]["reason"]) == ("Failed", "NotLendable")
    assert greedy["status"]["message"] == "hostPID: shares its host's"
    assert await driver.real_pod_phases() == []


async def test_a_closed_virtual_node_gets_no_pod_from_the_pools_scheduler() -> None:
    driver = await driver_with_lent_node()
    driver.recall, driver.lend = CAUSE_ASKED, False
    await driver.run_turns(2)
    shown = await driver.pool.send_request("GET", f"{NODES}/{NAME}")
    assert shown["status"]["allocatable"]["pods"] == "0"
    await driver.pool.send_request(
        "POST", "/api/v1/namespaces/default/pods", pod("any", tolerations=[{"operator": "Exists"}])
    )
    driver.pool.run_due_steps()
    assert await driver.pool_pod_phases() == [("", "Pending")]


async def test_an_owners_pod_on_a_lent_node_takes_it_back() -> None:
    """One that was bound without the scheduler; the daemon that was there all along does not."""
    driver = await driver_with_lent_node()
    await driver.owner.send_request("POST", "/api/v1/namespaces/default/pods", pod("theirs", nodeName=NODE))
    driver.owner.run_due_steps()
    driver.lend = False
    await driver.run_turns(16)
    assert await driver.owner_node_taints() == []
    assert await driver.real_pod_phases() == [("default", "Running")]
    last = driver.log[-1]
    assert isinstance(last, NodeReturned)
    assert last.cause == "Occupied"
