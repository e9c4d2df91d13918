"""Limits a PromQL query to series with one value of a label, by a matcher in each selector. Pure.

prom-label-proxy does the same.
The query is parsed, printed with the label in each selector, and parsed again. It is refused unless each selector then
has the label. The parser is a library's and accepts what Prometheus accepts.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Final

import promql_parser as promql

QUERY_CHARACTERS_MAX: Final = 4_000
QUERY_WORDS_MAX: Final = 200
"""The most words, signs and texts."""
QUERY_PARTS_MAX: Final = 32
"""The most operators and opening parentheses outside braces. The parser copies what is inside each of them, so its time
grows with their number times the words. With both bounds, each query that was tried took at most some 2 ms."""
PATTERNS_WEIGHT_MAX: Final = 2_000
"""The highest total weight of all regular expressions of a query. The parser compiles them: a unit takes about 1 us."""

_OPERATORS: Final = frozenset("+-*/%^<>=!(") | {"and", "or", "unless", "atan2"}
_FUNCTIONS: Final = """
abs absent absent_over_time acos acosh asin asinh atan atanh avg_over_time ceil changes clamp clamp_max
clamp_min cos cosh count_over_time day_of_month day_of_week day_of_year days_in_month deg delta deriv
double_exponential_smoothing end exp first_over_time floor histogram_avg histogram_count histogram_fraction
histogram_quantile histogram_quantiles histogram_stddev histogram_stdvar histogram_sum hour idelta increase
irate label_join label_replace last_over_time ln log10 log2 mad_over_time max_over_time min_over_time minute
month pi predict_linear present_over_time quantile_over_time rad range rate resets round scalar sgn sin sinh
sort sort_by_label sort_by_label_desc sort_desc sqrt start stddev_over_time stdvar_over_time step
sum_over_time tan tanh time timestamp ts_of_first_over_time ts_of_last_over_time ts_of_max_over_time
ts_of_min_over_time vector year
"""
FUNCTIONS: Final = frozenset(_FUNCTIONS.split())
"""The functions that a query may call: their result depends only on their arguments.

