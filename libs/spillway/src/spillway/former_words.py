"""Words that records from before have for what is called otherwise now. They are read here and nowhere else.

`disown` was called `release` until 2026-11-28. In protobuf a field is known by its number, so a new name for it changes
no record. What is text in a record keeps its word for as long as the record is there.
"""

from dataclasses import replace
from typing import Final

from spillway.events import STATE_DISOWNED, Event, WorkloadObserved

VERB_BY_FORMER_VERB: Final = {"release": "disown"}
"""A callers file may still name them, and a digest of a request is made of its verb."""
STATE_BY_FORMER_STATE: Final = {"Released": STATE_DISOWNED}
"""Of a workload in a cluster, in WorkloadObserved."""
FIELD_BY_FORMER_FIELD: Final = {b'"releasing":': b'"disowning":'}
"""Of an answer that is kept as JSON. No text in it contains this: a quotation mark has a backslash there."""


def with_words_of_today(event: Event) -> Event:
    """Returns an event that was read from a record, with the words that this version decides by."""
    if isinstance(event, WorkloadObserved) and event.state in STATE_BY_FORMER_STATE:
        return replace(event, state=STATE_BY_FORMER_STATE[event.state])
    return event


def with_fields_of_today(answer: bytes) -> bytes:
    """Returns a PlacementReply that was kept as JSON, with the names that its fields have now."""
    for former, field in FIELD_BY_FORMER_FIELD.items():
        answer = answer.replace(former, field)
    return answer
