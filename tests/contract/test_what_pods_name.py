"""What pods name and their cluster has not: without an account or class no API server lets them in, without a Secret or
ConfigMap no kubelet starts them. Held against the simulated cluster and against a real one, as test_cluster_api.py.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from spillway.clusters.api import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    SECRETS,
    ClusterApi,
    Kind,
    Manifest,
    Refused,
)
from spillway.kubernetes.objects import AnyObject
from spillway_local.member_nodes import MemberNodes
from spillway_local.members import KubeMembers, MemberSpec
from spillway_local.programs import running_stages
from spillway_local.pytest_infra import session_ports
from tests.contract.cluster_harness import (
    DOORS,
    PATIENCE_SECONDS,
    deployment,
    kube_cluster_api,
    start_sim_in_memory,
    start_sim_over_http,
    wait_for_running_pods,
)

pytest_plugins = ["spillway_local.pytest_infra"]
WHOLE_REPLICASETS = Kind("apps", "v1", "replicasets", AnyObject)
"""Spillway itself reads their metadata alone."""
ACCOUNTS = Kind("", "v1", "serviceaccounts", AnyObject)
PRIORITIES = Kind("scheduling.k8s.io", "v1", "priorityclasses", AnyObject, namespaced=False)
RUNTIMES = Kind("node.k8s.io", "v1", "runtimeclasses", AnyObject, namespaced=False)
NAMED: dict[str, tuple[Kind, str, str, dict[str, Any]]] = {
    "an account": (
        ACCOUNTS,
        "serviceAccountName",
        'error looking up service account {namespace}/key: serviceaccount "key" not found',
        {"apiVersion": "v1", "kind": "ServiceAccount"},
    ),
    "a priority": (
        PRIORITIES,
        "priorityClassName",
        "no PriorityClass with name key was found",
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 5},
    ),
    "a runtime": (
        RUNTIMES,
        "runtimeClassName",
        'pod rejected: RuntimeClass "key" not found',
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "box"},
    ),
}


@pytest.fixture(scope="module")
def strict_member(kube_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """kubeconfig of a real member whose API server asks for accounts, and its kubelets for Secrets and ConfigMaps."""
    folder = tmp_path_factory.mktemp("strict")
    spec = MemberSpec("strict", (MemberNodes(3, "node", 8_000, 32 * 2**30),), accounts=True, kubelets_ask=True)
    ports = session_ports(folder, [spec.name])
    members = KubeMembers(folder, folder / "credentials", (spec,), ports, kube_binary)
    with running_stages(members.prepare_stages(), folder / "logs"):
        (member,) = members.members()
        yield member.kubeconfig


@pytest.fixture(params=DOORS)
def opened(request: pytest.FixtureRequest) -> Any:
    """Not async, because what starts the real member runs a loop of its own."""
    if request.param == "kube":
        kubeconfig = request.getfixturevalue("strict_member")
        return lambda _: kube_cluster_api(kubeconfig)
    return start_sim_in_memory if request.param == "sim" else start_sim_over_http


@pytest.fixture
async def strict(opened: Any) -> AsyncIterator[ClusterApi]:
    async with AsyncExitStack() as stack:
        api = await opened(stack)
        stack.push_async_callback(api.close)
        yield api


@pytest.mark.parametrize(("kind", "field", "why", "made"), NAMED.values(), ids=NAMED)
async def test_who_names_what_is_not_there_has_no_pods_until_it_is(
    strict: ClusterApi, kind: Kind, field: str, why: str, made: Manifest
) -> None:
    """A dry run says why, the ReplicaSet says it, too, and tries again."""
    namespace = f"names-{kind.plural}"
    await strict.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    wanted = with_no_token_mounted(deployment(namespace, "web"))
    wanted["spec"]["template"]["spec"][field] = "key"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "web-"}}
    with pytest.raises(Refused) as raised:
        await strict.dry_run_create(PODS, namespace, {**pod, "spec": wanted["spec"]["template"]["spec"]})
    assert (raised.value.status, raised.value.reason) == (403, "Forbidden")
    assert raised.value.message.endswith(f"is forbidden: {why.format(namespace=namespace)}")

    await strict.create(DEPLOYMENTS, wanted)
    failure = await _wait_for_replica_failure(strict, namespace)
    assert (failure["status"], failure["reason"]) == ("True", "FailedCreate")
    assert failure["message"].endswith(f"is forbidden: {why.format(namespace=namespace)}")
    assert await strict.list(PODS, namespace) == []

    metadata = {"name": "key", "namespace": namespace} if kind.namespaced else {"name": "key"}
    await strict.create(kind, {**made, "metadata": metadata})
    assert len(await wait_for_running_pods(strict, namespace, 2)) == 2


STARTED: dict[str, tuple[Kind, str, Manifest]] = {
    "a Secret": (SECRETS, "secretRef", {"apiVersion": "v1", "kind": "Secret"}),
    "a ConfigMap": (CONFIG_MAPS, "configMapRef", {"apiVersion": "v1", "kind": "ConfigMap"}),
}


@pytest.mark.parametrize(("kind", "source", "made"), STARTED.values(), ids=STARTED)
async def test_whose_environment_is_not_there_waits_on_its_node_until_it_is(
    strict: ClusterApi, kind: Kind, source: str, made: Manifest
) -> None:
    namespace = f"starts-{kind.plural}"
    await strict.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    wanted = with_no_token_mounted(deployment(namespace, "web"))
    wanted["spec"]["template"]["spec"]["containers"][0]["envFrom"] = [{source: {"name": "key"}}]
    await strict.create(DEPLOYMENTS, wanted)
    message = f'{made["kind"].lower()} "key" not found'
    assert await _wait_for_waiting_state(strict, namespace) == {
        "reason": "CreateContainerConfigError",
        "message": message,
    }
    assert {pod["status"]["phase"] for pod in await strict.list(PODS, namespace)} == {"Pending"}

    await strict.create(kind, {**made, "metadata": {"name": "key", "namespace": namespace}})
    assert len(await wait_for_running_pods(strict, namespace, 2)) == 2


def with_no_token_mounted(wanted: Manifest) -> Manifest:
    """Its pods mount no token, nor the ConfigMap with the API server's certificate, which no controller makes here."""
    wanted["spec"]["template"]["spec"]["automountServiceAccountToken"] = False
    return wanted


async def _wait_for_waiting_state(api: ClusterApi, namespace: str) -> Manifest:
    """What the containers of both pods wait for, once they say it."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            pods = await api.list(PODS, namespace)
            told = [one for pod in pods for one in (pod.get("status") or {}).get("containerStatuses") or ()]
            if len(told) == 2:
                first, second = (one["state"]["waiting"] for one in told)
                assert first == second
                return cast(Manifest, first)
            await asyncio.sleep(0.1)


async def _wait_for_replica_failure(api: ClusterApi, namespace: str) -> Manifest:
    """What the ReplicaSet says of the pods that it cannot make."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            for found in await api.list(WHOLE_REPLICASETS, namespace):
                for condition in (found.get("status") or {}).get("conditions") or ():
                    if condition["type"] == "ReplicaFailure":
                        return cast(Manifest, condition)
            await asyncio.sleep(0.1)
