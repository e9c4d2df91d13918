"""The doctor on a running platform: nothing fails, and what is broken is found by its name."""

import shutil
from pathlib import Path
from typing import Any

from .command import Command
from .running import Platform, wait_until

TRIAL = "copies"
"""One broker keeps one copy, which the doctor warns of. How full this machine's disk is, is not the platform's."""


async def _outcomes_not_ok(spillway: Command, code: int) -> dict[str, str]:
    found: list[dict[str, Any]] = await spillway.run_for_json("doctor", code=code)
    assert len(found) > 30
    return {
        check["name"]: check["outcome"] for check in found if check["outcome"] != "ok" and not _is_about_others(check)
    }


def _is_about_others(check: dict[str, Any]) -> bool:
    """Of this machine, of what other tests wrote that no service can read, or of their workloads that may go home."""
    return check["name"].startswith(("disk of", "confirmation ")) or check["text"].startswith(
        "has found unreadable records since its start"
    )


async def test_what_is_broken_is_named(platform: Platform, spillway: Command) -> None:
    """A platform that is well; a cluster that is silent; a standby that is down; a frozen fleet."""
    (spillway.folder / "run").mkdir()
    shutil.copy(platform.stack.folder / "addresses.json", spillway.folder / "run")
    assert await _outcomes_not_ok(spillway, 0) == {TRIAL: "warning"}

    platform.stack.silence_member("own-2")
    try:

        async def is_lost() -> bool:
            return (await platform.clusters_by_name())["own-2"].state != "Ready"

        await wait_until("own-2 is not Ready", is_lost)
        found = await _outcomes_not_ok(spillway, 1)
        assert found == {TRIAL: "warning", "cluster own-2": "failed", "credential own-2": "failed"}
    finally:
        platform.stack.wake_member("own-2")
    await platform.wait_until_all_ready()

    down = "planner-2" if await platform.active_planner() == "planner-1" else "planner-1"
    await platform.stop_program(down)
    await spillway("freeze", "--reason", "audit")
    try:
        found = await _outcomes_not_ok(spillway, 1)
    finally:
        await spillway("unfreeze")
        await platform.start_program(down)
    endpoint = next(name for name in found if name.startswith("planner "))
    assert endpoint.removeprefix("planner ") in platform.stack.addresses().planners
    expected = {TRIAL: "warning", endpoint: "failed", f"process {down}": "failed", "brake fleet": "warning"}
    assert found == expected


def test_addresses_name_what_the_doctor_asks(stack: Any) -> None:
    text = Path(stack.folder / "addresses.json").read_text()
    assert all(word in text for word in ("health", "redis", "credentials", "vk-bridge-2=127.0.0.1:"))
