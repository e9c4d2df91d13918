"""What counts ages and proofs goes on while the host is suspended; the monotonic clock of the platform does not."""

import asyncio
import time

import pytest

from spillway.running import steady_clock

SUSPENDED_SECONDS = 60.0


@pytest.fixture
def boot_clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that the host slept, to be added to: only the clock that counts them goes by them."""
    slept, real = [0.0], time.clock_gettime

    def clock_gettime(clock: int) -> float:
        return real(clock) + (sum(slept) if clock == time.CLOCK_BOOTTIME else 0.0)

    monkeypatch.setattr(time, "clock_gettime", clock_gettime)
    return slept


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this platform has no clock that counts suspensions")
def test_a_loop_of_ours_counts_a_suspension_and_the_usual_one_does_not(boot_clock: list[float]) -> None:
    def passed(loop: asyncio.AbstractEventLoop) -> float:
        boot_clock[:] = [0.0]
        before = loop.time()
        boot_clock.append(SUSPENDED_SECONDS)
        loop.close()
        return loop.time() - before

    assert passed(steady_clock.SteadyLoop()) >= SUSPENDED_SECONDS
    assert passed(asyncio.SelectorEventLoop()) < SUSPENDED_SECONDS


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this platform has no clock that counts suspensions")
def test_a_timer_that_became_due_in_a_suspension_is_due_at_once_afterwards(boot_clock: list[float]) -> None:
    async def sleeps_for_long() -> None:
        timer = asyncio.create_task(asyncio.sleep(SUSPENDED_SECONDS - 1))
        await asyncio.sleep(0)
        boot_clock.append(SUSPENDED_SECONDS)
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await timer

    with asyncio.Runner(loop_factory=steady_clock.SteadyLoop) as runner:
        runner.run(sleeps_for_long())


def test_the_steady_clock_grows() -> None:
    before = steady_clock.steady_seconds()
    assert steady_clock.steady_seconds() >= before
