"""gRPC between PlannerClient and RpcServer, over real loopback connections, with a planner that answers from memory."""

import asyncio
import datetime as dt
import hashlib
import json
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from spillway import api
from spillway.api import RequestError
from spillway.bus import BusUnavailable, OutcomeUnknown
from spillway.events import DecisionRecorded
from spillway.model import ClusterInput, Generation, NodeGroup, Taint
from spillway.rpc.calls import (
    LENDING,
    PLANNER,
    REQUEST_BYTES_MOST,
    SCALING,
    Call,
    PackedReply,
    message_bytes,
    request_bytes,
)
from spillway.rpc.client import ClientTimeouts, PlannerClient
from spillway.rpc.endpoints import is_loopback
from spillway.rpc.fleets import FLEET_KEY, fleet_in_metadata
from spillway.rpc.namespaces import check_namespaces
from spillway.rpc.security import CALLER, Caller, Gate, RpcSettings, UnsafeBind, count_further_calls
from spillway.rpc.server import RpcServer
from spillway.running.process import OperatorError
from spillway.wire import TooManyEntries

INPUT = ClusterInput("own-1", "own", 3, 5, 1, 0, 3, "cpu", 120)
PLACEMENT = api.PlacementReply(
    namespace="default",
    name="web",
    generation=3,
    replicas=5,
    placed=4,
    unplaced=1,
    waiting_for="cpu",
    parts=(api.PlacedPart("own-1", "own", 4, 0, False), api.PlacedPart("cloud-1", "cloud", 0, 0, True)),
    inputs=(INPUT,),
    unmodelled=("hostPID",),
    deleting=False,
    stale=True,
    disowning=True,
)
DECISION = DecisionRecorded(
    "default", "web", Generation(7, 2), 12, "apply", 5, 1, (INPUT,), (("spillway.capacity.v1/0", 9),), "{}", "1.0"
)
STATUS = api.ClusterStatus("own-1", "Present", "", 4, 4, 4, 3, 3, 1, "Insufficient cpu")
WORKLOAD = api.WorkloadReply(PLACEMENT, "Deployment", (STATUS,), (DECISION,))
GROUP = NodeGroup("big", (("pool", "big"),), (("cpu", 8000),), (), (Taint("a", "b", "NoSchedule"),), 9, 60, 1.5)
CLUSTER = api.ClusterReply(
    cluster="own-1",
    credential="own-1",
    endpoint="https://a:1",
    tier="own",
    region="r",
    zone="z",
    labels=(("k", "v"),),
    node_groups=(GROUP,),
    state="Ready",
    trouble="",
    age_ms=5,
    nodes=3,
    nodes_ready=2,
    allocatable=(("cpu", 1000),),
    requested=(("cpu", 10),),
    unschedulable_pods=1,
    phase="Draining",
    replicas=7,
    workloads=2,
    nodes_lent=4,
    nodes_virtual=1,
)
MOVES = api.ClusterMovesReply(CLUSTER, 7, "Drain/own-1", "fleet is frozen by ann: audit", True)
BRAKE = api.Brake("fleet", True, "audit", "ann", 12, 7)
CONFIRMATION = api.Confirmation("Drain/own-1", "Drain", "own-1", 7, 20, True, "ann", 12)
JOIN = api.JoinClusterRequest("own-1", "own-1", "https://a:1", "own", "r", "z", (("k", "v"),), (GROUP,))

ROUND_TRIPS: dict[str, tuple[Any, Any]] = {
    "apply": (api.ApplyRequest(("{}", "kind: A"), "key"), PLACEMENT),
    "scale": (api.ScaleRequest("default", "web", 7, "key"), PLACEMENT),
    "delete": (api.DeleteRequest("default", "web", "key"), PLACEMENT),
    "migrate": (api.MigrateRequest("default", "web", "own-2", "own-1", 3, "key"), PLACEMENT),
    "adopt": (api.AdoptRequest("default", "web", "deployment", ("own-1", "own-2"), "{}", "key"), PLACEMENT),
    "disown": (api.DisownRequest("default", "web", "key"), PLACEMENT),
    "recover_fleet": (
        api.RecoverFleetRequest("f0", True),
        api.RecoverFleetReply(
            "f0", (api.RecoveredWorkload("shop", "web", "Found", "", (("own-1", 3),)),), 2, ("own-1: a note",)
        ),
    ),
    "list_orphans": (
        api.ListOrphansRequest("default"),
        api.ListOrphansReply((api.Orphan("own-1", "default", "web", 3, 2, "1.2"),), True),
    ),
    "get": (api.GetRequest("default", "web", 3), WORKLOAD),
    "list": (api.ListRequest("default", 10, "t"), api.ListReply((WORKLOAD,), "next", False)),
    "plan": (api.ApplyRequest(("{}",)), PLACEMENT),
    "plan_batch": (
        api.PlanBatchRequest(
            (
                api.BatchItem(apply=api.ApplyRequest(("{}",), "a")),
                api.BatchItem(scale=api.ScaleRequest("shop", "web", 2, "b")),
            )
        ),
        api.PlanBatchReply(
            (api.BatchAnswer("OK", "", PLACEMENT), api.BatchAnswer("NOT_FOUND", "workload shop/web", None))
        ),
    ),
    "explain": (
        api.ExplainRequest("shop", "web", ("{}",), 3, "1.2", "own-1", "n1"),
        api.ExplainReply(
            namespace="shop",
            name="web",
            decision="1.2",
            at_ms=5,
            cause="Apply",
            replicas=4,
            placed=3,
            unplaced=1,
            verdict="1 waits",
            clusters=(
                api.ExplainedCluster(
                    cluster="own-1",
                    tier="own",
                    node_groups=True,
                    certain=3,
                    possible=4,
                    before=1,
                    after=3,
                    bound="Room",
                    why="cpu",
                    nodes=9,
                    reasons=(api.NodeReason(6, "NodeResourcesFit", "cpu", "cpu", 300, 900, "n1"),),
                    reserved_replicas=5,
                    reserved=(("shop/api", 5),),
                    age_ms=12,
                ),
            ),
            changes=(api.ExplainedChange("Request", "", "cpu", 1000, 700, 3, 4, "cpu 700m"),),
            node=api.ExplainedNode("own-1", "n1", 0, (api.NodeFilter("NodePorts", False, "host port in use"),)),
            unmodelled=("x",),
            notes=("y",),
            stale=True,
        ),
    ),
    "capacity": (api.CapacityRequest(("{}",)), api.CapacityReply((INPUT,), ("x",), True)),
    "join_cluster": (JOIN, CLUSTER),
    "set_cluster_phase": (api.SetClusterPhaseRequest("own-1", "Draining"), MOVES),
    "leave_cluster": (api.LeaveClusterRequest("own-1", True), MOVES),
    "freeze": (api.FreezeRequest("fleet", "audit"), BRAKE),
    "unfreeze": (api.UnfreezeRequest("fleet"), BRAKE),
    "confirm": (api.ConfirmRequest("Drain/own-1"), CONFIRMATION),
    "list_brakes": (api.ListBrakesRequest(), api.ListBrakesReply((BRAKE,), (CONFIRMATION,), 600.0, 3, True, 9)),
    "list_nodes": (
        api.ListNodesRequest("own-1", 1, "n0"),
        api.ListNodesReply(
            (api.ListedNode("n1", True, False, "lent", "own-1/n7", (("cpu", 4),), (("cpu", 2),), ("gpu:NoSchedule",)),),
            "n1",
            1200,
            True,
        ),
    ),
    "list_clusters": (api.ListClustersRequest(), api.ListClustersReply((CLUSTER,), False)),
}

