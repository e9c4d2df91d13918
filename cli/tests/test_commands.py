"""The commands against a planner on loopback: what is printed where, and the exit codes."""

import json
import socket
import sys
import types
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from typer.testing import CliRunner

from spillway import api
from spillway.api import RequestError
from spillway.bus import BusUnavailable
from spillway.events import DecisionRecorded
from spillway.model import Generation
from spillway.troubles import TroubleCode
from spillway_cli import cluster_commands, fleet_commands, local_commands, waiting
from spillway_cli.config import ADDRESSES_FILE, health_ports_hint
from spillway_cli.main import app

Write = Callable[[str, str], str]
Spillway = Any

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {released: 2024-01-02}}
spec:
  replicas: 60
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: i, resources: {requests: {cpu: 1}}}]}
"""
POLICY = "apiVersion: spillway.io/v1\nkind: PlacementPolicy\nspec: {ownFirst: true}\n"
LAUGHS = "a: &a [x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 8)}]\n" for before, name in pairwise("abcdefghij")
)
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: shop}\ndata: {a: b}\n"


@pytest.fixture
def manifest(write: Write) -> str:
    return write("web.yaml", DEPLOYMENT)


# ── Workloads ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_apply_sends_each_document_as_json_and_prints_the_placement(spillway: Spillway, write: Write) -> None:
    first = write("web.yaml", f"---\n{DEPLOYMENT}---\n---\n{CONFIG_MAP}")
    second = write("policy.yaml", POLICY)
    result = spillway("apply", "-f", first, "-f", second, "-n", "shop")
    assert (result.exit_code, result.stderr) == (0, "")
    (request,) = spillway.planner.asked
    sent = [json.loads(text) for text in request.manifests]
    assert [value["kind"] for value in sent] == ["Deployment", "ConfigMap", "PlacementPolicy"]
    assert sent[0]["metadata"] == {"name": "web", "namespace": "shop", "annotations": {"released": "2024-01-02"}}
    assert sent[1]["metadata"]["namespace"] == "shop"
    assert request.idempotency_key
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[0] == "shop/web 60 replicas: 60 placed"
    assert lines[2:] == ["cloud-1 cloud 10 50 pods never", "own-1 own 50 50 cpu 1.2s"]


def test_the_short_form_writes_the_deployment(spillway: Spillway) -> None:
    arguments = ("--image", "nginx", "--replicas", "3", "--cpu", "500m", "--memory", "256Mi", "--own-first")
    assert spillway("apply", "web", *arguments).exit_code == 0
    deployment, policy = map(json.loads, spillway.planner.asked[0].manifests)
    assert deployment["metadata"]["namespace"] == "default"
    assert deployment["spec"]["replicas"] == 3
    assert deployment["spec"]["selector"]["matchLabels"] == deployment["spec"]["template"]["metadata"]["labels"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container == {
        "name": "main",
        "image": "nginx",
        "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}},
    }
    assert policy["spec"] == {"ownFirst": True}


def test_replicas_that_wait_give_exit_code_3(spillway: Spillway) -> None:
    result = spillway("apply", "web", "--image", "i", "--replicas", "120")
    assert result.exit_code == 3
    assert "100 placed, 20 wait for cpu" in result.stdout


def test_apply_waits_until_all_are_ready(spillway: Spillway, monkeypatch: pytest.MonkeyPatch, manifest: str) -> None:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.01)
    spillway.planner.ready_after = 2
    result = spillway("apply", "-f", manifest, "--wait")
    assert result.exit_code == 0
    assert "own-1: 0 of 50 ready, 50 pending" in result.stderr
    assert "Deployment default/web  60 replicas: 60 placed" in result.stdout


def test_waiting_ends_with_5_and_what_was_missing(
    spillway: Spillway, monkeypatch: pytest.MonkeyPatch, manifest: str
) -> None:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.01)
    spillway.planner.ready_after = 10**6
    result = spillway("apply", "-f", manifest, "--wait", "--timeout", "0.2", "-o", "json")
    assert (result.exit_code, result.stdout) == (5, "")
    assert "not ready after 0.2 s: own-1: 0 of 50 ready" in result.stderr
    spillway.planner.ready_after = 0
    result = spillway("scale", "web", "--replicas", "120", "--wait", "--timeout", "0.2")
    assert result.exit_code == 3
    assert "20 replicas wait for cpu" in result.stderr


def test_scale_get_delete(spillway: Spillway, monkeypatch: pytest.MonkeyPatch, manifest: str) -> None:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.01)
    spillway("apply", "-f", manifest)
    assert json.loads(spillway("scale", "web", "--replicas", "80", "-o", "json").stdout)["replicas"] == 80
    shown = spillway("get", "web", "--history", "2")
    assert shown.exit_code == 0
    assert shown.stdout.count("7.1") == 2
    assert "own-1 0→3" in shown.stdout
    spillway.planner.gone_after = spillway.planner.looks + 2
    assert "is being deleted: 2 clusters to go" in spillway("delete", "web").stdout
    gone = spillway("delete", "web", "--wait")
    assert (gone.exit_code, gone.stdout) == (0, "default/web is gone\n")
    assert "still in cloud-1, own-1" in gone.stderr
    absent = spillway("get", "web")
    assert (absent.exit_code, absent.stdout) == (2, "")
    assert absent.stderr == "spillway: workload default/web: not known\n"


@pytest.mark.parametrize("page", [0, 1, 2, 3, 4])
def test_a_history_that_comes_in_pages_is_shown_as_one(spillway: Spillway, manifest: str, page: int) -> None:
    spillway("apply", "-f", manifest)
    spillway.planner.records = tuple(
        DecisionRecorded("default", "web", Generation(7, number), number, "Scale", number, 0, (), (), "", "")
        for number in (3, 2, 1)
    )
    spillway.planner.history_page = page
    shown = json.loads(spillway("get", "web", "--history", "3", "-o", "json").stdout)
    assert [record["replicas"] for record in shown["history"]] == [3, 2, 1]
    assert not shown["history_next"]


def test_adopt_and_disown(spillway: Spillway, monkeypatch: pytest.MonkeyPatch, write: Write) -> None:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.01)
    policy = write("policy.yaml", POLICY)
    shown = spillway("adopt", "deployment/web", "--cluster", "own-1", "--cluster", "own-2", "-f", policy)
    assert (shown.exit_code, "default/web  3 replicas: 3 placed" in shown.stdout) == (0, True)
    request = spillway.planner.asked[-1]
    assert (request.kind, request.name, request.clusters) == ("deployment", "web", ("own-1", "own-2"))
    assert json.loads(request.policy)["kind"] == "PlacementPolicy"
    assert (
        "the workload keeps its declared policy, or has the default one"
        in spillway("adopt", "deployment/web", "--cluster", "own-1").stderr
    )
    assert "is being disowned" in spillway("disown", "deployment/web").stdout
    spillway("adopt", "deployment/web", "--cluster", "own-1")
    done = spillway("disown", "web", "--wait")
    assert (done.exit_code, done.stdout) == (0, "default/web is disowned\n")
    assert spillway("adopt", "web", "--cluster", "own-1").exit_code == 2


@pytest.mark.parametrize("target", ["service/web", "statefulset/web", "hpa/web", "shop/web", "a/b/web", "deployment/"])
def test_disown_says_what_it_expected_instead_of_another_workload(spillway: Spillway, target: str) -> None:
    refused = spillway("disown", target)
    assert (refused.exit_code, spillway.planner.asked) == (2, [])
    assert f"NAME '{target}': expected a workload's name, or deployment/NAME" in " ".join(refused.stderr.split())


@pytest.mark.parametrize("rest", [("deployment/web", "-n", "shop"), ("--help",), ()])
def test_the_former_name_of_disown_is_refused_with_the_new_one(spillway: Spillway, rest: tuple[str, ...]) -> None:
    """What others call a release is a new version: nobody who means that is to take a workload's marks away."""
    refused = spillway("release", *rest)
    assert (refused.exit_code, refused.stdout, spillway.planner.asked) == (2, "", [])
    assert "'release' is called 'disown' now" in refused.stderr


