"""Shares a bounded number of places, for example of a queue: no holder has more places than it leaves free."""

from collections import Counter


def leaves_as_much_free(own: float, taken: float, asked: float, most: float, for_each_free: float = 1.0) -> bool:
    """Returns whether a holder that gets `asked` more has no more than it leaves free, times for_each_free.

    own: what it has now. taken: what all have now, it included. most: what there is, for example places or bytes.

    Source: dynamic thresholds of shared buffers, Choudhury and Hahne, 1998.
    """
    return own + asked <= for_each_free * (most - taken - asked)


def may_take_places(own: int, taken: int, asked: int, most: int, for_each_free: float) -> bool:
    """Returns whether a holder with `own` of the `taken` places may take `asked` more. There are `most` places.

    leaves_as_much_free() says how many a holder may have. Only a free place is needed for the first place of a holder,
    and for places that are taken while all are free.
    """
    if taken + asked > most:
        return False
    is_first = not own and asked == 1
    return is_first or not taken or leaves_as_much_free(own, taken, asked, most, for_each_free)


class SharedPlaces:
    """Places that holders take and give back one by one. most, for_each_free: as in may_take_places."""

    def __init__(self, most: int, for_each_free: float) -> None:
        self._most = most
        self._for_each_free = for_each_free
        self._taken = 0
        self._taken_by = Counter[str]()

    def take_place(self, holder: str) -> bool:
        """Takes a place for the holder and returns True. Returns False if the holder may have no further place now."""
        if not may_take_places(self._taken_by[holder], self._taken, 1, self._most, self._for_each_free):
            return False
        self._taken += 1
        self._taken_by[holder] += 1
        return True

    def give_back_place(self, holder: str) -> None:
        """Frees one place of the holder. A holder without a place takes no memory."""
        self._taken -= 1
        self._taken_by[holder] -= 1
        if not self._taken_by[holder]:
            del self._taken_by[holder]
