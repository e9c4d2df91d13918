"""The service on the bus in memory and on simulated clusters, in virtual time."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from sim.manifests import deployment
from sim.rest import SimTransport
from sim.settings import Faults, NodeSpec
from snapshot.core.collection import Collection
from spillway import metrics
from spillway.addresses import CAPACITY, CAPACITY_CHANGES, PENDING, SCALE_POLICIES, Tombstone, workload_address
from spillway.clusters.api import DEPLOYMENTS, ClusterApi, ClusterApiSettings
from spillway.events import (
    PHASE_CORDONED,
    CapacityChanged,
    CapacityReported,
    ClusterJoined,
    ClusterLeft,
    PodsScheduled,
    PodsUnschedulable,
    TurnTaken,
)
from spillway.events_scaling import ScalePolicyDeclared
from spillway.model import Generation
from spillway.troubles import TroubleCode

pytestmark = pytest.mark.looptime
FACTS_KEY = ("default", "web")


def api_of_cluster(fleet: Any, name: str) -> ClusterApi:
    return ClusterApi(SimTransport(fleet.clusters[name]), name, ClusterApiSettings())


async def create_deployment(fleet: Any, cluster: str, replicas: int, cpu: str = "500m") -> None:
    manifest = deployment("web", replicas, cpu=cpu)
    manifest["metadata"] |= {
        "namespace": "default",
        "labels": {"spillway.io/fleet": "f1", "spillway.io/workload": "default.web"},
        "annotations": {"spillway.io/placement": "7.3"},
    }
    await api_of_cluster(fleet, cluster).create(DEPLOYMENTS, manifest)


async def test_a_joined_cluster_becomes_a_claim_and_a_whole_block(make_fleet: Any) -> None:
    async with make_fleet() as fleet:
        await fleet.join_cluster("own-1", nodes=3)
        fleet.start("s1")
        await asyncio.sleep(3)
        records = fleet.records_of_cluster("own-1")
        claim = next(record for record in records if isinstance(record.event, TurnTaken))
        reader = fleet.reader_of_cluster("own-1")
        assert reader.epoch == claim.offset
        assert reader.row_by_node.keys() == {"own-1-0", "own-1-1", "own-1-2"}
        assert reader.row_by_node["own-1-0"].allocatable["cpu"] == 4_000
        assert (reader.trouble, reader.gaps) == ("", 0)
        assert 0 <= reader.age_ms <= 2_100


async def test_a_node_that_is_added_or_goes_is_said_within_a_quarter_second(make_fleet: Any) -> None:
    async with make_fleet() as fleet:
        cluster = await fleet.join_cluster("own-1")
        fleet.start("s1")
        await asyncio.sleep(3)
        cluster.add_nodes([NodeSpec("late-")])
        await asyncio.sleep(0.25)
        assert "late-0" in fleet.reader_of_cluster("own-1").row_by_node
        cluster.remove_node("late-0")
        await asyncio.sleep(0.25)
        reader = fleet.reader_of_cluster("own-1")
        assert ("late-0" in reader.row_by_node, reader.gaps, reader.fulls) == (False, 0, 1)


async def test_what_pods_hold_and_what_is_counted_come_together(make_fleet: Any) -> None:
    async with make_fleet() as fleet:
        await fleet.join_cluster("own-1")
        fleet.start("s1")
        await asyncio.sleep(3)
        await create_deployment(fleet, "own-1", 6)
        await asyncio.sleep(3)
        reader = fleet.reader_of_cluster("own-1")
        assert sum(row.requested.get("cpu", 0) for row in reader.row_by_node.values()) == 3_000
        assert sum(row.requested.get("pods", 0) for row in reader.row_by_node.values()) == 6
        facts = reader.facts[FACTS_KEY]
        assert (facts.version, facts.spec_replicas, facts.observed_current) == (Generation(7, 3), 6, True)
        assert [count for _, count in facts.counted] == [6]


async def test_pods_that_wait_and_no_longer_wait(make_fleet: Any) -> None:
    async with make_fleet() as fleet:
        cluster = await fleet.join_cluster("own-1", nodes=1)
        fleet.start("s1")
        await asyncio.sleep(3)
        await create_deployment(fleet, "own-1", 10)
        await asyncio.sleep(3)
        event = fleet.events_of_kind("own-1", PodsUnschedulable)[-1]
        assert (event.group, event.workload, event.pods) == ("default/web", "default/web", 2)
        assert "cpu" in event.reason
        cluster.add_nodes([NodeSpec("late-", cpu_millis=4_000)])
        await asyncio.sleep(3)
        assert [event.group for event in fleet.events_of_kind("own-1", PodsScheduled)] == ["default/web"]


@pytest.mark.parametrize(
    ("faults", "words", "code"),
    [
        pytest.param(Faults(silent=True), "timeout", TroubleCode.UNREACHABLE, id="silent"),
        pytest.param(Faults(unauthorized=True), "unauthorized", TroubleCode.NOT_ALLOWED, id="401"),
        pytest.param(Faults(garbage=True), "garbage", TroubleCode.UNREACHABLE, id="garbage"),
    ],
)
async def test_an_unreachable_cluster_keeps_its_rows_and_ages(
    make_fleet: Any, faults: Faults, words: str, code: TroubleCode
) -> None:
    async with make_fleet() as fleet:
        cluster, _ = await fleet.join_cluster("own-1"), await fleet.join_cluster("own-2")
        fleet.start("s1")
        await asyncio.sleep(5)
        cluster.set_faults(faults)
        await asyncio.sleep(60)
        reader, other = fleet.reader_of_cluster("own-1"), fleet.reader_of_cluster("own-2")
        assert len(reader.row_by_node) == 3
        assert words in reader.trouble
        assert reader.trouble_code == code
        assert 55_000 <= reader.age_ms <= 65_000
        assert (other.trouble, other.age_ms < 2_500) == ("", True)
        cluster.set_faults(Faults())
        await asyncio.sleep(45)
        reader = fleet.reader_of_cluster("own-1")
        assert (reader.trouble, reader.age_ms < 2_500, reader.gaps) == ("", True, 0)
        assert reader.trouble_code == TroubleCode.UNSPECIFIED


async def test_a_list_that_lost_its_nodes_is_not_believed_at_once(make_fleet: Any) -> None:
    async with make_fleet() as fleet:
        cluster = await fleet.join_cluster("own-1", nodes=6)
        fleet.start("s1")
        await asyncio.sleep(5)
        cluster.set_faults(Faults(silent=True))
        for index in range(5):
            cluster.remove_node(f"own-1-{index}")
        cluster.expire_history()
        cluster.set_faults(Faults())
        await asyncio.sleep(20)
        reader = fleet.reader_of_cluster("own-1")
        assert len(reader.row_by_node) == 6
        assert "lost 5 of 6" in reader.trouble
        assert reader.trouble_code == TroubleCode.NODES_DOUBTED
        assert reader.age_ms > 15_000
        await asyncio.sleep(60)
        reader = fleet.reader_of_cluster("own-1")
        assert (len(reader.row_by_node), reader.trouble, reader.age_ms < 2_500) == (1, "", True)


async def test_a_cluster_that_cannot_be_connected_does_not_disturb_the_others(make_fleet: Any) -> None:
    async with make_fleet() as fleet:
        fleet.refused.add("wrong")
        await fleet.join_cluster("own-1", credential="wrong")
        await fleet.join_cluster("own-2")
        fleet.start("s1", lists_at_once=1)
        await asyncio.sleep(10)
        reader = fleet.reader_of_cluster("own-1")
        assert (reader.epoch, reader.age_ms, reader.trouble) == (-1, -1, "connect: credential: wrong: no such file")
        assert reader.trouble_code == TroubleCode.NOT_ALLOWED
        assert len(fleet.reader_of_cluster("own-2").row_by_node) == 3
        await fleet.join_cluster("own-1", credential="right")
        await asyncio.sleep(3)
        reader = fleet.reader_of_cluster("own-1")
        assert (len(reader.row_by_node), reader.trouble) == (3, "")


async def test_a_silent_cluster_does_not_keep_others_from_their_first_list(make_fleet: Any) -> None:
    async with make_fleet() as fleet:
        cluster = await fleet.join_cluster("own-1")
        cluster.set_faults(Faults(silent=True))
        await fleet.join_cluster("own-2")
        fleet.start("s1", lists_at_once=1)
        await asyncio.sleep(15)
        assert len(fleet.reader_of_cluster("own-2").row_by_node) == 3


async def test_a_second_instance_shares_and_takes_over(make_fleet: Any) -> None:
    async with make_fleet() as fleet:
        for index in range(6):
            await fleet.join_cluster(f"own-{index}")
        fleet.start("s1")
        await asyncio.sleep(3)
        fleet.start("s2")
        await asyncio.sleep(3)
        first, second = fleet.instances["s1"][0], fleet.instances["s2"][0]
        assert first.collectors
        assert second.collectors
        assert first.collectors.keys().isdisjoint(second.collectors)
        assert len(first.collectors) + len(second.collectors) == 6
        await fleet.stop("s1")
        await asyncio.sleep(3)
        for index in range(6):
            reader = fleet.reader_of_cluster(f"own-{index}")
            claims = [
                record for record in fleet.records_of_cluster(f"own-{index}") if isinstance(record.event, TurnTaken)
            ]
            assert claims[-1].event.instance == "s2"
            assert (reader.epoch, len(reader.row_by_node), reader.gaps) == (claims[-1].offset, 3, 0)


async def test_the_records_of_a_frozen_owner_are_answered(make_fleet: Any) -> None:
    """A lower epoch behind ours: the key's current state is written again; where there is none, that is said."""
    async with make_fleet() as fleet:
        await fleet.join_cluster("own-1")
        await fleet.bus.publish(TurnTaken("snapshot", "own-1", "frozen"))
        fleet.start("s1")
        await asyncio.sleep(5)
        fulls = len(fleet.events_of_kind("own-1", CapacityReported))
        await fleet.bus.publish(
            CapacityReported("own-1", 0, 0, 2, 9, 0, b"", ()),
            CapacityReported("own-1", 0, 1, 2, 9, 0, b"", ()),
            PodsUnschedulable("own-1", "default/gone", 0, 9, "", 3, "old"),
        )
        await asyncio.sleep(5)
        assert len(fleet.events_of_kind("own-1", CapacityReported)) == fulls + 3
        last = {(record.topic, record.key): record.event for record in fleet.records_of_cluster("own-1")}
        assert last[CAPACITY.name, "own-1/0"].epoch == fleet.reader_of_cluster("own-1").epoch
        assert last[CAPACITY.name, "own-1/1"] is None
        assert isinstance(last[PENDING.name, "own-1/default/gone"], PodsScheduled)
        count = len(fleet.said)
        await asyncio.sleep(1)
        assert len(fleet.said) - count <= 1  # One heartbeat: the answer is given once.


