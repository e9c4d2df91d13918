"""Turns a workload into its placement: parts with versions and ceilings, and the record of the decision."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from planner.core.division.situation import Division, HeldReplicas
from planner.core.division.tier_division import amounts_up_to_total
from planner.core.division.words import DivisionEntry
from planner.core.feasibility.limits import Limit, LimitCode
from planner.core.knowledge.ages import age_ms
from planner.core.knowledge.allowance import (
    CAUSE_DRAIN,
    CAUSE_FAILOVER,
    CAUSE_HOME,
    CAUSE_LOST,
    CAUSE_MIGRATE,
    CAUSE_MISSING,
    CAUSE_POLICY,
    CAUSE_RETURN,
    CAUSE_SETTLED,
    CAUSE_TAKE_BACK,
    CAUSE_WAITING,
    Allowance,
)
from planner.core.knowledge.placement_waits import has_no_waits
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment, PlacementSubject, subject_of_workload
from planner.core.knowledge.workload import Workload
from planner.core.manifests.kinds import STATEFULSET
from planner.core.manifests.templates import is_same_object, manifests_by_generation, template_number
from planner.core.placement.dividing import DivisionOptions, divide_over_fleet
from planner.core.placement.growth import growth_room
from planner.core.placement.misplaced import allowed_maximum, keep_replicas_for_minima
from planner.core.placement.missing import Missing, awaited_objects_by_cluster, waited_template_digest
from planner.core.placement.outlook import clusters_with_equal_template, replicas_that_stay, rollout_outlook
from planner.core.placement.promised import with_promised_limits
from planner.core.placement.reasons import (
    hold_texts_by_cause,
    leaving_clusters_without_replicas,
    replicas_barred_by_freeze,
)
from planner.core.placement.recording import Record, prepare_record
from planner.core.placement.shares import (
    PartShare,
    ceiling_before_change,
    first_part,
    held_after_leaving,
    held_after_removal,
    held_by_cluster,
    part_with_missing_objects,
    part_with_new_version,
    parts_without_shared,
    share_of_cluster,
    unchanged_part,
)
from planner.core.placement.waits import has_same_parts, repeats_placement, waits_of_placement
from planner.core.placement.whole import is_whole
from spillway.events import PHASE_LOST, CapacityNeeded, Event, PlacementDecided
from spillway.feasibility.cluster_view import WorkloadKey
from spillway.model import Part

BY_NAME = ("Apply", "Scale")
"""A person's requests for a workload. They move replicas that the policy rules out; a scale policy does not."""


@dataclass(frozen=True, slots=True)
class PlacementResult:
    """A placement, the division that it was made from, and its events (none when nothing changed).

    changes: the events without the decision's record. record: makes that record when it is first asked for. The record
    shows the state at the time of the decision, even if the state has changed since.
    """

    placement: PlacementDecided
    division: Division
    changes: tuple[Event, ...] = ()
    record: Record | None = None

    @property
    def events(self) -> tuple[Event, ...]:
        return self.changes if self.record is None else (*self.changes, self.record())


