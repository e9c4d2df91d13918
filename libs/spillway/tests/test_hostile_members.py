"""What an API server that means harm may answer: that cluster is unreachable, and nothing else suffers from it."""

import asyncio
import gzip
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, Final, cast

import pytest
from aiohttp import web
from msgspec import DecodeError

from spillway.clusters import answers
from spillway.clusters import transport as transport_module
from spillway.clusters.api import (
    CONFIG_MAPS,
    PODS,
    Change,
    ClusterApi,
    ClusterApiSettings,
    ClusterUnreachable,
    Conflict,
    FollowingFailed,
    ListedObjects,
    Response,
    make_cluster_api,
)
from spillway.clusters.credentials import Endpoint
from spillway.clusters.errors import TooMuch
from spillway.clusters.lists import STEP_BYTES, WHOLE_STEP_BYTES
from spillway.kubernetes.resource_versions import version_number

PATIENCE_SECONDS = 20.0
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
Served = Callable[..., Awaitable[ClusterApi]]


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """Makes an API of a server that answers everything in the given way; keywords are settings."""
    closing: list[Callable[[], Awaitable[None]]] = []

    async def serve(answer: Answer, **settings: Any) -> ClusterApi:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        endpoint = Endpoint(f"http://127.0.0.1:{runner.addresses[0][1]}")
        api = make_cluster_api(lambda: endpoint, "blue", ClusterApiSettings(**settings))
        closing.extend((runner.cleanup, api.close))
        return api

    yield serve
    for close in reversed(closing):
        await close()


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1", **metadata}}


def list_page_body(*items: Any, more: str = "", version: str = "10", **metadata: Any) -> bytes:
    told = {"resourceVersion": version, "continue": more, **metadata}
    return json.dumps({"metadata": told, "items": items}).encode()


def always_answer(body: bytes) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body)

    return answer


async def first_failure_of_following(api: ClusterApi) -> ClusterUnreachable:
    """Of following the pods."""
    changes = cast(AsyncGenerator[tuple[Change, ...], None], api.follow_objects(PODS))
    async with asyncio.timeout(PATIENCE_SECONDS), aclosing(changes) as batches:
        async for batch in batches:
            if isinstance(batch[0], FollowingFailed):
                return batch[0].error
    raise AssertionError("it never ends")


@pytest.mark.parametrize("text", ["9" * 1_000, "9" * 21, "٣", "²", "-1", "1e3", "", "x"])
async def test_a_version_that_is_no_number_within_64_bits_is_none(served: Served, text: str) -> None:
    assert version_number(text) is None
    assert (await (await served(always_answer(list_page_body(version=text)))).count_nodes_and_pods()).version is None


async def test_a_version_of_thousands_of_digits_is_garbage(served: Served) -> None:
    """int() of so many raises, which would be a bug that ends the process, and it would go back in the next URL."""
    assert version_number("9" * 5_000) is None
    api = await served(always_answer(list_page_body(version="9" * 5_000)))
    with pytest.raises(ClusterUnreachable, match="garbage"):
        await api.count_nodes_and_pods()
    assert (await first_failure_of_following(api)).reason == "garbage"
    line = json.dumps({"type": "ADDED", "object": pod("a", resourceVersion="9" * 5_000)}).encode() + b"\n"
    assert (
        await first_failure_of_following(ClusterApi(Always(line), "blue", ClusterApiSettings()))
    ).reason == "garbage"


async def test_a_version_of_twenty_digits_is_a_number(served: Served) -> None:
    assert (
        await (await served(always_answer(list_page_body(version=str(2**64 - 1))))).count_nodes_and_pods()
    ).version == 2**64 - 1


@pytest.mark.parametrize("count", [-1, 2**63, 10**30])
async def test_a_count_that_no_cluster_has_is_garbage(served: Served, count: int) -> None:
    api = await served(always_answer(list_page_body(pod("a"), more="x", remainingItemCount=count)))
    with pytest.raises(ClusterUnreachable) as raised:
        await api.count_nodes_and_pods()
    assert raised.value.reason == "garbage"


# ── What is compressed ──────────────────────────────────────────────────────────────────────────────────────────────