def test_orphans_are_listed_with_what_to_do(spillway: Spillway) -> None:
    assert (spillway("orphans").stdout, spillway("orphans").stderr) == ("", "no orphan\n")
    spillway.planner.orphans = (api.Orphan("own-1", "shop", "web", 3, 2, "7.1", "Deployment"),)
    shown = spillway("orphans", "-n", "shop")
    assert ["own-1", "Deployment", "shop/web", "3", "2", "7.1"] in [line.split() for line in shown.stdout.splitlines()]
    assert "spillway adopt" in shown.stderr
    assert json.loads(spillway("orphans", "-o", "json").stdout)["orphans"][0]["version"] == "7.1"


def test_of_each_kind_of_orphan_is_said_what_may_be_done(spillway: Spillway) -> None:
    spillway.planner.orphans = (
        api.Orphan("own-1", "shop", "db", 3, 2, "7.1", "StatefulSet"),
        api.Orphan("own-1", "shop", "conf", 0, 0, "", "ConfigMap"),
    )
    shown = spillway("orphans")
    assert ["own-1", "ConfigMap", "shop/conf"] in [line.split() for line in shown.stdout.splitlines()]
    assert "adopt" not in shown.stderr
    for kind in ("statefulset", "configmap"):
        assert f"`kubectl delete {kind} NAME -n NAMESPACE`" in shown.stderr


