"""Writes the state as bytes and reads it back: for export over gRPC, for files, and for simulations elsewhere."""

import gzip
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from planner.core.explaining.exporting import Exported, exported_events, exported_holds, restore_hold
from planner.core.explaining.simulating import rules_without_bounds
from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.workload import check_decidable
from planner.core.manifests.templates import BadDeclaration
from planner.core.placement.recording import CODE_VERSION
from spillway.addresses import EVENTS_BY_TOPIC
from spillway.api import ExportedCount, ExportedEvent, ExportReply
from spillway.events import CapacityChanged, CapacityReported
from spillway.wire import (
    TYPE_PREFIX,
    UnreadableMessage,
    decode_event,
    encode_event,
    event_type,
    pack_columns,
    unpack_columns,
)

EVENTS_AT_ONCE_MAX = 200
BYTES_AT_ONCE_MAX = 1024 * 1024
NOW = 1000.0
"""The time of every state that read_state() returns, in seconds. Ages in the export are relative to it."""

_TOPIC_BY_TYPE = {TYPE_PREFIX + event.__name__: topic for topic, events in EVENTS_BY_TOPIC.items() for event in events}


class NotAnExport(Exception):
    """The data is no export that this version can read. The text says why."""


def export_state(state: PlannerState, now: float, at_ms: int, fleet: str) -> Iterator[ExportReply]:
    """Yields the state in replies of bounded size. The state may change between two replies: see exported_events()."""
    yield ExportReply(fleet, at_ms, CODE_VERSION, state.rules.to_text(), exported_holds(state, now), counted=True)
    counts = Counter[str]()
    events: list[ExportedEvent] = []
    size = 0
    for exported in exported_events(state, now):
        entry = _pack_event(exported)
        if events and (len(events) == EVENTS_AT_ONCE_MAX or size + len(entry.value) > BYTES_AT_ONCE_MAX):
            yield ExportReply(events=tuple(events))
            events, size = [], 0
        events.append(entry)
        size += len(entry.value)
        counts[entry.type] += 1
    yield ExportReply(events=tuple(events), counts=tuple(ExportedCount(*count) for count in sorted(counts.items())))


def _pack_event(exported: Exported) -> ExportedEvent:
    event, columns = exported
    if isinstance(event, CapacityReported) and columns is not None:
        event = replace(event, columns=pack_columns(columns))
    return ExportedEvent(event_type(event), encode_event(event))


def read_state(replies: Sequence[ExportReply]) -> PlannerState:
    """Returns the exported state, with rules that do not limit moves. Its clock is at NOW. Raises NotAnExport."""
    if not replies or not replies[0].settings:
        raise NotAnExport("it does not say with which settings")
    _check_event_counts(replies)
    try:
        state = PlannerState(rules_without_bounds(PlannerRules.from_text(replies[0].settings)))
        for reply in replies:
            for entry in reply.events:
                _apply_exported_event(state, entry)
    except (BadDeclaration, UnreadableMessage, KeyError, ValueError, TypeError) as error:
        raise NotAnExport(f"an event of it cannot be read by this version: {error}") from error
    for hold in replies[0].held_back:
        restore_hold(state, hold, NOW)
    return state


def has_event_counts(replies: Sequence[ExportReply]) -> bool:
    """Returns whether the export has the number of events. Without it, missing events cannot be found."""
    return bool(replies) and replies[0].counted


def _check_event_counts(replies: Sequence[ExportReply]) -> None:
    """Raises NotAnExport when the numbers of events by type differ from those in the export."""
    if not has_event_counts(replies):
        return
    told = {count.type: count.events for count in replies[-1].counts}
    found = Counter(entry.type for reply in replies for entry in reply.events)
    if (found and not told) or len(replies) == 1:
        raise NotAnExport("its end is missing")
    wrong = [
        f"{name.removeprefix(TYPE_PREFIX)}: {found[name]}, expected {told.get(name, 0)}"
        for name in sorted(told.keys() | found.keys())
        if found[name] != told.get(name, 0)
    ]
    if wrong:
        counts = f"{found.total()} of {sum(told.values())} are there"
        raise NotAnExport(f"records are missing, or there are too many: {counts}; {'; '.join(wrong)}")


def _apply_exported_event(state: PlannerState, entry: ExportedEvent) -> None:
    event = decode_event(_TOPIC_BY_TYPE[entry.type], entry.type, entry.value)
    if isinstance(event, CapacityReported | CapacityChanged):
        state.apply_event(event, NOW, 0, unpack_columns(event.columns))
    else:
        check_decidable(event)
        state.apply_event(event, NOW)


def save_export(replies: Sequence[ExportReply], path: Path) -> None:
    """Writes the replies as lines of JSON, gzipped.

    The counts are also in the first line, for files that are cut off.
    """
    with gzip.open(path, "wb") as file:
        for reply in [replace(replies[0], counts=replies[-1].counts), *replies[1:]]:
            file.write(msgspec.json.encode(reply) + b"\n")


def load_export(path: Path) -> list[ExportReply]:
    """Reads a file that save_export() wrote.

    Raises NotAnExport with the number of readable records when the file is cut off or damaged.
    """
    replies: list[ExportReply] = []
    line = b"\n"
    try:
        with gzip.open(path, "rb") as file:
            for line in file:
                replies.append(msgspec.json.decode(line, type=ExportReply))
    except (OSError, EOFError, zlib.error, msgspec.MsgspecError) as error:
        if not replies:
            raise NotAnExport(f"{path}: {_error_text(error)}") from error
        is_cut = isinstance(error, EOFError) or not line.endswith(b"\n")
        trouble = "it is cut off" if is_cut else f"it is damaged ({_error_text(error)})"
        raise NotAnExport(f"{path}: {trouble} after {_records_read_text(replies)}") from error
    if not replies:
        raise NotAnExport(f"{path}: it is empty")
    first, *rest = replies
    if first.counted and not (rest and rest[-1].counts) and first.counts:
        raise NotAnExport(f"{path}: it is cut off after {_records_read_text(replies)}")
    return [replace(first, counts=()), *rest]


def _error_text(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or str(error)


def _records_read_text(replies: Sequence[ExportReply]) -> str:
    """Returns a text with the number of records that were read, and the total if the file has it."""
    read = sum(len(reply.events) for reply in replies)
    told = sum(count.events for count in replies[0].counts)
    return f"{read} of {told} records" if told else f"{read} records"
