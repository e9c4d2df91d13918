"""Divides replicas over tiers and clusters.

It fills tiers in order, empties them in reverse, and moves few replicas.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

from planner.core.division import words
from planner.core.division.situation import Division, Situation
from planner.core.division.splits import BY_ROOM, TierStanding, divide_growth, divide_shrinkage
from planner.core.division.words import DivisionEntry, cluster_input_of
from planner.core.feasibility.fleet_rooms import FleetRooms
from planner.core.feasibility.limits import Limit, LimitCode
from planner.core.knowledge.allowance import CAUSE_POLICY
from planner.core.manifests.policy import TierClusters, clusters_of_tiers, fleet_clusters, weights_in_tier
from spillway.model import ClusterInput, ClusterLimit, Tier

FROZEN = Limit(LimitCode.FROZEN)
"""The limit of a cluster that has room and takes no replica because of a brake."""


@dataclass(slots=True)
class _Growth:
    """The replicas that this division has given out so far, by cluster.

    closed: clusters that get none.
    free: replicas for existing nodes. new: replicas for nodes that do not exist yet.
    uncertain: the number of replicas, in all clusters, that wait for binds.
    lent: replicas that wait for nodes which the cluster has lent.
    missing: replicas that wait for an object which the cluster lacks.
    """

    closed: frozenset[str] = frozenset()

    free: dict[str, int] = field(default_factory=dict)
    new: dict[str, int] = field(default_factory=dict)
    uncertain: int = 0
    lent: dict[str, int] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)

    def given_to_cluster(self, cluster: str) -> int:
        return self.free.get(cluster, 0) + self.new.get(cluster, 0)

    def total_growth(self) -> int:
        return sum(self.free.values()) + sum(self.new.values())

    def waiting_replicas(self) -> int:
        """Returns the replicas that wait for lent nodes or for a missing object."""
        return sum(self.lent.values()) + sum(self.missing.values())


def divide_workload(situation: Situation) -> Division:
    """Divides a workload's replicas over the clusters of its policy's tiers.

    If replicas are added, the present ones stay, and the others go to the first tier that certainly takes them. If
    replicas are taken away, the last tier is emptied first, and unbound replicas go first. Replicas in clusters that
    the policy rules out, or above a maximum, leave as far as other clusters take them. Replicas also leave to fill
    another cluster's minimum.
    """
    tiers = clusters_by_tier(situation)
    limits = {limit.cluster: limit for limit in situation.policy.limits}
    ruled_out = _replicas_ruled_out(situation, tiers, limits)
    over = {name: count for name, count in ruled_out.items() if situation.by_name and name not in situation.reasons}
    missing = situation.replicas - sum(held.replicas for held in situation.held.values())
    growth, to_go, unplaced = _Growth(), dict[str, int](), 0
    taken, moved, lacking = dict[str, int](), dict[str, int](), dict[str, int]()
    if missing < 0:
        leaves = {name for name, cause in situation.reasons.items() if cause != CAUSE_POLICY}
        first = ruled_out | {name: _replicas_held(situation, name) for name in leaves}
        taken = _replicas_to_take_away(situation, tiers, limits, first, -missing)
        moved = taken if situation.gently else {}
    else:
        to_go = _replicas_to_leave(situation, over)
        closed = frozenset(situation.reasons) | (situation.fixed if to_go else frozenset())
        growth = _give_out_replicas(situation, tiers, limits, missing + sum(to_go.values()), closed)
        fresh = missing - sum(growth.missing.values())
        taken = amounts_up_to_total(to_go, max(0, growth.total_growth() - fresh))
        unplaced = missing - growth.total_growth() + sum(taken.values())
        lacking = _fill_minima(situation, tiers, limits, growth, taken)
        moved = taken
    if not growth.missing:
        unplaced = max(0, missing - growth.total_growth())
    replicas = {name: held.replicas - taken.get(name, 0) for name, held in situation.held.items()}
    new = {name: max(0, held.new - taken.get(name, 0)) for name, held in situation.held.items()}  # Unbound go first.
    for target in (growth.free, growth.new):
        _add_counts(replicas, target)
    _add_counts(new, dict.fromkeys(growth.free, 0) | growth.new)
    return Division(
        replicas=replicas,
        new=new,
        unplaced=unplaced,
        uncertain=min(growth.uncertain, unplaced),
        lent=growth.lent,
        missing=_waiting_by_missing_objects(situation, growth.missing),
        waits_in=_minima_awaiting_objects(situation, growth, lacking)
        | {name: count for name, count in growth.missing.items() if count},
        to_leave=sum(over.values()) - sum(min(over.get(name, 0), count) for name, count in taken.items()),
        inputs=DivisionEntries(situation, tiers, replicas, situation.fixed if to_go else frozenset()),
        fits_nowhere=not can_fit_somewhere(situation, tiers),
        moved=moved,
        kept_again={
            name: min(count, situation.held[name].may_keep)
            for name, count in growth.free.items()
            if name in situation.held and situation.held[name].may_keep
        },
        reasons=situation.reasons,
        stays={name: count - taken.get(name, 0) for name, count in to_go.items() if name in situation.reasons},
        lacking=lacking,
    )


def _replicas_held(situation: Situation, cluster: str) -> int:
    return situation.held[cluster].replicas if cluster in situation.held else 0


def _waiting_by_missing_objects(situation: Situation, counts: Mapping[str, int]) -> dict[str, int]:
    """Returns the waiting replicas by a text that names the missing objects and the clusters that lack them."""
    places: dict[str, list[str]] = {}
    for cluster in sorted(counts):
        places.setdefault(situation.missing[cluster], []).append(cluster)
    lacking = {what: sorted(one for one, lacks in situation.missing.items() if lacks == what) for what in places}
    return {
        words.missing_objects_text(what, lacking[what]): sum(counts[cluster] for cluster in clusters)
        for what, clusters in places.items()
    }


def tiers_with_lacking_last(situation: Situation, tiers: TierClusters) -> TierClusters:
    """Returns the tiers in the order of use.

    In each, clusters that lack an object that the template names come last.
    """
    lacking = situation.missing
    if not lacking:
        return tiers
    found = []
    for tier, names in tiers:
        last = tuple(name for name in names if name in lacking)
        first = tuple(name for name in names if name not in lacking)
        found += [(tier, some) for some in (first, last) if some or not names]
    return tuple(found)


def clusters_by_tier(situation: Situation) -> TierClusters:
    return clusters_of_tiers(situation.policy.tiers, fleet_clusters(situation.clusters))


def _replicas_ruled_out(
    situation: Situation, tiers: TierClusters, limits: Mapping[str, ClusterLimit]
) -> dict[str, int]:
    if not situation.held:
        return {}
    allowed = {name for _, names in tiers for name in names}
    over = {}
    for name, held in situation.held.items():
        most = maximum_in_cluster(limits, name) if name in allowed else 0
        if held.replicas > most:
            over[name] = held.replicas - most
    return over


def _replicas_to_leave(situation: Situation, over: dict[str, int]) -> dict[str, int]:
    """Returns, by cluster, the replicas that leave as far as other clusters take them."""
    moving = {name: count for name, count in situation.moving.items() if name in situation.reasons}
    to_go = over | {name: min(count, _replicas_held(situation, name)) for name, count in moving.items()}
    return {name: count for name, count in to_go.items() if name not in situation.fixed}


def maximum_in_cluster(limits: Mapping[str, ClusterLimit], cluster: str) -> int:
    limit = limits.get(cluster)
    return limit.replicas_max if limit is not None and limit.replicas_max >= 0 else 2**31


def _give_out_replicas(
    situation: Situation, tiers: TierClusters, limits: Mapping[str, ClusterLimit], wanted: int, closed: frozenset[str]
) -> _Growth:
    """Gives out `wanted` replicas: first minima, then tier by tier certain room, waits for binds, for a missing object,
    for lent nodes. After `lent_waited`, waits for lent nodes come last of all."""
    growth = _Growth(closed)
    for tier, names in tiers:  # Minima come first, whatever their tier: the policy demands them.
        for name in _clusters_with_minimum(tier, names, limits):
            lacks = _minimum_in_cluster(limits, name) - _replicas_held(situation, name)
            more = min(lacks, _open_room(situation, tier, limits, growth, name), wanted)
            if more > 0:
                growth.free[name] = more
                wanted -= more
    for tier, names in tiers_with_lacking_last(situation, tiers):
        if not wanted:
            break
        rooms = _open_room_by_cluster(situation, tier, limits, growth, names)
        target = growth.new if tier.node_groups else growth.free
        some = (situation.held.keys() | growth.free.keys() | growth.new.keys()) & rooms.keys()
        held = {name: _replicas_held(situation, name) + growth.given_to_cluster(name) for name in some}
        standing = TierStanding(held, rooms, weights_in_tier(tier, names, situation.clusters))
        for name, more in divide_growth(tier.split, wanted, standing).items():
            target[name] = target.get(name, 0) + more
            wanted -= more
        if not situation.settled and wanted:
            uncertain = min(wanted, sum(_uncertain_room(situation, tier, limits, growth, name) for name in names))
            growth.uncertain += uncertain
            wanted -= uncertain
        wanted -= _await_missing_objects(situation, tier, limits, growth, names, wanted)
        if situation.lent and not situation.lent_waited and not tier.node_groups:
            wanted -= _await_lent_nodes(situation, limits, growth, names, wanted)
    for names in (names for tier, names in tiers if situation.lent_waited and not tier.node_groups):
        wanted -= _await_lent_nodes(situation, limits, growth, names, wanted)
    return growth


def _await_lent_nodes(
    situation: Situation, limits: Mapping[str, ClusterLimit], growth: _Growth, names: Sequence[str], wanted: int
) -> int:
    """Returns how many replicas without a place wait for lent nodes of these clusters.

    Replicas that move do not wait.
    """
    rooms = {
        name: max(
            0,
            min(
                situation.lent[name],
                maximum_in_cluster(limits, name) - _replicas_held(situation, name) - growth.given_to_cluster(name),
            ),
        )
        for name in names
        if name in situation.lent and name not in growth.closed
    }
    more = amounts_up_to_total(rooms, max(0, min(wanted, _replicas_without_place(situation, growth))))
    growth.lent |= more
    return sum(more.values())


def _await_missing_objects(
    situation: Situation,
    tier: Tier,
    limits: Mapping[str, ClusterLimit],
    growth: _Growth,
    names: Sequence[str],
    wanted: int,
) -> int:
    """Returns how many replicas without a place wait for objects that these clusters lack, up to the room there.

    Replicas that move do not wait.
    """
    if not situation.await_missing or wanted <= 0:
        return 0
    rooms = {}
    for name in names:
        if name in situation.missing and name not in growth.closed:
            most = maximum_in_cluster(limits, name) - _replicas_held(situation, name) - growth.given_to_cluster(name)
            certain = situation.room(name, tier.node_groups).certain
            rooms[name] = max(0, min(certain, most) - growth.missing.get(name, 0))
    more = amounts_up_to_total(rooms, max(0, min(wanted, _replicas_without_place(situation, growth))))
    _add_counts(growth.missing, more)
    return sum(more.values())


def _replicas_without_place(situation: Situation, growth: _Growth) -> int:
    """Returns how many of the workload's replicas run nowhere, have no place yet, and wait for room alone."""
    there = sum(held.replicas for held in situation.held.values())
    return situation.replicas - there - growth.total_growth() - growth.waiting_replicas()


