"""What an owner keeps once nothing of it is lent any more: no copy of a pool's Secret, and no namespace of ours.

The service on simulated clusters, in virtual time. `copy_unused_seconds` is so long here that nothing goes by it.
"""

import asyncio
from typing import Any

import pytest

from sim.manifests import pod
from sim.settings import Faults
from spillway.addresses import LENDING, Tombstone, lending_address
from spillway.events import PHASE_LEAVING, ClusterLeft
from spillway.events_lending import NodeReturned
from vk_bridge.service import Bridge

from .lending_fleet import FLEET, OWN, POOL, LendingFleet, assert_holds_for, run_on_fleet, wait_until
from .test_pods import OURS, VIRTUAL, copied_secret_data, create_pool_pod, put_secret, secret_volumes

pytestmark = pytest.mark.looptime
LONG = {"copy_unused_seconds": 86_400.0}
LATE = {**LONG, "copies_seconds": 60.0}
"""So that what goes at once is told from what goes with the next comparison."""


async def lend_node_with_secret(fleet: LendingFleet, **settings: Any) -> Bridge:
    await fleet.declare_lending(cooldown_seconds=1)
    bridge = await fleet.start(**{**LONG, **settings})
    await wait_until(fleet.is_virtual_node_open)
    await put_secret(fleet, "first")
    await create_pool_pod(fleet, volumes=secret_volumes())
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")])
    assert len(copied_secret_data(fleet)) == 1
    return bridge


def is_node_back(fleet: LendingFleet) -> bool:
    return isinstance(fleet.loan_records()[-1], NodeReturned)


async def withdraw_lending(fleet: LendingFleet) -> None:
    """As the descheduler does it: the tombstone follows once no node bears our mark."""
    await fleet.declare_lending(withdrawing=True)
    await wait_until(lambda: is_node_back(fleet))
    await fleet.publish_lending_tombstone()


def our_namespace(fleet: LendingFleet) -> dict[str, Any] | None:
    return fleet.clusters[OWN].get_object("namespaces", OURS)


def has_nothing_of_pool(fleet: LendingFleet) -> bool:
    return copied_secret_data(fleet) == [] and our_namespace(fleet) is None


@run_on_fleet()
async def test_when_lending_is_withdrawn_copies_go_at_once_then_namespaces_then_the_bridge(fleet: LendingFleet) -> None:
    bridge = await lend_node_with_secret(fleet, **LATE)
    await withdraw_lending(fleet)
    await wait_until(lambda: copied_secret_data(fleet) == [], 5)
    await wait_until(lambda: our_namespace(fleet) is None)
    await wait_until(lambda: bridge.clusters_worked_on == set())
    claims = len(fleet.turn_claims())
    await asyncio.sleep(600)
    assert len(fleet.turn_claims()) == claims, "what was seen to hold nothing is looked at no more"


@run_on_fleet()
async def test_copies_wait_while_a_cluster_lends_whatever_is_paused_or_recalled(fleet: LendingFleet) -> None:
    await lend_node_with_secret(fleet)
    await fleet.declare_lending(paused=True)
    await fleet.recall_node()
    await wait_until(lambda: is_node_back(fleet))
    await assert_holds_for(lambda: len(copied_secret_data(fleet)) == 1, 60)


@pytest.mark.parametrize("dies", ["and_starts_again", "and_another_takes_over"])
async def test_a_bridge_that_dies_before_the_copies_are_gone_is_followed_by_one_that_removes_them(dies: str) -> None:
    async with LendingFleet() as fleet:
        await lend_node_with_secret(fleet)
        await fleet.declare_lending(withdrawing=True)
        await wait_until(lambda: is_node_back(fleet) or not fleet.real_pod_phases())
        fleet.refused = lambda asked: False if asked[:2] == (OWN, "DELETE") and "/secrets/" in asked[2] else None
        await wait_until(lambda: is_node_back(fleet))
        await fleet.publish_lending_tombstone()
        await asyncio.sleep(10)
        await fleet.kill_instance()
        fleet.refused = lambda _: None
        assert len(copied_secret_data(fleet)) == 1
        bridge = await fleet.start("b1" if dies == "and_starts_again" else "b2", **LONG)
        await wait_until(lambda: has_nothing_of_pool(fleet))
        await wait_until(lambda: bridge.clusters_worked_on == set())


@run_on_fleet()
async def test_a_bridge_that_starts_later_looks_once_at_each_cluster_that_lent_and_lets_it_go(
    fleet: LendingFleet,
) -> None:
    await lend_node_with_secret(fleet)
    await withdraw_lending(fleet)
    await wait_until(lambda: has_nothing_of_pool(fleet))
    await fleet.stop()
    claims = len(fleet.turn_claims())
    bridge = await fleet.start("b2", **LONG)
    await wait_until(lambda: len(fleet.turn_claims()) == claims + 1)
    await wait_until(lambda: bridge.clusters_worked_on == set())
    await asyncio.sleep(300)
    assert len(fleet.turn_claims()) == claims + 1


