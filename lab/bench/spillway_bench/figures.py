"""Defines the figures: their unit, goal and baseline. A baseline is measured in the same run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class Unmeasured(Exception):
    """Raised when an observation cannot count as a measurement; the text says why. found: the figures before that."""

    def __init__(self, text: str, found: "Mapping[str, Measured] | None" = None) -> None:
        super().__init__(text)
        self.found = found or {}


@dataclass(frozen=True, slots=True)
class Kind:
    """The definition of a figure.

    goal: the largest wanted value, or the smallest with at_least; None: the value is only noted.
    baseline: a text that says what the baseline is.
    """

    name: str
    unit: str
    goal: float | None
    baseline: str
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """A measured value with its baseline. floor: the value that memory bandwidth alone allows; None: no sense here."""

    value: float
    baseline: float
    floor: float | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure with this run's value, or with the reason why this run has none."""

    kind: Kind
    measured: Measured | None
    trouble: str = ""

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "failed"
        if self.kind.goal is None:
            return "noted"
        value, goal = self.measured.value, self.kind.goal
        return "met" if (value >= goal if self.kind.at_least else value <= goal) else "missed"

    def as_json(self) -> dict[str, str | float | None]:
        value, baseline = (self.measured.value, self.measured.baseline) if self.measured else (None, None)
        floor = self.measured.floor if self.measured else None
        ratio = value / baseline if value is not None and baseline else None
        entry: dict[str, str | float | None] = {
            "name": self.kind.name,
            "value": _round_to_four_digits(value),
            "unit": self.kind.unit,
            "goal": self.kind.goal,
            "baseline": _round_to_four_digits(baseline),
            "ratio": _round_to_four_digits(ratio),
        }
        if value is not None and floor:
            entry |= {"floor": _round_to_four_digits(floor), "floor_ratio": _round_to_four_digits(value / floor)}
        return entry | {"error": self.trouble} if self.trouble else entry


_DOWNLOAD = "the same pages by bare HTTP, and json.loads"
_EMPTY_CALL = "an empty gRPC call (health check) on the same server"
_ROUND_TRIP = "a bare Kafka round trip on the same broker"
_ALL_WELL = "the same while every cluster answers"
_PLAIN_FLEET = "plain NumPy over all clusters"
_RELAY = "the same values through an empty consumer and transactional producer"
_BYTES_ALONE = "the same bytes read and written, nothing decided"
_BARE_POD = "a pod made by bare HTTP, bound already, until a watch says so, at the same rate"
_BARE_STATUS = "a pod's status by bare HTTP, until a watch says so, at the same rate"
_BARE_END = "as many pods, one a node, deleted by bare HTTP, until each is gone"
_PLAIN_CLUSTER = "plain NumPy over the cluster, shape by shape"

