"""What others wrote behind our back."""

from snapshot.core.log_book import LogBook, address_of_key, block_index, group_name, workload_of_key
from spillway.addresses import CAPACITY, PENDING, PODS, capacity_address, pending_address, pods_address
from spillway.events import CapacityReported, PodsScheduled

BLOCK = (CAPACITY.name, "own-1/0")
GROUP = (PENDING.name, "own-1/default/web")
SCALED = (PODS.name, "default/web/own-1")


def capacity_reported(epoch: int) -> CapacityReported:
    return CapacityReported("own-1", epoch, 0, 1, 1, 0, b"", ())


def test_only_what_is_lower_and_behind_ours_is_foreign() -> None:
    for epoch, offset, own, foreign in (
        (3, 10, 5, True),
        (3, 10, 15, False),
        (7, 10, 5, False),
        (8, 10, 5, False),
    ):
        book = LogBook()
        book.note_record(*BLOCK, offset, capacity_reported(epoch))
        assert book.foreign_keys("own-1", 7, {BLOCK: own}) == ([BLOCK] if foreign else [])


def test_a_key_that_we_never_wrote_is_foreign() -> None:
    book = LogBook()
    book.note_record(*GROUP, 0, PodsScheduled("own-1", "default/web", 3, 1))
    assert book.foreign_keys("own-1", 7, {}) == [GROUP]
    assert book.foreign_keys("own-2", 7, {}) == []


def test_a_tombstone_behind_ours_is_foreign_until_it_is_settled() -> None:
    book = LogBook()
    assert book.note_record(*BLOCK, 9, None) == "own-1"
    assert book.foreign_keys("own-1", 7, {BLOCK: 5}) == [BLOCK]
    assert book.is_tombstone("own-1", BLOCK)
    book.forget_tombstone("own-1", BLOCK)
    assert book.foreign_keys("own-1", 7, {}) == []


def test_an_older_record_does_not_hide_a_newer_one() -> None:
    book = LogBook()
    book.note_record(*BLOCK, 9, None)
    book.note_record(*BLOCK, 4, capacity_reported(3))
    assert book.keys_left_over("own-1") == []


def test_keys_say_what_they_stand_for() -> None:
    assert [block_index(key) for key in (BLOCK, GROUP, SCALED)] == [0, None, None]
    assert [group_name(key) for key in (BLOCK, GROUP, SCALED)] == [None, "default/web", None]
    assert workload_of_key(SCALED) == ("default", "web")
    addresses = [address_of_key("own-1", key) for key in (BLOCK, GROUP, SCALED)]
    assert addresses == [
        capacity_address("own-1", 0),
        pending_address("own-1", "default/web"),
        pods_address("default", "web", "own-1"),
    ]
    assert [(address.topic.name, address.key) for address in addresses] == [BLOCK, GROUP, SCALED]


def test_a_tombstone_of_pods_is_its_clusters() -> None:
    """Its key begins with the workload, and ends with the cluster."""
    assert LogBook().note_record(*SCALED, 9, None) == "own-1"
