"""Lists the lent nodes, and recalls the nodes that a person asks for by name."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace

from descheduler.core.declaring import GRACE_SECONDS_MAX, LendingRequest, check_reason
from descheduler.core.recalling import RecallCause, Written, make_recall
from descheduler.core.state import DeschedulerState
from spillway import api_lending as lending
from spillway.api import RequestError, invalid_argument_error
from spillway.events_lending import CAUSE_ASKED, LOAN_RECALLED, NodeLent, NodeRecalled
from spillway.model import Generation

PAGE_SIZE_MAX = 1_000
NAMES_SHOWN_MAX = 10


def list_lent(state: DeschedulerState, request: lending.ListLentRequest) -> lending.ListLentReply:
    """Returns a page of lent nodes, by cluster and node. Raises RequestError NOT_FOUND for an unknown cluster.

    page_token: the last key of the page before.
    """
    for field, named in (("cluster", request.cluster), ("pool", request.pool)):
        if named:
            check_known(state, field, named)
    if request.page_size < 0:
        raise invalid_argument_error("page_size", request.page_size, "0 or more")
    if request.page_token and request.page_token.count("/") != 1:
        raise invalid_argument_error("page_token", request.page_token, "a token that ListLent returned")
    size = min(request.page_size or PAGE_SIZE_MAX, PAGE_SIZE_MAX)
    clusters = [request.cluster] if request.cluster else sorted(state.loans)
    loans = {
        (cluster, node): loan
        for cluster in clusters
        for node, loan in state.open_loans_by_node(cluster).items()
        if request.pool in ("", loan.pool)
    }
    keys = sorted(loans)
    cluster, _, node = request.page_token.partition("/")
    begin = bisect_right(keys, (cluster, node)) if request.page_token else 0
    page = keys[begin : begin + size]
    more = begin + size < len(keys)
    return lending.ListLentReply(
        tuple(make_lent_node(state, loans[key]) for key in page), "/".join(page[-1]) if more else "", stale=False
    )


def recall_named_nodes(
    state: DeschedulerState, request: lending.RecallRequest, asked: LendingRequest
) -> tuple[Sequence[Written], lending.RecallReply]:
    """Recalls the named nodes, or all of the cluster. A node recalled by name before can only get a shorter grace.

    Raises RequestError NOT_FOUND for an unknown cluster or for nodes that are not lent.
    """
    if not request.cluster:
        raise invalid_argument_error("cluster", request.cluster, "the name of a cluster")
    check_known(state, "cluster", request.cluster)
    if not 0 <= request.grace_seconds <= GRACE_SECONDS_MAX:
        raise invalid_argument_error(
            "grace_seconds", request.grace_seconds, f"0 to {GRACE_SECONDS_MAX}; 0 is the cluster's"
        )
    check_reason(request.reason)
    lent = state.open_loans_by_node(request.cluster)
    missing = sorted(set(request.nodes) - lent.keys())
    if missing:
        expected = f"expected nodes that it has lent: {_names_text(lent)}" if lent else "it has lent none"
        raise RequestError(
            "NOT_FOUND", f"nodes: cluster {request.cluster} has not lent {_names_text(missing)}; {expected}"
        )
    named = [lent[node] for node in sorted(set(request.nodes) or lent)]
    due = [loan for loan in named if _needs_new_recall(state, loan, request.grace_seconds)]
    if request.plan_only:
        return (), lending.RecallReply(tuple(make_lent_node(state, loan) for loan in named), len(due))
    events = [
        make_recall(state, loan, asked.generation, _recall_cause(state, loan, request, asked), asked.now_ms)
        for loan in due
    ]
    recalls = {event.node: event for event in events}
    nodes = tuple(make_lent_node(state, loan, recalls.get(loan.node)) for loan in named)
    return events, lending.RecallReply(nodes, len(events))


def check_known(state: DeschedulerState, field: str, cluster: str) -> None:
    """Raises RequestError NOT_FOUND for a cluster that has not joined and has neither a declaration nor a loan."""
    view = state.views.get(cluster)
    if (view is not None and view.joined is not None) or cluster in state.declared or state.open_loans_by_node(cluster):
        return
    if field == "pool" and any(
        loan.pool == cluster for owner in state.loans for loan in state.open_loans_by_node(owner).values()
    ):
        return
    joined = [name for name, known in state.views.items() if known.joined is not None]
    expected = f"expected one of {_names_text(joined)}" if joined else "none has"
    raise RequestError("NOT_FOUND", f"{field} {cluster}: no cluster of this name has joined; {expected}")


def _names_text(names: Iterable[str]) -> str:
    """Returns the first names, and how many more there are."""
    shown = sorted(name or "''" for name in names)
    more = len(shown) - NAMES_SHOWN_MAX
    return ", ".join(shown[:NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


def _recall_cause(
    state: DeschedulerState, loan: NodeLent, request: lending.RecallRequest, asked: LendingRequest
) -> RecallCause:
    """Returns the cause of a recall by name. Needs that the node was recalled for before stay in it."""
    why = RecallCause(CAUSE_ASKED, asked.by, request.reason, grace_seconds=request.grace_seconds)
    standing = state.recall_of(loan.cluster, loan.node)
    if standing is None:
        return why
    return replace(why, wanted_by=standing.wanted_by, wanted_replicas=standing.wanted_replicas)


def _needs_new_recall(state: DeschedulerState, loan: NodeLent, grace_seconds: int) -> bool:
    standing = state.recall_of(loan.cluster, loan.node)
    if standing is None:
        return loan.state != LOAN_RECALLED
    if standing.cause != CAUSE_ASKED:
        return True  # A recall for a need waits while its owner is frozen. A recall by name does not.
    return 0 < grace_seconds < standing.grace_seconds


def make_lent_node(state: DeschedulerState, loan: NodeLent, decided: NodeRecalled | None = None) -> lending.LentNode:
    """Returns a lent node as answers show it. decided: its recall, if the state does not have that yet."""
    standing = decided or state.recall_of(loan.cluster, loan.node)
    loan_state = LOAN_RECALLED if standing is not None else loan.state
    return lending.LentNode(
        cluster=loan.cluster,
        node=loan.node,
        pool=loan.pool,
        virtual_node=loan.virtual_node,
        loan=Generation(*loan.loan),
        rule=loan.rule,
        supply_class=loan.supply_class,
        state=loan_state,
        cause=loan.cause or (standing.cause if standing is not None else ""),
        offered=loan.offered,
        pods=len(loan.pods),
        lent_ms=loan.lent_ms,
        recalled_ms=loan.recalled_ms or (standing.at_ms if standing is not None else 0),
        wanted_by=standing.wanted_by if standing is not None else (),
        waiting=loan.waiting,
    )
