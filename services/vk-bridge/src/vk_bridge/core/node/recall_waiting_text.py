"""Makes the text of NodeLent.waiting, for users: what a recall waits for."""

from spillway.lending_marks import RECALLED
from vk_bridge.core.node.loan import Observation


def recall_waiting_text(observation: Observation) -> str:
    """Returns what the recall waits for; empty if no recall is under way."""
    node = observation.node
    if not observation.owner_read:
        return "the owner's cluster cannot be read"
    if node is None or node.state != RECALLED:
        return ""
    if observation.real_pods:
        return f"pods to leave: {len(observation.real_pods)}"
    if not observation.pool_read:
        return f"the pool {observation.pool or node.pool} cannot be read"
    left = sum(pod.is_blocking_return for pod in observation.pool_pods)
    if left:
        return f"pods to leave: {left}"
    return "its virtual node to be deleted" if observation.virtual is not None else "the in-flight time"
