"""The commands `config` and `version`, which ask no service."""

import typer

from spillway_cli import VERSION, exits
from spillway_cli.options import Format, Output, config_of

app = typer.Typer()


@app.command(name="config")
def show_config(context: typer.Context, output: Output = Format.table) -> None:
    """Show every setting, its value, and where the value comes from."""
    from spillway_cli.output import make_table, print_for_machines, stdout_console

    with exits.exiting_on_error():
        resolved = config_of(context)
        values = {name: getattr(resolved.config, name) for name in resolved.sources}
        values |= {name: "(set)" for name in ("token", "redis") if values[name]}
        if output is Format.table:
            rows = [
                (name, ", ".join(value) if isinstance(value, tuple) else value, resolved.sources[name])
                for name, value in values.items()
            ]
            stdout_console().print(make_table(("SETTING", "VALUE", "FROM"), rows))
            return
        shown = {name: {"value": value, "from": resolved.sources[name]} for name, value in values.items()}
        print_for_machines({"file": str(resolved.file), "settings": shown}, output)


@app.command()
def version() -> None:
    """Show the version."""
    typer.echo(VERSION)
