"""Measures the join of the big cluster: the time until all its blocks are in the log, and the services' memory."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from snapshot.core.cluster_state import KINDS, WORKLOAD_KINDS
from snapshot.core.workloads import FLEET_LABEL
from spillway.addresses import CAPACITY, CAPACITY_CHANGES
from spillway.api import ClusterReply, JoinClusterRequest
from spillway.bus import Record
from spillway.clusters.api import ClusterApiSettings
from spillway.clusters.credentials import Endpoint
from spillway.events import CapacityReported, TurnTaken
from spillway.kafka.bus import KafkaBus

from .big_member import POD_CPU_MILLIS
from .figures import Measured, Unmeasured, percentile
from .machine import Memory, memory_of
from .rig import BIG, EMPTY, Rig

DOWNLOADS = 3
SETTLE_SECONDS = 3.0
"""The wait after the first blocks, in which a collector can release the memory that only the list needed."""
_LOG_SECONDS = 60.0


@dataclass(slots=True)
class LogTap:
    """The records of the big cluster in the log, with the times at which they were read.

    whole_at: the time of its last block. claimed_at, holder: the time and the instance of the last turn before that.
    """

    claimed_at: float = 0.0
    holder: str = ""
    whole_at: float = 0.0
    whole: asyncio.Event = field(default_factory=asyncio.Event)
    _blocks: dict[int, set[int]] = field(default_factory=dict)

    def note_record(self, record: Record, now: float) -> None:
        match record.event:
            case TurnTaken(_, cluster, instance) if cluster == BIG and not self.whole_at:
                self.claimed_at, self.holder = now, instance
            case CapacityReported(cluster=cluster, epoch=epoch, index=index, count=count) if cluster == BIG:
                blocks = self._blocks.setdefault(epoch, set())
                blocks.add(index)
                if len(blocks) == count and not self.whole_at:
                    self.whole_at = now
                    self.whole.set()


@asynccontextmanager
async def _tap_log(bus: KafkaBus) -> AsyncIterator[LogTap]:
    tap = LogTap()
    async with bus.follow_topics((CAPACITY, CAPACITY_CHANGES)) as feed:

        async def read_records() -> None:
            async for batch in feed:
                for record in batch.records:
                    tap.note_record(record, time.monotonic())

        reading = asyncio.create_task(read_records())
        try:
            yield tap
        finally:
            reading.cancel()
            await asyncio.wait({reading})


async def measure_big_cluster(rig: Rig) -> Mapping[str, Measured]:
    """Joins the empty cluster and measures the baselines. Then joins the big cluster and measures again."""
    rig.say("an empty cluster joins; memory with it")
    await rig.client.join_cluster(JoinClusterRequest(EMPTY, EMPTY, tier="own"))
    await rig.wait_until(f"{EMPTY} reports", lambda: rig.is_cluster_ready(EMPTY), 60)
    await asyncio.sleep(SETTLE_SECONDS)
    collector, planner = await rig.collector_of(EMPTY), await rig.active_planner_program()
    collector_before, planner_before = memory_of(rig.pid_of_program(collector)), memory_of(rig.pid_of_program(planner))

    rig.say(f"a member with {rig.sizes.nodes} nodes and {rig.sizes.pods} pods starts; its pages by bare HTTP")
    await asyncio.to_thread(rig.start_big_member)
    downloads = [await download_seconds(rig.big_endpoint()) for _ in range(DOWNLOADS)]
    rig.say("bare downloads: " + ", ".join(f"{seconds:.2f} s" for seconds in downloads))

    async with rig.new_bus() as bus, _tap_log(bus) as tap:
        await asyncio.sleep(1.0)
        joined_at = time.monotonic()
        await rig.client.join_cluster(JoinClusterRequest(BIG, BIG, tier="own"))
        async with asyncio.timeout(_LOG_SECONDS):
            await tap.whole.wait()
    rig.say(f"{tap.holder} claimed it {tap.claimed_at - joined_at:.2f} s after JoinCluster was called")
    if tap.holder != collector:
        raise Unmeasured(f"{tap.holder} took {BIG}, while {collector} has {EMPTY}: there is no baseline")
    await asyncio.sleep(SETTLE_SECONDS)
    _check_cluster_is_whole(await rig.find_cluster(BIG), rig)
    base = percentile(downloads, 50)
    return {
        "collector_list_s": Measured(tap.whole_at - joined_at, base),
        "collector_list_from_claim_s": Measured(tap.whole_at - tap.claimed_at, base),
        **_memory_figures("collector", collector_before, memory_of(rig.pid_of_program(collector))),
        "planner_process_memory_mb": Measured(
            memory_of(rig.pid_of_program(planner)).resident_mb, planner_before.resident_mb
        ),
    }


def _memory_figures(who: str, before: Memory, after: Memory) -> dict[str, Measured]:
    return {
        f"{who}_memory_mb": Measured(after.resident_mb, before.resident_mb),
        f"{who}_memory_peak_mb": Measured(after.peak_mb, before.peak_mb),
    }


def _check_cluster_is_whole(found: ClusterReply | None, rig: Rig) -> None:
    """Raises Unmeasured unless the planner sees every node and all requests: half a list would be fast but wrong."""
    if found is None or found.nodes != rig.sizes.nodes:
        raise Unmeasured(f"the planner sees {found.nodes if found else 'no'} nodes of {rig.sizes.nodes}")
    expected, requested = rig.sizes.pods * POD_CPU_MILLIS, dict(found.requested).get("cpu")
    if requested != expected:
        raise Unmeasured(f"the planner sees {requested} millicores requested of {expected}")


async def download_seconds(endpoint: Endpoint) -> float:
    """Returns the seconds to list what the collector lists, page by page, parsed and then thrown away."""
    headers = {"Authorization": f"Bearer {endpoint.token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        started = time.perf_counter()
        for kind in KINDS:
            query = {"limit": str(ClusterApiSettings().page_objects)}
            if kind in WORKLOAD_KINDS:
                query["labelSelector"] = f"{FLEET_LABEL}=any"
            while True:
                url, accept = endpoint.server + kind.path(), kind.accept_header("List")
                async with session.get(url, params=query, headers={"Accept": accept}) as answer:
                    answer.raise_for_status()
                    page = json.loads(await answer.read())
                token = page["metadata"].get("continue", "")
                if not token:
                    break
                query["continue"] = token
        return time.perf_counter() - started
