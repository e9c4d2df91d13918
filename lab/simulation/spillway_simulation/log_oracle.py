"""Rules that the log alone shows: which epoch a record has, what a full block contains, how old capacity may be.

It reads records, their offsets and the times at which they were appended, and asks no service.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from spillway.addresses import (
    CAPACITY,
    CAPACITY_CHANGES,
    CLUSTERS,
    PLACEMENTS,
    SCALE,
    SCALE_STATE,
    TURNS_PLANNER,
    WORKLOAD_STATUS,
    Topic,
)
from spillway.bus import Outgoing, Position
from spillway.events import (
    CapacityChanged,
    CapacityReported,
    ClusterJoined,
    ClusterLeft,
    PlacementDecided,
    TurnTaken,
    WorkloadObserved,
)
from spillway.events_scaling import ScaleStateChanged
from spillway.wire import decode_event

JUDGED = frozenset((CAPACITY, CAPACITY_CHANGES, CLUSTERS, PLACEMENTS, SCALE_STATE, TURNS_PLANNER, WORKLOAD_STATUS))
AGE_MAX_SECONDS = 12.0
"""capacity_age_max_seconds of the scripts' planners."""
SLACK_SECONDS = 1.0
"""Seconds that may pass between a decision and its record."""
WRITTEN_SECONDS = 5.0
"""Once the log can be reached again, a write that waited for it ends within so many seconds."""
WOKEN_SECONDS = 1.0
"""A planner that wakes up writes within so many seconds what it had decided before it froze."""
SAID_SECONDS = 5.0
"""Seconds that may pass from the time when a collector measures an age to the time of its record."""

Key = tuple[str, str]
Block = tuple[str, int, int]
"""Cluster, epoch and index."""


class FullBlock(NamedTuple):
    """The last change that a full block contains, and the offset at which its readers continue."""

    sequence: int
    as_of_offset: int


