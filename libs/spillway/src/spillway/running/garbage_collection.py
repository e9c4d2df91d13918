"""Controls Python's garbage collection: not during decisions, and never again over state that was read from the log."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

COLLECTED_AFTER = (700, 3, 33)
"""The thresholds for gc.set_threshold: objects, youngest collections, middle collections. Full collections are about as
rare as with Python's own (10, 10), but each middle collection walks a third as much."""
NEW_OBJECTS_MAX = 20_000
"""The most new objects of one step that wait for a collection, some megabytes. With more, a collection runs during the
step."""
ALL_SECONDS = 3600.0
"""The time until all objects that were set aside after full collections are walked once more."""


def set_aside_heap(loaded: bool) -> None:
    """Excludes the state that was read from the log from later collections.

    loaded: False before the next state is read.
    In a large fleet a full collection would walk this state for a tenth of a second or more, without answering
    meanwhile. It would find nothing, since a replaced value is freed by its last reference. With False everything is
    walked again.
    """
    if loaded:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECTED_AFTER)
    else:
        gc.unfreeze()


@contextmanager
def delayed_collections() -> Iterator[None]:
    """Delays collections until the end of a step, when its decisions are on their way into the log.

    Use it also for a service that answers nobody: most of its new objects are gone before they would be walked.
    """
    before = gc.get_threshold()
    gc.set_threshold(NEW_OBJECTS_MAX, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def survivors_set_aside(clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Excludes objects that survive a full collection from the next ones. It is for heaps that grow with the clusters.

    Each collection would walk all nodes and pods and answer nobody meanwhile. Nearly all of them are freed by their
    last reference. Excluded objects that die in a cycle wait for the first full collection after ALL_SECONDS.
    """
    all_looked_at = clock()

    def freeze_survivors(phase: str, info: Mapping[str, int]) -> None:
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
    gc.callbacks.append(freeze_survivors)
    try:
        yield
    finally:
        gc.callbacks.remove(freeze_survivors)
        gc.set_threshold(*before)
        gc.unfreeze()
