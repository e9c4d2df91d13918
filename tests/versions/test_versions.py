"""Versions side by side: what an older one wrote is read, what this one writes the older one reads, and where something
is lost. The older one's own records and descriptors are in data/; `make versions` runs its code itself, both ways."""

import dataclasses
import json
import typing
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import compatibility
import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from versions import DATA

import examples
from descheduler.core.rules import LendingRules
from descheduler.core.state import DeschedulerState
from descheduler.log import WHOLE as DESCHEDULER_TOPICS
from hpa.core.stored import StoredState, read_stored_state, stored_state_bytes
from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.state import PlannerState
from planner.core.manifests.templates import BadDeclaration
from planner.log.intake import WHOLE as PLANNER_TOPICS
from propagator.core.desired import PartTarget
from propagator.core.live import LiveWorkload, ObjectMarks
from propagator.core.status import observed_status, status_on_hold, status_with_changed_field
from spillway.addresses import EVENT_TYPES, EVENTS_BY_TOPIC, TOPICS
from spillway.columns import NO_NODES
from spillway.compressed_text import pack_text, unpack_text
from spillway.dead_letters import LetterReading, StoredRecord
from spillway.events import ClusterJoined, JobEnd, StatusDetails, TurnTaken, WorkloadObserved
from spillway.feasibility.cluster_view import NEVER
from spillway.model import Generation
from spillway.status_details import details_of_status
from spillway.v1 import events_pb2, lending_pb2, planner_pb2, scaling_pb2
from spillway.wire import TYPE_PREFIX, decode_event, encode_event, event_type

OLD = "cfd3804"
"""Wrote data/: it knew no lending, no volumes, no kinds of work."""
OLD_ROWS = json.loads((DATA / f"events-{OLD}.json").read_text())
OLD_PROTOS = FileDescriptorSet.FromString((DATA / f"protos-{OLD}.binpb").read_bytes())
TOPIC_BY_EVENT: dict[type, str] = examples.TOPICS_BY_EVENT
KNOWN_THEN = {row["type"].removeprefix(TYPE_PREFIX) for row in OLD_ROWS}


def protos_of_this_version() -> FileDescriptorSet:
    files = FileDescriptorSet()
    for messages in (events_pb2, planner_pb2, scaling_pb2, lending_pb2):
        messages.DESCRIPTOR.CopyToProto(files.file.add())
    return files


def messages_of_older_version() -> dict[str, type[Message]]:
    """The older version's messages, beside those of this one."""
    pool = descriptor_pool.DescriptorPool()
    for file in OLD_PROTOS.file:
        pool.Add(file)
    events = pool.FindFileByName("spillway/v1/events.proto")
    return {name: message_factory.GetMessageClass(one) for name, one in events.message_types_by_name.items()}


OLD_MESSAGES = messages_of_older_version()


def id_of_row(row: Any) -> str:
    return str(row["type"]).removeprefix(TYPE_PREFIX)


# ── The protos ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_no_number_of_the_older_protos_means_something_else_now() -> None:
    assert compatibility.find_incompatibilities(OLD_PROTOS, protos_of_this_version()) == []


def find_message(files: FileDescriptorSet, name: str) -> DescriptorProto:
    return next(one for file in files.file for one in file.message_type if one.name == name)


def retype_field(files: FileDescriptorSet) -> None:
    find_message(files, "ClusterJoined").field[0].type = FieldDescriptorProto.TYPE_BYTES


def renumber_field(files: FileDescriptorSet) -> None:
    find_message(files, "ClusterJoined").field[0].number = 99


def rename_field(files: FileDescriptorSet) -> None:
    find_message(files, "ClusterJoined").field[0].name = "member"


def repeat_field(files: FileDescriptorSet) -> None:
    find_message(files, "ClusterJoined").field[0].label = FieldDescriptorProto.LABEL_REPEATED


def give_field_another_message(files: FileDescriptorSet) -> None:
    find_message(files, "PlacementDecided").field[2].type_name = ".spillway.v1.Pair"


def remove_field(files: FileDescriptorSet) -> None:
    del find_message(files, "ClusterJoined").field[0]


def rename_message(files: FileDescriptorSet) -> None:
    find_message(files, "ClusterJoined").name = "ClusterAdded"


def stream_replies(files: FileDescriptorSet) -> None:
    next(one for file in files.file for one in file.service if one.name == "Planner").method[0].server_streaming = True


BREAKS = (
    retype_field,
    renumber_field,
    rename_field,
    repeat_field,
    give_field_another_message,
    remove_field,
    rename_message,
    stream_replies,
)


@pytest.mark.parametrize("broken", BREAKS, ids=lambda change: change.__name__)
def test_each_way_to_break_them_is_noticed(broken: Callable[[FileDescriptorSet], None]) -> None:
    files = protos_of_this_version()
    broken(files)
    assert compatibility.find_incompatibilities(OLD_PROTOS, files)


