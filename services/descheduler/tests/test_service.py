"""The descheduler on a bus in memory: what waits in, what goes back out, written at once; turns and restarts."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from prometheus_client import REGISTRY

from descheduler.core import recalling
from descheduler.core.state import DeschedulerState
from descheduler.service import Descheduler, DeschedulerClocks
from descheduler.settings import DeschedulerSettings
from spillway import api_lending as lending
from spillway import metrics
from spillway.addresses import DEAD_LETTERS, RECALLS
from spillway.api import RequestError
from spillway.columns import columns_of
from spillway.events import TurnTaken
from spillway.events_lending import LendingRule, NodeRecalled
from spillway.local_bus import LocalBroker, LocalBus
from spillway.wire import pack_columns

from .lending_log import (
    NOW_MS,
    OWN,
    POOL,
    capacity_reported,
    cluster_joined,
    lent_node_row,
    node_lent,
    pods_unschedulable,
    shape_of_cpu,
)

pytestmark = pytest.mark.looptime

FLEET = "f-1"
RULE = LendingRule("all", (), "idle", 0, 0, 0, 0.0)


class Platform:
    """A log with two clusters, of which own-1 has lent n1 and n2; instances by name."""

    def __init__(self) -> None:
        self.broker = LocalBroker()
        self.broker.form_log(FLEET)
        self.running: dict[str, tuple[Descheduler, LocalBus, asyncio.Event, asyncio.Task[None]]] = {}
        self.log = LocalBus(self.broker, FLEET, "test")

    async def publish_loans(self) -> None:
        await self.log.publish(cluster_joined(OWN), cluster_joined(POOL), TurnTaken("snapshot", OWN, "snapshot-1"))
        columns = pack_columns(columns_of([lent_node_row("n1"), lent_node_row("n2")]))
        await self.log.publish(replace(capacity_reported(), columns=columns), node_lent("n1"), node_lent("n2"))

    def start_instance(self, name: str, wall_ms: Callable[[], int] = lambda: NOW_MS) -> Descheduler:
        bus, stopping = LocalBus(self.broker, FLEET, name), asyncio.Event()
        clocks = DeschedulerClocks(asyncio.get_running_loop().time, wall_ms)
        service = Descheduler(bus, DeschedulerSettings(), f"{name}@{name}", clocks)
        task = asyncio.create_task(service.run(stopping))
        self.running[name] = (service, bus, stopping, task)
        return service

    async def kill_instance(self, name: str) -> None:
        _, bus, _, task = self.running.pop(name)
        bus.unavailable = True
        self.broker.end_sessions(bus)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def stop_all_instances(self) -> None:
        for _, _, stopping, task in self.running.values():
            stopping.set()
            await task

    async def read_recalls(self) -> list[NodeRecalled]:
        """All that the log has, in its order."""
        found: list[NodeRecalled] = []
        async with self.log.follow_topics((RECALLS,)) as feed:
            ends, positions = await feed.end_offsets(), {}
            async for batch in feed:
                found += [record.event for record in batch.records if isinstance(record.event, NodeRecalled)]
                positions.update(batch.positions)
                if all(positions.get(place, 0) >= end for place, end in ends.items()):
                    return found
        return found


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    made = Platform()
    await made.publish_loans()
    yield made
    await made.stop_all_instances()


async def wait_until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.05)


def nodes_with_open_recall(service: Descheduler) -> list[str]:
    return sorted(recall.node for recall in service.state.open_recalls())


def has_open_recalls_of(service: Descheduler, nodes: list[str]) -> bool:
    """In an active instance's state."""
    return service.is_active and nodes_with_open_recall(service) == nodes


