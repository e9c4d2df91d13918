"""Targets that fail at one input each, to see that such a failure is found."""

import os
from collections.abc import Callable
from random import Random

from spillway_fuzz.target import Target, random_for_input

SEED, BAD = 1, 20
BLOCKS: list[bytearray] = []


def targets() -> list[Target]:
    return [_make_target(name, fail) for name, fail in FAILURES.items()]


def _make_target(name: str, fail: Callable[[], bool]) -> Target:
    bad = Random.random(random_for_input(SEED, name, BAD))
    return Target(name, Random.random, lambda given: given != bad or fail())


def _raise_error() -> bool:
    return bool(1 // 0)


def _hang_for_ever() -> bool:
    while True:
        pass


def _end_process() -> bool:
    os._exit(7)


def _grow_memory() -> bool:
    BLOCKS.append(bytearray(b"x") * (400 * 2**20))
    return True


def _grow_memory_without_end() -> bool:
    BLOCKS.append(bytearray(8 * 2**30))
    return True


FAILURES: dict[str, Callable[[], bool]] = {
    "raises": _raise_error,
    "hangs": _hang_for_ever,
    "dies": _end_process,
    "takes memory": _grow_memory,
    "takes all memory": _grow_memory_without_end,
}
