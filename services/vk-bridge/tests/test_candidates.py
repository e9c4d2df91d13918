"""Which nodes are lent: each reason against one, shares and reserves, and never more than they allow."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert

from spillway.events_lending import LendingDeclared, LendingRule
from spillway.lending_marks import CHECKING, LEND, LENDING, LENT, LOAN, RECALLED, loan_text
from spillway.model import (
    SUPPLY_DEDICATED,
    SUPPLY_IDLE,
    Generation,
    NodeTerm,
    Requirement,
    Shape,
    Taint,
    Toleration,
)
from vk_bridge.core.log_state import LendingLogState
from vk_bridge.core.node.loan import OWNED, Observation, OwnerNode
from vk_bridge.core.selection.candidates import (
    CandidateNode,
    NodeVerdict,
    decide_verdicts_in_slices,
    may_use_node,
    verdict_by_node,
)
from vk_bridge.core.selection.desired_loans import DesiredLoans, KubeletAddress
from vk_bridge.core.selection.owner_cache import OwnerCache, WatchedNode

GIB = 1 << 30
RULE = LendingRule("idle", (), SUPPLY_IDLE, 100, 0, 600, 0.0)
DECLARED = LendingDeclared("own-1", Generation(1, 1), "pool", (RULE,), 30, 1800, 0, False, False, "me", "", 0)
NODE = CandidateNode(
    "n1", {"size": "big"}, (), {"cpu": 4000, "memory": 8 * GIB, "pods": 110}, True, False, OWNED, idle_seconds=700
)
NEED = Shape("shop", (("cpu", 2000), ("pods", 1)))


def reason_of_verdict(node: CandidateNode, declared: LendingDeclared | None = DECLARED, *needs: Shape | None) -> str:
    return verdict_by_node([node], declared, needs)[node.name].why


def test_an_idle_node_is_wanted() -> None:
    assert reason_of_verdict(NODE) == ""
    assert verdict_by_node([NODE], DECLARED, ())["n1"].rule == "idle"


@pytest.mark.parametrize(
    ("node", "declared", "says"),
    [
        (NODE, None, "no lending is declared"),
        (NODE, replace(DECLARED, withdrawing=True), "no lending is declared"),
        (NODE, replace(DECLARED, paused=True), "lending is paused"),
        (NODE, replace(DECLARED, rules=()), "no rule is about it"),
        (replace(NODE, foreign=True), DECLARED, "another fleet has marked it"),
        (replace(NODE, labels={LEND: "never"}), DECLARED, "label spillway.io/lend=never"),
        (replace(NODE, ready=False), DECLARED, "not ready"),
        (replace(NODE, unschedulable=True), DECLARED, "cordoned"),
        (replace(NODE, idle_seconds=599.4), DECLARED, "idle for 599 s of 600 s"),
        (replace(NODE, returned_seconds=1799.0), DECLARED, "returned 1799 s ago, of 1800 s"),
        (replace(NODE, returned_seconds=1800.0), DECLARED, ""),
        (replace(NODE, labels={LEND: "yes"}), DECLARED, ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_keeps_a_node_from_being_lent(node: CandidateNode, declared: LendingDeclared | None, says: str) -> None:
    assert reason_of_verdict(node, declared) == says


def test_a_node_that_is_being_lent_needs_no_idle_time_and_has_its_place_in_the_share() -> None:
    tight = replace(DECLARED, rules=(replace(RULE, share_percent=50),))
    checking = replace(NODE, name="n2", state=CHECKING, idle_seconds=0)
    found = verdict_by_node([NODE, checking], tight, ())
    assert (found["n1"].why, found["n2"].why) == ("the share of 50 % is lent", "")


def test_what_was_thought_of_a_node_while_it_was_lent_says_nothing_of_it_once_it_is_back() -> None:
    """A node may be read as its owner's again before a watch tells of it: it is not lent anew on the old verdict."""
    loan = Generation(4, 2)
    manifest = {
        "metadata": {
            "name": "n1",
            "uid": "u1",
            "resourceVersion": "7",
            "labels": {LENDING: LENT},
            "annotations": {LOAN: loan_text(loan)},
        },
        "spec": {"taints": [{"key": LENDING, "value": LENT, "effect": "NoSchedule"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    state, owner_cache = LendingLogState(), OwnerCache("own-1", "f1")
    state.apply_event(DECLARED)
    owner_cache.put_node(convert(manifest, WatchedNode), 0.0)
    desired_loans = DesiredLoans("own-1", "f1", state, owner_cache, KubeletAddress("", {}), lambda: 0)
    assert not list(filter(None, desired_loans.review_nodes(100)))

    def is_to_be_lent(register: OwnerNode) -> bool:
        return desired_loans.desired_loan_of_node(
            "n1", Observation(0.0, register, None), Generation(4, 3), pool_joined=True, log_away=False
        ).lend

    lent = owner_cache.nodes["n1"].register
    assert lent.state == LENT
    assert is_to_be_lent(lent)
    assert not is_to_be_lent(replace(lent, state=OWNED, loan=None))


def test_a_dedicated_node_is_lent_at_once() -> None:
    rules = (LendingRule("batch", (Requirement("for", "In", ("batch",)),), SUPPLY_DEDICATED, 100, 0, 0, 0.0), RULE)
    declared = replace(DECLARED, rules=rules)
    assert reason_of_verdict(replace(NODE, labels={"for": "batch"}, idle_seconds=0), declared) == ""
    assert reason_of_verdict(replace(NODE, idle_seconds=0), declared) == "idle for 0 s of 600 s"


@pytest.mark.parametrize(
    ("need", "could"),
    [
        pytest.param(None, True, id="nobody knows what it asks for"),
        pytest.param(NEED, True, id="fits"),
        pytest.param(replace(NEED, requests=(("cpu", 4001), ("pods", 1))), False, id="too large for it, were it empty"),
        pytest.param(replace(NEED, requests=(("nvidia.com/gpu", 1), ("pods", 1))), False, id="has none of that"),
        pytest.param(replace(NEED, node_selector=(("size", "small"),)), False, id="selects others"),
        pytest.param(replace(NEED, node_name="n2"), False, id="names another"),
        pytest.param(
            replace(NEED, node_terms=(NodeTerm((Requirement("size", "NotIn", ("big",)),), ()),)), False, id="affinity"
        ),
        pytest.param(
            replace(NEED, node_terms=(NodeTerm((), (Requirement("metadata.name", "In", ("n9",)),)),)),
            True,
            id="a field: not looked at, so it might",
        ),
    ],
)
def test_a_node_that_a_need_could_use_is_not_lent(need: Shape | None, could: bool) -> None:
    assert may_use_node(need, NODE) == could
    assert reason_of_verdict(NODE, DECLARED, need) == ("pods of its owner wait, and might use it" if could else "")


def test_taints_of_its_owner_keep_needs_away_and_ours_do_not() -> None:
    ours, theirs = Taint(LENDING, CHECKING, "NoSchedule"), Taint("team", "a", "NoSchedule")
    passing = Taint("node.kubernetes.io/not-ready", "", "NoSchedule")
    assert may_use_node(NEED, replace(NODE, taints=(ours, passing, Taint("soft", "", "PreferNoSchedule"))))
    assert not may_use_node(NEED, replace(NODE, taints=(theirs,)))
    tolerant = replace(NEED, tolerations=(Toleration("team", "Equal", "a", ""),))
    assert may_use_node(tolerant, replace(NODE, taints=(theirs,)))


STATES = st.sampled_from([OWNED, OWNED, OWNED, CHECKING, LENT, RECALLED])


@given(
    st.lists(st.tuples(STATES, st.integers(0, 1200)), max_size=12),
    st.integers(0, 100),
    st.integers(0, 5),
    st.randoms(use_true_random=False),
)
def test_shares_and_reserves_hold_in_whatever_order_nodes_come(
    seeds: list[tuple[str, int]], share_percent: int, reserve_nodes: int, random: object
) -> None:
    declared = replace(DECLARED, rules=(replace(RULE, share_percent=share_percent, reserve_nodes=reserve_nodes),))
    nodes = [
        replace(NODE, name=f"n{number}", state=state, idle_seconds=idle) for number, (state, idle) in enumerate(seeds)
    ]
    found = verdict_by_node(nodes, declared, ())
    shuffled = list(nodes)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert verdict_by_node(shuffled, declared, ()) == found
    away = sum(node.state != OWNED for node in nodes)
    new = [node for node in nodes if node.state == OWNED and found[node.name].is_wanted]
    idle = [node for node in nodes if node.state == OWNED and node.idle_seconds >= 600]
    assert len(new) <= max(0, len(nodes) * share_percent // 100 - away)
    assert len(new) <= max(0, len(idle) - reserve_nodes)
    assert all(node in idle for node in new)
    left_out = [node.idle_seconds for node in idle if node not in new]
    assert not new or not left_out or min(node.idle_seconds for node in new) >= max(left_out)


@given(st.integers(0, 30), st.integers(1, 12))
def test_who_decides_in_pieces_decides_the_same_and_no_piece_is_longer_than_it_is_told(count: int, piece: int) -> None:
    """Between two pieces the bridge carries out what is due."""
    nodes = [replace(NODE, name=f"n{number}", idle_seconds=number) for number in range(count)]
    looked_at: list[str] = []
    found: dict[str, NodeVerdict] = {}
    pieces = []
    for _ in decide_verdicts_in_slices(
        (looked_at.append(node.name) or node for node in nodes), DECLARED, (), piece, found
    ):  # type: ignore[func-returns-value]
        pieces.append(len(looked_at) - sum(pieces))
    assert found == verdict_by_node(nodes, DECLARED, ())
    assert all(length <= piece for length in pieces)
    assert len(looked_at) - sum(pieces) <= piece
