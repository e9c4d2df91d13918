"""Pods of a pool on lent nodes, on the whole service: what they refer to, what they show, how they end."""

import asyncio
from base64 import b64decode, b64encode
from typing import Any

import pytest

from sim.manifests import pod
from sim.settings import Faults, SidecarSpec
from spillway.addresses import NODE_USAGE
from spillway.events_lending import NodeUsed
from spillway.lending_marks import COPY_BYTES, CREATED, NOT_UPDATED, virtual_node_name
from spillway.local_bus import LocalBus
from vk_bridge.core.pod.conversion import ConfigReference, copy_name

from .lending_fleet import (
    FLEET,
    GRACE_SECONDS,
    OWN,
    POOL,
    TOLERATES_LOANS,
    LendingFleet,
    assert_holds_for,
    run_on_fleet,
    wait_until,
)

pytestmark = pytest.mark.looptime
VIRTUAL = virtual_node_name(OWN, "n0")
OURS = "spillway-lent-default"


async def lend_node(fleet: LendingFleet) -> None:
    await fleet.declare_lending()
    await fleet.start()
    await wait_until(fleet.is_virtual_node_open)


async def put_secret(fleet: LendingFleet, value: str, pool: str = POOL) -> None:
    data = {"token": b64encode(value.encode()).decode()}
    manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "data": data}
    if fleet.clusters[pool].get_object("secrets", "key", "default") is None:
        await fleet.send_request(pool, "POST", "/api/v1/namespaces/default/secrets", manifest)
    else:
        await fleet.send_request(pool, "PATCH", "/api/v1/namespaces/default/secrets/key", {"data": data})


async def create_pool_pod(fleet: LendingFleet, name: str = "one", pool: str = POOL, **spec: Any) -> None:
    manifest = pod(name, tolerations=TOLERATES_LOANS, **spec)
    await fleet.send_request(pool, "POST", "/api/v1/namespaces/default/pods", manifest)


def secret_volumes() -> list[dict[str, Any]]:
    return [{"name": "key", "secret": {"secretName": "key"}}]


def copied_secret_data(fleet: LendingFleet) -> list[Any]:
    return [one.get("data") for one in fleet.clusters[OWN].objects("secrets", OURS)]


def pool_pod_manifest(fleet: LendingFleet, name: str = "one") -> dict[str, Any]:
    found = fleet.clusters[POOL].get_object("pods", name, "default")
    assert found is not None
    return found


@run_on_fleet()
async def test_a_pod_waits_for_its_secret_and_says_so_then_runs(fleet: LendingFleet) -> None:
    await lend_node(fleet)
    await create_pool_pod(fleet, volumes=secret_volumes())
    await wait_until(lambda: bool(pool_pod_manifest(fleet)["status"].get("containerStatuses")))
    waiting = pool_pod_manifest(fleet)["status"]["containerStatuses"][0]["state"]["waiting"]
    assert waiting == {"reason": "CreateContainerConfigError", "message": 'secret "key" not found'}
    await assert_holds_for(lambda: fleet.real_pod_phases() == [], 30)
    await put_secret(fleet, "first")
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")])
    await wait_until(lambda: pool_pod_manifest(fleet)["status"]["phase"] == "Running")
    conditions = {one["type"]: one["status"] for one in pool_pod_manifest(fleet)["status"]["conditions"]}
    assert (conditions[CREATED], conditions["Ready"]) == ("True", "True")


@run_on_fleet()
async def test_pods_of_a_node_are_read_once_when_one_is_bound_and_once_when_it_runs(fleet: LendingFleet) -> None:
    """Neither for what the bridge itself has written, nor for what it has said in the log; and the nodes not at all."""
    await lend_node(fleet)
    await asyncio.sleep(10)
    fleet.asked.clear()
    await create_pool_pod(fleet)
    await wait_until(lambda: pool_pod_manifest(fleet)["status"]["phase"] == "Running")
    await asyncio.sleep(10)
    nodes = [(OWN, "GET", "/api/v1/nodes/n0"), (POOL, "GET", f"/api/v1/nodes/{VIRTUAL}")]
    assert [fleet.asked[POOL, "GET", "/api/v1/pods"], *(fleet.asked[node] for node in nodes)] == [2, 0, 0]


@run_on_fleet()
async def test_copies_follow_the_pool_and_go_when_no_pod_refers_to_them(fleet: LendingFleet) -> None:
    await lend_node(fleet)
    await put_secret(fleet, "first")
    await create_pool_pod(fleet, volumes=secret_volumes())
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")])
    (first,) = copied_secret_data(fleet)
    await put_secret(fleet, "second")
    await wait_until(lambda: copied_secret_data(fleet) != [first])
    assert copied_secret_data(fleet) == [{"token": b64encode(b"second").decode()}]
    await fleet.send_request(POOL, "DELETE", "/api/v1/namespaces/default/secrets/key")
    await assert_holds_for(lambda: len(copied_secret_data(fleet)) == 1, 90)
    await fleet.send_request(POOL, "DELETE", "/api/v1/namespaces/default/pods/one")
    await wait_until(lambda: fleet.real_pod_phases() == [])
    await wait_until(lambda: copied_secret_data(fleet) == [])
    await wait_until(lambda: fleet.clusters[OWN].get_object("namespaces", OURS) is None)


async def put_secret_of_size(fleet: LendingFleet, name: str, count: int) -> None:
    """A Secret of the pool's whose content is so many bytes as JSON."""
    data = {"k": "A" * (count - len('{"data":{"k":""}}'))}
    manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
    there = fleet.clusters[POOL].get_object("secrets", name, "default") is not None
    place = "/api/v1/namespaces/default/secrets"
    await fleet.send_request(POOL, "PATCH" if there else "POST", f"{place}/{name}" if there else place, manifest)


async def create_pool_pod_with_secret(fleet: LendingFleet, name: str, secret: str) -> None:
    await create_pool_pod(fleet, name, nodeName=VIRTUAL, volumes=[{"name": "key", "secret": {"secretName": secret}}])


