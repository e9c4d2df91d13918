"""How much a template may say of where its pods go: each list and each text at its bound, and one above."""

from collections.abc import Callable
from typing import Any

import pytest

from planner.core.manifests.request import read_manifests
from planner.core.manifests.terms import REQUIRED
from spillway.api import RequestError
from spillway.kubernetes.label_text import KEY_LENGTH_MAX, LABEL_LENGTH_MAX
from spillway.kubernetes.term_bounds import LABELS_MAX, TERMS_MAX, VALUES_MAX

from .builders import deployment, manifest_texts

Spec = dict[str, Any]


def spec_with_tolerations(count: int) -> Spec:
    return {"tolerations": [{"key": f"k{number}", "operator": "Exists"} for number in range(count)]}


def spec_with_spread(count: int) -> Spec:
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [constraint] * count}


def spec_with_node_terms(*terms: list[Spec]) -> Spec:
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"affinity": {"nodeAffinity": {REQUIRED: required}}}


def spec_with_term_count(count: int) -> Spec:
    return spec_with_node_terms(*([{"key": f"k{number}", "operator": "Exists"}] for number in range(count)))


def spec_with_expressions(count: int) -> Spec:
    return spec_with_node_terms([{"key": f"k{number}", "operator": "Exists"} for number in range(count)])


def spec_with_expression_values(count: int) -> Spec:
    named = [f"node-{number}" for number in range(count)]
    return spec_with_node_terms([{"key": "kubernetes.io/hostname", "operator": "In", "values": named}])


def maker_of_pod_terms(kind: str) -> Callable[[int], Spec]:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "other"}}}
    return lambda count: {"affinity": {kind: {REQUIRED: [term] * count}}}


def spec_with_namespaces(count: int) -> Spec:
    """With as many label keys, so that neither is above by itself."""
    named, keys = [f"n{number}" for number in range(count // 2)], [f"k{number}" for number in range(count // 2)]
    term = {"topologyKey": "zone", "namespaces": named[1:], "matchLabelKeys": [*keys, *["k"] * (count % 2)]}
    return {"affinity": {"podAffinity": {REQUIRED: [term]}}}


def spec_with_node_labels(count: int) -> Spec:
    return {"nodeSelector": {f"k{number}": "a" for number in range(count)}}


@pytest.mark.parametrize(
    ("spec", "most", "field"),
    [
        pytest.param(spec_with_tolerations, TERMS_MAX, ".tolerations", id="tolerations"),
        pytest.param(spec_with_spread, TERMS_MAX, ".topologySpreadConstraints", id="spread"),
        pytest.param(
            spec_with_term_count, TERMS_MAX, f".affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms", id="node terms"
        ),
        pytest.param(maker_of_pod_terms("podAffinity"), TERMS_MAX, f".affinity.podAffinity.{REQUIRED}", id="pod terms"),
        pytest.param(
            maker_of_pod_terms("podAntiAffinity"), TERMS_MAX, f".affinity.podAntiAffinity.{REQUIRED}", id="anti terms"
        ),
        pytest.param(spec_with_expressions, LABELS_MAX, "", id="expressions"),
        pytest.param(spec_with_node_labels, LABELS_MAX, "", id="labels"),
        pytest.param(spec_with_expression_values, VALUES_MAX, "", id="values"),
        pytest.param(spec_with_namespaces, VALUES_MAX, "", id="namespaces and label keys"),
    ],
)
def test_as_much_as_the_bound_may_be_said(spec: Callable[[int], Spec], most: int, field: str) -> None:
    def manifest_of_count(count: int) -> tuple[str, ...]:
        made = deployment(2)
        made["spec"]["template"]["spec"].update(spec(count))
        return manifest_texts(made)

    read_manifests(manifest_of_count(most))
    with pytest.raises(RequestError, match=f"expected at most {most}") as caught:
        read_manifests(manifest_of_count(most + 1))
    assert caught.value.code == "INVALID_ARGUMENT"
    assert caught.value.text.startswith(f"Deployment.spec.template.spec{field}: '{most + 1} ")


def selector_makers(place: Callable[[Spec], Spec]) -> tuple[Callable[[str], Spec], Callable[[str], Spec]]:
    """By the key of one label, and by its value."""
    return (lambda text: place({"matchLabels": {text: "a"}}), lambda text: place({"matchLabels": {"k": text}}))


def spec_with_spread_selector(label_selector: Spec) -> Spec:
    return {
        "topologySpreadConstraints": [
            spec_with_spread(1)["topologySpreadConstraints"][0] | {"labelSelector": label_selector}
        ]
    }


def spec_with_pod_affinity(label_selector: Spec, field: str = "labelSelector") -> Spec:
    return {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "zone", field: label_selector}]}}}


