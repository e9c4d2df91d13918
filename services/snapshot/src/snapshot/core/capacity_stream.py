"""Makes the capacity records of one epoch of one cluster: changes, whole blocks and heartbeats.

A block is a part of the cluster's nodes. Each record of a block has the next sequence.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2s
from zlib import crc32

from snapshot.core.cluster_state import StateChanges
from snapshot.core.rules import SnapshotRules
from snapshot.core.workloads import WorkloadKey
from spillway.columns import columns_of
from spillway.events import CapacityChanged, CapacityReported
from spillway.model import NamespaceFacts, NodeColumns, NodeRow, WorkloadFacts
from spillway.troubles import Trouble

Pack = Callable[[NodeColumns], bytes]

FACTS_BLOCK = 0
RECORD_BYTES = 128
"""The approximate bytes of a record without its columns and facts."""
FACTS_BYTES = 128
NAME_BYTES = 32
HASHES = 2**32


BLOCKS_BESIDE_NODES_MAX = 64
"""How many more blocks a cluster may have than twice the number that its number of nodes needs. They allow for nodes
with many bytes."""
AMOUNTS_MAX = 1_000_000
"""The most amounts in one record, zeros included: nodes times names of resources. 5,000 nodes may have 200 names."""


class TooManyAmounts(Exception):
    """Raised when a whole block has more than AMOUNTS_MAX, and the cluster may not have more blocks."""


def block_hash_key(cluster: str, epoch: int) -> bytes:
    return f"{epoch}/{cluster}".encode()[: blake2s.MAX_KEY_SIZE]


def node_hash(name: str, key: bytes) -> int:
    """Returns the number that decides a node's block. Readers need not compute it: a node is in its record's block.

    The hash has a key, so that nobody can choose node names that always share a block.
    """
    return int.from_bytes(blake2s(name.encode(), digest_size=8, key=key).digest())


def blocks_max(nodes: int, nodes_max: int) -> int:
    """Returns the most blocks that a cluster with so many nodes may have."""
    return 2 * -(-nodes // nodes_max) + BLOCKS_BESIDE_NODES_MAX


def blocks_needed(hashes: Sequence[int], nodes_max: int) -> int:
    """Returns the least number of blocks with at most nodes_max of these nodes each.

    Returns blocks_max when no smaller number is enough.
    """
    most = blocks_max(len(hashes), nodes_max)
    for count in range(max(1, -(-len(hashes) // nodes_max)), most):
        sizes = [0] * count
        for number in hashes:
            sizes[number % count] += 1
        if max(sizes) <= nodes_max:
            return count
    return most


@dataclass(frozen=True, slots=True)
class ClusterSign:
    """The values about the cluster itself in each change record: its age, its trouble, and the kinds not read."""

    age_ms: int
    trouble: Trouble
    unread: str = ""


@dataclass(slots=True)
class _Block:
    """One block of the cluster's nodes.

    rows: the rows as they were last written.
    full_due_at: the time at which the next whole record is due.
    sequence: the sequence of the last change record.
    changed_bytes: the bytes of the changes since the last whole record; full_bytes: the bytes of that record.
    full_wanted: whether a whole record is due now.
    """

    rows: dict[str, NodeRow] = field(default_factory=dict)
    full_due_at: float = float("inf")
    sequence: int = 0
    changed_bytes: int = 0
    full_bytes: int = 0
    full_wanted: bool = False


class Stream:
    """Turns changes into records. A whole record always equals the sum of the changes up to its sequence.

    Before set_initial_state() there are only heartbeats: readers use an epoch only once they have all its blocks.
    """

    def __init__(self, cluster: str, epoch: int, rules: SnapshotRules, pack: Pack, blocks_min: int = 1) -> None:
        self.cluster = cluster
        self.epoch = epoch
        self.begun = False
        self._rules = rules
        self._pack = pack
        self._blocks = [_Block()]
        self._facts: dict[WorkloadKey, WorkloadFacts] = {}
        self._namespaces: dict[str, NamespaceFacts] = {}
        self._api_server = ""
        self._as_of_offset = epoch
        self._blocks_min = blocks_min
        self._hash_key = block_hash_key(cluster, epoch)
        self._too_heavy = False

    @property
    def block_count(self) -> int:
        return len(self._blocks)

    @property
    def has_outgrown_block(self) -> bool:
        """Returns whether a block has more nodes or bytes than a record should.

        A new epoch with more blocks is then needed.
        """
        most = self._rules.block_nodes_max
        return self.may_split and (self._too_heavy or any(len(block.rows) > most for block in self._blocks))

    @property
    def may_split(self) -> bool:
        """Returns whether the cluster may have more blocks.

        If not, a block that is too large is treated as unwritable.
        """
        return self.block_count < self._blocks_max()

    @property
    def next_epoch_blocks_min(self) -> int:
        """Returns the least number of blocks for the next epoch."""
        return min(2 * self.block_count, self._blocks_max()) if self._too_heavy else 1

    def set_initial_state(self, whole: StateChanges) -> None:
        """Sets the state with which the epoch starts. Whole records of all blocks are due at once."""
        assert not self.begun
        self.begun = True
        nodes_max = self._rules.block_nodes_max
        needed = blocks_needed([self._hash_of_node(row.name) for row in whole.rows], nodes_max)
        count = min(max(needed, self._blocks_min), blocks_max(len(whole.rows), nodes_max))
        self._blocks += [_Block() for _ in range(1, count)]
        for block in self._blocks:
            block.full_wanted = True
        for row in whole.rows:
            self._blocks[self._block_index_of_node(row.name)].rows[row.name] = row
        self._facts = {_workload_key(facts): facts for facts in whole.facts}
        self._namespaces = {entry.name: entry for entry in whole.namespaces}
        self._api_server = whole.api_server

    def change_records(self, changes: StateChanges, sign: ClusterSign) -> Iterator[CapacityChanged]:
        """Yields the change records: namespaces first, block 0 last.

        Block 0 has the counts of our workloads. If readers got these before the other blocks, they would see pods as
        counted whose room still looks free.
        """
        if changes.api_server != self._api_server:  # Only a whole block has api_server.
            self._api_server = changes.api_server
            self.request_whole_block(FACTS_BLOCK)
        rows: list[list[NodeRow]] = [[] for _ in self._blocks]
        removed: list[list[str]] = [[] for _ in self._blocks]
        for row in changes.rows:
            index = self._block_index_of_node(row.name)
            if self._blocks[index].rows.get(row.name) != row:
                self._blocks[index].rows[row.name] = row
                rows[index].append(row)
        for name in changes.removed:
            index = self._block_index_of_node(name)
            if self._blocks[index].rows.pop(name, None) is not None:
                removed[index].append(name)
        facts = [entry for entry in changes.facts if self._facts.get(_workload_key(entry)) != entry]
        self._facts.update((_workload_key(entry), entry) for entry in facts)
        gone = [key for key in changes.facts_removed if self._facts.pop(key, None) is not None]
        yield from self._namespace_change_records(changes, sign)
        for index in range(1, self.block_count):
            if rows[index] or removed[index]:
                *earlier, last = _split_rows(rows[index])
                yield from (self._change_record(index, piece, sign, ()) for piece in earlier)
                yield self._change_record(index, last, sign, removed[index])
        if not (rows[FACTS_BLOCK] or removed[FACTS_BLOCK] or facts or gone):
            return
        *earlier, rows[FACTS_BLOCK] = _split_rows(rows[FACTS_BLOCK])
        yield from (self._change_record(FACTS_BLOCK, piece, sign, ()) for piece in earlier)
        most = self._rules.facts_per_record_max
        yield self._change_record(FACTS_BLOCK, rows[FACTS_BLOCK], sign, removed[FACTS_BLOCK], facts[:most], gone[:most])
        for start in range(most, max(len(facts), len(gone)), most):
            yield self._change_record(
                FACTS_BLOCK, (), sign, (), facts[start : start + most], gone[start : start + most]
            )

    def _namespace_change_records(self, changes: StateChanges, sign: ClusterSign) -> Iterator[CapacityChanged]:
        """Yields the change records of namespaces.

        They are written first, so that no reader sees more of a quota left than there is.
        """
        new = [entry for entry in changes.namespaces if self._namespaces.get(entry.name) != entry]
        self._namespaces.update((entry.name, entry) for entry in new)
        gone = [name for name in changes.namespaces_removed if self._namespaces.pop(name, None) is not None]
        most = self._rules.facts_per_record_max
        for start in range(0, max(len(new), len(gone)), most):
            here = slice(start, start + most)
            record = self._change_record(FACTS_BLOCK, (), sign, ())
            filled = replace(record, namespaces=tuple(new[here]), namespaces_removed=tuple(gone[here]))
            self._blocks[FACTS_BLOCK].changed_bytes += _record_bytes_estimate(filled)
            yield filled

    def heartbeat_record(self, sign: ClusterSign) -> CapacityChanged:
        return self._change_record(FACTS_BLOCK, (), sign, ())

    def whole_blocks_due(self, now: float) -> list[int]:
        """Returns the blocks that must be written whole: on request, after many changes, or after full_seconds."""
        if not self.begun:
            return []
        heavy_from = self._rules.full_bytes_min
        return [
            index
            for index, block in enumerate(self._blocks)
            if block.full_wanted or block.changed_bytes >= max(block.full_bytes, heavy_from) or now >= block.full_due_at
        ]

    def whole_block_record(self, index: int, now: float) -> CapacityReported | None:
        """Returns the record of a whole block; None when it is too large and the cluster may have more blocks.

        Raises TooManyAmounts. When there may be no more blocks, a block with too many bytes is returned all the same.
        The log then takes or refuses it.
        """
        block = self._blocks[index]
        rows = [block.rows[name] for name in sorted(block.rows)]
        columns = self._packed_columns(index, rows)
        if columns is None or (len(columns) > self._rules.block_bytes_max and len(rows) > 1 and self.may_split):
            self._too_heavy = True
            return None
        facts = tuple(self._facts[key] for key in sorted(self._facts)) if index == FACTS_BLOCK else ()
        spaces = tuple(self._namespaces[name] for name in sorted(self._namespaces)) if index == FACTS_BLOCK else ()
        api_server = self._api_server if index == FACTS_BLOCK else ""
        first = block.full_due_at == float("inf")
        block.full_due_at = now + (self._first_period_seconds(index) if first else self._rules.full_seconds)
        entries = len(facts) + len(spaces) + _volume_claim_count(spaces)
        block.changed_bytes, block.full_bytes = 0, len(columns) + FACTS_BYTES * entries
        block.full_wanted = False
        return CapacityReported(
            self.cluster,
            self.epoch,
            index,
            self.block_count,
            block.sequence,
            self._as_of_offset,
            columns,
            facts,
            spaces,
            api_server,
        )

    def request_more_blocks(self) -> None:
        """Makes the next epoch have more blocks, because a whole block was too large for a record."""
        self._too_heavy = True

    def request_whole_block(self, index: int) -> None:
        if index < self.block_count:
            self._blocks[index].full_wanted = True

    def note_written_offset(self, offset: int) -> None:
        """Stores the offset of a written change. Whole records carry it, and their readers continue after it."""
        self._as_of_offset = max(self._as_of_offset, offset + 1)

    def _blocks_max(self) -> int:
        return blocks_max(sum(len(block.rows) for block in self._blocks), self._rules.block_nodes_max)

    def _hash_of_node(self, name: str) -> int:
        return node_hash(name, self._hash_key)

    def _block_index_of_node(self, name: str) -> int:
        return self._hash_of_node(name) % self.block_count

    def _packed_columns(self, index: int, rows: Sequence[NodeRow]) -> bytes | None:
        """Packs the rows of a whole block.

        Returns None when they have too many amounts and the cluster may have more blocks.
        """
        if len(_split_rows(rows)) == 1:
            return self._pack(columns_of(rows))
        if self.may_split:
            return None
        what = f"CapacityReported {self.cluster}/{index}: amounts of {len(rows)} nodes"
        raise TooManyAmounts(f"{what}: expected at most {AMOUNTS_MAX} by nodes and resources")

    def _change_record(
        self,
        index: int,
        rows: Sequence[NodeRow],
        sign: ClusterSign,
        removed: Iterable[str],
        facts: Sequence[WorkloadFacts] = (),
        facts_removed: Sequence[WorkloadKey] = (),
    ) -> CapacityChanged:
        block = self._blocks[index]
        block.sequence += 1
        event = CapacityChanged(
            cluster=self.cluster,
            epoch=self.epoch,
            index=index,
            sequence=block.sequence,
            age_ms=sign.age_ms,
            columns=self._pack(columns_of(rows)),
            removed=tuple(removed),
            facts=tuple(facts),
            facts_removed=tuple(facts_removed),
            trouble=sign.trouble.text,
            unread=sign.unread,
            trouble_code=sign.trouble.code,
        )
        if not is_heartbeat(event):
            block.changed_bytes += _record_bytes_estimate(event)
        return event

    def _first_period_seconds(self, index: int) -> float:
        """Returns the seconds from a block's first whole record to its second one.

        They differ by block. Otherwise clusters whose turns were taken together would always be written together.
        """
        share = crc32(f"{self.cluster}/{index}".encode()) / HASHES
        return self._rules.full_seconds * (0.5 + share / 2)


def is_heartbeat(event: CapacityChanged) -> bool:
    """Returns whether the record has nothing but the cluster's age and trouble."""
    said = event.columns or event.removed or event.facts or event.facts_removed
    return not (said or event.namespaces or event.namespaces_removed)


def _split_rows(rows: Sequence[NodeRow]) -> list[list[NodeRow]]:
    """Cuts the rows into pieces of at most AMOUNTS_MAX amounts, or of one row. No rows are one empty piece."""
    pieces: list[list[NodeRow]] = [[]]
    names: set[str] = set()
    for row in rows:
        names.update(row.allocatable, row.requested)
        if pieces[-1] and len(names) * (len(pieces[-1]) + 1) > AMOUNTS_MAX:
            pieces.append([])
            names = {*row.allocatable, *row.requested}
        pieces[-1].append(row)
    return pieces


def _record_bytes_estimate(event: CapacityChanged) -> int:
    entries = len(event.facts) + len(event.facts_removed) + len(event.namespaces) + len(event.namespaces_removed)
    entries += _volume_claim_count(event.namespaces)
    return RECORD_BYTES + len(event.columns) + NAME_BYTES * len(event.removed) + FACTS_BYTES * entries


def _volume_claim_count(namespaces: Iterable[NamespaceFacts]) -> int:
    return sum(len(entry.volume_claims) for entry in namespaces)


def _workload_key(facts: WorkloadFacts) -> WorkloadKey:
    return facts.namespace, facts.name
