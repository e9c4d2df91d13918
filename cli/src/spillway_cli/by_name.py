"""A group of commands that imports a command's module only when that command runs, because imports take long."""

import importlib
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from enum import StrEnum
from typing import Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from spillway_cli.commands_by_name import CommandEntry, CommandGroup

_DIGITS = re.compile("[0-9]{1,9}")

Command = Any  # Typer has no public name for what it makes of an app.


class Commands(MutableMapping[str, Command]):
    """The commands by name, in the order of their table. A command is created when it is looked up."""

    def __init__(self, table: Mapping[str, CommandEntry | CommandGroup]) -> None:
        self.table = table
        self._made: dict[str, Command] = {}

    def __getitem__(self, name: str) -> Command:
        if name not in self._made:
            self._made[name] = _make_command(name, self.table[name])
        return self._made[name]

    def __setitem__(self, name: str, command: Command) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.table)

    def __len__(self) -> int:
        return len(self.table)


class ByName(TyperGroup):
    """A typer group with the commands of a table."""

    def __init__(self, *, table: Mapping[str, CommandEntry | CommandGroup], **rest: Any) -> None:
        super().__init__(**rest)
        self.table = table
        self.commands = Commands(table)

    def get_params(self, ctx: Any) -> list[Any]:
        return _delay_parameter_readers(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.table)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.table.items()])


class _Single(TyperCommand):
    """One command, whose parameter readers are created only if needed."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _delay_parameter_readers(super().get_params(ctx))


def _make_command(name: str, entry: CommandEntry | CommandGroup) -> Command:
    if isinstance(entry, CommandGroup):
        return ByName(name=name, table=entry.verbs, help=entry.help, no_args_is_help=True, rich_markup_mode=None)
    declared: typer.Typer = importlib.import_module(f"spillway_cli.{entry.module}").app
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    for one in declared.registered_commands:
        if command_name_of(one) == name:
            one.cls = _Single
            alone.registered_commands = [one]
    return typer.main.get_command(alone)


def command_name_of(declared: Any) -> str:
    """Returns the name of a command that a module declares: the given name, or else the function's name."""
    name: str = declared.name or declared.callback.__name__
    return name


def _delay_parameter_readers(parameters: list[Any]) -> list[Any]:
    """Delays the creation of parameters' readers until a value is given that needs conversion.

    Typer creates every reader at once, with a library (pydantic) whose import takes longer than printing help.
    """
    for parameter in parameters:
        reader = getattr(parameter, "get_runtime_param", None)
        if reader is not None and not isinstance(reader, _IfGiven):  # None: this typer has no readers.
            parameter.get_runtime_param = _IfGiven(reader, parameter.type_descriptor)
    return parameters


class _IfGiven:
    """Stands in for typer's reader of a parameter, and creates that reader only for a value that is not plain.

    descriptor: typer's description of the parameter.

    Typer expects a factory of readers, so a call returns this object itself.
    """

    def __init__(self, reader: Callable[[], Any], descriptor: Any) -> None:
        self._reader = reader
        self._descriptor = descriptor

    def __call__(self) -> "_IfGiven":
        return self

    def coerce(self, value: Any, **rest: Any) -> Any:
        is_list = rest["param"].multiple or rest["param"].nargs == -1
        if value is None:
            return () if is_list else None
        for plain in self._plain_value(value):
            return plain
        return self._reader().coerce(value, **rest)

    def _plain_value(self, value: Any) -> tuple[Any, ...]:
        """Returns (converted value,) for a plain value, as typer's reader would; else an empty tuple.

        Plain values are texts, defaults, the words of a StrEnum, and numbers within their bounds.
        """
        kind, declared = self._descriptor.annotation, self._descriptor.parameter_info
        if declared.parser is not None:
            return ()
        if kind == list[str] and type(value) is list:
            return (value,) if all(type(one) is str for one in value) else ()
        if kind not in (str, int, float) and not (isinstance(kind, type) and issubclass(kind, StrEnum)):
            return ()
        if type(value) is kind:
            return (value,)
        if kind in (int, float):
            is_digits = type(value) is str and _DIGITS.fullmatch(value)
            return (kind(value),) if is_digits and _is_within_bounds(kind(value), declared) else ()
        return tuple(member for member in kind if member.value == value)


def _is_within_bounds(number: float, declared: Any) -> bool:
    """Returns whether a number is within the bounds of a parameter. declared: its min and max; None: no such bound."""
    return (declared.min is None or number >= declared.min) and (declared.max is None or number <= declared.max)
