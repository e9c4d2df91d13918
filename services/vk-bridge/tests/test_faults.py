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
    always,
    on_fleet,
    until,
)

pytestmark = pytest.mark.looptime
VIRTUAL = virtual_node_name(OWN, "n0")
RUNS_TWICE = [(VIRTUAL, "Running")] * 2


async def works(fleet: LendingFleet) -> None:
    """A node is lent, and two offline pods run on it."""
    await fleet.declare(cooldown_seconds=1)
    await fleet.start()
    await until(fleet.is_open)
    await fleet.run_in_pool()
    await until(lambda: fleet.pooled() == RUNS_TWICE)


def uids(fleet: LendingFleet, cluster: str) -> set[str]:
    return {one["metadata"]["uid"] for one in fleet.clusters[cluster].objects("pods")}


def has_ended(fleet: LendingFleet, owner: str = OWN) -> bool:
    return isinstance(fleet.loans(owner=owner)[-1], NodeReturned)


# ── Clusters ────────────────────────────────────────────────────────────────────────────────────────────────────────


@on_fleet()
async def test_an_owner_that_goes_silent_in_mid_recall_lets_no_pod_go_and_returns_when_it_answers(
    fleet: LendingFleet,
) -> None:
    await works(fleet)
    pods = [pod["metadata"] for pod in fleet.clusters[OWN].objects("pods")]
    for pod in pods:
        path = f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}"
        await fleet.ask(OWN, "PATCH", path, {"metadata": {"annotations": {"sim/stop-seconds": "8"}}})
    before = uids(fleet, POOL)
    await fleet.recall()
    await until(lambda: all(pod["metadata"].get("deletionTimestamp") for pod in fleet.clusters[OWN].objects("pods")))
    fleet.clusters[OWN].set_faults(Faults(silent=True))
    await always(lambda: before <= uids(fleet, POOL) and not fleet.is_open(), 60)
    fleet.clusters[OWN].set_faults(Faults())
    await until(lambda: has_ended(fleet))
    assert (fleet.taint(), fleet.real(), fleet.virtual()) == ("", [], None)
    assert not before & uids(fleet, POOL), "each was let go, and its controller made another"


@pytest.mark.parametrize("leaving", [OWN, POOL])
async def test_who_is_to_leave_takes_its_nodes_back_first(leaving: str) -> None:
    """The planner lets it go when no loan is left (planner: test_virtual_nodes.py)."""
    async with LendingFleet() as fleet:
        await works(fleet)
        await fleet.join(leaving, PHASE_LEAVING)
        await until(lambda: has_ended(fleet))
        assert (fleet.loans()[-1].cause, fleet.taint(), fleet.virtual(), fleet.real()) == (CAUSE_ASKED, "", None, [])
        await fleet.bus.publish(ClusterLeft(leaving))
        await always(lambda: fleet.taint() == "", 3 * IDLE_SECONDS)
        await fleet.join(leaving)
        await until(fleet.is_open)
        await until(lambda: fleet.pooled() == RUNS_TWICE)


async def test_the_log_forgets_the_loans_of_an_owner_that_left() -> None:
    """Once they are over for a while; a loan that stands is not forgotten with its cluster."""
    async with LendingFleet(owners=(OWN, OTHER)) as fleet:
        for owner in (OWN, OTHER):
            await fleet.declare(owner=owner)
        await fleet.start(forget_seconds=60, resync_seconds=20)
        await until(lambda: fleet.is_open() and fleet.is_open(owner=OTHER))
        await fleet.join(OWN, PHASE_LEAVING)
        await until(lambda: has_ended(fleet))
        fleet.clusters[OTHER].set_faults(Faults(silent=True))
        for owner in (OWN, OTHER):
            await fleet.bus.publish(ClusterLeft(owner))
        forgotten = LENDING.name, f"{OWN}/n0", None
        await always(lambda: forgotten not in told(fleet), 30)
        await until(lambda: forgotten in told(fleet))
        await asyncio.sleep(60)
        assert told(fleet).count(forgotten) == 1
        assert (LENDING.name, f"{OTHER}/n0", None) not in told(fleet)


def told(fleet: LendingFleet) -> list[tuple[str, str, Event | None]]:
    return [(record.topic, record.key, record.event) for record in fleet.said]


