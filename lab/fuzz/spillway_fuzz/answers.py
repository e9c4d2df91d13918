"""Fuzzes small readers: of other servers' answers, and of the requests that API servers send to a virtual node."""

from collections.abc import Mapping
from random import Random
from typing import Final

from hpa.external_metrics.prometheus import ValueUnknown, parse_value_milli
from spillway.kubernetes.objects import is_object_name
from spillway.kubernetes.pod_metrics import duration_ms, unix_ms
from spillway.kubernetes.quantities import nanos_of, parse_quantity
from spillway_fuzz.mutation import ODD_TEXTS, mutated_bytes, mutated_json
from spillway_fuzz.target import Input, Target, acceptance_check
from vk_bridge.api.log_request import read_log_options

_ANSWERS: Final = (
    {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [1e9, "2.5"]}]}},
    {"status": "success", "data": {"resultType": "scalar", "result": [1e9, "7"]}},
    {"status": "success", "data": {"resultType": "vector", "result": []}},
    {"status": "error", "errorType": "bad_data", "error": "parse error"},
)
_QUERY: Final = {
    "follow": "true",
    "tailLines": "10",
    "timestamps": "true",
    "sinceSeconds": "60",
    "sinceTime": "2026-11-22T09:00:00Z",
    "limitBytes": "1000",
    "previous": "false",
    "stream": "All",
}
_AMOUNTS: Final = ("500m", "1.5Gi", "2", "1e3", "100n", "-1", "+0.5", "9223372036854775807", "1E", "3Ei")
_TIMES: Final = ("2026-11-22T09:00:00Z", "2026-11-22T09:00:00.123456+02:00", "1h2m3.5s", "100ms", "1µs")


def targets() -> list[Target]:
    return [
        Target(
            "prometheus' answers",
            _mutated_prometheus_answer,
            acceptance_check(_read_prometheus_answer, ValueUnknown),
            share=60,
        ),
        Target("questions to the kubelet", _mutated_log_query, acceptance_check(_read_log_query, ValueError), share=50),
        Target(
            "amounts",
            lambda chance: _nearly_valid_text(_AMOUNTS, chance),
            acceptance_check(_read_amount, ValueError),
            share=60,
        ),
        Target(
            "times and durations", lambda chance: _nearly_valid_text(_TIMES, chance), _read_time_and_duration, share=50
        ),
    ]


def _mutated_prometheus_answer(chance: Random) -> Input:
    body = mutated_json(chance.choice(_ANSWERS), chance).encode(errors="replace")
    return chance.choice((200, 200, 400, 503)), mutated_bytes(body, chance) if chance.random() < 0.1 else body


def _read_prometheus_answer(given: tuple[int, bytes]) -> None:
    parse_value_milli(*given)


def _mutated_log_query(chance: Random) -> Input:
    query = {name: value for name, value in _QUERY.items() if chance.random() < 0.4}
    if query:
        name = chance.choice(list(query))
        query[name] = _nearly_valid_text((query[name],), chance)
    return chance.choice(("app", "..", "a" * 300, "")), query


def _read_log_query(given: tuple[str, Mapping[str, str]]) -> None:
    container, query = given
    is_object_name(container)
    read_log_options(container, query, 1_000_000)


def _nearly_valid_text(valid: tuple[str, ...], chance: Random) -> str:
    if chance.random() < 0.3:
        return chance.choice(ODD_TEXTS)
    return mutated_bytes(chance.choice(valid).encode(), chance).decode(errors="replace")


def _read_amount(text: str) -> None:
    nanos_of(text)
    parse_quantity(text, milli=True)


def _read_time_and_duration(text: str) -> bool:
    """Reads a time and a duration. Neither reader raises: 0 stands for an unreadable text. Both values fit 64 bits."""
    found = unix_ms(text), duration_ms(text)
    assert all(-(2**63) <= one < 2**63 for one in found), found
    return any(found)
