"""Reads the parts of a PlacementPolicy that divide replicas: splits and weights of tiers, the policy's strategy."""

from itertools import chain

import msgspec

from spillway.api import invalid_argument_error
from spillway.kubernetes.pod_shape import INT32_MAX, selector_of
from spillway.kubernetes.scheduling_spec import LabelSelector
from spillway.model import (
    SPLIT_SPREAD,
    SPLIT_WEIGHTED,
    SPLITS,
    SPLITS_OF_NODE_GROUPS,
    STRATEGIES,
    STRATEGY_DUPLICATED,
    STRATEGY_KARMADA_AGGREGATED,
    STRATEGY_KARMADA_DYNAMIC,
    STRATEGY_KARMADA_STATIC,
    STRATEGY_KUBEADMIRAL,
    SUPPLY_CLOUD,
    SUPPLY_COLOCATED,
    SUPPLY_DEDICATED,
    SUPPLY_IDLE,
    ClusterLimit,
    ClusterSelector,
    ClusterWeight,
    GroupSpread,
    Strategy,
    Tier,
)

WEIGHT_MAX = 1_000_000
GROUPS_MAX = 1000
WEIGHTS_MAX = 1000
SUPPLY_ORDER = (SUPPLY_DEDICATED, SUPPLY_IDLE, SUPPLY_COLOCATED, SUPPLY_CLOUD)
"""The order in which near-line and offline work uses supply classes. Only near-line work uses the last class, which
costs most."""
OVERFLOW = "Overflow"
ALTERNATIVES = "Alternatives"
BY_CLUSTER, BY_REGION = "cluster", "region"

WITH_WEIGHTS = (STRATEGY_KARMADA_STATIC, STRATEGY_KUBEADMIRAL)
WITH_SPREAD = (STRATEGY_DUPLICATED, STRATEGY_KARMADA_DYNAMIC, STRATEGY_KARMADA_AGGREGATED)
WITH_TIERS = (STRATEGY_KARMADA_DYNAMIC, STRATEGY_KARMADA_AGGREGATED)
WITH_LIMITS = (STRATEGY_KUBEADMIRAL,)


class SelectorSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    names: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    label_selector: LabelSelector = LabelSelector()
    excluded: tuple[str, ...] = ()
    supply_classes: tuple[str, ...] = ()

    @property
    def character_count(self) -> int:
        """Returns the number of characters in all texts of the selection."""
        lists = (self.names, self.tiers, self.regions, self.zones, self.excluded, self.supply_classes)
        labels = self.label_selector
        texts = chain(*lists, labels.match_labels.keys(), labels.match_labels.values())
        expressions = ((one.key, one.operator, *one.values) for one in labels.match_expressions)
        return sum(map(len, chain(texts, *expressions)))

    @property
    def entry_count(self) -> int:
        """Returns the number of entries in all lists of the selection."""
        lists = (self.names, self.tiers, self.regions, self.zones, self.excluded, self.supply_classes)
        labels = self.label_selector
        values = sum(1 + len(expression.values) for expression in labels.match_expressions)
        return sum(map(len, lists)) + len(labels.match_labels) + values


class WeightSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    weight: int
    clusters: SelectorSpec = SelectorSpec()


class GroupSpreadSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    by: str
    min: int = 1
    max: int | None = None


class StrategySpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    name: str
    weights: tuple[WeightSpec, ...] = ()
    spread: tuple[GroupSpreadSpec, ...] = ()
    tiers: str = OVERFLOW
    avoid_disruption: bool | None = None


def read_selector(spec: SelectorSpec, where: str) -> ClusterSelector:
    labels = selector_of(spec.label_selector, f"{where}.labelSelector").requirements
    for index, name in enumerate(spec.supply_classes):
        if name not in SUPPLY_ORDER:
            raise invalid_argument_error(f"{where}.supplyClasses[{index}]", name, f"one of {', '.join(SUPPLY_ORDER)}")
    return ClusterSelector(spec.names, spec.tiers, spec.regions, spec.zones, labels, spec.excluded, spec.supply_classes)


def read_weights(specs: tuple[WeightSpec, ...], where: str) -> tuple[ClusterWeight, ...]:
    if len(specs) > WEIGHTS_MAX:
        raise invalid_argument_error(where, len(specs), f"at most {WEIGHTS_MAX}")
    for index, spec in enumerate(specs):
        if not 1 <= spec.weight <= WEIGHT_MAX:
            raise invalid_argument_error(f"{where}[{index}].weight", spec.weight, f"1 to {WEIGHT_MAX}")
    return tuple(
        ClusterWeight(read_selector(spec.clusters, f"{where}[{index}].clusters"), spec.weight)
        for index, spec in enumerate(specs)
    )


