"""Reads our own kind ScalePolicy: calendar, time to drain and headroom, which the other kinds do not have. Pure."""

import re
from collections.abc import Sequence
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hpa.core.cron import CronSchedule, InvalidCron, parse_cron, parse_zone
from hpa.core.keda.kafka import KafkaTrigger
from hpa.core.keda.kafka_metadata import InvalidTrigger, read_kafka_trigger
from hpa.core.kubernetes.policy import DOWNSCALE_STABILIZATION_MS, Autoscaler
from hpa.core.manifests.manifests import (
    REPLICAS_MAX,
    BehaviorSpec,
    CrossReference,
    ManifestMetadata,
    MetricSpec,
    ScaleTarget,
    check_kind,
    checked_entries,
    checked_name,
    checked_number,
    read_behavior,
    read_metrics,
    scale_target_of,
)
from hpa.core.own.calendar import (
    BLACKOUT,
    CEILING,
    EXACT,
    FLOOR,
    RecurringPeriod,
    SinglePeriod,
    Window,
    next_occurrence_s,
    parse_unix_time_s,
)
from hpa.core.own.draining import DrainTarget, ServiceRate
from hpa.core.own.headroom import HeadroomShare
from spillway.api import RequestError, invalid_argument_error
from spillway.kubernetes.pod_shape import convert_manifest_part

API_VERSION: Final = "spillway.io/v1"
KIND: Final = "ScalePolicy"
WINDOWS_MAX: Final = 64
SUPPLY_CLASSES: Final = ("dedicated", "idle", "colocated", "cloud")
DURATION: Final = re.compile(r"(\d{1,6})(s|m|h)", re.ASCII)
SECONDS_BY_UNIT: Final = {"s": 1, "m": 60, "h": 3600}
PRECEDENCE_MAX: Final = 1000
HONOURED: Final = frozenset(
    {
        "bootstrapServers",
        "consumerGroup",
        "topic",
        "partitionLimitation",
        "offsetResetPolicy",
        "scaleToZeroOnInvalidOffset",
    }
)
"""The fields of a kafka trigger that a time to drain uses. They select records; thresholds are not among them."""


class WindowSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    name: str
    time_zone: str
    start: str = ""
    end: str = ""
    from_: str = msgspec.field(default="", name="from")
    until: str = ""
    floor: int | None = None
    ceiling: int | None = None
    exact: int | None = None
    blackout: bool = False
    precedence: int = 0


class DrainSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    within: str
    kafka: dict[str, str]
    records_per_second: float
    margin_percent: int = 10
    start_up: str = "0s"
    rebalance: str = "0s"
    alternate: bool = False


class ShareSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    supply_class: str
    percent: int
    start: str = ""
    end: str = ""
    time_zone: str = "UTC"


class ScalePolicySpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    scale_target_ref: CrossReference
    max_replicas: int
    min_replicas: int = 0
    calendar: tuple[WindowSpec, ...] = ()
    drain: DrainSpec | None = None
    headroom: tuple[ShareSpec, ...] = ()
    metrics: tuple[MetricSpec, ...] = ()
    behavior: BehaviorSpec | None = None


class ScalePolicyManifest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    api_version: str
    kind: str
    metadata: ManifestMetadata
    spec: ScalePolicySpec
    status: Any = None


class Drain(Struct, frozen=True):
    """The queue that a policy drains, and its target.

    service.rate: the assumed rate of a replica until it is learned.
    ignored: fields of the manifest that have no effect, for warnings.
    """

    queue: KafkaTrigger
    target: DrainTarget
    service: ServiceRate
    ignored: tuple[str, ...] = ()


