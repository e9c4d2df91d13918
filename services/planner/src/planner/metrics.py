"""Sets the gauges of the planner's state after each round, and hides them when the turn ends."""

from math import inf

from planner.core.knowledge.brakes import Brakes
from planner.core.knowledge.state import PlannerState
from spillway import metrics
from spillway.scopes import SCOPE_KINDS


def show_state(state: PlannerState) -> None:
    """Sets the gauges of workloads, clusters, unplaced replicas and rollouts.

    Only waiting workloads have unplaced replicas, so it need not look at all workloads.
    """
    metrics.WORKLOADS.set(len(state.workloads))
    clusters = [view.name for view in state.clusters.values() if view.joined is not None]
    fresh = sum(name in state.fresh for name in clusters)
    metrics.CLUSTERS.labels("fresh").set(fresh)
    metrics.CLUSTERS.labels("stale").set(len(clusters) - fresh)
    metrics.REPLICAS_UNPLACED.set(sum(state.workloads[key].unplaced for key in state.waiting))
    metrics.ROLLOUTS_WAITING.set(len(state.rollouts))


def hide_gauges() -> None:
    """Hides the gauges at the end of a turn: the next leader shows them, and a sum over both would count them twice."""
    for gauge in (
        metrics.WORKLOADS,
        metrics.REPLICAS_UNPLACED,
        metrics.ROLLOUTS_WAITING,
        metrics.CONFIRMATIONS_WAITING,
    ):
        gauge.set(0)
    for labelled in (metrics.CLUSTERS, metrics.BRAKES, metrics.REPLICAS_HELD_BACK):
        labelled.clear()


def age_seconds_by_cluster(state: PlannerState, now: float) -> dict[str, float]:
    """Returns the age in seconds of each cluster's known state; infinite before its first message was read."""
    views = (view for view in state.clusters.values() if view.joined is not None)
    return {view.name: inf if (age := view.age_seconds(now)) is None else age for view in views}


def show_brakes(brakes: Brakes) -> None:
    """Sets the metrics of brakes, of waiting confirmations, of replicas held back, and of moves since the last call."""
    for kind in SCOPE_KINDS:
        metrics.BRAKES.labels(kind).set(sum(scope.partition("/")[0] == kind for scope in brakes.brakes))
    metrics.CONFIRMATIONS_WAITING.set(len(brakes.asked))
    for holder, replicas in brakes.held_replicas_by_kind().items():
        metrics.REPLICAS_HELD_BACK.labels(holder).set(replicas)
    for cause, replicas in brakes.moved.items():
        metrics.REPLICAS_MOVED.labels(cause).inc(replicas)
    brakes.moved.clear()
