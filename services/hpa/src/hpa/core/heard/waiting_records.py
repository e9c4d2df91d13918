"""Holds the input records that the active instance has read and not decided on yet. Namespaces take turns. Pure.

A decision on one record may take some milliseconds. So a namespace with many records must not delay the others: each
namespace has one record decided on in turn, and none holds more places or bytes than it leaves free (docs/adr/0029).
What is beyond is dropped, but only values and backlogs: whoever measures them reports them again. Nobody publishes pods
or a declaration again, so these are never dropped.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from hpa.core.heard.heard_record import FORGETTING, HeardRecord
from hpa.core.heard.kept import record_memory_bytes
from spillway.events_scaling import BacklogObserved, LoadObserved
from spillway.places import leaves_as_much_free

ValueKey = tuple[object, ...]
"""The names of a value or backlog: of two with equal names, the later measurement replaces the earlier one."""


@dataclass(frozen=True, slots=True)
class WaitingBounds:
    """The bounds of all records that wait.

    records_max, bytes_max: the most records, and their most bytes in memory, as record_memory_bytes estimates them.
    for_each_free: the records (and bytes) that one namespace may hold for each free one.
    """

    records_max: int
    bytes_max: int
    for_each_free: float


class _Waiting(NamedTuple):
    heard: HeardRecord
    bytes: int
    value: ValueKey | None
    """None: this record is never dropped."""


class _NamespaceRecords:
    """The records of one namespace in the order of arrival, each under its number of arrival."""

    __slots__ = ("_newest", "_replaced", "_values", "bytes", "records")

    def __init__(self) -> None:
        self.records: OrderedDict[int, _Waiting] = OrderedDict()
        self.bytes = 0
        self._values: OrderedDict[int, None] = OrderedDict()
        self._newest: dict[ValueKey, int] = {}
        self._replaced: list[int] = []
        """A heap of values for which a newer one of equal names waits. It may name records that are gone."""

    @property
    def has_values(self) -> bool:
        return bool(self._values)

    def add_record(self, number: int, one: _Waiting) -> None:
        self.records[number] = one
        self.bytes += one.bytes
        if one.value is None:
            return
        self._values[number] = None
        known = self._newest.get(one.value)
        if known is None or self.records[known].heard.at_ms <= one.heard.at_ms:
            self._newest[one.value], replaced = number, known
        else:
            replaced = number
        if replaced is not None:
            heapq.heappush(self._replaced, replaced)

    def drop_oldest_value(self) -> _Waiting:
        """Removes and returns a value: the first to arrive of those that are replaced, or else of all."""
        return self.remove_record(self._replaced[0] if self._replaced else next(iter(self._values)))

    def remove_record(self, number: int) -> _Waiting:
        one = self.records.pop(number)
        self.bytes -= one.bytes
        if one.value is not None:
            del self._values[number]
            if self._newest.get(one.value) == number:
                del self._newest[one.value]
            while self._replaced and self._replaced[0] not in self._values:
                heapq.heappop(self._replaced)
        return one


class WaitingRecords:
    """The records that wait for a decision, and whose turn it is. bytes: those of all records."""

    def __init__(self, bounds: WaitingBounds) -> None:
        self.bytes = 0
        self._bounds = bounds
        self._turns: OrderedDict[str, _NamespaceRecords] = OrderedDict()
        """The namespaces with records. The first one has the turn."""
        self._count = 0
        self._number = 0

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """Returns whether no more records should be read. Only records that are never dropped fill it."""
        return self._count > self._bounds.records_max or self.bytes > self._bounds.bytes_max

    def add_records(self, records: Iterable[HeardRecord]) -> list[HeardRecord]:
        """Adds records in the order in which they were read. Returns the values that were dropped to make room."""
        dropped: list[HeardRecord] = []
        for heard in records:
            namespace = heard.workload[0]
            one = _Waiting(heard, record_memory_bytes(heard), _value_key_of(heard))
            own = self._turns.setdefault(namespace, _NamespaceRecords())
            own.add_record(self._number, one)
            self._number += 1
            self._count += 1
            self.bytes += one.bytes
            while own.has_values and self._holds_more_than_its_share(own):
                dropped.append(self._drop_value_of(namespace))
        return dropped + self._drop_values_until_there_is_room()

    def next_record(self) -> HeardRecord:
        """Returns the first record of the namespace whose turn it is. Raises StopIteration if none waits."""
        own = next(iter(self._turns.values()))
        return next(iter(own.records.values())).heard

    def remove_next_record(self) -> None:
        """Removes the record of next_record(), because it was decided on. The next namespace has the turn."""
        namespace, own = next(iter(self._turns.items()))
        self._note_removed(namespace, own.remove_record(next(iter(own.records))))
        self.pass_turn(namespace)

    def pass_turn(self, namespace: str) -> None:
        """Gives the turn to the next namespace. The records of this one stay, in their order."""
        if namespace in self._turns:
            self._turns.move_to_end(namespace)

    def remove_all_records(self) -> None:
        self._turns.clear()
        self._count = self.bytes = 0

    def _holds_more_than_its_share(self, own: _NamespaceRecords) -> bool:
        """Returns whether a namespace holds more records or bytes than it leaves free. One record is never too many."""
        bounds, records = self._bounds, len(own.records)
        if records <= 1:
            return False
        return not (
            leaves_as_much_free(records, self._count, 0, bounds.records_max, bounds.for_each_free)
            and leaves_as_much_free(own.bytes, self.bytes, 0, bounds.bytes_max, bounds.for_each_free)
        )

    def _drop_values_until_there_is_room(self) -> list[HeardRecord]:
        """Drops values of the namespaces that hold most. Returns them: none if there is room, or if no values wait."""
        dropped: list[HeardRecord] = []
        if not self.is_full:
            return dropped
        most = [(-self._part_of_room(own), name) for name, own in self._turns.items() if own.has_values]
        heapq.heapify(most)
        while most and self.is_full:
            _, namespace = most[0]
            own = self._turns[namespace]
            dropped.append(self._drop_value_of(namespace))
            if own.has_values:
                heapq.heapreplace(most, (-self._part_of_room(own), namespace))
            else:
                heapq.heappop(most)
        return dropped

    def _part_of_room(self, own: _NamespaceRecords) -> float:
        """Returns the part of all places, or of all bytes if that is larger, that a namespace holds."""
        return max(len(own.records) / self._bounds.records_max, own.bytes / self._bounds.bytes_max)

    def _drop_value_of(self, namespace: str) -> HeardRecord:
        one = self._turns[namespace].drop_oldest_value()
        self._note_removed(namespace, one)
        return one.heard

    def _note_removed(self, namespace: str, one: _Waiting) -> None:
        self._count -= 1
        self.bytes -= one.bytes
        if not self._turns[namespace].records:
            del self._turns[namespace]


def _value_key_of(heard: HeardRecord) -> ValueKey | None:
    """Returns the names of a value or backlog; None for a record that is never dropped.

    A report without a value has names of its own: it does not replace a value, which may still count.
    """
    event = heard.event
    if heard.topic not in FORGETTING:
        return None
    if isinstance(event, LoadObserved):
        names: ValueKey = (event.metric, event.object, event.series, event.cluster, event.pod)
        return heard.topic, heard.key, *names, bool(event.trouble)
    if isinstance(event, BacklogObserved):
        return heard.topic, heard.key, event.group, event.topic, bool(event.trouble)
    return heard.topic, heard.key  # A tombstone has no effect in these topics.
