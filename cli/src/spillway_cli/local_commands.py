"""Commands on the parts that run on this machine: up, down, processes, demo. spillway_local does the work."""

import importlib
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from spillway_cli.config import ADDRESSES_FILE, addresses_file, read_addresses
from spillway_cli.exits import CommandFailed, exiting_on_error, print_message
from spillway_cli.fitting_table import Table
from spillway_cli.options import Format, Output
from spillway_cli.output import duration_text, make_table, print_for_machines, stdout_console

app = typer.Typer()

RUN_FOLDER = ADDRESSES_FILE.parent
ANSWER_SECONDS = 2.0
"""The time after which a process counts as silent. All are asked at the same time."""
ENDING = "interrupted: the started processes are being stopped, for up to half a minute"


class MemberKind(StrEnum):
    sim = "sim"
    kube = "kube"


class BusKind(StrEnum):
    kafka = "kafka"
    memory = "memory"


Folder = Annotated[Path, typer.Option("--folder", file_okay=False, help="Folder of data, logs and credentials.")]


@app.command(epilog="Examples:  spillway up  ·  spillway up --members kube")
def up(
    members: Annotated[
        MemberKind, typer.Option(help="sim: simulated members; kube: real control planes.")
    ] = MemberKind.sim,
    instances: Annotated[
        int, typer.Option(min=1, max=9, help="Number of instances of each service; two show take-over.")
    ] = 2,
    folder: Folder = RUN_FOLDER,
) -> None:
    """Start Kafka, Redis, the services and member clusters on this machine, and wait until they are ready."""
    with exiting_on_error(), _failing_on_runtime_error():
        stack = _make_stack(folder, members=members.value, instances=instances)
        with stopping_stack_when_interrupted(stack):
            addresses = stack.start()
        command = own_command_name()
        typer.echo(f"planners     {', '.join(addresses.planners)}")
        typer.echo(f"Kafka        {addresses.kafka}")
        typer.echo(f"credentials  {addresses.credentials}")
        typer.echo(f"next         {command} cluster join own-1 --credential own-1 --tier own; {command} status")


@app.command()
def down(folder: Folder = RUN_FOLDER) -> None:
    """Stop what `spillway up` started. Data and logs stay."""
    with exiting_on_error(), _failing_on_runtime_error():
        is_there = folder.is_dir()
        _make_stack(folder).stop()
    if is_there:
        print_message(f"stopped; data and logs stay in {folder}")
    else:
        above = addresses_file().parent
        where = (
            f"; `{own_command_name()} down --folder {above}` stops that of this checkout" if above != RUN_FOLDER else ""
        )
        print_message(f"nothing was started in {folder}{where}")


@app.command()
def processes(folder: Folder = RUN_FOLDER, output: Output = Format.table) -> None:
    """Show the processes that `spillway up` started, and where their logs are."""
    with exiting_on_error(), _failing_on_runtime_error():
        found = read_processes(folder)
        if output is not Format.table:
            print_for_machines(found, output)
        elif found:
            stdout_console().print(processes_table(found))
        else:
            print_message("nothing was started here: `spillway up` starts the services")


@app.command(epilog="Examples:  spillway demo  ·  spillway demo --members kube  ·  spillway demo --bus memory")
def demo(
    members: Annotated[
        MemberKind, typer.Option(help="sim: simulated members; kube: real control planes.")
    ] = MemberKind.sim,
    bus: Annotated[
        BusKind, typer.Option(help="kafka: real Kafka, Redis and processes; memory: all in this process.")
    ] = BusKind.kafka,
    folder: Annotated[Path, typer.Option(file_okay=False, help="Folder of the demo's data and logs.")] = RUN_FOLDER
    / "demo",
) -> None:
    """Run the demo and check its result in the API of each demo cluster."""
    with exiting_on_error(), _failing_on_runtime_error():
        began = time.monotonic()

        def print_with_elapsed_seconds(line: str) -> None:
            typer.echo(f"{time.monotonic() - began:7.1f} s  {line}")

        try:
            checks = _import_local_module("demo").run_demo(bus.value, members.value, folder, print_with_elapsed_seconds)
        except _import_local_module("tools").MissingTool as error:
            raise CommandFailed(f"{error}\nwithout it: make demo BUS=memory, everything in one process") from error
        typer.echo(f"\nChecked in the APIs of the demo clusters ({members.value} members, bus {bus.value}):")
        for check in checks:
            typer.echo(f"  ✓ {check}")
        typer.echo(f"{len(checks)} checks hold; {time.monotonic() - began:.1f} s in all.")


