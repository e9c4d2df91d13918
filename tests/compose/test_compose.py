"""`docker compose up` from nothing to the first placement, on stand-in images: `make test-compose`."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from spillway_local.fleet_plan import FLEET
from spillway_local.stack import SERVICES
from spillway_local.tools import ToolFailed, cache_folder, wait_until

from .engine import Engine, running_engine
from .stand_ins import COMPOSE_FILE, StandIns

pytestmark = pytest.mark.timeout(1800)

RUNNING_SECONDS = 60.0
PROJECT = "spillway-test"


@dataclass(frozen=True, slots=True)
class Project:
    engine: Engine

    def compose(self, *arguments: str) -> str:
        return self.engine.run_compose(COMPOSE_FILE, "-p", PROJECT, *arguments)

    def spillway(self, *arguments: str) -> str:
        return self.compose("run", "--rm", "spillway", *arguments)

    def inside(self, service: str, *command: str) -> str:
        return self.compose("exec", "-T", service, *command)

    def ready_pods(self) -> dict[str, int]:
        """By member, from its own API."""
        return {member.name: _ready(self._pods(member.name)) for member in FLEET}

    def _pods(self, member: str) -> list[dict[str, Any]]:
        url = f"http://{member}:8080/api/v1/namespaces/default/pods"
        read = f"import urllib.request; print(urllib.request.urlopen('{url}', timeout=10).read().decode())"
        answer = self.inside("snapshot", "python", "-c", read)
        pods: list[dict[str, Any]] = json.loads(answer[answer.index("{") :])["items"]
        return pods


def _ready(pods: list[dict[str, Any]]) -> int:
    conditions = [condition for pod in pods for condition in pod["status"].get("conditions", ())]
    return sum(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    if os.environ.get("SPILLWAY_COMPOSE") != "1":
        pytest.skip("images are built and an engine is run for minutes: make test-compose")
    folder = cache_folder() / "compose"
    folder.mkdir(parents=True, exist_ok=True)
    with running_engine(folder / "engine") as engine:
        StandIns(engine, folder).build()
        project = Project(engine)
        try:
            project.compose("up", "-d")
            yield project
        finally:
            project.compose("down", "-v", "--timeout", "25")


def test_from_nothing_to_the_first_placement(project: Project) -> None:
    wait_until(lambda: "cloud-1" in project.spillway("cluster", "list"), RUNNING_SECONDS, "the fleet")
    assert "60 placed" in project.spillway("apply", "-f", "examples/web.yaml")
    wait_until(lambda: sum(project.ready_pods().values()) == 60, RUNNING_SECONDS, "60 replicas")
    assert project.ready_pods()["cloud-1"] == 0


def test_all_at_rest_are_healthy(project: Project) -> None:
    wait_until(lambda: all(_health(project, name) == "healthy" for name in SERVICES), RUNNING_SECONDS, "all healthy")


def _health(project: Project, service: str) -> str:
    container = project.compose("ps", "-q", service).split()[-1]
    return project.engine.docker("inspect", "-f", "{{.State.Health.Status}}", container).strip()


@pytest.mark.parametrize("service", SERVICES)
def test_nobody_is_root_and_nothing_can_be_written(project: Project, service: str) -> None:
    assert project.inside(service, "id", "-u").split()[-1] == "10001"
    for place in ("/opt/spillway", "/var/lib/spillway", "/"):
        with pytest.raises(ToolFailed, match=r"Read-only file system|Permission denied"):
            project.inside(service, "touch", f"{place}/written")


def test_up_again_changes_nothing_and_a_restart_loses_nothing(project: Project) -> None:
    containers = project.compose("ps", "-q", *SERVICES)
    project.compose("up", "-d")
    assert project.compose("ps", "-q", *SERVICES) == containers
    project.compose("restart", "--timeout", "25", *SERVICES)
    wait_until(lambda: _health(project, "planner") == "healthy", RUNNING_SECONDS, "planner")
    assert "60 placed" in project.spillway("get", "web")
    assert sum(project.ready_pods().values()) == 60


def test_who_has_no_token_is_refused(project: Project) -> None:
    with pytest.raises(ToolFailed, match="authorization: no caller has this token"):
        project.spillway("--token", "wrong", "get", "web")
