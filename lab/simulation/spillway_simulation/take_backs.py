"""What is taken back (P6) are replicas that had no node for their whole time, in clusters that were told of them. The
cluster gets no more of their shape for a while.
"""

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
HOLD_SECONDS = PlannerSettings().hold_min_seconds
"""As the scripts' planners have them."""
SLACK_SECONDS = 1.0
"""What may pass between a decision and its record, and until a pod that was bound is seen."""

Key = tuple[str, str]


class TakeBacks:
    """Judges take-backs by the pods that run then. Call it with each placement and its cause."""

    def __init__(
        self,
        clusters: Mapping[str, SimCluster],
        sights: Sights,
        violated: Callable[[str], None],
        is_orphan: Callable[[str, Object], bool],
        decided_at: Callable[[], float],
    ) -> None:
        """decided_at: the earliest time at which what is written now may have been decided."""
        self._clusters, self._sights = clusters, sights
        self._violated, self._is_orphan, self._decided_at = violated, is_orphan, decided_at
        self._said_at: dict[tuple[Key, str, Generation], float] = {}
        self._taken_at: dict[tuple[Key, str], tuple[float, int]] = {}
        self.seen = 0

    def note_turn_taken(self) -> None:
        """Another planner has the turn. It knows of no hold."""
        self._taken_at.clear()

    def judge_placement(
        self, cause: str, before: PlacementDecided | None, placement: PlacementDecided, cpu: int = 0
    ) -> None:
        """To be told of each placement in the order of the log, with why it was made. cpu: millicores of a replica."""
        now, key = asyncio.get_running_loop().time(), (placement.namespace, placement.name)
        parts = {part.cluster: part for part in placement.parts}
        for was in before.parts if before is not None and cause == TAKE_BACK else ():
            part = parts.get(was.cluster)
            taken = was.replicas_kept - (part.replicas_kept if part is not None else 0)
            if taken > 0:
                self.seen += 1
                self._judge_take_back(key, was, taken, now)
                self._taken_at[key, was.cluster] = self._decided_at(), cpu
        replicas = {part.cluster: part.replicas for part in before.parts} if before is not None else {}
        for part in placement.parts:
            if part.replicas > replicas.get(part.cluster, 0) and not (part.removing or part.adopting):
                self._judge_growth(key, part, cpu, now)
            self._said_at.setdefault((key, part.cluster, part.version), now)

    def _judge_take_back(self, key: Key, was: Part, taken: int, now: float) -> None:
        name = f"{'/'.join(key)} in {was.cluster}"
        waited = now - self._said_at[key, was.cluster, was.version]
        if waited < WAITS_SECONDS:
            self._violated(f"{name}: {taken} taken back {waited:.1f} s after the part was decided")
        found = self._clusters[was.cluster].get_object("deployments", key[1], key[0])
        if found is not None and (not members.is_of_our_fleet(found) or self._is_orphan(was.cluster, found)):
            return  # Another's object has the name: its pods are none of the part's.
        ran = self._sights.pods_bound_since(was.cluster, key, now - WAITS_SECONDS)
        told = not self._sights.may_watches_be_silent(was.cluster, now)
        if told and taken > max(0, was.replicas - ran) and not self._is_rolling(was.cluster, key):
            self._violated(f"{name}: {taken} of {was.replicas} taken back, and {ran} ran there all the time")
        if found is not None and members.version_of(found) < was.version:
            self._violated(f"{name}: {taken} taken back, and the object has not heard of that part yet")

    def _judge_growth(self, key: Key, part: Part, cpu: int, now: float) -> None:
        """A pod that was bound in the cluster since ends the hold; a person who names the cluster passes over it."""
        at, held_cpu = self._taken_at.get((key, part.cluster), (now - HOLD_SECONDS, 0))
        held = held_cpu == cpu and now < at + HOLD_SECONDS - SLACK_SECONDS
        if held and self._sights.last_binding_time(part.cluster) < at - SLACK_SECONDS and not part.replicas_by_name:
            where = f"{'/'.join(key)} in {part.cluster}"
            self._violated(f"{where}: more was placed there {now - at:.1f} s after some were taken back")

    def _is_rolling(self, cluster: str, key: Key) -> bool:
        """Whether pods of two templates are there: some are surge."""
        pods = members.pods_of(self._clusters[cluster], *key)
        return len({members.pod_cpu_millis(pod["spec"]) for pod in pods}) > 1
