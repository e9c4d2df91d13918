"""The state of one cluster: sums over pods and counts of our workloads, whatever the order of the streams."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot.core.cluster_state import ClusterState, StateChanges
from snapshot.core.rules import SnapshotRules
from snapshot.core.workloads import read_placement_version
from spillway.amounts import AMOUNT_MAX
from spillway.kubernetes.objects import (
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICASETS,
    RESOURCE_QUOTAS,
    STATEFULSETS,
    AnnotatedMeta,
    AnyObject,
)
from spillway.kubernetes.pod_terms import LABELS_UNKNOWN
from spillway.model import (
    HOSTNAME_LABEL,
    NO_GENERATION,
    NODE_LENT,
    NODE_OWNED,
    NODE_RECALLED,
    Generation,
    HostPort,
    NamespaceFacts,
    PodSelector,
    PodTable,
    PodTerm,
    Quota,
    Requirement,
    Taint,
)


@pytest.fixture
def state() -> ClusterState:
    return ClusterState("f1", SnapshotRules())


def only_row(changes: StateChanges) -> Any:
    (row,) = changes.rows
    return row


def test_a_node_is_a_row(state: ClusterState, objects: Any) -> None:
    state.upsert_object(
        NODES,
        objects.node(
            "n1",
            cpu="3920m",
            labels={"b": "2", "a": "1"},
            taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}],
            unschedulable=True,
            allocatable={"example.com/gpu": "2", "hugepages-2Mi": "0"},
        ),
    )
    row = only_row(state.take_changes())
    assert row.allocatable == {"cpu": 3920, "memory": 8 << 30, "pods": 110, "example.com/gpu": 2}
    assert row.requested == {}
    assert row.labels == (("a", "1"), ("b", "2"))
    assert row.taints == (Taint("k", "v", "NoSchedule"),)
    assert row.unschedulable


@pytest.mark.parametrize(
    ("value", "state_said"), [("checking", NODE_LENT), ("lent", NODE_LENT), ("recalled", NODE_RECALLED)]
)
def test_a_row_says_whose_the_node_is_now(state: ClusterState, objects: Any, value: str, state_said: int) -> None:
    taint = {"key": "spillway.io/lending", "value": value, "effect": "NoSchedule"}
    state.upsert_object(NODES, objects.node("n1", taints=[taint]))
    assert state.node_row("n1").state == state_said
    state.upsert_object(NODES, objects.node("n1"))
    assert state.node_row("n1").state == NODE_OWNED


def test_a_lent_node_has_requested_what_its_owner_would_have_there_after_its_return(
    state: ClusterState, objects: Any
) -> None:
    """And on a node that is nobody's but its owner's a pool's pod that is left there takes room as any other."""
    taint = {"key": "spillway.io/lending", "value": "lent", "effect": "NoSchedule"}
    state.upsert_object(NODES, objects.node("n1", taints=[taint]))
    state.upsert_object(PODS, objects.pod("daemon", "n1", cpu="200m"))
    state.upsert_object(PODS, objects.pod("train", "n1", cpu="3", namespace="spillway-lent-batch"))
    row = only_row(state.take_changes())
    assert (row.requested, len(row.pods)) == ({"cpu": 200, "pods": 1}, 2)
    state.upsert_object(NODES, objects.node("n1"))
    assert only_row(state.take_changes()).requested == {"cpu": 3200, "pods": 2}
    state.upsert_object(NODES, objects.node("n1", taints=[taint]))
    state.remove_object(PODS, objects.pod("daemon", "n1", cpu="200m"))
    assert only_row(state.take_changes()).requested == {}


def test_what_cannot_be_read_offers_nothing(state: ClusterState, objects: Any) -> None:
    state.upsert_object(NODES, objects.node("n1", cpu="many", allocatable={"memory": "9E99", "x": "-3"}))
    assert only_row(state.take_changes()).allocatable.keys() <= {"pods", "memory"}


def test_a_pod_that_cannot_be_read_closes_its_node(state: ClusterState, objects: Any) -> None:
    state.upsert_object(NODES, objects.node("n1"))
    state.upsert_object(PODS, objects.pod("p1", "n1", cpu="many"))
    row = only_row(state.take_changes())
    assert (row.unschedulable, row.requested, row.allocatable) == (True, {"pods": 1}, {})
    state.remove_object(PODS, objects.pod("p1", "n1"))
    assert not only_row(state.take_changes()).unschedulable


