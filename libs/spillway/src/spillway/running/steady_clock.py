"""The clock for ages, proofs and timers of a process. It goes on while the host or its VM is suspended."""

import asyncio
import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux has CLOCK_BOOTTIME. On a platform without it the clock does not see a suspension; nor does the event loop's
clock."""


def steady_seconds() -> float:
    """Returns seconds since some fixed moment. They never go back, and they include the time of a suspension."""
    return time.clock_gettime(_CLOCK)


class SteadyLoop(asyncio.SelectorEventLoop):
    """The event loop of a process. Its time is steady_seconds().

    Sessions, leases and turns expire at the brokers while the host is suspended, so our own proofs and ages must expire
    too. A timer that became due during a suspension fires late, by the selector's remaining wait. Comparisons of times
    are right at once.
    """

    def time(self) -> float:
        return steady_seconds()
