"""Commands on the log: events, topics."""

import dataclasses
import json
import logging
import os
from collections.abc import Callable
from typing import Annotated, Any

import typer

from spillway import columns, wire
from spillway.addresses import TOPIC_BY_NAME, TOPICS, Tombstone, Topic
from spillway.bus import Bus, BusUnavailable, Position, Record, has_reached_ends
from spillway.compressed_text import NotPacked, unpack_text
from spillway.events import CapacityChanged, CapacityReported, DeadLettered, DecisionRecorded, Event
from spillway.settings import OperatorError, settings_from_environment
from spillway_cli.config import Config, unreachable_hint
from spillway_cli.exits import bad_input_error, print_message, run_or_exit
from spillway_cli.naming import check_kafka_named
from spillway_cli.options import Format, Output, config_of
from spillway_cli.output import plain_value_of, print_for_machines, stdout_console

app = typer.Typer()

KAFKA_PREFIX = "SPILLWAY_KAFKA_"
START_SECONDS = 5.0
"""The time for which a command tries to reach the log. Services try for longer."""

_FIELD_WIDTH = 100
_SHORT_NAMES = ", ".join(topic.name.removeprefix("spillway.").removesuffix(".v1") for topic in TOPICS)


@app.command(
    epilog="Examples:  spillway events placements  ·  "
    "spillway events decisions --from-start --key shop/web --no-follow -o json"
)
def events(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help=f"Topic: one of {_SHORT_NAMES}.", show_default=False)],
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Show the records that are already in the log first.")
    ] = False,
    key: Annotated[str, typer.Option(help="Show only records of this key.", show_default=False)] = "",
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for new records, or stop at the end of the log.")
    ] = True,
    limit: Annotated[int, typer.Option(min=0, help="Stop after this many records; 0: no limit.")] = 0,
    output: Output = Format.table,
) -> None:
    """Show the records of a topic, decoded, one a line. It shows only new records, or all with --from-start."""

    async def print_topic_records() -> None:
        config = config_of(context).config
        wanted, count = _topic_named(topic), 0
        async with open_bus(config) as bus, bus.follow_topics([wanted], None if from_start else {}) as feed:
            ends = await feed.end_offsets()
            if not from_start:
                until = "until Ctrl-C" if follow else "and so nothing"
                print_message(
                    f"{wanted.name} from now on, {until}; --from-start also shows the records already in the log"
                )
            async for batch in feed:
                for record in batch.records:
                    if key in ("", record.key):
                        _print_record(record, output)
                        count += 1
                        if limit and count >= limit:
                            return
                if not follow and has_reached_ends(batch.positions, ends):
                    return

    run_or_exit(print_topic_records())


@app.command(epilog="Example:  spillway topics --fleet-name shop")
def topics(
    context: typer.Context,
    fleet_name: Annotated[str, typer.Option(help="Name of the fleet, used only for a new log.")] = "fleet",
    partitions_cluster: Annotated[
        int, typer.Option(min=1, help="Number of partitions of each topic about clusters.")
    ] = 64,
    partitions_workload: Annotated[
        int, typer.Option(min=1, help="Number of partitions of each topic about workloads.")
    ] = 16,
    replication_factor: Annotated[
        int, typer.Option(min=-1, help="Number of copies of each partition; -1: the broker's default.")
    ] = -1,
) -> None:
    """Create missing topics, report differences, and create the fleet on a new log. It can be run again."""

    async def create_topics_and_fleet() -> None:
        from spillway.kafka.access import LetNotIn, load_kafka_access
        from spillway.kafka.settings import KafkaSettings
        from spillway.kafka.topics import TopicSettings, ensure_topics

        if replication_factor == 0:
            raise bad_input_error("--replication-factor 0: expected a number of copies, or -1")
        resolved = config_of(context)
        config = resolved.config
        check_kafka_named(resolved)
        kafka = kafka_settings(KafkaSettings, config)
        settings = TopicSettings(
            topic_prefix=kafka.topic_prefix,
            partitions_cluster=partitions_cluster,
            partitions_workload=partitions_workload,
            replication_factor=replication_factor,
        )
        try:
            typer.echo(
                await ensure_topics(
                    load_kafka_access(config.kafka, kafka.security), settings, fleet_name, print_message
                )
            )
        except TimeoutError:
            raise BusUnavailable(
                f"Kafka at {config.kafka}: the topics are not made within {settings.ensure_seconds:g} s"
            ) from None
        except LetNotIn as error:
            raise BusUnavailable(error.args[0]) from error
        except Exception as error:
            if type(error).__module__.startswith("aiokafka"):
                raise BusUnavailable(f"Kafka at {config.kafka}: {error}") from error
            raise

    run_or_exit(create_topics_and_fleet())