def read_processes(folder: Path) -> list[dict[str, Any]]:
    """Returns the processes of a run folder; none if nothing was ever started there.

    state: the state that supervisord reports.
    answers: the answer of the process itself, because a process that exists may hang; empty if it has no health port.
    """
    if not folder.is_dir():
        return []
    statuses = _make_stack(folder).status()
    answers = _health_answer_by_process(folder, [status.name for status in statuses if status.pid])
    return [
        {
            "name": status.name,
            "state": status.state,
            "answers": answers.get(status.name, ""),
            "pid": status.pid,
            "uptime_seconds": status.uptime_seconds,
            "log": str(status.log),
            "problem": status.problem,
        }
        for status in statuses
    ]


def _health_answer_by_process(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Returns for each process "ready", or why it is not."""
    from spillway_cli.doctor.pages import read_readiness_text

    place_by_name = dict(
        entry.split("=", 1) for entry in read_addresses(folder / ADDRESSES_FILE.name).get("health", ())
    )
    asked = [name for name in names if name in place_by_name]
    with ThreadPoolExecutor(max_workers=max(1, len(asked))) as threads:
        told = threads.map(lambda name: read_readiness_text(place_by_name[name], ANSWER_SECONDS), asked)
        return dict(zip(asked, told, strict=True))


def processes_table(found: Sequence[dict[str, Any]]) -> Table:
    rows = [
        (
            each["name"],
            each["state"],
            each["answers"],
            each["pid"] or "",
            duration_text(int(1000 * each["uptime_seconds"])) if each["pid"] else "",
            each["log"],
            each["problem"],
        )
        for each in found
    ]
    return make_table(("PROCESS", "STATE", "ANSWERS", "PID", "UP", "LOG", ""), rows, right=("PID", "UP"))


def own_command_name() -> str:
    """Returns how users can call this command here: a relative path, as in a checkout, its name, or its full path."""
    called_as, here = Path(sys.argv[0]).absolute(), Path.cwd()
    if called_as.is_relative_to(here):
        return str(called_as.relative_to(here))
    return called_as.name if shutil.which(called_as.name) else str(called_as)


@contextmanager
def stopping_stack_when_interrupted(stack: Any) -> Iterator[None]:
    """Stops what was started if Ctrl-C comes during the start. What ran before is left as it is."""
    ran_before = bool(stack.status())
    try:
        yield
    except KeyboardInterrupt:
        if ran_before:
            print_message(f"interrupted; processes that ran before go on: `{own_command_name()} down` stops them")
        else:
            print_message(ENDING)
            try:
                stack.stop()
            except KeyboardInterrupt:
                # Without a terminal two signals come at once: to the whole group, and again from `uv run`.
                stack.stop_without_waiting()
                print_message(
                    "interrupted again: the processes are being stopped, and this command does not wait for them"
                )
        raise


def _make_stack(folder: Path, **options: Any) -> Any:
    stack = _import_local_module("stack")
    return stack.Stack(stack.StackOptions(folder=folder, **options), print_message)


def _import_local_module(module: str) -> Any:
    """Imports a module of spillway_local only when it is needed, because it imports much."""
    try:
        return importlib.import_module(f"spillway_local.{module}")
    except ModuleNotFoundError as error:
        raise CommandFailed(f"this installation cannot run the parts locally: {error}") from None


@contextmanager
def _failing_on_runtime_error() -> Iterator[None]:
    """Turns RuntimeErrors of spillway_local into CommandFailed, because their texts are written for users."""
    try:
        yield
    except RuntimeError as error:
        raise CommandFailed(str(error)) from error
