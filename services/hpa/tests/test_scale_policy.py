"""Our own kind: what it becomes, and what is said of a wrong one."""

from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml

from hpa.core.cron import parse_cron
from hpa.core.keda.kafka import KafkaTrigger
from hpa.core.manifests.manifests import ScaleTarget
from hpa.core.manifests.scale_policy import Drain, ScalePolicy, read_scale_policy
from hpa.core.own.calendar import BLACKOUT, FLOOR, RecurringPeriod, SinglePeriod, Window
from hpa.core.own.draining import DrainTarget, ServiceRate
from hpa.core.own.headroom import HeadroomShare
from spillway.api import RequestError

TEXT = """
apiVersion: spillway.io/v1
kind: ScalePolicy
metadata: {name: orders, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: worker}
  maxReplicas: 40
  calendar:
    - {name: day, timeZone: Europe/Berlin, start: 0 8 * * 1-5, end: 0 18 * * 1-5, floor: 10, precedence: 5}
    - {name: sale, timeZone: UTC, from: "2026-11-27", until: "2026-11-28T06:00", blackout: true}
  drain:
    within: 5m
    startUp: 40s
    rebalance: 3s
    recordsPerSecond: 120
    alternate: true
    kafka: {bootstrapServers: "kafka.shop:9092", consumerGroup: g, topic: orders}
  headroom:
    - {supplyClass: idle, percent: 80}
"""


def test_a_scale_policy_is_read() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert read_scale_policy(yaml.safe_load(TEXT)) == ScalePolicy(
        name="orders",
        target=ScaleTarget("Deployment", "shop", "worker"),
        min_replicas=0,
        max_replicas=40,
        calendar=(
            Window("day", RecurringPeriod(parse_cron("0 8 * * 1-5"), parse_cron("0 18 * * 1-5"), berlin), FLOOR, 10, 5),
            Window("sale", SinglePeriod(1_795_737_600, 1_795_845_600), BLACKOUT),
        ),
        drain=Drain(
            KafkaTrigger("g", ("kafka.shop:9092",), "orders"),
            DrainTarget(300, 0.1, alternates=True),
            ServiceRate(120.0, 40, 3),
        ),
        headroom=(HeadroomShare("idle", 80),),
    )


@pytest.mark.parametrize(
    ("part", "value", "said"),
    [
        ("minReplicas", 41, "minReplicas: 41: expected 0 to 40"),
        ("calendar", [{"name": "x", "timeZone": "UTC", "start": "0 1 * * *", "end": "0 2 * * *"}], "one of floor"),
        ("calendar", [{"name": "x", "timeZone": "UTC", "start": "0 1 * * *", "floor": 3}], "either start and end"),
        (
            "calendar",
            [{"name": "x", "timeZone": "UTC", "start": "0 0 30 2 *", "end": "0 2 * * *", "floor": 3}],
            "calendar[0].start: '0 0 30 2 *': expected a cron line for a date that the calendar has",
        ),
        (
            "calendar",
            [{"name": "x", "timeZone": "UTC", "start": "0 0 * * *", "end": "0 0 * * 7", "floor": 3}],
            "calendar[0].end: cron '0 0 * * 7': day of week '7': expected 0 to 6",
        ),
        (
            "calendar",
            [{"name": "x", "timeZone": "Mars", "from": "2026-11-27", "until": "2026-11-28", "floor": 3}],
            "timeZone: time zone 'Mars': expected a name",
        ),
        (
            "calendar",
            [{"name": "x", "timeZone": "", "from": "2026-11-27", "until": "2026-11-28", "floor": 3}],
            "calendar[0].timeZone: '': expected a name of the tz database",
        ),
        (
            "calendar",
            [{"name": "x", "timeZone": "UTC", "from": "2026-11-28", "until": "2026-11-27", "floor": 3}],
            "until: '2026-11-27': expected a time after 2026-11-28",
        ),
        (
            "calendar",
            [{"name": "x", "timeZone": "UTC", "from": "tomorrow", "until": "2026-11-27", "floor": 3}],
            "expected dates, as 2026-11-27T08:00",
        ),
        (
            "calendar",
            [{"name": "x", "timeZone": "UTC", "from": "2026-11-26", "until": "2026-11-27", "exact": 41}],
            "exact: 41: expected 0 to 40",
        ),
        ("drain", {"within": "5m", "kafka": {}, "recordsPerSecond": 1}, "drain.kafka.consumerGroup: missing"),
        ("headroom", [{"supplyClass": "spare", "percent": 5}], "supplyClass: 'spare': expected dedicated or idle"),
        ("headroom", [{"supplyClass": "idle", "percent": 101}], "percent: 101: expected 0 to 100"),
    ],
)
def test_a_wrong_policy_is_refused_with_field_value_and_what_was_expected(part: str, value: Any, said: str) -> None:
    manifest = yaml.safe_load(TEXT)
    manifest["spec"][part] = value
    with pytest.raises(RequestError) as refused:
        read_scale_policy(manifest)
    assert said in refused.value.text


def test_a_policy_that_says_nothing_is_refused() -> None:
    manifest = yaml.safe_load(TEXT)
    for part in ("calendar", "drain", "headroom"):
        del manifest["spec"][part]
    with pytest.raises(RequestError, match="expected a calendar, drain or headroom"):
        read_scale_policy(manifest)
