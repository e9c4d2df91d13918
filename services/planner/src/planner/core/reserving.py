"""What the parts of a workload reserve (P4), by what is known of their clusters."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from planner.core.feasibility.reservation import NOTHING_RESERVED, Reservation, is_over, reserve
from planner.core.workload import Workload, said_missing
from spillway.events import WorkloadObserved
from spillway.feasibility.cluster_view import ClusterView
from spillway.model import Part, Shape


class Known(Protocol):
    """What of the planner's state says it."""

    clusters: dict[str, ClusterView]

    def shape_in(self, cluster: str, shape: Shape) -> Shape: ...


def reserved(state: Known, workload: Workload, parts: Iterable[Part]) -> dict[str, Reservation]:
    """By cluster, of these parts."""
    key, statuses, rolling_from = workload.key, workload.statuses, workload.declared.rolling_from
    found: dict[str, Reservation] = {}
    for listed in parts:
        part, cluster = _as_answered(listed, statuses.get(listed.cluster)), listed.cluster
        if statuses and is_over(part, statuses.get(cluster)):
            found[cluster] = NOTHING_RESERVED
            continue
        view, borne = state.clusters.get(cluster), workload.template_of(part)
        facts = view.facts.get(key) if view is not None else None
        shape = state.shape_in(cluster, borne.shape)
        if facts is None:  # What is not there does not roll.
            found[cluster] = reserve(part, None, shape, (), 0)
        else:
            earlier = [state.shape_in(cluster, one) for one in rolling_from]
            found[cluster] = reserve(part, facts, shape, earlier, borne.surge_of(part.replicas), borne.completions)
    return found


def _as_answered(part: Part, said: WorkloadObserved | None) -> Part:
    """What was decided before a part is no ceiling any more once its cluster said of this very part that something is
    missing: nothing of it was written, and nobody is told what was before (docs/adr/0026). What its object has all the
    same, by the status or by the record, is held.
    """
    if said is None or not said_missing(part, said):
        return part
    return replace(part, ceiling=max(part.replicas, said.spec_replicas))
