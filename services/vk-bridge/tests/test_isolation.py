"""What an error of ours costs, on the whole service: the pod, the node, the pool or the owner that it was met at."""

import asyncio
from typing import Any, NoReturn

import pytest

from sim.manifests import pod
from spillway import metrics
from spillway.lending_marks import virtual_node_name
from vk_bridge.cluster import pod_conversion, pod_writer
from vk_bridge.cluster.node_reader import NodeReading
from vk_bridge.cluster.pod_writer import PodWriter
from vk_bridge.cluster.pools import Pools
from vk_bridge.core.node.steps import NodeContext
from vk_bridge.core.pod.conversion import convert_pod
from vk_bridge.core.pod.steps import PodStep, PoolPod, RealPod
from vk_bridge.log.usage_reporter import UsageReporter
from vk_bridge.owner_worker import OwnerWorker

from .lending_fleet import OTHER, OWN, POOL, TOLERATES_LOANS, LendingFleet, assert_holds_for, run_on_fleet, wait_until

pytestmark = pytest.mark.looptime
VIRTUAL = virtual_node_name(OWN, "n0")


def failed_work_count(what: str) -> float:
    return metrics.WORK_FAILED.labels("vk-bridge", what)._value.get()


async def create_pool_pod(fleet: LendingFleet, name: str, **spec: Any) -> None:
    manifest = pod(name, tolerations=TOLERATES_LOANS, **spec)
    await fleet.send_request(POOL, "POST", "/api/v1/namespaces/default/pods", manifest)


def pool_pod_status(fleet: LendingFleet, name: str) -> dict[str, Any]:
    found = fleet.clusters[POOL].get_object("pods", name, "default")
    assert found is not None
    return dict(found["status"])


def pool_pod_phase(fleet: LendingFleet, name: str) -> str:
    return str(pool_pod_status(fleet, name).get("phase"))


async def lend_node(fleet: LendingFleet) -> None:
    await fleet.declare_lending()
    await fleet.start()
    await wait_until(fleet.is_virtual_node_open)


@pytest.mark.parametrize(
    "spec",
    [
        {"volumes": [{"name": "v", "secret": {"secretName": ".."}}]},
        {"volumes": [{"name": "v", "configMap": {"name": "."}}]},
        {"imagePullSecrets": [{"name": ".."}]},
    ],
)
async def test_a_pod_that_names_what_no_object_is_called_is_refused_and_costs_nobody(spec: dict[str, Any]) -> None:
    async with LendingFleet(1) as fleet:
        await lend_node(fleet)
        before = failed_work_count("pod")
        await create_pool_pod(fleet, "odd", **spec)
        await wait_until(lambda: pool_pod_phase(fleet, "odd") == "Failed")
        assert pool_pod_status(fleet, "odd")["reason"] == "NotLendable"
        assert "no object can have this name" in pool_pod_status(fleet, "odd")["message"]
        await create_pool_pod(fleet, "good")
        await wait_until(lambda: pool_pod_phase(fleet, "good") == "Running")
        assert (failed_work_count("pod"), len(fleet.turn_claims())) == (before, 1)


@run_on_fleet()
async def test_a_pod_at_which_the_conversion_fails_is_refused_once_and_others_run(fleet: LendingFleet) -> None:
    def convert_unless_odd(found: Any, *more: Any) -> Any:
        return {}["nothing"] if found["metadata"]["name"] == "odd" else convert_pod(found, *more)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pod_conversion, "convert_pod", convert_unless_odd)
        await lend_node(fleet)
        before = failed_work_count("pod")
        await create_pool_pod(fleet, "odd")
        await wait_until(lambda: pool_pod_phase(fleet, "odd") == "Failed")
        assert pool_pod_status(fleet, "odd")["message"] == "the pod cannot be read: KeyError: 'nothing'"
        await create_pool_pod(fleet, "good")
        await wait_until(lambda: pool_pod_phase(fleet, "good") == "Running")
        await asyncio.sleep(60)
        assert failed_work_count("pod") == before + 1


