"""What runs out: how long unbound replicas have waited, and how long a cluster gets no more of something."""

from dataclasses import dataclass

from spillway.feasibility.cluster_view import WorkloadKey
from spillway.model import Generation, Shape

HoldKey = tuple[str, Shape | WorkloadKey]
"""A cluster, and whom it is held against: a shape that its scheduler cannot place, or one workload."""


@dataclass(slots=True)
class Timer:
    """When a part's unbound replicas last made progress: since then they wait.

    version: of the part that it is about, and whether it was the cluster that kept them from binding. missing_since:
    when the cluster first said that something is missing, whatever versions the part has had since; None: it is not.
    """

    version: tuple[Generation, bool]
    unbound: int
    since: float
    missing_since: float | None = None


@dataclass(slots=True)
class Hold:
    """No more of this shape, or of this workload, in this cluster until then; the next time for twice as long.

    why: what the cluster said that kept the replicas out, for people; empty where nothing was said. workload: whose
    replicas were taken back last; None where that is not known.
    """

    until: float
    seconds: float
    over: bool = False
    why: str = ""
    workload: WorkloadKey | None = None
