"""One cluster as its capacity records describe it: its nodes, our workloads there, and the age of these facts."""

from collections import OrderedDict
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np

from spillway.events import (
    PHASE_ACTIVE,
    PHASE_CORDONED,
    CapacityChanged,
    CapacityReported,
    ClusterJoined,
    PodsScheduled,
    PodsUnschedulable,
)
from spillway.feasibility.fit import Fit, compute_fit
from spillway.feasibility.nodes import ClusterNodes
from spillway.feasibility.volumes import NO_CLAIMS, NamespaceClaims, volume_claims_of
from spillway.model import LabelSet, NamespaceFacts, NodeColumns, NodeGroup, Quota, Shape, WorkloadFacts
from spillway.troubles import SIGNS_OF_LOSS, TroubleCode, code_of_record, text_for_callers

WorkloadKey = tuple[str, str]
FITS_KEPT_MAX = 32
CHANGES_HELD_MAX = 1024
NEVER = -1
_SERIALS = count()


@dataclass(slots=True)
class Block:
    """A block of the current epoch. sequence: the last one applied. held: changes that wait for an earlier one."""

    sequence: int
    held: list[tuple[CapacityChanged, NodeColumns]] = field(default_factory=list)

    @property
    def has_missing_change(self) -> bool:
        """Returns whether a change is missing. Then the block is out of date until the next full block."""
        return bool(self.held)


