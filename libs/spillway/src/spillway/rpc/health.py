"""grpc.health.v1 for everybody, with limits.

With the library's own service, one watch that reads nothing would keep later changes from all watches.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from spillway import metrics

_Response = health_pb2.HealthCheckResponse


class HealthService(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """The health service. asked: called first, with each call's context. watches_max: at one time, of all callers."""

    def __init__(self, watches_max: int, asked: Callable[[Any], None]) -> None:
        self._watches_max = watches_max
        self._asked = asked
        self._watches = 0
        self._statuses: dict[str, int] = {}
        self._changed = asyncio.Event()

    def set(self, service: str, serving: bool) -> None:
        self._statuses[service] = _Response.SERVING if serving else _Response.NOT_SERVING
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 (gRPC's name)
        self._asked(context)
        if request.service not in self._statuses:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service here")
        return _Response(status=self._statuses[request.service])

    async def List(self, _: Any, context: Any) -> Any:  # noqa: N802 (gRPC's name)
        self._asked(context)
        statuses = {service: _Response(status=status) for service, status in self._statuses.items()}
        return health_pb2.HealthListResponse(statuses=statuses)

    async def Watch(self, request: Any, context: Any) -> None:  # noqa: N802 (gRPC's name)
        self._asked(context)
        if self._watches >= self._watches_max:
            metrics.REQUESTS_DENIED.labels("concurrency").inc()
            text = f"health: {self._watches} watches: expected at most {self._watches_max}"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        self._watches += 1
        try:
            await self._tell(request.service, context)
        finally:
            self._watches -= 1

    async def _tell(self, service: str, context: Any) -> None:
        """Sends the status to a watch until it ends. A change that was not read yet is replaced by the newest one."""
        told = None
        while True:
            changed = self._changed
            status = self._statuses.get(service, _Response.SERVICE_UNKNOWN)
            if status != told:
                await context.write(_Response(status=status))
            told = status
            await changed.wait()
