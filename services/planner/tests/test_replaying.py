"""A recorded division comes out of its record again, to the last byte; and when it does not, that is said.

That it does for every decision of a random story is checked there: test_moves_always.py.
"""

import json
from dataclasses import replace
from typing import Any

import pytest

from planner.core.placement import placing
from planner.core.placement.replaying import NotReplayable, replay_division
from planner.core.requests import decisions
from spillway.api import ApplyRequest, DeleteRequest, MigrateRequest, ScaleRequest
from spillway.compressed_text import pack_text, unpack_text
from spillway.events import DecisionRecorded, Event

from .builders import (
    Fleet,
    deployment,
    joined_cluster,
    manifest_texts,
    node_group,
    node_row,
    placement_policy,
    statefulset,
)


def apply_and_record(fleet: Fleet, events: tuple[Event, ...]) -> DecisionRecorded:
    """Applies events; their record, as it is after the wire: bytes and nothing of this process."""
    for event in events:
        fleet.state.apply_event(event, fleet.now)
    return next(event for event in events if isinstance(event, DecisionRecorded))


def apply_manifests(fleet: Fleet, *manifests: dict[str, Any]) -> DecisionRecorded:
    return apply_and_record(
        fleet, decisions.decide_apply(fleet.state, ApplyRequest(manifest_texts(*manifests)), fleet.next_moment()).events
    )


def fleet_of_three() -> Fleet:
    fleet = Fleet(own_1=[node_row("a", 4000)], own_2=[node_row("b", 6000)])
    fleet.join_cluster(joined_cluster("cloud-1", "cloud", [node_group()]), [node_row("c", 3000)])
    return fleet


MANIFESTS = (
    pytest.param((deployment(3),), id="own clusters"),
    pytest.param((deployment(30),), id="all tiers, some wait"),
    pytest.param((deployment(6), placement_policy(limits=[{"cluster": "own-2", "min": 1, "max": 2}])), id="bounds"),
    pytest.param((statefulset(3),), id="whole"),
    pytest.param((deployment(2), placement_policy(unplaceable="Refuse")), id="refuse"),
    *(
        pytest.param((deployment(9), placement_policy(strategy={"name": name})), id=name)
        for name in (
            "Duplicated",
            "KarmadaStaticWeight",
            "KarmadaDynamicWeight",
            "KarmadaAggregated",
            "KubeAdmiral",
        )
    ),
)


@pytest.mark.parametrize("manifests", MANIFESTS)
def test_an_apply_is_divided_again_alike(manifests: tuple[dict[str, Any], ...]) -> None:
    record = apply_manifests(fleet_of_three(), *manifests)
    found = replay_division(record)
    assert (found.is_same, found.differences, found.aside) == (True, (), ())
    placed = {entry.cluster: entry.after for entry in record.inputs}
    assert {name: count for name, count in found.division.replicas.items() if count} == {
        name: count for name, count in placed.items() if count
    }


def test_scale_migrate_and_take_back_are_divided_again_alike() -> None:
    fleet = fleet_of_three()
    apply_manifests(fleet, deployment(8))
    scaled = decisions.decide_scale(fleet.state, ScaleRequest("default", "web", 5), fleet.next_moment())
    migrated = decisions.decide_migrate
    assert replay_division(apply_and_record(fleet, scaled.events)).is_same
    moved = migrated(fleet.state, MigrateRequest("default", "web", "cloud-1", "own-1", 1), fleet.next_moment())
    assert replay_division(apply_and_record(fleet, moved.events)).is_same
    workload = fleet.state.workloads["default", "web"]
    taken = placing.take_back_replicas(fleet.state, workload, {"own-2": 1}, fleet.next_moment())
    assert replay_division(apply_and_record(fleet, taken.events)).is_same


def test_a_delete_divides_nothing() -> None:
    fleet = fleet_of_three()
    apply_manifests(fleet, deployment(1))
    deleted = decisions.decide_delete(fleet.state, DeleteRequest("default", "web"), fleet.next_moment())
    with pytest.raises(NotReplayable, match="no division was made"):
        replay_division(apply_and_record(fleet, deleted.events))


def test_another_outcome_than_the_recorded_one_is_named_by_its_field() -> None:
    record = apply_manifests(fleet_of_three(), deployment(3))
    text = unpack_text(record.division)
    assert b'"unplaced":0' in text
    found = replay_division(replace(record, division=pack_text(text.replace(b'"unplaced":0', b'"unplaced":2'))))
    assert not found.is_same
    assert found.differences == ("unplaced: recorded 2, recomputed 0",)


def test_a_record_without_a_room_that_its_division_used_is_said() -> None:
    for manifests in MANIFESTS:
        record = apply_manifests(fleet_of_three(), *manifests.values[0])  # type: ignore[arg-type]
        kept_then = json.loads(unpack_text(record.division))
        for index in range(len(kept_then["rooms"])):
            fewer = kept_then | {"rooms": kept_then["rooms"][:index] + kept_then["rooms"][index + 1 :]}
            with pytest.raises(NotReplayable, match="a room that was not recorded"):
                replay_division(replace(record, division=pack_text(json.dumps(fewer).encode())))


def test_another_situation_gives_another_division() -> None:
    """The outcome is computed, not read: with one replica more asked for it is another."""
    record = apply_manifests(fleet_of_three(), deployment(3))
    text = unpack_text(record.division)
    found = replay_division(replace(record, division=pack_text(text.replace(b'"replicas":3', b'"replicas":4', 1))))
    assert not found.is_same


@pytest.mark.parametrize("replicas", [10**18, 100_001, -1])
def test_a_record_with_more_replicas_than_a_workload_may_have_is_said_at_once(replicas: int) -> None:
    """Divided one after the other they would not end."""
    for manifests in MANIFESTS:
        record = apply_manifests(fleet_of_three(), *manifests.values[0])  # type: ignore[arg-type]
        kept_then = json.loads(unpack_text(record.division))
        edited = kept_then | {"situation": kept_then["situation"] | {"replicas": replicas}}
        with pytest.raises(NotReplayable, match=rf"situation\.replicas: {replicas}: expected 0 to 100000"):
            replay_division(replace(record, division=pack_text(json.dumps(edited).encode())))


@pytest.mark.parametrize(
    "division",
    [
        b"not compressed",
        pack_text(b"not JSON"),
        pack_text(b"{}"),
        pack_text(b'{"situation":{},"rooms":[],"division":{}}'),
    ],
    ids=["bytes", "text", "nothing", "fields"],
)
def test_what_cannot_be_read_is_said(division: bytes) -> None:
    record = apply_manifests(fleet_of_three(), deployment(3))
    with pytest.raises(NotReplayable, match="cannot be read by this version"):
        replay_division(replace(record, division=division))
