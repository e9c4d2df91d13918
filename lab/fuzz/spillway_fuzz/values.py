"""Makes events of every type. Most values match each other as in real events, and some values are odd."""

import dataclasses
import json
import types
import typing
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any, Final

from hpa.core.stored import NOTHING_STORED, stored_state_bytes
from spillway.addresses import EVENTS_BY_TOPIC, RecordAddress, address_of_event
from spillway.columns import columns_of
from spillway.compressed_text import pack_text
from spillway.events import Event
from spillway.model import Generation, HostPort, NodeRow, PodTable, Taint
from spillway.wire import encode_event, pack_columns
from spillway_fuzz import samples
from spillway_fuzz.mutation import ODD_NUMBERS, ODD_TEXTS, mutated_bytes, mutated_json

CLUSTERS: Final = ("own-1", "own-2", "cloud-1")
LIKELY: Final = {
    "cluster": CLUSTERS,
    "clusters": CLUSTERS,
    "credential": CLUSTERS,
    "pool": CLUSTERS,
    "namespace": ("shop", "bank"),
    "name": ("web", "db", "own-1"),
    "workload": ("shop/web", "shop/db", ""),
    "group": ("ReplicaSet/shop/web-1", "shop/web"),
    "node": ("n1", "n2"),
    "kind": ("Deployment", "StatefulSet", "Job", "ConfigMap", "HorizontalPodAutoscaler", "ScaledObject", "ScalePolicy"),
    "policy_kind": ("HorizontalPodAutoscaler", "ScaledObject"),
    "service": ("snapshot", "propagator", "planner", "hpa", "vk-bridge", "descheduler"),
    "phase": ("Active", "Cordoned", "Draining", "Leaving", "Lost", "Running", "Pending"),
    "tier": ("own", "cloud"),
    "scope": ("fleet", "cluster/own-1", "workload/shop/web", "Failover/own-1", "Drain/own-2"),
    "cause": ("Failover", "Drain", "Need", "Asked", "Apply"),
    "state": ("Present", "Absent", "Orphaned", "Disowned", "Ended", "Admitted", "Refused", "Lent", "Recalled", "Found"),
    "ready": ("true", "false", "unknown", ""),
    "operator": ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
    "split": ("Spread", "Pack", "Even", "MostRemaining", "Weighted", "Cheapest", "Soonest"),
    "unplaceable": ("Wait", "Refuse"),
    "supply_class": ("idle", "dedicated"),
    "metric": ("cpu", "lag", "s0-kafka-orders"),
    "topic": tuple(EVENTS_BY_TOPIC),
    "template": ("t1",),
    "rule": ("all",),
    "work": ("Online", "NearLine", "Offline"),
    "by": ("cluster", "region", "zone"),
    "effect": ("NoSchedule", "NoExecute"),
    "first": ("cpu", "memory", "pods", "web"),
}  # fmt: skip
"""The usual texts of a field, by its name."""


class Unmakeable(Exception):
    """Raised when no event of this type with random values could be encoded."""


def random_event(kind: type, chance: Random) -> Event:
    return typing.cast(Event, _random_value(kind, "", chance, 0))


def random_encodable_event(kind: type, chance: Random) -> tuple[Event, bytes, RecordAddress]:
    """Returns (event, its bytes, its address in the log) for a random event that can be encoded."""
    for _ in range(50):
        event = random_event(kind, chance)
        try:
            return event, encode_event(event), address_of_event(event)
        except (ValueError, TypeError, OverflowError, KeyError):  # A number that is too large; a service without turns.
            continue
    raise Unmakeable(kind.__name__)


