"""What is private in aiokafka, and how a version that has it no more is noticed."""

import ast
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiokafka
import pytest
from aiokafka import conn
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.conn import AIOKafkaConnection
from aiokafka.consumer import fetcher
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.producer import sender
from aiokafka.producer.transaction_manager import TransactionManager
from aiokafka.protocol.fetch import FetchRequest
from structlog.testing import capture_logs

import spillway
from spillway.kafka import internals
from spillway.kafka.bus import KafkaBus, KafkaSettings
from spillway.kafka.internals import POINTS, OtherShape, PrivatePoint, usable_points
from spillway.kafka.member import GroupMember, GroupSeat

PRIVATE_MODULES = ("aiokafka.consumer.", "aiokafka.coordinator.", "aiokafka.producer.", "aiokafka.record.")


def unlike_any_function(*_: Any, **__: Any) -> None:
    """In place of a function of aiokafka: it uses none of the names that were expected."""


GONE = [
    (internals.TOPICS_AT_ONCE, AIOKafkaClient, "set_topics"),
    (internals.FETCH_SESSIONS, ConnectionGroup, "COORDINATION"),
    (internals.GENERATION, StickyPartitionAssignor, "on_generation_assignment"),
    (internals.OPEN_ENDS, TransactionManager, "maybe_add_partition_to_txn"),
    (internals.RECORDS, fetcher, "MemoryRecords"),
    (internals.TRANSACTION_RETRY, sender, "BACKOFF_OVERRIDE"),
    (internals.BOUNDED_FRAMES, AIOKafkaConnection, "_read"),
]
CHANGED = [
    (internals.TOPICS_AT_ONCE, aiokafka.AIOKafkaConsumer, "__init__"),
    (internals.FETCH_SESSIONS, aiokafka.AIOKafkaConsumer, "start"),
    (internals.FETCH_SESSIONS, fetcher.Fetcher, "__init__"),
    (internals.FETCH_SESSIONS, fetcher.Fetcher, "_proc_fetch_request"),
    (internals.FETCH_SESSIONS, FetchRequest, "__init__"),
    (internals.FETCH_SESSIONS, FetchRequest, "build"),
    (internals.GENERATION, GroupCoordinator, "__init__"),
    (internals.GENERATION, StickyPartitionAssignor, "metadata"),
    (internals.GOOD_BYE, GroupCoordinator, "_maybe_leave_group"),
    (internals.OPEN_ENDS, aiokafka.AIOKafkaProducer, "__init__"),
    (internals.RECORDS, fetcher.Fetcher, "_proc_fetch_request"),
    (internals.RECORDS, fetcher.PartitionRecords, "_unpack_records"),
    (internals.TRANSACTION_RETRY, sender.AddPartitionsToTxnHandler, "handle_response"),
    (internals.BOUNDED_FRAMES, AIOKafkaClient, "bootstrap"),
    (internals.BOUNDED_FRAMES, AIOKafkaClient, "_get_conn"),
    (internals.BOUNDED_FRAMES, conn, "create_conn"),
    (internals.BOUNDED_FRAMES, AIOKafkaClient, "send"),
    (internals.BOUNDED_FRAMES, AIOKafkaConnection, "_handle_frame"),
    (internals.BOUNDED_FRAMES, AIOKafkaConnection, "connect"),
    (internals.BOUNDED_FRAMES, AIOKafkaConnection, "_create_reader_task"),
    (internals.BOUNDED_FRAMES, AIOKafkaConnection, "_read"),
]


def name_of(value: object) -> str:
    return value.name if isinstance(value, PrivatePoint) else getattr(value, "__name__", str(value))


def test_the_version_that_is_pinned_has_all() -> None:
    with capture_logs() as logs:
        assert usable_points() == frozenset(POINTS)
    assert logs == []


