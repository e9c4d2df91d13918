"""The doors to a cluster's API, for every module here that asks one."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from uuid import uuid4

import pytest

from spillway.clusters.api import NAMESPACES, ClusterApi
from tests.contract.cluster_harness import DOORS, kube_cluster_api, start_sim_in_memory, start_sim_over_http


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> Callable[[AsyncExitStack], Awaitable[ClusterApi]]:
    """Not async, because what starts the real members runs a loop of its own."""
    if request.param == "kube":
        kubeconfig = next(iter(request.getfixturevalue("kube_members").values()))
        return lambda _: kube_cluster_api(kubeconfig)
    return start_sim_in_memory if request.param == "sim" else start_sim_over_http


@pytest.fixture
async def api(door: Callable[[AsyncExitStack], Awaitable[ClusterApi]]) -> AsyncIterator[ClusterApi]:
    async with AsyncExitStack() as stack:
        opened = await door(stack)
        stack.push_async_callback(opened.close)
        yield opened


@pytest.fixture
async def namespace(api: ClusterApi) -> str:
    """A new one, so that tests share a real cluster without meeting."""
    name = f"contract-{uuid4().hex[:8]}"
    await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name
