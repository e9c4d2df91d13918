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
from descheduler.service import Descheduler
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

from .lending_log import NOW_MS, OWN, POOL, joined, lent, loan, reported, shape, waits

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

    async def fill(self) -> None:
        await self.log.publish(joined(OWN), joined(POOL), TurnTaken("snapshot", OWN, "snapshot-1"))
        columns = pack_columns(columns_of([lent("n1"), lent("n2")]))
        await self.log.publish(replace(reported(), columns=columns), loan("n1"), loan("n2"))

    def start(self, name: str) -> Descheduler:
        bus, stopping = LocalBus(self.broker, FLEET, name), asyncio.Event()
        service = Descheduler(bus, DeschedulerSettings(), f"{name}@{name}", lambda: NOW_MS)
        task = asyncio.create_task(service.run(stopping))
        self.running[name] = (service, bus, stopping, task)
        return service

    async def kill(self, name: str) -> None:
        _, bus, _, task = self.running.pop(name)
        bus.unavailable = True
        self.broker.end_sessions(bus)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def stop(self) -> None:
        for _, _, stopping, task in self.running.values():
            stopping.set()
            await task

    async def recalled(self) -> list[NodeRecalled]:
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
    await made.fill()
    yield made
    await made.stop()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.05)


def standing(service: Descheduler) -> list[str]:
    return sorted(recall.node for recall in service.state.open_recalls())


def recalls_are(service: Descheduler, nodes: list[str]) -> bool:
    """In an active instance's state."""
    return service.is_active and standing(service) == nodes


async def test_pods_that_wait_become_recalls_in_one_transaction(platform: Platform) -> None:
    service = platform.start("d-1")
    await until(lambda: service.is_active)
    writes = platform.broker.end_offset(RECALLS.name, 0)
    await platform.log.publish(waits("ReplicaSet/default/a", 8, shape()))
    await until(lambda: standing(service) == ["n1", "n2"])
    first, second = await platform.recalled()
    assert (first.node, first.cause, first.wanted_by) == ("n1", "Need", ("own-1/ReplicaSet/default/a",))
    assert second.generation == (first.generation.epoch, first.generation.sequence + 1)
    assert writes == 0


async def test_recalls_are_counted_by_owner_class_and_cause_and_one_instance_says_how_many_stand(
    platform: Platform,
) -> None:
    labels = {"cluster": OWN, "supply_class": "idle", "cause": "Need"}

    def recalls() -> float:
        return REGISTRY.get_sample_value("spillway_recalls_total", labels) or 0.0

    before = recalls()
    service = platform.start("d-1")
    await until(lambda: service.is_active)
    await platform.log.publish(waits("ReplicaSet/default/a", 8, shape()))
    await until(lambda: recalls() == before + 2)
    await until(lambda: REGISTRY.get_sample_value("spillway_recalls_standing") == 2)
    await platform.kill("d-1")
    await until(lambda: REGISTRY.get_sample_value("spillway_recalls_standing") == 0)
    assert REGISTRY.get_sample_value("spillway_nodes_lent") == 0


async def test_a_recall_whose_write_failed_is_decided_again_and_said_once(platform: Platform) -> None:
    """Outcome unknown: the state is read again, and what the log has is not said twice."""
    for written in (False, True):
        service = platform.start(f"d-{written}")
        await until(partial(getattr, service, "is_active"))
        platform.broker.fail_next_write(written=written)
        await platform.log.publish(waits(f"ReplicaSet/default/{written}", 4, shape()))
        wanted = ["n1", "n2"] if written else ["n1"]
        await until(partial(recalls_are, service, wanted))
        await platform.kill(f"d-{written}")
    assert [event.node for event in await platform.recalled()] == ["n1", "n2"]


