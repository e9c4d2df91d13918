"""What somebody without a credential can do to a gRPC server of ours, over real connections: nothing to others."""

import asyncio
import datetime as dt
import hashlib
import json
import logging
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from spillway import api, metrics
from spillway.api import RequestError
from spillway.rpc import call_server, front
from spillway.rpc.calls import PLANNER, message_bytes
from spillway.rpc.client import ClientTimeouts, PlannerClient
from spillway.rpc.connections import (
    ADDRESS,
    ALL,
    CALLER,
    STRANGERS,
    ConnectionCounts,
    ConnectionVerdict,
    network_of_host,
)
from spillway.rpc.security import RpcSettings
from spillway.rpc.server import RpcServer

SECONDS = 60.0
"""Until which every condition of these tests comes true, however busy the machine is."""
TOKEN = "secret"
ANOTHER_TOKEN = "another"
PATH = b"/spillway.v1.Planner/ListClusters"
CHECK = b"/grpc.health.v1.Health/Check"
REPLY = api.ListClustersReply((), False)
PLACEMENT = api.PlacementReply("shop", "web", 3, 1, 1, 0, "", (), (), (), False, False, False)


class FakePlanner:
    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.held: asyncio.Event | None = None
        self.placement = PLACEMENT

    async def list_clusters(self, request: api.ListClustersRequest) -> api.ListClustersReply:
        self.asked.append(request)
        return REPLY

    async def scale(self, request: api.ScaleRequest) -> api.PlacementReply:
        """The first one never ends."""
        self.asked.append(request)
        if self.held is not None and not self.held.is_set():
            self.held.set()
            await asyncio.Event().wait()
        return self.placement

    def active_instance_address(self) -> str:
        return ""


@dataclass
class Door:
    """A server, and how to come to it: with a credential by client(), without one by stranger()."""

    server: RpcServer
    planner: FakePlanner
    options: dict[str, Any]
    tls: ssl.SSLContext | None

    def make_client(self, **options: Any) -> PlannerClient:
        given = {"retry_seconds": 0.0, "timeout_seconds": SECONDS, **self.options, **options}
        made = PlannerClient([self.endpoint], **given)
        made.patience = ClientTimeouts(SECONDS, SECONDS, SECONDS)
        return made

    @property
    def endpoint(self) -> str:
        return f"localhost:{self.server.address.rpartition(':')[2]}"

    async def open_plain_connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", int(self.server.address.rpartition(":")[2]))

    async def open_stranger_connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Opens a connection, with TLS where the server has it, and sends nothing."""
        host, port = self.endpoint.split(":")
        return await asyncio.open_connection(host, int(port), ssl=self.tls, family=socket.AF_INET)


# ── Frames ──────────────────────────────────────────────────────────────────────────────────────────────────────────

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 4, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4
NO_WINDOW = b"\x00\x04" + bytes(4)
"""The setting by which a client takes no byte of any answer."""


def http2_frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def header_block(path: bytes, *more: tuple[bytes, bytes]) -> bytes:
    """A block without tables or Huffman codes."""
    fields = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"x"))
    fields += ((b"te", b"trailers"), (b"content-type", b"application/grpc"), *more)
    return b"".join(b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in fields)


def http2_greeting(settings: bytes = b"") -> bytes:
    return PREFACE + http2_frame(SETTINGS, 0, 0, settings)


def frames_of_call(path: bytes, *more: tuple[bytes, bytes], stream: int = 1) -> bytes:
    """With an empty message."""
    return http2_frame(HEADERS, END_HEADERS, stream, header_block(path, *more)) + http2_frame(
        DATA, END_STREAM, stream, bytes(5)
    )


async def wait_until_answered(reader: asyncio.StreamReader, stream: int = 1) -> None:
    """Until headers of an answer to that call have come."""
    async with asyncio.timeout(SECONDS):
        while True:
            head = await reader.readexactly(9)
            await reader.readexactly(int.from_bytes(head[:3], "big"))
            if head[3] == HEADERS and int.from_bytes(head[5:], "big") == stream:
                return


async def wait_until_closed(reader: asyncio.StreamReader) -> None:
    """Until the other side has closed the connection."""
    with suppress(ConnectionError):
        async with asyncio.timeout(SECONDS):
            while await reader.read(65536):
                pass


# ── Servers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _write_certificate(folder: Path, name: str, issuer: tuple[Any, Any] | None = None) -> tuple[Any, Any]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
        .sign(issuer[1] if issuer else key, hashes.SHA256())
    )
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    pem = serialization.PrivateFormat.PKCS8
    (folder / f"{name}.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, pem, serialization.NoEncryption())
    )
    return certificate, key


def _write_certificates(folder: Path) -> ssl.SSLContext:
    """Writes those of an authority, a server and the caller alice; returns the context of a stranger, who has none."""
    authority = _write_certificate(folder, "authority")
    for name in ("server", "alice"):
        _write_certificate(folder, name, authority)
    tls = ssl.create_default_context(cafile=str(folder / "authority.pem"))
    tls.set_alpn_protocols(["h2"])
    return tls


def _write_callers_file(folder: Path, **limits: int) -> str:
    """limits: of the caller with TOKEN."""
    file = folder / "callers.json"
    digest, another = (hashlib.sha256(token.encode()).hexdigest() for token in (TOKEN, ANOTHER_TOKEN))
    entries: list[dict[str, object]] = [
        {"name": "good", "token_sha256": digest, "verbs": ["*"], **limits},
        {"name": "another", "token_sha256": another, "verbs": ["*"]},
        {"name": "alice", "verbs": ["*"]},
    ]
    file.write_text(json.dumps({"callers": entries}))
    return str(file)


@asynccontextmanager
async def serve_planner(kind: str, folder: Path, **settings: Any) -> AsyncIterator[Door]:
    """kind: open, token, tls (and tokens), mtls."""
    found: dict[str, Any] = {"port": 0, "stop_seconds": 1.0, **settings}
    options: dict[str, Any] = {}
    tls = None
    if kind != "open":
        found["callers"] = _write_callers_file(folder)
    if kind in ("token", "tls"):
        options["token"] = TOKEN
    if kind in ("tls", "mtls"):
        tls = _write_certificates(folder)
        found |= {"tls_certificate": str(folder / "server.pem"), "tls_key": str(folder / "server.key")}
        options["ca"] = str(folder / "authority.pem")
    if kind == "mtls":
        found["client_ca"] = options["ca"]
        options["identity"] = (str(folder / "alice.pem"), str(folder / "alice.key"))
    planner = FakePlanner()
    async with RpcServer(planner, RpcSettings(**found)) as server:  # type: ignore[arg-type]
        yield Door(server, planner, options, tls)


KINDS = ("open", "token", "tls", "mtls")
SERVE = """
import asyncio, json, sys
from spillway.rpc.security import RpcSettings
from spillway.rpc.server import RpcServer

