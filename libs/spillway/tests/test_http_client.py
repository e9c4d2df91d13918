"""What a server may send beside its answers: HTTP is spoken by hand here, as no server that means well would."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from yarl import URL

from spillway.clusters.credentials import Credentials, Endpoint
from spillway.clusters.errors import ClusterUnreachable
from spillway.clusters.settings import ClusterApiSettings
from spillway.clusters.transport import HttpTransport
from spillway.http_client import (
    ANSWERS,
    LOG_ANSWERS,
    USES,
    AnswerBounds,
    ChangedHttpLibrary,
    ServerMisbehaved,
    _BoundedConnection,
    check_aiohttp_internals,
    open_session,
)
from spillway_local.member_credentials import ensure_certificate

PATIENCE_SECONDS = 60.0
ASKED: Final = b"\r\n\r\n"
"""The end of a request without a body."""
UNASKED: Final = b"HTTP/1.1 204 \r\n\r\n"
CHUNKED: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SMALL: Final = AnswerBounds(framing_bytes=50_000)

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[object]]
Served = Callable[..., Awaitable[str]]
Opened = Callable[..., aiohttp.ClientSession]


def http_answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def http_chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """Makes a server that says on each connection what a function says; its URL is given."""
    servers: list[asyncio.Server] = []
    talking: set[asyncio.Task[None]] = set()

    async def serve(talk: Talk, tls: ssl.SSLContext | None = None) -> str:
        async def talk_until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, asyncio.IncompleteReadError):
                await talk(reader, writer)
            writer.close()

        def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(talk_until_closed(reader, writer))
            talking.add(task)
            task.add_done_callback(talking.discard)

        servers.append(await asyncio.start_server(begin, "127.0.0.1", 0, ssl=tls))
        return f"http{'s' if tls else ''}://127.0.0.1:{servers[-1].sockets[0].getsockname()[1]}"

    yield serve
    for server in servers:
        server.close()
    for task in tuple(talking):
        task.cancel()
    await asyncio.gather(*talking, return_exceptions=True)


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    """Opens a session with some bounds."""
    sessions: list[aiohttp.ClientSession] = []

    def open_one(bounds: AnswerBounds = ANSWERS, tls: ssl.SSLContext | bool = True) -> aiohttp.ClientSession:
        sessions.append(open_session(4, aiohttp.ClientTimeout(total=PATIENCE_SECONDS), tls=tls, bounds=bounds))
        return sessions[-1]

    yield open_one
    for session in sessions:
        await session.close()


def make_tls_contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A client's and a server's."""
    certificate, key = folder / "server.crt", folder / "server.key"
    ensure_certificate(certificate, key, "server")
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(certificate, key)
    return ssl.create_default_context(cafile=str(certificate)), theirs


async def read_body_at(session: aiohttp.ClientSession, url: str) -> bytes:
    async with session.get(url) as given:
        return await given.read()


async def wait_until_cut_off(reader: asyncio.StreamReader) -> None:
    """Returns once the client has closed the connection."""
    with suppress(OSError):
        assert await reader.read() == b""


# ── What no request asked for ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("unasked", [UNASKED * 100, b"HTTP/1.1 2", b"\r\n", b"x" * 100_000], ids=lambda said: said[:12])
async def test_what_comes_on_a_connection_that_waits_closes_it(served: Served, opened: Opened, unasked: bytes) -> None:
    """Else it is kept for as long as the server talks on, and is taken for the answer to the next request."""
    closed, connections = asyncio.Event(), 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(ASKED)
        writer.write(http_answer(b"%d" % connections))
        if connections == 1:
            await has_first.wait()
            writer.write(unasked)
        await wait_until_cut_off(reader)
        closed.set()

    has_first = asyncio.Event()
    url, session = await served(talk), opened()
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await read_body_at(session, url) == b"1"
        has_first.set()
        await closed.wait()
        assert await read_body_at(session, url) == b"2"


@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "TLS"])
async def test_a_server_that_never_stops_answering_is_cut_off(
    served: Served, opened: Opened, tmp_path: Path, is_encrypted: bool
) -> None:
    sent, closed = 0, asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(ASKED)
        writer.write(http_answer(b"{}"))
        await has_answer.wait()
        try:
            while sent < 50 * 2**20:
                writer.write(UNASKED * 1_000)
                await writer.drain()
                sent += 1_000 * len(UNASKED)
        except OSError:
            closed.set()

    has_answer = asyncio.Event()
    ours, theirs = make_tls_contexts(tmp_path) if is_encrypted else (True, None)
    url, session = await served(talk, theirs), opened(tls=ours)
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await read_body_at(session, url) == b"{}"
        has_answer.set()
        await closed.wait()
    assert sent < 20 * 2**20, "what the sockets hold, and no more"


async def test_of_two_answers_at_once_the_first_is_given_and_the_connection_closed(
    served: Served, opened: Opened
) -> None:
    closed = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(ASKED)
        writer.write(http_answer(b"asked") + http_answer(b"unasked"))
        await wait_until_cut_off(reader)
        closed.set()

    url, session = await served(talk), opened()
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await read_body_at(session, url) == b"asked"
        await closed.wait()


