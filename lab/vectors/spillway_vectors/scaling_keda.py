"""Compares our triggers, formulas and executor with KEDA's on the same input."""

from collections.abc import Iterable

from hpa.core.cron import InvalidCron
from hpa.core.keda import cron_trigger, executor, fallback, formula, kafka, kafka_metadata
from hpa.core.keda.expressions import InvalidExpression
from hpa.core.keda.functions import ExpressionFailed

from . import keda_jobs
from .scaling import Json, ms_or_never

# ── Kafka ───────────────────────────────────────────────────────────────────────────────────────────────────────


def answer_kafka_metadata(given: Json) -> Json:
    try:
        found = kafka_metadata.read_kafka_trigger(given["metadata"])
    except kafka_metadata.InvalidTrigger:
        return {"error": True}
    return {
        "error": False,
        "group": found.group,
        "brokers": list(found.brokers),
        "topic": found.topic,
        "offset_reset_policy": found.offset_reset,
        "partition_limitation": None if found.partitions is None else expanded_partitions(found.partitions),
        "allow_idle_consumers": found.allow_idle,
        "ensure_even_distribution_of_partitions": found.even,
        "exclude_persistent_lag": found.exclude_persistent,
        "limit_to_partitions_with_lag": found.limit_to_lagging,
        "full_metadata": found.full_metadata,
    }


def has_expected_kafka_metadata(given: Json, expected: Json) -> bool:
    """Compares the trigger's fields with the expected ones, and three more with what was observed of KEDA."""
    answer = answer_kafka_metadata(given)
    if answer["error"] or expected["error"]:
        return bool(answer["error"] == expected["error"])
    found = kafka_metadata.read_kafka_trigger(given["metadata"])
    observed = {
        "activation_lag_threshold": found.activation_lag_threshold,
        "lag_threshold": found.lag_threshold,
        "scale_to_zero_on_invalid_offset": found.zero_on_invalid,
    }
    return answer | {"observed": observed} == expected


def expanded_partitions(ranges: Iterable[kafka_metadata.Range]) -> list[int]:
    return [number for first, last in ranges for number in range(first, last + 1)]


def answer_partitions(given: Json) -> Json:
    try:
        return {"error": False, "partitions": expanded_partitions(kafka_metadata.read_partitions(given["text"]))}
    except kafka_metadata.InvalidTrigger:
        return {"error": True}


def answer_selected_partitions(given: Json) -> Json:
    trigger = kafka_metadata.read_kafka_trigger(given["metadata"])
    rows = [kafka.PartitionOffsets(trigger.topic, number, 1, 0) for number in given["existing_partitions"]]
    chosen = [row.partition for row in rows if trigger.has_partition(row.topic, row.partition)]
    return {"partitions": {trigger.topic: chosen}}


def answer_factors(given: Json) -> Json:
    return {"factors": kafka.divisors_of(given["n"])}


def answer_balancing_factor(given: Json) -> Json:
    return {"factor": kafka.balancing_factor(given["total_lag"], given["partitions"], given["lag_threshold"])}


def kafka_trigger_of(given: Json) -> kafka.KafkaTrigger:
    limitation = given.get("partition_limitation")
    return kafka.KafkaTrigger(
        group="g",
        topic=given.get("topic", "t"),
        lag_threshold=given.get("lag_threshold", 10),
        activation_lag_threshold=given.get("activation_lag_threshold", 0),
        offset_reset=given["offset_reset_policy"],
        partitions=None if limitation is None else tuple((number, number) for number in sorted(limitation)),
        allow_idle=given.get("allow_idle_consumers", False),
        limit_to_lagging=given.get("limit_to_partitions_with_lag", False),
        even=given.get("ensure_even_distribution_of_partitions", False),
        exclude_persistent=given["exclude_persistent_lag"],
        zero_on_invalid=given["scale_to_zero_on_invalid_offset"],
    )


def answer_partition_lag(given: Json) -> Json:
    row = kafka.PartitionOffsets("t", 0, given["latest"], given["committed"])
    lag, with_persistent = kafka.partition_lag(kafka_trigger_of(given), row, {})
    return {"lag": lag, "lag_with_persistent": with_persistent}


def answer_total_lag(given: Json) -> Json:
    trigger, found = kafka_trigger_of(given), []
    before: kafka.Committed = {}
    for poll in given["polls"]:
        rows = [kafka.PartitionOffsets(one["topic"], one["partition"], one["latest"], one["committed"]) for one in poll]
        chosen = [row for row in rows if trigger.has_partition(row.topic, row.partition)]
        lag = kafka.lag_of_partitions(chosen, trigger, before)
        before = lag.committed
        answer = {"total_lag": lag.total, "total_lag_with_persistent": lag.true, "active": lag.active}
        found.append(answer | {"metric_milli": lag.metric_milli})
    return {"polls": found}


# ── Cron ────────────────────────────────────────────────────────────────────────────────────────────────────────


def answer_cron_metadata(given: Json) -> Json:
    try:
        cron_trigger.read_cron_trigger(given["metadata"])
    except InvalidCron:
        return {"error": True}
    return {"error": False}


def answer_cron_name(given: Json) -> Json:
    return {"name": cron_trigger.read_cron_trigger(given["metadata"]).metric_name(given["trigger_index"])}


