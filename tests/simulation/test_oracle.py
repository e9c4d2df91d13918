"""What the simulation's checks say of a few records, where a seed that shows it would be rare."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from planner.core.manifests.policy import DEFAULT_POLICY
from sim.cluster import SimCluster
from spillway import metrics
from spillway.dead_letters import outgoing_record
from spillway.events import (
    PHASE_ACTIVE,
    PHASE_LOST,
    ClusterJoined,
    Event,
    PlacementDecided,
    PodsUnschedulable,
    WorkloadDeclared,
)
from spillway.model import Generation, Part
from spillway_local.fleet_plan import deployment
from spillway_local.in_process import FLEET_ID
from spillway_simulation.brownfield import DEPLOYMENTS, NAMESPACE, plant_deployment, request_by_hand
from spillway_simulation.oracle import Known, Oracle
from spillway_simulation.ownership import SENT, TOLD_SECONDS
from spillway_simulation.run import judge_unexpected_errors
from spillway_simulation.script import Found
from spillway_simulation.seeds import DAYS, KEPT, script_of

NAME, MEMBER = "web", "own-1"
KEY = (NAMESPACE, NAME)


class Judged(NamedTuple):
    """The checks, and a member with an object of ours in it that was placed there by the first placement."""

    oracle: Oracle
    member: SimCluster

    def tell_oracle(self, *events: Event) -> None:
        self.oracle.on_records([outgoing_record(event) for event in events], "spillway/planner-1")

    def object_is_orphan(self) -> bool:
        found = self.member.get_object("deployments", NAME, NAMESPACE)
        return found is not None and self.oracle.ownership.is_orphan(MEMBER, found)


def cluster_joined(phase: str) -> ClusterJoined:
    return ClusterJoined(MEMBER, MEMBER, "", "own", "", "", (), (), phase)


def placement_event(sequence: int, *parts: Part) -> PlacementDecided:
    unplaced = 2 - sum(part.replicas for part in parts)
    return PlacementDecided(NAMESPACE, NAME, Generation(0, sequence), 1, parts, unplaced, "")


@pytest.fixture
async def judged() -> AsyncIterator[Judged]:
    async with SimCluster(MEMBER) as member:
        oracle = Oracle({MEMBER: member}, lambda _source, _key: True)
        plant_deployment(member, Found(NAME, 100, ((MEMBER, 2),), FLEET_ID))
        oracle.note_allocatable_cpu()
        one = Judged(oracle, member)
        manifest = deployment(NAME, NAMESPACE, 2, cpu="100m", memory="64Mi").encode()
        declared = WorkloadDeclared(NAMESPACE, NAME, "Deployment", 1, 1, manifest, 2, DEFAULT_POLICY, (), (), (), False)
        oracle.note_disturbance(MEMBER)  # It has no node, so it is not asked whether there is room.
        one.tell_oracle(
            cluster_joined(PHASE_ACTIVE), declared, placement_event(2, Part(MEMBER, Generation(0, 1), 2, 0, 2, False))
        )
        assert oracle.violations == []
        yield one


async def test_a_part_that_is_given_up_in_a_lost_cluster_leaves_an_orphan_there(judged: Judged) -> None:
    judged.tell_oracle(cluster_joined(PHASE_LOST), placement_event(3))
    judged.tell_oracle(cluster_joined(PHASE_ACTIVE))
    assert judged.oracle.violations == []
    assert judged.object_is_orphan()


async def test_a_part_that_is_listed_no_more_in_a_cluster_that_is_not_lost_is_said(judged: Judged) -> None:
    judged.tell_oracle(placement_event(3))
    assert "it is listed no more" in judged.oracle.violations[0]
    assert not judged.object_is_orphan()


async def test_a_part_may_be_listed_no_more_where_an_orphan_has_its_name(judged: Judged) -> None:
    judged.tell_oracle(cluster_joined(PHASE_LOST), placement_event(3))
    judged.tell_oracle(cluster_joined(PHASE_ACTIVE))
    judged.tell_oracle(placement_event(4, Part(MEMBER, Generation(0, 4), 1, 0, 1, False)))
    judged.tell_oracle(placement_event(5))
    assert judged.oracle.violations == []
    assert judged.object_is_orphan()


async def test_an_orphan_in_a_cluster_that_was_lost_is_written_by_nobody(judged: Judged) -> None:
    judged.tell_oracle(cluster_joined(PHASE_LOST), placement_event(3))
    judged.tell_oracle(cluster_joined(PHASE_ACTIVE))
    before = judged.member.get_object("deployments", NAME, NAMESPACE)
    request_by_hand(judged.member, "DELETE", f"{DEPLOYMENTS}/{NAME}")
    SENT.set(asyncio.get_running_loop().time() + TOLD_SECONDS + 1)
    judged.oracle.ownership.judge_write(MEMBER, KEY, before, None, adopted=False)
    assert "an orphan was written or deleted" in judged.oracle.violations[0]


async def test_pods_that_are_said_to_wait_are_seen_then(judged: Judged) -> None:
    """They may be gone by the next look, and whoever read of them recalls nodes for them."""
    judged.tell_oracle(PodsUnschedulable(MEMBER, f"ReplicaSet/{NAMESPACE}/{NAME}-1", 2, 9, "", 3, ""))
    assert (
        judged.oracle.sights.pods_waiting_since(MEMBER, KEY, 0.0) == len(judged.member.objects("pods", NAMESPACE)) > 0
    )


def test_a_part_whose_roll_waits_is_of_the_template_that_it_bears() -> None:
    """Also once the check has forgotten when the template changed; a part of the newest one is of the newest."""
    earlier, newest = (json.dumps(json.loads(deployment(NAME, NAMESPACE, 2, cpu=cpu))) for cpu in ("500m", "1500m"))
    known = Known(objects={1: earlier, 2: newest}, cpu=1500, cpus=[(10.0, 500)])
    waits, rolled = (Part(MEMBER, Generation(0, 1), 2, 0, 2, False, template_generation=n) for n in (1, 2))
    assert known.least_cpu_millis_of_part(waits, 200.0) == 500
    assert known.least_cpu_millis_of_part(rolled, 200.0) == 1500


@pytest.mark.looptime
async def test_an_unexpected_error_of_a_service_is_said_at_its_time(judged: Judged) -> None:
    """Once its loop had ended there was no time to say it at: the seed failed by a RuntimeError of the simulation."""
    with judge_unexpected_errors(judged.oracle):
        pass
    assert judged.oracle.violations == []
    with judge_unexpected_errors(judged.oracle):
        metrics.DECISIONS_FAILED.inc()
        metrics.WORK_FAILED.labels("propagator", "cluster").inc()
    assert [one.partition(" s: ")[2][:19] for one in judged.oracle.violations] == [
        "a planner met a bug",
        "a service met an un",
    ]


def test_a_kept_seed_is_the_story_of_its_day() -> None:
    """What is added to the scripts later changes none of them: each list has its place among the additions."""
    assert sum(len(kept) for kept, _ in DAYS) == len(KEPT)
    assert script_of(2034).scaled == ()
    assert script_of(41094).scaled != ()
    assert script_of(500564).lending is None
    assert script_of(630098).lending is not None
