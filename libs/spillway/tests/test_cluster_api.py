"""How a cluster is followed when its API misbehaves, and how its answers are named.

In scope: the reflector, retries and errors over a scripted transport in virtual time. What a real API does is in
tests/contract/test_cluster_api.py.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import REGISTRY

from spillway.clusters.api import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    PODS,
    AlreadyExists,
    Change,
    ClusterApi,
    ClusterApiSettings,
    ClusterUnreachable,
    Conflict,
    FollowingFailed,
    ListedObjects,
    ListedPage,
    LogOptions,
    NotFound,
    ObjectRemoved,
    ObjectUpserted,
    PagesEnded,
    Refused,
    Response,
    StreamAlive,
    TransportStatus,
    WriteHeldBack,
    make_cluster_api,
)
from spillway.clusters.credentials import Endpoint, load_endpoint

HANG = "hang"
LEASE_AT = datetime(2026, 11, 22, 6, 0, tzinfo=UTC)
Answer = Response | Exception | str
Step = bytes | Exception | float | str


@dataclass
class Scripted:
    """Answers and streams in the order given; when they run out, everything hangs."""

    answers: list[Answer] = field(default_factory=list)
    streams: list[Sequence[Step]] = field(default_factory=list)
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    bodies: list[bytes | None] = field(default_factory=list)

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Response:
        self.asked.append((method, path, dict(params)))
        self.bodies.append(body)
        answer = self.answers.pop(0) if self.answers else HANG
        if isinstance(answer, str):
            await asyncio.Event().wait()
            raise AssertionError
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def stream(
        self, path: str, params: Mapping[str, str], accept: str = "application/json"
    ) -> AsyncIterator[bytes]:
        self.asked.append(("WATCH", path, dict(params)))
        for step in self.streams.pop(0) if self.streams else [HANG]:
            if isinstance(step, Exception):
                raise step
            if isinstance(step, str):
                await asyncio.Event().wait()
            elif isinstance(step, float):
                await asyncio.sleep(step)
            else:
                assert isinstance(step, bytes)
                yield step

    async def close(self) -> None: ...

    def watch_start_versions(self) -> list[str]:
        return [params["resourceVersion"] for method, _, params in self.asked if method == "WATCH"]

    def list_count(self) -> int:
        return sum(method == "GET" and "continue" not in params for method, _, params in self.asked)


def cluster_api_over(transport: Scripted, **settings: Any) -> ClusterApi:
    return ClusterApi(transport, "blue", ClusterApiSettings(**settings), random=Random(1))


def pod(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "resourceVersion": str(version)}}


def list_page(*pods: dict[str, Any], version: int = 10, more: str = "", after: int | None = None) -> Response:
    metadata = {"resourceVersion": str(version), "continue": more, "remainingItemCount": after}
    return Response(200, json.dumps({"metadata": metadata, "items": pods}).encode())


def watch_event_line(kind: str, thing: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": thing}).encode() + b"\n"


def status_response(code: int, reason: str = "", message: str = "") -> Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return Response(code, json.dumps(body).encode())


def refused_stream(code: int) -> list[Step]:
    return [TransportStatus(code, status_response(code).body)]


def pod_with_uid(name: str) -> dict[str, Any]:
    """A pod with its name as its uid."""
    made = pod(name, 1)
    return {**made, "metadata": {**made["metadata"], "uid": name}}


ADDED = watch_event_line("ADDED", pod("a", 11))
BOOKMARK = watch_event_line(
    "BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "15", "creationTimestamp": None}}
)
GONE = watch_event_line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})

LATER = json.dumps({"kind": "Status", "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]}}).encode()


async def next_changes(api: ClusterApi, count: int, *, paged: bool = False) -> list[Change]:
    """The next so many changes; the reflector is closed afterwards."""
    changes: list[Change] = []
    following = api.follow_in_pages(PODS) if paged else api.follow_objects(PODS)
    async for batch in following:
        changes.extend(batch)
        if len(changes) >= count:
            break
    await following.aclose()  # type: ignore[attr-defined]
    return changes


def change_summaries(changes: Sequence[Change]) -> list[str]:
    """Each change in a word and what it is about, to compare whole stories."""
    words = []
    for change in changes:
        match change:
            case ListedObjects(objects, version):
                words.append(f"listed {','.join(one.metadata.name for one in objects)}@{version}")
            case ListedPage(objects):
                words.append(f"paged {','.join(one.metadata.name for one in objects)}")
            case PagesEnded(uids, version):
                words.append(f"ended {','.join(sorted(uids))}@{version}")
            case ObjectUpserted(thing):
                words.append(f"upserted {thing.metadata.name}@{thing.metadata.resource_version}")
            case ObjectRemoved(thing):
                words.append(f"removed {thing.metadata.name}@{thing.metadata.resource_version}")
            case StreamAlive():
                words.append("alive")
            case FollowingFailed(error):
                words.append(f"failed {error.reason}")
    return words


@dataclass(frozen=True)
class Story:
    """What the API does, what a reader is told, and from which versions was watched."""

    answers: list[Answer]
    streams: list[Sequence[Step]]
    told: list[str]
    watched_from: list[str]
    lists: int = 1


STORIES = {
    "pages make one list": Story(
        [list_page(pod("a", 1), more="next", after=1), list_page(pod("b", 2))], [[]], ["listed a,b@10"], []
    ),
    "a list that expires between pages starts again": Story(
        [
            list_page(pod("a", 1), more="next"),
            status_response(410, "Expired"),
            list_page(pod("a", 1), pod("b", 3), version=20),
        ],
        [],
        ["listed a,b@20"],
        [],
        lists=2,
    ),
    "a burst is one batch": Story(
        [list_page()],
        [[ADDED + watch_event_line("MODIFIED", pod("a", 12)) + watch_event_line("DELETED", pod("a", 13))]],
        ["listed @10", "upserted a@11", "upserted a@12", "removed a@13"],
        ["10"],
    ),
    "events cut anywhere": Story(
        [list_page()],
        [[ADDED[:7], ADDED[7:] + ADDED[:-1], b"\n"]],
        ["listed @10", "upserted a@11", "upserted a@11"],
        ["10"],
    ),
    "an open stream is a sign of life": Story([list_page()], [[b""]], ["listed @10", "alive"], ["10"]),
    "a clean end resumes from the last event": Story(
        [list_page()],
        [[ADDED], [watch_event_line("ADDED", pod("b", 12))]],
        ["listed @10", "upserted a@11", "upserted b@12"],
        ["10", "11"],
    ),
    "an event cut by the end of its stream is sent again": Story(
        [list_page()],
        [[ADDED + b'{"type":"ADD'], [ADDED]],
        ["listed @10", "upserted a@11", "upserted a@11"],
        ["10", "11"],
    ),
    "a bookmark moves the place to resume from": Story(
        [list_page()],
        [[BOOKMARK], [watch_event_line("ADDED", pod("b", 16))]],
        ["listed @10", "alive", "upserted b@16"],
        ["10", "15"],
    ),
    "410 as a status lists again": Story(
        [list_page(), list_page(pod("a", 30), version=30)],
        [refused_stream(410), [b""]],
        ["listed @10", "listed a@30", "alive"],
        ["10", "30"],
        lists=2,
    ),
    "410 in the stream lists again, after what came before it": Story(
        [list_page(), list_page(version=30)],
        [[ADDED + GONE]],
        ["listed @10", "upserted a@11", "listed @30"],
        ["10"],
        lists=2,
    ),
    "another error in the stream is a failure, and the version stands": Story(
        [list_page()],
        [[watch_event_line("ERROR", {"kind": "Status", "code": 500, "message": "etcd"})], [ADDED]],
        ["listed @10", "failed server", "upserted a@11"],
        ["10", "10"],
    ),
    "401 in the stream": Story(
        [list_page()],
        [[watch_event_line("ERROR", {"kind": "Status", "code": 401})], [ADDED]],
        ["listed @10", "failed unauthorized", "upserted a@11"],
        ["10", "10"],
    ),
    "an error in the stream without a code is garbage": Story(
        [list_page(), list_page()],
        [[watch_event_line("ERROR", {})]],
        ["listed @10", "failed garbage", "listed @10"],
        ["10"],
        lists=2,
    ),
    "no JSON lists again": Story(
        [list_page(), list_page(version=30)],
        [[ADDED + b"<html>\n"]],
        ["listed @10", "upserted a@11", "failed garbage", "listed @30"],
        ["10"],
        lists=2,
    ),
    "an object of another shape lists again": Story(
        [list_page(), list_page(version=30)],
        [[watch_event_line("ADDED", {"metadata": "none"})]],
        ["listed @10", "failed garbage", "listed @30"],
        ["10"],
        lists=2,
    ),
    "an event of no known type is garbage": Story(
        [list_page(), list_page()],
        [[watch_event_line("CHANGED", pod("a", 1))]],
        ["listed @10", "failed garbage", "listed @10"],
        ["10"],
        2,
    ),
    "a list that is no list is garbage": Story(
        [Response(200, b'{"kind":"Status"}'), list_page()], [], ["failed garbage", "listed @10"], [], lists=2
    ),
    "a list without a version is garbage": Story(
        [Response(200, b'{"metadata":{},"items":[]}'), list_page()], [], ["failed garbage", "listed @10"], [], lists=2
    ),
    "a login page instead of a list is garbage": Story(
        [Response(302, b"<html>"), list_page()], [], ["failed garbage", "listed @10"], [], lists=2
    ),
    "a stall in the middle of a list is a time-out": Story(
        [list_page(pod("a", 1), more="next"), HANG, list_page()], [], ["failed timeout", "listed @10"], [], lists=2
    ),
    "401 in the middle of a watch is said, and the version stands": Story(
        [list_page()],
        [[ADDED], refused_stream(401), [b""]],
        ["listed @10", "upserted a@11", "failed unauthorized", "alive"],
        ["10", "11", "11"],
    ),
    "403 is unreachable and not empty": Story(
        [status_response(403), list_page()], [], ["failed forbidden", "listed @10"], [], lists=2
    ),
    "a broken connection resumes": Story(
        [list_page()],
        [[ADDED, ClusterUnreachable("blue", "connection", "reset")], [b""]],
        ["listed @10", "upserted a@11", "failed connection", "alive"],
        ["10", "11"],
    ),
    "a silent watch is a time-out": Story(
        [list_page()], [[ADDED, HANG], [b""]], ["listed @10", "upserted a@11", "failed timeout", "alive"], ["10", "11"]
    ),
    "a watch that opens and says nothing lists again": Story(
        [list_page(), list_page(pod("a", 3), version=5)],
        [[b"", HANG], [b""]],
        ["listed @10", "alive", "failed timeout", "listed a@5", "alive"],
        ["10", "5"],
        lists=2,
    ),
    "watches that are cut before they say anything are silent together": Story(
        [list_page(), list_page(version=5)],
        [[b"", 60.0], [b"", 60.0], [b""]],
        ["listed @10", "alive", "alive", "listed @5", "alive"],
        ["10", "10", "5"],
        lists=2,
    ),
    "a bookmark ends a silence": Story(
        [list_page()],
        [[b"", 60.0], [b"", 30.0, BOOKMARK], [b"", 60.0], [b""]],
        ["listed @10", "alive", "alive", "alive", "alive", "alive"],
        ["10", "10", "15", "15"],
    ),
    "a watch that is not opened is no silence": Story(
        [list_page()], [[HANG], [HANG], [b""]], ["listed @10", "failed timeout", "alive"], ["10", "10", "10"]
    ),
    "a version that the server has not come to lists again": Story(
        [list_page(), list_page(version=5)],
        [[TransportStatus(504, LATER)], [b""]],
        ["listed @10", "listed @5", "alive"],
        ["10", "5"],
        lists=2,
    ),
    "a failure is said once, and again after it was well": Story(
        [list_page()],
        [refused_stream(503), refused_stream(503), refused_stream(500), [b""], refused_stream(503), [b""]],
        ["listed @10", "failed server", "alive", "failed server", "alive"],
        ["10"] * 6,
    ),
    "a failure for another reason is said, too": Story(
        [list_page()],
        [refused_stream(503), refused_stream(401), refused_stream(401), [b""]],
        ["listed @10", "failed server", "failed unauthorized", "alive"],
        ["10"] * 4,
    ),
    "an endless line is garbage": Story(
        [list_page(), list_page()],
        [[b"x" * 150, b"x" * 150]],
        ["listed @10", "failed garbage", "listed @10"],
        ["10"],
        lists=2,
    ),
}


@pytest.mark.looptime
@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
async def test_following(story: Story) -> None:
    transport = Scripted(list(story.answers), list(story.streams))
    assert (
        change_summaries(await next_changes(cluster_api_over(transport, line_bytes_max=200), len(story.told)))
        == story.told
    )
    assert transport.watch_start_versions() == story.watched_from
    assert transport.list_count() == story.lists


PAGED = {
    "a list is said as it comes": Story(
        [list_page(pod_with_uid("a"), more="next"), list_page(pod_with_uid("b"))],
        [[ADDED]],
        ["paged a", "paged b", "ended a,b@10"],
        [],
    ),
    "what is said of one that fails is no end": Story(
        [
            list_page(pod_with_uid("a"), more="next"),
            status_response(410, "Expired"),
            list_page(pod_with_uid("c"), version=20),
        ],
        [[ADDED]],
        ["paged a", "paged c", "ended c@20", "upserted a@11"],
        ["20"],
        lists=2,
    ),
    "a page without a version is garbage": Story(
        [Response(200, b'{"metadata":{},"items":[]}'), list_page()],
        [],
        ["failed garbage", "paged ", "ended @10"],
        [],
        lists=2,
    ),
    "a page is no sign that all is well again": Story(
        [
            list_page(pod_with_uid("a"), more="next"),
            status_response(503),
            list_page(pod_with_uid("a"), more="next"),
            status_response(503),
            list_page(),
        ],
        [[ADDED]],
        ["paged a", "failed server", "paged a", "paged ", "ended @10", "upserted a@11"],
        ["10"],
        lists=3,
    ),
}


@pytest.mark.looptime
@pytest.mark.parametrize("story", PAGED.values(), ids=PAGED)
async def test_following_in_pages(story: Story) -> None:
    transport = Scripted(list(story.answers), list(story.streams))
    assert (
        change_summaries(await next_changes(cluster_api_over(transport, read_attempts=1), len(story.told), paged=True))
        == story.told
    )
    assert transport.watch_start_versions() == story.watched_from
    assert transport.list_count() == story.lists


@pytest.mark.looptime
async def test_lists_and_watches_that_begin_anew_are_counted() -> None:
    def sample_value(name: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(name, {"resource": "pods", **labels}) or 0.0

    def lists_and_restarts() -> tuple[float, float]:
        return sample_value("spillway_list_seconds_count"), sample_value(
            "spillway_watch_restarts_total", reason="expired"
        )

    lists, restarts = lists_and_restarts()
    await test_following(STORIES["410 as a status lists again"])
    assert lists_and_restarts() == (lists + 2, restarts + 1)


@pytest.mark.looptime
async def test_pauses_grow_and_are_bounded() -> None:
    """An API that is away for long is asked at least every longest pause, and no more often than that."""
    transport = Scripted([ClusterUnreachable("blue", "connection", "refused")] * 100)
    api = cluster_api_over(transport, first_pause_seconds=1.0, longest_pause_seconds=16.0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(600):
            await next_changes(api, 2)
    assert 600 / 16 <= len(transport.asked) <= 600 / 8 + 6


@pytest.mark.looptime
@pytest.mark.parametrize("stream", [[], [ADDED + b"garbage\n"], [GONE], refused_stream(401)], ids=repr)
async def test_a_watch_that_ends_at_once_for_ever_is_not_opened_in_a_tight_loop(stream: list[Step]) -> None:
    transport = Scripted([list_page()] * 10_000, [stream] * 10_000)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(600):
            await next_changes(cluster_api_over(transport), 10**6)
    assert len(transport.watch_start_versions()) < 600 / (ClusterApiSettings().longest_pause_seconds / 2) + 10


@pytest.mark.looptime
async def test_the_watch_asks_for_bookmarks_and_a_random_end() -> None:
    transport = Scripted([list_page()], [[b""]])
    await next_changes(cluster_api_over(transport), 2)
    params = transport.asked[-1][2]
    assert params["allowWatchBookmarks"] == "true"
    assert 240 <= int(params["timeoutSeconds"]) <= 480
    assert transport.asked[0][2] == {"limit": "500"}


@pytest.mark.looptime
async def test_selectors_are_sent_with_the_list_and_the_watch() -> None:
    transport = Scripted([list_page()], [[b""]])
    following = cluster_api_over(transport).follow_objects(PODS, label_selector="a=b", field_selector="spec.nodeName=x")
    await anext(following)
    await anext(following)
    for _, _, params in transport.asked:
        assert (params["labelSelector"], params["fieldSelector"]) == ("a=b", "spec.nodeName=x")


@pytest.mark.looptime
async def test_a_probe_counts_what_is_behind_the_first_page() -> None:
    transport = Scripted([list_page(pod("a", 1), more="x", after=4), list_page()])
    started = asyncio.get_running_loop().time()
    probe = await cluster_api_over(transport).count_nodes_and_pods()
    assert (probe.nodes, probe.pods, probe.started_at) == (5, 0, started)
    assert [params for _, _, params in transport.asked] == [{"limit": "1"}] * 2


@pytest.mark.looptime
async def test_a_probe_waits_behind_no_list() -> None:
    """It has connections of its own: those of lists may all be taken for longer than an age may be."""
    lists, probes = Scripted(), Scripted([list_page(), list_page()])
    api = ClusterApi(lists, "blue", ClusterApiSettings(), random=Random(1), probe_transport=probes)
    assert (await api.count_nodes_and_pods()).nodes == 0
    assert (len(lists.asked), len(probes.asked)) == (0, 2)


PROBE_FAILURES: dict[str, tuple[Answer, str]] = {
    "no count": (list_page(pod("a", 1), more="x"), "garbage"),
    "no answer": (HANG, "timeout"),
    "not let in": (status_response(401), "unauthorized"),
    "not allowed": (status_response(403), "forbidden"),
    "ill": (status_response(503), "server"),
    "expired": (status_response(410), "server"),
    "not there": (status_response(404), "garbage"),
}


@pytest.mark.looptime
@pytest.mark.parametrize(("answer", "reason"), PROBE_FAILURES.values(), ids=PROBE_FAILURES)
async def test_a_probe_without_an_answer_is_unreachable(answer: Answer, reason: str) -> None:
    with pytest.raises(ClusterUnreachable) as raised:
        await cluster_api_over(Scripted([answer])).count_nodes_and_pods()
    assert raised.value.reason == reason


DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "n"}, "spec": {}}


@pytest.mark.looptime
async def test_a_read_is_tried_again_while_the_server_is_ill() -> None:
    transport = Scripted([status_response(500), status_response(429), Response(200, json.dumps(DEPLOYMENT).encode())])
    assert await cluster_api_over(transport).get(DEPLOYMENTS, "n", "d") == DEPLOYMENT


def pod_json_with(**change: object) -> bytes:
    found: dict[str, object] = {"metadata": {"name": "p"}, "spec": {"nodeName": "n1", "containers": [{"name": "c"}]}}
    return json.dumps(found | change).encode()


WRONG_PODS = {
    "no metadata": b'{"kind": "Pod"}',
    "labels that are none": pod_json_with(metadata={"name": "p", "labels": ["a"]}),
    "containers that are none": pod_json_with(spec={"containers": 3}),
    "requests that are no amounts": pod_json_with(spec={"containers": [{"resources": {"requests": {"cpu": ["1"]}}}]}),
    "a port beyond all numbers": pod_json_with(spec={"containers": [{"ports": [{"hostPort": 2**40}]}]}),
}


@pytest.mark.looptime
@pytest.mark.parametrize("body", WRONG_PODS.values(), ids=WRONG_PODS)
async def test_a_whole_object_of_other_types_than_its_kind_has_is_garbage(body: bytes) -> None:
    """Alone, in a list, and as the answer to a write: who reads it takes it apart without looking."""
    listed = b'{"metadata":{"resourceVersion":"1"},"items":[' + body + b"]}"
    for answer, ask in (
        (body, lambda api: api.get(PODS, "n", "p")),
        (listed, lambda api: api.list(PODS, "n")),
        (body, lambda api: api.create(PODS, {"metadata": {"name": "p", "namespace": "n"}})),
    ):
        with pytest.raises(ClusterUnreachable, match="garbage"):
            await ask(cluster_api_over(Scripted([Response(200, answer)])))


@pytest.mark.looptime
async def test_one_pod_whose_amounts_nobody_can_count_hides_no_other() -> None:
    """An API server lets them in: its users would silence their cluster by one."""
    pods = [pod_json_with(spec={"containers": [{"resources": {"requests": {"cpu": cpu}}}]}) for cpu in ("10P", "1")]
    listed = b'{"metadata":{"resourceVersion":"1"},"items":[' + b",".join(pods) + b"]}"
    assert len(await cluster_api_over(Scripted([Response(200, listed)])).list(PODS, "n")) == len(pods)


@pytest.mark.looptime
async def test_a_read_is_given_up_after_its_attempts() -> None:
    transport = Scripted([status_response(500)] * 9)
    with pytest.raises(ClusterUnreachable, match="server"):
        await cluster_api_over(transport, read_attempts=3).get(DEPLOYMENTS, "n", "d")
    assert len(transport.asked) == 3


@pytest.mark.looptime
async def test_absent_is_none_but_only_when_kubernetes_says_so() -> None:
    assert await cluster_api_over(Scripted([status_response(404, "NotFound")])).get(DEPLOYMENTS, "n", "d") is None
    with pytest.raises(ClusterUnreachable, match="garbage"):
        await cluster_api_over(Scripted([Response(404, b"<html>no such page")])).get(DEPLOYMENTS, "n", "d")
    with pytest.raises(ClusterUnreachable, match="garbage"):
        await cluster_api_over(Scripted([Response(404, b"{}")])).delete(
            DEPLOYMENTS, "n", "d", uid="u", resource_version="1"
        )


ANOTHER_UID = json.dumps(
    {
        "kind": "Status",
        "reason": "Invalid",
        "message": "metadata.uid: field is immutable",
        "details": {"causes": [{"reason": "FieldValueInvalid", "field": "metadata.uid"}]},
    }
).encode()
WRITE_ANSWERS: dict[str, tuple[Answer, type[Exception], str]] = {
    "exists": (status_response(409, "AlreadyExists", "d exists"), AlreadyExists, "AlreadyExists"),
    "stale": (status_response(409, "Conflict", "modified"), Conflict, "Conflict"),
    "invalid": (status_response(422, "Invalid", "replicas"), Refused, "422 Invalid: replicas"),
    "quota": (status_response(403, "Forbidden", "exceeded quota"), Refused, "exceeded quota"),
    "bad request": (status_response(400, "BadRequest", "no kind"), Refused, "400"),
    "namespace missing": (status_response(404, "NotFound", "namespaces n"), NotFound, "404"),
    "another uid": (Response(422, ANOTHER_UID), Conflict, "immutable"),
    "not let in": (status_response(401), ClusterUnreachable, "unauthorized"),
    "server error, outcome unknown, not tried again": (status_response(500), ClusterUnreachable, "server"),
    "no answer, outcome unknown": (HANG, ClusterUnreachable, "timeout"),
    "a proxy's page": (Response(403, b"<html>"), ClusterUnreachable, "garbage"),
    "done, but in no JSON": (Response(201, b"ok"), ClusterUnreachable, "garbage"),
}


@pytest.mark.looptime
@pytest.mark.parametrize(("answer", "error", "words"), WRITE_ANSWERS.values(), ids=WRITE_ANSWERS)
async def test_what_becomes_of_a_write_has_a_name(answer: Answer, error: type[Exception], words: str) -> None:
    transport = Scripted([answer])
    with pytest.raises(error, match=words) as raised:
        await cluster_api_over(transport).create(DEPLOYMENTS, DEPLOYMENT)
    assert raised.type is error
    assert len(transport.asked) == 1


@pytest.mark.looptime
async def test_an_apply_says_which_object_at_which_version_is_meant() -> None:
    transport = Scripted([Response(200, json.dumps(DEPLOYMENT).encode())])
    await cluster_api_over(transport).apply(DEPLOYMENTS, DEPLOYMENT, resource_version="7", force=True, uid="u")
    assert transport.asked == [
        ("PATCH", "/apis/apps/v1/namespaces/n/deployments/d", {"fieldManager": "spillway", "force": "true"})
    ]
    assert json.loads(transport.bodies[0] or b"")["metadata"] == {
        "name": "d",
        "namespace": "n",
        "uid": "u",
        "resourceVersion": "7",
    }
    assert DEPLOYMENT["metadata"] == {"name": "d", "namespace": "n"}


@pytest.mark.looptime
async def test_a_delete_carries_its_preconditions() -> None:
    transport = Scripted([Response(200, b"{}")])
    await cluster_api_over(transport).delete(DEPLOYMENTS, "n", "d", uid="u", resource_version="7")
    body = json.loads(transport.bodies[0] or b"")
    assert body["preconditions"] == {"uid": "u", "resourceVersion": "7"}
    assert "gracePeriodSeconds" not in body
    transport = Scripted([Response(200, b"{}")])
    await cluster_api_over(transport).delete(PODS, "n", "p", uid="u", grace_seconds=0)
    body = json.loads(transport.bodies[0] or b"")
    assert (body["preconditions"], body["gracePeriodSeconds"]) == ({"uid": "u"}, 0)


@pytest.mark.looptime
async def test_a_lease_that_another_makes_at_the_same_time_is_renewed() -> None:
    """Absent, then there when we make it: so it is changed after all; what fails then is told."""
    made = Response(200, b'{"metadata":{"name":"node-1"}}')
    transport = Scripted([status_response(404, "NotFound"), status_response(409, "AlreadyExists"), made])
    lease = await cluster_api_over(transport).renew_node_lease(
        "node-1", "u", "me", duration_seconds=40, renewed_at=LEASE_AT
    )
    assert lease == {"metadata": {"name": "node-1"}}
    assert [method for method, _, _ in transport.asked] == ["PATCH", "POST", "PATCH"]
    transport = Scripted(
        [status_response(404, "NotFound"), status_response(404, "NotFound", "namespaces kube-node-lease")]
    )
    with pytest.raises(NotFound, match="namespaces kube-node-lease"):
        await cluster_api_over(transport).renew_node_lease(
            "node-1", "u", "me", duration_seconds=40, renewed_at=LEASE_AT
        )


@pytest.mark.looptime
async def test_a_lease_is_renewed_at_a_time_with_its_zone() -> None:
    api = cluster_api_over(Scripted())
    with pytest.raises(ValueError, match="expected a time with its zone"):
        await api.renew_node_lease("n", "u", "me", duration_seconds=40, renewed_at=LEASE_AT.replace(tzinfo=None))


LOG = LogOptions("main", follow=True, tail_lines=0)


@pytest.mark.looptime
async def test_a_log_is_asked_for_with_what_is_set_and_given_as_it_comes() -> None:
    transport = Scripted(streams=[[b"", b"one\n", 7.0, b"two"]])
    async with aclosing(cluster_api_over(transport).container_log_chunks("n", "p", LOG)) as chunks:
        assert [chunk async for chunk in chunks] == [b"one\n", b"two"]
    wanted = {"container": "main", "follow": "true", "tailLines": "0"}
    assert transport.asked == [("WATCH", "/api/v1/namespaces/n/pods/p/log", wanted)]
    assert LogOptions().query_parameters() == {}


LOG_ANSWERS: dict[str, tuple[list[Step], type[Exception], str]] = {
    "no such pod": ([TransportStatus(404, status_response(404, "NotFound", "pods p").body)], NotFound, "pods p"),
    "not started": ([TransportStatus(400, status_response(400, "BadRequest", "waiting").body)], Refused, "waiting"),
    "no right": ([TransportStatus(403, status_response(403, "Forbidden", "pods/log").body)], Refused, "pods/log"),
    "its kubelet is away": ([TransportStatus(500, status_response(500).body)], ClusterUnreachable, "server"),
    "no answer": ([HANG], ClusterUnreachable, "timeout"),
    "cut in the middle": ([b"", b"one", ClusterUnreachable("blue", "connection", "cut")], ClusterUnreachable, "cut"),
}


@pytest.mark.looptime
@pytest.mark.parametrize(("steps", "error", "words"), LOG_ANSWERS.values(), ids=LOG_ANSWERS)
async def test_why_a_log_is_not_given_has_a_name(steps: list[Step], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as raised:
        async for _ in cluster_api_over(Scripted(streams=[steps])).container_log_chunks("n", "p", LogOptions("main")):
            pass
    assert raised.type is error


@pytest.mark.looptime
async def test_a_log_that_is_followed_may_be_silent_from_its_beginning() -> None:
    """A kubelet begins to answer with the first line."""
    api = cluster_api_over(Scripted(streams=[[3600.0, b"", b"one"], [HANG]]), log_stream_seconds=7200.0)
    assert [chunk async for chunk in api.container_log_chunks("n", "p", LOG)] == [b"one"]
    assert [chunk async for chunk in api.container_log_chunks("n", "p", LOG)] == []


@pytest.mark.looptime
async def test_a_log_ends_after_its_time_though_its_pod_writes_on() -> None:
    steps: list[Step] = [b"", *[one for _ in range(100) for one in (10.0, b"x")]]
    api = cluster_api_over(Scripted(streams=[steps]), log_stream_seconds=45.0)
    assert [chunk async for chunk in api.container_log_chunks("n", "p", LOG)] == [b"x"] * 4


@pytest.mark.looptime
async def test_only_so_many_logs_are_open_at_one_time() -> None:
    """One that is closed makes room, also in its middle."""
    api = cluster_api_over(Scripted(streams=[[b"", b"x", HANG] for _ in range(3)]), log_streams_max=2)
    first, second, third, fourth = (api.container_log_chunks("n", "p", LOG) for _ in range(4))
    assert [await anext(first), await anext(second)] == [b"x", b"x"]
    with pytest.raises(Refused, match="TooManyRequests"):
        await anext(third)
    await first.aclose()
    assert await anext(fourth) == b"x"
    for one in (second, fourth):
        await one.aclose()


@pytest.mark.looptime
async def test_a_list_that_keeps_expiring_is_given_up() -> None:
    transport = Scripted([list_page(pod("a", 1), more="x"), status_response(410)] * 9)
    with pytest.raises(ClusterUnreachable, match="expired"):
        await cluster_api_over(transport).list(PODS)


PODS_THERE = 5
WRITES = {
    "create": lambda api: api.create(CONFIG_MAPS, {"metadata": {"name": "c", "namespace": "n"}}),
    "apply": lambda api: api.apply(
        CONFIG_MAPS, {"metadata": {"name": "c", "namespace": "n"}}, resource_version="", force=True
    ),
    "patch": lambda api: api.patch(CONFIG_MAPS, "n", "c", {"data": {}}, resource_version=""),
    "delete": lambda api: api.delete(CONFIG_MAPS, "n", "c", uid="u"),
}


@pytest.fixture
def asked_pages() -> list[tuple[str, str]]:
    """Of pods, as the server below was asked for them: limit and continue."""
    return []


@pytest.fixture
def asked_writes() -> list[str]:
    """The methods of requests that change something, as the server below got them."""
    return []


@pytest.fixture
async def server(asked_pages: list[tuple[str, str]], asked_writes: list[str]) -> AsyncIterator[str]:
    """Lets in who has the token `new`, and answers each path in its own way."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != "Bearer new":
            return web.json_response({"kind": "Status", "code": 401, "message": "who?"}, status=401)
        if request.method != "GET" and "dryRun" not in request.query:
            asked_writes.append(request.method)
        if request.path.endswith("/moved"):
            raise web.HTTPFound("/api/v1/namespaces/n/configmaps/small")
        if request.path.endswith("/large"):
            return web.json_response({"data": "x" * 5000})
        if request.path.endswith("/pods"):
            asked_pages.append((request.query["limit"], request.query.get("continue", "")))
            first = int(request.query.get("continue", "0"))
            after = first + int(request.query["limit"])
            pods = [pod(f"p{number}", number + 1) for number in range(first, min(after, PODS_THERE))]
            for one in pods:
                one["metadata"]["annotations"] = {"filler": "x" * 400}
            return web.Response(body=list_page(*pods, more=str(after) if after < PODS_THERE else "").body)
        if request.path.endswith("/cut"):
            response = web.StreamResponse(headers={"Content-Length": "1000"})
            await response.prepare(request)
            await response.write(b"{")
            assert request.transport is not None
            request.transport.close()
            return response
        return web.json_response({"metadata": {"name": "small"}, "encoding": request.headers["Accept-Encoding"]})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def cluster_api_over_http(server: str, tokens: Sequence[str] = ("new",), **changes: Any) -> ClusterApi:
    """Its endpoint is read with the next of the tokens each time, and with the last for ever."""
    left = list(tokens)
    settings = ClusterApiSettings(response_bytes_max=1000, **changes)
    return make_cluster_api(lambda: Endpoint(server, token=left.pop(0) if len(left) > 1 else left[0]), "blue", settings)


