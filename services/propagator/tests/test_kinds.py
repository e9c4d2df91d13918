"""StatefulSets and Jobs: the fields that propagator writes and reads, and the writes that a cluster refuses."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from propagator.core.kinds import KINDS, kind_of_object, refused_write_text
from propagator.core.live import LiveWorkload, workload_from_manifest, workload_from_struct
from propagator.core.manifests import workload_manifest
from sim.manifests import job, statefulset
from spillway.clusters.api import ClusterApi
from spillway.events import JobEnd, WorkloadDeclared
from spillway.kubernetes.objects import JOBS, STATEFULSETS
from spillway.model import Generation, Part, Policy

NOTHING_SAID: dict[str, Any] = {}
PART = Part("own-1", Generation(5, 2), 4, 0, 4, False)


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        (statefulset("web", 9), {"replicas": 4}),
        (job("web", 9, 12), {"parallelism": 4, "completions": 12}),
        (job("web", 9), {"parallelism": 4, "completions": None}),
    ],
)
def test_replicas_go_where_the_kind_has_them(manifest: dict[str, Any], expected: dict[str, Any]) -> None:
    policy = Policy((), (), "Wait")
    text = json.dumps(manifest).encode()
    declared = WorkloadDeclared("shop", "web", manifest["kind"], 1, 1, text, 9, policy, (), (), (), deleting=False)
    made = workload_manifest(declared, PART, "f1")
    assert {field: made["spec"].get(field) for field in expected} == expected
    assert made["spec"]["template"] == manifest["spec"]["template"]
    assert ("replicas" in made["spec"]) == (manifest["kind"] != "Job")


COMPLETE = [{"type": "Complete", "status": "True"}]


@pytest.mark.parametrize(
    ("kind", "spec", "status", "expected"),
    [
        ("StatefulSet", {"replicas": 3}, {"observedGeneration": 2, "replicas": 3, "updatedReplicas": 2,
         "readyReplicas": 2, "availableReplicas": 1}, (3, 3, 2, 2, 1, None)),
        ("StatefulSet", {"replicas": 3}, {"observedGeneration": 1, "replicas": 3, "updatedReplicas": 3},
         (3, 3, 0, 0, 0, None)),
        ("Job", {"parallelism": 4}, {"active": 3, "ready": 2, "succeeded": 1}, (4, 3, 3, 2, 2, None)),
        ("Job", {}, NOTHING_SAID, (1, 0, 0, 0, 0, None)),
        ("Job", {"parallelism": 4}, {"succeeded": 5, "conditions": COMPLETE}, (4, 0, 0, 0, 0, JobEnd("Complete", 5))),
        ("Job", {"parallelism": 4}, {"active": 1, "conditions": [{"type": "Failed", "status": "False"}]},
         (4, 1, 1, 0, 0, None)),
    ],
)  # fmt: skip
def test_what_is_read_from_an_answer_and_from_a_watch(kind: str, spec: Any, status: Any, expected: Any) -> None:
    metadata = {"name": "web", "namespace": "shop", "generation": 2, "finalizers": ["example.com/keep"]}
    manifest = {"kind": kind, "metadata": metadata, "spec": spec, "status": status}
    answered = workload_from_manifest(manifest, kind)
    assert answered == workload_from_struct(msgspec.convert(manifest, KINDS[kind].served.type))
    assert _counts_of_workload(answered) == expected
    assert answered.marks.finalizers == ("example.com/keep",)
    assert answered.kind == kind


def _counts_of_workload(found: LiveWorkload) -> tuple[Any, ...]:
    return (found.spec_replicas, found.replicas, found.updated, found.ready, found.available, found.job)


def test_what_a_member_refuses_is_said_with_what_helps() -> None:
    assert "delete the Job first" in refused_write_text("Job", "spec.template: field is immutable")
    assert "delete it first" in refused_write_text("StatefulSet", "updates to statefulset spec for fields other than")
    assert refused_write_text("Job", "exceeded quota: few") == "exceeded quota: few"
    assert refused_write_text("Deployment", "spec.selector: field is immutable") == "spec.selector: field is immutable"


async def user_api_of_member(fleet: Any) -> ClusterApi:
    found: ClusterApi = fleet.user_api("own-1")
    return found


@pytest.mark.looptime
async def test_a_statefulset_is_made_scaled_and_removed(fleet: Any) -> None:
    async with fleet:
        await fleet.declare_workload(name="db", manifest=statefulset("db", 9))
        await fleet.publish_placement(1, {"own-1": 3}, name="db")
        await fleet.start()
        await asyncio.sleep(20)
        api = await user_api_of_member(fleet)
        found = await api.get(STATEFULSETS, "default", "db")
        assert found is not None
        assert (found["spec"]["replicas"], found["status"]["readyReplicas"]) == (3, 3)
        status = fleet.last_status("own-1", "db")
        assert (status.state, status.replicas, status.updated, status.available) == ("Present", 3, 3, 3)
        await fleet.publish_placement(2, {"own-1": 5}, name="db")
        await asyncio.sleep(20)
        assert fleet.last_status("own-1", "db").available == 5
        await fleet.publish_placement(3, {}, removing=("own-1",), name="db")
        await asyncio.sleep(20)
        assert fleet.last_state_and_version("own-1", "db") == ("Absent", "1.3", "")
        assert await api.get(STATEFULSETS, "default", "db") is None
        assert fleet.clusters["own-1"].objects("pods") == []


@pytest.mark.looptime
async def test_a_restarted_propagator_writes_nothing_to_what_is_right(fleet: Any) -> None:
    """Also of kinds that another list says nothing of."""
    async with fleet:
        await fleet.declare_workload(name="db", manifest=statefulset("db", 9))
        await fleet.publish_placement(1, {"own-1": 3}, name="db")
        await fleet.declare_workload(name="sum", manifest=job("sum", 9, 20, run_seconds=600))
        await fleet.publish_placement(2, {"own-1": 2}, name="sum")
        await fleet.declare_workload()
        await fleet.publish_placement(3, {"own-1": 1})
        await fleet.start()
        await asyncio.sleep(20)
        await fleet.stop()
        await fleet.start("p2")
        await asyncio.sleep(60)
        assert fleet.transports["own-1"].writes == []
        assert [fleet.last_state_and_version("own-1", name)[:2] for name in ("db", "sum", "web")] == [
            ("Present", "1.1"),
            ("Present", "1.2"),
            ("Present", "1.3"),
        ]


@pytest.mark.looptime
async def test_a_job_runs_to_its_end_and_its_template_stays(fleet: Any) -> None:
    async with fleet:
        await fleet.declare_workload(name="sum", manifest=job("sum", 9, 4, run_seconds=5))
        await fleet.publish_placement(1, {"own-1": 2}, name="sum")
        await fleet.start()
        await asyncio.sleep(3)
        status = fleet.last_status("own-1", "sum")
        assert (status.spec_replicas, status.replicas, status.ready) == (2, 2, 2)
        await asyncio.sleep(30)
        assert fleet.last_state_and_version("own-1", "sum") == ("Present", "1.1", "Complete: 4 succeeded")
        await fleet.declare_workload(name="sum", manifest=job("sum", 9, 4, run_seconds=5, image="app:2"))
        await fleet.publish_placement(2, {"own-1": 2}, name="sum")
        await asyncio.sleep(5)
        state, version, message = fleet.last_state_and_version("own-1", "sum")
        assert (state, version) == ("Refused", "1.2")
        assert message.startswith("a Job's template cannot be changed, delete the Job first")
        found = await (await user_api_of_member(fleet)).get(JOBS, "default", "sum")
        assert found is not None
        assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "app:1"


@pytest.mark.looptime
@pytest.mark.parametrize(("seconds", "runs_again"), [(3, True), (40, False)], ids=["under way", "over"])
async def test_a_job_that_somebody_deletes_is_made_again_only_while_it_is_not_over(
    fleet: Any, seconds: float, runs_again: bool
) -> None:
    async with fleet:
        await fleet.declare_workload(name="sum", manifest=job("sum", 9, 4, run_seconds=5))
        await fleet.publish_placement(1, {"own-1": 2}, name="sum")
        await fleet.start()
        await asyncio.sleep(seconds)
        api = await user_api_of_member(fleet)
        found = await api.get(JOBS, "default", "sum")
        assert found is not None
        seen = found["metadata"]
        await api.delete(JOBS, "default", "sum", uid=seen["uid"], resource_version=seen["resourceVersion"])
        await asyncio.sleep(60)
        assert (await api.get(JOBS, "default", "sum") is not None) == runs_again
        if runs_again:
            return
        state, version, message = fleet.last_state_and_version("own-1", "sum")
        assert (state, version) == ("Ended", "1.1")
        assert message.startswith("Complete: 4 succeeded; somebody deleted the Job, and it is not run again")


@pytest.mark.looptime
@pytest.mark.parametrize("manifest", [statefulset("db", 2), job("db", 2)], ids=["StatefulSet", "Job"])
async def test_what_no_placement_lists_is_an_orphan(fleet: Any, manifest: dict[str, Any]) -> None:
    marks = {"spillway.io/fleet": "f1", "spillway.io/workload": "db"}
    async with fleet:
        ours = {"name": "db", "namespace": "default", "labels": marks}
        await (await user_api_of_member(fleet)).create(KINDS[manifest["kind"]].served, manifest | {"metadata": ours})
        await fleet.start()
        await asyncio.sleep(10)
        assert fleet.last_state_and_version("own-1", "db")[0] == "Orphaned"
        assert fleet.transports["own-1"].writes == []


@pytest.mark.parametrize(
    ("declared", "known", "newest", "kind"),
    [
        ("Job", "Deployment", "StatefulSet", "Job"),
        ("CronJob", "StatefulSet", "Job", "StatefulSet"),
        ("", "StatefulSet", "Job", "StatefulSet"),
        ("", "", "Job", "Job"),
        ("", "", "", "Deployment"),
    ],
)
def test_the_kind_of_an_object_is_the_declared_one_else_what_is_known_of_it(
    declared: str, known: str, newest: str, kind: str
) -> None:
    assert kind_of_object(declared, known, newest) == kind
