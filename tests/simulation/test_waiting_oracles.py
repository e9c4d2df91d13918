"""What the checks of freezes, take-backs and needs say of a few records, each beside one that they let pass."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from planner.core.manifests.policy import DEFAULT_POLICY
from sim.cluster import SimCluster
from sim.settings import NodeSpec, Taint
from spillway.events import (
    BrakeReleased,
    BrakeSet,
    CapacityNeeded,
    DecisionRecorded,
    PlacementDecided,
    WorkloadDeclared,
)
from spillway.events_lending import CAUSE_NEED, NodeRecalled
from spillway.lending_marks import LENDING, LOAN
from spillway.model import Generation, Part
from spillway_local.fleet_plan import deployment
from spillway_local.in_process import FLEET_ID
from spillway_simulation import brake_oracle, need_oracle, removals, take_backs
from spillway_simulation.beliefs import waits_for_config
from spillway_simulation.brake_oracle import BrakeOracle
from spillway_simulation.brownfield import DEPLOYMENTS, NAMESPACE, plant_deployment, request_by_hand, scale_by_hand
from spillway_simulation.convergence import is_begun_roll_stuck, room_beside_rolls
from spillway_simulation.dependencies import manifest_naming_objects
from spillway_simulation.lending_script import MINE
from spillway_simulation.members import pods_of, room_for_pods
from spillway_simulation.need_oracle import NeedOracle
from spillway_simulation.script import Found
from spillway_simulation.sights import Sights
from spillway_simulation.take_backs import TAKE_BACK, TakeBacks

NAME, MEMBER, NODE = "web", "own-1", "own-1-n0"
KEY = (NAMESPACE, NAME)
PLANTED = Generation(0, 1)


class Judges(NamedTuple):
    member: SimCluster
    sights: Sights
    brakes: BrakeOracle
    take_backs: TakeBacks
    needs: NeedOracle
    said: list[str]
    cpu: dict[tuple[str, str], int]
    """By workload, what a replica asks for."""

    async def look_at_member(self) -> None:
        """Once its scheduler has done what it can, in virtual time."""
        await asyncio.sleep(1)
        self.member.advance_clock()
        self.sights.note_pods(asyncio.get_running_loop().time())


@pytest.fixture
async def judges(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Judges]:
    """web has two pods, which run, on a node of a core for each; what the checks wait for is over at once."""
    monkeypatch.setattr(brake_oracle, "STOPS_SECONDS", -1.0)
    monkeypatch.setattr(need_oracle, "FROZEN_HEARD_SECONDS", 0.0)
    monkeypatch.setattr(take_backs, "WAITS_SECONDS", -1.0)
    async with SimCluster(MEMBER) as member:
        said: list[str] = []
        member.add_nodes([NodeSpec("own-1-n", 1, 2000)])
        plant_deployment(member, Found(NAME, 1000, ((MEMBER, 2),), FLEET_ID))
        clusters, brakes = {MEMBER: member}, BrakeOracle(said.append)
        sights = Sights(clusters)
        cpu = {KEY: 1000}
        needs = NeedOracle(
            clusters,
            sights,
            brakes,
            said.append,
            lambda key, _since: cpu[key],
            lambda _cluster: {KEY: 2},
            lambda _key: 1,
        )
        decided_at = asyncio.get_running_loop().time
        judge = TakeBacks(clusters, sights, said.append, lambda _cluster, _found: False, decided_at)
        judges = Judges(member, sights, brakes, judge, needs, said, cpu)
        await judges.look_at_member()
        assert sights.pods_bound_since(MEMBER, KEY, asyncio.get_running_loop().time()) == 2
        yield judges


def placement_event(kept: int, leaving: int = 0, version: Generation = PLANTED) -> PlacementDecided:
    part = Part(MEMBER, version, kept + leaving, 0, kept + leaving, False, replicas_leaving=leaving)
    return PlacementDecided(NAMESPACE, NAME, version, 1, (part,), 0, "")


def recall_event(replicas: int, node: str = NODE) -> NodeRecalled:
    whom = (f"{MEMBER}/{NAMESPACE}/{NAME}",)
    return NodeRecalled(
        MEMBER, node, Generation(1, 1), Generation(1, 1), CAUSE_NEED, whom, 1, 0, "", "", 0, (replicas,)
    )


@pytest.mark.parametrize("scope", ["fleet", f"cluster/{MEMBER}", f"workload/{NAMESPACE}/{NAME}"])
async def test_nothing_moves_out_of_what_is_frozen(judges: Judges, scope: str) -> None:
    judges.brakes.on_event(BrakeSet(scope, "", "", 0))
    judges.brakes.judge_placement("Scale", placement_event(2), placement_event(1, 1))
    assert judges.said == []
    judges.brakes.judge_placement("Drain", placement_event(2), placement_event(1, 1))
    assert "2 kept, then 1, by Drain" in judges.said[0]
    judges.brakes.on_event(BrakeReleased(scope, "", 0))
    judges.brakes.judge_placement("Drain", placement_event(2), placement_event(1, 1))
    assert len(judges.said) == 1


async def test_what_runs_is_not_taken_back(judges: Judges) -> None:
    scale_by_hand(judges.member, NAME, 3)
    await judges.look_at_member()
    judges.take_backs.judge_placement("Apply", None, placement_event(3))
    judges.take_backs.judge_placement(TAKE_BACK, placement_event(3), placement_event(2, 1))
    assert judges.said == []
    judges.take_backs.judge_placement(TAKE_BACK, placement_event(3), placement_event(1, 2))
    assert "2 of 3 taken back, and 2 ran there all the time" in judges.said[0]


async def test_nothing_is_placed_where_some_were_just_taken_back(
    judges: Judges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(take_backs, "SLACK_SECONDS", 0.0)
    scale_by_hand(judges.member, NAME, 4)
    await judges.look_at_member()
    judges.take_backs.judge_placement("Apply", None, placement_event(4), 500)
    judges.take_backs.judge_placement(TAKE_BACK, placement_event(4), placement_event(2), 500)
    judges.take_backs.judge_placement("Apply", placement_event(2), placement_event(3), 250)
    assert judges.said == [], "another shape"
    judges.take_backs.judge_placement("Apply", placement_event(2), placement_event(3), 500)
    assert "after some were taken back" in judges.said[0]
    judges.take_backs.note_turn_taken()
    judges.take_backs.judge_placement("Apply", placement_event(2), placement_event(3), 500)
    assert len(judges.said) == 1, "who takes over knows of no hold"
    judges.take_backs.judge_placement(TAKE_BACK, placement_event(4), placement_event(2), 500)
    judges.member.add_nodes([NodeSpec("own-1-late-", 1, 2000)])
    judges.member.advance_clock()
    await judges.look_at_member()
    judges.take_backs.judge_placement("Apply", placement_event(2), placement_event(3), 500)
    assert len(judges.said) == 1, "a pod was bound since"


async def test_a_pause_begins_when_the_take_back_was_decided(judges: Judges) -> None:
    """Its record may have waited for the log."""
    scale_by_hand(judges.member, NAME, 4)
    await judges.look_at_member()
    decided_at = asyncio.get_running_loop().time() - take_backs.HOLD_SECONDS
    clusters = {MEMBER: judges.member}
    judge = TakeBacks(clusters, judges.sights, judges.said.append, lambda _cluster, _found: False, lambda: decided_at)
    judge.judge_placement("Apply", None, placement_event(4), 500)
    judge.judge_placement(TAKE_BACK, placement_event(4), placement_event(2), 500)
    judge.judge_placement("Apply", placement_event(2), placement_event(3), 500)
    assert judges.said == []


async def test_what_runs_may_be_taken_back_where_nobody_could_hear_of_it(judges: Judges) -> None:
    scale_by_hand(judges.member, NAME, 3)
    await judges.look_at_member()
    judges.take_backs.judge_placement("Apply", None, placement_event(3))
    judges.sights.note_versions_restarted(MEMBER, asyncio.get_running_loop().time())
    judges.take_backs.judge_placement(TAKE_BACK, placement_event(3), placement_event(1, 2))
    assert judges.said == []


@pytest.mark.parametrize(("heard_seconds", "said"), [(-1.0, ["2 run there"]), (3600.0, [])])
async def test_what_runs_is_not_lowered_for_what_is_missing_once_the_planner_could_hear_of_it(
    judges: Judges, monkeypatch: pytest.MonkeyPatch, heard_seconds: float, said: list[str]
) -> None:
    monkeypatch.setattr(removals, "HEARD_SECONDS", heard_seconds)
    later, runs = Generation(0, 2), judges.sights.pods_bound_since
    judge = removals.Removals({MEMBER: judges.member}, judges.said.append, lambda _: False, lambda *_: False, runs)
    manifest = deployment(NAME, NAMESPACE, 2, cpu="1000m", memory="64Mi").encode()
    declared = WorkloadDeclared(NAMESPACE, NAME, "Deployment", 1, 1, manifest, 2, DEFAULT_POLICY, (), (), (), False)
    judge.judge_placement(None, placement_event(2), declared)
    judge.note_decision(DecisionRecorded(NAMESPACE, NAME, later, 0, "DependencyMissing", 2, 2, (), (), "", ""))
    judge.judge_placement(placement_event(2), placement_event(0, version=later), declared)
    assert [one.rsplit(": ", 1)[1] for one in judges.said] == said


async def test_what_its_cluster_has_not_heard_of_is_not_taken_back(judges: Judges) -> None:
    later = Generation(0, 2)
    judges.take_backs.judge_placement("Scale", placement_event(2), placement_event(3, version=later))
    judges.take_backs.judge_placement(TAKE_BACK, placement_event(3, version=later), placement_event(2, 1, later))
    assert "the object has not heard of that part yet" in judges.said[0]


async def test_nothing_is_taken_back_before_its_time(judges: Judges, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(take_backs, "WAITS_SECONDS", 15.0)
    judges.take_backs.judge_placement("Apply", None, placement_event(2))
    judges.take_backs.judge_placement(TAKE_BACK, placement_event(2), placement_event(1, 1))
    assert "1 taken back 0.0 s after the part was decided" in judges.said[0]


async def test_no_more_wait_for_lent_nodes_than_these_would_take(judges: Judges) -> None:
    judges.member.taint(NODE, Taint(LENDING, "lent"))
    judges.needs.on_event(CapacityNeeded(*KEY, MEMBER, Generation(1, 1), 2, 0))
    assert judges.said == []
    judges.needs.on_event(CapacityNeeded(*KEY, MEMBER, Generation(1, 2), 3, 0))
    assert "3 wait for lent nodes of own-1, which would take 2" in judges.said[0]


@pytest.mark.parametrize(("needed", "waiting", "recalled", "is_well"), [(2, 2, 2, True), (2, 2, 3, False)])
async def test_no_more_is_recalled_than_is_needed_or_waits(
    judges: Judges, needed: int, waiting: int, recalled: int, is_well: bool
) -> None:
    """The larger of both, and not the sum."""
    judges.member.taint(NODE, Taint(LENDING, "lent"))
    scale_by_hand(judges.member, NAME, 2 + waiting)
    await judges.look_at_member()
    judges.needs.on_event(CapacityNeeded(*KEY, MEMBER, Generation(1, 1), needed, 0))
    judges.needs.on_event(recall_event(recalled))
    said = [f"{recalled}, {needed} were needed, and {waiting} pods waited"]
    assert [text.partition("recalled for ")[2] for text in judges.said] == ([] if is_well else said)


@pytest.mark.parametrize("cordoned", [True, False])
async def test_a_recalled_node_that_somebody_cordons_serves_nobody(judges: Judges, cordoned: bool) -> None:
    """So another one is recalled for the same pods."""
    judges.member.taint(NODE, Taint(LENDING, "lent"))
    loan = {"metadata": {"annotations": {LOAN: str(Generation(1, 1))}}}
    request_by_hand(judges.member, "PATCH", f"/api/v1/nodes/{NODE}", loan)
    judges.member.cordon(NODE, unschedulable=cordoned)
    scale_by_hand(judges.member, NAME, 4)
    await judges.look_at_member()
    judges.needs.on_event(recall_event(2))
    judges.needs.on_event(recall_event(2, "own-1-n1"))
    said = ["4, 0 were needed, and 2 pods waited"]
    assert [text.partition("recalled for ")[2] for text in judges.said] == ([] if cordoned else said)


@pytest.mark.parametrize(("cpu", "is_well"), [(1500, True), (1000, False)])
async def test_what_comes_back_takes_fewer_replicas_that_have_grown(judges: Judges, cpu: int, is_well: bool) -> None:
    """The first node was recalled for two of them, and takes one that asks for more than half of it."""
    judges.member.taint(NODE, Taint(LENDING, "lent"))
    loan = {"metadata": {"annotations": {LOAN: str(Generation(1, 1))}}}
    request_by_hand(judges.member, "PATCH", f"/api/v1/nodes/{NODE}", loan)
    scale_by_hand(judges.member, NAME, 4)
    await judges.look_at_member()
    judges.needs.on_event(recall_event(2))
    judges.cpu[KEY] = cpu
    judges.needs.on_event(recall_event(1, "own-1-n1"))
    said = ["3, 0 were needed, and 2 pods waited"]
    assert [text.partition("recalled for ")[2] for text in judges.said] == ([] if is_well else said)


async def test_nothing_is_lent_or_recalled_for_a_need_in_a_freeze(judges: Judges) -> None:
    scale_by_hand(judges.member, NAME, 4)
    await judges.look_at_member()
    judges.needs.on_event(recall_event(2))
    judges.needs.judge_node_taken(MEMBER, NODE)
    assert judges.said == []
    judges.brakes.on_event(BrakeSet("fleet", "", "", 0))
    await asyncio.sleep(1)
    judges.needs.on_event(recall_event(2))
    judges.needs.judge_node_taken(MEMBER, NODE)
    assert ["recalled for a need, and it is frozen" in judges.said[0], "taken to be lent" in judges.said[1]] == [
        True
    ] * 2


def run_own_pods(member: SimCluster, replicas: int) -> None:
    """Pods of a core each, of the cluster's own."""
    made = json.loads(deployment(MINE, MINE, replicas, cpu="1000m", memory="64Mi"))
    request_by_hand(
        member, "POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": MINE}}
    )
    request_by_hand(member, "POST", f"/apis/apps/v1/namespaces/{MINE}/deployments", made)