def test_fleet_recover_shows_first_and_does_it_with_yes(spillway: Spillway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_commands, "POLL_SECONDS", 0.01)
    shown = spillway("fleet", "recover", "--from", "f0")
    assert shown.exit_code == 3  # One of them is refused.
    assert ["shop/web", "5", "own-1", "3,", "own-2", "2", "Found"] in [
        line.split() for line in shown.stdout.splitlines()
    ]
    assert "nothing was changed" in shown.stderr
    assert "default policy" in shown.stderr
    done = spillway("fleet", "recover", "--from", "f0", "--yes", "-o", "json")
    states = {one["name"]: one["state"] for one in json.loads(done.stdout)["workloads"]}
    assert states == {"api": "Refused", "web": "Recovered"}
    assert "1 workloads are being taken over" in done.stderr


def test_list_reads_all_pages(spillway: Spillway) -> None:
    for namespace, name in (("a", "x"), ("a", "y"), ("b", "z")):
        spillway("apply", name, "--image", "i", "--replicas", "1", "-n", namespace)
    rows = spillway("list").stdout.splitlines()[1:]
    assert [row.split()[:2] for row in rows] == [["a", "x"], ["a", "y"], ["b", "z"]]
    assert [one["placement"]["name"] for one in json.loads(spillway("list", "-n", "b", "-o", "json").stdout)] == ["z"]


def test_plan_and_capacity_keep_nothing(spillway: Spillway, manifest: str) -> None:
    assert spillway("plan", "-f", manifest).exit_code == 0
    shown = spillway("capacity", "-f", manifest)
    assert "100 replicas fit" in shown.stdout
    assert "not computed: hostPID" in shown.stdout
    assert spillway.planner.replicas == {}
    assert spillway.planner.asked[0].idempotency_key == ""


def test_watch_gives_a_json_document_a_line(spillway: Spillway, manifest: str) -> None:
    spillway("apply", "-f", manifest)
    result = spillway("watch", "-o", "json", "--changes", "2")
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(document["name"], document["gone"]) for document in documents] == [("web", False), ("old", True)]
    assert "web" in spillway("watch", "web", "--changes", "1").stdout
    assert spillway.planner.asked[-1] == api.WatchRequest("default", "web")


def test_watch_gives_a_line_a_change_where_nobody_sees_a_table_being_drawn(spillway: Spillway, manifest: str) -> None:
    spillway("apply", "-f", manifest)
    first, second = spillway("watch", "--changes", "2").stdout.splitlines()
    assert first == "default/web: 60 replicas, 60 placed, 0 ready; in cloud-1 10, own-1 50"
    assert second == "default/old: gone"


