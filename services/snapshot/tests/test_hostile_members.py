"""What a hostile API server, or a tenant in a member, may say without costing other clusters more than a moment."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from snapshot.collector import Collector, CollectorShared
from snapshot.core.cluster_state import ClusterState
from snapshot.core.log_book import LogBook
from snapshot.core.pod_bounds import CONTAINERS_MAX, RESOURCES_MAX
from snapshot.core.repelling_terms import LONG, TERMS_OF_NODE_MAX, weight_of_term
from snapshot.core.rules import SnapshotRules
from snapshot.settings import SnapshotSettings
from spillway.clusters.api import ObjectUpserted
from spillway.events import ClusterJoined
from spillway.kubernetes.objects import DEPLOYMENTS, NAMESPACES, NODES, PODS, REPLICASETS
from spillway.kubernetes.term_bounds import LABELS_MAX, TERMS_MAX, VALUES_MAX
from spillway.local_bus import LocalBroker, LocalBus
from spillway.model import PodSelector, PodTerm, Requirement
from spillway.running.cluster_turns import ClusterTurn


@pytest.fixture
def state() -> ClusterState:
    return ClusterState("f1", SnapshotRules())


class Unscanned(dict[str, str]):
    def values(self) -> Any:
        raise AssertionError("all namespaces are looked at")


def test_a_namespace_that_goes_is_not_looked_for_among_all_others(state: ClusterState, objects: Any) -> None:
    """40,000 of them, then an empty list, were 24 s of the loop."""
    state.replace_objects(NAMESPACES, [objects.namespace(f"n{number}", {"k": "v"}) for number in range(3)], 0.0)
    state.take_changes()
    state.namespaces._name_by_uid = Unscanned(state.namespaces._name_by_uid)
    state.replace_objects(NAMESPACES, [objects.namespace("n1", {"k": "v"})], 1.0)
    assert state.take_changes().namespaces_removed == ("n0", "n2")


def test_a_namespace_that_is_made_anew_under_its_name_stays(state: ClusterState, objects: Any) -> None:
    old, new = objects.namespace("n1", {"k": "old"}), objects.namespace("n1", {"k": "new"})
    new = replace(new, metadata=replace(new.metadata, uid="other"))
    state.upsert_object(NAMESPACES, old)
    state.upsert_object(NAMESPACES, new)
    state.remove_object(NAMESPACES, old)
    assert [one.labels for one in state.take_changes().namespaces] == [(("k", "new"),)]
    state.remove_object(NAMESPACES, new)
    assert state.take_changes().namespaces_removed == ("n1",)


def test_an_owner_counts_only_in_its_namespace(state: ClusterState, objects: Any) -> None:
    """Whoever may make pods anywhere may name any owner: its pods were counted, sampled and waited as another's."""
    state.upsert_object(DEPLOYMENTS, objects.deployment())
    state.upsert_object(REPLICASETS, objects.replicaset("r1"))
    state.upsert_object(REPLICASETS, objects.replicaset("r2", namespace="attacker"))  # Names the same Deployment.
    state.upsert_object(PODS, objects.pod("p1", "n1", owner="r1"))
    for number, owner in enumerate(("r1", "r2", "d1")):
        state.upsert_object(PODS, objects.pod(f"x{number}", "n1", owner=owner, namespace="attacker"))
        state.upsert_object(PODS, objects.pod(f"y{number}", said="no room", owner=owner, namespace="attacker"))
    (facts,) = state.take_changes().facts
    assert facts.counted == (("h1", 1),)
    assert [one.name for one in state.details.pods_of_owners(state.workloads.pod_owners_of(("default", "web")))] == [
        "p1"
    ]
    assert {(name, group.workload) for name, group in (state.take_waiting_groups() or {}).items()} == {
        (f"ReplicaSet/attacker/{owner}", "") for owner in ("r1", "r2", "d1")
    }
    state.remove_object(REPLICASETS, objects.replicaset("r2", namespace="attacker"))
    assert not state.workloads.dirty