MANY_LABELS = {f"{index:040}": f"{index:040}" for index in range(8_000)}


def spec_with_long_anti_affinity(**terms: Any) -> Any:
    """Terms with so many long values that no record holds them, by their topology keys."""
    values = [f"v{number:062}" for number in range(3_000)]
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]}
    required = [{"topologyKey": key, "labelSelector": selector, **more} for key, more in terms.items()]
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def test_a_pod_that_says_more_of_itself_than_a_record_holds_is_one_whose_labels_nobody_knows(
    state: ClusterState, objects: Any
) -> None:
    """Neither its node nor its cluster is closed: an API server bounds neither labels nor terms of any user's pod."""
    state.upsert_object(NODES, objects.node("n1"))
    state.upsert_object(PODS, objects.pod("p", node="n1"))
    few = only_row(state.take_changes())
    for number in range(2):
        more = {"ports": [number + 1], "namespace": "team", "labels": {**MANY_LABELS, "number": str(number)}}
        state.upsert_object(PODS, objects.pod(f"many-{number}", node="n1", **more))
    row = only_row(state.take_changes())
    assert (row.unschedulable, row.allocatable) == (False, few.allocatable)
    assert (row.requested, len(row.ports)) == ({"cpu": 1500, "pods": 3}, 2)
    assert row.pods == (*few.pods, (PodTable("team", LABELS_UNKNOWN), 2))
    for number in range(2):
        state.remove_object(PODS, objects.pod(f"many-{number}", node="n1"))
    assert only_row(state.take_changes()) == few


def test_pods_with_the_same_many_labels_are_told_as_they_are(state: ClusterState, objects: Any) -> None:
    state.upsert_object(NODES, objects.node("n1"))
    labels = dict(list(MANY_LABELS.items())[:4_000])
    for number in range(3):
        state.upsert_object(PODS, objects.pod(f"p{number}", node="n1", labels=labels))
    ((table, count),) = state.node_row("n1").pods
    assert (len(table.labels) > 4_000, count) == (True, 3)


def test_a_pod_with_more_terms_than_a_record_holds_keeps_away_whomever_they_may_mean(
    state: ClusterState, objects: Any
) -> None:
    """Over what its node has a label of alone: nobody is kept away over anything else."""
    state.upsert_object(NODES, objects.node("n1", labels={"zone": "z1"}))
    terms: Any = {"zone": {"namespaceSelector": {}}, "rack": {}, HOSTNAME_LABEL: {}}
    state.upsert_object(PODS, objects.pod("p", node="n1", spec=spec_with_long_anti_affinity(**terms)))
    ((table, _),) = state.node_row("n1").pods
    everyone = PodSelector(())
    assert set(table.apart) == {PodTerm(everyone), PodTerm(everyone, False, "zone", (), everyone)}


def test_no_pod_says_that_its_labels_are_not_known(state: ClusterState, objects: Any) -> None:
    state.upsert_object(NODES, objects.node("n1"))
    state.upsert_object(PODS, objects.pod("p", node="n1", labels=dict(LABELS_UNKNOWN)))
    assert not set(LABELS_UNKNOWN) & set(state.node_row("n1").pods[0][0].labels)


def test_a_node_whose_pods_take_more_ports_than_a_record_holds_is_closed(state: ClusterState, objects: Any) -> None:
    state.upsert_object(NODES, objects.node("n1"))
    state.upsert_object(PODS, objects.pod("p", node="n1", ports=range(1, 22_000)))
    row = state.node_row("n1")
    assert (row.unschedulable, row.requested, row.allocatable, row.pods) == (True, {}, {}, ())


def test_a_group_has_a_key_whatever_its_controller_is_called(state: ClusterState, objects: Any) -> None:
    """An API server bounds neither kind nor name of an owner."""
    said = objects.pod("p1", owner="x", owner_kind="K" * 1_200_000, said="0/3 nodes")
    state.upsert_object(PODS, said)
    (group,) = state.take_waiting_groups() or {}
    assert len(group) < 100


def test_sums_that_no_column_can_hold_are_cut(state: ClusterState, objects: Any) -> None:
    state.upsert_object(NODES, objects.node("n1"))
    for uid in ("p1", "p2"):
        state.upsert_object(PODS, objects.pod(uid, "n1", cpu="9000000000000000"))
    assert only_row(state.take_changes()).requested["cpu"] == AMOUNT_MAX