async def test_what_an_owner_before_left_in_the_log_is_put_right(make_fleet: Any) -> None:
    async with make_fleet() as fleet:
        await fleet.bus.publish(
            TurnTaken("snapshot", "own-1", "before"),
            CapacityReported("own-1", 0, 3, 4, 9, 0, b"", ()),
            PodsUnschedulable("own-1", "default/gone", 0, 9, "", 3, "old"),
        )
        await fleet.join_cluster("own-1")
        fleet.start("s1")
        await asyncio.sleep(5)
        last = {(record.topic, record.key): record.event for record in fleet.records_of_cluster("own-1")}
        assert last[CAPACITY.name, "own-1/3"] is None
        assert isinstance(last[PENDING.name, "own-1/default/gone"], PodsScheduled)


async def test_a_higher_claim_ends_a_collector_and_the_group_decides_later(make_fleet: Any) -> None:
    async with make_fleet() as fleet:
        await fleet.join_cluster("own-1")
        fleet.start("s1")
        await asyncio.sleep(5)
        (position,) = await fleet.bus.publish(TurnTaken("snapshot", "own-1", "another"))
        await asyncio.sleep(9)
        own = [
            r
            for r in fleet.records_of_cluster("own-1")
            if r.topic == CAPACITY_CHANGES.name and r.offset > position.offset
        ]
        assert own == []
        assert not fleet.instances["s1"][0].collectors
        await asyncio.sleep(10)
        assert fleet.turn_claims("own-1") == ["s1", "another", "s1"]
        assert fleet.reader_of_cluster("own-1").epoch > position.offset


