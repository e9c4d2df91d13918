"""A table that fits the width of a terminal. It breaks lines only between words, so that every name stays whole."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

from spillway_cli.terminal_text import harmless_text

_INDENT = "    "


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts. right: the columns of numbers, which are aligned to the right.

    A table that is too wide becomes narrower in these steps:
    - Lines break in the widest columns.
    - Empty columns are dropped.
    - A last column without a header gets lines of its own.
    - The gaps between columns shrink to one space.

    If names leave no room even then, the table is wider than the terminal.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[str]

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[Text]:
        rows = [[harmless_text(cell) for cell in row] for row in self.rows]
        layout, notes = self._fitting_layout(rows, options.max_width)
        yield from self._row_lines(self.columns, layout, "bold")
        for row in rows:
            yield from self._row_lines(row, layout, "")
            if notes is not None and row[notes]:
                for line in wrapped_lines(row[notes], options.max_width - len(_INDENT)):
                    yield Text(_INDENT + line, no_wrap=True, overflow="ignore")

    def _fitting_layout(self, rows: Sequence[Sequence[str]], most: int) -> "tuple[_TableLayout, int | None]":
        """Returns the layout, and the column that gets lines of its own, if any."""
        shown = list(range(len(self.columns)))
        filled = [number for number in shown if any(row[number] for row in rows)] or shown
        notes = filled[-1] if not self.columns[filled[-1]] and len(filled) > 1 else None
        beside = filled[:-1] if notes is not None else filled
        for columns, gap, below in ((shown, 2, None), (filled, 2, None), (beside, 2, notes), (beside, 1, notes)):
            layout = _TableLayout(columns, self._column_widths(rows, columns, most - gap * (len(columns) - 1)), gap)
            if sum(layout.widths) + gap * (len(columns) - 1) <= most:
                return layout, below
        return layout, notes

    def _column_widths(self, rows: Sequence[Sequence[str]], shown: Sequence[int], most: int) -> list[int]:
        """Returns the width of each column: its longest line, or less if needed, but at least its longest word."""
        cells = [[self.columns[number], *(row[number] for row in rows)] for number in shown]
        widths = [max(cell_len(line) for cell in column for line in cell.split("\n")) for column in cells]
        least = [max((cell_len(word) for cell in column for word in cell.split()), default=0) for column in cells]
        # One cell at a time goes from the widest column that is still wider than its longest word.
        while sum(widths) > most and widths != least:
            widest = max(width for width, word in zip(widths, least, strict=True) if width > word)
            widths[next(n for n, width in enumerate(widths) if width == widest and width > least[n])] -= 1
        return widths

    def _row_lines(self, row: Sequence[str], layout: "_TableLayout", style: str) -> Iterator[Text]:
        """Yields the lines of one row. In a row of several lines each column continues below its first line."""
        cells = [wrapped_lines(row[number], width) for number, width in zip(layout.columns, layout.widths, strict=True)]
        for number in range(max(map(len, cells))):
            pieces = []
            for lines, column, width in zip(cells, layout.columns, layout.widths, strict=True):
                piece = lines[number] if number < len(lines) else ""
                space = " " * (width - cell_len(piece))
                pieces.append(space + piece if self.columns[column] in self.right else piece + space)
            yield Text((" " * layout.gap).join(pieces).rstrip(), style=style, no_wrap=True, overflow="ignore")


class _TableLayout(NamedTuple):
    """The layout: the numbers of the columns in one line, their widths, and the gap between them."""

    columns: Sequence[int]
    widths: Sequence[int]
    gap: int


def wrapped_lines(text: str, width: int) -> list[str]:
    """Returns the lines of a text, broken between words if they are too wide.

    A word that is wider gets its own line.
    """
    lines: list[str] = []
    for whole in text.split("\n"):
        if cell_len(whole) <= width:
            lines.append(whole)
            continue
        line = ""
        for word in whole.split():
            if line and cell_len(line) + 1 + cell_len(word) > width:
                lines.append(line)
                line = ""
            line = f"{line} {word}" if line else word
        lines.append(line)
    return lines
