"""Makes the record of a decision when it is first needed. The record shows the state at the time of the decision."""

from collections.abc import Callable

from planner.core.division.situation import Division
from planner.core.division.tier_division import cluster_inputs_of
from planner.core.knowledge.allowance import CAUSE_AUTOSCALE
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.placement.replaying import pack_division
from spillway.events import DecisionRecorded, PlacementDecided, WorkloadDeclared
from spillway.feasibility.cluster_view import NEVER

CODE_VERSION = "0.1.0"

Record = Callable[[], DecisionRecorded]


class _Once:
    """Makes a record at the first call and keeps it."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Record) -> None:
        self._make = make
        self._made: DecisionRecorded | None = None

    def __call__(self) -> DecisionRecorded:
        if self._made is None:
            self._made = self._make()
        return self._made


def prepare_record(
    state: PlannerState,
    declared: WorkloadDeclared,
    placement: PlacementDecided,
    division: Division,
    moment: Moment,
    cause: str,
) -> Record:
    """Returns a function that makes the record of this decision. Values that may change later are read now."""
    names, offsets = list(state.clusters), [view.offset for view in state.clusters.values()]
    rules = state.rules
    scaled_by = state.scalings.deciding_policy((declared.namespace, declared.name)) if cause == CAUSE_AUTOSCALE else ""

    def make_record() -> DecisionRecorded:
        inputs, basis = cluster_inputs_of(division.inputs), division.basis
        decided_on = dict.fromkeys(entry.cluster for entry in inputs if entry.cluster)
        offset_of = dict(zip(names, offsets, strict=True))
        return DecisionRecorded(
            namespace=declared.namespace,
            name=declared.name,
            generation=placement.generation,
            at_ms=moment.wall_ms,
            cause=cause,
            replicas=declared.replicas,
            unplaced=division.unplaced,
            inputs=inputs,
            positions=tuple(
                (f"capacity-changes/{name}", offset_of[name]) for name in decided_on if offset_of[name] != NEVER
            ),
            settings=rules.to_text(),
            code_version=CODE_VERSION,
            division=pack_division(basis) if basis is not None else b"",
            scaled_by=scaled_by,
        )

    return _Once(make_record)
