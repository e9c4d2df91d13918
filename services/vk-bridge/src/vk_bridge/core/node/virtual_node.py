"""Makes and reads virtual nodes by the table "Real node → virtual node" of docs/lending.md.

A pool sees nothing else of the owner's nodes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spillway.amounts import clamp_to_int64
from spillway.kubernetes import objects
from spillway.kubernetes.pod_metrics import unix_ms
from spillway.kubernetes.quantities import parse_quantity
from spillway.lending_marks import (
    COST_PER_HOUR,
    LENDING,
    LENT_CLUSTER,
    LENT_NODE,
    LOAN,
    POD_NAMESPACE_PREFIX,
    POOL,
    POOL_TAINT,
    POOL_UID,
    PREFIX,
    SUPPLY_CLASS,
    loan_text,
    name_within_label_length,
    read_loan,
    virtual_node_name,
)
from spillway.model import HOSTNAME_LABEL, Generation
from vk_bridge.core.node.loan import Manifest, VirtualNode

TYPE_LABEL: Final = ("type", "virtual-kubelet")
"""The label by which tools recognize virtual nodes."""
NO_LOAD_BALANCER_LABEL: Final = "node.kubernetes.io/exclude-from-external-load-balancers"
TRANSIENT_TAINTS: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Prefixes of taints that Kubernetes itself puts on a node; the pool's Kubernetes does so for the virtual node."""
MIRRORED_CONDITIONS: Final = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
MIRRORED_INFO: Final = ("architecture", "operatingSystem", "osImage", "kernelVersion", "kubeletVersion")
ENDED: Final = ("Succeeded", "Failed")
MILLI = 1000


@dataclass(frozen=True, slots=True)
class VirtualNodeSpec:
    """The facts about a loan that its virtual node shows.

    address, port: the kubelet API of the bridge, which pools ask for logs; port 0: the bridge has none.
    """

    cluster: str
    loan: Generation
    supply_class: str
    cost_per_hour: float
    address: str
    port: int


def amounts_taken_by_others(pods: Iterable[objects.Pod], pool_id: str) -> dict[str, int] | None:
    """Returns the total requests of a node's other pods: daemons and the owner's pods. "pods" is their number.

    Pods of this pool do not count. Amounts are in milli-cores for cpu and in the resource's own unit otherwise.
    Returns None if a pod cannot be read.
    """
    taken: dict[str, int] = {}
    for pod in pods:
        labels = pod.metadata.labels
        ours = labels.get(POOL) == pool_id and pod.metadata.namespace.startswith(POD_NAMESPACE_PREFIX)
        if (ours and POOL_UID in labels) or pod.status.phase in ENDED:
            continue
        requests = objects.pod_requests_or_none(pod.spec, pod.status)
        if requests is None:
            return None
        for name, amount in (*requests.items(), ("pods", 1)):
            taken[name] = taken.get(name, 0) + amount
    return taken


def offered_amounts(node: Manifest, taken: Mapping[str, int] | None) -> dict[str, int]:
    """Returns the amounts that pool pods may request: the node's allocatable minus the requests of other pods.

    An unreadable amount counts as 0.
    taken: the result of `amounts_taken_by_others`. With None, all amounts are 0.
    """
    amounts: dict[str, int] = {}
    for name, quantity in ((node.get("status") or {}).get("allocatable") or {}).items():
        try:
            amount = parse_quantity(quantity, milli=name == "cpu")
        except ValueError:
            amount = 0
        amounts[name] = clamp_to_int64(max(0, amount - taken.get(name, 0))) if taken is not None else 0
    return dict(sorted(amounts.items()))


