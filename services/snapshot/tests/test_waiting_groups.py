"""Groups of waiting pods: brought up to date alone, and no more than there is room for."""

from typing import Any

import pytest

from snapshot.core import waiting_groups
from snapshot.core.cluster_state import ClusterState
from snapshot.core.rules import SnapshotRules
from snapshot.core.waiting_groups import OTHERS_REASON, most_frequent_entry
from spillway.kubernetes.objects import DEPLOYMENTS, PODS, REPLICASETS


@pytest.fixture
def state() -> ClusterState:
    return ClusterState("f1", SnapshotRules())


def pods_and_reason_by_group(state: ClusterState) -> dict[str, tuple[int, str]]:
    return {name: (group.pods, group.reason) for name, group in (state.take_waiting_groups() or {}).items()}


def test_a_message_about_one_pod_sums_its_group_alone(state: ClusterState, objects: Any, calls_of: Any) -> None:
    """Of 10,000 bare pods all were summed, 0.4 s of the loop, at each word of the scheduler."""
    for number in range(50):
        state.upsert_object(PODS, objects.pod(f"p{number}", said="no room"))
    state.take_changes()
    state.take_waiting_groups()
    with calls_of(most_frequent_entry) as calls:
        state.upsert_object(PODS, objects.pod("p7", said="still no room"))
        assert state.has_changes
        state.take_changes()
        groups = state.take_waiting_groups() or {}
    summed = [call["counts"] for call in calls]
    assert (len(groups), groups["Pod/default/p7"].reason) == (50, "still no room")
    assert [set(counts) for counts in summed if "still no room" in counts] == [{"still no room"}]
    assert len(summed) == 2  # Messages and shapes of one group.
    assert state.take_waiting_groups() is None


class Silent:
    def __repr__(self) -> str:
        raise AssertionError("what nobody compares is written as text")


def test_what_is_alone_or_most_frequent_is_not_compared_by_its_text() -> None:
    alone, other = Silent(), Silent()
    assert most_frequent_entry({alone: 1}) is alone
    assert most_frequent_entry({other: 1, alone: 2}) is alone
    assert most_frequent_entry({Silent(): 1 for _ in range(100)})
    assert most_frequent_entry({"b": 1, "a": 1}) == "a"


def test_a_namespace_has_a_bounded_number_of_groups(
    state: ClusterState, objects: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bare pod is a group. How many pods wait stays right, and nobody else's group is another for it."""
    monkeypatch.setattr(waiting_groups, "OF_NAMESPACE_MAX", 2)
    pods = [objects.pod(f"p{number}", said="no room", namespace="attacker") for number in range(5)]
    for pod in pods:
        state.upsert_object(PODS, pod)
    state.upsert_object(DEPLOYMENTS, objects.deployment())
    state.upsert_object(REPLICASETS, objects.replicaset("r1"))
    state.upsert_object(PODS, objects.pod("w1", owner="r1", said="no room"))
    state.upsert_object(PODS, objects.pod("q1", said="no room", namespace="shop"))
    of_others = {"default/web": (1, "no room"), "Pod/shop/q1": (1, "no room")}
    groups = state.take_waiting_groups() or {}
    assert {name: (group.pods, group.reason) for name, group in groups.items()} == of_others | {
        "Pod/attacker/p0": (1, "no room"),
        "Pod/attacker/p1": (1, "no room"),
        "Others/attacker/": (3, OTHERS_REASON),
    }
    assert groups["Others/attacker/"].shape is None
    state.upsert_object(PODS, objects.pod("p3", "n1", namespace="attacker"))
    assert pods_and_reason_by_group(state)["Others/attacker/"] == (2, OTHERS_REASON)
    for pod in pods:
        state.remove_object(PODS, pod)
    assert pods_and_reason_by_group(state) == of_others
    state.upsert_object(PODS, pods[4])
    assert pods_and_reason_by_group(state) == of_others | {"Pod/attacker/p4": (1, "no room")}


def test_a_cluster_has_a_bounded_number_of_groups(
    state: ClusterState, objects: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_groups, "OF_CLUSTER_MAX", 2)
    pods = [objects.pod(f"p{number}", said="no room", namespace=f"n{number}") for number in range(5)]
    for pod in pods:
        state.upsert_object(PODS, pod)
    assert pods_and_reason_by_group(state) == {
        "Pod/n0/p0": (1, "no room"),
        "Pod/n1/p1": (1, "no room"),
        "Others//": (3, OTHERS_REASON),
    }
    for pod in pods:
        state.remove_object(PODS, pod)
    assert pods_and_reason_by_group(state) == {}
