"""What can be chosen about a vk-bridge; each field is the variable SPILLWAY_VK_BRIDGE_<NAME>."""

from dataclasses import dataclass
from pathlib import Path

from spillway.running.cluster_turns import ClusterTurnSettings
from spillway.settings import setting
from vk_bridge.core.pod.propagated_metadata import CARRIED, NEVER

KUBELET_CLIENTS_FOLDER = Path("kubelet-clients")
KUBELET_CLIENT = "kube-apiserver-kubelet-client"
"""Common name of the certificate that kubeadm makes for an API server."""
PORT_MAX = 65535


@dataclass(frozen=True, slots=True)
class VkBridgeSettings(ClusterTurnSettings):
    in_flight_seconds: float = setting(
        5.0, "the longest that a scheduler or kubelet of an owner acts on a node as it was before, seconds"
    )
    overdue_seconds: float = setting(
        1.0, "seconds after the end of its grace until a real pod that is still there is deleted by force"
    )
    force_first_seconds: float = setting(
        5.0, "seconds until the deletion by force of a real pod that is there all the same is repeated; doubles"
    )
    force_longest_seconds: float = setting(300.0, "longest of these pauses, seconds")
    carried_prefixes: tuple[str, ...] = setting(
        CARRIED,
        "prefixes (with their slash) of labels and annotations that real pods get from pool pods, beside those without "
        "a prefix; all others might be obeyed by something in an owner",
    )
    kubelet_address: str = setting("127.0.0.1", "address that virtual nodes show as their own")
    kubelet_listen: str = setting("", "address that the kubelet API listens on; empty: the one that virtual nodes show")
    kubelet_ports: tuple[str, ...] = setting(
        (),
        "pool=port: where the API server of each pool asks for its pods' logs; virtual nodes in other pools have none",
    )
    kubelet_certificate: str = setting("", "file of the kubelet API's certificate chain, PEM")
    kubelet_key: str = setting("", "file of its private key, PEM")
    kubelet_clients_folder: Path = setting(
        KUBELET_CLIENTS_FOLDER, "folder of <pool>.crt: the CA of that pool's API server as a kubelet's client, PEM"
    )
    kubelet_client_names: tuple[str, ...] = setting(
        (KUBELET_CLIENT,), "common names that an API server's certificate may have; all others are refused"
    )
    kubelet_requests_max: int = setting(64, "requests to the kubelet API answered at the same time; more are refused")
    kubelet_connections_max: int = setting(
        250,
        "connections of one port of the kubelet API at the same time, each of which may follow a log; fewer where the "
        "process may not open two files for each one of each port",
        least=1,
    )
    kubelet_strangers_max: int = setting(
        50,
        "those of them on which the pool's API server has not asked yet; for one more the oldest of the address that "
        "has most is closed",
        least=1,
    )
    kubelet_stranger_seconds: float = setting(
        10.0, "seconds after which such a connection is closed, be it in the handshake of TLS or before a whole request"
    )
    kubelet_idle_seconds: float = setting(
        90.0,
        "seconds after which a connection is closed on which the API server asks nothing more; as Go's own clients",
    )
    owner_logs_max: int = setting(16, "logs of one owner's pods that are read at the same time; more are refused")
    log_seconds: float = setting(4 * 3600.0, "seconds after which a log ends, though its pod may write on")
    log_bytes_max: int = setting(1 << 30, "bytes after which a log ends, whatever was asked for")
    log_stalled_seconds: float = setting(60.0, "seconds that a reader of a log may take for one piece of it")
    heartbeat_seconds: int = setting(
        240, "least seconds between heartbeats of a real node that its virtual node shows; kubelets tell one in 300"
    )
    endpoint_seconds: float = setting(
        30.0, "least seconds between this bridge's writes of its own address to a virtual node that names another's"
    )
    lease_seconds: float = setting(10.0, "seconds between renewals of the Leases of virtual nodes")
    lease_duration_seconds: int = setting(
        40, "seconds after its last renewal until the pool takes a virtual node for dead"
    )
    leases_at_once: int = setting(8, "Leases of one cluster's nodes that are renewed at the same time")

    review_seconds: float = setting(2.0, "seconds between looks at which nodes of a cluster are wanted for its pool")
    review_slice_nodes: int = setting(
        100,
        "nodes that are looked at in one piece; between two pieces everything else of this instance goes on",
        least=1,
    )
    resync_seconds: float = setting(
        300.0, "seconds until each node with a loan is read again, whether or not it changed"
    )
    left_behind_seconds: float = setting(
        10.0, "seconds between looks at virtual nodes that stayed in a pool which was given up, and is back"
    )
    forget_seconds: float = setting(
        3600.0, "seconds after the end of its last loan until the log forgets a node that is gone"
    )
    nodes_at_once: int = setting(16, "nodes of one cluster that are worked on at the same time")
    nodes_at_once_overall: int = setting(64, "the same for all clusters of this instance")
    nodes_beside_recalled: int = setting(
        2, "those of them that nobody waits for, while nodes that were recalled are worked on", least=1
    )
    pods_at_once: int = setting(8, "pods of one node that are written at the same time")
    collection_least: int = setting(
        4,
        "of the pods of a recalled node in one namespace, as many as go with one request; fewer are deleted one by one",
        least=2,
    )
    collection_most: int = setting(100, "pods that go with one request at the most")
    leaving_seconds: float = setting(
        0.5, "seconds that word of a pod which ended on a recalled node waits for the others there"
    )
    steps_max: int = setting(20, "readings and writes in one go at one node")
    retry_seconds: float = setting(
        1.0, "seconds until a node is looked at again when a go did not come to rest; doubles while none does"
    )
    retry_longest_seconds: float = setting(60.0, "longest of these pauses, seconds")
    unread_seconds: float = setting(
        2.0, "seconds until a node is looked at again of which one side could not be read, or a write had no answer"
    )
    refused_seconds: float = setting(15.0, "seconds until what a cluster refused is tried again")
    missing_seconds: float = setting(
        5.0, "seconds until a pod is tried again whose ConfigMap or Secret was missing in the pool"
    )
    refusal_pause_seconds: float = setting(
        10.0, "seconds after a pod was refused on a node until the next one is tried there; it waits, and says why"
    )
    refused_size_seconds: float = setting(
        300.0, "seconds after a node refused a pod that its owner made larger, in which it offers less to such pods"
    )
    unreachable_first_seconds: float = setting(0.5, "seconds until an unreachable cluster is tried again; doubles")
    unreachable_longest_seconds: float = setting(10.0, "longest of these pauses, seconds")
    request_timeout_seconds: float = setting(10.0, "longest that one answer of a cluster may take, seconds")

    probe_seconds: float = setting(2.0, "seconds between starts of probes, by which idle time advances")
    stream_silence_seconds: float = setting(
        90.0, "seconds without event or bookmark after which a stream no longer lets idle time advance"
    )
    count_differs_seconds: float = setting(10.0, "seconds that a probe's count may differ from ours before a new list")

    copies_seconds: float = setting(
        15.0, "seconds between comparisons of the copies of ConfigMaps and Secrets with what the pool has"
    )
    copy_unused_seconds: float = setting(
        120.0, "seconds until a copy, or a namespace of ours, to which no pod refers any more is deleted"
    )
    copies_bytes_max: int = setting(
        64 << 20,
        "bytes of all copies of ConfigMaps and Secrets in one cluster; a pod that needs more is refused, and a copy "
        "that would grow beyond it stays as it was",
    )
    copies_at_once: int = setting(4, "copies of one cluster that are compared at the same time")

    gather_seconds: float = setting(0.1, "seconds that records are gathered before they are published")
    log_away_seconds: float = setting(
        10.0,
        "seconds without a record that the log took after which nodes that wait for theirs to open go back",
        least=0,
    )
    records_batch: int = setting(500, "records published at once")
    records_waiting_max: int = setting(10_000, "hours of nodes' use that wait to be published; the oldest are dropped")
    usage_seconds: float = setting(60.0, "seconds between looks at what nodes are used for")
    metrics_answer_seconds: float = setting(5.0, "seconds that an answer of metrics.k8s.io may take")

    def __post_init__(self) -> None:
        ClusterTurnSettings.__post_init__(self)
        for prefix in self.carried_prefixes:
            if not prefix.endswith("/") or prefix.count("/") > 1 or prefix in NEVER:
                raise ValueError(f"carried_prefixes: {prefix!r}: expected the prefix of a key with its slash, not ours")
        if self.port_by_pool and not (self.kubelet_certificate and self.kubelet_key):
            raise ValueError("kubelet_ports: they need kubelet_certificate and kubelet_key")

    @property
    def port_by_pool(self) -> dict[str, int]:
        """Of the kubelet API. ValueError for what is no pool=port, and for a port or a pool that is named twice."""
        found: dict[str, int] = {}
        for entry in self.kubelet_ports:
            pool, _, text = entry.partition("=")
            port = int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(PORT_MAX)) else 0
            if not pool or not 0 < port <= PORT_MAX:
                raise ValueError(f"kubelet_ports: {entry!r}: expected pool=port, a port from 1 to {PORT_MAX}")
            if pool in found or port in found.values():
                raise ValueError(f"kubelet_ports: {entry!r}: expected each pool and each port once")
            found[pool] = port
        return found
