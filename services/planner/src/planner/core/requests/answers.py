"""Answers questions about the state, with values for users and programs. It reads the state and changes nothing."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from planner.core.division.situation import Division
from planner.core.division.tier_division import cluster_inputs_of
from planner.core.division.words import limit_text
from planner.core.feasibility.admitted import unmodelled_with_overhead
from planner.core.knowledge.ages import age_ms
from planner.core.knowledge.closing import is_barring_orphan
from planner.core.knowledge.placement_waits import recorded_waits, text_without_rollout
from planner.core.knowledge.rollout_turns import rollout_progress_text
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.transfer import is_in_transfer
from planner.core.knowledge.workload import Workload, is_orphan, is_workload_gone
from planner.core.manifests.request import read_manifests
from planner.core.placement.outlook import held_by_brakes_text
from planner.core.placement.workloads_left import workloads_left_in
from planner.core.requests.cluster_names import refusal_naming_clusters
from spillway.api import (
    CapacityReply,
    CapacityRequest,
    ClusterReply,
    ClusterStatus,
    GetRequest,
    ListClustersReply,
    ListOrphansReply,
    ListOrphansRequest,
    ListReply,
    ListRequest,
    Orphan,
    PlacedPart,
    PlacementReply,
    RequestError,
    WorkloadReply,
    invalid_argument_error,
)
from spillway.events import DecisionRecorded, PlacementDecided, WorkloadDeclared, WorkloadObserved
from spillway.feasibility.cluster_view import ClusterView, WorkloadKey
from spillway.feasibility.node_match import NOT_READY_KEYS
from spillway.feasibility.volumes import volume_claim_warnings
from spillway.kubernetes.pod_shape import shape_without_notes
from spillway.model import NODE_OWNED, ClusterInput, Part, Shape
from spillway.texts import waiting_text
from spillway.troubles import TroubleCode

PAGE_SIZE_DEFAULT = 100
PAGE_SIZE_MAX = 1000
NOWHERE = PlacementReply("", "", 0, 0, 0, 0, "", (), (), (), deleting=False, stale=False)
"""The placement of a workload that is not declared."""


def placement_reply(
    state: PlannerState,
    declared: WorkloadDeclared,
    placement: PlacementDecided | None,
    division: Division | None = None,
    unmodelled: tuple[str, ...] = (),
) -> PlacementReply:
    """Returns the reply about a placement. division: adds to the reply how many replicas each cluster could take."""
    parts = placement.parts if placement else ()
    unplaced = placement.unplaced if placement else declared.replicas
    return PlacementReply(
        namespace=declared.namespace,
        name=declared.name,
        generation=declared.generation,
        replicas=declared.replicas,
        placed=sum(part.replicas_kept for part in parts),
        unplaced=unplaced,
        waiting_for="; ".join(filter(None, placement_and_rollout_waits(state, declared, placement))),
        parts=tuple(
            PlacedPart(
                cluster=part.cluster,
                tier=_tier_of_cluster(state, part.cluster),
                replicas=part.replicas,
                replicas_new=part.replicas_new,
                removing=part.removing,
                replicas_lost=part.replicas_lost,
                replicas_leaving=part.replicas_leaving,
                adopting=part.adopting,
                disowning=part.disowning,
                missing=part.missing,
            )
            for part in parts
        ),
        inputs=cluster_inputs_of(division.inputs) if division else (),
        unmodelled=unmodelled,
        deleting=declared.deleting,
        disowning=declared.disowning,
        stale=False,
        scaled_by=state.scalings.scaled_by(declared),
    )


def placement_and_rollout_waits(
    state: PlannerState, declared: WorkloadDeclared, placement: PlacementDecided | None
) -> tuple[str, str]:
    """Returns two texts for users: the waits of the placement, and the waits of its rollout.

    The second text has the progress of the cluster that the rollout waits for, and the brakes that hold it.
    """
    known, workload = recorded_waits(placement), state.workloads.get((declared.namespace, declared.name))
    before = text_without_rollout(placement) if placement is not None else ""
    if workload is None or placement is None:
        return before, known.rollout
    if workload.placement is placement and is_in_transfer(workload):
        handed = tuple(_transfer_warnings(state, workload))
        if known.rollout:
            return before, "; ".join((known.rollout, *handed))
        return "; ".join(filter(None, (before, *handed))), ""
    if not known.rollout:
        return before, ""
    held = "" if known.rollout_frozen else held_by_brakes_text(state, workload, declared, placement.parts)
    part = workload.parts.get(known.rollout_cluster) if workload.placement is placement else None
    figured = (
        f"{known.rollout}: {rollout_progress_text(part, workload.statuses.get(part.cluster))}"
        if part
        else known.rollout
    )
    return before, f"{figured}; {held}" if held else figured


def _transfer_warnings(state: PlannerState, workload: Workload) -> Iterator[str]:
    """Yields warnings about replicas in draining or leaving clusters that stay during an adoption or disowning."""
    for part in workload.parts.values():
        view = state.clusters.get(part.cluster)
        if view is None or not view.must_hand_over:
            continue
        where = f"{view.phase.lower()} cluster {part.cluster}"
        if part.adopting and part.replicas_kept:
            yield f"{waiting_text(part.replicas_kept, f'of {where}')} until all are taken over"
        elif part.disowning:
            yield f"what is disowned in {where} stays there"


def get_workload(state: PlannerState, request: GetRequest, history: tuple[DecisionRecorded, ...] = ()) -> WorkloadReply:
    """Returns the reply about one workload. If it is no longer declared, the reply has only its past decisions.

    Raises RequestError (NOT_FOUND) if such a workload has none, or if the request does not ask for them.
    """
    key = workload_key(request)
    if is_declared(state, key):
        return workload_reply(state, state.workloads[key], history)
    text = f"workload {'/'.join(key)}: not declared"
    if not history:
        raise RequestError("NOT_FOUND", f"{text}, and no decision on it is kept" if request.history else text)
    if not request.history:
        raise RequestError(
            "NOT_FOUND",
            f"{text} any more: {_last_decision(history[0])}; ask with history for its past decisions",
        )
    return WorkloadReply(replace(NOWHERE, namespace=key[0], name=key[1]), "", (), history, gone=True)


def _last_decision(record: DecisionRecorded) -> str:
    at = datetime.fromtimestamp(record.at_ms / 1000, UTC)
    return f"the last decision on it was {record.cause}, on {at:%Y-%m-%d at %H:%M:%S} UTC"


def workload_key(request: GetRequest) -> WorkloadKey:
    return request.namespace or "default", request.name


def history_count(state: PlannerState, request: GetRequest, kept_max: int) -> int:
    """Returns how many past decisions the reply to a Get needs: as many as the request asks for, at most kept_max.

    For a workload that is no longer declared it needs the last one.
    """
    if request.history:
        return min(request.history, kept_max)
    return 0 if is_declared(state, workload_key(request)) else 1


def is_declared(state: PlannerState, key: WorkloadKey) -> bool:
    workload = state.workloads.get(key)
    return workload is not None and not is_workload_gone(workload)


def uncomputed_volume_claims(state: PlannerState, shape: Shape, clusters: Iterable[str]) -> tuple[str, ...]:
    """Returns the requirements of a shape's volume claims that the planner ignores in these clusters, for users."""
    shapes = ((cluster, state.shape_in(cluster, shape)) for cluster in sorted(clusters))
    return volume_claim_warnings((name, there, state.volume_claims_in(name, there.namespace)) for name, there in shapes)