async def roll_beside_own_pods(member: SimCluster, own_pods: int, grows_to: int) -> None:
    """A pod of 250m on a node of two cores, then pods of the cluster's own; then its template asks for so much."""
    member.add_nodes([NodeSpec("own-1-n", 1, 2000)])
    plant_deployment(member, Found(NAME, 250, ((MEMBER, 1),), FLEET_ID))
    run_own_pods(member, 1)
    await asyncio.sleep(1)
    member.advance_clock()
    request_by_hand(
        member, "PATCH", f"/apis/apps/v1/namespaces/{MINE}/deployments/{MINE}", {"spec": {"replicas": own_pods}}
    )
    container = json.loads(deployment(NAME, NAMESPACE, 1, cpu=f"{grows_to}m", memory="64Mi"))["spec"]["template"]
    request_by_hand(member, "PATCH", f"{DEPLOYMENTS}/{NAME}", {"spec": {"template": container}})
    await asyncio.sleep(1)
    member.advance_clock()


@pytest.mark.parametrize(("own_pods", "grows_to", "room"), [(2, 1000, 0), (1, 1000, 0), (1, 500, 1), (2, 250, 1)])
async def test_a_roll_that_stands_holds_what_its_old_pod_lacks(own_pods: int, grows_to: int, room: int) -> None:
    """750m are free. Nothing is held where the roll's own pod has a place, nor where nothing rolls."""
    async with SimCluster(MEMBER) as member:
        await roll_beside_own_pods(member, own_pods, grows_to)
        assert room_for_pods(member, 500) == 1
        assert room_beside_rolls(member, [NAME], 500) == room


