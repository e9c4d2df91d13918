"""Checks the promises that must hold at every record of the log and every write to a member, whatever goes wrong."""

import asyncio
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sim.cluster import SimCluster
from sim.core.kinds import Object
from sim.core.requests import Answer, Request
from spillway.addresses import (
    BRAKES,
    CAPACITY_NEEDED,
    CLUSTERS,
    DEAD_LETTERS,
    DECISIONS,
    LENDING,
    PENDING,
    PLACEMENTS,
    RECALLS,
    TURNS_PLANNER,
    WORKLOADS,
)
from spillway.bus import Outgoing
from spillway.events import (
    PHASE_LOST,
    ClusterJoined,
    ClusterLeft,
    DecisionRecorded,
    PlacementDecided,
    TurnTaken,
    WorkloadDeclared,
)
from spillway.model import NO_GENERATION, Generation, Part
from spillway.wire import decode_event
from spillway_simulation import members
from spillway_simulation.brake_oracle import BrakeOracle
from spillway_simulation.lending_oracle import LendingOracle
from spillway_simulation.log_oracle import LogOracle
from spillway_simulation.need_oracle import NeedOracle
from spillway_simulation.ownership import Ownership
from spillway_simulation.read_oracle import ReadOracle
from spillway_simulation.removals import Removals, available_pods_of
from spillway_simulation.scaling_oracle import SCALING, ScalingOracle, Told
from spillway_simulation.sights import Sights
from spillway_simulation.take_backs import TakeBacks

DEPLOYMENT_PATH = re.compile(r"^/apis/apps/v1/namespaces/([^/]+)/deployments/([^/]+)$")
NODE_PATH = re.compile(r"^/api/v1/nodes/([^/]+)(?:/status)?$")
NODES_PATH = "/api/v1/nodes"
LENT = (LENDING, RECALLS, CLUSTERS, CAPACITY_NEEDED)
ROOM_WINDOW_SECONDS = 120.0

Key = tuple[str, str]
Placed = tuple[PlacementDecided, WorkloadDeclared | None]


class Violated(AssertionError):
    """Raised with the sentence that does not hold."""


@dataclass(slots=True)
class Known:
    """The content of the log so far for one workload. parts: by cluster, every version that a part ever had."""

    declared: WorkloadDeclared | None = None
    placement: PlacementDecided | None = None
    generation: Generation = NO_GENERATION
    parts: dict[str, dict[Generation, Part]] = field(default_factory=dict)
    objects: dict[int, str] = field(default_factory=dict)
    """By template generation, the object that the template makes, without its replicas."""
    says: dict[str, tuple[Generation, object]] = field(default_factory=dict)
    """By cluster, the object that the newest version of its part makes."""
    cpu: int = 0
    cpus: list[tuple[float, int]] = field(default_factory=list)
    """For each template, the time until which it was the newest, and the cpu that it requested."""

    def least_cpu_millis(self, since: float) -> int:
        """Returns the least cpu request among the templates that may still have pods."""
        return min([self.cpu, *(cpu for until, cpu in self.cpus if until >= since)])

    def least_cpu_millis_of_part(self, part: Part, since: float) -> int:
        """Returns the least cpu request of a part. A part whose roll waits has replicas of its earlier template."""
        borne, least = self.objects.get(part.template_generation, ""), self.least_cpu_millis(since)
        return min(least, members.replica_cpu_millis(json.loads(borne))) if borne else least


