"""Measures the cost of our gRPC front for a call over TLS, and calls during a flood of bad calls from strangers.

Bad calls have paths that are no text, unknown tokens, or no client certificate although one is required. Our server,
grpcio's own server and the strangers are a process each.
"""

import argparse
import asyncio
import hashlib
import json
import ssl
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from spillway import api
from spillway.rpc.client import PlannerClient
from spillway.rpc.security import RpcSettings
from spillway.rpc.server import RpcServer
from spillway_local.kafka_security import Authority
from spillway_local.member_credentials import ensure_certificate

from .calls import time_calls_at_rate, time_calls_one_by_one

BAD_PER_SECOND = 100.0
GOOD_PER_SECOND = 20.0
TOKEN = "bench"
CALLER = "bench"
BAD_PATHS, BAD_TOKENS, NO_CERTIFICATE = "paths", "tokens", "no-certificate"
FIGURE_BY_FLOOD = {
    BAD_PATHS: "flooded_call_p99_ms",
    BAD_TOKENS: "flooded_by_tokens_p99_ms",
    NO_CERTIFICATE: "flooded_mutual_tls_p99_ms",
}
PATH = "/spillway.v1.Planner/ListClusters"
_MS = 1000.0


class Nothing:
    """A planner without clusters, whose answers cost nothing."""

    def active_instance_address(self) -> str:
        return ""

    async def list_clusters(self, _: api.ListClustersRequest) -> api.ListClustersReply:
        return api.ListClustersReply((), False)


async def serve_front(folder: Path, client_ca: str = "") -> None:
    """Runs our gRPC server over TLS. Callers have tokens or, with client_ca (a file), client certificates."""
    certificate, key = str(folder / "tls.pem"), str(folder / "tls.key")
    callers = str(folder / ("callers-mutual.json" if client_ca else "callers.json"))
    settings = RpcSettings(port=0, tls_certificate=certificate, tls_key=key, callers=callers, client_ca=client_ca)
    async with RpcServer(Nothing(), settings) as server:  # type: ignore[arg-type]
        print(server.address.rpartition(":")[2], flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def serve_bare_grpc(folder: Path) -> None:
    """Runs grpcio's own server, which gives the same answer to every caller."""

    async def answer_nothing(_: bytes, __: object) -> bytes:
        return b""

    server = aio.server()
    handlers = {PATH.rpartition("/")[2]: grpc.unary_unary_rpc_method_handler(answer_nothing)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("spillway.v1.Planner", handlers),))
    pair = ((folder / "tls.key").read_bytes(), (folder / "tls.pem").read_bytes())
    print(server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials((pair,))), flush=True)
    await server.start()
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(None)


def _bad_call_bytes(flood: str) -> bytes:
    """The bytes of a connection with one call that the server refuses."""

    def http2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload

    path = PATH.encode() if flood == BAD_TOKENS else b"/\xff\xfe"
    fields = [(b":method", b"POST"), (b":scheme", b"https"), (b":path", path), (b":authority", b"x")]
    fields += [(b"te", b"trailers"), (b"content-type", b"application/grpc"), (b"authorization", b"Bearer guessed")]
    block = b"".join(b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in fields)
    begins = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2_frame(4, 0, 0, b"")
    return begins + http2_frame(1, 4, 1, block) + http2_frame(0, 1, 1, bytes(5))


async def flood_server(folder: Path, port: int, flood: str) -> None:
    """Makes bad calls until stdin ends, and then prints the number of its connections. flood: the kind of bad call."""
    tls = ssl.create_default_context(cafile=str(folder / "tls.pem"))
    tls.set_alpn_protocols(["h2"])
    bad, made, running = _bad_call_bytes(flood), 0, set[asyncio.Task[None]]()

    async def send_bad_call() -> None:
        nonlocal made
        with suppress(OSError, ssl.SSLError, TimeoutError):
            async with asyncio.timeout(10):
                _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname="localhost")
                writer.write(bad)
                await writer.drain()
                made += 1
                await asyncio.sleep(0.05)
                writer.transport.abort()

    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    due = asyncio.get_running_loop().time()
    while not ended.done():
        running.add(task := asyncio.create_task(send_bad_call()))
        task.add_done_callback(running.discard)
        due += 1 / BAD_PER_SECOND
        await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
    await asyncio.gather(*running)
    print(made, flush=True)


@contextmanager
def run_process(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "spillway_bench.strangers", *arguments]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.communicate(timeout=30)


