"""Publishes the statuses of one cluster: gathers changes, and publishes new statuses with numbers within this epoch."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import structlog

from propagator.core.desired import PartTarget
from propagator.core.status import is_changed_status
from propagator.settings import PropagatorSettings
from spillway import tracing
from spillway.addresses import Tombstone, status_address
from spillway.bus import Bus, BusUnavailable, Headers
from spillway.events import STATE_ORPHANED, STATE_PRESENT, StatusDetails, WorkloadObserved
from spillway.fitting import FittingWriter

NOWHERE = -1
"""An offset before all others."""

Said = WorkloadObserved | Tombstone
log = structlog.get_logger()


class Reporter:
    """Publishes the statuses of one cluster.

    current: returns the status that the cluster shows for a target now.
    logged: returns the last status in the log.
    vanished: returns whether the target has, for certain, neither an object nor a placement.
    """

    def __init__(
        self,
        bus: Bus,
        epoch: int,
        settings: PropagatorSettings,
        current: Callable[[PartTarget], WorkloadObserved | None],
        logged: Callable[[PartTarget], WorkloadObserved | None],
        vanished: Callable[[PartTarget], bool],
    ) -> None:
        self._writer = FittingWriter[Said](bus, status_without_texts)
        self._epoch = epoch
        self._settings = settings
        self._current = current
        self._logged = logged
        self._vanished = vanished
        self._sequence = 0
        self._said: dict[PartTarget, WorkloadObserved] = {}
        self._places: dict[PartTarget, int] = {}
        """The offset of the last published status."""
        self._overruled: dict[PartTarget, int] = {}
        """The offset of the last record by another or an unknown writer. Our status must be written after it."""
        self._changed: dict[PartTarget, None] = {}
        self._traces = tracing.Origins[PartTarget]()
        self._woken = asyncio.Event()

    def queue_status(self, target: PartTarget) -> None:
        """Queues the status of the target: the next flush publishes it if it has changed.

        The status joins the trace of the last action until all replicas are ready.
        """
        self._changed[target] = None
        self._traces.note_origin(target, tracing.current_trace_headers())
        self._woken.set()

    def republish_status(self, target: PartTarget, offset: int) -> None:
        """Publishes our status again if a writer without the turn replaced or deleted it at an offset after ours.

        While our own record is not acknowledged yet, only its offset can show which of the two is later.
        """
        self._overruled[target] = max(offset, self._overruled.get(target, offset))
        self.queue_status(target)

    def forget_target(self, target: PartTarget) -> None:
        self._said.pop(target, None)
        self._places.pop(target, None)
        self._overruled.pop(target, None)
        self._changed.pop(target, None)

    async def run(self) -> None:
        while True:
            await self._woken.wait()
            await asyncio.sleep(self._settings.status_gather_seconds)
            self._woken.clear()
            await self.flush()

    async def flush(self) -> None:
        """Publishes the statuses that have changed since they were last published."""
        while self._changed:
            await self._publish_statuses(self._take_new_statuses())

    def _take_new_statuses(self) -> list[tuple[PartTarget, Said]]:
        """Returns the next batch of new statuses and removes its targets from `_changed`."""
        news: list[tuple[PartTarget, Said]] = []
        for target in list(self._changed)[: self._settings.status_batch]:
            del self._changed[target]
            current = self._current(target)
            said = self._said.get(target) or self._logged(target)
            if current is not None and (self._is_overruled(target) or self._needs_publishing(current, said)):
                self._sequence += 1
                news.append((target, replace(current, epoch=self._epoch, sequence=self._sequence)))
            elif current is None and said is not None and said.state == STATE_ORPHANED and self._vanished(target):
                news.append((target, Tombstone(status_address(target.namespace, target.name, target.cluster))))
        return news

    def _needs_publishing(self, current: WorkloadObserved, said: WorkloadObserved | None) -> bool:
        """Returns whether the status must be published.

        Readers use only the newest epoch's texts, so a status that an earlier owner published counts as new even when
        it is the same.
        """
        return is_changed_status(current, said) or (said is not None and said.epoch < self._epoch)

    def _is_overruled(self, target: PartTarget) -> bool:
        return self._overruled.get(target, NOWHERE) > self._places.get(target, NOWHERE)

    def _traces_by_index(self, news: list[tuple[PartTarget, Said]]) -> dict[int, Headers]:
        told = enumerate(news) if tracing.is_on() else ()
        return {index: self._traces.find_origin(target) for index, (target, _) in told}

    async def _publish_statuses(self, news: list[tuple[PartTarget, Said]]) -> None:
        if not news:
            return
        try:
            positions = await self._writer.publish([event for _, event in news], self._traces_by_index(news))
        except BusUnavailable as error:
            log.warning("the statuses cannot be published yet", error=str(error), count=len(news))
            for target, _ in news:
                self._changed[target] = None
                self._places.pop(target, None)  # The record may be in the log in spite of the error.
                self._overruled.setdefault(target, 0)
            await asyncio.sleep(self._settings.bus_retry_seconds)
            return
        for (target, event), position in zip(news, positions, strict=True):
            if isinstance(event, Tombstone):
                self._said.pop(target, None)
                self._places.pop(target, None)
                continue
            self._said[target] = event
            if position is None:  # No record can hold it. It is published again once it changes.
                self._places.pop(target, None)
                self._overruled.pop(target, None)
                continue
            self._places[target] = position.offset
            if not self._is_overruled(target):
                self._overruled.pop(target, None)
            if event.ready >= event.spec_replicas:
                self._traces.take_origin(target)
            tell = log.debug if event.state == STATE_PRESENT else log.info
            tell(
                "status said",
                cluster=target.cluster,
                workload=f"{target.namespace}/{target.name}",
                version=str(event.version),
                state=event.state,
                message=event.message,
                ready=event.ready,
                replicas=event.replicas,
            )


def status_without_texts(event: Said, why: str) -> Said | None:
    """Returns the status without its texts when a record cannot hold it.

    Readers decide by the other fields. Of the details, only the Job's end has no text and stays.
    """
    if isinstance(event, Tombstone):
        return None
    job = event.details.job if event.details is not None else None
    return replace(event, message=f"too long to be said: {why}", beside=(), details=StatusDetails(job=job))
