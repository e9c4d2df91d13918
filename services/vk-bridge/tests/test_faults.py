"""What goes wrong around a loan, and what people do meanwhile: the service on simulated clusters, in virtual time.

More of it in test_service.py (crash, silent sides, two logs) and test_pods.py (what a pod needs, and is refused).
"""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import REGISTRY

from sim.core.rights import Account
from sim.manifests import deployment
from sim.manifests import pod as pod_manifest
from sim.settings import Faults, NodeSpec
from spillway.addresses import LENDING, Tombstone, lending_address
from spillway.clusters.rights import BRIDGE_OWNER
from spillway.events import PHASE_LEAVING, ClusterLeft, Event
from spillway.events_lending import CAUSE_ASKED, CAUSE_VIRTUAL_NODE_GONE, LendingRule, NodeLent, NodeReturned
from spillway.kubernetes.quantities import parse_quantity
from spillway.lending_marks import COST_PER_HOUR, SUPPLY_CLASS, virtual_node_name
from spillway.model import Requirement

from .lending_fleet import (
    GRACE_SECONDS,
    IDLE_SECONDS,
    OTHER,
    OWN,
    POOL,
    TOLERATES_LOANS,
    Asked,
    LendingFleet,
    assert_holds_for,
    run_on_fleet,
    wait_until,
)

pytestmark = pytest.mark.looptime
VIRTUAL = virtual_node_name(OWN, "n0")
RUNS_TWICE = [(VIRTUAL, "Running")] * 2


async def lend_node_and_run_pods(fleet: LendingFleet) -> None:
    """A node is lent, and two offline pods run on it."""
    await fleet.declare_lending(cooldown_seconds=1)
    await fleet.start()
    await wait_until(fleet.is_virtual_node_open)
    await fleet.run_deployment_in_pool()
    await wait_until(lambda: fleet.pool_pod_phases() == RUNS_TWICE)


def pod_uids(fleet: LendingFleet, cluster: str) -> set[str]:
    return {one["metadata"]["uid"] for one in fleet.clusters[cluster].objects("pods")}


def has_loan_ended(fleet: LendingFleet, owner: str = OWN) -> bool:
    return isinstance(fleet.loan_records(owner=owner)[-1], NodeReturned)


# ── Clusters ────────────────────────────────────────────────────────────────────────────────────────────────────────


@run_on_fleet()
async def test_an_owner_that_goes_silent_in_mid_recall_lets_no_pod_go_and_returns_when_it_answers(
    fleet: LendingFleet,
) -> None:
    await lend_node_and_run_pods(fleet)
    pods = [pod["metadata"] for pod in fleet.clusters[OWN].objects("pods")]
    for pod in pods:
        path = f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}"
        await fleet.send_request(OWN, "PATCH", path, {"metadata": {"annotations": {"sim/stop-seconds": "8"}}})
    before = pod_uids(fleet, POOL)
    await fleet.recall_node()
    await wait_until(
        lambda: all(pod["metadata"].get("deletionTimestamp") for pod in fleet.clusters[OWN].objects("pods"))
    )
    fleet.clusters[OWN].set_faults(Faults(silent=True))
    await assert_holds_for(lambda: before <= pod_uids(fleet, POOL) and not fleet.is_virtual_node_open(), 60)
    fleet.clusters[OWN].set_faults(Faults())
    await wait_until(lambda: has_loan_ended(fleet))
    assert (fleet.register_state(), fleet.real_pod_phases(), fleet.virtual_node()) == ("", [], None)
    assert not before & pod_uids(fleet, POOL), "each was let go, and its controller made another"


