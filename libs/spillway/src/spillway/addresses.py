"""The topic, the key and the partitioning name of each event.

Each topic has one writer, except the open topics, which anybody may write, and dead-letters, which each reader writes.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from spillway.events import (
    AdoptionAsked,
    BrakeReleased,
    BrakeSet,
    CapacityChanged,
    CapacityNeeded,
    CapacityReported,
    ClusterJoined,
    ClusterLeft,
    ConfirmationAsked,
    ConfirmationGiven,
    DeadLettered,
    DecisionRecorded,
    DependencyDeclared,
    Event,
    FleetFormed,
    PlacementDecided,
    PodsScheduled,
    PodsUnschedulable,
    ShapeAdmitted,
    ShapeAsked,
    TurnTaken,
    WorkloadDeclared,
    WorkloadFound,
    WorkloadObserved,
)
from spillway.events_lending import (
    LendingDeclared,
    NodeLent,
    NodeRecalled,
    NodeReturned,
    NodeUsed,
    RecallSettled,
)
from spillway.events_scaling import (
    BacklogObserved,
    LoadObserved,
    PodsObserved,
    ScaleDecided,
    ScalePolicyDeclared,
    ScaleStateChanged,
)

SCOPE_CLUSTER: Final = "cluster"
SCOPE_WORKLOAD: Final = "workload"
SCOPE_ONE: Final = "one"

ANYONE: Final = "anyone"
EVERY_READER: Final = "every reader"

HOUR_MS: Final = 3600 * 1000
DAY_MS: Final = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic. scope: decides the number of partitions, and which name chooses the partition of a record.

    retention_ms: 0 keeps the last record of each key (compacted).
    lag_ms: how long a record stays readable after a newer one of its key (min.compaction.lag).
    committed: only its emitter writes it, in fenced transactions.
    """

    name: str
    scope: str
    retention_ms: int
    lag_ms: int
    committed: bool
    emitter: str
    readers: tuple[str, ...]

    @property
    def is_compacted(self) -> bool:
        return self.retention_ms == 0

    @property
    def can_anyone_write(self) -> bool:
        """Returns whether anybody may write records to this topic, not only our services."""
        return ANYONE in self.emitters

    @property
    def emitters(self) -> tuple[str, ...]:
        """Returns the writers one by one: services, or ANYONE, or EVERY_READER."""
        return tuple(re.split(r", | and ", self.emitter))


def _make_topic(short: str, scope: str, kept: int, emitter: str, readers: str, committed: bool = False) -> Topic:
    lag_ms = 0 if kept else (DAY_MS if "planner" in readers.split() else 600_000)
    return Topic(f"spillway.{short}.v1", scope, kept, lag_ms, committed, emitter, tuple(readers.split()))


