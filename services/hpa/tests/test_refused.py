"""A policy in the log that this version cannot read: visible, with the reason, and nothing is decided from it."""

import json
from typing import Any

import pytest

from hpa.core.heard.heard_record import HeardRecord
from hpa.core.requests import declaring
from hpa.core.requests.answers import explain_workload, find_policy, list_policies, policy_reply
from hpa.core.requests.reporting import ReportCheck
from hpa.core.scaled import BadPolicy
from hpa.core.state import HpaState
from spillway.addresses import SCALE_POLICIES, Tombstone
from spillway.api import RequestError
from spillway.api_scaling import DeclarePolicyRequest, DeletePolicyRequest, GetPolicyRequest, ListPoliciesRequest
from spillway.events_scaling import ScalePolicyDeclared
from spillway.model import Generation

from .world import (
    KEY,
    START_MS,
    World,
    apply_decision,
    cpu_utilization_metric,
    decided_sizes,
    external_metric,
    hpa_manifest,
    load_observed,
    pods_observed,
    workload_declared,
)

UNREADABLE = [
    pytest.param(b"{}", "kind", id="no kind"),
    pytest.param(b"\xff", "utf-8", id="no text"),
    pytest.param(b'{"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v1"}', "v1", id="not supported"),
]
QUEUE = hpa_manifest([external_metric("queue", "10")])


def append_unreadable_policy(made: World, manifest: bytes, sequence: int = 99) -> ScalePolicyDeclared:
    """As another version wrote it, which could read it."""
    kind = "HorizontalPodAutoscaler"
    event = ScalePolicyDeclared(*KEY, Generation(made.epoch, sequence), kind, "web-hpa", manifest, START_MS)
    made._append_record(event)
    return event


def restart_and_list_errors(made: World) -> list[str]:
    """What was set aside on the way."""
    bad = []
    made.state = HpaState(made.rules, lambda _: 0)
    for heard in made.log:
        try:
            made.state.follow_record(heard)
        except BadPolicy as error:
            bad.append(str(error))
    made.state.apply_early_records()
    made.epoch += 1
    made._write_events(made.state.take_turn(made._next_generation, made.now_ms))
    return bad


def world_with_policy() -> World:
    made = World()
    made.publish_input(workload_declared(4))
    made.declare_policy(QUEUE)
    made.publish_input(load_observed("queue", 60, START_MS + 1_000))
    return made


@pytest.mark.parametrize("compacted", [False, True], ids=["the one before is in the log", "it is gone"])
@pytest.mark.parametrize(("manifest", "words"), UNREADABLE)
def test_it_is_shown_with_the_reason_and_the_size_stays(manifest: bytes, words: str, compacted: bool) -> None:
    made = world_with_policy()
    assert made.current_replicas == 6
    event = append_unreadable_policy(made, manifest)
    if compacted:
        made.log = [heard for heard in made.log if heard.event is event or heard.topic != SCALE_POLICIES.name]
    assert len(restart_and_list_errors(made)) == 1
    decided = decided_sizes(made)
    for second in range(2, 1_000, 60):
        made.publish_input(load_observed("queue", 900, START_MS + 1000 * second))
        made.publish_input(pods_observed("own-1", [900] * 6, START_MS + 1000 * second, second))
    assert (decided_sizes(made), made.current_replicas) == (decided, 6)
    (listed,) = list_policies(made.state, ListPoliciesRequest()).policies
    got = policy_reply(made.state, find_policy(made.state, GetPolicyRequest(KEY[0], policy="web-hpa")))
    assert (listed.policy, listed.replicas, listed.targets) == ("web-hpa", 6, "refused")
    assert (got.replicas_min, got.replicas_max) == (-1, -1)
    assert words in got.warnings[0]
    (condition,) = explain_workload(made.state, find_policy(made.state, GetPolicyRequest(*KEY))).conditions
    assert (condition.type, condition.status, condition.reason) == ("ScalingActive", "False", "PolicyRefused")
    assert words in condition.message
    assert (
        ReportCheck(made.state, START_MS).accept_reports((load_observed("queue", 5, START_MS),))[1][0].code
        == "FAILED_PRECONDITION"
    )


def test_a_standby_shows_it_too_and_is_not_filled_by_what_it_never_decides_on() -> None:
    made = world_with_policy()
    event = append_unreadable_policy(made, b"{}")
    with pytest.raises(BadPolicy):
        made.state.follow_record(HeardRecord(SCALE_POLICIES.name, 0, 99, "/".join(KEY), event))
    for second in range(2, 100):
        made.state.follow_record(
            made._append_record(pods_observed("own-1", [900] * 6, START_MS + 1000 * second, second))
        )
    assert list(made.state.refused) == [KEY]
    assert not made.state.scaled


def declare_manifest(made: World, manifest: dict[str, Any]) -> list[Any]:
    request = DeclarePolicyRequest(json.dumps(manifest))
    decision = declaring.declare_policy(made.state, request, Generation(9, 1), made.now_ms, lambda _: ())
    events, _ = apply_decision(made.state, decision)
    made._write_events(events)
    return events


def test_declared_anew_it_decides_again_on_what_is_new_and_when_it_is_due() -> None:
    made = world_with_policy()
    append_unreadable_policy(made, b"{}")
    restart_and_list_errors(made)
    made.advance_to(START_MS + 30_000)
    declare_manifest(made, hpa_manifest([external_metric("queue", "10")], most=30))
    assert not made.state.refused
    assert made.current_replicas == 6
    made.publish_input(load_observed("queue", 90, START_MS + 31_000))
    assert made.current_replicas == 9
    made.advance_to(START_MS + 200_000)
    last = made.state.scaled[KEY].last
    assert last is not None
    assert last.reads[0].read.trouble == "its last value is too old"


def test_another_policy_for_the_workload_waits_until_it_is_deleted() -> None:
    made = world_with_policy()
    append_unreadable_policy(made, b"{}")
    restart_and_list_errors(made)
    other = hpa_manifest([cpu_utilization_metric(50)]) | {"metadata": {"name": "other", "namespace": KEY[0]}}
    with pytest.raises(RequestError, match="HorizontalPodAutoscaler web-hpa scales it already"):
        declare_manifest(made, other)
    events, reply = apply_decision(made.state, declaring.delete_policy(made.state, DeletePolicyRequest(*KEY)))
    assert (len(events), reply.policy) == (3, "web-hpa")
    assert all(isinstance(event, Tombstone) for event in events)
    assert made.state.policies.policy_of(KEY) is None
    declare_manifest(made, other)
    assert list(made.state.scaled) == [KEY]
