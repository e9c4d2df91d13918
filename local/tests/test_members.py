"""Members as programs, and two real ones."""

import asyncio
import json
import stat
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from spillway.clusters.api import CONFIG_MAPS, ClusterApiSettings, make_cluster_api
from spillway.clusters.credentials import load_endpoint
from spillway_local.member_credentials import read_kubeconfig
from spillway_local.member_nodes import MemberNodes, NodeTaint, node_object, read_nodes_file, write_nodes_file
from spillway_local.members import KubeMembers, MemberSpec, sim_member_program
from spillway_local.ports import PortBook, session_port
from spillway_local.programs import ChildProcess, start_child

SPEC = MemberNodes(2, "oven", 1500, 2**30, 20, {"zone": "a"}, (NodeTaint("dedicated", "bread"),))


@pytest.fixture
def members(tmp_path: Path) -> KubeMembers:
    specs = (MemberSpec("own-1", (SPEC,)), MemberSpec("own-2"))
    ports = PortBook(tmp_path / "ports.json")
    return KubeMembers(tmp_path / "members", tmp_path / "credentials", specs, ports, Path("/cache/kube-member"))


@pytest.mark.parametrize(
    ("part", "flag"),
    [
        pytest.param("own-1-apiserver", "--etcd-prefix=/member/own-1", id="told apart in etcd"),
        pytest.param("own-1-apiserver", "--bind-address=127.0.0.1", id="loopback"),
        pytest.param("own-1-apiserver", "--anonymous-auth=false", id="nobody without a token"),
        pytest.param("own-2-scheduler", "--leader-elect=false", id="one scheduler"),
        pytest.param("own-2-controllers", "--secure-port=0", id="controllers serve nobody"),
        pytest.param("own-1-kwok", "--manage-all-nodes=false", id="virtual nodes are not kwok's"),
        pytest.param("own-1-kwok", "--config=/cache/kwok.yaml", id="stages beside the binary"),
        pytest.param("etcd", "--unsafe-no-fsync=true", id="etcd does not sync"),
    ],
)
def test_programs(members: KubeMembers, part: str, flag: str) -> None:
    program_by_name = {program.name: program for stage in members.prepare_stages() for program in stage.programs}
    assert flag in program_by_name[part].command


def test_stages_come_in_the_order_of_need(members: KubeMembers) -> None:
    assert [stage.name for stage in members.prepare_stages()] == ["etcd", "member-apis", "member-controllers"]


def test_a_second_preparation_changes_nothing(members: KubeMembers) -> None:
    members.prepare()
    kubeconfig = members.credentials_folder / "own-1.kubeconfig"
    before = kubeconfig.read_text()
    members.prepare()
    assert kubeconfig.read_text() == before


def test_secrets_are_readable_by_their_owner_alone(members: KubeMembers) -> None:
    members.prepare()
    given = [one for one in members.credentials_folder.rglob("*") if one.is_file()]
    secrets = [*members.folder.glob("*/credentials/*"), *given]
    assert len(secrets) == 2 * 7
    assert {stat.S_IMODE(file.stat().st_mode) for file in secrets} == {0o600}


def test_tokens_are_not_printed(members: KubeMembers) -> None:
    members.prepare()
    access = read_kubeconfig(members.credentials_folder / "own-1.kubeconfig")
    assert access.token not in repr(access)


def test_a_node_is_marked_for_kwok() -> None:
    node = node_object("oven-1", SPEC)
    assert node["metadata"]["annotations"]["kwok.x-k8s.io/node"] == "fake"
    assert node["metadata"]["labels"]["zone"] == "a"
    assert node["spec"]["taints"] == [{"key": "dedicated", "value": "bread", "effect": "NoSchedule"}]
    assert node["status"]["allocatable"] == {"cpu": "1500m", "memory": "1073741824", "pods": "20"}


def test_nodes_are_described_to_a_simulated_member_in_a_file(tmp_path: Path) -> None:
    write_nodes_file(tmp_path / "nodes.json", [SPEC])
    assert read_nodes_file(tmp_path / "nodes.json") == (SPEC,)


