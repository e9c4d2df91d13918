"""Queries of scale policies into which hpa forces a label, evaluated: they see no other namespace's series."""

from hypothesis import given
from hypothesis import strategies as st

from hpa.core.series import confine_query

from .promql import Store

TEXTS = ("1", "{", "}", '"', "'", "\\", "-0-", 'x",namespace="bank', "é", "a b")


def quoted_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if "'" in text else f"'{escaped}'".replace('\\"', '"')


MATCHERS = st.one_of(
    st.sampled_from(TEXTS).map(lambda text: f"x={quoted_text(text)}"),
    st.sampled_from(('x=~".+"', 'namespace="shop"', 'namespace=~".*"', 'namespace=~"bank|shop"')),
)
SELECTORS = st.builds(
    lambda name, matchers: f"{name}{{{','.join(matchers)}}}" if matchers else name,
    st.sampled_from(("a", "b")),
    st.lists(MATCHERS, max_size=2),
)
VECTORS = st.recursive(
    st.one_of(SELECTORS, SELECTORS.map(lambda one: f"rate({one}[1m])")),
    lambda inner: st.one_of(
        inner.map(lambda one: f"({one})"),
        inner.map(lambda one: f"{one} > 2"),
        st.builds(lambda one, how, other: f"({one}) {how} ({other})", inner, st.sampled_from(("and", "or")), inner),
        inner.map(lambda one: f"({one}) unless on (x) (a)"),
        st.builds(lambda one, other: f"sum by (namespace)({one}) + sum by (namespace)({other})", inner, inner),
        inner.map(lambda one: f"sum(({one}) * 2)"),
        inner.map(lambda one: f"max by (x, namespace)({one})"),
    ),
    max_leaves=6,
)


def store_with_samples(*namespaces: str) -> Store:
    store = Store()
    for index, namespace in enumerate(namespaces):
        for name in ("a", "b"):
            for place, text in enumerate(TEXTS):
                for at in (0.0, 30.0, 60.0):
                    labels = {"namespace": namespace, "x": text}
                    store.add_sample(name, labels, at, at * (place + 1) + 1000 * index)
    return store


@given(VECTORS)
def test_a_confined_query_sees_what_it_would_if_there_were_no_other_namespace(query: str) -> None:
    forced = confine_query(query, "namespace", "shop")
    assert store_with_samples("shop", "bank", "").evaluate_expression(forced, 60.0) == store_with_samples(
        "shop"
    ).evaluate_expression(query, 60.0)
