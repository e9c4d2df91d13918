"""Runs the platform on one machine: Kafka, Redis, member clusters and every service as supervised processes."""

import asyncio
import json
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from sim.settings import ProgramSpec
from spillway.bus import OtherFleet
from spillway.clusters.api import ClusterApi, ClusterApiSettings, make_cluster_api
from spillway.clusters.credentials import load_endpoint
from spillway.kafka.access import KafkaAccess
from spillway.kafka.topics import TopicSettings, ensure_topics
from spillway_local.fleet_plan import FLEET, MemberPlan
from spillway_local.kafka_server import PORTS_PER_NODE, KafkaServer, ensure_java, ensure_kafka_jars, kafka_cluster
from spillway_local.kube_binary import ensure_kube_binary
from spillway_local.member_credentials import ensure_certificate
from spillway_local.members import KubeMembers, MemberSpec, kubelet_clients_folder, sim_member_program
from spillway_local.ports import PORTS_FILE, PortBook, is_listening
from spillway_local.programs import PortTaken, Program, Stage
from spillway_local.redis_server import RedisServer, ensure_redis
from spillway_local.supervision import ProgramStatus, Supervision
from spillway_local.tools import exclusive_lock

Say = Callable[[str], None]

KAFKA_PORT, REDIS_PORT, SIM_PORT, SERVICE_PORT = 19092, 16379, 21001, 18080
SIM_USAGE_PERCENT = 20
"""The part of its requests that a simulated pod uses, so that policies on resources have values."""
KUBELET_PORT = 18250
RPC_PORT_BY_SERVICE = {"planner": 7400, "hpa": 7410, "descheduler": 7420}
"""The port at which the command looks for the first instance of each service by default."""
CARRIED_PREFIXES = "app.kubernetes.io/,sim/"
"""Prefixes of pod annotations that are copied to real pods on lent nodes.

In `sim/` annotations a simulated member reads how long a pod starts, runs and stops.
"""
SERVICES = ("snapshot", "propagator", "planner", "hpa", "descheduler", "vk-bridge")
STANDBY_SERVICES = ("planner", "hpa", "descheduler")
PORT_VARIABLES = ("SPILLWAY_HEALTH_PORT", "SPILLWAY_RPC_PORT")
LOG_READY_SECONDS, SERVICE_READY_SECONDS = 180.0, 90.0
"""The longest waits for the log and for the services. Three brokers on two busy cores need more than a minute to
listen, and as long to create the topics."""
FEW_PARTITIONS = (16, 4)
"""Partitions of topics by cluster and by workload, with several brokers.

With three copies of some 800 partitions, two cores need long to elect leaders.
"""
FLEET_NAME = "local"
START_ATTEMPTS = 3
"""The most attempts to start on free ports.

Another program may take a port between its choice and our program's start.
"""


