"""Whose turn a cluster is: by the group and by the log. Work begins behind its claim, and ends at a higher epoch."""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from spillway import metrics
from spillway.addresses import CAPACITY_CHANGES, CLUSTERS, PENDING, Tombstone
from spillway.bus import OffsetsWentBack, Position, Record, Traces
from spillway.events import PHASE_CORDONED, ClusterJoined, ClusterLeft, Event, PodsScheduled, TurnTaken
from spillway.local_bus import LocalBroker, LocalBus
from spillway.model import Generation
from spillway.running.cluster_turns import ClusterTurn, ClusterTurns, ClusterTurnSettings, way_to_joined_cluster
from spillway.running.following import TopicReader
from spillway.running.isolation import ENDS_THE_PROCESS

pytestmark = pytest.mark.looptime

FLEET, SERVICE = "f-1", "snapshot"
TICK = 0.1
SETTINGS = ClusterTurnSettings(reclaim_seconds=10.0, finish_seconds=3.0)


@dataclass
class Worker:
    """A worker of one turn. bug: the error that run raises. finish_bug: the error that finish raises. finish_seconds:
    how long finish takes. end_seconds: how long run takes to end after it was cancelled."""

    turn: ClusterTurn
    bug: asyncio.Future[None]
    finish_seconds: float = 0.0
    end_seconds: float = 0.0
    finish_bug: Exception | None = None
    told: list[str] = field(default_factory=list)

    async def run(self) -> None:
        self.told.append("begun")
        try:
            await self.bug
        finally:
            self.told.append("cancelled")
            await asyncio.sleep(self.end_seconds)
            self.told.append("ended")

    async def finish(self) -> None:
        await asyncio.sleep(self.finish_seconds)
        if self.finish_bug is not None:
            raise self.finish_bug
        self.told.append("finished")


class SlowBus(LocalBus):
    """tells: cleared, what is published is in the log, and its writer learns that later."""

    def __init__(self, broker: LocalBroker, fleet: str, source: str) -> None:
        super().__init__(broker, fleet, source)
        self.tells = asyncio.Event()
        self.tells.set()

    async def publish(self, *events: Event | Tombstone, traces: Traces | None = None) -> tuple[Position, ...]:
        positions = await super().publish(*events, traces=traces)
        await self.tells.wait()
        return positions


class Instance:
    """The smallest service: it works at every cluster but idle ones. may_read: closed, it does not catch up.

    may_begin: unless it is so, each try to begin is refused. tried: when it was asked to begin, in the loop's time.
    """

    def __init__(self, broker: LocalBroker, name: str) -> None:
        self.bus = SlowBus(broker, FLEET, name)
        self.joined: dict[str, ClusterJoined] = {}
        self.idle: set[str] = set()
        self.read: list[Record] = []
        self.begun: list[Worker] = []
        self.may_begin = True
        self.tried: list[float] = []
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.told: list[tuple[bool, str]] = []
        self.changes = 0
        self.turns = ClusterTurns[Worker](self.bus, SERVICE, name, SETTINGS, self)
        self.turns.ready = lambda ready, reason: self.told.append((ready, reason))
        self.turns.changed = self._note_change
        self._reader = TopicReader(self.bus, (CLUSTERS, CAPACITY_CHANGES, PENDING), self._apply_record, 1.0)
        self.stopping = asyncio.Event()
        self.task = asyncio.create_task(self._run_until_stopped())

    async def _run_until_stopped(self) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one()) for one in (self._reader.run, self.turns.run)]
            await self.stopping.wait()
            await self.turns.finish()
            for task in tasks:
                task.cancel()

    def _apply_record(self, record: Record) -> None:
        self.read.append(record)
        match record.event:
            case ClusterJoined() as joined:
                self.joined[joined.cluster] = joined
                self.turns.reconsider_turns()
            case ClusterLeft(cluster):
                self.joined.pop(cluster)
                self.turns.reconsider_turns()
            case TurnTaken(cluster=cluster, instance=instance):
                self.turns.note_epoch(cluster, record.offset, instance)
            case PodsScheduled(cluster=cluster, epoch=epoch):
                self.turns.note_epoch(cluster, epoch)

    def _note_change(self) -> None:
        self.changes += 1

    def clusters_in_log(self) -> Iterable[str]:
        return self.joined

    def way_to_cluster(self, cluster: str) -> Hashable | None:
        return way_to_joined_cluster(self.joined[cluster]) if cluster in self.joined.keys() - self.idle else None

    async def wait_until_caught_up(self) -> None:
        await self._reader.wait_until_caught_up()
        await self.may_read.wait()

    def create_worker(self, turn: ClusterTurn) -> Worker:
        self.tried.append(asyncio.get_running_loop().time())
        if not self.may_begin:
            raise KeyError(turn.cluster)
        claims = [one.offset for one in self.read if one.event == TurnTaken(SERVICE, turn.cluster, self.bus.source)]
        assert turn.epoch in claims, "all before the claim, and the claim itself, have been read"
        self.begun.append(Worker(turn, asyncio.get_running_loop().create_future()))
        return self.begun[-1]

    @property
    def clusters_worked_on(self) -> set[str]:
        return set(self.turns.workers)

    def epoch_of_turn(self, cluster: str = "own-1") -> int:
        return self.turns.workers[cluster].turn.epoch

    async def stop(self) -> None:
        self.stopping.set()
        await self.task


