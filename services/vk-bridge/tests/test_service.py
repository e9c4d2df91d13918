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

from .lending_fleet import (
    FLEET,
    GRACE_SECONDS,
    IDLE_SECONDS,
    OTHER,
    OWN,
    POOL,
    LendingFleet,
    assert_holds_for,
    run_on_fleet,
    wait_until,
)

pytestmark = pytest.mark.looptime
VIRTUAL = virtual_node_name(OWN, "n0")


@run_on_fleet()
async def test_an_idle_node_is_lent_runs_a_pools_pods_and_comes_back_for_a_need(fleet: LendingFleet) -> None:
    await fleet.declare_lending()
    await fleet.start()
    assert await wait_until(fleet.is_virtual_node_open) >= IDLE_SECONDS
    assert fleet.register_state() == "lent"
    await fleet.run_deployment_in_pool(replicas=3, cpu="3")
    await wait_until(lambda: fleet.pool_pod_phases() == [("", "Pending"), (VIRTUAL, "Running"), (VIRTUAL, "Running")])
    assert fleet.real_pod_phases() == [("n0", "Running")] * 2
    await wait_until(lambda: fleet.record_of_open_loan() is not None and len(fleet.record_of_open_loan().pods) == 2)
    await fleet.recall_node()
    await wait_until(lambda: fleet.register_state() == "")
    assert (fleet.virtual_node(), fleet.real_pod_phases()) == (None, [])
    assert fleet.pool_pod_phases() == [("", "Pending")] * 3
    await wait_until(lambda: isinstance(fleet.loan_records()[-1], NodeReturned))
    returned = fleet.loan_records()[-1]
    assert isinstance(returned, NodeReturned)
    assert (returned.cause, returned.evicted, returned.forced) == (CAUSE_NEED, 2, 0)
    assert returned.lent_ms < returned.recalled_ms <= returned.closed_ms <= returned.emptied_ms <= returned.deleted_ms


