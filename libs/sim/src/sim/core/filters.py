"""The scheduler's filters that look at one node only, in the order and words of kube-scheduler."""

from sim.core.node_table import NodeRecord
from sim.core.selectors import matches_labels
from sim.core.shape import PodShape, ports_clash
from sim.core.volumes import VolumeRules

_UNSCHEDULABLE = ("node.kubernetes.io/unschedulable", "", "NoSchedule")
_BLOCKING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


def node_refusals(record: NodeRecord, shape: PodShape, volumes: VolumeRules = ()) -> tuple[str, ...]:
    """Returns the reasons of the first filter that refuses the node for the pod; empty when every filter passes."""
    if record.unschedulable and not shape.tolerates(_UNSCHEDULABLE):
        return ("node(s) were unschedulable",)
    taint = next((one for one in record.taints if one[2] in _BLOCKING_EFFECTS and not shape.tolerates(one)), None)
    if taint:
        return (f"node(s) had untolerated taint {{{taint[0]}: {taint[1]}}}",)
    if not is_node_selected(record, shape):
        return ("node(s) didn't match Pod's node affinity/selector",)
    if shape.host_ports:
        taken = (port for other in record.pods_by_shape for port in other.host_ports)
        if ports_clash(shape.host_ports, taken):
            return ("node(s) didn't have free ports for the requested pod ports",)
    missing = missing_resources(record, shape)
    refused = next((rule.refusal for rule in volumes if not rule.allows_node(record.labels)), "") if not missing else ""
    return (refused,) if refused else missing


def is_node_selected(record: NodeRecord, shape: PodShape) -> bool:
    labels = record.labels
    if any(labels.get(key) != value for key, value in shape.node_selector.items()):
        return False
    return shape.node_terms is None or any(matches_labels(term, labels) for term in shape.node_terms)


def missing_resources(record: NodeRecord, shape: PodShape) -> tuple[str, ...]:
    free = record.free
    for name, amount in shape.requests:
        if amount > free.get(name, 0):
            break
    else:
        return ()
    return tuple(
        "Too many pods" if name == "pods" else f"Insufficient {name}"
        for name, amount in shape.requests
        if amount > free.get(name, 0)
    )


def least_allocated_score(record: NodeRecord, shape: PodShape) -> int:
    """Returns the free shares of CPU and memory that the pod would leave, added up: 0 to 200,000."""
    return _free_share(record, "cpu", shape.score_cpu_millis) + _free_share(record, "memory", shape.score_memory_bytes)


def _free_share(record: NodeRecord, resource: str, wanted: int) -> int:
    allocatable = record.allocatable.get(resource, 0)
    if not allocatable:
        return 0
    return max(0, (record.free[resource] - wanted) * 100_000 // allocatable)
