"""Programs under a real supervisord."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from spillway_local.ports import LOOPBACK, is_listening, session_port
from spillway_local.programs import PortTaken, Program, Stage
from spillway_local.supervision import (
    NotSupervised,
    ProgramFailed,
    ProgramStatus,
    Supervision,
    daemon_config,
    program_config,
    program_script,
)
from spillway_local.tools import NotReady, wait_until

LISTENER = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
time.sleep(600)
"""
TALKER = "import os, time\nprint('hello', os.environ.get('NAME'), flush=True)\ntime.sleep(600)"


@pytest.fixture
def supervision(tmp_path: Path) -> Iterator[Supervision]:
    started = Supervision(tmp_path / "run")
    yield started
    started.stop()


def talking_program(name: str, folder: Path, **environment: str) -> Program:
    return Program(name, (sys.executable, "-c", TALKER), folder, environment)


def status_of(supervision: Supervision, name: str) -> ProgramStatus:
    return next(status for status in supervision.status() if status.name == name)


def wait_for_condition(condition: Callable[[], bool]) -> None:
    wait_until(condition, 10.0, "the condition")


STARTER = """
import os, sys
from pathlib import Path
from spillway_local.programs import Program, Stage
from spillway_local.supervision import Supervision
program = Program("one", (sys.executable, "-c", sys.argv[3]), Path(sys.argv[1]))
Supervision(Path(sys.argv[1]) / "run", outlives=sys.argv[2] == "outlives").start([Stage("all", (program,))])
print("up", flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("outlives", [True, False])
def test_programs_outlive_a_killed_command_only_where_that_is_wanted(
    supervision: Supervision, tmp_path: Path, outlives: bool
) -> None:
    arguments = (str(tmp_path), "outlives" if outlives else "ends", TALKER)
    started = subprocess.run((sys.executable, "-c", STARTER, *arguments), capture_output=True, text=True, check=False)
    assert started.stdout == "up\n", started.stderr
    if outlives:
        assert status_of(supervision, "one").state == "RUNNING"
        return
    mine = f"unix://{supervision.socket_path}"
    wait_for_condition(lambda: not supervision.is_running())
    wait_for_condition(lambda: not any(mine == supervisor_of(process) for process in psutil.process_iter()))


def supervisor_of(process: psutil.Process) -> str:
    """The address of the daemon that started a process; empty when none did, or it is gone."""
    try:
        return process.environ().get("SUPERVISOR_SERVER_URL", "")
    except psutil.Error:
        return ""


def test_programs_start_by_stage_and_are_restarted_after_a_kill(supervision: Supervision, tmp_path: Path) -> None:
    order: list[str] = []
    first = Stage("first", (talking_program("one", tmp_path),), after=lambda: order.append("first"))
    second = Stage("second", (talking_program("two", tmp_path, NAME='it\'s "quoted" 100% ; # $HOME'),))
    supervision.start([first, second])

    assert order == ["first"]
    assert {status.name: status.state for status in supervision.status()} == {"one": "RUNNING", "two": "RUNNING"}
    wait_for_condition(lambda: 'hello it\'s "quoted" 100% ; # $HOME' in supervision.log_file_of("two").read_text())

    killed = status_of(supervision, "one").pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    wait_for_condition(lambda: status_of(supervision, "one").pid not in {killed, None})
    wait_for_condition(lambda: status_of(supervision, "one").state == "RUNNING")

    pids = [status.pid for status in supervision.status()]
    supervision.stop()
    assert supervision.status() == []
    assert not any(pid and Path(f"/proc/{pid}/exe").exists() for pid in pids)


def test_a_second_start_leaves_the_unchanged_alone_and_replaces_the_changed(
    supervision: Supervision, tmp_path: Path
) -> None:
    supervision.start([Stage("all", (talking_program("same", tmp_path), talking_program("changing", tmp_path)))])
    before = {status.name: status.pid for status in supervision.status()}

    supervision.start(
        [Stage("all", (talking_program("same", tmp_path), talking_program("changing", tmp_path, NAME="new")))]
    )

    after = {status.name: status.pid for status in supervision.status()}
    assert after["same"] == before["same"]
    assert after["changing"] != before["changing"]


def test_programs_are_added_restarted_stopped_and_removed_while_others_run(
    supervision: Supervision, tmp_path: Path
) -> None:
    supervision.start([Stage("all", (talking_program("stays", tmp_path),))])
    stays = status_of(supervision, "stays").pid

    supervision.add_programs([talking_program("late", tmp_path)])
    late = status_of(supervision, "late").pid
    supervision.restart_program("late")
    assert status_of(supervision, "late").pid not in {late, None}

    supervision.stop_program("late")
    assert status_of(supervision, "late").state == "STOPPED"
    supervision.start_program("late")
    assert status_of(supervision, "late").state == "RUNNING"

    supervision.remove_program("late")
    assert [(status.name, status.pid) for status in supervision.status()] == [("stays", stays)]
    with pytest.raises(NotSupervised, match="late"):
        supervision.restart_program("late")


def test_what_a_killed_daemon_left_behind_is_ended_by_the_next_start(supervision: Supervision, tmp_path: Path) -> None:
    supervision.start([Stage("all", (talking_program("orphan", tmp_path),))])
    orphan = status_of(supervision, "orphan").pid
    assert orphan is not None
    daemon = int((supervision.folder / "supervisord.pid").read_text())
    os.kill(daemon, signal.SIGKILL)
    wait_for_condition(lambda: not supervision.is_running())

    supervision.start([Stage("all", (talking_program("other", tmp_path),))])

    assert [status.name for status in supervision.status()] == ["other"]
    assert not Path(f"/proc/{orphan}/exe").exists()


def test_a_program_that_cannot_start_is_reported_with_its_log(
    supervision: Supervision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillway_local.supervision.START_RETRIES", 1)
    failing = Program("failing", (sys.executable, "-c", "raise SystemExit('no bread')"), tmp_path)
    with pytest.raises(ProgramFailed, match="no bread"):
        supervision.start([Stage("all", (failing,))])


def test_a_stage_that_never_gets_ready_says_which_program_ended_again_and_again_and_why(
    supervision: Supervision, tmp_path: Path
) -> None:
    """It runs for longer than its first second each time, so that it is started again for ever."""
    failing = Program("failing", (sys.executable, "-c", "import time; time.sleep(1.5); exit('no bread')"), tmp_path)

    def is_ready() -> bool:
        first = status_of(supervision, "failing").pid
        wait_for_condition(lambda: status_of(supervision, "failing").pid not in {first, None})
        return False

    never = Stage("all", (failing, talking_program("well", tmp_path)), is_ready, ready_timeout_seconds=5.0)
    with pytest.raises(NotReady, match=r"failing ended; the end of .*failing.log:\n(.*\n)*no bread") as raised:
        supervision.start([never])
    assert "well ended" not in str(raised.value)


def test_what_a_slow_stage_waits_for_is_told_meanwhile(tmp_path: Path) -> None:
    told: list[str] = []
    supervision = Supervision(tmp_path / "run", say=told.append, told_every_seconds=0.2)
    slow = Stage("all", (talking_program("one", tmp_path),), lambda: len(told) > 1, waits_for=lambda: ("one's turn",))
    try:
        supervision.start([slow])
    finally:
        supervision.stop()
    assert {re.sub(r"\d+ s", "N s", line) for line in told} == {"all: not ready after N s; waiting for one's turn"}


def test_who_does_not_wait_for_the_end_leaves_nothing_behind(supervision: Supervision, tmp_path: Path) -> None:
    supervision.start([Stage("all", (talking_program("one", tmp_path),))])
    pid = status_of(supervision, "one").pid
    supervision.stop_without_waiting()
    wait_for_condition(lambda: not supervision.is_running() and not Path(f"/proc/{pid}").exists())
    supervision.stop_without_waiting()  # With nothing there it does nothing.


LATE = """
import socket, sys, time
time.sleep(1.5)  # Longer than supervisor's first second, as Kafka takes: so it is started again for ever.
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(600)
"""


@pytest.mark.parametrize("looks_ready", [True, False])
def test_a_stage_is_not_ready_because_somebody_else_listens_in_its_place(
    supervision: Supervision, tmp_path: Path, looks_ready: bool
) -> None:
    """What another platform's Kafka did at a port that both had chosen: ours ended, and its log was taken for ours."""
    with socket.create_server((LOOPBACK, session_port())) as stranger:
        port = stranger.getsockname()[1]
        late = Program("late", (sys.executable, "-c", LATE, str(port)), tmp_path, ports=(port,))
        stage = Stage("log", (late,), lambda: looks_ready and is_listening(port))
        with pytest.raises(PortTaken, match=f"late: another program listens at its port {port};") as raised:
            supervision.start([stage])
    assert raised.value.program == "late"
    assert status_of(supervision, "late").state == "STOPPED"


