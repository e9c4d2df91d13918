"""Sends HTTP requests to one API server and reads streams. Turns every failure into an exception with a reason."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import Final, Protocol
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from spillway.clusters.credentials import BadCredentials, Credentials, Session
from spillway.clusters.errors import ClusterUnreachable, TooLarge, WriteHeldBack
from spillway.clusters.settings import ClusterApiSettings
from spillway.http_client import ServerMisbehaved, content_encoding, error_text
from spillway.kubernetes.objects import JSON


@dataclass(frozen=True, slots=True)
class Response:
    """An answer of the server. date: the header Date; empty if there is none."""

    status: int
    body: bytes
    date: str = ""


class TransportStatus(Exception):
    """Raised when the answer to a stream request has another status than 200."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP status {status}: {body[:500].decode(errors='replace')}")
        self.status = status
        self.body = body


MayWrite = Callable[[], bool]


def always_may_write() -> bool:
    return True


class Transport(Protocol):
    """HTTP to one API server. Raises ClusterUnreachable without an answer; an answer may have any status.

    may_write: called directly before a request that changes something is sent. Between a decision and its request a
    process may be frozen, for example while it waits for a connection. Another process may have the turn by then. If
    may_write returns False, nothing is sent, and WriteHeldBack is raised.
    """

    may_write: MayWrite

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Response: ...

    def stream(self, path: str, params: Mapping[str, str], accept: str = JSON) -> AsyncGenerator[bytes, None]:
        """Yields raw chunks that may end anywhere. The first chunk is empty and shows that the stream is open. Raises
        TransportStatus if the server refuses."""
        ...

    async def close(self) -> None: ...


class HttpTransport:
    """A Transport over aiohttp, with one pool of connections."""

    def __init__(self, credentials: Credentials, name: str, settings: ClusterApiSettings) -> None:
        self._session = Session(
            credentials, settings.connect_timeout_seconds, settings.connections_max, settings.answer_bounds
        )
        self._name = name
        self._settings = settings
        self._own_turns = asyncio.Semaphore(settings.large_bodies_of_one_cluster)
        self.may_write: MayWrite = always_may_write

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Response:
        headers = {"Accept": accept} if body is None else {"Accept": accept, "Content-Type": content_type}
        request_body = (
            None if body is None else _Body(body, self.may_write if may_change(method, params) else always_may_write)
        )
        try:
            with self._translate_errors(f"{method} {path}"):
                async with self._session.send_request(method, path, params, headers, request_body) as answer:
                    self._check_uncompressed(answer)
                    return Response(answer.status, await self._bounded_body(answer), answer.headers.get("Date", ""))
        except ClusterUnreachable:
            if request_body is not None and request_body.is_held_back:
                raise WriteHeldBack from None
            raise

    async def stream(self, path: str, params: Mapping[str, str], accept: str = JSON) -> AsyncGenerator[bytes, None]:
        with self._translate_errors(f"watch {path}"):
            async with self._session.send_request("GET", path, params, {"Accept": accept}) as answer:
                self._check_uncompressed(answer)
                if answer.status != 200:
                    raise TransportStatus(answer.status, await self._bounded_body(answer))
                yield b""
                async for chunk in answer.content.iter_any():
                    yield chunk

    async def close(self) -> None:
        await self._session.close()

    def _check_uncompressed(self, answer: aiohttp.ClientResponse) -> None:
        """Raises ClusterUnreachable for a compressed answer: we ask for `identity` and unpack nothing."""
        if encoding := content_encoding(answer):
            detail = f"an answer in the encoding {encoding!r}, and identity was asked for"
            raise ClusterUnreachable(self._name, "garbage", detail)

    async def _bounded_body(self, answer: aiohttp.ClientResponse) -> bytes:
        settings, is_good = self._settings, 200 <= answer.status < 300
        most = settings.response_bytes_max if is_good else settings.refusal_bytes_max
        if (answer.content_length or 0) > most:
            raise TooLarge(self._name, "garbage", f"an answer of more than {most} bytes")
        body, has_turn = bytearray(), False
        async with AsyncExitStack() as turn:
            async for chunk in answer.content.iter_any():
                body += chunk
                if len(body) > most:
                    raise TooLarge(self._name, "garbage", f"an answer of more than {most} bytes")
                if is_good and not has_turn and len(body) > settings.large_body_bytes:
                    await turn.enter_async_context(self._own_turns)
                    await turn.enter_async_context(_large_body_semaphore(settings.large_bodies_at_once))
                    has_turn = True
            return bytes(body) if is_good else _hide_token(answer, bytes(body))

    @contextmanager
    def _translate_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except BadCredentials as error:
            raise ClusterUnreachable(self._name, "credential", str(error)) from error
        except TimeoutError as error:
            raise ClusterUnreachable(self._name, "timeout", f"{what}: {error}") from error
        except ServerMisbehaved as error:
            raise ClusterUnreachable(self._name, "garbage", f"{what}: {error}") from error
        except aiohttp.ClientHttpProxyError as error:
            # Do not quote the proxy: its text may repeat our request, with our password.
            text = f"{what}: the proxy of proxy-url answered with status {error.status}"
            raise ClusterUnreachable(self._name, "connection", text) from None
        except (aiohttp.ClientError, OSError) as error:
            raise ClusterUnreachable(self._name, "connection", f"{what}: {error_text(error)}") from error


class _Body(aiohttp.BytesPayload):
    """The body of a request. It calls may_write once aiohttp has a connection, and then writes at once.

    aiohttp has sent nothing of the request before that: it sends the headers with the first bytes of the body.
    """

    def __init__(self, body: bytes, may_write: MayWrite) -> None:
        super().__init__(body)
        self._may_write = may_write
        self.is_held_back = False

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        if not self._may_write():
            self.is_held_back = True
            raise WriteHeldBack
        await super().write_with_length(writer, content_length)


def may_change(method: str, params: Mapping[str, str]) -> bool:
    """Returns whether a request may change something in the cluster."""
    return method != "GET" and params.get("dryRun") != "All"


_TURNS: Final = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]()
"""The semaphore that limits the large answers of all clusters, by event loop. A process has one loop."""


def _large_body_semaphore(most: int) -> asyncio.Semaphore:
    return _TURNS.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(most))


def _hide_token(answer: aiohttp.ClientResponse, body: bytes) -> bytes:
    """Returns the body with our token hidden, because error texts and records quote it. A proxy's error page may
    repeat the whole request."""
    for header in ("Authorization", "Proxy-Authorization"):
        secret = answer.request_info.headers.get(header, "").rpartition(" ")[2].encode()
        body = body.replace(secret, b"(hidden)") if secret else body
    return body