class Oracle:
    """Judges all records and writes. Keeps the data for that, and a hash of all: the same seed gives the same trace."""

    def __init__(self, clusters: dict[str, SimCluster], was_told: Told) -> None:
        self._clusters = clusters
        self._hash = hashlib.sha256()
        self._room: dict[str, list[tuple[float, int]]] = {}
        self._disturbed: dict[str, float] = {}
        self.hands: set[tuple[str, str]] = set()
        """Our objects, (cluster, name), that a user scaled or deleted by hand."""
        self.ownership = Ownership(clusters, self.note_violation)
        self.sights, self.brakes = Sights(clusters), BrakeOracle(self.note_violation)
        self.removals = Removals(
            clusters,
            self.note_violation,
            lambda since: max(self._disturbed.values(), default=-1) > since,
            self.ownership.has_orphan_named,
            self.sights.pods_bound_since,
        )
        self.scaling = ScalingOracle(self.note_violation, was_told)
        self.log = LogOracle(self.note_violation)
        self.take_backs = TakeBacks(
            clusters, self.sights, self.note_violation, self.ownership.is_orphan, self.log.earliest_decision_time
        )
        self.needs = NeedOracle(
            clusters,
            self.sights,
            self.brakes,
            self.note_violation,
            self._least_cpu_millis,
            self._promised_replicas_by_workload,
            self._unplaced_replicas,
        )
        self.lending: LendingOracle | None = None
        self.reads: ReadOracle | None = None
        self.workloads: dict[Key, Known] = {}
        self.epoch = -1
        self.violations: list[str] = []
        self.seen: Counter[str] = Counter()
        """Counts of the judged events. Ownership and scaling keep their own counts."""
        self.records = 0
        self.writes = 0
        self.trace: list[str] | None = None

    @property
    def trace_digest(self) -> str:
        return self._hash.hexdigest()[:16]

    def note_in_trace(self, text: str) -> None:
        """Adds one line to the trace."""
        line = f"{asyncio.get_running_loop().time():9.3f} {text}"
        self._hash.update(line.encode())
        if self.trace is not None:
            self.trace.append(line)

    def note_violation(self, sentence: str) -> None:
        self.note_in_trace(f"VIOLATED {sentence}")
        self.violations.append(f"at {asyncio.get_running_loop().time():.3f} s: {sentence}")

    # ── The log ─────────────────────────────────────────────────────────────────────────────────────────────────

    def on_records(self, records: Sequence[Outgoing], source: str) -> None:
        self.records += len(records)
        placements: list[Placed] = []
        lent: list[object] = []
        for record in records:
            topic = record.address.topic
            body = record.value or b""
            self.note_in_trace(
                f"log {topic.name} {record.address.key} {source} {hashlib.sha256(body).hexdigest()[:12]}"
            )
            if topic is DEAD_LETTERS:
                self.note_violation(f"a dead letter from {source}: {record.address.key}")
            if topic in (CLUSTERS, TURNS_PLANNER, WORKLOADS, PLACEMENTS, DECISIONS):
                self._on_planner_record(record, placements, source)
            if topic is PENDING:  # A workload that waits now may be gone at the next look.
                self.sights.note_pods(asyncio.get_running_loop().time())
            if topic in SCALING:
                self.scaling.on_record(record, source)
            if topic is BRAKES and record.value is not None:
                self.brakes.on_event(decode_event(topic.name, record.kind, record.value))
            if self.lending is not None and topic in LENT and record.value is not None:
                lent.append(decode_event(topic.name, record.kind, record.value))
                self.lending.on_event(lent[-1])
        for placement, declared in placements:
            self._on_placement(placement, declared)
        for event in lent:
            self.needs.on_event(event)
        if self.lending is not None:
            self.lending.judge_present_state()
        if self.reads is not None:
            self._note_readable_versions(records, source)

    def _note_readable_versions(self, records: Sequence[Outgoing], source: str) -> None:
        """Notes the values that a reader may see after this transaction."""
        assert self.reads is not None
        topics = (WORKLOADS, PLACEMENTS)
        for name in dict.fromkeys(record.address.key for record in records if record.address.topic in topics):
            key = (name.partition("/")[0], name.partition("/")[2])
            known = self.workloads.get(key, Known())
            self.reads.note_workload_version(key, known.declared, known.placement, source)
        for record in records:
            if record.address.topic is CLUSTERS and record.value is not None:
                event = decode_event(CLUSTERS.name, record.kind, record.value)
                if isinstance(event, ClusterJoined | ClusterLeft):
                    self.reads.note_cluster_phase(event.cluster, getattr(event, "phase", ""), source)

    def _on_planner_record(self, record: Outgoing, placements: list[Placed], source: str) -> None:
        namespace, _, name = record.address.key.partition("/")
        if record.value is None:
            return
        match decode_event(record.address.topic.name, record.kind, record.value):
            case TurnTaken():
                self.epoch += 1
                self.take_backs.note_turn_taken()
                if self.reads is not None and record.address.topic is TURNS_PLANNER:
                    self.reads.note_turn_taken(source)
            case WorkloadDeclared() as declared:
                known = self.workloads.setdefault((namespace, name), Known())
                known.declared = declared
                known.objects[declared.template_generation] = _object_made_by_template(declared)
                cpu = members.replica_cpu_millis(json.loads(declared.manifest))
                if known.cpu not in (0, cpu):
                    known.cpus.append((asyncio.get_running_loop().time(), known.cpu))
                known.cpu = cpu
            case PlacementDecided() as placement:
                workload = self.workloads.get((namespace, name))
                placements.append((placement, workload.declared if workload is not None else None))
            case DecisionRecorded() as decision:
                self.removals.note_decision(decision)
            case ClusterJoined(cluster=cluster, phase=phase):
                (self.removals.lost.add if phase == PHASE_LOST else self.removals.lost.discard)(cluster)
                self.ownership.note_cluster_joined(cluster)
            case ClusterLeft(cluster=cluster):
                newest = (known.generation for known in self.workloads.values())
                self.ownership.note_cluster_left(cluster, max(newest, default=NO_GENERATION))

    def _on_placement(self, placement: PlacementDecided, declared: WorkloadDeclared | None) -> None:
        """Judges a placement. declared: the declaration it was decided on. One transaction may declare a workload
        twice."""
        key = (placement.namespace, placement.name)
        known = self.workloads.setdefault(key, Known())
        name = "/".join(key)
        self.note_in_trace(
            f"placement {name} {placement.generation}: {_placement_text(placement, declared, known.cpu)}"
        )
        if placement.generation <= known.generation:
            self.note_violation(f"{name}: generation {placement.generation} after {known.generation} in the log")
        if declared is None:
            self.note_violation(f"{name}: placed and never declared")
            return
        kept = sum(part.replicas_kept for part in placement.parts if not part.removing)
        if any(
            part.replicas_kept < 0 or part.replicas_lost < 0 or part.replicas_leaving < 0 for part in placement.parts
        ):
            self.note_violation(f"{name}: a part with fewer than no replicas: {placement.parts}")
        goes = declared.deleting or declared.disowning
        if not goes and kept + placement.unplaced != declared.replicas:
            self.note_violation(
                f"{name}: {kept} kept and {placement.unplaced} unplaced of {declared.replicas} declared"
            )
        before = {part.cluster: part for part in known.placement.parts} if known.placement else {}
        for part in placement.parts:
            self._on_part(name, known, part, before.get(part.cluster), declared.template_generation)
        cause = self.removals.cause_of(placement)
        self.sights.note_pods(
            asyncio.get_running_loop().time()
        )  # Look now: a pod may be bound and gone between two looks.
        self.brakes.judge_placement(cause, known.placement, placement)
        self.take_backs.judge_placement(cause, known.placement, placement, known.cpu)
        self.removals.judge_placement(known.placement, placement, declared)
        for cluster in (before.keys() - {part.cluster for part in placement.parts}) & self.removals.lost:
            self.ownership.note_part_given_up(cluster, key, max(known.parts[cluster], default=NO_GENERATION))
        known.placement, known.generation = placement, placement.generation
        for part in placement.parts:
            was = before.get(part.cluster)
            if not part.removing and part.replicas > (was.replicas if was else 0):
                self._check_promised_cpu(name, part.cluster)
                if not part.adopting:
                    self.log.judge_growth(key, part.cluster)

    def _on_part(self, name: str, known: Known, part: Part, before: Part | None, template: int) -> None:
        """Judges a new version of a part. template: the number of the newest template."""
        versions = known.parts.setdefault(part.cluster, {})
        newest = max(versions, default=NO_GENERATION)
        if part.version < newest:
            self.note_violation(f"{name} in {part.cluster}: version {part.version} after {newest} in the log")
        said, says = known.says.get(part.cluster), _object_made_by_part(known, part, template)
        known.says[part.cluster] = (part.version, says)
        if before is not None and said is not None and said[0] == part.version and said[1] != says:
            self.note_violation(f"{name} in {part.cluster}: version {part.version} means two things: {before}, {part}")
        versions[part.version] = part

    def note_allocatable_cpu(self) -> None:
        """Notes the present room of each cluster. Called at each change of nodes, and from time to time."""
        now = asyncio.get_running_loop().time()
        for name, cluster in self._clusters.items():
            seen = self._room.setdefault(name, [])
            seen.append((now, members.allocatable_cpu_millis(cluster)))
            self._room[name] = [entry for entry in seen if entry[0] >= now - ROOM_WINDOW_SECONDS] or seen[-1:]

    def observe_members(self) -> None:
        """Judges the objects of members. Called twice a second."""
        now = asyncio.get_running_loop().time()
        self.sights.note_pods(now)
        if self.lending is not None:
            self.needs.note_nodes(now)

    def _unplaced_replicas(self, key: Key) -> int:
        known = self.workloads.get(key)
        return known.placement.unplaced if known is not None and known.placement is not None else 0

    def _parts_in_cluster(self, cluster: str) -> Iterator[tuple[Key, Known, Part]]:
        for key, known in self.workloads.items():
            for part in known.placement.parts if known.placement is not None else ():
                if part.cluster == cluster and not part.removing:
                    yield key, known, part

    def _promised_replicas_by_workload(self, cluster: str) -> dict[Key, int]:
        return {key: part.replicas for key, _, part in self._parts_in_cluster(cluster)}

    def _least_cpu_millis(self, key: Key, since: float) -> int:
        known = self.workloads.get(key)
        return known.least_cpu_millis(since) if known is not None else 0

    def note_disturbance(self, cluster: str) -> None:
        """Notes that a user or the nodes moved pods. Promised replicas may fit nowhere now, and may be given up."""
        self._disturbed[cluster] = asyncio.get_running_loop().time()

    def _unplaceable_cpu_millis(self, name: str, cluster: str, since: float) -> int:
        """Returns the cpu of unbound replicas of other workloads that fit on no node any more. They hold no room (P5).

        They had room before. Then a roll moved pods between nodes, or removed pods left a gap that is too small.
        """
        member, found = self._clusters[cluster], 0
        free = members.largest_free_cpu_millis(member)
        for key, known, part in self._parts_in_cluster(cluster):
            cpu = known.least_cpu_millis_of_part(part, since)
            if "/".join(key) != name and cpu > free:
                bound = sum(members.is_bound(pod) for pod in members.pods_of(member, *key))
                found += cpu * max(0, part.replicas - bound)
        return found

    def _check_promised_cpu(self, name: str, cluster: str) -> None:
        since = asyncio.get_running_loop().time() - ROOM_WINDOW_SECONDS
        if self._disturbed.get(cluster, -ROOM_WINDOW_SECONDS) > since:
            return
        promised = sum(
            part.replicas * known.least_cpu_millis_of_part(part, since)
            for _, known, part in self._parts_in_cluster(cluster)
        )
        there = max((cpu for _, cpu in self._room.get(cluster, ())), default=0)
        if promised > there and promised - self._unplaceable_cpu_millis(name, cluster, since) > there:
            self.note_violation(
                f"{name}: {promised}m of cpu is promised in {cluster}, which never had more than {there}m"
            )

    # ── The members ─────────────────────────────────────────────────────────────────────────────────────────────

    def judge_writes_to(self, cluster: SimCluster) -> None:
        """Judges every write through the member's API from now on."""
        answer = cluster.api.answer_request

        def answer_and_judge(request: Request) -> Answer:
            if request.method == "GET":
                return answer(request)
            place = DEPLOYMENT_PATH.match(request.path)
            key = (place[1], place[2]) if place else ("", "")
            before = cluster.get_object("deployments", key[1], key[0]) if place else None
            available = available_pods_of(cluster, key) if before is not None else 0
            node = _node_written_by(request) if self.lending is not None else ""
            node_before = cluster.get_object("nodes", node) if node else None
            status, body = answer(request)
            self.writes += 1
            self.note_in_trace(f"write {cluster.name} {request.method} {request.path} {status}")
            if place is not None and 200 <= status < 300:
                after = cluster.get_object("deployments", key[1], key[0])
                self._on_deployment_change(cluster.name, key, (before, after, available), request)
            if self.lending is not None and self.lending.is_lending_cluster(cluster.name) and 200 <= status < 300:
                self.lending.judge_write(cluster.name, node_before, cluster.get_object("nodes", node) if node else None)
                if node:
                    self.note_allocatable_cpu()
            return status, body

        cluster.api.answer_request = answer_and_judge  # type: ignore[method-assign]

    def _on_deployment_change(
        self, cluster: str, key: Key, seen: tuple[Object | None, Object | None, int], request: Request
    ) -> None:
        """Judges a change. seen: the object before and after it, and the number of its pods available before."""
        before, after, available = seen
        body, known, adopted = json.loads(request.body or b"{}"), self.workloads.get(key), False
        if request.method != "DELETE" and before is not None and not body.get("metadata", {}).get("resourceVersion"):
            self.note_violation(f"{'/'.join(key)} in {cluster}: {request.method} without the version that was seen")
        if request.method == "DELETE":
            self._on_delete(cluster, key, before, available)
        elif before is not None and after is not None and "spec" not in body:
            versions = known.parts.get(cluster, {}) if known else {}
            adopted = self.ownership.judge_marks_write(cluster, key, before, after, versions)
        elif before is not None and "annotations" not in body.get("metadata", {}):
            self._on_scale_down(cluster, key, body, before, available)
        else:
            self._on_versioned_write(cluster, key, body, before, available)
        self.ownership.judge_write(cluster, key, before, after, adopted)

    def _on_delete(self, cluster: str, key: Key, before: Object | None, available: int) -> None:
        """Judges a delete: a placement must remove the part, at the object's version or a later one."""
        name = f"{'/'.join(key)} in {cluster}"
        if before is None:
            return
        known = self.workloads.get(key)
        versions = known.parts.get(cluster, {}) if known else {}
        seen = members.version_of(before)
        if not members.is_of_our_fleet(before):
            self.note_violation(f"{name}: deleted, and it is not ours")
        elif not any(part.removing and version >= seen for version, part in versions.items()):
            self.note_violation(f"{name}: deleted at version {seen}, and no placement says that it is to go")
        else:
            self.removals.judge_write(cluster, key, before, available, max(versions), 0)

    def _on_scale_down(self, cluster: str, key: Key, body: Object, before: Object, available: int) -> None:
        """Judges a scale-down without a version: a newer part that waits for nothing must ask for so few replicas."""
        known, seen, replicas = self.workloads.get(key), members.version_of(before), body["spec"].get("replicas")
        parts = known.parts.get(cluster, {}) if known else {}
        says = [v for v, part in parts.items() if v > seen and part.replicas == replicas and not part.missing]
        name, had = f"{'/'.join(key)} in {cluster}", before["spec"]["replicas"]
        if not members.is_of_our_fleet(before) or body["spec"].keys() != {"replicas"} or replicas >= had:
            self.note_violation(
                f"{name}: {json.dumps(body['spec'])} written over {had} replicas of {seen}, at no version"
            )
        if not any(not (parts[v].removing or parts[v].disowning or parts[v].adopting) for v in says):
            self.note_violation(f"{name}: {replicas} replicas written over {seen}, which no newer placement has")
            return
        self.seen["scaled down"] += 1
        self.removals.judge_write(cluster, key, before, available, max(says), replicas)

    def _on_versioned_write(self, cluster: str, key: Key, body: Object, before: Object | None, available: int) -> None:
        name = f"{'/'.join(key)} in {cluster}"
        known = self.workloads.get(key)
        versions = known.parts.get(cluster, {}) if known else {}
        written = members.version_of(body)
        part = versions.get(written)
        if part is None:
            self.note_violation(f"{name}: written at version {written}, which no placement has")
            return
        if part.removing or part.disowning or part.adopting:
            self.note_violation(
                f"{name}: written at version {written}, which says that it is to go, or stays as it runs"
            )
        if body["spec"].get("replicas") != part.replicas:
            self.note_violation(f"{name}: {body['spec'].get('replicas')} replicas written, {part.replicas} decided")
        if before is not None and members.version_of(before) > written:
            self.note_violation(f"{name}: version {written} written over {members.version_of(before)}")
        if before is not None and not members.is_of_our_fleet(before):
            self.note_violation(f"{name}: written over, and it is not ours")
        if before is not None:
            self.removals.judge_write(cluster, key, before, available, written, part.replicas)


