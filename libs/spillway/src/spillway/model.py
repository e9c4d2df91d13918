"""Shared values: the demands of a replica, the capacity of a cluster, and policies. Nothing here decides."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

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
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration of a pod.

    An empty key with operator Exists tolerates every taint; an empty effect matches every effect.
    """

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
    """The nodes on which a volume lets a pod run: each node that matches one of the terms. Without terms, no node.

    reason: the reason why a pod cannot run on the other nodes, a text for people.
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

    own: for a term of a shape, True if the labels of the replicas themselves match it.
    topology_key: empty means kubernetes.io/hostname.
    namespaces, namespace_selector: pods count in these namespaces and in those whose labels match. With neither set,
    pods count in the namespace of the pod that has the term.
    """

    selector: PodSelector
    own: bool = False
    topology_key: str = HOSTNAME_LABEL
    namespaces: tuple[str, ...] = ()
    namespace_selector: PodSelector | None = None

    @property
    def topology_key_or_hostname(self) -> str:
        return self.topology_key or HOSTNAME_LABEL


@dataclass(frozen=True, slots=True)
class Spread:
    """A topologySpreadConstraint with whenUnsatisfiable DoNotSchedule, among pods of the shape's namespace.

    A selector without requirements counts no pod, as in the kube-scheduler. Nodes still need the key then.
    honor_affinity, honor_taints: if True, nodes that these exclude do not count as domains.
    others_only: the selector does not match the replicas themselves. topology_key: empty means kubernetes.io/hostname.
    """

    selector: PodSelector
    max_skew: int
    honor_affinity: bool = True
    honor_taints: bool = False
    topology_key: str = HOSTNAME_LABEL
    min_domains: int = 0
    others_only: bool = False

    @property
    def topology_key_or_hostname(self) -> str:
        return self.topology_key or HOSTNAME_LABEL


@dataclass(frozen=True, slots=True)
class PodTraits:
    """The properties of a replica that selectors of other pods and quotas look at.

    labels: empty if unknown. limits: in the form of Shape.requests. terminating: True if the pod has a deadline.
    names_namespaces: True if a term of its affinity names namespaces, also a term that is only preferred.
    best_effort: True if its containers ask for no cpu and no memory. Older records have neither of these two.
    """

    labels: LabelSet = ()
    limits: tuple[tuple[str, int], ...] = ()
    priority_class: str = ""
    terminating: bool = False
    names_namespaces: bool = False
    best_effort: bool = False


class _HashedOnce:
    """Has the slot in which _cache_hash keeps the hash of a value."""

    __slots__ = ("hashed",)


def _cache_hash(value_class: type[T]) -> type[T]:
    """Lets values of a frozen dataclass compute their hash once, because they are keys in many tables.

    The hash is that of the dataclass: over all fields that are compared.
    """
    compute_hash = value_class.__hash__

    def cached_hash(value: T) -> int:
        known: int | None = getattr(value, "hashed", None)
        if known is None:
            known = compute_hash(value)
            object.__setattr__(value, "hashed", known)
        return known

    value_class.__hash__ = cached_hash  # type: ignore[assignment,method-assign]
    return value_class


@_cache_hash
@dataclass(frozen=True, slots=True)
class Shape(_HashedOnce):
    """The demands of one replica on a node.

    requests: (resource, amount) sorted by name; cpu in milli-cores, else bytes or counts. It always has ("pods", 1).
    apart, near: required pod anti-affinity and affinity. node_name: the one node that the replica may run on.
    volume_claims: the names of its volume claims, sorted.
    volume_limits: the limits of the volumes that these are bound to in one cluster; all must hold. Empty for a shape
    that does not belong to one cluster.
    unmodelled: the demands of the pod template that feasibility does not compute, as texts for people.
    template: digest of the pod template of this shape. overhead_of: its RuntimeClass; only a cluster knows the
    overhead. template, overhead_of and traits are not compared, so that equal demands are equal values.
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


class PodTable(NamedTuple):
    """Pods that no selector can tell apart. apart: their required anti-affinity, which keeps other pods away."""

    namespace: str
    labels: LabelSet
    apart: tuple[PodTerm, ...] = ()
    terminating: bool = False


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that a cluster's autoscaler can make: a template, at most nodes_max of them, after a lead time.

    selector: the labels of the nodes that exist already and count against nodes_max.
    lead_time_seconds: the time until a new node takes pods. cost_per_hour: of a node, in any one currency; 0: not
    known.
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
    """Selects the clusters that match every list that is not empty, except those excluded by name."""

    names: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    labels: tuple[Requirement, ...] = ()
    excluded: tuple[str, ...] = ()
    supply_classes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterWeight:
    """A weight for the clusters that a selector selects. If several apply, the largest counts."""

    clusters: ClusterSelector
    weight: int


@_cache_hash
@dataclass(frozen=True, slots=True)
class Tier(_HashedOnce):
    """One step of a policy: which clusters, how replicas are split among them, and on which nodes.

    node_groups: False places on nodes that exist, True on nodes that the clusters' node groups would make.
    weights: for SPLIT_WEIGHTED.
    """

    name: str
    clusters: ClusterSelector
    split: str
    node_groups: bool
    weights: tuple[ClusterWeight, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterLimit:
    """Limits for the replicas of one cluster. replicas_max: −1 means no maximum."""

    cluster: str
    replicas_min: int
    replicas_max: int


@dataclass(frozen=True, slots=True)
class GroupSpread:
    """The least and the most clusters, or regions, to spread replicas over.

    by: the kind of group, cluster or region. groups_max: 0 means no maximum.
    """

    by: str
    groups_min: int
    groups_max: int


@_cache_hash
@dataclass(frozen=True, slots=True)
class Strategy(_HashedOnce):
    """A way to divide replicas that replaces the splits of the tiers, one of STRATEGIES.

    alternatives: only the first tier that takes all replicas is used, instead of one tier after the other.
    weights, spread, avoid_disruption: only some strategies use them.
    """

    name: str
    weights: tuple[ClusterWeight, ...] = ()
    spread: tuple[GroupSpread, ...] = ()
    alternatives: bool = False
    avoid_disruption: bool = True


@_cache_hash
@dataclass(frozen=True, slots=True)
class Policy(_HashedOnce):
    """The placement policy of a workload: the clusters for its replicas, and their order.

    on_cluster_loss_seconds: after this time the replicas of a lost cluster are replaced elsewhere; 0 is never.
    rollout_all: a new template goes to all clusters at once, not to one after the other.
    strategy: None divides by the tiers and their splits. priority: workloads with a higher one get room first.
    overflow_stays: replicas that overflowed to a later tier do not go home. work: Online, NearLine or Offline.
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
    """A request that was answered under an idempotency key.

    at_ms: wall time, used only to forget the answer. answer: JSON, or compressed JSON.
    """

    key: str
    request_digest: str
    at_ms: int
    answer: bytes


