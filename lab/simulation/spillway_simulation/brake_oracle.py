"""What a freeze stops (P8): moves, lending and recalls that nobody asked for by name, a second after it was said."""

import asyncio
from collections.abc import Callable

from spillway.events import BrakeReleased, BrakeSet, PlacementDecided
from spillway.model import Part
from spillway.scopes import FLEET_SCOPE, cluster_scope, workload_scope

STOPS_SECONDS = 1.0
"""After so long nothing is decided any more by whoever has the turn: the planner says it itself."""
MOVES = frozenset(("TakeBack", "Waiting", "DependencyMissing", "Failover", "Drain", "Return", "Home", "Policy"))
"""Causes of what nobody asked for by name."""

Key = tuple[str, str]


class BrakeOracle:
    """Judges placements while a freeze holds. Call it with each brake event, and with each placement and its cause."""

    def __init__(self, violated: Callable[[str], None]) -> None:
        self._violated = violated
        self._set_at: dict[str, float] = {}
        self.seen: dict[str, int] = {}

    def on_event(self, event: object) -> None:
        match event:
            case BrakeSet(scope=scope):
                self._set_at.setdefault(scope, asyncio.get_running_loop().time())
                self._count_event("freezes")
            case BrakeReleased(scope=scope):
                self._set_at.pop(scope, None)

    def frozen_seconds(self, cluster: str, key: Key | None = None) -> float:
        """For how many seconds a freeze holds there, of that workload or of all; 0: none does."""
        scopes = (FLEET_SCOPE, cluster_scope(cluster), workload_scope(*key) if key is not None else "")
        begun = [self._set_at[scope] for scope in scopes if scope in self._set_at]
        return asyncio.get_running_loop().time() - min(begun) if begun else 0.0

    def judge_placement(self, cause: str, before: PlacementDecided | None, placement: PlacementDecided) -> None:
        """No fewer are kept in a cluster than before by what a freeze stops."""
        if cause not in MOVES or before is None or not self._set_at:
            return
        key = (placement.namespace, placement.name)
        parts = {part.cluster: part for part in placement.parts}
        for was in before.parts:
            kept, frozen = _replicas_kept(parts.get(was.cluster)), self.frozen_seconds(was.cluster, key)
            if frozen > STOPS_SECONDS and kept < _replicas_kept(was):
                self._violated(
                    f"{'/'.join(key)} in {was.cluster}: {_replicas_kept(was)} kept, then {kept}, by {cause}, "
                    f"and it is frozen for {frozen:.1f} s"
                )

    def _count_event(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1


def _replicas_kept(part: Part | None) -> int:
    return part.replicas_kept if part is not None and not part.removing else 0
