"""Sessions with HTTP servers that are not ours. They accept one answer to each request, within bounds.

aiohttp reads everything that a server sends. It queues answers that come on an idle connection of its pool, and skips
interim answers without counting them. A reader of a body waits for ever if the body's framing breaks. So our own
protocol reads each connection, and aborts it if the server sends data without a request.

The module uses one private name of aiohttp: `_factory` of a connector. aiohttp also does not promise that it calls
`set_response_params` for each request and `feed_data` for each head of an answer. `check_aiohttp_internals` looks for
these names.
"""

import functools
import ssl
from asyncio import AbstractEventLoop
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage

from spillway.settings import OperatorError

HEADERS: Final = {"User-Agent": "spillway", "Accept-Encoding": "identity"}
TEXT_CHARACTERS_MAX: Final = 500
USES: Final = (
    (aiohttp.BaseConnector, "__init__", "_factory"),
    (aiohttp.TCPConnector, "_create_direct_connection", "_factory"),
    (ResponseHandler, "data_received", "feed_data"),
)
"""Classes of aiohttp, a function of each, and a name that this function must use. Otherwise our replacement is never
called."""


class ServerMisbehaved(aiohttp.ClientError):
    """Raised if a server sends an answer without a request, or too many bytes outside the body of an answer. The
    connection is closed."""


class ChangedHttpLibrary(OperatorError):
    """Raised if the installed aiohttp would not call the code that bounds the answers of a server."""


@dataclass(frozen=True, slots=True)
class AnswerBounds:
    """Limits for the bytes of one exchange outside the answer's body: headers and framing. Beyond them
    ServerMisbehaved is raised."""

    interim_answers_max: int = 8
    """Answers of status 100 to 199 before the final answer. API servers and Prometheus send none unless asked."""
    framing_bytes: int = 512 * 2**10
    """Bytes outside the body: heads, chunk sizes and their extensions, trailers, empty lines. asyncio delivers up to
    256 KiB at a time, and some of it may wait until the body is read."""
    framing_ratio: int = 1
    """How many more bytes outside the body are allowed for each byte of the body. A chunk of a watch has 7 bytes of
    framing around one event, which has more than 60 bytes."""
    line_bytes: int = 8190
    """Bytes of a status line, or of one header with its name. This bound and the next are aiohttp's defaults."""
    headers_max: int = 128
    """The most headers of one answer, trailers included."""


ANSWERS: Final = AnswerBounds()
LOG_ANSWERS: Final = AnswerBounds(framing_ratio=8)
"""Limits for logs. A kubelet sends each line of a log at once: the chunk of an empty line has 5 bytes for one byte of
body."""


def open_session(
    connections: int,
    timeout: aiohttp.ClientTimeout,
    *,
    tls: ssl.SSLContext | bool = True,
    base_url: str | None = None,
    headers: Mapping[str, str] | None = None,
    bounds: AnswerBounds = ANSWERS,
) -> aiohttp.ClientSession:
    """Opens a session with at most `connections` connections. It keeps no cookies, and decompresses nothing.

    It reads no proxy from the environment. The caller must forbid redirects of requests with a token, and must bound
    the answer's body. Raises ChangedHttpLibrary.
    """
    check_aiohttp_internals()
    return aiohttp.ClientSession(
        base_url,
        connector=_Connector(connections, tls, bounds),
        timeout=timeout,
        headers={**HEADERS, **(headers or {})},
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,  # A small compressed body may unpack to an endless one.
        max_line_size=bounds.line_bytes,
        max_field_size=bounds.line_bytes,
        max_headers=bounds.headers_max,
    )


def content_encoding(answer: aiohttp.ClientResponse) -> str:
    """Returns the encodings of a compressed answer, although `identity` was requested; "" if the answer is plain."""
    encodings = [one.strip().lower() for one in answer.headers.getall("Content-Encoding", ())]
    return ", ".join(encodings)[:40] if any(one not in ("", "identity") for one in encodings) else ""


def error_text(error: BaseException) -> str:
    """Returns the text of an aiohttp error, cut: its parser quotes everything that it received."""
    return str(error)[:TEXT_CHARACTERS_MAX]


def check_aiohttp_internals() -> None:
    """Raises ChangedHttpLibrary if the installed aiohttp does not call the code that this module replaces."""
    unread = [
        f"{owner.__name__}.{function} does not use {name}"
        for owner, function, name in USES
        if not _is_name_used(owner, function, name)
    ]
    if unread:
        about = f"aiohttp {aiohttp.__version__} is of another shape: {', '.join(unread)}"
        raise ChangedHttpLibrary(
            f"{about}: answers of servers would have no bound: expected the version that is pinned"
        )


