"""What the parts of a workload reserve (P4), by what is known of their clusters."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from planner.core.feasibility.reservation import NOTHING_RESERVED, Reservation, is_over, is_settled, reserve
from planner.core.knowledge.owners import Owners
from planner.core.knowledge.workload import Workload, refused_there
from planner.core.manifests.templates import Template
from spillway.events import WorkloadObserved
from spillway.feasibility.cluster_view import ClusterView, WorkloadKey
from spillway.model import Part, Shape, WorkloadFacts


class Known(Protocol):
    """What of the planner's state says it."""

    clusters: dict[str, ClusterView]
    owners: Owners
    workloads: dict[WorkloadKey, Workload]

    def keys_in(self, cluster: str) -> Iterable[WorkloadKey]: ...

    def shape_in(self, cluster: str, shape: Shape) -> Shape: ...


def reserved(state: Known, workload: Workload, parts: Iterable[Part]) -> dict[str, Reservation]:
    """By cluster, of these parts."""
    key, statuses, rolling_from = workload.key, workload.statuses, workload.declared.rolling_from
    found: dict[str, Reservation] = {}
    for listed in parts:
        part, cluster = as_answered(state, workload, listed) if statuses else listed, listed.cluster
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


def held_again(state: Known, cluster: str) -> list[WorkloadKey]:
    """The workloads of which a word ended a ceiling there, as long as nobody else had the cluster's turn."""
    places = ((key, state.workloads[key]) for key in state.keys_in(cluster))
    return [key for key, workload in places if refused_there(workload, workload.parts[cluster]) is not None]


def as_answered(state: Known, workload: Workload, part: Part) -> Part:
    """The part without what was decided before it, once its cluster said of this very version why it is not as decided.

    Whoever says so has read the object after it knew the version, and writes none below it. So what decisions before
    have left there is what that object has (docs/adr/0027). The ceiling stays while pods beyond that may still be
    there: the record does not show that object, or its controller has not followed it; the word is of a turn that is
    over, and the owner of now may have written since. An adopting part holds nothing.
    """
    said = refused_there(workload, part)
    if said is None or part.adopting or not state.owners.is_present(said):
        return part
    view = state.clusters.get(part.cluster)
    facts = view.facts.get(workload.key) if view is not None else None
    if shows_found(said, facts, workload.template_of(part)):
        return replace(part, ceiling=max(part.replicas, said.spec_replicas))
    return part


def shows_found(said: WorkloadObserved, facts: WorkloadFacts | None, template: Template) -> bool:
    """Whether the record shows what a refusal says is there: no object, or that one with no pods of a number before."""
    if facts is None:
        return said.found_version is None and not (said.spec_replicas or said.replicas)
    return facts.version == said.found_version and is_settled(facts, template.surge_of(facts.spec_replicas))
