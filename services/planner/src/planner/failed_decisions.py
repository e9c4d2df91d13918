"""Workloads for which a decision that nobody asked for met a bug of ours: what they have stays, others are decided on.

Else one workload in the log would end each planner, again at each start (docs/attacks.md).
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from spillway import metrics
from spillway.feasibility.cluster_view import WorkloadKey
from spillway.running.request_queue import Written

log = structlog.get_logger()


class Decided(Protocol):
    @property
    def events(self) -> Sequence[Written]: ...


class FailedDecisions:
    def __init__(self, steady: Callable[[], float], pause_seconds: float) -> None:
        """pause_seconds: for which nothing is decided for a workload by itself after such a bug."""
        self._steady, self._pause_seconds = steady, pause_seconds
        self._paused_until: dict[WorkloadKey, float] = {}

    def ended(self) -> list[WorkloadKey]:
        """Whose pause has ended since it was asked last: something may be due for them."""
        now = self._steady()
        found = [key for key, until in self._paused_until.items() if now >= until]
        for key in found:
            del self._paused_until[key]
        return found

    def events_of(self, key: WorkloadKey, decide: Callable[[], Decided]) -> Sequence[Written]:
        """What is decided for a workload; nothing where that meets a bug, and until its pause is over."""
        now = self._steady()
        if now < self._paused_until.get(key, now):
            return ()
        try:
            return decide().events
        except Exception:
            self._paused_until[key] = now + self._pause_seconds
            metrics.DECISIONS_FAILED.inc()
            log.exception("a decision failed: the workload keeps its replicas", workload="/".join(key))
            return ()
