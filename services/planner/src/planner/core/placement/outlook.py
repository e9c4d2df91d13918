"""Decides which cluster of a rollout is next, by the newest statuses, and whether it has the room to begin."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from planner.core.division.tier_division import maximum_in_cluster
from planner.core.feasibility.reservation import is_rolling
from planner.core.knowledge.placement_waits import NO_ROLLOUT_WAIT, RolloutWait
from planner.core.knowledge.reserving import is_refusal_shown
from planner.core.knowledge.rollout_list import RolloutProgress
from planner.core.knowledge.rollout_turns import RolloutPart, RolloutTurn, next_rollout_turn
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.workload import Workload, refusal_status
from planner.core.manifests.policy import clusters_of_tiers
from planner.core.manifests.templates import (
    RolloutTemplate,
    generations_equal_to_newest,
    is_newest,
    template_number,
    widest_shape,
)
from planner.core.placement.reasons import is_lost, may_move_by_itself
from planner.core.placement.shares import facts_in_cluster, is_done_in_cluster
from spillway.events import WorkloadDeclared
from spillway.model import Part, Shape
from spillway.texts import counted_noun


@dataclass(frozen=True, slots=True)
class Outlook:
    """The next step of a rollout, or the reason why there is none.

    begins: the cluster that gets the newest template now; empty for none.
    waits_on: the clusters that the rollout waits for, for any reason.
    wait: why no cluster begins; NO_ROLLOUT_WAIT when one begins or nothing is left to do.
    under_way: the progress of the earlier change whose end the rollout waits for. It is also set if the rollout no
    longer waits because the change stood still. None when there is no such change.
    """

    begins: str
    waits_on: tuple[str, ...]
    wait: RolloutWait
    under_way: RolloutProgress | None = None


class NewestDeclaration(Protocol):
    """The newest declaration of a workload and its template, which a rollout brings to the clusters."""

    @property
    def declared(self) -> WorkloadDeclared: ...

    @property
    def template(self) -> RolloutTemplate: ...


@dataclass(frozen=True, slots=True)
class _RolloutLack:
    """Missing room that keeps a cluster from beginning a rollout.

    count: surge pods without room in the cluster. With `elsewhere`: replicas that no longer fit in the cluster and have
    no room in another one.
    """

    count: int
    cluster: str
    elsewhere: bool

    def __str__(self) -> str:
        if self.elsewhere:
            return f"{counted_noun(self.count, 'replica')} that no longer fit in {self.cluster}"
        return f"{counted_noun(self.count, 'surge pod')} in {self.cluster}"


NOTHING_ROLLS = Outlook("", (), NO_ROLLOUT_WAIT)
NAMED_MAX = 5
"""The most clusters without room that a text names."""


def rollout_outlook(
    state: PlannerState, workload: Workload, newest: NewestDeclaration, now: float, parts: Iterable[Part] | None = None
) -> Outlook:
    """Returns the next step of a workload's rollout.

    newest: may be newer than the workload's own declaration. parts: the parts as they will be; None: the workload's
    parts.
    """
    parts = tuple(workload.parts.values() if parts is None else parts)
    found = _rollout_parts(state, workload, newest.declared, parts, now)
    if all(entry.newest or entry.alike for entry in found if entry.is_taking_part):
        return NOTHING_ROLLS
    turn = next_rollout_turn(_parts_without_silent(state, found, now))
    if newest.declared.policy.rollout_all:
        return _outlook_all_at_once(state, workload, turn, [entry.part.cluster for entry in found if entry.is_to_roll])
    stopped = rollout_stopped_in(workload, newest.declared, parts)
    if stopped:
        text = f"stopped: it left {stopped} before it was available there; apply it again to go on"
        return Outlook("", (), RolloutWait(turn.progress_text(text)))
    if not turn.candidates:
        why = f"waits for {turn.blocked_by}" if turn.blocked_by else "the others are lost"
        wait = RolloutWait(turn.progress_text(why), turn.blocked_by)
        return Outlook("", (turn.blocked_by,) if turn.blocked_by else (), wait)
    return _outlook_of_candidates(state, workload, newest, turn, now)


def _outlook_all_at_once(state: PlannerState, workload: Workload, turn: RolloutTurn, to_roll: list[str]) -> Outlook:
    """Returns the outlook of a rollout that all clusters begin at once. Only brakes keep a cluster waiting there."""
    frozen = (state.brakes.why_frozen(cluster, workload.workload_key) for cluster in sorted(to_roll))
    held = list(dict.fromkeys(filter(None, frozen)))
    return Outlook("", (), RolloutWait(turn.progress_text(" and ".join(held)), frozen=True)) if held else NOTHING_ROLLS


def held_by_brakes_text(
    state: PlannerState, workload: Workload, declared: WorkloadDeclared, parts: Iterable[Part]
) -> str:
    """Returns a text for users that names the clusters that a brake keeps from the newest template, and the brake.

    Uses the brakes as they are now. A placement's own text is from the time when it was last decided.
    """
    frozen = [
        (why, part)
        for part in parts
        if part.replicas_kept
        and not part.removing
        and (why := state.brakes.why_frozen(part.cluster, workload.workload_key))
    ]
    alike = generations_equal_to_newest(workload.declared, declared) if frozen else frozenset()
    clusters_by_brake: dict[str, list[str]] = {}
    for why, part in frozen:
        number = template_number(part, workload.declared)
        if number != declared.template_generation and number not in alike:
            clusters_by_brake.setdefault(why, []).append(part.cluster)
    return "; ".join(f"{_clusters_text(names)} held: {why}" for why, names in clusters_by_brake.items())


def _clusters_text(clusters: list[str]) -> str:
    more = len(clusters) - NAMED_MAX
    names = [*clusters[:NAMED_MAX], *((f"{more} more",) if more > 0 else ())]
    return f"{' and '.join(names)} {'is' if len(clusters) == 1 else 'are'}"


def _outlook_of_candidates(
    state: PlannerState, workload: Workload, newest: NewestDeclaration, turn: RolloutTurn, now: float
) -> Outlook:
    """Returns an outlook for the first candidate that has the room to roll.

    A cluster without room does not keep the others waiting. A brake or a silent cluster does: people must look at it
    first.
    """
    missing: dict[str, _RolloutLack] = {}
    under_way: RolloutProgress | None = None
    for cluster in turn.candidates:
        part = workload.parts[cluster]
        frozen = state.brakes.why_frozen(cluster, workload.workload_key)
        if frozen:
            return Outlook("", tuple(missing), RolloutWait(turn.progress_text(frozen), frozen=True))
        if state.clusters[cluster].staleness_reason(now, state.rules.capacity_age_max):
            wait = RolloutWait(turn.progress_text(f"waits for {cluster} to be fresh"))
            return Outlook("", (*missing, cluster), wait)
        asks_for_more = _needs_more_resources(state, workload, part, newest.template)
        if asks_for_more and not is_done_in_cluster(state, workload, part):
            wait = RolloutWait(turn.progress_text(f"waits for {cluster} to show what runs there"))
            return Outlook("", (*missing, cluster), wait)
        earlier = _earlier_change(state, workload, part, newest, now) if asks_for_more else None
        if earlier is not None and not state.rollouts.is_standing_still(
            workload.workload_key, earlier, now, state.rules.roll_stands
        ):
            wait = RolloutWait(turn.progress_text(f"waits for the earlier change in {cluster} to end"))
            return Outlook("", (*missing, cluster), wait, earlier)
        under_way = earlier or under_way
        lack = _find_rollout_lack(state, workload, part, newest, now)
        if lack is None:
            return Outlook(cluster, (), NO_ROLLOUT_WAIT)
        missing[cluster] = lack
    named = [str(lack) for lack in missing.values()][:NAMED_MAX]
    if len(missing) > NAMED_MAX:
        named.append(f"in {counted_noun(len(missing) - NAMED_MAX, 'more cluster')}")
    elsewhere = any(lack.elsewhere for lack in missing.values())
    waits_on = tuple(dict.fromkeys((*missing, *state.clusters))) if elsewhere else tuple(missing)
    wait = RolloutWait(turn.progress_text(f"waits for room for {' and '.join(named)}"))
    return Outlook("", waits_on, wait, under_way)


def rollout_stopped_in(workload: Workload, declared: WorkloadDeclared, parts: Iterable[Part]) -> str:
    """Returns the new WorkloadDeclared.rollout_stopped_in: the cluster that a rollout left before it was available.

    declared: the declaration as it will be. parts: the parts as they will be. Empty: the rollout was not stopped.
    """
    if declared.template_generation != workload.declared.template_generation:
        return ""
    if any(part.replicas and not part.removing and is_newest(part, declared) for part in parts):
        return ""
    had = [
        RolloutPart(part, declared.template_generation, True, False, workload.statuses.get(part.cluster))
        for part in workload.parts.values()
        if is_newest(part, declared)
    ]
    left = [entry.part.cluster for entry in had if entry.may_run_newest_template and not entry.is_in_full]
    return min(left, default=declared.rollout_stopped_in)


def clusters_with_equal_template(
    state: PlannerState, workload: Workload, newest: NewestDeclaration, now: float, begins: str = ""
) -> frozenset[str]:
    """Returns the clusters whose earlier template is equal to the newest, once no cluster but `begins` is left to roll.

    None of their pods restarts for the new number. Until then they keep the number of their earlier template.
    """
    found = _rollout_parts(state, workload, newest.declared, workload.parts.values(), now)
    if any(entry.is_to_roll and entry.part.cluster != begins for entry in found):
        return frozenset()
    return frozenset(entry.part.cluster for entry in found if entry.alike)


def _parts_without_silent(state: PlannerState, found: list[RolloutPart], now: float) -> list[RolloutPart]:
    """Returns the parts, with those in silent clusters marked as lost, so that they keep no other cluster waiting.

    A silent cluster is not fresh. Only a part that was last seen with pods of an earlier template alone is marked.
    """
    silent = [
        entry for entry in found if entry.has_earlier_template_alone and not state.is_fresh(entry.part.cluster, now)
    ]
    others = [entry for entry in found if entry.is_to_roll and entry not in silent]
    return [replace(entry, lost=True) if entry in silent else entry for entry in found] if others else found


def _rollout_parts(
    state: PlannerState, workload: Workload, declared: WorkloadDeclared, parts: Iterable[Part], now: float
) -> list[RolloutPart]:
    found = []
    numbers = generations_equal_to_newest(workload.declared, declared)
    for part in parts:
        number = template_number(part, workload.declared)
        newest, lost = number == declared.template_generation, _is_part_lost(state, workload, part, now)
        observed = workload.statuses.get(part.cluster)
        found.append(RolloutPart(part, number, newest, lost, observed, not newest and number in numbers))
    return found


def _is_part_lost(state: PlannerState, workload: Workload, part: Part, now: float) -> bool:
    """Returns whether a part's cluster is lost for the workload: a person declared it lost, it has been lost for as
    long as the policy allows, or replicas of the part were replaced elsewhere."""
    view = state.clusters.get(part.cluster)
    if view is None or state.is_lost_for_good(view.name, now) or part.replicas_lost:
        return True
    return is_lost(state, workload, view, now)


def replicas_that_stay(
    state: PlannerState, workload: Workload, part: Part, template: RolloutTemplate
) -> tuple[int, int | None]:
    """Returns how many of a part's replicas stay with a new template, and how many it may have (None: not known).

    All stay unless it is known that fewer new pods fit. Then only as many stay as can also roll: if no replica may be
    unavailable, the surge must fit beside them. The surge must also fit beside replicas that are added; otherwise the
    rollout would never end.
    """
    old, new = _old_and_new_shapes(state, workload, part, template)
    most = _room_for_new_shape(state, workload, part, new) if old != new else None
    if most is None:
        return part.replicas, most
    with_surge = _room_for_new_shape(state, workload, part, widest_shape(new, (old,))) or 0
    rolls = (
        count
        for count in range(most, -1, -1)
        if template.may_go_without_surge(count) or count + template.surge_of(count) <= with_surge
    )
    fits = next(rolls, 0)
    if most >= part.replicas:
        return part.replicas, max(fits, part.replicas)
    return fits, fits


def _room_for_new_shape(state: PlannerState, workload: Workload, part: Part, shape: Shape) -> int | None:
    """Returns how many replicas of a shape the cluster certainly takes once the part's pods are gone. None: not known.

    It is not known while pods of several sizes may run there, since no record says which node has which. It is also not
    known where no record shows the object, unless the cluster reported that it has none.
    """
    if facts_in_cluster(state, workload.workload_key, part.cluster) is None and not _has_no_object(workload, part):
        return None
    return state.room_for_new_shape(workload, part, shape) if _has_pods_of_one_size(state, workload, part) else None


def _has_no_object(workload: Workload, part: Part) -> bool:
    """Returns whether the cluster reported, at this version, that its API refused the object and that none exists."""
    said = refusal_status(workload, part)
    return said is not None and is_refusal_shown(said, None, workload.template_of(part))


def _has_pods_of_one_size(state: PlannerState, workload: Workload, part: Part) -> bool:
    """Returns whether all pods of the part have the requests of the part's template, as far as that is known."""
    facts, earlier = facts_in_cluster(state, workload.workload_key, part.cluster), workload.declared.rolling_from
    if facts is None:
        return True
    if not is_rolling(part, facts, earlier):
        return len(facts.counted) <= 1
    own = state.shape_in(part.cluster, workload.template_of(part).shape).requests
    return all(state.shape_in(part.cluster, shape).requests == own for shape in earlier)


