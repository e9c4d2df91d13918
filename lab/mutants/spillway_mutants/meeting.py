"""Counts what the marks of places.py meet, in the process that runs seeds. Marked sources import it."""

from collections import Counter
from collections.abc import Callable
from typing import Any

_times = Counter[str]()


def count_meeting(mutant: str) -> None:
    """Called before the statement that the mutant changes."""
    _times[mutant] += 1


def evaluate_both(mutant: str, theirs: Callable[[], Any], its: Callable[[], Any]) -> Any:
    """Returns the program's value. Counts a meeting if the mutant's value differs, or only one of them raises."""
    try:
        value = theirs()
    except BaseException:
        count_meeting(mutant)
        raise
    try:
        same = _is_equal(value, its())
    except Exception:  # Values that cannot be compared, as arrays, raise, too.
        same = False
    if same is not True:  # Not for False, nor for an array.
        count_meeting(mutant)
    return value


def _is_equal(one: Any, other: Any) -> Any:
    if isinstance(one, bool) or isinstance(other, bool):  # Both are conditions; one may be no bool.
        return bool(one) == bool(other)
    return type(one) is type(other) and _comparable_value(one) == _comparable_value(other)


def _comparable_value(value: Any) -> Any:
    """Returns a value that `==` can compare. For a dict the order of its items counts, too."""
    return list(value.items()) if isinstance(value, dict) else value.tolist() if hasattr(value, "tolist") else value


def meetings_by_mutant() -> dict[str, int]:
    """Returns the number of meetings of each mutant, since this process or its forked parent began."""
    return dict(_times)