def _open_room_by_cluster(
    situation: Situation, tier: Tier, limits: Mapping[str, ClusterLimit], growth: _Growth, names: tuple[str, ...]
) -> dict[str, int]:
    """Returns _open_room() for each cluster of a tier. For most of them the room alone decides."""
    room, node_groups = situation.room, tier.node_groups
    if isinstance(room, FleetRooms):
        rooms = room.certain_by_cluster(names, node_groups)
    else:
        rooms = {name: room(name, node_groups).certain for name in names}
    some = situation.held.keys() | limits.keys() | growth.free.keys() | growth.new.keys() | situation.missing.keys()
    for name in some & rooms.keys():
        rooms[name] = _open_room(situation, tier, limits, growth, name)
    for name in growth.closed & rooms.keys():
        rooms[name] = 0
    return rooms


def _open_room(
    situation: Situation, tier: Tier, limits: Mapping[str, ClusterLimit], growth: _Growth, cluster: str
) -> int:
    """Returns how many replicas a cluster certainly takes in addition to those that this division has given it."""
    given = growth.new if tier.node_groups else growth.free
    if cluster in growth.closed:
        return 0
    room = situation.room(cluster, tier.node_groups).certain - given.get(cluster, 0)
    if situation.await_missing and cluster in situation.missing:
        room = 0
    if cluster in situation.held and not tier.node_groups:
        room += situation.held[cluster].may_keep
    most = maximum_in_cluster(limits, cluster) - _replicas_held(situation, cluster) - growth.given_to_cluster(cluster)
    return max(0, min(room, most))


