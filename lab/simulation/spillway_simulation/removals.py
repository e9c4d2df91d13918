"""Running replicas are removed for a reason, never because a view of the fleet changed (P8), at every step.

In the log: a part's replicas fall only by a decision that may lower them, and by no more than what it is about. At a
member: what leaves goes when as many are available as are kept, by what the members truly run.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sim.cluster import SimCluster
from sim.core.kinds import Object
from sim.core.pods import is_ready
from spillway.events import DecisionRecorded, PlacementDecided, WorkloadDeclared
from spillway.model import Generation, Part
from spillway_simulation import members

SETTLED = "Settled"
"""A placement without a decision: what left, or is gone, is listed no more. What other causes lower was asked for."""
TAKEN_OVER = ("Adopt", "Recover")
ASKED = ("Apply", "Scale", "Autoscale", "Migrate", "Delete")
BY_VIEW = ("Policy", "Home")
"""Causes that move what nobody sent where it is."""
HEARD_SECONDS = 15.0
"""So old may be what a decision was made on: the age at which a cluster is not fresh, and what a status takes."""

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Fall:
    """A part's replicas fell. kept: of the whole workload from then on; declared: when that last changed."""

    version: Generation
    cause: str
    at: float
    kept: int
    declared: WorkloadDeclared


@dataclass(slots=True)
class Trail:
    """Of one workload: why each placement was made, what was declared with the last one, where parts fell."""

    causes: dict[Generation, str] = field(default_factory=dict)
    declared: WorkloadDeclared | None = None
    falls: dict[str, list[Fall]] = field(default_factory=dict)
    as_taken: dict[str, int] = field(default_factory=dict)
    """By cluster, replicas that are where they were taken over; none once something was asked of the workload."""

    def follow_taken_over_replicas(self, cause: str, before: Mapping[str, Part], parts: Mapping[str, Part]) -> None:
        """What a drain or a loss takes away is ours from then on; what is being taken over follows what runs."""
        if cause in TAKEN_OVER:
            self.as_taken = {name: part.replicas_kept for name, part in parts.items()}
        elif cause in ASKED:
            self.as_taken = {}
        for name, count in self.as_taken.items():
            part, was = parts.get(name), before.get(name)
            kept = part.replicas_kept if part is not None else 0
            self.as_taken[name] = kept if was is not None and was.adopting else min(count, kept)

    def has_lowered_replicas_since(self, at: float) -> bool:
        """Whether anything was lowered since then because somebody asked for it."""
        return any(fall.cause != SETTLED and fall.at >= at for falls in self.falls.values() for fall in falls)


