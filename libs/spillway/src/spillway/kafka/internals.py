"""All uses of private parts of aiokafka. Other modules use none. The numbers are the rows of docs/adr/0036.

Each point lists the names that it needs in aiokafka. `usable_points` looks for all of them in the installed version,
once when a service starts. If a required point is not usable, the start fails; another one is left out. Do not call a
function of a point that was left out.
"""

# ruff: noqa: SLF001
import functools
import importlib
import inspect
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

import aiokafka
import structlog
from aiokafka import TopicPartition

from spillway.settings import OperatorError

log = structlog.get_logger()

CONSUMER, FETCHER, COORDINATOR, STICKY, CONNECTION = (
    "aiokafka:AIOKafkaConsumer",
    "aiokafka.consumer.fetcher:Fetcher",
    "aiokafka.consumer.group_coordinator:GroupCoordinator",
    "aiokafka.coordinator.assignors.sticky.sticky_assignor:StickyPartitionAssignor",
    "aiokafka.conn:AIOKafkaConnection",
)


@dataclass(frozen=True, slots=True)
class PrivatePoint:
    """One use of a private part of aiokafka. number: of its row in ADR 36. Docstrings
    of the functions that use the point begin with this number.

    without: the effect of leaving the point out.
    has: attributes that must exist, as module:name. uses: by function, the names that its code must use; a replaced
    attribute has no effect if no code reads it. tried: a function that returns the text of another defect, or "".
    """

    number: int
    name: str
    needed: bool
    without: str
    has: tuple[str, ...] = ()
    uses: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    tried: Callable[[], str] = field(default=lambda: "", hash=False)


def _fetch_request_lacks() -> str:
    """Returns why SessionClient cannot use aiokafka's fetch requests, for example missing attributes; "" if it can."""
    fetch = importlib.import_module("aiokafka.protocol.fetch")
    request = fetch.FetchRequest(1, 2, 3, 0, [("topic", [(0, 0, 9)])], rack_id="rack")
    if fetch_terms(request) != FetchTerms(max_wait_ms=1, min_bytes=2, max_bytes=3, isolation_level=0, rack_id="rack"):
        return "FetchRequest keeps other terms than it was given"
    built = request.build(fetch.FetchRequest_v11)
    lacks = [name for name in ("session_id", "session_epoch", "forgotten_topics_data") if not hasattr(built, name)]
    return f"FetchRequest_v11 has no {', '.join(lacks)}" if lacks else ""


TOPICS_AT_ONCE: Final = PrivatePoint(
    1,
    "topics are learnt of at once",
    needed=False,
    without="a reader's start takes a tenth of a second for each topic",
    has=("aiokafka.client:AIOKafkaClient.set_topics",),
    uses={f"{CONSUMER}.__init__": ("_client",)},
)
FETCH_SESSIONS: Final = PrivatePoint(
    2,
    "fetch sessions",
    needed=False,
    without="each fetch names all partitions, and reading costs more",
    has=("aiokafka.client:ConnectionGroup.COORDINATION",),
    uses={
        f"{CONSUMER}.start": ("_fetcher",),
        f"{FETCHER}.__init__": ("_client",),
        f"{FETCHER}._proc_fetch_request": ("_client", "send"),
    },
    tried=_fetch_request_lacks,
)
GENERATION: Final = PrivatePoint(
    3,
    "by which generation a member holds what it holds",
    needed=True,
    without="a member that froze would take a turn from its successor",
    has=(f"{STICKY}.on_generation_assignment",),
    uses={
        f"{CONSUMER}.start": ("_coordinator",),
        f"{COORDINATOR}.__init__": ("generation",),
        f"{STICKY}.on_generation_assignment": ("generation",),
        f"{STICKY}.metadata": ("member_assignment",),
    },
)
GOOD_BYE: Final = PrivatePoint(
    4,
    "a static member says good-bye",
    needed=False,
    without="each stop gives its turns away only after a session",
    uses={
        f"{CONSUMER}.start": ("_coordinator",),
        f"{COORDINATOR}._maybe_leave_group": ("_group_instance_id",),
    },
)
OPEN_ENDS: Final = PrivatePoint(
    5,
    "a transaction marks partitions in which it writes nothing",
    needed=True,
    without="what was committed and bears no mark would stay hidden",
    has=("aiokafka.producer.transaction_manager:TransactionManager.maybe_add_partition_to_txn",),
    uses={"aiokafka:AIOKafkaProducer.__init__": ("_txn_manager",)},
)
RECORDS: Final = PrivatePoint(
    6,
    "batches are taken apart by our own rules",
    needed=True,
    without="one record of one publisher would end every reader",
    has=(
        "aiokafka.consumer.fetcher:MemoryRecords",
        *(f"aiokafka.record.memory_records:MemoryRecords.{name}" for name in ("has_next", "next_batch")),
        "aiokafka.record.memory_records:MemoryRecords.size_in_bytes",
    ),
    uses={
        f"{FETCHER}._proc_fetch_request": ("MemoryRecords",),
        "aiokafka.consumer.fetcher:PartitionRecords._unpack_records": ("has_next", "next_batch", "validate_crc"),
    },
)
TRANSACTION_RETRY: Final = PrivatePoint(
    7,
    "the pause after which a transaction asks again whether the broker has written the commit markers of the "
    "previous one",
    needed=False,
    without="a transaction right after another one waits 20 ms",
    has=("aiokafka.producer.sender:BACKOFF_OVERRIDE",),
    uses={"aiokafka.producer.sender:AddPartitionsToTxnHandler.handle_response": ("BACKOFF_OVERRIDE",)},
)
BOUNDED_FRAMES: Final = PrivatePoint(
    8,
    "frames and connections of other people's brokers are bounded",
    needed=False,
    without="the lag of other people's Kafka is unknown",
    has=(f"{CONNECTION}._read",),
    uses={
        "aiokafka.client:AIOKafkaClient.bootstrap": ("create_conn",),
        "aiokafka.client:AIOKafkaClient._get_conn": ("create_conn", "_conns"),
        "aiokafka.conn:create_conn": ("AIOKafkaConnection", "connect"),
        f"{CONNECTION}.connect": ("_create_reader_task",),
        f"{CONNECTION}._create_reader_task": ("_read", "_on_read_task_error"),
        f"{CONNECTION}._read": ("_reader", "readexactly", "_handle_frame"),
        f"{CONNECTION}._handle_frame": ("_requests",),
        "aiokafka.client:AIOKafkaClient.send": ("_conns",),
    },
)
POINTS: Final = (
    TOPICS_AT_ONCE,
    FETCH_SESSIONS,
    GENERATION,
    GOOD_BYE,
    OPEN_ENDS,
    RECORDS,
    TRANSACTION_RETRY,
    BOUNDED_FRAMES,
)


