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


def exposition() -> bytes:
    """Returns all metrics in Prometheus' text form."""
    return generate_latest(REGISTRY)


# ── Every process ───────────────────────────────────────────────────────────────────────────────────────────────────

BUILD: Final = Gauge("spillway_build_info", "1; version: the release and a digest of its messages", ["version"])
READY: Final = Gauge("spillway_ready", "1 when this part of the process is ready, else 0", ["part"])
TURNS_TAKEN: Final = Counter(
    "spillway_turns_taken",
    "Turns (a cluster's, or the active one's of a standby service) that this instance took",
    ["service"],
)
TURNS_LOST: Final = Counter("spillway_turns_lost", "Turns that went to another instance or were given up", ["service"])
TURNS_HELD: Final = Gauge("spillway_turns_held", "Clusters' turns that this instance holds now", ["service"])
WORK_FAILED: Final = Counter(
    "spillway_work_failed",
    "Unexpected errors that cost one cluster, workload, template, node, pool, pod or copy alone; it is tried again",
    ["service", "what"],
)

# ── The bus ─────────────────────────────────────────────────────────────────────────────────────────────────────────

BUS_CONNECTED: Final = Gauge("spillway_bus_connected", "1 while the log answers, 0 while it does not")
EVENTS_PUBLISHED: Final = Counter("spillway_events_published", "Records acknowledged by the log", ["topic"])
EVENTS_APPLIED: Final = Counter("spillway_events_applied", "Records read and applied to a core", ["topic"])
DEAD_LETTERS: Final = Counter(
    "spillway_dead_letters", "Records that could not be read, by the topic they were on", ["topic"]
)
DEAD_LETTERS_LEFT_OUT: Final = Counter(
    "spillway_dead_letters_left_out",
    "Records of topics that anyone may write that could not be read and are in no dead letter: their writer has one",
    ["topic"],
)
RECORDS_UNWRITABLE: Final = Counter(
    "spillway_records_unwritable",
    "Records of one cluster that were larger than the log takes, and were said without their long part, or not at all",
    ["topic"],
)
RECORDS_MISSED: Final = Counter(
    "spillway_records_missed",
    "Offsets that a reader skipped, since retention had deleted what stood there before it was read",
    ["topic"],
)
PUBLISH_SECONDS: Final = Histogram(
    "spillway_publish_seconds", "From publish to the log's acknowledgement", buckets=_FAST
)
TOPIC_LAG: Final = ToldGauge(
    "spillway_topic_lag_records",
    "Records of a topic that were there when the brokers answered last and that this process has yet to read",
    "topic",
)
TOPIC_AGE: Final = ToldGauge(
    "spillway_topic_age_seconds",
    "Since the newest record of a topic that this process read was written, by the writer's clock",
    "topic",
)

# ── snapshot ────────────────────────────────────────────────────────────────────────────────────────────────────────

CAPACITY_RECORDS: Final = Counter("spillway_capacity_records", "Capacity records published", ["kind"])
CAPACITY_RECORDS_REPORTED: Final = CAPACITY_RECORDS.labels("reported")
CAPACITY_RECORDS_CHANGED: Final = CAPACITY_RECORDS.labels("changed")
CAPACITY_RECORDS_HEARTBEAT: Final = CAPACITY_RECORDS.labels("heartbeat")
CAPACITY_BYTES: Final = Histogram(
    "spillway_capacity_bytes", "Size of a capacity record's columns", buckets=[4.0**power for power in range(4, 12)]
)
LIST_SECONDS: Final = Histogram(
    "spillway_list_seconds", "One whole list of a member's resource", ["resource"], buckets=_SLOW
)
WATCH_RESTARTS: Final = Counter(
    "spillway_watch_restarts", "Watches of members that had to be started again, by why", ["resource", "reason"]
)
PROBE_AGE_SECONDS: Final = Gauge(
    "spillway_probe_age_seconds", "Age of the last answer that proves a cluster's watches current", ["cluster"]
)
CLUSTER_UNREACHABLE: Final = Counter("spillway_cluster_unreachable", "Failed calls to members, by why", ["reason"])
NODES: Final = Gauge("spillway_nodes", "Nodes followed in a cluster", ["cluster"])
PODS_UNSCHEDULABLE: Final = Gauge(
    "spillway_pods_unschedulable", "Pods that a member's scheduler cannot place", ["cluster"]
)

