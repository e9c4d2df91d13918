"""What an error of ours costs, on the whole service: the object or question that it was met at, else its cluster."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from propagator import cluster_worker
from propagator.cluster import finder, member, shape_asker
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
from .test_service import on_fleet

pytestmark = pytest.mark.looptime
ODD_NAMES = ("..", ".", "a/b", "A")


def failed(what: str) -> float:
    return metrics.WORK_FAILED.labels("propagator", what)._value.get()


def pod_with(**spec: Any) -> dict[str, Any]:
    """A whole Deployment called odd."""
    pod = {"containers": [{"name": "main", "image": "app:1"}], **spec}
    template = {"metadata": {"labels": {"app": "odd"}}, "spec": pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "odd"},
        "spec": {"selector": {"matchLabels": {"app": "odd"}}, "template": template},
    }


def container(**fields: Any) -> dict[str, Any]:
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
    "environment": ("ConfigMap", lambda name: container(envFrom=[{"configMapRef": {"name": name}}])),
    "variable": (
        "ConfigMap",
        lambda name: container(env=[{"name": "V", "valueFrom": {"configMapKeyRef": {"name": name, "key": "k"}}}]),
    ),
}


@pytest.mark.parametrize("what", NAMING)
@pytest.mark.parametrize("name", ODD_NAMES)
@on_fleet
async def test_what_no_object_is_called_counts_as_missing_and_costs_nobody(fleet: Fleet, what: str, name: str) -> None:
    """A name from an old record. The planner refuses it today."""
    kind, naming = NAMING[what]
    await fleet.declare(name="odd", manifest=pod_with(**naming(name)))
    await fleet.declare()
    await fleet.place(1, {"own-1": 1}, name="odd")
    await fleet.place(1, {"own-1": 1, "own-2": 1})
    asked = list[str]()
    before = failed("workload"), failed("cluster"), failed("template")
    await fleet.start()
    await asyncio.sleep(1)
    fleet.transports["own-1"].instead = lambda method, path, body: asked.append(path)  # type: ignore[func-returns-value]
    await asyncio.sleep(30)
    state, _, message = fleet.state("own-1", "odd")
    assert (state, message) == ("DependencyMissing", f"missing: {kind} {'' if 'Class' in kind else 'default/'}{name}")
    assert (fleet.replicas("own-1"), fleet.replicas("own-2"), len(fleet.claims())) == (1, 1, 2)
    assert (failed("workload"), failed("cluster"), failed("template")) == before
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
@on_fleet
async def test_whatever_an_answer_says_of_itself_it_is_of_the_kind_that_was_asked_for(
    fleet: Fleet, odd: dict[str, Any]
) -> None:
    await fleet.declare()
    await fleet.place(1, {"own-1": 1})
    await fleet.start()
    await asyncio.sleep(5)
    transport, answers = fleet.transports["own-1"], list[str]()
    request = transport.request

    async def as_odd(method: str, path: str, *more: Any) -> Response:
        answer = await request(method, path, *more)
        if not path.endswith("/deployments/web") or answer.status >= 300:
            return answer
        answers.append(method)
        found = json.loads(answer.body)
        found["metadata"] |= {key: value for key, value in odd.items() if key != "kind"}
        return Response(answer.status, json.dumps({**found, "kind": odd.get("kind", "Deployment")}).encode())

    before = failed("workload"), failed("cluster")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(transport, "request", as_odd)
        await fleet.place(2, {"own-1": 3})
        await asyncio.sleep(10)
        assert {"GET", "PATCH"} <= set(answers)
        assert (fleet.replicas("own-1"), fleet.state("own-1")) == (3, ("Present", "1.2", ""))
    assert (failed("workload"), failed("cluster"), len(fleet.claims())) == (*before, 2)


@pytest.mark.parametrize("where", ["when it is touched", "when it is worked on", "when it is shown"])
@on_fleet
async def test_an_error_at_one_workload_costs_that_one_alone_and_its_status_says_so(fleet: Fleet, where: str) -> None:
    next_action, carry_out, observed = (
        cluster_worker.next_action,
        member.MemberCluster.carry_out_action,
        cluster_worker.observed_status,
    )

    def stumbles_deciding(wanted: WantedState, *more: Any) -> Action:
        return {}["nothing"] if wanted.target.name == "odd" else next_action(wanted, *more)  # type: ignore[no-any-return]

    async def stumbles_writing(self: Any, action: Any, target: Any, live: Any) -> Any:
        return {}["nothing"] if target.name == "odd" else await carry_out(self, action, target, live)

    def stumbles_showing(target: Any, *more: Any) -> Any:
        return {}["nothing"] if target.name == "odd" else observed(target, *more)

    for name in ("odd", "web"):
        await fleet.declare(name=name)
        await fleet.place(1, {"own-1": 2}, name=name)
    before = failed("workload"), failed("cluster")
    with pytest.MonkeyPatch.context() as patched:
        match where:
            case "when it is touched":
                patched.setattr(cluster_worker, "next_action", stumbles_deciding)
            case "when it is worked on":
                patched.setattr(member.MemberCluster, "carry_out_action", stumbles_writing)
            case _:
                patched.setattr(cluster_worker, "observed_status", stumbles_showing)
        await fleet.start()
        await asyncio.sleep(120)
        assert (fleet.replicas("own-1"), fleet.state("own-1")[0]) == (2, "Present")
        assert failed("cluster") == before[1]
        assert before[0] < failed("workload") <= before[0] + 20, "it is tried again ever later"
        if where != "when it is shown":
            assert fleet.state("own-1", "odd")[2] == (
                "on hold: propagator met an error of its own at it: KeyError: 'nothing'"
            )
        await fleet.place(2, {"own-1": 3})
        await asyncio.sleep(5)
        assert fleet.replicas("own-1") == 3
    await asyncio.sleep(61)
    await fleet.place(2, {"own-1": 1}, name="odd")
    await asyncio.sleep(5)
    assert (fleet.replicas("own-1", "odd"), fleet.state("own-1", "odd")) == (1, ("Present", "1.2", ""))
    assert len(fleet.claims()) == 2


@on_fleet
async def test_an_error_at_what_one_cluster_tells_costs_no_other_cluster(fleet: Fleet) -> None:
    upsert = ObjectMirror.upsert_workload

    def stumbles(self: ObjectMirror, found: Any) -> Any:
        assert self._cluster != "own-1"
        return upsert(self, found)

    await fleet.declare()
    await fleet.place(1, {"own-1": 2, "own-2": 2})
    before = failed("cluster")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ObjectMirror, "upsert_workload", stumbles)
        propagator = await fleet.start()
        await asyncio.sleep(60)
        assert (failed("cluster") > before, fleet.replicas("own-2"), fleet.state("own-2")[0]) == (True, 2, "Present")
        await fleet.place(2, {"own-1": 1, "own-2": 3})
        await asyncio.sleep(5)
        assert fleet.replicas("own-2") == 3
    await asyncio.sleep(61)
    assert (fleet.replicas("own-1"), propagator.clusters_worked_on) == (1, {"own-1", "own-2"})


@on_fleet
async def test_an_error_at_one_template_costs_that_template_alone(fleet: Fleet) -> None:
    read_pod = shape_asker.read_dry_run_answer

    def stumbles(made: Any, pod: Any, *more: Any) -> Any:
        return {}["nothing"] if pod["metadata"]["labels"]["app"] == "odd" else read_pod(made, pod, *more)

    for name in ("odd", "web"):
        await fleet.declare(name=name)
        await fleet.place(1, {"own-1": 1}, name=name)
    before = failed("template"), failed("cluster")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shape_asker, "read_dry_run_answer", stumbles)
        await fleet.start()
        await asyncio.sleep(60)
        assert [shape.state for shape in fleet.shapes()].count(SHAPE_ADMITTED) == 1
        assert (failed("template") > before[0], failed("cluster")) == (True, before[1])
    await asyncio.sleep(120)
    assert [shape.state for shape in fleet.shapes()].count(SHAPE_ADMITTED) == 2


@on_fleet
async def test_a_question_that_meets_an_error_is_answered_with_it(fleet: Fleet) -> None:
    answered = list[WorkloadFound]()
    await fleet.start()
    before = failed("workload"), failed("cluster")

    def stumbles(*_: object) -> NoReturn:
        raise KeyError("Foo")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(finder, "adoption_answer_for_object", stumbles)
        await asyncio.sleep(2)
        await fleet.planner.publish(AdoptionAsked(Generation(1, 1), "default", "web", ("own-1",), ""))
        await asyncio.sleep(5)
    async with LocalBus(fleet.broker, FLEET, "reader").follow_topics((FOUND_WORKLOADS,)) as feed:
        answered += [one.event for one in (await anext(aiter(feed))).records if isinstance(one.event, WorkloadFound)]
    (said,) = answered
    assert (said.state, said.message) == (FOUND_REFUSED, "propagator met an error of its own: KeyError: 'Foo'")
    assert (failed("workload"), failed("cluster")) == (before[0] + 1, before[1])