def unmodelled_in_workload(state: PlannerState, workload: Workload, parts: Iterable[Part]) -> tuple[str, ...]:
    """Returns the requirements of a workload that the planner ignores in clusters where it has replicas, for users."""
    clusters = [part.cluster for part in parts if part.replicas]
    return (*workload.unmodelled_names, *uncomputed_volume_claims(state, workload.replica_shape, clusters))


def workload_reply(
    state: PlannerState, workload: Workload, history: tuple[DecisionRecorded, ...] = ()
) -> WorkloadReply:
    unmodelled = unmodelled_in_workload(state, workload, workload.parts.values())
    placement = placement_reply(state, workload.declared, workload.placement, None, unmodelled)
    statuses = tuple(_status_in_cluster(state, workload, cluster) for cluster in workload.parts)
    return WorkloadReply(placement, workload.declared.kind, statuses, history)


def list_workloads(state: PlannerState, request: ListRequest) -> ListReply:
    """Returns a page of workloads in the order of their namespaces and names.

    page_token: the last key of the page before.
    """
    size = request.page_size or PAGE_SIZE_DEFAULT
    if not 1 <= size <= PAGE_SIZE_MAX:
        raise invalid_argument_error("page_size", request.page_size, f"1 to {PAGE_SIZE_MAX}")
    if request.page_token and request.page_token.count("/") != 1:
        raise invalid_argument_error("page_token", request.page_token, "a token that List returned")
    after = tuple(request.page_token.split("/")) if request.page_token else ("", "")
    keys = sorted(
        key
        for key, workload in state.workloads.items()
        if key > after and not is_workload_gone(workload) and request.namespace in ("", key[0])
    )
    page = [workload_reply(state, state.workloads[key]) for key in keys[:size]]
    token = "/".join(keys[size - 1]) if len(keys) > size else ""
    return ListReply(tuple(page), token, stale=False)


