"""Small objects as the API says them, a reader of the capacity stream, and a fleet for the service's tests."""

import asyncio
import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Self

import pytest

from sim.cluster import SimCluster
from sim.rest import SimTransport
from sim.settings import NodeSpec
from snapshot.service import Snapshot
from snapshot.settings import SnapshotSettings
from spillway.addresses import CAPACITY, CAPACITY_CHANGES, PENDING, Tombstone
from spillway.addresses import PODS as PODS_TOPIC
from spillway.bus import Position, Record, Traces
from spillway.clusters.api import ClusterApi, ClusterApiSettings
from spillway.columns import rows_of
from spillway.events import CapacityChanged, CapacityReported, ClusterJoined, Event, TurnTaken
from spillway.events_scaling import PodsObserved
from spillway.kubernetes.objects import (
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICASETS,
    RESOURCE_QUOTAS,
    STATEFULSETS,
    object_decoder,
)
from spillway.local_bus import LocalBroker, LocalBus
from spillway.model import NodeRow, WorkloadFacts
from spillway.wire import unpack_columns

FLEET = "f1"
HOUR = 3600.0


class Objects:
    """The API's objects, decoded as the reflector decodes them."""

    @staticmethod
    def node(name: str, cpu: str = "4", pods: str = "110", **spec: Any) -> Any:
        labels = spec.pop("labels", {"kubernetes.io/hostname": name})
        allocatable = {"cpu": cpu, "memory": "8Gi", "pods": pods, **spec.pop("allocatable", {})}
        return _decode_object(
            NODES, {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": allocatable}}
        )

    @staticmethod
    def pod(uid: str, node: str = "", cpu: str = "500m", **more: Any) -> Any:
        """owner: uid of a ReplicaSet, or of an owner_kind; said: the scheduler's message; phase, labels, ports, …"""
        metadata: dict[str, Any] = {"name": uid, "namespace": more.get("namespace", "default"), "uid": uid}
        hashed = {"pod-template-hash": more.get("hash", "h1")} if more.get("hash", "h1") else {}
        metadata["labels"] = {"app": "web", **hashed, **more.get("labels", {})}
        if owner := more.get("owner", ""):
            metadata["ownerReferences"] = [
                {"kind": more.get("owner_kind", "ReplicaSet"), "name": owner, "uid": owner, "controller": True}
            ]
        if more.get("terminating"):
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        container = {
            "name": "main",
            "resources": {"requests": {"cpu": cpu}},
            "ports": [{"containerPort": port, "hostPort": port} for port in more.get("ports", ())],
        }
        status: dict[str, Any] = {"phase": more.get("phase", "Running" if node else "Pending")}
        if said := more.get("said", ""):
            status["conditions"] = [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
            ]
        if ready := more.get("ready", ""):
            status["startTime"] = "2026-01-01T00:00:00Z"
            status.setdefault("conditions", []).append(
                {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:05Z"}
            )
        spec = {"containers": [container], **({"nodeName": node} if node else {}), **more.get("spec", {})}
        return _decode_object(PODS, {"metadata": metadata, "spec": spec, "status": status})

    @staticmethod
    def namespace(name: str, labels: dict[str, str]) -> Any:
        return _decode_object(NAMESPACES, {"metadata": {"name": name, "uid": f"ns-{name}", "labels": labels}})

    @staticmethod
    def quota(name: str, namespace: str, spec: dict[str, Any], used: dict[str, str]) -> Any:
        metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}"}
        return _decode_object(RESOURCE_QUOTAS, {"metadata": metadata, "spec": spec, "status": {"used": used}})

    @staticmethod
    def replicaset(uid: str, deployment: str = "d1", namespace: str = "default") -> Any:
        owner = {"kind": "Deployment", "name": deployment, "uid": deployment, "controller": True}
        return _decode_object(
            REPLICASETS, {"metadata": {"name": uid, "namespace": namespace, "uid": uid, "ownerReferences": [owner]}}
        )

    @staticmethod
    def deployment(uid: str = "d1", name: str = "web", version: str = "7.3", **more: Any) -> Any:
        return _decode_object(
            DEPLOYMENTS,
            {
                "metadata": {
                    "name": name,
                    "namespace": "default",
                    "uid": uid,
                    "generation": more.get("generation", 1),
                    "labels": {"spillway.io/fleet": more.get("fleet", FLEET)},
                    "annotations": {"spillway.io/placement": version},
                },
                "spec": {"replicas": more.get("replicas", 3)},
                "status": {"observedGeneration": more.get("observed", 1), "replicas": more.get("replicas", 3)},
            },
        )

    @staticmethod
    def statefulset(uid: str = "s1", name: str = "db", version: str = "7.3", **more: Any) -> Any:
        replicas = more.get("replicas", 3)
        status = {"observedGeneration": more.get("observed", 1), "replicas": replicas, "updatedReplicas": replicas}
        metadata = _our_metadata(uid, name, version) | {"generation": more.get("generation", 1)}
        return _decode_object(STATEFULSETS, {"metadata": metadata, "spec": {"replicas": replicas}, "status": status})

    @staticmethod
    def job(uid: str = "j1", name: str = "sum", version: str = "7.3", **status: Any) -> Any:
        """As its controller leaves it: no observedGeneration."""
        manifest = {"metadata": _our_metadata(uid, name, version), "spec": {"parallelism": 4}, "status": status}
        return _decode_object(JOBS, manifest)


def _our_metadata(uid: str, name: str, version: str) -> dict[str, Any]:
    labels, annotations = {"spillway.io/fleet": FLEET}, {"spillway.io/placement": version}
    return {"name": name, "namespace": "default", "uid": uid, "labels": labels, "annotations": annotations}


def _decode_object(kind: Any, manifest: Mapping[str, Any]) -> Any:
    return object_decoder(kind).decode(json.dumps(manifest).encode())


@dataclass
class Reader:
    """What a reader of one cluster's records knows, by the rules of P3; gaps: changes that it had to go without."""

    rows: dict[int, dict[str, NodeRow]] = field(default_factory=dict)
    facts: dict[tuple[str, str], WorkloadFacts] = field(default_factory=dict)
    epoch: int = -1
    gaps: int = 0
    age_ms: int = -1
    trouble: str = ""
    trouble_code: int = 0
    fulls: int = 0
    _sequences: dict[int, int] = field(default_factory=dict)
    _arriving: dict[int, dict[int, CapacityReported]] = field(default_factory=dict)
    _early: list[CapacityChanged] = field(default_factory=list)

    @property
    def row_by_node(self) -> dict[str, NodeRow]:
        return {name: row for block in self.rows.values() for name, row in block.items()}

    def apply_record(self, event: object) -> None:
        if isinstance(event, CapacityReported):
            self._apply_whole_block(event)
        elif isinstance(event, CapacityChanged):
            if event.index == 0 and event.epoch >= self.epoch:
                self.age_ms, self.trouble, self.trouble_code = event.age_ms, event.trouble, event.trouble_code
            if event.epoch > self.epoch:
                self._early.append(event)
            elif event.epoch == self.epoch:
                self._apply_change(event)

    def _apply_whole_block(self, event: CapacityReported) -> None:
        self.fulls += 1
        if event.epoch < self.epoch:
            return
        if event.epoch == self.epoch:
            if event.sequence >= self._sequences[event.index]:
                self._replace_block(event)
            return
        arriving = self._arriving.setdefault(event.epoch, {})
        arriving[event.index] = event
        if len(arriving) == event.count:
            self.epoch, self.rows, self.facts = event.epoch, {}, {}
            self._sequences = {}
            for block in arriving.values():
                self._replace_block(block)
            early, self._early = self._early, []
            for change in early:
                if change.epoch == self.epoch:
                    self._apply_change(change)

    def _replace_block(self, event: CapacityReported) -> None:
        self.rows[event.index] = {row.name: row for row in rows_of(unpack_columns(event.columns))}
        self._sequences[event.index] = event.sequence
        if event.index == 0:
            self.facts = {(one.namespace, one.name): one for one in event.facts}

    def _apply_change(self, event: CapacityChanged) -> None:
        sequence = self._sequences[event.index]
        if event.sequence <= sequence:
            return
        if event.sequence > sequence + 1:
            self.gaps += 1
            return
        self._sequences[event.index] = event.sequence
        for name in event.removed:
            del self.rows[event.index][name]
        self.rows[event.index].update((row.name, row) for row in rows_of(unpack_columns(event.columns)))
        self.facts.update(((one.namespace, one.name), one) for one in event.facts)
        for key in event.facts_removed:
            del self.facts[key]


class LateBus(LocalBus):
    """waits: how many seconds each of the next publishes comes late."""

    def __init__(self, broker: LocalBroker, fleet: str, source: str) -> None:
        super().__init__(broker, fleet, source)
        self.waits: list[float] = []

    async def publish(self, *events: Event | Tombstone, traces: Traces | None = None) -> tuple[Position, ...]:
        if self.waits:
            await asyncio.sleep(self.waits.pop(0))
        return await super().publish(*events, traces=traces)


class Fleet:
    """Simulated members, the bus in memory, and as many instances of the service as a test starts."""

    def __init__(self) -> None:
        self.broker = LocalBroker()
        self.bus = LocalBus(self.broker, FLEET, "test")
        self.clusters: dict[str, SimCluster] = {}
        self.refused: set[str] = set()
        self.said: list[Record] = []
        self.instances: dict[str, tuple[Snapshot, LateBus, asyncio.Event, asyncio.Task[None]]] = {}
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        reading = asyncio.create_task(self._collect_records())
        self._stack.callback(reading.cancel)
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        for name in list(self.instances):
            await self.stop(name)
        await self._stack.aclose()

    async def _collect_records(self) -> None:
        async with self.bus.follow_topics((CAPACITY, CAPACITY_CHANGES, PENDING, PODS_TOPIC)) as feed:
            async for batch in feed:
                self.said += batch.records

    async def join_cluster(self, name: str, nodes: int = 3, credential: str = "") -> SimCluster:
        if name not in self.clusters:
            self.clusters[name] = await self._stack.enter_async_context(SimCluster(name))
            self.clusters[name].add_nodes([NodeSpec(f"{name}-", nodes, cpu_millis=4_000)])
        await self.bus.publish(ClusterJoined(name, credential or name, "", "own", "r", "z", (), ()))
        return self.clusters[name]

    def start(self, name: str, **changed: Any) -> Snapshot:
        bus, stopping = LateBus(self.broker, FLEET, name), asyncio.Event()
        snapshot = Snapshot(bus, self._connect_cluster, SnapshotSettings(**changed), name)
        self.instances[name] = (snapshot, bus, stopping, asyncio.create_task(snapshot.run(stopping)))
        return snapshot

    async def stop(self, name: str) -> None:
        _, _, stopping, task = self.instances.pop(name)
        stopping.set()
        await task

    def _connect_cluster(self, joined: ClusterJoined) -> ClusterApi:
        if joined.credential in self.refused:
            raise OSError(f"{joined.credential}: no such file")
        settings = ClusterApiSettings(request_timeout_seconds=5.0, probe_timeout_seconds=2.0)
        return ClusterApi(SimTransport(self.clusters[joined.cluster]), joined.cluster, settings, random=Random(0))

    def records_of_cluster(self, cluster: str, since: int = 0) -> Iterable[Record]:
        return [record for record in self.said[since:] if record.key.split("/")[0] == cluster]

    def pods_records(self, cluster: str, workload: str = "default/web") -> list[PodsObserved | None]:
        """What was said of the workload's pods; None is a tombstone."""
        found = [record.event for record in self.said if record.key == f"{workload}/{cluster}"]
        return [event for event in found if event is None or isinstance(event, PodsObserved)]

    def events_of_kind(self, cluster: str, kind: type) -> list[Any]:
        return [record.event for record in self.records_of_cluster(cluster) if isinstance(record.event, kind)]

    def reader_of_cluster(self, cluster: str, since: int = 0) -> Reader:
        """since: how many records it was too late for."""
        reader = Reader()
        for record in self.records_of_cluster(cluster, since):
            reader.apply_record(record.event)
        return reader

    def turn_claims(self, cluster: str) -> list[str]:
        return [event.instance for event in self.events_of_kind(cluster, TurnTaken)]


@pytest.fixture(scope="session")
def objects() -> type[Objects]:
    return Objects


@pytest.fixture(scope="session")
def new_reader() -> type[Reader]:
    return Reader


@pytest.fixture
def make_fleet() -> type[Fleet]:
    return Fleet
