"""Writes capacity, placements and past decisions into the store, where users and tools query them.

The log holds the truth. When the store has lost its data, everything is written to it again.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec
import structlog

from planner.core.knowledge.state import PlannerState
from planner.core.requests.answers import workload_reply
from planner.log.intake import changed_keys
from spillway.addresses import DECISIONS
from spillway.bus import Bus, BusUnavailable, Offsets, Record, RecordBatch, has_reached_ends
from spillway.events import CapacityReported, DecisionRecorded
from spillway.model import NO_GENERATION, Generation
from spillway.store import MemoryStore, RedisStore, StoreUnavailable
from spillway.wire import encode_event

Store = RedisStore | MemoryStore
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class HistoryBounds:
    """The limits of kept decisions.

    kept_max: the most decisions that are kept for a workload.
    gone_seconds: how long the decisions on a workload that is no longer declared are kept.
    waiting_max: the most decisions that wait for the store. If there are more, all are read from the log again.
    """

    kept_max: int
    gone_seconds: float
    waiting_max: int


class Projection:
    """Keeps the store up to date with the log: capacity blobs, placements with statuses, and an index of decisions.

    Only the active planner writes. When the store is back, and at the start of a turn, everything is written again,
    because the planner before may have left something out. After that, decisions come from this planner as it makes
    them, and are not read from the log.
    """

    def __init__(self, bus: Bus, store: Store, state: Callable[[], PlannerState], bounds: HistoryBounds) -> None:
        self._bus = bus
        self._store = store
        self._state = state
        self._bounds = bounds
        self._capacity: dict[str, bytes] = {}
        self._dirty_capacity: set[str] = set()
        self._dirty: set[tuple[str, str]] = set()
        self._complete = self._gathering = False
        self._decided: list[DecisionRecorded] = []
        self._told = asyncio.Event()
        self._appending = asyncio.Lock()
        self._read: dict[str, Generation] = {}

    def note_records(self, records: tuple[Record, ...], positions: Offsets) -> None:
        """Notes changed workloads and the newest capacity, to be written later. Does not wait for the store."""
        self._dirty |= changed_keys(records)
        for record in records:
            if isinstance(record.event, CapacityReported):
                self._capacity[record.key] = record.value
                self._dirty_capacity.add(record.key)

    def begin_turn(self) -> None:
        """Notes that a turn of this planner begins, so that everything is written again."""
        self._complete = False

    def queue_decisions(self, events: Iterable[object]) -> None:
        """Queues decisions that are now in the log, for the history in the store. Does not wait for the store.

        If too many decisions wait for the store, they are read from the log again.
        """
        if not self._gathering:
            return
        self._decided += [event for event in events if isinstance(event, DecisionRecorded)]
        if len(self._decided) > self._bounds.waiting_max:
            self._complete = self._gathering = False
        self._told.set()

    async def run(self, is_active: Callable[[], bool], pause_seconds: float = 0.5) -> None:
        """Writes changed values, and each decision once it is in the log, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_changes_in_loop(is_active, pause_seconds))
            tasks.create_task(self._append_queued_decisions())

    async def _write_changes_in_loop(self, is_active: Callable[[], bool], pause_seconds: float) -> None:
        while True:
            await asyncio.sleep(pause_seconds)
            if not is_active():
                self._complete = False
                continue
            try:
                if not self._complete or not await self._store.read_marker():
                    await self._write_everything()
                await self._write_changed_values()
            except (StoreUnavailable, BusUnavailable) as error:
                self._complete = False
                log.warning("the store of projections or the log cannot be reached", error=str(error))

    async def _write_everything(self) -> None:
        """Writes everything again: the store was flushed, is new, or may have missed something."""
        log.info("projecting everything again")
        self._complete = True
        self._dirty = set(self._state().workloads)
        self._dirty_capacity = set(self._capacity)
        await self._write_changed_values()
        async with self._appending, self._bus.follow_topics((DECISIONS,)) as feed:
            self._gathering, self._decided, self._read = False, [], {}
            batches = aiter(feed)
            await self._append_until(await feed.end_offsets(), batches)
            self._gathering = True  # From here on new decisions are gathered; the next read fetches those before.
            await self._append_until(await feed.end_offsets(), batches)
        self._told.set()
        await self._store.set_marker("projected")

    async def _write_changed_values(self) -> None:
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
                await self._expire_histories(keys)
        except StoreUnavailable:
            self._dirty |= keys
            self._dirty_capacity |= capacity
            raise

    async def _append_queued_decisions(self) -> None:
        while True:
            await self._told.wait()
            async with self._appending:
                self._told.clear()
                decided, self._decided = self._decided, []
                if not self._complete:  # The decisions will be read from the log.
                    continue
                try:
                    await self._append_decisions(decided)
                except StoreUnavailable as error:
                    self._complete = False
                    log.warning("decisions are missing in the store's index", error=str(error))

    async def _append_decisions(self, decided: Sequence[DecisionRecorded]) -> None:
        """Appends the decisions, except those that were already read from the log and appended."""
        read = self._read
        new = [event for event in decided if event.generation > read.get(_history_key(event), NO_GENERATION)]
        await self._append_entries([(_history_key(event), encode_event(event)) for event in new])
        await self._expire_histories({(event.namespace, event.name) for event in new})

    async def _append_until(self, ends: Offsets, batches: AsyncIterator[RecordBatch]) -> None:
        async for batch in batches:
            await self._append_read_decisions(batch.records)
            if has_reached_ends(batch.positions, ends):
                return

    async def _append_read_decisions(self, records: tuple[Record, ...]) -> None:
        """Appends decisions in the log's order. The first decisions of a workload replace its old history."""
        events = [(record.event, record.value) for record in records if isinstance(record.event, DecisionRecorded)]
        entries = [(_history_key(event), value) for event, value in events]
        await self._replace_histories([entry for entry in entries if entry[0] not in self._read])
        await self._append_entries([entry for entry in entries if entry[0] in self._read])
        self._read |= {_history_key(event): event.generation for event, _ in events}
        await self._expire_histories({(event.namespace, event.name) for event, _ in events})

    async def _append_entries(self, entries: Sequence[tuple[str, bytes]]) -> None:
        await self._store.append_histories(entries, self._bounds.kept_max)

    async def _expire_histories(self, keys: set[tuple[str, str]]) -> None:
        """Sets the expiry of histories of workloads that are no longer declared."""
        known = self._state().workloads
        gone = [history_key(*key) for key in sorted(keys) if key not in known]
        if gone:
            await self._store.end_histories(gone, self._bounds.gone_seconds)

    async def _replace_histories(self, entries: Sequence[tuple[str, bytes]]) -> None:
        """Replaces one history after the other, so that each is absent only for a moment."""
        found: dict[str, list[tuple[str, bytes]]] = {}
        for entry in entries:
            found.setdefault(entry[0], []).append(entry)
        for key, own in found.items():
            await self._store.delete(key)
            await self._store.append_histories(own, self._bounds.kept_max)


def history_key(namespace: str, name: str) -> str:
    """Returns the store's key for the past decisions on a workload."""
    return f"decisions/{namespace}/{name}"


def _history_key(event: DecisionRecorded) -> str:
    return history_key(event.namespace, event.name)
