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
        5.0, "longest time in seconds that a scheduler or kubelet of an owner acts on an earlier state of a node"
    )
    overdue_seconds: float = constant(
        1.0,
        "seconds after the end of its grace period until a real pod that still exists is deleted by force",
        "a kubelet ends pods at the end of their grace period, and its report needs up to a second",
    )
    force_first_seconds: float = constant(
        5.0,
        "first pause in seconds before the forced deletion of a real pod is repeated; each further pause doubles",
        "the pauses double, so that only the first pause is short",
    )
    force_longest_seconds: float = constant(
        300.0,
        "longest pause in seconds before the forced deletion of a real pod is repeated",
        "only a finalizer keeps a pod for so long, and a try costs one request",
    )
    carried_prefixes: tuple[str, ...] = setting(
        CARRIED,
        "prefixes, with their slash, of the labels and annotations that real pods get from pool pods; keys without "
        "a prefix are always copied, and all others never, because a controller of an owner might obey them",
    )
    kubelet_address: str = setting("127.0.0.1", "address that virtual nodes report as their own")
    kubelet_listen: str = setting(
        "", "address that the kubelet API listens on; empty: the address that virtual nodes report"
    )
    kubelet_ports: tuple[str, ...] = setting(
        (),
        "entries pool=port: the port where a pool's API server requests the logs of its pods; virtual nodes of "
        "other pools offer no logs",
    )
    kubelet_certificate: str = setting("", "PEM file of the kubelet API's certificate chain")
    kubelet_key: str = setting("", "PEM file of the kubelet API's private key")
    kubelet_clients_folder: Path = setting(
        KUBELET_CLIENTS_FOLDER,
        "folder of the files <pool>.crt; each is the CA (PEM) of the client certificate that the pool's API server "
        "shows to kubelets",
    )
    kubelet_client_names: tuple[str, ...] = setting(
        (KUBELET_CLIENT,), "common names that the client certificate of an API server may have; others are refused"
    )
    kubelet_requests_max: int = setting(
        64,
        "number of requests to the kubelet API that are answered at the same time; further requests are refused, and "
        "logs of a namespace of a pool of which as many are read as it leaves free",
    )
    kubelet_connections_max: int = constant(
        250,
        "number of connections to one port of the kubelet API at the same time, each of which may follow a log; "
        "fewer if the process may not open two files for each connection of each port",
        "it is above the default of kubelet_requests_max, and an API server keeps few idle connections",
    )
    kubelet_strangers_max: int = constant(
        50,
        "number of connections without a request of the pool's API server; for a further one the oldest connection "
        "of the address with most of them is closed",
        "the first request ends this state, so that few connections are in it at a time",
    )
    kubelet_stranger_seconds: float = constant(
        10.0,
        "seconds after which a connection without a whole request is closed, also one in the TLS handshake",
        "a first request takes far less time, on slow networks too",
    )
    kubelet_idle_seconds: float = constant(
        90.0,
        "seconds after which a connection is closed on which the API server sends no further request",
        "Go's clients use the same time, and an API server is one of them",
    )
    owner_logs_max: int = setting(
        16,
        "number of logs of one owner's pods that are read at the same time, of which a namespace of a pool has at most "
        "as many as it leaves free; further requests are refused",
    )
    log_seconds: float = constant(
        4 * 3600.0,
        "seconds after which the answer with a log ends, though the pod may continue to write",
        "kubelets end a silent log after the same four hours",
    )
    log_bytes_max: int = constant(
        1 << 30,
        "bytes after which the answer with a log ends, whatever the request asked for",
        "nobody reads a gigabyte; a reader that wants the rest asks again with sinceTime",
    )
    log_stalled_seconds: float = constant(
        60.0,
        "seconds that a client may take to read one piece of a log",
        "a client that reads nothing for a minute is gone, or will ask again",
    )
    heartbeat_seconds: int = constant(
        240,
        "least seconds between two heartbeats of a real node that its virtual node passes on; kubelets send one "
        "each 300 s",
        "it must be below the 300 s in which kubelets send a heartbeat, whatever else is set",
    )
    endpoint_seconds: float = constant(
        30.0,
        "least seconds between two writes of this bridge's address to a virtual node that names the address of "
        "another bridge",
        "one bridge writes once; the pause keeps two bridges that both claim the node from a fight",
    )
    lease_seconds: float = constant(
        10.0,
        "seconds between two renewals of the Leases of virtual nodes",
        "kubelets use the same interval; several renewals fit into lease_duration_seconds",
    )
    lease_duration_seconds: int = constant(
        40,
        "seconds after the last renewal of its Lease until the pool takes a virtual node for dead",
        "kubelets use the same duration",
    )
    leases_at_once: int = constant(
        8,
        "number of Leases of one cluster's nodes that are renewed at the same time",
        "renewals are small, and a cluster has lease_seconds for all of its nodes",
    )

    review_seconds: float = constant(
        2.0,
        "seconds between two looks at which nodes of a cluster its pool needs",
        "the time is short beside lending, and only nodes of clusters that lend are examined",
    )
    review_slice_nodes: int = constant(
        100,
        "number of nodes that are examined before other tasks of this instance run",
        "this bounds how long other tasks of the process wait",
    )
    resync_seconds: float = constant(
        300.0,
        "seconds until each node with a loan is read again, whether or not it changed",
        "watches tell of every change; the second read finds what a watch missed",
    )
    left_virtual_nodes_seconds: float = constant(
        10.0,
        "seconds between two looks for virtual nodes that were left in a pool which was given up and is back",
        "virtual nodes leave a pool that is back soon, and a look is one list",
    )
    forget_seconds: float = constant(
        3600.0,
        "seconds after the end of its last loan until a deleted node is removed from the log",
        "no reader lags so far behind",
    )
    nodes_at_once: int = constant(
        16,
        "number of nodes of one cluster that are worked on at the same time",
        "this bounds the load on one owner's API; a recall is let in before others",
    )
    nodes_at_once_overall: int = setting(
        64, "number of nodes of all clusters of this instance that are worked on at the same time"
    )
    nodes_beside_recalled: int = constant(
        2,
        "number of nodes for which nobody waits that are worked on at the same time as recalled nodes",
        "this leaves nearly all places to nodes for which somebody waits, and the others still make progress",
    )
    pods_at_once: int = constant(
        8,
        "number of pods of one node that are written at the same time",
        "together with nodes_at_once it bounds the concurrent writes in a cluster",
    )
    collection_least: int = constant(
        4,
        "least number of pods of a recalled node in one namespace that one request deletes together; fewer pods "
        "are deleted one by one",
        "for fewer pods, one request each is as fast",
    )
    collection_most: int = constant(
        100,
        "largest number of pods that one request deletes",
        "this bounds the time of one request at the API server; the next request deletes the rest",
    )
    leaving_seconds: float = constant(
        0.5,
        "seconds that the report of a pod that ended on a recalled node waits for the reports of the other pods there",
        "the pods of a node often end together; the report of the last pod does not wait",
    )
    steps_max: int = constant(
        20,
        "largest number of reads and writes for one node before others have their turn",
        "a node needs only a few; more of them are a fight, and the next turn reads the node anew",
    )
    retry_seconds: float = constant(
        1.0,
        "seconds until a node whose work did not finish is examined again; the pause doubles each time",
        "the pauses double, so that only the first pause is short",
    )
    retry_longest_seconds: float = constant(
        60.0,
        "longest pause in seconds until a node whose work did not finish is examined again",
        "the end of the trouble is noticed within a minute, and a look costs few requests",
    )
    unread_seconds: float = constant(
        2.0,
        "seconds until a node is examined again after a failed read in owner or pool, or after a write without an "
        "answer",
        "the API client makes its own pauses, which double; this pause follows them",
    )
    refused_seconds: float = constant(
        15.0,
        "seconds until a request that a cluster refused is tried again",
        "the end of a refusal is noticed soon, and a try costs one request",
    )
    missing_seconds: float = constant(
        5.0,
        "seconds until a pod is tried again whose ConfigMap or Secret was missing in the pool",
        "the person who creates the missing object sees the effect soon, and a try is one read",
    )
    refusal_pause_seconds: float = constant(
        10.0,
        "seconds after the refusal of a pod on a node until the next pod of the same kind is tried there; that pod "
        "waits and tells why",
        "a controller makes the next pod at once, and this pause keeps the two from an endless loop",
    )
    refused_tries_max: int = constant(
        4,
        "number of pods of one namespace of a pool that a node may refuse within refusal_pause_seconds, once it has "
        "refused one of them",
        "several workloads of a namespace get their try, and a namespace with very many of them loads no kubelet",
    )
    refused_size_seconds: float = constant(
        300.0,
        "seconds in which a node offers less to pods that its owner enlarges, after it refused such a pod",
        "the amount that owners add to pods seldom changes, and the bridge learns it again afterwards",
    )
    unreachable_first_seconds: float = constant(
        0.5,
        "first pause in seconds before an unreachable cluster is tried again; each further pause doubles",
        "the pauses double, so that only the first pause is short",
    )
    unreachable_longest_seconds: float = constant(
        10.0,
        "longest pause in seconds before an unreachable cluster is tried again",
        "the return of a cluster is noticed within this time, and a try costs one request",
    )
    request_timeout_seconds: float = setting(10.0, "longest time in seconds that one answer of a cluster may take")

    probe_seconds: float = constant(
        2.0,
        "seconds between the starts of two probes of a cluster; each successful probe lets idle time advance",
        "a probe is two small requests, and idle time is counted in minutes",
    )
    stream_silence_seconds: float = constant(
        90.0,
        "seconds without an event or a bookmark after which a watch no longer lets idle time advance",
        "API servers send a bookmark about every 60 s",
    )
    count_differs_seconds: float = constant(
        10.0,
        "seconds that the count of a probe may differ from our count before the objects are listed again",
        "a watch lags behind for less than this time; only a wrong list differs for longer",
    )

    copies_seconds: float = constant(
        15.0,
        "seconds between two comparisons of the copies of ConfigMaps and Secrets with the originals in the pool",
        "kubelets themselves take up to a minute to pass on a changed ConfigMap",
    )
    copy_unused_seconds: float = constant(
        120.0,
        "seconds until a copy, or a namespace of ours, is deleted after the last pod that refers to it",
        "pods come and go; a copy that must be made again costs more than one that waits",
    )
    copies_bytes_max: int = setting(
        64 << 20,
        "largest size in bytes of all copies of ConfigMaps and Secrets in one cluster, of which a namespace of a pool "
        "has at most as much as it leaves free; beyond it a pod waits, and a copy stays as it was",
    )
    copy_content_bytes_max: int = constant(
        1 << 20,
        "number of bytes of new copies for one pod that are kept in memory until all of them may be written; the "
        "others are read again",
        "it is the size of the largest ConfigMap or Secret, and most pods need less",
    )
    copies_at_once: int = constant(
        4,
        "number of copies of one cluster that are compared at the same time",
        "this bounds the load on the pool's API; pods that wait for a new copy do not wait for the comparisons",
    )

    gather_seconds: float = constant(
        0.1,
        "seconds that records are collected before they are published",
        "the delay is small beside the lending of a node, and a burst becomes few records",
    )
    log_away_seconds: float = constant(
        10.0,
        "seconds without a record accepted by the log after which nodes go back that wait for their record before "
        "they open",
        "a broker's restart takes a partition away for less time, and nodes stay away from their owner no longer",
    )
    records_batch: int = constant(
        500,
        "largest number of records published together",
        "this bounds one publish; the next one follows at once",
    )
    records_waiting_max: int = constant(
        10_000,
        "largest number of records of nodes' hourly use that wait to be published; the oldest are dropped",
        "this bounds memory, and the hourly use is for reports alone",
    )
    usage_seconds: float = constant(
        60.0,
        "seconds between two looks at the use of nodes",
        "reports tell the use by the hour",
    )
    metrics_answer_seconds: float = constant(
        5.0,
        "seconds that one answer of metrics.k8s.io may take",
        "it is far below usage_seconds, so that requests do not pile up",
    )

    def __post_init__(self) -> None:
        ClusterTurnSettings.__post_init__(self)
        for prefix in self.carried_prefixes:
            if not prefix.endswith("/") or prefix.count("/") > 1 or prefix in NEVER:
                raise ValueError(
                    f"carried_prefixes: {prefix!r}: expected the prefix of a key with its slash, and not Spillway's own"
                )
        if self.port_by_pool and not (self.kubelet_certificate and self.kubelet_key):
            raise ValueError("kubelet_ports: set without kubelet_certificate and kubelet_key: expected all three")

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