async def test_a_claim_of_our_name_that_is_not_in_use_is_followed_by_another(make_fleet: Any) -> None:
    """It was thought lost and came late, or there is a namesake: behind it readers would drop our records."""
    async with make_fleet() as fleet:
        await fleet.join_cluster("own-1")
        fleet.start("s1")
        await asyncio.sleep(5)
        (position,) = await fleet.bus.publish(TurnTaken("snapshot", "own-1", "s1"))
        await asyncio.sleep(9)
        assert fleet.turn_claims("own-1") == ["s1", "s1"]
        await asyncio.sleep(6)
        assert fleet.turn_claims("own-1") == ["s1", "s1", "s1"]
        assert fleet.reader_of_cluster("own-1").epoch > position.offset


async def test_while_the_log_is_away_collecting_goes_on(make_fleet: Any) -> None:
    async with make_fleet() as fleet:
        cluster = await fleet.join_cluster("own-1")
        fleet.start("s1")
        await asyncio.sleep(5)
        fleet.broker.unavailable = True
        cluster.add_nodes([NodeSpec("late-")])
        await asyncio.sleep(30)
        fulls = len(fleet.events_of_kind("own-1", CapacityReported))
        fleet.broker.unavailable = False
        await asyncio.sleep(10)
        reader = fleet.reader_of_cluster("own-1")
        assert len(fleet.events_of_kind("own-1", CapacityReported)) > fulls
        assert "late-0" in reader.row_by_node
        assert (reader.trouble, reader.age_ms < 2_500) == ("", True)
        assert fleet.turn_claims("own-1") == ["s1"]


