"""The same traces in both modes: what event mode does otherwise than Kubernetes' controller."""

from dataclasses import dataclass

from msgspec.structs import replace
from scaling import Json, legacy_settings, rules_of

from hpa.core.deciding import Scale
from hpa.core.evaluating import CONTROLLER, EVENT, NOTHING_DECIDED, Evaluation, Observed, ScalingState, evaluate
from hpa.core.pods import PodsSeen
from hpa.core.policy import AVERAGE_VALUE, EXTERNAL, Autoscaler, Behavior, Metric, Settings, Target
from hpa.core.proposals import SeriesReading

ONE_EACH = Metric(EXTERNAL, "wanted", Target(AVERAGE_VALUE, 1000))
"""A metric whose value asks for as many replicas."""
NO_PODS = PodsSeen({})


@dataclass
class Trace:
    """A workload that follows each decision; asked at the instants of a trace, in event mode when it is due too."""

    policy: Autoscaler
    settings: Settings
    mode: str
    replicas: int
    state: ScalingState = NOTHING_DECIDED
    due_ms: int | None = None
    wanted: int | None = None

    def ask(self, now_ms: int) -> Evaluation:
        assert self.wanted is not None
        observed = Observed(Scale(self.replicas, self.replicas), NO_PODS, (SeriesReading((self.wanted * 1000,)),))
        found = evaluate(self.policy, observed, self.state, self.settings, now_ms, self.mode)
        self.state, self.due_ms = found.state, found.due_ms
        self.replicas = self.replicas if found.decision.replicas is None else found.decision.replicas
        return found

    def step(self, now_ms: int, wanted: int) -> int:
        while self.mode == EVENT and self.wanted is not None and self.due_ms is not None and self.due_ms < now_ms:
            self.ask(self.due_ms)
        self.wanted = wanted
        self.ask(now_ms)
        return self.replicas


def sizes(given: Json, mode: str) -> list[int]:
    """The size after each step of a trace."""
    behavior = None if given["legacy"] else Behavior(rules_of(given["scale_up"]), rules_of(given["scale_down"]))
    policy = Autoscaler(given["max_replicas"], (ONE_EACH,), given["min_replicas"], behavior)
    settings = replace(legacy_settings(given), tolerance=0.0, configurable_tolerance=False)
    trace = Trace(policy, settings, mode, given["initial_replicas"])
    return [trace.step(step["at_s"] * 1000, step["desired_replicas"]) for step in given["steps"]]


@dataclass(frozen=True)
class Deviation:
    """Over all steps of all traces: how many sizes are the same, and by how many replicas the others differ."""

    steps: int
    same: int
    replicas: int
    difference: int

    def sentence(self) -> str:
        return (
            f"{self.same:,} of {self.steps:,} sizes are the same ({100 * self.same / self.steps:.1f} %), "
            f"and all differences together are {100 * self.difference / self.replicas:.1f} % of all replicas"
        )


def deviation(traces: list[Json]) -> Deviation:
    pairs = [pair for given in traces for pair in zip(sizes(given, CONTROLLER), sizes(given, EVENT), strict=True)]
    return Deviation(
        steps=len(pairs),
        same=sum(1 for controller, event in pairs if controller == event),
        replicas=sum(controller for controller, _ in pairs),
        difference=sum(abs(controller - event) for controller, event in pairs),
    )
