"""Keeps the shapes that clusters give to a template's pods, as the clusters reported them.

Every module that needs a cluster's own shape of a template gets it from here.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import replace
from typing import Final

from planner.core.feasibility.quantities import quantity_text
from spillway.events import SHAPE_ADMITTED, SHAPE_FORBIDDEN, SHAPE_REFUSED, ShapeAdmitted
from spillway.model import ObjectReference, PodTraits, Shape

SEEN_MAX = 100_000
"""The most digests of templates that are remembered as declared. If there are more, the oldest are forgotten."""
REFUSED = "pods of this template are refused there"


class AdmittedShapes:
    """The newest ShapeAdmitted records, by template digest and cluster. A shape without a digest has no template.

    held: clusters that a propagator has claimed, so that they can be asked.
    silent: clusters in `held` that answered nothing while a question to them waited.
    """

    def __init__(self) -> None:
        self.held: dict[str, None] = {}
        self.silent: dict[str, None] = {}
        self._said: dict[str, dict[str, ShapeAdmitted]] = {}
        self._differing: dict[str, dict[str, Shape]] = {}
        self._differs_in: dict[str, int] = {}
        self._refusing: dict[str, dict[str, None]] = {}
        self._lacking: dict[str, dict[str, tuple[ObjectReference, ...]]] = {}
        self._seen: dict[str, None] = {}

    # ── What is known ───────────────────────────────────────────────────────────────────────────────────────────

    def shape_in(self, cluster: str, shape: Shape) -> Shape:
        """Returns the shape that the cluster gives to pods of this shape's template; if unknown, the shape itself.

        It is idempotent: applied to its result, it returns the same shape.
        """
        differing = self._differing.get(shape.template)
        return shape if differing is None else differing.get(cluster, shape)

    def clusters_changing_shape(self, shape: Shape) -> Iterable[str]:
        """Returns the clusters that give the template's pods another shape than the template has."""
        return self._differing.get(shape.template, ())

    def has_changes_in(self, cluster: str) -> bool:
        """Returns whether the cluster changes or refuses the pods of any template."""
        return self._differs_in.get(cluster, 0) > 0

    def clusters_refusing(self, shape: Shape) -> Iterable[str]:
        """Returns the clusters that refuse pods of the shape's template."""
        return self._refusing.get(shape.template, ())

    def refusal_message(self, cluster: str, shape: Shape) -> str | None:
        """Returns the refusal of the cluster if it admits no pod of the shape's template; None if it may admit some."""
        if cluster not in self.clusters_refusing(shape):
            return None
        return self._said[shape.template][cluster].message

    def clusters_lacking_objects(self, digest: str) -> Iterable[str]:
        """Returns the clusters that lack an object that a template names."""
        return self._lacking.get(digest, ())

    def missing_objects(self, digest: str, cluster: str) -> tuple[ObjectReference, ...]:
        """Returns the objects that a template names and a cluster reported missing.

        They include objects that go along with the workload.
        """
        return self._lacking.get(digest, {}).get(cluster, ())

    def altered_shapes(self, digest: str) -> frozenset[tuple[str, Shape | None]]:
        """Returns (cluster, shape) for each cluster that changes or refuses a template's pods; None for a refusal."""
        refusing = dict.fromkeys(self._refusing.get(digest, ()))
        return frozenset((*self._differing.get(digest, {}).items(), *refusing.items()))

    def is_known(self, digest: str) -> bool:
        """Returns whether a template was declared or asked about before.

        Such a template never waits for answers again.
        """
        return digest in self._seen or digest in self._said

    def find_record(self, digest: str, cluster: str) -> ShapeAdmitted | None:
        return self._said.get(digest, {}).get(cluster)

    def clusters_with_record(self, digest: str) -> Set[str]:
        """Returns the clusters that reported anything about a template."""
        return self._said.get(digest, {}).keys()

    def all_records(self) -> Iterator[ShapeAdmitted]:
        for by_cluster in self._said.values():
            yield from by_cluster.values()

    # ── What is learnt ──────────────────────────────────────────────────────────────────────────────────────────

    def apply_record(self, event: ShapeAdmitted) -> bool:
        """Applies a record; a record that is older than the known one is dropped.

        Returns whether it changes anything for replicas of the template there: their shape, whether the cluster refuses
        them, or which objects they lack.
        """
        self.note_claim(event.cluster)
        before = self.find_record(event.template, event.cluster)
        if before is not None and (before.epoch, before.sequence) > (event.epoch, event.sequence):
            return False
        self._said.setdefault(event.template, {})[event.cluster] = event
        refused = self._store_refusal(event.template, event.cluster, event.state == SHAPE_REFUSED)
        lacks = self._store_missing_objects(event.template, event.cluster, event.missing)
        return self._store_shape(event.template, event.cluster, event.shape) or refused or lacks

    def forget_record(self, digest: str, cluster: str) -> bool:
        """Forgets a record after its tombstone. Returns whether that changes anything for the template's replicas."""
        by_cluster = self._said.get(digest, {})
        by_cluster.pop(cluster, None)
        if not by_cluster:
            self._said.pop(digest, None)
        refused, lacks = self._store_refusal(digest, cluster, False), self._store_missing_objects(digest, cluster, ())
        return self._store_shape(digest, cluster, None) or refused or lacks

    def forget_cluster(self, cluster: str) -> None:
        """Forgets a cluster that has left the fleet."""
        self.held.pop(cluster, None)
        self.silent.pop(cluster, None)
        for digest in [digest for digest, by_cluster in self._said.items() if cluster in by_cluster]:
            self.forget_record(digest, cluster)

    def note_declared(self, digest: str) -> None:
        """Marks the template as declared, so that no request waits for answers about it again."""
        self._seen[digest] = None
        if len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]

    def note_claim(self, cluster: str) -> None:
        """Records that a propagator has claimed the cluster: it can be asked, and is not silent any more."""
        self.held[cluster] = None
        self.silent.pop(cluster, None)

    def note_unanswered(self, clusters: Iterable[str]) -> None:
        """Marks clusters that did not answer, so that no further request waits for them.

        The mark ends when the cluster reports something or is claimed again.
        """
        self.silent.update(dict.fromkeys(clusters))

    def copy_with_variant(self, base: Shape, variant: Shape) -> "AdmittedShapes":
        """Returns a copy in which the template has the shape `variant` in place of `base`, for a "what if" question.

        It assumes that clusters change the variant in the same way as the base.
        """
        found = AdmittedShapes()
        for name in ("held", "silent", "_said", "_seen", "_refusing", "_lacking"):
            setattr(found, name, getattr(self, name))
        found._differs_in, found._differing = dict(self._differs_in), dict(self._differing)
        differing = self._differing.get(base.template)
        if differing is not None:
            found._differing[base.template] = {
                cluster: _vary_admitted_shape(base, variant, admitted) for cluster, admitted in differing.items()
            }
        return found

    def _store_refusal(self, digest: str, cluster: str, refused: bool) -> bool:
        """Stores whether the cluster refuses the template. Returns whether that has changed."""
        refusing = self._refusing.setdefault(digest, {})
        changed = refused != (cluster in refusing)
        if changed and refused:
            refusing[cluster] = None
        elif changed:
            del refusing[cluster]
        if not refusing:
            del self._refusing[digest]
        self._differs_in[cluster] = self._differs_in.get(cluster, 0) + changed * (1 if refused else -1)
        return changed

    def _store_missing_objects(self, digest: str, cluster: str, missing: tuple[ObjectReference, ...]) -> bool:
        """Stores the objects of the template that the cluster lacks. Returns whether they have changed."""
        lacking = self._lacking.setdefault(digest, {})
        before = lacking.pop(cluster, ())
        if missing:
            lacking[cluster] = missing
        if not lacking:
            del self._lacking[digest]
        return before != missing

    def _store_shape(self, digest: str, cluster: str, shape: Shape | None) -> bool:
        differing = self._differing.setdefault(digest, {})
        before = differing.pop(cluster, None)
        if shape is not None:
            differing[cluster] = replace(shape, template=digest)
        if not differing:
            del self._differing[digest]
        self._differs_in[cluster] = self._differs_in.get(cluster, 0) + (shape is not None) - (before is not None)
        same_traits = before is None or shape is None or before.traits == shape.traits
        return before != shape or not same_traits


