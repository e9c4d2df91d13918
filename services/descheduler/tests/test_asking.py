"""What people declare, ask back and read: what is refused, what changes, and what is said again."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from descheduler.core import asked_back, declaring, idle_report, recalling
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
    declared,
    known,
    lent,
    loan,
    now_holds,
    owned,
    pod,
    shape,
    take_steps,
    waits,
)

HOUR_MS = 3_600_000
A_WORD = "letters, digits, '-', '_' and '.', at most 63"


def applied(decide: Callable[..., tuple[Sequence[Any], Any]]) -> Callable[..., tuple[Sequence[Any], Any]]:
    """Decides on a request and applies what was decided, as the queue of requests does."""

    def decide_and_apply(state: DeschedulerState, *request: Any) -> tuple[Sequence[Any], Any]:
        events, reply = decide(state, *request)
        recalling.apply_events(state, events)
        return events, reply

    return decide_and_apply


declare, withdraw, pause, resume, ask_back = map(
    applied,
    (
        declaring.declare_lending,
        declaring.withdraw_lending,
        declaring.pause_lending,
        declaring.resume_lending,
        asked_back.recall_named_nodes,
    ),
)


def asked(sequence: int = 1) -> LendingRequest:
    return LendingRequest("me", Generation(9, sequence), NOW_MS)


def rule(**more: Any) -> LendingRule:
    values = {"name": "all", "nodes": (), "supply_class": "", "share_percent": 0, "reserve_nodes": 0}
    return LendingRule(**{**values, "idle_seconds": 0, "cost_per_hour": 0.0, **more})


def request(**more: Any) -> lending.DeclareLendingRequest:
    return lending.DeclareLendingRequest(**{"cluster": OWN, "pool": POOL, "rules": (rule(),), **more})


def test_what_is_left_out_is_as_documented() -> None:
    state = known([owned("n1")])
    events, reply = declare(state, request(), asked())
    (event,) = events
    assert isinstance(event, LendingDeclared)
    assert (event.grace_seconds, event.cooldown_seconds, event.recalls_per_minute) == (30, 1800, 0)
    assert event.rules == (LendingRule("all", (), "idle", 100, 0, 600, 0.0),)
    assert (reply.clusters[0].changed, reply.clusters[0].nodes, reply.clusters[0].by) == (True, 1, "me")


def test_nodes_that_are_checked_are_told_from_those_that_are_lent_or_on_their_way_back() -> None:
    back = replace(lent("n3"), state=NODE_RECALLED)
    state = known([lent("n1"), owned("n2"), back], declared())
    now_holds(state, 1, lent("n1"), lent("n2"), back, lent("n4"))
    (shown,) = declaring.list_declared(state, lending.ListLendingRequest()).clusters
    assert (shown.nodes_lent + shown.nodes_recalled, shown.nodes_checking) == (2, 2)


def test_a_dedicated_class_is_idle_at_once() -> None:
    events, _ = declare(known([]), request(rules=(rule(supply_class="dedicated"),)), asked())
    assert isinstance(events[0], LendingDeclared)
    assert events[0].rules[0].idle_seconds == 0


def test_declared_again_nothing_changes() -> None:
    state = known([])
    declare(state, request(), asked())
    events, reply = declare(state, request(), asked(2))
    assert (events, reply.clusters[0].changed) == ((), False)


def test_rules_that_are_too_long_together_for_one_record_are_refused_with_their_size() -> None:
    """Each is within its own bounds."""
    values = tuple(f"{number:063}" for number in range(declaring.VALUES_MAX))
    nodes = tuple(Requirement(f"disk-{number}", "In", values) for number in range(4))
    rules = tuple(rule(name=f"rule-{number}", nodes=nodes) for number in range(5))
    state = known([])
    declare(state, request(rules=rules[:4]), asked())
    before = state.declared[OWN]
    with pytest.raises(RequestError, match=r"rules: '3\d{5} bytes': expected at most 262144 bytes of names, keys and"):
        declare(state, request(rules=rules), asked(2))
    assert state.declared[OWN] == before


@pytest.mark.parametrize("reason", ["x" * 501, "two\nlines"])
def test_a_reason_is_one_line_of_bounded_length(reason: str) -> None:
    state = known([owned("n1")])
    declare(state, request(), asked())
    asks = (
        lambda: pause(state, lending.PauseLendingRequest(OWN, reason), asked(2)),
        lambda: withdraw(state, lending.WithdrawLendingRequest(OWN, reason), asked(2)),
        lambda: ask_back(state, lending.RecallRequest(cluster=OWN, reason=reason), asked(2)),
    )
    for ask in asks:
        with pytest.raises(RequestError, match=r"reason: .*: expected printable characters in one line, at most 500"):
            ask()


def test_a_plan_keeps_nothing() -> None:
    state = known([])
    events, reply = declare(state, request(plan_only=True), asked())
    assert (events, reply.clusters[0].changed, state.declared) == ((), True, {})


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"cluster": ""}, "cluster: '': expected the name of a cluster"),
        ({"pool": "nowhere"}, "pool nowhere: no cluster of this name has joined"),
        ({"pool": OWN}, "pool: 'own-1': expected a cluster other than the owner"),
        ({"rules": ()}, "rules: 0: expected 1 to 64 rules"),
        ({"grace_seconds": -1}, "grace_seconds: -1: expected 0 to 86400"),
        ({"rules": (rule(), rule())}, "rules[1].name: 'all': expected a name that no other rule has"),
        ({"rules": (rule(share_percent=101),)}, "rules[0].share_percent: 101: expected 0 to 100; 0 is 100"),
        ({"rules": (rule(supply_class="cloud"),)}, "rules[0].supply_class: 'cloud': expected idle or dedicated"),
        ({"rules": (rule(cost_per_hour=float("nan")),)}, "rules[0].cost_per_hour: nan: expected 0 or more, and finite"),
        ({"rules": (rule(cost_per_hour=float("inf")),)}, "rules[0].cost_per_hour: inf: expected 0 or more, and finite"),
        (
            {"rules": (rule(nodes=(Requirement("a", "Is", ("b",)),)),)},
            "rules[0].nodes[0].operator: 'Is': expected one of In, NotIn, Exists, DoesNotExist, Gt, Lt",
        ),
        ({"grace_seconds": 10**9}, "grace_seconds: 1000000000: expected 0 to 86400"),
        ({"cooldown_seconds": 10**9}, "cooldown_seconds: 1000000000: expected 0 to 2592000"),
        ({"rules": (rule(idle_seconds=2**30),)}, "rules[0].idle_seconds: 1073741824: expected 0 to 2592000"),
        (
            {"cluster": "x" * 100_000},
            f"cluster: '{'x' * 119}…: expected the name of a cluster",
        ),
        (
            {"rules": (rule(name="x" * 100_000),)},
            f"rules[0].name: '{'x' * 119}…: expected printable characters in one line, at most 253",
        ),
        (
            {"rules": (rule(name="two\nlines"),)},
            "rules[0].name: 'two\\nlines': expected printable characters in one line, at most 253",
        ),
        (
            {"rules": (rule(nodes=(Requirement("a", "Exists", ()),) * 65),)},
            "rules[0].nodes: 65: expected at most 64 requirements",
        ),
        (
            {"rules": (rule(nodes=(Requirement("a", "In", ("b",) * 257),)),)},
            "rules[0].nodes[0].values: 257: expected at most 256 values",
        ),
        (
            {"rules": (rule(nodes=(Requirement("a", "Gt", ("1", "2")),)),)},
            "rules[0].nodes[0].values: ('1', '2'): expected one integer",
        ),
        (
            {"rules": (rule(nodes=(Requirement("a", "Lt", ("٣",)),)),)},
            "rules[0].nodes[0].values: ('٣',): expected one integer",
        ),
        (
            {"rules": (rule(nodes=(Requirement("no label!", "Exists", ()),)),)},
            f"rules[0].nodes[0].key: 'no label!': expected a label's key: {A_WORD}, or such behind a domain and '/'",
        ),
        (
            {"rules": (rule(nodes=(Requirement("a", "In", ("b", "no value!")),)),)},
            f"rules[0].nodes[0].values[1]: 'no value!': expected a label's value: {A_WORD}, or none",
        ),
    ],
)
def test_what_is_wrong_is_named(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(RequestError) as error:
        declare(known([]), request(**wrong), asked())
    assert error.value.text == text


def test_paused_and_resumed_and_each_only_once() -> None:
    state = known([], declared())
    events, reply = pause(state, lending.PauseLendingRequest("", "holiday"), asked())
    assert (len(events), reply.clusters[0].paused, reply.clusters[0].reason) == (1, True, "holiday")
    assert pause(state, lending.PauseLendingRequest(OWN), asked(2))[0] == ()
    events, reply = resume(state, lending.ResumeLendingRequest(OWN), asked(3))
    assert (len(events), reply.clusters[0].paused) == (1, False)


def test_a_pause_outlives_what_is_declared_anew() -> None:
    state = known([], declared())
    pause(state, lending.PauseLendingRequest(), asked())
    declare(state, request(grace_seconds=5), asked(2))
    assert state.declared[OWN].paused


def test_while_it_is_withdrawn_nothing_is_declared() -> None:
    state = known([lent("n1")], declared())
    withdraw(state, lending.WithdrawLendingRequest(OWN, "sold"), asked())
    with pytest.raises(RequestError, match="is being withdrawn"):
        declare(state, request(), asked(2))


@pytest.mark.parametrize("seconds", [-1, 10**9])
def test_a_node_is_not_asked_back_with_any_grace(seconds: int) -> None:
    state = known([lent("n1")], declared())
    with pytest.raises(RequestError) as error:
        ask_back(state, lending.RecallRequest(OWN, ("n1",), seconds), asked())
    assert error.value.text == f"grace_seconds: {seconds}: expected 0 to 86400; 0 is the cluster's"


def test_nodes_go_back_by_name_or_all_and_again_changes_nothing() -> None:
    state = known([lent("n1"), lent("n2")], declared())
    events, reply = ask_back(state, lending.RecallRequest(OWN, ("n2",), 5, "sold"), asked())
    (event,) = events
    assert isinstance(event, NodeRecalled)
    assert (event.node, event.cause, event.grace_seconds, event.by) == ("n2", "Asked", 5, "me")
    assert [(node.node, node.state, node.cause) for node in reply.nodes] == [("n2", "Recalled", "Asked")]
    _, reply = ask_back(state, lending.RecallRequest(OWN, ("n2",)), asked(2))
    assert reply.changed == 0
    _, reply = ask_back(state, lending.RecallRequest(OWN), asked(3))
    assert (reply.changed, len(reply.nodes)) == (1, 2)


def test_a_recall_for_a_need_becomes_one_by_name_that_no_freeze_holds() -> None:
    state = known([lent("n1")], waits("g", 1, shape()))
    state.mark_all_dirty()
    take_steps(state, Generations(8), NOW_MS)
    events, reply = ask_back(state, lending.RecallRequest(OWN, ("n1",)), asked())
    assert (len(events), reply.nodes[0].cause) == (1, "Asked")


def test_a_node_that_is_not_lent_is_named_and_a_plan_recalls_none() -> None:
    state = known([lent("n1"), owned("n2")])
    with pytest.raises(RequestError, match="nodes: cluster own-1 has not lent n2"):
        ask_back(state, lending.RecallRequest(OWN, ("n1", "n2")), asked())
    events, reply = ask_back(state, lending.RecallRequest(OWN, plan_only=True), asked())
    assert (events, reply.changed, list(state.open_recalls())) == ((), 1, [])


def test_a_cluster_that_is_not_known_is_named_with_those_that_are() -> None:
    state = known([lent("n1"), owned("n2")])
    expected = "no cluster of this name has joined; expected one of own-1, pool"
    asks = {
        "cluster": [
            lambda: ask_back(state, lending.RecallRequest("nosuch"), asked()),
            lambda: ask_back(state, lending.RecallRequest("nosuch", plan_only=True), asked()),
            lambda: asked_back.list_lent(state, lending.ListLentRequest("nosuch")),
            lambda: idle_report.idle_report(state, lending.IdleReportRequest("nosuch"), NOW_MS),
        ],
        "pool": [lambda: asked_back.list_lent(state, lending.ListLentRequest(pool="nosuch"))],
    }
    for field, calls in asks.items():
        for call in calls:
            with pytest.raises(RequestError) as error:
                call()
            assert (error.value.code, error.value.text) == ("NOT_FOUND", f"{field} nosuch: {expected}")


def test_of_a_cluster_that_has_left_what_it_lends_still_can_be_asked_back() -> None:
    state = known([lent("n1")])
    for cluster in (OWN, POOL):
        state.apply_event(ClusterLeft(cluster))
    assert ask_back(state, lending.RecallRequest(OWN, plan_only=True), asked())[1].changed == 1
    assert len(asked_back.list_lent(state, lending.ListLentRequest(OWN, POOL)).nodes) == 1


def test_nodes_that_are_not_lent_are_named_with_those_that_are() -> None:
    state = known([lent("n1"), owned("n2")])
    with pytest.raises(RequestError) as error:
        ask_back(state, lending.RecallRequest(OWN, ("n2", "nosuch")), asked())
    assert error.value.text == "nodes: cluster own-1 has not lent n2, nosuch; expected nodes that it has lent: n1"
    with pytest.raises(RequestError, match="cluster own-1 has not lent n2; it has lent none"):
        ask_back(known([owned("n2")]), lending.RecallRequest(OWN, ("n2",)), asked())


def test_lent_nodes_come_a_page_at_a_time() -> None:
    state = known([lent(f"n{n}") for n in range(5)], loan("n1", pod(), pod(), sequence=2))
    seen, token = [], ""
    while True:
        page = asked_back.list_lent(state, lending.ListLentRequest(page_size=2, page_token=token))
        seen += [(node.node, node.pods) for node in page.nodes]
        token = page.next_page_token
        if not token:
            break
    assert seen == [("n0", 0), ("n1", 2), ("n2", 0), ("n3", 0), ("n4", 0)]


def used(
    node: str, hour: int, *, idle: int, pods: int = 0, cores: int = 4, last_pod: int = 0, use: int = -1
) -> NodeUsed:
    start = NOW_MS - (72 - hour) * HOUR_MS
    cpu = (("cpu", cores * 1000),)
    return NodeUsed(
        OWN, node, 5, hour, start, start + HOUR_MS, "all", cpu, (("cpu", pods * 500),),
        (), (("cpu", use),) if use >= 0 else (), pods, NOW_MS - last_pod * HOUR_MS if last_pod else 0, idle * 60_000, 0,
    )  # fmt: skip


def test_idle_nodes_are_told_apart_most_idle_cores_first() -> None:
    state = known([])
    for hour in range(10, 70):
        state.apply_event(used("forgotten", hour, idle=60, cores=8, use=10))
        state.apply_event(used("left", hour, idle=60 if hour > 30 else 0, pods=0 if hour > 30 else 3, last_pod=40))
        state.apply_event(used("buffer", hour, idle=40, pods=2, last_pod=1))
        state.apply_event(used("busy", hour, idle=0, pods=9))
    report = idle_report.idle_report(state, lending.IdleReportRequest(), NOW_MS)
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
    state = known([])
    for node in ("n1", "n2"):
        state.apply_event(replace(used(node, 10, idle=60), allocatable=(("cpu", INT64_MAX),), lent_ms=HOUR_MS))
    report = idle_report.idle_report(state, lending.IdleReportRequest(), NOW_MS)
    assert (report.cores_milli, report.cores_idle_milli) == (INT64_MAX, INT64_MAX)
    fill_message(report, lending_pb2.IdleReportReply())


def test_cores_lent_can_be_answered_whatever_members_told() -> None:
    greedy = [replace(loan(name), offered=(("cpu", INT64_MAX),)) for name in ("n1", "n2")]
    state = known([lent("n1"), lent("n2")], declared(), *greedy)
    (answer,) = declaring.list_declared(state, lending.ListLendingRequest()).clusters
    assert answer.cores_lent_milli == INT64_MAX


def test_what_is_not_known_for_a_day_is_not_given_up() -> None:
    """One that is new; and one whose pods left an hour ago, while no bridge was there to see when."""
    state = known([])
    state.apply_event(used("new", 69, idle=60))
    for hour in range(10, 70):
        state.apply_event(used("unseen", hour, idle=60 if hour == 69 else 40, pods=0 if hour == 69 else 3))
    new, unseen = (
        next(
            node for node in idle_report.idle_report(state, lending.IdleReportRequest(), NOW_MS).nodes if node.node == n
        )
        for n in ("new", "unseen")
    )
    assert "less than a day" in new.suggestion
    assert unseen.kind == "Buffer"


def test_what_was_lent_is_summed_over_nodes_and_time() -> None:
    """8 cores for 10 h half of the time, 4 cores for 2 h."""
    state = known([])
    for hour in range(10):
        state.apply_event(replace(used("big", 60 + hour, idle=0, cores=8), lent_ms=HOUR_MS // 2))
    for hour in range(2):
        state.apply_event(replace(used("small", 60 + hour, idle=0, cores=4), lent_ms=HOUR_MS))
    report = idle_report.idle_report(state, lending.IdleReportRequest(), NOW_MS)
    assert report.core_seconds_lent == (8 * 5 + 4 * 2) * 3600
    assert report.until_ms - report.from_ms == 10 * HOUR_MS, "of three days that were asked for nothing else is known"
    assert report.cores_lent_milli * 10 == (8 * 5 + 4 * 2) * 1000


def test_what_nobody_saw_is_no_time_without_pods() -> None:
    """Busy on the first day; the bridge was away then, and has looked for an hour since."""
    state = known([])
    for hour in (*range(1, 20), 71):
        state.apply_event(used("n1", hour, idle=60 if hour != 1 else 0, pods=2 if hour == 1 else 0))
    (node,) = idle_report.idle_report(state, lending.IdleReportRequest(), NOW_MS).nodes
    assert (node.kind, node.observed_ms) == ("Buffer", 20 * HOUR_MS)


def test_of_two_bridges_that_looked_at_the_same_time_one_counts() -> None:
    state = known([])
    whole = replace(used("n1", 50, idle=60), lent_ms=HOUR_MS)
    later = replace(whole, epoch=9, from_ms=whole.from_ms + 60_000, lent_ms=HOUR_MS - 60_000)
    for hour in (later, whole, replace(whole, from_ms=whole.from_ms + 120_000)):
        state.apply_event(hour)
    report = idle_report.idle_report(state, lending.IdleReportRequest(), NOW_MS)
    assert [node.observed_ms for node in report.nodes] == [HOUR_MS - 60_000]
    assert report.core_seconds_lent == 4 * 59 * 60


def test_a_node_is_not_idle_twice_while_it_is_lent() -> None:
    """Idle three tenths of the time, and lent just then: that is less than half of it."""
    state = known([])
    for hour in range(60, 70):
        state.apply_event(replace(used("busy", hour, idle=18, pods=2), lent_ms=18 * 60_000))
        state.apply_event(replace(used("lent", hour, idle=60), lent_ms=HOUR_MS))
    report = idle_report.idle_report(state, lending.IdleReportRequest(), NOW_MS)
    assert [node.node for node in report.nodes] == ["lent"]


def test_only_hours_within_the_time_count() -> None:
    state = known([])
    state.apply_event(used("n1", 10, idle=60))
    assert idle_report.idle_report(state, lending.IdleReportRequest(hours=24), NOW_MS).nodes_observed == 0
    with pytest.raises(RequestError, match="hours: 169"):
        idle_report.idle_report(state, lending.IdleReportRequest(hours=169), NOW_MS)
