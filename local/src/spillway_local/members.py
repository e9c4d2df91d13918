"""Describes member clusters as programs: real control planes without machines, or simulated ones."""

import asyncio
import sys
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from spillway_local import config_kubelet
from spillway_local.kube_binary import STAGES_FILE
from spillway_local.member_credentials import CredentialFiles, KubeletClientFiles, MemberAccess, write_kubeconfig
from spillway_local.member_nodes import MemberNodes, create_nodes, write_nodes_file
from spillway_local.ports import LOOPBACK, PortBook, is_listening
from spillway_local.programs import Program, Stage

ETCD_PORT_BASE = 12379
MEMBER_PORT_BASE = 16443

_ETCD_READY_SECONDS = 20.0
_API_READY_SECONDS = 90.0
_ETCD_QUOTA_BYTES = 8 * 2**30
_CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "daemonset-controller",
    "job-controller",
    "cronjob-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "garbage-collector-controller",
    "pod-garbage-collector-controller",
    "node-lifecycle-controller",
    "taint-eviction-controller",
    "disruption-controller",
    "resourcequota-controller",
)


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One member cluster.

    rbac: True if accounts have only the rights from RBAC; False: every accepted caller may do everything.
    accounts: True if a pod is refused when its service account does not exist, as API servers do by default.
    kubelets_ask: True if a container waits for its ConfigMap or Secret; kwok alone starts all containers.
    privileged: True if containers may be privileged, as in kubeadm's clusters; False: the API server refuses them.
    """

    name: str
    nodes: tuple[MemberNodes, ...] = ()
    rbac: bool = False
    accounts: bool = False
    kubelets_ask: bool = False
    privileged: bool = False


@dataclass(frozen=True, slots=True)
class KubeMember:
    """One real control plane: API server, scheduler, controllers, and kwok for its nodes."""

    spec: MemberSpec
    folder: Path
    kubeconfig: Path
    port: int
    etcd_url: str
    binary: Path

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def access(self) -> MemberAccess:
        return self._credentials.access(self.port)

    def prepare(self) -> None:
        """Writes the credentials, unless a former run did, and the kubeconfig."""
        self._credentials.ensure_files()
        self.kubelet_client_files.ensure_files()
        write_kubeconfig(self.kubeconfig, self.name, self.access)
        if self.spec.kubelets_ask:
            self._stages.write_text(
                config_kubelet.stages_that_skip_config_pods((self.binary.parent / STAGES_FILE).read_text())
            )

    def api_server_program(self) -> Program:
        files = self._credentials
        flags = {
            "etcd-servers": self.etcd_url,
            "etcd-prefix": f"/member/{self.name}",
            "bind-address": LOOPBACK,
            "advertise-address": LOOPBACK,
            "secure-port": self.port,
            "tls-cert-file": files.certificate,
            "tls-private-key-file": files.certificate_key,
            "token-auth-file": files.tokens,
            "anonymous-auth": "false",
            "authorization-mode": "RBAC" if self.spec.rbac else "AlwaysAllow",
            "kubelet-client-certificate": self.kubelet_client_files.certificate,
            "kubelet-client-key": self.kubelet_client_files.key,
            "service-account-key-file": files.service_account_key,
            "service-account-signing-key-file": files.service_account_key,
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-cluster-ip-range": "10.96.0.0/16",
            "endpoint-reconciler-type": "none",
            "enable-priority-and-fairness": "false",
            "max-requests-inflight": 0,
            "max-mutating-requests-inflight": 0,
            "profiling": "false",
            "allow-privileged": "true" if self.spec.privileged else "false",
        }
        if not self.spec.accounts:
            flags["disable-admission-plugins"] = "ServiceAccount"
        return self._program("apiserver", "kube-apiserver", flags, (self.port,))

    def controller_programs(self) -> tuple[Program, ...]:
        """Returns the programs that work through the API server and therefore start after it."""
        client = {"kubeconfig": self.kubeconfig}
        leader = {"leader-elect": "false", "secure-port": 0, "kube-api-qps": 5000, "kube-api-burst": 10000}
        lifecycle = {"node-monitor-period": "25s", "node-monitor-grace-period": "3m20s"}
        kwok = {
            "manage-all-nodes": "false",
            "manage-nodes-with-annotation-selector": "kwok.x-k8s.io/node=fake",
            "node-lease-duration-seconds": 200,
            "server-address": "",
            "config": self._stages,
        }
        chosen = {"controllers": ",".join(_CONTROLLERS)}
        return (
            self._program("scheduler", "kube-scheduler", client | leader),
            self._program("controllers", "kube-controller-manager", client | leader | lifecycle | chosen),
            self._program("kwok", "kwok", client | kwok),
            *self._config_kubelets(),
        )

    def _config_kubelets(self) -> tuple[Program, ...]:
        if not self.spec.kubelets_ask:
            return ()
        command = (sys.executable, "-m", config_kubelet.__name__, str(self.kubeconfig))
        return (Program(f"{self.name}-config-kubelet", command, self.folder),)

    def is_ready(self) -> bool:
        request = urllib.request.Request(f"{self.access.server}/readyz", headers=self.access.headers)
        try:
            with urllib.request.urlopen(request, timeout=5.0, context=self.access.ssl_context()) as response:
                return bool(response.status == HTTPStatus.OK)
        except OSError:
            return False

    async def create_nodes(self, timeout_seconds: float = 60.0) -> None:
        await create_nodes(self.access, self.spec.nodes, timeout_seconds)

    @property
    def kubelet_client_files(self) -> KubeletClientFiles:
        return KubeletClientFiles(kubelet_clients_folder(self.kubeconfig.parent), self.name)

    @property
    def _stages(self) -> Path:
        """Returns the file with kwok's stages."""
        return (self.folder if self.spec.kubelets_ask else self.binary.parent) / STAGES_FILE

    @property
    def _credentials(self) -> CredentialFiles:
        return CredentialFiles(self.folder / "credentials")

    def _program(self, part: str, subcommand: str, flags: dict[str, object], ports: tuple[int, ...] = ()) -> Program:
        command = (str(self.binary), subcommand, *_flag_arguments(flags))
        return Program(f"{self.name}-{part}", command, self.folder, {"HOME": str(self.folder)}, ports)


