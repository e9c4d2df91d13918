"""The settings of a simulated cluster: its nodes, its speeds, its faults."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """`count` equal nodes named `<name_prefix><n>`. With `zones` they are spread over the zones in turn."""

    name_prefix: str
    count: int = 1
    cpu_millis: int = 32_000
    memory_bytes: int = 128 << 30
    pods: int = 110
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    extended: Mapping[str, int] = field(default_factory=dict)
    zones: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeGroupSpec:
    """A node group that grows: a node arrives `lead_time_seconds` after the first waiting pods that fit on it."""

    template: NodeSpec
    max: int
    lead_time_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class SidecarSpec:
    """A container that a mutating webhook adds to every pod. as_init: as an init container that goes on running."""

    name: str = "sidecar"
    cpu_millis: int = 100
    memory_bytes: int = 64 << 20
    as_init: bool = False


@dataclass(frozen=True, slots=True)
class UsageSpec:
    """The usage of a workload's pods together, or of one pod. amounts: None means unknown again."""

    namespace: str
    workload: str = ""
    pod: str = ""
    amounts: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class LogSpec:
    """Lines for a container's log. An empty container means the pod's first one."""

    namespace: str
    pod: str
    text: str
    container: str = ""


@dataclass(frozen=True, slots=True)
class ProgramSpec:
    """The program of a pod that names it. environment: variables that the pod's first container may set for it."""

    command: tuple[str, ...]
    environment: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    processes_max: int = 64
    """The most programs of one cluster at one time. Further pods run without their program."""
    restart_seconds: float = 1.0
    """Seconds from a program's unexpected end to its next start."""
    last_words_seconds: float = 0.5
    """Seconds to wait for a program's last output after its end."""
    stop_seconds: float = 5.0
    """Seconds from SIGTERM to SIGKILL when the cluster ends."""


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """Bound, running pods for `SimCluster.load_objects`, divided among `deployments` Deployments."""

    pods: int
    deployments: int = 20
    cpu_millis: int = 500
    memory_bytes: int = 1 << 30
    namespace: str = "default"
    name_prefix: str = "load-"


@dataclass(frozen=True, slots=True)
class Settings:
    seed: int = 0
    """The seed of every random choice: uids, name suffixes, the scheduler's choice."""
    start_unix_seconds: float = 1_767_225_600.0
    """The wall clock at the cluster's creation, as objects' timestamps show it."""
    first_version: int = 1_000
    """The resourceVersion counter starts above this number."""
    history_changes: int = 20_000
    """Changes that are kept for watches, for each resource. A watch from an older resourceVersion gets 410."""
    score: Literal["least-allocated", "random"] = "least-allocated"
    """How the scheduler chooses among the nodes that fit."""
    binds_per_second: float = 0.0
    """The most bindings of the scheduler in a second; 0 is unlimited."""
    bind_delay_seconds: float = 0.0
    """Seconds from the scheduler's decision to the binding."""
    start_delay_seconds: float = 0.5
    """Seconds from the binding to Running and Ready."""
    delete_delay_seconds: float = 0.2
    """Seconds from a pod's deletionTimestamp to its removal, at most its grace period."""
    node_grace_seconds: float = 40.0
    """Seconds without a renewal after which a node with a Lease becomes Unknown. A Lease that was never renewed does
    not count."""
    usage_of_requests: float = 0.0
    """The share of its requests that a pod uses if no usage was set for it. With 0 such a pod has no sample."""
    metrics_window_seconds: float = 15.0
    """The window of time that a pod's sample names."""
    bookmark_seconds: float = 60.0
    """Seconds between BOOKMARK events of a quiet watch."""
    watch_timeout_seconds: float = 1_800.0
    """The length of a watch that asks for no length."""
    expired_watch_as: Literal["event", "status"] = "event"
    """The form of the 410 answer to a watch from a resourceVersion that is too old."""
    step_changes: int = 250
    """Writes between two pauses in which other tasks get the event loop."""
    kubelet_client: tuple[str, str] | None = None
    """Files of the certificate and the key that this API server shows to the kubelets that virtual nodes name."""
    node_groups: tuple[NodeGroupSpec, ...] = ()
    sidecar: SidecarSpec | None = None
    """The sidecar that is injected into every pod. `SimCluster.inject_sidecar` changes it."""


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of the API from now on. Replace them with `SimCluster.set_faults`."""

    silent: bool = False
    """The cluster answers nothing and its streams send nothing, until this is switched off."""
    unauthorized: bool = False
    """Every request gets 401. Running watches end with an ERROR event of code 401."""
    garbage: bool = False
    """Answers are not JSON."""
    stall_list: bool = False
    """Lists stop in the middle, until this is switched off."""
    drop_watches: bool = False
    """Every stream ends cleanly at once."""
    expire_history: Literal["", "status", "event"] = ""
    """Watches from a resourceVersion get 410, as HTTP status or as an ERROR event. Running watches get it as an
    event."""
    forbidden: tuple[str, ...] = ()
    """Verbs and resources that the account may not use, as `POST pods`. They get 403 in RBAC's words."""
    metrics: Literal["", "absent", "unavailable"] = ""
    """The answers of metrics.k8s.io: 404, as without any server for it; or 503, as when its server does not answer."""
    latency_seconds: float = 0.0
    """Seconds of delay before every answer."""