@pytest.mark.parametrize(
    ("more", "holds", "counts"),
    [
        pytest.param({}, True, True, id="running"),
        pytest.param({"terminating": True}, True, False, id="terminating still holds its room"),
        pytest.param({"phase": "Succeeded"}, False, False, id="succeeded"),
        pytest.param({"phase": "Failed"}, False, False, id="failed"),
        pytest.param({"node": ""}, False, False, id="not bound"),
        pytest.param({"phase": "Pending"}, True, True, id="bound, not started"),
    ],
)
def test_what_a_pod_holds_and_counts(
    state: ClusterState, objects: Any, more: dict[str, Any], holds: bool, counts: bool
) -> None:
    for kind, item in (
        (NODES, objects.node("n1")),
        (PODS, objects.pod("p1", **{"node": "n1", "owner": "r1", **more})),
        (REPLICASETS, objects.replicaset("r1")),
        (DEPLOYMENTS, objects.deployment()),
    ):
        state.upsert_object(kind, item)
    changes = state.take_changes()
    assert only_row(changes).requested == ({"cpu": 500, "pods": 1} if holds else {})
    assert changes.facts[0].counted == ((("h1", 1),) if counts else ())


def test_labels_and_ports_of_pods(state: ClusterState, objects: Any) -> None:
    state.upsert_object(NODES, objects.node("n1"))
    state.upsert_object(PODS, objects.pod("p1", "n1", ports=[80], labels={"job-name": "j", "tier": "web"}))
    state.upsert_object(PODS, objects.pod("p2", "n1", labels={"controller-uid": "u", "tier": "web"}))
    state.upsert_object(PODS, objects.pod("p3", "n1", namespace="other"))
    row = only_row(state.take_changes())
    assert row.pods == (
        (PodTable("default", (("app", "web"), ("pod-template-hash", "h1"), ("tier", "web"))), 2),
        (PodTable("other", (("app", "web"), ("pod-template-hash", "h1"))), 1),
    )
    assert row.ports == (HostPort("0.0.0.0", "TCP", 80),)


def test_pods_say_whom_they_keep_away_and_that_they_end(state: ClusterState, objects: Any) -> None:
    apart = {
        "topologyKey": "zone",
        "labelSelector": {"matchLabels": {"app": "db"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]},
        "namespaces": ["y", "x"],
        "namespaceSelector": {},
    }
    means_no_pod = {"topologyKey": "zone"}
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": [apart, means_no_pod]}
    state.upsert_object(NODES, objects.node("n1"))
    state.upsert_object(PODS, objects.pod("p1", "n1", hash="", spec={"affinity": {"podAntiAffinity": terms}}))
    state.upsert_object(PODS, objects.pod("p2", "n1", hash="", terminating=True))
    state.upsert_object(PODS, objects.pod("p3", "n1", hash="", spec={"affinity": {"nodeAffinity": {}}}))
    selector = PodSelector((Requirement("a", "Exists", ()), Requirement("app", "In", ("db",))))
    term = PodTerm(selector, topology_key="zone", namespaces=("x", "y"), namespace_selector=PodSelector(()))
    web = PodTable("default", (("app", "web"),))
    assert dict(only_row(state.take_changes()).pods) == {
        web: 1,
        web._replace(terminating=True): 1,
        web._replace(apart=(term,)): 1,
    }


def test_nothing_changed_nothing_said(state: ClusterState, objects: Any) -> None:
    everything = [
        (NODES, objects.node("n1")),
        (PODS, objects.pod("p1", "n1", owner="r1")),
        (PODS, objects.pod("p2", owner="r1", said="no room")),
        (REPLICASETS, objects.replicaset("r1")),
        (DEPLOYMENTS, objects.deployment()),
    ]
    for kind, item in everything:
        state.upsert_object(kind, item)
    assert state.take_changes()
    assert state.take_waiting_groups()
    for kind, item in everything:
        state.upsert_object(kind, item)
    for kind in (NODES, PODS, REPLICASETS, DEPLOYMENTS):
        state.replace_objects(kind, [item for other, item in everything if other is kind], 0.0)
    assert not state.has_changes
    assert not state.take_changes()
    assert state.take_waiting_groups() is None


