"""A fleet whose clusters do at once what they are told, and a planner that sends overflow home, second by second."""

from dataclasses import replace
from typing import Any

from planner.core.background.round import RoundMemory, steps_of_round
from planner.core.knowledge.brakes import Brakes
from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.workload import Workload
from planner.core.placement.replaying import replay_division
from planner.core.requests import decisions
from planner.settings import PlannerSettings
from spillway.addresses import Tombstone
from spillway.api import ApplyRequest, ScaleRequest
from spillway.events import STATE_ABSENT, STATE_PRESENT, CapacityNeeded, DecisionRecorded, Event, WorkloadObserved
from spillway.lending_marks import LENDING
from spillway.model import NODE_LENT, Part, Taint, WorkloadFacts

from .builders import Fleet, deployment, manifest_texts, node_row, placement_policy

Key = tuple[str, str]
WEB: Key = ("default", "web")
BIG: Key = ("default", "big")


class HomingWorld:
    """unready, unbound: clusters where what comes anew does not become ready, or finds no node. lent: by cluster, the
    cores of a node that it has lent.

    fewest: of web, the fewest that were ready at once since all were.
    """

    def __init__(self, clusters: dict[str, int], rules: PlannerRules) -> None:
        self._cores = clusters
        self.fleet = Fleet(
            **{name.replace("-", "_"): [node_row("a", cores * 1000)] for name, cores in clusters.items()}
        )
        self.fleet.state.rules = rules
        self.fleet.state.brakes = Brakes(rules)
        self.memory = RoundMemory(PlannerSettings().headroom_pace())
        self.lent: dict[str, int] = {}
        self.unready: set[str] = set()
        self.unbound: set[str] = set()
        self.ready: dict[tuple[str, Key], int] = {}
        self.bound: dict[tuple[str, Key], int] = {}
        self.decided: list[DecisionRecorded] = []
        self.needs: list[CapacityNeeded] = []
        self.fewest = 10_000
        self.sequence = 0
        self._had_lent: set[str] = set()

    # ── What is asked and happens ───────────────────────────────────────────────────────────────────────────────

    def apply_workload(self, replicas: int, name: str = "web", pod: dict[str, Any] | None = None, **spec: Any) -> None:
        request = ApplyRequest(manifest_texts(deployment(replicas, name, pod), placement_policy(**spec)))
        self.apply_events(decisions.decide_apply(self.fleet.state, request, self.fleet.next_moment()).events)

    def scale_workload(self, replicas: int, key: Key = WEB) -> None:
        self.apply_events(
            decisions.decide_scale(self.fleet.state, ScaleRequest(*key, replicas), self.fleet.next_moment()).events
        )
        self.fewest = min(self.fewest, replicas)

    def set_cores(self, cluster: str, cores: int) -> None:
        self._cores[cluster] = cores

    def set_phase(self, cluster: str, phase: str) -> None:
        joined = self.fleet.state.clusters[cluster].joined
        assert joined is not None
        self.apply_events((replace(joined, phase=phase),))

    def run_seconds(self, seconds: int) -> None:
        for _ in range(seconds):
            self.fleet.now += 1
            for cluster in self._cores:
                self._run_cluster(cluster)
            self._run_planner_round()
            ready = sum(count for (_, key), count in self.ready.items() if key == WEB)
            if self.fewest < 10_000 or ready == self.find_workload(WEB).declared.replicas:
                self.fewest = min(self.fewest, ready)

    # ── What there is ───────────────────────────────────────────────────────────────────────────────────────────

    def find_workload(self, key: Key) -> Workload:
        return self.fleet.state.workloads[key]

    def kept_by_cluster(self, key: Key = WEB) -> dict[str, int]:
        parts = self.find_workload(key).parts.values()
        return {part.cluster: part.replicas_kept for part in parts if part.replicas_kept}

    def lent_needs_by_cluster(self) -> dict[str, int]:
        """By cluster, what web needs of lent nodes."""
        said = self.fleet.state.needed.get(WEB, {}).items()
        return {name: need.replicas_lent for name, need in said if need.replicas_lent}

    def web_part_in(self, cluster: str) -> Part:
        return self.find_workload(WEB).parts[cluster]

    # ── The planner's step, and what clusters do ────────────────────────────────────────────────────────────────

    def apply_events(self, events: tuple[Event | Tombstone, ...]) -> None:
        for event in events:
            if isinstance(event, Tombstone):
                self.fleet.state.apply_tombstone(event.address.topic.name, event.address.key)
                continue
            if isinstance(event, CapacityNeeded):
                self.needs.append(event)
            if isinstance(event, DecisionRecorded):
                self.decided.append(event)
                if event.division:
                    assert replay_division(event).differences == (), "a recorded division comes out again"
            self.fleet.state.apply_event(event, self.fleet.now)

    def _run_planner_round(self) -> None:
        for step in steps_of_round(self.fleet.state, self.memory, self.fleet.decision_clock()):
            self.apply_events(tuple(step.events))

    def _run_cluster(self, cluster: str) -> None:
        """Objects become what is placed, their pods bind and get ready, and one record of this instant says so."""
        shown, gone, used = [], [], 0
        for key, workload in self.fleet.state.workloads.items():
            part = workload.parts.get(cluster)
            if part is None:
                continue
            place = (cluster, key)
            self.bound[place] = min(
                part.replicas, self.bound.get(place, 0) if cluster in self.unbound else part.replicas
            )
            ready = self.ready.get(place, 0) if cluster in self.unready else self.bound[place]
            self.ready[place] = min(self.bound[place], ready)
            used += self.bound[place] * dict(workload.replica_shape.requests)["cpu"]
            self._report_status(key, part, self.ready[place])
            if part.removing:
                gone.append(key)
            else:
                shown.append(_workload_facts(key, part, self.bound[place], self.ready[place]))
        rows = [node_row("a", self._cores[cluster] * 1000, used=used)]
        lent = self.lent.get(cluster, 0) * 1000
        if lent:
            rows.append(node_row("lent", lent, state=NODE_LENT, taints=(Taint(LENDING, "lent", "NoSchedule"),)))
        removed = () if lent or cluster not in self._had_lent else ("lent",)
        self._had_lent = self._had_lent - {cluster} | ({cluster} if lent else set())
        self.fleet.report_change(cluster, rows, shown=shown, facts_removed=gone, removed=removed)

    def _report_status(self, key: Key, part: Part, ready: int) -> None:
        self.sequence += 1
        state = STATE_ABSENT if part.removing else STATE_PRESENT
        numbers = (part.replicas, part.replicas, part.replicas, ready, ready)
        self.apply_events((WorkloadObserved(*key, part.cluster, 1, self.sequence, part.version, state, "", *numbers),))


def _workload_facts(key: Key, part: Part, bound: int, ready: int) -> WorkloadFacts:
    counted = (("h", bound),) if bound else ()
    return WorkloadFacts(*key, part.version, "u", part.replicas, True, part.replicas, part.replicas, ready, counted)
