"""Collects what a decided placement waits for: room and objects, brakes and confirmations, and its rollout."""

from collections.abc import Sequence

from planner.core.division.situation import Division
from planner.core.knowledge.placement_waits import NO_ROLLOUT_WAIT, PlacementWait, waits_of, waits_text
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment, PlacementSubject
from planner.core.placement.missing import after_room
from planner.core.placement.outlook import outlook
from planner.core.placement.reasons import barred_by, held_text
from spillway.events import PlacementWaits
from spillway.model import Part


def waits_of_placement(
    state: PlannerState, subject: PlacementSubject, division: Division, parts: Sequence[Part], moment: Moment
) -> tuple[str, PlacementWaits | None]:
    """Returns the text of what replicas wait for, and the codes of all that the placement waits for."""
    known = subject.known
    then = [] if division.missing or not division.unplaced else after_room(state, subject, parts)
    room = [*division.waits(), *map(PlacementWait, then)]
    held = held_text(state, known, parts, moment.now, barred_by(division))
    rollout = NO_ROLLOUT_WAIT if known is None else outlook(state, known, subject, moment.now, parts).wait
    return "; ".join(filter(None, (waits_text(room), held))), waits_of(room, held, rollout)
