"""Where a gRPC server listens, with health and reflection; it is opened again where grpcio ends it by itself.

One request whose path is not UTF-8 does that, before any of our code sees it: the library decodes it in the loop that
takes all calls, and shuts the server down when that raises (grpcio 1.85). Of methods that were registered with its core
it frees what waits for their next call then, while the core still writes to it. So none is registered here: all are
found by their path.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

import grpc
import structlog
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from spillway.api import RequestError
from spillway.rpc.refusals import bounded
from spillway.rpc.security import MEBIBYTE, Gate, RpcSettings, read_file
from spillway.settings import OperatorError

RECEIVE_BYTES_MAX: Final = 16 * MEBIBYTE
"""What gRPC lets in, so that we ourselves can say what was too large; beyond it the answer is gRPC's own."""
LOOK_SECONDS: Final = 0.25
"""Between two looks whether the server still runs: while calls are under way it does not say so by itself."""
REOPEN_SECONDS: Final = 10.0
"""How long it is tried to listen again at the same port, before that is given up."""
_RETRY_SECONDS: Final = 0.02
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
    ("grpc.so_reuseport", 0),  # Two planners on one port would each get some of the calls.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),  # Read late by a busy process, two pings seem too close: no reason to hang up.
)

log = structlog.get_logger(part="rpc")


class Listener:
    """handlers: of one service's methods. port: 0 until it is open."""

    def __init__(self, gate: Gate, settings: RpcSettings, service: str, handlers: Mapping[str, Any]) -> None:
        self.port = 0
        self._gate = gate
        self._settings = settings
        self._service = service
        self._handlers = dict(handlers)
        self._health = health_aio.HealthServicer()
        self._server: Any = None
        self._stopping: set[asyncio.Task[None]] = set()
        """Of servers that have ended or are to end, those that still answer what was asked before."""

    async def open(self) -> None:
        """Raises OperatorError when it may not or cannot listen."""
        await self.set_serving(False)
        await self._open(self._settings.port)

    async def keep_open(self) -> None:
        """Until it is cancelled. OperatorError when the server has ended, and no other can be opened at its port."""
        while True:
            try:
                while await self._server.wait_for_termination(LOOK_SECONDS):
                    pass
                why = "it was shut down"
            except Exception as error:  # What ended its loop: whatever somebody sent.
                why = f"{type(error).__name__}: {error}"
            log.error("the gRPC library has ended its server: another one is opened", why=why)
            self._stop()
            await self._open_again()

    async def close(self) -> None:
        self._stop()
        await asyncio.gather(*self._stopping)

    def _stop(self) -> None:
        """Once for each server: the library frees it then."""
        if self._server is not None:
            stopping = asyncio.create_task(self._server.stop(self._settings.stop_seconds))
            self._stopping.add(stopping)
            stopping.add_done_callback(self._stopping.discard)
            self._server = None

    async def set_serving(self, serving: bool) -> None:
        """What grpc.health.v1 answers for the server and for its service."""
        status = health_pb2.HealthCheckResponse
        for service in ("", self._service):
            await self._health.set(service, status.SERVING if serving else status.NOT_SERVING)

    async def _open_again(self) -> None:
        until = time.monotonic() + REOPEN_SECONDS
        while True:
            try:
                return await self._open(self.port)
            except OperatorError:
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(_RETRY_SECONDS)

    async def _open(self, port: int) -> None:
        server = aio.server(interceptors=(_ReflectionGuard(self._gate, self._settings),), options=_OPTIONS)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(self._service, self._handlers),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, _ByPath(server))
        names = (self._service, "grpc.health.v1.Health", reflection.SERVICE_NAME)
        reflected = reflection.aio.ReflectionServicer(names)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(reflected, _ByPath(server))
        self.port = self._listen(server, port)
        await server.start()
        self._server = server

    def _listen(self, server: Any, port: int) -> int:
        settings, host = self._settings, self._settings.host
        target = f"[{host}]:{port}" if ":" in host and "[" not in host else f"{host}:{port}"
        try:
            if settings.tls_certificate:
                return int(server.add_secure_port(target, _credentials(settings)))
            return int(server.add_insecure_port(target))
        except RuntimeError as error:
            raise OperatorError(f"gRPC: cannot listen on {target}: taken, or not an address of this machine") from error


class _ByPath:
    """A server as generated code fills it: with methods that are found by their path, and none that is registered."""

    def __init__(self, server: Any) -> None:
        self.add_generic_rpc_handlers = server.add_generic_rpc_handlers

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """The generated code offers each method both ways."""


class _ReflectionGuard(aio.ServerInterceptor):  # type: ignore[misc]
    """Shows the methods to known callers only; TLS has checked a client certificate before this is reached."""

    def __init__(self, gate: Gate, settings: RpcSettings) -> None:
        self._gate = gate
        self._certified = bool(settings.client_ca)

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        if details.method.startswith("/grpc.reflection.") and not self._certified:
            try:
                self._gate.identify(dict(details.invocation_metadata or ()).get("authorization", ""), ())
            except RequestError as error:
                return grpc.stream_stream_rpc_method_handler(_refusal(error))
        return await continuation(details)


def _refusal(error: RequestError) -> Any:
    async def refuse(_: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode[error.code], bounded(error.text))

    return refuse


def _credentials(settings: RpcSettings) -> Any:
    pair = (read_file(settings.tls_key, "tls_key"), read_file(settings.tls_certificate, "tls_certificate"))
    if not settings.client_ca:
        return grpc.ssl_server_credentials((pair,))
    return grpc.ssl_server_credentials((pair,), read_file(settings.client_ca, "client_ca"), require_client_auth=True)
