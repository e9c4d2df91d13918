"""What a group of Kafka promises instances that die or freeze and come back: seen with a process that can be hurt."""

import asyncio
import dataclasses
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from spillway.addresses import CLUSTERS, TURNS_PLANNER, Topic
from spillway.bus import has_reached_ends, partition_of
from spillway.dead_letters import outgoing_record
from spillway.events import ClusterLeft
from spillway.kafka.bus import KafkaBus
from spillway_local.kafka_server import PORTS_PER_NODE, KafkaServer
from spillway_local.ports import session_port
from spillway_local.programs import start_child
from tests.contract.bus_harness import DEADLINE_SECONDS, KafkaHarness

pytestmark = pytest.mark.kafka
LONG_SESSION_SECONDS, SHORT_SESSION_SECONDS = 20.0, 3.0

# Joins a group and prints each assignment as a line, until it is killed.
_MEMBER = """
import asyncio, json, sys
from spillway.addresses import (TOPIC_BY_NAME)
from spillway.kafka.bus import KafkaBus, KafkaSettings

async def main(instance, topic, settings):
    async with KafkaBus(KafkaSettings(**settings), "", instance) as bus:
        async with bus._hold_membership("group", TOPIC_BY_NAME[topic], instance, bus.settings.session_seconds) as turns:
            async for assignment in turns:
                print(json.dumps(sorted(assignment.partitions)), flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
"""


@dataclass(slots=True)
class Other:
    """An instance in a process of its own."""

    process: asyncio.subprocess.Process

    async def read_held_partitions(self) -> frozenset[int]:
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        assert line, "the process ended"
        return frozenset(json.loads(line))

    async def kill_process(self) -> None:
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def start_other_instance(kafka: KafkaHarness, instance: str, topic: Topic) -> AsyncIterator[Other]:
    settings = json.dumps(dataclasses.asdict(kafka.settings))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _MEMBER, instance, topic.name, settings, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield Other(process)
    finally:
        if process.returncode is None:
            await Other(process).kill_process()


@asynccontextmanager
async def join_in_this_process(kafka: KafkaHarness, instance: str, topic: Topic) -> AsyncIterator[list[frozenset[int]]]:
    """An instance in this process: what it held after each assignment."""
    seen: list[frozenset[int]] = []
    bus = await kafka.open_bus(instance)
    async with bus._hold_membership("group", topic, instance, kafka.settings.session_seconds) as turns:

        async def note_assignments() -> None:
            async for assignment in turns:
                seen.append(assignment.partitions)  # noqa: PERF401

        noting = asyncio.create_task(note_assignments())
        try:
            yield seen
        finally:
            noting.cancel()


@asynccontextmanager
async def form_kafka_harness(bootstrap: str, session_seconds: float) -> AsyncIterator[KafkaHarness]:
    kafka = KafkaHarness(bootstrap)
    kafka.settings = dataclasses.replace(kafka.settings, session_seconds=session_seconds)
    await kafka.form_log()
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            yield kafka
    finally:
        await kafka.close()


async def test_who_is_killed_and_back_within_the_session_moves_no_cluster(kafka_bootstrap: str) -> None:
    """It gets what it had, and the other one keeps what it has."""
    async with (
        form_kafka_harness(kafka_bootstrap, LONG_SESSION_SECONDS) as kafka,
        join_in_this_process(kafka, "b", CLUSTERS) as seen,
    ):
        async with start_other_instance(kafka, "a", CLUSTERS) as first:
            while len(before := await first.read_held_partitions()) != 2:
                pass  # Who joins first has all at first; then they share.
            await _wait_until(lambda: bool(seen) and not seen[-1] & before)
            kept = seen[-1]
            seen.clear()
            await first.kill_process()
        async with start_other_instance(kafka, "a", CLUSTERS) as again:
            assert await again.read_held_partitions() == before
        assert all(held == kept for held in seen), seen


@pytest.mark.parametrize(("frozen", "standby"), [("a", "b"), ("b", "a")])
async def test_who_froze_and_wakes_takes_nothing_from_its_successor(
    kafka_bootstrap: str, frozen: str, standby: str
) -> None:
    """It still thinks that the turn is its own; the group knows better, whichever of the two it asks first."""
    async with (
        form_kafka_harness(kafka_bootstrap, SHORT_SESSION_SECONDS) as kafka,
        start_other_instance(kafka, frozen, TURNS_PLANNER) as first,
    ):
        assert await first.read_held_partitions() == {0}
        async with join_in_this_process(kafka, standby, TURNS_PLANNER) as seen:
            await _wait_until(lambda: bool(seen))
            first.process.send_signal(signal.SIGSTOP)
            await _wait_until(lambda: seen[-1] == {0})
            seen.clear()
            first.process.send_signal(signal.SIGCONT)
            while await first.read_held_partitions():
                pass  # What it got while it was last awake.
            await _wait_until(lambda: bool(seen))
            assert all(held == {0} for held in seen), seen


