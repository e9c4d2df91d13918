"""Keeps the positions up to which hpa has read its inputs, and up to which its states have them. Pure.

A state has a position for its partition. Every record before it was decided on, for each workload of the partition, in
the same transaction or an earlier one. When hpa starts, it reads the topics that forget from the highest position of
each partition. Others may report into a partition without any workload to decide for. No state would be written then.
So one is written once the positions lag.
"""

from collections.abc import Iterable, Mapping

from hpa.core.heard.heard import FORGETTING, INPUTS, HeardRecord

Place = tuple[str, int]
"""Topic, partition."""


class Positions:
    """The positions of the inputs.

    reached: the offset after the last record that was applied.
    told: the highest position in any state, for topics that forget.
    """

    def __init__(self) -> None:
        self.reached: dict[Place, int] = {}
        self.told: dict[Place, int] = {}
        self._unseen_from: dict[Place, int] = {}

    def stand(self, positions: Iterable[tuple[Place, int]]) -> None:
        """Notes the positions of the feeds, which may be beyond the last readable record."""
        self.reached.update(positions)

    def stand_behind(self, heard: HeardRecord) -> None:
        """Notes that this record was applied."""
        self.reached[heard.topic, heard.partition] = heard.offset + 1

    def note(self, positions: Mapping[str, int]) -> None:
        """Takes the positions of a state: "topic/partition" → offset."""
        for name, offset in positions.items():
            topic, _, partition = name.rpartition("/")
            if topic in FORGETTING:
                place = (topic, int(partition))
                self.told[place] = max(self.told.get(place, 0), offset)

    def is_told(self, heard: HeardRecord) -> bool:
        """Returns whether some state says that this record was decided on.

        Its own workload's state has its effect, if any.
        """
        return heard.offset < self.told.get((heard.topic, heard.partition), 0)

    def wait_for(self, unseen: Iterable[HeardRecord]) -> None:
        """Notes records that are decided on later.

        No position of a topic that forgets passes them before all_seen().
        """
        for heard in unseen:
            if heard.topic in FORGETTING:
                place = (heard.topic, heard.partition)
                self._unseen_from[place] = min(self._unseen_from.get(place, heard.offset), heard.offset)

    def all_seen(self) -> None:
        """Notes that all records given to wait_for() were decided on."""
        self._unseen_from.clear()

    def to_write(self, partition: int, unseen: Iterable[HeardRecord] = ()) -> dict[str, int]:
        """Returns the positions for a state that is written now.

        unseen: records of its workload that are not decided on yet.
        """
        found = {f"{topic}/{partition}": self._position((topic, partition)) for topic in INPUTS}
        for heard in unseen:
            name = f"{heard.topic}/{heard.partition}"
            found[name] = min(found.get(name, heard.offset), heard.offset)
        self.note(found)
        return found

    def behind(self, behind_max: int) -> set[int]:
        """Returns the partitions in which more than behind_max records were read since a state had a position."""
        return {place[1] for place, told in self.told.items() if self.reached.get(place, 0) - told > behind_max}

    def forget(self, partition: int) -> None:
        """Forgets a partition in which no workload has a policy any more, because nobody needs its values."""
        for topic in FORGETTING:
            self.told.pop((topic, partition), None)

    def _position(self, place: Place) -> int:
        reached = self.reached.get(place, 0)
        return min(reached, self._unseen_from.get(place, reached))
