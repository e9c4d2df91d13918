"""Says what a cluster shows: gathers what may have changed and publishes what is news, numbered in this epoch."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import structlog

from propagator.core.desired import Target
from propagator.core.status import is_news
from propagator.settings import PropagatorSettings
from spillway import tracing
from spillway.addresses import Tombstone, status_address
from spillway.bus import Bus, BusUnavailable, Headers
from spillway.events import STATE_ORPHANED, STATE_PRESENT, StatusDetails, WorkloadObserved
from spillway.fitting import FittingWriter

NOWHERE = -1
"""Before any offset."""

Said = WorkloadObserved | Tombstone
log = structlog.get_logger()


class Reporter:
    """One cluster's statuses. current: what it shows of a target now; logged: what the log says of it last.

    vanished: whether it is sure that there is neither an object nor a placement of it.
    """

    def __init__(
        self,
        bus: Bus,
        epoch: int,
        settings: PropagatorSettings,
        current: Callable[[Target], WorkloadObserved | None],
        logged: Callable[[Target], WorkloadObserved | None],
        vanished: Callable[[Target], bool],
    ) -> None:
        self._writer = FittingWriter[Said](bus, without_words)
        self._epoch = epoch
        self._settings = settings
        self._current = current
        self._logged = logged
        self._vanished = vanished
        self._sequence = 0
        self._said: dict[Target, WorkloadObserved] = {}
        self._places: dict[Target, int] = {}
        """The offset of what was said last."""
        self._overruled: dict[Target, int] = {}
        """Up to which offset somebody else, or nobody knows who, wrote: what is said has to stand from there on."""
        self._changed: dict[Target, None] = {}
        self._traces = tracing.Origins[Target]()
        self._woken = asyncio.Event()

    def note(self, target: Target) -> None:
        """It may show something else now. That belongs to the trace of what was done last, until all of it is there."""
        self._changed[target] = None
        self._traces.note(target, tracing.headers())
        self._woken.set()

    def contradict(self, target: Target, offset: int) -> None:
        """Somebody without the turn said something, or took it back: if behind what we said, that is said again.

        While something of ours is on its way, only its place will tell which of the two is the later word.
        """
        self._overruled[target] = max(offset, self._overruled.get(target, offset))
        self.note(target)

    def forget(self, target: Target) -> None:
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
            await self._publish(self._news())

    def _news(self) -> list[tuple[Target, Said]]:
        """The next batch; what is in it is not in `_changed` any more."""
        news: list[tuple[Target, Said]] = []
        for target in list(self._changed)[: self._settings.status_batch]:
            del self._changed[target]
            current = self._current(target)
            said = self._said.get(target) or self._logged(target)
            if current is not None and (self._is_overruled(target) or self._is_news(current, said)):
                self._sequence += 1
                news.append((target, replace(current, epoch=self._epoch, sequence=self._sequence)))
            elif current is None and said is not None and said.state == STATE_ORPHANED and self._vanished(target):
                news.append((target, Tombstone(status_address(target.namespace, target.name, target.cluster))))
        return news

    def _is_news(self, current: WorkloadObserved, said: WorkloadObserved | None) -> bool:
        """Also what an owner before said in the same words: readers go by the words of the newest turn alone."""
        return is_news(current, said) or (said is not None and said.epoch < self._epoch)

    def _is_overruled(self, target: Target) -> bool:
        return self._overruled.get(target, NOWHERE) > self._places.get(target, NOWHERE)

    def _traces_of(self, news: list[tuple[Target, Said]]) -> dict[int, Headers]:
        told = enumerate(news) if tracing.is_on() else ()
        return {index: self._traces.get(target) for index, (target, _) in told}

    async def _publish(self, news: list[tuple[Target, Said]]) -> None:
        if not news:
            return
        try:
            positions = await self._writer.publish([event for _, event in news], self._traces_of(news))
        except BusUnavailable as error:
            log.warning("statuses not published yet", error=str(error), count=len(news))
            for target, _ in news:
                self._changed[target] = None
                self._places.pop(target, None)  # It may be there all the same, before or behind what is said next.
                self._overruled.setdefault(target, 0)
            await asyncio.sleep(self._settings.bus_retry_seconds)
            return
        for (target, event), position in zip(news, positions, strict=True):
            if isinstance(event, Tombstone):
                self._said.pop(target, None)
                self._places.pop(target, None)
                continue
            self._said[target] = event
            if position is None:  # No record can hold it: said again once it shows something else.
                self._places.pop(target, None)
                self._overruled.pop(target, None)
                continue
            self._places[target] = position.offset
            if not self._is_overruled(target):
                self._overruled.pop(target, None)
            if event.ready >= event.spec_replicas:
                self._traces.take(target)
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


def without_words(event: Said, why: str) -> Said | None:
    """Readers go by all but the message and what is beside the object; of its details it keeps what has no text."""
    if isinstance(event, Tombstone):
        return None
    job = event.details.job if event.details is not None else None
    return replace(event, message=f"too long to be said: {why}", beside=(), details=StatusDetails(job=job))
