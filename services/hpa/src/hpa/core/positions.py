"""How far hpa has read its inputs, and how far its states say so. Pure.

A state says how far its partition was read: every record before that was decided on, for each workload of the
partition, in the same transaction or an earlier one. An hpa that starts reads the topics that forget from the highest
position of each partition. Others may report into a partition for whose workloads nothing is decided. No state would be
written then, so one is written once the positions lag.
"""

from collections.abc import Iterable, Mapping

from hpa.core.heard.heard import FORGETTING, INPUTS, Heard

Place = tuple[str, int]
"""Topic, partition."""


class Positions:
    """reached: the offset after the last record that was taken in. told: the highest position in any state, for topics
    that forget."""

    def __init__(self) -> None:
        self.reached: dict[Place, int] = {}
        self.told: dict[Place, int] = {}
        self._unseen_from: dict[Place, int] = {}

    def stand(self, positions: Iterable[tuple[Place, int]]) -> None:
        """Where the feeds stand, which may be beyond the last record that could be read."""
        self.reached.update(positions)

    def stand_behind(self, heard: Heard) -> None:
        self.reached[heard.topic, heard.partition] = heard.offset + 1

    def note(self, positions: Mapping[str, int]) -> None:
        """Takes the positions of a state: "topic/partition" → offset."""
        for name, offset in positions.items():
            topic, _, partition = name.rpartition("/")
            if topic in FORGETTING:
                place = (topic, int(partition))
                self.told[place] = max(self.told.get(place, 0), offset)

    def is_told(self, heard: Heard) -> bool:
        """Whether some state says that this record was decided on. If it had an effect, its own workload's state has
        it."""
        return heard.offset < self.told.get((heard.topic, heard.partition), 0)

    def wait_for(self, unseen: Iterable[Heard]) -> None:
        """These records are decided on later. Until all_seen() no position of a topic that forgets goes beyond them."""
        for heard in unseen:
            if heard.topic in FORGETTING:
                place = (heard.topic, heard.partition)
                self._unseen_from[place] = min(self._unseen_from.get(place, heard.offset), heard.offset)

    def all_seen(self) -> None:
        self._unseen_from.clear()

    def to_write(self, partition: int, unseen: Iterable[Heard] = ()) -> dict[str, int]:
        """The positions for a state that is written now. unseen: what is still to be decided on of its workload."""
        found = {f"{topic}/{partition}": self._position((topic, partition)) for topic in INPUTS}
        for heard in unseen:
            name = f"{heard.topic}/{heard.partition}"
            found[name] = min(found.get(name, heard.offset), heard.offset)
        self.note(found)
        return found

    def behind(self, behind_max: int) -> set[int]:
        """Partitions in which more than behind_max records were read since a state told a position."""
        return {place[1] for place, told in self.told.items() if self.reached.get(place, 0) - told > behind_max}

    def forget(self, partition: int) -> None:
        """Call it when no workload of the partition has a policy any more: its values are not needed."""
        for topic in FORGETTING:
            self.told.pop((topic, partition), None)

    def _position(self, place: Place) -> int:
        reached = self.reached.get(place, 0)
        return min(reached, self._unseen_from.get(place, reached))
