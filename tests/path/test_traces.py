"""Every decision path is one trace, across gRPC and the log: all spans of all services of one process, by parents."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import looptime  # noqa: F401 - the plugin gives the paths without gRPC their virtual time
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from spillway import tracing
from spillway.addresses import (
    LENDING,
    LOAD,
    PENDING,
    PLACEMENTS,
    RECALLS,
    SCALE,
    SHAPES,
    SHAPES_ASKED,
    WORKLOAD_STATUS,
)
from spillway.api import ApplyRequest
from spillway.api_lending import DeclareLendingRequest
from spillway.api_scaling import DeclarePolicyRequest, ReportRequest
from spillway.events_lending import LendingRule
from spillway.kubernetes.objects import DEPLOYMENTS, NAMESPACES
from spillway.rpc.calls import SCALING
from spillway.rpc.client import PlannerClient, ScalingClient
from spillway.rpc.security import RpcSettings
from spillway.rpc.server import RpcServer
from spillway_local.fleet_plan import GIB, MemberPlan, deployment
from spillway_local.in_process import SERVICES, InProcess, in_process_platform
from spillway_local.member_nodes import MemberNodes

from .platform_steps import NAMESPACE, join_members, wait_until
from .test_autoscaling import REQUESTS, make_autoscaler, requests_observed
from .test_lent_nodes import deployment_of_2_cores

FLEET = (MemberPlan("own-1", "own", (MemberNodes(2, "n", 4_000, 16 * GIB),), room=16),)
Names = tuple[str, ...]


class Spans:
    """What ended so far. A path is the names of a span and of its parents, the first of its trace in front."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def ended_spans(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def paths_of_spans(self, trace_id: int | None = None) -> list[Names]:
        by_id = {one.context.span_id: one for one in self.ended_spans() if one.context is not None}
        return [self._path_of_span(one, by_id) for one in by_id.values() if trace_id in (None, _trace_of(one))]

    def first_span_with_path(self, path: Names) -> ReadableSpan:
        """The first with that path."""
        by_id = {one.context.span_id: one for one in self.ended_spans() if one.context is not None}
        return next(one for one in by_id.values() if self._path_of_span(one, by_id) == path)

    def _path_of_span(self, one: ReadableSpan, by_id: dict[int, ReadableSpan]) -> Names:
        if one.parent is None:
            return (one.name,)
        return (
            (*self._path_of_span(by_id[one.parent.span_id], by_id), one.name) if one.parent.span_id in by_id else ("?",)
        )


def _trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.trace_id


@pytest.fixture
def spans() -> Iterator[Spans]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.use_provider(provider)
    yield Spans(exporter)
    tracing.shutdown()


APPLY, REPORT = "spillway.v1.Planner/Apply", "spillway.v1.Scaling/Report"


def process_span_name(topic: Any) -> str:
    return f"process {topic.name}"


def send_span_name(topic: Any) -> str:
    return f"send {topic.name}"


async def wait_for_trace(spans: Spans, path: Names) -> int:
    """Waits until a path was taken to its end; the trace of it."""
    await wait_until(lambda: path in spans.paths_of_spans(), f"a trace goes {' → '.join(path)}")
    return _trace_of(spans.first_span_with_path(path))


@asynccontextmanager
async def open_planner_client(platform: InProcess) -> AsyncIterator[PlannerClient]:
    async with (
        RpcServer(platform.planner(), RpcSettings(port=0)) as server,
        PlannerClient([server.address]) as client,
    ):
        yield client


async def test_an_apply_goes_from_its_call_to_what_the_cluster_shows_and_back_to_the_planner(spans: Spans) -> None:
    """With a question to the cluster on the way, since it never saw the template."""
    async with in_process_platform(FLEET) as platform:
        await join_members(platform)
        await wait_until(lambda: "own-1" in platform.planner().state.admitted.held, "a propagator holds the cluster")
        async with open_planner_client(platform) as client:
            await client.apply(ApplyRequest((deployment("web", NAMESPACE, 3),)))
        asked = (APPLY, APPLY, "decide shapes", process_span_name(SHAPES_ASKED))
        placed = (APPLY, APPLY, "decide apply", process_span_name(PLACEMENTS))
        trace = await wait_for_trace(spans, (*placed, process_span_name(WORKLOAD_STATUS)))
        await wait_until(
            lambda: (
                len([one for one in spans.paths_of_spans(trace) if one[-1] == process_span_name(WORKLOAD_STATUS)]) > 1
            ),
            "ready",
        )
    paths = set(spans.paths_of_spans(trace))
    assert {path[0] for path in paths} == {APPLY}, "nothing of it lacks its parent"
    assert {
        (APPLY, APPLY, "decide shapes", send_span_name(SHAPES_ASKED)),
        (*asked, "POST"),
        (*asked, send_span_name(SHAPES)),
        (*asked, process_span_name(SHAPES)),
        (APPLY, APPLY, "decide apply", "send"),
        (*placed, "GET"),
        (*placed, "PATCH"),
        (*placed, send_span_name(WORKLOAD_STATUS)),
    } <= paths
    kinds = {path: spans.first_span_with_path(path).kind.name for path in paths}
    assert [kinds[path] for path in ((APPLY,), (APPLY, APPLY), placed[:3], placed)] == [
        "CLIENT", "SERVER", "PRODUCER", "CONSUMER",
    ]  # fmt: skip
    about = {**(spans.first_span_with_path(placed).attributes or {})}
    assert about == {
        "messaging.system": "kafka",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": PLACEMENTS.name,
        "messaging.consumer.group.name": "propagator",
        "k8s.cluster.name": "own-1",
        "spillway.workload": f"{NAMESPACE}/web",
    }
    assert {**(spans.first_span_with_path((APPLY, APPLY)).attributes or {})} == {
        "rpc.system.name": "grpc",
        "rpc.method": APPLY,
        "rpc.response.status_code": "OK",
    }


