"""What one namespace may have declared: running sums of it, and what is refused beyond the bounds."""

from dataclasses import replace
from sys import getsizeof
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.core.background import aftermath
from planner.core.knowledge.declared import (
    NamespaceDeclarations,
    NamespaceUsage,
    _dependency_as_kept,
    answer_bytes,
    declaration_bytes,
    shape_bytes,
)
from planner.core.knowledge.rules import PlannerRules
from planner.core.requests import adopting, decisions
from spillway.addresses import SCALE_POLICIES
from spillway.api import AdoptRequest, ApplyRequest, DeleteRequest, PlacementReply, RequestError, ScaleRequest
from spillway.events import DependencyDeclared, WorkloadDeclared
from spillway.events_scaling import ScalePolicyDeclared
from spillway.model import Answered, Generation, ObjectReference, Shape
from spillway.reasons import NAMESPACE_FULL

from .builders import (
    Fleet,
    apply_to_fleet,
    container_spec,
    deployment,
    manifest_texts,
    node_row,
    placement_policy,
    pod_template,
)
from .test_adopting import BOTH

Manifest = dict[str, Any]


def fleet_with_bounds(**bounds: int) -> Fleet:
    fleet = Fleet(own_1=[node_row("a"), node_row("b")], own_2=[node_row("c")])
    fleet.state.rules = PlannerRules(**bounds)  # type: ignore[arg-type]
    return fleet


def config_map(name: str, size: int) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "x" * size}}


def spread_policy() -> Manifest:
    return placement_policy(tiers=[{"name": "own", "clusters": {"names": ["own-1", "own-2"]}, "split": "Spread"}])


def deployment_named(name: str, namespace: str = "default", replicas: int = 0) -> Manifest:
    made = deployment(replicas, name)
    made["metadata"]["namespace"] = namespace
    return made


def apply_manifests(fleet: Fleet, *manifests: Manifest, key: str = "") -> PlacementReply:
    decided = decisions.decide_apply(fleet.state, ApplyRequest(manifest_texts(*manifests), key), fleet.next_moment())
    apply_to_fleet(fleet, decided.events)
    return decided.reply


def refusal_of(fleet: Fleet, *manifests: Manifest) -> RequestError:
    before = fleet.state.declared.usage_of_namespace("default")
    with pytest.raises(RequestError) as caught:
        apply_manifests(fleet, *manifests)
    assert fleet.state.declared.usage_of_namespace("default") == before
    assert (caught.value.code, caught.value.reason) == ("FAILED_PRECONDITION", NAMESPACE_FULL)
    return caught.value


# ── Bytes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_would_be_more_bytes_than_a_namespace_may_have_is_refused() -> None:
    fleet = fleet_with_bounds(namespace_bytes_max=13_000)
    apply_manifests(fleet, deployment_named("one"), config_map("one", 4_000))
    apply_manifests(fleet, deployment_named("two"), config_map("two", 3_000))
    error = refusal_of(fleet, deployment_named("three"), config_map("three", 4_000))
    total = error.details["bytes"]
    assert error.details == {"namespace": "default", "bytes": total, "bytes_max": "13000"}
    assert f"its manifests and policies, and what is kept with them, would be {total} bytes" in error.text
    assert "expected at most 13000" in error.text
    apply_manifests(fleet, deployment_named("three", "another"), config_map("three", 4_000))


def test_a_workload_that_is_declared_may_be_applied_again_and_made_smaller_not_larger() -> None:
    """Also where a namespace has more than it may, as an older version or another bound let it."""
    fleet = fleet_with_bounds(namespace_bytes_max=1_000_000)
    apply_manifests(fleet, deployment_named("one"), config_map("one", 6_000))
    fleet.state.rules = replace(fleet.state.rules, namespace_bytes_max=2_000)
    apply_manifests(fleet, deployment_named("one"), config_map("one", 6_000), key="again")
    refusal_of(fleet, deployment_named("one"), config_map("one", 6_001))
    apply_manifests(fleet, deployment_named("one", replicas=3), config_map("one", 5_000))
    reply = decisions.decide_scale(fleet.state, ScaleRequest("default", "one", 4), fleet.next_moment()).reply
    assert reply.replicas == 4, "who scales declares nothing more"


