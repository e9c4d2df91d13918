"""Commands on lent nodes against a descheduler on loopback: what is asked, what is printed, how a command ends."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spillway import api_lending as lending
from spillway.events_lending import LendingRule
from spillway.model import Requirement
from spillway_cli.main import app

from .fake_lending import NODE, FakeLending


@pytest.fixture
def answers(spillway: Any) -> tuple[FakeLending, str]:
    return spillway.lending, spillway.lending_address


def run_command(address: str, *arguments: str) -> Any:
    environ = {"SPILLWAY_LENDING_ENDPOINTS": address, "SPILLWAY_RETRY_SECONDS": "0.3", "TERM": "dumb"}
    return CliRunner(env=environ).invoke(app, list(arguments))


def test_lent_shows_every_page_and_that_it_may_be_old(answers: tuple[FakeLending, str]) -> None:
    fake, address = answers
    result = run_command(address, "lent", "own-1", "-o", "json")
    assert result.exit_code == 0
    assert [node["node"] for node in json.loads(result.stdout)] == ["n1", "n1"]
    assert [request.page_token for request in fake.asked] == ["", "more"]
    assert "not the active one" in result.stderr
    assert "Need, own-1/shop/web" in run_command(address, "lent").stdout


def test_lent_begins_with_the_cores_and_counts_nodes_by_state_and_pods(answers: tuple[FakeLending, str]) -> None:
    fake, address = answers
    fake.nodes = (
        replace(NODE, state="Lent", recalled_ms=0),
        replace(NODE, state="Lent", supply_class="dedicated"),
        NODE,
    )
    result = run_command(address, "lent")
    said = "16 cores lent (8 dedicated, 8 idle): 4 nodes lent, 2 recalled, 18 pods"
    assert result.stderr.endswith(f"{said}\n")
    assert "Recalled " in result.stdout
    assert " ago" in result.stdout
    fake.nodes = ()
    assert run_command(address, "lent").stderr.endswith("0 cores lent: 0 nodes lent, 0 recalled, 0 pods\n")


def test_recall_names_nodes_and_says_how_many(answers: tuple[FakeLending, str]) -> None:
    fake, address = answers
    result = run_command(address, "recall", "own-1", "n1", "--grace", "5", "--reason", "sold", "--plan")
    assert (result.exit_code, result.stderr) == (0, "1 node would be recalled of own-1\n")
    assert fake.asked == [lending.RecallRequest("own-1", ("n1",), 5, "sold", plan_only=True)]


def test_a_refusal_ends_with_its_text(answers: tuple[FakeLending, str]) -> None:
    _, address = answers
    result = run_command(address, "recall", "own-1", "n9")
    assert result.exit_code == 2
    assert "not lent by own-1: n9" in result.stderr


def test_idle_report_says_what_is_known_by_requests_alone(answers: tuple[FakeLending, str]) -> None:
    fake, address = answers
    result = run_command(address, "idle", "report", "--hours", "24")
    assert fake.asked == [lending.IdleReportRequest("", 24, 500, "")]
    assert "requests only" in result.stdout
    assert "give it back" in result.stdout
    assert "nodes of which only the pods' requests are known: 1" in result.stderr
    assert result.stderr.startswith("0.5 cores lent on average in 3d: 36.0 core-hours lent\n")


def test_a_descheduler_that_is_not_there_is_named() -> None:
    result = run_command("127.0.0.1:1", "lent")
    assert result.exit_code == 4
    assert "descheduler not reachable" in result.stderr


# ── How clusters lend ───────────────────────────────────────────────────────────────────────────────────────────────

FILE = """
cluster: own-1
pool: pool
grace_seconds: 5
rules:
- name: nvme
  supply_class: dedicated
  nodes: [{key: disk, values: [nvme]}, {key: gpu, operator: DoesNotExist}]
- name: rest
  share_percent: 50
