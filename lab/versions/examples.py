"""Writes and reads one example of each event, with a value in every field, by the code version on the Python path.

It must run with older versions, so it uses only functions that they have.
    python examples.py write            prints rows of {type, topic, value, fields}, one JSON document a line
    python examples.py read < rows      prints for each row the fields that this version reads, and its value again
"""

import base64
import dataclasses
import json
import sys
import types
import typing
from typing import Any

from spillway.addresses import EVENTS_BY_TOPIC
from spillway.model import Generation
from spillway.wire import UnreadableMessage, decode_event, encode_event, event_type

TOPICS_BY_EVENT = {event: topic for topic, events in reversed(EVENTS_BY_TOPIC.items()) for event in events}


class Filler:
    """Makes the fields' values from a counter, so that no two fields have the same value."""

    def __init__(self) -> None:
        self.number = 0

    def next_value(self, hint: Any) -> Any:
        self.number += 1
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            return self.next_value(next(part for part in arguments if part is not type(None)))
        if origin is tuple and arguments[-1] is Ellipsis:
            return (self.next_value(arguments[0]), self.next_value(arguments[0]))
        if origin is tuple:
            return tuple(self.next_value(argument) for argument in arguments)
        if hint is Generation:
            return Generation(self.number, self.number + 1)
        if dataclasses.is_dataclass(hint):
            hints, make = typing.get_type_hints(hint), typing.cast(Any, hint)
            return make(**{field.name: self.next_value(hints[field.name]) for field in dataclasses.fields(hint)})
        return {
            str: f"text-{self.number}",
            bytes: f"bytes-{self.number}".encode(),
            int: self.number,
            float: self.number + 0.5,
            bool: True,
        }[hint]


def filled_event(event: type) -> Any:
    return Filler().next_value(event)


def json_value(value: Any) -> Any:
    """Returns a value as plain JSON types. Bytes become base64, and a generation becomes [epoch, sequence]."""
    if isinstance(value, Generation):
        return [value.epoch, value.sequence]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: json_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple):
        return [json_value(entry) for entry in value]
    return value


def example_row(event: type) -> dict[str, Any]:
    value = filled_event(event)
    record_text = base64.b64encode(encode_event(value)).decode()
    return {
        "type": event_type(value),
        "topic": TOPICS_BY_EVENT[event],
        "value": record_text,
        "fields": json_value(value),
    }


def read_row(one: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of a row's value and the value encoded again, or the reason why it is unreadable."""
    try:
        event = decode_event(one["topic"], one["type"], base64.b64decode(one["value"]))
    except (UnreadableMessage, KeyError) as error:
        return {"type": one["type"], "trouble": f"{type(error).__name__}: {error}"}
    return {"type": one["type"], "fields": json_value(event), "value": base64.b64encode(encode_event(event)).decode()}


def main() -> None:
    if sys.argv[1:] == ["write"]:
        rows = [example_row(event) for event in sorted(TOPICS_BY_EVENT, key=lambda event: event.__name__)]
    else:
        rows = [read_row(json.loads(line)) for line in sys.stdin]
    for one in rows:
        print(json.dumps(one))


if __name__ == "__main__":
    main()
