"""A small sample of the suite, with made-up clusters and the plain scheduler; `make replay` is the whole."""

import json
import os
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway_replay.least import Bound, least_moves

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, str(ROOT / "lab/replay/replay.py"), "--made-up", "--jobs", "2")
OURS = ("ours", "ours, killed")


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counter[str]]:
    """By planner, summed. In a process of its own: the order of sets of strings is chosen when Python starts."""
    out = tmp_path_factory.mktemp("replay") / "replay.json"
    command = [*COMMAND, "--plain", "--bursts", "10", "--seeds", "1:2", "--out", str(out)]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Counter[str]] = {}
    for entry in json.loads(out.read_text()):
        found.setdefault(entry["run"]["planner"], Counter()).update(entry["figures"])
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("planner", OURS)
def test_what_is_promised_finds_its_node(planner: str, figures: dict[str, Counter[str]]) -> None:
    """Of shapes that do not look at other pods all do, and of none is a hole promised twice."""
    found = figures[planner]
    assert found["handed: plain"] > 30
    assert found["unplaceable: plain"] == 0
    assert found["double-booked: plain"] == found["double-booked: between pods"] == 0


@pytest.mark.parametrize("planner", OURS)
def test_nothing_is_refused_that_has_a_place(planner: str, figures: dict[str, Counter[str]]) -> None:
    """By the records that had come; and nothing waits at rest beside room for it."""
    found = figures[planner]
    assert found["refused replicas judged"] + found["waiting at rest"] > 30
    assert found["refusals judged"] == found["requests refused"] > 0
    assert found["refused though placeable as asked: plain"] == 0
    assert found["refused though placeable as told: plain"] == 0
    assert found["waiting though placeable as told: plain"] == 0


@pytest.mark.parametrize("planner", OURS)
def test_no_division_needs_fewer_moves(planner: str, figures: dict[str, Counter[str]]) -> None:
    found = figures[planner]
    assert found["decisions: Scale"] > 5
    assert [found[f"moves: {cause}"] for cause in ("Scale", "Apply")] == [
        found[f"least moves: {cause}"] for cause in ("Scale", "Apply")
    ]


def test_a_killed_planner_loses_and_doubles_nothing(figures: dict[str, Counter[str]]) -> None:
    """What was answered is there, once, with the replicas that were asked for."""
    found = figures["ours, killed"]
    assert found["kills"] >= 4
    assert found["asked again"] > 0
    assert found["workloads taken"] > 10
    assert found["workloads lost or doubled"] == 0


def test_the_suite_sees_a_planner_that_books_twice(figures: dict[str, Counter[str]]) -> None:
    """One that reserves nothing promises holes twice, and one that adds up promises holes that are none."""
    assert figures["nodes"]["double-booked: plain"] > 0
    assert figures["sums"]["unplaceable: plain"] > figures["sums"]["double-booked: plain"]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=4), st.data())
def test_least_moves_is_the_least(drawn: list[tuple[int, int, int]], data: st.DataObject) -> None:
    """Of every division there is within the bounds."""
    bounds = [Bound(before, least, least + more) for before, least, more in drawn]
    every = list(product(*(range(bound.least, bound.most + 1) for bound in bounds)))
    placed = data.draw(st.sampled_from(sorted({sum(division) for division in every})))
    moves = [
        sum(max(0, bound.before - after) for bound, after in zip(bounds, division, strict=True))
        for division in every
        if sum(division) == placed
    ]
    assert least_moves(bounds, placed) == min(moves)


def test_a_division_that_cannot_be_is_said_to_be_none() -> None:
    with pytest.raises(ValueError, match="cannot be divided"):
        least_moves([Bound(1, 0, 2)], 3)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("program", "error"),
    [("exit 7", "OracleFailed"), ("kill -9 $PPID", "BrokenProcessPool")],
    ids=["it ends", "it takes its run with it"],
)
def test_an_oracle_that_fails_ends_the_suite_with_its_error(program: str, error: str, tmp_path: Path) -> None:
    """Also the runs that other processes are at."""
    environment = {**os.environ, "PYTHONHASHSEED": "0", "SPILLWAY_CACHE": str(tmp_path)}
    where = "from spillway_oracle import binary; print(binary.oracle_path())"
    asking = {**environment, "PYTHONPATH": str(ROOT / "lab/oracle")}
    found = subprocess.run((sys.executable, "-c", where), env=asking, capture_output=True, text=True, check=True)
    oracle = Path(found.stdout.strip())
    assert tmp_path in oracle.parents
    oracle.parent.mkdir(parents=True, exist_ok=True)
    oracle.write_text(f"#!/bin/sh\n{program}\n")
    oracle.chmod(0o700)
    command = [*COMMAND, "--bursts", "10", "--seeds", "1:9", "--out", str(tmp_path / "replay.json")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert error in done.stderr.splitlines()[-1]
    assert not (tmp_path / "replay.json").exists()