async def test_pods_that_wait_become_recalls_in_one_transaction(platform: Platform) -> None:
    service = platform.start_instance("d-1")
    await wait_until(lambda: service.is_active)
    writes = platform.broker.end_offset(RECALLS.name, 0)
    await platform.log.publish(pods_unschedulable("ReplicaSet/default/a", 8, shape_of_cpu()))
    await wait_until(lambda: nodes_with_open_recall(service) == ["n1", "n2"])
    first, second = await platform.read_recalls()
    assert (first.node, first.cause, first.wanted_by) == ("n1", "Need", ("own-1/ReplicaSet/default/a",))
    assert second.generation == (first.generation.epoch, first.generation.sequence + 1)
    assert writes == 0


async def test_recalls_are_counted_by_owner_class_and_cause_and_one_instance_says_how_many_stand(
    platform: Platform,
) -> None:
    labels = {"cluster": OWN, "supply_class": "idle", "cause": "Need"}

    def counted_recalls() -> float:
        return REGISTRY.get_sample_value("spillway_recalls_total", labels) or 0.0

    before = counted_recalls()
    service = platform.start_instance("d-1")
    await wait_until(lambda: service.is_active)
    await platform.log.publish(pods_unschedulable("ReplicaSet/default/a", 8, shape_of_cpu()))
    await wait_until(lambda: counted_recalls() == before + 2)
    await wait_until(lambda: REGISTRY.get_sample_value("spillway_recalls_standing") == 2)
    await platform.kill_instance("d-1")
    await wait_until(lambda: REGISTRY.get_sample_value("spillway_recalls_standing") == 0)
    assert REGISTRY.get_sample_value("spillway_nodes_lent") == 0


async def test_a_recall_whose_write_failed_is_decided_again_and_said_once(platform: Platform) -> None:
    """Outcome unknown: the state is read again, and what the log has is not said twice."""
    for written in (False, True):
        service = platform.start_instance(f"d-{written}")
        await wait_until(partial(getattr, service, "is_active"))
        platform.broker.fail_next_write(written=written)
        await platform.log.publish(pods_unschedulable(f"ReplicaSet/default/{written}", 4, shape_of_cpu()))
        wanted = ["n1", "n2"] if written else ["n1"]
        await wait_until(partial(has_open_recalls_of, service, wanted))
        await platform.kill_instance(f"d-{written}")
    assert [event.node for event in await platform.read_recalls()] == ["n1", "n2"]


async def test_of_two_instances_one_decides_and_the_other_goes_on_where_it_was(platform: Platform) -> None:
    first = platform.start_instance("d-1")
    await wait_until(lambda: first.is_active)
    second = platform.start_instance("d-2")
    await platform.log.publish(pods_unschedulable("ReplicaSet/default/a", 4, shape_of_cpu()))
    await wait_until(lambda: nodes_with_open_recall(first) == ["n1"] and nodes_with_open_recall(second) == ["n1"])
    assert not second.is_active
    with pytest.raises(RequestError, match="this descheduler is a standby; the active one is at d-1"):
        await second.pause_lending(lending.PauseLendingRequest())
    assert (await second.list_lent(lending.ListLentRequest())).stale
    await platform.kill_instance("d-1")
    await wait_until(lambda: second.is_active)
    await platform.log.publish(pods_unschedulable("ReplicaSet/default/a", 8, shape_of_cpu(), sequence=2))
    await wait_until(lambda: nodes_with_open_recall(second) == ["n1", "n2"])
    assert [event.node for event in await platform.read_recalls()] == ["n1", "n2"]


