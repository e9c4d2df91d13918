"""Defines the `spillway` command with its connection flags."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from spillway_cli import VERSION, exits
from spillway_cli.by_name import ByName
from spillway_cli.commands_by_name import COMMANDS, NAME_BY_FORMER_NAME
from spillway_cli.options import Flags


class _Command(ByName):
    """The group of all commands. An error in an option or an argument names the bad value."""

    def __init__(self, **rest: Any) -> None:
        super().__init__(table=COMMANDS, **rest)

    def make_context(self, *args: Any, **named: Any) -> Any:
        with _naming_bad_value():
            return super().make_context(*args, **named)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in NAME_BY_FORMER_NAME and not ctx.resilient_parsing:
            name = NAME_BY_FORMER_NAME[args[0]]
            ctx.fail(f"{args[0]!r} is called {name!r} now: `spillway {name} --help` describes it.")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with _naming_bad_value():
            return super().invoke(ctx)


@contextmanager
def _naming_bad_value() -> Iterator[None]:
    try:
        yield
    except typer.BadParameter as error:
        # The error is recognized by its method: importing its type takes long, and only errors need it.
        errors: list[Any] = getattr(error.__cause__, "errors", list)()
        value = repr(errors[0]["input"]) if errors else ""
        error.message = error.message.removeprefix("Value error, ")
        if value not in error.message:
            error.message = f"{value}: {error.message}"
        raise


app = typer.Typer(
    cls=_Command,
    name="spillway",
    help="Place workloads on many Kubernetes clusters: own clusters first, the cloud for the rest.",
    epilog=exits.HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # Importing rich takes longer than showing help.
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


def _print_version_and_exit(is_asked: bool) -> None:
    if is_asked:
        typer.echo(VERSION)
        raise typer.Exit


@app.callback()
def read_connection_flags(  # noqa: PLR0913 - the options of a command are its parameters
    context: typer.Context,
    *,
    endpoint: Annotated[
        list[str] | None, typer.Option(help="Planner's host:port. Repeatable.", show_default=False)
    ] = None,
    scaling_endpoint: Annotated[
        list[str] | None, typer.Option(help="Host:port of hpa. Repeatable.", show_default=False)
    ] = None,
    lending_endpoint: Annotated[
        list[str] | None, typer.Option(help="Host:port of the descheduler. Repeatable.", show_default=False)
    ] = None,
    fleet: Annotated[
        str | None, typer.Option(help="Id of the fleet; an answer of another fleet is refused.", show_default=False)
    ] = None,
    token: Annotated[
        str | None, typer.Option(help="Token that identifies you to the services.", show_default=False)
    ] = None,
    ca: Annotated[str | None, typer.Option(help="CA file; turns TLS on.", show_default=False)] = None,
    kafka: Annotated[str | None, typer.Option(help="Bootstrap servers of Kafka.", show_default=False)] = None,
    config: Annotated[
        Path | None, typer.Option(help="Config file, TOML.", show_default="in your config folder")
    ] = None,
    call_seconds: Annotated[
        float | None, typer.Option(help="Seconds that one call may take.", min=0.1, show_default=False)
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version_and_exit, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Flags win over SPILLWAY_* variables, these over the config file; `spillway config` shows which won."""
    values = {
        "endpoints": tuple(endpoint) if endpoint else None,
        "scaling_endpoints": tuple(scaling_endpoint) if scaling_endpoint else None,
        "lending_endpoints": tuple(lending_endpoint) if lending_endpoint else None,
        "fleet": fleet,
        "token": token,
        "ca": ca,
        "kafka": kafka,
        "timeout_seconds": call_seconds,
    }
    context.obj = Flags(values, config)


OBJECTS_BETWEEN_COLLECTIONS = 100_000
"""How many more objects there are before Python looks for garbage. With Python's own 700, the imports of `spillway get`
start some sixty collections, which find next to nothing."""


def main() -> None:
    """Runs the command of sys.argv and ends the process with its exit code."""
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    try:
        with exits.exiting_on_error():
            app()
    except typer.Exit as ended:
        sys.exit(ended.exit_code)
    finally:
        # The process is about to end, so its last collection need not look at any object.
        gc.freeze()
