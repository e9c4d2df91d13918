"""Defines the input of a decision: the workload to place, and the moment of the decision."""

from dataclasses import dataclass

from planner.core.knowledge.workload import Workload
from planner.core.manifests.templates import RolloutTemplate
from spillway.events import WorkloadDeclared
from spillway.feasibility.cluster_view import WorkloadKey
from spillway.model import Generation, Part, Shape


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of a decision, and the generation under which it is made.

    now: seconds of any steady clock. wall_ms: the time for the record.
    patient: whether the request may still wait for binds. If so, replicas that only possibly fit are not refused yet.
    onward: whether the request takes certain room in later tiers while it waits.
    listening: whether the request may still wait for newer messages of clusters. If so, it is not refused yet.
    """

    now: float
    wall_ms: int
    generation: Generation
    patient: bool = False
    listening: bool = False
    onward: bool = False


@dataclass(frozen=True, slots=True)
class PlacementSubject:
    """A workload that is to be placed: its declaration, its newest template, and its known state so far."""

    declared: WorkloadDeclared
    template: RolloutTemplate
    known: Workload | None

    @property
    def replica_shape(self) -> Shape:
        return self.template.shape

    @property
    def workload_key(self) -> WorkloadKey:
        return (self.declared.namespace, self.declared.name)

    def template_of(self, part: Part) -> RolloutTemplate:
        """Returns the template that a part of a known workload has."""
        return self.template if self.known is None else self.known.template_of(part)


def subject_of_workload(workload: Workload) -> PlacementSubject:
    """Returns a known workload as the subject of its next placement, with its newest template."""
    return PlacementSubject(workload.declared, workload.template, workload)
