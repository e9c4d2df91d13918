"""Whatever is reported of a workload, and whatever its policy is called, its state fits a record of the log."""

import json
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpa.core import stored
from hpa.core.heard import inputs
from hpa.core.heard.inputs import SOURCE_MAX, TEXTS_MAX, TROUBLE_MAX, MetricSeries, texts_bytes_of_loads
from hpa.core.kubernetes.deciding import MESSAGE_MAX
from hpa.core.manifests.attached import read_attached
from hpa.core.manifests.manifests import NAME_MAX
from hpa.core.requests.answers import explain_workload
from hpa.core.rules import HpaRules
from hpa.core.stored import (
    STATE_BYTES_MAX,
    STATE_TOO_LARGE,
    StoredState,
    fit_stored_state,
    read_stored_state,
    stored_state_bytes,
)
from spillway.addresses import LOAD
from spillway.api import RequestError
from spillway.dead_letters import RECORD_BYTES_MAX, outgoing_record
from spillway.events_scaling import BacklogObserved, LoadObserved, PartitionBacklog, ScaleStateChanged
from spillway.texts import cut_text_to_bytes

from .world import (
    KAFKA,
    KEY,
    World,
    backlog_observed,
    condition_of_policy,
    external_metric,
    hpa_manifest,
    load_observed,
    ms_after_start,
    scale_policy_manifest,
    scaled_object_manifest,
    workload_declared,
    world_under_policy,
)

OF_PODS = {
    "type": "Pods",
    "pods": {"metric": {"name": "busy"}, "target": {"type": "AverageValue", "averageValue": "1"}},
}
OF_QUEUES = scaled_object_manifest(
    [KAFKA, {**KAFKA, "metadata": {**KAFKA["metadata"], "topic": ""}}],
)
DRAINED = scale_policy_manifest(
    drain={"within": "5m", "recordsPerSecond": 1, "kafka": {**KAFKA["metadata"], "topic": ""}}
)
ASTRAL = "".join(map(chr, range(0x1F300, 0x1F300 + 2_000)))
"""Each four bytes of UTF-8, and no two alike."""


def hear_reports(made: World, *reports: LoadObserved | BacklogObserved) -> None:
    """All of them in one step."""
    for report in reports:
        made.state.decide_on_record(made._append_record(report), made.now_ms)
    made._write_events([])


def written_states(made: World) -> list[ScaleStateChanged]:
    return [one.event for one in made.log if isinstance(one.event, ScaleStateChanged)]


def random_astral_text(random: Random, length: int) -> str:
    return "".join(random.choices(ASTRAL, k=length))


def test_a_source_of_a_million_characters_is_kept_to_253_bytes() -> None:
    made, random = world_under_policy(hpa_manifest([external_metric("q", "5")])), Random(1)
    sources = ["".join(random.choices("abcdefghijklmnopqrstuvwxyzABCDEF0123456789", k=1_000_000)) for _ in range(3)]
    hear_reports(
        made,
        *(
            replace(load_observed("q", 5, ms_after_start(0), f"s{number}"), source=source)
            for number, source in enumerate(sources)
        ),
    )
    hear_reports(made, replace(backlog_observed([1], ms_after_start(0)), source=sources[0]))
    kept = made.state.inputs[KEY].loads
    assert [one.source for one in kept.values()] == [source[:SOURCE_MAX] for source in sources]
    assert len(outgoing_record(written_states(made)[-1]).value or b"") < 10_000
    of_queues = world_under_policy(OF_QUEUES)
    hear_reports(of_queues, replace(backlog_observed([1], ms_after_start(0)), source=sources[0]))
    assert of_queues.state.inputs[KEY].backlogs["g", "orders"].source == sources[0][:SOURCE_MAX]


