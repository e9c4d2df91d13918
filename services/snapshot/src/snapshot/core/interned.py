"""Stores equal values once for as long as they are in use, to save memory."""

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class InternedValues(Generic[T]):
    """Keeps one object for all equal values, with the number of its uses. A value without uses is forgotten."""

    def __init__(self) -> None:
        self._uses: dict[T, tuple[T, int]] = {}

    def intern_value(self, value: T) -> T:
        """Returns the kept object that equals this value, and counts one more use of it."""
        kept, uses = self._uses.get(value, (value, 0))
        self._uses[kept] = (kept, uses + 1)
        return kept

    def release_value(self, value: T) -> None:
        """Counts one use of the value less, and forgets it when it has no more uses."""
        kept, uses = self._uses[value]
        if uses == 1:
            del self._uses[value]
        else:
            self._uses[kept] = (kept, uses - 1)

    def __len__(self) -> int:
        return len(self._uses)
