"""Reads the test vectors of Kubernetes' autoscaler, kept beside the repository, and runs our core on them."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from hpa.core.kubernetes import behavior, history, pods, policy, replicas, totals, usage
from hpa.core.kubernetes.pods import NEVER_MS, CountedPod, PodContainer, PodKey, PodsSeen, Sample

ROOT = Path(__file__).parents[3]
FOLDER = next((found for parent in ROOT.parents if (found := parent / "shared" / "vectors" / "hpa").is_dir()), None)
"""The folder of the vectors, beside the repository or beside a folder above it; None if there is none."""

Json = dict[str, Any]
UNSET_S = -1_000_000_000
NAMESPACE = "default"
CLUSTER = "one"


def read_cases(name: str) -> list[Json]:
    """Returns the cases of a file, each with its input and the expected answer."""
    assert FOLDER is not None
    content = (FOLDER / name).read_bytes()
    found: list[Json] = json.loads(gzip.decompress(content) if name.endswith(".gz") else content)["cases"]
    return found


def ms_or_never(seconds: int) -> int:
    return NEVER_MS if seconds == UNSET_S else seconds * 1000


def pod_key(name: str) -> PodKey:
    return PodKey(CLUSTER, NAMESPACE, name)


def counted_pods_of(entries: list[Json]) -> dict[PodKey, CountedPod]:
    return {pod_key(entry["name"]): counted_pod_of(entry) for entry in entries}


def counted_pod_of(entry: Json) -> CountedPod:
    changed_s = entry["ready_changed_s"]
    return CountedPod(
        phase=entry["phase"],
        deleting=entry["deleting"],
        started_ms=None if entry["start_s"] is None else ms_or_never(entry["start_s"]),
        ready=entry["ready"],
        ready_changed_ms=None if changed_s is None else ms_or_never(changed_s),
        containers=pod_containers_of(entry["containers"]),
        init_containers=pod_containers_of(entry.get("init_containers", [])),
        pod_requests=entry.get("pod_requests_milli"),
    )


def pod_containers_of(entries: list[Json]) -> tuple[PodContainer, ...]:
    return tuple(PodContainer(one["name"], one["requests_milli"], one.get("restartable", False)) for one in entries)


def samples_by_pod(entries: list[Json]) -> dict[PodKey, Sample]:
    return {
        pod_key(one["pod"]): Sample(one["value_milli"], ms_or_never(one["timestamp_s"]), one["window_s"] * 1000)
        for one in entries
    }


NO_AVERAGE_AT_ZERO = ("object_average_value", "external_average_value")
ERRORS: dict[type[Exception], str] = {
    totals.NoPods: "no_pods",
    totals.NoUsableMetrics: "no_usable_metrics",
    usage.NoMatchingMetrics: "no_matching_metrics",
    pods.MissingRequest: "missing_request",
    pods.ContainerNotFound: "container_not_found",
}


# ── One metric ──────────────────────────────────────────────────────────────────────────────────────────────────


def answer_metric_proposal(given: Json) -> Json:
    """Answers a case of one metric. A source that fails or has no values is unavailable; then nothing is computed."""
    kind = given["kind"]
    values = given.get("pod_metrics", given.get("external_values_milli"))
    unavailable = "metrics_error" in given or (kind.startswith("external") and not values)
    if unavailable:
        return {"error": "metrics_unavailable"}
    try:
        found = proposal_of_kind(given, kind)
    except tuple(ERRORS) as error:
        return {"error": ERRORS[type(error)]}
    answer = {"replicas": found.replicas}
    if kind == "resource_utilization":
        return answer | {"utilization_percent": found.percent, "raw_average_milli": found.milli}
    return answer | (
        {} if given["current_replicas"] == 0 and kind in NO_AVERAGE_AT_ZERO else {"usage_milli": found.milli}
    )


def proposal_of_kind(given: Json, kind: str) -> replicas.Proposal:
    scene = replicas.ReplicaContext(
        current=given["current_replicas"],
        status=given["current_replicas"],
        seen=PodsSeen(counted_pods_of(given["pods"])),
        tolerance=usage.Tolerance(given["tolerance_down"], given["tolerance_up"]),
        readiness=readiness_of(given),
        pod_level_resources=given["pod_level_resources"],
    )
    target = given.get("target_milli", 0)
    if kind in ("resource_utilization", "resource_average_value", "pods"):
        percent = given.get("target_utilization_percent")
        rule = totals.MetricRule(given["resource"], given["container"], percent, given["pod_level_resources"])
        found = totals.totals_of(scene.seen, samples_by_pod(given["pod_metrics"]), rule, scene.readiness, 0)
        return (
            replicas.propose_by_average(scene, found, target)
            if percent is None
            else replicas.propose_by_utilization(scene, found, percent)
        )
    if kind.startswith("object"):
        by_object = replicas.propose_by_object_value if kind == "object_value" else replicas.propose_by_object_average
        return by_object(scene, given["object_value_milli"], target)
    by_series = replicas.propose_by_external_value if kind == "external_value" else replicas.propose_by_external_average
    return by_series(scene, given["external_values_milli"], target)


def readiness_of(given: Json) -> pods.Readiness:
    return pods.Readiness(given["cpu_initialization_period_s"] * 1000, given["initial_readiness_delay_s"] * 1000)


def answer_pod_groups(given: Json) -> Json:
    samples = samples_by_pod(given["pod_metrics"])
    found: dict[str, list[str]] = {"ready": [], "unready": [], "missing": [], "ignored": []}
    for one, pod in counted_pods_of(given["pods"]).items():
        found[pods.pod_group_of(pod, samples.get(one), given["resource"], readiness_of(given), 0)].append(one.name)
    named = {name: sorted(names) for name, names in found.items() if name != "ready"}
    return {"ready_count": len(found["ready"])} | named


def answer_pod_requests(given: Json) -> Json:
    resource, container, level = given["resource"], given["container"], given["pod_level_resources"]
    try:
        found = {
            one.name: pods.request_milli(one, pod, resource, container, pod_level_resources=level)
            for one, pod in counted_pods_of(given["pods"]).items()
        }
    except tuple(ERRORS) as error:
        return {"error": ERRORS[type(error)]}
    return {"requests_milli": found}


def answer_usage_ratio(given: Json) -> Json:
    values = given["pod_values_milli"]
    if given["kind"] == "usage":
        found_ratio, average = usage.ratio_and_average_use(sum(values.values()), len(values), given["target_milli"])
        return {"ratio": found_ratio, "usage_milli": average}
    requests = given["requests_milli"]
    both = [(value, requests[name]) for name, value in values.items() if name in requests]
    sums = sum(value for value, _ in both), sum(request for _, request in both)
    try:
        found = usage.compute_utilization(*sums, len(both), given["target_utilization_percent"])
    except usage.NoMatchingMetrics:
        return {"error": "no_matching_metrics"}
    return {
        "ratio": found.ratio,
        "utilization_percent": found.percent,
        "raw_average_milli": found.average_milli,
    }


# ── Behaviour ───────────────────────────────────────────────────────────────────────────────────────────────────


def scaling_rules_of(entry: Json) -> policy.ScalingRules:
    return policy.ScalingRules(
        policies=scaling_policies_of(entry["policies"]),
        select=entry["select_policy"],
        stabilization_ms=(entry["stabilization_window_s"] or 0) * 1000,
        tolerance=entry.get("tolerance"),
    )


def scaling_policies_of(entries: list[Json]) -> tuple[policy.ScalingPolicy, ...]:
    return tuple(policy.ScalingPolicy(one["type"], one["value"], one["period_s"] * 1000) for one in entries)


def given_rules_of(entry: Json | None) -> policy.GivenRules | None:
    if entry is None:
        return None
    seconds = entry["stabilization_window_s"]
    return policy.GivenRules(
        policies=None if entry["policies"] is None else scaling_policies_of(entry["policies"]),
        select=entry["select_policy"],
        stabilization_ms=None if seconds is None else seconds * 1000,
        tolerance=entry["tolerance"],
    )


def recommendation_steps_of(entries: list[Json]) -> history.Steps:
    return tuple(
        history.Recommendation(one["replicas"], one["at_s"] * 1000, one["at_s"] * 1000)
        for one in sorted(entries, key=lambda one: one["at_s"])
    )


def scale_changes_of(entries: list[Json]) -> history.ScaleChanges:
    return tuple(history.ScaleChange(one["change"], one["at_s"] * 1000, one["outdated"]) for one in entries)


def scale_event_entries(changes: history.ScaleChanges) -> list[Json]:
    return [{"change": one.change, "at_s": one.at_ms // 1000, "outdated": one.outdated} for one in changes]


def has_same_memory(steps: history.Steps, expected: list[Json], window_ms: int) -> bool:
    """Returns whether every window finds the same numbers in our steps as in Kubernetes' list."""
    theirs = recommendation_steps_of(expected)
    instants = {step.to_ms for step in (*steps, *theirs) if step.to_ms >= -window_ms}
    return all(
        find(steps, instant - 1, bound) == find(theirs, instant - 1, bound)
        for instant in instants
        for find, bound in ((history.highest_since, -1), (history.lowest_since, 2**31))
    )


