"""Makes a topic with 24 partitions and writes 30 records into each, for docs/scaling.md.

`.venv/bin/python examples/fill_topic.py 127.0.0.1:19092 orders`
"""

import asyncio
import logging
import sys

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

PARTITIONS, RECORDS_OF_ONE = 24, 30
# Partitions that are new get their leaders while the first records are sent again.
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


async def fill(bootstrap: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    finally:
        await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for partition in range(PARTITIONS):
            for number in range(RECORDS_OF_ONE):
                await producer.send(topic, str(number).encode(), partition=partition)
        await producer.flush()
    print(f"{PARTITIONS * RECORDS_OF_ONE} records in {PARTITIONS} partitions of {topic}")


asyncio.run(fill(*sys.argv[1:]))
