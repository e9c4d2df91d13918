"""How long is waited with the next try, and what counts as a failure of its own."""

from spillway.pauses import Setbacks, doubled_pause_seconds


def test_pauses_double_up_to_the_longest_however_many_there_were() -> None:
    assert [doubled_pause_seconds(0.5, 3.0, pauses) for pauses in (0, 1, 2, 3, 10_000)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_what_fails_within_a_pause_counts_with_what_began_it() -> None:
    setbacks = Setbacks(1.0, 10.0)
    assert setbacks.pause_seconds(0.0) == 0.0
    assert [setbacks.note_failure(at) for at in (5.0, 5.5, 6.0)] == [True, False, True]
    assert (setbacks.count, setbacks.pause_seconds(6.5), setbacks.pause_seconds(9.0)) == (2, 1.5, 0.0)


def test_after_a_success_the_next_failure_is_a_first_one() -> None:
    setbacks = Setbacks(1.0, 10.0)
    for at in (0.0, 1.0, 3.0):
        setbacks.note_failure(at)
    setbacks.note_success()
    assert (setbacks.count, setbacks.pause_seconds(3.0)) == (0, 0.0)
    assert setbacks.note_failure(3.1)
    assert (setbacks.count, round(setbacks.pause_seconds(3.1), 9)) == (1, 1.0)
