"""A copy of the source tree in which one mutant at a time is applied. Runs imports, tests and seeds there."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from .catalogue import ROOT, Mutant

SHARED: Final = "shared"
"""A folder beside the repository that some tests read, but none needs."""
SOURCES: Final = ("libs", "services", "cli", "local")
SEEDS: Final = "lab/mutants/seeds.py"
EXAMPLES: Final = 200
"""Examples of each property, unless the environment sets it. `make test` tries 30, which a mutant may survive."""
SAY_WHERE: Final = "import importlib, sys; print(importlib.import_module(sys.argv[1]).__file__)"


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a run, in seconds. seed_cpu_seconds: a seed that takes more counts as one that does not end."""

    import_seconds: float = 120.0
    tests_seconds: float = 600.0
    confirm_seconds: float = 3600.0
    seed_cpu_seconds: int = 120
    seed_seconds: float = 1800.0


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of a process. code: its exit code; None if it was killed after its time."""

    code: int | None
    output: str


@dataclass(frozen=True, slots=True)
class SeedRan:
    """The result of one seed. failures: broken sentences. digest: of its whole trace. records: including writes.
    met: by mutant, how often its place behaved differently. ended: False if the seed used up its time.
    """

    seed: int
    failures: Sequence[str] = ()
    digest: str = ""
    records: int = 1
    met: Mapping[str, int] = field(default_factory=dict)
    ended: bool = True


class NotRun(Exception):
    """Raised when Python does not import the mutated file, so that no result would be about it."""


class _CannotChange(Exception):
    """Raised for a mutant that changes more than the bodies of functions."""


class Workbench:
    """One copy of the tree, for one mutant at a time."""

    def __init__(self, folder: Path, limits: Limits, root: Path = ROOT) -> None:
        self.tree = folder / "tree"
        self._limits = limits
        self._waiting: subprocess.Popen[str] | None = None
        for name in files_of_tree(root):
            target = self.tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target)
        shared = root.parent / SHARED
        if shared.exists():
            (folder / SHARED).symlink_to(shared.resolve())
        sources = [str(self.tree / name) for name in folders_of_sources(self.tree)]
        # They must come before the installed packages, which are the sources of this checkout.
        examples = os.environ.get("EXAMPLES") or str(EXAMPLES)
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sources), "EXAMPLES": examples}
        self._environment.pop("PYTEST_ADDOPTS", None)

    @contextmanager
    def apply_mutant(self, mutant: Mutant) -> Iterator[None]:
        """Applies the mutant within the block. Raises Stale before anything is written."""
        path, changed = self.tree / mutant.file, mutant.mutated_text(self.tree)
        before = path.read_text()
        try:
            self._write_source(path, changed)
            yield
        finally:
            self._write_source(path, before)

    @staticmethod
    def _write_source(path: Path, text: str) -> None:
        """Writes a file and deletes its bytecode. Python would use old bytecode of a file of equal size and second."""
        path.write_text(text)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()

    def why_import_fails(self, mutant: Mutant) -> str:
        """Returns why the mutant's module cannot be imported; empty if it can. Raises NotRun."""
        ran = self._run_command([sys.executable, "-c", SAY_WHERE, mutant.module_name], self._limits.import_seconds)
        if ran.code != 0:
            return last_line(ran.output) or "it does not end"
        found, wanted = Path(last_line(ran.output)), self.tree / mutant.file
        if found.resolve() != wanted.resolve():
            raise NotRun(f"{mutant.module_name} is imported from {found}: expected {wanted}")
        return ""

    def run_tests(self, tests: Sequence[str], leave_out: Iterable[str] = (), *, first: bool = True) -> Ran:
        """Runs tests. first: stop at the first failure. leave_out: tests that fail anyway."""
        options = [
            *(["-x"] if first else []),
            "-p",
            "no:cacheprovider",
            "--tb=line",
            "-rfE",
            *(f"--deselect={name}" for name in leave_out),
        ]
        seconds = self._limits.tests_seconds if first else self._limits.confirm_seconds
        return self._run_command([sys.executable, "-m", "pytest", *options, *tests], seconds)

    def seed_pool(self, first: int, count: int) -> list[int]:
        """Returns the seeds that a run chooses from: all kept ones, and `count` others from `first` on."""
        with self._seeds_process() as process:
            _send_request(process, {"pool": [first, count]})
            answer: list[int] = _read_answer(process, self._limits.seed_seconds)["pool"]
            return answer

    def simulate_seeds(self, seeds: Sequence[int], mutant: Mutant | None = None) -> Iterator[SeedRan]:
        """Yields results as seeds end, up to the first failure; all seeds without a mutant. Raises NotRun."""
        asked = {"seeds": list(seeds), "cpu_seconds": self._limits.seed_cpu_seconds, "every": mutant is None}
        if mutant is None:
            yield from self._request_seed_results(asked)
            return
        try:
            yield from self._request_seed_results(asked | {"file": mutant.file, "text": mutant.mutated_text(self.tree)})
        except _CannotChange:
            with self.apply_mutant(mutant):
                yield from self._request_seed_results(asked, anew=True)

    def _request_seed_results(self, asked: Mapping[str, object], *, anew: bool = False) -> Iterator[SeedRan]:
        with self._seeds_process(anew=anew) as process:
            _send_request(process, asked)
            while "over" not in (said := _read_answer(process, self._limits.seed_seconds)):
                yield SeedRan(**said)
            if not said["over"]:
                raise _CannotChange

    @contextmanager
    def _seeds_process(self, *, anew: bool = False) -> "Iterator[subprocess.Popen[str]]":
        """Yields the process that runs seeds. It is a new one with `anew`, or when the last was not used to its end."""
        process, self._waiting = self._waiting, None
        if anew or process is None:
            _end_process(process)
            process = self._begin_process([sys.executable, SEEDS], stdin=subprocess.PIPE)
        is_over = False
        try:
            yield process
            is_over = True
        except _CannotChange:
            is_over = True
            raise
        finally:
            if is_over and not anew:
                self._waiting = process
            else:
                _end_process(process)

    def close(self) -> None:
        """Ends the process that waits for seeds."""
        _end_process(self._waiting)
        self._waiting = None

    @contextmanager
    def replace_files(self, texts: Mapping[str, str]) -> Iterator[None]:
        """Replaces these files within the block. Ends the process that has imported other texts before and after it."""
        before = {name: (self.tree / name).read_text() for name in texts}
        self.close()
        try:
            for name, text in texts.items():
                self._write_source(self.tree / name, text)
            yield
        finally:
            self.close()
            for name, text in before.items():
                self._write_source(self.tree / name, text)

    def _begin_process(self, command: Sequence[str], stdin: int = subprocess.DEVNULL) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            command,
            cwd=self.tree,
            env=self._environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def _run_command(self, command: Sequence[str], seconds: float) -> Ran:
        process = self._begin_process(command)
        try:
            return _wait_for_end(process, seconds)
        finally:
            _end_process(process)


