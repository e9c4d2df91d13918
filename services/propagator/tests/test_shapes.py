"""What a cluster makes of a template's pods, as the whole service learns and says it, in virtual time."""

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from propagator.settings import PropagatorSettings
from sim.settings import Faults, SidecarSpec
from spillway.addresses import CLUSTERS, RecordAddress, Tombstone, shape_address
from spillway.clusters.api import SECRETS, Response
from spillway.events import (
    SHAPE_ADMITTED,
    SHAPE_FORBIDDEN,
    SHAPE_REFUSED,
    SHAPE_UNASKED,
    ShapeAdmitted,
    ShapeAsked,
)
from spillway.kubernetes.pod_shape import shape_of, template_digest
from spillway.local_bus import LocalBus
from spillway.model import ObjectReference

from .conftest import FLEET, deployment_manifest

pytestmark = pytest.mark.looptime
TEMPLATE = deployment_manifest("web")["spec"]["template"]
DIGEST = template_digest(TEMPLATE, "default")
Test = Callable[[Any], Awaitable[None]]


def run_on_fleet(test: Test) -> Test:
    """Opens the fleet inside the test."""

    @functools.wraps(test)
    async def run_test(fleet: Any) -> None:
        async with fleet:
            await test(fleet)

    return run_test


def shape_asked(*clusters: str, namespace: str = "default", template: dict[str, Any] = TEMPLATE) -> ShapeAsked:
    pod = json.dumps(template).encode()
    return ShapeAsked(template_digest(template, namespace), namespace, "web", clusters, pod)


def template_with_spec(**spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(TEMPLATE))
    found["spec"] |= spec
    return found


BOXED = template_with_spec(runtimeClassName="box", overhead={"cpu": "1"})


async def replace_runtime_class(fleet: Any, cpu: str, cluster: str = "own-1") -> None:
    """With another overhead than BOXED says, pods of that are refused."""
    path = "/apis/node.k8s.io/v1/runtimeclasses"
    named = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "box"}, "handler": "box"}
    found = named | {"overhead": {"podFixed": {"cpu": cpu}}}
    await fleet.transports[cluster].request("DELETE", f"{path}/box", {}, b"{}")
    await fleet.transports[cluster].request("POST", path, {}, json.dumps(found).encode())


def answered_states(fleet: Any, cluster: str = "own-1") -> list[tuple[str, str]]:
    return [(event.template, event.state) for event in fleet.shape_records(cluster)]


@run_on_fleet
async def test_a_question_is_answered_by_the_owner_of_each_cluster_and_creates_nothing(fleet: Any) -> None:
    fleet.clusters["own-2"].inject_sidecar(SidecarSpec(cpu_millis=400))
    await fleet.start()
    await asyncio.sleep(5)
    await fleet.planner.publish(shape_asked("own-1", "own-2"))
    await asyncio.sleep(0.4)
    assert answered_states(fleet, "own-1") == answered_states(fleet, "own-2") == [(DIGEST, SHAPE_ADMITTED)]
    assert fleet.shape_records("own-1")[0].shape is None, "as the template says"
    shape = fleet.shape_records("own-2")[0].shape
    assert dict(shape.requests)["cpu"] == 500
    assert shape.template == DIGEST
    assert fleet.clusters["own-1"].objects("pods") == fleet.clusters["own-2"].objects("pods") == []
    await fleet.planner.publish(shape_asked("own-1", "own-2"))
    await asyncio.sleep(5)
    assert len(fleet.transports["own-1"].tried) == 1, "what is known is not asked again"


@run_on_fleet
async def test_answers_to_many_questions_go_together_and_a_single_one_at_once(fleet: Any) -> None:
    await fleet.start()
    await asyncio.sleep(5)
    fleet.clusters["own-1"].set_faults(Faults(latency_seconds=0.005))
    await fleet.planner.publish(shape_asked("own-1"))
    await asyncio.sleep(0.006)
    assert answered_states(fleet) == [(DIGEST, SHAPE_ADMITTED)]
    others = [deployment_manifest(f"web-{number}")["spec"]["template"] for number in range(40)]
    for number, template in enumerate(others):
        template["metadata"]["labels"]["number"] = str(number)
    await fleet.planner.publish(*(shape_asked("own-1", template=template) for template in others))
    found = set()
    for _ in range(50):
        await asyncio.sleep(0.005)
        found.add(len(answered_states(fleet)) - 1)
    assert max(found) == len(others)
    assert len(found) <= 5, "ten times four dry runs"


