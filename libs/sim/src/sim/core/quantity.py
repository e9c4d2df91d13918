"""Kubernetes quantities as exact integers: CPU in thousandths, everything else in whole units."""

import re
from fractions import Fraction
from functools import lru_cache

_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i)?")
_FACTOR_BY_SUFFIX = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)},
}


@lru_cache(maxsize=4096)
def parse_quantity(text: str | float) -> Fraction:
    """Returns the quantity. Raises ValueError when the text is no quantity."""
    found = _FORM.fullmatch(str(text))
    if not found:
        raise ValueError(f"unable to parse quantity {text!r}")
    number, suffix = found.group(1), found.group(2) or ""
    if len(suffix) > 1 and suffix[0] in "eE":
        return Fraction(number) * Fraction(10) ** int(suffix[1:])
    return Fraction(number) * _FACTOR_BY_SUFFIX[suffix]


@lru_cache(maxsize=4096)
def parse_amount(resource: str, text: str | float) -> int:
    """Returns a quantity as an integer, rounded up as in the scheduler: CPU in millicores, all else in its own unit."""
    quantity = parse_quantity(text)
    if resource == "cpu" or resource.endswith(".cpu"):
        quantity *= 1000
    return -(-quantity.numerator // quantity.denominator)  # Two negations round up.


def quantity_text(resource: str, amount: int) -> str:
    if resource == "cpu" or resource.endswith(".cpu"):
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    return str(amount)
