"""Children that do not outlive who started them, however that ends."""

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from spillway_local.ports import LOOPBACK, is_listening, session_port
from spillway_local.programs import PortTaken, Program, start_child
from spillway_local.tools import wait_until

STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("here", flush=True)
time.sleep(600)
"""
PARENT = """
import sys, time
from pathlib import Path
from spillway_local.programs import Program, start_child
child = start_child(Program("child", (sys.executable, "-c", sys.argv[2]), Path(sys.argv[1])), Path(sys.argv[1]) / "log")
print(child.pid, flush=True)
time.sleep(600)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a signal at the parent's death is Linux's")


def is_process_gone(pid: int) -> bool:
    """A zombie is gone: where nobody reaps orphans it stays."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_killed_parent_takes_its_children_along_even_those_that_do_not_listen(tmp_path: Path) -> None:
    command = (sys.executable, "-c", PARENT, str(tmp_path), STUBBORN)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        wait_until(lambda: "here" in (tmp_path / "log").read_text(), 10.0, "the child")
        os.kill(parent.pid, signal.SIGKILL)
        wait_until(lambda: is_process_gone(child), 10.0, "the child's end")


def test_a_child_is_interruptible_where_its_starter_ignores_it(tmp_path: Path) -> None:
    """A CI that runs in the background of a shell ignores SIGINT, and so would all that is started below it."""
    shows = "import signal, time; print('here', signal.getsignal(signal.SIGINT), flush=True); time.sleep(600)"
    ignoring = ("sh", "-c", "trap '' INT; exec \"$@\"", "sh")
    with subprocess.Popen(
        (*ignoring, sys.executable, "-c", PARENT, str(tmp_path), shows), stdout=subprocess.PIPE
    ) as parent:
        wait_until(lambda: (tmp_path / "log").exists() and "here" in (tmp_path / "log").read_text(), 10.0, "the child")
        parent.kill()
    assert "default_int_handler" in (tmp_path / "log").read_text()


def test_a_child_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    started = []
    program = Program("child", (sys.executable, "-c", STUBBORN), tmp_path)
    thread = threading.Thread(target=lambda: started.append(start_child(program, tmp_path / "log")))
    thread.start()
    thread.join()
    (child,) = started
    wait_until(lambda: "here" in (tmp_path / "log").read_text(), 10.0, "the child")
    assert child.process.poll() is None
    child.kill()


def test_a_child_is_not_ready_because_somebody_else_listens_in_its_place(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, session_port())) as stranger:
        port = stranger.getsockname()[1]
        child = start_child(
            Program("child", (sys.executable, "-c", STUBBORN), tmp_path, ports=(port,)), tmp_path / "log"
        )
        try:
            with pytest.raises(PortTaken, match=f"child: another program listens at its port {port}"):
                child.wait_ready(lambda: is_listening(port), 10.0)
        finally:
            child.kill()