class ScalePolicy(Struct, frozen=True):
    """A ScalePolicy. Of the numbers that metrics, drain and headroom ask for, the largest counts, within all bounds.

    autoscaler: decides from the metrics, within this policy's bounds; None without metrics. Its minimum is at least 1
        if no metric can be read without pods. Then only a window or a queue scales the workload to zero.
    """

    name: str
    target: ScaleTarget
    min_replicas: int
    max_replicas: int
    calendar: tuple[Window, ...] = ()
    drain: Drain | None = None
    headroom: tuple[HeadroomShare, ...] = ()
    autoscaler: Autoscaler | None = None


def read_scale_policy(manifest: dict[str, Any], window_ms: int = DOWNSCALE_STABILIZATION_MS) -> ScalePolicy:
    """Returns the ScalePolicy of a manifest. window_ms and errors: as for read_autoscaler."""
    check_kind(manifest, API_VERSION, KIND)
    read: ScalePolicyManifest = convert_manifest_part(manifest, ScalePolicyManifest, KIND)
    spec, where = read.spec, f"{KIND}.spec"
    most = checked_number(spec.max_replicas, 1, REPLICAS_MAX, f"{where}.maxReplicas")
    least = checked_number(spec.min_replicas, 0, most, f"{where}.minReplicas")
    windows = checked_entries(spec.calendar, WINDOWS_MAX, f"{where}.calendar")
    calendar = tuple(
        _read_window(window, (least, most), f"{where}.calendar[{index}]") for index, window in enumerate(windows)
    )
    _check_names([window.name for window in calendar], f"{where}.calendar")
    shares = checked_entries(spec.headroom, WINDOWS_MAX, f"{where}.headroom")
    headroom = tuple(_read_headroom_share(share, f"{where}.headroom[{index}]") for index, share in enumerate(shares))
    metrics = read_metrics(spec.metrics, f"{where}.metrics")
    behavior = read_behavior(spec.behavior, window_ms, f"{where}.behavior")
    if not (calendar or spec.drain or headroom or metrics):
        raise invalid_argument_error(where, "", "a calendar, drain or headroom, or metrics")
    if behavior is not None and not metrics:
        raise invalid_argument_error(
            f"{where}.behavior", "", "metrics beside it: behavior limits the sizes that metrics ask for"
        )
    drain = None if spec.drain is None else _read_drain(spec.drain, f"{where}.drain")
    target = scale_target_of(read.metadata, spec.scale_target_ref)
    autoscaler = Autoscaler(most, metrics, least, behavior) if metrics else None
    if autoscaler is not None and not autoscaler.has_metric_without_pods():
        autoscaler = replace(autoscaler, min_replicas=max(least, 1))
    return ScalePolicy(read.metadata.name, target, least, most, calendar, drain, headroom, autoscaler)


def _check_names(names: Sequence[str], where: str) -> None:
    if len(set(names)) != len(names) or "" in names:
        raise invalid_argument_error(where, list(names), "windows with different names")


def _read_window(spec: WindowSpec, bounds: tuple[int, int], where: str) -> Window:
    numbers = {FLOOR: spec.floor, CEILING: spec.ceiling, EXACT: spec.exact}
    effects = [effect for effect, number in numbers.items() if number is not None] + [BLACKOUT] * spec.blackout
    if len(effects) != 1:
        raise invalid_argument_error(where, effects, "one of floor, ceiling, exact, blackout: true")
    precedence = checked_number(spec.precedence, -PRECEDENCE_MAX, PRECEDENCE_MAX, f"{where}.precedence")
    number = numbers.get(effects[0]) or 0
    if effects[0] != BLACKOUT:
        checked_number(number, *bounds, f"{where}.{effects[0]}")
    return Window(
        checked_name(spec.name, f"{where}.name"), _read_window_times(spec, where), effects[0], number, precedence
    )