TEXTS = ("error_contains", "error_message", "observed")


def field_check_of_answer(answer: Callable[[Json], Json]) -> Callable[[Json, Json], bool]:
    """Returns a check of every answered field. Error texts and fields that were only observed are not compared."""

    def has_expected_fields(given: Json, expected: Json) -> bool:
        named = {name: value for name, value in expected.items() if name not in TEXTS}
        answered = answer(given)
        return all(name in answered or value is None for name, value in named.items()) and all(
            value == named.get(name, value) for name, value in answered.items()
        )

    return has_expected_fields


def scaling_history_of(given: Json) -> history.ScalingHistory:
    return history.ScalingHistory(
        recommendation_steps_of(given.get("recommendations") or []),
        scale_changes_of(given.get("scale_up_events") or []),
        scale_changes_of(given.get("scale_down_events") or []),
    )


def replica_bounds_of(given: Json) -> behavior.ReplicaBounds:
    return behavior.ReplicaBounds(given["min_replicas"], given["max_replicas"])


def behavior_with_defaults_of(given: Json) -> policy.Behavior:
    default_ms = given.get("downscale_stabilization_s", 300) * 1000
    return policy.behavior_with_defaults(
        given_rules_of(given["scale_up_given"]), given_rules_of(given["scale_down_given"]), default_ms
    )