def place_workload(
    state: PlannerState,
    subject: PlacementSubject,
    moment: Moment,
    cause: str,
    *,
    settled: bool = False,
    brakes: Allowance | None = None,
    rolled: frozenset[str] = frozenset(),
) -> PlacementResult:
    """Places a workload on the fleet as it is now.

    settled: the wait for binds is over. rolled: the clusters that get the newest template in this step.
    brakes: limits how many replicas may move without a request by name. None: none of them moves.
    """
    held = held_by_cluster(state, subject.known, moment.now) if subject.known is not None else {}
    if brakes is None:  # A person asked. Lost replicas that return must not be more than the person asked for.
        most_lost = subject.declared.replicas
        held = {cluster: replace(have, lost=min(have.lost, most_lost)) for cluster, have in held.items()}
    stays = _staying_by_rolled_cluster(state, subject, rolled)
    before = {cluster: held[cluster].leaving for cluster in stays}
    for cluster, (count, _) in stays.items():
        held[cluster] = held_after_leaving(held[cluster], held[cluster].replicas - count)
    most = {cluster: fits for cluster, (_, fits) in stays.items() if fits is not None}
    options = DivisionOptions(settled, most=most, brakes=brakes, by_name=cause in BY_NAME, for_lent=True)
    division = divide_over_fleet(state, subject, held, moment, options)
    if brakes is not None and subject.known is not None:
        keep_replicas_for_minima(state, subject.known, division)
    nobody_took = division.unplaced
    for cluster, leaving in before.items():  # Replicas without another place stop here, too: they wait without running.
        gone = min(nobody_took, held[cluster].leaving - leaving)
        held[cluster] = replace(held[cluster], leaving=held[cluster].leaving - gone)
        nobody_took -= gone
    return _decide_placement(
        state, subject, held, division, moment, PlacementCause(cause, rolled=rolled, for_lent=True)
    )


def place_and_roll(
    state: PlannerState, subject: PlacementSubject, moment: Moment, cause: str, *, settled: bool = False
) -> PlacementResult:
    """Places a workload like `place_workload`, and gives the newest template to the next cluster of the rollout.

    With `rollout: all`, all clusters that are not frozen get it. A cluster that has an equal template with an earlier
    number gets the new number once no other cluster is left. Replicas that no longer fit go elsewhere or wait.
    """
    known = subject.known
    rolled: frozenset[str] = frozenset()
    if known is not None and not known.declared.deleting:
        begins = ""
        if subject.declared.policy.rollout_all:
            rolled = frozenset(known.parts) - state.brakes.frozen_clusters_among(known.parts, known.workload_key)
        else:
            begins = rollout_outlook(state, known, subject, moment.now).begins
            rolled = frozenset((begins,)) if begins else rolled
        rolled |= clusters_with_equal_template(state, known, subject, moment.now, begins)
    return place_workload(state, subject, moment, cause, settled=settled, rolled=rolled)


def _staying_by_rolled_cluster(
    state: PlannerState, subject: PlacementSubject, rolled: frozenset[str]
) -> dict[str, tuple[int, int | None]]:
    """Returns the result of `outlook.replicas_that_stay` for each cluster that gets a template of another shape."""
    known = subject.known
    if known is None:
        return {}
    return {
        part.cluster: replicas_that_stay(state, known, part, subject.template)
        for part in known.parts.values()
        if part.replicas and part.cluster in rolled
        if state.shape_in(part.cluster, known.template_of(part).shape)
        != state.shape_in(part.cluster, subject.replica_shape)
    }


def place_workload_again(state: PlannerState, workload: Workload, moment: Moment, brakes: Allowance) -> PlacementResult:
    """Places a workload again without a request. Replicas move only as far as the brakes allow."""
    placed = place_workload(
        state, subject_of_workload(workload), moment, CAUSE_WAITING, settled=workload.settled, brakes=brakes
    )
    why = placed.division.reasons
    for cluster in why:
        brakes.spend_budget(why[cluster], cluster, workload.workload_key, placed.division.moved.get(cluster, 0))
    for cluster in placed.division.basis.for_minima if placed.division.basis is not None else ():
        brakes.spend_budget(CAUSE_POLICY, cluster, workload.workload_key, placed.division.moved.get(cluster, 0))
    workload.barred = replicas_barred_by_freeze(placed.division)
    workload.looked_at = None if placed.division.held_back else (dict(why), brakes.allowance_revision)
    workload.held_by = hold_texts_by_cause(state, workload, why, moment.now)
    if workload.held_by or placed.division.held_back:
        state.misplaced[workload.workload_key] = None
    elif not placed.events and has_no_waits(placed.placement):
        state.misplaced.pop(workload.workload_key, None)
    return placed