@dataclass(frozen=True, slots=True)
class StackOptions:
    """The options of a stack.

    folder: the folder of data, logs and credentials.
    instances: the number of instances of each service; two show take-over, 0 runs everything except the services.
    brokers: 1 or 3.
    environment: variables of every service.
    environment_of: variables of one service instance by its name, as `planner-1`.
    outlives: True if the stack goes on when the process that started it ends.
    pod_programs: the programs that pods of simulated members may run, by name.
    kubelets_ask: True if real members start no container without its ConfigMap or Secret, as simulated members do.
    rpc_offset: how far above the command's default ports the search for gRPC ports begins.
    """

    folder: Path = Path("run")
    members: Literal["sim", "kube"] = "sim"
    instances: int = 2
    fleet: tuple[MemberPlan, ...] = FLEET
    environment: tuple[tuple[str, str], ...] = ()
    environment_of: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    brokers: int = 1
    pod_programs: Mapping[str, ProgramSpec] = field(default_factory=dict)
    outlives: bool = True
    kubelets_ask: bool = False
    rpc_offset: int = 0


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses of the parts of a running stack, and its fleet."""

    planners: tuple[str, ...]
    hpas: tuple[str, ...]
    deschedulers: tuple[str, ...]
    kafka: str
    redis: str
    credentials: Path
    members: str
    fleet: str


class Stack:
    """The platform of one run folder. Every method may be called again: unchanged programs are not restarted."""

    def __init__(self, options: StackOptions, say: Say) -> None:
        self.options = options
        self.folder = options.folder.resolve()
        self.credentials = self.folder / "credentials"
        self.supervision = Supervision(self.folder, options.outlives, say)
        self._say = say
        self._ports = PortBook(self.folder / PORTS_FILE)

    # ── Up and down ─────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> Addresses:
        """Installs what is missing, starts everything, and waits until each part is ready.

        Raises OtherFleet if the log belongs to another fleet, and PortTaken if other programs took our ports at each of
        START_ATTEMPTS.
        """
        self.credentials.mkdir(parents=True, exist_ok=True)
        self._install_tools()
        with exclusive_lock(self.folder / "up.lock"):
            fleet = self._known_fleet()
            for _ in range(START_ATTEMPTS - 1):
                try:
                    return self._start_on_free_ports(fleet)
                except PortTaken as taken:
                    self._say(f"{taken}\nthe process is started again on another port")
                    fleet = self._known_fleet() or fleet
            return self._start_on_free_ports(fleet)

    def _start_on_free_ports(self, fleet: str | None) -> Addresses:
        with self._ports.held_ports(self.supervision.occupied_ports()) as taken:
            for name, port in taken.items():
                self._say(f"port {port}, of {name} so far, is taken by another program: {name} gets another one")
            return self._start_stages(fleet)

    def _start_stages(self, fleet: str | None) -> Addresses:
        """Starts all stages. fleet: the fleet that the log must belong to, as in create_topics."""
        brokers, redis = self.brokers(), self._redis_server()
        for broker in brokers:
            broker.prepare()
        self._say("starting Kafka, Redis, members and services")
        self.supervision.start(
            [
                Stage(
                    "log and store",
                    (*(broker.prepare_program() for broker in brokers), redis.prepare_program()),
                    is_ready=lambda: all(broker.is_ready() for broker in brokers) and redis.is_ready(),
                    ready_timeout_seconds=LOG_READY_SECONDS,
                    after=lambda: self.create_topics(fleet),
                ),
                *self._member_stages(),
                Stage(
                    "services",
                    self._service_programs(redis),
                    self._are_services_ready,
                    SERVICE_READY_SECONDS,
                    waits_for=self._services_not_ready,
                ),
            ]
        )
        addresses = self.addresses()
        self._write_addresses(addresses)
        return addresses

    def stop(self) -> None:
        self.supervision.stop()

    def stop_without_waiting(self) -> None:
        """Stops everything as `stop` does, without waiting for it."""
        self.supervision.stop_without_waiting()

    def status(self) -> list[ProgramStatus]:
        return self.supervision.status()

    def stop_and_delete_data(self) -> None:
        """Stops everything and deletes its data, but keeps the downloads."""
        self.stop()
        for name in ("kafka", "redis", "members"):
            _remove_tree(self.folder / name)

    def addresses(self) -> Addresses:
        planners, hpas, deschedulers = (
            tuple(f"127.0.0.1:{self._rpc_port(service, number)}" for number in self._instance_numbers())
            for service in RPC_PORT_BY_SERVICE
        )
        return Addresses(
            planners=planners,
            hpas=hpas,
            deschedulers=deschedulers,
            kafka=self.brokers()[0].bootstrap_servers,
            redis=self._redis_server().url,
            credentials=self.credentials,
            members=self.options.members,
            fleet=self._known_fleet() or "",
        )

    # ── Members: the methods that the story calls ───────────────────────────────────────────────────────────────

    def connect_to_member(self, name: str) -> ClusterApi:
        return make_cluster_api(partial(load_endpoint, self.credentials, name), name, ClusterApiSettings())

    def pids(self, *programs: str) -> list[int]:
        """Returns the process ids of running programs, by the names that `spillway status` shows."""
        return [entry.pid for entry in self.status() if entry.name in programs and entry.pid]

    def member_programs(self, name: str) -> tuple[str, ...]:
        """Returns the programs that answer requests to a member. After SIGSTOP to them the cluster is silent."""
        return (f"member-{name}",) if self.options.members == "sim" else (f"{name}-apiserver",)

    def silence_member(self, name: str) -> None:
        for pid in self.pids(*self.member_programs(name)):
            os.kill(pid, signal.SIGSTOP)

    def wake_member(self, name: str) -> None:
        for pid in self.pids(*self.member_programs(name)):
            os.kill(pid, signal.SIGCONT)

    # ── The parts ───────────────────────────────────────────────────────────────────────────────────────────────

    def _install_tools(self) -> None:
        self._say("Java and Kafka's jars (Maven; once)")
        ensure_java()
        ensure_kafka_jars()
        self._say("Redis (Debian; once)")
        ensure_redis()
        if self.options.members == "kube":
            self._say("the member binary: etcd, kube-apiserver, scheduler, controllers, kwok (Go; minutes, once)")
            ensure_kube_binary()

    def brokers(self) -> list[KafkaServer]:
        """Returns the nodes of the log. Their programs have the same names."""
        folder = self.folder / "kafka"
        if self.options.brokers == 1:
            return [KafkaServer(folder, self._ports.assign_port("kafka", KAFKA_PORT, count=PORTS_PER_NODE))]
        names = [f"kafka-{number}" for number in range(1, self.options.brokers + 1)]
        return kafka_cluster(
            folder, tuple(self._ports.assign_port(name, KAFKA_PORT, count=PORTS_PER_NODE) for name in names)
        )

    def _redis_server(self) -> RedisServer:
        return RedisServer(self.folder / "redis", self._assigned_port("redis", REDIS_PORT))

    def create_topics(self, of_fleet: str | None = None) -> None:
        """Creates the topics. of_fleet: the fleet formed on this log before; empty: none was; None: any.

        Raises OtherFleet.
        """
        settings = TopicSettings(ensure_seconds=LOG_READY_SECONDS)
        if self.options.brokers > 1:
            by_cluster, by_workload = FEW_PARTITIONS
            settings = replace(settings, partitions_cluster=by_cluster, partitions_workload=by_workload)
        access = KafkaAccess(self.brokers()[0].bootstrap_servers)
        try:
            fleet = asyncio.run(ensure_topics(access, settings, FLEET_NAME, wanted_fleet=of_fleet))
        except OtherFleet as error:
            known = f", as {self._fleet_file} says" if of_fleet else ""
            raise OtherFleet(f"Kafka at {access.bootstrap}: {error}{known}: nothing is started on it") from None
        self._fleet_file.write_text(fleet + "\n")
        self._say(f"topics are there; the fleet is {fleet}")

    @property
    def _fleet_file(self) -> Path:
        """Returns the file with the fleet's id.

        It is in the folder of the log, so that both are deleted or restored together.
        """
        return self.folder / "kafka" / "fleet"

    def _known_fleet(self) -> str | None:
        """Returns the fleet of the log in our folder.

        Returns "" if there is no log yet, and None if there is a log whose fleet is not known.
        """
        if self._fleet_file.exists():
            return self._fleet_file.read_text().strip()
        return None if any((self.folder / "kafka").glob("**/meta.properties")) else ""

    def _member_stages(self) -> list[Stage]:
        folder = self.folder / "members"
        folder.mkdir(parents=True, exist_ok=True)
        specs = tuple(
            MemberSpec(member.name, member.nodes, kubelets_ask=self.options.kubelets_ask)
            for member in self.options.fleet
        )
        if self.options.members == "kube":
            binary = ensure_kube_binary()
            members = KubeMembers(folder, self.credentials, specs, self._ports, binary)
            members.prepare()
            return members.prepare_stages()
        ports = {spec.name: self._assigned_port(f"member-{spec.name}", SIM_PORT) for spec in specs}
        extra = ("--usage-percent", str(SIM_USAGE_PERCENT), *self._pod_program_arguments(folder))
        programs = tuple(sim_member_program(spec, ports[spec.name], folder, self.credentials, extra) for spec in specs)
        kafka = {"SPILLWAY_KAFKA_BOOTSTRAP": self.brokers()[0].bootstrap_servers} if self.options.pod_programs else {}
        programs = tuple(replace(program, environment=kafka) for program in programs)
        return [Stage("members", programs, lambda: all(is_listening(port) for port in ports.values()))]

    def _pod_program_arguments(self, folder: Path) -> tuple[str, ...]:
        """Returns the arguments that allow pod programs; none if none are allowed.

        The programs find this platform's Kafka in their environment.
        """
        if not self.options.pod_programs:
            return ()
        file = folder / "pod-programs.json"
        file.write_text(json.dumps({name: asdict(spec) for name, spec in self.options.pod_programs.items()}))
        return ("--pod-programs", str(file))

    def _service_programs(self, redis: RedisServer) -> tuple[Program, ...]:
        shared = {
            "SPILLWAY_KAFKA_BOOTSTRAP": self.brokers()[0].bootstrap_servers,
            "PYTHONUNBUFFERED": "1",
            **dict(self.options.environment),
        }
        return tuple(
            self._service_program(service, number, shared | self._instance_environment(service, number, redis))
            for service in SERVICES
            for number in self._instance_numbers()
        )

    def _service_program(self, service: str, number: int, environment: Mapping[str, str]) -> Program:
        command = (sys.executable, "-m", service.replace("-", "_"))
        ports = tuple(int(environment[name]) for name in PORT_VARIABLES if name in environment)
        return Program(f"{service}-{number}", command, self.folder, environment, ports)

    def _instance_environment(self, service: str, number: int, redis: RedisServer) -> dict[str, str]:
        name = f"{service}-{number}"
        own = {
            "SPILLWAY_INSTANCE": name,
            "SPILLWAY_HEALTH_PORT": str(self._assigned_port(f"{name}-health", SERVICE_PORT)),
        }
        if service in RPC_PORT_BY_SERVICE:
            own["SPILLWAY_RPC_PORT"] = str(self._rpc_port(service, number))
        if service == "planner":
            own["SPILLWAY_REDIS_URL"] = redis.url
        elif service == "hpa":
            own["SPILLWAY_COLLECTING_CONNECTIONS"] = str(self._write_connections_file())
        elif service != "descheduler":
            prefix = service.upper().replace("-", "_")
            own[f"SPILLWAY_{prefix}_CREDENTIALS_FOLDER"] = str(self.credentials)
        if service == "vk-bridge":
            own |= self._kubelet_environment(name) | {"SPILLWAY_VK_BRIDGE_CARRIED_PREFIXES": CARRIED_PREFIXES}
        return own | dict(self.options.environment_of.get(name, {}))

    def _kubelet_environment(self, name: str) -> dict[str, str]:
        """Returns the settings of a bridge's kubelet API. Every member may be a pool, so each one gets its own port."""
        certificate, key = self.folder / "kubelet" / "kubelet.crt", self.folder / "kubelet" / "kubelet.key"
        ensure_certificate(certificate, key, "spillway-local-kubelet")
        ports = {
            one.name: self._assigned_port(f"{name}-kubelet-{one.name}", KUBELET_PORT) for one in self.options.fleet
        }
        chosen = {
            "PORTS": ",".join(f"{pool}={port}" for pool, port in ports.items()),
            "CERTIFICATE": certificate,
            "KEY": key,
            "CLIENTS_FOLDER": kubelet_clients_folder(self.credentials),
        }
        return {f"SPILLWAY_VK_BRIDGE_KUBELET_{field}": str(value) for field, value in chosen.items()}

    def _write_connections_file(self) -> Path:
        """Writes the file that names this platform's Kafka to hpa, so that policies may ask for its queues."""
        file = self.folder / "connections.yaml"
        file.write_text(
            json.dumps({"kafka": {"local": {"bootstrapServers": [self.brokers()[0].bootstrap_servers]}}}) + "\n"
        )
        return file

    def _instance_numbers(self) -> range:
        return range(1, self.options.instances + 1)

    def _are_services_ready(self) -> bool:
        names = (f"{service}-{n}" for service in SERVICES for n in self._instance_numbers())
        return all(self._read_health_page(name, "readyz") for name in names) and all(
            self._is_active(service) for service in STANDBY_SERVICES if self._instance_numbers()
        )

    def _services_not_ready(self) -> list[str]:
        names = [f"{service}-{n}" for service in SERVICES for n in self._instance_numbers()]
        silent = [name for name in names if not self._read_health_page(name, "readyz")]
        return silent or [f"an active {service}" for service in STANDBY_SERVICES if not self._is_active(service)]

    def _is_active(self, service: str) -> bool:
        """Returns whether an instance of the service reports in its metrics that it has the turn."""
        line = f"spillway_{service}_active 1.0"
        return any(
            line in self._read_health_page(f"{service}-{number}", "metrics") for number in self._instance_numbers()
        )

    def _read_health_page(self, name: str, page: str) -> str:
        """Returns a page of a service's health server; empty if it does not answer with 200."""
        url = f"http://127.0.0.1:{self._assigned_port(f'{name}-health', SERVICE_PORT)}/{page}"
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, OSError):
            return ""

    def _rpc_port(self, service: str, number: int) -> int:
        return self._assigned_port(f"{service}-{number}-rpc", RPC_PORT_BY_SERVICE[service] + self.options.rpc_offset)

    def _assigned_port(self, name: str, base: int) -> int:
        return self._ports.assign_port(name, base)

    def _write_addresses(self, addresses: Addresses) -> None:
        """Writes the addresses for the command, so that `spillway` in this folder finds the services by itself."""
        entry: dict[str, Any] = {
            "endpoints": addresses.planners,
            "scaling_endpoints": addresses.hpas,
            "lending_endpoints": addresses.deschedulers,
            "kafka": addresses.kafka,
            "fleet": addresses.fleet,
            "redis": addresses.redis,
            "health": [
                f"{name}=127.0.0.1:{self._assigned_port(f'{name}-health', SERVICE_PORT)}"
                for name in (f"{service}-{number}" for service in SERVICES for number in self._instance_numbers())
            ],
            "members": addresses.members,
            "credentials": str(addresses.credentials),
        }
        (self.folder / "addresses.json").write_text(json.dumps(entry, indent=2) + "\n")


def _remove_tree(folder: Path) -> None:
    import shutil

    if folder.exists():
        shutil.rmtree(folder)