EXPORT = (
    api.ExportReply("f1", 12, "0.1", "a=1", (api.HeldBack("own-1", "shop", "web", None, 500, 15.0),)),
    api.ExportReply(
        events=(api.ExportedEvent("spillway.v1.ClusterLeft", b"x"),),
        counted=True,
        counts=(api.ExportedCount("spillway.v1.ClusterLeft", 1),),
    ),
)

Answer = Callable[[Any], Awaitable[Any]]


class FakePlanner:
    """Answers each verb by a function or with ROUND_TRIPS' reply, and keeps what it was asked."""

    def __init__(self, **answers: Answer) -> None:
        self.answers = answers
        self.asked: list[Any] = []
        self.callers: list[str] = []
        self.leader_address = ""
        self.watched: Callable[[api.WatchRequest], AsyncIterator[api.WatchReply]] = self._watch_nothing

    async def _answer_verb(self, verb: str, request: Any) -> Any:
        self.asked.append(request)
        self.callers.append(CALLER.get().name)
        if verb in self.answers:
            return await self.answers[verb](request)
        return ROUND_TRIPS[verb][1]

    async def apply(self, request: api.ApplyRequest) -> Any:
        return await self._answer_verb("apply", request)

    async def scale(self, request: api.ScaleRequest) -> Any:
        return await self._answer_verb("scale", request)

    async def delete(self, request: api.DeleteRequest) -> Any:
        return await self._answer_verb("delete", request)

    async def migrate(self, request: api.MigrateRequest) -> Any:
        return await self._answer_verb("migrate", request)

    async def adopt(self, request: api.AdoptRequest) -> Any:
        return await self._answer_verb("adopt", request)

    async def disown(self, request: api.DisownRequest) -> Any:
        return await self._answer_verb("disown", request)

    async def recover_fleet(self, request: api.RecoverFleetRequest) -> Any:
        return await self._answer_verb("recover_fleet", request)

    async def list_orphans(self, request: api.ListOrphansRequest) -> Any:
        return await self._answer_verb("list_orphans", request)

    async def list_nodes(self, request: api.ListNodesRequest) -> Any:
        return await self._answer_verb("list_nodes", request)

    async def get(self, request: api.GetRequest) -> Any:
        return await self._answer_verb("get", request)

    async def list(self, request: api.ListRequest) -> Any:
        return await self._answer_verb("list", request)

    async def plan(self, request: api.ApplyRequest) -> Any:
        return await self._answer_verb("plan", request)

    async def plan_batch(self, request: api.PlanBatchRequest) -> Any:
        return await self._answer_verb("plan_batch", request)

    async def explain(self, request: api.ExplainRequest) -> Any:
        return await self._answer_verb("explain", request)

    async def capacity(self, request: api.CapacityRequest) -> Any:
        return await self._answer_verb("capacity", request)

    async def join_cluster(self, request: api.JoinClusterRequest) -> Any:
        return await self._answer_verb("join_cluster", request)

    async def list_clusters(self, request: api.ListClustersRequest) -> Any:
        return await self._answer_verb("list_clusters", request)

    async def set_cluster_phase(self, request: api.SetClusterPhaseRequest) -> Any:
        return await self._answer_verb("set_cluster_phase", request)

    async def leave_cluster(self, request: api.LeaveClusterRequest) -> Any:
        return await self._answer_verb("leave_cluster", request)

    async def freeze(self, request: api.FreezeRequest) -> Any:
        return await self._answer_verb("freeze", request)

    async def unfreeze(self, request: api.UnfreezeRequest) -> Any:
        return await self._answer_verb("unfreeze", request)

    async def confirm(self, request: api.ConfirmRequest) -> Any:
        return await self._answer_verb("confirm", request)

    async def list_brakes(self, request: api.ListBrakesRequest) -> Any:
        return await self._answer_verb("list_brakes", request)

    async def export(self, request: api.ExportRequest) -> AsyncIterator[api.ExportReply]:
        self.asked.append(request)
        for reply in EXPORT:
            yield reply

    def watch(self, request: api.WatchRequest) -> AsyncIterator[api.WatchReply]:
        self.asked.append(request)
        return self.watched(request)

    async def _watch_nothing(self, _: api.WatchRequest) -> AsyncIterator[api.WatchReply]:
        await asyncio.Event().wait()
        yield  # type: ignore[misc]

    def active_instance_address(self) -> str:
        return self.leader_address


