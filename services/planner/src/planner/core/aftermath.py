"""After the placement (P6): what does not bind is taken back, what waits is tried again, removals are settled."""

from collections.abc import Iterable
from dataclasses import dataclass

from planner.core import placing
from planner.core.answers import is_gone
from planner.core.fleet import WorkloadKey
from planner.core.placing import Moment
from planner.core.state import Hold, PlannerState, Timer, Workload
from spillway.events import (
    PLACEMENTS,
    STATE_CONTESTED,
    STATE_DEPENDENCY_MISSING,
    STATE_NOT_OWNED,
    STATE_REFUSED,
    WORKLOADS,
    Event,
    Tombstone,
    dependency_address,
    needed_address,
    status_address,
    workload_address,
)
from spillway.model import Part

NOT_CREATED = (STATE_REFUSED, STATE_NOT_OWNED, STATE_DEPENDENCY_MISSING, STATE_CONTESTED)


@dataclass(frozen=True, slots=True)
class Step:
    """One workload's events, to be written together; taken_back: replicas by cluster, for the metric."""

    key: WorkloadKey
    events: tuple[Event | Tombstone, ...]
    cause: str


def watch_unbound(state: PlannerState, now: float) -> None:
    """Starts, restarts and ends the timers of parts whose replicas are not bound."""
    for key, workload in state.workloads.items():
        for cluster, part in workload.parts.items():
            _watch_part(state, key, workload, cluster, part, now)
    gone = [place for place in state.timers if place[1] not in _parts_of(state, place[0])]
    for place in gone:
        del state.timers[place]


def _parts_of(state: PlannerState, key: WorkloadKey) -> dict[str, Part]:
    return state.workloads[key].parts if key in state.workloads else {}


def _watch_part(
    state: PlannerState, key: WorkloadKey, workload: Workload, cluster: str, part: Part, now: float
) -> None:
    reservation = state.reservation(key, cluster)
    unbound = min(part.replicas, reservation.free + reservation.new)
    place = (key, cluster)
    if part.removing or not unbound:
        if state.timers.pop(place, None) is not None and not part.removing:
            state.holds.pop((cluster, workload.shape), None)
        return
    timer = state.timers.get(place)
    blocked = _is_blocked(state, workload, part)
    if timer is None or timer.version != (part.version, blocked) or unbound < timer.unbound:
        state.timers[place] = Timer((part.version, blocked), unbound, now)
    else:
        timer.unbound = unbound


def _is_blocked(state: PlannerState, workload: Workload, part: Part) -> bool:
    """Whether it is the cluster that keeps the replicas from binding, and not ours to carry the placement out.

    Either its object is there as decided and the pods do not bind, or its API refused the object.
    """
    view = state.clusters.get(part.cluster)
    facts = view.facts.get(workload.key) if view is not None else None
    if facts is not None and facts.version == part.version:
        return True
    observed = workload.statuses.get(part.cluster)
    return observed is not None and observed.version == part.version and observed.state in NOT_CREATED


def take_backs(state: PlannerState, moment: Moment) -> Iterable[tuple[Workload, dict[str, int]]]:
    """Workloads with replicas that waited too long for a node, and how many by cluster."""
    due: dict[WorkloadKey, dict[str, int]] = {}
    for (key, cluster), timer in state.timers.items():
        workload = state.workloads[key]
        part = workload.parts[cluster]
        view = state.clusters[cluster]
        fresh = not view.not_fresh(moment.now, state.rules.capacity_age_max)
        if not fresh or not _is_blocked(state, workload, part):
            continue
        if moment.now - timer.since >= state.rules.take_back_after + _lead_time(state, part):
            due.setdefault(key, {})[cluster] = timer.unbound
    for key, counts in due.items():
        yield state.workloads[key], counts


def _lead_time(state: PlannerState, part: Part) -> float:
    """Replicas that were promised new nodes are due once the slowest of the node groups could have made them."""
    view = state.clusters.get(part.cluster)
    if not part.replicas_new or view is None or view.joined is None:
        return 0.0
    return float(max((group.lead_time_seconds for group in view.joined.node_groups), default=0))


def hold(state: PlannerState, workload: Workload, clusters: Iterable[str], now: float) -> None:
    """No more of this shape in these clusters for a while, each time for twice as long."""
    for cluster in clusters:
        before = state.holds.get((cluster, workload.shape))
        seconds = state.rules.hold_min if before is None else min(before.seconds * 2, state.rules.hold_max)
        state.holds[cluster, workload.shape] = Hold(now + seconds, seconds)
        state.timers.pop((workload.key, cluster), None)


def next_waiting(state: PlannerState) -> list[Workload]:
    """Workloads with unplaced replicas that something changed for since they were last tried, oldest first."""
    waiting = (state.workloads[key] for key in state.waiting)
    return [entry for entry in waiting if entry.tried_at_revision != state.revision][: state.rules.replans_max]


def try_again(state: PlannerState, workload: Workload, moment: Moment) -> Step:
    """Places what it can of a waiting workload; no events when nothing changed."""
    rules = state.rules
    if workload.waiting_since is None:
        workload.waiting_since = moment.now
    bound_at = max((view.bound_at for view in state.clusters.values()), default=0.0)
    quiet = moment.now - max(bound_at, workload.waiting_since) >= rules.bind_quiet
    workload.settled = quiet or moment.now - workload.waiting_since >= rules.bind_wait_max
    placed = placing.place(state, placing.subject_of(workload), moment, "Waiting", settled=workload.settled)
    workload.tried_at_revision = state.revision
    if placed.placement.unplaced == 0:
        workload.waiting_since, workload.settled = None, False
    return Step(workload.key, placed.events, "Waiting")


def settle(state: PlannerState, key: WorkloadKey, moment: Moment) -> Step:
    """Drops parts that are absent; long after the last one of a deleted workload, its tombstones."""
    workload = state.workloads[key]
    if workload.placement is not None:
        placement = placing.settle_removed(workload, moment)
        if placement is not None:
            return Step(key, (placement, *placing.needed_events(state, key, placement, moment)), "Removed")
    if not is_gone(workload):
        return Step(key, (), "")
    if workload.gone_at is None:
        workload.gone_at = moment.now
    if moment.now - workload.gone_at < state.rules.forget_after:
        return Step(key, (), "")
    return Step(key, tuple(_tombstones(state, workload)), "Forgotten")


def _tombstones(state: PlannerState, workload: Workload) -> Iterable[Tombstone]:
    namespace, name = workload.key
    for topic in (PLACEMENTS, WORKLOADS):
        yield Tombstone(workload_address(topic, namespace, name))
    for dependency in state.dependencies.values():
        if dependency.workload == f"{namespace}/{name}":
            yield Tombstone(dependency_address(dependency.workload, dependency.kind, namespace, dependency.name))
    for owner, cluster in state.needed:
        if owner == workload.key:
            yield Tombstone(needed_address(namespace, name, cluster))
    for cluster in workload.statuses:
        yield Tombstone(status_address(namespace, name, cluster))
