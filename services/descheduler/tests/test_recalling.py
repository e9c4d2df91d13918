"""From what the log says to recalls: for whom, within which bounds, until when."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from descheduler.core import recalling
from descheduler.core.choosing import TRIED_NODES_MAX
from descheduler.core.declaring import LendingRequest
from descheduler.core.losses import loss_of, recent_loss_by_controller
from descheduler.core.needs import needs_of_cluster
from descheduler.core.recalls_by_name import recall_named_nodes
from descheduler.core.rules import LendingRules
from descheduler.core.state import DeschedulerState
from spillway.addresses import LENDING_RULES, RECALLS, Tombstone
from spillway.amounts import INT64_MAX, INT64_MIN
from spillway.api_lending import RecallRequest
from spillway.columns import columns_of
from spillway.dead_letters import outgoing_record
from spillway.events import BrakeReleased, BrakeSet, CapacityNeeded, PodsScheduled, WorkloadDeclared
from spillway.events_lending import LOAN_RECALLED, LentPod, NodeLent, NodeRecalled, NodeReturned, RecallSettled
from spillway.kubernetes.term_bounds import TERMS_MAX
from spillway.model import NODE_RECALLED, Generation, PodSelector, PodTerm, Policy, Requirement, Shape

from .lending_log import (
    NOW_MS,
    OWN,
    Generations,
    capacity_reported,
    cluster_joined,
    decide_and_apply_steps,
    lending_declared,
    lent_node_row,
    lent_pod,
    node_lent,
    owned_node_row,
    pods_unschedulable,
    replace_nodes,
    shape_of_cpu,
    state_with_nodes,
)

MINUTE_MS = 60_000
BOUND_MS = LendingRules().bound_ms
POLICY = Policy((), (), "Wait")
MANIFEST = (
    b'{"kind":"Deployment","spec":{"template":{"metadata":{"labels":{"app":"web"}},'
    b'"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"1"}}}]}}}}'
)


def pods_with_unknown_shape(state: DeschedulerState, cluster: str) -> int:
    return sum(waits.pods for waits in state.view_of_cluster(cluster).pending.values() if waits.shape is None)


def decide_for_all_clusters(
    state: DeschedulerState, generations: Generations, now_ms: int = NOW_MS
) -> list[recalling.Written]:
    state.mark_all_dirty()
    return decide_and_apply_steps(state, generations, now_ms)


def recalled_nodes(events: list[recalling.Written]) -> list[str]:
    return [event.node for event in events if isinstance(event, NodeRecalled)]


def web_declared(replicas: int = 9) -> WorkloadDeclared:
    return WorkloadDeclared("default", "web", "Deployment", 1, 1, MANIFEST, replicas, POLICY, (), (), (), False)


def node_returned(node: str, epoch: int = 5, sequence: int = 2) -> NodeReturned:
    return NodeReturned(
        OWN, node, epoch, sequence, Generation(5, 1), "pool", "all", "idle", "Need", 1, 2, 3, 4, 5, 6, 1, 0, 7
    )  # fmt: skip


def test_pods_that_wait_get_the_nodes_that_they_need_and_no_more() -> None:
    state = state_with_nodes(
        [lent_node_row("n1"), lent_node_row("n2"), lent_node_row("n3")],
        pods_unschedulable("ReplicaSet/default/a", 6, shape_of_cpu()),
    )
    (first, second) = decide_for_all_clusters(state, Generations())
    assert isinstance(first, NodeRecalled)
    assert (first.cause, first.wanted_by, first.wanted_replicas) == ("Need", ("own-1/ReplicaSet/default/a",), (4,))
    assert (first.loan, first.grace_seconds, first.held_back_ms) == (Generation(5, 1), 30, 0)
    assert recalled_nodes([first, second]) == ["n1", "n2"]
    group = "ReplicaSet/default/a"
    assert state.promised[OWN] == {"n1": {group: 4}, "n2": {group: 2}}, "whom looking again leaves there"


def test_what_is_on_its_way_back_is_not_asked_for_again() -> None:
    state = state_with_nodes(
        [lent_node_row("n1"), lent_node_row("n2")], pods_unschedulable("ReplicaSet/default/a", 4, shape_of_cpu())
    )
    generations = Generations()
    assert recalled_nodes(decide_for_all_clusters(state, generations)) == ["n1"]
    assert decide_for_all_clusters(state, generations) == []
    recalled_row = replace(lent_node_row("n1"), state=NODE_RECALLED)
    replace_nodes(state, 1, recalled_row, lent_node_row("n2"))
    state.apply_event(node_lent("n1", state=LOAN_RECALLED, sequence=2))
    assert decide_for_all_clusters(state, generations) == []


def test_whom_a_node_came_back_for_may_run_there_before_the_log_says_so() -> None:
    """The row tells of the bound pod first, then the loan's end, and of the pods that wait last, if at all."""
    state, generations = (
        state_with_nodes(
            [lent_node_row("n1"), lent_node_row("n2")],
            pods_unschedulable("ReplicaSet/default/a", 1, shape_of_cpu(4000)),
        ),
        Generations(),
    )
    assert recalled_nodes(decide_for_all_clusters(state, generations)) == ["n1"]
    replace_nodes(state, 1, owned_node_row("n1", used=4000), lent_node_row("n2"))
    assert decide_for_all_clusters(state, generations) == []
    state.apply_event(node_returned("n1"))
    (settled,) = decide_for_all_clusters(state, generations)
    assert isinstance(settled, RecallSettled)
    assert decide_for_all_clusters(state, generations, NOW_MS + BOUND_MS - 1) == []
    later = decide_for_all_clusters(state, generations, NOW_MS + BOUND_MS)
    assert recalled_nodes(later) == ["n2"], "somebody else's pod took the node, and the one that waits still does"