@pytest.mark.parametrize("leaving", [OWN, POOL])
async def test_who_is_to_leave_takes_its_nodes_back_first(leaving: str) -> None:
    """The planner lets it go when no loan is left (planner: test_virtual_nodes.py)."""
    async with LendingFleet() as fleet:
        await lend_node_and_run_pods(fleet)
        await fleet.publish_cluster_joined(leaving, PHASE_LEAVING)
        await wait_until(lambda: has_loan_ended(fleet))
        assert (
            fleet.loan_records()[-1].cause,
            fleet.register_state(),
            fleet.virtual_node(),
            fleet.real_pod_phases(),
        ) == (CAUSE_ASKED, "", None, [])
        await fleet.bus.publish(ClusterLeft(leaving))
        await assert_holds_for(lambda: fleet.register_state() == "", 3 * IDLE_SECONDS)
        await fleet.publish_cluster_joined(leaving)
        await wait_until(fleet.is_virtual_node_open)
        await wait_until(lambda: fleet.pool_pod_phases() == RUNS_TWICE)


async def test_the_log_forgets_the_loans_of_an_owner_that_left() -> None:
    """Once they are over for a while; a loan that stands is not forgotten with its cluster."""
    async with LendingFleet(owners=(OWN, OTHER)) as fleet:
        for owner in (OWN, OTHER):
            await fleet.declare_lending(owner=owner)
        await fleet.start(forget_seconds=60, resync_seconds=20)
        await wait_until(lambda: fleet.is_virtual_node_open() and fleet.is_virtual_node_open(owner=OTHER))
        await fleet.publish_cluster_joined(OWN, PHASE_LEAVING)
        await wait_until(lambda: has_loan_ended(fleet))
        fleet.clusters[OTHER].set_faults(Faults(silent=True))
        for owner in (OWN, OTHER):
            await fleet.bus.publish(ClusterLeft(owner))
        forgotten = LENDING.name, f"{OWN}/n0", None
        await assert_holds_for(lambda: forgotten not in logged_records(fleet), 30)
        await wait_until(lambda: forgotten in logged_records(fleet))
        await asyncio.sleep(60)
        assert logged_records(fleet).count(forgotten) == 1
        assert (LENDING.name, f"{OTHER}/n0", None) not in logged_records(fleet)


def logged_records(fleet: LendingFleet) -> list[tuple[str, str, Event | None]]:
    return [(record.topic, record.key, record.event) for record in fleet.said]


@run_on_fleet()
async def test_an_owner_that_is_given_up_gets_its_node_back_when_it_joins_again(fleet: LendingFleet) -> None:
    """Meanwhile a person deletes its virtual node, and the pool its pods: they may run elsewhere."""
    await lend_node_and_run_pods(fleet)
    fleet.clusters[OWN].set_faults(Faults(silent=True))
    await fleet.bus.publish(ClusterLeft(OWN))
    await asyncio.sleep(60)
    assert fleet.pool_pod_phases() == RUNS_TWICE, "nobody knows whether they run"
    fleet.clusters[POOL].remove_node(VIRTUAL)
    await wait_until(lambda: fleet.pool_pod_phases() == [("", "Pending")] * 2)
    fleet.clusters[OWN].set_faults(Faults())
    assert fleet.register_state() == "lent"
    await fleet.publish_cluster_joined(OWN)
    await wait_until(lambda: has_loan_ended(fleet))
    assert (fleet.loan_records()[-1].cause, fleet.real_pod_phases()) == (CAUSE_VIRTUAL_NODE_GONE, [])
    await wait_until(lambda: fleet.pool_pod_phases() == RUNS_TWICE)
    assert len(fleet.real_pod_phases()) == 2


@run_on_fleet()
async def test_a_pool_that_goes_silent_while_a_node_is_being_checked_keeps_it_from_nobody(fleet: LendingFleet) -> None:
    await fleet.declare_lending(cooldown_seconds=1)
    await fleet.start()
    await wait_until(lambda: fleet.register_state() == "checking")
    fleet.clusters[POOL].set_faults(Faults(silent=True))
    await wait_until(lambda: fleet.register_state() == "", 60)
    await assert_holds_for(lambda: fleet.register_state() == "", 120)
    fleet.clusters[POOL].set_faults(Faults())
    await wait_until(fleet.is_virtual_node_open)


