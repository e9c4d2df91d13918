"""How many replicas, with everything real: a queue in Kafka, its readers as processes, hpa, pods in members."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from spillway.api import ApplyRequest, CapacityRequest
from spillway.api_scaling import DeclarePolicyRequest, DeletePolicyRequest, ExplainPolicyRequest
from spillway.kubernetes.objects import PODS
from spillway_local.fleet_plan import deployment

from .queue_reader import COMMIT_EVERY
from .running import NAMES, NAMESPACE, Platform, wait_until

# It is the first of the session: its time holds the start of the platform, too.
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(480)]

QUEUE, PARTITIONS, READER = "orders", 6, "reader"
RATE = 25
"""Records a second of a reader."""
BURSTS = (80, 150)
"""Records in each partition."""
DOWN_SECONDS = 150
"""What comes is looked at for two minutes: on a machine that stalls, a burst is taken for arrivals until then."""


def make_scaled_object(brokers: str) -> dict[str, Any]:
    """KEDA's way: a replica for each ten records that wait."""
    trigger = {"lagThreshold": "10", "offsetResetPolicy": "earliest"}
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": READER, "namespace": NAMESPACE},
        "spec": {
            "scaleTargetRef": {"name": READER},
            "pollingInterval": 1,
            "cooldownPeriod": 3,
            "triggers": [{"type": "kafka", "metadata": trigger | queue_fields(brokers)}],
        },
    }


def policy_to_drain_in_time(brokers: str) -> dict[str, Any]:
    """Ours: as many as read what waits in time."""
    drain = {
        "within": "11s",
        "recordsPerSecond": RATE,
        "startUp": "3s",
        "rebalance": "1s",
        "kafka": queue_fields(brokers),
    }
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": READER}
    return {
        "apiVersion": "spillway.io/v1",
        "kind": "ScalePolicy",
        "metadata": {"name": READER, "namespace": NAMESPACE},
        "spec": {"scaleTargetRef": target, "maxReplicas": PARTITIONS, "drain": drain},
    }


def queue_fields(brokers: str) -> dict[str, str]:
    return {"bootstrapServers": brokers, "consumerGroup": READER, "topic": QUEUE}


def manifest_of_readers() -> str:
    """So large that two fit a large node of own-2, none one of own-1, and one a node of the cloud."""
    manifest = json.loads(deployment(READER, NAMESPACE, 0, cpu="7"))
    template = manifest["spec"]["template"]
    template["metadata"]["annotations"] = {"sim/program": "queue-reader"}
    told = {"QUEUE": QUEUE, "GROUP": READER, "RATE": str(RATE)}
    template["spec"]["containers"][0]["env"] = [{"name": name, "value": value} for name, value in told.items()]
    return json.dumps(manifest)


@dataclass(slots=True)
class Group:
    """The readers' consumer group as Kafka has it, and what its members wrote down."""

    admin: AIOKafkaAdminClient
    producer: AIOKafkaProducer
    folder: Path

    async def produce_records(self, records: int) -> None:
        sent = [
            await self.producer.send(QUEUE, b"work", partition=partition)
            for _ in range(records)
            for partition in range(PARTITIONS)
        ]
        await asyncio.gather(*sent)

    async def committed_record_count(self) -> int:
        """Records of all partitions, from the group's own offsets."""
        offsets = await self.admin.list_consumer_group_offsets(READER)
        places = (TopicPartition(QUEUE, partition) for partition in range(PARTITIONS))
        return sum(max(0, offsets[place].offset) for place in places if place in offsets)

    def lines_by_reader(self) -> dict[str, list[str]]:
        """Lines of each reader, by `cluster.pod`."""
        return {path.name: path.read_text().splitlines() for path in self.folder.glob(f"*.{READER}-*")}


@asynccontextmanager
async def open_consumer_group(platform: Platform) -> AsyncIterator[Group]:
    kafka = platform.stack.addresses().kafka
    admin, producer = AIOKafkaAdminClient(bootstrap_servers=kafka), AIOKafkaProducer(bootstrap_servers=kafka)
    await admin.start()
    await producer.start()
    try:
        await admin.create_topics([NewTopic(QUEUE, PARTITIONS, 1)])
        yield Group(admin, producer, platform.stack.folder)
    finally:
        await producer.stop()
        await admin.close()


