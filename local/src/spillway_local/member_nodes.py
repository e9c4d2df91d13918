"""Describes a member's fake nodes and creates them through its API."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp

from spillway.http_client import open_session
from spillway_local.member_credentials import MemberAccess
from spillway_local.tools import NotReady

_CONNECTIONS = 16
_REQUEST_TIMEOUT_SECONDS = 30.0
_POLL_SECONDS = 0.25
_DEFAULT_LABELS = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}


class NodeRefused(RuntimeError):
    """The member's API refused a node."""


@dataclass(frozen=True, slots=True)
class NodeTaint:
    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class MemberNodes:
    """A number of equal nodes, named `<name_prefix>-1` and so on."""

    count: int
    name_prefix: str
    cpu_millis: int
    memory_bytes: int
    pods: int = 110
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[NodeTaint, ...] = ()

    def names(self) -> list[str]:
        return [f"{self.name_prefix}-{number}" for number in range(1, self.count + 1)]


def node_object(name: str, spec: MemberNodes) -> dict[str, Any]:
    """Returns a Kubernetes node that kwok takes care of."""
    resources = {"cpu": f"{spec.cpu_millis}m", "memory": str(spec.memory_bytes), "pods": str(spec.pods)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"},
            "labels": {**_DEFAULT_LABELS, "kubernetes.io/hostname": name, **spec.labels},
        },
        "spec": {"taints": [asdict(taint) for taint in spec.taints]},
        "status": {"allocatable": resources, "capacity": resources},
    }


def write_nodes_file(file: Path, specs: Sequence[MemberNodes]) -> None:
    """Writes the description of the nodes as JSON, for a simulated member."""
    described = [asdict(spec) | {"labels": dict(spec.labels)} for spec in specs]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(described, indent=2) + "\n")


def read_nodes_file(file: Path) -> tuple[MemberNodes, ...]:
    return tuple(
        MemberNodes(**{**spec, "taints": tuple(NodeTaint(**taint) for taint in spec.get("taints", ()))})
        for spec in json.loads(file.read_text())
    )


async def create_nodes(access: MemberAccess, specs: Sequence[MemberNodes], timeout_seconds: float = 60.0) -> None:
    """Creates the nodes that are missing, and waits until all of them are Ready."""
    timeout = aiohttp.ClientTimeout(total=_REQUEST_TIMEOUT_SECONDS)
    async with open_session(
        _CONNECTIONS, timeout, tls=access.ssl_context(), base_url=access.server, headers=access.headers
    ) as session:
        nodes = [node_object(name, spec) for spec in specs for name in spec.names()]
        await asyncio.gather(*(_create_node(session, node) for node in nodes))
        await _wait_ready(session, {node["metadata"]["name"] for node in nodes}, timeout_seconds)


async def _create_node(session: aiohttp.ClientSession, node: dict[str, Any]) -> None:
    async with session.post("/api/v1/nodes", json=node) as response:
        if response.status not in {HTTPStatus.CREATED, HTTPStatus.CONFLICT}:
            raise NodeRefused(f"{node['metadata']['name']}: {response.status} {await response.text()}")


async def _wait_ready(session: aiohttp.ClientSession, names: set[str], timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
    while missing := names - await _ready_nodes(session):
        if time.monotonic() > deadline:
            raise NotReady(f"{len(missing)} nodes not Ready after {timeout_seconds:.0f} s, {min(missing)} among them")
        await asyncio.sleep(_POLL_SECONDS)


async def _ready_nodes(session: aiohttp.ClientSession) -> set[str]:
    async with session.get("/api/v1/nodes", params={"resourceVersion": "0"}) as response:
        response.raise_for_status()
        listed = await response.json()
    return {node["metadata"]["name"] for node in listed["items"] if _is_usable(node)}


def _is_usable(node: dict[str, Any]) -> bool:
    """Returns whether the node is Ready and no longer has the not-ready taint of a new node."""
    taints = {taint["key"] for taint in node["spec"].get("taints", ())}
    conditions = node["status"].get("conditions", ())
    is_ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return is_ready and "node.kubernetes.io/not-ready" not in taints