@on_fleet()
async def test_an_owner_that_is_given_up_gets_its_node_back_when_it_joins_again(fleet: LendingFleet) -> None:
    """Meanwhile a person deletes its virtual node, and the pool its pods: they may run elsewhere."""
    await works(fleet)
    fleet.clusters[OWN].set_faults(Faults(silent=True))
    await fleet.bus.publish(ClusterLeft(OWN))
    await asyncio.sleep(60)
    assert fleet.pooled() == RUNS_TWICE, "nobody knows whether they run"
    fleet.clusters[POOL].remove_node(VIRTUAL)
    await until(lambda: fleet.pooled() == [("", "Pending")] * 2)
    fleet.clusters[OWN].set_faults(Faults())
    assert fleet.taint() == "lent"
    await fleet.join(OWN)
    await until(lambda: has_ended(fleet))
    assert (fleet.loans()[-1].cause, fleet.real()) == (CAUSE_VIRTUAL_NODE_GONE, [])
    await until(lambda: fleet.pooled() == RUNS_TWICE)
    assert len(fleet.real()) == 2


@on_fleet()
async def test_a_pool_that_goes_silent_while_a_node_is_being_checked_keeps_it_from_nobody(fleet: LendingFleet) -> None:
    await fleet.declare(cooldown_seconds=1)
    await fleet.start()
    await until(lambda: fleet.taint() == "checking")
    fleet.clusters[POOL].set_faults(Faults(silent=True))
    await until(lambda: fleet.taint() == "", 60)
    await always(lambda: fleet.taint() == "", 120)
    fleet.clusters[POOL].set_faults(Faults())
    await until(fleet.is_open)


@on_fleet(owners=(OWN, OTHER))
async def test_nodes_of_one_name_in_two_owners_are_two_virtual_nodes(fleet: LendingFleet) -> None:
    await fleet.declare()
    await fleet.declare(owner=OTHER)
    await fleet.start()
    await until(lambda: fleet.is_open() and fleet.is_open(owner=OTHER))
    await fleet.run_in_pool(cpu="6")
    await until(lambda: fleet.real() == fleet.real(OTHER) == [("n0", "Running")])
    other = uids(fleet, OTHER)
    await until(lambda: fleet.lent() is not None)
    await fleet.recall()
    await until(lambda: has_ended(fleet))
    assert (fleet.taint(), fleet.real(), fleet.virtual()) == ("", [], None)
    assert (fleet.taint(owner=OTHER), fleet.is_open(owner=OTHER), uids(fleet, OTHER)) == ("lent", True, other)


# ── Bridges ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@on_fleet(owners=(OWN, OTHER))
async def test_pods_that_their_pool_gives_up_while_no_bridge_lives_end_once_and_run_once(fleet: LendingFleet) -> None:
    """After 300 s a pool deletes what runs on a node that nobody speaks for; it runs on until a bridge is back."""
    await works(fleet)
    await fleet.kill()
    pooled, real = uids(fleet, POOL), uids(fleet, OWN)
    await asyncio.sleep(300)
    for pod in [pod["metadata"] for pod in fleet.clusters[POOL].objects("pods")]:
        await fleet.ask(POOL, "DELETE", f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}")
    await until(lambda: len(uids(fleet, POOL)) == 4)
    await always(lambda: pooled <= uids(fleet, POOL) and uids(fleet, OWN) == real, 60)
    waiting = uids(fleet, POOL) - pooled
    await fleet.declare(owner=OTHER)
    await fleet.start("b2")

    def once() -> bool:
        of = [pod["metadata"]["labels"]["spillway.io/pool-uid"] for pod in _real(fleet, OWN) + _real(fleet, OTHER)]
        return len(of) == len(set(of))

    def over() -> bool:
        assert once()
        return uids(fleet, POOL) == waiting and [phase for _, phase in fleet.pooled()] == ["Running"] * 2

    await until(over)
    assert len(_real(fleet, OWN) + _real(fleet, OTHER)) == 2
    assert not real & uids(fleet, OWN), "who was given up has ended"


def _real(fleet: LendingFleet, owner: str) -> list[dict[str, Any]]:
    return [pod for pod in fleet.clusters[owner].objects("pods") if not pod["metadata"].get("deletionTimestamp")]


