"""Clients of our services over gRPC.

A command imports this module each time it runs. So it imports nothing that only a server needs.
"""

from __future__ import annotations  # Otherwise the use of one value would import all of them.

import math
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any, Final, Self

import grpc
from grpc import aio

from spillway import tracing
from spillway.api_errors import RequestError
from spillway.rpc.calls import LENDING, PLANNER, SCALING, Call, RpcService, request_bytes, with_idempotency_keys
from spillway.rpc.endpoints import is_loopback, read_file
from spillway.rpc.fleets import Fleets
from spillway.rpc.refusals import received_refusal
from spillway.rpc.route import Route, failure_reason
from spillway.rpc.trailers import LEADER_TRAILER
from spillway.rpc.verbs import ClientVerbs, LendingVerbs, ScalingVerbs
from spillway.settings import OperatorError
from spillway.verb_names import READING_VERBS

if TYPE_CHECKING:
    from spillway import api

CONNECT_OPTION: Final = "grpc.min_reconnect_backoff_ms"
"""gRPC's option for the longest time of one connection attempt, including the server's first bytes. Its default is 20
s."""

_REPLY_BYTES_MAX = 64 * 2**20
"""The most bytes of one answer: a server sends none that is larger (docs/security.md)."""
_LEADER_SECONDS = 1.0
"""The longest time that a read waits for the active instance after a standby has answered it."""


@dataclass(frozen=True, slots=True)
class ClientTimeouts:
    """The limits on the silence of one instance, after which a client asks another.

    gRPC's keepalive notices a frozen instance too late.
    connect_seconds: until the instance answers a new connection; no request was sent by then.
    read_seconds: for a call that changes nothing, once for each endpoint.
    answer_seconds: for every other call, and once all endpoints were asked; a healthy instance answers within its
    request_seconds, 10.
    """

    connect_seconds: float = 3.0
    read_seconds: float = 5.0
    answer_seconds: float = 12.0

    def wait_seconds(self, verb: str, rounds: int) -> float:
        """Returns the seconds to wait for an answer. rounds: how often all endpoints were asked before."""
        return self.read_seconds if verb in READING_VERBS and not rounds else self.answer_seconds


class _Client:
    """A client of one of our services. Open it with `async with`; one for each process is enough.

    endpoints: host:port of every instance. ca: file of the CA; it turns TLS on. identity: files of our certificate and
    key. After UNAVAILABLE it tries again, at the leader that an instance names or at the next endpoint. All tries have
    the same idempotency key (one is made if absent). They end after retry_seconds, or after the call's time. Any other
    error raises RequestError.
    fleet: the id of the fleet that the caller means. An instance of another fleet refuses the call and does nothing.
    Empty: any fleet.
    """

    patience = ClientTimeouts()
    _service: RpcService

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

    def active_instance_address(self) -> str:
        """Returns the address of the active instance from the last answer; empty if no answer had one."""
        return self._leader

    async def _call_verb(self, verb: str, request: Any, seconds: float | None) -> Any:
        call = self._service.calls[verb]
        if verb != "plan":
            request = with_idempotency_keys(request)
        encoded_request = request_bytes(request, call.request_message())
        with tracing.begin_or_continue_trace(call.path[1:], tracing.CLIENT, tracing.rpc_attributes(call.path)) as span:
            try:
                reply = await self._call_until_reply(call, encoded_request, seconds)
            except RequestError as error:
                tracing.note_rpc_ended(span, error.code, failed=True)
                raise
            tracing.note_rpc_ended(span, "OK", failed=False)
            return reply

    async def _call_until_reply(self, call: Call, encoded_request: bytes, seconds: float | None) -> Any:
        longest = self._timeout_seconds if seconds is None else seconds
        deadline = time.monotonic() + longest
        route = self._new_route(min(self._retry_seconds, deadline - time.monotonic()))
        while True:
            endpoint = await route.next_endpoint()
            left = max(0.001, deadline - time.monotonic())
            share = (
                left if len(self._endpoints) == 1 else min(left, self.patience.wait_seconds(call.verb, route.rounds))
            )
            answer = self._make_stub(endpoint, call)(encoded_request, timeout=share, metadata=self._call_metadata())
            try:
                reply = call.read_reply(await answer)
                trailer = await answer.trailing_metadata()
                leader = self._note_trailer(endpoint, trailer)
                if call.verb not in READING_VERBS:
                    self.fleets.note_change(endpoint, trailer)
                if leader in ("", endpoint) or not _is_stale(reply):
                    return reply
                return await self._ask_leader(leader, call, encoded_request, deadline) or reply
            except aio.AioRpcError as error:
                failure = _request_error(error)
                if failure.code == "DEADLINE_EXCEEDED" and share < left:
                    failure = RequestError("UNAVAILABLE", f"no answer for {share:g} s")
                elif failure.code == "DEADLINE_EXCEEDED":
                    failure = route.deadline_error(endpoint, failure, longest)
                route.note_failure(endpoint, failure, self._note_trailer(endpoint, error.trailing_metadata()))

    async def _ask_leader(self, leader: str, call: Call, encoded_request: bytes, deadline: float) -> Any:
        """Repeats a call at the active instance, after a standby answered it. Returns None without a better answer."""
        seconds = max(0.001, min(_LEADER_SECONDS, deadline - time.monotonic()))
        with suppress(aio.AioRpcError):
            reply = call.read_reply(
                await self._make_stub(leader, call)(encoded_request, timeout=seconds, metadata=self._call_metadata())
            )
            return None if _is_stale(reply) else reply
        return None

    def _make_stub(self, endpoint: str, call: Call) -> Any:
        channel = self._channels.get(endpoint)
        if channel is None:
            options = (*_CLIENT_OPTIONS, (CONNECT_OPTION, round(1000 * self.patience.connect_seconds)))
            if self._credentials is None:
                channel = aio.insecure_channel(endpoint, options=options)
            else:
                channel = aio.secure_channel(endpoint, self._credentials, options=options)
            self._channels[endpoint] = channel
        return (channel.unary_stream if call.streams else channel.unary_unary)(call.path)

    def _call_metadata(self) -> tuple[tuple[str, str], ...]:
        pairs = [
            *((key, value.decode()) for key, value in tracing.current_trace_headers()),
            *self.fleets.call_metadata(),
        ]
        if self._token:
            pairs.append(("authorization", f"Bearer {self._token}"))
        return tuple(pairs)

    def _new_route(self, seconds: float) -> Route:
        return Route(self._endpoints, self._leader, seconds, self._random)

    def _note_trailer(self, endpoint: str, trailer: Any) -> str:
        """Returns the leader in an answer; "" if the client must not call it: no unknown host may get the token."""
        self.fleets.note_answer(endpoint, trailer)
        leader = str(dict(trailer or ()).get(LEADER_TRAILER, ""))
        if not (leader in self._endpoints or self._ca or is_loopback(leader.rpartition(":")[0])):
            leader = ""
        if leader or self._leader == endpoint:
            self._leader = leader
        return leader