@pytest.mark.parametrize(("point", "owner", "name"), GONE, ids=name_of)
def test_a_name_that_is_gone_is_noticed(
    point: PrivatePoint, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Without:
        """As the owner, but for the name."""

        def __getattr__(self, asked: str) -> Any:
            if asked == name:
                raise AttributeError(asked)
            return getattr(owner, asked)

    if isinstance(owner, type):
        monkeypatch.setattr(__import__(owner.__module__, fromlist=["_"]), owner.__name__, Without())
    else:
        monkeypatch.delattr(owner, name)
    assert_noticed(point)


@pytest.mark.parametrize(("point", "owner", "name"), CHANGED, ids=name_of)
def test_a_name_that_nobody_reads_any_more_is_noticed(
    point: PrivatePoint, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what we replace would be replaced in vain, and nothing would fail."""
    monkeypatch.setattr(owner, name, unlike_any_function)
    assert_noticed(point)


def assert_noticed(point: PrivatePoint) -> None:
    """One line names the point and the version that was found: in the log, or as what ends the start."""
    ended, usable = "", frozenset[PrivatePoint]()
    with capture_logs() as logs:
        try:
            usable = usable_points()
        except OtherShape as error:
            ended = str(error)
    assert point not in usable
    about = f"aiokafka {aiokafka.__version__}, point {point.number} of"
    told = [ended] if point.needed else [line["what"] for line in logs]
    assert sum(line.startswith(about) and "\n" not in line for line in told) == 1


async def test_a_start_ends_where_a_point_is_missing_that_cannot_be_done_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before any broker is asked: there is none here."""
    monkeypatch.setattr(fetcher.PartitionRecords, "_unpack_records", unlike_any_function)
    with pytest.raises(OtherShape, match="point 6"):
        await KafkaBus(KafkaSettings("127.0.0.1:1"), "", "test").__aenter__()


def test_no_other_kafka_is_asked_where_its_frames_cannot_be_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AIOKafkaConnection, "_create_reader_task", unlike_any_function)
    with pytest.raises(OtherShape, match="point 8"), internals.bound_frame_bytes(1_000):
        pass


@pytest.mark.parametrize(
    ("fetch_sessions", "usable", "has_sessions"),
    [(True, frozenset(POINTS), True), (False, frozenset(POINTS), False), (True, frozenset(), False)],
    ids=["on", "off", "the shape differs"],
)
async def test_fetch_sessions_are_on_unless_they_are_switched_off_or_cannot_be(
    fetch_sessions: bool, usable: frozenset[PrivatePoint], has_sessions: bool
) -> None:
    bus = KafkaBus(KafkaSettings("127.0.0.1:1", fetch_sessions=fetch_sessions), "", "test")
    bus._usable = usable
    client = SimpleNamespace(cluster=None)
    consumer = SimpleNamespace(_client=client, _fetcher=SimpleNamespace(_client=client))
    sessions = bus._fetch_sessions_of(consumer)
    assert (sessions is not None) == has_sessions
    assert consumer._fetcher._client is (sessions or client)


class Consumer:
    """A static member of a group, as aiokafka's consumer keeps it. left_as: by which name it was when it stopped."""

    def __init__(self) -> None:
        self._coordinator = SimpleNamespace(_group_instance_id="planner-1")
        self.left_as: str | None = ""

    async def stop(self) -> None:
        self.left_as = self._coordinator._group_instance_id


@pytest.mark.parametrize(("says_good_bye", "left_as"), [(True, None), (False, "planner-1")])
async def test_who_leaves_says_good_bye_where_it_can(says_good_bye: bool, left_as: str | None) -> None:
    """Without a name of its own it is a dynamic member, which aiokafka lets say that it leaves."""

    async def join(_: GroupSeat) -> None:
        """There is no group."""

    seat = GroupSeat(GroupMember("group", 1, let_go_seconds=5.0, join=join))
    seat.consumer = Consumer()
    await seat.leave_group(says_good_bye)
    assert seat.consumer.left_as == left_as


def test_no_other_module_reads_what_is_private_in_aiokafka() -> None:
    """Neither a private name, which ruff forbids unless it is excused, nor a module that nobody promised."""
    folder = Path(spillway.__file__).parent / "kafka"
    others = [path for path in folder.glob("*.py") if path.stem != "internals"]
    assert {path.stem for path in others if "SLF001" in path.read_text()} == set()
    found = {name for path in others for name in imported_names(path) if f"{name}.".startswith(PRIVATE_MODULES)}
    assert found == set()


def imported_names(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
