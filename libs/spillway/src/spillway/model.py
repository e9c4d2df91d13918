"""Shared values: what a replica asks for, what a cluster offers, what a policy says. No behaviour that decides."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from spillway.model_basics import NO_GENERATION, ClusterInput, Generation, ObjectReference

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]
else:
    Int64s = object  # NumPy takes longer to import than a whole command may take, and few values are columns.

__all__ = ["NO_GENERATION", "ClusterInput", "Generation", "ObjectReference"]

TIER_OWN = "own"
TIER_CLOUD = "cloud"

SPLIT_SPREAD = "Spread"
SPLIT_PACK = "Pack"
SPLIT_EVEN = "Even"
SPLIT_MOST_REMAINING = "MostRemaining"
SPLIT_WEIGHTED = "Weighted"
SPLIT_CHEAPEST = "Cheapest"
SPLIT_SOONEST = "Soonest"
SPLITS_OF_NODE_GROUPS = (SPLIT_CHEAPEST, SPLIT_SOONEST)
SPLITS = (SPLIT_SPREAD, SPLIT_PACK, SPLIT_EVEN, SPLIT_MOST_REMAINING, SPLIT_WEIGHTED, *SPLITS_OF_NODE_GROUPS)

STRATEGY_DUPLICATED = "Duplicated"
STRATEGY_KARMADA_STATIC = "KarmadaStaticWeight"
STRATEGY_KARMADA_DYNAMIC = "KarmadaDynamicWeight"
STRATEGY_KARMADA_AGGREGATED = "KarmadaAggregated"
STRATEGY_KUBEADMIRAL = "KubeAdmiral"
STRATEGIES = (
    STRATEGY_DUPLICATED,
    STRATEGY_KARMADA_STATIC,
    STRATEGY_KARMADA_DYNAMIC,
    STRATEGY_KARMADA_AGGREGATED,
    STRATEGY_KUBEADMIRAL,
)

UNPLACEABLE_WAIT = "Wait"
UNPLACEABLE_REFUSE = "Refuse"

NODE_OWNED, NODE_LENT, NODE_RECALLED = 0, 1, 2

SUPPLY_DEDICATED = "dedicated"
SUPPLY_IDLE = "idle"
SUPPLY_COLOCATED = "colocated"
SUPPLY_CLOUD = "cloud"

HOSTNAME_LABEL = "kubernetes.io/hostname"

LabelSet = tuple[tuple[str, str], ...]
"""Labels sorted by key."""


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Toleration:
    """An empty key with operator Exists tolerates every taint; an empty effect matches every effect."""

    key: str
    operator: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Requirement:
    """One label requirement: operator is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """Requirements that must all hold: on a node's labels, and on its fields (metadata.name)."""

    labels: tuple[Requirement, ...]
    fields: tuple[Requirement, ...]


@dataclass(frozen=True, slots=True)
class HostPort:
    ip: str
    protocol: str
    port: int


@dataclass(frozen=True, slots=True)
class VolumeLimit:
    """Nodes that a volume lets a pod run on: those of which one of the terms holds; with no terms, none.

    reason: what keeps a pod off the others, for people.
    """

    reason: str
    terms: tuple[NodeTerm, ...] = ()


@dataclass(frozen=True, slots=True)
class PodSelector:
    """Pods whose labels meet every requirement."""

    requirements: tuple[Requirement, ...]


@dataclass(frozen=True, slots=True)
class PodTerm:
    """A required term of pod affinity or anti-affinity: pods that match, in one domain of a topology key.

    own: of a shape's terms, whether it matches the replicas themselves, as far as their labels go.
    topology_key: empty is kubernetes.io/hostname.
    namespaces, and those whose labels namespace_selector matches; with neither, the namespace of who bears the term.
    """

    selector: PodSelector
    own: bool = False
    topology_key: str = HOSTNAME_LABEL
    namespaces: tuple[str, ...] = ()
    namespace_selector: PodSelector | None = None

    @property
    def key(self) -> str:
        return self.topology_key or HOSTNAME_LABEL