# ── Nodes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@on_fleet()
async def test_a_freeze_in_mid_recall_forces_no_pod_until_it_is_lifted(fleet: LendingFleet) -> None:
    await works(fleet)
    for one in _real(fleet, OWN):
        place = f"/api/v1/namespaces/{one['metadata']['namespace']}/pods/{one['metadata']['name']}"
        await fleet.ask(OWN, "PATCH", place, {"metadata": {"finalizers": ["example.com/slow"]}})
    await fleet.recall()
    await until(lambda: _graces(fleet) == {GRACE_SECONDS})
    await fleet.freeze()
    await always(lambda: _graces(fleet) == {GRACE_SECONDS}, 10 * GRACE_SECONDS)
    await fleet.unfreeze()
    await until(lambda: _graces(fleet) == {0})


def _graces(fleet: LendingFleet) -> set[int | None]:
    return {one["metadata"].get("deletionGracePeriodSeconds") for one in fleet.clusters[OWN].objects("pods")}


@on_fleet()
async def test_a_lent_node_that_a_person_cordons_takes_no_more_and_keeps_its_pods(fleet: LendingFleet) -> None:
    await works(fleet)
    before = uids(fleet, OWN)
    fleet.clusters[OWN].cordon("n0")
    await until(lambda: bool((fleet.virtual() or {})["spec"].get("unschedulable")))
    await fleet.run_in_pool("more", replicas=1)
    await always(lambda: (fleet.taint(), uids(fleet, OWN)) == ("lent", before), 60)
    fleet.clusters[OWN].cordon("n0", unschedulable=False)
    await until(lambda: fleet.pooled() == [(VIRTUAL, "Running")] * 3)


@on_fleet()
async def test_a_lent_node_that_changes_size_offers_what_it_has_and_keeps_its_pods(fleet: LendingFleet) -> None:
    await works(fleet)
    before = uids(fleet, OWN)
    for cores in (16, 3, 8):
        size = {"status": {"allocatable": {"cpu": str(cores)}, "capacity": {"cpu": str(cores)}}}
        await fleet.ask(OWN, "PATCH", "/api/v1/nodes/n0/status", size)
        await until(lambda cores=cores: _milli_cores(fleet) == (cores * 1000,) * 2)  # type: ignore[misc]
        assert (fleet.taint(), uids(fleet, OWN)) == ("lent", before)


@on_fleet()
async def test_a_lent_node_whose_class_changes_stays_in_the_one_in_which_its_loan_began(fleet: LendingFleet) -> None:
    """In the pool as in the log; the next loan is in the new one."""
    nvme = LendingRule("nvme", (Requirement("disk", "In", ("nvme",)),), "dedicated", 100, 0, 0, 1.0)
    rest = LendingRule("rest", (), "idle", 100, 0, 0, 0.5)
    await fleet.ask(OWN, "PATCH", "/api/v1/nodes/n0", {"metadata": {"labels": {"disk": "nvme"}}})
    await fleet.declare(rules=(nvme, rest), cooldown_seconds=1)
    await fleet.start()
    await until(fleet.is_open)

    def shown() -> tuple[str, str, str]:
        virtual, lent = fleet.virtual() or {}, fleet.lent()
        metadata = virtual.get("metadata", {"labels": {}, "annotations": {}})
        label, cost = metadata["labels"].get(SUPPLY_CLASS, ""), metadata["annotations"].get(COST_PER_HOUR, "")
        return label, cost, lent.supply_class if lent is not None else ""

    await until(lambda: shown() == ("dedicated", "1", "dedicated"))
    await fleet.ask(OWN, "PATCH", "/api/v1/nodes/n0", {"metadata": {"labels": {"disk": "hdd"}}})
    await always(lambda: shown() == ("dedicated", "1", "dedicated"), 60)
    await fleet.recall(cause=CAUSE_ASKED)
    await until(lambda: shown() == ("idle", "0.5", "idle"))


def _milli_cores(fleet: LendingFleet) -> tuple[int, int]:
    """As the pool sees them, and as the log has them."""
    virtual, lent = fleet.virtual(), fleet.lent()
    assert virtual is not None
    assert lent is not None
    return parse_quantity(virtual["status"]["allocatable"]["cpu"], milli=True), dict(lent.offered)["cpu"]


@on_fleet(nodes=2)
async def test_the_log_forgets_a_node_that_is_gone_an_hour_after_its_last_loan(fleet: LendingFleet) -> None:
    """And no other's: one that is there has its cooldown, and one that is lent its loan."""
    await fleet.declare(cooldown_seconds=1)
    await fleet.start()
    await until(lambda: fleet.is_open("n0") and fleet.is_open("n1"))
    for node in ("n0", "n1"):
        fleet.clusters[OWN].remove_node(node)
    await until(lambda: has_ended(fleet) and isinstance(fleet.loans("n1")[-1], NodeReturned))
    fleet.clusters[OWN].add_nodes([NodeSpec("n", 1, cpu_millis=8000)])
    await until(fleet.is_open)

    def forgotten() -> set[str]:
        return {record.key for record in fleet.said if record.event is None}

    await asyncio.sleep(3000)
    assert forgotten() == set()
    await asyncio.sleep(1500)
    assert forgotten() == {f"{OWN}/n1"}
    assert (fleet.taint(), fleet.is_open()) == ("lent", True)


