"""The rights and limits of callers: refused addresses, callers by token or certificate, rates and sizes."""

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Final

from google.protobuf.message import Message
from msgspec import Meta

from spillway.api import RequestError
from spillway.kubernetes.pod_security import ANY, LEVELS
from spillway.reasons import TOO_MANY_CALLS
from spillway.rpc.callers import NOBODY, Caller, Callers, CallersFile
from spillway.rpc.endpoints import is_loopback
from spillway.settings import OperatorError, constant, setting

MEBIBYTE = 2**20
LISTS_OF_ITEMS: Final = {"PlanBatchRequest": ("items",), "ReportRequest": ("loads", "backlogs")}
"""By the name of a request's message, the fields whose entries count as calls."""


class TooManyCalls(RequestError):
    """Raised as RESOURCE_EXHAUSTED if a caller calls too often. seconds: the time until its next call is accepted."""

    def __init__(self, text: str, seconds: float) -> None:
        super().__init__("RESOURCE_EXHAUSTED", text, TOO_MANY_CALLS)
        self.seconds = seconds


class UnsafeBind(OperatorError):
    """Raised if the server would listen beyond this machine without TLS or without known callers."""


@dataclass(frozen=True, slots=True)
class RpcSettings:
    """The settings of a gRPC server. The prefix of its variables is SPILLWAY_RPC_."""

    host: str = setting(
        "127.0.0.1", "address that the gRPC server listens on; an address other than loopback needs TLS and callers"
    )
    port: Annotated[int, Meta(ge=0, le=65535)] = setting(
        7400, "port that the gRPC server listens on; 0 takes a free port"
    )
    tls_certificate: str = setting("", "PEM file of the server's certificate chain")
    tls_key: str = setting("", "PEM file of the server's private key")
    client_ca: str = setting("", "PEM file of the CA that signs client certificates")
    callers: str = setting("", "file of callers (YAML, JSON or TOML) with name, token_sha256, verbs and namespaces")
    callers_check_seconds: float = constant(
        5.0,
        "seconds between two checks whether the callers file has changed",
        "a check of one file costs nothing, and a caller that is removed loses access soon enough",
    )
    deadline_seconds_max: float = constant(
        30.0,
        "longest time in seconds that one call may take",
        "it is three times what a request waits for the log; a client that wants less sets its own deadline",
    )
    request_bytes_max: Annotated[int, Meta(ge=1024, le=16 * MEBIBYTE)] = setting(
        4 * MEBIBYTE, "largest size of a request in bytes"
    )
    request_entries_max: int = constant(
        20_000,
        "largest number of entries in all lists of one request, counted before they are read",
        "this bounds the time to read a request of empty entries, and real requests have far fewer",
    )
    manifest_values_max: int = constant(
        100_000,
        "largest number of values, keys included, in all manifests of one request with long manifests",
        "this bounds the time to read one request, and real manifests have far fewer values",
    )
    manifests_waiting_max: int = constant(
        4,
        "largest number of requests with long manifests of one caller that are read or wait for it; they are read "
        "one after the other",
        "they are read one after the other: with more places the last one is late, and none is sooner",
    )
    pod_security: Annotated[str, Meta(pattern=f"^({'|'.join(LEVELS)})$")] = setting(
        ANY, "level of Pod Security that the pods of every caller must satisfy: any, baseline or restricted"
    )
    requests_per_second: Annotated[float, Meta(gt=0)] = setting(
        500.0, "number of calls a second that each caller may make; each item of a PlanBatch or a Report counts as one"
    )
    requests_burst: Annotated[int, Meta(ge=1)] = setting(
        1000, "number of calls that a caller may make at once after a pause"
    )
    concurrent_requests_max: Annotated[int, Meta(ge=1)] = setting(
        1000, "number of calls of all callers that are answered at the same time"
    )
    concurrent_requests_caller_max: Annotated[int, Meta(ge=1)] = setting(
        500, "number of calls of one caller that are answered at the same time"
    )
    computations_caller_max: int = constant(
        8,
        "number of explanations, plans, capacities and lists that are computed at the same time for one caller; "
        "its further ones wait",
        "they share one processor: more of them at a time finish no sooner",
    )
    messages_caller_max: int = constant(
        8,
        "number of messages of one caller that are received at the same time; its further ones wait",
        "with the largest size of a request it bounds the memory that messages take which never come whole",
    )
    message_seconds: float = constant(
        10.0,
        "seconds within which a message must arrive once the server reads it",
        "it is several times what the largest request takes on a slow network",
    )
    unsent_bytes_caller_max: int = constant(
        64 * MEBIBYTE,
        "bytes of answers to one caller that the client has not taken yet",
        "it is many of the longest answers, and a client that reads its answers stays far below",
    )
    watches_max: int = constant(
        200,
        "number of watches of all callers at the same time",
        "each watch holds at most watch_events_waiting_max changes (a constant of planner); both numbers "
        "together bound the memory of all watches",
    )
    watches_caller_max: int = constant(
        100,
        "number of watches of one caller at the same time",
        "it is half of all, so that no caller has them all",
    )
    connections_max: Annotated[int, Meta(ge=1)] = setting(
        1000,
        "number of connections at the same time; fewer if the process may not open three files for each connection",
    )
    connections_address_max: Annotated[int, Meta(ge=1)] = setting(
        500,
        "number of connections of one address (IPv6: of one /64); connections_max if the server asks for no "
        "credentials",
    )
    connections_caller_max: Annotated[int, Meta(ge=1)] = setting(
        300,
        "number of connections of one caller; for a further one, that of the caller's connections without a running "
        "call is closed whose last call is longest ago",
    )
    connection_idle_seconds: float = constant(
        300.0,
        "seconds without a call after which a known caller's connection is closed if a new one needs its place",
        "clients that call connect again by themselves, and places are needed only when all are taken",
    )
    unread_seconds: float = constant(
        30.0,
        "seconds after which a connection is closed whose client takes nothing of what was sent to it",
        "it is what a call may take, and a client that lives reads within far less",
    )
    unread_seconds_max: float = constant(
        120.0,
        "seconds after which a connection is closed whose client has not taken one whole answer, however long that is",
        "gRPC keeps the answer for so long; the largest one then needs half a mebibyte a second, a usual page far less",
    )
    strangers_max: int = constant(
        200,
        "number of connections without a call of a known caller; for a further one the oldest of them is closed",
        "the first call ends this state, so that few connections are in it at a time, with many callers too",
    )
    stranger_seconds: float = constant(
        10.0,
        "seconds after which a connection without a call of a known caller is closed",
        "a first call takes far less time, on slow networks too",
    )
    stranger_bytes_max: int = constant(
        MEBIBYTE // 4,
        "bytes after which a connection without a call of a known caller is closed",
        "it is several times the TLS handshake and the head of a first call",
    )
    streams_max: int = constant(
        200,
        "number of calls and watches at the same time on one connection",
        "it is all watches of a caller and as many calls; a client waits for more, and no call is refused; more calls "
        "of a stranger, who sends 15 bytes and takes 0.3 ms for each, would hold up everybody",
    )
    health_watches_max: int = constant(
        100,
        "number of health watches of all clients at the same time",
        "only load balancers watch health, and they are few; Check takes no place",
    )
    stop_seconds: float = constant(
        5.0,
        "seconds that running calls get to finish when the server stops",
        "it is within the process' stop_seconds, and clients ask another instance again",
    )