def test_sources_and_troubles_of_many_series_count_with_their_names() -> None:
    """Each report is one that the API took: 253 and 200 characters, of four bytes each."""
    made, random = world_under_policy(hpa_manifest([external_metric("q", "5")])), Random(2)
    for trouble in ("", "x"):
        for number in range(0, 2_000, 10):
            report = replace(
                load_observed("q", 5, ms_after_start(0 if not trouble else 1), str(number)),
                source=random_astral_text(random, 253),
            )
            for series in range(number, number + 10):
                said = replace(report, series=str(series), trouble=trouble and random_astral_text(random, 200))
                made.state.inputs[KEY].apply_load(said, series, made.rules)
    hear_reports(made, load_observed("q", 5, ms_after_start(2), "last"))
    kept = made.state.inputs[KEY]
    assert TEXTS_MAX - 1_000 < kept.texts_bytes == texts_bytes_of_loads(kept.loads.items()) <= TEXTS_MAX
    assert all(len(one.source.encode()) <= SOURCE_MAX for one in kept.loads.values())
    assert all(len(one.trouble.encode()) <= TROUBLE_MAX for one in kept.loads.values())
    assert len(outgoing_record(written_states(made)[-1]).value or b"") < 2 * TEXTS_MAX


def test_a_series_may_not_grow_beyond_what_is_kept() -> None:
    kept, rules = inputs.WorkloadInputs(), HpaRules()
    with patch.object(inputs, "TEXTS_MAX", 40):
        assert kept.apply_load(replace(load_observed("q", 1, ms_after_start(0), "a"), source="s"), 0, rules)
        assert not kept.apply_load(replace(load_observed("q", 2, ms_after_start(1), "a"), source="s" * 40), 1, rules)
        assert kept.apply_load(replace(load_observed("q", 3, ms_after_start(2), "a"), source="t"), 2, rules)
    assert [(one.value_milli, one.source) for one in kept.loads.values()] == [(3_000, "t")]


def test_who_says_that_it_cannot_see_is_told_apart_by_what_is_kept_of_its_name() -> None:
    kept, rules = inputs.WorkloadInputs(), HpaRules()
    source = "s" * 1_000
    assert kept.apply_load(replace(load_observed("q", 1, ms_after_start(0)), source=source), 0, rules)
    assert kept.apply_load(replace(load_observed("q", 1, ms_after_start(1), trouble="gone"), source=source), 1, rules)
    assert [one.trouble for one in kept.loads.values()] == ["gone"]


@pytest.mark.parametrize("text", ["", "abc", "äöü", "😀" * 5, "a😀b", "\ud800x"])
@given(most=st.integers(0, 30))
def test_a_text_is_cut_between_characters(text: str, most: int) -> None:
    cut = cut_text_to_bytes(text, most)
    assert len(cut.encode(errors="replace")) <= most
    assert text.encode(errors="replace").decode().startswith(cut.encode(errors="replace").decode())
    if len(text.encode(errors="replace")) > most:
        assert most - len(cut.encode(errors="replace")) < 4


TEXTS = st.tuples(
    st.sampled_from(["abcdefgh0123456789", ASTRAL, "".join(map(chr, range(32))), "ä", '"\\\x7f']),
    st.sampled_from([0, 1, 60, 253, 4_000, 60_000, 700_000]),
    st.integers(0, 9),
)
SAID = st.lists(
    st.tuples(
        st.sampled_from(["value", "value", "trouble", "pods", "backlog", "partitions"]), TEXTS, TEXTS, st.integers(1, 9)
    ),
    min_size=1,
    max_size=5,
)


def random_text(given: tuple[str, int, int]) -> str:
    alphabet, length, seed = given
    return "".join(Random(seed).choices(alphabet, k=length))


def report_of_kind(kind: str, name: str, other: str, number: int, at_ms: int) -> LoadObserved | BacklogObserved:
    if kind in ("backlog", "partitions"):
        rows = tuple(
            PartitionBacklog(name[:60_000] if kind == "backlog" else "orders", row, 2**62 + row * 7**20, 2**61 + row, 0)
            for row in range(1 if kind == "backlog" else 1_400 * number)
        )
        return BacklogObserved(*KEY, "kafka", "g", "", rows, at_ms, other, "")
    trouble = other if kind == "trouble" else ""
    pod, metric = (name, "busy") if kind == "pods" else ("", "q")
    series = "" if pod else name
    return LoadObserved(*KEY, metric, "", f"{series}{number}", "", pod, 2**62 + number, at_ms, 0, other, trouble)