def local_settings(**settings: Any) -> RpcSettings:
    return RpcSettings(**{"port": 0, "stop_seconds": 1.0, **settings})


@asynccontextmanager
async def serve_planner(planner: FakePlanner, **settings: Any) -> AsyncIterator[tuple[RpcServer, PlannerClient]]:
    async with (
        RpcServer(planner, local_settings(**settings)) as server,
        PlannerClient([server.address], timeout_seconds=5, retry_seconds=1) as client,
    ):
        yield server, client


async def test_a_call_that_means_another_fleet_is_refused_by_the_server_before_it_is_done() -> None:
    """By its metadata: a client that has not heard of the server yet cannot know whom it asks."""
    planner = FakePlanner()
    async with (
        RpcServer(planner, local_settings(), fleet="local-a") as server,
        aio.insecure_channel(server.address) as channel,
    ):
        call = PLANNER.calls["scale"]
        request = request_bytes(api.ScaleRequest("shop", "web", 3), call.request_message())
        with pytest.raises(aio.AioRpcError) as refused:
            await channel.unary_unary(call.path)(request, timeout=5, metadata=((FLEET_KEY, "local-b"),))
        assert refused.value.code().name == "FAILED_PRECONDITION"
        assert refused.value.details() == "this planner is of fleet local-a, and local-b was meant: nothing was done"
        assert planner.asked == []
        for metadata in ((FLEET_KEY, "local-a"),), ():
            answer = channel.unary_unary(call.path)(request, timeout=5, metadata=metadata)
            await answer
            assert fleet_in_metadata(await answer.trailing_metadata()) == "local-a"


async def test_strangers_are_not_told_the_fleet(callers: str) -> None:
    async with (
        RpcServer(FakePlanner(), local_settings(callers=callers), fleet="local-a") as server,
        aio.insecure_channel(server.address) as channel,
    ):
        with pytest.raises(aio.AioRpcError) as refused:
            await channel.unary_unary(PLANNER.calls["list"].path)(b"", timeout=5, metadata=((FLEET_KEY, "local-b"),))
        assert refused.value.code().name == "UNAUTHENTICATED"
        assert fleet_in_metadata(refused.value.trailing_metadata()) == ""


async def refusal_of_call(call: Awaitable[Any]) -> tuple[str, str]:
    with pytest.raises(RequestError) as caught:
        await asyncio.wait_for(call, 10)
    return caught.value.code, caught.value.text


def answer_with(reply: Any) -> Answer:
    async def answer(_: Any) -> Any:
        return reply

    return answer


def answer_by_raising(error: Exception) -> Answer:
    async def answer(_: Any) -> Any:
        raise error

    return answer


# ── Round trips and errors ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("verb", [verb for verb in PLANNER.calls if verb not in ("watch", "export")])
async def test_every_method_round_trips(verb: str) -> None:
    request, reply = ROUND_TRIPS[verb]
    planner = FakePlanner()
    async with serve_planner(planner) as (_, client):
        assert await getattr(client, verb)(request) == reply
    assert planner.asked == [request]


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        pytest.param(
            api.invalid_argument_error("replicas", -1, "0 or more"),
            "INVALID_ARGUMENT",
            "replicas: -1: expected",
            id="bad",
        ),
        pytest.param(RequestError("NOT_FOUND", "default/web"), "NOT_FOUND", "default/web", id="absent"),
        pytest.param(RequestError("FAILED_PRECONDITION", "why"), "FAILED_PRECONDITION", "why", id="state"),
        pytest.param(BusUnavailable("no broker"), "UNAVAILABLE", "no broker", id="no log"),
        pytest.param(OutcomeUnknown("commit"), "UNAVAILABLE", "commit", id="unknown outcome"),
    ],
)
async def test_errors_become_statuses(error: Exception, code: str, words: str) -> None:
    async with serve_planner(FakePlanner(scale=answer_by_raising(error))) as (_, client):
        actual, text = await refusal_of_call(client.scale(api.ScaleRequest("a", "b", 1)))
    assert actual == code
    assert words in text


async def test_what_a_planner_says_of_the_log_is_told_before_that_another_is_not_reached() -> None:
    async with serve_planner(FakePlanner(scale=answer_by_raising(BusUnavailable("no broker")))) as (server, _):
        client = PlannerClient([server.address, closed_endpoint()], retry_seconds=0.2)
        with pytest.raises(RequestError) as caught:
            async with client:
                await client.scale(api.ScaleRequest("a", "b", 1))
    found = caught.value
    assert (found.code, found.reason) == ("UNAVAILABLE", "LOG_UNAVAILABLE")
    assert found.text == f"{server.address}: the log cannot be written now: no broker"


@pytest.mark.parametrize("bug", [AssertionError("wrong"), KeyError("x"), TimeoutError("its own")])
async def test_a_bug_answers_internal_and_costs_no_other_call(bug: Exception) -> None:
    async with serve_planner(FakePlanner(get=answer_by_raising(bug))) as (_, client):
        for _ in range(2):
            code, text = await refusal_of_call(client.get(api.GetRequest("a", "b")))
            assert (code, type(bug).__name__ in text) == ("INTERNAL", True)
        assert await client.list_clusters(api.ListClustersRequest())


async def test_the_servers_deadline_bounds_a_call_and_the_callers_may_be_shorter() -> None:
    async def sleep(_: Any) -> Any:
        await asyncio.sleep(60)

    async with serve_planner(FakePlanner(get=sleep), deadline_seconds_max=0.2) as (_, client):
        code, text = await refusal_of_call(client.get(api.GetRequest("a", "b")))
        assert (code, "0.2 s" in text) == ("DEADLINE_EXCEEDED", True)
        code, text = await refusal_of_call(client.get(api.GetRequest("a", "b"), 0.1))
        assert (code, "Deadline Exceeded" in text) == ("DEADLINE_EXCEEDED", False)