def test_who_froze_while_collecting_makes_no_node_go_back_for_pods_that_run_since() -> None:
    state = state_with_nodes(
        [lent_node_row("n1")], pods_unschedulable("g", 1, shape_of_cpu()), PodsScheduled(OWN, "g", 9, 1)
    )
    state.apply_event(pods_unschedulable("g", 1, shape_of_cpu(), sequence=2))
    assert decide_for_all_clusters(state, Generations()) == []
    state.apply_event(replace(pods_unschedulable("g", 1, shape_of_cpu(), sequence=2), epoch=9))
    assert recalled_nodes(decide_for_all_clusters(state, Generations())) == ["n1"]


def test_a_node_that_came_back_with_less_room_does_not_keep_its_promise_for_more_than_a_moment() -> None:
    state, generations = (
        state_with_nodes(
            [lent_node_row("n1"), lent_node_row("n2")],
            pods_unschedulable("ReplicaSet/default/a", 2, shape_of_cpu(4000)),
        ),
        Generations(),
    )
    assert recalled_nodes(decide_for_all_clusters(state, generations)) == ["n1", "n2"]
    replace_nodes(state, 1, lent_node_row("n1", 2000), lent_node_row("n2"), lent_node_row("n3"))
    state.apply_event(node_lent("n3"))
    assert recalled_nodes(decide_for_all_clusters(state, generations)) == ["n3"], (
        "it is still lent, so no pod of its owner took the room"
    )


def test_a_successor_knows_for_whom_nodes_go_back() -> None:
    """What it reads are the recalls alone; pods of two sizes wait, of which each node takes some."""
    rows = [lent_node_row("n1"), lent_node_row("n2"), lent_node_row("n3")]
    waiting = pods_unschedulable("a", 2, shape_of_cpu(3000)), pods_unschedulable("b", 2, shape_of_cpu(1000))
    said = decide_for_all_clusters(state_with_nodes(rows, *waiting), Generations())
    assert len(said) == 2
    assert decide_for_all_clusters(state_with_nodes(rows, *waiting, *said), Generations(11)) == []  # type: ignore[arg-type]


