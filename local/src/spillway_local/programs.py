"""Defines a program as a value, and runs it as a plain child process."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from spillway_local.ports import is_listening
from spillway_local.tools import NotReady, wait_until

_LOG_TAIL_CHARACTERS = 3000
_LOG_TAIL_LINES = 8
"""The lines of a log to show if the cause is known already."""
# The kernel sends the death signal when the thread that started a child ends. This thread ends only with the process.
_STARTER = ThreadPoolExecutor(1, "start-child")


class PortTaken(RuntimeError):
    """Another program listens at a port of ours. The message has the end of our program's log."""

    def __init__(self, program: str, port: int, log: Path) -> None:
        tail = "\n".join(log_tail(log).splitlines()[-_LOG_TAIL_LINES:])
        super().__init__(f"{program}: another program listens at its port {port}; the end of {log}:\n{tail}")
        self.program = program


@dataclass(frozen=True, slots=True)
class Program:
    """One process for a process manager to run. ports: the ports at which it alone listens once it is ready."""

    name: str
    command: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[int, ...] = ()

    def is_listening(self, pid: int) -> bool:
        """Returns whether this process listens at each of its ports."""
        return not self.ports or set(self.ports) <= listening_ports(pid)

    def taken_port(self, pid: int | None) -> int | None:
        """Returns a port of its own where another process listens. pid: this process; None: it does not run now."""
        heard = [port for port in self.ports if is_listening(port)]
        others = set(heard) - (listening_ports(pid) if pid else set())
        # The second look excludes our own process that ended in between.
        return next((port for port in others if is_listening(port)), None)


@dataclass(frozen=True, slots=True)
class Stage:
    """Programs that start together, and a function that returns True when the next stage may start."""

    name: str
    programs: tuple[Program, ...]
    is_ready: Callable[[], bool] = lambda: True
    ready_timeout_seconds: float = 60.0
    after: Callable[[], object] = lambda: None
    """Is called once when the stage is ready, to create topics, nodes and the like."""
    waits_for: Callable[[], Sequence[str]] = lambda: ()
    """Returns the names of parts that are not ready, for a message; if it is empty, the programs are named instead."""


@dataclass(frozen=True, slots=True)
class ChildProcess:
    """A program that this process started, and that ends when this process dies."""

    program: Program
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_ready(self, is_ready: Callable[[], bool], timeout_seconds: float) -> float:
        """Waits until the program is ready, or ends. Raises NotReady, or PortTaken if another program has its port."""

        def is_ready_or_dead() -> bool:
            if self.process.poll() is not None:
                raise NotReady(f"{self.program.name} ended with {self.process.returncode}:\n{log_tail(self.log)}")
            if not is_ready():
                return False
            if port := self.program.taken_port(self.pid):
                raise PortTaken(self.program.name, port, self.log)
            return self.program.is_listening(self.pid)

        try:
            return wait_until(is_ready_or_dead, timeout_seconds, self.program.name)
        except NotReady as error:
            error.add_note(log_tail(self.log))
            raise

    def stop(self, timeout_seconds: float = 15.0) -> None:
        if self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def start_child(program: Program, log: Path, at_our_death: str = "KILL") -> ChildProcess:
    """Starts a program that does not outlive this process, however this process ends (on Linux).

    at_our_death: the signal that the program gets then. A program that is only asked to end may take for ever: an API
        server waits for its etcd, which was asked at the same time.
    """
    return _STARTER.submit(_start_child, program, log, at_our_death).result()


def _start_child(program: Program, log: Path, at_our_death: str) -> ChildProcess:
    program.folder.mkdir(parents=True, exist_ok=True)
    setpriv = shutil.which("setpriv")
    command = interruptible_command(
        (setpriv, "--pdeathsig", at_our_death, *program.command) if setpriv else program.command
    )
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            cwd=program.folder,
            env={**os.environ, **program.environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return ChildProcess(program, process, log)


def interruptible_command(command: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the command so that SIGINT ends its process, as it does by default (with GNU's env, so on Linux).

    A shell makes its background processes ignore SIGINT, and a process that ignores it passes that on.
    """
    env = shutil.which("env")
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN or sys.platform != "linux" or env is None:
        return command
    return (env, "--default-signal=INT", *command)


@contextmanager
def running_stages(stages: list[Stage], log_folder: Path) -> Iterator[list[ChildProcess]]:
    """Runs stages as plain children until the block ends, and then stops them in the reverse order."""
    started: list[list[ChildProcess]] = []
    log_folder.mkdir(parents=True, exist_ok=True)
    try:
        for stage in stages:
            started.append([])
            for program in stage.programs:
                started[-1].append(start_child(program, log_folder / f"{program.name}.log"))
            for child in started[-1]:
                child.wait_ready(stage.is_ready, stage.ready_timeout_seconds)
            stage.after()
        yield [child for children in started for child in children]
    finally:
        for children in reversed(started):
            stop_children(children)


def stop_children(children: list[ChildProcess], timeout_seconds: float = 15.0) -> None:
    """Ends children in parallel: sends the signal to all of them first, then waits for each."""
    for child in children:
        child.process.terminate()
    for child in children:
        child.stop(timeout_seconds)


def listening_ports(pid: int) -> set[int]:
    """Returns the ports at which a process listens; none once it has ended."""
    with suppress(psutil.Error):
        connections = psutil.Process(pid).net_connections(kind="tcp")
        return {one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN}
    return set()


def log_tail(log: Path) -> str:
    if not log.exists():
        return ""
    with log.open("rb") as content:
        content.seek(max(0, log.stat().st_size - _LOG_TAIL_CHARACTERS))
        return content.read().decode(errors="replace")