@dataclass(slots=True)
class Fleet:
    broker: LocalBroker = field(default_factory=LocalBroker)
    running: list[Instance] = field(default_factory=list)

    def start_instance(self, name: str) -> Instance:
        self.running.append(Instance(self.broker, name))
        return self.running[-1]

    async def publish_events(self, *events: Event) -> None:
        """As other processes."""
        await LocalBus(self.broker, FLEET, "others").publish(*events)

    async def join_clusters(self, *clusters: str, credential: str = "") -> None:
        await self.publish_events(*(ClusterJoined(name, credential, "", "own", "", "", (), ()) for name in clusters))

    async def start_working_instance(self, name: str, *clusters: str) -> Instance:
        await self.join_clusters(*clusters)
        one = self.start_instance(name)
        await wait_until(lambda: one.told[-1:] == [(True, "")] and one.clusters_worked_on == set(clusters))
        return one

    async def claims_of_cluster(self, cluster: str = "own-1") -> list[tuple[str, int]]:
        """Instance and offset of each."""
        async with LocalBus(self.broker, FLEET, "others").follow_topics((CAPACITY_CHANGES,)) as feed:
            records = (await anext(aiter(feed))).records
        events = ((one.event, one.offset) for one in records)
        return [(e.instance, offset) for e, offset in events if isinstance(e, TurnTaken) and e.cluster == cluster]


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    made = Fleet()
    yield made
    for one in made.running:
        if not one.task.done():
            one.may_read.set()
            await one.stop()