@run_on_fleet(owners=(OWN, OTHER))
async def test_nodes_of_one_name_in_two_owners_are_two_virtual_nodes(fleet: LendingFleet) -> None:
    await fleet.declare_lending()
    await fleet.declare_lending(owner=OTHER)
    await fleet.start()
    await wait_until(lambda: fleet.is_virtual_node_open() and fleet.is_virtual_node_open(owner=OTHER))
    await fleet.run_deployment_in_pool(cpu="6")
    await wait_until(lambda: fleet.real_pod_phases() == fleet.real_pod_phases(OTHER) == [("n0", "Running")])
    other = pod_uids(fleet, OTHER)
    await wait_until(lambda: fleet.record_of_open_loan() is not None)
    await fleet.recall_node()
    await wait_until(lambda: has_loan_ended(fleet))
    assert (fleet.register_state(), fleet.real_pod_phases(), fleet.virtual_node()) == ("", [], None)
    assert (fleet.register_state(owner=OTHER), fleet.is_virtual_node_open(owner=OTHER), pod_uids(fleet, OTHER)) == (
        "lent",
        True,
        other,
    )


# ── Bridges ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@run_on_fleet(owners=(OWN, OTHER))
async def test_pods_that_their_pool_gives_up_while_no_bridge_lives_end_once_and_run_once(fleet: LendingFleet) -> None:
    """After 300 s a pool deletes what runs on a node that nobody speaks for; it runs on until a bridge is back."""
    await lend_node_and_run_pods(fleet)
    await fleet.kill_instance()
    pooled, real = pod_uids(fleet, POOL), pod_uids(fleet, OWN)
    await asyncio.sleep(300)
    for pod in [pod["metadata"] for pod in fleet.clusters[POOL].objects("pods")]:
        await fleet.send_request(POOL, "DELETE", f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}")
    await wait_until(lambda: len(pod_uids(fleet, POOL)) == 4)
    await assert_holds_for(lambda: pooled <= pod_uids(fleet, POOL) and pod_uids(fleet, OWN) == real, 60)
    waiting = pod_uids(fleet, POOL) - pooled
    await fleet.declare_lending(owner=OTHER)
    await fleet.start("b2")

    def runs_each_pod_once() -> bool:
        of = [
            pod["metadata"]["labels"]["spillway.io/pool-uid"]
            for pod in _live_pods(fleet, OWN) + _live_pods(fleet, OTHER)
        ]
        return len(of) == len(set(of))

    def is_handover_done() -> bool:
        assert runs_each_pod_once()
        return pod_uids(fleet, POOL) == waiting and [phase for _, phase in fleet.pool_pod_phases()] == ["Running"] * 2

    await wait_until(is_handover_done)
    assert len(_live_pods(fleet, OWN) + _live_pods(fleet, OTHER)) == 2
    assert not real & pod_uids(fleet, OWN), "who was given up has ended"


def _live_pods(fleet: LendingFleet, owner: str) -> list[dict[str, Any]]:
    return [pod for pod in fleet.clusters[owner].objects("pods") if not pod["metadata"].get("deletionTimestamp")]


# ── Nodes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@run_on_fleet()
async def test_a_freeze_in_mid_recall_forces_no_pod_until_it_is_lifted(fleet: LendingFleet) -> None:
    await lend_node_and_run_pods(fleet)
    for one in _live_pods(fleet, OWN):
        place = f"/api/v1/namespaces/{one['metadata']['namespace']}/pods/{one['metadata']['name']}"
        await fleet.send_request(OWN, "PATCH", place, {"metadata": {"finalizers": ["example.com/slow"]}})
    await fleet.recall_node()
    await wait_until(lambda: _deletion_graces(fleet) == {GRACE_SECONDS})
    await fleet.freeze_fleet()
    await assert_holds_for(lambda: _deletion_graces(fleet) == {GRACE_SECONDS}, 10 * GRACE_SECONDS)
    await fleet.unfreeze_fleet()
    await wait_until(lambda: _deletion_graces(fleet) == {0})


