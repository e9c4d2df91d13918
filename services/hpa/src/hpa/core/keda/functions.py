"""Implements the functions that formulas may call. Pure.

Source: expr-lang/expr v1, builtin. One half is rounded away from zero.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from hpa.core.kubernetes.go_numbers import INT64_MAX, INT64_MIN, ceiling

MANY: Final = 64


class ExpressionFailed(Exception):
    """Raised when no value can be computed from the given values."""


class Function(Struct, frozen=True):
    """A function of the language.

    apply: computes the result from the arguments' values.
    least, most: the smallest and the largest number of arguments.
    kind: the type of its result; "" for the type of its arguments.
    predicate: it may have a predicate in braces.
    """

    apply: Callable[[list[Any]], Any]
    least: int = 1
    most: int = 1
    kind: str = ""
    predicate: bool = False


def flatten_numbers(values: Sequence[Any]) -> list[float]:
    """Returns all numbers of arguments that may be arrays. Raises ExpressionFailed for any other value."""
    found: list[float] = []
    for value in values:
        if isinstance(value, list):
            found += flatten_numbers(value)
        elif isinstance(value, bool) or not isinstance(value, int | float):
            raise ExpressionFailed(f"expected numbers, not {'nil' if value is None else value}")
        else:
            found.append(value)
    return found


def _single_number(values: Sequence[Any]) -> float:
    numbers = flatten_numbers(values)
    if len(numbers) != 1:
        raise ExpressionFailed(f"expected one number, not {len(numbers)}")
    return numbers[0]


def _nonempty_numbers(values: Sequence[Any]) -> list[float]:
    numbers = flatten_numbers(values)
    if not numbers:
        raise ExpressionFailed("expected at least one number")
    return numbers


def _median(values: list[Any]) -> float:
    numbers = sorted(flatten_numbers(values))
    if not numbers:
        return 0.0
    middle = len(numbers) // 2
    return float(numbers[middle]) if len(numbers) % 2 else (numbers[middle - 1] + numbers[middle]) / 2


def _mean(values: list[Any]) -> float:
    numbers = flatten_numbers(values)
    return _sum_in_order(numbers) / len(numbers) if numbers else 0.0


def _sum_in_order(numbers: Sequence[float]) -> float:
    """Returns the sum, added one after the other, because sum() of Python 3.12 rounds differently."""
    total: float = 0
    for number in numbers:
        total += number
    return total


def _count_true_elements(values: list[Any]) -> int:
    if not isinstance(values[0], list):
        raise ExpressionFailed("expected an array")
    return sum(1 for element in values[0] if (values[1](element) if len(values) > 1 else element is True))


def _whole_number_in_64_bits(value: float) -> int:
    if not INT64_MIN <= value <= INT64_MAX:
        raise ExpressionFailed(f"expected a number that can be whole, in 64 bits, not {value}")
    return int(value)


def _rounded_half_away(value: float) -> float:
    away = math.floor(abs(value) + 0.5) if math.isfinite(value) else abs(value)
    if math.isfinite(value) and abs(value) + 0.5 - away == 0 and abs(value) % 1 < 0.5:
        away -= 1  # The addition above may round up a value just under one half.
    return math.copysign(away, value)


FUNCTIONS: Final[Mapping[str, Function]] = {
    "abs": Function(lambda values: abs(_single_number(values))),
    "ceil": Function(lambda values: ceiling(_single_number(values)), kind="float"),
    "floor": Function(lambda values: -ceiling(-_single_number(values)), kind="float"),
    "round": Function(lambda values: _rounded_half_away(_single_number(values)), kind="float"),
    "int": Function(lambda values: _whole_number_in_64_bits(_single_number(values)), kind="int"),
    "float": Function(lambda values: float(_single_number(values)), kind="float"),
    "max": Function(lambda values: max(_nonempty_numbers(values)), most=MANY),
    "min": Function(lambda values: min(_nonempty_numbers(values)), most=MANY),
    "mean": Function(_mean, most=MANY, kind="float"),
    "median": Function(_median, most=MANY, kind="float"),
    "sum": Function(lambda values: _sum_in_order(flatten_numbers(values)[::-1])),  # Expr adds a + (b + c).
    "count": Function(_count_true_elements, most=2, kind="int", predicate=True),
}