class OtherShape(OperatorError):
    """Raised if the installed aiokafka does not have a point that is required."""


def usable_points() -> frozenset[PrivatePoint]:
    """Returns the points that can be used with the installed aiokafka.

    Each other point is logged with what it lacks. Raises OtherShape if such a point is needed.
    """
    usable = set()
    for point in POINTS:
        lacks = _missing_parts(point)
        if not lacks:
            usable.add(point)
        elif point.needed:
            raise _other_shape(point, lacks)
        else:
            log.warning(
                "a private part of aiokafka differs from what Spillway expects: it is not used",
                what=_point_text(point, lacks),
                so=point.without,
            )
    return frozenset(usable)


def _point_text(point: PrivatePoint, lacks: str) -> str:
    return f"aiokafka {aiokafka.__version__}, point {point.number} of docs/adr/0036 ({point.name}): {lacks}"


def _other_shape(point: PrivatePoint, lacks: str) -> OtherShape:
    return OtherShape(f"{_point_text(point, lacks)}: {point.without}: expected the version that is pinned")


def _missing_parts(point: PrivatePoint) -> str:
    """Returns the parts of the point's shape that are missing; "" when all exist."""
    absent = [f"no {name}" for name in point.has if _find_object(name) is None]
    unread = [f"{function} does not use {name}" for function, name in _unused_names(point)]
    try:
        return ", ".join([*absent, *unread]) or point.tried()
    except Exception as error:  # A different shape of aiokafka may raise any error.
        return repr(error)


def _unused_names(point: PrivatePoint) -> Iterator[tuple[str, str]]:
    """Yields (function, name) for each name that the function should use but does not."""
    for function, names in point.uses.items():
        code = getattr(inspect.unwrap(_find_object(function) or (lambda: None)), "__code__", None)
        known = () if code is None else code.co_names
        yield from ((function, name) for name in names if name not in known)


def _find_object(name: str) -> Any:
    """Returns the object that a text such as "module:Class.attribute" names; None if there is none."""
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ImportError:
        return None
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


async def request_topic_metadata(consumer: Any, names: Sequence[str]) -> None:
    """1. Requests the metadata of all topics at once.

    Otherwise aiokafka requests a topic's metadata at its first use, which takes a tenth of a second for each topic.
    No upstream issue was found.
    """
    await consumer._client.set_topics(names)


@dataclass(frozen=True, slots=True)
class FetchTerms:
    """The fields of a fetch besides its partitions. max_wait_ms: how long the broker may wait for min_bytes."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    rack_id: str


def fetch_terms(request: Any) -> FetchTerms:
    """2. Returns the terms of aiokafka's FetchRequest, so that another one can be made with fewer partitions."""
    return FetchTerms(
        request._max_wait_ms, request._min_bytes, request._max_bytes, request._isolation_level, request._rack_id
    )


def replace_fetch_client(consumer: Any, made_of: Callable[[Any], Any]) -> Any:
    """2. Makes a started consumer fetch with the client that made_of returns for its own client.

    Returns that new client.
    aiokafka has no fetch sessions (KIP-227), and no issue about them was found; #1107 and #1111 change the same
    request.
    """
    consumer._fetcher._client = made_of(consumer._client)
    return consumer._fetcher._client


