"""Decides how many overflow replicas go home from each cluster, and why others stay (README, "Overflow goes home")."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf

from planner.core.background.aftermath import NO_BRAKES, AftermathStep
from planner.core.background.overflow import Overflow, overflow_of_workload
from planner.core.background.steady import SteadyRoom
from planner.core.division.tier_division import maximum_in_cluster
from planner.core.feasibility.reservation import is_rolling
from planner.core.knowledge.allowance import CAUSE_HOME, Allowance
from planner.core.knowledge.round_time import UNLIMITED_TIME, TimeShare
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.knowledge.timers import HoldKey
from planner.core.knowledge.transfer import is_in_transfer
from planner.core.knowledge.workload import Workload
from planner.core.manifests.cluster_index import ClusterIndex
from planner.core.placement import placing
from planner.core.placement.growth import growth_room
from planner.core.placement.misplaced import tier_bits_of_workload
from planner.core.placement.missing import has_missing_object, has_waited_for_missing
from planner.core.placement.reasons import move_causes_by_cluster
from planner.core.placement.shares import facts_in_cluster
from planner.core.placement.whole import is_whole
from spillway.events import PlacementDecided
from spillway.feasibility.cluster_view import WorkloadKey
from spillway.model import Policy, Shape

LOOK_SECONDS = 1.0
"""Seconds between two looks at rooms. Room that went and came back between two looks counts as not interrupted."""
NEW_PLACES_MAX = 100
"""The most places that one step begins to watch. Each of their rooms is computed in full. On a large fleet a new turn
has so many places that computing all at once would delay requests for seconds."""

Place = tuple[str, Shape]


@dataclass(frozen=True, slots=True)
class HomeMove:
    """A move of overflow from a cluster to its home clusters.

    cluster: the cluster where the overflow is now.
    replicas: how many replicas may go home.
    rooms: by home cluster, how many replicas it takes at most.
    """

    cluster: str
    replicas: int
    rooms: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _KnownOverflow:
    """The overflow of one workload, with the placement and the policy that it was computed from."""

    placement: PlacementDecided | None
    policy: Policy
    overflow: tuple[Overflow, ...]


@dataclass(slots=True)
class _WatchedHome:
    """The room of one shape in one home cluster.

    as_of: the cluster's `_home_room_fingerprint` when the room was last computed. The room is computed for a shape and
    used for all workloads with an equal shape. Effects of a workload's labels are checked when its replicas shall go.
    """

    as_of: object
    steady: SteadyRoom = field(default_factory=SteadyRoom)


class Homing:
    """Finds the overflow that may go home, and watches the room there. Its memory ends with the turn.

    overflowed: the workloads with overflow, as of the last look.
    wanted: by cause and cluster, replicas that would go home if no brake, confirmation or budget held them, as of the
    last look.
    """

    def __init__(self, look_seconds: float = LOOK_SECONDS, new_places_max: int = NEW_PLACES_MAX) -> None:
        """Sets the pace. look_seconds: between two looks. new_places_max: places that each step begins to watch."""
        self._look_seconds, self._new_places_max = look_seconds, new_places_max
        self.overflowed: Mapping[WorkloadKey, tuple[Overflow, ...]] = {}
        self.wanted: dict[tuple[str, str], int] = {}
        self._known: dict[WorkloadKey, _KnownOverflow] = {}
        self._index: ClusterIndex | None = None
        self._watched: dict[Shape, dict[str, _WatchedHome]] = {}
        self._to_watch: list[Place] = []
        self._expected: frozenset[str] = frozenset()
        self._kept_out: dict[HoldKey, float] = {}
        """(home, workload) pairs in which a hold kept the workload from the home, with the time of its end. They are
        kept for `home_after` seconds after that; the time is infinite while the hold runs."""
        self._looked_at: float | None = None
        self._last_tried: WorkloadKey | None = None

    def workloads_going_home(self, state: PlannerState, now: float, time: TimeShare = UNLIMITED_TIME) -> list[Workload]:
        """Returns a bounded number of workloads that may send replicas home; none between two looks.

        Call it in each round after the waiting workloads were tried: these get room first. If the time is over before
        all overflow is known, none may go home, because nobody knows how many replicas would go. The next call goes on.
        """
        if self._looked_at is not None and now - self._looked_at < self._look_seconds:
            self._watch_more_homes(state, now)
            return []
        if not self._know_overflow(state, time):
            self.wanted = {}
            return []
        self._looked_at = now
        overflowed = {key: known.overflow for key, known in self._known.items() if known.overflow}
        self.overflowed = overflowed
        self._measure_home_rooms(state, overflowed, now)
        homes = {home for watched in self._watched.values() for home in watched}
        self._expected = frozenset(home for home in homes if _may_take_waiting_workload(state, home, now))
        return self._next_workloads(self._workloads_wanting_home(state, overflowed, now), state.rules.replans_max)

    def note_tried(self, key: WorkloadKey) -> None:
        """Records that this workload is about to be tried. The next look begins with those after it."""
        self._last_tried = key

    def send_home_step(
        self, state: PlannerState, workload: Workload, moment: Moment, brakes: Allowance
    ) -> AftermathStep:
        """Returns the step that sends replicas of one workload home now; without events when none go."""
        known = self._known.get(workload.workload_key)
        current = (
            known is not None and known.placement is workload.placement and _is_at_rest(state, workload, moment.now)
        )
        for entry in known.overflow if known is not None and current else ():
            if brakes.is_frozen(entry.cluster, workload.workload_key):
                continue
            journey = self._possible_home_move(state, workload, entry, moment.now, brakes)
            allowed = brakes.allow_replicas(CAUSE_HOME, entry.cluster, workload.workload_key, journey.replicas)
            placed = placing.send_overflow_home(state, workload, entry.cluster, allowed, journey.rooms, moment)
            if placed is not None:
                brakes.spend_budget(CAUSE_HOME, entry.cluster, workload.workload_key, allowed)
                return AftermathStep(workload.workload_key, placed.events, CAUSE_HOME)
        return AftermathStep(workload.workload_key, (), CAUSE_HOME)

    # ── What there is ───────────────────────────────────────────────────────────────────────────────────────────

    def _know_overflow(self, state: PlannerState, time: TimeShare) -> bool:
        """Finds the overflow of all workloads by the newest placements. Only what changed is computed again, at least
        one workload in each call.

        Returns whether all is known; otherwise the time was over.
        """
        joined, is_over = state.joined_clusters(), False
        if joined.cluster_index is not self._index:
            self._index, self._known = joined.cluster_index, {}
        for key in self._known.keys() - state.workloads.keys():
            del self._known[key]
        for key, workload in state.workloads.items():
            known, policy = self._known.get(key), workload.declared.policy
            if known is None or known.placement is not workload.placement or known.policy is not policy:
                if is_over:
                    return False
                self._known[key] = _KnownOverflow(workload.placement, policy, overflow_of_workload(workload, joined))
                is_over = time.is_over()
        return True

    def _measure_home_rooms(
        self, state: PlannerState, overflowed: Mapping[WorkloadKey, tuple[Overflow, ...]], now: float
    ) -> None:
        """Measures the room for every overflowed shape in each of its homes, so that it is known since when it lasts.

        Only homes whose fingerprint changed are computed again. Places that no overflow needs are forgotten.
        """
        places: dict[Shape, dict[str, None]] = {}
        for key, entries in overflowed.items():
            for shape, homes in _homes_by_shape(state, state.workloads[key].replica_shape, entries).items():
                places.setdefault(shape, {}).update(homes)
        held = _held_by_cluster(state, now)
        self._note_homes_on_hold(held, state.rules.home_after, now)
        figures = {
            home: _home_room_fingerprint(state, home, held, now)
            for home in {home for homes in places.values() for home in homes}
        }
        before, self._watched, self._to_watch = self._watched, {shape: {} for shape in places}, []
        for shape, homes in places.items():
            known, kept = before.get(shape, {}), self._watched[shape]
            for home in homes:
                if home not in known:
                    self._to_watch.append((home, shape))
                    continue
                watched = kept[home] = known[home]
                if watched.as_of != figures[home]:
                    watched.as_of = figures[home]
                    watched.steady.note_room(state.room_in_cluster(home, shape, False, now).certain, now)
        self._to_watch.reverse()
        self._watch_more_homes(state, now)

    def _note_homes_on_hold(
        self, held: Mapping[str, frozenset[Shape | WorkloadKey]], home_after: float, now: float
    ) -> None:
        """Notes the homes that a hold keeps from one workload.

        For that workload, room at the home counts only from the first look without the hold. So the workload does not
        go there until `home_after` seconds later.
        """
        since = {place: min(before, now) for place, before in self._kept_out.items()}
        self._kept_out = {place: at for place, at in since.items() if now - at < home_after}
        alone = ((home, whom) for home in held for whom in held[home] if not isinstance(whom, Shape))
        self._kept_out.update(dict.fromkeys(alone, inf))

    def _watch_more_homes(self, state: PlannerState, now: float) -> None:
        held = _held_by_cluster(state, now) if self._to_watch else {}
        homes_by_shape: dict[Shape, list[str]] = {}
        for home, shape in [self._to_watch.pop() for _ in range(min(self._new_places_max, len(self._to_watch)))]:
            if home in state.clusters:  # The cluster may have left since the look.
                homes_by_shape.setdefault(shape, []).append(home)
        for shape, homes in homes_by_shape.items():
            for home, room in state.rooms_of_fleet(shape, now).certain_by_cluster(tuple(homes), False).items():
                watched = self._watched[shape][home] = _WatchedHome(_home_room_fingerprint(state, home, held, now))
                watched.steady.note_room(room, now)

    def _workloads_wanting_home(
        self, state: PlannerState, overflowed: Mapping[WorkloadKey, tuple[Overflow, ...]], now: float
    ) -> list[Workload]:
        """Returns workloads whose replicas may go home now, because no brake or confirmation holds them.

        Also sets `wanted` to the replicas of all workloads, held ones included. Several workloads may need the same
        room. Each one gets the room that earlier ones leave, and held workloads come last.
        """
        self.wanted = {}
        left: defaultdict[str, float] = defaultdict(lambda: 1.0)
        found: dict[WorkloadKey, Workload] = {}
        free, held = list[tuple[Workload, Overflow]](), list[tuple[Workload, Overflow]]()
        for key, those in overflowed.items():
            workload = state.workloads[key]
            for entry in those if _is_at_rest(state, workload, now) else ():
                (held if state.brakes.why_held(CAUSE_HOME, entry.cluster, key) else free).append((workload, entry))
        for may_go, entries in ((True, free), (False, held)):
            for workload, entry in entries:
                journey = self._possible_home_move(state, workload, entry, now, NO_BRAKES, left)
                if journey.replicas:
                    if may_go:
                        found[workload.workload_key] = workload
                    cause = (CAUSE_HOME, entry.cluster)
                    self.wanted[cause] = self.wanted.get(cause, 0) + journey.replicas
                    _reduce_free_room(left, journey)
        return list(found.values())

    def _next_workloads(self, wanting: list[Workload], most: int) -> list[Workload]:
        """Returns at most `most` workloads, beginning after the last one that was tried: the first may be stuck for
        long."""
        keys = [workload.workload_key for workload in wanting]
        first = keys.index(self._last_tried) + 1 if self._last_tried in keys else 0
        return [*wanting[first:], *wanting[:first]][:most]

    def _possible_home_move(
        self,
        state: PlannerState,
        workload: Workload,
        overflow: Overflow,
        now: float,
        brakes: Allowance,
        left: Mapping[str, float] | None = None,
    ) -> HomeMove:
        """Returns the move of the replicas that may go home: as many as have fitted for long enough and still fit.

        The margin must stay free at home, so it is subtracted from the room.
        left: the fraction of each home's room that is still free. With it, further homes are left out once there is
        room for all replicas, as they would get none.
        """
        margin = home_margin(state, workload)
        if not state.is_fresh(overflow.cluster, now):
            return HomeMove(overflow.cluster, 0, {})
        rooms = {}
        for home in overflow.homes:
            watched = self._watched.get(state.shape_in(home, workload.replica_shape), {}).get(home)
            if watched is None or home in self._expected or (home, workload.workload_key) in self._kept_out:
                continue
            if brakes.is_frozen(home, workload.workload_key):
                continue
            steady = watched.steady.lasting_room(state.rules.home_after, now)
            room = min(steady, room_at_home(state, workload, home, now)) if steady else 0
            rooms[home] = int(room * left[home]) if left is not None else room
            if left is not None and sum(rooms.values()) >= overflow.replicas + margin:
                break
        return HomeMove(overflow.cluster, max(0, min(overflow.replicas, sum(rooms.values()) - margin)), rooms)


def _homes_by_shape(state: PlannerState, shape: Shape, entries: Sequence[Overflow]) -> dict[Shape, dict[str, None]]:
    """Returns the homes of one workload's overflow, by the shape that it has there."""
    homes = dict.fromkeys(home for entry in entries for home in entry.homes)
    if not shape.volume_claims and not state.admitted.clusters_changing_shape(shape):
        return {shape: homes}
    found: dict[Shape, dict[str, None]] = {}
    for home in homes:
        found.setdefault(state.shape_in(home, shape), {})[home] = None
    return found


