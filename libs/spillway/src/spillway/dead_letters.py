"""Records in the log's form: builds them with headers, reads them into events, and makes dead letters of bad ones."""

import re
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, cast, get_args, get_type_hints

import structlog

from spillway import metrics, tracing
from spillway.addresses import TOPIC_BY_NAME, Tombstone, address_of_event, is_valid_key
from spillway.bus import Bus, BusUnavailable, Headers, Outgoing, Record, TooManyDeadLetters, Traces
from spillway.events import DeadLettered, Event
from spillway.letters_by_writer import (
    DEFAULT_BOUNDS,
    KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
    LetterBounds,
    LettersByWriter,
    writer_of,
)
from spillway.model import Shape
from spillway.wire import (
    TYPE_PREFIX,
    TooManyEntries,
    UnknownKind,
    UnreadableMessage,
    decode_event,
    encode_bounded_event,
    event_class_of,
    event_type,
    largest_field,
)

RECORD_BYTES_MAX: Final = 2 * 1024 * 1024
"""The most bytes of one record. The topics and the producers are configured with the same number."""

DEAD_VALUE_BYTES_MAX: Final = 64 * 1024
"""The most bytes of an unreadable record's value that its dead letter keeps."""

REASON_CHARACTERS_MAX: Final = 1000
"""The most characters of the reason in a dead letter. The reason may quote the unreadable
record, and the dead letter must fit into a record, too."""

KINDS_PASSED_OVER_MAX: Final = 50
"""The most unknown event types of which one reader writes only the first record as a dead letter."""
_KIND: Final = re.compile(re.escape(TYPE_PREFIX) + r"[A-Za-z]{1,100}")

UNREAD_HEADER: Final = "spillway-unread"
"""The header of a record that replaces records which could not be unpacked. Its value is the reason."""

UNREAD_KIND_HEADER: Final = "spillway-unread-kind"
"""The header with the kind of that reason, one of UNREAD_KINDS."""
UNREAD_KINDS: Final = ("headers", "size")

_ROOM_FOR_HEADERS: Final = 4096
_HEADER_BYTES: Final = 32
"""The bytes that each header counts besides its name and value. So a record cannot have more empty headers than a
reader can hold."""
log = structlog.get_logger()
_MINUTE: Final = 60.0


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One record as bytes, with its position."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class UnwritableEvent(ValueError):
    """Raised if an event does not fit into a record: a number is too large, or it has too many bytes or entries."""


class EventTooLarge(UnwritableEvent):
    """Raised if an event is larger than a record may be. field: its largest field. field_bytes: that field's bytes."""

    def __init__(self, event: Event, size: int, size_max: int) -> None:
        self.field, self.field_bytes = largest_field(event)
        self.size, self.size_max = size, size_max
        key = address_of_event(event).key
        about = f"{type(event).__name__} {key}: {size} bytes, {self.field_bytes} of them in {self.field}"
        super().__init__(f"{about}: expected at most {size_max}")