def _uncertain_room(
    situation: Situation, tier: Tier, limits: Mapping[str, ClusterLimit], growth: _Growth, cluster: str
) -> int:
    if cluster in growth.closed or (situation.await_missing and cluster in situation.missing):
        return 0
    room = situation.room(cluster, tier.node_groups)
    most = maximum_in_cluster(limits, cluster) - _replicas_held(situation, cluster) - growth.given_to_cluster(cluster)
    return max(0, min(room.possible - room.certain, most))


def amounts_up_to_total(amounts: Mapping[str, int], total: int) -> dict[str, int]:
    """Returns amounts that add up to at most `total`, taken in the order of the names."""
    taken = {}
    for name in sorted(amounts):
        taken[name] = min(amounts[name], total)
        total -= taken[name]
    return {name: count for name, count in taken.items() if count}


def _replicas_to_take_away(
    situation: Situation,
    tiers: TierClusters,
    limits: Mapping[str, ClusterLimit],
    over: Mapping[str, int],
    surplus: int,
) -> dict[str, int]:
    """Returns, by cluster, the replicas to take away: those in `over` first, then tier by tier from the last.

    Replicas of minima are taken last.
    """
    taken = amounts_up_to_total(over, surplus)
    least = {name: _minimum_in_cluster(limits, name) for name in situation.held}
    for keep in (least, dict.fromkeys(least, 0)):
        spare = {name: max(0, held.replicas - taken.get(name, 0) - keep[name]) for name, held in situation.held.items()}
        _add_counts(taken, _spare_replicas_to_take(situation, tiers, spare, taken, surplus - sum(taken.values())))
    return taken


