"""Limits an unexpected error to the cluster or object at which it occurred.

Instances share the clusters. An error that ends one instance ends the next one too, since it meets the same input. So
only the cluster or object is left alone, for pauses that grow (docs/adr/0033).
"""

from typing import Final, Generic, TypeVar

import structlog

from spillway import metrics
from spillway.bus import BusUnavailable, NoLog, OtherFleet, OutcomeUnknown, TooManyDeadLetters
from spillway.pauses import doubled_pause_seconds
from spillway.settings import OperatorError

T = TypeVar("T")
ENDS_THE_PROCESS: Final = (
    BusUnavailable,
    OutcomeUnknown,
    TooManyDeadLetters,
    NoLog,
    OtherFleet,
    OperatorError,
    MemoryError,
)
"""Errors that end the process, whichever cluster they occurred for."""
log = structlog.get_logger()


def ends_the_process(error: BaseException) -> bool:
    """Returns whether an error ends the process: one of ENDS_THE_PROCESS, a cancellation, or a group with either."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(ends_the_process, error.exceptions))
    return isinstance(error, ENDS_THE_PROCESS) or not isinstance(error, Exception)


class Failures(Generic[T]):
    """Counts the failures in a row of one service's work on each object of one kind, and computes the pauses.

    what: the kind (cluster, node, …). Pauses double up to the longest.
    """

    def __init__(self, service: str, what: str, first_seconds: float, longest_seconds: float) -> None:
        self._service = service
        self._what = what
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._counts: dict[T, int] = {}

    def __contains__(self, thing: T) -> bool:
        """Returns whether the last try of this thing failed."""
        return thing in self._counts

    def note_failure(self, thing: T, error: BaseException, **about: object) -> float:
        """Counts and logs an error, the first one in a row with its trace. Returns the seconds until the next try.

        Raises the error if it must end the process.
        """
        if ends_the_process(error):
            raise error
        count = self._counts.get(thing, 0)
        self._counts[thing] = count + 1
        note_failed_work(self._service, self._what, error, traced=count == 0, **about)
        return doubled_pause_seconds(self._first_seconds, self._longest_seconds, count)

    def reset_failures(self, thing: T) -> None:
        """Resets the failures of a thing, because a try succeeded or no further try will come."""
        self._counts.pop(thing, None)


def note_failed_work(service: str, what: str, error: BaseException, *, traced: bool = True, **about: object) -> None:
    """Counts and logs one error. The caller has checked that it does not end the process."""
    metrics.WORK_FAILED.labels(service, what).inc()
    told = error if traced else None
    log.error(
        "a bug stopped the work on one object: it is tried again",
        service=service,
        what=what,
        error=_error_text(error),
        exc_info=told,
        **about,
    )


def _error_text(error: BaseException) -> str:
    """Returns the text of an error; for an exception group, of its first error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
