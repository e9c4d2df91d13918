"""Computes with integers and doubles as Go does, where results of Kubernetes or KEDA depend on it. Pure.

Source: the Go specification. A double that does not fit into an integer is converted as on linux/amd64.
"""

import math
import re
from typing import Final

INT32_MAX: Final = 2**31 - 1
INT32_MIN: Final = -(2**31)
INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)
DIGITS_MAX: Final = 19
"""The most digits of a number of 64 bits. Python raises an error for a text of thousands of digits."""
DIGITS: Final = re.compile(rf"[0-9]{{1,{DIGITS_MAX}}}", re.ASCII)


def int32_of_double(value: float) -> int:
    """Returns int32(value) of a double: rounded towards zero; the least number if it does not fit."""
    if not math.isfinite(value) or not INT32_MIN - 1 < value < INT32_MAX + 1:
        return INT32_MIN
    return int(value)


def int64_of_double(value: float) -> int:
    """Returns int64(value) of a double: rounded towards zero; the least number if it does not fit."""
    if not math.isfinite(value) or not INT64_MIN <= value < INT64_MAX:
        return INT64_MIN
    return int(value)


def wrap_to_int32(value: int) -> int:
    """Returns int32(value) of an integer: the lower 32 bits."""
    return (value - INT32_MIN) % 2**32 + INT32_MIN


def wrap_to_int64(value: int) -> int:
    """Returns an exact integer as Go's int64 arithmetic gives it: the lower 64 bits."""
    return (value - INT64_MIN) % 2**64 + INT64_MIN


def truncated_quotient(dividend: int, divisor: int) -> int:
    """Returns the integer quotient, rounded towards zero. The divisor must not be 0."""
    magnitude = abs(dividend) // abs(divisor)
    return magnitude if (dividend < 0) == (divisor < 0) else -magnitude


def divide_doubles(dividend: float, divisor: float) -> float:
    """Returns the quotient of doubles. A division by zero gives an infinity or NaN."""
    if divisor:
        return dividend / divisor
    if dividend == 0 or math.isnan(dividend):
        return math.nan
    return math.copysign(math.inf, dividend) * math.copysign(1.0, divisor)


def ceiling(value: float) -> float:
    """Returns math.Ceil of a double. Infinities and NaN stay as they are."""
    return float(math.ceil(value)) if math.isfinite(value) else value