async def test_a_renewed_token_is_read_after_a_401(server: str) -> None:
    api = cluster_api_over_http(server, ["old", "new"])
    with pytest.raises(ClusterUnreachable, match="unauthorized"):
        await api.get(CONFIG_MAPS, "n", "small")
    assert await api.get(CONFIG_MAPS, "n", "small") == {"metadata": {"name": "small"}, "encoding": "identity"}
    await api.close()


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_a_write_is_held_back_at_the_last_moment(
    server: str, asked_writes: list[str], write: Callable[[ClusterApi], Awaitable[object]]
) -> None:
    """A process may have been frozen while its request waited for a connection: others have its turn by then."""
    api, may_write = cluster_api_over_http(server), True
    asked = asyncio.Event()

    def asked_late() -> bool:
        asked.set()
        return may_write

    api.write_only_while(asked_late)
    await write(api)
    assert len(asked_writes) == 1
    may_write = False
    asked.clear()
    with pytest.raises(WriteHeldBack):
        await write(api)
    assert asked.is_set()
    assert await api.get(CONFIG_MAPS, "n", "small"), "reads go on, on a connection of their own"
    await api.dry_run_create(CONFIG_MAPS, "n", {"metadata": {"name": "c"}})
    assert len(asked_writes) == 1, "nothing of the write arrived"
    await api.close()


