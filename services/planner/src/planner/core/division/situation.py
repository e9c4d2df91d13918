"""What a division depends on, and what comes out of it: values, and what they say to people."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from planner.core.division import words
from planner.core.division.words import Entry
from planner.core.feasibility.room import Room
from planner.core.knowledge.allowance import CAUSE_FAILOVER, CAUSE_LOST, CAUSE_POLICY
from planner.core.knowledge.placement_waits import Wait, waits_text
from spillway.events import ClusterJoined
from spillway.model import Policy
from spillway.texts import counted

LOST = (CAUSE_FAILOVER, CAUSE_LOST)


@dataclass(frozen=True, slots=True)
class Held:
    """What a workload has in one cluster.

    replicas: those kept, which count towards what was asked for; new of them wait for new nodes, unbound are not bound.
    lost, leaving: as in Part. may_keep: of leaving, those that the cluster may keep after all; they need no room.
    idle: of leaving, those that are not bound.
    unready: of those that are bound, so many are not ready, as far as is known. by_name: of replicas, those that a
    person sent there.
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
    """All that a division depends on.

    room: (cluster, on node groups) → how many more the cluster takes. settled: do not wait for binds any more, what is
    only possible counts as not there. age_ms: by cluster, for the record. reasons: why what is kept in a cluster is to
    go elsewhere; such clusters take nothing. whole: the kind, when all replicas go to one cluster (whole.py); listed:
    the clusters that may hold it. identity: the workload's, by which strategies break ties. by_name: a person asked for
    this now; then what the policy rules out goes, too, without being named in reasons. lent: by cluster, how many more
    it would take with all back that it has lent; lent_waited: that long enough. moving: how many of those may go now,
    and how many of other clusters for minima elsewhere: of those that it does not name all. fixed: from and to these
    clusters nothing moves. gently: of too many, running ones leave only once the others are available.
    missing: what clusters lack of what the template names, for people: they come last in their tier. await_missing:
    they take nothing, and what is to run there at last waits for that; what moves goes elsewhere.
    """

    replicas: int
    policy: Policy
    clusters: Sequence[ClusterJoined]
    held: Mapping[str, Held]
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
    """Kept replicas, and new of them, by cluster, clusters that end with none included.

    uncertain of unplaced wait for binds; lent: by cluster, so many for nodes that it has lent; missing: by what it
    lacks, so many for that; waits_in: the same by cluster, with the replicas that a minimum lacks for that and that run
    elsewhere.
    moved: by cluster, what others took from it, which is not cut before they run.
    kept_again: by cluster, of what was leaving there. to_leave: what the policy rules out and nobody took; stays: the
    same of what is to go for another reason; lacking: what a minimum lacks. held_back: what might move and may not yet.
    whole: why replicas may not go just anywhere, for people. basis: of the division that was made last, for the record.
    """

    replicas: Mapping[str, int]
    new: Mapping[str, int]
    unplaced: int
    uncertain: int = 0
    to_leave: int = 0
    inputs: Sequence[Entry] = ()
    fits_nowhere: bool = False
    moved: Mapping[str, int] = field(default_factory=dict)
    kept_again: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    stays: Mapping[str, int] = field(default_factory=dict)
    lacking: Mapping[str, int] = field(default_factory=dict)
    held_back: int = 0
    whole: str = ""
    basis: "Basis | None" = None
    lent: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, int] = field(default_factory=dict)
    waits_in: Mapping[str, int] = field(default_factory=dict)

    def waiting_for(self) -> str:
        """What unplaced or misplaced replicas wait for, for people."""
        return waits_text(self.waits())

    def waits(self) -> list[Wait]:
        """What unplaced or misplaced replicas wait for."""
        if not (self.unplaced or self.to_leave or self.stays or self.lacking):
            return []
        rest = self.unplaced - self.uncertain - sum(self.lent.values()) - sum(self.missing.values())
        limits = words.limits(self.inputs)
        counts = [
            (self.uncertain, "binding of replicas that were promised before", ""),
            *((count, what, "") for count, what in (*words.missing(self.missing), *words.lent_nodes(self.lent))),
            (rest, self.whole or "room", limits),
        ]
        waits = [
            Wait(what if count == self.unplaced else f"{count} for {what}", figures)
            for count, what, figures in counts
            if count
        ]
        to_leave = self.to_leave + sum(self.stays[name] for name in self.stays if self.reasons[name] == CAUSE_POLICY)
        if to_leave:
            waits.append(Wait(f"room elsewhere for {counted(to_leave)} in clusters that the policy rules out"))
        stays = {name: count for name, count in self.stays.items() if self.reasons[name] != CAUSE_POLICY}
        lost = {name for name in stays if self.reasons[name] in LOST}
        return [*waits, *words.staying(stays, lost, limits), *words.lacking(self.lacking, self.inputs)]


@dataclass(frozen=True, slots=True)
class Basis:
    """A situation, its division before anything was said of what stays, and what minima would take by cluster."""

    situation: Situation
    division: Division
    for_minima: Mapping[str, int] = field(default_factory=dict)


Divide = Callable[[Situation], Division]
"""What every way to divide a workload is: all that it depends on in, where the replicas go out."""
