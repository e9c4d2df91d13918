"""The command that runs restarts, faults and loops whole, in small."""

import json
from pathlib import Path

import pytest

from spillway_scaling import proofs
from spillway_scaling.restart import Restarts


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    out = tmp_path / "found.json"
    sizes = ["--crashes", "4", "--seeds", "1", "--loops", "2", "--jobs", "1", "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["proofs.py", *sizes])
    return out


def test_it_tells_of_each_proof_and_writes_it_down(asked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert proofs.main() == 0
    said = capsys.readouterr().out
    for line in ("| ScaledObject | 4 |", "| busier | karmada, one lost | 100 |", "0 of 2 seeds never rest"):
        assert line in said
    found = json.loads(asked.read_text())
    assert found["faults"]["idler"]["ours, one lost"]["taken"] == 0
    assert len(found["last decisions"]) == 2


def test_a_decision_that_a_crash_changes_is_counted() -> None:
    *_, row = proofs.crashes_table({"ScaledObject": Restarts(1000, 13, (3, 5))})
    assert row == "| ScaledObject | 1000 | 13 | 2 |"