class Nothing:
    def active_instance_address(self):
        return ""

async def serve():
    async with RpcServer(Nothing(), RpcSettings(**json.loads(sys.argv[1]))) as server:
        print(server.address.rpartition(":")[2], flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(serve())
"""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def ask_for_clusters(client: PlannerClient) -> None:
    assert await client.list_clusters(api.ListClustersRequest()) == REPLY


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.02)


def connection_count(whose: str) -> float:
    return float(metrics.CONNECTIONS.labels(whose)._value.get())


def refused_connection_count(reason: str) -> float:
    return float(metrics.CONNECTIONS_REFUSED.labels(reason)._value.get())


def reopened_server_count(lines: list[Any]) -> int:
    return sum("a new server is opened" in line["event"] for line in lines)


# ── Paths ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_paths_that_are_no_text_cost_nobody_an_answer(kind: str, tmp_path: Path) -> None:
    """Two crowds send them for as long as good callers call, each over a connection of its own; none is tried twice."""
    sent, done = 0, asyncio.Event()

    async def flood(door: Door) -> None:
        nonlocal sent
        while not done.is_set():
            with suppress(OSError, ssl.SSLError):
                _, writer = await door.open_stranger_connection()
                writer.write(http2_greeting() + frames_of_call(b"/\xff\xfe"))
                await writer.drain()
                sent += 1
                await asyncio.sleep(0.01)
                writer.transport.abort()

    with structlog.testing.capture_logs() as lines:
        async with serve_planner(kind, tmp_path, stranger_seconds=600.0) as door:
            crowd = [asyncio.create_task(flood(door)) for _ in range(2)]
            good = 0
            while sent < 60 or good < 20:
                async with door.make_client() as client:
                    await ask_for_clusters(client)
                good += 1
            done.set()
            await asyncio.gather(*crowd)
    assert reopened_server_count(lines) == 0


async def test_any_path_that_is_no_method_is_answered(tmp_path: Path) -> None:
    async with serve_planner("open", tmp_path) as door:
        for path in (b"/\xff\xfe", b"", b"/", b"/spillway.v1.Planner/" + b"\xc3\x28", PATH + b"/more", PATH[1:]):
            reader, writer = await door.open_stranger_connection()
            writer.write(http2_greeting() + frames_of_call(path))
            await wait_until_answered(reader)
            writer.close()
        async with aio.insecure_channel(door.server.address) as channel:
            with pytest.raises(aio.AioRpcError) as caught:
                await channel.unary_unary("/spillway.v1.Planner/NoSuch")(b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_metadata_that_are_no_text_fill_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serve_planner("token", tmp_path) as door:
        reader, writer = await door.open_stranger_connection()
        writer.write(http2_greeting() + frames_of_call(PATH, (b"x", b"\xff\xfe"), (b"authorization", b"\xff")))
        await wait_until_answered(reader)
        writer.close()
    assert not [record for record in caplog.records if "encoding" in record.getMessage()]


async def test_a_handshake_without_a_certificate_fills_no_log(tmp_path: Path) -> None:
    """gRPC's core writes to the process' own standard error, past every logger; so the server is one of its own."""
    tls = _write_certificates(tmp_path)
    certificates = {"tls_certificate": "server.pem", "tls_key": "server.key", "client_ca": "authority.pem"}
    settings = {name: str(tmp_path / file) for name, file in certificates.items()}
    pipe = asyncio.subprocess.PIPE
    serving = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVE, json.dumps({"port": 0, **settings}), stdin=pipe, stdout=pipe, stderr=pipe
    )
    assert serving.stdout is not None
    try:
        async with asyncio.timeout(SECONDS):
            port = int(await serving.stdout.readline())
            for _ in range(3):
                with suppress(OSError):
                    reader, writer = await asyncio.open_connection("localhost", port, ssl=tls, family=socket.AF_INET)
                    writer.write(http2_greeting())
                    await wait_until_closed(reader)
                    writer.close()
            _, said = await serving.communicate(b"")
    finally:
        if serving.returncode is None:
            serving.kill()
    assert (serving.returncode, said) == (0, b"")


# ── What a stranger may have ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_caller_is_asked_for_before_anything_of_a_message_is_read(tmp_path: Path) -> None:
    """A message that never comes whole: whoever may not call is told so at once."""
    async with serve_planner("token", tmp_path) as door:
        reader, writer = await door.open_stranger_connection()
        begun = http2_frame(HEADERS, END_HEADERS, 1, header_block(PATH)) + http2_frame(
            DATA, 0, 1, b"\x00" + (2**24).to_bytes(4, "big")
        )
        writer.write(http2_greeting() + begun)
        await wait_until_answered(reader)
        writer.close()


async def test_the_message_of_a_known_caller_has_a_time_to_arrive(tmp_path: Path) -> None:
    async with serve_planner("open", tmp_path, message_seconds=0.2) as door:
        reader, writer = await door.open_stranger_connection()
        writer.write(http2_greeting() + http2_frame(HEADERS, END_HEADERS, 1, header_block(PATH)))
        await wait_until_answered(reader)
        writer.close()


async def send_nothing(_: asyncio.StreamWriter) -> None:
    """Says nothing."""


async def send_half_a_preface(writer: asyncio.StreamWriter) -> None:
    writer.write(PREFACE[:10])


async def send_headers_without_end(writer: asyncio.StreamWriter) -> None:
    writer.write(http2_greeting() + http2_frame(HEADERS, 0, 1, header_block(PATH)))
    with suppress(ConnectionError):
        while not writer.is_closing():
            writer.write(http2_frame(CONTINUATION, 0, 1, b"\x00\x01a\x01b"))
            await writer.drain()
            await asyncio.sleep(0.001)


async def send_pings(writer: asyncio.StreamWriter) -> None:
    writer.write(http2_greeting())
    with suppress(ConnectionError):
        while not writer.is_closing():
            writer.write(http2_frame(PING, 0, 0, bytes(8)) * 100)
            await writer.drain()
            await asyncio.sleep(0)


async def send_streams_without_credentials(writer: asyncio.StreamWriter) -> None:
    writer.write(http2_greeting() + b"".join(frames_of_call(PATH, stream=number) for number in range(1, 5000, 2)))


async def send_streams_without_end(writer: asyncio.StreamWriter) -> None:
    block = header_block(PATH)
    writer.write(
        http2_greeting() + b"".join(http2_frame(HEADERS, END_HEADERS, number, block) for number in range(1, 5000, 2))
    )


SLOW: tuple[Callable[[asyncio.StreamWriter], Awaitable[None]], ...] = (
    send_nothing,
    send_half_a_preface,
    send_headers_without_end,
    send_pings,
    send_streams_without_credentials,
    send_streams_without_end,
)


@pytest.mark.parametrize("behave", SLOW, ids=lambda behave: behave.__name__)
async def test_a_strangers_connection_ends_and_a_known_one_stays(
    kind: str, tmp_path: Path, behave: Callable[[asyncio.StreamWriter], Awaitable[None]]
) -> None:
    kind = "token" if kind == "open" else kind
    async with (
        serve_planner(kind, tmp_path, stranger_seconds=1.0) as door,
        door.make_client(retry_seconds=SECONDS) as client,
    ):
        await ask_for_clusters(client)
        reader, writer = await (door.open_plain_connection() if kind == "mtls" else door.open_stranger_connection())
        doing = asyncio.create_task(behave(writer))
        await wait_until_closed(reader)
        writer.transport.abort()
        await ask_for_clusters(client)
        await doing
        await wait_until(lambda: (connection_count("known"), connection_count("stranger")) == (1, 0))


@pytest.mark.parametrize("path", [PATH, CHECK], ids=["a call", "health"])
async def test_calls_of_a_stranger_are_bounded(path: bytes, tmp_path: Path) -> None:
    """A call takes few bytes and much time: few of a thousand are answered before the connection closes."""
    before = refused_connection_count(STRANGERS)
    async with serve_planner("token", tmp_path, stranger_seconds=600.0) as door, door.make_client() as client:
        await ask_for_clusters(client)
        reader, writer = await door.open_stranger_connection()
        writer.write(http2_greeting() + b"".join(frames_of_call(path, stream=stream) for stream in range(1, 2001, 2)))
        await wait_until_closed(reader)
        await ask_for_clusters(client)
    assert refused_connection_count(STRANGERS) == before + 1


async def test_bytes_of_a_stranger_are_bounded(tmp_path: Path) -> None:
    before = refused_connection_count(front.BYTES)
    async with serve_planner("token", tmp_path, stranger_seconds=600.0) as door:
        reader, writer = await door.open_stranger_connection()
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(send_pings(writer), wait_until_closed(reader))
        async with door.make_client() as client:
            await ask_for_clusters(client)
    assert refused_connection_count(front.BYTES) == before + 1


async def test_a_crowd_that_stays_keeps_no_caller_out(kind: str, tmp_path: Path) -> None:
    """It is larger than what is let in of it, and goes on."""
    async with (
        serve_planner(kind, tmp_path, strangers_max=4, stranger_seconds=600.0) as door,
        door.make_client() as client,
    ):
        await ask_for_clusters(client)
        crowd = [await door.open_plain_connection() for _ in range(20)]
        await wait_until(lambda: connection_count("stranger") == 4)
        for _ in range(10):
            crowd.append(await door.open_plain_connection())
            async with door.make_client() as another:
                await ask_for_clusters(another)
        await ask_for_clusters(client)
        await wait_until_closed(crowd[0][0])
        for _, writer in crowd:
            writer.transport.abort()


async def test_a_known_connection_makes_room_for_nobody(tmp_path: Path) -> None:
    async with serve_planner("token", tmp_path, connections_max=1) as door, door.make_client() as client:
        await ask_for_clusters(client)
        await wait_until_closed((await door.open_plain_connection())[0])
        await ask_for_clusters(client)


async def test_streams_of_one_connection_are_bounded(tmp_path: Path) -> None:
    async with serve_planner("open", tmp_path, streams_max=7) as door:
        reader, writer = await door.open_stranger_connection()
        writer.write(http2_greeting())
        async with asyncio.timeout(SECONDS):
            while (head := await reader.readexactly(9))[3] != SETTINGS:
                await reader.readexactly(int.from_bytes(head[:3], "big"))
            settings = await reader.readexactly(int.from_bytes(head[:3], "big"))
        writer.close()
    assert b"\x00\x03\x00\x00\x00\x07" in [settings[place : place + 6] for place in range(0, len(settings), 6)]


# ── What a caller may have ──────────────────────────────────────────────────────────────────────────────────────────

AUTHORIZATION = (b"authorization", b"Bearer " + TOKEN.encode())
SCALE = b"/spillway.v1.Planner/Scale"
REFLECT = b"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


def add_granted_bytes(received_bytes: bytes, by_stream: dict[int, int]) -> None:
    """Adds up the bytes that a server's WINDOW_UPDATE frames allow, by stream."""
    at = 0
    while at + 9 <= len(received_bytes):
        size, kind = int.from_bytes(received_bytes[at : at + 3], "big"), received_bytes[at + 3]
        stream = int.from_bytes(received_bytes[at + 5 : at + 9], "big")
        if kind == WINDOW_UPDATE:
            by_stream[stream] = by_stream.get(stream, 0) + int.from_bytes(received_bytes[at + 9 : at + 13], "big")
        at += 9 + size


@pytest.mark.parametrize("path", [SCALE, CHECK], ids=["a method", "health"])
async def test_of_one_callers_messages_few_are_received_at_a_time(tmp_path: Path, path: bytes) -> None:
    """Each says that it has a megabyte, which never comes. The server asks for the bytes of two of them.

    Health has no caller: there the connection's counts.
    """
    bounds = {"messages_caller_max": 2, "message_seconds": SECONDS}
    async with serve_planner("token", tmp_path, **bounds) as door, door.make_client(token=ANOTHER_TOKEN) as client:
        reader, writer = await door.open_stranger_connection()
        begun = DATA, 0, b"\x00" + (2**20).to_bytes(4, "big")
        writer.write(http2_greeting() + frames_of_call(PATH, AUTHORIZATION))
        await wait_until_answered(reader)
        for stream in range(3, 23, 2):
            call = http2_frame(HEADERS, END_HEADERS, stream, header_block(path, AUTHORIZATION))
            writer.write(call + http2_frame(begun[0], begun[1], stream, begun[2]))
        by_stream: dict[int, int] = {}
        async with asyncio.timeout(SECONDS):
            received_bytes = b""
            while sum(more >= 2**20 - 2**17 for stream, more in by_stream.items() if stream) < 2:
                received_bytes += await reader.read(2**16)
                by_stream.clear()
                add_granted_bytes(received_bytes, by_stream)
            await ask_for_clusters(client)  # Another caller's message is received all the same.
            with suppress(TimeoutError):
                received_bytes += await asyncio.wait_for(reader.read(2**16), 0.2)
        by_stream.clear()
        add_granted_bytes(received_bytes, by_stream)
        assert sum(more >= 2**16 for stream, more in by_stream.items() if stream) == 2
        writer.transport.abort()


async def test_answers_that_nobody_takes_are_bounded_and_end_their_connection(tmp_path: Path) -> None:
    before = refused_connection_count(front.UNREAD)
    one = len(message_bytes(PLACEMENT, PLANNER.calls["scale"].reply_message()))
    bounds = {"unsent_bytes_caller_max": 2 * one + 1, "unread_seconds": 2.0}
    async with serve_planner("token", tmp_path, **bounds) as door, door.make_client(token=ANOTHER_TOKEN) as client:
        reader, writer = await door.open_stranger_connection()
        calls = [frames_of_call(SCALE, AUTHORIZATION, stream=stream) for stream in (1, 3, 5)]
        writer.write(http2_greeting(NO_WINDOW) + b"".join(calls))
        await wait_until_answered(reader, 5)
        assert len(door.planner.asked) == 3
        await ask_for_clusters(client)
        await wait_until_closed(reader)
        await ask_for_clusters(client)
        async with door.make_client() as same:
            await same.scale(api.ScaleRequest("shop", "web", 1))
    assert refused_connection_count(front.UNREAD) == before + 1


async def test_the_time_for_an_answer_has_a_bound_however_long_the_answer_is(tmp_path: Path) -> None:
    before = refused_connection_count(front.UNREAD)
    async with serve_planner("token", tmp_path, unread_seconds=600.0, unread_seconds_max=0.5) as door:
        reader, writer = await door.open_stranger_connection()
        writer.write(http2_greeting(NO_WINDOW) + frames_of_call(SCALE, AUTHORIZATION))
        await wait_until_closed(reader)
        writer.close()
    assert refused_connection_count(front.UNREAD) == before + 1


async def test_an_answer_beyond_the_share_of_its_caller_is_refused(tmp_path: Path) -> None:
    request = api.ScaleRequest("shop", "web", 1)
    one = len(message_bytes(PLACEMENT, PLANNER.calls["scale"].reply_message()))
    async with serve_planner("token", tmp_path, unsent_bytes_caller_max=one) as door, door.make_client() as client:
        await client.scale(request)
        door.planner.placement = replace(PLACEMENT, waiting_for="x" * one)
        for _ in range(2):
            with pytest.raises(RequestError, match=f"bytes: expected at most {one}: ask for less at once") as told:
                await client.scale(request)
            assert told.value.code == "FAILED_PRECONDITION"
        door.planner.placement = PLACEMENT
        await client.scale(request)


async def test_a_client_that_takes_nothing_off_its_connection_loses_it(tmp_path: Path) -> None:
    """It has windows without end, but does not read: what is sent waits in our process."""
    before = refused_connection_count(front.UNREAD)
    async with (
        serve_planner("token", tmp_path, unread_seconds=0.5) as door,
        door.make_client(token=ANOTHER_TOKEN) as client,
    ):
        door.planner.placement = replace(PLACEMENT, waiting_for="x" * 2**20)
        host, port = door.endpoint.split(":")
        idle = socket.create_connection((host, int(port)))
        idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wide = b"\x00\x04" + (2**31 - 1).to_bytes(4, "big")
        opened = http2_frame(WINDOW_UPDATE, 0, 0, (2**31 - 2**16).to_bytes(4, "big"))
        calls = [frames_of_call(SCALE, AUTHORIZATION, stream=stream) for stream in range(1, 41, 2)]
        idle.sendall(http2_greeting(wide) + opened + b"".join(calls))
        await wait_until(lambda: refused_connection_count(front.UNREAD) == before + 1)
        await ask_for_clusters(client)
        idle.close()


@pytest.mark.parametrize("path", [PATH, REFLECT], ids=["a method", "reflection"])
async def test_one_caller_holds_its_part_of_all_connections(tmp_path: Path, path: bytes) -> None:
    before = refused_connection_count(CALLER)
    async with serve_planner("token", tmp_path, connections_max=6, connections_caller_max=3) as door:
        held = [await door.open_stranger_connection() for _ in range(5)]
        for _, writer in held:
            writer.write(http2_greeting() + frames_of_call(path, AUTHORIZATION))
        await wait_until(lambda: refused_connection_count(CALLER) == before + 2)
        await wait_until(lambda: (connection_count("known"), connection_count("stranger")) == (3, 0))
        async with door.make_client(token=ANOTHER_TOKEN) as client:
            await ask_for_clusters(client)
        for _, writer in held:
            writer.transport.abort()


async def test_a_caller_that_may_send_more_gets_a_server_that_accepts_it(tmp_path: Path) -> None:
    """Until then gRPC itself refuses what is far too large."""
    async with serve_planner("token", tmp_path, request_bytes_max=1024, callers_check_seconds=0.05) as door:
        async with door.make_client() as client:
            with pytest.raises(api.RequestError) as refusal:
                await client.scale(api.ScaleRequest("shop", "x" * 1500, 1))
            assert "expected at most 1024" in refusal.value.text
            with pytest.raises(api.RequestError) as refusal:
                await client.scale(api.ScaleRequest("shop", "x" * 7000, 1))
            assert refusal.value.code == "RESOURCE_EXHAUSTED"
        _write_callers_file(tmp_path, request_bytes_max=8192)
        async with door.make_client(retry_seconds=SECONDS) as client:
            async with asyncio.timeout(SECONDS):
                while True:
                    with suppress(api.RequestError):
                        await client.scale(api.ScaleRequest("shop", "x" * 7000, 1))
                        break


# ── Health ──────────────────────────────────────────────────────────────────────────────────────────────────────────

WATCH = b"/grpc.health.v1.Health/Watch"


async def test_a_health_watch_that_reads_nothing_stops_nobody(tmp_path: Path) -> None:
    async with serve_planner("token", tmp_path) as door, aio.insecure_channel(door.server.address) as channel:
        reader, writer = await door.open_stranger_connection()
        writer.write(http2_greeting(NO_WINDOW) + frames_of_call(WATCH))
        await wait_until_answered(reader)
        async with asyncio.timeout(SECONDS):
            for serving in (True, False, True):
                await door.server.set_serving(serving)
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=PLANNER.name))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        writer.transport.abort()


