"""Clusters of the fleet: joining, phases, leaving; and requests on brakes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from planner.api.confined import clusters_seen_by
from planner.core.background import moves
from planner.core.explaining import exporting
from planner.core.knowledge.all_clusters import newly_known_api_servers
from planner.core.requests import answers, braking, decisions, membership, node_list
from spillway.addresses import Tombstone, brake_address
from spillway.api import (
    ApplyRequest,
    ClusterMovesReply,
    ConfirmRequest,
    DeleteRequest,
    FreezeRequest,
    JoinClusterRequest,
    LeaveClusterRequest,
    ListedNode,
    ListNodesRequest,
    RequestError,
    ScaleRequest,
    SetClusterPhaseRequest,
    UnfreezeRequest,
)
from spillway.events import (
    PHASE_ACTIVE,
    PHASE_CORDONED,
    PHASE_DRAINING,
    PHASE_LEAVING,
    PHASE_LOST,
    BrakeSet,
    CapacityChanged,
    ClusterLeft,
    ConfirmationAsked,
    ConfirmationGiven,
)
from spillway.lending_marks import LENT_CLUSTER, LENT_NODE
from spillway.model import NODE_LENT, Generation, PodSelector, PodTerm, Taint
from spillway.rpc.callers import Caller
from spillway.troubles import TroubleCode

from .builders import (
    Fleet,
    apply_to_fleet,
    deployment,
    joined_cluster,
    make_shape,
    manifest_texts,
    node_group,
    node_row,
    placement_policy,
)


@pytest.fixture
def fleet() -> Fleet:
    """Two own clusters that hold 12 replicas each, 20 of web in them."""
    fleet = Fleet(own_1=[node_row("a", 12_000)], own_2=[node_row("b", 12_000)])
    apply_to_fleet(
        fleet,
        decisions.decide_apply(fleet.state, ApplyRequest(manifest_texts(deployment(20))), fleet.next_moment()).events,
    )
    return fleet


def assert_refused(action: Callable[[], object], code: str, text: str = "") -> None:
    with pytest.raises(RequestError) as caught:
        action()
    assert caught.value.code == code
    assert text in caught.value.text


def set_cluster_phase(fleet: Fleet, phase: str, name: str = "own-1") -> ClusterMovesReply:
    decided = membership.set_phase(fleet.state, SetClusterPhaseRequest(name, phase), fleet.next_moment())
    apply_to_fleet(fleet, decided.events)
    return decided.reply


def leave_cluster(fleet: Fleet, name: str = "own-1", *, lost: bool = False) -> ClusterMovesReply:
    decided = membership.leave_cluster(fleet.state, LeaveClusterRequest(name, lost), fleet.next_moment())
    apply_to_fleet(fleet, decided.events)
    return decided.reply


def listed_phase(fleet: Fleet, name: str = "own-1") -> str:
    return next(
        entry.phase for entry in answers.list_clusters(fleet.state, fleet.now).clusters if entry.cluster == name
    )


# ── Joining ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_joining_twice_changes_nothing() -> None:
    fleet = Fleet()
    request_ = JoinClusterRequest("a", "cred", tier="cloud")
    joined, is_new = membership.join_cluster(fleet.state, request_, Generation(3, 1))
    fleet.state.apply_event(joined, fleet.now)
    assert is_new
    assert joined.joined_at == Generation(3, 1)
    assert membership.join_cluster(fleet.state, request_, Generation(3, 2)) == (joined, False)


JOINS: dict[str, tuple[JoinClusterRequest, str, str]] = {
    "two clusters of one name": (JoinClusterRequest("own-1", "other"), "ALREADY_EXISTS", "name: 'own-1': a cluster of"),
    "one credential twice": (
        JoinClusterRequest("new", "own-1"),
        "ALREADY_EXISTS",
        "credential: 'own-1': cluster 'own-1'",
    ),
    "upper case": (JoinClusterRequest("Own", "c"), "INVALID_ARGUMENT", "name: 'Own': expected lower-case"),
    "a credential that is a path": (
        JoinClusterRequest("n", "../c"),
        "INVALID_ARGUMENT",
        "credential: '../c': expected",
    ),
    "no name": (JoinClusterRequest("", "c"), "INVALID_ARGUMENT", "name: '': expected"),
    "two node groups of one name": (
        JoinClusterRequest("n", "c", node_groups=(node_group(), node_group())),
        "INVALID_ARGUMENT",
        "node_groups: ['burst', 'burst']: expected different names",
    ),
    "a negative group": (
        JoinClusterRequest("n", "c", node_groups=(node_group(nodes_max=-1),)),
        "INVALID_ARGUMENT",
        "node_groups.burst: (-1, 120): expected 0 or more",
    ),
    "a group with a price below 0": (
        JoinClusterRequest("n", "c", node_groups=(node_group(cost=-1.0),)),
        "INVALID_ARGUMENT",
        "node_groups.burst.cost_per_hour: -1.0: expected 0 or more",
    ),
    "a group with a price that is no number": (
        JoinClusterRequest("n", "c", node_groups=(node_group(cost=float("nan")),)),
        "INVALID_ARGUMENT",
        "node_groups.burst.cost_per_hour: nan: expected 0 or more",
    ),
    "a group without a selector": (
        JoinClusterRequest("n", "c", node_groups=(replace(node_group(), selector=()),)),
        "INVALID_ARGUMENT",
        "node_groups.burst.selector: (): expected labels",
    ),
    "a group with a label that is none": (
        JoinClusterRequest("n", "c", node_groups=(replace(node_group(), labels=(("a b", ""),)),)),
        "INVALID_ARGUMENT",
        "node_groups.burst.labels: 'a b': expected a label's key",
    ),
}
ENDPOINTS = (
    "not a url",
    "own-1:6443",
    "ftp://own-1",
    "https://",
    "https://own-1:99999",
    "https://own-1:0",
    "https://ann:secret@own-1",
    "https://own-1/?a=1",
    "https://own-1\n",
    "https://" + "a" * 2048,
)
JOINS |= {
    f"the endpoint {endpoint[:40]!r}": (
        JoinClusterRequest("n", "c", endpoint),
        "INVALID_ARGUMENT",
        f"endpoint: {endpoint!r}"[:40],
    )
    for endpoint in ENDPOINTS
}
JOINS |= {
    f"the {field} {text[:20]!r}": (
        replace(JoinClusterRequest("n", "c"), **{field: text}),
        "INVALID_ARGUMENT",
        "expected printable characters in one line, at most 100",
    )
    for field in ("region", "zone")
    for text in ("a\nb", "\x1b[31m", "a\u202eb", "x" * 101)
}
JOINS |= {
    f"the labels {labels!r:.60}": (JoinClusterRequest("n", "c", labels=labels), "INVALID_ARGUMENT", text)
    for labels, text in (
        ((("", ""),), "labels: '': expected a label's key"),
        ((("a", "1"), ("b", ""), ("a", "2")), "labels: 'a': expected each key once"),
        ((("-a", ""),), "labels: '-a': expected a label's key"),
        ((("a" * 64, ""),), "expected a label's key: letters"),
        ((("/a", ""),), "labels: '/a': expected a label's key"),
        ((("Example.com/a", ""),), "labels: 'Example.com/a': expected a label's key"),
        ((("a/b/c", ""),), "labels: 'a/b/c': expected a label's key"),
        ((("a", "b c"),), "labels.a: 'b c': expected a label's value"),
        ((("a", "b\n"),), "labels.a: 'b\\n': expected a label's value"),
        ((("a", "x" * 64),), "expected a label's value: letters"),
    )
}


@pytest.mark.parametrize(("request_", "code", "text"), JOINS.values(), ids=JOINS)
def test_a_join_that_cannot_be_is_refused(fleet: Fleet, request_: JoinClusterRequest, code: str, text: str) -> None:
    assert_refused(lambda: membership.join_cluster(fleet.state, request_), code, text)


@pytest.mark.parametrize(
    "endpoint", ["", "https://own-1.example.com:6443", "http://127.0.0.1:1", "https://[::1]:6443/k"]
)
def test_what_a_join_says_is_kept(fleet: Fleet, endpoint: str) -> None:
    labels = (("spillway.io/supply-class", ""), ("Env_1.a", "Blue-2"))
    joined, _ = membership.join_cluster(
        fleet.state, JoinClusterRequest("n", "c", endpoint, region="Zürich, west", zone="a", labels=labels)
    )
    assert (joined.endpoint, joined.region, joined.labels) == (endpoint, "Zürich, west", tuple(sorted(labels)))


@pytest.mark.parametrize(
    ("tier", "policy_of_web", "warned"),
    [
        pytest.param("own", {}, False, id="the default policy's"),
        pytest.param("cloud", {}, False, id="the default policy's other"),
        pytest.param("gold", {}, True, id="nobody's"),
        pytest.param("gold", {"tiers": ["gold"]}, False, id="a workload's policy names it"),
        pytest.param("gold", {"regions": ["eu"]}, False, id="a workload's policy goes by region"),
        pytest.param("gold", {"tiers": ["silver"]}, True, id="another's"),
    ],
)
def test_who_joins_with_a_tier_that_no_policy_selects_is_told(
    fleet: Fleet, tier: str, policy_of_web: dict[str, Any], warned: bool
) -> None:
    if policy_of_web:
        tiers = [{"name": "first", "clusters": {"names": ["own-1"]}}, {"name": "then", "clusters": policy_of_web}]
        request = ApplyRequest(manifest_texts(deployment(20), placement_policy(tiers=tiers)))
        apply_to_fleet(fleet, decisions.decide_apply(fleet.state, request, fleet.next_moment()).events)
    joined, _ = membership.join_cluster(fleet.state, JoinClusterRequest("own-9", "own-9", "", tier, "eu"))
    known = "cloud, own, silver" if policy_of_web == {"tiers": ["silver"]} else "cloud, own"
    nothing = "tier: 'gold': nothing is placed there: neither the default policy nor that of any workload selects it"
    text = f"{nothing}; they know {known}; a PlacementPolicy with clusters: {{tiers: [gold]}} would"
    assert membership.tier_warnings(fleet.state, joined) == ((text,) if warned else ())


@pytest.mark.parametrize(
    ("tier", "refused"),
    [
        pytest.param("own", "", id="the default policy's"),
        pytest.param("silver", "", id="a workload's policy names it"),
        pytest.param("bronze", "", id="a cluster has it"),
        pytest.param("onw", "bronze, cloud, own, silver; --new-tier allows a new tier; did you mean own", id="a slip"),
        pytest.param("gold", "bronze, cloud, own, silver; --new-tier allows a new tier", id="a new one"),
    ],
)
def test_a_tier_that_nobody_knows_is_refused_where_it_is_to_be_known(fleet: Fleet, tier: str, refused: str) -> None:
    tiers = [{"name": "first", "clusters": {"names": ["own-1"]}}, {"name": "then", "clusters": {"tiers": ["silver"]}}]
    apply_to_fleet(
        fleet,
        decisions.decide_apply(
            fleet.state,
            ApplyRequest(manifest_texts(deployment(20), placement_policy(tiers=tiers))),
            fleet.next_moment(),
        ).events,
    )
    apply_to_fleet(
        fleet, [membership.join_cluster(fleet.state, JoinClusterRequest("own-8", "own-8", tier="bronze"))[0]]
    )
    request = JoinClusterRequest("own-9", "own-9", tier=tier, known_tier=True)
    if not refused:
        assert membership.join_cluster(fleet.state, request)[0].tier == tier
        return
    with pytest.raises(RequestError, match=f"tier: '{tier}': expected a tier that a cluster has .*: {refused}"):
        membership.join_cluster(fleet.state, request)
    assert membership.join_cluster(fleet.state, replace(request, known_tier=False))[0].tier == tier


@pytest.mark.parametrize(
    ("tiers", "warned"),
    [
        pytest.param(["own", "cloud"], [], id="those of every fleet"),
        pytest.param(
            ["onw"], ["'onw': no cluster has this tier; they have cloud, own; did you mean own?"], id="a slip"
        ),
        pytest.param(["gold"], ["'gold': no cluster has this tier; they have cloud, own"], id="one to come"),
    ],
)
def test_a_policy_that_names_a_tier_that_no_cluster_has_is_declared_with_a_warning(
    fleet: Fleet, tiers: list[str], warned: list[str]
) -> None:
    """The cluster may join later: so it is no error."""
    asked = [{"name": "first", "clusters": {"names": ["own-1"]}}, {"name": "then", "clusters": {"tiers": tiers}}]
    request = ApplyRequest(manifest_texts(deployment(20), placement_policy(tiers=asked)))
    decided = decisions.decide_apply(fleet.state, request, fleet.next_moment())
    assert list(decided.reply.warnings) == [f"PlacementPolicy.spec.tiers: {text}" for text in warned]


@pytest.mark.parametrize(
    ("tier", "words"),
    [
        pytest.param("own", [], id="the same"),
        pytest.param("cloud", ["tier: 'cloud': it was 'own'"], id="another"),
        pytest.param("gold", ["tier: 'gold': it was 'own'", "tier: 'gold': nothing is placed there"], id="nobody's"),
    ],
)
def test_who_joins_again_with_another_tier_is_told_what_that_moves(fleet: Fleet, tier: str, words: list[str]) -> None:
    joined, _ = membership.join_cluster(fleet.state, JoinClusterRequest("own-1", "own-1", tier=tier))
    warnings = membership.tier_warnings(fleet.state, joined)
    assert [text[: len(word)] for text, word in zip(warnings, words, strict=True)] == words


@pytest.mark.parametrize("kept", [PHASE_CORDONED, PHASE_DRAINING, PHASE_LEAVING])
def test_joining_again_changes_what_is_known_and_not_the_phase(fleet: Fleet, kept: str) -> None:
    set_cluster_phase(fleet, kept)
    again = JoinClusterRequest("own-1", "own-1", tier="own", region="eu")
    joined, changed = membership.join_cluster(fleet.state, again, Generation(9, 9))
    assert joined.joined_at == fleet.state.clusters["own-1"].joined.joined_at  # type: ignore[union-attr]
    assert (joined.phase, joined.region, changed) == (kept, "eu", True)


# ── Phases ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("before", [PHASE_ACTIVE, PHASE_CORDONED, PHASE_DRAINING, PHASE_LEAVING, PHASE_LOST])
@pytest.mark.parametrize("after", [PHASE_ACTIVE, PHASE_CORDONED, PHASE_DRAINING, PHASE_LEAVING])
def test_any_phase_follows_any_other_and_once_set_is_set(fleet: Fleet, before: str, after: str) -> None:
    joined = fleet.state.clusters["own-1"].joined
    assert joined is not None
    fleet.state.apply_event(replace(joined, phase=before), fleet.now)
    reply = set_cluster_phase(fleet, after)
    assert (reply.changed, reply.cluster.phase, listed_phase(fleet)) == (before != after, after, after)
    assert not set_cluster_phase(fleet, after).changed


@pytest.mark.parametrize(
    ("phase", "replicas", "confirm"),
    [
        pytest.param(PHASE_ACTIVE, 0, "", id="active keeps what it has"),
        pytest.param(PHASE_CORDONED, 0, "", id="cordoned keeps what it has"),
        pytest.param(PHASE_DRAINING, 10, "", id="draining hands over, ten need no confirmation"),
        pytest.param(PHASE_LEAVING, 10, "", id="leaving too"),
    ],
)
def test_the_answer_tells_what_will_move(fleet: Fleet, phase: str, replicas: int, confirm: str) -> None:
    reply = set_cluster_phase(fleet, phase)
    assert (reply.replicas, reply.confirm, reply.frozen) == (replicas, confirm, "")
    assert (reply.cluster.replicas, reply.cluster.workloads) == (10, 1)


def test_the_answer_tells_that_a_confirmation_is_needed_and_that_the_fleet_is_frozen(fleet: Fleet) -> None:
    apply_to_fleet(
        fleet,
        decisions.decide_apply(fleet.state, ApplyRequest(manifest_texts(deployment(24))), fleet.next_moment()).events,
    )
    apply_to_fleet(fleet, [BrakeSet("fleet", "audit", "ann", 1)])
    reply = set_cluster_phase(fleet, PHASE_DRAINING)
    assert (reply.replicas, reply.confirm) == (12, "Drain/own-1")
    assert reply.frozen == "fleet is frozen by ann: audit"
    apply_to_fleet(fleet, [ConfirmationGiven("Drain/own-1", "ann", 1)])
    assert leave_cluster(fleet).confirm == "", "what was confirmed for the drain holds for the leaving"


def test_a_drain_that_is_called_off_takes_its_confirmation_along(fleet: Fleet) -> None:
    set_cluster_phase(fleet, PHASE_DRAINING)
    apply_to_fleet(fleet, [ConfirmationGiven("Drain/own-1", "ann", 1)])
    decided = membership.set_phase(fleet.state, SetClusterPhaseRequest("own-1", PHASE_ACTIVE), fleet.next_moment())
    assert decided.events[1:] == (Tombstone(brake_address("Drain/own-1")),)


@pytest.mark.parametrize(
    ("name", "phase", "code", "text"),
    [
        pytest.param(
            "own-3",
            PHASE_ACTIVE,
            "NOT_FOUND",
            "'own-3': no cluster has this name; the fleet has own-1, own-2",
            id="unknown",
        ),
        pytest.param("own-1", "Gone", "INVALID_ARGUMENT", "phase: 'Gone': expected Active, Cordoned", id="no phase"),
        pytest.param("own-1", PHASE_LOST, "INVALID_ARGUMENT", "phase: 'Lost': expected Active", id="lost is no phase"),
    ],
)
def test_a_phase_that_cannot_be_is_refused(fleet: Fleet, name: str, phase: str, code: str, text: str) -> None:
    assert_refused(lambda: set_cluster_phase(fleet, phase, name), code, text)


def test_a_cluster_that_answers_is_not_lost_and_one_that_does_not_is(fleet: Fleet) -> None:
    fleet.now += 4
    text = "cluster 'own-1' answered 4 s ago: expected no answer for over 30 s"
    assert_refused(lambda: leave_cluster(fleet, lost=True), "FAILED_PRECONDITION", text)
    fleet.now += 27
    fleet.send_heartbeats("own-2")
    reply = leave_cluster(fleet, lost=True)
    assert (reply.cluster.phase, reply.replicas, reply.confirm) == (PHASE_LOST, 10, "")
    assert not leave_cluster(fleet, lost=True).changed
    assert set_cluster_phase(fleet, PHASE_ACTIVE).changed, "for as long as it is listed it may come back"


def test_leaving_is_a_phase_and_what_has_left_is_unknown(fleet: Fleet) -> None:
    assert leave_cluster(fleet).cluster.phase == PHASE_LEAVING
    assert not leave_cluster(fleet).changed
    apply_to_fleet(fleet, [ClusterLeft("own-1")])
    assert_refused(lambda: leave_cluster(fleet), "NOT_FOUND", "no cluster has this name; the fleet has own-2")


def test_what_joins_under_the_name_of_what_left_has_its_own_room(fleet: Fleet) -> None:
    """Also of shapes whose rooms are kept one by one, when as much was heard of the new one as of the old."""
    apart = make_shape(1000, apart=(PodTerm(PodSelector(()), own=True),))
    rooms = []
    for nodes in (2, 5):
        fleet.join_cluster(joined_cluster("own-3"), [node_row(f"c-{one}", 4000) for one in range(nodes)])
        rooms.append(fleet.state.room_in_cluster("own-3", apart, False, fleet.now).certain)
        apply_to_fleet(fleet, [ClusterLeft("own-3")])
    assert rooms == [2, 5]


# ── Brakes ──────────────────────────────────────────────────────────────────────────────────────────────────────


def freeze_scope(fleet: Fleet, scope: str, reason: str = "audit") -> Any:
    events, reply = braking.decide_freeze(fleet.state, FreezeRequest(scope, reason), "ann", fleet.next_moment())
    apply_to_fleet(fleet, events)
    return (len(events), reply.frozen, reply.reason, reply.by)


@pytest.mark.parametrize("scope", ["fleet", "cluster/own-1", "workload/default/web"])
def test_freezing_twice_is_freezing_once_and_another_reason_is_said(fleet: Fleet, scope: str) -> None:
    assert freeze_scope(fleet, scope) == (1, True, "audit", "ann")
    assert freeze_scope(fleet, scope) == (0, True, "audit", "ann")
    assert freeze_scope(fleet, scope, "other") == (1, True, "other", "ann")
    assert [brake.scope for brake in braking.list_brakes(fleet.state, fleet.now).brakes] == [scope]
    for events in (1, 0):
        given, reply = braking.decide_unfreeze(fleet.state, UnfreezeRequest(scope), "bob", fleet.next_moment())
        apply_to_fleet(fleet, given)
        assert (len(given), reply.frozen) == (events, False)
    assert braking.list_brakes(fleet.state, fleet.now).brakes == ()


@pytest.mark.parametrize(
    ("scope", "code", "text"),
    [
        pytest.param(
            "cluster/own-3", "NOT_FOUND", "no cluster has this name; the fleet has own-1, own-2", id="unknown cluster"
        ),
        pytest.param("workload/default/api", "NOT_FOUND", "workload default/api: not declared", id="unknown workload"),
        pytest.param("", "INVALID_ARGUMENT", "scope: '': expected fleet, cluster/<name> or", id="nothing"),
        pytest.param("workload/web", "INVALID_ARGUMENT", "scope: 'workload/web'", id="no namespace"),
        pytest.param("cluster/", "INVALID_ARGUMENT", "scope: 'cluster/'", id="no name"),
        pytest.param("cluster/Own", "INVALID_ARGUMENT", "scope: 'cluster/Own'", id="upper case"),
        pytest.param("Fleet", "INVALID_ARGUMENT", "scope: 'Fleet'", id="another word"),
        pytest.param("fleet/own-1", "INVALID_ARGUMENT", "scope: 'fleet/own-1'", id="too long"),
        pytest.param("Drain/own-1", "INVALID_ARGUMENT", "scope: 'Drain/own-1'", id="a confirmation is no brake"),
    ],
)
def test_what_is_not_there_cannot_be_frozen_nor_unfrozen(fleet: Fleet, scope: str, code: str, text: str) -> None:
    assert_refused(lambda: freeze_scope(fleet, scope), code, text)
    assert_refused(
        lambda: braking.decide_unfreeze(fleet.state, UnfreezeRequest(scope), "ann", fleet.next_moment()), code, text
    )


@pytest.mark.parametrize("reason", ["x" * 501, "a\nb", "\x1b[31mred", "a\x00"])
def test_a_reason_is_printable_and_has_a_bound(fleet: Fleet, reason: str) -> None:
    text = f"reason: {reason!r}"[:20]
    assert_refused(lambda: freeze_scope(fleet, "fleet", reason), "INVALID_ARGUMENT", text)
    assert_refused(
        lambda: freeze_scope(fleet, "fleet", reason), "INVALID_ARGUMENT", "expected printable characters in one line"
    )


def test_a_brake_outlives_its_cluster_and_can_still_be_released(fleet: Fleet) -> None:
    freeze_scope(fleet, "cluster/own-1")
    apply_to_fleet(fleet, [ClusterLeft("own-1")])
    events, _ = braking.decide_unfreeze(fleet.state, UnfreezeRequest("cluster/own-1"), "ann", fleet.next_moment())
    assert len(events) == 1


def test_only_what_is_asked_for_is_confirmed_and_only_once(fleet: Fleet) -> None:
    request = ConfirmRequest("Failover/own-1")
    assert_refused(
        lambda: braking.decide_confirm(fleet.state, request, "ann", fleet.next_moment()),
        "NOT_FOUND",
        "scope: 'Failover/own-1': no move of this scope waits for a confirmation; waiting: none",
    )
    apply_to_fleet(fleet, [ConfirmationAsked("Failover/own-1", "Failover", "own-1", 12, 20, 1)])
    for count in (1, 0):
        events, reply = braking.decide_confirm(fleet.state, request, "ann", fleet.next_moment())
        apply_to_fleet(fleet, events)
        assert (len(events), reply.given, reply.by) == (count, True, "ann")


def test_the_list_says_what_each_holds_back(fleet: Fleet) -> None:
    freeze_scope(fleet, "fleet")
    freeze_scope(fleet, "cluster/own-2")
    freeze_scope(fleet, "workload/default/web")
    wanted = {("Failover", "own-1"): 15, ("Drain", "own-2"): 4}
    set_cluster_phase(fleet, PHASE_DRAINING, "own-2")
    apply_to_fleet(fleet, fleet.state.brakes.update_confirmations(wanted, 20, fleet.now, 1))
    reply = braking.list_brakes(fleet.state, fleet.now)
    assert [(brake.scope, brake.replicas) for brake in reply.brakes] == [
        ("cluster/own-2", 4),
        ("fleet", 19),
        ("workload/default/web", 10),
    ]
    (asked,) = reply.confirmations
    assert (asked.scope, asked.cause, asked.cluster) == ("Failover/own-1", "Failover", "own-1")
    assert (asked.replicas, asked.fleet_replicas, asked.given, asked.by) == (15, 20, False, "")
    assert (reply.moves_per_minute, reply.over_budget) == (600.0, 0)


def test_the_list_says_what_the_budget_let_go_in_the_last_minute(fleet: Fleet) -> None:
    brakes, began = fleet.state.brakes, fleet.now
    for cause, count in (("Drain", 7), ("Migrate", 5), ("Lost", 2)):
        apply_to_fleet(fleet, brakes.update_confirmations({("Drain", "own-1"): 9}, 20, fleet.now, 1))
        brakes.spend_budget(cause, "own-1", ("default", "web"), count)
        fleet.now += 20
    told = [braking.list_brakes(fleet.state, began + seconds).moved_last_minute for seconds in (40, 60, 100)]
    assert told == [9, 2, 0]


# ── Nodes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nodes_are_listed_by_name_a_page_at_a_time_with_what_they_are() -> None:
    not_ready = Taint("node.kubernetes.io/not-ready", "", "NoSchedule")
    labels = {LENT_CLUSTER: "own-2", LENT_NODE: "n7"}
    fleet = Fleet(
        own_1=[
            node_row("c", 4000, used=1500, unschedulable=True),
            node_row("a", 2000, taints=(not_ready,)),
            node_row("b", 8000, state=NODE_LENT),
            node_row("own-2-n7", 8000, labels=labels),
        ]
    )
    found: list[ListedNode] = []
    token = ""
    while token or not found:
        reply = node_list.list_nodes(fleet.state, ListNodesRequest("own-1", 3, token), fleet.now)
        found, token = [*found, *reply.nodes], reply.next_page_token
    assert [(one.name, one.ready, one.cordoned, one.loan, one.stands_for) for one in found] == [
        ("a", False, False, "", ""),
        ("b", True, False, "lent", ""),
        ("c", True, True, "", ""),
        ("own-2-n7", True, False, "", "own-2/n7"),
    ]
    assert found[0].taints == ("node.kubernetes.io/not-ready:NoSchedule",)
    assert (dict(found[2].allocatable)["cpu"], found[2].requested) == (4000, (("cpu", 1500),))
    assert reply.age_ms == 0


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        (
            ListNodesRequest("own-9"),
            "NOT_FOUND",
            "cluster: 'own-9': no cluster has this name; the fleet has own-1, own-2",
        ),
        (ListNodesRequest("own-1", 5000), "INVALID_ARGUMENT", "page_size: 5000: expected 1 to 1000"),
    ],
)
def test_nodes_of_no_cluster_and_too_many_at_once_are_refused(
    fleet: Fleet, request_: ListNodesRequest, code: str, text: str
) -> None:
    assert_refused(lambda: node_list.list_nodes(fleet.state, request_, fleet.now), code, text)


# ── What is asked for by name goes on ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("scope", ["fleet", "cluster/own-1", "workload/default/web"])
def test_apply_scale_and_delete_go_on_under_a_brake(fleet: Fleet, scope: str) -> None:
    freeze_scope(fleet, scope)
    state = fleet.state
    apply_to_fleet(
        fleet, decisions.decide_apply(state, ApplyRequest(manifest_texts(deployment(24))), fleet.next_moment()).events
    )
    assert sum(part.replicas for part in state.workloads["default", "web"].parts.values()) == 24
    apply_to_fleet(fleet, decisions.decide_scale(state, ScaleRequest("", "web", 6), fleet.next_moment()).events)
    assert sum(part.replicas for part in state.workloads["default", "web"].parts.values()) == 6
    apply_to_fleet(fleet, decisions.decide_delete(state, DeleteRequest("", "web"), fleet.next_moment()).events)
    assert all(part.removing for part in state.workloads["default", "web"].parts.values())


# ── One API server under several names ──────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def twins() -> Fleet:
    """z-first has room for 12; a-twin joined later and is the same API server; other is another one, and full."""
    fleet = Fleet()
    for name, server, cpu in (("z-first", "u1", 12_000), ("a-twin", "u1", 12_000), ("other", "u2", 0)):
        joined, _ = membership.join_cluster(fleet.state, JoinClusterRequest(name, name))
        fleet.state.apply_event(joined, fleet.now)
        fleet.report_full_block(name, [node_row("n", cpu)], api_server=server)
        fleet.send_heartbeats(name)
    return fleet


def state_and_trouble_by_cluster(fleet: Fleet) -> dict[str, tuple[str, str]]:
    clusters = answers.list_clusters(fleet.state, fleet.now).clusters
    return {one.cluster: (one.state, one.trouble) for one in clusters}


@pytest.mark.parametrize(
    ("said", "state", "code"),
    [
        pytest.param({"trouble": "words", "trouble_code": 2}, "Unreachable", TroubleCode.NOT_ALLOWED, id="a code"),
        pytest.param({"trouble": "nodes: forbidden: no"}, "Unreachable", TroubleCode.NOT_ALLOWED, id="of before codes"),
        pytest.param({"unread": "volumes: no"}, "Ready", TroubleCode.NOT_ALLOWED, id="done without a right"),
        pytest.param({}, "Ready", TroubleCode.UNSPECIFIED, id="none"),
    ],
)
def test_a_cluster_is_shown_with_the_code_of_its_trouble(
    fleet: Fleet, said: dict[str, Any], state: str, code: TroubleCode
) -> None:
    fleet.report_change("own-1", **said)
    (shown, _) = answers.list_clusters(fleet.state, fleet.now).clusters
    assert (shown.state, shown.trouble_code) == (state, code)


def test_a_caller_of_some_namespaces_sees_which_clusters_there_are_and_nothing_of_others(fleet: Fleet) -> None:
    apply_to_fleet(
        fleet,
        decisions.decide_apply(fleet.state, ApplyRequest(manifest_texts(deployment(3))), fleet.next_moment()).events,
    )
    fleet.report_change(
        "own-1", trouble="credentials: no file /etc/spillway/own-1", trouble_code=TroubleCode.UNREACHABLE
    )
    reply = answers.list_clusters(fleet.state, fleet.now)
    (whole,) = (one for one in reply.clusters if one.cluster == "own-1")
    assert whole.replicas
    assert clusters_seen_by(Caller("root"), reply) == reply
    of_shop = clusters_seen_by(Caller("shop", namespaces=frozenset({"shop"})), reply).clusters
    assert [one.cluster for one in of_shop] == [one.cluster for one in reply.clusters]
    (shown,) = (one for one in of_shop if one.cluster == "own-1")
    assert (shown.state, shown.tier, shown.trouble_code) == ("Unreachable", whole.tier, whole.trouble_code)
    assert (shown.nodes, shown.allocatable) == (whole.nodes, whole.allocatable)
    hidden = (shown.credential, shown.endpoint, shown.trouble, shown.requested, shown.replicas, shown.workloads)
    assert hidden == ("", "", "", (), 0, 0)


def test_a_caller_of_some_namespaces_is_not_told_who_holds_a_cluster(fleet: Fleet) -> None:
    set_cluster_phase(fleet, PHASE_DRAINING)
    reply = answers.list_clusters(fleet.state, fleet.now)
    assert any(one.left for one in reply.clusters)
    of_shop = clusters_seen_by(Caller("shop", namespaces=frozenset({"shop"})), reply).clusters
    assert not any(one.left for one in of_shop)


def test_what_is_exported_of_a_cluster_has_the_code_of_its_trouble(fleet: Fleet) -> None:
    fleet.report_change("own-1", trouble="words", trouble_code=TroubleCode.UNWRITABLE)
    beats = [
        event for event, _ in exporting.exported_events(fleet.state, fleet.now) if isinstance(event, CapacityChanged)
    ]
    assert [beat.trouble_code for beat in beats if beat.cluster == "own-1"] == [TroubleCode.UNWRITABLE]


def test_an_api_server_counts_under_the_name_that_joined_first(twins: Fleet) -> None:
    told = "the same API server as z-first"
    assert state_and_trouble_by_cluster(twins) == {
        "z-first": ("Ready", ""),
        "a-twin": ("Duplicate", told),
        "other": ("Ready", ""),
    }
    applied = decisions.decide_apply(twins.state, ApplyRequest(manifest_texts(deployment(20))), twins.next_moment())
    apply_to_fleet(twins, applied.events)
    assert [(part.cluster, part.replicas) for part in applied.reply.parts] == [("z-first", 12)]
    assert applied.reply.unplaced == 8
    assert {one.cluster: one.limited_by for one in applied.reply.inputs}["a-twin"] == told


def test_whose_record_is_written_again_has_not_joined_later(twins: Fleet) -> None:
    set_cluster_phase(twins, PHASE_CORDONED, "z-first")
    set_cluster_phase(twins, PHASE_ACTIVE, "z-first")
    again, news = membership.join_cluster(twins.state, JoinClusterRequest("z-first", "z-first", zone="b"))
    twins.state.apply_event(again, twins.now)
    assert news
    assert state_and_trouble_by_cluster(twins)["z-first"] == ("Ready", "")
    assert state_and_trouble_by_cluster(twins)["a-twin"][0] == "Duplicate"


def note_api_servers(fleet: Fleet) -> dict[str, str]:
    """As each round does it; what the records have, by cluster."""
    apply_to_fleet(fleet, newly_known_api_servers(fleet.state.clusters))
    return {joined.cluster: joined.api_server for joined in fleet.state.joined_clusters()}


def test_a_cluster_that_says_anothers_api_server_is_the_one_that_is_not_believed(twins: Fleet) -> None:
    """Also where it joined first, and for a planner that reads the log anew."""
    assert note_api_servers(twins) == {"z-first": "", "a-twin": "", "other": "u2"}
    apply_to_fleet(twins, [ClusterLeft("a-twin")])
    assert note_api_servers(twins) == {"z-first": "u1", "other": "u2"}
    records = list(twins.state.joined_clusters())
    twins.report_full_block("z-first", [node_row("n", 12_000)], api_server="u2")
    again = Fleet()
    for joined in records:
        again.state.apply_event(joined, again.now)
    for name in ("z-first", "other"):
        again.report_full_block(name, [node_row("n", 12_000)], api_server="u2")
        again.send_heartbeats(name)
    for fleet in (twins, again):
        told = "the same API server as other"
        assert state_and_trouble_by_cluster(fleet) == {"z-first": ("Duplicate", told), "other": ("Ready", "")}
        assert note_api_servers(fleet) == {"z-first": "u1", "other": "u2"}


def test_a_cluster_that_is_reached_in_another_way_may_be_another_one(twins: Fleet) -> None:
    apply_to_fleet(twins, [ClusterLeft("a-twin")])
    note_api_servers(twins)
    same, _ = membership.join_cluster(twins.state, JoinClusterRequest("z-first", "z-first", zone="b"))
    assert same.api_server == "u1"
    moved, _ = membership.join_cluster(twins.state, JoinClusterRequest("z-first", "z-first", endpoint="https://z:6443"))
    assert moved.api_server == ""


def test_fleets_from_before_the_count_go_by_name() -> None:
    fleet = Fleet(own_1=[node_row("a")], own_2=[node_row("a")])
    for name in ("own-2", "own-1"):
        fleet.report_full_block(name, [node_row("a")], api_server="u1")
    assert state_and_trouble_by_cluster(fleet) == {
        "own-1": ("Ready", ""),
        "own-2": ("Duplicate", "the same API server as own-1"),
    }


def test_the_other_name_takes_replicas_once_the_first_has_left(twins: Fleet) -> None:
    apply_to_fleet(
        twins,
        decisions.decide_apply(twins.state, ApplyRequest(manifest_texts(deployment(20))), twins.next_moment()).events,
    )
    revision = twins.state.room_revision("a-twin")
    twins.state.apply_event(ClusterLeft("z-first"), twins.now)
    assert state_and_trouble_by_cluster(twins)["a-twin"] == ("Ready", "")
    assert twins.state.room_revision("a-twin") != revision
    assert ("default", "web") in list(twins.state.waiting.due_workloads(9))


def test_what_is_placed_under_the_other_name_stays(fleet: Fleet) -> None:
    """As of a fleet that joined before API servers were told apart."""
    before = {cluster: part.replicas for cluster, part in fleet.state.workloads["default", "web"].parts.items()}
    for name in ("own-1", "own-2"):
        fleet.report_full_block(name, [node_row("a", 12_000)], api_server="u1")
    assert state_and_trouble_by_cluster(fleet)["own-2"][0] == "Duplicate"
    apply_to_fleet(
        fleet, decisions.decide_scale(fleet.state, ScaleRequest("default", "web", 21), fleet.next_moment()).events
    )
    after = {cluster: part.replicas for cluster, part in fleet.state.workloads["default", "web"].parts.items()}
    assert after == before | {"own-1": after["own-1"]}
    assert after["own-1"] >= before["own-1"]


def test_another_credential_may_end_it(twins: Fleet) -> None:
    twins.report_full_block("a-twin", [node_row("n", 12_000)], api_server="u3")
    assert state_and_trouble_by_cluster(twins)["a-twin"] == ("Ready", "")


def test_a_twin_with_nothing_placed_leaves_at_once(twins: Fleet) -> None:
    assert leave_cluster(twins, "a-twin").cluster.trouble == "the same API server as z-first"
    assert moves.clusters_that_left(twins.state) == (ClusterLeft("a-twin"),)
