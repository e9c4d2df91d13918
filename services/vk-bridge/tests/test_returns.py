"""What the return of nodes asks of both clusters, and in which order."""

import asyncio
from collections import Counter

import pytest

from sim.settings import Faults
from spillway.events_lending import NodeReturned
from spillway.lending_marks import LENT, POOL_UID, RECALLED
from vk_bridge.core.node.loan import OWNED
from vk_bridge.core.node.urgency import Urgency, urgency_of_delayed_work, urgency_of_node

from .lending_fleet import OWN, POOL, Asked, LendingFleet, run_on_fleet, wait_until

PODS = 4


async def fill_lent_nodes(fleet: LendingFleet) -> None:
    """All nodes are lent, each with as many pods of the pool's."""
    await wait_until(lambda: all(fleet.is_virtual_node_open(f"n{number}") for number in range(fleet.nodes)))
    wanted = PODS * fleet.nodes
    await fleet.run_deployment_in_pool(replicas=wanted, cpu="2")
    await wait_until(lambda: [phase for _, phase in fleet.real_pod_phases()] == ["Running"] * wanted)
    await asyncio.sleep(10)


def request_counts(fleet: LendingFleet) -> Counter[tuple[str, str, str]]:
    """Of the bridge since it was cleared, but for heartbeats and probes: cluster, method, kind with its subresource."""
    found = Counter[tuple[str, str, str]]()
    for (cluster, method, path), count in fleet.asked.items():
        steps = path.strip("/").split("/")
        kind = "pods" if "pods" in steps else "nodes" if "nodes" in steps else steps[-2]
        status = "/status" if steps[-1] == "status" else ""
        probe = method == "GET" and cluster == OWN and steps[-1] in ("pods", "nodes")
        if kind in ("pods", "nodes") and not probe:
            found[cluster, method, kind + status] += count
    return found


@pytest.mark.looptime
@run_on_fleet()
async def test_a_node_comes_back_with_eight_writes_however_many_pods_and_few_reads(fleet: LendingFleet) -> None:
    await fleet.declare_lending()
    await fleet.start()
    await fill_lent_nodes(fleet)
    fleet.asked.clear()
    await fleet.recall_node()
    await wait_until(lambda: isinstance(fleet.loan_records()[-1], NodeReturned))
    await asyncio.sleep(5)
    found = request_counts(fleet)
    lists = found.pop((POOL, "GET", "pods"))
    assert found == {
        (OWN, "PATCH", "nodes"): 2,
        (OWN, "DELETE", "pods"): 1,
        (POOL, "PATCH", "nodes"): 1,
        (POOL, "PATCH", "nodes/status"): 1,
        (POOL, "DELETE", "pods"): 2,
        (POOL, "DELETE", "nodes"): 1,
    }
    assert lists <= 5


@pytest.mark.looptime
@run_on_fleet(nodes=3)
async def test_of_nodes_that_are_recalled_at_once_the_pods_of_all_are_told_before_the_pool_is(
    fleet: LendingFleet,
) -> None:
    """A grace that begins later ends later; the pool may hear of it once no owner waits for anything else."""
    await fleet.declare_lending()
    await fleet.start(nodes_at_once=1)
    await fill_lent_nodes(fleet)
    for cluster in fleet.clusters.values():
        cluster.set_faults(Faults(latency_seconds=0.02))
    told: list[str] = []
    fleet.when_answered.append(lambda asked: told.append(asked[0]) if is_collection_deletion(asked) else None)
    await asyncio.gather(*(fleet.recall_node(f"n{number}") for number in range(3)))
    await wait_until(lambda: all(isinstance(fleet.loan_records(f"n{number}")[-1], NodeReturned) for number in range(3)))
    assert told[:3] == [OWN] * 3
    assert OWN not in told[3:]
    assert POOL in told[3:]
    ends = [one for number in range(3) if isinstance(one := fleet.loan_records(f"n{number}")[-1], NodeReturned)]
    first, last = min(ends, key=lambda one: one.recalled_ms), max(ends, key=lambda one: one.recalled_ms)
    assert first.closed_ms <= last.recalled_ms, "a step's time is that of the step, not of the next look at the node"