def take_back_replicas(
    state: PlannerState, workload: Workload, counts: dict[str, int], moment: Moment
) -> PlacementResult:
    """Takes replicas back, and places them elsewhere at once. counts: replicas by cluster.

    They leave like other replicas, since they may bind before their cluster reads the placement. A StatefulSet or Job
    must be removed there first. Only then another cluster gets it.
    """
    held = held_by_cluster(state, workload, moment.now)
    takes = held_after_removal if is_whole(workload.declared.kind) else held_after_leaving
    for cluster, count in counts.items():
        held[cluster] = takes(held[cluster], count)
    subject = subject_of_workload(workload)
    division = divide_over_fleet(state, subject, held, moment, DivisionOptions(settled=True))
    division = _keep_leaving_replicas(workload, held, division)
    return _decide_placement(state, subject, held, division, moment, PlacementCause(CAUSE_TAKE_BACK))


def await_missing_objects(
    state: PlannerState, workload: Workload, counts: Mapping[str, int], missing: Mapping[str, Missing], moment: Moment
) -> PlacementResult:
    """Removes replicas that wait for an object that their cluster lacks. counts: replicas by cluster.

    They are gone at once, as none of their pods was ever made. Another cluster of the tier takes them unless it is
    known to lack the object. Otherwise they wait, and the replicas that they should replace stay. missing: by cluster.
    """
    held = held_by_cluster(state, workload, moment.now)
    for cluster, count in counts.items():
        held[cluster] = held_after_removal(held[cluster], count)
    subject = subject_of_workload(workload)
    division = divide_over_fleet(state, subject, held, moment, DivisionOptions(settled=True, await_missing=True))
    division = _keep_leaving_replicas(workload, held, division)
    return _decide_placement(state, subject, held, division, moment, PlacementCause(CAUSE_MISSING, missing=missing))


def migrate_replicas(
    state: PlannerState, workload: Workload, counts: Mapping[str, int], to: str, moment: Moment
) -> PlacementResult:
    """Moves replicas to the cluster `to`, which certainly has room for them. counts: replicas by source cluster.
    Running replicas leave once their replacements are available."""
    held = held_by_cluster(state, workload, moment.now)
    kept = {cluster: entry.replicas for cluster, entry in held.items()}
    for cluster, count in counts.items():
        held[cluster] = held_after_leaving(held[cluster], count)
    wanted, there = sum(counts.values()), held.get(to, HeldReplicas(0, 0, 0))
    stay = min(wanted, there.may_keep)
    held[to] = replace(
        there,
        replicas=there.replicas + wanted,
        unbound=there.unbound + wanted - stay,
        leaving=there.leaving - stay,
        may_keep=there.may_keep - stay,
    )
    subject = subject_of_workload(workload)
    room = growth_room(state, to, workload.possible_shapes_in(to), False, moment.now, workload.workload_key).certain - (
        wanted - stay
    )
    options = DivisionOptions(workload.settled, most={to: held[to].replicas + room})
    division = divide_over_fleet(state, subject, held, moment, options)
    inputs = tuple(entry._replace(before=kept.get(entry.cluster, 0)) for entry in division.inputs)
    why = PlacementCause(CAUSE_MIGRATE, sent={to: wanted})
    return _decide_placement(state, subject, held, replace(division, inputs=inputs), moment, why)