`info` does not: it adds the labels of `target_info` series that no selector of the query names, of any namespace. A
new function of a later parser must be checked before it is added.
"""
_PATTERN_BASE: Final = 120
_ATOM_WEIGHTS: Final = (
    (re.compile(r"\\[wWpP]"), 600),
    (re.compile(r"\\[dDsS]"), 80),
    (re.compile(r"[.\[]|[^\0-\x7f]"), 10),
    (re.compile(r"[*?+]"), 3),
)
"""The weights of parts of a regular expression, in addition to its length: classes of Unicode become large automata."""
_FLAGGED_TIMES: Final = 6
"""The factor by which a flag such as (?i) may enlarge a regular expression."""
_REPEATED: Final = re.compile(r"\{[\s0-9,]*\}")
_NESTED: Final = re.compile(r"[)}][?+*]*\{|\(\?")
_ESCAPE: Final = re.compile(r"""\\(?P<sign>.)""", re.DOTALL)

_WORDS: Final = re.compile(r"""(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`[^`]*`)|\w+|\S|\s+""", re.DOTALL)
_PRINTED: Final = re.compile(r"""(?P<text>"-(?P<number>[0-9]+)-")|{}|{|[^"{]+|.""", re.DOTALL)
"""The parts of a printed query: numbers of texts, and the brackets of selectors. No other part has such brackets."""

Matcher = tuple[str, str, str]
"""Label, operator and text."""

_EQUAL: Final = str(promql.MatchOp.Equal)
_NOT_EQUAL: Final = str(promql.MatchOp.NotEqual)

_AT: Final = re.compile(r"start|end|[0-9]{1,12}")


class QueryRefused(Exception):
    """Raised for a query that hpa must not send to Prometheus. The text gives the reason, for the user."""


def confine_query(query: str, label: str, value: str) -> str:
    """Limits a query to series with this value of the label. Raises QueryRefused.

    value: must need no escaping in PromQL, like the name of a namespace.
    """
    forced, refusal = _query_or_refusal(query, label, value)
    if refusal:
        raise QueryRefused(refusal)
    return forced


@lru_cache(maxsize=10_000)
def _query_or_refusal(query: str, label: str, value: str) -> tuple[str, str]:
    """Returns (query, ""), or ("", the reason of the refusal). The result is cached for each query."""
    try:
        return _force_label(query, label, value), ""
    except QueryRefused as refused:
        return "", str(refused)


def _force_label(query: str, label: str, value: str) -> str:
    words = _tokens_of_query(query)
    before = [_checked_matchers(selector, label, value) for selector in _selectors_in_expression(_parse_query(query))]
    forced = _insert_matcher(words, f'{label}="{value}"')
    added = label, _EQUAL, value
    after = [_matchers_of_selector(selector) for selector in _selectors_in_expression(_parse_query(forced))]
    if sorted(after) != sorted(sorted({*one, added}) for one in before):
        raise QueryRefused(f"query: {label}={value!r} cannot be made part of each selector: expected plain PromQL")
    return forced


def _tokens_of_query(query: str) -> list[tuple[str, bool]]:
    """Returns the tokens of the query as (token, True if it is a quoted text).

    Raises QueryRefused for too many tokens, and for a comment.
    """
    if len(query) > QUERY_CHARACTERS_MAX:
        raise QueryRefused(f"query: {len(query)} characters: expected at most {QUERY_CHARACTERS_MAX}")
    words = [(found[0], found["text"] is not None) for found in _WORDS.finditer(query)]
    many = sum(not word.isspace() for word, _ in words)
    if many > QUERY_WORDS_MAX:
        raise QueryRefused(f"query: {many} words and signs: expected at most {QUERY_WORDS_MAX}")
    if ("#", False) in words:
        raise QueryRefused("query: a comment: expected none")
    solid = [(word, is_text) for word, is_text in words if not word.isspace()]
    _check_operator_count(solid)
    weight = 0
    for (sign, _), (after, is_text) in pairwise(solid):
        if sign == "@" and not _AT.fullmatch(after):  # For others, the library panics with a long text.
            raise QueryRefused(f"query: @ {after[:100]}: expected a time in seconds, start() or end()")
        if sign == "~" and is_text:
            weight += _cost_of_regex(after[1:-1])
    if weight > PATTERNS_WEIGHT_MAX:
        raise QueryRefused(
            f"query: regular expressions of weight {weight}: expected at most {PATTERNS_WEIGHT_MAX}: fewer or shorter"
            " ones, with smaller numbers of repetitions, or [a-z0-9_] for a class as \\w"
        )
    return words


def _check_operator_count(solid: Sequence[tuple[str, bool]]) -> None:
    """Raises QueryRefused for too many operators and parentheses. The signs inside braces are those of matchers."""
    depth = parts = 0
    before = ""
    for word, is_text in solid:
        if not is_text:
            depth += (word == "{") - (word == "}")
            if depth <= 0 and word.lower() in _OPERATORS and not (word == "=" and before in {"=", "<", ">", "!"}):
                parts += 1
        before = word
    if parts > QUERY_PARTS_MAX:
        raise QueryRefused(f"query: {parts} operators and parentheses: expected at most {QUERY_PARTS_MAX}")


def _cost_of_regex(quoted: str) -> int:
    """Returns the weight of a regular expression, in units of about 1 us. quoted: the part between its quotes.

    Raises QueryRefused for an escape in the quoted text that could hide a sign of the expression.
    """
    for escaped in _ESCAPE.finditer(quoted):
        if escaped["sign"] not in "\\\"'`nrt":
            raise QueryRefused(
                f"query: {escaped[0]} in a regular expression: expected no escape but of a quote or a backslash"
            )
    pattern = _ESCAPE.sub(lambda escaped: escaped["sign"], quoted)
    weight = len(pattern) + sum(each * len(kind.findall(pattern)) for kind, each in _ATOM_WEIGHTS)
    weight *= _FLAGGED_TIMES if "(?" in pattern else 1
    counts = [
        max(map(int, numbers)) for one in _REPEATED.findall(pattern) if (numbers := re.findall("[0-9]{1,9}", one))
    ]
    times = prod(counts) if _NESTED.search(pattern) else max(counts, default=1)
    return _PATTERN_BASE + weight * max(times, 1)


