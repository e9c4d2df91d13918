"""What KEDA's vectors leave open: what cannot be read, what is said of it, and when a cooldown is over."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpa.core.keda.executor import Activation, PolledTriggers, decide_poll_outcome
from hpa.core.keda.expressions import InvalidExpression
from hpa.core.keda.fallback import SCALING_MODIFIERS, Fallback
from hpa.core.keda.formula import compile_formula, composite_milli
from hpa.core.keda.functions import FUNCTIONS, ExpressionFailed
from hpa.core.keda.kafka import KafkaTrigger, PartitionOffsets, lag_of_partitions
from hpa.core.keda.kafka_metadata import InvalidTrigger, merge_ranges, read_kafka_trigger, read_partitions

MILLI = st.sampled_from([0, 1, 1000]) | st.integers(0, 2**63 - 1)


LONG_ARRAY = ", ".join(["1"] * 150)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("a[0]", "expected an end", id="an index"),
        pytest.param("filter([a], {# > 1})", "'filter' is not supported", id="a function that is not known"),
        pytest.param("a in [1, 2]", "expected an end, not 'in'", id="an operator that is not known"),
        pytest.param("a ?? b + 1", "expected parentheses", id="?? beside another operator"),
        pytest.param("a + 'x'", "is not supported", id="a text"),
        pytest.param("a > 1 + (b > 2)", "not bool", id="types that do not go together"),
        pytest.param("(" * 100 + "a" + ")" * 100, "inside each other", id="too deep"),
        pytest.param("let a = 1; a", "expected a new name", id="a name that is taken"),
        pytest.param(
            "(let x = a; x) + x", "unknown name 'x': expected one of a, b", id="a name behind its parentheses"
        ),
        pytest.param("x + (let x = a; x)", "unknown name 'x': expected one of a, b", id="a name before it is given"),
        pytest.param("let y = (let x = a; x); x", "unknown name 'x': expected one of a, b, y", id="a name of a value"),
        pytest.param("a > 0 ? 1 : (let x = 2; x) + x", "unknown name 'x'", id="a name of the other choice"),
        pytest.param("max((let x = a; x), x)", "unknown name 'x'", id="a name of another value"),
        pytest.param("count([a], {(let x = #; x) > x})", "unknown name 'x'", id="a name behind them in braces"),
        pytest.param("count([a], {(let x = #; x) > 1}) + x", "unknown name 'x'", id="a name behind its braces"),
        pytest.param("let x = 1; (let x = 2; x)", "expected a new name", id="a name that is taken around it"),
        pytest.param("max()", "expected 1 to", id="too few values"),
        pytest.param("+".join(["a"] * 257), "513 words and signs: expected at most 512", id="too many terms"),
        pytest.param("a" + " " * 4096, "4097 characters: expected at most 4096", id="too long"),
        pytest.param("a * 1" + "0" * 400, "number of 401 characters", id="a whole number beyond 64 bits"),
        pytest.param("a * 1e999", "number of 5 characters", id="a number beyond a double"),
        pytest.param("sum([[a], b])", "an array in an array", id="an array in an array"),
        pytest.param("count([a], {count([#], {# > 1}) > 0})", "braces inside of them", id="a count in a count"),
        pytest.param("count([a], 3)", "a condition in braces", id="a count without a condition"),
        pytest.param(
            f"let c = [{LONG_ARRAY}]; max({', '.join(['c'] * 40)})", "steps: expected at most", id="many uses"
        ),
        pytest.param(
            f"let c = [{LONG_ARRAY}]; count(c, {{max({', '.join(['c'] * 9)}) > #}})",
            "steps: expected at most 10000",
            id="an array for each of its elements",
        ),
        pytest.param(
            f"let c = true ? [{LONG_ARRAY}] : nil; let d = c ?? c; max({', '.join(['d'] * 30)})",
            "steps: expected at most 10000",
            id="what may be an array",
        ),
    ],
)
def test_what_is_not_supported_is_named(text: str, said: str) -> None:
    with pytest.raises(InvalidExpression, match=said.replace("?", r"\?").replace("(", r"\(")):
        compile_formula(text, ["a", "b"])


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        ("1 + 2 * 3", 7000),
        ("-2 ** 2", -4000),
        ("2 ** 3 ** 2", 512000),
        ("7 % 4 + 10 / 4", 5500),
        ("not false and true ? 1 : 2", 1000),
        ("let x = a; let y = x + 1; y", 4000),
        ("(let x = a; x) + (let x = a * 2; x)", 9000),
        ("let y = (let x = a; x + 1); (let x = y; x * 2)", 8000),
        ("let x = a; (let y = x + 1; y) + x", 7000),
        ("count([a, 1, 5], {# >= a})", 2000),
        ("let c = [a, 1, 5]; count(c, {# >= mean(c)})", 2000),
        (f"let c = [{LONG_ARRAY}]; sum(c) + count(c, {{# > 0 and # < 9}})", 300_000),
        ("round(-2.5)", -3000),
        ("round(0.49999999999999994)", 0),
        (".5 + 1e1 + 1_000", 1010500),
    ],
)
def test_operators_bind_as_in_expr(text: str, milli: int) -> None:
    assert composite_milli(compile_formula(text, ["a"]), {"a": 3000}, {}, None, 1.0) == milli


def test_a_choice_whose_result_is_nil_fails() -> None:
    with pytest.raises(ExpressionFailed):
        composite_milli(compile_formula("true ? nil : a", ["a"]), {"a": 1000}, {}, None, 1.0)


@pytest.mark.parametrize("text", ["a / b", "ceil(a / b)", "floor(-a / b)", "round(b / b)", "int(a / b)", "1e300 * a"])
def test_what_no_metric_can_hold_fails(text: str) -> None:
    """KEDA makes the least of all numbers of an infinity, so that an empty queue would scale everything in."""
    with pytest.raises(ExpressionFailed):
        composite_milli(compile_formula(text, ["a", "b"]), {"a": 30_000, "b": 0}, {}, None, 1.0)


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        ("min(ceil(a / b), 10)", 10_000),
        ("b > 0 ? a / b : 3", 3000),
        ("9223372036854775807 + 1 < 0 ? 1 : 2", 1000),
        ("1" + " + 1" * 255, 256_000),
    ],
)
def test_numbers_on_the_way_are_those_of_go(text: str, milli: int) -> None:
    assert composite_milli(compile_formula(text, ["a", "b"]), {"a": 3000, "b": 0}, {}, None, 1.0) == milli


WORDS = "a b # nil true 0 2.5 1e308 9223372036854775807 + - * / % ** ?? < == not and ? : ( ) [ ] { } , let x = ;"
OPERATORS = "+ - * / % ** ??"
NUMBERS = st.recursive(
    st.sampled_from(["a / b", "a", "b", "1e308", "9223372036854775807", "[a, b]", "count([a, b], {# > 1})"]),
    lambda parts: st.one_of(
        st.tuples(st.sampled_from([*FUNCTIONS, "-"]), parts).map(lambda one: f"{one[0]}({one[1]})"),
        st.tuples(parts, st.sampled_from(OPERATORS.split()), parts).map(lambda one: f"({' '.join(one)})"),
    ),
    max_leaves=4,
)
NAMED = st.tuples(
    st.sampled_from(["a", "b", "1", "[a, 2]", "(let y = a; y)"]),
    st.sampled_from(["x", "x + 1", "count([x], {# > x})", "a"]),
    st.sampled_from(["{} + {}", "max({}, {})", "{} > 1 ? 1 : {}", "count([1], {{# > {} + {}}})", "let z = {}; {} * 2"]),
    st.sampled_from(["x", "y", "z", "b", "(let x = b; x)"]),
).map(lambda one: one[2].format(f"(let x = {one[0]}; {one[1]})", one[3]))
"""Formulas in which names of `let` stand inside of their parentheses, before them and behind them."""


def check_what_a_text_gives(text: str, a: int, b: int | None) -> None:
    fallback = Fallback(3, 0, SCALING_MODIFIERS)
    try:
        formula = compile_formula(text, ["a", "b"])
        found = composite_milli(formula, {"a": a, "b": b or 0}, {"b": 1} if b is None else {}, fallback, 1.0)
    except (InvalidExpression, ExpressionFailed):
        return
    assert -(2**63) <= found < 2**63


@given(text=st.lists(st.sampled_from(WORDS.split()), max_size=12).map(" ".join) | NUMBERS, a=MILLI, b=MILLI | st.none())
def test_no_text_does_more_than_give_a_number_be_refused_or_fail(text: str, a: int, b: int | None) -> None:
    check_what_a_text_gives(text, a, b)


@given(text=NAMED, a=MILLI, b=MILLI | st.none())
def test_no_name_of_let_is_missed_when_an_accepted_formula_is_computed(text: str, a: int, b: int | None) -> None:
    check_what_a_text_gives(text, a, b)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"lagThreshold": "0"}, "lagThreshold '0': expected a number of at least 1"),
        ({"offsetResetPolicy": "none"}, "offsetResetPolicy 'none': expected latest or earliest"),
        ({"partitionLimitation": "0-2147483647"}, "expected at most 100000 partitions"),
        ({"partitionLimitation": ",".join(["1"] * 1001)}, "2001 characters, 1001 ranges: expected at most 20000 "),
        ({"partitionLimitation": "1" * 20_001}, "20001 characters, 1 ranges: expected at most 20000 characters"),
        ({"bootstrapServers": ",".join(["b"] * 101)}, "101 brokers: expected at most 100"),
        ({"allowIdleConsumers": "yes"}, "allowIdleConsumers 'yes': expected true or false"),
    ],
)
def test_a_trigger_that_cannot_be_read_says_field_value_and_what_was_expected(
    metadata: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidTrigger, match=said):
        read_kafka_trigger({"bootstrapServers": "b:1", "consumerGroup": "g", "topic": "t"} | metadata)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(-1, 9)), min_size=1, max_size=9).map(tuple))
def test_a_list_of_partitions_means_what_it_says(ranges: tuple[tuple[int, int], ...]) -> None:
    text = ",".join(f"{first}-{max(0, first + more)}" if more else str(first) for first, more in ranges)
    expected = {number for first, more in ranges for number in range(first, max(0, first + more) + 1)}
    trigger = KafkaTrigger("g", topic="t", partitions=merge_ranges(read_partitions(text)))
    assert {number for number in range(-1, 70) if trigger.has_partition("t", number)} == expected
    assert not any(trigger.has_partition("other", number) for number in range(70))
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(trigger.partitions or ())), "merged and rising"


def test_wide_ranges_of_partitions_are_kept_as_they_are_written() -> None:
    """As numbers, a few hundred characters would fill the memory."""
    ranges = [(start, start + 99_999) for start in range(0, 30 * 200_000, 200_000)]
    assert read_partitions(",".join(f"{first}-{last}" for first, last in ranges)) == tuple(ranges)


@given(
    lags=st.lists(st.integers(0, 40), min_size=1, max_size=12),
    flags=st.tuples(st.booleans(), st.booleans()),
    threshold=st.integers(1, 12),
)
def test_the_true_lag_is_told_whatever_is_published(lags: list[int], flags: tuple[bool, bool], threshold: int) -> None:
    """Published: at most one record less than one more threshold for each partition that can be worked on."""
    even, limit = flags
    trigger = KafkaTrigger("g", topic="t", lag_threshold=threshold, even=even and not limit, limit_to_lagging=limit)
    rows = [PartitionOffsets("t", number, lag, 0) for number, lag in enumerate(lags)]
    found = lag_of_partitions(rows, trigger, {})
    assert found.true == sum(lags)
    assert found.active == (sum(lags) > 0)
    bound = sum(1 for lag in lags if lag) if limit else len(lags)
    assert found.total < (bound + 1) * threshold


MINUTE_MS = 60_000


@given(
    least=st.integers(0, 4),
    replicas=st.integers(0, 6),
    last=st.none() | st.integers(-10, 0).map(lambda minutes: minutes * MINUTE_MS),
)
def test_a_cooldown_that_holds_is_over_when_it_says(least: int, replicas: int, last: int | None) -> None:
    """Nothing happens one millisecond before due_ms, and at due_ms it does."""
    wanted = Activation(min_replicas=least, idle_replicas=None if least == 0 else 0)
    polled = PolledTriggers(False, False, replicas, -100 * MINUTE_MS, last)
    outcome = decide_poll_outcome(wanted, polled, 0)
    if outcome.due_ms is None:
        return
    assert outcome.replicas is None
    assert decide_poll_outcome(wanted, polled, outcome.due_ms - 1).replicas is None
    assert decide_poll_outcome(wanted, polled, outcome.due_ms).replicas == 0