def test_a_program_whose_port_another_took_while_it_was_down_waits_says_so_and_is_given_up(
    supervision: Supervision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was begun again for ever, each time longer than its first second; no status told why."""
    monkeypatch.setattr("spillway_local.supervision.TAKEN_PORT_PAUSES_SECONDS", (0.5, 2))
    port = session_port()
    late = Program("late", (sys.executable, "-c", LATE, str(port)), tmp_path, ports=(port,))
    stage = Stage("log", (late,))
    supervision.start([stage])
    supervision.stop_program("late")
    with socket.create_server((LOOPBACK, port)):
        supervision.start_program("late")
        wait_for_condition(lambda: status_of(supervision, "late").state == "FATAL")
    ports = supervision.folder / "ports.json"
    said = f"another program listens at its port {port}, which {ports} names"
    given_up = f"{said}: given up. End that one, or the next `spillway up` gives late another port"
    assert status_of(supervision, "late").problem == given_up
    lines = supervision.log_file_of("late").read_text().splitlines()
    assert lines == [f"{said}: looks again for 2.5 s", given_up]
    supervision.start([stage])
    assert status_of(supervision, "late").state == "RUNNING"


def test_a_program_whose_port_comes_free_again_begins(
    supervision: Supervision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillway_local.supervision.TAKEN_PORT_PAUSES_SECONDS", (0.1,) * 100)
    port = session_port()
    late = Program("late", (sys.executable, "-c", LATE, str(port)), tmp_path, ports=(port,))
    supervision.start([Stage("log", (late,))])
    supervision.stop_program("late")
    with socket.create_server((LOOPBACK, port)):
        supervision.start_program("late")
        wait_for_condition(lambda: status_of(supervision, "late").state == "BACKOFF")
        assert "looks again for 10 s" in status_of(supervision, "late").problem
    wait_for_condition(lambda: late.is_listening(status_of(supervision, "late").pid or 0))
    status = status_of(supervision, "late")
    assert (status.state, status.problem) == ("RUNNING", "")


def test_a_stage_is_ready_once_its_own_program_listens(supervision: Supervision, tmp_path: Path) -> None:
    port = session_port()
    late = Program("late", (sys.executable, "-c", LATE, str(port)), tmp_path, ports=(port,))
    supervision.start([Stage("log", (late,))])
    pid = status_of(supervision, "late").pid
    assert pid is not None
    assert late.is_listening(pid)


def test_ports_are_those_where_its_programs_listen_and_no_others(supervision: Supervision, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)):
        supervision.start([Stage("all", (Program("server", (sys.executable, "-c", LISTENER), tmp_path),))])
        wait_for_condition(lambda: supervision.log_file_of("server").read_text().strip().isdigit())
        assert supervision.occupied_ports() == {int(supervision.log_file_of("server").read_text())}


def test_a_program_that_was_killed_a_moment_before_is_stopped_for_good(
    supervision: Supervision, tmp_path: Path
) -> None:
    """It has exited and is about to be started again when told to stop; three times, since the moment is short."""
    supervision.start([Stage("only", (talking_program("one", tmp_path),))])
    for _ in range(3):
        running = status_of(supervision, "one").pid
        assert running is not None
        os.kill(running, signal.SIGKILL)
        supervision.stop_program("one")
        assert status_of(supervision, "one").state in ("STOPPED", "FATAL")
        supervision.start_program("one")


AFTER_ALL_WERE_TOLD = """
import pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
def told(*_):
    (folder / sys.argv[2]).with_suffix(".told").touch()
    while len(list(folder.glob("*.told"))) < 4:
        time.sleep(0.01)
    (folder / sys.argv[2]).with_suffix(".ended").touch()
    sys.exit()
signal.signal(15, told)
(folder / sys.argv[2]).with_suffix(".ready").touch()
time.sleep(600)
"""


def test_a_stop_does_not_wait_for_each_program_in_turn(supervision: Supervision, tmp_path: Path) -> None:
    """None of them ends by itself before all were told to."""
    programs = tuple(
        Program(f"slow-{n}", (sys.executable, "-c", AFTER_ALL_WERE_TOLD, str(tmp_path), f"slow-{n}"), tmp_path)
        for n in range(4)
    )
    supervision.start([Stage("all", programs)])
    wait_for_condition(lambda: len(list(tmp_path.glob("*.ready"))) == 4)
    supervision.stop()
    assert len(list(tmp_path.glob("*.ended"))) == 4


def test_nothing_is_known_before_the_first_start(supervision: Supervision) -> None:
    assert supervision.status() == []
    assert not supervision.is_running()


def test_a_deep_run_folder_has_its_socket_elsewhere(tmp_path: Path) -> None:
    deep = Supervision(tmp_path / ("d" * 120))
    assert len(str(deep.socket_path)) < 108
    assert deep.socket_path.parent != deep.folder


@pytest.mark.parametrize(
    ("written", "line"),
    [
        pytest.param("config", "priority = 103", id="stage order"),
        pytest.param("config", "stopwaitsecs = 25", id="patience at the end"),
        pytest.param("config", "startretries = 8", id="bounded retries"),
        pytest.param("config", "redirect_stderr = true", id="one log for both streams"),
        pytest.param("config", "stdout_logfile = /run/100%%/logs/a.log", id="percent signs doubled"),
        pytest.param("script", "export KEY='a b'", id="environment quoted"),
        pytest.param("script", "exec program '--flag=x y'", id="arguments quoted"),
        pytest.param("daemon", "file = /run/100%%/s.sock", id="socket"),
    ],
)
def test_generated_files(written: str, line: str) -> None:
    program = Program("a", ("program", "--flag=x y"), Path("/folder"), {"KEY": "a b"})
    run = Path("/run/100%")
    script = program_script(program, run)
    files = {
        "config": program_config("a", run / "a.sh", script, run / "logs" / "a.log", 103),
        "script": script,
        "daemon": daemon_config(run, run / "s.sock"),
    }
    assert line in files[written].splitlines()