def make_virtual_node(
    node: Manifest, amounts: Mapping[str, int], virtual_spec: VirtualNodeSpec, *, is_open: bool
) -> dict[str, Any]:
    """Returns the virtual node of this real node. amounts: the result of `offered_amounts`.

    A closed virtual node shows 0 of each resource, so that it takes no pod.
    """
    name = node["metadata"]["name"]
    shown = {key: quantity_text(key, amount if is_open else 0) for key, amount in amounts.items()}
    spec, status = node.get("spec") or {}, node.get("status") or {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": virtual_node_name(virtual_spec.cluster, name),
            "labels": _labels_to_show(node, virtual_spec),
            "annotations": _annotations_to_show(name, virtual_spec),
        },
        "spec": {
            "unschedulable": not is_open or bool(spec.get("unschedulable")),
            "taints": _taints_to_show(spec.get("taints") or (), virtual_spec),
        },
        "status": {
            "capacity": shown,
            "allocatable": shown,
            "conditions": [
                dict(entry) for entry in status.get("conditions") or () if entry.get("type") in MIRRORED_CONDITIONS
            ],
            **_kubelet_endpoint_status(virtual_spec),
            "nodeInfo": {key: (status.get("nodeInfo") or {}).get(key, "") for key in MIRRORED_INFO},
        },
    }


def is_current(actual: Manifest, wanted: Manifest, heartbeat_seconds: int) -> bool:
    """Returns whether a pool's virtual node shows what it should; additions of the pool itself do not matter.

    The kubelet API that the node names is not compared here; `has_our_endpoint` does that.
    heartbeat_seconds: how much newer the real node's last heartbeat may be than the heartbeat that is shown.
    """
    metadata, spec, status = (actual.get(part) or {} for part in ("metadata", "spec", "status"))
    for key in ("labels", "annotations"):
        found, ours = metadata.get(key) or {}, wanted["metadata"][key]
        if any(found.get(name) != value for name, value in ours.items()):
            return False
        if any(name.startswith(PREFIX) and name not in ours for name in found):
            return False
    return (
        bool(spec.get("unschedulable")) == wanted["spec"]["unschedulable"]
        and _sorted_taints(spec.get("taints") or ()) == _sorted_taints(wanted["spec"]["taints"])
        and _allocatable_amounts(status) == _allocatable_amounts(wanted["status"])
        and _mirrored_conditions(status) == _mirrored_conditions(wanted["status"])
        and _heartbeat_ms(wanted["status"]) - _heartbeat_ms(status) < heartbeat_seconds * MILLI
    )


def read_virtual_node(node: Manifest, cluster: str, name: str, *, current: bool, reachable: bool = True) -> VirtualNode:
    """Reads a pool's node object. name: the real node that it should stand for."""
    metadata, status = node["metadata"], node.get("status") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    takes = any(str(amount) not in ("0", "") for amount in (status.get("allocatable") or {}).values())
    return VirtualNode(
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        loan=read_loan(annotations),
        open=takes or not (node.get("spec") or {}).get("unschedulable", False),
        ours=(labels.get(LENT_CLUSTER), labels.get(LENT_NODE)) == (cluster, name_within_label_length(name)),
        current=current,
        reachable=reachable,
    )


def has_our_endpoint(actual: Manifest, virtual_spec: VirtualNodeSpec) -> bool:
    """Returns whether the virtual node names the kubelet API of this instance."""
    status = actual.get("status") or {}
    return all((status.get(key) or []) == value for key, value in _kubelet_endpoint_status(virtual_spec).items())


def keeps_endpoint(
    actual: Manifest, virtual_spec: VirtualNodeSpec, shown_seconds: float, endpoint_seconds: float
) -> bool:
    """Returns whether the virtual node needs no new endpoint: it names this bridge, or was written lately.

    Without that pause, two bridges that both claim one owner would overwrite the endpoint in turn.
    shown_seconds: the time since this bridge wrote the virtual node. endpoint_seconds: the pause.
    """
    return has_our_endpoint(actual, virtual_spec) or shown_seconds < endpoint_seconds


def operating_system_of_node(node: Manifest | None) -> str:
    """Returns the operating system that a kubelet tells of its node; empty: there is no node, or it tells none."""
    return str((((node or {}).get("status") or {}).get("nodeInfo") or {}).get("operatingSystem") or "")


