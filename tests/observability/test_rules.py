"""Rules as Prometheus reads them: each speaks of what there is; each alert is seen to fire, and not to."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import make_slo_rules
import promql_parser
import pytest

from .known import all_rules, faults_in_expression, rule_files_by_name
from .promql import LOOKBACK_SECONDS, Labels, Store

DAY = 86_400.0


@dataclass(frozen=True)
class Series:
    """A series of which the value is known at each time."""

    name: str
    value: Callable[[float], float]
    labels: dict[str, str] = field(default_factory=dict)


def series_at(name: str, value: float, **labels: str) -> Series:
    return Series(name, lambda at: value, labels)


def growing_series(name: str, per_second: float, **labels: str) -> Series:
    return Series(name, lambda at: per_second * at, labels)


ACTIVE = (
    series_at("spillway_planner_active", 1, instance="a"),
    series_at("spillway_planner_active", 0, instance="b"),
)
CHANGES = "spillway.capacity-changes.v1"

ALERTS: dict[str, tuple[tuple[Series, ...], tuple[Series, ...]]] = {
    # What makes each fire, and what looks like it and is none of its business.
    "SpillwayDown": (
        (series_at("up", 0, job="spillway-planner", instance="a"),),
        (series_at("up", 0, job="somebody-else", instance="x"), series_at("up", 1, job="spillway-hpa", instance="b")),
    ),
    "SpillwayNotReady": (
        (series_at("spillway_ready", 0, part="log", instance="a"),),
        (series_at("spillway_ready", 1, part="log", instance="a"),),
    ),
    "SpillwayNoActivePlanner": ((series_at("spillway_planner_active", 0, instance="a"),), ACTIVE),
    "SpillwayTwoActivePlanners": (
        (
            series_at("spillway_planner_active", 1, instance="a"),
            series_at("spillway_planner_active", 1, instance="b"),
        ),
        ACTIVE,
    ),
    "SpillwayNoActiveScaler": (
        (series_at("spillway_hpa_active", 0, instance="a"), series_at("spillway_hpa_active", 0, instance="b")),
        (series_at("spillway_hpa_active", 1, instance="a"), series_at("spillway_hpa_active", 0, instance="b")),
    ),
    "SpillwayScaleFails": (
        (growing_series("spillway_scale_failed_total", 1 / 60, instance="a"),),
        (series_at("spillway_scale_failed_total", 3, instance="a"),),
    ),
    "SpillwayDecisionFails": (
        (growing_series("spillway_decisions_failed_total", 1 / 60, instance="a"),),
        (series_at("spillway_decisions_failed_total", 3, instance="a"),),
    ),
    "SpillwayWorkFails": (
        (growing_series("spillway_work_failed_total", 1 / 60, service="propagator", what="cluster", instance="a"),),
        (series_at("spillway_work_failed_total", 3, service="propagator", what="cluster", instance="a"),),
    ),
    "SpillwayNoActiveDescheduler": (
        (series_at("spillway_descheduler_active", 0, instance="a"),),
        (series_at("spillway_descheduler_active", 1, instance="a"),),
    ),
    "SpillwayTurnsGoRound": (
        (growing_series("spillway_turns_taken_total", 8 / 3600, service="planner", instance="a"),),
        (
            growing_series("spillway_turns_taken_total", 100 / 3600, service="snapshot", instance="a"),
            growing_series("spillway_turns_taken_total", 2 / 3600, service="planner", instance="a"),
        ),
    ),
    "SpillwayOutcomesUnknown": (
        (growing_series("spillway_transactions_unknown_total", 5 / 900, instance="a"),),
        (growing_series("spillway_transactions_unknown_total", 1 / 900, instance="a"),),
    ),
    "SpillwayLogAway": (
        (series_at("spillway_bus_connected", 0, instance="a"),),
        (series_at("spillway_bus_connected", 1, instance="a"),),
    ),
    "SpillwayBehindTheLog": (
        (series_at("spillway_topic_lag_records", 6000, topic=CHANGES, instance="a"),),
        (series_at("spillway_topic_lag_records", 40, topic=CHANGES, instance="a"),),
    ),
    "SpillwayNoCapacityHeard": (
        (series_at("spillway_topic_age_seconds", 45, topic=CHANGES, instance="a"),),
        (
            series_at("spillway_topic_age_seconds", 2, topic=CHANGES, instance="a"),
            series_at("spillway_topic_age_seconds", 300, topic=CHANGES, instance="one that hangs"),
            series_at("spillway_topic_age_seconds", 90_000, topic="spillway.brakes.v1", instance="a"),
        ),
    ),
    "SpillwayDeadLetters": (
        (growing_series("spillway_dead_letters_total", 1 / 900, topic=CHANGES, instance="a"),),
        (series_at("spillway_dead_letters_total", 3, topic=CHANGES, instance="a"),),
    ),
    "SpillwayPublisherUnreadable": (
        (growing_series("spillway_dead_letters_left_out_total", 1, topic="spillway.load.v1", instance="a"),),
        (
            series_at("spillway_dead_letters_left_out_total", 900, topic="spillway.load.v1", instance="a"),
            growing_series("spillway_dead_letters_left_out_total", 0.01, topic="spillway.backlog.v1", instance="a"),
        ),
    ),
    "SpillwayClusterStale": (
        (*ACTIVE, series_at("spillway_capacity_age_seconds", 90, cluster="own-1", instance="a")),
        (
            *ACTIVE,
            series_at("spillway_capacity_age_seconds", 3, cluster="own-1", instance="a"),
            series_at("spillway_capacity_age_seconds", 900, cluster="own-1", instance="b"),
        ),
    ),
    "SpillwayMembersRefuse": (
        (growing_series("spillway_cluster_unreachable_total", 1, reason="timeout", instance="a"),),
        (growing_series("spillway_cluster_unreachable_total", 0.01, reason="timeout", instance="a"),),
    ),
    "SpillwayNotCarriedOut": (
        (series_at("spillway_objects_waiting", 2, cluster="own-1", instance="a"),),
        (series_at("spillway_objects_waiting", 0, cluster="own-1", instance="a"),),
    ),
    "SpillwayObjectsHeld": (
        (series_at("spillway_objects_held", 1, state="NotOwned", instance="a"),),
        (series_at("spillway_objects_held", 0, state="NotOwned", instance="a"),),
    ),
    "SpillwayLogEmpty": (
        (series_at("spillway_empty_log", 1, cluster="own-1", instance="a"),),
        (series_at("spillway_empty_log", 0, cluster="own-1", instance="a"),),
    ),
    "SpillwayOrphans": (
        (series_at("spillway_orphans", 4, cluster="own-1", instance="a"),),
        (series_at("spillway_orphans", 0, cluster="own-1", instance="a"),),
    ),
    "SpillwayReplicasWait": (
        (*ACTIVE, series_at("spillway_replicas_unplaced", 12, instance="a")),
        (*ACTIVE, *(series_at("spillway_replicas_unplaced", n, instance=name) for name, n in (("a", 0), ("b", 9)))),
    ),
    "SpillwayConfirmationWaits": (
        (*ACTIVE, series_at("spillway_confirmations_waiting", 1, instance="a")),
        (*ACTIVE, series_at("spillway_confirmations_waiting", 1, instance="b")),
    ),
    "SpillwayBrakeForgotten": (
        (*ACTIVE, series_at("spillway_brakes", 1, kind="fleet", instance="a")),
        (*ACTIVE, series_at("spillway_brakes", 0, kind="fleet", instance="a")),
    ),
    "SpillwayRecallsLate": (
        (
            series_at("spillway_descheduler_active", 1, instance="a"),
            series_at("spillway_recalls_standing", 3, instance="a"),
        ),
        (
            series_at("spillway_descheduler_active", 0, instance="a"),
            series_at("spillway_recalls_standing", 3, instance="a"),
        ),
    ),
    "SpillwayCallersDenied": (
        (growing_series("spillway_requests_denied_total", 5, reason="rate", instance="a"),),
        (growing_series("spillway_requests_denied_total", 0.1, reason="rate", instance="a"),),
    ),
    "SpillwayCallersFileBad": (
        (series_at("spillway_callers_file_bad", 1, instance="a"),),
        (series_at("spillway_callers_file_bad", 0, instance="a"),),
    ),
    "SpillwayStoreFails": (
        (growing_series("spillway_store_failures_total", 0.1, call="append", instance="a"),),
        (series_at("spillway_store_failures_total", 7, call="append", instance="a"),),
    ),
}  # fmt: skip


def store_with_series(series: tuple[Series, ...], seconds: float, step: float) -> Store:
    """Samples of each from 0 on, to the end included."""
    store = Store()
    for number in range(int(seconds / step) + 1):
        for one in series:
            store.add_sample(one.name, one.labels, number * step, one.value(number * step))
    return store


def is_firing(rule: dict[str, Any], series: tuple[Series, ...]) -> bool:
    """Whether some set of labels was there at each step for as long as the rule says."""
    lasting = promql_parser.parse_duration(rule["for"]).total_seconds() if "for" in rule else 0.0
    step = min(LOOKBACK_SECONDS * 0.8, max(15.0, lasting / 100))
    end = lasting + 3600.0
    store, at, standing = store_with_series(series, end, step), int((end - lasting) / step) * step, None
    while at <= end:
        found: set[Labels] = set(store.evaluate_expression(rule["expr"], at))
        standing = found if standing is None else standing & found
        at += step
    return bool(standing)


ALERT_RULES = {rule["alert"]: rule for rule in all_rules() if "alert" in rule and "slo" not in rule["labels"]}


def test_every_alert_is_in_the_table() -> None:
    assert list(ALERTS) == list(ALERT_RULES)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_fires_when_it_is_to_and_not_for_what_only_looks_like_it(name: str) -> None:
    wrong, right = ALERTS[name]
    assert is_firing(ALERT_RULES[name], wrong)
    assert not is_firing(ALERT_RULES[name], right)


# ── What is promised ────────────────────────────────────────────────────────────────────────────────────────────────


def series_of_requests(failing: float) -> tuple[Series, ...]:
    """100 calls a second, a share of which fails by our fault; a standby refuses as many, which is no failure."""
    name = "spillway_requests_total"
    return (
        *ACTIVE,
        growing_series(name, 100 * (1 - failing), verb="apply", code="OK", instance="a"),
        growing_series(name, 100 * failing, verb="apply", code="INTERNAL", instance="a"),
        growing_series(name, 100, verb="apply", code="UNAVAILABLE", instance="b"),
    )


def series_of_durations(metric: str, bound: str, slow: float, **labels: str) -> tuple[Series, ...]:
    return (
        growing_series(f"{metric}_bucket", 10 * (1 - slow), le=bound, **labels),
        growing_series(f"{metric}_count", 10, **labels),
    )


def series_of_cluster_ages(*ages: float) -> tuple[Series, ...]:
    told = [
        series_at("spillway_capacity_age_seconds", age, cluster=f"c{n}", instance="a") for n, age in enumerate(ages)
    ]
    return (*ACTIVE, *told, series_at("spillway_capacity_age_seconds", 9_000, cluster="c0", instance="b"))


SLOS: dict[str, tuple[tuple[Series, ...], tuple[Series, ...]]] = {
    "planner-active": ((series_at("spillway_planner_active", 0, instance="a"),), ACTIVE),
    "requests-served": (series_of_requests(0.1), series_of_requests(0.0)),
    "decided-within-1s": (
        series_of_durations("spillway_request_seconds", "1.0", 0.3, verb="apply", instance="a"),
        (
            *series_of_durations("spillway_request_seconds", "1.0", 0.001, verb="apply", instance="a"),
            *series_of_durations("spillway_request_seconds", "1.0", 0.9, verb="watch", instance="a"),
        ),
    ),
    "carried-out-within-30s": (
        series_of_durations("spillway_placement_seconds", "30.0", 0.3, instance="a"),
        series_of_durations("spillway_placement_seconds", "30.0", 0.0, instance="a"),
    ),
    "clusters-fresh": (series_of_cluster_ages(2, 2, 300, float("inf")), series_of_cluster_ages(2, 2, 3)),
}


def alerts_that_fire(name: str, series: tuple[Series, ...]) -> set[str]:
    """The alerts on a promise that fire after three days of this; what is recorded comes from the file's own rules."""
    step = LOOKBACK_SECONDS * 0.8
    store, end = store_with_series(series, 3 * DAY, step), int(3 * DAY / step) * step
    recorded = [rule for rule in all_rules() if "record" in rule]
    for number in range(int(end / step) + 1):
        for rule in (one for one in recorded if "labels" not in one):
            for labels, value in store.evaluate_expression(rule["expr"], number * step).items():
                store.add_sample(rule["record"], dict(labels), number * step, value)
    for rule in (one for one in recorded if one.get("labels") == {"slo": name}):
        for labels, value in store.evaluate_expression(rule["expr"], end).items():
            store.add_sample(rule["record"], dict(labels) | rule["labels"], end, value)
    alerts = [
        rule
        for rule in all_rules()
        if rule.get("alert", "").startswith("SpillwaySlo") and rule["labels"]["slo"] == name
    ]
    return {rule["alert"].rpartition("Burns")[2] for rule in alerts if store.evaluate_expression(rule["expr"], end)}