@run_on_fleet()
async def test_what_an_owner_that_is_silent_holds_goes_when_it_answers(fleet: LendingFleet) -> None:
    """Its nodes are gone by then, and longer than the log remembers those: it is by their loans that it is known."""
    bridge = await lend_node_with_secret(fleet, resync_seconds=30.0, forget_seconds=60.0)
    fleet.refused = lambda asked: False if asked[:2] == (OWN, "GET") and asked[2].endswith("/namespaces") else None
    await withdraw_lending(fleet)
    fleet.clusters[OWN].remove_node("n0")
    await asyncio.sleep(5)
    fleet.clusters[OWN].set_faults(Faults(silent=True))
    fleet.refused = lambda _: None
    await assert_holds_for(lambda: bridge.clusters_worked_on == {OWN}, 600)
    fleet.clusters[OWN].set_faults(Faults())
    await wait_until(lambda: has_nothing_of_pool(fleet))
    await wait_until(lambda: bridge.clusters_worked_on == set())
    forgotten = LENDING.name, lending_address(LENDING, OWN, "n0").key
    assert forgotten not in [(one.topic, one.key) for one in fleet.said if one.event is None]


@run_on_fleet()
async def test_what_a_cluster_that_left_in_between_holds_goes_when_it_joins_again(fleet: LendingFleet) -> None:
    bridge = await lend_node_with_secret(fleet)
    await withdraw_lending(fleet)
    fleet.clusters[OWN].set_faults(Faults(silent=True))
    await fleet.bus.publish(ClusterLeft(OWN))
    await wait_until(lambda: bridge.clusters_worked_on == set())
    fleet.clusters[OWN].set_faults(Faults())
    await asyncio.sleep(60)
    await fleet.publish_cluster_joined(OWN)
    await wait_until(lambda: has_nothing_of_pool(fleet))
    await wait_until(lambda: bridge.clusters_worked_on == set())


@run_on_fleet()
async def test_a_cluster_that_is_to_leave_keeps_no_copy_from_its_last_loan_on(fleet: LendingFleet) -> None:
    await lend_node_with_secret(fleet, **LATE)
    await fleet.publish_cluster_joined(OWN, PHASE_LEAVING)
    await wait_until(lambda: is_node_back(fleet))
    await wait_until(lambda: copied_secret_data(fleet) == [], 5)


@run_on_fleet()
async def test_a_cluster_that_lends_again_meanwhile_keeps_what_its_new_pods_refer_to(fleet: LendingFleet) -> None:
    bridge = await lend_node_with_secret(fleet)
    await fleet.declare_lending(withdrawing=True)
    await wait_until(lambda: is_node_back(fleet))
    await fleet.publish_lending_tombstone()
    await fleet.declare_lending(cooldown_seconds=1)
    await wait_until(fleet.is_virtual_node_open)
    await create_pool_pod(fleet, "two", volumes=secret_volumes())
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")])
    await assert_holds_for(
        lambda: (
            len(copied_secret_data(fleet)) == 1
            and our_namespace(fleet) is not None
            and bridge.clusters_worked_on == {OWN}
        ),
        120,
    )
    await withdraw_lending(fleet)
    await wait_until(lambda: has_nothing_of_pool(fleet))
    await wait_until(lambda: bridge.clusters_worked_on == set())