@dataclass(frozen=True, slots=True)
class Part:
    """One cluster's part of a placement.

    version: rises only when this part changes; the cluster's object has it as an annotation.
    ceiling: the most replicas decided since the version that was last read from the object.
    replicas: all replicas of this cluster. replicas_new: how many of them wait for nodes that do not exist yet.
    removing: the object is being removed. The part is listed until the cluster reports it absent.
    template_generation: the number of the template for this cluster; 0 is the newest (records of older versions).
    replicas_lost: how many of `replicas` are replaced elsewhere while the cluster is lost.
    replicas_leaving: how many of `replicas` go once their replacements are available.
    adopting: the object with found_uid is not ours and is taken over as it runs, unless it has the label of a fleet
    other than found_fleet (empty: of any fleet).
    disowning: our marks are removed, the object stays. The part is listed until the cluster reports that.
    replicas_by_name: how many of the kept replicas a person sent to this cluster by name. They are no overflow.
    missing: objects that the template names and this cluster lacks. While they are missing, only the replicas that are
    counted there are decided.
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
        """Returns the replicas that count towards the requested number: neither lost nor leaving."""
        return self.replicas - self.replicas_lost - self.replicas_leaving


@dataclass(frozen=True, slots=True)
class WorkloadFacts:
    """The facts about one workload of ours in a cluster, in the same record as the nodes that it was counted with.

    version: the placement version in the object's annotation; NO_GENERATION: it cannot be read.
    counted: (template hash, number of bound pods that neither terminate nor finished), sorted; a Job has no hash.
    spec_replicas: for a Job its parallelism. succeeded: the number of its pods that succeeded.
    ended: Complete, Failed or Suspended, when the Job makes no pods; empty while it runs.
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
    """A ResourceQuota. hard, used: by the names of its spec, cpu in milli-cores.

    scopes: a pod counts if all of them hold.
    """

    name: str
    hard: tuple[tuple[str, int], ...]
    used: tuple[tuple[str, int], ...]
    scopes: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A PersistentVolumeClaim. limits: the nodes that its volume allows, or the reason why it allows none.

    bound: False until its volume is known. once: its access mode, if that is only ReadWriteOnce or ReadWriteOncePod.
    attached: how the volume is attached to nodes (csi, …); empty if it is not attached.
    """

    name: str
    bound: bool
    limits: tuple[VolumeLimit, ...] = ()
    once: str = ""
    attached: str = ""


@dataclass(frozen=True, slots=True)
class NamespaceFacts:
    """The facts about one namespace of a cluster. labels: without kubernetes.io/metadata.name, which is its name.

    volume_claims: sorted by name. volume_claims_left_out: the namespace has more claims than are listed.
    """

    name: str
    labels: LabelSet
    quotas: tuple[Quota, ...]
    volume_claims: tuple[VolumeClaim, ...] = ()
    volume_claims_left_out: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class NodeColumns:
    """Nodes as columns.

    allocatable, requested: int64 [resources, nodes]; cpu in milli-cores, else bytes or counts.
    label_set, taint_set: [nodes], indices into the tables. A label kubernetes.io/hostname that equals the node's name
    is left out of the sets and implied.
    state: [nodes], NODE_OWNED, NODE_LENT or NODE_RECALLED. For a node that is not NODE_OWNED, `requested` is of its
    owner's pods alone, while the pod tables also contain pods of the pool.
    ports: (index of a node, host port in use). pod_rows, pod_sets, pod_counts: columns of equal length. An entry says
    how many bound pods of one pod table run on one node: index of the node, index of the table, number.
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
    """One node, in the form in which a collector keeps it."""

    name: str
    allocatable: Mapping[str, int]
    requested: Mapping[str, int]
    labels: LabelSet = ()
    taints: tuple[Taint, ...] = ()
    state: int = NODE_OWNED
    unschedulable: bool = False
    ports: tuple[HostPort, ...] = ()
    pods: tuple[tuple[PodTable, int], ...] = ()
