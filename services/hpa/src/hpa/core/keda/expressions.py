"""Reads the part of the expr language in which formulas over triggers are written, and checks its types. Pure.

Supported: numbers, names, arrays, + - * / % ** ^, comparisons, and or not && || !, ?:, ??, nil, `let x = …; …`, and the
functions of FUNCTIONS; `count` takes a predicate in braces, with # for the element. Other parts of the language are
refused as not supported. An accepted formula is computed fast and without deep recursion: it has at most TOKENS_MAX
words and signs, no array in an array and no predicate in a predicate, and at most STEPS_MAX steps. Source of the rules:
expr-lang/expr v1, as KEDA 8b4f083c uses it.
"""

import operator
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from hpa.core.keda.functions import FUNCTIONS, ExpressionFailed, Function
from hpa.core.kubernetes.go_numbers import DIGITS_MAX, INT64_MAX, divide_doubles, int64_of_double, wrap_to_int64

INT: Final = "int"
FLOAT: Final = "float"
BOOL: Final = "bool"
NIL: Final = "nil"
ARRAY: Final = "array"
ANY: Final = "any"
PREDICATE: Final = "predicate"

LENGTH_MAX: Final = 4096
TOKENS_MAX: Final = 512
STEPS_MAX: Final = 10_000
"""The most steps of a formula: its words and signs, those of an array again wherever its name stands, and those of a
predicate once for each element. They take some 3 ms, at each decision of a workload."""
DEPTH_MAX: Final = 64
ELEMENT: Final = "#"
TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>(?:\d[\d_]*)?\.\d+(?:[eE][+-]?\d+)?|\d[\d_]*(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>\*\*|\?\?|\|\||&&|==|!=|<=|>=|[-+*/%^<>!?:()\[\]{},;=#]))",
    re.ASCII,
)
WORDS: Final = frozenset({"and", "or", "not", "let", "nil", "true", "false"})
SPELLED: Final = {"&&": "and", "||": "or", "!": "not", "^": "**"}
BINARY: Final = {
    "or": 10, "and": 15, "==": 20, "!=": 20, "<": 20, ">": 20, "<=": 20, ">=": 20,
    "+": 30, "-": 30, "*": 60, "/": 60, "%": 60, "**": 100, "??": 500,
}  # fmt: skip
UNARY: Final = {"not": 50, "!": 1000, "-": 90, "+": 90}
COMPARED: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge,
}  # fmt: skip


class InvalidExpression(ValueError):
    """Raised when an expression cannot be understood, or its types do not fit together."""


Value = float | int | bool | None | list[Any]
Environment = Mapping[str, Value]


class ExpressionNode(Struct, frozen=True):
    """A part of an expression. kind: the type of its value if it is always the same; ANY if it depends on values."""

    kind: str
    value: Callable[[Environment], Value]


def parse_expression(text: str, names: Sequence[str]) -> ExpressionNode:
    """Returns the expression over these names, which are doubles or nil. Raises InvalidExpression."""
    if len(text) > LENGTH_MAX:
        raise InvalidExpression(f"expression of {len(text)} characters: expected at most {LENGTH_MAX}")
    tokens = _split_tokens(text)
    if len(tokens) > TOKENS_MAX:
        raise InvalidExpression(f"expression of {len(tokens)} words and signs: expected at most {TOKENS_MAX}")
    return _Parser(tokens, dict.fromkeys(names, FLOAT)).parse_whole_expression()


def _split_tokens(text: str) -> list[str]:
    found: list[str] = []
    at = 0
    stripped = text.rstrip()
    while at < len(stripped):
        match = TOKEN.match(stripped, at)
        if match is None:
            raise InvalidExpression(f"expression {text!r}: {stripped[at:].strip()[:20]!r} is not supported")
        found.append(match[0].strip())
        at = match.end()
    return found


