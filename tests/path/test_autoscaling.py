"""How many replicas, end to end in one process and virtual time: samples and backlogs → hpa → planner → pods."""

import json
from typing import Any

import looptime  # noqa: F401 - the plugin makes an hour of waiting take milliseconds
import pytest

from spillway.api import ApplyRequest, GetRequest, RequestError
from spillway.api_scaling import (
    DeclarePolicyRequest,
    DeletePolicyRequest,
    ExplainPolicyRequest,
    GetPolicyRequest,
    ListPoliciesRequest,
    ReportRequest,
)
from spillway.events_scaling import BacklogObserved, LoadObserved, PartitionBacklog
from spillway_local.fleet_plan import deployment
from spillway_local.in_process import SERVICES, InProcess, in_process_platform

from .platform_steps import NAMESPACE, bound_pods_by_cluster, join_members, wait_until

pytestmark = pytest.mark.looptime

ALL = (*SERVICES, "hpa-1")
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


def make_autoscaler(metric: dict[str, Any], least: int = 1, most: int = 12) -> str:
    spec = {"scaleTargetRef": TARGET, "minReplicas": least, "maxReplicas": most, "metrics": [metric]}
    metadata = {"name": "web", "namespace": NAMESPACE}
    return json.dumps(
        {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec}
    )


CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
REQUESTS = {"metric": {"name": "requests"}, "target": {"type": "AverageValue", "averageValue": "10"}}
QUEUE = {"bootstrapServers": "kafka:9092", "consumerGroup": "g", "topic": "orders", "lagThreshold": "10"}


def make_scaled_object(cooldown: int = 30) -> str:
    return json.dumps(
        {
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "ScaledObject",
            "metadata": {"name": "web", "namespace": NAMESPACE},
            "spec": {
                "scaleTargetRef": {"name": "web"},
                "cooldownPeriod": cooldown,
                "triggers": [{"type": "kafka", "metadata": QUEUE}],
            },
        }
    )


def requests_observed(platform: InProcess, value: float) -> LoadObserved:
    milli = round(value * 1000)
    return LoadObserved(NAMESPACE, "web", "requests", "", "", "", "", milli, platform.wall_ms(), 0, "test", "")


def backlog_observed(platform: InProcess, *lags: int) -> BacklogObserved:
    rows = tuple(PartitionBacklog("orders", number, 100 + lag, 100, 0) for number, lag in enumerate(lags))
    return BacklogObserved(NAMESPACE, "web", "kafka", "g", "orders", rows, platform.wall_ms(), "test", "")


async def start_with_policy(platform: InProcess, replicas: int, policy: str) -> tuple[str, ...]:
    """The warnings of the policy."""
    await join_members(platform)
    await platform.planner().apply(ApplyRequest((deployment("web", NAMESPACE, replicas),)))
    await wait_until(lambda: platform.hpa().is_active, "an hpa is active")
    reply = await platform.hpa().declare_policy(DeclarePolicyRequest(policy))
    assert reply.changed
    return reply.warnings


async def wait_until_running(platform: InProcess, replicas: int) -> None:
    async def has_replicas() -> bool:
        return sum((await bound_pods_by_cluster(platform)).values()) == replicas

    await wait_until(has_replicas, f"{replicas} replicas run", seconds=120)


async def declared_replicas(platform: InProcess) -> int:
    return (await platform.planner().get(GetRequest(NAMESPACE, "web"))).placement.replicas


async def test_a_backlog_takes_a_workload_from_none_to_many_and_back_to_none() -> None:
    async with in_process_platform(services=ALL) as platform:
        warnings = await start_with_policy(platform, 0, make_scaled_object())
        assert any("'kafka:9092': not among the connections that the operator named" in text for text in warnings)
        hpa = platform.hpa()
        reply = await hpa.report(ReportRequest(backlogs=(backlog_observed(platform, *[10] * 6),)))
        assert [answer.code for answer in reply.backlogs] == ["OK"]
        await wait_until_running(platform, 6)
        told = await hpa.explain_policy(ExplainPolicyRequest(NAMESPACE, "web"))
        assert (told.policy.replicas, told.policy.replicas_desired, told.asked) == (6, 6, 6)
        assert told.metrics[0].detail == "true lag 60 in 6 partitions"
        assert told.metrics[0].active
        await hpa.report(ReportRequest(backlogs=(backlog_observed(platform, *[0] * 6),)))
        await wait_until_running(platform, 0)
        assert await declared_replicas(platform) == 0
        (metric,) = (await hpa.explain_policy(ExplainPolicyRequest(NAMESPACE, "web"))).metrics
        assert (metric.value, metric.detail) == ("0", "true lag 0 in 6 partitions"), "all of it, over no replicas"


