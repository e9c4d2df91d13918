"""Divides replicas over tiers and clusters: the tiers in order up, in reverse down, moving as few as it can."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from planner.core.division import divide, shrink
from planner.core.policy import selects
from planner.core.room import Room
from spillway.events import ClusterJoined
from spillway.model import ClusterInput, ClusterLimit, Policy, Tier


@dataclass(frozen=True, slots=True)
class Held:
    """What a workload has in one cluster: all replicas, those that wait for new nodes, those that are not bound."""

    replicas: int
    new: int
    unbound: int


@dataclass(frozen=True, slots=True)
class Situation:
    """All that a division depends on.

    room: (cluster, on node groups) → how many more the cluster takes. settled: do not wait for binds any more, what is
    only possible counts as not there. age_ms: by cluster, for the record.
    """

    replicas: int
    policy: Policy
    clusters: Sequence[ClusterJoined]
    held: Mapping[str, Held]
    room: Callable[[str, bool], Room]
    settled: bool
    age_ms: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Division:
    """replicas and new by cluster, clusters that end with none included. uncertain of unplaced wait for binds."""

    replicas: Mapping[str, int]
    new: Mapping[str, int]
    unplaced: int
    uncertain: int
    to_leave: int
    inputs: tuple[ClusterInput, ...]
    fits_nowhere: bool

    def waiting_for(self) -> str:
        """What unplaced or misplaced replicas wait for, for people."""
        rest = self.unplaced - self.uncertain
        texts = []
        if self.uncertain:
            texts.append(f"{f'{self.uncertain} for ' if rest else ''}binding of replicas that were promised before")
        if rest:
            texts.append(f"{f'{rest} for ' if self.uncertain else ''}room ({self._limits()})")
        if self.to_leave:
            texts.append(f"room elsewhere for {self.to_leave} replicas in clusters that the policy rules out")
        return "; ".join(texts)

    def _limits(self) -> str:
        return "; ".join(f"{entry.cluster}: {entry.limited_by}" for entry in self.inputs[:8]) or "no cluster"


@dataclass(slots=True)
class _Growth:
    """Replicas handed out so far, by cluster: on nodes that exist, and on nodes that do not yet."""

    free: dict[str, int] = field(default_factory=dict)
    new: dict[str, int] = field(default_factory=dict)
    uncertain: int = 0

    def of(self, cluster: str) -> int:
        return self.free.get(cluster, 0) + self.new.get(cluster, 0)

    def total(self) -> int:
        return sum(self.free.values()) + sum(self.new.values())


def divide_workload(situation: Situation) -> Division:
    """Where the replicas go.

    More replicas: those that are there stay, the rest go to the first tier that certainly takes them. Fewer: the last
    tier is emptied first, in a cluster those that are not bound yet. Replicas in clusters that the policy rules out, or
    above a maximum, leave as far as others take them.
    """
    tiers = _clusters_by_tier(situation)
    limits = {limit.cluster: limit for limit in situation.policy.limits}
    over = _ruled_out(situation, tiers, limits)
    missing = situation.replicas - sum(held.replicas for held in situation.held.values())
    growth, taken = _Growth(), dict[str, int]()
    if missing < 0:
        taken = _shrink(situation, tiers, limits, over, -missing)
    else:
        growth = _grow(situation, tiers, limits, missing + sum(over.values()))
        taken = _first_of(over, max(0, growth.total() - missing))
    names = dict.fromkeys((*situation.held, *growth.free, *growth.new))
    unplaced = max(0, missing - growth.total())
    replicas = {name: _before(situation, name) + growth.of(name) - taken.get(name, 0) for name in names}
    return Division(
        replicas=replicas,
        new={name: _still_new(situation, growth, taken, name) for name in names},
        unplaced=unplaced,
        uncertain=min(growth.uncertain, unplaced),
        to_leave=sum(over.values()) - sum(min(over.get(name, 0), count) for name, count in taken.items()),
        inputs=_inputs(situation, tiers, limits, replicas),
        fits_nowhere=not _fits_somewhere(situation, tiers),
    )


def _before(situation: Situation, cluster: str) -> int:
    return situation.held[cluster].replicas if cluster in situation.held else 0


def _still_new(situation: Situation, growth: _Growth, taken: Mapping[str, int], cluster: str) -> int:
    """What is taken away is taken from those that wait for new nodes first: they are not bound."""
    waiting = situation.held[cluster].new if cluster in situation.held else 0
    return max(0, waiting - taken.get(cluster, 0)) + growth.new.get(cluster, 0)


TierClusters = list[tuple[Tier, list[str]]]


def _clusters_by_tier(situation: Situation) -> TierClusters:
    """Each cluster is in the first tier that selects it, once for its nodes and once for its node groups."""
    placed: set[tuple[str, bool]] = set()
    tiers: TierClusters = []
    for tier in situation.policy.tiers:
        names = [
            cluster.cluster
            for cluster in situation.clusters
            if (cluster.cluster, tier.node_groups) not in placed
            and selects(tier.clusters, cluster)
            and (not tier.node_groups or cluster.node_groups)
        ]
        placed.update((name, tier.node_groups) for name in names)
        tiers.append((tier, sorted(names)))
    return tiers


def _ruled_out(situation: Situation, tiers: TierClusters, limits: Mapping[str, ClusterLimit]) -> dict[str, int]:
    allowed = {name for _, names in tiers for name in names}
    over = {}
    for name, held in situation.held.items():
        most = _most(limits, name) if name in allowed else 0
        if held.replicas > most:
            over[name] = held.replicas - most
    return over


def _most(limits: Mapping[str, ClusterLimit], cluster: str) -> int:
    limit = limits.get(cluster)
    return limit.replicas_max if limit is not None and limit.replicas_max >= 0 else 2**31


def _grow(situation: Situation, tiers: TierClusters, limits: Mapping[str, ClusterLimit], wanted: int) -> _Growth:
    growth = _Growth()
    for tier, names in tiers:  # Minima first, whatever their tier: they are what the policy insists on.
        for name in names if not tier.node_groups else ():
            least = limits[name].replicas_min if name in limits else 0
            more = min(least - _before(situation, name), _open(situation, tier, limits, growth, name), wanted)
            if more > 0:
                growth.free[name] = more
                wanted -= more
    for tier, names in tiers:
        if not wanted:
            break
        rooms = {name: _open(situation, tier, limits, growth, name) for name in names}
        target = growth.new if tier.node_groups else growth.free
        held = {name: _before(situation, name) + growth.of(name) for name in names}
        for name, more in divide(tier.split, min(wanted, sum(rooms.values())), rooms, held).items():
            target[name] = target.get(name, 0) + more
            wanted -= more
        if not situation.settled and wanted:
            uncertain = min(wanted, sum(_uncertain(situation, tier, limits, growth, name) for name in names))
            growth.uncertain += uncertain
            wanted -= uncertain
    return growth


def _open(situation: Situation, tier: Tier, limits: Mapping[str, ClusterLimit], growth: _Growth, cluster: str) -> int:
    """Replicas that a cluster certainly takes beyond what this division gave it already."""
    given = growth.new if tier.node_groups else growth.free
    room = situation.room(cluster, tier.node_groups).certain - given.get(cluster, 0)
    most = _most(limits, cluster) - _before(situation, cluster) - growth.of(cluster)
    return max(0, min(room, most))


def _uncertain(
    situation: Situation, tier: Tier, limits: Mapping[str, ClusterLimit], growth: _Growth, cluster: str
) -> int:
    room = situation.room(cluster, tier.node_groups)
    most = _most(limits, cluster) - _before(situation, cluster) - growth.of(cluster)
    return max(0, min(room.possible - room.certain, most))


def _first_of(amounts: Mapping[str, int], total: int) -> dict[str, int]:
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
    """What to take away: ruled-out replicas, then tier by tier from the last, keeping minima while that suffices."""
    taken = _first_of(over, surplus)
    left = {name: held.replicas - taken.get(name, 0) for name, held in situation.held.items()}
    least = {name: limits[name].replicas_min if name in limits else 0 for name in left}
    for keep in (least, dict.fromkeys(left, 0)):
        for tier, names in reversed(tiers):
            surplus_now = surplus - sum(taken.values())
            spare = {name: max(0, left[name] - keep[name]) for name in names if name in left}
            for name, count in _shrink_tier(situation, tier, spare, surplus_now).items():
                taken[name] = taken.get(name, 0) + count
                left[name] -= count
    return taken


def _shrink_tier(situation: Situation, tier: Tier, spare: Mapping[str, int], surplus: int) -> dict[str, int]:
    if tier.node_groups:  # Only what waits for new nodes belongs to this tier; what is bound is on nodes that exist.
        waiting = {name: min(count, situation.held[name].new) for name, count in spare.items()}
        return shrink(tier.split, surplus, waiting)
    unbound = {name: min(count, situation.held[name].unbound) for name, count in spare.items()}
    taken = shrink(tier.split, surplus, unbound)
    bound = {name: count - taken.get(name, 0) for name, count in spare.items()}
    for name, count in shrink(tier.split, surplus - sum(taken.values()), bound).items():
        taken[name] = taken.get(name, 0) + count
    return taken


def _inputs(
    situation: Situation, tiers: TierClusters, limits: Mapping[str, ClusterLimit], replicas: Mapping[str, int]
) -> tuple[ClusterInput, ...]:
    inputs = []
    for tier, names in tiers:
        if not names and not tier.node_groups:
            inputs.append(ClusterInput("", tier.name, 0, 0, 0, 0, 0, "no cluster of the fleet is in this tier", -1))
        for name in names:
            room = situation.room(name, tier.node_groups)
            most = _most(limits, name)
            before = _before(situation, name)
            capped = most - before < room.certain
            inputs.append(
                ClusterInput(
                    cluster=name,
                    tier=tier.name,
                    certain=room.certain,
                    possible=room.possible,
                    reserved=situation.held[name].unbound if name in situation.held else 0,
                    before=before,
                    after=replicas.get(name, before),
                    limited_by=f"policy max {most}" if capped else room.limited_by,
                    age_ms=situation.age_ms.get(name, -1),
                )
            )
    return tuple(inputs)


def _fits_somewhere(situation: Situation, tiers: TierClusters) -> bool:
    return any(situation.room(name, tier.node_groups).when_empty for tier, names in tiers for name in names)
