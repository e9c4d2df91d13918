"""A cluster that is dead, slow, or half heard changes nothing of what is answered of the others."""

from collections.abc import Callable

import pytest

from planner.core.requests import answers
from spillway.api import CapacityRequest
from spillway.columns import columns_of
from spillway.model import ClusterInput

from .builders import EPOCH, Fleet, capacity_reported, deployment, manifest_texts, node_row

OTHERS = ("a", "c")


def silence_cluster_b(fleet: Fleet) -> None:
    fleet.send_heartbeats(*OTHERS)


def report_trouble_of_b(fleet: Fleet) -> None:
    fleet.report_change("b", trouble="timeout")


def lose_change_of_b(fleet: Fleet) -> None:
    """A change of it is missing."""
    fleet.sequences["b"] += 1
    fleet.report_change("b", [node_row("n0", cpu=64_000)])


def begin_new_epoch_of_b(fleet: Fleet) -> None:
    """One of two blocks of a new epoch."""
    rows = [node_row("n0", cpu=64_000)]
    fleet.state.apply_event(capacity_reported("b", rows, epoch=EPOCH + 1, count=2), fleet.now, columns=columns_of(rows))


def remove_nodes_of_b(fleet: Fleet) -> None:
    fleet.report_full_block("b", [])


@pytest.mark.parametrize(
    "what",
    [silence_cluster_b, report_trouble_of_b, lose_change_of_b, begin_new_epoch_of_b, remove_nodes_of_b],
    ids=lambda what: what.__name__,
)
def test_the_answers_for_the_other_clusters_are_bit_identical(what: Callable[[Fleet], None]) -> None:
    """With replicas promised in all of them, and long after."""

    def fleet_of_three() -> Fleet:
        rows = [node_row(f"n{index}", cpu=4000 + 500 * index, used=300 * index) for index in range(5)]
        return Fleet(a=rows, b=rows, c=rows)

    def capacity_of_others(one: Fleet) -> tuple[ClusterInput, ...]:
        one.now += 1000.0
        one.send_heartbeats(*OTHERS)
        manifests = manifest_texts(deployment(1, name="probe"))
        found = answers.capacity_reply(one.state, CapacityRequest(manifests), one.now).clusters
        return tuple(entry for entry in found if entry.cluster in OTHERS)

    well, disturbed = fleet_of_three(), fleet_of_three()
    what(disturbed)
    assert capacity_of_others(disturbed) == capacity_of_others(well)
