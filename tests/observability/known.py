"""What an expression may speak of: the metrics that are registered, their labels, and the values that these have."""

import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import grpc
import make_metrics_page
import make_slo_rules
import promql_parser as ast
import yaml
from prometheus_client import REGISTRY

from spillway import metrics
from spillway.addresses import TOPICS

from .promql import selectors_in

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "observability"
OF_TARGETS: Final = {"instance", "job"}
"""Labels that a scrape adds."""
VALUES: Final = {
    "verb": set(metrics.VERBS),
    "code": {code.name for code in grpc.StatusCode},
    "topic": {topic.name for topic in TOPICS},
    "service": set(make_metrics_page.SERVICES),
    "slo": {objective.name for objective in make_slo_rules.OBJECTIVES},
}


def rule_files_by_name() -> dict[str, dict[str, Any]]:
    return {path.name: yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("*-rules.yaml"))}


@cache
def all_rules() -> list[dict[str, Any]]:
    return [rule for file in rule_files_by_name().values() for group in file["groups"] for rule in group["rules"]]


@cache
def labels_by_series() -> dict[str, set[str]]:
    """Every series that Prometheus may have of us, recorded ones too."""
    found = {"up": set(OF_TARGETS)}
    for one in make_metrics_page.described_metrics():
        for name in one.series_names:
            le = {"le"} if name.endswith("_bucket") else set()
            found[name] = {*one.labels, *OF_TARGETS, *le}
    for rule in all_rules():
        if "record" in rule:
            found[rule["record"]] = set(rule.get("labels", {}))
    return found


def faults_in_expression(text: str) -> list[str]:
    """What of an expression is no metric, no label of it, or no value that the label can have."""
    known, found = labels_by_series(), list[str]()
    for one in selectors_in(text):
        if one.name not in known:
            found.append(f"{one.name}: no metric")
            continue
        for matcher in one.matchers.matchers:
            if matcher.name not in known[one.name]:
                found.append(f"{one.name}: no label {matcher.name}")
            found += [f"{one.name}: {matcher.name} is never {value}" for value in _impossible_values(one.name, matcher)]
    labels = {label for one in selectors_in(text) for label in known.get(one.name, ())}
    return found + [f"{label}: no label of any metric here" for label in _grouping_labels(text) if label not in labels]


def _impossible_values(name: str, matcher: Any) -> list[str]:
    possible = _buckets_of(name) if matcher.name == "le" else VALUES.get(matcher.name)
    if possible is None:
        return []
    asked = matcher.value.split("|") if matcher.op == ast.MatchOp.Re else [matcher.value]
    return [value for value in asked if value not in possible]


def _buckets_of(name: str) -> set[str]:
    """The bounds of a histogram's buckets, as they are exposed."""
    collector = REGISTRY._names_to_collectors[name]  # No public way: a histogram without a series shows none.
    return {str(float(bound)) for bound in collector._upper_bounds if bound != float("inf")} | {"+Inf"}


def _grouping_labels(text: str) -> set[str]:
    """The labels of each by and on."""
    lists = re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", text)
    return {label.strip() for one in lists for label in one.split(",") if label.strip()}