def test_facts_of_a_workload(state: ClusterState, objects: Any) -> None:
    state.upsert_object(DEPLOYMENTS, objects.deployment(generation=2, observed=1, replicas=5))
    (facts,) = state.take_changes().facts
    assert (facts.namespace, facts.name, facts.uid, facts.version) == ("default", "web", "d1", Generation(7, 3))
    assert (facts.spec_replicas, facts.observed_current, facts.status_replicas) == (5, False, 5)
    state.upsert_object(DEPLOYMENTS, objects.deployment(fleet="another"))
    assert state.take_changes().facts_removed == (("default", "web"),)


def test_pods_of_a_statefulset_are_counted_by_revision(state: ClusterState, objects: Any) -> None:
    """Whichever of pod and owner is seen first."""
    for uid, revision in (("p1", "db-1"), ("p2", "db-1"), ("p3", "db-2")):
        labels = {"controller-revision-hash": revision}
        pod = objects.pod(uid, "n1", owner="s1", owner_kind="StatefulSet", labels=labels, hash=None)
        state.upsert_object(PODS, pod)
    assert not state.take_changes().facts
    state.upsert_object(STATEFULSETS, objects.statefulset(generation=2))
    (facts,) = state.take_changes().facts
    assert facts.counted == (("db-1", 2), ("db-2", 1))
    assert (facts.spec_replicas, facts.observed_current, facts.updated_replicas) == (3, False, 3)
    state.remove_object(PODS, objects.pod("p3", "n1"))
    assert state.take_changes().facts[0].counted == (("db-1", 2),)


RUNNING = {"active": 3, "ready": 2, "succeeded": 1}


@pytest.mark.parametrize(
    ("version", "status", "expected"),
    [
        ("7.3", RUNNING, (True, 3, 2, 1, "")),
        ("what", RUNNING, (False, 3, 2, 1, "")),
        ("7.3", {}, (True, 0, 0, 0, "")),
        ("7.3", {"succeeded": 5, "conditions": [{"type": "Complete", "status": "True"}]}, (True, 0, 0, 5, "Complete")),
        ("7.3", {"conditions": [{"type": "Failed", "status": "True"}]}, (True, 0, 0, 0, "Failed")),
        ("7.3", {"conditions": [{"type": "Suspended", "status": "True"}]}, (True, 0, 0, 0, "Suspended")),
        ("7.3", {**RUNNING, "conditions": [{"type": "Suspended", "status": "False"}]}, (True, 3, 2, 1, "")),
    ],
)
def test_facts_of_a_job(state: ClusterState, objects: Any, version: str, status: Any, expected: Any) -> None:
    state.upsert_object(JOBS, objects.job(version=version, **status))
    state.upsert_object(PODS, objects.pod("p1", "n1", owner="j1", owner_kind="Job", hash=None))
    (facts,) = state.take_changes().facts
    shown = (facts.observed_current, facts.status_replicas, facts.ready_replicas, facts.succeeded, facts.ended)
    assert (shown, facts.spec_replicas, facts.counted) == (expected, 4, (("", 1),))


def test_a_list_of_one_kind_says_nothing_of_another(state: ClusterState, objects: Any) -> None:
    state.upsert_object(DEPLOYMENTS, objects.deployment())
    state.upsert_object(STATEFULSETS, objects.statefulset())
    state.upsert_object(JOBS, objects.job())
    state.take_changes()
    state.replace_objects(STATEFULSETS, [], 0.0)
    assert state.take_changes().facts_removed == (("default", "db"),)
    state.remove_object(JOBS, objects.job())
    assert state.take_changes().facts_removed == (("default", "sum"),)
    assert [facts.name for facts in state.whole_state().facts] == ["web"]


def test_a_name_that_is_used_again_keeps_its_new_object(state: ClusterState, objects: Any) -> None:
    state.upsert_object(DEPLOYMENTS, objects.deployment("d1"))
    state.take_changes()
    state.replace_objects(DEPLOYMENTS, [objects.deployment("d2")], 0.0)
    changes = state.take_changes()
    assert [facts.uid for facts in changes.facts] == ["d2"]
    assert changes.facts_removed == ()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("7.3", Generation(7, 3)),
        ("0.0", Generation(0, 0)),
        ("", NO_GENERATION),
        ("7", NO_GENERATION),
        ("7.", NO_GENERATION),
        ("-1.2", NO_GENERATION),
        ("1.2.3", NO_GENERATION),
        ("٣.1", NO_GENERATION),
        ("9" * 40 + ".1", NO_GENERATION),
    ],
)
def test_versions(text: str, version: Generation) -> None:
    assert read_placement_version(text) == version


