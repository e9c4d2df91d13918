"""Turns the events of one cluster into the records that are due. Combines its state, age, stream and pending groups."""

import math
from collections.abc import Collection as Many
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from snapshot.core.age import NEVER_MS, Age
from snapshot.core.capacity_stream import ClusterSign, Pack, Stream, TooManyAmounts
from snapshot.core.cluster_state import KINDS, NOT_VITAL, ClusterState
from snapshot.core.log_book import Key, LogBook, block_index, group_name, workload_of_key
from snapshot.core.observed_pods import ObservedPods
from snapshot.core.pending import Pending
from snapshot.core.rules import SnapshotRules
from snapshot.core.workloads import WorkloadKey
from spillway.addresses import CAPACITY_CHANGES, Tombstone, address_of_event, capacity_address
from spillway.addresses import PODS as PODS_TOPIC
from spillway.events import CapacityChanged, CapacityReported, PodsScheduled, PodsUnschedulable
from spillway.events_scaling import PodsObserved
from spillway.kubernetes.objects import NODES, PODS, Kind
from spillway.kubernetes.pod_metrics import PodMetrics
from spillway.troubles import NO_TROUBLE, Trouble

Record = CapacityChanged | CapacityReported | PodsUnschedulable | PodsScheduled | PodsObserved | Tombstone

TROUBLE_CHARACTERS_MAX = 500
"""The most characters of a reason why a cluster cannot be followed."""
COLUMNS_BYTES_LEAST = 64 * 1024
"""The least bytes of a block's columns after a split. If less would be needed, the other fields are too large."""
KIND_BY_PLURAL = {kind.plural: kind for kind in KINDS}


class UnwrittenRecord(NamedTuple):
    """A record that the log does not take, with the reason.

    bytes_over: its bytes above the limit; 0 for any other reason.
    """

    record: Record
    why: str
    bytes_over: int