def answer_rate_limit(given: Json) -> Json:
    both = policy.Behavior(scaling_rules_of(given["scale_up"]), scaling_rules_of(given["scale_down"]))
    current, desired = given["current_replicas"], given["desired_replicas"]
    found, reason = behavior.limit_rate(current, desired, replica_bounds_of(given), both, scaling_history_of(given), 0)
    return {"replicas": found, "reason": reason}


def answer_policy_limit(given: Json) -> Json:
    limit = behavior.up_limit if given["direction"] == "up" else behavior.down_limit
    return {"limit": limit(given["current_replicas"], scaling_rules_of(given["rules"]), scaling_history_of(given), 0)}


def has_expected_stabilization(given: Json, expected: Json) -> bool:
    up_ms, down_ms = given["scale_up_stabilization_s"] * 1000, given["scale_down_stabilization_s"] * 1000
    both = policy.Behavior(
        policy.ScalingRules((), stabilization_ms=up_ms), policy.ScalingRules((), stabilization_ms=down_ms)
    )
    current, desired, steps = (
        given["current_replicas"],
        given["desired_replicas"],
        recommendation_steps_of(given["recommendations"]),
    )
    found = behavior.stabilize_replicas(current, desired, steps, both, 0)
    after = history.with_recommendation(steps, desired, 0, max(up_ms, down_ms))
    return found == expected["replicas"] and has_same_memory(
        after, expected["observed"]["recommendations_after"], max(up_ms, down_ms)
    )


def has_expected_scale_events(given: Json, expected: Json) -> bool:
    up = given["direction"] == "up"
    rules = given["rules"] and scaling_rules_of(given["rules"])
    both = None if rules is None else policy.Behavior(rules, rules)
    before = scale_changes_of(given["events"])
    past = history.ScalingHistory(ups=before) if up else history.ScalingHistory(downs=before)
    past = behavior.with_size_change(past, both, given["previous_replicas"], given["new_replicas"], 0)
    after = past.ups if up else past.downs
    change = history.replicas_changed_since(before, -given["period_s"] * 1000)
    listed = [{name: one[name] for name in ("change", "outdated")} for one in scale_event_entries(after)]
    return bool(change == expected["change_in_period_before"] and listed == expected["events_after"])