def _earlier_change(
    state: PlannerState, workload: Workload, part: Part, newest: NewestDeclaration, now: float
) -> RolloutProgress | None:
    """Returns the progress of an earlier change of the part, if the newest template must wait until that change ends.

    It must wait while pods of several sizes run or pods are terminating: then it is not known how many of its larger
    pods will have room. It need not wait, and the result is None, if no change is under way, if the API refused the
    object, so that nothing rolls, or if all its pods fit beside all pods that may be there now.
    """
    view, facts = state.clusters.get(part.cluster), facts_in_cluster(state, workload.workload_key, part.cluster)
    if view is None or facts is None or refusal_status(workload, part) is not None:
        return None
    terminating = view.nodes.count_terminating_pods(workload.declared.namespace, workload.template_of(part).labels)
    if not terminating and _has_pods_of_one_size(state, workload, part):
        return None
    at_once = part.replicas + newest.template.surge_of(part.replicas) + state.unbound_replicas(workload, part)
    old, new = _old_and_new_shapes(state, workload, part, newest.template)
    widest = widest_shape(new, (old, *(state.shape_in(part.cluster, one) for one in workload.declared.rolling_from)))
    if state.room_without_workload(part.cluster, widest, now, workload.workload_key).certain >= at_once:
        return None
    return RolloutProgress(
        part.cluster, facts.version, facts.counted, facts.status_replicas, facts.updated_replicas, terminating
    )


