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

from spillway_cli.config import ADDRESSES_FILE, addresses_file, addresses_in
from spillway_cli.exits import CommandFailed, guarded, say
from spillway_cli.fitting_table import Table
from spillway_cli.options import Format, Output
from spillway_cli.output import console, duration, print_machine, table

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
    with guarded(), _failures():
        stack = _stack(folder, members=members.value, instances=instances)
        with ended_when_interrupted(stack):
            addresses = stack.start()
        typer.echo(f"planners     {', '.join(addresses.planners)}")
        typer.echo(f"Kafka        {addresses.kafka}")
        typer.echo(f"credentials  {addresses.credentials}")
        typer.echo(f"next         {own_name()} cluster join own-1 --credential own-1 --tier own; {own_name()} status")


@app.command()
def down(folder: Folder = RUN_FOLDER) -> None:
    """Stop what `spillway up` started. Data and logs stay."""
    with guarded(), _failures():
        is_there = folder.is_dir()
        _stack(folder).stop()
    if is_there:
        say(f"stopped; data and logs stay in {folder}")
    else:
        above = addresses_file().parent
        where = f"; `{own_name()} down --folder {above}` stops that of this checkout" if above != RUN_FOLDER else ""
        say(f"nothing was started in {folder}{where}")


@app.command()
def processes(folder: Folder = RUN_FOLDER, output: Output = Format.table) -> None:
    """Show the processes that `spillway up` started, and where their logs are."""
    with guarded(), _failures():
        found = processes_of(folder)
        if output is not Format.table:
            print_machine(found, output)
        elif found:
            console().print(processes_table(found))
        else:
            say("nothing was started here: `spillway up` starts the services")


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
    """Tell the main story and verify it from the members' own APIs: clusters report, a release is split own-first."""
    with guarded(), _failures():
        began = time.monotonic()

        def tell(line: str) -> None:
            typer.echo(f"{time.monotonic() - began:7.1f} s  {line}")

        try:
            checks = _local("demo").run_demo(bus.value, members.value, folder, tell)
        except _local("tools").MissingTool as error:
            raise CommandFailed(f"{error}\nwithout it: make demo BUS=memory, everything in one process") from error
        typer.echo(f"\nVerified from the members' own APIs ({members.value} members, bus {bus.value}):")
        for check in checks:
            typer.echo(f"  ✓ {check}")
        typer.echo(f"{len(checks)} checks hold; {time.monotonic() - began:.1f} s in all.")


def processes_of(folder: Path) -> list[dict[str, Any]]:
    """Returns the processes of a run folder; none if nothing was ever started there.

    state: the state that supervisord reports.
    answers: the answer of the process itself, because a process that exists may hang; empty if it has no health port.
    """
    if not folder.is_dir():
        return []
    statuses = _stack(folder).status()
    answers = _answers(folder, [status.name for status in statuses if status.pid])
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


def _answers(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Returns for each process "ready", or why it is not."""
    from spillway_cli.doctor.pages import read_ready

    place_by_name = dict(entry.split("=", 1) for entry in addresses_in(folder / ADDRESSES_FILE.name).get("health", ()))
    asked = [name for name in names if name in place_by_name]
    with ThreadPoolExecutor(max_workers=max(1, len(asked))) as threads:
        told = threads.map(lambda name: read_ready(place_by_name[name], ANSWER_SECONDS), asked)
        return dict(zip(asked, told, strict=True))


def processes_table(found: Sequence[dict[str, Any]]) -> Table:
    rows = [
        (
            each["name"],
            each["state"],
            each["answers"],
            each["pid"] or "",
            duration(int(1000 * each["uptime_seconds"])) if each["pid"] else "",
            each["log"],
            each["problem"],
        )
        for each in found
    ]
    return table(("PROCESS", "STATE", "ANSWERS", "PID", "UP", "LOG", ""), rows, right=("PID", "UP"))


def own_name() -> str:
    """Returns how users can call this command here: a relative path, as in a checkout, its name, or its full path."""
    called_as, here = Path(sys.argv[0]).absolute(), Path.cwd()
    if called_as.is_relative_to(here):
        return str(called_as.relative_to(here))
    return called_as.name if shutil.which(called_as.name) else str(called_as)


@contextmanager
def ended_when_interrupted(stack: Any) -> Iterator[None]:
    """Stops what was started if Ctrl-C comes during the start. What ran before is left as it is."""
    ran_before = bool(stack.status())
    try:
        yield
    except KeyboardInterrupt:
        if ran_before:
            say(f"interrupted; processes that ran before go on: `{own_name()} down` stops them")
        else:
            say(ENDING)
            try:
                stack.stop()
            except KeyboardInterrupt:
                # Without a terminal two signals come at once: to the whole group, and again from `uv run`.
                stack.stop_without_waiting()
                say("interrupted again: the processes are being stopped, and this command does not wait for them")
        raise


def _stack(folder: Path, **options: Any) -> Any:
    stack = _local("stack")
    return stack.Stack(stack.StackOptions(folder=folder, **options), say)


def _local(module: str) -> Any:
    """Imports a module of spillway_local only when it is needed, because it imports much."""
    try:
        return importlib.import_module(f"spillway_local.{module}")
    except ModuleNotFoundError as error:
        raise CommandFailed(f"this installation cannot run the parts locally: {error}") from None


@contextmanager
def _failures() -> Iterator[None]:
    """Turns RuntimeErrors of spillway_local into CommandFailed, because their texts are written for users."""
    try:
        yield
    except RuntimeError as error:
        raise CommandFailed(str(error)) from error