class Removals:
    """disturbed_since(time): whether hands or nodes changed what runs anywhere since then. lost: declared Lost now.

    is_orphaned: whether an orphan of a name is in a cluster. bound_since(cluster, key, time): pods bound since then.
    """

    def __init__(
        self,
        clusters: Mapping[str, SimCluster],
        violated: Callable[[str], None],
        disturbed_since: Callable[[float], bool],
        is_orphaned: Callable[[str, Key], bool],
        bound_since: Callable[[str, Key, float], int],
    ) -> None:
        self._clusters = clusters
        self._violated = violated
        self._disturbed_since = disturbed_since
        self._is_orphaned = is_orphaned
        self._bound_since = bound_since
        self._trails: dict[Key, Trail] = {}
        self.lost: set[str] = set()

    def note_decision(self, decision: DecisionRecorded) -> None:
        trail = self._trails.setdefault((decision.namespace, decision.name), Trail())
        trail.causes[decision.generation] = decision.cause

    def cause_of(self, placement: PlacementDecided) -> str:
        """Why it was made: its decision was in the same transaction."""
        trail = self._trails.get((placement.namespace, placement.name))
        return trail.causes.get(placement.generation, SETTLED) if trail is not None else SETTLED

    def judge_placement(
        self, before: PlacementDecided | None, placement: PlacementDecided, declared: WorkloadDeclared
    ) -> None:
        """To be told of each placement in the order of the log."""
        key = (placement.namespace, placement.name)
        trail, cause = self._trails.setdefault(key, Trail()), self.cause_of(placement)
        parts = {part.cluster: part for part in placement.parts}
        kept = sum(part.replicas_kept for part in placement.parts if not part.removing)
        for was in before.parts if before else ():
            part = parts.get(was.cluster)
            as_taken = trail.as_taken.get(was.cluster, 0)
            if cause in BY_VIEW and (part.replicas_kept if part else 0) < as_taken:
                self._violated(f"{'/'.join(key)} in {was.cluster}: adopted as it runs there, and moved by {cause}")
            why_not = self._why_part_may_not_fall(cause, trail, declared, was, part)
            if why_not:
                name = f"{'/'.join(key)} in {was.cluster}"
                self._violated(f"{name}: {was.replicas} replicas, then {part and part.replicas}, by {cause}: {why_not}")
            if part is not None and part.replicas < was.replicas and not part.disowning:
                now = asyncio.get_running_loop().time()
                trail.falls.setdefault(was.cluster, []).append(Fall(part.version, cause, now, kept, declared))
        trail.follow_taken_over_replicas(cause, {part.cluster: part for part in before.parts} if before else {}, parts)
        trail.declared = declared

    def _why_part_may_not_fall(
        self, cause: str, trail: Trail, declared: WorkloadDeclared, was: Part, part: Part | None
    ) -> str:
        """Why a part may not become the next one; empty when it may, or does not fall."""
        if was.replicas <= (part.replicas if part else 0):
            return ""
        if was.adopting or (part is not None and part.disowning):
            return ""  # It follows what runs, or what runs is given back as it is.
        if part is None:
            given_up = was.cluster in self.lost or self._is_orphaned(was.cluster, (declared.namespace, declared.name))
            return "" if given_up else "it is listed no more"
        before = trail.declared
        assert before is not None
        match cause:
            case "Delete":
                return "" if declared.deleting else "nobody deletes it"
            case "Scale" | "Autoscale":
                fewer = declared.replicas < before.replicas or was.replicas_lost > part.replicas_lost
                return "" if fewer else "no fewer were asked for"
            case "Apply" | "Rollout":
                fewer = declared.replicas < before.replicas or was.replicas_lost > part.replicas_lost
                rolls = was.template_generation != part.template_generation
                return "" if fewer or rolls else "no fewer were asked for, and no new template"
            case "DependencyMissing":
                # What is missing may be made, and pods be bound, while the planner has not heard of it yet.
                told = asyncio.get_running_loop().time() - HEARD_SECONDS
                runs = self._bound_since(was.cluster, (declared.namespace, declared.name), told)
                return "" if runs <= part.replicas else f"{runs} run there"
            case "Lost":
                return "what is given up is listed no more, and never told to go"
            case "Settled":
                left = was.replicas_leaving - part.replicas_leaving
                return "" if left == was.replicas - part.replicas else f"{left} have left"
        return "that may not lower it"

    def judge_write(
        self, cluster: str, key: Key, found: Object, available: int, written: Generation, replicas: int
    ) -> None:
        """A write to found, which had so many available pods, and is to have so many replicas at that version."""
        trail = self._trails.get(key)
        since = members.version_of(found)
        falls = [fall for fall in trail.falls.get(cluster, ()) if since < fall.version <= written] if trail else []
        if not falls or available <= replicas or any(fall.cause != SETTLED for fall in falls):
            return
        first, last = falls[0], falls[-1]
        assert trail is not None
        changed = trail.declared != first.declared or trail.has_lowered_replicas_since(first.at - HEARD_SECONDS)
        if changed or self._disturbed_since(first.at - HEARD_SECONDS) or self._is_rolling(key):
            return
        others = sum(available_pods_of(other, key) for name, other in self._clusters.items() if name != cluster)
        if others + replicas < min(others + available, last.kept):
            self._violated(
                f"{'/'.join(key)} in {cluster}: {last.cause} leaves {replicas} of {available} available there and "
                f"{others} elsewhere, {last.kept} are kept"
            )

    def _is_rolling(self, key: Key) -> bool:
        """Whether pods of two templates live somewhere: while they roll, some may be unavailable."""
        asked = {
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            for cluster in self._clusters.values()
            for pod in members.pods_of(cluster, *key)
        }
        return len(asked) > 1


def available_pods_of(cluster: SimCluster, key: Key) -> int:
    return sum(is_ready(pod) for pod in members.pods_of(cluster, *key))