@on_fleet()
async def test_a_loan_of_which_the_log_is_told_to_forget_is_said_again(fleet: LendingFleet) -> None:
    """By a bridge that froze before the node was lent again, and that took it for gone."""
    await works(fleet)
    said = len(fleet.loans())
    await fleet.bus.publish(Tombstone(lending_address(LENDING, OWN, "n0")))
    await until(lambda: len(fleet.loans()) > said)
    assert (fleet.lent() is not None, fleet.is_open(), fleet.pooled()) == (True, True, RUNS_TWICE)


@on_fleet()
async def test_a_taint_that_a_person_takes_off_ends_the_loan(fleet: LendingFleet) -> None:
    await works(fleet)
    fleet.clusters[OWN].untaint("n0", "spillway.io/lending")
    await until(lambda: has_ended(fleet))
    assert (fleet.taint(), fleet.real(), fleet.virtual()) == ("", [], None)
    assert fleet.loans()[-1].cause == "TaintRemoved"


# ── Pools that are given up, and join again ─────────────────────────────────────────────────────────────────────────


async def gives_up_the_pool(fleet: LendingFleet) -> None:
    """It answers nobody any more; the node comes back from it, and its own virtual node and pods stay there."""
    await works(fleet)
    await until(lambda: fleet.lent() is not None and len(fleet.lent().pods) == 2)
    fleet.clusters[POOL].set_faults(Faults(silent=True))
    await fleet.bus.publish(ClusterLeft(POOL))
    await until(lambda: has_ended(fleet))


async def comes_back(fleet: LendingFleet) -> None:
    fleet.clusters[POOL].set_faults(Faults())
    assert fleet.virtual() is not None
    await fleet.join(POOL)


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_pool_that_joins_again_after_the_lending_was_withdrawn_keeps_no_virtual_node(restarted: bool) -> None:
    counted = returns_counted()
    async with LendingFleet() as fleet:
        await gives_up_the_pool(fleet)
        await fleet.declare(withdrawing=True)
        await fleet.withdraw()
        await asyncio.sleep(10)
        if restarted:
            await fleet.kill()
            await fleet.start("b2")
        await comes_back(fleet)
        await until(lambda: fleet.virtual() is None)
        await until(lambda: fleet.pooled() == [("", "Pending")] * 2)
        await until(lambda: fleet.loans()[-1].left_in == ())
        returned = [one for one in fleet.loans() if isinstance(one, NodeReturned)]
        assert [one.left_in for one in returned] == [(POOL,), ()]
        assert {one.returned_ms for one in returned} == {returned[0].returned_ms}, "one return, told twice"
    assert returns_counted() == counted + 1


def returns_counted() -> float:
    """Of all bridges of this process, whatever the cause."""
    return REGISTRY.get_sample_value("spillway_return_seconds_count", {"cluster": OWN, "supply_class": "idle"}) or 0.0


@on_fleet(nodes=40)
async def test_a_pool_that_is_back_and_silent_costs_its_owner_few_requests(fleet: LendingFleet) -> None:
    await fleet.declare(cooldown_seconds=1)
    await fleet.start()
    await until(lambda: all(fleet.is_open(f"n{number}") for number in range(40)))
    fleet.clusters[POOL].set_faults(Faults(silent=True))
    await fleet.bus.publish(ClusterLeft(POOL))
    await until(lambda: all(isinstance(fleet.loans(f"n{number}")[-1], NodeReturned) for number in range(40)))
    await fleet.declare(withdrawing=True)
    await fleet.withdraw()
    await fleet.join(POOL)
    await asyncio.sleep(30)
    fleet.asked.clear()
    await asyncio.sleep(100)
    pods = fleet.asked[OWN, "GET", "/api/v1/pods"]
    probes, looks = 51, 3
    assert pods <= probes + looks * 16, "a look, which takes the 30 s of a request, every ten; those at once alone"
    fleet.clusters[POOL].set_faults(Faults())
    await until(lambda: all(fleet.virtual(f"n{number}") is None for number in range(40)))


