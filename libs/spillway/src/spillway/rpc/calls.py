"""The calls of each gRPC service, made from the protos by one rule: verb, path, and the types of request and reply.

A command imports the messages of the service that it calls, and the values of the verbs that it uses.
"""

import importlib
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from spillway import messages
from spillway.api_errors import RequestError, invalid_argument_error

REQUEST_BYTES_MOST: Final = 16 * 2**20
"""The largest request that any server of ours accepts, and that a client of ours sends."""
_BITS_BY_TYPE: Final = {FieldDescriptor.CPPTYPE_INT32: 32, FieldDescriptor.CPPTYPE_INT64: 64}


class PackedReply:
    """A reply of a stream whose bytes are made already, because many streams send it. packed: its bytes."""

    __slots__ = ()
    packed: bytes


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

    def read_request(
        self, encoded_request: bytes, entries_max: int, check: Callable[[Message], object] | None = None
    ) -> Any:
        """Returns the request. Raises DecodeError; or TooManyEntries, before values of the entries are built.

        check: called with the message before its entries are looked at, which takes milliseconds if there are many.
        """
        message = self.request_message.FromString(encoded_request)
        if check is not None:
            check(message)
        messages.check_entry_count(message, len(encoded_request), entries_max)
        return messages.value_from_message(message, self.request)

    def reply_bytes(self, reply: object) -> bytes:
        """Returns the bytes of a reply, which a PackedReply brings with it."""
        return reply.packed if isinstance(reply, PackedReply) else message_bytes(reply, self.reply_message())

    def read_reply(self, encoded_reply: bytes) -> Any:
        return messages.value_from_message(self.reply_message.FromString(encoded_reply), self.reply)


@dataclass(frozen=True, slots=True)
class RpcService:
    """A gRPC service. name: its full name. who: its name in texts for users."""

    name: str
    who: str
    calls: Mapping[str, Call]


def message_bytes(value: object, message: Message) -> bytes:
    messages.fill_message(value, message)
    return message.SerializeToString()


def request_bytes(value: object, message: Message) -> bytes:
    """Returns the bytes of a request.

    Raises RequestError for a number that does not fit into its field, and for a request that no server accepts: gRPC
    itself would refuse that one, with a code that means another thing.
    """
    try:
        encoded_request = message_bytes(value, message)
    except ValueError as error:
        for field, descriptor in message.DESCRIPTOR.fields_by_name.items():
            number, bits = getattr(value, field, None), _BITS_BY_TYPE.get(descriptor.cpp_type)
            if isinstance(number, int) and bits is not None and not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
                raise invalid_argument_error(field, number, f"a number within {bits} bits") from None
        raise RequestError("INVALID_ARGUMENT", f"the request: {error}") from None
    if len(encoded_request) > REQUEST_BYTES_MOST:
        raise invalid_argument_error("request", f"{len(encoded_request)} bytes", f"at most {REQUEST_BYTES_MOST}")
    return encoded_request


def with_idempotency_keys(request: Any) -> Any:
    """Returns the request, or each item of its batch, with an idempotency key if it takes one and has none."""
    if items := getattr(request, "items", ()):
        return replace(request, items=tuple(map(_item_with_idempotency_keys, items)))
    if getattr(request, "idempotency_key", None) == "":
        return replace(request, idempotency_key=uuid.uuid4().hex)
    return request


def _item_with_idempotency_keys(item: Any) -> Any:
    return replace(
        item,
        apply=item.apply and with_idempotency_keys(item.apply),
        scale=item.scale and with_idempotency_keys(item.scale),
    )


class _Calls(Mapping[str, Call]):
    """The calls of a service by verb. service: its full name.

    protos, values: the modules of its messages and values, with the same names in both. They are imported at the first
    use of a call.
    """

    def __init__(self, service: str, protos: str, values: str) -> None:
        self._service, self._protos, self._values = service, protos, values
        self._made: dict[str, Call] = {}

    def __getitem__(self, verb: str) -> Call:
        if verb not in self._made:
            self._made[verb] = self._make_call(verb, self._methods_by_verb[verb])
        return self._made[verb]

    def __iter__(self) -> Iterator[str]:
        return iter(self._methods_by_verb)

    def __len__(self) -> int:
        return len(self._methods_by_verb)

    @cached_property
    def _methods_by_verb(self) -> Mapping[str, Any]:
        descriptor = importlib.import_module(self._protos).DESCRIPTOR
        methods = descriptor.services_by_name[self._service.rpartition(".")[2]].methods
        return {re.sub(r"(?<!^)(?=[A-Z])", "_", method.name).lower(): method for method in methods}

    def _make_call(self, verb: str, method: Any) -> Call:
        protos, values = importlib.import_module(self._protos), importlib.import_module(self._values)
        request, reply = method.input_type.name, method.output_type.name
        return Call(
            verb=verb,
            path=f"/{self._service}/{method.name}",
            streams=method.server_streaming,
            request=getattr(values, request),
            request_message=getattr(protos, request),
            reply=getattr(values, reply),
            reply_message=getattr(protos, reply),
        )


def _make_service(name: str, who: str, protos: str, values: str) -> RpcService:
    return RpcService(name, who, _Calls(name, protos, values))


PLANNER: Final = _make_service("spillway.v1.Planner", "planner", "spillway.v1.planner_pb2", "spillway.api")
SCALING: Final = _make_service("spillway.v1.Scaling", "hpa", "spillway.v1.scaling_pb2", "spillway.api_scaling")
LENDING: Final = _make_service("spillway.v1.Lending", "descheduler", "spillway.v1.lending_pb2", "spillway.api_lending")
