"""Runs one round: load, one fault at a random moment, its repair, convergence, and the findings of the audits."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from spillway.bus import BusUnavailable, OtherFleet

from .ground import Ground, NotSo
from .ledger import Finding
from .rows import Row

ANSWERED_SECONDS = 90.0
"""The longest wait after the repair for the answers of requests that were under way."""
CONVERGED_SECONDS = 120.0


@dataclass(slots=True)
class Round:
    """The result of one round.

    broken_seconds: from the fault until the part served again. seconds: from then until there was no difference.
    gap_seconds: the longest time in which no planner answered a client that calls every row.pulse_seconds.
    claims: the turns that each service took. moves: the number of these that another instance had before.
    """

    seed: str
    what: str = ""
    times: int = 1
    broken_seconds: float = 0.0
    seconds: float = 0.0
    gap_seconds: float = 0.0
    answered: int = 0
    claims: dict[str, int] = field(default_factory=dict)
    moves: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    trouble: str = ""

    @property
    def is_good(self) -> bool:
        return not self.findings and not self.trouble


async def run_round(ground: Ground, row: Row, seed: str) -> Round:
    random, loop, done = Random(seed), asyncio.get_running_loop(), Round(seed)
    answered_before, failures_before = ground.load.answered, await ground.failures_by_service()
    ground.load.think_seconds, ground.pulse.every_seconds = row.think_seconds, row.pulse_seconds
    ground.load.asks.set()
    if ground.lending is not None:
        ground.lending.asks.set()
    await asyncio.sleep(random.uniform(*row.before_seconds))
    broken_at = loop.time()
    try:
        broken = await row.fault(ground, random)
        done.what, done.times = broken.what, broken.times
    except NotSo as error:
        done.trouble = str(error)
    restored_at = loop.time()
    done.broken_seconds = restored_at - broken_at
    if not await ground.load.wait_until_idle(ANSWERED_SECONDS):
        done.trouble = done.trouble or f"{len(ground.load.busy)} requests have no answer after {ANSWERED_SECONDS:.0f} s"
    unsettled = await ground.wait_until_settled(restored_at + CONVERGED_SECONDS - loop.time())
    if ground.lending is not None:
        unsettled += await ground.lending.find_errors_after_settling(CONVERGED_SECONDS)
    done.seconds = loop.time() - restored_at
    done.gap_seconds = ground.pulse.longest_gap_seconds(broken_at, loop.time())
    done.answered = ground.load.answered - answered_before
    claims, moves = Counter(ground.log.claims), Counter(ground.log.moves)
    done.findings = unsettled
    try:
        done.findings += await ground.collect_evidence()
    except (BusUnavailable, OtherFleet) as error:  # The next round reads the rest, or a new story's log.
        done.trouble = done.trouble or f"the log cannot be audited: {error}"
    if failures := await ground.failures_by_service() - failures_before:
        done.trouble = done.trouble or f"stopped by a bug: {dict(failures)}"
    done.claims, done.moves = dict(ground.log.claims - claims), dict(ground.log.moves - moves)
    return done