def is_collection_deletion(asked: Asked) -> bool:
    _, method, path = asked
    return method == "DELETE" and path.endswith("/pods")


@pytest.mark.looptime
@run_on_fleet()
async def test_a_write_that_has_no_effect_is_tried_again_after_longer_and_longer_pauses(fleet: LendingFleet) -> None:
    """As where somebody's admission puts back what we write; once it has an effect, it is as it should be."""
    await fleet.declare_lending()
    await fleet.start()
    await fill_lent_nodes(fleet)
    fleet.ignored = lambda asked: asked[:2] == (POOL, "PATCH") and "/nodes/" in asked[2]
    fleet.clusters[OWN].cordon("n0")
    await asyncio.sleep(1)
    fleet.asked.clear()
    await asyncio.sleep(300)
    tried = request_counts(fleet)[POOL, "PATCH", "nodes"]
    assert 3 <= tried <= 12
    fleet.ignored = lambda _: False
    await wait_until(lambda: (fleet.virtual_node() or {})["spec"].get("unschedulable", False), 61)
    await fleet.recall_node()
    await wait_until(lambda: isinstance(fleet.loan_records()[-1], NodeReturned))


@pytest.mark.looptime
@run_on_fleet(nodes=3)
async def test_a_watch_that_begins_anew_begins_no_reading_where_nothing_is_new(fleet: LendingFleet) -> None:
    """And what changed while it was broken is found."""
    await fleet.declare_lending()
    await fleet.start()
    await fill_lent_nodes(fleet)
    fleet.asked.clear()
    for cluster in fleet.clusters.values():
        cluster.expire_history()
    await asyncio.sleep(20)
    read = [name for (_, method, name), _ in fleet.asked.items() if method == "GET" and "/nodes/" in name]
    assert not read
    assert len(pool_uids_of_real_pods(fleet)) == 3 * PODS
    fleet.clusters[OWN].cordon("n1")
    gone = next(one["metadata"] for one in fleet.clusters[POOL].objects("pods") if "n2" in one["spec"]["nodeName"])
    fleet.clusters[POOL].control_plane.world.store.remove_object("pods", (gone["namespace"], gone["name"]))
    for cluster in fleet.clusters.values():
        cluster.expire_history()
    await wait_until(lambda: (fleet.virtual_node("n1") or {})["spec"].get("unschedulable", False), 20)
    await wait_until(lambda: gone["uid"] not in pool_uids_of_real_pods(fleet), 30)


def pool_uids_of_real_pods(fleet: LendingFleet) -> list[str]:
    """Of the pool pods whose real ones are there."""
    return [one["metadata"]["labels"].get(POOL_UID) for one in fleet.clusters[OWN].objects("pods")]


@pytest.mark.parametrize(
    ("state", "recalled", "has_real_pods", "wanted"),
    [
        (LENT, True, True, Urgency.RECALLED),
        (LENT, True, False, Urgency.RECALLED),
        (RECALLED, True, True, Urgency.LEAVING),
        (RECALLED, True, False, Urgency.EMPTY),
        (RECALLED, False, False, Urgency.NOBODY_WAITS),
        (LENT, False, True, Urgency.NOBODY_WAITS),
        (OWNED, False, False, Urgency.NOBODY_WAITS),
    ],
)
def test_how_urgent_a_node_is(state: str, recalled: bool, has_real_pods: bool, wanted: Urgency) -> None:
    assert urgency_of_node(state, recalled=recalled, has_real_pods=has_real_pods) is wanted


@pytest.mark.parametrize("urgency", Urgency)
def test_a_node_that_waits_for_delayed_work_is_no_later_than_other_recalled_nodes(urgency: Urgency) -> None:
    wanted = Urgency.RECALLED if urgency is Urgency.LEAVING else urgency
    assert urgency_of_delayed_work(urgency) is wanted


def test_who_is_nearest_to_its_owner_goes_first() -> None:
    assert sorted(Urgency) == [Urgency.NOBODY_WAITS, Urgency.LEAVING, Urgency.RECALLED, Urgency.EMPTY]
