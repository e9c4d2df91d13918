"""Runs `make modes`: plays traces and decisions in both modes, and shows where event mode differs from Kubernetes."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from msgspec.structs import replace

from hpa.core.kubernetes.deciding import ScaleTargetSize
from hpa.core.kubernetes.evaluating import (
    CONTROLLER,
    EVENT,
    NOTHING_DECIDED,
    Evaluation,
    ObservedMetrics,
    ScalingState,
    evaluate_autoscaler,
)
from hpa.core.kubernetes.pods import PodsSeen
from hpa.core.kubernetes.policy import (
    AVERAGE_VALUE,
    EXTERNAL,
    Autoscaler,
    Behavior,
    ControllerSettings,
    Metric,
    TargetValue,
)
from hpa.core.kubernetes.proposals import SeriesReading

from .scaling import FOLDER, Json, legacy_settings_of, read_cases, scaling_rules_of
from .scaling_decisions import decision_and_writes

ONE_EACH = Metric(EXTERNAL, "wanted", TargetValue(AVERAGE_VALUE, 1000))
"""A metric with a target of 1 for each replica, so that its value is the number of replicas."""
NO_PODS = PodsSeen({})


@dataclass
class Trace:
    """A workload whose size follows each decision.

    It is evaluated at the instants of the trace. In event mode it is also evaluated when a decision is due.
    """

    policy: Autoscaler
    settings: ControllerSettings
    mode: str
    replicas: int
    state: ScalingState = NOTHING_DECIDED
    due_ms: int | None = None
    wanted: int | None = None

    def evaluate_at(self, now_ms: int) -> Evaluation:
        assert self.wanted is not None
        observed = ObservedMetrics(
            ScaleTargetSize(self.replicas, self.replicas), NO_PODS, (SeriesReading((self.wanted * 1000,)),)
        )
        found = evaluate_autoscaler(self.policy, observed, self.state, self.settings, now_ms, self.mode)
        self.state, self.due_ms = found.state, found.due_ms
        self.replicas = self.replicas if found.decision.replicas is None else found.decision.replicas
        return found

    def take_step(self, now_ms: int, wanted: int) -> int:
        while self.mode == EVENT and self.wanted is not None and self.due_ms is not None and self.due_ms < now_ms:
            self.evaluate_at(self.due_ms)
        self.wanted = wanted
        self.evaluate_at(now_ms)
        return self.replicas


def sizes_of_trace(given: Json, mode: str) -> list[int]:
    """Returns the size after each step of a trace."""
    behavior = (
        None
        if given["legacy"]
        else Behavior(scaling_rules_of(given["scale_up"]), scaling_rules_of(given["scale_down"]))
    )
    policy = Autoscaler(given["max_replicas"], (ONE_EACH,), given["min_replicas"], behavior)
    settings = replace(legacy_settings_of(given), tolerance=0.0, configurable_tolerance=False)
    trace = Trace(policy, settings, mode, given["initial_replicas"])
    return [trace.take_step(step["at_s"] * 1000, step["desired_replicas"]) for step in given["steps"]]


@dataclass(frozen=True)
class Deviation:
    """The differences between the modes. sequences: for each trace, (controller size, event size) of each step."""

    sequences: Sequence[Sequence[tuple[int, int]]]

    def table_row(self, kind: str) -> str:
        pairs = [pair for sequence in self.sequences for pair in sequence]
        same = sum(1 for controller, event in pairs if controller == event)
        replicas = sum(controller for controller, _ in pairs)
        more = sum(max(event - controller, 0) for controller, event in pairs)
        fewer = sum(max(controller - event, 0) for controller, event in pairs)
        longest = max((length for sequence in self.sequences for length in lengths_of_differences(sequence)), default=0)
        differing = sum(1 for sequence in self.sequences if any(lengths_of_differences(sequence)))
        cells = (
            kind,
            f"{len(self.sequences):,} ({differing:,})",
            f"{len(pairs):,}",
            f"{same:,} ({100 * same / len(pairs):.1f} %)",
            f"{replicas:,}",
            f"{more:,}",
            f"{fewer:,}",
            f"{longest}",
        )
        return "| " + " | ".join(cells) + " |"


def lengths_of_differences(sequence: Sequence[tuple[int, int]]) -> list[int]:
    """Returns the number of steps of each difference."""
    return [len(list(pairs)) for differs, pairs in groupby(sequence, key=lambda pair: pair[0] != pair[1]) if differs]


def deviation_on_traces(traces: Sequence[Json]) -> Deviation:
    return Deviation(
        [list(zip(sizes_of_trace(given, CONTROLLER), sizes_of_trace(given, EVENT), strict=True)) for given in traces]
    )


def deviation_on_decisions(entries: Sequence[Json]) -> Deviation:
    """Returns the differences of single decisions, each as a sequence of one pair."""
    return Deviation([[(_decided_size(given, CONTROLLER), _decided_size(given, EVENT))] for given in entries])


def _decided_size(given: Json, mode: str) -> int:
    decision, _ = decision_and_writes(given, mode)
    return decision.current if decision.replicas is None else decision.replicas


def table_rows() -> Iterator[str]:
    """Yields the rows of the table in docs/scaling.md."""
    traces = [case["input"] for case in read_cases("hpa_normalization_traces.json.gz")]
    names = ("hpa_controller.json", "hpa_controller_fuzz.json.gz")
    yield "| on | of them (differing) | sizes | the same | replicas | more | fewer | longest |"
    yield "|---|---|---|---|---|---|---|---|"
    yield deviation_on_decisions([case["input"] for name in names for case in read_cases(name)]).table_row(
        "whole decisions"
    )
    yield deviation_on_traces([given for given in traces if given["legacy"]]).table_row("traces without `behavior`")
    yield deviation_on_traces([given for given in traces if not given["legacy"]]).table_row("traces with `behavior`")
    yield deviation_on_traces(traces).table_row("all traces")


if __name__ == "__main__":
    if FOLDER is None:
        sys.exit("no ../shared/vectors/hpa beside the repository")
    print("\n".join(table_rows()))