async def test_a_cluster_that_left_leaves_nothing(make_fleet: Any) -> None:
    async with make_fleet() as fleet:
        await fleet.join_cluster("own-1", nodes=1)
        fleet.start("s1")
        await create_deployment(fleet, "own-1", 20)
        await asyncio.sleep(5)
        assert fleet.events_of_kind("own-1", PodsUnschedulable)
        await fleet.bus.publish(ClusterLeft("own-1"))
        await asyncio.sleep(3)
        last = {
            (r.topic, r.key): r.event for r in fleet.records_of_cluster("own-1") if r.topic != CAPACITY_CHANGES.name
        }
        assert set(last.values()) == {None}
        count = len(fleet.records_of_cluster("own-1"))
        await asyncio.sleep(30)
        assert len(fleet.records_of_cluster("own-1")) == count
        await fleet.join_cluster("own-1")
        await asyncio.sleep(3)
        assert len(fleet.reader_of_cluster("own-1").row_by_node) == 1


async def test_a_cluster_that_left_and_joined_between_two_readings_is_said_whole_again(make_fleet: Any) -> None:
    """Readers have dropped what they knew of it; a change of its phase is no other cluster."""
    async with make_fleet() as fleet:
        await fleet.join_cluster("own-1", nodes=1)
        fleet.start("s1")
        await asyncio.sleep(5)
        joined = ClusterJoined("own-1", "own-1", "", "own", "r", "z", (), (), joined_at=Generation(7, 1))
        left_at = len(fleet.said)
        await fleet.bus.publish(ClusterLeft("own-1"), joined)
        await asyncio.sleep(5)
        assert fleet.turn_claims("own-1") == ["s1", "s1"]
        reader = fleet.reader_of_cluster("own-1", since=left_at)
        assert (len(reader.row_by_node), reader.trouble) == (1, "")
        await fleet.bus.publish(replace(joined, phase=PHASE_CORDONED))
        await asyncio.sleep(5)
        assert fleet.turn_claims("own-1") == ["s1", "s1"]


