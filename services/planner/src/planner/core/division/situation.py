"""Defines the input and the result of a division, with texts for users."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from planner.core.division import words
from planner.core.division.words import DivisionEntry
from planner.core.feasibility.room import Room
from planner.core.knowledge.allowance import CAUSE_FAILOVER, CAUSE_LOST, CAUSE_POLICY
from planner.core.knowledge.placement_waits import PlacementWait, waits_text
from spillway.events import ClusterJoined
from spillway.model import Policy
from spillway.texts import counted_noun

LOST = (CAUSE_FAILOVER, CAUSE_LOST)


@dataclass(frozen=True, slots=True)
class HeldReplicas:
    """The replicas that a workload has in one cluster.

    replicas: kept replicas, which count towards the number that was asked for.
    new: kept replicas that wait for new nodes.
    unbound: kept replicas that are not bound.
    lost, leaving: as in Part.
    may_keep: leaving replicas that the cluster may keep after all; they need no room.
    idle: leaving replicas that are not bound.
    unready: bound replicas that are not ready, as far as is known.
    by_name: kept replicas that a person sent there.
    """

    replicas: int
    new: int
    unbound: int
    lost: int = 0
    leaving: int = 0
    may_keep: int = 0
    idle: int = 0
    unready: int = 0
    by_name: int = 0


@dataclass(frozen=True, slots=True)
class Situation:
    """The whole input of a division.

    room: returns the room for more replicas, of (cluster, whether on new nodes of node groups).
    held: by cluster, the replicas that the workload has there.
    settled: whether the wait for binds is over. If so, room that is only possible counts as no room.
    age_ms: by cluster, for the record.
    reasons: by cluster, the cause for which its kept replicas must leave; such a cluster takes none.
    moving: by cluster, how many replicas may leave now, for a cause or another cluster's minimum; not listed: all.
    fixed: clusters that no replica moves from or to, because of a brake.
    gently: whether surplus running replicas leave only once the others are available.
    whole: the kind, when all replicas go to one cluster (whole.py); else empty. listed: the clusters that may hold it.
    identity: the workload's name, by which strategies break ties.
    by_name: whether a person asked now. If so, replicas that the policy rules out leave, too.
    lent: by cluster, how many more replicas it would take with all lent nodes back.
    lent_waited: whether the wait for lent nodes was long enough.
    missing: by cluster, a text with the objects that it lacks. These clusters come last in their tier.
    await_missing: whether clusters in `missing` take no replicas. New replicas wait there, moved ones go elsewhere.
    """

    replicas: int
    policy: Policy
    clusters: Sequence[ClusterJoined]
    held: Mapping[str, HeldReplicas]
    room: Callable[[str, bool], Room]
    settled: bool
    age_ms: Mapping[str, int]
    reasons: Mapping[str, str] = field(default_factory=dict)
    moving: Mapping[str, int] = field(default_factory=dict)
    fixed: frozenset[str] = frozenset()
    gently: bool = False
    whole: str = ""
    listed: frozenset[str] = frozenset()
    identity: str = ""
    by_name: bool = False
    lent: Mapping[str, int] = field(default_factory=dict)
    lent_waited: bool = False
    missing: Mapping[str, str] = field(default_factory=dict)
    await_missing: bool = False


@dataclass(frozen=True, slots=True)
class Division:
    """The result of a division, in replicas.

    replicas: kept replicas by cluster; a cluster that loses all has 0. new: how many of these need new nodes.
    unplaced: replicas without a place. uncertain: how many of these wait for binds.
    to_leave: replicas that the policy rules out and that no other cluster takes.
    moved: by cluster, replicas that other clusters took over; they are not removed before the new ones run.
    kept_again: by cluster, leaving replicas that stay after all.
    stays: by cluster, replicas that must leave for a cause and that no other cluster takes.
    lacking: by cluster, how many replicas its minimum lacks.
    held_back: replicas that have a place elsewhere and that the brakes do not let move yet.
    whole: a text for users: why replicas may not go to any cluster.
    basis: the last division made, for the record.
    lent: by cluster, replicas that wait for nodes which it has lent.
    missing: by a text of the missing objects, replicas that wait for them.
    waits_in: by cluster, replicas that wait for its missing objects, also those of its minimum that run elsewhere now.
    """

    replicas: Mapping[str, int]
    new: Mapping[str, int]
    unplaced: int
    uncertain: int = 0
    to_leave: int = 0
    inputs: Sequence[DivisionEntry] = ()
    fits_nowhere: bool = False
    moved: Mapping[str, int] = field(default_factory=dict)
    kept_again: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    stays: Mapping[str, int] = field(default_factory=dict)
    lacking: Mapping[str, int] = field(default_factory=dict)
    held_back: int = 0
    whole: str = ""
    basis: "DivisionBasis | None" = None
    lent: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, int] = field(default_factory=dict)
    waits_in: Mapping[str, int] = field(default_factory=dict)

    def waiting_text(self) -> str:
        """Returns a text for users with the things that unplaced or misplaced replicas wait for."""
        return waits_text(self.placement_waits())

    def placement_waits(self) -> list[PlacementWait]:
        """Returns the things that unplaced or misplaced replicas wait for, in words for users."""
        if not (self.unplaced or self.to_leave or self.stays or self.lacking):
            return []
        rest = self.unplaced - self.uncertain - sum(self.lent.values()) - sum(self.missing.values())
        limits = words.limits_text(self.inputs)
        counts = [
            (self.uncertain, "binding of replicas that were promised before", ""),
            *(
                (count, what, "")
                for count, what in (*words.missing_object_waits(self.missing), *words.lent_node_waits(self.lent))
            ),
            (rest, self.whole or "room", limits),
        ]
        waits = [
            PlacementWait(what if count == self.unplaced else f"{count} for {what}", figures)
            for count, what, figures in counts
            if count
        ]
        to_leave = self.to_leave + sum(self.stays[name] for name in self.stays if self.reasons[name] == CAUSE_POLICY)
        if to_leave:
            waits.append(
                PlacementWait(f"room elsewhere for {counted_noun(to_leave)} in clusters that the policy rules out")
            )
        stays = {name: count for name, count in self.stays.items() if self.reasons[name] != CAUSE_POLICY}
        lost = {name for name in stays if self.reasons[name] in LOST}
        return [
            *waits,
            *words.staying_replica_waits(stays, lost, limits),
            *words.unmet_minimum_waits(self.lacking, self.inputs),
        ]


@dataclass(frozen=True, slots=True)
class DivisionBasis:
    """The input and result of the last division, for the decision's record.

    for_minima: by cluster, the replicas that should leave to fill another cluster's minimum.
    """

    situation: Situation
    division: Division
    for_minima: Mapping[str, int] = field(default_factory=dict)


Divide = Callable[[Situation], Division]
"""The interface of every way to divide a workload: a situation in, a division out."""
