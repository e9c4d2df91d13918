"""Selectors, quantities, rollout arithmetic, scale-in order and field ownership as tables."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.kinds import KIND_BY_PLURAL
from sim.core.listing import Lister, parse_selection
from sim.core.ownership import (
    Manager,
    apply_conflicts,
    field_paths_of,
    object_and_owners_after_apply,
    owners_after_update,
)
from sim.core.pods import scale_in_victims
from sim.core.quantity import parse_amount
from sim.core.rollout import (
    Limits,
    SetCount,
    recreated_replicas_by_name,
    resized_replicas_by_name,
    resolve_limits,
    rolled_replicas_by_name,
)
from sim.core.selectors import matches_labels, parse_field_selector, parse_selector
from sim.core.shape import pod_requests
from sim.core.store import Store

SELECTORS = [
    ("", {}, True),
    ("a=b", {"a": "b"}, True),
    ("a==b", {"a": "c"}, False),
    ("a!=b", {}, True),
    ("a in (b, c),d", {"a": "c", "d": ""}, True),
    ("a notin (b,c)", {"a": "b"}, False),
    ("a notin (b,c)", {}, True),
    ("!a", {"a": "b"}, False),
    ("x.y/z", {"x.y/z": "1"}, True),
    ("a=", {"a": ""}, True),
]


@pytest.mark.parametrize(("text", "labels", "expected"), SELECTORS)
def test_label_selectors(text: str, labels: dict[str, str], expected: bool) -> None:
    assert matches_labels(parse_selector(text), labels) is expected


@pytest.mark.parametrize("text", ["a in b", "a=b=c", "(", "a in ("])
def test_unreadable_label_selectors_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="unable to parse"):
        parse_selector(text)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["", "a", "b", None])), max_size=30))
def test_the_pods_of_a_node_are_found_as_by_looking_at_all(writes: list[tuple[int, str | None]]) -> None:
    """By each form that names a node; what names others, or none, looks at all. None: the pod goes."""
    store = Store(0, 10)
    for number, node in writes:
        key = ("default", f"p{number}")
        if node is not None:
            metadata = {"name": key[1], "namespace": "default"}
            store.put_object("pods", {"metadata": metadata, "spec": {"nodeName": node} if node else {}})
        elif store.get_object("pods", key):
            store.remove_object("pods", key)
    kind, lister = KIND_BY_PLURAL["pods"], Lister(store)
    for text in (
        "spec.nodeName=a",
        "metadata.namespace=default,spec.nodeName==b",
        "spec.nodeName!=a",
        "spec.nodeName=",
    ):
        wanted = parse_field_selector("pods", text)
        expected = [store.tables["pods"][key] for key in store.sorted_keys("pods") if wanted(store.tables["pods"][key])]
        assert lister.list_page(parse_selection(kind, "", "", {"fieldSelector": text}), 0, "").items == expected


def test_field_selectors() -> None:
    unbound = {"metadata": {"name": "p"}, "spec": {}, "status": {"phase": "Pending"}}
    assert parse_field_selector("pods", "spec.nodeName=")(unbound)
    assert not parse_field_selector("pods", "spec.nodeName!=")(unbound)
    assert parse_field_selector("pods", "metadata.name=p,status.phase!=Failed")(unbound)
    with pytest.raises(ValueError, match="field label not supported"):
        parse_field_selector("nodes", "spec.nodeName=x")


@pytest.mark.parametrize(
    ("resource", "text", "expected"),
    [("cpu", "1", 1000), ("cpu", "0.1005", 101), ("cpu", "250m", 250), ("memory", "1Gi", 1 << 30),
     ("memory", "1e3", 1000), ("memory", "1500m", 2), ("memory", "2k", 2000), ("nvidia.com/gpu", 8, 8)],
)  # fmt: skip
def test_quantities(resource: str, text: str | int, expected: int) -> None:
    assert parse_amount(resource, text) == expected


def container(cpu: str, **fields: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu}}, **fields}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [container("1"), container("500m")]}, 1500),
        ({"containers": [container("1")], "initContainers": [container("3")]}, 3000),
        ({"containers": [container("1")], "initContainers": [container("2", restartPolicy="Always")]}, 3000),
        ({"containers": [container("1")], "overhead": {"cpu": "100m"}}, 1100),
        ({"containers": [{"resources": {"limits": {"cpu": "2"}}}]}, 2000),
    ],
)
def test_pod_requests(spec: dict[str, Any], expected: int) -> None:
    assert pod_requests(spec)["cpu"] == expected


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "expected"),
    [(10, "25%", "25%", Limits(10, 3, 2)), (1, "25%", "25%", Limits(1, 1, 0)), (4, 0, 0, Limits(4, 0, 1)),
     (0, "25%", "25%", Limits(0, 0, 0)), (3, 2, 5, Limits(3, 2, 3))],
)  # fmt: skip
def test_rollout_limits(replicas: int, surge: int | str, unavailable: int | str, expected: Limits) -> None:
    assert resolve_limits(replicas, surge, unavailable) == expected


def test_a_rolling_update_goes_up_then_down() -> None:
    limits = Limits(10, 3, 2)
    old = [SetCount("old", 10, 10, 10)]
    assert rolled_replicas_by_name(limits, SetCount("new", 0, 0, 0), old) == {"new": 3}
    assert rolled_replicas_by_name(limits, SetCount("new", 3, 3, 0), old) == {"old": 8}
    assert rolled_replicas_by_name(limits, SetCount("new", 3, 3, 0), [SetCount("old", 8, 8, 8)]) == {"new": 5}
    assert rolled_replicas_by_name(limits, SetCount("new", 5, 5, 0), [SetCount("old", 8, 8, 8)]) == {}
    assert rolled_replicas_by_name(limits, SetCount("new", 5, 5, 5), [SetCount("old", 8, 8, 8)]) == {"old": 3}
    assert rolled_replicas_by_name(limits, SetCount("new", 3, 3, 0), [SetCount("sick", 10, 10, 8)]) == {"sick": 8}


def test_recreate_waits_until_the_old_pods_are_gone() -> None:
    assert recreated_replicas_by_name(3, SetCount("new", 0, 0, 0), [SetCount("old", 3, 3, 3)]) == {"old": 0}
    assert recreated_replicas_by_name(3, SetCount("new", 0, 0, 0), [SetCount("old", 0, 1, 0)]) == {}
    assert recreated_replicas_by_name(3, SetCount("new", 0, 0, 0), [SetCount("old", 0, 0, 0)]) == {"new": 3}


def test_a_resize_in_mid_rollout_is_shared() -> None:
    new, old = SetCount("new", 5, 5, 5), SetCount("old", 5, 5, 5)
    assert sum(resized_replicas_by_name(Limits(20, 0, 2), new, [old]).values()) == 20
    assert resized_replicas_by_name(Limits(0, 0, 0), new, [old]) == {"new": 0, "old": 0}


def existing_pod(
    name: str, node: str = "", phase: str = "Pending", ready: str = "", created: str = "1"
) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": ready}] if ready else []
    spec = {"nodeName": node} if node else {}
    return {"metadata": {"name": name, "creationTimestamp": created}, "spec": spec,
            "status": {"phase": phase, "conditions": conditions}}  # fmt: skip


def test_scale_in_takes_what_is_worth_least() -> None:
    pods = [
        existing_pod("alone", "n2", "Running", "3"),
        existing_pod("crowded-old", "n1", "Running", "1"),
        existing_pod("crowded-new", "n1", "Running", "2"),
        existing_pod("not-ready", "n1", "Running"),
        existing_pod("starting", "n3"),
        existing_pod("unscheduled"),
    ]
    order = [pod["metadata"]["name"] for pod in scale_in_victims(pods, 6)]
    assert order == ["unscheduled", "starting", "not-ready", "crowded-new", "crowded-old", "alone"]


def manifest(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "spec": spec}


def test_apply_removes_what_its_manager_no_longer_says() -> None:
    ours = Manager("spillway", "Apply")
    first = manifest(replicas=1, paused=True)
    live, owned = object_and_owners_after_apply(first, first, ours, {})
    live, owned = object_and_owners_after_apply(live, manifest(replicas=1), ours, owned)
    assert live["spec"] == {"replicas": 1}
    assert owned == {ours: field_paths_of(manifest(replicas=1))}


def test_apply_joins_lists_by_name() -> None:
    ours, theirs = Manager("spillway", "Apply"), Manager("other", "Apply")
    one, two = manifest(containers=[{"name": "a", "image": "1"}]), manifest(containers=[{"name": "b", "image": "2"}])
    live, owned = object_and_owners_after_apply(one, one, ours, {})
    live, owned = object_and_owners_after_apply(live, two, theirs, owned)
    assert [found["name"] for found in live["spec"]["containers"]] == ["a", "b"]
    live, owned = object_and_owners_after_apply(live, manifest(paused=True), theirs, owned)
    assert [found["name"] for found in live["spec"]["containers"]] == ["a"]


def test_who_updates_a_field_owns_it_and_an_apply_conflicts() -> None:
    ours, kubectl = Manager("spillway", "Apply"), Manager("kubectl", "Update")
    first = manifest(replicas=1)
    live, owned = object_and_owners_after_apply(first, first, ours, {})
    scaled = manifest(replicas=5)
    owned = owners_after_update(live, scaled, kubectl, owned)
    assert apply_conflicts(scaled, first, ours, owned) == {kubectl: frozenset({("f:spec", "f:replicas")})}
    assert apply_conflicts(scaled, scaled, ours, owned) == {}
