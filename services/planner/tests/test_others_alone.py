"""A cluster that is dead, slow, or half heard changes nothing of what is answered of the others."""

from collections.abc import Callable

import pytest

from planner.core.requests import answers
from spillway.api import CapacityRequest
from spillway.columns import columns_of
from spillway.model import ClusterInput

from .builders import EPOCH, Fleet, deployment, node, reported, texts

OTHERS = ("a", "c")


def dead(fleet: Fleet) -> None:
    fleet.beat(*OTHERS)


def in_trouble(fleet: Fleet) -> None:
    fleet.change("b", trouble="timeout")


def behind(fleet: Fleet) -> None:
    """A change of it is missing."""
    fleet.sequences["b"] += 1
    fleet.change("b", [node("n0", cpu=64_000)])


def half_heard(fleet: Fleet) -> None:
    """One of two blocks of a new epoch."""
    rows = [node("n0", cpu=64_000)]
    fleet.state.apply_event(reported("b", rows, epoch=EPOCH + 1, count=2), fleet.now, columns=columns_of(rows))


def without_nodes(fleet: Fleet) -> None:
    fleet.report("b", [])


@pytest.mark.parametrize("what", [dead, in_trouble, behind, half_heard, without_nodes], ids=lambda what: what.__name__)
def test_the_answers_for_the_other_clusters_are_bit_identical(what: Callable[[Fleet], None]) -> None:
    """With replicas promised in all of them, and long after."""

    def fleet() -> Fleet:
        rows = [node(f"n{index}", cpu=4000 + 500 * index, used=300 * index) for index in range(5)]
        return Fleet(a=rows, b=rows, c=rows)

    def others(one: Fleet) -> tuple[ClusterInput, ...]:
        one.now += 1000.0
        one.beat(*OTHERS)
        manifests = texts(deployment(1, name="probe"))
        found = answers.capacity_reply(one.state, CapacityRequest(manifests), one.now).clusters
        return tuple(entry for entry in found if entry.cluster in OTHERS)

    well, disturbed = fleet(), fleet()
    what(disturbed)
    assert others(disturbed) == others(well)