def _is_name_used(owner: type, function: str, name: str) -> bool:
    code = getattr(getattr(owner, function, None), "__code__", None)
    return code is not None and name in code.co_names


class _Connector(aiohttp.TCPConnector):
    """aiohttp's connector, but _BoundedConnection reads its connections.

    It needs from aiohttp that a connector makes the protocol of a new connection by calling its `_factory`.
    """

    def __init__(self, connections: int, tls: ssl.SSLContext | bool, bounds: AnswerBounds) -> None:
        super().__init__(limit=connections, ssl=tls)
        self._factory = functools.partial(_BoundedConnection, loop=self._loop, bounds=bounds)  # type: ignore[assignment]


@dataclass(slots=True)
class _Exchange:
    """One request, and the counts of what was received since it began. body: the body of the final answer; None until
    the head of that answer was read."""

    received_bytes: int = 0
    interim_answers: int = 0
    body: aiohttp.StreamReader | None = None

    @property
    def is_over(self) -> bool:
        return self.body is not None and self.body.is_eof()

    def end_body(self, error: Exception) -> None:
        """Ends the body with an error for its reader."""
        if self.body is not None and not self.body.is_eof() and self.body.exception() is None:
            self.body.set_exception(error)


class _BoundedConnection(ResponseHandler):
    """Reads one connection. Aborts it if the server sends data without a request, or too many bytes outside a body.

    It relies on three calls of aiohttp: `set_response_params` when a request begins, `data_received` with all received
    data, and `feed_data` with each head that aiohttp reads, also of interim answers.
    """

    def __init__(self, loop: AbstractEventLoop, bounds: AnswerBounds) -> None:
        super().__init__(loop)
        self.bounds = bounds
        self.exchange = _Exchange(body=aiohttp.EMPTY_PAYLOAD)

    def set_response_params(self, **params: Any) -> None:
        self.exchange = _Exchange()
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        """Reads received bytes. aiohttp calls it with no bytes to read bytes that it had kept back."""
        exchange = self.exchange
        if data and exchange.is_over:
            return self._abort_with_error("bytes that no request asked for")
        exchange.received_bytes += len(data)
        super().data_received(data)
        if (error := self.exception()) is not None:
            # When framing breaks, aiohttp tells a caller that waits for a head, but not one that reads a body.
            exchange.end_body(aiohttp.ClientPayloadError(error_text(error)))
        elif self._framing_bytes() > self.bounds.framing_bytes:
            self._abort_with_error(
                f"more than {self.bounds.framing_bytes} bytes of headers and framing outside the body of an answer"
            )
        return None

    def _framing_bytes(self) -> int:
        """Returns the exchange's bytes outside the body, minus the framing bytes that the body's size allows."""
        exchange = self.exchange
        body_bytes = exchange.body.total_bytes if exchange.body is not None else 0
        return exchange.received_bytes - body_bytes * (1 + self.bounds.framing_ratio)

    def feed_data(self, data: tuple[RawResponseMessage, aiohttp.StreamReader], size: int = 0) -> None:
        """Passes on the head of an answer and the body that will follow it, or refuses an answer beyond the bounds."""
        message, body = data
        exchange = self.exchange
        if isinstance(self.exception(), ServerMisbehaved):
            return None  # aiohttp had read more heads before it passed on the first one.
        if exchange.body is not None:
            return self._abort_with_error("an answer that no request asked for")
        if 100 <= message.code < 200 and message.code != HTTPStatus.SWITCHING_PROTOCOLS:
            exchange.interim_answers += 1
            if exchange.interim_answers > self.bounds.interim_answers_max:
                return self._abort_with_error(
                    f"more than {self.bounds.interim_answers_max} interim answers to one request"
                )
        else:
            exchange.body = body
        return super().feed_data(data, size)

    def close(self) -> None:
        self._end_body("the connection was closed")
        super().close()

    def abort(self) -> None:
        self._end_body("the connection was closed")
        super().abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._end_body("the connection was lost")

    def _end_body(self, why: str) -> None:
        """Ends the body with an error. Otherwise a later read waits, or fails with a RuntimeError that names no
        connection."""
        self.exchange.end_body(aiohttp.ClientPayloadError(why))

    def _abort_with_error(self, what: str) -> None:
        """Aborts the connection. An answer that was already complete is still given to its reader."""
        error = ServerMisbehaved(f"the server sent {what}")
        self.exchange.end_body(error)
        self.abort()
        self.set_exception(error)  # Set it after abort, because abort clears the exception.
