"""All metrics of Spillway, with their meaning. Labels have few values: clusters, verbs, codes, topics.

In hot paths use a pre-bound child (0.7 µs): CAPACITY_RECORDS_CHANGED.inc(); .labels(…) costs 2 µs more. Times are in
seconds, sizes are bytes or counts as named. prometheus_client adds `_total` to counters.
"""

from typing import Final

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, generate_latest

from spillway.told_metrics import ToldGauge
from spillway.verb_names import VERBS

_FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_SLOW = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


def exposition_text() -> bytes:
    """Returns all metrics in Prometheus' text form."""
    return generate_latest(REGISTRY)


# ── Every process ───────────────────────────────────────────────────────────────────────────────────────────────────

BUILD: Final = Gauge(
    "spillway_build_info", "Always 1; the label version is the release and a digest of the message formats", ["version"]
)
READY: Final = Gauge("spillway_ready", "1 when this part of the process is ready, else 0", ["part"])
TURNS_TAKEN: Final = Counter(
    "spillway_turns_taken",
    "Turns (of a cluster, or of the active instance of a standby service) that this instance took",
    ["service"],
)
TURNS_LOST: Final = Counter(
    "spillway_turns_lost", "Turns that this instance lost to another instance or gave up", ["service"]
)
TURNS_HELD: Final = Gauge("spillway_turns_held", "Turns of clusters that this instance holds now", ["service"])
WORK_FAILED: Final = Counter(
    "spillway_work_failed",
    "Unexpected errors that stopped the work on one cluster, workload, template, node, pool, pod or copy; the "
    "service tries that work again",
    ["service", "what"],
)

# ── The bus ─────────────────────────────────────────────────────────────────────────────────────────────────────────

BUS_CONNECTED: Final = Gauge("spillway_bus_connected", "1 while the log answers, 0 while it does not")
EVENTS_PUBLISHED: Final = Counter("spillway_events_published", "Records that the log acknowledged", ["topic"])
EVENTS_APPLIED: Final = Counter(
    "spillway_events_applied", "Records that this process read and applied to its state", ["topic"]
)
DEAD_LETTERS: Final = Counter("spillway_dead_letters", "Records that this process could not read, by topic", ["topic"])
DEAD_LETTERS_LEFT_OUT: Final = Counter(
    "spillway_dead_letters_left_out",
    "Unreadable records of topics that anyone may write for which no dead letter was written, because their "
    "writer already has one",
    ["topic"],
)
RECORDS_UNWRITABLE: Final = Counter(
    "spillway_records_unwritable",
    "Records of one cluster that were too large for the log; they were published without their long part, or "
    "not at all",
    ["topic"],
)
RECORDS_MISSED: Final = Counter(
    "spillway_records_missed",
    "Offsets that a reader skipped, because retention deleted the records before they were read",
    ["topic"],
)
PUBLISH_SECONDS: Final = Histogram(
    "spillway_publish_seconds", "Seconds from a publish to the log's acknowledgement", buckets=_FAST
)
TOPIC_LAG: Final = ToldGauge(
    "spillway_topic_lag_records",
    "Records of a topic that this process has yet to read, up to the end offsets that the brokers told last",
    "topic",
)
TOPIC_AGE: Final = ToldGauge(
    "spillway_topic_age_seconds",
    "Seconds since the newest record that this process read from a topic was written, by the writer's clock",
    "topic",
)

# ── snapshot ────────────────────────────────────────────────────────────────────────────────────────────────────────

CAPACITY_RECORDS: Final = Counter("spillway_capacity_records", "Capacity records that were published", ["kind"])
CAPACITY_RECORDS_REPORTED: Final = CAPACITY_RECORDS.labels("reported")
CAPACITY_RECORDS_CHANGED: Final = CAPACITY_RECORDS.labels("changed")
CAPACITY_RECORDS_HEARTBEAT: Final = CAPACITY_RECORDS.labels("heartbeat")
CAPACITY_BYTES: Final = Histogram(
    "spillway_capacity_bytes",
    "Size in bytes of a capacity record's columns",
    buckets=[4.0**power for power in range(4, 12)],
)
LIST_SECONDS: Final = Histogram(
    "spillway_list_seconds", "Seconds that one complete list of a cluster's resource took", ["resource"], buckets=_SLOW
)
WATCH_RESTARTS: Final = Counter(
    "spillway_watch_restarts", "Watches of clusters that were started again, by reason", ["resource", "reason"]
)
PROBE_AGE_SECONDS: Final = Gauge(
    "spillway_probe_age_seconds",
    "Age in seconds of the last answer that proves that a cluster's watches are current",
    ["cluster"],
)
CLUSTER_UNREACHABLE: Final = Counter(
    "spillway_cluster_unreachable", "Calls to clusters that failed, by reason", ["reason"]
)
NODES: Final = Gauge("spillway_nodes", "Nodes of a cluster that snapshot follows", ["cluster"])
PODS_UNSCHEDULABLE: Final = Gauge(
    "spillway_pods_unschedulable", "Pods that a cluster's scheduler cannot place", ["cluster"]
)

