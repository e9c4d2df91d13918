"""Which deletions are one request, and what can be hit by it."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vk_bridge.core.pod.delete_collections import (
    CollectionBounds,
    DeleteCollection,
    ListedPod,
    listed_pod,
    pool_pod_collections,
    real_pod_collections,
)
from vk_bridge.core.pod.steps import DeletePool, DeleteReal, LetGo

SIZES = CollectionBounds(least=3, most=5)


def real_pod_deletions(count: int, grace_seconds: int = 10, first: int = 0) -> list[DeleteReal]:
    return [DeleteReal(f"r{number}", grace_seconds) for number in range(first, first + count)]


def let_go_steps(count: int) -> list[LetGo]:
    return [LetGo(f"p{number}") for number in range(count)]


def listed_pods_by_uid(count: int, namespace: str = "a") -> dict[str, ListedPod]:
    return {f"p{number}": ListedPod(namespace) for number in range(count)}


def test_real_pods_of_one_namespace_and_grace_go_together() -> None:
    namespaces = {f"r{number}": "a" if number < 4 else "b" for number in range(8)}
    steps = [*real_pod_deletions(3), *real_pod_deletions(1, 5, first=3), *real_pod_deletions(4, first=4)]
    found = list(real_pod_collections(steps, namespaces, SIZES, leaving=True))
    assert found == [
        DeleteCollection("a", 10, tuple(real_pod_deletions(3))),
        DeleteCollection("b", 10, tuple(real_pod_deletions(4, first=4))),
    ]


def test_many_real_pods_go_with_some_requests_and_few_with_none() -> None:
    namespaces = {f"r{number}": "a" for number in range(12)}
    found = list(real_pod_collections(real_pod_deletions(12), namespaces, SIZES, leaving=True))
    assert [len(one.steps) for one in found] == [5, 5]
    assert not list(real_pod_collections(real_pod_deletions(2), namespaces, SIZES, leaving=True))


def test_by_force_and_on_a_node_that_is_not_recalled_each_real_pod_is_named() -> None:
    namespaces = {f"r{number}": "a" for number in range(5)}
    assert not list(real_pod_collections(real_pod_deletions(5, 0), namespaces, SIZES, leaving=True))
    assert not list(real_pod_collections(real_pod_deletions(5), namespaces, SIZES, leaving=False))


def test_pool_pods_go_together_where_all_of_the_namespace_go() -> None:
    assert list(pool_pod_collections(let_go_steps(4), listed_pods_by_uid(4), SIZES, leaving=True)) == [
        DeleteCollection("a", 0, tuple(let_go_steps(4)))
    ]


ONE_MORE = {**listed_pods_by_uid(4), "stays": ListedPod("a")}
ENDED = {**listed_pods_by_uid(4), "stays": ListedPod("a", ended=True)}
ELSEWHERE = {**listed_pods_by_uid(4), "stays": ListedPod("b")}
RECURS = {**listed_pods_by_uid(4), "p0": ListedPod("a", recurs=True)}
NOT_LISTED = listed_pods_by_uid(3)


@pytest.mark.parametrize(
    ("listed", "leaving", "together"),
    [
        (ONE_MORE, True, False),
        (ENDED, True, True),
        (ELSEWHERE, True, True),
        (RECURS, True, False),
        (NOT_LISTED, True, True),
        (listed_pods_by_uid(4), False, False),
    ],
    ids=[
        "one that stays",
        "one that ended",
        "of another namespace",
        "a name that recurs",
        "one that came since",
        "lent",
    ],
)
def test_a_pool_pod_that_is_not_to_go_keeps_the_others_from_going_together(
    listed: dict[str, ListedPod], leaving: bool, together: bool
) -> None:
    """One that the list did not have is none of those that go together, and is deleted alone."""
    found = list(pool_pod_collections(let_go_steps(4), listed, SIZES, leaving=leaving))
    assert bool(found) is together
    assert all(step.pool_uid in listed for one in found for step in one.steps)  # type: ignore[union-attr]


def test_pool_pods_with_two_graces_are_deleted_one_by_one() -> None:
    steps = [DeletePool(f"p{number}", 10 if number else 5) for number in range(4)]
    assert not list(pool_pod_collections(steps, listed_pods_by_uid(4), SIZES, leaving=True))
    assert not list(pool_pod_collections([*steps[1:], LetGo("p0")], listed_pods_by_uid(4), SIZES, leaving=True))


POD: dict[str, Any] = {
    "metadata": {
        "name": "web-7d4b9-x2zq8",
        "generateName": "web-7d4b9-",
        "namespace": "a",
        "ownerReferences": [{"kind": "ReplicaSet", "controller": True}],
    },
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("changed", "recurs"),
    [
        ({}, False),
        ({"generateName": ""}, True),
        ({"name": "web-7d4b9-0"}, True),
        ({"name": "web-7d4b9-vowel"}, True),
        ({"name": "web-7d4b9-x2zq8-0"}, True),
        ({"name": "x2zq8"}, True),
        ({"name": "web-7d4b9-22222", "ownerReferences": [{"kind": "StatefulSet"}]}, True),
        ({"generateName": "w" * 60, "name": "w" * 58 + "x2zq8"}, False),
    ],
)
def test_a_name_recurs_that_no_api_server_drew(changed: dict[str, Any], recurs: bool) -> None:
    assert listed_pod({**POD, "metadata": {**POD["metadata"], **changed}}) == ListedPod("a", recurs=recurs)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_what_has_ended_is_no_part_of_it(phase: str) -> None:
    assert listed_pod({**POD, "status": {"phase": phase}}).ended


@given(
    st.dictionaries(
        st.sampled_from([f"p{number}" for number in range(9)]),
        st.builds(ListedPod, st.sampled_from("ab"), st.booleans(), st.booleans()),
    ),
    st.dictionaries(st.sampled_from([f"p{number}" for number in range(9)]), st.sampled_from([0, 5, 10])),
    st.booleans(),
)
def test_a_collection_never_holds_what_no_step_names(
    listed: dict[str, ListedPod], graces: dict[str, int], leaving: bool
) -> None:
    """What the API server would delete, by the list and the selectors, is what the steps say, with their grace."""
    steps = [DeletePool(uid, grace) if grace else LetGo(uid) for uid, grace in graces.items()]
    for one in pool_pod_collections(steps, listed, SIZES, leaving=leaving):
        hit = {uid for uid, pod in listed.items() if pod.namespace == one.namespace and not pod.ended}
        assert hit == {step.pool_uid for step in one.steps}  # type: ignore[union-attr]
        assert {graces[uid] for uid in hit} == {one.grace_seconds}
        assert not any(listed[uid].recurs for uid in hit)
        assert leaving
        more = {**listed, "p9": replace(listed[next(iter(hit))])}
        assert one not in list(pool_pod_collections(steps, more, SIZES, leaving=leaving))