def test_watch_of_what_is_not_declared_fails_unless_told_to_wait(spillway: Spillway) -> None:
    refused = spillway("watch", "nosuch")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr == "spillway: workload default/nosuch: not known; --wait waits until it is\n"
    waits = spillway("watch", "nosuch", "--wait", "--changes", "1")
    assert (waits.exit_code, waits.stderr) == (
        0,
        "workload default/nosuch: not known yet: waiting; Ctrl-C ends the wait\n",
    )


# ── Fleet ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_cluster_join_and_list(spillway: Spillway) -> None:
    result = spillway(
        "cluster", "join", "own-1", "--credential", "c", "--region", "eu", "--label", "b=2", "--label", "a=1"
    )
    assert result.exit_code == 0
    labels = (("a", "1"), ("b", "2"))
    request = api.JoinClusterRequest("own-1", "c", "", "own", "eu", "", labels, known_tier=True)
    assert [asked for asked in spillway.planner.asked if isinstance(asked, api.JoinClusterRequest)] == [request]
    (row,) = spillway("cluster", "list").stdout.splitlines()[1:]
    expected = ["own-1", "own", "Ready", "1.5s", "2/3", "12.5", "of", "48", "(26", "%)", "16Gi", "of", "64Gi"]
    assert row.split()[:13] == expected
    (shown,) = yaml.safe_load(spillway("cluster", "list", "-o", "yaml").stdout)
    assert shown["labels"] == {"a": "1", "b": "2"}
    assert shown["allocatable"]["cpu"] == 48000
    assert spillway("cluster", "join", "x", "--credential", "c", "--label", "nothing").exit_code == 2


NO_FILE = "nodes: credential: /run/credentials/nosuch.kubeconfig: there is no such file"
NOT_ALLOWED, UNREACHABLE = TroubleCode.NOT_ALLOWED, TroubleCode.UNREACHABLE


@pytest.mark.parametrize(
    ("timeout", "heard", "code", "said"),
    [
        pytest.param("60", [("Unknown", ""), ("Unknown", ""), ("Ready", "")], 0, "", id="ready"),
        pytest.param(
            "60",
            [("Unknown", ""), ("Unreachable", "refused", UNREACHABLE), ("Unreachable", "no file", NOT_ALLOWED)], 1,
            "spillway: own-9 has not joined: credential 'nosuch' does not work: no file\n",
            id="no such credential",
        ),
        pytest.param(
            "60", [("Unknown", ""), ("Unreachable", "connect: connection: refused"), ("Unreachable", NO_FILE)], 1,
            f"spillway: own-9 has not joined: credential 'nosuch' does not work: {NO_FILE}\n",
            id="no such credential, says an older planner",
        ),
        pytest.param("60", [("Unreachable", NO_FILE, NOT_ALLOWED)] * 2 + [("Ready", "")], 0, "", id="mended"),
        pytest.param(
            "60", [("Unknown", ""), ("Ready", "persistentvolumes: forbidden: cannot list", NOT_ALLOWED)], 0,
            "warning: own-9: persistentvolumes: forbidden: cannot list\n", id="done without a right",
        ),
        pytest.param(
            "0.2", [("Unknown", ""), ("Unreachable", "nodes: unauthorized: so it says", UNREACHABLE)], 1,
            "spillway: own-9 has joined, but was not reached within 0.2 s, so nothing is placed there: nodes: "
            "unauthorized: so it says; `spillway cluster leave own-9` removes it\n", id="not reached",
        ),
        pytest.param(
            "0.2", [("Unknown", "")], 5,
            "spillway: own-9 has joined, but no report of it came within 0.2 s; `spillway cluster list` shows when "
            "one comes, `spillway doctor` why none comes\n", id="silent",
        ),
    ],
)  # fmt: skip
def test_join_says_whether_the_credential_lets_us_in(
    spillway: Spillway,
    monkeypatch: pytest.MonkeyPatch,
    timeout: str,
    heard: list[tuple[Any, ...]],
    code: int,
    said: str,
) -> None:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.01)
    spillway.planner.heard = heard
    result = spillway("cluster", "join", "own-9", "--credential", "nosuch", "--timeout", timeout)
    assert (result.exit_code, result.stderr) == (code, said)
    is_in_the_fleet = "has not joined" not in said
    assert ("own-9" in result.stdout, "own-9" in spillway.planner.clusters) == (is_in_the_fleet, is_in_the_fleet)


