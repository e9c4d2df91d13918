"""However much a template names, a cluster is asked for a few things at a time, and for a bounded number of them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from propagator.cluster.cluster_objects import ClusterObjects
from propagator.cluster.namespaces import ClusterNamespaces
from propagator.core.desired import PartTarget
from propagator.core.live import DependencyReference
from propagator.settings import PropagatorSettings
from sim.cluster import SimCluster
from sim.rest import SimTransport
from spillway.clusters.api import CONFIG_MAPS, ClusterApi, ClusterApiSettings, ClusterUnreachable, Response

pytestmark = pytest.mark.looptime
WEB = PartTarget("own-1", "default", "web")
SETTINGS = PropagatorSettings(references_at_once=8, references_max=20)


class SlowTransport(SimTransport):
    """Each answer takes a while; failing: names whose requests the cluster does not answer."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self.asked: list[str] = []
        self.under_way = 0
        self.most = 0
        self.failing: frozenset[str] = frozenset()

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Response:
        name = path.rpartition("/")[2]
        self.asked.append(name)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(0.01)
            if name in self.failing:
                raise ClusterUnreachable("own-1", "timeout", "no answer")
            return await super().request(method, path, params, body, content_type, accept)
        finally:
            self.under_way -= 1


@asynccontextmanager
async def open_cluster_objects() -> AsyncIterator[tuple[SlowTransport, ClusterObjects]]:
    async with SimCluster("own-1") as cluster:
        transport, clock = SlowTransport(cluster), asyncio.get_running_loop().time
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c-03", "namespace": "default"}}
        await ClusterApi(SimTransport(cluster), "own-1", ClusterApiSettings()).create(CONFIG_MAPS, manifest)
        api = ClusterApi(transport, "own-1", ClusterApiSettings())
        yield transport, ClusterObjects(api, "f1", clock, lambda: None, ClusterNamespaces(clock, 1.0), SETTINGS)


def config_map_references(count: int) -> list[DependencyReference]:
    return [DependencyReference("ConfigMap", f"c-{number:02}") for number in range(count)]


async def test_a_few_of_many_are_looked_for_at_one_time() -> None:
    async with open_cluster_objects() as (transport, cluster_objects):
        looked = await cluster_objects.existence_by_reference(WEB, frozenset(config_map_references(20)))
        assert (transport.most, transport.asked) == (8, [one.name for one in config_map_references(20)])
        assert looked == {one: one.name == "c-03" for one in config_map_references(20)}


async def test_as_few_as_that_are_looked_for_all_at_once() -> None:
    async with open_cluster_objects() as (transport, cluster_objects):
        began = asyncio.get_running_loop().time()
        await cluster_objects.existence_by_reference(WEB, frozenset(config_map_references(8)))
        assert transport.most == 8
        assert asyncio.get_running_loop().time() - began == pytest.approx(0.01)


async def test_a_few_of_many_that_go_along_are_read_at_one_time() -> None:
    """All of them, however many: what is written is compared with each."""
    async with open_cluster_objects() as (transport, cluster_objects):
        live = await cluster_objects.read_live_state(WEB, config_map_references(30))
        assert (transport.most, transport.asked) == (8, ["web", *(one.name for one in config_map_references(30))])
        assert list(live.dependencies) == [DependencyReference("ConfigMap", "c-03")]


async def test_what_is_beyond_the_bound_is_taken_as_there_and_told_once() -> None:
    async with open_cluster_objects() as (transport, cluster_objects):
        with capture_logs() as told:
            looked = await cluster_objects.existence_by_reference(WEB, frozenset(config_map_references(30)))
            assert transport.asked == [one.name for one in config_map_references(20)]
            assert [one for one in config_map_references(30) if looked[one]] == [
                config_map_references(30)[3],
                *config_map_references(30)[20:],
            ]
            assert await cluster_objects.existence_by_reference(WEB, frozenset(config_map_references(30))) == looked
        warnings = [(one["workload"], one["count"], one["first"]) for one in told if one["log_level"] == "warning"]
        assert warnings == [("default/web", 10, "ConfigMap c-20")]


async def test_what_comes_after_one_that_is_not_answered_is_not_asked() -> None:
    async with open_cluster_objects() as (transport, cluster_objects):
        transport.failing = frozenset({"c-01"})
        with pytest.raises(ClusterUnreachable):
            await cluster_objects.existence_by_reference(WEB, frozenset(config_map_references(20)))
        await asyncio.sleep(1)
        assert transport.asked == [one.name for one in config_map_references(8)]
