"""Keeps the acknowledged requests, and compares them with the observed objects. The module does no IO."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["lost", "doubled", "deleted", "contradictory", "orphaned", "shared", "kept"]
KINDS: tuple[Kind, ...] = ("lost", "doubled", "deleted", "contradictory")
LENDING_KINDS: tuple[Kind, ...] = ("lost", "doubled", "orphaned", "shared", "kept")
"""Kinds of findings about lent nodes and their pods, beside those about workloads."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of error, and how often it occurred.

    count: the number of lost acknowledged requests, doubled replicas, deleted objects and pods, or contradictions.
    With lending: of pods that are lost, doubled or orphaned; of nodes that are shared, so owner and pool use them at
    once; or of nodes that are kept, so they never return.
    """

    kind: Kind
    what: str
    count: int = 1


@dataclass(slots=True)
class Life:
    """One workload from its apply to the end of its delete; a name is used once.

    acknowledged: the replicas of the last acknowledged request; None before the first.
    asked: the replicas of the last request.
    going: True once a delete was requested. gone: True once it was acknowledged.
    may_stop: the running pods that requested scale-ins may stop, acknowledged or not.
    """

    name: str
    acknowledged: int | None = None
    asked: int = 0
    going: bool = False
    gone: bool = False
    may_stop: int = 0


@dataclass(frozen=True, slots=True)
class Placed:
    """The planner's placement of a workload. parts: replicas by cluster. removing: clusters that are being emptied."""

    replicas: int
    unplaced: int
    parts: Mapping[str, int]
    removing: frozenset[str] = frozenset()
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """One cluster's objects of a workload: spec_replicas of each object, and its pods."""

    spec_replicas: tuple[int, ...]
    running: int
    others: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """The objects and running pods that anybody has removed in a cluster since the beginning of the audit."""

    objects: int = 0
    pods: int = 0


Place = tuple[str, str]
"""(cluster, workload)"""


@dataclass(slots=True)
class Ledger:
    """All workloads so far. counted: the deletions already reported, so that each counts in one round only."""

    lives: dict[str, Life] = field(default_factory=dict)
    refusals: list[Finding] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)

    def forget_all(self) -> None:
        """Resets the ledger to its initial state."""
        self.lives.clear()
        self.refusals.clear()
        self.counted.clear()

    # ── Notes of requests ───────────────────────────────────────────────────────────────────────────────────────

    def note_request(self, name: str, replicas: int) -> None:
        life = self.lives.setdefault(name, Life(name))
        life.may_stop += max(0, life.asked - replicas)
        life.asked = replicas

    def note_acknowledged(self, name: str, replicas: int) -> None:
        self.lives[name].acknowledged = replicas

    def note_delete_request(self, name: str) -> None:
        self.lives[name].going = True

    def note_delete_acknowledged(self, name: str) -> None:
        self.lives[name].gone = True

    def note_refusal(self, name: str, verb: str, text: str) -> None:
        """Notes a refused request. An acknowledged workload that cannot be scaled or deleted was forgotten."""
        self.refusals.append(Finding("lost", f"{verb} {name} was refused: {text}"))

    def note_contradiction(self, name: str, text: str) -> None:
        """Notes two different answers to one idempotency key."""
        self.refusals.append(Finding("contradictory", f"{name}: {text}"))

    # ── Findings ────────────────────────────────────────────────────────────────────────────────────────────────

    def find_unsettled(self, placed: Mapping[str, Placed], seen: Mapping[Place, Seen]) -> Iterator[Finding]:
        """Yields differences from the acknowledged requests. They are final only once the platform has had time to
        settle."""
        by_name: dict[str, dict[str, Seen]] = {}
        for (cluster, name), what in seen.items():
            by_name.setdefault(name, {})[cluster] = what
        for life in self.lives.values():
            there = by_name.get(life.name, {})
            if life.gone:
                yield from _findings_of_deleted(life, placed.get(life.name), there)
            elif life.acknowledged is not None:
                yield from _findings_of_acknowledged(life, life.acknowledged, placed.get(life.name), there)
        for name in by_name.keys() - self.lives.keys():
            yield Finding("doubled", f"{name} is in {sorted(by_name[name])}, and nobody asked for it")

    def find_unasked_deletions(self, stopped: Mapping[Place, Stopped]) -> Iterator[Finding]:
        """Yields removed objects and running pods without a request for it. Each is reported once."""
        objects, pods = Counter[str](), Counter[str]()
        for (_, name), what in stopped.items():
            objects[name] += what.objects
            pods[name] += what.pods
        for name, life in self.lives.items():
            if life.going:
                continue
            # A scale-in may empty a cluster, and then the object goes with its pods.
            objects_too_many = objects[name] if not life.may_stop else 0
            pods_too_many = max(0, pods[name] - life.may_stop)
            news = objects_too_many + pods_too_many - self.counted[name]
            if news > 0:
                self.counted[name] += news
                text = f"{name}: {objects[name]} objects and {pods[name]} running pods went; {life.may_stop} pods might"
                yield Finding("deleted", text, news)

    def take_refusals(self) -> list[Finding]:
        found, self.refusals = self.refusals, []
        return found


