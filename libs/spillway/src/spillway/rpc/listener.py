"""A gRPC server behind its front, with health and reflection. If grpcio ends the server, another one is opened.

The front learns on which connections a known caller has called, and limits all others. A call's message is not read
before its caller is known: the handler gets it as a stream. Health has no caller: on a known connection its calls count
for that connection's caller, and on a stranger's the front bounds them.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import grpc
import structlog
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from spillway.api import RequestError
from spillway.rpc.call_server import UNTIL_SENT, CallServer
from spillway.rpc.callers import Caller
from spillway.rpc.calls import REQUEST_BYTES_MOST
from spillway.rpc.endpoints import read_file
from spillway.rpc.front import Front
from spillway.rpc.health import SERVICE as HEALTH
from spillway.rpc.health import HealthService
from spillway.rpc.holder_places import HolderPlaces
from spillway.rpc.incoming import receive_message
from spillway.rpc.reflection_service import VERB as REFLECTION
from spillway.rpc.reflection_service import Reflection
from spillway.rpc.security import STRANGER, Gate, RpcSettings
from spillway.rpc.shares import Shares
from spillway.settings import OperatorError

RECEIVE_FACTOR: Final = 4
"""gRPC accepts this many times the size of the largest request of any caller. A too large request within this bound
gets our own answer; beyond it gRPC answers itself."""
PENDING_CALLS_MAX: Final = 10_000
"""The calls of all connections that gRPC keeps until our loop takes them. gRPC ends further calls at random as
cancelled, also those of callers who make few calls. Its default for this number is 1,000."""
METADATA_BYTES_MAX: Final = 16 * 1024
"""The bound on one call's headers. Beyond it gRPC refuses some calls itself, and beyond twice the bound all calls."""
LOOK_SECONDS: Final = 0.25
"""Seconds between two checks that the server still runs. While calls are running it does not report its end."""
REOPEN_SECONDS: Final = 10.0
"""The seconds for which the service tries to open another server before it gives up."""
UNNAMED: Final = "(a certificate of no caller)"
"""The name for which the connections of all clients count whose certificate names no caller."""
_RETRY_SECONDS: Final = 0.02
"""The pause between two attempts to open a server. It is short, because nobody is served meanwhile."""
_OPTIONS: Final = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_metadata_size", METADATA_BYTES_MAX),
    ("grpc.absolute_max_metadata_size", 2 * METADATA_BYTES_MAX),
    ("grpc.http2.bdp_probe", 0),  # It would let a stranger send megabytes that nobody has asked for yet.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.server.max_pending_requests", PENDING_CALLS_MAX),
    ("grpc.server.max_pending_requests_hard_limit", 2 * PENDING_CALLS_MAX),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),  # A busy process reads pings late; then two seem too close together.
)

log = structlog.get_logger(part="rpc")


