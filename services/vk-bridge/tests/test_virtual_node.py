"""A virtual node shows what is really free on one real node, so that no sum of many can fool the pool's scheduler."""

import json
import math
import random
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from sim.cluster import SimCluster
from sim.manifests import pod
from sim.rest import SimTransport
from sim.settings import Settings
from spillway.kubernetes import objects
from spillway.lending_marks import POOL, POOL_TAINT, POOL_UID
from spillway.model import Generation
from vk_bridge.core.node.virtual_node import (
    VirtualNodeSpec,
    amounts_taken_by_others,
    has_our_endpoint,
    is_current,
    keeps_endpoint,
    make_virtual_node,
    offered_amounts,
    operating_system_of_node,
    read_virtual_node,
)

STANDING = VirtualNodeSpec("own-1", Generation(7, 1), "idle", 0.5, "10.0.0.9", 10250)
REAL: dict[str, Any] = {
    "metadata": {
        "name": "n1",
        "labels": {
            "kubernetes.io/hostname": "n1",
            "kubernetes.io/arch": "arm64",
            "topology.kubernetes.io/zone": "z1",
            "spillway.io/lending": "lent",
        },
        "annotations": {"theirs": "x"},
    },
    "spec": {
        "taints": [
            {"key": "spillway.io/lending", "value": "lent", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
            {"key": "spillway.io/lent", "value": "by a person", "effect": "NoSchedule"},
            {"key": "gpu", "value": "yes", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"},
        ]
    },
    "status": {
        "allocatable": {"cpu": "3920m", "memory": "8Gi", "pods": "110", "example.com/gpu": "2", "strange": "?"},
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": "2026-01-01T00:00:00Z"},
            {"type": "DiskPressure", "status": "False", "reason": "KubeletHasNoDiskPressure"},
            {"type": "Theirs", "status": "True"},
        ],
        "nodeInfo": {"architecture": "arm64", "kubeletVersion": "v1.36.1", "machineID": "secret"},
    },
}


def decode_pod(manifest: dict[str, Any], labels: dict[str, str] | None = None, phase: str = "Running") -> objects.Pod:
    metadata = {**manifest["metadata"], "namespace": "spillway-lent-shop", "labels": labels or {}}
    whole = {**manifest, "metadata": metadata, "status": {"phase": phase}}
    return objects.object_decoder(objects.PODS).decode(json.dumps(whole))


def test_what_is_shown_of_a_real_node() -> None:
    daemon = decode_pod(pod("daemon", cpu="500m"))
    ours = decode_pod(pod("ours", cpu="1"), {POOL: "pool-id", POOL_UID: "u"})
    other_pools = decode_pod(pod("another pool's", cpu="20m"), {POOL: "other", POOL_UID: "u"})
    ended = decode_pod(pod("ended", cpu="2"), phase="Succeeded")
    amounts = offered_amounts(REAL, amounts_taken_by_others([daemon, ours, other_pools, ended], "pool-id"))
    made = make_virtual_node(REAL, amounts, STANDING, is_open=True)
    assert made["metadata"] == {
        "name": "own-1.n1",
        "labels": {
            "kubernetes.io/arch": "arm64",
            "topology.kubernetes.io/zone": "z1",
            "kubernetes.io/hostname": "own-1.n1",
            "spillway.io/lent-cluster": "own-1",
            "spillway.io/lent-node": "n1",
            "spillway.io/supply-class": "idle",
            "type": "virtual-kubelet",
            "node.kubernetes.io/exclude-from-external-load-balancers": "true",
        },
        "annotations": {
            "spillway.io/lent-node": "n1",
            "spillway.io/loan": "7.1",
            "spillway.io/cost-per-hour": "0.5",
        },
    }
    assert made["spec"] == {
        "unschedulable": False,
        "taints": [
            {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
            {"key": POOL_TAINT, "value": "idle", "effect": "NoSchedule"},
        ],
    }
    status = made["status"]
    assert status["allocatable"] == status["capacity"]
    assert status["allocatable"] == {
        "cpu": "3400m",
        "example.com/gpu": "2",
        "memory": str((8 << 30) - (128 << 20)),
        "pods": "108",
        "strange": "0",
    }
    assert status["conditions"] == REAL["status"]["conditions"][:-1]
    assert status["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}
    assert status["nodeInfo"]["architecture"] == "arm64"
    assert "machineID" not in status["nodeInfo"]


def test_a_closed_one_takes_no_pod_whatever_it_tolerates() -> None:
    made = make_virtual_node(REAL, offered_amounts(REAL, {}), STANDING, is_open=False)
    assert made["spec"]["unschedulable"]
    assert set(made["status"]["allocatable"].values()) == {"0"}
    assert not read_virtual_node(_node_as_read(made), "own-1", "n1", current=True).open


def test_a_cordoned_node_is_open_and_unschedulable() -> None:
    """Its pods run on; it is not one that closed."""
    cordoned = deepcopy(REAL)
    cordoned["spec"]["unschedulable"] = True
    made = make_virtual_node(cordoned, offered_amounts(cordoned, {}), STANDING, is_open=True)
    assert made["spec"]["unschedulable"]
    assert read_virtual_node(_node_as_read(made), "own-1", "n1", current=True).open


def test_others_that_hold_more_than_there_is_leave_nothing() -> None:
    assert offered_amounts(REAL, {"cpu": 9999})["cpu"] == 0


def test_beside_a_pod_of_which_nobody_knows_what_it_holds_nothing_is_offered() -> None:
    unknown = decode_pod(pod("daemon", cpu="10P"))
    assert set(offered_amounts(REAL, amounts_taken_by_others([unknown], "pool-id")).values()) == {0}


def test_a_node_of_that_name_that_stands_for_another_is_not_ours() -> None:
    made = _node_as_read(make_virtual_node(REAL, offered_amounts(REAL, {}), STANDING, is_open=True))
    assert read_virtual_node(made, "own-1", "n1", current=True).ours
    assert not read_virtual_node(made, "own-2", "n1", current=True).ours
    assert not read_virtual_node(made, "own-1", "n2", current=True).ours


CHANGES = {
    "nothing": (lambda node: None, True),
    "the pool's own taint": (
        lambda node: node["spec"]["taints"].append({"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}),
        True,
    ),
    "the pool's own label": (lambda node: node["metadata"]["labels"].update({"theirs": "x"}), True),
    "a heartbeat of a moment ago": (
        lambda node: node["status"]["conditions"][0].update({"lastHeartbeatTime": "2025-12-31T23:56:01Z"}),
        True,
    ),
    "a heartbeat of as long ago as kubelets tell one": (
        lambda node: node["status"]["conditions"][0].update({"lastHeartbeatTime": "2025-12-31T23:55:00Z"}),
        False,
    ),
    "no heartbeat": (lambda node: node["status"]["conditions"][0].update({"lastHeartbeatTime": None}), False),
    "pressure that is over": (
        lambda node: node["status"]["conditions"][1].update({"status": "True", "reason": "KubeletHasDiskPressure"}),
        False,
    ),
    "given up by the pool": (
        lambda node: node["status"]["conditions"][0].update({"status": "Unknown", "reason": "NodeStatusUnknown"}),
        False,
    ),
    "a taint taken off": (lambda node: node["spec"]["taints"].pop(), False),
    "a label changed": (lambda node: node["metadata"]["labels"].update({"kubernetes.io/arch": "amd64"}), False),
    "a label of ours too many": (lambda node: node["metadata"]["labels"].update({"spillway.io/x": "y"}), False),
    "the same size, as a server writes it": (
        lambda node: node["status"]["allocatable"].update(
            {"cpu": str(int(node["status"]["allocatable"]["cpu"][:-1]) / 1000)}
        ),
        True,
    ),
    "a size that cannot be read": (lambda node: node["status"]["allocatable"].update({"cpu": "much"}), False),
    "another size": (lambda node: node["status"]["allocatable"].update({"cpu": "1"}), False),
    "cordoned in the pool": (lambda node: node["spec"].update({"unschedulable": True}), False),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_is_not_as_it_should_be_is_seen(what: str) -> None:
    wanted = make_virtual_node(REAL, offered_amounts(REAL, {}), STANDING, is_open=True)
    actual = deepcopy(wanted)
    change, current = CHANGES[what]
    change(actual)
    assert is_current(actual, wanted, heartbeat_seconds=240) == current


def test_a_node_that_names_another_bridge_is_seen() -> None:
    shown = make_virtual_node(REAL, offered_amounts(REAL, {}), STANDING, is_open=False)
    assert has_our_endpoint(shown, STANDING)
    for other in ({"address": "10.0.0.10"}, {"port": 10251}):
        assert not has_our_endpoint(shown, replace(STANDING, **other))


@pytest.mark.parametrize(
    ("other", "shown_seconds", "keeps"),
    [
        pytest.param({}, math.inf, True, id="it names this bridge"),
        pytest.param({"port": 10251}, 30.0, False, id="another bridge, and ours was written long ago"),
        pytest.param({"port": 10251}, math.inf, False, id="another bridge, and ours never was"),
        pytest.param({"port": 10251}, 29.0, True, id="another bridge right after ours: the two do not fight"),
    ],
)
def test_when_a_virtual_node_gets_a_new_endpoint(other: dict[str, Any], shown_seconds: float, keeps: bool) -> None:
    shown = make_virtual_node(REAL, offered_amounts(REAL, {}), replace(STANDING, **other), is_open=True)
    assert keeps_endpoint(shown, STANDING, shown_seconds, 30.0) is keeps


def test_the_operating_system_of_a_node_is_the_one_that_its_kubelet_tells() -> None:
    assert operating_system_of_node({"status": {"nodeInfo": {"operatingSystem": "linux"}}}) == "linux"
    assert [operating_system_of_node(one) for one in (None, {}, {"status": {"nodeInfo": None}})] == [""] * 3


def test_without_a_kubelet_api_no_address_is_named() -> None:
    """Else the pool's API server asks its default port there: where it is 127.0.0.1, the kubelet of its own machine."""
    silent = replace(STANDING, port=0)
    shown = make_virtual_node(REAL, offered_amounts(REAL, {}), silent, is_open=False)
    assert shown["status"]["addresses"] == []
    del shown["status"]["addresses"]  # As it is read: an API server keeps no empty list.
    assert has_our_endpoint(shown, silent)
    assert not has_our_endpoint(shown, STANDING)
    assert not has_our_endpoint(make_virtual_node(REAL, offered_amounts(REAL, {}), STANDING, is_open=False), silent)


def test_pressure_of_the_real_node_is_shown() -> None:
    """Its pool puts no more pods there, as its owner would not."""
    conditions = [{"type": f"{what}Pressure", "status": "True"} for what in ("Memory", "Disk", "PID")]
    pressed = {**REAL, "status": {**REAL["status"], "conditions": [*conditions, {"type": "Strange"}]}}
    assert (
        make_virtual_node(pressed, offered_amounts(pressed, {}), STANDING, is_open=True)["status"]["conditions"]
        == conditions
    )


def _node_as_read(node: dict[str, Any]) -> dict[str, Any]:
    return {**node, "metadata": {**node["metadata"], "uid": "u", "resourceVersion": "1"}}


# ── liqo#2712: one virtual node that shows the sum of a cluster, against one for each node ──────────────────────────


class Pool:
    """A pool cluster with its own scheduler, in which nothing else happens."""

    def __init__(self) -> None:
        self.now = 0.0
        self.cluster = SimCluster("pool", Settings(score="random"), clock=lambda: self.now)
        self.transport = SimTransport(self.cluster)

    async def send_request(self, method: str, path: str, body: Any = None, **params: str) -> None:
        data = None if body is None else json.dumps(body).encode()
        answer = await self.transport.request(method, path, params, data)
        assert answer.status < 300, answer.body

    async def add_node(self, node: dict[str, Any]) -> None:
        await self.send_request("POST", "/api/v1/nodes", node)

    async def submit_pod(self, name: str, cores: int) -> None:
        tolerations = [{"key": POOL_TAINT, "operator": "Exists"}]
        await self.send_request(
            "POST", "/api/v1/namespaces/default/pods", pod(name, cpu=str(cores), tolerations=tolerations)
        )

    async def delete_pod(self, name: str) -> None:
        await self.send_request("DELETE", f"/api/v1/namespaces/default/pods/{name}")

    def run_until_settled(self) -> None:
        while True:
            due = self.cluster.control_plane.run_step(self.now)
            if due is None:
                return
            self.now = max(self.now, due)

    def cores_by_node(self) -> dict[str, list[int]]:
        """Of bound pods by virtual node; of those that wait under no name."""
        found: dict[str, list[int]] = {}
        for one in self.cluster.objects("pods"):
            cores = int(one["spec"]["containers"][0]["resources"]["requests"]["cpu"])
            found.setdefault(one["spec"].get("nodeName", ""), []).append(cores)
        return found


def real_node(name: str, cores: int) -> dict[str, Any]:
    room = {"cpu": str(cores), "memory": "512Gi", "pods": "110"}
    status = {"allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name, "labels": {}}, "spec": {}, "status": status}


def count_misplaced_pods(pool: Pool, free_cores: dict[str, int]) -> tuple[int, int]:
    """Pods that were accepted and fit nowhere in truth; pods that were refused although a node has room for them.

    free_cores: of each real node, by its virtual node's name.
    """
    bound = pool.cores_by_node()
    waiting = bound.pop("", [])
    left = {name: cores - sum(bound.get(name, [])) for name, cores in free_cores.items()}
    too_many = sum(1 for cores in left.values() if cores < 0)
    elsewhere = sum(len(pods) for name, pods in bound.items() if name not in free_cores)
    return too_many + elsewhere, sum(1 for cores in waiting if any(room >= cores for room in left.values()))


@pytest.mark.parametrize("seed", range(4))
async def test_scattered_room_accepts_nothing_impossible_and_refuses_nothing_possible(seed: int) -> None:
    """50 pods of 20 cores, which no node has, small ones beside them; then sizes that change, as pods come and go."""
    chance = random.Random(seed)
    pool, free_cores = Pool(), {}
    for number in range(40):
        node, daemons = real_node(f"n{number}", chance.choice([4, 8, 16])), chance.randint(0, 2)
        amounts = offered_amounts(node, {"cpu": daemons * 1000, "pods": daemons})
        made = make_virtual_node(node, amounts, STANDING, is_open=True)
        free_cores[made["metadata"]["name"]] = amounts["cpu"] // 1000
        await pool.add_node(made)
    for number in range(50):
        await pool.submit_pod(f"big-{number}", 20)
    for number in range(60):
        await pool.submit_pod(f"small-{number}", chance.choice([1, 2, 3]))
    pool.run_until_settled()
    assert count_misplaced_pods(pool, free_cores) == (0, 0)
    assert len(pool.cores_by_node()[""]) >= 50, "the big ones wait"
    assert sum(map(len, pool.cores_by_node().values())) == 110
    for phase in range(6):
        size = chance.choice([1, 2, 5, 8, 14])
        for one in pool.cluster.objects("pods"):
            if chance.random() < 0.4:
                await pool.delete_pod(one["metadata"]["name"])
        for number in range(40):
            await pool.submit_pod(f"phase-{phase}-{number}", size)
        pool.run_until_settled()
        assert count_misplaced_pods(pool, free_cores) == (0, 0)


async def test_one_node_that_shows_the_sum_does_both() -> None:
    """What the test above would find in a virtual node of the usual kind; it is the same judge."""
    pool = Pool()
    reals = {f"own-1.n{number}": 8 for number in range(20)}
    whole = make_virtual_node(
        real_node("all", 8 * 20), offered_amounts(real_node("all", 8 * 20), {}), STANDING, is_open=True
    )
    await pool.add_node(whole)
    for number in range(8):
        await pool.submit_pod(f"big-{number}", 20)
    pool.run_until_settled()
    for number in range(10):
        await pool.submit_pod(f"small-{number}", 2)
    pool.run_until_settled()
    accepted_impossible, refused_possible = count_misplaced_pods(pool, reals)
    assert accepted_impossible == 8, "20 cores, and no node has more than 8"
    assert refused_possible == 10, "the books are full, the nodes are empty"


def test_the_name_of_a_loan_is_not_part_of_what_a_scheduler_sees() -> None:
    one, other = (
        make_virtual_node(REAL, offered_amounts(REAL, {}), replace(STANDING, loan=Generation(9, number)), is_open=True)
        for number in (1, 2)
    )
    assert one["metadata"]["labels"] == other["metadata"]["labels"]


def test_what_is_offered_fits_into_a_record_whatever_the_owners_pods_say_they_take() -> None:
    """An amount below nothing, which an API server may say, makes more free than there is."""
    node = {"status": {"allocatable": {"cpu": "9P", "memory": "9E"}}}
    taken = {"cpu": -(2**63), "memory": -(2**64)}
    assert offered_amounts(node, taken) == {"cpu": 2**63 - 1, "memory": 2**63 - 1}
