"""Clusters that cannot be reached or answer nonsense: shown with the reason, the others go on, and they recover."""

import asyncio
import json
from collections.abc import Callable

import pytest

from spillway.api import ApplyRequest, JoinClusterRequest
from spillway_local.fleet_plan import GIB, deployment
from spillway_local.member_nodes import NodeSpec
from spillway_local.members import MemberSpec, sim_member_program
from spillway_local.ports import session_port

from .running import NAMES, NAMESPACE, Platform, until


def _garbage(_: str) -> str:
    return "\x00 not a kubeconfig: ["


def _expired(text: str) -> str:
    config = json.loads(text)
    config["users"][0]["user"]["token"] = "expired"
    return json.dumps(config)


def _closed(text: str) -> str:
    config = json.loads(text)
    config["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:1"
    return json.dumps(config)


@pytest.mark.parametrize(
    ("name", "spoil", "reason"),
    [
        ("garbage", _garbage, "expected a kubeconfig in YAML or JSON"),
        ("expired", _expired, "unauthorized"),
        ("closed", _closed, "connection"),
    ],
)
async def test_bad_credentials(platform: Platform, name: str, spoil: Callable[[str], str], reason: str) -> None:
    """The cluster is Unreachable with the reason, the others place; it is Ready once its file is put right."""
    stack = platform.stack
    spec = MemberSpec(f"bad-{name}", (NodeSpec(1, f"bad-{name}-node", 4_000, 16 * GIB),))
    program = sim_member_program(spec, session_port(), stack.folder / "members", stack.credentials)
    file = stack.credentials / f"{spec.name}.kubeconfig"
    await asyncio.to_thread(stack.supervision.add, [program])

    async def has_file() -> bool:
        return file.exists()

    await until(f"{spec.name} wrote its credentials", has_file)
    right = file.read_text()
    file.write_text(spoil(right))
    await platform.planner.join_cluster(JoinClusterRequest(spec.name, spec.name, tier="bad"))
    await _unreachable(platform, spec.name, reason)
    await _others_place(platform, name, NAMES)
    file.write_text(right)
    await platform.all_ready((spec.name,))


@pytest.mark.parametrize(
    ("name", "fault", "reason"),
    [
        ("answers-garbage", {"garbage": True}, "garbage"),
        ("stalls-in-mid-list", {"stall_list": True}, "timeout"),
        ("says-401-in-mid-watch", {"unauthorized": True}, "unauthorized"),
    ],
)
async def test_an_api_server_that_fails(platform: Platform, name: str, fault: dict[str, bool], reason: str) -> None:
    """A Ready cluster's API goes wrong: Unreachable with the reason, the others place; afterwards it is Ready again."""
    try:
        platform.sim("own-2", "faults", **fault)
        platform.sim("own-2", "expire-history")
        await _unreachable(platform, "own-2", reason)
        await _others_place(platform, name, ("own-1", "cloud-1"))
    finally:
        platform.sim("own-2", "faults", **dict.fromkeys(fault, False))
    await platform.all_ready()
    await platform.running(name, 10)


async def _unreachable(platform: Platform, cluster: str, reason: str) -> None:
    seen: list[str] = []

    async def said() -> bool:
        status = (await platform.clusters())[cluster]
        seen[:] = [status.state, status.trouble]
        return status.state == "Unreachable" and reason in status.trouble

    await until(f"{cluster} is Unreachable: {reason}", said, 90, lambda: seen)
    print(f"{cluster}: {seen}")


async def _others_place(platform: Platform, name: str, others: tuple[str, ...]) -> None:
    clusters = await platform.clusters()
    assert {other: clusters[other].state for other in others} == dict.fromkeys(others, "Ready")
    selected = {"tiers": [{"name": "others", "clusters": {"names": list(others)}}]}
    policy = {"apiVersion": "spillway.io/v1", "kind": "PlacementPolicy", "spec": selected}
    await platform.planner.apply(ApplyRequest((deployment(name, NAMESPACE, 10), json.dumps(policy))))
    running = 0

    async def run() -> bool:
        nonlocal running
        running = sum([(await platform.pods(other, name)).running for other in others])
        return running == 10

    await until(f"10 replicas of {name} run elsewhere", run, 60, lambda: running)
