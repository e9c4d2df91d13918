"""Finds overflow that can go home only when its home gets lent nodes back, and publishes that need.

Own machines are used before the cloud (README, docs/adr/0017). A need is a number of replicas that must fit at home,
with the margin that homing leaves free. It includes replicas that fit in the free room already, because a reader that
looks for nodes to recall subtracts the free room first.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

from planner.core.background.homing import LOOK_SECONDS, home_margin, room_at_home
from planner.core.background.overflow import Overflow
from planner.core.division.tier_division import maximum_in_cluster
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.knowledge.workload import Workload
from planner.core.manifests.policy import TIERS_BY_WORK
from spillway.events import CapacityNeeded
from spillway.feasibility.cluster_view import WorkloadKey
from spillway.model import NO_GENERATION

LOOKED_AT_MAX = 50
"""The most workloads whose need one look computes again. The others keep their need until it is their turn. So each of
n workloads is looked at once in n / 50 looks, rounded up, however often others change."""

UNUSED_SECONDS = 10.0
"""A need is kept for twice `home_after` plus these seconds after its nodes came back. Otherwise the nodes would be lent
again before any replica went home: new capacity is known late, and moves have a budget."""

Overflowed = Mapping[WorkloadKey, tuple[Overflow, ...]]


class LentHomes:
    """Computes the needs of overflow, for a few workloads at each look. Its memory ends with the turn."""

    def __init__(self, looked_at_max: int = LOOKED_AT_MAX) -> None:
        self._looked_at_max = looked_at_max
        self._found_of: dict[WorkloadKey, object] = {}
        self._waiting: dict[WorkloadKey, None] = {}
        """Workloads whose need may have changed, the longest waiting first."""
        self._room_since: dict[WorkloadKey, dict[str, float]] = {}
        """By home cluster: the time at which nodes were back for a need that is in the log."""
        self._looked_at: float | None = None

    def update_home_needs(self, state: PlannerState, overflowed: Overflowed, moment: Moment) -> list[CapacityNeeded]:
        """Computes needs again, and returns CapacityNeeded for those that are new, changed or over.

        Returns nothing between two looks.
        """
        if self._looked_at is not None and moment.now - self._looked_at < LOOK_SECONDS:
            return []
        self._looked_at = moment.now
        lending = frozenset(name for name, view in state.clusters.items() if view.nodes.has_lent_nodes)
        concerned = dict(_concerned_workloads(state, overflowed, lending))
        self._end_needs_without_lent_homes(state, concerned)
        for key in self._next_workloads(state, concerned, moment):
            workload, entries = state.workloads[key], concerned[key]
            going = _overflow_going_home(state, workload, entries)
            free = _free_room_by_home(state, workload, going, moment.now)
            needs = _needs_by_home(state, workload, going, free, lending, moment.now)
            workload.home_needs = {**self._kept_needs(state, key, free, needs, moment.now), **needs}
        found = (key for key in concerned if key in self._found_of)
        return [event for key in found for event in _unpublished_needs(state, state.workloads[key], moment)]

    def _end_needs_without_lent_homes(self, state: PlannerState, concerned: Overflowed) -> None:
        """Ends the needs of workloads whose homes lend nothing any more.

        The need of a workload with unplaced replicas is not in the log. Without this, the old need would be published
        once these replicas have places again.
        """
        for key in self._found_of.keys() - concerned.keys():
            if key in state.workloads:
                state.workloads[key].home_needs = {}

    def _kept_needs(
        self, state: PlannerState, key: WorkloadKey, free: Mapping[str, int], needs: Mapping[str, int], now: float
    ) -> Mapping[str, int]:
        """Returns, by home cluster, the needs that stay although their nodes have come back.

        A need that is in the log stays until the replicas have gone home, or until its time is over (UNUSED_SECONDS).
        """
        said = {home: one.replicas_lent for home, one in state.needed.get(key, {}).items() if one.replicas_lent}
        kept = {home: min(most, free[home]) for home, most in said.items() if home not in needs and free.get(home)}
        before = self._room_since.get(key, {})
        self._room_since[key] = {home: before.get(home, now) for home in kept}
        unused = self._unused_homes(state, key, now)
        return {home: room for home, room in kept.items() if home not in unused}

    def _unused_homes(self, state: PlannerState, key: WorkloadKey, now: float) -> frozenset[str]:
        """Returns home clusters whose nodes have been back so long without replicas going there that the need ends."""
        most = 2 * state.rules.home_after + UNUSED_SECONDS
        return frozenset(home for home, at in self._room_since.get(key, {}).items() if now - at >= most)

    def _next_workloads(self, state: PlannerState, concerned: Overflowed, moment: Moment) -> list[WorkloadKey]:
        """Returns the workloads whose need is computed now. A workload that changes again goes to the queue's end."""
        begins = not (self._found_of or self._waiting)
        figures = {
            key: (
                _need_fingerprint(state, state.workloads[key], of, moment.now),
                self._unused_homes(state, key, moment.now),
            )
            for key, of in concerned.items()
        }
        self._room_since = {key: since for key, since in self._room_since.items() if key in concerned}
        self._found_of = {key: of for key, of in self._found_of.items() if key in concerned}
        changed = [key for key, of in figures.items() if self._found_of.get(key) != of]
        if begins:
            changed = self._rotate_by_turn(changed, moment)
        self._waiting = dict.fromkeys(key for key in (*self._waiting, *changed) if key in concerned)
        chosen = list(islice(self._waiting, self._looked_at_max))
        for key in chosen:
            del self._waiting[key]
            self._found_of[key] = figures[key]
        return chosen

    def _rotate_by_turn(self, keys: Iterable[WorkloadKey], moment: Moment) -> list[WorkloadKey]:
        """Returns the keys in a rotated order that begins further on in each turn.

        Otherwise, with many short turns, the last keys would never be looked at.
        """
        ordered = sorted(keys)
        first = moment.generation.epoch * self._looked_at_max % max(1, len(ordered))
        return ordered[first:] + ordered[:first]


