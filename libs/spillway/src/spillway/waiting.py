"""The time of the event loop, and waiting for an event for a limited time.

asyncio.wait_for may lose a cancellation before Python 3.12.
"""

import asyncio
from contextlib import suppress


async def is_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Returns whether the event was set within the time. Returns as soon as it is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def loop_seconds() -> float:
    """Returns the event loop's time in seconds, which is virtual in a simulation; 0 if no loop runs yet."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return 0.0