def _read_first_line(child: "subprocess.Popen[str]") -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def _p99_ms(seconds: list[float]) -> float:
    return _MS * sorted(seconds)[max(0, round(0.99 * len(seconds)) - 1)]


async def measure_calls_p99_ms(folder: Path, port: int, count: int, who: Mapping[str, Any]) -> float:
    """Returns the 99th percentile of calls in ms, each on a connection of its own. A failed call ends it."""
    asked = {"ca": str(folder / "tls.pem"), "retry_seconds": 0.0, **who}

    async def call_planner(_: int) -> None:
        async with PlannerClient([f"localhost:{port}"], **asked) as client:
            await client.list_clusters(api.ListClustersRequest())

    return _p99_ms(await time_calls_at_rate(GOOD_PER_SECOND, count, call_planner))


async def measure_call_p50_ms(folder: Path, port: int, count: int) -> float:
    """Returns the median of calls in ms, one after another on one connection."""
    credentials = grpc.ssl_channel_credentials((folder / "tls.pem").read_bytes())
    async with aio.secure_channel(f"localhost:{port}", credentials) as channel:
        ask: Callable[..., Awaitable[Any]] = channel.unary_unary(PATH)
        metadata = (("authorization", f"Bearer {TOKEN}"),)
        await time_calls_one_by_one(50, lambda _: ask(b"", metadata=metadata))
        return _MS * statistics.median(await time_calls_one_by_one(count, lambda _: ask(b"", metadata=metadata)))


def _print_figure(name: str, value: float, baseline: float) -> None:
    print(json.dumps({"name": name, "value": value, "baseline": baseline, "floor": None}), flush=True)


async def measure_front(folder: Path, rounds: int) -> None:
    ensure_certificate(folder / "tls.pem", folder / "tls.key", "localhost")
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    caller = {"name": CALLER, "verbs": ["*"], "requests_per_second": 1e6}
    (folder / "callers.json").write_text(json.dumps({"callers": [{**caller, "token_sha256": digest}]}))
    (folder / "callers-mutual.json").write_text(json.dumps({"callers": [caller]}))
    authority = Authority(folder / "clients")
    identity = tuple(map(str, authority.issue_certificate(CALLER)))
    with run_process("--serve", str(folder)) as ours, run_process("--bare", str(folder)) as bare:
        port, bare_port = int(_read_first_line(ours)), int(_read_first_line(bare))
        taken = [
            (await measure_call_p50_ms(folder, port, 100), await measure_call_p50_ms(folder, bare_port, 100))
            for _ in range(rounds)
        ]
        _print_figure("front_call_p50_ms", *(statistics.median(column) for column in zip(*taken, strict=True)))
        for flood in (BAD_PATHS, BAD_TOKENS):
            await _measure_under_flood(flood, folder, port, 30 * rounds, {"token": TOKEN})
    with run_process("--serve", str(folder), "--client-ca", str(authority.certificate)) as mutual:
        await _measure_under_flood(
            NO_CERTIFICATE, folder, int(_read_first_line(mutual)), 30 * rounds, {"identity": identity}
        )


async def _measure_under_flood(flood: str, folder: Path, port: int, count: int, who: Mapping[str, Any]) -> None:
    quiet = await measure_calls_p99_ms(folder, port, count, who)
    with run_process("--crowd", str(folder), str(port), flood) as strangers:
        flooded = await measure_calls_p99_ms(folder, port, count, who)
        made = int(strangers.communicate(timeout=30)[0])
    seconds = count / GOOD_PER_SECOND
    if made < BAD_PER_SECOND * seconds / 2:
        raise RuntimeError(f"the crowd made {made} connections in {seconds:.0f} s: too few to say anything")
    _print_figure(FIGURE_BY_FLOOD[flood], flooded, quiet)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    for kind, count in (("--serve", 1), ("--bare", 1), ("--crowd", 3)):
        parser.add_argument(kind, nargs=count)
    parser.add_argument("--client-ca", default="")
    asked = parser.parse_args()
    if asked.serve:
        asyncio.run(serve_front(Path(asked.serve[0]), asked.client_ca))
    elif asked.bare:
        asyncio.run(serve_bare_grpc(Path(asked.bare[0])))
    elif asked.crowd:
        asyncio.run(flood_server(Path(asked.crowd[0]), int(asked.crowd[1]), asked.crowd[2]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(measure_front(Path(folder), 4 if asked.quick else 20))


if __name__ == "__main__":
    main()
