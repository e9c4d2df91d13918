"""Reads the metadata of a kafka trigger, as KEDA does. Pure.

Source: pkg/scalers/kafka_scaler.go (parseKafkaMetadata) and pkg/scalers/scalersconfig (typed values).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from hpa.core.keda.kafka import EARLIEST, LATEST, KafkaTrigger
from hpa.core.kubernetes.go_numbers import INT32_MAX, INT64_MAX

BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
"""The texts that Go's strconv.ParseBool accepts."""
NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
VERSION: Final = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+", re.ASCII)
PARTITIONS_MAX: Final = 100_000
"""The most partitions of one range of a partitionLimitation."""
RANGES_MAX: Final = 1_000
LIMITATION_MAX: Final = 20_000
"""The most characters of a partitionLimitation."""
BROKERS_MAX: Final = 100
NAME_MAX: Final = 253
"""The most bytes of a group's or topic's name. Both appear in reports and states. Kafka allows a topic 249 bytes."""


Range = tuple[int, int]
"""The first and the last partition."""


class InvalidTrigger(ValueError):
    """Raised for a trigger that cannot be understood. The text has the field, its value and the expected form."""


def read_kafka_trigger(metadata: Mapping[str, str]) -> KafkaTrigger:
    """Returns the kafka trigger that the metadata in a manifest describes. Raises InvalidTrigger."""
    topic = _checked_name(metadata.get("topic", ""), "topic")
    limitation = metadata.get("partitionLimitation", "").strip()
    reset = metadata.get("offsetResetPolicy", LATEST)
    if reset not in (LATEST, EARLIEST):
        raise InvalidTrigger(f"offsetResetPolicy {reset!r}: expected {LATEST} or {EARLIEST}")
    version = metadata.get("version", "1.0.0")
    if not VERSION.fullmatch(version):
        raise InvalidTrigger(f"version {version!r}: expected three numbers, as 1.0.0")
    trigger = KafkaTrigger(
        group=_checked_name(_required_field(metadata, "consumerGroup"), "consumerGroup"),
        brokers=_parse_brokers(_required_field(metadata, "bootstrapServers")),
        topic=topic,
        lag_threshold=_parse_number_field(metadata, "lagThreshold", 10, least=1),
        activation_lag_threshold=_parse_number_field(metadata, "activationLagThreshold", 0, least=0),
        offset_reset=reset,
        partitions=merge_ranges(read_partitions(limitation)) if topic and limitation else None,
        allow_idle=_parse_boolean_field(metadata, "allowIdleConsumers"),
        limit_to_lagging=_parse_boolean_field(metadata, "limitToPartitionsWithLag"),
        even=_parse_boolean_field(metadata, "ensureEvenDistributionOfPartitions"),
        exclude_persistent=_parse_boolean_field(metadata, "excludePersistentLag"),
        zero_on_invalid=_parse_boolean_field(metadata, "scaleToZeroOnInvalidOffset"),
        full_metadata=_parse_boolean_field(metadata, "fullMetadata", True),
    )
    _check_combination(trigger)
    return trigger


def _check_combination(trigger: KafkaTrigger) -> None:
    if trigger.allow_idle and trigger.limit_to_lagging:
        raise InvalidTrigger("allowIdleConsumers: expected false where limitToPartitionsWithLag is true")
    if trigger.even and trigger.limit_to_lagging:
        raise InvalidTrigger("ensureEvenDistributionOfPartitions: expected false with limitToPartitionsWithLag")
    needs_topic = (
        ("limitToPartitionsWithLag", trigger.limit_to_lagging),
        ("ensureEvenDistributionOfPartitions", trigger.even),
        ("fullMetadata: false", not trigger.full_metadata),
    )
    for name, asked in needs_topic:
        if asked and not trigger.topic:
            raise InvalidTrigger(f"topic: missing; expected one with {name}")


def _parse_brokers(text: str) -> tuple[str, ...]:
    count = text.count(",") + 1
    if count > BROKERS_MAX:
        raise InvalidTrigger(f"bootstrapServers: {count} brokers: expected at most {BROKERS_MAX}")
    return tuple(broker.strip() for broker in text.split(","))


def read_partitions(text: str) -> tuple[Range, ...]:
    """Returns the ranges of a text like 1,3,10-20, in the written order. A falling range is empty and is left out.

    It does not expand ranges, because a short text could name more numbers than fit into memory. Raises
    InvalidTrigger.
    """
    if len(text) > LIMITATION_MAX or text.count(",") >= RANGES_MAX:
        what = f"{len(text)} characters, {text.count(',') + 1} ranges"
        raise InvalidTrigger(
            f"partitionLimitation: {what}: expected at most {LIMITATION_MAX} characters and {RANGES_MAX} ranges"
        )
    found: list[Range] = []
    for part in text.split(","):
        ends = [_parse_partition(end, text) for end in part.split("-")]
        if len(ends) > 2:
            raise InvalidTrigger(f"partitionLimitation {text!r}: expected at most one dash in {part!r}")
        if ends[-1] - ends[0] >= PARTITIONS_MAX:
            raise InvalidTrigger(f"partitionLimitation {text!r}: expected at most {PARTITIONS_MAX} partitions")
        if ends[0] <= ends[-1]:
            found.append((ends[0], ends[-1]))
    return tuple(found)


def merge_ranges(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Returns the ranges in rising order, merged so that there is a gap between any two."""
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return tuple(found)


def _parse_partition(text: str, whole: str) -> int:
    written = text.strip()
    if not NUMBER.fullmatch(written) or not 0 <= int(written) <= INT32_MAX:
        raise InvalidTrigger(f"partitionLimitation {whole!r}: expected numbers, as 1,3,10-20")
    return int(written)


def _required_field(metadata: Mapping[str, str], name: str) -> str:
    if not metadata.get(name):
        raise InvalidTrigger(f"{name}: missing; a kafka trigger needs bootstrapServers and consumerGroup")
    return metadata[name]


def _checked_name(name: str, field: str) -> str:
    if (length := len(name.encode())) > NAME_MAX:
        raise InvalidTrigger(f"{field}: {length} bytes: expected at most {NAME_MAX}")
    return name


def _parse_number_field(metadata: Mapping[str, str], name: str, default: int, *, least: int) -> int:
    written = metadata.get(name) or str(default)
    if not NUMBER.fullmatch(written) or not least <= int(written) <= INT64_MAX:
        raise InvalidTrigger(f"{name} {written!r}: expected a number of at least {least}")
    return int(written)


def _parse_boolean_field(metadata: Mapping[str, str], name: str, default: bool = False) -> bool:
    written = metadata.get(name) or str(default)
    if written not in BOOLEANS:
        raise InvalidTrigger(f"{name} {written!r}: expected true or false")
    return BOOLEANS[written]
