"""Lists the needs of a cluster: its pods that the scheduler refused, and the replicas that the planner wants there."""

from dataclasses import dataclass

from descheduler.core.state import DeschedulerState
from spillway.feasibility.volumes import NO_CLAIMS, with_volume_limits
from spillway.kubernetes.pod_shape import declared_shape
from spillway.model import Shape


@dataclass(frozen=True, slots=True)
class PendingNeed:
    """Replicas that wait for nodes.

    name: namespace/name of a workload of ours, else kind/namespace/name of the controller.
    """

    name: str
    shape: Shape
    replicas: int


def needs_of_cluster(state: DeschedulerState, cluster: str) -> list[PendingNeed]:
    """Returns the needs by name. For a workload of ours it is the larger of CapacityNeeded and its pending pods.

    The two are never added. Needs with an unknown shape are left out, because nobody knows which node would help them.
    """
    view = state.view_of_cluster(cluster)
    wanted = {group: (waits.shape, waits.pods) for group, waits in view.pending.items()}
    for (namespace, name), needed in state.needed.get(cluster, {}).items():
        key = f"{namespace}/{name}"
        shape, pods = wanted.get(key, (None, 0))
        if needed.replicas_lent > pods:
            wanted[key] = (shape or _declared_shape(state, namespace, name), needed.replicas_lent)
    return [
        PendingNeed(name, with_volume_limits(shape, view.claims.get(shape.namespace, NO_CLAIMS)), replicas)
        for name, (shape, replicas) in sorted(wanted.items())
        if shape is not None and replicas > 0
    ]


def _declared_shape(state: DeschedulerState, namespace: str, name: str) -> Shape | None:
    """Returns the shape of the declared template. The admitted shape is known only once one of its pods waits."""
    manifest = state.manifests.get((namespace, name))
    return declared_shape(manifest, namespace) if manifest is not None else None
