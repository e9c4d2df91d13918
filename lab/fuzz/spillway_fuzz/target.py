"""Defines a target of fuzzing: a function that makes an input from a Random, and a function that takes the input."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

Input = Any
"""An input of literals only (bytes, texts, numbers, tuples), so that it can be saved as text and read again."""


@dataclass(frozen=True, slots=True)
class Target:
    """One target of fuzzing.

    make: returns an input.
    run: takes an input. Returns True if it was accepted, False if it was properly refused. Any exception is a defect.
    share: the target's part of all inputs, in relation to the other targets' shares.
    close: called after the last input.
    """

    name: str
    make: Callable[[Random], Input]
    run: Callable[[Input], bool]
    share: int = 10
    close: Callable[[], None] = lambda: None


def random_for_input(seed: int, target: str, number: int) -> Random:
    """Returns the Random of one input, so that each input depends only on seed, target and number."""
    return Random(f"{seed}:{target}:{number}")


def acceptance_check(read: Callable[[Input], object], *refusals: type[Exception]) -> Callable[[Input], bool]:
    """Returns a target's `run`: an input is accepted if `read` returns, and refused if it raises one of `refusals`."""

    def is_accepted(given: Input) -> bool:
        try:
            read(given)
        except refusals:
            return False
        return True

    return is_accepted


def inputs_by_target(targets: Sequence[Target], inputs: int) -> dict[str, int]:
    """Returns the number of inputs of each target by its share, and at least 1."""
    shares = sum(target.share for target in targets)
    return {target.name: max(1, inputs * target.share // shares) for target in targets}
