"""Waiting for an event no longer than a time. Not asyncio.wait_for: before Python 3.12 it may lose a cancellation."""

import asyncio
from contextlib import suppress


async def is_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event was set by then; returns as soon as it is."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