class ClusterView:
    """One cluster. Only the apply methods change it.

    revision: rises when room may have changed. serial: unique among all views, also among views of the same name.
    heard_at: the time of the last heartbeat. bound_at: the last time at which a workload got more bound pods. Both are
    by the caller's clock, in seconds; NEVER before the first time.
    twin_of: the cluster of the fleet with the same API server that joined earlier; empty when there is none.
    claims: the volume claims of each namespace that has any. claims_revision: rises when one of them changes.
    unread: the resources that our account has no right to read there; then its volumes are unknown.
    is_incomplete: True if a change is missing: the view is out of date until the next full block.
    troubled_since, troubled_at: by the same clock, the first and the last of the latest heartbeats that all reported
    trouble in the cluster itself.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.joined: ClusterJoined | None = None
        self.epoch = -1
        self._claimed = -1
        """The epoch of the newest claim of the cluster. No record of that epoch may have arrived yet."""
        self.nodes = ClusterNodes()
        self.facts: dict[WorkloadKey, WorkloadFacts] = {}
        self.quotas: dict[str, tuple[Quota, ...]] = {}
        self.claims: dict[str, NamespaceClaims] = {}
        self.claims_revision = 0
        self.pending: dict[str, PodsUnschedulable] = {}
        self._pending_epoch = -1
        """The highest epoch of all records about pending pods so far."""
        self.api_server = ""
        self.twin_of = ""
        self.trouble = ""
        self.trouble_for_callers = ""
        self.trouble_code: int = TroubleCode.UNSPECIFIED
        self.unread = ""
        self.age_ms = NEVER
        self.heard_at: float = NEVER
        self.bound_at: float = NEVER
        self.troubled_since: float = NEVER
        self.troubled_at: float = NEVER
        self.is_incomplete = False
        self.offset = NEVER
        self.revision = 0
        self.serial = next(_SERIALS)
        self._blocks: dict[int, Block] = {}
        self._arriving: dict[int, dict[int, tuple[CapacityReported, NodeColumns]]] = {}
        self._early: dict[int, list[tuple[CapacityChanged, NodeColumns]]] = {}
        self._group_nodes: dict[NodeGroup, tuple[ClusterNodes, int, int]] = {}
        self._fits: OrderedDict[tuple[Shape, LabelSet], tuple[int, Fit]] = OrderedDict()

    # ── Questions of decisions ────────────────────────────────────────────────────────────────────────────────────────

    def age_seconds(self, now: float) -> float | None:
        """Returns the age of the newest reliable information in seconds; None if there was none yet."""
        if NEVER in (self.heard_at, self.age_ms):
            return None
        return self.age_ms / 1000 + (now - self.heard_at)

    def staleness_reason(self, now: float, age_max_seconds: float) -> str:
        """Returns the reason why no new replicas may be placed here; empty if they may."""
        why = f" ({self.trouble_for_callers})" if self.trouble_for_callers else ""
        age = self.age_seconds(now)
        if self.epoch < 0 or age is None:
            return f"no capacity heard yet{why}"
        if age > age_max_seconds:
            return f"capacity is {age:.0f} s old{why}"
        if self.is_incomplete:
            return "a change of its capacity is missing"
        return ""

    @property
    def phase(self) -> str:
        return self.joined.phase if self.joined is not None else PHASE_ACTIVE

    @property
    def twin_reason(self) -> str:
        """Returns the reason why the nodes of a twin are not counted here; empty if this cluster is no twin."""
        return f"the same API server as {self.twin_of}" if self.twin_of else ""

    @property
    def must_hand_over(self) -> bool:
        """Returns whether the replicas here must go elsewhere: the cluster is drained, leaves, or is given up."""
        return self.phase not in (PHASE_ACTIVE, PHASE_CORDONED)

    @property
    def hand_over_target(self) -> str:
        """Returns `twin_of` if this cluster is a twin whose replicas must go elsewhere; "" otherwise."""
        return self.twin_of if self.must_hand_over else ""

    def lost_seconds(self, now: float, age_max_seconds: float) -> float | None:
        """Returns how long the cluster has been lost, in seconds; None: it is not lost, or our collector is silent."""
        if self.troubled_at == NEVER or now - self.troubled_at > age_max_seconds:
            return None
        if not self.staleness_reason(now, age_max_seconds):
            return None
        return max(now - self.troubled_since, self.age_seconds(now) or 0.0)

    def fit_of_shape(self, shape: Shape) -> Fit:
        key = (shape, shape.traits.labels if self.nodes.pods.may_repel_pods_of(shape.namespace) else ())
        kept = self._fits.get(key)
        if kept is not None and kept[0] == self.nodes.revision:
            self._fits.move_to_end(key)
            return kept[1]
        result = compute_fit(shape, self.nodes)
        self._fits[key] = (self.nodes.revision, result)
        self._fits.move_to_end(key)
        while len(self._fits) > FITS_KEPT_MAX:
            self._fits.popitem(last=False)
        return result

    def volume_claims_in(self, namespace: str) -> NamespaceClaims:
        """Returns the known volume claims of a namespace."""
        known = self.claims.get(namespace, NO_CLAIMS)
        return replace(known, unread=self.unread) if self.unread else known

    def with_nodes(self, nodes: ClusterNodes) -> "ClusterView":
        """Returns the same cluster with other nodes, for what-if questions. The copy follows no stream."""
        other = copy(self)
        other.nodes, other._fits = nodes, OrderedDict()  # noqa: SLF001 - its own class
        other.serial = next(_SERIALS)
        return other

    def node_groups(self) -> list[tuple[NodeGroup, int]]:
        """Returns the node groups, each with the number of its nodes that exist."""
        if self.joined is None:
            return []
        return [(group, self._count_group_nodes(group)) for group in self.joined.node_groups]

    def _count_group_nodes(self, group: NodeGroup) -> int:
        wanted = set(group.selector)
        kept = self._group_nodes.get(group)
        if kept is not None and kept[0] is self.nodes and kept[1] == self.nodes.revision:
            return kept[2]
        by_set = [wanted <= set(labels) for labels in self.nodes.label_sets]
        count = int(np.count_nonzero(np.array([*by_set, False], np.bool_)[self.nodes.label_set] & self.nodes.live_mask))
        self._group_nodes[group] = (self.nodes, self.nodes.revision, count)
        return count

    # ── Records of the streams ────────────────────────────────────────────────────────────────────────────────────────

    def apply_cluster_joined(self, event: ClusterJoined) -> None:
        self.joined = event
        self.revision += 1

    def apply_turn_claim(self, epoch: int) -> None:
        """Stores a collector's claim of the cluster. Then changes of earlier collectors are dropped (docs/turns.md)."""
        self._claimed = max(self._claimed, epoch)

    def apply_capacity_reported(self, event: CapacityReported, columns: NodeColumns) -> set[WorkloadKey]:
        """Applies a full block. Returns the workloads whose facts may have changed."""
        if event.epoch < self.epoch:
            return set()
        if event.epoch == self.epoch:
            block = self._blocks.get(event.index)
            if block is None or event.sequence < block.sequence:
                return set()
            return self._apply_full_block(event, columns)
        # The nodes of the former epoch stay until all blocks of the new epoch are there.
        arriving = self._arriving.setdefault(event.epoch, {})
        arriving[event.index] = (event, columns)
        if len([1 for index in arriving if index < event.count]) < event.count:
            return set()
        return self._start_epoch(event.epoch, event.count)

    def apply_capacity_changed(
        self, event: CapacityChanged, columns: NodeColumns, now: float, offset: int
    ) -> set[WorkloadKey]:
        """Applies changed rows or a heartbeat. Returns the workloads whose facts may have changed.

        now: NEVER for a record from before this reader began, whose age is unknown. Such a record makes nothing fresh.
        """
        if event.epoch < max(self.epoch, self._claimed):
            return set()
        self.offset = offset
        if event.epoch > self.epoch:
            self._note_heartbeat(event, now, newer=True)
            # The full blocks of this epoch have not all arrived, so its changes wait for them.
            early = self._early.setdefault(event.epoch, [])
            early.append((event, columns))
            del early[:-CHANGES_HELD_MAX]
            return set()
        block = self._blocks.get(event.index)
        if block is None or event.sequence <= block.sequence:
            return set()
        self._note_heartbeat(event, now, newer=False)
        return self._apply_block_change(event, columns, now)

    def apply_pending_pods(self, event: PodsUnschedulable | PodsScheduled) -> None:
        """Applies a record about pods that cannot be scheduled.

        Records of earlier collectors are dropped: the newest one reports all such pods again.
        """
        known = self.pending.get(event.group)
        if known is not None and (event.epoch, event.sequence) < (known.epoch, known.sequence):
            return
        if known is None and event.epoch < self._pending_epoch:
            return
        self._pending_epoch = max(self._pending_epoch, event.epoch)
        if isinstance(event, PodsUnschedulable):
            self.pending[event.group] = event
        else:
            self.pending.pop(event.group, None)

    def _note_heartbeat(self, event: CapacityChanged, now: float, newer: bool) -> None:
        if event.index != 0:
            return
        self.trouble, self.trouble_code = event.trouble, code_of_record(event.trouble_code, event.trouble)
        self.trouble_for_callers = text_for_callers(self.trouble_code) if event.trouble else ""
        if self.unread != event.unread:
            self.unread = event.unread
            self.claims_revision += 1
        self._note_trouble(self.trouble_code, now)
        # A new collector that has not listed yet does not know the nodes of this view. So the age stays as it was.
        if not newer and NEVER not in (event.age_ms, now):
            self.age_ms, self.heard_at = event.age_ms, now

    def _note_trouble(self, code: int, now: float) -> None:
        """Updates the times of trouble. A record of unknown age counts only if it reports the end of the trouble."""
        if code not in SIGNS_OF_LOSS:
            self.troubled_since = self.troubled_at = NEVER
        elif now != NEVER:
            self.troubled_since = now if self.troubled_since == NEVER else self.troubled_since
            self.troubled_at = now

    def _start_epoch(self, epoch: int, count: int) -> set[WorkloadKey]:
        changed = set(self.facts)
        self.epoch = epoch
        self.nodes = ClusterNodes()
        self.facts = {}
        self._fits.clear()
        self._blocks = {}
        blocks = self._arriving.pop(epoch)
        self._arriving = {other: kept for other, kept in self._arriving.items() if other > epoch}
        for index in range(count):
            changed |= self._apply_full_block(*blocks[index])
        for event, columns in self._early.pop(epoch, ()):
            changed |= self._apply_block_change(event, columns, NEVER)
        self._update_is_incomplete()
        self._early = {other: kept for other, kept in self._early.items() if other > epoch}
        return changed

    def _apply_full_block(self, event: CapacityReported, columns: NodeColumns) -> set[WorkloadKey]:
        self.revision += 1
        self.nodes.replace_block(columns, event.index)
        changed: set[WorkloadKey] = set()
        if event.index == 0:
            changed = set(self.facts)
            self.facts = {(facts.namespace, facts.name): facts for facts in event.facts}
            changed |= set(self.facts)
            self.quotas, self.nodes.namespaces, self.api_server = {}, {}, event.api_server
            for name in self.claims.keys() - {entry.name for entry in event.namespaces}:
                self._apply_volume_claims(name, NO_CLAIMS)
            self._apply_namespaces(event.namespaces)
        held = self._blocks[event.index].held if event.index in self._blocks else []
        self._blocks[event.index] = Block(event.sequence)
        for change, rows in held:
            changed |= self._apply_block_change(change, rows, NEVER)
        self._update_is_incomplete()
        return changed

    def _update_is_incomplete(self) -> None:
        self.is_incomplete = any(block.has_missing_change for block in self._blocks.values())

    def _apply_block_change(self, event: CapacityChanged, columns: NodeColumns, now: float) -> set[WorkloadKey]:
        block = self._blocks.get(event.index)
        if block is None or event.sequence <= block.sequence:
            return set()
        if event.sequence > block.sequence + 1:
            block.held.append((event, columns))
            del block.held[:-CHANGES_HELD_MAX]
            self.is_incomplete = True
            return set()
        block.sequence = event.sequence
        if columns.names or event.removed:
            self.revision += 1
            self.nodes.remove_nodes(event.removed)
            self.nodes.upsert_nodes(columns, event.index)
        for name in event.namespaces_removed:
            self.revision += 1
            self.quotas.pop(name, None)
            self.nodes.namespaces.pop(name, None)
            self._apply_volume_claims(name, NO_CLAIMS)
        self._apply_namespaces(event.namespaces)
        changed = self._apply_workload_facts(event.facts, now)
        for key in event.facts_removed:
            self.revision += 1
            self.facts.pop(key, None)
            changed.add(key)
        return changed

    def _apply_namespaces(self, namespaces: Iterable[NamespaceFacts]) -> None:
        for entry in namespaces:
            self.revision += 1
            self.quotas[entry.name] = entry.quotas
            self._apply_volume_claims(entry.name, volume_claims_of(entry))
            labels = dict(entry.labels)
            if self.nodes.namespaces.get(entry.name) != labels:
                self.nodes.namespaces[entry.name] = labels
                self.nodes.revision += 1

    def _apply_volume_claims(self, namespace: str, found: NamespaceClaims) -> None:
        if self.claims.get(namespace, NO_CLAIMS) == found:
            return
        self.claims_revision += 1
        if found == NO_CLAIMS:
            del self.claims[namespace]
        else:
            self.claims[namespace] = found

    def _apply_workload_facts(self, facts: Iterable[WorkloadFacts], now: float) -> set[WorkloadKey]:
        changed = set()
        for entry in facts:
            key = (entry.namespace, entry.name)
            before = self.facts.get(key)
            if sum(count for _, count in entry.counted) > sum(count for _, count in (before.counted if before else ())):
                self.bound_at = max(self.bound_at, now)
            self.facts[key] = entry
            self.revision += 1
            changed.add(key)
        return changed
