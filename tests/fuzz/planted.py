"""Targets that fail at one input each, to see that such a failure is found."""

import os
from collections.abc import Callable
from random import Random

from spillway_fuzz.target import Target, chance_of

SEED, BAD = 1, 20
BLOCKS: list[bytearray] = []


def targets() -> list[Target]:
    return [_target(name, fail) for name, fail in FAILURES.items()]


def _target(name: str, fail: Callable[[], bool]) -> Target:
    bad = Random.random(chance_of(SEED, name, BAD))
    return Target(name, Random.random, lambda given: given != bad or fail())


def _raise() -> bool:
    return bool(1 // 0)


def _hang() -> bool:
    while True:
        pass


def _die() -> bool:
    os._exit(7)


def _grow() -> bool:
    BLOCKS.append(bytearray(b"x") * (400 * 2**20))
    return True


def _grow_without_end() -> bool:
    BLOCKS.append(bytearray(8 * 2**30))
    return True


FAILURES: dict[str, Callable[[], bool]] = {
    "raises": _raise,
    "hangs": _hang,
    "dies": _die,
    "takes memory": _grow,
    "takes all memory": _grow_without_end,
}
