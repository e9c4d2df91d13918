"""The accounting of lending can fail: each kind of planted loss is found, and what is right is not called wrong."""

from dataclasses import replace

import pytest

from spillway_chaos.ledger import finding_count_by_kind
from spillway_chaos.lending_ledger import (
    LendingSeen,
    PodSeen,
    find_doubled_pods,
    find_errors_at_home,
    find_errors_while_lent,
    nodes_open_and_owned,
)

A, B = ("own-1", "n1"), ("own-2", "n1")
POOLED = (PodSeen("p1", "own-1.n1", True, False), PodSeen("p2", "own-2.n1", True, False))
REAL = {"own-1": (PodSeen("r1", "n1", True, False, "p1"),), "own-2": (PodSeen("r2", "n1", True, False, "p2"),)}
LENT = LendingSeen({A: "lent", B: "lent"}, {"own-1.n1": True, "own-2.n1": True}, POOLED, REAL)
OWN = {"own-1": (PodSeen("o1", "n1", True, False),), "own-2": (PodSeen("o2", "n1", True, False),)}
WAITING = tuple(PodSeen(uid, "", False, False) for uid in ("p3", "p4"))
HOME = LendingSeen({A: "", B: ""}, {}, WAITING, {}, OWN)


def test_what_is_lent_or_at_home_is_right() -> None:
    assert list(find_errors_while_lent(LENT, 2)) == []
    assert list(find_errors_at_home(HOME)) == []
    assert nodes_open_and_owned(LENT) == nodes_open_and_owned(HOME) == []
    assert list(find_doubled_pods(LENT)) == []


GONE = replace(POOLED[0], runs=False, going=True)


@pytest.mark.parametrize(
    ("seen", "kinds"),
    [
        pytest.param(replace(LENT, states={A: "recalled", B: "lent"}), {"lost": 1}, id="a node not lent again"),
        pytest.param(replace(LENT, opened={"own-1.n1": True}), {"lost": 1}, id="its virtual node is not there"),
        pytest.param(replace(LENT, pooled=POOLED[1:]), {"lost": 1, "orphaned": 1}, id="a pool pod is gone"),
        pytest.param(replace(LENT, real={"own-1": REAL["own-1"]}), {"lost": 1}, id="a real pod is gone"),
        pytest.param(
            replace(LENT, real={**REAL, "own-2": (replace(REAL["own-2"][0], node="n2"),)}),
            {"lost": 1},
            id="a real pod on another node",
        ),
        pytest.param(
            replace(LENT, real={**REAL, "own-2": REAL["own-2"] * 2}), {"doubled": 1}, id="two real pods of one"
        ),
        pytest.param(replace(LENT, pooled=(*POOLED, WAITING[0])), {"doubled": 1}, id="more than was asked for"),
        pytest.param(replace(LENT, pooled=(*POOLED, replace(GONE, uid="p9"))), {}, id="one that is going"),
        pytest.param(replace(LENT, own=OWN), {"doubled": 2}, id="the owners' own, which nobody asks for"),
    ],
)
def test_what_is_wrong_while_all_is_lent(seen: LendingSeen, kinds: dict[str, int]) -> None:
    assert {
        kind: count for kind, count in finding_count_by_kind(find_errors_while_lent(seen, 2)).items() if count
    } == kinds


@pytest.mark.parametrize(
    ("seen", "kinds"),
    [
        pytest.param(replace(HOME, states={A: "recalled", B: ""}), {"kept": 1}, id="never given back"),
        pytest.param(replace(HOME, opened={"own-1.n1": False}), {"kept": 1}, id="a virtual node is left"),
        pytest.param(replace(HOME, opened={"own-3.n1": False}), {"kept": 1}, id="one that stands for none"),
        pytest.param(replace(HOME, real=REAL), {"orphaned": 2}, id="real pods are left"),
        pytest.param(replace(HOME, pooled=(*WAITING, GONE)), {"orphaned": 1}, id="a pool pod was never let go"),
        pytest.param(replace(HOME, own={"own-1": OWN["own-1"]}), {"lost": 1}, id="an owner's pod is gone"),
        pytest.param(replace(HOME, own={**OWN, "own-1": OWN["own-1"] * 2}), {"doubled": 1}, id="one too many"),
    ],
)
def test_what_is_wrong_while_all_is_at_home(seen: LendingSeen, kinds: dict[str, int]) -> None:
    assert {kind: count for kind, count in finding_count_by_kind(find_errors_at_home(seen)).items() if count} == kinds


def test_what_is_wrong_at_any_moment() -> None:
    """Two real pods of one pool pod, but not while one of them goes; a node that both may use."""
    twice = replace(LENT, real={"own-1": REAL["own-1"] * 2})
    assert finding_count_by_kind(finding for _, finding in find_doubled_pods(twice))["doubled"] == 1
    going = replace(LENT, real={"own-1": (*REAL["own-1"], replace(REAL["own-1"][0], going=True))})
    assert list(find_doubled_pods(going)) == []
    assert nodes_open_and_owned(replace(LENT, states={A: "", B: "recalled"})) == [A]
