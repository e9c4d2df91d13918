"""Computes how many jobs KEDA starts for a queue. Pure. hpa scales no ScaledJob, so only the comparison uses it.

Source: kedacore/keda 8b4f083c (2026-08-20), pkg/scaling/executor/scale_jobs.go and pkg/scaling/scale_handler.go (the
bounds).
"""

import math
from typing import Final

from msgspec import Struct

DEFAULT: Final = "default"
CUSTOM: Final = "custom"
ACCURATE: Final = "accurate"
EAGER: Final = "eager"


class JobStrategy(Struct, frozen=True):
    """A scaling strategy for jobs.

    name: one of the four strategies.
    deduction: only for CUSTOM: the number of jobs to start less than the queue asks for.
    running_percentage: only for CUSTOM: the part of the running jobs to subtract, as 0.5. If this is no number, CUSTOM
        acts as DEFAULT.
    """

    name: str = DEFAULT
    deduction: int = 0
    running_percentage: str = "0"


class Queue(Struct, frozen=True):
    """The numbers of one queue's jobs.

    max_scale: the jobs that the queue asks for, limited by the maximum.
    scale_to: the jobs that the queue asks for without that limit.
    """

    max_scale: int
    scale_to: int
    running: int
    pending: int


class JobsWanted(Struct, frozen=True):
    """The jobs to start for a queue.

    effective_max: the number of further jobs that may run.
    scale_to: the number of jobs that are asked for.
    jobs_to_create: the number of jobs to start now, the smaller of the two.
    """

    effective_max: int
    scale_to: int

    @property
    def jobs_to_create(self) -> int:
        return max(0, min(self.scale_to, self.effective_max))


def jobs_wanted(strategy: JobStrategy, queue: Queue, min_replicas: int, max_replicas: int) -> JobsWanted:
    """Returns the number of jobs to start by the strategy.

    min_replicas: the number of jobs that always run, in addition to those for the queue.
    """
    kept = min(min_replicas, max_replicas)
    # The jobs that always run come first. The queue's jobs start only when all of them run.
    if queue.running < kept:
        return JobsWanted(kept - queue.running, kept - queue.running)
    running = queue.running - kept
    most = max_replicas - kept if min_replicas <= max_replicas else max_replicas
    if strategy.name == ACCURATE:
        over = queue.max_scale + running - queue.pending > most
        return JobsWanted(most - running if over else queue.max_scale - queue.pending, queue.scale_to)
    if strategy.name == EAGER:
        return JobsWanted(min(most - running - queue.pending, queue.max_scale), most)
    share = _parse_percentage(strategy.running_percentage) if strategy.name == CUSTOM else None
    if share is None:
        return JobsWanted(queue.max_scale - running, queue.scale_to)
    left = queue.max_scale - strategy.deduction - int(running * share)
    return JobsWanted(min(left, most), queue.scale_to)


def _parse_percentage(text: str) -> float | None:
    try:
        share = float(text)
    except ValueError:
        return None
    return share if math.isfinite(share) else None
