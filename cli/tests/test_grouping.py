"""Which document goes with which workload, and what apply does with many."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from spillway_cli.exits import CommandFailed
from spillway_cli.grouping import group_by_workload
from spillway_cli.manifests import Document
from spillway_cli.many import BATCH_CHARACTERS_MAX, BATCH_ITEMS_MAX, batched_groups

Write = Callable[[str, str], str]


def document(kind: str, name: str, namespace: str = "shop", **rest: Any) -> Document:
    metadata = {"name": name, "namespace": namespace}
    return Document(json.dumps({"apiVersion": "v1", "kind": kind, "metadata": metadata} | rest), f"{kind}-{name}")


def workload(name: str, *config_maps: str, namespace: str = "shop", **spec: Any) -> Document:
    sources = [{"configMapRef": {"name": config_map}} for config_map in config_maps]
    container = {"name": "a", "image": "i", "envFrom": sources}
    pods = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    declared = {"selector": {"matchLabels": {"app": name}}, "template": pods}
    return document("Deployment", name, namespace, apiVersion="apps/v1", spec=declared | spec)


def service(name: str, **selector: str) -> Document:
    return document("Service", name, spec={"selector": selector})


def propagation_policy(name: str, *selected: str, namespace: str = "shop") -> Document:
    selectors = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": each} for each in selected]
    return document("PropagationPolicy", name, namespace, spec={"resourceSelectors": selectors})


GROUPS = (
    pytest.param(
        (document("ConfigMap", "c"), workload("a", "c"), workload("b")), {"a": ["a", "c"], "b": ["b"]}, id="config map"
    ),
    pytest.param(
        (workload("a"), service("front", app="b"), workload("b")), {"a": ["a"], "b": ["b", "front"]}, id="service"
    ),
    pytest.param(
        (workload("a", serviceName="db"), service("db"), workload("b")), {"a": ["a", "db"], "b": ["b"]}, id="by name"
    ),
    pytest.param(
        (workload("a"), workload("b"), document("PlacementPolicy", "p")),
        {"a": ["a", "p"], "b": ["b", "p"]},
        id="one policy for all",
    ),
    pytest.param(
        (document("PlacementPolicy", "b"), workload("a"), workload("b"), document("PlacementPolicy", "a", "")),
        {"a": ["a", "a"], "b": ["b", "b"]},
        id="a policy for each",
    ),
    pytest.param(
        (workload("a"), propagation_policy("p", "b", "c"), workload("b"), propagation_policy("q", "a"), workload("c")),
        {"a": ["a", "q"], "b": ["b", "p"], "c": ["c", "p"]},
        id="PropagationPolicies with those that they select",
    ),
    pytest.param((workload("a"), service("odd", app="x")), {"a": ["a", "odd"]}, id="all of a single one"),
)


@pytest.mark.parametrize(("documents", "expected"), GROUPS)
def test_each_document_goes_with_its_workload(documents: tuple[Document, ...], expected: dict[str, list[str]]) -> None:
    found = {
        group.name: [json.loads(entry.text)["metadata"]["name"] for entry in group.documents]
        for group in group_by_workload(documents)
    }
    assert found == expected


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        pytest.param((workload("a"), workload("a")), "both declare workload shop/a", id="twice"),
        pytest.param(
            (workload("a"), workload("b"), document("ConfigMap", "c")), "ConfigMap c goes with none", id="nobody's"
        ),
        pytest.param(
            (workload("a", "c"), workload("b", "c"), document("ConfigMap", "c")), "shop/a and shop/b", id="of two"
        ),
        pytest.param(
            (workload("a"), workload("b"), document("PlacementPolicy", "a"), document("PlacementPolicy", "x")),
            "PlacementPolicy x: expected the name of one of the workloads",
            id="a policy of nobody",
        ),
        pytest.param(
            (
                workload("a"),
                workload("b"),
                propagation_policy("a", "a"),
                propagation_policy("b", "b", namespace="other"),
            ),
            "PropagationPolicy b: expected spec.resourceSelectors that select one",
            id="a PropagationPolicy of another namespace",
        ),
    ],
)
def test_what_goes_with_no_workload_or_with_two_is_refused(documents: tuple[Document, ...], words: str) -> None:
    with pytest.raises(CommandFailed) as refused:
        group_by_workload(documents)
    assert words in str(refused.value)


def test_batches_are_bounded_by_number_and_by_size() -> None:
    many = group_by_workload([workload(f"web-{number}") for number in range(2 * BATCH_ITEMS_MAX + 1)])
    assert [len(batch) for batch in batched_groups(many)] == [BATCH_ITEMS_MAX, BATCH_ITEMS_MAX, 1]
    large = group_by_workload([workload(f"web-{number}", "x" * (BATCH_CHARACTERS_MAX // 2)) for number in range(3)])
    assert [len(batch) for batch in batched_groups(large)] == [1, 1, 1]


def test_many_workloads_go_in_one_batch_and_each_is_answered(spillway: Any, write: Write) -> None:
    texts = [json.loads(workload(name, replicas=4).text) for name in ("web", "bad-one", "api")]
    result = spillway("apply", "-f", write("all.json", "\n---\n".join(map(json.dumps, texts))))
    request = spillway.planner.asked[0]
    assert len({item.apply.idempotency_key for item in request.items}) == 3
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert [line.split()[0] for line in lines[1:]] == ["shop/web", "shop/bad-one", "shop/api"]
    assert "refused, FAILED_PRECONDITION:" in lines[2]
    assert "(document 2): no room" in lines[2]
    assert (result.exit_code, "1 workload of 3 refused" in result.stderr) == (1, True)


def test_what_one_of_many_workloads_is_warned_of_is_said_with_its_name(spillway: Any, write: Write) -> None:
    spillway.planner.warnings = ("DependencyMissing: Secret shop/key, missing in own-1",)
    texts = [json.loads(workload(name, replicas=4).text) for name in ("web", "api")]
    said = spillway("apply", "-f", write("all.json", "\n---\n".join(map(json.dumps, texts)))).stderr.splitlines()
    warning = "DependencyMissing: Secret shop/key, missing in own-1"
    assert [line for line in said if warning in line] == [f"warning: shop/{name}: {warning}" for name in ("web", "api")]
