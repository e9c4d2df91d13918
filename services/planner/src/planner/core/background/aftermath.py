"""Decides what follows a placement: takes back unbound replicas, tries waiting workloads again, ends removals."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from planner.core.knowledge.allowance import Allowance, UnlimitedAllowance
from planner.core.knowledge.holds import DECLARED, GONE, TRIED
from planner.core.knowledge.round_time import UNLIMITED_TIME, TimeShare
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment, subject_of_workload
from planner.core.knowledge.timers import PlacementHold, ProgressTimer
from planner.core.knowledge.waiting import Loans
from planner.core.knowledge.workload import (
    Workload,
    is_blocked_by_orphan,
    is_workload_gone,
    refusal_status,
    reported_missing_objects,
)
from planner.core.manifests.templates import is_newest
from planner.core.placement import placing
from planner.core.placement.misplaced import may_use_cluster
from planner.core.placement.missing import Missing, has_waited_for_missing
from planner.core.placement.outlook import rollout_outlook
from planner.core.placement.shares import facts_in_cluster, is_done_in_cluster, unbound_kept
from planner.core.placement.whole import may_be_taken_back
from planner.core.requests import adopting, declaring
from planner.core.requests.remembering import without_old_answers
from spillway.addresses import (
    PLACEMENTS,
    WORKLOADS,
    Tombstone,
    capacity_needed_address,
    dependency_address,
    status_address,
    workload_address,
)
from spillway.events import (
    STATE_ABSENT,
    STATE_DISOWNED,
    STATE_NOT_OWNED,
    STATE_ORPHANED,
    CapacityNeeded,
    Event,
    PlacementDecided,
)
from spillway.feasibility.cluster_view import WorkloadKey
from spillway.model import Part, Shape

NO_BRAKES = UnlimitedAllowance()
NONE_AWAITED: Mapping[str, int] = MappingProxyType({})
"""No request waits for binds in any cluster."""


@dataclass(frozen=True, slots=True)
class AftermathStep:
    """One workload's events, to be written together; none when nothing changed. cause: why replicas moved."""

    key: WorkloadKey
    events: tuple[Event | Tombstone, ...]
    cause: str


def update_progress_timers(state: PlannerState, now: float) -> None:
    """Starts, restarts and ends the timers of parts with unbound replicas. Then notes changes that time alone makes."""
    places = state.unbound_places()
    for place in [place for place in state.timers if place not in places]:
        key, cluster = place
        version, _ = state.timers.pop(place).version
        part = state.workloads[key].parts.get(cluster) if key in state.workloads else None
        if part is not None and part.version == version:  # The part is unchanged, so all its replicas are bound.
            workload = state.workloads[key]
            shape = workload.template_of(part).shape
            state.holds.pop((cluster, state.shape_in(cluster, shape)), None)
            state.holds.pop((cluster, key), None)
    for key, cluster in places:
        workload = state.workloads[key]
        part = workload.parts[cluster]
        if part.removing:
            state.timers.pop((key, cluster), None)
        else:
            _update_part_timer(state, workload, part, now)
    _apply_passed_time(state, now)


def _update_part_timer(state: PlannerState, workload: Workload, part: Part, now: float) -> None:
    unbound = state.unbound_replicas(workload, part)
    place = (workload.workload_key, part.cluster)
    version = (part.version, is_done_in_cluster(state, workload, part))
    timer = state.timers.get(place)
    since = _object_missing_since(workload, part, timer, now)
    if timer is None or timer.version != version or unbound < timer.unbound:
        state.timers[place] = ProgressTimer(version, unbound, now, since)
    else:
        timer.unbound, timer.missing_since = unbound, since


def _object_missing_since(workload: Workload, part: Part, timer: ProgressTimer | None, now: float) -> float | None:
    """Returns the time since which the cluster lacks an object that the part needs; None when it lacks none.

    A change of the part does not reset the time.
    """
    said, before = workload.statuses.get(part.cluster), timer.missing_since if timer is not None else None
    if reported_missing_objects(part, said):
        return now if before is None else before
    return before if said is None or said.version != part.version else None


