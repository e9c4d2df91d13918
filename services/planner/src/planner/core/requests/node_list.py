"""Lists the nodes of a cluster by name, one page at a time, as its capacity stream reports them."""

from planner.core.knowledge.ages import age_ms
from planner.core.knowledge.state import PlannerState
from planner.core.requests.answers import PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX, find_cluster_view
from spillway.api import ListedNode, ListNodesReply, ListNodesRequest, invalid_argument_error
from spillway.feasibility.node_match import NOT_READY_KEYS
from spillway.feasibility.nodes import ClusterNodes
from spillway.model import NODE_LENT, NODE_OWNED, NODE_RECALLED

LOAN_BY_STATE = {NODE_OWNED: "", NODE_LENT: "lent", NODE_RECALLED: "recalled"}


def list_nodes(state: PlannerState, request: ListNodesRequest, now: float) -> ListNodesReply:
    """Returns a page of a cluster's nodes in the order of their names. page_token: the last name of the page before.

    Raises RequestError for an unknown cluster or a wrong page size.
    """
    view = find_cluster_view(state, request.cluster, "cluster")
    size = request.page_size or PAGE_SIZE_DEFAULT
    if not 1 <= size <= PAGE_SIZE_MAX:
        raise invalid_argument_error("page_size", request.page_size, f"1 to {PAGE_SIZE_MAX}")
    nodes = view.nodes
    rows = sorted((nodes.names[row], row) for row in nodes.live_mask.nonzero()[0].tolist())
    rows = [(name, row) for name, row in rows if name > request.page_token]
    page = tuple(_listed_node(nodes, row) for _, row in rows[:size])
    token = page[-1].name if len(rows) > size else ""
    return ListNodesReply(page, token, age_ms(view, now), stale=False)


def _listed_node(nodes: ClusterNodes, row: int) -> ListedNode:
    taints = nodes.taint_sets[nodes.taint_set[row]]
    virtual = nodes.lent_node_by_label_set().get(int(nodes.label_set[row]))
    return ListedNode(
        name=nodes.names[row],
        ready=not any(taint.key in NOT_READY_KEYS for taint in taints),
        cordoned=bool(nodes.unschedulable[row]),
        loan=LOAN_BY_STATE[int(nodes.state[row])],
        stands_for="/".join(virtual) if virtual is not None else "",
        allocatable=_amounts_of_node(nodes, nodes.allocatable[:, row].tolist()),
        requested=_amounts_of_node(nodes, nodes.requested[:, row].tolist()),
        taints=tuple(str(taint) for taint in taints),
    )


def _amounts_of_node(nodes: ClusterNodes, column: list[int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, column[index]) for name, index in nodes.resources.items() if column[index]))
