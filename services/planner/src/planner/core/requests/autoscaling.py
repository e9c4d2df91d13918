"""A policy's decision, declared and placed: as a Scale by the workload's name that nobody waits for."""

from dataclasses import replace

from planner.core.knowledge.allowance import CAUSE_AUTOSCALE
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment, Subject
from planner.core.knowledge.workload import Workload
from planner.core.placement import placing
from planner.core.requests import declaring
from planner.core.requests.remembering import without_old
from spillway.events import Event


def declare(state: PlannerState, workload: Workload, moment: Moment) -> tuple[Event, ...]:
    """The events of a workload's newest decision; none when it is declared already. What does not fit waits.

    A rollout goes on though the decision takes all that had the newest template: nobody is there to apply it again.
    """
    decided = state.scalings.newer_of(workload)
    if decided is None:
        return ()
    declared = without_old(state.rules, workload.declared, moment)
    declared = replace(declared, scale_generation=decided.generation)
    if decided.replicas == declared.replicas:
        return (declared,)
    declared = replace(declared, replicas=decided.replicas, generation=declared.generation + 1)
    subject = Subject(declared, workload.template, workload)
    placed = placing.place(state, subject, moment, CAUSE_AUTOSCALE)
    rolls_on = declaring.with_templates(declared, workload, placed.placement.parts, may_stop=False)
    return rolls_on, *placed.events
