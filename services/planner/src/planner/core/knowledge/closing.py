"""Finds why a cluster takes no new replicas although it may have room: none at all, of a shape, or of a workload."""

from collections.abc import Collection, Mapping
from typing import Protocol

from planner.core.feasibility.admitted import AdmittedShapes
from planner.core.feasibility.limits import Limit, LimitCode
from planner.core.knowledge.holds import Holds
from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.workload import Workload, is_orphan
from spillway.events import PHASE_ACTIVE, WorkloadObserved
from spillway.feasibility.cluster_view import ClusterView, WorkloadKey
from spillway.model import Shape

ORPHAN_THERE = "an orphan of this name is there and is left as it is"
"""Until the orphan is gone or taken over, nothing is written over it (docs/adr/0019)."""
DEPLOYMENT = "Deployment"
"""The only kind that can be adopted."""
CLUSTERS_NAMED_MAX = 20
"""The most clusters that a command for users names. A user with more clusters adds the others to the command."""


class ClosingState(Protocol):
    """The parts of the planner's state that can close a cluster."""

    rules: PlannerRules
    clusters: dict[str, ClusterView]
    workloads: dict[WorkloadKey, Workload]
    admitted: AdmittedShapes
    holds: Holds

    def statuses_by_cluster(self, key: WorkloadKey) -> Mapping[str, WorkloadObserved]: ...


def is_barring_orphan(said: WorkloadObserved) -> bool:
    """Returns whether an orphan keeps a workload of its name out of a cluster.

    It does not if only its ConfigMaps and Services are left there.
    """
    return is_orphan(said) and bool(said.kind or not said.beside)


def clusters_with_orphan(state: ClosingState, key: WorkloadKey | None) -> frozenset[str]:
    """Returns the clusters where an object with this workload's name runs and no placement lists it.

    A cluster does not count if the placement lists another name of its API server: then the object is listed.
    """
    known = {} if key is None else state.statuses_by_cluster(key)
    found = {name for name, said in known.items() if name in state.clusters and is_barring_orphan(said)}
    workload = state.workloads.get(key) if found and key is not None else None
    listed = [state.clusters[name] for name in workload.parts if name in state.clusters] if workload else []
    return frozenset(found - {view.twin_of for view in listed})


def orphan_command_texts(state: ClosingState, key: WorkloadKey, kind: str, placed: Collection[str]) -> tuple[str, ...]:
    """Returns texts for users, one for each kind of orphan of this name: the commands that delete it or keep it.

    kind: of the workload. placed: the clusters that its placement lists.
    """
    by_kind: dict[str, list[str]] = {}
    for cluster in sorted(clusters_with_orphan(state, key) - set(placed)):
        by_kind.setdefault(state.statuses_by_cluster(key)[cluster].kind or DEPLOYMENT, []).append(cluster)
    texts = []
    for one, clusters in sorted(by_kind.items()):
        text = f"{', '.join(clusters[:CLUSTERS_NAMED_MAX])}: {ORPHAN_THERE}: `{delete_command(key, one)}` there ends it"
        if one == kind == DEPLOYMENT:
            text += f"; {text_of_commands_to_keep(key, clusters, placed)} it as it runs"
        texts.append(text)
    return tuple(texts)


def text_of_commands_to_keep(key: WorkloadKey, clusters: Collection[str], placed: Collection[str]) -> str:
    """Returns a text with the commands that take over a Deployment in these clusters.

    It ends with a verb ("keeps", "keep"). The caller adds the words that follow it.
    """
    namespace, name = key
    every = sorted({*clusters, *placed})
    more = f" and {len(every) - CLUSTERS_NAMED_MAX} clusters more" if len(every) > CLUSTERS_NAMED_MAX else ""
    where = " ".join(f"--cluster {cluster}" for cluster in every[:CLUSTERS_NAMED_MAX])
    adopt = f"`spillway adopt deployment/{name} -n {namespace} {where}`{more}"
    if not placed:
        return f"{adopt} keeps"
    return (
        f"`spillway disown deployment/{name} -n {namespace} --wait`, then {adopt} (with -f and its PlacementPolicy, "
        "if it has one) keep"
    )


def delete_command(key: WorkloadKey, kind: str) -> str:
    return f"kubectl delete {(kind or DEPLOYMENT).lower()} {key[1]} -n {key[0]}"


def why_closed(
    state: ClosingState, view: ClusterView, shape: Shape, now: float, key: WorkloadKey | None
) -> Limit | None:
    """Returns why the cluster takes no replicas; None if it may take some.

    shape: as the cluster admits it. key: the workload that asks; None: checks nothing about a workload.
    """
    cluster = view.name
    stale = view.staleness_reason(now, state.rules.capacity_age_max)
    if stale:
        return Limit(LimitCode.AGE, said=stale)
    if view.phase != PHASE_ACTIVE:
        return Limit(LimitCode.PHASE, names=(view.phase.lower(),))
    if view.twin_reason:
        return Limit(LimitCode.TWIN, said=view.twin_reason)
    refusal = state.admitted.refusal_message(cluster, shape)
    if refusal is not None:
        return Limit(LimitCode.REFUSED, names=(refusal,))
    if key is not None and cluster in clusters_with_orphan(state, key):
        return Limit(LimitCode.ORPHAN, names=(*key, state.statuses_by_cluster(key)[cluster].kind))
    for holder, whose in ((shape, "this shape"), (key, "this workload")) if state.holds else ():
        hold = state.holds.get((cluster, holder)) if holder is not None else None
        if hold is not None and hold.until > now:
            return Limit(LimitCode.HELD, round(hold.until - now), (whose, hold.why))
    return None
