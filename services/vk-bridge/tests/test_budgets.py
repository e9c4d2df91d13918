"""Which disruption budgets a pool's pod is under, and that its tenants' selectors cost no more than their bounds."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json

from spillway.events_lending import Amounts
from spillway.kubernetes.pod_shape import matches_labels
from spillway.kubernetes.term_bounds import LABELS_MAX, VALUES_MAX
from vk_bridge.core.pod.budgets import (
    ALLOWED_MAX,
    BUDGETS_MAX,
    LABEL_SETS_KEPT_MAX,
    SELECTORS_BYTES_MAX,
    DisruptionBudget,
    DisruptionBudgets,
    read_selector,
)

ENCODE = {"matchLabels": {"app": "encode"}}
ABSENT = {"key": "k", "operator": "DoesNotExist"}


def disruption_budget(namespace: str, selector: object, allowed: int, name: str = "b") -> DisruptionBudget:
    manifest = {
        "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}"},
        "spec": {"selector": selector} if selector != "absent" else {},
        "status": {"disruptionsAllowed": allowed},
    }
    return json.decode(json.encode(manifest), type=DisruptionBudget)


def pod_manifest(namespace: str = "shop", **labels: str) -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": "encode-1", "uid": "u", "labels": labels or {"app": "encode"}}}


def budgets_of_pod(found: dict[str, Any], budgets: Iterable[DisruptionBudget]) -> Amounts:
    kept = DisruptionBudgets()
    kept.replace_budgets(budgets)
    return kept.budgets_of_pod(found)


class Work:
    """How often a selector was read, and how often one was compared with labels."""

    def __init__(self, calls: list[Any]) -> None:
        self._calls = calls

    @property
    def selectors_read(self) -> int:
        return sum(call.code is read_selector.__code__ for call in self._calls)

    @property
    def selectors_compared(self) -> int:
        return sum(call.code is matches_labels.__code__ for call in self._calls)


@pytest.fixture
def work(calls_of: Callable[..., AbstractContextManager[list[Any]]]) -> Iterator[Work]:
    with calls_of(read_selector, matches_labels) as calls:
        yield Work(calls)


@pytest.mark.parametrize(
    ("budgets", "allowed"),
    [
        pytest.param([], (), id="none"),
        pytest.param([disruption_budget("shop", ENCODE, 2)], (2,), id="by label"),
        pytest.param([disruption_budget("shop", {"matchLabels": {"app": "web"}}, 2)], (), id="another label"),
        pytest.param([disruption_budget("other", {}, 2)], (), id="another namespace"),
        pytest.param([disruption_budget("shop", {}, 5), disruption_budget("shop", ENCODE, 1, "c")], (5, 1), id="two"),
        pytest.param([disruption_budget("shop", {}, 5)], (5,), id="an empty selector is about all"),
        pytest.param([disruption_budget("shop", "absent", 5)], (), id="no selector is about none"),
        pytest.param(
            [disruption_budget("shop", {"matchLabels": 3}, 0)], (0,), id="one that cannot be read may be about any"
        ),
        pytest.param(
            [disruption_budget("shop", {"matchExpressions": [{"key": "app", "operator": "Odd", "values": []}]}, 0)],
            (0,),
            id="odd",
        ),
        pytest.param([disruption_budget("shop", {}, -3)], (0,), id="fewer than none"),
        pytest.param([disruption_budget("shop", {}, 2**70)], (ALLOWED_MAX,), id="more than Kubernetes has"),
    ],
)
def test_the_budgets_of_a_pod_and_what_each_allows(budgets: list[DisruptionBudget], allowed: tuple[int, ...]) -> None:
    found = budgets_of_pod(pod_manifest(), budgets)
    assert tuple(most for _, most in found) == allowed
    assert [name for name, _ in found] == ["shop/b", "shop/c"][: len(allowed)]


@pytest.mark.parametrize(
    "selector",
    [
        pytest.param({"matchExpressions": [ABSENT] * (LABELS_MAX + 1)}, id="expressions"),
        pytest.param({"matchLabels": {f"k{number}": "v" for number in range(LABELS_MAX + 1)}}, id="labels"),
        pytest.param(
            {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"] * (VALUES_MAX + 1)}]}, id="values"
        ),
        pytest.param({"matchLabels": {"k": "v" * SELECTORS_BYTES_MAX}}, id="characters"),
    ],
)
def test_a_budget_that_says_too_much_may_be_about_any_pod_of_its_namespace(selector: dict[str, Any]) -> None:
    budgets = [disruption_budget("shop", selector, 0, "long"), disruption_budget("shop", ENCODE, 4)]
    assert budgets_of_pod(pod_manifest(), budgets) == (("shop/b", 4), ("shop/long", 0))
    assert budgets_of_pod(pod_manifest("other"), budgets) == ()


def test_what_a_namespace_says_in_all_is_bounded() -> None:
    """Else a hundred budgets, each within its bounds, are compared with each set of labels."""
    half = {"matchExpressions": [ABSENT] * (LABELS_MAX // 2 + 1)}
    few = disruption_budget("shop", {"matchLabels": {"app": "web"}}, 4, "few")
    budgets = [disruption_budget("shop", half, 1, "a"), disruption_budget("shop", half, 0, "b"), few]
    assert budgets_of_pod(pod_manifest(k="v"), budgets) == (("shop/b", 0),), "the second is beyond the bounds"
    assert budgets_of_pod(pod_manifest(app="web"), budgets) == (("shop/a", 1), ("shop/b", 0), ("shop/few", 4))


def test_of_budgets_beyond_their_number_the_strictest_is_told() -> None:
    many = [
        disruption_budget("shop", {"matchLabels": {"app": "web"}}, 1 + number, f"w{number:04}")
        for number in range(2_000)
    ]
    assert budgets_of_pod(pod_manifest(), many) == ((f"shop/w{BUDGETS_MAX:04}", 1 + BUDGETS_MAX),)
    assert budgets_of_pod(pod_manifest("other"), many) == ()


def test_which_is_the_strictest_follows_their_numbers() -> None:
    kept = DisruptionBudgets()
    odd = {"matchLabels": 3}
    kept.replace_budgets([disruption_budget("shop", odd, 3, "a"), disruption_budget("shop", odd, 5, "b")])
    assert kept.budgets_of_pod(pod_manifest()) == (("shop/a", 3),)
    kept.put_budget(disruption_budget("shop", odd, 1, "b"))
    assert kept.budgets_of_pod(pod_manifest()) == (("shop/b", 1),)
    kept.drop_budget(disruption_budget("shop", odd, 1, "b"))
    assert kept.budgets_of_pod(pod_manifest()) == (("shop/a", 3),)
    kept.drop_budget(disruption_budget("shop", odd, 1, "a"))
    kept.drop_budget(disruption_budget("shop", odd, 1, "a"))
    assert kept.budgets_of_pod(pod_manifest()) == ()


def test_a_selector_is_read_once_however_many_pods_and_records_there_are(work: Work) -> None:
    """One budget of 20,000 expressions was read for each pod at each record: 30 s of everybody's loop for 30 pods."""
    kept = DisruptionBudgets()
    kept.replace_budgets(disruption_budget("shop", ENCODE, 1, f"b{number}") for number in range(10))
    for record in range(50):
        for _ in range(30):
            assert len(kept.budgets_of_pod(pod_manifest())) == 10
        kept.put_budget(disruption_budget("shop", ENCODE, 1 + record, "b3"))
    assert (work.selectors_read, work.selectors_compared) == (10, 10)
    kept.replace_budgets(disruption_budget("shop", ENCODE, 7, f"b{number}") for number in range(10))
    assert len(kept.budgets_of_pod(pod_manifest())) == 10
    assert (work.selectors_read, work.selectors_compared) == (10, 20)
    kept.put_budget(disruption_budget("shop", {}, 7, "b3"))
    assert len(kept.budgets_of_pod(pod_manifest())) == 10
    assert (work.selectors_read, work.selectors_compared) == (11, 30)


