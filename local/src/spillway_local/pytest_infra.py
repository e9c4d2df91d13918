"""Test fixtures that start real parts once for a session; the parts end with it.

Kafka and Redis are containers if a Docker engine answers and has their images. Otherwise they are plain child
processes. SPILLWAY_TEST_PARTS=containers or processes selects one of them.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from spillway_local.containers import (
    AUTO,
    CHOICE_VARIABLE,
    KAFKA_IMAGE,
    REDIS_IMAGE,
    kafka_container,
    redis_container,
    wants_container,
)
from spillway_local.kafka_server import PORTS_PER_NODE, KafkaServer
from spillway_local.kube_binary import ensure_kube_binary, is_kube_binary_built
from spillway_local.member_nodes import MemberNodes
from spillway_local.members import KubeMembers, MemberSpec
from spillway_local.pod_gate import PodGate
from spillway_local.ports import FIRST_EPHEMERAL_PORT, PortBook, session_port
from spillway_local.programs import Stage, running_stages
from spillway_local.redis_server import RedisServer
from spillway_local.tools import MissingTool

_MEMBER_NAMES = ("own-1", "own-2")
_GIBIBYTE = 2**30


@pytest.fixture(scope="session")
def kafka_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yields the bootstrap servers of an empty broker. SPILLWAY_TEST_KAFKA names one that already runs."""
    external = os.environ.get("SPILLWAY_TEST_KAFKA")
    if external:
        yield external
        return
    folder = tmp_path_factory.mktemp("kafka")
    server = KafkaServer(folder, session_port(count=PORTS_PER_NODE))
    if wants_container(KAFKA_IMAGE, _parts_choice()):
        with kafka_container(server) as bootstrap:
            yield bootstrap
        return
    try:
        stage = Stage("kafka", (server.prepare_program(),), server.is_ready, 30.0)
    except MissingTool as missing:
        pytest.skip(str(missing))
    with running_stages([stage], folder):
        yield server.bootstrap_servers


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yields the URL of an empty Redis. SPILLWAY_TEST_REDIS names one that already runs."""
    external = os.environ.get("SPILLWAY_TEST_REDIS")
    if external:
        yield external
        return
    folder = tmp_path_factory.mktemp("redis")
    server = RedisServer(folder, session_port(), keeps_data=False)
    if wants_container(REDIS_IMAGE, _parts_choice()):
        with redis_container(server) as url:
            yield url
        return
    try:
        stage = Stage("redis", (server.prepare_program(),), server.is_ready, 10.0)
    except MissingTool as missing:
        pytest.skip(str(missing))
    with running_stages([stage], folder):
        yield server.url


@pytest.fixture(scope="session")
def kube_binary() -> Path:
    """Returns the path of the binary that runs a member cluster's control plane. A test is skipped if it is not built;
    SPILLWAY_KUBE=1 builds it first."""
    if not is_kube_binary_built() and os.environ.get("SPILLWAY_KUBE") != "1":
        pytest.skip("the member binary is not built: `make kube`, or set SPILLWAY_KUBE=1 (4 to 13 minutes)")
    try:
        return ensure_kube_binary()
    except MissingTool as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def kube_members(kube_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Yields the kubeconfigs of two real members with three nodes each, by name."""
    folder = tmp_path_factory.mktemp("members")
    specs = tuple(MemberSpec(name, (_three_nodes_of(name),)) for name in _MEMBER_NAMES)
    members = KubeMembers(folder, folder / "credentials", specs, session_ports(folder, _MEMBER_NAMES), kube_binary)
    with running_stages(members.prepare_stages(), folder / "logs"):
        yield {member.name: member.kubeconfig for member in members.members()}


@pytest.fixture(scope="session")
def pod_gate(kube_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodGate]:
    """Yields a real member without nodes. Tests find by dry runs which pods it admits at each level of Pod Security."""
    folder = tmp_path_factory.mktemp("podsecurity")
    name = _MEMBER_NAMES[0]
    ports = session_ports(folder, (name,))
    members = KubeMembers(folder, folder / "credentials", (MemberSpec(name, privileged=True),), ports, kube_binary)
    with running_stages(members.prepare_stages(), folder / "logs"):
        (member,) = members.members()
        gate = PodGate(kube_binary, member.kubeconfig)
        gate.make_namespaces()
        yield gate


def _parts_choice() -> str:
    return os.environ.get(CHOICE_VARIABLE, AUTO)


def _three_nodes_of(member_name: str) -> MemberNodes:
    return MemberNodes(
        count=3,
        name_prefix=f"{member_name}-node",
        cpu_millis=8000,
        memory_bytes=32 * _GIBIBYTE,
        labels={"topology.kubernetes.io/zone": "zone-a"},
    )


def session_ports(folder: Path, members: Iterable[str]) -> PortBook:
    """Returns a port book that begins at a random port and already has the ports that the members will request."""
    ports = PortBook(folder / "ports.json")
    ports.assign_port("etcd", session_port(count=2), count=2)
    for name in members:
        ports.assign_port(f"member/{name}", session_port())
    assert max(ports.port_by_name().values()) < FIRST_EPHEMERAL_PORT
    return ports
