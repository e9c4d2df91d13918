"""Finds the offsets at which a starting service begins to read capacity changes, from the blocks that it has read."""

from collections.abc import Callable

from spillway.addresses import CAPACITY_CHANGES
from spillway.bus import Offsets
from spillway.events import CapacityReported


class CapacityStarts:
    """Collects the blocks of the capacity topic while they are read to its end."""

    def __init__(self) -> None:
        self._blocks: list[tuple[CapacityReported, int]] = []

    def note_block(self, block: CapacityReported, partition: int) -> None:
        self._blocks.append((block, partition))

    def take_start_offsets(self, epoch_of: Callable[[str], int]) -> Offsets:
        """Returns, by partition, the oldest as_of_offset of blocks whose epoch is in effect or may still take effect.

        epoch_of: returns the epoch of a cluster. A partition without a block is read from its end: nothing in it can be
        applied before a block comes.
        """
        starts: dict[tuple[str, int], int] = {}
        for block, partition in self._blocks:
            if block.epoch >= epoch_of(block.cluster):
                place = (CAPACITY_CHANGES.name, partition)
                starts[place] = min(starts.get(place, block.as_of_offset), block.as_of_offset)
        self._blocks.clear()
        return starts