@pytest.mark.parametrize("step", ["_do_heartbeat", "_do_rejoin_group", "_maybe_do_autocommit"])
async def test_who_cannot_get_over_an_answer_of_the_group_joins_again(
    kafka_bootstrap: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiokafka gives up at an answer that it does not expect, and tells nobody who fetches nothing."""
    async with form_kafka_harness(kafka_bootstrap, SHORT_SESSION_SECONDS) as kafka:
        bus = await kafka.open_bus("a")
        async with bus._hold_membership("group", CLUSTERS, "a", SHORT_SESSION_SECONDS) as turns:
            while not (await anext(turns)).partitions:
                pass
            coordinator = turns.seat.consumer._coordinator if turns.seat is not None else None
            broken = asyncio.Event()

            async def fail(*_: object) -> None:
                broken.set()
                raise KafkaError("an answer that nobody expected") if step != "_maybe_do_autocommit" else KeyError(step)

            monkeypatch.setattr(coordinator, step, fail)
            if step != "_do_heartbeat":
                coordinator.request_rejoin()
            await broken.wait()
            async with join_in_this_process(kafka, "b", CLUSTERS) as seen:
                held: frozenset[int] = frozenset()
                while len(held) != 2:
                    held = (await anext(turns)).partitions
                await _wait_until(lambda: bool(seen) and not seen[-1] & held)


async def _wait_until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.02)


class Lenient(KafkaServer):
    """A broker that takes records of a transaction which its coordinator does not know, as after losing its marks."""

    def settings(self) -> dict[str, str | int]:
        return super().settings() | {"transaction.partition.verification.enable": "false"}


async def test_what_was_committed_and_bears_no_mark_is_seen_by_the_next_writer(tmp_path: Path) -> None:
    """A broker that is killed right after a commit may never write its marks; the one who takes the turn does."""
    server = Lenient(tmp_path, session_port(count=PORTS_PER_NODE))
    child = await asyncio.to_thread(start_child, server.prepare_program(), tmp_path / "kafka.log")
    try:
        await asyncio.to_thread(child.wait_ready, server.is_ready, 60)
        async with form_kafka_harness(server.bootstrap_servers, SHORT_SESSION_SECONDS) as kafka:
            first, second = await kafka.open_bus("a"), await kafka.open_bus("b")
            async with first.join_standby_group("planner", "a") as turn:
                writer = await turn.wait_for_turn()
                await writer.write_events([ClusterLeft("before")])
                await _write_without_marks(first, writer, ClusterLeft("unmarked"))
            async with second.join_standby_group("planner", "b") as turn, second.follow_topics([CLUSTERS]) as feed:
                await turn.wait_for_turn()
                ends, seen = await feed.end_offsets(), []
                async for batch in feed:
                    seen += [record.key for record in batch.records]
                    if has_reached_ends(batch.positions, ends):
                        break
            assert sorted(seen) == ["before", "unmarked"]
    finally:
        child.kill()


async def test_who_writes_what_stays_hidden_gives_up_its_turn_and_the_next_one_shows_it(tmp_path: Path) -> None:
    """A broker that was too busy for the marks: whoever writes on would have it hidden until another writer comes."""
    server = Lenient(tmp_path, session_port(count=PORTS_PER_NODE))
    child = await asyncio.to_thread(start_child, server.prepare_program(), tmp_path / "kafka.log")
    try:
        await asyncio.to_thread(child.wait_ready, server.is_ready, 60)
        async with form_kafka_harness(server.bootstrap_servers, SHORT_SESSION_SECONDS) as kafka:
            kafka.settings = dataclasses.replace(kafka.settings, hidden_seconds=1.0)
            bus = await kafka.open_bus("a")
            async with bus.join_standby_group("planner", "a") as turn:
                writer = await turn.wait_for_turn()
                lost = asyncio.create_task(turn.wait_until_lost())
                await writer.write_events([ClusterLeft("seen")])
                await _write_without_marks(bus, writer, ClusterLeft("unmarked"))
                await lost
            async with bus.join_standby_group("planner", "a") as turn:
                await turn.wait_for_turn()
                assert await bus.find_unmarked_partitions([CLUSTERS]) == []
    finally:
        child.kill()


async def _write_without_marks(bus: KafkaBus, writer: Any, event: ClusterLeft) -> None:
    """The record is in the log, and for the coordinator no transaction is open."""
    producer = writer._producer
    place = TopicPartition(bus.topic_name(CLUSTERS), partition_of(event.cluster, bus.partition_count(CLUSTERS)))
    await producer.begin_transaction()
    producer._txn_manager._txn_partitions.add(place)
    await bus.send_records(producer, [outgoing_record(event)])
