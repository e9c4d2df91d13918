"""A grpc.aio server that survives calls whose path is not UTF-8.

grpcio 1.85 decodes each path in its loop. A path that is not UTF-8 ends the loop and the server
(docs/grpc-path-defect.md). So all methods are registered with the library's core, which compares paths
as bytes. Calls of any other path are answered without decoding it. This uses private names of grpcio: its version is
pinned, and test_rpc_front.py fails for a version without these names.
"""

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from contextlib import ExitStack
from contextvars import ContextVar
from typing import Any, Final

from grpc._cython import cygrpc

_UNKNOWN: Final = ""
_LIBRARY_LOG: Final = "grpc._cython.cygrpc"
_UNREADABLE: Final = "Invalid encoding on %s"
"""A log message of grpcio, with a traceback, for each metadata value that is not UTF-8. It is logged before our code
sees the call."""


UNTIL_SENT: Final[ContextVar[ExitStack]] = ContextVar("until_sent")
"""The places and counts that a call holds until its answer and its end have left the process. gRPC keeps both, also
after the handler has returned, while the client takes nothing."""


class CallServer(cygrpc.AioServer):  # type: ignore[misc]
    """A gRPC server. handlers: by the path of the method, `/package.Service/Method`."""

    def __init__(self, handlers: Mapping[str, Any], options: tuple[tuple[str, object], ...]) -> None:
        self._running_loop = cygrpc.get_working_loop()
        super().__init__(self._running_loop, None, (), (), options, None)
        self.add_registered_method_handlers(dict(handlers))
        self._resolver = cygrpc._MethodResolver([], dict(handlers))  # noqa: SLF001 (see above)
        self._tasks: set[asyncio.Task[Any]] = set()
        logging.getLogger(_LIBRARY_LOG).addFilter(_may_log_record)

    def _make_request_call_future(self, method: bytes | None) -> "asyncio.Future[None]":
        """Returns the future that the library's loop waits for, once for each method. It ends when the server ends.

        The loop cancels it then. The task that waits for a call must outlive that, because the core still writes to it.
        """
        return asyncio.shield(self._create_kept_task(self._take_calls(method)))

    async def _take_calls(self, method: bytes | None) -> None:
        """Takes the calls of one method and starts their answers. method: its path; None: all paths of no method.

        It ends with the exception with which the library ends the server.
        """
        path = method.decode() if method is not None else _UNKNOWN
        while True:
            state = await (self._request_call() if method is None else self._request_registered_call(method))
            loop = self._running_loop
            answer = cygrpc._handle_rpc(path, self._resolver, (), state, loop, False)  # noqa: SLF001
            self._create_kept_task(cygrpc._schedule_rpc_coro(_answer_until_sent(answer), state, loop, path))  # noqa: SLF001

    def _create_kept_task(self, work: Awaitable[Any]) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = self._running_loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget_task)
        return task

    def _forget_task(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # The library's loop gets this exception too; reading it here avoids a warning.


async def _answer_until_sent(answer: Awaitable[Any]) -> None:
    """Answers a call and waits until all of it is sent. Then it frees what the handler has added to UNTIL_SENT."""
    with ExitStack() as held:
        UNTIL_SENT.set(held)
        await answer


def _may_log_record(record: logging.LogRecord) -> bool:
    return record.msg != _UNREADABLE