async def test_health_watches_are_told_of_changes_and_bounded(tmp_path: Path) -> None:
    async with (
        serve_planner("open", tmp_path, health_watches_max=1) as door,
        aio.insecure_channel(door.server.address) as channel,
    ):
        stub = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=PLANNER.name))
        for serving in (False, True, False):
            await door.server.set_serving(serving)
            assert (await watch.read()).status == (1 if serving else 2)
        with pytest.raises(aio.AioRpcError) as caught:
            await stub.Watch(health_pb2.HealthCheckRequest()).read()
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        listed = await stub.List(health_pb2.HealthListRequest())
        assert set(listed.statuses) == {"", PLANNER.name}


# ── File descriptors ────────────────────────────────────────────────────────────────────────────────────────────────

CHILD = """
import asyncio, os, resource, sys
from spillway.rpc.security import RpcSettings
from spillway.rpc.server import RpcServer
from spillway import api

class Planner:
    def active_instance_address(self): return ""
    async def list_clusters(self, request): return api.ListClustersReply((), False)

def take_all():
    taken = []
    while True:
        try: taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError: return taken

async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
    settings = RpcSettings(port=0, callers=sys.argv[1], callers_check_seconds=0.05)
    async with RpcServer(Planner(), settings) as server:
        failed = asyncio.create_task(server.wait_for_failure())
        print(server.address, flush=True)
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            if line == "take": taken = take_all()
            else: [os.close(one) for one in taken]
            print("done", flush=True)
        print("failed" if failed.done() else "whole", flush=True)
asyncio.run(main())
"""


