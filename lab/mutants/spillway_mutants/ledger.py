"""Keeps the result of each mutant in a committed file, so that a run can go on where an earlier one was stopped.

Each result is appended as a line and synced at once. The last line of a mutant and stage counts. A line that was cut
off by a kill is skipped. At the end of a run the file is sorted and rewritten with the lines that count.
"""

import fcntl
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from .catalogue import FOLDER

LEDGER: Final = FOLDER / "ledger.tsv"
TESTS: Final = "tests"
SEEDS: Final = "seeds"

KILLED: Final = "killed"
TIMEOUT: Final = "timeout"
"""The tests did not end in time. Such a mutant counts as noticed."""
SURVIVES: Final = "survives"
BROKEN: Final = "broken"
"""The changed module cannot be imported, so it does not count as a mutant."""
EQUIVALENT: Final = "equivalent"
GOING: Final = "going"
"""Some seeds have run, and the others have not run yet."""
NOTICED: Final = (KILLED, TIMEOUT)


class Row(NamedTuple):
    """The result of one mutant in one stage.

    by: the test or the seed that noticed the mutant; else the number of seeds that did not, or why it is equivalent.
    change: Mutant.change_digest. scope: the digest of the mutant's file and of the tests that judged it.
    commit: the commit at that time, with + if files differed from it.
    """

    mutant: str
    stage: str
    result: str
    by: str
    change: str
    scope: str
    commit: str

    @property
    def mutant_and_stage(self) -> tuple[str, str]:
        return self.mutant, self.stage


Rows = Mapping[tuple[str, str], Row]
HEAD: Final = "\t".join(Row._fields)


def read_rows(path: Path = LEDGER) -> dict[tuple[str, str], Row]:
    """Returns the last row of each mutant and stage."""
    found: dict[tuple[str, str], Row] = {}
    text = path.read_text() if path.exists() else ""
    for line in text.splitlines(keepends=True):
        cells = line.rstrip("\n").split("\t")
        if line.endswith("\n") and len(cells) == len(Row._fields) and line.rstrip("\n") != HEAD:
            row = Row(*cells)
            found[row.mutant_and_stage] = row
    return found


def append_row(row: Row, path: Path = LEDGER) -> None:
    """Appends a row and syncs it to the disk. Several runs may write at the same time."""
    line = "\t".join(" ".join(cell.split()) for cell in row)
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text_before = path.read_text()
        begin = "" if not text_before or text_before.endswith("\n") else "\n"
        head = f"{HEAD}\n" if not text_before else ""
        file.write(f"{begin}{head}{line}\n")
        file.flush()
        os.fsync(file.fileno())


def rewrite_sorted(known: Iterable[str], path: Path = LEDGER) -> None:
    """Rewrites the file in one step: the last line of each known mutant and stage, sorted."""
    names = {name: number for number, name in enumerate(known)}
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        rows = [row for row in read_rows(path).values() if row.mutant in names]
        rows.sort(key=lambda row: (row.stage != TESTS, names[row.mutant]))
        text = "".join(f"{line}\n" for line in (HEAD, *("\t".join(row) for row in rows)))
        beside = path.with_suffix(".new")
        beside.write_text(text)
        with beside.open() as written:
            os.fsync(written.fileno())
        beside.replace(path)