# ── planner ─────────────────────────────────────────────────────────────────────────────────────────────────────────

DECISIONS: Final = Counter(
    "spillway_decisions",
    "Placements that the planner decided, by cause (apply, scale, take-back, capacity …)",
    ["cause"],
)
DECISIONS_FAILED: Final = Counter(
    "spillway_decisions_failed",
    "Decisions that an error in the planner or the descheduler itself stopped; the workload, cluster or step waits",
)
DECISION_SECONDS: Final = Histogram(
    "spillway_decision_seconds", "Seconds that the core needed for one decision", buckets=(0.0001, 0.00025, *_FAST)
)
DECISION_WAIT_SECONDS: Final = Histogram(
    "spillway_decision_wait_seconds", "Seconds that a request waited in the queue for its decision", buckets=_FAST
)
TRANSACTION_SECONDS: Final = Histogram(
    "spillway_transaction_seconds", "Seconds that one fenced transaction took, from begin to commit", buckets=_FAST
)
TRANSACTION_EVENTS: Final = Histogram(
    "spillway_transaction_events", "Number of records in one transaction", buckets=_COUNTS
)
TRANSACTION_REQUESTS: Final = Histogram(
    "spillway_transaction_requests", "Number of requests whose effects one transaction wrote", buckets=_COUNTS
)
TRANSACTIONS_UNKNOWN: Final = Counter(
    "spillway_transactions_unknown", "Transactions whose outcome is unknown; each one ends the turn"
)
WORKLOADS: Final = Gauge("spillway_workloads", "Workloads that the active planner knows")
CAPACITY_AGE: Final = ToldGauge(
    "spillway_capacity_age_seconds",
    "Age in seconds of the capacity that this planner knows of a cluster; infinite before the first record",
    "cluster",
)
CLUSTERS: Final = Gauge("spillway_clusters", "Clusters of the fleet, by state (fresh, stale)", ["state"])
REPLICAS_UNPLACED: Final = Gauge("spillway_replicas_unplaced", "Replicas of all workloads that wait for room")
ROLLOUTS_WAITING: Final = Gauge(
    "spillway_rollouts_waiting", "Workloads with clusters that still wait for their turn to get the newest template"
)
TAKE_BACKS: Final = Counter(
    "spillway_take_backs", "Replicas that the planner took back because a cluster could not schedule them", ["cluster"]
)
BRAKES: Final = Gauge("spillway_brakes", "Scopes that are frozen, by kind (fleet, cluster, workload)", ["kind"])
CONFIRMATIONS_WAITING: Final = Gauge(
    "spillway_confirmations_waiting", "Causes of moves that wait for a person's confirmation"
)
REPLICAS_MOVED: Final = Counter(
    "spillway_replicas_moved", "Replicas that were moved from one cluster to others, by cause", ["cause"]
)
REPLICAS_HELD_BACK: Final = Gauge(
    "spillway_replicas_held_back",
    "Replicas that would move but are held back, by what holds them (brake, confirmation, budget)",
    ["by"],
)
SHAPES_AWAITED: Final = Counter(
    "spillway_shapes_awaited",
    "New templates for whose admitted shapes the planner waited before it planned them, by whether the "
    "clusters answered",
    ["outcome"],
)
PLANNER_ACTIVE: Final = Gauge("spillway_planner_active", "1 while this instance is the active planner")

# ── hpa ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

HPA_ACTIVE: Final = Gauge("spillway_hpa_active", "1 while this instance is the active hpa")
INPUTS_READ: Final = Counter(
    "spillway_inputs_read",
    "Requests to queues and Prometheus for values, by kind and by whether the value is known",
    ["kind", "outcome"],
)
SCALE_POLICIES: Final = Gauge("spillway_scale_policies", "Workloads that have a scale policy")
SCALE_DECISIONS: Final = Counter("spillway_scale_decisions", "Sizes that hpa decided, by the policy's kind", ["kind"])
SCALE_DELAY_SECONDS: Final = Histogram(
    "spillway_scale_delay_seconds",
    "Seconds from the instant for which a size was decided to its record in the log",
    buckets=_FAST,
)
SCALE_FAILED: Final = Counter(
    "spillway_scale_failed", "Decisions that an error in hpa itself stopped; the workload keeps its size"
)
SCALE_INPUTS_DROPPED: Final = Counter(
    "spillway_scale_inputs_dropped",
    "Input records without effect, by reason (known, unknown, unnamed, future, error, too large: all of one workload, "
    "too long: its names, too many: more than a standby keeps, or than may wait of one namespace)",
    ["why"],
)