def test_groups_of_waiting_pods(state: ClusterState, objects: Any) -> None:
    state.upsert_object(PODS, objects.pod("p1", owner="r1", said="no room"))
    state.upsert_object(PODS, objects.pod("p2", owner="r1", said="no room"))
    state.upsert_object(PODS, objects.pod("p3", owner="r1", said="another word"))
    state.upsert_object(PODS, objects.pod("p4", said="no room"))
    state.upsert_object(PODS, objects.pod("p5", said="no room", terminating=True))
    groups = state.take_waiting_groups() or {}
    assert {name: (group.workload, group.pods, group.reason) for name, group in groups.items()} == {
        "ReplicaSet/default/r1": ("", 3, "no room"),
        "Pod/default/p4": ("", 1, "no room"),
    }
    state.upsert_object(REPLICASETS, objects.replicaset("r1"))
    state.upsert_object(DEPLOYMENTS, objects.deployment())
    state.take_changes()
    groups = state.take_waiting_groups() or {}
    assert groups["default/web"].workload == "default/web"
    assert "ReplicaSet/default/r1" not in groups


# ── Properties ──────────────────────────────────────────────────────────────────────────────────────────────────────

NAMES = ("n1", "n2", "n3")
pod_specs = st.fixed_dictionaries(
    {
        "node": st.sampled_from(("", *NAMES)),
        "cpu": st.sampled_from(("100m", "1", "0")),
        "owner": st.sampled_from(("", "r1", "r2", "r3")),
        "hash": st.sampled_from(("h1", "h2")),
        "phase": st.sampled_from(("Running", "Succeeded", "Failed")),
        "terminating": st.booleans(),
        "said": st.sampled_from(("", "no room")),
    }
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), st.sampled_from(("p1", "p2", "p3", "p4")), st.none() | pod_specs),
        st.tuples(st.just("node"), st.sampled_from(NAMES), st.sampled_from((None, "2", "4"))),
        st.tuples(st.just("rs"), st.sampled_from(("r1", "r2", "r3")), st.sampled_from((None, "d1", "d2"))),
        st.tuples(st.just("dep"), st.sampled_from(("d1", "d2")), st.sampled_from((None, 1, 2))),
    ),
    max_size=30,
)


def apply_step(state: ClusterState, objects: Any, step: tuple[str, str, Any]) -> None:
    what, name, value = step
    kind = {"pod": PODS, "node": NODES, "rs": REPLICASETS, "dep": DEPLOYMENTS}[what]
    if what == "pod":
        item = objects.pod(name, **(value or {}))
    elif what == "node":
        item = objects.node(name, cpu=value or "1")
    elif what == "rs":
        item = objects.replicaset(name, value or "d1")
    else:
        item = objects.deployment(name, name=f"web-{name}", replicas=value or 1)
    (state.upsert_object if value is not None else state.remove_object)(kind, item)


def last_step_of_each_object(done: list[tuple[str, str, Any]]) -> list[tuple[str, str, Any]]:
    return [(*key, value) for key, value in {(what, name): value for what, name, value in done}.items()]


@given(steps=steps, data=st.data())
def test_the_state_is_a_sum_over_what_is_there_now(objects: Any, steps: list[tuple[str, str, Any]], data: Any) -> None:
    """requested is the sum over bound pods, counted follows the owners, whatever the order across streams."""
    from_history, from_last = ClusterState("f1", SnapshotRules()), ClusterState("f1", SnapshotRules())
    for step in steps:
        apply_step(from_history, objects, step)
        if data.draw(st.booleans()):
            from_history.take_changes()
    for step in data.draw(st.permutations(last_step_of_each_object(steps))):
        apply_step(from_last, objects, step)
    assert from_history.whole_state() == from_last.whole_state()
    assert (from_history.take_waiting_groups() or {}) == (from_last.take_waiting_groups() or {})
    pods = {name: spec for what, name, spec in last_step_of_each_object(steps) if what == "pod" and spec}
    for row in from_history.whole_state().rows:
        holding = [s for s in pods.values() if s["node"] == row.name and s["phase"] == "Running"]
        cpu = sum({"100m": 100, "1": 1000, "0": 0}[s["cpu"]] for s in holding)
        assert row.requested.get("cpu", 0) == cpu
        assert row.requested.get("pods", 0) == len(holding)


