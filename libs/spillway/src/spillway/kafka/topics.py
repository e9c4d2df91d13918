"""The topics of a fleet: creates or compares them, forms the fleet once, and reads which fleet a log belongs to.

`python -m spillway.kafka.topics` may run any number of times, also at the same time. One run forms the fleet.
"""

import argparse
import asyncio
import logging
import os
import re
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from spillway import metrics
from spillway.addresses import DEAD_LETTERS, FLEET, SCOPE_CLUSTER, SCOPE_WORKLOAD, TOPICS, Topic
from spillway.bus import NoLog, OtherFleet
from spillway.dead_letters import RECORD_BYTES_MAX, outgoing_record, record_headers
from spillway.events import FleetFormed
from spillway.kafka import internals
from spillway.kafka.access import KafkaAccess, LetNotIn, load_kafka_access
from spillway.kafka.batches import KafkaBatches
from spillway.kafka.settings import KAFKA_PREFIX, TOPICS_TRANSACTIONS, KafkaSettings
from spillway.settings import OperatorError, settings_from_environment
from spillway.wire import UnreadableMessage, decode_event

log = logging.getLogger(__name__)
FLEET_NAME_LENGTH_MAX = 54
"""The longest name of a fleet. A label's value has at most 63 characters; the rest is for the id that follows the
name."""
_FLEET_NAME = re.compile(rf"(?=.{{1,{FLEET_NAME_LENGTH_MAX}}}\Z)[A-Za-z0-9][-A-Za-z0-9_.]*")


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The properties of the topics. They are options of the topics command, not environment variables."""

    topic_prefix: str = ""
    """Put before every topic's name, so that fleets can share a broker."""
    partitions_cluster: int = 64
    """The number of partitions of each topic of the cluster scope."""
    partitions_workload: int = 16
    """The number of partitions of each topic of the workload scope."""
    replication_factor: int = -1
    """The number of copies of each partition; -1 takes the broker's default."""
    configs: tuple[str, ...] = ()
    """Topic configs (name=value) that differ from the design, for tests."""
    ensure_seconds: float = 60.0
    """The longest time for the whole command. A broker that is starting answers well within it."""


@dataclass(frozen=True, slots=True)
class TopicsState:
    """The fleet that the log belongs to, and the number of partitions of each topic."""

    fleet: str
    partition_counts: Mapping[str, int]


async def ensure_topics(
    access: KafkaAccess,
    settings: TopicSettings,
    fleet_name: str,
    say: Callable[[str], None] = log.info,
    wanted_fleet: str | None = None,
) -> str:
    """Creates missing topics, passes differences as text to `say`, forms the fleet if there is none. Returns its id.

    Raises OperatorError when fleet_name cannot be the value of a label.
    wanted_fleet: the id of the only fleet that may exist already; another one raises OtherFleet. Empty: no fleet may
    exist. None: any may.
    """
    if not _FLEET_NAME.fullmatch(fleet_name):
        text = f"letters, digits, '-', '_' and '.', at most {FLEET_NAME_LENGTH_MAX}: objects bear it in a label"
        raise OperatorError(f"fleet name: {fleet_name!r}: expected {text}")
    async with asyncio.timeout(settings.ensure_seconds):
        try:
            admin = AIOKafkaAdminClient(**await access.client_arguments())
            try:
                await admin.start()
                await _create_missing_topics(admin, settings, say)
                await _report_topic_differences(admin, settings, say)
            finally:
                await admin.close()
            fleet, formed = await _form_fleet(access, settings, fleet_name, say)
        except KafkaError as error:
            await access.raise_known_reason(error, "use")
            raise
    if not formed and wanted_fleet is not None and fleet != wanted_fleet:
        wanted = f"not of {wanted_fleet!r}" if wanted_fleet else "and was to have none yet"
        raise OtherFleet(f"this log is of fleet {fleet!r}, {wanted}")
    return fleet


def partition_count(topic: Topic, settings: TopicSettings) -> int:
    counts = {SCOPE_CLUSTER: settings.partitions_cluster, SCOPE_WORKLOAD: settings.partitions_workload}
    return counts.get(topic.scope, 1)


