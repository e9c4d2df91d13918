"""Options that many commands share, and the forms of an answer. Every command needs them for its parameters."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from spillway_cli.config import ResolvedConfig


class Format(StrEnum):
    table = "table"
    json = "json"
    yaml = "yaml"


class WideFormat(StrEnum):
    """The forms of Format, and a table with more columns."""

    table = "table"
    wide = "wide"
    json = "json"
    yaml = "yaml"

    @property
    def machine_format(self) -> Format | None:
        """Returns the form for machines that was asked for; None for a table."""
        return Format(self.value) if self in (WideFormat.json, WideFormat.yaml) else None


Output = Annotated[Format, typer.Option("--output", "-o", help="Form of the answer on stdout.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until the clusters show the change.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds that --wait may take.")]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace", "-n", help="Namespace; without it, the configured namespace is used.", show_default=False
    ),
]
OneNamespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Show only this namespace.", show_default="all of them")
]


@dataclass(frozen=True, slots=True)
class Flags:
    """The connection flags as given, before the config is read."""

    values: Mapping[str, Any]
    file: Path | None

    def resolve_config(self) -> "ResolvedConfig":
        from spillway_cli.config import resolve_config

        return resolve_config(self.values, self.file)


def config_of(context: typer.Context) -> "ResolvedConfig":
    flags: Flags = context.obj
    return flags.resolve_config()
