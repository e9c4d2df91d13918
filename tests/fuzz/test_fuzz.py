"""What failed once does not fail again, nor does a sample of what `make fuzz` makes; and what is planted is found."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
FUZZ = HERE.parents[1] / "lab/fuzz"
KEPT = sorted((FUZZ / "found").glob("*.txt"))
SAMPLE_INPUTS = 10_000
"""Some 150 for each target, so that all are asked whether any input gets past their first look."""


def run_fuzzer(folder: Path, *options: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """A run of the script, and its counts by target."""
    command = [sys.executable, str(FUZZ / "fuzz.py"), "--out", str(folder), *options]
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    counts = folder / "counts-1.json"
    return ended, json.loads(counts.read_text()) if counts.exists() else {}


@pytest.mark.timeout(900)
def test_what_failed_once_is_taken_or_refused() -> None:
    """In a process of its own: some of it ended the process."""
    assert KEPT
    command = [sys.executable, str(FUZZ / "fuzz.py"), "--kept", *map(str, KEPT)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-4_000:] + ended.stderr[-4_000:]


@pytest.mark.timeout(900)
def test_a_sample_of_all_inputs_is_taken_or_refused(tmp_path: Path) -> None:
    ended, counts = run_fuzzer(tmp_path, "--inputs", str(SAMPLE_INPUTS), "--seed", "1", "--jobs", "2")
    assert ended.returncode == 0, ended.stdout[-8_000:] + ended.stderr[-4_000:]
    assert sum(one["inputs"] for one in counts.values()) > 0.98 * SAMPLE_INPUTS
    assert [name for name, one in counts.items() if one["defects"]] == []
    never = {name for name, one in counts.items() if one["inputs"] > 100 and not one["accepted"]}
    assert not never, "of these no input gets past the first look, so that nothing behind it is tried"


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("planted", "words"),
    [
        ("raises", "ZeroDivisionError"),
        ("hangs", "the process ended: -6"),
        ("dies", "the process ended: 7"),
        ("takes memory", "the most memory ever had grew by"),
        ("takes all memory", "MemoryError"),
    ],
)
def test_what_is_planted_is_found(planted: str, words: str, tmp_path: Path) -> None:
    """One bad input among good ones: it is told and kept, and those behind it are run."""
    hangs_after = "2" if planted == "hangs" else "60"
    which = ("--targets", "planted", "--only", planted, "--inputs", "40", "--seed", "1")
    ended, counts = run_fuzzer(tmp_path, *which, "--hangs-after", hangs_after)
    assert ended.returncode == 1
    assert counts == {planted: {"inputs": 40, "accepted": counts[planted]["accepted"], "defects": 1}}
    assert words in ended.stdout
    (kept,) = tmp_path.glob("*-1-20.txt")
    assert kept.read_text().startswith(f"{planted}\n0.")