async def test_a_call_whose_time_is_over_says_what_an_earlier_try_was_told() -> None:
    """It was gRPC's "Stream removed (Deadline Exceeded)" alone."""
    told: list[str] = []

    async def refuse_once_then_hang(_: Any) -> Any:
        if not told:
            told.append("own-1 says nothing")
            raise RequestError("UNAVAILABLE", told[0])
        await asyncio.sleep(60)

    async with serve_planner(FakePlanner(apply=refuse_once_then_hang)) as (_, client):
        code, text = await refusal_of_call(client.apply(api.ApplyRequest(("{}",)), 0.5))
    assert code == "DEADLINE_EXCEEDED"
    assert re.fullmatch(r".* within 0.\d s; before that \S+: own-1 says nothing", text)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (api.PlanBatchRequest((api.BatchItem(),) * 12), "items"),
        (api.PlanBatchRequest((api.BatchItem(api.ApplyRequest(("", "", ""))),) * 6), "items.apply.manifests"),
        (
            api.JoinClusterRequest("a", "a", node_groups=(replace(GROUP, taints=GROUP.taints * 12),)),
            "node_groups.taints",
        ),
        (api.CapacityRequest(("",) * 12), "manifests"),
    ],
)
async def test_more_entries_than_a_request_may_have_are_told_before_they_are_read(request_: Any, field: str) -> None:
    verb = {api.PlanBatchRequest: "plan_batch", api.JoinClusterRequest: "join_cluster"}.get(type(request_), "capacity")
    planner = FakePlanner()
    async with serve_planner(planner, request_entries_max=11) as (_, client):
        code, words = await refusal_of_call(getattr(client, verb)(request_))
    assert (code, words.split(":")[0]) == ("INVALID_ARGUMENT", field)
    assert "entries: expected at most 11 in all lists together" in words
    assert planner.asked == []


@pytest.mark.parametrize(
    ("call", "field"),
    [
        pytest.param(call, field, id=f"{call.verb} {field.name}")
        for service in (PLANNER, SCALING, LENDING)
        for call in service.calls.values()
        for field in call.request_message.DESCRIPTOR.fields
        if field.is_repeated
    ],
)
def test_every_list_of_every_request_is_counted(call: Call, field: Any) -> None:
    entries = bytes([field.number << 3 | 2, 0]) * 11
    with pytest.raises(TooManyEntries, match=f"{field.name}: 11 entries: expected at most 10"):
        call.read_request(entries, 10)
    assert len(getattr(call.read_request(entries[:-2], 10), field.name)) == 10


async def test_too_large_a_request_is_told_the_bound() -> None:
    request = api.ApplyRequest(("x" * 5_000_000,))
    async with serve_planner(FakePlanner()) as (_, client):
        code, text = await refusal_of_call(client.apply(request))
    assert code == "INVALID_ARGUMENT"
    assert "bytes: expected at most 4194304" in text


async def test_a_request_that_no_server_accepts_is_not_sent() -> None:
    async with serve_planner(FakePlanner()) as (_, client):
        code, text = await refusal_of_call(client.apply(api.ApplyRequest(("x" * (REQUEST_BYTES_MOST + 1),))))
    assert code == "INVALID_ARGUMENT"
    assert f"expected at most {REQUEST_BYTES_MOST}" in text


async def test_bytes_that_are_no_request_are_refused() -> None:
    async with serve_planner(FakePlanner()) as (server, _), aio.insecure_channel(server.address) as channel:
        with pytest.raises(aio.AioRpcError) as caught:
            await channel.unary_unary("/spillway.v1.Planner/Get")(b"\xff\xff\xff")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_more_calls_than_the_bound_are_refused() -> None:
    release = asyncio.Event()

    async def wait(_: Any) -> Any:
        await release.wait()
        return WORKLOAD

    async with serve_planner(FakePlanner(get=wait), concurrent_requests_max=2, watches_max=1) as (_, client):
        calls = [asyncio.ensure_future(client.get(api.GetRequest("a", "b"))) for _ in range(3)]
        done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        assert (await refusal_of_call(done.pop()))[0] == "RESOURCE_EXHAUSTED"
        release.set()
        first = asyncio.ensure_future(anext(client.watch(api.WatchRequest())))
        await asyncio.sleep(0.1)
        assert (await refusal_of_call(anext(client.watch(api.WatchRequest()))))[0] == "RESOURCE_EXHAUSTED"
        first.cancel()


# ── Security ────────────────────────────────────────────────────────────────────────────────────────────────────────


def token_hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


@pytest.fixture
def callers(tmp_path: Path) -> str:
    file = tmp_path / "callers.toml"
    slowly = 'verbs = ["get", "apply"], requests_per_second = 0.001, request_bytes_max = 100'
    file.write_text(
        f"""
        callers = [
          {{ name = "root", token_sha256 = "{token_hash("r")}", verbs = ["*"] }},
          {{ name = "team", token_sha256 = "{token_hash("t")}", verbs = ["apply", "get", "list"], namespaces = ["a"] }},
          {{ name = "shop", token_sha256 = "{token_hash("p")}", verbs = ["*"], namespaces = ["a"] }},
          {{ name = "batch", token_sha256 = "{token_hash("b")}", verbs = ["plan_batch", "apply"] }},
          {{ name = "slow", token_sha256 = "{token_hash("s")}", {slowly} }},
        ]"""
    )
    return str(file)


def manifest(namespace: str | None) -> str:
    metadata = {"name": "web"} | ({"namespace": namespace} if namespace is not None else {})
    return json.dumps({"kind": "Deployment", "metadata": metadata})


def batch_in_namespace(namespace: str) -> api.PlanBatchRequest:
    items = (
        api.BatchItem(apply=api.ApplyRequest((manifest("a"),))),
        api.BatchItem(scale=api.ScaleRequest(namespace, "web", 1)),
    )
    return api.PlanBatchRequest(items)


