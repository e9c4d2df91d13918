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

from .lending_fleet import FLEET, OWN, POOL, LendingFleet, always, on_fleet, until
from .test_pods import OURS, VIRTUAL, copies, needs_secret, put_secret, run_alone

pytestmark = pytest.mark.looptime
LONG = {"copy_unused_seconds": 86_400.0}
LATE = {**LONG, "copies_seconds": 60.0}
"""So that what goes at once is told from what goes with the next comparison."""


async def runs_with_a_secret(fleet: LendingFleet, **settings: Any) -> Bridge:
    await fleet.declare(cooldown_seconds=1)
    bridge = await fleet.start(**{**LONG, **settings})
    await until(fleet.is_open)
    await put_secret(fleet, "first")
    await run_alone(fleet, volumes=needs_secret())
    await until(lambda: fleet.real() == [("n0", "Running")])
    assert len(copies(fleet)) == 1
    return bridge


def is_back(fleet: LendingFleet) -> bool:
    return isinstance(fleet.loans()[-1], NodeReturned)


async def withdraw(fleet: LendingFleet) -> None:
    """As the descheduler does it: the tombstone follows once no node bears our mark."""
    await fleet.declare(withdrawing=True)
    await until(lambda: is_back(fleet))
    await fleet.withdraw()


def namespace(fleet: LendingFleet) -> dict[str, Any] | None:
    return fleet.clusters[OWN].get_object("namespaces", OURS)


def holds_nothing(fleet: LendingFleet) -> bool:
    return copies(fleet) == [] and namespace(fleet) is None


@on_fleet()
async def test_when_lending_is_withdrawn_copies_go_at_once_then_namespaces_then_the_bridge(fleet: LendingFleet) -> None:
    bridge = await runs_with_a_secret(fleet, **LATE)
    await withdraw(fleet)
    await until(lambda: copies(fleet) == [], 5)
    await until(lambda: namespace(fleet) is None)
    await until(lambda: bridge.clusters_worked_on == set())
    claims = len(fleet.claims())
    await asyncio.sleep(600)
    assert len(fleet.claims()) == claims, "what was seen to hold nothing is looked at no more"


@on_fleet()
async def test_copies_wait_while_a_cluster_lends_whatever_is_paused_or_recalled(fleet: LendingFleet) -> None:
    await runs_with_a_secret(fleet)
    await fleet.declare(paused=True)
    await fleet.recall()
    await until(lambda: is_back(fleet))
    await always(lambda: len(copies(fleet)) == 1, 60)


@pytest.mark.parametrize("dies", ["and_starts_again", "and_another_takes_over"])
async def test_a_bridge_that_dies_before_the_copies_are_gone_is_followed_by_one_that_removes_them(dies: str) -> None:
    async with LendingFleet() as fleet:
        await runs_with_a_secret(fleet)
        await fleet.declare(withdrawing=True)
        await until(lambda: is_back(fleet) or not fleet.real())
        fleet.refused = lambda asked: False if asked[:2] == (OWN, "DELETE") and "/secrets/" in asked[2] else None
        await until(lambda: is_back(fleet))
        await fleet.withdraw()
        await asyncio.sleep(10)
        await fleet.kill()
        fleet.refused = lambda _: None
        assert len(copies(fleet)) == 1
        bridge = await fleet.start("b1" if dies == "and_starts_again" else "b2", **LONG)
        await until(lambda: holds_nothing(fleet))
        await until(lambda: bridge.clusters_worked_on == set())


@on_fleet()
async def test_a_bridge_that_starts_later_looks_once_at_each_cluster_that_lent_and_lets_it_go(
    fleet: LendingFleet,
) -> None:
    await runs_with_a_secret(fleet)
    await withdraw(fleet)
    await until(lambda: holds_nothing(fleet))
    await fleet.stop()
    claims = len(fleet.claims())
    bridge = await fleet.start("b2", **LONG)
    await until(lambda: len(fleet.claims()) == claims + 1)
    await until(lambda: bridge.clusters_worked_on == set())
    await asyncio.sleep(300)
    assert len(fleet.claims()) == claims + 1


