"""What is fuzzed: how an input is made of a Random, and what takes it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

Input = Any
"""Of literals alone, so that it can be written down and read again: bytes, texts, numbers, tuples."""


@dataclass(frozen=True, slots=True)
class Target:
    """make: an input. run: True when it was accepted, False when it was refused in the way that is foreseen; whatever
    it raises is a defect. share: of all inputs, beside the other targets' shares. close: after the last input.
    """

    name: str
    make: Callable[[Random], Input]
    run: Callable[[Input], bool]
    share: int = 10
    close: Callable[[], None] = lambda: None


def random_for_input(seed: int, target: str, number: int) -> Random:
    """By which the input of this number is made, whatever came before."""
    return Random(f"{seed}:{target}:{number}")


def acceptance_check(read: Callable[[Input], object], *refusals: type[Exception]) -> Callable[[Input], bool]:
    """A target's run: accepted where read returns, refused where it raises one of these."""

    def is_accepted(given: Input) -> bool:
        try:
            read(given)
        except refusals:
            return False
        return True

    return is_accepted


def inputs_by_target(targets: Sequence[Target], inputs: int) -> dict[str, int]:
    """Inputs by target, at least one each, by their shares."""
    shares = sum(target.share for target in targets)
    return {target.name: max(1, inputs * target.share // shares) for target in targets}
