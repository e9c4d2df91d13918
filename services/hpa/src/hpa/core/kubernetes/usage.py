"""Compares usage with its target: ratios, and the tolerance around 1. Pure.

Source: kubernetes v1.36.1, pkg/controller/podautoscaler/metrics/utilization.go and replica_calculator.go (Tolerances).
"""

from typing import Final

from msgspec import Struct

from hpa.core.kubernetes.go_numbers import divide_doubles, truncated_quotient, wrap_to_int32, wrap_to_int64


class NoMatchingMetrics(Exception):
    """Raised when no sample belongs to a pod that requests anything."""


class Utilization(Struct, frozen=True):
    """The utilization of pods. ratio: usage to target; percent: whole percent of requests; average_milli: per pod."""

    ratio: float
    percent: int
    average_milli: int


class Tolerance(Struct, frozen=True):
    """The largest distance of a ratio from 1 at which the size stays."""

    down: float = 0.1
    up: float = 0.1

    def is_tolerated(self, ratio: float) -> bool:
        """Returns whether the ratio is so near to 1 that the size stays."""
        return 1.0 - self.down <= ratio <= 1.0 + self.up


DEFAULT_TOLERANCE: Final = Tolerance()
NO_TOLERANCE: Final = Tolerance(0.0, 0.0)


def compute_utilization(used_milli: int, requested_milli: int, pods: int, target_percent: int) -> Utilization:
    """Returns the utilization of the pods that have both a sample and a request, from the sums over them.

    Raises NoMatchingMetrics if nothing is requested.
    """
    used, requested = wrap_to_int64(used_milli), wrap_to_int64(requested_milli)
    if not requested:
        raise NoMatchingMetrics("no metrics returned matched known pods")
    percent = wrap_to_int32(truncated_quotient(wrap_to_int64(used * 100), requested))
    ratio = divide_doubles(float(percent), float(target_percent))
    return Utilization(ratio, percent, truncated_quotient(used, pods))


def ratio_and_average_use(used_milli: int, pods: int, target_milli: int) -> tuple[float, int]:
    """Returns (average usage to target, average usage per pod in milli-units). There must be at least one pod."""
    average_milli = truncated_quotient(wrap_to_int64(used_milli), pods)
    return divide_doubles(float(average_milli), float(target_milli)), average_milli