def _concerned_workloads(
    state: PlannerState, overflowed: Overflowed, lending: frozenset[str]
) -> Iterator[tuple[WorkloadKey, tuple[Overflow, ...]]]:
    """Yields the overflow of workloads whose homes have lent nodes, and of workloads with a need in the log."""
    for key, entries in overflowed.items():
        if key in state.workloads and any(not lending.isdisjoint(entry.homes) for entry in entries):
            yield key, entries
    for key, needs in state.needed.items():
        if key in state.workloads and any(said.replicas_lent for said in needs.values()):
            entries = overflowed.get(key, ())
            if all(lending.isdisjoint(entry.homes) for entry in entries):
                yield key, entries


def _homes_in_tier_order(state: PlannerState, entries: Iterable[Overflow]) -> list[str]:
    """Returns the homes in the order of their tiers, without clusters that left since the last look."""
    return [home for home in dict.fromkeys(home for entry in entries for home in entry.homes) if home in state.clusters]


def _need_fingerprint(state: PlannerState, workload: Workload, entries: tuple[Overflow, ...], now: float) -> object:
    """Returns a value that changes whenever the need may have changed."""
    homes = _homes_in_tier_order(state, entries)
    rooms = tuple((home, state.room_revision(home), state.is_fresh(home, now)) for home in homes)
    return workload.placement, workload.declared.policy, state.brakes.allowance_revision, rooms


def _overflow_going_home(state: PlannerState, workload: Workload, entries: Iterable[Overflow]) -> list[Overflow]:
    """Returns the overflow that may go home: none if this workload never goes home, and none that a brake holds."""
    rules, policy = state.rules, workload.declared.policy
    never_go = not (rules.moves_per_minute and rules.home_moves_per_minute)
    if workload.unplaced or never_go or policy.work in TIERS_BY_WORK:
        return []
    return [entry for entry in entries if not state.brakes.is_frozen(entry.cluster, workload.workload_key)]


def _free_room_by_home(
    state: PlannerState, workload: Workload, going: Iterable[Overflow], now: float
) -> Mapping[str, int]:
    """Returns how many replicas could go now to each home cluster that no brake holds, in the order of the tiers."""
    homes = (
        home for home in _homes_in_tier_order(state, going) if not state.brakes.is_frozen(home, workload.workload_key)
    )
    return {home: room_at_home(state, workload, home, now) for home in homes}


def _needs_by_home(
    state: PlannerState,
    workload: Workload,
    going: Iterable[Overflow],
    free: Mapping[str, int],
    lending: frozenset[str],
    now: float,
) -> Mapping[str, int]:
    """Returns, by home cluster, how many replicas need room there, those that the free room takes included.

    Returns an empty map if lent nodes would let no more replicas go home. going: from _overflow_going_home().
    free: from _free_room_by_home().
    """
    key, margin = workload.workload_key, home_margin(state, workload)
    count = sum(entry.replicas for entry in going)
    limits = {limit.cluster: limit for limit in workload.declared.policy.limits}
    lent = {}
    for home in (home for home in free if home in lending):
        part = workload.parts.get(home)
        bound = maximum_in_cluster(limits, home) - (part.replicas_kept if part is not None else 0) - free[home]
        lent[home] = max(0, min(state.room_on_lent_nodes(home, workload.replica_shape, now, key), bound))
    wanted = min(count + margin, sum(free.values()) + sum(lent.values()))
    if wanted <= max(margin, sum(free.values())):
        return {}
    lacking, needs = wanted - sum(free.values()), {}
    for home, room in lent.items():
        if more := min(room, lacking):
            needs[home] = free[home] + more
            lacking -= more
    return needs


def _unpublished_needs(state: PlannerState, workload: Workload, moment: Moment) -> Iterator[CapacityNeeded]:
    """Yields CapacityNeeded for needs that differ from the last record.

    Yields nothing for a workload with unplaced replicas: its need is published when it is placed.
    """
    if workload.unplaced:
        return
    needs, said = workload.home_needs, state.needed.get(workload.workload_key, {})
    for cluster in sorted(needs.keys() | said.keys()):
        last = said.get(cluster, CapacityNeeded(*workload.workload_key, cluster, NO_GENERATION, 0, 0))
        if last.replicas_lent != needs.get(cluster, 0):
            yield replace(last, replicas_lent=needs.get(cluster, 0), generation=moment.generation)
