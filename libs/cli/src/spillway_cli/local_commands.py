"""Commands on the parts that run on this machine: up, down, processes. The work is spillway_local.stack's."""

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from spillway_cli.config import ADDRESSES_FILE
from spillway_cli.exits import CommandFailed, guarded, say
from spillway_cli.output import Format, console, duration, print_machine, table
from spillway_cli.session import Output

app = typer.Typer()

RUN_FOLDER = ADDRESSES_FILE.parent


class Members(StrEnum):
    sim = "sim"
    kube = "kube"


Folder = Annotated[Path, typer.Option("--folder", help="Where data, logs and credentials are kept.")]


@app.command(epilog="Examples:  spillway up  ·  spillway up --members kube")
def up(
    members: Annotated[Members, typer.Option(help="Simulated members, or real control planes.")] = Members.sim,
    instances: Annotated[int, typer.Option(min=1, max=9, help="Of each service; two show take-over.")] = 2,
    folder: Folder = RUN_FOLDER,
) -> None:
    """Start Kafka, Redis, the services and member clusters on this machine, and wait until they are ready."""
    with guarded(), _failures():
        addresses = _stack(folder, members=members.value, instances=instances).up()
        typer.echo(f"planners     {', '.join(addresses.planners)}")
        typer.echo(f"Kafka        {addresses.kafka}")
        typer.echo(f"credentials  {addresses.credentials}")


@app.command()
def down(folder: Folder = RUN_FOLDER) -> None:
    """Stop what `spillway up` started. Data and logs stay."""
    with guarded(), _failures():
        _stack(folder).down()


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
            say("nothing was started here: `spillway up` does")


def processes_of(folder: Path) -> list[dict[str, Any]]:
    """The processes of a run folder; none when nothing was ever started there."""
    if not folder.is_dir():
        return []
    return [
        {
            "name": status.name,
            "state": status.state,
            "pid": status.pid,
            "uptime_seconds": status.uptime_seconds,
            "log": str(status.log),
            "problem": status.problem,
        }
        for status in _stack(folder).status()
    ]


def processes_table(found: Sequence[dict[str, Any]]) -> Table:
    rows = [
        (
            each["name"],
            each["state"],
            each["pid"] or "",
            duration(int(1000 * each["uptime_seconds"])) if each["pid"] else "",
            each["log"],
            each["problem"],
        )
        for each in found
    ]
    return table(("PROCESS", "STATE", "PID", "UP", "LOG", ""), rows, right=("PID", "UP"))


def _stack(folder: Path, **options: Any) -> Any:
    """Imported when it is needed: it brings much along."""
    try:
        stack = importlib.import_module("spillway_local.stack")
    except ModuleNotFoundError as error:
        raise CommandFailed(f"this installation cannot run the parts locally: {error}") from None
    return stack.Stack(stack.StackOptions(folder=folder, **options), say)


@contextmanager
def _failures() -> Iterator[None]:
    """What spillway_local cannot do it says in RuntimeErrors for people."""
    try:
        yield
    except RuntimeError as error:
        raise CommandFailed(str(error)) from error