def _is_at_rest(state: PlannerState, workload: Workload, now: float) -> bool:
    """Returns whether the workload is at rest: all its replicas are placed, and none leaves, rolls or must move."""
    key = workload.workload_key
    if workload.unplaced or key in state.waiting or key in state.misplaced or key in state.rollouts:
        return False
    if is_in_transfer(workload) or move_causes_by_cluster(state, workload, now):
        return False
    rolling_from = workload.declared.rolling_from
    return not any(
        part.replicas_leaving
        or part.removing
        or is_rolling(part, facts_in_cluster(state, key, part.cluster), rolling_from)
        for part in workload.parts.values()
    )


def home_margin(state: PlannerState, workload: Workload) -> int:
    """Returns how many more replicas must fit at home than go there: a share of the workload's, at least 1."""
    return max(1, ceil(state.rules.home_margin * workload.declared.replicas))


def room_at_home(state: PlannerState, workload: Workload, home: str, now: float) -> int:
    """Returns how many more replicas of the workload a home takes now, by its room and the policy's limits."""
    part = workload.parts.get(home)
    if (part is not None and part.replicas_lost) or has_missing_object(state, workload, home):
        return 0
    limits = {limit.cluster: limit for limit in workload.declared.policy.limits}
    bound = maximum_in_cluster(limits, home) - (part.replicas_kept if part is not None else 0)
    room = growth_room(state, home, workload.possible_shapes_in(home), False, now, workload.workload_key)
    return max(0, min(room.certain, bound))