def open_bus(config: Config) -> "_ReadOnly":
    """Returns the log for reading, as a context that gives a Bus.

    An unreadable record is printed, not dead-lettered.
    """
    from spillway.kafka.bus import KafkaBus, KafkaSettings

    bus = KafkaBus(kafka_settings(KafkaSettings, config), config.fleet, "cli")
    return _ReadOnly(bus, f"Kafka at {config.kafka} not reachable", unreachable_hint(config, "kafka"))


class _ReadOnly:
    """Opens a bus whose publish writes nothing, because reading one topic must not add records to another."""

    def __init__(self, bus: Any, unreachable: str, hint: str) -> None:
        self._bus = bus
        self._unreachable, self._hint = unreachable, hint

    async def __aenter__(self) -> Bus:
        self._bus.publish = _print_unreadable_records
        try:
            opened: Bus = await self._bus.__aenter__()
        except OperatorError:
            raise
        except BusUnavailable as error:
            raise BusUnavailable(f"{self._unreachable}: {error}; {self._hint}") from error
        return opened

    async def __aexit__(self, *ended: Any) -> None:
        await self._bus.__aexit__(*ended)


async def _print_unreadable_records(*letters: Event | Tombstone) -> tuple[Position, ...]:
    for letter in letters:
        if isinstance(letter, DeadLettered):
            more = f" (and {letter.left_out} more like it)" if letter.left_out else ""
            print_message(f"{letter.topic} {letter.partition}@{letter.offset}: cannot be read: {letter.reason}{more}")
    return ()


def kafka_settings(kind: Callable[..., Any], config: Config) -> Any:
    """Returns Kafka's settings from its own variables, with the bootstrap servers of this command's config."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # It would log errors that the command reports itself.
    variables = {KAFKA_PREFIX + "START_SECONDS": str(START_SECONDS), **os.environ}
    variables[KAFKA_PREFIX + "BOOTSTRAP"] = config.kafka
    return settings_from_environment(kind, variables, KAFKA_PREFIX)  # type: ignore[arg-type]


def _topic_named(name: str) -> Topic:
    for candidate in (name, f"spillway.{name}", f"spillway.{name}.v1"):
        if candidate in TOPIC_BY_NAME:
            return TOPIC_BY_NAME[candidate]
    raise bad_input_error(f"topic {name!r}: expected one of {_SHORT_NAMES}")


def _print_record(record: Record, output: Format) -> None:
    kind = type(record.event).__name__ if record.event else "Tombstone"
    content = _event_fields(record.event)
    if output is Format.table:
        fields = "  ".join(f"{name}={_shortened_value(value)}" for name, value in content.items())
        place = f"{record.partition}@{record.offset}"
        stdout_console().print(f"{place:<10} {record.key}  {kind}  {fields}".rstrip(), soft_wrap=True)
        return
    document = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": record.key,
        "type": kind,
        "event": content if record.event else None,
    }
    print_for_machines(document, output, one_line=True)


def _event_fields(event: Event | None) -> dict[str, Any]:
    """Returns the fields of an event for output. Packed columns of nodes become a list of nodes."""
    if event is None:
        return {}
    if isinstance(event, CapacityReported | CapacityChanged):
        nodes = columns.rows_of(wire.unpack_columns(event.columns))
        rest: dict[str, Any] = plain_value_of(dataclasses.replace(event, columns=b""))
        del rest["columns"]
        return rest | {"nodes": plain_value_of(nodes)}
    if isinstance(event, DecisionRecorded):
        event = dataclasses.replace(event, division=_unpacked_division(event.division))
    content: dict[str, Any] = plain_value_of(event)
    return content


def _unpacked_division(division_bytes: bytes) -> bytes:
    try:
        return unpack_text(division_bytes)
    except NotPacked:
        return division_bytes


def _shortened_value(value: Any) -> str:
    """Returns a field's value for a line. A list of nodes is shown as their number."""
    if isinstance(value, list) and value and isinstance(value[0], dict) and "allocatable" in value[0]:
        return f"{len(value)} nodes"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _FIELD_WIDTH else text[:_FIELD_WIDTH] + "…"
