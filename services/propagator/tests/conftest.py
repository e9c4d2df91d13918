"""A fleet for the propagator's tests: the bus in memory, simulated clusters, virtual time."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Self

import pytest

from propagator.service import Propagator
from propagator.settings import PropagatorSettings
from sim.cluster import SimCluster
from sim.rest import SimTransport
from sim.settings import NodeSpec
from spillway.addresses import PLACEMENTS, SHAPES, WORKLOAD_STATUS, Tombstone, workload_address
from spillway.bus import BusUnavailable, Position, Record, Traces
from spillway.clusters.api import CONFIG_MAPS, DEPLOYMENTS, SECRETS, ClusterApi, ClusterApiSettings, Response
from spillway.events import (
    ClusterJoined,
    DependencyDeclared,
    Event,
    PlacementDecided,
    ShapeAdmitted,
    TurnTaken,
    WorkloadDeclared,
    WorkloadObserved,
)
from spillway.kubernetes.objects import Kind
from spillway.local_bus import LocalBroker, LocalBus
from spillway.model import Generation, ObjectReference, Part, Policy

FLEET = "f1"
Refusal = Callable[[str, str, bytes | None], Response | None]


class WatchfulTransport(SimTransport):
    """The simulated API, with what was asked of it, and answers of one's own in its place."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self.writes: list[tuple[str, str]] = []
        self.tried: list[dict[str, Any]] = []
        self.reads = 0
        self.instead: Refusal = lambda method, path, body: None

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Response:
        if method == "GET":
            self.reads += 1
        elif params.get("dryRun") == "All":
            self.tried.append(json.loads(body or b"{}"))
        else:
            self.writes.append((method, path))
        return self.instead(method, path, body) or await super().request(
            method, path, params, body, content_type, accept
        )


class MemberBus(LocalBus):
    """An instance's log. takes_nothing: it is read and not written, as where too few brokers have the newest."""

    takes_nothing = False

    async def publish(self, *events: Event | Tombstone, traces: Traces | None = None) -> tuple[Position, ...]:
        if self.takes_nothing:
            raise BusUnavailable("not enough replicas are in sync")
        return await super().publish(*events, traces=traces)