KINDS: tuple[Kind, ...] = (
    Kind("collector_list_s", "s", 3, _DOWNLOAD),
    Kind("collector_list_from_claim_s", "s", None, _DOWNLOAD),
    Kind("collector_memory_mb", "MB", 200, "the same process with an empty cluster"),
    Kind("collector_memory_peak_mb", "MB", None, "the same process with an empty cluster"),
    Kind("planner_process_memory_mb", "MB", None, "the same process with an empty cluster"),
    Kind("capacity_call_p50_ms", "ms", None, _EMPTY_CALL),
    Kind("capacity_call_p99_ms", "ms", None, _EMPTY_CALL),
    Kind("node_change_visible_p50_ms", "ms", None, _ROUND_TRIP),
    Kind("node_change_visible_p99_ms", "ms", 250, _ROUND_TRIP),
    Kind("node_change_poll_p50_ms", "ms", None, _EMPTY_CALL),
    Kind("apply_p50_ms", "ms", None, f"{_EMPTY_CALL}, at the same rate"),
    Kind("apply_p99_ms", "ms", None, f"{_EMPTY_CALL}, at the same rate"),
    Kind("apply_burst_per_s", "1/s", None, f"{_EMPTY_CALL}, as many at once"),
    Kind("durable_plans_per_second", "1/s", 500, f"{_EMPTY_CALL}, as many at once", at_least=True),
    Kind("durable_plans_alone_per_second", "1/s", 500, f"{_EMPTY_CALL}, as many at once", at_least=True),
    Kind("freed_to_placed_p50_ms", "ms", None, _ROUND_TRIP),
    Kind("freed_to_placed_p99_ms", "ms", 1000, _ROUND_TRIP),
    Kind("plan_known_shape_p50_ms", "ms", None, _PLAIN_FLEET),
    Kind("plan_known_shape_p99_ms", "ms", 1, _PLAIN_FLEET),
    Kind("plan_new_shape_p50_ms", "ms", None, _PLAIN_FLEET),
    Kind("plan_new_shape_p99_ms", "ms", 10, _PLAIN_FLEET),
    Kind("plan_new_spread_shape_p50_ms", "ms", None, f"{_PLAIN_FLEET}, without spread and affinity"),
    Kind("plan_new_spread_shape_p99_ms", "ms", None, f"{_PLAIN_FLEET}, without spread and affinity"),
    Kind("plans_per_second", "1/s", 5000, _PLAIN_FLEET, at_least=True),
    Kind("explain_p50_ms", "ms", None, _PLAIN_FLEET),
    Kind("explain_p99_ms", "ms", None, _PLAIN_FLEET),
    Kind("explain_step_max_ms", "ms", None, _PLAIN_FLEET),
    Kind("batched_plan_us", "µs", None, _BYTES_ALONE),
    Kind("batched_plan_unlike_us", "µs", None, _BYTES_ALONE),
    Kind("batched_plan_100_clusters_us", "µs", None, _BYTES_ALONE),
    Kind("node_change_1000_shapes_ms", "ms", 10, _PLAIN_CLUSTER),
    Kind("node_change_1000_shapes_p99_ms", "ms", None, _PLAIN_CLUSTER),
    Kind("node_change_100_spread_shapes_ms", "ms", None, f"{_PLAIN_CLUSTER}, without spread and affinity"),
    Kind("planner_memory_mb", "MB", 1000, "allocatable and requested of all nodes"),
    Kind("fleet_refresh_cpu_s", "s", 2, "the same records decompressed, parsed, written to one matrix"),
    Kind("start_from_log_s", "s", 10, "the same records read and decoded, nothing kept"),
    Kind("capacity_new_shape_p50_ms", "ms", None, _EMPTY_CALL),
    Kind("capacity_new_shape_p99_ms", "ms", 50, _EMPTY_CALL),
    Kind("capacity_one_frozen_p50_ms", "ms", None, _ALL_WELL),
    Kind("capacity_one_frozen_p99_ms", "ms", None, _ALL_WELL),
    Kind("hpa_decisions_per_second", "1/s", 10_000, "every decision from all the workload's pods anew", at_least=True),
    Kind(
        "hpa_records_per_second",
        "1/s",
        None,
        "the same records read and what follows written, nothing decided",
        at_least=True,
    ),
    Kind("hpa_memory_mb", "MB", None, "the same process before"),
    Kind("front_call_p50_ms", "ms", None, "the same answer by grpcio's own asyncio server, TLS too"),
    Kind("flooded_call_p99_ms", "ms", 500, "the same calls without the flood"),
    Kind("flooded_by_tokens_p99_ms", "ms", 500, "the same calls without the flood"),
    Kind("flooded_mutual_tls_p99_ms", "ms", 500, "the same calls without the flood"),
    Kind("metric_to_scale_p50_ms", "ms", None, _RELAY),
    Kind("metric_to_scale_p99_ms", "ms", 1000, _RELAY),
    Kind("metric_to_scale_light_p50_ms", "ms", None, _RELAY),
    Kind("metric_to_scale_light_p99_ms", "ms", 100, _RELAY),
    Kind("lent_nodes_per_bridge", "", 2000, "the idle nodes that the owners have", at_least=True),
    Kind("lent_rest_cpu_percent", "%", None, "renewing as many Leases by bare HTTP, one connection"),
    Kind("lent_bridge_memory_mb", "MB", None, "the same process before anything was lent"),
    Kind("bound_to_created_p50_ms", "ms", None, _BARE_POD),
    Kind("bound_to_created_p99_ms", "ms", None, _BARE_POD),
    Kind("status_to_mirrored_p50_ms", "ms", None, _BARE_STATUS),
    Kind("status_to_mirrored_p99_ms", "ms", None, _BARE_STATUS),
    Kind("return_of_1_over_grace_p50_s", "s", None, _BARE_END),
    Kind("return_of_1_over_grace_p99_s", "s", 5, _BARE_END),
    Kind("return_of_100_over_grace_p50_s", "s", None, _BARE_END),
    Kind("return_of_100_over_grace_p99_s", "s", 5, _BARE_END),
    Kind("return_over_grace_p50_s", "s", None, _BARE_END),
    Kind("return_over_grace_p99_s", "s", 5, _BARE_END),
    Kind("planner_takeover_s", "s", None, "the same after a clean stop (SIGTERM)"),
    Kind("collector_takeover_s", "s", None, "the same after a clean stop (SIGTERM)"),
)
LARGE_GOALS: Mapping[str, float] = {"collector_list_s": 10, "collector_memory_mb": 400}
"""The goals of these figures for --large, which makes the big cluster bigger."""
KIND_BY_NAME: Mapping[str, Kind] = {kind.name: kind for kind in KINDS}


def percentile(values: Sequence[float], percent: float) -> float:
    """Returns a percentile by nearest rank: one of the values. Raises Unmeasured without values."""
    if not values:
        raise Unmeasured("no samples")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def percentile_in_ms(values: Sequence[float], percent: float) -> float:
    return percentile(values, percent) * 1000


def _round_to_four_digits(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