async def test_a_server_that_talks_before_it_is_asked_is_cut_off(served: Served) -> None:
    closed = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(UNASKED)
        await wait_until_cut_off(reader)
        closed.set()

    url, loop = URL(await served(talk)), asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE_SECONDS):
        _, connection = await loop.create_connection(
            lambda: _BoundedConnection(loop, ANSWERS), "127.0.0.1", url.port or 0
        )
        await closed.wait()
        with pytest.raises(ServerMisbehaved, match="bytes that no request asked for"):
            await connection.read()


# ── What is sent beside an answer ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("count", "refused"), [(0, False), (8, False), (9, True)])
async def test_a_request_has_a_few_interim_answers(served: Served, opened: Opened, count: int, refused: bool) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(3):
            await reader.readuntil(ASKED)
            writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * count + http_answer(b"final"))
        await wait_until_cut_off(reader)

    url, session = await served(talk), opened()
    async with asyncio.timeout(PATIENCE_SECONDS):
        for _ in range(3):  # Each request has as many.
            if refused:
                with pytest.raises(ServerMisbehaved, match="more than 8 interim answers"):
                    await read_body_at(session, url)
            else:
                assert await read_body_at(session, url) == b"final"


def talk_without_end(begin: bytes, again: bytes) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(ASKED)
        writer.write(begin)
        while True:
            await writer.drain()
            await asyncio.sleep(0)  # So that what comes is read in pieces, even by who reads nothing else.
            writer.write(again)

    return talk


BESIDE: Final = "outside the body"
ENDLESS: Final = {
    "interim answers": (b"", b"HTTP/1.1 102 \r\n\r\n" * 100, "interim answers"),
    "empty lines before a head": (b"", b"\r\n" * 1_000, BESIDE),
    "chunks of a byte": (CHUNKED, http_chunk(b"a") * 1_000, BESIDE),
    "an extension of a chunk": (CHUNKED + b"5;", b"a=b;" * 1_000, BESIDE),
    "extensions of chunks": (CHUNKED, b"1;a=%b\r\nx\r\n" % (b"y" * 1_000), BESIDE),
    "zeros of a size": (CHUNKED, b"0" * 1_000, BESIDE),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n" * 10, "Too many headers"),
    "large headers": (b"HTTP/1.1 200 OK\r\n", b"a: %b\r\n" % (b"b" * 8_000), BESIDE),
    "a header": (b"HTTP/1.1 200 OK\r\na: ", b"b" * 1_000, "more than 8190 bytes"),
    "the name of a header": (b"HTTP/1.1 200 OK\r\n", b"b" * 1_000, "more than 8190 bytes"),
    "a reason": (b"HTTP/1.1 200 ", b"b" * 1_000, "more than 8190 bytes"),
    "trailers": (CHUNKED + b"0\r\n", b"a: b\r\n" * 10, "Too many headers"),
    "a trailer": (CHUNKED + b"0\r\na: ", b"b" * 1_000, "more than 8190 bytes"),
}


@pytest.mark.parametrize(("begin", "again", "words"), ENDLESS.values(), ids=ENDLESS)
async def test_what_has_no_end_ends_at_a_bound(
    served: Served, opened: Opened, begin: bytes, again: bytes, words: str
) -> None:
    """Whoever asked is told, whether it waits for a head or reads a body."""
    url, session = await served(talk_without_end(begin, again)), opened(SMALL)
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(aiohttp.ClientError, match=words):
            await read_body_at(session, url)


