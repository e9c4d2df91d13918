"""Checks values and backlogs that other programs report over gRPC. Pure.

Decides which reports are accepted, and gives the reason of each refusal.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from hpa.core.heard.inputs import BACKLOGS_MAX, PARTITION_BYTES, backlog_size, odd_partitions
from hpa.core.manifests.attached import AttachedPolicy
from hpa.core.named import is_named, names_of
from hpa.core.rules import HpaRules
from hpa.core.state import HpaState
from spillway.api import RequestError, invalid
from spillway.api_scaling import ReportAnswer
from spillway.events_scaling import BacklogObserved, LoadObserved

ITEMS_MAX: Final = 5_000
TEXT_MAX: Final = 1_000
NAME_MAX: Final = 253
"""The most bytes of a name. Kubernetes has the same limit for names of objects; Kafka allows 249 for a topic."""
OBJECT_MAX: Final = 63 + 1 + NAME_MAX
"""The most bytes of kind/name."""

Reported = LoadObserved | BacklogObserved


def accepted(
    state: HpaState, reports: Sequence[Reported], now_ms: int
) -> tuple[list[Reported], tuple[ReportAnswer, ...]]:
    """Returns (reports to publish, an answer for each report). An at_ms of 0 means now."""
    taken: list[Reported] = []
    answers = []
    for report in reports:
        try:
            taken.append(_checked(state, report, now_ms))
            answers.append(ReportAnswer("OK"))
        except RequestError as error:
            answers.append(ReportAnswer(error.code, error.text))
    return taken, tuple(answers)


def _checked(state: HpaState, report: Reported, now_ms: int) -> Reported:
    namespace = report.namespace or "default"
    scaled = state.scaled.get((namespace, report.name))
    if (namespace, report.name) in state.refused:
        raise RequestError("FAILED_PRECONDITION", f"{namespace}/{report.name}: its scale policy is refused")
    if scaled is None:
        raise RequestError("NOT_FOUND", f"{namespace}/{report.name}: no workload of this name has a scale policy")
    _check_time(report.at_ms, now_ms, state.rules)
    report = replace(report, namespace=namespace, at_ms=report.at_ms or now_ms)
    for field, length, most in _lengths(report):
        if length > most:
            raise invalid(field, f"{length} bytes", f"at most {most}")
    if isinstance(report, LoadObserved):
        if not report.metric:
            raise invalid("metric", "", "the name of the metric in the policy")
        if report.value_milli < 0:
            raise invalid("value_milli", report.value_milli, "0 or more")
        return _named(scaled.policy, report)
    if not report.group:
        raise invalid("group", "", "a consumer group")
    if (size := backlog_size(report)) > BACKLOGS_MAX:
        what = f"{len(report.partitions)} partitions, {size} bytes"
        raise invalid(
            "partitions",
            what,
            f"at most {BACKLOGS_MAX} bytes: {PARTITION_BYTES} for each partition, and the topic's name",
        )
    if not report.trouble and (odd := odd_partitions(report)):
        raise invalid(
            "partitions", odd, "every partition of the topic once, or no partitions and the reason in trouble"
        )
    for one in report.partitions:
        if one.partition < 0 or one.latest < -1 or one.committed < -1:
            raise invalid("partitions", (one.partition, one.latest, one.committed), "offsets of 0 or more; −1: unknown")
    return _named(scaled.policy, report)


def _check_time(at_ms: int, now_ms: int, rules: HpaRules) -> None:
    if not 0 <= at_ms <= now_ms + rules.future_max_ms:
        raise invalid("at_ms", at_ms, f"0 (now), or up to now, {now_ms}")
    if at_ms and at_ms < now_ms - rules.load_age_max_ms:
        raise invalid("at_ms", at_ms, f"0 (now), or milliseconds of the last {rules.load_age_max_ms // 1000} s")


def _named(policy: AttachedPolicy, report: Reported) -> Reported:
    """Returns the report, which must be one that the policy uses.

    Otherwise raises RequestError NOT_FOUND, whose text lists the metrics of the policy.
    """
    if is_named(policy, report):
        return report
    if isinstance(report, BacklogObserved):
        what = f"group {report.group}, topic {report.topic or 'any'}"
    else:
        of = "pods" if report.pod else report.object
        what = f"metric {report.metric}" + (f" of {of}" if of else "")
    expected = "; ".join(names_of(policy, report)) or "no report of that kind"
    raise RequestError("NOT_FOUND", f"{what}: {policy.kind} {policy.name} does not use it; expected {expected}")


def _lengths(report: Reported) -> Iterator[tuple[str, int, int]]:
    """Yields (field, its bytes, the bound). The fields are written with every state of the workload."""
    yield "source", len(report.source.encode()), NAME_MAX
    yield "trouble", len(report.trouble.encode()), TEXT_MAX
    if isinstance(report, LoadObserved):
        yield "object", len(report.object.encode()), OBJECT_MAX
        for field in ("metric", "series", "cluster", "pod"):
            yield field, len(getattr(report, field).encode()), NAME_MAX
    else:
        yield "group", len(report.group.encode()), NAME_MAX
        yield "topic", len(report.topic.encode()), NAME_MAX
        yield "partitions.topic", max((len(one.topic.encode()) for one in report.partitions), default=0), NAME_MAX
