"""The settings of snapshot: what its core gets of them."""

from dataclasses import fields, replace

import pytest

from snapshot.core.rules import SnapshotRules
from snapshot.settings import SnapshotSettings

NAMES = tuple(field.name for field in fields(SnapshotRules))


def test_rules_by_default_are_those_of_the_settings() -> None:
    """Tests of the core, and programs in lab/, take the rules by default."""
    assert SnapshotSettings().rules() == SnapshotRules()


@pytest.mark.parametrize("name", NAMES)
def test_a_setting_changes_the_rule_of_its_name_alone(name: str) -> None:
    other = ("app",) if name == "ignored_pod_labels" else getattr(SnapshotSettings(), name) + 1
    assert replace(SnapshotSettings(), **{name: other}).rules() == replace(SnapshotRules(), **{name: other})
