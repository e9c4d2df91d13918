"""Bounds for replicas that must run near each other, before any of them runs: the first one fixes the domain."""

import numpy as np

from spillway.feasibility.nodes import NO_DOMAIN
from spillway.feasibility.topology import SpreadBound
from spillway.model import Int64s

GROUPS_MAX = 64
"""The most groups that are computed one by one if there are ceilings. With more, only one replica is certain."""


class NearBound:
    """The bound of a shape whose replicas must run near each other.

    groups: [rows], the group of each node. All replicas go to the group of the first replica. A
    node with NO_DOMAIN takes none.
    """

    def __init__(self, everywhere: SpreadBound, groups: Int64s) -> None:
        takes = np.where(groups != NO_DOMAIN, everywhere.takes, 0)
        self._sums = np.bincount(groups[takes > 0], takes[takes > 0]).astype(np.int64)
        self._sums = self._sums[self._sums > 0]
        self._bounds: list[SpreadBound] | None = None
        self._everywhere = everywhere
        if everywhere.ceilings:
            found = np.unique(groups[takes > 0])
            if len(found) <= GROUPS_MAX:
                bounds = [
                    SpreadBound(np.where(groups == group, takes, 0), everywhere.ceilings) for group in found.tolist()
                ]
                self._bounds = [bound for bound in bounds if bound.certain_replicas()]
        self.possible = self._compute_possible_replicas()

    @property
    def extra_places_per_pod(self) -> int:
        return self._everywhere.extra_places_per_pod

    def certain_replicas(self, lost: int = 0) -> int:
        """Returns the replicas that are placed for any node of the first replica, after losing room for `lost` ones."""
        if not self._everywhere.ceilings:
            return max(0, int(self._sums.min(initial=self.possible)) - lost)
        if self._bounds is None:
            return max(0, min(1, self._everywhere.certain_replicas()) - lost)
        return min((bound.certain_replicas(lost) for bound in self._bounds), default=0)

    def _compute_possible_replicas(self) -> int:
        if self._bounds is None:
            return min(int(self._sums.max(initial=0)), self._everywhere.possible)
        return max((bound.possible for bound in self._bounds), default=0)