class Collection:
    """The core of one cluster's collector. The caller passes events, with their time on one monotonic clock.

    It asks for records with take_due_records() and writes them. Then it calls note_written_records() or
    note_unconfirmed_records() before it asks again.
    """

    def __init__(self, cluster: str, fleet: str, rules: SnapshotRules, pack: Pack) -> None:
        self.cluster = cluster
        self.state = ClusterState(fleet, rules)
        self.age = Age(tuple(KIND_BY_PLURAL), rules)
        self.pending = Pending(cluster, rules)
        self.observed = ObservedPods(cluster, rules.pods_bytes_max, self.state.details, self.state.workloads)
        self.stream: Stream | None = None
        self._rules = rules
        self._pack = pack
        self._own: dict[Key, int] = {}
        self._tombstones: set[int] = set()
        self._heartbeat_at = 0.0
        self._withheld_until: float | None = None
        self._said_sign = (NO_TROUBLE, "", True)

    # ── What is heard ───────────────────────────────────────────────────────────────────────────────────────────

    def replace_objects(self, kind: Kind, objects: Sequence[Any], now: float) -> None:
        self.state.replace_objects(kind, objects, now)
        self._note_stream_event(kind, now, listed=True)

    def upsert_page(self, kind: Kind, items: Iterable[Any]) -> None:
        """Adds or updates the objects on one page of a list that has more pages.

        A page alone does not show that the stream works, or that an object is gone.
        """
        for item in items:
            self.state.upsert_object(kind, item)

    def end_paged_list(self, kind: Kind, uids: frozenset[str], now: float) -> None:
        """Ends a list that came page by page: objects that are not in `uids` are gone."""
        self.state.retain_objects(kind, uids)
        self._note_stream_event(kind, now, listed=True)

    def upsert_objects(self, kind: Kind, items: Iterable[Any], now: float) -> None:
        for item in items:
            self.state.upsert_object(kind, item)
        self._note_stream_event(kind, now)

    def remove_object(self, kind: Kind, item: Any, now: float) -> None:
        self.state.remove_object(kind, item)
        self._note_stream_event(kind, now)

    def note_stream_alive(self, kind: Kind, now: float) -> None:
        self._note_stream_event(kind, now)

    def note_stream_failed(self, kind: Kind, why: Trouble, *, forbidden: bool = False) -> None:
        """Records that a stream failed. forbidden: whether our account has no right to read the kind.

        A kind in NOT_VITAL is then ignored, and its known objects are dropped.
        """
        if forbidden and kind in NOT_VITAL:
            self.state.retain_objects(kind, frozenset())
            self.age.note_stream_forbidden(kind.plural, why.text)
        else:
            self.age.note_stream_failed(kind.plural, why)

    def note_probe_answered(
        self, started_at: float, nodes: int, pods: int, now: float, version: int | None = None
    ) -> None:
        """Passes the answer of a probe to the node list and the age. version: as in Age.note_probe_answered()."""
        self.state.nodes.check_doubted_list(nodes, now)
        doubtful = self.state.nodes.doubt is not None
        self.age.note_probe_answered(started_at, {NODES.plural: nodes, PODS.plural: pods}, doubtful, now, version)

    def take_kinds_to_relist(self, now: float) -> list[Kind]:
        """Returns the kinds to list again, because their count has differed for too long or resourceVersions went back.

        Also notes that their new lists begin.
        """
        kinds = [KIND_BY_PLURAL[plural] for plural in self.age.sources_to_relist(now)]
        for kind in kinds:
            self.age.note_relisting(kind.plural)
        return kinds

    def _note_stream_event(self, kind: Kind, now: float, *, listed: bool = False) -> None:
        count = len(self.state.pods) if kind is PODS else self.state.nodes.node_count if kind is NODES else 0
        self.age.note_stream_alive(kind.plural, count, now, listed=listed)

    def set_scaled_workloads(self, keys: Many[WorkloadKey]) -> None:
        """Sets the complete set of workloads with a scale policy; only their pods are recorded."""
        self.observed.set_scaled_workloads(keys)

    def store_samples(self, namespace: str, samples: Iterable[PodMetrics]) -> None:
        self.observed.store_samples(namespace, samples)

    def drop_samples(self, namespace: str, why: str) -> None:
        self.observed.drop_samples(namespace, why)

    # ── What is said ────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def epoch(self) -> int:
        return -1 if self.stream is None else self.stream.epoch

    @property
    def needs_claim(self) -> bool:
        """Returns whether a new epoch is needed: there is none yet, or a block has outgrown its record."""
        return self.stream is None or self.stream.has_outgrown_block

    def begin_epoch(self, epoch: int, now: float) -> None:
        """Starts a new epoch, the offset of a claim.

        Sequences start again, and all blocks are written whole once the state is known.
        """
        assert epoch > self.epoch
        blocks_min = 1 if self.stream is None else self.stream.next_epoch_blocks_min
        self.stream = Stream(self.cluster, epoch, self._rules, self._pack, blocks_min)
        self.pending.begin_epoch()
        self.observed.begin_epoch()
        self._heartbeat_at = now

    def is_state_current(self, now: float) -> bool:
        """Returns whether our state is one consistent state of the cluster. Otherwise the last records stay valid."""
        return self.age.has_current_streams(now) and self.state.nodes.doubt is None

    def cluster_sign(self, now: float) -> ClusterSign:
        """Returns the age, trouble and missing rights to write with each change record."""
        trouble = self.age.cluster_trouble(now)
        return ClusterSign(
            self.age.age_ms(now), trouble if trouble.text else self.state.nodes.node_list_trouble, self.age.unread_kinds
        )

    def next_due_at(self, now: float) -> float:
        """Returns the time at which a record may be due even if no event comes before."""
        if self.stream is None:
            return now
        due = self._heartbeat_at
        if self.is_state_current(now):
            due = min(due, self.pending.next_due_at())
        return now if self._tombstones else due

    def has_record_due(self, now: float) -> bool:
        """Returns whether an event has made a record due now."""
        stream = self.stream
        if stream is None:
            return False
        if self._has_sign_changed(self.cluster_sign(now)) or (stream.begun and self.observed.has_changes):
            return True
        return self.is_state_current(now) and (self.state.has_changes or not stream.begun)

    def _has_sign_changed(self, sign: ClusterSign) -> bool:
        """Returns whether trouble or missing rights differ from the last record, or an age is known for the first time.

        Readers wait for each of these.
        """
        return (sign.trouble, sign.unread, sign.age_ms == NEVER_MS) != self._said_sign

    def make_heartbeat_due(self) -> None:
        """Makes a heartbeat due at once. Call it after a late write, as the age in the written records is too small."""
        self._heartbeat_at = -math.inf

    def take_due_records(self, now: float, wall_ms: int) -> list[Record]:
        """Returns the records that are due, in the order in which they must be written: changes before whole blocks.

        Records of scaled workloads' pods are included even while a stream has failed. Their known state is still valid,
        and readers must learn why there are no samples.
        wall_ms: Unix time in milliseconds, for readers that compare it with the time of samples.
        """
        stream = self.stream
        assert stream is not None
        if self._withheld_until is not None and now >= self._withheld_until:
            self._withheld_until = None
            self.age.clear_capacity_unwritable()
        sign, records = self.cluster_sign(now), list[Record]()
        if self.is_state_current(now):
            records += self._take_state_records(stream, sign, now)
        if (now >= self._heartbeat_at or self._has_sign_changed(sign)) and not _has_age_record(records):
            records.append(stream.heartbeat_record(sign))
        if _has_age_record(records):
            self._heartbeat_at = now + self._rules.heartbeat_seconds
            self._said_sign = sign.trouble, sign.unread, sign.age_ms == NEVER_MS
        records += self._due_whole_blocks(stream, now) if self._withheld_until is None else ()
        records += [Tombstone(capacity_address(self.cluster, index)) for index in sorted(self._tombstones)]
        self._tombstones.clear()
        if stream.begun:
            records += self.observed.take_due_records(stream.epoch, wall_ms - max(0, sign.age_ms))
        return records

    def _due_whole_blocks(self, stream: Stream, now: float) -> list[Record]:
        found: list[Record] = []
        for index in stream.whole_blocks_due(now):
            try:
                full = stream.whole_block_record(index, now)
            except TooManyAmounts as error:
                self._withhold_capacity(str(error), now)
                break
            if full is not None:
                found.append(full)
        return found

    def _withhold_capacity(self, why: str, now: float) -> None:
        """Stops writing whole blocks for a while. Readers then see the cluster's capacity become stale."""
        self._withheld_until = now + self._rules.unwritable_retry_seconds
        self.age.note_capacity_unwritable(f"capacity: unwritable: {why}"[:TROUBLE_CHARACTERS_MAX])

    def _take_state_records(self, stream: Stream, sign: ClusterSign, now: float) -> list[Record]:
        records: list[Record] = []
        changes = self.state.take_changes()
        if not stream.begun:
            stream.set_initial_state(self.state.whole_state())
        else:
            records += stream.change_records(changes, sign)
        groups = self.state.take_waiting_groups()
        if groups is not None:
            self.pending.replace_groups(groups)
        records += self.pending.take_due_records(stream.epoch, now)
        return records

    def note_written_records(self, records: Sequence[Record], offsets: Iterable[int]) -> None:
        """Marks the records as written, and stores their offsets."""
        assert self.stream is not None
        for record, offset in zip(records, offsets, strict=True):
            address = record.address if isinstance(record, Tombstone) else address_of_event(record)
            if address.topic is CAPACITY_CHANGES:
                self.stream.note_written_offset(offset)
            else:
                self._own[address.topic.name, address.key] = offset

    def note_unconfirmed_records(self, records: Sequence[Record]) -> None:
        """Makes records due again, because nobody knows whether the log has them.

        Their blocks are written whole; their groups and pods are written again.
        """
        assert self.stream is not None
        for record in records:
            match record:
                case CapacityChanged() | CapacityReported():
                    self.stream.request_whole_block(record.index)
                case PodsUnschedulable() | PodsScheduled():
                    self.pending.make_record_due(record.group)
                case PodsObserved():
                    self.observed.make_record_due((record.namespace, record.name))
                case Tombstone():
                    self._make_record_due((record.address.topic.name, record.address.key), self.stream)

    def note_unwritable_records(self, wrong: Iterable[UnwrittenRecord], now: float) -> None:
        """Changes the form of records that were too large for the log. It affects no other group or workload.

        A change is replaced by its whole block. If a whole block is too large, the next epoch has more blocks, as long
        as the cluster may have more. Otherwise no newer capacity is written for a while, because a part of a cluster
        would look like the whole. Call it after note_unconfirmed_records().
        """
        assert self.stream is not None
        may_split = self.stream.may_split
        for record, why, bytes_over in wrong:
            match record:
                case CapacityReported() if may_split and 0 < bytes_over <= len(record.columns) - COLUMNS_BYTES_LEAST:
                    self.stream.request_more_blocks()
                case CapacityReported():
                    self._withhold_capacity(why, now)
                case PodsUnschedulable():
                    self.pending.shorten_record(record.group)
                case PodsObserved():
                    self.observed.shorten_record((record.namespace, record.name))

    def overrule_foreign_records(self, book: LogBook) -> None:
        """Makes a record due for each key that another writer has written after us: our state, or a tombstone if we
        have none."""
        if self.stream is None or not self.stream.begun:
            return
        for key in book.foreign_keys(self.cluster, self.epoch, self._own):
            if key[0] == PODS_TOPIC.name and not self.observed.knows_policies:
                continue
            if book.is_tombstone(self.cluster, key) and not self._has_state_for_key(key, self.stream):
                book.forget_tombstone(self.cluster, key)
            else:
                self._make_record_due(key, self.stream)

    def _make_record_due(self, key: Key, stream: Stream) -> None:
        index, group = block_index(key), group_name(key)
        if group is not None:
            self.pending.make_record_due(group)
        elif index is None:
            self.observed.make_record_due(workload_of_key(key))
        elif index < stream.block_count:
            stream.request_whole_block(index)
        else:
            self._tombstones.add(index)

    def _has_state_for_key(self, key: Key, stream: Stream) -> bool:
        index, group = block_index(key), group_name(key)
        if group is not None:
            return self.pending.has_waiting_group(group)
        return self.observed.has_record_of(workload_of_key(key)) if index is None else index < stream.block_count


def _has_age_record(records: Sequence[Record]) -> bool:
    return any(isinstance(record, CapacityChanged) and record.index == 0 for record in records)
