"""What somebody writes that nobody can read ends no reader, hides nobody else's, and is kept within bounds."""

from itertools import count

import pytest
from prometheus_client import REGISTRY

from spillway.addresses import BACKLOG, CLUSTERS, LOAD, TOPICS
from spillway.bus import Headers, TooManyDeadLetters
from spillway.dead_letters import LetterReading, StoredRecord, outgoing_record
from spillway.letters_by_writer import LetterBounds, writer_of

BOUNDS = LetterBounds(again_seconds=600.0, per_minute_max=10, kinds_max=20)
OFFSETS = count()


def make_bad_record(
    source: str = "", key: bytes = b"shop/web", fleet: str = "", topic: str = LOAD.name
) -> StoredRecord:
    """Without a fleet, if none is given: else of that one."""
    headers: Headers = (("ce_source", source.encode()),) if source else ()
    headers += (("fleet", fleet.encode()),) if fleet else ()
    return StoredRecord(topic, 3, next(OFFSETS), key, b"42", headers)


def make_letter_reading() -> LetterReading:
    return LetterReading("f1", "hpa", 100, BOUNDS)


def left_out_count(topic: str = LOAD.name) -> float:
    return REGISTRY.get_sample_value("spillway_dead_letters_left_out_total", {"topic": topic}) or 0


def test_topics_of_values_and_backlogs_are_those_that_anyone_may_write() -> None:
    assert {topic.name for topic in TOPICS if topic.can_anyone_write} == {LOAD.name, BACKLOG.name}


@pytest.mark.parametrize("topic", [LOAD.name, BACKLOG.name])
def test_no_number_of_bad_records_of_one_publisher_ends_the_reading(topic: str) -> None:
    """The first is a dead letter, the rest are counted."""
    made, before = make_letter_reading(), left_out_count(topic)
    assert made.read_records([make_bad_record("script", topic=topic) for _ in range(5_000)], 0.0) == ()
    (letter,) = made.pending
    assert (letter.topic, letter.writer, letter.reason, letter.left_out) == (
        topic,
        "source script",
        "no header fleet",
        0,
    )
    assert left_out_count(topic) - before == 4_999


def test_topics_of_our_own_services_end_it() -> None:
    with pytest.raises(TooManyDeadLetters):
        make_letter_reading().read_records(
            [make_bad_record("script", key=b"own-1", topic=CLUSTERS.name) for _ in range(101)], 0.0
        )


def test_what_goes_on_is_told_again_with_how_many_there_were() -> None:
    made = make_letter_reading()
    for second in range(1_300):
        made.read_records([make_bad_record("script"), make_bad_record("script")], float(second))
    assert [letter.left_out for letter in made.pending] == [0, 1_199, 1_199]


def test_each_writer_and_each_kind_of_reason_has_a_letter() -> None:
    made = make_letter_reading()
    wrong = [
        make_bad_record("a"),
        make_bad_record("b"),
        make_bad_record("b", fleet="other-1"),
        make_bad_record(key=b"shop/one"),
        make_bad_record(key=b"shop/two"),
        make_bad_record(key=b""),
    ]
    made.read_records([one for one in wrong for _ in range(50)], 0.0)
    assert [(letter.writer, letter.reason.partition(":")[0]) for letter in made.pending] == [
        ("source a", "no header fleet"),
        ("source b", "no header fleet"),
        ("source b", "fleet 'other-1'"),
        ("key shop/one", "no header fleet"),
        ("key shop/two", "no header fleet"),
        ("partition 3", "no header fleet"),
    ]


def test_of_writers_without_end_there_are_few_letters_and_little_is_remembered() -> None:
    """Whoever writes may give each record another source."""
    made = make_letter_reading()
    seconds = 3_600
    for second in range(seconds):
        made.read_records([make_bad_record(f"forged-{second}-{number}") for number in range(20)], float(second))
        letters, made.pending = made.pending, []
        assert len(letters) <= BOUNDS.per_minute_max
        assert len(made._by_writer._told) <= BOUNDS.kinds_max + 1
    made.read_records([make_bad_record("honest")], float(seconds + 2 * BOUNDS.again_seconds))
    assert [letter.writer for letter in made.pending] == ["source honest"]


def test_where_the_log_takes_no_letters_few_wait_and_the_reading_goes_on() -> None:
    made = make_letter_reading()
    for minute in range(100):
        made.read_records([make_bad_record(f"{minute}-{number}") for number in range(10)], 61.0 * minute)
    assert len(made.pending) == 50


def test_a_letter_of_such_a_record_is_small_whatever_is_in_it() -> None:
    made = make_letter_reading()
    headers: Headers = (("ce_source", b"\xff\n\x00" * 100_000), ("fleet", b"x" * 100_000))
    made.read_records([StoredRecord(LOAD.name, 0, 1, b"\xff" * 100_000, b"\xff" * 1_000_000, headers)], 0.0)
    (letter,) = made.pending
    assert len(outgoing_record(letter).value or b"") < 10_000
    assert letter.writer.isprintable()


def test_a_source_tells_more_than_a_key_and_a_key_more_than_a_partition() -> None:
    assert writer_of(b"shop/web", (("ce_source", b"script"),), 3) == "source script"
    assert writer_of(b"shop/web", (("ce_source", b""),), 3) == "key shop/web"
    assert writer_of(None, (), 3) == "partition 3"