class _Parser:
    """Builds the nodes of an expression from its tokens, left to right, with expr's precedence of operators.

    kinds: the type of each name that is known here. `let` and a predicate add names to it, which go where they end.
    """

    def __init__(self, tokens: list[str], kinds: dict[str, str]) -> None:
        self._tokens = tokens
        self._kinds = kinds
        self._at = 0
        self._depth = 0
        self._sizes: dict[str, int] = {}
        """The words of the value of each name that may stand for an array: at least as many as its elements."""
        self._repeated = 0
        """The steps beside the formula's words: for arrays by name, and for predicates."""

    def parse_whole_expression(self) -> ExpressionNode:
        node = self._parse_sequence()
        if self._at < len(self._tokens):
            raise InvalidExpression(f"expected an end, not {self._tokens[self._at]!r}")
        if (steps := len(self._tokens) + self._repeated) > STEPS_MAX:
            raise InvalidExpression(f"expression of {steps} steps: expected at most {STEPS_MAX}")
        return node

    def _steps_so_far(self) -> int:
        return self._at + self._repeated

    def _peek_token(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take_token(self, expected: str = "") -> str:
        token = self._peek_token()
        if not token or (expected and token != expected):
            raise InvalidExpression(f"expected {expected or 'more'!r}, not {token or 'the end'!r}")
        self._at += 1
        return token

    def _parse_sequence(self) -> ExpressionNode:
        if self._peek_token() != "let":
            return self._parse_subexpression(0)
        self._take_token()
        name = self._take_token()
        if not name.isidentifier() or name in WORDS or name in self._kinds:
            raise InvalidExpression(f"let {name!r}: expected a new name")
        self._take_token("=")
        before = self._steps_so_far()
        value = self._parse_subexpression(0)
        self._take_token(";")
        self._kinds[name] = value.kind
        if value.kind in (ARRAY, ANY):
            self._sizes[name] = self._steps_so_far() - before
        body = self._parse_sequence()
        # As in expr, the name is known up to the end of its parentheses, and may then be given again.
        del self._kinds[name]
        self._sizes.pop(name, None)
        return ExpressionNode(body.kind, lambda env: body.value({**env, name: value.value(env)}))

    def _parse_subexpression(self, precedence: int) -> ExpressionNode:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise InvalidExpression(f"expected at most {DEPTH_MAX} expressions inside each other")
        left = self._parse_operand()
        before = ""
        while (sign := SPELLED.get(self._peek_token(), self._peek_token())) in BINARY and BINARY[sign] >= precedence:
            if before and (before == "??") != (sign == "??"):
                raise InvalidExpression("?? beside another operator: expected parentheses around one of them")
            self._take_token()
            # Only ** groups from the right, so its right side may begin with another operator of the same precedence.
            right = self._parse_subexpression(BINARY[sign] + (0 if sign == "**" else 1))
            left = _binary_node(sign, left, right)
            before = sign
        if precedence == 0 and self._peek_token() == "?":
            left = self._parse_choice(left)
        self._depth -= 1
        return left

    def _parse_choice(self, condition: ExpressionNode) -> ExpressionNode:
        if condition.kind not in (BOOL, ANY):
            raise InvalidExpression(f"before ?: expected a condition, not {condition.kind}")
        self._take_token("?")
        yes = self._parse_subexpression(0)
        self._take_token(":")
        no = self._parse_subexpression(0)
        return ExpressionNode(
            _common_kind(yes.kind, no.kind), lambda env: (yes if condition.value(env) else no).value(env)
        )

    def _parse_operand(self) -> ExpressionNode:
        token = self._take_token()
        if token in UNARY:
            return _unary_node(SPELLED.get(token, token), self._parse_subexpression(UNARY[token]))
        if token == "(":
            node = self._parse_sequence()
            self._take_token(")")
            return node
        if token == "[":
            return _array_node(self._parse_list("]"))
        if token[0].isdigit() or token[0] == ".":
            return _number_node(token)
        return self._parse_name(token)

    def _parse_name(self, token: str) -> ExpressionNode:
        if token in ("nil", "true", "false"):
            value = {"nil": None, "true": True, "false": False}[token]
            return ExpressionNode(NIL if value is None else BOOL, lambda _: value)
        if self._peek_token() == "(" and token.isidentifier():
            return self._parse_call(token)
        if token not in self._kinds:
            raise InvalidExpression(f"unknown name {token!r}: expected one of {', '.join(sorted(self._kinds))}")
        self._repeated += self._sizes.get(token, 0)
        return ExpressionNode(self._kinds[token], lambda env: env[token])

    def _parse_call(self, name: str) -> ExpressionNode:
        function = FUNCTIONS.get(name)
        if function is None:
            raise InvalidExpression(f"function {name!r} is not supported; known are {', '.join(sorted(FUNCTIONS))}")
        self._take_token("(")
        arguments = self._parse_list(")", predicate=function.predicate)
        return _call_node(name, function, arguments)

    def _parse_list(self, end: str, *, predicate: bool = False) -> list[ExpressionNode]:
        found: list[ExpressionNode] = []
        before = self._steps_so_far()
        while self._peek_token() != end:
            if found:
                self._take_token(",")
            if predicate and self._peek_token() == "{":
                found.append(self._parse_predicate(self._steps_so_far() - before))
            else:
                found.append(self._parse_subexpression(0))
        self._take_token(end)
        return found

    def _parse_predicate(self, elements: int) -> ExpressionNode:
        """Reads a condition in braces. elements: the most elements for which it is computed."""
        before = self._steps_so_far()
        self._take_token("{")
        if ELEMENT in self._kinds:
            raise InvalidExpression("in braces: braces inside of them are not supported")
        outer, self._kinds = self._kinds, {**self._kinds, ELEMENT: FLOAT}
        body = self._parse_subexpression(0)
        self._kinds = outer
        self._take_token("}")
        self._repeated += elements * (self._steps_so_far() - before)
        if body.kind not in (BOOL, ANY):
            raise InvalidExpression(f"in braces: expected a condition, not {body.kind}")
        return ExpressionNode(PREDICATE, lambda env: _predicate_function(body, env))


def _predicate_function(body: ExpressionNode, env: Environment) -> Any:
    return lambda element: body.value({**env, ELEMENT: element})


def _number_node(token: str) -> ExpressionNode:
    plain = token.replace("_", "")
    # Python refuses to read thousands of digits. As a float they are too large, which is refused below.
    value: int | float = int(plain) if plain.isdigit() and len(plain) <= DIGITS_MAX else float(plain)
    if value > (INT64_MAX if plain.isdigit() else sys.float_info.max):
        raise InvalidExpression(f"number of {len(plain)} characters: expected one of 64 bits")
    return ExpressionNode(INT if isinstance(value, int) else FLOAT, lambda _: value)


def _array_node(items: list[ExpressionNode]) -> ExpressionNode:
    """Returns the node of an array. Refuses an array of arrays."""
    if any(item.kind == ARRAY for item in items):
        raise InvalidExpression("an array in an array is not supported")

    def compute_items(env: Environment) -> Value:
        found = [item.value(env) for item in items]
        if any(isinstance(one, list) for one in found):
            raise ExpressionFailed("an array in an array is not supported")
        return found

    return ExpressionNode(ARRAY, compute_items)


def _call_node(name: str, function: Function, arguments: list[ExpressionNode]) -> ExpressionNode:
    if not function.least <= len(arguments) <= function.most:
        raise InvalidExpression(f"{name}: expected {function.least} to {function.most} values, not {len(arguments)}")
    if any((one.kind == PREDICATE) != (function.predicate and at == 1) for at, one in enumerate(arguments)):
        raise InvalidExpression(f"{name}: expected an array and then a condition in braces")
    kind = function.kind or (arguments[0].kind if len({one.kind for one in arguments}) == 1 else FLOAT)
    if kind == ARRAY:
        kind = FLOAT
    return ExpressionNode(kind, lambda env: function.apply([argument.value(env) for argument in arguments]))


def _common_kind(one: str, other: str) -> str:
    if one == other:
        return one
    if {one, other} <= {INT, FLOAT}:
        return FLOAT
    return other if one == NIL else one if other == NIL else ANY


def _unary_node(sign: str, operand: ExpressionNode) -> ExpressionNode:
    if sign == "not":
        _check_kinds((BOOL, ANY), operand)
        return ExpressionNode(BOOL, lambda env: not operand.value(env))
    _check_kinds((INT, FLOAT, ANY), operand)
    direction = -1 if sign == "-" else 1
    return ExpressionNode(operand.kind, lambda env: direction * _checked_number(operand.value(env)))


def _check_kinds(kinds: tuple[str, ...], *operands: ExpressionNode) -> None:
    for operand in operands:
        if operand.kind not in kinds:
            raise InvalidExpression(f"expected {' or '.join(kinds[:-1])}, not {operand.kind}")


def _binary_node(sign: str, left: ExpressionNode, right: ExpressionNode) -> ExpressionNode:
    if sign == "??":
        return ExpressionNode(ANY, lambda env: right.value(env) if (found := left.value(env)) is None else found)
    if sign in ("and", "or"):
        _check_kinds((BOOL, ANY), left, right)
        if sign == "and":
            return ExpressionNode(BOOL, lambda env: bool(left.value(env)) and bool(right.value(env)))
        return ExpressionNode(BOOL, lambda env: bool(left.value(env)) or bool(right.value(env)))
    if sign in ("==", "!="):
        return ExpressionNode(BOOL, lambda env: (left.value(env) == right.value(env)) == (sign == "=="))
    if sign in COMPARED:
        _check_kinds((INT, FLOAT, ANY), left, right)
        compared = COMPARED[sign]
        return ExpressionNode(
            BOOL, lambda env: compared(_checked_number(left.value(env)), _checked_number(right.value(env)))
        )
    return _arithmetic_node(sign, left, right)


def _arithmetic_node(sign: str, left: ExpressionNode, right: ExpressionNode) -> ExpressionNode:
    _check_kinds((INT, ANY) if sign == "%" else (INT, FLOAT, ANY), left, right)
    kind = FLOAT if sign in ("/", "**") else _common_kind(left.kind, right.kind)
    apply = ARITHMETIC[sign]
    return ExpressionNode(kind, lambda env: apply(_checked_number(left.value(env)), _checked_number(right.value(env))))


def _wrap_in_64_bits(apply: Callable[[Any, Any], float]) -> Callable[[float, float], float]:
    """Returns the operation with Go's integers: a whole result that does not fit into 64 bits wraps around."""

    def apply_wrapped(left: float, right: float) -> float:
        found = apply(left, right)
        return wrap_to_int64(found) if isinstance(found, int) else found

    return apply_wrapped


def _power(base: float, exponent: float) -> float:
    try:
        found = float(base) ** float(exponent)
    except ZeroDivisionError:
        return float("inf")
    except OverflowError as error:
        raise ExpressionFailed("a power is too large") from error
    return found if isinstance(found, float) else float("nan")


def _remainder(dividend: float, divisor: float) -> float:
    if not isinstance(dividend, int) or not isinstance(divisor, int) or divisor == 0:
        raise ExpressionFailed("a remainder needs whole numbers, and not 0 to divide by")
    # In Go a remainder has the sign of the dividend; in Python it has the sign of the divisor.
    return int64_of_double(abs(dividend) % abs(divisor)) * (-1 if dividend < 0 else 1)


ARITHMETIC: Final[Mapping[str, Callable[[float, float], float]]] = {
    "+": _wrap_in_64_bits(operator.add), "-": _wrap_in_64_bits(operator.sub), "*": _wrap_in_64_bits(operator.mul),
    "/": divide_doubles, "**": _power, "%": _remainder,
}  # fmt: skip


def _checked_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ExpressionFailed(f"expected a number, not {'nil' if value is None else value}")
    return value