def list_orphans(state: PlannerState, request: ListOrphansRequest) -> ListOrphansReply:
    """Returns the objects that have this fleet's label and that no placement lists, by cluster and name."""
    joined = {cluster.cluster for cluster in state.joined_clusters()}
    found = [
        one
        for said in state.all_statuses()
        if said.cluster in joined and request.namespace in ("", said.namespace)
        for one in _orphans_of(state, said)
    ]
    found.sort(key=lambda one: (one.cluster, one.namespace, one.name, one.kind))
    return ListOrphansReply(tuple(found), stale=False)


def _orphans_of(state: PlannerState, said: WorkloadObserved) -> Iterable[Orphan]:
    """Yields the orphans that a status reports: the workload's own object, and the objects that went along with it.

    Yields nothing if the status is outdated, because the placement has changed since.
    """
    workload = state.workloads.get((said.namespace, said.name))
    if is_orphan(said) == (workload is not None and said.cluster in workload.parts):
        return
    if is_barring_orphan(said):
        counts, version = (said.spec_replicas, said.ready), str(said.version)
        yield Orphan(said.cluster, said.namespace, said.name, *counts, version, said.kind)
    for one in said.beside:
        yield Orphan(said.cluster, one.namespace, one.name, 0, 0, "", one.kind)


def capacity_reply(state: PlannerState, request: CapacityRequest, now: float) -> CapacityReply:
    """Returns how many more replicas of a shape each cluster takes, on existing and on new nodes of node groups."""
    declaration = read_manifests(request.manifests)
    shape = shape_without_notes(declaration.shape)
    rooms, inputs = state.rooms_of_fleet(shape, now), []
    ages = state.ages_ms(now)
    for joined in state.joined_clusters():
        for node_groups in (False, True) if joined.node_groups else (False,):
            room = rooms[joined.cluster, node_groups]
            inputs.append(
                ClusterInput(
                    cluster=joined.cluster,
                    tier="node-groups" if node_groups else joined.tier,
                    certain=room.certain,
                    possible=room.possible,
                    reserved=sum(reserved_by_workload(state, joined.cluster, node_groups).values()),
                    before=0,
                    after=0,
                    limited_by=limit_text(room.limited_by),
                    age_ms=ages[joined.cluster],
                )
            )
    joined_names = [joined.cluster for joined in state.joined_clusters()]
    unmodelled = unmodelled_with_overhead(declaration.shape.unmodelled, shape)
    unmodelled = (*unmodelled, *uncomputed_volume_claims(state, shape, joined_names))
    return CapacityReply(tuple(inputs), unmodelled, stale=False)


def reserved_by_workload(state: PlannerState, cluster: str, node_groups: bool) -> dict[WorkloadKey, int]:
    """Returns replicas that reserve room in a cluster and are not bound: on existing nodes, or on new nodes."""
    held = ((key, state.reservation_of(key, cluster)) for key in state.workload_keys_in(cluster))
    counts = ((key, entry.new if node_groups else entry.free) for key, entry in held)
    return {key: count for key, count in counts if count}


@dataclass(slots=True)
class PlacedThere:
    """The placements in one cluster: their kept replicas, and the number of workloads that list the cluster."""

    replicas: int = 0
    workloads: int = 0


def placed_by_cluster(state: PlannerState) -> defaultdict[str, PlacedThere]:
    placed: defaultdict[str, PlacedThere] = defaultdict(PlacedThere)
    for workload in state.workloads.values():
        for part in workload.placement.parts if workload.placement else ():
            placed[part.cluster].replicas += part.replicas_kept
            placed[part.cluster].workloads += 1
    return placed


def list_clusters(state: PlannerState, now: float) -> ListClustersReply:
    names, placed = [joined.cluster for joined in state.joined_clusters()], placed_by_cluster(state)
    replies = tuple(cluster_reply(state, state.clusters[name], now, placed[name]) for name in names)
    return ListClustersReply(replies, stale=False)


