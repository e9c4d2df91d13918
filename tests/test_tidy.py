"""Rules of the repository that no other tool checks."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spillway.addresses import EVENT_TYPES, EVENTS_BY_TOPIC, TOPICS

ROOT = Path(__file__).parent.parent
SERVICES = ("snapshot", "planner", "propagator", "hpa", "vk-bridge", "descheduler")
FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 536
# Put together here, so that this file does not name them either.
REGISTRY_HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("proxy", "golang", "org"),
        ("repo1", "maven", "org"),
        ("registry", "npmjs", "org"),
        ("deb", "debian", "org"),
    )
)


def sources() -> Iterator[Path]:
    for folder in ("libs", "services", "cli", "local"):
        for path in (ROOT / folder).rglob("src/**/*.py"):
            if "v1" not in path.parts:
                yield path


@pytest.mark.parametrize("path", sorted(sources()), ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_are_small_and_say_what_they_are(path: Path) -> None:
    """Each module has a docstring, at most MODULE_LINES_MAX lines, and no function over 60."""
    text = path.read_text()
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "a module says in its first line what it decides or touches"
    assert len(text.splitlines()) <= MODULE_LINES_MAX
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = [node.name for node in functions if (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX]
    assert long == []


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_has_the_same_parts(service: str) -> None:
    """settings.py, core/, service.py, __main__.py and a README."""
    folder = ROOT / "services" / service
    parts = ("settings.py", "core/__init__.py", "service.py", "__main__.py")
    package = service.replace("-", "_")
    assert [part for part in parts if not (folder / "src" / package / part).is_file()] == []
    assert (folder / "README.md").is_file()


def test_every_event_is_on_a_topic_and_says_what_it_means() -> None:
    """No event without a topic, no topic without an event, no event without a sentence."""
    assert set(EVENT_TYPES) == {event for events in EVENTS_BY_TOPIC.values() for event in events}
    assert {topic.name for topic in TOPICS} == set(EVENTS_BY_TOPIC)
    undocumented = [event.__name__ for event in EVENT_TYPES if (event.__doc__ or "").startswith(f"{event.__name__}(")]
    assert undocumented == []


def test_every_metric_is_set_somewhere() -> None:
    """A metric that nobody sets says 0 for ever, which is a lie."""
    metrics = ROOT / "libs" / "spillway" / "src" / "spillway" / "metrics.py"
    declared = re.findall(r"^([A-Z][A-Z_]+): Final = ", metrics.read_text(), re.MULTILINE)
    used = set(re.findall(r"metrics\.([A-Z_]+)", "".join(path.read_text() for path in sources())))
    children = dict(re.findall(r"^([A-Z_]+): Final = .*?\b([A-Z_]+)\.labels", metrics.read_text(), re.MULTILINE))
    used |= {parent for child, parent in children.items() if child in used}
    assert [name for name in declared if name not in used | {"VERBS"}] == []


def test_no_file_names_a_registry() -> None:
    """Packages are named; where they come from is the machine's business."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    names = [name for name in listed.stdout.decode().split("\0") if name]
    if not names:
        pytest.skip("not a git checkout: the files of the project cannot be told from others")
    found = [
        name
        for name in names
        if (ROOT / name).is_file() and any(host in (ROOT / name).read_text(errors="ignore") for host in REGISTRY_HOSTS)
    ]
    assert found == []


@pytest.mark.parametrize("forbidden", ["asyncio", "time", "spillway.wire"])
def test_a_core_that_imports_what_it_must_not_fails_the_check(forbidden: str, tmp_path: Path) -> None:
    """lint-imports notices an import of IO in a core."""
    for folder in ("libs", "services", "cli", "local"):
        ignored = shutil.ignore_patterns("__pycache__", "tests", "kube")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    shutil.copy(ROOT / ".importlinter", tmp_path)
    core = tmp_path / "services" / "planner" / "src" / "planner" / "core" / "division" / "votes.py"
    core.write_text(core.read_text().replace("import heapq\n", f"import heapq\nimport {forbidden}\n"))
    found = [str(path) for path in tmp_path.glob("*/*/src")] + [str(path) for path in tmp_path.glob("*/src")]
    result = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(found)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode != 0
    assert f"planner.core.division.votes -> {forbidden}" in result.stdout