def _deletion_graces(fleet: LendingFleet) -> set[int | None]:
    return {one["metadata"].get("deletionGracePeriodSeconds") for one in fleet.clusters[OWN].objects("pods")}


@run_on_fleet()
async def test_a_lent_node_that_a_person_cordons_takes_no_more_and_keeps_its_pods(fleet: LendingFleet) -> None:
    await lend_node_and_run_pods(fleet)
    before = pod_uids(fleet, OWN)
    fleet.clusters[OWN].cordon("n0")
    await wait_until(lambda: bool((fleet.virtual_node() or {})["spec"].get("unschedulable")))
    await fleet.run_deployment_in_pool("more", replicas=1)
    await assert_holds_for(lambda: (fleet.register_state(), pod_uids(fleet, OWN)) == ("lent", before), 60)
    fleet.clusters[OWN].cordon("n0", unschedulable=False)
    await wait_until(lambda: fleet.pool_pod_phases() == [(VIRTUAL, "Running")] * 3)


@run_on_fleet()
async def test_a_lent_node_that_changes_size_offers_what_it_has_and_keeps_its_pods(fleet: LendingFleet) -> None:
    await lend_node_and_run_pods(fleet)
    before = pod_uids(fleet, OWN)
    for cores in (16, 3, 8):
        size = {"status": {"allocatable": {"cpu": str(cores)}, "capacity": {"cpu": str(cores)}}}
        await fleet.send_request(OWN, "PATCH", "/api/v1/nodes/n0/status", size)
        await wait_until(lambda cores=cores: _offered_milli_cores(fleet) == (cores * 1000,) * 2)  # type: ignore[misc]
        assert (fleet.register_state(), pod_uids(fleet, OWN)) == ("lent", before)


@run_on_fleet()
async def test_a_lent_node_whose_class_changes_stays_in_the_one_in_which_its_loan_began(fleet: LendingFleet) -> None:
    """In the pool as in the log; the next loan is in the new one."""
    nvme = LendingRule("nvme", (Requirement("disk", "In", ("nvme",)),), "dedicated", 100, 0, 0, 1.0)
    rest = LendingRule("rest", (), "idle", 100, 0, 0, 0.5)
    await fleet.send_request(OWN, "PATCH", "/api/v1/nodes/n0", {"metadata": {"labels": {"disk": "nvme"}}})
    await fleet.declare_lending(rules=(nvme, rest), cooldown_seconds=1)
    await fleet.start()
    await wait_until(fleet.is_virtual_node_open)

    def shown_class_and_cost() -> tuple[str, str, str]:
        virtual, lent = fleet.virtual_node() or {}, fleet.record_of_open_loan()
        metadata = virtual.get("metadata", {"labels": {}, "annotations": {}})
        label, cost = metadata["labels"].get(SUPPLY_CLASS, ""), metadata["annotations"].get(COST_PER_HOUR, "")
        return label, cost, lent.supply_class if lent is not None else ""

    await wait_until(lambda: shown_class_and_cost() == ("dedicated", "1", "dedicated"))
    await fleet.send_request(OWN, "PATCH", "/api/v1/nodes/n0", {"metadata": {"labels": {"disk": "hdd"}}})
    await assert_holds_for(lambda: shown_class_and_cost() == ("dedicated", "1", "dedicated"), 60)
    await fleet.recall_node(cause=CAUSE_ASKED)
    await wait_until(lambda: shown_class_and_cost() == ("idle", "0.5", "idle"))


def _offered_milli_cores(fleet: LendingFleet) -> tuple[int, int]:
    """As the pool sees them, and as the log has them."""
    virtual, lent = fleet.virtual_node(), fleet.record_of_open_loan()
    assert virtual is not None
    assert lent is not None
    return parse_quantity(virtual["status"]["allocatable"]["cpu"], milli=True), dict(lent.offered)["cpu"]