def test_a_policy_counts_too() -> None:
    fleet = fleet_with_bounds(namespace_bytes_max=5_000)
    regions = [f"region-{number:050}" for number in range(100)]
    first = {"name": "own", "clusters": {"names": ["own-1"]}}
    apply_manifests(fleet, deployment_named("one"), placement_policy(tiers=[first]))
    refusal_of(
        fleet,
        deployment_named("two"),
        placement_policy(tiers=[first, {"name": "regions", "clusters": {"regions": regions}}]),
    )


def deployment_with_image(image: str, name: str = "one", **pod: Any) -> Manifest:
    return deployment(4, name, pod_template(container_spec(image=image), **pod))


def test_earlier_templates_count_and_are_refused_before_they_are_written() -> None:
    """Nothing is removed before a cluster has rolled: what it had stays in the declaration."""
    fleet = fleet_with_bounds()
    apply_manifests(fleet, deployment_with_image("a" * 200), spread_policy())
    first = fleet.state.declared.usage_of_namespace("default").size
    apply_manifests(fleet, deployment_with_image("b" * 200), spread_policy())
    (earlier,) = fleet.state.workloads["default", "one"].declared.earlier_templates
    grown = fleet.state.declared.usage_of_namespace("default").size
    assert len(earlier.manifest) < grown - first
    fleet = fleet_with_bounds(namespace_bytes_max=grown - 1)
    apply_manifests(fleet, deployment_with_image("a" * 200), spread_policy())
    assert fleet.state.declared.usage_of_namespace("default").size == first
    error = refusal_of(fleet, deployment_with_image("b" * 200), spread_policy())
    assert error.details["bytes"] == str(grown)
    with pytest.raises(RequestError, match=f"{grown} bytes"):
        decisions.find_used_clusters(
            fleet.state,
            decisions.read_manifests(manifest_texts(deployment_with_image("b" * 200), spread_policy())),
            fleet.next_moment(),
        )
    fleet.state.rules = replace(fleet.state.rules, namespace_bytes_max=grown)
    apply_manifests(fleet, deployment_with_image("b" * 200), spread_policy())
    fleet.state.rules = replace(fleet.state.rules, namespace_bytes_max=0)
    apply_manifests(fleet, deployment_with_image("b" * 200), spread_policy(), key="again")
    assert (
        decisions.decide_scale(fleet.state, ScaleRequest("default", "one", 3), fleet.next_moment()).reply.replicas == 3
    )


def test_shapes_that_still_roll_count_for_what_they_take_in_memory() -> None:
    made = workload_declared("web", 1, 10, ())
    shape = Shape("default", (("cpu", 1),), node_selector=tuple((f"{n:03}", "abc") for n in range(1_000)))
    size = declaration_bytes(replace(made, rolling_from=(shape, shape))) - declaration_bytes(made)
    taken = sum(getsizeof(entry) + sum(map(getsizeof, entry)) for entry in shape.node_selector)
    assert 2 * taken < size < 3 * taken
    least = Shape("default", (("cpu", 100), ("pods", 1)))
    assert declaration_bytes(replace(made, rolling_from=(least,))) - declaration_bytes(made) < 1_500


def test_a_roll_is_refused_whose_earlier_shape_has_no_room() -> None:
    """rollout: all, which keeps no earlier template: what is kept is what its pods may still ask for."""
    fleet, tolerations = fleet_with_bounds(), [{"key": f"key-{number}", "operator": "Exists"} for number in range(100)]
    apply_manifests(fleet, deployment_with_image("a", tolerations=tolerations))
    shape, first = (
        fleet.state.workloads["default", "one"].replica_shape,
        fleet.state.declared.usage_of_namespace("default").size,
    )
    most = shape_bytes(shape)
    assert most > 2 * first, "it is small values"
    fleet.state.rules = replace(fleet.state.rules, namespace_bytes_max=most)
    refusal_of(fleet, deployment_with_image("b"), placement_policy(rollout="all"))
    fleet.state.rules = replace(fleet.state.rules, namespace_bytes_max=most + first)
    apply_manifests(fleet, deployment_with_image("b"), placement_policy(rollout="all"))
    assert fleet.state.workloads["default", "one"].declared.rolling_from == (shape,)


def test_answers_and_each_workload_count() -> None:
    made = workload_declared("web", 1, 10, ())
    alone = 10 + len(msgspec.msgpack.encode(made.policy))
    assert declaration_bytes(made) == alone + 1_024
    assert (
        declaration_bytes(replace(made, answered=(Answered("key", "digest", 1, b"x" * 500),)))
        == alone + 1_024 + 3 + 500 + 96
    )
    fleet = fleet_with_bounds()
    apply_manifests(fleet, deployment_named("one"))
    before = fleet.state.declared.usage_of_namespace("default").size
    apply_manifests(fleet, deployment_named("one"), key="again")
    (kept,) = fleet.state.workloads["default", "one"].declared.answered
    assert fleet.state.declared.usage_of_namespace("default").size == before + answer_bytes(kept)


