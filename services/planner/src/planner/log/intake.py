"""Reads the log into the planner's state.

It reads most topics whole. Then it reads capacity-changes, from the offset at which the capacity blocks were written.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.workload import check_decidable
from planner.core.manifests.templates import BadDeclaration
from spillway import metrics, tracing
from spillway.addresses import (
    BRAKES,
    CAPACITY,
    CAPACITY_CHANGES,
    CAPACITY_NEEDED,
    CLUSTERS,
    DEPENDENCIES,
    PENDING,
    PLACEMENTS,
    SCALE,
    SCALE_POLICIES,
    SHAPES,
    TURNS_PLANNER,
    WORKLOAD_STATUS,
    WORKLOADS,
)
from spillway.bus import Bus, Offsets, Record, RecordBatch
from spillway.events import CapacityChanged, CapacityReported
from spillway.feasibility.cluster_view import NEVER
from spillway.running.capacity_starts import CapacityStarts
from spillway.running.following import FollowedTopics, Follower
from spillway.wire import UnreadableMessage, unpack_columns

WHOLE = (
    CLUSTERS,
    CAPACITY,
    PENDING,
    WORKLOADS,
    DEPENDENCIES,
    PLACEMENTS,
    CAPACITY_NEEDED,
    WORKLOAD_STATUS,
    TURNS_PLANNER,
    BRAKES,
    SHAPES,
    SCALE_POLICIES,
    SCALE,
)
OWN = frozenset(topic.name for topic in WHOLE if topic.emitter == "planner")
WATCHED = (WORKLOADS, PLACEMENTS, WORKLOAD_STATUS)


class PlannerIntake:
    """Applies the log's records to one state. While this planner writes, it does not read its own records back.

    writing: whether this planner has the turn, so that it skips its own records.
    caught_up_at: the clock's time at the last proof that capacity-changes had been read to its end.
    """

    def __init__(
        self,
        state: PlannerState,
        clock: Callable[[], float],
        on_records: Callable[[tuple[Record, ...], Offsets], None],
    ) -> None:
        self.state = state
        self.writing = False
        self.caught_up_at: float = NEVER
        self._clock = clock
        self._on_records = on_records
        self._blocks = CapacityStarts()

    def start_offsets(self, ends: Offsets) -> Offsets:
        return self._blocks.take_start_offsets(lambda cluster: self.state.cluster_view(cluster).epoch)

    def apply_record(self, record: Record, live: bool) -> None:
        """Applies a record. Raises BadDeclaration or UnreadableMessage."""
        if self.writing and record.topic in OWN:
            return
        trace = tracing.select_trace_headers(record.headers) if self.writing else ()
        with tracing.processing_span(record.topic, "planner", {"messaging.kafka.message.key": record.key}, trace):
            self._apply_to_state(record, live)

    def _apply_to_state(self, record: Record, live: bool) -> None:
        metrics.EVENTS_APPLIED.labels(record.topic).inc()
        event = record.event
        now = self._clock()
        if isinstance(event, CapacityChanged):
            event, now = self._with_time_in_log(event, now, live)
        if event is None:
            self.state.apply_tombstone(record.topic, record.key, record.offset)
        elif isinstance(event, CapacityReported | CapacityChanged):
            self.state.apply_event(event, now, record.offset, unpack_columns(event.columns))
            if isinstance(event, CapacityReported) and not live:
                self._blocks.note_block(event, record.partition)
        else:
            check_decidable(event)
            self.state.apply_event(event, now, record.offset)

    def _with_time_in_log(self, event: CapacityChanged, now: float, live: bool) -> tuple[CapacityChanged, float]:
        """Returns the change with its age as of now, and the time at which to apply it.

        A planner that was frozen or cut off reads late. So the time for which the change may have been in the log is
        added to its age: the time since the planner had last caught up. For records read at a start that time is not
        known. They are applied at the time NEVER, which makes no cluster fresh.
        """
        if not live or self.caught_up_at == NEVER:
            return event, NEVER
        unread_ms = round((now - self.caught_up_at) * 1000)
        return (replace(event, age_ms=event.age_ms + unread_ms) if event.age_ms >= 0 else event), now

    async def end_batch(self, batch: RecordBatch, positions: Offsets) -> None:
        if batch.records:
            self._on_records(batch.records, positions)


def follower_into(intake: PlannerIntake, bus: Bus) -> Follower:
    unfit = (BadDeclaration, UnreadableMessage)
    return Follower(bus, FollowedTopics("planner", WHOLE, (CAPACITY_CHANGES,), unfit, last_only=(CAPACITY,)), intake)


def changed_keys(records: Iterable[Record]) -> set[tuple[str, str]]:
    """Returns the keys of the workloads that these records are about. Only topics in WATCHED count."""
    names = {topic.name for topic in WATCHED}
    keys = set()
    for record in records:
        namespace, slash, rest = record.key.partition("/")
        if record.topic in names and slash:  # Claims and their tombstones have only a cluster's name as key.
            keys.add((namespace, rest.partition("/")[0]))
    return keys
