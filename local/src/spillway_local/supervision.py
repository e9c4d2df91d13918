"""Runs programs under supervisord, with one daemon for each run folder, so that they can outlive their command.

Each program gets a shell script `programs/<name>.sh` that can also be run by hand. One rotated log `logs/<name>.log`
holds its output and errors together.
"""

import hashlib
import os
import shlex
import sys
import tempfile
import time
import xmlrpc.client
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import psutil
from supervisor.xmlrpc import SupervisorTransport

from spillway_local.ports import LOOPBACK, PORTS_FILE
from spillway_local.programs import ChildProcess, PortTaken, Program, Stage, listening_ports, log_tail, start_child
from spillway_local.tools import NotReady, exclusive_lock, run_tool, wait_until, write_if_changed

START_RETRIES = 8
"""The most starts of a program that ends within its first second. Each pause is a second longer."""
TAKEN_PORT_PAUSES_SECONDS: Sequence[float] = (1, 2, 4, 8, 15, 30)
"""Pauses of a program whose port is taken at its start. It looks again after each, and is given up after the last.

Their sum must be longer than the second within which an end counts as a failed start.
"""
STOP_WAIT_SECONDS = 25
"""The longest wait for a program's end. A service needs less: stop_seconds, and five more once it is cancelled."""

TOLD_EVERY_SECONDS = 10.0
"""The seconds between two messages about the parts that a stage still waits for."""

_START_SECONDS = 1
_DAEMON_READY_SECONDS = 15.0
_LOG_BYTES = "10MB"
_OLD_LOGS = 2
_FIRST_PRIORITY = 100
_LATE_PRIORITY = 900
_UNIX_SOCKET_PATH_LIMIT = 100
_POLL_SECONDS = 0.1
_GIVEN_UP = "FATAL"
_RUNNING = "RUNNING"
_ENDED_STATES = frozenset({"STOPPED", "EXITED", "FATAL", "UNKNOWN"})
_ENDED_FOR_GOOD = _ENDED_STATES - {"EXITED"}
"""The states in which supervisord does not start a program again. EXITED is not one: it starts that program again."""
_ENDED = frozenset({"BACKOFF", "EXITED", _GIVEN_UP})
_WAITS = "BACKOFF"
_IN_THE_WAY = ".in-the-way"
"""The suffix of the file to which a program's script writes why it has not started its program."""
_PROBE_SECONDS = 1.0
_TAKEN_CODE = 97
"""The exit code of a program's script that gives up because of its port. No program of ours uses it."""


class ProgramFailed(RuntimeError):
    """A program did not stay up. The message has the end of its log."""


class NotSupervised(RuntimeError):
    """No daemon runs for this folder, or the daemon does not know the program."""


