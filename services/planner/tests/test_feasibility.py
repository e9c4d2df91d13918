"""How many replicas nodes take: by hand, against a plain reference, and against a simulated scheduler."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.columns import columns_of
from spillway.feasibility.fit import compute_fit, replicas_on_group_node
from spillway.kubernetes.pod_terms import LABELS_UNKNOWN
from spillway.model import (
    NODE_LENT,
    NODE_RECALLED,
    HostPort,
    NodeRow,
    NodeTerm,
    PodSelector,
    PodTable,
    PodTerm,
    Requirement,
    Shape,
    Spread,
    Taint,
    Toleration,
)

from .builders import cluster_nodes_of, make_shape, node_group, node_row

WEB = PodSelector((Requirement("app", "In", ("web",)),))
DB = PodSelector((Requirement("app", "In", ("db",)),))
GPU = Taint("gpu", "only", "NoSchedule")
SOFT = Taint("gpu", "only", "PreferNoSchedule")
GONE = Taint("gone", "", "NoExecute")
ANY = Toleration("", "Exists", "", "")
PORT = HostPort("0.0.0.0", "TCP", 80)


def pods_of_app(app: str, count: int = 1, namespace: str = "default") -> tuple[tuple[PodTable, int], ...]:
    return ((PodTable(namespace, (("app", app),)), count),)


def terms_in_zones(*zones: str) -> tuple[NodeTerm, ...]:
    return (NodeTerm((Requirement("zone", "In", zones),), ()),)


TABLE: dict[str, tuple[Shape, list[NodeRow], list[int], str]] = {
    "cpu": (make_shape(1000), [node_row("a", 4000, 500), node_row("b", 900)], [3, 0], "cpu (2 nodes)"),
    "exactly full": (make_shape(1000), [node_row("a", 4000, 4000)], [0], "cpu (1 node)"),
    "more requested than there is": (make_shape(1000), [node_row("a", 4000, 5000)], [0], "cpu (1 node)"),
    "pod places": (make_shape(10), [node_row("a", 4000, pods=3, requested={"pods": 1})], [2], "pods (1 node)"),
    "an extended resource": (
        make_shape(10, requests={"gpu": 2}),
        [node_row("a", allocatable={"gpu": 5}), node_row("b")],
        [2, 0],
        "gpu (2 nodes)",
    ),
    "a resource that no node has": (make_shape(10, requests={"fpga": 1}), [node_row("a")], [0], "fpga (1 node)"),
    "no nodes": (make_shape(), [], [], "no nodes"),
    "node selector": (
        make_shape(node_selector=(("zone", "a"),)),
        [node_row("a", labels={"zone": "a"}), node_row("b", labels={"zone": "b"}), node_row("c")],
        [4, 0, 0],
        "node selector zone=a (2 nodes), cpu (1 node)",
    ),
    "node affinity": (
        make_shape(node_terms=terms_in_zones("a", "b")),
        [node_row("a", labels={"zone": "b"}), node_row("b", labels={"zone": "c"})],
        [4, 0],
        "cpu (1 node), node affinity (1 node)",
    ),
    "node by field": (
        make_shape(node_terms=(NodeTerm((), (Requirement("metadata.name", "In", ("b",)),)),)),
        [node_row("a"), node_row("b")],
        [0, 4],
        "cpu (1 node), node affinity (1 node)",
    ),
    "node by hostname": (
        make_shape(node_selector=(("kubernetes.io/hostname", "b"),)),
        [node_row("a"), node_row("b")],
        [0, 4],
        "cpu (1 node), node selector kubernetes.io/hostname=b (1 node)",
    ),
    "taint": (
        make_shape(),
        [node_row("a", taints=(GPU,)), node_row("b")],
        [0, 4],
        "cpu (1 node), taint gpu=only:NoSchedule (1 node)",
    ),
    "tolerated": (
        make_shape(tolerations=(Toleration("gpu", "Equal", "only", "NoSchedule"),)),
        [node_row("a", taints=(GPU,)), node_row("b", taints=(GPU, GONE))],
        [4, 0],
        "cpu (1 node), taint gone:NoExecute (1 node)",
    ),
    "tolerated with another value": (
        make_shape(tolerations=(Toleration("gpu", "Equal", "no", ""),)),
        [node_row("a", taints=(GPU,))],
        [0],
        "taint gpu=only:NoSchedule (1 node)",
    ),
    "a soft taint": (make_shape(), [node_row("a", taints=(SOFT,))], [4], "cpu (1 node)"),
    "cordoned": (make_shape(), [node_row("a", unschedulable=True)], [0], "cordoned (1 node)"),
    "cordoned and tolerated": (
        make_shape(tolerations=(ANY,)),
        [node_row("a", unschedulable=True)],
        [4],
        "cpu (1 node)",
    ),
    "lent, whatever is tolerated": (
        make_shape(tolerations=(ANY,)),
        [node_row("a", state=NODE_LENT), node_row("b", state=NODE_RECALLED)],
        [0, 0],
        "lent or recalled (2 nodes)",
    ),
    "one host port a node": (make_shape(host_ports=(PORT,)), [node_row("a")], [1], "cpu (1 node)"),
    "host port in use": (
        make_shape(host_ports=(PORT,)),
        [
            node_row("a", ports=(HostPort("10.0.0.1", "TCP", 80),)),
            node_row("b", ports=(HostPort("0.0.0.0", "UDP", 80), HostPort("0.0.0.0", "TCP", 81))),
        ],
        [0, 1],
        "cpu (1 node), host port in use (1 node)",
    ),
    "host port on another address": (
        make_shape(host_ports=(HostPort("10.0.0.2", "TCP", 80),)),
        [node_row("a", ports=(HostPort("10.0.0.1", "TCP", 80),))],
        [1],
        "cpu (1 node)",
    ),
    "apart from its own": (
        make_shape(apart=(PodTerm(WEB, own=True),)),
        [node_row("a"), node_row("b", rest={"pods": pods_of_app("web")})],
        [1, 0],
        "anti-affinity (1 node), cpu (1 node)",
    ),
    "apart from others": (
        make_shape(apart=(PodTerm(DB),)),
        [node_row("a", rest={"pods": pods_of_app("db")}), node_row("b", rest={"pods": pods_of_app("web")})],
        [0, 4],
        "anti-affinity (1 node), cpu (1 node)",
    ),
    "apart, but in another namespace": (
        make_shape(apart=(PodTerm(DB),)),
        [node_row("a", rest={"pods": pods_of_app("db", namespace="other")})],
        [4],
        "cpu (1 node)",
    ),
}


@pytest.mark.parametrize(("wanted", "rows", "expected", "limit"), TABLE.values(), ids=TABLE)
def test_replicas_by_node_and_what_binds(wanted: Shape, rows: list[NodeRow], expected: list[int], limit: str) -> None:
    result = compute_fit(wanted, cluster_nodes_of(*rows))
    assert result.per_node[: len(rows)].tolist() == expected
    assert (result.total, result.largest) == (sum(expected), max(expected, default=0))
    assert result.node_limit().as_text == limit


WHEN_EMPTY = {
    "full but large enough": (make_shape(1000), [node_row("a", 4000, 4000)], True),
    "never large enough": (make_shape(5000), [node_row("a", 4000)], False),
    "kept away by a taint": (make_shape(1000), [node_row("a", taints=(GPU,))], False),
    "kept away by pods": (make_shape(host_ports=(PORT,)), [node_row("a", ports=(PORT,))], True),
    "no nodes": (make_shape(), [], False),
}


@pytest.mark.parametrize(("wanted", "rows", "expected"), WHEN_EMPTY.values(), ids=WHEN_EMPTY)
def test_whether_it_would_fit_an_empty_node(wanted: Shape, rows: list[NodeRow], expected: bool) -> None:
    assert compute_fit(wanted, cluster_nodes_of(*rows)).when_empty is expected


def test_at_most_three_limits_are_named() -> None:
    rows = [node_row(f"n{index}", taints=(Taint(f"t{index}", "", "NoSchedule"),)) for index in range(5)]
    text = compute_fit(make_shape(), cluster_nodes_of(*rows)).node_limit().as_text
    assert text == "taint t0:NoSchedule (1 node), taint t1:NoSchedule (1 node), taint t2:NoSchedule (1 node) and 2 more"


def test_a_removed_node_takes_nothing_and_its_row_is_used_again() -> None:
    nodes = cluster_nodes_of(node_row("a"), node_row("b", taints=(GPU,)))
    nodes.remove_nodes(["a", "unknown"])
    assert compute_fit(make_shape(), nodes).total == 0
    nodes.upsert_nodes(columns_of([node_row("c", 2000)]), 0)
    assert (compute_fit(make_shape(), nodes).total, nodes.names) == (2, ["c", "b"])


def test_a_resource_that_a_change_no_longer_names_is_gone() -> None:
    nodes = cluster_nodes_of(node_row("a", allocatable={"gpu": 4}))
    nodes.upsert_nodes(columns_of([node_row("a")]), 0)
    assert compute_fit(make_shape(requests={"gpu": 1}), nodes).total == 0


GROUPS = {
    "by resources": (make_shape(1500), node_group(cpu=4000), 2),
    "a resource that it lacks": (make_shape(requests={"gpu": 1}), node_group(), 0),
    "a taint": (make_shape(), node_group(taints=(GPU,)), 0),
    "a tolerated taint": (make_shape(tolerations=(ANY,)), node_group(taints=(GPU,)), 4),
    "a selector that it meets": (make_shape(node_selector=(("group", "burst"),)), node_group(), 4),
    "a selector that it does not meet": (make_shape(node_selector=(("group", "other"),)), node_group(), 0),
    "an affinity that it does not meet": (make_shape(node_terms=terms_in_zones("a")), node_group(), 0),
    "a node by its name": (
        make_shape(node_terms=(NodeTerm((), (Requirement("metadata.name", "In", ("a",)),)),)),
        node_group(),
        0,
    ),
    "a host port": (make_shape(host_ports=(PORT,)), node_group(), 1),
}


@pytest.mark.parametrize(("wanted", "offered", "expected"), GROUPS.values(), ids=GROUPS)
def test_replicas_on_a_node_that_does_not_exist_yet(wanted: Shape, offered: object, expected: int) -> None:
    assert replicas_on_group_node(wanted, offered) == expected  # type: ignore[arg-type]


# ── Against a plain reference ───────────────────────────────────────────────────────────────────────────────────

TAINTS = st.lists(st.sampled_from((GPU, SOFT, GONE)), max_size=2, unique=True).map(tuple)
PORTS = st.lists(
    st.builds(HostPort, st.sampled_from(("0.0.0.0", "1.1.1.1", "2.2.2.2")), st.just("TCP"), st.sampled_from((80, 81))),
    max_size=2,
    unique=True,
).map(tuple)


@st.composite
def node_rows(draw: st.DrawFn) -> list[NodeRow]:
    return [
        node_row(
            f"n{index}",
            draw(st.integers(0, 9)),
            draw(st.integers(0, 9)),
            draw(st.integers(0, 4)),
            allocatable={"gpu": draw(st.integers(0, 3))},
            labels=draw(st.sampled_from(({}, {"zone": "a"}, {"zone": "b", "size": "5"}))),
            taints=draw(TAINTS),
            unschedulable=draw(st.booleans()),
            state=draw(st.sampled_from((0, 0, 0, NODE_LENT))),
            ports=draw(PORTS),
            rest={
                "pods": draw(
                    st.sampled_from(((), pods_of_app("web", 2), pods_of_app("db"), pods_of_app("web", namespace="x")))
                )
            },
        )
        for index in range(draw(st.integers(0, 6)))
    ]


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    return make_shape(
        draw(st.integers(0, 4)),
        requests={"gpu": draw(st.integers(0, 2))},
        node_selector=draw(st.sampled_from(((), (("zone", "a"),), (("kubernetes.io/hostname", "n1"),)))),
        node_terms=draw(
            st.sampled_from(
                (
                    (),
                    terms_in_zones("a", "b"),
                    (
                        NodeTerm((Requirement("size", "Gt", ("4",)),), ()),
                        NodeTerm((), (Requirement("metadata.name", "In", ("n0",)),)),
                    ),
                    (NodeTerm((Requirement("zone", "NotIn", ("b",)),), ()),),
                )
            )
        ),
        tolerations=draw(
            st.sampled_from(
                ((), (ANY,), (Toleration("gpu", "Exists", "", ""),), (Toleration("gone", "Equal", "", ""),))
            )
        ),
        host_ports=draw(PORTS),
        apart=draw(st.sampled_from(((), (PodTerm(WEB, True),), (PodTerm(DB),)))),
    )


def requirement_holds(requirement: Requirement, labels: dict[str, str]) -> bool:
    value = labels.get(requirement.key)
    return {
        "In": value in requirement.values,
        "NotIn": value not in requirement.values,
        "Gt": value is not None
        and value.isdigit()
        and int(value) > int(requirement.values[0] if requirement.operator == "Gt" else 0),
    }[requirement.operator]


def replicas_on_node(wanted: Shape, row: NodeRow) -> int:
    """What the documentation of the scheduler's filters says, one node and one filter at a time."""
    labels = dict(row.labels)
    if row.state != 0 or any(labels.get(key) != value for key, value in wanted.node_selector):
        return 0
    alternatives = [
        all(requirement_holds(entry, labels) for entry in term.labels)
        and all(requirement_holds(entry, {"metadata.name": row.name}) for entry in term.fields)
        for term in wanted.node_terms
    ]
    if wanted.node_terms and not any(alternatives):
        return 0
    taints = [
        *row.taints,
        *([Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")] if row.unschedulable else []),
    ]
    for taint in taints:
        tolerated = [
            entry
            for entry in wanted.tolerations
            if entry.effect in ("", taint.effect)
            and (entry.key == taint.key or (entry.key == "" and entry.operator == "Exists"))
            and (entry.operator == "Exists" or entry.value == taint.value)
        ]
        if taint.effect != "PreferNoSchedule" and not tolerated:
            return 0
    for port in wanted.host_ports:
        for used in row.ports:
            same_address = port.ip in (used.ip, "0.0.0.0") or used.ip == "0.0.0.0"
            if same_address and (port.protocol, port.port) == (used.protocol, used.port):
                return 0
    for apart in wanted.apart:
        for table, _ in row.pods:
            own = table.namespace == "default"
            if own and all(requirement_holds(entry, dict(table.labels)) for entry in apart.selector.requirements):
                return 0
    most = 10**9
    for name, amount in wanted.requests:
        most = min(most, max(0, row.allocatable.get(name, 0) - row.requested.get(name, 0)) // amount)
    return min(most, 1) if wanted.host_ports or any(entry.own for entry in wanted.apart) else most


@given(shapes(), node_rows())
def test_fit_is_the_scheduler_s_filters_node_by_node(wanted: Shape, rows: list[NodeRow]) -> None:
    result = compute_fit(wanted, cluster_nodes_of(*rows))
    expected = [replicas_on_node(wanted, row) for row in rows]
    assert result.per_node[: len(rows)].tolist() == expected
    assert (result.total, result.largest) == (sum(expected), max(expected, default=0))
    assert sum(count for _, count in result.reasons) == len(rows)


# ── Spread ──────────────────────────────────────────────────────────────────────────────────────────────────────


def schedule_greedily(wanted: Shape, rows: list[NodeRow], random: Random) -> int:
    """The kube-scheduler, one pod at a time on any node that the skew allows, until none does."""
    (constraint,) = wanted.spread
    plain = make_shape(
        dict(wanted.requests).get("cpu", 0), node_selector=wanted.node_selector, tolerations=wanted.tolerations
    )
    selected = dict(wanted.node_selector)
    counting = [
        row
        for row in rows
        if (not constraint.honor_affinity or selected.items() <= dict(row.labels).items())
        and (not constraint.honor_taints or wanted.tolerations or GPU not in row.taints)
    ]
    present = {
        row.name: sum(n for table, n in row.pods if table.namespace == "default" and ("app", "web") in table.labels)
        for row in counting
    }
    free = {row.name: replicas_on_node(plain, row) for row in counting}
    placed = 0
    while counting:
        least = min(present.values())
        allowed = [name for name in sorted(present) if free[name] and present[name] + 1 - least <= constraint.max_skew]
        if not allowed:
            break
        chosen = random.choice(allowed)
        present[chosen] += 1
        free[chosen] -= 1
        placed += 1
    return placed


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4), st.booleans(), st.booleans()), min_size=0, max_size=6),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
    st.sampled_from(((), (ANY,))),
    st.sampled_from(((), (("zone", "a"),))),
    st.randoms(use_true_random=False),
)
def test_a_spread_s_total_is_what_the_scheduler_reaches(
    sizes: list[tuple[int, int, bool, bool]],
    skew: int,
    affinity: bool,
    taints: bool,
    tolerations: tuple[Toleration, ...],
    selector: tuple[tuple[str, str], ...],
    random: Random,
) -> None:
    rows = [
        node_row(
            f"n{index}",
            size * 1000,
            labels={"zone": "a"} if zoned else {},
            taints=(GPU,) if tainted else (),
            rest={"pods": pods_of_app("web", web) if web else ()},
        )
        for index, (size, web, zoned, tainted) in enumerate(sizes)
    ]
    wanted = make_shape(
        1000, spread=(Spread(WEB, skew, affinity, taints),), tolerations=tolerations, node_selector=selector
    )
    assert compute_fit(wanted, cluster_nodes_of(*rows)).total == schedule_greedily(wanted, rows, random)