def _apply_passed_time(state: PlannerState, now: float) -> None:
    """Finds changes that come without an event, and makes the workloads that they affect due.

    Such changes are the end of a hold, and a cluster that becomes fresh, stale or lost.
    """
    for cluster, whom in state.holds.end_due_holds(
        now, state.rules.hold_max, lambda name, hold: _held_workload_state(state, name, hold)
    ):
        state.note_room_change(cluster)
        if not isinstance(whom, Shape):
            state.waiting.retry_workload(whom)
    age_max = state.rules.capacity_age_max
    fresh = frozenset(name for name, view in state.clusters.items() if not view.staleness_reason(now, age_max))
    for cluster in sorted(fresh ^ state.fresh):
        state.note_room_change(cluster)
        state.to_look_at.update(state.moved)
    state.fresh = fresh
    for name, view in state.clusters.items():
        if view.lost_seconds(now, age_max) is not None:
            state.rollouts.retry_waiting_on(name)
    state.rollouts.retry_standing_still(now, state.rules.roll_stands)


def _held_workload_state(state: PlannerState, cluster: str, hold: PlacementHold) -> str:
    """Returns the state of the workload that a hold is about: GONE, DECLARED or TRIED (see holds.py).

    Holds.end_due_holds() decides by this state how long to remember the hold.
    """
    workload = state.workloads.get(hold.workload) if hold.workload is not None else None
    if workload is None or workload.declared.deleting or workload.declared.disowning:
        return GONE
    return TRIED if (workload.workload_key, cluster) in state.timers else DECLARED


def workloads_to_take_back(
    state: PlannerState, moment: Moment, brakes: Allowance = NO_BRAKES
) -> Iterable[tuple[Workload, dict[str, int]]]:
    """Yields each workload with replicas that have waited too long for a node, and their number by cluster."""
    due: dict[WorkloadKey, dict[str, int]] = {}
    for (key, cluster), timer in state.timers.items():
        workload = state.workloads[key]
        part = workload.parts.get(cluster)
        if part is None or not state.is_fresh(cluster, moment.now):  # None: this round has given the part up.
            continue
        if (
            timer.missing_since is not None
            or not is_done_in_cluster(state, workload, part)
            or brakes.is_frozen(cluster, key)
        ):
            continue
        if not may_be_taken_back(workload.declared.kind, state.clusters[cluster].facts.get(key)):
            continue
        kept = min(timer.unbound, unbound_kept(state, workload, part))
        if kept and moment.now - timer.since >= state.rules.take_back_after + _node_lead_seconds(state, part):
            due.setdefault(key, {})[cluster] = kept
    for key, counts in due.items():
        yield state.workloads[key], counts


def workloads_lacking_objects(
    state: PlannerState, moment: Moment, brakes: Allowance = NO_BRAKES
) -> Iterable[tuple[Workload, dict[str, int], dict[str, Missing]]]:
    """Yields (workload, counts, missing) for each workload whose replicas have waited too long for a missing object.

    counts: by cluster, the number of these replicas. missing: by cluster, the missing objects.
    """
    due: dict[WorkloadKey, dict[str, int]] = {}
    for (key, cluster), timer in state.timers.items():
        if timer.missing_since is None:
            continue
        workload = state.workloads[key]
        part = workload.parts.get(cluster)
        if (
            part is None
            or not reported_missing_objects(part, workload.statuses.get(cluster))
            or brakes.is_frozen(cluster, key)
        ):
            continue
        if not may_be_taken_back(workload.declared.kind, facts_in_cluster(state, key, cluster)):
            continue
        if moment.now - timer.missing_since >= _missing_wait_seconds(state, workload, part):
            due.setdefault(key, {})[cluster] = state.unbound_replicas(workload, part)
    for key, counts in due.items():
        workload = state.workloads[key]
        named = {name: reported_missing_objects(workload.parts[name], workload.statuses.get(name)) for name in counts}
        yield workload, counts, named