def _insert_matcher(words: Sequence[tuple[str, bool]], matcher: str) -> str:
    """Returns the query with the matcher in each selector.

    Texts are replaced by numbers while it is printed, because the library prints the brackets of every selector and
    escapes nothing.
    """
    texts = [word for word, is_text in words if is_text]
    numbers = iter(range(len(texts)))
    numbered = _parse_query("".join(f'"-{next(numbers)}-"' if is_text else word for word, is_text in words))
    printed = str(numbered)
    if (
        _parse_query(printed).prettify() != numbered.prettify()
    ):  # The library has two printers, and neither may omit a part.
        raise QueryRefused("query: it cannot be printed again as it is: expected plain PromQL")
    parts = []
    for found in _PRINTED.finditer(printed):
        if found["text"]:
            parts.append(texts[int(found["number"])])
        else:
            parts.append({"{}": f"{{{matcher}}}", "{": f"{{{matcher},"}.get(found[0], found[0]))
    return "".join(parts)


def _parse_query(query: str) -> promql.Expr:
    try:
        return promql.parse(query)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # A panic of the library is no Exception.
        raise QueryRefused(f"query: {str(error)[:200]}: expected PromQL") from None


def _selectors_in_expression(expression: promql.Expr) -> Iterator[promql.VectorSelector]:
    """Yields the selectors in no order.

    An unknown kind of expression is refused, because it could contain selectors, and a function that is not in
    FUNCTIONS, because it could read series that no selector names.
    """
    waiting: list[object] = [expression]
    while waiting:
        match waiting.pop():
            case promql.VectorSelector() as found:
                yield found
            case promql.MatrixSelector() as found:
                waiting.append(found.vector_selector)
            case promql.BinaryExpr() as found:
                waiting.extend((found.lhs, found.rhs))
            case promql.AggregateExpr() as found:
                waiting.extend((found.expr,) if found.param is None else (found.expr, found.param))
            case promql.Call() as found:
                if found.func.name not in FUNCTIONS:
                    raise QueryRefused(
                        f"query: function {found.func.name}: expected one that reads its arguments alone"
                    )
                waiting.extend(found.args)
            case promql.SubqueryExpr() | promql.ParenExpr() | promql.UnaryExpr() as found:
                waiting.append(found.expr)
            case promql.NumberLiteral() | promql.StringLiteral():
                pass
            case other:
                raise QueryRefused(f"query: {type(other).__name__}: expected plain PromQL")


def _checked_matchers(selector: promql.VectorSelector, label: str, value: str) -> list[Matcher]:
    """Returns the matchers of a selector.

    Raises QueryRefused if the selector can match no series, because that would look like a value of 0.
    """
    found = _matchers_of_selector(selector)
    for name, how, wanted in found:
        if name == label and (how, wanted == value) in ((_EQUAL, False), (_NOT_EQUAL, True)):
            text = f"expected {value!r}, or no {label} at all, since the connection adds it"
            raise QueryRefused(f"query: {label} of {wanted[:100]!r}: {text}")
    return found


def _matchers_of_selector(selector: promql.VectorSelector) -> list[Matcher]:
    if selector.matchers.or_matchers:
        raise QueryRefused("query: `or` inside a selector: expected plain PromQL")
    name = [("__name__", _EQUAL, selector.name)] if selector.name else []
    found = ((one.name, str(one.op), one.value) for one in selector.matchers.matchers)
    return sorted({*name, *found})