def answer_cron_activity(given: Json) -> Json:
    try:
        found = cron_trigger.cron_activity_at(cron_trigger.read_cron_trigger(given["metadata"]), given["now_unix_s"])
    except InvalidCron:
        return {"error": True}
    return {
        "error": False,
        "active": found.active,
        "metric_milli": found.metric_milli,
        "next_start_unix_s": found.next_start_s,
        "next_end_unix_s": found.next_end_s,
    }


# ── Fallback, formulas ──────────────────────────────────────────────────────────────────────────────────────────


def fallback_of(entry: Json | None) -> fallback.Fallback | None:
    if entry is None:
        return None
    return fallback.Fallback(entry["replicas"], entry["failure_threshold"], entry["behavior"])


def answer_fallback(given: Json) -> Json:
    modifiers, health = given["scaling_modifiers"], given["health"]
    composite = modifiers and fallback.Composite(modifiers["target"], modifiers["metric_type"] == "Value")
    found = fallback.answer_of_trigger(
        fallback.Trigger(given["target_milli"], given["target_type"] == "value", composite),
        None if given["trigger_error"] else given["metric_values_milli"],
        fallback_of(given["fallback"]),
        health and fallback.TriggerHealth(health["failures"], health["status"]),
        fallback.ReplicaCounts(given["current_replicas"], given["ready_replicas"]),
    )
    after, missing = found.health, found.values_milli is None
    status = {"": "unknown", fallback.NO_FALLBACK_FOUND: "false", fallback.FALLBACK_EXISTS: "true"}[found.reason]
    return {
        "metric_values_milli": None if found.values_milli is None else list(found.values_milli),
        "metric_name": None if missing else "composite" if found.of_composite else "own",
        "fallback_active": found.active,
        "error": "fallback_failed" if found.failed else "trigger_error" if missing else None,
        "health_after": after and {"failures": after.failures, "status": after.status},
        "fallback_condition": {"reason": found.reason, "status": status},
    }


def answer_formula_function(given: Json) -> Json:
    kind = given["kind"]
    if kind == "contains_ignoring_case":
        return {"found": formula.is_name_used(given["list"], given["element"])}
    if kind == "trigger_value":
        value = formula.trigger_value(given["metric_milli"], given["failures"], fallback_of(given["fallback"]))
        return {"value_milli": value}
    if kind == "pair":
        try:
            pairs = trigger_name_by_metric(given["metric"], given["trigger"], given["formula"])
        except InvalidExpression:
            return {"error": True, "pairs": {}}
        return {"error": False, "pairs": pairs}
    return answer_formula(given)


def trigger_name_by_metric(metric: str, trigger: str, formula_text: str) -> dict[str, str]:
    """Returns {metric: trigger name} when there is a formula, as KEDA does. Raises InvalidExpression for a trigger
    without a name.

    hpa checks these names when it reads a ScaledObject.
    """
    if not formula_text:
        return {}
    if not trigger:
        raise InvalidExpression(f"trigger of metric {metric!r}: expected a name, since there is a formula")
    return {metric: trigger}


def answer_formula(given: Json) -> Json:
    nothing = {"compile_error": False, "error": False, "metric_milli": None}
    try:
        compiled = formula.compile_formula(given["formula"], given["triggers"])
    except InvalidExpression:
        return nothing | {"compile_error": True}
    failures, kept = given["failures"], fallback_of(given["fallback"])
    try:
        milli = formula.composite_milli(compiled, given["values_milli"], failures, kept, float(given["target"]))
    except ExpressionFailed:
        return nothing | {"error": True}
    return nothing | {"metric_milli": milli}


# ── Executor, jobs ──────────────────────────────────────────────────────────────────────────────────────────────


def answer_poll_outcome(given: Json) -> Json:
    wanted = executor.Activation(
        min_replicas=given["min_replicas"] or 0,
        idle_replicas=given["idle_replicas"],
        cooldown_ms=None if given["cooldown_s"] is None else given["cooldown_s"] * 1000,
        initial_cooldown_ms=(given["initial_cooldown_s"] or 0) * 1000,
        fallback_replicas=given["fallback_replicas"],
        annotations=given["annotations"],
    )
    condition = given["autoscaler_scaling_active"] if given["autoscaler_name_known"] else None
    polled = executor.PolledTriggers(
        active=given["active"],
        failed=given["error"],
        replicas=given["current_replicas"],
        created_ms=ms_or_never(given["created_s"]),
        last_active_ms=None if given["last_active_s"] is None else given["last_active_s"] * 1000,
        autoscaler=condition and (condition["status"] == "true", condition["reason"]),
    )
    found = executor.decide_poll_outcome(wanted, polled, 0)
    conditions = {kind: {"status": status, "reason": reason} for kind, (status, reason) in found.conditions.items()}
    updates = [] if found.replicas is None else [found.replicas]
    return {
        "scale_updates": updates,
        "last_active_renewed": found.renewed,
        "conditions": conditions,
        "error": None,
    }


def answer_jobs_wanted(given: Json) -> Json:
    strategy = keda_jobs.JobStrategy(
        given["strategy"], given["queue_length_deduction"], given["running_job_percentage"]
    )
    queue = keda_jobs.Queue(given["max_scale"], given["scale_to"], given["running_jobs"], given["pending_jobs"])
    found = keda_jobs.jobs_wanted(strategy, queue, given["min_replicas"], given["max_replicas"])
    return {
        "effective_max_scale": found.effective_max,
        "scale_to": found.scale_to,
        "jobs_to_create": found.jobs_to_create,
    }
