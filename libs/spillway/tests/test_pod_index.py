"""What the bound pods of a cluster keep others away by."""

import numpy as np

from spillway.feasibility.pod_index import Entries, PodIndex
from spillway.model import PodSelector, PodTable, PodTerm, Requirement

TERM = PodTerm(PodSelector((Requirement("app", "In", ("web",)),)), namespace_selector=PodSelector(()))


def put_pods(index: PodIndex, row: int, *tables: PodTable) -> None:
    pods = np.arange(len(tables))
    index.replace_pods(np.array([row]), tables, Entries(np.zeros(len(tables), np.int64), pods, np.ones_like(pods)))


def pod_table(name: str, namespace: str = "a") -> PodTable:
    return PodTable(namespace, (("name", name),), apart=(TERM,))


def test_a_term_of_many_pods_is_looked_at_once() -> None:
    """Labels tell these pods apart, and each decision compared the term of each of them."""
    index = PodIndex()
    put_pods(index, 0, *(pod_table(f"p{number}") for number in range(5)), pod_table("other", "b"))
    assert list(index.anti_affinity_terms_about("shop")) == [("a", TERM, [0, 1, 2, 3, 4]), ("b", TERM, [5])]


def test_a_copy_is_changed_apart() -> None:
    index = PodIndex()
    put_pods(index, 0, pod_table("p0"))
    other = index.independent_copy()
    put_pods(other, 1, pod_table("p1"))
    assert list(index.anti_affinity_terms_about("shop")) == [("a", TERM, [0])]
    assert list(other.anti_affinity_terms_about("shop")) == [("a", TERM, [0, 1])]
