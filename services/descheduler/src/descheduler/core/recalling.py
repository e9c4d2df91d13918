"""Decides the records that follow from the state of lending.

These are recalls for needs within budgets, recalls of withdrawn lending, and the settlement of recalls.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from descheduler.core.choosing import LentNodes, choose_nodes
from descheduler.core.losses import budgets_left, least_priority, loss_of, lost_by_group, recent_loss_by_controller
from descheduler.core.needs import needs_of_cluster
from descheduler.core.rules import is_recent
from descheduler.core.state import MINUTE_MS, DeschedulerState, NodeKey
from spillway.addresses import LENDING_RULES, RECALLS, RecordAddress, Tombstone, lending_address
from spillway.events import Event
from spillway.events_lending import (
    CAUSE_ASKED,
    CAUSE_NEED,
    LOAN_LENT,
    LendingDeclared,
    NodeLent,
    NodeRecalled,
    RecallSettled,
)
from spillway.feasibility.after_return import nodes_after_return
from spillway.model import NODE_OWNED, Generation

MILLI = 1000
GRACE_SECONDS = 30
"""The grace for a cluster without a declaration."""
BY = "descheduler"
Written = Event | Tombstone
T = TypeVar("T")
NextGeneration = Callable[[], Generation]


class RecallGuard(Protocol):
    """A function that makes the decision for one cluster, and limits an error to that cluster (docs/adr/0037)."""

    def __call__(self, cluster: str, decide: Callable[[], T], /) -> T | None:
        """Returns the decision; None when it meets an error, or while its cluster is left alone after one."""
        ...


def decide_unguarded(_: str, decide: Callable[[], T]) -> T:
    """Returns the decision and lets any error through. Tests use it."""
    return decide()


def decide_dirty_clusters(
    state: DeschedulerState, next_generation: NextGeneration, now_ms: int, guard: RecallGuard = decide_unguarded
) -> Iterator[tuple[str, Sequence[Written]]]:
    """Yields (cluster, events) for every cluster that changed and has something due.

    Each step is decided on the state that the steps before have left. So the caller applies the events of a step before
    it asks for the next one.
    """
    dirty, state.dirty = state.dirty, set()
    for cluster in sorted(dirty):
        for decide in (settle_recalls, recall_withdrawn_nodes, recall_for_needs):
            events = guard(cluster, partial(decide, state, cluster, next_generation, now_ms))
            if events:
                yield cluster, events


def apply_events(state: DeschedulerState, events: Iterable[Written]) -> None:
    """Applies the decided events to the state from which they were decided."""
    for event in events:
        if isinstance(event, Tombstone):
            state.apply_tombstone(event.address.topic.name, event.address.key)
        else:
            state.apply_event(event)


def settle_recalls(
    state: DeschedulerState, cluster: str, next_generation: NextGeneration, now_ms: int
) -> Sequence[Written]:
    """Returns a RecallSettled for each recall whose loan is over, and tombstones for those without any effect left."""
    events: list[Written] = []
    loans = state.loans.get(cluster, {})
    for node, recall in state.recalls.get(cluster, {}).items():
        loan = loans.get(node)
        if isinstance(recall, NodeRecalled):
            if not isinstance(loan, NodeLent) or loan.loan > recall.loan:
                events.append(
                    RecallSettled(cluster, node, next_generation(), recall.loan, now_ms, recall.lost_by_group)
                )
        elif now_ms - recall.at_ms > state.rules.settled_kept_ms and not isinstance(loan, NodeLent):
            events.append(Tombstone(lending_address(RECALLS, cluster, node)))
    return events


def recall_withdrawn_nodes(
    state: DeschedulerState, cluster: str, next_generation: NextGeneration, now_ms: int
) -> Sequence[Written]:
    """Returns recalls of all nodes lent by a cluster whose lending is withdrawn.

    Once none is lent, returns the tombstone of its declaration.

    The declaration stays until no node of the cluster has our marks. A node that was just being marked is in no record
    of a loan, and without a declaration no bridge works on the cluster.
    """
    declared = state.declared.get(cluster)
    if declared is None or not declared.withdrawing:
        return ()
    lent = state.open_loans_by_node(cluster)
    if not lent:
        if _is_marked(state, cluster) or is_recent(declared.at_ms, now_ms, state.rules.withdrawing_ms):
            return ()
        return (Tombstone(RecordAddress(LENDING_RULES, cluster, cluster)),)
    return [
        make_recall(
            state,
            loan,
            next_generation(),
            RecallCause(CAUSE_ASKED, declared.by, declared.reason or "withdrawn"),
            now_ms,
        )
        for loan in lent.values()
        if not state.is_returning(cluster, loan)
    ]


def _is_marked(state: DeschedulerState, cluster: str) -> bool:
    """Returns whether any node of a cluster in the fleet has a mark of lending, by its collector's records."""
    view = state.views.get(cluster)
    return view is not None and view.joined is not None and view.nodes.has_lent_nodes


