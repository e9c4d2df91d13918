"""A cluster that has more than a record holds: it costs itself, and no other cluster, and ends when it shrinks."""

import asyncio
from typing import Any

import pytest

from sim.rest import SimTransport
from spillway.clusters.api import NAMESPACES, ClusterApi, ClusterApiSettings
from spillway.events import CapacityReported

pytestmark = pytest.mark.looptime
LABEL_VALUE = "v" * 63
LABELS = {f"{number}.{'k' * 200}.example.com/{'n' * 63}": LABEL_VALUE for number in range(400)}
"""Some 140 kB."""


def api_of(fleet: Any, name: str) -> ClusterApi:
    return ClusterApi(SimTransport(fleet.clusters[name]), name, ClusterApiSettings())


async def label(fleet: Any, cluster: str, namespaces: int) -> list[Any]:
    api = api_of(fleet, cluster)
    made = []
    for number in range(namespaces):
        metadata = {"name": f"team-{number}", "labels": LABELS}
        made.append(await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
    return made


async def test_a_cluster_that_no_record_holds_says_so_ages_and_disturbs_no_other(make_fleet: Any) -> None:
    async with make_fleet() as fleet:
        await fleet.join("own-1")
        await fleet.join("own-2")
        await label(fleet, "own-1", 20)
        fleet.start("s1")
        await asyncio.sleep(30)
        large, other = fleet.reader("own-1"), fleet.reader("own-2")
        assert large.trouble.startswith("capacity: unwritable: CapacityReported own-1/0: ")
        assert "in namespaces: expected at most" in large.trouble
        assert (large.epoch, fleet.events("own-1", CapacityReported)) == (-1, [])
        assert (len(other.nodes), other.trouble, other.age_ms < 3_000) == (3, "", True)


async def test_what_was_known_stands_and_grows_old_until_it_fits_again(make_fleet: Any) -> None:
    async with make_fleet() as fleet:
        await fleet.join("own-1")
        fleet.start("s1")
        await asyncio.sleep(5)
        made = await label(fleet, "own-1", 20)
        await asyncio.sleep(40)
        reader = fleet.reader("own-1")
        assert (len(reader.nodes), reader.trouble[:21]) == (3, "capacity: unwritable:")
        assert 35_000 < reader.age_ms < 45_000
        for one in made:
            await api_of(fleet, "own-1").delete(NAMESPACES, "", one["metadata"]["name"], uid=one["metadata"]["uid"])
        await asyncio.sleep(70)
        reader = fleet.reader("own-1")
        assert (len(reader.nodes), reader.trouble, reader.fulls, reader.age_ms < 3_000) == (3, "", 2, True)
