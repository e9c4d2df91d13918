"""Combines several triggers into one metric by a formula (scalingModifiers). Pure.

Source: pkg/scaling/modifiers/formula.go and the admission of apis/keda/v1alpha1. A trigger with too many failures is
nil in the formula. A formula with the result nil gives the fallback's replicas.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from hpa.core.keda.expressions import ANY, FLOAT, INT, ExpressionNode, InvalidExpression, parse_expression
from hpa.core.keda.fallback import SCALING_MODIFIERS, Fallback
from hpa.core.keda.functions import ExpressionFailed
from hpa.core.kubernetes.go_numbers import INT64_MAX, INT64_MIN, int64_of_double

MILLI: Final = 1e-3
"""The factor from milli-units to doubles, as for Kubernetes' quantities. A division would round differently."""


class Formula(Struct, frozen=True):
    """A formula over the triggers' names. text: as written."""

    text: str
    triggers: tuple[str, ...]
    node: ExpressionNode


def compile_formula(text: str, triggers: Sequence[str]) -> Formula:
    """Checks a formula once. Raises InvalidExpression when it cannot be read or its result is no number."""
    node = parse_expression(text, triggers)
    if node.kind not in (FLOAT, INT, ANY):
        raise InvalidExpression(f"formula {text!r}: expected a number as its result, not {node.kind}")
    return Formula(text, tuple(triggers), node)


def trigger_value(milli: int, failures: int | None, fallback: Fallback | None) -> int | None:
    """Returns a trigger's value for the formula; None (nil) if it failed more often than the fallback's threshold."""
    if fallback is None or fallback.behavior != SCALING_MODIFIERS or failures is None:
        return milli
    return None if failures > fallback.failure_threshold else milli


def composite_milli(
    formula: Formula,
    values_milli: Mapping[str, int],
    failures: Mapping[str, int],
    fallback: Fallback | None,
    target: float,
) -> int:
    """Returns the value of the formula in milli-units; smaller fractions are cut off.

    Raises ExpressionFailed, also for infinities and results beyond 64 bits. KEDA would turn such a result into the
    smallest integer, and scale in.
    """
    seen = {name: trigger_value(milli, failures.get(name), fallback) for name, milli in values_milli.items()}
    found = formula.node.value({name: None if milli is None else milli * MILLI for name, milli in seen.items()})
    if isinstance(found, bool) or not isinstance(found, int | float | None):
        raise ExpressionFailed(f"formula {formula.text!r}: expected a number, not {found}")
    if found is not None:
        if not INT64_MIN <= float(found) * 1000 < INT64_MAX:
            raise ExpressionFailed(f"formula {formula.text!r}: its result is {found}")
        return int(float(found) * 1000)
    if fallback is None or formula.node.kind != ANY:
        raise ExpressionFailed(f"formula {formula.text!r}: its result is nil")
    return int64_of_double(fallback.replicas * target * 1000)


def is_name_used(names: Sequence[str], name: str) -> bool:
    """Returns whether a name is already used. Upper and lower case count as equal."""
    return name.lower() in (one.lower() for one in names)
