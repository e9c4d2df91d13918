"""What is said when a tool is missing or fails, and how two processes keep out of each other's way."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spillway_local import tools
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
from spillway_local.tools import exclusive_lock

folder = Path(sys.argv[1])
with exclusive_lock(folder / "turn.lock"):
    (folder / "inside").touch(exist_ok=False)
    time.sleep(0.1)
    (folder / "inside").unlink()
"""


def test_a_missing_program_names_what_to_install_and_what_works_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MissingTool, match=r"oven-8.*oven-package.*BUS=memory"):
        ensure_program("oven-8", ("oven-package",), "run with BUS=memory")


def test_a_failed_installation_is_a_missing_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "apt-get").write_text("#!/bin/sh\necho no such package\nexit 100\n")
    (tmp_path / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
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


class Screen(io.StringIO):
    """What is told. With its second line it writes into a file, for which the tool waits."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def write(self, text: str) -> int:
        count = super().write(text)
        if self.getvalue().count("\n") == 2:
            self._file.write_text("x")
        return count


def test_a_tool_that_takes_long_is_told_with_what_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "PROGRESS_EVERY_SECONDS", 0.05)
    waits = "while not open('told', 'a').tell(): pass"
    (tmp_path / "told").touch()
    screen = Screen(tmp_path / "told")
    monkeypatch.setattr(sys, "stderr", screen)
    assert run_tool(("nice", "-n", "1", sys.executable, "-c", waits), tmp_path) == ""
    lines = screen.getvalue().splitlines()
    assert len(lines) >= 2
    for line in lines:
        assert line.startswith(f"spillway-local: {Path(sys.executable).name} -c {waits}: still running after ")


PATIENTLY = Path(__file__).resolve().parents[2] / "tools" / "patiently"
WAITS = "until [ -s told ]; do sleep 0.05; done; echo out; exit 7"
"""Until somebody wrote into the file told."""


def test_what_make_waits_for_is_told_again_and_again_and_its_end_is_passed_on(tmp_path: Path) -> None:
    quick = {**os.environ, "PATIENTLY_FIRST_SECONDS": "0.05", "PATIENTLY_EVERY_SECONDS": "0.05"}
    command = (str(PATIENTLY), "fetching it", "sh", "-c", WAITS)
    with subprocess.Popen(command, cwd=tmp_path, env=quick, stdout=-1, stderr=-1, text=True) as process:
        assert process.stderr is not None
        said = [process.stderr.readline() for _ in range(2)]
        (tmp_path / "told").write_text("x")
        out, _ = process.communicate()
    assert (said[0], said[1].startswith("spillway: fetching it: still running after ")) == (
        "spillway: fetching it\n",
        True,
    )
    assert (out, process.returncode) == ("out\n", 7)


def test_what_is_quick_is_not_told_and_holds_no_output_open(tmp_path: Path) -> None:
    never = {**os.environ, "PATIENTLY_FIRST_SECONDS": "600"}
    command = (str(PATIENTLY), "fetching it", "echo", "done")
    done = subprocess.run(command, cwd=tmp_path, env=never, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("done\n", "")
