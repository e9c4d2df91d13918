"""The free resources of every node, updated with each pod, and a log of the nodes that changed."""

from dataclasses import dataclass, field

from sim.core.kinds import Object
from sim.core.quantity import parse_amount
from sim.core.shape import PodShape, ports_clash

_LOG_LIMIT = 50_000
TaintValue = tuple[str, str, str]
HOST_PORT = "hostport"
"""The name of a missing host port among the resources that a pod lacks."""


@dataclass(slots=True)
class NodeRecord:
    name: str
    slot: int
    labels: dict[str, str]
    taints: tuple[TaintValue, ...]
    unschedulable: bool
    allocatable: dict[str, int]
    free: dict[str, int]
    pods_by_shape: dict[PodShape, int] = field(default_factory=dict)
    anti_affine_pods: int = 0
    """The number of the node's pods with anti-affinity."""


class NodeTable:
    """Nodes by slot number. A slot is used again after its node is gone."""

    def __init__(self) -> None:
        self.slots: list[NodeRecord | None] = []
        self.record_by_name: dict[str, NodeRecord] = {}
        self.changed: list[int] = []
        """Slots of changed nodes, in the order of the changes."""
        self.changed_before = 0
        """The number of older entries of `changed` that are forgotten."""
        self.anti_affine_pods = 0
        """The number of pods with anti-affinity on all nodes."""
        self._free_slots: list[int] = []

    def put_node(self, node: Object) -> None:
        record = _record_of_node(node)
        known = self.record_by_name.get(record.name)
        if known:
            record.slot, record.pods_by_shape = known.slot, known.pods_by_shape
            record.anti_affine_pods = known.anti_affine_pods
            for shape, count in known.pods_by_shape.items():
                _take_resources(record, shape, count)
        elif self._free_slots:
            record.slot = self._free_slots.pop()
        else:
            record.slot = len(self.slots)
            self.slots.append(None)
        self.slots[record.slot] = self.record_by_name[record.name] = record
        self._note_changed_slot(record.slot)

    def remove_node(self, name: str) -> None:
        record = self.record_by_name.pop(name)
        self.anti_affine_pods -= record.anti_affine_pods
        self.slots[record.slot] = None
        self._free_slots.append(record.slot)
        self._note_changed_slot(record.slot)

    def add_pod(self, name: str, shape: PodShape) -> None:
        self._count_pods(name, shape, 1)

    def remove_pod(self, name: str, shape: PodShape) -> None:
        self._count_pods(name, shape, -1)

    def _count_pods(self, name: str, shape: PodShape, count: int) -> None:
        record = self.record_by_name.get(name)
        if record is None:
            return
        pods = record.pods_by_shape
        pods[shape] = pods.get(shape, 0) + count
        if not pods[shape]:
            del pods[shape]
        if shape.anti_affinity:
            record.anti_affine_pods += count
            self.anti_affine_pods += count
        _take_resources(record, shape, count)
        self._note_changed_slot(record.slot)

    def _note_changed_slot(self, slot: int) -> None:
        self.changed.append(slot)
        if len(self.changed) > 2 * _LOG_LIMIT:
            del self.changed[:_LOG_LIMIT]
            self.changed_before += _LOG_LIMIT


def _record_of_node(node: Object) -> NodeRecord:
    spec = node.get("spec") or {}
    status = node.get("status") or {}
    declared = status.get("allocatable") or status.get("capacity") or {}
    allocatable = {name: parse_amount(name, text) for name, text in declared.items()}
    name = node["metadata"]["name"]
    return NodeRecord(
        name=name,
        slot=-1,
        labels={**(node["metadata"].get("labels") or {}), "metadata.name": name},
        taints=tuple((one["key"], one.get("value") or "", one["effect"]) for one in spec.get("taints") or ()),
        unschedulable=bool(spec.get("unschedulable")),
        allocatable=allocatable,
        free=dict(allocatable),
    )


def _take_resources(record: NodeRecord, shape: PodShape, count: int) -> None:
    free = record.free
    for name, amount in shape.requests:
        free[name] = free.get(name, 0) - amount * count


def resources_missing_for_kubelet(record: NodeRecord, shape: PodShape) -> list[str]:
    """Returns the resources and host ports that a kubelet finds missing on its node for a pod that is bound to it."""
    missing = [name for name, amount in shape.requests if amount > record.free.get(name, 0)]
    taken = (port for other in record.pods_by_shape for port in other.host_ports)
    return [*missing, *([HOST_PORT] if shape.host_ports and ports_clash(shape.host_ports, taken) else [])]
