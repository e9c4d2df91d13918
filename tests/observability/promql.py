"""The part of PromQL that our rules use, evaluated over samples: enough to see a rule fire, and not.

Source: Prometheus' documentation of its operators and functions. Unlike Prometheus' own, rate and increase do not
extrapolate to the ends of their range. What is not known here raises NotImplementedError: no rule passes unread.
"""

import math
import operator
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import promql_parser as ast

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Samples = list[tuple[float, float]]

LOOKBACK_SECONDS = 300.0
"""After so long without a sample a series is not there."""

_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda one, other: one / other if other else math.nan,
}
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
_AGGREGATIONS: dict[str, Callable[[list[float]], float]] = {
    "sum": sum,
    "min": min,
    "max": max,
    "count": lambda values: float(len(values)),
    "avg": lambda values: sum(values) / len(values),
}


@dataclass
class Store:
    """Series by name and labels, each in the order of time; seconds."""

    series: dict[tuple[str, Labels], Samples] = field(default_factory=dict)

    def add_sample(self, name: str, labels: Mapping[str, str], at: float, value: float) -> None:
        self.series.setdefault((name, frozenset(labels.items())), []).append((at, value))

    def evaluate_expression(self, text: str, at: float) -> Vector:
        """A scalar is a vector of one without labels."""
        found = self._value_of_node(ast.parse(text), at)
        return found if isinstance(found, dict) else {frozenset(): found}

    def _value_of_node(self, node: Any, at: float) -> Any:
        match node:
            case ast.NumberLiteral():
                return float(node.val)
            case ast.ParenExpr():
                return self._value_of_node(node.expr, at)
            case ast.VectorSelector():
                return {
                    labels: samples[-1][1] for labels, samples in self._selected_samples(node, at, LOOKBACK_SECONDS)
                }
            case ast.Call():
                return self._value_of_call(node, at)
            case ast.AggregateExpr():
                return self._value_of_aggregation(node, at)
            case ast.BinaryExpr():
                return self._value_of_binary(node, at)
        raise NotImplementedError(f"{type(node).__name__}: {node}")

    def _selected_samples(self, node: Any, at: float, seconds: float) -> Iterator[tuple[Labels, Samples]]:
        """The samples of each series in (at − seconds, at]; those that have none are left out."""
        for (name, labels), samples in self.series.items():
            if name != node.name or not all(_matches_label(one, dict(labels)) for one in node.matchers.matchers):
                continue
            first = bisect_right(samples, at - seconds, key=lambda one: one[0])
            inside = samples[first : bisect_right(samples, at, key=lambda one: one[0])]
            if inside:
                yield labels, inside

    def _value_of_call(self, node: Any, at: float) -> Any:
        name = node.func.name
        if name == "vector":
            return {frozenset(): self._value_of_node(node.args[0], at)}
        if name == "clamp_max":
            most = self._value_of_node(node.args[1], at)
            return {labels: min(value, most) for labels, value in self._value_of_node(node.args[0], at).items()}
        seconds = node.args[0].range.total_seconds()
        selected = self._selected_samples(node.args[0].vector_selector, at, seconds)
        match name:
            case "rate":
                return {
                    labels: _increase_of_counter(samples) / seconds for labels, samples in selected if len(samples) > 1
                }
            case "increase":
                return {labels: _increase_of_counter(samples) for labels, samples in selected if len(samples) > 1}
            case "avg_over_time":
                return {labels: sum(value for _, value in samples) / len(samples) for labels, samples in selected}
        raise NotImplementedError(name)

    def _value_of_aggregation(self, node: Any, at: float) -> Vector:
        groups: dict[Labels, list[float]] = {}
        kept = set(node.modifier.labels) if node.modifier is not None else set()
        if node.modifier is not None and node.modifier.type != ast.AggModifierType.By:
            raise NotImplementedError("without")
        for labels, value in self._value_of_node(node.expr, at).items():
            groups.setdefault(frozenset(pair for pair in labels if pair[0] in kept), []).append(value)
        return {labels: _AGGREGATIONS[str(node.op)](values) for labels, values in groups.items()}

    def _value_of_binary(self, node: Any, at: float) -> Any:
        one, other, symbol = self._value_of_node(node.lhs, at), self._value_of_node(node.rhs, at), str(node.op)
        on = _matching_labels(node.modifier)
        if symbol in ("and", "unless", "or"):
            keys = {on(labels) for labels in other}
            if symbol == "or":
                known = {on(labels) for labels in one}
                return one | {labels: value for labels, value in other.items() if on(labels) not in known}
            return {labels: value for labels, value in one.items() if (on(labels) in keys) == (symbol == "and")}
        as_bool = node.modifier is not None and node.modifier.return_bool
        return _combined_operands(one, other, symbol, on, as_bool)


def _combined_operands(one: Any, other: Any, symbol: str, on: Callable[[Labels], Labels], as_bool: bool) -> Any:
    if not isinstance(one, dict) and not isinstance(other, dict):
        return _ARITHMETIC[symbol](one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        by_key = {on(labels): value for labels, value in other.items()}
        assert len(by_key) == len(other), "one to one alone"
        pairs: Iterable[tuple[Labels, float, float]] = (
            (labels, value, by_key[on(labels)]) for labels, value in one.items() if on(labels) in by_key
        )
    elif isinstance(one, dict):
        pairs = ((labels, value, other) for labels, value in one.items())
    else:
        pairs = ((labels, one, value) for labels, value in other.items())
    if symbol in _ARITHMETIC:
        return {labels: _ARITHMETIC[symbol](value, than) for labels, value, than in pairs}
    compare = _COMPARISONS[symbol]
    if as_bool:
        return {labels: float(compare(value, than)) for labels, value, than in pairs}
    return {labels: value for labels, value, than in pairs if compare(value, than)}


def _matching_labels(modifier: Any) -> Callable[[Labels], Labels]:
    """What of the labels two series must have alike."""
    if modifier is None or modifier.matching is None:
        return lambda labels: labels
    if modifier.matching.type != ast.LabelModifierType.Include:
        raise NotImplementedError("ignoring")
    names = set(modifier.matching.labels)
    return lambda labels: frozenset(pair for pair in labels if pair[0] in names)


def _matches_label(matcher: Any, labels: Mapping[str, str]) -> bool:
    value = labels.get(matcher.name, "")
    match matcher.op:
        case ast.MatchOp.Equal:
            return value == matcher.value
        case ast.MatchOp.Re:
            return re.fullmatch(matcher.value, value) is not None
    raise NotImplementedError(str(matcher))


def _increase_of_counter(samples: Samples) -> float:
    """Of a counter, whose falls are restarts from 0."""
    values = [value for _, value in samples]
    return sum(after - before if after >= before else after for before, after in pairwise(values))


def selectors_in(text: str) -> list[Any]:
    """Every selector of series in an expression."""
    found: list[Any] = []

    def visit_node(node: Any) -> bool:
        if isinstance(node, ast.VectorSelector):
            found.append(node)
        return True

    ast.walk(ast.parse(text), visit_node)
    return found
