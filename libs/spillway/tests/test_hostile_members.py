"""What an API server that means harm may answer: that cluster is unreachable, and nothing else suffers from it."""

import asyncio
import gzip
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, Final, cast

import pytest
from aiohttp import web

from spillway.clusters.api import (
    CONFIG_MAPS,
    PODS,
    Change,
    ClusterApi,
    ClusterApiSettings,
    ClusterUnreachable,
    Failed,
    Response,
    connect,
)
from spillway.clusters.credentials import Endpoint
from spillway.kubernetes.resource_versions import version_number

PATIENCE_SECONDS = 20.0
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
Served = Callable[..., Awaitable[ClusterApi]]


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """Makes an API of a server that answers everything in the given way; keywords are settings."""
    closing: list[Callable[[], Awaitable[None]]] = []

    async def serve(answer: Answer, **settings: Any) -> ClusterApi:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        endpoint = Endpoint(f"http://127.0.0.1:{runner.addresses[0][1]}")
        api = connect(lambda: endpoint, "blue", ClusterApiSettings(**settings))
        closing.extend((runner.cleanup, api.close))
        return api

    yield serve
    for close in reversed(closing):
        await close()


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1", **metadata}}


def page(*items: Any, more: str = "", version: str = "10", **metadata: Any) -> bytes:
    told = {"resourceVersion": version, "continue": more, **metadata}
    return json.dumps({"metadata": told, "items": items}).encode()


def always(body: bytes) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body)

    return answer


async def first_failure(api: ClusterApi) -> ClusterUnreachable:
    """Of following the pods."""
    changes = cast(AsyncGenerator[tuple[Change, ...], None], api.follow(PODS))
    async with asyncio.timeout(PATIENCE_SECONDS), aclosing(changes) as batches:
        async for batch in batches:
            if isinstance(batch[0], Failed):
                return batch[0].error
    raise AssertionError("it never ends")


@pytest.mark.parametrize("text", ["9" * 5_000, "9" * 21, "٣", "²", "-1", "1e3", "", "x"])
async def test_a_version_that_is_no_number_within_64_bits_is_none(served: Served, text: str) -> None:
    """int() of 5,000 digits raises, which is no answer of a cluster but a bug that ends the process."""
    assert version_number(text) is None
    assert (await (await served(always(page(version=text)))).probe()).version is None


async def test_a_version_of_twenty_digits_is_a_number(served: Served) -> None:
    assert (await (await served(always(page(version=str(2**64 - 1))))).probe()).version == 2**64 - 1


@pytest.mark.parametrize("count", [-1, 2**63, 10**30])
async def test_a_count_that_no_cluster_has_is_garbage(served: Served, count: int) -> None:
    api = await served(always(page(pod("a"), more="x", remainingItemCount=count)))
    with pytest.raises(ClusterUnreachable) as raised:
        await api.probe()
    assert raised.value.reason == "garbage"


# ── What is compressed ──────────────────────────────────────────────────────────────────────────────────────────────


def compressed(encoding: str, body: bytes) -> Answer:
    """Lists as they are, and all else in the encoding."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/pods") and "watch" not in request.query:
            return web.Response(body=page())
        return web.Response(body=body, headers={"Content-Encoding": encoding})

    return answer


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "GZIP", "identity, gzip", "unheard-of"])
async def test_an_answer_that_says_it_is_compressed_is_garbage_and_is_not_unpacked(
    served: Served, encoding: str
) -> None:
    api = await served(compressed(encoding, gzip.compress(b'{"metadata":{"name":"a"}}')))
    with pytest.raises(ClusterUnreachable, match="in the encoding") as raised:
        await api.get(CONFIG_MAPS, "n", "a")
    assert raised.value.reason == "garbage"


async def test_an_answer_in_the_encoding_that_was_asked_for_is_read(served: Served) -> None:
    api = await served(compressed("identity", b'{"metadata":{"name":"a"}}'))
    assert await api.get(CONFIG_MAPS, "n", "a") == {"metadata": {"name": "a"}}


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("gzip", gzip.compress(b"\n" * 2**20)), ("identity", b"\n" * 2**20)],
    ids=["compressed", "of empty lines"],
)
async def test_a_watch_that_says_nothing_in_many_bytes_is_garbage(served: Served, encoding: str, body: bytes) -> None:
    api = await served(compressed(encoding, body))
    assert (await first_failure(api)).reason == "garbage"


class Always:
    """A transport whose watch has the next chunk at once, thousands of times: as what aiohttp holds already."""

    def __init__(self, chunk: bytes) -> None:
        self.chunk, self.given = chunk, 0

    async def request(self, *_: Any, **__: Any) -> Response:
        return Response(200, page())

    async def stream(self, *_: Any, **__: Any) -> AsyncGenerator[bytes, None]:
        while self.given < 2_000:
            self.given += 1
            yield self.chunk
        await asyncio.Event().wait()

    async def close(self) -> None: ...


EVENT: Final = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"11"}}}\n'


@pytest.mark.parametrize("chunk", [EVENT, EVENT * 1_000, EVENT[:1]], ids=["events", "many in a chunk", "a long line"])
async def test_a_watch_that_never_waits_lets_others_have_their_turn(chunk: bytes) -> None:
    transport = Always(chunk)
    largest = 0

    async def follow() -> None:
        nonlocal largest
        api = ClusterApi(transport, "blue", ClusterApiSettings(max_line_bytes=10_000))
        async for batch in api.follow(PODS):
            largest = max(largest, len(batch))

    following = asyncio.create_task(follow())
    while transport.given < 10:  # Each turn of this loop is one that the watch has left to others.
        await asyncio.sleep(0)
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following
    assert transport.given < 100
    assert largest <= ClusterApiSettings().watch_step_lines
