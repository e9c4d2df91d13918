"""What metrics show of the state after each step."""

from planner.core.brakes import Brakes
from spillway import metrics
from spillway.scopes import SCOPE_KINDS


def show_brakes(brakes: Brakes) -> None:
    """The brakes that are on, what waits for whom, and what moved since the last call."""
    for kind in SCOPE_KINDS:
        metrics.BRAKES.labels(kind).set(sum(scope.partition("/")[0] == kind for scope in brakes.brakes))
    metrics.CONFIRMATIONS_WAITING.set(len(brakes.asked))
    for holder, replicas in brakes.held_by_kind().items():
        metrics.REPLICAS_HELD_BACK.labels(holder).set(replicas)
    for cause, replicas in brakes.moved.items():
        metrics.REPLICAS_MOVED.labels(cause).inc(replicas)
    brakes.moved.clear()
