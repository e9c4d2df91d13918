"""Which fleet a command means, and what it says where another one answers."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spillway_cli.config import ADDRESSES_FILE, Config, resolve_config
from spillway_cli.main import app

OURS, OTHER = "local-0a0a0a0a", "local-0b0b0b0b"
MANIFEST = """apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: i}]}
"""
POLICY = """apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 1
  maxReplicas: 10
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]
"""
APPLY = ("apply", "web", "--image", "i", "--replicas", "3")

pytestmark = pytest.mark.parametrize("spillway", [OURS], indirect=True)


def write_addresses_file(spillway: Any, fleet: str, checkout: Path = Path()) -> None:
    """What `spillway up` writes."""
    file = checkout / ADDRESSES_FILE
    file.parent.mkdir(exist_ok=True)
    places = {
        "endpoints": [spillway.address],
        "scaling_endpoints": [spillway.scaling_address],
        "lending_endpoints": [spillway.lending_address],
        "kafka": "127.0.0.1:9",
    }
    file.write_text(json.dumps({**places, "fleet": fleet} if fleet else places))


@pytest.mark.parametrize(
    ("command", "asked"),
    [
        pytest.param(APPLY, "planner", id="apply"),
        pytest.param(("list",), "planner", id="list"),
        pytest.param(("watch", "--changes", "1"), "planner", id="watch"),
        pytest.param(("get", "hpa"), "scaling", id="hpa"),
        pytest.param(("recall", "own-1"), "lending", id="descheduler"),
    ],
)
def test_a_command_in_a_checkout_means_the_fleet_that_was_started_there(
    spillway: Any, command: tuple[str, ...], asked: str
) -> None:
    """Another platform took the ports of one that was killed: nobody may be told what was meant for that one."""
    write_addresses_file(spillway, OTHER)
    result = CliRunner().invoke(app, command)
    assert (result.exit_code, result.stdout, getattr(spillway, asked).asked) == (1, "", [])
    assert f"is of fleet {OURS}, and {OTHER} was meant: nothing was done; `spillway config` shows" in result.stderr
    assert f"; the wanted fleet is that of {ADDRESSES_FILE}\n" in result.stderr
    run_folder_again = json.loads(ADDRESSES_FILE.read_text()) | {"fleet": OURS}
    ADDRESSES_FILE.write_text(json.dumps(run_folder_again))
    CliRunner().invoke(app, command)
    assert getattr(spillway, asked).asked


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a checkout. The test runs the command in a folder below that root."""
    (tmp_path / "checkout" / ".git").mkdir(parents=True)
    below = tmp_path / "checkout" / "services" / "planner"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    return tmp_path / "checkout"


def test_below_the_folder_of_make_up_a_command_means_its_fleet(spillway: Any, checkout: Path) -> None:
    write_addresses_file(spillway, OURS, checkout)
    done = CliRunner().invoke(app, APPLY)
    assert (done.exit_code, done.stderr, len(spillway.planner.asked)) == (0, "", 1)
    settings = json.loads(CliRunner().invoke(app, ("config", "-o", "json")).stdout)["settings"]
    assert settings["endpoints"]["from"] == f"file {checkout / ADDRESSES_FILE}"
    write_addresses_file(spillway, OTHER, checkout)
    refused = CliRunner().invoke(app, APPLY)
    assert (refused.exit_code, len(spillway.planner.asked)) == (1, 1)
    assert f"; the wanted fleet is that of {checkout / ADDRESSES_FILE}\n" in refused.stderr


def test_what_was_started_above_and_is_down_is_started_there(spillway: Any, checkout: Path) -> None:
    write_addresses_file(spillway, OURS, checkout)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        places = {"endpoints": [f"127.0.0.1:{nobody.getsockname()[1]}"], "fleet": OURS}
        (checkout / ADDRESSES_FILE).write_text(json.dumps(places))
        result = CliRunner(env={"SPILLWAY_RETRY_SECONDS": "0.2"}).invoke(app, ("list",))
    where = f"`make up` starts it in {checkout} (its address is that of {checkout / ADDRESSES_FILE})"
    assert (result.exit_code, where in result.stderr) == (4, True)


NOT_TAKEN = {
    "it names no fleet, so whoever has its ports would be taken for ours": ("", ".", OURS),
    "it lies above the checkout": (OURS, "..", OURS),
    "no checkout is around": (OURS, ".", ""),
}


@pytest.mark.parametrize(("fleet", "place", "root"), NOT_TAKEN.values(), ids=NOT_TAKEN)
def test_what_lies_above_and_may_be_somebody_elses_is_not_taken(
    spillway: Any, checkout: Path, fleet: str, place: str, root: str
) -> None:
    if not root:
        (checkout / ".git").rmdir()
    write_addresses_file(spillway, fleet, checkout / place)
    assert resolve_config({}).config.endpoints == Config().endpoints