def recall_for_needs(
    state: DeschedulerState, cluster: str, next_generation: NextGeneration, now_ms: int
) -> Sequence[Written]:
    """Recalls lent nodes for the owner's pending pods.

    Recalls none while the owner is frozen or its capacity is incomplete.
    """
    loans, view = _loans_open_to_recall(state, cluster, now_ms), state.view_of_cluster(cluster)
    needs = needs_of_cluster(state, cluster) if loans and not state.is_frozen(cluster) else []
    if not needs or view.epoch < 0 or view.is_incomplete:
        _hold_back_nodes(state, cluster, (), now_ms)
        return ()
    nodes = nodes_after_return(view.nodes)
    lately, budgets = recent_loss_by_controller(state, now_ms), budgets_left(state)
    least = least_priority(loans.values())
    losses = {node: loss_of(loan, now_ms, lately, budgets, least) for node, loan in loans.items()}
    promised, limit = state.promised.setdefault(cluster, {}), state.rules.nodes_in_step_max
    just_back = _nodes_just_back(state, cluster, now_ms)
    choice = choose_nodes(
        needs, nodes, LentNodes(losses, _cost_of_return(state, cluster, loans), limit, promised, just_back)
    )
    allowed = _recalls_allowed(state, cluster, now_ms)
    chosen = sorted(choice.nodes, key=lambda node: (losses[node], node))
    since = _hold_back_nodes(state, cluster, chosen[allowed:], now_ms)
    events: list[Written] = []
    for node in chosen[:allowed]:
        held_ms = now_ms - since.get((cluster, node), now_ms)
        whom = sorted(choice.nodes[node].items())
        names, counts = tuple(f"{cluster}/{name}" for name, _ in whom), tuple(count for _, count in whom)
        why = RecallCause(CAUSE_NEED, BY, "pods of the owner wait for it", names, counts, held_ms)
        events.append(make_recall(state, loans[node], next_generation(), why, now_ms))
    # The limit of one step was reached, so the cluster is decided on again in the next step.
    if len(choice.nodes) >= limit:
        state.dirty.add(cluster)
    return events


@dataclass(frozen=True, slots=True)
class RecallCause:
    """The cause of a recall, with the fields of NodeRecalled. grace_seconds: 0 means the cluster's own grace."""

    cause: str
    by: str
    reason: str
    wanted_by: tuple[str, ...] = ()
    wanted_replicas: tuple[int, ...] = ()
    held_back_ms: int = 0
    grace_seconds: int = 0


def make_recall(
    state: DeschedulerState, loan: NodeLent, generation: Generation, why: RecallCause, now_ms: int
) -> NodeRecalled:
    """Returns the NodeRecalled of a loan: with it, the node begins to go back to its owner."""
    return NodeRecalled(
        cluster=loan.cluster,
        node=loan.node,
        generation=generation,
        loan=loan.loan,
        cause=why.cause,
        wanted_by=why.wanted_by,
        grace_seconds=why.grace_seconds or grace_seconds_of(state.declared.get(loan.cluster)),
        held_back_ms=why.held_back_ms,
        by=why.by,
        reason=why.reason,
        at_ms=now_ms,
        wanted_replicas=why.wanted_replicas,
        lost_by_group=lost_by_group(loan, now_ms, state.rules.again_ms),
    )


def grace_seconds_of(declared: LendingDeclared | None) -> int:
    return declared.grace_seconds if declared is not None else GRACE_SECONDS


def _loans_open_to_recall(state: DeschedulerState, cluster: str, now_ms: int) -> dict[str, NodeLent]:
    """Returns the loans that may be ended for a need.

    They are not on their way back, and their node has not just come back.
    """
    found = {}
    for node, loan in state.open_loans_by_node(cluster).items():
        if loan.state != LOAN_LENT or state.is_returning(cluster, loan):
            continue
        before = state.recalls.get(cluster, {}).get(node)
        if isinstance(before, RecallSettled) and is_recent(before.at_ms, now_ms, state.rules.again_ms):
            continue
        found[node] = loan
    return found


def _nodes_just_back(state: DeschedulerState, cluster: str, now_ms: int) -> frozenset[str]:
    """Returns the nodes whose row is the owner's again, and whose recall is not settled or was settled just now."""
    nodes, found = state.view_of_cluster(cluster).nodes, set()
    for node, recall in state.recalls.get(cluster, {}).items():
        row = nodes.row_of(node)
        settled = isinstance(recall, RecallSettled) and not is_recent(recall.at_ms, now_ms, state.rules.bound_ms)
        if row is not None and nodes.state[row] == NODE_OWNED and not settled:
            found.add(node)
    return frozenset(found)


def _cost_of_return(state: DeschedulerState, cluster: str, loans: Mapping[str, NodeLent]) -> int:
    """Returns the average cost of a return apart from lost work, in core-seconds.

    The node is not lent for a cooldown.
    """
    declared = state.declared.get(cluster)
    cores = sum(dict(loan.offered).get("cpu", 0) for loan in loans.values()) // max(len(loans), 1) // MILLI
    return max(cores, 1) * (declared.cooldown_seconds if declared is not None else 0)


def _recalls_allowed(state: DeschedulerState, cluster: str, now_ms: int) -> int:
    """Returns how many more nodes the budget (recalls_per_minute) allows to recall for needs now."""
    declared = state.declared.get(cluster)
    if declared is None or not declared.recalls_per_minute:
        return state.rules.nodes_in_step_max
    recent = sum(is_recent(at_ms, now_ms, MINUTE_MS) for at_ms in state.needs_recalled_ms.get(cluster, ()))
    return max(0, declared.recalls_per_minute - recent)


def _hold_back_nodes(state: DeschedulerState, cluster: str, held: Sequence[str], now_ms: int) -> dict[NodeKey, int]:
    """Stores the nodes that the budget keeps from being recalled. Returns the earlier entries: node to Unix time.

    A node that was not wanted for a while starts again from now.
    """
    before = {key: since for key, since in state.held_since_ms.items() if key[0] == cluster}
    for key in before:
        del state.held_since_ms[key]
    for node in held:
        state.held_since_ms[cluster, node] = before.get((cluster, node), now_ms)
    return before
