"""Whose an object is, at every write to a member: taken over as it runs, given back, and left alone once given up."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import ContextVar

from sim.cluster import SimCluster
from sim.core.kinds import Object
from spillway.model import NO_GENERATION, Generation, Part
from spillway_simulation import members

SENT: ContextVar[float] = ContextVar("sent", default=0.0)
"""When the request that is being answered was sent: a silent member carries it out when it wakes."""
TOLD_SECONDS = 7.0
"""A propagator that writes has read all that was in the log 5 s ago (log_proven_seconds), and asks now and then."""

Key = tuple[str, str]


class Ownership:
    """Orphans (abandoned), clusters that have left, with all that was in them then, and parts given up in lost ones."""

    def __init__(self, clusters: Mapping[str, SimCluster], violated: Callable[[str], None]) -> None:
        self._clusters = clusters
        self._violated = violated
        self._orphans: set[tuple[str, str]] = set()
        self._away: set[str] = set()
        self._left: dict[str, tuple[float, Generation]] = {}
        self._given_up: dict[tuple[str, Key], tuple[float, Generation]] = {}
        self.seen: Counter[str] = Counter()
        """How often what is judged here happened: adopted, disowned, left (clusters), orphaned."""

    def is_orphan(self, cluster: str, found: Object) -> bool:
        return (cluster, found["metadata"]["uid"]) in self._orphans

    def note_orphan(self, cluster: str, found: Object) -> None:
        self.seen["orphaned"] += 1
        self._orphans.add((cluster, found["metadata"]["uid"]))

    def has_orphan_named(self, cluster: str, key: Key) -> bool:
        """Returns whether an orphan of this name is there."""
        found = self._clusters[cluster].get_object("deployments", key[1], key[0])
        return found is not None and self.is_orphan(cluster, found)

    def note_part_given_up(self, cluster: str, key: Key, newest: Generation) -> None:
        """Notes a part of a Lost cluster that no placement lists any more. newest: its newest version so far."""
        self._given_up[cluster, key] = asyncio.get_running_loop().time(), newest
        found = self._clusters[cluster].get_object("deployments", key[1], key[0])
        if found is not None and members.is_of_our_fleet(found) and not self.is_orphan(cluster, found):
            self.note_orphan(cluster, found)

    def note_cluster_joined(self, cluster: str) -> None:
        self._away.discard(cluster)

    def note_cluster_left(self, cluster: str, newest: Generation) -> None:
        """Notes that a cluster left. newest: the newest version of all placements so far; higher ones come later."""
        self._away.add(cluster)
        self.seen["left"] += 1
        self._left[cluster] = asyncio.get_running_loop().time(), newest
        for found in self._clusters[cluster].objects("deployments"):
            if members.is_of_our_fleet(found):
                self.note_orphan(cluster, found)

    def judge_write(self, cluster: str, key: Key, before: Object | None, after: Object | None, adopted: bool) -> None:
        """Judges a write. adopted: it took the object over, or gave it back, as a placement says."""
        name = f"{'/'.join(key)} in {cluster}"
        at, newest = self._last_given_up(cluster, key)
        in_flight = at >= 0 and SENT.get() <= at + TOLD_SECONDS
        if before is not None and self.is_orphan(cluster, before):
            if adopted or self._is_placed_anew(cluster, key, after):
                self._orphans.discard((cluster, before["metadata"]["uid"]))
            elif not in_flight:
                self._violated(f"{name}: an orphan was written or deleted, and nobody adopted it")
            return
        if cluster in self._away and not in_flight:
            self._violated(f"{name}: written, and the cluster has left")
        if after is None or at < 0 or members.version_of(after) > newest or not members.is_of_our_fleet(after):
            return
        if in_flight:
            self.note_orphan(cluster, after)
        else:
            self._violated(f"{name}: made at {members.version_of(after)}, from before the cluster left")

    def _last_given_up(self, cluster: str, key: Key) -> tuple[float, Generation]:
        """When all that was there of this name was given up, and the newest version then."""
        never = (-1.0, NO_GENERATION)
        return max(self._left.get(cluster, never), self._given_up.get((cluster, key), never))

    def _is_placed_anew(self, cluster: str, key: Key, after: Object | None) -> bool:
        """Whether its cluster stayed in the fleet, and the name was placed there again before an orphan was seen."""
        if after is None or (cluster, key) not in self._given_up:
            return False
        left_at, _ = self._left.get(cluster, (-1.0, NO_GENERATION))
        at, newest = self._given_up[cluster, key]
        return at > left_at and members.version_of(after) > newest

    def judge_marks_write(
        self, cluster: str, key: Key, before: Object, after: Object, versions: dict[Generation, Part]
    ) -> bool:
        """Judges a write of metadata alone. Whether a placement asks for it: for adopting or disowning."""
        name = f"{'/'.join(key)} in {cluster}"
        seen = members.version_of(before)
        if before["spec"] != after["spec"]:
            self._violated(f"{name}: its spec changed with its marks: its pods may")
        if members.is_of_our_fleet(after):
            part = versions.get(members.version_of(after))
            if part is None or not part.adopting:
                self._violated(f"{name}: marked at {members.version_of(after)}, and no placement takes it over")
            elif before["metadata"]["uid"] != part.found_uid:
                self._violated(f"{name}: another object than the one found was marked")
            elif members.fleet_of(before) not in ("", part.found_fleet, members.fleet_of(after)):
                self._violated(f"{name}: an object of fleet {members.fleet_of(before)} was marked")
            elif members.is_of_our_fleet(before) and seen > part.version:
                self._violated(f"{name}: version {part.version} marked over {seen}")
            else:
                self.seen["adopted"] += 1
                return True
        elif not members.is_of_our_fleet(before):
            self._violated(f"{name}: its metadata was written, and it is not ours")
        elif not any(part.disowning and version >= seen for version, part in versions.items()):
            self._violated(f"{name}: unmarked at version {seen}, and no placement disowns it")
        else:
            self.seen["disowned"] += 1
            return True  # An orphan, too, if its adoption was acknowledged and taken back before it was carried out.
        return False
