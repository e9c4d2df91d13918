"""The scheduler's filters that look at other pods: topology spread, pod affinity and anti-affinity."""

from sim.core.filters import is_node_selected
from sim.core.node_table import NodeRecord
from sim.core.shape import PodShape, PodTerm

Counts = dict[str, int]
_Share = tuple[Counts, str, int]

_SPREAD = "node(s) didn't match pod topology spread constraints"
_SPREAD_NO_LABEL = f"{_SPREAD} (missing required label)"
_AFFINITY = "node(s) didn't match pod affinity rules"
_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
_OTHERS_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"


class TopologyCounts:
    """Counts matching pods by topology domain for one shape, updated node by node."""

    def __init__(self, shape: PodShape) -> None:
        self._shape = shape
        self._spread: list[Counts] = [{} for _ in shape.spread]
        self._spread_nodes: list[Counts] = [{} for _ in shape.spread]
        self._affinity: list[Counts] = [{} for _ in shape.affinity]
        self._anti_affinity: list[Counts] = [{} for _ in shape.anti_affinity]
        self._refused_by_topology_key: dict[str, Counts] = {}
        self._shares_by_slot: dict[int, list[_Share]] = {}

    @property
    def is_needed(self) -> bool:
        return self._shape.looks_at_pods or bool(self._shares_by_slot)

    def put_node(self, slot: int, record: NodeRecord | None) -> None:
        for counts, domain, count in self._shares_by_slot.pop(slot, ()):
            left = counts[domain] - count
            if left:
                counts[domain] = left
            else:
                del counts[domain]
        if record is None or not (self._shape.looks_at_pods or record.anti_affine_pods):
            return
        shares = [*self._own_shares(record), *self._refusing_shares(record)]
        for counts, domain, count in shares:
            counts[domain] = counts.get(domain, 0) + count
        if shares:
            self._shares_by_slot[slot] = shares

    def _own_shares(self, record: NodeRecord) -> list[_Share]:
        shape, shares = self._shape, list[_Share]()
        spread_keys = [one.term.topology_key for one in shape.spread]
        if spread_keys and all(key in record.labels for key in spread_keys) and is_node_selected(record, shape):
            for index, one in enumerate(shape.spread):
                domain = record.labels[one.term.topology_key]
                shares.append((self._spread_nodes[index], domain, 1))
                if count := _count_matching_pods(record, one.term):
                    shares.append((self._spread[index], domain, count))
        for terms, all_counts in ((shape.affinity, self._affinity), (shape.anti_affinity, self._anti_affinity)):
            for term, counts in zip(terms, all_counts, strict=True):
                found = record.labels.get(term.topology_key)
                if found is not None and (count := _count_matching_pods(record, term)):
                    shares.append((counts, found, count))
        return shares

    def _refusing_shares(self, record: NodeRecord) -> list[_Share]:
        if not record.anti_affine_pods:
            return []
        shares = []
        for other, count in record.pods_by_shape.items():
            for term in other.anti_affinity:
                domain = record.labels.get(term.topology_key)
                if domain is not None and term.matches_pod(self._shape):
                    counts = self._refused_by_topology_key.setdefault(term.topology_key, {})
                    shares.append((counts, domain, count))
        return shares

    def lowest_counts(self) -> list[int]:
        """Returns for each spread constraint the lowest count, with which the others are compared."""
        lowest = []
        for one, counts, nodes in zip(self._shape.spread, self._spread, self._spread_nodes, strict=True):
            enough = len(nodes) >= one.min_domains and bool(nodes)
            lowest.append(min(counts.get(domain, 0) for domain in nodes) if enough else 0)
        return lowest

    def node_refusal_reason(self, record: NodeRecord, lowest: list[int]) -> str:
        """Returns why the pods around refuse the node; empty when they allow it."""
        return self._spread_refusal(record, lowest) or self._affinity_refusal(record)

    def _spread_refusal(self, record: NodeRecord, lowest: list[int]) -> str:
        for one, counts, floor in zip(self._shape.spread, self._spread, lowest, strict=True):
            domain = record.labels.get(one.term.topology_key)
            if domain is None:
                return _SPREAD_NO_LABEL
            # The new pod counts in its domain only if its own labels match the constraint's selector.
            itself = 1 if one.term.matches_pod(self._shape) else 0
            if counts.get(domain, 0) + itself - floor > one.max_skew:
                return _SPREAD
        return ""

    def _affinity_refusal(self, record: NodeRecord) -> str:
        shape, labels = self._shape, record.labels
        for key, counts in self._refused_by_topology_key.items():
            if labels.get(key) in counts:
                return _OTHERS_ANTI_AFFINITY
        if shape.affinity and not self._is_affinity_met(record):
            return _AFFINITY
        for term, counts in zip(shape.anti_affinity, self._anti_affinity, strict=True):
            if labels.get(term.topology_key) in counts:
                return _ANTI_AFFINITY
        return ""

    def _is_affinity_met(self, record: NodeRecord) -> bool:
        domains = [record.labels.get(term.topology_key) for term in self._shape.affinity]
        if None in domains:
            return False
        if all(domain in counts for domain, counts in zip(domains, self._affinity, strict=True)):
            return True
        # The first pod of a group that wants to be together may go anywhere.
        alone = not any(self._affinity)
        return alone and all(term.matches_pod(self._shape) for term in self._shape.affinity)


def _count_matching_pods(record: NodeRecord, term: PodTerm) -> int:
    return sum(count for shape, count in record.pods_by_shape.items() if term.matches_pod(shape))