async def wait_until(holds: Callable[[], object], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(TICK)


def claim_event(instance: str, cluster: str = "own-1") -> TurnTaken:
    return TurnTaken(SERVICE, cluster, instance)


def event_with_epoch(epoch: int, cluster: str = "own-1") -> PodsScheduled:
    return PodsScheduled(cluster, "default/web", epoch, 1)


# ── By the group ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_the_group_gives_is_claimed_and_the_claims_offset_is_the_epoch(fleet: Fleet) -> None:
    one = await fleet.start_working_instance("a", "own-1", "own-2")
    for cluster in ("own-1", "own-2"):
        assert await fleet.claims_of_cluster(cluster) == [("a", one.epoch_of_turn(cluster))]
    assert one.told == [(False, "reading the log"), (False, "joining the group"), (True, "")]
    await fleet.join_clusters("own-3")
    await wait_until(lambda: one.clusters_worked_on == {"own-1", "own-2", "own-3"})
    assert len(one.begun) == 3


async def test_instances_share_and_the_next_ones_epoch_is_higher(fleet: Fleet) -> None:
    names = [f"own-{number}" for number in range(6)]
    first = await fleet.start_working_instance("a", *names)
    epochs = {name: first.epoch_of_turn(name) for name in names}
    second = fleet.start_instance("b")
    await wait_until(
        lambda: second.clusters_worked_on and first.clusters_worked_on | second.clusters_worked_on == set(names)
    )
    assert first.clusters_worked_on
    assert not first.clusters_worked_on & second.clusters_worked_on
    assert all(
        second.turns.is_assigned(name) and not first.turns.is_assigned(name) for name in second.clusters_worked_on
    )
    await first.stop()
    await wait_until(lambda: second.clusters_worked_on == set(names))
    assert all(second.epoch_of_turn(name) > epochs[name] for name in names)


async def test_the_group_is_joined_once_the_log_has_been_read(fleet: Fleet) -> None:
    """Until then the others go on with all that they have."""
    first = await fleet.start_working_instance("a", "own-1", "own-2", "own-3", "own-4")
    second = fleet.start_instance("b")
    second.may_read.clear()
    await asyncio.sleep(30)
    assert len(first.clusters_worked_on) == 4
    assert second.told == [(False, "reading the log")]
    second.may_read.set()
    await wait_until(lambda: len(second.clusters_worked_on) == 2)
    assert len(first.clusters_worked_on) == 2


async def test_what_the_group_takes_away_is_let_go_though_another_turn_cannot_begin(fleet: Fleet) -> None:
    one = await fleet.start_working_instance("a", "own-1")
    one.may_read.clear()
    await fleet.join_clusters("own-2")
    await wait_until(lambda: not one.turns.is_free("own-2"))
    assert one.clusters_worked_on == {"own-1"}
    changes = one.changes
    one.bus.unavailable = True
    fleet.broker.end_sessions(one.bus)
    await asyncio.sleep(TICK)
    assert one.turns.is_free("own-1")
    assert one.turns.is_free("own-2")
    assert one.begun[0].told == ["begun", "cancelled", "ended"]
    assert one.changes == changes + 3, "the assignment, and each of two ends"
    one.bus.unavailable = False
    one.may_read.set()
    await wait_until(lambda: one.clusters_worked_on == {"own-1", "own-2"})


async def test_a_turn_that_cannot_be_claimed_is_claimed_later(fleet: Fleet) -> None:
    await fleet.join_clusters("own-1")
    one = fleet.start_instance("a")
    await wait_until(lambda: one.clusters_worked_on)
    one.bus.unavailable = True
    await asyncio.sleep(20)
    assert one.clusters_worked_on == {"own-1"}, "who is only cut off goes on until the group or the log says otherwise"
    await fleet.join_clusters("own-2")
    one.bus.unavailable = False
    await wait_until(lambda: one.clusters_worked_on == {"own-1", "own-2"})


# ── By the log ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("by_record", [False, True])
async def test_a_higher_epoch_ends_the_work_until_the_group_has_had_time_to_say_so_too(
    fleet: Fleet, by_record: bool
) -> None:
    one = await fleet.start_working_instance("a", "own-1", "own-2")
    ours = one.epoch_of_turn()
    await fleet.publish_events(event_with_epoch(ours + 1) if by_record else claim_event("other"))
    await asyncio.sleep(TICK)
    assert one.clusters_worked_on == {"own-2"}
    await asyncio.sleep(SETTINGS.reclaim_seconds - 2 * TICK)
    assert one.clusters_worked_on == {"own-2"}
    await wait_until(lambda: one.clusters_worked_on == {"own-1", "own-2"}, 4 * TICK)
    assert one.epoch_of_turn() > ours


async def test_what_was_lost_to_a_namesake_is_left_to_it_for_a_while_whatever_the_group_says(fleet: Fleet) -> None:
    """Two processes of one instance name: the group gives to the one what the other has, again and again."""
    one = await fleet.start_working_instance("a", "own-1", "own-2")
    await fleet.publish_events(claim_event("a"))
    await wait_until(lambda: one.clusters_worked_on == {"own-2"})
    for _ in range(3):
        await asyncio.sleep(SETTINGS.reclaim_seconds / 5)
        fleet.broker.end_sessions(one.bus)
        await asyncio.sleep(1)
        assert one.clusters_worked_on == {"own-2"}
    await wait_until(lambda: one.clusters_worked_on == {"own-1", "own-2"}, SETTINGS.reclaim_seconds)


async def test_a_lower_epoch_and_other_clusters_epochs_end_nothing(fleet: Fleet) -> None:
    one = await fleet.start_working_instance("a", "own-1", "own-2")
    await fleet.publish_events(
        event_with_epoch(one.epoch_of_turn()),
        event_with_epoch(one.epoch_of_turn() - 1),
        event_with_epoch(1000, "own-9"),
    )
    await asyncio.sleep(20)
    assert one.clusters_worked_on == {"own-1", "own-2"}
    assert len(one.begun) == 2


@pytest.mark.parametrize("by_record", [False, True])
async def test_a_higher_epoch_that_is_read_before_work_begins_keeps_it_from_beginning(
    fleet: Fleet, by_record: bool
) -> None:
    one = await fleet.start_working_instance("a")
    one.may_read.clear()
    await fleet.join_clusters("own-1")
    await wait_until(lambda: any(isinstance(read.event, TurnTaken) for read in one.read))
    ours = (await fleet.claims_of_cluster())[0][1]
    await fleet.publish_events(event_with_epoch(ours + 1) if by_record else claim_event("other"))
    await asyncio.sleep(1)
    one.may_read.set()
    await asyncio.sleep(1)
    assert (one.clusters_worked_on, one.begun) == (set(), [])
    await wait_until(lambda: one.clusters_worked_on == {"own-1"})
    assert one.epoch_of_turn() > ours


async def test_a_higher_epoch_that_is_read_before_the_claim_is_known_to_be_written_counts_too(fleet: Fleet) -> None:
    one = await fleet.start_working_instance("a", "own-1")
    one.idle = {"own-2"}
    await fleet.join_clusters("own-2")
    await wait_until(lambda: "own-2" in one.joined)
    one.bus.unavailable, one.idle = True, set()
    one.turns.reconsider_turns()
    await asyncio.sleep(1)
    one.turns.note_epoch("own-2", 1, "other")
    one.bus.unavailable = False
    await asyncio.sleep(SETTINGS.reclaim_seconds - 1)
    assert (one.clusters_worked_on, len(await fleet.claims_of_cluster("own-2"))) == ({"own-1"}, 1)
    await wait_until(lambda: one.clusters_worked_on == {"own-1", "own-2"})


async def test_a_claim_behind_ours_that_is_read_before_we_know_of_ours_keeps_the_work_from_beginning(
    fleet: Fleet,
) -> None:
    """Nothing is read after it that would tell: two would work there."""
    one = await fleet.start_working_instance("a", "own-1")
    one.bus.tells.clear()
    await fleet.join_clusters("own-2")
    await wait_until(lambda: one.read[-1].event == claim_event("a", "own-2"))
    await fleet.publish_events(claim_event("other", "own-2"))
    await wait_until(lambda: one.read[-1].event == claim_event("other", "own-2"))
    one.bus.tells.set()
    await asyncio.sleep(SETTINGS.reclaim_seconds - 1)
    assert (one.clusters_worked_on, len(one.begun), len(await fleet.claims_of_cluster("own-2"))) == ({"own-1"}, 1, 2)
    await wait_until(lambda: one.clusters_worked_on == {"own-1", "own-2"})


async def test_a_later_word_of_the_group_ends_the_pause_and_an_older_pause_ends_no_newer(fleet: Fleet) -> None:
    one = await fleet.start_working_instance("a", "own-1")
    await fleet.publish_events(claim_event("other"))
    await wait_until(lambda: not one.clusters_worked_on)
    await asyncio.sleep(SETTINGS.reclaim_seconds - 2)
    fleet.broker.end_sessions(one.bus)
    await wait_until(lambda: one.clusters_worked_on, 1.0)
    await fleet.publish_events(claim_event("other"))
    await wait_until(lambda: not one.clusters_worked_on)
    await asyncio.sleep(SETTINGS.reclaim_seconds - 2)
    assert not one.clusters_worked_on
    await wait_until(lambda: one.clusters_worked_on)


async def test_a_turn_may_be_claimed_once_more_and_is_lost_to_what_is_higher_still(fleet: Fleet) -> None:
    one = await fleet.start_working_instance("a", "own-1")
    (worker,) = one.begun
    before = one.epoch_of_turn()
    await one.turns.claim_turn(worker.turn)
    assert before < one.epoch_of_turn() == (await fleet.claims_of_cluster())[-1][1]
    one.bus.unavailable = True
    claiming = asyncio.create_task(one.turns.claim_turn(worker.turn))
    await asyncio.sleep(1)
    one.turns.note_epoch("own-1", one.epoch_of_turn() + 1)  # Written, and read before that is known.
    one.bus.unavailable = False
    await claiming
    await fleet.publish_events(event_with_epoch(before), event_with_epoch(one.epoch_of_turn()))
    await asyncio.sleep(20)
    assert worker.told == ["begun"]
    await fleet.publish_events(event_with_epoch(one.epoch_of_turn() + 1))
    await wait_until(lambda: not one.clusters_worked_on)


# ── Work ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_where_nothing_is_to_be_done_nothing_is_claimed(fleet: Fleet) -> None:
    one = await fleet.start_working_instance("a", "own-1")
    one.idle = {"own-2"}
    await fleet.join_clusters("own-2")
    await asyncio.sleep(5)
    assert await fleet.claims_of_cluster("own-2") == []
    one.idle = {"own-1"}
    one.turns.reconsider_turns()
    await wait_until(lambda: one.clusters_worked_on == {"own-2"})
    assert one.turns.is_free("own-1")
    await fleet.publish_events(ClusterLeft("own-2"))
    await wait_until(lambda: not one.clusters_worked_on)


async def test_what_is_read_last_before_work_begins_may_forbid_it(fleet: Fleet) -> None:
    one = await fleet.start_working_instance("a")
    one.may_read.clear()
    await fleet.join_clusters("own-1")
    await wait_until(lambda: any(isinstance(read.event, TurnTaken) for read in one.read))
    one.may_read.set()
    one.idle = {"own-1"}
    await asyncio.sleep(5)
    assert (one.begun, one.turns.is_free("own-1")) == ([], True)


async def test_another_way_to_a_cluster_is_another_turn_once_the_one_before_has_ended(fleet: Fleet) -> None:
    one = await fleet.start_working_instance("a", "own-1")
    (first,) = one.begun
    first.end_seconds = 5.0
    await fleet.join_clusters("own-1", credential="other")
    await asyncio.sleep(2)
    one.turns.reconsider_turns()
    await asyncio.sleep(2)
    assert (one.clusters_worked_on, one.turns.is_free("own-1"), first.told) == (set(), False, ["begun", "cancelled"])
    await wait_until(lambda: one.clusters_worked_on)
    assert first.told == ["begun", "cancelled", "ended"]
    assert one.epoch_of_turn() > first.turn.epoch
    await fleet.join_clusters("own-1", credential="other")
    await asyncio.sleep(5)
    assert len(one.begun) == 2
    await fleet.publish_events(ClusterJoined("own-1", "other", "https://[::1]:6443", "own", "", "", (), ()))
    await wait_until(lambda: len(one.begun) == 3)


async def test_who_left_and_joined_again_is_another_cluster_also_where_both_are_read_at_once(fleet: Fleet) -> None:
    one = await fleet.start_working_instance("a", "own-1")
    joined = ClusterJoined("own-1", "", "", "own", "", "", (), (), joined_at=Generation(3, 1))
    await fleet.publish_events(ClusterLeft("own-1"), joined)
    await wait_until(lambda: len(one.begun) == 2)
    assert one.epoch_of_turn() > one.begun[0].turn.epoch
    await fleet.publish_events(replace(joined, phase=PHASE_CORDONED))
    await asyncio.sleep(5)
    assert len(one.begun) == 2


async def test_a_stop_lets_finish_what_can_in_time_and_takes_nothing_more(fleet: Fleet) -> None:
    one = await fleet.start_working_instance("a", "own-1", "own-2")
    quick, slow = one.begun
    quick.finish_seconds, slow.finish_seconds = 2.0, 60.0
    stopping = asyncio.create_task(one.stop())
    await fleet.join_clusters("own-3")
    await asyncio.sleep(2.5)
    assert (quick.told, slow.told) == (["begun", "finished"], ["begun"])
    await stopping
    assert (quick.told[-1], slow.told) == ("ended", ["begun", "cancelled", "ended"])
    assert await fleet.claims_of_cluster("own-3") == []


async def test_what_is_claimed_when_a_stop_comes_does_not_begin(fleet: Fleet) -> None:
    one = await fleet.start_working_instance("a", "own-1")
    one.begun[0].finish_seconds = 2.0
    one.may_read.clear()
    await fleet.join_clusters("own-2")
    await wait_until(lambda: any(read.event == claim_event("a", "own-2") for read in one.read))
    stopping = asyncio.create_task(one.stop())
    await asyncio.sleep(TICK)
    one.may_read.set()
    await stopping
    assert len(one.begun) == 1


async def test_who_stops_is_in_the_group_until_its_work_has_ended(fleet: Fleet) -> None:
    names = [f"own-{number}" for number in range(6)]
    first = await fleet.start_working_instance("a", *names)
    second = fleet.start_instance("b")
    await wait_until(
        lambda: second.clusters_worked_on and first.clusters_worked_on | second.clusters_worked_on == set(names)
    )
    (name, *_), left = first.clusters_worked_on, first.turns.workers.copy()
    left[name].end_seconds = 5.0
    stopping = asyncio.create_task(first.stop())
    await wait_until(lambda: second.turns.is_assigned(name))
    assert left[name].told == ["begun", "finished", "cancelled", "ended"]
    await stopping


# ── Errors ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def failed_work_count(what: str = "cluster") -> float:
    return metrics.WORK_FAILED.labels(SERVICE, what)._value.get()


@pytest.mark.parametrize("grouped", [False, True])
async def test_an_unexpected_error_of_a_worker_costs_its_cluster_alone_which_begins_anew_after_a_pause(
    fleet: Fleet, grouped: bool
) -> None:
    one = await fleet.start_working_instance("a", "own-1", "own-2")
    before, epoch = failed_work_count(), one.epoch_of_turn()
    error = ZeroDivisionError("of one cluster")
    with capture_logs() as said:
        one.begun[0].bug.set_exception(ExceptionGroup("in a task group", [error]) if grouped else error)
        await asyncio.sleep(TICK)
    assert (one.clusters_worked_on, one.turns.is_free("own-1"), failed_work_count()) == ({"own-2"}, True, before + 1)
    (line,) = [line for line in said if line["log_level"] == "error"]
    assert (line["cluster"], line["service"]) == ("own-1", SERVICE)
    assert isinstance(line["exc_info"], Exception)
    one.turns.reconsider_turns()
    await asyncio.sleep(SETTINGS.failed_first_seconds / 2)
    assert one.clusters_worked_on == {"own-2"}
    await wait_until(lambda: one.clusters_worked_on == {"own-1", "own-2"}, SETTINGS.failed_first_seconds)
    assert one.epoch_of_turn() > epoch
    assert len(one.begun) == 3


async def test_who_cannot_even_begin_is_tried_again_after_longer_and_longer_pauses_up_to_a_longest(
    fleet: Fleet,
) -> None:
    one = await fleet.start_working_instance("a", "own-1")
    one.may_begin = False
    one.tried.clear()
    await fleet.join_clusters("own-2")
    await asyncio.sleep(300)
    pauses = [round(later - earlier) for earlier, later in pairwise(one.tried)]
    assert pauses[:7] == [1, 2, 4, 8, 16, 32, 60]
    assert set(pauses[7:]) == {60}
    assert one.clusters_worked_on == {"own-1"}
    one.may_begin = True
    await wait_until(lambda: one.clusters_worked_on == {"own-1", "own-2"}, 61)
    await asyncio.sleep(61)
    one.begun[-1].bug.set_exception(KeyError())
    await wait_until(lambda: one.clusters_worked_on == {"own-1"})
    await wait_until(lambda: one.clusters_worked_on == {"own-1", "own-2"}, 2.0)


async def test_an_error_at_a_word_of_the_log_costs_that_cluster_alone(fleet: Fleet) -> None:
    one = await fleet.start_working_instance("a", "own-1", "own-2")

    def fail_for_other_clusters(worker: Worker) -> None:
        worker.told.append("word")
        assert worker.turn.cluster == "own-2"

    one.turns.call_all_workers(fail_for_other_clusters)
    one.turns.call_worker("own-9", fail_for_other_clusters)
    await asyncio.sleep(TICK)
    assert one.clusters_worked_on == {"own-2"}
    assert [worker.told for worker in one.begun] == [["begun", "word", "cancelled", "ended"], ["begun", "word"]]
    await wait_until(lambda: one.clusters_worked_on == {"own-1", "own-2"}, 2.0)


async def test_an_error_when_finishing_keeps_nobody_from_stopping(fleet: Fleet) -> None:
    one = await fleet.start_working_instance("a", "own-1", "own-2")
    one.begun[0].finish_bug = KeyError("finish")
    before = failed_work_count()
    await one.stop()
    assert (failed_work_count(), one.begun[1].told) == (before + 1, ["begun", "finished", "cancelled", "ended"])


@pytest.mark.parametrize("kind", ENDS_THE_PROCESS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("grouped", [False, True])
async def test_what_says_that_the_process_must_end_ends_it(fleet: Fleet, kind: type[Exception], grouped: bool) -> None:
    one = await fleet.start_working_instance("a", "own-1")
    error = kind("nothing more can be done")
    one.begun[0].bug.set_exception(ExceptionGroup("two", [KeyError(), error]) if grouped else error)
    expected = (KeyError, kind) if grouped else (kind,)
    with pytest.RaisesGroup(*expected, flatten_subgroups=True):
        await one.task


# ── Settings ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_number_that_may_not_be_is_named() -> None:
    with pytest.raises(ValueError, match=r"reclaim_seconds: 0: expected more than 0"):
        ClusterTurnSettings(reclaim_seconds=0)


# ── Offsets ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_where_records_bear_an_epoch_that_no_claim_has_nobody_works(fleet: Fleet) -> None:
    """The claims' topic was made anew, or has lost its end: what we would say, everybody would drop."""
    await fleet.join_clusters("own-1")
    await fleet.publish_events(event_with_epoch(1000))
    one = fleet.start_instance("a")
    text = "cluster own-1 bear epoch 1000, and a claim of it is at offset 0 now"
    with pytest.RaisesGroup(pytest.RaisesExc(OffsetsWentBack, match=text), flatten_subgroups=True):
        await one.task
    assert one.begun == []


async def test_who_works_already_where_such_a_record_comes_stops_once_it_claims_again(fleet: Fleet) -> None:
    one = await fleet.start_working_instance("a", "own-1")
    await fleet.publish_events(event_with_epoch(1000))
    with pytest.RaisesGroup(OffsetsWentBack, flatten_subgroups=True):
        await one.task
    assert len(one.begun) == 1
