"""The whole service on the bus in memory and on two simulated clusters, in virtual time. Asserted is what APIs show."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import REGISTRY

from sim.manifests import pod
from sim.settings import Faults, NodeSpec
from spillway.events import CapacityNeeded, ClusterLeft, PodsUnschedulable
from spillway.events_lending import (
    CAUSE_ASKED,
    CAUSE_NEED,
    CAUSE_OCCUPIED,
    CAUSE_OPT_OUT,
    LendingRule,
    NodeLent,
    NodeReturned,
)
from spillway.kubernetes.pod_shape import shape_of
from spillway.lending_marks import FLEET as FLEET_KEY
from spillway.lending_marks import LEND, NEVER, virtual_node_name
from spillway.lending_marks import LENDING as LENDING_KEY
from spillway.model import Generation

from .lending_fleet import FLEET, GRACE_SECONDS, IDLE_SECONDS, OTHER, OWN, POOL, LendingFleet, always, on_fleet, until

pytestmark = pytest.mark.looptime
VIRTUAL = virtual_node_name(OWN, "n0")


@on_fleet()
async def test_an_idle_node_is_lent_runs_a_pools_pods_and_comes_back_for_a_need(fleet: LendingFleet) -> None:
    await fleet.declare()
    await fleet.start()
    assert await until(fleet.is_open) >= IDLE_SECONDS
    assert fleet.taint() == "lent"
    await fleet.run_in_pool(replicas=3, cpu="3")
    await until(lambda: fleet.pooled() == [("", "Pending"), (VIRTUAL, "Running"), (VIRTUAL, "Running")])
    assert fleet.real() == [("n0", "Running")] * 2
    await until(lambda: fleet.lent() is not None and len(fleet.lent().pods) == 2)
    await fleet.recall()
    await until(lambda: fleet.taint() == "")
    assert (fleet.virtual(), fleet.real()) == (None, [])
    assert fleet.pooled() == [("", "Pending")] * 3
    await until(lambda: isinstance(fleet.loans()[-1], NodeReturned))
    returned = fleet.loans()[-1]
    assert isinstance(returned, NodeReturned)
    assert (returned.cause, returned.evicted, returned.forced) == (CAUSE_NEED, 2, 0)
    assert returned.lent_ms < returned.recalled_ms <= returned.closed_ms <= returned.emptied_ms <= returned.deleted_ms


@on_fleet()
async def test_cores_recovered_now_and_over_time_and_what_their_return_cost(fleet: LendingFleet) -> None:
    """Of two instances that work on the cluster one after the other, the sum counts each core once."""

    def shown(name: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(f"spillway_{name}", {"cluster": OWN, "supply_class": "idle", **labels}) or 0.0

    counted = ("pods_evicted_total", "return_seconds_count")
    before = {name: shown(name) for name in counted}
    returns = shown("returns_total", cause=CAUSE_NEED)
    await fleet.declare()
    await fleet.start("b1")
    await until(fleet.is_open)
    await until(lambda: shown("cores_lent") == 8)
    over_time = shown("core_seconds_lent_total")
    await fleet.run_in_pool(replicas=2, cpu="3")
    await until(lambda: fleet.real() == [("n0", "Running")] * 2)
    await asyncio.sleep(100)
    assert 8 * 90 <= shown("core_seconds_lent_total") - over_time <= 8 * 120
    await fleet.stop("b1")
    assert shown("cores_lent") == 0
    await fleet.start("b2")
    await until(lambda: shown("cores_lent") == 8)
    await until(lambda: fleet.lent() is not None and len(fleet.lent().pods) == 2)
    await fleet.recall()
    await until(lambda: shown("returns_total", cause=CAUSE_NEED) == returns + 1)
    assert shown("pods_evicted_total") - before["pods_evicted_total"] == 2
    assert shown("return_seconds_count") - before["return_seconds_count"] == 1
    await until(lambda: shown("cores_lent") == 0)


@on_fleet()
async def test_a_node_on_which_an_owners_pod_runs_is_not_lent(fleet: LendingFleet) -> None:
    await fleet.ask(OWN, "POST", "/api/v1/namespaces/default/pods", pod("web"))
    await fleet.declare()
    await fleet.start()
    await always(lambda: fleet.taint() == "", 4 * IDLE_SECONDS)
    await fleet.ask(OWN, "DELETE", "/api/v1/namespaces/default/pods/web")
    assert await until(fleet.is_open) >= IDLE_SECONDS


@on_fleet()
async def test_a_node_that_came_back_is_not_lent_again_within_its_cooldown(fleet: LendingFleet) -> None:
    await fleet.declare(cooldown_seconds=200)
    await fleet.start()
    await until(fleet.is_open)
    await fleet.recall()
    await until(lambda: isinstance(fleet.loans()[-1], NodeReturned))
    await always(lambda: fleet.taint() == "", 190)
    await until(fleet.is_open, 30)


@on_fleet()
async def test_a_pods_grace_is_kept_and_one_that_ignores_it_is_forced(fleet: LendingFleet) -> None:
    await fleet.declare()
    await fleet.start()
    await until(fleet.is_open)
    await fleet.run_in_pool(replicas=1)
    await until(lambda: fleet.real() == [("n0", "Running")])
    await until(lambda: fleet.lent() is not None and len(fleet.lent().pods) == 1)
    name, namespace = next(
        (one["metadata"]["name"], one["metadata"]["namespace"]) for one in fleet.clusters[OWN].objects("pods")
    )
    stubborn = {"metadata": {"finalizers": ["example.com/stays"]}}
    await fleet.ask(OWN, "PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}", stubborn)
    await fleet.recall()
    await always(lambda: fleet.taint() != "", GRACE_SECONDS + 2)
    assert (fleet.taint(), fleet.virtual() is not None) == ("recalled", True)
    await until(lambda: "pods to leave: 1" in [one.waiting for one in fleet.loans() if isinstance(one, NodeLent)])
    await fleet.ask(OWN, "PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}", {"metadata": {"finalizers": None}})
    await until(lambda: isinstance(fleet.loans()[-1], NodeReturned))
    returned = fleet.loans()[-1]
    assert isinstance(returned, NodeReturned)
    assert (returned.evicted, returned.forced) == (1, 1)


@on_fleet()
async def test_the_opt_out_label_takes_a_node_back_and_keeps_it(fleet: LendingFleet) -> None:
    await fleet.declare(cooldown_seconds=1)
    await fleet.start()
    await until(fleet.is_open)
    await fleet.ask(OWN, "PATCH", "/api/v1/nodes/n0", {"metadata": {"labels": {LEND: NEVER}}})
    await until(lambda: isinstance(fleet.loans()[-1], NodeReturned))
    assert (fleet.loans()[-1].cause, fleet.taint(), fleet.virtual()) == (CAUSE_OPT_OUT, "", None)
    await always(lambda: fleet.taint() == "", 3 * IDLE_SECONDS)


@on_fleet()
async def test_an_owners_pod_that_is_bound_all_the_same_takes_its_node_back(fleet: LendingFleet) -> None:
    await fleet.declare()
    await fleet.start()
    await until(fleet.is_open)
    await fleet.run_in_pool(replicas=1)
    await until(lambda: fleet.real() == [("n0", "Running")])
    await fleet.ask(OWN, "POST", "/api/v1/namespaces/default/pods", pod("web", nodeName="n0"))
    await until(lambda: isinstance(fleet.loans()[-1], NodeReturned))
    assert (fleet.loans()[-1].cause, fleet.taint(), fleet.real()) == (CAUSE_OCCUPIED, "", [])


@on_fleet()
async def test_a_declaration_that_is_withdrawn_takes_everything_back_and_lets_the_cluster_go(
    fleet: LendingFleet,
) -> None:
    await fleet.declare()
    bridge = await fleet.start()
    await until(fleet.is_open)
    assert bridge.clusters_worked_on == {OWN}
    await fleet.declare(withdrawing=True)
    await until(lambda: isinstance(fleet.loans()[-1], NodeReturned))
    assert (fleet.loans()[-1].cause, fleet.taint()) == (CAUSE_ASKED, "")
    await fleet.withdraw()
    await until(lambda: bridge.clusters_worked_on == set())


@on_fleet(nodes=2)
async def test_marks_that_no_declaration_made_go_once_one_is_withdrawn(fleet: LendingFleet) -> None:
    """As `spillway doctor` has a person do where it finds them; nothing else is lent meanwhile, for no node is idle."""
    mark = {"metadata": {"labels": {FLEET_KEY: FLEET, LENDING_KEY: "lent"}}}
    taints = [{"key": LENDING_KEY, "value": "lent", "effect": "NoSchedule"}]
    await fleet.ask(OWN, "PATCH", "/api/v1/nodes/n0", {**mark, "spec": {"taints": taints}})
    bridge = await fleet.start()
    await asyncio.sleep(600)
    assert (fleet.taint("n0"), bridge.clusters_worked_on) == ("lent", set()), "nobody looks after it"
    await fleet.declare(rules=(LendingRule("all", (), "idle", 100, 0, 86_400, 0.5),))
    await fleet.declare(withdrawing=True)
    await until(lambda: fleet.taint("n0") == "")
    assert not fleet.loans()


@on_fleet(nodes=2)
async def test_a_freeze_lends_nothing_leaves_what_is_lent_and_holds_recalls_for_needs(fleet: LendingFleet) -> None:
    await fleet.ask(OWN, "PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {LEND: NEVER}}})
    await fleet.declare()
    await fleet.start()
    await until(fleet.is_open)
    await fleet.freeze()
    await fleet.ask(OWN, "PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {LEND: None}}})
    await fleet.recall()
    await always(
        lambda: (fleet.taint("n0"), fleet.taint("n1"), fleet.is_open()) == ("lent", "", True), 3 * IDLE_SECONDS
    )
    await fleet.unfreeze()
    await until(lambda: isinstance(fleet.loans()[-1], NodeReturned) and fleet.is_open("n1"))


@on_fleet()
async def test_a_virtual_node_shows_what_its_real_node_tells(fleet: LendingFleet) -> None:
    """A heartbeat as seldom as kubelets tell one, pressure and another size at once."""
    beat = datetime(2026, 1, 1, tzinfo=UTC)

    async def tell(seconds: int, pressure: str = "False", **allocatable: str) -> None:
        at = (beat + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": at}
        pressed = {"type": "MemoryPressure", "status": pressure, "lastHeartbeatTime": at}
        status = {"conditions": [ready, pressed], "allocatable": allocatable}
        await fleet.ask(OWN, "PATCH", "/api/v1/nodes/n0/status", {"status": status})

    def shown() -> tuple[str, str, str]:
        status = (fleet.virtual() or {})["status"]
        found = {one["type"]: one for one in status["conditions"]}
        return found["Ready"]["lastHeartbeatTime"][-9:], found["MemoryPressure"]["status"], status["allocatable"]["cpu"]

    await tell(0)
    await fleet.declare()
    await fleet.start()
    await until(fleet.is_open)
    assert shown() == ("00:00:00Z", "False", "8000m")
    await tell(100)
    await always(lambda: shown() == ("00:00:00Z", "False", "8000m"), 20)
    await tell(300)
    await until(lambda: shown() == ("00:05:00Z", "False", "8000m"), 5)
    await tell(310, "True")
    await until(lambda: shown() == ("00:05:10Z", "True", "8000m"), 5)
    await tell(320, "True", cpu="6")
    await until(lambda: shown() == ("00:05:20Z", "True", "6000m"), 5)


@on_fleet()
async def test_a_virtual_node_names_the_bridge_whose_turn_its_owner_is(fleet: LendingFleet) -> None:
    """Also a closed one: the logs of pods that leave are asked for too."""
    files = {"kubelet_certificate": "x", "kubelet_key": "x"}
    await fleet.declare()
    await fleet.start("b1", kubelet_ports=(f"{POOL}=10250", "other=10260"), **files)
    await until(fleet.is_open)
    assert fleet.kubelet_port() == 10250
    await fleet.run_in_pool(replicas=1)
    await until(lambda: fleet.real() == [("n0", "Running")])
    await fleet.kill("b1")
    await fleet.start("b2", kubelet_ports=(f"{POOL}=10251",), **files)
    await until(lambda: fleet.kubelet_port() == 10251)
    await until(lambda: fleet.lent() is not None)
    place = next(one["metadata"] for one in fleet.clusters[OWN].objects("pods"))
    path = f"/api/v1/namespaces/{place['namespace']}/pods/{place['name']}"
    await fleet.ask(OWN, "PATCH", path, {"metadata": {"finalizers": ["example.com/stays"]}})
    await fleet.recall()
    await until(lambda: not fleet.is_open())
    await fleet.kill("b2")
    await fleet.start("b3", kubelet_ports=(f"{POOL}=10252",), **files)
    await until(lambda: fleet.kubelet_port() == 10252)
    assert (fleet.taint(), fleet.is_open()) == ("recalled", False)
    await fleet.ask(OWN, "PATCH", path, {"metadata": {"finalizers": None}})
    await until(lambda: fleet.virtual() is None)


@on_fleet()
async def test_two_bridges_by_mistake_do_not_write_their_addresses_without_end(fleet: LendingFleet) -> None:
    files = {"kubelet_certificate": "x", "kubelet_key": "x"}
    wrong = await fleet.wrong_log()
    await fleet.declare()
    await fleet.declare(bus=wrong)
    ports = {"kubelet_ports": (f"{POOL}=10250",), **files}
    await fleet.start("right", kubelet_address="10.0.0.1", **ports)
    await fleet.start("wrong", wrong.broker, kubelet_address="10.0.0.2", **ports)
    await until(fleet.is_open)
    await fleet.run_in_pool(replicas=1)
    await until(lambda: fleet.pooled() == [(VIRTUAL, "Running")])

    def writes() -> float:
        labels = ({"step": step, "outcome": "done"} for step in ("ShowVirtual", "Mirror"))
        return sum(REGISTRY.get_sample_value("spillway_lending_steps_total", one) or 0.0 for one in labels)

    before, minutes = writes(), 11
    await asyncio.sleep(minutes * 60)
    assert fleet.is_open()
    assert 1 <= writes() - before <= 4 * minutes, "node and pod, each of them once in half a minute at the most"


# ── Crash, freeze, faults ───────────────────────────────────────────────────────────────────────────────────────────


@on_fleet()
async def test_a_bridge_that_dies_in_the_middle_is_followed_by_one_that_goes_on(fleet: LendingFleet) -> None:
    """At each state of a loan, one after the other."""
    await fleet.declare(cooldown_seconds=1)
    await fleet.start("b0")
    states = ("checking", "lent", "recalled", "")
    for number, state in enumerate(states):
        await until(lambda state=state: fleet.taint() == state)  # type: ignore[misc]
        await fleet.kill(f"b{number}")
        await fleet.start(f"b{number + 1}")
        if state == "lent":
            await fleet.run_in_pool()
            await until(lambda: len(fleet.real()) == 2)
            await until(lambda: fleet.lent() is not None)
            await fleet.recall()
    await until(lambda: isinstance(fleet.loans()[-1], NodeReturned))
    assert (fleet.real(), fleet.virtual(), fleet.taint()) == ([], None, "")
    assert len({(one.loan, type(one)) for one in fleet.loans()}) == 2, "one loan, that began once and ended once"


@on_fleet()
async def test_a_stop_finishes_what_is_said_and_a_start_takes_it_up(fleet: LendingFleet) -> None:
    await fleet.declare()
    await fleet.start("b1")
    await fleet.start("b2")
    await until(fleet.is_open)
    await fleet.run_in_pool()
    await until(lambda: fleet.real() == [("n0", "Running")] * 2)
    await fleet.stop("b1")
    await fleet.stop("b2")
    pods = [one["metadata"]["uid"] for one in fleet.clusters[OWN].objects("pods")]
    await asyncio.sleep(30)
    await fleet.start("b3")
    await asyncio.sleep(30)
    assert [one["metadata"]["uid"] for one in fleet.clusters[OWN].objects("pods")] == pods
    assert (fleet.taint(), fleet.is_open()) == ("lent", True)
    await fleet.recall()
    await until(lambda: isinstance(fleet.loans()[-1], NodeReturned))


@on_fleet(nodes=2)
async def test_two_bridges_by_mistake_do_no_harm(fleet: LendingFleet) -> None:
    """A second one, on another log of the same fleet: it knows nothing of the first one's turn."""
    wrong = await fleet.wrong_log()
    await fleet.declare(cooldown_seconds=1)
    await fleet.declare(cooldown_seconds=1, bus=wrong)
    await fleet.start("right")
    await fleet.start("wrong", wrong.broker)

    def safe() -> bool:
        nodes = ("n0", "n1")
        return all(not fleet.is_open(node) or fleet.taint(node) in ("lent", "recalled") for node in nodes) and all(
            fleet.taint(node) in ("lent", "recalled") for node, _ in fleet.real()
        )

    await until(lambda: safe() and fleet.is_open("n0") and fleet.is_open("n1"))
    await fleet.run_in_pool(replicas=4)
    await until(lambda: safe() and [phase for _, phase in fleet.real()] == ["Running"] * 4)
    await always(safe, 60)
    assert len(fleet.real()) == 4, "of each pool pod there is one real pod"
    await fleet.kill("wrong")
    await fleet.declare(withdrawing=True)
    await until(lambda: safe() and {fleet.taint("n0"), fleet.taint("n1")} == {""})
    assert (fleet.virtual("n0"), fleet.virtual("n1"), fleet.real()) == (None, None, [])


