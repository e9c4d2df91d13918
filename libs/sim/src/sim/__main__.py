"""Runs one simulated cluster as a process. It takes flags, writes a kubeconfig, and runs until SIGTERM."""

import argparse
import asyncio
import os
import re
import secrets
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from sim.cluster import SimCluster
from sim.http import SimServer, is_loopback, kubeconfig
from sim.pod_programs import PodPrograms
from sim.settings import NodeGroupSpec, NodeSpec, ProgramSpec, Settings

T = TypeVar("T")


def main() -> None:
    arguments = _parse_arguments()
    asyncio.run(_serve_cluster(arguments))


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sim", description=__doc__)
    parser.add_argument(
        "--name", required=True, type=_parse_cluster_name, help="of the cluster and its kubeconfig: [a-z0-9-]+"
    )
    parser.add_argument("--port", required=True, type=int, help="0 takes a free one")
    parser.add_argument("--host", default="127.0.0.1", type=_parse_loopback, help="loopback only")
    parser.add_argument("--nodes", type=Path, help="JSON file: a list of node specs")
    parser.add_argument("--node-groups", type=Path, help="JSON file: a list of {template, max, lead_time_seconds}")
    parser.add_argument("--credentials-folder", required=True, type=Path, help="gets <name>.kubeconfig")
    parser.add_argument("--state", type=Path, help="JSON file: written at SIGTERM, and gone on with at the next start")
    parser.add_argument("--start-delay-ms", type=int, default=500, help="from binding to Ready")
    parser.add_argument("--delete-delay-ms", type=int, default=200, help="from deletionTimestamp to gone")
    parser.add_argument("--bind-rate", type=float, default=0.0, help="pods per second; 0 is unlimited")
    parser.add_argument("--usage-percent", type=int, default=0, help="of its requests, what a pod without a load uses")
    parser.add_argument(
        "--pod-programs", type=Path, help="JSON file: by name, what pods may run: {command, environment}"
    )
    parser.add_argument("--kubelet-client-certificate", default="", help="shown to kubelets that virtual nodes name")
    parser.add_argument("--kubelet-client-key", default="", help="of that certificate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--score", choices=("least-allocated", "random"), default="least-allocated")
    return parser.parse_args()


def _parse_cluster_name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9-]+", text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected [a-z0-9-]+")
    return text


def _parse_loopback(text: str) -> str:
    if not is_loopback(text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a loopback address")
    return text


async def _serve_cluster(arguments: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    nodes = _read_specs(arguments.nodes, list[NodeSpec])
    groups = _read_specs(arguments.node_groups, list[NodeGroupSpec])
    settings = Settings(
        seed=arguments.seed,
        start_unix_seconds=time.time(),
        score=arguments.score,
        binds_per_second=arguments.bind_rate,
        start_delay_seconds=arguments.start_delay_ms / 1000,
        delete_delay_seconds=arguments.delete_delay_ms / 1000,
        usage_of_requests=arguments.usage_percent / 100,
        kubelet_client=_client_certificate(arguments.kubelet_client_certificate, arguments.kubelet_client_key),
        node_groups=tuple(groups),
    )
    path: Path = arguments.credentials_folder / f"{arguments.name}.kubeconfig"
    token = _known_token(path) or secrets.token_hex(16)
    programs = _read_programs(arguments.pod_programs)
    async with AsyncExitStack() as exits:
        cluster = await exits.enter_async_context(SimCluster(arguments.name, settings))
        before = _take_saved_state(arguments.state) if arguments.state else None
        if before is None:
            cluster.add_nodes(nodes)
        else:
            cluster.resume_state(before)
        if programs:
            await exits.enter_async_context(PodPrograms(cluster, programs))
        server = SimServer(cluster, token, arguments.host, arguments.port)
        await server.start()
        _write_private(path, msgspec.json.encode(kubeconfig(arguments.name, server.url, token)))
        print(f"{arguments.name} serves {server.url}, kubeconfig {path}", flush=True)
        await stop.wait()
        await server.close()
        if arguments.state:
            _write_private(arguments.state, msgspec.json.encode(cluster.saved_state()))


def _client_certificate(certificate: str, key: str) -> tuple[str, str] | None:
    return (certificate, key) if certificate and key else None


def _read_specs(path: Path | None, kind: type[list[T]]) -> list[T]:
    return msgspec.json.decode(path.read_bytes(), type=kind) if path else []


def _read_programs(path: Path | None) -> dict[str, ProgramSpec]:
    return msgspec.json.decode(path.read_bytes(), type=dict[str, ProgramSpec]) if path else {}


def _take_saved_state(state: Path) -> dict[str, Any] | None:
    """Returns the saved state and deletes its file; None without one.

    It can be used once: a process that is killed saves nothing, and the next one must not go on with an older state.
    """
    try:
        content: dict[str, Any] = msgspec.json.decode(state.read_bytes())
    except FileNotFoundError:
        return None
    state.unlink()
    return content


def _known_token(path: Path) -> str:
    """Returns the token of an earlier run, so that clients that read the kubeconfig once go on after a restart."""
    try:
        return str(msgspec.json.decode(path.read_bytes())["users"][0]["user"]["token"])
    except (OSError, msgspec.DecodeError, LookupError, TypeError):
        return ""


def _write_private(path: Path, body: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(body)
    draft.replace(path)


if __name__ == "__main__":
    main()
