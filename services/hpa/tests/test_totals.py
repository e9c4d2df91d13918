"""Totals that are kept as things change are those worked out from all pods."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpa.core.pods import Container, ContainerNotFound, MissingRequest, Pod, PodKey, PodsSeen, Readiness, Sample
from hpa.core.totals import KeptTotals, MetricRule, NoPods, NoUsableMetrics, Totals, totals_of

READINESS = Readiness(cpu_initialization_ms=20, initial_delay_ms=5)
KEYS = st.builds(PodKey, st.sampled_from(["one", "two"]), st.just("shop"), st.sampled_from(["a", "b", "c", "d"]))
PODS = st.builds(
    Pod,
    phase=st.sampled_from(["Running", "Running", "Running", "Pending", "Failed"]),
    deleting=st.sampled_from([False, False, True]),
    started_ms=st.none() | st.integers(-30, 60),
    ready=st.sampled_from(["true", "true", "false", "unknown", None]),
    ready_changed_ms=st.none() | st.integers(-30, 60),
    containers=st.lists(
        st.builds(
            Container, st.sampled_from(["app", "log"]), st.sampled_from([{"cpu": 100}, {"cpu": 50, "memory": 7}, {}])
        ),
        min_size=1,
        max_size=2,
    ).map(tuple),
)
SAMPLES = st.builds(Sample, st.integers(0, 300), st.integers(0, 60), st.integers(0, 20))
CHANGES = st.one_of(
    st.tuples(st.just("pod"), KEYS, st.none() | PODS),
    st.tuples(st.just("sample"), KEYS, st.none() | SAMPLES),
    st.tuples(st.just("sample"), KEYS, SAMPLES),
    st.tuples(st.just("lost"), st.just(None), st.frozensets(st.sampled_from(["one", "two"]))),
    st.tuples(st.just("time"), st.just(None), st.integers(1, 15)),
)
RULES = st.sampled_from(
    [
        MetricRule("cpu", "", 60),
        MetricRule("cpu", "app", 150),
        MetricRule("cpu"),
        MetricRule("memory", "", 80),
        MetricRule(),
    ]
)


def outcome(read: object) -> object:
    """What was read, or which error."""
    try:
        found = read()  # type: ignore[operator]
    except (NoPods, NoUsableMetrics, MissingRequest, ContainerNotFound) as error:
        return type(error)
    return replace(found) if isinstance(found, Totals) else found


@given(rule=RULES, changes=st.lists(CHANGES, max_size=40))
def test_kept_totals_are_those_over_all_pods(rule: MetricRule, changes: list[tuple[str, PodKey, object]]) -> None:
    kept, now_ms = KeptTotals(rule, READINESS, 0), 0
    pods: dict[PodKey, Pod] = {}
    samples: dict[PodKey, Sample] = {}
    lost: frozenset[str] = frozenset()
    for what, key, value in changes:
        if what == "time":
            assert isinstance(value, int)
            now_ms += value
        elif what == "lost":
            assert isinstance(value, frozenset)
            lost = value
            kept.lose(lost)
        elif what == "pod":
            assert value is None or isinstance(value, Pod)
            kept.put_pod(key, value)
            pods = {**pods, key: value} if value else {one: pod for one, pod in pods.items() if one != key}
        else:
            assert value is None or isinstance(value, Sample)
            kept.put_sample(key, value)
            samples = {one: sample for one, sample in samples.items() if one != key} | ({key: value} if value else {})
        seen, at = PodsSeen(pods, lost), now_ms
        assert outcome(lambda: kept.read(at)) == outcome(lambda: totals_of(seen, samples, rule, READINESS, at))  # noqa: B023


def test_what_is_missing_is_assumed_by_the_larger_of_its_requests_and_the_target() -> None:
    pods = {PodKey("one", "shop", "a"): Pod(containers=(Container("app", {"memory": 100}),))}
    stray = {PodKey("one", "shop", "gone"): Sample(5)}
    found = totals_of(PodsSeen(pods), stray, MetricRule("memory", "", 150), READINESS, 0)
    assert (found.missing, found.missing_requested_milli, found.missing_assumed_milli) == (1, 100, 150)
    assert (found.samples, found.used_milli, found.matched) == (1, 5, 0)


def test_without_a_pod_or_a_usable_sample_there_is_nothing_to_read() -> None:
    kept = KeptTotals(MetricRule(), READINESS, 0)
    with pytest.raises(NoPods):
        kept.read(0)
    kept.put_pod(PodKey("one", "shop", "a"), Pod())
    with pytest.raises(NoUsableMetrics):
        kept.read(0)