def _random_value(hint: Any, name: str, chance: Random, depth: int) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = next(part for part in arguments if part is not type(None))
        return _random_value(inner, name, chance, depth) if chance.random() < 0.5 else None
    if origin is tuple and arguments[-1] is Ellipsis:
        most = 3 if depth < 3 else 1
        return tuple(_random_value(arguments[0], name, chance, depth + 1) for _ in range(chance.randint(0, most)))
    if origin is tuple:
        return tuple(
            _random_value(inner, where, chance, depth) for inner, where in zip(arguments, ("first", ""), strict=True)
        )
    if hint is Generation:
        return Generation(_random_number(chance), _random_number(chance))
    if dataclasses.is_dataclass(hint):
        hints = _type_hint_by_field(typing.cast(Any, hint))
        return typing.cast(Any, hint)(
            **{key: _random_value(inner, key, chance, depth + 1) for key, inner in hints.items()}
        )
    return _SCALARS[hint](name, chance)


@cache
def _type_hint_by_field(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _random_number(chance: Random) -> int:
    if chance.random() < 0.9:
        return chance.randint(0, 4)
    return int(chance.choice([number for number in ODD_NUMBERS if isinstance(number, int) and abs(number) <= 2**63]))


def _random_text(name: str, chance: Random) -> str:
    return chance.choice(LIKELY.get(name, CLUSTERS) if chance.random() < 0.93 else ODD_TEXTS)


def _random_float(_: str, chance: Random) -> float:
    return chance.choice((0.0, 0.1, 1.5, -1.0, 1e308, float("inf"), float("nan")))


def _random_field_bytes(name: str, chance: Random) -> bytes:
    value_bytes = _BYTES.get(name, _short_random_bytes)(chance)
    return mutated_bytes(value_bytes, chance) if chance.random() < 0.1 else value_bytes


def _random_manifest(chance: Random) -> bytes:
    tree = chance.choice((*samples.WORKLOADS, *samples.SCALERS))
    return mutated_json(tree, chance).encode(errors="replace") if chance.random() < 0.4 else json.dumps(tree).encode()


def _short_random_bytes(chance: Random) -> bytes:
    return chance.randbytes(chance.randint(0, 20))


def random_packed_columns(chance: Random) -> bytes:
    return pack_columns(
        columns_of([_random_node_row(name, chance) for name in ("n1", "n2", "n3")[: chance.randint(0, 3)]])
    )


def _random_node_row(name: str, chance: Random) -> NodeRow:
    labels = {"kubernetes.io/hostname": name, "zone": chance.choice("abc")}
    return NodeRow(
        name=name,
        allocatable={"cpu": 4_000, "memory": 2**34, "pods": 110} | ({"gpu": 1} if chance.random() < 0.2 else {}),
        requested={"cpu": chance.choice((0, 500, 4_000)), "pods": 1},
        labels=tuple(sorted(labels.items())),
        taints=(Taint("gpu", "only", "NoSchedule"),) if chance.random() < 0.2 else (),
        state=chance.randint(0, 2),
        unschedulable=chance.random() < 0.1,
        ports=(HostPort("0.0.0.0", "TCP", 80),) if chance.random() < 0.2 else (),
        pods=((PodTable("shop", (("app", "web"),)), chance.randint(1, 3)),) if chance.random() < 0.5 else (),
    )


def random_stored_state(chance: Random) -> bytes:
    """Returns a stored state in hpa's packed form: an empty one, or one that was mutated as JSON."""
    if chance.random() < 0.5:
        return stored_state_bytes(NOTHING_STORED)
    return pack_text(mutated_json(samples.STORED, chance).encode(errors="replace"))


def random_division(chance: Random) -> bytes:
    return pack_text(mutated_json(samples.DIVISION, chance).encode(errors="replace"))


_SCALARS: Final[dict[Any, Callable[[str, Random], Any]]] = {
    str: _random_text,
    int: lambda _, chance: _random_number(chance),
    bool: lambda _, chance: chance.random() < 0.3,
    float: _random_float,
    bytes: _random_field_bytes,
}
_BYTES: Final = {
    "manifest": _random_manifest,
    "pod": _random_manifest,
    "dependencies": _random_manifest,
    "columns": random_packed_columns,
    "state": random_stored_state,
    "division": random_division,
}
