"""A record that no log takes costs its own key: the others are written, and it is said shorter, or told of once."""

from dataclasses import replace

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from spillway.addresses import Tombstone, status_address
from spillway.dead_letters import UnwritableEvent, outgoing_record
from spillway.events import STATE_REFUSED, CapacityReported, WorkloadObserved
from spillway.fitting import FittingWriter
from spillway.local_bus import LocalBroker, LocalBus
from spillway.model import Generation, NamespaceFacts
from spillway.wire import RECORD_ENTRIES_MAX, decode_event

HUGE = "x" * (3 * 1024 * 1024)
Said = WorkloadObserved | Tombstone


def observed_workload(name: str, message: str = "", ready: int = 1) -> WorkloadObserved:
    return WorkloadObserved("shop", name, "own-1", 3, 1, Generation(5, 1), STATE_REFUSED, message, 1, 1, 1, ready, 1)


def shortened_event(event: Said, why: str) -> Said | None:
    return replace(event, message=why) if isinstance(event, WorkloadObserved) else None


def unwritable_count() -> float:
    return (
        REGISTRY.get_sample_value("spillway_records_unwritable_total", {"topic": "spillway.workload-status.v1"}) or 0.0
    )


def writer_with_broker() -> tuple[FittingWriter[Said], LocalBroker]:
    broker = LocalBroker()
    return FittingWriter[Said](LocalBus(broker, "f-1", "test"), shortened_event), broker


async def test_what_is_too_long_is_said_without_that_and_the_others_are_said_as_they_are() -> None:
    one, _ = writer_with_broker()
    before = unwritable_count()
    gone = Tombstone(status_address("shop", "gone", "own-1"))
    places = await one.publish([observed_workload("a"), observed_workload("b", HUGE), gone])
    assert None not in places
    assert unwritable_count() == before + 1


async def test_what_is_too_long_even_so_is_left_out_and_the_others_are_said() -> None:
    """A number beyond what the wire has: no text is at fault."""
    one, _ = writer_with_broker()
    places = await one.publish([observed_workload("a"), observed_workload("b", ready=2**64), observed_workload("c")])
    assert [place is None for place in places] == [False, True, False]
    assert await one.publish([observed_workload("b", ready=2**64)]) == (None,)


async def test_a_key_is_told_of_once_until_it_was_written_whole() -> None:
    one, _ = writer_with_broker()
    with capture_logs() as told:
        for message in (HUGE, HUGE, "", HUGE):
            await one.publish([observed_workload("b", message)])
    assert [entry["key"] for entry in told] == ["shop/b/own-1"] * 2


@pytest.mark.parametrize("traces", [None, {0: (("traceparent", b"a"),), 2: (("traceparent", b"c"),)}])
async def test_traces_stay_with_their_records(traces: dict[int, tuple[tuple[str, bytes], ...]] | None) -> None:
    one, _ = writer_with_broker()
    places = await one.publish(
        [observed_workload("a", ready=2**64), observed_workload("b"), observed_workload("c")], traces
    )
    assert [place is None for place in places] == [True, False, False]


def test_what_no_reader_takes_is_not_written() -> None:
    """Of short labels many more fit into the bytes of a record than into its entries: each would be a dead letter."""
    labels = (("a", ""),) * RECORD_ENTRIES_MAX
    reported = CapacityReported("own-1", 1, 0, 1, 0, 0, b"", (), (NamespaceFacts("team", labels, ()),))
    with pytest.raises(UnwritableEvent, match=f"labels: {RECORD_ENTRIES_MAX + 1} entries: expected at most"):
        outgoing_record(reported)
    fewer = replace(reported, namespaces=(NamespaceFacts("team", labels[1:], ()),))
    written = outgoing_record(fewer)
    assert decode_event(written.address.topic.name, written.kind, written.value or b"") == fewer
