"""The part of api.py for requests that join clusters, show them and let them leave."""

from dataclasses import dataclass
from typing import Final

from spillway.events_answered import PHASE_ACTIVE
from spillway.model import NodeGroup

LEFT_REMOVING: Final = "Removing"
LEFT_HELD: Final = "Held"
LEFT_WAITING: Final = "Waiting"
LEFT_LEAVING: Final = "Leaving"


@dataclass(frozen=True, slots=True)
class WorkloadLeft:
    """A workload with replicas in a cluster that is draining or leaving.

    replicas: the replicas in this cluster. reason: a text for the user; empty if no reason to wait is known.
    state: Removing (its object is being removed and is still there), Held (by a brake, a confirmation, the budget or a
    person), Waiting (for room elsewhere, or for its turn), Leaving (until as many replicas are available elsewhere).
    """

    namespace: str
    name: str
    replicas: int
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class ClusterReply:
    """One cluster as the planner knows it.

    state: Ready, Stale (too old for new placements), Unreachable (trouble says why), Unknown (no report yet) or
    Duplicate (trouble names the cluster that joined earlier with the same API server; nothing new is placed here).
    trouble: for a Ready cluster, the resources that our account must not read; the service works without them.
    trouble_code: a troubles.TroubleCode; 0 without trouble, for a Duplicate, and in answers of an older planner.
    nodes: the nodes that count here. nodes_virtual: how many of them are lent to this cluster.
    nodes_lent: its own nodes that are lent; they count in the pool cluster.
    nodes_ready: nodes neither cordoned nor tainted not-ready. allocatable, requested: sums over the nodes that count.
    replicas: the replicas placed here. workloads: the number of placements with the cluster.
    warnings: set only in answers to joins.
    left: the first ten workloads of a cluster that hands over all its replicas or is given up.
    """

    cluster: str
    credential: str
    endpoint: str
    tier: str
    region: str
    zone: str
    labels: tuple[tuple[str, str], ...]
    node_groups: tuple[NodeGroup, ...]
    state: str
    trouble: str
    age_ms: int
    nodes: int
    nodes_ready: int
    allocatable: tuple[tuple[str, int], ...]
    requested: tuple[tuple[str, int], ...]
    unschedulable_pods: int
    phase: str = PHASE_ACTIVE
    replicas: int = 0
    workloads: int = 0
    nodes_lent: int = 0
    nodes_virtual: int = 0
    warnings: tuple[str, ...] = ()
    trouble_code: int = 0
    left: tuple[WorkloadLeft, ...] = ()


@dataclass(frozen=True, slots=True)
class ListClustersReply:
    clusters: tuple[ClusterReply, ...]
    stale: bool


@dataclass(frozen=True, slots=True)
class ClusterMovesReply:
    """The answer to a change of a cluster's phase.

    replicas: the replicas here that must go elsewhere. confirm: the scope that waits for Confirm first; empty for none.
    frozen: a text for the user, about the brake that keeps the replicas here.
    The cluster's `left` and its loans can also delay the change.
    """

    cluster: ClusterReply
    replicas: int
    confirm: str
    frozen: str
    changed: bool


@dataclass(frozen=True, slots=True)
class JoinClusterRequest:
    """Joins a cluster. known_tier: if True, a tier is refused that no cluster of the fleet has and no policy names."""

    name: str
    credential: str
    endpoint: str = ""
    tier: str = ""
    region: str = ""
    zone: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    node_groups: tuple[NodeGroup, ...] = ()
    known_tier: bool = False


@dataclass(frozen=True, slots=True)
class ListClustersRequest:
    pass


@dataclass(frozen=True, slots=True)
class ListNodesRequest:
    """Asks for the nodes of a cluster. page_size 0: the planner's default. page_token: from the page before."""

    cluster: str
    page_size: int = 0
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class SetClusterPhaseRequest:
    """Sets the phase of a cluster. phase: Active, Cordoned, Draining or Leaving (events.py)."""

    name: str
    phase: str


@dataclass(frozen=True, slots=True)
class LeaveClusterRequest:
    """Lets a cluster leave. lost: it will not return, and the replicas listed there are given up."""

    name: str
    lost: bool = False


@dataclass(frozen=True, slots=True)
class ListedNode:
    """One node of a cluster.

    ready: True without the taints not-ready and unreachable. loan: empty, lent or recalled. taints: in kubectl's form.
    stands_for: for a virtual node, cluster/node of its lent node by its labels; otherwise empty.
    """

    name: str
    ready: bool
    cordoned: bool
    loan: str
    stands_for: str
    allocatable: tuple[tuple[str, int], ...]
    requested: tuple[tuple[str, int], ...]
    taints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListNodesReply:
    """One page of nodes, sorted by name. age_ms: the age of the cluster's known capacity; -1: no capacity is known."""

    nodes: tuple[ListedNode, ...]
    next_page_token: str
    age_ms: int
    stale: bool
