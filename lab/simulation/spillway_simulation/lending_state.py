"""What members hold of lent nodes, read from their stores and not through the services."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sim.cluster import SimCluster
from sim.core.kinds import Object
from spillway.lending_marks import CREATED, LENDING, LENT_CLUSTER, LENT_NODE, POOL_UID, read_loan
from spillway.model import Generation

OWNED = ""
ENDED = ("Succeeded", "Failed")

Real = tuple[str, str]
"""The owner and its node."""


@dataclass(frozen=True, slots=True)
class Register:
    """What a node says of its loan. state: the value of our taint, empty: none."""

    state: str
    loan: Generation | None


@dataclass(frozen=True, slots=True)
class Virtual:
    """A virtual node. open: pods may be bound to it."""

    name: str
    loan: Generation | None
    open: bool


def objects_by_key(cluster: SimCluster, plural: str) -> Mapping[tuple[str, str], Object]:
    """As the store has it, not a copy: nothing here changes it."""
    found: Mapping[tuple[str, str], Object] = cluster.control_plane.world.store.tables[plural]
    return found


def register_of(node: Object | None) -> Register | None:
    """None: there is no such node."""
    if node is None:
        return None
    taints = (node.get("spec") or {}).get("taints") or ()
    state = next((one.get("value") or "" for one in taints if one["key"] == LENDING), OWNED)
    return Register(state, read_loan(node["metadata"].get("annotations") or {}))


def lent_node_of(node: Object) -> Real | None:
    """Which node of whom a virtual node stands for; None: it is none."""
    labels = node["metadata"].get("labels") or {}
    return (labels[LENT_CLUSTER], labels.get(LENT_NODE, "")) if LENT_CLUSTER in labels else None


def parse_virtual_node(node: Object) -> Virtual:
    amounts = (node.get("status") or {}).get("allocatable") or {}
    is_open = not (node.get("spec") or {}).get("unschedulable") and amounts.get("cpu", "0") != "0"
    return Virtual(node["metadata"]["name"], read_loan(node["metadata"].get("annotations") or {}), is_open)


def iterate_virtual_nodes(pool: SimCluster) -> Iterator[tuple[Real, Virtual]]:
    for node in objects_by_key(pool, "nodes").values():
        real = lent_node_of(node)
        if real is not None:
            yield real, parse_virtual_node(node)


def pods_on_node(cluster: SimCluster, node: str) -> Iterator[Object]:
    """That are bound to it and have not ended."""
    for pod in objects_by_key(cluster, "pods").values():
        if pod["spec"].get("nodeName") == node and (pod.get("status") or {}).get("phase") not in ENDED:
            yield pod


def is_real_pod(pod: Mapping[str, Any]) -> bool:
    """Of the pool's, in its owner."""
    return POOL_UID in (pod["metadata"].get("labels") or {})


def is_daemon(pod: Mapping[str, Any]) -> bool:
    return any(one["kind"] == "DaemonSet" for one in pod["metadata"].get("ownerReferences") or ())


def has_had_real_pod(pod: Mapping[str, Any]) -> bool:
    """Of a pool pod: a real one was there once."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one["type"] == CREATED and one["status"] == "True" for one in conditions)