@pytest.mark.parametrize(
    ("bounds", "line", "refused"),
    [
        pytest.param(
            SMALL, b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"11"}}}\n', False, id="events"
        ),
        pytest.param(AnswerBounds(50_000, framing_ratio=LOG_ANSWERS.framing_ratio), b"\n", False, id="lines of a log"),
        pytest.param(SMALL, b"\n", True, id="lines of what is no log"),
    ],
)
async def test_a_body_of_small_chunks_is_as_long_as_it_likes(
    served: Served, opened: Opened, bounds: AnswerBounds, line: bytes, refused: bool
) -> None:
    """Each is sent in a chunk of its own, as API servers and kubelets do."""
    count = 40_000

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(ASKED)
        writer.write(CHUNKED)
        for _ in range(100):
            writer.write(http_chunk(line) * (count // 100))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await wait_until_cut_off(reader)

    url, session = await served(talk), opened(bounds)
    async with asyncio.timeout(PATIENCE_SECONDS):
        if refused:
            with pytest.raises(ServerMisbehaved, match=BESIDE):
                await read_body_at(session, url)
        else:
            assert await read_body_at(session, url) == line * count


async def test_a_connection_is_used_again_whatever_the_size_of_an_answer(served: Served, opened: Opened) -> None:
    """Also by a reader that is slower than the server, so that what came waits for it."""
    connections, large = 0, b"x" * 3 * 2**20

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            await reader.readuntil(ASKED)
            writer.write(http_answer(large))
            await reader.readuntil(ASKED)
            writer.write(CHUNKED + http_chunk(large) + b"0\r\n\r\n")
            await reader.readuntil(ASKED)
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    url, session = await served(talk), opened()
    async with asyncio.timeout(PATIENCE_SECONDS):
        for expected in (large, large, b"") * 3:
            async with session.get(url) as given:
                read = bytearray()
                async for part in given.content.iter_any():
                    read += part
                    await asyncio.sleep(0.001)
            assert read == expected
    assert connections == 1


# ── A body that breaks off ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_busy", [False, True], ids=["waiting for more", "busy with what came"])
async def test_who_reads_a_body_is_told_that_its_framing_breaks(served: Served, is_busy: bool) -> None:
    """aiohttp lets it wait on, or fails with what is no error of a connection."""
    is_over = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(ASKED)
        writer.write(CHUNKED + http_chunk(b"first"))
        await has_first.wait()
        writer.write(b"this is no size\r\n")
        await wait_until_cut_off(reader)
        is_over.set()

    has_first, url = asyncio.Event(), await served(talk)
    transport = HttpTransport(Credentials(lambda: Endpoint(url)), "blue", ClusterApiSettings())
    async with asyncio.timeout(PATIENCE_SECONDS), aclosing(transport.stream("/", {})) as chunks:
        assert [await anext(chunks), await anext(chunks)] == [b"", b"first"]
        has_first.set()
        if is_busy:
            await is_over.wait()
        with pytest.raises(ClusterUnreachable, match="Invalid character in chunk size") as raised:
            await anext(chunks)
    assert raised.value.reason == "connection"
    await transport.close()


@pytest.mark.parametrize("is_busy", [False, True], ids=["waiting for more", "busy with what came"])
async def test_who_reads_a_body_is_told_that_the_session_was_closed(
    served: Served, opened: Opened, is_busy: bool
) -> None:
    """As it is when a certificate is renewed while a watch is open."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(ASKED)
        writer.write(CHUNKED + http_chunk(b"first"))
        await wait_until_cut_off(reader)

    url, session = await served(talk), opened()
    async with asyncio.timeout(PATIENCE_SECONDS), session.get(url) as given:
        assert await given.content.readany() == b"first"
        reading = None if is_busy else asyncio.create_task(given.content.readany())
        await asyncio.sleep(0)
        await session.close()
        with pytest.raises(aiohttp.ClientError, match="was closed"):
            await (reading or given.content.readany())


# ── What a cluster that does so is called ───────────────────────────────────────────────────────────────────────────


async def unreachable_error(url: str, **settings: Any) -> ClusterUnreachable:
    transport = HttpTransport(Credentials(lambda: Endpoint(url)), "blue", ClusterApiSettings(**settings))
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            with pytest.raises(ClusterUnreachable) as raised:
                await transport.request("GET", "/", {})
    finally:
        await transport.close()
    return raised.value


async def test_a_cluster_that_sends_too_much_beside_an_answer_is_unreachable(served: Served) -> None:
    begin, again, _ = ENDLESS["interim answers"]
    error = await unreachable_error(await served(talk_without_end(begin, again)))
    assert error.reason == "garbage"
    assert error.detail == "GET /: the server sent more than 8 interim answers to one request"
    begin, again, _ = ENDLESS["chunks of a byte"]
    error = await unreachable_error(await served(talk_without_end(begin, again)), answer_bounds=SMALL)
    assert error.reason == "garbage"
    assert (
        error.detail
        == "GET /: the server sent more than 50000 bytes of headers and framing outside the body of an answer"
    )


async def test_of_what_is_no_http_a_little_is_quoted(served: Served) -> None:
    """aiohttp quotes all that came: half a megabyte of 100 kB."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(ASKED)
        writer.write(b"HTTP/1.1 200 OK\r\n\x01" + b"\xff" * 100_000)
        await wait_until_cut_off(reader)

    error = await unreachable_error(await served(talk))
    assert "Invalid header token" in error.detail
    assert len(error.detail) < 600


# ── aiohttp's shape ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_version_that_is_pinned_has_the_shape() -> None:
    check_aiohttp_internals()


@pytest.mark.parametrize(("owner", "function", "name"), USES, ids=[f"{one[0].__name__}.{one[1]}" for one in USES])
@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "changed"])
async def test_no_session_is_opened_where_answers_would_have_no_bound(
    owner: type, function: str, name: str, is_gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that is not there, or no longer uses the name: then what we replace would be replaced in vain."""
    if is_gone:
        monkeypatch.delattr(owner, function)
    else:
        monkeypatch.setattr(owner, function, lambda *_, **__: None)
    with pytest.raises(ChangedHttpLibrary, match=rf"aiohttp {aiohttp.__version__}.*{function} does not use {name}"):
        open_session(1, aiohttp.ClientTimeout())
