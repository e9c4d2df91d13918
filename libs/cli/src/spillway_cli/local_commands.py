"""Commands on the parts that run on this machine: up and down. The work is spillway_local.stack's."""

import importlib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from spillway_cli.exits import CommandFailed, guarded

app = typer.Typer()


class Bus(StrEnum):
    kafka = "kafka"
    memory = "memory"


class Members(StrEnum):
    sim = "sim"
    kube = "kube"


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """What spillway_local.stack.up is given. folder None: its own default."""

    bus: str
    members: str
    folder: Path | None


@app.command(epilog="Examples:  spillway up  ·  spillway up --members kube  ·  spillway up --bus memory")
def up(
    bus: Annotated[Bus, typer.Option(help="Apache Kafka, or everything in one process.")] = Bus.kafka,
    members: Annotated[Members, typer.Option(help="Simulated members, or real control planes.")] = Members.sim,
    folder: Annotated[
        Path | None, typer.Option(help="Where data and logs are kept.", show_default="the platform's own")
    ] = None,
) -> None:
    """Start Kafka, Redis, the services and member clusters on this machine."""
    with guarded():
        _stack().up(LocalOptions(bus.value, members.value, folder))


@app.command()
def down() -> None:
    """Stop what `spillway up` started."""
    with guarded():
        _stack().down()


@app.command(name="processes")
def processes() -> None:
    """Show the processes that `spillway up` started, and where their logs are."""
    with guarded():
        shown = _stack().status()
        if shown is not None:
            typer.echo(shown)


def _stack() -> Any:
    """Imported when it is needed: it brings much along."""
    try:
        return importlib.import_module("spillway_local.stack")
    except ModuleNotFoundError as error:
        raise CommandFailed(f"this installation cannot run the parts locally: {error}") from None
