"""Whose a pod is, and what of it matters: an owner's pod is never taken for the pool's."""

from typing import Any

import pytest

from vk_bridge.core.node.loan import PoolPod, RealPod
from vk_bridge.core.pod.deletion import PodDeletion
from vk_bridge.core.pod.parsing import (
    is_daemon,
    is_occupying_node,
    is_real_pod_of,
    pool_of_real_pod,
    read_deletion,
    read_pool_pod,
    read_real_pod,
)
from vk_bridge.core.selection.idleness import SeenPod
from vk_bridge.core.selection.owner_cache import seen_pod

LABELS = {"spillway.io/pool": "pool-id", "spillway.io/pool-uid": "u"}


def pod_manifest(
    namespace: str = "shop", labels: dict[str, str] | None = None, owner: str = "", phase: str = "Running", **more: Any
) -> dict[str, Any]:
    owners = [{"kind": owner, "name": "o", "uid": "o", "controller": True}] if owner else []
    metadata = {"uid": "r", "resourceVersion": "12", "namespace": namespace, "labels": labels or {}, **more}
    return {
        "metadata": {**metadata, "ownerReferences": owners},
        "spec": {"nodeName": "n1"},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("found", "pool", "daemon", "counts"),
    [
        pytest.param(pod_manifest(owner="ReplicaSet"), "", False, True, id="an owner's own"),
        pytest.param(pod_manifest(owner="DaemonSet"), "", True, False, id="a daemon"),
        pytest.param(pod_manifest(owner="Node"), "", True, False, id="a static pod"),
        pytest.param(pod_manifest(phase="Succeeded"), "", False, False, id="one that has ended"),
        pytest.param(pod_manifest("spillway-lent-shop", LABELS), "pool-id", False, False, id="the pool's"),
        pytest.param(pod_manifest("shop", LABELS), "", False, True, id="labels alone do not make it the pool's"),
        pytest.param(pod_manifest("spillway-lent-shop"), "", False, True, id="nor does the namespace"),
    ],
)
def test_whose_a_pod_is(found: dict[str, Any], pool: str, daemon: bool, counts: bool) -> None:
    assert (pool_of_real_pod(found), is_daemon(found), is_occupying_node(found)) == (pool, daemon, counts)
    assert seen_pod(found) == SeenPod("r", 12, "n1", found["status"]["phase"] == "Running", daemon or bool(pool))


REAL_POD = pod_manifest("spillway-lent-shop", LABELS)
POOL_POD = {"metadata": {"uid": "u"}, "spec": {"nodeName": "own-1.n1"}}


@pytest.mark.parametrize(
    ("found", "pool", "node", "expected"),
    [
        pytest.param(REAL_POD, "pool-id", "n1", True, id="its own"),
        pytest.param(REAL_POD, "other-pool", "n1", False, id="another pool's"),
        pytest.param(REAL_POD, "pool-id", "n2", False, id="on another node"),
        pytest.param(
            pod_manifest("spillway-lent-shop", LABELS | {"spillway.io/pool-uid": "v"}),
            "pool-id",
            "n1",
            False,
            id="of another pod",
        ),
        pytest.param(pod_manifest("shop", LABELS), "pool-id", "n1", False, id="an owner's own with our labels"),
        pytest.param(pod_manifest("spillway-lent-shop"), "", "n1", False, id="an owner's own in our namespace"),
    ],
)
def test_only_its_own_real_pod_is_read_for_a_pool_pod(
    found: dict[str, Any], pool: str, node: str, expected: bool
) -> None:
    assert is_real_pod_of(found, POOL_POD, pool, node) == expected


def test_a_version_that_is_no_number_is_older_than_all_others() -> None:
    assert seen_pod(pod_manifest(resourceVersion="x")).version == -1
    assert seen_pod(pod_manifest(resourceVersion="1" * 5_000)).version == -1


def test_a_pool_pod_has_its_own_grace_until_somebody_deletes_it_with_another() -> None:
    found = pod_manifest()
    assert read_pool_pod(found) == PoolPod("r", grace_seconds=30)
    found["spec"]["terminationGracePeriodSeconds"] = 7
    assert read_pool_pod(found).grace_seconds == 7
    deleted = pod_manifest(deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=3)
    assert read_pool_pod(deleted) == PoolPod("r", deleting=True, grace_seconds=3)
    deleted["metadata"] |= {"deletionGracePeriodSeconds": 0, "finalizers": ["example.com/hold"]}
    assert read_pool_pod(deleted) == PoolPod("r", deleting=True, grace_seconds=0, held=True)


@pytest.mark.parametrize(
    ("value", "seconds"), [(None, 30), (7, 7), (0, 0), ("x", 0), (True, 0), (-1, 0), (2.5, 0), ([], 0), ({}, 0)]
)
def test_a_grace_that_no_api_server_gives_is_no_time_at_all(value: object, seconds: int) -> None:
    """A pool whose API server says so would keep its pods on a node that its owner wants back."""
    found = pod_manifest()
    found["spec"]["terminationGracePeriodSeconds"] = value
    assert read_pool_pod(found).grace_seconds == seconds
    assert read_real_pod(found, overdue=False, news=False).grace_seconds == seconds
    deleted = pod_manifest(deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=value)
    assert read_pool_pod(deleted).grace_seconds == seconds
    assert read_deletion(deleted, None, 100.0) == PodDeletion(seconds, 100.0 + seconds)


def test_a_real_pod_names_its_pool_pod() -> None:
    found = pod_manifest("spillway-lent-shop", LABELS, phase="Failed", deletionTimestamp="2026-01-01T00:00:00Z")
    assert read_real_pod(found, overdue=True, news=False) == RealPod("r", "u", deleting=True, ended=True, overdue=True)


@pytest.mark.parametrize(
    ("grace", "before", "over_at"),
    [
        pytest.param(30, None, 130.0, id="seen first"),
        pytest.param(30, PodDeletion(30, 110.0), 110.0, id="as before"),
        pytest.param(5, PodDeletion(30, 110.0), 105.0, id="a shortened grace begins again"),
        pytest.param(20, PodDeletion(30, 110.0), 110.0, id="and ends no later than before"),
        pytest.param(60, PodDeletion(30, 110.0), 110.0, id="nor does a longer one"),
    ],
)
def test_a_grace_ends_as_a_kubelet_ends_it(grace: int, before: PodDeletion | None, over_at: float) -> None:
    pod = pod_manifest(deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=grace)
    found = read_deletion(pod, before, 100.0)
    assert (found.over_at, found.forced_at(15.0)) == (over_at, over_at + 15)
    assert found.seconds_left(100.0) == int(over_at) - 100


def test_a_pod_that_was_deleted_by_force_is_left_alone_until_the_next_time() -> None:
    assert PodDeletion(0, 100.0, forced=1, again_at=200.0).forced_at(15.0) == 200.0
