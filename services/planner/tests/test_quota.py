"""What the quotas of a namespace let in beside what is reserved there."""

from dataclasses import replace
from typing import Any

import pytest

from planner.core.division.words import limit_text
from planner.core.feasibility.quota import UNLIMITED, quota_allowance
from spillway.model import NamespaceFacts, PodSelector, PodTerm, PodTraits, Quota, Requirement, Shape

from .builders import Fleet, deployment, joined_cluster, make_shape, node_group, node_row, workload_facts
from .test_decisions import apply_manifests, parts_by_cluster, placed_by_cluster


def compute_quota(used: dict[str, int] | None = None, scopes: tuple[Requirement, ...] = (), **hard: int) -> Quota:
    """limits_cpu is limits.cpu, and so on."""
    named = {name.replace("_", "."): amount for name, amount in hard.items()}
    return Quota("compute", tuple(sorted(named.items())), tuple(sorted((used or {}).items())), scopes)


def quota_scope(name: str, operator: str = "Exists", *values: str) -> tuple[Requirement, ...]:
    return (Requirement(name, operator, values),)


ONE = make_shape(1000, traits=PodTraits(limits=(("cpu", 2000),), priority_class="high"))
ANOTHER = replace(ONE, namespace="other")
NONE = make_shape(0)
CPU = {"cpu": 4000}
TABLE: dict[str, tuple[Shape, Quota, list[tuple[Shape, int]], tuple[int, int]]] = {
    "cpu": (ONE, compute_quota(cpu=10_000, used=CPU), [], (6, 6)),
    "requests by their long name": (ONE, compute_quota(requests_cpu=10_000, used={"requests.cpu": 500}), [], (9, 9)),
    "limits": (ONE, compute_quota(limits_cpu=10_000), [], (5, 5)),
    "pods": (ONE, compute_quota(pods=3, cpu=100_000), [], (3, 3)),
    "what is reserved may be used already": (ONE, compute_quota(cpu=10_000, used=CPU), [(ONE, 2)], (4, 6)),
    "what is reserved elsewhere": (ONE, compute_quota(cpu=10_000), [(ANOTHER, 2)], (10, 10)),
    "more is used than there is": (ONE, compute_quota(pods=3, used={"pods": 5}), [], (0, 0)),
    "what no pod uses": (ONE, compute_quota(services=0), [], (UNLIMITED, UNLIMITED)),
    "what it does not ask for": (NONE, compute_quota(cpu=0), [], (UNLIMITED, UNLIMITED)),
    "of a class": (ONE, compute_quota(pods=1, scopes=quota_scope("PriorityClass", "In", "high")), [], (1, 1)),
    "of another class": (
        ONE,
        compute_quota(pods=1, scopes=quota_scope("PriorityClass", "In", "low")),
        [],
        (UNLIMITED, UNLIMITED),
    ),
    "of any class": (NONE, compute_quota(pods=1, scopes=quota_scope("PriorityClass")), [], (UNLIMITED, UNLIMITED)),
    "best effort": (NONE, compute_quota(pods=1, scopes=quota_scope("BestEffort")), [], (1, 1)),
    "best effort, with an overhead": (
        make_shape(250, traits=PodTraits(best_effort=True)),
        compute_quota(pods=1, scopes=quota_scope("BestEffort")),
        [],
        (1, 1),
    ),
    "best effort, and it asks for cpu": (
        ONE,
        compute_quota(pods=1, scopes=quota_scope("BestEffort")),
        [],
        (UNLIMITED, UNLIMITED),
    ),
    "what is reserved in another scope": (
        ONE,
        compute_quota(pods=3, scopes=quota_scope("NotBestEffort")),
        [(NONE, 2)],
        (3, 3),
    ),
    "without a deadline": (ONE, compute_quota(pods=1, scopes=quota_scope("NotTerminating")), [], (1, 1)),
    "with a deadline": (ONE, compute_quota(pods=1, scopes=quota_scope("Terminating")), [], (UNLIMITED, UNLIMITED)),
    "rather near pods of other namespaces": (
        replace(ONE, traits=replace(ONE.traits, names_namespaces=True)),
        compute_quota(pods=1, scopes=quota_scope("CrossNamespacePodAffinity")),
        [],
        (1, 1),
    ),
    "near pods of other namespaces": (
        replace(ONE, near=(PodTerm(PodSelector(()), namespaces=("x",)),)),
        compute_quota(pods=1, scopes=quota_scope("CrossNamespacePodAffinity")),
        [],
        (1, 1),
    ),
}