LOCAL_CALLER = Caller("local")
STRANGER = Caller("", verbs=frozenset(), namespaces=frozenset())
"""The caller for all clients whose certificate is signed by client_ca but names no caller. They may only list
methods."""
CALLER: ContextVar[Caller] = ContextVar("caller", default=LOCAL_CALLER)
"""The caller of the present request, for code that finds its namespace only while it answers."""

COUNT_CALLS: ContextVar[Callable[[int, int], None]] = ContextVar("count_calls", default=lambda calls, taken: None)
"""A function that counts further calls in the rate of the present request's caller: their number, and that of the calls
that were counted for the request before."""


def current_caller_name() -> str:
    """Returns the caller whose request is being answered. Empty for our own requests, and without named callers."""
    caller = CALLER.get()
    return "" if caller is LOCAL_CALLER else caller.name


def count_further_calls(calls: int, taken: int = 1) -> None:
    """Counts a request that is being answered as so many further calls. Raises TooManyCalls beyond the caller's rate.

    taken: the calls that it was counted as before, which its repetition will need again.
    Requests of our own, and those of a server without named callers, are not counted.
    """
    COUNT_CALLS.get()(calls, taken)


def check_bind_address(settings: RpcSettings) -> None:
    """Raises UnsafeBind for an address outside loopback without TLS and a way to know callers."""
    if bool(settings.tls_certificate) != bool(settings.tls_key):
        raise UnsafeBind("gRPC: tls_certificate, tls_key: only one is set: expected both or neither")
    if settings.client_ca and not settings.tls_certificate:
        raise UnsafeBind("gRPC: client_ca: set without tls_certificate and tls_key: expected all three")
    if is_loopback(settings.host):
        return
    missing = []
    if not settings.tls_certificate:
        missing.append("TLS (tls_certificate and tls_key)")
    if not settings.callers and not settings.client_ca:
        missing.append("callers (a callers file, or a client_ca)")
    if missing:
        raise UnsafeBind(
            f"gRPC: host {settings.host!r} is not loopback: expected a loopback address, or {' and '.join(missing)}"
        )