def _may_take_waiting_workload(state: PlannerState, home: str, now: float) -> bool:
    """Returns whether a waiting workload may be placed in the home cluster.

    Then no overflow goes there, because replicas that run nowhere have priority.
    """
    home_bit = state.joined_clusters().cluster_index.bit_of(home)
    for key in state.waiting.hopeful_workloads_in(home):
        workload = state.workloads[key]
        policy = workload.declared.policy
        of_tiers = zip(policy.tiers, tier_bits_of_workload(state, workload), strict=True)
        if not any(bits & home_bit for tier, bits in of_tiers if not tier.node_groups):
            continue
        if is_whole(workload.declared.kind) and workload.parts and home not in workload.parts:
            continue
        if has_waited_for_missing(workload) and has_missing_object(state, workload, home):
            continue
        part = workload.parts.get(home)
        limits = {limit.cluster: limit for limit in policy.limits}
        kept = part.replicas_kept if part is not None else 0
        least = limits[home].replicas_min if home in limits else 0
        if kept >= least and _waits_for_minima_alone(state, workload, now):
            continue
        if (
            kept < maximum_in_cluster(limits, home)
            and state.room_in_cluster(home, workload.replica_shape, False, now, key).possible
        ):
            return True
    return False


def _waits_for_minima_alone(state: PlannerState, workload: Workload, now: float) -> bool:
    """Returns whether all replicas are placed where they may stay, and only clusters below their minimum wait."""
    policy, index = workload.declared.policy, state.joined_clusters().cluster_index
    limits = {limit.cluster: limit for limit in policy.limits}
    may_stay = all(
        part.replicas_kept <= maximum_in_cluster(limits, name)
        and any(bits & index.bit_of(name) for bits in tier_bits_of_workload(state, workload))
        for name, part in workload.parts.items()
        if part.replicas_kept and name in state.clusters
    )
    return not workload.unplaced and may_stay and not move_causes_by_cluster(state, workload, now)


def _home_room_fingerprint(
    state: PlannerState, home: str, held: Mapping[str, object], now: float
) -> tuple[object, ...]:
    """Returns a value that changes whenever a room in the home may have changed. held: from _held_by_cluster()."""
    view = state.clusters[home]
    return state.room_revision(home), state.is_fresh(home, now), view.phase, held.get(home)


def _held_by_cluster(state: PlannerState, now: float) -> dict[str, frozenset[Shape | WorkloadKey]]:
    """Returns, by cluster, the shapes and workloads that get no more replicas there now because of a hold."""
    found: dict[str, set[Shape | WorkloadKey]] = {}
    for (cluster, whom), hold in state.holds.running_holds():
        if hold.until > now:
            found.setdefault(cluster, set()).add(whom)
    return {cluster: frozenset(held) for cluster, held in found.items()}


def _reduce_free_room(left: dict[str, float], journey: HomeMove) -> None:
    """Reduces the free fraction of each home's room by the replicas of this move. The first homes fill first."""
    rest = journey.replicas
    for home, room in journey.rooms.items():
        taken = min(rest, room)
        rest -= taken
        left[home] *= 1 - taken / room if room else 1
