"""Where all that would fit is promised to others, this is said, and to whom: not that the nodes are too small."""

from typing import Any

import pytest

from planner.core.requests import decisions
from spillway.api import ApplyRequest, PlacementReply
from spillway.model import Part

from .builders import (
    Fleet,
    container_spec,
    deployment,
    manifest_texts,
    node_row,
    placement_policy,
    pod_template,
    workload_facts,
)


def apply_workload(
    fleet: Fleet, name: str, replicas: int, cpu: str = "1", namespace: str = "default"
) -> PlacementReply:
    manifest: dict[str, Any] = deployment(replicas, name, pod_template(container_spec(cpu=cpu)))
    manifest["metadata"]["namespace"] = namespace
    decided = decisions.decide_apply(
        fleet.state, ApplyRequest(manifest_texts(manifest, placement_policy())), fleet.next_moment()
    )
    for event in decided.events:
        fleet.state.apply_event(event, fleet.now)
    return decided.reply


def part_in_own_1(fleet: Fleet, name: str) -> Part:
    return fleet.state.workloads["default", name].parts["own-1"]


WHOSE = (
    pytest.param([("batch", 4, "default")], "default/batch 4", id="one"),
    pytest.param([("batch", 3, "default"), ("api", 1, "default")], "default/batch 3, default/api 1", id="two"),
    pytest.param([("batch", 4, "team")], "others 4", id="of another namespace: no name"),
    pytest.param([("b", 1, "team"), ("d", 3, "default")], "default/d 3, others 1", id="both"),
    pytest.param([(name, 1, "default") for name in "abcd"], "default/a 1, default/b 1, others 2", id="many"),
)


@pytest.mark.parametrize(("promised", "whose"), WHOSE)
def test_it_is_said_to_whom_the_room_is_promised(promised: list[tuple[str, int, str]], whose: str) -> None:
    """In the answer, in its record, and in what the rest waits for that does not wait for binds; of any other shape."""
    for cpu in ("1", "900m"):
        fleet = Fleet(own_1=[node_row("a", 4000)])
        for name, replicas, namespace in promised:
            assert apply_workload(fleet, name, replicas, namespace=namespace).unplaced == 0
        reply = apply_workload(fleet, "web", 2, cpu)
        text = f"room for 4 replicas, all of it promised and not bound yet: {whose}"
        assert [entry.limited_by for entry in reply.inputs if entry.cluster] == [text]
        assert reply.unplaced == 2
        assert "binding of replicas" in reply.waiting_for or f"room (own-1: {text}; tier cloud" in reply.waiting_for


def test_what_runs_there_is_said_to_take_the_nodes_once_it_is_bound() -> None:
    fleet = Fleet(own_1=[node_row("a", 4000)])
    apply_workload(fleet, "batch", 4)
    shown = [workload_facts(part_in_own_1(fleet, "batch").version, 4, name="batch")]
    fleet.report_full_block("own-1", [node_row("a", 4000, used=4000)], shown)
    assert apply_workload(fleet, "web", 2).waiting_for.startswith("room (own-1: cpu (1 node); tier cloud")


def test_what_is_promised_to_itself_and_what_is_too_large_anyway_is_said_as_before() -> None:
    fleet = Fleet(own_1=[node_row("a", 4000)])
    for replicas in (6, 7):
        assert apply_workload(fleet, "web", replicas).waiting_for.startswith("room (own-1: cpu (1 node)")
    fleet = Fleet(own_1=[node_row("a", 4000), node_row("b", 8000, used=6000)])
    apply_workload(fleet, "batch", 1)
    assert apply_workload(fleet, "large", 1, "7").waiting_for.startswith("room (own-1: cpu (2 nodes)")
