"""Metrics of vk-bridge, in addition to those in spillway.metrics."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

OWNER_AND_CLASS: Final = ["cluster", "supply_class"]
CORES_LENT: Final = Gauge(
    "spillway_cores_lent",
    "CPU cores that virtual nodes offer now (the capacity that lending makes available)",
    OWNER_AND_CLASS,
)
CORE_SECONDS_LENT: Final = Counter(
    "spillway_core_seconds_lent",
    "CPU cores that virtual nodes offered, multiplied by the seconds they offered them",
    OWNER_AND_CLASS,
)
NODES_ON_LOAN: Final = Gauge(
    "spillway_nodes_on_loan", "Nodes by the state of their register, the taint of the loan", ["cluster", "state"]
)
RETURNS: Final = Counter("spillway_returns", "Loans that ended, by cause", [*OWNER_AND_CLASS, "cause"])
RETURN_SECONDS: Final = Histogram(
    "spillway_return_seconds",
    "Seconds from the recall of a node to its return",
    OWNER_AND_CLASS,
    buckets=(1, 2.5, 5, 7.5, 10, 15, 20, 30, 35, 40, 60, 120, 300, 900),
)
PODS_EVICTED: Final = Counter("spillway_pods_evicted", "Pool pods that recalls evicted", OWNER_AND_CLASS)
PODS_FORCED: Final = Counter(
    "spillway_pods_forced",
    "Real pods that ran longer than their grace period and were deleted by force",
    OWNER_AND_CLASS,
)
LOST_CORE_SECONDS: Final = Counter(
    "spillway_lost_core_seconds",
    "Run time in seconds multiplied by the CPU cores of the pool pods that recalls evicted",
    OWNER_AND_CLASS,
)
STEPS: Final = Counter(
    "spillway_lending_steps", "Writes to loans and their pods, by kind and outcome", ["step", "outcome"]
)
NODES_WAITING: Final = Gauge(
    "spillway_lending_nodes_waiting", "Nodes that wait for the bridge to work on them", ["cluster"]
)
KUBELET_REQUESTS: Final = Counter(
    "spillway_kubelet_requests",
    "Requests to the kubelet API of virtual nodes, by kind and HTTP status",
    ["kind", "status"],
)
