"""The pod that a dry run creates, and what of the answer is a difference from the template."""

from typing import Any

import pytest

from propagator.core.admission import (
    admitted_shape,
    outcome_of_refusal,
    pod_for_dry_run,
    read_dry_run_answer,
    refusal_without_pod_name,
)
from spillway.events import SHAPE_ADMITTED, SHAPE_FORBIDDEN, SHAPE_REFUSED, SHAPE_UNASKED

ANY_POD = [
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
]
OWN_HASH = {"topologyKey": "zone", "matchLabelKeys": ["pod-template-hash"]}
SELECTOR = {"matchLabels": {"app": "web"}}
MERGED = {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "pod-template-hash", "operator": "In"}]}
MERGED["matchExpressions"][0]["values"] = ["abc"]  # type: ignore[index]


def pod_template(**spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container], **spec}}


def dry_run_answer(**spec: Any) -> dict[str, Any]:
    """A pod of template(), as an API server gives it back, with more of its spec."""
    pod = pod_for_dry_run(pod_template(), "default", "web", "d1")
    return {**pod, "spec": {**pod["spec"], "tolerations": ANY_POD, "priority": 0, "nodeSelector": {}, **spec}}


def affinity_with_anti_affinity(selector: dict[str, Any]) -> dict[str, Any]:
    terms = [{**OWN_HASH, "labelSelector": selector}]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def spread_constraints(selector: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**OWN_HASH, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]


NO_DIFFERENCE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "what is added to any pod": ({}, {}),
    "a requirement merged into a spread": (
        {"topologySpreadConstraints": spread_constraints(SELECTOR)},
        {"topologySpreadConstraints": spread_constraints(MERGED)},
    ),
    "a requirement merged into an anti-affinity": (
        {"affinity": affinity_with_anti_affinity(SELECTOR)},
        {"affinity": affinity_with_anti_affinity(MERGED)},
    ),
    "a toleration of its own that any pod gets, too": ({"tolerations": ANY_POD}, {}),
}


@pytest.mark.parametrize(("declared", "found"), NO_DIFFERENCE.values(), ids=NO_DIFFERENCE)
def test_what_every_pod_gets_is_no_difference(declared: dict[str, Any], found: dict[str, Any]) -> None:
    assert admitted_shape(dry_run_answer(**found), pod_template(**declared), "default") is None


SIDECAR = {"name": "proxy", "image": "p", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
MAIN = pod_template()["spec"]["containers"][0]
REQUESTS: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "an injected container": ({"containers": [MAIN, SIDECAR]}, {"cpu": 1500, "memory": 2**30, "pods": 1}),
    "an injected sidecar": (
        {"initContainers": [{**SIDECAR, "restartPolicy": "Always"}]},
        {"cpu": 1500, "memory": 2**30, "pods": 1},
    ),
    "an injected init container asks for no more than what runs later": (
        {"initContainers": [SIDECAR]},
        {"cpu": 1000, "memory": 2**30, "pods": 1},
    ),
    "overhead": ({"overhead": {"cpu": "250m"}}, {"cpu": 1250, "pods": 1}),
    "less than was asked for": (
        {"containers": [{**MAIN, "resources": {"requests": {"cpu": "10m"}}}]},
        {"cpu": 10, "pods": 1},
    ),
}


@pytest.mark.parametrize(("found", "requests"), REQUESTS.values(), ids=REQUESTS)
def test_requests_are_those_of_the_pod_that_came_back(found: dict[str, Any], requests: dict[str, int]) -> None:
    shape = admitted_shape(dry_run_answer(**found), pod_template(), "default")
    assert shape is not None
    assert dict(shape.requests) == requests
    assert shape.template == admitted_shape(dry_run_answer(**found), pod_template(), "default").template  # type: ignore[union-attr]
    assert dict(shape.traits.labels) == {"app": "web"}


