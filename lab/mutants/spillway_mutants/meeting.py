"""Counts what the marks of places.py meet, in the process that runs seeds. Marked sources import it."""

from collections import Counter
from collections.abc import Callable
from typing import Any

_times = Counter[str]()


def count_meeting(mutant: str) -> None:
    """Called before the statement that the mutant changes."""
    _times[mutant] += 1


def evaluate_both(mutant: str, theirs: Callable[[], Any], its: Callable[[], Any]) -> Any:
    """The program's value; counts where the mutant's is another one, or only one of them ends with an error."""
    try:
        value = theirs()
    except BaseException:
        count_meeting(mutant)
        raise
    try:
        same = _is_equal(value, its())
    except Exception:  # Also of what cannot be compared, as arrays of several values.
        same = False
    if same is not True:  # Neither False nor an array.
        count_meeting(mutant)
    return value


def _is_equal(one: Any, other: Any) -> Any:
    if isinstance(one, bool) or isinstance(other, bool):  # Both are asked whether, and perhaps not by a bool.
        return bool(one) == bool(other)
    return type(one) is type(other) and _comparable_value(one) == _comparable_value(other)


def _comparable_value(value: Any) -> Any:
    """Of a mapping also the order."""
    return list(value.items()) if isinstance(value, dict) else value.tolist() if hasattr(value, "tolist") else value


def meetings_by_mutant() -> dict[str, int]:
    """By mutant, how often since the process began, or since the one that it was forked from did."""
    return dict(_times)
