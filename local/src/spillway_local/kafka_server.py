"""Describes an Apache Kafka node on loopback: its jars, settings and command line, and whether it is ready."""

import base64
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from spillway_local.kafka_security import BrokerSecurity
from spillway_local.member_credentials import write_secret
from spillway_local.ports import LOOPBACK, is_listening
from spillway_local.programs import Program
from spillway_local.tools import (
    cache_folder,
    ensure_program,
    exclusive_lock,
    files_digest,
    print_message,
    run_tool,
    wait_until,
)

PORTS_PER_NODE = 2
"""The ports of a node: it listens for clients on the first and for the quorum on the next."""

_FOLDER = Path(__file__).resolve().parents[2] / "kafka"
_POM, _TOOLS_POM = _FOLDER / "pom.xml", _FOLDER / "tools.xml"
_DEBIAN_PACKAGES = ("default-jre-headless", "maven")
_ADVICE = "run with BUS=memory, which needs neither Java nor Maven."
_MEBIBYTE = 2**20
# Every node of a cluster must be formatted with the same id: 16 bytes, written as 22 characters.
CLUSTER_ID = base64.urlsafe_b64encode(b"spillway-local-1").decode().rstrip("=")

_SETTINGS: Mapping[str, str | int] = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "message.max.bytes": 2 * _MEBIBYTE,
    "replica.fetch.max.bytes": 2 * _MEBIBYTE,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "share.coordinator.state.topic.num.partitions": 1,
    # The default of 9 s is also how long a node killed with -9 is kept out after its restart.
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "num.network.threads": 2,
    "num.io.threads": 4,
    "log.cleaner.dedupe.buffer.size": 16 * _MEBIBYTE,
    "log.cleaner.backoff.ms": 1000,
}

_LOGGING = """\
status = warn
shutdownHook = disable
appenders = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRefs = console
rootLogger.appenderRef.console.ref = console
logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = info
"""


def ensure_kafka_jars(pom: Path = _POM) -> Path:
    """Returns the folder of the broker's jars, and fetches them first if needed.

    Of several processes one fetches them and the others wait.
    """
    jars = cache_folder() / "kafka" / files_digest((pom,)) / "lib"
    if jars.is_dir():
        return jars
    with exclusive_lock(jars.with_suffix(".lock")):
        if not jars.is_dir():
            _fetch_jars(pom, jars)
    return jars


def kafka_tool_command(program: str) -> tuple[str, ...]:
    """Returns the command line that runs one of Kafka's own commands. program: its Java class."""
    jars = f"{ensure_kafka_jars()}/*:{ensure_kafka_jars(_TOOLS_POM)}/*"
    return (str(ensure_java()), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", jars, program)


def ensure_java() -> Path:
    return ensure_program("java", _DEBIAN_PACKAGES[:1], _ADVICE)


@dataclass(frozen=True, slots=True)
class KafkaServer:
    """One combined node (broker and controller). Its log is in its folder, so a restart keeps it."""

    folder: Path
    port: int
    node_id: int = 1
    port_by_node_id: Mapping[int, int] = field(default_factory=dict)
    """The client ports of all nodes of the cluster; empty for a cluster of one."""
    security: BrokerSecurity | None = None
    """None: every client may do everything."""

    @property
    def name(self) -> str:
        return f"kafka-{self.node_id}" if self.port_by_node_id else "kafka"

    @property
    def bootstrap_servers(self) -> str:
        """Returns the bootstrap servers of the whole cluster."""
        return ",".join(f"{LOOPBACK}:{port}" for port in self._port_by_node_id().values())

    def settings(self) -> dict[str, str | int]:
        nodes = self._port_by_node_id()
        copies = min(3, len(nodes))
        least_in_sync = max(1, copies - 1)
        voters = ",".join(f"{node}@{LOOPBACK}:{port + 1}" for node, port in nodes.items())
        return {
            **_SETTINGS,
            "node.id": self.node_id,
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{LOOPBACK}:{self.port},CONTROLLER://{LOOPBACK}:{self.port + 1}",
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{self.port}",
            "log.dirs": str(self.folder / "data"),
            "default.replication.factor": copies,
            "min.insync.replicas": least_in_sync,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": least_in_sync,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": least_in_sync,
            **(self.security.settings(self.port) if self.security else {}),
        }

    def prepare(self) -> None:
        """Writes the settings, and formats the storage unless a former run did."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.security:
            self.security.ensure_files()
        lines = [f"{name}={value}\n" for name, value in self.settings().items()]
        write_secret(self._settings_file, "".join(lines))
        self._logging_file.write_text(_LOGGING)
        if not (self.folder / "data" / "meta.properties").exists():
            format_storage = ("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._settings_file))
            users = self.security.storage_format_arguments() if self.security else ()
            run_tool((*self._java_command(), *format_storage, *users), self.folder)

    def command(self) -> list[str]:
        return [*self._java_command(), "kafka.Kafka", str(self._settings_file)]

    def prepare_program(self) -> Program:
        """Prepares the node and returns its program, ready to be started."""
        self.prepare()
        return Program(self.name, tuple(self.command()), self.folder, ports=(self.port, self.port + 1))

    def is_ready(self) -> bool:
        """Returns whether something listens at the client port, which Kafka opens last.

        Supervision checks by the program's ports that it is this node and not another program.
        """
        return is_listening(self.port)

    def wait_ready(self, timeout_seconds: float = 30.0) -> float:
        return wait_until(self.is_ready, timeout_seconds, self.name)

    @property
    def _settings_file(self) -> Path:
        return self.folder / "server.properties"

    @property
    def _logging_file(self) -> Path:
        return self.folder / "log4j2.properties"

    def _port_by_node_id(self) -> Mapping[int, int]:
        return self.port_by_node_id or {self.node_id: self.port}

    def _java_command(self) -> tuple[str, ...]:
        return (
            str(ensure_java()),
            "-Xmx256m",
            "-XX:+UseSerialGC",
            # With this flag the broker's first minute costs 13 CPU seconds, not 23; later minutes cost no more.
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={self._logging_file}",
            "-cp",
            f"{ensure_kafka_jars()}/*",
        )


def kafka_cluster(folder: Path, ports: tuple[int, ...]) -> list[KafkaServer]:
    """Returns nodes 1, 2, … of one cluster. The port after each port must be free, too."""
    port_by_node_id = dict(enumerate(ports, start=1))
    return [
        KafkaServer(folder / f"kafka-{node_id}", port, node_id, port_by_node_id)
        for node_id, port in port_by_node_id.items()
    ]


def _fetch_jars(pom: Path, jars: Path) -> None:
    maven = ensure_program("mvn", _DEBIAN_PACKAGES, _ADVICE)
    ensure_java()
    started = time.monotonic()
    print_message(f"fetching Apache Kafka's jars into {jars}: once, under a minute")
    unfinished = jars.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    goal = ("dependency:copy-dependencies", f"-DoutputDirectory={unfinished}")
    run_tool((str(maven), "-q", "-B", "-f", str(pom), *goal), jars.parent)
    unfinished.replace(jars)
    size_megabytes = sum(jar.stat().st_size for jar in jars.iterdir()) / 1e6
    count = len(list(jars.iterdir()))
    print_message(f"fetched {count} jars ({size_megabytes:.0f} MB) in {time.monotonic() - started:.0f} s")
