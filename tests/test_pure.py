"""Which tests `make check` runs: those of values in and values out, told by what they import."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("test", "pure"),
    [
        ("services/planner/tests/test_room.py", True),
        ("services/hpa/tests/test_evaluating.py", True),
        ("libs/spillway/tests/test_amounts.py", True),
        ("services/planner/tests/test_log.py", False),
        ("services/vk-bridge/tests/test_service.py", False),
        ("libs/spillway/tests/test_kafka.py", False),
        ("local/tests/test_stack.py", False),
        ("tests/test_pure.py", False),
    ],
)
def test_a_file_is_pure_by_its_imports(test: str, pure: bool, pytestconfig: pytest.Config) -> None:
    conftest = pytestconfig.pluginmanager.get_plugin(str(ROOT / "conftest.py"))
    assert conftest is not None
    assert conftest.is_pure(ROOT / test) is pure


@pytest.mark.parametrize(
    ("line", "pure"),
    [
        ("from planner.core.feasibility import room", True),
        ("from hpa.settings import HpaSettings", True),
        ("from spillway.api import ApplyRequest", True),
        ("from spillway.simulated import Other", True),
        ("import asyncio", False),
        ("    from sim.core import routes", False),
        ("from spillway.kafka.bus import KafkaBus", False),
        ("from planner import service", False),
        ("from vk_bridge.cluster.copies import Copies", False),
        ("import subprocess", False),
    ],
)
def test_one_import_tells(line: str, pure: bool, pytestconfig: pytest.Config) -> None:
    conftest = pytestconfig.pluginmanager.get_plugin(str(ROOT / "conftest.py"))
    assert conftest is not None
    assert (conftest.NOT_PURE.search(f"import pytest\n{line}\n") is None) is pure
