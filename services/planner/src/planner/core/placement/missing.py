"""Handles objects that a workload's template names and a cluster lacks: a Secret, a volume claim, a class.

This is no lack of room. After a first wait, replicas that such a cluster would take wait for the object. Nothing is
reserved for them, and they go to no later tier (README, "What a template names and a cluster lacks").
"""

from collections.abc import Iterable, Mapping

from planner.core.division import words
from planner.core.division.situation import Division
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import PlacementSubject
from planner.core.knowledge.workload import Workload, reported_missing_objects
from planner.core.manifests.templates import is_newest
from spillway.events import STATE_ABSENT, STATE_DEPENDENCY_MISSING, WorkloadDeclared
from spillway.model import ObjectReference, Part
from spillway.texts import object_name

Missing = tuple[ObjectReference, ...]


def missing_by_cluster(state: PlannerState, subject: PlacementSubject) -> dict[str, Missing]:
    """Returns, by cluster, the objects that the newest template names and the cluster reported missing."""
    digest, found = subject.replica_shape.template, dict[str, Missing]()
    for cluster in state.admitted.clusters_lacking_objects(digest):
        missing = _missing_beyond_dependencies(subject.declared, state.admitted.missing_objects(digest, cluster))
        if missing and cluster in state.clusters:
            found[cluster] = missing
    known = subject.known
    if known is None or known.replica_shape.template != digest:
        return found
    for part in known.parts.values():
        told = _reported_missing(known, part)
        if told:
            found[part.cluster] = told
        elif told is not None:
            found.pop(part.cluster, None)
    return found


def has_missing_object(state: PlannerState, workload: Workload, cluster: str) -> bool:
    """Returns whether a cluster is known to lack an object that the workload's newest template names."""
    part = workload.parts.get(cluster)
    told = _reported_missing(workload, part) if part is not None else None
    if told is not None:
        return bool(told)
    return bool(
        _missing_beyond_dependencies(
            workload.declared, state.admitted.missing_objects(workload.replica_shape.template, cluster)
        )
    )


def is_waiting_for_missing(workload: Workload) -> bool:
    """Returns whether it was decided that replicas of the newest template wait for objects that clusters lack."""
    return any(part.missing and is_newest(part, workload.declared) for part in workload.parts.values())


def has_waited_for_missing(workload: Workload) -> bool:
    """Returns whether the first wait is over, in which the newest template's replicas reserve room in clusters that
    lack an object.

    After it, replicas that such a cluster would take wait there and reserve nothing, however many they are.
    """
    said = workload.placement.missing_template if workload.placement is not None else ""
    return said == workload.replica_shape.template or is_waiting_for_missing(workload)  # Older records lack the first.


def waited_template_digest(subject: PlacementSubject, decided: Mapping[str, Missing]) -> str:
    """Returns PlacementDecided.missing_template: the newest template's digest once its first wait is over, or ""."""
    known = subject.known
    if known is None or known.replica_shape.template != subject.replica_shape.template:
        return ""
    parts = (known.parts[cluster] for cluster in decided if cluster in known.parts)
    now = any(is_newest(part, known.declared) for part in parts)
    return subject.replica_shape.template if now or has_waited_for_missing(known) else ""


def awaited_objects_by_cluster(
    state: PlannerState,
    subject: PlacementSubject,
    before: Iterable[Part],
    division: Division,
    decided: Mapping[str, Missing],
) -> dict[str, Missing]:
    """Returns, by cluster, the objects that replicas wait for there. The placement lists these clusters, even without
    replicas, so that their propagators report when the object is there.

    before: the parts so far. decided: by cluster, the objects for which replicas begin to wait now.
    After the first wait, each cluster where replicas wait is listed. If all replicas have a place, a cluster is listed
    only if its minimum waits for the object.
    """
    if subject.known is None or subject.declared.deleting or not (division.unplaced or division.waits_in):
        return {}
    if not division.unplaced:
        before, decided = (), {name: named for name, named in decided.items() if name in division.waits_in}
    if not waited_template_digest(subject, decided):
        return dict(decided)
    lacking = missing_by_cluster(state, subject)
    waits = {*division.waits_in, *(part.cluster for part in before if part.missing)}
    return {name: lacking[name] for name in sorted(waits & lacking.keys())} | dict(decided)


def missing_texts_by_cluster(missing: Mapping[str, Missing]) -> dict[str, str]:
    """Returns the missing objects by cluster as texts for users."""
    return {cluster: ", ".join(map(object_name, named)) for cluster, named in missing.items()}


def missing_warnings(lacking: Mapping[str, Missing], parts: Iterable[Part]) -> tuple[str, ...]:
    """Returns texts for users that name the objects which clusters with replicas lack, and these clusters.

    lacking: the missing objects by cluster. parts: the parts of the placement.
    """
    used = {part.cluster for part in parts if part.replicas and not part.removing}
    then = "no new pod starts there before it is made; `spillway explain` and `spillway apply --wait` say when it is"
    named = _missing_texts({cluster: lacking[cluster] for cluster in used & lacking.keys()})[: words.NAMED_MAX]
    return tuple(f"{STATE_DEPENDENCY_MISSING}: {text}: {then}" for text in named)


def texts_after_room(state: PlannerState, subject: PlacementSubject, parts: Iterable[Part]) -> list[str]:
    """Returns texts that say for which missing objects the replicas that now wait for room will wait after that."""
    if not any(part.missing for part in parts):
        return []
    return [f"and then {text}" for text in _missing_texts(missing_by_cluster(state, subject))]


def _missing_texts(lacking: Mapping[str, Missing]) -> list[str]:
    """Returns one text for each group of clusters that lack the same objects, in the order of the objects' names."""
    clusters: dict[str, list[str]] = {}
    for cluster, what in sorted(missing_texts_by_cluster(lacking).items()):
        clusters.setdefault(what, []).append(cluster)
    return [words.missing_objects_text(what, where) for what, where in sorted(clusters.items())]


def _reported_missing(workload: Workload, part: Part) -> Missing | None:
    """Returns the missing objects that the part's cluster reported at the part's version.

    If it has not reported at this version, returns the objects noted in the part; None if there are none.
    """
    said = workload.statuses.get(part.cluster)
    if part.removing or said is None or said.version != part.version or said.state == STATE_ABSENT:
        return part.missing or None
    return reported_missing_objects(part, said)


def _missing_beyond_dependencies(declared: WorkloadDeclared, missing: Iterable[ObjectReference]) -> Missing:
    """Returns the missing objects except the ones that the declaration itself brings as dependencies."""
    given = {(one.kind, one.name) for one in declared.dependencies}
    return tuple(one for one in missing if (one.kind, one.name) not in given)
