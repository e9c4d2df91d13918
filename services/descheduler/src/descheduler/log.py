"""Reads the log into the descheduler's state: whole topics first, then capacity changes from the right offset."""

from descheduler.core.state import DeschedulerState
from spillway import metrics, tracing
from spillway.addresses import (
    BRAKES,
    CAPACITY,
    CAPACITY_CHANGES,
    CAPACITY_NEEDED,
    CLUSTERS,
    LENDING,
    LENDING_RULES,
    NODE_USAGE,
    PENDING,
    RECALLS,
    TURNS_DESCHEDULER,
    WORKLOADS,
)
from spillway.bus import Bus, Offsets, Record, RecordBatch
from spillway.events import CapacityChanged, CapacityReported, TurnTaken
from spillway.feasibility.cluster_view import NEVER
from spillway.running.capacity_starts import CapacityStarts
from spillway.running.following import FollowedTopics, Follower
from spillway.wire import UnreadableMessage, unpack_columns

WHOLE = (
    CLUSTERS,
    CAPACITY,
    PENDING,
    WORKLOADS,
    CAPACITY_NEEDED,
    BRAKES,
    LENDING_RULES,
    LENDING,
    RECALLS,
    NODE_USAGE,
    TURNS_DESCHEDULER,
)
ORIGINS = (PENDING.name, LENDING.name)
"""The topics whose records cause recalls and their settlement. A decision continues the trace of such a record."""
OWN = frozenset(topic.name for topic in (LENDING_RULES, RECALLS, TURNS_DESCHEDULER))


class LendingIntake:
    """Applies the log's records to one state. While this instance writes, it skips the records that it wrote itself."""

    def __init__(self, state: DeschedulerState) -> None:
        self.state = state
        self.writing = False
        self.origins = tracing.Origins[str]()
        self._blocks = CapacityStarts()

    def start_offsets(self, ends: Offsets) -> Offsets:
        return self._blocks.take_start_offsets(lambda cluster: self.state.view_of_cluster(cluster).epoch)

    def apply_record(self, record: Record, live: bool) -> None:
        """Applies a record. Raises UnreadableMessage."""
        event = record.event
        other_claim = isinstance(event, TurnTaken) and event.service != "snapshot"
        if other_claim or (self.writing and record.topic in OWN):
            return
        trace = tracing.select_trace_headers(record.headers) if self.writing else ()
        with tracing.processing_span(record.topic, "descheduler", {"messaging.kafka.message.key": record.key}, trace):
            self._apply_to_state(record, live)
        if event is not None and record.topic in ORIGINS:
            self.origins.note_origin(
                record.key if record.topic == LENDING.name else record.key.partition("/")[0], trace
            )

    def _apply_to_state(self, record: Record, live: bool) -> None:
        event = record.event
        metrics.EVENTS_APPLIED.labels(record.topic).inc()
        if event is None:
            self.state.apply_tombstone(record.topic, record.key)
        elif isinstance(event, CapacityReported | CapacityChanged):
            self.state.apply_event(event, NEVER, record.offset, unpack_columns(event.columns))
            if isinstance(event, CapacityReported) and not live:
                self._blocks.note_block(event, record.partition)
        else:
            self.state.apply_event(event, offset=record.offset)

    async def end_batch(self, batch: RecordBatch, positions: Offsets) -> None:
        """Does nothing after a batch, because the next step decides on the changes."""


def follower_into(intake: LendingIntake, bus: Bus) -> Follower:
    followed = FollowedTopics("descheduler", WHOLE, (CAPACITY_CHANGES,), (UnreadableMessage,), last_only=(CAPACITY,))
    return Follower(bus, followed, intake)