@run_on_fleet(nodes=2)
async def test_the_log_forgets_a_node_that_is_gone_an_hour_after_its_last_loan(fleet: LendingFleet) -> None:
    """And no other's: one that is there has its cooldown, and one that is lent its loan."""
    await fleet.declare_lending(cooldown_seconds=1)
    await fleet.start()
    await wait_until(lambda: fleet.is_virtual_node_open("n0") and fleet.is_virtual_node_open("n1"))
    for node in ("n0", "n1"):
        fleet.clusters[OWN].remove_node(node)
    await wait_until(lambda: has_loan_ended(fleet) and isinstance(fleet.loan_records("n1")[-1], NodeReturned))
    fleet.clusters[OWN].add_nodes([NodeSpec("n", 1, cpu_millis=8000)])
    await wait_until(fleet.is_virtual_node_open)

    def tombstone_keys() -> set[str]:
        return {record.key for record in fleet.said if record.event is None}

    await asyncio.sleep(3000)
    assert tombstone_keys() == set()
    await asyncio.sleep(1500)
    assert tombstone_keys() == {f"{OWN}/n1"}
    assert (fleet.register_state(), fleet.is_virtual_node_open()) == ("lent", True)


@run_on_fleet()
async def test_a_loan_of_which_the_log_is_told_to_forget_is_said_again(fleet: LendingFleet) -> None:
    """By a bridge that froze before the node was lent again, and that took it for gone."""
    await lend_node_and_run_pods(fleet)
    said = len(fleet.loan_records())
    await fleet.bus.publish(Tombstone(lending_address(LENDING, OWN, "n0")))
    await wait_until(lambda: len(fleet.loan_records()) > said)
    assert (fleet.record_of_open_loan() is not None, fleet.is_virtual_node_open(), fleet.pool_pod_phases()) == (
        True,
        True,
        RUNS_TWICE,
    )


@run_on_fleet()
async def test_a_taint_that_a_person_takes_off_ends_the_loan(fleet: LendingFleet) -> None:
    await lend_node_and_run_pods(fleet)
    fleet.clusters[OWN].untaint("n0", "spillway.io/lending")
    await wait_until(lambda: has_loan_ended(fleet))
    assert (fleet.register_state(), fleet.real_pod_phases(), fleet.virtual_node()) == ("", [], None)
    assert fleet.loan_records()[-1].cause == "TaintRemoved"


# ── Pools that are given up, and join again ─────────────────────────────────────────────────────────────────────────


async def give_up_pool(fleet: LendingFleet) -> None:
    """It answers nobody any more; the node comes back from it, and its own virtual node and pods stay there."""
    await lend_node_and_run_pods(fleet)
    await wait_until(lambda: fleet.record_of_open_loan() is not None and len(fleet.record_of_open_loan().pods) == 2)
    fleet.clusters[POOL].set_faults(Faults(silent=True))
    await fleet.bus.publish(ClusterLeft(POOL))
    await wait_until(lambda: has_loan_ended(fleet))


async def rejoin_pool(fleet: LendingFleet) -> None:
    fleet.clusters[POOL].set_faults(Faults())
    assert fleet.virtual_node() is not None
    await fleet.publish_cluster_joined(POOL)


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_pool_that_joins_again_after_the_lending_was_withdrawn_keeps_no_virtual_node(restarted: bool) -> None:
    counted = counted_returns()
    async with LendingFleet() as fleet:
        await give_up_pool(fleet)
        await fleet.declare_lending(withdrawing=True)
        await fleet.publish_lending_tombstone()
        await asyncio.sleep(10)
        if restarted:
            await fleet.kill_instance()
            await fleet.start("b2")
        await rejoin_pool(fleet)
        await wait_until(lambda: fleet.virtual_node() is None)
        await wait_until(lambda: fleet.pool_pod_phases() == [("", "Pending")] * 2)
        await wait_until(lambda: fleet.loan_records()[-1].left_in == ())
        returned = [one for one in fleet.loan_records() if isinstance(one, NodeReturned)]
        assert [one.left_in for one in returned] == [(POOL,), ()]
        assert {one.returned_ms for one in returned} == {returned[0].returned_ms}, "one return, told twice"
    assert counted_returns() == counted + 1


