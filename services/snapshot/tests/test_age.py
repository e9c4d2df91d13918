"""The watermark: when an answered probe makes us current, and when it does not."""

import pytest

from snapshot.core.age import Age
from snapshot.core.rules import SnapshotRules
from spillway.troubles import NO_TROUBLE, Trouble, TroubleCode

SOURCES = ("nodes", "pods", "replicasets", "deployments")


def age_with_all_listed(now: float = 0.0, nodes: int = 3, pods: int = 5) -> Age:
    age = Age(SOURCES, SnapshotRules())
    age.note_connecting()
    for source in SOURCES:
        age.note_stream_alive(source, {"nodes": nodes, "pods": pods}.get(source, 0), now, listed=True)
    return age


def answer_probe(age: Age, started_at: float, nodes: int = 3, pods: int = 5, doubtful: bool = False) -> None:
    age.note_probe_started(started_at)
    age.note_probe_answered(started_at, {"nodes": nodes, "pods": pods}, doubtful, started_at + 0.1)


def test_the_age_is_that_of_the_last_probes_start() -> None:
    age = age_with_all_listed()
    assert age.age_ms(0.0) == -1
    answer_probe(age, 1.0)
    assert age.age_ms(1.5) == 500
    answer_probe(age, 3.0)
    assert (age.age_ms(4.0), age.cluster_trouble(4.0)) == (1000, NO_TROUBLE)


def test_a_probe_before_all_lists_proves_nothing() -> None:
    age = Age(SOURCES, SnapshotRules())
    age.note_connecting()
    for source in SOURCES[:3]:
        age.note_stream_alive(source, 0, 0.0, listed=True)
    answer_probe(age, 1.0)
    assert (age.age_ms(2.0), age.cluster_trouble(2.0), age.is_fully_listed) == (-1, NO_TROUBLE, False)


@pytest.mark.parametrize("source", SOURCES)
def test_a_silent_stream_stops_the_watermark(source: str) -> None:
    age = age_with_all_listed()
    answer_probe(age, 1.0)
    for other in SOURCES:
        if other != source:
            age.note_stream_alive(other, {"nodes": 3, "pods": 5}.get(other, 0), 95.0)
    answer_probe(age, 96.0)
    assert age.age_ms(101.0) == 100_000
    assert age.cluster_trouble(96.0) == (TroubleCode.UNREACHABLE, f"{source}: nothing heard for 90 s")
    age.note_stream_alive(source, {"nodes": 3, "pods": 5}.get(source, 0), 97.0)
    answer_probe(age, 98.0)
    assert (age.age_ms(98.0), age.cluster_trouble(98.0)) == (0, NO_TROUBLE)


@pytest.mark.parametrize("source", SOURCES)
def test_a_failed_stream_stops_the_watermark_at_once(source: str) -> None:
    age = age_with_all_listed()
    answer_probe(age, 1.0)
    age.note_stream_failed(source, Trouble(TroubleCode.NOT_ALLOWED, "unauthorized: who are you?"))
    answer_probe(age, 3.0)
    assert age.age_ms(3.0) == 2000
    assert age.cluster_trouble(3.0) == (TroubleCode.NOT_ALLOWED, f"{source}: unauthorized: who are you?")


def test_a_probe_that_fails_is_said() -> None:
    age = age_with_all_listed()
    answer_probe(age, 1.0)
    age.note_probe_started(3.0)
    silent = Trouble(TroubleCode.UNREACHABLE, "probe: timeout: no answer")
    age.note_probe_failed(silent)
    assert (age.cluster_trouble(5.0), age.age_ms(5.0)) == (silent, 4000)
    answer_probe(age, 6.0)
    assert (age.cluster_trouble(6.0), age.age_ms(6.0)) == (NO_TROUBLE, 0)


def test_a_connection_that_fails_is_said_until_something_is_heard() -> None:
    age = Age(SOURCES, SnapshotRules())
    no_file = Trouble(TroubleCode.NOT_ALLOWED, "no such file")
    age.note_connection_failed(no_file)
    assert age.cluster_trouble(1.0) == no_file
    age.note_connecting()
    assert age.cluster_trouble(1.0) == no_file
    age.note_stream_alive("nodes", 3, 2.0, listed=True)
    assert age.cluster_trouble(2.0) == NO_TROUBLE


