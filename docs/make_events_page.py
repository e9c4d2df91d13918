"""Makes docs/events.md from events.py and addresses.py, so that the page always agrees with the code."""

import dataclasses
import inspect
import re
import typing

from spillway.addresses import EVENTS_BY_TOPIC, TOPICS, Topic

HEADER = """# Events

Generated from `events.py` and `addresses.py` in `libs/spillway/src/spillway` by `make docs`; CI compares.
Each record bears CloudEvents headers (`ce_id`, `ce_type`, `ce_source`, `ce_time`), the fleet id and, when tracing is
on, `traceparent`. The value is the protobuf message of the event's name in `proto/spillway/v1/events.proto`.
The same as an AsyncAPI 3 document, with keys and fields as they are on the wire: [asyncapi.yaml](asyncapi.yaml).

## Services

| service | decides | reads | emits |
|---|---|---|---|"""
TOPICS_HEADER = """
## Topics

| topic | events | scope | kept | emitter | readers |
|---|---|---|---|---|---|"""
DECIDES = {
    "snapshot": "what each cluster can hold now, which pods cannot be scheduled, what the pods of scaled workloads use",
    "planner": "where each replica goes",
    "propagator": "what must change in a cluster so that the placement is true",
    "hpa": "how many replicas a workload has, over all clusters at once",
    "vk-bridge": "which idle nodes are lent, and what their pool cluster sees of them",
    "descheduler": "which lent nodes go back to their owners, and for which pods",
}


def retention_text(topic: Topic) -> str:
    if topic.is_compacted:
        return "last per key"
    hours = topic.retention_ms // 3_600_000
    return f"{hours // 24} d" if hours % 24 == 0 and hours > 24 else f"{hours} h"


def topics_of_service(service: str) -> tuple[list[str], list[str]]:
    """Returns (topics that a service reads, topics that it emits), named without prefix and version."""
    read = [topic for topic in TOPICS if service in topic.readers]
    emitted = [topic for topic in TOPICS if service in topic.emitter.replace(" and ", ", ").split(", ")]
    short = [[topic.name.split(".", 1)[1].rsplit(".", 1)[0] for topic in some] for some in (read, emitted)]
    return short[0], short[1]


def service_row(service: str) -> str:
    """Returns the table row of a service: its name, what it decides, and the topics that it reads and emits."""
    names = (", ".join(f"`{name}`" for name in some) for some in topics_of_service(service))
    link = f"[{service}](../services/{service}/README.md)"
    return "| " + " | ".join((link, DECIDES[service], *names)) + " |"


def topic_row(topic: Topic) -> str:
    names = ", ".join(event.__name__ for event in EVENTS_BY_TOPIC[topic.name])
    cells = (f"`{topic.name}`", names, topic.scope, retention_text(topic), topic.emitter, ", ".join(topic.readers))
    return "| " + " | ".join(cells) + " |"


def type_name(hint: object) -> str:
    return (
        getattr(hint, "__name__", "")
        if isinstance(hint, type)
        else re.sub(r"spillway\.(model|events_scaling|events_lending)\.", "", str(hint))
    )


def event_section(event: type) -> str:
    hints = typing.get_type_hints(event)
    fields = "\n".join(f"| `{field.name}` | `{type_name(hints[field.name])}` |" for field in dataclasses.fields(event))
    return f"## {event.__name__}\n\n{inspect.getdoc(event)}\n\n| field | type |\n|---|---|\n{fields}"


def has_own_docstring(event: type) -> bool:
    return not (inspect.getdoc(event) or "").startswith(f"{event.__name__}(")


def page_text() -> str:
    events = dict.fromkeys(event for topic in TOPICS for event in EVENTS_BY_TOPIC[topic.name])
    return "\n".join(
        [
            HEADER,
            *map(service_row, DECIDES),
            TOPICS_HEADER,
            *map(topic_row, TOPICS),
            "",
            *(event_section(event) + "\n" for event in events),
        ]
    ).rstrip()
