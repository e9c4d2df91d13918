"""Which actions are allowed for an object that was not read."""

from typing import get_args

import pytest

from propagator.core.actions import (
    NOTHING,
    Action,
    Apply,
    ApplyDependency,
    Create,
    Delete,
    DeleteDependency,
    EnsureNamespace,
    Hold,
    Look,
    LookForRivals,
    PatchDependencyMarks,
    PatchMarks,
    PatchReplicas,
    ReadAfresh,
    Report,
    ScaleDown,
    needs_read_object,
)
from propagator.core.live import DependencyReference

CONFIG = DependencyReference("ConfigMap", "web-config")
ROWS = {
    "it creates the object": (Create({}), False),
    "it creates the namespace": (EnsureNamespace("shop"), False),
    "it applies a dependency": (ApplyDependency(CONFIG, {}, ""), False),
    "it looks for dependencies": (Look(frozenset({CONFIG})), False),
    "it looks who else sets the replicas": (LookForRivals(), True),
    "it reads the object afresh": (ReadAfresh("Deployment"), True),
    "it applies the object": (Apply({}, "1", False), True),
    "it patches the replicas": (PatchReplicas({}, "1", False), True),
    "it scales the object down": (ScaleDown({}, "1", False), True),
    "it patches the marks": (PatchMarks({}, "1"), True),
    "it deletes the object": (Delete("u", "1"), True),
    "it patches a dependency's marks": (PatchDependencyMarks(CONFIG, {}, "1"), True),
    "it deletes a dependency": (DeleteDependency(CONFIG, "u", "1"), True),
    "it reports": (Report("Refused", "quota"), True),
    "it holds": (Hold("why"), True),
    "nothing is to be done": (NOTHING, True),
}


@pytest.mark.parametrize(("action", "needs_read"), ROWS.values(), ids=ROWS.keys())
def test_what_is_only_done_to_an_object_that_was_read(action: Action, needs_read: bool) -> None:
    assert needs_read_object(action) is needs_read


def test_every_action_has_a_row() -> None:
    assert {type(action) for action, _ in ROWS.values()} == set(get_args(Action))
