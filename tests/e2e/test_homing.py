"""Peak, overflow, quiet, home: what went to the cloud comes back once own clusters have had room for a while."""

import pytest

from planner.core.knowledge.allowance import CAUSE_HOME
from spillway.api import ApplyRequest, GetRequest, ScaleRequest
from spillway_local.fleet_plan import FLEET, deployment

from .running import NAMESPACE, REAL_MEMBERS, Platform, wait_until

OWN_ROOM = sum(member.room for member in FLEET if member.tier == "own")
BATCH_QUIET, BATCH_PEAK = 40, 100
OVERFLOW = 24
"""Below a tenth of the fleet's replicas in quiet times: no confirmation is asked for."""
WEB_QUIET, WEB_PEAK = 160, OWN_ROOM - BATCH_PEAK + OVERFLOW
HOME_SECONDS = 150.0
"""A planner's turn sends none home in its first minute."""
MOVED = f'spillway_replicas_moved_total{{cause="{CAUSE_HOME}"}}'


@REAL_MEMBERS
@pytest.mark.timeout(500)
async def test_peak_overflow_quiet_home(fleet: Platform) -> None:
    """Each replica that overflowed goes home once, no other one moves, and never are fewer ready than declared."""
    await fleet.planner.apply(ApplyRequest((deployment("batch", NAMESPACE, BATCH_QUIET),)))
    await fleet.planner.apply(ApplyRequest((deployment("web", NAMESPACE, WEB_QUIET),)))
    quiet = await fleet.wait_until_running("web", WEB_QUIET)
    assert "cloud-1" not in quiet
    moved = await fleet.counter_value(MOVED)

    await fleet.planner.scale(ScaleRequest(NAMESPACE, "batch", BATCH_PEAK))
    assert "cloud-1" not in await fleet.wait_until_running("batch", BATCH_PEAK)
    await fleet.planner.scale(ScaleRequest(NAMESPACE, "web", WEB_PEAK))
    peak = await fleet.wait_until_running("web", WEB_PEAK)
    assert peak["cloud-1"] == OVERFLOW
    before = {name: {pod["metadata"]["uid"] for pod in await fleet.list_pods(name, "web")} for name in peak}

    async with fleet.watch_pods_of_app("web") as seen:
        await wait_until("the watches tell of every pod", lambda: _has_seen_all_uids(seen.uids, before))
        await fleet.planner.scale(ScaleRequest(NAMESPACE, "batch", BATCH_QUIET))
        await wait_until(
            "the cloud has no pod of web", lambda: _is_cloud_empty(fleet), HOME_SECONDS, lambda: seen.fewest_ready
        )
        home = await fleet.wait_until_running("web", WEB_PEAK)
    after = {name: {pod["metadata"]["uid"] for pod in await fleet.list_pods(name, "web")} for name in home}
    print(f"\nquiet {quiet}, peak {peak}, home {home}, fewest ready meanwhile {seen.fewest_ready} of {WEB_PEAK}")

    assert "cloud-1" not in home
    assert seen.fewest_ready == WEB_PEAK
    assert seen.uids["cloud-1"] == before["cloud-1"], "none came to the cloud meanwhile"
    assert all(before[name] <= after[name] for name in home), "who was at home is the same as before"
    arrived = {name: seen.uids[name] - before[name] for name in home}
    assert sum(len(uids) for uids in arrived.values()) == OVERFLOW, "one new pod for each that overflowed"
    assert await fleet.counter_value(MOVED) - moved == OVERFLOW
    assert await _replicas_sent_home(fleet) == OVERFLOW


async def _has_seen_all_uids(uids: dict[str, set[str]], before: dict[str, set[str]]) -> bool:
    return all(before[name] <= uids[name] for name in before)


async def _is_cloud_empty(fleet: Platform) -> bool:
    return not await fleet.list_pods("cloud-1", "web")


async def _replicas_sent_home(fleet: Platform) -> int:
    """Replicas that decisions with the cause Home took from the cloud."""
    history = (await fleet.planner.get(GetRequest(NAMESPACE, "web", history=50))).history
    inputs = [entry for record in history if record.cause == CAUSE_HOME for entry in record.inputs]
    return sum(entry.before - entry.after for entry in inputs if entry.cluster == "cloud-1")
