"""Settings of vk-bridge, SPILLWAY_VK_BRIDGE_* in the environment, and its constants."""

from dataclasses import dataclass
from pathlib import Path

from spillway.running.cluster_turns import ClusterTurnSettings
from spillway.settings import constant, setting
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
    overdue_seconds: float = constant(
        1.0,
        "seconds after the end of its grace until a real pod that is still there is deleted by force",
        "a kubelet ends pods at the end of their grace; a second is for its word to come here",
    )
    force_first_seconds: float = constant(
        5.0,
        "seconds until the deletion by force of a real pod that is there all the same is repeated; doubles",
        "the pauses double, so that only the first one is short",
    )
    force_longest_seconds: float = constant(
        300.0,
        "longest of these pauses, seconds",
        "only a finalizer holds a pod for so long, and a try costs one request",
    )
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
    kubelet_connections_max: int = constant(
        250,
        "connections of one port of the kubelet API at the same time, each of which may follow a log; fewer where the "
        "process may not open two files for each one of each port",
        "above kubelet_requests_max by default, and an API server keeps few that are idle",
    )
    kubelet_strangers_max: int = constant(
        50,
        "those of them on which the pool's API server has not asked yet; for one more the oldest of the address that "
        "has most is closed",
        "a connection is known with its first request, so that few are strangers at a time",
    )
    kubelet_stranger_seconds: float = constant(
        10.0,
        "seconds after which such a connection is closed, be it in the handshake of TLS or before a whole request",
        "a first request takes far less, on slow networks too",
    )
    kubelet_idle_seconds: float = constant(
        90.0,
        "seconds after which a connection is closed on which the API server asks nothing more; as Go's own clients",
        "as Go's clients, which an API server is",
    )
    owner_logs_max: int = setting(16, "logs of one owner's pods that are read at the same time; more are refused")
    log_seconds: float = constant(
        4 * 3600.0,
        "seconds after which a log ends, though its pod may write on",
        "as kubelets, which end a silent log after four hours",
    )
    log_bytes_max: int = constant(
        1 << 30,
        "bytes after which a log ends, whatever was asked for",
        "nobody reads a gigabyte; who wants the rest asks again with sinceTime",
    )
    log_stalled_seconds: float = constant(
        60.0,
        "seconds that a reader of a log may take for one piece of it",
        "a reader who takes nothing for a minute is gone, or will ask again",
    )
    heartbeat_seconds: int = constant(
        240,
        "least seconds between heartbeats of a real node that its virtual node shows; kubelets tell one in 300",
        "below the 300 s in which kubelets tell one, whatever else is turned",
    )
    endpoint_seconds: float = constant(
        30.0,
        "least seconds between this bridge's writes of its own address to a virtual node that names another's",
        "one bridge writes once; it keeps two of which each thinks the node its own from a fight",
    )
    lease_seconds: float = constant(
        10.0,
        "seconds between renewals of the Leases of virtual nodes",
        "as kubelets: several fit into lease_duration_seconds",
    )
    lease_duration_seconds: int = constant(
        40,
        "seconds after its last renewal until the pool takes a virtual node for dead",
        "as kubelets'",
    )
    leases_at_once: int = constant(
        8,
        "Leases of one cluster's nodes that are renewed at the same time",
        "renewals are small, and a cluster has lease_seconds for all of its nodes",
    )

    review_seconds: float = constant(
        2.0,
        "seconds between looks at which nodes of a cluster are wanted for its pool",
        "short beside lending; only the nodes of clusters that lend are looked at",
    )
    review_slice_nodes: int = constant(
        100,
        "nodes that are looked at in one piece; between two pieces everything else of this instance goes on",
        "bounds how long the others of this process wait",
    )
    resync_seconds: float = constant(
        300.0,
        "seconds until each node with a loan is read again, whether or not it changed",
        "streams tell of every change; this one is against what they missed",
    )
    left_behind_seconds: float = constant(
        10.0,
        "seconds between looks at virtual nodes that stayed in a pool which was given up, and is back",
        "a pool that is back has its virtual nodes cleared soon, and a look is one list",
    )
    forget_seconds: float = constant(
        3600.0,
        "seconds after the end of its last loan until the log forgets a node that is gone",
        "far longer than any reader lags behind",
    )
    nodes_at_once: int = constant(
        16,
        "nodes of one cluster that are worked on at the same time",
        "bounds the load on one owner's API; a recall is let in before others",
    )
    nodes_at_once_overall: int = setting(
        64, "nodes of all clusters of this instance that are worked on at the same time"
    )
    nodes_beside_recalled: int = constant(
        2,
        "those of them that nobody waits for, while nodes that were recalled are worked on",
        "leaves nearly all places to nodes that somebody waits for, and the others never stand still",
    )
    pods_at_once: int = constant(
        8,
        "pods of one node that are written at the same time",
        "with nodes_at_once it bounds the writes at one time in a cluster",
    )
    collection_least: int = constant(
        4,
        "of the pods of a recalled node in one namespace, as many as go with one request; fewer are deleted one by one",
        "for fewer pods one request each is as fast",
    )
    collection_most: int = constant(
        100,
        "pods that go with one request at the most",
        "bounds the time of one request at the API server; the rest goes with the next one",
    )
    leaving_seconds: float = constant(
        0.5,
        "seconds that word of a pod which ended on a recalled node waits for the others there",
        "the pods of a node end together, or not; the last one's word does not wait",
    )
    steps_max: int = constant(
        20,
        "readings and writes in one go at one node",
        "a node comes to rest in a few; more is a fight, which the next go sees anew",
    )
    retry_seconds: float = constant(
        1.0,
        "seconds until a node is looked at again when a go did not come to rest; doubles while none does",
        "the pauses double, so that only the first one is short",
    )
    retry_longest_seconds: float = constant(
        60.0,
        "longest of these pauses, seconds",
        "what ended the trouble is noticed within a minute, and a look costs few requests",
    )
    unread_seconds: float = constant(
        2.0,
        "seconds until a node is looked at again of which one side could not be read, or a write had no answer",
        "the API client has pauses of its own that double; this one comes after them",
    )
    refused_seconds: float = constant(
        15.0,
        "seconds until what a cluster refused is tried again",
        "what ended a refusal is noticed soon, and a try costs one request",
    )
    missing_seconds: float = constant(
        5.0,
        "seconds until a pod is tried again whose ConfigMap or Secret was missing in the pool",
        "who made the missing thing sees its effect soon; a try is one read",
    )
    refusal_pause_seconds: float = constant(
        10.0,
        "seconds after a pod was refused on a node until the next one is tried there; it waits, and says why",
        "a controller makes the next pod at once: this is what keeps the two from a circle",
    )
    refused_size_seconds: float = constant(
        300.0,
        "seconds after a node refused a pod that its owner made larger, in which it offers less to such pods",
        "what owners add to pods changes seldom, and the size is learned again after it",
    )
    unreachable_first_seconds: float = constant(
        0.5,
        "seconds until an unreachable cluster is tried again; doubles",
        "the pauses double, so that only the first one is short",
    )
    unreachable_longest_seconds: float = constant(
        10.0,
        "longest of these pauses, seconds",
        "a cluster that comes back is noticed within it, and a try costs one request",
    )
    request_timeout_seconds: float = setting(10.0, "longest that one answer of a cluster may take, seconds")

    probe_seconds: float = constant(
        2.0,
        "seconds between starts of probes, by which idle time advances",
        "a probe is two small requests, and idle time is counted in minutes",
    )
    stream_silence_seconds: float = constant(
        90.0,
        "seconds without event or bookmark after which a stream no longer lets idle time advance",
        "API servers send a bookmark about every 60 s",
    )
    count_differs_seconds: float = constant(
        10.0,
        "seconds that a probe's count may differ from ours before a new list",
        "longer than a stream lags behind; only a list that is wrong differs for longer",
    )

    copies_seconds: float = constant(
        15.0,
        "seconds between comparisons of the copies of ConfigMaps and Secrets with what the pool has",
        "kubelets take up to a minute for a changed ConfigMap as it is",
    )
    copy_unused_seconds: float = constant(
        120.0,
        "seconds until a copy, or a namespace of ours, to which no pod refers any more is deleted",
        "pods come and go; a copy that is made again costs more than one that waits",
    )
    copies_bytes_max: int = setting(
        64 << 20,
        "bytes of all copies of ConfigMaps and Secrets in one cluster; a pod that needs more is refused, and a copy "
        "that would grow beyond it stays as it was",
    )
    copies_at_once: int = constant(
        4,
        "copies of one cluster that are compared at the same time",
        "bounds the load on the pool's API; pods that wait for a copy do not wait for these",
    )

    gather_seconds: float = constant(
        0.1,
        "seconds that records are gathered before they are published",
        "not noticed beside lending a node, and a burst becomes few records",
    )
    log_away_seconds: float = constant(
        10.0,
        "seconds without a record that the log took after which nodes that wait for theirs to open go back",
        "longer than a broker's restart takes a partition; nodes are not kept from their owner for more",
    )
    records_batch: int = constant(
        500,
        "records published at once",
        "bounds one publish; the next follows at once",
    )
    records_waiting_max: int = constant(
        10_000,
        "hours of nodes' use that wait to be published; the oldest are dropped",
        "bounds memory; hours of use are for reports alone",
    )
    usage_seconds: float = constant(
        60.0,
        "seconds between looks at what nodes are used for",
        "use is told by the hour",
    )
    metrics_answer_seconds: float = constant(
        5.0,
        "seconds that an answer of metrics.k8s.io may take",
        "far below usage_seconds, so that questions do not pile up",
    )

    def __post_init__(self) -> None:
        ClusterTurnSettings.__post_init__(self)
        for prefix in self.carried_prefixes:
            if not prefix.endswith("/") or prefix.count("/") > 1 or prefix in NEVER:
                raise ValueError(f"carried_prefixes: {prefix!r}: expected the prefix of a key with its slash, not ours")
        if self.port_by_pool and not (self.kubelet_certificate and self.kubelet_key):
            raise ValueError("kubelet_ports: they need kubelet_certificate and kubelet_key")

    @property
    def port_by_pool(self) -> dict[str, int]:
        """Returns the port of the kubelet API by pool.

        Raises ValueError for an entry that is not pool=port, or a repeated one.
        """
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
