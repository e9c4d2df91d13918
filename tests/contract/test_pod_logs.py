"""How logs of pods come through an API server: from the kubelet that a pod's node names, which may be a bridge's.

Held against the simulated cluster and against a real one, as test_cluster_api.py.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from uuid import uuid4

import pytest
from aiohttp import web

from spillway.clusters.api import NODES, PODS, ClusterApi, ClusterUnreachable, LogOptions, Manifest, NotFound, Refused
from spillway_local.member_credentials import CredentialFiles
from tests.contract.cluster_harness import PATIENCE_SECONDS

pytest_plugins = ["spillway_local.pytest_infra"]

LINES = b"2026-11-22T06:00:00Z one\n2026-11-22T06:00:01Z two\n"


class Kubelet:
    """What a bridge serves for its virtual nodes: GET /containerLogs/<namespace>/<pod>/<container>."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.may_go_on = asyncio.Event()
        self.port = 0
        self._credentials = CredentialFiles(folder)
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._answer_request)
        self._runner = web.AppRunner(app, shutdown_timeout=0.2)

    async def start(self) -> None:
        self._credentials.ensure_files()
        context = SSLContext(PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._credentials.certificate, self._credentials.certificate_key)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context).start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        self.may_go_on.set()
        await self._runner.cleanup()

    async def _answer_request(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.path, dict(request.query)))
        if request.match_info["container"] == "waiting":
            return web.Response(status=400, text="container waiting is waiting to start: ContainerCreating")
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(LINES)
        if request.query.get("follow") == "true":
            await self.may_go_on.wait()
            await response.write(b"three\n")
        return response


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[Kubelet]:
    kubelet = Kubelet(tmp_path / "kubelet")
    await kubelet.start()
    yield kubelet
    await kubelet.close()


@pytest.fixture
async def node(api: ClusterApi, kubelet: Kubelet) -> AsyncIterator[str]:
    """A virtual node whose kubelet this process serves; gone after the test."""
    name = f"own-1.node-{uuid4().hex[:8]}"
    amounts = {"cpu": "8", "memory": "4Gi", "pods": "10"}
    status = {
        "capacity": amounts,
        "allocatable": amounts,
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port}},
    }
    metadata = {"name": name, "labels": {"type": "virtual-kubelet"}}
    spec = {"taints": [{"key": "spillway.io/lent", "effect": "NoSchedule"}]}
    made = await api.create(
        NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status}
    )
    yield name
    for one in await api.list(PODS, field_selector=f"spec.nodeName={name}"):
        place = (one["metadata"]["namespace"], one["metadata"]["name"])
        await api.delete(PODS, *place, uid=one["metadata"]["uid"], grace_seconds=0)
    await api.delete(NODES, "", name, uid=made["metadata"]["uid"])


async def create_running_pod(api: ClusterApi, namespace: str, node: str, *containers: str) -> Manifest:
    spec = {"containers": [{"name": one, "image": "none"} for one in containers], "nodeName": node}
    spec["tolerations"] = [{"operator": "Exists"}]
    metadata = {"name": "p", "namespace": namespace}
    return await api.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


async def log_text_of(api: ClusterApi, namespace: str, options: LogOptions, pod: str = "p") -> bytes:
    async with asyncio.timeout(PATIENCE_SECONDS), aclosing(api.container_log_chunks(namespace, pod, options)) as chunks:
        return b"".join([chunk async for chunk in chunks])


async def test_a_log_comes_from_the_kubelet_of_its_node(
    api: ClusterApi, namespace: str, node: str, kubelet: Kubelet
) -> None:
    await create_running_pod(api, namespace, node, "main")
    options = LogOptions("main", previous=True, timestamps=True, tail_lines=10, since_seconds=60, limit_bytes=5000)
    assert await log_text_of(api, namespace, options) == LINES
    ((path, query),) = kubelet.asked
    assert path == f"/containerLogs/{namespace}/p/main"
    expected = {"previous": "true", "timestamps": "true", "tailLines": "10", "sinceSeconds": "60", "limitBytes": "5000"}
    assert query == expected
    assert await log_text_of(api, namespace, LogOptions(since_time="2026-11-22T05:00:00Z")) == LINES
    assert kubelet.asked[-1] == (path, {"sinceTime": "2026-11-22T05:00:00Z"})


async def test_a_log_that_is_followed_comes_as_it_is_written(
    api: ClusterApi, namespace: str, node: str, kubelet: Kubelet
) -> None:
    await create_running_pod(api, namespace, node, "main")
    seen = b""
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        aclosing(api.container_log_chunks(namespace, "p", LogOptions(follow=True))) as chunks,
    ):
        async for chunk in chunks:
            seen += chunk
            if seen == LINES:  # All of it, while the kubelet holds back the rest.
                kubelet.may_go_on.set()
    assert seen == LINES + b"three\n"


async def test_why_there_is_no_log_has_a_name(api: ClusterApi, namespace: str, node: str, kubelet: Kubelet) -> None:
    with pytest.raises(NotFound):
        await log_text_of(api, namespace, LogOptions())
    await create_running_pod(api, namespace, node, "main", "waiting")
    rows = {
        "a container name must be specified": LogOptions(),
        "container other is not valid": LogOptions("other"),
        "waiting to start": LogOptions("waiting"),
    }
    for words, options in rows.items():
        with pytest.raises(Refused, match=words) as raised:
            await log_text_of(api, namespace, options)
        assert raised.value.status == 400
    await kubelet.close()
    with pytest.raises(ClusterUnreachable, match="server"):
        await log_text_of(api, namespace, LogOptions("main"))
