"""How many replicas, with everything real: a queue in Kafka, hpa as processes, pods in members."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import yaml
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from spillway.api import ApplyRequest, GetRequest
from spillway.api_scaling import DeclarePolicyRequest, DeletePolicyRequest, ExplainPolicyRequest
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