def configs_of(topic: Topic, settings: TopicSettings) -> dict[str, str]:
    """Returns the configs of a topic, by Kafka's names. Dead letters are deleted after a time and also compacted."""
    if topic.is_compacted:
        kept = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(topic.lag_ms)}
    else:
        policy = "compact,delete" if topic == DEAD_LETTERS else "delete"
        kept = {"cleanup.policy": policy, "retention.ms": str(topic.retention_ms)}
    return kept | {"max.message.bytes": str(RECORD_BYTES_MAX)} | dict(pair.split("=", 1) for pair in settings.configs)


async def _create_missing_topics(admin: Any, settings: TopicSettings, say: Callable[[str], None]) -> None:
    there = set(await admin.list_topics())
    missing = [topic for topic in TOPICS if settings.topic_prefix + topic.name not in there]
    if not missing:
        return
    answer = await admin.create_topics(
        [
            NewTopic(
                settings.topic_prefix + topic.name,
                partition_count(topic, settings),
                settings.replication_factor,
                {} if settings.replication_factor == -1 else None,  # aiokafka refuses −1 without an assignment
                topic_configs=configs_of(topic, settings),
            )
            for topic in missing
        ]
    )
    for name, code, *reason in answer.topic_errors:
        error = for_code(code)
        if code and error is not TopicAlreadyExistsError:
            raise error(f"{name}: {reason}")
        say(f"{name}: {'created by another run' if code else 'created'}")


async def _report_topic_differences(admin: Any, settings: TopicSettings, say: Callable[[str], None]) -> None:
    described = {entry["topic"]: entry for entry in await admin.describe_topics(None)}
    resources = [ConfigResource(ConfigResourceType.TOPIC, settings.topic_prefix + topic.name) for topic in TOPICS]
    (answer,) = await admin.describe_configs(resources)
    found = {name: {entry[0]: entry[1] for entry in entries} for _, _, _, name, entries in answer.resources}
    for topic in TOPICS:
        name = settings.topic_prefix + topic.name
        wanted = partition_count(topic, settings)
        count = len(described[name]["partitions"]) if name in described else wanted
        if count != wanted:
            say(f"{name}: {count} partitions, expected {wanted}")
        for config, value in configs_of(topic, settings).items():
            there = found.get(name, {}).get(config)
            if there is not None and set(there.split(",")) != set(value.split(",")):
                say(f"{name}: {config} is {there}, expected {value}")


async def _form_fleet(
    access: KafkaAccess, settings: TopicSettings, fleet_name: str, say: Callable[[str], None]
) -> tuple[str, bool]:
    """Forms the fleet unless the log has one. Returns its id, and whether this run formed it.

    Opening the transactional producer fences other runs, so a fleet that is read here stays the same until the write.
    """
    producer = AIOKafkaProducer(
        **await access.client_arguments(), transactional_id=settings.topic_prefix + TOPICS_TRANSACTIONS
    )
    await producer.start()
    try:
        reader = LogReader(access, settings.topic_prefix)
        async with reader:
            with suppress(NoLog):
                fleet = (await reader.read_topics_state()).fleet
                say(f"fleet {fleet}: formed before")
                return fleet, False
            fleet = f"{fleet_name}-{secrets.token_hex(4)}"
            record = outgoing_record(FleetFormed(fleet))
            headers = record_headers(record, fleet, "topics", secrets.token_hex(16), datetime.now(UTC).isoformat())
            name = settings.topic_prefix + FLEET.name
            try:
                async with producer.transaction():
                    await producer.send_and_wait(name, record.value, record.key, 0, headers=list(headers))
            except (KafkaError, AssertionError) as error:  # aiokafka asserts after a fence.
                fleet = await _wait_for_fleet(reader)  # The run that fenced this one may not have written yet.
                say(f"fleet {fleet}: formed by another run ({error!r})")
                return fleet, False
            await _wait_for_fleet(reader)
            say(f"fleet {fleet}: formed")
            return fleet, True
    finally:
        await producer.stop()


