"""Reads and writes the register on the owner's node: its taint, label and annotations. See docs/lending.md."""

from collections.abc import Sequence
from typing import Any

from spillway.lending_marks import (
    CHECKING,
    FLEET,
    LEND,
    LENDING,
    LENT,
    LOAN,
    NEVER,
    POOL_CLUSTER,
    RECALL_CAUSE,
    RECALLED,
    loan_text,
    read_loan,
)
from spillway.model import Generation
from vk_bridge.core.node.loan import OWNED, Manifest, OwnerNode
from vk_bridge.core.node.steps import Mark


def read_owner_node(node: Manifest, fleet: str) -> OwnerNode:
    """Returns the register of a node.

    An inconsistent register reads as recalled, because every step from there is safe.
    """
    metadata = node["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    values = [
        taint.get("value", "") for taint in (node.get("spec") or {}).get("taints") or () if taint.get("key") == LENDING
    ]
    loan = read_loan(annotations)
    marked = bool(values) or any(
        key in labels or key in annotations for key in (LENDING, LOAN, POOL_CLUSTER, RECALL_CAUSE)
    )
    return OwnerNode(
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        state=_register_state(values, labels.get(LENDING, ""), loan),
        loan=loan,
        cause=annotations.get(RECALL_CAUSE, ""),
        marked=marked,
        foreign=marked and labels.get(FLEET, fleet) != fleet,
        opted_out=labels.get(LEND) == NEVER,
        pool=annotations.get(POOL_CLUSTER, ""),
    )


def _register_state(values: Sequence[str], label: str, loan: Generation | None) -> str:
    if not values:
        return OWNED
    if values == [CHECKING] and not label and loan is not None:
        return CHECKING
    if values == [LENT] and label == LENT and loan is not None:
        return LENT
    return RECALLED


def mark_patch(node: Manifest, mark: Mark, fleet: str) -> dict[str, Any]:
    """Returns the JSON merge patch that sets this mark on the node as it was read.

    The server refuses it (409) for a node that has changed. State OWNED removes all our marks, and nothing else.
    """
    theirs = [taint for taint in (node.get("spec") or {}).get("taints") or () if taint.get("key") != LENDING]
    ours = [{"key": LENDING, "value": mark.state, "effect": "NoSchedule"}] if mark.state != OWNED else []
    held = mark.state != OWNED
    # Only the first mark of a loan names the pool. Later marks leave that annotation as it is.
    pool = {POOL_CLUSTER: mark.pool or None} if mark.pool or not held else {}
    return {
        "metadata": {
            "uid": mark.node.uid,
            "resourceVersion": mark.node.resource_version,
            "labels": {LENDING: LENT if mark.state == LENT else None, FLEET: fleet if held else None},
            "annotations": {
                LOAN: loan_text(mark.loan) if mark.loan is not None else None,
                RECALL_CAUSE: mark.cause or None,
                **pool,
            },
        },
        "spec": {"taints": [*theirs, *ours] or None},
    }
