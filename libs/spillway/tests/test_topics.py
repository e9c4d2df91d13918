"""How topics are made, and which changes of them a process notices that runs."""

import asyncio

import pytest

from spillway.addresses import CLAIM_TOPIC_BY_SERVICE, CLUSTERS, DAY_MS, TOPICS, Topic
from spillway.bus import NoLog
from spillway.kafka.topics import TopicSettings, TopicsState, configs_of, partition_count, wait_for_log_change

SETTINGS = TopicSettings()
COMPACTED = [topic for topic in TOPICS if topic.is_compacted]


@pytest.mark.parametrize("service", ["planner", "hpa", "descheduler"])
def test_a_turn_that_one_instance_has_is_one_partition(service: str) -> None:
    """A group gives each partition to one instance: with two of them two would decide."""
    assert partition_count(CLAIM_TOPIC_BY_SERVICE[service], SETTINGS) == 1


@pytest.mark.parametrize("service", ["snapshot", "propagator", "vk-bridge"])
def test_claims_of_clusters_are_in_as_many_partitions_as_clusters(service: str) -> None:
    """But for the propagator's, which stand among statuses of workloads."""
    expected = SETTINGS.partitions_workload if service == "propagator" else partition_count(CLUSTERS, SETTINGS)
    assert partition_count(CLAIM_TOPIC_BY_SERVICE[service], SETTINGS) == expected


@pytest.mark.parametrize("topic", COMPACTED, ids=lambda topic: topic.name)
def test_what_a_late_owner_may_still_answer_is_not_compacted_before(topic: Topic) -> None:
    """Ten minutes at least; what the planner reads is there for a day."""
    least_ms = DAY_MS if "planner" in topic.readers else 600_000
    assert int(configs_of(topic, SETTINGS)["min.compaction.lag.ms"]) >= least_ms


# ── A log that changes while a process runs ─────────────────────────────────────────────────────────────────────────

KNOWN = TopicsState("f-1", {topic.name: 2 for topic in TOPICS})


class Log:
    """What is read of it, once known, in this order; the last for ever."""

    def __init__(self, *states: TopicsState | Exception) -> None:
        self._states = [KNOWN, *states]

    async def read(self) -> TopicsState:
        state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        if isinstance(state, Exception):
            raise state
        return state


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("state", "said"),
    [
        (TopicsState("f-2", KNOWN.partition_counts), "'f-2', not of 'f-1'"),
        (TopicsState("f-1", {**KNOWN.partition_counts, CLUSTERS.name: 3}), "other partitions"),
        (NoLog("no topic clusters"), "no topic clusters"),
    ],
    ids=["another fleet's", "topics that grew", "topics that are gone"],
)
async def test_a_process_hears_that_the_log_is_another_one(state: TopicsState | Exception, said: str) -> None:
    """It must stop: neither its turns nor its offsets mean anything there."""
    async with asyncio.timeout(100):
        assert said in await wait_for_log_change(KNOWN, Log(state).read, 5.0, 10.0)


@pytest.mark.looptime
async def test_a_log_that_does_not_answer_is_not_another_one() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(100):
            await wait_for_log_change(KNOWN, Log(OSError("away"), KNOWN).read, 5.0, 10.0)
