"""Policies are found by workload, by name and page by page, without a look at all others."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpa.core.manifests.attached import read_attached
from hpa.core.policies import Policies
from hpa.core.requests import answers, declaring
from hpa.core.requests.answers import PAGE_BYTES_MAX, PAGE_SIZE_MAX, TARGETS_MAX, find_policy, list_policies
from hpa.core.rules import HpaRules
from hpa.core.scaled import RefusedPolicy, ScaledWorkload
from hpa.core.state import HpaState
from hpa.external_metrics.connections import NamedConnections, PrometheusConnection
from hpa.service import CollectingOptions, Hpa, HpaClocks
from hpa.settings import HpaSettings
from spillway.api import RequestError
from spillway.api_scaling import (
    DeclarePolicyRequest,
    DeletePolicyRequest,
    GetPolicyRequest,
    ListPoliciesReply,
    ListPoliciesRequest,
)
from spillway.events_scaling import ScalePolicyDeclared
from spillway.local_bus import LocalBroker, LocalBus
from spillway.model import Generation

from .world import KAFKA, apply_decision, external_metric, hpa_manifest, scaled_object_manifest, world_under_policy

READ = read_attached(hpa_manifest([external_metric("q", "1")]))
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["scaled", "refused", "again", "gone"]),
        st.sampled_from("ab"),
        st.sampled_from("vwxyz"),
        st.sampled_from(["p", "q"]),
        st.sampled_from(["HorizontalPodAutoscaler", "ScaledObject"]),
    ),
    max_size=30,
)


def policy_declared(namespace: str, name: str, policy: str, kind: str) -> ScalePolicyDeclared:
    return ScalePolicyDeclared(namespace, name, Generation(1, 1), kind, policy, b"{}", 0)


@given(CHANGES)
def test_what_is_found_is_what_a_look_at_all_would_find(changes: list[tuple[str, str, str, str, str]]) -> None:
    made, expected = Policies(), dict[tuple[str, str], ScaledWorkload | RefusedPolicy]()
    for what, namespace, name, policy, kind in changes:
        key, declared = (namespace, name), policy_declared(namespace, name, policy, kind)
        known = expected.get(key)
        if what == "gone":
            assert made.remove_policy(key) is expected.pop(key, None)
        elif what == "again" and isinstance(known, ScaledWorkload):
            known.declared = declared
            made.put_policy(known)
        else:
            expected[key] = ScaledWorkload(declared, READ) if what == "scaled" else RefusedPolicy(declared, "why")
            made.put_policy(expected[key])
        assert made.scaled | made.refused == expected
        for one in ("p", "q"):
            found = [had for had in expected.values() if (had.key[0], had.declared.policy) == ("a", one)]
            assert sorted(had.key for had in made.policies_named("a", one)) == sorted(had.key for had in found)
            of_kind = [had.key for had in found if had.declared.kind == "ScaledObject"]
            assert sorted(had.key for had in made.policies_named("a", one, "ScaledObject")) == sorted(of_kind)
        assert list(walk_policy_keys(made, "")) == sorted(expected)
        assert list(walk_policy_keys(made, "b")) == sorted(one for one in expected if one[0] == "b")


def walk_policy_keys(made: Policies, namespace: str) -> Iterator[tuple[str, str]]:
    one = made.next_policy_after(None, namespace)
    while one is not None:
        yield one.key
        one = made.next_policy_after(one.key, namespace)


class NeverWalked(dict[Any, Any]):
    """Policies of a whole fleet: to look at each of them takes milliseconds of the one loop."""

    def _refuse_walk(self, *_: object) -> Any:
        raise AssertionError("all policies are looked at")

    __iter__ = keys = values = items = _refuse_walk


def hpa_manifest_of_policy(name: str, policy: str, **metric: Any) -> dict[str, Any]:
    made = hpa_manifest([external_metric(metric.pop("metric", "q"), "1")], **metric)
    made["metadata"]["name"] = policy
    made["spec"]["scaleTargetRef"]["name"] = name
    return made


def declare_manifest(state: HpaState, one: dict[str, Any], sequence: int) -> None:
    request = DeclarePolicyRequest(json.dumps(one))
    apply_decision(state, declaring.declare_policy(state, request, Generation(1, sequence), sequence, lambda _: ()))


def state_with_policies(count: int) -> HpaState:
    state = HpaState(HpaRules(), lambda _: 0)
    state.apply_early_records()
    state.take_turn(lambda: Generation(1, 1), 0)
    for number in range(count):
        declare_manifest(state, hpa_manifest_of_policy(f"w{number:03}", f"p{number:03}"), number + 1)
    return state


def test_one_policy_is_declared_found_and_deleted_without_a_look_at_all_others() -> None:
    state = state_with_policies(5)
    state.policies.scaled = state.scaled = NeverWalked(state.scaled)
    state.policies.refused = state.refused = NeverWalked(state.refused)
    assert find_policy(state, GetPolicyRequest("shop", "w003")).declared.policy == "p003"
    assert find_policy(state, GetPolicyRequest("shop", policy="p003")).key == ("shop", "w003")
    declare_manifest(state, hpa_manifest_of_policy("w003", "p003", most=7), 10)
    declare_manifest(state, hpa_manifest_of_policy("other", "p003"), 11)
    with pytest.raises(RequestError, match="no scale policy of this name"):
        find_policy(state, GetPolicyRequest("shop", "w003"))
    apply_decision(state, declaring.delete_policy(state, DeletePolicyRequest("shop", policy="p003")))
    page = list_policies(state, ListPoliciesRequest("shop", 2, "shop/w001"))
    assert [one.name for one in page.policies] == ["w002", "w004"]
    assert page.next_page_token == ""


def all_policy_pages(state: HpaState, size: int = 0, namespace: str = "") -> list[ListPoliciesReply]:
    found, token = list[ListPoliciesReply](), ""
    while not found or token:
        found.append(list_policies(state, ListPoliciesRequest(namespace, size, token)))
        token = found[-1].next_page_token
    return found


@pytest.mark.parametrize("size", [0, 500])
def test_a_page_has_a_hundred_policies_at_most_and_all_are_on_some_page(size: int) -> None:
    found = all_policy_pages(state_with_policies(PAGE_SIZE_MAX + 5), size)
    assert [len(page.policies) for page in found] == [PAGE_SIZE_MAX, 5]
    names = [one.name for page in found for one in page.policies]
    assert names == sorted(set(names))


def test_a_page_ends_where_its_texts_are_as_many_as_a_page_has() -> None:
    """Warnings repeat names of a manifest."""
    state = state_with_policies(0)
    for number in range(5):
        trigger = {**KAFKA, "metadata": {**KAFKA["metadata"], "x" * 400_000: ""}}
        one = scaled_object_manifest([trigger])
        one["metadata"]["name"] = one["spec"]["scaleTargetRef"]["name"] = f"w{number}"
        declare_manifest(state, one, number + 1)
    found = all_policy_pages(state)
    assert [len(page.policies) for page in found] == [2, 2, 1]
    with patch.object(answers, "PAGE_BYTES_MAX", 10):
        assert [len(page.policies) for page in all_policy_pages(state)] == [1] * 5
    assert PAGE_BYTES_MAX == 2**20


def test_what_is_said_of_all_metrics_in_one_line_is_cut_and_the_rest_is_not_worked_out(calls_of: Any) -> None:
    made = world_under_policy(hpa_manifest([external_metric(f"{number}-{'ä' * 100}", "1") for number in range(60)]))
    with calls_of(answers._target_text) as worked_out:
        (page,) = all_policy_pages(made.state)
    (listed,) = page.policies
    assert TARGETS_MAX - 4 < len(listed.targets.encode()) <= TARGETS_MAX
    assert 0 < len(worked_out) < 12


async def test_others_are_answered_between_two_queries_of_a_callers_declarations(calls_of: Any) -> None:
    """However many requests of a caller come at one moment, others wait for one query of it at a time."""
    bus, stopping = LocalBus(LocalBroker(), "local-00000001", "spillway/hpa-1"), asyncio.Event()
    address = "http://127.0.0.1:1"
    connections = NamedConnections(prometheus={"main": PrometheusConnection(address, namespace_label="namespace")})
    clocks = HpaClocks(int, asyncio.get_running_loop().time)
    made = Hpa(bus, HpaSettings(), "hpa-1", clocks, CollectingOptions(connections))
    running = asyncio.create_task(made.run(stopping))
    while not made.is_active:
        await asyncio.sleep(0.01)
    source = {"serverAddress": address, "threshold": "1"}
    triggers = [{"type": "prometheus", "metadata": {**source, "query": f"sum(a) - {index}"}} for index in range(10)]
    request = DeclarePolicyRequest(json.dumps(scaled_object_manifest(triggers)), plan_only=True)
    with calls_of(PrometheusConnection.confined_query) as calls:
        asking = [asyncio.create_task(made.declare_policy(request)) for _ in range(5)]
        seen = [0]
        while not all(one.done() for one in asking):
            await asyncio.sleep(0)
            seen.append(len(calls))
    assert len(calls) == 50
    assert max(later - earlier for earlier, later in pairwise(seen)) == 1
    stopping.set()
    await running


async def test_others_are_answered_between_two_policies_of_a_page() -> None:
    bus, stopping = LocalBus(LocalBroker(), "local-00000001", "spillway/hpa-1"), asyncio.Event()
    made = Hpa(bus, HpaSettings(), "hpa-1", HpaClocks(int, asyncio.get_running_loop().time))
    running = asyncio.create_task(made.run(stopping))
    while not made.is_active:
        await asyncio.sleep(0.01)
    for number in range(20):
        await made.declare_policy(
            DeclarePolicyRequest(json.dumps(hpa_manifest_of_policy(f"w{number:03}", f"p{number:03}")))
        )
    turns = 0

    async def count_other_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(count_other_turns())
    reply = await made.list_policies(ListPoliciesRequest())
    beside.cancel()
    assert (len(reply.policies), reply.stale) == (20, False)
    assert turns >= 20
    stopping.set()
    await running


def test_a_policy_that_is_deleted_while_a_page_is_made_ends_it_not() -> None:
    state = state_with_policies(4)
    page = answers.PolicyPage(state, ListPoliciesRequest())
    assert page.add_next_policy()
    state.forget_policy(("shop", "w000"))
    state.forget_policy(("shop", "w001"))
    while page.add_next_policy():
        pass
    assert [one.name for one in page.reply().policies] == ["w000", "w002", "w003"]
    assert replace(page.reply(), policies=()) == ListPoliciesReply((), "", False)