def _missing_wait_seconds(state: PlannerState, workload: Workload, part: Part) -> float:
    """Returns for how many seconds replicas stay reserved in a cluster that lacks an object.

    A template whose first wait is over reserves nothing in further clusters, as they may lack the object, too.
    """
    if has_waited_for_missing(workload) and is_newest(part, workload.declared):
        return 0.0
    return state.rules.missing_after + _node_lead_seconds(state, part)


def _node_lead_seconds(state: PlannerState, part: Part) -> float:
    """Returns the lead time in seconds of the slowest node group for parts that were promised new nodes; else 0."""
    view = state.clusters.get(part.cluster)
    if not part.replicas_new or view is None or view.joined is None:
        return 0.0
    return float(max((group.lead_time_seconds for group in view.joined.node_groups), default=0))


def hold_clusters(state: PlannerState, workload: Workload, clusters: Iterable[str], now: float) -> None:
    """Begins holds in these clusters: they get no more of the shape or workload for a while, each time twice as long.

    If the scheduler found no node, the hold is against the shape. Otherwise it is against the workload alone: a quota,
    another owner's object or a missing Secret does not affect other workloads. Another owner's object is seldom removed
    soon, so its hold is longer.
    """
    for cluster in clusters:
        part = workload.parts[cluster]
        unschedulable = "/".join(workload.workload_key) in state.clusters[cluster].pending
        shape = state.shape_in(cluster, workload.template_of(part).shape)
        whom: Shape | WorkloadKey = shape if unschedulable else workload.workload_key
        refusal = None if unschedulable else refusal_status(workload, part)
        least, most = state.rules.hold_min, state.rules.hold_max
        if refusal is not None and refusal.state == STATE_NOT_OWNED:
            least, most = most, max(most, state.rules.hold_not_owned_max)
        before = state.holds.get((cluster, whom))
        seconds = least if before is None else max(least, min(before.seconds * 2, most))
        why = refusal.message if refusal is not None else ""
        state.holds[cluster, whom] = PlacementHold(now + seconds, seconds, why=why, workload=workload.workload_key)
        state.timers.pop((workload.workload_key, cluster), None)


def next_waiting_workloads(
    state: PlannerState,
    now: float,
    awaited: Mapping[str, int] = NONE_AWAITED,
    above: int | None = None,
    time: TimeShare = UNLIMITED_TIME,
) -> Iterator[Workload]:
    """Returns a bounded number of waiting workloads with a reason to be planned again (WaitingList.due_workloads).

    They are looked for one by one, as long as there is time.

    awaited: by cluster, the highest priority of the requests that wait for binds there. A workload of no higher
    priority that may use such a cluster waits, too, for at most bind_wait_max. Otherwise it would take each place that
    binds make certain there, and the requests would be refused.
    above: only workloads of a higher priority than this.
    """
    if not awaited or now - state.waiting.served_at >= state.rules.bind_wait_max:
        state.waiting.served_at, awaited = now, NONE_AWAITED
    bound_at = max((view.bound_at for view in state.clusters.values()), default=0.0)
    for key in list(state.waiting.unsettled):
        if _is_bind_wait_over(state, state.workloads[key], bound_at, now):
            del state.waiting.unsettled[key]
            state.workloads[key].settled = True
            state.waiting.retry_workload(key)
    for key, lent in list(state.waiting.for_lent.items()):
        since = state.workloads[key].lent_since
        if since is None or now - since >= state.rules.lent_wait:
            del state.waiting.for_lent[key]
            state.waiting.retry_workload(key)
            for cluster, loans in lent.items() if since is not None else ():
                if loans == _loans_of_cluster(state, cluster):
                    state.waiting.note_vain_wait(cluster, loans, now + state.rules.lent_silence)
    state.waiting.look_at_changed_clusters(
        lambda cluster, shape: state.rooms_for_waiting(cluster, shape, now), state.rules.looks_max
    )
    holds_back = _HeldBack(state, awaited) if awaited else None
    due = state.waiting.due_workloads(state.rules.replans_max, above, holds_back, time)
    return (state.workloads[key] for key in due)