@run_on_fleet
async def test_many_new_templates_of_one_namespace_keep_no_other_one_waiting(fleet: Any) -> None:
    await fleet.start(settings=PropagatorSettings(shapes_waiting_max=60))
    await asyncio.sleep(5)
    fleet.clusters["own-1"].set_faults(Faults(latency_seconds=0.1))
    others = [template_with_spec(hostname=f"web-{number}") for number in range(80)]
    await fleet.planner.publish(*(shape_asked("own-1", template=template) for template in others))
    await asyncio.sleep(0.05)
    late = shape_asked("own-1", namespace="bank")
    await fleet.planner.publish(late)
    await asyncio.sleep(0.4)
    answered = [template for template, _ in answered_states(fleet)]
    assert late.template in answered
    assert len(answered) < 20, "of the others few were asked meanwhile"


@run_on_fleet
async def test_what_was_answered_is_not_asked_again_when_it_is_placed_but_when_it_is_old(fleet: Any) -> None:
    await fleet.declare_workload()
    await fleet.start(settings=PropagatorSettings(shape_age_max_seconds=100))
    await asyncio.sleep(5)
    await fleet.planner.publish(shape_asked("own-1"))
    await asyncio.sleep(1)
    await fleet.publish_placement(1, {"own-1": 3})
    await asyncio.sleep(50)
    assert fleet.deployment_replicas("own-1") == 3
    assert len(fleet.transports["own-1"].tried) == 1
    await asyncio.sleep(60)
    assert len(fleet.transports["own-1"].tried) == 2


@run_on_fleet
async def test_what_is_placed_is_asked_without_a_question_and_again_when_it_is_old(fleet: Any) -> None:
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 3})
    await fleet.start(settings=PropagatorSettings(shape_age_max_seconds=100))
    await asyncio.sleep(5)
    assert answered_states(fleet, "own-1") == [(DIGEST, SHAPE_ADMITTED)]
    assert answered_states(fleet, "own-2") == []
    fleet.clusters["own-1"].inject_sidecar(SidecarSpec())
    await asyncio.sleep(100)
    assert [event.shape is None for event in fleet.shape_records("own-1")] == [True, False]
    await asyncio.sleep(1000)
    assert len(fleet.transports["own-1"].tried) == 12
    assert len(fleet.shape_records("own-1")) == 2, "only what is news is said"


@run_on_fleet
async def test_a_new_owner_asks_again_what_is_placed(fleet: Any) -> None:
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 3})
    await fleet.start()
    await asyncio.sleep(5)
    await fleet.stop()
    fleet.clusters["own-1"].inject_sidecar(SidecarSpec())
    await fleet.start("p2")
    await asyncio.sleep(5)
    first, second = fleet.shape_records("own-1")
    assert (first.shape is None, second.shape is None) == (True, False)
    assert second.epoch > first.epoch


FAULTS = {
    "no right to create pods": (Faults(forbidden=("POST pods",)), SHAPE_FORBIDDEN, "cannot create"),
    "silent": (Faults(silent=True), SHAPE_UNASKED, "2.0 s"),
}


@pytest.mark.parametrize(("fault", "state", "words"), FAULTS.values(), ids=FAULTS)
async def test_who_cannot_be_asked_is_named_and_asked_again(fleet: Any, fault: Faults, state: str, words: str) -> None:
    async with fleet:
        await fleet.declare_workload()
        await fleet.start()
        await asyncio.sleep(5)
        fleet.clusters["own-1"].set_faults(fault)
        await fleet.publish_placement(1, {"own-1": 3})
        await asyncio.sleep(4)
        assert answered_states(fleet) == [(DIGEST, state)]
        assert words in fleet.shape_records()[0].message
        fleet.clusters["own-1"].set_faults(Faults())
        await asyncio.sleep(40)
        assert answered_states(fleet) == [(DIGEST, state), (DIGEST, SHAPE_ADMITTED)]
        fleet.clusters["own-1"].set_faults(fault)
        await asyncio.sleep(4000)
        assert len(answered_states(fleet)) == 2, "what was admitted once is not unlearnt"


