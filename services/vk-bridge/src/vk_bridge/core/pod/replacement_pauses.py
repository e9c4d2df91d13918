"""Decides which deletions and failures of pool pods wait, because a controller makes another pod of each at once.

Without a pause, the pool's controller and this bridge would replace pods in an endless loop.
"""

from collections.abc import Container, Iterable

from vk_bridge.core.pod.steps import DeletePool, PodStep


def deletions_of_unbegun_pods(steps: Iterable[PodStep], begun: Container[str]) -> frozenset[PodStep]:
    """Returns the deletions of pool pods that never had a real pod.

    Such pods use no resources. A controller that writes the node's name into its pods would replace them at once.
    begun: the uids of the pool pods that have, or have had, a real pod.
    """
    return frozenset(step for step in steps if isinstance(step, DeletePool) and step.pool_uid not in begun)


class ReplacementPauses:
    """The pauses between such deletions and failures on the nodes of one owner. now: seconds of one monotonic clock."""

    def __init__(self, pause_seconds: float) -> None:
        self._pause_seconds = pause_seconds
        self._deleted_at: dict[str, float] = {}
        """The time at which pods without a real pod were last deleted, by node; only times within the pause."""
        self._failed_at: dict[tuple[str, str], float] = {}
        """The time at which a pod last failed, by node and namespace; only times within the pause."""

    def deletions_to_put_off(
        self, node: str, steps: Iterable[PodStep], begun: Container[str], now: float
    ) -> frozenset[PodStep]:
        """Returns the deletions to postpone: of pods without a real pod, if such pods were deleted within the pause.

        If it returns none although there are such deletions, a pause begins. begun: as in deletions_of_unbegun_pods.
        """
        found = deletions_of_unbegun_pods(steps, begun)
        if not found:
            return found
        self._deleted_at = {one: at for one, at in self._deleted_at.items() if now - at < self._pause_seconds}
        if node in self._deleted_at:
            return found
        self._deleted_at[node] = now
        return frozenset()

    def may_fail_pod(self, node: str, namespace: str, now: float) -> bool:
        """Returns whether a pod of this namespace may fail on the node now. If it may, a pause begins.

        On one node only one pod of a namespace fails within the pause. Other pods of the namespace wait.
        """
        self._failed_at = {one: at for one, at in self._failed_at.items() if now - at < self._pause_seconds}
        if (node, namespace) in self._failed_at:
            return False
        self._failed_at[node, namespace] = now
        return True
