"""Runs our planner as its service does, on a log in memory. Can kill it. Its placements go to the members."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from planner.service import Planner, PlannerClocks
from planner.settings import PlannerSettings
from snapshot.core.capacity_stream import ClusterSign, Stream
from snapshot.core.cluster_state import StateChanges
from snapshot.core.pending import Pending
from snapshot.core.rules import SnapshotRules
from spillway import api
from spillway.addresses import DECISIONS, PLACEMENTS
from spillway.api import PlacementReply, RequestError
from spillway.events import (
    STATE_ABSENT,
    STATE_PRESENT,
    CapacityChanged,
    ClusterJoined,
    DecisionRecorded,
    PlacementDecided,
    WorkloadObserved,
)
from spillway.local_bus import LocalBroker, LocalBus, LocalSettings
from spillway.reasons import FITS_NO_NODE, NO_ROOM
from spillway.store import MemoryStore
from spillway.troubles import NO_TROUBLE
from spillway.wire import pack_columns

from .least import Bound, least_moves
from .member import FLEET, Member, Report
from .system import REFUSED, UNKNOWN, Answer
from .trace import Cluster
from .workloads import Key, Workload

SETTINGS = LocalSettings(partitions_cluster=3, partitions_workload=2, idle_batch_seconds=2.0)
CARRIED_OUT_SECONDS = (0.05, 1.0)
"""Seconds from a placement in the log to the object in its cluster, least and most."""
CLIENT_SECONDS = 12.0
RETRY_SECONDS = (0.1, 1.0)
RESTART_SECONDS = 1.0
FOLLOWED_SECONDS = 0.001
"""Seconds from an answer until all decisions of its step are read here. No part of the log takes longer."""
EPOCH = 0
"""The epoch of the clusters' records: nothing is in the log before them."""
UNPLACEABLE = (NO_ROOM, FITS_NO_NODE)


@dataclass(slots=True)
class Life:
    """One process of the planner."""

    owner: str
    context: Any
    bus: LocalBus
    planner: Planner
    task: "asyncio.Task[None]"


@dataclass(slots=True)
class Records:
    """The records of one cluster in the log."""

    stream: Stream
    pending: Pending
    status_sequence: int = 0