@run_on_fleet
async def test_what_callers_read_of_an_unreachable_cluster_has_no_detail(fleet: Any) -> None:
    """That may name a file of ours, or the cluster's address."""
    await fleet.declare_workload()
    await fleet.start()
    await asyncio.sleep(5)
    fleet.clusters["own-1"].set_faults(Faults(garbage=True))
    await fleet.planner.publish(shape_asked("own-1"))
    await asyncio.sleep(1)
    assert [event.message for event in fleet.shape_records("own-1")] == ["cluster own-1 is unreachable (garbage)"]


@run_on_fleet
async def test_a_refusal_is_said_once_in_the_clusters_words(fleet: Any) -> None:
    manifest = deployment_manifest("web")
    manifest["spec"]["template"] = BOXED
    await fleet.declare_workload(manifest=manifest)
    await fleet.start()
    await asyncio.sleep(1)
    await replace_runtime_class(fleet, "2")
    await fleet.publish_placement(1, {"own-1": 1})
    await asyncio.sleep(1000)
    assert answered_states(fleet) == [(template_digest(BOXED, "default"), SHAPE_REFUSED)]
    assert fleet.shape_records()[0].message.endswith("Pod's Overhead doesn't match RuntimeClass's defined Overhead")
    assert len(fleet.transports["own-1"].tried) > 3


@run_on_fleet
async def test_a_refusal_is_asked_about_again_where_nothing_is_placed(fleet: Any) -> None:
    """Every minute, as long as somebody declares the template; also by an owner that never asked."""
    manifest = deployment_manifest("web")
    manifest["spec"]["template"] = BOXED
    await fleet.start()
    await asyncio.sleep(5)
    await replace_runtime_class(fleet, "2")
    await fleet.planner.publish(shape_asked("own-1", template=BOXED))
    await fleet.declare_workload(manifest=manifest)
    await fleet.publish_placement(1, {"own-2": 1})
    await asyncio.sleep(5)
    assert [state for _, state in answered_states(fleet)] == [SHAPE_REFUSED]
    await fleet.stop()
    await fleet.start("p2")
    tried = len(fleet.transports["own-1"].tried)
    await asyncio.sleep(200)
    assert tried + 2 <= len(fleet.transports["own-1"].tried) <= tried + 4
    await replace_runtime_class(fleet, "1")
    await asyncio.sleep(100)
    assert [state for _, state in answered_states(fleet)] == [SHAPE_REFUSED, SHAPE_ADMITTED]


@run_on_fleet
async def test_a_namespace_that_is_not_there_yet_is_asked_once_it_is(fleet: Any) -> None:
    await fleet.start()
    await asyncio.sleep(5)
    await fleet.planner.publish(shape_asked("own-1", namespace="new"))
    await asyncio.sleep(1)
    assert [state for _, state in answered_states(fleet)] == [SHAPE_UNASKED]
    await fleet.declare_workload(namespace="new")
    await fleet.publish_placement(1, {"own-1": 1}, namespace="new")
    await asyncio.sleep(10)
    assert [state for _, state in answered_states(fleet)] == [SHAPE_UNASKED, SHAPE_ADMITTED]


@run_on_fleet
async def test_who_lost_its_turn_is_contradicted(fleet: Any) -> None:
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 1})
    await fleet.start()
    await asyncio.sleep(5)
    (ours,) = fleet.shape_records()
    shape = replace(shape_of(TEMPLATE, "default", "t"), requests=(("cpu", 1), ("pods", 1)))
    frozen = replace(ours, epoch=ours.epoch - 1, sequence=99, shape=shape)
    await LocalBus(fleet.broker, FLEET, "frozen").publish(frozen)
    await asyncio.sleep(1)
    assert fleet.shape_records() == [ours, frozen, ours]


@run_on_fleet
async def test_an_answer_that_is_taken_back_is_given_again_where_a_placement_needs_it(fleet: Any) -> None:
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 1})
    await fleet.start()
    await asyncio.sleep(5)
    (ours,) = fleet.shape_records()
    await LocalBus(fleet.broker, FLEET, "frozen").publish(Tombstone(shape_address(ours.template, "own-1")))
    await asyncio.sleep(5)
    assert fleet.said_of_shapes[-1].event == replace(ours, sequence=ours.sequence + 1)