async def test_of_two_instances_one_decides_and_the_other_goes_on_where_it_was(platform: Platform) -> None:
    first = platform.start("d-1")
    await until(lambda: first.is_active)
    second = platform.start("d-2")
    await platform.log.publish(waits("ReplicaSet/default/a", 4, shape()))
    await until(lambda: standing(first) == ["n1"] and standing(second) == ["n1"])
    assert not second.is_active
    with pytest.raises(RequestError, match="this descheduler is a standby; the active one is at d-1"):
        await second.pause_lending(lending.PauseLendingRequest())
    assert (await second.list_lent(lending.ListLentRequest())).stale
    await platform.kill("d-1")
    await until(lambda: second.is_active)
    await platform.log.publish(waits("ReplicaSet/default/a", 8, shape(), sequence=2))
    await until(lambda: standing(second) == ["n1", "n2"])
    assert [event.node for event in await platform.recalled()] == ["n1", "n2"]


async def test_what_people_declare_and_ask_back_outlives_a_restart(platform: Platform) -> None:
    service = platform.start("d-1")
    await until(lambda: service.is_active)
    await service.declare_lending(lending.DeclareLendingRequest(OWN, POOL, (RULE,), grace_seconds=5))
    await service.pause_lending(lending.PauseLendingRequest(OWN, "holiday"))
    reply = await service.recall(lending.RecallRequest(OWN, ("n2",), reason="sold"))
    assert [(node.node, node.state) for node in reply.nodes] == [("n2", "Recalled")]
    await platform.kill("d-1")
    again = platform.start("d-2")
    await until(lambda: again.is_active)
    (shown,) = (await again.list_lending(lending.ListLendingRequest())).clusters
    assert (shown.paused, shown.reason, shown.grace_seconds, shown.nodes, shown.nodes_lent) == (
        True,
        "holiday",
        5,
        2,
        2,
    )
    assert standing(again) == ["n2"]
    (event,) = await platform.recalled()
    assert (event.grace_seconds, event.reason) == (5, "sold")


async def test_a_record_that_does_not_decompress_is_set_aside(platform: Platform) -> None:
    service = platform.start("d-1")
    await until(lambda: service.is_active)
    await platform.log.publish(replace(reported(sequence=1), columns=b"\x00bad"))
    await platform.log.publish(waits("ReplicaSet/default/a", 4, shape()))
    await until(lambda: standing(service) == ["n1"])
    assert platform.broker.end_offset(DEAD_LETTERS.name, 0) == 1


def a_bug(_: NodeRecalled) -> list[NodeRecalled]:
    raise ZeroDivisionError


def what_no_record_holds(recall: NodeRecalled) -> list[NodeRecalled]:
    return [replace(recall, at_ms=2**70)]


@pytest.mark.parametrize("fault", [a_bug, what_no_record_holds])
async def test_an_error_that_one_cluster_meets_costs_that_cluster_alone(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, fault: Callable[[NodeRecalled], list[NodeRecalled]]
) -> None:
    recall_for_needs, failed = recalling.recall_for_needs, metrics.DECISIONS_FAILED._value.get()

    def with_a_fault(state: DeschedulerState, cluster: str, *more: Any) -> Sequence[Any]:
        events = recall_for_needs(state, cluster, *more)
        return fault(events[0]) if events and cluster == "own-0" else events  # type: ignore[arg-type]

    await platform.log.publish(joined("own-0"), TurnTaken("snapshot", "own-0", "snapshot-1"))
    rows = pack_columns(columns_of([lent("n0")]))
    await platform.log.publish(replace(reported(), cluster="own-0", columns=rows), replace(loan("n0"), cluster="own-0"))
    with monkeypatch.context() as patched:
        patched.setattr(recalling, "recall_for_needs", with_a_fault)
        service = platform.start("d-1")
        await until(lambda: service.is_active)
        need = waits("ReplicaSet/default/a", 8, shape())
        await platform.log.publish(replace(need, cluster="own-0"), need)
        await until(lambda: standing(service) == ["n1", "n2"])
        assert metrics.DECISIONS_FAILED._value.get() == failed + 1
    await until(lambda: recalls_are(service, ["n0", "n1", "n2"]))
    assert [one.generation[0] for one in await platform.recalled()] == [
        service.state.recalls[OWN]["n1"].generation[0]
    ] * 3
