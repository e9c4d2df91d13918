"""Serves gRPC reflection to known callers. Each stream and each request of it counts in the caller's rate."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import grpc
from grpc_reflection.v1alpha import reflection

from spillway import metrics
from spillway.api import RequestError, invalid_argument_error
from spillway.reasons import TOO_MANY_RUN
from spillway.rpc.callers import Caller
from spillway.rpc.holder_places import HolderCounts
from spillway.rpc.refusals import trailer_sized_text

REQUESTS_MAX: Final = 200
"""The most requests of one stream. A client that describes a whole service sends about twenty."""
STREAMS_CALLER_MAX: Final = 4
"""The most streams of one caller at one time. Each may receive a message as large as gRPC accepts."""
REQUEST_BYTES_MAX: Final = 4096
"""The most bytes of one request. A request is a name, and the answer repeats it."""
VERB: Final = "reflection"

Admit = Callable[[Any], AbstractContextManager[Caller]]
"""A function that counts a stream, and yields its caller. It raises RequestError for a caller that may not see methods,
or has too many calls."""


class Reflection(reflection.aio.ReflectionServicer):  # type: ignore[misc]
    """The reflection service. seconds: how long a stream may last. message_seconds: until its next message is whole.

    take_call: counts one call in the caller's rate. It raises RequestError beyond the caller's limit.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        admit: Admit,
        take_call: Callable[[Caller], None],
        seconds: float,
        message_seconds: float,
    ) -> None:
        super().__init__(names)
        self._admit = admit
        self._take_call = take_call
        self._seconds, self._message_seconds = seconds, message_seconds
        self._streams = HolderCounts[str]()

    async def ServerReflectionInfo(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802 (gRPC's name)
        """Answers each request. The stream counts as one call of its caller, and so does each request."""
        try:
            with self._admit(context) as caller, self._counted_stream(caller):
                async for reply in super().ServerReflectionInfo(self._limited_requests(caller, requests), context):
                    yield reply
        except RequestError as error:
            metrics.REQUESTS_DENIED.labels(error.code).inc()
            await context.abort(grpc.StatusCode[error.code], trailer_sized_text(error.text))

    @contextmanager
    def _counted_stream(self, caller: Caller) -> Iterator[None]:
        if self._streams.count_of(caller.name) >= STREAMS_CALLER_MAX:
            text = f"{VERB}: {STREAMS_CALLER_MAX} streams of this caller are open: expected at most as many"
            raise RequestError("RESOURCE_EXHAUSTED", text, TOO_MANY_RUN)
        with self._streams.counted(caller.name):
            yield

    async def _limited_requests(self, caller: Caller, requests: Any) -> AsyncIterator[Any]:
        """Yields the requests of a stream, each counted as a call. Raises RequestError beyond a stream's limit."""
        loop = asyncio.get_running_loop()
        until, count = loop.time() + self._seconds, 0
        while True:
            try:
                async with asyncio.timeout_at(min(until, loop.time() + self._message_seconds)):
                    request = await anext(requests, None)
            except TimeoutError:
                text = f"{VERB}: the stream has not ended within {self._seconds:g} s"
                if loop.time() < until:
                    text = f"{VERB}: the next request has not arrived within {self._message_seconds:g} s"
                raise RequestError("DEADLINE_EXCEEDED", text) from None
            if request is None:
                return
            count += 1
            if count > REQUESTS_MAX:
                raise invalid_argument_error(
                    VERB, f"more than {REQUESTS_MAX} requests in one stream", f"at most {REQUESTS_MAX}"
                )
            if request.ByteSize() > REQUEST_BYTES_MAX:
                raise invalid_argument_error(
                    VERB, f"a request of {request.ByteSize()} bytes", f"at most {REQUEST_BYTES_MAX}"
                )
            self._take_call(caller)
            yield request
