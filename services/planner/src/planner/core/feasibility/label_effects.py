"""Computes how unbound replicas may keep each other from nodes by their labels, in addition to taking room.

The node of an unbound replica is not known, so the worst node is assumed. A shape with unknown labels may have any.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from spillway.kubernetes.pod_shape import is_of_own_template, matches_labels
from spillway.model import HOSTNAME_LABEL, PodTerm, Requirement, Shape, Spread

NOTHING, NODE, ALL = 0, 1, 2
"""The nodes that one replica may close to another shape at most: none (it only takes room), one node, or all nodes."""


@dataclass(slots=True)
class Effect:
    """The most that one replica of a shape costs another shape.

    bars: what it closes to the other shape: NOTHING, NODE or ALL.
    marks: how many of the other shape's spread constraints count the replica, too.
    """

    bars: int = NOTHING
    marks: int = 0


def has_pod_terms(shape: Shape) -> bool:
    return bool(shape.apart or shape.spread or shape.near)


Effects = dict[tuple[int, int], Effect]
"""Effects by (index of the shape that loses room, index of the replica's shape). Pairs without an effect are absent."""


def effects_between_shapes(shapes: Sequence[Shape]) -> Effects:
    """Returns the effects that replicas of these shapes may have on each other."""
    effects: Effects = {}
    lookers = [index for index, shape in enumerate(shapes) if has_pod_terms(shape)]
    others = ByLabel(shapes) if lookers else None
    for index in lookers:
        assert others is not None
        _add_effects(effects, (index, shapes[index]), others, 0)
    return {pair: effect for pair, effect in effects.items() if not _is_same_shape(shapes[pair[0]], shapes[pair[1]])}


def effects_with_shape(shape: Shape, others: "ByLabel") -> Effects:
    """Returns the effects between one more shape and the others. The index of that shape follows their indices."""
    effects: Effects = {}
    more, shapes = len(others.shapes), (*others.shapes, shape)
    if has_pod_terms(shape):
        _add_effects(effects, (more, shape), others, 0)
    alone = ByLabel((shape,)) if others.lookers else None
    for index in others.lookers:
        assert alone is not None
        _add_effects(effects, (index, shapes[index]), alone, more)
    return {pair: effect for pair, effect in effects.items() if not _is_same_shape(shapes[pair[0]], shapes[pair[1]])}


def _add_effects(effects: Effects, looker: tuple[int, Shape], others: "ByLabel", first: int) -> None:
    """Adds the effects of one shape's anti-affinity, spread and affinity on others. Their indices begin at `first`."""
    index, shape = looker
    for term in shape.apart:
        bars = NODE if term.topology_key_or_hostname == HOSTNAME_LABEL else ALL
        for other in others.selected_by_term(term, shape):
            for pair in ((index, first + other), (first + other, index)):
                effect = effects.setdefault(pair, Effect())
                effect.bars = max(effect.bars, bars)
    for spread in shape.spread:
        for other in others.counted_by_spread(spread, shape):
            effect = effects.setdefault((index, first + other), Effect())
            effect.bars = ALL if spread.others_only else effect.bars
            effect.marks += 0 if spread.others_only else 1
    if shape.near:  # A replica that the affinity selects may draw this shape's replicas to its own domain.
        for other in set.intersection(*(set(others.selected_by_term(term, shape)) for term in shape.near)):
            effects.setdefault((index, first + other), Effect()).bars = ALL


def _is_same_shape(one: Shape, other: Shape) -> bool:
    return one == other and one.traits.labels == other.traits.labels


class ByLabel:
    """Finds shapes by namespace and labels. A shape with unknown labels is always found.

    lookers: the indices of shapes with affinity, anti-affinity or spread, which look at other pods.
    """

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self.shapes = shapes
        self.lookers = [index for index, shape in enumerate(shapes) if has_pod_terms(shape)]
        self._by_label: dict[tuple[str, str, str], list[int]] = {}
        self._by_namespace: dict[str, list[int]] = {}
        self._unknown: dict[str, list[int]] = {}
        for index, shape in enumerate(shapes):
            self._by_namespace.setdefault(shape.namespace, []).append(index)
            if not shape.traits.labels:
                self._unknown.setdefault(shape.namespace, []).append(index)
            for key, value in shape.traits.labels:
                self._by_label.setdefault((shape.namespace, key, value), []).append(index)

    def selected_by_term(self, term: PodTerm, bearer: Shape) -> Iterator[int]:
        """Yields the indices of shapes that a term may select. A namespace selector may select any namespace."""
        named = term.namespaces or (bearer.namespace,)
        namespaces: Iterable[str] = self._by_namespace if term.namespace_selector is not None else named
        for namespace in namespaces:
            yield from self._matching_indices(term.selector.requirements, namespace)

    def counted_by_spread(self, spread: Spread, bearer: Shape) -> Iterator[int]:
        if spread.selector.requirements:
            yield from self._matching_indices(spread.selector.requirements, bearer.namespace)

    def _matching_indices(self, requirements: Sequence[Requirement], namespace: str) -> Iterator[int]:
        if any(is_of_own_template(entry) and entry.operator == "In" for entry in requirements):
            return  # The selector finds pods of the shape's own template, which have no other shape.
        named = next((entry for entry in requirements if entry.operator == "In"), None)
        if named is None:
            found = self._by_namespace.get(namespace, [])
        else:
            found = [index for value in named.values for index in self._by_label.get((namespace, named.key, value), ())]
        for index in found:
            labels = self.shapes[index].traits.labels
            if labels and matches_labels(requirements, dict(labels)):
                yield index
        yield from self._unknown.get(namespace, ())