def counted_returns() -> float:
    """Of all bridges of this process, whatever the cause."""
    return REGISTRY.get_sample_value("spillway_return_seconds_count", {"cluster": OWN, "supply_class": "idle"}) or 0.0


@run_on_fleet(nodes=40)
async def test_a_pool_that_is_back_and_silent_costs_its_owner_few_requests(fleet: LendingFleet) -> None:
    await fleet.declare_lending(cooldown_seconds=1)
    await fleet.start()
    await wait_until(lambda: all(fleet.is_virtual_node_open(f"n{number}") for number in range(40)))
    fleet.clusters[POOL].set_faults(Faults(silent=True))
    await fleet.bus.publish(ClusterLeft(POOL))
    await wait_until(
        lambda: all(isinstance(fleet.loan_records(f"n{number}")[-1], NodeReturned) for number in range(40))
    )
    await fleet.declare_lending(withdrawing=True)
    await fleet.publish_lending_tombstone()
    await fleet.publish_cluster_joined(POOL)
    await asyncio.sleep(30)
    fleet.asked.clear()
    await asyncio.sleep(100)
    pods = fleet.asked[OWN, "GET", "/api/v1/pods"]
    probes, looks = 51, 3
    assert pods <= probes + looks * 16, "a look, which takes the 30 s of a request, every ten; those at once alone"
    fleet.clusters[POOL].set_faults(Faults())
    await wait_until(lambda: all(fleet.virtual_node(f"n{number}") is None for number in range(40)))


@run_on_fleet(pools=(POOL, "pool-2"))
async def test_a_pool_that_joins_again_while_its_node_is_lent_to_another_keeps_no_virtual_node(
    fleet: LendingFleet,
) -> None:
    """And what runs there for the other is not disturbed."""
    await give_up_pool(fleet)
    await fleet.declare_lending(pool="pool-2", cooldown_seconds=1)
    await wait_until(lambda: fleet.register_state() == "lent")
    manifest = pod_manifest("one", tolerations=TOLERATES_LOANS)
    await fleet.send_request("pool-2", "POST", "/api/v1/namespaces/default/pods", manifest)
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")])
    running = pod_uids(fleet, OWN)
    await wait_until(lambda: fleet.record_of_open_loan() is not None and fleet.record_of_open_loan().left_in == (POOL,))
    await fleet.kill_instance()
    await fleet.start("b2")
    await rejoin_pool(fleet)
    await wait_until(lambda: fleet.virtual_node() is None)
    await wait_until(lambda: fleet.record_of_open_loan() is not None and fleet.record_of_open_loan().left_in == ())
    assert (fleet.register_state(), pod_uids(fleet, OWN)) == ("lent", running)
    assert fleet.clusters["pool-2"].get_object("nodes", VIRTUAL) is not None


@run_on_fleet()
async def test_a_pool_that_joins_again_and_is_lent_to_again_keeps_its_new_virtual_node(fleet: LendingFleet) -> None:
    await give_up_pool(fleet)
    await rejoin_pool(fleet)
    await wait_until(lambda: fleet.register_state() == "lent" and fleet.is_virtual_node_open())
    await wait_until(lambda: fleet.pool_pod_phases() == RUNS_TWICE)
    await wait_until(lambda: fleet.loan_records()[-1].left_in == ())
    await assert_holds_for(lambda: (fleet.is_virtual_node_open(), fleet.pool_pod_phases()) == (True, RUNS_TWICE), 60)


