"""Back up and restore as docs/operations.md has it: the platform is stopped, Kafka's folder copied, lost, put back."""

import asyncio
import shutil
from pathlib import Path

from spillway.api import ApplyRequest, ScaleRequest
from spillway_local.fleet_plan import deployment

from .running import NAMES, NAMESPACE, Platform, wait_until


async def _running_pod_uids(platform: Platform) -> set[str]:
    """uids of the pods of web, in all members."""
    return {pod["metadata"]["uid"] for name in NAMES for pod in (await platform.pod_counts(name, "web")).bound}


async def test_what_was_placed_is_placed_again_from_a_copy_of_kafkas_folder_alone(
    platform: Platform, tmp_path: Path
) -> None:
    """Redis is lost too. The same placements, the same pods; then work goes on."""
    await platform.planner.apply(ApplyRequest((deployment("web", NAMESPACE, 30),)))

    async def is_running(replicas: int) -> bool:
        return len(await _running_pod_uids(platform)) == replicas

    await wait_until("30 replicas run", lambda: is_running(30))
    before, pods = await platform.placed_replicas_by_cluster("web"), await _running_pod_uids(platform)

    folder = platform.stack.folder
    await asyncio.to_thread(platform.stack.stop)
    await asyncio.to_thread(shutil.copytree, folder / "kafka", tmp_path / "backup")
    for name in ("kafka", "redis"):
        await asyncio.to_thread(shutil.rmtree, folder / name)
    await asyncio.to_thread(shutil.copytree, tmp_path / "backup", folder / "kafka")
    await asyncio.to_thread(platform.stack.start)
    await platform.wait_until_all_ready()

    assert await platform.placed_replicas_by_cluster("web") == before
    assert await _running_pod_uids(platform) == pods
    await platform.planner.scale(ScaleRequest(NAMESPACE, "web", 40))
    await wait_until("40 replicas run", lambda: is_running(40))
    assert await _running_pod_uids(platform) > pods
