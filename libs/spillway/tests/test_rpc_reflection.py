"""Reflection costs its caller a place and calls of its rate, as every other call does."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from spillway.rpc.reflection_service import REQUEST_BYTES_MAX, REQUESTS_MAX, STREAMS_CALLER_MAX
from spillway.rpc.security import RpcSettings
from spillway.rpc.server import RpcServer

LIST = reflection_pb2.ServerReflectionRequest(list_services="")


class Planner:
    """Nothing is asked of it here."""

    def active_instance_address(self) -> str:
        return ""


@pytest.fixture
def callers(tmp_path: Path) -> str:
    file = tmp_path / "callers.yaml"
    entries = [
        f"- {{name: {name}, token_sha256: {hashlib.sha256(name.encode()).hexdigest()}, verbs: [get]}}"
        for name in ("shop", "bank")
    ]
    file.write_text("\n".join(["callers:", *entries]))
    return str(file)


def make_server(callers: str, **bounds: Any) -> RpcServer:
    settings = RpcSettings(port=0, callers=callers, stop_seconds=0.1, **bounds)
    return RpcServer(Planner(), settings)  # type: ignore[arg-type]


def open_reflection_stream(channel: aio.Channel, requests: Any, token: str = "shop") -> Any:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    return stub.ServerReflectionInfo(requests, metadata=(("authorization", f"Bearer {token}"),))


async def outcome_of_stream(call: Any) -> tuple[int, str, str]:
    """How many answers came, the code at the end, and its words."""
    answers = 0
    try:
        async for _ in call:
            answers += 1
    except aio.AioRpcError as error:
        return answers, error.code().name, str(error.details())
    return answers, "OK", ""


def repeated_requests(count: int) -> Iterator[Any]:
    return iter([LIST] * count)


async def test_each_request_is_a_call_of_the_callers_rate(callers: str) -> None:
    bounds = {"requests_per_second": 0.001, "requests_burst": 5}
    async with make_server(callers, **bounds) as server, aio.insecure_channel(server.address) as channel:
        answers, code, text = await outcome_of_stream(open_reflection_stream(channel, repeated_requests(8)))
        assert (answers, code) == (5, "RESOURCE_EXHAUSTED")
        assert "more than 0.001 calls a second" in text
        assert await outcome_of_stream(open_reflection_stream(channel, repeated_requests(5), "bank")) == (
            5,
            "OK",
            "",
        ), "another's rate is its own"


async def test_a_stream_has_a_bounded_number_of_requests(callers: str) -> None:
    async with make_server(callers) as server, aio.insecure_channel(server.address) as channel:
        assert await outcome_of_stream(open_reflection_stream(channel, repeated_requests(REQUESTS_MAX))) == (
            REQUESTS_MAX,
            "OK",
            "",
        )
        answers, code, text = await outcome_of_stream(
            open_reflection_stream(channel, repeated_requests(REQUESTS_MAX + 1))
        )
        assert (answers, code) == (REQUESTS_MAX, "INVALID_ARGUMENT")
        assert f"at most {REQUESTS_MAX}" in text


async def test_a_request_is_no_longer_than_a_name(callers: str) -> None:
    long = reflection_pb2.ServerReflectionRequest(file_containing_symbol="x" * REQUEST_BYTES_MAX)
    async with make_server(callers) as server, aio.insecure_channel(server.address) as channel:
        answers, code, _ = await outcome_of_stream(open_reflection_stream(channel, iter([long])))
        assert (answers, code) == (0, "INVALID_ARGUMENT")


async def test_a_stream_is_one_of_its_callers_calls_while_it_is_open(callers: str) -> None:
    may_end = asyncio.Event()

    async def held() -> AsyncIterator[Any]:
        yield LIST
        await may_end.wait()

    bounds = {"concurrent_requests_caller_max": 2}
    async with make_server(callers, **bounds) as server, aio.insecure_channel(server.address) as channel:
        first = [open_reflection_stream(channel, held()) for _ in range(2)]
        for one in first:
            assert await one.read() is not aio.EOF
        answers, code, text = await outcome_of_stream(open_reflection_stream(channel, repeated_requests(1)))
        assert (answers, code) == (0, "RESOURCE_EXHAUSTED")
        assert "2 of caller 'shop' are running" in text
        assert (await outcome_of_stream(open_reflection_stream(channel, repeated_requests(1), "bank")))[1] == "OK"
        may_end.set()
        for one in first:
            assert await one.code() is grpc.StatusCode.OK
        assert (await outcome_of_stream(open_reflection_stream(channel, repeated_requests(1))))[1] == "OK", (
            "its place is free again"
        )


async def test_of_one_caller_few_streams_are_open(callers: str) -> None:
    may_end = asyncio.Event()

    async def held() -> AsyncIterator[Any]:
        yield LIST
        await may_end.wait()

    async with make_server(callers) as server, aio.insecure_channel(server.address) as channel:
        first = [open_reflection_stream(channel, held()) for _ in range(STREAMS_CALLER_MAX)]
        for one in first:
            assert await one.read() is not aio.EOF
        answers, code, text = await outcome_of_stream(open_reflection_stream(channel, repeated_requests(1)))
        assert (answers, code) == (0, "RESOURCE_EXHAUSTED")
        assert f"{STREAMS_CALLER_MAX} streams of this caller are open" in text
        assert (await outcome_of_stream(open_reflection_stream(channel, repeated_requests(1), "bank")))[1] == "OK"
        may_end.set()
        for one in first:
            assert await one.code() is grpc.StatusCode.OK


@pytest.mark.parametrize("bound", ["deadline_seconds_max", "message_seconds"])
async def test_a_stream_that_says_nothing_ends(callers: str, bound: str) -> None:
    async def silent() -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield LIST

    async with make_server(callers, **{bound: 0.05}) as server, aio.insecure_channel(server.address) as channel:
        assert (await outcome_of_stream(open_reflection_stream(channel, silent())))[1] == "DEADLINE_EXCEEDED"
