"""Writes one cluster's records. A record that is too large for the log affects only its own key."""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar, cast

import structlog

from spillway import metrics
from spillway.addresses import Tombstone, address_of_event
from spillway.bus import Bus, Position, Traces
from spillway.dead_letters import UnwritableEvent, outgoing_record
from spillway.events import Event

E = TypeVar("E")

WHY_CHARACTERS_MAX: Final = 500
"""The most characters of the reason in a shortened record."""

log = structlog.get_logger()


def write_errors_by_index(events: Sequence[Event | Tombstone]) -> dict[int, UnwritableEvent]:
    """Returns the errors of the records that are too large or invalid for the log, by index. Sends nothing.

    It encodes every record. Call it after a publish raised UnwritableEvent, which does not name the record.
    """
    found = {}
    for index, event in enumerate(events):
        try:
            outgoing_record(event)
        except UnwritableEvent as error:
            found[index] = error
    return found


class UnwritableKeys:
    """Logs a key once as long as its records cannot be written in full. Counts every try in a metric."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def note_unwritable(self, event: Event | Tombstone, error: UnwritableEvent) -> None:
        assert not isinstance(event, Tombstone), "a tombstone is a key alone"
        address = address_of_event(event)
        metrics.RECORDS_UNWRITABLE.labels(address.topic.name).inc()
        if address.key not in self._told:
            self._told.add(address.key)
            log.error(
                "a record is too large to be written in full",
                topic=address.topic.name,
                key=address.key,
                error=str(error),
            )

    def note_written(self, events: Sequence[Event | Tombstone]) -> None:
        """Notes that these records were written in full. A later error of one of their keys is logged again."""
        if self._told:
            self._told -= {
                one.address.key if isinstance(one, Tombstone) else address_of_event(one).key for one in events
            }


class FittingWriter(Generic[E]):
    """Publishes events, and shortens events that are too large.

    shorten: returns the event without its long part, with the given reason as text; None if nothing useful remains.
    """

    def __init__(self, bus: Bus, shorten: Callable[[E, str], E | None]) -> None:
        self._bus = bus
        self._shorten = shorten
        self._keys = UnwritableKeys()

    async def publish(self, events: Sequence[E], traces: Traces | None = None) -> tuple[Position | None, ...]:
        """Publishes events. Returns the position of each event; None for an event that cannot be written at all.

        Raises the same errors as Bus.publish, except UnwritableEvent.
        """
        given = cast(Sequence[Event | Tombstone], events)
        try:
            positions = await self._bus.publish(*given, traces=traces)
        except UnwritableEvent:
            return await self._publish_shortened(given, traces)
        self._keys.note_written(given)
        return positions

    async def _publish_shortened(
        self, events: Sequence[Event | Tombstone], traces: Traces | None
    ) -> tuple[Position | None, ...]:
        wrong = write_errors_by_index(events)
        fitting: dict[int, Event | Tombstone] = {}
        for index, event in enumerate(events):
            if index not in wrong:
                fitting[index] = event
                continue
            self._keys.note_unwritable(event, wrong[index])
            shorter = cast(Event | None, self._shorten(cast(E, event), str(wrong[index])[:WHY_CHARACTERS_MAX]))
            if shorter is not None and not write_errors_by_index((shorter,)):
                fitting[index] = shorter
        self._keys.note_written([event for index, event in enumerate(events) if index not in wrong])
        told = None if traces is None else {at: traces[index] for at, index in enumerate(fitting) if index in traces}
        positions = await self._bus.publish(*fitting.values(), traces=told) if fitting else ()
        places = dict(zip(fitting, positions, strict=True))
        return tuple(places.get(index) for index in range(len(events)))
