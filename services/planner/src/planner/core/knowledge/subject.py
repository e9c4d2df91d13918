"""What a decision is about and when it is made: a workload as it is to be placed, and the moment."""

from dataclasses import dataclass

from planner.core.knowledge.workload import Workload
from planner.core.manifests.templates import Template
from spillway.events import WorkloadDeclared
from spillway.feasibility.cluster_view import WorkloadKey
from spillway.model import Generation, Part, Shape


@dataclass(frozen=True, slots=True)
class Moment:
    """When a decision is made, and under which turn: now in seconds of any steady clock, wall_ms for the record.

    patient: the request may still wait for binds, so what is only possible need not be refused yet. onward: meanwhile
    it takes what is certain in later tiers. listening: it may still wait until clusters are heard of since it came, so
    what has no room need not be refused yet.
    """

    now: float
    wall_ms: int
    generation: Generation
    patient: bool = False
    listening: bool = False
    onward: bool = False


@dataclass(frozen=True, slots=True)
class Subject:
    """A workload as it is to be placed: its declaration and newest template, and what is known of it so far."""

    declared: WorkloadDeclared
    template: Template
    known: Workload | None

    @property
    def shape(self) -> Shape:
        return self.template.shape

    @property
    def key(self) -> WorkloadKey:
        return (self.declared.namespace, self.declared.name)

    def template_of(self, part: Part) -> Template:
        """The template that a part of a known workload bears."""
        return self.template if self.known is None else self.known.template_of(part)


def subject_of(workload: Workload) -> Subject:
    """A workload as it is declared."""
    return Subject(workload.declared, workload.template, workload)