def waiting_reason(fleet: LendingFleet, name: str) -> tuple[str, str]:
    """The reason and the message with which a pool pod's container waits; empty: it does not wait."""
    statuses = pool_pod_manifest(fleet, name)["status"].get("containerStatuses") or [{}]
    waiting = (statuses[0].get("state") or {}).get("waiting") or {}
    return waiting.get("reason", ""), waiting.get("message", "")


@pytest.mark.parametrize("told", [True, False], ids=["counted", "made_by_a_bridge_that_did_not_count"])
async def test_copies_of_a_namespace_are_bounded_in_bytes_and_a_pod_that_needs_more_waits(told: bool) -> None:
    async with LendingFleet() as fleet:
        await _check_bound_of_copies(fleet, told)


async def _check_bound_of_copies(fleet: LendingFleet, told: bool) -> None:
    """Also by the bridge that comes after the one which made them; a copy that would grow too large stays as it was."""
    await fleet.declare_lending()
    await fleet.start(copies_bytes_max=1000)
    await wait_until(fleet.is_virtual_node_open)
    for name, count in (("a", 300), ("b", 201), ("c", 200), ("d", 501)):
        await put_secret_of_size(fleet, name, count)
    await create_pool_pod_with_secret(fleet, "one", "a")
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")])
    await fleet.stop()
    if not told:
        (copy,) = fleet.clusters[OWN].objects("secrets", OURS)
        place = f"/api/v1/namespaces/{OURS}/secrets/{copy['metadata']['name']}"
        await fleet.send_request(OWN, "PATCH", place, {"metadata": {"annotations": {COPY_BYTES: None}}})
    await fleet.start(copies_bytes_max=1000)
    await create_pool_pod_with_secret(fleet, "more", "b")
    why = (
        "Secret b: 201 bytes more beside 300 that copies of namespace default have in cluster own-1: "
        "expected at most as many as it leaves free of 1000 (copies_bytes_max)"
    )
    await wait_until(lambda: waiting_reason(fleet, "more") == ("CopiesBeyondShare", why))
    await create_pool_pod_with_secret(fleet, "fits", "c")
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")] * 2)
    await put_secret_of_size(fleet, "c", 201)
    await assert_holds_for(lambda: sorted(len(one["k"]) for one in copied_secret_data(fleet)) == [183, 283], 30)
    await create_pool_pod_with_secret(fleet, "never", "d")
    await wait_until(lambda: pool_pod_manifest(fleet, "never")["status"]["phase"] == "Failed")
    status = pool_pod_manifest(fleet, "never")["status"]
    why = "501 bytes: expected at most 500, half of what a cluster keeps of all pods (copies_bytes_max 1000)"
    assert (status["reason"], status["message"]) == ("NotLendable", f"ConfigMaps and Secrets: {why}")
    assert pool_pod_manifest(fleet, "more")["status"]["phase"] == "Pending"


@run_on_fleet()
async def test_a_pod_that_waits_for_room_of_copies_goes_on_when_others_went(fleet: LendingFleet) -> None:
    await fleet.declare_lending()
    await fleet.start(copies_bytes_max=1000)
    await wait_until(fleet.is_virtual_node_open)
    await put_secret_of_size(fleet, "a", 400)
    await put_secret_of_size(fleet, "b", 400)
    await create_pool_pod_with_secret(fleet, "one", "a")
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")])
    await create_pool_pod_with_secret(fleet, "other", "b")
    await wait_until(lambda: waiting_reason(fleet, "other")[0] == "CopiesBeyondShare")
    await fleet.send_request(POOL, "DELETE", "/api/v1/namespaces/default/pods/one")
    await wait_until(lambda: pool_pod_manifest(fleet, "other")["status"]["phase"] == "Running")


@run_on_fleet()
async def test_a_copy_that_was_never_written_takes_no_room_for_ever(fleet: LendingFleet) -> None:
    """The owner refuses it, so that its pod fails, and the pod goes."""
    await fleet.declare_lending()
    await fleet.start(copies_bytes_max=1000)
    await wait_until(fleet.is_virtual_node_open)
    await put_secret_of_size(fleet, "a", 400)
    await put_secret_of_size(fleet, "b", 400)
    fleet.refused = lambda asked: False if asked[:2] == (OWN, "PATCH") and "/secrets/" in asked[2] else None
    await create_pool_pod_with_secret(fleet, "one", "a")
    await wait_until(lambda: pool_pod_manifest(fleet, "one")["status"].get("reason") == "RefusedByOwner")
    await fleet.send_request(POOL, "DELETE", "/api/v1/namespaces/default/pods/one")
    fleet.refused = lambda _: None
    await create_pool_pod_with_secret(fleet, "other", "b")
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")])


@run_on_fleet()
async def test_a_secret_that_the_pool_makes_anew_with_another_type_is_copied_anew(fleet: LendingFleet) -> None:
    """No API server lets the type of one that is there change."""
    await lend_node(fleet)
    await put_secret(fleet, "one")
    await create_pool_pod(fleet, volumes=secret_volumes())
    await wait_until(lambda: copied_secret_data(fleet) == [{"token": b64encode(b"one").decode()}])
    (first,) = fleet.clusters[OWN].objects("secrets", OURS)
    await fleet.send_request(POOL, "DELETE", "/api/v1/namespaces/default/secrets/key")
    data = {"token": b64encode(b"two").decode()}
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "key"},
        "type": "example.com/t",
        "data": data,
    }
    await fleet.send_request(POOL, "POST", "/api/v1/namespaces/default/secrets", manifest)
    await wait_until(lambda: copied_secret_data(fleet) == [data])
    (second,) = fleet.clusters[OWN].objects("secrets", OURS)
    assert second["type"] == "example.com/t"
    assert first["metadata"]["uid"] != second["metadata"]["uid"]


@run_on_fleet()
async def test_an_owners_namespace_and_secrets_are_left_alone(fleet: LendingFleet) -> None:
    await lend_node(fleet)
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "theirs", "labels": {"spillway.io/pool": POOL}},
    }
    await fleet.send_request(OWN, "POST", "/api/v1/namespaces/default/secrets", manifest)
    await asyncio.sleep(200)
    assert fleet.clusters[OWN].get_object("secrets", "theirs", "default") is not None
    assert fleet.clusters[OWN].get_object("namespaces", "default") is not None