MANY_CONTAINERS = {"initContainers": [{"name": "c", "restartPolicy": "Always"}] * CONTAINERS_MAX}


def spec_with_many_resources(amount: str) -> Any:
    return {
        "initContainers": [
            {"name": f"c{number}", "resources": {"requests": {f"example.com/{number}": amount}}}
            for number in range(RESOURCES_MAX + 1)
        ]
    }


@pytest.mark.parametrize("spec", [MANY_CONTAINERS, spec_with_many_resources("1")])
def test_nobody_knows_what_a_pod_asks_for_that_waits_for_more_than_its_bound(
    state: ClusterState, objects: Any, spec: Any
) -> None:
    state.upsert_object(PODS, objects.pod("p2", said="no room", spec=spec))
    assert [(group.pods, group.shape) for group in (state.take_waiting_groups() or {}).values()] == [(1, None)]


def test_a_pod_of_more_containers_than_its_bound_cannot_be_read(state: ClusterState, objects: Any) -> None:
    state.upsert_object(NODES, objects.node("n1"))
    state.upsert_object(PODS, objects.pod("p1", "n1", spec=MANY_CONTAINERS))
    row = state.node_row("n1")
    assert (row.unschedulable, row.allocatable, row.requested) == (True, {}, {"pods": 1})


@pytest.mark.parametrize("amount", ["0", "1"])
def test_a_pod_of_many_resources_closes_no_node(state: ClusterState, objects: Any, amount: str) -> None:
    """One of any user on each node, bound by name, took a whole cluster out: also with amounts of nothing."""
    state.upsert_object(NODES, objects.node("n1"))
    state.upsert_object(PODS, objects.pod("p1", "n1", spec=spec_with_many_resources(amount)))
    row = state.node_row("n1")
    assert (row.unschedulable, row.allocatable["cpu"] > 0, row.requested) == (False, True, {"cpu": 500, "pods": 1})


@pytest.mark.parametrize("lending", [False, True])
def test_of_the_resources_of_pods_those_are_said_that_their_node_offers(
    state: ClusterState, objects: Any, lending: bool
) -> None:
    """Each other one was a column of every reader until the next epoch, also when its pod was long gone."""
    requests = {"example.com/gpu": "2", "example.com/other": "1", "memory": "1Gi", "ephemeral-storage": "1Mi"}
    container = {"name": "c", "resources": {"requests": requests}}
    taints = [{"key": "spillway.io/lending", "value": "lent", "effect": "NoSchedule"}] if lending else []
    state.upsert_object(PODS, objects.pod("p1", "n1", spec={"containers": [container]}))
    state.upsert_object(NODES, objects.node("n1", taints=taints))
    held = {"ephemeral-storage": 1 << 20, "memory": 1 << 30, "pods": 1}
    assert state.take_changes().rows[0].requested == held
    state.upsert_object(NODES, objects.node("n1", taints=taints, allocatable={"example.com/gpu": "4"}))
    assert state.take_changes().rows[0].requested == {**held, "example.com/gpu": 2}


async def skip_claim(turn: ClusterTurn) -> None:
    return


class OneBatch:
    def __init__(self, changes: tuple[ObjectUpserted, ...]) -> None:
        self._changes = changes

    async def follow_objects(self, kind: Any, label_selector: str) -> AsyncIterator[tuple[ObjectUpserted, ...]]:
        yield self._changes


