"""Karmada's and KubeAdmiral's own cases, answered by our compatible strategies. The counts are in docs/strategies.md.

The vectors lie beside the repository (../shared/vectors/federation) and are no part of it; without them: skipped.
"""

import re

import pytest

from spillway_vectors.federation import ANSWERS, FOLDER, ROOT, differing_answers, read_cases_and_count

pytestmark = pytest.mark.skipif(FOLDER is None, reason="no ../shared/vectors/federation beside the repository")

PAGE = (ROOT / "docs" / "strategies.md").read_text()


@pytest.mark.parametrize("name", ANSWERS)
def test_every_case_of_a_file_is_answered_alike(name: str) -> None:
    """None fails, and the page says how many there are."""
    found, count = read_cases_and_count(name)
    assert len(found) == count
    assert list(differing_answers(name)) == []
    row = re.search(rf"^\| {re.escape(name)} \| ([\d,]+) \| ([\d,]+) \|", PAGE, re.MULTILINE)
    assert row is not None, "every file has a row in docs/strategies.md"
    assert [int(figure.replace(",", "")) for figure in row.groups()] == [count, count]


def test_no_file_is_left_out() -> None:
    assert FOLDER is not None
    assert {path.name for path in FOLDER.glob("*.json*")} == set(ANSWERS)