@pytest.mark.parametrize(
    ("name", "reason"), [("moved", "garbage"), ("large", "garbage"), ("cut", "connection")], ids=str
)
async def test_an_answer_that_is_none_is_unreachable(server: str, name: str, reason: str) -> None:
    api = cluster_api_over_http(server)
    with pytest.raises(ClusterUnreachable) as raised:
        await api.get(CONFIG_MAPS, "n", name)
    assert raised.value.reason == reason
    await api.close()


async def test_a_list_whose_page_is_too_large_goes_on_in_smaller_ones(
    server: str, asked_pages: list[tuple[str, str]]
) -> None:
    api = cluster_api_over_http(server, page_objects=4, large_page_objects=1)
    found = await api.list(PODS)
    assert [one["metadata"]["name"] for one in found] == [f"p{number}" for number in range(PODS_THERE)]
    assert asked_pages == [("4", ""), ("1", ""), ("1", "1"), ("1", "2"), ("1", "3"), ("1", "4")]
    await api.close()


async def test_a_page_that_is_too_large_however_few_are_asked_for_is_unreachable(
    server: str, asked_pages: list[tuple[str, str]]
) -> None:
    api = cluster_api_over_http(server, page_objects=4, large_page_objects=3)
    with pytest.raises(ClusterUnreachable, match=r"garbage.*an answer of more than 1000 bytes"):
        await api.list(PODS)
    assert [limit for limit, _ in asked_pages] == ["4", "3"]
    await api.close()


async def test_a_server_that_is_gone_is_unreachable() -> None:
    api = cluster_api_over_http("http://127.0.0.1:1")
    with pytest.raises(ClusterUnreachable, match="connection"):
        await api.count_nodes_and_pods()
    await api.close()


async def test_credentials_that_cannot_be_read_are_no_refusal_of_the_cluster(tmp_path: Path) -> None:
    api = make_cluster_api(lambda: load_endpoint(tmp_path, "gone"), "blue", ClusterApiSettings())
    with pytest.raises(ClusterUnreachable) as raised:
        await api.count_nodes_and_pods()
    file = tmp_path / "gone.kubeconfig"
    assert (raised.value.reason, raised.value.detail) == ("credential", f"{file}: there is no such file")