async def test_others_have_their_turn_while_many_changes_of_one_answer_are_applied(objects: Any) -> None:
    bus, settings = LocalBus(LocalBroker(), "f1", "s1"), SnapshotSettings(list_step_objects=10)
    book = LogBook(), asyncio.Event(), asyncio.Semaphore(1)
    around = CollectorShared(bus, lambda joined: None, settings, skip_claim, *book, lambda: 0)  # type: ignore[arg-type, return-value]
    joined = ClusterJoined("own-1", "", "", "own", "r", "z", (), ())
    collector = Collector(ClusterTurn("own-1", None), joined, around)
    collector._may_list.set()
    api: Any = OneBatch(tuple(ObjectUpserted(objects.node(f"n{number}")) for number in range(100)))
    following = asyncio.create_task(collector._follow_kind(api, NODES))
    turns = 0
    while not following.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10
    assert collector.core.state.nodes.node_count == 100


def anti_affinity_term(app: str, values: int = 1, expressions: int = 0, **more: Any) -> dict[str, Any]:
    said = [{"key": "app", "operator": "In", "values": [app] * values}]
    said += [{"key": f"k{number}", "operator": "Exists"} for number in range(expressions)]
    return {"topologyKey": "zone", "labelSelector": {"matchExpressions": said}, **more}


def spec_with_anti_affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


EVERYWHERE: dict[str, Any] = {"namespaceSelector": {}}


def closed_and_term_count(state: ClusterState, node: str) -> tuple[bool, int]:
    """Returns whether the node is closed, and how many terms its row has."""
    row = next(row for row in state.whole_state().rows if row.name == node)
    assert row.unschedulable == (not row.allocatable)
    return row.unschedulable, sum(len(table.apart) for table, _ in row.pods)


@pytest.mark.parametrize(
    ("most", "beyond", "terms"),
    [
        pytest.param(
            [anti_affinity_term("a")] * TERMS_MAX, [anti_affinity_term("a")] * (TERMS_MAX + 1), TERMS_MAX, id="terms"
        ),
        pytest.param([anti_affinity_term("a", VALUES_MAX)], [anti_affinity_term("a", VALUES_MAX + 1)], 1, id="values"),
        pytest.param(
            [anti_affinity_term("a", expressions=LABELS_MAX - 1)],
            [anti_affinity_term("a", expressions=LABELS_MAX)],
            1,
            id="expressions",
        ),
    ],
)
def test_a_bound_pod_that_keeps_others_away_by_too_many_terms_closes_its_node(
    state: ClusterState, objects: Any, most: Any, beyond: Any, terms: int
) -> None:
    """Each Apply of anybody compared all of them."""
    state.upsert_object(NODES, objects.node("n1"))
    state.upsert_object(PODS, objects.pod("p1", "n1", spec=spec_with_anti_affinity(*most)))
    assert closed_and_term_count(state, "n1") == (False, terms)
    state.upsert_object(PODS, objects.pod("p1", "n1", spec=spec_with_anti_affinity(*beyond)))
    assert closed_and_term_count(state, "n1") == (True, 0)
    state.remove_object(PODS, objects.pod("p1", "n1"))
    assert closed_and_term_count(state, "n1") == (False, 0)


