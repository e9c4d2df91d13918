"""Tests that ask the oracle need its program, one needs a control plane, those of the committed cases need neither."""

import os

import pytest

from spillway_oracle.binary import is_oracle_built


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    asked_for = os.environ.get("SPILLWAY_KUBE") == "1"
    for item in items:
        if item.path.name == "test_oracle.py" and not (asked_for or is_oracle_built()):
            item.add_marker(pytest.mark.skip(reason="the oracle is not built: `make oracle`, or set SPILLWAY_KUBE=1"))
        if item.path.name == "test_real_scheduler.py" and not asked_for:
            item.add_marker(pytest.mark.skip(reason="minutes on a real control plane: `make test-kube`"))
