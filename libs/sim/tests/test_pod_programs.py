"""Real processes that stand for pods: when they begin and end, what they say, and that none is left over."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sim.cluster import SimCluster
from sim.core.kinds import Object
from sim.manifests import pod
from sim.pod_programs import PodPrograms
from sim.settings import NodeSpec, ProgramSettings, ProgramSpec, Settings

SETTINGS = Settings(start_delay_seconds=0)


def shell_program(script: str, *environment: str) -> ProgramSpec:
    return ProgramSpec(("/bin/sh", "-c", script), environment)


FOR_EVER = "while :; do sleep 0.02; done"
POLITE = shell_program(
    f"trap 'echo bye; exit 0' TERM; echo it is $WORD $OTHER of $POD_NAME in $CLUSTER; {FOR_EVER}", "WORD"
)
PROGRAMS = {
    "polite": POLITE,
    "stubborn": shell_program(f"trap '' TERM; echo begun $$; {FOR_EVER}"),
    "short": shell_program("echo ran"),
}


def pod_with_program(name: str, program: str, **environment: str) -> dict[str, Any]:
    manifest = pod(name, terminationGracePeriodSeconds=1 if program == "stubborn" else 60)
    manifest["metadata"]["annotations"] = {"sim/program": program}
    container = manifest["spec"]["containers"][0]
    container["env"] = [{"name": variable, "value": value} for variable, value in environment.items()]
    return manifest


@asynccontextmanager
async def cluster_with(settings: ProgramSettings | None = None) -> AsyncIterator[SimCluster]:
    async with SimCluster("a", SETTINGS) as cluster, PodPrograms(cluster, PROGRAMS, settings):
        cluster.add_nodes([NodeSpec("n")])
        yield cluster


async def wait_until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.01)


def log_lines(cluster: SimCluster, found: Object) -> list[str]:
    book = cluster.control_plane.logs._books_by_uid.get(found["metadata"]["uid"], {}).get("main")
    return [text for _, text in book.lines[1:]] if book else []


def find_pod(cluster: SimCluster, name: str = "p") -> Object | None:
    return cluster.get_object("pods", name, "default")


async def create_pod(client_of: Any, cluster: SimCluster, manifest: dict[str, Any]) -> Object:
    status, _ = await client_of(cluster).create_pod(manifest)
    found = find_pod(cluster, manifest["metadata"]["name"])
    assert (status, found is not None) == (201, True)
    return found or {}


async def delete_pod(client_of: Any, cluster: SimCluster, name: str = "p") -> None:
    await client_of(cluster).send_request("DELETE", f"/api/v1/namespaces/default/pods/{name}")


def is_process_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_program_begins_with_its_pod_and_the_pod_ends_with_its_program(client_of: Any, calls_of: Any) -> None:
    """It is told what its pod says, of what it may be told; deleted, the pod waits for it, not for all of its grace."""
    async with cluster_with() as cluster:
        found = await create_pod(client_of, cluster, pod_with_program("p", "polite", WORD="one", OTHER="two"))
        await wait_until(lambda: log_lines(cluster, found) == ["it is one of p in a"])
        with calls_of(SimCluster.write_log) as written:
            await delete_pod(client_of, cluster)
            ending = find_pod(cluster)
            assert ending is not None, "it is not gone before its program"
            assert "deletionTimestamp" in ending["metadata"]
            await wait_until(lambda: find_pod(cluster) is None)
        assert [call["text"] for call in written] == ["bye", "ended with 0"]


async def test_who_does_not_end_is_killed_when_the_grace_is_over(client_of: Any) -> None:
    async with cluster_with() as cluster:
        found = await create_pod(client_of, cluster, pod_with_program("p", "stubborn"))
        await wait_until(lambda: bool(log_lines(cluster, found)))
        pid = int(log_lines(cluster, found)[0].split()[1])
        await delete_pod(client_of, cluster)
        await wait_until(lambda: find_pod(cluster) is None)
        await wait_until(lambda: not is_process_there(pid))


async def test_a_program_that_ends_by_itself_begins_again(client_of: Any) -> None:
    async with cluster_with(ProgramSettings(restart_seconds=0.01)) as cluster:
        found = await create_pod(client_of, cluster, pod_with_program("p", "short"))
        await wait_until(lambda: log_lines(cluster, found)[:4] == ["ran", "ended with 0"] * 2)


async def test_what_is_not_allowed_does_not_run_and_says_so(client_of: Any) -> None:
    async with cluster_with() as cluster:
        found = await create_pod(client_of, cluster, pod_with_program("p", "rm"))
        await wait_until(lambda: bool(log_lines(cluster, found)))
        assert log_lines(cluster, found) == ["no program 'rm': expected one of polite, short, stubborn"]
        await delete_pod(client_of, cluster)
        await wait_until(lambda: find_pod(cluster) is None)


async def test_no_more_run_than_may_and_the_next_when_one_has_gone(client_of: Any) -> None:
    async with cluster_with(ProgramSettings(processes_max=1)) as cluster:
        first = await create_pod(client_of, cluster, pod_with_program("p", "polite"))
        await wait_until(lambda: bool(log_lines(cluster, first)))
        second = await create_pod(client_of, cluster, pod_with_program("q", "polite"))
        await wait_until(lambda: bool(log_lines(cluster, second)))
        assert log_lines(cluster, second) == ["waits: 1 programs run, no more may"]
        await delete_pod(client_of, cluster)
        await wait_until(lambda: len(log_lines(cluster, second)) == 2)


async def test_a_pod_without_a_node_of_ours_runs_nothing(client_of: Any) -> None:
    """Its kubelet is somebody else's, and so are its programs."""
    async with cluster_with() as cluster:
        await client_of(cluster).send_request("POST", "/api/v1/nodes", {"metadata": {"name": "theirs"}})
        manifest = pod_with_program("p", "polite")
        manifest["spec"]["nodeName"] = "theirs"
        found = await create_pod(client_of, cluster, manifest)
        await client_of(cluster).merge_patch(
            "/api/v1/namespaces/default/pods/p/status", {"status": {"phase": "Running"}}
        )
        after = await create_pod(client_of, cluster, pod_with_program("q", "polite"))
        await wait_until(lambda: bool(log_lines(cluster, after)))
        assert (find_pod(cluster) or {})["status"]["phase"] == "Running"
        assert log_lines(cluster, found) == []