def test_what_is_removed_with_its_number_and_name_reserved_is_no_break_and_may_not_come_back() -> None:
    files = protos_of_this_version()
    joined = find_message(files, "ClusterJoined")
    gone = joined.field[0]
    joined.reserved_range.add(start=gone.number, end=gone.number + 1)
    joined.reserved_name.append(gone.name)
    del joined.field[0]
    assert compatibility.find_incompatibilities(OLD_PROTOS, files) == []
    (returned,) = compatibility.find_incompatibilities(files, protos_of_this_version())
    assert "reserved" in returned


# ── Older records, read by this version ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("row", OLD_ROWS, ids=id_of_row)
def test_what_the_older_version_wrote_is_read_as_it_was_meant(row: Any) -> None:
    found = examples.read_row(row)
    assert "trouble" not in found
    assert _fields_in_common(found["fields"], row["fields"]) == row["fields"]


def _fields_in_common(new: Any, old: Any) -> Any:
    """Of a newer value what the older one has fields for."""
    if isinstance(old, dict):
        return {
            name: _fields_in_common(new[compatibility.RENAMED.get(name, name)], value) for name, value in old.items()
        }
    if isinstance(old, list):
        assert len(new) == len(old)
        return [_fields_in_common(one, other) for one, other in zip(new, old, strict=True)]
    return new


ZERO_IS_FINE = {
    ("Policy", "work"): "it is only ever asked whether it is NearLine or Offline",
}
"""Fields that the older version did not write and whose default is not protobuf's: why their absence does no harm."""


def test_a_field_that_older_records_lack_reads_as_its_default() -> None:
    """Absent, a field reads as zero. So a new field's default is zero, or every reader takes zero for the default."""
    differing = {
        (kind.__name__, field.name)
        for kind in _dataclasses_in_events()
        for field in dataclasses.fields(kind)
        if not _is_zero_default(field.default) and not _was_field_known(kind, field.name)
    }
    assert differing == set(ZERO_IS_FINE)


def _was_field_known(kind: type, name: str) -> bool:
    old = OLD_MESSAGES.get(kind.__name__)
    return old is not None and name in old.DESCRIPTOR.fields_by_name


def _is_zero_default(default: Any) -> bool:
    """Whether what is absent in a record reads as this, or nothing is the default."""
    if default in (dataclasses.MISSING, "", 0, 0.0, False, (), None, b""):
        return True
    return bool(dataclasses.is_dataclass(type(default)) and default == type(default)())


def _dataclasses_in_events() -> set[type]:
    """Every dataclass in an event."""
    found: set[type] = set()

    def walk_hint(hint: Any) -> None:
        for argument in typing.get_args(hint):
            walk_hint(argument)
        if isinstance(hint, type) and dataclasses.is_dataclass(hint) and hint not in found:
            found.add(hint)
            for inner in typing.get_type_hints(hint).values():
                walk_hint(inner)

    for event in EVENT_TYPES:
        walk_hint(event)
    return found


@pytest.mark.parametrize("event", EVENT_TYPES, ids=lambda event: event.__name__)
def test_a_record_with_no_field_at_all_is_read(event: type) -> None:
    """As if all of its fields had been added since."""
    assert isinstance(decode_event(TOPIC_BY_EVENT[event], TYPE_PREFIX + event.__name__, b""), event)


# ── This version's records, read by the older one ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "event", [event for event in EVENT_TYPES if event.__name__ in KNOWN_THEN], ids=lambda event: event.__name__
)
def test_what_this_version_writes_the_older_one_reads_without_what_it_does_not_know(event: type) -> None:
    written = encode_event(examples.filled_event(event))
    now = getattr(events_pb2, event.__name__).FromString(written)
    then = OLD_MESSAGES[event.__name__].FromString(written)
    shown = MessageToDict(then, preserving_proto_field_name=True)
    assert _fields_in_common(MessageToDict(now, preserving_proto_field_name=True), shown) == shown
    known = {field.name for field in OLD_MESSAGES[event.__name__].DESCRIPTOR.fields}
    assert set(shown) == known, "every field that it knew has something in it"


def test_kinds_that_the_older_version_did_not_know_are_passed_over_once_they_were_told() -> None:
    """As here for a kind of the future, however many: compacted topics keep them when one goes back to this version."""
    unknown = {event.__name__ for event in EVENT_TYPES} - KNOWN_THEN
    assert unknown == {"LendingDeclared", "NodeLent", "NodeReturned", "NodeRecalled", "RecallSettled", "NodeUsed"}
    reading = LetterReading("f", "planner", per_minute_max=3)
    assert reading.read_records([stored_record("ClusterHibernated", b"\x0a\x01x", "x")] * 30, now=0.0) == ()
    (letter,) = reading.pending
    assert letter.reason.partition(":")[0] == "ce_type 'spillway.v1.ClusterHibernated'"


def stored_record(kind: str, value: bytes, key: str) -> StoredRecord:
    headers = (("fleet", b"f"), ("ce_type", f"{TYPE_PREFIX}{kind}".encode()))
    return StoredRecord("spillway.clusters.v1", 0, 0, key.encode(), value, headers)


