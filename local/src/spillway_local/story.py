"""Runs the demo's story step by step, with a message for each, and verifies it from the members' own APIs."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from spillway.api import (
    ApplyRequest,
    CapacityRequest,
    GetRequest,
    JoinClusterRequest,
    ListClustersRequest,
    PlacementReply,
    RequestError,
    ScaleRequest,
)
from spillway.api_scaling import DeclarePolicyRequest, DeletePolicyRequest, ReportRequest
from spillway.clusters.api import ClusterApi
from spillway.events_scaling import BacklogObserved, PartitionBacklog
from spillway.kubernetes.objects import PODS
from spillway.reasons import FITS_NO_NODE
from spillway.rpc.verbs import LendingApi, PlannerApi, ScalingApi
from spillway_local.fleet_plan import FLEET, deployment
from spillway_local.lending_chapter import LendingChapter

NAMESPACE = "shop"
SERVICE = "web"

PARTITIONS, LAG_OF_ONE, BROKER = 240, 10, "kafka"
"""The backlog: its partitions, the records in each (work for one replica), and the name of its broker."""

CLOSED_FOR_MS = 2_000
"""The milliseconds for which a silent cluster must take no replicas, because its report is too old, before the story
goes on.

Planners read its records at different times, and a delayed heartbeat makes its age smaller again.
"""

Say = Callable[[str], None]


class StoryFailed(RuntimeError):
    """Raised if an observation differs from the story's expectation."""


class StoryMembers(Protocol):
    """The member clusters, and the means to make one silent."""

    def member_api(self, name: str) -> ClusterApi: ...

    async def silence_member(self, name: str) -> None: ...

    async def wake_member(self, name: str) -> None: ...