@given(steps=steps)
def test_a_list_is_worth_its_events(objects: Any, steps: list[tuple[str, str, Any]]) -> None:
    """A whole list after any history leaves what the list says, and nothing more is kept of the rest."""
    listed, followed = ClusterState("f1", SnapshotRules()), ClusterState("f1", SnapshotRules())
    for step in steps:
        apply_step(followed, objects, step)
        apply_step(listed, objects, step)
    pods = [objects.pod(n, **s) for w, n, s in last_step_of_each_object(steps) if w == "pod" and s]
    for name in ("q1", "q2"):  # Lost events.
        listed.upsert_object(PODS, objects.pod(name, "n1", owner="r1"))
    listed.replace_objects(PODS, pods, 0.0)
    assert listed.whole_state() == followed.whole_state()
    for pod in pods:
        listed.remove_object(PODS, pod)
    assert len(listed.pods) == 0
    assert not listed.pods.loads
    assert not listed.pods.counted
    assert not listed.pods.waiting
    assert not listed.pods._tables
    assert not listed.pods._owners


# ── Namespaces ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_namespace_is_said_with_its_labels_and_quotas(state: ClusterState, objects: Any) -> None:
    state.upsert_object(
        NAMESPACES, objects.namespace("team-a", {"env": "prod", "kubernetes.io/metadata.name": "team-a"})
    )
    state.upsert_object(NAMESPACES, objects.namespace("plain", {}))
    spec = {
        "hard": {"requests.cpu": "2", "pods": "10", "limits.memory": "wrong"},
        "scopes": ["NotTerminating"],
        "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["low"]}]},
    }
    state.upsert_object(RESOURCE_QUOTAS, objects.quota("q1", "team-a", spec, {"requests.cpu": "1500m", "pods": "?"}))
    scopes = (Requirement("NotTerminating", "Exists", ()), Requirement("PriorityClass", "In", ("low",)))
    hard = (("limits.memory", 0), ("pods", 10), ("requests.cpu", 2000))
    quota = Quota("q1", hard, (("pods", 2**63 - 1), ("requests.cpu", 1500)), scopes)
    said = state.take_changes()
    assert said.namespaces == (NamespaceFacts("team-a", (("env", "prod"),), (quota,)),)
    assert said.namespaces_removed == ("plain",)
    assert state.whole_state().namespaces == said.namespaces


def test_what_is_gone_of_a_namespace_is_said(state: ClusterState, objects: Any) -> None:
    team = objects.namespace("team-a", {"env": "prod"})
    quota = objects.quota("q1", "team-a", {"hard": {"pods": "1"}}, {})
    state.replace_objects(NAMESPACES, [team], 0.0)
    state.replace_objects(RESOURCE_QUOTAS, [quota], 0.0)
    state.take_changes()
    state.remove_object(RESOURCE_QUOTAS, quota)
    assert state.take_changes().namespaces == (NamespaceFacts("team-a", (("env", "prod"),), ()),)
    state.replace_objects(NAMESPACES, [], 0.0)
    assert state.take_changes().namespaces_removed == ("team-a",)
    assert not state.has_changes


def system_namespace_object(uid: str, name: str = "kube-system") -> AnyObject:
    return AnyObject(AnnotatedMeta(name, "", uid))


def test_the_api_server_is_known_by_the_uid_of_its_system_namespace(state: ClusterState) -> None:
    assert state.take_changes().api_server == ""
    state.replace_objects(NAMESPACES, (system_namespace_object("u1"), system_namespace_object("u0", "default")), 0.0)
    assert (state.has_changes, state.take_changes().api_server, state.whole_state().api_server) == (True, "u1", "u1")
    # Behind another credential there is another cluster: its list is taken in before what it lacks goes.
    state.replace_objects(NAMESPACES, (system_namespace_object("u2"),), 1.0)
    assert (state.has_changes, state.take_changes().api_server) == (True, "u2")
    state.remove_object(NAMESPACES, system_namespace_object("u2"))
    assert state.take_changes().api_server == ""


def test_a_pod_is_its_controllers_whoever_else_owns_it(state: ClusterState, objects: Any) -> None:
    """Anybody may add an owner, which ends with the pod and counts none of it."""
    found = objects.pod("p1", "n1", owner="r1")
    other = msgspec.structs.replace(found.metadata.owner_references[0], uid="x1", name="x1", controller=False)
    references = [other, *found.metadata.owner_references]
    metadata = msgspec.structs.replace(found.metadata, owner_references=references)
    state.upsert_object(PODS, msgspec.structs.replace(found, metadata=metadata))
    assert state.pods.counted == {("default", "r1"): {"h1": 1}}