def send_overflow_home(
    state: PlannerState, workload: Workload, cluster: str, count: int, rooms: Mapping[str, int], moment: Moment
) -> PlacementResult | None:
    """Moves `count` overflow replicas from a cluster to their homes. rooms: by home, how many more replicas it takes.

    They leave once their replacements are available. Returns None if they do not all fit at home, or count is 0.
    """
    held = held_by_cluster(state, workload, moment.now)
    kept = {name: entry.replicas for name, entry in held.items()}
    held = {name: replace(entry, may_keep=0) for name, entry in held.items()}
    if count <= 0 or count > kept.get(cluster, 0):
        return None
    held[cluster] = held_after_leaving(held[cluster], count)
    before = {name: held[name].replicas if name in held else 0 for name in state.clusters}
    most = {name: there + rooms.get(name, 0) for name, there in before.items()}
    division = divide_over_fleet(
        state, subject_of_workload(workload), held, moment, DivisionOptions(settled=True, most=most)
    )
    stray = any(division.replicas.get(name, 0) != there for name, there in before.items() if name not in rooms)
    if stray or division.unplaced or any(division.new.get(name, 0) > held[name].new for name in held):
        return None
    inputs = tuple(entry._replace(before=kept.get(entry.cluster, 0)) for entry in division.inputs)
    division = replace(division, inputs=inputs)
    return _decide_placement(state, subject_of_workload(workload), held, division, moment, PlacementCause(CAUSE_HOME))


def return_lost_replicas(
    state: PlannerState, workload: Workload, back: Mapping[str, int], moment: Moment
) -> PlacementResult:
    """Counts lost replicas as kept again in clusters that are back. back: replicas by cluster.

    If more replicas are kept then than are asked for, the surplus leaves once as many are available as are kept.
    Replicas in a cluster that was declared lost leave first.
    """
    held = held_by_cluster(state, workload, moment.now)
    surplus = sum(entry.replicas for entry in held.values()) + sum(back.values()) - workload.declared.replicas
    for cluster, count in back.items():
        before, part = held[cluster], workload.parts[cluster]
        leaves = min(count, max(0, surplus)) if state.clusters[cluster].phase == PHASE_LOST else 0
        surplus -= leaves
        kept = before.replicas + count - leaves
        unbound = min(state.unbound_replicas(workload, part), kept)
        leaving = before.leaving + leaves
        held[cluster] = replace(before, replicas=kept, lost=before.lost - count, unbound=unbound, leaving=leaving)
    subject = subject_of_workload(workload)
    division = divide_over_fleet(state, subject, held, moment, DivisionOptions(settled=True, gently=True))
    return _decide_placement(state, subject, held, division, moment, PlacementCause(CAUSE_RETURN))


def give_up_replicas(
    state: PlannerState, workload: Workload, counts: Mapping[str, int], moment: Moment
) -> PlacementResult:
    """Counts kept replicas as lost in clusters that will not return. counts: replicas by cluster.

    A part without kept replicas leaves the placement at once, as no status will ever report that it is gone. Until then
    the placement lists all its replicas, so that none of them is stopped if the cluster is back after all.
    """
    held = held_by_cluster(state, workload, moment.now)
    for cluster in counts.keys() & held.keys():
        before = held[cluster]
        kept = before.replicas - counts[cluster]
        held[cluster] = replace(
            before,
            replicas=kept,
            new=min(before.new, kept),
            unbound=min(before.unbound, kept),
            lost=before.lost + counts[cluster],
        )
    subject = subject_of_workload(workload)
    others = {cluster: entry for cluster, entry in held.items() if cluster not in counts}
    division = _keep_leaving_replicas(
        workload, others, divide_over_fleet(state, subject, held, moment, DivisionOptions())
    )
    given_up = frozenset(cluster for cluster in counts if cluster not in held or not held[cluster].replicas)
    return _decide_placement(state, subject, held, division, moment, PlacementCause(CAUSE_LOST, given_up))


def take_over_parts(
    state: PlannerState, workload: Workload, held: Mapping[str, HeldReplicas], why: "PlacementCause", moment: Moment
) -> PlacementResult:
    """Decides a placement that gives parts to other clusters. why.taken: the part that each new cluster gets."""
    subject = subject_of_workload(workload)
    division = divide_over_fleet(state, subject, held, moment, DivisionOptions(workload.settled))
    return _decide_placement(state, subject, held, division, moment, why)


