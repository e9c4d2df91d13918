"""Divides replicas over tiers and clusters.

It fills tiers in order, empties them in reverse, and moves few replicas.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

from planner.core.division import words
from planner.core.division.situation import Division, Situation
from planner.core.division.splits import BY_ROOM, TierStanding, divide, shrink
from planner.core.division.words import DivisionEntry, as_input
from planner.core.feasibility.fleet_rooms import FleetRooms
from planner.core.feasibility.limits import Limit, LimitCode
from planner.core.knowledge.allowance import CAUSE_POLICY
from planner.core.manifests.policy import FleetClusters, TierClusters, clusters_of_tiers, weights_of
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

    def of(self, cluster: str) -> int:
        return self.free.get(cluster, 0) + self.new.get(cluster, 0)

    def total(self) -> int:
        return sum(self.free.values()) + sum(self.new.values())

    def waiting(self) -> int:
        """Returns the replicas that wait for lent nodes or for a missing object."""
        return sum(self.lent.values()) + sum(self.missing.values())


def divide_workload(situation: Situation) -> Division:
    """Divides a workload's replicas over the clusters of its policy's tiers.

    Growing: replicas that are there stay, and the others go to the first tier that certainly takes them. Shrinking: the
    last tier is emptied first, and in a cluster the unbound replicas go first. Replicas in clusters that the policy
    rules out, or above a maximum, leave as far as others take them. The same holds for replicas that another cluster's
    minimum lacks.
    """
    tiers = clusters_by_tier(situation)
    limits = {limit.cluster: limit for limit in situation.policy.limits}
    ruled_out = _ruled_out(situation, tiers, limits)
    over = {name: count for name, count in ruled_out.items() if situation.by_name and name not in situation.reasons}
    missing = situation.replicas - sum(held.replicas for held in situation.held.values())
    growth, to_go, unplaced = _Growth(), dict[str, int](), 0
    taken, moved, lacking = dict[str, int](), dict[str, int](), dict[str, int]()
    if missing < 0:
        leaves = {name for name, cause in situation.reasons.items() if cause != CAUSE_POLICY}
        first = ruled_out | {name: _before(situation, name) for name in leaves}
        taken = _shrink(situation, tiers, limits, first, -missing)
        moved = taken if situation.gently else {}
    else:
        to_go = _to_go(situation, over)
        closed = frozenset(situation.reasons) | (situation.fixed if to_go else frozenset())
        growth = _grow(situation, tiers, limits, missing + sum(to_go.values()), closed)
        fresh = missing - sum(growth.missing.values())
        taken = first_of(to_go, max(0, growth.total() - fresh))
        unplaced = missing - growth.total() + sum(taken.values())
        lacking = _fill_minima(situation, tiers, limits, growth, taken)
        moved = taken
    if not growth.missing:
        unplaced = max(0, missing - growth.total())
    replicas = {name: held.replicas - taken.get(name, 0) for name, held in situation.held.items()}
    new = {name: max(0, held.new - taken.get(name, 0)) for name, held in situation.held.items()}  # Unbound.
    for target in (growth.free, growth.new):
        _add(replicas, target)
    _add(new, dict.fromkeys(growth.free, 0) | growth.new)
    return Division(
        replicas=replicas,
        new=new,
        unplaced=unplaced,
        uncertain=min(growth.uncertain, unplaced),
        lent=growth.lent,
        missing=_by_what(situation, growth.missing),
        waits_in=_minima_that_wait(situation, growth, lacking)
        | {name: count for name, count in growth.missing.items() if count},
        to_leave=sum(over.values()) - sum(min(over.get(name, 0), count) for name, count in taken.items()),
        inputs=DivisionEntries(situation, tiers, replicas, situation.fixed if to_go else frozenset()),
        fits_nowhere=not fits_somewhere(situation, tiers),
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


def _before(situation: Situation, cluster: str) -> int:
    return situation.held[cluster].replicas if cluster in situation.held else 0


def _by_what(situation: Situation, counts: Mapping[str, int]) -> dict[str, int]:
    """Returns the waiting replicas by text: the missing objects and the clusters that lack them."""
    places: dict[str, list[str]] = {}
    for cluster in sorted(counts):
        places.setdefault(situation.missing[cluster], []).append(cluster)
    lacking = {what: sorted(one for one, lacks in situation.missing.items() if lacks == what) for what in places}
    return {
        words.missing_in(what, lacking[what]): sum(counts[cluster] for cluster in clusters)
        for what, clusters in places.items()
    }


def lacking_last(situation: Situation, tiers: TierClusters) -> TierClusters:
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
    clusters = situation.clusters
    return clusters_of_tiers(
        situation.policy.tiers, clusters if isinstance(clusters, FleetClusters) else FleetClusters(clusters)
    )


def _ruled_out(situation: Situation, tiers: TierClusters, limits: Mapping[str, ClusterLimit]) -> dict[str, int]:
    if not situation.held:
        return {}
    allowed = {name for _, names in tiers for name in names}
    over = {}
    for name, held in situation.held.items():
        most = most_of(limits, name) if name in allowed else 0
        if held.replicas > most:
            over[name] = held.replicas - most
    return over


def _to_go(situation: Situation, over: dict[str, int]) -> dict[str, int]:
    """Returns, by cluster, the replicas that leave as far as other clusters take them."""
    moving = {name: count for name, count in situation.moving.items() if name in situation.reasons}
    to_go = over | {name: min(count, _before(situation, name)) for name, count in moving.items()}
    return {name: count for name, count in to_go.items() if name not in situation.fixed}


def most_of(limits: Mapping[str, ClusterLimit], cluster: str) -> int:
    limit = limits.get(cluster)
    return limit.replicas_max if limit is not None and limit.replicas_max >= 0 else 2**31


def _grow(
    situation: Situation, tiers: TierClusters, limits: Mapping[str, ClusterLimit], wanted: int, closed: frozenset[str]
) -> _Growth:
    """Gives out `wanted` replicas: first minima, then tier by tier certain room, waits for binds, for a missing object,
    for lent nodes. After `lent_waited`, waits for lent nodes come last of all."""
    growth = _Growth(closed)
    for tier, names in tiers:  # Minima come first, whatever their tier: the policy demands them.
        for name in _bounded_below(tier, names, limits):
            lacks = _least(limits, name) - _before(situation, name)
            more = min(lacks, _open(situation, tier, limits, growth, name), wanted)
            if more > 0:
                growth.free[name] = more
                wanted -= more
    for tier, names in lacking_last(situation, tiers):
        if not wanted:
            break
        rooms = _open_in_tier(situation, tier, limits, growth, names)
        target = growth.new if tier.node_groups else growth.free
        some = (situation.held.keys() | growth.free.keys() | growth.new.keys()) & rooms.keys()
        held = {name: _before(situation, name) + growth.of(name) for name in some}
        standing = TierStanding(held, rooms, weights_of(tier, names, situation.clusters))
        for name, more in divide(tier.split, wanted, standing).items():
            target[name] = target.get(name, 0) + more
            wanted -= more
        if not situation.settled and wanted:
            uncertain = min(wanted, sum(_uncertain(situation, tier, limits, growth, name) for name in names))
            growth.uncertain += uncertain
            wanted -= uncertain
        wanted -= _await_missing(situation, tier, limits, growth, names, wanted)
        if situation.lent and not situation.lent_waited and not tier.node_groups:
            wanted -= _await_lent(situation, limits, growth, names, wanted)
    for names in (names for tier, names in tiers if situation.lent_waited and not tier.node_groups):
        wanted -= _await_lent(situation, limits, growth, names, wanted)
    return growth


def _await_lent(
    situation: Situation, limits: Mapping[str, ClusterLimit], growth: _Growth, names: Sequence[str], wanted: int
) -> int:
    """Returns how many replicas without a place wait for lent nodes of these clusters.

    Replicas that move do not wait.
    """
    rooms = {
        name: max(0, min(situation.lent[name], most_of(limits, name) - _before(situation, name) - growth.of(name)))
        for name in names
        if name in situation.lent and name not in growth.closed
    }
    more = first_of(rooms, max(0, min(wanted, _not_there_yet(situation, growth))))
    growth.lent |= more
    return sum(more.values())


def _await_missing(
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
            most = most_of(limits, name) - _before(situation, name) - growth.of(name)
            certain = situation.room(name, tier.node_groups).certain
            rooms[name] = max(0, min(certain, most) - growth.missing.get(name, 0))
    more = first_of(rooms, max(0, min(wanted, _not_there_yet(situation, growth))))
    _add(growth.missing, more)
    return sum(more.values())


def _not_there_yet(situation: Situation, growth: _Growth) -> int:
    """Returns how many of the wanted replicas run nowhere and wait for room alone."""
    there = sum(held.replicas for held in situation.held.values())
    return situation.replicas - there - growth.total() - growth.waiting()


def _open_in_tier(
    situation: Situation, tier: Tier, limits: Mapping[str, ClusterLimit], growth: _Growth, names: tuple[str, ...]
) -> dict[str, int]:
    """Returns what _open returns, for all clusters of a tier. For most of them the room alone decides."""
    room, node_groups = situation.room, tier.node_groups
    if isinstance(room, FleetRooms):
        rooms = room.certain_in(names, node_groups)
    else:
        rooms = {name: room(name, node_groups).certain for name in names}
    some = situation.held.keys() | limits.keys() | growth.free.keys() | growth.new.keys() | situation.missing.keys()
    for name in some & rooms.keys():
        rooms[name] = _open(situation, tier, limits, growth, name)
    for name in growth.closed & rooms.keys():
        rooms[name] = 0
    return rooms


def _open(situation: Situation, tier: Tier, limits: Mapping[str, ClusterLimit], growth: _Growth, cluster: str) -> int:
    """Returns how many replicas a cluster certainly takes beyond what this division has given it."""
    given = growth.new if tier.node_groups else growth.free
    if cluster in growth.closed:
        return 0
    room = situation.room(cluster, tier.node_groups).certain - given.get(cluster, 0)
    if situation.await_missing and cluster in situation.missing:
        room = 0
    if cluster in situation.held and not tier.node_groups:
        room += situation.held[cluster].may_keep
    most = most_of(limits, cluster) - _before(situation, cluster) - growth.of(cluster)
    return max(0, min(room, most))


def _uncertain(
    situation: Situation, tier: Tier, limits: Mapping[str, ClusterLimit], growth: _Growth, cluster: str
) -> int:
    if cluster in growth.closed or (situation.await_missing and cluster in situation.missing):
        return 0
    room = situation.room(cluster, tier.node_groups)
    most = most_of(limits, cluster) - _before(situation, cluster) - growth.of(cluster)
    return max(0, min(room.possible - room.certain, most))


def first_of(amounts: Mapping[str, int], total: int) -> dict[str, int]:
    """Returns amounts that add up to at most `total`, taken in the order of the names."""
    taken = {}
    for name in sorted(amounts):
        taken[name] = min(amounts[name], total)
        total -= taken[name]
    return {name: count for name, count in taken.items() if count}


def _shrink(
    situation: Situation,
    tiers: TierClusters,
    limits: Mapping[str, ClusterLimit],
    over: Mapping[str, int],
    surplus: int,
) -> dict[str, int]:
    """Returns the replicas to take away: ruled-out ones, then tier by tier from the last.

    Minima stay as long as possible.
    """
    taken = first_of(over, surplus)
    least = {name: _least(limits, name) for name in situation.held}
    for keep in (least, dict.fromkeys(least, 0)):
        spare = {name: max(0, held.replicas - taken.get(name, 0) - keep[name]) for name, held in situation.held.items()}
        _add(taken, _take(situation, tiers, spare, taken, surplus - sum(taken.values())))
    return taken


def _take(
    situation: Situation, tiers: TierClusters, spare: Mapping[str, int], gone: Mapping[str, int], surplus: int
) -> dict[str, int]:
    """Returns, by cluster, the replicas to take from the ones that it can spare, tier by tier from the last.

    gone: taken before, by cluster.
    """
    left, taken = dict(spare), dict[str, int]()
    for tier, names in reversed(lacking_last(situation, tiers)):
        here = {name: left[name] for name in names if name in left}
        there = {name: _before(situation, name) - gone.get(name, 0) - taken.get(name, 0) for name in here}
        more = _shrink_tier(situation, tier, here, there, surplus - sum(taken.values()))
        _add(taken, more)
        left |= {name: left[name] - count for name, count in more.items()}
    return taken


def _add(counts: dict[str, int], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        counts[name] = counts.get(name, 0) + count


def _bounded_below(tier: Tier, names: Sequence[str], limits: Mapping[str, ClusterLimit]) -> list[str]:
    """Returns the clusters of a tier that have a minimum."""
    if tier.node_groups or not limits:
        return []
    return [name for name in names if _least(limits, name) > 0]


def _least(limits: Mapping[str, ClusterLimit], cluster: str) -> int:
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
        for name in _bounded_below(tier, names, limits):
            lacks = _least(limits, name) - _before(situation, name) - growth.of(name) + taken.get(name, 0)
            if lacks <= 0 or name in situation.fixed:
                continue
            spare = _spare(situation, limits, taken)
            spare.pop(name, None)
            may = {other: _may_leave(situation, other, count, taken.get(other, 0)) for other, count in spare.items()}
            more = _take(situation, tiers, may, taken, min(lacks, _open(situation, tier, limits, growth, name)))
            count = sum(more.values())
            if count:
                _add(taken, more)
                growth.free[name] = growth.free.get(name, 0) + count
            others = (growth.free.keys() | growth.new.keys()) - {name}
            just_placed = sum(_grown_above(situation, limits, growth, other) for other in others)
            left = min(lacks, sum(spare.values()) + just_placed) - count
            if left > 0:
                lacking[name] = left
    return lacking


def _minima_that_wait(situation: Situation, growth: _Growth, lacking: Mapping[str, int]) -> dict[str, int]:
    """Returns, by cluster, how many replicas its minimum lacks because of a missing object, and not for want of room.

    These replicas run in other clusters meanwhile, like those of a minimum without room.
    """
    if not situation.await_missing:
        return {}
    names = (name for name in lacking if name in situation.missing and name not in growth.closed)
    waits = {name: min(lacking[name], situation.room(name, False).certain) for name in names}
    return {name: count for name, count in waits.items() if count > 0}


def _grown_above(situation: Situation, limits: Mapping[str, ClusterLimit], growth: _Growth, cluster: str) -> int:
    """Returns how many of a cluster's new replicas are above its minimum. They may fill another minimum later."""
    above = _before(situation, cluster) + growth.of(cluster) - _least(limits, cluster)
    return max(0, min(growth.of(cluster), above))


