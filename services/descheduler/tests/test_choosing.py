"""Which lent nodes go back: few, cheap, and none that would not help."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from descheduler.core.choosing import NEEDS_LEAST, LentNodes, choose_nodes
from descheduler.core.losses import BudgetedPods, ReturnLoss
from descheduler.core.needs import PendingNeed
from spillway.columns import columns_of
from spillway.feasibility.nodes import ClusterNodes
from spillway.model import HOSTNAME_LABEL, NodeRow, PodSelector, PodTerm, Requirement, Shape, Taint

from .lending_log import owned_node_row, shape_of_cpu

NOTHING = ReturnLoss(breaks_budget=False, priority=0, core_seconds=0, deletion_cost=0)
LONG_RUN = ReturnLoss(breaks_budget=False, priority=0, core_seconds=900_000, deletion_cost=0)
LIMIT = 100


def cluster_nodes_of_rows(*rows: NodeRow) -> ClusterNodes:
    nodes = ClusterNodes()
    nodes.upsert_nodes(columns_of(rows), 0)
    return nodes


def chosen_node_names(
    needs: list[PendingNeed], rows: list[NodeRow], losses: dict[str, ReturnLoss] | None = None
) -> list[str]:
    """Of nodes whose name begins with l, all that are lent."""
    found = losses or {row.name: NOTHING for row in rows if row.name.startswith("l")}
    return sorted(choose_nodes(needs, cluster_nodes_of_rows(*rows), LentNodes(found, 100, LIMIT)).nodes)


def test_what_fits_free_nodes_needs_no_recall() -> None:
    assert (
        chosen_node_names([PendingNeed("a", shape_of_cpu(1000), 4)], [owned_node_row("free"), owned_node_row("l1")])
        == []
    )


def test_only_what_does_not_fit_is_recalled_for() -> None:
    assert chosen_node_names(
        [PendingNeed("a", shape_of_cpu(1000), 6)], [owned_node_row("free"), owned_node_row("l1"), owned_node_row("l2")]
    ) == ["l1"]


@pytest.mark.parametrize(
    "need",
    [
        PendingNeed("too large", shape_of_cpu(5000), 2),
        PendingNeed("elsewhere", shape_of_cpu(1000, node_selector=(("disk", "ssd"),)), 2),
        PendingNeed("unknown resource", Shape("default", (("cpu", 1), ("gpu", 1), ("pods", 1))), 2),
    ],
    ids=lambda need: need.name,
)
def test_no_node_goes_back_for_pods_that_it_would_not_take(need: PendingNeed) -> None:
    assert chosen_node_names([need], [owned_node_row("l1"), owned_node_row("l2")]) == []


def test_a_taint_that_people_set_keeps_its_node_lent() -> None:
    tainted = owned_node_row("l1")
    row = NodeRow("l1", tainted.allocatable, {}, tainted.labels, (Taint("team", "a", "NoSchedule"),))
    assert chosen_node_names([PendingNeed("a", shape_of_cpu(), 1)], [row, owned_node_row("l2")]) == ["l2"]


def test_the_one_node_that_takes_all_is_better_than_two() -> None:
    assert chosen_node_names(
        [PendingNeed("a", shape_of_cpu(1000), 8)],
        [owned_node_row("l1"), owned_node_row("l2"), owned_node_row("l3", 8000)],
    ) == ["l3"]


@pytest.mark.parametrize(
    ("dear", "cheap"),
    [
        (ReturnLoss(True, 0, 0, 0), ReturnLoss(False, 1000, 900_000, 9)),
        (ReturnLoss(False, 10, 0, 0), ReturnLoss(False, 0, 900_000, 9)),
        (ReturnLoss(False, 0, 5000, 0), ReturnLoss(False, 0, 10, 9)),
        (ReturnLoss(False, 0, 10, 7), ReturnLoss(False, 0, 10, 2)),
    ],
    ids=["disruption budget", "priority", "run time and size", "deletion cost"],
)
def test_the_least_lost_work_goes(dear: ReturnLoss, cheap: ReturnLoss) -> None:
    for losses in ({"l1": dear, "l2": cheap}, {"l1": cheap, "l2": dear}):
        expected = [name for name, loss in losses.items() if loss is cheap]
        assert (
            chosen_node_names(
                [PendingNeed("a", shape_of_cpu(), 1)], [owned_node_row("l1"), owned_node_row("l2")], losses
            )
            == expected
        )


def test_what_a_budget_allows_is_spent_once_over_all_nodes() -> None:
    """Each of four nodes has one pod of a controller of which one may go: what runs elsewhere for long goes first."""
    small = replace(NOTHING, bounded=(BudgetedPods("pool/ReplicaSet/batch/a", 1, 1),))
    losses = {f"l{number}": small for number in range(4)} | {f"l{number}": LONG_RUN for number in range(4, 8)}
    rows = [owned_node_row(name) for name in losses]
    assert chosen_node_names([PendingNeed("a", shape_of_cpu(4000), 1)], rows, losses) == ["l0"]
    assert chosen_node_names([PendingNeed("a", shape_of_cpu(4000), 5)], rows, losses) == ["l0", "l4", "l5", "l6", "l7"]
    assert len(chosen_node_names([PendingNeed("a", shape_of_cpu(4000), 8)], rows, losses)) == 8, (
        "who waits has them all the same"
    )


def test_each_need_takes_its_share_of_one_node() -> None:
    needs = [PendingNeed("a", shape_of_cpu(1000), 2), PendingNeed("b", shape_of_cpu(2000), 1)]
    choice = choose_nodes(
        needs,
        cluster_nodes_of_rows(owned_node_row("l1"), owned_node_row("l2")),
        LentNodes({"l1": NOTHING, "l2": NOTHING}, 100, LIMIT),
    )
    assert list(choice.nodes.values()) == [{"a": 2, "b": 1}]
    assert choice.unmet == 0


def test_replicas_that_keep_apart_get_a_node_each() -> None:
    apart = PodTerm(PodSelector((Requirement("app", "In", ("web",)),)), own=True, topology_key=HOSTNAME_LABEL)
    need = PendingNeed("a", shape_of_cpu(1000, apart=(apart,)), 2)
    assert chosen_node_names([need], [owned_node_row("l1"), owned_node_row("l2"), owned_node_row("l3")]) == ["l1", "l2"]


def test_no_more_go_back_to_a_zone_than_may_be_there() -> None:
    """One replica a zone: a second node of it would help nobody."""
    apart = PodTerm(PodSelector((Requirement("app", "In", ("web",)),)), own=True, topology_key="zone")
    rows = [owned_node_row("l1", zone="a"), owned_node_row("l2", zone="a"), owned_node_row("l3", zone="b")]
    found = chosen_node_names([PendingNeed("a", shape_of_cpu(1000, apart=(apart,)), 3)], rows)
    assert len(found) == 2
    assert "l3" in found


def test_at_most_so_many_as_the_step_may() -> None:
    losses = {f"l{n}": NOTHING for n in range(4)}
    nodes = cluster_nodes_of_rows(*(owned_node_row(name) for name in losses))
    assert len(choose_nodes([PendingNeed("a", shape_of_cpu(4000), 4)], nodes, LentNodes(losses, 100, 3)).nodes) == 3


# ── Against an exact solver ─────────────────────────────────────────────────────────────────────────────────────────


def test_of_very_many_needs_and_nodes_one_look_takes_some_and_the_next_look_the_others() -> None:
    """To compare 50,000 nodes with 2,000 waiting groups takes 80 s by calculation, and all other clusters wait."""
    needs = [PendingNeed(f"n{index:02}", shape_of_cpu(4000), 1) for index in range(NEEDS_LEAST + 5)]
    rows = [owned_node_row(f"l{index:02}") for index in range(NEEDS_LEAST + 5)]
    nodes = cluster_nodes_of_rows(*rows)
    lent = LentNodes({row.name: NOTHING for row in rows}, 100, LIMIT)
    first = choose_nodes(needs, nodes, lent, compared_max=1)
    assert (len(first.nodes), first.unmet) == (NEEDS_LEAST, 5)
    met = {need for replicas in first.nodes.values() for need in replicas}
    second = choose_nodes([need for need in needs if need.name not in met], nodes, lent, compared_max=1)
    assert (len(second.nodes), second.unmet) == (5, 0)


def test_needs_for_which_nodes_come_back_are_looked_at_first() -> None:
    """Otherwise the node would be free for others, and be recalled for nothing."""
    needs = [PendingNeed(f"n{index:02}", shape_of_cpu(4000), 1) for index in range(NEEDS_LEAST + 1)]
    rows = [owned_node_row("back"), *(owned_node_row(f"l{index:02}") for index in range(NEEDS_LEAST + 1))]
    losses = {row.name: NOTHING for row in rows[1:]}
    lent = LentNodes(losses, 100, LIMIT, promised={"back": {needs[-1].name: 1}})
    chosen = choose_nodes(needs, cluster_nodes_of_rows(*rows), lent, compared_max=1)
    assert len(chosen.nodes) == NEEDS_LEAST - 1
    assert needs[-1].name not in {need for replicas in chosen.nodes.values() for need in replicas}


def test_needs_that_no_node_can_meet_keep_no_other_need_from_being_looked_at() -> None:
    larger = [PendingNeed(f"larger{index:02}", shape_of_cpu(9000), 1) for index in range(NEEDS_LEAST)]
    nodes = cluster_nodes_of_rows(owned_node_row("l1"))
    chosen = choose_nodes(
        [*larger, PendingNeed("a", shape_of_cpu(1000), 1)], nodes, LentNodes({"l1": NOTHING}, 100, 9), 1
    )
    assert list(chosen.nodes) == ["l1"]


def can_pack_pods(pods: tuple[int, ...], rooms: tuple[int, ...], seen: dict[object, bool]) -> bool:
    """Whether pods of these milli-cores, largest first, fit nodes with so much room: all ways are tried."""
    if not pods:
        return True
    key = pods, rooms
    if key not in seen:
        seen[key] = sum(pods) <= sum(rooms) and any(
            can_pack_pods(pods[1:], tuple(sorted((*rooms[:at], room - pods[0], *rooms[at + 1 :]))), seen)
            for at, room in enumerate(rooms)
            if room >= pods[0] and room not in rooms[:at]
        )
    return seen[key]


def fewest_lent_nodes(pods: tuple[int, ...], free: tuple[int, ...], lent: tuple[int, ...]) -> int:
    """The fewest lent nodes with which all pods run; more than there are when none of them do."""
    for count in range(len(lent) + 1):
        seen: dict[object, bool] = {}
        if any(can_pack_pods(pods, tuple(sorted((*free, *some))), seen) for some in set(combinations(lent, count))):
            return count
    return len(lent) + 1


Groups = list[tuple[int, int]]
"""Milli-cores of one pod, and how many of them wait."""


def nodes_beyond_the_fewest(groups: Groups, lent: list[int], free: list[int]) -> int | None:
    """How many nodes more go back than need to; None: not all pods that wait run. Each that goes back has a pod, and
    looking again finds the same."""
    needs = [PendingNeed(f"g{index}", shape_of_cpu(cpu), pods) for index, (cpu, pods) in enumerate(groups)]
    rows = [owned_node_row(f"l{index}", cpu) for index, cpu in enumerate(lent)]
    rows += [owned_node_row(f"free{index}", cpu) for index, cpu in enumerate(free)]
    losses = {f"l{index}": NOTHING for index in range(len(lent))}
    nodes = cluster_nodes_of_rows(*rows)
    choice = choose_nodes(needs, nodes, LentNodes(losses, 100, LIMIT))
    assert all(sum(taken.values()) > 0 for taken in choice.nodes.values())
    rest = {name: loss for name, loss in losses.items() if name not in choice.nodes}
    again = choose_nodes(needs, nodes, LentNodes(rest, 100, LIMIT, promised=choice.nodes))
    assert again.nodes == {}, "looking again finds the same"
    if choice.unmet:
        return None
    pods = tuple(sorted((cpu for cpu, count in groups for _ in range(count)), reverse=True))
    return len(choice.nodes) - fewest_lent_nodes(pods, tuple(free), tuple(sorted(lent)))


@given(
    groups=st.lists(st.tuples(st.integers(1, 40).map(lambda n: n * 100), st.integers(1, 4)), min_size=1, max_size=3),
    lent=st.lists(st.sampled_from([1000, 2000, 3000, 4000, 6000, 8000]), min_size=1, max_size=12),
    free=st.lists(st.sampled_from([500, 1000, 2000]), max_size=2),
)
def test_within_one_node_of_the_fewest_and_each_has_a_pod(groups: Groups, lent: list[int], free: list[int]) -> None:
    beyond = nodes_beyond_the_fewest(groups, lent, free)
    assert beyond is None or beyond <= 1


@pytest.mark.parametrize(
    ("groups", "lent", "free"),
    [
        ([(2600, 2), (2600, 3), (2400, 4)], [7400, 3800, 3300, 3300, 7500, 3800, 3800], [2000]),
        ([(2600, 4), (3800, 3), (2600, 2)], [4600, 6100, 2700, 2700, 6100, 2700, 2700, 4600, 4600], []),
        ([(2900, 4), (1900, 2), (1900, 4)], [3000, 3000, 7000, 3000, 2400, 2400, 2400, 6700], [500, 2000]),
        ([(2200, 4), (2800, 2), (100, 2)], [4900, 4900, 1900, 2800, 2800, 3100, 3100], [2000]),
    ],
)
def test_smaller_pods_first_where_they_fill_a_node_better(groups: Groups, lent: list[int], free: list[int]) -> None:
    """With larger ones first two nodes more went back than need to."""
    beyond = nodes_beyond_the_fewest(groups, lent, free)
    assert beyond is not None
    assert beyond <= 1
