"""What a start reads: of each block the last record, and the changes from where those that are in effect stand."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.state import PlannerState
from planner.core.manifests.templates import BadDeclaration
from planner.core.requests import decisions
from planner.log.intake import PlannerIntake, follower_into
from spillway.addresses import CAPACITY_CHANGES, WORKLOADS, Tombstone, capacity_address
from spillway.api import ApplyRequest
from spillway.bus import Offsets, Record, RecordBatch
from spillway.columns import columns_of
from spillway.events import CapacityReported, WorkloadDeclared
from spillway.feasibility.cluster_view import NEVER
from spillway.local_bus import LocalBroker, LocalBus
from spillway.model import Policy, Strategy
from spillway.running.following import Follower
from spillway.wire import pack_columns

from .builders import Fleet, capacity_changed, deployment, joined_cluster, manifest_texts, node_row, placement_policy

pytestmark = pytest.mark.looptime

UNREADABLE = b"neither Zstandard nor columns"


class Start(PlannerIntake):
    """A start of which is noted from where it reads changes. bus: of one cluster, `a`."""

    def __init__(self) -> None:
        super().__init__(PlannerState(PlannerRules()), lambda: self.clock, lambda records, positions: None)
        self.clock = 1.0
        self.changes_from: list[int] = []

    def start_offsets(self, ends: Offsets) -> Offsets:
        starts = super().start_offsets(ends)
        self.changes_from = list(starts.values())
        return starts

    async def end_batch(self, batch: RecordBatch, positions: Offsets) -> None:
        pass


async def started_intake(bus: LocalBus) -> Start:
    intake = Start()
    follower: Follower = follower_into(intake, bus)
    running = asyncio.create_task(follower.run())
    await follower.wait_until_caught_up()
    running.cancel()
    await asyncio.wait({running})
    return intake


def capacity_block(
    as_of: int, *names: str, epoch: int = 1, index: int = 0, count: int = 1, sequence: int = 0
) -> CapacityReported:
    columns = pack_columns(columns_of([node_row(name) for name in names])) if names else UNREADABLE
    return CapacityReported("a", epoch, index, count, sequence, as_of, columns, ())


def known_node_names(start: Start) -> set[str]:
    return {name for name in start.state.clusters["a"].nodes.names if name}


@pytest.fixture
def bus() -> LocalBus:
    return LocalBus(LocalBroker(), "f-1", "test")


async def test_of_each_block_the_last_record_is_unpacked_and_changes_are_read_from_there(bus: LocalBus) -> None:
    await bus.publish(joined_cluster("a"), capacity_block(0), capacity_block(1, "n1", sequence=2))
    await bus.publish(*(capacity_changed("a", sequence) for sequence in (1, 2, 3)))
    start = await started_intake(bus)
    assert (known_node_names(start), start.changes_from) == ({"n1"}, [1])
    assert not start.state.clusters["a"].is_incomplete


async def test_a_block_of_an_epoch_that_is_over_says_nothing_of_where_to_begin(bus: LocalBus) -> None:
    """Its tombstone may be on its way."""
    await bus.publish(joined_cluster("a"), capacity_block(0, "n1", count=2), capacity_block(0, "n2", index=1, count=2))
    await bus.publish(*(capacity_changed("a", 0, epoch=2) for _ in range(7)), capacity_block(7, "n3", epoch=2))
    start = await started_intake(bus)
    assert (known_node_names(start), start.changes_from) == ({"n3"}, [7])


async def test_of_blocks_of_two_epochs_neither_is_in_effect_and_changes_are_read_for_both(bus: LocalBus) -> None:
    await bus.publish(
        joined_cluster("a"), capacity_block(3, "n1", index=1, count=2), capacity_block(4, "n2", epoch=2, count=2)
    )
    await bus.publish(*(capacity_changed("a", 0, epoch=2) for _ in range(5)))
    start = await started_intake(bus)
    assert (known_node_names(start), start.changes_from) == (set(), [3])


@pytest.mark.parametrize(
    ("caught_up_at", "live", "age_seconds"),
    [(11.0, True, 9.1), (20.0, True, 0.1), (NEVER, True, None), (20.0, False, None)],
    ids=["the planner was frozen", "all was read a moment ago", "not known to have been at the end", "a start"],
)
async def test_a_change_is_older_by_the_time_for_which_nobody_read_it(
    bus: LocalBus, caught_up_at: float, live: bool, age_seconds: float | None
) -> None:
    await bus.publish(joined_cluster("a"), capacity_block(0, "n1"))
    start = await started_intake(bus)
    start.clock, start.caught_up_at = 20.0, caught_up_at
    start.apply_record(Record(CAPACITY_CHANGES.name, 0, 1, "a", capacity_changed("a", 1, epoch=1, age_ms=100)), live)
    found = start.state.cluster_view("a").age_seconds(20.0)
    assert found == (age_seconds and pytest.approx(age_seconds))


async def test_what_is_left_of_a_cluster_that_left_is_not_looked_at(bus: LocalBus) -> None:
    await bus.publish(capacity_block(0, "n1"), Tombstone(capacity_address("a", 0)))
    start = await started_intake(bus)
    assert (list(start.state.clusters), start.changes_from) == ([], [])


@pytest.mark.parametrize(
    ("changed_policy", "words"),
    [
        (lambda found: replace(found, tiers=(replace(found.tiers[0], split="Newest"),)), "split 'Newest' of tier all"),
        (lambda found: replace(found, strategy=Strategy("Newest")), "strategy 'Newest'"),
    ],
    ids=["split", "strategy"],
)
def test_a_policy_of_a_later_version_is_a_record_that_cannot_be_read(
    changed_policy: Callable[[Policy], Policy], words: str
) -> None:
    """Or the first decision on it would end a planner that is put back, and each one after it."""
    fleet = Fleet(own_1=[node_row("a")])
    asked = ApplyRequest(manifest_texts(deployment(1), placement_policy(ownFirst=False)))
    declared = decisions.decide_apply(fleet.state, asked, fleet.next_moment()).events[0]
    assert isinstance(declared, WorkloadDeclared)
    event = replace(declared, policy=changed_policy(declared.policy))
    with pytest.raises(BadDeclaration, match=words):
        Start().apply_record(Record(WORKLOADS.name, 0, 0, "default/web", event), live=True)
