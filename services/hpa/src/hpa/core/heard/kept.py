"""Bounds the memory that one input record takes while it waits for a decision. Pure.

Anyone may publish values and backlogs, and a compressed record of 2 MiB costs its publisher 10 kB. So its texts are cut
before it is kept. Then its size in memory is estimated, so that kept records have a bound in bytes and in number.
"""

from dataclasses import replace
from typing import Final

from hpa.core.heard.heard_record import HeardRecord
from hpa.core.heard.inputs import BACKLOGS_MAX, SOURCE_MAX, TROUBLE_MAX, backlog_bytes_max, too_many_partitions
from spillway.events import Event, WorkloadDeclared
from spillway.events_scaling import BacklogObserved, LoadObserved, PodsObserved
from spillway.texts import cut_text_to_bytes

NAMES_BYTES_MAX: Final = 4_096
"""The most bytes of all names of one value or backlog. Five names as long as Kubernetes allows have 1,300."""
RECORD_BYTES: Final = 1_000
"""Bytes that a record takes in addition to its texts and rows: the objects of the record, its event and its trace, and
what WaitingRecords and Positions keep for it (390 and 570 bytes, measured; 2,200 for the first of a namespace)."""
ROW_BYTES: Final = 400
"""Bytes that a partition or a pod takes in addition to its texts."""
CHARACTER_BYTES: Final = 4
"""The most bytes that Python keeps for one character."""

Observed = LoadObserved | BacklogObserved


def event_with_bounded_texts(event: Event | None) -> Event | None:
    """Returns the event with its texts cut to the lengths that the inputs keep. Decisions stay the same.

    If a backlog has more partitions than hpa keeps for one workload, all are dropped, and its trouble text says so.
    """
    if not isinstance(event, LoadObserved | BacklogObserved):
        return event
    if isinstance(event, BacklogObserved) and backlog_bytes_max(event) > BACKLOGS_MAX:
        event = replace(event, partitions=(), trouble=event.trouble or too_many_partitions(event))
    source, trouble = cut_text_to_bytes(event.source, SOURCE_MAX), cut_text_to_bytes(event.trouble, TROUBLE_MAX)
    if source is event.source and trouble is event.trouble:
        return event
    return replace(event, source=source, trouble=trouble)


def has_long_names(event: Event | None) -> bool:
    """Returns whether the names of a value or backlog have more than NAMES_BYTES_MAX bytes together."""
    if not isinstance(event, LoadObserved | BacklogObserved):
        return False
    names = _names_in_event(event)
    if CHARACTER_BYTES * sum(map(len, names)) <= NAMES_BYTES_MAX:
        return False
    return sum(len(name.encode(errors="replace")) for name in names) > NAMES_BYTES_MAX


def record_memory_bytes(heard: HeardRecord) -> int:
    """Returns an estimate of the most bytes that a record takes in memory."""
    event = heard.event
    characters, rows = len(heard.key), 0
    if isinstance(event, LoadObserved | BacklogObserved):
        characters += sum(map(len, (*_names_in_event(event), event.source, event.trouble)))
    if isinstance(event, BacklogObserved):
        rows = len(event.partitions)
        characters += sum(len(one.topic) for one in event.partitions)
    elif isinstance(event, PodsObserved):
        rows = len(event.pods)
        characters += sum(len(one.name) for one in event.pods)
    elif isinstance(event, WorkloadDeclared):
        characters += len(event.manifest)
    return RECORD_BYTES + ROW_BYTES * rows + CHARACTER_BYTES * characters


def _names_in_event(event: Observed) -> tuple[str, ...]:
    if isinstance(event, LoadObserved):
        return event.namespace, event.name, event.metric, event.object, event.series, event.cluster, event.pod
    return event.namespace, event.name, event.connection, event.group, event.topic
