"""Keeps the offsets up to which hpa has read its input topics, and the offsets that its written states contain. Pure.

Each state holds one offset for its partition. All records before that offset were decided on, for each workload of the
partition, in the same transaction or an earlier one. When hpa starts, it reads the topics with retention from the
highest such offset of each partition. Other services may report values into a partition in which no workload needs a
decision. Then no state would be written. So a state is written as soon as the written offsets lag too far behind.
"""

from collections.abc import Iterable, Mapping

from hpa.core.heard.heard_record import FORGETTING, INPUTS, HeardRecord

Place = tuple[str, int]
"""Topic, partition."""


class Positions:
    """The positions of the input topics.

    reached: for each partition, the offset after the last record that was applied.
    told: for each partition of a topic with retention, the highest offset in any written state.
    """

    def __init__(self) -> None:
        self.reached: dict[Place, int] = {}
        self.told: dict[Place, int] = {}
        self._unseen_from: dict[Place, int] = {}

    def note_reached_offsets(self, positions: Iterable[tuple[Place, int]]) -> None:
        """Sets the offset up to which each partition was read. Transaction markers may lie before it, after the last
        record."""
        self.reached.update(positions)

    def note_applied_record(self, heard: HeardRecord) -> None:
        """Sets the read offset of the record's partition to the offset after this record, because it was applied."""
        self.reached[heard.topic, heard.partition] = heard.offset + 1

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

    def offsets_to_write(self, partition: int, unseen: Iterable[HeardRecord] = ()) -> dict[str, int]:
        """Returns the offset of each input topic in this partition, for a state that is written now.

        unseen: records of the state's workload that are not decided on yet.
        """
        found = {f"{topic}/{partition}": self._first_undecided_position((topic, partition)) for topic in INPUTS}
        for heard in unseen:
            name = f"{heard.topic}/{heard.partition}"
            found[name] = min(found.get(name, heard.offset), heard.offset)
        self.note_written_offsets(found)
        return found

    def partitions_behind(self, behind_max: int) -> set[int]:
        """Returns the partitions in which more than behind_max records were read after the highest written offset."""
        return {place[1] for place, told in self.told.items() if self.reached.get(place, 0) - told > behind_max}

    def forget_partition(self, partition: int) -> None:
        """Removes the written offset of a partition in which no workload has a policy: nobody needs its values."""
        for topic in FORGETTING:
            self.told.pop((topic, partition), None)

    def _first_undecided_position(self, place: Place) -> int:
        reached = self.reached.get(place, 0)
        return min(reached, self._unseen_from.get(place, reached))