@given(said=SAID, manifest=st.sampled_from([hpa_manifest([external_metric("q", "5"), OF_PODS]), OF_QUEUES, DRAINED]))
def test_whatever_is_published_the_state_fits_a_record_and_can_be_read_back(
    said: list[tuple[str, tuple[str, int, int], tuple[str, int, int], int]], manifest: dict[str, Any]
) -> None:
    made = world_under_policy(manifest)
    for second, (kind, name, other, number) in enumerate(said, 1):
        report = report_of_kind(kind, random_text(name), random_text(other), number, ms_after_start(second))
        made.advance_to(ms_after_start(second))
        hear_reports(made, *(replace(report, at_ms=ms_after_start(second) + again) for again in range(2)))
    for state in written_states(made):
        assert len(outgoing_record(state).value or b"") <= RECORD_BYTES_MAX
        read_stored_state(state.state)
    before = made.state.inputs[KEY]
    made.restart()
    after = made.state.inputs[KEY]
    assert (after.loads, after.backlogs) == (before.loads, before.backlogs)


# ── What does not fit all the same ──────────────────────────────────────────────────────────────────────────────────


def test_a_state_that_does_not_fit_ends_no_step_and_its_values_are_unknown() -> None:
    """Bounds above keep it from happening; it is written all the same, and says so, and the positions move on."""
    made = world_under_policy(hpa_manifest([external_metric("q", "5")]))
    made.publish_input(load_observed("q", 20, ms_after_start(1)))
    assert made.current_replicas == 4
    with patch.object(stored, "STATE_BYTES_MAX", 900):
        names = [random_astral_text(Random(number), 250) for number in range(3)]
        hear_reports(made, *(load_observed("q", 9, ms_after_start(2), name) for name in names))
    written = written_states(made)[-1]
    assert len(written.state) < 900
    assert dict(written.positions)[f"{LOAD.name}/0"] == 4
    assert condition_of_policy(made, "ScalingActive") == ("False", STATE_TOO_LARGE)
    assert explain_workload(made.state, made.state.scaled[KEY]).metrics[0].trouble == "nobody has reported it"
    assert made.state.dropped["too large"] == 1
    assert (made.current_replicas, made.state.inputs[KEY].loads) == (4, {})
    made.restart()
    assert condition_of_policy(made, "ScalingActive") == ("False", STATE_TOO_LARGE)
    made.publish_input(load_observed("q", 40, ms_after_start(30)))
    assert made.current_replicas == 8
    assert condition_of_policy(made, "ScalingActive") == ("True", "ValidMetricFound")


def test_what_is_remembered_of_sizes_goes_only_where_it_does_not_fit_either() -> None:
    made = world_under_policy(hpa_manifest([external_metric("q", "5")]))
    for second in range(1, 40):
        made.publish_input(load_observed("q", 300 - 5 * second, ms_after_start(second)))
    scaled = made.state.scaled[KEY]
    whole = StoredState(scaled.remembered, scaled.due, 5, (), (), (), (), ())
    size = len(stored_state_bytes(whole))
    loads = {("q", "", random_astral_text(Random(9), 2_000), "", ""): MetricSeries(1, 1)}
    with patch.object(stored, "STATE_BYTES_MAX", size + 200):
        fits, state_bytes = fit_stored_state(StoredState(scaled.remembered, scaled.due, 5, tuple(loads.items())))
        assert (fits.loads, fits.remembered.scaling.history) == ((), scaled.remembered.scaling.history)
        assert read_stored_state(state_bytes) == fits
    with patch.object(stored, "STATE_BYTES_MAX", 10):
        fits, state_bytes = fit_stored_state(whole)
    assert read_stored_state(state_bytes) == fits
    assert [one.reason for one in fits.remembered.scaling.conditions] == [STATE_TOO_LARGE]
    assert (fits.remembered.at_ms, fits.due, len(state_bytes) < 500) == (scaled.remembered.at_ms, scaled.due, True)


def test_a_state_leaves_room_for_the_rest_of_its_record() -> None:
    positions = tuple((f"topic-{number}/{2**31}", 2**62) for number in range(4))
    state = written_states(world_under_policy(hpa_manifest([external_metric("q", "5")])))[-1]
    longest = replace(state, name="n" * 253, positions=positions, state=b"x" * STATE_BYTES_MAX)
    assert len(outgoing_record(longest).value or b"") < RECORD_BYTES_MAX - 400_000


