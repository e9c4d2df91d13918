"""What the check of sizes at rest says of a few decisions."""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest

from planner.core.manifests.policy import DEFAULT_POLICY
from spillway.events import PlacementDecided, WorkloadDeclared
from spillway.model import Generation
from spillway_simulation.brownfield import NAMESPACE
from spillway_simulation.oracle import Known
from spillway_simulation.scalers import count_falls, judge_scaling_at_rest
from spillway_simulation.scaling_script import HEADROOM, Scaled
from spillway_simulation.world import World

NAME, OTHER = "web", "batch"
SIZES = (14, 11, 8, 6, 4, 3, 2, 1, 0)
"""Those after 18 replicas with a share of 80 percent, where another workload takes what is left: seed 887174."""
APART = 36.0
"""The seconds between two of these sizes in that seed."""


@dataclass
class FakeWorld:
    """Has as many replicas of a workload that follows what is idle, and unplaced ones of another workload."""

    replicas: int
    unplaced: int
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        declared = WorkloadDeclared(
            NAMESPACE, NAME, "Deployment", 1, 1, b"", self.replicas, DEFAULT_POLICY, (), (), (), False
        )
        placement = PlacementDecided(NAMESPACE, OTHER, Generation(0, 1), 1, (), self.unplaced, "")
        self.loop = asyncio.get_running_loop()
        self.clusters: dict[str, object] = {}
        self.script = SimpleNamespace(scaled=(Scaled(NAME, HEADROOM, 0, 80, (), (), (), 0.0, 0.0),), faults=())
        self.scaling = SimpleNamespace(last_decision_at=-1.0)
        self.oracle = SimpleNamespace(
            scaling=self.scaling,
            workloads={(NAMESPACE, NAME): Known(declared=declared), (NAMESPACE, OTHER): Known(placement=placement)},
            note_violation=self.said.append,
        )

    async def note_scale_decisions(self, times: int) -> None:
        """Decides so often, in the pace of that seed."""
        for _ in range(times):
            await asyncio.sleep(APART)
            self.scaling.last_decision_at = self.loop.time()


async def said_of(decisions: int, replicas: int = 18, unplaced: int = 1) -> list[str]:
    world = FakeWorld(replicas, unplaced)
    task = asyncio.ensure_future(world.note_scale_decisions(decisions))
    await judge_scaling_at_rest(cast(World, world), world.loop.time())
    task.cancel()
    return world.said


@pytest.mark.parametrize(
    ("replicas", "percent", "falls"), [(18, 80, len(SIZES)), (20, 50, 5), (18, 100, 0), (0, 80, 0)]
)
def test_a_size_falls_by_what_its_share_leaves_to_others(replicas: int, percent: int, falls: int) -> None:
    assert count_falls(0, replicas, percent) == falls


def test_a_size_falls_to_its_minimum() -> None:
    assert count_falls(4, 18, 80) == 5


@pytest.mark.looptime
async def test_a_size_falls_for_as_long_as_others_take_what_it_leaves() -> None:
    """Seed 887174: the last of these falls came more than 300 s after the last fault."""
    assert len(SIZES) * APART > 300
    assert await said_of(decisions=len(SIZES)) == []


@pytest.mark.looptime
async def test_a_size_that_never_rests_is_said() -> None:
    (said,) = await said_of(decisions=100)
    assert "at constant load more than 360 s after all faults" in said


@pytest.mark.looptime
@pytest.mark.parametrize(("replicas", "unplaced"), [(18, 0), (5, 1)])
async def test_a_size_that_has_no_such_falls_left_rests_as_before(replicas: int, unplaced: int) -> None:
    """Nobody waits, or few replicas are left to give away."""
    (said,) = await said_of(decisions=len(SIZES), replicas=replicas, unplaced=unplaced)
    assert "at constant load more than 300 s after all faults" in said
