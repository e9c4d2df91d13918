"""Makes docs/asyncapi.yaml: the log as an AsyncAPI 3 document, from events.py, addresses.py and the protos.

Channels are topics. Operations name the senders and the receivers. Payloads are protobuf: a schema has the message's
field names, and the docstring of the Python class of the same name as its description.
"""

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

import yaml
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from spillway import events_lending, events_scaling, model
from spillway.addresses import (
    CLAIM_TOPIC_BY_SERVICE,
    EVENT_TYPES,
    EVENTS_BY_TOPIC,
    SCOPE_ONE,
    TOPICS,
    Topic,
    address_of_event,
)
from spillway.events import TurnTaken
from spillway.kafka.topics import TopicSettings, configs_of
from spillway.v1 import events_pb2

Json = dict[str, Any]

CONTENT_TYPE = "application/protobuf"
KAFKA_BINDING = "0.5.0"
"""The version of AsyncAPI's Kafka bindings whose fields the document uses."""
SCOPES = {
    "cluster": "Partitioned by the cluster's name",
    "workload": "Partitioned by the workload's namespace/name",
    SCOPE_ONE: "One partition",
}
HEADERS = {
    "ce_specversion": "CloudEvents: 1.0",
    "ce_id": "CloudEvents: names the record, the same when it is sent again",
    "ce_type": "CloudEvents: spillway.v1 and the message's name; absent on a tombstone",
    "ce_source": "CloudEvents: the instance that wrote it",
    "ce_time": "CloudEvents: the wall time at which it was written, RFC 3339; orders nothing",
    "fleet": "id of the fleet; readers refuse a record of another one",
    "traceparent": "W3C trace context of the decision or observation that the record tells of, where that is traced",
}
HEADERS_ALWAYS = ["ce_specversion", "ce_id", "ce_source", "ce_time", "fleet"]
SCALARS: dict[int, Json] = {
    FieldDescriptor.TYPE_STRING: {"type": "string"},
    FieldDescriptor.TYPE_BYTES: {"type": "string", "format": "byte"},
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_DOUBLE: {"type": "number", "format": "double"},
    FieldDescriptor.TYPE_INT32: {"type": "integer", "format": "int32"},
    FieldDescriptor.TYPE_INT64: {"type": "integer", "format": "int64"},
    FieldDescriptor.TYPE_UINT32: {"type": "integer", "format": "uint32"},
    FieldDescriptor.TYPE_UINT64: {"type": "integer", "format": "uint64"},
    FieldDescriptor.TYPE_SINT64: {"type": "integer", "format": "int64"},
}


def asyncapi_document() -> Json:
    messages = dict.fromkeys(event for topic in TOPICS for event in EVENTS_BY_TOPIC[topic.name])
    descriptors = list(
        _messages_with_nested([events_pb2.DESCRIPTOR.message_types_by_name[one.__name__] for one in messages])
    )
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Spillway's log",
            "version": "1.0.0",
            "description": (
                "Every event of the platform. Generated from events.py, addresses.py and events.proto by `make docs`. "
                "Values are protobuf, without a schema registry. Delivery is at least once, ordered per key; a record "
                "without a value takes the last of its key back."
            ),
        },
        "defaultContentType": CONTENT_TYPE,
        "servers": {
            "kafka": {
                "host": "{bootstrap}",
                "protocol": "kafka",
                "variables": {"bootstrap": {"default": "127.0.0.1:9092", "description": "SPILLWAY_KAFKA_BOOTSTRAP"}},
            }
        },
        "channels": {_channel_name(topic): _channel_object(topic) for topic in TOPICS},
        "operations": {name: one for topic in TOPICS for name, one in _named_operations(topic)},
        "components": {
            "messages": {event.__name__: _message_object(event) for event in messages},
            "messageTraits": {"record": {"headers": _headers_schema()}},
            "schemas": {one.full_name.removeprefix("spillway.v1."): _message_schema(one) for one in descriptors},
        },
    }


def _channel_name(topic: Topic) -> str:
    """Returns the short name of a topic without dots, because AsyncAPI allows no dots in a key."""
    return topic.name.removeprefix("spillway.").removesuffix(".v1").replace(".", "-")