# ── Names in a policy, and what conditions say ──────────────────────────────────────────────────────────────────────

LONG = "ä" * (NAME_MAX // 2 + 1)


def kafka_trigger(**metadata: str) -> dict[str, Any]:
    return {**KAFKA, "metadata": {**KAFKA["metadata"], **metadata}}


WINDOW = {"name": LONG, "timeZone": "UTC", "start": "0 8 * * *", "end": "0 9 * * *", "floor": 2}
TARGET = {"type": "AverageValue", "averageValue": "1"}


@pytest.mark.parametrize(
    ("manifest", "field"),
    [
        pytest.param(
            hpa_manifest([external_metric(LONG, "1")]),
            "HorizontalPodAutoscaler.spec.metrics[0].external.metric.name",
            id="x",
        ),
        pytest.param(
            hpa_manifest([{"type": "Pods", "pods": {"metric": {"name": LONG}, "target": TARGET}}]),
            "pods.metric.name",
            id="pods",
        ),
        pytest.param(
            hpa_manifest([{"type": "Resource", "resource": {"name": LONG, "target": TARGET}}]),
            "resource.name",
            id="resource",
        ),
        pytest.param(
            hpa_manifest(
                [
                    {
                        "type": "ContainerResource",
                        "containerResource": {"name": "cpu", "container": LONG, "target": TARGET},
                    }
                ]
            ),
            "containerResource.container",
            id="container",
        ),
        *(
            pytest.param(
                hpa_manifest(
                    [
                        {
                            "type": "Object",
                            "object": {
                                "metric": {"name": "q"},
                                "target": TARGET,
                                "describedObject": {"kind": "Service", "name": "a", field: LONG},
                            },
                        }
                    ]
                ),
                f"object.describedObject.{field}",
                id=f"object: {field}",
            )
            for field in ("kind", "name")
        ),
        pytest.param(
            scaled_object_manifest([kafka_trigger(consumerGroup=LONG)]),
            "triggers[0].metadata.consumerGroup",
            id="group",
        ),
        pytest.param(scaled_object_manifest([kafka_trigger(topic=LONG)]), "triggers[0].metadata.topic", id="topic"),
        pytest.param(scaled_object_manifest([{**KAFKA, "name": LONG}]), "triggers[0].name", id="trigger"),
        pytest.param(scale_policy_manifest(calendar=[WINDOW]), "ScalePolicy.spec.calendar[0].name", id="window"),
        pytest.param(
            scale_policy_manifest(
                drain={"within": "5m", "recordsPerSecond": 1, "kafka": kafka_trigger(consumerGroup=LONG)["metadata"]}
            ),
            "drain.kafka.consumerGroup",
            id="drain",
        ),
    ],
)
def test_a_name_in_a_policy_that_is_too_long_to_be_kept_is_refused(manifest: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError, match="254 bytes") as refused:
        read_attached(manifest)
    assert refused.value.code == "INVALID_ARGUMENT"
    assert field in refused.value.text
    assert f"at most {NAME_MAX}" in refused.value.text
    short = json.loads(json.dumps(manifest, ensure_ascii=False).replace(LONG, "ä" * (NAME_MAX // 2)))
    read_attached(short)


def test_a_conditions_message_is_bounded_however_many_pods_have_troubles_of_their_own() -> None:
    made = world_under_policy(hpa_manifest([OF_PODS]))
    reports = [
        replace(
            load_observed("busy", 0, ms_after_start(1), trouble=f"{number}: {random_astral_text(Random(number), 150)}"),
            pod=f"p{number}",
        )
        for number in range(200)
    ]
    hear_reports(made, *reports)
    (active,) = [one for one in made.state.scaled[KEY].remembered.scaling.conditions if one.kind == "scaling_active"]
    assert active.reason == "FailedGetPodsMetric"
    assert 500 < len(active.message.encode()) <= MESSAGE_MAX
    assert len(written_states(made)[-1].state) < TEXTS_MAX
    said = explain_workload(made.state, made.state.scaled[KEY]).metrics[0].trouble
    assert said.endswith("; 195 more")
    made.publish_input(workload_declared(3))
