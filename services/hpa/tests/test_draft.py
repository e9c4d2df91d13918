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

from .world import KEY, World, applied, cpu_at, declared, external, hpa, load, pods

OTHER = (KEY[0], "other")


def targeting(name: str, manifest: dict[str, Any]) -> dict[str, Any]:
    spec = manifest["spec"]
    return manifest | {"spec": spec | {"scaleTargetRef": spec["scaleTargetRef"] | {"name": name}}}


MANIFESTS = [
    hpa([external("queue", "10")]),
    hpa([external("queue", "5"), cpu_at(50)], least=3),
    hpa([external("jobs", "10")], most=4),
    targeting(OTHER[1], hpa([external("queue", "10")], least=2)),
]
"""All of one name: the last one leaves the workload of the others."""


def known(state: HpaState) -> Any:
    """All that a request may change."""
    policies = (dict(state.scaled), dict(state.refused), state.policies._keys, state.policies._keys_by_name)
    by_key = (state.inputs, state.decided, state.states, state.changed)
    rest = (sorted(state.dues), state.dropped, state.failed, state.failing, vars(state.positions))
    return deepcopy((policies, by_key, rest))


def begin() -> World:
    made = World()
    made.say(declared(2))
    made.say(declared(3, name=OTHER[1]))
    return made


def decide(made: World, manifest: dict[str, Any]) -> declaring.PolicyDecision:
    request = DeclarePolicyRequest(json.dumps(manifest))
    return declaring.declare_policy(made.state, request, made._generation(), made.now_ms, lambda _: ())


def decide_in_the_state(made: World, manifest: dict[str, Any]) -> None:
    """What a request does, done at once."""
    key, text = (KEY[0], manifest["spec"]["scaleTargetRef"]["name"]), canonical_json(manifest)
    event = ScalePolicyDeclared(*key, made._generation(), manifest["kind"], "web-hpa", text, made.now_ms)
    one = made.state.policies.get(key)
    if one is not None and one.declared.manifest == text:
        return
    events: list[Any] = []
    for left in (one for one in (KEY, OTHER) if one != key and made.state.policies.get(one) is not None):
        made.state.forget_policy(left)
        events += [Tombstone(workload_address(topic, *left)) for topic in (SCALE_POLICIES, SCALE_STATE, SCALE)]
    made._written(events + made.state.put_policy_in_force(event))


@pytest.mark.parametrize("asked", range(len(MANIFESTS)))
def test_a_policy_that_is_decided_on_and_not_applied_changes_nothing(asked: int) -> None:
    made = begin()
    made._written(applied(made.state, decide(made, hpa([external("queue", "10"), cpu_at(90)])))[0])
    made.say(load("queue", 70, made.now_ms + 1_000))
    made.say(pods("own-1", [900, 100], made.now_ms + 1_000))
    before = known(made.state)
    decision = decide(made, MANIFESTS[asked])
    assert decision.events
    assert known(made.state) == before
    applied(made.state, decision)
    assert known(made.state) != before


def test_a_deletion_that_is_decided_on_and_not_applied_changes_nothing() -> None:
    made = begin()
    made._written(applied(made.state, decide(made, MANIFESTS[0]))[0])
    made.say(load("queue", 70, made.now_ms + 1_000))
    before = known(made.state)
    decision = declaring.delete_policy(made.state, DeletePolicyRequest(*KEY))
    assert known(made.state) == before
    applied(made.state, decision)
    assert not made.state.scaled


STEPS = st.lists(
    st.tuples(st.sampled_from(("load", "pods", "policy", "given up", "delete", "restart")), st.integers(0, 3)),
    max_size=25,
)


@given(STEPS)
def test_what_requests_leave_is_what_the_state_itself_would_decide_and_those_given_up_leave_nothing(
    steps: list[tuple[str, int]],
) -> None:
    drafted, at_once = begin(), begin()
    for number, (what, value) in enumerate(steps, 1):
        if what == "given up":
            sequence = drafted._sequence
            decide(drafted, MANIFESTS[value])
            drafted._sequence = sequence
        elif what == "policy":
            drafted._written(applied(drafted.state, decide(drafted, MANIFESTS[value]))[0])
            decide_in_the_state(at_once, MANIFESTS[value])
        elif what == "delete" and KEY in drafted.state.scaled:
            drafted._written(
                applied(drafted.state, declaring.delete_policy(drafted.state, DeletePolicyRequest(*KEY)))[0]
            )
            at_once.state.forget_policy(KEY)
            topics = (SCALE_POLICIES, SCALE_STATE, SCALE)
            at_once._written([Tombstone(workload_address(topic, *KEY)) for topic in topics])  # type: ignore[misc]
        for made in (drafted, at_once):
            if what == "load":
                made.say(load("queue", 30 * value, made.now_ms + 5_000))
            elif what == "pods":
                made.say(pods("own-1", [300 * value] * 3, made.now_ms + 5_000, number))
            elif what == "restart":
                made.restart()
    assert [one.event for one in drafted.log] == [one.event for one in at_once.log]
    assert known(drafted.state) == known(at_once.state)