def _channel_object(topic: Topic) -> Json:
    kept = "the last record of each key is kept" if topic.is_compacted else "records are kept for a time"
    configs = configs_of(topic, TopicSettings())
    configuration: Json = {"cleanup.policy": configs["cleanup.policy"].split(",")}
    configuration |= {name: int(configs[name]) for name in ("retention.ms", "max.message.bytes") if name in configs}
    writes = "; written in fenced transactions: read committed" if topic.committed else ""
    return {
        "address": topic.name,
        "description": f"{SCOPES[topic.scope]}; {kept}{writes}.",
        "messages": {
            event.__name__: {"$ref": f"#/components/messages/{event.__name__}"} for event in EVENTS_BY_TOPIC[topic.name]
        },
        "bindings": {"kafka": {"topicConfiguration": configuration, "bindingVersion": KAFKA_BINDING}},
    }


def _named_operations(topic: Topic) -> Iterator[tuple[str, Json]]:
    """Yields the name and the operation of each sender and receiver of a topic.

    `send` and `receive` are from the platform's side: another program receives what the platform sends.
    """
    short = _channel_name(topic)
    for action, verb, parties in (("send", "sends", topic.emitters), ("receive", "reads", topic.readers)):
        for party in parties:
            name = f"{party.replace(' ', '-')}-{verb}-{short}"
            yield name, {"action": action, "channel": {"$ref": f"#/channels/{short}"}, "tags": [{"name": party}]}


def _message_object(event: type) -> Json:
    summary, _, rest = (inspect.getdoc(event) or "").partition("\n")
    found: Json = {"name": f"spillway.v1.{event.__name__}", "title": event.__name__, "summary": summary}
    if rest:
        found["description"] = " ".join(rest.split())
    found["traits"] = [{"$ref": "#/components/messageTraits/record"}]
    found["payload"] = {"$ref": f"#/components/schemas/{event.__name__}"}
    keys = " or ".join(f"`{key}`" for key in dict.fromkeys(_key_forms(event)))
    found["bindings"] = {
        "kafka": {"key": {"type": "string", "description": keys}, "bindingVersion": KAFKA_BINDING},
    }
    return found


def _key_forms(event: type) -> Iterator[str]:
    """Yields the forms of an event's keys, for example `{namespace}/{name}`.

    Each field of the event gets its own name in braces as its value, so that the key shows the fields' names.
    """
    if event is not TurnTaken:
        yield address_of_event(_event_with_field_names(event)).key
        return
    for service, topic in CLAIM_TOPIC_BY_SERVICE.items():
        cluster = "" if topic.scope == SCOPE_ONE else "{cluster}"
        yield address_of_event(TurnTaken(service, cluster, "{instance}")).key


def _event_with_field_names(event: type) -> Any:
    fields = {field.name: f"{{{field.name}}}" for field in dataclasses.fields(event)}
    return event(**fields)


def _headers_schema() -> Json:
    properties = {name: {"type": "string", "description": text} for name, text in HEADERS.items()}
    return {"type": "object", "required": HEADERS_ALWAYS, "properties": properties}


def _messages_with_nested(messages: list[Descriptor]) -> Iterator[Descriptor]:
    """Yields the messages and the messages that their fields contain, at any depth, each once."""
    waiting, seen = list(messages), set[str]()
    while waiting:
        message = waiting.pop(0)
        if message.full_name in seen:
            continue
        seen.add(message.full_name)
        yield message
        waiting += [field.message_type for field in message.fields if field.message_type is not None]


def _message_schema(message: Descriptor) -> Json:
    found: Json = {"type": "object"}
    said = _message_description(message.name)
    if said:
        found["description"] = said
    found["properties"] = {field.name: _field_schema(field) for field in message.fields}
    return found


def _message_description(name: str) -> str:
    """Returns the docstring of the Python class of a nested message; empty for an event and without a docstring.

    An event's own message object already has the event's docstring.
    """
    kinds = (getattr(module, name, None) for module in (model, events_scaling, events_lending))
    kind = next((one for one in kinds if one is not None and one not in EVENT_TYPES), None)
    text = (inspect.getdoc(kind) or "") if kind is not None else ""
    return "" if text.startswith(f"{name}(") else " ".join(text.split())


def _field_schema(field: FieldDescriptor) -> Json:
    if field.message_type is not None:
        one: Json = {"$ref": f"#/components/schemas/{field.message_type.full_name.removeprefix('spillway.v1.')}"}
    elif field.enum_type is not None:
        numbers = "; ".join(f"{value.number}: {value.name}" for value in field.enum_type.values)
        one = {"type": "integer", "format": "int32", "description": f"{numbers}; another: of a newer version"}
    else:
        one = dict(SCALARS[field.type])
    return {"type": "array", "items": one} if field.is_repeated else one


def page_text() -> str:
    text: str = yaml.safe_dump(asyncapi_document(), sort_keys=False, allow_unicode=True, width=120)
    return text.rstrip()