def test_names_that_a_workload_lists_no_more_are_not_looked_at(calls_of: Any) -> None:
    fleet = fleet_with_bounds()
    for number in range(6):
        with calls_of(_dependency_as_kept) as looked:
            apply_manifests(
                fleet, deployment_named("one"), *(config_map(f"version-{number}-{one}", 10) for one in range(5))
            )
        assert 0 < len(looked) <= 5 + 5 + 5, "five that it had, five that it has, five that are written without content"
    content = fleet.state.declared.dependencies_with_content(("default", "one"))
    assert [entry.name for entry in content] == [f"version-5-{one}" for one in range(5)]
    assert len(fleet.state.declared.dependencies) == 30
    fleet.state.declared.forget_workload(("default", "one"))
    assert not fleet.state.declared.dependencies
    assert fleet.state.declared.usage_of_namespace("default") == NamespaceUsage()


def test_what_is_deleted_counts_until_it_is_forgotten() -> None:
    fleet = fleet_with_bounds(namespace_bytes_max=10_000, forget_after=60)
    apply_manifests(fleet, deployment_named("one"), config_map("one", 6_000))
    apply_to_fleet(
        fleet, decisions.decide_delete(fleet.state, DeleteRequest("default", "one"), fleet.next_moment()).events
    )
    refusal_of(fleet, deployment_named("two"), config_map("two", 6_000))
    for _ in range(2):
        for key in list(fleet.state.leaving):
            apply_to_fleet(fleet, aftermath.settle_workload(fleet.state, key, fleet.next_moment()).events)
        fleet.now += 61
    assert fleet.state.declared.usage_of_namespace("default") == NamespaceUsage()
    fleet.send_heartbeats()
    apply_manifests(fleet, deployment_named("two"), config_map("two", 6_000))


def test_what_a_workload_lists_no_more_is_not_kept_and_does_not_count() -> None:
    fleet = fleet_with_bounds(namespace_bytes_max=10_000)
    for number in range(5):
        request = ApplyRequest(manifest_texts(deployment_named("one"), config_map(f"version-{number}", 6_000)))
        events = decisions.decide_apply(fleet.state, request, fleet.next_moment()).events
        written = [event for event in events if isinstance(event, DependencyDeclared)]
        expected = [(f"version-{number}", True), (f"version-{number - 1}", False)][: 1 + (number > 0)]
        assert [(event.name, bool(event.manifest)) for event in written] == expected, "the log keeps it no more"
        apply_to_fleet(fleet, events)
    kept = {name: len(entry.manifest) for (_, _, name), entry in fleet.state.declared.dependencies.items()}
    assert {name: size > 6_000 for name, size in kept.items()} == {f"version-{n}": n == 4 for n in range(5)}
    assert fleet.state.declared.usage_of_namespace("default").size < 10_000


def test_who_gave_a_name_up_takes_nothing_from_who_has_it_now() -> None:
    """Their records are in two partitions, and read in either order."""
    emptied = DependencyDeclared("ConfigMap", "default", "c", "default/one", 6, b"")
    taken_over = DependencyDeclared("ConfigMap", "default", "c", "default/two", 1, b"{}")
    for events in ((emptied, taken_over), (taken_over, emptied)):
        kept = NamespaceDeclarations()
        for event in events:
            kept.store_dependency(event, None)
        assert list(kept.dependencies.values()) == [taken_over]


# ── Workloads ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_namespace_has_a_bounded_number_of_workloads() -> None:
    fleet = fleet_with_bounds(namespace_workloads_max=2)
    apply_manifests(fleet, deployment_named("one"))
    apply_manifests(fleet, deployment_named("two"))
    error = refusal_of(fleet, deployment_named("three"))
    assert error.details == {"namespace": "default", "workloads": "3", "workloads_max": "2"}
    assert "namespace default: 2 workloads are declared" in error.text
    apply_manifests(fleet, deployment_named("two", replicas=2))
    apply_manifests(fleet, deployment_named("three", "another"))


