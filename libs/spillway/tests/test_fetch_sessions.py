"""Fetch sessions against a broker that keeps them by the rules of KIP-227: it reads what is wanted, whatever comes."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.client import ConnectionGroup
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.fetch import FetchRequest, FetchRequest_v4, FetchRequest_v11, FetchResponse_v4, FetchResponse_v11
from hypothesis import given
from hypothesis import strategies as st

from spillway.kafka.fetch_sessions import EPOCH_MAX, SessionClient

Places = dict[tuple[str, int], tuple[int, int]]
NODE, OTHER_NODE = 1, 2
SHORT_MS, IDLE_MS = 500, 2_000
NOT_FOUND, BAD_EPOCH = 70, 71


@dataclass
class Leaders:
    """As aiokafka's metadata of the cluster."""

    moved: set[tuple[str, int]] = field(default_factory=set)

    def leader_for_partition(self, place: TopicPartition) -> int:
        return OTHER_NODE if (place.topic, place.partition) in self.moved else NODE


@dataclass
class Broker:
    """As aiokafka's client, it sends to one broker. reads: what the broker reads for the last fetch; named: in it.

    waits_ms: how long the broker may wait, by fetch.
    trouble: what becomes of the next fetch: "" (answered), "unheard", "unanswered", "forgotten" (its session).
    """

    grants: bool = True
    reads: Places = field(default_factory=dict)
    named: int = 0
    trouble: str = ""
    cluster: Leaders = field(default_factory=Leaders)
    waits_ms: list[int] = field(default_factory=list)
    _sessions: dict[int, tuple[int, Places]] = field(default_factory=dict)
    _numbers: int = 0

    async def send(self, node: int, request: Any, *, group: ConnectionGroup) -> Any:
        assert group != ConnectionGroup.DEFAULT, "what else is asked would wait for news, too"
        asked = request.build(FetchRequest_v11)
        assert asked.decode(asked.encode()) == asked
        self.waits_ms.append(asked.max_wait_time)
        trouble, self.trouble = self.trouble, ""
        if trouble == "unheard":
            raise KafkaConnectionError
        if trouble == "forgotten":
            self._sessions.clear()
        answer = self._answer_fetch(asked)
        if trouble == "unanswered":
            raise KafkaConnectionError
        return answer

    def _answer_fetch(self, asked: Any) -> Any:
        news = {(topic, one): (at, size) for topic, there in asked.topics for one, _, at, _, size in there}
        self.named = len(news)
        if asked.session_epoch <= 0:
            self._sessions.pop(asked.session_id, None)
            self.reads, number = news, 0
            if self.grants and asked.session_epoch == 0:
                number = self._numbers = self._numbers + 1
                self._sessions[number] = 1, dict(news)
            return FetchResponse_v11(0, 0, number, [])
        if asked.session_id not in self._sessions:
            return FetchResponse_v11(0, NOT_FOUND, 0, [])
        epoch, known = self._sessions[asked.session_id]
        if epoch != asked.session_epoch:
            return FetchResponse_v11(0, BAD_EPOCH, 0, [])
        known |= news
        for topic, there in asked.forgotten_topics_data:
            for one in there:
                del known[topic, one]
        self._sessions[asked.session_id] = (epoch + 1 if epoch < EPOCH_MAX else 1), known
        self.reads = dict(known)
        return FetchResponse_v11(0, 0, asked.session_id, [])


def session_client_of(broker: Any, paused: Collection[TopicPartition] = ()) -> SessionClient:
    return SessionClient(broker, IDLE_MS, lambda place: place not in paused)


def fetch_request_for(wanted: Places) -> FetchRequest:
    topics = [(topic, [(one, *asked)]) for (topic, one), asked in wanted.items()]
    return FetchRequest(SHORT_MS, 1, 1 << 20, 1, topics, rack_id="")


places = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3)), st.tuples(st.integers(0, 3), st.just(9)), min_size=1
)
steps = st.lists(st.tuples(places, st.sampled_from(["", "", "", "unheard", "unanswered", "forgotten"])), max_size=12)


