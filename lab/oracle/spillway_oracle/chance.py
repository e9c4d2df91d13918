"""Sources of choices. So one generator of cases works from a seed and from Hypothesis, which can shrink a case."""

import random
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")
PERCENT = 100


class Chance(Protocol):
    """A source of choices. In every list the simplest option comes first, and False is simpler than True."""

    def pick_integer(self, least: int, most: int) -> int:
        """Returns an integer from least to most, both included."""

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
    """Choices that Hypothesis draws. draw: the argument of a Hypothesis composite."""

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
    """Returns from 0 to `most` different options."""
    left = list(options)
    return [
        left.pop(chance.pick_integer(0, len(left) - 1)) for _ in range(chance.pick_integer(0, min(most, len(left))))
    ]


def pick_at_least_one(chance: Chance, options: Sequence[T], most: int) -> list[T]:
    """Returns from 1 to `most` different options."""
    return pick_at_most(chance, options, most) or [chance.pick_option(options)]