@run_on_fleet()
async def test_an_error_at_one_pods_step_costs_that_pod_alone(fleet: LendingFleet) -> None:
    create = PodWriter._create_real_pod

    async def create_unless_odd(self: PodWriter, reading: Any, found: Any, answers: Any) -> bool:
        assert found["metadata"]["name"] != "odd"
        return await create(self, reading, found, answers)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PodWriter, "_create_real_pod", create_unless_odd)
        await lend_node(fleet)
        before = failed_work_count("pod")
        await create_pool_pod(fleet, "odd")
        await create_pool_pod(fleet, "good")
        await wait_until(lambda: pool_pod_phase(fleet, "good") == "Running")
        await asyncio.sleep(60)
        assert before + 5 <= failed_work_count("pod") <= before + 20
        assert len(fleet.turn_claims()) == 1
    await wait_until(lambda: pool_pod_phase(fleet, "odd") == "Running")


@run_on_fleet()
async def test_an_error_in_the_decision_on_one_pod_costs_that_pod_alone(fleet: LendingFleet) -> None:
    decide = pod_writer.pod_step

    def decide_unless_odd(pool: PoolPod | None, real: RealPod | None, context: NodeContext) -> PodStep | None:
        odd = fleet.clusters[POOL].get_object("pods", "odd", "default")
        assert pool is None or odd is None or pool.uid != odd["metadata"]["uid"]
        return decide(pool, real, context)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pod_writer, "pod_step", decide_unless_odd)
        await lend_node(fleet)
        before, node_before = failed_work_count("pod"), failed_work_count("node")
        await create_pool_pod(fleet, "odd")
        await create_pool_pod(fleet, "good")
        await wait_until(lambda: pool_pod_phase(fleet, "good") == "Running")
        assert failed_work_count("pod") > before
        assert failed_work_count("node") == node_before
    await wait_until(lambda: pool_pod_phase(fleet, "odd") == "Running")


@run_on_fleet(nodes=2)
async def test_an_error_at_one_node_costs_that_node_alone_which_is_tried_again_ever_later(fleet: LendingFleet) -> None:
    plan = OwnerWorker._plan_writes

    def plan_unless_first_node(self: OwnerWorker, reading: NodeReading) -> Any:
        assert reading.name != "n0"
        return plan(self, reading)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(OwnerWorker, "_plan_writes", plan_unless_first_node)
        before = failed_work_count("node")
        await fleet.declare_lending()
        await fleet.start()
        await wait_until(lambda: fleet.is_virtual_node_open("n1"))
        await asyncio.sleep(200)
        assert not fleet.is_virtual_node_open("n0")
        assert len(fleet.turn_claims()) == 1
        assert failed_work_count("node") > before
    await wait_until(fleet.is_virtual_node_open)


@run_on_fleet()
async def test_an_error_at_a_word_of_a_pool_costs_that_pool_a_moment(fleet: LendingFleet) -> None:
    await lend_node(fleet)
    note, before = Pools._note_failure, failed_work_count("pool")

    def raise_type_error(*_: object) -> NoReturn:
        raise TypeError("an odd answer")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Pools, "_note_failure", staticmethod(raise_type_error))
        await create_pool_pod(fleet, "first")
        await wait_until(lambda: failed_work_count("pool") > before)
        await asyncio.sleep(30)
        assert failed_work_count("pool") <= before + 6
        assert Pools._note_failure is not note
    await create_pool_pod(fleet, "second")
    await wait_until(lambda: pool_pod_phase(fleet, "second") == "Running")
    assert len(fleet.turn_claims()) == 1


@run_on_fleet(owners=(OWN, OTHER))
async def test_an_error_of_one_owners_work_costs_no_other_owner(fleet: LendingFleet) -> None:
    take, before = UsageReporter.take_hours, failed_work_count("cluster")

    async def take_hours_unless_first_owner(self: UsageReporter, *more: Any) -> Any:
        assert self._api.name != OWN
        return await take(self, *more)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(UsageReporter, "take_hours", take_hours_unless_first_owner)
        await fleet.declare_lending()
        await fleet.declare_lending(owner=OTHER)
        await fleet.start()
        await wait_until(lambda: fleet.is_virtual_node_open(owner=OTHER))
        await wait_until(lambda: failed_work_count("cluster") >= before + 3)
        await assert_holds_for(lambda: fleet.is_virtual_node_open(owner=OTHER), 60)
    await wait_until(fleet.is_virtual_node_open, 300)