def test_what_another_user_left_above_is_not_taken(
    spillway: Any, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_addresses_file(spillway, OURS, checkout)
    assert resolve_config({}).config.fleet == OURS
    monkeypatch.setattr(os, "getuid", lambda: checkout.stat().st_uid + 1)
    assert resolve_config({}).config.fleet == ""


def test_the_nearest_is_taken_or_none(spillway: Any, checkout: Path) -> None:
    write_addresses_file(spillway, OURS, checkout)
    write_addresses_file(spillway, OTHER, checkout / "services")
    assert resolve_config({}).config.fleet == OTHER
    write_addresses_file(spillway, "", checkout / "services")
    assert resolve_config({}).config.endpoints == Config().endpoints
    write_addresses_file(spillway, "local-0c0c0c0c")
    assert resolve_config({}).config.fleet == "local-0c0c0c0c"


def test_who_names_another_address_does_not_mean_the_fleet_of_the_run_folder(spillway: Any) -> None:
    write_addresses_file(spillway, OTHER)
    result = spillway(*APPLY)
    assert (result.exit_code, result.stderr) == (0, f"fleet {OURS}, at {spillway.address}\n")


@pytest.mark.parametrize("given", [pytest.param(True, id="flag"), pytest.param(False, id="variable")])
def test_a_fleet_may_be_named(spillway: Any, monkeypatch: pytest.MonkeyPatch, given: bool) -> None:
    def apply_in_fleet(fleet: str) -> Any:
        if given:
            return spillway("--fleet", fleet, *APPLY)
        monkeypatch.setenv("SPILLWAY_FLEET", fleet)
        return spillway(*APPLY)

    refused = apply_in_fleet(OTHER)
    assert (refused.exit_code, spillway.planner.asked) == (1, [])
    assert f"{spillway.address}: this planner is of fleet {OURS}, and {OTHER} was meant" in refused.stderr
    done = apply_in_fleet(OURS)
    assert (done.exit_code, done.stderr) == (0, "")
    wrong = apply_in_fleet("flotte-\u00e4")
    assert (wrong.exit_code, "expected a fleet's id" in wrong.stderr) == (2, True)


def test_who_means_none_is_told_which_one_was_changed(spillway: Any, tmp_path: Path) -> None:
    """People are, and of what was changed: what programs read stays as it is."""
    assert spillway(*APPLY).stderr == f"fleet {OURS}, at {spillway.address}\n"
    assert spillway(*APPLY, "-o", "json").stderr == ""
    assert spillway("get", "web").stderr == ""
    assert spillway("scale", "nosuch", "--replicas", "3").stderr == "spillway: workload default/nosuch: not known\n"
    assert f"answers; fleet {OURS}; " in spillway("status").stdout
    assert json.loads(spillway("status", "-o", "json").stdout)["planner"]["fleet"] == OURS


# ── Where nobody names one ──────────────────────────────────────────────────────────────────────────────────────────

CHANGES = [
    pytest.param(APPLY, "planner", id="apply"),
    pytest.param(("scale", "web", "--replicas", "3"), "planner", id="scale"),
    pytest.param(("delete", "web"), "planner", id="delete"),
    pytest.param(("delete", "web", "--with-policy"), "planner", id="delete with policy"),
    pytest.param(("migrate", "workload", "web", "--to", "own-1"), "planner", id="migrate"),
    pytest.param(("adopt", "deployment/web", "--cluster", "own-1"), "planner", id="adopt"),
    pytest.param(("disown", "deployment/web"), "planner", id="disown"),
    pytest.param(("fleet", "recover", "--from", "f-1", "--yes"), "planner", id="recover"),
    pytest.param(("cluster", "join", "own-1", "--credential", "own-1", "--tier", "own"), "planner", id="join"),
    pytest.param(("cluster", "leave", "own-1"), "planner", id="leave"),
    pytest.param(("cluster", "cordon", "own-1"), "planner", id="cordon"),
    pytest.param(("cluster", "drain", "own-1"), "planner", id="drain"),
    pytest.param(("freeze", "--reason", "sale"), "planner", id="freeze"),
    pytest.param(("unfreeze",), "planner", id="unfreeze"),
    pytest.param(("confirm", "Drain/own-1"), "planner", id="confirm"),
    pytest.param(("autoscale", "web", "--max", "5"), "scaling", id="autoscale"),
    pytest.param(("delete", "hpa/web"), "scaling", id="delete policy"),
    pytest.param(("lending", "declare", "own-1", "--pool", "own-2", "--share", "50"), "lending", id="declare lending"),
    pytest.param(("lending", "withdraw", "own-1"), "lending", id="withdraw lending"),
    pytest.param(("lending", "pause", "own-1"), "lending", id="pause lending"),
    pytest.param(("lending", "resume", "own-1"), "lending", id="resume lending"),
    pytest.param(("recall", "own-1"), "lending", id="recall"),
]


@pytest.fixture
def by_default(spillway: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a command where no run/, variable or config file names anything; the services listen at the defaults."""
    defaults = {
        "endpoints": spillway.address,
        "scaling_endpoints": spillway.scaling_address,
        "lending_endpoints": spillway.lending_address,
    }
    for name, address in defaults.items():
        monkeypatch.setattr(Config.__dataclass_fields__[name], "default", (address,))
    return lambda *arguments: CliRunner(env={"TERM": "dumb"}).invoke(app, arguments)


@pytest.mark.parametrize(("command", "asked"), CHANGES)
def test_nothing_is_changed_where_nobody_names_a_fleet(
    spillway: Any, by_default: Any, command: tuple[str, ...], asked: str
) -> None:
    """In a fresh checkout somebody else's platform listens at the default address."""
    refused = by_default(*command)
    assert (refused.exit_code, refused.stdout, change_requests_to(getattr(spillway, asked))) == (2, "", [])
    last = refused.stderr.splitlines()[-1]
    assert last.startswith("spillway: nothing was done: no fleet is named, and at 127.0.0.1:"), refused.stderr
    assert f"of fleet {OURS}; name the fleet with --fleet ID or --" in last
    assert f"config.toml; in a folder where `make up` was run, {ADDRESSES_FILE} names it" in last


def change_requests_to(fake: Any) -> list[Any]:
    """What was asked of it, but for what a look at who answers asks, and what keeps nothing."""
    return [
        request
        for request in fake.asked
        if not type(request).__name__.startswith(("List", "Get")) and not getattr(request, "plan_only", False)
    ]


@pytest.mark.parametrize(
    ("flags", "file"),
    [
        pytest.param(("--fleet", OURS), "", id="flag"),
        pytest.param((), f'fleet = "{OURS}"', id="a fleet in the file"),
        pytest.param((), 'endpoints = ["{address}"]', id="an address in the file"),
    ],
)
def test_a_fleet_that_is_named_once_is_changed_at_the_default_address(
    spillway: Any, by_default: Any, write: Any, flags: tuple[str, ...], file: str
) -> None:
    flags += ("--config", write("named.toml", file.replace("{address}", spillway.address)))
    assert by_default(*flags, *APPLY).exit_code == 0
    assert spillway.planner.replicas == {("default", "web"): 3}


def test_the_variable_and_the_run_folder_name_it(spillway: Any, by_default: Any) -> None:
    assert CliRunner(env={"SPILLWAY_ENDPOINTS": spillway.address}).invoke(app, APPLY).exit_code == 0
    write_addresses_file(spillway, OURS)
    assert by_default("scale", "web", "--replicas", "4").exit_code == 0
    assert spillway.planner.replicas == {("default", "web"): 4}


def test_reading_goes_on_and_says_who_answers(spillway: Any, by_default: Any) -> None:
    spillway(*APPLY)
    said = f"no fleet is named: at {spillway.address}, the default, answers the planner of fleet {OURS}\n"
    for command in (("list",), ("get", "web"), ("watch", "--changes", "1"), ("plan", "-f", "-")):
        result = CliRunner(env={"TERM": "dumb"}).invoke(app, command, input=MANIFEST)
        assert (result.exit_code, result.stderr) == (0, said), command
    machine = by_default("list", "-o", "json")
    assert (machine.stderr, [each["placement"]["name"] for each in json.loads(machine.stdout)]) == (said, ["web"])
    assert f"answers the hpa of fleet {OURS}" in by_default("get", "hpa").stderr
    assert f"answers the descheduler of fleet {OURS}" in by_default("lent").stderr


def test_a_policy_whose_hpa_nobody_names_keeps_its_workload_from_being_applied(
    spillway: Any, by_default: Any, write: Any
) -> None:
    """What is refused in the end is refused before the first change."""
    file = write("both.yaml", f"{MANIFEST}---\n{POLICY}")
    result = by_default("--endpoint", spillway.address, "apply", "-f", file)
    assert (result.exit_code, change_requests_to(spillway.planner), change_requests_to(spillway.scaling)) == (2, [], [])
    assert "--scaling-endpoint HOST:PORT, SPILLWAY_FLEET or SPILLWAY_SCALING_ENDPOINTS" in result.stderr
    assert by_default("--endpoint", spillway.address, "plan", "-f", file).exit_code == 0


@pytest.mark.usefixtures("spillway")
def test_nobody_at_the_default_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        monkeypatch.setattr(Config.__dataclass_fields__["endpoints"], "default", (address,))
        result = CliRunner().invoke(app, APPLY)
        reading = CliRunner(env={"SPILLWAY_RETRY_SECONDS": "0.1"}).invoke(app, ["list"])
    assert result.exit_code == 2
    assert f"no fleet is named, and no planner answers at {address}, the default; " in result.stderr
    assert (reading.exit_code, reading.stderr.count("\n")) == (4, 1)
    assert reading.stderr.startswith(f"spillway: planner not reachable: {address}")


@pytest.mark.usefixtures("spillway")
def test_topics_are_made_in_no_kafka_that_nobody_names() -> None:
    result = CliRunner().invoke(app, ["topics"])
    assert result.exit_code == 2
    assert "no Kafka is named, and 127.0.0.1:9092 is only the default; name the Kafka with --kafka" in result.stderr


@pytest.mark.parametrize("command", ["list", "cluster list"])
def test_a_list_says_whose_it_is(spillway: Any, command: str) -> None:
    assert spillway(*command.split()).stderr.splitlines()[0] == f"fleet {OURS}"
    assert spillway(*command.split(), "-o", "json").stderr == ""
