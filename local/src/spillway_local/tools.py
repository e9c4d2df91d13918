"""Finds, installs and runs the external tools that build the parts, and keeps their results in a cache."""

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

PROGRESS_EVERY_SECONDS = 10.0
"""The time between messages that a tool still runs."""
_COMMAND_WORDS_SHOWN = 3
_OUTPUT_TAIL_CHARACTERS = 4000


class MissingTool(RuntimeError):
    """Raised if this machine lacks a program. The message explains how to get it, and what works without it."""


class ToolFailed(RuntimeError):
    """A tool ended with an error. The message has the end of its output."""


class NotReady(RuntimeError):
    """A part did not become ready in time."""


def print_message(message: str) -> None:
    print(f"spillway-local: {message}", file=sys.stderr, flush=True)


def cache_folder() -> Path:
    """Returns the folder for built and downloaded files. It is outside the checkout and shared by all checkouts."""
    chosen = os.environ.get("SPILLWAY_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "spillway"


def files_digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


@contextmanager
def exclusive_lock(lock_file: Path) -> Iterator[None]:
    """Holds the lock file. A second process waits here until the first is done."""
    lock_file.parent.mkdir(parents=True, exist_ok=True)
    with lock_file.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print_message(f"another process holds {lock_file}; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def build_once(program: Path, build: Callable[[Path], None]) -> Path:
    """Returns the program, and builds it first if needed. Of several processes one builds and the others wait."""
    if program.is_file():
        return program
    with exclusive_lock(program.with_suffix(".lock")):
        if not program.is_file():
            build(program)
    return program


def run_tool(command: Iterable[str], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Runs a tool to its end and returns its output. Meanwhile it logs from time to time that the tool still runs."""
    arguments = list(command)
    started = time.monotonic()
    with subprocess.Popen(
        arguments,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        while True:
            try:
                output, _ = process.communicate(timeout=PROGRESS_EVERY_SECONDS)
                break
            except subprocess.TimeoutExpired:
                print_message(
                    f"{_shortened_command(arguments)}: still running after {time.monotonic() - started:.0f} s"
                )
            except BaseException:
                process.terminate()
                raise
    if process.returncode != 0:
        tail = output[-_OUTPUT_TAIL_CHARACTERS:]
        raise ToolFailed(f"{shlex.join(arguments)} ended with {process.returncode}:\n{tail}")
    return output


def _shortened_command(arguments: list[str]) -> str:
    """Returns the first words of a command, without a leading `nice -n N`."""
    rest = arguments[3:] if arguments[:2] == ["nice", "-n"] else arguments
    return " ".join((Path(rest[0]).name, *rest[1:_COMMAND_WORDS_SHOWN]))


def ensure_program(program: str, debian_packages: tuple[str, ...], otherwise: str) -> Path:
    """Returns the path of a program. As root on Debian, it installs the packages if the program is missing."""
    found = shutil.which(program)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        _install_debian_packages(program, debian_packages)
        found = shutil.which(program)
    if found is None:
        raise MissingTool(f"{program} is not installed. Install {' '.join(debian_packages)} (Debian) or {otherwise}")
    return Path(found)


def wait_until(is_ready: Callable[[], bool], timeout_seconds: float, what: str) -> float:
    """Calls is_ready until it returns True. Returns the seconds that it took. Raises NotReady after the timeout."""
    started = time.monotonic()
    pause_seconds = 0.02
    while not is_ready():
        waited = time.monotonic() - started
        if waited > timeout_seconds:
            raise NotReady(f"{what} was not ready within {timeout_seconds:.0f} s")
        time.sleep(pause_seconds)
        pause_seconds = min(0.25, pause_seconds * 1.5)
    return time.monotonic() - started


def write_if_changed(file: Path, content: str, mode: int = 0o644) -> None:
    if not file.exists() or file.read_text() != content:
        file.touch(mode=mode)
        file.write_text(content)


def _install_debian_packages(program: str, packages: tuple[str, ...]) -> None:
    print_message(f"{program} is missing; installing {' '.join(packages)} with apt-get")
    # RUNLEVEL=1 keeps the packages from starting services of their own.
    quiet = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    install = ("apt-get", "install", "-y", "-q", "--no-install-recommends", *packages)
    started = time.monotonic()
    try:
        try:
            run_tool(install, Path("/"), quiet)
        except ToolFailed:
            run_tool(("apt-get", "update", "-q"), Path("/"), quiet)
            run_tool(install, Path("/"), quiet)
    except ToolFailed as failure:
        raise MissingTool(f"{program} is missing and could not be installed: {failure}") from failure
    print_message(f"installed {' '.join(packages)} in {time.monotonic() - started:.0f} s")