@on_fleet(pools=(POOL, "pool-2"))
async def test_a_pool_that_joins_again_while_its_node_is_lent_to_another_keeps_no_virtual_node(
    fleet: LendingFleet,
) -> None:
    """And what runs there for the other is not disturbed."""
    await gives_up_the_pool(fleet)
    await fleet.declare(pool="pool-2", cooldown_seconds=1)
    await until(lambda: fleet.taint() == "lent")
    manifest = pod_manifest("one", tolerations=TOLERATES_LOANS)
    await fleet.ask("pool-2", "POST", "/api/v1/namespaces/default/pods", manifest)
    await until(lambda: fleet.real() == [("n0", "Running")])
    running = uids(fleet, OWN)
    await until(lambda: fleet.lent() is not None and fleet.lent().left_in == (POOL,))
    await fleet.kill()
    await fleet.start("b2")
    await comes_back(fleet)
    await until(lambda: fleet.virtual() is None)
    await until(lambda: fleet.lent() is not None and fleet.lent().left_in == ())
    assert (fleet.taint(), uids(fleet, OWN)) == ("lent", running)
    assert fleet.clusters["pool-2"].get_object("nodes", VIRTUAL) is not None


@on_fleet()
async def test_a_pool_that_joins_again_and_is_lent_to_again_keeps_its_new_virtual_node(fleet: LendingFleet) -> None:
    await gives_up_the_pool(fleet)
    await comes_back(fleet)
    await until(lambda: fleet.taint() == "lent" and fleet.is_open())
    await until(lambda: fleet.pooled() == RUNS_TWICE)
    await until(lambda: fleet.loans()[-1].left_in == ())
    await always(lambda: (fleet.is_open(), fleet.pooled()) == (True, RUNS_TWICE), 60)


@on_fleet()
async def test_a_pool_that_joins_again_within_the_in_flight_time_has_its_virtual_node_looked_for(
    fleet: LendingFleet,
) -> None:
    """Seed 855408: that it has none was remembered from the time at which it was not in the fleet."""
    await works(fleet)
    fleet.clusters[POOL].set_faults(Faults(silent=True))
    await fleet.bus.publish(ClusterLeft(POOL))
    await until(lambda: fleet.taint() == "recalled" and not fleet.real())
    fleet.clusters[POOL].set_faults(Faults(latency_seconds=3.0))  # Its first list is late.
    await fleet.join(POOL)
    await until(lambda: fleet.taint() == "")
    assert fleet.virtual() is None


async def loses_the_pool_when_a_virtual_node_was_just_made(fleet: LendingFleet) -> None:
    """The pool keeps a closed one, of which nobody can read that it is there."""

    def goes_silent(asked: Asked) -> None:
        if asked == (POOL, "POST", "/api/v1/nodes"):
            fleet.clusters[POOL].set_faults(Faults(silent=True))

    fleet.when_answered.append(goes_silent)
    await fleet.declare(cooldown_seconds=1)
    await fleet.start()
    await until(lambda: fleet.virtual() is not None)
    assert fleet.taint() == "checking"


@pytest.mark.parametrize("log", ["there", "away", "restarted"])
@pytest.mark.parametrize("given_up", ["at once", "later"])
async def test_a_virtual_node_that_was_just_made_goes_when_its_pool_joins_again(log: str, given_up: str) -> None:
    """Though another one is declared, and no loan of it ever was in the log."""
    async with LendingFleet(pools=(POOL, "pool-2")) as fleet:
        await loses_the_pool_when_a_virtual_node_was_just_made(fleet)
        if log == "away":
            fleet.cut_off("b1")
        if given_up == "later":
            await until(lambda: fleet.taint() == "")
        await fleet.bus.publish(ClusterLeft(POOL))
        if log == "away":
            await asyncio.sleep(30)
            fleet.cut_off("b1", unavailable=False)
        await until(lambda: fleet.taint() == "")
        await until(lambda: bool(fleet.loans()))
        assert [(type(one), one.left_in, one.returned_ms) for one in fleet.loans()] == [(NodeReturned, (POOL,), 0)]  # type: ignore[union-attr]
        if log == "restarted":
            await fleet.kill()
            await fleet.start("b2")
        await fleet.declare(pool="pool-2", cooldown_seconds=1)
        await until(lambda: fleet.taint() == "lent")
        await until(lambda: fleet.lent() is not None and fleet.lent().left_in == (POOL,))
        await comes_back(fleet)
        await until(lambda: fleet.virtual() is None)
        await until(lambda: fleet.lent() is not None and fleet.lent().left_in == ())
        assert fleet.taint() == "lent"
        assert fleet.clusters["pool-2"].get_object("nodes", VIRTUAL) is not None


