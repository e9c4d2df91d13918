"""Kubernetes' amounts: parses them into integers, and rounds as Kubernetes does. Pure."""

import re
from functools import lru_cache
from typing import Final

Quantity = str | int | float

INT64_MAX: Final = 2**63 - 1
NANOS_PER_UNIT: Final = 10**9
NANOS_PER_MILLI: Final = 10**6
QUANTITY_EXPECTED: Final = (
    "a number with an optional suffix n u m k M G T P E Ki Mi Gi Ti Pi Ei, or an exponent as in 1e3"
)
MAX_QUANTITY_LENGTH: Final = 128
MAX_EXPONENT: Final = 200  # Beyond it every value with so many digits is out of range, or below a nano.
QUANTITY: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]+))?",
    re.ASCII,
)
DECIMAL_EXPONENTS: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY_EXPONENTS: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


@lru_cache(maxsize=65536, typed=True)
def parse_quantity(text: Quantity, *, milli: bool = False) -> int:
    """Returns the quantity in whole units, or thousandths, rounded away from zero as Quantity.Value and MilliValue do.

    Kubernetes wraps round silently outside int64; here that is a ValueError.
    """
    return units_of_nanos(nanos_of(text), milli=milli, source=text)


def units_of_nanos(nanos: int, *, milli: bool, source: Quantity) -> int:
    units = _divide_away_from_zero(nanos, NANOS_PER_MILLI if milli else NANOS_PER_UNIT)
    if not -INT64_MAX - 1 <= units <= INT64_MAX:
        raise ValueError(f"quantity {source!r} in {'thousandths' if milli else 'units'}: expected a 64-bit integer")
    return units


def _divide_away_from_zero(numerator: int, denominator: int) -> int:
    magnitude = -(-abs(numerator) // denominator)
    return magnitude if numerator >= 0 else -magnitude


@lru_cache(maxsize=65536, typed=True)
def nanos_of(text: Quantity) -> int:
    """Returns the quantity in the finest unit that Kubernetes keeps. Anything finer is rounded up to it."""
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise ValueError(f"quantity {text!r}: expected {QUANTITY_EXPECTED}")
    written = text if isinstance(text, str) else str(text)
    match = QUANTITY.fullmatch(written) if len(written) <= MAX_QUANTITY_LENGTH else None
    if match is None or not (match["whole"] or match["part"]):
        raise ValueError(f"quantity {written[:MAX_QUANTITY_LENGTH]!r}: expected {QUANTITY_EXPECTED}")
    part = match["part"] or ""
    digits = int(match["whole"] + part)
    suffix, exponent = match["suffix"], match["exponent"]
    if suffix in BINARY_EXPONENTS:
        nanos = _divide_away_from_zero((digits << BINARY_EXPONENTS[suffix]) * NANOS_PER_UNIT, 10 ** len(part))
        nanos = min(nanos, INT64_MAX * NANOS_PER_UNIT)  # Kubernetes caps these, and only these.
    else:
        scale = DECIMAL_EXPONENTS.get(suffix, 0) if exponent is None else int(exponent)
        scale = max(-MAX_EXPONENT, min(scale, MAX_EXPONENT)) - len(part) + 9
        nanos = digits * 10**scale if scale >= 0 else _divide_away_from_zero(digits, 10**-scale)
    return -nanos if match["sign"] == "-" else nanos
