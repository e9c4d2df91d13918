"""Upgrades a platform of an older version as docs/operations.md says, process by process, while work goes on.

    make upgrade OLD=b18740c KEPT_NEW=vk-bridge   real Kafka and Redis, simulated members, two instances of each service
After each step the placed pods must be the same, and a Scale must be decided and carried out. No record may become a
dead letter. Each decision that the older version recorded must have the same division when this version computes it.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

from versions import ROOT, export_commit

from planner.core.placement.replaying import NotReplayable, replay_division
from spillway.addresses import DEAD_LETTERS
from spillway.api import ApplyRequest, JoinClusterRequest, ListClustersRequest, ScaleRequest
from spillway.bus import has_reached_ends
from spillway.kafka.bus import KafkaBus, KafkaSettings
from spillway.kubernetes.objects import PODS
from spillway.rpc.client import PlannerClient
from spillway_cli.reading import get_with_history
from spillway_local.demo import StackMembers
from spillway_local.fleet_plan import FLEET, deployment
from spillway_local.stack import SERVICES, Stack, StackOptions

ORDER = ("descheduler", "vk-bridge", "hpa", "planner", "propagator", "snapshot")
NAMESPACE, NAME, REPLICAS = "shop", "web", 60
MIXED, MIXED_WORKLOADS, MIXED_SCALES = "mixed", 24, 4
"""The namespace of workloads with various policies, their number, and how often each is scaled by the older version."""
WEIGHTS = [{"clusters": {"names": ["own-1"]}, "weight": 3}, {"clusters": {"names": ["cloud-1"]}, "weight": 1}]
POLICIES: tuple[dict[str, object], ...] = (
    {},
    {"tiers": [{"name": "all", "clusters": {}, "split": "Weighted", "weights": WEIGHTS}]},
    {"tiers": [{"name": "all", "clusters": {}, "split": "Even"}]},
    {"limits": [{"cluster": "own-1", "max": 1}, {"cluster": "cloud-1", "min": 1}]},
    {"unplaceable": "Refuse", "priority": 5},
    {"tiers": [{"name": "rented", "clusters": {"names": ["cloud-1"]}}, {"name": "own", "clusters": {}}]},
)
HISTORY_MAX = 1000
SECONDS = 120.0


class Upgrade:
    """One platform. old: the PYTHONPATH of the older version, for processes that are not upgraded yet."""

    def __init__(self, folder: Path, old: str, kept_new: tuple[str, ...]) -> None:
        self.options = StackOptions(folder, outlives=False)
        self.old_path = old
        self.still_old = {f"{service}-{number}" for service in SERVICES for number in (1, 2) if service not in kept_new}
        self.pods: set[str] = set()
        self.replicas = REPLICAS
        self.random = Random(1)
        self.mixed_pods: set[str] = set()

    def new_stack(self) -> Stack:
        environment: Mapping[str, Mapping[str, str]] = {name: {"PYTHONPATH": self.old_path} for name in self.still_old}
        return Stack(replace(self.options, environment_of=environment), lambda text: None)

    async def run(self) -> None:
        stack = self.new_stack()
        try:
            await asyncio.to_thread(stack.start)
            print(f"{len(self.still_old)} processes of the older version run")
            async with PlannerClient(stack.addresses().planners, timeout_seconds=60, retry_seconds=60) as client:
                await self._place_workload(client, stack)
                await self._place_mixed_workloads(client, stack)
                for service in ORDER:
                    for name in self._names_standby_first(service):
                        if name in self.still_old:
                            await self._upgrade_process(name, client)
                moved = self.mixed_pods ^ await self._running_pod_uids(stack, MIXED)
                assert not moved, f"{len(moved)} pods of the workloads with various policies moved"
                await self._replay_decisions(client)
            await self._check_no_dead_letters(stack)
        finally:
            await asyncio.to_thread(stack.stop)

    async def _place_workload(self, client: PlannerClient, stack: Stack) -> None:
        for member in FLEET:
            await client.join_cluster(JoinClusterRequest(member.name, member.name, tier=member.tier))
        await self._wait_until("every cluster is Ready", lambda: self._is_every_cluster_ready(client))
        await client.apply(ApplyRequest((deployment(NAME, NAMESPACE, REPLICAS),)))
        await self._wait_until(f"{REPLICAS} pods run", lambda: self._has_running_pods(stack, REPLICAS))
        self.pods = await self._running_pod_uids(stack)

    async def _place_mixed_workloads(self, client: PlannerClient, stack: Stack) -> None:
        """Has the older version place workloads of all POLICIES and scale them, and waits until all their pods run."""
        replicas: dict[str, int] = {}
        for number in range(MIXED_WORKLOADS):
            name, spec = f"w-{number}", POLICIES[number % len(POLICIES)]
            policy = {"apiVersion": "spillway.io/v1", "kind": "PlacementPolicy", "spec": spec}
            replicas[name] = self.random.randint(1, 4)
            manifests = (deployment(name, MIXED, replicas[name], cpu="100m"), *((json.dumps(policy),) if spec else ()))
            await client.apply(ApplyRequest(manifests))
            for _ in range(MIXED_SCALES):
                replicas[name] = self.random.randint(1, 5)
                await client.scale(ScaleRequest(MIXED, name, replicas[name]))

        async def has_all_pods() -> bool:
            self.mixed_pods = await self._running_pod_uids(stack, MIXED)
            return len(self.mixed_pods) == sum(replicas.values())

        await self._wait_until("the pods of all policies run", has_all_pods)

    async def _replay_decisions(self, client: PlannerClient) -> None:
        """Computes the division of each recorded decision again and compares both byte by byte."""
        same, other, by_version = 0, list[str](), Counter[str]()
        for space, name in ((NAMESPACE, NAME), *((MIXED, f"w-{number}") for number in range(MIXED_WORKLOADS))):
            for record in (await get_with_history(client, space, name, HISTORY_MAX)).history:
                try:
                    found = replay_division(record)
                except NotReplayable as why:
                    other.append(f"{space}/{name} {record.generation} ({record.cause}): {why}")
                    continue
                by_version[record.code_version] += 1
                same += found.is_same
                other += [f"{space}/{name} {record.generation}: {what}" for what in found.differences]
        print(f"decisions with the same division: {same} of {sum(by_version.values())} ({dict(by_version)})")
        print("\n".join(other))
        assert same == sum(by_version.values()) > MIXED_WORKLOADS * MIXED_SCALES / 2

    async def _upgrade_process(self, name: str, client: PlannerClient) -> None:
        """Restarts a process with the new version. Then adds a replica and checks that earlier pods still run."""
        began = time.monotonic()
        self.still_old.discard(name)
        stack = self.new_stack()
        await asyncio.to_thread(stack.start)
        await self._wait_until("every cluster is Ready", lambda: self._is_every_cluster_ready(client))
        self.replicas += 1
        await client.scale(ScaleRequest(NAMESPACE, NAME, self.replicas))
        await self._wait_until(f"{self.replicas} pods run", lambda: self._has_running_pods(stack, self.replicas))
        now = await self._running_pod_uids(stack)
        assert now > self.pods, f"{name}: {len(self.pods - now)} pods are gone"
        self.pods = now
        print(f"{name}: of this version after {time.monotonic() - began:.0f} s; {self.replicas} pods, none restarted")

    def _names_standby_first(self, service: str) -> list[str]:
        names = [f"{service}-1", f"{service}-2"]
        stack = self.new_stack()
        return sorted(
            names,
            key=lambda name: f"{service.replace('-', '_')}_active 1.0" in stack._read_health_page(name, "metrics"),
        )

    async def _is_every_cluster_ready(self, client: PlannerClient) -> bool:
        clusters = (await client.list_clusters(ListClustersRequest())).clusters
        return len(clusters) == len(FLEET) and all(cluster.state == "Ready" for cluster in clusters)

    async def _has_running_pods(self, stack: Stack, replicas: int) -> bool:
        return len(await self._running_pod_uids(stack)) == replicas

    async def _running_pod_uids(self, stack: Stack, namespace: str = NAMESPACE) -> set[str]:
        members = StackMembers(stack)
        try:
            return {
                str(pod["metadata"]["uid"])
                for member in FLEET
                for pod in await members.member_api(member.name).list(PODS, namespace)
                if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
            }
        finally:
            await members.close()

    async def _wait_until(self, what: str, holds: object) -> None:
        async with asyncio.timeout(SECONDS):
            while not await holds():  # type: ignore[operator]
                await asyncio.sleep(0.2)

    async def _check_no_dead_letters(self, stack: Stack) -> None:
        settings = KafkaSettings(stack.addresses().kafka)
        letters = []
        async with KafkaBus(settings, "", "upgrade") as bus, bus.follow_topics([DEAD_LETTERS]) as feed:
            ends = await feed.end_offsets()
            async for batch in feed:
                letters += [record.event for record in batch.records]
                if has_reached_ends(batch.positions, ends):
                    break
        print(f"dead letters: {len(letters)}" + "".join(f"\n  {letter}" for letter in letters[:5]))
        assert not letters


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", default="b18740c", help="commit of the older version")
    parser.add_argument("--kept-new", default="", help="services that are of this version from the start")
    asked = parser.parse_args()
    folder = ROOT / "build" / "versions" / asked.old
    export_commit(asked.old, folder)
    path = os.pathsep.join(str(source) for source in sorted(folder.glob("*/*/src")))
    with tempfile.TemporaryDirectory() as run:
        kept = tuple(filter(None, asked.kept_new.split(",")))
        asyncio.run(Upgrade(Path(run), path, kept).run())
    print(json.dumps({"old": asked.old, "python": sys.version.split()[0], "upgraded": "without loss"}))


if __name__ == "__main__":
    main()
