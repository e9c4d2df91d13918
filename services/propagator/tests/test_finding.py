"""What is said of what a cluster has, before it is adopted or recovered."""

import asyncio
from typing import Any

import pytest

from sim.manifests import deployment
from spillway.addresses import FOUND_WORKLOADS
from spillway.clusters.api import DEPLOYMENTS, HORIZONTAL_POD_AUTOSCALERS
from spillway.events import AdoptionAsked, WorkloadFound
from spillway.local_bus import LocalBus
from spillway.model import Generation

FLEET = "f1"

pytestmark = pytest.mark.looptime


async def read_answers_by_name(fleet: Any, names: tuple[str, ...]) -> dict[str, WorkloadFound]:
    """By name, once all of them are there."""
    said: dict[str, WorkloadFound] = {}
    async with LocalBus(fleet.broker, FLEET, "planner").follow_topics((FOUND_WORKLOADS,)) as feed, asyncio.timeout(60):
        async for batch in feed:
            said |= {one.event.name: one.event for one in batch.records if isinstance(one.event, WorkloadFound)}
            if said.keys() >= set(names):
                break
    return said


def autoscaler_manifest(name: str, of: str) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": of}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 9},
    }


@pytest.mark.parametrize("before", ["", "former-1"], ids=["adopted", "recovered"])
async def test_what_an_autoscaler_scales_is_refused(fleet: Any, before: str) -> None:
    async with fleet:
        api = fleet.user_api("own-1")
        labels = {"spillway.io/fleet": before, "spillway.io/workload": "web"} if before else {}
        for name in ("web", "free"):
            made = deployment(name, 4)
            await api.create(
                DEPLOYMENTS, {**made, "metadata": {"name": name, "namespace": "default", "labels": labels}}
            )
        await api.create(HORIZONTAL_POD_AUTOSCALERS, autoscaler_manifest("h", "web"))
        await fleet.start()
        await asyncio.sleep(5)
        questions = [("", "")] if before else [("default", "web"), ("default", "free")]
        for number, (namespace, name) in enumerate(questions):
            asked = AdoptionAsked(Generation(1, number), namespace, name, ("own-1",), before)
            await fleet.planner.publish(asked)
        found = await read_answers_by_name(fleet, ("free", "web"))
        assert (found["free"].state, found["free"].message) == ("Found", "")
        assert found["web"].state == "Refused"
        assert found["web"].message.startswith("HorizontalPodAutoscaler h scales it")
