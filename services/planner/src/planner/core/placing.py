"""From a workload to its placement: parts with versions and ceilings, and the record of what was decided on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from planner.core.answers import age_ms
from planner.core.fleet import NEVER, WorkloadKey
from planner.core.placement import Division, Held, Situation, divide_workload
from planner.core.reservation import next_ceiling
from planner.core.room import Room
from planner.core.state import PlannerState, Workload
from spillway.events import STATE_ABSENT, CapacityNeeded, DecisionRecorded, Event, PlacementDecided, WorkloadDeclared
from spillway.model import Generation, Part, Shape, WorkloadFacts

CODE_VERSION = "0.1.0"


@dataclass(frozen=True, slots=True)
class Moment:
    """When a decision is made, and under which turn: now in seconds of any steady clock, wall_ms for the record.

    patient: the request may still wait for binds, so what is only possible need not be refused yet.
    """

    now: float
    wall_ms: int
    generation: Generation
    patient: bool = False


@dataclass(frozen=True, slots=True)
class Subject:
    """A workload as it is to be placed: its declaration, what one replica asks for, and what is known of it so far."""

    declared: WorkloadDeclared
    shape: Shape
    known: Workload | None

    @property
    def key(self) -> WorkloadKey:
        return (self.declared.namespace, self.declared.name)


@dataclass(frozen=True, slots=True)
class Placed:
    """A placement, the division behind it, and its events (none when nothing changed)."""

    placement: PlacementDecided
    division: Division
    events: tuple[Event, ...]


def place(state: PlannerState, subject: Subject, moment: Moment, cause: str, *, settled: bool = False) -> Placed:
    """The placement on what the fleet is now. settled: what only possibly fits does not wait for binds any more."""
    held = _held(state, subject.known) if subject.known is not None else {}
    most = _most_of_new_shape(state, subject)
    for cluster, count in most.items():
        before = held[cluster]
        held[cluster] = Held(min(before.replicas, count), min(before.new, count), min(before.unbound, count))
    division = _divide(state, subject, held, moment, settled, most)
    return _decide(state, subject, division, moment, cause)


def _most_of_new_shape(state: PlannerState, subject: Subject) -> dict[str, int]:
    """By cluster, how many replicas of a changed template fit where those of the old one are, as far as it is known."""
    known = subject.known
    if known is None or known.shape == subject.shape or known.declared.deleting:
        return {}
    most = {
        part.cluster: state.refit(known, subject.shape, part.cluster) for part in known.parts.values() if part.replicas
    }
    return {cluster: count for cluster, count in most.items() if count is not None}


def subject_of(workload: Workload) -> Subject:
    """A workload as it is declared."""
    return Subject(workload.declared, workload.shape, workload)


def take_back(state: PlannerState, workload: Workload, counts: dict[str, int], moment: Moment) -> Placed:
    """The placement with replicas taken back by cluster; what was taken back is placed elsewhere at once."""
    held = _held(state, workload)
    for cluster, count in counts.items():
        before = held[cluster]
        held[cluster] = Held(before.replicas - count, max(0, before.new - count), max(0, before.unbound - count))
    subject = subject_of(workload)
    return _decide(state, subject, _divide(state, subject, held, moment, settled=True), moment, "TakeBack")


def settle_removed(workload: Workload, moment: Moment) -> PlacementDecided | None:
    """The placement without the parts that their clusters say are absent; None when there is none such."""
    assert workload.placement is not None
    kept = tuple(part for part in workload.placement.parts if not _is_absent(workload, part))
    if len(kept) == len(workload.placement.parts):
        return None
    return replace(workload.placement, parts=kept, generation=moment.generation)


def _is_absent(workload: Workload, part: Part) -> bool:
    observed = workload.statuses.get(part.cluster)
    return (
        part.removing and observed is not None and observed.state == STATE_ABSENT and observed.version == part.version
    )


def remove(state: PlannerState, subject: Subject, moment: Moment) -> Placed:
    """The placement of a workload that is to go from everywhere."""
    known = subject.known.parts if subject.known is not None else {}
    parts = tuple(_removing(state, subject.key, part, moment) for part in known.values())
    placement = PlacementDecided(*subject.key, moment.generation, subject.declared.generation, parts, 0, "")
    division = Division({}, {}, 0, 0, 0, (), fits_nowhere=False)
    last = subject.known.placement if subject.known is not None else None
    if last is not None and _same(last, placement):
        return Placed(last, division, ())
    record = _record(state, subject.declared, placement, division, moment, "Delete")
    return Placed(placement, division, (placement, *needed_events(state, subject.key, placement, moment), record))


def _divide(
    state: PlannerState,
    subject: Subject,
    held: dict[str, Held],
    moment: Moment,
    settled: bool,
    most: Mapping[str, int] = MappingProxyType({}),
) -> Division:
    """most: by cluster, what it takes in all; its room is what is left of that."""

    def room(cluster: str, node_groups: bool) -> Room:
        found = state.room(cluster, subject.shape, node_groups, moment.now, subject.key)
        if node_groups or cluster not in most:
            return found
        left = max(0, most[cluster] - held[cluster].replicas)
        return replace(found, certain=min(found.certain, left), possible=min(found.possible, left))

    return divide_workload(
        Situation(
            replicas=subject.declared.replicas,
            policy=subject.declared.policy,
            clusters=state.joined(),
            held=held,
            room=room,
            settled=settled,
            age_ms={name: age_ms(view, moment.now) for name, view in state.clusters.items()},
        )
    )


def _held(state: PlannerState, workload: Workload) -> dict[str, Held]:
    held = {}
    for part in workload.parts.values():
        if part.removing:
            continue
        reservation = state.reservation(workload.key, part.cluster)
        unbound = state.unbound(workload, part)
        held[part.cluster] = Held(part.replicas, min(reservation.new, unbound), unbound)
    return held


def _decide(state: PlannerState, subject: Subject, division: Division, moment: Moment, cause: str) -> Placed:
    declared, known = subject.declared, subject.known
    before = known.parts if known is not None else {}
    template_changed = known is not None and known.declared.template_generation != declared.template_generation
    parts = []
    for cluster in dict.fromkeys((*before, *division.replicas)):
        wanted = (division.replicas.get(cluster, 0), division.new.get(cluster, 0))
        part = _kept_part(before.get(cluster), wanted) if not template_changed else None
        if part is None and (wanted[0] or cluster in before):
            facts = _facts(state, subject.key, cluster)
            ceiling = next_ceiling(before.get(cluster), facts, wanted[0])
            part = Part(cluster, moment.generation, *wanted, ceiling, removing=wanted[0] == 0)
        if part is not None:
            parts.append(part)
    placement = PlacementDecided(
        namespace=declared.namespace,
        name=declared.name,
        generation=moment.generation,
        workload_generation=declared.generation,
        parts=tuple(sorted(parts, key=lambda part: part.cluster)),
        unplaced=division.unplaced,
        waiting_for=division.waiting_for(),
    )
    last = known.placement if known is not None else None
    if last is not None and _same(last, placement) and (division.uncertain or _waits_alike(last, placement)):
        return Placed(last, division, ())
    record = _record(state, declared, placement, division, moment, cause)
    return Placed(placement, division, (placement, *needed_events(state, subject.key, placement, moment), record))


def _kept_part(before: Part | None, wanted: tuple[int, int]) -> Part | None:
    """The part as it is when nothing that a member sees changes; None when it needs a new version."""
    replicas, new = wanted
    if before is None:
        return None
    if before.removing and not replicas:
        return before
    if (before.replicas, before.removing) != (replicas, replicas == 0):
        return None
    return before if before.replicas_new == new else replace(before, replicas_new=new)


def _facts(state: PlannerState, key: WorkloadKey, cluster: str) -> WorkloadFacts | None:
    view = state.clusters.get(cluster)
    return view.facts.get(key) if view is not None else None


def _same(last: PlacementDecided, new: PlacementDecided) -> bool:
    return (last.workload_generation, last.parts, last.unplaced) == (new.workload_generation, new.parts, new.unplaced)


def _waits_alike(last: PlacementDecided, new: PlacementDecided) -> bool:
    """Whether both wait for the same, whatever the figures in parentheses are, which change with every node."""
    return last.waiting_for.partition("(")[0] == new.waiting_for.partition("(")[0]


def _removing(state: PlannerState, key: WorkloadKey, part: Part, moment: Moment) -> Part:
    if part.removing:
        return part
    ceiling = next_ceiling(part, _facts(state, key, part.cluster), 0)
    return Part(part.cluster, moment.generation, 0, 0, ceiling, removing=True)


def needed_events(
    state: PlannerState, key: WorkloadKey, placement: PlacementDecided, moment: Moment
) -> Iterable[CapacityNeeded]:
    """CapacityNeeded wherever it is not what was last said: it is state, 0 when the need is over."""
    wanted = {part.cluster: part.replicas_new for part in placement.parts}
    said = {cluster: entry.replicas_new for (owner, cluster), entry in state.needed.items() if owner == key}
    for cluster in sorted(wanted.keys() | said.keys()):
        if wanted.get(cluster, 0) != said.get(cluster, 0):
            yield CapacityNeeded(*key, cluster, moment.generation, 0, wanted.get(cluster, 0))


def _record(
    state: PlannerState,
    declared: WorkloadDeclared,
    placement: PlacementDecided,
    division: Division,
    moment: Moment,
    cause: str,
) -> DecisionRecorded:
    offsets = {entry.cluster: state.clusters[entry.cluster].offset for entry in division.inputs if entry.cluster}
    return DecisionRecorded(
        namespace=declared.namespace,
        name=declared.name,
        generation=placement.generation,
        at_ms=moment.wall_ms,
        cause=cause,
        replicas=declared.replicas,
        unplaced=division.unplaced,
        inputs=division.inputs,
        positions=tuple((f"capacity-changes/{name}", offset) for name, offset in offsets.items() if offset != NEVER),
        settings=state.rules.text(),
        code_version=CODE_VERSION,
    )
