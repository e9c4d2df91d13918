"""Reads a PlacementPolicy, and selects the clusters of its tiers."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec

from planner.core.manifests.cluster_index import ClusterBits, ClusterIndex, supply_class_of_cluster
from planner.core.manifests.node_group_order import places_by_cluster
from planner.core.manifests.strategy_spec import (
    SUPPLY_ORDER,
    SelectorSpec,
    StrategySpec,
    WeightSpec,
    check_split,
    read_selector,
    read_strategy,
    read_weights,
)
from spillway.api import RequestError, invalid_argument_error
from spillway.events import ClusterJoined
from spillway.kubernetes.pod_shape import INT32_MAX, matches_labels
from spillway.model import (
    SPLIT_PACK,
    SPLIT_SPREAD,
    SPLITS_OF_NODE_GROUPS,
    SUPPLY_CLOUD,
    TIER_CLOUD,
    TIER_OWN,
    UNPLACEABLE_REFUSE,
    UNPLACEABLE_WAIT,
    ClusterLimit,
    ClusterSelector,
    Policy,
    Strategy,
    Tier,
)

API_VERSION = "spillway.io/v1"
KIND = "PlacementPolicy"

OWN_FIRST = (
    Tier("own", ClusterSelector(tiers=(TIER_OWN,)), SPLIT_SPREAD, node_groups=False),
    Tier("cloud", ClusterSelector(tiers=(TIER_CLOUD,)), SPLIT_SPREAD, node_groups=False),
    Tier("node-groups", ClusterSelector(), SPLIT_PACK, node_groups=True),
)
ALL_CLUSTERS = (Tier("all", ClusterSelector(), SPLIT_SPREAD, node_groups=False),)
ANY_ORDER = (*ALL_CLUSTERS, OWN_FIRST[-1])
IN_SUPPLY_ORDER = tuple(
    Tier(name, ClusterSelector(supply_classes=(name,)), SPLIT_SPREAD, node_groups=False) for name in SUPPLY_ORDER
)
NEW_IN_THE_CLOUD = Tier("node-groups", ClusterSelector(supply_classes=(SUPPLY_CLOUD,)), SPLIT_PACK, node_groups=True)
WORK_ONLINE = "Online"
TIERS_BY_WORK = {"NearLine": (*IN_SUPPLY_ORDER, NEW_IN_THE_CLOUD), "Offline": IN_SUPPLY_ORDER[:-1]}
"""The tiers of near-line and offline work, which runs on capacity that other workloads leave. Near-line work may wait
minutes. Offline work may wait long, and never uses the cloud."""
DEFAULT_POLICY = Policy(OWN_FIRST, (), UNPLACEABLE_WAIT)

POLICIES_KEPT_MAX = 256
"""The number of policies, and that of single tiers, whose clusters are kept. With POLICY_CHARACTERS_MAX it bounds the
memory that requests can fill, also those that change nothing."""

ROLLOUT_ONE = "one"
ROLLOUT_ALL = "all"
OVERFLOW_GOES_HOME = "GoHome"
OVERFLOW_STAYS = "Stay"

TIERS_MAX = 16
LIMITS_MAX = 1000
POLICY_ENTRIES_MAX = 2000
"""The most entries of a policy: limits, spreads, and the entries of the selectors of tiers and weights. A selector
without entries counts as one. Each entry is looked up in the index of the fleet's clusters."""
POLICY_CHARACTERS_MAX = 128 * 1024
"""The most characters of all names and labels of a policy together. The names of 2,000 clusters have some 60,000. What
is computed of hundreds of policies is kept, with the policies."""
REPLICAS_MAX = 100_000
PRIORITY_MAX = 1_000_000_000
LOSS_SECONDS_MIN = 30
LOSS_SECONDS_MAX = 7 * 24 * 3600
NEVER = "never"
DURATION = re.compile(r"(\d{1,6})(s|m|h)")
SECONDS_BY_UNIT = {"s": 1, "m": 60, "h": 3600}


class TierSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    name: str
    clusters: SelectorSpec = SelectorSpec()
    split: str = SPLIT_SPREAD
    node_groups: bool = False
    weights: tuple[WeightSpec, ...] = ()


class LimitSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cluster: str
    min: int = 0
    max: int | None = None


class ClusterLossSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    after: str = "5m"


class PlacementPolicySpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    tiers: tuple[TierSpec, ...] = ()
    limits: tuple[LimitSpec, ...] = ()
    unplaceable: str = UNPLACEABLE_WAIT
    own_first: bool = True
    on_cluster_loss: ClusterLossSpec = ClusterLossSpec()
    rollout: str = ROLLOUT_ONE
    strategy: StrategySpec | None = None
    priority: int = 0
    overflow: str = OVERFLOW_GOES_HOME
    work: str = WORK_ONLINE


class PolicyMetadata(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class PlacementPolicyManifest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    api_version: str
    kind: str
    spec: PlacementPolicySpec
    metadata: PolicyMetadata = PolicyMetadata()


def read_policy(manifest: dict[str, Any]) -> Policy:
    """Returns the policy in a manifest. Raises RequestError with the field, the value and what was expected."""
    try:
        spec = msgspec.convert(manifest, PlacementPolicyManifest).spec
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `")
        raise RequestError("INVALID_ARGUMENT", f"{KIND}{path.rstrip('`').removeprefix('$')}: {text}") from None
    if len(spec.tiers) > TIERS_MAX:
        raise invalid_argument_error(f"{KIND}.spec.tiers", len(spec.tiers), f"at most {TIERS_MAX}")
    if len(spec.limits) > LIMITS_MAX:
        raise invalid_argument_error(f"{KIND}.spec.limits", len(spec.limits), f"at most {LIMITS_MAX}")
    if (entries := _entry_count(spec)) > POLICY_ENTRIES_MAX:
        where = f"{KIND}.spec: weights, limits, spreads, and names, tiers, regions, zones and labels of clusters"
        raise invalid_argument_error(where, entries, f"at most {POLICY_ENTRIES_MAX} in all")
    if (characters := _character_count(spec)) > POLICY_CHARACTERS_MAX:
        where = f"{KIND}.spec: names and labels"
        raise invalid_argument_error(where, characters, f"at most {POLICY_CHARACTERS_MAX} characters in all")
    if spec.unplaceable not in (UNPLACEABLE_WAIT, UNPLACEABLE_REFUSE):
        raise invalid_argument_error(
            f"{KIND}.spec.unplaceable", spec.unplaceable, f"{UNPLACEABLE_WAIT} or {UNPLACEABLE_REFUSE}"
        )
    if spec.rollout not in (ROLLOUT_ONE, ROLLOUT_ALL):
        raise invalid_argument_error(f"{KIND}.spec.rollout", spec.rollout, f"{ROLLOUT_ONE} or {ROLLOUT_ALL}")
    if spec.overflow not in (OVERFLOW_GOES_HOME, OVERFLOW_STAYS):
        raise invalid_argument_error(
            f"{KIND}.spec.overflow", spec.overflow, f"{OVERFLOW_GOES_HOME} or {OVERFLOW_STAYS}"
        )
    tiers = tuple(_read_tier(tier, f"{KIND}.spec.tiers[{index}]") for index, tier in enumerate(spec.tiers))
    if len({tier.name for tier in tiers}) != len(tiers):
        raise invalid_argument_error(f"{KIND}.spec.tiers", [tier.name for tier in tiers], "different names")
    limits = tuple(_read_limit(limit, f"{KIND}.spec.limits[{index}]") for index, limit in enumerate(spec.limits))
    if len({limit.cluster for limit in limits}) != len(limits):
        raise invalid_argument_error(
            f"{KIND}.spec.limits", [limit.cluster for limit in limits], "one entry for each cluster"
        )
    if not -PRIORITY_MAX <= spec.priority <= PRIORITY_MAX:
        raise invalid_argument_error(f"{KIND}.spec.priority", spec.priority, f"-{PRIORITY_MAX} to {PRIORITY_MAX}")
    chosen = read_strategy(spec.strategy, tiers, limits)
    if spec.work != WORK_ONLINE:
        tiers = _tiers_of_work(spec)
    elif not tiers:
        tiers = ALL_CLUSTERS if chosen is not None else OWN_FIRST if spec.own_first else ANY_ORDER
    loss_seconds = _loss_seconds(spec.on_cluster_loss.after)
    rollout_all, overflow_stays = spec.rollout == ROLLOUT_ALL, spec.overflow == OVERFLOW_STAYS
    return Policy(
        tiers, limits, spec.unplaceable, loss_seconds, rollout_all, chosen, spec.priority, overflow_stays, spec.work
    )


def _entry_count(spec: PlacementPolicySpec) -> int:
    spreads = () if spec.strategy is None else spec.strategy.spread
    return len(spec.limits) + len(spreads) + sum(max(1, one.entry_count) for one in _cluster_selectors(spec))


def _character_count(spec: PlacementPolicySpec) -> int:
    names = [tier.name for tier in spec.tiers] + [limit.cluster for limit in spec.limits]
    return sum(map(len, names)) + sum(one.character_count for one in _cluster_selectors(spec))


def _cluster_selectors(spec: PlacementPolicySpec) -> Iterator[SelectorSpec]:
    for tier in spec.tiers:
        yield tier.clusters
        yield from (entry.clusters for entry in tier.weights)
    if spec.strategy is not None:
        yield from (entry.clusters for entry in spec.strategy.weights)


def _tiers_of_work(spec: PlacementPolicySpec) -> tuple[Tier, ...]:
    """Returns the tiers of near-line or offline work: the supply classes in their order.

    Raises RequestError for an unknown kind of work, and if the policy also has tiers or a strategy.
    """
    if spec.work not in TIERS_BY_WORK:
        raise invalid_argument_error(
            f"{KIND}.spec.work", spec.work, f"one of {', '.join((WORK_ONLINE, *TIERS_BY_WORK))}"
        )
    if spec.tiers:
        names = [tier.name for tier in spec.tiers]
        raise invalid_argument_error(f"{KIND}.spec.tiers", names, f"no tiers: work {spec.work} has tiers of its own")
    if spec.strategy is not None:
        raise invalid_argument_error(
            f"{KIND}.spec.strategy", spec.strategy.name, f"no strategy: work {spec.work} uses tiers"
        )
    return TIERS_BY_WORK[spec.work]


def _loss_seconds(after: str) -> int:
    """Returns the duration in seconds; 0 for never."""
    if after == NEVER:
        return 0
    match = DURATION.fullmatch(after)
    seconds = int(match[1]) * SECONDS_BY_UNIT[match[2]] if match else -1
    if not LOSS_SECONDS_MIN <= seconds <= LOSS_SECONDS_MAX:
        expected = f"{NEVER}, or a duration like 90s, 5m or 1h, from {LOSS_SECONDS_MIN}s to {LOSS_SECONDS_MAX // 3600}h"
        raise invalid_argument_error(f"{KIND}.spec.onClusterLoss.after", after, expected)
    return seconds


def _read_tier(spec: TierSpec, where: str) -> Tier:
    if not spec.name:
        raise invalid_argument_error(f"{where}.name", spec.name, "a name")
    tier_weights = read_weights(spec.weights, f"{where}.weights")
    check_split(spec.split, tier_weights, spec.node_groups, where)
    return Tier(
        spec.name, read_selector(spec.clusters, f"{where}.clusters"), spec.split, spec.node_groups, tier_weights
    )


def _read_limit(spec: LimitSpec, where: str) -> ClusterLimit:
    if not 0 <= spec.min <= REPLICAS_MAX:
        raise invalid_argument_error(f"{where}.min", spec.min, f"0 to {REPLICAS_MAX}")
    if spec.max is not None and not spec.min <= spec.max <= INT32_MAX:
        raise invalid_argument_error(f"{where}.max", spec.max, f"at least min ({spec.min}) and at most {INT32_MAX}")
    return ClusterLimit(spec.cluster, spec.min, -1 if spec.max is None else spec.max)


def is_cluster_selected(selector: ClusterSelector, cluster: ClusterJoined) -> bool:
    """Returns whether the selector selects the cluster: it meets every list that is not empty."""
    return (
        (not selector.names or cluster.cluster in selector.names)
        and (not selector.tiers or cluster.tier in selector.tiers)
        and (not selector.regions or cluster.region in selector.regions)
        and (not selector.zones or cluster.zone in selector.zones)
        and cluster.cluster not in selector.excluded
        and (not selector.supply_classes or supply_class_of_cluster(cluster) in selector.supply_classes)
        and (not selector.labels or matches_labels(selector.labels, dict(cluster.labels)))
    )


class FleetClusters(tuple[ClusterJoined, ...]):  # noqa: SLOT001 - what is hashed is kept beside it
    """The clusters of a fleet. The hash is computed once, so that results can be cached by them."""

    def __hash__(self) -> int:
        known: int | None = self.__dict__.get("known")
        if known is None:
            known = self.__dict__["known"] = super().__hash__()
        return known

    @property
    def cluster_index(self) -> ClusterIndex:
        """Returns the index of these clusters, which is made when it is first asked for."""
        known: ClusterIndex | None = self.__dict__.get("indexed")
        if known is None:
            known = self.__dict__["indexed"] = ClusterIndex(self)
        return known

    def take_index_of(self, before: "FleetClusters") -> None:
        """Takes over the index of the fleet as it was before, with all that was selected by it, if it still holds."""
        known: ClusterIndex | None = before.__dict__.get("indexed")
        if known is not None and known.is_index_of(self):
            self.__dict__["indexed"] = known


def is_in_tier(tier: Tier, cluster: ClusterJoined) -> bool:
    """Returns whether a tier may place in a cluster. For clusters of the fleet, bits_of_tiers() is faster."""
    if not is_cluster_selected(tier.clusters, cluster):
        return False
    weights = (entry for entry in tier.weights if entry.weight > 0)
    return not tier.weights or any(is_cluster_selected(entry.clusters, cluster) for entry in weights)


@lru_cache(maxsize=POLICIES_KEPT_MAX)
def bits_of_tiers(tiers: tuple[Tier, ...], index: ClusterIndex) -> tuple[ClusterBits, ...]:
    """Returns, for each tier, the clusters in which it may place. If it has weights, one must select the cluster."""
    found = []
    for tier in tiers:
        selected = index.select_clusters(tier.clusters)
        found.append(selected & index.select_weighted(tier.weights) if selected and tier.weights else selected)
    return tuple(found)


def allowed_bits(tiers: tuple[Tier, ...], of_tiers: Iterable[ClusterBits], index: ClusterIndex) -> ClusterBits:
    """Returns the clusters of all tiers. of_tiers: from bits_of_tiers(). Some tiers place on new nodes alone; they do
    not have the clusters without node groups."""
    found = 0
    for tier, bits in zip(tiers, of_tiers, strict=True):
        found |= bits & index.with_node_groups if tier.node_groups else bits
    return found


def fleet_clusters(clusters: Iterable[ClusterJoined]) -> FleetClusters:
    """Returns the clusters of a fleet in the form by which results are cached."""
    return clusters if isinstance(clusters, FleetClusters) else FleetClusters(clusters)


TierClusters = tuple[tuple[Tier, tuple[str, ...]], ...]
"""The tiers of a policy in order, and the clusters of each by name."""


@lru_cache(maxsize=POLICIES_KEPT_MAX)
def clusters_of_tiers(tiers: tuple[Tier, ...], clusters: FleetClusters) -> TierClusters:
    """Returns each tier with its clusters. A cluster is in the first tier that selects it.

    It can be in two tiers: one for its existing nodes, and one for its node groups.
    """
    index, found = clusters.cluster_index, []
    placed = {True: 0, False: 0}
    for tier, selected in zip(tiers, bits_of_tiers(tiers, index), strict=True):
        new = selected & ~placed[tier.node_groups]
        if tier.node_groups:
            new &= index.with_node_groups
        placed[tier.node_groups] |= new
        found.append((tier, tuple(sorted(index.names_in(new)))))
    return tuple(found)


def weights_in_tier(tier: Tier, names: Collection[str], clusters: Iterable[ClusterJoined]) -> dict[str, int]:
    """Returns the weight of each cluster of a tier; empty if the tier has no weights.

    If the split orders node groups, the weight is the cluster's place in that order.
    """
    wanted = frozenset(names)
    if tier.split in SPLITS_OF_NODE_GROUPS:
        return places_by_cluster(tier.split, (cluster for cluster in clusters if cluster.cluster in wanted))
    if not tier.weights:
        return {}
    known = weights_by_cluster(tier, fleet_clusters(clusters))
    return {cluster: weight for cluster, weight in known.items() if cluster in wanted}


@lru_cache(maxsize=POLICIES_KEPT_MAX)
def weights_by_cluster(weighted: Tier | Strategy, clusters: FleetClusters) -> Mapping[str, int]:
    """Returns, for each cluster, the largest weight that selects it; 0 when none does."""
    return MappingProxyType(clusters.cluster_index.largest_weights(weighted.weights))