def _keep_leaving_replicas(workload: Workload, held: Mapping[str, HeldReplicas], division: Division) -> Division:
    """Keeps leaving replicas whose replacements lost their place and found no other. Otherwise too few would run.
    Unbound leaving replicas go: they were taken back. For each that stays, one replica less is unplaced or waits."""
    left = max(0, division.unplaced - workload.unplaced)
    replicas, kept_again = dict(division.replicas), dict(division.kept_again)
    for cluster in sorted(held):
        count = min(left, held[cluster].leaving - held[cluster].idle - kept_again.get(cluster, 0))
        if count > 0:
            replicas[cluster] = replicas.get(cluster, 0) + count
            kept_again[cluster] = kept_again.get(cluster, 0) + count
            left -= count
    unplaced = division.unplaced - (sum(replicas.values()) - sum(division.replicas.values()))
    uncertain = min(division.uncertain, unplaced)
    missing = amounts_up_to_total(division.missing, unplaced - uncertain)
    minima = {name: count for name, count in division.waits_in.items() if name in division.lacking}
    stayed = replace(division, replicas=replicas, kept_again=kept_again, unplaced=unplaced, uncertain=uncertain)
    return replace(stayed, missing=missing, waits_in=division.waits_in if unplaced else minima)


def remove_leaving_replicas(
    state: PlannerState, workload: Workload, counts: Mapping[str, int], moment: Moment
) -> PlacementResult:
    """Removes leaving replicas from the placement, without a new division. counts: replicas by cluster."""
    assert workload.placement is not None
    parts, inputs = [], []
    for part in workload.placement.parts:
        count = counts.get(part.cluster, 0)
        if count:
            share = PartShare(part.replicas_kept, part.replicas_new, part.replicas_lost, part.replicas_leaving - count)
            number = template_number(part, workload.declared)
            left = part_with_new_version(
                state, workload.workload_key, part.cluster, part, share, moment.generation, number
            )
            parts.append(replace(left, replicas_by_name=part.replicas_by_name))
            inputs.append(_entry_of_removed(state, part, share.replicas, moment.now))
        else:
            parts.append(part)
    placement = replace(workload.placement, parts=tuple(parts), generation=moment.generation)
    division = Division({}, {}, placement.unplaced, inputs=tuple(inputs))
    said = prepare_record(state, workload.declared, placement, division, moment, CAUSE_SETTLED)
    needed = needed_events(state, workload.workload_key, placement, moment)
    return PlacementResult(placement, division, (placement, *needed), said)


def _entry_of_removed(state: PlannerState, part: Part, after: int, now: float) -> DivisionEntry:
    """Returns the entry, for the decision's record, of a cluster whose leaving replicas were removed."""
    view = state.clusters[part.cluster]
    tier = view.joined.tier if view.joined is not None else ""
    why = Limit(LimitCode.AVAILABLE)
    return DivisionEntry(part.cluster, tier, 0, 0, 0, part.replicas, after, why, age_ms(view, now))


def remove_workload(state: PlannerState, subject: PlacementSubject, moment: Moment) -> PlacementResult:
    """Returns the placement of a workload that is to be removed from every cluster."""
    known = subject.known.parts if subject.known is not None else {}
    parts = tuple(_part_to_remove(state, subject.workload_key, part, moment) for part in known.values())
    placement = PlacementDecided(*subject.workload_key, moment.generation, subject.declared.generation, parts, 0, "")
    division = Division({}, {}, 0)
    last = subject.known.placement if subject.known is not None else None
    if last is not None and has_same_parts(last, placement):
        return PlacementResult(last, division)
    said = prepare_record(state, subject.declared, placement, division, moment, "Delete")
    needed = needed_events(state, subject.workload_key, placement, moment, {})
    return PlacementResult(placement, division, (placement, *needed), said)


