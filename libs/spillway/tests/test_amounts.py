"""Amounts that members tell, within what a record holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.amounts import AMOUNT_MAX, INT64_MAX, INT64_MIN, PODS_MAX, clamp_amount, clamp_to_int64


@given(st.integers())
def test_what_is_saturated_fits_and_is_the_nearest_number_that_does(value: int) -> None:
    found = clamp_to_int64(value)
    assert INT64_MIN <= found <= INT64_MAX
    assert found == value or abs(value) > abs(found) >= INT64_MAX


@pytest.mark.parametrize(
    ("resource", "amount", "found"),
    [
        ("pods", 110, 110),
        ("pods", INT64_MAX, PODS_MAX),
        ("cpu", INT64_MAX, AMOUNT_MAX),
        ("memory", 2**45, 2**45),
        ("example.com/gpu", AMOUNT_MAX + 1, AMOUNT_MAX),
        ("cpu", -1, -1),
    ],
)
def test_an_amount_is_at_most_what_sums_stand(resource: str, amount: int, found: int) -> None:
    assert clamp_amount(resource, amount) == found


def test_sums_over_the_nodes_of_a_cluster_stay_within_64_bits() -> None:
    assert AMOUNT_MAX * 65_535 <= INT64_MAX
    assert PODS_MAX * 65_535 * 1000 <= INT64_MAX, "in thousandths, too"
