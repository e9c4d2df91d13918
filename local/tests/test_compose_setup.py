"""The files that compose's setup makes once, and what it mends in those of an older version."""

import json
from pathlib import Path

from spillway.rpc.callers import callers_of
from spillway_local.compose_setup import CALLER, Files, write_files


def test_a_second_run_keeps_the_token_and_what_a_person_added(tmp_path: Path) -> None:
    files = Files(tmp_path)
    write_files(files, "kafka:9092", ())
    (ours,) = json.loads(files.callers.read_text())["callers"]
    theirs = {"name": "alice", "verbs": ["read"]}
    files.callers.write_text(json.dumps({"callers": [ours, theirs]}))
    config = files.config.read_text()
    write_files(files, "kafka:9092", ())
    assert json.loads(files.callers.read_text())["callers"] == [ours, theirs]
    assert files.config.read_text() == config


def test_our_entry_of_an_older_version_gets_its_verbs(tmp_path: Path) -> None:
    files = Files(tmp_path)
    write_files(files, "kafka:9092", ())
    (ours,) = json.loads(files.callers.read_text())["callers"]
    older = {name: value for name, value in ours.items() if name != "verbs"}
    files.callers.write_text(json.dumps({"callers": [older]}))
    write_files(files, "kafka:9092", ())
    assert json.loads(files.callers.read_text())["callers"] == [ours]
    assert callers_of(files.callers.read_bytes(), "callers.json").by_token[ours["token_sha256"]].name == CALLER