def shown_address(node: Manifest | None) -> str:
    """Returns the address that a virtual node shows, this bridge's or another's; empty: it shows none."""
    addresses = ((node or {}).get("status") or {}).get("addresses") or ()
    return next((one["address"] for one in addresses if one.get("type") == "InternalIP"), "")


def _kubelet_endpoint_status(virtual_spec: VirtualNodeSpec) -> dict[str, Any]:
    """Returns the status fields that name the kubelet API. Without a kubelet API there is no address.

    With an address alone, a pool's API server would ask port 10250 there, which is a kubelet that is not ours.
    """
    return {
        "addresses": [{"type": "InternalIP", "address": virtual_spec.address}] if virtual_spec.port else [],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": virtual_spec.port}},
    }


def _labels_to_show(node: Manifest, virtual_spec: VirtualNodeSpec) -> dict[str, str]:
    name = node["metadata"]["name"]
    theirs = node["metadata"].get("labels") or {}
    return {
        **{key: value for key, value in theirs.items() if not key.startswith(PREFIX)},
        HOSTNAME_LABEL: virtual_node_name(virtual_spec.cluster, name),
        LENT_CLUSTER: virtual_spec.cluster,
        LENT_NODE: name_within_label_length(name),
        SUPPLY_CLASS: virtual_spec.supply_class,
        TYPE_LABEL[0]: TYPE_LABEL[1],
        NO_LOAD_BALANCER_LABEL: "true",
    }


def _annotations_to_show(name: str, virtual_spec: VirtualNodeSpec) -> dict[str, str]:
    cost = {COST_PER_HOUR: f"{virtual_spec.cost_per_hour:g}"} if virtual_spec.cost_per_hour else {}
    return {LENT_NODE: name, LOAN: loan_text(virtual_spec.loan), **cost}


def _taints_to_show(theirs: Iterable[Manifest], virtual_spec: VirtualNodeSpec) -> list[dict[str, str]]:
    kept = [
        {key: taint[key] for key in ("key", "value", "effect") if taint.get(key)}
        for taint in theirs
        if taint["key"] not in (LENDING, POOL_TAINT) and not taint["key"].startswith(TRANSIENT_TAINTS)
    ]
    return [*kept, {"key": POOL_TAINT, "value": virtual_spec.supply_class, "effect": "NoSchedule"}]


def _sorted_taints(taints: Iterable[Manifest]) -> list[tuple[str, str, str]]:
    """Returns the taints, except the ones that the pool's Kubernetes puts on by itself."""
    read = ((taint["key"], taint.get("value", ""), taint.get("effect", "")) for taint in taints)
    return sorted(taint for taint in read if not taint[0].startswith(TRANSIENT_TAINTS))


def _mirrored_conditions(status: Manifest) -> dict[str, tuple[str, str]]:
    """Returns the mirrored conditions. If the pool set one to Unknown, it differs, and the node is written again."""
    return {
        entry["type"]: (entry.get("status", ""), entry.get("reason", ""))
        for entry in status.get("conditions") or ()
        if entry.get("type") in MIRRORED_CONDITIONS
    }


def _heartbeat_ms(status: Manifest) -> int:
    """Returns the Unix time of the newest heartbeat of its conditions; 0 if no condition has one."""
    told = (entry for entry in status.get("conditions") or () if entry.get("type") in MIRRORED_CONDITIONS)
    return max((unix_ms(entry.get("lastHeartbeatTime")) for entry in told), default=0)


def _allocatable_amounts(status: Manifest) -> dict[str, int | str]:
    """Returns the allocatable amounts as numbers, because a server writes 4000m as 4."""
    return {name: _parse_amount(name, str(quantity)) for name, quantity in (status.get("allocatable") or {}).items()}


def _parse_amount(name: str, quantity: str) -> int | str:
    try:
        return parse_quantity(quantity, milli=name == "cpu")
    except ValueError:
        return quantity


def quantity_text(name: str, amount: int) -> str:
    """Returns an amount of `offered_amounts` as Kubernetes writes it."""
    return f"{amount}m" if name == "cpu" and amount else str(amount)