async def test_a_cluster_that_is_reached_in_another_way_is_the_same_cluster(make_fleet: Any) -> None:
    """What is known of it, and for how long its nodes have been idle, stays known."""
    async with make_fleet() as fleet:
        await fleet.join_cluster("own-1", nodes=1)
        fleet.start("s1")
        await asyncio.sleep(5)
        await fleet.bus.publish(ClusterJoined("own-1", "another", "https://[::1]:6443", "own", "r", "z", (), ()))
        await asyncio.sleep(5)
        assert fleet.turn_claims("own-1") == ["s1"]


async def test_a_stop_writes_what_is_known_and_leaves(make_fleet: Any) -> None:
    async with make_fleet() as fleet:
        cluster = await fleet.join_cluster("own-1")
        fleet.start("s1", gather_seconds=2.0)
        await asyncio.sleep(6)
        cluster.add_nodes([NodeSpec("late-")])
        await asyncio.sleep(0.2)
        assert "late-0" not in fleet.reader_of_cluster("own-1").row_by_node
        await fleet.stop("s1")
        await asyncio.sleep(1)
        assert "late-0" in fleet.reader_of_cluster("own-1").row_by_node


async def test_a_cluster_that_grows_over_its_blocks_gets_a_new_epoch(make_fleet: Any) -> None:
    async with make_fleet() as fleet:
        cluster = await fleet.join_cluster("own-1", nodes=3)
        fleet.start("s1", block_nodes_max=3)
        await asyncio.sleep(3)
        cluster.add_nodes([NodeSpec("late-", 5)])
        await asyncio.sleep(3)
        assert fleet.turn_claims("own-1") == ["s1", "s1"]
        reader = fleet.reader_of_cluster("own-1")
        assert len(reader.row_by_node) == 8
        assert len(reader.rows) >= 3
        assert max(len(block) for block in reader.rows.values()) <= 3


async def test_watches_that_expire_or_end_lose_nothing(make_fleet: Any) -> None:
    async with make_fleet() as fleet:
        cluster = await fleet.join_cluster("own-1")
        fleet.start("s1")
        await create_deployment(fleet, "own-1", 2)
        await asyncio.sleep(5)
        for name, disturb in enumerate((cluster.expire_history, cluster.drop_watches, cluster.expire_history)):
            disturb()
            cluster.add_nodes([NodeSpec(f"late-{name}-")])
            await asyncio.sleep(10)
        reader = fleet.reader_of_cluster("own-1")
        assert len(reader.row_by_node) == 6
        assert (reader.gaps, reader.trouble, reader.facts[FACTS_KEY].spec_replicas) == (0, "", 2)


async def test_an_unreadable_record_is_left_aside(make_fleet: Any) -> None:
    async with make_fleet() as fleet:
        await fleet.join_cluster("own-1")
        for topic in (CAPACITY, CAPACITY_CHANGES, PENDING):
            fleet.broker.append_raw_record(topic, 0, b"own-1/0", b"\xff\xff", (("ce_type", b"spillway.v1.Unknown"),))
        fleet.start("s1")
        await asyncio.sleep(5)
        assert len(fleet.reader_of_cluster("own-1").row_by_node) == 3


