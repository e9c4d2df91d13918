"""Keeps the input records that a standby has read and the active instance has not decided on yet. Pure."""

from collections.abc import Collection
from typing import Final

from hpa.core.heard.heard_record import FORGETTING, HeardRecord
from hpa.core.heard.kept import record_memory_bytes
from hpa.core.positions import Positions
from hpa.core.scaled import ScaledWorkload

UNSEEN_LOOK: Final = 1_000
"""After each so many unseen records of one workload, a standby drops those that were decided on."""


class UnseenRecords:
    """Adds records to ScaledWorkload.unseen, and limits the memory that the records of all workloads take together.

    positions: the offsets in written states, which show which records were decided on.
    bytes_max: the most bytes of all records, as record_memory_bytes estimates them.
    """

    def __init__(self, positions: Positions, bytes_max: int) -> None:
        self._positions = positions
        self._bytes_max = bytes_max
        self._look_at = bytes_max
        self._bytes = 0
        """The bytes of all kept records, or more: records dropped since the last full count may be included."""

    def keep_record(self, scaled: ScaledWorkload, heard: HeardRecord, every: Collection[ScaledWorkload]) -> int:
        """Keeps a record of a workload. Returns how many values were dropped because all take too many bytes.

        every: all workloads with a policy.
        """
        scaled.unseen.append(heard)
        self._bytes += record_memory_bytes(heard)
        if len(scaled.unseen) % UNSEEN_LOOK == 0:
            self._drop_records_in_written_state(scaled)
        return self._limit_kept_bytes(every) if self._bytes > self._look_at else 0

    def release_records(self, scaled: ScaledWorkload) -> list[HeardRecord]:
        """Removes and returns all unseen records of a workload."""
        released, scaled.unseen = scaled.unseen, []
        self._bytes -= sum(map(record_memory_bytes, released))
        return released

    def _limit_kept_bytes(self, every: Collection[ScaledWorkload]) -> int:
        """Drops records that were decided on. If that is not enough, drops the oldest values of the largest workloads.

        Half of the bound is free afterwards, so that all records are counted again only after many more.
        """
        by_key = {scaled.key: scaled for scaled in every if scaled.unseen}
        for scaled in by_key.values():
            self._drop_records_in_written_state(scaled)
        sizes = {key: sum(map(record_memory_bytes, scaled.unseen)) for key, scaled in by_key.items()}
        dropped, most = 0, self._bytes_max // 2
        total = sum(sizes.values())
        while total > most and sizes:
            key = max(sizes, key=sizes.__getitem__)
            gone = _places_of_oldest_values(by_key[key].unseen)
            if gone:
                by_key[key].unseen = [one for number, one in enumerate(by_key[key].unseen) if number not in gone]
                left = sum(map(record_memory_bytes, by_key[key].unseen))
                total, sizes[key] = total - sizes[key] + left, left
                dropped += len(gone)
            else:  # Pods and declarations stay, because nobody publishes them again.
                del sizes[key]
        self._bytes, self._look_at = total, max(self._bytes_max, 2 * total)
        return dropped

    def _drop_records_in_written_state(self, scaled: ScaledWorkload) -> None:
        scaled.unseen = [one for one in scaled.unseen if not self._positions.is_in_written_state(one)]


def _places_of_oldest_values(unseen: list[HeardRecord]) -> frozenset[int]:
    """Returns the places of the older half of the values and backlogs among these records."""
    places = [number for number, one in enumerate(unseen) if one.topic in FORGETTING]
    return frozenset(places[: (len(places) + 1) // 2])
