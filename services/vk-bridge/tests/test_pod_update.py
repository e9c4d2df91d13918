"""What people change of a pool pod reaches its real pod, and nothing else of that is touched."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from spillway.lending_marks import GIVEN
from vk_bridge.core.node.loan import PoolPod, RealPod
from vk_bridge.core.node.steps import NodeContext
from vk_bridge.core.pod.propagated_metadata import CARRIED
from vk_bridge.core.pod.steps import DeletePool, DeleteReal, LetGo, Mirror, PodStep, UpdateReal, pod_step
from vk_bridge.core.pod.update import is_behind, is_resized, mutable_fields_text, update_patch

POOL_POD: dict[str, Any] = {
    "metadata": {"labels": {"app": "encode"}, "annotations": {"note": "a"}},
    "spec": {
        "containers": [{"name": "main", "image": "app:1"}, {"name": "helper", "image": "help:1"}],
        "initContainers": [{"name": "first", "image": "init:1"}],
    },
}
REAL_POD: dict[str, Any] = {
    "metadata": {
        "labels": {"app": "encode", "spillway.io/pool": "p"},
        "annotations": {"note": "a", GIVEN: mutable_fields_text(POOL_POD, CARRIED)},
    },
    "spec": {
        "containers": [
            {"name": "main", "image": "mirror/app:1", "tty": True},
            {"name": "helper", "image": "help:1"},
            {"name": "injected", "image": "x"},
        ],
        "initContainers": [{"name": "first", "image": "init:1"}],
    },
}
NOW = {"app": "encode", "stage": "two"}
CHANGES: dict[str, tuple[Any, dict[str, Any]]] = {
    "a label": (lambda pod: pod["metadata"].update(labels=NOW), {"metadata": {"labels": NOW}}),
    "an annotation": (
        lambda pod: pod["metadata"].update(annotations={"note": "b"}),
        {"metadata": {"annotations": {"note": "b"}}},
    ),
    "a deadline": (
        lambda pod: pod["spec"].update(activeDeadlineSeconds=7),
        {"metadata": {}, "spec": {"activeDeadlineSeconds": 7}},
    ),
    "an image": (
        lambda pod: pod["spec"]["containers"][1].update(image="help:2"),
        {
            "metadata": {},
            "spec": {
                "containers": [
                    {"name": "main", "image": "mirror/app:1", "tty": True},
                    {"name": "helper", "image": "help:2"},
                    {"name": "injected", "image": "x"},
                ]
            },
        },
    ),
    "an init container's image": (
        lambda pod: pod["spec"]["initContainers"][0].update(image="init:2"),
        {"metadata": {}, "spec": {"initContainers": [{"name": "first", "image": "init:2"}]}},
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_only_what_was_changed_is_written(what: str) -> None:
    pod = deepcopy(POOL_POD)
    change, expected = CHANGES[what]
    change(pod)
    assert is_behind(REAL_POD, pod, CARRIED)
    patch = update_patch(REAL_POD, pod, CARRIED)
    assert patch["metadata"]["annotations"].pop(GIVEN) == mutable_fields_text(pod, CARRIED)
    patch["metadata"] = {key: value for key, value in patch["metadata"].items() if value}
    assert patch == expected


def test_what_is_not_peoples_is_no_change() -> None:
    pod = deepcopy(POOL_POD)
    pod["metadata"]["labels"]["spillway.io/x"] = "y"
    pod["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = "{}"
    pod["metadata"]["labels"]["sidecar.istio.io/inject"] = "true"
    pod["spec"]["nodeName"] = "own-1.n0"
    assert not is_behind(REAL_POD, pod, CARRIED)


@pytest.mark.parametrize("text", ["", "x", "{}", "[]", '{"images": 1}'])
def test_a_real_pod_that_bears_nothing_readable_is_left_alone(text: str) -> None:
    real = {**REAL_POD, "metadata": {"annotations": {GIVEN: text}}}
    assert not is_behind(real, {**POOL_POD, "metadata": {}}, CARRIED)


@pytest.mark.parametrize(
    ("change", "resized"),
    [
        pytest.param(lambda spec: spec["containers"][0].update(resources={"requests": {"cpu": "2"}}), True, id="asks"),
        pytest.param(lambda spec: spec["containers"][1].update(resources={"limits": {"cpu": "2"}}), True, id="limit"),
        pytest.param(
            lambda spec: spec["initContainers"][0].update(resources={"limits": {"cpu": "2"}}), True, id="init"
        ),
        pytest.param(lambda spec: spec.update(resources={"requests": {"cpu": "2"}}), True, id="of the pod"),
        pytest.param(lambda spec: spec["containers"][0].update(resources={}), False, id="nothing is nothing"),
        pytest.param(lambda spec: spec["containers"][0].update(image="app:2"), False, id="an image"),
    ],
)
def test_a_resize_in_place_is_no_change_that_is_carried_over(change: Any, resized: bool) -> None:
    pod = deepcopy(POOL_POD)
    change(pod["spec"])
    assert is_resized(REAL_POD, pod) == resized
    assert is_behind(REAL_POD, pod, CARRIED) == (pod["spec"]["containers"][0]["image"] == "app:2")
    pod["metadata"]["labels"] = NOW
    real = deepcopy(REAL_POD)
    real["metadata"]["annotations"] |= update_patch(real, pod, CARRIED)["metadata"]["annotations"]
    assert (is_behind(real, pod, CARRIED), is_resized(real, pod)) == (False, resized), "what it was made with stays"


def test_a_real_pod_of_an_older_version_is_not_known_to_be_resized() -> None:
    older = '{"images":{},"deadline_seconds":null,"labels":"","annotations":""}'
    assert not is_resized({**REAL_POD, "metadata": {"annotations": {GIVEN: older}}}, POOL_POD)


STAYS = NodeContext(takes=True, leaving=False, grace_seconds=30)


@pytest.mark.parametrize(
    ("pool", "real", "context", "step"),
    [
        pytest.param(PoolPod("p"), RealPod("r", "p", behind=True), STAYS, UpdateReal("p"), id="it is updated"),
        pytest.param(PoolPod("p"), RealPod("r", "p"), STAYS, None, id="nothing to do"),
        pytest.param(PoolPod("p"), RealPod("r", "p", behind=True, news=True), STAYS, Mirror("p"), id="news first"),
        pytest.param(PoolPod("p"), RealPod("r", "p", behind=True, deleting=True), STAYS, None, id="it goes"),
        pytest.param(PoolPod("p", ended=True), RealPod("r", "p", behind=True), STAYS, None, id="it has ended"),
        pytest.param(
            PoolPod("p"),
            RealPod("r", "p", behind=True),
            NodeContext(takes=False, leaving=True, grace_seconds=30),
            DeletePool("p", 30, real_uid="r"),
            id="its node goes back",
        ),
        pytest.param(
            PoolPod("p", created=True),
            RealPod("r", "p", deleting=True, ended=True, news=True),
            NodeContext(takes=False, leaving=True, grace_seconds=30),
            DeletePool("p", 30),
            id="how it ended when it was told to go is nobody's news: a Job would count it as done",
        ),
        pytest.param(
            PoolPod("p", created=True),
            RealPod("r", "p", ended=True, news=True),
            NodeContext(takes=False, leaving=True, grace_seconds=30),
            Mirror("p"),
            id="how it ended before it was told to go is",
        ),
        pytest.param(
            PoolPod("p", created=True),
            None,
            NodeContext(takes=False, leaving=True, grace_seconds=30),
            LetGo("p"),
            id="it is let go with its real pod's end, though it was never told",
        ),
    ],
)
def test_when_a_real_pod_is_updated_and_when_it_goes(
    pool: PoolPod, real: RealPod | None, context: NodeContext, step: Any
) -> None:
    assert pod_step(pool, real, context) == step


SHORT = RealPod("r", "p", grace_seconds=5)


@pytest.mark.parametrize(
    ("pool", "real", "context", "grace_seconds"),
    [
        pytest.param(None, SHORT, STAYS, 5, id="an orphan, its own"),
        pytest.param(None, replace(SHORT, grace_seconds=3600), STAYS, 30, id="an orphan, no longer than a recall's"),
        pytest.param(
            None, SHORT, NodeContext(takes=False, leaving=True, grace_seconds=3), 3, id="the recall's is shorter"
        ),
        pytest.param(
            PoolPod("p", ended=True),
            SHORT,
            NodeContext(takes=False, leaving=True, grace_seconds=30),
            5,
            id="it has ended",
        ),
    ],
)
def test_a_real_pods_own_grace_is_never_lengthened(
    pool: PoolPod | None, real: RealPod, context: NodeContext, grace_seconds: int
) -> None:
    assert pod_step(pool, real, context) == DeleteReal("r", grace_seconds)


LEAVES = NodeContext(takes=False, leaving=True, grace_seconds=30)
SLOW = RealPod("r", "p", deleting=True, seconds_left=3600)
SLOW_POOL = PoolPod("p", deleting=True, created=True, grace_seconds=3600)


@pytest.mark.parametrize(
    ("pool", "real", "context", "step"),
    [
        pytest.param(SLOW_POOL, SLOW, STAYS, None, id="lent: its own grace"),
        pytest.param(SLOW_POOL, SLOW, LEAVES, DeleteReal("r", 30), id="recalled: the recall's"),
        pytest.param(None, SLOW, LEAVES, DeleteReal("r", 30), id="its pool pod is gone"),
        pytest.param(SLOW_POOL, replace(SLOW, seconds_left=30), LEAVES, None, id="it has no more left"),
        pytest.param(SLOW_POOL, RealPod("r", "p"), STAYS, DeleteReal("r", 3600), id="lent, not deleted yet"),
        pytest.param(SLOW_POOL, RealPod("r", "p"), LEAVES, DeleteReal("r", 30), id="recalled, not deleted yet"),
    ],
)
def test_a_recall_shortens_a_deletion_that_is_under_way(
    pool: PoolPod | None, real: RealPod, context: NodeContext, step: PodStep | None
) -> None:
    assert pod_step(pool, real, context) == step
