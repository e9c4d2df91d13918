"""Defines a record of the log as hpa reads it, for any topic. Pure."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from spillway.addresses import BACKLOG, LOAD, PODS, WORKLOADS
from spillway.events import Event
from spillway.events_scaling import BacklogObserved, LoadObserved, PodsObserved

WorkloadKey = tuple[str, str]
INPUTS: Final = (WORKLOADS.name, PODS.name, LOAD.name, BACKLOG.name)
FORGETTING: Final = (LOAD.name, BACKLOG.name)
"""Topics whose records Kafka deletes after a time. hpa keeps their values in its own state."""


_MEASURED: Final = (LoadObserved, BacklogObserved)


def own_place_name(place: str) -> str:
    """Returns the name under which a state keeps the position of its own namespace in "topic/partition".

    It is only there if it is later than that of the partition, in which records of other namespaces wait.
    """
    return f"{place}/own"


class HeardRecord(Struct, frozen=True):
    """One record of an input topic. event: None for a tombstone; trace: the headers of its trace."""

    topic: str
    partition: int
    offset: int
    key: str
    event: Event | None
    trace: tuple[tuple[str, bytes], ...] = ()

    @property
    def workload(self) -> WorkloadKey:
        namespace, _, rest = self.key.partition("/")
        return namespace, rest.partition("/")[0]

    @property
    def at_ms(self) -> int:
        """Returns the record's own time; 0 when it has none."""
        event = self.event
        if isinstance(event, PodsObserved):
            return event.observed_ms
        return event.at_ms if isinstance(event, _MEASURED) else 0


def records_in_time_order(heard: Sequence[HeardRecord]) -> list[HeardRecord]:
    """Returns the records sorted by time. Records of pods with the same key keep their order in the log.

    A tombstone of pods has no time, and it must come after the records before it.
    """
    times: list[int] = []
    last: dict[str, int] = {}
    for one in heard:
        at_ms = one.at_ms
        if one.topic == PODS.name:
            at_ms = last[one.key] = max(at_ms, last.get(one.key, 0))
        times.append(at_ms)
    return [heard[number] for number in sorted(range(len(heard)), key=times.__getitem__)]
