"""What a simulated member holds, read from its store and not through the services."""

from collections.abc import Mapping
from typing import Any

from sim.cluster import SimCluster
from sim.core.kinds import Object
from sim.core.quantity import amount_of
from spillway.model import NO_GENERATION, Generation

FLEET_LABEL = "spillway.io/fleet"
PLACEMENT = "spillway.io/placement"


def version_of(found: Mapping[str, Any]) -> Generation:
    epoch, _, sequence = ((found["metadata"].get("annotations") or {}).get(PLACEMENT) or "").partition(".")
    return Generation(int(epoch), int(sequence)) if epoch and sequence else NO_GENERATION


def is_ours(found: Mapping[str, Any]) -> bool:
    return FLEET_LABEL in (found["metadata"].get("labels") or {})


def cpu_of(deployment: Mapping[str, Any]) -> int:
    """Thousandths of a core that one replica asks for."""
    containers = deployment["spec"]["template"]["spec"]["containers"]
    return sum(amount_of("cpu", one["resources"]["requests"]["cpu"]) for one in containers)


def cpu_allocatable(cluster: SimCluster) -> int:
    return sum(record.allocatable.get("cpu", 0) for record in cluster.machine.table.record_by_name.values())


def room_for(cluster: SimCluster, cpu: int) -> int:
    """How many more pods of so much cpu its nodes would take now."""
    records = cluster.machine.table.record_by_name.values()
    return sum(max(0, record.free.get("cpu", 0)) // cpu for record in records if not record.unschedulable)


def pods_of(cluster: SimCluster, namespace: str, name: str) -> list[Object]:
    """The pods of a Deployment that are not ending."""
    return [
        pod
        for pod in cluster.objects("pods", namespace)
        if pod["metadata"]["labels"].get("app") == name and "deletionTimestamp" not in pod["metadata"]
    ]


def is_bound(pod: Mapping[str, Any]) -> bool:
    return bool(pod["spec"].get("nodeName"))
