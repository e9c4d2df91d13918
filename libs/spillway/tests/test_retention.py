"""Readers that stand before the beginning of a topic go on with what is left, and say what they skip."""

import pytest
from prometheus_client import REGISTRY

from spillway.addresses import CAPACITY_CHANGES, CLUSTERS, LOAD
from spillway.bus import NoLog
from spillway.local_log import PartitionLog
from spillway.retention import skip_deleted_records


def missed_count(topic: str) -> float:
    return REGISTRY.get_sample_value("spillway_records_missed_total", {"topic": topic}) or 0


def test_no_position_stays_before_its_beginning_and_what_is_skipped_is_counted() -> None:
    before = missed_count(LOAD.name)
    positions = {(LOAD.name, 0): 3, (LOAD.name, 1): 20, (CAPACITY_CHANGES.name, 0): 7}
    begins = {(LOAD.name, 0): 10, (LOAD.name, 1): 10, (CAPACITY_CHANGES.name, 0): 7}
    assert skip_deleted_records(positions, begins) == {**positions, (LOAD.name, 0): 10}
    assert missed_count(LOAD.name) == before + 7


def test_what_is_gone_of_a_compacted_topic_is_a_loss_of_the_log() -> None:
    with pytest.raises(NoLog, match="begins at offset 10: records from 3 on were deleted"):
        skip_deleted_records({(CLUSTERS.name, 0): 3}, {(CLUSTERS.name, 0): 10})


@pytest.mark.parametrize(
    ("before", "bytes_max", "begin", "offsets"),
    [
        pytest.param(-1.0, None, 0, [0, 1, 2], id="none is old"),
        pytest.param(0.0, None, 3, [], id="all are old: an idle partition is emptied"),
        pytest.param(-1.0, 20, 1, [1, 2], id="they weigh too much"),
        pytest.param(-1.0, 0, 3, [], id="none may weigh anything"),
    ],
)
def test_retention_deletes_what_is_old_then_what_is_too_much(
    before: float, bytes_max: int | None, begin: int, offsets: list[int]
) -> None:
    log = PartitionLog()
    for _ in range(3):
        log.append_record(b"key", b"1234567", ())
    log.apply_retention(before, bytes_max)
    assert (log.begin, log.end, [record.offset for record in log.records_from(0, 10)]) == (begin, 3, offsets)
