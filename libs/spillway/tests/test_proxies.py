"""Clusters behind the proxy that `proxy-url` of a kubeconfig names: what passes by it, and what is said when none does.

The API server speaks TLS, with a certificate of its own; the proxy tunnels to it, by HTTP's CONNECT.
"""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from spillway.clusters.api import CONFIG_MAPS, ClusterApi, ClusterApiSettings, ClusterUnreachable, make_cluster_api
from spillway.clusters.credentials import load_endpoint
from spillway_local.member_credentials import ensure_certificate

PASSWORD = "hunter2-hunter2"
TOKEN = "token-of-the-cluster"
LOGIN = f"Basic {base64.b64encode(f'me:{PASSWORD}'.encode()).decode()}"
HEAD_BYTES_MAX = 2**16


@dataclass
class Proxy:
    """Tunnels, and passes on requests without TLS, for who sends the login; says to others what it got from them.

    heads: the first line and the headers of each request that it got. target: where all tunnels lead, whatever is asked
    for; None: there.
    """

    login: str = ""
    target: tuple[str, int] | None = None
    heads: list[str] = field(default_factory=list)
    port: int = 0

    @asynccontextmanager
    async def serve_proxy(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._serve_connection, "127.0.0.1", 0, ssl=tls, limit=HEAD_BYTES_MAX)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await self._answer_request(reader, writer)
        writer.close()

    async def _answer_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        method, place, _ = head.split("\r\n")[0].split(" ")
        sent = [
            line.partition(": ")[2] for line in head.split("\r\n") if line.lower().startswith("proxy-authorization:")
        ]
        if self.login and sent != [self.login]:
            refusal = f"you sent {sent} and {head}".encode()
            start = f"HTTP/1.1 407 you sent {sent}\r\nContent-Length: {len(refusal)}\r\nConnection: close\r\n\r\n"
            writer.write(start.encode() + refusal)
            await writer.drain()
            return
        host, _, port = place.removeprefix("http://").partition("/")[0].partition(":")
        there_reader, there_writer = await asyncio.open_connection(*(self.target or (host, int(port))))
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            there_writer.write(head.replace(f"http://{host}:{port}", "", 1).encode())
        await asyncio.gather(_pass_on_bytes(reader, there_writer), _pass_on_bytes(there_reader, writer))


async def _pass_on_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(2**16):
            writer.write(chunk)
            await writer.drain()
    writer.close()


