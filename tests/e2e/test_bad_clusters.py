"""Clusters that cannot be reached or answer nonsense: shown with the reason, the others go on, and they recover."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from spillway.api import ApplyRequest, CapacityRequest, JoinClusterRequest
from spillway.model import ClusterInput
from spillway_local.fleet_plan import GIB, deployment
from spillway_local.member_nodes import MemberNodes
from spillway_local.members import MemberSpec, sim_member_program
from spillway_local.ports import session_port

from .running import NAMES, NAMESPACE, Platform, wait_until

SLOW_SECONDS = 20.0


def _with_spread(manifest: str) -> str:
    """The same, at most one more on a node than on another."""
    parsed = json.loads(manifest)
    constraint = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": parsed["spec"]["selector"],
    }
    parsed["spec"]["template"]["spec"]["topologySpreadConstraints"] = [constraint]
    return json.dumps(parsed)


SHAPES = (
    deployment("web", NAMESPACE, 1),
    deployment("small", NAMESPACE, 1, "130m", "3Gi"),
    deployment("large", NAMESPACE, 1, "7", "1Gi"),
    _with_spread(deployment("spread", NAMESPACE, 1, "250m")),
)


def _as_garbage(_: str) -> str:
    return "\x00 not a kubeconfig: ["


def _with_expired_token(text: str) -> str:
    config = json.loads(text)
    config["users"][0]["user"]["token"] = "expired"
    return json.dumps(config)


def _with_closed_server(text: str) -> str:
    config = json.loads(text)
    config["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:1"
    return json.dumps(config)


@pytest.mark.parametrize("fault", ["frozen", "slow"])
async def test_capacity_of_the_others_is_the_same_to_the_last_bit(platform: Platform, fault: str) -> None:
    """From when own-2's API fails until that is known no answer of the others differs, nor any once it is back."""
    await platform.planner.apply(ApplyRequest((deployment("web", NAMESPACE, 60),)))
    await platform.wait_until_running("web", 60)
    before: dict[str, list[ClusterInput]] = {}
    asked = 0

    async def nothing_is_promised() -> bool:
        before.update(await _capacity_by_cluster(platform))
        return not any(entry.reserved for entries in before.values() for entry in entries)

    async def others_differ_not_and_it_is_known() -> bool:
        nonlocal asked
        found = await _capacity_by_cluster(platform)
        assert {**found, "own-2": before["own-2"]} == before
        asked += 1
        return (await platform.clusters_by_name())["own-2"].state != "Ready"

    await wait_until("all that was promised is bound", nothing_is_promised)
    try:
        await _break_own_2(platform, fault)
        await wait_until("own-2 is known to fail", others_differ_not_and_it_is_known, 90)
    finally:
        await _mend_own_2(platform, fault)
    await platform.wait_until_all_ready()
    assert await _capacity_by_cluster(platform) == before
    print(f"{asked} answers for {len(SHAPES)} shapes each, while own-2 {fault}")


@pytest.mark.parametrize(
    ("name", "spoil", "reason"),
    [
        ("garbage", _as_garbage, "expected a kubeconfig in YAML or JSON"),
        ("expired", _with_expired_token, "unauthorized"),
        ("closed", _with_closed_server, "connection"),
    ],
)
async def test_bad_credentials(platform: Platform, name: str, spoil: Callable[[str], str], reason: str) -> None:
    """The cluster is Unreachable with the reason, the others place; it is Ready once its file is put right."""
    stack = platform.stack
    spec = MemberSpec(f"bad-{name}", (MemberNodes(1, f"bad-{name}-node", 4_000, 16 * GIB),))
    program = sim_member_program(spec, session_port(), stack.folder / "members", stack.credentials)
    file = stack.credentials / f"{spec.name}.kubeconfig"
    await asyncio.to_thread(stack.supervision.add_programs, [program])

    async def has_file() -> bool:
        return file.exists()

    await wait_until(f"{spec.name} wrote its credentials", has_file)
    right = file.read_text()
    file.write_text(spoil(right))
    await platform.planner.join_cluster(JoinClusterRequest(spec.name, spec.name, tier="bad"))
    await _wait_until_unreachable(platform, spec.name, reason)
    await _assert_others_place(platform, name, NAMES)
    file.write_text(right)
    await platform.wait_until_all_ready((spec.name,))


async def test_an_api_server_that_stalls_in_the_middle_of_a_list(platform: Platform) -> None:
    """A Ready cluster's API goes wrong: Unreachable with the reason, the others place; afterwards it is Ready again."""
    try:
        platform.post_to_simulated_member("own-2", "faults", stall_list=True)
        platform.post_to_simulated_member("own-2", "expire-history")
        await _wait_until_unreachable(platform, "own-2", "timeout")
        await _assert_others_place(platform, "stalls", ("own-1", "cloud-1"))
    finally:
        platform.post_to_simulated_member("own-2", "faults", stall_list=False)
    await platform.wait_until_all_ready()
    await platform.wait_until_running("stalls", 10)


async def _break_own_2(platform: Platform, fault: str) -> None:
    if fault == "frozen":
        await platform.members.silence_member("own-2")
    else:
        platform.post_to_simulated_member("own-2", "faults", latency_seconds=SLOW_SECONDS)
        platform.post_to_simulated_member("own-2", "drop-watches")


async def _mend_own_2(platform: Platform, fault: str) -> None:
    if fault == "frozen":
        await platform.members.wake_member("own-2")
    else:
        platform.post_to_simulated_member("own-2", "faults", latency_seconds=0.0)


async def _capacity_by_cluster(platform: Platform) -> dict[str, list[ClusterInput]]:
    """By cluster, all that is answered for each shape but how old it is."""
    found: dict[str, list[ClusterInput]] = {}
    for shape in SHAPES:
        for entry in (await platform.planner.capacity(CapacityRequest((shape,)))).clusters:
            found.setdefault(entry.cluster, []).append(replace(entry, age_ms=0))
    return found


async def _wait_until_unreachable(platform: Platform, cluster: str, reason: str) -> None:
    seen: list[str] = []

    async def is_said() -> bool:
        status = (await platform.clusters_by_name())[cluster]
        seen[:] = [status.state, status.trouble]
        return status.state == "Unreachable" and reason in status.trouble

    await wait_until(f"{cluster} is Unreachable: {reason}", is_said, 90, lambda: seen)
    print(f"{cluster}: {seen}")


async def _assert_others_place(platform: Platform, name: str, others: tuple[str, ...]) -> None:
    clusters = await platform.clusters_by_name()
    assert {other: clusters[other].state for other in others} == dict.fromkeys(others, "Ready")
    selected = {"tiers": [{"name": "others", "clusters": {"names": list(others)}}]}
    policy = {"apiVersion": "spillway.io/v1", "kind": "PlacementPolicy", "spec": selected}
    await platform.planner.apply(ApplyRequest((deployment(name, NAMESPACE, 10), json.dumps(policy))))
    running = 0

    async def are_running() -> bool:
        nonlocal running
        running = sum([(await platform.pod_counts(other, name)).running for other in others])
        return running == 10

    await wait_until(f"10 replicas of {name} run elsewhere", are_running, 60, lambda: running)
