"""Holds the planner's state. It follows from the applied events alone, except for timers that a restart may forget."""

from collections.abc import Iterable, Iterator, Mapping

from planner.core.feasibility.admitted import AdmittedShapes, other_admitted_shapes
from planner.core.feasibility.fleet_rooms import FleetRooms
from planner.core.feasibility.limits import Limit, LimitCode
from planner.core.feasibility.promises import ClusterReservations
from planner.core.feasibility.reservation import NOTHING_RESERVED, Reservation
from planner.core.feasibility.room import NO_ROOM, Room
from planner.core.feasibility.virtual_nodes import VirtualNodes
from planner.core.knowledge.all_clusters import ChangeCounts, ClusterAges, JoinedClusters, mark_twins
from planner.core.knowledge.brakes import Brakes
from planner.core.knowledge.closing import clusters_with_orphan, is_barring_orphan, why_closed
from planner.core.knowledge.declared import NamespaceDeclarations
from planner.core.knowledge.holds import Holds
from planner.core.knowledge.owners import PropagatorEpochs
from planner.core.knowledge.placement_waits import recorded_waits
from planner.core.knowledge.reserving import reservations_by_cluster, workloads_refused_in
from planner.core.knowledge.rollout_list import RolloutList
from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.scalings import Scalings
from planner.core.knowledge.timers import ProgressTimer
from planner.core.knowledge.waiting import Rooms, WaitingList, put_or_drop_key
from planner.core.knowledge.workload import (
    Workload,
    is_blocked_by_orphan,
    is_orphan,
    may_change_missing_wait,
    read_workload,
    templates_of,
)
from planner.core.manifests.policy import FleetClusters
from planner.core.manifests.templates import is_newest, read_earlier_templates, read_template
from spillway.addresses import BRAKES, CLUSTERS, SCALE, SCALE_POLICIES, SHAPES, WORKLOAD_STATUS, WORKLOADS
from spillway.events import (
    PHASE_LOST,
    BrakeReleased,
    BrakeSet,
    CapacityChanged,
    CapacityNeeded,
    CapacityReported,
    ClusterJoined,
    ClusterLeft,
    ConfirmationAsked,
    ConfirmationGiven,
    DependencyDeclared,
    Event,
    PlacementDecided,
    PodsScheduled,
    PodsUnschedulable,
    ShapeAdmitted,
    TurnTaken,
    WorkloadDeclared,
    WorkloadObserved,
)
from spillway.events_scaling import ScaleDecided, ScalePolicyDeclared
from spillway.feasibility.cluster_view import ClusterView, WorkloadKey
from spillway.feasibility.fit import NodeLimit
from spillway.feasibility.volumes import NO_CLAIMS, NamespaceClaims, with_volume_limits
from spillway.model import NodeColumns, Part, Shape


