"""Timers of unbound replicas, and holds that keep a cluster from getting more of a shape or workload."""

from dataclasses import dataclass

from spillway.feasibility.cluster_view import WorkloadKey
from spillway.model import Generation, Shape

HoldKey = tuple[str, Shape | WorkloadKey]
"""(cluster, subject). The subject gets no more replicas there. It is a shape or a workload."""


@dataclass(slots=True)
class ProgressTimer:
    """The time since which a part's unbound replicas have made no progress.

    version: the part's version, and whether the part was carried out there. If it was, the cluster itself keeps the
    replicas from binding.
    unbound: the number of unbound replicas.
    since: the time of the last progress.
    missing_since: when the cluster first reported a missing object, also under earlier versions of the part. None: no
    object is missing.
    """

    version: tuple[Generation, bool]
    unbound: int
    since: float
    missing_since: float | None = None


@dataclass(slots=True)
class PlacementHold:
    """A pause in which a cluster gets no more replicas of a shape or workload. The next hold lasts twice as long.

    until: the time when the pause ends. seconds: the length of the pause. over: whether the pause has ended.
    why: the cluster's reason, for users; empty if it gave none.
    workload: the workload whose replicas were taken back last; None if not known.
    """

    until: float
    seconds: float
    over: bool = False
    why: str = ""
    workload: WorkloadKey | None = None
