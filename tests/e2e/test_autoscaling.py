"""How many replicas, with everything real: a queue in Kafka, hpa as processes, pods in members."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import yaml
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from spillway.api import ApplyRequest, GetRequest
from spillway.api_scaling import DeclarePolicyRequest, DeletePolicyRequest, ExplainPolicyRequest, ReportRequest
from spillway.events_scaling import LoadObserved
from spillway.rpc import ScalingClient
from spillway_local.fleet_plan import deployment

from .running import NAMESPACE, Platform, until

pytestmark = pytest.mark.e2e

QUEUE, PARTITIONS = "orders", 6


def scaled_object(name: str, brokers: str) -> str:
    trigger = {"bootstrapServers": brokers, "consumerGroup": f"readers-{name}", "topic": QUEUE, "lagThreshold": "10"}
    return yaml.safe_dump(
        {
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "ScaledObject",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "scaleTargetRef": {"name": name},
                "pollingInterval": 1,
                "cooldownPeriod": 5,
                "triggers": [{"type": "kafka", "metadata": trigger}],
            },
        }
    )


def autoscaler(name: str) -> str:
    target = {"type": "AverageValue", "averageValue": "10"}
    return yaml.safe_dump(
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "maxReplicas": 30,
                "metrics": [{"type": "External", "external": {"metric": {"name": "requests"}, "target": target}}],
            },
        }
    )


@asynccontextmanager
async def scaling(platform: Platform) -> AsyncIterator[ScalingClient]:
    async with ScalingClient(platform.stack.addresses().hpas, retry_seconds=30) as client:
        yield client


async def declared(platform: Platform, name: str, replicas: int, seconds: float = 60) -> None:
    async def so() -> bool:
        return (await platform.planner.get(GetRequest(NAMESPACE, name))).placement.replicas == replicas

    await until(f"{replicas} replicas of {name} are declared", so, seconds)


async def test_a_backlog_in_kafka_takes_a_workload_from_none_to_many_and_back(platform: Platform) -> None:
    """Produced records → lag → decision → placement → pods; read by the group → none."""
    kafka = platform.stack.addresses().kafka
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    await admin.create_topics([NewTopic(QUEUE, PARTITIONS, 1)])
    await admin.close()
    await platform.planner.apply(ApplyRequest((deployment("reader", NAMESPACE, 0),)))
    async with scaling(platform) as client:
        assert (await client.declare_policy(DeclarePolicyRequest(scaled_object("reader", kafka)))).changed
        consumer = AIOKafkaConsumer(bootstrap_servers=kafka, group_id="readers-reader", enable_auto_commit=False)
        await consumer.start()
        places = [TopicPartition(QUEUE, number) for number in range(PARTITIONS)]
        consumer.assign(places)
        await consumer.commit(dict.fromkeys(places, 0))
        producer = AIOKafkaProducer(bootstrap_servers=kafka)
        await producer.start()
        for place in places:
            for _ in range(10):
                await producer.send_and_wait(QUEUE, b"work", partition=place.partition)
        await producer.stop()
        await platform.running("reader", PARTITIONS)
        told = await client.explain_policy(ExplainPolicyRequest(NAMESPACE, "reader"))
        assert told.metrics[0].detail == "true lag 60 in 6 partitions"
        await consumer.commit(dict.fromkeys(places, 10))
        await consumer.stop()
        await declared(platform, "reader", 0)
        await client.delete_policy(DeletePolicyRequest(NAMESPACE, "reader"))


async def test_the_standby_goes_on_where_a_killed_hpa_was(platform: Platform) -> None:
    """What was decided stays, what is reported next is decided on; nothing is decided twice."""
    await platform.planner.apply(ApplyRequest((deployment("burst", NAMESPACE, 1),)))
    async with scaling(platform) as client:
        await client.declare_policy(DeclarePolicyRequest(autoscaler("burst")))

        async def report(value: int) -> None:
            load = LoadObserved(NAMESPACE, "burst", "requests", "", "", "", "", value * 1000, 0, 0, "test", "")
            reply = await client.report(ReportRequest((load,)))
            assert [answer.code for answer in reply.loads] == ["OK"]

        await report(40)
        await platform.running("burst", 4)
        changed_ms = (await client.explain_policy(ExplainPolicyRequest(NAMESPACE, "burst"))).changed_ms
        pages = {name: (await platform.get(name, "/metrics"))[1] for name in ("hpa-1", "hpa-2")}
        active = next(name for name, page in pages.items() if "spillway_hpa_active 1.0" in page)
        await platform.kill_for_good(active)

        async def taken_over() -> bool:
            return not (await client.explain_policy(ExplainPolicyRequest(NAMESPACE, "burst"))).policy.stale

        await until("the standby decides", taken_over, 60)
        assert (await client.explain_policy(ExplainPolicyRequest(NAMESPACE, "burst"))).changed_ms == changed_ms
        await report(80)
        await declared(platform, "burst", 8)
        await platform.start(active)
        await client.delete_policy(DeletePolicyRequest(NAMESPACE, "burst"))