def answer_compressed(encoding: str, body: bytes) -> Answer:
    """Lists as they are, and all else in the encoding."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/pods") and "watch" not in request.query:
            return web.Response(body=list_page_body())
        return web.Response(body=body, headers={"Content-Encoding": encoding})

    return answer


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "GZIP", "identity, gzip", "unheard-of"])
async def test_an_answer_that_says_it_is_compressed_is_garbage_and_is_not_unpacked(
    served: Served, encoding: str
) -> None:
    api = await served(answer_compressed(encoding, gzip.compress(b'{"metadata":{"name":"a"}}')))
    with pytest.raises(ClusterUnreachable, match="in the encoding") as raised:
        await api.get(CONFIG_MAPS, "n", "a")
    assert raised.value.reason == "garbage"


async def test_an_answer_in_the_encoding_that_was_asked_for_is_read(served: Served) -> None:
    api = await served(answer_compressed("identity", b'{"metadata":{"name":"a"}}'))
    assert await api.get(CONFIG_MAPS, "n", "a") == {"metadata": {"name": "a"}}


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("gzip", gzip.compress(b"\n" * 2**20)), ("identity", b"\n" * 2**20)],
    ids=["compressed", "of empty lines"],
)
async def test_a_watch_that_says_nothing_in_many_bytes_is_garbage(served: Served, encoding: str, body: bytes) -> None:
    api = await served(answer_compressed(encoding, body))
    assert (await first_failure_of_following(api)).reason == "garbage"


class Always:
    """A transport whose watch has the next chunk at once, thousands of times: as what aiohttp holds already."""

    def __init__(self, chunk: bytes, listed: bytes | None = None) -> None:
        self.chunk, self.listed = chunk, list_page_body() if listed is None else listed
        self.given = self.asked = 0

    async def request(self, *_: Any, **__: Any) -> Response:
        self.asked += 1
        return Response(200, self.listed)

    async def stream(self, *_: Any, **__: Any) -> AsyncGenerator[bytes, None]:
        while self.given < 2_000:
            self.given += 1
            yield self.chunk
        await asyncio.Event().wait()

    async def close(self) -> None: ...


EVENT: Final = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"11"}}}\n'


@pytest.mark.parametrize("chunk", [EVENT, EVENT * 1_000, EVENT[:1]], ids=["events", "many in a chunk", "a long line"])
async def test_a_watch_that_never_waits_lets_others_have_their_turn(chunk: bytes) -> None:
    transport = Always(chunk)
    largest = 0

    async def follow() -> None:
        nonlocal largest
        api = ClusterApi(transport, "blue", ClusterApiSettings(line_bytes_max=10_000))
        async for batch in api.follow_objects(PODS):
            largest = max(largest, len(batch))

    following = asyncio.create_task(follow())
    while transport.given < 10:  # Each turn of this loop is one that the watch has left to others.
        await asyncio.sleep(0)
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following
    assert transport.given < 100
    assert largest <= ClusterApiSettings().watch_step_lines


# ── What has no end ─────────────────────────────────────────────────────────────────────────────────────────────────


def answer_with_endless_list(*items: Any, asked: list[str] | None = None) -> Answer:
    """A list whose pages, each of these objects, go on for ever."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if asked is not None:
            asked.append(request.query["limit"])
        return web.Response(body=list_page_body(*items, more=f"x{len(asked or ())}"))

    return answer


BOUNDS: Final = {
    "objects": ((pod("a"), pod("b")), {"list_objects_max": 9}, r"beyond list_objects_max \(9\)"),
    "pages without any": ((), {"list_objects_max": 9}, r"beyond list_objects_max \(9\)"),
    "bytes": ((pod("a", labels={"a": "x" * 900}),), {"list_bytes_max": 5_000}, r"beyond list_bytes_max \(5000\)"),
    "time": ((pod("a"),), {"list_seconds_max": 0.0}, r"beyond list_seconds_max \(0\)"),
}


