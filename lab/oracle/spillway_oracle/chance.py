"""Where choices come from: one generator of cases serves a seed and Hypothesis, which then can make a case smaller."""

import random
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")
PERCENT = 100


class Chance(Protocol):
    """The simplest comes first in every list of options, and no is simpler than yes."""

    def pick_integer(self, least: int, most: int) -> int:
        """One of least to most, both included."""

    def pick_option(self, options: Sequence[T]) -> T: ...

    def is_chosen(self, percent: int) -> bool: ...


class Seeded:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def pick_integer(self, least: int, most: int) -> int:
        return self._random.randint(least, most)

    def pick_option(self, options: Sequence[T]) -> T:
        return options[self._random.randrange(len(options))]

    def is_chosen(self, percent: int) -> bool:
        return self._random.randrange(PERCENT) >= PERCENT - percent


class Drawn:
    """draw: of a Hypothesis composite."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw

    def pick_integer(self, least: int, most: int) -> int:
        number: int = self._draw(st.integers(least, most))
        return number

    def pick_option(self, options: Sequence[T]) -> T:
        return options[self.pick_integer(0, len(options) - 1)]

    def is_chosen(self, percent: int) -> bool:
        return self.pick_integer(0, PERCENT - 1) >= PERCENT - percent


def pick_at_most(chance: Chance, options: Sequence[T], most: int) -> list[T]:
    """Up to `most` different ones of the options."""
    left = list(options)
    return [
        left.pop(chance.pick_integer(0, len(left) - 1)) for _ in range(chance.pick_integer(0, min(most, len(left))))
    ]


def pick_at_least_one(chance: Chance, options: Sequence[T], most: int) -> list[T]:
    """At least one."""
    return pick_at_most(chance, options, most) or [chance.pick_option(options)]
