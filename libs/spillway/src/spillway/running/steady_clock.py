"""The clock by which ages, proofs and timers of a process count: it goes on while the host or its VM is suspended."""

import asyncio
import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux has the former. Where a platform has none, a suspension is not seen, as with the loop's own clock."""


def steady_seconds() -> float:
    """Seconds since some fixed moment. They only grow, and they include the time in which the host was suspended."""
    return time.clock_gettime(_CLOCK)


class SteadyLoop(asyncio.SelectorEventLoop):
    """The event loop of a process; its time is steady_seconds(). Sessions, leases and turns run out at the brokers
    while the host is suspended, so our own proofs and ages must run out as well.

    A timer that became due during a suspension fires late, by what the selector still waits. Comparisons of times are
    right at once.
    """

    def time(self) -> float:
        return steady_seconds()
