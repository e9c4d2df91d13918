"""What is reserved, row by row of P4: max(0, hold − counted), both from one capacity record."""

import pytest

from planner.core.feasibility.reservation import NOTHING_RESERVED, compute_reservation, is_rolling, next_ceiling
from spillway.model import NO_GENERATION, Generation, Part, Shape, WorkloadFacts

from .builders import make_shape, workload_facts

V1, V2 = Generation(9, 1), Generation(9, 2)
SMALL, LARGE = make_shape(1000, requests={"memory": 8}), make_shape(3000, requests={"memory": 2})
BEYOND = Shape("default", (("cpu", 2000),))


def part_at_v2(replicas: int, ceiling: int | None = None, new: int = 0, removing: bool = False) -> Part:
    return Part("a", V2, replicas, new, replicas if ceiling is None else ceiling, removing)


PLAIN: dict[str, tuple[Part, WorkloadFacts | None, int, int]] = {
    "nothing seen yet": (part_at_v2(10), None, 10, 0),
    "version not seen: the ceiling": (part_at_v2(4, ceiling=10), workload_facts(V1, 6, spec=6), 4, 0),
    "version not seen: spec.replicas where larger": (part_at_v2(4, ceiling=6), workload_facts(V1, 6, spec=12), 6, 0),
    "version not seen, all there already": (part_at_v2(4, ceiling=10), workload_facts(V1, 10), 0, 0),
    "an object whose annotation cannot be read": (part_at_v2(5), workload_facts(NO_GENERATION, 5, spec=9), 4, 0),
    "carried out": (part_at_v2(10), workload_facts(V2, 7, spec=10), 3, 0),
    "carried out and all bound": (part_at_v2(10), workload_facts(V2, 10), 0, 0),
    "carried out after scale-in: the ceiling no longer holds": (part_at_v2(4, ceiling=10), workload_facts(V2, 4), 0, 0),
    "controller has not seen it": (part_at_v2(4, ceiling=10), workload_facts(V2, 6, spec=4, observed=False), 4, 0),
    "controller has more pods than replicas and surge": (
        part_at_v2(4, ceiling=10),
        workload_facts(V2, 6, spec=4, status=8),
        4,
        0,
    ),
    "pods up to the surge": (part_at_v2(4, ceiling=10), workload_facts(V2, 2, spec=4, status=6), 2, 0),
    "more bound than decided": (part_at_v2(4), workload_facts(V2, 6, spec=4), 0, 0),
    "new ones bind last": (part_at_v2(10, new=4), workload_facts(V2, 3, spec=10), 3, 4),
    "free ones are bound": (part_at_v2(10, new=4), workload_facts(V2, 8, spec=10), 0, 2),
    "all bound": (part_at_v2(10, new=4), workload_facts(V2, 10), 0, 0),
    "removing and not seen": (part_at_v2(0, ceiling=10, removing=True), workload_facts(V1, 3, spec=10), 7, 0),
    "removing and the object is gone": (part_at_v2(0, ceiling=10, removing=True), None, 10, 0),
}


@pytest.mark.parametrize(("wanted", "shown", "free", "new"), PLAIN.values(), ids=PLAIN)
def test_one_template(wanted: Part, shown: WorkloadFacts | None, free: int, new: int) -> None:
    reservation = compute_reservation(wanted, shown, SMALL, (), surge=2)
    assert (reservation.free, reservation.new) == (free, new)
    assert reservation.entries == (((SMALL, free),) if free else ())
    assert reservation.new_entries == (((SMALL, new),) if new else ())


def test_all_bound_reserves_nothing() -> None:
    reservation = compute_reservation(part_at_v2(3), workload_facts(V2, 3), SMALL, (), surge=1)
    assert (reservation.entries, reservation.new_entries) == (NOTHING_RESERVED.entries, NOTHING_RESERVED.new_entries)


