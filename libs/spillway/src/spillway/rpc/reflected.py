"""gRPC's reflection: lists our methods for known callers, each stream and each of its requests within their share."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from typing import Any, Final

import grpc
from grpc_reflection.v1alpha import reflection

from spillway import metrics
from spillway.api import RequestError, invalid
from spillway.rpc.callers import Caller
from spillway.rpc.refusals import bounded

REQUESTS_MAX: Final = 200
"""Of one stream. A client that describes all of a service asks for some twenty files and symbols."""
REQUEST_BYTES_MAX: Final = 4096
"""Each is a name, which the answer repeats."""
VERB: Final = "reflection"

Admit = Callable[[Any], Caller]
"""The caller of a stream's context, who may see methods. Raises RequestError for everybody else."""
Share = Callable[[Caller, str, bool], AbstractContextManager[None]]
"""Shares.taken."""


class Reflection(reflection.aio.ReflectionServicer):  # type: ignore[misc]
    """take_call: a call of a caller's rate. Both it and taken raise RequestError for what is too much. seconds: that a
    stream may last.
    """

    def __init__(
        self, names: tuple[str, ...], admit: Admit, taken: Share, take_call: Callable[[Caller], None], seconds: float
    ) -> None:
        super().__init__(names)
        self._admit = admit
        self._taken = taken
        self._take_call = take_call
        self._seconds = seconds

    async def ServerReflectionInfo(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802 (gRPC's name)
        """The answer to each request. A stream is a call of its caller, and so is each of its requests."""
        try:
            caller = self._admit(context)
            with self._taken(caller, VERB, False):
                async for reply in super().ServerReflectionInfo(self._bounded(caller, requests), context):
                    yield reply
        except RequestError as error:
            metrics.REQUESTS_DENIED.labels(error.code).inc()
            await context.abort(grpc.StatusCode[error.code], bounded(error.text))

    async def _bounded(self, caller: Caller, requests: Any) -> AsyncIterator[Any]:
        """The requests of a stream, each paid for. Raises RequestError for more than one may have."""
        loop = asyncio.get_running_loop()
        until, count = loop.time() + self._seconds, 0
        while True:
            try:
                async with asyncio.timeout_at(until):
                    request = await anext(requests, None)
            except TimeoutError:
                text = f"{VERB}: the stream has not ended within {self._seconds:g} s"
                raise RequestError("DEADLINE_EXCEEDED", text) from None
            if request is None:
                return
            count += 1
            if count > REQUESTS_MAX:
                raise invalid(VERB, f"more than {REQUESTS_MAX} requests in one stream", f"at most {REQUESTS_MAX}")
            if request.ByteSize() > REQUEST_BYTES_MAX:
                raise invalid(VERB, f"a request of {request.ByteSize()} bytes", f"at most {REQUEST_BYTES_MAX}")
            self._take_call(caller)
            yield request
