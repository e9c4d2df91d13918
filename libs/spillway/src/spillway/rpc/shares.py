"""How many calls and watches each caller may have at one time, so that one caller leaves room for the others."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from spillway import metrics
from spillway.api import RequestError
from spillway.reasons import TOO_MANY_RUN, TOO_MANY_WATCHES
from spillway.rpc.callers import Caller


class Shares:
    """calls_max, watches_max: of one caller."""

    def __init__(self, calls_max: int, watches_max: int) -> None:
        self._most = {False: calls_max, True: watches_max}
        self._running = Counter[tuple[str, bool]]()

    @contextmanager
    def taken(self, caller: Caller, verb: str, streams: bool) -> Iterator[None]:
        """While a call or a watch of the caller runs. Raises RESOURCE_EXHAUSTED where it has its share already."""
        place, most = (caller.name, streams), self._most[streams]
        if self._running[place] >= most:
            metrics.REQUESTS_DENIED.labels("share").inc()
            text = f"{verb}: {most} of caller {caller.name!r} are running: expected at most {most} of one caller"
            raise RequestError("RESOURCE_EXHAUSTED", text, TOO_MANY_WATCHES if streams else TOO_MANY_RUN)
        self._running[place] += 1
        try:
            yield
        finally:
            self._running[place] -= 1
            if not self._running[place]:
                del self._running[place]
