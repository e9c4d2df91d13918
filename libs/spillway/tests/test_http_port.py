"""What somebody who is not known can do to an HTTP port of ours, over real connections: nothing to others."""

import asyncio
import gc
import json
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from spillway import metrics
from spillway.rpc.accepting import TIME
from spillway.rpc.connections import ALL, STRANGERS
from spillway.running.http_port import HttpPort, PortBounds, open_http_port
from spillway_local.member_credentials import ensure_certificate
from spillway_local.ports import session_port

SECONDS = 60.0
"""Until which every condition of these tests comes true, however busy the machine is."""
LONG = 600.0
GOOD = "the good client"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Door:
    """A port at which whoever asks for /known is known, and how to come to it."""

    def __init__(self, number: int, tls: ssl.SSLContext | None) -> None:
        self.number = number
        self.tls = tls

    async def open_plain_connection(self) -> Connection:
        """A connection over which nothing was said."""
        return await asyncio.open_connection("127.0.0.1", self.number)

    async def open_greeted_connection(self) -> Connection:
        """One whose handshake is over, where there is one; tried again where that took longer than it may."""
        async with asyncio.timeout(SECONDS):
            while True:
                with suppress(OSError):
                    return await asyncio.open_connection("127.0.0.1", self.number, ssl=self.tls)

    def url(self, path: str) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.number}{path}"


@asynccontextmanager
async def serve_http_port(kind: str, folder: Path, **changes: float) -> AsyncIterator[Door]:
    """kind: plain or tls."""
    ports: list[HttpPort] = []

    async def answer_known(request: web.Request) -> web.Response:
        ports[0].mark_known(request)
        return web.Response(text=GOOD)

    async def answer_anyone(_: web.Request) -> web.Response:
        return web.Response(text="somebody")

    app = web.Application()
    app.add_routes([web.get("/known", answer_known), web.get("/anyone", answer_anyone)])
    server = client = None
    if kind == "tls":
        certificate, key = folder / "server.crt", folder / "server.key"
        ensure_certificate(certificate, key, "server")
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(certificate, key)
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    found = {"connections_max": 100, "strangers_max": 20, "stranger_seconds": LONG, "idle_seconds": LONG, **changes}
    number = session_port()
    bounds = PortBounds(**found)  # type: ignore[arg-type]
    async with open_http_port(kind, app, ("127.0.0.1", number), bounds, server, shutdown_timeout=0.1) as port:
        ports.append(port)
        yield Door(number, client)


