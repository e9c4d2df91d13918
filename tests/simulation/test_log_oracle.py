"""Each rule of the log's check, broken by a few records."""

import asyncio

import pytest

from spillway.bus import Position
from spillway.dead_letters import outgoing_record
from spillway.events import (
    CapacityChanged,
    CapacityReported,
    ClusterJoined,
    ClusterLeft,
    Event,
    PlacementDecided,
    TurnTaken,
    WorkloadObserved,
)
from spillway.events_scaling import ScaleDecided, ScaleStateChanged
from spillway.model import Generation, Part
from spillway_simulation import log_oracle
from spillway_simulation.log_oracle import LogOracle

CLUSTER, KEY = "own-1", ("shop", "web")
SNAPSHOT, PLANNER, PROPAGATOR, HPA = (
    "spillway/snapshot-1",
    "spillway/planner-1",
    "spillway/propagator-1",
    "spillway/hpa-1",
)
PART = Part(CLUSTER, Generation(0, 2), 2, 0, 2, False)


class Log:
    """A log of one partition for each topic, with the claims of one instance of each service at offset 0."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.oracle = LogOracle(self.said.append)
        self._ends: dict[str, int] = {}
        self.write_events(SNAPSHOT, TurnTaken("snapshot", CLUSTER, "snapshot-1"))
        self.write_events(PROPAGATOR, TurnTaken("propagator", CLUSTER, "propagator-1"))
        self.write_events(PLANNER, TurnTaken("planner", "", "planner-1"))

    def write_events(self, source: str, *events: Event) -> None:
        """One transaction."""
        records = [outgoing_record(event) for event in events]
        positions = [Position(one.address.topic.name, 0, self._next_offset(one.address.topic.name)) for one in records]
        self.oracle.on_records(records, positions, source)

    def _next_offset(self, topic: str) -> int:
        self._ends[topic] = self._ends.get(topic, -1) + 1
        return self._ends[topic]


def capacity_change(sequence: int, epoch: int = 0, age_ms: int = 100) -> CapacityChanged:
    return CapacityChanged(CLUSTER, epoch, 0, sequence, age_ms, b"", (), (), (), "")


def capacity_block(sequence: int, as_of_offset: int) -> CapacityReported:
    return CapacityReported(CLUSTER, 0, 0, 1, sequence, as_of_offset, b"", ())


def workload_status(epoch: int) -> WorkloadObserved:
    return WorkloadObserved(*KEY, CLUSTER, epoch, 1, PART.version, "Present", "", 2, 2, 2, 2, 2)


def placement_event(epoch: int) -> PlacementDecided:
    return PlacementDecided(*KEY, Generation(epoch, 1), 1, (PART,), 0, "")


def scale_state(at_ms: int) -> ScaleStateChanged:
    positions = (("spillway.load.v1/0", 5),)
    return ScaleStateChanged(*KEY, Generation(1, at_ms), Generation(1, 1), at_ms, positions, b"")


SIZE = ScaleDecided(*KEY, Generation(1, 9), "web", "ScalePolicy", 3, 2, 1000, "")


async def test_records_that_keep_the_rules_are_not_complained_of() -> None:
    log = Log()
    log.write_events(SNAPSHOT, capacity_change(1), capacity_change(2))
    log.write_events(SNAPSHOT, capacity_block(2, 3))
    log.write_events(SNAPSHOT, capacity_change(3))
    log.write_events(PROPAGATOR, workload_status(0))
    log.write_events(PLANNER, placement_event(0))
    log.write_events(HPA, scale_state(1000), SIZE)
    log.oracle.judge_growth(KEY, CLUSTER)
    assert log.said == []


@pytest.mark.parametrize(
    ("source", "event", "said"),
    [
        pytest.param(SNAPSHOT, capacity_change(1, epoch=1), "the epoch 1, which nobody claimed there", id="change"),
        pytest.param(PROPAGATOR, workload_status(1), "the epoch 1, which nobody claimed there", id="status"),
        pytest.param(PLANNER, placement_event(1), "the epoch 1, which nobody claimed there", id="placement"),
        pytest.param(
            "spillway/snapshot-2", capacity_change(1), f"the epoch 0, which {SNAPSHOT} claimed", id="another's"
        ),
    ],
)
async def test_an_epoch_is_the_offset_of_its_owners_claim(source: str, event: Event, said: str) -> None:
    log = Log()
    log.write_events(source, event)
    assert [said in sentence for sentence in log.said] == [True]


async def test_a_full_block_is_as_of_its_last_change() -> None:
    log = Log()
    log.write_events(SNAPSHOT, capacity_change(1), capacity_change(2))
    log.write_events(SNAPSHOT, capacity_block(1, 2))
    assert "said to be as of change 1, after 2" in log.said[0]


async def test_nobody_goes_on_behind_a_change_that_a_full_block_does_not_contain() -> None:
    log = Log()
    log.write_events(SNAPSHOT, capacity_change(1))
    log.write_events(SNAPSHOT, capacity_block(1, 3))
    log.write_events(SNAPSHOT, capacity_change(2))
    assert "goes on behind change 2" in log.said[0]


async def test_a_silent_cluster_is_known_as_it_was_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_oracle, "SAID_SECONDS", -1.0)
    log = Log()
    log.oracle.note_silent_cluster(CLUSTER, is_silent=True)
    log.write_events(SNAPSHOT, capacity_change(1, age_ms=-1))
    assert log.said == [], "nothing is known of it"
    log.write_events(SNAPSHOT, capacity_change(2, age_ms=0))
    assert "said to be known as it was 0 ms ago" in log.said[0]
    log.oracle.note_silent_cluster(CLUSTER, is_silent=False)
    log.write_events(SNAPSHOT, capacity_change(3, age_ms=0))
    assert len(log.said) == 1


async def test_what_a_collector_says_after_its_turn_is_nobodys_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_oracle, "SAID_SECONDS", -1.0)
    log = Log()
    log.oracle.note_silent_cluster(CLUSTER, is_silent=True)
    log.write_events("spillway/snapshot-2", TurnTaken("snapshot", CLUSTER, "snapshot-2"))
    log.write_events(SNAPSHOT, capacity_change(2, age_ms=0))
    assert log.said == []
    log.write_events("spillway/snapshot-2", capacity_change(1, epoch=1, age_ms=0))
    assert len(log.said) == 1


async def test_what_is_said_of_a_cluster_that_has_left_is_nobodys_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_oracle, "SAID_SECONDS", -1.0)
    log = Log()
    log.oracle.note_silent_cluster(CLUSTER, is_silent=True)
    log.write_events(PLANNER, ClusterLeft(CLUSTER))
    log.write_events(SNAPSHOT, capacity_change(1, age_ms=0))
    assert log.said == []
    log.write_events(PLANNER, ClusterJoined(CLUSTER, CLUSTER, "", "own", "", "", (), (), "Active"))
    log.write_events(SNAPSHOT, capacity_change(2, age_ms=0))
    assert len(log.said) == 1


async def test_nothing_is_placed_on_what_is_old() -> None:
    log = Log()
    log.write_events(SNAPSHOT, capacity_change(1, age_ms=60_000))
    log.write_events(SNAPSHOT, capacity_change(2, age_ms=-1))
    log.oracle.judge_growth(KEY, CLUSTER)
    assert "what is known of it was" in log.said[0]


async def test_a_decision_that_waited_for_the_log_is_judged_by_when_it_may_have_been_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log()
    log.write_events(SNAPSHOT, capacity_change(1, age_ms=5_000))
    log.oracle.note_log_away(is_away=True)
    monkeypatch.setattr(log_oracle, "AGE_MAX_SECONDS", 5.0)
    await asyncio.sleep(10)
    log.oracle.note_log_away(is_away=False)
    log.oracle.judge_growth(KEY, CLUSTER)
    assert log.said == []
    await asyncio.sleep(log_oracle.WRITTEN_SECONDS)
    log.oracle.judge_growth(KEY, CLUSTER)
    assert "what is known of it was" in log.said[0]


async def test_a_size_is_decided_with_its_state() -> None:
    log = Log()
    log.write_events(HPA, SIZE)
    assert "its state is in no record beside it" in log.said[0]


async def test_a_state_says_what_it_has_read() -> None:
    log = Log()
    log.write_events(HPA, ScaleStateChanged(*KEY, Generation(1, 1), Generation(1, 1), 1000, (), b""))
    assert "does not say what it has read" in log.said[0]
