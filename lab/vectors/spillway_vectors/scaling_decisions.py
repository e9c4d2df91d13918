"""Compares our whole decisions with those of Kubernetes' autoscaler on the same input."""

from hpa.core.kubernetes import deciding, history, policy, proposals
from hpa.core.kubernetes.evaluating import CONTROLLER, settings_for_mode
from hpa.core.kubernetes.pods import PodsSeen

from .scaling import (
    Json,
    counted_pods_of,
    given_rules_of,
    has_same_memory,
    recommendation_steps_of,
    samples_by_pod,
    scale_changes_of,
    scale_event_entries,
)


def metric_of(entry: Json) -> policy.Metric:
    target = entry.get("target") or {"type": "none"}
    amounts = {
        policy.UTILIZATION: target.get("average_utilization_percent"),
        policy.AVERAGE_VALUE: target.get("average_value_milli"),
        policy.VALUE: target.get("value_milli"),
    }
    described = entry.get("object") or {}
    return policy.Metric(
        source=entry["type"],
        name=entry.get("name", ""),
        target=policy.TargetValue(target["type"], amounts.get(target["type"])),
        container=entry.get("container", ""),
        object_kind=described.get("kind", ""),
    )


def autoscaler_of(given: Json) -> policy.Autoscaler:
    entry, default_ms = given["autoscaler"], given["settings"]["downscale_stabilization_s"] * 1000
    rules = entry["behavior"]
    both = rules and policy.behavior_with_defaults(
        given_rules_of(rules["scale_up"]), given_rules_of(rules["scale_down"]), default_ms
    )
    return policy.Autoscaler(
        max_replicas=entry["max_replicas"],
        metrics=tuple(metric_of(one) for one in entry["metrics"]),
        min_replicas=1 if entry["min_replicas"] is None else entry["min_replicas"],
        behavior=both,
    )


def controller_settings_of(given: Json) -> policy.ControllerSettings:
    entry, gates = given["settings"], given["gates"]
    return policy.ControllerSettings(
        tolerance=entry["tolerance"],
        downscale_stabilization_ms=entry["downscale_stabilization_s"] * 1000,
        cpu_initialization_ms=entry["cpu_initialization_period_s"] * 1000,
        initial_readiness_delay_ms=entry["initial_readiness_delay_s"] * 1000,
        scale_up_limit_factor=entry["scale_up_limit_factor"],
        scale_up_limit_minimum=entry["scale_up_limit_minimum"],
        configurable_tolerance=gates["configurable_tolerance"],
        pod_level_resources=gates["pod_level_resources"],
        scale_to_zero=gates["scale_to_zero"],
    )


REPEATED_AFTER_MS = 10
"""The milliseconds after which a write is repeated after a conflict, as in the real client."""

CALLS = {"container_resource": "resource"}


def metric_readings_of(given: Json) -> list[proposals.Reading]:
    """Returns the readings in the order of the metrics. The controller never reads an invalid metric."""
    answers = iter(given["metric_answers"])
    waiting = next(answers, None)
    found: list[proposals.Reading] = []
    for metric in given["autoscaler"]["metrics"]:
        call = CALLS.get(metric["type"], metric["type"])
        if (
            waiting is not None
            and waiting["call"] == call
            and waiting.get("metric", waiting.get("resource")) == metric["name"]
        ):
            found.append(metric_reading_of(waiting))
            waiting = next(answers, None)
        else:
            found.append(proposals.UnavailableMetric("it was never asked for"))
    return found


def metric_reading_of(answer: Json) -> proposals.Reading:
    if answer.get("pod_metrics"):
        return proposals.PodReading(samples_by_pod(answer["pod_metrics"]))
    if answer.get("external_values_milli"):
        return proposals.SeriesReading(tuple(answer["external_values_milli"]))
    if "object_value_milli" in answer:
        return proposals.SeriesReading((answer["object_value_milli"],))
    return proposals.UnavailableMetric("no answer")


def autoscaler_state_of(given: Json) -> deciding.AutoscalerState:
    entry, recommendations = given["autoscaler"], given["recommendations"]
    return deciding.AutoscalerState(
        history=history.ScalingHistory(
            None if recommendations is None else recommendation_steps_of(recommendations),
            scale_changes_of(given["scale_up_events"]),
            scale_changes_of(given["scale_down_events"]),
        ),
        conditions=tuple(
            deciding.AutoscalerCondition(one["type"], one["status"] == "true", one["reason"])
            for one in entry["conditions"]
        ),
        desired=entry["status_desired_replicas"],
    )