@run_on_fleet
async def test_what_nobody_declares_and_what_left_is_forgotten(fleet: Any) -> None:
    await fleet.start(settings=PropagatorSettings(shape_unused_seconds=200))
    await asyncio.sleep(5)
    await fleet.planner.publish(shape_asked("own-1", "own-2"))
    await asyncio.sleep(5)
    await fleet.planner.publish(Tombstone(RecordAddress(CLUSTERS, "own-2", "own-2")))
    await asyncio.sleep(5)
    forgotten = [record.key for record in fleet.said_of_shapes if record.event is None]
    assert forgotten == [f"{DIGEST}/own-2"]
    await asyncio.sleep(300)
    forgotten = [record.key for record in fleet.said_of_shapes if record.event is None]
    assert forgotten == [f"{DIGEST}/own-2", f"{DIGEST}/own-1"]
    assert isinstance(fleet.shape_records()[0], ShapeAdmitted)


@run_on_fleet
async def test_a_refusal_of_what_nobody_declares_is_soon_forgotten(fleet: Any) -> None:
    """What is wrong there is mended before it is declared anew, and until then nobody asks."""
    await fleet.start()
    await asyncio.sleep(5)
    await replace_runtime_class(fleet, "2")
    await fleet.planner.publish(shape_asked("own-1", template=BOXED), shape_asked("own-1"))
    await asyncio.sleep(20)
    assert {state for _, state in answered_states(fleet)} == {SHAPE_REFUSED, SHAPE_ADMITTED}
    await asyncio.sleep(300)
    forgotten = [record.key for record in fleet.said_of_shapes if record.event is None]
    assert forgotten == [f"{template_digest(BOXED, 'default')}/own-1"]


# ── What is missing ─────────────────────────────────────────────────────────────────────────────────────────────────


KEY = ObjectReference("Secret", "default", "key")
WITH_KEY = template_with_spec(volumes=[{"name": "key", "secret": {"secretName": "key"}}])


@run_on_fleet
async def test_what_a_template_names_and_a_cluster_lacks_is_said_with_what_becomes_of_its_pods(fleet: Any) -> None:
    await fleet.add_secret("own-2", "key")
    await fleet.start()
    await asyncio.sleep(5)
    await fleet.planner.publish(shape_asked("own-1", "own-2", template=WITH_KEY))
    await asyncio.sleep(0.4)
    assert [(event.state, event.missing) for event in fleet.shape_records("own-1")] == [(SHAPE_ADMITTED, (KEY,))]
    assert [(event.state, event.missing) for event in fleet.shape_records("own-2")] == [(SHAPE_ADMITTED, ())]


@pytest.mark.parametrize("namespace", ["default", "gone"])
async def test_of_what_names_too_much_no_more_than_the_bound_is_asked_and_said(fleet: Any, namespace: str) -> None:
    """As of a template in the log from before requests were bounded. gone: a namespace that is known to be missing."""
    template = template_with_spec(volumes=[{"name": f"v{n}", "configMap": {"name": f"c-{n:03}"}} for n in range(600)])
    async with fleet:
        await fleet.start()
        await asyncio.sleep(5)
        before = fleet.transports["own-1"].reads
        await fleet.planner.publish(shape_asked("own-1", namespace=namespace, template=TEMPLATE))
        await asyncio.sleep(0.4)
        await fleet.planner.publish(shape_asked("own-1", namespace=namespace, template=template))
        await asyncio.sleep(2)
        assert [one.name for one in fleet.shape_records("own-1")[-1].missing] == [f"c-{n:03}" for n in range(500)]
        assert fleet.transports["own-1"].reads - before == (500 if namespace == "default" else 0)