def test_what_is_adopted_is_bounded_and_found_again_after_a_loss_is_not() -> None:
    fleet = fleet_with_bounds(namespace_bytes_max=100)
    request = AdoptRequest("", "web", "deployment", tuple(BOTH))
    with pytest.raises(RequestError, match="expected at most 100") as caught:
        adopting.decide_adoption(fleet.state, request, BOTH, fleet.next_moment())
    assert (caught.value.code, caught.value.reason) == ("FAILED_PRECONDITION", NAMESPACE_FULL)
    first = BOTH["own-1"]
    running = adopting.RunningReplicas({"own-1": 3}, {"own-1": first.uid}, "before")
    found = adopting.manifest_texts(first)
    assert adopting.declared_as_found(fleet.state, ("default", "web"), found, running, fleet.next_moment(), "Recover")


def test_nobody_is_asked_about_a_template_that_is_refused() -> None:
    fleet = fleet_with_bounds(namespace_workloads_max=1)
    apply_manifests(fleet, deployment_named("one"))
    with pytest.raises(RequestError, match="workloads are declared"):
        decisions.find_used_clusters(
            fleet.state, decisions.read_manifests(manifest_texts(deployment_named("two"))), fleet.next_moment()
        )


# ── Sums ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def workload_declared(name: str, generation: int, size: int, along: tuple[str, ...]) -> WorkloadDeclared:
    fleet = fleet_with_bounds()
    apply_manifests(fleet, deployment_named("web"))
    listed = tuple(ObjectReference("ConfigMap", "default", one) for one in along)
    made = fleet.state.workloads["default", "web"].declared
    return replace(made, name=name, generation=generation, manifest=b"x" * size, dependencies=listed)


MADE = workload_declared("web", 1, 10, ())
NAMES = st.sampled_from(("one", "two"))
ALONG = st.sampled_from(("a", "b", "c"))
DECLARING = st.tuples(st.just("declare"), NAMES, st.integers(1, 6), st.integers(0, 9), st.frozensets(ALONG))
DEPENDING = st.tuples(st.just("depend"), NAMES, st.integers(1, 6), st.integers(0, 9), ALONG)
FORGETTING = st.tuples(st.just("forget"), NAMES)


@given(st.lists(st.one_of(DECLARING, DEPENDING, FORGETTING), max_size=30))
def test_the_sums_are_those_of_what_is_kept_whatever_comes_and_goes(actions: list[tuple[Any, ...]]) -> None:
    kept, workloads = NamespaceDeclarations(), dict[str, WorkloadDeclared]()
    for action, name, *rest in actions:
        if action == "forget":
            kept.forget_workload(("default", name))
            workloads.pop(name, None)
        elif action == "declare":
            listed = tuple(ObjectReference("ConfigMap", "default", one) for one in sorted(rest[2]))
            event = replace(MADE, name=name, generation=rest[0], manifest=b"x" * rest[1], dependencies=listed)
            if name not in workloads or workloads[name].generation <= event.generation:
                workloads[name] = event
                kept.note_declaration(event)
        else:
            generation, size, along = rest
            content = DependencyDeclared("ConfigMap", "default", along, f"default/{name}", generation, b"y" * size)
            kept.store_dependency(content, workloads.get(name))
        sizes = {one: declaration_bytes(event) for one, event in workloads.items()}
        along = kept.dependencies.values()
        assert kept.usage_of_namespace("default") == NamespaceUsage(
            len(sizes), sum(sizes.values()) + sum(len(one.manifest) for one in along)
        )
        for one in ("one", "two"):
            owned = sum(len(entry.manifest) for entry in along if entry.workload == f"default/{one}")
            assert kept.workload_bytes(("default", one)) == sizes.get(one, 0) + owned
            full = [entry for entry in along if entry.workload == f"default/{one}" and entry.manifest]
            assert sorted(map(repr, kept.dependencies_with_content(("default", one)))) == sorted(map(repr, full))


def test_what_a_scale_policy_says_is_not_kept_here() -> None:
    fleet = fleet_with_bounds()
    said = ScalePolicyDeclared(
        "default", "web", Generation(5, 1), "ScalePolicy", "web", b'{"spec": {}}' + b" " * 9_000, 1
    )
    fleet.state.apply_event(said, fleet.now)
    (known,) = fleet.state.scalings.policies.values()
    assert known == replace(said, manifest=b"")
    fleet.state.apply_tombstone(SCALE_POLICIES.name, "default/web")
    assert fleet.state.scalings.policies == {}
