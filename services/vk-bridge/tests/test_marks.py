"""The register is read as it was written, and what is not ours on a node is left as it was."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.lending_marks import CHECKING, FLEET, LEND, LENDING, LENT, LOAN, RECALLED, loan_state_from_taints
from spillway.model import NODE_LENT, NODE_OWNED, NODE_RECALLED, Generation, Taint
from vk_bridge.core.node.loan import OWNED
from vk_bridge.core.node.marks import mark_patch, read_owner_node
from vk_bridge.core.node.steps import Mark, WriteTarget


def node_manifest(value: str | None, label: str = "", loan: str = "7.1", **labels: str) -> dict[str, Any]:
    taints = [] if value is None else [{"key": LENDING, "value": value, "effect": "NoSchedule"}]
    return {
        "metadata": {
            "uid": "n",
            "resourceVersion": "5",
            "labels": labels | ({LENDING: label} if label else {}),
            "annotations": {LOAN: loan} if loan else {},
        },
        "spec": {"taints": taints},
    }


@pytest.mark.parametrize(
    ("manifest", "state", "marked"),
    [
        pytest.param(node_manifest(None, loan=""), OWNED, False, id="nothing of ours"),
        pytest.param(node_manifest(None), OWNED, True, id="an annotation was left over"),
        pytest.param(node_manifest("checking"), CHECKING, True, id="checking"),
        pytest.param(node_manifest("checking", loan=""), RECALLED, True, id="checking, of no loan"),
        pytest.param(node_manifest("lent", "lent"), LENT, True, id="lent"),
        pytest.param(node_manifest("lent"), RECALLED, True, id="lent, but the label was taken off"),
        pytest.param(node_manifest("lent", "lent", loan="x"), RECALLED, True, id="lent, of no loan that can be read"),
        pytest.param(node_manifest("recalled"), RECALLED, True, id="recalled"),
        pytest.param(node_manifest("anything"), RECALLED, True, id="a value that is not known"),
    ],
)
def test_a_register_that_makes_no_sense_reads_as_recalled(manifest: dict[str, Any], state: str, marked: bool) -> None:
    read = read_owner_node(manifest, "fleet-1")
    assert (read.state, read.marked, read.foreign) == (state, marked, False)


def test_marks_of_another_fleet_and_an_opt_out_are_seen() -> None:
    assert read_owner_node(node_manifest("lent", "lent", **{FLEET: "other"}), "fleet-1").foreign
    assert not read_owner_node(node_manifest(None, loan="", **{FLEET: "other"}), "fleet-1").foreign
    assert read_owner_node(node_manifest(None, loan="", **{LEND: "never"}), "fleet-1").opted_out


def apply_merge_patch(target: Any, patch: Any) -> Any:
    """JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = apply_merge_patch(found.get(key), value)
    return found


TEXTS = st.sampled_from(["a", "b", "team", "gpu"])
THEIRS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {
                "uid": st.just("n"),
                "resourceVersion": st.just("5"),
                "labels": st.dictionaries(TEXTS, TEXTS, max_size=2),
                "annotations": st.dictionaries(TEXTS, TEXTS, max_size=2),
            }
        ),
        "spec": st.lists(
            st.fixed_dictionaries({"key": TEXTS, "effect": st.sampled_from(["NoSchedule", "NoExecute"])}), max_size=3
        ).map(lambda taints: {"unschedulable": True, **({"taints": taints} if taints else {})}),
    }
)
WAY = [(CHECKING, ""), (LENT, ""), (RECALLED, "Need"), (OWNED, "")]
ROW_STATE = {CHECKING: NODE_LENT, LENT: NODE_LENT, RECALLED: NODE_RECALLED, OWNED: NODE_OWNED}


@given(THEIRS)
def test_a_loan_leaves_a_node_as_it_was(before: dict[str, Any]) -> None:
    """Through all states: each is read as it was written, a row says so, and at the end nothing has changed."""
    node = deepcopy(before)
    for state, cause in WAY:
        loan = None if state == OWNED else Generation(7, 1)
        pool = "pool-1" if state == CHECKING else ""
        patch = mark_patch(node, Mark(WriteTarget("n", "5"), state, loan, cause, pool), "fleet-1")
        assert (patch["metadata"]["uid"], patch["metadata"]["resourceVersion"]) == ("n", "5")
        node = apply_merge_patch(node, patch)
        read = read_owner_node(node, "fleet-1")
        assert (read.state, read.loan, read.cause, read.foreign) == (state, loan, cause, False)
        assert read.pool == ("" if state == OWNED else "pool-1")
        assert read_owner_node(node, "fleet-2").foreign == (state != OWNED)
        assert (node["metadata"]["labels"].get(LENDING) == LENT) == (state == LENT)
        taints = [Taint(one["key"], one.get("value", ""), one["effect"]) for one in node["spec"].get("taints", ())]
        assert loan_state_from_taints(taints) == ROW_STATE[state]
    assert node == before
