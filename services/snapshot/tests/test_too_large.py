"""A cluster that has more than a record holds: it costs itself, and no other cluster, and ends when it shrinks."""

import asyncio
from random import Random
from typing import Any

import pytest

from sim.rest import SimTransport
from sim.settings import NodeSpec
from snapshot.core import capacity_stream as streams
from snapshot.core.collection import Collection, UnwrittenRecord
from snapshot.core.rules import SnapshotRules
from spillway.clusters.api import NAMESPACES, ClusterApi, ClusterApiSettings
from spillway.events import CapacityReported
from spillway.troubles import TroubleCode
from spillway.wire import pack_columns

pytestmark = pytest.mark.looptime
LABEL_VALUE = "v" * 63
LABELS = {f"{number}.{'k' * 200}.example.com/{'n' * 63}": LABEL_VALUE for number in range(400)}
"""Some 140 kB."""


def api_of_cluster(fleet: Any, name: str) -> ClusterApi:
    return ClusterApi(SimTransport(fleet.clusters[name]), name, ClusterApiSettings())


async def create_labelled_namespaces(fleet: Any, cluster: str, namespaces: int) -> list[Any]:
    api = api_of_cluster(fleet, cluster)
    made = []
    for number in range(namespaces):
        metadata = {"name": f"team-{number}", "labels": LABELS}
        made.append(await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
    return made


async def test_a_cluster_that_no_record_holds_says_so_ages_and_disturbs_no_other(make_fleet: Any) -> None:
    async with make_fleet() as fleet:
        await fleet.join_cluster("own-1")
        await fleet.join_cluster("own-2")
        await create_labelled_namespaces(fleet, "own-1", 20)
        fleet.start("s1")
        await asyncio.sleep(30)
        large, other = fleet.reader_of_cluster("own-1"), fleet.reader_of_cluster("own-2")
        assert large.trouble.startswith("capacity: unwritable: CapacityReported own-1/0: ")
        assert "in namespaces: expected at most" in large.trouble
        assert (large.epoch, fleet.events_of_kind("own-1", CapacityReported)) == (-1, [])
        assert (len(other.row_by_node), other.trouble, other.age_ms < 3_000) == (3, "", True)


async def test_what_was_known_stands_and_grows_old_until_it_fits_again(make_fleet: Any) -> None:
    async with make_fleet() as fleet:
        await fleet.join_cluster("own-1")
        fleet.start("s1")
        await asyncio.sleep(5)
        made = await create_labelled_namespaces(fleet, "own-1", 20)
        await asyncio.sleep(40)
        reader = fleet.reader_of_cluster("own-1")
        assert (len(reader.row_by_node), reader.trouble[:21]) == (3, "capacity: unwritable:")
        assert reader.trouble_code == TroubleCode.UNWRITABLE
        assert 35_000 < reader.age_ms < 45_000
        for one in made:
            await api_of_cluster(fleet, "own-1").delete(
                NAMESPACES, "", one["metadata"]["name"], uid=one["metadata"]["uid"]
            )
        await asyncio.sleep(70)
        reader = fleet.reader_of_cluster("own-1")
        assert (len(reader.row_by_node), reader.trouble, reader.fulls, reader.age_ms < 3_000) == (3, "", 2, True)


@pytest.mark.parametrize(("bytes_over", "is_split"), [(1, True), (200_000, True), (290_000, False), (0, False)])
def test_more_blocks_are_made_where_that_helps(bytes_over: int, is_split: bool) -> None:
    """What stands beside the columns stays in block 0: where that alone is too much no claim helps."""
    core = Collection("own-1", "f1", SnapshotRules(), pack_columns)
    core.begin_epoch(7, 0.0)
    block = CapacityReported("own-1", 7, 0, 1, 0, 0, b"x" * 300_000, ())
    core.note_unwritable_records([UnwrittenRecord(block, "CapacityReported own-1/0: why", bytes_over)], 0.0)
    assert (core.needs_claim, bool(core.cluster_sign(0.0).trouble.text)) == (is_split, not is_split)


def test_none_is_made_where_there_may_be_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "BLOCKS_BESIDE_NODES_MAX", 1)
    core = Collection("own-1", "f1", SnapshotRules(), pack_columns)
    core.begin_epoch(7, 0.0)
    block = CapacityReported("own-1", 7, 0, 1, 0, 0, b"x" * 300_000, ())
    core.note_unwritable_records([UnwrittenRecord(block, "CapacityReported own-1/0: why", 1)], 0.0)
    assert not core.needs_claim
    assert core.cluster_sign(0.0).trouble == (
        TroubleCode.UNWRITABLE,
        "capacity: unwritable: CapacityReported own-1/0: why",
    )


async def test_a_cluster_of_more_resources_than_its_blocks_have_room_for_ages_and_disturbs_no_other(
    make_fleet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "AMOUNTS_MAX", 20)
    monkeypatch.setattr(streams, "BLOCKS_BESIDE_NODES_MAX", 0)
    async with make_fleet() as fleet:
        await fleet.join_cluster("own-1", nodes=20)
        await fleet.join_cluster("own-2")
        fleet.start("s1")
        await asyncio.sleep(30)
        large, other = fleet.reader_of_cluster("own-1"), fleet.reader_of_cluster("own-2")
        assert large.trouble.startswith("capacity: unwritable: CapacityReported own-1/")
        assert (large.trouble_code, large.epoch) == (TroubleCode.UNWRITABLE, -1)
        assert (len(other.row_by_node), other.trouble, other.age_ms < 3_000) == (3, "", True)
        assert len(fleet.turn_claims("own-1")) < 5


async def test_nodes_go_into_more_blocks_where_namespaces_need_the_room(make_fleet: Any) -> None:
    async with make_fleet() as fleet:
        cluster = await fleet.join_cluster("own-1", nodes=1)
        random = Random(1)
        for number in range(40):
            labels = {f"k{each}": random.randbytes(31).hex() for each in range(400)}
            cluster.add_nodes([NodeSpec(f"n{number}-", labels=labels)])
        await create_labelled_namespaces(fleet, "own-1", 12)
        fleet.start("s1")
        await asyncio.sleep(30)
        reader = fleet.reader_of_cluster("own-1")
        assert (len(reader.row_by_node), reader.trouble) == (41, "")
        assert len(reader.rows) > 1
        (first,) = (
            one for one in fleet.events_of_kind("own-1", CapacityReported)[-len(reader.rows) :] if one.index == 0
        )
        assert len(first.namespaces) >= 12