def spec_with_anti_affinity_term(**fields: Any) -> Spec:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "other"}}} | fields
    return {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}


def spec_with_node_name(text: str) -> Spec:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [text]}]}
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}}


def spec_with_pod_values(*values: str) -> Spec:
    return spec_with_pod_affinity({"matchExpressions": [{"key": "k", "operator": "In", "values": list(values)}]})


NODES = f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0]"
PODS, ANTI = f"affinity.podAffinity.{REQUIRED}[0]", f"affinity.podAntiAffinity.{REQUIRED}[0]"
OF_SPREAD, OF_PODS = selector_makers(spec_with_spread_selector), selector_makers(spec_with_pod_affinity)
KEY, VALUE = KEY_LENGTH_MAX, LABEL_LENGTH_MAX


@pytest.mark.parametrize(
    ("spec", "most", "field"),
    [
        pytest.param(lambda text: {"nodeSelector": {text: "a"}}, KEY, "nodeSelector", id="selector's key"),
        pytest.param(lambda text: {"nodeSelector": {"k": text}}, VALUE, "nodeSelector.k", id="selector's value"),
        pytest.param(
            lambda text: {"tolerations": [{"key": text, "operator": "Exists"}]},
            KEY,
            "tolerations[0].key",
            id="toleration's key",
        ),
        pytest.param(
            lambda text: {"tolerations": [{"key": "k", "value": text}]},
            VALUE,
            "tolerations[0].value",
            id="toleration's value",
        ),
        pytest.param(
            lambda text: spec_with_node_terms([{"key": text, "operator": "Exists"}]),
            KEY,
            f"{NODES}.matchExpressions.key",
            id="expression's key",
        ),
        pytest.param(
            lambda text: spec_with_node_terms([{"key": "k", "operator": "In", "values": ["a", text]}]),
            VALUE,
            f"{NODES}.matchExpressions.values",
            id="expression's value",
        ),
        pytest.param(spec_with_node_name, 253, f"{NODES}.matchFields.values", id="node's name"),
        pytest.param(OF_PODS[0], KEY, f"{PODS}.labelSelector.matchLabels", id="pods' key"),
        pytest.param(OF_PODS[1], VALUE, f"{PODS}.labelSelector.matchLabels.k", id="pods' value"),
        pytest.param(
            spec_with_pod_values, VALUE, f"{PODS}.labelSelector.matchExpressions.values", id="pods' expression"
        ),
        pytest.param(
            lambda text: spec_with_pod_affinity({"matchLabels": {"k": text}}, "namespaceSelector"),
            VALUE,
            f"{PODS}.namespaceSelector.matchLabels.k",
            id="namespaces' value",
        ),
        pytest.param(OF_SPREAD[0], KEY, "topologySpreadConstraints[0].labelSelector.matchLabels", id="spread's key"),
        pytest.param(
            OF_SPREAD[1], VALUE, "topologySpreadConstraints[0].labelSelector.matchLabels.k", id="spread's value"
        ),
        pytest.param(
            lambda text: spec_with_anti_affinity_term(topologyKey=text), KEY, f"{ANTI}.topologyKey", id="topology key"
        ),
        pytest.param(
            lambda text: spec_with_anti_affinity_term(namespaces=[text]), VALUE, f"{ANTI}.namespaces", id="namespace"
        ),
        pytest.param(
            lambda text: spec_with_anti_affinity_term(matchLabelKeys=[text]),
            KEY,
            f"{ANTI}.matchLabelKeys",
            id="label key",
        ),
    ],
)
def test_a_label_is_as_long_as_kubernetes_lets_it_be(spec: Callable[[str], Spec], most: int, field: str) -> None:
    def manifest_of_length(length: int) -> tuple[str, ...]:
        made = deployment(2)
        made["spec"]["template"]["spec"].update(spec("x" * length))
        return manifest_texts(made)

    read_manifests(manifest_of_length(most))
    with pytest.raises(RequestError, match=f"expected at most {most} characters, not {most + 1}$") as caught:
        read_manifests(manifest_of_length(most + 1))
    assert caught.value.code == "INVALID_ARGUMENT"
    assert caught.value.text.startswith(f"Deployment.spec.template.spec.{field}: 'xxx")
