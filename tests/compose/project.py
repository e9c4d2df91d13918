"""One compose project in an engine, and what is asked of it; `make test-compose` alone runs any."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spillway_local.fleet_plan import FLEET
from spillway_local.tools import ToolFailed, cache_folder, wait_until

from .engine import Engine, running_engine
from .stand_ins import COMPOSE_FILE, StandIns

RUNNING_SECONDS = 60.0
REMOVED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Project:
    """name: of its containers and volumes. over: files that are put over compose.yaml."""

    engine: Engine
    name: str
    over: tuple[Path, ...] = ()

    def run_compose(self, *arguments: str) -> str:
        return self.engine.run_compose((COMPOSE_FILE, *self.over), "-p", self.name, *arguments)

    def run_spillway(self, *arguments: str) -> str:
        return self.run_compose("run", "--rm", "spillway", *arguments)

    def run_in_container(self, service: str, *command: str) -> str:
        return self.run_compose("exec", "-T", service, *command)

    def health_of_service(self, service: str) -> str:
        container = self.run_compose("ps", "-q", service).split()[-1]
        return self.engine.run_docker("inspect", "-f", "{{.State.Health.Status}}", container).strip()

    def address_of_service(self, service: str) -> str:
        """In the one network that it is in."""
        container = self.run_compose("ps", "-q", service).split()[-1]
        found = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        return self.engine.run_docker("inspect", "-f", found, container).strip()

    def ready_pods_by_member(self) -> dict[str, int]:
        """By member, from its own API."""
        return {member.name: _ready_pod_count(self._pods_of_member(member.name)) for member in FLEET}

    def _pods_of_member(self, member: str) -> list[dict[str, Any]]:
        url = f"http://{member}:8080/api/v1/namespaces/default/pods"
        read = f"import urllib.request; print(urllib.request.urlopen('{url}', timeout=10).read().decode())"
        answer = self.run_in_container("snapshot", "python", "-c", read)
        pods: list[dict[str, Any]] = json.loads(answer[answer.index("{") :])["items"]
        return pods


def _ready_pod_count(pods: list[dict[str, Any]]) -> int:
    conditions = [condition for pod in pods for condition in pod["status"].get("conditions", ())]
    return sum(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


@contextmanager
def engine_with_stand_ins() -> Iterator[Engine]:
    """With all stand-ins. Skips where nobody asked for it."""
    if os.environ.get("SPILLWAY_COMPOSE") != "1":
        pytest.skip("images are built and an engine is run for minutes: make test-compose")
    folder = cache_folder() / "compose"
    folder.mkdir(parents=True, exist_ok=True)
    with running_engine(folder / "engine") as engine:
        StandIns(engine, folder).build_all_images()
        yield engine


@contextmanager
def run_project(project: Project, *services: str) -> Iterator[Project]:
    """These, or all; gone with their data at the end."""
    try:
        project.run_compose("up", "-d", *services)
        yield project
    finally:
        wait_until(lambda: _is_removed(project), REMOVED_SECONDS, f"compose project {project.name} is removed")


def _is_removed(project: Project) -> bool:
    """Removes the project. A busy engine refuses for a moment: it lets go of a container's network after the container
    is gone. The failure is printed, and whoever calls asks again.
    """
    try:
        project.run_compose("down", "-v", "--timeout", "25")
    except ToolFailed as failed:
        print(failed)
        return False
    return True
