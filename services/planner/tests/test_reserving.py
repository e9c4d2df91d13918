"""When what was decided before a part is held no more: each word of its cluster, beside each record (README)."""

from dataclasses import replace

import pytest

from planner.core.knowledge.workload import NOT_CREATED
from planner.core.placement.shares import ceiling_before_change
from spillway.events import (
    STATE_ABSENT,
    STATE_DISOWNED,
    STATE_NOT_OWNED,
    STATE_PRESENT,
    STATE_REFUSED,
    TurnTaken,
    WorkloadObserved,
)
from spillway.model import NO_GENERATION, Generation, Part, WorkloadFacts

from .builders import Fleet, node_row, workload_facts
from .test_aftermath import WEB, apply_to_fleet, apply_workload

OLD, NEW = 2, 40
"""Epochs of two propagators' turns at the cluster."""
V1, V2, V3 = Generation(9, 1), Generation(9, 100), Generation(9, 200)
NONE = (0, 0, None)


def fleet_with_part(shown: WorkloadFacts | None, **of_part: object) -> Fleet:
    """web, of which two replicas are decided in own-1 at V2, and eight were before that."""
    fleet = Fleet(own_1=[node_row("n1", cpu=64000)])
    apply_workload(fleet, 2)
    known = fleet.state.workloads[WEB].placement
    assert known is not None
    part = replace(Part("own-1", V2, 2, 0, 8, removing=False), **of_part)  # type: ignore[arg-type]
    apply_to_fleet(fleet, [replace(known, generation=V3, parts=(part,))])
    if shown is not None:
        fleet.report_change("own-1", shown=[shown])
    return fleet


def status_at_v2(
    state: str, spec: int = 0, pods: int = 0, found: Generation | None = None, **more: object
) -> WorkloadObserved:
    said = WorkloadObserved(*WEB, "own-1", OLD, 7, V2, state, "", spec, pods, 0, 0, 0, found_version=found)
    return replace(said, **more)  # type: ignore[arg-type]


def reserved_and_counted(fleet: Fleet) -> int:
    """Reserved and counted."""
    view, found = fleet.state.clusters["own-1"], fleet.state.reservation_of(WEB, "own-1")
    shown = view.facts.get(WEB)
    return found.free + found.new + (sum(count for _, count in shown.counted) if shown is not None else 0)


THERE: dict[str, tuple[WorkloadFacts | None, tuple[int, int, Generation | None], int]] = {
    "no object": (None, NONE, 2),
    "an object that the record does not show yet": (None, (5, 5, V1), 8),
    "the same, of a propagator that does not say its version": (None, (5, 5, None), 8),
    "one of no replicas that the record does not show yet": (None, (0, 0, V1), 8),
    "an object, settled": (workload_facts(V1, 3, spec=5), (5, 5, V1), 5),
    "an object, settled, with fewer replicas": (workload_facts(V1, 1), (1, 1, V1), 2),
    "scaled by others since": (workload_facts(V1, 3, spec=6), (5, 5, V1), 6),
    "others scaled it, and the record is behind": (workload_facts(V1, 3), (9, 3, V1), 9),
    "its controller has not seen it": (workload_facts(V1, 3, spec=5, observed=False), (5, 5, V1), 8),
    "pods of a number before are left": (workload_facts(V1, 8, spec=5, status=8), (5, 8, V1), 8),
    "as many as a surge": (workload_facts(V1, 5, spec=5, status=7), (5, 7, V1), 5),
    "another version than the record shows": (workload_facts(V1, 3), (3, 3, Generation(9, 50)), 8),
    "a version that is not said": (workload_facts(V1, 3), (3, 3, None), 8),
    "none, and the record shows one": (workload_facts(V1, 3), NONE, 8),
    "one whose annotation cannot be read": (workload_facts(NO_GENERATION, 3), (3, 3, NO_GENERATION), 3),
    "this version, somebody scales it": (workload_facts(V2, 3, spec=4, status=4), (4, 4, V2), 4),
}