def _spare(situation: Situation, limits: Mapping[str, ClusterLimit], taken: Mapping[str, int]) -> dict[str, int]:
    """Returns, by cluster, how many kept replicas are above its minimum and may move."""
    left = {
        name: held.replicas - taken.get(name, 0) - max(_least(limits, name), 0 if situation.by_name else held.by_name)
        for name, held in situation.held.items()
        if name not in situation.reasons and name not in situation.fixed
    }
    return {name: count for name, count in left.items() if count > 0}


def _may_leave(situation: Situation, cluster: str, count: int, gone: int) -> int:
    """Returns how many of `count` replicas the brakes let leave for other clusters' minima; all if a person asks.

    gone: replicas that leave already; they use up what the brakes allow.
    """
    most = count if situation.by_name else situation.moving.get(cluster, gone + count) - gone
    return max(0, min(count, most))


def _shrink_tier(
    situation: Situation, tier: Tier, spare: Mapping[str, int], there: Mapping[str, int], surplus: int
) -> dict[str, int]:
    """Returns, by cluster of a tier, the replicas to take, at most its spare ones: unbound first, then unready."""
    held, taken = situation.held, dict[str, int]()
    steps = [
        {name: held[name].unbound for name in spare},
        {name: held[name].unbound + held[name].unready for name in spare},
        spare,
    ]
    if tier.node_groups:  # Only replicas that wait for new nodes belong to this tier: bound ones have existing nodes.
        steps = [{name: held[name].new for name in spare}]
    weights = weights_of(tier, list(spare), situation.clusters)
    room = {name: situation.room(name, tier.node_groups).certain for name in spare} if tier.split in BY_ROOM else {}
    for most in steps:
        left = {name: min(count, most[name]) - taken.get(name, 0) for name, count in spare.items()}
        now = TierStanding({name: count - taken.get(name, 0) for name, count in there.items()}, room, weights)
        if sum(taken.values()) < surplus:
            _add(taken, shrink(tier.split, surplus - sum(taken.values()), left, now))
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
        return self.found()[index]

    def __len__(self) -> int:
        return len(self.found())

    def __eq__(self, other: object) -> bool:
        return self.found() == (other.found() if isinstance(other, DivisionEntries) else other)

    def __hash__(self) -> int:
        return hash(self.found())

    def __repr__(self) -> str:
        return repr(self.found())

    def found(self) -> tuple[DivisionEntry, ...]:
        if self._found is None:
            self._found = tuple(_inputs(*self._of))
        return self._found

    def in_words(self) -> tuple[ClusterInput, ...]:
        """Returns the entries in the form of records and answers. They are converted once, for both uses."""
        if self._in_words is None:
            self._in_words = tuple(map(as_input, self.found()))
        return self._in_words