def _vary_admitted_shape(base: Shape, variant: Shape, admitted: Shape) -> Shape:
    was, wanted, became = dict(base.requests), dict(variant.requests), dict(admitted.requests)
    amounts = {
        name: wanted.get(name, 0) + became.get(name, 0) - was.get(name, 0) for name in {**wanted, **became, **was}
    }
    more = tuple(entry for entry in variant.tolerations if entry not in base.tolerations)
    requests = tuple(sorted((name, amount) for name, amount in amounts.items() if amount > 0))
    return replace(admitted, requests=requests, tolerations=(*admitted.tolerations, *more))


def other_admitted_shapes(
    shape: Shape, clusters: Iterable[str], shape_in: Callable[[str, Shape], Shape]
) -> Iterator[tuple[Shape, frozenset[str]]]:
    """Yields each admitted shape that differs from `shape`, and the clusters that admit it.

    shape_in: returns the shape that a cluster gives to a shape (PlannerState.shape_in).
    """
    found: dict[tuple[Shape, PodTraits], list[str]] = {}
    for cluster in clusters:
        one = shape_in(cluster, shape)
        if one is not shape:
            found.setdefault((one, one.traits), []).append(cluster)
    for (one, _), names in found.items():
        yield one, frozenset(names)


# ── For people ──────────────────────────────────────────────────────────────────────────────────────────────────────


