"""What templates name, made and deleted by hand in members; and at the end, whether who waits for it waits rightly."""

import asyncio
import json
from collections.abc import Iterator

from planner.service import Planner
from sim.cluster import SimCluster
from spillway_simulation.brownfield import NAMESPACE, request_by_hand
from spillway_simulation.oracle import Known
from spillway_simulation.script import Change
from spillway_simulation.world import World

Things = tuple[tuple[str, str], ...]
"""(kind, name)."""

PLACES = {
    "Secret": ("secrets", f"/api/v1/namespaces/{NAMESPACE}/secrets"),
    "ConfigMap": ("configmaps", f"/api/v1/namespaces/{NAMESPACE}/configmaps"),
    "ServiceAccount": ("serviceaccounts", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"),
    "PriorityClass": ("priorityclasses", "/apis/scheduling.k8s.io/v1/priorityclasses"),
}
API_VERSIONS = {"PriorityClass": "scheduling.k8s.io/v1"}
CLUSTER_WIDE = ("PriorityClass",)


class Hands:
    """Somebody who makes and deletes them in members, past the services."""

    def __init__(self, world: World) -> None:
        self._world = world

    def create_first_objects(self) -> None:
        """What is there before anything is asked; the namespace is, too, as whoever makes a Secret needs it."""
        assert self._world.script.dependencies is not None
        for change in self._world.script.dependencies.first:
            self._carry_out_change(change)

    async def run(self) -> None:
        assert self._world.script.dependencies is not None
        begun = self._world.loop.time()
        for change in self._world.script.dependencies.changes:
            await asyncio.sleep(max(0.0, begun + change.at - self._world.loop.time()))
            self._carry_out_change(change)

    def _carry_out_change(self, change: Change) -> None:
        cluster, (_, path) = self._world.clusters[change.cluster], PLACES[change.kind]
        self._world.oracle.note_in_trace(f"by hand {change}")
        if not change.there:
            request_by_hand(cluster, "DELETE", f"{path}/{change.name}")
            return
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        request_by_hand(cluster, "POST", "/api/v1/namespaces", namespace)
        metadata = {"name": change.name} | ({} if change.kind in CLUSTER_WIDE else {"namespace": NAMESPACE})
        made = {"apiVersion": API_VERSIONS.get(change.kind, "v1"), "kind": change.kind, "metadata": metadata}
        request_by_hand(cluster, "POST", path, made | ({"value": 0} if change.kind == "PriorityClass" else {}))


def manifest_naming_objects(manifest: str, things: Things) -> str:
    """The manifest of a Deployment whose template names these."""
    if not things:
        return manifest
    found = json.loads(manifest)
    pod = found["spec"]["template"]["spec"]
    for kind, name in things:
        match kind:
            case "ServiceAccount":
                pod["serviceAccountName"] = name
            case "PriorityClass":
                pod["priorityClassName"] = name
            case "ConfigMap":
                pod.setdefault("volumes", []).append({"name": name, "configMap": {"name": name}})
            case _:
                pod["containers"][0].setdefault("envFrom", []).append({"secretRef": {"name": name}})
    return json.dumps(found)


def lacks_any_object(cluster: SimCluster, things: Things) -> bool:
    """Whether it has not all of them, as its store says."""
    return any(
        cluster.get_object(PLACES[kind][0], name, "" if kind in CLUSTER_WIDE else NAMESPACE) is None
        for kind, name in things
    )


# ── When all is over ────────────────────────────────────────────────────────────────────────────────────────────────


def is_any_object_named(text: str, things: Things) -> bool:
    """Whether a text says that one of them is missing."""
    return any(name in text and kind in text for kind, name in things)


def find_unresolved_waits(world: World, planner: Planner, known: Known, things: Things) -> Iterator[str]:
    """Yields a sentence for each part that waits for what is there, is silent about it, or reserves a place."""
    assert known.declared is not None
    assert known.placement is not None
    declared, placement = known.declared, known.placement
    lacking = {name for name, cluster in world.clusters.items() if lacks_any_object(cluster, things)}
    workload = planner.state.workloads[declared.namespace, declared.name]
    waits = [part for part in placement.parts if part.missing]
    for part in waits:
        if part.cluster not in lacking:
            yield f"{declared.name} in {part.cluster}: waits for {part.missing}, which is there"
    if waits and not is_any_object_named(placement.waiting_for, things):
        yield f"{declared.name}: waits for {things} in {sorted(lacking)}, and says {placement.waiting_for!r}"
    for part in placement.parts:
        found = planner.state.reservation_of((declared.namespace, declared.name), part.cluster)
        # A template that was given to a cluster keeps its surge there (P4, ADR 26).
        if part.cluster in lacking and found.free + found.new > workload.template_of(part).surge_of(part.replicas):
            yield f"{declared.name} in {part.cluster}: {found.free + found.new} places reserved for what is missing"