FLEET = _make_topic("fleet", SCOPE_ONE, 0, "topics", "snapshot planner propagator hpa descheduler vk-bridge")
TURNS_PLANNER = _make_topic("turns.planner", SCOPE_ONE, 0, "planner", "planner", committed=True)
CLUSTERS = _make_topic(
    "clusters", SCOPE_CLUSTER, 0, "planner", "snapshot planner propagator descheduler vk-bridge", committed=True
)
CAPACITY = _make_topic("capacity", SCOPE_CLUSTER, 0, "snapshot", "planner snapshot descheduler")
CAPACITY_CHANGES = _make_topic("capacity-changes", SCOPE_CLUSTER, DAY_MS, "snapshot", "planner snapshot descheduler")
PENDING = _make_topic("pending", SCOPE_CLUSTER, 0, "snapshot", "planner snapshot descheduler vk-bridge")
WORKLOADS = _make_topic(
    "workloads", SCOPE_WORKLOAD, 0, "planner", "planner propagator hpa descheduler vk-bridge", committed=True
)
DEPENDENCIES = _make_topic("dependencies", SCOPE_WORKLOAD, 0, "planner", "planner propagator", committed=True)
PLACEMENTS = _make_topic("placements", SCOPE_WORKLOAD, 0, "planner", "planner propagator", committed=True)
CAPACITY_NEEDED = _make_topic(
    "capacity-needed", SCOPE_WORKLOAD, 0, "planner", "planner descheduler vk-bridge", committed=True
)
DECISIONS = _make_topic("decisions", SCOPE_WORKLOAD, 7 * DAY_MS, "planner", "planner", committed=True)
WORKLOAD_STATUS = _make_topic("workload-status", SCOPE_WORKLOAD, 0, "propagator", "planner propagator")
BRAKES = _make_topic("brakes", SCOPE_ONE, 0, "planner", "planner descheduler vk-bridge", committed=True)
ADOPTIONS = _make_topic("adoptions", SCOPE_WORKLOAD, DAY_MS, "planner", "propagator", committed=True)
FOUND_WORKLOADS = _make_topic("found-workloads", SCOPE_WORKLOAD, DAY_MS, "propagator", "planner")
SHAPES_ASKED = _make_topic("shapes-asked", SCOPE_WORKLOAD, HOUR_MS, "planner", "propagator", committed=True)
SHAPES = _make_topic("shapes", SCOPE_CLUSTER, 0, "propagator", "planner propagator")
TURNS_HPA = _make_topic("turns.hpa", SCOPE_ONE, 0, "hpa", "hpa", committed=True)
PODS = _make_topic("pods", SCOPE_WORKLOAD, 0, "snapshot", "hpa snapshot")
LOAD = _make_topic("load", SCOPE_WORKLOAD, DAY_MS, f"hpa, planner and {ANYONE}", "hpa")
BACKLOG = _make_topic("backlog", SCOPE_WORKLOAD, DAY_MS, f"hpa and {ANYONE}", "hpa")
SCALE_POLICIES = _make_topic("scale-policies", SCOPE_WORKLOAD, 0, "hpa", "hpa planner snapshot", committed=True)
SCALE_STATE = _make_topic("scale-state", SCOPE_WORKLOAD, 0, "hpa", "hpa", committed=True)
SCALE = _make_topic("scale", SCOPE_WORKLOAD, 0, "hpa", "hpa planner", committed=True)
TURNS_DESCHEDULER = _make_topic("turns.descheduler", SCOPE_ONE, 0, "descheduler", "descheduler", committed=True)
LENDING_RULES = _make_topic("lending-rules", SCOPE_CLUSTER, 0, "descheduler", "descheduler vk-bridge", committed=True)
LENDING = _make_topic("lending", SCOPE_CLUSTER, 0, "vk-bridge", "descheduler vk-bridge")
RECALLS = _make_topic("recalls", SCOPE_CLUSTER, 0, "descheduler", "descheduler vk-bridge", committed=True)
NODE_USAGE = _make_topic("node-usage", SCOPE_CLUSTER, 7 * DAY_MS, "vk-bridge", "descheduler")
DEAD_LETTERS = _make_topic("dead-letters", SCOPE_ONE, 7 * DAY_MS, EVERY_READER, "operators")

TOPICS: Final = (
    FLEET,
    TURNS_PLANNER,
    CLUSTERS,
    CAPACITY,
    CAPACITY_CHANGES,
    PENDING,
    WORKLOADS,
    DEPENDENCIES,
    PLACEMENTS,
    CAPACITY_NEEDED,
    DECISIONS,
    WORKLOAD_STATUS,
    BRAKES,
    ADOPTIONS,
    FOUND_WORKLOADS,
    SHAPES_ASKED,
    SHAPES,
    TURNS_HPA,
    PODS,
    LOAD,
    BACKLOG,
    SCALE_POLICIES,
    SCALE_STATE,
    SCALE,
    TURNS_DESCHEDULER,
    LENDING_RULES,
    LENDING,
    RECALLS,
    NODE_USAGE,
    DEAD_LETTERS,
)

TOPIC_BY_NAME: Final = {topic.name: topic for topic in TOPICS}

# A claim goes into its owner's own stream, in the partition of the cluster's name: a reader of that stream meets the
# claim before the first record of the new epoch, and the offset orders all claims of one cluster.
CLAIM_TOPIC_BY_SERVICE: Final = {
    "snapshot": CAPACITY_CHANGES,
    "propagator": WORKLOAD_STATUS,
    "planner": TURNS_PLANNER,
    "hpa": TURNS_HPA,
    "vk-bridge": LENDING,
    "descheduler": TURNS_DESCHEDULER,
}


