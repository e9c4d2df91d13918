"""Which fleet a command means, and what it says where another one answers."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spillway_cli.config import ADDRESSES_FILE
from spillway_cli.main import app

OURS, OTHER = "local-0a0a0a0a", "local-0b0b0b0b"
APPLY = ("apply", "web", "--image", "i", "--replicas", "3")

pytestmark = pytest.mark.parametrize("spillway", [OURS], indirect=True)


def run_folder(spillway: Any, fleet: str) -> None:
    """What `spillway up` writes."""
    ADDRESSES_FILE.parent.mkdir()
    places = {
        "endpoints": [spillway.address],
        "scaling_endpoints": [spillway.scaling_address],
        "lending_endpoints": [spillway.lending_address],
        "kafka": "127.0.0.1:9",
    }
    ADDRESSES_FILE.write_text(json.dumps({**places, "fleet": fleet}))


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
    run_folder(spillway, OTHER)
    result = CliRunner().invoke(app, command)
    assert (result.exit_code, result.stdout, getattr(spillway, asked).asked) == (1, "", [])
    assert f"is of fleet {OURS}, and {OTHER} was meant: nothing was done; `spillway config` shows" in result.stderr
    run_folder_again = json.loads(ADDRESSES_FILE.read_text()) | {"fleet": OURS}
    ADDRESSES_FILE.write_text(json.dumps(run_folder_again))
    CliRunner().invoke(app, command)
    assert getattr(spillway, asked).asked


def test_who_names_another_address_does_not_mean_the_fleet_of_the_run_folder(spillway: Any) -> None:
    run_folder(spillway, OTHER)
    result = spillway(*APPLY)
    assert (result.exit_code, result.stderr) == (0, f"fleet {OURS}, at {spillway.address}\n")


@pytest.mark.parametrize("given", [pytest.param(True, id="flag"), pytest.param(False, id="variable")])
def test_a_fleet_may_be_named(spillway: Any, monkeypatch: pytest.MonkeyPatch, given: bool) -> None:
    def asked(fleet: str) -> Any:
        if given:
            return spillway("--fleet", fleet, *APPLY)
        monkeypatch.setenv("SPILLWAY_FLEET", fleet)
        return spillway(*APPLY)

    refused = asked(OTHER)
    assert (refused.exit_code, spillway.planner.asked) == (1, [])
    assert f"{spillway.address}: this planner is of fleet {OURS}, and {OTHER} was meant" in refused.stderr
    done = asked(OURS)
    assert (done.exit_code, done.stderr) == (0, "")
    wrong = asked("flotte-\u00e4")
    assert (wrong.exit_code, "expected a fleet's id" in wrong.stderr) == (2, True)


def test_who_means_none_is_told_which_one_was_changed(spillway: Any, tmp_path: Path) -> None:
    """People are, and of what was changed: what programs read stays as it is."""
    assert spillway(*APPLY).stderr == f"fleet {OURS}, at {spillway.address}\n"
    assert spillway(*APPLY, "-o", "json").stderr == ""
    assert spillway("list").stderr == ""
    assert spillway("scale", "nosuch", "--replicas", "3").stderr == "spillway: workload default/nosuch: not known\n"
    assert f"answers; fleet {OURS}; " in spillway("status").stdout
    assert json.loads(spillway("status", "-o", "json").stdout)["planner"]["fleet"] == OURS
