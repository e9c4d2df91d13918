"""Our services over gRPC: server and clients, values inward."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final, Never, Self, cast

import grpc
import structlog
from grpc import aio

from spillway import api, metrics, tracing
from spillway.api import RequestError
from spillway.bus import BusUnavailable, OutcomeUnknown
from spillway.reasons import TOO_MANY_RUN, TOO_MANY_WATCHES
from spillway.rpc.callers import READING_VERBS, Caller
from spillway.rpc.calls import LENDING, PLANNER, SCALING, Call, Service, message_bytes, request_bytes, with_keys
from spillway.rpc.fleets import FLEET_KEY, Fleets, fleet_in, refuse_other
from spillway.rpc.incoming import message_of, request_of, trace_of
from spillway.rpc.listener import Listener
from spillway.rpc.manifest_reading import ManifestReading, Prepare, unprepared
from spillway.rpc.refusals import Trailer, bounded, of_the_log, refusal, trailer_of
from spillway.rpc.route import Route, reason_of
from spillway.rpc.security import (
    CALLER,
    MEBIBYTE,
    Gate,
    RpcSettings,
    TooManyCalls,
    is_loopback,
    read_file,
)
from spillway.rpc.shares import Share, Shares
from spillway.rpc.verbs import LendingApi, LendingVerbs, PlannerApi, ScalingApi, ScalingVerbs, Verbs
from spillway.settings import OperatorError
from spillway.version import VERSION

__all__ = [
    "LENDING",
    "PLANNER",
    "SCALING",
    "LendingApi",
    "LendingClient",
    "Patience",
    "PlannerApi",
    "PlannerClient",
    "RpcServer",
    "RpcSettings",
    "ScalingApi",
    "ScalingClient",
]

LEADER_TRAILER: Final = "spillway-leader"
VERSION_TRAILER: Final = "spillway-version"
PUSHBACK_TRAILER: Final = "grpc-retry-pushback-ms"
"""gRPC's own name for: not before so many milliseconds."""
CONNECT_OPTION: Final = "grpc.min_reconnect_backoff_ms"
"""gRPC's name for how long one try to connect may take, the other side's first words included; 20 s unless said."""

_REPLY_BYTES_MAX = 64 * MEBIBYTE
_LEADER_SECONDS = 1.0
"""How long a read that a standby answered may wait for what the active instance says."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one instance may be silent before a client asks another: keepalive sees no frozen one under a call.

    connect_seconds: until it has answered a new connection; nothing was asked of it then. read_seconds: what changes
    nothing, and that for each endpoint once; after them all answer_seconds, as for every other call: one that works
    answers within its request_seconds, 10.
    """

    connect_seconds: float = 3.0
    read_seconds: float = 5.0
    answer_seconds: float = 12.0

    def seconds(self, verb: str, rounds: int) -> float:
        """For an answer, once all endpoints were asked so many times."""
        return self.read_seconds if verb in READING_VERBS and not rounds else self.answer_seconds


