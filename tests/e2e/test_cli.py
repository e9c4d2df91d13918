"""The command against running parts: what it prints and how it exits."""

from pathlib import Path

from spillway_local.fleet_plan import deployment

from .command import Command
from .running import NAMES, NAMESPACE, wait_until

POLICY = '{"apiVersion": "spillway.io/v1", "kind": "PlacementPolicy", "spec": {"ownFirst": true}}'


async def test_the_life_of_a_workload(spillway: Command, tmp_path: Path) -> None:
    """plan, apply, get, scale, events and delete say and do the same as the planner."""
    (tmp_path / "web.json").write_text(deployment("web", "", 20).replace('"namespace": "", ', ""))
    (tmp_path / "policy.yaml").write_text(POLICY)
    files = ("-f", "web.json", "-f", "policy.yaml")
    planned = await spillway.run_for_json("plan", *files)
    assert (planned["placed"], planned["unplaced"]) == (20, 0)
    assert "not declared" in await spillway("get", "web", code=2)

    applied = await spillway.run_for_json("apply", *files, "--wait", "--timeout", "60")
    assert applied["placement"]["placed"] == 20
    await spillway("scale", "web", "--replicas", "30", "--wait", "--timeout", "60")
    found = await spillway.run_for_json("get", "web")
    assert found["placement"]["replicas"] == 30
    assert sum(status["ready"] for status in found["statuses"]) == 30
    assert "web" in await spillway("get", "web")

    line = await spillway("events", "placements", "--from-start", "--key", f"{NAMESPACE}/web", "--limit", "1")
    assert len(line.splitlines()) == 1
    assert f"{NAMESPACE}/web" in line
    sums = (await spillway.run_for_json("status"))["workloads"]
    assert (sums["workloads"], sums["ready"]) == (1, 30)
    await spillway("delete", "web", "--wait", "--timeout", "60")
    assert await spillway.run_for_json("list") == []


async def test_clusters_and_capacity(spillway: Command, tmp_path: Path) -> None:
    """cluster list shows each cluster Ready, capacity how many fit and what limits them."""
    (tmp_path / "web.json").write_text(deployment("web", NAMESPACE, 20))
    clusters = await spillway.run_for_json("cluster", "list")
    assert {cluster["cluster"]: cluster["state"] for cluster in clusters} == dict.fromkeys(NAMES, "Ready")
    capacity = await spillway.run_for_json("capacity", "-f", "web.json")
    assert {c["cluster"]: c["certain"] for c in capacity["clusters"]} == {"own-1": 96, "own-2": 192, "cloud-1": 320}
    assert "taint gpu=only:NoSchedule" in await spillway("capacity", "-f", "web.json")


async def test_exit_codes(spillway: Command, tmp_path: Path) -> None:
    """1 refused, 2 bad input, 3 placed in part, 4 not reachable."""
    (tmp_path / "giant.json").write_text(deployment("giant", NAMESPACE, 1, cpu="900"))
    (tmp_path / "wide.json").write_text(deployment("wide", NAMESPACE, 700))
    (tmp_path / "bad.json").write_text(deployment("bad", NAMESPACE, -1))
    assert "fits no node" in await spillway("apply", "-f", "giant.json", code=1)
    assert "replicas" in await spillway("apply", "-f", "bad.json", code=2)
    assert "no such file" in await spillway("apply", "-f", "absent.json", code=2)
    assert (await spillway.run_for_json("plan", "-f", "wide.json", code=3))["unplaced"] == 92
    assert "not reachable" in await spillway("--endpoint", "127.0.0.1:1", "status", code=4)


async def test_how_a_cluster_lends_is_declared_paused_and_withdrawn(spillway: Command, tmp_path: Path) -> None:
    """A plan keeps nothing; what is withdrawn while nothing is lent is gone."""
    (tmp_path / "lending.yaml").write_text("{cluster: own-1, pool: cloud-1, rules: [{name: big, share_percent: 50}]}")
    refused = await spillway("lending", "declare", "own-1", "--pool", "own-9", code=2)
    assert "pool own-9: no cluster of this name has joined" in refused
    (planned,) = await spillway.run_for_json("lending", "declare", "-f", "lending.yaml", "--plan-only")
    assert (planned["changed"], planned["rules"][0]["idle_seconds"]) == (True, 600)
    assert "own-1: no lending is declared" in await spillway("lending", "get", "own-1", code=2)
    await spillway("lending", "declare", "-f", "lending.yaml")
    await spillway("lending", "pause", "own-1", "--reason", "sale")
    found = await spillway.run_for_json("lending", "get", "own-1")
    assert (found["pool"], found["paused"], found["reason"], found["nodes_lent"]) == ("cloud-1", True, "sale", 0)
    await spillway("lending", "resume")
    await spillway("lending", "withdraw", "own-1")

    async def is_gone() -> bool:
        return await spillway.run_for_json("lending", "list") == []

    await wait_until("nothing is declared", is_gone)
