"""How much a template may say of where its pods go: each list at its bound, and one above."""

from collections.abc import Callable
from typing import Any

import pytest

from planner.core.manifests.request import read_manifests
from planner.core.manifests.terms import LABELS_MAX, REQUIRED, TERMS_MAX, VALUES_MAX
from spillway.api import RequestError

from .builders import deployment, texts

Spec = dict[str, Any]


def tolerations(count: int) -> Spec:
    return {"tolerations": [{"key": f"k{number}", "operator": "Exists"} for number in range(count)]}


def spread(count: int) -> Spec:
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [constraint] * count}


def of_nodes(*terms: list[Spec]) -> Spec:
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"affinity": {"nodeAffinity": {REQUIRED: required}}}


def node_terms(count: int) -> Spec:
    return of_nodes(*([{"key": f"k{number}", "operator": "Exists"}] for number in range(count)))


def expressions(count: int) -> Spec:
    return of_nodes([{"key": f"k{number}", "operator": "Exists"} for number in range(count)])


def values(count: int) -> Spec:
    named = [f"node-{number}" for number in range(count)]
    return of_nodes([{"key": "kubernetes.io/hostname", "operator": "In", "values": named}])


def pod_terms(kind: str) -> Callable[[int], Spec]:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "other"}}}
    return lambda count: {"affinity": {kind: {REQUIRED: [term] * count}}}


def labels(count: int) -> Spec:
    return {"nodeSelector": {f"k{number}": "a" for number in range(count)}}


@pytest.mark.parametrize(
    ("spec", "most", "field"),
    [
        pytest.param(tolerations, TERMS_MAX, ".tolerations", id="tolerations"),
        pytest.param(spread, TERMS_MAX, ".topologySpreadConstraints", id="spread"),
        pytest.param(node_terms, TERMS_MAX, f".affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms", id="node terms"),
        pytest.param(pod_terms("podAffinity"), TERMS_MAX, f".affinity.podAffinity.{REQUIRED}", id="pod terms"),
        pytest.param(pod_terms("podAntiAffinity"), TERMS_MAX, f".affinity.podAntiAffinity.{REQUIRED}", id="anti terms"),
        pytest.param(expressions, LABELS_MAX, "", id="expressions"),
        pytest.param(labels, LABELS_MAX, "", id="labels"),
        pytest.param(values, VALUES_MAX, "", id="values"),
    ],
)
def test_as_much_as_the_bound_may_be_said(spec: Callable[[int], Spec], most: int, field: str) -> None:
    def manifest(count: int) -> tuple[str, ...]:
        made = deployment(2)
        made["spec"]["template"]["spec"].update(spec(count))
        return texts(made)

    read_manifests(manifest(most))
    with pytest.raises(RequestError, match=f"expected at most {most}") as caught:
        read_manifests(manifest(most + 1))
    assert caught.value.code == "INVALID_ARGUMENT"
    assert caught.value.text.startswith(f"Deployment.spec.template.spec{field}: '{most + 1} ")
