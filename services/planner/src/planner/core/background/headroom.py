"""Computes the headroom of workloads that follow it, in replicas, by supply class of the clusters.

A cluster's headroom is its certain room plus the replicas that the workload itself has there, bound or reserved. So the
workload's own scaling does not change it, and a replica that a move doubles counts as room, not as use. Two kinds of
other workloads change it, if they may run on the same nodes (protocols: Headroom). Workloads of lower priority that
follow headroom give way, so their bound replicas are added. Workloads of higher priority may wait for room, so their
waiting replicas are subtracted.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from planner.core.background.overflow import first_tier_by_cluster
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.knowledge.workload import Workload
from planner.core.manifests.cluster_index import supply_class_of_cluster
from planner.core.placement.missing import is_waiting_for_missing
from spillway.amounts import clamp_to_int64
from spillway.events import PHASE_ACTIVE, PHASE_CORDONED, ClusterJoined
from spillway.events_scaling import LoadObserved
from spillway.feasibility.cluster_view import WorkloadKey
from spillway.model import PodTraits, Shape

METRIC = "headroom"
SOURCE = "planner"
GRACE_SECONDS = 30
"""The terminationGracePeriodSeconds of a template that sets none: Kubernetes' default."""


@dataclass(frozen=True, slots=True)
class HeadroomPace:
    """The pace of headroom reports, in seconds.

    look: the pause between two computations of one workload's headroom.
    repeat: after that time an unchanged number is reported again.
    settle: how long it takes until a change in a cluster is known here.
    looks_max: the number of workloads that one step computes, at most.
    """

    look: float
    repeat: float
    settle: float
    looks_max: int


@dataclass(frozen=True, slots=True)
class IdleHeadroom:
    """The total number of a workload's replicas that a supply class can hold, its present replicas included.

    trouble: a text that says why the number is not known; empty if it is known.
    """

    replicas: int
    trouble: str = ""


def headroom_by_supply_class(state: PlannerState, workload: Workload, now: float) -> dict[str, IdleHeadroom]:
    """Returns the headroom by supply class of the clusters whose existing nodes its policy allows."""
    found: dict[str, IdleHeadroom] = {}
    clusters = _allowed_clusters(state, workload)
    for joined in clusters:
        name, before = supply_class_of_cluster(joined), found.get(supply_class_of_cluster(joined), IdleHeadroom(0))
        here = _headroom_in_cluster(state, workload, joined.cluster, now)
        trouble = before.trouble or here.trouble
        found[name] = IdleHeadroom(before.replicas + here.replicas, trouble)
    for other in state.workloads.values() if state.waiting else ():
        higher = other.declared.policy.priority > workload.declared.policy.priority
        if higher and other.workload_key in state.waiting and not is_waiting_for_missing(other):
            _subtract_headroom(found, _equivalent_replicas(other, workload), _supply_classes_of(state, other))
    return found


def _allowed_clusters(state: PlannerState, workload: Workload) -> list[ClusterJoined]:
    tiers, clusters = workload.declared.policy.tiers, state.joined_clusters()
    first = first_tier_by_cluster(workload.declared.policy, clusters)
    places = ((first[joined.cluster], joined) for joined in clusters)
    return [joined for tier, joined in places if tier < len(tiers) and not tiers[tier].node_groups]


def _supply_classes_of(state: PlannerState, workload: Workload) -> Iterable[str]:
    return dict.fromkeys(supply_class_of_cluster(joined) for joined in _allowed_clusters(state, workload))


def _headroom_in_cluster(state: PlannerState, workload: Workload, cluster: str, now: float) -> IdleHeadroom:
    """Returns the headroom in one cluster. In a cordoned cluster it is the kept replicas.

    It is 0 where nothing may be placed: in another phase, in a twin, or where the template is refused.
    """
    view, part = state.clusters[cluster], workload.parts.get(cluster)
    if view.phase == PHASE_CORDONED and part is not None and not part.removing:
        return IdleHeadroom(part.replicas_kept)
    if (
        view.phase != PHASE_ACTIVE
        or view.twin_reason
        or state.admitted.refusal_message(cluster, workload.replica_shape) is not None
    ):
        return IdleHeadroom(0)
    stale = view.staleness_reason(now, state.rules.capacity_age_max)
    if stale:
        return IdleHeadroom(0, f"{cluster}: {stale}")
    room = state.room_without_workload(cluster, workload.replica_shape, now, workload.workload_key).certain
    facts = view.facts.get(workload.workload_key)
    bound = sum(count for _, count in facts.counted) if facts is not None else 0
    below = sum(_bound_replicas(state, other, cluster) for other in _lower_priority_followers(state, workload))
    limits = {limit.cluster: limit.replicas_max for limit in workload.declared.policy.limits}
    most = limits.get(cluster, -1)
    replicas = room + bound + below
    return IdleHeadroom(replicas if most < 0 else min(replicas, most))


def _lower_priority_followers(state: PlannerState, workload: Workload) -> Iterator[Workload]:
    """Yields workloads of lower priority that also follow headroom, and so give way to this workload.

    Each of their replicas must make room for one replica, so they must request at least as much of each resource.
    """
    for key in state.scalings.following:
        other = state.workloads.get(key)
        if other is not None and other.declared.policy.priority < workload.declared.policy.priority:
            mine, theirs = dict(workload.replica_shape.requests), dict(other.replica_shape.requests)
            if _may_share_nodes(workload.replica_shape, other.replica_shape) and all(
                theirs.get(name, 0) >= mine[name] for name in mine
            ):
                yield other