class Fleet:
    """Two clusters, own-1 and own-2: the log, the clusters' objects, the statuses. No propagator runs yet."""

    broker: LocalBroker
    planner: LocalBus

    def __init__(self) -> None:
        self.clusters: dict[str, SimCluster] = {}
        self.transports: dict[str, WatchfulTransport] = {}
        self.buses: dict[str, MemberBus] = {}
        self.said: list[Record] = []
        self.said_of_shapes: list[Record] = []
        self._generations: dict[str, int] = {}
        self._instances: dict[str, tuple[Propagator, asyncio.Event, asyncio.Task[None]]] = {}

        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.broker = LocalBroker()
        self.planner = LocalBus(self.broker, FLEET, "planner")
        for name in ("own-1", "own-2"):
            await self.add_cluster(name)
        listener = asyncio.create_task(self.collect_records())
        self._stack.callback(listener.cancel)
        return self

    async def __aexit__(self, *_: object) -> None:
        for instance in tuple(self._instances):
            await self.stop(instance)
        await self._stack.aclose()

    # ── Clusters ──

    async def add_cluster(self, name: str) -> SimCluster:
        cluster = await self._stack.enter_async_context(SimCluster(name))
        cluster.add_nodes([NodeSpec(f"{name}-", 3)])
        self.clusters[name] = cluster
        await self.planner.publish(ClusterJoined(name, name, f"https://{name}", "own", "", "", (), ()))
        return cluster

    def user_api(self, name: str, manager: str = "kubectl") -> ClusterApi:
        """Somebody else's access to a cluster."""
        settings = ClusterApiSettings(field_manager=manager)
        return ClusterApi(SimTransport(self.clusters[name]), name, settings, random=Random(1))

    def connect_cluster(self, joined: ClusterJoined) -> ClusterApi:
        transport = self.transports[joined.cluster] = WatchfulTransport(self.clusters[joined.cluster])
        return ClusterApi(transport, joined.cluster, ClusterApiSettings(), random=Random(0))

    def deployment(self, cluster: str, name: str = "web", namespace: str = "default") -> dict[str, Any] | None:
        return self.clusters[cluster].get_object("deployments", name, namespace)

    def deployment_replicas(self, cluster: str, name: str = "web") -> int:
        found = self.deployment(cluster, name)
        return -1 if found is None else int(found["spec"]["replicas"])

    async def add_config_map(self, cluster: str, name: str, namespace: str = "default") -> None:
        await self._create_object(cluster, CONFIG_MAPS, "ConfigMap", name, namespace)

    async def add_secret(self, cluster: str, name: str, namespace: str = "default") -> None:
        await self._create_object(cluster, SECRETS, "Secret", name, namespace)

    async def _create_object(self, cluster: str, kind: Kind, word: str, name: str, namespace: str) -> None:
        metadata = {"name": name, "namespace": namespace}
        await self.user_api(cluster).create(kind, {"apiVersion": "v1", "kind": word, "metadata": metadata})

    async def scale_by_hand(self, cluster: str, replicas: int) -> None:
        """As another manager of spec.replicas would."""
        metadata = {"name": "web", "namespace": "default"}
        manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": replicas}}
        await self.user_api(cluster, "hpa").apply(DEPLOYMENTS, manifest, resource_version="", force=True)

    # ── The planner ──

    async def declare_workload(
        self,
        *,
        name: str = "web",
        namespace: str = "default",
        pod: Mapping[str, Any] | None = None,
        dependencies: tuple[DependencyDeclared, ...] = (),
        manifest: Mapping[str, Any] | None = None,
    ) -> int:
        """Returns the generation. manifest: a whole one, of any kind, in place of a Deployment."""
        whole = deployment_manifest(name, pod) if manifest is None else manifest
        generation = self._generations.get(name, 0) + 1
        self._generations[name] = generation
        references = tuple(ObjectReference(one.kind, one.namespace, one.name) for one in dependencies)
        await self.planner.publish(
            WorkloadDeclared(
                namespace=namespace,
                name=name,
                kind=whole["kind"],
                generation=generation,
                template_generation=generation,
                manifest=json.dumps(whole).encode(),
                replicas=0,
                policy=Policy((), (), "Wait"),
                dependencies=references,
                rolling_from=(),
                answered=(),
                deleting=False,
            ),
            *dependencies,
        )
        return generation

    async def publish_placement(
        self,
        sequence: int,
        replicas_by_cluster: Mapping[str, int],
        *,
        removing: tuple[str, ...] = (),
        name: str = "web",
        namespace: str = "default",
        missing: tuple[ObjectReference, ...] = (),
    ) -> None:
        """One placement whose parts all have the version 1.sequence."""
        version = Generation(1, sequence)
        counts = replicas_by_cluster.items()
        parts = [Part(cluster, version, count, 0, count, False, missing=missing) for cluster, count in counts]
        parts += [Part(cluster, version, 0, 0, 0, True) for cluster in removing]
        generation = self._generations.get(name, 1)
        await self.planner.publish(PlacementDecided(namespace, name, version, generation, tuple(parts), 0, ""))

    async def delete_placement(self, name: str = "web", namespace: str = "default") -> None:
        await self.planner.publish(Tombstone(workload_address(PLACEMENTS, namespace, name)))

    # ── Propagators ──

    async def start(self, instance: str = "p1", settings: PropagatorSettings | None = None) -> Propagator:
        bus = self.buses[instance] = MemberBus(self.broker, FLEET, instance)
        propagator = Propagator(bus, self.connect_cluster, settings or PropagatorSettings(), instance)
        stopping = asyncio.Event()
        task = asyncio.create_task(propagator.run(stopping))
        self._instances[instance] = propagator, stopping, task
        return propagator

    async def stop(self, instance: str = "p1") -> None:
        _, stopping, task = self._instances.pop(instance)
        stopping.set()
        await task

    async def kill_instance(self, instance: str = "p1") -> None:
        """As a crash: nothing is finished, and its turns go to others."""
        _, _, task = self._instances.pop(instance)
        task.cancel()
        await asyncio.wait([task])
        self.broker.remove_memberships(self.buses[instance])

    # ── What was said ──

    async def collect_records(self) -> None:
        async with LocalBus(self.broker, FLEET, "listener").follow_topics((WORKLOAD_STATUS, SHAPES)) as feed:
            async for batch in feed:
                for record in batch.records:
                    (self.said_of_shapes if record.topic == SHAPES.name else self.said).append(record)

    def status_records(self, cluster: str = "own-1", name: str = "web") -> list[WorkloadObserved]:
        events = (record.event for record in self.said)
        return [e for e in events if isinstance(e, WorkloadObserved) and (e.cluster, e.name) == (cluster, name)]

    def last_status(self, cluster: str = "own-1", name: str = "web") -> WorkloadObserved | None:
        return (self.status_records(cluster, name) or [None])[-1]  # type: ignore[list-item]

    def last_state_and_version(self, cluster: str = "own-1", name: str = "web") -> tuple[str, str, str]:
        """(state, version, message) as said last."""
        status = self.last_status(cluster, name)
        return (status.state, str(status.version), status.message) if status else ("", "", "")

    def shape_records(self, cluster: str = "own-1") -> list[ShapeAdmitted]:
        events = (record.event for record in self.said_of_shapes)
        return [event for event in events if isinstance(event, ShapeAdmitted) and event.cluster == cluster]

    def turn_claims(self) -> list[TurnTaken]:
        events: list[Event | None] = [record.event for record in self.said]
        return [event for event in events if isinstance(event, TurnTaken)]


def deployment_manifest(name: str, pod: Mapping[str, Any] | None = None) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "app:1",
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        **(pod or {}),
    }
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template},
    }


@pytest.fixture
def fleet() -> Fleet:
    """Not open yet: `async with` it in the test, so that all of its time is the test's virtual time."""
    return Fleet()