def test_who_was_in_the_fleet_before_stays_there_with_a_credential_that_does_not_let_us_in(
    spillway: Spillway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.01)
    spillway("cluster", "join", "own-9", "--credential", "c")
    spillway.planner.heard = [("Unknown", ""), ("Unreachable", NO_FILE, NOT_ALLOWED)]
    result = spillway("cluster", "join", "own-9", "--credential", "nosuch")
    assert (result.exit_code, "own-9" in spillway.planner.clusters) == (1, True)
    assert "own-9 is in the fleet, but credential 'nosuch' does not work: nodes: credential" in result.stderr


def test_join_says_what_the_planner_warns_of(spillway: Spillway) -> None:
    joining = ("cluster", "join", "own-9", "--credential", "c", "--tier", "gold", "--new-tier")
    result = spillway(*joining, "-o", "json")
    assert not spillway.planner.asked[1].known_tier
    assert (result.exit_code, result.stderr) == (0, "warning: own-9: tier: 'gold': nothing is placed there\n")


def test_join_waits_for_nothing_when_told_so(spillway: Spillway) -> None:
    spillway.planner.heard = [("Unknown", "")]
    result = spillway("cluster", "join", "own-9", "--credential", "nosuch", "--no-wait")
    assert (result.exit_code, result.stderr, len(spillway.planner.asked)) == (0, "", 1)


def test_lent_and_virtual_nodes_are_said_apart(spillway: Spillway) -> None:
    """What waits for them when their cluster is to leave, too."""
    spillway.planner.loans = (2, 1)
    spillway("cluster", "join", "own-1", "--credential", "c")
    (row,) = spillway("cluster", "list").stdout.splitlines()[1:]
    assert "2/3, 1 virtual + 2 lent" in row
    left = spillway("cluster", "leave", "own-1").stdout
    assert left == "own-1 is Leaving; 2 lent nodes and 1 virtual node go back to their owners first\n"


def test_status_sums_up(spillway: Spillway, manifest: str) -> None:
    spillway("apply", "-f", manifest)
    spillway("cluster", "join", "own-1", "--credential", "c")
    result = spillway("status")
    assert result.exit_code == 0
    assert "1: 60 replicas, 60 placed, 0 unplaced" in result.stdout
    document = json.loads(spillway("status", "-o", "json").stdout)
    assert document["workloads"]["replicas"] == 60
    assert document["planner"]["endpoints"] == [spillway.address]