@dataclass(frozen=True, slots=True)
class PlacementCause:
    """The cause of a placement, for its record, and changes of parts that do not follow from the division.

    given_up: clusters that leave the placement. rolled: clusters that get the newest template.
    sent: by cluster, replicas that a person sent there by name. taken: by cluster, the part that it takes over.
    for_lent: whether the division counted replicas that wait for lent nodes. missing: by cluster, missing objects.
    """

    cause: str
    given_up: frozenset[str] = frozenset()
    rolled: frozenset[str] = frozenset()
    sent: Mapping[str, int] = field(default_factory=dict)
    taken: Mapping[str, Part] = field(default_factory=dict)
    for_lent: bool = False
    missing: Mapping[str, Missing] = field(default_factory=dict)


def _decide_placement(
    state: PlannerState,
    subject: PlacementSubject,
    held: Mapping[str, HeldReplicas],
    division: Division,
    moment: Moment,
    why: PlacementCause,
) -> PlacementResult:
    """Makes the placement from a division: first the parts, then the texts, the needs and the record. The order of
    steps for one part matters: a new cluster, or else share and template, version, removal, missing objects, and the
    count by name. A placement that equals the last one is not written again."""
    division, declared, known = with_promised_limits(state, subject, division), subject.declared, subject.known
    before = {**known.parts, **why.taken} if known is not None else {}
    empty = leaving_clusters_without_replicas(state, known) if known is not None else []
    to_end = frozenset(empty) - state.brakes.frozen_clusters_among(empty, subject.workload_key)
    waits_for = awaited_objects_by_cluster(state, subject, before.values(), division, why.missing)
    parts = []
    for cluster in dict.fromkeys((*before, *division.replicas, *waits_for)):
        if cluster in why.given_up:
            continue
        if cluster not in before and cluster not in held:
            first = first_part(cluster, moment.generation, division, declared.template_generation, why.sent)
            if first.replicas or cluster in waits_for:
                parts.append(replace(first, missing=waits_for.get(cluster, ())))
            continue
        share = share_of_cluster(held.get(cluster), division, cluster)
        number, changes = _template_for_part(subject, before.get(cluster), cluster in why.rolled)
        part = None if changes or cluster in why.taken else unchanged_part(before.get(cluster), share, number)
        if part is None and (share.kept or cluster in before):
            old = before.get(cluster)
            part = part_with_new_version(state, subject.workload_key, cluster, old, share, moment.generation, number)
        if part is not None and not part.replicas and cluster in to_end:
            part = _part_to_remove(state, subject.workload_key, part, moment)
        if part is not None and not (part.removing and cluster in to_end):
            part = part_with_missing_objects(
                state, subject.workload_key, part, before.get(cluster), waits_for, moment.generation
            )
        if part is not None and part.removing and _needs_empty_object(subject, before.get(cluster)):
            part = replace(part, removing=False)
        if part is not None:
            parts.append(_with_replicas_by_name(state, subject, part, before.get(cluster), why))
    waiting_for, waits = waits_of_placement(state, subject, division, parts, moment)
    placement = PlacementDecided(
        namespace=declared.namespace,
        name=declared.name,
        generation=moment.generation,
        workload_generation=declared.generation,
        parts=tuple(sorted(parts_without_shared(state, parts, moment.generation), key=lambda part: part.cluster)),
        unplaced=division.unplaced,
        waiting_for=waiting_for,
        missing_template=waited_template_digest(subject, why.missing),
        waits=waits,
    )
    lent = division.lent if why.for_lent and placement.unplaced else None
    needed = tuple(needed_events(state, subject.workload_key, placement, moment, lent))
    last = known.placement if known is not None else None
    if last is not None and repeats_placement(last, placement, division):
        return PlacementResult(last, division, needed)
    said = prepare_record(state, declared, placement, division, moment, _recorded_cause(division, why.cause))
    return PlacementResult(placement, division, (placement, *needed), said)


def _needs_empty_object(subject: PlacementSubject, before: Part | None) -> bool:
    """Returns whether the part keeps its object: a StatefulSet at 0 replicas might lose its volumes with the object."""
    none_asked = subject.declared.kind == STATEFULSET and not subject.declared.replicas
    return none_asked and before is not None and not before.removing


