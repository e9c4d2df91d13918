"""grpc.health.v1 for everybody, with limits.

The library's own service receives a message of any size before anybody can look at the call. One of its watches that
reads nothing would keep later changes from all watches.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from spillway import metrics
from spillway.api import RequestError
from spillway.rpc.refusals import trailer_sized_text

SERVICE: Final = "grpc.health.v1.Health"
VERB: Final = "health"
_Request, _Response = health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse


class HealthService:
    """The health service.

    watches_max: the most watches of all clients at one time. receive: returns the message of a call; its arguments are
    the verb, the name of the message's type and the context. It raises RequestError beyond the client's limits.
    """

    def __init__(self, watches_max: int, receive: Callable[[str, str, Any], Awaitable[bytes]]) -> None:
        self._watches_max = watches_max
        self._receive = receive
        self._watches = 0
        self._statuses: dict[str, int] = {}
        self._changed = asyncio.Event()

    def set_status(self, service: str, serving: bool) -> None:
        self._statuses[service] = _Response.SERVING if serving else _Response.NOT_SERVING
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def handlers_by_path(self) -> Mapping[str, Any]:
        """Returns the handlers of the methods by their paths. They read a message only on demand."""
        unary, stream = grpc.stream_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        methods = {
            "Check": unary(self._answer_check),
            "List": unary(self._answer_list),
            "Watch": stream(self._answer_watch),
        }
        return {f"/{SERVICE}/{name}": handler for name, handler in methods.items()}

    async def _answer_check(self, _: object, context: Any) -> bytes:
        service = await self._service_asked_for(context)
        if service not in self._statuses:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service here")
        return bytes(_Response(status=self._statuses[service]).SerializeToString())

    async def _answer_list(self, _: object, context: Any) -> bytes:
        await self._service_asked_for(context)
        statuses = {service: _Response(status=status) for service, status in self._statuses.items()}
        return bytes(health_pb2.HealthListResponse(statuses=statuses).SerializeToString())

    async def _answer_watch(self, _: object, context: Any) -> None:
        service = await self._service_asked_for(context)
        if self._watches >= self._watches_max:
            metrics.REQUESTS_DENIED.labels("concurrency").inc()
            text = f"health: {self._watches} watches: expected at most {self._watches_max}"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        self._watches += 1
        try:
            await self._send_statuses(service, context)
        finally:
            self._watches -= 1

    async def _service_asked_for(self, context: Any) -> str:
        """Returns the service in a request. A request of List has none and reads as an empty one."""
        try:
            message_bytes = await self._receive(VERB, _Request.__name__, context)
            return str(_Request.FromString(message_bytes).service)
        except DecodeError as error:
            refused = RequestError("INVALID_ARGUMENT", f"{VERB}: not a {_Request.__name__}: {error}")
        except RequestError as error:
            metrics.REQUESTS_DENIED.labels(error.code).inc()
            refused = error
        await context.abort(grpc.StatusCode[refused.code], trailer_sized_text(refused.text))
        raise refused

    async def _send_statuses(self, service: str, context: Any) -> None:
        """Sends the status to a watch until it ends. A change that was not read yet is replaced by the newest one."""
        told = None
        while True:
            changed = self._changed
            status = self._statuses.get(service, _Response.SERVICE_UNKNOWN)
            if status != told:
                await context.write(_Response(status=status).SerializeToString())
            told = status
            await changed.wait()
