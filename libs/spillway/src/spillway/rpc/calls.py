"""The calls of each gRPC service: verb, path, values and messages of request and reply, by one rule from the protos."""

import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from spillway import api, api_lending, api_scaling, wire
from spillway.v1 import lending_pb2, planner_pb2, scaling_pb2
from spillway.verb_names import VERBS

_BITS_BY_TYPE: Final = {FieldDescriptor.CPPTYPE_INT32: 32, FieldDescriptor.CPPTYPE_INT64: 64}


@dataclass(frozen=True, slots=True)
class Call:
    """One method: its verb, its path, and the values and messages of its request and reply."""

    verb: str
    path: str
    streams: bool
    request: type
    request_message: type[Message]
    reply: type
    reply_message: type[Message]

    def read_request(self, data: bytes, entries_max: int) -> Any:
        """Raises DecodeError, and TooManyEntries before anything is made of them."""
        message = self.request_message.FromString(data)
        wire.check_entries(message, len(data), entries_max)
        return wire.value_from(message, self.request)

    def read_reply(self, data: bytes) -> Any:
        return wire.value_from(self.reply_message.FromString(data), self.reply)


@dataclass(frozen=True, slots=True)
class Service:
    """name: the full one. who: what it is called in sentences."""

    name: str
    who: str
    calls: Mapping[str, Call]


def message_bytes(value: object, message: Message) -> bytes:
    wire.fill_message(value, message)
    return message.SerializeToString()


def request_bytes(value: object, message: Message) -> bytes:
    """RequestError for a number that its field has no room for."""
    try:
        return message_bytes(value, message)
    except ValueError as error:
        for field, descriptor in message.DESCRIPTOR.fields_by_name.items():
            number, bits = getattr(value, field, None), _BITS_BY_TYPE.get(descriptor.cpp_type)
            if isinstance(number, int) and bits is not None and not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
                raise api.invalid(field, number, f"a number within {bits} bits") from None
        raise api.RequestError("INVALID_ARGUMENT", f"the request: {error}") from None


def with_keys(request: Any) -> Any:
    """The request, or each of its items, with an idempotency key where it takes one and has none."""
    if isinstance(request, api.PlanBatchRequest):
        items = (
            api.BatchItem(item.apply and with_keys(item.apply), item.scale and with_keys(item.scale))
            for item in request.items
        )
        return api.PlanBatchRequest(tuple(items))
    if getattr(request, "idempotency_key", None) == "":
        return replace(request, idempotency_key=uuid.uuid4().hex)
    return request


def _service(name: str, who: str, messages: Any, values: ModuleType) -> Service:
    descriptor = messages.DESCRIPTOR.services_by_name[name]
    return Service(descriptor.full_name, who, {call.verb: call for call in _calls(descriptor, messages, values)})


def _calls(descriptor: Any, messages: Any, values: ModuleType) -> Iterator[Call]:
    for method in descriptor.methods:
        request, reply = method.input_type.name, method.output_type.name
        yield Call(
            verb=re.sub(r"(?<!^)(?=[A-Z])", "_", method.name).lower(),
            path=f"/{descriptor.full_name}/{method.name}",
            streams=method.server_streaming,
            request=getattr(values, request),
            request_message=getattr(messages, request),
            reply=getattr(values, reply),
            reply_message=getattr(messages, reply),
        )


PLANNER: Final = _service("Planner", "planner", planner_pb2, api)
SCALING: Final = _service("Scaling", "hpa", scaling_pb2, api_scaling)
LENDING: Final = _service("Lending", "descheduler", lending_pb2, api_lending)
assert sorted((*PLANNER.calls, *SCALING.calls, *LENDING.calls)) == sorted(VERBS)