AUTH_TABLE = [
    pytest.param("", "get", api.GetRequest("a", "b"), "UNAUTHENTICATED", ["Bearer"], id="no token"),
    pytest.param("x", "get", api.GetRequest("a", "b"), "UNAUTHENTICATED", ["no caller"], id="unknown token"),
    pytest.param("r", "join_cluster", JOIN, "", [], id="everything"),
    pytest.param("p", "list_clusters", api.ListClustersRequest(), "", [], id="clusters are listed to all"),
    pytest.param("t", "get", api.GetRequest("a", "b"), "", [], id="own namespace"),
    pytest.param("t", "get", api.GetRequest("z", "b"), "PERMISSION_DENIED", ["get", "'z'", "team"], id="other's"),
    pytest.param("t", "list", api.ListRequest(), "PERMISSION_DENIED", ["list", "all namespaces"], id="all of them"),
    pytest.param("t", "scale", api.ScaleRequest("a", "b", 1), "PERMISSION_DENIED", ["scale", "apply, get"], id="verb"),
    pytest.param("t", "apply", api.ApplyRequest((manifest("a"),)), "", [], id="manifest"),
    pytest.param(
        "t", "apply", api.ApplyRequest((manifest("a"), manifest("z"))), "PERMISSION_DENIED", ["apply", "'z'"], id="2nd"
    ),
    pytest.param(
        "t", "apply", api.ApplyRequest((manifest(None),)), "PERMISSION_DENIED", ["'default'"], id="no namespace"
    ),
    pytest.param(
        "t",
        "apply",
        api.ApplyRequest(("kind: Deployment\nmetadata: {namespace: z}",)),
        "PERMISSION_DENIED",
        ["'z'"],
        id="YAML",
    ),
    pytest.param(
        "t",
        "apply",
        api.ApplyRequest(('{"metadata": {"namespace": "z"}, "metadata": {"namespace": "a"}}',)),
        "INVALID_ARGUMENT",
        ["twice"],
        id="read two ways",
    ),
    *(
        pytest.param("t", "apply", api.ApplyRequest((manifest("a"), other)), "", [], id=f"with its workload {number}")
        for number, other in enumerate(
            (
                '{"kind": "PlacementPolicy", "spec": {"ownFirst": true}}',
                "kind: PropagationPolicy\nmetadata: {name: p}",
                "kind: ConfigMap\nmetadata: {name: c, namespace: ''}",
                "kind: Service\nmetadata: {name: s, namespace: a}",
            )
        )
    ),
    pytest.param(
        "t",
        "apply",
        api.ApplyRequest((manifest("a"), "kind: PlacementPolicy\nmetadata: {namespace: z}")),
        "PERMISSION_DENIED",
        ["'z'"],
        id="a policy elsewhere",
    ),
    pytest.param(
        "t",
        "apply",
        api.ApplyRequest((manifest(None), "kind: PlacementPolicy\nmetadata: {namespace: a}")),
        "PERMISSION_DENIED",
        ["'default'"],
        id="a policy lends its workload no namespace",
    ),
    pytest.param("t", "apply", api.ApplyRequest(("[",)), "INVALID_ARGUMENT", ["manifests[0]"], id="not YAML"),
    pytest.param("p", "freeze", api.FreezeRequest("workload/a/web", ""), "", [], id="own workload frozen"),
    pytest.param("p", "unfreeze", api.UnfreezeRequest("workload/a/web"), "", [], id="own workload unfrozen"),
    *(
        pytest.param("p", verb, request, "PERMISSION_DENIED", [verb, where], id=f"{verb} {where}")
        for verb, request, where in (
            ("freeze", api.FreezeRequest("workload/z/web", ""), "'z'"),
            ("unfreeze", api.UnfreezeRequest("workload/z/web"), "'z'"),
            ("freeze", api.FreezeRequest("fleet", ""), "all namespaces"),
            ("freeze", api.FreezeRequest("cluster/own-1", ""), "all namespaces"),
            ("unfreeze", api.UnfreezeRequest("fleet"), "all namespaces"),
            ("migrate", api.MigrateRequest("z", "web", "own-1"), "'z'"),
            ("confirm", api.ConfirmRequest("Drain/own-1"), "all namespaces"),
            ("set_cluster_phase", api.SetClusterPhaseRequest("own-1", "Draining"), "all namespaces"),
            ("leave_cluster", api.LeaveClusterRequest("own-1"), "all namespaces"),
            ("join_cluster", JOIN, "all namespaces"),
            ("list_brakes", api.ListBrakesRequest(), "all namespaces"),
            ("explain", api.ExplainRequest("z", "web"), "'z'"),
        )
    ),
    pytest.param("p", "plan_batch", batch_in_namespace("a"), "", [], id="a batch"),
    pytest.param(
        "p", "plan_batch", batch_in_namespace("z"), "PERMISSION_DENIED", ["scale", "'z'"], id="a batch elsewhere"
    ),
    pytest.param(
        "b", "plan_batch", batch_in_namespace("a"), "PERMISSION_DENIED", ["scale"], id="a batch with another verb"
    ),
    pytest.param("p", "freeze", api.FreezeRequest("workload/a", ""), "INVALID_ARGUMENT", ["scope"], id="no scope"),
    pytest.param("s", "apply", api.ApplyRequest(("x" * 200,)), "INVALID_ARGUMENT", ["at most 100"], id="size"),
]


@pytest.mark.parametrize(("token", "verb", "request_", "code", "words"), AUTH_TABLE)
async def test_callers_do_what_they_may(
    callers: str, token: str, verb: str, request_: Any, code: str, words: list[str]
) -> None:
    planner = FakePlanner()
    async with (
        RpcServer(planner, local_settings(callers=callers)) as server,
        PlannerClient([server.address], token=token, retry_seconds=0.2) as client,
    ):
        if not code:
            await getattr(client, verb)(request_)
            assert planner.callers == [{"r": "root", "t": "team", "p": "shop"}[token]]
            return
        actual, text = await refusal_of_call(getattr(client, verb)(request_))
    assert actual == code
    assert [word for word in words if word not in text] == []
    assert planner.asked == []