class _HeldBack:
    """Tells which waiting workloads must not take room before the requests that wait for binds in some clusters."""

    def __init__(self, state: PlannerState, awaited: Mapping[str, int]) -> None:
        """awaited: as in next_waiting_workloads()."""
        self._state, self._awaited = state, awaited

    def __call__(self, key: WorkloadKey) -> bool:
        """Returns whether this workload may use an awaited cluster, and its priority is no higher there."""
        workload, waiting = self._state.workloads[key], self._state.waiting
        return any(
            priority >= workload.declared.policy.priority
            and waiting.may_have_room_in(key, name)
            and may_use_cluster(self._state, workload, name)  # The last check, as it takes longest.
            for name, priority in self._awaited.items()
        )


def _loans_of_cluster(state: PlannerState, cluster: str) -> Loans:
    view = state.clusters.get(cluster)
    return view.nodes.loan_states if view is not None else frozenset()


def _is_bind_wait_over(state: PlannerState, workload: Workload, bound_at: float, now: float) -> bool:
    """Returns whether the workload's wait for binds is over: no bind came for bind_quiet, or bind_wait_max is over."""
    assert workload.waiting_since is not None
    quiet = now - max(bound_at, workload.waiting_since) >= state.rules.bind_quiet
    return quiet or now - workload.waiting_since >= state.rules.bind_wait_max


def retry_waiting_workload(
    state: PlannerState, workload: Workload, moment: Moment, brakes: Allowance = NO_BRAKES
) -> AftermathStep:
    """Places as many replicas of a waiting workload as it can. The step has no events when nothing changed."""
    if workload.waiting_since is None:
        workload.waiting_since = moment.now
    if not workload.settled:
        state.waiting.unsettled[workload.workload_key] = None
    state.waiting.note_tried(
        workload.workload_key, lambda cluster, shape: state.rooms_for_waiting(cluster, shape, moment.now)
    )
    placed = placing.place_workload_again(state, workload, moment, brakes)
    if placed.division.lent and workload.lent_since is None:
        workload.lent_since = moment.now
        state.waiting.for_lent[workload.workload_key] = {
            name: _loans_of_cluster(state, name) for name in placed.division.lent
        }
    return AftermathStep(workload.workload_key, placed.events, "Waiting")


def continue_rollout(state: PlannerState, workload: Workload, moment: Moment) -> AftermathStep:
    """Gives the newest template to the next cluster, or updates the reason why no cluster gets it.

    The step has no events when nothing changed.
    """
    placed = placing.place_and_roll(state, subject_of_workload(workload), moment, "Rollout", settled=workload.settled)
    waits = rollout_outlook(state, workload, workload, moment.now)
    state.rollouts.set_awaited_clusters(workload.workload_key, waits.waits_on)
    state.rollouts.note_progress(workload.workload_key, waits.under_way, moment.now)
    if not placed.events:
        return AftermathStep(workload.workload_key, (), "Rollout")
    declared = declaring.with_earlier_templates(workload.declared, workload, placed.placement.parts)
    changed = (without_old_answers(state.rules, declared, moment),) if declared != workload.declared else ()
    return AftermathStep(workload.workload_key, (*changed, *placed.events), "Rollout")


def lowered_capacity_needs(state: PlannerState, moment: Moment) -> tuple[CapacityNeeded, ...]:
    """Returns new CapacityNeeded records with smaller needs, for replicas that have bound since the last record."""
    fewer = []
    places = ((key, cluster, said) for key, needs in state.needed.items() for cluster, said in needs.items())
    for key, cluster, said in places:
        if said.replicas_new:
            needed = state.reservation_of(key, cluster).new
            if needed < said.replicas_new:
                fewer.append(replace(said, replicas_new=needed, generation=moment.generation))
    return tuple(fewer)