@given(steps=steps, grants=st.booleans())
def test_the_broker_reads_what_is_wanted(steps: list[tuple[Places, str]], grants: bool) -> None:
    """Once it answers without an error, which is at the next fetch after any trouble."""

    async def run() -> None:
        client = session_client_of(broker := Broker(grants))
        for wanted, trouble in [*steps, ({("a", 0): (1, 9)}, ""), ({("b", 0): (1, 9)}, "")]:
            broker.trouble = trouble
            try:
                answer = await client.send(NODE, fetch_request_for(wanted))
            except KafkaConnectionError:
                continue
            if answer.error_code:
                assert trouble == "forgotten"
                answer = await client.send(NODE, fetch_request_for(wanted))
            assert answer.error_code == 0
            assert broker.reads == wanted

    asyncio.run(run())


async def test_only_what_is_new_to_the_broker_is_named() -> None:
    client = session_client_of(broker := Broker())
    wanted = {("a", one): (one, 9) for one in range(300)}
    named = []
    for _ in range(2):
        await client.send(NODE, fetch_request_for(wanted))
        named.append(broker.named)
    await client.send(NODE, fetch_request_for(wanted | {("a", 7): (8, 9)}))
    assert [*named, broker.named] == [300, 0, 1]
    client.sessions[NODE].epoch = EPOCH_MAX
    broker._sessions = {number: (EPOCH_MAX, known) for number, (_, known) in broker._sessions.items()}
    for _ in range(2):
        await client.send(NODE, fetch_request_for(wanted))
        assert broker.reads == wanted
    assert client.sessions[NODE].epoch == 2


async def test_a_broker_that_refuses_to_open_sessions_is_asked_without() -> None:
    class Refusing(Broker):
        def _answer_fetch(self, asked: Any) -> Any:
            return FetchResponse_v11(0, BAD_EPOCH, 0, []) if asked.session_epoch == 0 else super()._answer_fetch(asked)

    client = session_client_of(broker := Refusing())
    wanted = {("a", 0): (1, 9), ("a", 1): (1, 9)}
    codes = [(await client.send(NODE, fetch_request_for(wanted))).error_code for _ in range(3)]
    assert (codes, broker.reads, broker.named) == ([BAD_EPOCH, 0, 0], wanted, 2)


async def test_versions_without_sessions_name_all() -> None:
    class Old:
        cluster = Leaders()

        async def send(self, node: int, request: Any, **_: Any) -> Any:
            asked = request.build(FetchRequest_v4)
            self.named = sum(len(there) for _, there in asked.decode(asked.encode()).topics)
            return FetchResponse_v4(0, [])

    client = session_client_of(old := Old())
    for _ in range(2):
        await client.send(NODE, fetch_request_for({("a", 0): (1, 9), ("a", 1): (1, 9)}))
        assert old.named == 2


A, B, C = (TopicPartition("a", one) for one in range(3))


@pytest.mark.parametrize(
    ("asked", "waits_ms"),
    [
        pytest.param("abc abc abc", [SHORT_MS, IDLE_MS, IDLE_MS], id="all that is followed"),
        pytest.param("abc ab ab abc", [SHORT_MS, SHORT_MS, SHORT_MS, IDLE_MS], id="records of one are not taken yet"),
        pytest.param("abc ab! ab ab abc", [SHORT_MS] * 4 + [IDLE_MS], id="and the session was lost meanwhile"),
        pytest.param("abc ab/c ab", [SHORT_MS, IDLE_MS, IDLE_MS], id="one is read from another broker now"),
        pytest.param("abc ab-c ab", [SHORT_MS, IDLE_MS, IDLE_MS], id="one is passed over from now on"),
    ],
)
async def test_a_fetch_waits_long_only_where_nothing_is_left_out(asked: str, waits_ms: list[int]) -> None:
    """!: the broker forgets the session. /c, -c: c moved to another broker, or is paused."""
    paused: set[TopicPartition] = set()
    client = session_client_of(broker := Broker(), paused)
    for step in asked.split():
        broker.trouble = "forgotten" if "!" in step else ""
        if "/c" in step:
            broker.cluster.moved.add(C)
        if "-c" in step:
            paused.add(C)
        wanted: Places = {place: (0, 9) for name, place in zip("abc", (A, B, C), strict=True) if name in step[:3]}
        await client.send(NODE, fetch_request_for(wanted))
    assert broker.waits_ms == waits_ms
    assert client.answers == len(waits_ms)
