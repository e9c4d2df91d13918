"""The records of one epoch of one cluster: blocks, their sequences, and when a whole block is due (P3)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from zlib import crc32

from snapshot.core.cluster_state import Changes
from snapshot.core.workloads import WorkloadKey
from snapshot.settings import Settings
from spillway.columns import columns_of
from spillway.events import CapacityChanged, CapacityReported
from spillway.model import NamespaceFacts, NodeColumns, NodeRow, WorkloadFacts
from spillway.troubles import Trouble

Pack = Callable[[NodeColumns], bytes]

FACTS_BLOCK = 0
RECORD_WEIGHT = 128
"""Bytes of a record beside its columns and facts, roughly."""
FACTS_WEIGHT = 128
NAME_WEIGHT = 32
HASHES = 2**32


def block_of(name: str, count: int) -> int:
    return crc32(name.encode()) % count


def blocks_needed(names: Sequence[str], nodes_max: int) -> int:
    """The least number of blocks of which none has more than nodes_max of these nodes."""
    count = max(1, -(-len(names) // nodes_max))
    while True:
        sizes = [0] * count
        for name in names:
            sizes[block_of(name, count)] += 1
        if max(sizes) <= nodes_max:
            return count
        count += 1


@dataclass(frozen=True, slots=True)
class Sign:
    """What each record says of the cluster itself."""

    age_ms: int
    trouble: Trouble
    unread: str = ""


@dataclass(slots=True)
class _Block:
    """rows: as they were last said. weight: of the changes since the last whole record, in bytes."""

    rows: dict[str, NodeRow] = field(default_factory=dict)
    full_due_at: float = float("inf")
    sequence: int = 0
    weight: int = 0
    full_weight: int = 0
    full_wanted: bool = False


class Stream:
    """Turns changes into records. What a whole record says is exactly what the changes up to its sequence add up to.

    Before begin() there are only heartbeats: an epoch takes effect when all its blocks are there.
    """

    def __init__(self, cluster: str, epoch: int, settings: Settings, pack: Pack, blocks_min: int = 1) -> None:
        self.cluster = cluster
        self.epoch = epoch
        self.begun = False
        self._settings = settings
        self._pack = pack
        self._blocks = [_Block()]
        self._facts: dict[WorkloadKey, WorkloadFacts] = {}
        self._namespaces: dict[str, NamespaceFacts] = {}
        self._api_server = ""
        self._as_of_offset = epoch
        self._blocks_min = blocks_min
        self._too_heavy = False

    @property
    def count(self) -> int:
        return len(self._blocks)

    @property
    def outgrown(self) -> bool:
        """A block has more nodes or bytes than a record should: a new epoch with more blocks is needed."""
        return self._too_heavy or any(len(block.rows) > self._settings.block_nodes_max for block in self._blocks)

    @property
    def blocks_wanted(self) -> int:
        """The least number of blocks of the next epoch."""
        return 2 * self.count if self._too_heavy else 1

    def begin(self, whole: Changes) -> None:
        """The state that the epoch starts with; whole records of it are due at once."""
        assert not self.begun
        self.begun = True
        needed = blocks_needed([row.name for row in whole.rows], self._settings.block_nodes_max)
        self._blocks += [_Block() for _ in range(1, max(needed, self._blocks_min))]
        for block in self._blocks:
            block.full_wanted = True
        for row in whole.rows:
            self._blocks[block_of(row.name, self.count)].rows[row.name] = row
        self._facts = {_key(facts): facts for facts in whole.facts}
        self._namespaces = {entry.name: entry for entry in whole.namespaces}
        self._api_server = whole.api_server

    def changes(self, changes: Changes, sign: Sign) -> Iterator[CapacityChanged]:
        """Block 0 last: what is counted of our workloads must not be known before the room that their pods take."""
        if changes.api_server != self._api_server:  # Another credential, another cluster: only a whole block says it.
            self._api_server = changes.api_server
            self.want_full(FACTS_BLOCK)
        rows: list[list[NodeRow]] = [[] for _ in self._blocks]
        removed: list[list[str]] = [[] for _ in self._blocks]
        for row in changes.rows:
            index = block_of(row.name, self.count)
            if self._blocks[index].rows.get(row.name) != row:
                self._blocks[index].rows[row.name] = row
                rows[index].append(row)
        for name in changes.removed:
            index = block_of(name, self.count)
            if self._blocks[index].rows.pop(name, None) is not None:
                removed[index].append(name)
        facts = [entry for entry in changes.facts if self._facts.get(_key(entry)) != entry]
        self._facts.update((_key(entry), entry) for entry in facts)
        gone = [key for key in changes.facts_removed if self._facts.pop(key, None) is not None]
        yield from self._namespace_changes(changes, sign)
        for index in range(1, self.count):
            if rows[index] or removed[index]:
                yield self._record(index, rows[index], sign, removed[index])
        if not (rows[FACTS_BLOCK] or removed[FACTS_BLOCK] or facts or gone):
            return
        most = self._settings.facts_per_record_max
        yield self._record(FACTS_BLOCK, rows[FACTS_BLOCK], sign, removed[FACTS_BLOCK], facts[:most], gone[:most])
        for start in range(most, max(len(facts), len(gone)), most):
            yield self._record(FACTS_BLOCK, (), sign, (), facts[start : start + most], gone[start : start + most])

    def _namespace_changes(self, changes: Changes, sign: Sign) -> Iterator[CapacityChanged]:
        """First: what a quota has left must not be more than before the pods that use it are known."""
        new = [entry for entry in changes.namespaces if self._namespaces.get(entry.name) != entry]
        self._namespaces.update((entry.name, entry) for entry in new)
        gone = [name for name in changes.namespaces_removed if self._namespaces.pop(name, None) is not None]
        most = self._settings.facts_per_record_max
        for start in range(0, max(len(new), len(gone)), most):
            here = slice(start, start + most)
            record = self._record(FACTS_BLOCK, (), sign, ())
            filled = replace(record, namespaces=tuple(new[here]), namespaces_removed=tuple(gone[here]))
            self._blocks[FACTS_BLOCK].weight += _weight(filled)
            yield filled

    def heartbeat(self, sign: Sign) -> CapacityChanged:
        return self._record(FACTS_BLOCK, (), sign, ())

    def fulls_due(self, now: float) -> list[int]:
        """Blocks that must be written whole: asked for, heavy with changes, or last written an hour ago."""
        if not self.begun:
            return []
        heavy_from = self._settings.full_bytes_min
        return [
            index
            for index, block in enumerate(self._blocks)
            if block.full_wanted or block.weight >= max(block.full_weight, heavy_from) or now >= block.full_due_at
        ]

    def full(self, index: int, now: float) -> CapacityReported | None:
        """The whole block; None when it has become too heavy for a record."""
        block = self._blocks[index]
        columns = self._pack(columns_of([block.rows[name] for name in sorted(block.rows)]))
        if len(columns) > self._settings.block_bytes_max and len(block.rows) > 1:
            self._too_heavy = True
            return None
        facts = tuple(self._facts[key] for key in sorted(self._facts)) if index == FACTS_BLOCK else ()
        spaces = tuple(self._namespaces[name] for name in sorted(self._namespaces)) if index == FACTS_BLOCK else ()
        api_server = self._api_server if index == FACTS_BLOCK else ""
        first = block.full_due_at == float("inf")
        block.full_due_at = now + (self._first_period(index) if first else self._settings.full_seconds)
        entries = len(facts) + len(spaces) + _claims_of(spaces)
        block.weight, block.full_weight = 0, len(columns) + FACTS_WEIGHT * entries
        block.full_wanted = False
        return CapacityReported(
            self.cluster,
            self.epoch,
            index,
            self.count,
            block.sequence,
            self._as_of_offset,
            columns,
            facts,
            spaces,
            api_server,
        )

    def split(self) -> None:
        """A whole block was more than a record takes: the next epoch has more of them."""
        self._too_heavy = True

    def want_full(self, index: int) -> None:
        if index < self.count:
            self._blocks[index].full_wanted = True

    def acknowledged(self, offset: int) -> None:
        """A change of this cluster stands there: who reads a whole record from now on goes on behind it."""
        self._as_of_offset = max(self._as_of_offset, offset + 1)

    def _record(
        self,
        index: int,
        rows: Sequence[NodeRow],
        sign: Sign,
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
            block.weight += _weight(event)
        return event

    def _first_period(self, index: int) -> float:
        """Spread over the hour, so that clusters that were taken together are not written together for ever."""
        share = crc32(f"{self.cluster}/{index}".encode()) / HASHES
        return self._settings.full_seconds * (0.5 + share / 2)


def is_heartbeat(event: CapacityChanged) -> bool:
    said = event.columns or event.removed or event.facts or event.facts_removed
    return not (said or event.namespaces or event.namespaces_removed)


def _weight(event: CapacityChanged) -> int:
    entries = len(event.facts) + len(event.facts_removed) + len(event.namespaces) + len(event.namespaces_removed)
    entries += _claims_of(event.namespaces)
    return RECORD_WEIGHT + len(event.columns) + NAME_WEIGHT * len(event.removed) + FACTS_WEIGHT * entries


def _claims_of(namespaces: Iterable[NamespaceFacts]) -> int:
    return sum(len(entry.volume_claims) for entry in namespaces)


def _key(facts: WorkloadFacts) -> WorkloadKey:
    return facts.namespace, facts.name