async def _wait_for_fleet(reader: "LogReader") -> str:
    """Returns the fleet id once it can be read. A commit is acknowledged a moment before its mark lets readers pass."""
    while True:
        with suppress(NoLog):
            return (await reader.read_topics_state()).fleet
        await asyncio.sleep(0.01)


def tune_aiokafka(transaction_retry_seconds: float | None) -> None:
    """Adapts aiokafka in this process, and the exception handler of the running loop.

    aiokafka logs each failed attempt and leaves futures of a failed producer unread; we log each change instead. A
    batch that aiokafka cannot read becomes one unreadable record (batches.py).
    transaction_retry_seconds: the pause between two requests for the marks of an earlier transaction; None leaves
    aiokafka's value.
    """
    internals.replace_memory_records(KafkaBatches)
    if transaction_retry_seconds is not None:
        internals.retry_transactions_every(transaction_retry_seconds)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    if before is not None and getattr(before, "is_quiet", False):
        return

    def handle_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), KafkaError) and "never retrieved" in context["message"]:
            return
        if before is None:
            loop.default_exception_handler(context)
        else:
            before(loop, context)

    handle_exception.is_quiet = True  # type: ignore[attr-defined]
    loop.set_exception_handler(handle_exception)


async def wait_for_log_change(
    known: TopicsState, read: Callable[[], Awaitable[TopicsState]], every_seconds: float, request_seconds: float
) -> str:
    """Waits until the log's fleet or partitions change; returns the reason. Logs once when the log does not answer."""
    connected = True
    metrics.BUS_CONNECTED.set(1)
    while True:
        await asyncio.sleep(every_seconds)
        trouble = ""
        try:
            async with asyncio.timeout(request_seconds):
                state = await read()
            if state.fleet != known.fleet:
                return f"the log is now of fleet {state.fleet!r}, not of {known.fleet!r}"
            if state.partition_counts != known.partition_counts:
                return "the topics have other partitions than when this process started"
        except NoLog as error:
            return str(error)
        except (KafkaError, OSError, TimeoutError) as error:
            trouble = repr(error)
        if connected == bool(trouble):
            connected = not trouble
            metrics.BUS_CONNECTED.set(int(connected))
            log.warning("the log answers again" if connected else f"the log does not answer: {trouble}")


async def find_unmarked_partitions(
    committed: Any, written: Any, places: list[TopicPartition], seconds: float
) -> list[TopicPartition]:
    """Returns the partitions that still end in a transaction without a mark after `seconds`; [] as soon as none does.

    committed, written: consumers with isolation read_committed and read_uncommitted.
    A broker that dies between a commit and its marks, and comes back, may take the marks for written (seen with Kafka
    4.3.1 alone: PrepareCommit, then after its restart CompleteCommit, and no mark). Acknowledged records are then
    hidden until the same producer commits there again.
    """
    deadline = time.monotonic() + seconds
    while True:
        ends, stable = await written.end_offsets(places), await committed.end_offsets(places)
        left = [place for place in places if stable[place] < ends[place]]
        if not left or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.01)


async def wait_for_hidden_partitions(
    committed: Any, written: Any, places: list[TopicPartition], seconds: float
) -> list[TopicPartition]:
    """Waits until committed readers cannot advance to written records for `seconds`. Returns these partitions.

    That is longer than any transaction takes, so the marks are missing. The offsets are compared every `seconds`.
    committed, written: as in find_unmarked_partitions.
    """
    before: Mapping[TopicPartition, int] = {}
    while True:
        ends, stable = await written.end_offsets(places), await committed.end_offsets(places)
        left = {place: stable[place] for place in places if stable[place] < ends[place]}
        if still := [place for place, offset in left.items() if before.get(place) == offset]:
            return still
        before = left
        await asyncio.sleep(seconds)


