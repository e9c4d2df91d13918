"""Former names that older records still contain, and the names that replaced them. Only this module knows them.

`disown` was called `release` in earlier versions. Protobuf knows a field by its number, so a renamed field changes no
record. A name that is a text in a record stays as it is for as long as the record exists.
"""

from dataclasses import replace
from typing import Final

from spillway.events import STATE_DISOWNED, Event, WorkloadObserved

VERB_BY_FORMER_VERB: Final = {"release": "disown"}
"""The present name of each former verb. A callers file with a former verb is refused, and the error names the present
one. The stored digest of an older request was made with the former verb."""
STATE_BY_FORMER_STATE: Final = {"Released": STATE_DISOWNED}
"""The present name of each former state of a workload in a cluster (the field `state` of WorkloadObserved)."""
FIELD_BY_FORMER_FIELD: Final = {b'"releasing":': b'"disowning":'}
"""The present name of each former field in an answer that is stored as JSON. A text in such an answer cannot contain
these bytes, because JSON escapes quotation marks."""


def with_words_of_today(event: Event) -> Event:
    """Returns an event from a record with its former names replaced by the present ones."""
    if isinstance(event, WorkloadObserved) and event.state in STATE_BY_FORMER_STATE:
        return replace(event, state=STATE_BY_FORMER_STATE[event.state])
    return event


def with_fields_of_today(answer: bytes) -> bytes:
    """Returns a stored PlacementReply (JSON) with its former field names replaced by the present ones."""
    for former, field in FIELD_BY_FORMER_FIELD.items():
        answer = answer.replace(former, field)
    return answer
