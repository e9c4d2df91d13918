"""What a refused caller is told: code, reason and details reach every client, however much there is to say."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc import aio
from hypothesis import given
from hypothesis import strategies as st

from spillway import api, reasons
from spillway.api import RequestError
from spillway.reasons import NO_ROOM
from spillway.rpc.calls import PLANNER
from spillway.rpc.client import PlannerClient
from spillway.rpc.refusals import (
    DETAILS_BYTES_MAX,
    DETAILS_TRAILER,
    TEXT_BYTES_MAX,
    received_refusal,
    trailer_of_refusal,
    trailer_sized_text,
)
from spillway.rpc.security import RpcSettings
from spillway.rpc.server import RpcServer

CLUSTERS = [f"prod-eu-central-1-cluster-{index:04d}" for index in range(1000)]
TEXTS = {
    "short": "no room",
    "1,000 clusters": "; ".join(f"{name}: cpu (40 nodes)" for name in CLUSTERS),
    "letters beyond ASCII": "プ" * 20_000,
    "percent signs and lines": "100 %\n" * 5_000,
}
LEADER = "a-host-with-a-long-name." * 10 + "example:7400"


class Refusing:
    """Of a planner the calls that are made here: it refuses them all."""

    def __init__(self, error: RequestError) -> None:
        self._error = error

    def active_instance_address(self) -> str:
        return LEADER

    async def apply(self, request: api.ApplyRequest) -> Any:
        raise self._error

    async def watch(self, request: api.WatchRequest) -> AsyncIterator[Any]:
        raise self._error
        yield


async def refusal_told_to_stranger(address: str, path: str) -> tuple[str, str, dict[str, Any]]:
    """Code, text and trailers that a client with gRPC's own defaults gets."""
    async with aio.insecure_channel(address) as channel:
        with pytest.raises(aio.AioRpcError) as caught:
            await channel.unary_unary(path)(b"")
        return caught.value.code().name, caught.value.details() or "", dict(caught.value.trailing_metadata() or ())


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_code_reason_and_the_first_clusters_reach_every_client(text: str) -> None:
    """Between gRPC's soft and hard bound on trailers (8 and 16 KiB) refusals are lost by chance: so several times."""
    error = RequestError("FAILED_PRECONDITION", text, NO_ROOM, reasons.details_of_clusters(CLUSTERS))
    settings = RpcSettings(port=0)
    async with RpcServer(Refusing(error), settings) as server:  # type: ignore[arg-type]
        async with PlannerClient([server.address], timeout_seconds=5, retry_seconds=0) as client:
            for call in (client.apply(api.ApplyRequest(("x",))), anext(client.watch(api.WatchRequest()))):
                with pytest.raises(RequestError) as caught:
                    await asyncio.wait_for(call, 10)
                refused = caught.value
                assert (refused.code, refused.reason) == ("FAILED_PRECONDITION", NO_ROOM)
                assert refused.details["clusters"] == "1000"
                assert refused.details["first_clusters"].split(",") == CLUSTERS[: reasons.CLUSTERS_NAMED_MAX]
                assert refused.text == trailer_sized_text(text)
        for _ in range(10):
            code, details, trailer = await refusal_told_to_stranger(server.address, PLANNER.calls["apply"].path)
            assert (code, details) == ("FAILED_PRECONDITION", trailer_sized_text(text))
            status, info = status_pb2.Status.FromString(trailer[DETAILS_TRAILER]), error_details_pb2.ErrorInfo()
            assert status.details[0].Unpack(info)
            assert (status.code, status.message) == (grpc.StatusCode.FAILED_PRECONDITION.value[0], details)
            assert (info.reason, info.metadata["clusters"]) == (NO_ROOM, "1000")


@given(st.one_of(st.text(), st.text(min_size=1, max_size=20).map(lambda text: text * 400)))
def test_a_text_is_kept_where_there_is_room_for_it_and_else_says_how_much_more_there_is(text: str) -> None:
    text = without_half_characters(text)
    found = trailer_sized_text(text)
    assert len(quote(found, safe="")) <= 3 * TEXT_BYTES_MAX
    assert len(found.encode()) <= TEXT_BYTES_MAX
    if found != text:
        kept, _, rest = found.rpartition("... (")
        assert text.startswith(kept)
        assert (int(rest.removesuffix(" characters more)")), len(kept) > 100) == (len(text) - len(kept), True)


DETAILS = st.dictionaries(st.text(max_size=40), st.text(max_size=2000), max_size=6)


def without_half_characters(text: str) -> str:
    """Without halves of characters, which no message holds."""
    return text.encode(errors="ignore").decode()


@given(DETAILS, st.text(max_size=3000))
def test_details_come_back_as_far_as_there_is_room_and_trailers_are_bounded(details: dict[str, str], text: str) -> None:
    details = {without_half_characters(name): without_half_characters(value) for name, value in details.items()}
    text = trailer_sized_text(text)
    ((name, value),) = trailer_of_refusal(RequestError("NOT_FOUND", text, NO_ROOM, details), text)
    assert isinstance(value, bytes)
    assert len(value) < TEXT_BYTES_MAX + DETAILS_BYTES_MAX + 300
    again = received_refusal("NOT_FOUND", text, ((name, value),))
    assert (again.reason, again.text) == (NO_ROOM, text)
    assert all(details[name].startswith(value) for name, value in again.details.items())
    if sum(len((name + value).encode()) for name, value in details.items()) <= DETAILS_BYTES_MAX - 1:
        assert again.details == details


def test_half_a_character_in_a_text_costs_no_refusal() -> None:
    assert trailer_sized_text("a\ud800b") == "a?b"


def test_what_others_say_in_their_trailers_is_passed_over() -> None:
    strange = status_pb2.Status(code=5)
    strange.details.add().Pack(error_details_pb2.ErrorInfo(reason=NO_ROOM, domain="elsewhere.example"))
    for trailer in (None, (), ((DETAILS_TRAILER, b"\xff\xff"),), ((DETAILS_TRAILER, strange.SerializeToString()),)):
        found = received_refusal("NOT_FOUND", "why", trailer)
        assert (found.code, found.text, found.reason, found.details) == ("NOT_FOUND", "why", "", {})


def test_a_refusal_that_its_code_says_all_of_has_no_details() -> None:
    assert trailer_of_refusal(RequestError("NOT_FOUND", "why"), "why") == ()