ABOUT_ONE_NAMESPACE = ("namespace", "manifests", "items")
ABOUT_THE_FLEET = sorted(
    verb for verb in ROUND_TRIPS if not any(hasattr(ROUND_TRIPS[verb][0], field) for field in ABOUT_ONE_NAMESPACE)
)


def test_what_is_about_the_fleet_needs_all_namespaces() -> None:
    """Of the verbs whose request names neither a namespace nor a manifest, only a list of clusters is for everybody."""
    confined = Caller("shop", namespaces=frozenset({"shop", "shop-*"}))
    check_namespaces(confined, "list_clusters", api.ListClustersRequest())
    for verb in ABOUT_THE_FLEET:
        check_namespaces(Caller("root"), verb, ROUND_TRIPS[verb][0])
        if verb != "list_clusters":
            with pytest.raises(RequestError, match=f"may not {verb} in all namespaces"):
                check_namespaces(confined, verb, ROUND_TRIPS[verb][0])


async def test_each_caller_has_its_own_rate(callers: str) -> None:
    async with RpcServer(FakePlanner(), local_settings(callers=callers, requests_burst=3)) as server:
        async with PlannerClient([server.address], token="s") as client:
            for _ in range(3):
                await client.get(api.GetRequest("a", "b"))
            code, text = await refusal_of_call(client.get(api.GetRequest("a", "b")))
            assert (code, "slow" in text) == ("RESOURCE_EXHAUSTED", True)
        async with PlannerClient([server.address], token="r") as client:
            await client.get(api.GetRequest("a", "b"))


async def test_what_a_request_counts_for_while_it_is_answered_is_of_its_callers_rate(callers: str) -> None:
    """A Scale of a large workload is a short request, and costs the log and its readers a large one."""

    async def answer_large(_: Any) -> Any:
        count_further_calls(9)
        return ROUND_TRIPS["get"][1]

    planner = FakePlanner(get=answer_large)
    async with RpcServer(planner, local_settings(callers=callers, requests_burst=10)) as server:
        async with PlannerClient([server.address], token="s") as client:
            await client.get(api.GetRequest("a", "b"))
            code, text = await refusal_of_call(client.get(api.GetRequest("a", "b")))
            assert (code, "slow" in text) == ("RESOURCE_EXHAUSTED", True)
        async with PlannerClient([server.address], token="r") as client:
            await client.get(api.GetRequest("a", "b"))


def test_a_bucket_fills_again_as_time_passes() -> None:
    clock = [0.0]
    gate = Gate(RpcSettings(requests_burst=1, requests_per_second=2.0), lambda: clock[0])
    caller = gate.identify_caller("", ())
    gate.admit_call(caller, "get")
    with pytest.raises(RequestError):
        gate.admit_call(caller, "get")
    clock[0] = 0.5
    gate.admit_call(caller, "get")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param({"host": "0.0.0.0"}, ["TLS", "callers"], id="nothing"),
        pytest.param({"host": "::", "callers": "f"}, ["TLS"], id="no TLS"),
        pytest.param({"host": "10.0.0.1", "tls_certificate": "c", "tls_key": "k"}, ["callers"], id="no callers"),
        pytest.param({"host": "planner.example", "callers": "f"}, ["TLS"], id="a name"),
        pytest.param({"tls_certificate": "c"}, ["both or neither"], id="no key"),
        pytest.param({"client_ca": "c"}, ["tls_certificate"], id="client CA without TLS"),
    ],
)
async def test_an_unsafe_bind_does_not_start(settings: dict[str, str], words: list[str]) -> None:
    with pytest.raises(UnsafeBind) as caught:
        RpcServer(FakePlanner(), local_settings(**settings))
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("callers = [", "callers", id="not TOML"),
        pytest.param('callers = [{name="a", token_sha256="short"}]', "token_sha256", id="not a hash"),
        pytest.param('callers = [{name="a", verbs=["fly"]}]', "fly", id="no such verb"),
        pytest.param('callers = [{name="a", token="x"}]', "token", id="unknown field"),
        pytest.param('callers = [{name="a", verbs=["get"]}, {name="a", verbs=[]}]', "same name", id="twice"),
    ],
)
def test_a_bad_callers_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "callers.toml"
    file.write_text(text)
    with pytest.raises(OperatorError, match=words):
        Gate(RpcSettings(callers=str(file)), lambda: 0.0)
    with pytest.raises(OperatorError, match="nowhere"):
        Gate(RpcSettings(callers="/nowhere"), lambda: 0.0)


async def test_a_taken_port_is_said() -> None:
    async with RpcServer(FakePlanner(), local_settings()) as server:
        port = int(server.address.rpartition(":")[2])
        with pytest.raises(OperatorError, match="cannot listen"):
            async with RpcServer(FakePlanner(), local_settings(port=port)):
                pass


def test_loopback_addresses() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.3.2.1", "::1", "[::1]", "localhost")))
    assert not any(map(is_loopback, ("", "0.0.0.0", "::", "10.0.0.1", "localhost.example")))


def test_a_token_is_not_sent_in_clear() -> None:
    with pytest.raises(OperatorError, match="without TLS"):
        PlannerClient(["planner.example:7400"], token="t")


def _write_certificate(folder: Path, name: str, issuer: tuple[Any, Any] | None = None) -> tuple[Any, Any]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
    )
    certificate = builder.sign(issuer[1] if issuer else key, hashes.SHA256())
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate, key