# ── planner ─────────────────────────────────────────────────────────────────────────────────────────────────────────

DECISIONS: Final = Counter(
    "spillway_decisions", "Placements decided, by cause (apply, scale, take-back, capacity …)", ["cause"]
)
DECISIONS_FAILED: Final = Counter(
    "spillway_decisions_failed",
    "Decisions that an error in the planner or the descheduler itself stopped: that workload, cluster or step waits",
)
DECISION_SECONDS: Final = Histogram(
    "spillway_decision_seconds", "Time of the core for one decision", buckets=(0.0001, 0.00025, *_FAST)
)
DECISION_WAIT_SECONDS: Final = Histogram(
    "spillway_decision_wait_seconds", "From a request's place in the queue to its decision", buckets=_FAST
)
TRANSACTION_SECONDS: Final = Histogram(
    "spillway_transaction_seconds", "One fenced transaction, from begin to commit", buckets=_FAST
)
TRANSACTION_EVENTS: Final = Histogram("spillway_transaction_events", "Records in one transaction", buckets=_COUNTS)
TRANSACTION_REQUESTS: Final = Histogram(
    "spillway_transaction_requests", "Requests whose effects one transaction wrote", buckets=_COUNTS
)
TRANSACTIONS_UNKNOWN: Final = Counter(
    "spillway_transactions_unknown", "Transactions whose outcome is not known; each one ends the turn"
)
WORKLOADS: Final = Gauge("spillway_workloads", "Workloads known to the active planner")
CAPACITY_AGE: Final = ToldGauge(
    "spillway_capacity_age_seconds",
    "How old what this planner knows of a cluster's capacity is; infinite before anything was heard",
    "cluster",
)
CLUSTERS: Final = Gauge("spillway_clusters", "Clusters of the fleet, by state (fresh, stale)", ["state"])
REPLICAS_UNPLACED: Final = Gauge("spillway_replicas_unplaced", "Replicas, of all workloads, that wait for room")
ROLLOUTS_WAITING: Final = Gauge(
    "spillway_rollouts_waiting", "Workloads of which some clusters still wait for their turn at the newest template"
)
TAKE_BACKS: Final = Counter(
    "spillway_take_backs", "Replicas taken back because they could not be scheduled", ["cluster"]
)
BRAKES: Final = Gauge("spillway_brakes", "Scopes that are frozen, by kind (fleet, cluster, workload)", ["kind"])
CONFIRMATIONS_WAITING: Final = Gauge("spillway_confirmations_waiting", "Causes of moves that wait for a confirmation")
REPLICAS_MOVED: Final = Counter("spillway_replicas_moved", "Replicas moved from one cluster to others", ["cause"])
REPLICAS_HELD_BACK: Final = Gauge(
    "spillway_replicas_held_back", "Replicas that would move, by what holds them (brake, confirmation, budget)", ["by"]
)
SHAPES_AWAITED: Final = Counter(
    "spillway_shapes_awaited",
    "Templates never seen before that were planned after clusters said what they make of them, or after they had not",
    ["outcome"],
)
PLANNER_ACTIVE: Final = Gauge("spillway_planner_active", "1 while this instance is the active planner")

# ── hpa ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

HPA_ACTIVE: Final = Gauge("spillway_hpa_active", "1 while this instance is the active hpa")
INPUTS_READ: Final = Counter(
    "spillway_inputs_read",
    "Questions to queues and Prometheus, by kind and whether the value is known",
    ["kind", "outcome"],
)
SCALE_POLICIES: Final = Gauge("spillway_scale_policies", "Workloads that have a scaling policy")
SCALE_DECISIONS: Final = Counter("spillway_scale_decisions", "Sizes decided, by the policy's kind", ["kind"])
SCALE_DELAY_SECONDS: Final = Histogram(
    "spillway_scale_delay_seconds",
    "From the instant that a size was decided for to the log",
    buckets=_FAST,
)
SCALE_FAILED: Final = Counter(
    "spillway_scale_failed", "Decisions that an error in hpa itself stopped: that workload keeps its size"
)
SCALE_INPUTS_DROPPED: Final = Counter(
    "spillway_scale_inputs_dropped",
    "Input records without effect, by why (known, unknown workload, future, error, too large: all of one workload)",
    ["why"],
)

# ── descheduler ─────────────────────────────────────────────────────────────────────────────────────────────────────

