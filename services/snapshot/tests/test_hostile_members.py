"""What a hostile API server, or a tenant in a member, may say without costing other clusters more than a moment."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from snapshot.collector import Collector, Surroundings
from snapshot.core.cluster_state import ClusterState
from snapshot.core.log_book import LogBook
from snapshot.core.pod_bounds import CONTAINERS_MAX, RESOURCES_MAX
from snapshot.settings import Settings
from spillway.clusters.api import Upserted
from spillway.events import ClusterJoined
from spillway.kubernetes.objects import DEPLOYMENTS, NAMESPACES, NODES, PODS, REPLICASETS
from spillway.local_bus import LocalBroker, LocalBus
from spillway.running.cluster_turns import Turn


@pytest.fixture
def state() -> ClusterState:
    return ClusterState("f1", Settings())


class Unscanned(dict[str, str]):
    def values(self) -> Any:
        raise AssertionError("all namespaces are looked at")


def test_a_namespace_that_goes_is_not_looked_for_among_all_others(state: ClusterState, objects: Any) -> None:
    """40,000 of them, then an empty list, were 24 s of the loop."""
    state.listed(NAMESPACES, [objects.namespace(f"n{number}", {"k": "v"}) for number in range(3)], 0.0)
    state.take_changes()
    state.namespaces._name_by_uid = Unscanned(state.namespaces._name_by_uid)
    state.listed(NAMESPACES, [objects.namespace("n1", {"k": "v"})], 1.0)
    assert state.take_changes().namespaces_removed == ("n0", "n2")


def test_a_namespace_that_is_made_anew_under_its_name_stays(state: ClusterState, objects: Any) -> None:
    old, new = objects.namespace("n1", {"k": "old"}), objects.namespace("n1", {"k": "new"})
    new = replace(new, metadata=replace(new.metadata, uid="other"))
    state.upserted(NAMESPACES, old)
    state.upserted(NAMESPACES, new)
    state.removed(NAMESPACES, old)
    assert [one.labels for one in state.take_changes().namespaces] == [(("k", "new"),)]
    state.removed(NAMESPACES, new)
    assert state.take_changes().namespaces_removed == ("n1",)


def test_an_owner_counts_only_in_its_namespace(state: ClusterState, objects: Any) -> None:
    """Whoever may make pods anywhere may name any owner: its pods were counted, sampled and waited as another's."""
    state.upserted(DEPLOYMENTS, objects.deployment())
    state.upserted(REPLICASETS, objects.replicaset("r1"))
    state.upserted(REPLICASETS, objects.replicaset("r2", namespace="attacker"))  # Names the same Deployment.
    state.upserted(PODS, objects.pod("p1", "n1", owner="r1"))
    for number, owner in enumerate(("r1", "r2", "d1")):
        state.upserted(PODS, objects.pod(f"x{number}", "n1", owner=owner, namespace="attacker"))
        state.upserted(PODS, objects.pod(f"y{number}", said="no room", owner=owner, namespace="attacker"))
    (facts,) = state.take_changes().facts
    assert facts.counted == (("h1", 1),)
    assert [one.name for one in state.details.of_owners(state.workloads.owners(("default", "web")))] == ["p1"]
    assert {(name, group.workload) for name, group in state.groups().items()} == {
        (f"ReplicaSet/attacker/{owner}", "") for owner in ("r1", "r2", "d1")
    }
    state.removed(REPLICASETS, objects.replicaset("r2", namespace="attacker"))
    assert not state.workloads.dirty


MANY_CONTAINERS = {"initContainers": [{"name": "c", "restartPolicy": "Always"}] * CONTAINERS_MAX}
MANY_RESOURCES = {
    "initContainers": [
        {"name": f"c{number}", "resources": {"requests": {f"example.com/{number}": "1"}}}
        for number in range(RESOURCES_MAX)
    ]
}


@pytest.mark.parametrize("spec", [MANY_CONTAINERS, MANY_RESOURCES])
def test_a_pod_that_holds_more_than_its_bound_cannot_be_read(state: ClusterState, objects: Any, spec: Any) -> None:
    """Its node is closed, as by any pod that cannot be read; while it waits nobody knows what it asks for."""
    state.upserted(NODES, objects.node("n1"))
    state.upserted(PODS, objects.pod("p1", "n1", spec=spec))
    state.upserted(PODS, objects.pod("p2", said="no room", spec=spec))
    row = state.row("n1")
    assert (row.unschedulable, row.allocatable, row.requested) == (True, {}, {"pods": 1})
    assert [(group.pods, group.shape) for group in state.groups().values()] == [(1, None)]


async def no_claim(turn: Turn) -> None:
    return


class OneBatch:
    def __init__(self, changes: tuple[Upserted, ...]) -> None:
        self._changes = changes

    async def follow(self, kind: Any, label_selector: str) -> AsyncIterator[tuple[Upserted, ...]]:
        yield self._changes


async def test_others_have_their_turn_while_many_changes_of_one_answer_are_applied(objects: Any) -> None:
    bus, settings = LocalBus(LocalBroker(), "f1", "s1"), Settings(list_step_objects=10)
    book = LogBook(), asyncio.Event(), asyncio.Semaphore(1)
    around = Surroundings(bus, lambda joined: None, settings, no_claim, *book, lambda: 0)  # type: ignore[arg-type, return-value]
    joined = ClusterJoined("own-1", "", "", "own", "r", "z", (), ())
    collector = Collector(Turn("own-1", None), joined, around)
    collector._may_list.set()
    api: Any = OneBatch(tuple(Upserted(objects.node(f"n{number}")) for number in range(100)))
    following = asyncio.create_task(collector._stream(api, NODES))
    turns = 0
    while not following.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10
    assert collector.core.state.nodes.count == 100
