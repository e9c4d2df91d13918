"""Who cannot know that the log was read lately writes to no cluster: cut off, frozen, or on a suspended host."""

import asyncio

import pytest

from propagator.log_proof import LogProof
from spillway.running import steady_clock


@pytest.mark.parametrize(("suspended", "holds"), [(0.0, True), (60.0, False)])
def test_a_suspension_counts(monkeypatch: pytest.MonkeyPatch, suspended: float, holds: bool) -> None:
    """The session runs out at the brokers meanwhile, and others may have our turns."""
    real, proof = steady_clock.steady_seconds, LogProof(5.0)

    async def asks() -> bool:
        proof.proven(asyncio.get_running_loop().time())
        monkeypatch.setattr(steady_clock, "steady_seconds", lambda: real() + suspended)
        return proof.holds()

    with asyncio.Runner(loop_factory=steady_clock.SteadyLoop) as runner:
        assert runner.run(asks()) is holds


@pytest.mark.looptime
async def test_it_holds_for_so_long_and_an_older_one_takes_nothing_back() -> None:
    proof, loop = LogProof(5.0), asyncio.get_running_loop()
    assert not proof.holds()
    proof.proven(loop.time())
    proof.proven(loop.time() - 4)
    await asyncio.sleep(4.9)
    assert proof.holds()
    await asyncio.sleep(0.2)
    assert not proof.holds()
