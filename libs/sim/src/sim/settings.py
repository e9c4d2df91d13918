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
    """Nodes that do not exist yet: one arrives `lead_time_seconds` after pods wait that fit it."""

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
    """Lines that a container writes, by default the first one."""

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
    """Programs of one cluster at once; pods beyond that run without."""
    restart_seconds: float = 1.0
    """From the end of a program that nobody ended to its next beginning."""
    last_words_seconds: float = 0.5
    """After a program's end, for what it said last."""
    stop_seconds: float = 5.0
    """When the cluster ends: from SIGTERM to SIGKILL."""


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """Bound, running pods for `SimCluster.load`, divided among `deployments` Deployments."""

    pods: int
    deployments: int = 20
    cpu_millis: int = 500
    memory_bytes: int = 1 << 30
    namespace: str = "default"
    name_prefix: str = "load-"


@dataclass(frozen=True, slots=True)
class Settings:
    seed: int = 0
    """Of every random choice: uids, name suffixes, the scheduler's choice."""
    start_unix_seconds: float = 1_767_225_600.0
    """The wall clock (in objects' timestamps) when the cluster is made."""
    first_version: int = 1_000
    """The resourceVersion counter starts above this."""
    history_changes: int = 20_000
    """Changes kept per resource for watches; an older resourceVersion gives 410."""
    score: Literal["least-allocated", "random"] = "least-allocated"
    """How the scheduler chooses among the nodes that fit."""
    binds_per_second: float = 0.0
    """The scheduler's rate; 0 is unlimited."""
    bind_delay_seconds: float = 0.0
    """From the scheduler's decision to the binding."""
    start_delay_seconds: float = 0.5
    """From the binding to Running and Ready."""
    delete_delay_seconds: float = 0.2
    """From a pod's deletionTimestamp to its removal, at most its grace period."""
    node_grace_seconds: float = 40.0
    """A node whose Lease was renewed once and then not for so long is Unknown."""
    usage_of_requests: float = 0.0
    """Share of its requests that a pod uses of which nothing was set; at 0 such a pod has no sample."""
    metrics_window_seconds: float = 15.0
    """Over how long a pod's sample says that it was taken."""
    bookmark_seconds: float = 60.0
    """Between BOOKMARK events of a quiet watch."""
    watch_timeout_seconds: float = 1_800.0
    """Length of a watch that does not ask for one."""
    expired_watch_as: Literal["event", "status"] = "event"
    """How a watch from a too old resourceVersion is told 410."""
    step_changes: int = 250
    """Writes between two turns of the event loop."""
    kubelet_client: tuple[str, str] | None = None
    """Files of the certificate and key by which it is known to the kubelets that virtual nodes name."""
    node_groups: tuple[NodeGroupSpec, ...] = ()
    sidecar: SidecarSpec | None = None
    """What is injected into every pod; `SimCluster.inject` changes it."""


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of the API from now on. Replace them with `SimCluster.set_faults`."""

    silent: bool = False
    """Nothing is answered and no stream says anything, until this is lifted."""
    unauthorized: bool = False
    """401; running watches end with an ERROR event of code 401."""
    garbage: bool = False
    """Answers that are not JSON."""
    stall_list: bool = False
    """Lists stop in the middle, until this is lifted."""
    drop_watches: bool = False
    """Every stream ends cleanly at once."""
    expire_history: Literal["", "status", "event"] = ""
    """Watches from a resourceVersion get 410: as HTTP status or as an ERROR event; running ones as an event."""
    forbidden: tuple[str, ...] = ()
    """What the account may not do, as `POST pods`: 403 in the words of RBAC."""
    metrics: Literal["", "absent", "unavailable"] = ""
    """metrics.k8s.io: 404, as where nobody serves it; or 503, as while its server does not answer."""
    latency_seconds: float = 0.0
    """Added before every answer."""
