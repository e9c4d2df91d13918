"""Disowns workloads: removes Spillway's marks and leaves objects and pods in place."""

from dataclasses import replace

from planner.core.division.situation import Division
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.knowledge.workload import Workload
from planner.core.placement.placing import PlacementResult, needed_events
from planner.core.requests.decisions import (
    DecidedRequest,
    UnansweredDecision,
    answer_decision,
    find_workload,
    refuse_gone,
)
from planner.core.requests.remembering import remembered_answer, request_digest
from spillway.api import DisownRequest, RequestError
from spillway.events import Event, PlacementDecided
from spillway.model import Part


def decide_disown(state: PlannerState, request: DisownRequest, moment: Moment) -> DecidedRequest:
    """Decides a Disown request. The placement keeps each part until its cluster reports that Spillway's marks are gone
    from the object. Raises RequestError (FAILED_PRECONDITION) for a workload that is being deleted or moves."""
    known = find_workload(state, request.namespace, request.name)
    digest = request_digest("disown")
    remembered = remembered_answer(state.rules, known, request.idempotency_key, digest, moment)
    if remembered is not None:
        return DecidedRequest((), remembered)
    refuse_gone(known)
    declared = known.declared
    if declared.deleting:
        text = f"workload {'/'.join(known.workload_key)}: Deleting: it is not disowned any more"
        raise RequestError("FAILED_PRECONDITION", text)
    if not declared.disowning:
        _refuse_moving_workload(known)
    parts = tuple(_disowning_part(part, moment) for part in known.parts.values())
    placed = PlacementResult(_disowned_placement(known, parts, moment), Division({}, {}, 0))
    if not declared.disowning:
        declared = replace(declared, disowning=True, generation=declared.generation + 1)
        placement = replace(placed.placement, workload_generation=declared.generation)
        events: tuple[Event, ...] = (placement, *needed_events(state, known.workload_key, placement, moment, {}))
        placed = replace(placed, placement=placement, changes=events)
    decided = UnansweredDecision(declared, (), placed, known.unmodelled_names)
    return answer_decision(state, decided, request.idempotency_key, digest, moment)


def _refuse_moving_workload(known: Workload) -> None:
    """Raises RequestError while replicas move: too many run then, and Spillway could not remove them later."""
    moving = [f"{part.replicas_leaving} leave {part.cluster}" for part in known.parts.values() if part.replicas_leaving]
    moving += [
        f"{part.replicas_lost} are lost in {part.cluster}" for part in known.parts.values() if part.replicas_lost
    ]
    if moving:
        text = (
            f"workload {'/'.join(known.workload_key)}: Moving: {', '.join(sorted(moving))}: disown it when that is over"
        )
        raise RequestError("FAILED_PRECONDITION", text)


def _disowning_part(part: Part, moment: Moment) -> Part:
    """Returns the part as disowning. A part that is being removed is unchanged: its object may be half deleted."""
    if part.disowning or part.removing:
        return part
    return Part(part.cluster, moment.generation, 0, 0, 0, removing=False, disowning=True)


def _disowned_placement(known: Workload, parts: tuple[Part, ...], moment: Moment) -> PlacementDecided:
    return PlacementDecided(*known.workload_key, moment.generation, known.declared.generation, parts, 0, "")
