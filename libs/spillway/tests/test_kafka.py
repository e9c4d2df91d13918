"""The bus against brokers that answer what a real one says for a moment only, and nobody can make it say at will."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiokafka.errors import ConcurrentTransactions, ProducerFenced
from aiokafka.producer.sender import AddPartitionsToTxnHandler, Sender
from aiokafka.producer.transaction_manager import TransactionManager
from aiokafka.protocol.admin import ApiVersionResponse_v0
from aiokafka.protocol.coordination import FindCoordinatorResponse_v1
from aiokafka.protocol.metadata import MetadataResponse_v1
from aiokafka.protocol.transaction import AddPartitionsToTxnResponse_v0, InitProducerIdRequest_v0

from spillway.bus import BusUnavailable, OutcomeUnknown
from spillway.events import ClusterLeft
from spillway.kafka.access import find_answering_broker
from spillway.kafka.bus import KafkaBus, KafkaSettings, KafkaStandbyTurn, KafkaWriter
from spillway.kafka.member import GroupMember, GroupSeat
from spillway.kafka.topics import tune_aiokafka

DEADLINE_SECONDS = 60.0
CLIENTS = 10
RETRY_SECONDS = 0.003

ANSWER_BY_REQUEST = {
    18: ApiVersionResponse_v0(0, [(18, 0, 0), (3, 1, 1), (10, 0, 0)]),
    3: MetadataResponse_v1(brokers=[], controller_id=-1, topics=[]),
}


@asynccontextmanager
async def broker_that_names_none() -> AsyncIterator[str]:
    """As a broker does that was frozen and is not admitted again yet: it answers, and knows of no broker."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                request, _, correlation = struct.unpack_from(">hhi", await reader.readexactly(length))
                reply = struct.pack(">i", correlation) + ANSWER_BY_REQUEST[request].encode()
                writer.write(struct.pack(">i", len(reply)) + reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"


@pytest.mark.parametrize(
    "options", [{"transactional_id": "writer"}, {"enable_idempotence": True}], ids=["fenced", "plain"]
)
async def test_a_broker_that_names_no_broker_is_waited_for(options: dict[str, str | bool]) -> None:
    """It is the world's trouble and not a bug of ours, which would end the process."""
    async with broker_that_names_none() as bootstrap:
        bus = KafkaBus(KafkaSettings(bootstrap, request_seconds=0.2), "", "test")
        with pytest.raises(BusUnavailable):
            await bus.retry_until(0.5, lambda: bus.start_producer(**options))


@asynccontextmanager
async def silent_broker() -> AsyncIterator[str]:
    """As a frozen one: it takes connections and says nothing."""

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"


@pytest.mark.kafka
async def test_a_silent_broker_holds_up_no_client(kafka_bootstrap: str) -> None:
    """Whoever waited for it would wait for longer than the deadline; ten clients would each have to be lucky."""
    async with silent_broker() as silent, asyncio.timeout(DEADLINE_SECONDS):
        settings = KafkaSettings(f"{silent},{kafka_bootstrap}", request_seconds=2 * DEADLINE_SECONDS)
        bus = KafkaBus(settings, "", "test")
        for _ in range(CLIENTS):
            await bus.close_later((await bus.start_producer(enable_idempotence=True)).stop())


async def test_when_no_broker_answers_all_are_tried() -> None:
    """The client is left to say what is wrong."""
    async with silent_broker() as gone:
        pass
    assert await find_answering_broker(f"{gone},{gone}") == f"{gone},{gone}"


async def test_the_broker_that_answers_is_taken() -> None:
    """A hundred times, since brokers are asked in any order."""
    async with silent_broker() as silent, broker_that_names_none() as awake:
        found = await asyncio.gather(*(find_answering_broker(f"{silent},{awake}") for _ in range(100)))
    assert set(found) == {awake}


def member_with_all_partitions(partitions: int) -> GroupMember:
    async def join(_: GroupSeat) -> None:
        """There is no group: the test says what it gives."""

    member = GroupMember("group", partitions, let_go_seconds=5.0, join=join)
    member.set_partitions(frozenset(range(partitions)))
    return member


@asynccontextmanager
async def coordinating_broker(asked: asyncio.Future[InitProducerIdRequest_v0]) -> AsyncIterator[str]:
    """It coordinates all transactions, and says nothing when somebody asks to begin some."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = writer.get_extra_info("sockname")
        answers = {
            18: ApiVersionResponse_v0(0, [(18, 0, 0), (3, 1, 1), (10, 0, 1), (22, 0, 0)]),
            3: MetadataResponse_v1(brokers=[(0, host, port, None)], controller_id=0, topics=[]),
            10: FindCoordinatorResponse_v1(0, 0, "", 0, host, port),
        }
        try:
            while True:
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                request = await reader.readexactly(length)
                kind, _, correlation, name = struct.unpack_from(">hhih", request)
                if kind == InitProducerIdRequest_v0.API_KEY:
                    asked.set_result(InitProducerIdRequest_v0.decode(request[10 + name :]))
                    return
                reply = struct.pack(">i", correlation) + answers[kind].encode()
                writer.write(struct.pack(">i", len(reply)) + reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"


async def test_a_transaction_that_nobody_ends_is_ended_by_the_broker_after_ten_seconds() -> None:
    """Until then nobody reads what stands behind it."""
    asked = asyncio.get_running_loop().create_future()
    async with coordinating_broker(asked) as bootstrap, asyncio.timeout(DEADLINE_SECONDS):
        bus = KafkaBus(KafkaSettings(bootstrap, request_seconds=0.2), "", "test")
        taking = asyncio.create_task(
            KafkaStandbyTurn(bus, "planner", "planner-1", member_with_all_partitions(1)).wait_for_turn()
        )
        assert (await asked).transaction_timeout_ms == 10_000
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking


class FailingProducer:
    """As aiokafka's behind a fence, or without brokers."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.begun = 0

    async def begin_transaction(self) -> None:
        self.begun += 1
        raise self._error


@pytest.mark.parametrize("error", [AssertionError("fenced"), ProducerFenced(), OSError("reset"), ValueError("bug")])
async def test_after_a_write_that_failed_a_writer_writes_no_more(error: Exception) -> None:
    """Whatever aiokafka makes of it, its outcome is not known."""
    producer = FailingProducer(error)
    writer = KafkaWriter(KafkaBus(KafkaSettings("127.0.0.1:1"), "", "test"), producer)
    for _ in range(2):
        with pytest.raises(OutcomeUnknown):
            await writer.write_events([ClusterLeft("own-1")])
    assert producer.begun == 1


async def test_a_transaction_after_another_asks_again_as_soon_as_the_settings_say() -> None:
    """By what aiokafka's own code makes of the answer that the marks of the one before are not written yet."""
    tune_aiokafka(RETRY_SECONDS)
    sender = Sender(
        None,
        acks=-1,
        txn_manager=TransactionManager("transactions", 1000),
        message_accumulator=None,
        retry_backoff_ms=100,
        request_timeout_ms=1000,
    )
    refused = AddPartitionsToTxnResponse_v0(0, [("placements", [(0, ConcurrentTransactions.errno)])])
    assert AddPartitionsToTxnHandler(sender, []).handle_response(refused) == RETRY_SECONDS


@pytest.mark.looptime
@pytest.mark.parametrize("given_back", [{0, 1}, {1}, set()], ids=["all", "some", "none"])
async def test_what_a_rebalance_gives_back_within_the_moment_is_kept(given_back: set[int]) -> None:
    """And what it does not give back is let go when the moment is over, not before."""

    member = member_with_all_partitions(2)
    member.release_partitions_soon()
    await asyncio.sleep(4.0)
    assert member.partitions == {0, 1}
    if given_back:
        member.set_partitions(frozenset(given_back))
    await asyncio.sleep(60.0)
    assert member.partitions == given_back
