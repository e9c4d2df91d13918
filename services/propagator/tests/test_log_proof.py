"""Who cannot know that the log was read lately writes to no cluster: cut off, frozen, or on a suspended host."""

import asyncio
import time

import pytest

from propagator.log.log_proof import LogProof
from spillway.running import steady_clock


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this platform has no clock that counts suspensions")
@pytest.mark.parametrize(("suspended", "holds"), [(0.0, True), (60.0, False)])
def test_a_suspension_counts(monkeypatch: pytest.MonkeyPatch, suspended: float, holds: bool) -> None:
    """The session runs out at the brokers meanwhile, and others may have our turns."""
    real, proof = time.clock_gettime, LogProof(5.0)

    async def is_valid_after_suspension() -> bool:
        proof.note_log_read_up_to(asyncio.get_running_loop().time())
        slept = {time.CLOCK_BOOTTIME: suspended}
        monkeypatch.setattr(time, "clock_gettime", lambda clock: real(clock) + slept.get(clock, 0.0))
        return proof.is_valid()

    with asyncio.Runner(loop_factory=steady_clock.SteadyLoop) as runner:
        assert runner.run(is_valid_after_suspension()) is holds


@pytest.mark.looptime
async def test_it_holds_for_so_long_and_an_older_one_takes_nothing_back() -> None:
    proof, loop = LogProof(5.0), asyncio.get_running_loop()
    assert not proof.is_valid()
    proof.note_log_read_up_to(loop.time())
    proof.note_log_read_up_to(loop.time() - 4)
    await asyncio.sleep(4.9)
    assert proof.is_valid()
    await asyncio.sleep(0.2)
    assert not proof.is_valid()
