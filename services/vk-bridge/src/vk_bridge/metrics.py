"""Metrics of vk-bridge, in addition to those in spillway.metrics."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

OWNER_AND_CLASS: Final = ["cluster", "supply_class"]
CORES_LENT: Final = Gauge(
    "spillway_cores_lent", "Cores that virtual nodes offer now: what was recovered", OWNER_AND_CLASS
)
CORE_SECONDS_LENT: Final = Counter("spillway_core_seconds_lent", "Cores offered × time", OWNER_AND_CLASS)
NODES_ON_LOAN: Final = Gauge("spillway_nodes_on_loan", "Nodes by the state of their register", ["cluster", "state"])
RETURNS: Final = Counter("spillway_returns", "Loans that ended, by cause", [*OWNER_AND_CLASS, "cause"])
RETURN_SECONDS: Final = Histogram(
    "spillway_return_seconds",
    "From a recall to the node's return",
    OWNER_AND_CLASS,
    buckets=(1, 2.5, 5, 7.5, 10, 15, 20, 30, 35, 40, 60, 120, 300, 900),
)
PODS_EVICTED: Final = Counter("spillway_pods_evicted", "Pool pods that recalls told to go", OWNER_AND_CLASS)
PODS_FORCED: Final = Counter("spillway_pods_forced", "Real pods that outlived their grace", OWNER_AND_CLASS)
LOST_CORE_SECONDS: Final = Counter(
    "spillway_lost_core_seconds", "Run time × cores of pool pods that recalls told to go", OWNER_AND_CLASS
)
STEPS: Final = Counter(
    "spillway_lending_steps", "Writes of loans and their pods, by kind and outcome", ["step", "outcome"]
)
NODES_WAITING: Final = Gauge("spillway_lending_nodes_waiting", "Nodes that wait to be worked on", ["cluster"])
KUBELET_REQUESTS: Final = Counter(
    "spillway_kubelet_requests",
    "Requests to the kubelet API of virtual nodes, by kind and HTTP status",
    ["kind", "status"],
)
