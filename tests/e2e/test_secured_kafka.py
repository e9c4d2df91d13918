"""The whole platform on a Kafka that asks who one is, each service with the rights of its role and no others."""

from collections.abc import AsyncIterator

import pytest

from spillway.addresses import DEAD_LETTERS
from spillway.kafka.bus import KafkaBus
from spillway_local.story import Story
from tests.contract.bus_harness import whole

from .conftest import SecuredStack
from .running import Platform, opened


@pytest.fixture
async def secured(secured_stack: SecuredStack) -> AsyncIterator[Platform]:
    async with opened(secured_stack) as platform:
        await platform.join_fleet()
        yield platform


async def test_the_story_ends_right_and_no_log_has_a_password(secured: Platform, secured_stack: SecuredStack) -> None:
    """Placements, lent nodes, a backlog, a silent cluster: with a right too few a service would end, and say which."""
    parts = (secured.planner, secured.scaling, secured.lending, secured.members, print)
    assert len(await Story(*parts).tell()) == 12
    kafka = secured_stack.kafka
    async with KafkaBus(kafka.settings("cli"), "", "test") as bus:
        assert await whole(bus, [DEAD_LETTERS]) == []
    words = [kafka.security.password_file(user).read_text().strip() for user in kafka.security.users]
    logs = {file.name: file.read_text(errors="replace") for file in (secured_stack.folder / "logs").iterdir()}
    assert {"planner-1.log", "kafka.log"} <= set(logs)
    assert [name for name, text in logs.items() if any(word in text for word in words)] == []
    ended = [name for name, text in logs.items() if "cannot run" in text or "Traceback" in text]
    assert ended == []