@dataclass(frozen=True, slots=True)
class RecordAddress:
    """The place of a record: its topic, its key, and the name whose hash chooses the partition."""

    topic: Topic
    key: str
    partition_by: str


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A record without a value: it removes the record of its key from a compacted topic.

    A reader must not delete an object in a cluster because of a tombstone.
    """

    address: RecordAddress


def workload_key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}"


def capacity_address(cluster: str, index: int) -> RecordAddress:
    return RecordAddress(CAPACITY, f"{cluster}/{index}", cluster)


def pending_address(cluster: str, group: str) -> RecordAddress:
    return RecordAddress(PENDING, f"{cluster}/{group}", cluster)


def status_address(namespace: str, name: str, cluster: str) -> RecordAddress:
    return RecordAddress(WORKLOAD_STATUS, f"{namespace}/{name}/{cluster}", workload_key(namespace, name))


def dependency_address(workload: str, kind: str, namespace: str, name: str) -> RecordAddress:
    return RecordAddress(DEPENDENCIES, f"{kind}/{namespace}/{name}", workload)


def capacity_needed_address(namespace: str, name: str, cluster: str) -> RecordAddress:
    return RecordAddress(CAPACITY_NEEDED, f"{namespace}/{name}/{cluster}", workload_key(namespace, name))


def brake_address(scope: str) -> RecordAddress:
    return RecordAddress(BRAKES, scope, scope)


def shape_address(template: str, cluster: str) -> RecordAddress:
    return RecordAddress(SHAPES, f"{template}/{cluster}", cluster)


def pods_address(namespace: str, name: str, cluster: str) -> RecordAddress:
    return RecordAddress(PODS, f"{namespace}/{name}/{cluster}", workload_key(namespace, name))


def lending_address(topic: Topic, cluster: str, node: str) -> RecordAddress:
    """Returns the address of a node's record on the topic lending, recalls or node-usage."""
    return RecordAddress(topic, f"{cluster}/{node}", cluster)


def workload_address(topic: Topic, namespace: str, name: str) -> RecordAddress:
    key = workload_key(namespace, name)
    return RecordAddress(topic, key, key)


def _turn_address(event: TurnTaken) -> RecordAddress:
    key = event.cluster or event.service
    return RecordAddress(CLAIM_TOPIC_BY_SERVICE[event.service], key, key)


_ADDRESS: Final[dict[type, Callable[..., RecordAddress]]] = {
    FleetFormed: lambda e: RecordAddress(FLEET, "fleet", "fleet"),
    TurnTaken: _turn_address,
    ClusterJoined: lambda e: RecordAddress(CLUSTERS, e.cluster, e.cluster),
    ClusterLeft: lambda e: RecordAddress(CLUSTERS, e.cluster, e.cluster),
    CapacityReported: lambda e: capacity_address(e.cluster, e.index),
    CapacityChanged: lambda e: RecordAddress(CAPACITY_CHANGES, e.cluster, e.cluster),
    PodsUnschedulable: lambda e: pending_address(e.cluster, e.group),
    PodsScheduled: lambda e: pending_address(e.cluster, e.group),
    WorkloadDeclared: lambda e: workload_address(WORKLOADS, e.namespace, e.name),
    DependencyDeclared: lambda e: dependency_address(e.workload, e.kind, e.namespace, e.name),
    PlacementDecided: lambda e: workload_address(PLACEMENTS, e.namespace, e.name),
    CapacityNeeded: lambda e: capacity_needed_address(e.namespace, e.name, e.cluster),
    DecisionRecorded: lambda e: workload_address(DECISIONS, e.namespace, e.name),
    WorkloadObserved: lambda e: status_address(e.namespace, e.name, e.cluster),
    BrakeSet: lambda e: brake_address(e.scope),
    BrakeReleased: lambda e: brake_address(e.scope),
    ConfirmationAsked: lambda e: brake_address(e.scope),
    ConfirmationGiven: lambda e: brake_address(e.scope),
    AdoptionAsked: lambda e: workload_address(ADOPTIONS, e.namespace, e.name),
    WorkloadFound: lambda e: RecordAddress(
        FOUND_WORKLOADS, f"{e.namespace}/{e.name}/{e.cluster}", workload_key(e.namespace, e.name)
    ),
    ShapeAsked: lambda e: RecordAddress(SHAPES_ASKED, e.template, workload_key(e.namespace, e.name)),
    ShapeAdmitted: lambda e: shape_address(e.template, e.cluster),
    PodsObserved: lambda e: pods_address(e.namespace, e.name, e.cluster),
    LoadObserved: lambda e: workload_address(LOAD, e.namespace, e.name),
    BacklogObserved: lambda e: workload_address(BACKLOG, e.namespace, e.name),
    ScalePolicyDeclared: lambda e: workload_address(SCALE_POLICIES, e.namespace, e.name),
    ScaleStateChanged: lambda e: workload_address(SCALE_STATE, e.namespace, e.name),
    ScaleDecided: lambda e: workload_address(SCALE, e.namespace, e.name),
    LendingDeclared: lambda e: RecordAddress(LENDING_RULES, e.cluster, e.cluster),
    NodeLent: lambda e: lending_address(LENDING, e.cluster, e.node),
    NodeReturned: lambda e: lending_address(LENDING, e.cluster, e.node),
    NodeRecalled: lambda e: lending_address(RECALLS, e.cluster, e.node),
    RecallSettled: lambda e: lending_address(RECALLS, e.cluster, e.node),
    NodeUsed: lambda e: lending_address(NODE_USAGE, e.cluster, e.node),
    DeadLettered: lambda e: RecordAddress(DEAD_LETTERS, f"{e.topic}/{e.partition}/{e.offset}/{e.reader}", e.topic),
}

