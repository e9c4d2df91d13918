"""The engine that all tests of compose share."""

from collections.abc import Iterator

import pytest

from .engine import Engine
from .project import built_engine


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with built_engine() as found:
        yield found
