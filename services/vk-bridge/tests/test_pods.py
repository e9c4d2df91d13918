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

from .lending_fleet import FLEET, GRACE_SECONDS, OWN, POOL, TOLERATES_LOANS, LendingFleet, always, on_fleet, until

pytestmark = pytest.mark.looptime
VIRTUAL = virtual_node_name(OWN, "n0")
OURS = "spillway-lent-default"


async def lent(fleet: LendingFleet) -> None:
    await fleet.declare()
    await fleet.start()
    await until(fleet.is_open)


async def put_secret(fleet: LendingFleet, value: str, pool: str = POOL) -> None:
    data = {"token": b64encode(value.encode()).decode()}
    manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "data": data}
    if fleet.clusters[pool].get_object("secrets", "key", "default") is None:
        await fleet.ask(pool, "POST", "/api/v1/namespaces/default/secrets", manifest)
    else:
        await fleet.ask(pool, "PATCH", "/api/v1/namespaces/default/secrets/key", {"data": data})


async def run_alone(fleet: LendingFleet, name: str = "one", pool: str = POOL, **spec: Any) -> None:
    manifest = pod(name, tolerations=TOLERATES_LOANS, **spec)
    await fleet.ask(pool, "POST", "/api/v1/namespaces/default/pods", manifest)


def needs_secret() -> list[dict[str, Any]]:
    return [{"name": "key", "secret": {"secretName": "key"}}]


def copies(fleet: LendingFleet) -> list[Any]:
    return [one.get("data") for one in fleet.clusters[OWN].objects("secrets", OURS)]


def pooled(fleet: LendingFleet, name: str = "one") -> dict[str, Any]:
    found = fleet.clusters[POOL].get_object("pods", name, "default")
    assert found is not None
    return found


@on_fleet()
async def test_a_pod_waits_for_its_secret_and_says_so_then_runs(fleet: LendingFleet) -> None:
    await lent(fleet)
    await run_alone(fleet, volumes=needs_secret())
    await until(lambda: bool(pooled(fleet)["status"].get("containerStatuses")))
    waiting = pooled(fleet)["status"]["containerStatuses"][0]["state"]["waiting"]
    assert waiting == {"reason": "CreateContainerConfigError", "message": 'secret "key" not found'}
    await always(lambda: fleet.real() == [], 30)
    await put_secret(fleet, "first")
    await until(lambda: fleet.real() == [("n0", "Running")])
    await until(lambda: pooled(fleet)["status"]["phase"] == "Running")
    conditions = {one["type"]: one["status"] for one in pooled(fleet)["status"]["conditions"]}
    assert (conditions[CREATED], conditions["Ready"]) == ("True", "True")


@on_fleet()
async def test_pods_of_a_node_are_read_once_when_one_is_bound_and_once_when_it_runs(fleet: LendingFleet) -> None:
    """Neither for what the bridge itself has written, nor for what it has said in the log; and the nodes not at all."""
    await lent(fleet)
    await asyncio.sleep(10)
    fleet.asked.clear()
    await run_alone(fleet)
    await until(lambda: pooled(fleet)["status"]["phase"] == "Running")
    await asyncio.sleep(10)
    nodes = [(OWN, "GET", "/api/v1/nodes/n0"), (POOL, "GET", f"/api/v1/nodes/{VIRTUAL}")]
    assert [fleet.asked[POOL, "GET", "/api/v1/pods"], *(fleet.asked[node] for node in nodes)] == [2, 0, 0]


@on_fleet()
async def test_copies_follow_the_pool_and_go_when_no_pod_refers_to_them(fleet: LendingFleet) -> None:
    await lent(fleet)
    await put_secret(fleet, "first")
    await run_alone(fleet, volumes=needs_secret())
    await until(lambda: fleet.real() == [("n0", "Running")])
    (first,) = copies(fleet)
    await put_secret(fleet, "second")
    await until(lambda: copies(fleet) != [first])
    assert copies(fleet) == [{"token": b64encode(b"second").decode()}]
    await fleet.ask(POOL, "DELETE", "/api/v1/namespaces/default/secrets/key")
    await always(lambda: len(copies(fleet)) == 1, 90)
    await fleet.ask(POOL, "DELETE", "/api/v1/namespaces/default/pods/one")
    await until(lambda: fleet.real() == [])
    await until(lambda: copies(fleet) == [])
    await until(lambda: fleet.clusters[OWN].get_object("namespaces", OURS) is None)


async def put_bytes(fleet: LendingFleet, name: str, count: int) -> None:
    """A Secret of the pool's whose content is so many bytes as JSON."""
    data = {"k": "A" * (count - len('{"data":{"k":""}}'))}
    manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
    there = fleet.clusters[POOL].get_object("secrets", name, "default") is not None
    place = "/api/v1/namespaces/default/secrets"
    await fleet.ask(POOL, "PATCH" if there else "POST", f"{place}/{name}" if there else place, manifest)


async def run_with(fleet: LendingFleet, name: str, secret: str) -> None:
    await run_alone(fleet, name, nodeName=VIRTUAL, volumes=[{"name": "key", "secret": {"secretName": secret}}])


@pytest.mark.parametrize("told", [True, False], ids=["counted", "made_by_a_bridge_that_did_not_count"])
async def test_copies_of_a_cluster_are_bounded_in_bytes_and_a_pod_that_needs_more_is_refused(told: bool) -> None:
    async with LendingFleet() as fleet:
        await _fill_with_copies(fleet, told)


