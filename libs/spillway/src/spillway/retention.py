"""Moves a reader on when retention has deleted records that it had not read yet."""

from collections import Counter

import structlog

from spillway import metrics
from spillway.addresses import TOPIC_BY_NAME
from spillway.bus import NoLog, Offsets

log = structlog.get_logger()


def skip_deleted_records(positions: Offsets, begins: Offsets) -> dict[tuple[str, int], int]:
    """Returns the positions, each moved to its partition's beginning if it was before that.

    Logs and counts skipped offsets.
    begins: the first offset of each partition, as far as it is known. A topic with retention loses its oldest records
    by design, so its readers work without them. In a compacted topic the same is a loss of the log: raises NoLog.
    """
    found, missed = dict(positions), Counter[str]()
    for place, begin in begins.items():
        if found.get(place, begin) >= begin:
            continue
        topic, partition = place
        if TOPIC_BY_NAME[topic].is_compacted:
            raise NoLog(f"{topic}/{partition} begins at offset {begin}: records from {found[place]} on were deleted")
        missed[topic] += begin - found[place]
        found[place] = begin
    for topic, count in missed.items():
        metrics.RECORDS_MISSED.labels(topic).inc(count)
        log.warning("retention deleted records before they were read", topic=topic, records=count)
    return found