@pytest.mark.parametrize(("own_pods", "grows_to", "stands"), [(2, 1000, True), (1, 500, False), (2, 250, False)])
async def test_a_roll_stands_half_done_where_no_node_takes_its_waiting_pod(
    own_pods: int, grows_to: int, stands: bool
) -> None:
    """750m are free. Nor does it stand once a node is there that would take the pod."""
    async with SimCluster(MEMBER) as member:
        await roll_beside_own_pods(member, own_pods, grows_to)
        assert is_begun_roll_stuck(member, NAME) == stands
        member.add_nodes([NodeSpec("own-1-late-", 1, 2000)])
        assert not is_begun_roll_stuck(member, NAME)


async def test_a_pod_waits_for_what_it_mounts_for_as_long_as_that_is_missing() -> None:
    """Its reason, ContainerCreating, says no more than that it begins."""
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": NAMESPACE}}
    places = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    manifest = json.loads(
        manifest_naming_objects(deployment(NAME, NAMESPACE, 1, cpu="250m", memory="64Mi"), (("ConfigMap", "c"),))
    )
    async with SimCluster(MEMBER) as member:
        member.add_nodes([NodeSpec("own-1-n", 1, 2000)])
        request_by_hand(member, "POST", "/api/v1/namespaces", namespace)
        request_by_hand(member, "POST", DEPLOYMENTS, manifest)
        await asyncio.sleep(1)
        member.advance_clock()
        (pod,) = pods_of(member, NAMESPACE, NAME)
        assert waits_for_config(member, pod)
        request_by_hand(member, "POST", places, config)
        assert not waits_for_config(member, pod)
        await asyncio.sleep(60)
        member.advance_clock()
        request_by_hand(member, "DELETE", f"{places}/c")
        (pod,) = pods_of(member, NAMESPACE, NAME)
        assert not waits_for_config(member, pod), "it runs"