# ── descheduler ─────────────────────────────────────────────────────────────────────────────────────────────────────

DESCHEDULER_ACTIVE: Final = Gauge("spillway_descheduler_active", "1 while this instance is the active descheduler")
NODES_LENT: Final = Gauge("spillway_nodes_lent", "Nodes that are lent, including those on their way back")
RECALLS: Final = Counter(
    "spillway_recalls", "Lent nodes that were recalled, by cause (Need, Asked)", ["cluster", "supply_class", "cause"]
)
RECALLS_STANDING: Final = Gauge("spillway_recalls_standing", "Recalled nodes that have not come back yet")
RECALLS_HELD: Final = Gauge(
    "spillway_recalls_held", "Nodes for which pods wait and whose recall is held back by their cluster's budget"
)
RECALL_HELD_SECONDS: Final = Histogram(
    "spillway_recall_held_seconds", "Seconds that a budget held back the recall of a node", buckets=_SLOW
)
RECALL_LOOK_SECONDS: Final = Histogram(
    "spillway_recall_look_seconds",
    "Seconds of one computation, after a change, of the lent nodes that go back and of the pods they go back for",
    buckets=_FAST,
)

# ── gRPC ────────────────────────────────────────────────────────────────────────────────────────────────────────────

REQUESTS: Final = Counter("spillway_requests", "gRPC calls that were answered, by verb and status", ["verb", "code"])
REQUESTS_OK: Final = {verb: REQUESTS.labels(verb, "OK") for verb in VERBS}
REQUEST_SECONDS: Final = Histogram(
    "spillway_request_seconds",
    "Seconds from a request's arrival to its answer; for a watch: its whole life",
    ["verb"],
    buckets=_FAST,
)
REQUEST_SECONDS_BY_VERB: Final = {verb: REQUEST_SECONDS.labels(verb) for verb in VERBS}
REQUESTS_RUNNING: Final = Gauge(
    "spillway_requests_running", "gRPC calls that are being answered now, including watches"
)
REQUESTS_DENIED: Final = Counter(
    "spillway_requests_denied",
    "Calls that were refused, by reason: UNAUTHENTICATED, PERMISSION_DENIED (verb, namespace), "
    "RESOURCE_EXHAUSTED (rate), INVALID_ARGUMENT (size, form), or concurrency (too many calls at the same "
    "time)",
    ["reason"],
)
CONNECTIONS: Final = Gauge(
    "spillway_connections",
    "gRPC connections by kind: known (a known caller has called on it), stranger (no known caller has called "
    "on it yet)",
    ["whose"],
)
CONNECTIONS_REFUSED: Final = Counter(
    "spillway_connections_refused",
    "gRPC connections that were closed or refused, by reason: connections, address, caller, strangers (their number "
    "is at its bound), time, bytes (no known caller called within them), unread (the client takes nothing of what was "
    "sent), descriptors (no file descriptor is left), server (no server is behind the port)",
    ["reason"],
)
HTTP_CONNECTIONS_REFUSED: Final = Counter(
    "spillway_http_connections_refused",
    "Connections of an HTTP port (health, kubelet) that were closed or refused, by reason: connections, "
    "strangers (their number is at its bound), time (no known client sent a request within it), descriptors "
    "(no file descriptor is left)",
    ["port", "reason"],
)
CALLERS_FILE_BAD: Final = Gauge(
    "spillway_callers_file_bad", "1 while the callers file cannot be used; the callers read before it stay in force"
)

# ── propagator ──────────────────────────────────────────────────────────────────────────────────────────────────────

OPERATIONS: Final = Counter(
    "spillway_operations",
    "Operations on clusters by verb (create, apply, delete, read) and outcome (done, refused, conflict, unreachable …)",
    ["verb", "outcome"],
)
OPERATION_SECONDS: Final = Histogram(
    "spillway_operation_seconds", "Seconds that one operation on a cluster took", ["verb"], buckets=_FAST
)
OBJECTS_WAITING: Final = Gauge(
    "spillway_objects_waiting", "Objects whose placement is not carried out yet", ["cluster"]
)
OBJECTS_HELD: Final = Gauge(
    "spillway_objects_held",
    "Objects that the propagator leaves alone, by state: not ours, contested, dependency missing, refused",
    ["state"],
)
PLACEMENT_SECONDS: Final = Histogram(
    "spillway_placement_seconds",
    "Seconds from PlacementDecided until the cluster's object has that state",
    buckets=_SLOW,
)

# ── The store ───────────────────────────────────────────────────────────────────────────────────────────────────────

STORE_SECONDS: Final = Histogram(
    "spillway_store_seconds", "Seconds that one call to the store of projections took", ["call"], buckets=_FAST
)
STORE_FAILURES: Final = Counter(
    "spillway_store_failures", "Calls to the store that failed or were answered too late", ["call"]
)
