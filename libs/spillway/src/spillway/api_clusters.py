"""The part of api.py that joins clusters, shows them and lets them go."""

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
    """A workload that a cluster still has, though it is to hand over all.

    replicas: those there. state: Removing (its object is to go and is still there), Held (a brake, a confirmation, the
    budget or a person), Waiting (for room elsewhere, or for its turn), Leaving (until as many are available elsewhere).
    reason: for people; empty where nothing is known to hold it.
    """

    namespace: str
    name: str
    replicas: int
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class ClusterReply:
    """state: Ready, Stale (too old to place on), Unreachable (trouble says why), Unknown (nothing heard yet), Duplicate
    (the same API server joined earlier under the name in trouble: nothing new is placed here). trouble, of a Ready one:
    what our account has no right to read there, and does without. trouble_code: what trouble says of the cluster, a
    troubles.TroubleCode; 0 without trouble, of a Duplicate, and in answers of an older planner.

    nodes: that count here, of which nodes_virtual are lent to it; nodes_lent: its own that are lent, and count there.
    nodes_ready: neither cordoned nor tainted not-ready. allocatable and requested: sums over the nodes that count.
    replicas, workloads: placed there, and how many placements list the cluster. left: of one that is to hand over what
    it has, or is given up, which workloads those are, the first ten of them. warnings: in answers to joins.
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
    """A cluster whose phase was asked for.

    replicas: those there that are to go elsewhere. confirm: the scope that waits for Confirm first, empty when none
    does. frozen: the brake that keeps them there, for people. What else holds the cluster: its `left` and its loans.
    """

    cluster: ClusterReply
    replicas: int
    confirm: str
    frozen: str
    changed: bool


@dataclass(frozen=True, slots=True)
class JoinClusterRequest:
    """known_tier: refuse a tier that no cluster of the fleet has and no policy names."""

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
    """page_size 0: the planner's own; page_token: of the page before."""

    cluster: str
    page_size: int = 0
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class SetClusterPhaseRequest:
    """phase: Active, Cordoned, Draining or Leaving (events.py)."""

    name: str
    phase: str


@dataclass(frozen=True, slots=True)
class LeaveClusterRequest:
    """lost: the cluster will not return; what is listed there is given up."""

    name: str
    lost: bool = False


@dataclass(frozen=True, slots=True)
class ListedNode:
    """ready: tainted neither not-ready nor unreachable. loan: empty, lent or recalled. taints: as kubectl shows them.

    stands_for: of a virtual node, cluster/node of the one that is lent, as its labels name it; of any other empty.
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
    """In the order of their names; age_ms: of what is known of the cluster, -1 when nothing ever was."""

    nodes: tuple[ListedNode, ...]
    next_page_token: str
    age_ms: int
    stale: bool