@dataclass(frozen=True, slots=True)
class ProgramStatus:
    name: str
    state: str
    """STOPPED, STARTING, RUNNING, BACKOFF, STOPPING, EXITED, FATAL: supervisor's words."""
    pid: int | None
    uptime_seconds: float
    log: Path
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Supervision:
    """The programs of one run folder. Every method may be called from any process.

    outlives: True if the programs go on when the process that started the daemon ends. False: they are stopped then,
        even if it was killed.
    say: called with a text about the parts for which a slow stage waits.
    """

    folder: Path
    outlives: bool = True
    say: Callable[[str], None] = field(default=lambda _: None, repr=False, compare=False)
    told_every_seconds: float = TOLD_EVERY_SECONDS
    _daemons: list[ChildProcess] = field(default_factory=list, repr=False, compare=False)
    """The daemons that this process started and that do not outlive it."""

    def start(self, stages: Sequence[Stage]) -> None:
        """Starts the stages, each when the previous one is ready. Programs that run unchanged are not restarted.

        Raises PortTaken if another program listens at a port of a stage's program, after stopping that program of ours.
        """
        self._ensure_daemon()
        for place, stage in enumerate(stages):
            self._apply_programs([(program, _FIRST_PRIORITY + place) for program in stage.programs])
            self._wait_ready(stage)
            stage.after()

    def add_programs(self, programs: Iterable[Program]) -> None:
        """Starts further programs, and replaces programs of the same name that have changed."""
        self._ensure_daemon()
        added = tuple(programs)
        priority_by_name = {config["name"]: config["process_prio"] for config in self._call_daemon("getAllConfigInfo")}
        self._apply_programs([(program, priority_by_name.get(program.name, _LATE_PRIORITY)) for program in added])
        self._wait_ready(Stage("added programs", added))

    def remove_program(self, name: str) -> None:
        """Stops a program and forgets it. Its log remains."""
        self._require_known_program(name)
        for suffix in (".conf", ".sh", _IN_THE_WAY):
            self._program_file(name, suffix).unlink(missing_ok=True)
        self._reload_config()

    def restart_program(self, name: str) -> None:
        self._require_known_program(name)
        self._stop_programs([name])
        self._call_daemon("startProcess", name)

    def stop_program(self, name: str) -> None:
        """Stops one program and keeps it known, so that `start_program` can start it again."""
        self._require_known_program(name)
        self._stop_programs([name])

    def start_program(self, name: str) -> None:
        self._require_known_program(name)
        self._call_daemon("startProcess", name)

    def stop(self) -> None:
        """Stops every program, the latest stage first, then the daemon. A second call does nothing."""
        if not self.is_running():
            self._end_orphans()
            return
        names_by_priority: dict[int, list[str]] = {}
        for config in self._call_daemon("getAllConfigInfo"):
            names_by_priority.setdefault(config["process_prio"], []).append(config["name"])
        for _, names in sorted(names_by_priority.items(), reverse=True):
            self._stop_programs(names)
        pid = int(self._call_daemon("getPID"))
        self._call_daemon("shutdown")
        wait_until(lambda: not _is_alive(pid), _DAEMON_READY_SECONDS, "supervisord's end")
        for daemon in self._daemons:
            daemon.stop()

    def stop_without_waiting(self) -> None:
        """Makes the daemon stop every program and end, without waiting for that."""
        if self.is_running():
            self._call_daemon("shutdown")

    def status(self) -> list[ProgramStatus]:
        """Returns the status of every known program; empty if no daemon runs."""
        if not self.is_running():
            return []
        return [self._status_of(info) for info in self._call_daemon("getAllProcessInfo")]

    def is_running(self) -> bool:
        try:
            return bool(self._call_daemon("getState")["statename"] == _RUNNING)
        except (OSError, xmlrpc.client.ProtocolError, NotSupervised):
            return False

    def occupied_ports(self) -> set[int]:
        """Returns the ports at which programs of this folder listen, also programs that a killed daemon left behind."""
        return {port for process in self._started_processes() for port in listening_ports(process.pid)}

    def log_file_of(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"

    @property
    def socket_path(self) -> Path:
        """Returns the daemon's socket. Its path must be short, so a deep run folder has it in the temporary folder."""
        near = self.folder / "supervisord.sock"
        if len(str(near)) <= _UNIX_SOCKET_PATH_LIMIT:
            return near
        digest = hashlib.sha256(str(self.folder).encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"spillway-{os.getuid()}-{digest}.sock"

    def _ensure_daemon(self) -> None:
        with exclusive_lock(self.folder / "start.lock"):
            if not self.is_running():
                self._start_daemon()

    def _start_daemon(self) -> None:
        for part in ("programs", "logs"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        self._end_orphans()
        # Programs of a former daemon must not run unless this start asks for them.
        for old in self.folder.glob("programs/*"):
            old.unlink()
        config = self.folder / "supervisord.conf"
        config.write_text(daemon_config(self.folder, self.socket_path))
        command = (sys.executable, "-m", "supervisor.supervisord", "-c", str(config))
        if self.outlives:
            run_tool(command, self.folder)
        else:
            daemon = Program("supervisord", (*command, "--nodaemon"), self.folder)
            log = self.folder / "logs" / "supervisord.out"
            self._daemons.append(start_child(daemon, log, at_our_death="TERM"))
        wait_until(self.is_running, _DAEMON_READY_SECONDS, f"supervisord of {self.folder}")

    def _end_orphans(self) -> None:
        """Ends the programs that a killed daemon left behind, because they hold its ports."""
        kin = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
        orphans = [process for process in self._started_processes() if process.pid not in kin]
        for orphan in orphans:
            with suppress(psutil.NoSuchProcess):
                orphan.terminate()
        _, alive = psutil.wait_procs(orphans, timeout=STOP_WAIT_SECONDS)
        for orphan in alive:
            with suppress(psutil.NoSuchProcess):
                orphan.kill()

    def _started_processes(self) -> list[psutil.Process]:
        """Returns the processes that a daemon of this folder has started; their environment has its address."""
        mine = f"unix://{self.socket_path}"
        return [
            one for one in psutil.process_iter() if _environment_of_process(one).get("SUPERVISOR_SERVER_URL") == mine
        ]

    def _apply_programs(self, wanted: Sequence[tuple[Program, int]]) -> None:
        for program, priority in wanted:
            program.folder.mkdir(parents=True, exist_ok=True)
            script = self._program_file(program.name, ".sh")
            text = program_script(program, self.folder)
            write_if_changed(script, text, mode=0o700)
            config = program_config(program.name, script, text, self.log_file_of(program.name), priority)
            write_if_changed(self._program_file(program.name, ".conf"), config)
        self._reload_config()
        states = {status.name: status.state for status in self.status()}
        for program, _ in wanted:
            if states[program.name] in _ENDED_STATES:
                self._call_daemon("startProcess", program.name, False)

    def _reload_config(self) -> None:
        """Does the same as `supervisorctl update`: only groups with a changed configuration are touched."""
        ((added, changed, removed),) = self._call_daemon("reloadConfig")
        self._stop_programs([*changed, *removed])
        for name in (*changed, *removed):
            self._call_daemon("removeProcessGroup", name)
        for name in (*added, *changed):
            self._call_daemon("addProcessGroup", name)

    def _stop_programs(self, names: Sequence[str]) -> None:
        """Sends the signal to all programs, then waits for their ends. A program that restarts gets it again."""

        def are_all_ended() -> bool:
            states = {status.name: status.state for status in self.status()}
            running = [name for name in names if states.get(name, "STOPPED") not in _ENDED_FOR_GOOD]
            for name in running:
                # A program in STOPPING has the signal already; a second one would make supervisord report a fault.
                if states[name] != "STOPPING":
                    with suppress(NotSupervised):
                        self._call_daemon("stopProcess", name, False)
            return not running

        wait_until(are_all_ended, STOP_WAIT_SECONDS + 5.0, f"the end of {', '.join(names)}")

    def _wait_ready(self, stage: Stage) -> None:
        program_by_name = {program.name: program for program in stage.programs}
        began = told = time.monotonic()
        deadline = began + stage.ready_timeout_seconds
        pids_by_name: dict[str, set[int]] = {name: set() for name in program_by_name}
        while True:
            states = [status for status in self.status() if status.name in program_by_name]
            for status in states:
                pids_by_name[status.name] |= {status.pid} if status.pid else set()
            ended = [one for one in states if one.state in _ENDED or len(pids_by_name[one.name]) > 1]
            is_ready = all(status.state == _RUNNING for status in states) and stage.is_ready()
            for status in states if is_ready else ended:
                self._stop_if_port_taken(program_by_name[status.name], status)
            for status in states:
                if status.state == _GIVEN_UP:
                    raise ProgramFailed(f"{status.name}: {status.problem}\n{log_tail(status.log)}")
            if is_ready and all(program_by_name[one.name].is_listening(one.pid or 0) for one in states):
                return
            if time.monotonic() > deadline:
                slow = ", ".join(f"{status.name} {status.state}" for status in states)
                tails = "".join(f"\n{one.name} ended; the end of {one.log}:\n{log_tail(one.log)}" for one in ended)
                raise NotReady(f"{stage.name} was not ready within {stage.ready_timeout_seconds:.0f} s: {slow}{tails}")
            if time.monotonic() - told >= self.told_every_seconds:
                told = time.monotonic()
                waited = ", ".join(stage.waits_for() or program_by_name)
                self.say(f"{stage.name}: not ready after {told - began:.0f} s; waiting for {waited}")
            time.sleep(_POLL_SECONDS)

    def _stop_if_port_taken(self, program: Program, status: ProgramStatus) -> None:
        """Stops a program and raises PortTaken if another one listens at its port; otherwise does nothing."""
        if port := program.taken_port(status.pid):
            self._stop_programs([program.name])
            raise PortTaken(program.name, port, status.log)

    def _require_known_program(self, name: str) -> None:
        if name not in {status.name for status in self.status()}:
            raise NotSupervised(f"{name} is not among the programs of {self.folder}")

    def _status_of(self, info: dict[str, Any]) -> ProgramStatus:
        state, problem = info["statename"], info["spawnerr"]
        if in_the_way := self._read_port_problem(info["name"]):
            if state == "EXITED" and info["exitstatus"] == _TAKEN_CODE:
                state, problem = _GIVEN_UP, in_the_way
            elif state in ("STARTING", _RUNNING):
                state, problem = _WAITS, in_the_way
        is_up = state == _RUNNING
        return ProgramStatus(
            name=info["name"],
            state=state,
            pid=info["pid"] or None,
            uptime_seconds=float(info["now"] - info["start"]) if is_up else 0.0,
            log=self.log_file_of(info["name"]),
            problem=problem,
        )

    def _read_port_problem(self, name: str) -> str:
        with suppress(FileNotFoundError):
            return self._program_file(name, _IN_THE_WAY).read_text().strip()
        return ""

    def _program_file(self, name: str, suffix: str) -> Path:
        return self.folder / "programs" / f"{name}{suffix}"

    def _call_daemon(self, method: str, *arguments: object) -> Any:
        transport = SupervisorTransport(serverurl=f"unix://{self.socket_path}")
        try:
            # The address is not used: the transport speaks through the socket.
            server = xmlrpc.client.ServerProxy("http://localhost/RPC2", transport=cast("Any", transport))
            return getattr(server.supervisor, method)(*arguments)
        except xmlrpc.client.Fault as fault:
            raise NotSupervised(f"{method}{arguments}: {fault.faultString}") from fault
        finally:
            transport.close()


def _environment_of_process(process: psutil.Process) -> dict[str, str]:
    try:
        return dict(process.environ())
    except psutil.Error:
        return {}


def _is_alive(pid: int) -> bool:
    """Returns whether a process runs. In many containers nothing reaps orphans, so a daemon may remain as a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def daemon_config(folder: Path, socket: Path) -> str:
    return _ini_text(
        {
            "unix_http_server": {"file": socket, "chmod": "0700"},
            "supervisord": {
                "logfile": folder / "supervisord.log",
                "logfile_maxbytes": _LOG_BYTES,
                "logfile_backups": _OLD_LOGS,
                "pidfile": folder / "supervisord.pid",
                "childlogdir": folder / "logs",
                "directory": folder,
                "nocleanup": "true",
            },
            "rpcinterface:supervisor": {
                "supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"
            },
            "supervisorctl": {"serverurl": f"unix://{socket}"},
            "include": {"files": "programs/*.conf"},
        }
    )


def program_config(name: str, script: Path, text: str, log: Path, priority: int) -> str:
    """Returns supervisord's configuration of a program.

    text: the script, whose digest changes the configuration with it.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    settings: dict[str, object] = {
        "command": f"/bin/sh {shlex.quote(str(script))}",
        "environment": f'SPILLWAY_PROGRAM_DIGEST="{digest}"',
        "priority": priority,
        "autostart": "true",
        "autorestart": "unexpected",
        "exitcodes": _TAKEN_CODE,
        "startsecs": _START_SECONDS,
        "startretries": START_RETRIES,
        "stopwaitsecs": STOP_WAIT_SECONDS,
        "stopasgroup": "true",
        "killasgroup": "true",
        "redirect_stderr": "true",
        "stdout_logfile": log,
        "stdout_logfile_maxbytes": _LOG_BYTES,
        "stdout_logfile_backups": _OLD_LOGS,
    }
    return _ini_text({f"program:{name}": settings})


def program_script(program: Program, folder: Path) -> str:
    """Returns the shell script of a program. folder: the run folder.

    The environment is set in the script, because shell quoting holds any value and supervisor's own syntax does not.
    """
    exports = [f"export {name}={shlex.quote(value)}" for name, value in sorted(program.environment.items())]
    begin = [f"cd {shlex.quote(str(program.folder))}", f"exec {shlex.join(program.command)}"]
    guards = [_port_guard(program.name, port, folder) for port in program.ports]
    return "\n".join(["#!/bin/sh", *guards, *exports, *begin]) + "\n"


def _port_guard(name: str, port: int, folder: Path) -> str:
    """Returns shell lines that wait while another program has the port.

    Otherwise a program that finds its port taken would end and be started again without end.
    """
    taken = f"another program listens at its port {port}, which {folder / PORTS_FILE} names"
    looks_again = f"{taken}: looks again for {sum(TAKEN_PORT_PAUSES_SECONDS):g} s"
    given_up = f"{taken}: given up. End that one, or the next `spillway up` gives {name} another port"
    pauses = " ".join(f"{pause:g}" for pause in TAKEN_PORT_PAUSES_SECONDS)
    said = shlex.quote(str(folder / "programs" / f"{name}{_IN_THE_WAY}"))
    return f"""\
taken() {{ timeout {_PROBE_SECONDS:g} bash -c '</dev/tcp/{LOOPBACK}/{port}' 2>/dev/null; }}
if taken; then
    echo {shlex.quote(looks_again)} | tee {said}
    for pause in {pauses}; do sleep $pause; taken || break; done
    if taken; then echo {shlex.quote(given_up)} | tee {said}; exit {_TAKEN_CODE}; fi
fi
rm -f {said}"""


def _ini_text(sections: dict[str, dict[str, object]]) -> str:
    lines: list[str] = []
    for section, settings in sections.items():
        lines.append(f"[{section}]")
        lines.extend(f"{name} = {str(value).replace('%', '%%')}" for name, value in settings.items())
        lines.append("")
    return "\n".join(lines)
