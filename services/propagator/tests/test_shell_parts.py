"""The small parts of the shell: the queue, the mirror, and what becomes of a cluster that does not answer."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from propagator.cluster.attempts import Attempts
from propagator.cluster.mirror import DependencyOwner, ObjectMirror
from propagator.core.desired import PartTarget
from propagator.core.kinds import DEPLOYMENT, STATEFULSET
from propagator.core.live import DependencyReference, LiveDependency, LiveWorkload, ObjectMarks
from propagator.core.manifests import workload_label
from propagator.settings import PropagatorSettings
from spillway.clusters.api import ClusterUnreachable
from spillway.kubernetes.objects import AnnotatedMeta, AnyObject, Deployment
from spillway.model import Generation
from spillway.running.work_queue import WorkQueue

pytestmark = pytest.mark.looptime
A, B = PartTarget("own-1", "shop", "a"), PartTarget("own-1", "shop", "b")


async def test_a_target_waits_once_and_is_never_worked_on_twice_at_a_time() -> None:
    queue = WorkQueue[PartTarget]()
    for target in (A, B, A, A):
        queue.add_target(target)
    assert [await queue.take_target(), await queue.take_target()] == [A, B]
    queue.add_target(A)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.take_target(), 1)
    queue.finish_target(A)
    assert await asyncio.wait_for(queue.take_target(), 1) == A


async def test_now_goes_before_a_delay() -> None:
    queue = WorkQueue[PartTarget]()
    queue.add_target(A, 60)
    queue.add_target(B, 5)
    queue.add_target(A)
    began = asyncio.get_running_loop().time()
    assert [await queue.take_target(), await queue.take_target()] == [A, B]
    assert asyncio.get_running_loop().time() - began == 5
    assert len(queue) == 0


async def test_a_higher_rank_is_taken_before_all_that_waits_and_stays_so_while_it_is_worked_on() -> None:
    queue = WorkQueue[PartTarget]()
    for target in (A, B):
        queue.add_target(target)
    queue.add_target(B, rank=1)
    assert await queue.take_target() == B
    queue.add_target(B, rank=1)
    queue.add_target(B)
    queue.finish_target(B)
    assert [await queue.take_target(), await queue.take_target()] == [B, A]
    queue.finish_target(B)
    queue.add_target(A)
    queue.add_target(B, 5, rank=1)
    queue.finish_target(A)
    await asyncio.sleep(6)
    assert [await queue.take_target(), await queue.take_target()] == [B, A]
    assert len(queue) == 0


async def test_a_silent_cluster_is_tried_by_one_at_a_time_and_holds_no_slot_meanwhile() -> None:
    slots = asyncio.Semaphore(1)
    attempts = Attempts(PropagatorSettings(unreachable_first_seconds=1.0), slots)
    tries: list[float] = []
    loop = asyncio.get_running_loop()

    async def attempt_forever() -> None:
        while True:
            try:
                async with attempts.paced_attempt():
                    tries.append(loop.time())
                    raise ClusterUnreachable("own-1", "timeout", "")
            except ClusterUnreachable:
                pass

    began = loop.time()
    tasks = [asyncio.create_task(attempt_forever()) for _ in range(3)]
    await asyncio.sleep(20)
    assert not slots.locked()
    assert [round(at - began) for at in tries] == [0, 1, 3, 7, 15]
    for task in tasks:
        task.cancel()


def object_marks(uid: str, version: str, workload: str = "a") -> ObjectMarks:
    return ObjectMarks(uid, version, "f1", workload, False)


def live_workload(uid: str, version: str) -> LiveWorkload:
    return LiveWorkload(object_marks(uid, version), Generation(1, 1), 1, 1, 1, 1, 1)


def watched_deployment(uid: str, version: str) -> Deployment:
    return Deployment(AnnotatedMeta("a", "shop", uid, version, labels={"spillway.io/fleet": "f1"}))


def mirrored_workload(mirror: ObjectMirror) -> LiveWorkload:
    found = mirror.workload_of_kind(A, DEPLOYMENT)
    assert found is not None
    return found


async def test_an_answer_is_not_undone_by_a_watch_that_is_behind() -> None:
    mirror = ObjectMirror("own-1")
    mirror.put_workload(A, DEPLOYMENT, live_workload("u", "20"))
    mirror.upsert_workload(watched_deployment("u", "10"))
    assert mirrored_workload(mirror).marks.resource_version == "20"
    assert mirror.upsert_workload(watched_deployment("u", "30")) == A
    assert mirrored_workload(mirror).marks.resource_version == "30"
    assert mirror.upsert_workload(watched_deployment("u", "30")) is None, "nothing new"


async def test_the_end_of_an_older_object_does_not_end_the_newer() -> None:
    mirror = ObjectMirror("own-1")
    mirror.put_workload(A, DEPLOYMENT, live_workload("new", "20"))
    mirror.remove_workload(watched_deployment("old", "10"))
    assert A in mirror.workloads
    mirror.remove_workload(watched_deployment("new", "30"))
    assert A not in mirror.workloads


async def test_objects_of_several_kinds_may_have_one_name() -> None:
    mirror = ObjectMirror("own-1")
    other = replace(live_workload("s", "40"), kind=STATEFULSET, version=Generation(1, 2))
    mirror.put_workload(A, DEPLOYMENT, live_workload("u", "20"))
    mirror.put_workload(A, STATEFULSET, other)
    assert (mirrored_workload(mirror).marks.uid, mirror.newest_workload(A)) == ("u", other)
    assert mirror.replace_workloads(STATEFULSET, []) == {A}
    assert mirror.newest_workload(A) == mirrored_workload(mirror)
    mirror.remove_workload(watched_deployment("u", "30"))
    assert mirror.newest_workload(A) is None
    assert A not in mirror.workloads


async def test_what_no_placement_lists_is_found_by_its_label_or_the_object_that_bears_it() -> None:
    mirror, long = ObjectMirror("own-1"), PartTarget("own-1", "shop", "a" * 70)
    owners = [
        DependencyOwner("shop", "a"),
        DependencyOwner("shop", workload_label(long.name)),
        DependencyOwner("shop", ""),
    ]
    assert mirror.unlisted_targets(owners) == {A, PartTarget("own-1", "shop", workload_label(long.name))}
    mirror.put_workload(long, DEPLOYMENT, live_workload("u", "20"))
    assert mirror.unlisted_targets(owners) == {A, long}
    mirror.put_workload(long, DEPLOYMENT, None)
    assert mirror.unlisted_targets(owners) == {A, PartTarget("own-1", "shop", workload_label(long.name))}


async def test_a_look_for_a_label_hashes_the_name_of_no_workload(calls_of: Any) -> None:
    """A cluster may have as many labels of full length as it likes, each whatever it likes."""
    mirror = ObjectMirror("own-1")
    names = [f"{number:070}" for number in range(50)]
    for name in names:
        mirror.put_workload(PartTarget("own-1", "shop", name), DEPLOYMENT, live_workload("u", "20"))
    strangers = [DependencyOwner("shop", f"x{number:062}") for number in range(50)]
    owners = [*strangers, *(DependencyOwner("shop", workload_label(name)) for name in names)]
    with calls_of(workload_label) as labelled:
        found = mirror.unlisted_targets(owners)
    assert not labelled
    assert found == {PartTarget("own-1", "shop", name) for name in (*names, *(one.label for one in strangers))}


async def test_of_two_names_that_have_one_label_the_one_that_was_there_first_has_it_until_it_goes() -> None:
    mirror, long = ObjectMirror("own-1"), PartTarget("own-1", "shop", "a" * 70)
    short = PartTarget("own-1", "shop", workload_label(long.name))
    owners = [DependencyOwner("shop", short.name)]
    for target in (long, short):
        mirror.put_workload(target, DEPLOYMENT, live_workload("u", "20"))
        mirror.put_workload(target, STATEFULSET, replace(live_workload("s", "40"), kind=STATEFULSET))
    assert mirror.unlisted_targets(owners) == {long}
    mirror.put_workload(long, DEPLOYMENT, None)
    assert mirror.unlisted_targets(owners) == {long}, "an object of another kind has its name"
    mirror.put_workload(long, STATEFULSET, None)
    assert mirror.unlisted_targets(owners) == {short}


async def test_dependencies_are_found_by_their_owner() -> None:
    mirror = ObjectMirror("own-1")
    reference = DependencyReference("ConfigMap", "c")
    mirror.put_dependency("shop", reference, LiveDependency(object_marks("u", "1"), (1, "x")))
    assert mirror.live_state_of(A, DEPLOYMENT).dependencies.keys() == {reference}
    assert mirror.live_state_of(B, DEPLOYMENT).dependencies == {}
    moved = LiveDependency(replace(object_marks("u", "2"), workload="b"), (1, "x"))
    mirror.put_dependency("shop", reference, moved)
    assert mirror.live_state_of(A, DEPLOYMENT).dependencies == {}
    assert mirror.live_state_of(B, DEPLOYMENT).dependencies == {reference: moved}
    assert mirror.replace_dependencies("ConfigMap", []) == {DependencyOwner("shop", "b")}
    assert mirror.live_state_of(B, DEPLOYMENT).dependencies == {}
    listed = AnyObject(AnnotatedMeta("c", "shop", "u", "3", labels={"spillway.io/workload": "a"}))
    assert mirror.replace_dependencies("Service", [listed]) == {DependencyOwner("shop", "a")}