---
cluster: own-2
pool: pool
"""


def test_a_file_declares_every_cluster_in_it_once_all_are_found_right(answers: tuple[FakeLending, str]) -> None:
    fake, address = answers
    Path("lending.yaml").write_text(FILE)
    result = run_command(address, "lending", "declare", "-f", "lending.yaml", "-o", "json")
    assert result.exit_code == 0, result.stderr
    assert [one["cluster"] for one in json.loads(result.stdout)] == ["own-1", "own-2"]
    planned, _, declared, other = fake.asked
    assert (planned.plan_only, declared.plan_only) == (True, False)
    nvme = (Requirement("disk", "In", ("nvme",)), Requirement("gpu", "DoesNotExist", ()))
    rules = (
        LendingRule("nvme", nvme, "dedicated", 0, 0, 0, 0.0),
        LendingRule("rest", (), "", 50, 0, 0, 0.0),
    )
    assert declared == lending.DeclareLendingRequest("own-1", "pool", rules, grace_seconds=5)
    assert other.rules == (LendingRule("all", (), "", 0, 0, 0, 0.0),)
    assert "own-1 lends to pool: declared" in result.stderr


def test_flags_are_one_rule_and_a_plan_keeps_nothing(answers: tuple[FakeLending, str]) -> None:
    fake, address = answers
    flags = ("--share", "50", "--reserve", "2", "--idle", "60", "--nodes", "disk=nvme,ssd", "--nodes", "rack")
    result = run_command(address, "lending", "declare", "own-1", "--pool", "pool", *flags, "--plan-only")
    assert (result.exit_code, result.stderr) == (0, "own-1 lends to pool: would be declared\n")
    nodes = (Requirement("disk", "In", ("nvme", "ssd")), Requirement("rack", "Exists", ()))
    rule = LendingRule("all", nodes, "", 50, 2, 60, 0.0)
    assert fake.asked == [lending.DeclareLendingRequest("own-1", "pool", (rule,), plan_only=True)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{cluster: own-1}", "lending.yaml: Object missing required field `pool`"),
        ("{cluster: a, pool: b, rules: [{name: x, share: 5}]}", "rules[0]: {'name': 'x', 'share': 5}: Object contains"),
        (
            "{cluster: a, pool: b, rules: [{name: x, share_percent: half}]}",
            "rules[0].share_percent: 'half': Expected `int`, got `str`",
        ),
        ("{cluster: a, pool: b, grace_seconds: -1}", "grace_seconds: -1: Expected `int` >= 1"),
        ("{cluster: a, pool: b, cooldown_seconds: 0}", "cooldown_seconds: 0: Expected `int` >= 1"),
        ("{cluster: a, pool: b, rules: [{name: x, share_percent: 0}]}", "rules[0].share_percent: 0: Expected `int` >="),
        ("{cluster: a, pool: b, rules: [{name: x, idle_seconds: 0}]}", "rule x: idle_seconds: 0: expected 1 or more"),
        ("{cluster: a, pool: b, cooldown_seconds: 99999999999}", "cooldown_seconds: 99999999999: Expected `int` <="),
        ("[1]", "lending.yaml: Expected `object`, got `array`"),
        ("{cluster: a, pool: b}\n---\n{cluster: a, pool: c}", "(document 2): cluster: 'a': expected each cluster once"),
        ("", "no declaration in the file"),
        ("{cluster: own-9, pool: b}", "lending.yaml: cluster own-9: no cluster of this name has joined"),
    ],
)
def test_a_file_that_is_wrong_names_field_value_and_what_was_expected(
    answers: tuple[FakeLending, str], text: str, complaint: str
) -> None:
    fake, address = answers
    Path("lending.yaml").write_text(text)
    result = run_command(address, "lending", "declare", "-f", "lending.yaml")
    assert result.exit_code in (1, 2)
    assert complaint in result.stderr
    assert all(request.plan_only for request in fake.asked)


@pytest.mark.parametrize("flag", ["--share", "--idle", "--grace", "--cooldown"])
def test_a_nought_that_would_be_read_as_what_is_usual_is_refused(answers: tuple[FakeLending, str], flag: str) -> None:
    """On the wire 0 is what is left out: `--share 0` would lend all."""
    fake, address = answers
    result = run_command(address, "lending", "declare", "own-1", "--pool", "pool", flag, "0")
    assert (result.exit_code, fake.asked) == (2, [])


@pytest.mark.parametrize("given", ["=x", "disk=", "disk=a,,b"])
def test_a_label_that_is_none_is_refused(answers: tuple[FakeLending, str], given: str) -> None:
    result = run_command(answers[1], "lending", "declare", "own-1", "--pool", "pool", "--nodes", given)
    assert result.exit_code == 2
    assert f"--nodes {given!r}: expected KEY" in result.stderr


def test_a_file_and_flags_together_are_refused(answers: tuple[FakeLending, str]) -> None:
    Path("lending.yaml").write_text(FILE)
    result = run_command(answers[1], "lending", "declare", "own-3", "-f", "lending.yaml")
    assert result.exit_code == 2
    assert "expected either the file or the cluster" in result.stderr


@pytest.mark.parametrize(
    ("given", "missing"), [((), "CLUSTER"), (("own-1",), "--pool"), (("own-1", "--share", "5"), "--pool")], ids=str
)
def test_flags_without_a_cluster_or_a_pool_name_the_one_that_is_missing(
    answers: tuple[FakeLending, str], given: tuple[str, ...], missing: str
) -> None:
    fake, address = answers
    result = run_command(address, "lending", "declare", *given)
    assert (result.exit_code, fake.asked) == (2, [])
    assert f"no {missing}: expected CLUSTER --pool POOL, or -f FILE" in result.stderr


def test_withdraw_waits_until_nothing_is_lent_and_says_so(answers: tuple[FakeLending, str]) -> None:
    fake, address = answers
    fake.lent_in_turn = [2, 0]
    result = run_command(address, "lending", "withdraw", "own-1", "--wait", "--timeout", "20")
    assert result.exit_code == 0
    assert result.stderr.splitlines()[-3:] == [
        "waiting: own-1: 2 nodes to come back",
        "waiting: own-1: all nodes are back, and their marks are being checked",
        "own-1: lending is withdrawn; none of its nodes is lent",
    ]


def test_withdraw_ends_with_5_while_nodes_are_away_still(answers: tuple[FakeLending, str]) -> None:
    fake, address = answers
    fake.lent_in_turn = [1] * 100
    result = run_command(address, "lending", "withdraw", "own-1", "--wait", "--timeout", "0.2")
    assert result.exit_code == 5
    assert "own-1: not withdrawn after 0.2 s: 1 node to come back" in result.stderr


def test_list_and_get_show_state_rules_and_numbers(answers: tuple[FakeLending, str]) -> None:
    _, address = answers
    listed = run_command(address, "lending", "list")
    assert "paused" in listed.stdout
    assert "warning: own-1: frozen" in listed.stderr
    said = "12 cores lent: 3 of 8 nodes lent by 1 cluster; 2 checked before they are lent\n"
    assert listed.stderr.startswith(said)
    found = run_command(address, "lending", "get", "own-1")
    assert "disk=nvme, gpu DoesNotExist" in found.stdout
    assert "own-1 lends to pool: paused; 3 nodes lent, 1 recalled, 2 being checked; grace 30 s" in found.stderr
    assert json.loads(run_command(address, "lending", "get", "own-1", "-o", "json").stdout)["recalls_per_minute"] == 6


def test_pause_resume_and_withdraw_say_what_they_changed(answers: tuple[FakeLending, str]) -> None:
    fake, address = answers
    assert run_command(address, "lending", "pause", "--reason", "sale").stderr.endswith("own-1: is paused already\n")
    assert run_command(address, "lending", "resume", "own-1").stderr.endswith("own-1: resumed\n")
    said = run_command(address, "lending", "withdraw", "own-1").stderr
    assert said.endswith(
        "own-1: being withdrawn\n`lending list` shows the cluster until its last node is back; --wait waits for it\n"
    )
    assert fake.asked == [
        lending.PauseLendingRequest("", "sale"),
        lending.ResumeLendingRequest("own-1"),
        lending.WithdrawLendingRequest("own-1", ""),
    ]