def settle_workload(state: PlannerState, key: WorkloadKey, moment: Moment) -> AftermathStep:
    """Returns the next step of a workload with parts that are adopted, removed or disowned, or that is gone.

    Applies the result of an adoption, or drops absent and disowned parts. A workload that is gone gets its tombstones
    `forget_after` seconds after its last part was dropped.
    """
    workload = state.workloads[key]
    followed = adopting.follow_adoption(state, workload, moment)
    if followed:
        return AftermathStep(key, followed, "Adopt")
    if workload.placement is not None:
        placement = _placement_without_settled(state, workload, moment)
        if placement is not None:
            return AftermathStep(key, (placement, *placing.needed_events(state, key, placement, moment, {})), "Removed")
    if not is_workload_gone(workload):
        return AftermathStep(key, (), "")
    if workload.gone_at is None:
        workload.gone_at = moment.now
    if moment.now - workload.gone_at < state.rules.forget_after:
        return AftermathStep(key, (), "")
    return AftermathStep(key, tuple(_tombstones_of_workload(state, workload)), "Forgotten")


def _placement_without_settled(state: PlannerState, workload: Workload, moment: Moment) -> PlacementDecided | None:
    """Returns the placement without parts that are absent, disowned or blocked by an orphan; None if no part is.

    The kept replicas of parts that an orphan blocks become unplaced, so that they are placed elsewhere.
    """
    assert workload.placement is not None
    kept = tuple(part for part in workload.placement.parts if not _is_part_absent(state, workload, part, moment.now))
    if len(kept) == len(workload.placement.parts):
        return None
    back = sum(part.replicas_kept for part in workload.parts.values() if _is_orphan_block_proven(state, workload, part))
    unplaced = workload.placement.unplaced + back
    return replace(workload.placement, parts=kept, unplaced=unplaced, generation=moment.generation)


def _is_part_absent(state: PlannerState, workload: Workload, part: Part, now: float) -> bool:
    """Returns whether the part may leave the placement: its object is gone or no longer Spillway's, or it is blocked.

    The cluster must have reported that at the part's version. A cluster that will not return reports nothing, so its
    disowning part leaves at once. An object that is found there later is an orphan.
    """
    if _is_orphan_block_proven(state, workload, part):
        return True
    if part.disowning and state.is_lost_for_good(part.cluster, now):
        return True
    observed = workload.statuses.get(part.cluster)
    if observed is None or observed.version != part.version:
        return False
    gone = part.removing and observed.state == STATE_ABSENT
    return (gone or (part.disowning and observed.state == STATE_DISOWNED)) and state.owners.may_decide_finally(observed)


def _is_orphan_block_proven(state: PlannerState, workload: Workload, part: Part) -> bool:
    return is_blocked_by_orphan(workload, part) and state.owners.may_decide_finally(workload.statuses[part.cluster])


def _tombstones_of_workload(state: PlannerState, workload: Workload) -> Iterable[Tombstone]:
    namespace, name = workload.workload_key
    for topic in (PLACEMENTS, WORKLOADS):
        yield Tombstone(workload_address(topic, namespace, name))
    for dependency in state.declared.dependencies.values():
        if dependency.workload == f"{namespace}/{name}":
            yield Tombstone(dependency_address(dependency.workload, dependency.kind, namespace, dependency.name))
    for cluster in state.needed.get(workload.workload_key, {}):
        yield Tombstone(capacity_needed_address(namespace, name, cluster))
    for cluster, status in workload.statuses.items():
        if status.state == STATE_ORPHANED:  # The object is there, and its propagator ends this status.
            continue
        yield Tombstone(status_address(namespace, name, cluster))
