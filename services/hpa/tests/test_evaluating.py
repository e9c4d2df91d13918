"""Asked when something changed or was due, it decides as when asked at every instant; also after restarts."""

from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hpa.core.kubernetes.deciding import ScaleTargetSize
from hpa.core.kubernetes.evaluating import (
    CONTROLLER,
    EVENT,
    NOTHING_DECIDED,
    SYNC_PERIOD_MS,
    ObservedMetrics,
    ScalingState,
    evaluate_autoscaler,
)
from hpa.core.kubernetes.pods import CountedPod, PodKey, PodsSeen, Sample
from hpa.core.kubernetes.policy import (
    AVERAGE_VALUE,
    BY_PERCENT,
    BY_PODS,
    EXTERNAL,
    RESOURCE,
    Autoscaler,
    Behavior,
    ControllerSettings,
    Metric,
    ScalingPolicy,
    ScalingRules,
    TargetValue,
)
from hpa.core.kubernetes.proposals import PodReading, Reading, SeriesReading, UnavailableMetric

QUEUE = Metric(EXTERNAL, "lag", TargetValue(AVERAGE_VALUE, 10_000))
CPU = Metric(RESOURCE, "cpu", TargetValue(AVERAGE_VALUE, 100))
INSTANTS = 90
NO_PODS = PodsSeen({})
RULES = st.builds(
    ScalingRules,
    policies=st.lists(
        st.builds(ScalingPolicy, st.sampled_from([BY_PODS, BY_PERCENT]), st.integers(1, 150), st.integers(1, 25)),
        min_size=1,
        max_size=3,
    ).map(tuple),
    select=st.sampled_from(["max", "min", "disabled"]),
    stabilization_ms=st.integers(0, 30),
    tolerance=st.sampled_from([None, 0.0, 0.2]),
)
POLICIES = st.builds(
    Autoscaler,
    max_replicas=st.integers(8, 40),
    metrics=st.just((QUEUE,)),
    min_replicas=st.integers(0, 3),
    behavior=st.none() | st.builds(Behavior, RULES, RULES),
)
LAGS = st.one_of(st.none(), st.integers(0, 500_000))
TRACES = st.dictionaries(st.integers(1, INSTANTS - 1), LAGS, max_size=12)
SETTINGS = ControllerSettings(downscale_stabilization_ms=20, cpu_initialization_ms=30, initial_readiness_delay_ms=5)


@dataclass
class Run:
    """A workload that follows every decision at once, asked at some instants; scaled: (instant, replicas)."""

    policy: Autoscaler
    replicas: int
    state: ScalingState = NOTHING_DECIDED
    due_ms: int | None = 0
    restarts: bool = False

    def evaluate_reading(
        self, now_ms: int, reading: Reading, seen: PodsSeen = NO_PODS, mode: str = EVENT
    ) -> int | None:
        if self.restarts:
            self.state = msgspec.json.decode(msgspec.json.encode(self.state), type=ScalingState)
        observed = ObservedMetrics(ScaleTargetSize(self.replicas, self.replicas), seen, (reading,))
        found = evaluate_autoscaler(self.policy, observed, self.state, SETTINGS, now_ms, mode)
        self.state, self.due_ms = found.state, found.due_ms
        self.replicas = self.replicas if found.decision.replicas is None else found.decision.replicas
        return found.decision.replicas


def reading_of_lag(lag: int | None) -> Reading:
    return UnavailableMetric("no answer") if lag is None else SeriesReading((lag,))


def decisions_for_trace(run: Run, trace: dict[int, int | None], *, always: bool) -> list[tuple[int, int]]:
    """What was scaled to, and when: asked at every instant, or when the lag changed or it was due."""
    found, lag = [], None
    for now_ms in range(INSTANTS):
        changed = now_ms in trace or now_ms == 0
        lag = trace.get(now_ms, lag)
        if always or changed or (run.due_ms is not None and run.due_ms <= now_ms):
            replicas = run.evaluate_reading(now_ms, reading_of_lag(lag))
            if replicas is not None:
                found.append((now_ms, replicas))
    return found