def _findings_of_deleted(life: Life, placed: Placed | None, there: Mapping[str, Seen]) -> Iterator[Finding]:
    if placed is not None and not placed.deleting:
        yield Finding("lost", f"{life.name}: its delete was acknowledged, and the planner still places it")
    if there:
        yield Finding("lost", f"{life.name}: its delete was acknowledged, and {_text_of_seen(there)} is there")


def _findings_of_acknowledged(
    life: Life, asked: int, placed: Placed | None, there: Mapping[str, Seen]
) -> Iterator[Finding]:
    if placed is None or placed.deleting:
        if not life.going:  # An unanswered delete may have been carried out.
            yield Finding("lost", f"{life.name}: {asked} replicas were acknowledged, and the planner does not know it")
        return
    if placed.replicas != asked:
        yield Finding("lost", f"{life.name}: {asked} replicas were acknowledged, the planner has {placed.replicas}")
    kept = sum(placed.parts.values())
    if kept + placed.unplaced != placed.replicas:
        text = f"{life.name}: {placed.replicas} asked, {kept} placed and {placed.unplaced} waiting"
        yield Finding("doubled" if kept + placed.unplaced > placed.replicas else "lost", text)
    if placed.unplaced:
        yield Finding("lost", f"{life.name}: {placed.unplaced} replicas wait, and there is room")
    for cluster in sorted(placed.parts.keys() | there.keys()):
        yield from _findings_of_part(life.name, cluster, placed.parts.get(cluster, 0), there.get(cluster))
    running = sum(seen.running for seen in there.values())
    if running > asked:
        yield Finding("doubled", f"{life.name}: {asked} asked, {running} run: {_text_of_seen(there)}", running - asked)


def _findings_of_part(name: str, cluster: str, replicas: int, seen: Seen | None) -> Iterator[Finding]:
    specs, running, others = (seen.spec_replicas, seen.running, seen.others) if seen else ((), 0, 0)
    if len(specs) > 1:
        yield Finding("doubled", f"{name} has {len(specs)} objects in {cluster}", len(specs) - 1)
    if sum(specs) > replicas or (specs and not replicas):
        yield Finding("doubled", f"{name}: {replicas} placed in {cluster}, its objects say {specs}")
    elif sum(specs) < replicas:
        yield Finding("lost", f"{name}: {replicas} placed in {cluster}, its objects say {specs}")
    if running < replicas:
        yield Finding("lost", f"{name}: {replicas} placed in {cluster}, {running} run")
    if others:
        yield Finding("doubled", f"{name}: {others} pods in {cluster} neither run nor are gone", others)


def _text_of_seen(there: Mapping[str, Seen]) -> str:
    return ", ".join(
        f"{cluster}: objects {seen.spec_replicas}, {seen.running} running, {seen.others} other pods"
        for cluster, seen in sorted(there.items())
    )


def finding_count_by_kind(findings: Iterable[Finding]) -> dict[Kind, int]:
    totals: dict[Kind, int] = dict.fromkeys((*KINDS, *LENDING_KINDS), 0)
    for finding in findings:
        totals[finding.kind] += finding.count
    return totals
