"""The place of a request in the queue, and the bytes of declarations that it writes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.core.knowledge.declared import declaration_bytes
from planner.core.requests import decisions
from planner.core.requests.queueing import ANY, QueuedRequest, QueuePlace, declaration_bytes_written, queue_place_of
from spillway.api import ApplyRequest, DeleteRequest, DisownRequest, MigrateRequest, ScaleRequest
from spillway.model import Answered

from .builders import Fleet, apply_to_fleet, deployment, manifest_texts, node_row, placement_policy

ABOUT_WEB: dict[str, QueuedRequest] = {
    "scale": ScaleRequest("default", "web", 3),
    "scale without a namespace": ScaleRequest("", "web", 3),
    "delete": DeleteRequest("default", "web"),
    "disown": DisownRequest("default", "web"),
    "migrate": MigrateRequest("default", "web", "own-2"),
}


def fleet_with_web() -> Fleet:
    fleet = Fleet(own_1=[node_row("a")])
    asked = ApplyRequest(manifest_texts(deployment(2), placement_policy(priority=7)))
    apply_to_fleet(fleet, decisions.decide_apply(fleet.state, asked, fleet.next_moment()).events)
    return fleet


@pytest.mark.parametrize("asked", ABOUT_WEB.values(), ids=ABOUT_WEB)
def test_a_request_has_the_priority_of_its_workload_and_writes_its_declaration_again(asked: QueuedRequest) -> None:
    state = fleet_with_web().state
    assert queue_place_of(state, asked) == QueuePlace(7, ("default", "web"))
    assert declaration_bytes_written(state, asked) == declaration_bytes(state.workloads["default", "web"].declared)


def test_a_request_about_no_workload_has_no_priority_and_writes_nothing() -> None:
    state, absent = fleet_with_web().state, ScaleRequest("default", "none", 3)
    assert queue_place_of(state, absent) == QueuePlace(0, ("default", "none"))
    assert declaration_bytes_written(state, absent) == 0


def test_a_request_whose_answer_is_kept_writes_nothing() -> None:
    state, asked = fleet_with_web().state, ScaleRequest("default", "web", 3, "key")
    workload = state.workloads["default", "web"]
    workload.declared = replace(workload.declared, answered=(Answered("key", "digest", 1, b"{}"),))
    applied = ApplyRequest(manifest_texts(deployment(2)), "key")
    assert [declaration_bytes_written(state, one) for one in (asked, applied)] == [0, 0]
    others = (replace(asked, idempotency_key="another"), replace(applied, idempotency_key="another"))
    assert all(declaration_bytes_written(state, one) > 0 for one in others)


def test_an_apply_has_the_priority_of_its_policy_and_one_that_is_refused_has_none() -> None:
    state = fleet_with_web().state
    asked = ApplyRequest(manifest_texts(deployment(2), placement_policy(priority=9)), "key")
    assert queue_place_of(state, asked) == QueuePlace(9, ("default", "web"), "key")
    refused = ApplyRequest(("no manifest",))
    assert (queue_place_of(state, refused), declaration_bytes_written(state, refused)) == (ANY, 0)


@given(st.integers(0, 3000), st.integers(0, 3000))
def test_an_apply_writes_as_much_more_as_its_manifest_is_longer(length: int, more: int) -> None:
    state = fleet_with_web().state

    def bytes_with_note(characters: int) -> int:
        metadata = {"name": "web", "annotations": {"note": "x" * characters}}
        return declaration_bytes_written(state, ApplyRequest(manifest_texts(deployment(2) | {"metadata": metadata})))

    assert bytes_with_note(length + more) == bytes_with_note(length) + more
