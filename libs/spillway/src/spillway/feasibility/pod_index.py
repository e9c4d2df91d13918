"""The bound pods of one cluster, by node and by the properties that selectors see."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from spillway.kubernetes.pod_terms import LABELS_UNKNOWN
from spillway.model import Int64s, PodTable, PodTerm

CHUNKS_MAX = 64
TABLES_MIN = 256
"""The number of tables from which on unused tables are removed. A table is unused when no pod has it any more."""

ANY_NAMESPACE = ""

Bearers = dict[tuple[str, PodTerm], list[int]]
"""Tables of the pods that have a term, by (namespace of the pod, term)."""

_NONE = np.zeros(0, np.int64)


class Entries(NamedTuple):
    """Numbers of pods as three columns of equal length. Entry i: row rows[i] has counts[i] pods of table tables[i]."""

    rows: Int64s
    tables: Int64s
    counts: Int64s


class PodIndex:
    """The bound pods of one cluster. tables: one for each set of pods that no selector can tell apart.

    Changes are appended, and merged at the next read, because usually many changes come between two reads.
    """

    def __init__(self) -> None:
        self.tables: list[PodTable] = []
        self._repelling: dict[str, Bearers] = {}
        """The bearers of anti-affinity terms, by the namespace that a term may select."""
        self._unknown: list[int] = []
        self._ids: dict[PodTable, int] = {}
        self._by_namespace: dict[str, list[int]] = {}
        self._stamp_of_row: Int64s = _NONE
        self._stamp = 0
        self._chunks: list[tuple[Entries, int]] = []
        self._entries: Entries | None = Entries(_NONE, _NONE, _NONE)

    def replace_pods(self, rows: Int64s, tables: Iterable[PodTable], entries: Entries) -> None:
        """Replaces all pods of these rows. entries: their rows and tables are indices into `rows` and `tables`."""
        self._stamp += 1
        self._grow_rows(int(rows.max(initial=-1)) + 1)
        self._stamp_of_row[rows] = self._stamp
        self._entries = None
        if len(entries.rows):
            ids = np.array([self._table_id(table) for table in tables], np.int64)
            found = Entries(rows[entries.rows], ids[entries.tables], entries.counts)
            self._chunks.append((found, self._stamp))
        if len(self._chunks) > CHUNKS_MAX:
            self.all_entries()

    def remove_pods(self, row: int) -> None:
        """Removes all pods of a row."""
        self._grow_rows(row + 1)
        self._stamp += 1
        self._stamp_of_row[row] = self._stamp
        self._entries = None

    def all_entries(self) -> Entries:
        if self._entries is None:
            self._entries = self._merge_chunks()
        return self._entries

    def tables_matching(self, namespaces: Iterable[str] | None, matches: Callable[[PodTable], bool]) -> list[int]:
        """Returns the ids of the tables in these namespaces (None: all) that meet a condition.

        The ids are valid until the next change.
        """
        self.all_entries()  # First, because it may renumber the tables.
        if namespaces is None:
            ids: Iterable[int] = range(len(self.tables))
        else:
            ids = (index for namespace in namespaces for index in self._by_namespace.get(namespace, ()))
        return [index for index in ids if matches(self.tables[index])]

    @property
    def tables_with_unknown_labels(self) -> list[int]:
        """Returns the tables of pods whose labels are unknown."""
        if self._unknown:
            self.all_entries()
        return self._unknown

    @property
    def namespaces(self) -> Iterable[str]:
        return self._by_namespace.keys()

    @property
    def has_repelling_pods(self) -> bool:
        """Returns whether a pod may keep any other pods away."""
        return bool(self._repelling)

    def may_repel_pods_of(self, namespace: str) -> bool:
        """Returns whether a pod may keep pods of this namespace away."""
        return namespace in self._repelling or ANY_NAMESPACE in self._repelling

    def anti_affinity_terms_about(self, namespace: str) -> Iterator[tuple[str, PodTerm, Sequence[int]]]:
        """Yields once each anti-affinity term of bound pods that may select pods of this namespace.

        Each is (namespace of the pods that have the term, the term, the tables of these pods).
        """
        if not self.may_repel_pods_of(namespace):
            return
        self.all_entries()
        for about in (namespace, ANY_NAMESPACE):
            for (bearer, term), tables in self._repelling.get(about, {}).items():
                yield bearer, term, tables

    def pod_counts_of_tables(self, tables: Iterable[int], rows: int) -> Int64s:
        """Returns [rows]: the number of pods of these tables on each row."""
        wanted = np.zeros(len(self.tables), np.bool_)
        wanted[list(tables)] = True
        if not wanted.any():
            return np.zeros(rows, np.int64)
        entries = self.all_entries()
        here = wanted[entries.tables]
        return np.bincount(entries.rows[here], entries.counts[here], minlength=rows).astype(np.int64)[:rows]

    def independent_copy(self) -> "PodIndex":
        """Returns a copy that can be changed on its own."""
        other = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, (np.ndarray, list)):
                setattr(other, name, value.copy())
            elif isinstance(value, dict):
                setattr(other, name, {key: copy(entry) for key, entry in value.items()})
        other._repelling = {about: _copied_bearers(bearers) for about, bearers in self._repelling.items()}  # noqa: SLF001
        return other

    def without_tables(self, tables: Iterable[int]) -> "PodIndex":
        """Returns a copy without the pods of these tables."""
        gone = np.zeros(len(self.tables), np.bool_)
        gone[list(tables)] = True
        entries = self.all_entries()
        kept = ~gone[entries.tables]
        rest = copy(self)
        rest._entries = Entries(*(column[kept] for column in entries))  # noqa: SLF001
        rest._chunks = []  # noqa: SLF001
        return rest

    def _grow_rows(self, rows: int) -> None:
        missing = rows - len(self._stamp_of_row)
        if missing > 0:
            self._stamp_of_row = np.pad(self._stamp_of_row, (0, missing + rows // 4))

    def _table_id(self, table: PodTable) -> int:
        known = self._ids.get(table)
        if known is None:
            known = self._ids[table] = len(self.tables)
            self.tables.append(table)
            self._by_namespace.setdefault(table.namespace, []).append(known)
            if table.labels == LABELS_UNKNOWN:
                self._unknown.append(known)
            for term in table.apart:
                for namespace in _namespaces_repelled(term, table.namespace):
                    bearers = self._repelling.setdefault(namespace, {})
                    bearers.setdefault((table.namespace, term), []).append(known)
        return known

    def _merge_chunks(self) -> Entries:
        kept = []
        for entries, stamp in self._chunks:
            # A row that was replaced after this chunk has a higher stamp, so its entries here are out of date.
            live = self._stamp_of_row[entries.rows] <= stamp
            kept.append(Entries(*(column[live] for column in entries)))
        columns = (np.concatenate(column) if column else _NONE for column in zip(*kept, strict=True))
        together = Entries(*columns) if kept else Entries(_NONE, _NONE, _NONE)
        together = self._without_unused_tables(together)
        self._stamp += 1
        self._chunks = [(together, self._stamp)] if len(together.rows) else []
        return together

    def _without_unused_tables(self, entries: Entries) -> Entries:
        used: npt.NDArray[np.int64] = np.unique(entries.tables)
        if len(self.tables) < max(TABLES_MIN, 2 * len(used)):
            return entries
        kept = [self.tables[index] for index in used.tolist()]
        self.tables, self._repelling, self._ids, self._by_namespace, self._unknown = [], {}, {}, {}, []
        for table in kept:
            self._table_id(table)
        return entries._replace(tables=np.searchsorted(used, entries.tables))


def _copied_bearers(bearers: Bearers) -> Bearers:
    return {key: tables.copy() for key, tables in bearers.items()}


def _namespaces_repelled(term: PodTerm, bearer: str) -> Iterable[str]:
    if term.namespace_selector is not None:
        return (*term.namespaces, ANY_NAMESPACE)
    return term.namespaces or (bearer,)
