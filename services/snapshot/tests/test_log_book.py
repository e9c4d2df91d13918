"""What others wrote behind our back."""

from snapshot.core.log_book import LogBook, block_index, group_name
from spillway.addresses import CAPACITY, PENDING
from spillway.events import CapacityReported, PodsScheduled

BLOCK = (CAPACITY.name, "own-1/0")
GROUP = (PENDING.name, "own-1/default/web")


def report(epoch: int) -> CapacityReported:
    return CapacityReported("own-1", epoch, 0, 1, 1, 0, b"", ())


def test_only_what_is_lower_and_behind_ours_is_foreign() -> None:
    for epoch, offset, own, foreign in (
        (3, 10, 5, True),
        (3, 10, 15, False),
        (7, 10, 5, False),
        (8, 10, 5, False),
    ):
        book = LogBook()
        book.note(*BLOCK, offset, report(epoch))
        assert book.foreign("own-1", 7, {BLOCK: own}) == ([BLOCK] if foreign else [])


def test_a_key_that_we_never_wrote_is_foreign() -> None:
    book = LogBook()
    book.note(*GROUP, 0, PodsScheduled("own-1", "default/web", 3, 1))
    assert book.foreign("own-1", 7, {}) == [GROUP]
    assert book.foreign("own-2", 7, {}) == []


def test_a_tombstone_behind_ours_is_foreign_until_it_is_settled() -> None:
    book = LogBook()
    assert book.note(*BLOCK, 9, None) == "own-1"
    assert book.foreign("own-1", 7, {BLOCK: 5}) == [BLOCK]
    assert book.is_tombstone("own-1", BLOCK)
    book.settle("own-1", BLOCK)
    assert book.foreign("own-1", 7, {}) == []


def test_an_older_record_does_not_hide_a_newer_one() -> None:
    book = LogBook()
    book.note(*BLOCK, 9, None)
    book.note(*BLOCK, 4, report(3))
    assert book.left_over("own-1") == []


def test_keys_say_what_they_stand_for() -> None:
    assert (block_index(BLOCK), block_index(GROUP), group_name(GROUP)) == (0, None, "default/web")
