"""Chooses the node for a pod, or says why there is none. Its work grows with the changed nodes, not with all nodes."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping

from sim.core.candidates import AnyOrder, BestFirst, Candidates
from sim.core.filters import least_allocated_score, node_refusals
from sim.core.node_table import NodeTable
from sim.core.shape import PodShape
from sim.core.topology import TopologyCounts
from sim.core.volumes import VolumeRules

_VIEWS_KEPT = 256


class ShapeView:
    """The verdicts about all nodes for one shape."""

    def __init__(self, table: NodeTable, shape: PodShape, volumes: VolumeRules, candidates: Candidates) -> None:
        self._table = table
        self._shape = shape
        self._volumes = volumes
        self._candidates = candidates
        self._topology = TopologyCounts(shape)
        self._refusals_by_slot: dict[int, tuple[str, ...]] = {}
        self._nodes_by_refusals: dict[tuple[str, ...], int] = {}
        self._position = table.changed_before + len(table.changed)
        for slot in range(len(table.slots)):
            self._judge_slot(slot)

    def choose_node(self) -> str | None:
        """Returns the node that the pod should go to; None if no node fits."""
        self._refresh_changed_slots()
        if not self._topology.is_needed:
            slot = next(self._candidates.slots_in_order(), None)
            return None if slot is None else self._node_name(slot)
        lowest = self._topology.lowest_counts()
        for slot in self._candidates.slots_in_order():
            record = self._table.slots[slot]
            if record and not self._topology.node_refusal_reason(record, lowest):
                return record.name
        return None

    def why_no_node_fits(self) -> str:
        """Returns why no node fits, in kube-scheduler's form."""
        self._refresh_changed_slots()
        total = len(self._table.record_by_name)
        if not total:
            return "no nodes available to schedule pods"
        nodes_by_reason: dict[str, int] = {}
        for reasons, count in self._nodes_by_refusals.items():
            for reason in reasons:
                nodes_by_reason[reason] = nodes_by_reason.get(reason, 0) + count
        lowest = self._topology.lowest_counts()
        for slot in self._candidates.slots_in_order():
            record = self._table.slots[slot]
            if record and (reason := self._topology.node_refusal_reason(record, lowest)):
                nodes_by_reason[reason] = nodes_by_reason.get(reason, 0) + 1
        return unschedulable_message(total, nodes_by_reason)

    def _refresh_changed_slots(self) -> None:
        table = self._table
        end = table.changed_before + len(table.changed)
        if self._position == end:
            return
        if self._position < table.changed_before:
            slots = set(range(len(table.slots)))
        else:
            slots = set(table.changed[self._position - table.changed_before :])
        self._position = end
        for slot in slots:
            self._judge_slot(slot)

    def _judge_slot(self, slot: int) -> None:
        record = self._table.slots[slot]
        self._topology.put_node(slot, record)
        found = node_refusals(record, self._shape, self._volumes) if record else None
        known = self._refusals_by_slot.get(slot)
        if known != found:
            self._recount_refusals(slot, known, found)
        if record and not found:
            self._candidates.put_slot(slot, least_allocated_score(record, self._shape))
        else:
            self._candidates.discard_slot(slot)

    def _recount_refusals(self, slot: int, known: tuple[str, ...] | None, found: tuple[str, ...] | None) -> None:
        if known:
            left = self._nodes_by_refusals[known] - 1
            if left:
                self._nodes_by_refusals[known] = left
            else:
                del self._nodes_by_refusals[known]
        if found:
            self._nodes_by_refusals[found] = self._nodes_by_refusals.get(found, 0) + 1
        if found is None:
            self._refusals_by_slot.pop(slot, None)
        else:
            self._refusals_by_slot[slot] = found

    def _node_name(self, slot: int) -> str:
        record = self._table.slots[slot]
        assert record is not None
        return record.name


class Scheduler:
    """The views of recently requested shapes, over one node table."""

    def __init__(
        self,
        table: NodeTable,
        below: Callable[[int], int] | None = None,
        volumes_of: Callable[[PodShape], VolumeRules] = lambda _shape: (),
    ) -> None:
        """Makes a scheduler. below: returns a random integer below its argument; then nodes are chosen at random.

        Without it, the least allocated node is chosen.
        """
        self._table = table
        self._volumes_of = volumes_of
        self._below = below
        self._views: OrderedDict[tuple[Hashable, VolumeRules], ShapeView] = OrderedDict()

    def view_of(self, shape: PodShape) -> ShapeView:
        """Returns the view of a shape.

        While no pod has rules about other pods, shapes that differ only in names and labels share one view.
        """
        volumes = self._volumes_of(shape)
        is_alone = not (shape.looks_at_pods or self._table.anti_affine_pods)
        key: tuple[Hashable, VolumeRules] = (_node_requirements(shape) if is_alone else shape, volumes)
        view = self._views.get(key)
        if view is None:
            candidates = AnyOrder(self._below) if self._below else BestFirst()
            view = self._views[key] = ShapeView(self._table, shape, volumes, candidates)
            if len(self._views) > _VIEWS_KEPT:
                self._views.popitem(last=False)
        self._views.move_to_end(key)
        return view


def _node_requirements(shape: PodShape) -> Hashable:
    """Returns a shape's requirements on a single node, without the rules of its volume claims."""
    return (
        shape.requests,
        shape.score_cpu_millis,
        shape.score_memory_bytes,
        shape.tolerations,
        frozenset(shape.node_selector.items()),
        shape.node_terms,
        shape.host_ports,
    )


def unschedulable_message(total: int, nodes_by_reason: Mapping[str, int]) -> str:
    texts = sorted(f"{count} {reason}" for reason, count in nodes_by_reason.items())
    return f"0/{total} nodes are available: {', '.join(texts)}."