def test_status_does_not_wait_for_a_planner_that_hangs_and_names_it(
    spillway: Spillway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is stopped by SIGSTOP: its port takes connections."""
    monkeypatch.setattr(cluster_commands, "ANSWER_SECONDS", 0.5)
    with socket.socket() as frozen:
        frozen.bind(("127.0.0.1", 0))
        frozen.listen()
        hangs = f"127.0.0.1:{frozen.getsockname()[1]}"
        endpoints = ("--endpoint", hangs, "--endpoint", spillway.address)
        result = CliRunner().invoke(app, [*endpoints, "status"])
        document = json.loads(CliRunner().invoke(app, [*endpoints, "status", "-o", "json"]).stdout)
    assert result.exit_code == 0
    assert f"silent: {hangs}" in result.stdout
    assert document["planner"]["silent"] == [hangs]


# ── Errors ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestError("FAILED_PRECONDITION", "no cluster"), 1),
        (RequestError("NOT_FOUND", "no cluster of the fleet"), 2),
        (RequestError("PERMISSION_DENIED", "caller 'x' may not scale"), 1),
        (api.invalid_argument_error("replicas", -1, "0 or more"), 2),
        (RequestError("UNAVAILABLE", "standby"), 4),
        (RequestError("DEADLINE_EXCEEDED", "late"), 5),
        (RequestError("INTERNAL", "their bug"), 1),
    ],
)
def test_a_refusal_is_one_line_and_a_code(spillway: Spillway, error: Exception, code: int) -> None:
    spillway.planner.error = error
    result = spillway("scale", "web", "--replicas", "1")
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith("spillway: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("error", [BusUnavailable("no broker"), RequestError("UNAVAILABLE", "a standby", "STANDBY")])
def test_a_planner_that_answers_and_cannot_write_is_not_said_to_be_away(spillway: Spillway, error: Exception) -> None:
    """Kafka is down or starved: `make up` would start nothing, since all of it runs."""
    spillway.planner.error = error
    result = spillway("scale", "web", "--replicas", "1")
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr.startswith(f"spillway: planner answers, but cannot do this now: {spillway.address}: ")
    assert result.stderr.endswith(f"{error}; `spillway doctor` says what is wrong\n")


def test_no_planner_is_4() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{probe.getsockname()[1]}"
        runner = CliRunner(env={"SPILLWAY_RETRY_SECONDS": "0.2"})
        result = runner.invoke(app, ["--endpoint", endpoint, "list"])
    assert (result.exit_code, result.stdout) == (4, "")
    assert f"planner not reachable: {endpoint}: no connection: Connection refused; is it running?" in result.stderr
    assert "`spillway config` shows the address that is used" in result.stderr


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("endpoints", ("list",)),
        ("scaling_endpoints", ("get", "hpa")),
        ("lending_endpoints", ("lent",)),
    ],
)
def test_what_make_up_started_and_is_down_is_started_by_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        write_addresses = {name: [f"127.0.0.1:{probe.getsockname()[1]}"]}
        ADDRESSES_FILE.parent.mkdir()
        ADDRESSES_FILE.write_text(json.dumps(write_addresses))
        result = CliRunner(env={"SPILLWAY_RETRY_SECONDS": "0.2"}).invoke(app, arguments)
    assert (result.exit_code, result.stdout) == (4, "")
    assert "; is it running? `make up` starts it here" in result.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("a: [", "not YAML", id="not YAML"),
        pytest.param("", "no object", id="empty"),
        pytest.param("---\n---\n# nothing\n", "no object", id="comments only"),
        pytest.param("just text", "'just text': expected a Kubernetes object", id="text"),
        pytest.param("kind: Deployment\nmetadata: {name: a}", "apiVersion", id="no apiVersion"),
        pytest.param("apiVersion: apps/v1\nmetadata: {name: a}", "kind", id="no kind"),
        pytest.param("apiVersion: apps/v1\nkind: Deployment", "metadata.name", id="no name"),
        pytest.param(CONFIG_MAP, "no workload", id="no workload"),
        pytest.param(f"{DEPLOYMENT}---\n{DEPLOYMENT}", "expected each workload once", id="two workloads"),
        pytest.param(DEPLOYMENT + "kind: Job\n", "occurs twice", id="key twice"),
        pytest.param(DEPLOYMENT + "x: &x [*x]\n", "recursive", id="refers to itself"),
        pytest.param(
            LAUGHS + DEPLOYMENT,
            "more than 16777216 bytes",
            id="laughs a billion times",
        ),
        pytest.param(DEPLOYMENT + "\0", "not YAML", id="binary"),
    ],
)
def test_bad_files_are_2_and_never_sent(spillway: Spillway, write: Write, text: str, words: str) -> None:
    file = write("bad.yaml", text)
    result = spillway("apply", "-f", file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert file in result.stderr
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert spillway.planner.asked == []


def test_a_missing_file_is_2(spillway: Spillway) -> None:
    result = spillway("apply", "-f", "/nowhere.yaml")
    assert (result.exit_code, result.stderr) == (2, "spillway: /nowhere.yaml: no such file or directory\n")


def test_an_unknown_kind_is_named_with_its_document(spillway: Spillway, write: Write) -> None:
    unknown = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"
    file = write("web.yaml", f"{DEPLOYMENT}---\n{unknown}")
    result = spillway("apply", "-f", file)
    assert result.exit_code == 2
    assert f"Secret: s in {file} (document 2)" in result.stderr


def test_stdin_and_lists_are_read(spillway: Spillway) -> None:
    text = json.dumps({"kind": "List", "apiVersion": "v1", "items": [yaml.safe_load(DEPLOYMENT.replace("2024", "x"))]})
    assert spillway("apply", "-f", "-", stdin=text).exit_code == 0
    assert spillway.planner.replicas == {("default", "web"): 60}


@pytest.mark.parametrize(
    "arguments",
    [
        ["apply"],
        ["apply", "web", "--image", "i"],
        ["apply", "web", "-f", "x.yaml"],
        ["scale", "web"],
        ["scale", "web", "--replicas", "many"],
        ["get", "web", "-o", "xml"],
        ["fly"],
        ["events", "gossip"],
    ],
)
def test_wrong_usage_is_2(spillway: Spillway, arguments: list[str]) -> None:
    result = spillway(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr


# ── Config, local parts, help ───────────────────────────────────────────────────────────────────────────────────────


def test_config_shows_where_values_come_from(spillway: Spillway, write: Write) -> None:
    file = write("config.toml", 'namespace = "shop"\ntoken = "secret"\nendpoints = ["a:1", "b:2"]\n')
    result = spillway("--config", file, "--kafka", "k:9092", "config", "-o", "json")
    settings = json.loads(result.stdout)["settings"]
    assert settings["namespace"] == {"value": "shop", "from": f"file {file}"}
    assert settings["endpoints"] == {"value": [spillway.address], "from": "variable SPILLWAY_ENDPOINTS"}
    assert settings["kafka"] == {"value": "k:9092", "from": "flag"}
    assert settings["ca"]["from"] == "default"
    assert "secret" not in result.stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('namespaec = "x"', "did you mean namespace?"),
        ("namespace = 3", "expected text"),
        ("timeout_seconds = 0", "seconds above 0"),
        ("endpoints = []", "expected host:port"),
        ("a =", "config file"),
    ],
)
def test_a_bad_config_file_is_2(monkeypatch: pytest.MonkeyPatch, write: Write, text: str, words: str) -> None:
    monkeypatch.delenv("SPILLWAY_ENDPOINTS", raising=False)
    result = CliRunner().invoke(app, ["--config", write("config.toml", text), "config"])
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_named_config_file_must_be_there() -> None:
    result = CliRunner(env={"SPILLWAY_CONFIG": "/nowhere.toml"}).invoke(app, ["config"])
    assert result.exit_code == 2
    assert "no such file" in result.stderr


class FakeStack:
    """What spillway_local.stack has of what the command uses."""

    calls: ClassVar[list[Any]] = []

    def __init__(self, options: Any, say: Callable[[str], None]) -> None:
        self.options, self.say = options, say

    def start(self) -> Any:
        self.calls.append(self.options)
        if self.options.instances == 9:
            raise RuntimeError("Kafka was not ready within 30 s")
        return types.SimpleNamespace(planners=("a:1", "b:2"), kafka="k:1", credentials="c")

    def stop(self) -> None:
        self.calls.append("down")

    def status(self) -> list[Any]:
        status = {"state": "RUNNING", "pid": 7, "uptime_seconds": 90.0, "log": "l", "problem": ""}
        return [types.SimpleNamespace(name=name, **status) for name in ("kafka", "planner-1", "planner-2")]


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[FakeStack]:
    module = types.ModuleType("spillway_local.stack")
    module.Stack = FakeStack  # type: ignore[attr-defined]
    module.StackOptions = types.SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "spillway_local.stack", module)
    monkeypatch.setattr(FakeStack, "calls", [])
    monkeypatch.chdir(tmp_path)
    return FakeStack


def test_up_and_down_call_the_stack(stack: type[FakeStack]) -> None:
    result = CliRunner().invoke(app, ["up", "--members", "kube"])
    assert (result.exit_code, "a:1, b:2" in result.stdout) == (0, True)
    assert CliRunner().invoke(app, ["down"]).exit_code == 0
    assert (stack.calls[0].members, stack.calls[0].instances, stack.calls[1]) == ("kube", 2, "down")
    failed = CliRunner().invoke(app, ["up", "--instances", "9"])
    assert (failed.exit_code, failed.stderr) == (1, "spillway: Kafka was not ready within 30 s\n")


def test_what_runs_here_is_found_and_shown(stack: type[FakeStack], spillway: Spillway, tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["processes"]).stdout == ""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "addresses.json").write_text(json.dumps({"endpoints": ["a:1"], "kafka": "k:1", "redis": "r"}))
    settings = json.loads(spillway("config", "-o", "json").stdout)["settings"]
    assert settings["kafka"] == {"value": "k:1", "from": "file run/addresses.json"}
    assert settings["endpoints"]["value"] == [spillway.address]
    assert CliRunner().invoke(app, ["processes"]).stdout.splitlines()[1].split()[:4] == ["kafka", "RUNNING", "7", "90s"]
    assert json.loads(spillway("status", "-o", "json").stdout)["processes"][0]["state"] == "RUNNING"
    assert "RUNNING" in spillway("status").stdout


@pytest.mark.parametrize("started", [True, False])
def test_doctor_says_how_health_ports_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, started: bool) -> None:
    """What an older `spillway up` wrote names none: there nobody finds what to set, `make up` writes it anew."""
    monkeypatch.chdir(tmp_path)
    if started:
        ADDRESSES_FILE.parent.mkdir()
        ADDRESSES_FILE.write_text(json.dumps({"endpoints": ["a:1"], "kafka": "k:1"}))
    assert ("`make up`" in health_ports_hint()) is started
    assert ("SPILLWAY_HEALTH" in health_ports_hint()) is not started


def test_a_process_that_is_there_and_says_nothing_is_not_shown_as_well(
    stack: type[FakeStack], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As one that is stopped by SIGSTOP: its port takes connections."""
    monkeypatch.setattr(local_commands, "ANSWER_SECONDS", 0.2)
    with socket.socket() as frozen, socket.socket() as nobody:
        for one in (frozen, nobody):
            one.bind(("127.0.0.1", 0))
        frozen.listen()
        places = [f"planner-{n}=127.0.0.1:{one.getsockname()[1]}" for n, one in ((1, frozen), (2, nobody))]
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "addresses.json").write_text(json.dumps({"health": places}))
        found = {one["name"]: one for one in json.loads(CliRunner().invoke(app, ["processes", "-o", "json"]).stdout)}
    assert {one["state"] for one in found.values()} == {"RUNNING"}
    told = {name: one["answers"] for name, one in found.items()}
    assert told == {"kafka": "", "planner-1": "silent: timed out", "planner-2": "silent: Connection refused"}