def _read_window_times(spec: WindowSpec, where: str) -> RecurringPeriod | SinglePeriod:
    zone = _parse_zone_field(spec.time_zone, where)
    given = tuple(bool(text) for text in (spec.start, spec.end, spec.from_, spec.until))
    if given not in ((True, True, False, False), (False, False, True, True)):
        raise invalid_argument_error(where, spec.name, "either start and end, cron lines, or from and until, dates")
    if spec.start:
        return _read_recurring_period(spec.start, spec.end, zone, where)
    try:
        once = SinglePeriod(parse_unix_time_s(spec.from_, zone), parse_unix_time_s(spec.until, zone))
    except ValueError:
        raise invalid_argument_error(
            f"{where}.from, until", (spec.from_, spec.until), "dates, as 2026-11-27T08:00"
        ) from None
    if once.until_s <= once.from_s:
        raise invalid_argument_error(f"{where}.until", spec.until, f"a time after {spec.from_}")
    return once


def _read_recurring_period(start: str, end: str, zone: ZoneInfo, where: str) -> RecurringPeriod:
    found = RecurringPeriod(_parse_cron_field(start, f"{where}.start"), _parse_cron_field(end, f"{where}.end"), zone)
    for name, line, cron in (("start", start, found.start), ("end", end, found.end)):
        if next_occurrence_s(cron, zone, 0) is None:
            raise invalid_argument_error(f"{where}.{name}", line, "a cron line for a date that the calendar has")
    if found.start == found.end:
        raise invalid_argument_error(f"{where}.end", end, "a time other than start")
    return found


def _parse_cron_field(line: str, where: str) -> CronSchedule:
    try:
        return parse_cron(line)
    except InvalidCron as error:
        raise RequestError("INVALID_ARGUMENT", f"{where}: {error}") from None


def _parse_zone_field(name: str, where: str) -> ZoneInfo:
    if not name:
        raise invalid_argument_error(f"{where}.timeZone", name, "a name of the tz database, as Europe/Berlin")
    try:
        return parse_zone(name)
    except InvalidCron as error:
        raise RequestError("INVALID_ARGUMENT", f"{where}.timeZone: {error}") from None


def _read_drain(spec: DrainSpec, where: str) -> Drain:
    try:
        queue = read_kafka_trigger(spec.kafka)
    except InvalidTrigger as error:
        raise RequestError("INVALID_ARGUMENT", f"{where}.kafka.{error}") from None
    if not 0 < spec.records_per_second <= 1e12:
        raise invalid_argument_error(f"{where}.recordsPerSecond", spec.records_per_second, "more than 0")
    margin = checked_number(spec.margin_percent, 0, 90, f"{where}.marginPercent") / 100
    within_s = _parse_duration_seconds(spec.within, f"{where}.within")
    if not within_s:
        raise invalid_argument_error(f"{where}.within", spec.within, "at least 1s")
    start_s, pause_s = (
        _parse_duration_seconds(spec.start_up, f"{where}.startUp"),
        _parse_duration_seconds(spec.rebalance, f"{where}.rebalance"),
    )
    service = ServiceRate(spec.records_per_second, start_s, pause_s)
    target = DrainTarget(within_s, margin, spec.alternate)
    return Drain(queue, target, service, tuple(sorted(spec.kafka.keys() - HONOURED)))


def _parse_duration_seconds(text: str, where: str) -> int:
    match = DURATION.fullmatch(text)
    if match is None:
        raise invalid_argument_error(where, text, "a duration, as 40s, 5m or 1h")
    return int(match[1]) * SECONDS_BY_UNIT[match[2]]


def _read_headroom_share(spec: ShareSpec, where: str) -> HeadroomShare:
    if spec.supply_class not in SUPPLY_CLASSES:
        raise invalid_argument_error(f"{where}.supplyClass", spec.supply_class, " or ".join(SUPPLY_CLASSES))
    if bool(spec.start) != bool(spec.end):
        raise invalid_argument_error(where, spec.start or spec.end, "both start and end, or neither")
    zone = _parse_zone_field(spec.time_zone, where)
    times = _read_recurring_period(spec.start, spec.end, zone, where) if spec.start else None
    return HeadroomShare(spec.supply_class, checked_number(spec.percent, 0, 100, f"{where}.percent"), times)
