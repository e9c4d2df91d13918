"""Reads the log into hpa's state: compacted topics from their start, then values and backlogs from written offsets."""

from collections.abc import Awaitable, Callable, Sequence

from hpa.core.heard.heard_record import INPUTS, HeardRecord
from hpa.core.heard.kept import event_with_bounded_texts, has_long_names
from hpa.core.scaled import BadPolicy
from hpa.core.state import HpaState
from hpa.core.stored import UnreadableState
from spillway import metrics, tracing
from spillway.addresses import BACKLOG, LOAD, PODS, SCALE, SCALE_POLICIES, SCALE_STATE, TURNS_HPA, WORKLOADS
from spillway.bus import Bus, Offsets, Record, RecordBatch, partition_of
from spillway.events import TurnTaken
from spillway.running.following import FollowedTopics, Follower

WHOLE = (SCALE_POLICIES, SCALE_STATE, SCALE, WORKLOADS, PODS, TURNS_HPA)
FORGETTING = (LOAD, BACKLOG)
OWN = (SCALE_POLICIES, SCALE_STATE, SCALE)
"""Topics that only the active instance writes. While it is active, it does not read them."""

Hear = Callable[[Sequence[HeardRecord], Offsets], Awaitable[None]]
"""Takes input records (may be empty) and the read offsets after them. Returns when there is room for more records."""


class ScalingIntake:
    """Applies records to one state. Once `hear` is set, in the turn, input records are passed to it instead."""

    def __init__(self, make_state: Callable[[Callable[[str], int]], HpaState]) -> None:
        self.state = make_state(lambda key: partition_of(key, self._partitions))
        self.hear: Hear | None = None
        self._partitions = 1
        self._heard: list[HeardRecord] = []

    def start_offsets(self, ends: Offsets) -> Offsets:
        self._partitions = sum(1 for topic, _ in ends if topic == WORKLOADS.name)
        self.state.apply_early_records()
        return self.state.retained_start_offsets()

    def apply_record(self, record: Record, live: bool) -> None:
        """Applies a record. Raises BadPolicy, UnreadableState."""
        if isinstance(record.event, TurnTaken):
            return
        metrics.EVENTS_APPLIED.labels(record.topic).inc()
        if has_long_names(record.event):
            self.state.dropped["too long"] = self.state.dropped.get("too long", 0) + 1
            return
        trace = tracing.select_trace_headers(record.headers) if live else ()
        one = HeardRecord(
            record.topic, record.partition, record.offset, record.key, event_with_bounded_texts(record.event), trace
        )
        if self.hear is None:
            self.state.follow_record(one)
        elif record.topic in INPUTS:
            self._heard.append(one)

    async def end_batch(self, batch: RecordBatch, positions: Offsets) -> None:
        """Ends a batch. On a standby, stores the offsets up to which the partitions were read.

        During the turn, passes the records and the offsets to `hear` instead, because offsets must not be stored
        before the records are decided on.
        """
        if self.hear is None:
            self.state.positions.note_reached_offsets(batch.positions.items())
            return
        heard, self._heard = self._heard, []
        await self.hear(heard, positions)


def follower_into(intake: ScalingIntake, bus: Bus) -> Follower:
    return Follower(bus, FollowedTopics("hpa", WHOLE, FORGETTING, (BadPolicy, UnreadableState)), intake)