def test_a_simulated_member_is_a_program(tmp_path: Path) -> None:
    program = sim_member_program(MemberSpec("own-1", (SPEC,)), 20000, tmp_path, tmp_path / "c", ["--seed", "1"])
    assert program.command[1:7] == ("-m", "sim", "--name", "own-1", "--port", "20000")
    assert json.loads((tmp_path / "own-1-nodes.json").read_text())[0]["count"] == 2


async def test_a_simulated_member_keeps_its_objects_while_it_is_stopped_and_none_when_it_is_killed(
    tmp_path: Path,
) -> None:
    program = sim_member_program(MemberSpec("own-1", (SPEC,)), session_port(), tmp_path, tmp_path)

    async def start_member() -> tuple[ChildProcess, set[str]]:
        child = start_child(program, tmp_path / "log")
        await asyncio.to_thread(child.wait_ready, (tmp_path / "own-1.kubeconfig").exists, 30.0)
        return child, await _config_map_names(tmp_path)

    child, found = await start_member()
    assert found == set()
    await _config_map_names(tmp_path, create="mine")
    child.stop()
    (tmp_path / "own-1.kubeconfig").unlink()
    child, found = await start_member()
    assert found == {"mine"}
    child.kill()
    (tmp_path / "own-1.kubeconfig").unlink()
    child, found = await start_member()
    assert found == set()
    child.stop()


async def _config_map_names(folder: Path, create: str = "") -> set[str]:
    """Names of the ConfigMaps in default, after one more was created."""
    api = make_cluster_api(partial(load_endpoint, folder, "own-1"), "own-1", ClusterApiSettings())
    try:
        if create:
            await api.create(CONFIG_MAPS, {"metadata": {"name": create, "namespace": "default"}})
        return {one["metadata"]["name"] for one in await api.list(CONFIG_MAPS, "default")}
    finally:
        await api.close()


@pytest.mark.kube
async def test_a_deployment_runs_on_a_members_nodes(kube_members: dict[str, Path]) -> None:
    assert set(kube_members) == {"own-1", "own-2"}
    access = read_kubeconfig(kube_members["own-1"])
    connector = aiohttp.TCPConnector(ssl=access.ssl_context())
    async with aiohttp.ClientSession(access.server, connector=connector, headers=access.headers) as session:
        deployments = "/apis/apps/v1/namespaces/default/deployments"
        async with session.post(deployments, json=_deployment(replicas=4)) as response:
            assert response.status == 201
        for _ in range(300):
            if await _running_pod_count(session) == 4:
                return
            await asyncio.sleep(0.1)
    pytest.fail("the pods did not run within 30 s")


@pytest.mark.kube
async def test_members_do_not_see_each_other(kube_members: dict[str, Path]) -> None:
    for name, kubeconfig in kube_members.items():
        access = read_kubeconfig(kubeconfig)
        connector = aiohttp.TCPConnector(ssl=access.ssl_context())
        async with aiohttp.ClientSession(access.server, connector=connector, headers=access.headers) as session:
            listed = await (await session.get("/api/v1/nodes")).json()
        assert {node["metadata"]["name"] for node in listed["items"]} == {f"{name}-node-{n}" for n in (1, 2, 3)}


@pytest.mark.kube
async def test_nobody_is_let_in_without_a_token(kube_members: dict[str, Path]) -> None:
    access = read_kubeconfig(kube_members["own-1"])
    connector = aiohttp.TCPConnector(ssl=access.ssl_context())
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get(f"{access.server}/api/v1/nodes") as response,
    ):
        assert response.status == 401


async def _running_pod_count(session: aiohttp.ClientSession) -> int:
    async with session.get("/api/v1/namespaces/default/pods") as response:
        listed = await response.json()
    return sum(pod["status"].get("phase") == "Running" for pod in listed["items"])


def _deployment(replicas: int) -> dict[str, object]:
    labels = {"app": "bread"}
    container = {"name": "oven", "image": "oven", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "bread"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
