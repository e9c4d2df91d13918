"""Kubernetes' and KEDA's own cases, answered by our autoscaler's core. The counts are in docs/scaling.md.

The vectors lie beside the repository (../shared/vectors/hpa) and are no part of it; without them: skipped.
"""

import re

import pytest

from hpa.core.kubernetes.evaluating import CONTROLLER
from spillway_vectors import scaling, scaling_decisions, scaling_keda, scaling_modes
from spillway_vectors.scaling import FOLDER, ROOT, cases, equals

PAGE = ROOT / "docs" / "scaling.md"

pytestmark = pytest.mark.skipif(FOLDER is None, reason="no ../shared/vectors/hpa beside the repository")

CHECKS = {
    "hpa_behavior_fuzz.json.gz": scaling.behaved,
    "hpa_behavior_limits.json": equals(scaling.bare_limit),
    "hpa_behavior_rate.json": equals(scaling.rated),
    "hpa_behavior_stabilization.json": scaling.stabilized,
    "hpa_calculate_requests.json": equals(scaling.requested),
    "hpa_controller.json": scaling_decisions.whole,
    "hpa_controller_fuzz.json.gz": scaling_decisions.whole,
    "hpa_group_pods.json": equals(scaling.grouped),
    "hpa_legacy_fuzz.json.gz": scaling.legacy_step,
    "hpa_legacy_limits.json": equals(scaling.legacy_limit),
    "hpa_legacy_stabilization.json": scaling.legacy_stabilized,
    "hpa_normalization_traces.json.gz": scaling.traced,
    "hpa_replica_calculator.json": equals(scaling.calculated),
    "hpa_replica_calculator_fuzz.json.gz": equals(scaling.calculated),
    "hpa_store_scale_events.json": scaling.stored,
    "hpa_usage_ratio.json": equals(scaling.ratio),
    "keda_cron_activity.json": equals(scaling_keda.cron_activity),
    "keda_cron_metadata.json": equals(scaling_keda.cron_metadata),
    "keda_cron_names.json": equals(scaling_keda.cron_name),
    "keda_fallback.json": equals(scaling_keda.fallen_back),
    "keda_fallback_fuzz.json.gz": equals(scaling_keda.fallen_back),
    "keda_formula.json": equals(scaling_keda.formula_helper),
    "keda_formula_fuzz.json.gz": equals(scaling_keda.computed),
    "keda_job_scaling_fuzz.json.gz": equals(scaling_keda.jobs_created),
    "keda_kafka_factors.json": equals(scaling_keda.factors),
    "keda_kafka_factors_extra.json": equals(scaling_keda.factors),
    "keda_kafka_metadata.json": scaling_keda.kafka_numbers,
    "keda_kafka_next_factor.json": equals(scaling_keda.next_factor),
    "keda_kafka_next_factor_fuzz.json.gz": equals(scaling_keda.next_factor),
    "keda_kafka_partition_lag.json": equals(scaling_keda.partition_lag),
    "keda_kafka_partition_limitation.json": equals(scaling_keda.partitions_of),
    "keda_kafka_partition_limitation_extra.json": equals(scaling_keda.partitions_of),
    "keda_kafka_topic_partitions.json": equals(scaling_keda.selected),
    "keda_kafka_total_lag.json": equals(scaling_keda.total_lag),
    "keda_kafka_total_lag_fuzz.json.gz": equals(scaling_keda.total_lag),
    "keda_scale_executor.json": equals(scaling_keda.executed),
    "keda_scale_executor_fuzz.json.gz": equals(scaling_keda.executed),
}


@pytest.mark.parametrize("name", CHECKS)
def test_every_case_of_a_file_is_answered_alike(name: str) -> None:
    """None fails, and the page says how many there are."""
    found = cases(name)
    assert [case["name"] for case in found if not CHECKS[name](case["input"], case["expected"])] == []
    row = re.search(rf"^\| {re.escape(name)} \| ([\d,]+) \| ([\d,]+) \|", PAGE.read_text(), re.MULTILINE)
    assert row is not None, "every file has a row in docs/scaling.md"
    assert [int(figure.replace(",", "")) for figure in row.groups()] == [len(found), len(found)]


def test_no_file_is_left_out() -> None:
    assert FOLDER is not None
    assert {path.name for path in FOLDER.glob("*.json*")} == set(CHECKS)


def test_controller_mode_follows_every_trace_that_stays_above_zero() -> None:
    """Whole decisions one after the other, each on the state that the one before left."""
    traces = [case for case in cases("hpa_normalization_traces.json.gz") if case["input"]["min_replicas"] > 0]
    assert traces
    for case in traces:
        expected = [step["replicas"] for step in case["expected"]["steps"]]
        assert scaling_modes.sizes(case["input"], CONTROLLER) == expected, case["name"]


def test_event_mode_differs_by_as_much_as_the_page_says() -> None:
    assert "\n".join(scaling_modes.table()) in PAGE.read_text()
