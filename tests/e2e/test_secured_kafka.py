"""The whole platform on a Kafka that asks who one is, each service with the rights of its role and no others."""

from collections.abc import AsyncIterator
from contextlib import suppress
from random import Random
from typing import Final

import pytest
from aiokafka.errors import MessageSizeTooLargeError

from spillway.addresses import DEAD_LETTERS, EVENTS_BY_TOPIC, TOPICS
from spillway.api import ApplyRequest
from spillway.kafka.bus import KafkaBus
from spillway_fuzz.records import forged_record
from spillway_local.fleet_plan import deployment
from spillway_local.story import Story
from tests.contract.bus_harness import read_to_current_end

from .conftest import SecuredStack
from .running import KINDS, NAMESPACE, Platform, open_platform

FORGED_OF_EACH: Final = 500
"""Records of each kind of event."""


@pytest.fixture
async def secured(secured_stack: SecuredStack) -> AsyncIterator[Platform]:
    async with open_platform(secured_stack) as platform:
        await platform.join_fleet()
        yield platform


async def test_the_story_ends_right_and_no_log_has_a_password(secured: Platform, secured_stack: SecuredStack) -> None:
    """Placements, lent nodes, a backlog, a silent cluster: with a right too few a service would end, and say which."""
    parts = (secured.planner, secured.scaling, secured.lending, secured.members, print)
    assert len(await Story(*parts).run_story()) == 12
    kafka = secured_stack.secured_kafka
    async with KafkaBus(kafka.settings_of_role("cli"), "", "test") as bus:
        assert await read_to_current_end(bus, [DEAD_LETTERS]) == []
    words = [kafka.security.password_file(user).read_text().strip() for user in kafka.security.users]
    logs = {file.name: file.read_text(errors="replace") for file in (secured_stack.folder / "logs").iterdir()}
    assert {"planner-1.log", "kafka.log"} <= set(logs)
    assert [name for name, text in logs.items() if any(word in text for word in words)] == []
    ended = [name for name, text in logs.items() if "cannot run" in text or "Traceback" in text]
    assert ended == []


async def test_what_the_user_of_publishers_may_forge_stops_no_service(
    secured: Platform, secured_stack: SecuredStack
) -> None:
    """Of all users it has the fewest rights. Valid and senseless records, broken ones, of other keys and fleets."""
    pids = {f"{kind}-1": secured.pid_of_program(f"{kind}-1") for kind in KINDS}
    chance, written = Random(21), 0
    async with KafkaBus(secured_stack.secured_kafka.settings_of_role("publisher"), "", "forger") as bus:
        producer = await bus.start_producer()
        try:
            for topic in (one for one in TOPICS if one.can_anyone_write):
                for kind in EVENTS_BY_TOPIC[topic.name] * FORGED_OF_EACH:
                    key, headers, value = forged_record(kind, bus.fleet_id, chance)
                    with suppress(MessageSizeTooLargeError):  # The broker would refuse it.
                        await producer.send_and_wait(topic.name, value, key, partition=0, headers=headers)
                        written += 1
        finally:
            await producer.stop()
    assert written > FORGED_OF_EACH
    await secured.planner.apply(ApplyRequest((deployment("after", NAMESPACE, 20),)))
    await secured.wait_until_running("after", 20)
    await secured.wait_until_all_ready()
    assert {name: secured.pid_of_program(name) for name in pids} == pids
