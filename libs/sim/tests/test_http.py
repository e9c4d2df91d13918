"""The same API over real HTTP, and as a process."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sim.cluster import SimCluster
from sim.http import SimServer
from sim.manifests import deployment
from sim.settings import NodeSpec, Settings

BEARER = {"Authorization": "Bearer secret"}
PATIENCE_SECONDS = 60


async def start_server(cluster: SimCluster) -> SimServer:
    server = SimServer(cluster, "secret")
    await server.start()
    return server


async def test_watches_stream_and_strangers_are_refused() -> None:
    async with SimCluster("a", Settings(start_delay_seconds=0)) as cluster, aiohttp.ClientSession() as session:
        server = await start_server(cluster)
        cluster.add_nodes([NodeSpec("n")])
        async with session.get(f"{server.url}/api/v1/nodes") as refused:
            assert (refused.status, (await refused.json())["reason"]) == (401, "Unauthorized")
        params = {"watch": "true", "resourceVersion": str(cluster.control_plane.world.store.version)}
        async with session.get(f"{server.url}/api/v1/pods", params=params, headers=BEARER) as watch:
            url = f"{server.url}/apis/apps/v1/namespaces/default/deployments"
            async with session.post(url, json=deployment("web", 1), headers=BEARER) as made:
                assert made.status == 201
            types = [json.loads(await watch.content.readline())["type"] for _ in range(3)]
            assert types == ["ADDED", "MODIFIED", "MODIFIED"]
            async with session.post(f"{server.url}/sim/drop-watches", headers=BEARER):
                assert await watch.content.readline() == b""
        await server.close()


async def test_faults_and_nodes_are_set_from_outside() -> None:
    async with SimCluster("a") as cluster, aiohttp.ClientSession(headers=BEARER) as session:
        server = await start_server(cluster)
        async with session.post(f"{server.url}/sim/nodes", json=[{"name_prefix": "n", "count": 2}]) as added:
            assert await added.json() == ["n0", "n1"]
        async with session.post(f"{server.url}/sim/faults", json={"typo": True}) as refused:
            assert refused.status == 400
        async with session.post(f"{server.url}/sim/faults", json={"stall_list": True}) as accepted:
            assert accepted.status == 200
        async with session.get(f"{server.url}/api/v1/nodes") as stalled:
            assert await stalled.content.readany()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(stalled.content.readany(), 0.2)
        assert cluster.faults.stall_list
        await server.close()


def test_only_loopback_is_served() -> None:
    with pytest.raises(ValueError, match="expected a loopback address"):
        SimServer(None, "secret", host="0.0.0.0")  # type: ignore[arg-type]


async def test_the_process_writes_a_kubeconfig_and_ends_at_once(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.json"
    nodes.write_text(json.dumps([{"name_prefix": "n", "count": 3, "taints": [{"key": "k"}], "zones": ["a", "b"]}]))
    flags = ["--name", "own-1", "--port", "0", "--nodes", str(nodes), "--credentials-folder", str(tmp_path)]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "sim", *flags, stdout=asyncio.subprocess.PIPE)
    assert process.stdout
    await process.stdout.readline()
    config: dict[str, Any] = json.loads((tmp_path / "own-1.kubeconfig").read_text())
    headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        url = config["clusters"][0]["cluster"]["server"]
        async with session.get(f"{url}/api/v1/nodes", params={"watch": "true"}) as watch:
            assert json.loads(await watch.content.readline())["object"]["metadata"]["name"] == "n0"
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert await process.wait() == 0
