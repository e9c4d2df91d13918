"""Words that records from before have are read as what they are called now, and all others as they are."""

import msgspec
import pytest

from spillway.addresses import WORKLOAD_STATUS
from spillway.api import PlacedPart, PlacementReply
from spillway.events import STATE_DISOWNED, STATE_ORPHANED, STATE_PRESENT, WorkloadObserved
from spillway.former_words import VERB_BY_FORMER_VERB, with_fields_of_today
from spillway.model import Generation
from spillway.verb_names import VERBS
from spillway.wire import decode_event, encode_event, event_type


def observed_workload(state: str) -> WorkloadObserved:
    return WorkloadObserved("shop", "web", "own-1", 1, 2, Generation(1, 1), state, "Released", 3, 3, 3, 3, 3)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("Released", STATE_DISOWNED),
        (STATE_DISOWNED, STATE_DISOWNED),
        (STATE_PRESENT, STATE_PRESENT),
        (STATE_ORPHANED, STATE_ORPHANED),
        ("OfALaterVersion", "OfALaterVersion"),
    ],
)
def test_the_state_in_a_record_is_read_by_the_word_of_today(written: str, read: str) -> None:
    record = encode_event(observed_workload(written))
    assert decode_event(WORKLOAD_STATUS.name, event_type(observed_workload(written)), record) == observed_workload(read)


def test_a_kept_answer_is_read_by_the_fields_of_today_and_its_texts_as_they_were() -> None:
    text = 'the field "releasing":true'
    parts = (PlacedPart("own-1", "own", 0, 0, removing=False, disowning=True),)
    reply = PlacementReply("shop", "web", 2, 3, 0, 0, text, parts, (), (), False, False, disowning=True)
    former = msgspec.json.encode(reply).replace(b'"disowning":true', b'"releasing":true')
    assert former.count(b'"releasing":') == 2
    assert msgspec.json.decode(with_fields_of_today(former), type=PlacementReply) == reply


def test_a_former_verb_is_none_any_more_and_what_it_is_called_now_is_one() -> None:
    assert set(VERB_BY_FORMER_VERB) & set(VERBS) == set()
    assert set(VERB_BY_FORMER_VERB.values()) <= set(VERBS)
