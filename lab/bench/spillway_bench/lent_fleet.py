"""Uses a pool and its owners over plain HTTP, as their own users do, and measures baselines without Spillway."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import aiohttp

from spillway.clusters.credentials import Endpoint
from spillway.kubernetes.objects import NODE_LEASES
from spillway.lending_marks import POOL_TAINT, POOL_UID

from .big_member import NODE_PREFIX
from .figures import Unmeasured

POOL: Final = "pool-1"
NAMESPACE: Final = "bench-lending"
NEED_CPU: Final = "20"
"""The CPU request of an owner's pod. A node of 32 cores has room for one."""
GRACE_SECONDS: Final = 30
BARE_GRACE_SECONDS: Final = 5
IGNORES_GRACE: Final = {"sim/stop-seconds": "3600"}
"""Annotations with which a deleted pod runs until its grace period is over."""
NEVER_STARTS: Final = {"sim/start-seconds": "never"}
_POLL_SECONDS: Final = 0.05
_LATE_SECONDS: Final = 60.0
_MERGE: Final = {"Content-Type": "application/merge-patch+json"}


def owner_name(number: int) -> str:
    return f"owner-{number + 1}"


@dataclass(frozen=True, slots=True)
class Member:
    """One cluster's API over plain HTTP."""

    session: aiohttp.ClientSession
    server: str

    async def send_request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        headers = _MERGE if method == "PATCH" else {}
        async with self.session.request(method, f"{self.server}{path}", json=body, headers=headers) as answer:
            answer.raise_for_status()
            return await answer.json()

    async def create_namespace(self) -> None:
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        await self.send_request("POST", "/api/v1/namespaces", manifest)

    async def create_deployment(self, name: str, replicas: int, pod: Mapping[str, Any], cpu: str = "1") -> None:
        """Creates a Deployment. pod: the fields of its pod template that differ between Deployments."""
        labels = {"app": name}
        container = {
            "name": "main",
            "image": "registry.example/app:1",
            "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}},
        }
        template = {
            "metadata": {"labels": labels, **pod.get("metadata", {})},
            "spec": {"containers": [container], **pod.get("spec", {})},
        }
        manifest = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
        }
        await self.send_request("POST", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", manifest)

    async def renewal_time_by_node(self) -> dict[str, datetime]:
        """Returns the time of the last renewal of each node's Lease, by node name."""
        found = await self.send_request("GET", f"/apis/coordination.k8s.io/v1/namespaces/{NODE_LEASES}/leases")
        return {one["metadata"]["name"]: datetime.fromisoformat(one["spec"]["renewTime"]) for one in found["items"]}


@asynccontextmanager
async def open_member(endpoint: Endpoint) -> AsyncIterator[Member]:
    connector = aiohttp.TCPConnector(limit=32)
    headers = {"Authorization": f"Bearer {endpoint.token}"}
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:
        yield Member(session, endpoint.server)


POOL_POD: Final[Mapping[str, Any]] = {
    "metadata": {"annotations": IGNORES_GRACE},
    "spec": {
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "tolerations": [{"key": POOL_TAINT, "operator": "Exists"}],
        "nodeSelector": {"type": "virtual-kubelet"},
    },
}

# ── Baselines without Spillway ──────────────────────────────────────────────────────────────────────────────────────

SeenAt = Callable[[str], float]
"""Returns the time at which a watch first showed the awaited change of the pod with this mark; 0: not yet."""


@dataclass(slots=True)
class BarePods:
    """Creates pods that are bound from the start, each on the next node of one owner. Watches know them by a mark."""

    owner: Member
    nodes: int
    made: int = 0

    async def create_pod(self, mark: str, annotations: Mapping[str, str]) -> None:
        node = f"{NODE_PREFIX}{self.made % self.nodes}"
        self.made += 1
        container = {"name": "main", "image": "registry.example/app:1"}
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": mark, "labels": {POOL_UID: mark}, "annotations": dict(annotations)},
            "spec": {
                "nodeName": node,
                "terminationGracePeriodSeconds": BARE_GRACE_SECONDS,
                "containers": [container],
            },
        }
        await self.owner.send_request("POST", self._pod_path(), manifest)

    async def set_pod_running(self, mark: str) -> None:
        await self.owner.send_request("PATCH", f"{self._pod_path(mark)}/status", {"status": {"phase": "Running"}})

    async def delete_pod(self, mark: str, grace_seconds: int) -> None:
        await self.owner.send_request("DELETE", f"{self._pod_path(mark)}?gracePeriodSeconds={grace_seconds}")

    @staticmethod
    def _pod_path(name: str = "") -> str:
        return f"/api/v1/namespaces/{NAMESPACE}/pods" + (f"/{name}" if name else "")


async def time_writes_until_seen(
    marks: list[str], per_second: float, write: Callable[[str], Awaitable[None]], seen_at: SeenAt
) -> list[float]:
    """Returns the seconds from the time at which each write was due until a watch showed it.

    A write does not wait for earlier ones.
    """
    begin, due = time.monotonic() + 0.1, dict[str, float]()

    async def write_when_due(number: int, mark: str) -> None:
        due[mark] = begin + number / per_second
        await asyncio.sleep(max(0.0, due[mark] - time.monotonic()))
        await write(mark)

    await asyncio.gather(*(write_when_due(number, mark) for number, mark in enumerate(marks)))
    await wait_until_all_seen(marks, seen_at)
    return [seen_at(mark) - due[mark] for mark in marks]


async def wait_until_all_seen(marks: list[str], seen_at: SeenAt) -> None:
    deadline = time.monotonic() + _LATE_SECONDS
    while not all(seen_at(mark) for mark in marks):
        if time.monotonic() > deadline:
            raise Unmeasured(f"not all of {len(marks)} bare writes were seen within {_LATE_SECONDS:.0f} s")
        await asyncio.sleep(_POLL_SECONDS)


async def bare_lease_cpu_percent(pool: Member, per_second: float, seconds: float) -> float:
    """Returns the percentage of one core that this process uses to renew Leases at this rate, one after another."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{NODE_LEASES}/leases"
    names = [f"bench-{number}" for number in range(100)]
    for name in names:
        manifest = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {}}
        await pool.send_request("POST", path, manifest)
    began, cpu, number = time.monotonic(), time.process_time(), itertools.count()
    while time.monotonic() - began < seconds:
        at = next(number)
        await asyncio.sleep(max(0.0, began + at / per_second - time.monotonic()))
        renewed = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec = {"renewTime": renewed, "holderIdentity": "bench", "leaseDurationSeconds": 40}
        await pool.send_request("PATCH", f"{path}/{names[at % len(names)]}", {"spec": spec})
    spent = 100 * (time.process_time() - cpu) / (time.monotonic() - began)
    for name in names:
        await pool.send_request("DELETE", f"{path}/{name}")
    return spent * per_second * seconds / next(number)