def _bound_replicas(state: PlannerState, workload: Workload, cluster: str) -> int:
    facts = state.clusters[cluster].facts.get(workload.workload_key)
    return sum(count for _, count in facts.counted) if facts is not None else 0


def _equivalent_replicas(waiting: Workload, workload: Workload) -> int:
    """Returns how many replicas of `workload` request as much as the unplaced replicas of `waiting`.

    Returns 0 if the two cannot run on the same nodes.
    """
    mine, theirs = dict(workload.replica_shape.requests), dict(waiting.replica_shape.requests)
    if not _may_share_nodes(workload.replica_shape, waiting.replica_shape) or any(
        not mine.get(name) for name in theirs
    ):
        return 0
    each = max((-(-amount // mine[name]) for name, amount in theirs.items()), default=0)
    return waiting.unplaced * each


def _subtract_headroom(found: dict[str, IdleHeadroom], replicas: int, classes: Iterable[str]) -> None:
    for name in classes:
        idle = found.get(name)
        if idle is not None and replicas:
            taken = min(idle.replicas, replicas)
            found[name], replicas = replace(idle, replicas=idle.replicas - taken), replicas - taken


def _may_share_nodes(one: Shape, other: Shape) -> bool:
    """Returns whether two shapes may run on the same nodes, and neither depends on other pods."""
    bare = [replace(shape, namespace="", requests=(), traits=PodTraits(), template="") for shape in (one, other)]
    return bare[0] == bare[1] == replace(bare[0], host_ports=(), apart=(), spread=(), near=())


# ── Saying it ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class HeadroomReport:
    """The last report about one workload.

    replicas: replicas by cluster, at the last look. shrunk_at: the time when any of these numbers last fell.
    idle: by supply class, the reported headroom and the time of the report.
    """

    looked_at: float
    shrunk_at: float
    replicas: Mapping[str, int]
    idle: dict[str, tuple[IdleHeadroom, float]] = field(default_factory=dict)


class Headrooms:
    """Reports headroom when it is due, and remembers the reports of this turn. A new turn reports everything again."""

    def __init__(self, pace: HeadroomPace) -> None:
        self._pace = pace
        self._said: dict[WorkloadKey, HeadroomReport] = {}
        self._begun_at: float | None = None

    def report_due_headroom(self, state: PlannerState, moment: Moment) -> list[LoadObserved]:
        """Returns LoadObserved for workloads whose headroom changed or was reported too long ago."""
        now = moment.now
        if self._begun_at is None:
            self._begun_at = now
        for key in [key for key in self._said if key not in state.scalings.following]:
            del self._said[key]
        due = [key for key in state.scalings.following if self._is_due(state, key, now)]
        due.sort(key=lambda key: self._said[key].looked_at if key in self._said else -1.0)
        found: list[LoadObserved] = []
        for key in due[: self._pace.looks_max]:
            found.extend(self._report_workload(state, state.workloads[key], moment))
        return found

    def _is_due(self, state: PlannerState, key: WorkloadKey, now: float) -> bool:
        said, workload = self._said.get(key), state.workloads.get(key)
        if workload is None or workload.declared.deleting:
            return False
        return said is None or now - said.looked_at >= self._pace.look

    def _report_workload(self, state: PlannerState, workload: Workload, moment: Moment) -> Iterator[LoadObserved]:
        """Yields one workload's LoadObserved: for each supply class that its policy names and whose report is due.

        First the numbers of replicas are compared with the last look. After a decrease, the removed replicas may still
        run and count nowhere. So a smaller headroom is not reported until their grace period and `settle` are over.
        Then a class is reported if its headroom changed, or if the last report is older than `repeat`.
        """
        now, said = moment.now, self._said.get(workload.workload_key)
        replicas = {name: part.replicas for name, part in workload.parts.items()}
        if said is None:
            assert self._begun_at is not None
            said = self._said[workload.workload_key] = HeadroomReport(now, self._begun_at, replicas)
        if any(replicas.get(name, 0) < count for name, count in said.replicas.items()):
            said.shrunk_at = now
        said.replicas, said.looked_at = replicas, now
        on_its_way = now - said.shrunk_at < _grace_seconds(workload) + self._pace.settle
        idle = headroom_by_supply_class(state, workload, now)
        for name in state.scalings.following[workload.workload_key]:
            here = idle.get(name, IdleHeadroom(0))
            before, at = said.idle.get(name, (IdleHeadroom(0), None))
            if on_its_way and (at is None or here.replicas < before.replicas):
                here = before  # Replicas that it gave up may still run: they are neither its own nor free.
            if (on_its_way and at is None) or (at is not None and here == before and now - at < self._pace.repeat):
                continue
            said.idle[name] = (here, now)
            milli, label = clamp_to_int64(here.replicas * 1000), name
            key = workload.workload_key
            yield LoadObserved(*key, METRIC, "", label, "", "", milli, moment.wall_ms, 0, SOURCE, here.trouble)


def _grace_seconds(workload: Workload) -> int:
    spec = json.loads(workload.declared.manifest)["spec"].get("template", {}).get("spec", {})
    return int(spec.get("terminationGracePeriodSeconds", GRACE_SECONDS))
