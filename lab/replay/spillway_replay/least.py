"""Computes the fewest moves that any division needs, over all divisions, by dynamic programming."""

from collections.abc import Sequence
from dataclasses import dataclass

CLUSTERS_MAX = 6


@dataclass(frozen=True, slots=True)
class Bound:
    """The bounds of one cluster: the replicas that it had, and the fewest and the most that it may have."""

    before: int
    least: int
    most: int


def least_moves(bounds: Sequence[Bound], placed: int) -> int:
    """Returns the least Σ max(0, before − after) over all divisions of `placed` replicas within the bounds.

    Raises ValueError when there is no such division, or too many clusters to look at them all.
    """
    if len(bounds) > CLUSTERS_MAX:
        raise ValueError(f"{len(bounds)} clusters: expected at most {CLUSTERS_MAX}")
    fewest: dict[int, int] = {0: 0}
    for bound in bounds:
        with_this: dict[int, int] = {}
        for taken, moves in fewest.items():
            for after in range(bound.least, min(bound.most, placed - taken) + 1):
                total = moves + max(0, bound.before - after)
                if total < with_this.get(taken + after, total + 1):
                    with_this[taken + after] = total
        fewest = with_this
    if placed not in fewest:
        raise ValueError(f"{placed} replicas cannot be divided within {list(bounds)}")
    return fewest[placed]