@run_on_fleet(nodes=2)
async def test_a_pod_that_still_ends_keeps_its_copies_and_its_namespace_until_it_is_gone(fleet: LendingFleet) -> None:
    """Such as one that a bridge which froze made late, on a node that is not lent: no loan waits for it."""
    await fleet.send_request(OWN, "PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"spillway.io/lend": "never"}}})
    bridge = await lend_node_with_secret(fleet)
    (real,) = fleet.clusters[OWN].objects("pods", OURS)
    late = pod("late", labels={**real["metadata"]["labels"], "spillway.io/pool-uid": "u"}, nodeName="n1")
    late["metadata"]["annotations"] = real["metadata"]["annotations"]
    late["metadata"]["finalizers"] = ["example.com/stays"]
    await fleet.send_request(OWN, "POST", f"/api/v1/namespaces/{OURS}/pods", late)
    await withdraw_lending(fleet)
    await assert_holds_for(
        lambda: (
            len(copied_secret_data(fleet)) == 1
            and our_namespace(fleet) is not None
            and bridge.clusters_worked_on == {OWN}
        ),
        60,
    )
    await fleet.send_request(OWN, "PATCH", f"/api/v1/namespaces/{OURS}/pods/late", {"metadata": {"finalizers": None}})
    await wait_until(lambda: has_nothing_of_pool(fleet))
    await wait_until(lambda: bridge.clusters_worked_on == set())


@run_on_fleet()
async def test_copies_for_a_pool_that_was_given_up_go_with_the_withdrawal_too(fleet: LendingFleet) -> None:
    """Of such a pool no pods are read any more; what they referred to last does not count for ever."""
    bridge = await lend_node_with_secret(fleet)
    fleet.clusters[POOL].set_faults(Faults(silent=True))
    await fleet.bus.publish(ClusterLeft(POOL))
    await wait_until(lambda: is_node_back(fleet))
    await withdraw_lending(fleet)
    await wait_until(lambda: has_nothing_of_pool(fleet))
    await wait_until(lambda: bridge.clusters_worked_on == set())


@run_on_fleet()
async def test_what_is_not_ours_is_left_alone_and_keeps_no_bridge_there(fleet: LendingFleet) -> None:
    """Another fleet's namespace and copies, a Secret that people put into one of ours, and one of our prefix."""
    bridge = await lend_node_with_secret(fleet)
    for name, labels in (("spillway-lent-b", {"spillway.io/fleet": f"not-{FLEET}"}), ("spillway-lent-c", {})):
        await fleet.send_request(OWN, "POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        marks = {"labels": {"spillway.io/pool": POOL}, "annotations": {"spillway.io/copy-version": "u/1"}}
        copy = {"metadata": {"name": "theirs", **marks}}
        await fleet.send_request(OWN, "POST", f"/api/v1/namespaces/{name}/secrets", copy)
    await fleet.send_request(OWN, "POST", f"/api/v1/namespaces/{OURS}/secrets", {"metadata": {"name": "of-people"}})
    await withdraw_lending(fleet)
    await wait_until(lambda: bridge.clusters_worked_on == set())
    left = {(one["metadata"]["namespace"], one["metadata"]["name"]) for one in fleet.clusters[OWN].objects("secrets")}
    assert left == {("spillway-lent-b", "theirs"), ("spillway-lent-c", "theirs"), (OURS, "of-people")}
    assert our_namespace(fleet) is not None, "it holds somebody's Secret"


@run_on_fleet()
async def test_a_copy_whose_deletion_is_refused_keeps_no_other_one_and_is_tried_again(fleet: LendingFleet) -> None:
    bridge = await lend_node_with_secret(fleet, resync_seconds=30.0)
    maps = {"metadata": {"name": "settings"}, "data": {"a": "b"}}
    await fleet.send_request(POOL, "POST", "/api/v1/namespaces/default/configmaps", maps)
    await create_pool_pod(fleet, "two", volumes=[{"name": "settings", "configMap": {"name": "settings"}}])
    await wait_until(lambda: len(fleet.real_pod_phases()) == 2)
    fleet.refused = lambda asked: False if asked[:2] == (OWN, "DELETE") and "/configmaps/" in asked[2] else None
    await withdraw_lending(fleet)
    await wait_until(lambda: copied_secret_data(fleet) == [], 20)
    await asyncio.sleep(60)
    assert (our_namespace(fleet) is not None, bridge.clusters_worked_on) == (True, {OWN})
    fleet.refused = lambda _: None
    await wait_until(lambda: has_nothing_of_pool(fleet))
    await wait_until(lambda: bridge.clusters_worked_on == set())


@run_on_fleet()
async def test_a_loan_that_the_log_forgets_after_the_withdrawal_makes_no_work(fleet: LendingFleet) -> None:
    bridge = await lend_node_with_secret(fleet)
    await withdraw_lending(fleet)
    await wait_until(lambda: bridge.clusters_worked_on == set())
    claims = len(fleet.turn_claims())
    await fleet.bus.publish(Tombstone(lending_address(LENDING, OWN, "n0")))
    await asyncio.sleep(60)
    assert len(fleet.turn_claims()) == claims


@run_on_fleet(nodes=2)
async def test_what_pods_of_a_node_that_is_gone_referred_to_is_used_no_longer_while_others_are_lent(
    fleet: LendingFleet,
) -> None:
    """Nobody reads that node again, so its last reading must not count."""
    await lend_node_with_secret(fleet, copy_unused_seconds=20.0, copies_seconds=5.0)
    fleet.clusters[OWN].remove_node("n0")
    await wait_until(lambda: is_node_back(fleet))
    await wait_until(lambda: copied_secret_data(fleet) == [], 120)


@run_on_fleet(nodes=2)
async def test_a_look_that_reads_while_the_return_is_acknowledged_counts_no_pods_of_that_node(
    fleet: LendingFleet,
) -> None:
    """Nobody reads the node again, so what that look read must not count."""
    late = {"copy_unused_seconds": 20.0, "copies_seconds": 5.0, "gather_seconds": 0.7}
    bridge = await lend_node_with_secret(fleet, **late)
    fleet.clusters[OWN].remove_node("n0")
    await wait_until(lambda: fleet.clusters[POOL].get_object("nodes", VIRTUAL) is None)
    fleet.clusters[OWN].set_faults(Faults(latency_seconds=1.0))
    bridge.turns.workers[OWN].queue_node("n0")
    await wait_until(lambda: is_node_back(fleet))
    await wait_until(lambda: copied_secret_data(fleet) == [], 120)
