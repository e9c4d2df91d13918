"""Runs a simulated cluster over HTTP until SIGTERM. It starts with the requested numbers of nodes and running pods."""

import argparse
import asyncio
import json
import secrets
import signal
import time
from pathlib import Path
from typing import Any

from sim.cluster import SimCluster
from sim.http import SimServer, kubeconfig
from sim.settings import LoadSpec, NodeSpec, Settings
from spillway.running.garbage_collection import survivors_set_aside

NODE_PREFIX = "node-"
PODS_PER_DEPLOYMENT = 200
POD_CPU_MILLIS = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--port", required=True, type=int)
    parser.add_argument("--credentials-folder", required=True, type=Path)
    parser.add_argument("--nodes", required=True, type=int)
    parser.add_argument("--pods", required=True, type=int)
    with survivors_set_aside():  # A real API server does not pause for garbage.
        asyncio.run(_serve_member(parser.parse_args()))


async def _serve_member(asked: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    token = secrets.token_hex(16)
    async with SimCluster(asked.name, Settings(start_unix_seconds=time.time())) as cluster:
        deployments = max(1, asked.pods // PODS_PER_DEPLOYMENT)
        cluster.load_objects(
            [NodeSpec(NODE_PREFIX, asked.nodes, zones=("a", "b", "c"))],
            LoadSpec(asked.pods, deployments, cpu_millis=POD_CPU_MILLIS),
        )
        server = SimServer(cluster, token, port=asked.port)
        await server.start()
        _write_private_file(
            asked.credentials_folder / f"{asked.name}.kubeconfig", kubeconfig(asked.name, server.url, token)
        )
        print(f"{asked.name} serves {server.url} with {asked.nodes} nodes and {asked.pods} pods", flush=True)
        await stop.wait()
        await server.close()


def _write_private_file(path: Path, content: dict[str, Any]) -> None:
    """Writes the file in one step, because another process waits for it and must not read half of it."""
    draft = path.with_suffix(".draft")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(content))
    draft.replace(path)


if __name__ == "__main__":
    main()
