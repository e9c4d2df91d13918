"""Small builders for the planner's tests: manifests, nodes, shapes, and a state with clusters in it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from planner.core.background.round import DecisionClock, apply_events
from planner.core.feasibility.limits import limit_by_nodes
from planner.core.feasibility.room import Room
from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from spillway.columns import NO_NODES, columns_of
from spillway.events import CapacityChanged, CapacityReported, ClusterJoined
from spillway.feasibility.fit import NodeLimit
from spillway.feasibility.nodes import ClusterNodes
from spillway.model import Answered, Generation, NodeGroup, NodeRow, Shape, WorkloadFacts

GI = 2**30
EPOCH = 7


def container_spec(name: str = "main", cpu: str = "1", memory: str = "1Gi", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "app:1", "resources": {"requests": {"cpu": cpu, "memory": memory}}} | more


def pod_template(*containers: dict[str, Any], labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"labels": labels or {"app": "web"}},
        "spec": {"containers": list(containers) or [container_spec()]} | spec,
    }


def deployment(replicas: Any = 1, name: str = "web", pod: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": pod or pod_template()}
        | spec,
    }


def statefulset(replicas: Any = 1, name: str = "db", pod: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    manifest = deployment(replicas, name, pod, serviceName="db", **spec)
    return manifest | {"kind": "StatefulSet"}


def job(parallelism: Any = 1, name: str = "sum", pod: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """restartPolicy Never, unless pod says otherwise."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": parallelism, "template": pod or pod_template(restartPolicy="Never")} | spec,
    }


def placement_policy(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "spillway.io/v1", "kind": "PlacementPolicy", "metadata": {"name": "p"}, "spec": spec}


def manifest_texts(*manifests: dict[str, Any]) -> tuple[str, ...]:
    return tuple(json.dumps(manifest) for manifest in manifests)


def make_shape(cpu: int = 1000, **more: Any) -> Shape:
    """A shape of so many milli-cores, and whatever else a Shape has."""
    requests = {"cpu": cpu, "pods": 1} | more.pop("requests", {})
    return Shape("default", tuple(sorted((name, amount) for name, amount in requests.items() if amount)), **more)


def node_row(name: str, cpu: int = 4000, used: int = 0, pods: int = 110, **more: Any) -> NodeRow:
    """A node with so many milli-cores, so many of them requested; extra resources by name in allocatable."""
    allocatable = {"cpu": cpu, "memory": 64 * GI, "pods": pods} | more.pop("allocatable", {})
    requested = {"cpu": used} | more.pop("requested", {})
    labels = more.pop("labels", {})
    hostname = {"kubernetes.io/hostname": name}
    sorted_labels = tuple(sorted((hostname | labels).items()))
    ports_pods: Mapping[str, Any] = more.pop("rest", {})
    return NodeRow(name, allocatable, requested, labels=sorted_labels, **more, **ports_pods)


def cluster_nodes_of(*rows: NodeRow) -> ClusterNodes:
    nodes = ClusterNodes()
    nodes.upsert_nodes(columns_of(rows), 0)
    return nodes


def joined_cluster(
    name: str, tier: str = "own", node_groups: Iterable[NodeGroup] = (), region: str = "", **labels: str
) -> ClusterJoined:
    return ClusterJoined(name, name, "", tier, region, "", tuple(sorted(labels.items())), tuple(node_groups))


def node_group(name: str = "burst", cpu: int = 4000, nodes_max: int = 2, **more: Any) -> NodeGroup:
    return NodeGroup(
        name=name,
        selector=(("group", name),),
        allocatable=(("cpu", cpu), ("memory", 64 * GI), ("pods", 110)),
        labels=(("group", name), *more.pop("labels", ())),
        taints=more.pop("taints", ()),
        nodes_max=nodes_max,
        lead_time_seconds=more.pop("lead", 120),
        cost_per_hour=more.pop("cost", 1.0),
    )


def workload_facts(version: Generation, *counted: int, name: str = "web", **more: Any) -> WorkloadFacts:
    """What a cluster shows; counted: bound pods by template, oldest first. By default all is carried out."""
    total = sum(counted)
    return WorkloadFacts(
        namespace="default",
        name=name,
        version=version,
        uid="u",
        spec_replicas=more.get("spec", total),
        observed_current=more.get("observed", True),
        status_replicas=more.get("status", total),
        updated_replicas=more.get("updated", total),
        ready_replicas=total,
        counted=tuple((f"h{index}", count) for index, count in enumerate(counted)),
        succeeded=more.get("succeeded", 0),
        ended=more.get("ended", ""),
    )