class Listener:
    """The gRPC server of one service. handlers: by the name of the method. port: 0 until it is open."""

    def __init__(
        self, gate: Gate, shares: Shares, settings: RpcSettings, service: str, handlers: Mapping[str, Any]
    ) -> None:
        self._gate = gate
        self._settings = settings
        self._service = service
        self._front = Front(settings, gate.connections_of_an_address(), gate.connections_of_a_caller())
        self._shares = shares
        self._strangers = HolderPlaces(settings.messages_caller_max)
        self._health = HealthService(settings.health_watches_max, self._receive_for_health)
        self._handlers = {f"/{service}/{name}": handler for name, handler in handlers.items()}
        self._handlers |= self._health.handlers_by_path()
        names = (service, HEALTH, reflection.SERVICE_NAME)
        seconds = settings.deadline_seconds_max, settings.message_seconds
        reflected = Reflection(names, self._admit_for_reflection, gate.count_call, *seconds)
        self._handlers |= _handlers_by_path(reflected, reflection_pb2_grpc.add_ServerReflectionServicer_to_server)
        self._server: Any = None
        self._receive_bytes = 0
        self._stopping: set[asyncio.Task[None]] = set()
        """Tasks of stopped or stopping servers that still answer earlier calls."""

    @property
    def port(self) -> int:
        return self._front.port

    async def open(self) -> None:
        """Opens the server. Raises OperatorError when it may not or cannot listen."""
        self.set_serving(False)
        self._front.open()
        await self._open_server()

    async def accept_connections(self) -> None:
        """Accepts connections until it is cancelled."""
        await self._front.accept_connections()

    async def keep_server_open(self) -> None:
        """Opens another server each time the present one has ended, until it is cancelled.

        It also opens another one when a caller may send larger requests than the present server accepts. Raises
        OperatorError if none can be opened.
        """
        while True:
            try:
                while await self._server.wait_for_termination(LOOK_SECONDS) and self._can_accept_all_sizes():
                    pass
                why = "it was shut down"
            except Exception as error:  # The error that ended its loop.
                why = f"{type(error).__name__}: {error}"
            if self._can_accept_all_sizes():
                log.error("the gRPC library has ended its server: a new server is opened", why=why)
            else:
                log.warning("callers may send larger requests: a new server is opened that accepts them")
            self._stop_server()
            await self._reopen_server()

    async def close(self) -> None:
        self._front.stop_listening()
        self._stop_server()
        await asyncio.gather(*self._stopping)
        await self._front.close()

    def identify_caller(self, context: Any) -> Caller:
        """Returns the caller of a call, by token or certificate. Raises UNAUTHENTICATED."""
        authorization = dict(context.invocation_metadata() or ()).get("authorization", "")
        try:
            return self._gate.identify_caller(authorization, _certificate_names(context))
        except RequestError:
            self._front.count_call_of_stranger(context.peer())
            raise

    def counted_on_connection(self, caller: Caller, context: Any) -> AbstractContextManager[None]:
        """Counts a call on its connection while it runs. From then on the connection is a known caller's."""
        return self._front.counted_on_connection(context.peer(), caller.name)

    def close_unread_connection(self, peer: str) -> None:
        """Closes the connection of a client that does not take an answer."""
        self._front.close_unread_connection(peer)

    def set_serving(self, serving: bool) -> None:
        """Sets the answer of grpc.health.v1 for the server and for its service."""
        for service in ("", self._service):
            self._health.set_status(service, serving)

    async def _receive_for_health(self, verb: str, message: str, context: Any) -> bytes:
        """Returns the message of a call of health, which everybody may make.

        On a known connection the call counts for the connection's caller. Calls of strangers have places of their own,
        and the front bounds their bytes and their number. Raises RequestError.
        """
        caller = (
            self._gate.identify_caller("", ()) if self._gate.is_open else Caller(self._front.caller_of(context.peer()))
        )
        place = self._strangers.semaphore_of(context.peer())
        if caller.name:
            self._gate.count_call(caller)
            place = self._shares.message_place(caller)
            UNTIL_SENT.get().enter_context(self.counted_on_connection(caller, context))
        else:
            self._front.count_call_of_stranger(context.peer())
        bounds = self._settings.deadline_seconds_max, self._settings.message_seconds
        return await receive_message(verb, message, context, place, *bounds)

    @contextmanager
    def _admit_for_reflection(self, context: Any) -> Iterator[Caller]:
        """Counts a stream of a known caller, or of STRANGER for a client certificate, which TLS has already checked.

        Raises RequestError for others, and beyond the caller's share.
        """
        try:
            caller = self.identify_caller(context)
        except RequestError:
            if not self._settings.client_ca:
                raise
            caller = STRANGER
        until_sent = UNTIL_SENT.get()
        until_sent.enter_context(self._front.counted_on_connection(context.peer(), caller.name or UNNAMED))
        until_sent.enter_context(self._shares.counted_in_share(caller, REFLECTION, False))
        yield caller

    def _stop_server(self) -> None:
        """Shuts the present server down. It does so only once for each server, because the library frees it then."""
        if self._server is not None:
            stopping = asyncio.create_task(self._server.shutdown(self._settings.stop_seconds))
            self._stopping.add(stopping)
            stopping.add_done_callback(self._stopping.discard)
            self._server = None

    async def _reopen_server(self) -> None:
        until = time.monotonic() + REOPEN_SECONDS
        while True:
            try:
                return await self._open_server()
            except OperatorError:
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(_RETRY_SECONDS)

    def _can_accept_all_sizes(self) -> bool:
        """Returns whether the server accepts the largest request of each caller."""
        return self._receive_bytes >= min(REQUEST_BYTES_MOST, self._gate.largest_request_bytes())

    async def _open_server(self) -> None:
        self._receive_bytes = min(REQUEST_BYTES_MOST, RECEIVE_FACTOR * self._gate.largest_request_bytes())
        bounds = (
            ("grpc.max_concurrent_streams", self._settings.streams_max),
            ("grpc.max_receive_message_length", self._receive_bytes),
        )
        server = CallServer(self._handlers, (*_OPTIONS, *bounds))
        path = self._front.next_server_path()
        target = f"unix:{path}".encode()
        try:
            if self._settings.tls_certificate:
                server.add_secure_port(target, _server_credentials(self._settings))
            else:
                server.add_insecure_port(target)
        except RuntimeError as error:
            raise OperatorError(f"gRPC: cannot listen on {path}: {error}") from error
        await server.start()
        self._server = server
        self._front.set_server_path(path)


class _Methods:
    """Collects handlers. It has the methods of a server that generated code calls."""

    def __init__(self) -> None:
        self.handlers: dict[str, Any] = {}

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        self.handlers |= {f"/{service}/{name}": handler for name, handler in handlers.items()}

    def add_generic_rpc_handlers(self, _: object) -> None:
        """Does nothing: the generated code passes each method in both ways."""


def _handlers_by_path(servicer: Any, add: Callable[[Any, Any], None]) -> dict[str, Any]:
    methods = _Methods()
    add(servicer, methods)
    return methods.handlers


def _certificate_names(context: Any) -> list[str]:
    return [name.decode(errors="replace") for name in context.auth_context().get("x509_common_name", ())]


def _server_credentials(settings: RpcSettings) -> Any:
    pair = (read_file(settings.tls_key, "tls_key"), read_file(settings.tls_certificate, "tls_certificate"))
    if not settings.client_ca:
        return grpc.ssl_server_credentials((pair,))
    return grpc.ssl_server_credentials((pair,), read_file(settings.client_ca, "client_ca"), require_client_auth=True)