@dataclass(frozen=True, slots=True)
class Spread:
    """A topologySpreadConstraint with whenUnsatisfiable DoNotSchedule, among pods of the shape's namespace.

    A selector without requirements counts no pod, as in the kube-scheduler; what is left is that nodes need the key.
    honor_affinity, honor_taints: whether nodes that these keep the pod from do not count as domains.
    others_only: the selector does not match the replicas themselves. topology_key: empty is kubernetes.io/hostname.
    """

    selector: PodSelector
    max_skew: int
    honor_affinity: bool = True
    honor_taints: bool = False
    topology_key: str = HOSTNAME_LABEL
    min_domains: int = 0
    others_only: bool = False

    @property
    def key(self) -> str:
        return self.topology_key or HOSTNAME_LABEL


@dataclass(frozen=True, slots=True)
class PodTraits:
    """What others look at in a replica: selectors of other pods, and quotas.

    labels: empty where they are not known. limits: as requests of a Shape. terminating: it has a deadline.
    names_namespaces: a term of its affinity does, also one that is only preferred. best_effort: its containers ask for
    no cpu and no memory, whatever its overhead; both are not said in older records.
    """

    labels: LabelSet = ()
    limits: tuple[tuple[str, int], ...] = ()
    priority_class: str = ""
    terminating: bool = False
    names_namespaces: bool = False
    best_effort: bool = False


class _HashedOnce:
    """Room for a hash beside the fields: shapes are keys wherever anything is kept."""

    __slots__ = ("hashed",)