def capacity_reported(
    name: str,
    rows: Iterable[NodeRow],
    *,
    epoch: int = EPOCH,
    index: int = 0,
    count: int = 1,
    sequence: int = 0,
    shown: Iterable[WorkloadFacts] = (),
    api_server: str = "",
) -> CapacityReported:
    return CapacityReported(name, epoch, index, count, sequence, 0, b"", tuple(shown), api_server=api_server)


def capacity_changed(name: str, sequence: int, *, epoch: int = EPOCH, index: int = 0, **more: Any) -> CapacityChanged:
    return CapacityChanged(
        cluster=name,
        epoch=epoch,
        index=index,
        sequence=sequence,
        age_ms=more.get("age_ms", 0),
        columns=b"",
        removed=tuple(more.get("removed", ())),
        facts=tuple(more.get("shown", ())),
        facts_removed=tuple(more.get("facts_removed", ())),
        trouble=more.get("trouble", ""),
        namespaces=tuple(more.get("namespaces", ())),
        namespaces_removed=tuple(more.get("namespaces_removed", ())),
        unread=more.get("unread", ""),
        trouble_code=more.get("trouble_code", 0),
    )


class Fleet:
    """A planner's state with clusters that report, and a clock and generations of the test's own."""

    def __init__(self, **clusters: list[NodeRow]) -> None:
        self.state = PlannerState(PlannerRules())
        self.now = 100.0
        self.epoch, self.sequence = 9, 0
        self.sequences: dict[str, int] = {}
        for name, rows in clusters.items():
            self.join_cluster(
                joined_cluster(name.replace("_", "-"), "cloud" if name.startswith("cloud") else "own"), rows
            )

    def join_cluster(self, joined: ClusterJoined, rows: list[NodeRow]) -> None:
        self.state.apply_event(joined, self.now)
        self.report_full_block(joined.cluster, rows)
        self.send_heartbeats(joined.cluster)

    def report_full_block(
        self, name: str, rows: Iterable[NodeRow], shown: Iterable[WorkloadFacts] = (), api_server: str = ""
    ) -> None:
        """A full block."""
        rows = list(rows)
        sequence = self.sequences.setdefault(name, 0)
        event = capacity_reported(name, rows, sequence=sequence, shown=shown, api_server=api_server)
        self.state.apply_event(event, self.now, columns=columns_of(rows))

    def report_change(self, name: str, rows: Iterable[NodeRow] = (), **more: Any) -> None:
        """Changed rows, changed facts (shown=…), or a heartbeat."""
        self.sequences[name] += 1
        event = capacity_changed(name, self.sequences[name], **more)
        self.state.apply_event(event, self.now, self.sequences[name], columns=columns_of(list(rows)))

    def send_heartbeats(self, *names: str) -> None:
        for name in names or tuple(self.sequences):
            self.report_change(name)

    def next_moment(self) -> Moment:
        self.mark_log_read()
        self.sequence += 1
        return Moment(self.now, int(self.now * 1000), Generation(self.epoch, self.sequence))

    def decision_clock(self) -> DecisionClock:
        """What a round asks for its moments."""
        return DecisionClock(lambda: self.now, self.next_moment)

    def mark_log_read(self) -> None:
        """All that stands in the log has been read behind what was said of clusters."""
        words = self.state.all_statuses()
        self.state.owners.mark_proven({(one.namespace, one.name, one.cluster): one for one in words})


def apply_to_fleet(fleet: Fleet, events: Iterable[Any]) -> None:
    """Applies events and tombstones to the planner's state, as its own transactions do."""
    apply_events(fleet.state, events, fleet.now)


def make_room(certain: int, possible: int | None = None, when_empty: bool = True) -> Room:
    return Room(
        certain, certain if possible is None else possible, limit_by_nodes(NodeLimit((("cpu", 1),))), when_empty
    )


NO_COLUMNS = NO_NODES


def add_expired_answers(fleet: "Fleet", key: tuple[str, str], old: int = 3) -> None:
    """A workload's declaration bears so many answers whose time is over."""
    known = fleet.state.workloads[key]
    answers = tuple(Answered(f"old-{index}", "", -3_600_000, b"{}") for index in range(old))
    known.declared = replace(known.declared, answered=answers)