async def lose_a_reader_at_work(platform: Platform, found: Group, written: int) -> None:
    """Deletes a pod while the group reads; its reader hands over what it has, and another takes its place."""

    async def is_at_work() -> bool:
        return 0 < await found.committed_record_count() < written

    await wait_until("the group reads", is_at_work, 60, found.lines_by_reader)
    pod = next(iter(await platform.list_pods("cloud-1", READER)))
    await platform.members.member_api("cloud-1").delete(
        PODS, NAMESPACE, pod["metadata"]["name"], uid=pod["metadata"]["uid"]
    )


async def test_readers_of_a_real_queue_come_from_none_drain_it_and_go_twice(platform: Platform) -> None:
    """Records → lag → decision → placement over own and cloud → readers that commit → all read → none.

    Once by KEDA's policy, while a reader is lost, and once by time to drain. No record is lost; what is read twice is
    what was not committed where partitions changed hands.
    """
    kafka, written = platform.stack.addresses().kafka, 0
    await platform.planner.apply(ApplyRequest((deployment("filler", NAMESPACE, 4, cpu="16"),)))
    await platform.planner.apply(ApplyRequest((manifest_of_readers(),)))
    await platform.wait_until_running("filler", 4)

    async def has_own_room() -> bool:
        """As the planner knows it: else they go to the cloud first, and come home later."""
        reply = await platform.planner.capacity(CapacityRequest((manifest_of_readers(),)))
        return next(entry.certain for entry in reply.clusters if entry.cluster == "own-2") == 4

    async with open_consumer_group(platform) as found:
        for policy, records in zip((make_scaled_object(kafka), policy_to_drain_in_time(kafka)), BURSTS, strict=True):
            await wait_until("own-2 has room for four", has_own_room, 60)
            request = DeclarePolicyRequest(yaml.safe_dump(policy))
            assert (await platform.scaling.declare_policy(request)).changed
            await found.produce_records(records)
            written += PARTITIONS * records
            running = await platform.wait_until_running(READER, PARTITIONS)
            assert running == {"own-2": 4, "cloud-1": 2}
            if policy["kind"] == "ScaledObject":
                told = await platform.scaling.explain_policy(ExplainPolicyRequest(NAMESPACE, READER))
                assert told.metrics[0].detail.endswith(f"in {PARTITIONS} partitions")
                await lose_a_reader_at_work(platform, found, written)

            async def is_drained() -> bool:
                return await found.committed_record_count() == written  # noqa: B023

            await wait_until(f"the group has committed {written} records", is_drained, 60, found.lines_by_reader)
            await platform.wait_until_running(READER, 0, DOWN_SECONDS)
            await platform.scaling.delete_policy(DeletePolicyRequest(NAMESPACE, READER))
        check_ledgers(found.lines_by_reader(), written)

        async def are_all_gone() -> bool:
            return not [pod for name in NAMES for pod in await platform.list_pods(name, READER)]

        await wait_until("no reader's pod is left", are_all_gone, 30)


def check_ledgers(ledgers: dict[str, list[str]], written: int) -> None:
    """Every record was read, every reader took its leave, and little was read twice."""
    lines = [line.split() for ledger in ledgers.values() for line in ledger]
    read = Counter((int(line[1]), int(line[2])) for line in lines if line[0] == "read")
    each = written // PARTITIONS
    assert read.keys() == {(partition, offset) for partition in range(PARTITIONS) for offset in range(each)}
    twice, deals = read.total() - written, sum(line[0] == "assigned" for line in lines)
    clusters = Counter(name.partition(".")[0] for name in ledgers)
    print(f"\n{written} records read by {len(ledgers)} readers {dict(clusters)}, {twice} of them twice, {deals} deals")
    assert twice <= COMMIT_EVERY * deals
    assert len(ledgers) == 2 * PARTITIONS + 1
    assert [name for name, ledger in ledgers.items() if ledger[-1] != "left"] == []
