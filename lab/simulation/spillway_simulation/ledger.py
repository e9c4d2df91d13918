"""What was run: one line a seed in a file that survives kill -9, and ranges of it in the repository.

A line counts for the code that it was run with: the digest of every source that a seed's end may depend on. Comments
and docstrings are not in it, nor are the modules of the gRPC server, which no seed runs.
"""

import ast
import fcntl
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
HERE = "lab/simulation/spillway_simulation/*.py"
SOURCES = ("libs/*/src/**/*.py", "services/*/src/**/*.py", "local/src/**/*.py", HERE)
SERVERS = ROOT / "libs/spillway/src/spillway/rpc"
RUN_BY_SEEDS = frozenset(
    ("__init__", "callers", "calls", "endpoints", "holder_places", "manifest_fields", "namespaces", "security")
)
"""The modules of SERVERS that a seed runs: who calls, with which rights, which places a caller has, and the bytes of
replies to watches."""
COLUMNS = ("code", "commit", "first", "end", "held", "failed", "cpu_seconds", "failed_seeds")
"""Of the committed ranges. end: not included; failed_seeds: with commas, or a dash."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One seed's end. failures: the sentences that did not hold. digest: of its whole trace. owned: Ownership.seen.

    drawn: how much of each thing its script has, and how often what is judged happened. cpu_seconds: of the process.
    """

    seed: int
    failures: tuple[str, ...]
    digest: str
    virtual_seconds: float
    real_seconds: float
    records: int
    writes: int
    converged_after: float
    sizes_decided: int = 0
    owned: dict[str, int] = field(default_factory=dict)
    drawn: dict[str, int] = field(default_factory=dict)
    cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Code:
    """digest: of the statements of all sources; commit: as git names it, with -dirty where files differ from it."""

    digest: str
    commit: str


def code_of_checkout() -> Code:
    """Returns the digest of the sources that a seed may run, and the commit.

    The generated modules of protobuf are among them, so ask after `make setup`.
    """
    found = hashlib.sha256(repr(sys.version_info[:3]).encode())
    for path in sorted({path for pattern in SOURCES for path in ROOT.glob(pattern) if is_run_by_seeds(path)}):
        content = _dump_statements(path.read_bytes())
        found.update(f"{path.relative_to(ROOT)} {len(content)}\n{content}".encode())
    describe = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return Code(found.hexdigest()[:16], commit or "unknown")


def is_run_by_seeds(path: Path) -> bool:
    """Returns whether a seed may run this module."""
    return path.parent != SERVERS or path.stem in RUN_BY_SEEDS


def _dump_statements(source: bytes) -> str:
    """Returns the syntax tree of a module, without comments and docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            body[:] = [one for one in body if not _is_docstring(one)]
    return ast.dump(tree)


def _is_docstring(statement: ast.AST) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


class Ledger:
    """The file of one line a seed. Each line is on the disk before the next seed is begun; a cut-off one is ignored."""

    def __init__(self, path: Path, code: Code) -> None:
        self._path = path
        self._code = code

    def outcomes_by_seed(self) -> dict[int, Outcome]:
        """By seed, what the file has of this code; the last line of a seed counts."""
        found = {}
        for line in self._read_lines():
            if line["code"] == self._code.digest:
                outcome = _parse_outcome(line)
                found[outcome.seed] = outcome
        return found

    def outcomes_by_code(self) -> dict[Code, dict[int, Outcome]]:
        """The same of all code that the file knows, in the order in which it came."""
        found: dict[Code, dict[int, Outcome]] = {}
        for line in self._read_lines():
            outcome = _parse_outcome(line)
            found.setdefault(Code(line["code"], line["commit"]), {})[outcome.seed] = outcome
        return found

    def append_outcome(self, outcome: Outcome) -> None:
        line = json.dumps({"code": self._code.digest, "commit": self._code.commit, **asdict(outcome)})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            end = file.seek(0, os.SEEK_END)
            if end and os.pread(file.fileno(), 1, end - 1) != b"\n":
                line = "\n" + line  # What was killed while it wrote left half a line.
            file.write((line + "\n").encode())
            file.flush()
            os.fsync(file.fileno())

    def _read_lines(self) -> Iterator[Mapping[str, Any]]:
        if not self._path.exists():
            return
        for text in self._path.read_text(errors="replace").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if isinstance(line, dict) and {"code", "commit", "seed", "failures"} <= line.keys():
                yield line


def _parse_outcome(line: Mapping[str, Any]) -> Outcome:
    known = {name: value for name, value in line.items() if name in Outcome.__slots__}
    return Outcome(**{**known, "failures": tuple(line["failures"])})


# ── What is committed ───────────────────────────────────────────────────────────────────────────────────────────────


def add_ranges(table: Path, ledger: Ledger) -> int:
    """Writes what the ledger has into the table of ranges, beside what it says of other code. How many ranges of it.

    A range of the same code is written anew from all that either knows; what runs on code that is not committed is
    left out: nobody else could run it again.
    """
    rows = _read_rows(table)
    written = 0
    for code, outcomes in ledger.outcomes_by_code().items():
        if code.commit.endswith("-dirty") or code.commit == "unknown":
            continue
        found = [list(row) for row in range_rows(code, outcomes.values())]
        firsts = {(row[0], row[2]) for row in found}
        within = [(int(row[2]), int(row[3])) for row in found]
        rows = [
            row
            for row in rows
            if (row[0], row[2]) not in firsts
            and not (row[0] == code.digest and any(a <= int(row[2]) and int(row[3]) <= b for a, b in within))
        ]
        rows += found
        written += len(found)
    table.parent.mkdir(parents=True, exist_ok=True)
    rows.sort(key=lambda row: (int(row[2]), int(row[3]), row[0]))
    lines = ["\t".join(row) for row in (list(COLUMNS), *rows)]
    table.write_text("\n".join(lines) + "\n")
    return written


def range_rows(code: Code, outcomes: Iterable[Outcome]) -> Iterator[Sequence[str]]:
    """Rows of seeds that follow each other without a gap."""
    run: list[Outcome] = []
    for outcome in sorted(outcomes, key=lambda one: one.seed):
        if run and outcome.seed != run[-1].seed + 1:
            yield _range_row(code, run)
            run = []
        run.append(outcome)
    if run:
        yield _range_row(code, run)


def _range_row(code: Code, run: Sequence[Outcome]) -> Sequence[str]:
    failed = [str(one.seed) for one in run if one.failures]
    seconds = f"{sum(one.cpu_seconds for one in run):.0f}"
    counts = (str(len(run) - len(failed)), str(len(failed)), seconds, ",".join(failed) or "-")
    return (code.digest, code.commit, str(run[0].seed), str(run[-1].seed + 1), *counts)


def _read_rows(table: Path) -> list[list[str]]:
    if not table.exists():
        return []
    return [line.split("\t") for line in table.read_text().splitlines()[1:] if line]