def _old_and_new_shapes(
    state: PlannerState, workload: Workload, part: Part, template: RolloutTemplate
) -> tuple[Shape, Shape]:
    """Returns the shapes of a pod in the part's cluster: first of the part's own template, then of this template."""
    borne = workload.template_of(part).shape
    return state.shape_in(part.cluster, borne), state.shape_in(part.cluster, template.shape)


def _needs_more_resources(state: PlannerState, workload: Workload, part: Part, template: RolloutTemplate) -> bool:
    """Returns whether a pod of the template requests more of any resource than a pod of the part's template."""
    old, new = _old_and_new_shapes(state, workload, part, template)
    return widest_shape(new, (old,)).requests != old.requests


def _find_rollout_lack(
    state: PlannerState, workload: Workload, part: Part, newest: NewestDeclaration, now: float
) -> _RolloutLack | None:
    """Returns the room that a rollout of this part needs and does not have. None when it may begin."""
    kept, _ = replicas_that_stay(state, workload, part, newest.template)
    if kept >= part.replicas:
        surge = _surge_pods_without_room(state, workload, part, newest, now)
        return _RolloutLack(surge, part.cluster, elsewhere=False) if surge else None
    rest = part.replicas - kept
    if not may_move_by_itself(workload) or _room_elsewhere(state, workload, part, newest, now) >= rest:
        return None
    return _RolloutLack(rest, part.cluster, elsewhere=True)


