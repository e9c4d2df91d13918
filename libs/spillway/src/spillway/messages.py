"""Converts values to protobuf messages and back, by one rule: a message's field has the name of the value's field.

The conversion of a class is built when the first of its values is read or written.
"""

import dataclasses
import types
import typing
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from spillway.model_basics import Generation

T = TypeVar("T")

_COUNTED = frozenset((FieldDescriptor.CPPTYPE_MESSAGE, FieldDescriptor.CPPTYPE_STRING))


class UnreadableMessage(Exception):
    """Raised if a record or a request cannot be read. The text is the reason."""


class TooManyEntries(UnreadableMessage):
    """Raised if the lists of a message have too many entries. field: the path of the list that passed the limit.

    count: the entries up to the end of that list, with the lists before it.
    """

    def __init__(self, field: str, count: int, most: int) -> None:
        super().__init__(f"{field}: {count} entries: expected at most {most} in all lists together")


def check_entry_count(message: Message, size: int, most: int) -> None:
    """Raises TooManyEntries if the lists of a message have more than `most` entries that are messages or texts.

    Lists at any depth count. size: the size of the message in bytes.
    """
    if size > 2 * most:  # The smallest entry has two bytes.
        _count_entries(message, 0, most, "")


def _count_entries(message: Any, before: int, most: int, path: str) -> int:
    """Returns the number of entries, `before` included. Numbers in lists are not counted: they cost next to nothing."""
    count = before
    for field, value in message.ListFields():
        if field.is_repeated and field.cpp_type in _COUNTED:
            count += len(value)
            if count > most:
                raise TooManyEntries(path + field.name, count, most)
        if field.message_type is not None:
            for one in value if field.is_repeated else (value,):
                count = _count_entries(one, count, most, f"{path}{field.name}.")
    return count


def fill_message(value: object, message: Message) -> None:
    """Copies a dataclass into a message whose fields have the same names. None leaves a message field unset."""
    for name, fill, _ in _field_converters(cast(Hashable, type(value))):
        fill(message, name, getattr(value, name))


def value_from_message(message: Message, kind: type[T]) -> T:
    """Returns the dataclass of a message whose fields have the same names."""
    return kind(*_values_reader(cast(Hashable, kind))(message))


Fill = Callable[[Any, str, Any], None]
Read = Callable[[Any, str], Any]

_READS: dict[type, Callable[[Message], Any]] = {}
_WRITES: dict[type, Callable[[Any], bytes]] = {}


def register_reader(kind: type[T], read: Callable[[Message], T]) -> None:
    """Sets the function that reads a class inside other messages. Call it before the first such value is read."""
    _READS[kind] = read


def register_writer(kind: type[T], write: Callable[[T], bytes]) -> None:
    """Sets the function that serializes a class inside other messages. Call it before the first one is written."""
    _WRITES[kind] = write


@cache
def _values_reader(kind: Any) -> Callable[[Message], Sequence[Any]]:
    """Returns a function that reads all fields of a message. If no field needs a conversion, it reads all at once."""
    fields = _field_converters(kind)
    if len(fields) > 1 and all(read is getattr for _, _, read in fields):
        return attrgetter(*(name for name, _, _ in fields))
    reads = [(name, read) for name, _, read in fields]
    return lambda message: [read(message, name) for name, read in reads]


@cache
def _field_converters(kind: Any) -> tuple[tuple[str, Fill, Read], ...]:
    if kind is Generation:
        names: Sequence[str] = Generation._fields
    else:
        names = [field.name for field in dataclasses.fields(kind)]
    hints = typing.get_type_hints(kind)
    return tuple((name, *_converter_of_hint(hints[name])) for name in names)


def _converter_of_hint(hint: Any) -> tuple[Fill, Read]:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _optional_converter(next(part for part in typing.get_args(hint) if part is not type(None)))
    if origin is tuple:
        return _repeated_converter(typing.get_args(hint)[0])
    if hint in (str, int, bool, bytes, float):
        return setattr, getattr
    return _nested_converter(hint)


def _nested_converter(kind: type) -> tuple[Fill, Read]:
    def fill_nested(message: Any, name: str, value: Any) -> None:
        nested = getattr(message, name)
        nested.SetInParent()
        if write is None:
            fill_message(value, nested)
        else:
            nested.MergeFromString(write(value))

    write = _WRITES.get(kind)
    if read := _READS.get(kind):
        return fill_nested, lambda message, name: read(getattr(message, name))
    return fill_nested, lambda message, name: value_from_message(getattr(message, name), kind)


def _optional_converter(kind: type) -> tuple[Fill, Read]:
    fill_present, read_present = _nested_converter(kind)

    def fill_optional(message: Any, name: str, value: Any) -> None:
        if value is not None:
            fill_present(message, name, value)

    return fill_optional, lambda message, name: read_present(message, name) if message.HasField(name) else None


def _repeated_converter(item: Any) -> tuple[Fill, Read]:
    if item in (str, int, bytes, bool, float):
        return (
            lambda message, name, value: getattr(message, name).extend(value),
            lambda message, name: tuple(getattr(message, name)),
        )
    if typing.get_origin(item) is tuple:
        return _pairs_converter()

    def fill_repeated(message: Any, name: str, value: Any) -> None:
        repeated = getattr(message, name)
        for entry in value:
            fill_message(entry, repeated.add())

    return fill_repeated, lambda message, name: tuple(
        value_from_message(entry, item) for entry in getattr(message, name)
    )


def _pairs_converter() -> tuple[Fill, Read]:
    def fill_pairs(message: Any, name: str, value: Any) -> None:
        repeated = getattr(message, name)
        for first, second in value:
            repeated.add(first=first, second=second)

    return fill_pairs, lambda message, name: tuple((pair.first, pair.second) for pair in getattr(message, name))