def _end_process(process: "subprocess.Popen[str] | None") -> None:
    """Ends the process and all processes that it started."""
    if process is None:
        return
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _send_request(process: "subprocess.Popen[str]", asked: Mapping[str, object]) -> None:
    if process.stdin is not None:
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()


def _read_answer(process: "subprocess.Popen[str]", seconds: float) -> dict[str, Any]:
    """Returns the next line of JSON. Raises NotRun if the process ends before or is silent for `seconds`."""
    last = ""
    while line := _read_line(process, seconds):
        if line.startswith("{"):
            answer: dict[str, Any] = json.loads(line)
            return answer
        last = line
    raise NotRun(f"{SEEDS} ended: {last.strip()}")


def _read_line(process: "subprocess.Popen[str]", seconds: float) -> str:
    """Returns the next line; empty at the end of output. Ends a process that is silent for `seconds`."""
    late = threading.Timer(seconds, lambda: os.killpg(process.pid, signal.SIGKILL))
    late.start()
    try:
        return process.stdout.readline() if process.stdout is not None else ""
    finally:
        late.cancel()


def _wait_for_end(process: "subprocess.Popen[str]", seconds: float) -> Ran:
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as late:
        said = late.output or b""
        return Ran(None, said.decode(errors="replace") if isinstance(said, bytes) else said)
    return Ran(process.returncode, output)


def files_of_tree(root: Path = ROOT) -> list[str]:
    """Returns names of tracked and new files, without those that git ignores, and of sources that a build made."""
    names = set(_git_output(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"))
    made = (
        path
        for folder in folders_of_sources(root)
        for path in (root / folder).rglob("*_pb2*")
        if path.suffix in (".py", ".pyi")
    )
    names |= {str(path.relative_to(root)) for path in made}
    return sorted(name for name in names if name and (root / name).is_file())


def folders_of_sources(root: Path) -> list[str]:
    """Returns the folders of sources, relative to the root, by name."""
    found = (folder for pattern in ("*/*/src", "*/src") for folder in root.glob(pattern))
    return sorted(str(folder.relative_to(root)) for folder in found)


def digest_of_files(names: Iterable[str], root: Path = ROOT) -> str:
    """Returns a digest of files and of all Python files in folders, with their names. Skips missing ones."""
    found = sha256()
    for path in (root / name for name in names if (root / name).exists()):
        for one in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            found.update(f"{one.relative_to(root)}\0".encode() + sha256(one.read_bytes()).digest())
    return found.hexdigest()[:12]


def short_commit_id(root: Path = ROOT) -> str:
    """Returns the short commit id, with + if the sources differ from it."""
    changed = _git_output(root, "status", "--porcelain", "--", *SOURCES)
    return _git_output(root, "rev-parse", "--short", "HEAD").strip() + ("+" if changed.strip() else "")


def _git_output(root: Path, *asked: str) -> str:
    return subprocess.run(["git", *asked], cwd=root, check=True, capture_output=True, text=True).stdout


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