def find_cluster_view(state: PlannerState, name: str, field: str) -> ClusterView:
    """Returns the view of a cluster of the fleet.

    Raises RequestError (NOT_FOUND) that names the request's field and the known clusters.
    """
    view = state.clusters.get(name)
    if view is None or view.joined is None:
        text = f"{field}: {name!r}: no cluster has this name; the fleet has"
        raise refusal_naming_clusters(state, "NOT_FOUND", text)
    return view


def cluster_reply(
    state: PlannerState, view: ClusterView, now: float, placed: PlacedThere | None = None, phase: str = ""
) -> ClusterReply:
    """Returns the reply about a cluster. phase: the phase from now on, if it changes."""
    joined = view.joined
    placed = placed or placed_by_cluster(state)[view.name]
    assert joined is not None, f"cluster {view.name} was never joined"
    allocatable, requested = view.nodes.allocatable_and_requested()
    counted = view.nodes.counted_mask
    virtual = view.nodes.virtual_mask
    ready = counted & (view.nodes.unschedulable == 0)
    for index, taints in enumerate(view.nodes.taint_sets):
        if any(taint.key in NOT_READY_KEYS for taint in taints):
            ready &= view.nodes.taint_set != index
    return ClusterReply(
        cluster=joined.cluster,
        credential=joined.credential,
        endpoint=joined.endpoint,
        tier=joined.tier,
        region=joined.region,
        zone=joined.zone,
        labels=joined.labels,
        node_groups=joined.node_groups,
        state=_cluster_state(view, now, state.rules.capacity_age_max),
        trouble=view.trouble or view.twin_reason or view.unread,
        age_ms=age_ms(view, now),
        nodes=int(counted.sum()),
        nodes_ready=int(ready.sum()),
        allocatable=tuple(sorted(allocatable.items())),
        requested=tuple(sorted(requested.items())),
        unschedulable_pods=sum(entry.pods for entry in view.pending.values()),
        phase=phase or joined.phase,
        left=workloads_left_in(state, view, phase or joined.phase),
        replicas=placed.replicas,
        workloads=placed.workloads,
        nodes_lent=int((view.nodes.live_mask & (view.nodes.state != NODE_OWNED)).sum()),
        nodes_virtual=int((counted & virtual).sum()),
        trouble_code=_trouble_code(view),
    )


def _trouble_code(view: ClusterView) -> int:
    """Returns the code of a cluster's trouble for a reply.

    A cluster without trouble has the code NOT_ALLOWED if it does not let Spillway's account read some kinds. For a twin
    the code stays UNSPECIFIED.
    """
    if view.trouble:
        return view.trouble_code
    return TroubleCode.NOT_ALLOWED if view.unread and not view.twin_reason else TroubleCode.UNSPECIFIED


def _cluster_state(view: ClusterView, now: float, age_max_seconds: float) -> str:
    if view.trouble:
        return "Unreachable"
    if view.epoch < 0 or view.age_seconds(now) is None:
        return "Unknown"
    if view.staleness_reason(now, age_max_seconds):
        return "Stale"
    return "Duplicate" if view.twin_reason else "Ready"


def _status_in_cluster(state: PlannerState, workload: Workload, cluster: str) -> ClusterStatus:
    """Returns a workload's last status in a cluster; zeros without one. Pending pods come from the cluster's view."""
    observed = workload.statuses.get(cluster)
    view = state.clusters.get(cluster)
    pending = view.pending.get("/".join(workload.workload_key)) if view else None
    return ClusterStatus(
        cluster=cluster,
        state=observed.state if observed else "Unknown",
        message=observed.message if observed else "",
        spec_replicas=observed.spec_replicas if observed else 0,
        replicas=observed.replicas if observed else 0,
        updated=observed.updated if observed else 0,
        ready=observed.ready if observed else 0,
        available=observed.available if observed else 0,
        unschedulable=pending.pods if pending else 0,
        unschedulable_reason=pending.reason if pending else "",
        current=observed is not None and observed.version == workload.parts[cluster].version,
        missing=observed.missing if observed else (),
        details=observed.details if observed else None,
    )


def _tier_of_cluster(state: PlannerState, cluster: str) -> str:
    view = state.clusters.get(cluster)
    return view.joined.tier if view and view.joined else ""
