"""The gRPC server of our services."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final, Never, Self, cast

import grpc
import structlog

from spillway import metrics, tracing
from spillway.api import RequestError
from spillway.bus import BusUnavailable, OutcomeUnknown
from spillway.messages import fill_message
from spillway.reasons import TOO_MANY_RUN, TOO_MANY_WATCHES
from spillway.rpc.call_server import UNTIL_SENT
from spillway.rpc.callers import Caller
from spillway.rpc.calls import PLANNER, Call, RpcService
from spillway.rpc.fleets import FLEET_KEY, fleet_in_metadata, refuse_other_fleet
from spillway.rpc.incoming import parse_request, receive_message, trace_headers_of_call
from spillway.rpc.listener import Listener
from spillway.rpc.manifest_reading import ManifestReading, Prepare, unchanged_request
from spillway.rpc.namespaces import check_batch_items
from spillway.rpc.refusals import Trailer, log_unavailable_refusal, trailer_of_refusal, trailer_sized_text
from spillway.rpc.security import CALLER, COUNT_CALLS, Gate, RpcSettings, TooManyCalls
from spillway.rpc.shares import CallerShare, Shares
from spillway.rpc.trailers import LEADER_TRAILER, PUSHBACK_TRAILER, VERSION_TRAILER
from spillway.rpc.verbs import LendingApi, PlannerApi, ScalingApi
from spillway.version import VERSION

SENT_BYTES_PER_SECOND_MIN: Final = 64 * 1024
"""The slowest rate at which a client may take an answer: that of a slow mobile network. The time for an answer is
unread_seconds plus its size divided by this rate, but at most unread_seconds_max."""


class RpcServer:
    """Serves one of our services while it is open, with health and reflection.

    Opening raises OperatorError when it may not or cannot listen. Health says not serving until set_serving(True), but
    calls are answered before.
    fleet: the id of the fleet that is served. A call for another fleet is refused before anything is done. Empty: calls
    for any fleet are served.
    prepare: called in a thread with each request that has long manifests (manifest_reading.Prepare).
    """

    def __init__(
        self,
        answers: PlannerApi | ScalingApi | LendingApi,
        settings: RpcSettings,
        service: RpcService = PLANNER,
        fleet: str = "",
        prepare: Prepare = unchanged_request,
    ) -> None:
        self._fleet = fleet
        self._gate = Gate(settings, time.monotonic)
        of_one = settings.messages_caller_max, settings.unsent_bytes_caller_max
        self._shares = Shares(CallerShare(*self._gate.share_of_a_caller(), *of_one))
        of_callers = settings.manifest_values_max, settings.manifests_waiting_max
        self._reading = ManifestReading(*of_callers, settings.pod_security, prepare)
        self._answers = answers
        self._service = service
        self._settings = settings
        self._log = structlog.get_logger(part="rpc")
        self._running = 0
        self._watches: dict[asyncio.Task[Any], Caller] = {}
        self._closing = False

    async def __aenter__(self) -> Self:
        self._fatal: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        handlers = dict(map(self._make_handler, self._service.calls.values()))
        self._listener = Listener(self._gate, self._shares, self._settings, self._service.name, handlers)
        await self._listener.open()
        work = (self._watch_callers_file, self._listener.keep_server_open, self._listener.accept_connections)
        self._tasks = [asyncio.create_task(self._run_until_failure(one)) for one in work]
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
        """Sets the answer of grpc.health.v1 for the server and for its service."""
        self._listener.set_serving(serving)

    async def _watch_callers_file(self) -> None:
        """Reads the callers file again when it has changed. Ends the watches of callers whose rights have changed."""
        while True:
            await asyncio.sleep(self._settings.callers_check_seconds)
            try:
                changed = await self._gate.reload_callers()
            except OSError as error:  # For example without a file descriptor; the next try may get one.
                self._log.error("cannot look at the callers file: those of before stay", error=str(error))
                continue
            if changed:
                for watch in filter(self._is_revoked_watch, self._watches):
                    watch.cancel()

    async def _run_until_failure(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:
            if not self._fatal.done():
                self._fatal.set_exception(error)

    def _is_revoked_watch(self, watch: "asyncio.Task[Any]") -> bool:
        caller = self._watches.get(watch)
        return caller is not None and not self._gate.has_unchanged_rights(caller)

    async def wait_for_failure(self) -> Never:
        """Raises the error that ended the listener or the check of the callers file. The process must then stop."""
        await asyncio.wait({self._fatal})
        raise cast(BaseException, self._fatal.exception())

    def _make_handler(self, call: Call) -> tuple[str, Any]:
        """Returns the name of a method, and its handler, which reads the message of a call only on demand.

        So the caller is known before any message is read, and the size before a message is parsed.
        """

        async def answer_call(_: object, context: Any) -> bytes | None:
            return await self._handle_call(call, context)

        make = grpc.stream_stream_rpc_method_handler if call.streams else grpc.stream_unary_rpc_method_handler
        return call.path.rpartition("/")[2], make(answer_call)

    async def _handle_call(self, call: Call, context: Any) -> bytes | None:
        with ExitStack() as traced:
            code, text, answer, beside = await self._outcome_of_call(call, context, traced)
            tracing.note_rpc_ended(tracing.current_span(), code, failed=code in tracing.FAULTS)
        trailer = (*self._instance_trailers(code), *beside)
        if code != "OK":
            await context.abort(grpc.StatusCode[code], trailer_sized_text(text), trailer)
        context.set_trailing_metadata(trailer)
        return answer

    async def _outcome_of_call(
        self, call: Call, context: Any, traced: ExitStack
    ) -> tuple[str, str, bytes | None, Trailer]:
        """Returns code, text, answer, and the trailers of a refusal. A bug gives INTERNAL, and the server goes on.

        The call's span is added to `traced` once its caller is known. Otherwise strangers would fill the collector, as
        they decide by their headers what is traced.

        A call takes a place of its caller until its answer is sent. It takes one of the places of all callers only
        while it is answered: otherwise few callers who send or read slowly would take all of these.
        """
        started = time.perf_counter()
        code, text, answer = "CANCELLED", "", None
        beside: Trailer = ()
        try:
            caller, until_sent = self._identify_caller(context), UNTIL_SENT.get()
            traced.enter_context(
                tracing.begin_or_continue_trace(
                    call.path[1:], tracing.SERVER, tracing.rpc_attributes(call.path), trace_headers_of_call(context)
                )
            )
            until_sent.enter_context(self._listener.counted_on_connection(caller, context))
            until_sent.enter_context(self._shares.counted_in_share(caller, call.verb, call.streams))
            message_bytes = await self._receive_message(call, caller, context)
            with self._running_slot(call, caller):
                request = await self._admit_request(call, caller, message_bytes, context)
                answer = await (self._stream_replies if call.streams else self._answer_unary_call)(
                    call, request, context
                )
            if answer is not None:
                until_sent.enter_context(self._closed_if_unread(len(answer), context))
            code = "OK"
        except RequestError as error:
            code, text = error.code, trailer_sized_text(CALLER.get().text_of_refusal(error))
            beside = trailer_of_refusal(error, text)
            if isinstance(error, TooManyCalls):
                beside = (*beside, (PUSHBACK_TRAILER, str(math.ceil(1000 * error.seconds))))
        except (BusUnavailable, OutcomeUnknown) as error:
            code, text, beside = log_unavailable_refusal(error)
        except Exception as error:
            # The server goes on. Otherwise one request, tried again and again, would end one instance after the other.
            what = f"{type(error).__name__}: {error}"
            code, text = "INTERNAL", f"{call.verb}: a bug of the {self._service.who} met this call: {what}; see its log"
            self._log.exception("bug in a call", verb=call.verb)
        finally:
            metrics.REQUEST_SECONDS_BY_VERB[call.verb].observe(time.perf_counter() - started)
            (metrics.REQUESTS_OK[call.verb] if code == "OK" else metrics.REQUESTS.labels(call.verb, code)).inc()
        return code, text, answer, beside

    def _instance_trailers(self, code: str) -> Iterator[tuple[str, str]]:
        """Yields the trailers about this instance (leader, version, fleet). An unknown caller gets none."""
        if code == "UNAUTHENTICATED":
            return
        if leader := self._answers.active_instance_address():
            yield LEADER_TRAILER, leader
        yield VERSION_TRAILER, VERSION
        if self._fleet:
            yield FLEET_KEY, self._fleet

    @contextmanager
    def _running_slot(self, call: Call, caller: Caller) -> Iterator[None]:
        """Counts the running calls and watches. Raises RESOURCE_EXHAUSTED beyond their bound."""
        running, most = self._running, self._settings.concurrent_requests_max
        if call.streams:
            running, most = len(self._watches), self._settings.watches_max
        if running >= most:
            metrics.REQUESTS_DENIED.labels("concurrency").inc()
            reason = TOO_MANY_WATCHES if call.streams else TOO_MANY_RUN
            text = f"{call.verb}: {running} are running: expected at most {most}"
            raise RequestError("RESOURCE_EXHAUSTED", text, reason)
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._running += not call.streams  # Watches are counted by their tasks, other calls by this number.
        if call.streams:
            self._watches[task] = caller
        metrics.REQUESTS_RUNNING.inc()
        try:
            yield
        finally:
            metrics.REQUESTS_RUNNING.dec()
            self._running -= not call.streams
            self._watches.pop(task, None)

    def _identify_caller(self, context: Any) -> Caller:
        try:
            caller = self._listener.identify_caller(context)
        except RequestError as error:
            metrics.REQUESTS_DENIED.labels(error.code).inc()
            raise
        CALLER.set(caller)
        COUNT_CALLS.set(partial(self._gate.count_further_calls, caller))
        return caller

    async def _receive_message(self, call: Call, caller: Caller, context: Any) -> bytes:
        """Counts the call, waits for its message and returns the bytes.

        Raises RequestError if this caller may not make the call, or if the message is too large or comes too late.
        """
        settings = self._settings
        try:
            self._gate.admit_call(caller, call.verb)
            place, bounds = (
                self._shares.message_place(caller),
                (settings.deadline_seconds_max, settings.message_seconds),
            )
            message_bytes = await receive_message(call.verb, call.request.__name__, context, place, *bounds)
            self._gate.check_request_size(caller, len(message_bytes))
        except RequestError as error:
            metrics.REQUESTS_DENIED.labels(error.code).inc()
            raise
        return message_bytes

    async def _admit_request(self, call: Call, caller: Caller, message_bytes: bytes, context: Any) -> Any:
        """Returns the request in a message. Raises RequestError if this caller may not make it."""
        try:
            refuse_other_fleet(
                self._service.who, self._fleet, fleet_in_metadata(dict(context.invocation_metadata() or ()))
            )
            count_items = partial(self._gate.count_items, caller)
            request = parse_request(call, message_bytes, self._settings.request_entries_max, count_items)
            check_batch_items(caller, request)
            request = await self._reading.checked_request(caller, call.verb, request)
        except RequestError as error:
            metrics.REQUESTS_DENIED.labels(error.code).inc()
            raise
        return request

    async def _answer_unary_call(self, call: Call, request: Any, context: Any) -> bytes:
        most = self._settings.deadline_seconds_max
        asked = context.time_remaining()
        seconds = most if asked is None else min(most, asked)
        try:
            place = self._shares.computation_place(CALLER.get(), call.verb, request)
            async with asyncio.timeout(seconds) as bound, place:
                reply = await getattr(self._answers, call.verb)(request)
                return self._reply_bytes(call, reply)
        except TimeoutError:
            if not bound.expired():
                raise
            raise RequestError(
                "DEADLINE_EXCEEDED", f"{call.verb}: the call was not answered within {seconds:.1f} s"
            ) from None

    def _reply_bytes(self, call: Call, reply: object) -> bytes:
        """Returns the bytes of an answer, which count for its caller until they are sent.

        Raises RESOURCE_EXHAUSTED beyond the caller's share, before the bytes are made.
        """
        message = call.reply_message()
        fill_message(reply, message)
        UNTIL_SENT.get().enter_context(self._shares.counted_unsent_answer(CALLER.get(), call.verb, message.ByteSize()))
        return message.SerializeToString()

    @contextmanager
    def _closed_if_unread(self, size: int, context: Any) -> Iterator[None]:
        """Closes the connection of a call if its client does not take the answer of `size` bytes in time.

        gRPC keeps an answer until the client takes it, and has no way to cancel one call at the server.
        """
        bounds = self._settings
        seconds = min(bounds.unread_seconds + size / SENT_BYTES_PER_SECOND_MIN, bounds.unread_seconds_max)
        closing = asyncio.get_running_loop().call_later(seconds, self._listener.close_unread_connection, context.peer())
        try:
            yield
        finally:
            closing.cancel()

    async def _stream_replies(self, call: Call, request: Any, context: Any) -> None:
        replies = getattr(self._answers, call.verb)(request)
        try:
            async for reply in replies:
                await context.write(call.reply_bytes(reply))
        except asyncio.CancelledError:
            task = cast("asyncio.Task[Any]", asyncio.current_task())
            if not self._closing and not self._is_revoked_watch(task):
                raise
            task.uncancel()
            why = f"this {self._service.who} stops: go on at another one" if self._closing else "callers have changed"
            raise RequestError("UNAVAILABLE", why) from None
        finally:
            close = getattr(replies, "aclose", None)
            if close is not None:
                await close()
