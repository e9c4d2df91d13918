"""The clock by which ages, proofs and timers of a process count: it goes on while the host or its VM is suspended."""

import asyncio
import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux has the former. Where a platform has none, a suspension is not seen, as with the loop's own clock."""


def steady_seconds() -> float:
    """Seconds since some moment, which only grow, with those during which the host was suspended."""
    return time.clock_gettime(_CLOCK)


class SteadyLoop(asyncio.SelectorEventLoop):
    """The event loop of a process. Whoever asks the loop for the time gets the steady one: sessions, leases and turns
    run out at the brokers while we are suspended, so our own proofs and ages must as well.

    A timer that became due in a suspension is late by the rest of what the selector waits: what is compared is not.
    """

    def time(self) -> float:
        return steady_seconds()
