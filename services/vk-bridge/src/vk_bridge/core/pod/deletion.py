"""Computes how far the deletion of a real pod is: when its grace is over, and when it is forced."""

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class PodDeletion:
    """A real pod's deletion as this bridge has seen it: its grace period, and the clock time at which it is over.

    forced: the number of forced deletions so far.
    again_at: the earliest clock time of the next forced deletion.
    """

    grace_seconds: int
    over_at: float
    forced: int = 0
    again_at: float = -math.inf

    def forced_at(self, overdue_seconds: float) -> float:
        """Returns the clock time from which the pod may be deleted without grace: it is overdue for so long then."""
        return max(self.over_at + overdue_seconds, self.again_at)

    def seconds_left(self, now: float) -> int:
        """Returns the whole seconds of grace that are left; 0 when it is over."""
        return max(0, math.floor(self.over_at - now))


def seen_deletion(grace_seconds: int, before: PodDeletion | None, now: float) -> PodDeletion:
    """Returns the deletion of a pod whose grace period is grace_seconds now.

    As in a kubelet, a shortened grace period begins again, and never ends later than before.
    before: the deletion as it was seen last; None when it is seen first.
    """
    if before is None:
        return PodDeletion(grace_seconds, now + grace_seconds)
    if grace_seconds == before.grace_seconds:
        return before
    return replace(before, grace_seconds=grace_seconds, over_at=min(before.over_at, now + grace_seconds))
