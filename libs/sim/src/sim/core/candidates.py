"""Nodes that fit a shape, in the order in which the scheduler would take them."""

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Protocol


class Candidates(Protocol):
    def put_slot(self, slot: int, score: int) -> None: ...

    def discard_slot(self, slot: int) -> None: ...

    def slots_in_order(self) -> Iterator[int]:
        """Yields all slots, best first. The reader stops at the first one that is good enough."""
        ...


class BestFirst:
    """Orders by score; among equal scores the lowest slot comes first."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._score_by_slot: dict[int, int] = {}

    def put_slot(self, slot: int, score: int) -> None:
        if self._score_by_slot.get(slot) == score:
            return
        self._score_by_slot[slot] = score
        heappush(self._heap, (-score, slot))
        # The slot's old entry stays in the heap, so the heap is rebuilt once most of its entries are old.
        if len(self._heap) > 4 * len(self._score_by_slot) + 64:
            self._heap = [(-known, place) for place, known in self._score_by_slot.items()]
            heapify(self._heap)

    def discard_slot(self, slot: int) -> None:
        self._score_by_slot.pop(slot, None)

    def slots_in_order(self) -> Iterator[int]:
        seen: set[int] = set()
        popped: list[tuple[int, int]] = []
        try:
            while self._heap:
                negative, slot = entry = heappop(self._heap)
                if self._score_by_slot.get(slot) != -negative or slot in seen:
                    continue
                popped.append(entry)
                seen.add(slot)
                yield slot
        finally:
            for entry in popped:
                heappush(self._heap, entry)


class AnyOrder:
    """Orders uniformly at random."""

    def __init__(self, below: Callable[[int], int]) -> None:
        self._below = below
        self._slots: list[int] = []
        self._place_by_slot: dict[int, int] = {}

    def put_slot(self, slot: int, score: int) -> None:
        if slot not in self._place_by_slot:
            self._place_by_slot[slot] = len(self._slots)
            self._slots.append(slot)

    def discard_slot(self, slot: int) -> None:
        place = self._place_by_slot.pop(slot, None)
        if place is None:
            return
        last = self._slots.pop()
        if last != slot:
            self._slots[place] = last
            self._place_by_slot[last] = place

    def slots_in_order(self) -> Iterator[int]:
        for chosen in range(len(self._slots)):
            self._swap_slots(chosen, chosen + self._below(len(self._slots) - chosen))
            yield self._slots[chosen]

    def _swap_slots(self, one: int, other: int) -> None:
        slots = self._slots
        slots[one], slots[other] = slots[other], slots[one]
        self._place_by_slot[slots[one]] = one
        self._place_by_slot[slots[other]] = other
