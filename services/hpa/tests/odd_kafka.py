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
    """Topic t<n> has one partition, led by node n. spoken: versions by request. port_said: of all, or 0."""

    nodes: list[Node]
    spoken: Mapping[int, tuple[int, int]] = field(default_factory=lambda: SPOKEN)
    port_said: int = 0

    @property
    def bootstrap(self) -> tuple[str, ...]:
        return tuple(f"127.0.0.1:{node.port}" for node in self.nodes)

    async def serve(self, node: Node, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        node.opened += 1
        me = node.opened
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                request = await reader.readexactly(size)
                key, _, correlation = HEAD.unpack_from(request)
                if me > node.silent_to:
                    body = self._answer(key, request)
                    writer.write(struct.pack(">ii", len(body) + 4, correlation) + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _answer(self, key: int, request: bytes) -> bytes:
        first = self.nodes[0]
        if key == VERSIONS:
            return ApiVersionResponse_v0(0, [(of, *spoken) for of, spoken in self.spoken.items()]).encode()
        if key == METADATA:
            brokers = [(node.number, "127.0.0.1", self.port_said or node.port, None) for node in self.nodes]
            asked = [node for node in self.nodes if _topic(node).encode() in request]
            topics = [(0, _topic(node), False, [(0, 0, node.number, [node.number], [])]) for node in asked]
            return MetadataResponse_v4(0, brokers, "c", first.number, topics).encode()
        if key == COORDINATOR:
            return FindCoordinatorResponse_v0(0, first.number, "127.0.0.1", first.port).encode()
        if key == GROUP_OFFSETS:
            return OffsetFetchResponse_v2([(_topic(node), [(0, COMMITTED, "", 0)]) for node in self.nodes], 0).encode()
        if key == OFFSETS:
            return OffsetResponse_v1([(_topic(node), [(0, 0, -1, LATEST)]) for node in self.nodes]).encode()
        assert key == FETCH
        return FetchResponse_v4(0, [(_topic(node), [(0, 0, LATEST, LATEST, [], b"")]) for node in self.nodes]).encode()


def _topic(node: Node) -> str:
    return f"t{node.number}"


@asynccontextmanager
async def odd_kafka(nodes: int = 1) -> AsyncIterator[OddKafka]:
    made = OddKafka([Node(number + 1) for number in range(nodes)])
    servers = []
    for node in made.nodes:

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node: Node = node) -> None:
            await made.serve(node, reader, writer)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        node.port = server.sockets[0].getsockname()[1]
        servers.append(server)
    yield made
    for server in servers:
        server.close()
