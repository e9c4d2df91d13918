"""replay, export and simulate: the planner's own code on what a planner, or a file, gave."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from planner.api import exports
from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.requests import decisions
from spillway.api import ApplyRequest
from spillway.columns import NO_NODES, columns_of
from spillway.compressed_text import pack_text, unpack_text
from spillway.events import CapacityChanged, CapacityReported, ClusterJoined, DecisionRecorded
from spillway.model import Generation, NodeRow
from spillway_cli.whatif_tables import render_simulation

from .test_commands import DEPLOYMENT

Write = Callable[[str, str], str]
SIZES = {"own-1": 40, "own-2": 30}


def deployment_text(name: str, replicas: int) -> str:
    selector = "selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, "
    pod = "spec: {containers: [{name: main, image: i, resources: {requests: {cpu: 1}}}]}}}"
    head = f"apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\n"
    return f"{head}spec: {{replicas: {replicas}, {selector}{pod}\n"


def make_planner_state() -> PlannerState:
    state = PlannerState(PlannerRules())
    for name, cores in SIZES.items():
        state.apply_event(ClusterJoined(name, name, "", "own", "", "", (), ()), 5.0)
        row = NodeRow(f"{name}-n", {"cpu": cores * 1000, "memory": 2**40, "pods": 110}, {})
        state.apply_event(CapacityReported(name, 3, 0, 1, 0, 0, b"", ()), 5.0, 0, columns_of([row]))
        state.apply_event(CapacityChanged(name, 3, 0, 1, 0, b"", (), (), (), ""), 5.0, 1, NO_NODES)
    return state


def apply_manifest(state: PlannerState, manifest: str) -> DecisionRecorded:
    decided = decisions.decide_apply(state, ApplyRequest((manifest,)), Moment(5.0, 1000, Generation(7, 2)))
    for event in decided.events:
        state.apply_event(event, 5.0)
    return next(event for event in decided.events if isinstance(event, DecisionRecorded))


@pytest.fixture
def filled(spillway: Any) -> Any:
    """A planner whose fleet has 60 of 70 cores in use by web."""
    state = make_planner_state()
    record = apply_manifest(state, deployment_text("web", 60))
    spillway.planner.records = (record,)
    spillway.planner.replicas["default", "web"] = 60
    spillway.planner.exported = list(exports.export_state(state, 5.0, 1000, "prod-1"))
    return spillway


def lines_without_padding(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_a_replay_says_what_is_compared_and_that_it_is_the_same(filled: Any) -> None:
    result = filled("replay", "web")
    assert (result.exit_code, result.stderr) == (0, "")
    shown = lines_without_padding(result.stdout)
    assert shown[0].startswith("default/web decision 7.2, Apply, on ")
    assert shown[1] == "the same result, byte by byte"
    assert shown[2].startswith("compared the division, computed again from what the record holds")
    assert shown[3] == "divided 60 replicas: own-1 34, own-2 26; 0 have no place"
    recorded, recomputed = shown[4].partition(" ")[2], shown[5].partition(" ")[2]
    assert recorded == recomputed


def test_another_outcome_fails_and_names_what_differs(filled: Any) -> None:
    record = filled.planner.records[0]
    text = unpack_text(record.division).replace(b'"unplaced":0', b'"unplaced":1')
    filled.planner.records = (
        replace(record, division=pack_text(text), code_version="0.0.9", settings="hold_min=99.0"),
    )
    result = filled("replay", "web")
    assert result.exit_code == 1
    assert "THE RESULT DIFFERS" in result.stdout
    assert "unplaced: recorded 1, recomputed 0" in result.stdout
    assert "decided by version 0.0.9" in result.stdout
    assert "hold_min=99.0" in result.stdout
    document = json.loads(filled("replay", "web", "-o", "json").stdout)
    assert (document["same"], document["recorded"]["unplaced"], document["recomputed"]["unplaced"]) == (False, 1, 0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("web", "--decision", "9.9"), "decision '9.9' is not kept, or was never made: the last decisions are 7.2"),
        (("nobody",), "default/nobody"),
    ],
    ids=["another decision", "nobody"],
)
def test_what_is_not_kept_is_said(filled: Any, arguments: tuple[str, ...], words: str) -> None:
    result = filled("replay", *arguments)
    assert (result.exit_code, words in result.stderr) == (2, True)


def test_the_newest_that_divided_is_replayed_where_none_is_named(filled: Any) -> None:
    divided = filled.planner.records[0]
    settled = replace(divided, cause="Settled", division=b"", generation=Generation(7, 9))
    filled.planner.records = (settled, divided)
    assert lines_without_padding(filled("replay", "web").stdout)[0].startswith("default/web decision 7.2, Apply, on ")
    assert filled("replay", "web", "--decision", "7.9").exit_code == 1


def test_a_record_without_its_division_is_not_replayed(filled: Any) -> None:
    filled.planner.records = (replace(filled.planner.records[0], division=b""),)
    result = filled("replay", "web")
    assert (result.exit_code, "no division was made" in result.stderr) == (1, True)


def test_a_simulation_shows_where_all_would_go_and_what_waits(filled: Any, write: Write) -> None:
    refused = DEPLOYMENT.replace("replicas: 60", "replicas: -1")
    files = write("more.yaml", f"{deployment_text('api', 8)}---\n{deployment_text('cron', 9)}---\n{refused}")
    result = filled("simulate", "-f", files)
    shown = lines_without_padding(result.stdout)
    assert shown[0].startswith("fleet prod-1 as it was on ")
    assert shown[2] == "WOULD BE REFUSED WHY"
    assert shown[3].startswith("default/web INVALID_ARGUMENT:")
    of = {line.split()[0]: line for line in shown[4:] if line}
    assert of["default/api"].startswith("default/api 8 - own-1 5, own-2 3")
    assert of["default/cron"].startswith("default/cron 9 7 - own-1 1, own-2 1")
    assert result.exit_code == 1


def test_a_simulation_says_what_apply_would_say_beside_the_placement(filled: Any, write: Write) -> None:
    manifest = deployment_text("api", 2).replace("spec: {containers", "spec: {schedulerName: volcano, containers")
    rule = """---
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: p}
spec: {priority: 7, resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: api}]}
"""
    files = write("more.yaml", manifest + rule)
    shown = lines_without_padding(filled("simulate", "-f", files).stdout)
    assert "default/api: not computed: schedulerName volcano" in shown
    warning = "PropagationPolicy.spec.priority has no effect: a workload has the one policy that is applied with it"
    assert f"default/api: {warning}" in shown
    (answer,) = json.loads(filled("simulate", "-f", files, "-o", "json").stdout)["answers"]
    assert (answer["unmodelled"], answer["warnings"]) == (["schedulerName volcano"], [warning])


def test_replicas_on_new_nodes_are_told_from_those_on_nodes_that_exist() -> None:
    document = {
        "fleet": "f",
        "at_ms": 1,
        "settled": True,
        "answers": [],
        "workloads": [
            {
                "workload": "default/web",
                "replicas": 7,
                "before": {"own-1": 2},
                "after": {"own-1": 2, "cloud-1": 5},
                "new_before": {},
                "new_after": {"cloud-1": 4},
                "unplaced": 0,
                "waiting_for": "",
            }
        ],
    }
    console = Console(width=160)
    with console.capture() as captured:
        console.print(render_simulation(document))
    assert "own-1 2  cloud-1 1, own-1 2, cloud-1 on new nodes 4" in " ".join(captured.get().splitlines())


def test_a_saved_state_is_asked_without_a_planner(filled: Any, tmp_path: Path) -> None:
    assert filled("export", "fleet.gz").exit_code == 0
    filled.planner.asked.clear()
    arguments = ("--state", "fleet.gz", "--without", "own-2", "--add-nodes", "own-1/own-1-n=1", "-o", "json")
    result = filled("simulate", *arguments)
    (outcome,) = json.loads(result.stdout)["workloads"]
    assert (outcome["before"], outcome["after"]) == ({"own-1": 34, "own-2": 26}, {"own-1": 60})
    assert (result.exit_code, filled.planner.asked) == (0, [])


def test_a_state_from_which_a_record_is_missing_is_refused_and_one_of_an_older_version_is_warned_of(
    filled: Any, tmp_path: Path
) -> None:
    first, *middle, last = filled.planner.exported
    exports.save_export([first, *middle, replace(last, events=last.events[1:])], tmp_path / "edited.gz")
    result = filled("simulate", "--state", "edited.gz")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--state edited.gz: the file cannot be used: records are missing" in result.stderr
    exports.save_export([replace(first, counted=False), *middle, replace(last, counts=())], tmp_path / "old.gz")
    result = filled("simulate", "--state", "old.gz")
    assert (result.exit_code, "nobody can see whether one is missing" in result.stderr) == (0, True)


def test_a_state_that_is_asked_for_can_be_kept(filled: Any, tmp_path: Path) -> None:
    result = filled("simulate", "--save", "kept.gz")
    assert "no replica would move, and none waits" in result.stdout
    assert exports.load_export(tmp_path / "kept.gz") == filled.planner.exported


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--state", "none.gz"), "--state none.gz: No such file or directory: expected a complete file"),
        (("--state", "."), "--state .: Is a directory"),
        (("--state", "empty.gz"), "--state empty.gz: it is empty"),
        (("--add-nodes", "own-1=3"), "expected CLUSTER/GROUP=N"),
        (("--add-nodes", "own-1/x=3"), "a node group of own-1"),
        (("--without", "own-9"), "a cluster of the fleet: own-1, own-2"),
    ],
    ids=["no file", "a folder", "an empty file", "form", "no such node", "no such cluster"],
)
def test_what_cannot_be_simulated_is_said(filled: Any, arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    (tmp_path / "empty.gz").touch()
    result = filled("simulate", *arguments)
    assert (result.exit_code, words in result.stderr) == (2, True)