@dataclass(slots=True)
class Story:
    """One run of the story. checks: the verified facts, in order.

    service, late: workload names, which differ for each run.
    """

    planner: PlannerApi
    scaling: ScalingApi
    lending: LendingApi
    members: StoryMembers
    say: Say
    service: str = SERVICE
    late: str = "late"
    deadline_seconds: float = 90.0
    checks: list[str] = field(default_factory=list)

    async def run_story(self) -> list[str]:
        await self._join_clusters()
        await self._lend_idle_nodes()
        await self._start_small_workload()
        await self._overflow_to_cloud()
        await self._scale_down_workload()
        await self._scale_worker_by_backlog()
        await self._refuse_giant_workload()
        await self._survive_silent_cluster()
        return self.checks

    async def _join_clusters(self) -> None:
        self.say("Three clusters join: own-1 and own-2 with nodes of different sizes, one pool tainted, and cloud-1.")
        for member in FLEET:
            await self.planner.join_cluster(JoinClusterRequest(member.name, member.name, tier=member.tier))
        await self._wait_until("every cluster reports its capacity", self._are_all_clusters_ready)
        await self._wait_until("nothing that ran before is counted any more", self._has_whole_room)
        expected = _planned_room_by_cluster()
        reply = await self.planner.capacity(CapacityRequest((deployment(self.service, NAMESPACE, 1),)))
        for entry in reply.clusters:
            self.say(
                f"  {entry.cluster:8} takes {entry.certain:4} replicas of 500m/512Mi; limited by {entry.limited_by}"
            )
        self._check_fact(
            f"capacity equals the arithmetic: {expected}", {e.cluster: e.certain for e in reply.clusters} == expected
        )

    async def _has_whole_room(self) -> bool:
        return await self._room_by_cluster() == _planned_room_by_cluster()

    async def _room_by_cluster(self) -> dict[str, int]:
        reply = await self.planner.capacity(CapacityRequest((deployment(self.service, NAMESPACE, 1),)))
        return {entry.cluster: entry.certain for entry in reply.clusters}

    async def _lend_idle_nodes(self) -> None:
        chapter = LendingChapter(
            self.lending, self.members.member_api, self._wait_until, self.say, f"{self.service}-lent", NAMESPACE
        )
        self.checks.extend(await chapter.run_chapter())
        await self._wait_until("every node is counted by its owner again", self._has_whole_room)

    async def _start_small_workload(self) -> None:
        self.say("A service of 60 replicas is applied: it goes to own clusters only.")
        reply = await self.planner.apply(ApplyRequest((deployment(self.service, NAMESPACE, 60),), "story-apply"))
        self._tell_placement(reply)
        counts = await self._wait_for_running_pods(60)
        self._check_fact(f"60 replicas run in own clusters only: {counts}", counts["cloud-1"] == 0)

    async def _overflow_to_cloud(self) -> None:
        self.say("Scaled to 400: own clusters fill up exactly, the rest overflows to the cloud.")
        reply = await self.planner.scale(ScaleRequest(NAMESPACE, self.service, 400, "story-400"))
        self._tell_placement(reply)
        counts = await self._wait_for_running_pods(400)
        own = {member.name: member.room for member in FLEET if member.tier == "own"}
        exact = all(counts[name] == room for name, room in own.items()) and counts["cloud-1"] == 400 - sum(own.values())
        self._check_fact(f"each cluster holds exactly what fits: {counts}", exact)
        self._check_fact("no pod is pending anywhere", await self._count_pending_pods() == 0)

    async def _scale_down_workload(self) -> None:
        self.say("Scaled to 80: the cloud is emptied first.")
        reply = await self.planner.scale(ScaleRequest(NAMESPACE, self.service, 80, "story-80"))
        self._tell_placement(reply)
        counts = await self._wait_for_running_pods(80)
        self._check_fact(f"the cloud is empty, 80 replicas run in own clusters: {counts}", counts["cloud-1"] == 0)

    async def _scale_worker_by_backlog(self) -> None:
        worker = f"{self.service}-worker"
        self.say(f"{worker} has no replica, and a KEDA ScaledObject: one for each 10 records that wait in a topic.")
        await self.planner.apply(ApplyRequest((deployment(worker, NAMESPACE, 0),)))
        await self.scaling.declare_policy(DeclarePolicyRequest(scaled_object(worker, NAMESPACE)))
        own = sum(member.room for member in FLEET if member.tier == "own") - 80
        await self._wait_until(f"own clusters have room for {own}", lambda: self._has_own_room_of(own))
        lag = PARTITIONS * LAG_OF_ONE
        self.say(f"A backlog of {lag} records grows: from zero over own clusters into the cloud.")
        await self._report_backlog(worker, LAG_OF_ONE)
        reported = asyncio.get_running_loop().time()
        while (await self.planner.get(GetRequest(NAMESPACE, worker))).placement.replicas != PARTITIONS:
            if asyncio.get_running_loop().time() - reported > self.deadline_seconds:
                raise StoryFailed(f"{worker} was not scaled to {PARTITIONS}")
            await asyncio.sleep(0.01)
        took = asyncio.get_running_loop().time() - reported
        self.say(f"  {PARTITIONS} replicas were decided and placed {took * 1000:.0f} ms after the backlog was reported")
        counts = await self._wait_for_running_pods(PARTITIONS, worker)
        self._check_fact(
            f"{PARTITIONS} run, {own} of them in own clusters: {counts}", PARTITIONS - counts["cloud-1"] == own
        )
        self.say("The backlog is worked off: back to zero.")
        await self._report_backlog(worker, 0)
        counts = await self._wait_for_running_pods(0, worker)
        self._check_fact(f"none runs once nothing waits: {counts}", not any(counts.values()))
        await self.scaling.delete_policy(DeletePolicyRequest(NAMESPACE, worker))

    async def _has_own_room_of(self, replicas: int) -> bool:
        reply = await self.planner.capacity(CapacityRequest((deployment(self.service, NAMESPACE, 1),)))
        return sum(entry.certain for entry in reply.clusters if entry.cluster != "cloud-1") == replicas

    async def _report_backlog(self, worker: str, lag: int) -> None:
        """Reports that many waiting records in each partition."""
        rows = tuple(PartitionBacklog(worker, number, 1000 + lag, 1000, 0) for number in range(PARTITIONS))
        report = BacklogObserved(NAMESPACE, worker, BROKER, worker, worker, rows, 0, "the story", "")
        (answer,) = (await self.scaling.report(ReportRequest(backlogs=(report,)))).backlogs
        if answer.code != "OK":
            raise StoryFailed(f"the backlog was not taken: {answer.text}")

    async def _refuse_giant_workload(self) -> None:
        self.say("A shape that fits no node anywhere is refused, with the reason.")
        try:
            await self.planner.apply(ApplyRequest((deployment("giant", NAMESPACE, 1, cpu="900"),)))
        except RequestError as error:
            self.say(f"  {error.code}: {error.text}")
            named = error.details.get("first_clusters", "").split(",")
            is_told = error.reason == FITS_NO_NODE and set(named) == {member.name for member in FLEET}
            self._check_fact(f"the refusal says why and names each cluster: {error.reason} in {named}", is_told)
            return
        raise StoryFailed("a replica of 900 cores was not refused")

    async def _survive_silent_cluster(self) -> None:
        self.say("own-2 goes silent: the others go on, nothing new is placed there, nothing there is deleted.")
        await self.members.silence_member("own-2")
        try:
            await self._wait_until("what is known of own-2 is too old to place on", self._check_that_own_2_is_closed())
            reply = await self.planner.apply(ApplyRequest((deployment(self.late, NAMESPACE, 20),), "story-late"))
            self._tell_placement(reply)
            placed = {part.cluster: part.replicas for part in reply.parts}
            self._check_fact(
                f"20 replicas of another service are placed without own-2: {placed}", "own-2" not in placed
            )
            counts = await self._wait_for_running_pods(20, self.late, set(placed))
            self._check_fact(f"they run: {counts}", sum(counts.values()) == 20)
        finally:
            await self.members.wake_member("own-2")
        await self._wait_until("own-2 reports again", self._are_all_clusters_ready)
        counts = await self._wait_for_running_pods(80)
        self._check_fact(f"nothing was lost there: {counts}", sum(counts.values()) == 80)

    # ── Observing ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _are_all_clusters_ready(self) -> bool:
        clusters = (await self.planner.list_clusters(ListClustersRequest())).clusters
        return len(clusters) >= len(FLEET) and all(cluster.state == "Ready" for cluster in clusters)

    def _check_that_own_2_is_closed(self) -> Callable[[], Awaitable[bool]]:
        """Returns a check that is True once own-2 has been too old for CLOSED_FOR_MS.

        A gap in its stream closes own-2 for a shorter time.
        """
        closed_at_ms: list[int] = []

        async def is_closed_for_long() -> bool:
            takes = (await self._room_by_cluster()).get("own-2", 0)
            clusters = (await self.planner.list_clusters(ListClustersRequest())).clusters
            old = [one for one in clusters if one.cluster == "own-2" and one.state in ("Stale", "Unreachable")]
            if takes or not old:
                closed_at_ms.clear()
                return False
            closed_at_ms.append(old[0].age_ms)
            return old[0].age_ms >= closed_at_ms[0] + CLOSED_FOR_MS

        return is_closed_for_long

    async def _wait_for_running_pods(
        self, total: int, service: str = "", names: set[str] | None = None
    ) -> dict[str, int]:
        """Returns the running pods by cluster, once there are as many as asked for and no others are left."""
        service = service or self.service
        names = names or {member.name for member in FLEET}
        counts: dict[str, int] = {}

        async def has_exactly_total() -> bool:
            running, others = await self._count_running_pods(service, names)
            counts.update(running)
            return sum(running.values()) == total and others == 0

        await self._wait_until(f"{total} replicas of {service} run", has_exactly_total, lambda: str(counts))
        return dict(sorted(counts.items()))

    async def _count_running_pods(self, service: str, names: set[str]) -> tuple[dict[str, int], int]:
        running, others = {}, 0
        for name in sorted(names):
            pods = await self.members.member_api(name).list(PODS, NAMESPACE, label_selector=f"app={service}")
            bound = [pod for pod in pods if _is_running(pod)]
            running[name] = len(bound)
            others += len(pods) - len(bound)
        return running, others

    async def _count_pending_pods(self) -> int:
        pending = 0
        for member in FLEET:
            pods = await self.members.member_api(member.name).list(PODS)
            pending += sum(1 for pod in pods if not pod["spec"].get("nodeName"))
        return pending

    async def _wait_until(
        self, what: str, reached: Callable[[], Awaitable[bool]], so_far: Callable[[], str] = lambda: ""
    ) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        while not await reached():
            if loop.time() - started > self.deadline_seconds:
                raise StoryFailed(f"after {self.deadline_seconds:.0f} s it is not so that {what} {so_far()}")
            await asyncio.sleep(0.2)
        self.say(f"  {what} after {loop.time() - started:.1f} s")

    def _tell_placement(self, reply: PlacementReply) -> None:
        placed = ", ".join(f"{part.cluster} {part.replicas}" for part in reply.parts)
        waiting = f"; {reply.unplaced} wait for {reply.waiting_for}" if reply.unplaced else ""
        self.say(f"  decided: {placed}{waiting}")

    def _check_fact(self, fact: str, holds: bool) -> None:
        if not holds:
            raise StoryFailed(f"not so: {fact}")
        self.checks.append(fact)


