"""Bounds the required anti-affinity terms of bound pods in a cluster's records.

The planner compares a pod with each term that may select it, each time it computes room. A term that selects other
namespaces is compared with pods of all namespaces; any other term only with pods of its own namespace. A term counts
once, however many pods have it. Only the present pods decide which namespaces are beyond a bound. Namespaces with the
fewest terms are counted first, so that a tenant with many terms loses its own terms and not those of others.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from spillway.kubernetes.term_bounds import requirements_of
from spillway.model import PodTable, PodTerm

Key = TypeVar("Key")

TERMS_OF_NODE_MAX: Final = 1_000
"""The most terms of all pods of one node."""
TERMS_OF_NAMESPACE_MAX: Final = 5_000
TERMS_OF_CLUSTER_MAX: Final = 5_000
"""The most terms of a cluster that select pods of other namespaces than their own."""
LONG: Final = 20
"""The number of requirements, values and namespaces in a term that add 1 to its weight."""


@dataclass(slots=True)
class _NamespaceTerms:
    """The terms of one namespace.

    uses: the number of pods by their terms.
    terms: the number of uses of each term.
    pods: the number of pods with terms, by node.
    all: the weight of all terms.
    wide: the weight of the terms that select other namespaces, too.
    """

    uses: dict[tuple[PodTerm, ...], int] = field(default_factory=dict)
    terms: dict[PodTerm, int] = field(default_factory=dict)
    pods: dict[str, int] = field(default_factory=dict)
    all: int = 0
    wide: int = 0


class RepellingTerms:
    """The terms of a cluster's pods.

    over: namespaces whose terms are left out. Nodes with such pods are then unschedulable and offer nothing.
    """

    def __init__(self) -> None:
        self.over: frozenset[str] = frozenset()
        self._namespaces: dict[str, _NamespaceTerms] = {}
        self._wide = 0
        self._changed = False

    def count_pod(self, node: str, table: PodTable, sign: int) -> None:
        """Adds a pod to the counts, or removes it. sign: 1 adds, -1 removes."""
        if not table.apart:
            return
        found = self._namespaces.setdefault(table.namespace, _NamespaceTerms())
        _add_to_count(found.pods, node, sign)
        # A term counts with the first pod that has it, until the last such pod is gone.
        first_or_last = _add_to_count(found.uses, table.apart, sign) == (1 if sign > 0 else 0)
        for term in table.apart if first_or_last else ():
            if _add_to_count(found.terms, term, sign) == (1 if sign > 0 else 0):
                self._add_weight_of_term(found, term, table.namespace, sign)
        if not found.pods:
            del self._namespaces[table.namespace]

    def update_namespaces_over_bound(self) -> Iterable[str]:
        """Updates which namespaces are beyond a bound. Returns the nodes whose rows change."""
        if not self._changed:
            return ()
        self._changed = False
        before, self.over = self.over, frozenset(self._namespaces_over_bound())
        changed = before ^ self.over
        return {node for name in changed if name in self._namespaces for node in self._namespaces[name].pods}

    def _add_weight_of_term(self, found: _NamespaceTerms, term: PodTerm, namespace: str, sign: int) -> None:
        weight = sign * weight_of_term(term)
        wide = weight if term.namespace_selector is not None or set(term.namespaces) - {namespace} else 0
        found.all += weight
        found.wide += wide
        self._wide += wide
        self._changed = True

    def _namespaces_over_bound(self) -> Iterable[str]:
        yield from (name for name, one in self._namespaces.items() if one.all > TERMS_OF_NAMESPACE_MAX)
        if self._wide <= TERMS_OF_CLUSTER_MAX:
            return
        said = 0
        for wide, name in sorted((one.wide, name) for name, one in self._namespaces.items() if one.wide):
            said += wide
            if said > TERMS_OF_CLUSTER_MAX:
                yield name


def weight_of_term(term: PodTerm) -> int:
    """Returns the weight of a term: 1, and 1 more for each LONG requirements, values and namespaces."""
    entries = list(requirements_of((term,)))
    return 1 + (len(entries) + sum(len(entry.values) for entry in entries) + len(term.namespaces)) // LONG


def _add_to_count(counts: dict[Key, int], key: Key, by: int) -> int:
    """Adds to a count and returns it. A count of zero is removed."""
    found = counts.get(key, 0) + by
    if found:
        counts[key] = found
    else:
        del counts[key]
    return found
