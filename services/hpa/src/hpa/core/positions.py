"""How far hpa has read its inputs, and how far its states say so. Pure.

A state says how far its partition was read: all before was decided on, for every workload of it, in its transaction or
an earlier one. Who starts reads the topics that forget from the highest position of each partition. Where others report
into a partition and nothing is decided for its workloads, no state would follow; so one is written once they lag.
"""

from collections.abc import Iterable, Mapping

from hpa.core.heard.heard import FORGETTING, INPUTS, Heard

Place = tuple[str, int]
"""Topic, partition."""


class Positions:
    """reached: behind the last record that was taken in. told: of topics that forget, the highest in any state."""

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
        """As a state has them: (topic/partition) → offset."""
        for name, offset in positions.items():
            topic, _, partition = name.rpartition("/")
            if topic in FORGETTING:
                place = (topic, int(partition))
                self.told[place] = max(self.told.get(place, 0), offset)

    def is_told(self, heard: Heard) -> bool:
        """Some state says that it was decided on, if it had any effect; so it stands in its own workload's state."""
        return heard.offset < self.told.get((heard.topic, heard.partition), 0)

    def wait_for(self, unseen: Iterable[Heard]) -> None:
        """These are decided on later: until all_seen, no position of a topic that forgets goes beyond them."""
        for heard in unseen:
            if heard.topic in FORGETTING:
                place = (heard.topic, heard.partition)
                self._unseen_from[place] = min(self._unseen_from.get(place, heard.offset), heard.offset)

    def all_seen(self) -> None:
        self._unseen_from.clear()

    def to_write(self, partition: int) -> dict[str, int]:
        """For a state that is written now."""
        found = {f"{topic}/{partition}": self._position((topic, partition)) for topic in INPUTS}
        self.note(found)
        return found

    def behind(self, behind_max: int) -> set[int]:
        """Partitions in which more records were read than that since a state said how far."""
        return {place[1] for place, told in self.told.items() if self.reached.get(place, 0) - told > behind_max}

    def forget(self, partition: int) -> None:
        """No workload in it has a policy: nobody needs its values."""
        for topic in FORGETTING:
            self.told.pop((topic, partition), None)

    def _position(self, place: Place) -> int:
        reached = self.reached.get(place, 0)
        return min(reached, self._unseen_from.get(place, reached))