@asynccontextmanager
async def start_child_server(callers: str) -> AsyncIterator[tuple[str, Callable[[str], Awaitable[str]]]]:
    """A server in a process with 200 descriptors; by the function it is told a word, and answers with its next line."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, callers, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL
    )
    assert process.stdin
    assert process.stdout
    reader, writer = process.stdout, process.stdin

    async def read_answer() -> str:
        async with asyncio.timeout(3 * SECONDS):
            while (line := (await reader.readline()).decode().strip()).startswith("20"):
                pass  # Its log begins with a time.
            return line

    async def send_word(word: str) -> str:
        writer.write(word.encode() + b"\n")
        return await read_answer()

    try:
        yield await read_answer(), send_word
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_more_connections_than_descriptors_end_no_process(tmp_path: Path) -> None:
    async with start_child_server(_write_callers_file(tmp_path)) as (address, tell):
        host, _, port = address.rpartition(":")
        crowd = [await asyncio.open_connection(host, int(port)) for _ in range(300)]
        async with PlannerClient([address], token=TOKEN, retry_seconds=SECONDS) as client:
            await ask_for_clusters(client)
            for _, writer in crowd:
                writer.transport.abort()
            await ask_for_clusters(client)
        assert await tell("") == "whole"


async def test_a_process_without_a_descriptor_goes_on(tmp_path: Path) -> None:
    async with start_child_server(_write_callers_file(tmp_path)) as (address, tell):
        host, _, port = address.rpartition(":")
        async with PlannerClient([address], token=TOKEN, retry_seconds=SECONDS) as client:
            await ask_for_clusters(client)
            assert await tell("take") == "done"
            crowd = [await asyncio.open_connection(host, int(port)) for _ in range(20)]
            for _ in range(5):
                await ask_for_clusters(client)  # It is connected already.
            assert await tell("give") == "done"
            async with PlannerClient([address], token=TOKEN, retry_seconds=SECONDS) as another:
                await ask_for_clusters(another)
            for _, writer in crowd:
                writer.transport.abort()
        assert await tell("") == "whole"


# ── What the library ends ───────────────────────────────────────────────────────────────────────────────────────────


def break_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop that takes calls raises there, and the library ends its server, as at whatever it does not foresee."""
    handle = call_server.cygrpc._handle_rpc

    def raise_once(*_: object) -> None:
        monkeypatch.setattr(call_server.cygrpc, "_handle_rpc", handle)
        raise ValueError("what nobody foresaw")

    monkeypatch.setattr(call_server.cygrpc, "_handle_rpc", raise_once)