@run_on_fleet()
async def test_cores_recovered_now_and_over_time_and_what_their_return_cost(fleet: LendingFleet) -> None:
    """Of two instances that work on the cluster one after the other, the sum counts each core once."""

    def metric_value(name: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(f"spillway_{name}", {"cluster": OWN, "supply_class": "idle", **labels}) or 0.0

    counted = ("pods_evicted_total", "return_seconds_count")
    before = {name: metric_value(name) for name in counted}
    returns = metric_value("returns_total", cause=CAUSE_NEED)
    await fleet.declare_lending()
    await fleet.start("b1")
    await wait_until(fleet.is_virtual_node_open)
    await wait_until(lambda: metric_value("cores_lent") == 8)
    over_time = metric_value("core_seconds_lent_total")
    await fleet.run_deployment_in_pool(replicas=2, cpu="3")
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")] * 2)
    await asyncio.sleep(100)
    assert 8 * 90 <= metric_value("core_seconds_lent_total") - over_time <= 8 * 120
    await fleet.stop("b1")
    assert metric_value("cores_lent") == 0
    await fleet.start("b2")
    await wait_until(lambda: metric_value("cores_lent") == 8)
    await wait_until(lambda: fleet.record_of_open_loan() is not None and len(fleet.record_of_open_loan().pods) == 2)
    await fleet.recall_node()
    await wait_until(lambda: metric_value("returns_total", cause=CAUSE_NEED) == returns + 1)
    assert metric_value("pods_evicted_total") - before["pods_evicted_total"] == 2
    assert metric_value("return_seconds_count") - before["return_seconds_count"] == 1
    await wait_until(lambda: metric_value("cores_lent") == 0)


@run_on_fleet()
async def test_a_node_on_which_an_owners_pod_runs_is_not_lent(fleet: LendingFleet) -> None:
    await fleet.send_request(OWN, "POST", "/api/v1/namespaces/default/pods", pod("web"))
    await fleet.declare_lending()
    await fleet.start()
    await assert_holds_for(lambda: fleet.register_state() == "", 4 * IDLE_SECONDS)
    await fleet.send_request(OWN, "DELETE", "/api/v1/namespaces/default/pods/web")
    assert await wait_until(fleet.is_virtual_node_open) >= IDLE_SECONDS


@run_on_fleet()
async def test_a_node_that_came_back_is_not_lent_again_within_its_cooldown(fleet: LendingFleet) -> None:
    await fleet.declare_lending(cooldown_seconds=200)
    await fleet.start()
    await wait_until(fleet.is_virtual_node_open)
    await fleet.recall_node()
    await wait_until(lambda: isinstance(fleet.loan_records()[-1], NodeReturned))
    await assert_holds_for(lambda: fleet.register_state() == "", 190)
    await wait_until(fleet.is_virtual_node_open, 30)


@run_on_fleet()
async def test_a_pods_grace_is_kept_and_one_that_ignores_it_is_forced(fleet: LendingFleet) -> None:
    await fleet.declare_lending()
    await fleet.start()
    await wait_until(fleet.is_virtual_node_open)
    await fleet.run_deployment_in_pool(replicas=1)
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")])
    await wait_until(lambda: fleet.record_of_open_loan() is not None and len(fleet.record_of_open_loan().pods) == 1)
    name, namespace = next(
        (one["metadata"]["name"], one["metadata"]["namespace"]) for one in fleet.clusters[OWN].objects("pods")
    )
    stubborn = {"metadata": {"finalizers": ["example.com/stays"]}}
    await fleet.send_request(OWN, "PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}", stubborn)
    await fleet.recall_node()
    await assert_holds_for(lambda: fleet.register_state() != "", GRACE_SECONDS + 2)
    assert (fleet.register_state(), fleet.virtual_node() is not None) == ("recalled", True)
    await wait_until(
        lambda: "pods to leave: 1" in [one.waiting for one in fleet.loan_records() if isinstance(one, NodeLent)]
    )
    await fleet.send_request(
        OWN, "PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}", {"metadata": {"finalizers": None}}
    )
    await wait_until(lambda: isinstance(fleet.loan_records()[-1], NodeReturned))
    returned = fleet.loan_records()[-1]
    assert isinstance(returned, NodeReturned)
    assert (returned.evicted, returned.forced) == (1, 1)


@run_on_fleet()
async def test_the_opt_out_label_takes_a_node_back_and_keeps_it(fleet: LendingFleet) -> None:
    await fleet.declare_lending(cooldown_seconds=1)
    await fleet.start()
    await wait_until(fleet.is_virtual_node_open)
    await fleet.send_request(OWN, "PATCH", "/api/v1/nodes/n0", {"metadata": {"labels": {LEND: NEVER}}})
    await wait_until(lambda: isinstance(fleet.loan_records()[-1], NodeReturned))
    assert (fleet.loan_records()[-1].cause, fleet.register_state(), fleet.virtual_node()) == (CAUSE_OPT_OUT, "", None)
    await assert_holds_for(lambda: fleet.register_state() == "", 3 * IDLE_SECONDS)


@run_on_fleet()
async def test_an_owners_pod_that_is_bound_all_the_same_takes_its_node_back(fleet: LendingFleet) -> None:
    await fleet.declare_lending()
    await fleet.start()
    await wait_until(fleet.is_virtual_node_open)
    await fleet.run_deployment_in_pool(replicas=1)
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")])
    await fleet.send_request(OWN, "POST", "/api/v1/namespaces/default/pods", pod("web", nodeName="n0"))
    await wait_until(lambda: isinstance(fleet.loan_records()[-1], NodeReturned))
    assert (fleet.loan_records()[-1].cause, fleet.register_state(), fleet.real_pod_phases()) == (CAUSE_OCCUPIED, "", [])


@run_on_fleet()
async def test_a_declaration_that_is_withdrawn_takes_everything_back_and_lets_the_cluster_go(
    fleet: LendingFleet,
) -> None:
    await fleet.declare_lending()
    bridge = await fleet.start()
    await wait_until(fleet.is_virtual_node_open)
    assert bridge.clusters_worked_on == {OWN}
    await fleet.declare_lending(withdrawing=True)
    await wait_until(lambda: isinstance(fleet.loan_records()[-1], NodeReturned))
    assert (fleet.loan_records()[-1].cause, fleet.register_state()) == (CAUSE_ASKED, "")
    await fleet.publish_lending_tombstone()
    await wait_until(lambda: bridge.clusters_worked_on == set())


@run_on_fleet(nodes=2)
async def test_marks_that_no_declaration_made_go_once_one_is_withdrawn(fleet: LendingFleet) -> None:
    """As `spillway doctor` has a person do where it finds them; nothing else is lent meanwhile, for no node is idle."""
    mark = {"metadata": {"labels": {FLEET_KEY: FLEET, LENDING_KEY: "lent"}}}
    taints = [{"key": LENDING_KEY, "value": "lent", "effect": "NoSchedule"}]
    await fleet.send_request(OWN, "PATCH", "/api/v1/nodes/n0", {**mark, "spec": {"taints": taints}})
    bridge = await fleet.start()
    await asyncio.sleep(600)
    assert (fleet.register_state("n0"), bridge.clusters_worked_on) == ("lent", set()), "nobody looks after it"
    await fleet.declare_lending(rules=(LendingRule("all", (), "idle", 100, 0, 86_400, 0.5),))
    await fleet.declare_lending(withdrawing=True)
    await wait_until(lambda: fleet.register_state("n0") == "")
    assert not fleet.loan_records()


@run_on_fleet(nodes=2)
async def test_a_freeze_lends_nothing_leaves_what_is_lent_and_holds_recalls_for_needs(fleet: LendingFleet) -> None:
    await fleet.send_request(OWN, "PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {LEND: NEVER}}})
    await fleet.declare_lending()
    await fleet.start()
    await wait_until(fleet.is_virtual_node_open)
    await fleet.freeze_fleet()
    await fleet.send_request(OWN, "PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {LEND: None}}})
    await fleet.recall_node()
    await assert_holds_for(
        lambda: (
            (fleet.register_state("n0"), fleet.register_state("n1"), fleet.is_virtual_node_open()) == ("lent", "", True)
        ),
        3 * IDLE_SECONDS,
    )
    await fleet.unfreeze_fleet()
    await wait_until(lambda: isinstance(fleet.loan_records()[-1], NodeReturned) and fleet.is_virtual_node_open("n1"))


@run_on_fleet()
async def test_a_virtual_node_shows_what_its_real_node_tells(fleet: LendingFleet) -> None:
    """A heartbeat as seldom as kubelets tell one, pressure and another size at once."""
    beat = datetime(2026, 1, 1, tzinfo=UTC)

    async def write_node_status(seconds: int, pressure: str = "False", **allocatable: str) -> None:
        at = (beat + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": at}
        pressed = {"type": "MemoryPressure", "status": pressure, "lastHeartbeatTime": at}
        status = {"conditions": [ready, pressed], "allocatable": allocatable}
        await fleet.send_request(OWN, "PATCH", "/api/v1/nodes/n0/status", {"status": status})

    def shown_node_status() -> tuple[str, str, str]:
        status = (fleet.virtual_node() or {})["status"]
        found = {one["type"]: one for one in status["conditions"]}
        return found["Ready"]["lastHeartbeatTime"][-9:], found["MemoryPressure"]["status"], status["allocatable"]["cpu"]

    await write_node_status(0)
    await fleet.declare_lending()
    await fleet.start()
    await wait_until(fleet.is_virtual_node_open)
    assert shown_node_status() == ("00:00:00Z", "False", "8000m")
    await write_node_status(100)
    await assert_holds_for(lambda: shown_node_status() == ("00:00:00Z", "False", "8000m"), 20)
    await write_node_status(300)
    await wait_until(lambda: shown_node_status() == ("00:05:00Z", "False", "8000m"), 5)
    await write_node_status(310, "True")
    await wait_until(lambda: shown_node_status() == ("00:05:10Z", "True", "8000m"), 5)
    await write_node_status(320, "True", cpu="6")
    await wait_until(lambda: shown_node_status() == ("00:05:20Z", "True", "6000m"), 5)


@run_on_fleet()
async def test_a_virtual_node_names_the_bridge_whose_turn_its_owner_is(fleet: LendingFleet) -> None:
    """Also a closed one: the logs of pods that leave are asked for too."""
    files = {"kubelet_certificate": "x", "kubelet_key": "x"}
    await fleet.declare_lending()
    await fleet.start("b1", kubelet_ports=(f"{POOL}=10250", "other=10260"), **files)
    await wait_until(fleet.is_virtual_node_open)
    assert fleet.kubelet_port() == 10250
    await fleet.run_deployment_in_pool(replicas=1)
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")])
    await fleet.kill_instance("b1")
    await fleet.start("b2", kubelet_ports=(f"{POOL}=10251",), **files)
    await wait_until(lambda: fleet.kubelet_port() == 10251)
    await wait_until(lambda: fleet.record_of_open_loan() is not None)
    place = next(one["metadata"] for one in fleet.clusters[OWN].objects("pods"))
    path = f"/api/v1/namespaces/{place['namespace']}/pods/{place['name']}"
    await fleet.send_request(OWN, "PATCH", path, {"metadata": {"finalizers": ["example.com/stays"]}})
    await fleet.recall_node()
    await wait_until(lambda: not fleet.is_virtual_node_open())
    await fleet.kill_instance("b2")
    await fleet.start("b3", kubelet_ports=(f"{POOL}=10252",), **files)
    await wait_until(lambda: fleet.kubelet_port() == 10252)
    assert (fleet.register_state(), fleet.is_virtual_node_open()) == ("recalled", False)
    await fleet.send_request(OWN, "PATCH", path, {"metadata": {"finalizers": None}})
    await wait_until(lambda: fleet.virtual_node() is None)


@run_on_fleet()
async def test_two_bridges_by_mistake_do_not_write_their_addresses_without_end(fleet: LendingFleet) -> None:
    files = {"kubelet_certificate": "x", "kubelet_key": "x"}
    wrong = await fleet.create_wrong_log()
    await fleet.declare_lending()
    await fleet.declare_lending(bus=wrong)
    ports = {"kubelet_ports": (f"{POOL}=10250",), **files}
    await fleet.start("right", kubelet_address="10.0.0.1", **ports)
    await fleet.start("wrong", wrong.broker, kubelet_address="10.0.0.2", **ports)
    await wait_until(fleet.is_virtual_node_open)
    await fleet.run_deployment_in_pool(replicas=1)
    await wait_until(lambda: fleet.pool_pod_phases() == [(VIRTUAL, "Running")])

    def counted_status_writes() -> float:
        labels = ({"step": step, "outcome": "done"} for step in ("ShowVirtual", "Mirror"))
        return sum(REGISTRY.get_sample_value("spillway_lending_steps_total", one) or 0.0 for one in labels)

    before, minutes = counted_status_writes(), 11
    await asyncio.sleep(minutes * 60)
    assert fleet.is_virtual_node_open()
    assert 1 <= counted_status_writes() - before <= 4 * minutes, (
        "node and pod, each of them once in half a minute at the most"
    )


# ── Crash, freeze, faults ───────────────────────────────────────────────────────────────────────────────────────────


@run_on_fleet()
async def test_a_bridge_that_dies_in_the_middle_is_followed_by_one_that_goes_on(fleet: LendingFleet) -> None:
    """At each state of a loan, one after the other."""
    await fleet.declare_lending(cooldown_seconds=1)
    await fleet.start("b0")
    states = ("checking", "lent", "recalled", "")
    for number, state in enumerate(states):
        await wait_until(lambda state=state: fleet.register_state() == state)  # type: ignore[misc]
        await fleet.kill_instance(f"b{number}")
        await fleet.start(f"b{number + 1}")
        if state == "lent":
            await fleet.run_deployment_in_pool()
            await wait_until(lambda: len(fleet.real_pod_phases()) == 2)
            await wait_until(lambda: fleet.record_of_open_loan() is not None)
            await fleet.recall_node()
    await wait_until(lambda: isinstance(fleet.loan_records()[-1], NodeReturned))
    assert (fleet.real_pod_phases(), fleet.virtual_node(), fleet.register_state()) == ([], None, "")
    assert len({(one.loan, type(one)) for one in fleet.loan_records()}) == 2, "one loan, that began once and ended once"


@run_on_fleet()
async def test_a_stop_finishes_what_is_said_and_a_start_takes_it_up(fleet: LendingFleet) -> None:
    await fleet.declare_lending()
    await fleet.start("b1")
    await fleet.start("b2")
    await wait_until(fleet.is_virtual_node_open)
    await fleet.run_deployment_in_pool()
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")] * 2)
    await fleet.stop("b1")
    await fleet.stop("b2")
    pods = [one["metadata"]["uid"] for one in fleet.clusters[OWN].objects("pods")]
    await asyncio.sleep(30)
    await fleet.start("b3")
    await asyncio.sleep(30)
    assert [one["metadata"]["uid"] for one in fleet.clusters[OWN].objects("pods")] == pods
    assert (fleet.register_state(), fleet.is_virtual_node_open()) == ("lent", True)
    await fleet.recall_node()
    await wait_until(lambda: isinstance(fleet.loan_records()[-1], NodeReturned))


@run_on_fleet(nodes=2)
async def test_two_bridges_by_mistake_do_no_harm(fleet: LendingFleet) -> None:
    """A second one, on another log of the same fleet: it knows nothing of the first one's turn."""
    wrong = await fleet.create_wrong_log()
    await fleet.declare_lending(cooldown_seconds=1)
    await fleet.declare_lending(cooldown_seconds=1, bus=wrong)
    await fleet.start("right")
    await fleet.start("wrong", wrong.broker)

    def are_nodes_safe() -> bool:
        nodes = ("n0", "n1")
        return all(
            not fleet.is_virtual_node_open(node) or fleet.register_state(node) in ("lent", "recalled") for node in nodes
        ) and all(fleet.register_state(node) in ("lent", "recalled") for node, _ in fleet.real_pod_phases())

    await wait_until(lambda: are_nodes_safe() and fleet.is_virtual_node_open("n0") and fleet.is_virtual_node_open("n1"))
    await fleet.run_deployment_in_pool(replicas=4)
    await wait_until(lambda: are_nodes_safe() and [phase for _, phase in fleet.real_pod_phases()] == ["Running"] * 4)
    await assert_holds_for(are_nodes_safe, 60)
    assert len(fleet.real_pod_phases()) == 4, "of each pool pod there is one real pod"
    await fleet.kill_instance("wrong")
    await fleet.declare_lending(withdrawing=True)
    await wait_until(lambda: are_nodes_safe() and {fleet.register_state("n0"), fleet.register_state("n1")} == {""})
    assert (fleet.virtual_node("n0"), fleet.virtual_node("n1"), fleet.real_pod_phases()) == (None, None, [])


@run_on_fleet(nodes=2)
async def test_without_the_log_nothing_is_lent_and_what_is_lent_stays(fleet: LendingFleet) -> None:
    """What was being lent when the log went away is not kept from its owner until it is back."""

    def is_bound_to_n1(name: str) -> bool:
        found = fleet.clusters[OWN].get_object("pods", name, "default")
        return found is not None and found["spec"].get("nodeName") == "n1"

    await fleet.send_request(OWN, "PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {LEND: NEVER}}})
    await fleet.declare_lending(cooldown_seconds=1)
    await fleet.start()
    await wait_until(fleet.is_virtual_node_open)
    fleet.cut_off_from_log("b1")
    await fleet.send_request(OWN, "PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {LEND: None}}})
    await wait_until(lambda: fleet.register_state("n1") == "lent")
    await fleet.send_request(OWN, "POST", "/api/v1/namespaces/default/pods", pod("web", cpu="2"))
    await wait_until(lambda: is_bound_to_n1("web"), 30)
    await fleet.send_request(OWN, "DELETE", "/api/v1/namespaces/default/pods/web")
    await assert_holds_for(
        lambda: (
            fleet.is_virtual_node_open("n0") and fleet.register_state("n1") == "" and fleet.virtual_node("n1") is None
        ),
        60,
    )
    fleet.cut_off_from_log("b1", unavailable=False)
    await wait_until(lambda: fleet.is_virtual_node_open("n1"))


@run_on_fleet()
async def test_while_the_pool_is_silent_pods_leave_and_the_node_comes_back_when_it_answers(fleet: LendingFleet) -> None:
    await fleet.declare_lending()
    await fleet.start()
    await wait_until(fleet.is_virtual_node_open)
    await fleet.run_deployment_in_pool()
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")] * 2)
    fleet.clusters[POOL].set_faults(Faults(silent=True))
    await fleet.recall_node()
    await wait_until(lambda: fleet.real_pod_phases() == [])
    await assert_holds_for(lambda: fleet.register_state() == "recalled", 60)
    lent = fleet.record_of_open_loan()
    assert lent is not None
    assert lent.waiting == f"the pool {POOL} cannot be read"
    fleet.clusters[POOL].set_faults(Faults())
    await wait_until(lambda: isinstance(fleet.loan_records()[-1], NodeReturned))
    assert (fleet.register_state(), fleet.virtual_node()) == ("", None)


@run_on_fleet()
async def test_while_the_owner_is_silent_the_virtual_node_closes_and_no_pod_is_let_go(fleet: LendingFleet) -> None:
    await fleet.declare_lending()
    await fleet.start()
    await wait_until(fleet.is_virtual_node_open)
    await fleet.run_deployment_in_pool()
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")] * 2)
    fleet.clusters[OWN].set_faults(Faults(silent=True))
    await fleet.recall_node()
    await wait_until(lambda: not fleet.is_virtual_node_open())
    await asyncio.sleep(60)
    deleting = [bool(one["metadata"].get("deletionTimestamp")) for one in fleet.clusters[POOL].objects("pods")]
    assert deleting.count(True) == 2
    fleet.clusters[OWN].set_faults(Faults())
    await wait_until(lambda: isinstance(fleet.loan_records()[-1], NodeReturned))
    assert (fleet.register_state(), fleet.real_pod_phases()) == ("", [])


@run_on_fleet()
async def test_a_node_that_vanishes_takes_its_virtual_node_and_pods_along(fleet: LendingFleet) -> None:
    await fleet.declare_lending()
    await fleet.start()
    await wait_until(fleet.is_virtual_node_open)
    await fleet.run_deployment_in_pool()
    await wait_until(lambda: fleet.pool_pod_phases() == [(VIRTUAL, "Running")] * 2)
    fleet.clusters[OWN].remove_node("n0")
    await wait_until(lambda: isinstance(fleet.loan_records()[-1], NodeReturned))
    assert fleet.virtual_node() is None
    assert fleet.loan_records()[-1].cause == "NodeGone"


@run_on_fleet()
async def test_what_a_pool_refuses_evicts_nobody_and_is_done_once_it_is_allowed(fleet: LendingFleet) -> None:
    """Its account may not write nodes: from a virtual node that stays open, pods would go and come without end."""
    await fleet.declare_lending()
    await fleet.start()
    await wait_until(fleet.is_virtual_node_open)
    await fleet.run_deployment_in_pool()
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")] * 2)
    before = {one["metadata"]["uid"] for one in fleet.clusters[POOL].objects("pods")}
    fleet.clusters[POOL].set_faults(Faults(forbidden=("PATCH nodes", "DELETE nodes")))
    await fleet.recall_node()
    await wait_until(lambda: fleet.register_state() == "recalled")
    await assert_holds_for(
        lambda: before == {one["metadata"]["uid"] for one in fleet.clusters[POOL].objects("pods")}, 40
    )
    fleet.clusters[POOL].set_faults(Faults())
    await wait_until(lambda: isinstance(fleet.loan_records()[-1], NodeReturned))
    assert (fleet.register_state(), fleet.virtual_node(), fleet.real_pod_phases()) == ("", None, [])


@run_on_fleet()
async def test_a_pool_that_has_left_the_fleet_holds_no_node(fleet: LendingFleet) -> None:
    await fleet.declare_lending()
    await fleet.start()
    await wait_until(fleet.is_virtual_node_open)
    await fleet.run_deployment_in_pool()
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")] * 2)
    fleet.clusters[POOL].set_faults(Faults(silent=True))
    await fleet.bus.publish(ClusterLeft(POOL))
    await wait_until(lambda: isinstance(fleet.loan_records()[-1], NodeReturned))
    assert (fleet.register_state(), fleet.real_pod_phases()) == ("", [])
    await assert_holds_for(lambda: fleet.register_state() == "", 3 * IDLE_SECONDS)


@run_on_fleet()
async def test_no_node_is_lent_that_waiting_pods_of_its_owner_might_use(fleet: LendingFleet) -> None:
    """Told by the snapshot: of a shape that fits, of one that does not, and of one that nobody knows."""
    shape = shape_of({"spec": pod("web", cpu="2")["spec"]}, "default", "template")
    await fleet.bus.publish(PodsUnschedulable(OWN, "web", 1, 1, "", 1, "0/1 nodes", shape))
    await fleet.declare_lending()
    await fleet.start()
    await assert_holds_for(lambda: fleet.register_state() == "", 3 * IDLE_SECONDS)
    await fleet.bus.publish(PodsUnschedulable(OWN, "web", 1, 2, "", 1, "0/1 nodes", None))
    await assert_holds_for(lambda: fleet.register_state() == "", 2 * IDLE_SECONDS)
    large = shape_of({"spec": pod("web", cpu="20")["spec"]}, "default", "template")
    await fleet.bus.publish(PodsUnschedulable(OWN, "web", 1, 3, "", 1, "0/1 nodes", large))
    await wait_until(fleet.is_virtual_node_open)


@run_on_fleet()
async def test_no_node_is_lent_while_replicas_wait_for_lent_nodes(fleet: LendingFleet) -> None:
    await fleet.bus.publish(CapacityNeeded("shop", "web", OWN, Generation(1, 1), 2, 0))
    await fleet.declare_lending()
    await fleet.start()
    await assert_holds_for(lambda: fleet.register_state() == "", 3 * IDLE_SECONDS)
    await fleet.bus.publish(CapacityNeeded("shop", "web", OWN, Generation(1, 2), 0, 0))
    await wait_until(fleet.is_virtual_node_open)


@run_on_fleet(nodes=2)
async def test_a_pool_in_which_virtual_nodes_stand_lends_its_own(fleet: LendingFleet) -> None:
    await fleet.declare_lending()
    await fleet.start()
    await wait_until(lambda: fleet.is_virtual_node_open("n0") and fleet.is_virtual_node_open("n1"))
    fleet.clusters[POOL].add_nodes([NodeSpec("m", 1, cpu_millis=8000)])
    await fleet.declare_lending(owner=POOL, pool=OWN)
    await wait_until(lambda: fleet.register_state("m0", POOL) == "lent", 2 * IDLE_SECONDS)


@run_on_fleet(nodes=2, owners=(OWN, OTHER))
async def test_two_clusters_that_lend_to_each_other_leave_virtual_nodes_alone(fleet: LendingFleet) -> None:
    """A virtual node bears the marks of a loan, but it is no node of the cluster in which it stands."""
    await fleet.declare_lending(owner=OTHER, pool=OWN, cooldown_seconds=30)
    await fleet.declare_lending(owner=OWN, pool=OTHER, cooldown_seconds=30)
    await fleet.start()
    await asyncio.sleep(600)
    for owner in (OWN, OTHER):
        for node in ("n0", "n1"):
            assert fleet.register_state(node, owner) == "lent"
            assert [type(one) for one in fleet.loan_records(node, owner)] == [NodeLent]
