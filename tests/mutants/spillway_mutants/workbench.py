"""A copy of the tree in which one line is changed at a time, and what runs there: imports, tests, seeds."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from .catalogue import ROOT, Mutant

SHARED: Final = "shared"
"""Beside the repository: what some tests read and none needs."""
SOURCES: Final = ("libs", "services", "cli", "local")
SAY_WHERE: Final = "import importlib, sys; print(importlib.import_module(sys.argv[1]).__file__)"


@dataclass(frozen=True, slots=True)
class Limits:
    """All the bounds of a run, in seconds but for seeds_at_once, which are asked of one process."""

    import_seconds: float = 120.0
    tests_seconds: float = 600.0
    confirm_seconds: float = 3600.0
    seeds_seconds: float = 900.0
    seeds_at_once: int = 10


@dataclass(frozen=True, slots=True)
class Ran:
    """code None: it was ended after its time."""

    code: int | None
    output: str


class NotRun(Exception):
    """The mutated file is not what Python imports: nothing that is found would be about it."""


class Workbench:
    """One copy, for one mutant at a time."""

    def __init__(self, folder: Path, limits: Limits, root: Path = ROOT) -> None:
        self.tree = folder / "tree"
        self._limits = limits
        for name in files_of_tree(root):
            target = self.tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target)
        shared = root.parent / SHARED
        if shared.exists():
            (folder / SHARED).symlink_to(shared.resolve())
        sources = sorted(str(path) for pattern in ("*/*/src", "*/src") for path in self.tree.glob(pattern))
        # Before the installed packages, which are this checkout's own sources.
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sources)}
        self._environment.pop("PYTEST_ADDOPTS", None)

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """Raises Stale before anything is written."""
        path, changed = self.tree / mutant.file, mutant.applied(self.tree)
        before = path.read_text()
        try:
            self._write(path, changed)
            yield
        finally:
            self._write(path, before)

    @staticmethod
    def _write(path: Path, text: str) -> None:
        """And forgets what was compiled: of files of one size and second Python would take the old one."""
        path.write_text(text)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()

    def why_broken(self, mutant: Mutant) -> str:
        """Why its module cannot be imported; empty when it can. Raises NotRun."""
        ran = self._run([sys.executable, "-c", SAY_WHERE, mutant.module], self._limits.import_seconds)
        if ran.code != 0:
            return last_line(ran.output) or "it does not end"
        found, wanted = Path(last_line(ran.output)), self.tree / mutant.file
        if found.resolve() != wanted.resolve():
            raise NotRun(f"{mutant.module} is imported from {found}: expected {wanted}")
        return ""

    def test(self, tests: Sequence[str], leave_out: Iterable[str] = (), *, first: bool = True) -> Ran:
        """first: until the first one fails. leave_out: tests that fail anyway."""
        options = [
            *(["-x"] if first else []),
            "-p",
            "no:cacheprovider",
            "--tb=line",
            "-rfE",
            *(f"--deselect={name}" for name in leave_out),
        ]
        seconds = self._limits.tests_seconds if first else self._limits.confirm_seconds
        return self._run([sys.executable, "-m", "pytest", *options, *tests], seconds)

    def simulate(self, first: int, end: int) -> Ran:
        command = [sys.executable, "tests/simulation/simulate.py", "--seeds", f"{first}:{end}", "--jobs", "1"]
        return self._run(command, self._limits.seeds_seconds)

    def _run(self, command: Sequence[str], seconds: float) -> Ran:
        process = subprocess.Popen(
            command,
            cwd=self.tree,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            return _ended(process, seconds)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()


def _ended(process: "subprocess.Popen[str]", seconds: float) -> Ran:
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as late:
        said = late.output or b""
        return Ran(None, said.decode(errors="replace") if isinstance(said, bytes) else said)
    return Ran(process.returncode, output)


def files_of_tree(root: Path = ROOT) -> list[str]:
    """By name: tracked ones and new ones, but for what git is told to leave out; and sources that a build has made."""
    names = set(_git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"))
    folders = (folder for pattern in ("*/*/src", "*/src") for folder in root.glob(pattern))
    made = (path for folder in folders for path in folder.rglob("*_pb2*") if path.suffix in (".py", ".pyi"))
    names |= {str(path.relative_to(root)) for path in made}
    return sorted(name for name in names if name and (root / name).is_file())


def digest_of(names: Iterable[str], root: Path = ROOT) -> str:
    """Of files and of all Python files in folders, with their names; of what is not there nothing."""
    found = sha256()
    for path in (root / name for name in names if (root / name).exists()):
        for one in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            found.update(f"{one.relative_to(root)}\0".encode() + sha256(one.read_bytes()).digest())
    return found.hexdigest()[:12]


def commit(root: Path = ROOT) -> str:
    """Short, with + where sources differ from it."""
    changed = _git(root, "status", "--porcelain", "--", *SOURCES)
    return _git(root, "rev-parse", "--short", "HEAD").strip() + ("+" if changed.strip() else "")


def _git(root: Path, *asked: str) -> str:
    return subprocess.run(["git", *asked], cwd=root, check=True, capture_output=True, text=True).stdout


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