@on_fleet()
async def test_what_an_owner_that_is_silent_holds_goes_when_it_answers(fleet: LendingFleet) -> None:
    """Its nodes are gone by then, and longer than the log remembers those: it is by their loans that it is known."""
    bridge = await runs_with_a_secret(fleet, resync_seconds=30.0, forget_seconds=60.0)
    fleet.refused = lambda asked: False if asked[:2] == (OWN, "GET") and asked[2].endswith("/namespaces") else None
    await withdraw(fleet)
    fleet.clusters[OWN].remove_node("n0")
    await asyncio.sleep(5)
    fleet.clusters[OWN].set_faults(Faults(silent=True))
    fleet.refused = lambda _: None
    await always(lambda: bridge.clusters_worked_on == {OWN}, 600)
    fleet.clusters[OWN].set_faults(Faults())
    await until(lambda: holds_nothing(fleet))
    await until(lambda: bridge.clusters_worked_on == set())
    forgotten = LENDING.name, lending_address(LENDING, OWN, "n0").key
    assert forgotten not in [(one.topic, one.key) for one in fleet.said if one.event is None]


@on_fleet()
async def test_what_a_cluster_that_left_in_between_holds_goes_when_it_joins_again(fleet: LendingFleet) -> None:
    bridge = await runs_with_a_secret(fleet)
    await withdraw(fleet)
    fleet.clusters[OWN].set_faults(Faults(silent=True))
    await fleet.bus.publish(ClusterLeft(OWN))
    await until(lambda: bridge.clusters_worked_on == set())
    fleet.clusters[OWN].set_faults(Faults())
    await asyncio.sleep(60)
    await fleet.join(OWN)
    await until(lambda: holds_nothing(fleet))
    await until(lambda: bridge.clusters_worked_on == set())


@on_fleet()
async def test_a_cluster_that_is_to_leave_keeps_no_copy_from_its_last_loan_on(fleet: LendingFleet) -> None:
    await runs_with_a_secret(fleet, **LATE)
    await fleet.join(OWN, PHASE_LEAVING)
    await until(lambda: is_back(fleet))
    await until(lambda: copies(fleet) == [], 5)


@on_fleet()
async def test_a_cluster_that_lends_again_meanwhile_keeps_what_its_new_pods_refer_to(fleet: LendingFleet) -> None:
    bridge = await runs_with_a_secret(fleet)
    await fleet.declare(withdrawing=True)
    await until(lambda: is_back(fleet))
    await fleet.withdraw()
    await fleet.declare(cooldown_seconds=1)
    await until(fleet.is_open)
    await run_alone(fleet, "two", volumes=needs_secret())
    await until(lambda: fleet.real() == [("n0", "Running")])
    await always(
        lambda: len(copies(fleet)) == 1 and namespace(fleet) is not None and bridge.clusters_worked_on == {OWN}, 120
    )
    await withdraw(fleet)
    await until(lambda: holds_nothing(fleet))
    await until(lambda: bridge.clusters_worked_on == set())


