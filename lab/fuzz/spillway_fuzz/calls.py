"""Fuzzes every gRPC method of real servers with random bytes, mutated messages, and messages with mutated manifests."""

import asyncio
import json
from collections.abc import Coroutine
from functools import partial
from random import Random
from typing import Any, Final, TypeVar

from grpc import aio

from descheduler.settings import DeschedulerSettings
from hpa.settings import HpaSettings
from planner.settings import PlannerSettings
from spillway.api import ApplyRequest, JoinClusterRequest
from spillway.local_bus import LocalBus
from spillway.rpc.calls import LENDING, PLANNER, SCALING, Call, RpcService
from spillway.rpc.security import RpcSettings
from spillway.rpc.server import RpcServer
from spillway_fuzz import samples
from spillway_fuzz.mutation import ODD_TEXTS, mutated_bytes, mutated_json, mutated_message, random_bytes
from spillway_fuzz.states import events_of_known_clusters
from spillway_fuzz.target import Input, Target
from spillway_local.in_process import FLEET_ID, InProcess, in_process_platform

T = TypeVar("T")
FORESEEN: Final = frozenset(
    ("OK", "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
     "RESOURCE_EXHAUSTED", "PERMISSION_DENIED", "UNAUTHENTICATED", "UNAVAILABLE", "DEADLINE_EXCEEDED")
)  # fmt: skip
"""Statuses that docs/api.md documents. INTERNAL is our bug, UNKNOWN an exception that our code did not catch."""
CALL_SECONDS: Final = 20.0
REPLIES_MAX: Final = 20
"""The most replies that are read of a stream before it is closed."""
SERVICES: Final = (PLANNER, SCALING, LENDING)
LIKELY: Final = {
    "namespace": ("shop", ""),
    "name": ("web", "db", "own-1", "own-3"),
    "cluster": ("own-1", "own-2", "cloud-1"),
    "clusters": ("own-1", "own-2"),
    "to_cluster": ("own-1", "own-2"),
    "kind": ("deployment", "Deployment"),
    "phase": ("Active", "Cordoned", "Draining", "Lost"),
    "scope": ("fleet", "cluster/own-1", "workload/shop/web", "Failover/own-1", "Drain/own-2"),
    "credential": ("own-3",),
    "pool": ("own-2",),
    "node": ("n1",),
}


class Unforeseen(AssertionError):
    """Raised for a status that is not documented."""


class Served:
    """An active planner, hpa and descheduler, each behind a server. They start at the first input."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def run_coroutine(self, work: "Coroutine[Any, Any, T]") -> T:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop.run_until_complete(self._open_servers())
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.run_until_complete(self._close_servers())
            self._loop.close()
            self._loop = None

    async def _open_servers(self) -> None:
        self._platform_entered = in_process_platform(
            (),
            ("planner-1", "hpa-1", "descheduler-1"),
            planner_settings=PlannerSettings(find_seconds=0.01, shape_wait_seconds=0.0, hear_seconds_max=0.1),
            hpa_settings=HpaSettings(),
            descheduler_settings=DeschedulerSettings(),
        )
        platform: InProcess = await self._platform_entered.__aenter__()
        self.platform = platform
        async with asyncio.timeout(CALL_SECONDS):
            while not (platform.planner().is_active and platform.hpa().is_active and platform.descheduler().is_active):
                await asyncio.sleep(0.02)
        await platform.planner().join_cluster(JoinClusterRequest("own-1", "own-1", tier="own"))
        await platform.planner().join_cluster(JoinClusterRequest("own-2", "own-2", tier="own"))
        await LocalBus(platform.broker, FLEET_ID, "fuzz").publish(
            *events_of_known_clusters()[1:3], *events_of_known_clusters()[4:6]
        )
        await platform.planner().apply(ApplyRequest((json.dumps(samples.WORKLOADS[1]),)))
        settings = RpcSettings(port=0, requests_per_second=1e9, requests_burst=10**9)
        self.servers = [
            RpcServer(platform.planner(), settings, PLANNER),
            RpcServer(platform.hpa(), settings, SCALING),
            RpcServer(platform.descheduler(), settings, LENDING),
        ]
        for server in self.servers:
            await server.__aenter__()
        self.channels = [aio.insecure_channel(server.address) for server in self.servers]

    async def _close_servers(self) -> None:
        for channel in self.channels:
            await channel.close()
        for server in self.servers:
            await server.__aexit__()
        await self._platform_entered.__aexit__(None, None, None)

    def channel(self, service: RpcService) -> Any:
        return self.channels[SERVICES.index(service)]

    def planner_address(self) -> tuple[str, int]:
        """Returns the address of the planner's server."""
        host, _, port = self.servers[0].address.rpartition(":")
        return host, int(port)

    def assert_alive(self) -> None:
        """Raises an error if a service has ended."""
        for name, running in self.platform.running.items():
            assert not running.task.done(), f"{name} has ended: {running.task}"


SERVED: Final = Served()