def test_where_a_pod_may_go_is_part_of_the_difference() -> None:
    toleration = {"key": "box", "operator": "Exists"}
    found = dry_run_answer(nodeSelector={"sandbox": "yes"}, tolerations=[*ANY_POD, toleration])
    shape = admitted_shape(found, pod_template(), "default")
    assert shape is not None
    assert shape.node_selector == (("sandbox", "yes"),)
    assert [entry.key for entry in shape.tolerations] == ["box"]


def test_a_default_priority_class_is_a_difference_that_quotas_see() -> None:
    shape = admitted_shape(dry_run_answer(priorityClassName="low"), pod_template(), "default")
    assert shape is not None
    assert shape.traits.priority_class == "low"


def test_what_cannot_be_read_is_not_asked() -> None:
    state, message, shape = read_dry_run_answer(dry_run_answer(containers=[]), pod_template(), "default")
    assert (state, shape) == (SHAPE_UNASKED, None)
    assert "containers" in message
    assert read_dry_run_answer(dry_run_answer(), pod_template(), "default") == (SHAPE_ADMITTED, "", None)


NO_PODS: dict[str, dict[str, Any]] = {
    "without a spec": {"metadata": {}},
    "without an affinity that it names": dry_run_answer(affinity=None),
    "spreads that are none": dry_run_answer(topologySpreadConstraints=["zone"]),
    "a spread of which the selector is no list": dry_run_answer(
        topologySpreadConstraints=spread_constraints({"matchExpressions": "zone"})
    ),
    "a requirement without a key": dry_run_answer(
        topologySpreadConstraints=spread_constraints({"matchExpressions": [{}]})
    ),
}


@pytest.mark.parametrize("pod", NO_PODS.values(), ids=NO_PODS)
def test_a_member_that_answers_nonsense_ends_no_propagator(pod: dict[str, Any]) -> None:
    state, message, shape = read_dry_run_answer(pod, pod_template(), "default")
    assert (state, shape) == (SHAPE_UNASKED, None)
    assert message.startswith("what came back")


REFUSALS = {
    "no right": (
        403,
        'pods is forbidden: User "x" cannot create resource "pods" in API group "" in the namespace "n"',
        SHAPE_FORBIDDEN,
    ),
    "pod security": (403, 'pods "web-x" is forbidden: violates PodSecurity "restricted:latest"', SHAPE_REFUSED),
    "a quota that is used up": (403, 'pods "web-x" is forbidden: exceeded quota: q, requested: cpu=1', SHAPE_UNASKED),
    "a namespace of a moment ago": (
        403,
        'pods "web-x" is forbidden: error looking up service account n/default: serviceaccount "default" not found',
        SHAPE_UNASKED,
    ),
    "no namespace": (404, 'namespaces "n" not found', SHAPE_UNASKED),
    "invalid": (422, 'Pod "web-x" is invalid: spec.containers[0].name: Required value', SHAPE_REFUSED),
}


@pytest.mark.parametrize(("status", "message", "state"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_is_of_the_template_of_our_rights_or_of_this_moment(status: int, message: str, state: str) -> None:
    assert outcome_of_refusal(status, message) == state


def test_the_name_that_a_pod_was_given_is_not_news() -> None:
    one, other = (refusal_without_pod_name(f'pods "web-{end}" is forbidden: why', "web") for end in ("a1b2c", "d3e4f"))
    assert one == other == 'pods "web-…" is forbidden: why'


def test_the_pod_is_made_as_a_controller_makes_it() -> None:
    declared = pod_template()
    declared["metadata"]["annotations"] = {"inject": "yes"}
    made = pod_for_dry_run(declared, "default", "w" * 80, "0123456789abcdef")
    assert made["metadata"]["generateName"] == "w" * 58
    assert made["metadata"]["labels"] == {"app": "web", "pod-template-hash": "0123456789"}
    assert made["metadata"]["annotations"] == {"inject": "yes"}
    assert made["spec"] == declared["spec"]
