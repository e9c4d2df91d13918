"""A request is decided on a draft: not applied it changes nothing, applied it is as if decided in the state itself."""

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpa.core.requests import declaring
from hpa.core.state import HpaState
from spillway.addresses import SCALE, SCALE_POLICIES, SCALE_STATE, Tombstone, workload_address
from spillway.api_scaling import DeclarePolicyRequest, DeletePolicyRequest
from spillway.events_scaling import ScalePolicyDeclared
from spillway.kubernetes.manifest_text import canonical_json

from .world import (
    KEY,
    World,
    apply_decision,
    cpu_utilization_metric,
    external_metric,
    hpa_manifest,
    load_observed,
    pods_observed,
    workload_declared,
)

OTHER = (KEY[0], "other")


def manifest_with_target(name: str, manifest: dict[str, Any]) -> dict[str, Any]:
    spec = manifest["spec"]
    return manifest | {"spec": spec | {"scaleTargetRef": spec["scaleTargetRef"] | {"name": name}}}


MANIFESTS = [
    hpa_manifest([external_metric("queue", "10")]),
    hpa_manifest([external_metric("queue", "5"), cpu_utilization_metric(50)], least=3),
    hpa_manifest([external_metric("jobs", "10")], most=4),
    manifest_with_target(OTHER[1], hpa_manifest([external_metric("queue", "10")], least=2)),
]
"""All of one name: the last one leaves the workload of the others."""


def copy_of_policy_state(state: HpaState) -> Any:
    """All that a request may change."""
    policies = (dict(state.scaled), dict(state.refused), state.policies._keys, state.policies._keys_by_name)
    by_key = (state.inputs, state.decided, state.states, state.changed)
    rest = (sorted(state.dues), state.dropped, state.failed, state.failing, vars(state.positions))
    return deepcopy((policies, by_key, rest))


def world_with_two_workloads() -> World:
    made = World()
    made.publish_input(workload_declared(2))
    made.publish_input(workload_declared(3, name=OTHER[1]))
    return made


def decide_declaration(made: World, manifest: dict[str, Any]) -> declaring.PolicyDecision:
    request = DeclarePolicyRequest(json.dumps(manifest))
    return declaring.declare_policy(made.state, request, made._next_generation(), made.now_ms, lambda _: ())


def declare_in_state(made: World, manifest: dict[str, Any]) -> None:
    """What a request does, done at once."""
    key, text = (KEY[0], manifest["spec"]["scaleTargetRef"]["name"]), canonical_json(manifest)
    event = ScalePolicyDeclared(*key, made._next_generation(), manifest["kind"], "web-hpa", text, made.now_ms)
    one = made.state.policies.policy_of(key)
    if one is not None and one.declared.manifest == text:
        return
    events: list[Any] = []
    for left in (one for one in (KEY, OTHER) if one != key and made.state.policies.policy_of(one) is not None):
        made.state.forget_policy(left)
        events += [Tombstone(workload_address(topic, *left)) for topic in (SCALE_POLICIES, SCALE_STATE, SCALE)]
    made._write_events(events + made.state.put_policy_in_force(event))


@pytest.mark.parametrize("asked", range(len(MANIFESTS)))
def test_a_policy_that_is_decided_on_and_not_applied_changes_nothing(asked: int) -> None:
    made = world_with_two_workloads()
    made._write_events(
        apply_decision(
            made.state,
            decide_declaration(made, hpa_manifest([external_metric("queue", "10"), cpu_utilization_metric(90)])),
        )[0]
    )
    made.publish_input(load_observed("queue", 70, made.now_ms + 1_000))
    made.publish_input(pods_observed("own-1", [900, 100], made.now_ms + 1_000))
    before = copy_of_policy_state(made.state)
    decision = decide_declaration(made, MANIFESTS[asked])
    assert decision.events
    assert copy_of_policy_state(made.state) == before
    apply_decision(made.state, decision)
    assert copy_of_policy_state(made.state) != before


def test_a_deletion_that_is_decided_on_and_not_applied_changes_nothing() -> None:
    made = world_with_two_workloads()
    made._write_events(apply_decision(made.state, decide_declaration(made, MANIFESTS[0]))[0])
    made.publish_input(load_observed("queue", 70, made.now_ms + 1_000))
    before = copy_of_policy_state(made.state)
    decision = declaring.delete_policy(made.state, DeletePolicyRequest(*KEY))
    assert copy_of_policy_state(made.state) == before
    apply_decision(made.state, decision)
    assert not made.state.scaled


STEPS = st.lists(
    st.tuples(st.sampled_from(("load", "pods", "policy", "given up", "delete", "restart")), st.integers(0, 3)),
    max_size=25,
)


@given(STEPS)
def test_a_draft_leads_to_the_state_of_a_direct_decision_and_one_that_is_given_up_changes_nothing(
    steps: list[tuple[str, int]],
) -> None:
    drafted, at_once = world_with_two_workloads(), world_with_two_workloads()
    for number, (what, value) in enumerate(steps, 1):
        if what == "given up":
            sequence = drafted._sequence
            decide_declaration(drafted, MANIFESTS[value])
            drafted._sequence = sequence
        elif what == "policy":
            drafted._write_events(apply_decision(drafted.state, decide_declaration(drafted, MANIFESTS[value]))[0])
            declare_in_state(at_once, MANIFESTS[value])
        elif what == "delete" and KEY in drafted.state.scaled:
            drafted._write_events(
                apply_decision(drafted.state, declaring.delete_policy(drafted.state, DeletePolicyRequest(*KEY)))[0]
            )
            at_once.state.forget_policy(KEY)
            topics = (SCALE_POLICIES, SCALE_STATE, SCALE)
            at_once._write_events([Tombstone(workload_address(topic, *KEY)) for topic in topics])  # type: ignore[misc]
        for made in (drafted, at_once):
            if what == "load":
                made.publish_input(load_observed("queue", 30 * value, made.now_ms + 5_000))
            elif what == "pods":
                made.publish_input(pods_observed("own-1", [300 * value] * 3, made.now_ms + 5_000, number))
            elif what == "restart":
                made.restart()
    assert [one.event for one in drafted.log] == [one.event for one in at_once.log]
    assert copy_of_policy_state(drafted.state) == copy_of_policy_state(at_once.state)