NOT_ASKED_YET: Final = (
    "planned as declared: what pods of this template become there is not known yet, nor whether all that it names is "
    "there; `spillway explain` says it once the cluster has answered, `spillway apply --wait` while it waits"
)


def template_planning_notes(shapes: AdmittedShapes, digest: str, clusters: Iterable[str]) -> tuple[str, ...]:
    """Returns texts for users that say in which clusters the admitted shape is unknown, and why.

    There replicas were planned as declared, or the cluster refuses them.
    """
    silent, found = [], dict[str, list[str]]()
    for cluster in sorted(clusters):
        said = shapes.find_record(digest, cluster)
        if said is None:
            silent += [cluster] if cluster in shapes.held else []
        elif said.state == SHAPE_REFUSED:
            found.setdefault(f"{REFUSED}: {said.message}", []).append(cluster)
        elif said.state == SHAPE_FORBIDDEN:
            why = "planned as declared: our account there may not create pods, which a dry run needs"
            found.setdefault(why, []).append(cluster)
        elif said.state != SHAPE_ADMITTED:
            found.setdefault(f"planned as declared: it could not be asked: {said.message}", []).append(cluster)
    if silent:
        found[NOT_ASKED_YET] = silent
    return tuple(f"{', '.join(names)}: {why}" for why, names in found.items())


def unmodelled_and_notes(
    shapes: AdmittedShapes, shape: Shape, clusters: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the requirements of a shape that the planner ignores in these clusters, as names to show to users.

    Also returns the texts of template_planning_notes().
    """
    said = [shapes.find_record(shape.template, cluster) for cluster in clusters]
    admitted = bool(said) and all(one is not None and one.state == SHAPE_ADMITTED for one in said)
    unmodelled = shape.unmodelled if admitted else unmodelled_with_overhead(shape.unmodelled, shape)
    return unmodelled, template_planning_notes(shapes, shape.template, clusters)


def unmodelled_with_overhead(unmodelled: tuple[str, ...], shape: Shape) -> tuple[str, ...]:
    """Adds the overhead of the shape's RuntimeClass to the names of requirements that the planner ignores."""
    return (*unmodelled, f"overhead of runtimeClassName {shape.overhead_of}") if shape.overhead_of else unmodelled


def admission_difference_texts(shapes: AdmittedShapes, shape: Shape, clusters: Iterable[str]) -> tuple[str, ...]:
    """Returns texts for users that say which clusters change the template's shape, and in what."""
    found: dict[str, list[str]] = {}
    for cluster in clusters:
        admitted = shapes.shape_in(cluster, shape)
        if admitted is not shape:
            found.setdefault(_difference_text(shape, admitted), []).append(cluster)
    return tuple(f"admitted in {', '.join(names)}: {text}" for text, names in found.items())


def _difference_text(shape: Shape, admitted: Shape) -> str:
    was, became = dict(shape.requests), dict(admitted.requests)
    texts = [
        f"{name} {quantity_text(name, became.get(name, 0))} instead of {quantity_text(name, was.get(name, 0))}"
        for name in sorted({**was, **became})
        if was.get(name, 0) != became.get(name, 0)
    ]
    selected = [f"{key}={value}" for key, value in admitted.node_selector if (key, value) not in shape.node_selector]
    tolerated = [entry.key for entry in admitted.tolerations if entry not in shape.tolerations]
    texts += [f"nodes with {', '.join(selected)}"] if selected else []
    texts += [f"tolerates {', '.join(tolerated)}"] if tolerated else []
    texts += [f"priority class {admitted.traits.priority_class}"] * (
        admitted.traits.priority_class != shape.traits.priority_class
    )
    alike = replace(admitted, requests=shape.requests, node_selector=shape.node_selector, tolerations=shape.tolerations)
    texts += ["other affinity, spread or host ports"] if alike != shape else []
    texts += ["other labels"] if admitted.traits.labels != shape.traits.labels else []
    return ", ".join(texts) or "other limits"