def test_every_promise_is_in_the_table() -> None:
    assert list(SLOS) == [objective.name for objective in make_slo_rules.OBJECTIVES]


@pytest.mark.parametrize("name", SLOS)
def test_a_promise_that_is_not_kept_is_told_in_all_windows_and_one_that_is_kept_in_none(name: str) -> None:
    broken, kept = SLOS[name]
    assert alerts_that_fire(name, broken) == {burn.long for burn in make_slo_rules.BURNS}
    assert alerts_that_fire(name, kept) == set()


# ── What they speak of ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_speaks_of_metrics_labels_and_values_that_there_are(rule: dict[str, Any]) -> None:
    assert faults_in_expression(rule["expr"]) == []
    for text in rule.get("annotations", {}).values():
        assert text.count("{{") == text.count("}}")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("spillway_nosuch > 1", "spillway_nosuch: no metric"),
        ('spillway_orphans{clutser="a"}', "spillway_orphans: no label clutser"),
        ('spillway_requests_total{verb="aply"}', "spillway_requests_total: verb is never aply"),
        ('spillway_request_seconds_bucket{le="0.7"}', "spillway_request_seconds_bucket: le is never 0.7"),
        ("sum by (pod) (spillway_orphans)", "pod: no label of any metric here"),
    ],
)
def test_what_there_is_not_is_found(text: str, wrong: str) -> None:
    assert faults_in_expression(text) == [wrong]


def test_every_alert_says_how_bad_it_is_and_what_to_do_and_has_a_name_of_its_own() -> None:
    alerts = [rule for rule in all_rules() if "alert" in rule]
    assert len({rule["alert"] for rule in alerts}) == len(alerts)
    assert {rule["labels"]["severity"] for rule in alerts} == {"page", "ticket"}
    assert all(rule["annotations"]["summary"] and rule["annotations"]["description"] for rule in alerts)


def test_files_have_groups_with_names_of_their_own() -> None:
    names = [group["name"] for file in rule_files_by_name().values() for group in file["groups"]]
    assert len(set(names)) == len(names)
