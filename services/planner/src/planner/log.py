"""Follows the log into a state: whole topics first, then each capacity stream from where its blocks stand."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping

import structlog

from planner.core.fleet import NEVER
from planner.core.manifests.templates import BadDeclaration
from planner.core.state import PlannerState
from spillway import metrics
from spillway.addresses import (
    BRAKES,
    CAPACITY,
    CAPACITY_CHANGES,
    CAPACITY_NEEDED,
    CLUSTERS,
    DEPENDENCIES,
    PENDING,
    PLACEMENTS,
    SCALE,
    SCALE_POLICIES,
    SHAPES,
    TURNS_PLANNER,
    WORKLOAD_STATUS,
    WORKLOADS,
)
from spillway.bus import Batch, Bus, Feed, Offsets, Record, reached
from spillway.events import CapacityChanged, CapacityReported, DeadLettered, TurnTaken
from spillway.wire import Unreadable, unpack_columns

WHOLE = (
    CLUSTERS,
    CAPACITY,
    PENDING,
    WORKLOADS,
    DEPENDENCIES,
    PLACEMENTS,
    CAPACITY_NEEDED,
    WORKLOAD_STATUS,
    TURNS_PLANNER,
    BRAKES,
    SHAPES,
    SCALE_POLICIES,
    SCALE,
)
OWN = frozenset(topic.name for topic in WHOLE if topic.emitter == "planner")
WATCHED = (WORKLOADS, PLACEMENTS, WORKLOAD_STATUS)

log = structlog.get_logger()


class Follower:
    """Keeps one state up to date. While this planner writes, its own records are not read back into the state.

    turn: the last TurnTaken, whose instance names the active planner; turn_epoch: its offset, -1 before the first.
    """

    def __init__(
        self,
        bus: Bus,
        state: PlannerState,
        clock: Callable[[], float],
        on_records: Callable[[tuple[Record, ...], Offsets], None],
    ) -> None:
        self.state = state
        self.writing = False
        self.turn: TurnTaken | None = None
        self.turn_epoch = -1
        self.positions: dict[tuple[str, int], int] = {}
        self._bus = bus
        self._clock = clock
        self._on_records = on_records
        self._moved = asyncio.Condition()
        self._feeds: list[Feed] = []
        self._as_of: dict[tuple[str, int], int] = {}

    async def run(self) -> None:
        """Reads until cancelled."""
        async with self._bus.follow(WHOLE) as whole:
            batches = aiter(whole)
            ends = await whole.ends()
            while not reached(self.positions, ends):
                await self._take(await anext(batches))
            start = self._changes_from()
            async with self._bus.follow((CAPACITY_CHANGES,), start) as changes:
                newer = aiter(changes)
                ends = await changes.ends()
                while not reached(self.positions, ends):
                    # Nobody knows how long ago these were written, so they make no cluster fresh.
                    await self._take(await anext(newer), NEVER)
                async with asyncio.TaskGroup() as tasks:
                    self._feeds = [whole, changes]
                    tasks.create_task(self._follow(batches))
                    tasks.create_task(self._follow(newer))

    async def caught_up(self) -> None:
        """Returns when everything that was in the log when this was called has been applied."""
        while len(self._feeds) < 2:
            async with self._moved:
                await self._moved.wait()
        ends = [await feed.ends() for feed in self._feeds]
        async with self._moved:
            await self._moved.wait_for(lambda: all(reached(self.positions, end) for end in ends))

    async def overtaken(self, epoch: int) -> None:
        """Returns when the log has a turn above this one: its writer is fenced, whether or not it tried to write."""
        async with self._moved:
            await self._moved.wait_for(lambda: self.turn_epoch > epoch)

    def _changes_from(self) -> Mapping[tuple[str, int], int]:
        """A partition without a block is read from its end: nothing in it can be applied before a block comes."""
        return dict(self._as_of)

    async def _follow(self, batches: AsyncIterator[Batch]) -> None:
        async for batch in batches:
            await self._take(batch)

    async def _take(self, batch: Batch, now: float | None = None) -> None:
        for record in batch.records:
            await self._apply(record, self._clock() if now is None else now)
        self.positions.update(batch.positions)
        if batch.records:
            self._on_records(batch.records, self.positions)
        async with self._moved:
            self._moved.notify_all()

    async def _apply(self, record: Record, now: float) -> None:
        event = record.event
        if isinstance(event, TurnTaken) and record.topic == TURNS_PLANNER.name and record.offset > self.turn_epoch:
            self.turn, self.turn_epoch = event, record.offset
        if self.writing and record.topic in OWN:
            return
        metrics.EVENTS_APPLIED.labels(record.topic).inc()
        if event is None:
            self.state.apply_tombstone(record.topic, record.key, record.offset)
        elif isinstance(event, CapacityReported | CapacityChanged):
            if isinstance(event, CapacityReported):
                self._note_as_of(event, record)
            try:
                columns = unpack_columns(event.columns)
            except Unreadable as error:
                await self._set_aside(record, str(error))
                return
            self.state.apply(event, now, record.offset, columns)
        else:
            try:
                self.state.apply(event, now, record.offset)
            except BadDeclaration as error:
                await self._set_aside(record, str(error))

    def _note_as_of(self, event: CapacityReported, record: Record) -> None:
        place = (CAPACITY_CHANGES.name, record.partition)
        self._as_of[place] = min(self._as_of.get(place, event.as_of_offset), event.as_of_offset)

    async def _set_aside(self, record: Record, reason: str) -> None:
        log.warning("record set aside", topic=record.topic, offset=record.offset, reason=reason)
        letter = DeadLettered(record.topic, record.partition, record.offset, "planner", reason, record.key, b"")
        await self._bus.publish(letter)


def changed_keys(records: Iterable[Record]) -> set[tuple[str, str]]:
    """The workloads that records of the watched topics are about."""
    names = {topic.name for topic in WATCHED}
    keys = set()
    for record in records:
        if record.topic in names and not isinstance(record.event, TurnTaken):
            namespace, name = record.key.split("/")[:2]
            keys.add((namespace, name))
    return keys
