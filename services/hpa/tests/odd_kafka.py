"""Brokers of one cluster that speak so much of Kafka's protocol as a lag needs, and that can be silent or odd."""

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiokafka.protocol.admin import ApiVersionResponse_v0
from aiokafka.protocol.commit import OffsetFetchResponse_v2
from aiokafka.protocol.coordination import FindCoordinatorResponse_v0
from aiokafka.protocol.fetch import FetchResponse_v4
from aiokafka.protocol.metadata import MetadataResponse_v4
from aiokafka.protocol.offset import OffsetResponse_v1

FETCH, OFFSETS, METADATA, GROUP_OFFSETS, COORDINATOR, VERSIONS = 1, 2, 3, 9, 10, 18
SPOKEN = {
    VERSIONS: (0, 0),
    METADATA: (4, 4),
    COORDINATOR: (0, 0),
    GROUP_OFFSETS: (2, 2),
    OFFSETS: (1, 1),
    FETCH: (4, 4),
}
LATEST, COMMITTED = 50, 10
FIRST_MORE = 1_001
"""The number of the first broker that is said besides the nodes."""
HEAD = struct.Struct(">hhi")
"""Of a request: its key, version, correlation."""


@dataclass
class Node:
    """silent_to: of its connections those up to that number are never answered, as if their packets were lost."""

    number: int
    port: int = 0
    opened: int = 0
    silent_to: int = 0

    def go_silent(self) -> None:
        """As a machine that lost its power and came back: what is open is dead, and nobody says so."""
        self.silent_to = self.opened


@dataclass
class OddKafka:
    """Topic t<n> has one partition, led by node n. spoken: versions by request. port_said: of all, or 0.

    more_brokers: brokers that are said besides, at the first node's address. They lead all partitions by turns.
    partitions, offsets, ends: of each topic, in metadata, a group's offsets and ends. batch: what a fetch brings.
    end_error: the code with which ends are answered. slow_seconds: before an end is answered.
    asked_at_once: the most ends that were asked at the same time.
    """

    nodes: list[Node]
    spoken: Mapping[int, tuple[int, int]] = field(default_factory=lambda: SPOKEN)
    port_said: int = 0
    more_brokers: int = 0
    partitions: int = 1
    offsets: int = 1
    ends: int = 1
    end_error: int = 0
    batch: bytes = b""
    slow_seconds: float = 0.0
    open_now: int = 0
    asked_now: int = 0
    asked_at_once: int = 0

    @property
    def bootstrap_servers(self) -> tuple[str, ...]:
        return tuple(f"127.0.0.1:{node.port}" for node in self.nodes)

    async def serve_connection(self, node: Node, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        node.opened += 1
        me = node.opened
        self.open_now += 1
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                request = await reader.readexactly(size)
                key, _, correlation = HEAD.unpack_from(request)
                if key == OFFSETS:
                    await self._delay_end_offsets()
                if me > node.silent_to:
                    body = self._encode_answer(key, request)
                    writer.write(struct.pack(">ii", len(body) + 4, correlation) + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
        finally:
            self.open_now -= 1

    async def _delay_end_offsets(self) -> None:
        self.asked_now += 1
        self.asked_at_once = max(self.asked_at_once, self.asked_now)
        await asyncio.sleep(self.slow_seconds)
        self.asked_now -= 1

    def _leader_of_partition(self, node: Node, partition: int) -> int:
        return FIRST_MORE + partition % self.more_brokers if self.more_brokers else node.number

    def _encode_answer(self, key: int, request: bytes) -> bytes:
        first = self.nodes[0]
        if key == VERSIONS:
            return ApiVersionResponse_v0(0, [(of, *spoken) for of, spoken in self.spoken.items()]).encode()
        if key == METADATA:
            brokers = [(node.number, "127.0.0.1", self.port_said or node.port, None) for node in self.nodes]
            more = range(FIRST_MORE, FIRST_MORE + self.more_brokers)
            brokers += [(number, "127.0.0.1", first.port, None) for number in more]
            asked = [node for node in self.nodes if _topic_of_node(node).encode() in request]
            topics = [
                (
                    0,
                    _topic_of_node(node),
                    False,
                    [(0, at, self._leader_of_partition(node, at), [], []) for at in range(self.partitions)],
                )
                for node in asked
            ]
            return MetadataResponse_v4(0, brokers, "c", first.number, topics).encode()
        if key == COORDINATOR:
            return FindCoordinatorResponse_v0(0, first.number, "127.0.0.1", first.port).encode()
        if key == GROUP_OFFSETS:
            committed = [(at, COMMITTED, "", 0) for at in range(self.offsets)]
            return OffsetFetchResponse_v2([(_topic_of_node(node), committed) for node in self.nodes], 0).encode()
        if key == OFFSETS:
            ends = [(at, self.end_error, -1, LATEST) for at in range(max(self.ends, self.partitions))]
            return OffsetResponse_v1([(_topic_of_node(node), ends) for node in self.nodes]).encode()
        assert key == FETCH
        batches = [(0, 0, LATEST, LATEST, [], self.batch)]
        return FetchResponse_v4(0, [(_topic_of_node(node), batches) for node in self.nodes]).encode()


def _topic_of_node(node: Node) -> str:
    return f"t{node.number}"


@asynccontextmanager
async def run_odd_kafka(nodes: int = 1) -> AsyncIterator[OddKafka]:
    made = OddKafka([Node(number + 1) for number in range(nodes)])
    servers = []
    for node in made.nodes:

        async def serve_node(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node: Node = node) -> None:
            await made.serve_connection(node, reader, writer)

        server = await asyncio.start_server(serve_node, "127.0.0.1", 0)
        node.port = server.sockets[0].getsockname()[1]
        servers.append(server)
    yield made
    for server in servers:
        server.close()
