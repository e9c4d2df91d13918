"""What a simulated member holds, read from its store and not through the services."""

from collections.abc import Iterable, Mapping
from typing import Any

from sim.cluster import SimCluster
from sim.core.kinds import Object
from sim.core.node_table import NodeRecord
from sim.core.quantity import parse_amount
from spillway.lending_marks import LENDING, POOL_TAINT
from spillway.model import NO_GENERATION, Generation
from spillway_local.in_process import FLEET_ID

FLEET_LABEL = "spillway.io/fleet"
WORKLOAD_LABEL = "spillway.io/workload"
PLACEMENT = "spillway.io/placement"


def version_of(found: Mapping[str, Any]) -> Generation:
    epoch, _, sequence = ((found["metadata"].get("annotations") or {}).get(PLACEMENT) or "").partition(".")
    return Generation(int(epoch), int(sequence)) if epoch and sequence else NO_GENERATION


def fleet_of(found: Mapping[str, Any]) -> str:
    return str((found["metadata"].get("labels") or {}).get(FLEET_LABEL, ""))


def is_of_our_fleet(found: Mapping[str, Any]) -> bool:
    return fleet_of(found) == FLEET_ID


def replica_cpu_millis(deployment: Mapping[str, Any]) -> int:
    """Thousandths of a core that one replica asks for."""
    return pod_cpu_millis(deployment["spec"]["template"]["spec"])


def pod_cpu_millis(spec: Mapping[str, Any]) -> int:
    return sum(parse_amount("cpu", one["resources"]["requests"]["cpu"]) for one in spec["containers"])


def allocatable_cpu_millis(cluster: SimCluster) -> int:
    """Of nodes that are not lent to others."""
    records = cluster.control_plane.table.record_by_name.values()
    return sum(record.allocatable.get("cpu", 0) for record in records if not is_lent_node(record))


def is_lent_node(record: NodeRecord) -> bool:
    """Whether it is lent to a pool, or being checked for it or on its way back."""
    return any(key == LENDING for key, _, _ in record.taints)


def _may_take_pods(record: NodeRecord) -> bool:
    """Whether pods that tolerate nothing may be bound to it."""
    return not record.unschedulable and not any(key in (LENDING, POOL_TAINT) for key, _, _ in record.taints)


def room_for_pods(cluster: SimCluster, cpu: int, without: Iterable[Object] = ()) -> int:
    """How many more pods of so much cpu its nodes would take now, or without some that run there."""
    return sum(room_of_each_node(cluster, cpu, without))


def room_of_each_node(cluster: SimCluster, cpu: int, without: Iterable[Object] = ()) -> list[int]:
    """The same of each of its nodes."""
    records = {
        name: max(0, record.free.get("cpu", 0))
        for name, record in cluster.control_plane.table.record_by_name.items()
        if _may_take_pods(record)
    }
    for pod in without:
        node = pod["spec"].get("nodeName")
        if node in records:
            records[node] += pod_cpu_millis(pod["spec"])
    return [free // cpu for free in records.values()]


def largest_free_cpu_millis(cluster: SimCluster) -> int:
    """The most cpu that is free on any one node."""
    return max((record.free.get("cpu", 0) for record in cluster.control_plane.table.record_by_name.values()), default=0)


def pods_of(cluster: SimCluster, namespace: str, name: str) -> list[Object]:
    """The pods of a Deployment that are not ending."""
    return [
        pod
        for pod in cluster.objects("pods", namespace)
        if pod["metadata"]["labels"].get("app") == name and "deletionTimestamp" not in pod["metadata"]
    ]


def is_bound(pod: Mapping[str, Any]) -> bool:
    return bool(pod["spec"].get("nodeName"))