class Gate:
    """Admits calls, or refuses them with a reason. now: a monotonic clock in seconds."""

    def __init__(self, settings: RpcSettings, now: Callable[[], float]) -> None:
        check_bind_address(settings)
        self._file = CallersFile(settings.callers) if settings.callers else None
        self._settings = settings
        self._now = now
        self._buckets: dict[str, _Bucket] = {}
        self._thread = ThreadPoolExecutor(1, "callers")
        self.is_open = not settings.callers and not settings.client_ca

    @property
    def callers(self) -> Callers:
        return self._file.callers if self._file else NOBODY

    def close(self) -> None:
        self._thread.shutdown(wait=False)

    async def reload_callers(self) -> bool:
        """Reads the callers file, in a thread that no request uses. Returns whether its callers have changed."""
        if self._file is None:
            return False
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._file.reload_if_changed)

    def has_unchanged_rights(self, caller: Caller) -> bool:
        """Returns whether this caller still has exactly the rights that it had when it was admitted."""
        return self._file is None or self.callers.has_caller(caller)

    def share_of_a_caller(self) -> tuple[int, int, int]:
        """Returns the limits of one caller: calls, watches, computations. If all clients are one caller: totals."""
        settings = self._settings
        if self.is_open:
            return settings.concurrent_requests_max, settings.watches_max, settings.concurrent_requests_max
        of_one = settings.concurrent_requests_caller_max, settings.watches_caller_max
        return *of_one, settings.computations_caller_max

    def connections_of_a_caller(self) -> int:
        """Returns the most connections of one caller at one time. If all clients are the same caller: the total."""
        return self._settings.connections_max if self.is_open else self._settings.connections_caller_max

    def connections_of_an_address(self) -> int:
        """Returns the most connections of one address at one time. If all clients are the same caller: the total."""
        return self._settings.connections_max if self.is_open else self._settings.connections_address_max

    def identify_caller(self, authorization: str, certificate_names: Iterable[str]) -> Caller:
        """Returns the caller of a token or of a verified client certificate. Raises UNAUTHENTICATED."""
        if self.is_open:
            return LOCAL_CALLER
        scheme, _, token = authorization.partition(" ")
        if token and scheme.lower() == "bearer":
            caller = self.callers.by_token.get(hashlib.sha256(token.strip().encode()).hexdigest())
            if caller is None:
                raise RequestError(
                    "UNAUTHENTICATED", "authorization: no caller has this token: expected the token of a caller"
                )
            return caller
        for name in certificate_names:
            if self._file is None:
                return Caller(name)
            if name in self.callers.by_certificate:
                return self.callers.by_certificate[name]
        wanted = "authorization: Bearer <token>" + (", or a client certificate" if self._settings.client_ca else "")
        raise RequestError("UNAUTHENTICATED", f"the call has no valid credentials: expected {wanted}")

    def admit_call(self, caller: Caller, verb: str) -> None:
        """Counts a call before its message is read. Raises PERMISSION_DENIED for a verb, RESOURCE_EXHAUSTED for the
        rate.
        """
        caller.require_verb(verb)
        self._count_calls(caller, 1, 0)

    def check_request_size(self, caller: Caller, request_bytes: int) -> None:
        """Raises INVALID_ARGUMENT for a request beyond the caller's bound."""
        limits = self.callers.limits.get(caller.name)
        bytes_max = (limits.request_bytes_max if limits else 0) or self._settings.request_bytes_max
        if request_bytes > bytes_max:
            raise RequestError("INVALID_ARGUMENT", f"request: {request_bytes} bytes: expected at most {bytes_max}")

    def largest_request_bytes(self) -> int:
        """Returns the size in bytes of the largest request that any caller may make."""
        of_callers = (limits.request_bytes_max for limits in self.callers.limits.values())
        return max((self._settings.request_bytes_max, *of_callers))

    def count_call(self, caller: Caller) -> None:
        """Counts a call without a verb in the caller's rate. Raises RESOURCE_EXHAUSTED."""
        self._count_calls(caller, 1, 0)

    def count_items(self, caller: Caller, message: Message) -> None:
        """Counts the items of a batch or a report in the caller's rate. Raises TooManyCalls.

        message: the request as it was received. Each item counts as a call; the first one is the request's own call,
        which was counted before. Items are not counted where all clients are the same caller.
        """
        lists = LISTS_OF_ITEMS.get(message.DESCRIPTOR.name, ())
        items = sum(len(getattr(message, name)) for name in lists)
        self.count_further_calls(caller, items - 1)

    def count_further_calls(self, caller: Caller, calls: int, taken: int = 1) -> None:
        """Counts calls beside those that were `taken` for the request. Raises TooManyCalls beyond the rate."""
        if calls > 0 and not self.is_open:
            self._count_calls(caller, calls, taken)

    def _count_calls(self, caller: Caller, calls: int, taken: int) -> None:
        """Counts calls in the caller's rate. Raises TooManyCalls beyond it. taken: as in _Bucket.take_calls."""
        limits, burst = self.callers.limits.get(caller.name), self._settings.requests_burst
        rate = (limits.requests_per_second if limits else 0.0) or self._settings.requests_per_second
        bucket = self._buckets.get(caller.name)
        if bucket is None:
            bucket = self._buckets.setdefault(caller.name, _Bucket(burst, self._now()))
        if seconds := bucket.take_calls(calls, taken, rate, burst, self._now()):
            what = f"{calls + taken} at once, of " if taken else ""
            text = f"caller {caller.name!r}: {what}more than {rate:g} calls a second: try again in {seconds:.3g} s"
            raise TooManyCalls(text, seconds)


class _Bucket:
    """The number of calls that one caller may make now. It rises with time, and is below 0 after too large a batch."""

    __slots__ = ("_at", "_left")

    def __init__(self, left: float, at: float) -> None:
        self._left, self._at = left, at

    def take_calls(self, calls: int, taken: int, per_second: float, most: float, now: float) -> float:
        """Takes calls and returns 0. If too few are left, takes none and returns the seconds until they are there.

        taken: calls of the same request that were taken before, and that its repetition will need again. A full
        bucket admits more than it holds, so that no request is refused for ever; the next calls wait longer.
        """
        self._left = min(most, self._left + (now - self._at) * per_second)
        self._at = now
        if self._left < min(calls, most - taken):
            return (min(calls + taken, most) - self._left) / per_second
        self._left -= calls
        return 0.0
