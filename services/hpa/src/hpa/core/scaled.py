"""A workload with a policy, as hpa knows it: declared, remembered, and not seen yet. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from hpa.core.heard.heard import Heard, WorkloadKey
from hpa.core.manifests.attached import Attached
from hpa.core.sizing.composing import NOTHING_REMEMBERED, NextEvaluation, Remembered, Sized
from spillway.events_scaling import ScalePolicyDeclared
from spillway.model import NO_GENERATION, Generation

IsOver = Callable[[], bool]
"""Whether the time for more decisions is over; asked after each of them, so that one is made in any case."""


def never() -> bool:
    return False


class BadPolicy(Exception):
    """A declared policy that cannot be read; the text says why."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A policy in the log that this version cannot read: nothing is decided from it, the workload keeps its size."""

    declared: ScalePolicyDeclared
    why: str

    @property
    def key(self) -> WorkloadKey:
        return self.declared.namespace, self.declared.name


@dataclass(slots=True)
class Scaled:
    """A workload with a policy. generation: of its state as last written or read. last: what was decided last.

    positions: (topic/partition) → the first record that the state has not seen. unseen: input records from there on.
    """

    declared: ScalePolicyDeclared
    policy: Attached
    remembered: Remembered = NOTHING_REMEMBERED
    generation: Generation = NO_GENERATION
    positions: Mapping[str, int] = field(default_factory=dict)
    due: NextEvaluation | None = None
    changed_ms: int = 0
    last: Sized | None = None
    unseen: list[Heard] = field(default_factory=list)

    @property
    def key(self) -> WorkloadKey:
        return self.declared.namespace, self.declared.name

    def is_due_by(self, at_ms: int) -> bool:
        """Whether the next decision is due."""
        return self.due is not None and self.due.at_ms <= at_ms


class Failed(NamedTuple):
    """A decision that an error stopped. again: so did the one before, as far as this instance knows.

    topic: of a record that could not be taken in for one, and has no effect; "" of a decision.
    """

    key: WorkloadKey
    trace: str
    again: bool
    topic: str = ""