@pytest.mark.parametrize("state", NOT_CREATED)
@pytest.mark.parametrize(("shown", "said", "expected"), THERE.values(), ids=THERE)
def test_a_refusal_leaves_what_is_there(
    state: str, shown: WorkloadFacts | None, said: tuple[int, int, Generation | None], expected: int
) -> None:
    fleet = fleet_with_part(shown)
    assert reserved_and_counted(fleet) == 8, "until its cluster answers"
    apply_to_fleet(fleet, [status_at_v2(state, *said)])
    assert reserved_and_counted(fleet) == expected


@pytest.mark.parametrize("state", [STATE_PRESENT, STATE_ABSENT, STATE_DISOWNED])
def test_no_other_word_does(state: str) -> None:
    fleet = fleet_with_part(None)
    apply_to_fleet(fleet, [status_at_v2(state)])
    assert reserved_and_counted(fleet) == 8


@pytest.mark.parametrize("version", [V1, V3])
def test_a_word_of_another_version_does_not(version: Generation) -> None:
    fleet = fleet_with_part(None)
    apply_to_fleet(fleet, [status_at_v2(STATE_REFUSED, version=version)])
    assert reserved_and_counted(fleet) == 8


@pytest.mark.parametrize("claimed_first", [True, False])
def test_a_word_of_a_turn_that_is_over_does_not_whatever_is_read_first(claimed_first: bool) -> None:
    """Whoever has the turn now may have written what was decided before."""
    fleet, late = fleet_with_part(None), status_at_v2(STATE_NOT_OWNED)
    for is_claim in (claimed_first, not claimed_first):
        if is_claim:
            fleet.state.apply_event(TurnTaken("propagator", "own-1", "propagator-2"), fleet.now, offset=NEW)
        else:
            apply_to_fleet(fleet, [late])
    assert reserved_and_counted(fleet) == 8
    apply_to_fleet(fleet, [replace(late, epoch=NEW, sequence=1)])
    assert reserved_and_counted(fleet) == 2


def test_another_workloads_word_tells_of_the_new_turn_too() -> None:
    fleet = fleet_with_part(None)
    apply_to_fleet(fleet, [status_at_v2(STATE_NOT_OWNED)])
    assert reserved_and_counted(fleet) == 2
    apply_to_fleet(fleet, [replace(status_at_v2(STATE_PRESENT), name="another", epoch=NEW)])
    assert reserved_and_counted(fleet) == 8


@pytest.mark.parametrize("state", NOT_CREATED)
def test_what_is_adopted_holds_nothing(state: str) -> None:
    fleet = fleet_with_part(None, ceiling=0, adopting=True, found_uid="u")
    apply_to_fleet(fleet, [status_at_v2(state)])
    assert reserved_and_counted(fleet) == 0


@pytest.mark.parametrize("state", NOT_CREATED)
def test_what_cannot_be_removed_holds_what_is_there(state: str) -> None:
    fleet = fleet_with_part(workload_facts(V1, 3), replicas=0, removing=True)
    apply_to_fleet(fleet, [status_at_v2(state, 3, 3, V1)])
    assert reserved_and_counted(fleet) == 3


def test_a_decision_does_not_forget_pods_that_its_controller_has_yet_to_remove() -> None:
    for observed, status, expected in ((False, 8, 8), (True, 8, 8), (True, 2, 2)):
        fleet = fleet_with_part(workload_facts(V2, 2, spec=2, observed=observed, status=status))
        part = fleet.state.workloads[WEB].parts["own-1"]
        assert ceiling_before_change(fleet.state, WEB, part, "own-1") == expected


def test_what_was_decided_before_does_not_come_back_with_the_next_decision() -> None:
    fleet = fleet_with_part(None)
    part = fleet.state.workloads[WEB].parts["own-1"]
    assert ceiling_before_change(fleet.state, WEB, part, "own-1") == 8
    apply_to_fleet(fleet, [status_at_v2(STATE_NOT_OWNED)])
    assert ceiling_before_change(fleet.state, WEB, part, "own-1") == 2
    assert ceiling_before_change(fleet.state, WEB, None, "own-1") == 0