EVENT_TYPES: Final = tuple(_ADDRESS)


def address_of_event(event: Event) -> RecordAddress:
    """Returns the topic, key and partitioning name of an event."""
    return _ADDRESS[type(event)](event)


_BLOCK: Final = re.compile(r"[^/]+/[0-9]{1,9}", re.ASCII)
_PARTS: Final = {
    CLUSTERS.name: (1,),
    CAPACITY_CHANGES.name: (1,),
    LENDING_RULES.name: (1,),
    **dict.fromkeys((WORKLOADS.name, PLACEMENTS.name, DECISIONS.name, ADOPTIONS.name), (2,)),
    **dict.fromkeys((LOAD.name, BACKLOG.name, SCALE_POLICIES.name, SCALE_STATE.name, SCALE.name), (2,)),
    **dict.fromkeys((SHAPES.name, RECALLS.name, NODE_USAGE.name), (2,)),
    **dict.fromkeys((DEPENDENCIES.name, CAPACITY_NEEDED.name, FOUND_WORKLOADS.name, PODS.name), (3,)),
    WORKLOAD_STATUS.name: (1, 3),
    LENDING.name: (1, 2),
}
"""The number of parts of a topic's keys, split at "/". Other topics take any key that is not empty."""


def is_valid_key(topic: str, key: str) -> bool:
    """Returns whether a record of the topic may have this key. Readers split a key at "/", also that of a tombstone."""
    if topic == CAPACITY.name:
        return _BLOCK.fullmatch(key) is not None
    if topic == PENDING.name:
        return "/" in key
    return bool(key) and key.count("/") + 1 in _PARTS.get(topic, range(1, len(key) + 2))


EVENTS_BY_TOPIC: Final = {
    FLEET.name: (FleetFormed,),
    TURNS_PLANNER.name: (TurnTaken,),
    CLUSTERS.name: (ClusterJoined, ClusterLeft),
    CAPACITY.name: (CapacityReported,),
    CAPACITY_CHANGES.name: (CapacityChanged, TurnTaken),
    PENDING.name: (PodsUnschedulable, PodsScheduled),
    WORKLOADS.name: (WorkloadDeclared,),
    DEPENDENCIES.name: (DependencyDeclared,),
    PLACEMENTS.name: (PlacementDecided,),
    CAPACITY_NEEDED.name: (CapacityNeeded,),
    DECISIONS.name: (DecisionRecorded,),
    WORKLOAD_STATUS.name: (WorkloadObserved, TurnTaken),
    BRAKES.name: (BrakeSet, BrakeReleased, ConfirmationAsked, ConfirmationGiven),
    ADOPTIONS.name: (AdoptionAsked,),
    FOUND_WORKLOADS.name: (WorkloadFound,),
    SHAPES_ASKED.name: (ShapeAsked,),
    SHAPES.name: (ShapeAdmitted,),
    TURNS_HPA.name: (TurnTaken,),
    PODS.name: (PodsObserved,),
    LOAD.name: (LoadObserved,),
    BACKLOG.name: (BacklogObserved,),
    SCALE_POLICIES.name: (ScalePolicyDeclared,),
    SCALE_STATE.name: (ScaleStateChanged,),
    SCALE.name: (ScaleDecided,),
    TURNS_DESCHEDULER.name: (TurnTaken,),
    LENDING_RULES.name: (LendingDeclared,),
    LENDING.name: (NodeLent, NodeReturned, TurnTaken),
    RECALLS.name: (NodeRecalled, RecallSettled),
    NODE_USAGE.name: (NodeUsed,),
    DEAD_LETTERS.name: (DeadLettered,),
}
