"""What an API server asks of a log is read as a kubelet reads it; what makes no sense is refused with its field."""

import re

import pytest

from spillway.clusters.api import LogOptions
from vk_bridge.api.log_request import read_log_options
from vk_bridge.settings import VkBridgeSettings

MOST = 1000
ASKED: dict[str, tuple[dict[str, str], LogOptions]] = {
    "nothing": ({}, LogOptions("c", limit_bytes=MOST)),
    "all of it": (
        {"follow": "true", "previous": "1", "timestamps": "", "tailLines": "0", "sinceSeconds": "1", "limitBytes": "7"},
        LogOptions("c", follow=True, previous=True, timestamps=True, tail_lines=0, since_seconds=1, limit_bytes=7),
    ),
    "no": ({"follow": "False", "previous": "0"}, LogOptions("c", limit_bytes=MOST)),
    "a time": (
        {"sinceTime": "2026-11-22T05:00:00Z"},
        LogOptions("c", since_time="2026-11-22T05:00:00Z", limit_bytes=MOST),
    ),
    "more than is given": ({"limitBytes": "1001"}, LogOptions("c", limit_bytes=MOST)),
    "both streams": ({"stream": "All"}, LogOptions("c", limit_bytes=MOST)),
}
REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "less than none": ({"tailLines": "-1"}, "tailLines: '-1': expected a whole number, 0 or more"),
    "no time": ({"sinceSeconds": "0"}, "sinceSeconds: '0': expected a whole number, 1 or more"),
    "no bytes": ({"limitBytes": "0"}, "limitBytes: '0'"),
    "other digits": ({"tailLines": "²"}, "tailLines: '²'"),
    "too many digits": ({"tailLines": "9" * 19}, "tailLines: '9999"),
    "two beginnings": ({"sinceSeconds": "1", "sinceTime": "2026-11-22T05:00:00Z"}, "at most one of them"),
    "a time without a zone": (
        {"sinceTime": "2026-11-22T05:00:00"},
        "sinceTime: '2026-11-22T05:00:00': expected a time",
    ),
    "one stream": ({"stream": "Stderr"}, "stream: 'Stderr': expected All"),
}


@pytest.mark.parametrize(("query", "expected"), ASKED.values(), ids=ASKED)
def test_what_is_asked_is_read(query: dict[str, str], expected: LogOptions) -> None:
    assert read_log_options("c", query, MOST) == expected


@pytest.mark.parametrize(("query", "words"), REFUSED.values(), ids=REFUSED)
def test_what_makes_no_sense_is_named(query: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        read_log_options("c", query, MOST)


FILES = {"kubelet_certificate": "c", "kubelet_key": "k"}


def test_pools_ports_are_read() -> None:
    settings = VkBridgeSettings(kubelet_ports=("pool-1=10250", "pool-2=10251"), **FILES)
    assert settings.port_by_pool == {"pool-1": 10250, "pool-2": 10251}


@pytest.mark.parametrize(
    ("ports", "words"),
    [
        (("10250",), "'10250': expected pool=port"),
        (("pool=0",), "'pool=0': expected pool=port, a port from 1 to 65535"),
        (("pool=65536",), "expected pool=port"),
        (("=1",), "expected pool=port"),
        (("a=1", "b=1"), "'b=1': expected each pool and each port once"),
        (("a=1", "a=2"), "expected each pool and each port once"),
    ],
)
def test_ports_that_make_no_sense_are_named(ports: tuple[str, ...], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        VkBridgeSettings(kubelet_ports=ports, **FILES)


def test_ports_need_a_certificate() -> None:
    with pytest.raises(
        ValueError, match="kubelet_ports: set without kubelet_certificate and kubelet_key: expected all three"
    ):
        VkBridgeSettings(kubelet_ports=("pool=1",))