async def test_whoever_ignores_the_end_of_its_cluster_is_killed(client_of: Any) -> None:
    async with cluster_with(ProgramSettings(stop_seconds=0.05)) as cluster:
        found = await create_pod(client_of, cluster, pod_with_program("p", "stubborn"))
        await wait_until(lambda: bool(log_lines(cluster, found)))
        pid = int(log_lines(cluster, found)[0].split()[1])
    assert not is_process_there(pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
async def test_no_program_outlives_its_cluster(tmp_path: Path, number: signal.Signals) -> None:
    nodes, programs = tmp_path / "nodes.json", tmp_path / "programs.json"
    nodes.write_text(json.dumps([{"name_prefix": "n"}]))
    written = tmp_path / "pid"
    script = f"echo $$ > {written}.draft; mv {written}.draft {written}; {FOR_EVER}"
    programs.write_text(json.dumps({"writer": {"command": ["/bin/sh", "-c", script]}}))
    flags = ["--name", "a", "--port", "0", "--start-delay-ms", "0", "--credentials-folder", str(tmp_path)]
    files = ["--nodes", str(nodes), "--pod-programs", str(programs)]
    command = (sys.executable, "-m", "sim", *flags, *files)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout
    await process.stdout.readline()
    config = json.loads((tmp_path / "a.kubeconfig").read_text())
    headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
    url = f"{config['clusters'][0]['cluster']['server']}/api/v1/namespaces/default/pods"
    posted = pod_with_program("p", "writer")
    async with aiohttp.ClientSession(headers=headers) as session, session.post(url, json=posted) as answer:
        assert answer.status == 201
    await wait_until(written.exists)
    pid = int(written.read_text())
    assert is_process_there(pid)
    process.send_signal(number)
    await process.wait()
    await wait_until(lambda: not is_process_there(pid))
