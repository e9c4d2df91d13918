"""What an unexpected error costs: the cluster or object whose input met it, and not the process that all of them share.

Where several instances share the clusters, an error that ends one of them ends the next one too, which meets the same
input. So it costs what it was met at alone, which is left alone for longer and longer pauses (docs/adr/0033).
"""

from typing import Final, Generic, TypeVar

import structlog

from spillway import metrics
from spillway.bus import BusUnavailable, NoLog, OtherFleet, OutcomeUnknown, TooManyDeadLetters
from spillway.pauses import doubled_seconds
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
"""What says that nothing more can be done here, whichever cluster it was met at."""
log = structlog.get_logger()


def ends_the_process(error: BaseException) -> bool:
    """Whether it is of ENDS_THE_PROCESS, or no Exception, as a cancellation is; of a group, whether one of them is."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(ends_the_process, error.exceptions))
    return isinstance(error, ENDS_THE_PROCESS) or not isinstance(error, Exception)


class Failures(Generic[T]):
    """Of all things of one kind that one service works on. what: cluster, node …; pauses double up to the longest."""

    def __init__(self, service: str, what: str, first_seconds: float, longest_seconds: float) -> None:
        self._service = service
        self._what = what
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._counts: dict[T, int] = {}

    def __contains__(self, thing: T) -> bool:
        """Whether its last try failed."""
        return thing in self._counts

    def met(self, thing: T, error: BaseException, **about: object) -> float:
        """Counts an error, tells of it (with its trace the first time in a row), and returns the seconds until the
        next try. Raises the error again when it is one that ends the process."""
        if ends_the_process(error):
            raise error
        count = self._counts.get(thing, 0)
        self._counts[thing] = count + 1
        note_failed(self._service, self._what, error, traced=count == 0, **about)
        return doubled_seconds(self._first_seconds, self._longest_seconds, count)

    def end(self, thing: T) -> None:
        """A try succeeded, or there will be none."""
        self._counts.pop(thing, None)


def note_failed(service: str, what: str, error: BaseException, *, traced: bool = True, **about: object) -> None:
    """Counts one and tells of it. The caller has seen that it does not end the process."""
    metrics.WORK_FAILED.labels(service, what).inc()
    told = error if traced else None
    log.error(
        "an error of our own costs this alone", service=service, what=what, error=_text(error), exc_info=told, **about
    )


def _text(error: BaseException) -> str:
    """Of a group, as a TaskGroup raises it: of its first one."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
