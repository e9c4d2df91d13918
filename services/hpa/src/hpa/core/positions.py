"""Keeps the offsets up to which hpa has read its input topics, and the offsets that its written states contain. Pure.

Namespaces take turns (core/heard/waiting_records.py), so records of a partition are not decided on in its order. Those
of one namespace are. So a state holds two offsets for its partition of a topic with retention:

- of the partition: all records before it were decided on or dropped, for each workload of the partition, in the same
  transaction or an earlier one. When hpa starts, it reads from the highest such offset of each partition.
- of its own namespace, where that is later: no record of its workload before it is decided on again.

Other services may report values into a partition in which no workload needs a decision. Then no state would be written.
So a state is written as soon as the written offsets lag too far behind.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from hpa.core.heard.heard_record import FORGETTING, INPUTS, HeardRecord, own_place_name

Place = tuple[str, int]
"""Topic, partition."""
Of = TypeVar("Of", bound=Hashable)


class _WaitingOffsets(dict[Of, "OrderedDict[int, None]"], Generic[Of]):
    """The offsets of records that wait, in rising order: by partition, or by namespace and partition."""

    def add_offset(self, of: Of, offset: int) -> None:
        self.setdefault(of, OrderedDict())[offset] = None

    def remove_offset(self, of: Of, offset: int) -> None:
        waiting = self.get(of)
        if waiting is not None:
            waiting.pop(offset, None)
            if not waiting:
                del self[of]

    def first_offset(self, of: Of, otherwise: int) -> int:
        """Returns the lowest offset that waits, at most `otherwise`."""
        waiting = self.get(of)
        return otherwise if waiting is None else min(otherwise, next(iter(waiting)))


class Positions:
    """The positions of the input topics.

    reached: for each partition, the offset after the last record that was applied, was dropped, or waits.
    told: for each partition of a topic with retention, the highest offset in any written state.
    """

    def __init__(self) -> None:
        self.reached: dict[Place, int] = {}
        self.told: dict[Place, int] = {}
        self._unseen_from: dict[Place, int] = {}
        self._waiting: _WaitingOffsets[Place] = _WaitingOffsets()
        self._waiting_in_namespace: _WaitingOffsets[tuple[str, Place]] = _WaitingOffsets()

    def note_reached_offsets(self, positions: Iterable[tuple[Place, int]]) -> None:
        """Sets the offset up to which each partition was read. Transaction markers may lie before it, after the last
        record."""
        self.reached.update(positions)

    def note_waiting_record(self, heard: HeardRecord) -> None:
        """Notes that a record was read in the turn and waits. Records of one partition come in the order of the log."""
        place = (heard.topic, heard.partition)
        self._waiting.add_offset(place, heard.offset)
        self._waiting_in_namespace.add_offset((heard.workload[0], place), heard.offset)
        self._note_read_record(heard)

    def note_dropped_records(self, dropped: Iterable[HeardRecord]) -> None:
        """Notes that records that waited were dropped: positions may pass them."""
        for heard in dropped:
            self._end_wait(heard)

    def note_applied_record(self, heard: HeardRecord) -> None:
        """Notes that a record was applied. The read offset never goes back: later records may have been applied."""
        self._note_read_record(heard)
        if self._waiting:
            self._end_wait(heard)

    def _note_read_record(self, heard: HeardRecord) -> None:
        place = (heard.topic, heard.partition)
        self.reached[place] = max(self.reached.get(place, 0), heard.offset + 1)

    def _end_wait(self, heard: HeardRecord) -> None:
        place = (heard.topic, heard.partition)
        self._waiting.remove_offset(place, heard.offset)
        self._waiting_in_namespace.remove_offset((heard.workload[0], place), heard.offset)

    def note_written_offsets(self, positions: Mapping[str, int]) -> None:
        """Takes over a written state's offsets of topics with retention. The keys have the form "topic/partition"."""
        for name, offset in positions.items():
            topic, _, partition = name.rpartition("/")
            if topic in FORGETTING:
                place = (topic, int(partition))
                self.told[place] = max(self.told.get(place, 0), offset)

    def is_in_written_state(self, heard: HeardRecord) -> bool:
        """Returns whether a written state shows that this record was decided on.

        The effect of the record, if there was one, is in the state of its own workload.
        """
        return heard.offset < self.told.get((heard.topic, heard.partition), 0)

    def mark_undecided_records(self, unseen: Iterable[HeardRecord]) -> None:
        """Marks records that were read but are not decided on yet.

        Until clear_undecided_marks(), the stored offset of their topic stays before them. So a restart reads them
        again.
        """
        for heard in unseen:
            if heard.topic in FORGETTING:
                place = (heard.topic, heard.partition)
                self._unseen_from[place] = min(self._unseen_from.get(place, heard.offset), heard.offset)

    def clear_undecided_marks(self) -> None:
        """Removes the marks of mark_undecided_records(), because all these records were decided on."""
        self._unseen_from.clear()

    def offsets_to_write(self, namespace: str, partition: int, unseen: Iterable[HeardRecord] = ()) -> dict[str, int]:
        """Returns the offsets of each input topic, for the state of a workload that is written now.

        partition: that of the workload. unseen: its records that are not decided on yet, from before the turn.
        """
        left: dict[Place, int] = {}
        for heard in unseen:
            place = (heard.topic, heard.partition)
            left[place] = min(left.get(place, heard.offset), heard.offset)
        found: dict[str, int] = {}
        for topic in INPUTS:
            place, name = (topic, partition), f"{topic}/{partition}"
            own = self._waiting_in_namespace.first_offset((namespace, place), self.reached.get(place, 0))
            own = min(own, left.pop(place, own))
            found[name] = min(own, self._first_undecided_position(place)) if topic in FORGETTING else own
            if found[name] < own:
                found[own_place_name(name)] = own
        found.update({f"{topic}/{other}": offset for (topic, other), offset in left.items()})
        self.note_written_offsets(found)
        return found

    def partitions_behind(self, behind_max: int) -> set[int]:
        """Returns the partitions in which more than behind_max records were decided on after the highest written
        offset, before the first one that waits."""
        return {
            place[1] for place, told in self.told.items() if self._first_undecided_position(place) - told > behind_max
        }

    def forget_partition(self, partition: int) -> None:
        """Removes the written offset of a partition in which no workload has a policy: nobody needs its values."""
        for topic in FORGETTING:
            self.told.pop((topic, partition), None)

    def _first_undecided_position(self, place: Place) -> int:
        first = self._waiting.first_offset(place, self.reached.get(place, 0))
        return min(first, self._unseen_from.get(place, first))
