"""Commands are known by name without their modules, and a command imports what it needs alone."""

import importlib
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

import spillway_cli
from spillway_cli.by_name import command_name_of
from spillway_cli.commands_by_name import COMMANDS, CommandEntry, CommandGroup
from spillway_cli.main import app

HEAVY = frozenset((
    "aiokafka", "asyncio", "cryptography", "grpc", "msgspec", "numpy", "opentelemetry", "planner",
    "prometheus_client", "pydantic", "rich", "spillway", "spillway_local", "structlog", "yaml",
))  # fmt: skip
"""Packages of which each takes longer to import than to show the version takes."""

Spillway = Any

VERBS: dict[str, CommandEntry] = {
    " ".join(words): verb
    for name, entry in COMMANDS.items()
    for words, verb in (
        [((name,), entry)]
        if isinstance(entry, CommandEntry)
        else [((name, own), verb) for own, verb in entry.verbs.items()]
    )
}
"""By their words, as `cluster join`."""
MODULES = sorted({verb.module for verb in VERBS.values()})
FOLDER = Path(spillway_cli.__file__).parent


def commands_of_module(module: str) -> dict[str, Any]:
    return {
        command_name_of(one): one for one in importlib.import_module(f"spillway_cli.{module}").app.registered_commands
    }


def test_every_module_of_commands_is_in_the_table() -> None:
    assert sorted(file.stem for file in FOLDER.glob("*_commands.py")) == MODULES


@pytest.mark.parametrize("module", MODULES)
def test_the_table_has_the_commands_that_a_module_declares(module: str) -> None:
    assert {words.rpartition(" ")[2] for words, verb in VERBS.items() if verb.module == module} == set(
        commands_of_module(module)
    )


@pytest.mark.parametrize("words", VERBS)
def test_the_table_has_the_line_of_help_of_each(words: str) -> None:
    command: Any = typer.main.get_command(app)
    for word in words.split():
        command = command.commands[word]
    assert VERBS[words].help == " ".join(command.help.partition("\n\n")[0].split())


@pytest.mark.parametrize(
    "arguments", [(), *((name,) for name, entry in COMMANDS.items() if isinstance(entry, CommandGroup))]
)
def test_help_of_a_group_lists_its_commands_in_their_order(arguments: tuple[str, ...]) -> None:
    entry = COMMANDS[arguments[0]] if arguments else None
    names = entry.verbs if isinstance(entry, CommandGroup) else COMMANDS
    shown = CliRunner().invoke(app, [*arguments, "--help"]).stdout.partition("Commands:\n")[2]
    first = [line.split()[0] for line in shown.splitlines() if line.startswith("  ") and line[2:3].strip()]
    assert first[: len(names)] == list(names)


def test_the_version_is_that_of_the_package_and_shown_by_command_and_option() -> None:
    shown = [CliRunner().invoke(app, [words]) for words in ("version", "--version")]
    assert [(one.exit_code, one.stdout) for one in shown] == [(0, f"{version('spillway-cli')}\n")] * 2


ELSEWHERE = frozenset((
    "aiohttp", "aiokafka", "cryptography", "descheduler", "hpa", "numpy", "planner",
    "prometheus_client", "propagator", "pydantic", "redis", "sim", "snapshot", "spillway_local", "structlog",
    "vk_bridge", "yaml", "zstandard",
    "carried", "grouping", "manifests", "many", "scale_policies", "scaling_tables", "waiting", "workloads",
    "spillway.addresses", "spillway.api_brakes", "spillway.api_changes", "spillway.api_clusters",
    "spillway.api_lending", "spillway.api_questions", "spillway.api_scaling", "spillway.bus", "spillway.columns",
    "spillway.events", "spillway.metrics", "spillway.model", "spillway.v1.lending_pb2",
    "spillway.v1.scaling_pb2", "spillway.wire",
))  # fmt: skip
"""What a question about workloads has no use for: packages, modules of the command, and modules of the library."""


def packages_imported_by(*arguments: str) -> frozenset[str]:
    """Returns the packages that a command imports, from a new interpreter; of spillway and spillway_cli each module."""
    script = (
        "import json, sys\nfrom spillway_cli.main import main\nsys.argv[1:] = json.loads(sys.argv[1])\n"
        "try:\n    main()\nexcept SystemExit:\n    print(json.dumps(list(sys.modules)), file=sys.stderr)"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, json.dumps(arguments)], capture_output=True, text=True, check=True
    )
    modules = json.loads(run.stderr.splitlines()[-1])
    own = {name.removeprefix("spillway_cli.") for name in modules if name.startswith("spillway_cli.")}
    of_library = {name for name in modules if name.startswith("spillway.")}
    return frozenset({name.partition(".")[0] for name in modules} | own | of_library)


@pytest.mark.parametrize(
    ("arguments", "module"),
    [
        (("version",), "own_commands"),
        (("--version",), ""),
        (("--help",), ""),
        (("versio",), ""),
        (("cluster", "--help"), ""),
        (("get", "--help"), "workload_commands"),
        (("get",), "workload_commands"),
    ],
)
def test_a_command_that_asks_nobody_imports_none_of_what_takes_long(arguments: tuple[str, ...], module: str) -> None:
    found = packages_imported_by(*arguments)
    assert found & HEAVY == set()
    assert found & set(MODULES) == ({module} if module else set())


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("get", "web"), id="get"),
        pytest.param(("get", "web", "--history", "3", "-n", "shop", "-o", "json"), id="get with options"),
        pytest.param(("list",), id="list"),
    ],
)
def test_a_question_about_workloads_imports_nothing_that_only_others_need(
    spillway: Spillway, arguments: tuple[str, ...]
) -> None:
    """Whoever waits for the answer waits for each of these modules first: NumPy alone takes as long as all the rest."""
    spillway.planner.replicas |= {("default", "web"): 60, ("shop", "web"): 3}
    found = packages_imported_by("--endpoint", spillway.address, *arguments)
    assert len(spillway.planner.asked) > 0
    assert found & ELSEWHERE == set()
    assert found & set(MODULES) == {"workload_commands"}


def test_a_refusal_imports_no_more_than_an_answer(spillway: Spillway) -> None:
    found = packages_imported_by("--endpoint", spillway.address, "get", "nosuch")
    assert len(spillway.planner.asked) > 0
    assert found & ELSEWHERE == set()
