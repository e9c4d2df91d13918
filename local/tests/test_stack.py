"""A platform whose ports others take, and whose log is another's."""

import json
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from spillway.bus import OtherFleet
from spillway_cli.config import Config
from spillway_local.demo import RPC_OFFSET, story_options
from spillway_local.kafka_server import PORTS_PER_NODE
from spillway_local.ports import LOOPBACK, PortBook, session_port
from spillway_local.stack import Stack, StackOptions


@pytest.mark.kafka
def test_a_port_that_is_taken_while_kafka_starts_is_given_up_and_no_other_log_is_joined(tmp_path: Path) -> None:
    said: list[str] = []
    taken: list[int] = []
    strangers = ExitStack()

    def take_port_of_kafka(line: str) -> None:
        """Once, listens at Kafka's port between its choice and Kafka's start."""
        said.append(line)
        if line.startswith("starting") and not taken:
            taken.append(json.loads((tmp_path / "ports.json").read_text())["kafka"])
            strangers.enter_context(socket.create_server((LOOPBACK, taken[0])))

    ports = PortBook(tmp_path / "ports.json")
    ports.assign_port("kafka", session_port(count=PORTS_PER_NODE), count=PORTS_PER_NODE)
    ports.assign_port("redis", session_port())
    stack = Stack(StackOptions(tmp_path, fleet=(), instances=0, outlives=False), take_port_of_kafka)
    with strangers:
        try:
            kafka = stack.start().kafka
            assert kafka != f"{LOOPBACK}:{taken[0]}"
            assert any(f"kafka: another program listens at its port {taken[0]};" in line for line in said)
            fleet = (tmp_path / "kafka" / "fleet").read_text().strip()
            assert said[-1] == f"topics are there; the fleet is {fleet}"
            assert json.loads((tmp_path / "addresses.json").read_text())["fleet"] == fleet

            stack.supervision.stop_program("kafka")
            port = int(kafka.rpartition(":")[2])
            strangers.enter_context(socket.create_server((LOOPBACK, port)))
            stack.supervision.start_program("kafka")
            (problem,) = [one.problem for one in stack.status() if one.name == "kafka" and one.state == "BACKOFF"]
            assert problem.startswith(f"another program listens at its port {port}, which {tmp_path / 'ports.json'}")
            kafka = stack.start().kafka  # The log that it knows, elsewhere.
            assert kafka != f"{LOOPBACK}:{port}"

            (tmp_path / "kafka" / "fleet").write_text("local-other")
            with pytest.raises(
                OtherFleet, match=rf"Kafka at {kafka}: .* of fleet '{fleet}', not of 'local-other', as "
            ):
                stack.start()
            with pytest.raises(OtherFleet, match=rf"Kafka at {kafka}: .* of fleet '{fleet}', and was to have none yet"):
                stack.create_topics("")
        finally:
            stack.stop()


def test_a_demo_takes_no_port_that_a_command_goes_to_by_itself(tmp_path: Path) -> None:
    """Whoever names no fleet, there or in another checkout, would read the demo's; `make up` keeps those ports."""
    defaults = Config()
    for options, above in ((StackOptions(tmp_path / "up"), 0), (story_options(tmp_path / "demo", "sim"), RPC_OFFSET)):
        options.folder.mkdir()
        given = Stack(options, print).addresses()
        for ours, default in (
            (given.planners, defaults.endpoints),
            (given.hpas, defaults.scaling_endpoints),
            (given.deschedulers, defaults.lending_endpoints),
        ):
            assert port_of(ours[0]) in range(port_of(default[0]) + above, port_of(default[0]) + above + RPC_OFFSET)


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])