async def _fill_with_copies(fleet: LendingFleet, told: bool) -> None:
    """Also by the bridge that comes after the one which made them; a copy that would grow too large stays as it was."""
    await fleet.declare()
    await fleet.start(copies_bytes_max=1000)
    await until(fleet.is_open)
    for name, count in (("a", 600), ("b", 401), ("c", 400)):
        await put_bytes(fleet, name, count)
    await run_with(fleet, "one", "a")
    await until(lambda: fleet.real() == [("n0", "Running")])
    await fleet.stop()
    if not told:
        (copy,) = fleet.clusters[OWN].objects("secrets", OURS)
        place = f"/api/v1/namespaces/{OURS}/secrets/{copy['metadata']['name']}"
        await fleet.ask(OWN, "PATCH", place, {"metadata": {"annotations": {COPY_BYTES: None}}})
    await fleet.start(copies_bytes_max=1000)
    await run_with(fleet, "more", "b")
    await until(lambda: pooled(fleet, "more")["status"]["phase"] == "Failed")
    why = "401 bytes beside 600 of other copies in cluster own-1; at most 1000 are kept there (copies_bytes_max)"
    status = pooled(fleet, "more")["status"]
    assert (status["reason"], status["message"]) == ("NotLendable", f"Secret b: {why}")
    await run_with(fleet, "fits", "c")
    await until(lambda: fleet.real() == [("n0", "Running")] * 2)
    await put_bytes(fleet, "c", 401)
    await always(lambda: sorted(len(one["k"]) for one in copies(fleet)) == [383, 583], 30)


@on_fleet()
async def test_what_copies_that_went_took_is_free_again(fleet: LendingFleet) -> None:
    await fleet.declare()
    await fleet.start(copies_bytes_max=1000)
    await until(fleet.is_open)
    await put_bytes(fleet, "a", 600)
    await put_bytes(fleet, "b", 600)
    await run_with(fleet, "one", "a")
    await until(lambda: fleet.real() == [("n0", "Running")])
    await fleet.ask(POOL, "DELETE", "/api/v1/namespaces/default/pods/one")
    await until(lambda: copies(fleet) == [])
    await run_with(fleet, "other", "b")
    await until(lambda: fleet.real() == [("n0", "Running")])


@on_fleet()
async def test_a_secret_that_the_pool_makes_anew_with_another_type_is_copied_anew(fleet: LendingFleet) -> None:
    """No API server lets the type of one that is there change."""
    await lent(fleet)
    await put_secret(fleet, "one")
    await run_alone(fleet, volumes=needs_secret())
    await until(lambda: copies(fleet) == [{"token": b64encode(b"one").decode()}])
    (first,) = fleet.clusters[OWN].objects("secrets", OURS)
    await fleet.ask(POOL, "DELETE", "/api/v1/namespaces/default/secrets/key")
    data = {"token": b64encode(b"two").decode()}
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "key"},
        "type": "example.com/t",
        "data": data,
    }
    await fleet.ask(POOL, "POST", "/api/v1/namespaces/default/secrets", manifest)
    await until(lambda: copies(fleet) == [data])
    (second,) = fleet.clusters[OWN].objects("secrets", OURS)
    assert second["type"] == "example.com/t"
    assert first["metadata"]["uid"] != second["metadata"]["uid"]


@on_fleet()
async def test_an_owners_namespace_and_secrets_are_left_alone(fleet: LendingFleet) -> None:
    await lent(fleet)
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "theirs", "labels": {"spillway.io/pool": POOL}},
    }
    await fleet.ask(OWN, "POST", "/api/v1/namespaces/default/secrets", manifest)
    await asyncio.sleep(200)
    assert fleet.clusters[OWN].get_object("secrets", "theirs", "default") is not None
    assert fleet.clusters[OWN].get_object("namespaces", "default") is not None


@on_fleet()
async def test_what_an_owners_people_put_into_a_namespace_of_ours_stays_and_so_does_the_namespace(
    fleet: LendingFleet,
) -> None:
    await lent(fleet)
    await put_secret(fleet, "first")
    await run_alone(fleet, volumes=needs_secret())
    await until(lambda: fleet.real() == [("n0", "Running")])
    theirs = {"metadata": {"name": "theirs", "labels": {"spillway.io/pool": POOL}}, "data": {"a": "Yg=="}}
    for kind in ("configmaps", "secrets"):
        await fleet.ask(OWN, "POST", f"/api/v1/namespaces/{OURS}/{kind}", theirs)
    await fleet.ask(POOL, "DELETE", "/api/v1/namespaces/default/pods/one")
    await until(lambda: len(copies(fleet)) == 1, 200)
    await asyncio.sleep(200)
    assert all(fleet.clusters[OWN].get_object(kind, "theirs", OURS) is not None for kind in ("configmaps", "secrets"))
    for kind in ("configmaps", "secrets"):
        await fleet.ask(OWN, "DELETE", f"/api/v1/namespaces/{OURS}/{kind}/theirs")
    await until(lambda: fleet.clusters[OWN].get_object("namespaces", OURS) is None)