@on_fleet(nodes=2)
async def test_without_the_log_nothing_is_lent_and_what_is_lent_stays(fleet: LendingFleet) -> None:
    """What was being lent when the log went away is not kept from its owner until it is back."""

    def has_place(name: str) -> bool:
        found = fleet.clusters[OWN].get_object("pods", name, "default")
        return found is not None and found["spec"].get("nodeName") == "n1"

    await fleet.ask(OWN, "PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {LEND: NEVER}}})
    await fleet.declare(cooldown_seconds=1)
    await fleet.start()
    await until(fleet.is_open)
    fleet.cut_off("b1")
    await fleet.ask(OWN, "PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {LEND: None}}})
    await until(lambda: fleet.taint("n1") == "lent")
    await fleet.ask(OWN, "POST", "/api/v1/namespaces/default/pods", pod("web", cpu="2"))
    await until(lambda: has_place("web"), 30)
    await fleet.ask(OWN, "DELETE", "/api/v1/namespaces/default/pods/web")
    await always(lambda: fleet.is_open("n0") and fleet.taint("n1") == "" and fleet.virtual("n1") is None, 60)
    fleet.cut_off("b1", unavailable=False)
    await until(lambda: fleet.is_open("n1"))


@on_fleet()
async def test_while_the_pool_is_silent_pods_leave_and_the_node_comes_back_when_it_answers(fleet: LendingFleet) -> None:
    await fleet.declare()
    await fleet.start()
    await until(fleet.is_open)
    await fleet.run_in_pool()
    await until(lambda: fleet.real() == [("n0", "Running")] * 2)
    fleet.clusters[POOL].set_faults(Faults(silent=True))
    await fleet.recall()
    await until(lambda: fleet.real() == [])
    await always(lambda: fleet.taint() == "recalled", 60)
    lent = fleet.lent()
    assert lent is not None
    assert lent.waiting == f"the pool {POOL} cannot be read"
    fleet.clusters[POOL].set_faults(Faults())
    await until(lambda: isinstance(fleet.loans()[-1], NodeReturned))
    assert (fleet.taint(), fleet.virtual()) == ("", None)


@on_fleet()
async def test_while_the_owner_is_silent_the_virtual_node_closes_and_no_pod_is_let_go(fleet: LendingFleet) -> None:
    await fleet.declare()
    await fleet.start()
    await until(fleet.is_open)
    await fleet.run_in_pool()
    await until(lambda: fleet.real() == [("n0", "Running")] * 2)
    fleet.clusters[OWN].set_faults(Faults(silent=True))
    await fleet.recall()
    await until(lambda: not fleet.is_open())
    await asyncio.sleep(60)
    deleting = [bool(one["metadata"].get("deletionTimestamp")) for one in fleet.clusters[POOL].objects("pods")]
    assert deleting.count(True) == 2
    fleet.clusters[OWN].set_faults(Faults())
    await until(lambda: isinstance(fleet.loans()[-1], NodeReturned))
    assert (fleet.taint(), fleet.real()) == ("", [])


@on_fleet()
async def test_a_node_that_vanishes_takes_its_virtual_node_and_pods_along(fleet: LendingFleet) -> None:
    await fleet.declare()
    await fleet.start()
    await until(fleet.is_open)
    await fleet.run_in_pool()
    await until(lambda: fleet.pooled() == [(VIRTUAL, "Running")] * 2)
    fleet.clusters[OWN].remove_node("n0")
    await until(lambda: isinstance(fleet.loans()[-1], NodeReturned))
    assert fleet.virtual() is None
    assert fleet.loans()[-1].cause == "NodeGone"


@on_fleet()
async def test_what_a_pool_refuses_evicts_nobody_and_is_done_once_it_is_allowed(fleet: LendingFleet) -> None:
    """Its account may not write nodes: from a virtual node that stays open, pods would go and come without end."""
    await fleet.declare()
    await fleet.start()
    await until(fleet.is_open)
    await fleet.run_in_pool()
    await until(lambda: fleet.real() == [("n0", "Running")] * 2)
    before = {one["metadata"]["uid"] for one in fleet.clusters[POOL].objects("pods")}
    fleet.clusters[POOL].set_faults(Faults(forbidden=("PATCH nodes", "DELETE nodes")))
    await fleet.recall()
    await until(lambda: fleet.taint() == "recalled")
    await always(lambda: before == {one["metadata"]["uid"] for one in fleet.clusters[POOL].objects("pods")}, 40)
    fleet.clusters[POOL].set_faults(Faults())
    await until(lambda: isinstance(fleet.loans()[-1], NodeReturned))
    assert (fleet.taint(), fleet.virtual(), fleet.real()) == ("", None, [])


@on_fleet()
async def test_a_pool_that_has_left_the_fleet_holds_no_node(fleet: LendingFleet) -> None:
    await fleet.declare()
    await fleet.start()
    await until(fleet.is_open)
    await fleet.run_in_pool()
    await until(lambda: fleet.real() == [("n0", "Running")] * 2)
    fleet.clusters[POOL].set_faults(Faults(silent=True))
    await fleet.bus.publish(ClusterLeft(POOL))
    await until(lambda: isinstance(fleet.loans()[-1], NodeReturned))
    assert (fleet.taint(), fleet.real()) == ("", [])
    await always(lambda: fleet.taint() == "", 3 * IDLE_SECONDS)


@on_fleet()
async def test_no_node_is_lent_that_waiting_pods_of_its_owner_might_use(fleet: LendingFleet) -> None:
    """Told by the snapshot: of a shape that fits, of one that does not, and of one that nobody knows."""
    shape = shape_of({"spec": pod("web", cpu="2")["spec"]}, "default", "template")
    await fleet.bus.publish(PodsUnschedulable(OWN, "web", 1, 1, "", 1, "0/1 nodes", shape))
    await fleet.declare()
    await fleet.start()
    await always(lambda: fleet.taint() == "", 3 * IDLE_SECONDS)
    await fleet.bus.publish(PodsUnschedulable(OWN, "web", 1, 2, "", 1, "0/1 nodes", None))
    await always(lambda: fleet.taint() == "", 2 * IDLE_SECONDS)
    large = shape_of({"spec": pod("web", cpu="20")["spec"]}, "default", "template")
    await fleet.bus.publish(PodsUnschedulable(OWN, "web", 1, 3, "", 1, "0/1 nodes", large))
    await until(fleet.is_open)


@on_fleet()
async def test_no_node_is_lent_while_replicas_wait_for_lent_nodes(fleet: LendingFleet) -> None:
    await fleet.bus.publish(CapacityNeeded("shop", "web", OWN, Generation(1, 1), 2, 0))
    await fleet.declare()
    await fleet.start()
    await always(lambda: fleet.taint() == "", 3 * IDLE_SECONDS)
    await fleet.bus.publish(CapacityNeeded("shop", "web", OWN, Generation(1, 2), 0, 0))
    await until(fleet.is_open)


@on_fleet(nodes=2)
async def test_a_pool_in_which_virtual_nodes_stand_lends_its_own(fleet: LendingFleet) -> None:
    await fleet.declare()
    await fleet.start()
    await until(lambda: fleet.is_open("n0") and fleet.is_open("n1"))
    fleet.clusters[POOL].add_nodes([NodeSpec("m", 1, cpu_millis=8000)])
    await fleet.declare(owner=POOL, pool=OWN)
    await until(lambda: fleet.taint("m0", POOL) == "lent", 2 * IDLE_SECONDS)


@on_fleet(nodes=2, owners=(OWN, OTHER))
async def test_two_clusters_that_lend_to_each_other_leave_virtual_nodes_alone(fleet: LendingFleet) -> None:
    """A virtual node bears the marks of a loan, but it is no node of the cluster in which it stands."""
    await fleet.declare(owner=OTHER, pool=OWN, cooldown_seconds=30)
    await fleet.declare(owner=OWN, pool=OTHER, cooldown_seconds=30)
    await fleet.start()
    await asyncio.sleep(600)
    for owner in (OWN, OTHER):
        for node in ("n0", "n1"):
            assert fleet.taint(node, owner) == "lent"
            assert [type(one) for one in fleet.loans(node, owner)] == [NodeLent]
