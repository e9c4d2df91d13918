"""What people declare, ask back and read: what is refused, what changes, and what is said again."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from descheduler.core import declaring, idle_report, recalling, recalls_by_name
from descheduler.core.declaring import LendingRequest
from descheduler.core.state import DeschedulerState
from spillway import api_lending as lending
from spillway.amounts import INT64_MAX
from spillway.api import RequestError
from spillway.events import ClusterLeft
from spillway.events_lending import LendingDeclared, LendingRule, NodeRecalled, NodeUsed
from spillway.model import NODE_RECALLED, Generation, Requirement
from spillway.v1 import lending_pb2
from spillway.wire import fill_message

from .lending_log import (
    NOW_MS,
    OWN,
    POOL,
    Generations,
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

HOUR_MS = 3_600_000
A_WORD = "letters, digits, '-', '_' and '.', at most 63"


def with_events_applied(decide: Callable[..., tuple[Sequence[Any], Any]]) -> Callable[..., tuple[Sequence[Any], Any]]:
    """Decides on a request and applies what was decided, as the queue of requests does."""

    def decide_and_apply(state: DeschedulerState, *request: Any) -> tuple[Sequence[Any], Any]:
        events, reply = decide(state, *request)
        recalling.apply_events(state, events)
        return events, reply

    return decide_and_apply


declare, withdraw, pause, resume, ask_back = map(
    with_events_applied,
    (
        declaring.declare_lending,
        declaring.withdraw_lending,
        declaring.pause_lending,
        declaring.resume_lending,
        recalls_by_name.recall_named_nodes,
    ),
)


def lending_request(sequence: int = 1) -> LendingRequest:
    return LendingRequest("me", Generation(9, sequence), NOW_MS)


def lending_rule(**more: Any) -> LendingRule:
    values = {"name": "all", "nodes": (), "supply_class": "", "share_percent": 0, "reserve_nodes": 0}
    return LendingRule(**{**values, "idle_seconds": 0, "cost_per_hour": 0.0, **more})


def declare_lending_request(**more: Any) -> lending.DeclareLendingRequest:
    return lending.DeclareLendingRequest(**{"cluster": OWN, "pool": POOL, "rules": (lending_rule(),), **more})


def test_what_is_left_out_is_as_documented() -> None:
    state = state_with_nodes([owned_node_row("n1")])
    events, reply = declare(state, declare_lending_request(), lending_request())
    (event,) = events
    assert isinstance(event, LendingDeclared)
    assert (event.grace_seconds, event.cooldown_seconds, event.recalls_per_minute) == (30, 1800, 0)
    assert event.rules == (LendingRule("all", (), "idle", 100, 0, 600, 0.0),)
    assert (reply.clusters[0].changed, reply.clusters[0].nodes, reply.clusters[0].by) == (True, 1, "me")


def test_nodes_that_are_checked_are_told_from_those_that_are_lent_or_on_their_way_back() -> None:
    back = replace(lent_node_row("n3"), state=NODE_RECALLED)
    state = state_with_nodes([lent_node_row("n1"), owned_node_row("n2"), back], lending_declared())
    replace_nodes(state, 1, lent_node_row("n1"), lent_node_row("n2"), back, lent_node_row("n4"))
    (shown,) = declaring.list_declared(state, lending.ListLendingRequest()).clusters
    assert (shown.nodes_lent + shown.nodes_recalled, shown.nodes_checking) == (2, 2)


def test_a_dedicated_class_is_idle_at_once() -> None:
    events, _ = declare(
        state_with_nodes([]),
        declare_lending_request(rules=(lending_rule(supply_class="dedicated"),)),
        lending_request(),
    )
    assert isinstance(events[0], LendingDeclared)
    assert events[0].rules[0].idle_seconds == 0


def test_declared_again_nothing_changes() -> None:
    state = state_with_nodes([])
    declare(state, declare_lending_request(), lending_request())
    events, reply = declare(state, declare_lending_request(), lending_request(2))
    assert (events, reply.clusters[0].changed) == ((), False)


def test_rules_that_are_too_long_together_for_one_record_are_refused_with_their_size() -> None:
    """Each is within its own bounds."""
    values = tuple(f"{number:063}" for number in range(declaring.VALUES_MAX))
    nodes = tuple(Requirement(f"disk-{number}", "In", values) for number in range(4))
    rules = tuple(lending_rule(name=f"rule-{number}", nodes=nodes) for number in range(5))
    state = state_with_nodes([])
    declare(state, declare_lending_request(rules=rules[:4]), lending_request())
    before = state.declared[OWN]
    with pytest.raises(RequestError, match=r"rules: '3\d{5} bytes': expected at most 262144 bytes of names, keys and"):
        declare(state, declare_lending_request(rules=rules), lending_request(2))
    assert state.declared[OWN] == before


@pytest.mark.parametrize("reason", ["x" * 501, "two\nlines"])
def test_a_reason_is_one_line_of_bounded_length(reason: str) -> None:
    state = state_with_nodes([owned_node_row("n1")])
    declare(state, declare_lending_request(), lending_request())
    asks = (
        lambda: pause(state, lending.PauseLendingRequest(OWN, reason), lending_request(2)),
        lambda: withdraw(state, lending.WithdrawLendingRequest(OWN, reason), lending_request(2)),
        lambda: ask_back(state, lending.RecallRequest(cluster=OWN, reason=reason), lending_request(2)),
    )
    for ask in asks:
        with pytest.raises(RequestError, match=r"reason: .*: expected printable characters in one line, at most 500"):
            ask()


def test_a_plan_keeps_nothing() -> None:
    state = state_with_nodes([])
    events, reply = declare(state, declare_lending_request(plan_only=True), lending_request())
    assert (events, reply.clusters[0].changed, state.declared) == ((), True, {})


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"cluster": ""}, "cluster: '': expected the name of a cluster"),
        ({"pool": "nowhere"}, "pool nowhere: no cluster of this name has joined"),
        ({"pool": OWN}, "pool: 'own-1': expected a cluster other than the owner"),
        ({"rules": ()}, "rules: 0: expected 1 to 64 rules"),
        ({"grace_seconds": -1}, "grace_seconds: -1: expected 0 to 86400"),
        ({"rules": (lending_rule(), lending_rule())}, "rules[1].name: 'all': expected a name that no other rule has"),
        ({"rules": (lending_rule(share_percent=101),)}, "rules[0].share_percent: 101: expected 0 to 100; 0 is 100"),
        (
            {"rules": (lending_rule(supply_class="cloud"),)},
            "rules[0].supply_class: 'cloud': expected idle or dedicated",
        ),
        (
            {"rules": (lending_rule(cost_per_hour=float("nan")),)},
            "rules[0].cost_per_hour: nan: expected 0 or more, and finite",
        ),
        (
            {"rules": (lending_rule(cost_per_hour=float("inf")),)},
            "rules[0].cost_per_hour: inf: expected 0 or more, and finite",
        ),
        (
            {"rules": (lending_rule(nodes=(Requirement("a", "Is", ("b",)),)),)},
            "rules[0].nodes[0].operator: 'Is': expected one of In, NotIn, Exists, DoesNotExist, Gt, Lt",
        ),
        ({"grace_seconds": 10**9}, "grace_seconds: 1000000000: expected 0 to 86400"),
        ({"cooldown_seconds": 10**9}, "cooldown_seconds: 1000000000: expected 0 to 2592000"),
        ({"rules": (lending_rule(idle_seconds=2**30),)}, "rules[0].idle_seconds: 1073741824: expected 0 to 2592000"),
        (
            {"cluster": "x" * 100_000},
            f"cluster: '{'x' * 119}…: expected the name of a cluster",
        ),
        (
            {"rules": (lending_rule(name="x" * 100_000),)},
            f"rules[0].name: '{'x' * 119}…: expected printable characters in one line, at most 253",
        ),
        (
            {"rules": (lending_rule(name="two\nlines"),)},
            "rules[0].name: 'two\\nlines': expected printable characters in one line, at most 253",
        ),
        (
            {"rules": (lending_rule(nodes=(Requirement("a", "Exists", ()),) * 65),)},
            "rules[0].nodes: 65: expected at most 64 requirements",
        ),
        (
            {"rules": (lending_rule(nodes=(Requirement("a", "In", ("b",) * 257),)),)},
            "rules[0].nodes[0].values: 257: expected at most 256 values",
        ),
        (
            {"rules": (lending_rule(nodes=(Requirement("a", "Gt", ("1", "2")),)),)},
            "rules[0].nodes[0].values: ('1', '2'): expected one integer",
        ),
        (
            {"rules": (lending_rule(nodes=(Requirement("a", "Lt", ("٣",)),)),)},
            "rules[0].nodes[0].values: ('٣',): expected one integer",
        ),
        (
            {"rules": (lending_rule(nodes=(Requirement("no label!", "Exists", ()),)),)},
            f"rules[0].nodes[0].key: 'no label!': expected a label's key: {A_WORD}, or such behind a domain and '/'",
        ),
        (
            {"rules": (lending_rule(nodes=(Requirement("a", "In", ("b", "no value!")),)),)},
            f"rules[0].nodes[0].values[1]: 'no value!': expected a label's value: {A_WORD}, or none",
        ),
    ],
)
def test_what_is_wrong_is_named(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(RequestError) as error:
        declare(state_with_nodes([]), declare_lending_request(**wrong), lending_request())
    assert error.value.text == text


def test_paused_and_resumed_and_each_only_once() -> None:
    state = state_with_nodes([], lending_declared())
    events, reply = pause(state, lending.PauseLendingRequest("", "holiday"), lending_request())
    assert (len(events), reply.clusters[0].paused, reply.clusters[0].reason) == (1, True, "holiday")
    assert pause(state, lending.PauseLendingRequest(OWN), lending_request(2))[0] == ()
    events, reply = resume(state, lending.ResumeLendingRequest(OWN), lending_request(3))
    assert (len(events), reply.clusters[0].paused) == (1, False)


def test_a_pause_outlives_what_is_declared_anew() -> None:
    state = state_with_nodes([], lending_declared())
    pause(state, lending.PauseLendingRequest(), lending_request())
    declare(state, declare_lending_request(grace_seconds=5), lending_request(2))
    assert state.declared[OWN].paused


def test_while_it_is_withdrawn_nothing_is_declared() -> None:
    state = state_with_nodes([lent_node_row("n1")], lending_declared())
    withdraw(state, lending.WithdrawLendingRequest(OWN, "sold"), lending_request())
    with pytest.raises(RequestError, match="is being withdrawn"):
        declare(state, declare_lending_request(), lending_request(2))


@pytest.mark.parametrize("seconds", [-1, 10**9])
def test_a_node_is_not_asked_back_with_any_grace(seconds: int) -> None:
    state = state_with_nodes([lent_node_row("n1")], lending_declared())
    with pytest.raises(RequestError) as error:
        ask_back(state, lending.RecallRequest(OWN, ("n1",), seconds), lending_request())
    assert error.value.text == f"grace_seconds: {seconds}: expected 0 to 86400; 0 is the cluster's"


def test_nodes_go_back_by_name_or_all_and_again_changes_nothing() -> None:
    state = state_with_nodes([lent_node_row("n1"), lent_node_row("n2")], lending_declared())
    events, reply = ask_back(state, lending.RecallRequest(OWN, ("n2",), 5, "sold"), lending_request())
    (event,) = events
    assert isinstance(event, NodeRecalled)
    assert (event.node, event.cause, event.grace_seconds, event.by) == ("n2", "Asked", 5, "me")
    assert [(node.node, node.state, node.cause) for node in reply.nodes] == [("n2", "Recalled", "Asked")]
    _, reply = ask_back(state, lending.RecallRequest(OWN, ("n2",)), lending_request(2))
    assert reply.changed == 0
    _, reply = ask_back(state, lending.RecallRequest(OWN), lending_request(3))
    assert (reply.changed, len(reply.nodes)) == (1, 2)


def test_a_recall_for_a_need_becomes_one_by_name_that_no_freeze_holds() -> None:
    state = state_with_nodes([lent_node_row("n1")], pods_unschedulable("g", 1, shape_of_cpu()))
    state.mark_all_dirty()
    decide_and_apply_steps(state, Generations(8), NOW_MS)
    events, reply = ask_back(state, lending.RecallRequest(OWN, ("n1",)), lending_request())
    assert (len(events), reply.nodes[0].cause) == (1, "Asked")


def test_a_node_that_is_not_lent_is_named_and_a_plan_recalls_none() -> None:
    state = state_with_nodes([lent_node_row("n1"), owned_node_row("n2")])
    with pytest.raises(RequestError, match="nodes: cluster own-1 has not lent n2"):
        ask_back(state, lending.RecallRequest(OWN, ("n1", "n2")), lending_request())
    events, reply = ask_back(state, lending.RecallRequest(OWN, plan_only=True), lending_request())
    assert (events, reply.changed, list(state.open_recalls())) == ((), 1, [])


def test_a_cluster_that_is_not_known_is_named_with_those_that_are() -> None:
    state = state_with_nodes([lent_node_row("n1"), owned_node_row("n2")])
    expected = "no cluster of this name has joined; expected one of own-1, pool"
    asks = {
        "cluster": [
            lambda: ask_back(state, lending.RecallRequest("nosuch"), lending_request()),
            lambda: ask_back(state, lending.RecallRequest("nosuch", plan_only=True), lending_request()),
            lambda: recalls_by_name.list_lent(state, lending.ListLentRequest("nosuch")),
            lambda: idle_report.make_idle_report(state, lending.IdleReportRequest("nosuch"), NOW_MS),
        ],
        "pool": [lambda: recalls_by_name.list_lent(state, lending.ListLentRequest(pool="nosuch"))],
    }
    for field, calls in asks.items():
        for call in calls:
            with pytest.raises(RequestError) as error:
                call()
            assert (error.value.code, error.value.text) == ("NOT_FOUND", f"{field} nosuch: {expected}")


def test_of_a_cluster_that_has_left_what_it_lends_still_can_be_asked_back() -> None:
    state = state_with_nodes([lent_node_row("n1")])
    for cluster in (OWN, POOL):
        state.apply_event(ClusterLeft(cluster))
    assert ask_back(state, lending.RecallRequest(OWN, plan_only=True), lending_request())[1].changed == 1
    assert len(recalls_by_name.list_lent(state, lending.ListLentRequest(OWN, POOL)).nodes) == 1


def test_nodes_that_are_not_lent_are_named_with_those_that_are() -> None:
    state = state_with_nodes([lent_node_row("n1"), owned_node_row("n2")])
    with pytest.raises(RequestError) as error:
        ask_back(state, lending.RecallRequest(OWN, ("n2", "nosuch")), lending_request())
    assert error.value.text == "nodes: cluster own-1 has not lent n2, nosuch; expected nodes that it has lent: n1"
    with pytest.raises(RequestError, match="cluster own-1 has not lent n2; it has lent none"):
        ask_back(state_with_nodes([owned_node_row("n2")]), lending.RecallRequest(OWN, ("n2",)), lending_request())


def test_lent_nodes_come_a_page_at_a_time() -> None:
    state = state_with_nodes(
        [lent_node_row(f"n{n}") for n in range(5)], node_lent("n1", lent_pod(), lent_pod(), sequence=2)
    )
    seen, token = [], ""
    while True:
        page = recalls_by_name.list_lent(state, lending.ListLentRequest(page_size=2, page_token=token))
        seen += [(node.node, node.pods) for node in page.nodes]
        token = page.next_page_token
        if not token:
            break
    assert seen == [("n0", 0), ("n1", 2), ("n2", 0), ("n3", 0), ("n4", 0)]


def node_used(
    node: str, hour: int, *, idle: int, pods: int = 0, cores: int = 4, last_pod: int = 0, use: int = -1
) -> NodeUsed:
    start = NOW_MS - (72 - hour) * HOUR_MS
    cpu = (("cpu", cores * 1000),)
    return NodeUsed(
        OWN, node, 5, hour, start, start + HOUR_MS, "all", cpu, (("cpu", pods * 500),),
        (), (("cpu", use),) if use >= 0 else (), pods, NOW_MS - last_pod * HOUR_MS if last_pod else 0, idle * 60_000, 0,
    )  # fmt: skip


def test_idle_nodes_are_told_apart_most_idle_cores_first() -> None:
    state = state_with_nodes([])
    for hour in range(10, 70):
        state.apply_event(node_used("forgotten", hour, idle=60, cores=8, use=10))
        state.apply_event(node_used("left", hour, idle=60 if hour > 30 else 0, pods=0 if hour > 30 else 3, last_pod=40))
        state.apply_event(node_used("buffer", hour, idle=40, pods=2, last_pod=1))
        state.apply_event(node_used("busy", hour, idle=0, pods=9))
    report = idle_report.make_idle_report(state, lending.IdleReportRequest(), NOW_MS)
    assert [(node.node, node.kind) for node in report.nodes] == [
        ("forgotten", "Forgotten"),
        ("buffer", "Buffer"),
        ("left", "LeftOver"),
    ]
    assert (report.nodes_observed, report.requests_only, report.cores_milli) == (4, 3, 20_000)
    assert report.nodes[0].used_max_milli == 10
    assert report.cores_idle_milli == 8000 + 4000 * 40 // 60 + 4000 * 39 // 60


def test_an_idle_report_can_be_answered_whatever_members_told() -> None:
    """An answer that 64 bits do not hold is none, for anybody who asks about any cluster."""
    state = state_with_nodes([])
    for node in ("n1", "n2"):
        state.apply_event(replace(node_used(node, 10, idle=60), allocatable=(("cpu", INT64_MAX),), lent_ms=HOUR_MS))
    report = idle_report.make_idle_report(state, lending.IdleReportRequest(), NOW_MS)
    assert (report.cores_milli, report.cores_idle_milli) == (INT64_MAX, INT64_MAX)
    fill_message(report, lending_pb2.IdleReportReply())


def test_cores_lent_can_be_answered_whatever_members_told() -> None:
    greedy = [replace(node_lent(name), offered=(("cpu", INT64_MAX),)) for name in ("n1", "n2")]
    state = state_with_nodes([lent_node_row("n1"), lent_node_row("n2")], lending_declared(), *greedy)
    (answer,) = declaring.list_declared(state, lending.ListLendingRequest()).clusters
    assert answer.cores_lent_milli == INT64_MAX


def test_what_is_not_known_for_a_day_is_not_given_up() -> None:
    """One that is new; and one whose pods left an hour ago, while no bridge was there to see when."""
    state = state_with_nodes([])
    state.apply_event(node_used("new", 69, idle=60))
    for hour in range(10, 70):
        state.apply_event(node_used("unseen", hour, idle=60 if hour == 69 else 40, pods=0 if hour == 69 else 3))
    new, unseen = (
        next(
            node
            for node in idle_report.make_idle_report(state, lending.IdleReportRequest(), NOW_MS).nodes
            if node.node == n
        )
        for n in ("new", "unseen")
    )
    assert "less than a day" in new.suggestion
    assert unseen.kind == "Buffer"


def test_what_was_lent_is_summed_over_nodes_and_time() -> None:
    """8 cores for 10 h half of the time, 4 cores for 2 h."""
    state = state_with_nodes([])
    for hour in range(10):
        state.apply_event(replace(node_used("big", 60 + hour, idle=0, cores=8), lent_ms=HOUR_MS // 2))
    for hour in range(2):
        state.apply_event(replace(node_used("small", 60 + hour, idle=0, cores=4), lent_ms=HOUR_MS))
    report = idle_report.make_idle_report(state, lending.IdleReportRequest(), NOW_MS)
    assert report.core_seconds_lent == (8 * 5 + 4 * 2) * 3600
    assert report.until_ms - report.from_ms == 10 * HOUR_MS, "of three days that were asked for nothing else is known"
    assert report.cores_lent_milli * 10 == (8 * 5 + 4 * 2) * 1000


def test_what_nobody_saw_is_no_time_without_pods() -> None:
    """Busy on the first day; the bridge was away then, and has looked for an hour since."""
    state = state_with_nodes([])
    for hour in (*range(1, 20), 71):
        state.apply_event(node_used("n1", hour, idle=60 if hour != 1 else 0, pods=2 if hour == 1 else 0))
    (node,) = idle_report.make_idle_report(state, lending.IdleReportRequest(), NOW_MS).nodes
    assert (node.kind, node.observed_ms) == ("Buffer", 20 * HOUR_MS)


def test_of_two_bridges_that_looked_at_the_same_time_one_counts() -> None:
    state = state_with_nodes([])
    whole = replace(node_used("n1", 50, idle=60), lent_ms=HOUR_MS)
    later = replace(whole, epoch=9, from_ms=whole.from_ms + 60_000, lent_ms=HOUR_MS - 60_000)
    for hour in (later, whole, replace(whole, from_ms=whole.from_ms + 120_000)):
        state.apply_event(hour)
    report = idle_report.make_idle_report(state, lending.IdleReportRequest(), NOW_MS)
    assert [node.observed_ms for node in report.nodes] == [HOUR_MS - 60_000]
    assert report.core_seconds_lent == 4 * 59 * 60


def test_a_node_is_not_idle_twice_while_it_is_lent() -> None:
    """Idle three tenths of the time, and lent just then: that is less than half of it."""
    state = state_with_nodes([])
    for hour in range(60, 70):
        state.apply_event(replace(node_used("busy", hour, idle=18, pods=2), lent_ms=18 * 60_000))
        state.apply_event(replace(node_used("lent", hour, idle=60), lent_ms=HOUR_MS))
    report = idle_report.make_idle_report(state, lending.IdleReportRequest(), NOW_MS)
    assert [node.node for node in report.nodes] == ["lent"]


def test_only_hours_within_the_time_count() -> None:
    state = state_with_nodes([])
    state.apply_event(node_used("n1", 10, idle=60))
    assert idle_report.make_idle_report(state, lending.IdleReportRequest(hours=24), NOW_MS).nodes_observed == 0
    with pytest.raises(RequestError, match="hours: 169"):
        idle_report.make_idle_report(state, lending.IdleReportRequest(hours=169), NOW_MS)