def check_split(split: str, tier_weights: tuple[ClusterWeight, ...], node_groups: bool, where: str) -> None:
    """Raises RequestError for an unknown split, or for weights or node groups that do not match it."""
    if split not in SPLITS:
        raise invalid_argument_error(f"{where}.split", split, f"one of {', '.join(SPLITS)}")
    if split == SPLIT_WEIGHTED and not tier_weights:
        raise invalid_argument_error(f"{where}.weights", [], f"at least one weight: the split is {SPLIT_WEIGHTED}")
    if split != SPLIT_WEIGHTED and tier_weights:
        raise invalid_argument_error(
            f"{where}.weights",
            [entry.weight for entry in tier_weights],
            f"no weights: only the split {SPLIT_WEIGHTED} has them",
        )
    if split in SPLITS_OF_NODE_GROUPS and not node_groups:
        raise invalid_argument_error(
            f"{where}.split", split, "nodeGroups: true, because only new nodes of node groups differ in cost"
        )


def read_strategy(
    spec: StrategySpec | None, tiers: tuple[Tier, ...], limits: tuple[ClusterLimit, ...]
) -> Strategy | None:
    """Returns the strategy of a policy; None without one.

    Raises RequestError for fields that this strategy does not use. tiers, limits: those that the policy names itself.
    """
    if spec is None:
        return None
    where = "PlacementPolicy.spec"
    if spec.name not in STRATEGIES:
        raise invalid_argument_error(f"{where}.strategy.name", spec.name, f"one of {', '.join(STRATEGIES)}")
    if spec.tiers not in (OVERFLOW, ALTERNATIVES):
        raise invalid_argument_error(f"{where}.strategy.tiers", spec.tiers, f"{OVERFLOW} or {ALTERNATIVES}")
    known = (
        ("strategy.weights", spec.weights, WITH_WEIGHTS),
        ("strategy.spread", spec.spread, WITH_SPREAD),
        ("strategy.tiers", spec.tiers if spec.tiers == ALTERNATIVES else (), WITH_TIERS),
        ("tiers", tiers[1:], WITH_TIERS),
        ("limits", limits, WITH_LIMITS),
        ("strategy.avoidDisruption", () if spec.avoid_disruption is None else (True,), (STRATEGY_KUBEADMIRAL,)),
    )
    for field, value, names in known:
        if value and spec.name not in names:
            raise invalid_argument_error(
                f"{where}.{field}",
                _shown_value(value),
                f"no such field: only {', '.join(names)} has it, not {spec.name}",
            )
    for index, tier in enumerate(tiers):
        if tier.split != SPLIT_SPREAD:
            raise invalid_argument_error(
                f"{where}.tiers[{index}].split",
                tier.split,
                f"no split: strategy {spec.name} divides the replicas",
            )
        if tier.node_groups:
            raise invalid_argument_error(
                f"{where}.tiers[{index}].nodeGroups", True, f"false: strategy {spec.name} counts existing nodes"
            )
    return Strategy(
        spec.name,
        read_weights(spec.weights, f"{where}.strategy.weights"),
        _read_spread(spec.spread, f"{where}.strategy.spread"),
        spec.tiers == ALTERNATIVES,
        spec.avoid_disruption is not False,
    )


def _shown_value(value: object) -> object:
    return f"{len(value)} entries" if isinstance(value, tuple) else value


def _read_spread(specs: tuple[GroupSpreadSpec, ...], where: str) -> tuple[GroupSpread, ...]:
    for index, spec in enumerate(specs):
        if spec.by not in (BY_CLUSTER, BY_REGION):
            raise invalid_argument_error(f"{where}[{index}].by", spec.by, f"{BY_CLUSTER} or {BY_REGION}")
        if not 1 <= spec.min <= GROUPS_MAX:
            raise invalid_argument_error(f"{where}[{index}].min", spec.min, f"1 to {GROUPS_MAX}")
        if spec.max is not None and not spec.min <= spec.max <= INT32_MAX:
            raise invalid_argument_error(
                f"{where}[{index}].max", spec.max, f"at least min ({spec.min}) and at most {INT32_MAX}"
            )
    if len({spec.by for spec in specs}) != len(specs):
        raise invalid_argument_error(where, [spec.by for spec in specs], "one entry for each field")
    return tuple(GroupSpread(spec.by, spec.min, spec.max or 0) for spec in specs)
