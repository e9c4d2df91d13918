"""What ran in members before anything was asked: made as somebody's kubectl would, and scaled by it later on."""

import json
from collections.abc import Iterator
from typing import Any

from sim.cluster import SimCluster
from sim.core.requests import Request
from spillway_local.fleet_plan import deployment
from spillway_simulation import members
from spillway_simulation.script import Found

NAMESPACE = "shop"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
PLANTED_VERSION = "0.1"
TAKES_OVER = ("adopt", "recover")


def request_by_hand(cluster: SimCluster, method: str, path: str, body: Any = None) -> None:
    """What somebody with kubectl does, past the services and past the oracle."""
    cluster.advance_clock()
    content = json.dumps(body).encode() if body is not None else None
    params = {"fieldManager": "kubectl"} if method == "PATCH" else {}
    type(cluster.api).answer_request(
        cluster.api, Request(method, path, params, content, "application/merge-patch+json")
    )


def scale_by_hand(cluster: SimCluster, name: str, replicas: int) -> None:
    request_by_hand(cluster, "PATCH", f"{DEPLOYMENTS}/{name}", {"spec": {"replicas": replicas}})


def plant_deployment(cluster: SimCluster, found: Found) -> None:
    """Creates the Deployment in this cluster if it is one of those that have it."""
    replicas = dict(found.replicas).get(cluster.name)
    if replicas is None:
        return
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    request_by_hand(cluster, "POST", "/api/v1/namespaces", namespace)
    manifest = json.loads(deployment(found.name, NAMESPACE, replicas, cpu=f"{found.cpu}m", memory="64Mi"))
    if found.fleet:
        manifest["metadata"]["labels"] = {members.FLEET_LABEL: found.fleet, members.WORKLOAD_LABEL: found.name}
        manifest["metadata"]["annotations"] = {members.PLACEMENT: PLANTED_VERSION}
    request_by_hand(cluster, "POST", DEPLOYMENTS, manifest)


def find_changed_objects(clusters: dict[str, SimCluster], untouched: dict[tuple[str, str], str]) -> Iterator[str]:
    """Yields a text for each object that nobody may touch and that changed. untouched: its text by cluster and name."""
    for (member, name), was in untouched.items():
        if marks_and_spec_of(clusters[member], name) != was:
            yield f"{name} in {member}: nobody asked for it, and it is not as it was"


def marks_and_spec_of(cluster: SimCluster, name: str) -> str:
    """Returns what only a write could change of an object, as a text: its uid, its marks and its spec."""
    found = cluster.get_object("deployments", name, NAMESPACE)
    if found is None:
        return ""
    metadata = found["metadata"]
    noted = {name: said for name, said in (metadata.get("annotations") or {}).items() if "spillway" in name}
    return json.dumps([metadata["uid"], metadata.get("labels"), noted, found["spec"]])
