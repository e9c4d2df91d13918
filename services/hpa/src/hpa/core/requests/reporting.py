"""Checks values and backlogs that other programs report over gRPC. Pure.

Decides which reports are accepted, and gives the reason of each refusal.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from hpa.core.heard.inputs import BACKLOGS_MAX, PARTITION_BYTES, backlog_bytes_max, find_partitions_fault
from hpa.core.manifests.attached import AttachedPolicy
from hpa.core.named_inputs import input_names_of, is_input_named
from hpa.core.rules import HpaRules
from hpa.core.state import HpaState
from spillway.api import RequestError, invalid_argument_error
from spillway.api_scaling import ReportAnswer
from spillway.events_scaling import BacklogObserved, LoadObserved
from spillway.texts import cut_text_to_bytes

ITEMS_MAX: Final = 5_000
TEXT_MAX: Final = 1_000
NAME_MAX: Final = 253
"""The most bytes of a name. Kubernetes has the same limit for names of objects; Kafka allows 249 for a topic."""
OBJECT_MAX: Final = 63 + 1 + NAME_MAX
"""The most bytes of kind/name."""

ITEMS_AT_ONCE: Final = 100
"""The reports that are checked in one step of the event loop, some 10 ms. The whole request has up to ITEMS_MAX."""
NAMES_TOLD: Final = 8
"""The most metrics of a policy that the answer to one report names."""
ANSWER_BYTES_MAX: Final = 1_024
"""The most bytes of the answer to one report."""

Reported = LoadObserved | BacklogObserved


def check_report_count(count: int) -> None:
    """Raises RequestError INVALID_ARGUMENT for a request with more than ITEMS_MAX reports. None of them is accepted."""
    if count > ITEMS_MAX:
        raise RequestError("INVALID_ARGUMENT", f"{count} reports: expected at most {ITEMS_MAX}")


class ReportCheck:
    """Checks the reports of one request. now_ms: the wall clock. A report without a time gets this time."""

    def __init__(self, state: HpaState, now_ms: int) -> None:
        self._state = state
        self._now_ms = now_ms
        self._expected: dict[tuple[str, str, type], str] = {}
        """The lists of names in a policy, for the texts of refusals, by workload and kind of report."""

    def accept_reports(self, reports: Sequence[Reported]) -> tuple[list[Reported], tuple[ReportAnswer, ...]]:
        """Returns (reports to publish, an answer for each report)."""
        taken: list[Reported] = []
        answers = []
        for report in reports:
            try:
                taken.append(self._checked_report(report))
                answers.append(ReportAnswer("OK"))
            except RequestError as error:
                answers.append(ReportAnswer(error.code, cut_text_to_bytes(error.text, ANSWER_BYTES_MAX)))
        return taken, tuple(answers)

    def _checked_report(self, report: Reported) -> Reported:
        namespace = report.namespace or "default"
        scaled = self._state.scaled.get((namespace, report.name))
        if (namespace, report.name) in self._state.refused:
            raise RequestError("FAILED_PRECONDITION", f"{namespace}/{report.name}: its scale policy is refused")
        if scaled is None:
            raise RequestError("NOT_FOUND", f"{namespace}/{report.name}: no workload of this name has a scale policy")
        _check_time(report.at_ms, self._now_ms, self._state.rules)
        report = replace(report, namespace=namespace, at_ms=report.at_ms or self._now_ms)
        for field, length, most in _field_lengths_and_bounds(report):
            if length > most:
                raise invalid_argument_error(field, f"{length} bytes", f"at most {most}")
        if isinstance(report, LoadObserved):
            if not report.metric:
                raise invalid_argument_error("metric", "", "the name of the metric in the policy")
            if report.value_milli < 0:
                raise invalid_argument_error("value_milli", report.value_milli, "0 or more")
            return self._report_named_by_policy(scaled.policy, report)
        if not report.group:
            raise invalid_argument_error("group", "", "a consumer group")
        if (size := backlog_bytes_max(report)) > BACKLOGS_MAX:
            what = f"{len(report.partitions)} partitions, {size} bytes"
            raise invalid_argument_error(
                "partitions",
                what,
                f"at most {BACKLOGS_MAX} bytes: {PARTITION_BYTES} for each partition, and the topic's name",
            )
        if not report.trouble and (odd := find_partitions_fault(report)):
            raise invalid_argument_error(
                "partitions", odd, "every partition of the topic once, or no partitions and the reason in trouble"
            )
        for one in report.partitions:
            if one.partition < 0 or one.latest < -1 or one.committed < -1:
                offsets = (one.partition, one.latest, one.committed)
                raise invalid_argument_error("partitions", offsets, "offsets of 0 or more; −1: unknown")
        return self._report_named_by_policy(scaled.policy, report)

    def _report_named_by_policy(self, policy: AttachedPolicy, report: Reported) -> Reported:
        """Returns the report, which must be one that the policy uses.

        Otherwise it raises RequestError NOT_FOUND. The text lists the first metrics of the policy.
        """
        if is_input_named(policy, report):
            return report
        if isinstance(report, BacklogObserved):
            what = f"group {report.group}, topic {report.topic or 'any'}"
        else:
            of = "pods" if report.pod else report.object
            what = f"metric {report.metric}" + (f" of {of}" if of else "")
        key = (report.namespace, report.name, type(report))
        if key not in self._expected:
            self._expected[key] = _first_names_text(input_names_of(policy, report))
        expected = self._expected[key]
        raise RequestError("NOT_FOUND", f"{what}: {policy.kind} {policy.name} does not use it; expected {expected}")


def _first_names_text(names: Sequence[str]) -> str:
    more = (f"{len(names) - NAMES_TOLD} more",) if len(names) > NAMES_TOLD else ()
    return cut_text_to_bytes("; ".join((*names[:NAMES_TOLD], *more)), ANSWER_BYTES_MAX) or "no report of that kind"


def _check_time(at_ms: int, now_ms: int, rules: HpaRules) -> None:
    if not 0 <= at_ms <= now_ms + rules.future_max_ms:
        raise invalid_argument_error("at_ms", at_ms, f"0 (now), or up to now, {now_ms}")
    if at_ms and at_ms < now_ms - rules.load_age_max_ms:
        raise invalid_argument_error(
            "at_ms", at_ms, f"0 (now), or milliseconds of the last {rules.load_age_max_ms // 1000} s"
        )


def _field_lengths_and_bounds(report: Reported) -> Iterator[tuple[str, int, int]]:
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