def test_a_successor_knows_how_many_each_node_goes_back_for() -> None:
    """n2 takes a large one, n1 the other and all the small ones. Who filled n1 with large ones first would need n3, and
    of many nodes no other order is tried."""
    rows = [lent_node_row("n1", 8000, big="yes"), lent_node_row("n2", 3000), lent_node_row("n3", 8000, big="yes")]
    rows += [lent_node_row(f"tiny-{number}", 100) for number in range(TRIED_NODES_MAX)]
    waiting = (
        pods_unschedulable("large", 2, shape_of_cpu(3000)),
        pods_unschedulable("small", 5, shape_of_cpu(1000, node_selector=(("big", "yes"),))),
    )
    loans = node_lent("n1", lent_pod(priority=5), sequence=2), node_lent("n3", lent_pod(priority=9), sequence=2)
    said = decide_for_all_clusters(state_with_nodes(rows, *waiting, *loans), Generations())
    assert recalled_nodes(said) == ["n2", "n1"]
    read = [event for event in reversed(said) if isinstance(event, NodeRecalled)]
    assert [event.wanted_replicas for event in read] == [(1, 5), (1,)]
    assert decide_for_all_clusters(state_with_nodes(rows, *waiting, *loans, *read), Generations(11)) == []
    unnumbered = [replace(event, wanted_replicas=()) for event in read]
    assert recalled_nodes(
        decide_for_all_clusters(state_with_nodes(rows, *waiting, *loans, *unnumbered), Generations(11))
    ) == ["n3"], "as versions said"


def test_a_node_without_pods_goes_before_one_whose_pods_have_priorities_below_zero() -> None:
    """As classes for offline work have."""
    loans = [
        node_lent("n1", lent_pod(4000, priority=-10, started_ms=1)),
        node_lent("n2"),
        node_lent("n3", lent_pod(priority=-5)),
    ]
    state = state_with_nodes(
        [lent_node_row("n1"), lent_node_row("n2"), lent_node_row("n3")],
        pods_unschedulable("g", 1, shape_of_cpu(4000)),
        *loans,
    )
    assert recalled_nodes(decide_for_all_clusters(state, Generations())) == ["n2"]
    state = state_with_nodes(
        [lent_node_row("n1"), lent_node_row("n3")], pods_unschedulable("g", 1, shape_of_cpu(4000)), loans[0], loans[2]
    )
    assert recalled_nodes(decide_for_all_clusters(state, Generations())) == ["n1"], (
        "the lower priority first, however long it ran"
    )


def test_asked_for_by_name_a_node_goes_back_for_the_same_ones_still() -> None:
    state = state_with_nodes([lent_node_row("n1"), lent_node_row("n2")], pods_unschedulable("g", 3, shape_of_cpu()))
    (first,) = decide_for_all_clusters(state, Generations())
    assert isinstance(first, NodeRecalled)
    request = RecallRequest(OWN, ("n1",))
    ((event,), _) = recall_named_nodes(state, request, LendingRequest("me", Generation(9, 9), NOW_MS))
    assert isinstance(event, NodeRecalled)
    assert (event.cause, event.wanted_by, event.wanted_replicas) == ("Asked", first.wanted_by, first.wanted_replicas)


def test_pool_pods_of_a_lent_node_take_no_room_from_whom_it_goes_back_to() -> None:
    """But the owner's daemons on it do."""
    state = state_with_nodes(
        [lent_node_row("n1", used=500)],
        node_lent("n1", lent_pod(3000), sequence=2),
        pods_unschedulable("g", 1, shape_of_cpu(3500)),
    )
    assert recalled_nodes(decide_for_all_clusters(state, Generations())) == ["n1"]
    state = state_with_nodes(
        [lent_node_row("n1", used=500)],
        node_lent("n1", lent_pod(3000), sequence=2),
        pods_unschedulable("g", 1, shape_of_cpu(3600)),
    )
    assert recalled_nodes(decide_for_all_clusters(state, Generations())) == []


