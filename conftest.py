"""What holds for every test: no example is failed for being slow on a busy machine; timings belong to make bench.

`make test` tries the same examples each time, so that who changed nothing breaks nothing; `make properties`, new ones.
EXAMPLES, in the environment, says how many of each property; where one example takes seconds, a part of them.
"""

import gc
import os
import re
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

EXAMPLES, EXAMPLES_ANEW = 30, 300
"""Of each property: where the same ones are tried each time, and where new ones are."""
ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)


def examples_of(otherwise: int) -> int:
    """What EXAMPLES says; empty says nothing. Raises UsageError."""
    text = os.environ.get("EXAMPLES") or str(otherwise)
    if not text.isdecimal() or int(text) < 1:
        raise pytest.UsageError(f"EXAMPLES: {text!r}: expected how many examples of each property, 1 or more")
    return int(text)


settings.register_profile("repeatable", ANY_SPEED, max_examples=examples_of(EXAMPLES), derandomize=True, database=None)
settings.register_profile("exploring", ANY_SPEED, max_examples=examples_of(EXAMPLES_ANEW), derandomize=False)
settings.load_profile("repeatable")


ROOT = Path(__file__).parent
NOT_PURE = re.compile(
    r"^\s*(?:from|import) (?:(?:"
    r"asyncio|multiprocessing|signal|socket|ssl|subprocess|threading"
    r"|aiohttp|aiokafka|grpc|redis|sim|spillway_cli|spillway_local"
    r"|spillway\.(?:bus|clusters|kafka|local_bus|rpc|running|store|tracing)"
    r")\b|(?:descheduler|hpa|planner|propagator|snapshot|vk_bridge)(?!\.core\b|\.settings\b))",
    re.MULTILINE,
)
"""An import of what waits, talks to others or starts processes, or of a service beyond its core and its settings."""


def is_pure(path: Path) -> bool:
    """Whether a file tests values in, values out: of the library or a service, and it imports nothing of NOT_PURE."""
    folders = path.relative_to(ROOT).parts[:1] if path.is_relative_to(ROOT) else ()
    return folders in (("libs",), ("services",)) and NOT_PURE.search(path.read_text()) is None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m pure` does not even import the other files."""
    is_test = collection_path.match("test_*.py")
    return True if is_test and config.option.markexpr == "pure" and not is_pure(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    pure = {path: is_pure(path) for path in {item.path for item in items}}
    for item in items:
        if pure[item.path]:
            item.add_marker(pytest.mark.pure)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, object, object]:
    """CPython 3.11 fails to parse a test's source for the report (AST constructor recursion depth mismatch,
    python/cpython#106905) when a collection of garbage in the middle of it formats another traceback. Then all that is
    said of a failed run is that, and not which test failed.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        return (yield)
    finally:
        if was_on:
            gc.enable()


class Call(dict[str, Any]):
    """The arguments of one call by name. of: the function's name. code: its code, since functions may share a name."""

    def __init__(self, code: CodeType, arguments: dict[str, Any]) -> None:
        super().__init__(arguments)
        self.code = code
        self.of = code.co_name


CallsOf = Callable[..., AbstractContextManager[list[Call]]]


@pytest.fixture
def calls_of() -> CallsOf:
    """For tests of how much is worked out: `with calls_of(function) as calls` has the calls in their order."""
    return _recorded_calls


@contextmanager
def _recorded_calls(*functions: FunctionType) -> Iterator[list[Call]]:
    """Sees calls as a profiler does, so nothing is replaced: in this thread and in those that begin meanwhile.

    What waits or yields is seen again each time that it goes on.
    """
    codes, calls, before = {function.__code__ for function in functions}, list[Call](), sys.getprofile()

    def note_call(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in codes:
            calls.append(Call(frame.f_code, frame.f_locals))

    threading.setprofile(note_call)
    sys.setprofile(note_call)
    try:
        yield calls
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