@pytest.mark.parametrize(("wanted", "limit", "reserved", "expected"), TABLE.values(), ids=TABLE)
def test_replicas_that_a_quota_lets_in(
    wanted: Shape, limit: Quota, reserved: list[tuple[Shape, int]], expected: tuple[int, int]
) -> None:
    found = quota_allowance(wanted, [limit], reserved)
    assert (found.certain, found.possible) == expected


def test_the_tightest_quota_is_named() -> None:
    found = quota_allowance(ONE, [compute_quota(pods=9), compute_quota(cpu=4000, used={"cpu": 2000})], [])
    assert (found.certain, limit_text(found.limited_by)) == (2, "quota compute in default: cpu 2 left")


def fleet_with_quotas(*quotas: Quota, **more: Any) -> Fleet:
    fleet = Fleet()
    fleet.join_cluster(joined_cluster("own-1", **more), [node_row("a", 16_000)])
    fleet.join_cluster(joined_cluster("cloud-1", "cloud"), [node_row("c", 16_000)])
    fleet.report_change("own-1", namespaces=(NamespaceFacts("default", (), quotas),))
    return fleet


def test_what_a_quota_keeps_out_goes_to_the_next_tier() -> None:
    fleet = fleet_with_quotas(compute_quota(pods=5, used={"pods": 2}))
    reply = apply_manifests(fleet, deployment(5))
    assert placed_by_cluster(reply) == {"own-1": 3, "cloud-1": 2}
    (own, _) = reply.inputs
    assert (own.certain, own.limited_by) == (3, "quota compute in default: pods 3 left")


def test_what_is_reserved_counts_until_it_is_bound() -> None:
    fleet = fleet_with_quotas(compute_quota(pods=5))
    apply_manifests(fleet, deployment(3))
    apply_manifests(fleet, deployment(4, "second"))
    assert parts_by_cluster(fleet, "second")["own-1"].replicas == 2


def test_new_nodes_do_not_widen_a_quota() -> None:
    fleet = fleet_with_quotas(compute_quota(pods=18), node_groups=(node_group(cpu=16_000, nodes_max=9),))
    wanted = make_shape(1000)
    on_nodes, on_new = fleet.state.rooms_for_waiting("own-1", wanted, fleet.now)
    assert (on_nodes.certain, on_new.certain) == (16, 2)


def test_a_quota_that_is_gone_binds_nobody() -> None:
    fleet = fleet_with_quotas(compute_quota(pods=1))
    assert fleet.state.room_in_cluster("own-1", make_shape(1000), False, fleet.now).certain == 1
    fleet.report_change("own-1", namespaces_removed=("default",))
    assert fleet.state.room_in_cluster("own-1", make_shape(1000), False, fleet.now).certain == 16


def test_a_whole_record_says_all_quotas() -> None:
    fleet = fleet_with_quotas(compute_quota(pods=1))
    fleet.report_full_block("own-1", [node_row("a", 16_000)])
    assert fleet.state.room_in_cluster("own-1", make_shape(1000), False, fleet.now).certain == 16


def test_who_waits_for_a_quota_sees_it_grow() -> None:
    fleet = fleet_with_quotas(compute_quota(pods=2))
    fleet.report_full_block("cloud-1", [])
    apply_manifests(fleet, deployment(5))
    assert parts_by_cluster(fleet)["own-1"].replicas == 2
    bound = workload_facts(parts_by_cluster(fleet)["own-1"].version, 2)
    wider = NamespaceFacts("default", (), (compute_quota(pods=9, used={"pods": 2}),))
    fleet.report_change("own-1", [node_row("a", 16_000, used=2000)], shown=(bound,), namespaces=(wider,))
    (room,) = fleet.state.rooms_for_waiting("own-1", fleet.state.workloads["default", "web"].replica_shape, fleet.now)
    assert room.certain == 7
