"""events and topics: on a bus in memory, and once on a real Kafka."""

import asyncio
import json
import socket
import uuid
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spillway import columns, wire
from spillway.events import CapacityNeeded, CapacityReported, ClusterLeft
from spillway.kafka.bus import KafkaBus, KafkaSettings
from spillway.local_bus import LocalBroker, LocalBus
from spillway.model import Generation, NodeRow
from spillway_cli import log_commands
from spillway_cli.config import ADDRESSES_FILE
from spillway_cli.main import app

NODE = NodeRow("n1", {"cpu": 4000}, {"cpu": 100}, labels=(("zone", "a"),))
REPORT = CapacityReported("own-1", 7, 0, 1, 3, 9, wire.pack_columns(columns.columns_of([NODE])), ())


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    broker = LocalBroker()
    bus = LocalBus(broker, "f", "test")
    asyncio.run(_publish_events(bus))
    monkeypatch.setattr(log_commands, "open_bus", lambda _: LocalBus(broker, "f", "cli"))
    return CliRunner()


async def _publish_events(bus: LocalBus | KafkaBus) -> None:
    await bus.publish(REPORT, CapacityNeeded("a", "web", "own-1", Generation(7, 2), 3, 4), ClusterLeft("old"))


def test_columns_are_shown_as_nodes(run: CliRunner) -> None:
    arguments = ["events", "capacity", "--from-start", "--no-follow"]
    (line,) = run.invoke(app, arguments).stdout.splitlines()
    assert line.split()[1:4] == ["own-1/0", "CapacityReported", "cluster=own-1"]
    assert "nodes=1 nodes" in line
    document = json.loads(run.invoke(app, [*arguments, "-o", "json"]).stdout)
    (node,) = document["event"]["nodes"]
    assert (node["name"], node["allocatable"], node["labels"]) == ("n1", {"cpu": 4000}, {"zone": "a"})


@pytest.mark.parametrize(
    ("arguments", "count"), [(["--no-follow"], 1), (["--limit", "1"], 1), (["--no-follow", "--key", "other"], 0)]
)
def test_key_limit_and_end(run: CliRunner, arguments: list[str], count: int) -> None:
    result = run.invoke(app, ["events", "capacity-needed", "--from-start", "-o", "json", *arguments])
    assert result.exit_code == 0
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(documents) == count
    assert all(document["event"]["generation"] == "7.2" for document in documents)


def test_without_from_start_the_end_is_where_it_begins_and_that_is_said(run: CliRunner) -> None:
    result = run.invoke(app, ["events", "clusters", "--no-follow"])
    assert (result.exit_code, result.stdout) == (0, "")
    hint = "spillway.clusters.v1 from now on, and so nothing; --from-start also shows the records already in the log\n"
    assert result.stderr == hint
    assert run.invoke(app, ["events", "clusters", "--no-follow", "--from-start"]).stderr == ""


def test_a_log_that_is_down_names_where_it_was_and_what_starts_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(log_commands, "START_SECONDS", 0.2)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        ADDRESSES_FILE.parent.mkdir()
        ADDRESSES_FILE.write_text(json.dumps({"kafka": address}))
        result = CliRunner().invoke(app, ["events", "clusters"])
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr.startswith(f"spillway: Kafka at {address} not reachable: ")
    assert result.stderr.endswith(
        f"; is it running? `make up` starts it here (its address is that of {ADDRESSES_FILE})\n"
    )


@pytest.mark.kafka
def test_topics_then_events_on_kafka(kafka_bootstrap: str) -> None:
    prefix = f"{uuid.uuid4().hex[:8]}."
    runner = CliRunner(env={"SPILLWAY_KAFKA": kafka_bootstrap, "SPILLWAY_KAFKA_TOPIC_PREFIX": prefix})
    without = runner.invoke(app, ["events", "clusters", "--no-follow"])
    assert (without.exit_code, without.stdout) == (1, "")
    assert "run `spillway topics`" in without.stderr
    arguments = ["topics", "--fleet-name", "shop", "--partitions-cluster", "2", "--partitions-workload", "2"]
    first = runner.invoke(app, arguments)
    assert first.exit_code == 0
    assert first.stdout.startswith("shop-")
    assert runner.invoke(app, arguments).stdout == first.stdout

    async def publish_to_kafka() -> None:
        async with KafkaBus(KafkaSettings(kafka_bootstrap, topic_prefix=prefix), "", "test") as bus:
            await _publish_events(bus)

    asyncio.run(publish_to_kafka())
    result = runner.invoke(app, ["events", "clusters", "--from-start", "--no-follow", "-o", "json"])
    assert result.exit_code == 0
    assert [json.loads(line)["type"] for line in result.stdout.splitlines()] == ["ClusterLeft"]


def test_no_kafka_is_4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_commands, "START_SECONDS", 0.3)
    result = CliRunner(env={"SPILLWAY_KAFKA": "127.0.0.1:1"}).invoke(app, ["events", "clusters"])
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr.count("\n") == 1
