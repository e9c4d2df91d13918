"""Turns the events of one cluster into the records that are due. Joins its state, age, stream and pending groups."""

import math
from collections.abc import Collection as Many
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from snapshot.core.age import NEVER_MS, Age
from snapshot.core.cluster_state import KINDS, NOT_VITAL, ClusterState
from snapshot.core.log_book import Key, LogBook, block_index, group_name, workload_of
from snapshot.core.observed_pods import ObservedPods
from snapshot.core.pending import Pending
from snapshot.core.stream import ClusterSign, Pack, Stream, TooManyAmounts
from snapshot.core.workloads import WorkloadKey
from snapshot.settings import SnapshotSettings
from spillway.addresses import CAPACITY_CHANGES, Tombstone, address_of, capacity_address
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
    """One cluster's core. The caller passes events with their time on one monotonic clock, then asks for records.

    The caller writes what records() returned, then calls acknowledged() or unacknowledged() before it asks again.
    """

    def __init__(self, cluster: str, fleet: str, settings: SnapshotSettings, pack: Pack) -> None:
        self.cluster = cluster
        self.state = ClusterState(fleet, settings)
        self.age = Age(tuple(KIND_BY_PLURAL), settings)
        self.pending = Pending(cluster, settings)
        self.observed = ObservedPods(cluster, settings.pods_bytes_max, self.state.details, self.state.workloads)
        self.stream: Stream | None = None
        self._settings = settings
        self._pack = pack
        self._own: dict[Key, int] = {}
        self._tombstones: set[int] = set()
        self._heartbeat_at = 0.0
        self._withheld_until: float | None = None
        self._said_sign = (NO_TROUBLE, "", True)

    # ── What is heard ───────────────────────────────────────────────────────────────────────────────────────────

    def listed(self, kind: Kind, objects: Sequence[Any], now: float) -> None:
        self.state.listed(kind, objects, now)
        self._heard(kind, now, listed=True)

    def paged(self, kind: Kind, items: Iterable[Any]) -> None:
        """Upserts the objects on one page of a list that goes on.

        A page does not show that the stream works, or that an object is gone.
        """
        for item in items:
            self.state.upserted(kind, item)

    def retained(self, kind: Kind, uids: frozenset[str], now: float) -> None:
        """Ends a list that came page by page: objects that are not in `uids` are gone."""
        self.state.retained(kind, uids)
        self._heard(kind, now, listed=True)

    def upserted(self, kind: Kind, items: Iterable[Any], now: float) -> None:
        for item in items:
            self.state.upserted(kind, item)
        self._heard(kind, now)

    def removed(self, kind: Kind, item: Any, now: float) -> None:
        self.state.removed(kind, item)
        self._heard(kind, now)

    def alive(self, kind: Kind, now: float) -> None:
        self._heard(kind, now)

    def failed(self, kind: Kind, why: Trouble, *, forbidden: bool = False) -> None:
        """Records that a stream failed. forbidden: whether our account has no right to read the kind.

        A kind in NOT_VITAL is then ignored, and its known objects are dropped.
        """
        if forbidden and kind in NOT_VITAL:
            self.state.retained(kind, frozenset())
            self.age.not_allowed(kind.plural, why.text)
        else:
            self.age.failed(kind.plural, why)

    def probe_answered(self, started_at: float, nodes: int, pods: int, now: float, version: int | None = None) -> None:
        """Passes the answer of a probe to the node list and the age. version: as in Age.probe_answered."""
        self.state.nodes.probed(nodes, now)
        doubtful = self.state.nodes.doubt is not None
        self.age.probe_answered(started_at, {NODES.plural: nodes, PODS.plural: pods}, doubtful, now, version)

    def to_relist(self, now: float) -> list[Kind]:
        """Returns the kinds to list again: the count has differed for too long, or resourceVersions went back."""
        kinds = [KIND_BY_PLURAL[plural] for plural in self.age.to_relist(now)]
        for kind in kinds:
            self.age.relisting(kind.plural)
        return kinds

    def _heard(self, kind: Kind, now: float, *, listed: bool = False) -> None:
        count = len(self.state.pods) if kind is PODS else self.state.nodes.count if kind is NODES else 0
        self.age.heard(kind.plural, count, now, listed=listed)

    def follow(self, keys: Many[WorkloadKey]) -> None:
        """Sets the complete set of workloads with a scale policy; only their pods are recorded."""
        self.observed.follow(keys)

    def sampled(self, namespace: str, samples: Iterable[PodMetrics]) -> None:
        self.observed.sampled(namespace, samples)

    def not_sampled(self, namespace: str, why: str) -> None:
        self.observed.not_sampled(namespace, why)

    # ── What is said ────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def epoch(self) -> int:
        return -1 if self.stream is None else self.stream.epoch

    @property
    def needs_claim(self) -> bool:
        """Returns whether a new epoch is needed: there is none yet, or a block has outgrown its record."""
        return self.stream is None or self.stream.outgrown

    def claimed(self, epoch: int, now: float) -> None:
        """Starts a new epoch at the claim's offset.

        Sequences start again, and everything is written whole once it is known.
        """
        assert epoch > self.epoch
        blocks_min = 1 if self.stream is None else self.stream.blocks_wanted
        self.stream = Stream(self.cluster, epoch, self._settings, self._pack, blocks_min)
        self.pending.restate()
        self.observed.restate()
        self._heartbeat_at = now

    def current(self, now: float) -> bool:
        """Returns whether our state is one consistent state of the cluster. Otherwise the last records stay valid."""
        return self.age.streams_current(now) and self.state.nodes.doubt is None

    def sign(self, now: float) -> ClusterSign:
        """Returns the age, trouble and missing rights to write with each change record."""
        trouble = self.age.trouble(now)
        return ClusterSign(self.age.age_ms(now), trouble if trouble.text else self.state.nodes.trouble, self.age.unread)

    def next_due_at(self, now: float) -> float:
        """Returns when records() may have something to write, even if no event comes before."""
        if self.stream is None:
            return now
        due = self._heartbeat_at
        if self.current(now):
            due = min(due, self.pending.next_due_at())
        return now if self._tombstones else due

    def wants_to_speak(self, now: float) -> bool:
        """Returns whether records() would return a record now, because of an event that has come."""
        stream = self.stream
        if stream is None:
            return False
        if self._news_of(self.sign(now)) or (stream.begun and self.observed.dirty):
            return True
        return self.current(now) and (self.state.dirty or not stream.begun)

    def _news_of(self, sign: ClusterSign) -> bool:
        """Returns whether trouble or missing rights differ from the last record, or an age is known for the first time.

        Readers wait for each of these.
        """
        return (sign.trouble, sign.unread, sign.age_ms == NEVER_MS) != self._said_sign

    def say_age_again(self) -> None:
        """Makes a heartbeat due at once, because the last records were written late and their age is too small."""
        self._heartbeat_at = -math.inf

    def records(self, now: float, wall_ms: int) -> list[Record]:
        """Returns the records that are due, in the order in which they must be written.

        Changes come before their whole block.

        Pods of scaled workloads are included even while a stream has failed. Their known state is still valid, and
        readers must learn why there are no samples.
        wall_ms: Unix time, for readers that compare it with the time of samples.
        """
        stream = self.stream
        assert stream is not None
        if self._withheld_until is not None and now >= self._withheld_until:
            self._withheld_until = None
            self.age.may_be_said()
        sign, records = self.sign(now), list[Record]()
        if self.current(now):
            records += self._state_records(stream, sign, now)
        if (now >= self._heartbeat_at or self._news_of(sign)) and not _says_age(records):
            records.append(stream.heartbeat(sign))
        if _says_age(records):
            self._heartbeat_at = now + self._settings.heartbeat_seconds
            self._said_sign = sign.trouble, sign.unread, sign.age_ms == NEVER_MS
        records += self._whole_blocks(stream, now) if self._withheld_until is None else ()
        records += [Tombstone(capacity_address(self.cluster, index)) for index in sorted(self._tombstones)]
        self._tombstones.clear()
        if stream.begun:
            records += self.observed.take(stream.epoch, wall_ms - max(0, sign.age_ms))
        return records

    def _whole_blocks(self, stream: Stream, now: float) -> list[Record]:
        found: list[Record] = []
        for index in stream.fulls_due(now):
            try:
                full = stream.full(index, now)
            except TooManyAmounts as error:
                self._withhold(str(error), now)
                break
            if full is not None:
                found.append(full)
        return found

    def _withhold(self, why: str, now: float) -> None:
        """Stops writing whole blocks for a while. The capacity that readers have grows old."""
        self._withheld_until = now + self._settings.unwritable_retry_seconds
        self.age.cannot_be_said(f"capacity: unwritable: {why}"[:TROUBLE_CHARACTERS_MAX])

    def _state_records(self, stream: Stream, sign: ClusterSign, now: float) -> list[Record]:
        records: list[Record] = []
        changes = self.state.take_changes()
        if not stream.begun:
            stream.begin(self.state.whole())
        else:
            records += stream.changes(changes, sign)
        groups = self.state.take_groups()
        if groups is not None:
            self.pending.observed(groups)
        records += self.pending.take(stream.epoch, now)
        return records

    def acknowledged(self, records: Sequence[Record], offsets: Iterable[int]) -> None:
        """Marks the records as written, and stores their offsets."""
        assert self.stream is not None
        for record, offset in zip(records, offsets, strict=True):
            address = record.address if isinstance(record, Tombstone) else address_of(record)
            if address.topic is CAPACITY_CHANGES:
                self.stream.acknowledged(offset)
            else:
                self._own[address.topic.name, address.key] = offset

    def unacknowledged(self, records: Sequence[Record]) -> None:
        """Makes records due again, because nobody knows whether the log has them.

        Their blocks are written whole; their groups and pods are written again.
        """
        assert self.stream is not None
        for record in records:
            match record:
                case CapacityChanged() | CapacityReported():
                    self.stream.want_full(record.index)
                case PodsUnschedulable() | PodsScheduled():
                    self.pending.unsure(record.group)
                case PodsObserved():
                    self.observed.unsure((record.namespace, record.name))
                case Tombstone():
                    self._contradict((record.address.topic.name, record.address.key), self.stream)

    def unwritable(self, wrong: Iterable[UnwrittenRecord], now: float) -> None:
        """Changes how records are written that are too large for the log. Only their own subjects are affected.

        In place of a change, the whole block is written. If fewer nodes would fit, more blocks are made, as long as the
        cluster may have more. Otherwise no newer capacity is written for a while, because half a cluster would look
        like the whole. Call it after `unacknowledged`.
        """
        assert self.stream is not None
        may_split = self.stream.may_split
        for record, why, bytes_over in wrong:
            match record:
                case CapacityReported() if may_split and 0 < bytes_over <= len(record.columns) - COLUMNS_BYTES_LEAST:
                    self.stream.split()
                case CapacityReported():
                    self._withhold(why, now)
                case PodsUnschedulable():
                    self.pending.shorten(record.group)
                case PodsObserved():
                    self.observed.shorten((record.namespace, record.name))

    def contradict(self, book: LogBook) -> None:
        """Writes our state again for each key that somebody else wrote after us, or a tombstone when we have none."""
        if self.stream is None or not self.stream.begun:
            return
        for key in book.foreign(self.cluster, self.epoch, self._own):
            if key[0] == PODS_TOPIC.name and not self.observed.knows_policies:
                continue
            if book.is_tombstone(self.cluster, key) and not self._is_said(key, self.stream):
                book.settle(self.cluster, key)
            else:
                self._contradict(key, self.stream)

    def _contradict(self, key: Key, stream: Stream) -> None:
        index, group = block_index(key), group_name(key)
        if group is not None:
            self.pending.unsure(group)
        elif index is None:
            self.observed.unsure(workload_of(key))
        elif index < stream.count:
            stream.want_full(index)
        else:
            self._tombstones.add(index)

    def _is_said(self, key: Key, stream: Stream) -> bool:
        index, group = block_index(key), group_name(key)
        if group is not None:
            return self.pending.waits(group)
        return self.observed.says(workload_of(key)) if index is None else index < stream.count


def _says_age(records: Sequence[Record]) -> bool:
    return any(isinstance(record, CapacityChanged) and record.index == 0 for record in records)