@run_on_fleet()
async def test_what_an_owners_people_put_into_a_namespace_of_ours_stays_and_so_does_the_namespace(
    fleet: LendingFleet,
) -> None:
    await lend_node(fleet)
    await put_secret(fleet, "first")
    await create_pool_pod(fleet, volumes=secret_volumes())
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")])
    theirs = {"metadata": {"name": "theirs", "labels": {"spillway.io/pool": POOL}}, "data": {"a": "Yg=="}}
    for kind in ("configmaps", "secrets"):
        await fleet.send_request(OWN, "POST", f"/api/v1/namespaces/{OURS}/{kind}", theirs)
    await fleet.send_request(POOL, "DELETE", "/api/v1/namespaces/default/pods/one")
    await wait_until(lambda: len(copied_secret_data(fleet)) == 1, 200)
    await asyncio.sleep(200)
    assert all(fleet.clusters[OWN].get_object(kind, "theirs", OURS) is not None for kind in ("configmaps", "secrets"))
    for kind in ("configmaps", "secrets"):
        await fleet.send_request(OWN, "DELETE", f"/api/v1/namespaces/{OURS}/{kind}/theirs")
    await wait_until(lambda: fleet.clusters[OWN].get_object("namespaces", OURS) is None)


@run_on_fleet()
async def test_an_owners_own_namespace_of_that_name_is_not_used_until_somebody_there_says_so(
    fleet: LendingFleet,
) -> None:
    await fleet.send_request(OWN, "POST", "/api/v1/namespaces", {"metadata": {"name": OURS, "labels": {"team": "own"}}})
    await lend_node(fleet)
    await create_pool_pod(fleet)
    await wait_until(lambda: pool_pod_manifest(fleet)["status"].get("phase") == "Failed")
    status = pool_pod_manifest(fleet)["status"]
    assert (status["reason"], fleet.real_pod_phases()) == ("NotLendable", [])
    assert (
        f"namespace {OURS} of cluster {OWN} is not ours: it is without the label spillway.io/fleet=f1"
        in (status["message"])
    )
    await fleet.send_request(
        OWN, "PATCH", f"/api/v1/namespaces/{OURS}", {"metadata": {"labels": {"spillway.io/fleet": "f1"}}}
    )
    await asyncio.sleep(10)
    await create_pool_pod(fleet, "two")
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")])
    labels = fleet.clusters[OWN].get_object("namespaces", OURS)["metadata"]["labels"]
    assert (labels["team"], labels["pod-security.kubernetes.io/enforce"]) == ("own", "baseline")


@run_on_fleet()
async def test_the_security_label_that_somebody_takes_off_our_namespace_is_there_before_the_next_pod(
    fleet: LendingFleet,
) -> None:
    await lend_node(fleet)
    await create_pool_pod(fleet)
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")])
    change = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}
    await fleet.send_request(OWN, "PATCH", f"/api/v1/namespaces/{OURS}", change)
    await asyncio.sleep(10)
    await create_pool_pod(fleet, "two")
    await wait_until(lambda: len(fleet.real_pod_phases()) == 2)
    labels = fleet.clusters[OWN].get_object("namespaces", OURS)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "baseline"


@run_on_fleet()
async def test_a_secret_of_the_owners_that_is_called_as_a_copy_would_be_is_neither_read_nor_written(
    fleet: LendingFleet,
) -> None:
    await lend_node(fleet)
    await create_pool_pod(fleet, "first")
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")])
    name = copy_name(ConfigReference("Secret", "default", "key", False), POOL)
    data = {"token": b64encode(b"theirs").decode()}
    await fleet.send_request(
        OWN, "POST", f"/api/v1/namespaces/{OURS}/secrets", {"metadata": {"name": name}, "data": data}
    )
    await put_secret(fleet, "of the pool")
    await create_pool_pod(fleet, volumes=secret_volumes())
    await wait_until(lambda: pool_pod_manifest(fleet)["status"].get("phase") == "Failed")
    message = f"Secret {OURS}/{name} of cluster {OWN} is not ours, or another pool's"
    assert pool_pod_manifest(fleet)["status"]["message"] == message
    assert copied_secret_data(fleet) == [data]


@run_on_fleet()
async def test_a_copy_that_is_for_another_pool_is_neither_read_nor_written(fleet: LendingFleet) -> None:
    """As where a pool's people have found a name of their own whose hash is that of another pool's Secret."""
    await lend_node(fleet)
    await create_pool_pod(fleet, "first")
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")])
    metadata = {
        "name": copy_name(ConfigReference("Secret", "default", "key", False), POOL),
        "labels": {"spillway.io/pool": "pool-2"},
        "annotations": {"spillway.io/copy-version": "u/1"},
    }
    data = {"token": b64encode(b"of pool-2").decode()}
    await fleet.send_request(OWN, "POST", f"/api/v1/namespaces/{OURS}/secrets", {"metadata": metadata, "data": data})
    await put_secret(fleet, "of the pool")
    await create_pool_pod(fleet, volumes=secret_volumes())
    await wait_until(lambda: pool_pod_manifest(fleet)["status"].get("phase") == "Failed")
    assert pool_pod_manifest(fleet)["status"]["message"].endswith("is not ours, or another pool's")
    assert len(fleet.real_pod_phases()) == 1
    assert copied_secret_data(fleet) == [data]


@run_on_fleet()
async def test_what_somebody_in_the_owner_writes_onto_a_pod_copies_nothing(fleet: LendingFleet) -> None:
    """A pod with our marks that names a Secret of the pool's is an orphan, whatever else it says."""
    await lend_node(fleet)
    await put_secret(fleet, "first")
    await create_pool_pod(fleet)
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")])
    for number, place in enumerate(("default/one", "../secrets", "default/..")):
        forged = pod(f"forged-{number}", labels={"spillway.io/pool": POOL, "spillway.io/pool-uid": "u"}, nodeName="n0")
        forged["metadata"]["finalizers"] = ["example.com/stays"]
        forged["metadata"]["annotations"] = {"spillway.io/pool-pod": place, "spillway.io/copies": "Secret/key"}
        await fleet.send_request(OWN, "POST", f"/api/v1/namespaces/{OURS}/pods", forged)
    await assert_holds_for(lambda: copied_secret_data(fleet) == [], 60)
    assert fleet.is_virtual_node_open()