def test_what_is_beyond_the_bounds_is_not_read(work: Work) -> None:
    kept = DisruptionBudgets()
    kept.replace_budgets(disruption_budget("shop", ENCODE, 1, f"b{number}") for number in range(5_000))
    for number in range(50):
        kept.budgets_of_pod(pod_manifest(app=f"a{number}"))
    assert (work.selectors_read, work.selectors_compared) == (BUDGETS_MAX, BUDGETS_MAX * 50)
    long = {"matchExpressions": [ABSENT] * 20_000}
    kept.replace_budgets(disruption_budget("shop", long, 1, f"b{number}") for number in range(5))
    kept.budgets_of_pod(pod_manifest())
    assert work.selectors_read == BUDGETS_MAX


def test_sets_of_labels_that_are_remembered_are_bounded(work: Work) -> None:
    kept = DisruptionBudgets()
    kept.replace_budgets([disruption_budget("shop", ENCODE, 1)])
    for number in range(LABEL_SETS_KEPT_MAX * 2):
        kept.budgets_of_pod(pod_manifest(app=f"a{number}"))
    assert len(kept._about) <= LABEL_SETS_KEPT_MAX
    long = pod_manifest(app="encode", other="v" * 100_000)
    before = len(kept._about)
    assert kept.budgets_of_pod(long) == kept.budgets_of_pod(long) == (("shop/b", 1),)
    assert (len(kept._about), work.selectors_compared) == (before, LABEL_SETS_KEPT_MAX * 2 + 2)


KEYS = st.sampled_from(["app", "tier"])
VALUES = st.sampled_from(["a", "b"])
SELECTORS = st.one_of(
    st.just("absent"),
    st.just({"matchLabels": 3}),
    st.fixed_dictionaries({"matchLabels": st.dictionaries(KEYS, VALUES)}),
    st.builds(
        lambda key, values: {"matchExpressions": [{"key": key, "operator": "NotIn", "values": values}]},
        KEYS,
        st.lists(VALUES, min_size=1, max_size=2),
    ),
)
CHANGES = st.lists(
    st.tuples(st.sampled_from(["put", "remove", "list", "ask"]), st.sampled_from("abc"), SELECTORS, st.integers(0, 3)),
    max_size=20,
)


@given(CHANGES, st.dictionaries(KEYS, VALUES, min_size=1))
def test_whatever_was_told_before_the_answer_is_that_of_what_there_is(
    changes: list[tuple[str, str, Any, int]], labels: dict[str, str]
) -> None:
    kept, there = DisruptionBudgets(), dict[str, DisruptionBudget]()
    for what, name, selector, allowed in changes:
        told = disruption_budget("shop", selector, allowed, name)
        if what == "put":
            there[name] = told
            kept.put_budget(told)
        elif what == "remove":
            there.pop(name, None)
            kept.drop_budget(told)
        elif what == "list":
            there = {name: told}
            kept.replace_budgets([told])
        assert kept.budgets_of_pod(pod_manifest(**labels)) == budgets_of_pod(pod_manifest(**labels), there.values())