@on_fleet()
async def test_an_owners_own_namespace_of_that_name_is_not_used_until_somebody_there_says_so(
    fleet: LendingFleet,
) -> None:
    await fleet.ask(OWN, "POST", "/api/v1/namespaces", {"metadata": {"name": OURS, "labels": {"team": "own"}}})
    await lent(fleet)
    await run_alone(fleet)
    await until(lambda: pooled(fleet)["status"].get("phase") == "Failed")
    status = pooled(fleet)["status"]
    assert (status["reason"], fleet.real()) == ("NotLendable", [])
    assert (
        f"namespace {OURS} of cluster {OWN} is not ours: it is without the label spillway.io/fleet=f1"
        in (status["message"])
    )
    await fleet.ask(OWN, "PATCH", f"/api/v1/namespaces/{OURS}", {"metadata": {"labels": {"spillway.io/fleet": "f1"}}})
    await asyncio.sleep(10)
    await run_alone(fleet, "two")
    await until(lambda: fleet.real() == [("n0", "Running")])
    labels = fleet.clusters[OWN].get_object("namespaces", OURS)["metadata"]["labels"]
    assert (labels["team"], labels["pod-security.kubernetes.io/enforce"]) == ("own", "baseline")


@on_fleet()
async def test_the_security_label_that_somebody_takes_off_our_namespace_is_there_before_the_next_pod(
    fleet: LendingFleet,
) -> None:
    await lent(fleet)
    await run_alone(fleet)
    await until(lambda: fleet.real() == [("n0", "Running")])
    change = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}
    await fleet.ask(OWN, "PATCH", f"/api/v1/namespaces/{OURS}", change)
    await asyncio.sleep(10)
    await run_alone(fleet, "two")
    await until(lambda: len(fleet.real()) == 2)
    labels = fleet.clusters[OWN].get_object("namespaces", OURS)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "baseline"


@on_fleet()
async def test_a_secret_of_the_owners_that_is_called_as_a_copy_would_be_is_neither_read_nor_written(
    fleet: LendingFleet,
) -> None:
    await lent(fleet)
    await run_alone(fleet, "first")
    await until(lambda: fleet.real() == [("n0", "Running")])
    name = copy_name(ConfigReference("Secret", "default", "key", False), POOL)
    data = {"token": b64encode(b"theirs").decode()}
    await fleet.ask(OWN, "POST", f"/api/v1/namespaces/{OURS}/secrets", {"metadata": {"name": name}, "data": data})
    await put_secret(fleet, "of the pool")
    await run_alone(fleet, volumes=needs_secret())
    await until(lambda: pooled(fleet)["status"].get("phase") == "Failed")
    message = f"Secret {OURS}/{name} of cluster {OWN} is not ours, or another pool's"
    assert pooled(fleet)["status"]["message"] == message
    assert copies(fleet) == [data]


@on_fleet()
async def test_a_copy_that_is_for_another_pool_is_neither_read_nor_written(fleet: LendingFleet) -> None:
    """As where a pool's people have found a name of their own whose hash is that of another pool's Secret."""
    await lent(fleet)
    await run_alone(fleet, "first")
    await until(lambda: fleet.real() == [("n0", "Running")])
    metadata = {
        "name": copy_name(ConfigReference("Secret", "default", "key", False), POOL),
        "labels": {"spillway.io/pool": "pool-2"},
        "annotations": {"spillway.io/copy-version": "u/1"},
    }
    data = {"token": b64encode(b"of pool-2").decode()}
    await fleet.ask(OWN, "POST", f"/api/v1/namespaces/{OURS}/secrets", {"metadata": metadata, "data": data})
    await put_secret(fleet, "of the pool")
    await run_alone(fleet, volumes=needs_secret())
    await until(lambda: pooled(fleet)["status"].get("phase") == "Failed")
    assert pooled(fleet)["status"]["message"].endswith("is not ours, or another pool's")
    assert len(fleet.real()) == 1
    assert copies(fleet) == [data]


@on_fleet()
async def test_what_somebody_in_the_owner_writes_onto_a_pod_copies_nothing(fleet: LendingFleet) -> None:
    """A pod with our marks that names a Secret of the pool's is an orphan, whatever else it says."""
    await lent(fleet)
    await put_secret(fleet, "first")
    await run_alone(fleet)
    await until(lambda: fleet.real() == [("n0", "Running")])
    for number, place in enumerate(("default/one", "../secrets", "default/..")):
        forged = pod(f"forged-{number}", labels={"spillway.io/pool": POOL, "spillway.io/pool-uid": "u"}, nodeName="n0")
        forged["metadata"]["finalizers"] = ["example.com/stays"]
        forged["metadata"]["annotations"] = {"spillway.io/pool-pod": place, "spillway.io/copies": "Secret/key"}
        await fleet.ask(OWN, "POST", f"/api/v1/namespaces/{OURS}/pods", forged)
    await always(lambda: copies(fleet) == [], 60)
    assert fleet.is_open()


