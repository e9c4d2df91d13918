"""Word of what a reading had begins no further reading; word of anything else does."""

from typing import Any

import pytest

from spillway.clusters.api import Change, ListedObjects, ObjectRemoved, ObjectUpserted, StreamAlive
from spillway.kubernetes.live_objects import Manifest
from spillway.kubernetes.objects import AnyObject
from vk_bridge.cluster.answers import NodeAnswers
from vk_bridge.cluster.node_reader import NodeReading
from vk_bridge.cluster.read_cache import ReadCache
from vk_bridge.cluster.version_cache import VersionCache
from vk_bridge.core.node.loan import Observation
from vk_bridge.core.pod.conversion import PoolSide
from vk_bridge.core.selection.owner_cache import AnnotatedMeta

VIRTUAL: Manifest = {"metadata": {"uid": "v", "resourceVersion": "3"}}


def pod_manifest(uid: str, version: str) -> Manifest:
    return {"metadata": {"uid": uid, "resourceVersion": version}}


def reading_of_pods(*pods: Manifest, **found: Any) -> NodeReading:
    """Of node n, with these pods of the pool's."""
    observation = Observation(0.0, None, None, owner_read=found.pop("owner_read", True))
    by_uid = {one["metadata"]["uid"]: one for one in pods}
    whole = {"node": None, "virtual": VIRTUAL, "own_pods": {}, "owner_read": True, "pool_read": True} | found
    side = PoolSide("pool", "own-1.n", "")
    return NodeReading("n", None, side, observation, NodeAnswers(pool_pods=by_uid, **whole), {}, {}, None, None)


def watched_object(uid: str, version: str) -> AnyObject:
    return AnyObject(AnnotatedMeta(name=uid, uid=uid, resource_version=version))


def cache_after_readings(*readings: NodeReading) -> ReadCache:
    last = ReadCache()
    last.begin_work("n")
    for one in readings:
        last.note_reading(one)
    assert not last.end_work("n", readings[-1])
    return last


@pytest.mark.parametrize(
    ("change", "news"),
    [
        (ObjectUpserted(watched_object("a", "7")), False),
        (ObjectUpserted(watched_object("v", "3")), False),
        (ObjectUpserted(watched_object("a", "8")), True),
        (ObjectUpserted(watched_object("b", "7")), True),
        (ObjectRemoved(watched_object("a", "9")), True),
        (ObjectRemoved(watched_object("b", "9")), False),
        (ListedObjects((), "9"), True),
        (StreamAlive(), True),
    ],
)
def test_only_what_the_last_reading_had_is_no_news(change: Change, news: bool) -> None:
    assert cache_after_readings(reading_of_pods(pod_manifest("a", "7"))).is_news("n", change) is news


def test_versions_between_two_readings_of_one_go_are_no_news() -> None:
    last = cache_after_readings(
        reading_of_pods(pod_manifest("a", "7"), pod_manifest("b", "2")), reading_of_pods(pod_manifest("a", "8"))
    )
    assert not last.is_news("n", ObjectUpserted(watched_object("a", "7")))
    assert not last.is_news("n", ObjectUpserted(watched_object("b", "2")))
    assert not last.is_news("n", ObjectRemoved(watched_object("b", "5")))


def test_a_node_at_rest_is_known_as_it_was_read_until_it_is_begun_again() -> None:
    last = cache_after_readings(reading_of_pods(pod_manifest("a", "7")))
    known = last.begin_work("n")
    assert known is not None
    assert (known.node, known.virtual, known.uids) == (None, VIRTUAL, {"a", "v"})
    assert last.begin_work("n") is None


def test_what_is_told_while_a_node_is_under_way_is_judged_at_its_end() -> None:
    last = ReadCache()
    last.begin_work("n")
    assert not last.is_news("n", ObjectUpserted(watched_object("a", "7")))
    last.note_reading(reading_of_pods(pod_manifest("a", "7")))
    assert not last.end_work("n", reading_of_pods(pod_manifest("a", "7")))
    last.begin_work("n")
    assert not last.is_news("n", ObjectUpserted(watched_object("a", "8")))
    last.note_reading(reading_of_pods(pod_manifest("a", "7")))
    assert last.end_work("n", reading_of_pods(pod_manifest("a", "7"))) == [ObjectUpserted(watched_object("a", "8"))]


@pytest.mark.parametrize("end", [None, reading_of_pods(owner_read=False)])
def test_a_node_that_did_not_come_to_rest_is_read_for_all_that_is_told(end: NodeReading | None) -> None:
    last = ReadCache()
    last.begin_work("n")
    last.note_reading(reading_of_pods(pod_manifest("a", "7")))
    assert not last.end_work("n", end)
    assert last.is_news("n", ObjectUpserted(watched_object("a", "7")))


def test_what_was_worked_out_is_kept_while_versions_are_the_same() -> None:
    made: list[str] = []

    def make_value(uid: str) -> int:
        made.append(uid)
        return len(made)

    kept = VersionCache[int]()
    assert kept.value_by_uid("n", {"a": "1", "b": "1"}, make_value) == {"a": 1, "b": 2}
    assert kept.value_by_uid("n", {"a": "1", "b": "2"}, make_value) == {"a": 1, "b": 3}
    assert kept.value_by_uid("n", {}, make_value) == {}
    assert kept.value_by_uid("n", {"a": "1"}, make_value) == {"a": 4}
    assert kept.value_by_uid("other", {"a": "1"}, make_value) == {"a": 5}