def _spare_replicas_to_take(
    situation: Situation, tiers: TierClusters, spare: Mapping[str, int], gone: Mapping[str, int], surplus: int
) -> dict[str, int]:
    """Returns, by cluster, the replicas to take away, tier by tier from the last, at most `spare` of each cluster.

    gone: by cluster, the replicas that were taken away before.
    """
    left, taken = dict(spare), dict[str, int]()
    for tier, names in reversed(tiers_with_lacking_last(situation, tiers)):
        here = {name: left[name] for name in names if name in left}
        there = {name: _replicas_held(situation, name) - gone.get(name, 0) - taken.get(name, 0) for name in here}
        more = _replicas_to_take_in_tier(situation, tier, here, there, surplus - sum(taken.values()))
        _add_counts(taken, more)
        left |= {name: left[name] - count for name, count in more.items()}
    return taken


def _add_counts(counts: dict[str, int], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        counts[name] = counts.get(name, 0) + count


def _clusters_with_minimum(tier: Tier, names: Sequence[str], limits: Mapping[str, ClusterLimit]) -> list[str]:
    """Returns the clusters of a tier that have a minimum."""
    if tier.node_groups or not limits:
        return []
    return [name for name in names if _minimum_in_cluster(limits, name) > 0]


def _minimum_in_cluster(limits: Mapping[str, ClusterLimit], cluster: str) -> int:
    return limits[cluster].replicas_min if cluster in limits else 0


def _fill_minima(
    situation: Situation,
    tiers: TierClusters,
    limits: Mapping[str, ClusterLimit],
    growth: _Growth,
    taken: dict[str, int],
) -> dict[str, int]:
    """Moves replicas from clusters above their minimum to clusters below theirs.
    Returns, by cluster, how many replicas its minimum still lacks, at most as many as it has room for."""
    lacking = {}
    for tier, names in tiers:
        for name in _clusters_with_minimum(tier, names, limits):
            lacks = (
                _minimum_in_cluster(limits, name)
                - _replicas_held(situation, name)
                - growth.given_to_cluster(name)
                + taken.get(name, 0)
            )
            if lacks <= 0 or name in situation.fixed:
                continue
            spare = _spare_by_cluster(situation, limits, taken)
            spare.pop(name, None)
            may = {
                other: _replicas_allowed_to_leave(situation, other, count, taken.get(other, 0))
                for other, count in spare.items()
            }
            more = _spare_replicas_to_take(
                situation, tiers, may, taken, min(lacks, _open_room(situation, tier, limits, growth, name))
            )
            count = sum(more.values())
            if count:
                _add_counts(taken, more)
                growth.free[name] = growth.free.get(name, 0) + count
            others = (growth.free.keys() | growth.new.keys()) - {name}
            just_placed = sum(_growth_above_minimum(situation, limits, growth, other) for other in others)
            left = min(lacks, sum(spare.values()) + just_placed) - count
            if left > 0:
                lacking[name] = left
    return lacking


def _minima_awaiting_objects(situation: Situation, growth: _Growth, lacking: Mapping[str, int]) -> dict[str, int]:
    """Returns, by cluster, how many replicas its minimum lacks because of a missing object, and not for lack of room.

    Meanwhile these replicas run in other clusters.
    """
    if not situation.await_missing:
        return {}
    names = (name for name in lacking if name in situation.missing and name not in growth.closed)
    waits = {name: min(lacking[name], situation.room(name, False).certain) for name in names}
    return {name: count for name, count in waits.items() if count > 0}


def _growth_above_minimum(
    situation: Situation, limits: Mapping[str, ClusterLimit], growth: _Growth, cluster: str
) -> int:
    """Returns how many of a cluster's new replicas are above its minimum. They may fill another minimum later."""
    above = _replicas_held(situation, cluster) + growth.given_to_cluster(cluster) - _minimum_in_cluster(limits, cluster)
    return max(0, min(growth.given_to_cluster(cluster), above))


def _spare_by_cluster(
    situation: Situation, limits: Mapping[str, ClusterLimit], taken: Mapping[str, int]
) -> dict[str, int]:
    """Returns, by cluster, how many kept replicas are above its minimum and may move."""
    left = {
        name: held.replicas
        - taken.get(name, 0)
        - max(_minimum_in_cluster(limits, name), 0 if situation.by_name else held.by_name)
        for name, held in situation.held.items()
        if name not in situation.reasons and name not in situation.fixed
    }
    return {name: count for name, count in left.items() if count > 0}


def _replicas_allowed_to_leave(situation: Situation, cluster: str, count: int, gone: int) -> int:
    """Returns how many of `count` replicas the brakes let leave for other clusters' minima; all if a person asks.

    gone: replicas that leave already; they use up what the brakes allow.
    """
    most = count if situation.by_name else situation.moving.get(cluster, gone + count) - gone
    return max(0, min(count, most))


def _replicas_to_take_in_tier(
    situation: Situation, tier: Tier, spare: Mapping[str, int], there: Mapping[str, int], surplus: int
) -> dict[str, int]:
    """Returns, by cluster of a tier, the replicas to take away, at most `spare`: unbound first, then unready ones."""
    held, taken = situation.held, dict[str, int]()
    steps = [
        {name: held[name].unbound for name in spare},
        {name: held[name].unbound + held[name].unready for name in spare},
        spare,
    ]
    if tier.node_groups:  # Only replicas that wait for new nodes belong to this tier: bound ones have existing nodes.
        steps = [{name: held[name].new for name in spare}]
    weights = weights_in_tier(tier, list(spare), situation.clusters)
    room = {name: situation.room(name, tier.node_groups).certain for name in spare} if tier.split in BY_ROOM else {}
    for most in steps:
        left = {name: min(count, most[name]) - taken.get(name, 0) for name, count in spare.items()}
        now = TierStanding({name: count - taken.get(name, 0) for name, count in there.items()}, room, weights)
        if sum(taken.values()) < surplus:
            _add_counts(taken, divide_shrinkage(tier.split, surplus - sum(taken.values()), left, now))
    return taken


class DivisionEntries(Sequence[DivisionEntry]):
    """The entries of a division, one for each cluster of each tier. They are made when first asked for."""

    def __init__(
        self,
        situation: Situation,
        tiers: TierClusters,
        replicas: Mapping[str, int],
        frozen: frozenset[str] = frozenset(),
    ) -> None:
        """Stores the values from which the entries are made. frozen: clusters that take nothing because of a brake."""
        self._of = situation, tiers, replicas, frozen
        self._found: tuple[DivisionEntry, ...] | None = None
        self._in_words: tuple[ClusterInput, ...] | None = None

    @overload
    def __getitem__(self, index: int) -> DivisionEntry: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[DivisionEntry, ...]: ...

    def __getitem__(self, index: int | slice) -> DivisionEntry | tuple[DivisionEntry, ...]:
        return self.all_entries()[index]

    def __len__(self) -> int:
        return len(self.all_entries())

    def __eq__(self, other: object) -> bool:
        return self.all_entries() == (other.all_entries() if isinstance(other, DivisionEntries) else other)

    def __hash__(self) -> int:
        return hash(self.all_entries())

    def __repr__(self) -> str:
        return repr(self.all_entries())

    def all_entries(self) -> tuple[DivisionEntry, ...]:
        if self._found is None:
            self._found = tuple(_division_entries(*self._of))
        return self._found

    def as_cluster_inputs(self) -> tuple[ClusterInput, ...]:
        """Returns the entries as ClusterInputs for decision records and gRPC answers. They are converted only once."""
        if self._in_words is None:
            self._in_words = tuple(map(cluster_input_of, self.all_entries()))
        return self._in_words


def cluster_inputs_of(inputs: Sequence[DivisionEntry]) -> tuple[ClusterInput, ...]:
    return inputs.as_cluster_inputs() if isinstance(inputs, DivisionEntries) else tuple(map(cluster_input_of, inputs))


def _division_entries(
    situation: Situation, tiers: TierClusters, replicas: Mapping[str, int], frozen: frozenset[str]
) -> Iterator[DivisionEntry]:
    """Yields each cluster's entry. If several limits apply, the last one that is assigned below counts."""
    limits = {limit.cluster: limit for limit in situation.policy.limits}
    held, ages = situation.held, situation.age_ms
    for tier, names in tiers:
        if not names and not tier.node_groups:
            yield DivisionEntry("", tier.name, 0, 0, 0, 0, 0, Limit(LimitCode.EMPTY_TIER), -1)
        for name in names:
            certain, possible, limited_by, _ = situation.room(name, tier.node_groups)
            before = reserved = 0
            if name in held:
                before, reserved = held[name].replicas, held[name].unbound
            if limits and (most := maximum_in_cluster(limits, name)) - before < certain:
                limited_by = Limit(LimitCode.MAXIMUM, most)
            if name in situation.missing and min(certain, maximum_in_cluster(limits, name) - before) > 0:
                limited_by = Limit(LimitCode.MISSING, names=(situation.missing[name],))
            if name in frozen and min(certain, maximum_in_cluster(limits, name) - before) > 0:
                limited_by = FROZEN
            after = replicas.get(name, before)
            age = ages.get(name, -1)
            yield DivisionEntry(name, tier.name, certain, possible, reserved, before, after, limited_by, age)


def can_fit_somewhere(situation: Situation, tiers: TierClusters) -> bool:
    room, places = situation.room, ((name, tier.node_groups) for tier, names in tiers for name in names)
    if isinstance(room, FleetRooms):
        return any(room.fits_when_empty(place) for place in places)
    return any(room(*place).when_empty for place in places)
