"""A replica that reads a queue: one record after the other at a set rate, committed once worked off; leaves when told.

What it did it writes into a file of its own, a line each: `assigned <partitions>`, `read <partition> <offset>`, `left`.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

COMMIT_EVERY = 10
"""Records: so many at the most are read again by who takes over from one that could not commit."""

IDLE_MS = 100
"""Without a record for so long, what was worked off is committed."""


class Reader(ConsumerRebalanceListener):  # type: ignore[misc]
    """deals: how often partitions were taken back. done: where to go on, where work is not committed."""

    def __init__(self, consumer: AIOKafkaConsumer, rate: float, ledger: TextIO) -> None:
        self.consumer = consumer
        self.rate = rate
        self.ledger = ledger
        self.deals = 0
        self.uncommitted = 0
        self.done: dict[TopicPartition, int] = {}

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.deals += 1
        await self.commit_offsets()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.write_line(f"assigned {' '.join(str(one.partition) for one in sorted(assigned))}")

    async def commit_offsets(self) -> None:
        done, self.done, self.uncommitted = self.done, {}, 0
        if done:
            with suppress(KafkaError):  # Others have the partitions already, and begin where this one committed last.
                await self.consumer.commit(done)

    async def read_until_stopped(self) -> None:
        while True:
            found = await self.consumer.getmany(timeout_ms=IDLE_MS, max_records=1)
            deals = self.deals
            for place, (record,) in found.items():
                await asyncio.sleep(1 / self.rate)
                if deals != self.deals:  # Whoever has the partition now reads it.
                    break
                self.write_line(f"read {record.partition} {record.offset}")
                self.done[place] = record.offset + 1
                self.uncommitted += 1
            if not found or self.uncommitted >= COMMIT_EVERY:
                await self.commit_offsets()

    def write_line(self, line: str) -> None:
        self.ledger.write(f"{line}\n")
        self.ledger.flush()


async def main() -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    said = os.environ
    consumer = AIOKafkaConsumer(
        bootstrap_servers=said["SPILLWAY_KAFKA_BOOTSTRAP"],
        group_id=said["GROUP"],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=300,
    )
    path = Path(sys.argv[1]) / f"{said['CLUSTER']}.{said['POD_NAME']}"
    with path.open("a") as ledger:
        reader = Reader(consumer, float(said["RATE"]), ledger)
        consumer.subscribe([said["QUEUE"]], listener=reader)
        await consumer.start()
        work = asyncio.create_task(reader.read_until_stopped())
        told = asyncio.create_task(ended.wait())
        await asyncio.wait({work, told}, return_when=asyncio.FIRST_COMPLETED)
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        await reader.commit_offsets()
        await consumer.stop()
        reader.write_line("left")


if __name__ == "__main__":
    asyncio.run(main())