class LogReader:
    """Reads which fleet the log belongs to. Every read asks the broker again, and raises aiokafka's errors."""

    def __init__(self, access: KafkaAccess, topic_prefix: str, request_seconds: float = 10.0) -> None:
        self._access = access
        self._prefix = topic_prefix
        self._place = TopicPartition(topic_prefix + FLEET.name, 0)
        self._milliseconds = int(request_seconds * 1000)
        self._admin: Any = None
        self._consumer: Any = None

    async def __aenter__(self) -> "LogReader":
        arguments = await self._access.client_arguments()
        self._admin = AIOKafkaAdminClient(**arguments, request_timeout_ms=self._milliseconds)
        self._consumer = AIOKafkaConsumer(
            **arguments,
            isolation_level="read_committed",
            fetch_max_wait_ms=10,  # A broker notices a closed TLS connection only when no fetch waits.
            request_timeout_ms=self._milliseconds,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        try:
            await self._admin.start()
            await self._consumer.start()
        except BaseException as error:
            await self.__aexit__()
            await self._access.raise_known_reason(error, "use")
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        # It runs in a task: aiokafka passes on cancellations of its own tasks, which would seem to be the caller's.
        await asyncio.wait([asyncio.create_task(self._close())])

    async def _close(self) -> None:
        try:
            with suppress(KafkaError, OSError, TimeoutError):
                await self._consumer.stop()
        finally:
            await self._admin.close()

    async def read_topics_state(self) -> TopicsState:
        """Returns the state of the log. Raises NoLog when a topic is missing or no fleet was formed."""
        described = {entry["topic"]: len(entry["partitions"]) for entry in await self._admin.describe_topics(None)}
        missing = [topic.name for topic in TOPICS if self._prefix + topic.name not in described]
        if missing:
            seen = f" that {self._access.who} may see" if self._access.proof else ""
            raise NoLog(f"no topic {', '.join(missing)}{seen}: run `spillway topics`, or this is another broker")
        try:
            fleet = await self._read_fleet()
        except KafkaError as error:
            self._access.check_allowed(error, "read")
            raise
        if not fleet:
            raise NoLog(f"no fleet was formed on topic {FLEET.name}: run `spillway topics`")
        return TopicsState(fleet, {topic.name: described[self._prefix + topic.name] for topic in TOPICS})

    async def _read_fleet(self) -> str:
        """Returns the fleet that was formed last. Each call reads the whole topic, which is one record."""
        self._consumer.assign([self._place])
        begin = (await self._consumer.beginning_offsets([self._place]))[self._place]
        end = (await self._consumer.end_offsets([self._place]))[self._place]
        self._consumer.seek(self._place, begin)
        fleet = ""
        while await self._consumer.position(self._place) < end:
            for records in (await self._consumer.getmany(timeout_ms=100)).values():
                for record in records:
                    kind = dict(record.headers).get("ce_type", b"").decode(errors="replace")
                    with suppress(UnreadableMessage):
                        event = decode_event(FLEET.name, kind, record.value or b"")
                        fleet = event.fleet if isinstance(event, FleetFormed) else fleet
        return fleet


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m spillway.kafka.topics", description="Create or check the topics.")
    parser.add_argument("--bootstrap", default=os.environ.get("SPILLWAY_KAFKA_BOOTSTRAP", "127.0.0.1:9092"))
    parser.add_argument("--fleet-name", default=os.environ.get("SPILLWAY_FLEET_NAME", "fleet"))
    parser.add_argument("--topic-prefix", default=os.environ.get("SPILLWAY_KAFKA_TOPIC_PREFIX", ""))
    parser.add_argument("--partitions-cluster", type=int, default=64)
    parser.add_argument("--partitions-workload", type=int, default=16)
    parser.add_argument("--replication-factor", type=int, default=-1, help="-1: the broker's default")
    asked = parser.parse_args()
    settings = TopicSettings(
        topic_prefix=asked.topic_prefix,
        partitions_cluster=asked.partitions_cluster,
        partitions_workload=asked.partitions_workload,
        replication_factor=asked.replication_factor,
    )
    try:
        kafka = settings_from_environment(
            KafkaSettings, os.environ | {"SPILLWAY_KAFKA_BOOTSTRAP": asked.bootstrap}, KAFKA_PREFIX
        )
        asyncio.run(
            ensure_topics(load_kafka_access(kafka.bootstrap, kafka.security), settings, asked.fleet_name, print)
        )
    except (OperatorError, LetNotIn) as error:
        sys.exit(error.args[0])


if __name__ == "__main__":
    main()