async def test_an_error_at_one_cluster_ends_no_other_ones_capacity(
    make_fleet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    upserted, failed = Collection.upsert_objects, metrics.WORK_FAILED.labels("snapshot", "cluster")

    def upsert_unless_first_cluster(self: Collection, *more: Any) -> None:
        assert self.cluster != "own-1", "a bug"
        upserted(self, *more)

    async with make_fleet() as fleet:
        for name in ("own-1", "own-2"):
            await fleet.join_cluster(name)
        fleet.start("s1")
        await asyncio.sleep(3)
        before = failed._value.get()
        with monkeypatch.context() as patched:
            patched.setattr(Collection, "upsert_objects", upsert_unless_first_cluster)
            for name in ("own-1", "own-2"):
                fleet.clusters[name].add_nodes([NodeSpec("late-")])
            await asyncio.sleep(0.7)
            assert failed._value.get() == before + 1
            assert [name for name in ("own-1", "own-2") if "late-0" in fleet.reader_of_cluster(name).row_by_node] == [
                "own-2"
            ]
        await asyncio.sleep(60)
        assert "late-0" in fleet.reader_of_cluster("own-1").row_by_node
        assert len(fleet.records_of_cluster("own-1")) > len(fleet.events_of_kind("own-1", TurnTaken)) > 1


async def test_heartbeats_tell_the_age_every_two_seconds(make_fleet: Any) -> None:
    async with make_fleet() as fleet:
        await fleet.join_cluster("own-1")
        fleet.start("s1")
        await asyncio.sleep(5)
        before = len(fleet.events_of_kind("own-1", CapacityChanged))
        await asyncio.sleep(20)
        beats = fleet.events_of_kind("own-1", CapacityChanged)[before:]
        assert 9 <= len(beats) <= 11
        assert all(beat.index == 0 and not beat.columns and 0 <= beat.age_ms < 2_500 for beat in beats)


async def test_after_records_that_were_late_the_age_is_said_at_once(make_fleet: Any) -> None:
    """Seed 856637: they bore the age of before a freeze, and readers went by that until the next heartbeat."""
    async with make_fleet() as fleet:
        await fleet.join_cluster("own-1")
        fleet.start("s1")
        await asyncio.sleep(5)
        count = len(fleet.events_of_kind("own-1", CapacityChanged))
        _, bus, _, _ = fleet.instances["s1"]
        bus.waits.append(1.8)
        async with asyncio.timeout(10):
            while len(fleet.events_of_kind("own-1", CapacityChanged)) == count:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        of_before, of_now = fleet.events_of_kind("own-1", CapacityChanged)[count:]
        assert of_now.age_ms != of_before.age_ms


async def declare_policy(fleet: Any, name: str = "web") -> None:
    generation = Generation(1, 1)
    policy = ScalePolicyDeclared("default", name, generation, "HorizontalPodAutoscaler", name, b"{}", 0)
    await fleet.bus.publish(policy)


async def test_pods_of_a_scaled_workload_are_told_with_their_use(make_fleet: Any) -> None:
    async with make_fleet() as fleet:
        cluster = await fleet.join_cluster("own-1")
        fleet.start("s1")
        await create_deployment(fleet, "own-1", 2)
        await asyncio.sleep(5)
        assert fleet.pods_records("own-1") == []
        cluster.set_load("default", "web", {"cpu": 600})
        await declare_policy(fleet)
        await asyncio.sleep(1)
        said = fleet.pods_records("own-1")[-1]
        assert (said.trouble, [pod.ready for pod in said.pods]) == ("", ["true", "true"])
        assert [pod.usage[0].usage for pod in said.pods] == [(("cpu", 300),)] * 2
        assert said.requests[0].containers[0].requests == (("cpu", 500), ("memory", 64_000 << 20))
        cluster.set_load("default", "web", {"cpu": 1_000})
        await asyncio.sleep(16)
        assert [pod.usage[0].usage for pod in fleet.pods_records("own-1")[-1].pods] == [(("cpu", 500),)] * 2


@pytest.mark.parametrize("what", ["nodes", "pods"])
async def test_a_cluster_whose_account_lost_a_right_is_not_empty_and_grows_old(make_fleet: Any, what: str) -> None:
    """Its nodes and what they hold stay as they were known, and it says what is forbidden."""
    async with make_fleet() as fleet:
        cluster = await fleet.join_cluster("own-1", nodes=2)
        fleet.start("s1")
        await asyncio.sleep(3)
        await create_deployment(fleet, "own-1", 3)
        await asyncio.sleep(3)
        cluster.set_faults(Faults(forbidden=(f"GET {what}",), drop_watches=True))
        await asyncio.sleep(20)
        reader = fleet.reader_of_cluster("own-1")
        assert reader.trouble.startswith(f"{what}: forbidden: ")
        assert reader.age_ms > 15_000
        assert reader.row_by_node.keys() == {"own-1-0", "own-1-1"}
        assert sum(row.requested.get("pods", 0) for row in reader.row_by_node.values()) == 3
        assert [count for _, count in reader.facts[FACTS_KEY].counted] == [3]


@pytest.mark.parametrize(
    ("faults", "reason"),
    [
        pytest.param(Faults(metrics="absent"), "metrics: absent: ", id="no metrics API"),
        pytest.param(Faults(metrics="unavailable"), "metrics: server: ", id="its server is away"),
        pytest.param(Faults(forbidden=("GET pods.metrics.k8s.io",)), "metrics: forbidden: ", id="no right"),
        pytest.param(Faults(silent=True), "metrics: timeout: ", id="the cluster is silent"),
    ],
)
async def test_without_samples_the_trouble_is_told_and_ends(make_fleet: Any, faults: Faults, reason: str) -> None:
    async with make_fleet() as fleet:
        cluster = await fleet.join_cluster("own-1")
        fleet.start("s1")
        await create_deployment(fleet, "own-1", 2)
        cluster.set_load("default", "web", {"cpu": 600})
        await declare_policy(fleet)
        await asyncio.sleep(10)
        cluster.set_faults(faults)
        await asyncio.sleep(25)
        said = fleet.pods_records("own-1")[-1]
        assert said.trouble.startswith(reason)
        assert [pod.usage for pod in said.pods] == [(), ()]
        cluster.set_faults(Faults())
        await asyncio.sleep(25)
        said = fleet.pods_records("own-1")[-1]
        assert (said.trouble, len(said.pods[0].usage)) == ("", 1)


async def test_readiness_is_told_within_a_quarter_second(make_fleet: Any) -> None:
    async with make_fleet() as fleet:
        cluster = await fleet.join_cluster("own-1")
        fleet.start("s1")
        await declare_policy(fleet)
        await asyncio.sleep(5)
        await create_deployment(fleet, "own-1", 1)
        await asyncio.sleep(0.3)
        assert [pod.phase for pod in fleet.pods_records("own-1")[-1].pods] == ["Pending"]
        await asyncio.sleep(cluster.settings.start_delay_seconds)
        assert [pod.ready for pod in fleet.pods_records("own-1")[-1].pods] == ["true"]


async def test_the_pods_key_ends_with_the_policy_the_workload_and_the_cluster(make_fleet: Any) -> None:
    async with make_fleet() as fleet:
        await fleet.join_cluster("own-1")
        fleet.start("s1")
        await create_deployment(fleet, "own-1", 1)
        await declare_policy(fleet)
        await asyncio.sleep(5)
        assert fleet.pods_records("own-1")[-1] is not None
        await fleet.bus.publish(Tombstone(workload_address(SCALE_POLICIES, "default", "web")))
        await asyncio.sleep(1)
        assert fleet.pods_records("own-1")[-1] is None
        await declare_policy(fleet)
        await asyncio.sleep(1)
        assert fleet.pods_records("own-1")[-1] is not None
        await fleet.bus.publish(ClusterLeft("own-1"))
        await asyncio.sleep(3)
        assert fleet.pods_records("own-1")[-1] is None


@pytest.mark.parametrize("still_declared", [True, False], ids=["still declared", "deleted meanwhile"])
async def test_the_next_owner_says_the_pods_of_a_policy_again_or_takes_them_back(
    make_fleet: Any, still_declared: bool
) -> None:
    async with make_fleet() as fleet:
        await fleet.join_cluster("own-1")
        fleet.start("s1")
        await create_deployment(fleet, "own-1", 1)
        await declare_policy(fleet)
        await asyncio.sleep(5)
        first = fleet.pods_records("own-1")[-1]
        assert first is not None
        await fleet.stop("s1")
        if not still_declared:
            await fleet.bus.publish(Tombstone(workload_address(SCALE_POLICIES, "default", "web")))
        fleet.start("s2")
        await asyncio.sleep(5)
        last = fleet.pods_records("own-1")[-1]
        assert (last is not None and last.epoch > first.epoch) if still_declared else last is None