def test_the_need_of_a_workload_is_the_larger_never_the_sum() -> None:
    state = state_with_nodes(
        [lent_node_row("n1")],
        web_declared(),
        pods_unschedulable("default/web", 3, shape_of_cpu(), workload="default/web"),
    )
    state.apply_event(CapacityNeeded("default", "web", OWN, Generation(4, 1), replicas_lent=5, replicas_new=0))
    (need,) = needs_of_cluster(state, OWN)
    assert need.replicas == 5
    state.apply_event(CapacityNeeded("default", "web", OWN, Generation(4, 2), replicas_lent=2, replicas_new=0))
    (need,) = needs_of_cluster(state, OWN)
    assert need.replicas == 3


def test_a_promise_alone_is_a_need_as_the_template_says_it() -> None:
    """Before the first of its pods waits."""
    state = state_with_nodes([lent_node_row("n1")], web_declared())
    state.apply_event(CapacityNeeded("default", "web", OWN, Generation(4, 1), replicas_lent=2, replicas_new=0))
    (event,) = decide_for_all_clusters(state, Generations())
    assert isinstance(event, NodeRecalled)
    assert event.wanted_by == ("own-1/default/web",)


def test_pods_of_which_nobody_knows_what_they_ask_for_take_no_node_back() -> None:
    state = state_with_nodes([lent_node_row("n1")], pods_unschedulable("g", 2, None))
    assert decide_for_all_clusters(state, Generations()) == []
    assert pods_with_unknown_shape(state, OWN) == 2


def test_who_is_scheduled_needs_nothing() -> None:
    state = state_with_nodes(
        [lent_node_row("n1")], pods_unschedulable("g", 2, shape_of_cpu()), PodsScheduled(OWN, "g", 7, 2)
    )
    assert decide_for_all_clusters(state, Generations()) == []


@pytest.mark.parametrize("scope", ["fleet", f"cluster/{OWN}"])
def test_a_freeze_holds_recalls_for_needs_until_it_is_off(scope: str) -> None:
    state = state_with_nodes(
        [lent_node_row("n1")], pods_unschedulable("g", 2, shape_of_cpu()), BrakeSet(scope, "why", "me", 1)
    )
    generations = Generations()
    assert decide_for_all_clusters(state, generations) == []
    state.apply_event(BrakeReleased(scope, "me", 2))
    assert recalled_nodes(decide_for_all_clusters(state, generations)) == ["n1"]


def test_a_budget_delays_and_says_by_how_much() -> None:
    state = state_with_nodes(
        [lent_node_row("n1"), lent_node_row("n2")],
        lending_declared(recalls_per_minute=1),
        pods_unschedulable("g", 8, shape_of_cpu()),
    )
    generations = Generations()
    assert recalled_nodes(decide_for_all_clusters(state, generations)) == ["n1"]
    assert decide_for_all_clusters(state, generations, NOW_MS + 59_000) == []
    (event,) = decide_for_all_clusters(state, generations, NOW_MS + 61_000)
    assert isinstance(event, NodeRecalled)
    assert (event.node, event.held_back_ms) == ("n2", 61_000)


def test_a_budget_outlives_who_spent_it() -> None:
    """A successor that reads the log, or one that restarts, has the same minute."""
    rows = [lent_node_row(f"n{number}") for number in range(4)]
    bounded = lending_declared(recalls_per_minute=2), pods_unschedulable("g", 16, shape_of_cpu())
    said = decide_for_all_clusters(state_with_nodes(rows, *bounded), Generations())
    assert len(recalled_nodes(said)) == 2
    successor = state_with_nodes(rows, *bounded, *said)  # type: ignore[arg-type]
    assert recalled_nodes(decide_for_all_clusters(successor, Generations(11), NOW_MS + MINUTE_MS - 1)) == []
    assert len(recalled_nodes(decide_for_all_clusters(successor, Generations(11), NOW_MS + MINUTE_MS))) == 2


