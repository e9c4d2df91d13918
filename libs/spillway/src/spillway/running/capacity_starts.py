"""Where a service that starts must begin to read changes of capacity, by the blocks that it has read."""

from collections.abc import Callable

from spillway.addresses import CAPACITY_CHANGES
from spillway.bus import Offsets
from spillway.events import CapacityReported


class CapacityStarts:
    """Notes blocks as they are read up to the end of their topic."""

    def __init__(self) -> None:
        self._blocks: list[tuple[CapacityReported, int]] = []

    def note(self, block: CapacityReported, partition: int) -> None:
        self._blocks.append((block, partition))

    def take(self, epoch_of: Callable[[str], int]) -> Offsets:
        """From what the oldest block in effect, or of an epoch that may still be, is as of. epoch_of: of a cluster.

        A partition without a block is read from its end: nothing in it can be applied before a block comes.
        """
        starts: dict[tuple[str, int], int] = {}
        for block, partition in self._blocks:
            if block.epoch >= epoch_of(block.cluster):
                place = (CAPACITY_CHANGES.name, partition)
                starts[place] = min(starts.get(place, block.as_of_offset), block.as_of_offset)
        self._blocks.clear()
        return starts