@dataclass(frozen=True, slots=True)
class KubeMembers:
    """All members of a local fleet, on one etcd that separates them by prefix."""

    folder: Path
    credentials_folder: Path
    specs: tuple[MemberSpec, ...]
    ports: PortBook
    binary: Path

    def members(self) -> list[KubeMember]:
        return [
            KubeMember(
                spec=spec,
                folder=self.folder / spec.name,
                kubeconfig=self.credentials_folder / f"{spec.name}.kubeconfig",
                port=self.ports.assign_port(f"member/{spec.name}", MEMBER_PORT_BASE),
                etcd_url=self._etcd_url,
                binary=self.binary,
            )
            for spec in self.specs
        ]

    def prepare(self) -> None:
        (self.folder / "etcd").mkdir(parents=True, exist_ok=True)
        for member in self.members():
            member.prepare()

    def etcd_program(self) -> Program:
        peer_url = f"http://{LOOPBACK}:{self._etcd_port + 1}"
        flags = {
            "name": "etcd",
            "data-dir": self.folder / "etcd" / "data",
            "listen-client-urls": self._etcd_url,
            "advertise-client-urls": self._etcd_url,
            "listen-peer-urls": peer_url,
            "initial-advertise-peer-urls": peer_url,
            "initial-cluster": f"etcd={peer_url}",
            "quota-backend-bytes": _ETCD_QUOTA_BYTES,
            "unsafe-no-fsync": "true",
            "log-level": "warn",
        }
        ports = (self._etcd_port, self._etcd_port + 1)
        return Program("etcd", (str(self.binary), "etcd", *_flag_arguments(flags)), self.folder / "etcd", ports=ports)

    def prepare_stages(self) -> list[Stage]:
        """Prepares the members and returns their stages in the order of start.

        Once the last stage is ready, every node is Ready.
        """
        self.prepare()
        members = self.members()
        api_servers = tuple(member.api_server_program() for member in members)
        controllers = tuple(program for member in members for program in member.controller_programs())
        return [
            Stage("etcd", (self.etcd_program(),), lambda: is_listening(self._etcd_port), _ETCD_READY_SECONDS),
            Stage("member-apis", api_servers, self.is_ready, _API_READY_SECONDS),
            Stage("member-controllers", controllers, after=self.create_nodes),
        ]

    def is_ready(self) -> bool:
        return all(member.is_ready() for member in self.members())

    def create_nodes(self, timeout_seconds: float = 120.0) -> None:
        """Creates all nodes, for callers without an event loop; others await `KubeMember.create_nodes`."""

        async def create_all() -> None:
            await asyncio.gather(*(member.create_nodes(timeout_seconds) for member in self.members()))

        asyncio.run(create_all())

    @property
    def _etcd_port(self) -> int:
        return self.ports.assign_port("etcd", ETCD_PORT_BASE, count=2)

    @property
    def _etcd_url(self) -> str:
        return f"http://{LOOPBACK}:{self._etcd_port}"


def kubelet_clients_folder(credentials_folder: Path) -> Path:
    """Returns the folder of the certificates that members' API servers show to kubelets."""
    return credentials_folder / "kubelet-clients"


def sim_member_program(
    spec: MemberSpec, port: int, folder: Path, credentials_folder: Path, extra: Sequence[str] = ()
) -> Program:
    """Returns the program of one simulated member.

    A file describes its nodes; another keeps its objects while it is stopped.
    """
    nodes_file = folder / f"{spec.name}-nodes.json"
    write_nodes_file(nodes_file, spec.nodes)
    client = KubeletClientFiles(kubelet_clients_folder(credentials_folder), spec.name)
    client.ensure_files()
    flags = {
        "name": spec.name,
        "port": port,
        "credentials-folder": credentials_folder,
        "nodes": nodes_file,
        "state": folder / f"{spec.name}-state.json",
        "kubelet-client-certificate": client.certificate,
        "kubelet-client-key": client.key,
    }
    arguments = [part for name, value in flags.items() for part in (f"--{name}", str(value))]
    return Program(f"member-{spec.name}", (sys.executable, "-m", "sim", *arguments, *extra), folder, ports=(port,))


def _flag_arguments(flags: dict[str, object]) -> tuple[str, ...]:
    return tuple(f"--{name}={value}" for name, value in flags.items())
