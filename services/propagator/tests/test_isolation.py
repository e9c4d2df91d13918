"""What an error of ours costs, on the whole service: the object or question that it was met at, else its cluster."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from propagator import cluster_worker
from propagator.cluster import adoption_finder, cluster_objects, shape_asker
from propagator.cluster.mirror import ObjectMirror
from propagator.core.actions import Action
from propagator.core.desired import WantedState
from spillway import metrics
from spillway.addresses import FOUND_WORKLOADS
from spillway.clusters.api import Response
from spillway.events import FOUND_REFUSED, SHAPE_ADMITTED, AdoptionAsked, WorkloadFound
from spillway.local_bus import LocalBus
from spillway.model import Generation

from .conftest import FLEET, Fleet
from .test_service import run_on_fleet

pytestmark = pytest.mark.looptime
ODD_NAMES = ("..", ".", "a/b", "A")


def failed_work_count(what: str) -> float:
    return metrics.WORK_FAILED.labels("propagator", what)._value.get()


def odd_deployment_manifest(**spec: Any) -> dict[str, Any]:
    """A whole Deployment called odd."""
    pod = {"containers": [{"name": "main", "image": "app:1"}], **spec}
    template = {"metadata": {"labels": {"app": "odd"}}, "spec": pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "odd"},
        "spec": {"selector": {"matchLabels": {"app": "odd"}}, "template": template},
    }


def pod_spec_with_container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": "app:1", **fields}]}


NAMING: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "config volume": ("ConfigMap", lambda name: {"volumes": [{"name": "v", "configMap": {"name": name}}]}),
    "claim": (
        "PersistentVolumeClaim",
        lambda name: {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]},
    ),
    "secret volume": ("Secret", lambda name: {"volumes": [{"name": "v", "secret": {"secretName": name}}]}),
    "projected": (
        "ConfigMap",
        lambda name: {"volumes": [{"name": "v", "projected": {"sources": [{"configMap": {"name": name}}]}}]},
    ),
    "account": ("ServiceAccount", lambda name: {"serviceAccountName": name}),
    "priority class": ("PriorityClass", lambda name: {"priorityClassName": name}),
    "runtime class": ("RuntimeClass", lambda name: {"runtimeClassName": name}),
    "environment": ("ConfigMap", lambda name: pod_spec_with_container(envFrom=[{"configMapRef": {"name": name}}])),
    "variable": (
        "ConfigMap",
        lambda name: pod_spec_with_container(
            env=[{"name": "V", "valueFrom": {"configMapKeyRef": {"name": name, "key": "k"}}}]
        ),
    ),
}


@pytest.mark.parametrize("what", NAMING)
@pytest.mark.parametrize("name", ODD_NAMES)
@run_on_fleet
async def test_what_no_object_is_called_counts_as_missing_and_costs_nobody(fleet: Fleet, what: str, name: str) -> None:
    """A name from an old record. The planner refuses it today."""
    kind, naming = NAMING[what]
    await fleet.declare_workload(name="odd", manifest=odd_deployment_manifest(**naming(name)))
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 1}, name="odd")
    await fleet.publish_placement(1, {"own-1": 1, "own-2": 1})
    asked = list[str]()
    before = failed_work_count("workload"), failed_work_count("cluster"), failed_work_count("template")
    await fleet.start()
    await asyncio.sleep(1)
    fleet.transports["own-1"].instead = lambda method, path, body: asked.append(path)  # type: ignore[func-returns-value]
    await asyncio.sleep(30)
    state, _, message = fleet.last_state_and_version("own-1", "odd")
    assert (state, message) == ("DependencyMissing", f"missing: {kind} {'' if 'Class' in kind else 'default/'}{name}")
    assert (fleet.deployment_replicas("own-1"), fleet.deployment_replicas("own-2"), len(fleet.turn_claims())) == (
        1,
        1,
        2,
    )
    assert (failed_work_count("workload"), failed_work_count("cluster"), failed_work_count("template")) == before
    assert not [path for path in asked if path.endswith(("/..", "/.", "%2Fb", "/A"))]


@pytest.mark.parametrize(
    "odd",
    [
        {"kind": "Foo"},
        {"kind": 5},
        {"managedFields": 5},
        {"managedFields": [5]},
        {"managedFields": [{"fieldsV1": 5}]},
        {"managedFields": [{"fieldsV1": {"f:spec": 5}}]},
    ],
)
@run_on_fleet
async def test_whatever_an_answer_says_of_itself_it_is_of_the_kind_that_was_asked_for(
    fleet: Fleet, odd: dict[str, Any]
) -> None:
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 1})
    await fleet.start()
    await asyncio.sleep(5)
    transport, answers = fleet.transports["own-1"], list[str]()
    request = transport.request

    async def answer_with_odd_fields(method: str, path: str, *more: Any) -> Response:
        answer = await request(method, path, *more)
        if not path.endswith("/deployments/web") or answer.status >= 300:
            return answer
        answers.append(method)
        found = json.loads(answer.body)
        found["metadata"] |= {key: value for key, value in odd.items() if key != "kind"}
        return Response(answer.status, json.dumps({**found, "kind": odd.get("kind", "Deployment")}).encode())

    before = failed_work_count("workload"), failed_work_count("cluster")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(transport, "request", answer_with_odd_fields)
        await fleet.publish_placement(2, {"own-1": 3})
        await asyncio.sleep(10)
        assert {"GET", "PATCH"} <= set(answers)
        assert (fleet.deployment_replicas("own-1"), fleet.last_state_and_version("own-1")) == (
            3,
            ("Present", "1.2", ""),
        )
    assert (failed_work_count("workload"), failed_work_count("cluster"), len(fleet.turn_claims())) == (*before, 2)


@pytest.mark.parametrize("where", ["when it is touched", "when it is worked on", "when it is shown"])
@run_on_fleet
async def test_an_error_at_one_workload_costs_that_one_alone_and_its_status_says_so(fleet: Fleet, where: str) -> None:
    next_action, carry_out, observed = (
        cluster_worker.next_action,
        cluster_objects.ClusterObjects.carry_out_action,
        cluster_worker.observed_status,
    )

    def decide_unless_odd(wanted: WantedState, *more: Any) -> Action:
        return {}["nothing"] if wanted.target.name == "odd" else next_action(wanted, *more)  # type: ignore[no-any-return]

    async def write_unless_odd(self: Any, action: Any, target: Any, live: Any) -> Any:
        return {}["nothing"] if target.name == "odd" else await carry_out(self, action, target, live)

    def show_unless_odd(target: Any, *more: Any) -> Any:
        return {}["nothing"] if target.name == "odd" else observed(target, *more)

    for name in ("odd", "web"):
        await fleet.declare_workload(name=name)
        await fleet.publish_placement(1, {"own-1": 2}, name=name)
    before = failed_work_count("workload"), failed_work_count("cluster")
    with pytest.MonkeyPatch.context() as patched:
        match where:
            case "when it is touched":
                patched.setattr(cluster_worker, "next_action", decide_unless_odd)
            case "when it is worked on":
                patched.setattr(cluster_objects.ClusterObjects, "carry_out_action", write_unless_odd)
            case _:
                patched.setattr(cluster_worker, "observed_status", show_unless_odd)
        await fleet.start()
        await asyncio.sleep(120)
        assert (fleet.deployment_replicas("own-1"), fleet.last_state_and_version("own-1")[0]) == (2, "Present")
        assert failed_work_count("cluster") == before[1]
        assert before[0] < failed_work_count("workload") <= before[0] + 20, "it is tried again ever later"
        if where != "when it is shown":
            assert fleet.last_state_and_version("own-1", "odd")[2] == (
                "on hold: propagator met an error of its own at it: KeyError: 'nothing'"
            )
        await fleet.publish_placement(2, {"own-1": 3})
        await asyncio.sleep(5)
        assert fleet.deployment_replicas("own-1") == 3
    await asyncio.sleep(61)
    await fleet.publish_placement(2, {"own-1": 1}, name="odd")
    await asyncio.sleep(5)
    assert (fleet.deployment_replicas("own-1", "odd"), fleet.last_state_and_version("own-1", "odd")) == (
        1,
        ("Present", "1.2", ""),
    )
    assert len(fleet.turn_claims()) == 2


@run_on_fleet
async def test_an_error_at_what_one_cluster_tells_costs_no_other_cluster(fleet: Fleet) -> None:
    upsert = ObjectMirror.upsert_workload

    def upsert_unless_first_cluster(self: ObjectMirror, found: Any) -> Any:
        assert self._cluster != "own-1"
        return upsert(self, found)

    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 2, "own-2": 2})
    before = failed_work_count("cluster")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ObjectMirror, "upsert_workload", upsert_unless_first_cluster)
        propagator = await fleet.start()
        await asyncio.sleep(60)
        assert (
            failed_work_count("cluster") > before,
            fleet.deployment_replicas("own-2"),
            fleet.last_state_and_version("own-2")[0],
        ) == (True, 2, "Present")
        await fleet.publish_placement(2, {"own-1": 1, "own-2": 3})
        await asyncio.sleep(5)
        assert fleet.deployment_replicas("own-2") == 3
    await asyncio.sleep(61)
    assert (fleet.deployment_replicas("own-1"), propagator.clusters_worked_on) == (1, {"own-1", "own-2"})


@run_on_fleet
async def test_an_error_at_one_template_costs_that_template_alone(fleet: Fleet) -> None:
    read_pod = shape_asker.read_dry_run_answer

    def read_pod_unless_odd(made: Any, pod: Any, *more: Any) -> Any:
        return {}["nothing"] if pod["metadata"]["labels"]["app"] == "odd" else read_pod(made, pod, *more)

    for name in ("odd", "web"):
        await fleet.declare_workload(name=name)
        await fleet.publish_placement(1, {"own-1": 1}, name=name)
    before = failed_work_count("template"), failed_work_count("cluster")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shape_asker, "read_dry_run_answer", read_pod_unless_odd)
        await fleet.start()
        await asyncio.sleep(60)
        assert [shape.state for shape in fleet.shape_records()].count(SHAPE_ADMITTED) == 1
        assert (failed_work_count("template") > before[0], failed_work_count("cluster")) == (True, before[1])
    await asyncio.sleep(120)
    assert [shape.state for shape in fleet.shape_records()].count(SHAPE_ADMITTED) == 2


@run_on_fleet
async def test_a_question_that_meets_an_error_is_answered_with_it(fleet: Fleet) -> None:
    answered = list[WorkloadFound]()
    await fleet.start()
    before = failed_work_count("workload"), failed_work_count("cluster")

    def raise_key_error(*_: object) -> NoReturn:
        raise KeyError("Foo")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(adoption_finder, "adoption_answer_for_object", raise_key_error)
        await asyncio.sleep(2)
        await fleet.planner.publish(AdoptionAsked(Generation(1, 1), "default", "web", ("own-1",), ""))
        await asyncio.sleep(5)
    async with LocalBus(fleet.broker, FLEET, "reader").follow_topics((FOUND_WORKLOADS,)) as feed:
        answered += [one.event for one in (await anext(aiter(feed))).records if isinstance(one.event, WorkloadFound)]
    (said,) = answered
    assert (said.state, said.message) == (FOUND_REFUSED, "propagator met an error of its own: KeyError: 'Foo'")
    assert (failed_work_count("workload"), failed_work_count("cluster")) == (before[0] + 1, before[1])