async def test_a_burst_of_requests_scales_and_a_killed_hpa_goes_on_where_it_was() -> None:
    async with in_process_platform(services=(*ALL, "hpa-2")) as platform:
        await start_with_policy(platform, 1, make_autoscaler({"type": "External", "external": REQUESTS}))
        await platform.hpa().report(ReportRequest((requests_observed(platform, 40),)))
        await wait_until_running(platform, 4)
        before = await platform.hpa().explain_policy(ExplainPolicyRequest(NAMESPACE, policy="web"))
        name = next(name for name, entry in platform.running.items() if entry.service is platform.hpa())
        await platform.kill_instance(name)
        await wait_until(lambda: platform.hpa().is_active, "the other hpa is active")
        after = await platform.hpa().explain_policy(ExplainPolicyRequest(NAMESPACE, policy="web"))
        assert (after.policy.replicas_desired, after.changed_ms) == (4, before.changed_ms)
        assert (after.asked, after.metrics[0].value_milli) == (4, 40_000)
        await platform.hpa().report(ReportRequest((requests_observed(platform, 80),)))
        await wait_until_running(platform, 8)


async def test_use_of_cpu_above_its_target_scales_out() -> None:
    async with in_process_platform(services=ALL) as platform:
        for member in platform.members.values():
            member.set_load(NAMESPACE, "web", {"cpu": 1600})
        await start_with_policy(platform, 2, make_autoscaler(CPU))
        await wait_until_running(platform, 2)

        async def is_scaled() -> bool:
            return await declared_replicas(platform) > 2

        await wait_until(is_scaled, "it is scaled out", seconds=900)
        told = await platform.hpa().explain_policy(ExplainPolicyRequest(NAMESPACE, "web"))
        assert told.asked_by.startswith("cpu resource utilization")
        assert told.metrics[0].target == "50%"
        assert sum(one.pods for one in told.pods) >= 2


async def test_what_is_declared_twice_is_one_and_what_is_deleted_leaves_the_size() -> None:
    async with in_process_platform(services=ALL) as platform:
        policy = make_autoscaler({"type": "External", "external": REQUESTS})
        await start_with_policy(platform, 1, policy)
        hpa = platform.hpa()
        assert not (await hpa.declare_policy(DeclarePolicyRequest(policy))).changed
        assert (await hpa.declare_policy(DeclarePolicyRequest(policy.replace("12", "13"), plan_only=True))).changed
        assert (await hpa.get_policy(GetPolicyRequest(NAMESPACE, "web"))).replicas_max == 12
        with pytest.raises(RequestError) as refused:
            await hpa.declare_policy(DeclarePolicyRequest(make_scaled_object()))
        assert refused.value.code == "FAILED_PRECONDITION"
        assert "HorizontalPodAutoscaler web" in refused.value.text
        await hpa.report(ReportRequest((requests_observed(platform, 30),)))
        await wait_until_running(platform, 3)
        assert [one.targets for one in (await hpa.list_policies(ListPoliciesRequest())).policies] == [
            "requests: 10/10 (avg)"
        ]
        await hpa.delete_policy(DeletePolicyRequest(NAMESPACE, "web"))
        assert (await hpa.list_policies(ListPoliciesRequest())).policies == ()
        answer = (await hpa.report(ReportRequest((requests_observed(platform, 90),)))).loads[0]
        assert answer.code == "NOT_FOUND"
        assert await declared_replicas(platform) == 3
