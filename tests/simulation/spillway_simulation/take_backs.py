"""What is taken back (P6) are replicas that had no node for their whole time, in clusters that were told of them."""

import asyncio
from collections.abc import Callable, Mapping

from planner.settings import PlannerSettings
from sim.cluster import SimCluster
from sim.core.kinds import Object
from spillway.events import PlacementDecided
from spillway.model import Generation, Part
from spillway_simulation import members
from spillway_simulation.sights import Sights

TAKE_BACK = "TakeBack"
WAITS_SECONDS = PlannerSettings().take_back_after_seconds
"""As the scripts' planners have it."""

Key = tuple[str, str]


class TakeBacks:
    """Judges take-backs by the pods that run then. Call it with each placement and its cause."""

    def __init__(
        self,
        clusters: Mapping[str, SimCluster],
        sights: Sights,
        violated: Callable[[str], None],
        is_orphan: Callable[[str, Object], bool],
    ) -> None:
        self._clusters, self._sights = clusters, sights
        self._violated, self._is_orphan = violated, is_orphan
        self._said_at: dict[tuple[Key, str, Generation], float] = {}
        self.seen = 0

    def placed(self, cause: str, before: PlacementDecided | None, placement: PlacementDecided) -> None:
        """To be told of each placement in the order of the log, with why it was made."""
        now, key = asyncio.get_running_loop().time(), (placement.namespace, placement.name)
        parts = {part.cluster: part for part in placement.parts}
        for was in before.parts if before is not None and cause == TAKE_BACK else ():
            part = parts.get(was.cluster)
            taken = was.replicas_kept - (part.replicas_kept if part is not None else 0)
            if taken > 0:
                self.seen += 1
                self._judge(key, was, taken, now)
        for part in placement.parts:
            self._said_at.setdefault((key, part.cluster, part.version), now)

    def _judge(self, key: Key, was: Part, taken: int, now: float) -> None:
        name = f"{'/'.join(key)} in {was.cluster}"
        waited = now - self._said_at[key, was.cluster, was.version]
        if waited < WAITS_SECONDS:
            self._violated(f"{name}: {taken} taken back {waited:.1f} s after the part was decided")
        found = self._clusters[was.cluster].get("deployments", key[1], key[0])
        if found is not None and (not members.is_ours(found) or self._is_orphan(was.cluster, found)):
            return  # Another's object has the name: its pods are none of the part's.
        ran = self._sights.bound_since(was.cluster, key, now - WAITS_SECONDS)
        told = not self._sights.may_be_silent(was.cluster, now)
        if told and taken > max(0, was.replicas - ran) and not self._rolls(was.cluster, key):
            self._violated(f"{name}: {taken} of {was.replicas} taken back, and {ran} ran there all the time")
        if found is not None and members.version_of(found) < was.version:
            self._violated(f"{name}: {taken} taken back, and the object has not heard of that part yet")

    def _rolls(self, cluster: str, key: Key) -> bool:
        """Whether pods of two templates are there: some are surge."""
        pods = members.pods_of(self._clusters[cluster], *key)
        return len({members.cpu_of_pod(pod["spec"]) for pod in pods}) > 1
