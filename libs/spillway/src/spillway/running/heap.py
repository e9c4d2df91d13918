"""When Python looks for garbage: not while something is decided, and never again through what was read from the log."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

COLLECTED_AFTER = (700, 3, 33)
"""As gc.set_threshold: objects, collections of the youngest, and of those next to them. Full ones are as seldom as by
Python's own (10, 10), but of what is next to the youngest a third is looked at at a time.
"""
NEW_OBJECTS_MAX = 20_000
"""Of what came in one step so many wait to be looked at, some megabytes: then that is due in the midst of it."""


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
    """A step: what of it is due to be looked at is right after it, while what it decided is on its way into the log."""
    before = gc.get_threshold()
    gc.set_threshold(NEW_OBJECTS_MAX, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