def own_assignor() -> Any:
    """3. Returns a sticky assignor of its own class.

    aiokafka keeps its state on the class, shared by all groups (#1175).
    """
    sticky = _find_object(STICKY)
    return type("OwnStickyAssignor", (sticky,), {"member_assignment": None, "generation": -1})


def set_assignor_generation(assignor: Any, consumer: Any) -> None:
    """3. Passes the group's generation to the assignor.

    aiokafka does not do it. So a member that was frozen would get back a turn that it has lost (#1176).
    """
    assignor.on_generation_assignment(consumer._coordinator.generation)


def leave_as_dynamic_member(consumer: Any) -> None:
    """4. Lets a consumer leave its group when it is stopped next, as a dynamic member does.

    aiokafka stops a static member without leaving (KIP-345). Issue #680, about static members, does not mention this.
    """
    if consumer._coordinator is not None:
        consumer._coordinator._group_instance_id = None


def add_partitions_to_transaction(producer: Any, places: Sequence[TopicPartition]) -> None:
    """5. Makes the transaction that was begun mark these partitions, too, even if it writes nothing there.

    A broker that dies between a commit and its marks may leave partitions without them. There is no upstream issue, as
    the defect is Kafka's.
    """
    for place in places:
        producer._txn_manager.maybe_add_partition_to_txn(place)


def memory_records(fetched_bytes: bytes) -> Any:
    """6. Returns aiokafka's own reader of batches."""
    return importlib.import_module("aiokafka.record.memory_records").MemoryRecords(fetched_bytes)


def replace_memory_records(by: Callable[[bytes], Any]) -> None:
    """6. Makes aiokafka read every fetch in this process with `by`. #321 asks how to pass over an unreadable record."""
    fetcher = importlib.import_module("aiokafka.consumer.fetcher")
    fetcher.MemoryRecords = by  # type: ignore[attr-defined]


def retry_transactions_every(seconds: float) -> None:
    """7. Sets how often a transaction in this process asks whether the marks of the previous one are written.

    Marks take a broker 2 ms; aiokafka asks every 20 ms. Kafka's own clients have this as KAFKA-5477.
    """
    importlib.import_module("aiokafka.producer.sender").BACKOFF_OVERRIDE = seconds  # type: ignore[attr-defined]


class FrameRefused(ConnectionError):
    """Raised in the reader of a connection whose broker announced a frame outside the bound. The connection closes."""


_frame_bytes_max: ContextVar[int | None] = ContextVar("frame_bytes_max", default=None)
"""The bound of connections that are opened in this context. None is no bound, as for the log itself."""


@contextmanager
def bound_frame_bytes(bytes_max: int) -> Iterator[None]:
    """8. Bounds the answers of each broker to which aiokafka connects inside the block, also from tasks begun there.

    A larger or negative size closes the connection before anything of the frame is read: requests on it fail with
    KafkaConnectionError, whose cause is FrameRefused. Raises OtherShape where the installed aiokafka cannot be bounded.
    aiokafka reads as many bytes as the broker says, up to 2 GiB; no upstream issue was found.
    """
    if lacks := _missing_parts(BOUNDED_FRAMES):
        raise _other_shape(BOUNDED_FRAMES, lacks)
    connection = _find_object(CONNECTION)
    if not getattr(connection._read, "is_bounded", False):
        connection._read = staticmethod(_bound_reader(connection._read))
    token = _frame_bytes_max.set(bytes_max)
    try:
        yield
    finally:
        _frame_bytes_max.reset(token)


def _bound_reader(read: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
    """Returns aiokafka's reader of a connection with the bound of the context in which the connection was opened."""

    @functools.wraps(read)
    async def read_bounded(connection_ref: Any) -> None:
        """Holds the connection by its weak reference alone while it waits, as aiokafka does."""
        bytes_max = _frame_bytes_max.get()
        connection = connection_ref()
        if bytes_max is None or connection is None:
            await read(connection_ref)
            return
        reader = connection._reader
        del connection
        while True:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            if not 0 <= size <= bytes_max:
                raise FrameRefused(f"the broker announced a frame of {size} bytes: expected 0 to {bytes_max}")
            frame = await reader.readexactly(size)
            if (connection := connection_ref()) is None:
                return
            connection._handle_frame(frame)
            del connection, frame

    read_bounded.__dict__["is_bounded"] = True
    return read_bounded


def close_connections(client: Any, connections_max: int) -> None:
    """8. Closes the connections of a client above this number: those without a request first, of these the oldest.

    aiokafka keeps a connection to each broker that it asked, for 9 minutes. No upstream issue was found.
    """
    connections = client._conns
    above = sorted(connections, key=lambda one: bool(connections[one]._requests))[
        : max(0, len(connections) - connections_max)
    ]
    for name in above:
        connections.pop(name).close()