class LogOracle:
    """Call on_records with all records that are appended, in the order of the log."""

    def __init__(self, violated: Callable[[str], None]) -> None:
        self._violated = violated
        self._claims: dict[tuple[str, str], dict[int, str]] = {}
        self._changes: dict[Block, int] = {}
        self._full_blocks: dict[Block, FullBlock] = {}
        self._known_at: dict[str, float] = {}
        self._silent: dict[str, float] = {}
        self._left: set[str] = set()
        self._away_from = math.inf
        self._away_to = -math.inf
        self._frozen_from = math.inf
        self._frozen_to = -math.inf

    def on_records(self, records: Sequence[Outgoing], positions: Sequence[Position], source: str) -> None:
        """positions: of each record. source: the instance that wrote them."""
        for record, position in zip(records, positions, strict=True):
            topic = record.address.topic
            if topic in JUDGED and record.value is not None:
                self._on_event(
                    decode_event(topic.name, record.kind, record.value), record.address.key, position, source
                )
        stated = {one.address.key for one in records if one.address.topic is SCALE_STATE}
        for record in records:
            if record.address.topic is SCALE and record.value is not None and record.address.key not in stated:
                self._violated(f"{record.address.key}: a size was decided, and its state is in no record beside it")

    def note_silent_cluster(self, cluster: str, *, is_silent: bool) -> None:
        """is_silent: whether the API of the cluster answers nothing from now on."""
        if is_silent:
            self._silent.setdefault(cluster, _loop_time())
        else:
            self._silent.pop(cluster, None)

    def note_log_away(self, *, is_away: bool) -> None:
        """is_away: whether nobody reaches the log from now on."""
        if is_away and self._away_to < math.inf:
            self._away_from = _loop_time()
        self._away_to = math.inf if is_away else _loop_time()

    def note_planner_frozen(self, since: float) -> None:
        """A planner wakes up that did nothing since then. What it had decided before it writes now."""
        self._frozen_from, self._frozen_to = since, _loop_time()

    def earliest_decision_time(self) -> float:
        """The earliest time at which a decision that is written now may have been made."""
        away = self._away_from if _loop_time() < self._away_to + WRITTEN_SECONDS else _loop_time()
        return min(away, self._frozen_from) if _loop_time() < self._frozen_to + WOKEN_SECONDS else away

    def judge_growth(self, key: Key, cluster: str) -> None:
        """To be called when a placement gives a cluster more replicas than it had."""
        age = self.earliest_decision_time() - self._known_at.get(cluster, _loop_time())
        if age > AGE_MAX_SECONDS + SLACK_SECONDS:
            where = f"{'/'.join(key)} in {cluster}"
            self._violated(f"{where}: more was placed there, and what is known of it was {age:.1f} s old")

    def _on_event(self, event: object, key: str, position: Position, source: str) -> None:
        match event:
            case TurnTaken():
                self._claims.setdefault((position.topic, key), {})[position.offset] = source
            case ClusterJoined():
                self._left.discard(event.cluster)
            case ClusterLeft():
                self._left.add(event.cluster)
            case CapacityChanged():
                self._judge_epoch(CAPACITY_CHANGES, event.cluster, event.epoch, source)
                self._on_capacity_change(event, position.offset)
            case CapacityReported():
                self._judge_epoch(CAPACITY_CHANGES, event.cluster, event.epoch, source)
                self._on_full_block_reported(event)
            case WorkloadObserved():
                self._judge_epoch(WORKLOAD_STATUS, event.cluster, event.epoch, source)
            case PlacementDecided():
                self._judge_epoch(TURNS_PLANNER, "planner", event.generation.epoch, source)
            case ScaleStateChanged():
                self._on_scale_state(key, event)

    def _judge_epoch(self, topic: Topic, key: str, epoch: int, source: str) -> None:
        """An epoch is the offset of a claim. Only the instance that wrote the claim writes records of that epoch."""
        owner = self._claims.get((topic.name, key), {}).get(epoch)
        if owner != source:
            whose = f"which {owner} claimed" if owner is not None else "which nobody claimed there"
            self._violated(f"{source} wrote of {key} in the epoch {epoch}, {whose}")

    def _on_capacity_change(self, event: CapacityChanged, offset: int) -> None:
        block = (event.cluster, event.epoch, event.index)
        self._changes[block] = event.sequence
        full = self._full_blocks.get(block)
        if full is not None and offset < full.as_of_offset and event.sequence > full.sequence:
            self._violated(f"{event.cluster}: who reads block {event.index} goes on behind change {event.sequence}")
        if event.epoch < max(self._claims.get((CAPACITY_CHANGES.name, event.cluster), ()), default=0):
            return  # A collector woke up after its turn: readers do not use its age.
        if event.cluster in self._left:
            return  # A collector woke up after its cluster had left the fleet: readers know no such cluster.
        if event.age_ms >= 0:  # A collector that begins knows no age; what the one before it said still holds.
            newest = self._known_at.get(event.cluster, -math.inf)
            self._known_at[event.cluster] = max(newest, _loop_time() - event.age_ms / 1000)
        since = self._silent.get(event.cluster)
        if since is not None and 0 <= event.age_ms / 1000 < _loop_time() - since - SAID_SECONDS:
            silent = f"silent for {_loop_time() - since:.1f} s"
            self._violated(f"{event.cluster}: {silent}, and said to be known as it was {event.age_ms} ms ago")

    def _on_full_block_reported(self, event: CapacityReported) -> None:
        block = (event.cluster, event.epoch, event.index)
        newest = self._changes.get(block, 0)
        if event.sequence < newest:
            self._violated(
                f"{event.cluster}: block {event.index} is said to be as of change {event.sequence}, after {newest}"
            )
        self._full_blocks[block] = FullBlock(event.sequence, event.as_of_offset)

    def _on_scale_state(self, key: str, event: ScaleStateChanged) -> None:
        if not event.positions:
            self._violated(f"{key}: a state that does not say what it has read")


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
