"""Logs of pool pods through their pool's own API server, which asks the bridge's kubelet API over HTTPS.

Owners are simulated clusters; the pool is one too, or a real control plane. In real time, on loopback.
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
from yarl import URL

from sim.cluster import SimCluster
from sim.rest import SimTransport
from sim.settings import NodeSpec, SidecarSpec
from sim.settings import Settings as SimSettings
from spillway.clusters.api import (
    NAMESPACES,
    NODES,
    PODS,
    ClusterApi,
    ClusterApiSettings,
    LogOptions,
    Manifest,
    Refused,
    make_cluster_api,
)
from spillway.clusters.credentials import load_endpoint
from spillway.events import ClusterJoined
from spillway.events_lending import LendingDeclared, LendingRule
from spillway.lending_marks import LENT_CLUSTER, POOL_TAINT, virtual_node_name
from spillway.local_bus import LocalBroker, LocalBus
from spillway.model import Generation
from spillway.settings import SettingsError
from spillway_local.member_credentials import KubeletClientFiles, ensure_certificate
from spillway_local.members import kubelet_clients_folder
from spillway_local.ports import session_port
from vk_bridge.api.kubelet import KubeletApi
from vk_bridge.service import Bridge
from vk_bridge.settings import VkBridgeSettings

pytest_plugins = ["spillway_local.pytest_infra"]

PATIENCE_SECONDS = 20.0
A_NAME = "expected a name of small letters, digits, '-' and '.'"
NO_LISTS = "not served for lent nodes: no lists of pods (the API server has them), logs alone"
RULE = LendingRule("all", (), "dedicated", 100, 0, 0, 0.0)
FAST = ClusterApiSettings(log_streams_max=4)


async def wait_until(holds: Callable[[], Any], what: str = "it") -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():
            await asyncio.sleep(0.02)


class Lending:
    """Owners own-1 and own-2 with one node each, lent to pool-1 and pool-2, and one bridge with its kubelet API."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stack = AsyncExitStack()
        self.sims: dict[str, SimCluster] = {}
        self.pools: dict[str, ClusterApi] = {}
        self.namespace = f"shop-{uuid4().hex[:8]}"
        self.port_by_pool: dict[str, int] = {}

    def ensure_client_files(self, pool: str) -> KubeletClientFiles:
        files = KubeletClientFiles(kubelet_clients_folder(self.folder), pool)
        files.ensure_files()
        return files

    async def add_simulated_cluster(self, name: str, nodes: int = 0, **settings: Any) -> None:
        chosen = SimSettings(start_delay_seconds=0.02, delete_delay_seconds=0.02, **settings)
        cluster = await self.stack.enter_async_context(SimCluster(name, chosen))
        cluster.add_nodes([NodeSpec("n", nodes, cpu_millis=8000)])
        self.sims[name] = cluster

    async def add_pool(self, name: str) -> None:
        files = self.ensure_client_files(name)
        await self.add_simulated_cluster(name, kubelet_client=(str(files.certificate), str(files.key)))
        self.pools[name] = self.simulated_cluster_api(name)

    def simulated_cluster_api(self, name: str) -> ClusterApi:
        return ClusterApi(SimTransport(self.sims[name]), name, FAST)

    def connect_cluster(self, joined: ClusterJoined) -> ClusterApi:
        if joined.cluster in self.sims:
            return self.simulated_cluster_api(joined.cluster)
        return make_cluster_api(partial(load_endpoint, self.folder, joined.credential), joined.cluster, FAST)

    async def start_bridge(self, pool_by_owner: dict[str, str], **changes: Any) -> VkBridgeSettings:
        bus = LocalBus(LocalBroker(), "f1", "planner")
        for name in {*pool_by_owner, *pool_by_owner.values()}:
            await bus.publish(ClusterJoined(name, name, f"https://{name}", "own", "", "", (), ()))
        for number, (owner, pool) in enumerate(pool_by_owner.items()):
            generation = Generation(1, number)
            await bus.publish(LendingDeclared(owner, generation, pool, (RULE,), 1, 0, 0, False, False, "", "", 0))
        certificate, key = self.folder / "kubelet.crt", self.folder / "kubelet.key"
        ensure_certificate(certificate, key, "kubelet")
        self.port_by_pool = dict.fromkeys(pool_by_owner.values(), 0)
        first = session_port(count=len(self.port_by_pool))
        self.port_by_pool = {pool: first + number for number, pool in enumerate(self.port_by_pool)}
        settings = VkBridgeSettings(
            in_flight_seconds=0.1,
            review_seconds=0.1,
            probe_seconds=0.1,
            retry_seconds=0.1,
            kubelet_ports=tuple(f"{pool}={port}" for pool, port in self.port_by_pool.items()),
            kubelet_certificate=str(certificate),
            kubelet_key=str(key),
            kubelet_clients_folder=kubelet_clients_folder(self.folder),
            **changes,
        )
        own_bus = LocalBus(bus.broker, "f1", "b1")
        bridge = Bridge(own_bus, self.connect_cluster, settings, "b1", lambda: time.time_ns() // 1_000_000)
        await self.stack.enter_async_context(KubeletApi(settings, bridge.lent_pods))
        stopping = asyncio.Event()
        task = asyncio.create_task(bridge.run(stopping))

        async def stop_bridge() -> None:
            stopping.set()
            await task

        self.stack.push_async_callback(stop_bridge)
        return settings

    async def run_pool_pod(self, pool: str, owner: str, name: str = "encode", *containers: str) -> Manifest:
        """A pod that is bound to the owner's virtual node; its real pod, once it runs."""
        api, virtual = self.pools[pool], virtual_node_name(owner, "n0")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await api.get(NODES, "", virtual) or {"spec": {"unschedulable": True}})["spec"].get("unschedulable"):
                await asyncio.sleep(0.05)
        with contextlib.suppress(Exception):
            await api.create(
                NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
            )
        spec = {
            "containers": [{"name": one, "image": "none"} for one in containers or ("main",)],
            "nodeSelector": {LENT_CLUSTER: owner},
            "tolerations": [{"key": POOL_TAINT, "operator": "Exists"}],
            "terminationGracePeriodSeconds": 0,
        }
        metadata = {"name": name, "namespace": self.namespace}
        made = await api.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

        def running_real_pods() -> list[Manifest]:
            pods = [
                one
                for one in self.sims[owner].objects("pods")
                if one["metadata"]["labels"].get("spillway.io/pool-uid") == made["metadata"]["uid"]
            ]
            return [one for one in pods if one["status"].get("phase") == "Running"]

        await wait_until(running_real_pods)
        return running_real_pods()[0]

    def write_container_log(self, owner: str, real_pod: Manifest, text: str, container: str = "") -> None:
        metadata = real_pod["metadata"]
        self.sims[owner].write_log(metadata["namespace"], metadata["name"], text, container)

    async def read_pod_log(self, pool: str, name: str = "encode", **options: Any) -> str:
        async with asyncio.timeout(PATIENCE_SECONDS):
            async with aclosing(
                self.pools[pool].container_log_chunks(self.namespace, name, LogOptions(**options))
            ) as chunks:
                return b"".join([chunk async for chunk in chunks]).decode()

    async def ask_kubelet_api(self, pool: str, path: str, files: KubeletClientFiles | None = None) -> tuple[int, str]:
        """The kubelet API itself, as that pool's API server or with another certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        shown = files or self.ensure_client_files(pool)
        context.load_cert_chain(shown.certificate, shown.key)
        async with aiohttp.ClientSession() as session:
            url = URL(f"https://127.0.0.1:{self.port_by_pool[pool]}{path}", encoded=True)
            async with session.get(url, ssl=context) as answer:
                return answer.status, await answer.text()


@pytest.fixture
async def lending(tmp_path: Path) -> AsyncIterator[Lending]:
    lending = Lending(tmp_path)
    for owner in ("own-1", "own-2"):
        await lending.add_simulated_cluster(owner, 1)
    yield lending
    await lending.stack.aclose()


@pytest.fixture(params=["sim", pytest.param("kube", marks=pytest.mark.kube)])
def kubeconfig(request: pytest.FixtureRequest) -> Path | None:
    """Of a real API server with its own scheduler; None: the pool is simulated."""
    found: Path | None = request.getfixturevalue("kube_members")["own-2"] if request.param == "kube" else None
    return found


@pytest.fixture
async def pool(kubeconfig: Path | None, tmp_path: Path) -> AsyncIterator[tuple[Lending, str]]:
    """A pool to which own-1 may lend."""
    if kubeconfig is None:
        lending, name = Lending(tmp_path), "pool-1"
        await lending.add_pool(name)
    else:
        lending, name = Lending(kubeconfig.parent), kubeconfig.stem
        lending.pools[name] = make_cluster_api(partial(load_endpoint, kubeconfig.parent, name), name, FAST)
    await lending.add_simulated_cluster("own-1", 1)
    yield lending, name
    api = lending.pools[name]
    for one in await api.list(PODS, lending.namespace):
        await api.delete(PODS, lending.namespace, one["metadata"]["name"], uid=one["metadata"]["uid"], grace_seconds=0)
    await lending.stack.aclose()
    left = [] if name in lending.sims else await api.list(NODES, label_selector=LENT_CLUSTER)
    for one in left:
        await api.delete(NODES, "", one["metadata"]["name"], uid=one["metadata"]["uid"])
    await api.close()


async def test_a_pools_api_server_gives_what_the_real_pod_writes(pool: tuple[Lending, str]) -> None:
    """With choice of container, tail, time stamps, a bound of bytes; and what there is not has a reason."""
    lending, name = pool
    await lending.start_bridge({"own-1": name})
    real = await lending.run_pool_pod(name, "own-1", "encode", "main", "helper")
    lending.write_container_log("own-1", real, "one\ntwo", "main")
    lending.write_container_log("own-1", real, "other", "helper")
    assert (await lending.read_pod_log(name, container="main")).splitlines()[-2:] == ["one", "two"]
    assert await lending.read_pod_log(name, container="main", tail_lines=1) == "two\n"
    assert await lending.read_pod_log(name, container="helper", tail_lines=1) == "other\n"
    assert await lending.read_pod_log(name, container="main", tail_lines=1, limit_bytes=2) == "tw"
    stamp, line = (await lending.read_pod_log(name, container="main", tail_lines=1, timestamps=True)).split()
    assert (stamp[-1], line) == ("Z", "two")
    with pytest.raises(Refused, match="previous terminated container"):
        await lending.read_pod_log(name, container="main", previous=True)


async def test_a_log_that_is_followed_comes_as_it_is_written(pool: tuple[Lending, str]) -> None:
    lending, name = pool
    await lending.start_bridge({"own-1": name})
    real = await lending.run_pool_pod(name, "own-1")
    seen = ""
    options = LogOptions(follow=True, tail_lines=1)
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        aclosing(lending.pools[name].container_log_chunks(lending.namespace, "encode", options)) as chunks,
    ):
        async for chunk in chunks:
            seen += chunk.decode()
            if seen.endswith("started\n"):
                lending.write_container_log("own-1", real, "later")
            if "later" in seen:
                break
    assert seen.endswith("started\nlater\n")


async def test_of_two_pods_alike_in_two_pools_each_pool_gets_its_own(lending: Lending) -> None:
    for name in ("pool-1", "pool-2"):
        await lending.add_pool(name)
    await lending.start_bridge({"own-1": "pool-1", "own-2": "pool-2"})
    for number in ("1", "2"):
        real = await lending.run_pool_pod(f"pool-{number}", f"own-{number}")
        lending.write_container_log(f"own-{number}", real, f"of pool {number}")
    for number in ("1", "2"):
        assert await lending.read_pod_log(f"pool-{number}", tail_lines=1) == f"of pool {number}\n"
    with pytest.raises(aiohttp.ClientError):
        await lending.ask_kubelet_api("pool-1", "/healthz", lending.ensure_client_files("pool-2"))


async def test_who_is_not_the_pools_api_server_is_refused(lending: Lending) -> None:
    await lending.add_pool("pool-1")
    await lending.start_bridge({"own-1": "pool-1"}, kubelet_client_names=("somebody-else",))
    status, text = await lending.ask_kubelet_api("pool-1", "/healthz")
    assert (status, text) == (
        403,
        "the certificate's common name is kube-apiserver-kubelet-client: expected somebody-else",
    )
    stranger = KubeletClientFiles(lending.folder / "strangers", "pool-1")
    stranger.ensure_files()
    with pytest.raises(aiohttp.ClientError):
        await lending.ask_kubelet_api("pool-1", "/healthz", stranger)
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"https://127.0.0.1:{lending.port_by_pool['pool-1']}/healthz", ssl=False)


async def test_a_crowd_at_a_kubelet_port_keeps_no_api_server_out(lending: Lending) -> None:
    """Silent connections and half handshakes, more than may be there, while a log is followed and others ask."""
    await lending.add_pool("pool-1")
    await lending.start_bridge({"own-1": "pool-1"}, kubelet_strangers_max=4, kubelet_stranger_seconds=600.0)
    real = await lending.run_pool_pod("pool-1", "own-1")
    options = LogOptions(follow=True, tail_lines=1)
    async with aclosing(lending.pools["pool-1"].container_log_chunks(lending.namespace, "encode", options)) as chunks:
        assert (await anext(chunks)).endswith(b"started\n")
        crowd = []
        for half in (b"", b"\x16\x03\x01\x02\x00\x01\x00") * 10:
            crowd.append(await asyncio.open_connection("127.0.0.1", lending.port_by_pool["pool-1"]))
            crowd[-1][1].write(half)
        for _ in range(3):
            assert await lending.ask_kubelet_api("pool-1", "/healthz") == (200, "ok")
        lending.write_container_log("own-1", real, "later")
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert (await anext(chunks)).endswith(b"later\n")
            with contextlib.suppress(ConnectionError):
                assert await crowd[0][0].read() == b""
    for _, writer in crowd:
        writer.transport.abort()


async def test_what_is_not_there_and_what_is_not_served_has_a_reason(lending: Lending) -> None:
    await lending.add_pool("pool-1")
    await lending.start_bridge({"own-1": "pool-1"}, kubelet_requests_max=1)
    real = await lending.run_pool_pod("pool-1", "own-1")
    lending.sims["own-1"].inject_sidecar(SidecarSpec())
    await lending.run_pool_pod("pool-1", "own-1", "shadowed")
    logs = f"/containerLogs/{lending.namespace}"
    rows = {
        "/healthz": (200, "ok"),
        f"{logs}/nobody/main": (404, f"pod {lending.namespace}/nobody is not there in pool-1"),
        f"{logs}/encode/other": (404, f"pod {lending.namespace}/encode has no container other"),
        f"{logs}/shadowed/sidecar": (404, f"pod {lending.namespace}/shadowed has no container sidecar"),
        f"{logs}/..%2f..%2fencode/main": (400, f"pod: '../../encode': {A_NAME}"),
        "/containerLogs/%2e%2e/encode/main": (400, f"namespace: '..': {A_NAME}"),
        f"{logs}/%2E%2e/main": (400, f"pod: '..': {A_NAME}"),
        f"{logs}/%2e/main": (400, f"pod: '.': {A_NAME}"),
        f"{logs}/encode/%2e%2e": (400, f"container: '..': {A_NAME}"),
        f"{logs}/encode/main?tailLines=x": (400, "tailLines: 'x': expected a whole number, 0 or more"),
        f"/exec/{lending.namespace}/encode/main": (
            501,
            "exec is not served for lent nodes: no commands in containers, logs alone",
        ),
        "/stats/summary": (501, "stats is not served for lent nodes: no measured use, logs alone"),
        "/pods": (501, f"pods is {NO_LISTS}"),
        "/runningpods/": (501, f"runningpods is {NO_LISTS}"),
        "/elsewhere": (404, "/elsewhere is nothing that is served for lent nodes"),
    }
    assert {path: await lending.ask_kubelet_api("pool-1", path) for path in rows} == rows
    async with aclosing(
        lending.pools["pool-1"].container_log_chunks(lending.namespace, "encode", LogOptions(follow=True))
    ) as chunks:
        await anext(chunks)
        assert await lending.ask_kubelet_api("pool-1", "/healthz") == (429, "1 requests are being answered already")
    await wait_for_answer(lending, "/healthz", (200, "ok"))
    metadata = real["metadata"]
    await lending.simulated_cluster_api("own-1").delete(
        PODS, metadata["namespace"], metadata["name"], uid=metadata["uid"], grace_seconds=0
    )
    status, text = await lending.ask_kubelet_api("pool-1", f"{logs}/encode/main")
    assert (status, text.rpartition(" has ")[2]) == (404, "no real pod on the node for which own-1.n0 stands")


@pytest.mark.parametrize(
    ("bounds", "most"),
    [
        pytest.param({"owner_logs_max": 4}, 4, id="of an owner"),
        pytest.param({"kubelet_requests_max": 6}, 6, id="of the bridge"),
    ],
)
async def test_a_namespace_reads_at_most_as_many_logs_as_it_leaves_free(
    lending: Lending, bounds: dict[str, int], most: int
) -> None:
    await lending.add_pool("pool-1")
    await lending.start_bridge({"own-1": "pool-1"}, **bounds)
    await lending.run_pool_pod("pool-1", "own-1")
    shop, lending.namespace = lending.namespace, f"bank-{uuid4().hex[:8]}"
    await lending.run_pool_pod("pool-1", "own-1")
    bank, api = lending.namespace, lending.pools["pool-1"]
    async with contextlib.AsyncExitStack() as followed:
        for _ in range(most // 2):
            log = api.container_log_chunks(shop, "encode", LogOptions(follow=True))
            await anext(await followed.enter_async_context(aclosing(log)))
        text = f"{most // 2} logs of namespace {shop} of pool-1 are being read already"
        refused = (429, f"{text}: at most as many as it leaves free of {most}")
        assert await lending.ask_kubelet_api("pool-1", f"/containerLogs/{shop}/encode/main") == refused
        assert (await lending.ask_kubelet_api("pool-1", f"/containerLogs/{bank}/encode/main"))[0] == 200
    await wait_for_answer_status(lending, f"/containerLogs/{shop}/encode/main", 200)


async def test_an_owners_container_is_not_read_by_the_name_of_an_ephemeral_one(lending: Lending) -> None:
    await lending.add_pool("pool-1")
    await lending.start_bridge({"own-1": "pool-1"})
    lending.sims["own-1"].inject_sidecar(SidecarSpec())
    lending.write_container_log("own-1", await lending.run_pool_pod("pool-1", "own-1"), "the owner's", "sidecar")
    pool = lending.sims["pool-1"]
    found = pool.get_object("pods", "encode", lending.namespace)
    assert found is not None
    # As `kubectl debug -c sidecar` does it: the simulation does not serve ephemeralcontainers.
    spec = {**found["spec"], "ephemeralContainers": [{"name": "sidecar", "image": "none"}]}
    pool.control_plane.world.store.put_object("pods", {**found, "spec": spec})
    answer = await lending.ask_kubelet_api("pool-1", f"/containerLogs/{lending.namespace}/encode/sidecar")
    assert answer == (404, f"pod {lending.namespace}/encode has no container sidecar")


async def test_a_kubelet_api_without_its_files_does_not_start(tmp_path: Path) -> None:
    certificate, key = tmp_path / "kubelet.crt", tmp_path / "kubelet.key"
    files = {"kubelet_certificate": str(certificate), "kubelet_key": str(key), "kubelet_clients_folder": tmp_path}
    settings = VkBridgeSettings(kubelet_ports=(f"pool-1={session_port()}",), **files)
    with pytest.raises(SettingsError, match=r"kubelet_clients_folder: .*pool-1.crt: expected a CA, PEM"):
        await KubeletApi(settings, list).__aenter__()
    KubeletClientFiles(tmp_path, "pool-1").ensure_files()
    with pytest.raises(SettingsError, match=r"kubelet_certificate, kubelet_key: .*: expected both, PEM"):
        await KubeletApi(settings, list).__aenter__()


async def wait_for_answer(lending: Lending, path: str, expected: tuple[int, str]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await lending.ask_kubelet_api("pool-1", path) != expected:
            await asyncio.sleep(0.02)


async def wait_for_answer_status(lending: Lending, path: str, expected: int) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await lending.ask_kubelet_api("pool-1", path))[0] != expected:
            await asyncio.sleep(0.02)