@asynccontextmanager
async def open_client(door: Door) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Asks over one connection, which stays open."""
    patience = aiohttp.ClientTimeout(SECONDS)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1), timeout=patience) as session:

        async def ask_as_known() -> None:
            async with session.get(door.url("/known"), ssl=door.tls or False) as answer:
                assert await answer.text() == GOOD

        yield ask_as_known


async def ask_until_answered(ask: Callable[[], Awaitable[None]]) -> None:
    """Until it is answered: a first request that takes longer than a stranger may is cut off, and asked again."""
    async with asyncio.timeout(SECONDS):
        while True:
            with suppress(aiohttp.ClientError):
                return await ask()


async def open_known_connection(door: Door) -> Connection:
    """A connection over which somebody known was answered."""
    async with asyncio.timeout(SECONDS):
        while True:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                connection = await door.open_greeted_connection()
                connection[1].write(b"GET /known HTTP/1.1\r\nHost: x\r\n\r\n")
                await connection[0].readuntil(GOOD.encode())
                return connection


async def wait_until_closed(connection: Connection) -> None:
    """Until the other side has closed it."""
    with suppress(ConnectionError, ssl.SSLError):
        async with asyncio.timeout(SECONDS):
            while await connection[0].read(65536):
                pass
    connection[1].transport.abort()


def refused_connection_count(kind: str, reason: str) -> float:
    return float(metrics.HTTP_CONNECTIONS_REFUSED.labels(kind, reason)._value.get())


@pytest.fixture(params=["plain", "tls"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# ── What a stranger may have ────────────────────────────────────────────────────────────────────────────────────────


async def keep_silent(door: Door) -> Connection:
    return await door.open_plain_connection()


async def send_half_a_handshake(door: Door) -> Connection:
    """The first bytes of a ClientHello, or of a line."""
    connection = await door.open_plain_connection()
    connection[1].write(b"\x16\x03\x01\x02\x00\x01\x00" if door.tls else b"GE")
    return connection


async def keep_silent_after_handshake(door: Door) -> Connection:
    return await door.open_greeted_connection()


async def send_half_a_head(door: Door) -> Connection:
    connection = await door.open_greeted_connection()
    connection[1].write(b"GET /known HTTP/1.1\r\nHost: x\r\n")
    return connection


async def send_half_a_body(door: Door) -> Connection:
    connection = await door.open_greeted_connection()
    connection[1].write(b"GET /anyone HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx")
    return connection


async def ask_as_stranger(door: Door) -> Connection:
    connection = await door.open_greeted_connection()
    connection[1].write(b"GET /anyone HTTP/1.1\r\nHost: x\r\n\r\n")
    return connection


HELD = (
    keep_silent,
    send_half_a_handshake,
    keep_silent_after_handshake,
    send_half_a_head,
    send_half_a_body,
    ask_as_stranger,
)


@pytest.mark.parametrize("held", HELD, ids=lambda held: held.__name__)
async def test_a_crowd_that_stays_keeps_nobody_out(
    kind: str, tmp_path: Path, held: Callable[[Door], Awaitable[Connection]]
) -> None:
    """The oldest of it make room, and what is known is never closed for it."""
    async with serve_http_port(kind, tmp_path, strangers_max=4) as door, open_client(door) as ask:
        await ask()
        crowd = [await held(door) for _ in range(4)]
        for _ in range(5):
            crowd.append(await held(door))
            async with open_client(door) as another:
                await another()
        await ask()
        await wait_until_closed(crowd[0])
        for _, writer in crowd:
            writer.transport.abort()


async def test_a_burst_that_is_accepted_at_once_is_closed_down_to_its_bound(kind: str, tmp_path: Path) -> None:
    """The port has no turn of the loop while it accepts them. A closed one is closed at once, not by a collection."""
    loop = asyncio.get_running_loop()
    async with serve_http_port(kind, tmp_path) as door:
        crowd = [socket.create_connection(("127.0.0.1", door.number)) for _ in range(200)]
        gc.disable()
        try:
            for one in crowd[:180]:
                one.setblocking(False)
                with suppress(ConnectionError):
                    async with asyncio.timeout(SECONDS):
                        assert await loop.sock_recv(one, 1) == b""
        finally:
            gc.enable()
            for one in crowd:
                one.close()


async def test_what_is_closed_for_others_is_counted(kind: str, tmp_path: Path) -> None:
    before = refused_connection_count(kind, STRANGERS)
    async with serve_http_port(kind, tmp_path, strangers_max=1) as door:
        first, second = await keep_silent(door), await keep_silent(door)
        await wait_until_closed(first)
        second[1].transport.abort()
    assert refused_connection_count(kind, STRANGERS) == before + 1


@pytest.mark.parametrize("held", HELD, ids=lambda held: held.__name__)
async def test_a_strangers_connection_ends_and_a_known_one_stays(
    kind: str, tmp_path: Path, held: Callable[[Door], Awaitable[Connection]]
) -> None:
    async with serve_http_port(kind, tmp_path, stranger_seconds=2.0) as door, open_client(door) as ask:
        await ask_until_answered(ask)
        await wait_until_closed(await held(door))
        await ask()


async def test_a_head_that_comes_byte_by_byte_ends_with_its_time(kind: str, tmp_path: Path) -> None:
    before = refused_connection_count(kind, TIME)
    async with serve_http_port(kind, tmp_path, stranger_seconds=2.0) as door:
        reader, writer = await door.open_greeted_connection()
        writer.write(b"GET /known HTTP/1.1\r\nx: ")

        async def drip() -> None:
            with suppress(OSError):
                while not writer.is_closing():
                    writer.write(b"x")
                    await writer.drain()
                    await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        await wait_until_closed((reader, writer))
        await dripping
        async with open_client(door) as ask:
            await ask_until_answered(ask)
    assert refused_connection_count(kind, TIME) > before


async def test_a_known_connection_on_which_nothing_is_asked_ends(kind: str, tmp_path: Path) -> None:
    async with serve_http_port(kind, tmp_path, idle_seconds=2.0) as door:
        for after in (b"", b"GET /known HTTP/1.1\r\n"):
            connection = await open_known_connection(door)
            connection[1].write(after)
            await wait_until_closed(connection)


async def test_a_known_connection_makes_room_for_nobody(kind: str, tmp_path: Path) -> None:
    before = refused_connection_count(kind, ALL)
    async with serve_http_port(kind, tmp_path, connections_max=1) as door, open_client(door) as ask:
        await ask()
        await wait_until_closed(await door.open_plain_connection())
        await ask()
    assert refused_connection_count(kind, ALL) == before + 1


async def test_what_is_open_when_a_port_closes_is_closed(kind: str, tmp_path: Path) -> None:
    async with serve_http_port(kind, tmp_path) as door:
        crowd = [await held(door) for held in HELD]
        async with open_client(door) as ask:
            await ask()
    for connection in crowd:
        await wait_until_closed(connection)


# ── File descriptors, and the health port of a process ──────────────────────────────────────────────────────────────

CHILD = """
import asyncio, os, resource, sys
from spillway.running.process import ProcessSettings, run

resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))

def take_all():
    taken = []
    while True:
        try: taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError: return taken

async def main(process):
    process.note_opened()
    taken = []
    while not process.stopping.is_set():
        word = (await asyncio.to_thread(sys.stdin.readline)).strip()
        if word == "take": taken = take_all()
        elif word == "give": [os.close(one) for one in taken]
        else: return
        print("done", flush=True)

sys.exit(run("sample", main, ProcessSettings(instance="i", health_port=int(sys.argv[1]))))
"""


@asynccontextmanager
async def start_child_process() -> AsyncIterator[tuple[Door, asyncio.subprocess.Process]]:
    """Starts a process with 200 file descriptors and a health port."""
    pipe, number = asyncio.subprocess.PIPE, session_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, str(number), stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await read_line_having(process, '"started"')
        yield Door(number, None), process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def read_line_having(process: asyncio.subprocess.Process, having: str) -> str:
    """The next one that has this text."""
    assert process.stdout
    async with asyncio.timeout(3 * SECONDS):
        while text := (await process.stdout.readline()).decode():
            if having in text:
                return text
    raise AssertionError(f"it has ended without {having}")


async def send_word(process: asyncio.subprocess.Process, word: str) -> None:
    assert process.stdin
    process.stdin.write(f"{word}\n".encode())
    await process.stdin.drain()


async def assert_healthy(door: Door) -> None:
    patience = aiohttp.ClientTimeout(SECONDS)
    async with aiohttp.ClientSession(timeout=patience) as session, session.get(door.url("/healthz")) as answer:
        assert (answer.status, answer.headers["Connection"]) == (200, "close")


async def test_half_requests_keep_nobody_from_a_health_port() -> None:
    """Three hundred, where there may be 72, and nobody is known."""
    async with start_child_process() as (door, process):
        crowd = [await send_half_a_head(door) for _ in range(300)]
        await assert_healthy(door)
        for connection in crowd[:100]:
            await wait_until_closed(connection)
        await send_word(process, "end")
        assert await process.wait() == 0


async def test_a_process_without_a_file_descriptor_says_so_and_goes_on() -> None:
    async with start_child_process() as (door, process):
        await assert_healthy(door)
        await send_word(process, "take")
        await read_line_having(process, "done")
        crowd = [await keep_silent(door) for _ in range(20)]
        said = json.loads(await read_line_having(process, "connections were closed or refused"))
        assert (said["level"], said["port"], said["error"]) == ("warning", "health", "Too many open files")
        await send_word(process, "give")
        await read_line_having(process, "done")
        await assert_healthy(door)
        for _, writer in crowd:
            writer.transport.abort()
        await send_word(process, "end")
        assert await process.wait() == 0
