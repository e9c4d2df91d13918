"""When Python looks for garbage: not while something is decided, and never again through what was read from the log."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

COLLECTED_AFTER = (700, 3, 33)
"""As gc.set_threshold: objects, collections of the youngest, and of those next to them. Full ones are as seldom as by
Python's own (10, 10), but of what is next to the youngest a third is looked at at a time.
"""
NEW_OBJECTS_MAX = 20_000
"""Of what came in one step so many wait to be looked at, some megabytes: then that is due in the midst of it."""
ALL_SECONDS = 3600.0
"""Of what was set aside after each full collection: until all of it is looked at once more."""


def set_aside_heap(loaded: bool) -> None:
    """What was read from the log stays for as long as this state: no later collection walks it again.

    Each full one would, for a tenth of a second and more on a big fleet, in which nobody is answered; and finds none of
    it, since what is replaced there is freed by its last reference. Before the next state is read, all is looked at.
    """
    if loaded:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECTED_AFTER)
    else:
        gc.unfreeze()


@contextmanager
def uncollected() -> Iterator[None]:
    """A step: what of it is due to be looked at is right after it, while what it decided is on its way into the log.

    Also all that a service does which answers nobody: most of what it makes is gone before it is due to be looked at.
    """
    before = gc.get_threshold()
    gc.set_threshold(NEW_OBJECTS_MAX, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def survivors_set_aside(clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """What outlives a full collection is not walked by the next one: for a heap that grows by what clusters have.

    Each would walk all that is known of every node and pod, while nobody is answered; nearly all of it is freed by its
    last reference. What was set aside and then died in a cycle waits for the first full one after ALL_SECONDS.
    """
    all_looked_at = clock()

    def look(phase: str, info: Mapping[str, int]) -> None:
        nonlocal all_looked_at
        if info["generation"] != 2:
            return
        if phase == "stop":
            gc.freeze()
        elif clock() - all_looked_at >= ALL_SECONDS:
            all_looked_at = clock()
            gc.unfreeze()

    before = gc.get_threshold()
    gc.set_threshold(*COLLECTED_AFTER)
    gc.callbacks.append(look)
    try:
        yield
    finally:
        gc.callbacks.remove(look)
        gc.set_threshold(*before)
        gc.unfreeze()