async def test_a_reported_metric_goes_by_its_size_to_the_pods(spans: Spans) -> None:
    async with in_process_platform(FLEET, (*SERVICES, "hpa-1")) as platform:
        await join_members(platform)
        await platform.planner().apply(ApplyRequest((deployment("web", NAMESPACE, 1),)))
        await wait_until(lambda: platform.hpa().is_active, "an hpa is active")
        await platform.hpa().declare_policy(
            DeclarePolicyRequest(make_autoscaler({"type": "External", "external": REQUESTS}))
        )
        async with (
            RpcServer(platform.hpa(), RpcSettings(port=0), SCALING) as server,
            ScalingClient([server.address]) as client,
        ):
            await client.report(ReportRequest((requests_observed(platform, 50),)))
        sized = (REPORT, REPORT, send_span_name(LOAD), "decide scale")
        placed = (*sized, "decide autoscale", process_span_name(PLACEMENTS))
        trace = await wait_for_trace(spans, (*placed, process_span_name(WORKLOAD_STATUS)))
    paths = set(spans.paths_of_spans(trace))
    assert {path[0] for path in paths} == {REPORT}
    assert {(*sized, process_span_name(SCALE)), (*sized, "decide autoscale", "send"), (*placed, "PATCH")} <= paths


@pytest.mark.looptime
async def test_a_pod_that_waits_goes_by_its_recall_to_the_node_s_return(spans: Spans) -> None:
    pool = MemberPlan("pool", "own", (MemberNodes(1, "p", 4_000, 16 * GIB),), room=8)
    async with in_process_platform(
        (*FLEET, pool), ("snapshot-1", "planner-1", "descheduler-1", "vk-bridge-1")
    ) as platform:
        await join_members(platform)
        await wait_until(lambda: platform.descheduler().is_active, "a descheduler is active")
        rule = LendingRule("all", (), "idle", 100, 0, 30, 0.0)
        await platform.descheduler().declare_lending(
            DeclareLendingRequest("own-1", "pool", (rule,), grace_seconds=10, cooldown_seconds=600)
        )
        lent = platform.descheduler().state.open_loans_by_node
        await wait_until(lambda: len(lent("own-1")) == 2, "both nodes are lent", 600)
        api = platform.member_api("own-1")
        await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        await api.create(DEPLOYMENTS, deployment_of_2_cores(1))
        recalled = ("observe", "decide recall", process_span_name(RECALLS))
        trace = await wait_for_trace(spans, (*recalled, "decide settled"))
    paths = set(spans.paths_of_spans(trace))
    assert {path[0] for path in paths} == {"observe"}
    assert {
        ("observe", process_span_name(PENDING)),
        ("observe", "decide recall", send_span_name(RECALLS)),
        (*recalled, process_span_name(LENDING)),
        (*recalled, "PATCH"),
        (*recalled, send_span_name(LENDING)),
        (*recalled, "decide settled", send_span_name(RECALLS)),
    } <= paths


async def test_what_is_written_together_is_one_span_that_is_linked_to_each_decision(spans: Spans) -> None:
    async with in_process_platform(FLEET) as platform:
        await join_members(platform)
        planner = platform.planner()

        async def apply_in_span(name: str) -> None:
            with tracing.begin_or_continue_trace(name, tracing.SERVER):
                await planner.apply(ApplyRequest((deployment(name, NAMESPACE, 1),)))

        await asyncio.gather(*map(apply_in_span, ("web", "shop")))
        decided = {
            name: await wait_for_trace(
                spans, (name, "decide apply", process_span_name(PLACEMENTS), process_span_name(WORKLOAD_STATUS))
            )
            for name in ("web", "shop")
        }
    decisions = [spans.first_span_with_path((name, "decide apply")).context for name in decided]
    writes = [one for one in spans.ended_spans() if one.name == "send" and len(one.links) == 2]
    (write,) = [one for one in writes if {link.context.span_id for link in one.links} == {d.span_id for d in decisions}]
    assert _trace_of(write) in decided.values()
    assert len(set(decided.values())) == 2


async def test_what_belongs_to_no_trace_costs_no_span_and_carries_no_header(spans: Spans) -> None:
    async with in_process_platform(FLEET) as platform:
        tracing.shutdown()
        await join_members(platform)
        await platform.planner().apply(ApplyRequest((deployment("web", NAMESPACE, 1),)))
        places = [(topic.name, number) for topic in (PLACEMENTS, WORKLOAD_STATUS) for number in range(16)]
        stored = [one for place in places for one in platform.broker.read_records(*place, 0, 100)[0] if one.headers]
    assert stored
    assert not [name for one in stored for name, _ in one.headers if name in tracing.FIELDS]
    assert spans.ended_spans() == ()
