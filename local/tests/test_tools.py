"""What is said when a tool is missing or fails, and how two processes keep out of each other's way."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spillway_local.tools import (
    MissingTool,
    NotReady,
    ToolFailed,
    cache_folder,
    ensure_program,
    run_tool,
    wait_until,
)

TURN = """
import sys, time
from pathlib import Path
from spillway_local.tools import exclusive

folder = Path(sys.argv[1])
with exclusive(folder / "turn.lock"):
    (folder / "inside").touch(exist_ok=False)
    time.sleep(0.1)
    (folder / "inside").unlink()
"""


def test_a_missing_program_names_what_to_install_and_what_works_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MissingTool, match=r"oven-8.*oven-package.*BUS=memory"):
        ensure_program("oven-8", ("oven-package",), "run with BUS=memory")


def test_a_failed_installation_is_a_missing_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> str:
        raise ToolFailed("no such package")

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/apt-get" if name == "apt-get" else None)
    monkeypatch.setattr("spillway_local.tools.run_tool", fails)
    with pytest.raises(MissingTool, match="no such package"):
        ensure_program("oven-8", ("oven-package",), "run with BUS=memory")


def test_a_failed_tool_is_reported_with_its_output(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match=r"(?s)ended with 3.*burnt"):
        run_tool(("sh", "-c", "echo burnt >&2; exit 3"), tmp_path)


def test_the_cache_folder_may_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPILLWAY_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path


def test_waiting_is_bounded() -> None:
    with pytest.raises(NotReady, match="bread was not ready"):
        wait_until(lambda: False, 0.05, "bread")


def test_two_processes_take_turns(tmp_path: Path) -> None:
    workers = [subprocess.Popen((sys.executable, "-c", TURN, str(tmp_path))) for _ in range(3)]
    assert [worker.wait(30) for worker in workers] == [0, 0, 0]