def test_an_event_of_a_later_version_with_more_fields_is_no_dead_letter() -> None:
    value = examples.filled_event(ClusterJoined)
    later = encode_event(value) + b"\xfa\x3e\x05later"
    (record,) = LetterReading("f", "planner", 3).read_records(
        [stored_record("ClusterJoined", later, value.cluster)], now=0.0
    )
    assert record.event == value


def test_a_status_keeps_its_words_beside_its_details_for_versions_that_go_by_the_words() -> None:
    """A propagator of before takes a cluster back and runs no Job anew; of its own records this one knows the same."""
    target, over = PartTarget("own-1", "shop", "web"), JobEnd("Complete", 5)
    job = LiveWorkload(ObjectMarks("u", "1", "f", "web", False), Generation(1, 1), 4, 0, 0, 0, 0, "Job", over)
    said = status_on_hold(status_with_changed_field(observed_status(target, job, None), "spec.x"), None, target, "why")
    older = OLD_MESSAGES["WorkloadObserved"].FromString(encode_event(said))
    assert MessageToDict(older)["message"] == (
        "Complete: 5 succeeded; changed in the cluster: spec.x, which stays until another template is applied; "
        "on hold: why"
    )
    read = decode_event(TOPIC_BY_EVENT[WorkloadObserved], event_type(said), older.SerializeToString())
    again = decode_event(
        TOPIC_BY_EVENT[WorkloadObserved], event_type(said), encode_event(dataclasses.replace(said, details=None))
    )
    assert isinstance(again, WorkloadObserved)
    for status in (said, again, read):
        assert isinstance(status, WorkloadObserved)
        assert details_of_status(status) == StatusDetails("why", "spec.x", over)


# ── Who writes again what another version wrote ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("event", EVENT_TYPES, ids=lambda event: event.__name__)
def test_who_writes_an_event_again_drops_what_a_later_version_added_and_nothing_else(event: type) -> None:
    """docs/operations.md, Upgrade, says why the order keeps this from happening."""
    value = examples.filled_event(event)
    written = encode_event(value)
    later = written + b"\xfa\x3e\x05later"
    topic, kind = TOPIC_BY_EVENT[event], event_type(value)
    again = encode_event(decode_event(topic, kind, later))
    assert again == written


def test_every_event_has_one_emitter_so_only_instances_of_one_service_write_over_each_other() -> None:
    """But for load and backlog, which anyone may publish, and letters: nobody writes these again."""
    shared = {topic.name: topic.emitter for topic in TOPICS if " " in topic.emitter}
    assert shared == {
        "spillway.load.v1": "hpa, planner and anyone",
        "spillway.backlog.v1": "hpa and anyone",
        "spillway.dead-letters.v1": "every reader",
    }


# ── Words of a later version ────────────────────────────────────────────────────────────────────────────────────────

LATER = "OfALaterVersion"
WORDS = (
    "phase",
    "state",
    "tier",
    "kind",
    "cause",
    "unplaceable",
    "work",
    "split",
    "supply_class",
    "effect",
    "operator",
)


def with_later_words(value: Any) -> Any:
    """The value with another word wherever one of a few is expected; their protos say string, so that any is read."""
    if isinstance(value, tuple) and not isinstance(value, Generation):
        return tuple(map(with_later_words, value))
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    changed = {field.name: with_later_words(getattr(value, field.name)) for field in dataclasses.fields(value)}
    words = {name: LATER for name, one in changed.items() if name in WORDS and isinstance(one, str)}
    return dataclasses.replace(value, **changed | words)


PLANNER_READS = {event for topic in PLANNER_TOPICS for event in EVENTS_BY_TOPIC[topic.name]}
DESCHEDULER_READS = {event for topic in DESCHEDULER_TOPICS for event in EVENTS_BY_TOPIC[topic.name]}


@pytest.mark.parametrize("event", EVENT_TYPES, ids=lambda event: event.__name__)
def test_words_of_a_later_version_are_read_kept_and_stop_no_core(event: type) -> None:
    value = with_later_words(examples.filled_event(event))
    if "columns" in {field.name for field in dataclasses.fields(event)}:
        value = dataclasses.replace(value, columns=b"")
    assert decode_event(TOPIC_BY_EVENT[event], event_type(value), encode_event(value)) == value
    if event in PLANNER_READS:
        with suppress(BadDeclaration):  # An example's manifest is none.
            PlannerState(PlannerRules()).apply_event(value, 0.0, 1, NO_NODES)
    if event in DESCHEDULER_READS and event is not TurnTaken:
        DeschedulerState(LendingRules()).apply_event(value, NEVER, 1, NO_NODES)


def test_a_state_that_a_later_hpa_stored_is_read_without_its_new_fields() -> None:
    text = json.loads(unpack_text(stored_state_bytes(StoredState(changed_ms=7))))
    assert read_stored_state(pack_text(json.dumps(text | {"of_a_later_version": [1]}).encode())) == StoredState(
        changed_ms=7
    )
    del text["ahead_ms"]
    assert read_stored_state(pack_text(json.dumps(text).encode())) == StoredState(changed_ms=7)