EVERYWHERE = PodSelector(())
UNKNOWN = {
    "looks at no pods": (make_shape(), [4, 4]),
    "apart, in another namespace": (make_shape(apart=(PodTerm(DB),)), [4, 4]),
    "apart, in its namespace": (make_shape(apart=(PodTerm(DB, namespaces=("team",)),)), [0, 4]),
    "apart, everywhere": (make_shape(apart=(PodTerm(DB, namespace_selector=EVERYWHERE),)), [0, 4]),
    "spread, in another namespace": (make_shape(spread=(Spread(DB, 9),)), [4, 4]),
    "spread, in its namespace": (
        replace(make_shape(spread=(Spread(DB, 9),)), namespace="team"),
        [0, 4],
    ),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_a_node_of_pods_whose_labels_nobody_knows_takes_all_that_cannot_mean_them(case: str) -> None:
    wanted, expected = UNKNOWN[case]
    unknown = ((PodTable("team", LABELS_UNKNOWN), 1),)
    nodes = cluster_nodes_of(node_row("a", rest={"pods": unknown}), node_row("b"))
    assert compute_fit(wanted, nodes).per_node[:2].tolist() == expected
    nodes.upsert_nodes(columns_of([node_row("a")]), 0)
    assert compute_fit(wanted, nodes).per_node[:2].tolist() == [4, 4]


def test_pods_that_go_leave_no_room_of_what_their_node_does_not_offer() -> None:
    """It is not said that they hold it there."""
    nodes = cluster_nodes_of(
        node_row("a", rest={"pods": pods_of_app("web")}),
        node_row("b", allocatable={"gpu": 2}, requested={"gpu": 2}, rest={"pods": pods_of_app("web")}),
    )
    rest = nodes.without_workload_pods("default", {"app": "web"}, (("gpu", 2),), 2)
    assert rest is not None
    assert compute_fit(make_shape(requests={"gpu": 1}), rest).per_node[:2].tolist() == [0, 2]


class Unsearched(tuple[str, ...]):
    """Names that nobody looks through for one."""

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        raise AssertionError("all names of a record are looked through")


def test_the_names_of_a_record_are_not_looked_through_for_each_that_is_known() -> None:
    """51,203 names of tenants' pods were 54 s."""
    nodes = cluster_nodes_of(node_row("a", allocatable={"gpu": 2}))
    columns = columns_of([node_row("a")])
    nodes.upsert_nodes(replace(columns, resources=Unsearched(columns.resources)), 0)
    assert nodes.allocatable_and_requested()[0]["gpu"] == 0


def test_totals_are_what_64_bits_hold_of_them() -> None:
    allocatable, requested = cluster_nodes_of(
        *(node_row(name, 2**62 + 1, 3) for name in ("a", "b", "c"))
    ).allocatable_and_requested()
    assert (allocatable["cpu"], requested["cpu"], allocatable["pods"]) == (2**63 - 1, 9, 330)
