"""What became of each mutant, one line each, so that a run that was ended goes on where it was. It is committed.

A line is appended and synced as soon as it is known; the last one of a mutant and a stage counts. A line that was cut
off by a kill is none. At the end of a run the file is written anew, sorted, with those lines alone.
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
"""Its tests did not come to an end: it is noticed, too."""
SURVIVES: Final = "survives"
BROKEN: Final = "broken"
"""It cannot even be imported: it is no mutant."""
EQUIVALENT: Final = "equivalent"
GOING: Final = "going"
"""Some seeds were run, and more are to be."""
NOTICED: Final = (KILLED, TIMEOUT)


class Row(NamedTuple):
    """by: the test or the seed that noticed it, else how many seeds did not, or why it is equivalent.

    change: Mutant.digest. scope: digest of its file and of the tests that judged it. commit: as of which that was,
    with + where files differed from it.
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
    """By mutant and stage, the last line of each."""
    found: dict[tuple[str, str], Row] = {}
    text = path.read_text() if path.exists() else ""
    for line in text.splitlines(keepends=True):
        cells = line.rstrip("\n").split("\t")
        if line.endswith("\n") and len(cells) == len(Row._fields) and line.rstrip("\n") != HEAD:
            row = Row(*cells)
            found[row.mutant_and_stage] = row
    return found


def append_row(row: Row, path: Path = LEDGER) -> None:
    """On the disk when this returns. Several runs may write at the same time."""
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
    """Written anew: the last line of each of the known mutants, sorted. All of it or nothing."""
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