def _node_written_by(request: Request) -> str:
    """Returns the name of the node that the request writes; empty if it writes none."""
    found = NODE_PATH.match(request.path)
    if found is not None:
        return found[1]
    if request.path == NODES_PATH and request.method == "POST":
        return str(json.loads(request.body or b"{}")["metadata"]["name"])
    return ""


def _object_made_by_part(known: Known, part: Part, newest: int) -> object:
    """Returns the object that a part makes. A part without a template number has the newest template. A part that is
    to be removed has no manifest."""
    if part.removing:
        return None
    return part.replicas, known.objects.get(part.template_generation or newest, "")


def _object_made_by_template(declared: WorkloadDeclared) -> str:
    manifest = json.loads(declared.manifest)
    manifest["spec"].pop("replicas", None)
    return json.dumps(manifest, sort_keys=True)


def _placement_text(placement: PlacementDecided, declared: WorkloadDeclared | None, cpu: int) -> str:
    parts = ", ".join(
        f"{part.cluster} {part.replicas}{' removing' if part.removing else ''}"
        f"{f' lost {part.replicas_lost}' if part.replicas_lost else ''}"
        f"{f' leaving {part.replicas_leaving}' if part.replicas_leaving else ''} at {part.version}"
        for part in placement.parts
    )
    replicas = declared.replicas if declared is not None else 0
    return f"{replicas} of {cpu}m: {parts}; {placement.unplaced} unplaced {placement.waiting_for}"