async def test_what_people_declare_and_ask_back_outlives_a_restart(platform: Platform) -> None:
    service = platform.start_instance("d-1")
    await wait_until(lambda: service.is_active)
    await service.declare_lending(lending.DeclareLendingRequest(OWN, POOL, (RULE,), grace_seconds=5))
    await service.pause_lending(lending.PauseLendingRequest(OWN, "holiday"))
    reply = await service.recall(lending.RecallRequest(OWN, ("n2",), reason="sold"))
    assert [(node.node, node.state) for node in reply.nodes] == [("n2", "Recalled")]
    await platform.kill_instance("d-1")
    again = platform.start_instance("d-2")
    await wait_until(lambda: again.is_active)
    (shown,) = (await again.list_lending(lending.ListLendingRequest())).clusters
    assert (shown.paused, shown.reason, shown.grace_seconds, shown.nodes, shown.nodes_lent) == (
        True,
        "holiday",
        5,
        2,
        2,
    )
    assert nodes_with_open_recall(again) == ["n2"]
    (event,) = await platform.read_recalls()
    assert (event.grace_seconds, event.reason) == (5, "sold")


async def test_a_record_that_does_not_decompress_is_set_aside(platform: Platform) -> None:
    service = platform.start_instance("d-1")
    await wait_until(lambda: service.is_active)
    await platform.log.publish(replace(capacity_reported(sequence=1), columns=b"\x00bad"))
    await platform.log.publish(pods_unschedulable("ReplicaSet/default/a", 4, shape_of_cpu()))
    await wait_until(lambda: nodes_with_open_recall(service) == ["n1"])
    assert platform.broker.end_offset(DEAD_LETTERS.name, 0) == 1


def raise_error(_: NodeRecalled) -> list[NodeRecalled]:
    raise ZeroDivisionError


def unwritable_recalls(recall: NodeRecalled) -> list[NodeRecalled]:
    return [replace(recall, at_ms=2**70)]


@pytest.mark.parametrize("fault", [raise_error, unwritable_recalls])
async def test_an_error_that_one_cluster_meets_costs_that_cluster_alone(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, fault: Callable[[NodeRecalled], list[NodeRecalled]]
) -> None:
    recall_for_needs, failed = recalling.recall_for_needs, metrics.DECISIONS_FAILED._value.get()

    def recall_with_fault(state: DeschedulerState, cluster: str, *more: Any) -> Sequence[Any]:
        events = recall_for_needs(state, cluster, *more)
        return fault(events[0]) if events and cluster == "own-0" else events  # type: ignore[arg-type]

    await platform.log.publish(cluster_joined("own-0"), TurnTaken("snapshot", "own-0", "snapshot-1"))
    rows = pack_columns(columns_of([lent_node_row("n0")]))
    await platform.log.publish(
        replace(capacity_reported(), cluster="own-0", columns=rows), replace(node_lent("n0"), cluster="own-0")
    )
    with monkeypatch.context() as patched:
        patched.setattr(recalling, "recall_for_needs", recall_with_fault)
        service = platform.start_instance("d-1")
        await wait_until(lambda: service.is_active)
        need = pods_unschedulable("ReplicaSet/default/a", 8, shape_of_cpu())
        await platform.log.publish(replace(need, cluster="own-0"), need)
        await wait_until(lambda: nodes_with_open_recall(service) == ["n1", "n2"])
        assert metrics.DECISIONS_FAILED._value.get() == failed + 1
    await wait_until(lambda: has_open_recalls_of(service, ["n0", "n1", "n2"]))
    assert [one.generation[0] for one in await platform.read_recalls()] == [
        service.state.recalls[OWN]["n1"].generation[0]
    ] * 3


async def test_a_review_comes_in_its_time_though_the_calendar_clock_was_ahead_for_a_moment(platform: Platform) -> None:
    """By the calendar clock there was no review for the hour that the clock had been ahead."""
    ahead_ms = 3_600_000
    service = platform.start_instance("d-1", lambda: NOW_MS + ahead_ms)
    await wait_until(lambda: service.is_active)
    await asyncio.sleep(DeschedulerSettings().review_seconds)
    ahead_ms, looks = 0, looks_at_clusters()
    await wait_until(lambda: looks_at_clusters() >= looks + 2)


def looks_at_clusters() -> float:
    return REGISTRY.get_sample_value(f"{metrics.RECALL_LOOK_SECONDS._name}_count") or 0.0
