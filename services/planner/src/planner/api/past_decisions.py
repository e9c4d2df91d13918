"""Reads past decisions on workloads from the store: in pages, in pieces, and few at a time for each caller."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from planner.log.projection import Store, history_key
from spillway.addresses import DECISIONS
from spillway.events import DecisionRecorded
from spillway.rpc.holder_places import HolderPlaces
from spillway.rpc.security import current_caller_name
from spillway.wire import TYPE_PREFIX, decode_event


@dataclass(frozen=True, slots=True)
class DecisionsPage:
    """Past decisions on a workload, newest first.

    next_from: the first decision for which the page has no room. It is empty when no decision is left.
    """

    records: tuple[DecisionRecorded, ...] = ()
    next_from: str = ""


class PastDecisions:
    """Reads the decisions that the projection keeps. Others are served while a long history is decoded."""

    def __init__(self, store: Store, reads_of_a_caller: int, page_bytes: int) -> None:
        """Begins without reads.

        reads_of_a_caller: how many histories are read for one caller at one time; its further reads wait.
        page_bytes: the bytes of records after which a page ends.
        """
        self._store = store
        self._places = HolderPlaces(reads_of_a_caller)
        self._page_bytes = page_bytes

    async def read_page(self, namespace: str, name: str, limit: int, first: str = "") -> DecisionsPage:
        """Returns the last `limit` decisions on a workload, as far as one page has room. Raises StoreUnavailable.

        first: the generation of the decision with which the page begins; empty for the newest.
        """
        records, size = list[DecisionRecorded](), 0
        for blob in await self._read_blobs(namespace, name, limit):
            record = _record_of_blob(blob)
            await asyncio.sleep(0)
            if not records and first and str(record.generation) != first:
                continue
            size += len(blob)
            if records and size > self._page_bytes:
                return DecisionsPage(tuple(records), str(record.generation))
            records.append(record)
        return DecisionsPage(tuple(records))

    async def read_all(self, namespace: str, name: str, limit: int) -> tuple[DecisionRecorded, ...]:
        """Returns the last `limit` decisions on a workload, newest first. Raises StoreUnavailable."""
        records = list[DecisionRecorded]()
        for blob in await self._read_blobs(namespace, name, limit):
            records.append(_record_of_blob(blob))
            await asyncio.sleep(0)
        return tuple(records)

    async def _read_blobs(self, namespace: str, name: str, limit: int) -> Sequence[bytes]:
        async with self._places.semaphore_of(current_caller_name()):
            return await self._store.read_history(history_key(namespace, name), limit)


def _record_of_blob(blob: bytes) -> DecisionRecorded:
    record = decode_event(DECISIONS.name, TYPE_PREFIX + DecisionRecorded.__name__, blob)
    assert isinstance(record, DecisionRecorded)
    return record
