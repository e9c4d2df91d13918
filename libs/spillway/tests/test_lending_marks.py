"""The names and marks of lending: no two things share a name, and a row says what its taint says."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.lending_marks import (
    LENDING,
    LOAN,
    loan_state_from_taints,
    loan_text,
    name_within_label_length,
    namespace_in_owner,
    object_name_in_owner,
    read_loan,
    virtual_node_name,
)
from spillway.model import NODE_LENT, NODE_OWNED, NODE_RECALLED, Generation, Taint

DNS_LABELS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,70}[a-z0-9])?", fullmatch=True)
NODE_NAMES = st.lists(DNS_LABELS, min_size=1, max_size=3).map(".".join)
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


@pytest.mark.parametrize(
    ("taints", "state"),
    [
        pytest.param([], NODE_OWNED, id="no taint"),
        pytest.param([Taint("other", "lent", "NoSchedule")], NODE_OWNED, id="another's taint"),
        pytest.param([Taint(LENDING, "checking", "NoSchedule")], NODE_LENT, id="checking counts nowhere"),
        pytest.param([Taint(LENDING, "lent", "NoSchedule")], NODE_LENT, id="lent"),
        pytest.param([Taint(LENDING, "recalled", "NoSchedule")], NODE_RECALLED, id="recalled"),
        pytest.param([Taint(LENDING, "", "NoSchedule")], NODE_RECALLED, id="no value that is known"),
        pytest.param(
            [Taint(LENDING, "lent", "NoSchedule"), Taint(LENDING, "recalled", "NoExecute")],
            NODE_RECALLED,
            id="two that contradict each other",
        ),
    ],
)
def test_a_row_says_what_its_taint_says(taints: list[Taint], state: int) -> None:
    assert loan_state_from_taints(taints) == state


@given(st.tuples(DNS_LABELS, NODE_NAMES), st.tuples(DNS_LABELS, NODE_NAMES))
def test_two_nodes_have_two_virtual_names(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert LABEL_VALUE.fullmatch(virtual_node_name(*one))
    assert (virtual_node_name(*one) == virtual_node_name(*other)) == (one == other)


def test_a_dash_in_a_name_makes_no_two_nodes_one() -> None:
    """Where the separator was a dash, these two were one."""
    assert virtual_node_name("a-b", "c") != virtual_node_name("a", "b-c")


@given(DNS_LABELS, DNS_LABELS, DNS_LABELS)
def test_equal_names_of_two_pools_are_two_names(name: str, namespace: str, other: str) -> None:
    ours = object_name_in_owner("pool-1", name, namespace, "Secret", name)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", ours)
    assert ours != object_name_in_owner("pool-2", name, namespace, "Secret", name)
    assert ours != object_name_in_owner("pool-1", name, namespace, "ConfigMap", name)
    assert (ours == object_name_in_owner("pool-1", name, other, "Secret", name)) == (namespace == other)


def test_parts_of_a_name_are_told_apart() -> None:
    assert object_name_in_owner("p", "x", "a-b", "c") != object_name_in_owner("p", "x", "a", "b-c")


def test_a_namespace_of_63_characters_has_a_place() -> None:
    names = {namespace_in_owner("n" * 62 + end) for end in "ab"}
    assert len(names) == 2
    assert max(map(len, names)) == 63
    assert namespace_in_owner("shop") == "spillway-lent-shop"
    assert name_within_label_length("short") == "short"


@pytest.mark.parametrize(
    ("text", "loan"),
    [
        ("7.12", Generation(7, 12)),
        ("", None),
        ("7", None),
        ("7.x", None),
        ("-1.2", None),
        ("99999999999999999999.1", None),
        (f"1.{'9' * 5000}", None),
        ("٥.٢", None),
    ],
)
def test_a_loan_is_read_back_or_is_none(text: str, loan: Generation | None) -> None:
    assert read_loan({LOAN: text}) == loan
    if loan is not None:
        assert loan_text(loan) == text
