"""The state of a log's brokers, for the check of an installation: topics, their configs and copies, and the disks."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import ClusterAuthorizationFailedError, KafkaError, UnsupportedVersionError, for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

from spillway.addresses import TOPICS
from spillway.bus import BusUnavailable, NoLog
from spillway.kafka.access import KafkaAccess, LetNotIn, LogClosed
from spillway.kafka.topics import LogReader

MAY_NOT_ASK = (ClusterAuthorizationFailedError, UnsupportedVersionError, NotImplementedError)
"""The errors after which a broker's disks stay unknown: we lack the right, or the broker is too old for the request."""


@dataclass(frozen=True, slots=True)
class TopicFound:
    """One of our topics on the brokers.

    copies: the number of copies of the partition with the fewest. behind: how many partitions have a copy out of sync.
    leaderless: the number of partitions that nobody can write.
    configs: by Kafka's names; if the topic does not set one, the broker's value.
    """

    partitions: int
    copies: int
    behind: int
    leaderless: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DiskFound:
    """A log directory of a broker.

    used: bytes of the partitions in it. size, free: bytes of its volume, −1 when the broker does not report them.
    trouble: the reason why its size is unknown. may_not_ask: True if that is because we lack the right, or the broker
    is too old for the request.
    """

    broker: int
    path: str
    used: int
    size: int
    free: int
    trouble: str = ""
    may_not_ask: bool = False


@dataclass(frozen=True, slots=True)
class LogFound:
    """The state of a log. topics: ours, by name without the prefix.

    fleet: empty when none was formed or a topic is missing.
    """

    brokers: int
    topics: Mapping[str, TopicFound]
    disks: tuple[DiskFound, ...]
    fleet: str


async def inspect_log(access: KafkaAccess, topic_prefix: str, seconds: float) -> LogFound:
    """Reads the state of the log, and changes nothing. Raises BusUnavailable when the brokers do not answer in time."""
    try:
        async with asyncio.timeout(seconds):
            admin = AIOKafkaAdminClient(**await access.client_arguments(), request_timeout_ms=int(1000 * seconds))
            try:
                await admin.start()
                brokers, topics = await _read_brokers_and_topics(admin, topic_prefix)
            except KafkaError as error:
                await access.raise_known_reason(error, "use")
                raise
            finally:
                await admin.close()
            disks = await _read_disks(access, brokers)
            return LogFound(len(brokers), topics, disks, await _read_fleet(access, topic_prefix, seconds))
    except LetNotIn as error:
        raise LogClosed(error.args[0]) from error
    except (KafkaError, OSError, TimeoutError) as error:
        raise BusUnavailable(f"Kafka at {access.bootstrap}: {str(error) or 'no answer in time'}") from error


async def _read_brokers_and_topics(admin: Any, prefix: str) -> tuple[list[int], Mapping[str, TopicFound]]:
    brokers = [broker["node_id"] for broker in (await admin.describe_cluster())["brokers"]]
    described = {entry["topic"]: entry["partitions"] for entry in await admin.describe_topics(None)}
    there = [topic.name for topic in TOPICS if prefix + topic.name in described]
    configs = await _read_topic_configs(admin, [prefix + name for name in there]) if there else {}
    topics = {name: _topic_found(described[prefix + name], configs.get(prefix + name, {})) for name in there}
    return brokers, topics


async def _read_topic_configs(admin: Any, names: list[str]) -> Mapping[str, Mapping[str, str]]:
    (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name) for name in names])
    return {name: {entry[0]: entry[1] or "" for entry in entries} for _, _, _, name, entries in answer.resources}


def _topic_found(partitions: list[dict[str, Any]], configs: Mapping[str, str]) -> TopicFound:
    return TopicFound(
        partitions=len(partitions),
        copies=min(len(one["replicas"]) for one in partitions),
        behind=sum(len(one["isr"]) < len(one["replicas"]) for one in partitions),
        leaderless=sum(one["leader"] < 0 for one in partitions),
        configs=configs,
    )


async def _read_fleet(access: KafkaAccess, prefix: str, seconds: float) -> str:
    try:
        async with LogReader(access, prefix, seconds) as reader:
            return (await reader.read_topics_state()).fleet
    except NoLog:
        return ""


# ── DescribeLogDirs, which aiokafka lacks: https://kafka.apache.org/protocol#The_Messages_DescribeLogDirs ─────────


class _LogDirsAnswer(Response):  # type: ignore[misc]
    API_KEY = 35
    API_VERSION = 4
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        (
            "results",
            CompactArray(
                ("error_code", Int16),
                ("log_dir", CompactString("utf-8")),
                (
                    "topics",
                    CompactArray(
                        ("name", CompactString("utf-8")),
                        (
                            "partitions",
                            CompactArray(
                                ("partition_index", Int32),
                                ("partition_size", Int64),
                                ("offset_lag", Int64),
                                ("is_future_key", Boolean),
                                ("tags", TaggedFields),
                            ),
                        ),
                        ("tags", TaggedFields),
                    ),
                ),
                ("total_bytes", Int64),
                ("usable_bytes", Int64),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _LogDirsQuestion(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 35
    API_VERSION = 4
    RESPONSE_TYPE = _LogDirsAnswer
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(
                ("topic", CompactString("utf-8")), ("partitions", CompactArray(Int32)), ("tags", TaggedFields)
            ),
        ),
        ("tags", TaggedFields),
    )


class _DescribeLogDirs(Request[_LogDirsQuestion]):  # type: ignore[misc]
    """A request for the log directories of all topics."""

    API_KEY = 35

    def build(self, request_struct_class: type[_LogDirsQuestion]) -> _LogDirsQuestion:
        return request_struct_class(None, {})


async def _read_disks(access: KafkaAccess, brokers: list[int]) -> tuple[DiskFound, ...]:
    client = AIOKafkaClient(**await access.client_arguments())
    try:
        await client.bootstrap()
        return tuple([disk for broker in brokers for disk in await disks_of(client, broker)])
    finally:
        await client.close()


def _unknown_disk(broker: int, error: type[Exception], trouble: str) -> DiskFound:
    return DiskFound(broker, "", 0, -1, -1, trouble, issubclass(error, MAY_NOT_ASK))


async def disks_of(client: Any, broker: int) -> list[DiskFound]:
    """Returns the log directories of a broker. If they are unknown, returns one entry with the reason as trouble."""
    try:
        answer = (await client.send(broker, _DescribeLogDirs())).to_object()
    except (KafkaError, NotImplementedError) as error:
        return [_unknown_disk(broker, type(error), f"{type(error).__name__}: {error}")]
    if answer["error_code"]:
        kind = for_code(answer["error_code"])
        return [_unknown_disk(broker, kind, kind.__name__)]
    return [
        DiskFound(
            broker=broker,
            path=result["log_dir"],
            used=sum(one["partition_size"] for topic in result["topics"] for one in topic["partitions"]),
            size=result["total_bytes"],
            free=result["usable_bytes"],
            trouble=for_code(result["error_code"]).__name__ if result["error_code"] else "",
        )
        for result in answer["results"]
    ]
