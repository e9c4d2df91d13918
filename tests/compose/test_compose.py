"""`docker compose up` from nothing to the first placement, on stand-in images: `make test-compose`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from spillway_local.compose_setup import REACH_MEMBERS, write_files
from spillway_local.stack import SERVICES
from spillway_local.tools import ToolFailed, wait_until

from .engine import Engine
from .project import RUNNING_SECONDS, Project, run_project

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def project(engine: Engine) -> Iterator[Project]:
    with run_project(Project(engine, "spillway-test")) as found:
        yield found


def test_from_nothing_to_the_first_placement(project: Project) -> None:
    wait_until(lambda: "cloud-1" in project.run_spillway("cluster", "list"), RUNNING_SECONDS, "the fleet")
    assert "60 placed" in project.run_spillway("apply", "-f", "examples/web.yaml")
    wait_until(lambda: sum(project.ready_pods_by_member().values()) == 60, RUNNING_SECONDS, "60 replicas")
    assert project.ready_pods_by_member()["cloud-1"] == 0


def test_all_at_rest_are_healthy(project: Project) -> None:
    wait_until(
        lambda: all(project.health_of_service(name) == "healthy" for name in SERVICES), RUNNING_SECONDS, "all healthy"
    )


def test_the_doctor_finds_nothing_that_failed(project: Project) -> None:
    """Redis, too, which nothing waits for. Exit code 1 where a check failed."""
    assert "Redis: answers" in project.run_spillway("doctor")


@pytest.mark.parametrize("service", SERVICES)
def test_nobody_is_root_and_nothing_can_be_written(project: Project, service: str) -> None:
    assert project.run_in_container(service, "id", "-u").split()[-1] == "10001"
    for place in ("/opt/spillway", "/var/lib/spillway", "/"):
        with pytest.raises(ToolFailed, match=r"Read-only file system|Permission denied"):
            project.run_in_container(service, "touch", f"{place}/written")


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_finds_its_own_files_alone(project: Project, service: str, tmp_path: Path) -> None:
    write_files(tmp_path, "kafka:9092")
    own = {str(file.relative_to(tmp_path / service)) for file in (tmp_path / service).rglob("*") if file.is_file()}
    found = project.run_in_container(service, "find", "/var/lib/spillway", "/setup", "-type", "f", "-printf", "%P\n")
    assert {line for line in found.splitlines() if "." in line} == own


@pytest.mark.parametrize("service", SERVICES)
def test_a_cluster_and_redis_answer_those_alone_that_ask_them(project: Project, service: str) -> None:
    """By their addresses, too, which a service that does not know the name could guess."""
    asked = {"own-1": 8080, "redis": 6379}
    wanted = {"own-1"} if service in REACH_MEMBERS else {"redis"} if service == "planner" else set()
    for named in (True, False):
        places = {host: (host if named else project.address_of_service(host), port) for host, port in asked.items()}
        assert {host for host, place in places.items() if can_reach(project, service, *place)} == wanted


def can_reach(project: Project, service: str, host: str, port: int) -> bool:
    connect = f"timeout 2 bash -c '</dev/tcp/{host}/{port}' && echo reached || true"
    return "reached" in project.run_in_container(service, "bash", "-c", connect)


def test_up_again_changes_nothing_and_a_restart_loses_nothing(project: Project) -> None:
    containers = project.run_compose("ps", "-q", *SERVICES)
    project.run_compose("up", "-d")
    assert project.run_compose("ps", "-q", *SERVICES) == containers
    project.run_compose("restart", "--timeout", "25", *SERVICES)
    wait_until(lambda: project.health_of_service("planner") == "healthy", RUNNING_SECONDS, "planner")
    assert "60 placed" in project.run_spillway("get", "web")
    assert sum(project.ready_pods_by_member().values()) == 60


def test_who_has_no_token_is_refused(project: Project) -> None:
    with pytest.raises(ToolFailed, match="authorization: no caller has this token: expected the token of a caller"):
        project.run_spillway("--token", "wrong", "get", "web")
