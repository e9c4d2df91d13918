"""Follows the log into a state: compacted topics whole, then values and backlogs from where the states stand."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import structlog

from hpa.core.state import INPUTS, BadPolicy, Heard, HpaState
from hpa.core.stored import Unreadable
from spillway import metrics
from spillway.addresses import BACKLOG, LOAD, PODS, SCALE, SCALE_POLICIES, SCALE_STATE, TURNS_HPA, WORKLOADS
from spillway.bus import Batch, Bus, Feed, Offsets, Record, partition_of, reached
from spillway.events import DeadLettered, TurnTaken

WHOLE = (SCALE_POLICIES, SCALE_STATE, SCALE, WORKLOADS, PODS, TURNS_HPA)
FORGETTING = (LOAD, BACKLOG)

log = structlog.get_logger()


class Follower:
    """Keeps one state up to date. Once hear is set, inputs go there, and what this instance wrote is passed over.

    turn: the last TurnTaken, whose instance names the active hpa; turn_epoch: its offset, −1 before the first.
    """

    def __init__(self, bus: Bus, make_state: Callable[[Callable[[str], int]], HpaState]) -> None:
        self.state = make_state(lambda key: partition_of(key, self._partitions))
        self.hear: Callable[[Sequence[Heard]], Awaitable[None]] | None = None
        self.turn: TurnTaken | None = None
        self.turn_epoch = -1
        self._bus = bus
        self._partitions = 1
        self._positions: dict[tuple[str, int], int] = {}
        self._moved = asyncio.Condition()
        self._feeds: list[Feed] = []

    async def run(self) -> None:
        """Reads until cancelled."""
        async with self._bus.follow(WHOLE) as whole:
            batches = aiter(whole)
            ends = await whole.ends()
            self._partitions = sum(1 for topic, _ in ends if topic == WORKLOADS.name)
            while not reached(self._positions, ends):
                await self._take(await anext(batches))
            self.state.read_whole()
            starts = self.state.load_starts()
            async with self._bus.follow(FORGETTING, starts) as forgetting:
                newer = aiter(forgetting)
                begun: Offsets = {**(await forgetting.ends()), **starts}
                self._positions.update(begun)
                self.state.stand(begun.items())
                async with asyncio.TaskGroup() as tasks:
                    self._feeds = [whole, forgetting]
                    tasks.create_task(self._follow(batches))
                    tasks.create_task(self._follow(newer))

    async def caught_up(self) -> None:
        """Returns when everything that was in the log when this was called has been taken in."""
        while len(self._feeds) < 2:
            async with self._moved:
                await self._moved.wait()
        ends = [await feed.ends() for feed in self._feeds]
        async with self._moved:
            await self._moved.wait_for(lambda: all(reached(self._positions, end) for end in ends))

    async def overtaken(self, epoch: int) -> None:
        """Returns when the log has a turn above this one: its writer is fenced, whether or not it tried to write."""
        async with self._moved:
            await self._moved.wait_for(lambda: self.turn_epoch > epoch)

    async def _follow(self, batches: AsyncIterator[Batch]) -> None:
        async for batch in batches:
            await self._take(batch)

    async def _take(self, batch: Batch) -> None:
        heard = []
        for record in batch.records:
            event = record.event
            if isinstance(event, TurnTaken):
                if record.offset > self.turn_epoch:
                    self.turn, self.turn_epoch = event, record.offset
                continue
            metrics.EVENTS_APPLIED.labels(record.topic).inc()
            one = Heard(record.topic, record.partition, record.offset, record.key, event)
            if self.hear is None:
                await self._apply(one, record)
            elif record.topic in INPUTS:
                heard.append(one)
        if heard and self.hear is not None:
            await self.hear(heard)
        self._positions.update(batch.positions)
        async with self._moved:
            self._moved.notify_all()

    async def _apply(self, heard: Heard, record: Record) -> None:
        try:
            self.state.follow(heard)
        except (BadPolicy, Unreadable) as error:
            log.warning("record set aside", topic=record.topic, offset=record.offset, reason=str(error))
            letter = (record.topic, record.partition, record.offset, "hpa", str(error), record.key, b"")
            await self._bus.publish(DeadLettered(*letter))
