"""All that services write to the log, as text: keys, headers, events, and what is packed inside them."""

from collections.abc import Iterator

from spillway.addresses import TOPICS
from spillway.compressed_text import NotPacked, unpack_text
from spillway.dead_letters import StoredRecord
from spillway.local_bus import LocalBroker
from spillway.wire import decode_event

RECORDS_AT_ONCE = 1_000_000


class Listener:
    """Gives each record once."""

    def __init__(self, broker: LocalBroker) -> None:
        self._broker = broker
        self._read_to = dict.fromkeys(broker.end_offsets(TOPICS), 0)

    def texts_of_new_records(self) -> Iterator[str]:
        for (topic, partition), offset in self._read_to.items():
            if self._broker.end_offset(topic, partition) > offset:
                found, end = self._broker.read_records(topic, partition, offset, RECORDS_AT_ONCE)
                self._read_to[topic, partition] = end
                for one in found:
                    yield from _texts_of_record(one)


def _texts_of_record(stored: StoredRecord) -> Iterator[str]:
    yield f"{stored.key!r} {stored.headers!r} {stored.value!r}"
    if stored.value is not None:
        event = decode_event(stored.topic, dict(stored.headers)["ce_type"].decode(), stored.value)
        yield repr(event)
        for name in event.__dataclass_fields__:
            value = getattr(event, name)
            if isinstance(value, bytes) and value:
                yield unpacked_text(value)


def unpacked_text(value: bytes) -> str:
    """As it is, where it is not packed."""
    try:
        return unpack_text(value).decode(errors="replace")
    except NotPacked:
        return value.decode(errors="replace")