def _with_replicas_by_name(
    state: PlannerState, subject: PlacementSubject, part: Part, before: Part | None, why: PlacementCause
) -> Part:
    """Returns the part with the count of replicas that a person sent there, at most all that it keeps."""
    by_name = _replicas_by_name(state, subject, before, why.cause) + why.sent.get(part.cluster, 0)
    by_name = min(by_name, part.replicas_kept)
    return part if by_name == part.replicas_by_name else replace(part, replicas_by_name=by_name)


def _replicas_by_name(state: PlannerState, subject: PlacementSubject, before: Part | None, cause: str) -> int:
    """Returns how many replicas of a part a person placed there by name.

    Another policy sets the number to 0. A new Apply or Scale lowers it to what the policy allows in that cluster.
    """
    known = subject.known
    if before is None or known is None or known.declared.policy != subject.declared.policy:
        return 0
    if not before.replicas_by_name or cause not in BY_NAME:
        return before.replicas_by_name
    return min(
        before.replicas_by_name, allowed_maximum(subject.declared.policy, before.cluster, state.joined_clusters())
    )


def _recorded_cause(division: Division, cause: str) -> str:
    """Returns the cause for the record. For a retry that moved replicas, it is the cause of that move."""
    if cause != CAUSE_WAITING or not any(division.moved.values()):
        return cause
    causes = {division.reasons.get(cluster, CAUSE_POLICY) for cluster, count in division.moved.items() if count}
    return min(causes, key=(CAUSE_FAILOVER, CAUSE_LOST, CAUSE_DRAIN, CAUSE_POLICY).index)


def _template_for_part(subject: PlacementSubject, before: Part | None, rolled: bool) -> tuple[int, bool]:
    """Returns the template generation for a part, and whether the part's object must be written again for its manifest.

    A part keeps its template until its turn in the rollout comes. A new part, or one without replicas, gets the newest.
    Other changes of a manifest (strategy, labels of the object) restart no pod, so they go at once to all parts with
    the same template.
    """
    declared, known = subject.declared, subject.known
    newest = declared.template_generation
    if before is None or known is None or before.removing:
        return newest, False
    bears = template_number(before, known.declared)
    if not rolled and before.replicas and bears != newest:
        return bears, False
    manifest = manifests_by_generation(known.declared, (bears,)).get(bears)
    return newest, manifest is None or not is_same_object(declared.manifest, manifest)


def _part_to_remove(state: PlannerState, key: WorkloadKey, part: Part, moment: Moment) -> Part:
    if part.removing:
        return part
    ceiling = ceiling_before_change(state, key, part, part.cluster)
    return Part(part.cluster, moment.generation, 0, 0, ceiling, removing=True)


def needed_events(
    state: PlannerState,
    key: WorkloadKey,
    placement: PlacementDecided,
    moment: Moment,
    lent: Mapping[str, int] | None = None,
) -> Iterable[CapacityNeeded]:
    """Yields CapacityNeeded for each cluster whose need of new or lent nodes has changed; 0 ends a need.

    lent: by cluster, replicas that wait for lent nodes. None: not computed now. Then the last need stays while replicas
    have no place; if all have one, the need of overflow (Workload.home_needs) is published.
    """
    new = {part.cluster: part.replicas_new for part in placement.parts if part.replicas_new}
    said = state.needed.get(key, {})
    if lent is None and placement.unplaced:
        lent = {cluster: entry.replicas_lent for cluster, entry in said.items()}
    elif lent is None:
        lent = state.workloads[key].home_needs if key in state.workloads else {}
    for cluster in sorted(new.keys() | said.keys() | lent.keys()):
        wanted = CapacityNeeded(*key, cluster, moment.generation, lent.get(cluster, 0), new.get(cluster, 0))
        last = said.get(cluster, replace(wanted, replicas_lent=0, replicas_new=0))
        if (wanted.replicas_lent, wanted.replicas_new) != (last.replicas_lent, last.replicas_new):
            yield wanted
