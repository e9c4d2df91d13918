"""The engine that all tests of compose share."""

from collections.abc import Iterator

import pytest

from .engine import Engine
from .project import engine_with_stand_ins


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with engine_with_stand_ins() as found:
        yield found
