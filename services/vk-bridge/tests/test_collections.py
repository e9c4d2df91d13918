"""Many pods of a returning node with one request: what stands in its way, and what it must not hit."""

from collections import Counter
from collections.abc import Callable

import pytest
import structlog

from sim.core.rights import Account
from sim.manifests import deployment
from spillway.clusters.rights import BRIDGE_OWNER, BRIDGE_POOL, Right
from spillway.events_lending import NodeReturned

from .lending_fleet import OWN, POOL, TOLERATES_LOANS, Asked, LendingFleet, run_on_fleet, wait_until

PODS = 5
RIGHT = Right("deletecollection", "", "pods")


def pod_deletion_counts(fleet: LendingFleet) -> Counter[tuple[str, str]]:
    """Of pods: by cluster, of one or of many."""
    found = Counter[tuple[str, str]]()
    for (cluster, method, path), count in fleet.asked.items():
        if method == "DELETE" and "/pods" in path:
            found[cluster, "many" if path.endswith("/pods") else "one"] += count
    return found


async def lend_node_with_pods(fleet: LendingFleet, **settings: float) -> None:
    await fleet.declare_lending()
    await fleet.start(**settings)
    await wait_until(fleet.is_virtual_node_open)
    await fleet.run_deployment_in_pool(replicas=PODS, cpu="1")
    await wait_until(lambda: [phase for _, phase in fleet.real_pod_phases()] == ["Running"] * PODS)


async def recall_and_wait_for_return(fleet: LendingFleet) -> None:
    fleet.asked.clear()
    await fleet.recall_node()
    await wait_until(lambda: isinstance(fleet.loan_records()[-1], NodeReturned))
    assert fleet.register_state() == ""
    assert fleet.virtual_node() is None


@pytest.mark.looptime
@run_on_fleet()
async def test_an_account_without_the_right_deletes_one_by_one_and_says_so_once(fleet: LendingFleet) -> None:
    """An older account, of which an upgrade must not depend; what it gets later is used once it is asked again."""
    for cluster, role in ((OWN, BRIDGE_OWNER), (POOL, BRIDGE_POOL)):
        fleet.accounts[cluster] = Account("bridge", role.rights() - {RIGHT})
    with structlog.testing.capture_logs() as lines:
        await lend_node_with_pods(fleet)
        await recall_and_wait_for_return(fleet)
    assert pod_deletion_counts(fleet) == {
        (OWN, "many"): 1,
        (OWN, "one"): PODS,
        (POOL, "many"): 1,
        (POOL, "one"): 2 * PODS,
    }
    told = [line for line in lines if line["event"] == "pods are deleted one by one: our account lacks a right"]
    assert [line["cluster"] for line in told] == [OWN, POOL]
    assert all("cannot deletecollection resource" in line["error"] for line in told)


@pytest.mark.looptime
@run_on_fleet()
async def test_a_right_that_is_given_later_is_used(fleet: LendingFleet) -> None:
    accounts = {OWN: BRIDGE_OWNER, POOL: BRIDGE_POOL}
    for cluster, role in accounts.items():
        fleet.accounts[cluster] = Account("bridge", role.rights() - {RIGHT})
    await fleet.declare_lending(cooldown_seconds=0)
    await lend_node_with_pods(fleet, resync_seconds=20.0)
    await recall_and_wait_for_return(fleet)
    for cluster, role in accounts.items():
        fleet.accounts[cluster].may = role.rights()
    await wait_until(fleet.is_virtual_node_open, 1000)
    await wait_until(lambda: [phase for _, phase in fleet.real_pod_phases()] == ["Running"] * PODS)
    await recall_and_wait_for_return(fleet)
    assert pod_deletion_counts(fleet) == {(OWN, "many"): 1, (POOL, "many"): 2}


def refuse_collections(done: bool) -> Callable[[Asked], bool | None]:
    return lambda asked: done if asked[1] == "DELETE" and asked[2].endswith("/pods") else None


@pytest.mark.looptime
@pytest.mark.parametrize("done", [True, False], ids=["though it was done", "and nothing was done"])
async def test_what_a_server_refuses_of_many_is_asked_for_one_by_one(done: bool) -> None:
    """As where a webhook refuses one of them, and others are deleted by then."""
    async with LendingFleet() as fleet:
        fleet.refused = refuse_collections(done)
        await lend_node_with_pods(fleet)
        await recall_and_wait_for_return(fleet)
        found = pod_deletion_counts(fleet)
        assert found[OWN, "one"] == PODS
        assert found[POOL, "one"] >= PODS
        assert isinstance(fleet.loan_records()[-1], NodeReturned)


@pytest.mark.looptime
@run_on_fleet()
async def test_a_list_that_the_pool_no_longer_keeps_is_read_anew(fleet: LendingFleet) -> None:
    """Between the reading and the deletion its history is compacted."""
    await lend_node_with_pods(fleet)
    expired: list[Asked] = []

    def expire_history_once(asked: Asked) -> None:
        if asked[0] == OWN and asked[1] == "DELETE" and not expired:
            expired.append(asked)
            fleet.clusters[POOL].expire_history()

    fleet.when_answered.append(expire_history_once)
    await recall_and_wait_for_return(fleet)
    assert expired
    assert pod_deletion_counts(fleet)[POOL, "many"] == 3
    assert pod_deletion_counts(fleet)[POOL, "one"] == 0


@pytest.mark.looptime
@run_on_fleet()
async def test_pods_whose_names_come_again_are_named_each_by_its_uid_in_the_pool(fleet: LendingFleet) -> None:
    """A StatefulSet makes another of each name, somewhere else, as soon as the old one is let go."""
    await fleet.declare_lending()
    await fleet.start()
    await wait_until(fleet.is_virtual_node_open)
    manifest = deployment("db", PODS, cpu="1", tolerations=TOLERATES_LOANS)
    manifest |= {"kind": "StatefulSet"}
    manifest["spec"] |= {"serviceName": "db", "podManagementPolicy": "Parallel"}
    await fleet.send_request(POOL, "POST", "/apis/apps/v1/namespaces/default/statefulsets", manifest)
    await wait_until(lambda: [phase for _, phase in fleet.real_pod_phases()] == ["Running"] * PODS)
    before = {one["metadata"]["uid"] for one in fleet.clusters[POOL].objects("pods")}
    await recall_and_wait_for_return(fleet)
    assert pod_deletion_counts(fleet) == {(OWN, "many"): 1, (POOL, "one"): 2 * PODS}
    again = [one["metadata"] for one in fleet.clusters[POOL].objects("pods")]
    assert sorted(one["name"] for one in again) == [f"db-{number}" for number in range(PODS)]
    assert not before & {one["uid"] for one in again}
    assert not any("deletionTimestamp" in one for one in again)