def test_what_a_clock_said_that_ran_ahead_keeps_no_node_from_its_owner() -> None:
    """It is set back, or another instance has the turn, whose clock is right."""
    ahead = NOW_MS + 24 * 60 * MINUTE_MS
    waiting, after = pods_unschedulable("g", 1, shape_of_cpu(4000)), node_lent("n1", loan=Generation(5, 9), sequence=9)
    said = decide_for_all_clusters(
        state_with_nodes([lent_node_row("n1")], lending_declared(recalls_per_minute=1), waiting), Generations(), ahead
    )
    over = [*said, RecallSettled(OWN, "n1", Generation(9, 2), Generation(5, 1), ahead), after]
    again = state_with_nodes([lent_node_row("n1")], lending_declared(recalls_per_minute=1), waiting, *over)  # type: ignore[arg-type]
    assert recalled_nodes(decide_for_all_clusters(again, Generations(11), NOW_MS)) == ["n1"]
    rows = [owned_node_row("n1", used=4000), lent_node_row("n2")]
    back = state_with_nodes(rows, lending_declared(recalls_per_minute=1), waiting, *over[:2], node_returned("n1"))  # type: ignore[arg-type]
    assert recalled_nodes(decide_for_all_clusters(back, Generations(11), NOW_MS)) == ["n2"], (
        "whom n1 came back for runs there long since"
    )
    asked = state_with_nodes(
        [owned_node_row("n1")], replace(lending_declared(withdrawing=True), at_ms=ahead), node_returned("n1")
    )
    assert isinstance(decide_for_all_clusters(asked, Generations(11), NOW_MS)[0], Tombstone)


def test_a_loan_that_is_over_settles_its_recall_and_another_loan_of_the_node_does_too() -> None:
    for over in (node_returned("n1"), node_lent("n1", loan=Generation(5, 9), sequence=9)):
        state = state_with_nodes([lent_node_row("n1")], pods_unschedulable("g", 1, shape_of_cpu()))
        generations = Generations()
        decide_for_all_clusters(state, generations)
        state.apply_event(PodsScheduled(OWN, "g", 7, 2))
        state.apply_event(over)
        (event,) = decide_for_all_clusters(state, generations)
        assert event == RecallSettled(OWN, "n1", Generation(9, 2), Generation(5, 1), NOW_MS)


def test_a_node_is_not_recalled_for_needs_again_and_again() -> None:
    state = state_with_nodes([lent_node_row("n1")], pods_unschedulable("g", 1, shape_of_cpu()))
    generations = Generations()
    decide_for_all_clusters(state, generations)
    state.apply_event(node_returned("n1"))
    decide_for_all_clusters(state, generations)
    state.apply_event(node_lent("n1", loan=Generation(5, 9), sequence=9))
    assert decide_for_all_clusters(state, generations, NOW_MS + 599_000) == []
    assert recalled_nodes(decide_for_all_clusters(state, generations, NOW_MS + 601_000)) == ["n1"]


def test_settled_recalls_leave_the_log() -> None:
    state = state_with_nodes([owned_node_row("n1")], node_returned("n1"))
    state.apply_event(RecallSettled(OWN, "n1", Generation(3, 1), Generation(5, 1), NOW_MS))
    assert decide_for_all_clusters(state, Generations(), NOW_MS + 3_600_000) == []
    (event,) = decide_for_all_clusters(state, Generations(), NOW_MS + 3_601_000)
    assert isinstance(event, Tombstone)
    assert (event.address.topic, event.address.key) == (RECALLS, "own-1/n1")


def running_pod(name: str, minutes: int, at_ms: int = NOW_MS) -> LentPod:
    """A pod of a controller of its own, which has run for so long."""
    return lent_pod(group=f"Job/batch/{name}", started_ms=at_ms - minutes * MINUTE_MS)