def test_help_documents_exit_codes_and_examples() -> None:
    text = " ".join(CliRunner().invoke(app, ["--help"]).stdout.split())
    for words in ("0 done", "3 placed only in part", "5 timed out"):
        assert words in text
    assert "--own-first" in CliRunner().invoke(app, ["apply", "--help"]).stdout
    assert CliRunner().invoke(app, ["version"]).stdout.strip()


@pytest.mark.parametrize(
    ("called_as", "folder_in_path", "name"),
    [
        (".venv/bin/spillway", "nowhere", ".venv/bin/spillway"),
        ("/opt/none/bin/spillway", "nowhere", "/opt/none/bin/spillway"),
        ("/opt/none/bin/spillway", "installed", "spillway"),
    ],
)
def test_the_command_names_itself_as_it_can_be_called_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, called_as: str, folder_in_path: str, name: str
) -> None:
    installed = tmp_path / "installed" / "spillway"
    installed.parent.mkdir()
    installed.touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / folder_in_path))
    monkeypatch.setattr("sys.argv", [str(tmp_path / called_as)])
    assert local_commands.own_command_name() == name


def test_a_second_interrupt_of_up_leaves_what_was_started_to_its_end_and_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where there is no terminal `uv run` says each interrupt of the group again: two come at once."""
    done: list[str] = []

    class Interrupted:
        def status(self) -> list[str]:
            return []

        def stop(self) -> None:
            done.append("down")
            raise KeyboardInterrupt

        def stop_without_waiting(self) -> None:
            done.append("unwatched")

    with pytest.raises(KeyboardInterrupt), local_commands.stopping_stack_when_interrupted(Interrupted()):
        raise KeyboardInterrupt
    assert done == ["down", "unwatched"]
    assert "interrupted again" in capsys.readouterr().err