@on_fleet(nodes=2, pools=(POOL, "pool-2"))
async def test_pods_and_secrets_of_two_pools_with_equal_names_do_not_meet(fleet: LendingFleet) -> None:
    """Both are in one owner at once, since somebody there keeps the first pool's pod from going."""

    def real_pods() -> dict[str, dict[str, Any]]:
        """By the pool that each is of."""
        return {one["metadata"]["labels"]["spillway.io/pool"]: one for one in fleet.clusters[OWN].objects("pods", OURS)}

    def token_of(real: dict[str, Any]) -> bytes:
        copy = fleet.clusters[OWN].get_object("secrets", real["spec"]["volumes"][0]["secret"]["secretName"], OURS)
        assert copy is not None
        return b64decode(copy["data"]["token"])

    await fleet.ask(OWN, "PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"spillway.io/lend": "never"}}})
    await lent(fleet)
    for pool in (POOL, "pool-2"):
        await put_secret(fleet, f"of {pool}", pool)
        await run_alone(fleet, pool=pool, volumes=needs_secret())
    await until(lambda: fleet.real() == [("n0", "Running")])
    (first,) = real_pods().values()
    held = {"metadata": {"finalizers": ["example.com/stays"]}}
    await fleet.ask(OWN, "PATCH", f"/api/v1/namespaces/{OURS}/pods/{first['metadata']['name']}", held)
    await fleet.declare(pool="pool-2")
    await fleet.ask(OWN, "PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"spillway.io/lend": None}}})
    await until(lambda: len(real_pods()) == 2)
    assert {pool: token_of(real) for pool, real in real_pods().items()} == {
        POOL: b"of pool",
        "pool-2": b"of pool-2",
    }
    assert len({real["metadata"]["name"] for real in real_pods().values()}) == 2
    assert {real["metadata"]["annotations"]["spillway.io/pool-pod"] for real in real_pods().values()} == {"default/one"}
    assert (fleet.taint("n0"), fleet.taint("n1")) == ("recalled", "lent"), "the first one's node is nobody else's yet"


@on_fleet()
async def test_a_pod_that_cannot_run_there_is_refused_with_the_reason(fleet: LendingFleet) -> None:
    await lent(fleet)
    await run_alone(fleet, hostPID=True)
    await until(lambda: pooled(fleet)["status"].get("phase") == "Failed")
    status = pooled(fleet)["status"]
    assert (status["reason"], status["message"]) == ("NotLendable", "hostPID: shares its host's")
    assert fleet.real() == []


@on_fleet(nodes=2)
async def test_odd_pods_that_an_api_server_lets_in_keep_no_node_from_its_owner(fleet: LendingFleet) -> None:
    """They name their node, so no scheduler looks at them."""
    await lent(fleet)
    await until(lambda: fleet.is_open("n1"))
    await run_alone(fleet, nodeName=VIRTUAL, cpu="10P")
    await run_alone(fleet, "nameless", nodeName=VIRTUAL, imagePullSecrets=[{}])
    await run_alone(fleet, "other", nodeName=virtual_node_name(OWN, "n1"))
    await until(lambda: fleet.real() == [("n0", "Running"), ("n1", "Running")])
    assert pooled(fleet)["status"]["message"].startswith("resources: quantity 'cpu'")
    await asyncio.sleep(20)
    for node in ("n0", "n1"):
        await fleet.recall(node)
        await until(lambda node=node: fleet.taint(node) == "", 2 * GRACE_SECONDS)  # type: ignore[misc]


@on_fleet()
async def test_a_controller_whose_pods_are_refused_does_not_make_them_without_end(fleet: LendingFleet) -> None:
    await lent(fleet)
    await fleet.run_in_pool(replicas=2, hostPID=True)
    await asyncio.sleep(65)
    phases = [phase for _, phase in fleet.pooled()]
    assert (phases.count("Pending"), phases.count("Running")) == (2, 0)
    assert 6 <= phases.count("Failed") <= 8, "one in ten seconds"
    waiting = [
        one["status"]["containerStatuses"][0]["state"]["waiting"]
        for one in fleet.clusters[POOL].objects("pods")
        if one["status"]["phase"] == "Pending"
    ]
    assert waiting == [{"reason": "NotLendable", "message": "hostPID: shares its host's"}] * 2


@on_fleet()
async def test_a_pod_that_the_owner_refuses_says_why(fleet: LendingFleet) -> None:
    await lent(fleet)
    await run_alone(fleet, "first")
    await until(lambda: fleet.real() == [("n0", "Running")])
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}
    await fleet.ask(OWN, "POST", f"/api/v1/namespaces/{OURS}/resourcequotas", quota)
    await run_alone(fleet, "second")
    await until(lambda: pooled(fleet, "second")["status"].get("phase") == "Failed")
    status = pooled(fleet, "second")["status"]
    assert status["reason"] == "RefusedByOwner"
    assert "exceeded quota" in status["message"]


@on_fleet()
async def test_a_real_pod_that_somebody_deletes_is_not_started_again(fleet: LendingFleet) -> None:
    await lent(fleet)
    await run_alone(fleet)
    await until(lambda: pooled(fleet)["status"].get("phase") == "Running")
    (real,) = fleet.clusters[OWN].objects("pods", OURS)
    await fleet.ask(OWN, "DELETE", f"/api/v1/namespaces/{OURS}/pods/{real['metadata']['name']}")
    await until(lambda: pooled(fleet)["status"]["phase"] == "Failed")
    assert pooled(fleet)["status"]["reason"] == "Gone"
    await always(lambda: fleet.real() == [], 30)


@on_fleet()
async def test_a_pool_pod_that_is_deleted_is_let_go_when_its_real_pod_is_gone(fleet: LendingFleet) -> None:
    await lent(fleet)
    await run_alone(fleet)
    await until(lambda: pooled(fleet)["status"].get("phase") == "Running")
    await fleet.ask(POOL, "DELETE", "/api/v1/namespaces/default/pods/one")
    await until(lambda: fleet.real() == [])
    await until(lambda: fleet.pooled() == [])
    assert (fleet.taint(), fleet.is_open()) == ("lent", True)


@on_fleet()
async def test_a_recall_shortens_the_grace_of_a_pod_that_leaves_already_and_forces_it_then(fleet: LendingFleet) -> None:
    await lent(fleet)
    await run_alone(fleet, terminationGracePeriodSeconds=3600)
    await until(lambda: pooled(fleet)["status"].get("phase") == "Running")
    (real,) = fleet.clusters[OWN].objects("pods", OURS)
    place = f"/api/v1/namespaces/{OURS}/pods/{real['metadata']['name']}"
    await fleet.ask(OWN, "PATCH", place, {"metadata": {"finalizers": ["example.com/slow"]}})
    await fleet.ask(POOL, "DELETE", "/api/v1/namespaces/default/pods/one")
    await until(lambda: real_graces(fleet) == [3600])
    await always(lambda: real_graces(fleet) == [3600], 60)
    await fleet.recall()
    await until(lambda: real_graces(fleet) == [GRACE_SECONDS])
    await until(lambda: real_graces(fleet) == [0])
    await fleet.ask(OWN, "PATCH", place, {"metadata": {"finalizers": None}})
    await until(lambda: fleet.taint() == "")


@on_fleet()
async def test_what_a_finalizer_keeps_in_the_owner_is_deleted_by_force_after_longer_and_longer_pauses(
    fleet: LendingFleet,
) -> None:
    await lent(fleet)
    await run_alone(fleet)
    await until(lambda: pooled(fleet)["status"].get("phase") == "Running")
    (real,) = fleet.clusters[OWN].objects("pods", OURS)
    place = f"/api/v1/namespaces/{OURS}/pods/{real['metadata']['name']}"
    await fleet.ask(OWN, "PATCH", place, {"metadata": {"finalizers": ["example.com/slow"]}})
    await fleet.recall()
    await until(lambda: real_graces(fleet) == [0])
    await asyncio.sleep(1000)
    asked = fleet.asked[OWN, "DELETE", place]
    assert 2 <= asked <= 1 + 9, "with its grace; then by force, and after 5, 10, 20, … 300 seconds"
    assert fleet.taint() == "recalled"
    await fleet.ask(OWN, "PATCH", place, {"metadata": {"finalizers": None}})
    assert await until(lambda: fleet.taint() == "") < 10


def real_graces(fleet: LendingFleet) -> list[int | None]:
    return [one["metadata"].get("deletionGracePeriodSeconds") for one in fleet.clusters[OWN].objects("pods", OURS)]


@on_fleet()
async def test_a_pool_pod_that_a_finalizer_keeps_is_let_go_once_and_holds_no_node(fleet: LendingFleet) -> None:
    await lent(fleet)
    await run_alone(fleet)
    await until(lambda: pooled(fleet)["status"].get("phase") == "Running")
    place = "/api/v1/namespaces/default/pods/one"
    await fleet.ask(POOL, "PATCH", place, {"metadata": {"finalizers": ["example.com/hold"]}})
    await fleet.recall()
    await until(lambda: fleet.taint() == "")
    assert (fleet.real(), len(fleet.pooled()), fleet.virtual()) == ([], 1, None)
    assert fleet.asked[POOL, "DELETE", place] == 2, "one asks it to go, one lets it go"
    await fleet.ask(POOL, "PATCH", place, {"metadata": {"finalizers": None}})
    await until(lambda: fleet.pooled() == [])


@on_fleet()
async def test_a_real_pod_without_a_pool_pod_is_deleted(fleet: LendingFleet) -> None:
    """Of a bridge that created it late, say."""
    await lent(fleet)
    await run_alone(fleet)
    await until(lambda: pooled(fleet)["status"].get("phase") == "Running")
    (real,) = fleet.clusters[OWN].objects("pods", OURS)
    labels = {**real["metadata"]["labels"], "spillway.io/pool-uid": "of-nobody"}
    orphan = pod("orphan", labels=labels, nodeName="n0", nodeSelector={"spillway.io/lending": "lent"})
    await fleet.ask(OWN, "POST", f"/api/v1/namespaces/{OURS}/pods", orphan)
    await until(lambda: len(fleet.real()) == 2)
    await until(lambda: len(fleet.real()) == 1)
    assert fleet.clusters[OWN].get_object("pods", "orphan", OURS) is None


@on_fleet()
async def test_a_real_pod_without_a_pool_pod_keeps_its_own_grace(fleet: LendingFleet) -> None:
    await lent(fleet)
    await run_alone(fleet, terminationGracePeriodSeconds=3)
    await until(lambda: pooled(fleet)["status"].get("phase") == "Running")
    (real,) = fleet.clusters[OWN].objects("pods", OURS)
    place = f"/api/v1/namespaces/{OURS}/pods/{real['metadata']['name']}"
    await fleet.ask(OWN, "PATCH", place, {"metadata": {"finalizers": ["example.com/slow"]}})
    await fleet.ask(POOL, "DELETE", "/api/v1/namespaces/default/pods/one", {"gracePeriodSeconds": 0})
    await until(lambda: real_graces(fleet) != [None])
    assert real_graces(fleet) == [3]


@on_fleet()
async def test_a_job_of_the_pool_completes_and_its_end_stays(fleet: LendingFleet) -> None:
    await lent(fleet)
    manifest = pod("one", tolerations=TOLERATES_LOANS, restartPolicy="Never")
    manifest["metadata"]["annotations"] = {"sim/run-seconds": "5"}
    await fleet.ask(POOL, "POST", "/api/v1/namespaces/default/pods", manifest)
    await until(lambda: pooled(fleet)["status"].get("phase") == "Succeeded")
    await always(lambda: pooled(fleet)["status"]["phase"] == "Succeeded", 20)
    await fleet.recall()
    await until(lambda: fleet.taint() == "")
    assert pooled(fleet)["status"]["phase"] == "Succeeded"


@on_fleet()
async def test_the_log_tells_what_real_pods_hold_and_nothing_of_what_is_over(fleet: LendingFleet) -> None:
    """Of what waits for its Secret nothing is held yet; and the owner adds a core to each pod."""
    fleet.clusters[OWN].inject_sidecar(SidecarSpec(cpu_millis=1000, memory_bytes=0))
    await lent(fleet)
    over = pod("over", cpu="2", tolerations=TOLERATES_LOANS, restartPolicy="Never")
    over["metadata"]["annotations"] = {"sim/run-seconds": "5"}
    await fleet.ask(POOL, "POST", "/api/v1/namespaces/default/pods", over)
    await run_alone(fleet, "waits", cpu="2", volumes=needs_secret())
    await run_alone(fleet, "runs", cpu="2")

    def told() -> dict[str, dict[str, int]]:
        return {one.name: dict(one.requests) for one in fleet.lent().pods}

    def held(name: str) -> tuple[int, int]:
        return told()[name].get("cpu", 0), told()[name].get("pods", 0)

    await until(lambda: pooled(fleet, "over")["status"].get("phase") == "Succeeded")
    await until(lambda: set(told()) == {"runs", "waits"})
    assert (held("runs"), held("waits")) == ((3000, 1), (0, 0))


@on_fleet()
async def test_virtual_nodes_have_leases_that_are_renewed(fleet: LendingFleet) -> None:
    await lent(fleet)

    def renewed() -> str:
        found = fleet.clusters[POOL].get_object("leases", VIRTUAL, "kube-node-lease")
        return str(found["spec"]["renewTime"]) if found else ""

    await until(lambda: renewed() != "")
    first = renewed()
    await until(lambda: renewed() != first, 15)
    await fleet.kill()
    await asyncio.sleep(11)
    last = renewed()
    await always(lambda: renewed() == last, 30)


@on_fleet()
async def test_what_a_daemon_takes_is_not_offered(fleet: LendingFleet) -> None:
    await lent(fleet)
    daemon = pod("daemon", cpu="3", nodeName="n0")
    daemon["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}
    ]
    await fleet.ask(OWN, "POST", "/api/v1/namespaces/kube-system/pods", daemon)

    def offers() -> str:
        found = fleet.virtual()
        return str(found["status"]["allocatable"]["cpu"]) if found else ""

    await until(lambda: offers() == "5000m")
    await until(lambda: dict(fleet.lent().offered)["cpu"] == 5000)
    assert fleet.taint() == "lent"


def offered_cpu(fleet: LendingFleet) -> str:
    return str((fleet.virtual() or {})["status"]["allocatable"]["cpu"])


@on_fleet()
async def test_what_an_owner_adds_to_pods_is_not_offered_and_no_more_are_bound_there_than_fit(
    fleet: LendingFleet,
) -> None:
    """A sidecar of a core in each: of 8 cores two pods of 2 take 6, and of those that were bound before, two fail."""
    fleet.clusters[OWN].inject_sidecar(SidecarSpec(cpu_millis=1000, memory_bytes=0))
    await lent(fleet)
    await fleet.run_in_pool(replicas=6)
    await until(lambda: fleet.real().count(("n0", "Running")) == 2)
    await asyncio.sleep(60)
    refused = [one["status"] for one in fleet.clusters[POOL].objects("pods") if one["status"]["phase"] == "Failed"]
    assert [one["reason"] for one in refused] == ["OutOfcpu"] * 2
    assert refused[0]["message"] == (
        "Pod was rejected: Node didn't have enough resource: cpu; "
        "the cluster where it was to run adds to what it asks for: cpu 1000m"
    )
    await always(lambda: [phase for _, phase in fleet.pooled()].count("Failed") == 2, 120)
    await run_alone(fleet, "small", cpu="1")
    await until(lambda: fleet.real().count(("n0", "Running")) == 3)


@on_fleet()
async def test_what_a_node_refused_is_offered_again_after_a_while(fleet: LendingFleet) -> None:
    """What others are refused for is theirs alone: the kind may not come again."""
    await fleet.declare()
    await fleet.start(refused_size_seconds=60.0)
    await until(fleet.is_open)
    fleet.clusters[OWN].inject_sidecar(SidecarSpec(cpu_millis=4000, memory_bytes=0))
    await run_alone(fleet, cpu="6")
    await until(lambda: pooled(fleet)["status"]["phase"] == "Failed")
    await until(lambda: offered_cpu(fleet) == "5999m")
    await always(lambda: offered_cpu(fleet) == "5999m", 50)
    await until(lambda: offered_cpu(fleet) == "8000m", 20)


@on_fleet()
async def test_a_node_that_refuses_whatever_it_is_asked_is_asked_once_in_ten_seconds(fleet: LendingFleet) -> None:
    """For a reason that no size of a pod tells: here the pods ask for nothing, and what is added fits no more."""
    fleet.clusters[OWN].inject_sidecar(SidecarSpec(cpu_millis=5000, memory_bytes=0))
    await lent(fleet)
    await fleet.run_in_pool(replicas=2, cpu="0")
    await asyncio.sleep(65)
    phases = [phase for _, phase in fleet.pooled()]
    assert phases.count("Running") == 1
    assert 5 <= phases.count("Failed") <= 8
    (waiting,) = [one["status"] for one in fleet.clusters[POOL].objects("pods") if one["status"]["phase"] == "Pending"]
    assert waiting["containerStatuses"][0]["state"]["waiting"]["reason"] == "RefusedByNode"


@on_fleet(nodes=20)
async def test_a_pod_that_no_node_has_room_for_fails_once_in_ten_seconds_however_many_nodes_there_are(
    fleet: LendingFleet,
) -> None:
    fleet.clusters[OWN].inject_sidecar(SidecarSpec(cpu_millis=4000, memory_bytes=0))
    await fleet.declare()
    await fleet.start()
    await until(lambda: all(fleet.is_open(f"n{number}") for number in range(20)))
    await fleet.run_in_pool(replicas=1, cpu="6")
    await asyncio.sleep(95)
    phases = [phase for _, phase in fleet.pooled()]
    assert 7 <= phases.count("Failed") <= 10
    (waiting,) = [one["status"] for one in fleet.clusters[POOL].objects("pods") if one["status"]["phase"] == "Pending"]
    assert waiting["containerStatuses"][0]["state"]["waiting"]["reason"] == "RefusedByNode"


@on_fleet()
async def test_what_a_real_pod_grows_by_where_it_runs_is_not_offered(fleet: LendingFleet) -> None:
    await lent(fleet)
    await run_alone(fleet, cpu="2")
    await until(lambda: fleet.real() == [("n0", "Running")])
    (real,) = fleet.clusters[OWN].objects("pods", OURS)
    containers = [{**real["spec"]["containers"][0], "resources": {"requests": {"cpu": "5"}}}]
    # As the subresource `resize` does it, which the simulation does not serve.
    fleet.clusters[OWN].machine.world.store.put_object(
        "pods", {**real, "spec": {**real["spec"], "containers": containers}}
    )
    await until(lambda: offered_cpu(fleet) == "5000m")
    await run_alone(fleet, "two", cpu="4")
    await always(lambda: pooled(fleet, "two")["spec"].get("nodeName", "") == "", 30)


@on_fleet()
async def test_a_pool_pod_that_is_resized_makes_no_room_that_is_not_there(fleet: LendingFleet) -> None:
    """Its real pod stays as large as it was."""
    await lent(fleet)
    await run_alone(fleet, cpu="7")
    await until(lambda: fleet.real() == [("n0", "Running")])
    containers = [{**pooled(fleet)["spec"]["containers"][0], "resources": {"requests": {"cpu": "1"}}}]
    resized = {**pooled(fleet), "spec": {**pooled(fleet)["spec"], "containers": containers}}
    fleet.clusters[POOL].machine.world.store.put_object("pods", resized)
    await until(lambda: offered_cpu(fleet) == "2000m")

    def told() -> list[str]:
        conditions = pooled(fleet)["status"]["conditions"]
        return [one["reason"] for one in conditions if one["type"] == "PodResizePending"]

    await until(lambda: told() == ["Infeasible"])
    labels = {"metadata": {"labels": {"stage": "two"}}}
    await fleet.ask(POOL, "PATCH", "/api/v1/namespaces/default/pods/one", labels)
    await until(lambda: fleet.clusters[OWN].objects("pods", OURS)[0]["metadata"]["labels"].get("stage") == "two")
    await always(lambda: told() == ["Infeasible"], 10)
    await run_alone(fleet, "two", cpu="5")
    await always(lambda: pooled(fleet, "two")["spec"].get("nodeName", "") == "", 30)


@on_fleet()
async def test_a_real_pod_whose_pool_pod_is_gone_by_force_holds_its_place_until_it_is_gone(fleet: LendingFleet) -> None:
    await lent(fleet)
    manifest = pod("one", cpu="6", tolerations=TOLERATES_LOANS)
    manifest["metadata"]["annotations"] = {"sim/stop-seconds": "20"}
    await fleet.ask(POOL, "POST", "/api/v1/namespaces/default/pods", manifest)
    await until(lambda: pooled(fleet)["status"].get("phase") == "Running")
    await fleet.ask(POOL, "DELETE", "/api/v1/namespaces/default/pods/one", {"gracePeriodSeconds": 0})
    await until(lambda: offered_cpu(fleet) == "2000m")
    await until(lambda: fleet.real() == [])
    await until(lambda: offered_cpu(fleet) == "8000m")


@on_fleet()
async def test_what_people_change_of_a_pool_pod_reaches_its_real_pod(fleet: LendingFleet) -> None:
    """And what the owner's admission has made of it stays: it is nothing that the pool has changed."""
    await fleet.declare()
    await fleet.start()
    await until(fleet.is_open)
    await fleet.run_in_pool(replicas=1)
    await until(lambda: fleet.pooled() == [(VIRTUAL, "Running")])
    name = fleet.clusters[POOL].objects("pods")[0]["metadata"]["name"]

    def real() -> dict[str, Any]:
        found: dict[str, Any] = fleet.clusters[OWN].objects("pods")[0]
        return found

    place, uid = real()["metadata"], real()["metadata"]["uid"]
    path = f"/api/v1/namespaces/{place['namespace']}/pods/{place['name']}"
    mirrored = [{**real()["spec"]["containers"][0], "image": "mirror.own/app:1"}]
    await fleet.ask(OWN, "PATCH", path, {"spec": {"containers": mirrored}, "metadata": {"labels": {"team": "own"}}})
    in_pool = f"/api/v1/namespaces/default/pods/{name}"
    await fleet.ask(POOL, "PATCH", in_pool, {"metadata": {"labels": {"stage": "two"}, "annotations": {"note": "new"}}})
    await until(lambda: real()["metadata"]["labels"].get("stage") == "two", 5)
    assert (real()["metadata"]["labels"]["team"], real()["metadata"]["annotations"]["note"]) == ("own", "new")
    assert real()["spec"]["containers"] == mirrored
    changed = [{**fleet.clusters[POOL].objects("pods")[0]["spec"]["containers"][0], "image": "app:2"}]
    await fleet.ask(POOL, "PATCH", in_pool, {"spec": {"containers": changed, "activeDeadlineSeconds": 60}})
    await until(lambda: real()["spec"]["containers"][0]["image"] == "app:2", 5)
    assert (real()["spec"]["activeDeadlineSeconds"], real()["metadata"]["uid"]) == (60, uid)


@on_fleet()
async def test_a_change_that_the_owner_refuses_is_told_until_it_is_made(fleet: LendingFleet) -> None:
    await lent(fleet)
    await run_alone(fleet)
    await until(lambda: pooled(fleet)["status"].get("phase") == "Running")

    def told() -> list[tuple[str, bool]]:
        conditions = pooled(fleet)["status"]["conditions"]
        return [(one["reason"], "pods" in one["message"]) for one in conditions if one["type"] == NOT_UPDATED]

    fleet.clusters[OWN].set_faults(Faults(forbidden=("PATCH pods",)))
    labels = {"metadata": {"labels": {"stage": "two"}}}
    await fleet.ask(POOL, "PATCH", "/api/v1/namespaces/default/pods/one", labels)
    await until(lambda: told() == [("RefusedByOwner", True)])
    await asyncio.sleep(20)
    fleet.asked.clear()
    await always(lambda: told() == [("RefusedByOwner", True)], 60)
    writes = [key for key in fleet.asked if key[0] == POOL and key[1] == "PATCH" and "/pods/" in key[2]]
    assert not writes, "said once"
    fleet.clusters[OWN].set_faults(Faults())
    await until(lambda: told() == [])
    (real,) = fleet.clusters[OWN].objects("pods", OURS)
    assert real["metadata"]["labels"]["stage"] == "two"


@on_fleet(nodes=2)
async def test_the_use_of_each_node_is_told_once_an_hour_also_while_lending_is_paused(fleet: LendingFleet) -> None:
    """Measured where metrics.k8s.io answers."""
    await fleet.ask(OWN, "POST", "/api/v1/namespaces/default/pods", pod("web", cpu="2", nodeName="n0"))
    fleet.clusters[OWN].set_pod_usage("default", "web", {"cpu": 1500, "memory": 1 << 30})
    await fleet.declare(paused=True)
    await fleet.start()
    told: dict[str, NodeUsed] = {}

    async def listen() -> None:
        async with LocalBus(fleet.broker, FLEET, "reader").follow_topics((NODE_USAGE,)) as feed:
            async for batch in feed:
                told.update({one.event.node: one.event for one in batch.records if isinstance(one.event, NodeUsed)})

    listening = asyncio.create_task(listen())
    await until(lambda: len(told) == 2, 300)
    listening.cancel()
    assert (told["n0"].pods_max, dict(told["n0"].requested_max)["cpu"], told["n0"].idle_ms) == (1, 2000, 0)
    assert (told["n1"].pods_max, told["n1"].idle_ms) == (0, told["n1"].until_ms - told["n1"].from_ms)
    assert told["n0"].used_max == (("cpu", 1500), ("memory", 1 << 30))
    assert told["n1"].used_max == (("cpu", 0), ("memory", 0))
    assert (fleet.taint("n0"), fleet.taint("n1")) == ("", "")


@on_fleet()
async def test_a_budget_that_changes_is_told_though_its_pods_do_not(fleet: LendingFleet) -> None:
    """Whole readings alone come by it, every `resync_seconds`."""
    await fleet.declare()
    await fleet.start(resync_seconds=20.0)
    await until(fleet.is_open)
    await run_alone(fleet, labels={"app": "one"})
    await until(lambda: told_budgets(fleet) == [()] and fleet.real() == [("n0", "Running")])
    path, selector = "/apis/policy/v1/namespaces/default/poddisruptionbudgets", {"matchLabels": {"app": "one"}}
    await fleet.ask(POOL, "POST", path, {"metadata": {"name": "few"}, "spec": {"selector": selector}})
    await until(lambda: told_budgets(fleet) == [(("default/few", 0),)])
    before = pooled(fleet)["metadata"]["resourceVersion"]
    await fleet.ask(POOL, "PATCH", f"{path}/few/status", {"status": {"disruptionsAllowed": 3}})
    await until(lambda: told_budgets(fleet) == [(("default/few", 3),)])
    assert pooled(fleet)["metadata"]["resourceVersion"] == before


def told_budgets(fleet: LendingFleet) -> list[Any]:
    said = fleet.lent()
    return [one.budgets for one in said.pods] if said is not None else []