def test_who_was_evicted_is_not_the_cheapest_to_evict_again() -> None:
    """first loses 20 minutes on n1, and begins anew on n3; other, which runs for 25 by then, is the cheaper one."""
    rows = [lent_node_row("n1"), lent_node_row("n2"), lent_node_row("n3")]
    state = state_with_nodes(
        rows,
        node_lent("n1", running_pod("first", 20), sequence=2),
        node_lent("n2", running_pod("other", 21), sequence=2),
    )
    state.apply_event(node_lent("n3", lent_pod(priority=9), sequence=2))
    state.apply_event(pods_unschedulable("g", 1, shape_of_cpu(4000)))
    generations, later = Generations(), NOW_MS + 4 * MINUTE_MS
    (event,) = decide_for_all_clusters(state, generations)
    assert isinstance(event, NodeRecalled)
    assert (event.node, event.lost_by_group) == ("n1", (("Job/batch/first", 20 * 60 + 600),))
    state.apply_event(node_returned("n1"))
    (settled,) = decide_for_all_clusters(state, generations)
    assert isinstance(settled, RecallSettled)
    assert settled.lost_by_group == event.lost_by_group
    read_again = state_with_nodes(
        rows[1:], node_lent("n2", running_pod("other", 21), sequence=2),
        node_lent("n3", running_pod("first", 1, later), sequence=3),
        node_returned("n1"), settled, pods_unschedulable("g", 1, shape_of_cpu(4000)),
    )  # fmt: skip
    assert recalled_nodes(decide_for_all_clusters(read_again, Generations(11), later)) == ["n2"], (
        "as the next instance finds it in the log"
    )


OTHER = "own-2"
BUDGET = (("batch/one-at-a-time", 1),)
ASKED = NodeRecalled(OTHER, "m1", Generation(3, 4), Generation(5, 1), "Asked", (), 30, 0, "me", "", NOW_MS)


def loan_under_budget(node: str, group: str, budgets: tuple[tuple[str, int], ...] = BUDGET, **more: Any) -> NodeLent:
    return node_lent(node, lent_pod(group=group, uid=node, budgets=budgets), **{"sequence": 2, **more})


def loan_with_long_run(node: str) -> NodeLent:
    return node_lent(node, lent_pod(started_ms=NOW_MS - 600 * MINUTE_MS, uid=node), sequence=2)


def test_a_budget_that_two_controllers_share_is_spent_once() -> None:
    rows = [lent_node_row(name) for name in ("n1", "n2", "n3")]
    shared = loan_under_budget("n1", "ReplicaSet/batch/a"), loan_under_budget("n2", "ReplicaSet/batch/b")
    state = state_with_nodes(rows, *shared, loan_with_long_run("n3"), pods_unschedulable("g", 2, shape_of_cpu(4000)))
    assert recalled_nodes(decide_for_all_clusters(state, Generations())) == ["n1", "n3"]


@pytest.mark.parametrize(
    "others",
    [
        pytest.param([loan_under_budget("m1", "b", cluster=OTHER, state=LOAN_RECALLED)], id="its bridge took it"),
        pytest.param([loan_under_budget("m1", "b", cluster=OTHER), ASKED], id="a person asked for it"),
        pytest.param(
            [loan_under_budget("m1", "b", (("batch/one-at-a-time", 0),), cluster=OTHER)], id="it knows of less"
        ),
        pytest.param([loan_under_budget("n1", "a", (("batch/one-at-a-time", 0),), sequence=3)], id="newer word of it"),
        pytest.param(
            [
                loan_under_budget("n1", "a", (("batch/one-at-a-time", 0),), sequence=3),
                loan_under_budget("m1", "b", (("batch/one-at-a-time", 5),), cluster=OTHER),
            ],
            id="another knows of more",
        ),
    ],
)
def test_a_budget_that_somebody_else_has_spent_is_not_spent_again(others: list[NodeLent | NodeRecalled]) -> None:
    """A need of another owner, a person and the bridge end loans in the same pool, each at any time."""
    said = (
        loan_under_budget("n1", "a"),
        loan_under_budget("n2", "b"),
        loan_with_long_run("n3"),
        pods_unschedulable("g", 1, shape_of_cpu(4000)),
    )
    rows = [lent_node_row(name) for name in ("n1", "n2", "n3")]
    assert recalled_nodes(decide_for_all_clusters(state_with_nodes(rows, *said), Generations())) == ["n1"], (
        "while nobody has"
    )
    assert recalled_nodes(decide_for_all_clusters(state_with_nodes(rows, *said, *others), Generations())) == ["n3"]


