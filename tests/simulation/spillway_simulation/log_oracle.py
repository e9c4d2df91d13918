"""What the log shows of its own rules: whose turn a record is of, what a whole block holds, how old capacity may be.

Nothing here asks a service: records, their offsets and the time at which they were appended are all that it needs.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from planner.settings import PlannerSettings
from spillway.addresses import (
    CAPACITY,
    CAPACITY_CHANGES,
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
    PlacementDecided,
    TurnTaken,
    WorkloadObserved,
)
from spillway.events_scaling import ScaleStateChanged
from spillway.model import Part
from spillway.wire import decode

JUDGED = frozenset((CAPACITY, CAPACITY_CHANGES, PLACEMENTS, SCALE_STATE, TURNS_PLANNER, WORKLOAD_STATUS))
AGE_MAX_SECONDS = 12.0
HOLD_SECONDS = PlannerSettings().hold_min_seconds
"""As the scripts' planners have it."""
SLACK_SECONDS = 1.0
"""What may pass between a decision and its record."""
SAID_SECONDS = 5.0
"""The same between an age that a collector says and its record."""

Key = tuple[str, str]
Block = tuple[str, int, int]
"""Cluster, epoch and index."""


class Whole(NamedTuple):
    """A whole block: the last change that it contains, and from where its readers go on."""

    sequence: int
    as_of_offset: int


class LogOracle:
    """Call on_records with all that is appended, in order."""

    def __init__(self, violated: Callable[[str], None]) -> None:
        self._violated = violated
        self._claims: dict[tuple[str, str], dict[int, str]] = {}
        self._changes: dict[Block, int] = {}
        self._wholes: dict[Block, Whole] = {}
        self._known_at: dict[str, float] = {}
        self._silent: dict[str, float] = {}
        self._taken_back: dict[tuple[Key, str], tuple[float, int]] = {}

    def on_records(self, records: Sequence[Outgoing], positions: Sequence[Position], source: str) -> None:
        """positions: of each record. source: the instance that wrote them."""
        for record, position in zip(records, positions, strict=True):
            topic = record.address.topic
            if topic in JUDGED and record.value is not None:
                self._on_event(decode(topic.name, record.kind, record.value), record.address.key, position, source)
        stated = {one.address.key for one in records if one.address.topic is SCALE_STATE}
        for record in records:
            if record.address.topic is SCALE and record.value is not None and record.address.key not in stated:
                self._violated(f"{record.address.key}: a size was decided, and its state is in no record beside it")

    def silent(self, cluster: str, *, begins: bool) -> None:
        """Its API answers nothing any more, or does again."""
        if begins:
            self._silent.setdefault(cluster, _now())
        else:
            self._silent.pop(cluster, None)

    def grown(self, key: Key, part: Part, cpu: int, bound_at: float = -1.0) -> None:
        """More replicas were decided in a cluster than before. cpu: of one replica, in millicores.

        bound_at: when the last pod was bound there, which ends a hold.
        """
        where, now = f"{'/'.join(key)} in {part.cluster}", _now()
        age = now - self._known_at.get(part.cluster, now)
        if age > AGE_MAX_SECONDS + SLACK_SECONDS:
            self._violated(f"{where}: more was placed there, and what is known of it was {age:.1f} s old")
        at, asked = self._taken_back.get((key, part.cluster), (now - HOLD_SECONDS, 0))
        held = asked == cpu and now < at + HOLD_SECONDS - SLACK_SECONDS and bound_at < at - SLACK_SECONDS
        if held and not part.replicas_by_name:
            self._violated(f"{where}: more was placed there {now - at:.1f} s after some were taken back")

    def taken_back(self, key: Key, cluster: str, cpu: int) -> None:
        self._taken_back[key, cluster] = (_now(), cpu)

    def _on_event(self, event: object, key: str, position: Position, source: str) -> None:
        match event:
            case TurnTaken():
                self._claims.setdefault((position.topic, key), {})[position.offset] = source
                if position.topic == TURNS_PLANNER.name:
                    self._taken_back.clear()  # Who takes over knows of no hold.
            case CapacityChanged():
                self._is_of_turn(CAPACITY_CHANGES, event.cluster, event.epoch, source)
                self._on_change(event, position.offset)
            case CapacityReported():
                self._is_of_turn(CAPACITY_CHANGES, event.cluster, event.epoch, source)
                self._on_whole(event)
            case WorkloadObserved():
                self._is_of_turn(WORKLOAD_STATUS, event.cluster, event.epoch, source)
            case PlacementDecided():
                self._is_of_turn(TURNS_PLANNER, "planner", event.generation.epoch, source)
            case ScaleStateChanged():
                self._on_state(key, event)

    def _is_of_turn(self, topic: Topic, key: str, epoch: int, source: str) -> None:
        """An epoch is the offset of its claim, and its records are its owner's."""
        owner = self._claims.get((topic.name, key), {}).get(epoch)
        if owner != source:
            whose = f"which {owner} claimed" if owner is not None else "which nobody claimed there"
            self._violated(f"{source} wrote of {key} in the epoch {epoch}, {whose}")

    def _on_change(self, event: CapacityChanged, offset: int) -> None:
        block = (event.cluster, event.epoch, event.index)
        self._changes[block] = event.sequence
        whole = self._wholes.get(block)
        if whole is not None and offset < whole.as_of_offset and event.sequence > whole.sequence:
            self._violated(f"{event.cluster}: who reads block {event.index} goes on behind change {event.sequence}")
        if event.age_ms >= 0:  # Else it knows nothing yet, and what was known before it holds.
            newest = self._known_at.get(event.cluster, -math.inf)
            self._known_at[event.cluster] = max(newest, _now() - event.age_ms / 1000)
        since = self._silent.get(event.cluster)
        if since is not None and 0 <= event.age_ms / 1000 < _now() - since - SAID_SECONDS:
            silent = f"silent for {_now() - since:.1f} s"
            self._violated(f"{event.cluster}: {silent}, and said to be known as it was {event.age_ms} ms ago")

    def _on_whole(self, event: CapacityReported) -> None:
        block = (event.cluster, event.epoch, event.index)
        newest = self._changes.get(block, 0)
        if event.sequence < newest:
            self._violated(
                f"{event.cluster}: block {event.index} is said to be as of change {event.sequence}, after {newest}"
            )
        self._wholes[block] = Whole(event.sequence, event.as_of_offset)

    def _on_state(self, key: str, event: ScaleStateChanged) -> None:
        if not event.positions:
            self._violated(f"{key}: a state that does not say what it has read")


def _now() -> float:
    return asyncio.get_running_loop().time()