ROLLING: dict[str, tuple[Part, WorkloadFacts | None, tuple[tuple[Shape, int], ...]]] = {
    "a template change is decided": (part_at_v2(10), workload_facts(V1, 10), ((LARGE, 3), (BEYOND, 10))),
    "two templates live": (part_at_v2(10), workload_facts(V2, 6, 5, updated=5), ((LARGE, 2), (BEYOND, 6))),
    "the same, and the new one's pods are listed first": (
        part_at_v2(10),
        workload_facts(V2, 5, 6, updated=5),
        ((LARGE, 2), (BEYOND, 6)),
    ),
    "the roll stands: one of the new pods has no node": (
        part_at_v2(3),
        workload_facts(V2, 2, 1, spec=3, status=4, updated=3),
        ((LARGE, 3), (BEYOND, 1)),
    ),
    "no new pod has a node yet": (
        part_at_v2(3),
        workload_facts(V2, 3, spec=3, status=4, updated=1),
        ((LARGE, 3), (BEYOND, 3)),
    ),
    "either may be the new one": (
        part_at_v2(4),
        workload_facts(V2, 1, 2, spec=4, status=5, updated=3),
        ((LARGE, 4), (SMALL, 1), (BEYOND, 2)),
    ),
    "pods are ahead of what the controller says": (
        part_at_v2(10),
        workload_facts(V2, 6, 5, status=11, updated=4),
        ((LARGE, 2), (BEYOND, 11)),
    ),
    "another version than the part's": (
        part_at_v2(10),
        workload_facts(V1, 6, 5, updated=5),
        ((LARGE, 3), (BEYOND, 11)),
    ),
    "the controller has not seen it": (
        part_at_v2(10),
        workload_facts(V2, 6, 5, updated=5, observed=False),
        ((LARGE, 3), (BEYOND, 11)),
    ),
    "one template, but not all updated": (
        part_at_v2(10),
        workload_facts(V2, 10, updated=4),
        ((LARGE, 3), (BEYOND, 10)),
    ),
    "the object is not there yet": (part_at_v2(10), None, ((LARGE, 10),)),
    "all updated, and a pod of the old template still ends": (
        part_at_v2(10),
        workload_facts(V2, 1, 10, status=10, updated=10),
        ((LARGE, 2), (BEYOND, 11)),
    ),
    "over": (part_at_v2(10), workload_facts(V2, 10), ()),
    "over, and some not bound": (part_at_v2(10), workload_facts(V2, 8, status=10, updated=10), ((LARGE, 2),)),
}


@pytest.mark.parametrize(("wanted", "shown", "entries"), ROLLING.values(), ids=ROLLING)
def test_two_templates(wanted: Part, shown: WorkloadFacts | None, entries: tuple[tuple[Shape, int], ...]) -> None:
    """Either shape may come, so both are held, the surge too, and what may be an old pod what it may grow by."""
    assert compute_reservation(wanted, shown, LARGE, (SMALL,), surge=3).entries == entries


def test_a_template_that_asks_for_less_reserves_no_growth() -> None:
    less = make_shape(500, requests={"memory": 2})
    entries = compute_reservation(part_at_v2(10), workload_facts(V1, 10), less, (SMALL,), surge=3).entries
    assert entries == ((less, 3),)


def test_what_may_become_either_is_held_in_both_shapes() -> None:
    """Seed 702: of ten, eight are bound; the two others may still be of the old template, which fits where less is."""
    less = make_shape(500, requests={"memory": 2})
    assert compute_reservation(part_at_v2(10), workload_facts(V1, 8), less, (SMALL,), surge=3).entries == (
        (less, 5),
        (SMALL, 2),
    )
    assert compute_reservation(part_at_v2(10), workload_facts(V1, 8), LARGE, (SMALL,), surge=3).entries == (
        (LARGE, 5),
        (SMALL, 2),
        (BEYOND, 8),
    )


def test_a_workload_whose_template_never_changed_does_not_roll() -> None:
    assert not is_rolling(part_at_v2(3), workload_facts(V1, 1, 1), ())


CEILINGS = {
    "a first part": (None, None, 5, 5),
    "nothing seen: the most so far": (part_at_v2(4, ceiling=10), None, 6, 10),
    "an older version seen": (part_at_v2(4, ceiling=10), workload_facts(V1, 4), 6, 10),
    "this version seen: from here": (part_at_v2(4, ceiling=10), workload_facts(V2, 4), 6, 6),
    "this version seen, and fewer now": (part_at_v2(8, ceiling=10), workload_facts(V2, 8), 6, 8),
    "more than ever": (part_at_v2(4, ceiling=10), None, 12, 12),
}


@pytest.mark.parametrize(("before", "shown", "replicas", "expected"), CEILINGS.values(), ids=CEILINGS)
def test_the_ceiling_is_the_most_decided_since_the_version_seen(
    before: Part | None, shown: WorkloadFacts | None, replicas: int, expected: int
) -> None:
    assert next_ceiling(before, shown, replicas) == expected
