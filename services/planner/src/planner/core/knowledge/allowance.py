"""What moves.py asks before it moves replicas that nobody asked to move by name; brakes.py answers."""

from collections.abc import Iterable
from typing import Final, Protocol

from spillway.feasibility.cluster_view import WorkloadKey

CAUSE_FAILOVER: Final = "Failover"
CAUSE_RETURN: Final = "Return"
CAUSE_DRAIN: Final = "Drain"
CAUSE_LOST: Final = "Lost"
CAUSE_HOME: Final = "Home"
CAUSE_POLICY: Final = "Policy"
CAUSE_MIGRATE: Final = "Migrate"
CAUSE_DUPLICATE: Final = "Duplicate"
"""Not a cause to move: the same objects are counted under another name of their API server."""
CAUSE_TAKE_BACK: Final = "TakeBack"
CAUSE_MISSING: Final = "DependencyMissing"
"""Not a cause to move: replicas wait for what a cluster lacks, and are not counted there any more."""
CAUSE_AUTOSCALE: Final = "Autoscale"
"""How many, asked for by a policy that names the workload: no brake holds it. It moves nothing."""
CAUSE_SETTLED: Final = "Settled"
"""Not a cause to move: what left is gone."""
CAUSE_WAITING: Final = "Waiting"
"""Not a cause to move: what waited was tried again."""


class Allowance(Protocol):
    """How many replicas may move now. Asked often, so it is cheap; asking spends nothing."""

    @property
    def revision(self) -> int:
        """Another one once a brake or a confirmation may be another one; the budget does not count."""

    def allow(self, cause: str, cluster: str, key: WorkloadKey, replicas: int) -> int:
        """How many of so many replicas may leave this cluster now: 0 when frozen, unconfirmed or out of budget."""

    def spend(self, cause: str, cluster: str, key: WorkloadKey, replicas: int) -> None:
        """So many do move: they are taken from the budget."""

    def frozen(self, cluster: str, key: WorkloadKey) -> bool:
        """Whether nothing is moved or taken back there: the fleet, the cluster or the workload is frozen."""

    def frozen_among(self, clusters: Iterable[str], key: WorkloadKey) -> frozenset[str]:
        """Those of the clusters for which frozen says so."""


class Everything:
    """No brake at all."""

    @property
    def revision(self) -> int:
        return 0

    def allow(self, cause: str, cluster: str, key: WorkloadKey, replicas: int) -> int:
        return replicas

    def spend(self, cause: str, cluster: str, key: WorkloadKey, replicas: int) -> None:
        pass

    def frozen(self, cluster: str, key: WorkloadKey) -> bool:
        return False

    def frozen_among(self, clusters: Iterable[str], key: WorkloadKey) -> frozenset[str]:
        return frozenset(name for name in clusters if self.frozen(name, key))
