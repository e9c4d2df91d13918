"""The `spillway` command."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from spillway_cli import (
    brake_commands,
    brownfield_commands,
    cluster_commands,
    doctor_commands,
    exits,
    explain_commands,
    fleet_commands,
    lending_commands,
    lending_rule_commands,
    local_commands,
    log_commands,
    migrate_commands,
    scaling_commands,
    whatif_commands,
    workload_commands,
)
from spillway_cli.output import Format, console, print_machine, table
from spillway_cli.session import Flags, Output, config_of


class _Command(TyperGroup):
    """Says of an option's or argument's bad value what it was."""

    def make_context(self, *args: Any, **named: Any) -> Any:
        with _value_named():
            return super().make_context(*args, **named)

    def invoke(self, ctx: Any) -> Any:
        with _value_named():
            return super().invoke(ctx)


@contextmanager
def _value_named() -> Iterator[None]:
    try:
        yield
    except typer.BadParameter as error:
        # By its method, since the type is in a package that takes long to import and is only needed for errors.
        errors: list[Any] = getattr(error.__cause__, "errors", list)()
        value = repr(errors[0]["input"]) if errors else ""
        error.message = error.message.removeprefix("Value error, ")
        if value not in error.message:
            error.message = f"{value}: {error.message}"
        raise


app = typer.Typer(
    cls=_Command,
    name="spillway",
    help="Place workloads on many Kubernetes clusters: own ones first, the cloud for the rest.",
    epilog=exits.HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
TOP = (
    workload_commands.app,
    scaling_commands.app,
    explain_commands.app,
    whatif_commands.app,
    brownfield_commands.app,
    cluster_commands.top,
    brake_commands.app,
    lending_commands.app,
    log_commands.app,
    doctor_commands.app,
    local_commands.app,
)
for part in TOP:
    app.registered_commands += part.registered_commands
app.add_typer(cluster_commands.app, name="cluster")
app.add_typer(fleet_commands.app, name="fleet")
app.add_typer(migrate_commands.app, name="migrate")
app.add_typer(lending_commands.idle, name="idle")
app.add_typer(lending_rule_commands.app, name="lending")


@app.callback()
def connection(  # noqa: PLR0913 - the options of a command are its parameters
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
        str | None, typer.Option(help="Id of the fleet that is meant; another one is refused.", show_default=False)
    ] = None,
    token: Annotated[str | None, typer.Option(help="Token that names us to the services.", show_default=False)] = None,
    ca: Annotated[str | None, typer.Option(help="CA file; turns TLS on.", show_default=False)] = None,
    kafka: Annotated[str | None, typer.Option(help="Bootstrap servers of Kafka.", show_default=False)] = None,
    config: Annotated[
        Path | None, typer.Option(help="Config file, TOML.", show_default="in your config folder")
    ] = None,
    call_seconds: Annotated[
        float | None, typer.Option(help="Seconds that one call may take.", min=0.1, show_default=False)
    ] = None,
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


@app.command(name="config")
def show_config(context: typer.Context, output: Output = Format.table) -> None:
    """Show every setting, its value, and where the value comes from."""
    with exits.guarded():
        resolved = config_of(context)
        values = {name: getattr(resolved.config, name) for name in resolved.sources}
        values |= {name: "(set)" for name in ("token", "redis") if values[name]}
        if output is Format.table:
            rows = [
                (name, ", ".join(value) if isinstance(value, tuple) else value, resolved.sources[name])
                for name, value in values.items()
            ]
            console().print(table(("SETTING", "VALUE", "FROM"), rows))
            return
        shown = {name: {"value": value, "from": resolved.sources[name]} for name, value in values.items()}
        print_machine({"file": str(resolved.file), "settings": shown}, output)


@app.command()
def version() -> None:
    """Show the version."""
    typer.echo(version_of("spillway-cli"))


def main() -> None:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # What it would log comes as an error that we say.
    try:
        with exits.guarded():
            app()
    except typer.Exit as ended:
        sys.exit(ended.exit_code)
