"""One platform of processes for the whole session, and clients of it that leave it empty after each test."""

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import missing_secret
import pytest

from sim.settings import ProgramSpec
from spillway.kafka.topics import TopicSettings
from spillway_local.demo import STORY_ENVIRONMENT
from spillway_local.fleet_plan import FLEET
from spillway_local.kafka_security import BrokerSecurity
from spillway_local.kafka_server import PORTS_PER_NODE, KafkaServer
from spillway_local.ports import PortBook, session_port
from spillway_local.stack import Addresses, Stack, StackOptions
from spillway_local.tools import MissingTool
from tests.contract.secured_kafka import USERS, SecuredKafka

from .command import Command
from .running import KINDS, SERVICES, Platform, open_platform

StackT = TypeVar("StackT", bound=Stack)

# Those that add clusters to the fleet come last: what joins stays until it has left, and the story knows three.
_LAST = ("test_bad_clusters",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.e2e)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(240))
    last = [item for name in _LAST for item in ours if item.path.stem == name]
    items[:] = [item for item in items if item not in last] + last


# Overflow goes home after seconds, and a node is needed back more than once, so that the tests do not stand still.
_HOME = (("SPILLWAY_PLANNER_HOME_AFTER_SECONDS", "3"), ("SPILLWAY_DESCHEDULER_AGAIN_SECONDS", "1"))


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Kafka, Redis, three simulated members and two instances of each service."""
    environment = (*STORY_ENVIRONMENT, *_HOME)
    folder = _make_run_folder(tmp_path_factory, "sim")
    reader = (sys.executable, str(Path(__file__).parent / "queue_reader.py"), str(folder))
    programs = {"queue-reader": ProgramSpec(reader, ("QUEUE", "GROUP", "RATE"))}
    options = StackOptions(folder, "sim", environment=environment, pod_programs=programs, outlives=False)
    yield from _run_stack(Stack(options, print))


@pytest.fixture(scope="module")
def kube_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The same with three real control planes; only with SPILLWAY_KUBE=1."""
    if os.environ.get("SPILLWAY_KUBE") != "1":
        pytest.skip("real control planes: set SPILLWAY_KUBE=1")
    options = StackOptions(_make_run_folder(tmp_path_factory, "kube"), "kube", environment=_HOME, outlives=False)
    yield from _run_stack(Stack(options, print))


@pytest.fixture(scope="module")
def missing_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Smaller real clusters, and a planner that waits for what is missing for seconds; only with SPILLWAY_KUBE=1."""
    if os.environ.get("SPILLWAY_KUBE") != "1":
        pytest.skip("real control planes: set SPILLWAY_KUBE=1")
    environment = (("SPILLWAY_PLANNER_MISSING_AFTER_SECONDS", "20"),)
    folder = _make_run_folder(tmp_path_factory, "missing")
    options = StackOptions(
        folder, "kube", fleet=missing_secret.FLEET, environment=environment, outlives=False, kubelets_ask=True
    )
    yield from _run_stack(Stack(options, print))


class SecuredStack(Stack):
    """One instance of each service, which Kafka knows by the user of its role."""

    @property
    def secured_kafka(self) -> SecuredKafka:
        (broker,) = self.brokers()
        assert broker.security is not None
        return SecuredKafka(broker.bootstrap_servers, broker.security)

    def brokers(self) -> list[KafkaServer]:
        (broker,) = super().brokers()
        return [replace(broker, security=BrokerSecurity(self.folder / "security", USERS))]

    def create_topics(self, of_fleet: str | None = None) -> None:
        asyncio.run(self.secured_kafka.form_log(self.folder, TopicSettings()))


@pytest.fixture(scope="module")
def secured_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredStack]:
    """Only with SPILLWAY_SECURED=1: it is a second platform beside that of the session."""
    if os.environ.get("SPILLWAY_SECURED") != "1":
        pytest.skip("a platform of its own: make test-secured, or SPILLWAY_SECURED=1")
    folder = _make_run_folder(tmp_path_factory, "secured")
    users = BrokerSecurity(folder / "security", USERS)
    options = StackOptions(
        folder,
        instances=1,
        environment=(*STORY_ENVIRONMENT, *_HOME),
        environment_of={f"{kind}-1": users.client_environment(f"spillway-{kind}") for kind in KINDS},
        outlives=False,
    )
    yield from _run_stack(SecuredStack(options, print))


@pytest.fixture(params=["sim", pytest.param("kube", marks=pytest.mark.kube)])
def members(request: pytest.FixtureRequest) -> Stack:
    """Each kind of members in turn."""
    stack: Stack = request.getfixturevalue("kube_stack" if request.param == "kube" else "stack")
    return stack


@pytest.fixture
async def fleet(members: Stack) -> AsyncIterator[Platform]:
    """As platform, on each kind of members."""
    async with _open_empty_platform(members) as platform:
        yield platform


@pytest.fixture
async def platform(stack: Stack) -> AsyncIterator[Platform]:
    """Joined, every cluster Ready, and nothing declared: before the test and after it."""
    async with _open_empty_platform(stack) as platform:
        yield platform


@pytest.fixture
def spillway(platform: Platform, tmp_path: Path) -> Command:
    return Command(platform, tmp_path)


@asynccontextmanager
async def _open_empty_platform(stack: Stack) -> AsyncIterator[Platform]:
    async with open_platform(stack) as platform:
        await platform.join_fleet()
        await platform.delete_all_workloads()
        await platform.wait_until_nothing_counted()
        yield platform
        await platform.delete_all_workloads()


def _run_stack(stack: StackT) -> Iterator[StackT]:
    started: Addresses | None = None
    try:
        started = stack.start()
        print(f"planners at {started.planners}, logs in {stack.folder}/logs")
        yield stack
    except MissingTool as missing:
        if started is not None:
            raise
        pytest.skip(str(missing))
    finally:
        stack.stop()


def _make_run_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """A run folder whose ports are chosen at random beforehand, so that stacks side by side do not want the same."""
    folder = factory.mktemp(name)
    ports = PortBook(folder / "ports.json")
    names = [f"{service}-{part}" for service in SERVICES for part in ("health", "rpc")]
    kinds = ("member-", "member/", "vk-bridge-1-kubelet-", "vk-bridge-2-kubelet-")
    names += [f"{kind}{member.name}" for member in FLEET for kind in kinds]
    base = session_port(count=PORTS_PER_NODE)
    ports.assign_port("kafka", base, count=PORTS_PER_NODE)
    ports.assign_port("etcd", base + random.randint(2, 9), count=2)
    for port_name in (*names, "redis"):
        ports.assign_port(port_name, base)
    return folder
