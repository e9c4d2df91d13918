"""A small sample of the crashes; `make scaling-faults` is the whole."""

import pytest

from spillway_scaling.restart import MANIFESTS, crash_at_each_record


@pytest.mark.parametrize("kind", MANIFESTS)
def test_a_crash_at_a_record_changes_no_later_decision(kind: str) -> None:
    found = crash_at_each_record(kind, records=200, seed=2, every=10)
    assert (found.boundaries, found.differed) == (20, ())
    assert found.decisions > 2
