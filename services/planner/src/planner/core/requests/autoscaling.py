"""Declares and places a scale policy's decision, like a Scale request whose caller does not wait."""

from dataclasses import replace

from planner.core.knowledge.allowance import CAUSE_AUTOSCALE
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment, PlacementSubject
from planner.core.knowledge.workload import Workload
from planner.core.placement import placing
from planner.core.requests import declaring
from planner.core.requests.remembering import without_old_answers
from spillway.events import Event


def declare_scale_decision(state: PlannerState, workload: Workload, moment: Moment) -> tuple[Event, ...]:
    """Returns the events that declare and place the newest decision on a workload's size; none if it is declared.

    Replicas that do not fit wait. A rollout goes on even if all replicas with the newest template are scaled away,
    because no person is there to apply the workload again.
    """
    decided = state.scalings.undeclared_decision(workload)
    if decided is None:
        return ()
    declared = without_old_answers(state.rules, workload.declared, moment)
    declared = replace(declared, scale_generation=decided.generation)
    if decided.replicas == declared.replicas:
        return (declared,)
    declared = replace(declared, replicas=decided.replicas, generation=declared.generation + 1)
    subject = PlacementSubject(declared, workload.template, workload)
    placed = placing.place_workload(state, subject, moment, CAUSE_AUTOSCALE)
    rolls_on = declaring.with_earlier_templates(declared, workload, placed.placement.parts, may_stop=False)
    return rolls_on, *placed.events
