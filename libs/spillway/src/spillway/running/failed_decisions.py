"""Limits the effect of an error in a decision to the subject of the decision. It is for decisions without a request.

The input of a decision is in the log. An error that ends one leader ends the next one too, since it reads the same log.
So only the subject is left alone for a while (docs/adr/0031, docs/adr/0037).
"""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import structlog

from spillway import metrics
from spillway.running.isolation import ends_the_process

S = TypeVar("S", bound=Hashable)
T = TypeVar("T")
log = structlog.get_logger()


class FailedDecisions(Generic[S]):
    """Leaves a subject alone for a while after an error: a workload, a cluster, or a step about the whole fleet."""

    def __init__(self, steady: Callable[[], float], pause_seconds: float) -> None:
        """Begins without failures. steady: a monotonic clock in seconds. pause_seconds: the pause after an error."""
        self._steady, self._pause_seconds = steady, pause_seconds
        self._paused_until: dict[S, float] = {}

    def take_ended_pauses(self) -> list[S]:
        """Returns the subjects whose pause has ended since the last call. Decisions on them may be due."""
        now = self._steady()
        found = [subject for subject, until in self._paused_until.items() if now >= until]
        for subject in found:
            del self._paused_until[subject]
        return found

    def decide_unless_paused(self, subject: S, decide: Callable[[], T]) -> T | None:
        """Returns the decision on a subject; None if it failed, or if the subject is left alone after an error."""
        now = self._steady()
        if now < self._paused_until.get(subject, now):
            return None
        try:
            return decide()
        except Exception as error:
            self.note_failure(subject, error)
            return None

    def note_failure(self, subject: S, error: Exception) -> None:
        """Counts and logs an error in a decision, and begins a pause. Raises the error if it must end the process."""
        if ends_the_process(error):
            raise error
        self._paused_until[subject] = self._steady() + self._pause_seconds
        metrics.DECISIONS_FAILED.inc()
        log.error(
            "a decision failed because of a bug: its workload, cluster or step stays as it is",
            subject=_subject_text(subject),
            exc_info=error,
        )


def _subject_text(subject: Hashable) -> str:
    return "/".join(map(str, subject)) if isinstance(subject, tuple) else str(subject)