@run_on_fleet()
async def test_a_pool_that_joins_again_within_the_in_flight_time_has_its_virtual_node_looked_for(
    fleet: LendingFleet,
) -> None:
    """Seed 855408: that it has none was remembered from the time at which it was not in the fleet."""
    await lend_node_and_run_pods(fleet)
    fleet.clusters[POOL].set_faults(Faults(silent=True))
    await fleet.bus.publish(ClusterLeft(POOL))
    await wait_until(lambda: fleet.register_state() == "recalled" and not fleet.real_pod_phases())
    fleet.clusters[POOL].set_faults(Faults(latency_seconds=3.0))  # Its first list is late.
    await fleet.publish_cluster_joined(POOL)
    await wait_until(lambda: fleet.register_state() == "")
    assert fleet.virtual_node() is None


async def lose_pool_after_virtual_node_creation(fleet: LendingFleet) -> None:
    """The pool keeps a closed one, of which nobody can read that it is there."""

    def silence_pool_after_creation(asked: Asked) -> None:
        if asked == (POOL, "POST", "/api/v1/nodes"):
            fleet.clusters[POOL].set_faults(Faults(silent=True))

    fleet.when_answered.append(silence_pool_after_creation)
    await fleet.declare_lending(cooldown_seconds=1)
    await fleet.start()
    await wait_until(lambda: fleet.virtual_node() is not None)
    assert fleet.register_state() == "checking"


@pytest.mark.parametrize("log", ["there", "away", "restarted"])
@pytest.mark.parametrize("given_up", ["at once", "later"])
async def test_a_virtual_node_that_was_just_made_goes_when_its_pool_joins_again(log: str, given_up: str) -> None:
    """Though another one is declared, and no loan of it ever was in the log."""
    async with LendingFleet(pools=(POOL, "pool-2")) as fleet:
        await lose_pool_after_virtual_node_creation(fleet)
        if log == "away":
            fleet.cut_off_from_log("b1")
        if given_up == "later":
            await wait_until(lambda: fleet.register_state() == "")
        await fleet.bus.publish(ClusterLeft(POOL))
        if log == "away":
            await asyncio.sleep(30)
            fleet.cut_off_from_log("b1", unavailable=False)
        await wait_until(lambda: fleet.register_state() == "")
        await wait_until(lambda: bool(fleet.loan_records()))
        assert [(type(one), one.left_in, one.returned_ms) for one in fleet.loan_records()] == [
            (NodeReturned, (POOL,), 0)
        ]  # type: ignore[union-attr]
        if log == "restarted":
            await fleet.kill_instance()
            await fleet.start("b2")
        await fleet.declare_lending(pool="pool-2", cooldown_seconds=1)
        await wait_until(lambda: fleet.register_state() == "lent")
        await wait_until(
            lambda: fleet.record_of_open_loan() is not None and fleet.record_of_open_loan().left_in == (POOL,)
        )
        await rejoin_pool(fleet)
        await wait_until(lambda: fleet.virtual_node() is None)
        await wait_until(lambda: fleet.record_of_open_loan() is not None and fleet.record_of_open_loan().left_in == ())
        assert fleet.register_state() == "lent"
        assert fleet.clusters["pool-2"].get_object("nodes", VIRTUAL) is not None


@run_on_fleet()
async def test_a_pool_that_is_given_up_before_the_log_knew_of_a_loan_keeps_no_virtual_node(fleet: LendingFleet) -> None:
    """The node was marked as lent by a bridge that could not say so, and died."""
    await fleet.declare_lending(cooldown_seconds=1)
    await fleet.start()
    await wait_until(lambda: fleet.register_state() == "checking")
    fleet.cut_off_from_log("b1")
    await wait_until(lambda: fleet.register_state() == "lent")
    fleet.clusters[POOL].set_faults(Faults(silent=True))
    await fleet.kill_instance()
    await fleet.bus.publish(ClusterLeft(POOL))
    await fleet.start("b2")
    await wait_until(lambda: fleet.register_state() == "")
    await wait_until(lambda: bool(fleet.loan_records()))
    assert fleet.loan_records()[-1].left_in == (POOL,)
    await fleet.declare_lending(withdrawing=True)
    await fleet.publish_lending_tombstone()
    await rejoin_pool(fleet)
    await wait_until(lambda: fleet.virtual_node() is None)


