"""Limits each caller to a share of a server at one time: calls, watches, messages, computations, unsent answers.

So others have room, too.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, NamedTuple

from spillway import metrics
from spillway.api import GetRequest, RequestError
from spillway.api_scaling import DeclarePolicyRequest
from spillway.reasons import TOO_MANY_RUN, TOO_MANY_WATCHES
from spillway.rpc.callers import Caller
from spillway.rpc.holder_places import HolderCounts, HolderPlaces

COMPUTED: Final = frozenset(
    (
        "capacity",
        "explain",
        "explain_policy",
        "list",
        "list_clusters",
        "list_nodes",
        "list_orphans",
        "list_policies",
        "plan",
    )
)
"""Verbs whose answer is computed over all clusters, or is long. The event loop that computes it answers every other
caller, too. Some requests of other verbs count among them.
"""


def _is_long_to_compute(request: object) -> bool:
    """Returns whether an answer is computed at once, though others of its verb are not: past decisions, and dry runs of
    scale policies."""
    asks_history = isinstance(request, GetRequest) and request.history > 0
    return asks_history or (isinstance(request, DeclarePolicyRequest) and request.plan_only)


class CallerShare(NamedTuple):
    """The limits of one caller at one time.

    Calls, watches and unsent answers beyond them are refused. Messages and computations beyond them wait for one of the
    same caller to end. messages: messages that are being received. unsent_bytes: bytes of answers that clients have not
    taken yet.
    """

    calls: int
    watches: int
    computations: int
    messages: int
    unsent_bytes: int


class Shares:
    def __init__(self, share: CallerShare) -> None:
        """Begins without calls. share: the limits of each caller."""
        self._share = share
        self._running = HolderCounts[tuple[str, bool]]()
        self._computing = HolderPlaces(share.computations)
        self._receiving = HolderPlaces(share.messages)
        self._unsent = HolderCounts[str]()
        """By caller, the bytes of answers that clients have not taken yet."""

    @contextmanager
    def counted_in_share(self, caller: Caller, verb: str, streams: bool) -> Iterator[None]:
        """Counts a call or a watch of the caller while it runs. Raises RESOURCE_EXHAUSTED beyond its share."""
        place, most = (caller.name, streams), self._share.watches if streams else self._share.calls
        if self._running.count_of(place) >= most:
            metrics.REQUESTS_DENIED.labels("share").inc()
            text = f"{verb}: {most} of caller {caller.name!r} are running: expected at most {most} of one caller"
            raise RequestError("RESOURCE_EXHAUSTED", text, TOO_MANY_WATCHES if streams else TOO_MANY_RUN)
        with self._running.counted(place):
            yield

    @asynccontextmanager
    async def computation_place(self, caller: Caller, verb: str, request: object = None) -> AsyncIterator[None]:
        """Holds a place of the caller's share while an answer is computed. Callers wait first come, first served.

        A place is held for at least one iteration of the event loop. Otherwise an answer that is computed in one piece
        would free its place before any other task runs. Such calls would follow each other without end.
        """
        if verb not in COMPUTED and not _is_long_to_compute(request):
            yield
            return
        async with self._computing.semaphore_of(caller.name):
            await asyncio.sleep(0)
            yield

    def message_place(self, caller: Caller) -> asyncio.Semaphore:
        """Returns the caller's semaphore, which a call holds while its message arrives; first come, first served."""
        return self._receiving.semaphore_of(caller.name)

    @contextmanager
    def counted_unsent_answer(self, caller: Caller, verb: str, size: int) -> Iterator[None]:
        """Counts an answer of `size` bytes until it is sent. Raises RESOURCE_EXHAUSTED beyond the caller's share, and
        FAILED_PRECONDITION for an answer that is larger than the whole share.

        Enter it before the bytes of the answer are made, so that an answer beyond the share takes no memory of its own.
        """
        unsent, most = self._unsent.count_of(caller.name), self._share.unsent_bytes
        if size > most:
            metrics.REQUESTS_DENIED.labels("share").inc()
            text = f"{verb}: an answer of {size} bytes: expected at most {most}: ask for less at once"
            raise RequestError("FAILED_PRECONDITION", text)
        if unsent + size > most:
            metrics.REQUESTS_DENIED.labels("share").inc()
            text = (
                f"{verb}: clients of caller {caller.name!r} have not taken {unsent} bytes of answers: "
                f"expected at most {most} with this one of {size}"
            )
            raise RequestError("RESOURCE_EXHAUSTED", text, TOO_MANY_RUN)
        with self._unsent.counted(caller.name, size):
            yield
