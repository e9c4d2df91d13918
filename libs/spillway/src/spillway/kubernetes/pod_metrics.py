"""The samples of pods and nodes from metrics.k8s.io, and Kubernetes' times and durations in milliseconds. Pure."""

import re
from datetime import datetime
from functools import lru_cache
from typing import Final

from msgspec import Struct

from spillway.kubernetes.objects import Kind, Meta
from spillway.kubernetes.quantities import INT64_MAX, Quantity

CHARACTERS_MAX: Final = 100
"""The most characters of a time or a duration. A longer text counts as no value and is stored nowhere."""
DURATION_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
MS_BY_UNIT: Final = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3, "m": 60e3, "h": 3600e3}


class ContainerMetrics(Struct, frozen=True, gc=False, rename="camel"):
    name: str
    usage: dict[str, Quantity] = {}


class PodMetrics(Struct, frozen=True, gc=False, rename="camel"):
    """The sample of a pod. timestamp: the end of the sample.

    window: the time that it covers, in Go's form of durations.
    """

    metadata: Meta
    timestamp: str
    window: str
    containers: tuple[ContainerMetrics, ...] = ()


class NodeMetrics(Struct, frozen=True, gc=False, rename="camel"):
    """The sample of a node. usage: of everything that runs on it. timestamp, window: as in PodMetrics."""

    metadata: Meta
    timestamp: str
    window: str
    usage: dict[str, Quantity] = {}


POD_METRICS: Final = Kind("metrics.k8s.io", "v1beta1", "pods", PodMetrics)
NODE_METRICS: Final = Kind("metrics.k8s.io", "v1beta1", "nodes", NodeMetrics, namespaced=False)


def unix_ms(text: str | None) -> int:
    """Returns an RFC 3339 time with a zone as milliseconds of Unix time; 0 for any other text, and for None."""
    return _unix_ms(text) if text and len(text) <= CHARACTERS_MAX else 0


@lru_cache(maxsize=65536)
def _unix_ms(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return 0
    return 0 if at.tzinfo is None else int(at.timestamp() * 1000)


def duration_ms(text: str) -> int:
    """Returns a duration in Go's form (1m0.5s) as milliseconds; 0 if it cannot be read."""
    return _duration_ms(text) if len(text) <= CHARACTERS_MAX else 0


@lru_cache(maxsize=1024)
def _duration_ms(text: str) -> int:
    parts = DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return 0
    return min(INT64_MAX, round(sum(float(number) * MS_BY_UNIT[unit] for number, unit in parts)))