# ── People of the pool ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("owner_silent", [False, True])
async def test_a_deployment_that_names_the_virtual_node_holds_no_node(owner_silent: bool) -> None:
    """No scheduler is asked: its controller puts pods there also while the node goes back, as fast as they go."""
    async with LendingFleet() as fleet:
        await fleet.declare_lending(cooldown_seconds=600)
        await fleet.start()
        await wait_until(fleet.is_virtual_node_open)
        manifest = deployment("pinned", 2, cpu="1", tolerations=TOLERATES_LOANS, nodeName=VIRTUAL)
        await fleet.send_request(POOL, "POST", "/apis/apps/v1/namespaces/default/deployments", manifest)
        await wait_until(lambda: fleet.pool_pod_phases() == RUNS_TWICE)
        fleet.asked.clear()
        if owner_silent:
            fleet.clusters[OWN].set_faults(Faults(silent=True))
        await fleet.recall_node()
        if owner_silent:
            await asyncio.sleep(60)
            assert len(fleet.pool_pod_phases()) <= 2 * 8, "those of two a time, once in ten seconds"
            fleet.clusters[OWN].set_faults(Faults())
        await wait_until(lambda: has_loan_ended(fleet), GRACE_SECONDS + 10)
        assert (fleet.register_state(), fleet.real_pod_phases(), fleet.virtual_node()) == ("", [], None)
        await assert_holds_for(lambda: fleet.register_state() == "", 60)
        assert sum(fleet.asked.values()) < 1_000
        await fleet.declare_lending(cooldown_seconds=1)
        await wait_until(
            lambda: fleet.is_virtual_node_open() and fleet.pool_pod_phases().count((VIRTUAL, "Running")) == 2
        )


@run_on_fleet()
async def test_what_a_frozen_bridge_says_of_a_loan_is_said_again(fleet: LendingFleet) -> None:
    """Whoever reads takes the last record of a node's key, whose turn it ever was."""
    await lend_node_and_run_pods(fleet)
    right = fleet.loan_records()[-1]
    assert isinstance(right, NodeLent)
    await fleet.bus.publish(replace(right, epoch=right.epoch - 1, sequence=99, waiting="long ago"))
    await asyncio.sleep(5)
    last = fleet.loan_records()[-1]
    assert isinstance(last, NodeLent)
    assert (last.epoch, last.waiting, last.loan) == (right.epoch, right.waiting, right.loan)


@run_on_fleet()
async def test_while_an_owners_pods_cannot_be_watched_no_node_grows_idle_though_its_probes_are_answered(
    fleet: LendingFleet,
) -> None:
    """What came to a node meanwhile would not be known: counts alone agree also where one pod went and another came."""
    account = fleet.accounts[OWN] = Account("bridge", BRIDGE_OWNER.rights())
    await fleet.declare_lending()
    await fleet.start()
    await asyncio.sleep(IDLE_SECONDS / 2)
    account.may = frozenset(one for one in BRIDGE_OWNER.rights() if (one.verb, one.resource) != ("watch", "pods"))
    fleet.clusters[OWN].set_faults(Faults(drop_watches=True))
    await asyncio.sleep(1)
    fleet.clusters[OWN].set_faults(Faults())
    await assert_holds_for(lambda: fleet.register_state() == "", 4 * IDLE_SECONDS)
    account.may = BRIDGE_OWNER.rights()
    await wait_until(fleet.is_virtual_node_open)