def _surge_pods_without_room(
    state: PlannerState, workload: Workload, part: Part, newest: NewestDeclaration, now: float
) -> int:
    """Returns how many surge pods have no room now, or will have none before the rollout is over.

    They must fit beside the old pods. When the new pods request more, the cluster becomes fuller as they replace old
    pods. Then one of two conditions must hold. Either all new pods fit beside the old pods. Or the cluster without the
    old pods has places of the larger shape for replicas and surge together. With fewer pods than places one place is
    always free, wherever the scheduler put the pods.
    """
    template, replicas = newest.template, part.replicas
    old, new = _old_and_new_shapes(state, workload, part, template)
    fewer = newest.declared.replicas < workload.declared.replicas  # How many replicas will roll is not known yet.
    if template.may_go_without_surge(1 if fewer else replicas):
        return 0
    surge = template.surge_of(replicas)
    unbound = state.unbound_replicas(workload, part)
    if unbound:
        rooms = (
            state.room_without_workload(
                part.cluster, widest_shape(shape, (new, old)), now, workload.workload_key
            ).certain
            for shape in (new, old)
        )
        return 0 if min(rooms) >= unbound + surge else surge
    beside = state.room_without_workload(
        part.cluster, new, now, workload.workload_key
    ).certain  # All surge pods are new ones.
    if beside < surge:
        return surge
    if beside >= replicas or not _needs_more_resources(state, workload, part, template):
        return 0
    places = _room_for_new_shape(state, workload, part, widest_shape(new, (old,)))
    return 0 if places is None or places >= replicas + surge else surge


def _room_elsewhere(state: PlannerState, workload: Workload, part: Part, newest: NewestDeclaration, now: float) -> int:
    """Returns how many replicas of the newest template certainly fit in other clusters that the policy allows.

    The policy's limits of those clusters are taken into account.
    """
    policy, rooms = newest.declared.policy, state.rooms_of_fleet(newest.template.shape, now, workload.workload_key)
    limits = {limit.cluster: limit for limit in policy.limits}
    found: dict[str, int] = {}
    for tier, names in clusters_of_tiers(policy.tiers, state.joined_clusters()):
        for name in names:
            there = workload.parts[name].replicas_kept if name in workload.parts else 0
            more = max(0, min(rooms[name, tier.node_groups].certain, maximum_in_cluster(limits, name) - there))
            found[name] = max(found.get(name, 0), more)
    found.pop(part.cluster, None)
    return sum(found.values())