# ── Server ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class RpcServer:
    """Serves one of our services while it is open, with health and reflection. Opening raises OperatorError when it may
    not or cannot listen; not serving (health) until set_serving(True), though calls are answered.

    fleet: id of the one that is served; a call that means another one is refused before anything is done. Empty: any.
    prepare: of requests with long manifests, beside the loop.
    """

    def __init__(
        self,
        answers: PlannerApi | ScalingApi | LendingApi,
        settings: RpcSettings,
        service: Service = PLANNER,
        fleet: str = "",
        prepare: Prepare = unprepared,
    ) -> None:
        self._fleet = fleet
        self._gate = Gate(settings, time.monotonic)
        self._shares = Shares(Share(*self._gate.share_of_a_caller()))
        of_callers = settings.manifest_values_max, settings.manifests_waiting_max
        self._reading = ManifestReading(*of_callers, settings.pod_security, prepare)
        self._answers = answers
        self._service = service
        self._settings = settings
        self._log = structlog.get_logger(part="rpc")
        self._running = 0
        self._watches: dict[asyncio.Task[Any], Caller | None] = {}
        self._closing = False

    async def __aenter__(self) -> Self:
        self._fatal: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        handlers = dict(map(self._handler, self._service.calls.values()))
        self._listener = Listener(self._gate, self._shares, self._settings, self._service.name, handlers)
        await self._listener.open()
        work = (self._look_at_callers, self._listener.keep_open, self._listener.accept)
        self._tasks = [asyncio.create_task(self._told_of_its_end(one)) for one in work]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self.set_serving(False)
        for watch in self._watches:
            watch.cancel()
        await self._listener.close()
        self._reading.close()
        self._gate.close()
        if self._fatal.done():
            self._fatal.exception()

    @property
    def address(self) -> str:
        host, port = self._settings.host, self._listener.port
        return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"

    async def set_serving(self, serving: bool) -> None:
        """What grpc.health.v1 answers for the server and for its service."""
        self._listener.set_serving(serving)

    async def _look_at_callers(self) -> None:
        """Lets those in who are in the callers file now, and ends the watches of those who may something else now."""
        while True:
            await asyncio.sleep(self._settings.callers_check_seconds)
            try:
                changed = await self._gate.has_changed()
            except OSError as error:  # No file descriptor, say: the next look may have one.
                self._log.error("cannot look at the callers file: those of before stay", error=str(error))
                continue
            if changed:
                for watch in filter(self._is_ended, self._watches):
                    watch.cancel()

    async def _told_of_its_end(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:
            if not self._fatal.done():
                self._fatal.set_exception(error)

    def _is_ended(self, watch: "asyncio.Task[Any]") -> bool:
        caller = self._watches.get(watch)
        return caller is not None and not self._gate.still_knows(caller)

    async def failed(self) -> Never:
        """Raises why nobody looks at the callers file, or listens, any more; for the process, which must stop."""
        await asyncio.wait({self._fatal})
        raise cast(BaseException, self._fatal.exception())

    def _handler(self, call: Call) -> tuple[str, Any]:
        """The handler of a method. It gets a stream of bytes, which begins when it is asked for the first message: so
        its caller is known before anything of it is read, and its size before anything is parsed."""

        async def answer(_: object, context: Any) -> bytes | None:
            return await self._handle(call, context)

        make = grpc.stream_stream_rpc_method_handler if call.streams else grpc.stream_unary_rpc_method_handler
        return call.path.rpartition("/")[2], make(answer)

    async def _handle(self, call: Call, context: Any) -> bytes | None:
        with tracing.begin(call.path[1:], tracing.SERVER, tracing.rpc(call.path), trace_of(context)) as span:
            code, text, answer, beside = await self._outcome(call, context)
            tracing.rpc_ended(span, code, failed=code in tracing.FAULTS)
        trailer = (*self._about_us(code), *beside)
        if code != "OK":
            await context.abort(grpc.StatusCode[code], bounded(text), trailer)
        context.set_trailing_metadata(trailer)
        return answer

    async def _outcome(self, call: Call, context: Any) -> tuple[str, str, bytes | None, Trailer]:
        """Code, text, answer, and what goes with a refusal. Our bug is INTERNAL, and stops the process."""
        started = time.perf_counter()
        code, text, answer = "CANCELLED", "", None
        beside: Trailer = ()
        try:
            with self._slot(call):
                caller = self._identified(call, context)
                with self._shares.taken(caller, call.verb, call.streams):
                    request = await self._admit(call, caller, context)
                    answer = await (self._stream if call.streams else self._answer)(call, request, context)
            code = "OK"
        except RequestError as error:
            code, text = error.code, bounded(error.text)
            beside = trailer_of(error, text)
            if isinstance(error, TooManyCalls):
                beside = (*beside, (PUSHBACK_TRAILER, str(math.ceil(1000 * error.seconds))))
        except (BusUnavailable, OutcomeUnknown) as error:
            code, text, beside = of_the_log(error)
        except Exception as error:
            # It goes on: else one request, asked again and again, would end one instance after the other.
            what = f"{type(error).__name__}: {error}"
            code, text = "INTERNAL", f"{call.verb}: a bug of the {self._service.who} met this call: {what}; see its log"
            self._log.exception("bug in a call", verb=call.verb)
        finally:
            metrics.REQUEST_SECONDS_BY_VERB[call.verb].observe(time.perf_counter() - started)
            (metrics.REQUESTS_OK[call.verb] if code == "OK" else metrics.REQUESTS.labels(call.verb, code)).inc()
        return code, text, answer, beside

    def _about_us(self, code: str) -> Iterator[tuple[str, str]]:
        """What callers are told besides the answer; strangers nothing."""
        if code == "UNAUTHENTICATED":
            return
        if leader := self._answers.leader():
            yield LEADER_TRAILER, leader
        yield VERSION_TRAILER, VERSION
        if self._fleet:
            yield FLEET_KEY, self._fleet

    @contextmanager
    def _slot(self, call: Call) -> Iterator[None]:
        """Counts what runs, and refuses what is too much."""
        running, most = self._running, self._settings.concurrent_requests_max
        if call.streams:
            running, most = len(self._watches), self._settings.watches_max
        if running >= most:
            metrics.REQUESTS_DENIED.labels("concurrency").inc()
            reason = TOO_MANY_WATCHES if call.streams else TOO_MANY_RUN
            text = f"{call.verb}: {running} are running: expected at most {most}"
            raise RequestError("RESOURCE_EXHAUSTED", text, reason)
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._running += not call.streams
        if call.streams:
            self._watches[task] = None
        metrics.REQUESTS_RUNNING.inc()
        try:
            yield
        finally:
            metrics.REQUESTS_RUNNING.dec()
            self._running -= not call.streams
            self._watches.pop(task, None)

    def _identified(self, call: Call, context: Any) -> Caller:
        try:
            caller = self._listener.identify(context)
        except RequestError as error:
            metrics.REQUESTS_DENIED.labels(error.code).inc()
            raise
        CALLER.set(caller)
        if call.streams:
            self._watches[cast("asyncio.Task[Any]", asyncio.current_task())] = caller
        return caller

    async def _admit(self, call: Call, caller: Caller, context: Any) -> Any:
        """The request, when this caller may make it."""
        try:
            caller.require_verb(call.verb)
            data = await message_of(call, context, self._settings.deadline_seconds_max)
            self._gate.admit(caller, call.verb, len(data))
            refuse_other(self._service.who, self._fleet, fleet_in(dict(context.invocation_metadata() or ())))
            request = request_of(call, data, self._settings.request_entries_max)
            self._gate.admit_items(caller, request)
            request = await self._reading.checked(caller, call.verb, request)
        except RequestError as error:
            metrics.REQUESTS_DENIED.labels(error.code).inc()
            raise
        return request

    async def _answer(self, call: Call, request: Any, context: Any) -> bytes:
        most = self._settings.deadline_seconds_max
        asked = context.time_remaining()
        seconds = most if asked is None else min(most, asked)
        try:
            async with asyncio.timeout(seconds) as bound, self._shares.computing(CALLER.get(), call.verb):
                reply = await getattr(self._answers, call.verb)(request)
                return message_bytes(reply, call.reply_message())
        except TimeoutError:
            if not bound.expired():
                raise
            raise RequestError("DEADLINE_EXCEEDED", f"{call.verb}: not done within {seconds:.1f} s") from None

    async def _stream(self, call: Call, request: Any, context: Any) -> None:
        replies = getattr(self._answers, call.verb)(request)
        try:
            async for reply in replies:
                await context.write(message_bytes(reply, call.reply_message()))
        except asyncio.CancelledError:
            task = cast("asyncio.Task[Any]", asyncio.current_task())
            if not self._closing and not self._is_ended(task):
                raise
            task.uncancel()
            why = f"this {self._service.who} stops: go on at another one" if self._closing else "callers have changed"
            raise RequestError("UNAVAILABLE", why) from None
        finally:
            close = getattr(replies, "aclose", None)
            if close is not None:
                await close()


# ── Client ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Client:
    """One of our services at the other end. Open it with `async with`; one for each process is enough.

    endpoints: host:port of every instance. UNAVAILABLE is tried again, at the leader that an instance names or at the
    next endpoint, with the same idempotency key (one is made when absent), for retry_seconds and no longer than the
    call's time. Everything else raises RequestError. ca: file; it turns TLS on. identity: files of our own
    certificate and key. fleet: id of the one that is meant: another one's instance refuses, and has done
    nothing; empty: whichever answers.
    """

    patience = Patience()
    _service: Service

    def __init__(
        self,
        endpoints: Sequence[str],
        token: str = "",
        ca: str = "",
        identity: tuple[str, str] | None = None,
        timeout_seconds: float = 30.0,
        retry_seconds: float = 30.0,
        fleet: str = "",
    ) -> None:
        who = self._service.who
        if not endpoints:
            raise OperatorError(f"{who}: no endpoint: expected host:port")
        if token and not ca:
            for endpoint in endpoints:
                if not is_loopback(endpoint.rpartition(":")[0]):
                    raise OperatorError(
                        f"{self._service.who}: {endpoint}: the token is not sent without TLS: expected a ca file"
                    )
        self._endpoints = list(dict.fromkeys(endpoints))
        self._token, self._ca, self._identity = token, ca, identity
        self._timeout_seconds, self._retry_seconds = timeout_seconds, retry_seconds
        self._channels: dict[str, Any] = {}
        self.fleets = Fleets(who, fleet)
        self._leader = ""
        self._random = Random()

    async def __aenter__(self) -> Self:
        self._credentials = _channel_credentials(self._ca, self._identity) if self._ca else None
        return self

    async def __aexit__(self, *_: object) -> None:
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close()

    def leader(self) -> str:
        """The active instance as the last answer named it; empty when none did."""
        return self._leader

    async def _ask(self, verb: str, request: Any, seconds: float | None) -> Any:
        call = self._service.calls[verb]
        if verb != "plan":
            request = with_keys(request)
        data = request_bytes(request, call.request_message())
        with tracing.begin(call.path[1:], tracing.CLIENT, tracing.rpc(call.path)) as span:
            try:
                reply = await self._reply(call, data, seconds)
            except RequestError as error:
                tracing.rpc_ended(span, error.code, failed=True)
                raise
            tracing.rpc_ended(span, "OK", failed=False)
            return reply

    async def _reply(self, call: Call, data: bytes, seconds: float | None) -> Any:
        longest = self._timeout_seconds if seconds is None else seconds
        deadline = time.monotonic() + longest
        route = self._route(min(self._retry_seconds, deadline - time.monotonic()))
        while True:
            endpoint = await route.next()
            left = max(0.001, deadline - time.monotonic())
            share = left if len(self._endpoints) == 1 else min(left, self.patience.seconds(call.verb, route.rounds))
            answer = self._stub(endpoint, call)(data, timeout=share, metadata=self._metadata())
            try:
                reply = call.read_reply(await answer)
                trailer = await answer.trailing_metadata()
                leader = self._hear(endpoint, trailer)
                if call.verb not in READING_VERBS:
                    self.fleets.note_change(endpoint, trailer)
                if leader in ("", endpoint) or not _is_stale(reply):
                    return reply
                return await self._ask_leader(leader, call, data, deadline) or reply
            except aio.AioRpcError as error:
                failure = _request_error(error)
                if failure.code == "DEADLINE_EXCEEDED" and share < left:
                    failure = RequestError("UNAVAILABLE", f"silent for {share:g} s")
                elif failure.code == "DEADLINE_EXCEEDED":
                    failure = route.late(endpoint, failure, longest)
                route.failed(endpoint, failure, self._hear(endpoint, error.trailing_metadata()))

    async def _ask_leader(self, leader: str, call: Call, data: bytes, deadline: float) -> Any:
        """What the active instance says, after a standby did; None when it does not answer soon, or is none either."""
        seconds = max(0.001, min(_LEADER_SECONDS, deadline - time.monotonic()))
        with suppress(aio.AioRpcError):
            reply = call.read_reply(await self._stub(leader, call)(data, timeout=seconds, metadata=self._metadata()))
            return None if _is_stale(reply) else reply
        return None

    def _stub(self, endpoint: str, call: Call) -> Any:
        channel = self._channels.get(endpoint)
        if channel is None:
            options = (*_CLIENT_OPTIONS, (CONNECT_OPTION, round(1000 * self.patience.connect_seconds)))
            if self._credentials is None:
                channel = aio.insecure_channel(endpoint, options=options)
            else:
                channel = aio.secure_channel(endpoint, self._credentials, options=options)
            self._channels[endpoint] = channel
        return (channel.unary_stream if call.streams else channel.unary_unary)(call.path)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        pairs = [*((key, value.decode()) for key, value in tracing.headers()), *self.fleets.metadata()]
        if self._token:
            pairs.append(("authorization", f"Bearer {self._token}"))
        return tuple(pairs)

    def _route(self, seconds: float) -> Route:
        return Route(self._endpoints, self._leader, seconds, self._random)

    def _hear(self, endpoint: str, trailer: Any) -> str:
        """The leader that a planner's answer names, when it may be followed: the token goes to no stranger."""
        self.fleets.hear(endpoint, trailer)
        leader = str(dict(trailer or ()).get(LEADER_TRAILER, ""))
        if not (leader in self._endpoints or self._ca or is_loopback(leader.rpartition(":")[0])):
            leader = ""
        if leader or self._leader == endpoint:
            self._leader = leader
        return leader


class PlannerClient(_Client, Verbs):
    """A PlannerApi at the other end."""

    _service = PLANNER

    async def watch(self, request: api.WatchRequest) -> AsyncIterator[api.WatchReply]:
        """Goes on at another planner, from the last position, when one stops. A change may come twice, never not."""
        call, position = self._service.calls["watch"], request.position
        route = self._route(self._retry_seconds)
        while True:
            endpoint, opened = await route.next(), time.monotonic()
            data = request_bytes(replace(request, position=position), call.request_message())
            stream = self._stub(endpoint, call)(data, metadata=self._metadata())
            try:
                async for answer in stream:
                    reply: api.WatchReply = call.read_reply(answer)
                    position, opened = reply.position or position, -math.inf
                    yield reply
                error, trailer = RequestError("UNAVAILABLE", "the watch ended"), await stream.trailing_metadata()
            except aio.AioRpcError as failure:
                error, trailer = _request_error(failure), failure.trailing_metadata()
            finally:
                stream.cancel()
            if time.monotonic() - opened > self._retry_seconds:
                route = self._route(self._retry_seconds)  # It worked for a while: this is another failure.
            route.failed(endpoint, error, self._hear(endpoint, trailer))

    async def export(self, request: api.ExportRequest) -> AsyncIterator[api.ExportReply]:
        """From whichever planner answers; from the beginning at another one when it could not be begun."""
        call, route = self._service.calls["export"], self._route(self._retry_seconds)
        data, begun = request_bytes(request, call.request_message()), False
        while True:
            endpoint = await route.next()
            stream = self._stub(endpoint, call)(data, metadata=self._metadata())
            try:
                async for answer in stream:
                    begun = True
                    yield call.read_reply(answer)
                return
            except aio.AioRpcError as failure:
                error = _request_error(failure)
                if begun:
                    raise error from None
                route.failed(endpoint, error, self._hear(endpoint, failure.trailing_metadata()))
            finally:
                stream.cancel()


class ScalingClient(_Client, ScalingVerbs):
    """A ScalingApi at the other end."""

    _service = SCALING


class LendingClient(_Client, LendingVerbs):
    """A LendingApi at the other end."""

    _service = LENDING


def _is_stale(reply: Any) -> bool:
    inner = (getattr(reply, field, None) for field in ("placement", "policy"))
    return any(getattr(part, "stale", False) for part in (reply, *inner))


_CLIENT_OPTIONS = (
    ("grpc.max_receive_message_length", _REPLY_BYTES_MAX),
    ("grpc.enable_retries", 0),  # Ours change the endpoint.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.keepalive_time_ms", 10_000),  # A frozen planner is noticed under a quiet watch.
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
)


def _channel_credentials(ca: str, identity: tuple[str, str] | None) -> Any:
    certificate, key = (read_file(name, "client identity") for name in identity) if identity else (None, None)
    return grpc.ssl_channel_credentials(read_file(ca, "ca"), key, certificate)


def _request_error(error: Any) -> RequestError:
    return refusal(error.code().name, reason_of(error.details() or ""), error.trailing_metadata())
