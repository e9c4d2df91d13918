"""Describes a workload with a scale policy: its declaration, its state, and the records not in the state yet. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from hpa.core.heard.heard_record import HeardRecord, WorkloadKey, own_place_name
from hpa.core.manifests.attached import AttachedPolicy
from hpa.core.sizing.composing import NOTHING_REMEMBERED, NextEvaluation, SizingResult, SizingState
from spillway.events_scaling import ScalePolicyDeclared
from spillway.model import NO_GENERATION, Generation

IsOver = Callable[[], bool]
"""Returns True when a step must make no more decisions. It is asked after each decision, so at least one is made."""


def is_never_over() -> bool:
    return False


class BadPolicy(Exception):
    """Raised for a declared policy that cannot be read. The text is the reason."""


@dataclass(frozen=True, slots=True)
class RefusedPolicy:
    """A policy in the log that this version cannot read. It decides nothing, and the workload keeps its size."""

    declared: ScalePolicyDeclared
    why: str

    @property
    def key(self) -> WorkloadKey:
        return self.declared.namespace, self.declared.name


@dataclass(slots=True)
class ScaledWorkload:
    """A workload with a scale policy.

    generation: the generation of its state as last written or read.
    positions: for each "topic/partition", the offset of the first record that no decision includes, as
        Positions.offsets_to_write returns them.
    changed_ms: the time of our last change of the size; 0: never.
    last: the last decision.
    unseen: the input records that were read but not decided on yet.
    """

    declared: ScalePolicyDeclared
    policy: AttachedPolicy
    remembered: SizingState = NOTHING_REMEMBERED
    generation: Generation = NO_GENERATION
    positions: Mapping[str, int] = field(default_factory=dict)
    due: NextEvaluation | None = None
    changed_ms: int = 0
    last: SizingResult | None = None
    unseen: list[HeardRecord] = field(default_factory=list)

    @property
    def key(self) -> WorkloadKey:
        return self.declared.namespace, self.declared.name

    def is_due_by(self, at_ms: int) -> bool:
        """Returns whether the next decision is due at that instant."""
        return self.due is not None and self.due.at_ms <= at_ms

    def has_undecided_record(self, applied: Mapping[str, int]) -> bool:
        """Returns whether no decision includes one of these records. applied: as in WorkloadInputs."""
        return any(not self.has_decided_on(place, offset) for place, offset in applied.items())

    def has_decided_on(self, place: str, offset: int) -> bool:
        """Returns whether the state includes its workload's record of that offset. place: "topic/partition"."""
        return offset < self.positions.get(own_place_name(place), self.positions.get(place, 0))


class FailedDecision(NamedTuple):
    """A decision or a record that an unexpected error stopped, to be reported to the operator.

    again: True if the previous decision failed, too, as far as this instance knows.
    topic: the topic of a record that could not be applied and has no effect; "" for a decision.
    """

    key: WorkloadKey
    trace: str
    again: bool
    topic: str = ""
