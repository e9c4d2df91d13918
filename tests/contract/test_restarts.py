"""What a group of Kafka promises an instance that dies and comes back: seen with a process that can be killed."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from spillway.bus import Assignment
from tests.contract.bus_harness import DEADLINE_SECONDS, KafkaHarness

pytestmark = pytest.mark.kafka
SESSION_SECONDS = 20.0

# Joins the group and prints each assignment as a line, until it is killed.
_MEMBER = """
import asyncio, json, sys
from spillway.kafka import KafkaBus, KafkaSettings

async def main(instance, settings):
    async with KafkaBus(KafkaSettings(**settings), "", instance) as bus:
        async with bus.cluster_turns("snapshot", instance) as turns:
            async for assignment in turns:
                print(json.dumps(sorted(assignment.partitions)), flush=True)

asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
"""


@dataclass(slots=True)
class Other:
    """An instance in a process of its own."""

    process: asyncio.subprocess.Process

    async def holds(self) -> frozenset[int]:
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        assert line, "the process ended"
        return frozenset(json.loads(line))

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def other(kafka: KafkaHarness, instance: str) -> AsyncIterator[Other]:
    settings = json.dumps(
        {
            "bootstrap": kafka.settings.bootstrap,
            "topic_prefix": kafka.settings.topic_prefix,
            "session_seconds": SESSION_SECONDS,
        }
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _MEMBER, instance, settings, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield Other(process)
    finally:
        if process.returncode is None:
            await Other(process).kill()


async def test_who_is_killed_and_back_within_the_session_moves_no_cluster(kafka_bootstrap: str) -> None:
    """It gets what it had; the other one keeps what it has, and is at no time without it for longer than let_go."""
    kafka = KafkaHarness(kafka_bootstrap)
    await kafka.form()
    bus = await kafka.bus("b")
    seen: list[frozenset[int]] = []
    try:
        async with bus.cluster_turns("snapshot", "b") as turns, asyncio.timeout(DEADLINE_SECONDS):
            noting = asyncio.create_task(_note(turns, seen))
            async with other(kafka, "a") as first:
                before = await _half(first)
                while not seen or seen[-1] & before:
                    await asyncio.sleep(0.05)
                kept = seen[-1]
                seen.clear()
                await first.kill()
            async with other(kafka, "a") as again:
                assert await again.holds() == before
            assert all(held == kept for held in seen), seen
            noting.cancel()
    finally:
        await kafka.close()


async def _half(member: Other) -> frozenset[int]:
    """At first whoever joins first has all; then they share."""
    while True:
        held = await member.holds()
        if len(held) == 2:
            return held


async def _note(turns: Any, seen: list[frozenset[int]]) -> None:
    async for assignment in turns:
        assert isinstance(assignment, Assignment)
        seen.append(assignment.partitions)