async def test_tls_with_client_certificates_names_the_caller(tmp_path: Path) -> None:
    authority = _write_certificate(tmp_path, "authority")
    for name in ("server", "alice"):
        _write_certificate(tmp_path, name, authority)
    callers = tmp_path / "callers.json"
    callers.write_text(json.dumps({"callers": [{"name": "alice", "verbs": ["get"]}]}))
    ca = str(tmp_path / "authority.pem")
    settings = local_settings(
        host="0.0.0.0",
        tls_certificate=str(tmp_path / "server.pem"),
        tls_key=str(tmp_path / "server.key"),
        client_ca=ca,
        callers=str(callers),
    )
    planner = FakePlanner()
    async with RpcServer(planner, settings) as server:
        endpoint = "localhost:" + server.address.rpartition(":")[2]
        identity = (str(tmp_path / "alice.pem"), str(tmp_path / "alice.key"))
        async with PlannerClient([endpoint], ca=ca, identity=identity, retry_seconds=0.2) as client:
            assert await client.get(api.GetRequest("a", "b")) == WORKLOAD
            assert (await refusal_of_call(client.scale(api.ScaleRequest("a", "b", 1))))[0] == "PERMISSION_DENIED"
        assert planner.callers == ["alice"]
        async with PlannerClient([endpoint], ca=ca, retry_seconds=0.2) as client:
            assert (await refusal_of_call(client.get(api.GetRequest("a", "b"))))[0] == "UNAVAILABLE"


# ── Health and reflection ───────────────────────────────────────────────────────────────────────────────────────────


async def test_health_follows_set_serving_and_needs_no_token(callers: str) -> None:
    async with (
        RpcServer(FakePlanner(), local_settings(callers=callers)) as server,
        aio.insecure_channel(server.address) as channel,
    ):
        stub = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service="spillway.v1.Planner")
        assert (await stub.Check(request)).status == health_pb2.HealthCheckResponse.NOT_SERVING
        await server.set_serving(True)
        assert (await stub.Check(request)).status == health_pb2.HealthCheckResponse.SERVING


async def _reflected_services(address: str, token: str = "") -> list[str]:
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    async with aio.insecure_channel(address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        requests = [reflection_pb2.ServerReflectionRequest(list_services="")]
        async for reply in stub.ServerReflectionInfo(iter(requests), metadata=metadata):
            return [service.name for service in reply.list_services_response.service]
    return []


async def test_reflection_lists_the_services_to_known_callers(callers: str) -> None:
    async with RpcServer(FakePlanner(), local_settings()) as server:
        assert "spillway.v1.Planner" in await _reflected_services(server.address)
    async with RpcServer(FakePlanner(), local_settings(callers=callers)) as server:
        assert "spillway.v1.Planner" in await _reflected_services(server.address, "t")
        with pytest.raises(aio.AioRpcError) as caught:
            await _reflected_services(server.address)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


# ── Retries ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def closed_endpoint() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


async def test_a_second_endpoint_is_tried() -> None:
    async with (
        RpcServer(FakePlanner(), local_settings()) as server,
        PlannerClient([closed_endpoint(), server.address]) as client,
    ):
        assert await client.get(api.GetRequest("a", "b")) == WORKLOAD


async def test_one_that_accepts_connections_and_says_nothing_is_left_for_the_next() -> None:
    """As one that is stopped does (SIGSTOP): of a call's time it costs connect_seconds, whatever is asked."""
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        endpoint = f"127.0.0.1:{frozen.getsockname()[1]}"
        async with RpcServer(FakePlanner(), local_settings()) as server:
            client = PlannerClient([endpoint, server.address], timeout_seconds=10)
            client.patience = ClientTimeouts(connect_seconds=0.2)
            async with client:
                assert await client.scale(api.ScaleRequest("a", "b", 1)) == PLACEMENT


async def test_one_that_froze_after_it_was_connected_is_left_for_the_next_by_what_changes_nothing() -> None:
    freezes = asyncio.Event()

    async def answer(_: Any) -> Any:
        if freezes.is_set():
            await asyncio.Event().wait()
        return WORKLOAD

    frozen, other = FakePlanner(get=answer), FakePlanner()
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(RpcServer(planner, local_settings())) for planner in (frozen, other)]
        client = PlannerClient([one.address for one in servers], timeout_seconds=10)
        client.patience = ClientTimeouts(read_seconds=0.2)
        await stack.enter_async_context(client)
        await client.get(api.GetRequest("a", "b"))
        freezes.set()
        assert await client.get(api.GetRequest("a", "b")) == WORKLOAD
    assert len(other.asked) == 1


async def test_what_takes_every_planner_longer_is_waited_for_in_the_second_round() -> None:
    async def slow(_: Any) -> Any:
        await asyncio.sleep(0.5)
        return WORKLOAD

    async with AsyncExitStack() as stack:
        planners = [FakePlanner(get=slow), FakePlanner(get=slow)]
        servers = [await stack.enter_async_context(RpcServer(planner, local_settings())) for planner in planners]
        client = PlannerClient([one.address for one in servers], timeout_seconds=10)
        client.patience = ClientTimeouts(read_seconds=0.1)
        await stack.enter_async_context(client)
        assert await client.get(api.GetRequest("a", "b")) == WORKLOAD


async def test_nobody_there_is_unavailable_within_the_retry_time() -> None:
    async with PlannerClient([closed_endpoint(), closed_endpoint()], retry_seconds=0.3) as client:
        code, text = await asyncio.wait_for(refusal_of_call(client.get(api.GetRequest("a", "b"))), 3)
    assert code == "UNAVAILABLE"
    assert "127.0.0.1:" in text


async def test_an_export_comes_in_parts() -> None:
    async with serve_planner(FakePlanner()) as (_, client):
        assert tuple([reply async for reply in client.export(api.ExportRequest())]) == EXPORT


@pytest.mark.parametrize(
    ("number", "refused"),
    [(2**63 - 1, ""), (2**63, "replicas: 9223372036854775808: expected a number within 64 bits"), (-(2**63), "")],
)
def test_a_number_that_its_field_has_no_room_for_is_named(number: int, refused: str) -> None:
    call = PLANNER.calls["scale"]
    with pytest.raises(RequestError, match=refused) if refused else nullcontext():
        request_bytes(api.ScaleRequest("", "web", number), call.request_message())


