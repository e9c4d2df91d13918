"""Writes what people and tools query into the store. Never the truth: a flush brings everything back from the log."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
import structlog

from planner.core.requests.answers import workload_reply
from planner.core.state import PlannerState
from planner.log import changed_keys
from spillway.addresses import DECISIONS
from spillway.bus import Bus, BusUnavailable, Feed, Offsets, Record, reached
from spillway.events import CapacityReported, DecisionRecorded
from spillway.store import MemoryStore, RedisStore, StoreUnavailable
from spillway.wire import TYPE_PREFIX, decode

Store = RedisStore | MemoryStore
log = structlog.get_logger()


class Projection:
    """Keeps the store like the log: capacity blobs, placements with statuses, and an index of decisions.

    Only the active planner writes. What the store missed is written again when it is back, and when the turn is taken:
    nobody knows what the one before did not come to write. kept_max: decisions on a workload; gone_seconds: how long
    those on one that is declared no more are kept.
    """

    def __init__(
        self, bus: Bus, store: Store, state: Callable[[], PlannerState], kept_max: int, gone_seconds: float
    ) -> None:
        self._bus = bus
        self._store = store
        self._state = state
        self._kept_max, self._gone_seconds = kept_max, gone_seconds
        self._capacity: dict[str, bytes] = {}
        self._dirty_capacity: set[str] = set()
        self._dirty: set[tuple[str, str]] = set()
        self._complete = self._following = False
        self._appending = asyncio.Lock()
        self._appended: dict[tuple[str, int], int] = {}

    def observe(self, records: tuple[Record, ...], positions: Offsets) -> None:
        """Notes what changed; nothing waits for the store."""
        self._dirty |= changed_keys(records)
        for record in records:
            if isinstance(record.event, CapacityReported):
                self._capacity[record.key] = record.value
                self._dirty_capacity.add(record.key)

    async def run(self, is_active: Callable[[], bool], pause_seconds: float = 0.5) -> None:
        """Follows the decisions and writes what is dirty, until cancelled."""
        while True:
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._write_dirty(is_active, pause_seconds))
                    tasks.create_task(self._follow_decisions(is_active, pause_seconds))
            except* BusUnavailable as unavailable:
                log.warning("the log cannot be reached", error=str(unavailable.exceptions[0]))
            await asyncio.sleep(pause_seconds)

    async def history(self, namespace: str, name: str, limit: int) -> tuple[DecisionRecorded, ...]:
        """The last decisions on a workload, newest first. StoreUnavailable when the store is."""
        blobs = await self._store.history(f"decisions/{namespace}/{name}", limit)
        kind = TYPE_PREFIX + DecisionRecorded.__name__
        found = (decode(DECISIONS.name, kind, blob) for blob in blobs)
        return tuple(event for event in found if isinstance(event, DecisionRecorded))

    async def _write_dirty(self, is_active: Callable[[], bool], pause_seconds: float) -> None:
        while True:
            await asyncio.sleep(pause_seconds)
            if not is_active() or not self._following:
                self._complete = False
                continue
            try:
                if not self._complete or not await self._store.marker():
                    await self._write_again()
                await self._write()
            except (StoreUnavailable, BusUnavailable) as error:
                self._complete = False
                log.warning("the store or the log cannot be reached", error=str(error))

    async def _write_again(self) -> None:
        """The store was flushed, is new, or may have missed something."""
        log.info("projecting everything again")
        self._complete = True
        self._dirty = set(self._state().workloads)
        self._dirty_capacity = set(self._capacity)
        await self._write()
        async with self._appending, self._bus.follow((DECISIONS,)) as feed:
            self._appended.clear()
            begun: set[str] = set()
            ends = await feed.ends()
            async for batch in feed:
                await self._append(batch.records, begun)
                if reached(batch.positions, ends):
                    break
        await self._store.set_marker("projected")

    async def _write(self) -> None:
        keys, capacity = self._dirty, self._dirty_capacity
        self._dirty, self._dirty_capacity = set(), set()
        state = self._state()
        values = {f"capacity/{key}": self._capacity[key] for key in capacity}
        for key in keys:
            workload = state.workloads.get(key)
            if workload is not None:
                values[f"workload/{key[0]}/{key[1]}"] = msgspec.json.encode(workload_reply(state, workload))
        gone = [f"workload/{key[0]}/{key[1]}" for key in keys if key not in state.workloads]
        try:
            if values:
                await self._store.put_many(values)
            if gone:
                await self._store.delete(*gone)
                await self._end(keys)
        except StoreUnavailable:
            self._dirty |= keys
            self._dirty_capacity |= capacity
            raise

    async def _follow_decisions(self, is_active: Callable[[], bool], pause_seconds: float) -> None:
        """While active. What is older than that is read when all is written again, once this has begun."""
        while True:
            while not is_active():
                await asyncio.sleep(pause_seconds)
            async with self._bus.follow((DECISIONS,), {}) as feed:
                self._following = True
                try:
                    await self._append_on(feed, is_active)
                finally:
                    self._following = False

    async def _append_on(self, feed: Feed, is_active: Callable[[], bool]) -> None:
        async for batch in feed:
            if not is_active():
                return
            if not batch.records:
                continue
            try:
                async with self._appending:
                    await self._append(batch.records)
            except StoreUnavailable as error:
                self._complete = False
                log.warning("decisions are missing in the store's index", error=str(error))

    async def _append(self, records: tuple[Record, ...], begun: set[str] | None = None) -> None:
        """In the log's order, each once. begun: histories written anew so far; another is emptied first."""
        entries, positions = list[tuple[str, bytes]](), {}
        for record in records:
            event, place = record.event, (record.topic, record.partition)
            if isinstance(event, DecisionRecorded) and record.offset >= self._appended.get(place, 0):
                entries.append((f"decisions/{event.namespace}/{event.name}", record.value))
                positions[place] = record.offset + 1
        if begun is not None:
            anew = [entry for entry in entries if entry[0] not in begun]
            entries = [entry for entry in entries if entry[0] in begun]
            await self._begin(anew)
            begun |= {key for key, _ in anew}
        await self._store.append_histories(entries, self._kept_max)
        decided = (record.event for record in records if isinstance(record.event, DecisionRecorded))
        await self._end({(event.namespace, event.name) for event in decided})
        self._appended.update(positions)

    async def _end(self, keys: set[tuple[str, str]]) -> None:
        """The histories of those that are declared no more are not for ever."""
        known = self._state().workloads
        gone = [f"decisions/{key[0]}/{key[1]}" for key in sorted(keys) if key not in known]
        if gone:
            await self._store.end_histories(gone, self._gone_seconds)

    async def _begin(self, entries: Sequence[tuple[str, bytes]]) -> None:
        """One history after the other, so that each is away for a moment only."""
        found: dict[str, list[tuple[str, bytes]]] = {}
        for entry in entries:
            found.setdefault(entry[0], []).append(entry)
        for key, own in found.items():
            await self._store.delete(key)
            await self._store.append_histories(own, self._kept_max)
