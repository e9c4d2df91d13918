"""A sample of the simulation: seeds that failed once, some more, and that a seed replays. `make simulate` runs many."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAMPLE = "13:17"
"""Beside those that are kept."""


def run_simulation(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs the simulation in its own process, because Python fixes the order of sets of strings when it starts."""
    command = [sys.executable, str(ROOT / "lab/simulation/simulate.py"), *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.timeout(900)
def test_no_seed_of_the_sample_fails(tmp_path: Path) -> None:
    """Nothing undone, doubled, lost or left behind in any of them."""
    out, ledger = str(tmp_path / "simulation.json"), str(tmp_path / "ledger")
    done = run_simulation("--seeds", SAMPLE, "--kept", "quick", "--jobs", "2", "--out", out, "--ledger", ledger)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "simulation.json").read_text())
    assert summary["seeds"] >= 35
    assert summary["writes"] > 300
    assert summary["sizes_decided"] > 50
    assert min(summary["adopted"], summary["disowned"], summary["orphaned"]) > 5
    assert summary["drawn"]["waited for missing"] > 3


@pytest.mark.parametrize("seed", [40, 640023])
def test_a_seed_gives_the_same_trace_again(seed: int) -> None:
    """The same seed gives the same trace, record by record and write by write, also after another seed.

    In 640023 hpa asks for a queue, at intervals that it shortens at random.
    """
    alone = run_simulation("--seed", str(seed), "--trace").stdout
    assert alone.count("\n") > 50
    assert run_simulation("--seed", str(seed), "--after", "3", "--trace").stdout == alone
