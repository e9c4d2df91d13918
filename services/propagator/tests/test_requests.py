"""How many requests a plan costs in its cluster and elsewhere, and how many records; in virtual time."""

import asyncio
import json
from typing import Any

import pytest

from sim.settings import Faults
from spillway.events import SHAPE_ADMITTED, SHAPE_UNASKED, ShapeAsked
from spillway.kubernetes.pod_shape import template_digest

from .conftest import deployment_manifest

pytestmark = pytest.mark.looptime
PLANS = 40


async def test_a_plan_costs_a_dry_run_and_a_creation_and_nothing_where_its_namespace_is_not(fleet: Any) -> None:
    """As the planner asks: every cluster about each template, then one placement each."""
    names = [f"web-{number}" for number in range(PLANS)]
    async with fleet:
        await fleet.declare_workload(name="first", namespace="shop")
        await fleet.publish_placement(1, {"own-1": 1}, name="first", namespace="shop")
        await fleet.start()
        await asyncio.sleep(20)
        one, other = fleet.transports["own-1"], fleet.transports["own-2"]
        for cluster in fleet.clusters.values():
            cluster.set_faults(Faults(latency_seconds=0.005))
        reads, writes, tried = one.reads, len(one.writes), len(one.tried)
        for name in names:
            template = deployment_manifest(name)["spec"]["template"]
            digest, pod = template_digest(template, "shop"), json.dumps(template).encode()
            await fleet.planner.publish(ShapeAsked(digest, "shop", name, ("own-1", "own-2"), pod))
        await asyncio.sleep(0.5)
        assert [event.state for event in fleet.shape_records("own-2")] == [SHAPE_UNASKED] * PLANS
        assert [event.state for event in fleet.shape_records("own-1")] == [SHAPE_UNASKED] + [SHAPE_ADMITTED] * (
            PLANS + 1
        )
        for sequence, name in enumerate(names, 2):
            await fleet.declare_workload(name=name, namespace="shop")
            await fleet.publish_placement(sequence, {"own-1": 2}, name=name, namespace="shop")
        await asyncio.sleep(10)
        assert {len(fleet.status_records("own-1", name)) for name in names} == {2}, (
            "that it is there, that all are ready"
        )
        assert all(fleet.last_status("own-1", name).ready == 2 for name in names)
        assert one.reads == reads
        assert len(one.writes) == writes + PLANS
        assert len(one.tried) == tried + PLANS
        assert len(other.tried) <= 4, "as many as are asked at the same time, before the first is answered"
        assert (other.reads, other.writes) == (5, []), "the lists of what is followed"
