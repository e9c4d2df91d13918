"""What an API server that means harm may answer: that cluster is unreachable, and nothing else suffers from it."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from spillway.clusters.api import ClusterApi, ClusterApiSettings, ClusterUnreachable, connect
from spillway.clusters.credentials import Endpoint
from spillway.kubernetes.resource_versions import version_number

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