@dataclass(frozen=True, slots=True)
class Shape(_HashedOnce):
    """What one replica asks of a node.

    requests: (resource, amount) sorted by name; cpu in milli-cores, bytes and counts else; always has ("pods", 1).
    apart, near: required pod anti-affinity and affinity. node_name: the one node that it may run on.
    volume_claims: the names of those that it uses, sorted. volume_limits: all must hold: of the volumes that its claims
    are bound to in one cluster; a shape that is no cluster's own has none.
    unmodelled: what the pod template asks for that feasibility does not compute, in words for people.
    template: digest of the template that it was read from. overhead_of: its RuntimeClass, whose overhead only a cluster
    knows. These and traits are no part of what it asks for, so that equal demands are equal values.
    """

    namespace: str
    requests: tuple[tuple[str, int], ...]
    node_selector: LabelSet = ()
    node_terms: tuple[NodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    apart: tuple[PodTerm, ...] = ()
    spread: tuple[Spread, ...] = ()
    unmodelled: tuple[str, ...] = ()
    near: tuple[PodTerm, ...] = ()
    node_name: str = ""
    volume_claims: tuple[str, ...] = ()
    volume_limits: tuple[VolumeLimit, ...] = ()
    traits: PodTraits = field(default=PodTraits(), compare=False)
    template: str = field(default="", compare=False)
    overhead_of: str = field(default="", compare=False)

    def __hash__(self) -> int:
        known: int | None = getattr(self, "hashed", None)
        if known is None:
            asks = (self.namespace, self.requests, self.node_selector, self.node_terms, self.tolerations)
            looks = (self.host_ports, self.apart, self.spread, self.unmodelled, self.near, self.node_name)
            known = hash((asks, looks, self.volume_claims, self.volume_limits))
            object.__setattr__(self, "hashed", known)
        return known


class PodTable(NamedTuple):
    """Pods that no selector tells from each other. apart: their required anti-affinity, which keeps others away."""

    namespace: str
    labels: LabelSet
    apart: tuple[PodTerm, ...] = ()
    terminating: bool = False


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that a cluster's autoscaler can make: a template, at most nodes_max of them, after a lead time.

    selector: the labels by which the nodes that exist already are counted against nodes_max.
    lead_time_seconds: until a new node takes pods. cost_per_hour: of a node, in any one currency. 0: not known.
    """

    name: str
    selector: LabelSet
    allocatable: tuple[tuple[str, int], ...]
    labels: LabelSet
    taints: tuple[Taint, ...]
    nodes_max: int
    lead_time_seconds: int
    cost_per_hour: float


@dataclass(frozen=True, slots=True)
class ClusterSelector:
    """Clusters that match every list that is not empty, without those excluded by name."""

    names: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    labels: tuple[Requirement, ...] = ()
    excluded: tuple[str, ...] = ()
    supply_classes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterWeight:
    """A weight for the clusters that a selector means; of several the largest counts."""

    clusters: ClusterSelector
    weight: int


@dataclass(frozen=True, slots=True)
class Tier:
    """One step of a policy: which clusters, how replicas are split among them, and on what nodes.

    node_groups: False places on nodes that exist, True on nodes that the clusters' node groups would make.
    weights: of SPLIT_WEIGHTED.
    """

    name: str
    clusters: ClusterSelector
    split: str
    node_groups: bool
    weights: tuple[ClusterWeight, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterLimit:
    """Bounds on the replicas of one cluster; replicas_max −1 is no bound."""

    cluster: str
    replicas_min: int
    replicas_max: int


@dataclass(frozen=True, slots=True)
class GroupSpread:
    """So many groups at least and at most. by: cluster or region; groups_max 0 is no bound."""

    by: str
    groups_min: int
    groups_max: int


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to divide replicas that takes the place of the tiers' splits, one of STRATEGIES.

    alternatives: of the tiers only the first that takes all replicas is used, not one after the other.
    weights, spread, avoid_disruption: where the strategy knows them.
    """

    name: str
    weights: tuple[ClusterWeight, ...] = ()
    spread: tuple[GroupSpread, ...] = ()
    alternatives: bool = False
    avoid_disruption: bool = True


@dataclass(frozen=True, slots=True)
class Policy:
    """on_cluster_loss_seconds: replicas of a cluster that is lost for so long are replaced elsewhere; 0 is never.

    rollout_all: a new template goes to all clusters at once, not to one after the other.
    strategy: None divides by the tiers and their splits. priority: of those that wait for room, higher ones go first.
    overflow_stays: what overflowed to a later tier does not go home. work: Online, NearLine or Offline.
    """

    tiers: tuple[Tier, ...]
    limits: tuple[ClusterLimit, ...]
    unplaceable: str
    on_cluster_loss_seconds: int = 300
    rollout_all: bool = False
    strategy: Strategy | None = None
    priority: int = 0
    overflow_stays: bool = False
    work: str = "Online"


@dataclass(frozen=True, slots=True)
class EarlierTemplate:
    """A manifest that some clusters still hold, since a new template goes to one cluster after the other."""

    template_generation: int
    manifest: bytes


@dataclass(frozen=True, slots=True)
class Answered:
    """A request that was answered under an idempotency key; at_ms is wall time, for forgetting only. answer: JSON, or
    that compressed."""

    key: str
    request_digest: str
    at_ms: int
    answer: bytes


@dataclass(frozen=True, slots=True)
class Part:
    """One cluster's part of a placement.

    version: raised only when this part changes; the member's object bears it. ceiling: the most decided since the
    version last seen on the object. replicas: all of this cluster's replicas; replicas_new of them wait for nodes that
    do not exist yet. removing: the object is to go; the part is listed until the cluster says that it is absent.
    template_generation: which template this cluster is to have, by its number; 0 is the newest (records of before).
    replicas_lost: of replicas, those replaced elsewhere while the cluster is lost. replicas_leaving: of replicas, those
    that go once their replacements are available. Neither counts towards what was asked for. adopting: an object that
    is not ours is taken over as it runs: the one with found_uid, as long as it bears no other fleet's label than
    found_fleet (empty: none). disowning: our marks go, the object stays; the part is listed until the cluster says so.
    replicas_by_name: of those kept, so many are here because a person named this cluster: they are no overflow.
    missing: what this cluster lacks of what the template names: for want of that as many were decided as it counts.
    """

    cluster: str
    version: Generation
    replicas: int
    replicas_new: int
    ceiling: int
    removing: bool
    template_generation: int = 0
    replicas_lost: int = 0
    replicas_leaving: int = 0
    adopting: bool = False
    disowning: bool = False
    found_uid: str = ""
    found_fleet: str = ""
    replicas_by_name: int = 0
    missing: tuple[ObjectReference, ...] = ()

    @property
    def replicas_kept(self) -> int:
        """What counts towards the replicas that were asked for."""
        return self.replicas - self.replicas_lost - self.replicas_leaving


@dataclass(frozen=True, slots=True)
class WorkloadFacts:
    """What a cluster shows of one workload of ours, in the same record as the nodes that it was counted with.

    version: what the object's annotation says; NO_GENERATION when it says nothing that can be read.
    counted: (template hash, bound and neither terminating nor finished pods), sorted by hash; a Job has no hash.
    Of a Job spec_replicas is its parallelism. succeeded: its pods that did. ended: Complete, Failed or Suspended, in
    which it makes no pods; empty while it runs.
    """

    namespace: str
    name: str
    version: Generation
    uid: str
    spec_replicas: int
    observed_current: bool
    status_replicas: int
    updated_replicas: int
    ready_replicas: int
    counted: tuple[tuple[str, int], ...]
    succeeded: int = 0
    ended: str = ""


@dataclass(frozen=True, slots=True)
class Quota:
    """A ResourceQuota. hard, used: by the names of its spec, cpu in milli-cores. scopes: all must hold for a pod."""

    name: str
    hard: tuple[tuple[str, int], ...]
    used: tuple[tuple[str, int], ...]
    scopes: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A PersistentVolumeClaim. limits: of the volume that it is bound to, or why no pod with it runs anywhere.

    bound: False until it is known to which volume. once: ReadWriteOnce or ReadWriteOncePod, where no other access is
    asked for. attached: by what the volume is attached to nodes (csi, …); empty where it is not.
    """

    name: str
    bound: bool
    limits: tuple[VolumeLimit, ...] = ()
    once: str = ""
    attached: str = ""


@dataclass(frozen=True, slots=True)
class NamespaceFacts:
    """What a cluster says of one namespace. labels: without kubernetes.io/metadata.name, which is its name.

    volume_claims: by name. volume_claims_left_out: there are more of which nothing is said.
    """

    name: str
    labels: LabelSet
    quotas: tuple[Quota, ...]
    volume_claims: tuple[VolumeClaim, ...] = ()
    volume_claims_left_out: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class NodeColumns:
    """Nodes as columns. allocatable and requested: int64 [resources, nodes], cpu in milli-cores, else bytes or counts.

    label_set and taint_set: [nodes], indices into the tables. state: [nodes], NODE_OWNED, NODE_LENT or NODE_RECALLED;
    what one that is not owned has requested is its owner's pods alone, though the pods name the pool's, too.
    A label kubernetes.io/hostname that equals the node's name is left out of the sets and implied.
    ports: (row, host port) in use. pod_rows, pod_sets, pod_counts: bound pods per node and table.
    """

    names: tuple[str, ...]
    resources: tuple[str, ...]
    allocatable: Int64s
    requested: Int64s
    label_sets: tuple[LabelSet, ...]
    label_set: Int64s
    taint_sets: tuple[tuple[Taint, ...], ...]
    taint_set: Int64s
    state: Int64s
    unschedulable: Int64s
    ports: tuple[tuple[int, HostPort], ...]
    pod_tables: tuple[PodTable, ...]
    pod_rows: Int64s
    pod_sets: Int64s
    pod_counts: Int64s


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node, the form in which a collector keeps it."""

    name: str
    allocatable: Mapping[str, int]
    requested: Mapping[str, int]
    labels: LabelSet = ()
    taints: tuple[Taint, ...] = ()
    state: int = NODE_OWNED
    unschedulable: bool = False
    ports: tuple[HostPort, ...] = ()
    pods: tuple[tuple[PodTable, int], ...] = ()
