"""What an error of ours costs, on the whole service: the pod, the node, the pool or the owner that it was met at."""

import asyncio
from typing import Any, NoReturn

import pytest

from sim.manifests import pod
from spillway import metrics
from spillway.lending_marks import virtual_node_name
from vk_bridge.cluster import lendable, pod_writer
from vk_bridge.cluster.node_reader import NodeReading
from vk_bridge.cluster.pod_writer import PodWriter
from vk_bridge.cluster.pools import Pools
from vk_bridge.core.node.steps import NodeContext
from vk_bridge.core.pod.conversion import convert_pod
from vk_bridge.core.pod.steps import PodStep, PoolPod, RealPod
from vk_bridge.log.usage_reporter import UsageReporter
from vk_bridge.owner_worker import OwnerWorker

from .lending_fleet import OTHER, OWN, POOL, TOLERATES_LOANS, LendingFleet, always, on_fleet, until

pytestmark = pytest.mark.looptime
VIRTUAL = virtual_node_name(OWN, "n0")


def failed(what: str) -> float:
    return metrics.WORK_FAILED.labels("vk-bridge", what)._value.get()


async def run_alone(fleet: LendingFleet, name: str, **spec: Any) -> None:
    manifest = pod(name, tolerations=TOLERATES_LOANS, **spec)
    await fleet.ask(POOL, "POST", "/api/v1/namespaces/default/pods", manifest)


def status(fleet: LendingFleet, name: str) -> dict[str, Any]:
    found = fleet.clusters[POOL].get_object("pods", name, "default")
    assert found is not None
    return dict(found["status"])


def phase(fleet: LendingFleet, name: str) -> str:
    return str(status(fleet, name).get("phase"))


async def lent(fleet: LendingFleet) -> None:
    await fleet.declare()
    await fleet.start()
    await until(fleet.is_open)


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
        await lent(fleet)
        before = failed("pod")
        await run_alone(fleet, "odd", **spec)
        await until(lambda: phase(fleet, "odd") == "Failed")
        assert status(fleet, "odd")["reason"] == "NotLendable"
        assert "no object can have this name" in status(fleet, "odd")["message"]
        await run_alone(fleet, "good")
        await until(lambda: phase(fleet, "good") == "Running")
        assert (failed("pod"), len(fleet.claims())) == (before, 1)


@on_fleet()
async def test_a_pod_at_which_the_conversion_fails_is_refused_once_and_others_run(fleet: LendingFleet) -> None:
    def stumbles(found: Any, *more: Any) -> Any:
        return {}["nothing"] if found["metadata"]["name"] == "odd" else convert_pod(found, *more)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lendable, "convert_pod", stumbles)
        await lent(fleet)
        before = failed("pod")
        await run_alone(fleet, "odd")
        await until(lambda: phase(fleet, "odd") == "Failed")
        assert status(fleet, "odd")["message"] == "the pod cannot be read: KeyError: 'nothing'"
        await run_alone(fleet, "good")
        await until(lambda: phase(fleet, "good") == "Running")
        await asyncio.sleep(60)
        assert failed("pod") == before + 1


@on_fleet()
async def test_an_error_at_one_pods_step_costs_that_pod_alone(fleet: LendingFleet) -> None:
    create = PodWriter._create_real_pod

    async def stumbles(self: PodWriter, reading: Any, found: Any, answers: Any) -> bool:
        assert found["metadata"]["name"] != "odd"
        return await create(self, reading, found, answers)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PodWriter, "_create_real_pod", stumbles)
        await lent(fleet)
        before = failed("pod")
        await run_alone(fleet, "odd")
        await run_alone(fleet, "good")
        await until(lambda: phase(fleet, "good") == "Running")
        await asyncio.sleep(60)
        assert before + 5 <= failed("pod") <= before + 20
        assert len(fleet.claims()) == 1
    await until(lambda: phase(fleet, "odd") == "Running")


@on_fleet()
async def test_an_error_in_the_decision_on_one_pod_costs_that_pod_alone(fleet: LendingFleet) -> None:
    decide = pod_writer.pod_step

    def stumbles(pool: PoolPod | None, real: RealPod | None, context: NodeContext) -> PodStep | None:
        odd = fleet.clusters[POOL].get_object("pods", "odd", "default")
        assert pool is None or odd is None or pool.uid != odd["metadata"]["uid"]
        return decide(pool, real, context)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pod_writer, "pod_step", stumbles)
        await lent(fleet)
        before, node_before = failed("pod"), failed("node")
        await run_alone(fleet, "odd")
        await run_alone(fleet, "good")
        await until(lambda: phase(fleet, "good") == "Running")
        assert failed("pod") > before
        assert failed("node") == node_before
    await until(lambda: phase(fleet, "odd") == "Running")


@on_fleet(nodes=2)
async def test_an_error_at_one_node_costs_that_node_alone_which_is_tried_again_ever_later(fleet: LendingFleet) -> None:
    plan = OwnerWorker._plan

    def stumbles(self: OwnerWorker, reading: NodeReading) -> Any:
        assert reading.name != "n0"
        return plan(self, reading)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(OwnerWorker, "_plan", stumbles)
        before = failed("node")
        await fleet.declare()
        await fleet.start()
        await until(lambda: fleet.is_open("n1"))
        await asyncio.sleep(200)
        assert not fleet.is_open("n0")
        assert len(fleet.claims()) == 1
        assert failed("node") > before
    await until(fleet.is_open)


@on_fleet()
async def test_an_error_at_a_word_of_a_pool_costs_that_pool_a_moment(fleet: LendingFleet) -> None:
    await lent(fleet)
    note, before = Pools._note_failure, failed("pool")

    def stumbles(*_: object) -> NoReturn:
        raise TypeError("an odd answer")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Pools, "_note_failure", staticmethod(stumbles))
        await run_alone(fleet, "first")
        await until(lambda: failed("pool") > before)
        await asyncio.sleep(30)
        assert failed("pool") <= before + 6
        assert Pools._note_failure is not note
    await run_alone(fleet, "second")
    await until(lambda: phase(fleet, "second") == "Running")
    assert len(fleet.claims()) == 1


@on_fleet(owners=(OWN, OTHER))
async def test_an_error_of_one_owners_work_costs_no_other_owner(fleet: LendingFleet) -> None:
    take, before = UsageReporter.take_hours, failed("cluster")

    async def stumbles(self: UsageReporter, *more: Any) -> Any:
        assert self._api.name != OWN
        return await take(self, *more)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(UsageReporter, "take_hours", stumbles)
        await fleet.declare()
        await fleet.declare(owner=OTHER)
        await fleet.start()
        await until(lambda: fleet.is_open(owner=OTHER))
        await until(lambda: failed("cluster") >= before + 3)
        await always(lambda: fleet.is_open(owner=OTHER), 60)
    await until(fleet.is_open, 300)
