"""Kubernetes' and KEDA's own cases, answered by our autoscaler's core. The counts are in docs/scaling.md.

The vectors lie beside the repository (../shared/vectors/hpa) and are no part of it; without them: skipped.
"""

import re

import pytest

from hpa.core.kubernetes.evaluating import CONTROLLER
from spillway_vectors import scaling, scaling_decisions, scaling_keda, scaling_modes
from spillway_vectors.scaling import FOLDER, ROOT, field_check_of_answer, read_cases

PAGE = ROOT / "docs" / "scaling.md"

pytestmark = pytest.mark.skipif(FOLDER is None, reason="no ../shared/vectors/hpa beside the repository")

CHECKS = {
    "hpa_behavior_fuzz.json.gz": scaling.has_expected_behavior,
    "hpa_behavior_limits.json": field_check_of_answer(scaling.answer_policy_limit),
    "hpa_behavior_rate.json": field_check_of_answer(scaling.answer_rate_limit),
    "hpa_behavior_stabilization.json": scaling.has_expected_stabilization,
    "hpa_calculate_requests.json": field_check_of_answer(scaling.answer_pod_requests),
    "hpa_controller.json": scaling_decisions.has_expected_decision,
    "hpa_controller_fuzz.json.gz": scaling_decisions.has_expected_decision,
    "hpa_group_pods.json": field_check_of_answer(scaling.answer_pod_groups),
    "hpa_legacy_fuzz.json.gz": scaling.has_expected_legacy_step,
    "hpa_legacy_limits.json": field_check_of_answer(scaling.answer_legacy_limit),
    "hpa_legacy_stabilization.json": scaling.has_expected_legacy_stabilization,
    "hpa_normalization_traces.json.gz": scaling.has_expected_trace,
    "hpa_replica_calculator.json": field_check_of_answer(scaling.answer_metric_proposal),
    "hpa_replica_calculator_fuzz.json.gz": field_check_of_answer(scaling.answer_metric_proposal),
    "hpa_store_scale_events.json": scaling.has_expected_scale_events,
    "hpa_usage_ratio.json": field_check_of_answer(scaling.answer_usage_ratio),
    "keda_cron_activity.json": field_check_of_answer(scaling_keda.answer_cron_activity),
    "keda_cron_metadata.json": field_check_of_answer(scaling_keda.answer_cron_metadata),
    "keda_cron_names.json": field_check_of_answer(scaling_keda.answer_cron_name),
    "keda_fallback.json": field_check_of_answer(scaling_keda.answer_fallback),
    "keda_fallback_fuzz.json.gz": field_check_of_answer(scaling_keda.answer_fallback),
    "keda_formula.json": field_check_of_answer(scaling_keda.answer_formula_function),
    "keda_formula_fuzz.json.gz": field_check_of_answer(scaling_keda.answer_formula),
    "keda_job_scaling_fuzz.json.gz": field_check_of_answer(scaling_keda.answer_jobs_wanted),
    "keda_kafka_factors.json": field_check_of_answer(scaling_keda.answer_factors),
    "keda_kafka_factors_extra.json": field_check_of_answer(scaling_keda.answer_factors),
    "keda_kafka_metadata.json": scaling_keda.has_expected_kafka_metadata,
    "keda_kafka_next_factor.json": field_check_of_answer(scaling_keda.answer_balancing_factor),
    "keda_kafka_next_factor_fuzz.json.gz": field_check_of_answer(scaling_keda.answer_balancing_factor),
    "keda_kafka_partition_lag.json": field_check_of_answer(scaling_keda.answer_partition_lag),
    "keda_kafka_partition_limitation.json": field_check_of_answer(scaling_keda.answer_partitions),
    "keda_kafka_partition_limitation_extra.json": field_check_of_answer(scaling_keda.answer_partitions),
    "keda_kafka_topic_partitions.json": field_check_of_answer(scaling_keda.answer_selected_partitions),
    "keda_kafka_total_lag.json": field_check_of_answer(scaling_keda.answer_total_lag),
    "keda_kafka_total_lag_fuzz.json.gz": field_check_of_answer(scaling_keda.answer_total_lag),
    "keda_scale_executor.json": field_check_of_answer(scaling_keda.answer_poll_outcome),
    "keda_scale_executor_fuzz.json.gz": field_check_of_answer(scaling_keda.answer_poll_outcome),
}


@pytest.mark.parametrize("name", CHECKS)
def test_every_case_of_a_file_is_answered_alike(name: str) -> None:
    """None fails, and the page says how many there are."""
    found = read_cases(name)
    assert [case["name"] for case in found if not CHECKS[name](case["input"], case["expected"])] == []
    row = re.search(rf"^\| {re.escape(name)} \| ([\d,]+) \| ([\d,]+) \|", PAGE.read_text(), re.MULTILINE)
    assert row is not None, "every file has a row in docs/scaling.md"
    assert [int(figure.replace(",", "")) for figure in row.groups()] == [len(found), len(found)]


def test_no_file_is_left_out() -> None:
    assert FOLDER is not None
    assert {path.name for path in FOLDER.glob("*.json*")} == set(CHECKS)


def test_controller_mode_follows_every_trace_that_stays_above_zero() -> None:
    """Whole decisions one after the other, each on the state that the one before left."""
    traces = [case for case in read_cases("hpa_normalization_traces.json.gz") if case["input"]["min_replicas"] > 0]
    assert traces
    for case in traces:
        expected = [step["replicas"] for step in case["expected"]["steps"]]
        assert scaling_modes.sizes_of_trace(case["input"], CONTROLLER) == expected, case["name"]


def test_event_mode_differs_by_as_much_as_the_page_says() -> None:
    assert "\n".join(scaling_modes.table_rows()) in PAGE.read_text()
