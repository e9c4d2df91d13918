"""Makes nodes from specs, and grows node groups when pods wait."""

from collections.abc import Iterable
from functools import partial

from sim.core.filters import node_refusals
from sim.core.kinds import Object
from sim.core.kubelet import RUN_BY_US
from sim.core.node_table import NodeRecord, NodeTable
from sim.core.quantity import quantity_text
from sim.core.shape import PodShape
from sim.core.world import World
from sim.settings import NodeGroupSpec, NodeSpec

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def make_node(world: World, spec: NodeSpec, index: int) -> Object:
    name = f"{spec.name_prefix}{index}"
    labels = {**spec.labels, HOSTNAME: name}
    if spec.zones:
        labels[ZONE] = spec.zones[index % len(spec.zones)]
    resources = {
        "cpu": quantity_text("cpu", spec.cpu_millis),
        "memory": str(spec.memory_bytes),
        "pods": str(spec.pods),
        **{resource: str(amount) for resource, amount in spec.extended.items()},
    }
    stamp = world.timestamp()
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": stamp}
    return {
        "metadata": {
            "name": name,
            "uid": world.new_uid(),
            "creationTimestamp": stamp,
            "labels": labels,
            "annotations": {RUN_BY_US: "fake"},
        },
        "spec": {"taints": [taint_object(one.key, one.value, one.effect) for one in spec.taints]}
        if spec.taints
        else {},
        "status": {"capacity": resources, "allocatable": resources, "conditions": [ready]},
    }


def taint_object(key: str, value: str, effect: str) -> dict[str, str]:
    return {"key": key, "value": value, "effect": effect} if value else {"key": key, "effect": effect}


def add_nodes(world: World, specs: Iterable[NodeSpec]) -> list[str]:
    """Adds nodes and returns their names. New nodes get the free numbers of their prefix."""
    names = []
    for spec in specs:
        index, made = 0, 0
        while made < spec.count:
            if world.store.get_object("nodes", ("", f"{spec.name_prefix}{index}")) is None:
                node = world.store.put_object("nodes", make_node(world, spec, index))
                names.append(node["metadata"]["name"])
                made += 1
            index += 1
    return names


class NodeGroups:
    """Adds as many nodes as the waiting pods need, each after the group's lead time."""

    def __init__(self, world: World, table: NodeTable) -> None:
        self._world = world
        self._groups = [_Group(spec) for spec in world.settings.node_groups]
        self._table = table

    @property
    def has_groups(self) -> bool:
        return bool(self._groups)

    def grow_groups(self, waiting: dict[PodShape, int]) -> None:
        left = dict(waiting)
        for group in self._groups:
            needed = group.count_needed_nodes(self._world, left) - group.coming
            spare = group.spec.max - group.coming - self._count_present_nodes(group.spec)
            for _ in range(min(needed, spare)):
                group.coming += 1
                self._world.run_after(group.spec.lead_time_seconds, partial(self._add_arrived_node, group))

    def _count_present_nodes(self, spec: NodeGroupSpec) -> int:
        prefix = spec.template.name_prefix
        return sum(1 for name in self._table.record_by_name if name.startswith(prefix))

    def _add_arrived_node(self, group: "_Group") -> None:
        group.coming -= 1
        template = group.spec.template
        one = NodeSpec(
            name_prefix=template.name_prefix,
            cpu_millis=template.cpu_millis,
            memory_bytes=template.memory_bytes,
            pods=template.pods,
            labels=template.labels,
            taints=template.taints,
            extended=template.extended,
            zones=template.zones,
        )
        add_nodes(self._world, [one])


class _Group:
    def __init__(self, spec: NodeGroupSpec) -> None:
        self.spec = spec
        self.coming = 0

    def count_needed_nodes(self, world: World, waiting: dict[PodShape, int]) -> int:
        """Returns the nodes that the group needs.

        Removes the pods that they take from `waiting`, so that two groups do not both grow for them.
        """
        table = NodeTable()
        table.put_node(make_node(world, self.spec.template, 0))
        record = next(iter(table.record_by_name.values()))
        share = 0.0
        for shape in list(waiting):
            fits = _pods_per_empty_node(record, shape)
            if fits:
                share += waiting.pop(shape) / fits
        return -int(-share // 1)


def _pods_per_empty_node(record: NodeRecord, shape: PodShape) -> int:
    if node_refusals(record, shape):
        return 0
    if shape.host_ports:
        return 1
    return min(record.free.get(name, 0) // amount for name, amount in shape.requests)
