"""The planner says of the committed cases what the Kubernetes scheduler's own plugins said, without Go."""

import json
from functools import cache
from pathlib import Path

import msgspec
import pytest

from .spillway_oracle.cases import Case, read_case
from .spillway_oracle.committed import DIFFERING_FILE, FOUND_FOLDER, NOT_MODELLED_FILE, read_cases, read_list
from .spillway_oracle.templates import FEATURES
from .spillway_oracle.verdicts import AGREES, INVALID, UNMODELLED, Truth, Verdict, planner_on, verdict


@cache
def committed() -> tuple[tuple[Case, Truth], ...]:
    return tuple(read_cases())


@cache
def verdicts() -> dict[str, Verdict]:
    return {case.name: verdict(truth, planner_on(case)) for case, truth in committed()}


@pytest.mark.parametrize("feature", FEATURES)
def test_the_planner_agrees_with_the_scheduler(feature: str) -> None:
    """On every committed case about this, but for those that are listed by name as differing."""
    found = {case.name: verdicts()[case.name] for case, _ in committed() if case.about == feature}
    differing = {name: f"{one.kind}: {one.detail}" for name, one in found.items() if one.disagrees}
    listed = read_list(DIFFERING_FILE)
    assert differing == {name: text for name, text in listed.items() if name in found}


@pytest.mark.parametrize("file", sorted(FOUND_FOLDER.glob("*.json")), ids=lambda file: file.stem)
def test_a_case_that_once_differed_agrees(file: Path) -> None:
    found = json.loads(file.read_text())
    truth = msgspec.convert(found["truth"], Truth)
    one = verdict(truth, planner_on(read_case(found["case"])))
    assert one.kind == AGREES, one.detail


def test_what_is_not_modelled_is_listed_by_name() -> None:
    """No case is passed over silently, and none stays listed that is modelled now."""
    found = {name: one.detail for name, one in verdicts().items() if one.kind == UNMODELLED}
    assert found == read_list(NOT_MODELLED_FILE)


def test_there_are_enough_cases() -> None:
    """At least 500, nearly all such that a server takes them, and mostly ones in which something fits."""
    kinds = [one.kind for one in verdicts().values()]
    assert len(kinds) >= 500
    assert kinds.count(INVALID) < len(kinds) / 10
    assert sum(truth.most > 0 for _, truth in committed()) > len(kinds) / 2