def legacy_settings_of(given: Json) -> policy.ControllerSettings:
    return policy.ControllerSettings(
        downscale_stabilization_ms=given.get("downscale_stabilization_s", 300) * 1000,
        scale_up_limit_factor=given.get("scale_up_limit_factor", 2),
        scale_up_limit_minimum=given.get("scale_up_limit_minimum", 4),
    )


def answer_legacy_limit(given: Json) -> Json:
    current, desired = given["current_replicas"], given["desired_replicas"]
    found, reason = behavior.limit_doubling(current, desired, replica_bounds_of(given), legacy_settings_of(given))
    return {"replicas": found, "reason": reason}


def has_expected_legacy_stabilization(given: Json, expected: Json) -> bool:
    window_ms = given["downscale_stabilization_s"] * 1000
    steps = recommendation_steps_of(given["recommendations"])
    after = history.with_recommendation(steps, given["desired_replicas"], 0, window_ms)
    return behavior.stabilize_downscale(given["desired_replicas"], steps, window_ms, 0) == expected[
        "replicas"
    ] and has_same_memory(after, expected["observed"]["recommendations_after"], window_ms)


def has_expected_legacy_step(given: Json, expected: Json) -> bool:
    settings = legacy_settings_of(given)
    current, desired = given["current_replicas"], given["desired_replicas"]
    left = behavior.limit_replicas_without_behavior(
        current, desired, replica_bounds_of(given), scaling_history_of(given), settings, 0
    )
    return limited_proposal_fields(left).items() <= expected.items() and has_same_memory(
        left.steps, expected["recommendations_after"], settings.downscale_stabilization_ms
    )


def limited_proposal_fields(left: behavior.LimitedProposal) -> Json:
    return {
        "replicas": left.replicas,
        "able_to_scale_reason": left.stabilized_reason,
        "scaling_limited_reason": left.limited_reason,
    }


def has_expected_behavior(given: Json, expected: Json) -> bool:
    """Checks defaults, windows, rates, bounds, and the history afterwards."""
    both = behavior_with_defaults_of(given)
    current, past = given["current_replicas"], scaling_history_of(given)
    left = behavior.limit_replicas_by_behavior(
        current, given["desired_replicas"], replica_bounds_of(given), both, past, 0
    )
    after = behavior.with_size_change(past, both, current, left.replicas, 0)
    answer = limited_proposal_fields(left) | {
        "scaling_limited": left.is_limited,
        "stabilized_replicas": left.stabilized,
    }
    window_ms = max(both.up.stabilization_ms, both.down.stabilization_ms)
    return (
        (both.up, both.down) == (scaling_rules_of(given["scale_up"]), scaling_rules_of(given["scale_down"]))
        and answer.items() <= expected.items()
        and has_same_memory(left.steps, expected["recommendations_after"], window_ms)
        and scale_event_entries(after.ups) == expected["scale_up_events_after"]
        and scale_event_entries(after.downs) == expected["scale_down_events_after"]
    )


def has_expected_trace(given: Json, expected: Json) -> bool:
    """Checks many decisions one after another, each with the history that the earlier ones left."""
    both = (
        None
        if given["legacy"]
        else policy.Behavior(scaling_rules_of(given["scale_up"]), scaling_rules_of(given["scale_down"]))
    )
    settings, current = legacy_settings_of(given), given["initial_replicas"]
    past = history.ScalingHistory(history.with_recommendation((), current, 0, 0))
    for step, wanted in zip(given["steps"], expected["steps"], strict=True):
        now_ms, desired = step["at_s"] * 1000, step["desired_replicas"]
        if both is None:
            left = behavior.limit_replicas_without_behavior(
                current, desired, replica_bounds_of(given), past, settings, now_ms
            )
        else:
            left = behavior.limit_replicas_by_behavior(current, desired, replica_bounds_of(given), both, past, now_ms)
        if limited_proposal_fields(left) != wanted:
            return False
        past = behavior.with_size_change(replace(past, steps=left.steps), both, current, left.replicas, now_ms)
        current = left.replicas
    return True
