"""Makes deploy/observability/slo-rules.yaml: objectives, their error ratios, and alerts on fast-spent error budgets.

Each alert compares two windows: the long one shows that the loss matters, the short one that it still goes on. Source
of the windows and factors: Google, The Site Reliability Workbook, chapter 5, "Multiwindow, Multi-Burn-Rate Alerts".
"""

from dataclasses import dataclass
from typing import Any, Final

import yaml

ACTIVE: Final = "on (instance) spillway_planner_active == 1"
BY_PEOPLE: Final = "apply|scale|delete|migrate|plan_batch"
OUR_FAULT: Final = "INTERNAL|UNKNOWN|DATA_LOSS|DEADLINE_EXCEEDED"
FRESH_SECONDS: Final = 30
"""The value of SPILLWAY_PLANNER_CAPACITY_AGE_MAX_SECONDS: nothing new is placed on capacity that is older."""
WINDOWS: Final = ("5m", "30m", "1h", "6h", "3d")
RATIO: Final = "spillway:slo_missed:ratio"


@dataclass(frozen=True, slots=True)
class Burn:
    """An alert. times: how many times too fast the error budget of 30 days is spent, in the long and short window."""

    long: str
    short: str
    times: float
    severity: str


BURNS: Final = (Burn("1h", "5m", 14.4, "page"), Burn("6h", "30m", 6.0, "page"), Burn("3d", "6h", 1.0, "ticket"))


@dataclass(frozen=True, slots=True)
class Objective:
    """One objective. kept: the promised share over 30 days. missed: PromQL of the missed share in a RANGE."""

    name: str
    promise: str
    kept: float
    missed: str


@dataclass(frozen=True, slots=True)
class Indicator:
    """A recording rule whose values are stored, so that queries can take their mean over time."""

    record: str
    expr: str


INDICATORS: Final = (
    Indicator("spillway:planner_active:bool", "clamp_max(sum(spillway_planner_active), 1) or vector(0)"),
    Indicator(
        "spillway:clusters_fresh:ratio", f"avg((spillway_capacity_age_seconds and {ACTIVE}) <= bool {FRESH_SECONDS})"
    ),
)


def _bad_share_query(bad: str, of: str) -> str:
    return f"(sum(rate({bad}[RANGE]) and {ACTIVE}) or vector(0)) / sum(rate({of}[RANGE]) and {ACTIVE})"


def _slow_share_query(metric: str, seconds: float, labels: str = "") -> str:
    """Returns PromQL of the share of a histogram's observations above a bound. seconds: a bound of its buckets."""
    inside = ", ".join(filter(None, (labels, f'le="{seconds:.1f}"')))
    outside = f"{metric}_count{{{labels}}}" if labels else f"{metric}_count"
    return f"1 - sum(rate({metric}_bucket{{{inside}}}[RANGE])) / sum(rate({outside}[RANGE]))"


OBJECTIVES: Final = (
    Objective(
        "planner-active",
        "one planner is active: requests are decided",
        0.999,
        "1 - avg_over_time(spillway:planner_active:bool[RANGE])",
    ),
    Objective(
        "requests-served",
        f"calls that the active planner answers do not fail by our fault ({OUR_FAULT.replace('|', ', ')})",
        0.999,
        _bad_share_query(f'spillway_requests_total{{code=~"{OUR_FAULT}"}}', "spillway_requests_total"),
    ),
    Objective(
        "decided-within-1s",
        f"{BY_PEOPLE.replace('|', ', ')} are answered within a second, decided and in the log",
        0.99,
        _slow_share_query("spillway_request_seconds", 1, f'verb=~"{BY_PEOPLE}"'),
    ),
    Objective(
        "carried-out-within-30s",
        "what was decided is so in the cluster's object within 30 s",
        0.99,
        _slow_share_query("spillway_placement_seconds", 30),
    ),
    Objective(
        "clusters-fresh",
        f"what is known of a cluster is at most {FRESH_SECONDS} s old, of all clusters on average",
        0.995,
        "1 - avg_over_time(spillway:clusters_fresh:ratio[RANGE])",
    ),
)


def rules_document() -> dict[str, Any]:
    """Returns the recording and alerting rules in the form of a Prometheus rule file."""
    recorded = [{"record": one.record, "expr": one.expr} for one in INDICATORS]
    for objective in OBJECTIVES:
        for window in WINDOWS:
            expr = objective.missed.replace("RANGE", window)
            recorded.append({"record": f"{RATIO}_{window}", "expr": expr, "labels": {"slo": objective.name}})  # type: ignore[dict-item]
    alerts = [_alert_rule(objective, burn) for objective in OBJECTIVES for burn in BURNS]
    return {"groups": [{"name": "spillway-slo", "rules": recorded}, {"name": "spillway-slo-alerts", "rules": alerts}]}


def _alert_rule(objective: Objective, burn: Burn) -> dict[str, Any]:
    bound = round(burn.times * (1 - objective.kept), 6)
    selector = f'{{slo="{objective.name}"}}'
    expr = f"{RATIO}_{burn.long}{selector} > {bound} and {RATIO}_{burn.short}{selector} > {bound}"
    name = "".join(part.capitalize() for part in objective.name.split("-"))
    return {
        "alert": f"SpillwaySlo{name}Burns{burn.long}",
        "expr": expr,
        "labels": {"severity": burn.severity, "slo": objective.name},
        "annotations": {
            "summary": f"Not kept often enough: {objective.promise}",
            "description": (
                f"Over {burn.long} and {burn.short} more than {bound:.2%} was missed: {burn.times:g} times as fast as "
                f"{objective.kept:.1%} of 30 days allows."
            ),
            "runbook": f"docs/operations.md#slo-{objective.name}",
        },
    }


def page_text() -> str:
    head = "# Generated from docs/make_slo_rules.py by `make docs`; CI compares.\n"
    text: str = yaml.safe_dump(rules_document(), sort_keys=False, allow_unicode=True, width=120)
    return head + text.rstrip()