def inputs_in_words(inputs: Sequence[DivisionEntry]) -> tuple[ClusterInput, ...]:
    return inputs.in_words() if isinstance(inputs, DivisionEntries) else tuple(map(as_input, inputs))


def _inputs(
    situation: Situation, tiers: TierClusters, replicas: Mapping[str, int], frozen: frozenset[str]
) -> Iterator[DivisionEntry]:
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
            if limits and (most := most_of(limits, name)) - before < certain:
                limited_by = Limit(LimitCode.MAXIMUM, most)
            if name in situation.missing and min(certain, most_of(limits, name) - before) > 0:
                limited_by = Limit(LimitCode.MISSING, names=(situation.missing[name],))
            if name in frozen and min(certain, most_of(limits, name) - before) > 0:
                limited_by = FROZEN
            after = replicas.get(name, before)
            age = ages.get(name, -1)
            yield DivisionEntry(name, tier.name, certain, possible, reserved, before, after, limited_by, age)


def fits_somewhere(situation: Situation, tiers: TierClusters) -> bool:
    room, places = situation.room, ((name, tier.node_groups) for tier, names in tiers for name in names)
    if isinstance(room, FleetRooms):
        return any(room.fits_when_empty(place) for place in places)
    return any(room(*place).when_empty for place in places)
