"""The baseline of a service between two topics: it consumes records and writes as many in transactions.

`python -m spillway_bench.relay HOST:PORT FROM TO` runs until it is killed. It prints "ready" when it reads.
"""

import asyncio
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

POLL_MS = 100


async def relay_records(bootstrap: str, from_topic: str, to_topic: str) -> None:
    consumer: Any = AIOKafkaConsumer(from_topic, bootstrap_servers=bootstrap, enable_auto_commit=False)
    producer: Any = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", transactional_id="bench-relay")
    await consumer.start()
    await producer.start()
    await consumer.seek_to_end()
    print("ready", flush=True)
    while True:
        found = await consumer.getmany(timeout_ms=POLL_MS)
        records = [record for some in found.values() for record in some]
        if not records:
            continue
        async with producer.transaction():
            sent = [await producer.send(to_topic, one.value, one.key, headers=list(one.headers)) for one in records]
            await asyncio.gather(*sent)


if __name__ == "__main__":
    asyncio.run(relay_records(*sys.argv[1:4]))
