"""Whatever waits for something that is missing takes room from nobody for long: judged at each look of the planners.

Over all clusters what a workload reserves and what is counted of it is at most its replicas, the surge of a roll, and
what moves or is not answered yet. A planner that acts reserves for what a cluster said to lack for its own time alone,
and once for each template.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from planner.core.feasibility.reservation import is_carried_out, is_rolling
from planner.core.knowledge.reserving import is_refusal_shown
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.workload import Workload, refusal_status, reported_missing_objects
from planner.core.manifests.templates import is_newest
from planner.service import Planner
from spillway.model import Part, WorkloadFacts

Key = tuple[str, str]
Place = tuple[str, Key, str]
SLACK_SECONDS = 10.0
"""What a look, a decision and its answer may take beside missing_after where nothing goes wrong."""


class Taken(NamedTuple):
    """replicas: asked for, surge and what is on its way. by_cluster: for people."""

    reserved: int
    counted: int
    replicas: int
    by_cluster: str


class DependencyOracle:
    """look() is called for every planner twice a second, whether it is active, standing by, frozen or cut off."""

    def __init__(self, violated: Callable[[str], None]) -> None:
        self._violated = violated
        self._since: dict[Place, tuple[PlannerState, str, float]] = {}
        self._told: set[Place] = set()
        self._waited: set[tuple[Key, str]] = set()
        self._over: dict[tuple[str, Key], tuple[PlannerState, str, float]] = {}

    def judge_planner(self, owner: str, planner: Planner, now: float, *, is_well: bool) -> None:
        """is_well: whether nothing goes wrong with the planner and the log now, so that time may be judged."""
        for workload in planner.state.workloads.values():
            self._waited |= {(workload.workload_key, part.cluster) for part in workload.parts.values() if part.missing}
            self._note_wait_over(owner, planner.state, workload, now)
            taken = places_taken_by(planner.state, workload)
            if taken.reserved + taken.counted > taken.replicas:
                self._report_once(
                    (owner, workload.workload_key, ""),
                    f"{taken.reserved} places reserved and {taken.counted} pods counted, and {taken.replicas} are "
                    f"asked for or on their way ({taken.by_cluster})",
                )
        waits = dict(_places_reserved_for_missing(planner.state)) if planner.is_active and is_well else {}
        for place in [one for one in self._since if one[0] == owner and one[1:] not in waits]:
            del self._since[place]
        for (key, cluster), (template, newest) in waits.items():
            place, state = (owner, key, cluster), planner.state
            before = self._since.get(place)
            if before is None or before[0] is not state or before[1] != template:
                self._since[place] = state, template, now
            elif now > min(before[2] + state.rules.missing_after, self._wait_over_since(place, newest)) + SLACK_SECONDS:
                self._report_once(place, f"reserved for {now - before[2]:.1f} s now where something is missing")

    @property
    def count_by_event(self) -> dict[str, int]:
        """In how many places replicas were decided to wait for something that is missing."""
        return {"waited for missing": len(self._waited)}

    def _note_wait_over(self, owner: str, state: PlannerState, workload: Workload, now: float) -> None:
        """Notes when the minute of a workload's newest template was over: a decision said so of one of its parts.

        A workload that is declared again after its deletion has a new minute, also with the same template. So it has
        where a planner drops its state, with a decision that it could not write.
        """
        place, template = (owner, workload.workload_key), workload.replica_shape.template
        known = self._over.get(place)
        if known is not None and (known[0] is not state or known[1] != template or workload.declared.deleting):
            del self._over[place]
        if any(part.missing and is_newest(part, workload.declared) for part in workload.parts.values()):
            self._over.setdefault(place, (state, template, now))

    def _wait_over_since(self, place: Place, newest: bool) -> float:
        """From when on nothing may be reserved for what is missing there: its template has waited its minute."""
        over = self._over.get((place[0], place[1])) if newest else None
        return max(over[2], self._since[place][2]) if over is not None else math.inf

    def _report_once(self, place: Place, sentence: str) -> None:
        """Once of each place."""
        if place not in self._told:
            self._told.add(place)
            owner, key, cluster = place
            self._violated(f"{owner}: {'/'.join(key)}{' in ' if cluster else ''}{cluster}: {sentence}")


def places_taken_by(state: PlannerState, workload: Workload) -> Taken:
    reserved, pods, allowed, told = 0, 0, workload.declared.replicas, []
    for name, view in state.clusters.items():
        found, facts = state.reservation_of(workload.workload_key, name), view.facts.get(workload.workload_key)
        part, here = workload.parts.get(name), counted_pods_in(facts)
        more = replicas_on_their_way(state, workload, part, facts) if part is not None else here
        reserved, pods, allowed = reserved + found.free + found.new, pods + here, allowed + more
        if found.free or found.new or here or more:
            told.append(f"{name}: {found.free + found.new} reserved, {here} counted, {more} on their way")
    return Taken(reserved, pods, allowed, "; ".join(told))


def counted_pods_in(facts: WorkloadFacts | None) -> int:
    return sum(count for _, count in facts.counted) if facts is not None else 0


def replicas_on_their_way(state: PlannerState, workload: Workload, part: Part, facts: WorkloadFacts | None) -> int:
    """What of a part moves, or surges, or was decided otherwise before and is not answered by its cluster yet."""
    said, template = workload.statuses.get(part.cluster), workload.template_of(part)
    surge = template.surge_of(part.replicas)
    shown = max(counted_pods_in(facts), facts.spec_replicas) if facts is not None else 0
    found = part.replicas_lost + part.replicas_leaving
    if is_rolling(part, facts, workload.declared.rolling_from):
        found += surge
    answered = (
        said is not None and said.version == part.version and not part.removing and state.owners.is_of_newest_turn(said)
    )
    refused = refusal_status(workload, part)
    if refused is not None:
        shown = max(shown, refused.spec_replicas)
    shows = is_carried_out(part, facts, surge) or (refused is not None and is_refusal_shown(refused, facts, template))
    most = shown if answered and shows else max(part.ceiling, shown)
    return found + max(0, most - part.replicas)


def _places_reserved_for_missing(state: PlannerState) -> Iterator[tuple[tuple[Key, str], tuple[str, bool]]]:
    """Where the cluster said that something is missing, and yet more is reserved than its object has; the
    newest template, and whether it is to run there.

    What is frozen is not decided anew. A template that was given to a cluster keeps its surge there (P4): it begins to
    roll when what is missing is there, and asks nobody for room then.
    """
    for workload in state.workloads.values():
        for part in workload.parts.values():
            said, view = workload.statuses.get(part.cluster), state.clusters.get(part.cluster)
            if said is None or view is None or not reported_missing_objects(part, said):
                continue
            if state.brakes.is_frozen(part.cluster, workload.workload_key):
                continue
            facts, found = (
                view.facts.get(workload.workload_key),
                state.reservation_of(workload.workload_key, part.cluster),
            )
            has = max(said.spec_replicas, facts.spec_replicas if facts is not None else 0)
            if is_rolling(part, facts, workload.declared.rolling_from):
                has += workload.template_of(part).surge_of(part.replicas)
            if found.free + found.new > max(0, has - counted_pods_in(facts)):
                yield (
                    (workload.workload_key, part.cluster),
                    (workload.replica_shape.template, is_newest(part, workload.declared)),
                )