@given(policy=POLICIES, replicas=st.integers(0, 20), trace=TRACES)
@example(  # A window lets go of the old number while a rate still holds.
    policy=Autoscaler(40, (QUEUE,), behavior=Behavior(down=ScalingRules((ScalingPolicy(BY_PODS, 1, 9),), "max", 13))),
    replicas=10,
    trace={3: 400_000, 4: 20_000},
)
def test_due_instants_are_all_at_which_time_alone_decides(
    policy: Autoscaler, replicas: int, trace: dict[int, int | None]
) -> None:
    always = decisions_for_trace(Run(policy, replicas), trace, always=True)
    assert decisions_for_trace(Run(policy, replicas), trace, always=False) == always


@given(policy=POLICIES, replicas=st.integers(0, 20), trace=TRACES)
def test_a_restart_at_any_record_changes_no_later_decision(
    policy: Autoscaler, replicas: int, trace: dict[int, int | None]
) -> None:
    """The state is written and read back before every single decision."""
    without = decisions_for_trace(Run(policy, replicas), trace, always=False)
    assert decisions_for_trace(Run(policy, replicas, restarts=True), trace, always=False) == without


@given(
    started=st.lists(st.integers(-40, 80), min_size=1, max_size=6),
    use=st.integers(0, 300),
    ready=st.lists(st.sampled_from(["true", "false", None]), min_size=6, max_size=6),
)
def test_a_pod_that_leaves_its_initialization_is_due(started: list[int], use: int, ready: list[str | None]) -> None:
    """The groups of pods change by time alone only at instants that were said to be due."""
    policy = Autoscaler(40, (CPU,), behavior=Behavior(ScalingRules((ScalingPolicy(BY_PODS, 9, 1),)), ScalingRules(())))
    pods = {
        PodKey("one", "shop", f"web-{n}"): CountedPod(started_ms=at, ready=ready[n], ready_changed_ms=at + 3)
        for n, at in enumerate(started)
    }
    reading, seen = PodReading({key: Sample(use, 10, 2) for key in pods}), PodsSeen(pods)
    eager, patient = Run(policy, len(pods)), Run(policy, len(pods))
    for now_ms in range(INSTANTS):
        decided = eager.evaluate_reading(now_ms, reading, seen)
        if patient.due_ms is not None and patient.due_ms <= now_ms:
            assert patient.evaluate_reading(now_ms, reading, seen) == decided
        else:
            assert decided is None


@given(lags=st.lists(LAGS, min_size=1, max_size=40), policy=POLICIES)
def test_in_controller_mode_nothing_counts_between_its_instants(lags: list[int | None], policy: Autoscaler) -> None:
    """The steps hold the numbers of the instants that were asked, and no other instant's."""
    run = Run(policy, 5)
    for turn, lag in enumerate(lags):
        now_ms = turn * SYNC_PERIOD_MS
        run.evaluate_reading(now_ms, reading_of_lag(lag), mode=CONTROLLER)
        assert run.due_ms == now_ms + SYNC_PERIOD_MS
        assert all(step.to_ms % SYNC_PERIOD_MS == 0 for step in run.state.history.steps or ())


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        pytest.param(CONTROLLER, [4, 8, 16], id="controller: twice the size each time it is asked"),
        pytest.param(EVENT, [4, None, None], id="event: twice the size that was 15 s ago, however often it is asked"),
    ],
)
def test_the_cap_without_behaviour_is_for_each_sync_period(mode: str, expected: list[int | None]) -> None:
    run = Run(Autoscaler(40, (QUEUE,)), 1)
    assert [run.evaluate_reading(now_ms, SeriesReading((10**6,)), mode=mode) for now_ms in (0, 1, 2)] == expected
    if mode == EVENT:
        assert run.due_ms == SYNC_PERIOD_MS
        assert run.evaluate_reading(SYNC_PERIOD_MS, SeriesReading((10**6,))) == 8


@pytest.mark.parametrize("behavior", [None, Behavior(ScalingRules((ScalingPolicy(BY_PODS, 4, 5),)), ScalingRules(()))])
def test_while_nothing_changes_nothing_is_due_after_few_steps(behavior: Behavior | None) -> None:
    """The size that the load asks for is reached; from then on time alone changes nothing."""
    run = Run(Autoscaler(10, (QUEUE,), 1, behavior), 1)
    asked: list[int | None] = []
    while run.due_ms is not None and len(asked) < 20:
        asked.append(run.evaluate_reading(run.due_ms, reading_of_lag(30_000)))
    assert (run.replicas, run.due_ms, asked[-1]) == (3, None, None)
    assert len(asked) <= 3
