"""Many in one batch, and the questions that change nothing: explain, replay, simulate; on real Kafka."""

from typing import Any

from spillway.api import ApplyRequest, GetRequest, ScaleRequest
from spillway_local.fleet_plan import FLEET, deployment

from .command import Command
from .running import NAMESPACE, Platform, wait_until

ROOM = sum(member.room for member in FLEET)


async def test_apply_of_many_files_names_who_is_refused(spillway: Command) -> None:
    """One line for each: the others are declared."""
    texts = [deployment("web", NAMESPACE, 20), deployment("giant", NAMESPACE, 1, cpu="900")]
    (spillway.folder / "many.yaml").write_text("\n---\n".join(texts))
    reply = await spillway.run_for_json("apply", "-f", "many.yaml", code=1)
    assert [answer["code"] for answer in reply["answers"]] == ["OK", "FAILED_PRECONDITION"]
    assert [entry["placement"]["name"] for entry in await spillway.run_for_json("list")] == ["web"]


async def test_a_past_decision_is_replayed_bit_for_bit_by_planners_that_began_anew(
    platform: Platform, spillway: Command
) -> None:
    """What replay and explain say of a scale-out beyond the room, and of a scale-in, before both died and after."""
    await platform.planner.apply(ApplyRequest((deployment("past", NAMESPACE, 20),)))
    await platform.wait_until_running("past", 20)
    for replicas in (400, ROOM + 32, 80):
        await platform.planner.scale(ScaleRequest(NAMESPACE, "past", replicas))
        await platform.wait_until_running("past", min(replicas, ROOM))
    decisions = (await _wait_for_decisions(platform, 4))[:2]
    before = [await _answers_about_decision(spillway, decision) for decision in decisions]
    for name in ("planner-1", "planner-2"):
        platform.kill_program(name)
    for name in ("planner-1", "planner-2"):
        await platform.wait_until_up(name)
    await platform.wait_until_all_ready()
    assert [await _answers_about_decision(spillway, decision) for decision in decisions] == before
    assert all(replayed["same"] and replayed["recorded"] == replayed["recomputed"] for replayed, _ in before)
    assert [explained["unplaced"] for _, explained in before] == [0, 32]
    text = await spillway("replay", "past", "--decision", decisions[1])
    assert "the same result, byte by byte" in text


async def test_a_simulation_says_what_the_platform_then_does(platform: Platform, spillway: Command) -> None:
    """By the running planner's state and by a file of it, refusals included; a cluster less moves what is there."""
    await platform.planner.apply(ApplyRequest((deployment("first", NAMESPACE, 60),)))
    first = await platform.wait_until_running("first", 60)
    names = {"search": "500m", "giant": "900", "wide": "3"}
    texts = [deployment(name, NAMESPACE, 150, cpu=cpu) for name, cpu in names.items()]
    (spillway.folder / "more.yaml").write_text("\n---\n".join(texts))
    said = await spillway.run_for_json("simulate", "-f", "more.yaml", code=1)
    await spillway("export", "fleet.gz")
    filed = await spillway.run_for_json("simulate", "--state", "fleet.gz", "-f", "more.yaml", code=1)
    assert (filed["answers"], filed["workloads"]) == (said["answers"], said["workloads"])
    without = await spillway.run_for_json("simulate", "--state", "fleet.gz", "--without", "own-2")
    assert [(entry["before"], entry["after"]) for entry in without["workloads"]] == [(first, {"own-1": 60})]
    assert [workload.placement.name for workload in await platform.list_workloads()] == ["first"]

    done = await spillway.run_for_json("apply", "-f", "more.yaml", code=1)
    assert [_replicas_by_cluster(answer) for answer in done["answers"]] == [
        answer["clusters"] for answer in said["answers"]
    ]
    assert [bool(answer["error"]) for answer in done["answers"]] == [False, True, False]
    assert done["answers"][1]["error"] in said["answers"][1]["refused"]


def _replicas_by_cluster(answer: Any) -> dict[str, int]:
    parts = (answer["placement"] or {"parts": ()})["parts"]
    return {part["cluster"]: part["replicas"] for part in parts if part["replicas"]}


async def _wait_for_decisions(platform: Platform, count: int) -> list[str]:
    """The newest first: decisions that a person's request made, once the store has all of them."""
    found: list[str] = []

    async def is_complete() -> bool:
        history = (await platform.planner.get(GetRequest(NAMESPACE, "past", history=100))).history
        found[:] = [str(record.generation) for record in history if record.cause in ("Apply", "Scale")]
        return len(found) == count

    await wait_until(f"{count} decisions are in the history", is_complete, so_far=lambda: found)
    return found


async def _answers_about_decision(spillway: Command, decision: str) -> tuple[Any, Any]:
    """What replay and explain say of a decision, whichever planner is asked."""
    replayed = await spillway.run_for_json("replay", "past", "--decision", decision)
    explained = await spillway.run_for_json("explain", "past", "--decision", decision)
    del explained["stale"]
    return replayed, explained