@dataclass(slots=True)
class Ours:
    """Our planner. moves: by cause, replicas that decisions removed from clusters. least: the fewest necessary ones."""

    random: Random
    loop: Any
    members: dict[str, Member] = field(default_factory=dict)
    workloads: dict[Key, Workload] = field(default_factory=dict)
    moves: Counter[str] = field(default_factory=Counter)
    least: Counter[str] = field(default_factory=Counter)
    decisions: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    kills: int = 0
    broker: LocalBroker = field(default_factory=lambda: LocalBroker(SETTINGS))
    store: MemoryStore = field(default_factory=MemoryStore)
    _placements: dict[Key, PlacementDecided] = field(default_factory=dict)
    _records: dict[str, Records] = field(default_factory=dict)
    _life: Life | None = None
    _lives: int = 0
    _following: "asyncio.Task[None] | None" = None
    _recorded: dict[tuple[Key, Any], DecisionRecorded] = field(default_factory=dict)

    # ── The planner's lives ─────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        self._begin_life()
        self._following = asyncio.create_task(self._follow_log())
        while not self.planner.is_active:
            await asyncio.sleep(0.1)
            assert self._life is not None
            if self._life.task.done():
                self._life.task.result()

    @property
    def planner(self) -> Planner:
        assert self._life is not None
        return self._life.planner

    def _begin_life(self) -> None:
        if self._life is not None:
            self.broker.end_sessions_unnoticed(self._life.bus)
        self._lives += 1
        owner = f"planner#{self._lives}"
        context = self.loop.context_of(owner)
        self._life = context.run(self._make_life, owner, context)

    def _make_life(self, owner: str, context: Any) -> Life:
        bus = LocalBus(self.broker, FLEET, "spillway/planner-1")
        clocks = PlannerClocks(self.loop.time, lambda: round(self.loop.time() * 1000))
        planner = Planner(bus, self.store, PlannerSettings(), "planner-1@planner-1", clocks)
        return Life(owner, context, bus, planner, asyncio.ensure_future(planner.run(asyncio.Event())))

    def kill_planner_after(self, seconds: float, steps: int) -> None:
        """Kills the planner (kill -9) before one of its next steps after `seconds`."""

        def kill_after_steps() -> None:
            life = self._life
            assert life is not None
            self.loop.run_after_steps(life.owner, steps, lambda: self._kill_life(life))

        self.loop.call_later(seconds, kill_after_steps)

    def _kill_life(self, life: Life) -> None:
        if life is self._life:
            self.kills += 1
            self.loop.kill_process(life.owner)
            self.loop.call_later(RESTART_SECONDS, self._begin_life)

    # ── Requests ────────────────────────────────────────────────────────────────────────────────────────────────

    async def apply(self, workload: Workload, idempotency_key: str) -> Answer:
        self.workloads[workload.key] = workload
        request = api.ApplyRequest(workload.manifests(), idempotency_key)
        return await self._ask_planner(lambda planner: planner.apply(request))

    async def scale(self, workload: Workload, replicas: int, idempotency_key: str) -> Answer:
        request = api.ScaleRequest(*workload.key, replicas, idempotency_key)
        return await self._ask_planner(lambda planner: planner.scale(request))

    async def _ask_planner(self, call: Any) -> Answer:
        """Asks as a client does. Without an answer, or if told to retry, asks again with the same key."""
        while True:
            life = self._life
            assert life is not None
            task = self.loop.create_task(call(life.planner), context=life.context.copy())
            await asyncio.wait({task}, timeout=CLIENT_SECONDS)
            if life.task.done():
                life.task.result()
            if task.done():
                try:
                    reply: PlacementReply = task.result()
                    return Answer(reply.placed, reply.unplaced)
                except RequestError as error:
                    if error.code != "UNAVAILABLE":
                        await asyncio.sleep(FOLLOWED_SECONDS)
                        return Answer(0, 0, REFUSED if error.reason in UNPLACEABLE else f"{error.code}: {error.text}")
            if self.loop.time() > 3600:
                return Answer(0, 0, UNKNOWN)
            self.retries += 1
            await asyncio.sleep(self.random.uniform(*RETRY_SECONDS))

    def unplaced_by_workload(self) -> dict[Key, int]:
        return {key: placed.unplaced for key, placed in self._placements.items() if placed.unplaced}

    def desired_by_cluster(self) -> Mapping[str, Mapping[Key, int]]:
        """Returns, by cluster, the replicas that it has or is to have."""
        wanted: dict[str, dict[Key, int]] = {}
        for key, placed in self._placements.items():
            for part in placed.parts:
                wanted.setdefault(part.cluster, {})[key] = part.replicas
        return wanted

    def declared_by_workload(self) -> dict[Key, int]:
        """Returns every workload that the present planner knows, with its placed and waiting replicas."""
        return {
            key: sum(part.replicas_kept for part in known.parts.values()) + known.unplaced
            for key, known in self.planner.state.workloads.items()
        }

    # ── Decisions in the log ────────────────────────────────────────────────────────────────────────────────────

    async def _follow_log(self) -> None:
        bus = LocalBus(self.broker, FLEET, "spillway/members")
        async with bus.follow_topics((PLACEMENTS, DECISIONS)) as feed:
            async for batch in feed:
                for record in sorted(batch.records, key=lambda one: one.topic == PLACEMENTS.name):
                    if isinstance(record.event, DecisionRecorded):
                        self._recorded[(record.event.namespace, record.event.name), record.event.generation] = (
                            record.event
                        )
                    elif isinstance(record.event, PlacementDecided):
                        self._apply_placement(record.event)

    def _apply_placement(self, placed: PlacementDecided) -> None:
        key = (placed.namespace, placed.name)
        before = self._placements.get(key)
        record = self._recorded.pop((key, placed.generation), None)
        if before is not None and record is not None:
            self._count_moves(before, placed, record)
        self._placements[key] = placed
        known = {part.cluster: part.version for part in before.parts} if before is not None else {}
        for part in placed.parts:
            if known.get(part.cluster) != part.version:
                arguments = (self.workloads[key], part.version, part.replicas, part.removing)
                delay = self.random.uniform(*CARRIED_OUT_SECONDS)
                self.loop.call_later(delay, self.members[part.cluster].apply_part, *arguments)

    def _count_moves(self, before: PlacementDecided, after: PlacementDecided, record: DecisionRecorded) -> None:
        old = {part.cluster: part.replicas_kept for part in before.parts}
        new = {part.cluster: part.replicas_kept for part in after.parts}
        certain = {entry.cluster: entry.certain for entry in record.inputs if entry.cluster}
        allowed = self.workloads[before.namespace, before.name].clusters
        bounds = []
        for cluster in sorted({*old, *new, *certain}):
            had, has = old.get(cluster, 0), new.get(cluster, 0)
            # A cluster that the policy no longer selects may keep at most the replicas that it has now.
            most = min(had, has) if allowed and cluster not in allowed else had + certain.get(cluster, 0)
            bounds.append(Bound(had, 0, max(most, has)))
        self.decisions[record.cause] += 1
        self.moves[record.cause] += sum(max(0, had - new.get(cluster, 0)) for cluster, had in old.items())
        self.least[record.cause] += least_moves(bounds, sum(new.values()))

    # ── Reports of the members ──────────────────────────────────────────────────────────────────────────────────

    async def add_cluster(self, cluster: Cluster, whole: StateChanges) -> None:
        bus = LocalBus(self.broker, FLEET, "spillway/snapshot")
        await bus.publish(ClusterJoined(cluster.name, cluster.name, "", cluster.tier, "", "", (), ()))
        records = Records(
            Stream(cluster.name, EPOCH, SnapshotRules(), pack_columns), Pending(cluster.name, SnapshotRules())
        )
        records.stream.set_initial_state(whole)
        self._records[cluster.name] = records
        for index in records.stream.whole_blocks_due(0.0):
            full = records.stream.whole_block_record(index, 0.0)
            assert full is not None
            await bus.publish(full)

    async def receive_report(self, cluster: str, report: Report) -> None:
        bus = LocalBus(self.broker, FLEET, "spillway/snapshot")
        records = self._records[cluster]
        sign = ClusterSign(round(report.age_seconds * 1000), NO_TROUBLE)
        events: list[Any] = list(records.stream.change_records(report.changes, sign))
        if not any(isinstance(event, CapacityChanged) and event.index == 0 for event in events):
            events.append(records.stream.heartbeat_record(sign))
        if report.groups is not None:
            records.pending.replace_groups(report.groups)
        events += records.pending.take_due_records(EPOCH, self.loop.time())
        events += [
            full
            for index in records.stream.whole_blocks_due(0.0)
            if (full := records.stream.whole_block_record(index, 0.0))
        ]
        for shown in report.shown:
            records.status_sequence += 1
            state = STATE_ABSENT if shown.gone else STATE_PRESENT
            numbers = (shown.replicas, shown.replicas, shown.replicas, shown.ready, shown.ready)
            about = (*shown.key, cluster, EPOCH, records.status_sequence, shown.version, state, "", *numbers)
            events.append(WorkloadObserved(*about))
        positions = await bus.publish(*events)
        for event, position in zip(events, positions, strict=True):
            if isinstance(event, CapacityChanged):
                records.stream.note_written_offset(position.offset)