def test_two_owners_whose_pods_wait_at_once_do_not_both_spend_a_budget() -> None:
    state = state_with_nodes(
        [lent_node_row("n1"), lent_node_row("n3")],
        loan_under_budget("n1", "a"),
        loan_with_long_run("n3"),
        pods_unschedulable("g", 1, shape_of_cpu(4000)),
    )
    state.apply_event(cluster_joined(OTHER))
    state.apply_event(capacity_reported(OTHER), columns=columns_of([lent_node_row("n1"), lent_node_row("n3")]))
    for event in (
        loan_under_budget("n1", "b"),
        loan_with_long_run("n3"),
        pods_unschedulable("g", 1, shape_of_cpu(4000)),
    ):
        state.apply_event(replace(event, cluster=OTHER))
    found = [
        (one.cluster, one.node)
        for one in decide_for_all_clusters(state, Generations())
        if isinstance(one, NodeRecalled)
    ]
    assert found == [(OWN, "n1"), (OTHER, "n3")]


def test_what_a_controller_lost_is_shared_among_its_pods_and_forgotten_after_a_while() -> None:
    state = state_with_nodes([lent_node_row("n1"), lent_node_row("n2")], node_returned("n3"))
    state.apply_event(RecallSettled(OWN, "n3", Generation(3, 1), Generation(5, 1), NOW_MS, (("Job/batch/a", 9000),)))
    state.apply_event(node_lent("n1", running_pod("a", 1), running_pod("a", 1), sequence=2))
    lately = recent_loss_by_controller(state, NOW_MS)
    assert lately == {("pool", "Job/batch/a"): 4500}
    assert loss_of(state.open_loans_by_node(OWN)["n1"], NOW_MS, lately, {}).core_seconds == 2 * (60 + 4500)
    assert recent_loss_by_controller(state, NOW_MS + 60 * MINUTE_MS) == {}


def test_withdrawn_lending_recalls_all_whatever_is_frozen_then_nothing_is_declared() -> None:
    state = state_with_nodes(
        [lent_node_row("n1"), lent_node_row("n2")],
        lending_declared(withdrawing=True),
        BrakeSet("fleet", "why", "me", 1),
    )
    generations = Generations()
    events = decide_for_all_clusters(state, generations)
    assert recalled_nodes(events) == ["n1", "n2"]
    assert {event.cause for event in events if isinstance(event, NodeRecalled)} == {"Asked"}
    for node in ("n1", "n2"):
        state.apply_event(node_returned(node))
    replace_nodes(state, 1, owned_node_row("n1"), owned_node_row("n2"))
    *_, last = decide_for_all_clusters(state, generations)
    assert isinstance(last, Tombstone)
    assert last.address.topic is LENDING_RULES
    assert OWN not in state.declared


def test_what_is_declared_stays_while_a_node_is_seen_with_our_mark_though_no_loan_is_known() -> None:
    """It was being checked as lending was withdrawn: without a declaration no bridge would take the mark away."""
    state = state_with_nodes([lent_node_row("n1")], lending_declared(withdrawing=True), node_returned("n1"))
    assert not any(isinstance(event, Tombstone) for event in decide_for_all_clusters(state, Generations()))
    assert OWN in state.declared
    replace_nodes(state, 1, owned_node_row("n1"))
    assert any(isinstance(event, Tombstone) for event in decide_for_all_clusters(state, Generations()))
    assert OWN not in state.declared


def test_what_is_declared_stays_for_a_moment_since_a_node_may_be_marked_just_then() -> None:
    state = state_with_nodes([owned_node_row("n1")], replace(lending_declared(withdrawing=True), at_ms=NOW_MS - 4_999))
    assert decide_for_all_clusters(state, Generations()) == []
    state = state_with_nodes([owned_node_row("n1")], replace(lending_declared(withdrawing=True), at_ms=NOW_MS - 5_000))
    assert [type(event) for event in decide_for_all_clusters(state, Generations())] == [Tombstone]