class PlannerClient(_Client, ClientVerbs):
    """A client with the verbs of PlannerApi."""

    _service = PLANNER

    async def watch(self, request: api.WatchRequest) -> AsyncIterator[api.WatchReply]:
        """Yields changes. When a planner stops, another one goes on from the last position. A change may come twice."""
        call, position = self._service.calls["watch"], request.position
        route = self._new_route(self._retry_seconds)
        while True:
            endpoint, opened = await route.next_endpoint(), time.monotonic()
            encoded_request = request_bytes(replace(request, position=position), call.request_message())
            stream = self._make_stub(endpoint, call)(encoded_request, metadata=self._call_metadata())
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
                route = self._new_route(self._retry_seconds)  # The stream worked for a while: a new failure.
            route.note_failure(endpoint, error, self._note_trailer(endpoint, trailer))

    async def export(self, request: api.ExportRequest) -> AsyncIterator[api.ExportReply]:
        """Exports from the first planner that answers. Another planner is asked only if no record has come yet."""
        call, route = self._service.calls["export"], self._new_route(self._retry_seconds)
        encoded_request, begun = request_bytes(request, call.request_message()), False
        while True:
            endpoint = await route.next_endpoint()
            stream = self._make_stub(endpoint, call)(encoded_request, metadata=self._call_metadata())
            try:
                async for answer in stream:
                    begun = True
                    yield call.read_reply(answer)
                return
            except aio.AioRpcError as failure:
                error = _request_error(failure)
                if begun:
                    raise error from None
                route.note_failure(endpoint, error, self._note_trailer(endpoint, failure.trailing_metadata()))
            finally:
                stream.cancel()


class ScalingClient(_Client, ScalingVerbs):
    """A client with the verbs of ScalingApi."""

    _service = SCALING


class LendingClient(_Client, LendingVerbs):
    """A client with the verbs of LendingApi."""

    _service = LENDING


def _is_stale(reply: Any) -> bool:
    inner = (getattr(reply, field, None) for field in ("placement", "policy"))
    return any(getattr(part, "stale", False) for part in (reply, *inner))


_CLIENT_OPTIONS = (
    ("grpc.max_receive_message_length", _REPLY_BYTES_MAX),
    ("grpc.enable_retries", 0),  # Our own retries change the endpoint.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.keepalive_time_ms", 10_000),  # Notices a frozen planner during a quiet watch.
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
)


def _channel_credentials(ca: str, identity: tuple[str, str] | None) -> Any:
    certificate, key = (read_file(name, "client identity") for name in identity) if identity else (None, None)
    return grpc.ssl_channel_credentials(read_file(ca, "ca"), key, certificate)


def _request_error(error: Any) -> RequestError:
    return received_refusal(error.code().name, failure_reason(error.details() or ""), error.trailing_metadata())
