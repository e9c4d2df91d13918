"""What conftest.py decides for all tests: which are pure, told by what they import, and how many examples are tried."""

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def conftest(pytestconfig: pytest.Config) -> Any:
    found = pytestconfig.pluginmanager.get_plugin(str(ROOT / "conftest.py"))
    assert found is not None
    return found


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
        ("tests/test_conftest.py", False),
    ],
)
def test_a_file_is_pure_by_its_imports(test: str, pure: bool, conftest: Any) -> None:
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
def test_one_import_tells(line: str, pure: bool, conftest: Any) -> None:
    assert (conftest.NOT_PURE.search(f"import pytest\n{line}\n") is None) is pure


@pytest.mark.parametrize(("text", "examples"), [("", 30), ("1", 1), ("200", 200)])
def test_the_environment_says_how_many_examples(
    text: str, examples: int, conftest: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXAMPLES", text)
    assert conftest.examples_of(conftest.EXAMPLES) == examples


@pytest.mark.parametrize("text", ["many", "0", "-1", "1.5"])
def test_a_number_of_examples_that_is_none_is_refused(
    text: str, conftest: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXAMPLES", text)
    with pytest.raises(pytest.UsageError, match=f"EXAMPLES: '{text}': expected how many examples"):
        conftest.examples_of(conftest.EXAMPLES)