@dataclass
class Served:
    """An API server. requests: the headers of each that it got."""

    port: int
    ca: Path
    requests: list[dict[str, str]]


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    """Of 127.0.0.1 and the names `api` and `localhost`."""
    file, key = tmp_path / "server.crt", tmp_path / "server.key"
    ensure_certificate(file, key, "server", hosts=("api", "localhost"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file, key)
    return file, context


@pytest.fixture
async def server(certificate: tuple[Path, ssl.SSLContext]) -> AsyncIterator[Served]:
    async with serve_api(certificate[0], certificate[1]) as served:
        yield served


@asynccontextmanager
async def serve_api(ca: Path, tls: ssl.SSLContext | None) -> AsyncIterator[Served]:
    requests: list[dict[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        requests.append(dict(request.headers))
        return web.json_response({"metadata": {"name": "c"}})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        yield Served(runner.addresses[0][1], ca, requests)
    finally:
        await runner.cleanup()


def write_kubeconfig(folder: Path, server: str, proxy: str, **cluster: Any) -> None:
    entry = {"server": server, "proxy-url": proxy, **cluster}
    config = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": entry}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
    }
    (folder / "own-1.kubeconfig").write_text(json.dumps(config))


@asynccontextmanager
async def cluster_api_by_proxy(folder: Path, server: str, proxy: str, **cluster: Any) -> AsyncIterator[ClusterApi]:
    write_kubeconfig(folder, server, proxy, **cluster)
    api = make_cluster_api(partial(load_endpoint, folder, "own-1"), "own-1", ClusterApiSettings())
    try:
        yield api
    finally:
        await api.close()


async def get_config_map(api: ClusterApi) -> None:
    assert await api.get(CONFIG_MAPS, "n", "c") == {"metadata": {"name": "c"}}


async def test_a_cluster_is_reached_through_a_tunnel(tmp_path: Path, server: Served) -> None:
    """The proxy sees where it leads, and neither path nor token."""
    proxy = Proxy()
    async with proxy.serve_proxy():
        place = f"http://127.0.0.1:{proxy.port}"
        ca = {"certificate-authority": str(server.ca)}
        async with cluster_api_by_proxy(tmp_path, f"https://127.0.0.1:{server.port}", place, **ca) as api:
            await get_config_map(api)
            await get_config_map(api)
    (head,) = proxy.heads
    assert head.startswith(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n")
    assert TOKEN not in head
    assert [one["Authorization"] for one in server.requests] == [f"Bearer {TOKEN}"] * 2


async def test_a_name_that_the_proxy_alone_knows_is_asked_of_it(tmp_path: Path, server: Served) -> None:
    proxy = Proxy(target=("127.0.0.1", server.port))
    async with proxy.serve_proxy():
        place, ca = f"http://127.0.0.1:{proxy.port}", {"certificate-authority": str(server.ca)}
        async with cluster_api_by_proxy(tmp_path, "https://api:6443", place, **ca) as api:
            await get_config_map(api)
        name = {"tls-server-name": "api"}
        async with cluster_api_by_proxy(tmp_path, "https://cluster.invalid:6443", place, **ca, **name) as api:
            await get_config_map(api)
        async with cluster_api_by_proxy(tmp_path, "https://cluster.invalid:6443", place, **ca) as api:
            with pytest.raises(ClusterUnreachable, match=r"not valid for 'cluster\.invalid'"):
                await get_config_map(api)
    assert [head.split(" ")[1] for head in proxy.heads] == ["api:6443", *["cluster.invalid:6443"] * 2]


@pytest.mark.parametrize("encrypted", [True, False], ids=["by a tunnel", "without TLS"])
async def test_a_password_goes_to_the_proxy_and_to_nobody_else(
    tmp_path: Path, certificate: tuple[Path, ssl.SSLContext], encrypted: bool
) -> None:
    proxy = Proxy(login=LOGIN)
    async with serve_api(certificate[0], certificate[1] if encrypted else None) as server, proxy.serve_proxy():
        scheme, ca = ("https", {"certificate-authority": str(server.ca)}) if encrypted else ("http", {})
        place = f"http://me:{PASSWORD}@127.0.0.1:{proxy.port}"
        async with cluster_api_by_proxy(tmp_path, f"{scheme}://127.0.0.1:{server.port}", place, **ca) as api:
            await get_config_map(api)
            await get_config_map(api)
    assert len(server.requests) == 2
    if encrypted:
        assert all("Proxy-Authorization" not in one for one in server.requests)


@pytest.mark.parametrize("scheme", ["https", "http"])
async def test_what_a_proxy_says_of_a_password_is_not_told(tmp_path: Path, server: Served, scheme: str) -> None:
    """It says again all that it was asked by, in its first line, too."""
    proxy, wrong = Proxy(login=LOGIN), f"not-{PASSWORD}"
    async with proxy.serve_proxy():
        place = f"http://me:{wrong}@127.0.0.1:{proxy.port}"
        ca = {"certificate-authority": str(server.ca)}
        async with cluster_api_by_proxy(tmp_path, f"{scheme}://127.0.0.1:{server.port}", place, **ca) as api:
            with pytest.raises(ClusterUnreachable, match="407") as raised:
                await get_config_map(api)
    sent = base64.b64encode(f"me:{wrong}".encode()).decode()
    assert sent in proxy.heads[0]
    for secret in (sent, wrong, TOKEN):
        assert secret not in str(raised.value)


async def test_a_password_that_was_renewed_is_read_after_a_407(tmp_path: Path, server: Served) -> None:
    proxy = Proxy(login=LOGIN)
    async with proxy.serve_proxy():
        ca, place = {"certificate-authority": str(server.ca)}, f"127.0.0.1:{proxy.port}"
        url = f"https://127.0.0.1:{server.port}"
        async with cluster_api_by_proxy(tmp_path, url, f"http://me:old@{place}", **ca) as api:
            with pytest.raises(ClusterUnreachable, match="the proxy of proxy-url answered with status 407"):
                await get_config_map(api)
            write_kubeconfig(tmp_path, url, f"http://me:{PASSWORD}@{place}", **ca)
            await get_config_map(api)


async def test_a_proxy_may_be_asked_by_tls(
    tmp_path: Path, server: Served, certificate: tuple[Path, ssl.SSLContext]
) -> None:
    """It is believed by the authority of the cluster's entry, as in client-go."""
    proxy = Proxy(login=LOGIN)
    async with proxy.serve_proxy(certificate[1]):
        place = f"https://me:{PASSWORD}@127.0.0.1:{proxy.port}"
        ca = {"certificate-authority": str(server.ca)}
        async with cluster_api_by_proxy(tmp_path, f"https://127.0.0.1:{server.port}", place, **ca) as api:
            await get_config_map(api)
        async with cluster_api_by_proxy(tmp_path, f"https://127.0.0.1:{server.port}", place) as api:
            with pytest.raises(ClusterUnreachable, match="certificate verify failed"):
                await get_config_map(api)
    assert len(proxy.heads) == 1


async def test_a_proxy_that_is_gone_is_unreachable(tmp_path: Path, server: Served) -> None:
    ca = {"certificate-authority": str(server.ca)}
    place = f"http://me:{PASSWORD}@127.0.0.1:1"
    async with cluster_api_by_proxy(tmp_path, f"https://127.0.0.1:{server.port}", place, **ca) as api:
        with pytest.raises(
            ClusterUnreachable, match=r"connection.*: GET .* Cannot connect to host 127\.0\.0\.1:1 "
        ) as raised:
            await get_config_map(api)
    assert PASSWORD not in str(raised.value)
    assert server.requests == []


async def test_proxies_of_the_environment_are_not_asked(
    tmp_path: Path, server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Proxy()
    async with proxy.serve_proxy():
        for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        ca = {"certificate-authority": str(server.ca)}
        async with cluster_api_by_proxy(tmp_path, f"https://127.0.0.1:{server.port}", "", **ca) as api:
            await get_config_map(api)
    assert proxy.heads == []