async def test_a_retry_has_the_same_idempotency_key() -> None:
    fails = [BusUnavailable("1"), OutcomeUnknown("2")]

    async def answer(_: Any) -> Any:
        if fails:
            raise fails.pop()
        return PLACEMENT

    planner = FakePlanner(apply=answer)
    async with serve_planner(planner) as (_, client):
        await client.apply(api.ApplyRequest(("{}",)))
        await client.apply(api.ApplyRequest(("{}",)))
    keys = [request.idempotency_key for request in planner.asked]
    assert len(keys) == 4
    assert len(set(keys[:3])) == 1
    assert keys[0]
    assert keys[3] != keys[0]


async def test_the_leader_trailer_is_followed_and_remembered() -> None:
    standby, leader = FakePlanner(scale=answer_by_raising(RequestError("UNAVAILABLE", "not the leader"))), FakePlanner()
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(RpcServer(planner, local_settings())) for planner in (standby, leader)
        ]
        standby.leader_address = leader.leader_address = servers[1].address
        client = await stack.enter_async_context(PlannerClient([servers[0].address]))
        await client.scale(api.ScaleRequest("a", "b", 1))
        await client.scale(api.ScaleRequest("a", "b", 2))
        assert client.active_instance_address() == servers[1].address
    assert (len(standby.asked), len(leader.asked)) == (1, 2)


async def test_what_a_standby_answers_is_asked_of_the_leader_that_it_names() -> None:
    """An apply that was acknowledged is in the list that is asked for next, whichever planner stands first."""
    answered = api.ListReply((WORKLOAD,), "", stale=False)
    standby = FakePlanner(list=answer_with(api.ListReply((), "", stale=True)))
    leader = FakePlanner(list=answer_with(answered))
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(RpcServer(planner, local_settings())) for planner in (standby, leader)
        ]
        standby.leader_address = leader.leader_address = servers[1].address
        client = await stack.enter_async_context(PlannerClient([servers[0].address]))
        assert await client.list(api.ListRequest()) == answered
    assert (len(standby.asked), len(leader.asked)) == (1, 1)


async def test_a_leader_that_died_is_left_for_the_other_endpoint() -> None:
    standby = FakePlanner()
    standby.leader_address = closed_endpoint()
    async with RpcServer(standby, local_settings()) as server, PlannerClient([server.address]) as client:
        for _ in range(3):
            await client.get(api.GetRequest("a", "b"))
    assert len(standby.asked) == 3


# ── Watch ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def watch_numbered_changes(first: int, last: int) -> Callable[[api.WatchRequest], AsyncIterator[api.WatchReply]]:
    async def watched(request: api.WatchRequest) -> AsyncIterator[api.WatchReply]:
        for position in range(max(first, int(request.position or 0) + 1), last + 1):
            yield api.WatchReply(str(position), "a", "b", position % 2 == 0, WORKLOAD if position % 2 else None)
        await asyncio.Event().wait()

    return watched


async def test_a_watch_goes_on_at_another_planner_from_where_it_was() -> None:
    first, second = FakePlanner(), FakePlanner()
    first.watched, second.watched = watch_numbered_changes(1, 3), watch_numbered_changes(1, 5)
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(RpcServer(second, local_settings()))
        async with AsyncExitStack() as dies:
            server = await dies.enter_async_context(RpcServer(first, local_settings()))
            client = await stack.enter_async_context(PlannerClient([server.address, other.address]))
            replies = client.watch(api.WatchRequest("a"))
            seen = [await anext(replies) for _ in range(3)]
        seen += [await asyncio.wait_for(anext(replies), 10) for _ in range(2)]
        await replies.aclose()  # type: ignore[attr-defined]
    assert [reply.position for reply in seen] == ["1", "2", "3", "4", "5"]
    assert seen[0].workload == WORKLOAD
    assert seen[1].workload is None
    assert second.asked == [api.WatchRequest("a", position="3")]


@dataclass(frozen=True, slots=True)
class ReplyWithItsBytes(api.WatchReply, PackedReply):
    packed: bytes


async def test_a_reply_that_brings_its_bytes_is_sent_as_these() -> None:
    """The bytes are of another reply here, so that it is seen which ones were sent."""
    sent, planner = api.WatchReply("1", "a", "b", False, WORKLOAD), FakePlanner()

    async def watched(_: api.WatchRequest) -> AsyncIterator[api.WatchReply]:
        yield ReplyWithItsBytes("", "", "", True, None, message_bytes(sent, PLANNER.calls["watch"].reply_message()))
        await asyncio.Event().wait()

    planner.watched = watched
    async with RpcServer(planner, local_settings()) as server, PlannerClient([server.address]) as client:
        replies = client.watch(api.WatchRequest("a"))
        assert await asyncio.wait_for(anext(replies), 10) == sent
        await replies.aclose()  # type: ignore[attr-defined]


async def test_a_stopping_server_does_not_wait_for_watches() -> None:
    planner, asked, loop = FakePlanner(), asyncio.Event(), asyncio.get_running_loop()

    async def quiet(_: api.WatchRequest) -> AsyncIterator[api.WatchReply]:
        asked.set()
        await asyncio.Event().wait()
        yield  # type: ignore[misc]

    planner.watched = quiet
    async with AsyncExitStack() as stack:
        async with RpcServer(planner, local_settings(stop_seconds=30.0)) as server:
            client = await stack.enter_async_context(PlannerClient([server.address], retry_seconds=0.2))
            waiting = asyncio.ensure_future(refusal_of_call(anext(client.watch(api.WatchRequest()))))
            await asked.wait()
            started = loop.time()
        assert loop.time() - started < 5
        assert (await waiting)[0] == "UNAVAILABLE"


async def test_a_refused_watch_says_why() -> None:
    planner = FakePlanner()

    async def refused(_: api.WatchRequest) -> AsyncIterator[api.WatchReply]:
        raise RequestError("OUT_OF_RANGE", "position: too old")
        yield

    planner.watched = refused
    async with serve_planner(planner) as (_, client):
        assert await refusal_of_call(anext(client.watch(api.WatchRequest()))) == ("OUT_OF_RANGE", "position: too old")