async def test_a_server_that_the_library_ended_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the same address, and says as before whether it is serving."""
    with structlog.testing.capture_logs() as lines:
        async with serve_planner("open", tmp_path) as door, door.make_client(retry_seconds=SECONDS) as client:
            await door.server.set_serving(True)
            for times in (1, 2):
                break_the_next_call(monkeypatch)
                await ask_for_clusters(client)
                await wait_until(lambda times=times: reopened_server_count(lines) == times)  # type: ignore[misc]
                await ask_for_clusters(client)
            async with aio.insecure_channel(door.server.address) as channel:
                health = health_pb2_grpc.HealthStub(channel)
                answer = await health.Check(health_pb2.HealthCheckRequest(service=PLANNER.name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_call_that_a_reopened_server_cuts_off_is_asked_again_with_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been done: so a repeat without the key could do it twice."""
    async with (
        serve_planner("open", tmp_path, stop_seconds=0.1) as door,
        door.make_client(retry_seconds=SECONDS) as client,
    ):
        door.planner.held = asyncio.Event()
        waiting = asyncio.ensure_future(client.scale(api.ScaleRequest("shop", "web", 1)))
        await door.planner.held.wait()
        break_the_next_call(monkeypatch)
        async with door.make_client(retry_seconds=SECONDS) as another:
            await ask_for_clusters(another)
        assert await asyncio.wait_for(waiting, SECONDS) == PLACEMENT
    first, second = (request for request in door.planner.asked if isinstance(request, api.ScaleRequest))
    assert first == second
    assert first.idempotency_key