@run_on_fleet
async def test_what_admission_lacks_is_missing_and_no_refusal_of_the_template(fleet: Any) -> None:
    """Its pods are refused for that alone: what they become there is not known before it is there."""
    refused = b'{"kind":"Status","status":"Failure","reason":"Forbidden","message":"no PriorityClass high","code":403}'
    await fleet.start()
    await asyncio.sleep(5)
    transport = fleet.transports["own-1"]
    transport.instead = lambda method, path, body: Response(403, refused) if path.endswith("/pods") else None
    await fleet.planner.publish(shape_asked("own-1", template=template_with_spec(priorityClassName="high")))
    await asyncio.sleep(0.4)
    assert [(event.state, event.missing) for event in fleet.shape_records("own-1")] == [
        (SHAPE_UNASKED, (ObjectReference("PriorityClass", "", "high"),))
    ]


@run_on_fleet
async def test_a_refusal_in_megabytes_is_cut_and_costs_no_other_answer(fleet: Any) -> None:
    """Any webhook may refuse in as many words as it likes."""
    refused = {"kind": "Status", "reason": "Invalid", "message": "x" * 2_400_000, "code": 422}
    await fleet.start()
    await asyncio.sleep(5)
    transport = fleet.transports["own-1"]
    answer = Response(422, json.dumps(refused).encode())
    transport.instead = lambda method, path, body: answer if path.endswith("/pods") else None
    await fleet.planner.publish(shape_asked("own-1", "own-2"))
    await asyncio.sleep(0.4)
    assert answered_states(fleet) == [(DIGEST, SHAPE_REFUSED)]
    assert fleet.shape_records()[0].message.startswith("xxx")
    assert answered_states(fleet, "own-2") == [(DIGEST, SHAPE_ADMITTED)]


@run_on_fleet
async def test_a_pod_that_comes_back_with_more_than_a_record_holds_is_not_known(fleet: Any) -> None:
    """It is not let in as its template says: what a webhook added is not in that."""
    await fleet.start()
    await asyncio.sleep(5)
    transport = fleet.transports["own-1"]

    def answer_with_large_pod(method: str, path: str, body: bytes | None) -> Response | None:
        if method != "POST" or not path.endswith("/pods") or body is None:
            return None
        pod = json.loads(body)
        pod["metadata"] |= {"name": "web-1", "uid": "u-1", "resourceVersion": "1"}
        pod["spec"]["nodeSelector"] = {f"example.com/{'k' * 200}-{number}": "v" for number in range(12_000)}
        return Response(201, json.dumps(pod).encode())

    transport.instead = answer_with_large_pod
    await fleet.planner.publish(shape_asked("own-1", "own-2"))
    await asyncio.sleep(3)
    assert answered_states(fleet) == [(DIGEST, SHAPE_UNASKED)]
    assert "too long to be said" in fleet.shape_records()[0].message
    assert answered_states(fleet, "own-2") == [(DIGEST, SHAPE_ADMITTED)]


@run_on_fleet
async def test_that_it_is_there_now_is_said_of_what_is_declared_and_placed_nowhere(fleet: Any) -> None:
    manifest = deployment_manifest("web") | {"spec": {"replicas": 1, "template": WITH_KEY}}
    await fleet.declare_workload(manifest=manifest)
    await fleet.start()
    await asyncio.sleep(5)
    await fleet.planner.publish(shape_asked("own-1", template=WITH_KEY))
    await asyncio.sleep(1)
    await fleet.add_secret("own-1", "key")
    await asyncio.sleep(61)
    assert [event.missing for event in fleet.shape_records("own-1")] == [(KEY,), ()]


@run_on_fleet
async def test_what_was_deleted_later_is_said_once_the_work_on_the_object_meets_it(fleet: Any) -> None:
    manifest = deployment_manifest("web") | {"spec": {"replicas": 1, "template": WITH_KEY}}
    await fleet.declare_workload(manifest=manifest)
    await fleet.start()
    await fleet.add_secret("own-1", "key")
    await asyncio.sleep(5)
    await fleet.planner.publish(shape_asked("own-1", template=WITH_KEY))
    await asyncio.sleep(1)
    found = fleet.clusters["own-1"].get_object("secrets", "key", "default")
    await fleet.user_api("own-1").delete(SECRETS, "default", "key", uid=found["metadata"]["uid"], resource_version="")
    await fleet.publish_placement(1, {"own-1": 1})
    await asyncio.sleep(5)
    assert [event.missing for event in fleet.shape_records("own-1")] == [(), (KEY,)]
