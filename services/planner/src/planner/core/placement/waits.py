"""Collects the waits of a placement: for room and objects, for brakes and confirmations, and those of its rollout."""

from collections.abc import Sequence
from dataclasses import replace

from planner.core.division.situation import Division
from planner.core.knowledge.placement_waits import (
    NO_ROLLOUT_WAIT,
    PlacementWait,
    encode_waits,
    waits_digest,
    waits_text,
)
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment, PlacementSubject
from planner.core.placement.missing import texts_after_room
from planner.core.placement.outlook import rollout_outlook
from planner.core.placement.reasons import held_moves_text, replicas_barred_by_freeze
from spillway.events import PlacementDecided, PlacementWaits
from spillway.model import Part


def waits_of_placement(
    state: PlannerState, subject: PlacementSubject, division: Division, parts: Sequence[Part], moment: Moment
) -> tuple[str, PlacementWaits | None]:
    """Returns the text about what replicas wait for, and the codes of all waits, the rollout's included."""
    known = subject.known
    then = [] if division.missing or not division.unplaced else texts_after_room(state, subject, parts)
    room = [*division.placement_waits(), *map(PlacementWait, then)]
    held = held_moves_text(state, known, parts, moment.now, replicas_barred_by_freeze(division))
    rollout = NO_ROLLOUT_WAIT if known is None else rollout_outlook(state, known, subject, moment.now, parts).wait
    return "; ".join(filter(None, (waits_text(room), held))), encode_waits(room, held, rollout)


def repeats_placement(last: PlacementDecided, placement: PlacementDecided, division: Division) -> bool:
    """Returns whether the last placement says the same as the new one, so that the new one need not be written.

    While replicas wait for binds, other reasons to wait come and go, so they count as no change.
    """
    return has_same_parts(last, placement) and (bool(division.uncertain) or _has_same_waits(last, placement))


def has_same_parts(last: PlacementDecided, new: PlacementDecided) -> bool:
    """Returns whether both records differ at most in their generations and in what they wait for."""
    return replace(last, generation=new.generation, waiting_for=new.waiting_for, waits=new.waits) == new


def _has_same_waits(last: PlacementDecided, new: PlacementDecided) -> bool:
    """Returns whether both placements wait for the same things. Numbers in the texts are ignored: they change often."""
    return waits_digest(last) == waits_digest(new)
