"""Records that nobody can read, on every topic that services read."""

import asyncio

from aiokafka import AIOKafkaProducer

from spillway.addresses import DEAD_LETTERS, EVENTS_BY_TOPIC, FLEET, TOPICS
from spillway.api import ApplyRequest
from spillway.events import DeadLettered
from spillway.wire import TYPE_PREFIX
from spillway_local.fleet_plan import deployment

from .running import NAMESPACE, SERVICES, Platform, wait_until

POISONED = [topic for topic in TOPICS if topic not in (FLEET, DEAD_LETTERS)]


async def test_poisoned_records_become_dead_letters(platform: Platform) -> None:
    """Bytes, a type of the future and an event of another key: each is named by its place, and services go on."""
    await platform.planner.apply(ApplyRequest((deployment("before", NAMESPACE, 5),)))
    await platform.wait_until_running("before", 5)
    pids = {name: platform.pid_of_program(name) for name in SERVICES}
    places = await _write_poisoned_records(platform)
    platform.run_redis_command("FLUSHALL")  # Decisions are read when histories are written again alone.

    missing: set[tuple[str, int, int]] = set()

    async def are_all_named() -> bool:
        letters = [record.event for record in await platform.read_records(DEAD_LETTERS)]
        named = {(e.topic, e.partition, e.offset) for e in letters if isinstance(e, DeadLettered) and e.reason}
        missing.clear()
        missing.update(places - named)
        return not missing

    await wait_until("every poisoned record is a dead letter", are_all_named, 60, lambda: missing)
    await platform.planner.apply(ApplyRequest((deployment("after", NAMESPACE, 20),)))
    await platform.wait_until_running("after", 20)
    await platform.wait_until_all_ready()
    assert {name: platform.pid_of_program(name) for name in SERVICES} == pids


async def test_services_start_on_a_log_with_poisoned_records(platform: Platform) -> None:
    """What cannot be read is behind them when they are ready."""
    names = ("snapshot-1", "propagator-1", "planner-1")
    await asyncio.gather(*map(platform.kill_program_for_good, names))
    await asyncio.gather(*map(platform.start_program, names))
    await platform.wait_until_all_ready()


async def _write_poisoned_records(platform: Platform) -> set[tuple[str, int, int]]:
    """Three records on each topic; gives where they stand. Of a kind of the future a reader names the first alone."""
    places = set()
    async with platform.open_log() as bus:
        fleet = ("fleet", bus.fleet_id.encode())
    producer = AIOKafkaProducer(bootstrap_servers=platform.stack.addresses().kafka)
    await producer.start()
    try:
        for topic in POISONED:
            known = TYPE_PREFIX + EVENTS_BY_TOPIC[topic.name][0].__name__
            future = TYPE_PREFIX + "FromTheFutureOf" + "".join(filter(str.isalpha, topic.name.title()))
            for kind, value in ((known, b"\xff\x00\xfe poison"), (future, b""), (known, b"")):
                source = f"writer-{len(places)}".encode()  # Of open topics a letter each.
                headers = [fleet, ("ce_type", kind.encode()), ("ce_source", source)]
                record = await producer.send_and_wait(topic.name, value, b"poison", partition=0, headers=headers)
                places.add((topic.name, 0, record.offset))
    finally:
        await producer.stop()
    return places
