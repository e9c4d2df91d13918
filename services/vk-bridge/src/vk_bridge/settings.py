"""What can be chosen about a vk-bridge; each field is the variable SPILLWAY_VK_BRIDGE_<NAME>."""

from dataclasses import dataclass

from spillway.cluster_turns import ClusterTurnSettings
from spillway.settings import setting


@dataclass(frozen=True, slots=True)
class Settings(ClusterTurnSettings):
    in_flight_seconds: float = setting(
        5.0, "the longest that a scheduler or kubelet of an owner acts on a node as it was before, seconds"
    )
    overdue_seconds: float = setting(
        1.0, "seconds after the end of its grace until a real pod that is still there is deleted by force"
    )
    kubelet_address: str = setting("127.0.0.1", "address that virtual nodes show as their own")
    kubelet_port: int = setting(0, "port that virtual nodes show as their kubelet's; 0: they have none", least=0)
    lease_seconds: float = setting(10.0, "seconds between renewals of the Leases of virtual nodes")
    lease_duration_seconds: int = setting(
        40, "seconds after its last renewal until the pool takes a virtual node for dead"
    )
    leases_at_once: int = setting(8, "Leases of one cluster's nodes that are renewed at the same time")

    review_seconds: float = setting(2.0, "seconds between looks at which nodes of a cluster are wanted for its pool")
    resync_seconds: float = setting(
        300.0, "seconds until each node with a loan is read again, whether or not it changed"
    )
    forget_seconds: float = setting(
        3600.0, "seconds after the end of its last loan until the log forgets a node that is gone"
    )
    nodes_at_once: int = setting(16, "nodes of one cluster that are worked on at the same time")
    nodes_at_once_overall: int = setting(64, "the same for all clusters of this instance")
    pods_at_once: int = setting(8, "pods of one node that are written at the same time")
    steps_max: int = setting(20, "readings and writes in one go at one node")
    retry_seconds: float = setting(1.0, "seconds until a node is looked at again when a go did not come to rest")
    unread_seconds: float = setting(
        2.0, "seconds until a node is looked at again of which one side could not be read, or a write had no answer"
    )
    refused_seconds: float = setting(15.0, "seconds until what a cluster refused is tried again")
    missing_seconds: float = setting(
        5.0, "seconds until a pod is tried again whose ConfigMap or Secret was missing in the pool"
    )
    refusal_pause_seconds: float = setting(
        10.0, "seconds after a pod was refused on a node until the next one fails there; it waits, and says why"
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
    copies_at_once: int = setting(4, "copies of one cluster that are compared at the same time")

    gather_seconds: float = setting(0.1, "seconds that records are gathered before they are published")
    records_batch: int = setting(500, "records published at once")
    records_waiting_max: int = setting(10_000, "hours of nodes' use that wait to be published; the oldest are dropped")
    usage_seconds: float = setting(60.0, "seconds between looks at what nodes are used for")