@on_fleet()
async def test_a_pool_that_is_given_up_before_the_log_knew_of_a_loan_keeps_no_virtual_node(fleet: LendingFleet) -> None:
    """The node was marked as lent by a bridge that could not say so, and died."""
    await fleet.declare(cooldown_seconds=1)
    await fleet.start()
    await until(lambda: fleet.taint() == "checking")
    fleet.cut_off("b1")
    await until(lambda: fleet.taint() == "lent")
    fleet.clusters[POOL].set_faults(Faults(silent=True))
    await fleet.kill()
    await fleet.bus.publish(ClusterLeft(POOL))
    await fleet.start("b2")
    await until(lambda: fleet.taint() == "")
    await until(lambda: bool(fleet.loans()))
    assert fleet.loans()[-1].left_in == (POOL,)
    await fleet.declare(withdrawing=True)
    await fleet.withdraw()
    await comes_back(fleet)
    await until(lambda: fleet.virtual() is None)


# ── People of the pool ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("owner_silent", [False, True])
async def test_a_deployment_that_names_the_virtual_node_holds_no_node(owner_silent: bool) -> None:
    """No scheduler is asked: its controller puts pods there also while the node goes back, as fast as they go."""
    async with LendingFleet() as fleet:
        await fleet.declare(cooldown_seconds=600)
        await fleet.start()
        await until(fleet.is_open)
        manifest = deployment("pinned", 2, cpu="1", tolerations=TOLERATES_LOANS, nodeName=VIRTUAL)
        await fleet.ask(POOL, "POST", "/apis/apps/v1/namespaces/default/deployments", manifest)
        await until(lambda: fleet.pooled() == RUNS_TWICE)
        fleet.asked.clear()
        if owner_silent:
            fleet.clusters[OWN].set_faults(Faults(silent=True))
        await fleet.recall()
        if owner_silent:
            await asyncio.sleep(60)
            assert len(fleet.pooled()) <= 2 * 8, "those of two a time, once in ten seconds"
            fleet.clusters[OWN].set_faults(Faults())
        await until(lambda: has_ended(fleet), GRACE_SECONDS + 10)
        assert (fleet.taint(), fleet.real(), fleet.virtual()) == ("", [], None)
        await always(lambda: fleet.taint() == "", 60)
        assert sum(fleet.asked.values()) < 1_000
        await fleet.declare(cooldown_seconds=1)
        await until(lambda: fleet.is_open() and fleet.pooled().count((VIRTUAL, "Running")) == 2)


@on_fleet()
async def test_what_a_frozen_bridge_says_of_a_loan_is_said_again(fleet: LendingFleet) -> None:
    """Whoever reads takes the last record of a node's key, whose turn it ever was."""
    await works(fleet)
    right = fleet.loans()[-1]
    assert isinstance(right, NodeLent)
    await fleet.bus.publish(replace(right, epoch=right.epoch - 1, sequence=99, waiting="long ago"))
    await asyncio.sleep(5)
    last = fleet.loans()[-1]
    assert isinstance(last, NodeLent)
    assert (last.epoch, last.waiting, last.loan) == (right.epoch, right.waiting, right.loan)


@on_fleet()
async def test_while_an_owners_pods_cannot_be_watched_no_node_grows_idle_though_its_probes_are_answered(
    fleet: LendingFleet,
) -> None:
    """What came to a node meanwhile would not be known: counts alone agree also where one pod went and another came."""
    account = fleet.accounts[OWN] = Account("bridge", BRIDGE_OWNER.rights())
    await fleet.declare()
    await fleet.start()
    await asyncio.sleep(IDLE_SECONDS / 2)
    account.may = frozenset(one for one in BRIDGE_OWNER.rights() if (one.verb, one.resource) != ("watch", "pods"))
    fleet.clusters[OWN].set_faults(Faults(drop_watches=True))
    await asyncio.sleep(1)
    fleet.clusters[OWN].set_faults(Faults())
    await always(lambda: fleet.taint() == "", 4 * IDLE_SECONDS)
    account.may = BRIDGE_OWNER.rights()
    await until(fleet.is_open)