@pytest.mark.parametrize(("items", "bounds", "told"), BOUNDS.values(), ids=BOUNDS)
async def test_a_list_without_an_end_fails_at_its_bound(
    served: Served, items: tuple[Any, ...], bounds: dict[str, Any], told: str
) -> None:
    asked: list[str] = []
    api = await served(answer_with_endless_list(*items, asked=asked), **bounds)
    error = await first_failure_of_following(api)
    assert re.search(told, str(error)), error
    assert len(asked) <= 10
    whole = {"whole_list_bytes_max" if name == "list_bytes_max" else name: most for name, most in bounds.items()}
    api = await served(answer_with_endless_list(*items), **whole)
    with pytest.raises(ClusterUnreachable, match=told.replace("list_bytes_max", "whole_list_bytes_max")):
        await api.list(PODS)


def watch_lines(*events: tuple[str, dict[str, Any]]) -> bytes:
    """Lines of a watch."""
    return b"".join(json.dumps({"type": kind, "object": one}).encode() + b"\n" for kind, one in events)


def answer_list_and_watch(lines: bytes, *listed: Any) -> Answer:
    """A list of these objects, and a watch that has these lines."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=lines if "watch" in request.query else list_page_body(*listed))

    return answer


MANY: Final = [("ADDED", pod(f"p{number}")) for number in range(9)]
ODD: Final = ("ODD", pod("odd"))
"""What ends a watch by another trouble."""
NEVER_BEYOND: Final = "an event of type 'ODD'"
WATCHES: Final = {
    "objects": (watch_lines(*MANY), r"watches of pods beyond list_objects_max \(9\)"),
    "as many as may be": (watch_lines(*MANY[1:], ODD), NEVER_BEYOND),
    "of one uid": (
        watch_lines(*(("ADDED", pod(f"p{number}", uid="u")) for number in range(9))),
        r"list_objects_max \(9\)",
    ),
    "of one name": (
        watch_lines(*(("MODIFIED", pod("p", uid=f"u{number}")) for number in range(9))),
        r"list_objects_max",
    ),
    "the same ones": (watch_lines(*MANY[1:] * 5, ODD), NEVER_BEYOND),
    "that come and go": (
        watch_lines(
            *MANY[1:], *((kind, one) for _, one in MANY[1:] * 3 for kind in ("DELETED", "ADDED", "DELETED")), ODD
        ),
        NEVER_BEYOND,
    ),
    "that were never there": (watch_lines(*(("DELETED", one) for _, one in MANY), *MANY), r"list_objects_max \(9\)"),
    "bytes": (
        watch_lines(*(("MODIFIED", pod(f"p{number}", labels={"a": "x" * 9_000})) for number in range(8))),
        r"list_bytes_max \(20000\)",
    ),
    "bytes of one": (watch_lines(*[("MODIFIED", pod("p", labels={"a": "x" * 9_000}))] * 50, ODD), NEVER_BEYOND),
}


@pytest.mark.parametrize(("lines", "trouble"), WATCHES.values(), ids=WATCHES)
async def test_a_watch_tells_of_no_more_than_a_list_may_have(served: Served, lines: bytes, trouble: str) -> None:
    api = await served(answer_list_and_watch(lines, pod("listed")), list_objects_max=9, list_bytes_max=20_000)
    error = await first_failure_of_following(api)
    assert re.search(trouble, str(error)), error
    assert isinstance(error, TooMuch) == (trouble != NEVER_BEYOND)


@pytest.mark.looptime
async def test_a_list_beyond_a_bound_is_not_tried_again_at_once() -> None:
    transport = Always(b"", list_page_body(pod("a"), more="x"))
    api = ClusterApi(transport, "blue", ClusterApiSettings(list_objects_max=9))
    with suppress(TimeoutError):
        async with asyncio.timeout(10 * ClusterApiSettings().too_much_pause_seconds + 1):
            async for _ in api.follow_objects(PODS):
                pass
    assert transport.asked == 11 * 10  # Lists, of ten pages each.


@pytest.mark.parametrize("whole", [False, True], ids=["values", "manifests"])
@pytest.mark.parametrize("filler", ["", "x" * 100_000], ids=["small", "large"])
async def test_a_page_of_more_objects_than_were_asked_for_is_garbage(served: Served, whole: bool, filler: str) -> None:
    body = list_page_body(*(pod(f"p{number}", annotations={"filler": filler}) for number in range(60)))
    api = await served(always_answer(body), page_objects=2, page_slack_objects=50)
    if whole:
        with pytest.raises(ClusterUnreachable, match=r"garbage.*52"):
            await api.list(PODS)
    else:
        error = await first_failure_of_following(api)
        assert error.reason == "garbage"
        assert "52" in error.detail


async def test_millions_of_empty_objects_are_counted_before_they_are_kept(served: Served) -> None:
    body = list_page_body().replace(b"[]", b"[" + b"{}," * 2**20 + b"{}]")
    for nothing in (body, body.replace(b"{}", b"0")):
        api = await served(always_answer(nothing), response_bytes_max=len(body))
        for ask in (api.count_nodes_and_pods(), api.list(PODS), api.node_metrics(5.0)):
            with pytest.raises(ClusterUnreachable, match="garbage"):
                await ask
        with pytest.raises(DecodeError, match=r"more than 7 objects|Expected `object`"):
            answers.count_objects(nothing, 7)


# ── What is large ───────────────────────────────────────────────────────────────────────────────────────────────────


def pods_with_filler(count: int, filler: str = "x" * 2_000) -> list[dict[str, Any]]:
    return [pod(f"p{number}", labels={"a": "b"}, annotations={"filler": filler}) for number in range(count)]


@pytest.mark.parametrize("count", [0, 1, 100, 2_500])
async def test_a_large_page_is_read_in_steps_and_says_the_same(served: Served, count: int) -> None:
    pods = pods_with_filler(count)
    api = await served(always_answer(list_page_body(*pods)), page_objects=5_000)
    assert await api.list(PODS) == pods
    async with aclosing(cast(AsyncGenerator[tuple[Change, ...], None], api.follow_objects(PODS))) as batches:
        (listed,) = await anext(batches)
    assert isinstance(listed, ListedObjects)
    assert [one.metadata.name for one in listed.objects] == [one["metadata"]["name"] for one in pods]
    assert {one.metadata.labels["a"] for one in listed.objects} <= {"b"}


@pytest.mark.parametrize("whole", [False, True], ids=["values", "manifests"])
async def test_others_have_their_turn_while_a_large_page_is_read(whole: bool) -> None:
    body = list_page_body(*pods_with_filler(2_500))
    transport = Always(b"", body)
    api = ClusterApi(transport, "blue", ClusterApiSettings(page_objects=5_000))
    reading = asyncio.create_task(api.decode_unpaged_list(PODS, body, whole=whole))
    turns = 0
    while not reading.done():
        turns += 1
        await asyncio.sleep(0)
    assert len(await reading) == 2_500
    assert turns > len(body) // (WHOLE_STEP_BYTES + 3_000 if whole else STEP_BYTES + 3_000)


@pytest.mark.parametrize("count", [1, 2_500])
async def test_an_object_that_is_too_large_is_garbage_wherever_it_is(served: Served, count: int) -> None:
    body = list_page_body(*pods_with_filler(count), pod("z", annotations={"filler": "x" * 5_000_000}))
    one = json.dumps(pod("z", annotations={"filler": "x" * 5_000_000})).encode()
    settings = ClusterApiSettings(object_bytes_max=4_000_000, page_objects=5_000)
    api = ClusterApi(Always(b'{"type":"ADDED","object":' + one + b"}\n", body), "blue", settings)
    with pytest.raises(ClusterUnreachable, match=r"object_bytes_max \(4000000\)"):
        await api.list(PODS)
    assert "object_bytes_max" in (await first_failure_of_following(api)).detail
    api = await served(always_answer(one), object_bytes_max=4_000_000)
    for ask in (api.get(PODS, "n", "z"), api.create(PODS, pod("z")), api.delete(PODS, "n", "z", uid="z")):
        with pytest.raises(ClusterUnreachable, match=r"object_bytes_max \(4000000\)"):
            await ask


async def test_answers_beyond_their_bound_are_garbage_before_they_are_taken_in(served: Served) -> None:
    api = await served(always_answer(b"x" * 5_000), response_bytes_max=1_000)
    for ask in (api.pod_metrics("n", 5.0), api.node_metrics(5.0), api.get(PODS, "n", "a"), api.count_nodes_and_pods()):
        with pytest.raises(ClusterUnreachable, match=r"garbage.*more than 1000 bytes"):
            await ask

    async def refuse(request: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "message": "x" * 5_000}, status=403)

    api = await served(refuse, refusal_bytes_max=1_000)
    with pytest.raises(ClusterUnreachable, match=r"garbage.*more than 1000 bytes"):
        await api.create(PODS, pod("a"))


async def test_metrics_have_the_bounds_of_a_list(served: Served) -> None:
    sample = {"metadata": {"name": "a"}, "timestamp": "", "window": ""}
    api = await served(always_answer(list_page_body(sample, sample, sample)), list_objects_max=2)
    for ask in (api.pod_metrics("n", 5.0), api.node_metrics(5.0)):
        with pytest.raises(ClusterUnreachable, match="garbage"):
            await ask
    api = await served(always_answer(list_page_body(sample)), list_bytes_max=20)
    for ask in (api.pod_metrics("n", 5.0), api.node_metrics(5.0)):
        with pytest.raises(TooMuch, match=r"list_bytes_max \(20\)"):
            await ask


async def test_of_large_answers_few_are_taken_in_at_a_time_and_the_rest_wait(served: Served) -> None:
    """Of one cluster two, so that it leaves turns for others; what is small waits for nobody."""
    begun, go_on = list[str](), asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        small = request.path.endswith("small")
        await response.write(b'{"metadata":{"name":"' + b"x" * (10 if small else 2_000))
        if not small:
            begun.append(request.path)
            await go_on.wait()
        await response.write(b'"}}')
        return response

    bounds = {"large_body_bytes": 1_000, "large_bodies_of_one_cluster": 2, "large_bodies_at_once": 3}
    one, other = await served(answer, **bounds), await served(answer, **bounds)
    asked = [asyncio.create_task(api.get(PODS, "n", f"{number}")) for api in (one, other) for number in range(3)]
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(begun) < len(asked) or transport_module._large_body_semaphore(3)._value:
            await asyncio.sleep(0.01)
        assert await one.get(PODS, "n", "small")
        waiting = transport_module._large_body_semaphore(3)._waiters
        assert waiting is not None
        assert len(waiting) == 1  # The other cluster's second; each one's third waits for a turn of its own.
        go_on.set()
        assert len(await asyncio.gather(*asked)) == 6
    assert transport_module._large_body_semaphore(3)._value == 3


async def test_a_long_refusal_takes_no_turn(served: Served) -> None:
    """A log that is followed may be refused for as long as it may be open."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=409)
        await response.prepare(request)
        await response.write(b'{"kind":"Status","message":"' + b"x" * 2_000)
        begun.set()
        await go_on.wait()
        await response.write(b'"}')
        return response

    api = await served(answer, large_body_bytes=1_000, large_bodies_at_once=3)
    asked = asyncio.create_task(api.create(PODS, pod("a")))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await begun.wait()
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert transport_module._large_body_semaphore(3)._value == 3
        go_on.set()
        with pytest.raises(Conflict):
            await asked


async def test_pages_grow_again_once_they_are_small(served: Served) -> None:
    asked = list[str]()

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.query["limit"])
        if asked == ["64"]:
            return web.Response(body=b"x" * 2_000)
        return web.Response(body=list_page_body(pod("a"), more="" if len(asked) > 6 else "x"))

    api = await served(answer, page_objects=64, response_bytes_max=1_000)
    assert len(await api.list(PODS)) == 6
    assert asked == ["64", "8", "16", "32", "64", "64", "64"]


def test_the_fewest_objects_of_a_page_fit_into_an_answer_however_large_they_are() -> None:
    """Else one who fills objects in one namespace could keep its whole cluster from being listed."""
    settings = ClusterApiSettings()
    assert settings.large_page_objects * settings.object_bytes_max < settings.response_bytes_max
    assert settings.object_bytes_max < settings.line_bytes_max
