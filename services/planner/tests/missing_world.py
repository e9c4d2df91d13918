"""Clusters that lack what a template names, as their propagators see it; and a planner, second by second.

web names the Secret `key`; shop, a neighbour, names nothing. An object is made, or gets replicas again, only where the
Secret is; what has pods keeps them, whatever becomes of it.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from planner.core.background.round import RoundMemory, steps_of_round
from planner.core.knowledge.brakes import Brakes
from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.workload import Workload
from planner.core.placement.replaying import replay_division
from planner.core.requests import decisions
from planner.settings import PlannerSettings
from spillway.addresses import Tombstone
from spillway.api import ApplyRequest, ScaleRequest
from spillway.events import (
    STATE_ABSENT,
    STATE_DEPENDENCY_MISSING,
    STATE_PRESENT,
    DecisionRecorded,
    ShapeAdmitted,
    WorkloadObserved,
)
from spillway.model import NO_GENERATION, Generation, ObjectReference, Part, WorkloadFacts

from .builders import Fleet, deployment, manifest_texts, node_row, placement_policy, pod_template

Key = tuple[str, str]
WEB: Key = ("default", "web")
SHOP: Key = ("default", "shop")
KEY = ObjectReference("Secret", "default", "key")
WITH_KEY = pod_template(volumes=[{"name": "key", "secret": {"secretName": "key"}}])
TICK = 5
UNBOUND = PlannerRules(moves_per_minute=1e12, home_moves_per_minute=1e12, confirm_over_replicas=2**31)
"""As many moves at once as there are, without confirmations."""


@dataclass
class Object:
    version: Generation
    replicas: int = 0
    bound: int = 0

    def scale_object(self, version: Generation, replicas: int) -> None:
        self.version, self.replicas, self.bound = version, replicas, min(self.bound, replicas)


@dataclass
class Member:
    """has: whether the Secret is there. said: what was said of each workload last, but for the numbering."""

    cores: int
    has: bool = False
    silent: bool = False
    objects: dict[Key, Object] = field(default_factory=dict)
    said: dict[Key, WorkloadObserved] = field(default_factory=dict)


class MissingWorld:
    def __init__(self, **cores: int) -> None:
        self.members = {name.replace("_", "-"): Member(count) for name, count in cores.items()}
        self.fleet = Fleet(**{name: [node_row("a", count * 1000)] for name, count in cores.items()})
        self.sequence = 0
        self.causes: list[str] = []
        self.fleet.state.rules, self.fleet.state.brakes = UNBOUND, Brakes(UNBOUND)
        self.memory = RoundMemory(PlannerSettings().headroom_pace())

    # ── What is asked and happens ───────────────────────────────────────────────────────────────────────────────

    def apply_workload(self, key: Key, replicas: int, pod: dict[str, Any] | None = None, **spec: Any) -> None:
        request = ApplyRequest(
            manifest_texts(deployment(replicas, key[1], pod), *([placement_policy(**spec)] if spec else []))
        )
        self.apply_events(decisions.decide_apply(self.fleet.state, request, self.fleet.next_moment()).events)

    def scale_workload(self, key: Key, replicas: int) -> None:
        self.apply_events(
            decisions.decide_scale(self.fleet.state, ScaleRequest(*key, replicas), self.fleet.next_moment()).events
        )

    def set_phase(self, cluster: str, phase: str) -> None:
        joined = self.fleet.state.clusters[cluster].joined
        assert joined is not None
        self.apply_events((replace(joined, phase=phase),))

    def certain_room_by_cluster(self, key: Key = SHOP) -> dict[str, int]:
        """How many more of a workload each cluster certainly takes, as it is told to anybody who asks."""
        shape, now = self.find_workload(key).replica_shape, self.fleet.now
        return {name: self.fleet.state.room_in_cluster(name, shape, False, now, key).certain for name in self.members}

    def run_seconds(self, seconds: int) -> None:
        """Clusters work and are heard, and the planner looks, every TICK seconds."""
        for _ in range(0, seconds, TICK):
            self.fleet.now += TICK
            for name in self.members:
                self.run_cluster(name)
            self.run_planner_round()

    def start_another_planner(self) -> None:
        """It knows what stands in the log, and nothing of timers and holds."""
        before, fleet = self.fleet.state, self.fleet
        self.memory = RoundMemory(PlannerSettings().headroom_pace())
        fleet.state = PlannerState(before.rules)
        fleet.epoch += 1
        for name, view in before.clusters.items():
            assert view.joined is not None
            fleet.state.apply_event(view.joined, fleet.now)
            fleet.sequences.pop(name)
            fleet.report_full_block(name, self.node_rows(name), self.workload_facts(name))
            fleet.send_heartbeats(name)
        for record in before.admitted.all_records():
            fleet.state.apply_event(record, fleet.now)
        for workload in before.workloads.values():
            fleet.state.apply_event(workload.declared, fleet.now)
            if workload.placement is not None:
                fleet.state.apply_event(workload.placement, fleet.now)
            for said in workload.statuses.values():
                fleet.state.apply_event(said, fleet.now)

    # ── What there is ───────────────────────────────────────────────────────────────────────────────────────────

    def find_workload(self, key: Key = WEB) -> Workload:
        return self.fleet.state.workloads[key]

    def kept_by_cluster(self, key: Key = WEB) -> dict[str, int]:
        parts = self.find_workload(key).parts.values()
        return {part.cluster: part.replicas_kept for part in parts if part.replicas_kept}

    def reserved_and_counted(self, key: Key = WEB) -> int:
        """What is reserved for a workload in all clusters, and what is counted of it."""
        state, found = self.fleet.state, 0
        for name in self.members:
            reservation = state.reservation_of(key, name)
            facts = state.clusters[name].facts.get(key)
            found += reservation.free + reservation.new
            found += sum(count for _, count in facts.counted) if facts is not None else 0
        return found

    def replicas_on_their_way(self, key: Key = WEB) -> int:
        """What of a workload moves, or was decided otherwise before and is not answered by its cluster yet."""
        found = 0
        for name, part in self.find_workload(key).parts.items():
            found += part.replicas_lost + part.replicas_leaving
            facts, said = self.fleet.state.clusters[name].facts.get(key), self.find_workload(key).statuses.get(name)
            shown = facts.spec_replicas if facts is not None else 0
            counted = sum(count for _, count in facts.counted) if facts is not None else 0
            answered = said is not None and said.version == part.version and not part.removing
            if not answered or (facts is not None and facts.version != part.version):
                found += max(0, max(part.ceiling, shown, counted) - part.replicas)
        return found

    # ── The planner's step, and what clusters do ────────────────────────────────────────────────────────────────

    def apply_events(self, events: Any) -> None:
        for event in events:
            if isinstance(event, Tombstone):
                self.fleet.state.apply_tombstone(event.address.topic.name, event.address.key)
                continue
            if isinstance(event, DecisionRecorded):
                self.causes.append(event.cause)
                assert not event.division or replay_division(event).is_same, "a recorded division comes out again"
            self.fleet.state.apply_event(event, self.fleet.now)

    def run_planner_round(self) -> None:
        for step in steps_of_round(self.fleet.state, self.memory, self.fleet.decision_clock()):
            self.apply_events(step.events)

    def run_cluster(self, name: str) -> None:
        """Objects become what is placed as far as the Secret is there, their pods bind, and all of it is said."""
        member = self.members[name]
        if member.silent:
            return
        for key, workload in self.fleet.state.workloads.items():
            part = workload.parts.get(name)
            if part is not None:
                self._carry_out_part(name, key, part)
        for known in member.objects.values():
            free = member.cores - sum(one.bound for one in member.objects.values())
            known.bound += min(known.replicas - known.bound, max(0, free))
        self.report_change(name)

    def report_change(self, name: str) -> None:
        gone = [key for key in (WEB, SHOP) if key not in self.members[name].objects]
        self.fleet.report_change(name, self.node_rows(name), shown=self.workload_facts(name), facts_removed=gone)

    def node_rows(self, name: str) -> list[Any]:
        member = self.members[name]
        return [node_row("a", member.cores * 1000, used=1000 * sum(one.bound for one in member.objects.values()))]

    def workload_facts(self, name: str) -> list[WorkloadFacts]:
        return [
            WorkloadFacts(
                *key,
                known.version,
                "u",
                known.replicas,
                True,
                known.replicas,
                known.replicas,
                known.bound,
                (("h", known.bound),) if known.bound else (),
            )
            for key, known in self.members[name].objects.items()
        ]

    def report_admitted_shape(self, name: str) -> None:
        """The cluster says what it makes of web's template, and what of it is missing."""
        self.sequence += 1
        missing = () if self.members[name].has else (KEY,)
        digest = self.find_workload().replica_shape.template
        self.fleet.state.apply_event(
            ShapeAdmitted(digest, name, 3, self.sequence, "default", "Admitted", "", None, missing), self.fleet.now
        )

    def _carry_out_part(self, name: str, key: Key, part: Part) -> None:
        member = self.members[name]
        known = member.objects.get(key)
        if part.removing:
            member.objects.pop(key, None)
            self.report_status(name, key, part.version, STATE_ABSENT)
            return
        has_pods = known is not None and known.replicas > 0
        wanted = key == WEB and not has_pods and (part.replicas > 0 or bool(part.missing))
        if wanted and not member.has:
            shown = known.replicas if known is not None else 0
            self.report_status(name, key, part.version, STATE_DEPENDENCY_MISSING, shown, (KEY,))
            return
        known = member.objects.setdefault(key, Object(NO_GENERATION))
        known.scale_object(part.version, part.replicas)
        self.report_status(name, key, part.version, STATE_PRESENT, known.replicas)

    def report_status(
        self,
        name: str,
        key: Key,
        version: Generation,
        state: str,
        replicas: int = 0,
        missing: tuple[ObjectReference, ...] = (),
    ) -> None:
        said = self.find_workload(key).statuses.get(name)
        if said is not None and (said.version, said.state, said.spec_replicas) == (version, state, replicas):
            return
        self.sequence += 1
        counts, known = (replicas,) * 5, self.members[name].objects.get(key)
        found = known.version if known is not None and known.version != version else None
        word = WorkloadObserved(*key, name, 3, self.sequence, version, state, "", *counts, missing=missing)
        self.apply_events((replace(word, found_version=found),))
