"""Reads judged against the log: what is answered and not called stale is not older than what was written before.

An answer that is not stale is a state of the log at least as new as the log was when the read was sent: of what the
answering instance itself wrote, at that moment; of what others wrote, MISSES_SECONDS before it.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from planner.settings import PlannerSettings
from spillway.api import ListClustersReply, ListReply, PlacementReply
from spillway.events import PlacementDecided, WorkloadDeclared

MISSES_SECONDS = PlannerSettings().turn_proven_seconds
"""An active planner may not have heard of a later turn for so long, and so not of what was decided in it."""

Key = tuple[str, str]
Shown = tuple[object, ...]
"""What a reader is shown of a workload, as far as the log alone says it; GONE: that it is not declared."""
GONE: Shown = ()


@dataclass(slots=True)
class Versions:
    """Of one thing, in the order of the log: when each was written, by whom, and what it shows."""

    at: list[float] = field(default_factory=list)
    source: list[str] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)

    def append_version(self, source: str, shown: Shown) -> None:
        self.at.append(asyncio.get_running_loop().time())
        self.source.append(source)
        self.shown.append(shown)

    def oldest_answerable_number(self, reader: "Reader") -> int:
        """The number of the oldest version that may be answered; -1: the thing need not be there yet."""
        of_others = bisect_right(self.at, reader.sent_at - MISSES_SECONDS) - 1
        newest = bisect_right(self.at, reader.sent_at) - 1
        for number in range(newest, of_others, -1):
            if self.source[number] == reader.source and self.at[number] >= reader.began_at:
                return number
        return of_others

    def may_be_answered(self, reader: "Reader", shown: Shown) -> bool:
        least = self.oldest_answerable_number(reader)
        return (least < 0 and shown == GONE) or shown in self.shown[max(least, 0) :]


@dataclass(frozen=True, slots=True)
class Reader:
    """Who answers: its name in the log, when its life began, and when it was asked."""

    source: str
    owner: str
    began_at: float
    sent_at: float


class ReadOracle:
    """Hears of every record of the planner's, and of every answer to a read."""

    def __init__(self, violated: Callable[[str], None]) -> None:
        self._violated = violated
        self._workloads: dict[Key, Versions] = {}
        self._clusters: dict[str, Versions] = {}
        self._turns = Versions()
        self.seen: dict[str, int] = {"reads": 0, "reads that were stale": 0, "reads of a turn that was over": 0}

    # ── The log ─────────────────────────────────────────────────────────────────────────────────────────────────

    def note_turn_taken(self, source: str) -> None:
        self._turns.append_version(source, (source,))

    def note_workload_version(
        self, key: Key, declared: WorkloadDeclared | None, placement: PlacementDecided | None, source: str
    ) -> None:
        self._workloads.setdefault(key, Versions()).append_version(source, _shown_by_log(declared, placement))

    def note_cluster_phase(self, cluster: str, phase: str, source: str) -> None:
        """phase: empty: it has left."""
        self._clusters.setdefault(cluster, Versions()).append_version(source, (phase,) if phase else GONE)

    # ── Answers ─────────────────────────────────────────────────────────────────────────────────────────────────

    def judge_staleness(self, reader: Reader, verb: str, *, stale: bool) -> bool:
        """Of any read. Whether what it says is to be judged: only who has the turn says that it is not stale."""
        self.seen["reads"] += 1
        known = bisect_right(self._turns.at, reader.sent_at - MISSES_SECONDS)
        over = known > 0 and reader.source not in self._turns.source[known - 1 :]
        self.seen["reads of a turn that was over"] += over
        self.seen["reads that were stale"] += stale
        if over and not stale:
            self._violated(f"{verb}: {reader.owner} answers as current {MISSES_SECONDS:g} s after its turn was over")
        return not stale

    def judge_workload_list(self, reader: Reader, reply: ListReply) -> None:
        found = {
            (one.placement.namespace, one.placement.name): _shown_by_reply(one.placement) for one in reply.workloads
        }
        for key, versions in self._workloads.items():
            self._judge_shown_version(reader, "/".join(key), versions, found.get(key, GONE))
        for key in found.keys() - self._workloads.keys():
            self._violated(f"List: {reader.owner} shows {'/'.join(key)}, which was never declared")

    def judge_placement_reply(self, reader: Reader, reply: PlacementReply) -> None:
        versions = self._workloads.get((reply.namespace, reply.name))
        if versions is not None:
            self._judge_shown_version(reader, f"{reply.namespace}/{reply.name}", versions, _shown_by_reply(reply))

    def judge_cluster_list(self, reader: Reader, reply: ListClustersReply) -> None:
        found = {one.cluster: one.phase for one in reply.clusters}
        for name, versions in self._clusters.items():
            self._judge_shown_version(reader, f"cluster {name}", versions, (found[name],) if name in found else GONE)

    def _judge_shown_version(self, reader: Reader, what: str, versions: Versions, shown: Shown) -> None:
        if not versions.may_be_answered(reader, shown):
            least = versions.oldest_answerable_number(reader)
            newest = versions.shown[max(least, 0)]
            self._violated(f"{what}: {reader.owner} answers {shown}, and the log has said {newest} before it was asked")


def _shown_by_log(declared: WorkloadDeclared | None, placement: PlacementDecided | None) -> Shown:
    if declared is None:
        return GONE
    parts = placement.parts if placement is not None else ()
    if (declared.deleting or declared.disowning) and not parts:
        return GONE
    unplaced = placement.unplaced if placement is not None else declared.replicas
    return (
        declared.generation,
        declared.replicas,
        unplaced,
        declared.deleting,
        declared.disowning,
        _shown_parts(parts),
    )


def _shown_by_reply(reply: PlacementReply) -> Shown:
    return (
        reply.generation,
        reply.replicas,
        reply.unplaced,
        reply.deleting,
        reply.disowning,
        _shown_parts(reply.parts),
    )


def _shown_parts(parts: Sequence[object]) -> tuple[tuple[object, ...], ...]:
    """Of PlacementDecided, or of its answer: both have these."""
    names = ("cluster", "replicas", "removing", "replicas_lost", "replicas_leaving", "adopting", "disowning")
    return tuple(sorted(tuple(getattr(part, name) for name in names) for part in parts))