def test_pods_of_one_node_that_have_too_many_terms_close_it(state: ClusterState, objects: Any) -> None:
    state.upsert_object(NODES, objects.node("n1"))
    for number in range(TERMS_OF_NODE_MAX // TERMS_MAX):
        pod = objects.pod(
            f"p{number}",
            "n1",
            labels={"own": f"l{number}"},
            spec=spec_with_anti_affinity(*[anti_affinity_term("a")] * TERMS_MAX),
        )
        state.upsert_object(PODS, pod)
    assert closed_and_term_count(state, "n1") == (False, TERMS_OF_NODE_MAX)
    state.upsert_object(
        PODS,
        objects.pod("one-more", "n1", labels={"own": "more"}, spec=spec_with_anti_affinity(anti_affinity_term("a"))),
    )
    assert closed_and_term_count(state, "n1") == (True, 0)
    state.remove_object(PODS, objects.pod("one-more", "n1"))
    assert closed_and_term_count(state, "n1") == (False, TERMS_OF_NODE_MAX)


def state_with_pods(objects: Any, pods: dict[str, tuple[str, dict[str, Any]]]) -> ClusterState:
    """Of each pod's name its namespace and spec, each on a node of its name."""
    state = ClusterState("f1", SnapshotRules())
    for name, (namespace, spec) in pods.items():
        state.upsert_object(NODES, objects.node(name))
        state.upsert_object(PODS, objects.pod(name, name, namespace=namespace, spec=spec))
    return state


def test_terms_about_other_namespaces_are_bounded_in_a_cluster_and_whose_are_most_goes_first(
    objects: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snapshot.core.repelling_terms.TERMS_OF_CLUSTER_MAX", 4)
    shop = {
        "shop": (
            "shop",
            spec_with_anti_affinity(
                anti_affinity_term("a", **EVERYWHERE), anti_affinity_term("b", namespaces=["bank"])
            ),
        )
    }
    hostile = {
        f"x{number}": ("attacker", spec_with_anti_affinity(anti_affinity_term(f"x{number}", **EVERYWHERE)))
        for number in range(3)
    }
    for pods in (shop | hostile, hostile | shop):
        state = state_with_pods(objects, pods)
        assert closed_and_term_count(state, "shop") == (False, 2)
        assert [closed_and_term_count(state, name) for name in hostile] == [(True, 0)] * 3
        row = next(row for row in state.take_changes().rows if row.name == "x0")
        assert row.requested == {"cpu": 500, "pods": 1}
        state.remove_object(PODS, objects.pod("x2", "x2"))
        assert {row.name for row in state.take_changes().rows} == {"x0", "x1", "x2"}, "others of it are open again"
        assert [closed_and_term_count(state, name) for name in ("shop", *hostile)] == [
            (False, 2),
            (False, 1),
            (False, 1),
            (False, 0),
        ]


def test_terms_about_its_own_namespace_are_bounded_in_a_namespace(
    objects: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They cost no other one: a cluster has thousands of workloads that keep apart from themselves."""
    monkeypatch.setattr("snapshot.core.repelling_terms.TERMS_OF_CLUSTER_MAX", 1)
    monkeypatch.setattr("snapshot.core.repelling_terms.TERMS_OF_NAMESPACE_MAX", 2)
    pods = {f"a{number}": ("a", spec_with_anti_affinity(anti_affinity_term(f"a{number}"))) for number in range(2)}
    pods |= {
        f"b{number}": ("b", spec_with_anti_affinity(anti_affinity_term(f"b{number}", namespaces=["b"])))
        for number in range(3)
    }
    state = state_with_pods(objects, pods)
    assert [closed_and_term_count(state, name)[0] for name in pods] == [False] * 2 + [True] * 3


def test_the_same_term_of_many_pods_counts_once(objects: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas of one workload, and pods that other labels tell apart."""
    monkeypatch.setattr("snapshot.core.repelling_terms.TERMS_OF_CLUSTER_MAX", 1)
    state = state_with_pods(
        objects,
        {f"p{number}": ("a", spec_with_anti_affinity(anti_affinity_term("a", **EVERYWHERE))) for number in range(3)},
    )
    other = objects.pod(
        "p9",
        "p0",
        namespace="a",
        labels={"own": "label"},
        spec=spec_with_anti_affinity(anti_affinity_term("a", **EVERYWHERE)),
    )
    state.upsert_object(PODS, other)
    assert closed_and_term_count(state, "p0") == (False, 2)
    state.remove_object(PODS, other)
    assert [closed_and_term_count(state, f"p{number}") for number in range(3)] == [(False, 1)] * 3


def test_a_long_term_counts_as_several() -> None:
    def pod_term(values: int) -> PodTerm:
        return PodTerm(PodSelector((Requirement("app", "In", ("a",) * values),)))

    assert [weight_of_term(pod_term(values)) for values in (1, LONG - 2, LONG - 1, 2 * LONG - 1)] == [1, 1, 2, 3]
