"""The ledger of seeds: what was run is not run again, whatever ended the run, and what failed is said again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spillway_simulation.ledger import COLUMNS, Code, Ledger, Outcome, add_ranges, code_of_checkout

SIMULATE = str(Path(__file__).parents[2] / "lab/simulation/simulate.py")
CODE = Code("abc", "v1")


def make_outcome(seed: int, *failures: str) -> Outcome:
    return Outcome(seed, failures, "d", 1.0, 1.0, 1, 1, 1.0, cpu_seconds=1.5)


def test_a_line_that_was_cut_off_is_ignored_and_the_next_one_is_whole(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger", CODE)
    ledger.append_outcome(make_outcome(1))
    ledger.append_outcome(make_outcome(2, "something"))
    text = (tmp_path / "ledger").read_bytes()
    (tmp_path / "ledger").write_bytes(text[:-20])
    assert list(ledger.outcomes_by_seed()) == [1]
    ledger.append_outcome(make_outcome(3))
    assert list(ledger.outcomes_by_seed()) == [1, 3]


def test_what_ran_with_other_code_does_not_count(tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger", CODE).append_outcome(make_outcome(1))
    assert Ledger(tmp_path / "ledger", Code("other", "v1")).outcomes_by_seed() == {}


@pytest.mark.parametrize(
    ("content", "is_other"),
    [
        pytest.param("def f():\n    return 2\n", True, id="a statement"),
        pytest.param('"""A text."""\n\n\ndef f():  # Why.\n    """Another."""\n    return 1\n', False, id="texts"),
    ],
)
def test_a_change_of_any_statement_is_other_code(
    content: str, is_other: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "services" / "a" / "src" / "a" / "one.py"
    source.parent.mkdir(parents=True)
    source.write_text("def f():\n    return 1\n")
    monkeypatch.setattr("spillway_simulation.ledger.ROOT", tmp_path)
    before = code_of_checkout()
    source.write_text(content)
    assert (code_of_checkout().digest != before.digest) is is_other


def test_a_seed_runs_no_module_that_its_digest_leaves_out() -> None:
    """In a process of its own, since other tests import those modules."""
    program = (
        "import sys; from pathlib import Path; from spillway_simulation.ledger import is_run_by_seeds;"
        "from spillway_simulation.run import run_seed; run_seed(13);"
        "files = [Path(file) for one in list(sys.modules.values()) if (file := getattr(one, '__file__', None))];"
        "print([str(file) for file in files if not is_run_by_seeds(file)])"
    )
    paths = os.pathsep.join(sys.path)
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_ranges_of_code_grow_and_those_of_other_code_stay(tmp_path: Path) -> None:
    table, ledger = tmp_path / "ranges.tsv", Ledger(tmp_path / "one", CODE)
    other = Ledger(tmp_path / "two", Code("xyz", "v2"))
    dirty = Ledger(tmp_path / "two", Code("uvw", "v2-dirty"))
    for seed in (10, 11, 20):
        ledger.append_outcome(make_outcome(seed))
    other.append_outcome(make_outcome(10))
    dirty.append_outcome(make_outcome(10))
    assert (add_ranges(table, ledger), add_ranges(table, other)) == (2, 1)
    ledger.append_outcome(make_outcome(12, "something"))
    add_ranges(table, ledger)
    rows = [line.split("\t") for line in table.read_text().splitlines()]
    assert rows[0] == list(COLUMNS)
    assert rows[1:] == [
        ["xyz", "v2", "10", "11", "1", "0", "2", "-"],
        ["abc", "v1", "10", "13", "2", "1", "4", "12"],
        ["abc", "v1", "20", "21", "1", "0", "2", "-"],
    ]


@pytest.mark.timeout(300)
def test_a_run_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    """kill -9 of the whole run while its seeds run: those that ended are known, and no worker stays."""
    path, out = tmp_path / "ledger", tmp_path / "simulation.json"
    command = [sys.executable, SIMULATE, "--seeds", "13:17", "--out", str(out), "--ledger", str(path)]
    first = subprocess.Popen([*command, "--jobs", "2"], stdout=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 200
    while not path.exists() or path.read_bytes().count(b"\n") < 2:
        assert time.monotonic() < deadline
        assert first.poll() is None, "it ended before it could be killed"
        time.sleep(0.02)
    workers = child_pids(first.pid)
    first.send_signal(signal.SIGKILL)
    first.wait()
    done = {json.loads(line)["seed"]: line for line in path.read_text().splitlines()}
    second = subprocess.run([*command, "--jobs", "1"], capture_output=True, text=True, check=True)
    assert f"{len(done)} of 4 seeds were run with this code before" in second.stdout
    assert set(done.values()) <= set(path.read_text().splitlines())
    assert json.loads(out.read_text())["seeds"] == 4
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < deadline, "a worker lives on"
        time.sleep(0.05)


def child_pids(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(one) for one in found.read_text().split()] if found.exists() else []


def test_what_failed_before_is_said_again_with_its_replay(tmp_path: Path) -> None:
    code = code_of_checkout()
    Ledger(tmp_path / "ledger", code).append_outcome(make_outcome(7, "something does not hold"))
    command = [sys.executable, SIMULATE, "--seeds", "7:8", "--ledger", str(tmp_path / "ledger")]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "out.json")], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "something does not hold" in done.stdout
    assert "make simulate REPLAY=7" in done.stdout