def test_what_is_old_changes_nothing() -> None:
    state = state_with_nodes(
        [lent_node_row("n1")], node_lent("n1", lent_pod(), sequence=7), node_lent("n1", sequence=6)
    )
    assert len(state.open_loans_by_node(OWN)["n1"].pods) == 1
    state.apply_event(cluster_joined(OWN))
    state.apply_tombstone("spillway.lending.v1", f"{OWN}/n1")
    assert state.open_loans_by_node(OWN) == {}


def test_a_shape_is_what_the_cluster_binds_its_volume_to() -> None:
    """Without a claim that is known the need is as it was said."""
    wanted: Shape = shape_of_cpu(volume_claims=("data",))
    state = state_with_nodes([lent_node_row("n1")], pods_unschedulable("g", 1, wanted))
    (need,) = needs_of_cluster(state, OWN)
    assert need.shape == wanted


def test_no_node_goes_back_for_a_shape_of_more_terms_than_are_compared_in_a_moment() -> None:
    """A log may hold one from before snapshot bounded them. The pods count as such of which nothing is known."""
    term = PodTerm(PodSelector((Requirement("app", "In", ("db",)),)))
    most, beyond = shape_of_cpu(apart=(term,) * TERMS_MAX), shape_of_cpu(apart=(term,) * (TERMS_MAX + 1))
    state = state_with_nodes([lent_node_row("n1"), lent_node_row("n2")], pods_unschedulable("g", 3, beyond))
    assert (needs_of_cluster(state, OWN), pods_with_unknown_shape(state, OWN)) == ([], 3)
    assert decide_for_all_clusters(state, Generations()) == []
    state.apply_event(pods_unschedulable("g", 3, most, sequence=2))
    assert pods_with_unknown_shape(state, OWN) == 0
    assert recalled_nodes(decide_for_all_clusters(state, Generations())) == ["n1"]


ANY = st.integers(INT64_MIN, INT64_MAX)


@given(st.lists(st.tuples(ANY, ANY, st.sampled_from(["", "Job/batch/a", "Job/batch/b"])), min_size=1, max_size=4))
def test_every_recall_can_be_written_whatever_amounts_and_times_a_member_told(pods: list[tuple[int, int, str]]) -> None:
    """One pod of 9P cores that began in 1970 kept the descheduler from recalling any node of anybody."""
    told = [lent_pod(cpu, started_ms=began, group=group, uid=str(n)) for n, (cpu, began, group) in enumerate(pods)]
    state = state_with_nodes(
        [lent_node_row("n1"), lent_node_row("n2")],
        node_lent("n1", *told),
        node_lent("n2", *told),
        pods_unschedulable("Job/default/x", 8, shape_of_cpu()),
    )
    generations = Generations()
    events = decide_for_all_clusters(state, generations)
    assert sorted(recalled_nodes(events)) == ["n1", "n2"]
    for node in ("n1", "n2"):
        state.apply_event(NodeReturned(OWN, node, 5, 9, Generation(5, 1), "pool", "all", "idle", "", *[0] * 9))
    events += decide_for_all_clusters(state, generations)
    assert any(isinstance(event, RecallSettled) for event in events)
    for event in events:
        outgoing_record(event)


def test_a_loss_beyond_64_bits_is_told_as_the_most_that_they_hold() -> None:
    greedy = lent_pod(INT64_MAX, started_ms=1)
    state = state_with_nodes(
        [lent_node_row("n1")], node_lent("n1", greedy), pods_unschedulable("Job/default/x", 4, shape_of_cpu())
    )
    (event,) = decide_for_all_clusters(state, Generations())
    assert isinstance(event, NodeRecalled)
    assert event.lost_by_group == (("Job/batch/train", INT64_MAX),)
