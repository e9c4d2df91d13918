"""Which pool pods wait because a node did not admit others, and which never fit it."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.manifests import pod
from vk_bridge.core.pod.admitted_sizes import AdmittedSizes
from vk_bridge.core.pod.node_refusals import (
    PauseRules,
    PodKind,
    Refusals,
    RefusedLately,
    RefusedPod,
    is_unanswered_by_its_node,
    kind_of_pod,
    paused_pool_uids,
    too_large_pods,
)

RULES = PauseRules(seconds=10, tries_max=2)
ROOM = {"cpu": 2500, "memory": 1 << 30}
FREE = {"cpu": 8000, "memory": 1 << 30}
OF_SHOP = {"ownerReferences": [{"kind": "ReplicaSet", "name": "web-1", "controller": True}]}


def kind(namespace: str = "shop", maker: str = "ReplicaSet/web", cpu: int = 2000) -> PodKind:
    return PodKind(namespace, maker, frozenset({("cpu", cpu)}))


def pod_of_shop(cpu: str, **metadata: Any) -> dict[str, Any]:
    manifest = pod("one", cpu=cpu)
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": "shop", **metadata}}


def refused_pod(of: PodKind, admitted: int = 2000) -> RefusedPod:
    return RefusedPod(of, AdmittedSizes(dict(of.requests), {"cpu": admitted}))


WEB, WORKER, PAY = kind(), kind(maker="ReplicaSet/worker"), kind("bank", "ReplicaSet/pay")
NAMES = [kind(maker=f"Pod/p{number}") for number in range(4)]


@pytest.mark.parametrize(
    ("refused", "unanswered", "waiting", "paused"),
    [
        pytest.param([], [], {"a": WEB, "b": WEB}, "", id="nothing was refused: all are created at once"),
        pytest.param([], [WEB] * 5, {"a": WEB, "b": WEB}, "", id="nothing was refused: no try is counted"),
        pytest.param([(WEB, 15)], [], {"a": WEB}, "a", id="of the same kind within the pause"),
        pytest.param([(WEB, 15)], [], {"a": PAY}, "", id="of another namespace"),
        pytest.param([(WEB, 15)], [], {"a": WORKER}, "", id="of another controller"),
        pytest.param([(WEB, 15)], [], {"a": kind(cpu=1000)}, "", id="of another size"),
        pytest.param([(WEB, 10)], [], {"a": WEB, "b": WEB, "c": WEB}, "bc", id="after the pause one is tried"),
        pytest.param([(WEB, 10)], [WEB], {"a": WEB}, "a", id="one is tried already"),
        pytest.param(
            [(WEB, 15), (WORKER, 16)], [], {"a": NAMES[0]}, "a", id="as many of the namespace were refused as may be"
        ),
        pytest.param(
            [(WEB, 15), (WORKER, 16)], [], {"a": PAY, "b": PAY, "c": PAY}, "", id="that namespace's count is its own"
        ),
        pytest.param([(WEB, 10), (WORKER, 16)], [], {"a": NAMES[0]}, "", id="one of both is over"),
        pytest.param(
            [(WEB, 1)],
            [],
            {f"{number}": one for number, one in enumerate(NAMES)},
            "23",
            id="later as many are tried at once as may be refused",
        ),
        pytest.param([(WEB, 1)], NAMES[:2], {"a": NAMES[3]}, "a", id="as many have no answer yet"),
    ],
)
def test_which_pods_wait(
    refused: list[tuple[PodKind, float]], unanswered: list[PodKind], waiting: dict[str, PodKind], paused: str
) -> None:
    lately = RefusedLately(kinds=tuple(refused))
    assert paused_pool_uids(waiting, unanswered, lately, ROOM, 20, RULES) == set(paused)


@given(
    refused=st.lists(st.tuples(st.sampled_from([*NAMES, WEB, PAY]), st.integers(0, 20)), max_size=8),
    unanswered=st.lists(st.sampled_from([*NAMES, PAY]), max_size=5),
    waiting=st.dictionaries(st.integers(0, 99).map(str), st.sampled_from([*NAMES, WEB, PAY]), max_size=12),
)
def test_no_namespace_has_more_pods_refused_in_the_pause_than_its_bound_and_holds_no_other(
    refused: list[tuple[PodKind, int]], unanswered: list[PodKind], waiting: dict[str, PodKind]
) -> None:
    lately = RefusedLately(kinds=tuple(refused))
    paused = paused_pool_uids(waiting, unanswered, lately, ROOM, 20, RULES)
    created = [one for uid, one in waiting.items() if uid not in paused]
    for namespace in {one.namespace for one, _ in refused}:
        tried = [one for one in created if one.namespace == namespace]
        open_tries = [one for one in unanswered if one.namespace == namespace]
        lately_refused = [one for one, at in refused if one.namespace == namespace and 20 - at < RULES.seconds]
        assert not tried or len(tried) + len(open_tries) + len(lately_refused) <= RULES.tries_max
    others = {uid for uid, one in waiting.items() if one.namespace not in {of.namespace for of, _ in refused}}
    assert not others & paused


def paused_elsewhere(of: PodKind, room: dict[str, int], now: float, *refused_at: float) -> bool:
    """Whether a pod waits on n1 after n0 refused pods of the kind web, each enlarged to three cores."""
    refusals = Refusals(300)
    for at in refused_at:
        refusals.update_refusals("n0", {f"{at}": refused_pod(WEB, 3000)}, at)
    lately = refusals.update_refusals("n1", {}, now)
    return bool(paused_pool_uids({"a": of}, [], lately, room, now, RULES))


@pytest.mark.parametrize(
    ("of", "cpu", "now", "refused_at", "paused"),
    [
        pytest.param(WEB, 2500, 19, [10], True, id="it does not fit here either"),
        pytest.param(WEB, 3000, 19, [10], False, id="it fits"),
        pytest.param(kind(cpu=1000), 2500, 19, [10], False, id="of another size"),
        pytest.param(kind("bank"), 2500, 19, [10], False, id="of another namespace"),
        pytest.param(WORKER, 2500, 19, [10], False, id="of another controller"),
        pytest.param(WEB, 2500, 20, [10], False, id="one may try"),
        pytest.param(WEB, 2500, 29, [10, 20], True, id="that one was refused too"),
    ],
)
def test_a_kind_that_one_node_refused_waits_on_others_where_it_does_not_fit_either(
    of: PodKind, cpu: int, now: float, refused_at: Sequence[float], paused: bool
) -> None:
    assert paused_elsewhere(of, {**ROOM, "cpu": cpu}, now, *refused_at) is paused


def test_a_refusal_counts_for_a_while_and_only_once_though_its_pod_stays() -> None:
    refusals, grown, other = Refusals(300), refused_pod(WEB, 3000), refused_pod(WORKER)
    assert refusals.update_refusals("n0", {}, 0) == RefusedLately()
    enlarged = {WEB: (grown.sizes, 10)}
    first = RefusedLately((grown.sizes,), ((WEB, 10),), enlarged, 310)
    assert refusals.update_refusals("n0", {"a": grown}, 10) == first
    assert refusals.update_refusals("n0", {}, 200) == first
    both = ((WEB, 10), (WORKER, 250))
    assert refusals.update_refusals("n0", {"b": other}, 250) == RefusedLately((grown.sizes,), both, enlarged, 310)
    one = RefusedLately((), ((WORKER, 250),), {}, 550)
    assert refusals.update_refusals("n0", {"a": grown, "b": other}, 310) == one
    assert refusals.update_refusals("n0", {"a": grown, "b": other}, 600) == RefusedLately()
    assert refusals.update_refusals("n0", {"a": grown}, 900) == RefusedLately()
    assert refusals.update_refusals("n1", {}, 300) == RefusedLately()


@pytest.mark.parametrize(
    ("cpu", "why"),
    [
        pytest.param("8", "", id="all that its node has"),
        pytest.param(
            "8001m",
            "cpu: 8001m: expected at most 8000m, which its node has for pods of this cluster",
            id="more than its node has",
        ),
    ],
)
def test_which_pod_never_fits_its_node(cpu: str, why: str) -> None:
    found = too_large_pods({"a": kind_of_pod(pod_of_shop(cpu))}, FREE)
    assert found == ({"a": why} if why else {})
    assert too_large_pods({"a": kind(cpu=9)}, {}) == {}, "the node does not list it"


@pytest.mark.parametrize(
    ("metadata", "maker"),
    [
        pytest.param(OF_SHOP, "ReplicaSet/web-1", id="its controller"),
        pytest.param({"ownerReferences": [{"kind": "Thing", "name": "t"}]}, "Pod/one", id="an owner, no controller"),
        pytest.param({}, "Pod/one", id="nobody made it"),
    ],
)
def test_of_which_kind_a_pod_is(metadata: dict[str, Any], maker: str) -> None:
    found = kind_of_pod(pod_of_shop("2", **metadata))
    assert found == PodKind("shop", maker, frozenset({("cpu", 2000), ("memory", 64 << 20)}))


@pytest.mark.parametrize(
    ("real_pod", "unanswered"),
    [
        pytest.param({"metadata": {}}, True, id="just created"),
        pytest.param({"metadata": {}, "status": {"phase": "Pending"}}, True, id="bound"),
        pytest.param({"metadata": {}, "status": {"phase": "Pending", "startTime": "t"}}, False, id="its images come"),
        pytest.param({"metadata": {}, "status": {"phase": "Running", "startTime": "t"}}, False, id="it runs"),
        pytest.param({"metadata": {}, "status": {"phase": "Failed"}}, False, id="it was rejected"),
        pytest.param({"metadata": {"deletionTimestamp": "t"}, "status": {"phase": "Pending"}}, False, id="it leaves"),
    ],
)
def test_which_pod_has_no_answer_of_its_node(real_pod: dict[str, Any], unanswered: bool) -> None:
    assert is_unanswered_by_its_node(real_pod) is unanswered
