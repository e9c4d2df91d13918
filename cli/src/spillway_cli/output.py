"""Prints answers: JSON or YAML for machines, tables for people. stdout has only what was asked for."""

import base64
import dataclasses
import json
import sys
import typing
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from spillway.model_basics import Generation
from spillway_cli.fitting_table import Table
from spillway_cli.options import Format
from spillway_cli.terminal_text import harmless_json, harmless_text, has_terminal_controls

_PIPE_WIDTH = 240
"""The width of a table that does not go to a terminal, so that nothing is cut."""


class SafeConsole(Console):
    """A console that shows only its own styles: no text in a table or a line can control the terminal.

    It cuts no line at the terminal's width, so that names wider than the terminal are shown in full.
    """

    def print(self, *shown: Any, crop: bool = False, **rest: Any) -> None:
        super().print(*shown, crop=crop, **rest)

    def render_str(self, text: str, **rest: Any) -> Text:
        return super().render_str(harmless_text(text), **rest)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        if isinstance(renderable, Text) and has_terminal_controls(renderable.plain):
            renderable = _harmless_text(renderable)
        return super().render(renderable, options)


def _harmless_text(text: Text) -> Text:
    """Returns the text with each styled piece made harmless. Each piece keeps its styles."""
    made = Text(style=text.style, justify=text.justify, overflow=text.overflow, no_wrap=text.no_wrap, end=text.end)
    borders = sorted({0, len(text), *(edge for span in text.spans for edge in (span.start, span.end))})
    for piece in text.divide(borders[1:-1]):
        kept = Text(harmless_text(piece.plain))
        for span in piece.spans:
            kept.stylize(span.style)
        made.append_text(kept)
    return made


def stdout_console() -> Console:
    return SafeConsole(
        file=sys.stdout, width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False, markup=False, emoji=False
    )


def show_answer(answer: object, output: Format, show_table: Callable[[], None]) -> None:
    """Shows an answer in the requested form."""
    if output is Format.table:
        show_table()
    else:
        print_for_machines(answer, output)


def print_for_machines(value: object, chosen: Format, one_line: bool = False) -> None:
    """Prints a value or a list of values as JSON or YAML. one_line: one JSON document a line, for streams."""
    plain = plain_value_of(value)
    if chosen is Format.yaml:
        import yaml

        text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
        if has_terminal_controls(text):
            text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=False)
        text = ("---\n" if one_line else "") + text
    else:
        text = harmless_json(json.dumps(plain, ensure_ascii=False, indent=None if one_line else 2)) + "\n"
    sys.stdout.write(text)
    sys.stdout.flush()


def plain_value_of(value: Any) -> Any:
    """Returns a value as plain JSON types.

    Pairs of a name and a value become an object. A generation becomes the text "epoch.sequence".
    """
    if isinstance(value, Generation):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = _pair_fields(type(value))
        return {
            field.name: _object_of_pairs(getattr(value, field.name))
            if field.name in pairs
            else plain_value_of(getattr(value, field.name))
            for field in dataclasses.fields(value)
        }
    if isinstance(value, bytes):
        return _decoded_bytes(value)
    if isinstance(value, dict):
        return {str(key): plain_value_of(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value_of(entry) for entry in value]
    return value


def _object_of_pairs(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {name: plain_value_of(entry) for name, entry in pairs}


def _decoded_bytes(field_bytes: bytes) -> Any:
    """Returns a manifest, which is JSON in bytes, as a value; any other bytes as base64."""
    try:
        return json.loads(field_bytes)
    except ValueError:
        return base64.b64encode(field_bytes).decode()


@cache
def _pair_fields(kind: type) -> frozenset[str]:
    """Returns the fields of a class that hold a map as pairs (key, value).

    `facts_removed` is none of them: it is a list of pairs (namespace, name), in which a namespace may repeat.
    """
    hints = typing.get_type_hints(kind)
    return frozenset(
        name
        for name, hint in hints.items()
        if typing.get_origin(hint) is tuple
        and typing.get_origin(typing.get_args(hint)[0]) is tuple
        and typing.get_args(typing.get_args(hint)[0])[0] is str
        and name != "facts_removed"
    )


def make_table(columns: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[str] = ()) -> Table:
    """Returns a table without lines. right: the columns of numbers."""
    return Table(columns, [[str(cell) for cell in row] for row in rows], frozenset(right))


def wall_time_text(at_ms: int) -> str:
    """Returns a wall time as text for people, in this machine's zone."""
    return datetime.fromtimestamp(at_ms / 1000).astimezone().strftime("on %Y-%m-%d at %H:%M:%S")


def duration_text(milliseconds: int) -> str:
    """Returns an age as text for people; −1 is "never"."""
    if milliseconds < 0:
        return "never"
    seconds = milliseconds / 1000
    if seconds < 10:
        return f"{seconds:.1f}s"
    for limit, unit, size in ((120, "s", 1), (7200, "m", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds / 86_400:.0f}d"


def resource_amount_text(resource: str, value: int) -> str:
    """Returns an amount as people write it: cores for cpu, binary units for bytes."""
    if resource == "cpu":
        return f"{value / 1000:g}"
    if resource in ("memory", "ephemeral-storage"):
        for unit, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
            if value >= 10 * size or (value >= size and value % size == 0):
                return f"{value / size:.4g}{unit}"
    return str(value)