DESCHEDULER_ACTIVE: Final = Gauge("spillway_descheduler_active", "1 while this instance is the active descheduler")
NODES_LENT: Final = Gauge("spillway_nodes_lent", "Nodes that are lent, those on their way back among them")
RECALLS: Final = Counter(
    "spillway_recalls", "Lent nodes that were recalled, by cause (Need, Asked)", ["cluster", "supply_class", "cause"]
)
RECALLS_STANDING: Final = Gauge("spillway_recalls_standing", "Recalled nodes that are not back yet")
RECALLS_HELD: Final = Gauge("spillway_recalls_held", "Nodes that pods wait for and their cluster's budget holds back")
RECALL_HELD_SECONDS: Final = Histogram(
    "spillway_recall_held_seconds", "For how long a budget held a recalled node back", buckets=_SLOW
)
RECALL_LOOK_SECONDS: Final = Histogram(
    "spillway_recall_look_seconds", "One look at what changed: which lent nodes go back, for whom", buckets=_FAST
)

# ── gRPC ────────────────────────────────────────────────────────────────────────────────────────────────────────────

REQUESTS: Final = Counter("spillway_requests", "gRPC calls answered, by verb and status", ["verb", "code"])
REQUESTS_OK: Final = {verb: REQUESTS.labels(verb, "OK") for verb in VERBS}
REQUEST_SECONDS: Final = Histogram(
    "spillway_request_seconds",
    "From a request's arrival to its answer (a watch: its whole life)",
    ["verb"],
    buckets=_FAST,
)
REQUEST_SECONDS_BY_VERB: Final = {verb: REQUEST_SECONDS.labels(verb) for verb in VERBS}
REQUESTS_RUNNING: Final = Gauge("spillway_requests_running", "gRPC calls being answered now, watches included")
REQUESTS_DENIED: Final = Counter(
    "spillway_requests_denied",
    "Calls not let in, by status: UNAUTHENTICATED, PERMISSION_DENIED (verb, namespace), RESOURCE_EXHAUSTED (rate), "
    "INVALID_ARGUMENT (size, form); concurrency: too many at once",
    ["reason"],
)
CONNECTIONS: Final = Gauge(
    "spillway_connections",
    "gRPC connections, by whose they are: known; stranger: no known caller has called on it yet",
    ["whose"],
)
CONNECTIONS_REFUSED: Final = Counter(
    "spillway_connections_refused",
    "gRPC connections closed or refused, by reason: connections, address, strangers (as many as may be), time, bytes "
    "(nobody known called within them), descriptors (no file descriptor is left), server (none behind)",
    ["reason"],
)
HTTP_CONNECTIONS_REFUSED: Final = Counter(
    "spillway_http_connections_refused",
    "Connections of an HTTP port (health, kubelet) closed or refused, by reason: connections, strangers (as many as "
    "may be), time (nobody known asked within it), descriptors (no file descriptor is left)",
    ["port", "reason"],
)
CALLERS_FILE_BAD: Final = Gauge(
    "spillway_callers_file_bad", "1 while the callers file cannot be used, and those of before stay in force"
)

# ── propagator ──────────────────────────────────────────────────────────────────────────────────────────────────────

OPERATIONS: Final = Counter(
    "spillway_operations",
    "What was done to members: verb (create, apply, delete, read), outcome (done, refused, conflict, unreachable …)",
    ["verb", "outcome"],
)
OPERATION_SECONDS: Final = Histogram("spillway_operation_seconds", "One operation on a member", ["verb"], buckets=_FAST)
OBJECTS_WAITING: Final = Gauge(
    "spillway_objects_waiting", "Objects whose placement is not yet carried out", ["cluster"]
)
OBJECTS_HELD: Final = Gauge(
    "spillway_objects_held", "Objects left alone: not ours, contested, dependency missing, refused", ["state"]
)
PLACEMENT_SECONDS: Final = Histogram(
    "spillway_placement_seconds", "From PlacementDecided to the member's object being so", buckets=_SLOW
)

# ── The store ───────────────────────────────────────────────────────────────────────────────────────────────────────

STORE_SECONDS: Final = Histogram(
    "spillway_store_seconds", "One call to the store of projections", ["call"], buckets=_FAST
)
STORE_FAILURES: Final = Counter("spillway_store_failures", "Calls to the store that failed or came too late", ["call"])