def targets() -> list[Target]:
    return [
        Target(f"rpc {service.name.rpartition('.')[2]}.{call.path.rpartition('/')[2]}", partial(_mutated_request, call),
               partial(_call_method, service, call), share=1, close=SERVED.close)
        for service in SERVICES
        for call in service.calls.values()
    ]  # fmt: skip


# ── Requests ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _mutated_request(call: Call, chance: Random) -> Input:
    """Makes the bytes of a request, most often of a nearly valid one."""
    how, message = chance.random(), call.request_message()
    if how < 0.1:
        return random_bytes(chance)
    fill_message(message, chance)
    if how < 0.5:
        return mutated_message(message, chance)
    request_bytes = message.SerializeToString()
    if how < 0.7:
        return mutated_bytes(request_bytes, chance)
    if how > 0.998:
        return _huge_message(message.DESCRIPTOR, chance)
    return request_bytes


def fill_message(message: Any, chance: Random) -> None:
    """Fills the fields of a message with plausible values."""
    for field in message.DESCRIPTOR.fields:
        if chance.random() < 0.1:
            continue
        if field.name == "manifests":
            message.manifests.extend(_random_manifests(chance))
            continue
        if field.message_type is not None:
            inner = getattr(message, field.name)
            for one in [inner.add() for _ in range(chance.randint(1, 2))] if field.is_repeated else [inner]:
                fill_message(one, chance)
        elif field.is_repeated:
            getattr(message, field.name).extend(_random_field_value(field, chance) for _ in range(chance.randint(0, 2)))
        else:
            setattr(message, field.name, _random_field_value(field, chance))


def _random_field_value(field: Any, chance: Random) -> Any:
    if field.cpp_type == field.CPPTYPE_BOOL:
        return chance.random() < 0.5
    if field.cpp_type in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
        return chance.choice((0.0, 1.0, -1.0, float("nan")))
    if field.type == field.TYPE_BYTES:
        return random_bytes(chance, 20)
    if field.cpp_type != field.CPPTYPE_STRING:
        return chance.choice((0, 1, 2, 3, 50))
    if "manifest" in field.name or field.name == "policy":
        return _manifest_text(chance.choice(samples.POLICIES if field.name == "policy" else samples.SCALERS), chance)
    return chance.choice(LIKELY.get(field.name, ("", "web", "a")) if chance.random() < 0.9 else ODD_TEXTS)


def _random_manifests(chance: Random) -> list[str]:
    """Makes the manifest of a workload, and perhaps of its policy. Usually one of them is mutated."""
    parts = [chance.choice(samples.WORKLOADS)]
    if chance.random() < 0.5:
        parts.append(chance.choice(samples.POLICIES))
    return [_manifest_text(part, chance) for part in parts]


def _manifest_text(tree: Any, chance: Random) -> str:
    text = mutated_json(tree, chance) if chance.random() < 0.4 else json.dumps(tree)
    return text.encode(errors="replace").decode()


def _huge_message(descriptor: Any, chance: Random) -> bytes:
    """Makes millions of empty fields, or one field of megabytes, just below or above the limit."""
    size = chance.choice((1_000_000, 4 * 2**20 - 16, 4 * 2**20 + 16, 15 * 2**20))
    fields = [field for field in descriptor.fields if field.message_type is not None or field.type in (9, 12)]
    if not fields:
        return bytes(size)
    tag = bytes([chance.choice(fields).number << 3 | 2])
    if chance.random() < 0.6:
        return (tag + b"\x00") * (size // 2)
    length = size - 6
    varint = bytes([length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14 & 0x7F | 0x80, length >> 21 & 0x7F])
    return tag + varint + chance.choice((b"[", b"{", b"a", b"\x0a")) * length


# ── Calls ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _call_method(service: RpcService, call: Call, request_bytes: bytes) -> bool:
    code, words = SERVED.run_coroutine(_send_call(service, call, request_bytes))
    SERVED.assert_alive()
    if code not in FORESEEN:
        raise Unforeseen(f"{call.verb}: {code}: {words[:2_000]}")
    if code == "DEADLINE_EXCEEDED":
        raise Unforeseen(f"{call.verb}: no answer within {CALL_SECONDS:g} s")
    return code == "OK"


async def _send_call(service: RpcService, call: Call, request_bytes: bytes) -> tuple[str, str]:
    channel = SERVED.channel(service)
    try:
        if not call.streams:
            await channel.unary_unary(call.path)(request_bytes, timeout=CALL_SECONDS, wait_for_ready=True)
            return "OK", ""
        stream = channel.unary_stream(call.path)(request_bytes, wait_for_ready=True)
        try:
            async with asyncio.timeout(0.02):  # A watch does not end by itself.
                for _ in range(REPLIES_MAX):
                    if await stream.read() is aio.EOF:
                        break
        except TimeoutError:
            pass
        finally:
            stream.cancel()
        return "OK", ""
    except aio.AioRpcError as error:
        return error.code().name, error.details() or ""