def test_a_doubted_list_does_not_make_us_current() -> None:
    age = age_with_all_listed()
    answer_probe(age, 1.0)
    answer_probe(age, 3.0, doubtful=True)
    assert age.age_ms(4.0) == 3000


def test_a_count_that_differs_for_long_asks_for_a_new_list() -> None:
    age = age_with_all_listed()
    for second in range(1, 14, 2):
        answer_probe(age, float(second), pods=6)
        assert age.sources_to_relist(float(second)) == (["pods"] if second >= 13 else [])
    age.note_relisting("pods")
    assert age.sources_to_relist(20.0) == []
    answer_probe(age, 21.0)
    assert age.age_ms(22.0) == 9000  # Not current again before the list is there.
    age.note_stream_alive("pods", 6, 23.0, listed=True)
    answer_probe(age, 23.0, pods=6)
    assert age.age_ms(23.0) == 0


def test_a_count_that_we_passed_by_since_the_probe_began_does_not_differ() -> None:
    """Busy clusters are never at rest: what counts is that our own number went through what the probe saw."""
    age = age_with_all_listed(pods=0)
    for second in range(1, 40, 2):
        age.note_probe_started(float(second))
        age.note_stream_alive("pods", second, second + 0.05)
        age.note_probe_answered(float(second), {"nodes": 3, "pods": second + 1}, False, second + 0.1)
        age.note_stream_alive("pods", second + 2, second + 1.0)
        assert age.sources_to_relist(float(second)) == []


def test_a_difference_that_goes_away_is_forgotten() -> None:
    age = age_with_all_listed()
    for second, pods in ((1, 6), (3, 6), (5, 6), (7, 5), (9, 5), (11, 6), (13, 6), (15, 6), (17, 5)):
        answer_probe(age, float(second), pods=pods)
        assert age.sources_to_relist(float(second)) == []


def answer_probe_with_version(age: Age, started_at: float, version: int | None) -> None:
    age.note_probe_started(started_at)
    age.note_probe_answered(started_at, {"nodes": 3, "pods": 5}, False, started_at + 0.1, version)


def test_all_is_listed_again_where_versions_began_again() -> None:
    """Seed 858180: watches said nothing for a while, and then went on behind what they had never told."""
    age = age_with_all_listed()
    answer_probe_with_version(age, 1.0, 700)
    answer_probe_with_version(age, 3.0, 700)
    assert age.sources_to_relist(4.0) == []
    answer_probe_with_version(age, 5.0, 20)
    assert age.age_ms(5.0) == 2000
    assert age.sources_to_relist(5.5) == list(SOURCES)
    for source in SOURCES:
        age.note_relisting(source)
    answer_probe_with_version(age, 7.0, 25)
    assert age.sources_to_relist(7.5) == []
    assert age.age_ms(7.0) == 4000
    for source in SOURCES:
        age.note_stream_alive(source, {"nodes": 3, "pods": 5}.get(source, 0), 8.0, listed=True)
    answer_probe_with_version(age, 9.0, 30)
    assert age.age_ms(9.0) == 0


def test_versions_of_another_api_server_are_no_versions_that_began_again() -> None:
    age = age_with_all_listed()
    answer_probe_with_version(age, 1.0, 700)
    age.note_connecting()
    for source in SOURCES:
        age.note_stream_alive(source, {"nodes": 3, "pods": 5}.get(source, 0), 2.0, listed=True)
    answer_probe_with_version(age, 3.0, 20)
    assert (age.sources_to_relist(4.0), age.age_ms(3.0)) == ([], 0)


def test_a_version_that_is_no_number_says_nothing() -> None:
    age = age_with_all_listed()
    for second, version in enumerate((700, None, 700), start=1):
        answer_probe_with_version(age, float(second), version)
    assert (age.sources_to_relist(4.0), age.age_ms(3.0)) == ([], 0)