def _planned_room_by_cluster() -> dict[str, int]:
    return {member.name: member.room for member in FLEET}


def _is_running(pod: Mapping[str, Any]) -> bool:
    return (
        bool(pod["spec"].get("nodeName"))
        and pod.get("status", {}).get("phase") == "Running"
        and not pod["metadata"].get("deletionTimestamp")
    )


def scaled_object(worker: str, namespace: str, cooldown_seconds: int = 3) -> str:
    """Returns a ScaledObject as JSON, for the workload and consumer group of this name. It scales up in one step."""
    at_once = {"policies": [{"type": "Pods", "value": 1000, "periodSeconds": 15}]}
    trigger = {"bootstrapServers": f"{BROKER}:9092", "consumerGroup": worker, "topic": worker}
    return json.dumps(
        {
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "ScaledObject",
            "metadata": {"name": worker, "namespace": namespace},
            "spec": {
                "scaleTargetRef": {"name": worker},
                "maxReplicaCount": 2 * PARTITIONS,
                "cooldownPeriod": cooldown_seconds,
                "advanced": {"horizontalPodAutoscalerConfig": {"behavior": {"scaleUp": at_once}}},
                "triggers": [{"type": "kafka", "metadata": trigger | {"lagThreshold": str(LAG_OF_ONE)}}],
            },
        }
    )
