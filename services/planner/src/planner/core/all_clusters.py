"""What is asked of all clusters with each plan, kept until one of them says otherwise: who has joined, and all ages."""

from collections.abc import Mapping

import numpy as np

from planner.core.fleet import NEVER, ClusterView
from planner.core.policy import Clusters
from spillway.events import ClusterJoined


class Joined:
    """The clusters of the fleet."""

    def __init__(self) -> None:
        self._of: list[ClusterJoined | None] = []
        self._found = Clusters()

    def of(self, views: Mapping[str, ClusterView]) -> Clusters:
        """By name."""
        found = [view.joined for view in views.values()]
        if found != self._of:
            there = (joined for joined in found if joined is not None)
            self._of, self._found = found, Clusters(sorted(there, key=lambda joined: joined.cluster))
        return self._found


class Ages:
    """What ClusterView says of one cluster, of all of them. Every answer is of the moment that it is asked for."""

    def __init__(self) -> None:
        self._of: object = None
        self._ages_ms: dict[str, int] = {}

    def ages_ms(self, views: Mapping[str, ClusterView], now: float) -> Mapping[str, int]:
        """By cluster, rounded; −1 when nothing was ever heard. Not to be changed."""
        heard = [view.heard_at for view in views.values()]
        said = [view.age_ms for view in views.values()]
        of = (now, list(views), heard, said)
        if of != self._of:
            ages = np.array(said) / 1000 + (now - np.array(heard))
            rounded = np.rint(ages * 1000).astype(np.int64).tolist()
            known = (NEVER not in entry for entry in zip(heard, said, strict=True))
            self._ages_ms = {
                name: age if is_known else NEVER for name, age, is_known in zip(views, rounded, known, strict=True)
            }
            self._of = of
        return self._ages_ms

    def not_fresh(self, views: Mapping[str, ClusterView], now: float, age_max_seconds: float) -> set[str]:
        """The clusters where nothing new may be placed for want of knowledge."""
        oldest_ms = age_max_seconds * 1000 - 1  # What is rounded may be younger or older than it says.
        unsure = {name for name, age in self.ages_ms(views, now).items() if not 0 <= age <= oldest_ms}
        unsure |= {name for name, view in views.items() if view.is_incomplete or view.epoch < 0}
        return {name for name in unsure if views[name].not_fresh(now, age_max_seconds)}
