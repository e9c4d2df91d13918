"""Three brokers by compose, on stand-in images: one is killed, all goes on; two, and it waits. `make test-compose`."""

from collections.abc import Iterator

import pytest

from spillway_local.tools import ToolFailed, wait_until

from .engine import Engine
from .project import RUNNING_SECONDS, Project, run_project
from .stand_ins import THREE_BROKERS

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def project(engine: Engine) -> Iterator[Project]:
    """Without hpa, the bridge and the descheduler, which ask nothing else of the log."""
    with run_project(Project(engine, "spillway-three", (THREE_BROKERS,)), "join") as found:
        yield found


def test_with_one_broker_dead_all_goes_on_and_with_two_once_they_are_back(project: Project) -> None:
    """Each topic has three copies, of which two must have a write before it is acknowledged."""
    wait_until(lambda: "cloud-1" in project.run_spillway("cluster", "list"), RUNNING_SECONDS, "the fleet")
    addresses = [project.address_of_service(name) for name in ("kafka-2", "kafka-3")]
    project.run_compose("kill", "kafka-3")
    wait_until(lambda: _is_placed(project, "apply", "-f", "examples/web.yaml"), 2 * RUNNING_SECONDS, "placed by two")
    wait_until(lambda: sum(project.ready_pods_by_member().values()) == 60, RUNNING_SECONDS, "60 replicas")
    project.run_compose("kill", "kafka-2")
    assert not _is_placed(project, "scale", "web", "--replicas", "61")
    for name in ("kafka-3", "kafka-2"):
        project.run_compose("start", name)
    assert [project.address_of_service(name) for name in ("kafka-2", "kafka-3")] == addresses
    wait_until(lambda: _is_placed(project, "scale", "web", "--replicas", "62"), 5 * RUNNING_SECONDS, "placed by three")
    wait_until(lambda: sum(project.ready_pods_by_member().values()) == 62, RUNNING_SECONDS, "62 replicas")


def _is_placed(project: Project, *arguments: str) -> bool:
    try:
        return "placed" in project.run_spillway("--call-seconds", "20", *arguments)
    except ToolFailed:
        return False
