"""Computes the replicas that a workload's parts reserve, by the known state of their clusters.

Reservations are derived, never released (ARCHITECTURE.md).
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from planner.core.feasibility.reservation import (
    NOTHING_RESERVED,
    Reservation,
    compute_reservation,
    is_job_over,
    is_object_settled,
)
from planner.core.knowledge.owners import PropagatorEpochs
from planner.core.knowledge.workload import Workload, refusal_status
from planner.core.manifests.templates import RolloutTemplate
from spillway.events import WorkloadObserved
from spillway.feasibility.cluster_view import ClusterView, WorkloadKey
from spillway.model import Part, Shape, WorkloadFacts


class ReservingState(Protocol):
    """The parts of the planner's state that reservations depend on."""

    clusters: dict[str, ClusterView]
    owners: PropagatorEpochs
    workloads: dict[WorkloadKey, Workload]

    def workload_keys_in(self, cluster: str) -> Iterable[WorkloadKey]: ...

    def shape_in(self, cluster: str, shape: Shape) -> Shape: ...


def reservations_by_cluster(state: ReservingState, workload: Workload, parts: Iterable[Part]) -> dict[str, Reservation]:
    """Returns the reservations of these parts, by cluster."""
    key, statuses, rolling_from = workload.workload_key, workload.statuses, workload.declared.rolling_from
    found: dict[str, Reservation] = {}
    for listed in parts:
        part, cluster = part_after_refusal(state, workload, listed) if statuses else listed, listed.cluster
        if statuses and is_job_over(part, statuses.get(cluster)):
            found[cluster] = NOTHING_RESERVED
            continue
        view, borne = state.clusters.get(cluster), workload.template_of(part)
        facts = view.facts.get(key) if view is not None else None
        shape = state.shape_in(cluster, borne.shape)
        if facts is None:  # An object that does not exist has no rollout.
            found[cluster] = compute_reservation(part, None, shape, (), 0)
        else:
            earlier = [state.shape_in(cluster, one) for one in rolling_from]
            found[cluster] = compute_reservation(
                part, facts, shape, earlier, borne.surge_of(part.replicas), borne.completions
            )
    return found


def workloads_refused_in(state: ReservingState, cluster: str) -> list[WorkloadKey]:
    """Returns the workloads with a part in the cluster whose ceiling may have been lowered after a refusal.

    Call it after a new claim, and compute these reservations again. The lower ceiling was valid only in the turn of the
    propagator that reported the refusal.
    """
    places = ((key, state.workloads[key]) for key in state.workload_keys_in(cluster))
    return [key for key, workload in places if refusal_status(workload, workload.parts[cluster]) is not None]


def part_after_refusal(state: ReservingState, workload: Workload, part: Part) -> Part:
    """Returns the part with a lower ceiling once its cluster reported, at this version, that it refused the part.

    The propagator that reports this read the object when it knew the version already, and it writes no earlier version.
    So no more replicas than that object has are left of earlier decisions (docs/adr/0027). The ceiling stays while more
    pods may be there. That is so if the capacity record does not show that object, or if the object's controller has
    not followed it. It is also so if the status is of an ended turn, as the new owner may have written since. An
    adopting part is returned as it is.
    """
    said = refusal_status(workload, part)
    if said is None or part.adopting or not state.owners.is_of_newest_turn(said):
        return part
    view = state.clusters.get(part.cluster)
    facts = view.facts.get(workload.workload_key) if view is not None else None
    if is_refusal_shown(said, facts, workload.template_of(part)):
        return replace(part, ceiling=max(part.replicas, said.spec_replicas))
    return part


def is_refusal_shown(said: WorkloadObserved, facts: WorkloadFacts | None, template: RolloutTemplate) -> bool:
    """Returns whether the capacity record agrees with the status in which the propagator refused the part.

    It agrees if both show no object. It also agrees if both show the same version of the object, and the object's
    controller has already removed the pods of an earlier, larger number of replicas.
    """
    if facts is None:
        return said.found_version is None and not (said.spec_replicas or said.replicas)
    return facts.version == said.found_version and is_object_settled(facts, template.surge_of(facts.spec_replicas))
