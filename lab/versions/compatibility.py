"""Finds what an older version would misunderstand in a newer set of protos. Source of the rules: protobuf's guide to
updating a message type: a number keeps its type and label for ever, and a removed field is reserved."""

from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet

OURS = "spillway.v1"
RENAMED = {"releasing": "disowning", "ReleaseRequest": "DisownRequest", "Planner.Release": "Planner.Disown"}
"""The present names of renamed fields, messages and methods. Records name a field only by its number. These messages
and methods occur only in gRPC, and CHANGELOG.md tells its callers."""


def find_incompatibilities(old: FileDescriptorSet, new: FileDescriptorSet) -> list[str]:
    """Returns one sentence for each incompatibility; none when both versions understand each other."""
    return [
        *_message_differences(_message_by_name(old), _message_by_name(new)),
        *_method_differences(_method_by_name(old), _method_by_name(new)),
    ]


def _message_by_name(files: FileDescriptorSet) -> Mapping[str, DescriptorProto]:
    return {message.name: message for file in files.file if file.package == OURS for message in file.message_type}


def _method_by_name(files: FileDescriptorSet) -> Mapping[str, Any]:
    services = [service for file in files.file if file.package == OURS for service in file.service]
    return {f"{service.name}.{method.name}": method for service in services for method in service.method}


def _message_differences(old: Mapping[str, DescriptorProto], new: Mapping[str, DescriptorProto]) -> Iterator[str]:
    for name, before in old.items():
        after = new.get(RENAMED.get(name, name))
        if after is None:
            yield f"{name} is gone"
            continue
        by_number = {field.number: field for field in after.field}
        for field in before.field:
            yield from _field_differences(f"{name}.{field.name}", field, by_number.get(field.number), after)
        for field in after.field:
            if _is_reserved(before, field.number, field.name):
                yield f"{name}.{field.name} has the number {field.number} or a name that was reserved"


def _field_differences(
    where: str, before: FieldDescriptorProto, after: FieldDescriptorProto | None, message: DescriptorProto
) -> Iterator[str]:
    if after is None:
        if not _is_reserved(message, before.number, before.name):
            yield f"{where} is gone, and {before.number} and its name are not reserved"
        return
    if after.name != RENAMED.get(before.name, before.name):
        yield f"{where} is called {after.name} now: {before.number} was its number"
    for what in ("type", "label", "type_name"):
        if getattr(after, what) != getattr(before, what):
            yield f"{where} has another {what}: {getattr(before, what)}, now {getattr(after, what)}"
    if before.HasField("oneof_index") != after.HasField("oneof_index"):
        yield f"{where} is in a oneof in one of them alone"


def _method_signature(method: Any) -> tuple[Any, ...]:
    """Returns (request, reply, whether each is a stream) of a method, by the present names."""
    takes = ".".join(RENAMED.get(word, word) for word in method.input_type.split("."))
    return takes, method.output_type, method.client_streaming, method.server_streaming


def _is_reserved(message: DescriptorProto, number: int, name: str) -> bool:
    return name in message.reserved_name or any(one.start <= number < one.end for one in message.reserved_range)


def _method_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name, before in old.items():
        after = new.get(RENAMED.get(name, name))
        if after is None:
            yield f"{name} is gone"
        elif _method_signature(before) != _method_signature(after):
            yield f"{name} takes, answers or streams something else"