@run_on_fleet(nodes=2, pools=(POOL, "pool-2"))
async def test_pods_and_secrets_of_two_pools_with_equal_names_do_not_meet(fleet: LendingFleet) -> None:
    """Both are in one owner at once, since somebody there keeps the first pool's pod from going."""

    def real_pod_by_pool() -> dict[str, dict[str, Any]]:
        """By the pool that each is of."""
        return {one["metadata"]["labels"]["spillway.io/pool"]: one for one in fleet.clusters[OWN].objects("pods", OURS)}

    def copied_token(real: dict[str, Any]) -> bytes:
        copy = fleet.clusters[OWN].get_object("secrets", real["spec"]["volumes"][0]["secret"]["secretName"], OURS)
        assert copy is not None
        return b64decode(copy["data"]["token"])

    await fleet.send_request(OWN, "PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"spillway.io/lend": "never"}}})
    await lend_node(fleet)
    for pool in (POOL, "pool-2"):
        await put_secret(fleet, f"of {pool}", pool)
        await create_pool_pod(fleet, pool=pool, volumes=secret_volumes())
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")])
    (first,) = real_pod_by_pool().values()
    held = {"metadata": {"finalizers": ["example.com/stays"]}}
    await fleet.send_request(OWN, "PATCH", f"/api/v1/namespaces/{OURS}/pods/{first['metadata']['name']}", held)
    await fleet.declare_lending(pool="pool-2")
    await fleet.send_request(OWN, "PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"spillway.io/lend": None}}})
    await wait_until(lambda: len(real_pod_by_pool()) == 2)
    assert {pool: copied_token(real) for pool, real in real_pod_by_pool().items()} == {
        POOL: b"of pool",
        "pool-2": b"of pool-2",
    }
    assert len({real["metadata"]["name"] for real in real_pod_by_pool().values()}) == 2
    assert {real["metadata"]["annotations"]["spillway.io/pool-pod"] for real in real_pod_by_pool().values()} == {
        "default/one"
    }
    assert (fleet.register_state("n0"), fleet.register_state("n1")) == ("recalled", "lent"), (
        "the first one's node is nobody else's yet"
    )


@run_on_fleet()
async def test_a_pod_that_cannot_run_there_is_refused_with_the_reason(fleet: LendingFleet) -> None:
    await lend_node(fleet)
    await create_pool_pod(fleet, hostPID=True)
    await wait_until(lambda: pool_pod_manifest(fleet)["status"].get("phase") == "Failed")
    status = pool_pod_manifest(fleet)["status"]
    assert (status["reason"], status["message"]) == ("NotLendable", "hostPID: shares its host's")
    assert fleet.real_pod_phases() == []


@run_on_fleet(nodes=2)
async def test_odd_pods_that_an_api_server_lets_in_keep_no_node_from_its_owner(fleet: LendingFleet) -> None:
    """They name their node, so no scheduler looks at them."""
    await lend_node(fleet)
    await wait_until(lambda: fleet.is_virtual_node_open("n1"))
    await create_pool_pod(fleet, nodeName=VIRTUAL, cpu="10P")
    await create_pool_pod(fleet, "nameless", nodeName=VIRTUAL, imagePullSecrets=[{}])
    await create_pool_pod(fleet, "other", nodeName=virtual_node_name(OWN, "n1"))
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running"), ("n1", "Running")])
    assert pool_pod_manifest(fleet)["status"]["message"].startswith("resources: quantity 'cpu'")
    await asyncio.sleep(20)
    for node in ("n0", "n1"):
        await fleet.recall_node(node)
        await wait_until(lambda node=node: fleet.register_state(node) == "", 2 * GRACE_SECONDS)  # type: ignore[misc]


@run_on_fleet()
async def test_a_controller_whose_pods_are_refused_does_not_make_them_without_end(fleet: LendingFleet) -> None:
    await lend_node(fleet)
    await fleet.run_deployment_in_pool(replicas=2, hostPID=True)
    await asyncio.sleep(65)
    phases = [phase for _, phase in fleet.pool_pod_phases()]
    assert (phases.count("Pending"), phases.count("Running")) == (2, 0)
    assert 6 <= phases.count("Failed") <= 8, "one in ten seconds"
    waiting = [
        one["status"]["containerStatuses"][0]["state"]["waiting"]
        for one in fleet.clusters[POOL].objects("pods")
        if one["status"]["phase"] == "Pending"
    ]
    assert waiting == [{"reason": "NotLendable", "message": "hostPID: shares its host's"}] * 2


@run_on_fleet()
async def test_a_pod_that_the_owner_refuses_says_why(fleet: LendingFleet) -> None:
    await lend_node(fleet)
    await create_pool_pod(fleet, "first")
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")])
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}
    await fleet.send_request(OWN, "POST", f"/api/v1/namespaces/{OURS}/resourcequotas", quota)
    await create_pool_pod(fleet, "second")
    await wait_until(lambda: pool_pod_manifest(fleet, "second")["status"].get("phase") == "Failed")
    status = pool_pod_manifest(fleet, "second")["status"]
    assert status["reason"] == "RefusedByOwner"
    assert "exceeded quota" in status["message"]


@run_on_fleet()
async def test_a_real_pod_that_somebody_deletes_is_not_started_again(fleet: LendingFleet) -> None:
    await lend_node(fleet)
    await create_pool_pod(fleet)
    await wait_until(lambda: pool_pod_manifest(fleet)["status"].get("phase") == "Running")
    (real,) = fleet.clusters[OWN].objects("pods", OURS)
    await fleet.send_request(OWN, "DELETE", f"/api/v1/namespaces/{OURS}/pods/{real['metadata']['name']}")
    await wait_until(lambda: pool_pod_manifest(fleet)["status"]["phase"] == "Failed")
    assert pool_pod_manifest(fleet)["status"]["reason"] == "Gone"
    await assert_holds_for(lambda: fleet.real_pod_phases() == [], 30)


@run_on_fleet()
async def test_a_pool_pod_that_is_deleted_is_let_go_when_its_real_pod_is_gone(fleet: LendingFleet) -> None:
    await lend_node(fleet)
    await create_pool_pod(fleet)
    await wait_until(lambda: pool_pod_manifest(fleet)["status"].get("phase") == "Running")
    await fleet.send_request(POOL, "DELETE", "/api/v1/namespaces/default/pods/one")
    await wait_until(lambda: fleet.real_pod_phases() == [])
    await wait_until(lambda: fleet.pool_pod_phases() == [])
    assert (fleet.register_state(), fleet.is_virtual_node_open()) == ("lent", True)


@run_on_fleet()
async def test_a_recall_shortens_the_grace_of_a_pod_that_leaves_already_and_forces_it_then(fleet: LendingFleet) -> None:
    await lend_node(fleet)
    await create_pool_pod(fleet, terminationGracePeriodSeconds=3600)
    await wait_until(lambda: pool_pod_manifest(fleet)["status"].get("phase") == "Running")
    (real,) = fleet.clusters[OWN].objects("pods", OURS)
    place = f"/api/v1/namespaces/{OURS}/pods/{real['metadata']['name']}"
    await fleet.send_request(OWN, "PATCH", place, {"metadata": {"finalizers": ["example.com/slow"]}})
    await fleet.send_request(POOL, "DELETE", "/api/v1/namespaces/default/pods/one")
    await wait_until(lambda: real_pod_graces(fleet) == [3600])
    await assert_holds_for(lambda: real_pod_graces(fleet) == [3600], 60)
    await fleet.recall_node()
    await wait_until(lambda: real_pod_graces(fleet) == [GRACE_SECONDS])
    await wait_until(lambda: real_pod_graces(fleet) == [0])
    await fleet.send_request(OWN, "PATCH", place, {"metadata": {"finalizers": None}})
    await wait_until(lambda: fleet.register_state() == "")


@run_on_fleet()
async def test_what_a_finalizer_keeps_in_the_owner_is_deleted_by_force_after_longer_and_longer_pauses(
    fleet: LendingFleet,
) -> None:
    await lend_node(fleet)
    await create_pool_pod(fleet)
    await wait_until(lambda: pool_pod_manifest(fleet)["status"].get("phase") == "Running")
    (real,) = fleet.clusters[OWN].objects("pods", OURS)
    place = f"/api/v1/namespaces/{OURS}/pods/{real['metadata']['name']}"
    await fleet.send_request(OWN, "PATCH", place, {"metadata": {"finalizers": ["example.com/slow"]}})
    await fleet.recall_node()
    await wait_until(lambda: real_pod_graces(fleet) == [0])
    await asyncio.sleep(1000)
    asked = fleet.asked[OWN, "DELETE", place]
    assert 2 <= asked <= 1 + 9, "with its grace; then by force, and after 5, 10, 20, … 300 seconds"
    assert fleet.register_state() == "recalled"
    await fleet.send_request(OWN, "PATCH", place, {"metadata": {"finalizers": None}})
    assert await wait_until(lambda: fleet.register_state() == "") < 10


def real_pod_graces(fleet: LendingFleet) -> list[int | None]:
    return [one["metadata"].get("deletionGracePeriodSeconds") for one in fleet.clusters[OWN].objects("pods", OURS)]


@run_on_fleet()
async def test_a_pool_pod_that_a_finalizer_keeps_is_let_go_once_and_holds_no_node(fleet: LendingFleet) -> None:
    await lend_node(fleet)
    await create_pool_pod(fleet)
    await wait_until(lambda: pool_pod_manifest(fleet)["status"].get("phase") == "Running")
    place = "/api/v1/namespaces/default/pods/one"
    await fleet.send_request(POOL, "PATCH", place, {"metadata": {"finalizers": ["example.com/hold"]}})
    await fleet.recall_node()
    await wait_until(lambda: fleet.register_state() == "")
    assert (fleet.real_pod_phases(), len(fleet.pool_pod_phases()), fleet.virtual_node()) == ([], 1, None)
    assert fleet.asked[POOL, "DELETE", place] == 2, "one asks it to go, one lets it go"
    await fleet.send_request(POOL, "PATCH", place, {"metadata": {"finalizers": None}})
    await wait_until(lambda: fleet.pool_pod_phases() == [])


@run_on_fleet()
async def test_a_real_pod_without_a_pool_pod_is_deleted(fleet: LendingFleet) -> None:
    """Of a bridge that created it late, say."""
    await lend_node(fleet)
    await create_pool_pod(fleet)
    await wait_until(lambda: pool_pod_manifest(fleet)["status"].get("phase") == "Running")
    (real,) = fleet.clusters[OWN].objects("pods", OURS)
    labels = {**real["metadata"]["labels"], "spillway.io/pool-uid": "of-nobody"}
    orphan = pod("orphan", labels=labels, nodeName="n0", nodeSelector={"spillway.io/lending": "lent"})
    await fleet.send_request(OWN, "POST", f"/api/v1/namespaces/{OURS}/pods", orphan)
    await wait_until(lambda: len(fleet.real_pod_phases()) == 2)
    await wait_until(lambda: len(fleet.real_pod_phases()) == 1)
    assert fleet.clusters[OWN].get_object("pods", "orphan", OURS) is None


@run_on_fleet()
async def test_a_real_pod_without_a_pool_pod_keeps_its_own_grace(fleet: LendingFleet) -> None:
    await lend_node(fleet)
    await create_pool_pod(fleet, terminationGracePeriodSeconds=3)
    await wait_until(lambda: pool_pod_manifest(fleet)["status"].get("phase") == "Running")
    (real,) = fleet.clusters[OWN].objects("pods", OURS)
    place = f"/api/v1/namespaces/{OURS}/pods/{real['metadata']['name']}"
    await fleet.send_request(OWN, "PATCH", place, {"metadata": {"finalizers": ["example.com/slow"]}})
    await fleet.send_request(POOL, "DELETE", "/api/v1/namespaces/default/pods/one", {"gracePeriodSeconds": 0})
    await wait_until(lambda: real_pod_graces(fleet) != [None])
    assert real_pod_graces(fleet) == [3]


@run_on_fleet()
async def test_a_job_of_the_pool_completes_and_its_end_stays(fleet: LendingFleet) -> None:
    await lend_node(fleet)
    manifest = pod("one", tolerations=TOLERATES_LOANS, restartPolicy="Never")
    manifest["metadata"]["annotations"] = {"sim/run-seconds": "5"}
    await fleet.send_request(POOL, "POST", "/api/v1/namespaces/default/pods", manifest)
    await wait_until(lambda: pool_pod_manifest(fleet)["status"].get("phase") == "Succeeded")
    await assert_holds_for(lambda: pool_pod_manifest(fleet)["status"]["phase"] == "Succeeded", 20)
    await fleet.recall_node()
    await wait_until(lambda: fleet.register_state() == "")
    assert pool_pod_manifest(fleet)["status"]["phase"] == "Succeeded"


@run_on_fleet()
async def test_the_log_tells_what_real_pods_hold_and_nothing_of_what_is_over(fleet: LendingFleet) -> None:
    """Of what waits for its Secret nothing is held yet; and the owner adds a core to each pod."""
    fleet.clusters[OWN].inject_sidecar(SidecarSpec(cpu_millis=1000, memory_bytes=0))
    await lend_node(fleet)
    over = pod("over", cpu="2", tolerations=TOLERATES_LOANS, restartPolicy="Never")
    over["metadata"]["annotations"] = {"sim/run-seconds": "5"}
    await fleet.send_request(POOL, "POST", "/api/v1/namespaces/default/pods", over)
    await create_pool_pod(fleet, "waits", cpu="2", volumes=secret_volumes())
    await create_pool_pod(fleet, "runs", cpu="2")

    def logged_requests_by_pod() -> dict[str, dict[str, int]]:
        return {one.name: dict(one.requests) for one in fleet.record_of_open_loan().pods}

    def logged_cpu_and_places(name: str) -> tuple[int, int]:
        return logged_requests_by_pod()[name].get("cpu", 0), logged_requests_by_pod()[name].get("pods", 0)

    await wait_until(lambda: pool_pod_manifest(fleet, "over")["status"].get("phase") == "Succeeded")
    await wait_until(lambda: set(logged_requests_by_pod()) == {"runs", "waits"})
    assert (logged_cpu_and_places("runs"), logged_cpu_and_places("waits")) == ((3000, 1), (0, 0))


@run_on_fleet()
async def test_virtual_nodes_have_leases_that_are_renewed(fleet: LendingFleet) -> None:
    await lend_node(fleet)

    def lease_renew_time() -> str:
        found = fleet.clusters[POOL].get_object("leases", VIRTUAL, "kube-node-lease")
        return str(found["spec"]["renewTime"]) if found else ""

    await wait_until(lambda: lease_renew_time() != "")
    first = lease_renew_time()
    await wait_until(lambda: lease_renew_time() != first, 15)
    await fleet.kill_instance()
    await asyncio.sleep(11)
    last = lease_renew_time()
    await assert_holds_for(lambda: lease_renew_time() == last, 30)


@run_on_fleet()
async def test_what_a_daemon_takes_is_not_offered(fleet: LendingFleet) -> None:
    await lend_node(fleet)
    daemon = pod("daemon", cpu="3", nodeName="n0")
    daemon["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}
    ]
    await fleet.send_request(OWN, "POST", "/api/v1/namespaces/kube-system/pods", daemon)

    def offered_cpu_or_empty() -> str:
        found = fleet.virtual_node()
        return str(found["status"]["allocatable"]["cpu"]) if found else ""

    await wait_until(lambda: offered_cpu_or_empty() == "5000m")
    await wait_until(lambda: dict(fleet.record_of_open_loan().offered)["cpu"] == 5000)
    assert fleet.register_state() == "lent"


def offered_cpu(fleet: LendingFleet) -> str:
    return str((fleet.virtual_node() or {})["status"]["allocatable"]["cpu"])


@run_on_fleet()
async def test_what_an_owner_adds_to_pods_is_not_offered_and_no_more_are_bound_there_than_fit(
    fleet: LendingFleet,
) -> None:
    """A sidecar of a core in each: of 8 cores two pods of 2 take 6, and of those that were bound before, two fail."""
    fleet.clusters[OWN].inject_sidecar(SidecarSpec(cpu_millis=1000, memory_bytes=0))
    await lend_node(fleet)
    await fleet.run_deployment_in_pool(replicas=6)
    await wait_until(lambda: fleet.real_pod_phases().count(("n0", "Running")) == 2)
    await asyncio.sleep(60)
    refused = [one["status"] for one in fleet.clusters[POOL].objects("pods") if one["status"]["phase"] == "Failed"]
    assert [one["reason"] for one in refused] == ["OutOfcpu"] * 2
    assert refused[0]["message"] == (
        "Pod was rejected: Node didn't have enough resource: cpu; "
        "the cluster where it was to run adds to what it asks for: cpu 1000m"
    )
    await assert_holds_for(lambda: [phase for _, phase in fleet.pool_pod_phases()].count("Failed") == 2, 120)
    await create_pool_pod(fleet, "small", cpu="1")
    await wait_until(lambda: fleet.real_pod_phases().count(("n0", "Running")) == 3)


@run_on_fleet()
async def test_what_a_node_refused_is_offered_again_after_a_while(fleet: LendingFleet) -> None:
    """What others are refused for is theirs alone: the kind may not come again."""
    await fleet.declare_lending()
    await fleet.start(refused_size_seconds=60.0)
    await wait_until(fleet.is_virtual_node_open)
    fleet.clusters[OWN].inject_sidecar(SidecarSpec(cpu_millis=4000, memory_bytes=0))
    await create_pool_pod(fleet, cpu="6")
    await wait_until(lambda: pool_pod_manifest(fleet)["status"]["phase"] == "Failed")
    await wait_until(lambda: offered_cpu(fleet) == "5999m")
    await assert_holds_for(lambda: offered_cpu(fleet) == "5999m", 50)
    await wait_until(lambda: offered_cpu(fleet) == "8000m", 20)


@run_on_fleet()
async def test_a_node_that_refuses_whatever_it_is_asked_is_asked_once_in_ten_seconds(fleet: LendingFleet) -> None:
    """For a reason that no size of a pod tells: here the pods ask for nothing, and what is added fits no more."""
    fleet.clusters[OWN].inject_sidecar(SidecarSpec(cpu_millis=5000, memory_bytes=0))
    await lend_node(fleet)
    await fleet.run_deployment_in_pool(replicas=2, cpu="0")
    await asyncio.sleep(65)
    phases = [phase for _, phase in fleet.pool_pod_phases()]
    assert phases.count("Running") == 1
    assert 5 <= phases.count("Failed") <= 8
    (waiting,) = [one["status"] for one in fleet.clusters[POOL].objects("pods") if one["status"]["phase"] == "Pending"]
    assert waiting["containerStatuses"][0]["state"]["waiting"]["reason"] == "RefusedByNode"


@run_on_fleet(nodes=20)
async def test_a_pod_that_no_node_has_room_for_fails_once_in_ten_seconds_however_many_nodes_there_are(
    fleet: LendingFleet,
) -> None:
    fleet.clusters[OWN].inject_sidecar(SidecarSpec(cpu_millis=4000, memory_bytes=0))
    await fleet.declare_lending()
    await fleet.start()
    await wait_until(lambda: all(fleet.is_virtual_node_open(f"n{number}") for number in range(20)))
    await fleet.run_deployment_in_pool(replicas=1, cpu="6")
    await asyncio.sleep(95)
    phases = [phase for _, phase in fleet.pool_pod_phases()]
    assert 7 <= phases.count("Failed") <= 10
    (waiting,) = [one["status"] for one in fleet.clusters[POOL].objects("pods") if one["status"]["phase"] == "Pending"]
    assert waiting["containerStatuses"][0]["state"]["waiting"]["reason"] == "RefusedByNode"


@run_on_fleet()
async def test_what_a_real_pod_grows_by_where_it_runs_is_not_offered(fleet: LendingFleet) -> None:
    await lend_node(fleet)
    await create_pool_pod(fleet, cpu="2")
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")])
    (real,) = fleet.clusters[OWN].objects("pods", OURS)
    containers = [{**real["spec"]["containers"][0], "resources": {"requests": {"cpu": "5"}}}]
    # As the subresource `resize` does it, which the simulation does not serve.
    fleet.clusters[OWN].control_plane.world.store.put_object(
        "pods", {**real, "spec": {**real["spec"], "containers": containers}}
    )
    await wait_until(lambda: offered_cpu(fleet) == "5000m")
    await create_pool_pod(fleet, "two", cpu="4")
    await assert_holds_for(lambda: pool_pod_manifest(fleet, "two")["spec"].get("nodeName", "") == "", 30)


@run_on_fleet()
async def test_a_pool_pod_that_is_resized_makes_no_room_that_is_not_there(fleet: LendingFleet) -> None:
    """Its real pod stays as large as it was."""
    await lend_node(fleet)
    await create_pool_pod(fleet, cpu="7")
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")])
    containers = [{**pool_pod_manifest(fleet)["spec"]["containers"][0], "resources": {"requests": {"cpu": "1"}}}]
    resized = {**pool_pod_manifest(fleet), "spec": {**pool_pod_manifest(fleet)["spec"], "containers": containers}}
    fleet.clusters[POOL].control_plane.world.store.put_object("pods", resized)
    await wait_until(lambda: offered_cpu(fleet) == "2000m")

    def resize_reasons() -> list[str]:
        conditions = pool_pod_manifest(fleet)["status"]["conditions"]
        return [one["reason"] for one in conditions if one["type"] == "PodResizePending"]

    await wait_until(lambda: resize_reasons() == ["Infeasible"])
    labels = {"metadata": {"labels": {"stage": "two"}}}
    await fleet.send_request(POOL, "PATCH", "/api/v1/namespaces/default/pods/one", labels)
    await wait_until(lambda: fleet.clusters[OWN].objects("pods", OURS)[0]["metadata"]["labels"].get("stage") == "two")
    await assert_holds_for(lambda: resize_reasons() == ["Infeasible"], 10)
    await create_pool_pod(fleet, "two", cpu="5")
    await assert_holds_for(lambda: pool_pod_manifest(fleet, "two")["spec"].get("nodeName", "") == "", 30)


@run_on_fleet()
async def test_a_real_pod_whose_pool_pod_is_gone_by_force_holds_its_place_until_it_is_gone(fleet: LendingFleet) -> None:
    await lend_node(fleet)
    manifest = pod("one", cpu="6", tolerations=TOLERATES_LOANS)
    manifest["metadata"]["annotations"] = {"sim/stop-seconds": "20"}
    await fleet.send_request(POOL, "POST", "/api/v1/namespaces/default/pods", manifest)
    await wait_until(lambda: pool_pod_manifest(fleet)["status"].get("phase") == "Running")
    await fleet.send_request(POOL, "DELETE", "/api/v1/namespaces/default/pods/one", {"gracePeriodSeconds": 0})
    await wait_until(lambda: offered_cpu(fleet) == "2000m")
    await wait_until(lambda: fleet.real_pod_phases() == [])
    await wait_until(lambda: offered_cpu(fleet) == "8000m")


@run_on_fleet()
async def test_what_people_change_of_a_pool_pod_reaches_its_real_pod(fleet: LendingFleet) -> None:
    """And what the owner's admission has made of it stays: it is nothing that the pool has changed."""
    await fleet.declare_lending()
    await fleet.start()
    await wait_until(fleet.is_virtual_node_open)
    await fleet.run_deployment_in_pool(replicas=1)
    await wait_until(lambda: fleet.pool_pod_phases() == [(VIRTUAL, "Running")])
    name = fleet.clusters[POOL].objects("pods")[0]["metadata"]["name"]

    def real_pod_manifest() -> dict[str, Any]:
        found: dict[str, Any] = fleet.clusters[OWN].objects("pods")[0]
        return found

    place, uid = real_pod_manifest()["metadata"], real_pod_manifest()["metadata"]["uid"]
    path = f"/api/v1/namespaces/{place['namespace']}/pods/{place['name']}"
    mirrored = [{**real_pod_manifest()["spec"]["containers"][0], "image": "mirror.own/app:1"}]
    await fleet.send_request(
        OWN, "PATCH", path, {"spec": {"containers": mirrored}, "metadata": {"labels": {"team": "own"}}}
    )
    in_pool = f"/api/v1/namespaces/default/pods/{name}"
    await fleet.send_request(
        POOL, "PATCH", in_pool, {"metadata": {"labels": {"stage": "two"}, "annotations": {"note": "new"}}}
    )
    await wait_until(lambda: real_pod_manifest()["metadata"]["labels"].get("stage") == "two", 5)
    assert (
        real_pod_manifest()["metadata"]["labels"]["team"],
        real_pod_manifest()["metadata"]["annotations"]["note"],
    ) == ("own", "new")
    assert real_pod_manifest()["spec"]["containers"] == mirrored
    changed = [{**fleet.clusters[POOL].objects("pods")[0]["spec"]["containers"][0], "image": "app:2"}]
    await fleet.send_request(POOL, "PATCH", in_pool, {"spec": {"containers": changed, "activeDeadlineSeconds": 60}})
    await wait_until(lambda: real_pod_manifest()["spec"]["containers"][0]["image"] == "app:2", 5)
    assert (real_pod_manifest()["spec"]["activeDeadlineSeconds"], real_pod_manifest()["metadata"]["uid"]) == (60, uid)


@run_on_fleet()
async def test_a_change_that_the_owner_refuses_is_told_until_it_is_made(fleet: LendingFleet) -> None:
    await lend_node(fleet)
    await create_pool_pod(fleet)
    await wait_until(lambda: pool_pod_manifest(fleet)["status"].get("phase") == "Running")

    def update_refusals() -> list[tuple[str, bool]]:
        conditions = pool_pod_manifest(fleet)["status"]["conditions"]
        return [(one["reason"], "pods" in one["message"]) for one in conditions if one["type"] == NOT_UPDATED]

    fleet.clusters[OWN].set_faults(Faults(forbidden=("PATCH pods",)))
    labels = {"metadata": {"labels": {"stage": "two"}}}
    await fleet.send_request(POOL, "PATCH", "/api/v1/namespaces/default/pods/one", labels)
    await wait_until(lambda: update_refusals() == [("RefusedByOwner", True)])
    await asyncio.sleep(20)
    fleet.asked.clear()
    await assert_holds_for(lambda: update_refusals() == [("RefusedByOwner", True)], 60)
    writes = [key for key in fleet.asked if key[0] == POOL and key[1] == "PATCH" and "/pods/" in key[2]]
    assert not writes, "said once"
    fleet.clusters[OWN].set_faults(Faults())
    await wait_until(lambda: update_refusals() == [])
    (real,) = fleet.clusters[OWN].objects("pods", OURS)
    assert real["metadata"]["labels"]["stage"] == "two"


@run_on_fleet(nodes=2)
async def test_the_use_of_each_node_is_told_once_an_hour_also_while_lending_is_paused(fleet: LendingFleet) -> None:
    """Measured where metrics.k8s.io answers."""
    await fleet.send_request(OWN, "POST", "/api/v1/namespaces/default/pods", pod("web", cpu="2", nodeName="n0"))
    fleet.clusters[OWN].set_pod_usage("default", "web", {"cpu": 1500, "memory": 1 << 30})
    await fleet.declare_lending(paused=True)
    await fleet.start()
    told: dict[str, NodeUsed] = {}

    async def collect_usage_records() -> None:
        async with LocalBus(fleet.broker, FLEET, "reader").follow_topics((NODE_USAGE,)) as feed:
            async for batch in feed:
                told.update({one.event.node: one.event for one in batch.records if isinstance(one.event, NodeUsed)})

    listening = asyncio.create_task(collect_usage_records())
    await wait_until(lambda: len(told) == 2, 300)
    listening.cancel()
    assert (told["n0"].pods_max, dict(told["n0"].requested_max)["cpu"], told["n0"].idle_ms) == (1, 2000, 0)
    assert (told["n1"].pods_max, told["n1"].idle_ms) == (0, told["n1"].until_ms - told["n1"].from_ms)
    assert told["n0"].used_max == (("cpu", 1500), ("memory", 1 << 30))
    assert told["n1"].used_max == (("cpu", 0), ("memory", 0))
    assert (fleet.register_state("n0"), fleet.register_state("n1")) == ("", "")


@run_on_fleet()
async def test_a_budget_that_changes_is_told_though_its_pods_do_not(fleet: LendingFleet) -> None:
    """Whole readings alone come by it, every `resync_seconds`."""
    await fleet.declare_lending()
    await fleet.start(resync_seconds=20.0)
    await wait_until(fleet.is_virtual_node_open)
    await create_pool_pod(fleet, labels={"app": "one"})
    await wait_until(lambda: logged_budgets(fleet) == [()] and fleet.real_pod_phases() == [("n0", "Running")])
    path, selector = "/apis/policy/v1/namespaces/default/poddisruptionbudgets", {"matchLabels": {"app": "one"}}
    await fleet.send_request(POOL, "POST", path, {"metadata": {"name": "few"}, "spec": {"selector": selector}})
    await wait_until(lambda: logged_budgets(fleet) == [(("default/few", 0),)])
    before = pool_pod_manifest(fleet)["metadata"]["resourceVersion"]
    await fleet.send_request(POOL, "PATCH", f"{path}/few/status", {"status": {"disruptionsAllowed": 3}})
    await wait_until(lambda: logged_budgets(fleet) == [(("default/few", 3),)])
    assert pool_pod_manifest(fleet)["metadata"]["resourceVersion"] == before


def logged_budgets(fleet: LendingFleet) -> list[Any]:
    said = fleet.record_of_open_loan()
    return [one.budgets for one in said.pods] if said is not None else []