class Filler(logging.Handler):
    """Fills what was freed just before the library says something, so that who writes there is seen."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[bytes] = []

    def emit(self, record: logging.LogRecord) -> None:
        for size in range(16, 480, 8):
            self.blocks.extend(b"\xff" * each for each in [size] * 200)


async def test_a_server_that_ended_writes_to_no_memory_that_is_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """grpcio's own loop frees what waits for a method's next call; later the process dies by SIGSEGV."""
    filler, library = Filler(), logging.getLogger("grpc")
    library.addHandler(filler)
    try:
        async with serve_planner("open", tmp_path) as door, door.make_client(retry_seconds=SECONDS) as client:
            break_the_next_call(monkeypatch)
            await ask_for_clusters(client)
            await wait_until(lambda: bool(filler.blocks))
            await ask_for_clusters(client)
    finally:
        library.removeHandler(filler)
    assert [len(block) for block in filler.blocks if block.count(0xFF) != len(block)] == []


# ── Which ones there is room for ────────────────────────────────────────────────────────────────────────────────────


NOW = 1000.0
IDLE_SECONDS = 300.0
LONG_AGO = NOW - IDLE_SECONDS


def filled_connection_counts(
    *addresses: str,
    known: tuple[int, ...] = (),
    idle: tuple[int, ...] = (),
    running: tuple[int, ...] = (),
    bounds: tuple[int, int, int] = (9, 9, 9),
) -> ConnectionCounts:
    """Connections 1, 2, … of these addresses.

    idle: known ones, without a call for IDLE_SECONDS. running: as long ago, with a call that has not ended.
    """
    made = ConnectionCounts(*bounds, idle_seconds=IDLE_SECONDS)
    for number, address in enumerate(addresses, 1):
        made.add_stranger(number, address)
    for number in idle:
        made.begin_call(number, "alice", LONG_AGO)
        made.end_call(number, LONG_AGO)
    for number in running:
        made.begin_call(number, "alice", LONG_AGO)
    for number in known:
        made.mark_known(number, LONG_AGO + 1)
    return made


ROOM = [
    pytest.param(filled_connection_counts("a", "b"), "a", ConnectionVerdict(), id="room"),
    pytest.param(
        filled_connection_counts("a", "b", "c", bounds=(9, 9, 3)),
        "d",
        ConnectionVerdict(STRANGERS, 1),
        id="the oldest stranger",
    ),
    pytest.param(
        filled_connection_counts("a", "b", "b", bounds=(9, 9, 3)),
        "c",
        ConnectionVerdict(STRANGERS, 2),
        id="the oldest of the crowd",
    ),
    pytest.param(
        filled_connection_counts("a", "b", "c", bounds=(9, 9, 2), known=(1,)),
        "d",
        ConnectionVerdict(STRANGERS, 2),
        id="no known one",
    ),
    pytest.param(
        filled_connection_counts("a", "b", bounds=(2, 9, 9)),
        "c",
        ConnectionVerdict(ALL, 1),
        id="a stranger for one more",
    ),
    pytest.param(
        filled_connection_counts("a", "b", bounds=(2, 9, 9), known=(1, 2)), "c", ConnectionVerdict(ALL), id="all known"
    ),
    pytest.param(
        filled_connection_counts("b", "a", "a", bounds=(9, 2, 9)),
        "a",
        ConnectionVerdict(ADDRESS, 2),
        id="one of the same address",
    ),
    pytest.param(
        filled_connection_counts("b", "a", "a", bounds=(9, 2, 9), known=(2, 3)),
        "a",
        ConnectionVerdict(ADDRESS),
        id="address of known",
    ),
    pytest.param(
        filled_connection_counts("a", "b", "c", bounds=(3, 9, 9), idle=(1, 2)),
        "d",
        ConnectionVerdict(ALL, 3),
        id="a stranger, not idle",
    ),
    pytest.param(
        filled_connection_counts("a", "b", "c", bounds=(3, 9, 9), known=(3,), idle=(2, 1)),
        "d",
        ConnectionVerdict(ALL, 2),
        id="the idle one whose last call is longest ago",
    ),
    pytest.param(
        filled_connection_counts("a", "b", bounds=(2, 9, 9), known=(2,), running=(1,)),
        "c",
        ConnectionVerdict(ALL),
        id="a call runs",
    ),
    pytest.param(
        filled_connection_counts("b", "a", "a", bounds=(9, 2, 9), idle=(1, 2, 3)),
        "a",
        ConnectionVerdict(ADDRESS, 2),
        id="an idle one of the same address",
    ),
]


@pytest.mark.parametrize(("connections", "address", "expected"), ROOM)
def test_room_for_one_more(connections: ConnectionCounts, address: str, expected: ConnectionVerdict) -> None:
    assert connections.verdict_on_connection(address, NOW) == expected


def test_a_caller_with_too_many_connections_loses_its_own_one_that_rests_longest() -> None:
    connections = ConnectionCounts(9, 9, 9, caller_most=2)
    for number in range(1, 6):
        connections.add_stranger(number, "a")
    calls = [(1, "bob"), (2, "alice"), (3, "alice")]
    assert [connections.begin_call(number, caller, NOW) for number, caller in calls] == [None, None, None]
    connections.end_call(1, NOW)
    connections.end_call(3, NOW)
    connections.end_call(2, NOW)
    assert connections.begin_call(4, "alice", NOW) == 3
    connections.remove_connection(3)
    assert connections.begin_call(2, "alice", NOW) is None
    assert connections.begin_call(5, "alice", NOW) == 5, "a call runs on each other connection of this caller"


def test_a_connection_that_several_callers_share_counts_for_the_first() -> None:
    connections = ConnectionCounts(9, 9, 9, caller_most=1)
    for number in (1, 2):
        connections.add_stranger(number, "a")
    assert connections.begin_call(1, "alice", NOW) is None
    assert connections.begin_call(1, "bob", NOW) is None
    assert connections.begin_call(2, "bob", NOW) is None


def test_what_is_gone_is_counted_nowhere() -> None:
    connections = filled_connection_counts("a", "a", "b", known=(2,), running=(3,))
    for number in (1, 2, 3, 3, 4):
        connections.remove_connection(number)
        connections.mark_known(number, NOW)
        connections.end_call(number, NOW)
        assert connections.begin_call(number, "alice", NOW) is None
    assert (len(connections), connections.stranger_count, connections.oldest_stranger()) == (0, 0, None)


@pytest.mark.parametrize(
    ("host", "place"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_whom_an_address_is_counted_for(host: str, place: str) -> None:
    assert network_of_host(host) == place