class PlannerState:
    """The planner's state, by key. apply_event() changes the facts; aftermath.py keeps timers, holds and fresh.

    revision: grows when a cluster may have more room. fresh: the clusters that were fresh at the last check.
    leaving: workloads with parts that are being removed, adopted or disowned, or that an orphan blocks.
    moved: workloads with lost or leaving replicas. to_look_at: the workloads in `moved` that changed since their look.
    misplaced: placed workloads with replicas that should move. to_look_through: the workloads that are yet to be
    searched for it, the first one last; None before the search.
    """

    def __init__(self, rules: PlannerRules) -> None:
        self.rules = rules
        self.brakes = Brakes(rules)
        self.scalings = Scalings()
        self.clusters: dict[str, ClusterView] = {}
        self.workloads: dict[WorkloadKey, Workload] = {}
        self.declared = NamespaceDeclarations()
        self.needed: dict[WorkloadKey, dict[str, CapacityNeeded]] = {}
        self.timers: dict[tuple[WorkloadKey, str], ProgressTimer] = {}
        self.holds = Holds()
        self.fresh: frozenset[str] = frozenset()
        self.revision = 0
        self.waiting = WaitingList()
        self.leaving: dict[WorkloadKey, None] = {}
        self.moved: dict[WorkloadKey, None] = {}
        self.to_look_at: dict[WorkloadKey, None] = {}
        self.misplaced: dict[WorkloadKey, None] = {}
        self._keys_in: dict[str, dict[WorkloadKey, None]] = {}
        self.rollouts = RolloutList()
        self._ages = ClusterAges()
        self._joined = JoinedClusters()
        self.to_look_through: list[WorkloadKey] | None = None
        self._seen = ChangeCounts()
        self._twins: dict[str, str] = {}
        self.admitted = AdmittedShapes()
        self.owners = PropagatorEpochs()
        self._promises = ClusterReservations()
        self._virtual_nodes = VirtualNodes()
        self._orphan_placements: dict[WorkloadKey, PlacementDecided] = {}
        self._early_statuses: dict[WorkloadKey, dict[str, WorkloadObserved]] = {}

    # ── Events ──────────────────────────────────────────────────────────────────────────────────────────────────

    def apply_event(self, event: Event, now: float, offset: int = -1, columns: NodeColumns | None = None) -> None:
        """Applies one event; an event that is older than the known state is dropped. offset: −1 for our new event."""
        match event:
            case ClusterJoined():
                self._apply_join(event)
            case TurnTaken() | ShapeAdmitted():
                self._apply_claim_or_shape(event, offset)
            case ClusterLeft():
                self.admitted.forget_cluster(event.cluster)
                self.note_room_change(event.cluster)
                self._remove_cluster(event.cluster)
            case CapacityReported() | CapacityChanged():
                assert columns is not None
                self._apply_capacity(event, now, offset, columns)
            case PodsUnschedulable() | PodsScheduled():
                self.cluster_view(event.cluster).apply_pending_pods(event)
            case WorkloadDeclared():
                self._apply_declaration(event)
            case DependencyDeclared():
                self._apply_dependency(event)
            case PlacementDecided():
                self._apply_placement(event)
            case CapacityNeeded():
                self._apply_capacity_need(event)
            case WorkloadObserved():
                self._apply_status(event)
            case BrakeSet() | BrakeReleased() | ConfirmationAsked() | ConfirmationGiven():
                self.brakes.apply_event(event, offset)
                self.rollouts.retry_all()
                self.waiting.retry_hopeful()
            case ScalePolicyDeclared() | ScaleDecided():
                self.scalings.apply_event(event)
                self._note_scale_change((event.namespace, event.name))

    def apply_tombstone(self, topic: str, key: str, offset: int = -1) -> None:
        """Forgets the record of a key in a compacted topic, after its tombstone."""
        namespace, _, name = key.partition("/")
        if topic == WORKLOADS.name:
            self.forget_workload((namespace, name))
        elif topic == CLUSTERS.name:
            self._remove_cluster(key)
        elif topic == BRAKES.name:
            self.brakes.forget_scope(key, offset)
            self.rollouts.retry_all()
            self.waiting.retry_hopeful()
        elif topic in (SCALE_POLICIES.name, SCALE.name):
            self.scalings.forget_record(topic, (namespace, name))
            self._note_scale_change((namespace, name))
        elif topic == SHAPES.name:
            digest, _, cluster = key.partition("/")
            if self.admitted.forget_record(digest, cluster):
                self._note_shape_change(digest, cluster)
        elif topic == WORKLOAD_STATUS.name and key.count("/") == 2:
            self._forget_status(*key.split("/"))

    def forget_workload(self, key: WorkloadKey) -> None:
        """Forgets a workload after its tombstone. Statuses of orphans stay, as these objects are still there."""
        if (workload := self.workloads.pop(key, None)) is not None:
            self._unlist_from_clusters(key, workload.parts)
        self.waiting.drop_workload(key)
        self._note_scale_change(key)
        for keys in (self.leaving, self.moved, self.to_look_at, self.misplaced):
            keys.pop(key, None)
        self.rollouts.drop_workload(key)
        self.needed.pop(key, None)
        self._orphan_placements.pop(key, None)
        self._early_statuses.pop(key, None)
        orphans = {name: said for name, said in workload.statuses.items() if is_orphan(said)} if workload else {}
        if orphans:
            self._early_statuses[key] = orphans
        self.declared.forget_workload(key)

    def _forget_status(self, namespace: str, name: str, cluster: str) -> None:
        key = (namespace, name)
        known = self.statuses_by_cluster(key)
        if (gone := known.pop(cluster, None)) is not None and is_barring_orphan(gone):
            self._note_orphan_change(cluster, key)
        if not known:
            self._early_statuses.pop(key, None)

    def _note_orphan_change(self, cluster: str, key: WorkloadKey) -> None:
        self.note_room_change(cluster)
        self.waiting.retry_workload(key)

    def statuses_by_cluster(self, key: WorkloadKey) -> dict[str, WorkloadObserved]:
        """Returns the statuses of a workload by cluster, whether or not the workload is declared."""
        workload = self.workloads.get(key)
        return workload.statuses if workload is not None else self._early_statuses.get(key, {})

    def all_statuses(self) -> Iterator[WorkloadObserved]:
        """Yields all statuses that clusters reported, also those of workloads that are not declared."""
        known = (workload.statuses for workload in self.workloads.values())
        return (said for by_cluster in (*known, *self._early_statuses.values()) for said in by_cluster.values())

    def cluster_view(self, cluster: str) -> ClusterView:
        if cluster not in self.clusters:
            self.clusters[cluster] = ClusterView(cluster)
            self._seen.note_change()
        return self.clusters[cluster]

    def joined_clusters(self) -> FleetClusters:
        """Returns the clusters of the fleet, in the order of their names."""
        return self._joined.joined_clusters(self.clusters, self._seen.nodes)

    def ages_ms(self, now: float) -> Mapping[str, int]:
        """Returns the age of each cluster's known state in milliseconds; −1 if no message of it was read."""
        return self._ages.ages_ms(self.clusters, now, self.rules.capacity_age_max, self._seen.heard)

    def fleet_replicas(self) -> int:
        """Returns the replicas that all workloads together ask for."""
        return sum(entry.declared.replicas for entry in self.workloads.values() if not entry.declared.deleting)

    # ── What decisions ask ──────────────────────────────────────────────────────────────────────────────────────

    def reservation_of(self, key: WorkloadKey, cluster: str) -> Reservation:
        return self._promises.reservation_of(key, cluster)

    def reservations_in_cluster(self, cluster: str) -> Mapping[WorkloadKey, Reservation]:
        return self._promises.reservations_in_cluster(cluster)

    def workload_keys_in(self, cluster: str) -> Iterable[WorkloadKey]:
        """Returns the workloads whose placement lists this cluster."""
        return self._keys_in.get(cluster, {})

    def is_fresh(self, cluster: str, now: float) -> bool:
        view = self.clusters.get(cluster)
        return view is not None and not view.staleness_reason(now, self.rules.capacity_age_max)

    def is_lost_for_good(self, cluster: str, now: float) -> bool:
        """Returns whether a person declared the cluster lost, and it is not fresh after all."""
        view = self.clusters.get(cluster)
        return view is not None and view.phase == PHASE_LOST and not self.is_fresh(cluster, now)

    def unbound_places(self) -> set[tuple[WorkloadKey, str]]:
        """Returns each (workload, cluster) pair in which replicas are not bound yet, by the newest records."""
        places = ((self.workloads[key], cluster) for key, cluster in self._promises.reserved_places())
        return {
            (one.workload_key, cluster) for one, cluster in places if self.unbound_replicas(one, one.parts[cluster])
        }

    def unbound_replicas(self, workload: Workload, part: Part) -> int:
        """Returns the unbound replicas of a part. Other reserved places (for a surge or a ceiling) do not count."""
        reservation = self.reservation_of(workload.workload_key, part.cluster)
        return min(reservation.free + reservation.new, max(0, part.replicas - reservation.counted))

    def shape_in(self, cluster: str, shape: Shape) -> Shape:
        """Returns the shape that pods of this shape's template have in the cluster, with the limits of their volumes.
        Where the cluster has not reported it, the shape stays as declared."""
        admitted = self.admitted.shape_in(cluster, shape)
        if not admitted.volume_claims:
            return admitted
        return with_volume_limits(admitted, self.volume_claims_in(cluster, admitted.namespace))

    def volume_claims_in(self, cluster: str, namespace: str) -> NamespaceClaims:
        """Returns the volume claims of a namespace in the cluster, as far as they are known."""
        view = self.clusters.get(cluster)
        return NO_CLAIMS if view is None else view.volume_claims_in(namespace)

    def room_in_cluster(
        self, cluster: str, shape: Shape, node_groups: bool, now: float, key: WorkloadKey | None = None
    ) -> Room:
        """Returns how many more replicas of a shape a cluster takes now. key: the workload that asks, if one does."""
        view, shape = self.clusters[cluster], self.shape_in(cluster, shape)
        room = self._promises.room_in_cluster(view, shape, node_groups)
        closed = why_closed(self, view, shape, now, key)
        return Room(0, 0, closed, room.when_empty or view.epoch < 0) if closed is not None else room

    def unreserved_room(self, cluster: str, shape: Shape) -> tuple[int, NodeLimit]:
        """Returns how many more replicas existing nodes would take if nothing were promised, and what limits that."""
        return self._promises.unreserved_room(self.clusters[cluster], self.shape_in(cluster, shape))

    def room_on_lent_nodes(self, cluster: str, shape: Shape, now: float, key: WorkloadKey) -> int:
        """Returns how many more replicas a cluster would take once all nodes that it has lent are back."""
        view, shape = self.clusters[cluster], self.shape_in(cluster, shape)
        closed = why_closed(self, view, shape, now, key)
        return 0 if closed is not None else self._promises.room_on_lent_nodes(view, shape)

    def rooms_of_fleet(self, shape: Shape, now: float, key: WorkloadKey | None = None) -> FleetRooms:
        """Returns the room by (cluster, node_groups): on existing nodes (False) or new nodes of node groups (True)."""
        seen = self._seen  # One computation serves most clusters. Clusters with another shape or no room come after it.
        rooms = self._promises.rooms_of_fleet(self.clusters, shape, seen.nodes)
        where = self.clusters if shape.volume_claims else self.admitted.clusters_changing_shape(shape)
        closed = {*self.holds.clusters_of(shape), *(self.holds.clusters_of(key) if key is not None else ())}
        for one, names in other_admitted_shapes(shape, where, self.shape_in) if where else ():
            rooms.replace_rooms(self._promises.rooms_of_fleet(self.clusters, one, seen.nodes), names)
            closed.update(names & self.holds.clusters_of(one))
        closed |= self._ages.clusters_not_fresh(self.clusters, now, self.rules.capacity_age_max, seen.heard)
        closed |= self._joined.inactive_clusters(self.clusters, seen.nodes)
        closed.update(self._twins, self.admitted.clusters_refusing(shape), clusters_with_orphan(self, key))
        for name, node_groups in [place for place in rooms if place[0] in closed] if closed else ():
            rooms.replace_room((name, node_groups), self.room_in_cluster(name, shape, node_groups, now, key))
        return rooms

    def room_without_workload(self, cluster: str, shape: Shape, now: float, key: WorkloadKey) -> Room:
        """Returns the room on existing nodes as if nothing were reserved for this workload there."""
        view = self.clusters.get(cluster)
        if view is None or (stale := view.staleness_reason(now, self.rules.capacity_age_max)):
            limit = Limit(LimitCode.GONE) if view is None else Limit(LimitCode.AGE, said=stale)
            return Room(0, 0, limit, when_empty=False)
        return self._promises.room_without_workload(view, self.shape_in(cluster, shape), False, key)

    def rooms_for_waiting(self, cluster: str, shape: Shape, now: float) -> Rooms:
        """Returns the largest rooms that a waiting workload of this shape may find in a cluster; () before it joins."""
        view = self.clusters.get(cluster)
        if view is None or view.joined is None:
            return ()
        on_nodes = self._widest_room(cluster, shape, False, now)
        return (on_nodes, self._widest_room(cluster, shape, True, now)) if view.joined.node_groups else (on_nodes,)

    def _widest_room(self, cluster: str, shape: Shape, node_groups: bool, now: float) -> Room:
        """Returns the largest room of the workloads that wait with this shape. Rooms differ if the pods' labels do."""
        view, shapes = self.clusters[cluster], [shape]
        if self.admitted.has_changes_in(cluster) or self._promises.do_traits_matter(view, shape):
            waiting = (
                self.shape_in(cluster, self.workloads[key].replica_shape)
                for key in self.waiting.workloads_with_shape(shape)
            )
            shapes = list({(one, one.traits, one.template): one for one in waiting}.values()) or shapes
        if not node_groups:
            shapes = [one for one in shapes if not self._promises.has_no_fitting_node(view, one)]
        rooms = [self.room_in_cluster(cluster, one, node_groups, now) for one in shapes] or [NO_ROOM]
        widest = max(rooms, key=lambda room: (room.certain, room.possible))
        return widest._replace(possible=max(room.possible for room in rooms))

    def note_room_change(self, *clusters: str) -> None:
        """Marks clusters whose room may have changed, so that waiting workloads are planned again."""
        self.revision += len(clusters)
        self.waiting.mark_changed_clusters(*clusters)
        self.rollouts.retry_waiting_on(*clusters)

    def _note_room_changes(self, clusters: Iterable[str]) -> None:
        for cluster in clusters:
            self._seen.note_change()
            self.note_room_change(cluster)

    def room_revision(self, cluster: str) -> tuple[int, int]:
        """Returns a value that changes when the cluster's room may have changed, except by time, phases and holds."""
        return self.clusters[cluster].revision, self._promises.revision_of_cluster(cluster)

    def room_for_new_shape(self, workload: Workload, part: Part, shape: Shape) -> int | None:
        """Returns how many replicas of a new shape certainly fit in a part's cluster once the part's pods are gone.
        None: not known, for example with pods of several sizes. A guess could cost running replicas."""
        cluster, borne = part.cluster, workload.template_of(part)
        shape, own = self.shape_in(cluster, shape), self.shape_in(cluster, borne.shape)
        view = self.clusters.get(cluster)
        facts = view.facts.get(workload.workload_key) if view is not None else None
        if view is None or shape.host_ports:
            return None
        counted = sum(count for _, count in facts.counted) if facts is not None else 0
        nodes = view.nodes.without_workload_pods(workload.declared.namespace, borne.labels, own.requests, counted)
        if nodes is None or (own != borne.shape and (nodes.requested < 0).any()):  # Old pods had another shape.
            return None
        return self._promises.room_on_future_nodes(view, shape, nodes, workload.workload_key).certain

    # ── Applying ────────────────────────────────────────────────────────────────────────────────────────────────

    def _apply_declaration(self, event: WorkloadDeclared) -> None:
        key = (event.namespace, event.name)
        known = self.workloads.get(key)
        if known is not None and known.declared.generation > event.generation:
            return
        if known is None:
            known = self.workloads[key] = read_workload(event)
        elif known.declared.template_generation != event.template_generation:
            for cluster in self.clusters:  # The new template may remove the reason for the hold.
                self.holds.pop((cluster, key), None)
            known.waiting_since, known.settled = None, False
        if templates_of(known.declared) != templates_of(event):
            known.template, known.earlier = (
                read_template(event.manifest, event.namespace),
                read_earlier_templates(event),
            )
        self.admitted.note_declared(known.replica_shape.template)
        known.declared, known.gone_at = event, None
        self.declared.note_declaration(event)
        early = self._orphan_placements.pop(key, None)
        if early is not None:
            self._apply_placement(early)
        known.statuses.update(self._early_statuses.pop(key, {}))
        self._refresh_workload(key)

    def _apply_capacity_need(self, event: CapacityNeeded) -> None:
        needs = self.needed.setdefault((event.namespace, event.name), {})
        if event.cluster not in needs or event.generation >= needs[event.cluster].generation:
            needs[event.cluster] = event

    def _apply_claim_or_shape(self, event: TurnTaken | ShapeAdmitted, offset: int) -> None:
        """Applies a claim of a propagator or collector, or the shape that a cluster gives to a template's pods."""
        if isinstance(event, ShapeAdmitted):
            self._note_propagator_epoch(event.cluster, event.epoch)
            if self.admitted.apply_record(event):
                self._note_shape_change(event.template, event.cluster)
        elif event.service == "propagator":
            self._note_propagator_epoch(event.cluster, offset)
            self.admitted.note_claim(event.cluster)
        elif event.service == "snapshot" and event.cluster in self.clusters:
            self.clusters[event.cluster].apply_turn_claim(offset)

    def _note_propagator_epoch(self, cluster: str, epoch: int) -> None:
        for key in workloads_refused_in(self, cluster) if self.owners.note_epoch(cluster, epoch) else ():
            self._refresh_part(self.workloads[key], cluster)

    def _apply_join(self, event: ClusterJoined) -> None:
        view = self.cluster_view(event.cluster)
        # The cluster's phase, tier or labels may have changed: replicas may have to leave now, or may stay again.
        if view.joined != event:
            for key in self.workload_keys_in(event.cluster):
                self.misplaced[key] = None
                self.workloads[key].looked_at = None
        view.apply_cluster_joined(event)
        self._seen.note_change()
        self.note_room_change(event.cluster)
        self.rollouts.retry_all()  # Rollouts that wait for room in any cluster now wait for this one, too.
        self._update_twins()

    def _remove_cluster(self, cluster: str) -> None:
        self.clusters.pop(cluster, None)
        self.holds.drop_cluster(cluster)
        self._seen.note_change()
        self._update_twins()
        self._note_room_changes(self._virtual_nodes.follow_all_clusters(self.clusters))

    def _update_twins(self) -> None:
        self._twins, others = mark_twins(self.clusters)
        if others:
            self._note_room_changes([*others, *self._virtual_nodes.follow_all_clusters(self.clusters)])

    def _apply_capacity(
        self, event: CapacityReported | CapacityChanged, now: float, offset: int, columns: NodeColumns
    ) -> None:
        """Applies a capacity record. The order matters, as each step reads the result of the step before: the view,
        twins, virtual nodes, reservations, room."""
        view = self.cluster_view(event.cluster)
        before, claims, nodes, revision = view.revision, view.claims_revision, view.nodes, view.nodes.revision
        if isinstance(event, CapacityChanged):
            keys = view.apply_capacity_changed(event, columns, now, offset)
        else:
            keys = view.apply_capacity_reported(event, columns)
            self._update_twins()
        self._seen.note_change(nodes=view.nodes is not nodes or view.nodes.revision != revision)
        if view.nodes is not nodes or view.nodes.revision != revision:
            self._note_room_changes(self._virtual_nodes.follow_cluster(self.clusters, event.cluster))
        if view.claims_revision != claims:  # Templates with volume claims may have another shape there now.
            anyway = self.admitted.has_changes_in(event.cluster)
            keys |= {
                key for key in self.workload_keys_in(event.cluster) if anyway or self.workloads[key].has_volume_claims
            }
        for key in [one for one in keys if one in self.workloads]:
            self._refresh_part(self.workloads[key], event.cluster)
        if view.revision != before or isinstance(event, CapacityReported):
            self.note_room_change(event.cluster)

    def _apply_dependency(self, event: DependencyDeclared) -> None:
        namespace, _, name = event.workload.partition("/")
        owner = self.workloads.get((namespace, name))
        self.declared.store_dependency(event, owner.declared if owner is not None else None)

    def _apply_placement(self, event: PlacementDecided) -> None:
        key = (event.namespace, event.name)
        workload = self.workloads.get(key)
        if workload is None:
            self._orphan_placements[key] = event
            return
        if workload.placement is not None and event.generation < workload.placement.generation:
            return
        if workload.placement is not None and event.workload_generation != workload.placement.workload_generation:
            workload.waiting_since, workload.settled = None, False
            self.waiting.begin_new_wait(key)
        listed = {part.cluster for part in event.parts}
        dropped = [cluster for cluster in workload.parts if cluster not in listed]
        workload.placement = event
        self._unlist_from_clusters(key, dropped)
        for part in event.parts:
            self._keys_in.setdefault(part.cluster, {})[key] = None
        workload.looked_at = None
        self._refresh_workload(key)
        # The room that this workload takes may be free again by the next look, which then sees no gain. So the workload
        # becomes due now. Also, a whole workload may have waited for a cluster that this placement no longer lists.
        self.waiting.retry_workload(key)

    def _apply_status(self, event: WorkloadObserved) -> None:
        key = (event.namespace, event.name)
        workload = self.workloads.get(key)
        known = self._early_statuses.setdefault(key, {}) if workload is None else workload.statuses
        before = known.get(event.cluster)
        if before is not None and (event.epoch, event.sequence) < (before.epoch, before.sequence):
            return
        known[event.cluster] = event
        self._note_propagator_epoch(event.cluster, event.epoch)
        if may_change_missing_wait(workload, before, event):
            self.waiting.retry_workload(key)
        if is_barring_orphan(event) != (before is not None and is_barring_orphan(before)):
            self._note_orphan_change(event.cluster, key)
        if workload is not None:
            self._refresh_part(workload, event.cluster)
            self._index_workload(workload)

    def _note_shape_change(self, digest: str, cluster: str) -> None:
        """Computes the reservations of a template's replicas in a cluster again, and retries its waiting workloads."""
        self.waiting.retry_template(digest)
        for key in self.workload_keys_in(cluster):
            if any(shape.template == digest for shape in self.workloads[key].shapes_of_templates()):
                self._refresh_part(self.workloads[key], cluster)
        self.note_room_change(cluster)

    def _note_scale_change(self, key: WorkloadKey) -> None:
        self.scalings.index_workload(key, self.workloads.get(key))

    def _refresh_workload(self, key: WorkloadKey) -> None:
        workload = self.workloads[key]
        self._set_reservations(key, reservations_by_cluster(self, workload, workload.parts.values()))
        self._index_workload(workload)

    def _refresh_part(self, workload: Workload, cluster: str) -> None:
        part = workload.parts.get(cluster)
        if part is not None:
            self._set_reservations(workload.workload_key, reservations_by_cluster(self, workload, (part,)))

    def _unlist_from_clusters(self, key: WorkloadKey, clusters: Iterable[str]) -> None:
        self._set_reservations(key, dict.fromkeys(clusters, NOTHING_RESERVED))
        for cluster in clusters:
            self._keys_in.get(cluster, {}).pop(key, None)

    def _set_reservations(self, key: WorkloadKey, reservations: Mapping[str, Reservation]) -> None:
        self.note_room_change(*self._promises.set_reservations(key, reservations))

    def _index_workload(self, workload: Workload) -> None:
        """Updates the short lists that rounds walk: workloads that wait, moved or roll, or have parts to settle."""
        self.scalings.index_workload(workload.workload_key, workload)
        ending, placement = workload.declared.deleting or workload.declared.disowning, workload.placement
        waits_for = recorded_waits(placement).room
        if (workload.unplaced > 0 or waits_for) and not ending:
            self.waiting.put_workload(workload.workload_key, workload.replica_shape, workload.declared.policy.priority)
        else:
            self.waiting.drop_workload(workload.workload_key)
            workload.waiting_since, workload.lent_since, workload.settled = None, None, False
        statuses, moved, rolling, settling = workload.statuses, False, False, False
        for part in workload.parts.values():
            moved = moved or part.replicas_lost > 0 or part.replicas_leaving > 0
            rolling = rolling or not (part.removing or is_newest(part, workload.declared))
            settling = settling or part.removing or part.disowning or part.adopting
            settling = settling or (bool(statuses) and is_blocked_by_orphan(workload, part))
        for keys in (self.moved, self.to_look_at):
            put_or_drop_key(keys, workload.workload_key, moved)
        if ending:
            self.misplaced.pop(workload.workload_key, None)
        elif waits_for and not workload.unplaced:
            self.misplaced[workload.workload_key] = None
        if rolling and not ending:
            self.rollouts.put_workload(workload.workload_key)
        else:
            self.rollouts.drop_workload(workload.workload_key)
        put_or_drop_key(self.leaving, workload.workload_key, settling or (ending and not workload.parts))
