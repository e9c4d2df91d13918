"""Sends the planner's server HTTP/2 frames that are cut, repeated or wrong. After each input a real call must work."""

import asyncio
from random import Random
from typing import Final

from spillway.api import ListBrakesRequest, RequestError
from spillway.rpc.calls import PLANNER
from spillway.rpc.client import PlannerClient
from spillway_fuzz.calls import CALL_SECONDS, SERVED, Unforeseen
from spillway_fuzz.mutation import mutated_bytes, random_bytes
from spillway_fuzz.target import Input, Target

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, HEADERS, DATA, CONTINUATION, PING, RST_STREAM = 4, 1, 0, 9, 6, 3
END_HEADERS, END_STREAM = 4, 1
READ_SECONDS: Final = 0.01


def targets() -> list[Target]:
    return [Target("HTTP/2 frames", _mutated_frames, _send_frames, share=1, close=SERVED.close)]


def _http2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _hpack_literal(name: str, value: str) -> bytes:
    """Returns a header in HPACK's literal form, without tables or Huffman codes."""
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def _call_frames(path: str, message: bytes, stream: int) -> list[bytes]:
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    block = b"".join(_hpack_literal(name, value) for name, value in headers.items())
    body = b"\x00" + len(message).to_bytes(4, "big") + message
    return [_http2_frame(HEADERS, END_HEADERS, stream, block), _http2_frame(DATA, END_STREAM, stream, body)]


def _mutated_frames(chance: Random) -> Input:
    call = chance.choice(list(PLANNER.calls.values()))
    frames = [_http2_frame(SETTINGS, 0, 0, b""), *_call_frames(call.path, random_bytes(chance, 60), 1)]
    if chance.random() < 0.3:
        frames += _call_frames(call.path, b"", 3)
    if chance.random() < 0.3:
        frames.insert(
            chance.randrange(len(frames)), _http2_frame(chance.randrange(12), chance.randrange(256), 1, b"\x00" * 8)
        )
    if chance.random() < 0.2:
        frames += [_http2_frame(CONTINUATION, 0, 1, b"\x00\x01a\x01b")] * chance.choice((1, 200))
    if chance.random() < 0.1:
        frames += [_http2_frame(RST_STREAM, 0, 1, bytes(4))] * chance.choice((1, 200))
    sent_bytes = b"".join(frames)
    if chance.random() < 0.8:
        sent_bytes = mutated_bytes(sent_bytes, chance)
    return sent_bytes if chance.random() < 0.05 else PREFACE + sent_bytes


def _send_frames(sent_bytes: bytes) -> bool:
    """Sends the frames, then makes a real call. Returns whether the server answered more than its settings."""
    said = SERVED.run_coroutine(_exchange_bytes(sent_bytes))
    SERVED.assert_alive()
    SERVED.run_coroutine(_make_client_call())
    return len(said) > 60


async def _make_client_call() -> None:
    """Makes a real call. Repeats it if the server has just restarted and cut the call off."""
    host, port = SERVED.planner_address()
    async with PlannerClient([f"{host}:{port}"], timeout_seconds=CALL_SECONDS, retry_seconds=CALL_SECONDS) as client:
        try:
            await client.list_brakes(ListBrakesRequest())
        except RequestError as error:
            raise Unforeseen(f"afterwards: {error.code}: {error.text}") from error


async def _open_connection() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connects to the server. Tries again, because an earlier input may have ended the server for a moment."""
    async with asyncio.timeout(CALL_SECONDS):
        while True:
            try:
                return await asyncio.open_connection(*SERVED.planner_address())
            except ConnectionRefusedError:
                await asyncio.sleep(READ_SECONDS)


async def _exchange_bytes(sent_bytes: bytes) -> bytes:
    """Sends the bytes and returns the server's bytes until it closes the connection or sends nothing for a while."""
    reader, writer = await _open_connection()
    said = b""
    try:
        writer.write(sent_bytes)
        while True:
            async with asyncio.timeout(READ_SECONDS):
                chunk = await reader.read(65_536)
            if not chunk:
                break
            said += chunk
    except (TimeoutError, ConnectionError):
        pass
    finally:
        writer.transport.abort()
    return said
