"""A command imports the client each time it runs: what only a server needs stays out of it, and what others ask."""

import importlib
import subprocess
import sys
from types import ModuleType

import pytest

from spillway import api
from spillway.rpc.calls import LENDING, PLANNER, SCALING
from spillway.verb_names import VERBS

OF_SERVERS = (
    "numpy",
    "planner",
    "prometheus_client",
    "structlog",
    "yaml",
    "zstandard",
    "spillway.addresses",
    "spillway.bus",
    "spillway.events",
    "spillway.metrics",
    "spillway.rpc.front",
    "spillway.rpc.callers",
    "spillway.v1.events_pb2",
    "spillway.wire",
)


def test_a_client_imports_nothing_that_only_a_server_needs() -> None:
    script = f"import sys, spillway.rpc.client; print([name for name in {OF_SERVERS} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_the_planner_s_values_are_each_found_in_the_module_that_makes_it_and_made_when_named() -> None:
    made = {module: _names_declared_in(importlib.import_module(f"spillway.{module}")) for module in api._MODULES}
    assert {module: set(names) for module, names in api._MODULES.items()} == made
    assert all(isinstance(getattr(api, name), type) for names in made.values() for name in names)
    with pytest.raises(AttributeError, match="NoRequest"):
        api.NoRequest  # noqa: B018


def _names_declared_in(module: ModuleType) -> set[str]:
    return {name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__}


def test_every_verb_is_one_call_of_one_service() -> None:
    assert sorted((*PLANNER.calls, *SCALING.calls, *LENDING.calls)) == sorted(VERBS)