def unclear_pods_reason(given: Json) -> str:
    selector = given["scale"]["selector"]
    if not selector:
        return deciding.SELECTOR_REQUIRED
    if "=" not in selector or "cheddar" in selector:
        return deciding.INVALID_SELECTOR
    return deciding.AMBIGUOUS_SELECTOR if given["autoscalers_selecting_pods"] else ""


def selected_pods(given: Json) -> PodsSeen:
    selector = dict(pair.split("=", 1) for pair in given["scale"]["selector"].split(",") if "=" in pair)
    own = [one for one in given["pods"] if selector.items() <= one["labels"].items()]
    return PodsSeen(counted_pods_of(own))


def decision_and_writes(given: Json, mode: str = CONTROLLER) -> tuple[deciding.Decision, list[Json]]:
    """Returns (the decision with the results of its writes, the writes)."""
    known, entry = autoscaler_state_of(given), given["autoscaler"]
    if "spec_replicas" not in given["scale"]:
        return deciding.decision_without_scale(known, entry["status_current_replicas"], "no scale"), []
    wanted, settings = autoscaler_of(given), settings_for_mode(mode, controller_settings_of(given))
    scale = deciding.ScaleTargetSize(
        given["scale"]["spec_replicas"], given["scale"]["status_replicas"], unclear_pods_reason(given)
    )
    readings = metric_readings_of(given)
    decision = deciding.decide_replicas(wanted, scale, selected_pods(given), readings, known, settings, 0)
    if decision.replicas is None:
        return decision, []
    answers = given["scale_update_answers"]
    writes = [{"replicas": decision.replicas, "error": answer is not None} for answer in answers]
    if answers[-1] is None:
        return deciding.decision_after_write(decision, wanted, settings, REPEATED_AFTER_MS * (len(answers) - 1)), writes
    return deciding.decision_after_failed_write(decision, known, "could not be written"), writes


def has_expected_decision(given: Json, expected: Json) -> bool:
    """Checks every field of the real controller's decision, writes and status."""
    expected = expected.get("observed", expected)
    decision, writes = decision_and_writes(given)
    wanted = autoscaler_of(given)
    scaled = bool(writes) and not writes[-1]["error"]
    answer = {
        "conditions": [
            {"type": one.kind, "status": "true" if one.status else "false", "reason": one.reason}
            for one in decision.conditions
        ],
        "current_metrics": [
            metric_status_entry(*pair) for pair in zip(decision.statuses, given["autoscaler"]["metrics"], strict=False)
        ],
        "current_replicas": decision.current,
        "desired_replicas": decision.desired,
        "error": decision.failed,
        "last_scale_set_now": scaled,
        "scale_updates": writes,
    }
    both = wanted.behavior
    up, down = (both.up, both.down) if both else (policy.ScalingRules(()), policy.ScalingRules(()))
    window_ms = (
        max(up.stabilization_ms, down.stabilization_ms)
        if both
        else given["settings"]["downscale_stabilization_s"] * 1000
    )
    past = decision.history
    listed = {
        "scale_up_events_after": scale_event_entries(past.ups),
        "scale_down_events_after": scale_event_entries(past.downs),
    }
    return (
        all(expected[name] == value for name, value in (answer | listed).items())
        and has_same_notices(decision.notices, expected["events"])
        and has_same_memory(past.steps or (), expected["recommendations_after"], window_ms)
    )


def metric_status_entry(found: proposals.MetricStatus, metric: Json) -> Json:
    if not found.source:
        return {"type": ""}
    amounts = {
        "average_utilization_percent": found.percent,
        "average_value_milli": found.average_milli,
        "value_milli": found.value_milli,
    }
    answer = {"type": found.source, "name": found.name} | ({"object": metric["object"]} if "object" in metric else {})
    if found.container:
        answer["container"] = found.container
    return answer | {"current": {name: amount for name, amount in amounts.items() if amount is not None}}


def has_same_notices(found: tuple[deciding.AutoscalerNotice, ...], expected: list[Json]) -> bool:
    if [(one.kind, one.reason) for one in found] != [(one["type"], one["reason"]) for one in expected]:
        return False
    return all(one.message == other.get("message", one.message) for one, other in zip(found, expected, strict=True))