class _UnreadRecord(UnreadableMessage):
    """Raised if a record cannot be read. kind: the kind of the reason, one of a few constants."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


def dead_letter(place: tuple[str, int, int], reader: str, reason: str, key: bytes, value: bytes = b"") -> DeadLettered:
    """Returns the dead letter of the record at (topic, partition, offset).

    Long texts are cut, so that it fits into a record.
    """
    shown = key[:DEAD_VALUE_BYTES_MAX].decode(errors="replace")
    return DeadLettered(*place, reader, reason[:REASON_CHARACTERS_MAX], shown, value[:DEAD_VALUE_BYTES_MAX])


def outgoing_record(event: Event | Tombstone | Outgoing, spare_bytes: int = 0) -> Outgoing:
    """Returns an event as a record to be written. Raises UnwritableEvent, before anything is sent.

    spare_bytes: the part of a record's size limit that must stay free.
    """
    if isinstance(event, Outgoing):
        return event
    if isinstance(event, Tombstone):
        if not event.address.topic.is_compacted:
            raise ValueError(f"a tombstone says nothing on {event.address.topic.name}, which is not compacted")
        return Outgoing(event.address, event.address.key.encode(), None, "")
    address = address_of_event(event)
    try:
        _require_pods_request(event)
        value = encode_bounded_event(event)
    except (ValueError, TypeError, OverflowError, TooManyEntries) as error:
        raise UnwritableEvent(f"{type(event).__name__} {address.key}: {error}") from error
    most = RECORD_BYTES_MAX - _ROOM_FOR_HEADERS - spare_bytes - len(address.key)
    if len(value) > most:
        raise EventTooLarge(event, len(value), most)
    return Outgoing(address, address.key.encode(), value, event_type(event))


def record_headers(record: Outgoing, fleet: str, source: str, identity: str, time: str) -> Headers:
    """Returns a record's headers: CloudEvents' headers, the fleet and the trace context. A tombstone has no type."""
    kind = (("ce_type", record.kind.encode()),) if record.kind else ()
    return (
        ("ce_specversion", b"1.0"),
        ("ce_id", identity.encode()),
        *kind,
        ("ce_source", source.encode()),
        ("ce_time", time.encode()),
        ("fleet", fleet.encode()),
        *record.trace,
    )


@contextmanager
def trace_sending(records: list[Outgoing], traces: Traces | None, source: str) -> Iterator[list[Outgoing]]:
    """Yields the records with the headers of their traces. If a record belongs to a trace, a span lasts meanwhile.

    traces: by the index of a record; None: all records belong to the current trace. source: the ce_source of the bus.
    """
    if not tracing.is_on():
        yield records
        return
    topics = {record.address.topic.name for record in records}
    told = () if traces is None else tuple(traces.values())
    with tracing.sending_span(topics, len(records), source, told, goes_on=traces is None):
        if traces is None:
            own = tracing.current_trace_headers()
            yield [replace(record, trace=own) for record in records]
        else:
            yield [replace(record, trace=traces.get(index, ())) for index, record in enumerate(records)]


class LetterReading:
    """Reads the records of one feed, and makes dead letters of unreadable ones.

    On topics that only our services write, too many letters a minute raise TooManyDeadLetters, because our code must be
    wrong. On topics that anyone may write they do not (letters_by_writer.py). Letters wait in `pending` until they are
    published; too many of them also raise it. An event type that only a newer version knows gives one letter, for its
    first record. Later records of that type are skipped.
    """

    def __init__(self, fleet: str, reader: str, per_minute_max: int, by_writer: LetterBounds = DEFAULT_BOUNDS) -> None:
        self.fleet = fleet
        self.reader = reader
        self.pending: list[DeadLettered] = []
        self._kinds_passed_over: set[str] = set()
        self._per_minute_max = per_minute_max
        self._at: deque[float] = deque()
        self._by_writer = LettersByWriter(by_writer)

    def read_records(self, stored: Sequence[StoredRecord], now: float) -> tuple[Record, ...]:
        """Returns the records that can be read. Dead letters of the others go to `pending`, within limits.

        now: seconds of a monotonic clock.
        """
        records = []
        for one in stored:
            try:
                records.append(self._parse_record(one))
            except UnreadableMessage as error:
                metrics.DEAD_LETTERS.labels(one.topic).inc()
                if TOPIC_BY_NAME[one.topic].can_anyone_write:
                    self._add_letter_for_writer(one, error, now)
                elif not (isinstance(error, UnknownKind) and self._has_seen_unknown_type(error.kind)):
                    self._add_dead_letter(one, str(error), now)
        return tuple(records)

    async def publish_pending(self, bus: Bus) -> None:
        """Publishes the waiting letters. If the log is not available, the next batch tries again."""
        if self.pending:
            with suppress(BusUnavailable):
                await bus.publish(*self.pending)
                self.pending.clear()

    def _add_letter_for_writer(self, stored: StoredRecord, error: UnreadableMessage, now: float) -> None:
        writer = writer_of(stored.key, stored.headers, stored.partition)
        left_out = None
        if len(self.pending) < self._per_minute_max // 2:  # Otherwise the log takes no letters; reading goes on.
            left_out = self._by_writer.admit_letter(stored.topic, writer, _kind_of_reason(error), now)
        if left_out is None:
            metrics.DEAD_LETTERS_LEFT_OUT.labels(stored.topic).inc()
            return
        place, key = (stored.topic, stored.partition, stored.offset), (stored.key or b"")[:KEY_BYTES_MAX]
        letter = dead_letter(place, self.reader, str(error), key, (stored.value or b"")[:VALUE_BYTES_MAX])
        self.pending.append(replace(letter, writer=writer, left_out=left_out))
        log.warning(
            "a record cannot be read", topic=stored.topic, writer=writer, reason=letter.reason, left_out=left_out
        )

    def _has_seen_unknown_type(self, kind: str) -> bool:
        """Returns whether a record of this unknown type was read before."""
        if kind in self._kinds_passed_over:
            return True
        if len(self._kinds_passed_over) < KINDS_PASSED_OVER_MAX and _KIND.fullmatch(kind):
            self._kinds_passed_over.add(kind)
        return False

    def _parse_record(self, stored: StoredRecord) -> Record:
        given = tuple((name, value or b"") for name, value in stored.headers)  # Kafka has headers without a value.
        headers = dict(given)
        if UNREAD_HEADER in headers:
            kind = headers.get(UNREAD_KIND_HEADER, b"").decode(errors="replace")
            reason = headers[UNREAD_HEADER].decode(errors="replace")
            raise _UnreadRecord(kind if kind in UNREAD_KINDS else UNREAD_KINDS[0], reason)
        size = len(stored.key or b"") + len(stored.value or b"") + _headers_bytes(given)
        if size > RECORD_BYTES_MAX:  # Brokers limit the compressed size.
            raise _UnreadRecord("size", f"{size} bytes: expected at most {RECORD_BYTES_MAX}")
        fleet = headers.get("fleet")
        if not fleet:
            raise _UnreadRecord("fleet missing", "no header fleet")
        if fleet != self.fleet.encode():
            raise _UnreadRecord("another fleet", f"fleet {fleet.decode(errors='replace')!r}: this is {self.fleet!r}")
        try:
            key = (stored.key or b"").decode()
        except UnicodeDecodeError as error:
            raise _UnreadRecord("key", f"key: {error}") from error
        kind = headers.get("ce_type", b"").decode(errors="replace")
        if stored.value is not None:
            event_class_of(kind)  # Before the key, because an unknown kind may have another form of key.
        if not is_valid_key(stored.topic, key):
            raise _UnreadRecord("key", f"key {key[:200]!r}: expected one that an event of {stored.topic} may have")
        event = None
        if stored.value is not None:
            event = decode_event(stored.topic, kind, stored.value)
            _require_own_key(stored.topic, key, event)
            try:
                _require_pods_request(event)
            except ValueError as error:
                raise UnreadableMessage(str(error)) from None
        elif not TOPIC_BY_NAME[stored.topic].is_compacted:
            raise _UnreadRecord("tombstone", "a tombstone on a topic that is not compacted")
        trace = tuple(one for one in given if one[0] in tracing.FIELDS)
        return Record(stored.topic, stored.partition, stored.offset, key, event, trace, stored.value or b"")

    def _add_dead_letter(self, stored: StoredRecord, reason: str, now: float) -> None:
        place = stored.topic, stored.partition, stored.offset
        self.pending.append(dead_letter(place, self.reader, reason, stored.key or b"", stored.value or b""))
        self._at.append(now)
        while self._at[0] <= now - _MINUTE:
            self._at.popleft()
        if max(len(self._at), len(self.pending)) > self._per_minute_max:
            last = f"{stored.topic}/{stored.partition} offset {stored.offset}: {reason[:REASON_CHARACTERS_MAX]}"
            raise TooManyDeadLetters(f"over {self._per_minute_max} unreadable records in a minute; the last: {last}")


def _headers_bytes(headers: Headers) -> int:
    return sum(_HEADER_BYTES + len(name) + len(value) for name, value in headers)


def _kind_of_reason(error: UnreadableMessage) -> str:
    if isinstance(error, UnknownKind):
        return "type"
    return error.kind if isinstance(error, _UnreadRecord) else "value"


def _require_pods_request(event: Event) -> None:
    """Raises ValueError if a shape of an event has no request for "pods". Such a shape could fit without a limit."""
    for name in shape_fields(cast(Hashable, type(event))):
        value = getattr(event, name)
        for shape in value if isinstance(value, tuple) else (value,):
            if shape is not None and "pods" not in dict(shape.requests):
                raise ValueError(f"{name}: requests {shape.requests}: expected the entry ('pods', 1) among them")


@cache
def shape_fields(event: Any) -> tuple[str, ...]:
    """Returns the names of the fields of an event class that hold one shape or several."""
    return tuple(name for name, hint in get_type_hints(event).items() if Shape in (hint, *get_args(hint)))


def _require_own_key(topic: str, key: str, event: Event) -> None:
    """Raises UnreadableMessage if the record's key is not the key of its event.

    Otherwise a reader would store the event under the record's key, where nobody looks for it.
    """
    try:
        address = address_of_event(event)
    except KeyError as error:
        raise UnreadableMessage(f"{type(event).__name__}: {error} has no topic") from error
    if (address.topic.name, address.key) != (topic, key):
        reason = f"key {key[:200]!r}: this {type(event).__name__} belongs under {address.key[:200]!r}"
        raise _UnreadRecord("another key", reason)
