"""Explain through the whole platform in one process: of what is, of what was decided, of what is not declared."""

import looptime  # noqa: F401 - the plugin makes an hour of waiting take milliseconds
import pytest

from planner.core.placement.replaying import replay_division
from spillway.api import (
    ApplyRequest,
    DeleteRequest,
    ExplainRequest,
    GetRequest,
    ListRequest,
    RequestError,
    ScaleRequest,
)
from spillway_local.fleet_plan import deployment
from spillway_local.in_process import InProcess, in_process_platform

from .platform_steps import NAMESPACE, join_members, wait_until

pytestmark = pytest.mark.looptime


async def fill_clusters(platform: InProcess) -> None:
    """A workload of which some replicas have no place, and all others run."""
    await join_members(platform)
    planner = platform.planner()
    reply = await planner.apply(ApplyRequest((deployment("web", NAMESPACE, 20),)))
    assert reply.unplaced == 0
    reply = await planner.scale(ScaleRequest(NAMESPACE, "web", 700))
    assert reply.unplaced

    async def are_all_running() -> bool:
        is_known = not planner.state.unbound_places()
        statuses = (await planner.get(GetRequest(NAMESPACE, "web"))).statuses
        return is_known and sum(status.available for status in statuses) == 700 - reply.unplaced

    await wait_until(are_all_running, "all that have a place run, and the planner knows it")


async def test_what_waits_is_explained_and_a_planned_change_lets_it_in() -> None:
    """By name, while its pods run: they are told apart from others, and thought away."""
    async with in_process_platform() as platform:
        await fill_clusters(platform)
        planner = platform.planner()
        before = await planner.list(ListRequest())
        reply = await planner.explain(ExplainRequest(NAMESPACE, "web"))
        assert (await planner.list(ListRequest())) == before
        own = next(entry for entry in reply.clusters if entry.cluster == "own-2")
        assert sum(reason.nodes for reason in own.reasons) == own.nodes == 8
        assert {reason.filter for reason in own.reasons} == {"NodeResourcesFit", "TaintToleration"}
        kinds = {change.kind: change for change in reply.changes}
        assert kinds["Request"].placed_after == 700
        assert "gpu=only" in kinds["Toleration"].text
        lower = deployment("web", NAMESPACE, 700, cpu=f"{kinds['Request'].after}m")
        supposed = await planner.explain(ExplainRequest(manifests=(lower,)))
        assert supposed.name == "web"


async def test_a_past_decision_is_explained_by_its_generation() -> None:
    async with in_process_platform() as platform:
        await fill_clusters(platform)
        planner = platform.planner()
        history: tuple[str, ...] = ()

        async def has_two_decisions() -> bool:
            nonlocal history
            found = (await planner.get(GetRequest(NAMESPACE, "web", 10))).history
            history = tuple(str(record.generation) for record in found if record.cause in ("Apply", "Scale"))
            return len(history) == 2

        await wait_until(has_two_decisions, "both decisions are in the store")
        first = await planner.explain(ExplainRequest(NAMESPACE, "web", decision=history[1]))
        assert (first.cause, first.replicas, first.unplaced) == ("Apply", 20, 0)
        with pytest.raises(RequestError) as refused:
            await planner.explain(ExplainRequest(NAMESPACE, "web", decision="1.1"))
        assert refused.value.code == "NOT_FOUND"
        assert history[0] in refused.value.text


async def test_the_history_of_what_was_deleted_can_still_be_asked_and_divided_again() -> None:
    """After it is gone, and once its tombstones are written, and where the store is away it is just not there."""
    async with in_process_platform() as platform:
        await join_members(platform)
        planner = platform.planner()
        await planner.apply(ApplyRequest((deployment("web", NAMESPACE, 20),)))
        await planner.delete(DeleteRequest(NAMESPACE, "web"))

        async def is_gone() -> bool:
            return (await planner.get(GetRequest(NAMESPACE, "web", 10))).gone

        await wait_until(is_gone, "every cluster says that it is gone")
        history = (await planner.get(GetRequest(NAMESPACE, "web", 10))).history
        assert [record.cause for record in history] == ["Delete", "Apply"]
        assert replay_division(history[1]).is_same
        for available, text in ((True, "the last decision on it was Delete"), (False, "not declared")):
            platform.store.available = available
            with pytest.raises(RequestError, match=text) as refused:
                await planner.get(GetRequest(NAMESPACE, "web"))
            assert refused.value.code == "NOT_FOUND"
