"""Names the causes of moves. Defines how the brakes are asked before replicas move without a request by name."""

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
"""Not a cause to move: replicas wait for an object that a cluster lacks, and no longer count there."""
CAUSE_AUTOSCALE: Final = "Autoscale"
"""A scale policy that names the workload asks for a number of replicas. It moves nothing, so no brake holds it."""
CAUSE_SETTLED: Final = "Settled"
"""Not a cause to move: replicas that left are gone."""
CAUSE_WAITING: Final = "Waiting"
"""Not a cause to move: waiting replicas were tried again."""


class Allowance(Protocol):
    """Answers how many replicas may move now. It is asked often, so each answer must be cheap. Only spend_budget()
    uses up the budget."""

    @property
    def allowance_revision(self) -> int:
        """Returns a number that changes when a brake or a confirmation may have changed. The budget does not count."""

    def allow_replicas(self, cause: str, cluster: str, key: WorkloadKey, replicas: int) -> int:
        """Returns how many of `replicas` may leave this cluster now: 0 when frozen, unconfirmed or out of budget."""

    def spend_budget(self, cause: str, cluster: str, key: WorkloadKey, replicas: int) -> None:
        """Subtracts replicas that really move from the budget."""

    def is_frozen(self, cluster: str, key: WorkloadKey) -> bool:
        """Returns whether the fleet, the cluster or the workload is frozen, so that no replica may move or be taken
        back there."""

    def frozen_clusters_among(self, clusters: Iterable[str], key: WorkloadKey) -> frozenset[str]:
        """Returns the clusters that are frozen for this workload."""


class UnlimitedAllowance:
    """An allowance without any brake."""

    @property
    def allowance_revision(self) -> int:
        return 0

    def allow_replicas(self, cause: str, cluster: str, key: WorkloadKey, replicas: int) -> int:
        return replicas

    def spend_budget(self, cause: str, cluster: str, key: WorkloadKey, replicas: int) -> None:
        pass

    def is_frozen(self, cluster: str, key: WorkloadKey) -> bool:
        return False

    def frozen_clusters_among(self, clusters: Iterable[str], key: WorkloadKey) -> frozenset[str]:
        return frozenset(name for name in clusters if self.is_frozen(name, key))