@on_fleet(nodes=2)
async def test_a_pod_that_still_ends_keeps_its_copies_and_its_namespace_until_it_is_gone(fleet: LendingFleet) -> None:
    """Such as one that a bridge which froze made late, on a node that is not lent: no loan waits for it."""
    await fleet.ask(OWN, "PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"spillway.io/lend": "never"}}})
    bridge = await runs_with_a_secret(fleet)
    (real,) = fleet.clusters[OWN].objects("pods", OURS)
    late = pod("late", labels={**real["metadata"]["labels"], "spillway.io/pool-uid": "u"}, nodeName="n1")
    late["metadata"]["annotations"] = real["metadata"]["annotations"]
    late["metadata"]["finalizers"] = ["example.com/stays"]
    await fleet.ask(OWN, "POST", f"/api/v1/namespaces/{OURS}/pods", late)
    await withdraw(fleet)
    await always(
        lambda: len(copies(fleet)) == 1 and namespace(fleet) is not None and bridge.clusters_worked_on == {OWN}, 60
    )
    await fleet.ask(OWN, "PATCH", f"/api/v1/namespaces/{OURS}/pods/late", {"metadata": {"finalizers": None}})
    await until(lambda: holds_nothing(fleet))
    await until(lambda: bridge.clusters_worked_on == set())


@on_fleet()
async def test_copies_for_a_pool_that_was_given_up_go_with_the_withdrawal_too(fleet: LendingFleet) -> None:
    """Of such a pool no pods are read any more; what they referred to last does not count for ever."""
    bridge = await runs_with_a_secret(fleet)
    fleet.clusters[POOL].set_faults(Faults(silent=True))
    await fleet.bus.publish(ClusterLeft(POOL))
    await until(lambda: is_back(fleet))
    await withdraw(fleet)
    await until(lambda: holds_nothing(fleet))
    await until(lambda: bridge.clusters_worked_on == set())


@on_fleet()
async def test_what_is_not_ours_is_left_alone_and_keeps_no_bridge_there(fleet: LendingFleet) -> None:
    """Another fleet's namespace and copies, a Secret that people put into one of ours, and one of our prefix."""
    bridge = await runs_with_a_secret(fleet)
    for name, labels in (("spillway-lent-b", {"spillway.io/fleet": f"not-{FLEET}"}), ("spillway-lent-c", {})):
        await fleet.ask(OWN, "POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        marks = {"labels": {"spillway.io/pool": POOL}, "annotations": {"spillway.io/copy-version": "u/1"}}
        copy = {"metadata": {"name": "theirs", **marks}}
        await fleet.ask(OWN, "POST", f"/api/v1/namespaces/{name}/secrets", copy)
    await fleet.ask(OWN, "POST", f"/api/v1/namespaces/{OURS}/secrets", {"metadata": {"name": "of-people"}})
    await withdraw(fleet)
    await until(lambda: bridge.clusters_worked_on == set())
    left = {(one["metadata"]["namespace"], one["metadata"]["name"]) for one in fleet.clusters[OWN].objects("secrets")}
    assert left == {("spillway-lent-b", "theirs"), ("spillway-lent-c", "theirs"), (OURS, "of-people")}
    assert namespace(fleet) is not None, "it holds somebody's Secret"


@on_fleet()
async def test_a_copy_whose_deletion_is_refused_keeps_no_other_one_and_is_tried_again(fleet: LendingFleet) -> None:
    bridge = await runs_with_a_secret(fleet, resync_seconds=30.0)
    maps = {"metadata": {"name": "settings"}, "data": {"a": "b"}}
    await fleet.ask(POOL, "POST", "/api/v1/namespaces/default/configmaps", maps)
    await run_alone(fleet, "two", volumes=[{"name": "settings", "configMap": {"name": "settings"}}])
    await until(lambda: len(fleet.real()) == 2)
    fleet.refused = lambda asked: False if asked[:2] == (OWN, "DELETE") and "/configmaps/" in asked[2] else None
    await withdraw(fleet)
    await until(lambda: copies(fleet) == [], 20)
    await asyncio.sleep(60)
    assert (namespace(fleet) is not None, bridge.clusters_worked_on) == (True, {OWN})
    fleet.refused = lambda _: None
    await until(lambda: holds_nothing(fleet))
    await until(lambda: bridge.clusters_worked_on == set())


@on_fleet()
async def test_a_loan_that_the_log_forgets_after_the_withdrawal_makes_no_work(fleet: LendingFleet) -> None:
    bridge = await runs_with_a_secret(fleet)
    await withdraw(fleet)
    await until(lambda: bridge.clusters_worked_on == set())
    claims = len(fleet.claims())
    await fleet.bus.publish(Tombstone(lending_address(LENDING, OWN, "n0")))
    await asyncio.sleep(60)
    assert len(fleet.claims()) == claims


@on_fleet(nodes=2)
async def test_what_pods_of_a_node_that_is_gone_referred_to_is_used_no_longer_while_others_are_lent(
    fleet: LendingFleet,
) -> None:
    """Nobody reads that node again, so its last reading must not count."""
    await runs_with_a_secret(fleet, copy_unused_seconds=20.0, copies_seconds=5.0)
    fleet.clusters[OWN].remove_node("n0")
    await until(lambda: is_back(fleet))
    await until(lambda: copies(fleet) == [], 120)


@on_fleet(nodes=2)
async def test_a_look_that_reads_while_the_return_is_acknowledged_counts_no_pods_of_that_node(
    fleet: LendingFleet,
) -> None:
    """Nobody reads the node again, so what that look read must not count."""
    late = {"copy_unused_seconds": 20.0, "copies_seconds": 5.0, "gather_seconds": 0.7}
    bridge = await runs_with_a_secret(fleet, **late)
    fleet.clusters[OWN].remove_node("n0")
    await until(lambda: fleet.clusters[POOL].get_object("nodes", VIRTUAL) is None)
    fleet.clusters[OWN].set_faults(Faults(latency_seconds=1.0))
    bridge.turns.workers[OWN].queue_node("n0")
    await until(lambda: is_back(fleet))
    await until(lambda: copies(fleet) == [], 120)
