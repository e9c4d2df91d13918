"""Writes a cluster's records to the log: gathers the newest record of each node, and reports acknowledged ones."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import structlog

from spillway import tracing
from spillway.addresses import LENDING, Tombstone, lending_address
from spillway.bus import Bus, BusUnavailable, Headers
from spillway.events_lending import NodeLent, NodeReturned, NodeUsed
from spillway.fitting import FittingWriter
from vk_bridge.settings import VkBridgeSettings

Loan = NodeLent | NodeReturned
log = structlog.get_logger()


class Records:
    """The writer of one cluster's records. Failed writes are retried.

    acknowledged: is called with each loan record once it is in the log.

    A record that is too large for the log waits and is tried again at the next flush. It is not written without its
    pods: readers would think that no pod loses anything if the node goes back.
    """

    def __init__(self, bus: Bus, settings: VkBridgeSettings, acknowledged: Callable[[Loan], None]) -> None:
        self._bus = bus
        self._writer = FittingWriter[Loan | NodeUsed](bus, lambda record, why: None)
        self._settings = settings
        self._acknowledged = acknowledged
        self._loans: dict[str, Loan] = {}
        self._traces = tracing.Origins[str]()
        self._used: deque[NodeUsed] = deque(maxlen=settings.records_waiting_max)
        self._something = asyncio.Event()
        self._writing = asyncio.Lock()
        self._failing_since: float | None = None

    def queue_loan_record(self, record: Loan) -> None:
        """Queues a record; it replaces the waiting record of the same node."""
        self._loans[record.node] = record
        self._traces.note_origin(record.node, tracing.current_trace_headers())
        self._something.set()

    def waiting_record(self, node: str) -> Loan | None:
        """Returns the record of a node that waits and is not known to be in the log yet."""
        return self._loans.get(node)

    def is_log_away(self) -> bool:
        """Returns whether no record could be written for log_away_seconds."""
        since = self._failing_since
        return since is not None and asyncio.get_running_loop().time() - since >= self._settings.log_away_seconds

    def queue_usage_records(self, hours: list[NodeUsed]) -> None:
        self._used.extend(hours)
        if hours:
            self._something.set()

    async def run(self) -> None:
        while True:
            await self._something.wait()
            await asyncio.sleep(self._settings.gather_seconds)
            self._something.clear()
            if not await self.flush():
                self._something.set()
                await asyncio.sleep(self._settings.bus_retry_seconds)

    async def write_tombstones(self, cluster: str, nodes: Callable[[], Iterable[str]]) -> None:
        """Writes tombstones for the records of nodes. A failed write is left to the next call.

        nodes: returns the nodes. It is called only when no other write is under way.
        """
        async with self._writing:
            gone = [node for node in nodes() if node not in self._loans]
            for first in range(0, len(gone), self._settings.records_batch):
                part = gone[first : first + self._settings.records_batch]
                try:
                    await self._bus.publish(*(Tombstone(lending_address(LENDING, cluster, node)) for node in part))
                except BusUnavailable as error:
                    log.warning("the log cannot be reached", error=str(error), tombstones=len(gone) - first)
                    return

    async def flush(self) -> bool:
        """Writes the records that wait now.

        Returns whether all are written; records that are too large for the log do not count.
        """
        async with self._writing:
            loans = list(self._loans.values())
            used = [self._used.popleft() for _ in range(len(self._used))]
            records: list[Loan | NodeUsed] = [*loans, *used]
            for first in range(0, len(records), self._settings.records_batch):
                part = records[first : first + self._settings.records_batch]
                try:
                    positions = await self._writer.publish(part, self._traces_of(part))
                except BusUnavailable as error:
                    log.warning("the log cannot be reached", error=str(error), records=len(records) - first)
                    self._requeue_usage_records(one for one in records[first:] if isinstance(one, NodeUsed))
                    if self._failing_since is None:
                        self._failing_since = asyncio.get_running_loop().time()
                    return False
                self._failing_since = None
                for record, position in zip(part, positions, strict=True):
                    if not isinstance(record, NodeUsed) and position is not None:
                        self._acknowledge_record(record)
            return True

    def _requeue_usage_records(self, unwritten: Iterable[NodeUsed]) -> None:
        """Puts unwritten hours back before the newer ones. If there are too many, the oldest are dropped."""
        self._used = deque((*unwritten, *self._used), maxlen=self._used.maxlen)

    def _traces_of(self, records: Sequence[Loan | NodeUsed]) -> dict[int, Headers]:
        told = enumerate(records) if tracing.is_on() else ()
        return {index: self._traces.find_origin(one.node) for index, one in told if not isinstance(one, NodeUsed)}

    def _acknowledge_record(self, record: Loan) -> None:
        if self._loans.get(record.node) is record:
            del self._loans[record.node]
            self._traces.take_origin(record.node)
        self._acknowledged(record)
